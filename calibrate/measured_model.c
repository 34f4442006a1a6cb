#include "calibrate/measured_model.h"

#include <stdio.h>

#include "core/base/alloc.h"
#include "core/compute/pool.h"

int64_t bppsa_ranks_at_once(const bppsa_comm *comm, const bppsa_device *device) {
  const int64_t ranks = bppsa_comm_size(comm), nodes = ranks / bppsa_comm_node_size(comm);
  const int64_t fit = nodes * bppsa_pool_cpus() / bppsa_device_get_threads(device);
  return fit < 1 ? 1 : fit < ranks ? fit : ranks;
}

bppsa_oracle_share bppsa_step_share(const bppsa_step_costs *costs, const char *strategy, int64_t ways, int64_t ranks,
                                    double batch) {
  const bppsa_layer_traffic *t = &costs->traffic;
  bppsa_oracle_share share = {.ways = (double)ways,
                              .ranks = (double)ranks,
                              .forward_s = costs->forward_s / batch,
                              .backward_s = costs->backward_s / batch,
                              .update_s = costs->update_s,
                              .exchange_s = costs->exchange_s,
                              .allgathers = (double)t->allgathers,
                              .sums = (double)t->sums,
                              .messages = (double)t->messages,
                              .allgather_bytes = (double)t->allgather_bytes / batch,
                              .sum_bytes = (double)t->sum_bytes / batch,
                              .message_bytes = (double)t->message_bytes / batch,
                              .tile_gradient_bytes = (double)t->tile_bytes,
                              .weight_gradient_bytes = (double)t->weight_bytes};
  const struct bppsa_step_ends *low = &costs->low, *high = &costs->high;
  share.forward_spread = (bppsa_oracle_spread){low->forward_s / batch, high->forward_s / batch};
  share.backward_spread = (bppsa_oracle_spread){low->backward_s / batch, high->backward_s / batch};
  share.update_spread = (bppsa_oracle_spread){low->update_s, high->update_s};
  share.exchange_spread = (bppsa_oracle_spread){low->exchange_s, high->exchange_s};
  snprintf(share.strategy, sizeof share.strategy, "%s", strategy);
  return share;
}

bppsa_status bppsa_chain_model(const bppsa_chain *chain, const char *name, bppsa_oracle_model *model) {
  bppsa_oracle_layer *layers = bppsa_calloc(chain->layers, sizeof *layers);
  if (layers == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t l = 0; l < chain->layers; ++l) {
    layers[l] = (bppsa_oracle_layer){.kind = l + 1 < chain->layers ? BPPSA_LAYER_RECURRENT : BPPSA_LAYER_LINEAR,
                                     .w = bppsa_chain_gradient(chain, l) / (double)bppsa_dtype_size(chain->dtype),
                                     .flops = chain->layer[l].flops,
                                     .scan_s = -1,
                                     .product_s = -1};
    snprintf(layers[l].name, sizeof layers[l].name, "%s", chain->layer[l].name);
  }
  *model = (bppsa_oracle_model){.samples = 1, .count = chain->layers, .layers = layers};
  snprintf(model->name, sizeof model->name, "%s", name);
  return BPPSA_OK;
}

bppsa_oracle_spread bppsa_chain_spread(const bppsa_chain_costs *costs, bppsa_schedule_cost cost, int64_t layer, double samples) {
  return (bppsa_oracle_spread){costs->low[cost][layer] / samples, costs->high[cost][layer] / samples};
}

void bppsa_chain_layers(const bppsa_chain_costs *costs, double samples, bppsa_oracle_model *model) {
  for (int64_t l = 0; l < costs->layers; ++l) {
    bppsa_oracle_layer *layer = &model->layers[l];
    layer->forward_s = costs->cost[BPPSA_COST_FORWARD][l] / samples;
    layer->backward_s = costs->cost[BPPSA_COST_BACKWARD][l] / samples;
    layer->update_s = costs->cost[BPPSA_COST_STEP][l];
    layer->forward_spread = bppsa_chain_spread(costs, BPPSA_COST_FORWARD, l, samples);
    layer->backward_spread = bppsa_chain_spread(costs, BPPSA_COST_BACKWARD, l, samples);
    layer->update_spread = bppsa_chain_spread(costs, BPPSA_COST_STEP, l, 1);
  }
}

#include "oracle/layer_cost.h"

#include <math.h>

double bppsa_flops_s(const bppsa_oracle_query *q, double flops) {
  return q->slowdown * flops / (q->system->peak_flops * q->system->efficiency);
}

/* Returns the time that was measured on one processor by itself; without one, the time that follows from FLOPs and elements. */
static double seconds_of(const bppsa_oracle_query *q, double measured_s, double flops, double elements) {
  const double bandwidth = q->system->memory_bandwidth;
  const double moved_s = bandwidth > 0 ? q->slowdown * elements * (double)q->item_bytes / bandwidth : 0;
  return measured_s >= 0 ? q->slowdown * measured_s : fmax(bppsa_flops_s(q, flops), moved_s);
}

double bppsa_layer_forward_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end) {
  return seconds_of(q, bppsa_oracle_spread_at(layer->forward_spread, layer->forward_s, end), layer->flops, layer->x + layer->y);
}

double bppsa_layer_backward_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end) {
  const double times = layer->w > 0 ? 2 : 1;
  return seconds_of(q, bppsa_oracle_spread_at(layer->backward_spread, layer->backward_s, end), times * layer->flops,
                    times * (layer->x + layer->y));
}

double bppsa_layer_update_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end) {
  const double parameters = layer->w + layer->bias;
  return seconds_of(q, bppsa_oracle_spread_at(layer->update_spread, layer->update_s, end), 4 * parameters, 5 * parameters);
}

double bppsa_layer_forward_s(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer) {
  return bppsa_layer_forward_at(q, layer, BPPSA_END_MIDDLE);
}

double bppsa_layer_backward_s(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer) {
  return bppsa_layer_backward_at(q, layer, BPPSA_END_MIDDLE);
}

double bppsa_layer_update_s(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer) {
  return bppsa_layer_update_at(q, layer, BPPSA_END_MIDDLE);
}

bppsa_oracle_spread bppsa_oracle_model_spread(const bppsa_oracle_query *q, bppsa_oracle_phase phase) {
  static double (*const seconds[])(const bppsa_oracle_query *, const bppsa_oracle_layer *,
                                   bppsa_oracle_end) = {[BPPSA_PHASE_FORWARD] = bppsa_layer_forward_at,
                                                        [BPPSA_PHASE_BACKWARD] = bppsa_layer_backward_at,
                                                        [BPPSA_PHASE_UPDATE] = bppsa_layer_update_at};
  bppsa_oracle_spread sum = {0, 0};
  double middle = 0;
  bool known = false;
  for (int64_t l = 0; l < q->model->count; ++l) {
    const bppsa_oracle_layer *layer = &q->model->layers[l];
    const bppsa_oracle_spread of_phase[] = {layer->forward_spread, layer->backward_spread, layer->update_spread};
    known = known || bppsa_oracle_spread_known(of_phase[phase]);
    middle += seconds[phase](q, layer, BPPSA_END_MIDDLE);
    sum.low += seconds[phase](q, layer, BPPSA_END_LOW);
    sum.high += seconds[phase](q, layer, BPPSA_END_HIGH);
  }
  return bppsa_oracle_spread_factors(known ? sum : (bppsa_oracle_spread){0, 0}, middle);
}

double bppsa_layer_product_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end) {
  return seconds_of(q, bppsa_oracle_spread_at(layer->product_spread, layer->product_s, end), layer->product_flops, 0);
}

double bppsa_layer_walk_at(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bppsa_oracle_end end) {
  const double longer = bppsa_oracle_spread_at(layer->scan_spread, layer->scan_s, end);
  return bppsa_layer_backward_at(q, layer, end) + q->slowdown * fmax(0, longer);
}

double bppsa_scan_product_at(const bppsa_oracle_query *q, bppsa_oracle_product product, double hidden, double samples,
                             bppsa_oracle_end end) {
  const bppsa_oracle_product_cost *cost = &q->system->products[product];
  const double terms = product == BPPSA_PRODUCT_MATRICES ? hidden * hidden * hidden : hidden * hidden;
  const double factor = bppsa_oracle_spread_at(q->system->product_spread[product], 1, end);
  return bppsa_oracle_product_measured(cost) ? factor * q->slowdown * bppsa_oracle_product_s(product, cost, hidden, samples)
                                             : bppsa_flops_s(q, samples * 2 * terms);
}

double bppsa_layer_elements(const bppsa_oracle_layer *layer, double batch, double activations, double weights) {
  return 2 * batch * (layer->x + layer->y) * activations + 2 * layer->w * weights + layer->bias;
}

bppsa_link bppsa_oracle_link(const bppsa_oracle_query *q, bppsa_oracle_operation operation, int64_t p, bool shared) {
  const bppsa_oracle_level *level = bppsa_oracle_system_level(q->system, p);
  const bppsa_link own = level->own[operation];
  const bppsa_link link = own.beta_s > 0 ? own : (bppsa_link){level->alpha_s, level->beta_s};
  return (bppsa_link){link.alpha_s, link.beta_s * (shared ? level->contention : 1)};
}

bppsa_link bppsa_oracle_stage_link(const bppsa_oracle_query *q, int64_t p) {
  const bool measured = bppsa_oracle_system_level(q->system, p)->own[BPPSA_OPERATION_STAGE_MESSAGE].beta_s > 0;
  return bppsa_oracle_link(q, measured ? BPPSA_OPERATION_STAGE_MESSAGE : BPPSA_OPERATION_POINT_TO_POINT, p, false);
}

double bppsa_oracle_allreduce_s(const bppsa_oracle_query *q, int64_t p, bool shared, int64_t ways, double bytes) {
  const bool ordered = q->collective == BPPSA_COLLECTIVE_ORDERED;
  const bppsa_oracle_operation operation = ordered ? BPPSA_OPERATION_ORDERED_SUM : BPPSA_OPERATION_ALLREDUCE;
  const bool measured = bppsa_oracle_system_level(q->system, p)->own[BPPSA_OPERATION_ALLREDUCE].beta_s > 0;
  const bppsa_collective how = q->collective == BPPSA_COLLECTIVE_AUTO && measured ? BPPSA_COLLECTIVE_RING : q->collective;
  return bppsa_allreduce_s(how, bppsa_oracle_link(q, operation, p, shared), ways, bytes);
}

double bppsa_oracle_allgather_s(const bppsa_oracle_query *q, int64_t p, double bytes) {
  return bppsa_allgather_s(bppsa_oracle_link(q, BPPSA_OPERATION_ALLGATHER, p, false), p, bytes);
}

double bppsa_oracle_message_s(const bppsa_oracle_query *q, int64_t p, double bytes) {
  return bppsa_point_to_point_s(bppsa_oracle_link(q, BPPSA_OPERATION_POINT_TO_POINT, p, false), bytes);
}

int64_t bppsa_mini_batch(const bppsa_oracle_query *q, int64_t p) {
  return q->strong ? q->batch : q->batch * p;
}

int64_t bppsa_micro_batches(const bppsa_oracle_query *q, int64_t p, int64_t mini_batch) {
  const int64_t asked = q->micro_batches > 0 ? q->micro_batches : 4 * p;
  return asked < mini_batch ? asked : mini_batch;
}

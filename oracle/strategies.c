/* Projects serial, data, filter, channel, and data + filter by ParaDL's table 3 and appendix A. I = D / B iterations an epoch. */
#include "oracle/strategies.h"

#include <inttypes.h>
#include <stdio.h>

void bppsa_oracle_compute(const bppsa_oracle_query *q, bppsa_oracle_row *row, double share, double update_share) {
  const double samples = (double)q->samples, iterations = samples / (double)row->mini_batch;
  for (int64_t l = 0; l < q->model->count; ++l) {
    const bppsa_oracle_layer *layer = &q->model->layers[l];
    row->phase_s[BPPSA_PHASE_FORWARD] += samples * share * bppsa_layer_forward_s(q, layer);
    row->phase_s[BPPSA_PHASE_BACKWARD] += samples * share * bppsa_layer_backward_s(q, layer);
    row->phase_s[BPPSA_PHASE_UPDATE] += iterations * update_share * bppsa_layer_update_s(q, layer);
  }
}

double bppsa_oracle_memory(const bppsa_oracle_query *q, double batch, double activations, double weights) {
  double elements = 0;
  for (int64_t l = 0; l < q->model->count; ++l) {
    elements += bppsa_layer_elements(&q->model->layers[l], batch, activations, weights);
  }
  return q->memory_reuse * (double)q->item_bytes * elements;
}

double bppsa_oracle_weight_bytes(const bppsa_oracle_query *q) {
  double weights = 0;
  for (int64_t l = 0; l < q->model->count; ++l) {
    weights += q->model->layers[l].w;
  }
  return weights * (double)q->item_bytes;
}

/* ---- serial: D sum(FW + BW) + I sum(WU). Equation 4 of the paper drops |bi|; table 3 has it. ---- */

int64_t bppsa_oracle_serial_limit(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  (void)q;
  snprintf(row->reason, sizeof row->reason, "one processor");
  return 1;
}

bppsa_status bppsa_oracle_serial(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  if (!bppsa_oracle_by_share(q, "serial", 1, 1, row)) {
    bppsa_oracle_compute(q, row, 1, 1);
  }
  row->memory_bytes = bppsa_oracle_memory(q, (double)row->mini_batch, 1, 1);
  return BPPSA_OK;
}

/* ---- data: D/p sum(FW + BW) + I sum(WU); I T_allreduce(p, sum |w|) ---- */

int64_t bppsa_oracle_data_limit(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  snprintf(row->reason, sizeof row->reason, "the mini-batch of %" PRId64 " has fewer samples than there are processors",
           q->batch);
  return q->strong ? q->batch : INT64_MAX; /* weak scaling gives every processor samples */
}

bppsa_status bppsa_oracle_data(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  const int64_t p = row->processors;
  const double iterations = (double)q->samples / (double)row->mini_batch;
  if (!bppsa_oracle_by_share(q, "data", 1, p, row)) {
    bppsa_oracle_compute(q, row, 1 / (double)p, 1);
    row->phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE] =
        iterations * bppsa_oracle_allreduce_s(q, p, false, p, bppsa_oracle_weight_bytes(q));
  }
  row->memory_bytes = bppsa_oracle_memory(q, (double)row->mini_batch / (double)p, 1, 1);
  return BPPSA_OK;
}

/* ---- filter and channel ---- */

static bool next_weighted(const bppsa_oracle_model *model, int64_t *l) {
  while (*l < model->count && !bppsa_oracle_weighted(&model->layers[*l])) {
    ++*l;
  }
  return *l < model->count;
}

/* Returns the seconds of an iteration's collectives among p processors over a batch. Layers without weights exchange nothing
 * (table 4). Filter: in the forward pass an allgather of y after every weighted layer but the last, in the backward pass an
 * allreduce of dL/dx before every weighted layer but the first. Channel exchanges the two operations. With rings, and if |x_l| =
 * |y_{l-1}|, both take 3 (p - 1) sum_{l<G}(alpha + B |y| delta beta / p) (equations 15 and 19). */
static double exchange_s(const bppsa_oracle_query *q, int64_t p, double batch, bool channel) {
  const bppsa_oracle_model *model = q->model;
  const double bytes = batch * (double)q->item_bytes;
  double seconds = 0;
  const bppsa_oracle_layer *before = NULL;
  for (int64_t l = 0; next_weighted(model, &l); ++l) {
    const bppsa_oracle_layer *layer = &model->layers[l];
    if (before != NULL) {
      const double gathered = bytes * (channel ? layer->x : before->y), reduced = bytes * (channel ? before->y : layer->x);
      seconds += bppsa_oracle_allgather_s(q, p, gathered / (double)p) + bppsa_oracle_allreduce_s(q, p, false, p, reduced);
    }
    before = layer;
  }
  return seconds;
}

/* Returns the fewest filters of a weighted layer, or the fewest channels of a weighted layer after the first, whose 3 channels
 * are not split (section 4.5.1). INT64_MAX: the model has no such layer. */
static int64_t fewest(const bppsa_oracle_query *q, bool channel) {
  int64_t least = INT64_MAX, l = 0;
  for (bool first = true; next_weighted(q->model, &l); ++l, first = false) {
    const int64_t ways = channel ? q->model->layers[l].in[0] : q->model->layers[l].out[0];
    least = (channel && first) || ways > least ? least : ways;
  }
  return least;
}

/* Returns the most processors that can share every layer. None can share a recurrent layer, because it would exchange its state
 * at every step. */
static int64_t split_limit(const bppsa_oracle_query *q, bool channel, char reason[160]) {
  const int64_t least = fewest(q, channel);
  for (int64_t l = 0; l < q->model->count; ++l) {
    if (q->model->layers[l].kind == BPPSA_LAYER_RECURRENT) {
      snprintf(reason, 160, "a recurrent layer is not split by channels");
      return 0;
    }
  }
  if (least == INT64_MAX) {
    snprintf(reason, 160, "no layer%s has weights to split", channel ? " behind the first one with weights" : "");
    return 1;
  }
  snprintf(reason, 160, "the narrowest layer has %" PRId64 " %s%s", least, channel ? "channel" : "filter", least == 1 ? "" : "s");
  return least;
}

/* Adds the whole first layer, which channel parallelism does not split: every processor holds and computes it. */
static void add_first_layer(const bppsa_oracle_query *q, bool computing, bppsa_oracle_row *row) {
  int64_t l = 0;
  if (next_weighted(q->model, &l)) {
    const bppsa_oracle_layer *first = &q->model->layers[l];
    const double more = 1 - 1 / (double)row->processors, samples = computing ? (double)q->samples : 0;
    row->phase_s[BPPSA_PHASE_FORWARD] += samples * more * bppsa_layer_forward_s(q, first);
    row->phase_s[BPPSA_PHASE_BACKWARD] += samples * more * bppsa_layer_backward_s(q, first);
    row->phase_s[BPPSA_PHASE_UPDATE] += samples / (double)row->mini_batch * more * bppsa_layer_update_s(q, first);
    row->memory_bytes += q->memory_reuse * (double)q->item_bytes * 2 * first->w * more;
  }
}

static bppsa_status split(const bppsa_oracle_query *q, bppsa_oracle_row *row, bool channel) {
  const int64_t p = row->processors;
  const double batch = (double)row->mini_batch, iterations = (double)q->samples / batch;
  const bool measured = bppsa_oracle_by_share(q, channel ? "channel" : "filter", p, 1, row);
  if (!measured) {
    bppsa_oracle_compute(q, row, 1 / (double)p, 1 / (double)p);
    row->phase_s[BPPSA_PHASE_COLLECTIVES] = iterations * exchange_s(q, p, batch, channel);
  }
  row->memory_bytes = bppsa_oracle_memory(q, batch, 1, 1 / (double)p);
  if (channel) {
    add_first_layer(q, !measured, row);
  }
  return BPPSA_OK;
}

int64_t bppsa_oracle_filter_limit(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  return split_limit(q, false, row->reason);
}

bppsa_status bppsa_oracle_filter(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  return split(q, row, false);
}

int64_t bppsa_oracle_channel_limit(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  return split_limit(q, true, row->reason);
}

bppsa_status bppsa_oracle_channel(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  return split(q, row, true);
}

/* ---- data + filter: p1 groups of p2; equations 20 to 22 (22 drops delta). Between groups, p2 allreduces run side by side, each
 * of 1/p2 of the weights, and share the links (phi, section 5.2). ---- */

int64_t bppsa_oracle_data_filter_limit(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  return bppsa_oracle_hybrid_limit(q, split_limit(q, false, row->reason), row->reason);
}

bppsa_status bppsa_oracle_data_filter(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  char limit[160];
  const int64_t p = row->processors, p2 = bppsa_oracle_cut_groups(q, split_limit(q, false, limit), NULL, row), p1 = row->groups;
  if (p2 == 0) {
    return BPPSA_OK;
  }
  const double batch = (double)row->mini_batch, iterations = (double)q->samples / batch;
  if (!bppsa_oracle_by_share(q, "filter", p2, p1, row)) {
    bppsa_oracle_compute(q, row, 1 / (double)p, 1 / (double)p2);
    row->phase_s[BPPSA_PHASE_COLLECTIVES] = iterations * exchange_s(q, p2, batch / (double)p1, false);
    row->phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE] =
        iterations * bppsa_oracle_allreduce_s(q, p, p2 > 1, p1, bppsa_oracle_weight_bytes(q) / (double)p2);
  }
  row->memory_bytes = bppsa_oracle_memory(q, batch / (double)p1, 1, 1 / (double)p2);
  return BPPSA_OK;
}

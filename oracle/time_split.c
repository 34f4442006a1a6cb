/* Recurrent networks cut along time: every processor holds T / p steps (BPPSA, section 3.6). In the forward pass states go from
 * one processor to the next, in S micro-batches, so that processors overlap. The backward pass does the same (time-bp), or scans:
 * every processor multiplies its T / p Jacobians at once; then a gradient goes from processor to processor (chunked), or matrices
 * go up a tree and gradients down (blelloch, BPPSA's Theta(n / p + log p)). Every processor has all weights. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "oracle/strategies.h"

typedef enum { BY_BP, BY_CHUNKED, BY_BLELLOCH } way;

/* Returns the fewest steps of a recurrent layer; 0: the model has none. */
static int64_t steps_of(const bppsa_oracle_model *model) {
  int64_t least = 0;
  for (int64_t l = 0; l < model->count; ++l) {
    const bppsa_oracle_layer *layer = &model->layers[l];
    if (layer->kind == BPPSA_LAYER_RECURRENT && (least == 0 || layer->in[1] < least)) {
      least = layer->in[1];
    }
  }
  return least;
}

static int64_t limit(const bppsa_oracle_query *q, char reason[160]) {
  const int64_t steps = steps_of(q->model);
  if (steps == 0) {
    snprintf(reason, 160, "the model has no recurrent layer");
  } else {
    snprintf(reason, 160, "a recurrent layer has %" PRId64 " steps", steps);
  }
  return steps;
}

/* Returns the seconds that an iteration's backward pass of one recurrent layer takes beside the walk through a processor's own
 * steps at its end (distributed/time/scan_ranks.h). The first processor has the seed and walks through its steps first, while
 * those between it and the last one multiply theirs; two processors multiply nothing. Then the gradient passes on:
 *
 *   chunked   from each to the next, (p - 2) apply + (p - 1) messages of a vector
 *   blelloch  r = ceil(log2 p) rounds: a product is joined r - 2 times and sent r - 1 times, the last time while the gradient
 *             moves to where it goes; a gradient that arrives is applied and sent on, (r - 2)(full + matrix) +
 *             max(matrix, apply + vector) + (r - 1)(apply + vector). That is exact where p is a power of two */
static double backward_compute(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, way how, bool waits, double batch,
                               const bppsa_oracle_row *row, bppsa_oracle_end end) {
  const double p = (double)row->processors, rounds = ceil(log2(p)), hidden = (double)layer->out[0];
  const double full = bppsa_scan_product_at(q, BPPSA_PRODUCT_MATRICES, hidden, batch, end),
               apply = bppsa_scan_product_at(q, BPPSA_PRODUCT_VECTOR, hidden, batch, end);
  const double walk = batch * bppsa_layer_walk_at(q, layer, end) / p,
               products = p > 2 ? batch * (double)layer->in[1] / p * bppsa_layer_product_at(q, layer, end) : 0;
  return fmax(walk, products) +
         (how == BY_CHUNKED || p == 2 ? (p - 2) * apply : (rounds - 2) * full + (rounds - (waits ? 1 : 0)) * apply);
}

static void add_backward(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, way how, double iterations, double batch,
                         bppsa_oracle_row *row) {
  const double p = (double)row->processors, rounds = ceil(log2(p)), hidden = (double)layer->out[0], bytes = (double)q->item_bytes;
  const double vector = bppsa_oracle_message_s(q, row->processors, batch * hidden * bytes),
               matrix = bppsa_oracle_message_s(q, row->processors, batch * hidden * hidden * bytes);
  const double apply = bppsa_scan_product_at(q, BPPSA_PRODUCT_VECTOR, hidden, batch, BPPSA_END_MIDDLE);
  const bool waits = matrix > apply + vector; /* does it wait for the product although the gradient has arrived? */
  const double messages =
      how == BY_CHUNKED || p == 2 ? (p - 1) * vector : (rounds - (waits ? 1 : 2)) * matrix + (rounds - (waits ? 1 : 0)) * vector;
  row->phase_s[BPPSA_PHASE_BACKWARD] += iterations * backward_compute(q, layer, how, waits, batch, row, BPPSA_END_MIDDLE);
  row->phase_spread_s[BPPSA_PHASE_BACKWARD].low += iterations * backward_compute(q, layer, how, waits, batch, row, BPPSA_END_LOW);
  row->phase_spread_s[BPPSA_PHASE_BACKWARD].high +=
      iterations * backward_compute(q, layer, how, waits, batch, row, BPPSA_END_HIGH);
  row->phase_s[BPPSA_PHASE_POINT_TO_POINT] += iterations * messages;
}

/* Adds the seconds of an epoch's backward pass at the middle and at both ends. */
static void add_walk(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, bool scans, double samples,
                     bppsa_oracle_row *row) {
  double (*const seconds)(const bppsa_oracle_query *, const bppsa_oracle_layer *, bppsa_oracle_end) =
      scans ? bppsa_layer_walk_at : bppsa_layer_backward_at;
  row->phase_s[BPPSA_PHASE_BACKWARD] += samples * seconds(q, layer, BPPSA_END_MIDDLE);
  row->phase_spread_s[BPPSA_PHASE_BACKWARD].low += samples * seconds(q, layer, BPPSA_END_LOW);
  row->phase_spread_s[BPPSA_PHASE_BACKWARD].high += samples * seconds(q, layer, BPPSA_END_HIGH);
}

static void add_recurrent(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, way how, bppsa_oracle_row *row) {
  const double p = (double)row->processors, s = (double)row->micro_batches, samples = (double)q->samples;
  const double batch = (double)row->mini_batch, iterations = samples / batch, bubbles = (p - 1) / s;
  const double state = batch / s * (double)layer->out[0] * (double)q->item_bytes;
  const double relay = (p + s - 2) * bppsa_oracle_message_s(q, row->processors, state);
  const double passes = how == BY_BP ? 2 : 1;
  const bool relayed = how == BY_BP || p == 1; /* the backward pass goes from processor to processor too */
  const double forward = samples * bppsa_layer_forward_s(q, layer) / p, backward = samples * bppsa_layer_backward_s(q, layer) / p;
  row->phase_s[BPPSA_PHASE_FORWARD] += forward;
  add_walk(q, layer, !relayed, samples / p, row);
  row->phase_s[BPPSA_PHASE_WAIT] += bubbles * (forward + (relayed ? backward : 0));
  row->phase_s[BPPSA_PHASE_POINT_TO_POINT] += row->processors > 1 ? iterations * passes * relay : 0;
  if (how != BY_BP && row->processors > 1) {
    add_backward(q, layer, how, iterations, batch, row);
  }
}

static bppsa_status project(const bppsa_oracle_query *q, way how, bppsa_oracle_row *row) {
  const double p = (double)row->processors;
  double elements = 0;
  row->micro_batches = bppsa_micro_batches(q, row->processors, row->mini_batch);
  const double iterations = (double)q->samples / (double)row->mini_batch;
  for (int64_t l = 0; l < q->model->count; ++l) {
    const bppsa_oracle_layer *layer = &q->model->layers[l];
    const bool cut = layer->kind == BPPSA_LAYER_RECURRENT;
    if (cut) {
      add_recurrent(q, layer, how, row);
    } else { /* one processor computes, the others wait */
      row->phase_s[BPPSA_PHASE_FORWARD] += (double)q->samples * bppsa_layer_forward_s(q, layer);
      add_walk(q, layer, false, (double)q->samples, row);
    }
    row->phase_s[BPPSA_PHASE_UPDATE] += iterations * bppsa_layer_update_s(q, layer);
    elements += bppsa_layer_elements(layer, (double)row->mini_batch, cut ? 1 / p : 1, 1);
    if (cut && how != BY_BP) { /* each sample's product of the processor's Jacobians */
      elements += (double)row->mini_batch * (double)layer->out[0] * (double)layer->out[0];
    }
  }
  if (!bppsa_oracle_spread_known(bppsa_oracle_model_spread(q, BPPSA_PHASE_BACKWARD))) { /* both ends equal the middle */
    row->phase_spread_s[BPPSA_PHASE_BACKWARD] = (bppsa_oracle_spread){0};
  }
  row->phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE] =
      iterations * bppsa_oracle_allreduce_s(q, row->processors, false, row->processors, bppsa_oracle_weight_bytes(q));
  row->memory_bytes = q->memory_reuse * (double)q->item_bytes * elements;
  return BPPSA_OK;
}

#define WAY(name, how)                                                                                                           \
  int64_t bppsa_oracle_##name##_limit(const bppsa_oracle_query *q, bppsa_oracle_row *row) {                                      \
    return limit(q, row->reason);                                                                                                \
  }                                                                                                                              \
  bppsa_status bppsa_oracle_##name(const bppsa_oracle_query *q, bppsa_oracle_row *row) {                                         \
    return project(q, how, row);                                                                                                 \
  }
WAY(time_bp, BY_BP)
WAY(time_chunked, BY_CHUNKED)
WAY(time_blelloch, BY_BLELLOCH)

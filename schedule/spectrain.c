/* Computes how many updates ahead SpecTrain predicts weights (section 3.2). */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

int64_t bppsa_schedule_ahead(const bppsa_schedule *list, const bppsa_schedule_times *times, int64_t micro, int64_t stage,
                             bool forward) {
  double from = NAN, to = NAN;
  int64_t updates = 0, replica = -1;
  for (int64_t i = 0; i < list->count; ++i) {
    const bppsa_schedule_op *op = &list->ops[i];
    if (op->micro != micro || op->kind > BPPSA_KIND_B) {
      continue;
    }
    if (op->stage == stage && (op->kind == BPPSA_KIND_F) == forward && !(from <= times->start[i])) {
      from = times->start[i];
      replica = op->replica;
    }
    if (op->stage == 0 && op->kind != BPPSA_KIND_F) {
      to = fmax(to, times->end[i]); /* fmax ignores NaN */
    }
  }
  if (isnan(from) || isnan(to)) {
    return -1;
  }
  for (int64_t i = 0; i < list->count; ++i) {
    const bppsa_schedule_op *op = &list->ops[i];
    const bool own = op->kind == BPPSA_KIND_STEP && op->stage == stage && op->replica == replica;
    updates += own && times->end[i] > from && times->end[i] <= to;
  }
  return updates - 1;
}

/* Gives every pass one unit of time, because passes keep the order of figures 6 and 7 of SpecTrain, whatever they cost. */
static void align_passes(const bppsa_schedule *list, bppsa_schedule_op *ops) {
  for (int64_t i = 0; i < list->count; ++i) {
    const bppsa_schedule_op *op = &list->ops[i];
    const int64_t layers = bppsa_schedule_layer_of(list, op->stage + 1) - bppsa_schedule_layer_of(list, op->stage);
    const bool whole = op->kind == BPPSA_KIND_F || op->kind == BPPSA_KIND_B,
               half = op->kind == BPPSA_KIND_I || op->kind == BPPSA_KIND_W;
    ops[i] = *op;
    ops[i].cost = (whole ? 1 : half ? 0.5 : 0) * (double)op->layers / (double)layers;
  }
}

/* Sets the aims of the micro-batch whose trip ends with this update of layer 0: the updates of every layer so far, without the
 * micro-batch's own. updates: their number for [replica][layer]. */
static void end_trip(const bppsa_schedule *list, const bppsa_schedule_op *step, const int32_t *updates, int32_t *aim) {
  const int64_t layers = list->config.layers;
  const int32_t *of = &updates[step->replica * layers];
  const bool own = of[0] <= list->rounds * list->config.micro_batches; /* another rule reports too many updates */
  for (int64_t layer = 0; own && layer < layers; ++layer) {
    aim[bppsa_schedule_micro(list, step->replica, 0, of[0] - 1) * layers + layer] = of[layer] - 1;
  }
}

/* If the operation is an update, counts it for each of its layers. */
static void count_updates(const bppsa_schedule *list, const bppsa_schedule_op *op, int32_t *updates) {
  for (int64_t layer = op->layer; op->kind == BPPSA_KIND_STEP && layer < op->layer + op->layers; ++layer) {
    updates[op->replica * list->config.layers + layer] += 1;
  }
}

/* Updates that end at the same time count for each other. Times are sums of fractions of a pass, so equal times may differ by
 * rounding. */
static void find_aims(const bppsa_schedule *list, const bppsa_schedule_run *run, int32_t *updates, int32_t *aim) {
  for (int64_t i = 0, end; i < run->done; i = end) { /* updates take no time: they end when they start */
    const double now = run->start[run->order[i]] + 1e-6;
    for (end = i; end < run->done && run->start[run->order[end]] <= now; ++end) {
      count_updates(list, &list->ops[run->order[end]], updates);
    }
    for (int64_t k = i; k < end; ++k) {
      const bppsa_schedule_op *op = &list->ops[run->order[k]];
      if (op->kind == BPPSA_KIND_STEP && op->layer == 0) {
        end_trip(list, op, updates, aim);
      }
    }
  }
}

bppsa_status bppsa_schedule_aims(const bppsa_schedule *list, int32_t *aim) {
  const int64_t cells = list->micros * list->config.layers;
  bppsa_schedule aligned = *list;
  bppsa_schedule_run run = {0};
  int32_t *updates = bppsa_calloc(list->replicas * list->config.layers, sizeof *updates);
  aligned.ops = bppsa_alloc((size_t)list->count * sizeof *aligned.ops);
  bppsa_status status = updates == NULL || aligned.ops == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  if (status == BPPSA_OK) {
    memset(aim, 0xff, (size_t)cells * sizeof *aim); /* -1 */
    align_passes(list, aligned.ops);
    status = bppsa_schedule_run_simulate(&aligned, true, &run);
  }
  if (status == BPPSA_OK) {
    find_aims(&aligned, &run, updates, aim);
  }
  bppsa_schedule_run_free(&run);
  bppsa_free(aligned.ops);
  bppsa_free(updates);
  return status;
}

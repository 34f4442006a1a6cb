/* Chimera's performance model of a schedule (section 3.4). */
#include <math.h>

#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

/* Returns the operation whose end let this one start, or -1: a dependency, or the operation before it in its lane. */
static int64_t waited_for(const bppsa_schedule *list, const bppsa_schedule_run *run, const int32_t *previous, int64_t id) {
  const bppsa_schedule_op *op = &list->ops[id];
  int64_t latest = previous[id];
  if (op->kind == BPPSA_KIND_RECV) {
    return id - 1; /* a RECV ends with its SEND, the operation in front of it */
  }
  for (int32_t k = 0; k < op->dep_count; ++k) {
    const int32_t dep = list->deps[op->deps + k];
    latest = latest < 0 || run->end[dep] > run->end[latest] ? dep : latest;
  }
  return latest;
}

/* Counts C_f and C_b: forward and backward passes on the path that leads back from the operation that ends last. */
static bppsa_status count_critical(const bppsa_schedule *list, const bppsa_schedule_run *run, int64_t *forward,
                                   int64_t *backward) {
  int32_t *last = bppsa_alloc((size_t)(list->workers * BPPSA_LANE_COUNT) * sizeof *last),
          *previous = bppsa_alloc((size_t)list->count * sizeof *previous);
  const bool room = last != NULL && previous != NULL;
  int64_t at = -1;
  *forward = *backward = 0;
  for (int64_t i = 0; room && i < list->workers * BPPSA_LANE_COUNT; ++i) {
    last[i] = -1;
  }
  for (int64_t i = 0; room && i < list->count; ++i) {
    int32_t *before = &last[(int64_t)list->ops[i].worker * BPPSA_LANE_COUNT + list->ops[i].lane];
    previous[i] = *before;
    *before = (int32_t)i;
    at = list->ops[i].kind <= BPPSA_KIND_B && (at < 0 || run->end[i] > run->end[at]) ? i : at;
  }
  while (room && at >= 0) {
    *forward += list->ops[at].kind == BPPSA_KIND_F;
    *backward += list->ops[at].kind == BPPSA_KIND_B;
    at = waited_for(list, run, previous, at);
  }
  bppsa_free(last);
  bppsa_free(previous);
  return room ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

static double end_of(const bppsa_schedule *list, const bppsa_schedule_run *run, bool syncs) {
  double end = 0;
  for (int64_t i = 0; i < list->count; ++i) {
    end = syncs || list->ops[i].kind <= BPPSA_KIND_RECOMPUTE ? fmax(end, run->end[i]) : end;
  }
  return end;
}

/* Returns the cost of the layers of a stage. Where layers have costs of their own, takes the most expensive stage. */
static double stage_cost(const bppsa_schedule *list, bppsa_schedule_cost cost) {
  const bppsa_schedule_config *c = &list->config;
  double longest = 0;
  if (c->cost[cost] == NULL) {
    return c->uniform[cost] * (double)c->layers / (double)c->stages;
  }
  for (int64_t stage = 0; stage < list->stages; ++stage) {
    double sum = 0;
    for (int64_t l = bppsa_schedule_layer_of(list, stage); l < bppsa_schedule_layer_of(list, stage + 1); ++l) {
      sum += c->cost[cost][l];
    }
    longest = fmax(longest, sum);
  }
  return longest;
}

/* Returns the time of the longest message between two stages. */
static double message_time(const bppsa_schedule *list) {
  double words = 0;
  for (int64_t stage = 1; stage < list->stages; ++stage) {
    const int64_t last = bppsa_schedule_layer_of(list, stage) - 1;
    words = fmax(words, bppsa_schedule_cost_of(&list->config, BPPSA_COST_MESSAGE, last));
  }
  return list->config.alpha + list->config.beta * words;
}

bppsa_status bppsa_schedule_model(const bppsa_schedule *list, double *time, int64_t *forward, int64_t *backward) {
  BPPSA_REQUIRE(list != NULL && time != NULL && forward != NULL && backward != NULL);
  const bppsa_schedule_config *c = &list->config;
  if ((list->scheme->takes & TAKES_REPLICAS) == 0 || c->split != BPPSA_SPLIT_NONE || c->scale != BPPSA_SCALE_DIRECT ||
      c->iterations > 1) {
    *time = NAN;
    *forward = *backward = 0;
    return BPPSA_OK;
  }
  bppsa_schedule_run run;
  BPPSA_TRY(bppsa_schedule_run_simulate(list, true, &run));
  bppsa_status status = count_critical(list, &run, forward, backward);
  const bool together = c->cost[BPPSA_COST_BACKWARD] != NULL || c->uniform[BPPSA_COST_BACKWARD] >= 0;
  const double p2p = message_time(list), f = stage_cost(list, BPPSA_COST_FORWARD);
  const double both = together ? stage_cost(list, BPPSA_COST_BACKWARD)
                               : stage_cost(list, BPPSA_COST_INPUT_GRAD) + stage_cost(list, BPPSA_COST_WEIGHT_GRAD);
  const double b = both + (c->recompute ? f : 0);
  const double unoverlapped = end_of(list, &run, true) - end_of(list, &run, false);
  bppsa_schedule_run_free(&run);
  *time = (f + p2p) * (double)*forward + (b + p2p) * (double)*backward + unoverlapped;
  return status;
}

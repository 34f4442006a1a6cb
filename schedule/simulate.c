/* The results of a simulated schedule: makespan, bubble ratio, and each worker's time and memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

/* A change of the memory that a worker holds. */
typedef struct {
  double time, activations;
  int32_t weights;
} change;

/* At equal times memory is freed before it is taken. */
static int by_time(const void *a, const void *b) {
  const change *x = a, *y = b;
  if (x->time != y->time) {
    return x->time < y->time ? -1 : 1;
  }
  const double p = x->activations + x->weights, q = y->activations + y->weights;
  return (p > q) - (p < q);
}

static bool taken(const bppsa_schedule_op *op) {
  return op->memory_delta > 0 || op->weight_delta > 0;
}

/* Lists the changes of every worker in time order, changes[first[w]] .. changes[first[w + 1] - 1]. The caller frees both. */
static bppsa_status list_changes(const bppsa_schedule *list, const bppsa_schedule_times *times, int64_t **first,
                                 change **changes) {
  *first = bppsa_calloc(list->workers + 1, sizeof **first);
  *changes = bppsa_alloc((size_t)list->count * sizeof **changes);
  if (*first == NULL || *changes == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < list->count; ++i) {
    (*first)[list->ops[i].worker + 1] += list->ops[i].memory_delta != 0 || list->ops[i].weight_delta != 0;
  }
  for (int64_t w = 0; w < list->workers; ++w) {
    (*first)[w + 1] += (*first)[w];
  }
  for (int64_t i = list->count - 1; i >= 0; --i) { /* moves first[w + 1] from the end of worker w's changes to their beginning */
    const bppsa_schedule_op *op = &list->ops[i];
    if (op->memory_delta != 0 || op->weight_delta != 0) {
      (*changes)[--(*first)[op->worker + 1]] =
          (change){taken(op) ? times->start[i] : times->end[i], op->memory_delta, op->weight_delta};
    }
  }
  int64_t all = 0;
  for (int64_t i = 0; i < list->count; ++i) {
    all += list->ops[i].memory_delta != 0 || list->ops[i].weight_delta != 0;
  }
  for (int64_t w = 0; w < list->workers; ++w) {
    (*first)[w] = (*first)[w + 1];
  }
  (*first)[list->workers] = all;
  for (int64_t w = 0; w < list->workers; ++w) {
    qsort(*changes + (*first)[w], (size_t)((*first)[w + 1] - (*first)[w]), sizeof **changes, by_time);
  }
  return BPPSA_OK;
}

/* Returns the weights that a worker holds from the beginning, in M_theta: the weights of every stage of every replica on it, twice
 * with 2BW. Where every micro-batch keeps its own weights (PipeDream), they are counted when they are stashed. */
static double resident(const bppsa_schedule *list, int64_t worker) {
  static const double copies[] = {[BPPSA_WEIGHTS_SYNCHRONOUS] = 1,
                                  [BPPSA_WEIGHTS_STASHED] = 0,
                                  [BPPSA_WEIGHTS_BUFFERED] = 2,
                                  [BPPSA_WEIGHTS_LATEST] = 1,
                                  [BPPSA_WEIGHTS_PREDICTED] = 1};
  (void)worker; /* all workers of a scheme hold the same number */
  return copies[list->scheme->weights] * (list->scheme->data_parallel || list->scheme->scan ? 1 : (double)list->config.replicas);
}

static bppsa_status find_peaks(const bppsa_schedule *list, bppsa_schedule_times *times) {
  int64_t *first = NULL;
  change *changes = NULL;
  const bppsa_status status = list_changes(list, times, &first, &changes);
  for (int64_t w = 0; w < list->workers && status == BPPSA_OK; ++w) {
    double activations = 0, most = 0;
    int64_t stashed = 0, most_stashed = 0;
    for (int64_t i = first[w]; i < first[w + 1]; ++i) {
      activations += changes[i].activations;
      stashed += changes[i].weights;
      most = fmax(most, activations);
      most_stashed = stashed > most_stashed ? stashed : most_stashed;
    }
    times->worker[w].peak_activations = round(most * 1e9) / 1e9; /* so that thirds of layers add up to whole numbers */
    times->worker[w].weight_versions = resident(list, w) + (double)most_stashed;
  }
  bppsa_free(first);
  bppsa_free(changes);
  return status;
}

/* Writes a point for the beginning, and one for each time at which the level changes. */
static int64_t draw_curve(const change *changes, int64_t count, bppsa_schedule_memory *curve) {
  int64_t points = 1;
  curve[0] = (bppsa_schedule_memory){0, 0};
  for (int64_t i = 0; i < count; ++i) {
    const double level = curve[points - 1].level + changes[i].activations;
    points += changes[i].time > curve[points - 1].time;
    curve[points - 1] = (bppsa_schedule_memory){changes[i].time, level};
  }
  return points;
}

bppsa_status bppsa_schedule_memory_curves(const bppsa_schedule *list, const bppsa_schedule_times *times,
                                          bppsa_schedule_memory **curves, int64_t **first) {
  BPPSA_REQUIRE(list != NULL && times != NULL && curves != NULL && first != NULL);
  int64_t *from = NULL, *to = NULL;
  change *changes = NULL;
  bppsa_schedule_memory *made = NULL;
  bppsa_status status = list_changes(list, times, &from, &changes);
  if (status == BPPSA_OK) {
    made = bppsa_alloc((size_t)(from[list->workers] + list->workers) * sizeof *made);
    to = bppsa_calloc(list->workers + 1, sizeof *to);
    status = made != NULL && to != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
  }
  for (int64_t w = 0; w < list->workers && status == BPPSA_OK; ++w) {
    to[w + 1] = to[w] + draw_curve(changes + from[w], from[w + 1] - from[w], made + to[w]);
  }
  bppsa_free(from);
  bppsa_free(changes);
  if (status != BPPSA_OK) {
    bppsa_free(made);
    bppsa_free(to);
    return status;
  }
  *curves = made;
  *first = to;
  return BPPSA_OK;
}

/* ---- time ---- */

static bool is_backward(const bppsa_schedule_op *op) {
  return op->kind == BPPSA_KIND_I || op->kind == BPPSA_KIND_W || op->kind == BPPSA_KIND_B || op->kind == BPPSA_KIND_RECOMPUTE;
}

static void find_window(const bppsa_schedule *list, bppsa_schedule_times *times) {
  double end = 0, begin = INFINITY;
  for (int64_t i = 0; i < list->count; ++i) {
    end = fmax(end, times->end[i]);
    begin = is_backward(&list->ops[i]) ? fmin(begin, times->start[i]) : begin;
  }
  times->begin = list->config.window == BPPSA_WINDOW_BACKWARD_FORWARD && isfinite(begin) ? begin : 0;
  times->makespan = end - times->begin;
}

static void find_busy(const bppsa_schedule *list, bppsa_schedule_times *times) {
  double all = 0;
  for (int64_t i = 0; i < list->count; ++i) {
    const bppsa_schedule_op *op = &list->ops[i];
    if (bppsa_schedule_kind_busy(op->kind) && op->lane == BPPSA_LANE_COMPUTE) {
      times->worker[op->worker].busy += fmax(0, times->end[i] - fmax(times->begin, times->start[i]));
    }
  }
  for (int64_t w = 0; w < list->workers; ++w) {
    all += times->worker[w].busy;
  }
  times->bubble_ratio = times->makespan > 0 ? 1 - all / ((double)list->workers * times->makespan) : 0;
}

/* Completes times whose starts and ends are set; frees them on failure. */
static bppsa_status complete(const bppsa_schedule *list, bppsa_schedule_times *times) {
  times->worker = bppsa_calloc(list->workers, sizeof *times->worker);
  bppsa_status status = times->worker != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
  if (status == BPPSA_OK) {
    find_window(list, times);
    find_busy(list, times);
    status = find_peaks(list, times);
  }
  if (status != BPPSA_OK) {
    bppsa_schedule_times_free(times);
  }
  return status;
}

bppsa_status bppsa_schedule_simulate(const bppsa_schedule *list, bppsa_schedule_times *times) {
  BPPSA_REQUIRE(list != NULL && times != NULL);
  bppsa_schedule_run run;
  BPPSA_TRY(bppsa_schedule_run_simulate(list, false, &run));
  if (run.done < run.count) {
    const int64_t left = run.count - run.done;
    bppsa_schedule_run_free(&run);
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule: %lld operations wait for each other, expected none", (long long)left);
  }
  bppsa_schedule_times made = {.start = run.start, .end = run.end};
  run.start = run.end = NULL;
  bppsa_schedule_run_free(&run);
  BPPSA_TRY(complete(list, &made));
  *times = made;
  return BPPSA_OK;
}

bppsa_status bppsa_schedule_times_of(const bppsa_schedule *list, const double *start, const double *end,
                                     bppsa_schedule_times *times) {
  BPPSA_REQUIRE(list != NULL && start != NULL && end != NULL && times != NULL);
  const size_t bytes = (size_t)list->count * sizeof *start;
  bppsa_schedule_times made = {.start = bppsa_alloc(bytes + 1), .end = bppsa_alloc(bytes + 1)};
  if (made.start == NULL || made.end == NULL) {
    bppsa_schedule_times_free(&made);
    return BPPSA_ERR_MEMORY;
  }
  memcpy(made.start, start, bytes);
  memcpy(made.end, end, bytes);
  BPPSA_TRY(complete(list, &made));
  *times = made;
  return BPPSA_OK;
}

void bppsa_schedule_times_free(bppsa_schedule_times *times) {
  if (times == NULL) {
    return;
  }
  bppsa_free(times->start);
  bppsa_free(times->end);
  bppsa_free(times->worker);
  *times = (bppsa_schedule_times){0};
}

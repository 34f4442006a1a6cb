#include "cli/bench_queued.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/graph.h"
#include "core/timeline.h"

enum { LEAST_REPEATS = 3, MOST_REPEATS = 10001 };

typedef struct {
  const bppsa_device *device;
  bppsa_status (*action)(void *context);
  void *context;
  bppsa_timeline *timeline; /* two marks */
  bppsa_graph *graph;
} work;

static bppsa_status queue(void *context) {
  const work *w = context;
  BPPSA_TRY(bppsa_timeline_mark(w->timeline, 0));
  BPPSA_TRY(w->action(w->context));
  return bppsa_timeline_mark(w->timeline, 1);
}

static bppsa_status replay(const work *w, double *seconds) {
  BPPSA_TRY(bppsa_graph_launch(w->device, w->graph));
  return bppsa_timeline_seconds(w->timeline, 0, 1, seconds);
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Once without counting it, then until the budget is spent. times: [MOST_REPEATS] */
static bppsa_status collect(const work *w, int64_t repeats, double budget_s, double *times, bppsa_timing *timing) {
  const double start = bppsa_bench_now();
  int64_t n = 0;
  BPPSA_TRY(replay(w, times));
  while (n < MOST_REPEATS && (repeats > 0 ? n < repeats : n < LEAST_REPEATS || bppsa_bench_now() - start < budget_s)) {
    BPPSA_TRY(replay(w, &times[n]));
    ++n;
  }
  qsort(times, (size_t)n, sizeof *times, compare);
  *timing = (bppsa_timing){0.5 * (times[n / 2] + times[(n - 1) / 2]), times[0], times[n - 1], n};
  return BPPSA_OK;
}

bppsa_status bppsa_bench_time_queued(const bppsa_device *device, bppsa_status (*action)(void *context), void *context,
                                     int64_t repeats, double budget_s, bppsa_timing *timing) {
  work w = {.device = device, .action = action, .context = context};
  double *times = bppsa_calloc(MOST_REPEATS, sizeof *times);
  bppsa_status status = times == NULL ? BPPSA_ERR_MEMORY : bppsa_timeline_create(device, 2, &w.timeline);
  status = status == BPPSA_OK ? bppsa_graph_capture(device, queue, &w, &w.graph) : status;
  status = status == BPPSA_OK ? collect(&w, repeats, budget_s, times, timing) : status;
  bppsa_graph_destroy(device, w.graph);
  bppsa_timeline_destroy(w.timeline);
  bppsa_free(times);
  return status;
}

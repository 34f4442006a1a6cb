/* Timing of recordings: of work that a GPU takes into its queue as one, in which no launch waits for the host. */
#ifndef BPPSA_CLI_BENCH_QUEUED_H
#define BPPSA_CLI_BENCH_QUEUED_H

#include "cli/bench_sparse.h"
#include "core/graph.h"
#include "core/timeline.h"

typedef struct {
  const bppsa_device *device;
  bppsa_queued_work action, clear;
  void *context;
  bppsa_timeline *timeline; /* two marks */
  bppsa_graph *graph;
  int64_t nodes; /* of it, without the marks */
} bppsa_bench_recording;

/* Records what action(context) queues between two marks. clear(context) makes the results of an earlier run 0. Free it once it is OK. ERR_*: of
 * bppsa_graph_capture, what it refuses included. */
bppsa_status bppsa_bench_record(const bppsa_device *device, bppsa_queued_work action, bppsa_queued_work clear, void *context,
                                bppsa_bench_recording *made);
/* Clears the results, so that what is found afterwards is a replay's, and replays as often as bppsa_bench_time calls: a replay takes the time between the
 * two marks in the GPU's queue. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_bench_replay(bppsa_bench_recording *recording, int64_t repeats, double budget_s, bppsa_timing *timing);
void bppsa_bench_recording_free(bppsa_bench_recording *recording);

/* For tests: what is recorded from here on is the marks alone, and every row of a recording must be found wrong. */
void bppsa_bench_record_nothing(bool on);

#endif

/* Times recordings. A recording is work that a GPU takes into its queue as one piece (a CUDA graph), in which no launch waits for
 * the host. Every benchmark that runs on a GPU times its passes both ways: queued anew, and as a recording.
 */
#ifndef BPPSA_BENCH_HARNESS_RECORDING_H
#define BPPSA_BENCH_HARNESS_RECORDING_H

#include "core/compute/graph.h"
#include "core/measure/rounds.h"
#include "core/measure/timeline.h"

/* Sentences for the notes of benchmarks that time both. */
#define BPPSA_BENCH_QUEUED_NOTE                                                                                                  \
  "On a GPU every pass is timed in two ways. A queued pass is launched anew, and its time includes the waits for its "           \
  "launches.\n"                                                                                                                  \
  "A recording, called graph, holds all launches of a pass and runs without such waits. The GPU's own clock times both.\n"

typedef struct {
  const bppsa_device *device;
  bppsa_queued_work action, clear;
  void *context;
  bppsa_timeline *timeline; /* two marks */
  bppsa_graph *graph;
  int64_t nodes; /* of the graph, without the marks */
} bppsa_bench_recording;

/* Records what action(context) queues between two marks. clear(context) makes the results of an earlier run 0; NULL where
 * bppsa_bench_replay_cleared is not called. Free it once it is OK. ERR_UNSUPPORTED: it cannot be recorded, with the reason;
 * others: of bppsa_graph_capture. */
bppsa_status bppsa_bench_record(const bppsa_device *device, bppsa_queued_work action, bppsa_queued_work clear, void *context,
                                bppsa_bench_recording *made);
/* Clears the results and replays once: the results are then the replay's, and can be verified before it is timed. ERR_CUDA. */
bppsa_status bppsa_bench_replay_cleared(const bppsa_bench_recording *recording);
/* A recording as a contender's pass (rounds.h): the time between the two marks in the GPU's queue. ERR_CUDA. */
bppsa_status bppsa_bench_replay_pass(void *recording, double seconds[BPPSA_TIMING_PARTS]);
/* One replay in two calls: queue it, wait for the GPU, then ask for the seconds between its marks. ERR_CUDA. */
bppsa_status bppsa_bench_replay_queue(const bppsa_bench_recording *recording);
bppsa_status bppsa_bench_replay_seconds(const bppsa_bench_recording *recording, double *seconds);
/* A zeroed one is legal. */
void bppsa_bench_recording_free(bppsa_bench_recording *recording);

/* For tests. _nothing: recordings contain nothing but their marks, and verification must find every such row wrong. _waits:
 * recordings wait for the GPU, which is forbidden, and every such row must be left out. */
void bppsa_bench_record_nothing(bool on);
void bppsa_bench_record_waits(bool on);

#endif

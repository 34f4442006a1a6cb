/* Timing of recordings: of work that a GPU takes into its queue as one, in which no launch waits for the host. All benchmarks
 * time their recordings so: those whose passes stand alone replay them one after the other, `bench rnn` and `bench gru` in rounds
 * (bench_contest.h). */
#ifndef BPPSA_CLI_BENCH_QUEUED_H
#define BPPSA_CLI_BENCH_QUEUED_H

#include "cli/bench_sparse.h"
#include "core/graph.h"
#include "core/timeline.h"

/* For the notes of whoever has both. */
#define BPPSA_BENCH_QUEUED_NOTE                                                                                                  \
  "On a GPU times are between marks in its queue: around a pass that is queued anew, the waits for its launches included, and\n" \
  "inside a recording (graph), which has none.\n"

typedef struct {
  const bppsa_device *device;
  bppsa_queued_work action, clear;
  void *context;
  bppsa_timeline *timeline; /* two marks */
  bppsa_graph *graph;
  int64_t nodes; /* of it, without the marks */
} bppsa_bench_recording;

/* Records what action(context) queues between two marks. clear(context) makes the results of an earlier run 0; NULL where
 * bppsa_bench_replay_cleared is not called. Free it once it is OK. ERR_UNSUPPORTED: it cannot be recorded, with the reason;
 * others: of bppsa_graph_capture. */
bppsa_status bppsa_bench_record(const bppsa_device *device, bppsa_queued_work action, bppsa_queued_work clear, void *context,
                                bppsa_bench_recording *made);
/* Clears the results and replays once, so that what is found afterwards is the replay's: to be verified before it is timed.
 * ERR_CUDA. */
bppsa_status bppsa_bench_replay_cleared(const bppsa_bench_recording *recording);
/* A recording as a contender's pass (bench_rounds.h): the time between the two marks in the GPU's queue. ERR_CUDA. */
bppsa_status bppsa_bench_replay_pass(void *recording, double seconds[BPPSA_BENCH_PARTS]);
/* One replay by hand: queued; and the time between its marks, once the GPU has been waited for. ERR_CUDA. */
bppsa_status bppsa_bench_replay_queue(const bppsa_bench_recording *recording);
bppsa_status bppsa_bench_replay_seconds(const bppsa_bench_recording *recording, double *seconds);
/* A zeroed one is legal. */
void bppsa_bench_recording_free(bppsa_bench_recording *recording);

/* For tests: what is recorded from here on is the marks alone, and every row of a recording must be found wrong; or waits for the
 * GPU, which no recording may, and every such row must be left out. */
void bppsa_bench_record_nothing(bool on);
void bppsa_bench_record_waits(bool on);

#endif

/* Those who are timed at a point of `bench rnn` and `bench gru`, side by side: the project's methods and, on a GPU, each of them
 * as a CUDA graph and cuDNN's algorithms. All make the same two passes; what a pass takes is the time between marks in the
 * device's queue (core/timeline.h), which a graph has inside (bench_queued.h).
 */
#ifndef BPPSA_CLI_BENCH_CONTEST_H
#define BPPSA_CLI_BENCH_CONTEST_H

#include "cli/bench_queued.h"
#include "recurrent/recurrent_cudnn.h"

typedef struct {
  int forward, backward;               /* rows of the result; forward -1: the pass is no row of its own */
  int plain;                           /* of a graph: who runs the same without it; -1 otherwise */
  bppsa_model *model;                  /* the project's, or */
  bppsa_cudnn_network *rival;          /* cuDNN's; a graph's are its plain one's */
  bppsa_bench_recording recordings[2]; /* of a graph: forward, backward */
} bppsa_contestant;

typedef struct {
  const bppsa_device *device;
  bppsa_view x, seed; /* on the device */
  bppsa_timeline *timeline;
  int count;
  bppsa_contestant list[BPPSA_BENCH_ROWS];
} bppsa_contest;

/* ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_contest_begin(const bppsa_device *device, bppsa_contest *contest);
/* Destroys everything; on a GPU, writes what each contestant's going freed into the memory of its rows. */
void bppsa_contest_end(bppsa_contest *contest, bppsa_bench_result *result);

/* One pass each way, by the same contestant, or one of them by a graph and the other by its plain one. seconds: forward,
 * backward. ERR_* of the contestants. */
bppsa_status bppsa_contest_pass(bppsa_contest *contest, int forward, int backward, double seconds[2]);
/* Another contestant: the passes of `plain` as graphs, for the rows given. On failure no contestant is added. ERR_*: of
 * bppsa_bench_record. */
bppsa_status bppsa_contest_add_graph(bppsa_contest *contest, int plain, int forward, int backward);

/* Rounds of everyone's passes (bench_rounds.h); the budget is shared by all. Fills the times of all rows. ERR_*. */
bppsa_status bppsa_contest_time(bppsa_contest *contest, const bppsa_bench_limits *limits, bppsa_bench_result *result);

#endif

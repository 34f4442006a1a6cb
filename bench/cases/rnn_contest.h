/* The methods that are timed side by side at a point of `bench rnn` and `bench gru`: the project's, and on a GPU each of them as a
 * CUDA graph, and cuDNN's algorithms. All make the same two passes, forward and backward. The time of a pass lies between two
 * marks in the device's queue (core/timeline.h); a graph contains its marks (bench/harness/recording.h). A contestant is verified
 * when it is added (rnn_enter.c) and timed with all others (core/rounds.h).
 */
#ifndef BPPSA_BENCH_CASES_RNN_CONTEST_H
#define BPPSA_BENCH_CASES_RNN_CONTEST_H

#include "bench/cases/rnn.h"
#include "bench/harness/recording.h"
#include "bench/rivals/rnn_cudnn.h"

typedef struct {
  int forward, backward;               /* rows of the result; forward -1: the pass is no row of its own */
  int plain;                           /* of a graph: the contestant that runs the same passes without it; -1 otherwise */
  bppsa_model *model;                  /* the project's; or */
  bppsa_cudnn_network *rival;          /* cuDNN's; a graph has those of its plain contestant */
  bppsa_bench_recording recordings[2]; /* of a graph: forward, backward */
  char name[BPPSA_BENCH_NAME];         /* of the backward row */
  bppsa_contender contender;           /* with its verification; bppsa_contest_time sets the pass */
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
/* Destroys all contestants. On a GPU, the bytes that each of them held become the memory of its rows. */
void bppsa_contest_end(bppsa_contest *contest, bppsa_bench_result *result);

/* One forward and one backward pass, by the same contestant, or one by a graph and the other by its plain contestant. seconds:
 * forward, backward. ERR_* of the contestants. */
bppsa_status bppsa_contest_pass(bppsa_contest *contest, int forward, int backward, double seconds[2]);
/* Adds a contestant: the passes of `plain` as graphs, for the rows given. On failure it adds none. ERR_*: of
 * bppsa_bench_record. */
bppsa_status bppsa_contest_add_graph(bppsa_contest *contest, int plain, int forward, int backward);

/* A row that has nothing to show, with the reason. */
void bppsa_contest_skip_row(bppsa_bench_row *row, const char *reason);

/* Times the passes of all contestants in rounds (core/rounds.h), which share the budget. Fills the times of the rows of all that
 * are right; those of a contestant that refuses a pass say so. ERR_*. */
bppsa_status bppsa_contest_time(bppsa_contest *contest, const bppsa_bench_limits *limits, bppsa_bench_result *result);

#endif

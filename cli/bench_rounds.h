/* The harness of the benchmarks: one clock, and rounds of timing in which everyone who is compared takes turns.
 *
 * Rounds.  A point of a benchmark is a list of contenders. Each makes one pass that warms up and is not counted; then come rounds
 * in which every
 *          contender whose turn it is makes one pass, one after the other, so that whatever else the machine does hits all of
 *          them alike. Everyone gets an equal share of the budget, judged by the faster of the pass that warms up and the first
 *          round: at least 3 passes, at most 1001, the passes of fast contenders spread evenly over all rounds. A number of
 *          repeats, where it is given, counts instead.
 * Spread.  A timing is noisy when its median is more than 1.25 times its minimum: half of its passes then took a quarter longer
 * than the fastest one.
 *          One slow pass, or a few, move neither number: the rule forgives them, as the median does. Nothing else in a timing is
 *          as robust and can be checked in a table that shows both. On a quiet machine 19 of 20 rows of bench/results stay below
 *          1.18. What loads the machine all the time and evenly slows minimum and median alike; the rule cannot see that, and
 *          need not: it hits all contenders, and ratios between them stand. Fewer than 3 passes have no spread worth the name and
 *          are never noisy.
 * Again.   Where any timing of a point is noisy, the rounds are run once more, and of the two attempts the one with fewer noisy
 * timings is taken (of
 *          equals, the one whose largest spread is smaller). What is noisy then stays marked: rows say "noisy": true, tables put
 *          a ~ before the median, and no sentence, winner or fitted line rests on it.
 */
#ifndef BPPSA_CLI_BENCH_ROUNDS_H
#define BPPSA_CLI_BENCH_ROUNDS_H

#include "core/clock.h"
#include "core/graph.h"
#include "core/timeline.h"

#define BPPSA_BENCH_SPREAD 1.25
enum { BPPSA_BENCH_LEAST_REPEATS = 3, BPPSA_BENCH_MOST_REPEATS = 1001, BPPSA_BENCH_PARTS = 2 };

typedef struct {
  double median_s, min_s, max_s;
  int64_t repeats;
  bool noisy;
} bppsa_timing;

/* The timing of `count` >= 1 passes; sorts them. */
bppsa_timing bppsa_bench_timing(int64_t count, double *seconds);
/* "~" before a median that is noisy, otherwise "". */
const char *bppsa_bench_mark(bool noisy);
/* "~12.345": the marked median in milliseconds, with so many digits behind the point. Returns text. */
enum { BPPSA_BENCH_TIME = 32 };
const char *bppsa_bench_median_ms(const bppsa_timing *timing, int digits, char text[BPPSA_BENCH_TIME]);
/* What a table says below itself once it has such a mark: one line. */
#define BPPSA_BENCH_MARK_NOTE                                                                                                    \
  "~ noisy: measured twice, and the median is still more than 1.25 times the minimum; nothing is concluded from it"

/* One pass: its seconds, of as many parts as the contender has. ERR_* ends the rounds. */
typedef bppsa_status (*bppsa_timed_pass)(void *context, double seconds[BPPSA_BENCH_PARTS]);

typedef struct {
  bppsa_timed_pass pass;
  void *context;
  int parts; /* timed apart in every pass: 1, or 2 for forward and backward */
  bppsa_timing timing[BPPSA_BENCH_PARTS];
} bppsa_contender;

typedef struct {
  int64_t repeats;                                                /* 0: as many as fit into the budget */
  double budget_s;                                                /* of one contender */
  void (*progress)(void *context, int64_t round, int64_t rounds); /* before a round; may be NULL */
  void *context;
} bppsa_rounds;

/* Times all contenders. Their timings are set on success alone. ERR_MEMORY, ERR_* of a pass. */
bppsa_status bppsa_bench_run_rounds(const bppsa_rounds *rounds, int64_t count, bppsa_contender *contenders);

/* Work that has no clock of its own, as a contender's pass: the time between a mark before what it queues and one behind it
 * (core/timeline.h): on a GPU the launches' waits for the host are in it, on a CPU it is what the call takes. Set device, action
 * and context; make the timeline, destroy it. */
typedef struct {
  const bppsa_device *device;
  bppsa_queued_work action;
  void *context;
  bppsa_timeline *timeline;
} bppsa_timed_work;
bppsa_status bppsa_timed_work_open(bppsa_timed_work *work); /* ERR_MEMORY, ERR_CUDA */
bppsa_status bppsa_timed_work_pass(void *work, double seconds[BPPSA_BENCH_PARTS]);
void bppsa_timed_work_close(bppsa_timed_work *work); /* a zeroed one is legal */

#endif

/* Rounds of timing in which all contenders take turns, and what a timing says (core/base/clock.h is the clock).
 *
 * Verified first.  Nothing is timed whose results have not been held against a reference. Every contender has a verification: it
 *          makes the pass once and says how far its results lie from the right ones, the residual. A residual of `bound` or more,
 *          or NaN, makes the contender wrong. A wrong contender keeps its residual and takes no part in the rounds, so that it
 *          has no time. A contender that answers ERR_UNSUPPORTED, when it is verified or in a round, is refused: it keeps the
 *          reason, takes no further part and has no time either. The others go on.
 * Rounds.  A point of a benchmark is a list of contenders. Each makes one pass that warms up and is not counted. In every round
 *          that follows, each contender whose turn it is makes one pass. So whatever else the machine does hits all of them alike.
 *          All contenders get an equal share of the budget. The faster of the warm-up and the first round tells how many passes
 *          fit into it: at least 3, at most 1001. The passes of a fast contender are spread evenly over all rounds. A number of
 *          repeats, where the user gives one, replaces this count.
 * Rivals.  Where time is short, contenders may have to qualify: their warm-up is their qualifying pass. One that takes more than
 *          `qualify` times as long as the fastest of them keeps this single time, takes no part in the rounds and has no timing.
 * Spread.  A timing is noisy when its median is more than 1.25 times its minimum: half of its passes took a quarter longer than
 *          the fastest one. A few slow passes move neither number, and the rule forgives them. On a quiet machine 19 of 20 rows of
 *          bench/results stay below 1.18. A load that slows all passes evenly slows minimum and median alike. The rule cannot see
 *          it and need not: it hits all contenders, and the ratios between them stand. Fewer than 3 passes are never noisy.
 * Again.   Where a timing of a point is noisy, the rounds run once more. Of the two attempts the one with fewer noisy timings
 *          counts; of equals, the one whose largest spread is smaller. What is still noisy stays marked: its row says
 *          "noisy": true, tables put a ~ before the median, and no sentence, winner or fitted line rests on it.
 */
#ifndef BPPSA_CORE_MEASURE_ROUNDS_H
#define BPPSA_CORE_MEASURE_ROUNDS_H

#include "core/compute/graph.h"
#include "core/measure/timeline.h"

#define BPPSA_TIMING_SPREAD 1.25
enum { BPPSA_ROUNDS_LEAST_REPEATS = 3, BPPSA_ROUNDS_MOST_REPEATS = 1001, BPPSA_TIMING_PARTS = 2 };

typedef struct {
  double median_s, min_s, max_s;
  int64_t repeats;
  bool noisy;
} bppsa_timing;

/* The timing of `count` >= 1 passes; sorts them. */
bppsa_timing bppsa_timing_of(int64_t count, double *seconds);
/* "~" before a median that is noisy, otherwise "". */
const char *bppsa_timing_mark(bool noisy);
/* "~12.345": the marked median in milliseconds, with so many digits behind the point. Returns text. */
enum { BPPSA_TIMING_TEXT = 32 };
const char *bppsa_timing_median_ms(const bppsa_timing *timing, int digits, char text[BPPSA_TIMING_TEXT]);
/* The index of the timing with the smallest median; -1: one of them is noisy, and no winner is named. count >= 1. */
int64_t bppsa_timing_fastest(int64_t count, const bppsa_timing *timings);
/* The line below a table that has such a mark. */
#define BPPSA_TIMING_NOTE                                                                                                        \
  "~ noisy: measured twice, and the median is still more than 1.25 times the minimum; nothing is concluded from it"

/* How far the samples of a number spread: low and high are the k-th smallest and the k-th largest of them. k is as large as
 * possible while the middle half of all samples lies between them, and while the number's true median does with a confidence of 95
 * %, for which 6 samples or more are needed. The chance that k or more of n samples lie on each side of the true median is 1 - 2
 * P(fewer than k of n tosses are heads). */
typedef struct {
  double median, low, high;
  double confidence; /* of low .. high; below 0.95 of fewer than 6 samples */
  int64_t samples;
} bppsa_spread;

#define BPPSA_SPREAD_CONFIDENCE 0.95
/* The spread of `count` >= 1 samples; sorts them. */
bppsa_spread bppsa_spread_of(int64_t count, double *samples);

/* Makes one sample. */
typedef bppsa_status (*bppsa_sample)(void *context, double *sample);

/* Takes samples until low .. high is no wider than `within` times the median, at least `least` of them, and at most `most`, 1 to
 * BPPSA_SPREAD_SAMPLES; `go_on`, unless NULL, is asked after every further sample. ERR_* of the sample; nothing is set then. */
enum { BPPSA_SPREAD_SAMPLES = 64 };
typedef struct {
  double within;
  int64_t least, most;
  bppsa_sample take;
  bool (*go_on)(void *context, const bppsa_spread *so_far);
  void *context; /* of both */
} bppsa_sampling;
bppsa_status bppsa_spread_measure(const bppsa_sampling *how, bppsa_spread *spread);

/* One pass: its seconds, of as many parts as the contender has. ERR_UNSUPPORTED refuses it, other errors end the rounds. */
typedef bppsa_status (*bppsa_timed_pass)(void *context, double seconds[BPPSA_TIMING_PARTS]);

/* Makes one pass and sets the residual of its results. ERR_UNSUPPORTED refuses the contender, other errors end the rounds. */
typedef struct {
  bppsa_status (*verify)(void *context, double *residual);
  void *context;
  double bound; /* results are right below it */
} bppsa_verification;

typedef enum { BPPSA_UNVERIFIED = 0, BPPSA_VERIFIED, BPPSA_WRONG, BPPSA_REFUSED } bppsa_verdict;
enum { BPPSA_CONTENDER_REASON = 320 };

/* Does a contender have to qualify? _BEHIND: yes, but the others are never compared with it. */
typedef enum { BPPSA_QUALIFIED = 0, BPPSA_QUALIFIES, BPPSA_QUALIFIES_BEHIND } bppsa_qualifying;

typedef struct {
  const char *name; /* for messages */
  bppsa_verification verification;
  bppsa_timed_pass pass;
  void *context; /* of the pass */
  int parts;     /* timed apart in every pass: 1, or 2 for forward and backward */
  bppsa_qualifying qualifies;
  /* Set by bppsa_contender_verify and bppsa_rounds_run; zero before. */
  bppsa_verdict verdict;
  double residual;
  char reason[BPPSA_CONTENDER_REASON];   /* why it was refused */
  bool beaten;                           /* it did not qualify: */
  double qualifying[BPPSA_TIMING_PARTS]; /* the seconds of its single pass */
  bppsa_timing timing[BPPSA_TIMING_PARTS];
} bppsa_contender;

/* Verifies a contender, whose verdict and residual are then set; once it has a verdict, nothing happens. ERR_ARGUMENT: it has no
 * verification; other ERR_* of its verification, but ERR_UNSUPPORTED is a verdict. */
bppsa_status bppsa_contender_verify(bppsa_contender *contender);
/* OK for a contender that is right; ERR_NUMERIC for a wrong one, with its residual and bound; ERR_UNSUPPORTED for a refused one,
 * with the reason; ERR_ARGUMENT for one without a verdict. */
bppsa_status bppsa_contender_status(const bppsa_contender *contender);

typedef struct {
  int64_t repeats;                                                /* 0: as many as fit into the budget */
  double budget_s;                                                /* of one contender */
  double qualify;                                                 /* see "Rivals" above; 0: nobody has to */
  void (*progress)(void *context, int64_t round, int64_t rounds); /* before a round; may be NULL */
  void *context;
} bppsa_rounds;

/* Verifies every contender that has no verdict yet, then times those that are right. Verdicts of wrong and refused contenders are
 * no errors; a caller who needs all contenders asks bppsa_contender_status. Timings are set on success alone. ERR_ARGUMENT: a
 * contender without a verification, and nothing was timed; ERR_MEMORY; ERR_* of a verification or a pass. */
bppsa_status bppsa_rounds_run(const bppsa_rounds *rounds, int64_t count, bppsa_contender *contenders);

/* A pass of work that has no clock of its own. A mark before what the action queues and a mark behind it (core/measure/timeline.h)
 * give its time: on a GPU this includes the time that launches wait for the host, on a CPU it is the time of the call. Set device,
 * action and context, then call _open. */
typedef struct {
  const bppsa_device *device;
  bppsa_queued_work action;
  void *context;
  bppsa_timeline *timeline;
} bppsa_timed_work;
bppsa_status bppsa_timed_work_open(bppsa_timed_work *work); /* ERR_MEMORY, ERR_CUDA */
bppsa_status bppsa_timed_work_pass(void *work, double seconds[BPPSA_TIMING_PARTS]);
void bppsa_timed_work_close(bppsa_timed_work *work); /* a zeroed one is legal */

#endif

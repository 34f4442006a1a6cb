#include "core/measure/rounds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"

/* ---- one timing ---- */

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

bppsa_timing bppsa_timing_of(int64_t count, double *seconds) {
  qsort(seconds, (size_t)count, sizeof *seconds, compare);
  bppsa_timing t = {.median_s = 0.5 * (seconds[count / 2] + seconds[(count - 1) / 2]),
                    .min_s = seconds[0],
                    .max_s = seconds[count - 1],
                    .repeats = count};
  t.noisy = count >= BPPSA_ROUNDS_LEAST_REPEATS && t.median_s > BPPSA_TIMING_SPREAD * t.min_s;
  return t;
}

const char *bppsa_timing_mark(bool noisy) {
  return noisy ? "~" : "";
}

const char *bppsa_timing_median_ms(const bppsa_timing *timing, int digits, char text[BPPSA_TIMING_TEXT]) {
  bppsa_print(text, BPPSA_TIMING_TEXT, "%s%.*f", bppsa_timing_mark(timing->noisy), digits, 1e3 * timing->median_s);
  return text;
}

int64_t bppsa_timing_fastest(int64_t count, const bppsa_timing *timings) {
  int64_t fastest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (timings[i].noisy) {
      return -1;
    }
    fastest = timings[i].median_s < timings[fastest].median_s ? i : fastest;
  }
  return fastest;
}

/* ---- the spread of samples ---- */

/* The chance that fewer than k of n tosses of a coin are heads. */
static double fewer_heads(int64_t n, int64_t k) {
  double chance = pow(0.5, (double)n), sum = 0;
  for (int64_t i = 0; i < k; ++i) {
    sum += chance;
    chance *= (double)(n - i) / (double)(i + 1);
  }
  return sum;
}

bppsa_spread bppsa_spread_of(int64_t count, double *samples) {
  qsort(samples, (size_t)count, sizeof *samples, compare);
  int64_t k = (count + 3) / 4; /* outside of them lie less than half of all */
  while (k > 1 && 1 - 2 * fewer_heads(count, k) < BPPSA_SPREAD_CONFIDENCE) {
    --k;
  }
  return (bppsa_spread){.median = 0.5 * (samples[count / 2] + samples[(count - 1) / 2]),
                        .low = samples[k - 1],
                        .high = samples[count - k],
                        .confidence = 1 - 2 * fewer_heads(count, k),
                        .samples = count};
}

bppsa_status bppsa_spread_measure(const bppsa_sampling *how, bppsa_spread *spread) {
  double samples[BPPSA_SPREAD_SAMPLES];
  bppsa_spread made = {.samples = 0};
  bool more = true;
  while (more && made.samples < how->most) {
    BPPSA_TRY(how->take(how->context, &samples[made.samples]));
    made = bppsa_spread_of(made.samples + 1, samples);
    more = made.samples < how->least ||
           (made.high - made.low > how->within * made.median && (how->go_on == NULL || how->go_on(how->context, &made)));
  }
  *spread = made;
  return BPPSA_OK;
}

/* ---- verification ---- */

static void refuse(bppsa_contender *contender) {
  contender->verdict = BPPSA_REFUSED;
  snprintf(contender->reason, sizeof contender->reason, "%.*s", (int)sizeof contender->reason - 1, bppsa_last_error());
}

bppsa_status bppsa_contender_verify(bppsa_contender *contender) {
  const bppsa_verification *v = &contender->verification;
  double residual = NAN;
  if (contender->verdict != BPPSA_UNVERIFIED) {
    return BPPSA_OK;
  }
  if (v->verify == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "rounds: %s has no verification, expected one before it is timed", contender->name);
  }
  const bppsa_status status = v->verify(v->context, &residual);
  if (status == BPPSA_ERR_UNSUPPORTED) {
    refuse(contender);
    return BPPSA_OK;
  }
  BPPSA_TRY(status);
  contender->residual = residual;
  contender->verdict = residual < v->bound ? BPPSA_VERIFIED : BPPSA_WRONG;
  return BPPSA_OK;
}

bppsa_status bppsa_contender_status(const bppsa_contender *contender) {
  switch (contender->verdict) {
  case BPPSA_VERIFIED:
    return BPPSA_OK;
  case BPPSA_WRONG:
    return bppsa_fail(BPPSA_ERR_NUMERIC, "%s: wrong, a residual of %g, expected less than %g", contender->name,
                      contender->residual, contender->verification.bound);
  case BPPSA_REFUSED:
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s", contender->reason);
  default:
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "rounds: %s is not verified, expected it to be", contender->name);
  }
}

/* ---- rounds ---- */

/* One contender in one attempt. */
typedef struct {
  double fastest; /* s: the sum of its parts in the fastest pass so far */
  int64_t repeats, made;
  double *seconds[BPPSA_TIMING_PARTS]; /* size repeats */
  bppsa_timing timing[BPPSA_TIMING_PARTS];
} turn;

typedef struct {
  const bppsa_rounds *rounds;
  int64_t count;
  bppsa_contender *contenders;
  turn *turns; /* size count */
} attempt;

static bool takes_part(const attempt *a, int64_t i) {
  return a->contenders[i].verdict == BPPSA_VERIFIED && !a->contenders[i].beaten;
}

/* Makes a pass of a contender that takes part. One that is refused takes part no longer, and *made is false. */
static bppsa_status make_pass(const attempt *a, int64_t i, double seconds[BPPSA_TIMING_PARTS], bool *made) {
  bppsa_contender *who = &a->contenders[i];
  double all = 0;
  *made = false;
  if (!takes_part(a, i)) {
    return BPPSA_OK;
  }
  const bppsa_status status = who->pass(who->context, seconds);
  if (status == BPPSA_ERR_UNSUPPORTED) {
    refuse(who);
    return BPPSA_OK;
  }
  BPPSA_TRY(status);
  for (int p = 0; p < who->parts; ++p) {
    all += seconds[p];
  }
  a->turns[i].fastest = fmin(a->turns[i].fastest, all);
  *made = true;
  return BPPSA_OK;
}

/* A pass that counts. */
static bppsa_status take_turn(const attempt *a, int64_t i) {
  turn *t = &a->turns[i];
  double seconds[BPPSA_TIMING_PARTS];
  bool made;
  BPPSA_TRY(make_pass(a, i, seconds, &made));
  for (int p = 0; made && p < a->contenders[i].parts; ++p) {
    t->seconds[p][t->made] = seconds[p];
  }
  t->made += made;
  return BPPSA_OK;
}

/* Allocates as many seconds as a contender may make passes. */
static bppsa_status reserve(const attempt *a) {
  for (int64_t i = 0; i < a->count; ++i) {
    for (int p = 0; takes_part(a, i) && p < a->contenders[i].parts; ++p) {
      a->turns[i].seconds[p] =
          bppsa_calloc(a->rounds->repeats > 0 ? a->rounds->repeats : BPPSA_ROUNDS_MOST_REPEATS, sizeof(double));
      if (a->turns[i].seconds[p] == NULL) {
        return BPPSA_ERR_MEMORY;
      }
    }
  }
  return BPPSA_OK;
}

/* How many passes each contender makes, and the largest of these numbers. */
static int64_t share_budget(const attempt *a) {
  int64_t most = 0;
  for (int64_t i = 0; i < a->count; ++i) {
    turn *t = &a->turns[i];
    const double fits = a->rounds->budget_s / fmax(t->fastest, 1e-6);
    t->repeats = a->rounds->repeats > 0              ? a->rounds->repeats
                 : fits < BPPSA_ROUNDS_LEAST_REPEATS ? BPPSA_ROUNDS_LEAST_REPEATS
                 : fits > BPPSA_ROUNDS_MOST_REPEATS  ? BPPSA_ROUNDS_MOST_REPEATS
                                                     : (int64_t)fits;
    most = takes_part(a, i) && t->repeats > most ? t->repeats : most;
  }
  return most;
}

/* The first round times all contenders. A contender takes part in repeats - 1 of the `most` - 1 rounds that follow, evenly
 * spread. */
static bppsa_status run_rounds(const attempt *a) {
  for (int64_t i = 0; i < a->count; ++i) {
    BPPSA_TRY(take_turn(a, i));
  }
  const int64_t most = share_budget(a);
  for (int64_t round = 1; round < most; ++round) {
    if (a->rounds->progress != NULL) {
      a->rounds->progress(a->rounds->context, round + 1, most);
    }
    for (int64_t i = 0; i < a->count; ++i) {
      const turn *t = &a->turns[i];
      if (round * (t->repeats - 1) / (most - 1) >= t->made) {
        BPPSA_TRY(take_turn(a, i));
      }
    }
  }
  for (int64_t i = 0; i < a->count; ++i) {
    turn *t = &a->turns[i];
    for (int p = 0; takes_part(a, i) && p < a->contenders[i].parts; ++p) {
      t->timing[p] = bppsa_timing_of(t->made, t->seconds[p]);
    }
  }
  return BPPSA_OK;
}

static void free_attempt(attempt *a) {
  for (int64_t i = 0; a->turns != NULL && i < a->count; ++i) {
    for (int p = 0; p < BPPSA_TIMING_PARTS; ++p) {
      bppsa_free(a->turns[i].seconds[p]);
    }
  }
  bppsa_free(a->turns);
}

/* ---- a second attempt ---- */

typedef struct {
  int64_t noisy;
  double worst; /* the largest median over minimum */
} spread;

static spread spread_of(const attempt *a) {
  spread s = {0};
  for (int64_t i = 0; i < a->count; ++i) {
    for (int p = 0; takes_part(a, i) && p < a->contenders[i].parts; ++p) {
      const bppsa_timing *t = &a->turns[i].timing[p];
      s.noisy += t->noisy;
      s.worst = fmax(s.worst, t->min_s > 0 ? t->median_s / t->min_s : INFINITY);
    }
  }
  return s;
}

static bppsa_status begin(const bppsa_rounds *rounds, int64_t count, bppsa_contender *contenders, attempt *a) {
  *a = (attempt){.rounds = rounds, .count = count, .contenders = contenders, .turns = bppsa_calloc(count, sizeof *a->turns)};
  if (a->turns == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    a->turns[i].fastest = INFINITY;
  }
  return reserve(a);
}

static double sum_of(const bppsa_contender *who) {
  double all = 0;
  for (int p = 0; p < who->parts; ++p) {
    all += who->qualifying[p];
  }
  return all;
}

/* Holds the warm-ups of those that have to qualify against the fastest of them. */
static void qualify(const attempt *a) {
  double best = INFINITY;
  for (int64_t i = 0; i < a->count; ++i) {
    const bool counts = takes_part(a, i) && a->contenders[i].qualifies == BPPSA_QUALIFIES;
    best = counts ? fmin(best, sum_of(&a->contenders[i])) : best;
  }
  for (int64_t i = 0; i < a->count; ++i) {
    bppsa_contender *who = &a->contenders[i];
    who->beaten = takes_part(a, i) && who->qualifies != BPPSA_QUALIFIED && a->rounds->qualify > 0 &&
                  sum_of(who) > a->rounds->qualify * best;
  }
}

static bppsa_status run_first(const attempt *a) {
  bool made;
  for (int64_t i = 0; i < a->count; ++i) {
    BPPSA_TRY(make_pass(a, i, a->contenders[i].qualifying, &made));
  }
  qualify(a);
  return run_rounds(a);
}

static bppsa_status run_second(const attempt *first, const attempt *second) {
  for (int64_t i = 0; i < first->count; ++i) {
    second->turns[i].fastest = first->turns[i].fastest;
  }
  return run_rounds(second);
}

static bppsa_status run_verified(const bppsa_rounds *rounds, int64_t count, bppsa_contender *contenders) {
  attempt first, second = {0};
  bppsa_status status = begin(rounds, count, contenders, &first);
  status = status == BPPSA_OK ? run_first(&first) : status;
  const attempt *best = &first;
  if (status == BPPSA_OK && spread_of(&first).noisy > 0) {
    status = begin(rounds, count, contenders, &second);
    status = status == BPPSA_OK ? run_second(&first, &second) : status;
    const spread before = spread_of(&first), after = status == BPPSA_OK ? spread_of(&second) : before;
    best = after.noisy < before.noisy || (after.noisy == before.noisy && after.worst < before.worst) ? &second : &first;
  }
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    for (int p = 0; takes_part(best, i) && p < contenders[i].parts; ++p) {
      contenders[i].timing[p] = best->turns[i].timing[p];
    }
  }
  free_attempt(&first);
  free_attempt(&second);
  return status;
}

bppsa_status bppsa_rounds_run(const bppsa_rounds *rounds, int64_t count, bppsa_contender *contenders) {
  int64_t right = 0;
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(bppsa_contender_verify(&contenders[i]));
    right += contenders[i].verdict == BPPSA_VERIFIED;
  }
  return right > 0 ? run_verified(rounds, count, contenders) : BPPSA_OK;
}

/* ---- work without a clock ---- */

bppsa_status bppsa_timed_work_open(bppsa_timed_work *work) {
  return bppsa_timeline_create(work->device, 2, &work->timeline);
}

bppsa_status bppsa_timed_work_pass(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  const bppsa_timed_work *w = context;
  BPPSA_TRY(bppsa_timeline_mark(w->timeline, 0));
  BPPSA_TRY(w->action(w->context));
  BPPSA_TRY(bppsa_timeline_mark(w->timeline, 1));
  return bppsa_timeline_seconds(w->timeline, 0, 1, &seconds[0]);
}

void bppsa_timed_work_close(bppsa_timed_work *work) {
  bppsa_timeline_destroy(work->timeline);
  work->timeline = NULL;
}

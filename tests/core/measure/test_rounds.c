/* Rounds of timing (core/measure/rounds.h), with a clock that the test makes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/measure/rounds.h"

enum { MOST = 20000 };

/* A machine on which a pass takes as long as its contender needs, times what the machine is slowed down by at that moment. */
typedef struct {
  double now;
  double (*slowdown)(double now); /* NULL: none */
  int64_t calls;
  int order[MOST]; /* the contender of each call */
} machine;

typedef struct {
  machine *m;
  int index;
  double needs[BPPSA_TIMING_PARTS]; /* s */
  int64_t calls;
  double slow_call[2]; /* a call and its factor: that pass alone; factor 0: none */
  bppsa_status status; /* of the third call */
  int64_t verified;    /* how often it was verified; always before the first pass */
  double residual;
  bppsa_status verification;
} worker;

static bppsa_status verify(void *context, double *residual) {
  worker *w = context;
  assert_int_equal(w->calls, 0); /* nothing is timed before */
  ++w->verified;
  *residual = w->residual;
  return w->verification == BPPSA_OK ? BPPSA_OK : bppsa_fail(w->verification, "no kernels for this");
}

static bppsa_status work(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  worker *w = context;
  if (w->m->calls < MOST) {
    w->m->order[w->m->calls] = w->index;
  }
  ++w->m->calls;
  const int64_t call = w->calls++;
  for (int p = 0; p < BPPSA_TIMING_PARTS; ++p) {
    const double factor = (w->m->slowdown != NULL ? w->m->slowdown(w->m->now) : 1) *
                          (w->slow_call[1] > 0 && (double)call == w->slow_call[0] ? w->slow_call[1] : 1);
    seconds[p] = w->needs[p] * factor;
    w->m->now += seconds[p];
  }
  return call == 2 && w->status != BPPSA_OK ? bppsa_fail(w->status, "not that one") : BPPSA_OK;
}

static bppsa_contender contend(worker *w) {
  return (bppsa_contender){
      .name = "worker", .verification = {verify, w, 30}, .pass = work, .context = w, .parts = w->needs[1] > 0 ? 2 : 1};
}

static void assert_near(double found, double expected) {
  assert_true(fabs(found - expected) <= 1e-9 * expected);
}

/* All contenders take turns and get an equal share of the budget. The passes of the fast one are spread over all rounds. One
 * warm-up counts neither as a pass nor against the budget. */
static void test_shares(void **state) {
  (void)state;
  machine m = {0};
  worker a = {&m, 0, {0.5, 0}, 0, {0, 100}, BPPSA_OK, 0, 0, BPPSA_OK},
         b = {&m, 1, {0.02, 0.03}, 0, {0, 0}, BPPSA_OK, 0, 0, BPPSA_OK},
         c = {&m, 2, {1e-7, 0}, 0, {0, 0}, BPPSA_OK, 0, 0, BPPSA_OK};
  bppsa_contender list[] = {contend(&a), contend(&b), contend(&c)};
  const bppsa_rounds rounds = {.budget_s = 5};
  assert_int_equal(bppsa_rounds_run(&rounds, 3, list), BPPSA_OK);
  assert_true(list[0].timing[0].repeats == 10 && a.calls == 11); /* the warm-up took 50 s */
  assert_near(list[0].timing[0].max_s, 0.5);
  assert_true(list[1].timing[0].repeats >= 99 && list[1].timing[0].repeats <= 100);
  assert_int_equal(list[1].timing[1].repeats, list[1].timing[0].repeats);
  assert_near(list[1].timing[1].median_s, 0.03);
  assert_int_equal(list[2].timing[0].repeats, BPPSA_ROUNDS_MOST_REPEATS);
  const int head[] = {0, 1, 2, 0, 1, 2, 2, 2};
  assert_memory_equal(m.order, head, sizeof head);
  int64_t since = 0; /* how many passes of c lie between two of a, after the first round */
  for (int64_t i = 6; i < m.calls; ++i) {
    since = m.order[i] == 0 ? 0 : since + (m.order[i] == 2);
    assert_true(since <= 1 + 1000 / 9);
  }
  machine slow = {0};
  worker d = {&slow, 0, {9, 0}, 0, {0, 0}, BPPSA_OK, 0, 0, BPPSA_OK};
  bppsa_contender one = contend(&d);
  assert_int_equal(bppsa_rounds_run(&rounds, 1, &one), BPPSA_OK);
  assert_int_equal(one.timing[0].repeats, BPPSA_ROUNDS_LEAST_REPEATS);
  const bppsa_rounds given = {.repeats = 2, .budget_s = 5};
  d.calls = 0;
  assert_int_equal(bppsa_rounds_run(&given, 1, &one), BPPSA_OK);
  assert_int_equal(d.verified, 1); /* a verdict stays */
  assert_true(one.timing[0].repeats == 2 && d.calls == 3 && !one.timing[0].noisy);
}

/* One slow round is forgiven: no mark, no second attempt, and the median is the machine's. */
static void test_one_slow_round(void **state) {
  (void)state;
  machine m = {0};
  worker a = {&m, 0, {0.1, 0}, 0, {2, 50}, BPPSA_OK, 0, 0, BPPSA_OK}, b = {&m, 1, {0.2, 0}, 0, {0, 0}, BPPSA_OK, 0, 0, BPPSA_OK};
  bppsa_contender list[] = {contend(&a), contend(&b)};
  const bppsa_rounds rounds = {.budget_s = 0.1};
  assert_int_equal(bppsa_rounds_run(&rounds, 2, list), BPPSA_OK);
  assert_int_equal(a.calls, 1 + 3);
  assert_near(list[0].timing[0].median_s, 0.1);
  assert_near(list[0].timing[0].max_s, 5);
  assert_false(list[0].timing[0].noisy || list[1].timing[0].noisy);
}

static double twice(double now) {
  (void)now;
  return 2;
}

/* A load that never ends slows all contenders alike: the ratio stays, and nothing is marked. */
static void test_constant_load(void **state) {
  (void)state;
  machine m = {.slowdown = twice};
  worker a = {&m, 0, {0.1, 0}, 0, {0, 0}, BPPSA_OK, 0, 0, BPPSA_OK}, b = {&m, 1, {0.3, 0}, 0, {0, 0}, BPPSA_OK, 0, 0, BPPSA_OK};
  bppsa_contender list[] = {contend(&a), contend(&b)};
  const bppsa_rounds rounds = {.budget_s = 6};
  assert_int_equal(bppsa_rounds_run(&rounds, 2, list), BPPSA_OK);
  assert_near(list[1].timing[0].median_s / list[0].timing[0].median_s, 3);
  assert_false(list[0].timing[0].noisy || list[1].timing[0].noisy);
  assert_int_equal(a.calls, 1 + 30);
}

/* The machine is slow in every three seconds except for 0.3. */
static double stalls(double now) {
  return fmod(now, 3) < 0.3 ? 1 : 4;
}

static void test_stalls(void **state) {
  (void)state;
  machine m = {.slowdown = stalls};
  worker a = {&m, 0, {0.05, 0}, 0, {0, 0}, BPPSA_OK, 0, 0, BPPSA_OK}, b = {&m, 1, {0.06, 0}, 0, {0, 0}, BPPSA_OK, 0, 0, BPPSA_OK};
  bppsa_contender list[] = {contend(&a), contend(&b)};
  const bppsa_rounds rounds = {.budget_s = 4};
  assert_int_equal(bppsa_rounds_run(&rounds, 2, list), BPPSA_OK);
  assert_true(list[0].timing[0].noisy && list[1].timing[0].noisy); /* marked */
  assert_int_equal(a.calls, 1 + 2 * 80);                           /* the point was measured twice */
  assert_near(list[0].timing[0].median_s, 0.2);
  assert_near(list[0].timing[0].min_s, 0.05);
  assert_string_equal(bppsa_timing_mark(list[0].timing[0].noisy), "~");
  assert_string_equal(bppsa_timing_mark(false), "");
}

static double first_seconds(double now) {
  return now < 20 && fmod(now, 1) > 0.3 ? 4 : 1;
}

/* A disturbance that is over when the point is measured again leaves no mark: the calm attempt is taken, for all contenders. */
static void test_measured_again(void **state) {
  (void)state;
  machine m = {.slowdown = first_seconds};
  worker a = {&m, 0, {0.05, 0.02}, 0, {0, 0}, BPPSA_OK, 0, 0, BPPSA_OK},
         b = {&m, 1, {0.06, 0}, 0, {0, 0}, BPPSA_OK, 0, 0, BPPSA_OK};
  bppsa_contender list[] = {contend(&a), contend(&b)};
  const bppsa_rounds rounds = {.repeats = 60};
  assert_int_equal(bppsa_rounds_run(&rounds, 2, list), BPPSA_OK);
  assert_int_equal(a.calls, 1 + 2 * 60);
  assert_false(list[0].timing[0].noisy || list[0].timing[1].noisy || list[1].timing[0].noisy);
  assert_near(list[0].timing[0].median_s, 0.05);
  assert_near(list[1].timing[0].median_s, 0.06);
}

/* The rule itself: more than 1.25 times the minimum, from three passes on. */
static void test_rule(void **state) {
  (void)state;
  double quiet[] = {1.25, 1, 9}, noisy[] = {1, 1.26, 9, 1.26}, few[] = {1, 9};
  bppsa_timing t = bppsa_timing_of(3, quiet);
  assert_true(!t.noisy && t.median_s == 1.25 && t.min_s == 1 && t.max_s == 9 && t.repeats == 3);
  assert_true(bppsa_timing_of(4, noisy).noisy);
  t = bppsa_timing_of(2, few);
  assert_true(!t.noisy && t.median_s == 5);
}

/* The fastest has the smallest median; one noisy timing among the compared, the slowest even, leaves no winner. */
static void test_fastest(void **state) {
  (void)state;
  bppsa_timing compared[] = {{.median_s = 3, .min_s = 3}, {.median_s = 1, .min_s = 1}, {.median_s = 9, .min_s = 8}};
  assert_int_equal(bppsa_timing_fastest(3, compared), 1);
  compared[2].noisy = true;
  assert_int_equal(bppsa_timing_fastest(3, compared), -1);
  assert_int_equal(bppsa_timing_fastest(2, compared), 1);
}

/* An error ends the rounds and leaves the timings as they were; so does every allocation that fails. */
static void test_errors(void **state) {
  (void)state;
  machine m = {.slowdown = stalls};
  worker a = {&m, 0, {0.05, 0}, 0, {0, 0}, BPPSA_ERR_CUDA, 0, 0, BPPSA_OK};
  bppsa_contender one = contend(&a);
  const bppsa_rounds rounds = {.repeats = 60};
  assert_int_equal(bppsa_rounds_run(&rounds, 1, &one), BPPSA_ERR_CUDA);
  assert_int_equal(one.timing[0].repeats, 0);
  a.status = BPPSA_OK;
  const int64_t live = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t failures = 0;
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    m.now = 0;
    bppsa_alloc_fail_at(call);
    status = bppsa_rounds_run(&rounds, 1, &one);
    bppsa_alloc_fail_at(0);
    assert_int_equal(bppsa_alloc_live(), live);
    failures += status == BPPSA_ERR_MEMORY;
  }
  assert_int_equal(failures, 4); /* two attempts, two blocks each */
}

/* A contender whose results are wrong, by a residual of the bound or by NaN, is never timed and keeps its residual. The others
 * are verified once, before the first pass of any, and timed. */
static void test_wrong(void **state) {
  (void)state;
  machine m = {0};
  worker right = {.m = &m, .index = 0, .needs = {0.1, 0}, .residual = 29.9},
         wrong = {.m = &m, .index = 1, .needs = {0.1, 0}, .residual = 30},
         strange = {.m = &m, .index = 2, .needs = {0.1, 0}, .residual = NAN};
  bppsa_contender list[] = {contend(&wrong), contend(&right), contend(&strange)};
  const bppsa_rounds rounds = {.repeats = 3};
  assert_int_equal(bppsa_rounds_run(&rounds, 3, list), BPPSA_OK);
  assert_true(right.verified == 1 && wrong.verified == 1 && strange.verified == 1);
  assert_true(right.calls == 1 + 3 && wrong.calls == 0 && strange.calls == 0);
  assert_int_equal(list[0].verdict, BPPSA_WRONG);
  assert_int_equal(list[1].verdict, BPPSA_VERIFIED);
  assert_int_equal(list[2].verdict, BPPSA_WRONG);
  assert_true(list[0].residual == 30 && list[1].residual == 29.9 && isnan(list[2].residual));
  assert_true(list[0].timing[0].repeats == 0 && list[1].timing[0].repeats == 3 && list[2].timing[0].repeats == 0);
  assert_int_equal(bppsa_contender_status(&list[1]), BPPSA_OK);
  assert_int_equal(bppsa_contender_status(&list[0]), BPPSA_ERR_NUMERIC);
  assert_string_equal(bppsa_last_error(), "worker: wrong, a residual of 30, expected less than 30");
  worker alone = {.m = &m, .needs = {0.1, 0}, .residual = 31};
  bppsa_contender one = contend(&alone);
  assert_int_equal(bppsa_rounds_run(&rounds, 1, &one), BPPSA_OK); /* nothing to time */
  assert_int_equal(alone.calls, 0);
  one = contend(&alone);
  one.verification.bound = 0; /* a bound that was forgotten lets nothing pass */
  alone.residual = 0;
  assert_int_equal(bppsa_rounds_run(&rounds, 1, &one), BPPSA_OK);
  assert_true(one.verdict == BPPSA_WRONG && alone.calls == 0);
}

/* Without a verification nothing is timed, not even the contenders beside it. */
static void test_unverified(void **state) {
  (void)state;
  machine m = {0};
  worker a = {.m = &m, .needs = {0.1, 0}}, b = {.m = &m, .index = 1, .needs = {0.1, 0}};
  bppsa_contender list[] = {contend(&a), contend(&b)};
  const bppsa_rounds rounds = {.repeats = 3};
  list[1].verification.verify = NULL;
  assert_int_equal(bppsa_contender_status(&list[1]), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_contender_verify(&list[1]), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_rounds_run(&rounds, 2, list), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "rounds: worker has no verification, expected one before it is timed");
  assert_true(m.calls == 0 && list[0].timing[0].repeats == 0);
  b.verification = BPPSA_ERR_CUDA; /* a verification that fails ends the rounds before they begin */
  list[1] = contend(&b);
  assert_int_equal(bppsa_rounds_run(&rounds, 2, list), BPPSA_ERR_CUDA);
  assert_int_equal(m.calls, 0);
}

/* What is unsupported, when it is verified or in the middle of the rounds, is refused with its reason; the others go on. */
static void test_refused(void **state) {
  (void)state;
  machine m = {0};
  worker a = {.m = &m, .needs = {0.1, 0}}, b = {.m = &m, .needs = {0.1, 0}, .verification = BPPSA_ERR_UNSUPPORTED},
         c = {.m = &m, .needs = {0.1, 0}, .status = BPPSA_ERR_UNSUPPORTED};
  bppsa_contender list[] = {contend(&b), contend(&c), contend(&a)};
  const bppsa_rounds rounds = {.repeats = 5};
  assert_int_equal(bppsa_rounds_run(&rounds, 3, list), BPPSA_OK);
  assert_true(a.calls == 1 + 5 && b.calls == 0 && c.calls == 3);
  assert_true(list[0].verdict == BPPSA_REFUSED && list[1].verdict == BPPSA_REFUSED && list[2].verdict == BPPSA_VERIFIED);
  assert_string_equal(list[0].reason, "no kernels for this");
  assert_string_equal(list[1].reason, "not that one");
  assert_true(list[0].timing[0].repeats == 0 && list[1].timing[0].repeats == 0 && list[2].timing[0].repeats == 5);
  assert_int_equal(bppsa_contender_status(&list[1]), BPPSA_ERR_UNSUPPORTED);
  assert_string_equal(bppsa_last_error(), "not that one");
}

/* ---- the spread of samples ---- */

/* Of the samples 1 .. n, given in another order: between the k-th smallest and the k-th largest lies at least half of them, and
 * with 6 or more samples 95 % of the chance. n = 9: outside of 2 .. 8 the median lies with a chance of 2 (1 + 9) / 2^9. */
static void test_spread(void **state) {
  (void)state;
  static const struct {
    int64_t n;
    double low, high, confidence;
  } cases[] = {{1, 1, 1, 0},
               {2, 1, 2, 0.5},
               {5, 1, 5, 1 - 2.0 / 32},
               {6, 1, 6, 1 - 2.0 / 64},
               {9, 2, 8, 1 - 2.0 * 10 / 512},
               {15, 4, 12, 1 - 2.0 * (1 + 15 + 105 + 455) / 32768},
               {40, 10, 31, 0.9993}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const int64_t n = cases[i].n;
    double samples[64];
    for (int64_t k = 0; k < n; ++k) {
      samples[k] = (double)(n - k);
    }
    const bppsa_spread spread = bppsa_spread_of(n, samples);
    assert_true(spread.low == cases[i].low && spread.high == cases[i].high && spread.median == 0.5 * (double)(n + 1));
    assert_true(fabs(spread.confidence - cases[i].confidence) < 1e-3);
    assert_int_equal(spread.samples, n);
  }
}

typedef struct {
  int64_t taken, asked, stops_after, fails_at;
  double (*value)(int64_t i);
} sampler;

static bppsa_status take(void *context, double *sample) {
  sampler *s = context;
  *sample = s->value(s->taken);
  return ++s->taken == s->fails_at ? bppsa_fail(BPPSA_ERR_IO, "a sample fails") : BPPSA_OK;
}

static bool asks(void *context, const bppsa_spread *so_far) {
  sampler *s = context;
  assert_int_equal(so_far->samples, s->taken);
  return ++s->asked != s->stops_after;
}

static double quiet(int64_t i) {
  return 1.5 + 0.01 * (double)(i % 3);
}

static double busy(int64_t i) {
  return i % 2 == 0 ? 1 : 2;
}

static double settles(int64_t i) {
  return i < 2 ? 3 : 1;
}

/* Six samples are enough where they agree; where they do not, as many as there may be, or until somebody says so. */
static void test_sampling(void **state) {
  (void)state;
  sampler s = {.value = quiet};
  bppsa_spread spread = {.samples = 0};
  bppsa_sampling how = {.within = 0.1, .least = 6, .most = 31, .take = take, .context = &s};
  assert_int_equal(bppsa_spread_measure(&how, &spread), BPPSA_OK);
  assert_true(spread.samples == 6 && s.taken == 6 && spread.low == 1.5 && spread.high == 1.52);
  s = (sampler){.value = busy};
  assert_int_equal(bppsa_spread_measure(&how, &spread), BPPSA_OK);
  assert_true(spread.samples == 31 && spread.low == 1 && spread.high == 2 && spread.confidence > 0.95);
  /* Two slow samples of the first six make the spread wide; with nine it lies between the second and the eighth, with twelve
   * between the third and the tenth. */
  s = (sampler){.value = settles};
  assert_int_equal(bppsa_spread_measure(&how, &spread), BPPSA_OK);
  assert_true(spread.samples == 12 && spread.low == 1 && spread.high == 1);
  s = (sampler){.value = busy, .stops_after = 3};
  how.go_on = asks;
  assert_int_equal(bppsa_spread_measure(&how, &spread), BPPSA_OK);
  assert_true(spread.samples == 8 && s.asked == 3);
  s = (sampler){.value = busy, .fails_at = 4};
  assert_int_equal(bppsa_spread_measure(&how, &spread), BPPSA_ERR_IO);
  assert_int_equal(spread.samples, 8);
}

/* Of those that have to qualify, one that takes more than twice as long as the fastest keeps its single pass. Nobody is held
 * against one that is behind, or against one that need not qualify. Without a factor all take part. */
static void test_qualifying(void **state) {
  (void)state;
  static const struct {
    double needs[2];
    bppsa_qualifying qualifies;
    bool beaten;
  } cases[] = {{{0.0001, 0}, BPPSA_QUALIFIED, false},
               {{0.01, 0.03}, BPPSA_QUALIFIES, false},
               {{0.03, 0.0499}, BPPSA_QUALIFIES, false},
               {{0.03, 0.0501}, BPPSA_QUALIFIES, true},
               {{0.01, 0.001}, BPPSA_QUALIFIES_BEHIND, false},
               {{0.09, 0.01}, BPPSA_QUALIFIES_BEHIND, true},
               {{0.9, 0}, BPPSA_QUALIFIED, false}};
  enum { CASES = sizeof cases / sizeof cases[0] };
  for (int factor = 0; factor <= 2; factor += 2) {
    machine m = {0};
    worker workers[CASES];
    bppsa_contender list[CASES];
    for (int i = 0; i < CASES; ++i) {
      workers[i] = (worker){.m = &m, .index = i, .needs = {cases[i].needs[0], cases[i].needs[1]}};
      list[i] = contend(&workers[i]);
      list[i].qualifies = cases[i].qualifies;
    }
    const bppsa_rounds rounds = {.repeats = 3, .qualify = factor};
    assert_int_equal(bppsa_rounds_run(&rounds, CASES, list), BPPSA_OK);
    for (int i = 0; i < CASES; ++i) {
      const bool beaten = factor > 0 && cases[i].beaten;
      assert_int_equal(list[i].beaten, beaten);
      assert_int_equal(workers[i].calls, beaten ? 1 : 1 + 3);
      assert_int_equal(list[i].timing[0].repeats, beaten ? 0 : 3);
      assert_true(list[i].verdict == BPPSA_VERIFIED && bppsa_contender_status(&list[i]) == BPPSA_OK);
      assert_near(list[i].qualifying[0], cases[i].needs[0]);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_spread),         cmocka_unit_test(test_sampling),      cmocka_unit_test(test_shares),
      cmocka_unit_test(test_one_slow_round), cmocka_unit_test(test_constant_load), cmocka_unit_test(test_stalls),
      cmocka_unit_test(test_measured_again), cmocka_unit_test(test_rule),          cmocka_unit_test(test_fastest),
      cmocka_unit_test(test_errors),         cmocka_unit_test(test_wrong),         cmocka_unit_test(test_unverified),
      cmocka_unit_test(test_refused),        cmocka_unit_test(test_qualifying)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

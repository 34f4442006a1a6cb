/* How much slower ranks compute side by side (calibrate/slowdown.h), with times that the test makes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "calibrate/slowdown.h"

typedef struct {
  double alone_s, times[3]; /* of both ranks over one, round after round, from the front again */
  int64_t rounds;
  int64_t fails_at;
} machine;

static bppsa_status time_passes(void *context, int64_t at_once, double *seconds) {
  machine *m = context;
  assert_true(at_once == 1 || at_once == 2);
  m->rounds += at_once == 1;
  *seconds = m->alone_s * (at_once == 1 ? 1 : m->times[(m->rounds - 1) % 3]);
  return m->rounds == m->fails_at ? bppsa_fail(BPPSA_ERR_COMM, "a rank has left") : BPPSA_OK;
}

static bppsa_slowdown measure(machine *m, bool quick, double budget_s) {
  const bppsa_slowdown_measuring how = {.time = time_passes, .context = m, .ranks = 2, .quick = quick, .budget_s = budget_s};
  bppsa_slowdown found = {.slowdown = {.samples = -1}};
  assert_int_equal(bppsa_slowdown_measure(&how, &found), m->fails_at > 0 ? BPPSA_ERR_COMM : BPPSA_OK);
  return found;
}

static void test_quiet(void **state) {
  (void)state;
  machine m = {.alone_s = 0.1, .times = {1.2, 1.21, 1.22}};
  const bppsa_slowdown found = measure(&m, false, 120);
  assert_int_equal(found.slowdown.samples, 6);
  assert_true(fabs(found.slowdown.median - 1.21) < 1e-9 && found.slowdown.confidence > 0.95);
  assert_true(fabs(found.slowdown.low - 1.2) < 1e-9 && fabs(found.slowdown.high - 1.22) < 1e-9);
  assert_true(found.alone_s.low == 0.1 && found.alone_s.high == 0.1 && found.alone_s.samples == 6);
}

/* Slowdowns of 1 to 2 are measured to the end: all rounds, or the budget; quickly, as many as the confidence takes. */
static void test_busy(void **state) {
  (void)state;
  machine m = {.alone_s = 0.1, .times = {1, 1.5, 2}};
  bppsa_slowdown found = measure(&m, false, 120);
  assert_int_equal(found.slowdown.samples, 31);
  assert_true(fabs(found.slowdown.low - 1) < 1e-9 && fabs(found.slowdown.high - 2) < 1e-9);
  m.rounds = 0;
  found = measure(&m, false, 2.4); /* a round takes 0.25 s on average */
  assert_int_equal(found.slowdown.samples, 10);
  m.rounds = 0;
  assert_int_equal(measure(&m, false, -1).slowdown.samples, 6);
  m.rounds = 0;
  assert_int_equal(measure(&m, true, 120).slowdown.samples, 6);
}

/* Nobody is faster side by side; a clock that stands still slows nobody down. An error ends it. */
static void test_limits(void **state) {
  (void)state;
  machine m = {.alone_s = 0.1, .times = {0.9, 0.8, 0.95}};
  bppsa_slowdown found = measure(&m, false, 120);
  assert_true(found.slowdown.median == 1 && found.slowdown.low == 1 && found.slowdown.high == 1);
  m = (machine){.alone_s = 0, .times = {1, 1, 1}};
  assert_true(measure(&m, false, 120).slowdown.median == 1);
  m = (machine){.alone_s = 0.1, .times = {1, 1, 1}, .fails_at = 3};
  assert_int_equal(measure(&m, false, 120).slowdown.samples, -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_quiet), cmocka_unit_test(test_busy), cmocka_unit_test(test_limits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

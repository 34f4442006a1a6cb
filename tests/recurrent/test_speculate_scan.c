/* The linear scan in chunks of time at once (recurrent/speculate_scan.h) beside the linear scan, of random recurrences that forget
 * and of some that do not, with time and against it, with cuts; executors are executed again and again. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "recurrent/speculate_scan.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

enum { MOST_MATRICES = 4 };

/* A recurrence of dim S, whose columns and diagonals have H numbers. */
typedef struct {
  bppsa_scan_plan *plan;
  bppsa_device *device;
  int64_t steps, batch, size, matrices, columns;
  bool pair, forward;
  void *weights[MOST_MATRICES], *factors[MOST_MATRICES + 1], *diagonal, *injected, *first;
  uint8_t *cuts;
} recurrence;

static void *reals(bppsa_dtype dtype, uint64_t seed, int64_t count, double scale) {
  double *values = uniform(seed, count, scale);
  void *rounded_values = rounded(dtype, values, count);
  bppsa_free(values);
  return rounded_values;
}

/* scale: of the weights; above 1 the recurrence does not forget. */
static recurrence recurrence_open(uint64_t seed, int64_t threads, double scale) {
  const bppsa_dtype dtype = seed % 2 == 0 ? BPPSA_F64 : BPPSA_F32;
  const int64_t hidden = 3 + (int64_t)(seed / 4 % 5);
  recurrence r = {.device = cpu_device(threads),
                  .steps = 40 + (int64_t)(seed % 17),
                  .batch = 1 + (int64_t)(seed % 3),
                  .pair = seed / 2 % 2 == 1,
                  .forward = seed / 3 % 2 == 1};
  r.size = (r.pair ? 2 : 1) * hidden;
  r.matrices = r.pair ? 4 : 1 + (int64_t)(seed % 3);
  r.columns = r.matrices + r.pair;
  bppsa_scan_config c = bppsa_scan_config_default();
  c.method = bppsa_scan_method_of(BPPSA_SCAN_LINEAR);
  c.element = r.pair ? BPPSA_ELEMENT_PAIR : BPPSA_ELEMENT_RECURRENT;
  c.dtype = dtype;
  c.jacobians = r.steps;
  c.batch = r.batch;
  c.dim = r.size;
  c.matrices = r.matrices;
  c.diagonal = c.affine = c.input = true;
  assert_int_equal(bppsa_scan_plan_create(&c, &r.plan), BPPSA_OK);
  for (int64_t k = 0; k < r.matrices; ++k) {
    r.weights[k] = reals(dtype, seed * 100 + (uint64_t)k, hidden * hidden, scale / sqrt((double)(hidden * r.matrices)));
  }
  for (int64_t k = 0; k < r.columns; ++k) {
    r.factors[k] = reals(dtype, seed * 100 + 10 + (uint64_t)k, r.steps * r.batch * hidden, 1);
  }
  r.diagonal = reals(dtype, seed * 100 + 20, r.steps * r.batch * hidden, .3);
  r.injected = reals(dtype, seed * 100 + 21, r.steps * r.batch * r.size, 1);
  r.first = reals(dtype, seed * 100 + 22, r.batch * r.size, 1);
  r.cuts = bppsa_calloc(r.steps * r.batch, 1);
  assert_non_null(r.cuts);
  for (int64_t i = 0; seed % 5 == 0 && i < r.steps * r.batch; ++i) {
    r.cuts[i] = (uint64_t)i * 2654435761u % 13 == 0;
  }
  return r;
}

static void recurrence_close(recurrence *r) {
  for (int64_t k = 0; k < r->matrices; ++k) {
    bppsa_free(r->weights[k]);
  }
  for (int64_t k = 0; k < r->columns; ++k) {
    bppsa_free(r->factors[k]);
  }
  bppsa_free(r->diagonal);
  bppsa_free(r->injected);
  bppsa_free(r->first);
  bppsa_free(r->cuts);
  bppsa_scan_plan_destroy(r->plan);
  bppsa_device_destroy(r->device);
}

static size_t row_of(const recurrence *r) {
  return (size_t)(r->batch * r->size) * bppsa_dtype_size(bppsa_scan_plan_config(r->plan)->dtype);
}

/* All states, from an execution whose injected rows are the array of states itself or, `apart`, an array of their own. */
static char *states_by(const recurrence *r, bppsa_scan_executor *executor, bool apart) {
  const size_t row = row_of(r), all = (size_t)r->steps * row;
  char *states = bppsa_calloc(r->steps + 1, row);
  assert_non_null(states);
  char *rows = r->forward ? states + row : states;
  memcpy(apart ? states : rows, r->injected, apart ? 0 : all);
  memcpy(r->forward ? states : states + all, r->first, row);
  const void *weights[MOST_MATRICES], *factors[MOST_MATRICES + 1];
  memcpy(weights, r->weights, sizeof weights);
  memcpy(factors, r->factors, sizeof factors);
  const bppsa_scan_operands o = {.batch = r->batch,
                                 .weights = weights,
                                 .columns = factors,
                                 .diagonal = r->diagonal,
                                 .cuts = r->cuts,
                                 .injected = apart ? r->injected : rows,
                                 .gradients = states,
                                 .forward = r->forward};
  assert_int_equal(executor->execute(executor, &o), BPPSA_OK);
  return states;
}

static double get(const recurrence *r, const char *states, int64_t i) {
  return bppsa_scan_plan_config(r->plan)->dtype == BPPSA_F32 ? (double)((const float *)(const void *)states)[i]
                                                             : ((const double *)(const void *)states)[i];
}

/* The largest difference from the linear scan's, relative to the largest state; NaN if one is. */
static double apart_from(const recurrence *r, const char *found, const char *expected) {
  double most = 0, apart = 0;
  for (int64_t i = 0; i < (r->steps + 1) * r->batch * r->size; ++i) {
    const double difference = fabs(get(r, found, i) - get(r, expected, i));
    most = fmax(most, fabs(get(r, expected, i)));
    apart = difference <= apart ? apart : difference;
  }
  return apart / most;
}

static bppsa_scan_executor *speculate(const recurrence *r, int64_t chunks, int64_t warm_up, int64_t rounds, double accept) {
  const bppsa_backward_plan plan = {
      .speculative = true, .chunks = chunks, .warm_up = warm_up, .rounds = rounds, .accept = accept};
  bppsa_scan_executor *executor = NULL;
  assert_int_equal(bppsa_speculative_scan_create(r->plan, &plan, r->forward, r->device, &executor), BPPSA_OK);
  return executor;
}

/* accept 0: whatever differs walks on, so that the states are those of the linear scan but for rounding. */
static void test_states(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const double scale = seed % 3 == 0 ? 1.5 : .6;
    recurrence r = recurrence_open(seed, 1, scale), other = recurrence_open(seed, 3, scale);
    const double rounding = bppsa_scan_plan_config(r.plan)->dtype == BPPSA_F32 ? 0x1p-24 : 0x1p-53;
    const int64_t chunks = 1 + (int64_t)(seed % 9), warm_up = (int64_t)(seed % 7), rounds = (int64_t)(seed % 4);
    bppsa_scan_executor *linear = NULL;
    assert_int_equal(bppsa_scan_executor_create(r.plan, r.device, &linear), BPPSA_OK);
    bppsa_scan_executor *one = speculate(&r, chunks, warm_up, rounds, seed % 2 == 0 ? 0 : 4 * rounding),
                        *several = speculate(&other, chunks, warm_up, rounds, seed % 2 == 0 ? 0 : 4 * rounding);
    char *expected = states_by(&r, linear, true), *found = states_by(&r, one, true);
    const double most = 3000 * rounding;
    if (!(apart_from(&r, found, expected) <= most)) {
      fail_msg("seed %d: %d chunks, warm-up %d: %g apart, expected at most %g", (int)seed, (int)chunks, (int)warm_up,
               apart_from(&r, found, expected), most);
    }
    for (int again = 0; again < 3; ++again) {
      char *same = states_by(&other, several, again % 2 == 0);
      assert_memory_equal(same, found, ((size_t)r.steps + 1) * row_of(&r));
      bppsa_free(same);
    }
    bppsa_free(expected);
    bppsa_free(found);
    bppsa_scan_executor_destroy(linear);
    bppsa_scan_executor_destroy(one);
    bppsa_scan_executor_destroy(several);
    recurrence_close(&r);
    recurrence_close(&other);
  }
}

/* A tolerance without bounds takes the guesses as they are, which are wrong without a warm-up, and right where the sample began
 * anew in front of every chunk; a small one mends them. */
static void test_tolerance(void **state) {
  (void)state;
  recurrence r = recurrence_open(8, 1, .6);
  bppsa_scan_executor *linear = NULL;
  assert_int_equal(bppsa_scan_executor_create(r.plan, r.device, &linear), BPPSA_OK);
  bppsa_scan_executor *guesses = speculate(&r, 8, 0, 2, 1e30), *mended = speculate(&r, 8, 0, 2, 1e-9);
  char *expected = states_by(&r, linear, true), *guessed = states_by(&r, guesses, true), *found = states_by(&r, mended, true);
  assert_true(apart_from(&r, guessed, expected) > 1e-3);
  assert_true(apart_from(&r, found, expected) < 1e-8);
  bppsa_free(guessed);
  memset(r.cuts, 1, (size_t)(r.steps * r.batch));
  char *cut = states_by(&r, linear, true);
  guessed = states_by(&r, guesses, true);
  assert_memory_equal(guessed, cut, ((size_t)r.steps + 1) * row_of(&r));
  bppsa_free(expected);
  bppsa_free(guessed);
  bppsa_free(found);
  bppsa_free(cut);
  bppsa_scan_executor_destroy(linear);
  bppsa_scan_executor_destroy(guesses);
  bppsa_scan_executor_destroy(mended);
  recurrence_close(&r);
}

/* Numbers that are not finite are where the linear scan has them, and finite ones have its bits; the next execution is right. */
static void test_nonfinite(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    recurrence r = recurrence_open(seed, 2, .6);
    bppsa_scan_executor *linear = NULL, *executor = speculate(&r, 5, 4, 2, 0);
    assert_int_equal(bppsa_scan_executor_create(r.plan, r.device, &linear), BPPSA_OK);
    char *clean = states_by(&r, executor, true);
    const int64_t at = (r.steps / 2 * r.batch) * r.size;
    char *number = (char *)r.injected + (size_t)at * (row_of(&r) / (size_t)(r.batch * r.size)), kept[sizeof(double)];
    const size_t bytes = row_of(&r) / (size_t)(r.batch * r.size);
    memcpy(kept, number, bytes);
    memset(number, 0xff, bytes); /* NaN */
    char *expected = states_by(&r, linear, true), *found = states_by(&r, executor, true);
    assert_memory_equal(found, expected, ((size_t)r.steps + 1) * row_of(&r));
    memcpy(number, kept, bytes);
    char *again = states_by(&r, executor, true);
    assert_memory_equal(again, clean, ((size_t)r.steps + 1) * row_of(&r));
    bppsa_free(clean);
    bppsa_free(expected);
    bppsa_free(found);
    bppsa_free(again);
    bppsa_scan_executor_destroy(linear);
    bppsa_scan_executor_destroy(executor);
    recurrence_close(&r);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_states), cmocka_unit_test(test_tolerance),
                                     cmocka_unit_test(test_nonfinite)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

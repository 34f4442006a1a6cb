/* On the device that CTest names: long chains of few numbers, which a GPU's warps share. */
#include <float.h>
#include <math.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "scan/scan.h"
#include "tests/support/support.h"

/* A chain of diagonal Jacobians jt [n][b][d], gradients g [n + 1][b][d] whose last are the seed and whose others are injected
 * (affine), by a method on the device against float64 at every step. What is below the smallest number of its type is 0 and remains
 * 0, as in sequential BP of that type. each: every number of a state is judged by itself, not the state as a whole. Returns the
 * number of redone products. */
static int64_t check_chain(const bppsa_scan_config *base, const bppsa_device *device, double *jt, double *g, bool each) {
  bppsa_scan_config c = *base;
  const int64_t n = c.jacobians, state_size = c.batch * c.dim, size = (int64_t)bppsa_dtype_size(c.dtype);
  c.element = BPPSA_ELEMENT_DIAGONAL;
  c.input = true;
  void *typed_jt = rounded(c.dtype, jt, n * state_size), *typed_g = rounded(c.dtype, g, (n + 1) * state_size);
  void *on_jt = on_device(device, typed_jt, n * state_size * size);
  void *on_g = on_device(device, typed_g, (n + 1) * state_size * size);
  for (int64_t i = n * state_size - 1; i >= 0; --i) {
    g[i] = jt[i] * g[i + state_size] + (c.affine ? g[i] : 0);
    g[i] = c.dtype == BPPSA_F32 && fabs(g[i]) < (double)FLT_TRUE_MIN ? 0 : g[i];
  }
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  const bppsa_scan_operands operands = {.batch = c.batch, .jt = on_jt, .gradients = on_g, .injected = c.affine ? on_g : NULL};
  assert_int_equal(executor->execute(executor, &operands), BPPSA_OK);
  const int64_t row = state_size * size, judged = each ? 1 : state_size;
  assert_int_equal(bppsa_memory_get(device, typed_g, on_g, (n + 1) * row), BPPSA_OK);
  for (int64_t t = 0; t <= n; ++t) {
    for (int64_t i = 0; i < state_size; i += judged) {
      const double r = residual(c.dtype, (char *)typed_g + t * row + i * size, g + t * state_size + i, judged, sqrt((double)n));
      if (!(r < 30)) {
        fail_msg("algorithm %d, %s, step %lld of %lld, number %lld: residual %g", (int)c.method.algorithm,
                 bppsa_dtype_name(c.dtype), (long long)(n - t), (long long)n, (long long)i, r);
      }
    }
  }
  assert_int_equal(bppsa_scan_executor_count(executor), BPPSA_OK);
  const int64_t redone = executor->redone;
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_memory_free(device, on_jt);
  bppsa_memory_free(device, on_g);
  bppsa_free(typed_jt);
  bppsa_free(typed_g);
  return redone;
}

/* Few numbers, many steps, of which some grow and some shrink by so much that parts of the chain are beyond the type's range;
 * gradients are not. Periods of 45 steps, where lanes of a warp that stand beside each other do alike, and of 7, where they do
 * not. */
static void test_long_diagonal(void **state) {
  (void)state;
  enum { LONGEST = 300 };
  static const int64_t steps[] = {64, 127, 128, 129, LONGEST};
  bppsa_device *device = test_device(2);
  for (int k = 0; k < 5 * 4 * 2; ++k) {
    const bool wide = k % 2 == 1, affine = k % 4 >= 2;
    const int64_t n = steps[k / 4 % 5], batch = 1 + k % 3, dim = 1 + k % 2, state_size = batch * dim, period = k < 5 * 4 ? 45 : 7;
    bppsa_scan_config c = bppsa_scan_config_default();
    c.method.algorithm = BPPSA_SCAN_LINEAR;
    c.dtype = wide ? BPPSA_F64 : BPPSA_F32;
    c.jacobians = n;
    c.batch = batch;
    c.dim = dim;
    c.affine = affine;
    double *jt = uniform((uint64_t)k, n * state_size, 1),
           *g = uniform((uint64_t)k + 100, (n + 1) * state_size, wide ? 1e-200 : 1e-25);
    const double grow = period == 45 ? (wide ? 1e7 : 10) : (wide ? 1e40 : 1e6);
    for (int64_t i = 0; i < n * state_size; ++i) { /* the last `period` steps, which come first, grow, those before shrink, .. */
      jt[i] = (jt[i] < 0 ? -1 : 1) * pow(grow, (n - 1 - i / state_size) / period % 2 == 0 ? 1 : -1) * (1 + 1e-3 * fabs(jt[i]));
    }
    assert_int_equal(check_chain(&c, device, jt, g, false), 0);
    bppsa_free(jt);
    bppsa_free(g);
  }
  bppsa_device_destroy(device);
}

/* The numbers of a state grow and shrink by different amounts, so that products have a power of two of their own for each number,
 * and for what is injected into it. */
static void test_numbers_apart(void **state) {
  (void)state;
  enum { N = 90, DIM = 3, PERIOD = 45 };
  static const bppsa_scan_method methods[] = {{.algorithm = BPPSA_SCAN_LINEAR},
                                              {.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = -1},
                                              {.algorithm = BPPSA_SCAN_CHUNKED, .chunks = 3},
                                              {.algorithm = BPPSA_SCAN_CHUNKED, .chunks = 10}};
  bppsa_device *device = test_device(2);
  for (int k = 0; k < 4 * 2; ++k) {
    const bool wide = k % 2 == 1;
    bppsa_scan_config c = bppsa_scan_config_default();
    c.method = methods[k / 2];
    c.dtype = wide ? BPPSA_F64 : BPPSA_F32;
    c.jacobians = N;
    c.batch = 2;
    c.dim = DIM;
    c.affine = true;
    const int64_t state_size = c.batch * DIM;
    double *jt = uniform((uint64_t)k, N * state_size, 1),
           *g = uniform((uint64_t)k + 100, (N + 1) * state_size, wide ? 1e-200 : 1e-25);
    for (int64_t i = 0; i < N * state_size; ++i) {
      const double grow = pow(wide ? 1e7 : 10, 1 / (double)(1 + i % DIM));
      jt[i] = (jt[i] < 0 ? -1 : 1) * ((N - 1 - i / state_size) / PERIOD == 0 ? grow : 1 / grow) * (1 + 1e-3 * fabs(jt[i]));
    }
    (void)check_chain(&c, device, jt, g, true);
    bppsa_free(jt);
    bppsa_free(g);
  }
  bppsa_device_destroy(device);
}

/* The last number of each state is nearly as large as its type allows; it shrinks for four steps, grows for four, and grows back.
 * The product of the first eight has a power of two of its own, without which the number leaves the range: in f64 such a product
 * is useless for this number alone, and its steps are redone. In a chain that lanes of a warp share, one lane begins beyond the
 * range. */
static void test_beyond_range(void **state) {
  (void)state;
  enum { N = 96, DIM = 2 };
  static const bppsa_scan_method methods[] = {{.algorithm = BPPSA_SCAN_LINEAR},
                                              {.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = -1},
                                              {.algorithm = BPPSA_SCAN_CHUNKED, .chunks = N / 8}};
  bppsa_device *device = test_device(2);
  for (int k = 0; k < 3 * 2 * 2; ++k) {
    const bool wide = k % 2 == 1, large = k / 2 % 2 == 1;
    bppsa_scan_config c = bppsa_scan_config_default();
    c.method = methods[k / 4];
    c.dtype = wide ? BPPSA_F64 : BPPSA_F32;
    c.jacobians = N;
    c.batch = 1;
    c.dim = DIM;
    double *jt = uniform((uint64_t)k, N * DIM, 0.1), *g = bppsa_calloc((N + 1) * DIM, sizeof *g);
    for (int64_t i = 0; i < N * DIM; ++i) {
      static const double exponents[N / 4] = {[4] = -2, [5] = 1.5, [6] = 0.5};
      jt[i] = (1 + jt[i]) * (i % DIM == 1 && large ? pow(10, exponents[(N - 1 - i / DIM) / 4]) : 1);
    }
    g[N * DIM] = 1;
    g[N * DIM + 1] = !large ? 1 : wide ? 1e305 : 1e36;
    const int64_t redone = check_chain(&c, device, jt, g, false);
    assert_int_equal(redone > 0, wide && large && c.method.algorithm == BPPSA_SCAN_CHUNKED);
    bppsa_free(jt);
    bppsa_free(g);
  }
  bppsa_device_destroy(device);
}

/* The last number of each state shrinks to 0 in steps 8 to 11, and had it not been 0, it would grow beyond the range in steps 12 to
 * 15. With the product of these eight, which is a chunk's, it is infinite: the product is useless for this number alone, and its
 * steps are redone. In a chain that lanes of a warp share, only the lane behind these steps begins beyond the range. */
static void test_gone(void **state) {
  (void)state;
  enum { N = 96, DIM = 2 };
  static const bppsa_scan_method methods[] = {{.algorithm = BPPSA_SCAN_LINEAR},
                                              {.algorithm = BPPSA_SCAN_CHUNKED, .chunks = N / 8}};
  bppsa_device *device = test_device(2);
  for (int k = 0; k < 2 * 2 * 2; ++k) {
    const bool wide = k % 2 == 1, gone = k / 2 % 2 == 1;
    bppsa_scan_config c = bppsa_scan_config_default();
    c.method = methods[k / 4];
    c.dtype = wide ? BPPSA_F64 : BPPSA_F32;
    c.jacobians = N;
    c.batch = 1;
    c.dim = DIM;
    double *jt = uniform((uint64_t)k, N * DIM, 0.1), *g = bppsa_calloc((N + 1) * DIM, sizeof *g);
    for (int64_t i = 0; i < N * DIM; ++i) {
      const int64_t step = N - 1 - i / DIM;
      const double shrunk = wide ? 1e-10 : 1e-5, grown = wide ? 1e165 : 1e23;
      jt[i] = (1 + jt[i]) * (i % DIM == 0 || !gone || step / 8 != 1 ? 1 : step < 12 ? shrunk : grown);
    }
    g[N * DIM] = 1;
    g[N * DIM + 1] = wide ? 1e-300 : 1e-30;
    assert_int_equal(check_chain(&c, device, jt, g, false) > 0, gone && c.method.algorithm == BPPSA_SCAN_CHUNKED);
    bppsa_free(jt);
    bppsa_free(g);
  }
  bppsa_device_destroy(device);
}

/* Four consecutive steps, which one lane of a warp has, shrink the number by a power of two; the others keep its size. Nothing
 * leaves the range, so that no lane is told to go step by step: every later lane must have that power from the lanes before it. */
static void test_one_lane(void **state) {
  (void)state;
  enum { N = 150 };
  bppsa_device *device = test_device(2);
  for (int k = 0; k < 2 * 2 * 4; ++k) {
    static const int64_t firsts[] = {0, 4, 36, 120};
    bppsa_scan_config c = bppsa_scan_config_default();
    c.method.algorithm = BPPSA_SCAN_LINEAR;
    c.dtype = k % 2 == 1 ? BPPSA_F64 : BPPSA_F32;
    c.jacobians = N;
    c.batch = c.dim = 1;
    c.affine = k / 2 % 2 == 1;
    double *jt = uniform((uint64_t)k, N, 0.1), *g = bppsa_calloc(N + 1, sizeof *g);
    for (int64_t i = 0; i < N; ++i) {
      const int64_t behind = N - 1 - i - firsts[k / 4];
      jt[i] = (1 + jt[i]) * (behind >= 0 && behind < 4 ? 1e-5 : 1);
      g[i] = c.affine && i % 5 == 0 ? 1e-11 : 0;
    }
    g[N] = 1e10;
    assert_int_equal(check_chain(&c, device, jt, g, false), 0);
    bppsa_free(jt);
    bppsa_free(g);
  }
  bppsa_device_destroy(device);
}

/* An injected number cancels the gradient exactly, and what follows grows beyond the range: every gradient is small, but the
 * effect of those steps alone is not finite, so that lanes of a warp that share the chain take their steps one after the
 * other. */
static void test_cancelled(void **state) {
  (void)state;
  enum { N = 150 };
  bppsa_device *device = test_device(2);
  for (int first = 1; first < 20; first += 3) { /* where in a lane's steps it happens */
    for (int wide = 0; wide < 2; ++wide) {
      bppsa_scan_config c = bppsa_scan_config_default();
      c.method.algorithm = BPPSA_SCAN_LINEAR;
      c.dtype = wide != 0 ? BPPSA_F64 : BPPSA_F32;
      c.jacobians = N;
      c.batch = c.dim = 1;
      c.affine = true;
      double *jt = bppsa_calloc(N, sizeof *jt), *g = bppsa_calloc(N + 1, sizeof *g);
      for (int step = 0; step < N; ++step) { /* step 0 comes first: it is the last Jacobian */
        const bool grows = step > first && step <= first + 24;
        jt[N - 1 - step] = grows ? (wide != 0 ? 1e40 : 1e5) : 1 + 0.01 * (step % 7 - 3);
        g[N - 1 - step] = step == first ? 1 : step > first + 30 && step % 5 == 0 ? 0.25 * (step % 3 + 1) : 0;
        jt[N - 1 - step] = step <= first ? 1 : jt[N - 1 - step];
      }
      g[N] = -1;
      assert_int_equal(check_chain(&c, device, jt, g, false), 0);
      bppsa_free(jt);
      bppsa_free(g);
    }
  }
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_diagonal), cmocka_unit_test(test_numbers_apart),
                                     cmocka_unit_test(test_beyond_range),  cmocka_unit_test(test_gone),
                                     cmocka_unit_test(test_one_lane),      cmocka_unit_test(test_cancelled)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

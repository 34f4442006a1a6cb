/* Long products that grow beyond the range of their type while the gradients do not: on the device that CTest names, against
 * sequential BP in float64. */
#include "tests/scan/scan_problem.h"

/* Recurrent problems whose plain products leave the range of their type: explicit W and column factors, K = 1, last gradient as
 * the seed. */
static problem make_recurrence(bppsa_dtype dtype, int64_t n, int64_t h, int64_t batch, const double *w, const double *d,
                               const double *seed) {
  bppsa_scan_config c = bppsa_scan_config_default();
  c.element = BPPSA_ELEMENT_RECURRENT;
  c.jacobians = n;
  c.dim = h;
  c.batch = batch;
  c.input = true;
  c.dtype = dtype;
  problem p = {.config = c};
  double *wr = bppsa_calloc(h * h, sizeof *wr), *dr = bppsa_calloc(n * batch * h, sizeof *dr);
  p.g = bppsa_calloc((n + 1) * batch * h, sizeof *p.g);
  memcpy(wr, w, (size_t)(h * h) * sizeof *wr);
  memcpy(dr, d, (size_t)(n * batch * h) * sizeof *dr);
  memcpy(p.g + n * batch * h, seed, (size_t)(batch * h) * sizeof *seed);
  p.weights[0] = rounded(dtype, wr, h * h);
  p.columns[0] = rounded(dtype, dr, n * batch * h);
  p.seed = rounded(dtype, p.g, (n + 1) * batch * h);
  p.u = bppsa_calloc(1, sizeof *p.u);
  p.typed_u = bppsa_calloc((n + 1) * batch * h, bppsa_dtype_size(dtype));
  for (int64_t t = n; t >= 1; --t) {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < h; ++i) {
        const double delta = p.g[(t * batch + b) * h + i] * dr[((t - 1) * batch + b) * h + i];
        for (int64_t j = 0; j < h; ++j) {
          p.g[((t - 1) * batch + b) * h + j] += delta * wr[i * h + j];
        }
      }
    }
  }
  bppsa_free(wr);
  bppsa_free(dr);
  return p;
}

/* Every algorithm within residual 30 of float64 at every step; returns the products redone by all of them together. */
static int64_t check_recurrence(const problem *p, double most_allowed) {
  const int64_t n = p->config.jacobians, state = p->config.batch * p->config.dim;
  const int64_t size = (int64_t)bppsa_dtype_size(p->config.dtype);
  bppsa_device *device = test_device(2);
  int64_t redone = 0;
  const bool few = is_emulated(device); /* blelloch, chunked, chunked with 7 */
  for (size_t v = few ? 2 : 0; v < VARIANTS; v += few ? 4 : 1) {
    const bppsa_scan_config c = with_variant(&p->config, v);
    bppsa_scan_plan *plan = NULL;
    bppsa_scan_executor *executor = NULL;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
    char *g = bppsa_calloc((n + 1) * state, (size_t)size);
    assert_non_null(g);
    operand_copies copies = copy_operands(p, device);
    const bppsa_scan_operands operands = operands_of(p, &copies, false);
    assert_int_equal(executor->execute(executor, &operands), BPPSA_OK);
    assert_int_equal(bppsa_memory_get(device, g, copies.gradients, (n + 1) * state * size), BPPSA_OK);
    free_operands(&copies);
    for (int64_t t = 0; t <= n; ++t) {
      double largest = 0;
      for (int64_t i = 0; i < state; ++i) {
        largest = fmax(largest, fabs(p->g[t * state + i]));
      }
      const double r = residual(p->config.dtype, g + t * state * size, p->g + t * state, state, sqrt((double)n));
      if (largest < most_allowed && !(r < 30)) {
        fail_msg("algorithm %d, up-levels %lld, chunks %lld, step %lld: residual %g", (int)c.method.algorithm,
                 (long long)c.method.up_levels, (long long)c.method.chunks, (long long)t, r);
      }
    }
    assert_int_equal(bppsa_scan_executor_count(executor), BPPSA_OK);
    redone += executor->redone;
    bppsa_free(g);
    bppsa_scan_executor_destroy(executor);
    bppsa_scan_plan_destroy(plan);
  }
  bppsa_device_destroy(device);
  return redone;
}

/* 10 units with `factor` · orthogonal weights that no gradient reaches, 10 with orthogonal ones: over 5000 steps plain products
 * grow to factor^2500, and sequential BP stays finite. */
static void check_growing_block(bppsa_dtype dtype, double factor) {
  enum { MOST = 5000, H = 20, B = 3 };
  bppsa_device *device = test_device(1);
  const int64_t n = is_emulated(device) ? 250 : MOST; /* 1.5^240 is beyond f32 as well, 30^240 beyond f64 */
  bppsa_device_destroy(device);
  double *grow = orthogonal(1, 10, factor), *keep = orthogonal(2, 10, 1), *w = bppsa_calloc(H * H, sizeof *w);
  double *d = bppsa_calloc(n * B * H, sizeof *d), *seed = uniform(3, B * H, 1);
  for (int64_t i = 0; i < 10; ++i) {
    memcpy(w + i * H, grow + i * 10, 10 * sizeof *w);
    memcpy(w + (10 + i) * H + 10, keep + i * 10, 10 * sizeof *w);
  }
  for (int64_t i = 0; i < n * B * H; ++i) {
    d[i] = 1;
  }
  for (int64_t i = 0; i < B * H; ++i) {
    seed[i] = i % H < 10 ? 0 : seed[i];
  }
  problem p = make_recurrence(dtype, n, H, B, w, d, seed);
  assert_int_equal(check_recurrence(&p, INFINITY), 0); /* rows have exponents of their own: nothing needs redoing */
  free_problem(&p);
  void *const blocks[] = {grow, keep, w, d, seed};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

static void test_growing_block(void **state) {
  (void)state;
  check_growing_block(BPPSA_F32, 1.5);
  check_growing_block(BPPSA_F64, 30);
}

/* Dense 1.5 · orthogonal weights over activations of a tanh network: wherever float32 BP is finite. */
static void check_dense_growth(double input) {
  enum { MOST = 3000, H = 20, B = 4 };
  bppsa_device *device = test_device(1);
  const int64_t n = is_emulated(device) ? 150 : MOST;
  bppsa_device_destroy(device);
  double *w = orthogonal(4, H, 1.5), *d = bppsa_calloc(n * B * H, sizeof *d), *seed = uniform(5, B * H, 1e-3);
  double *h = uniform(6, B * H, 1), *next = bppsa_calloc(B * H, sizeof *next), *x = uniform(7, n * B, input);
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t i = 0; i < B * H; ++i) {
      double sum = x[t * B + i / H];
      for (int64_t k = 0; k < H; ++k) {
        sum += w[i % H * H + k] * h[i / H * H + k];
      }
      next[i] = tanh(sum);
      d[t * B * H + i] = 1 - next[i] * next[i];
    }
    memcpy(h, next, (size_t)(B * H) * sizeof *h);
  }
  problem p = make_recurrence(BPPSA_F32, n, H, B, w, d, seed);
  (void)check_recurrence(&p, 1e37);
  free_problem(&p);
  void *const blocks[] = {w, d, seed, h, next, x};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

static void test_dense_growth(void **state) {
  (void)state;
  check_dense_growth(0.1);
  check_dense_growth(2);
}

/* A gradient that the growing directions cancel out of: the product is useless, its steps are redone, and counted. apart: the
 * second number is so much larger than the first that the rows of products have powers of two of their own. */
static void check_cancellation(bppsa_dtype dtype, bool apart) {
  enum { N = 200, H = 2, B = 1 };
  /* Eigenvectors (1, f) and (1, -f) of Wᵀ with eigenvalues 1.5 and 1. The seed is the second: BP stays on it without rounding. */
  const double f = apart ? 0x1p40 : 1, w[] = {1.25, 0.25 * f, 0.25 / f, 1.25}, seed[] = {1, -f};
  double *d = bppsa_calloc((int64_t)N * B * H, sizeof *d);
  for (int64_t i = 0; i < N * B * H; ++i) {
    d[i] = 1;
  }
  problem p = make_recurrence(dtype, N, H, B, w, d, seed);
  assert_true(check_recurrence(&p, INFINITY) > 0);
  free_problem(&p);
  bppsa_free(d);
}

static void test_cancellation_is_redone(void **state) {
  (void)state;
  for (int apart = 0; apart < 2; ++apart) {
    check_cancellation(BPPSA_F32, apart == 1);
    check_cancellation(BPPSA_F64, apart == 1);
  }
}

/* All gradients by a variant, as float64. */
static double *gradients_of(const problem *p, size_t variant, const bppsa_device *device) {
  const bppsa_scan_config c = with_variant(&p->config, variant);
  const int64_t count = g_at(p, c.jacobians + 1);
  bppsa_scan_plan *plan = NULL;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  void *typed = run(p, plan, device, false, 1);
  double *wide = bppsa_calloc(count, sizeof *wide);
  const bppsa_view from = bppsa_view_make(typed, c.dtype, 1, &count), to = bppsa_view_make(wide, BPPSA_F64, 1, &count);
  assert_int_equal(bppsa_view_convert(&from, &to), BPPSA_OK);
  bppsa_free(typed);
  bppsa_scan_plan_destroy(plan);
  return wide;
}

/* One number of the gradient leaves the range of its type, and the numbers beside it do not. Whatever the algorithm, every gradient
 * is then what sequential BP has, which is NaN in every other number from the next step on: the product over the step is useless
 * for all numbers, and its steps are redone. (A product of two steps, which has no power of two, may end at that step; all longer
 * ones have one.) */
static void check_overflow(bppsa_dtype dtype) {
  enum { N = 48, H = 5, B = 2, GROWING = 3 };
  const double largest = dtype == BPPSA_F64 ? 1e308 : 3e38;
  double w[H * H] = {0}, seed[B * H], *d = bppsa_calloc((int64_t)N * B * H, sizeof *d);
  for (int64_t i = 0; i < N * B * H; ++i) {
    d[i] = 1;
  }
  for (int64_t i = 0; i < H; ++i) {
    w[i * (H + 1)] = i == GROWING ? 100 : 0.9;
  }
  for (int64_t i = 0; i < B * H; ++i) {
    seed[i] = i % H != GROWING ? 1 : i < H ? largest * pow(100, -12.5) : 0; /* beyond in step 13, of the first sample alone */
  }
  problem p = make_recurrence(dtype, N, H, B, w, d, seed);
  bppsa_device *device = test_device(2);
  double *expected = gradients_of(&p, 1, device); /* the second variant is linear */
  for (int64_t i = 0; i < (N + 1) * B * H; ++i) {
    const int64_t step = N - i / (B * H), number = i % (B * H);
    assert_int_equal(isfinite(expected[i]), step < 13 || number >= H || (step == 13 && number != GROWING));
  }
  for (size_t v = 2; v < VARIANTS; ++v) {
    double *got = gradients_of(&p, v, device);
    for (int64_t i = 0; i < (N + 1) * B * H; ++i) {
      const double x = got[i], y = expected[i];
      if (!((isnan(x) && isnan(y)) || x == y || fabs(x - y) < 1e-4 * fabs(y))) {
        fail_msg("variant %d, step %d, number %d: %g, expected %g", (int)v, (int)(N - i / (B * H)), (int)(i % (B * H)), x, y);
      }
    }
    bppsa_free(got);
  }
  bppsa_free(expected);
  bppsa_device_destroy(device);
  free_problem(&p);
  bppsa_free(d);
}

static void test_overflow_is_redone(void **state) {
  (void)state;
  check_overflow(BPPSA_F32);
  check_overflow(BPPSA_F64);
}

/* Three steps overflow together before anything is rescaled, wherever a chunk begins; a tiny gradient passes through them one by
 * one. */
static void check_step_overflow(bppsa_dtype dtype) {
  enum { H = 2, B = 2, UNIT = 5, GROWING = 3, SHRINKING = 11, PERIOD = UNIT + GROWING + SHRINKING, N = 6 * PERIOD };
  const int shrink = dtype == BPPSA_F64 ? 96 : 12, growth = SHRINKING * shrink / GROWING; /* powers of two a step */
  const double w[] = {0.75, 0.25, 0.25, 0.75}, tiny = ldexp(1, -5 * growth / 2), seed[] = {tiny, tiny, tiny / 2, tiny};
  double *d = bppsa_calloc((int64_t)N * B * H, sizeof *d);
  for (int64_t i = 0; i < N * B * H; ++i) {
    const int64_t at = (N - 1 - i / (B * H)) % PERIOD; /* in the order of the scan */
    d[i] = at < UNIT ? 1 : ldexp(1, at < UNIT + GROWING ? growth : -shrink);
  }
  problem p = make_recurrence(dtype, N, H, B, w, d, seed);
  assert_true(check_recurrence(&p, INFINITY) > 0);
  free_problem(&p);
  bppsa_free(d);
}

static void test_overflow_within_a_product_is_redone(void **state) {
  (void)state;
  check_step_overflow(BPPSA_F32);
  check_step_overflow(BPPSA_F64);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_growing_block), cmocka_unit_test(test_dense_growth),
                                     cmocka_unit_test(test_cancellation_is_redone), cmocka_unit_test(test_overflow_is_redone),
                                     cmocka_unit_test(test_overflow_within_a_product_is_redone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* On the device that CTest names: the first number of a scan's operands that is not finite, for every kind of elements. */
#include "tests/scan/csr_chain.h"
#include "tests/scan/scan_problem.h"

enum { N = 4, PLANTED = 6 };

/* Sets one number of an array in the device's memory. */
static void put(const bppsa_device *device, bppsa_dtype dtype, void *array, int64_t at, double value) {
  const float narrow = (float)value;
  const int64_t size = (int64_t)bppsa_dtype_size(dtype);
  assert_int_equal(bppsa_memory_put(device, (char *)array + at * size, dtype == BPPSA_F32 ? (const void *)&narrow : &value, size),
                   BPPSA_OK);
}

/* Plants a number, which must be found where it is said to be, or not at all if operand is NULL, and takes it out again. */
static void expect(const bppsa_scan_plan *plan, const bppsa_device *device, const bppsa_scan_operands *o, void *array, int64_t at,
                   bppsa_scan_nonfinite expected) {
  static const double bad[] = {NAN, INFINITY, -INFINITY};
  const bppsa_dtype dtype = bppsa_scan_plan_config(plan)->dtype;
  bppsa_scan_nonfinite where = {0};
  for (int i = 0; i < 3; ++i) {
    put(device, dtype, array, at, bad[i]);
    assert_int_equal(bppsa_scan_find_nonfinite(plan, device, o, &where), BPPSA_OK);
    if (expected.operand == NULL) {
      assert_null(where.operand);
      continue;
    }
    assert_non_null(where.operand);
    if (strcmp(where.operand, expected.operand) != 0 || where.index != expected.index || where.step != expected.step ||
        where.sample != expected.sample || where.element != expected.element) {
      fail_msg("%s %lld, step %lld, sample %lld, element %lld instead of %s %lld, step %lld, sample %lld, element %lld",
               where.operand, (long long)where.index, (long long)where.step, (long long)where.sample, (long long)where.element,
               expected.operand, (long long)expected.index, (long long)expected.step, (long long)expected.sample,
               (long long)expected.element);
    }
  }
  put(device, dtype, array, at, 0.5);
  assert_int_equal(bppsa_scan_find_nonfinite(plan, device, o, &where), BPPSA_OK);
  assert_null(where.operand);
}

static uint64_t drawn;

static int64_t draw(int64_t bound) {
  return (int64_t)bppsa_random_below(12, BPPSA_STREAM_TEST, drawn++, (uint64_t)bound);
}

/* Random places of a factor [n][b][width], in steps that are read and, where g_0 is not wanted, in the first, which is not. */
static void expect_steps(const bppsa_scan_plan *plan, const bppsa_device *device, const bppsa_scan_operands *o,
                         const char *operand, int64_t index, void *array, int64_t width) {
  const bppsa_scan_config *c = bppsa_scan_plan_config(plan);
  for (int i = 0; i < PLANTED; ++i) {
    const int64_t step = i == 0 ? 0 : draw(N), sample = draw(c->batch), element = draw(width);
    const bool read = c->input || step > 0;
    expect(plan, device, o, array, (step * c->batch + sample) * width + element,
           (bppsa_scan_nonfinite){read ? operand : NULL, index, step + 1, sample, element});
  }
}

/* Gradients of step t, laid out like g. */
static void expect_gradient(const problem *p, const bppsa_scan_plan *plan, const bppsa_device *device,
                            const bppsa_scan_operands *o, const char *operand, void *array, int64_t t) {
  const int64_t sample = draw(p->config.batch), element = draw(p->dims[t]);
  expect(plan, device, o, array, g_at(p, t) + sample * p->dims[t] + element,
         (bppsa_scan_nonfinite){operand, -1, t, sample, element});
}

static void check_operands(const problem *p, const bppsa_scan_plan *plan, const bppsa_device *device) {
  const bppsa_scan_config *c = &p->config;
  operand_copies copies = copy_operands(p, device);
  const bppsa_scan_operands o = operands_of(p, &copies, false);
  const int64_t h = factor_size(c), row = p->weight_row > 0 ? p->weight_row : h;
  bppsa_scan_nonfinite where = {0};
  assert_int_equal(bppsa_scan_find_nonfinite(plan, device, &o, &where), BPPSA_OK); /* with NaN between rows of weights */
  assert_null(where.operand);
  expect_gradient(p, plan, device, &o, "seed", copies.gradients, N);
  expect_gradient(p, plan, device, &o, NULL, copies.gradients, N - 1);
  for (int64_t t = 0; c->affine && t < N; ++t) {
    expect_gradient(p, plan, device, &o, t > 0 || c->input ? "injected gradient" : NULL, copies.u, t);
  }
  for (int64_t k = 0; k < c->matrices && copies.weights[k] != NULL; ++k) {
    const int64_t r = draw(h), column = draw(h);
    expect(plan, device, &o, copies.weights[k], r * row + column, (bppsa_scan_nonfinite){"weight", k, -1, -1, r * h + column});
  }
  for (int64_t k = 0; k < c->matrices + (c->element == BPPSA_ELEMENT_PAIR) && copies.columns[k] != NULL; ++k) {
    expect_steps(plan, device, &o, "column factor", k, copies.columns[k], h);
  }
  if (c->diagonal) {
    expect_steps(plan, device, &o, "diagonal factor", -1, copies.e, h);
  }
  if (c->element == BPPSA_ELEMENT_DIAGONAL) {
    expect_steps(plan, device, &o, "transposed Jacobian", -1, copies.jt, h);
  }
  for (int64_t t = 1; c->element == BPPSA_ELEMENT_DENSE && t <= N; ++t) {
    const int64_t each = p->dims[t - 1] * p->dims[t], sample = draw(c->batch), element = draw(each);
    expect(plan, device, &o, copies.jt, jt_at(p, t) + sample * each + element,
           (bppsa_scan_nonfinite){t > 1 || c->input ? "transposed Jacobian" : NULL, -1, t, sample, element});
  }
  free_operands(&copies);
}

static void check_element(bppsa_element element, int64_t matrices, bool diagonal, const int64_t *dims) {
  bppsa_device *device = test_device(2);
  for (int bits = 0; bits < 8; ++bits) {
    bppsa_scan_config c = bppsa_scan_config_default();
    bppsa_scan_plan *plan = NULL;
    c.element = element;
    c.matrices = matrices;
    c.diagonal = diagonal;
    c.dims = dims;
    c.dim = dims != NULL ? 0 : 6;
    c.jacobians = N;
    c.batch = 3;
    c.dtype = (bits & 1) != 0 ? BPPSA_F64 : BPPSA_F32;
    c.affine = (bits & 2) != 0;
    c.input = (bits & 4) != 0;
    problem p = make_problem(&c, (uint64_t)bits);
    p.weight_row = (bits & 3) == 0 ? 0 : factor_size(&c) + bits;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    check_operands(&p, plan, device);
    bppsa_scan_plan_destroy(plan);
    free_problem(&p);
  }
  bppsa_device_destroy(device);
}

static void test_elements(void **state) {
  (void)state;
  static const int64_t dims[N + 1] = {3, 5, 2, 7, 4};
  check_element(BPPSA_ELEMENT_DENSE, 1, false, NULL);
  check_element(BPPSA_ELEMENT_DENSE, 1, false, dims);
  check_element(BPPSA_ELEMENT_DIAGONAL, 1, false, NULL);
  check_element(BPPSA_ELEMENT_RECURRENT, 1, false, NULL);
  check_element(BPPSA_ELEMENT_RECURRENT, 3, true, NULL);
  check_element(BPPSA_ELEMENT_PAIR, 4, true, NULL);
}

static void test_sparse(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  for (int round = 0; round < 8; ++round) {
    chain c;
    bppsa_csr_values moved[LONGEST];
    bppsa_scan_plan *plan = NULL;
    make_chain(&c, 3 + round, round % 2 == 0 ? BPPSA_F32 : BPPSA_F64, device);
    bppsa_scan_config config = config_of(&c, BPPSA_SCAN_LINEAR, 0, device);
    config.input = round % 4 < 2;
    assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
    move_values(&c, device, moved);
    const int64_t size = c.offsets[c.n + 1] * c.batch * (int64_t)bppsa_dtype_size(c.dtype);
    void *gradients = on_device(device, c.seed, size);
    const bppsa_scan_operands o = {.batch = c.batch, .values = moved, .gradients = gradients};
    for (int64_t t = 0; t < c.n; ++t) {
      const bool shared = moved[t].stride == 0, read = config.input || t > 0;
      const int64_t sample = shared ? 0 : draw(c.batch);
      if (c.patterns[t]->identity || c.patterns[t]->nnz == 0) {
        continue;
      }
      const int64_t element = draw(c.patterns[t]->nnz);
      expect(plan, device, &o, (void *)(uintptr_t)moved[t].data, sample * moved[t].stride + element,
             (bppsa_scan_nonfinite){read ? "transposed Jacobian" : NULL, -1, t + 1, shared ? -1 : sample, element});
    }
    const int64_t width = c.offsets[c.n + 1] - c.offsets[c.n], sample = draw(c.batch), element = draw(width);
    expect(plan, device, &o, gradients, c.offsets[c.n] * c.batch + sample * width + element,
           (bppsa_scan_nonfinite){"seed", -1, c.n, sample, element});
    bppsa_memory_free(device, gradients);
    free_values(&c, device, moved);
    bppsa_scan_plan_destroy(plan);
    free_chain(&c);
  }
  bppsa_device_destroy(device);
}

/* The order; more numbers than a GPU's copy takes at once; no Jacobian at all; what is refused. */
static void test_order(void **state) {
  (void)state;
  enum { WIDE = 20000 };
  bppsa_device *device = test_device(1);
  bppsa_scan_config c = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_nonfinite where = {.operand = "unchanged"};
  c.element = BPPSA_ELEMENT_DIAGONAL;
  c.jacobians = 2;
  c.dim = WIDE;
  c.input = true;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  float *zeros = bppsa_calloc(3 * WIDE, sizeof *zeros);
  void *jt = on_device(device, zeros, 2 * WIDE * 4), *gradients = on_device(device, zeros, 3 * WIDE * 4);
  bppsa_scan_operands o = {.batch = 1, .jt = jt, .gradients = gradients};
  expect(plan, device, &o, jt, 2 * WIDE - 1, (bppsa_scan_nonfinite){"transposed Jacobian", -1, 2, 0, WIDE - 1});
  put(device, BPPSA_F32, jt, 2 * WIDE - 1, NAN); /* behind the one that is found, and behind the seed */
  put(device, BPPSA_F32, jt, WIDE + 17000, NAN);
  assert_int_equal(bppsa_scan_find_nonfinite(plan, device, &o, &where), BPPSA_OK);
  assert_true(strcmp(where.operand, "transposed Jacobian") == 0 && where.step == 2 && where.element == 17000);
  put(device, BPPSA_F32, gradients, 3 * WIDE - 1, NAN);
  assert_int_equal(bppsa_scan_find_nonfinite(plan, device, &o, &where), BPPSA_OK);
  assert_true(strcmp(where.operand, "seed") == 0 && where.step == 2 && where.element == WIDE - 1);
  o.batch = 2;
  where = (bppsa_scan_nonfinite){.operand = "unchanged"};
  assert_int_equal(bppsa_scan_find_nonfinite(plan, device, &o, &where), BPPSA_ERR_ARGUMENT);
  assert_string_equal(where.operand, "unchanged");
  bppsa_scan_plan_destroy(plan);
  bppsa_memory_free(device, jt);
  bppsa_memory_free(device, gradients);
  bppsa_free(zeros);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_elements), cmocka_unit_test(test_sparse),
                                     cmocka_unit_test(test_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

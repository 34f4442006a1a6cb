/* Scans that run forward, h_t = J_t h_{t-1} + u_t (bppsa_scan_operands.forward), and transposed dense elements: beside the
 * recurrence in float64 over explicit matrices, with every method, with cuts, with u in the memory of h; and who refuses them. */
#include <stdio.h>

#include "scan/transition.h"
#include "tests/core/helpers.h"
#include "tests/scan/scan_problem.h"

static bool shares(const problem *p) {
  return p->config.element == BPPSA_ELEMENT_RECURRENT || p->config.element == BPPSA_ELEMENT_PAIR;
}

/* Replaces W_k by W_kᵀ, with `row` numbers from one row to the next. */
static void turn_weights(problem *p) {
  const int64_t h = factor_size(&p->config);
  const size_t width = bppsa_dtype_size(p->config.dtype);
  for (int64_t k = 0; shares(p) && k < p->config.matrices; ++k) {
    char *turned = bppsa_alloc((size_t)(h * h) * width);
    assert_non_null(turned);
    for (int64_t i = 0; i < h * h; ++i) {
      memcpy(turned + (size_t)i * width, (const char *)p->weights[k] + (size_t)(i % h * h + i / h) * width, width);
    }
    bppsa_free(p->weights[k]);
    p->weights[k] = turned;
  }
}

/* Cuts every fifth pair of a step and a sample: their factors are NaN. */
static void cut_some(problem *p, uint8_t *cuts) {
  const int64_t n = p->config.jacobians, b = p->config.batch, h = factor_size(&p->config), dim = p->config.dim;
  const size_t width = bppsa_dtype_size(p->config.dtype);
  double nothing[1] = {(double)NAN};
  void *nan = rounded(p->config.dtype, nothing, 1);
  for (int64_t i = 2; i < n * b; i += 5) {
    cuts[i] = 1;
    memset(p->jt + i * dim * dim, 0, (size_t)(dim * dim) * sizeof *p->jt);
    for (int64_t j = 0; j < h; ++j) {
      for (int k = 0; k < MOST_COLUMNS; ++k) {
        memcpy(p->columns[k] != NULL ? (char *)p->columns[k] + (size_t)(i * h + j) * width : (char *)nan, nan, width);
      }
      memcpy(p->typed_e != NULL ? (char *)p->typed_e + (size_t)(i * h + j) * width : (char *)nan, nan, width);
    }
  }
  bppsa_free(nan);
}

/* h_0 .. h_n; h_0 is the row of the problem's seed. transposed: J_t stands in the problem's matrices as it is multiplied. */
static double *reference(const problem *p, bool as_stored) {
  const int64_t n = p->config.jacobians, b = p->config.batch, dim = p->config.dim, row = b * dim;
  double *h = bppsa_calloc((n + 1) * row, sizeof *h);
  assert_non_null(h);
  memcpy(h, p->g + n * row, (size_t)row * sizeof *h);
  for (int64_t t = 1; t <= n; ++t) {
    for (int64_t i = 0; i < row; ++i) {
      const double *matrix = p->jt + ((t - 1) * b + i / dim) * dim * dim;
      double sum = p->u[t * row + i];
      for (int64_t c = 0; c < dim; ++c) {
        sum += matrix[as_stored ? i % dim * dim + c : c * dim + i % dim] * h[(t - 1) * row + i / dim * dim + c];
      }
      h[t * row + i] = sum;
    }
  }
  return h;
}

typedef struct {
  const problem *p;
  const uint8_t *cuts; /* NULL: none */
  bool alias, transposed;
} form;

/* Runs it twice with one executor; returns h_0 .. h_n. */
static char *run_forward(const form *f, const bppsa_scan_plan *plan, const bppsa_device *device) {
  const problem *p = f->p;
  const int64_t n = p->config.jacobians, row = p->config.batch * p->config.dim,
                width = (int64_t)bppsa_dtype_size(p->config.dtype);
  bppsa_scan_executor *executor = NULL;
  operand_copies copies = copy_operands(p, device);
  bppsa_scan_operands operands = operands_of(p, &copies, false);
  char *h = copies.gradients, *u = copies.u;
  operands.cuts = f->cuts;
  operands.forward = true;
  operands.transposed = f->transposed;
  operands.injected = !p->config.affine ? NULL : f->alias ? h + row * width : u + row * width;
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  for (int again = 0; again < 2; ++again) {
    memcpy(h, f->alias ? (const char *)p->typed_u : (const char *)p->seed, (size_t)((n + 1) * row * width));
    memcpy(h, (const char *)p->seed + n * row * width, (size_t)(row * width));
    assert_int_equal(executor->execute(executor, &operands), BPPSA_OK);
  }
  char *found = bppsa_alloc((size_t)((n + 1) * row * width));
  assert_non_null(found);
  memcpy(found, h, (size_t)((n + 1) * row * width));
  free_operands(&copies);
  bppsa_scan_executor_destroy(executor);
  return found;
}

static void check_forward(const bppsa_scan_config *base, bool cut, bool transposed, uint64_t seed) {
  bppsa_device *one = cpu_device(1), *three = cpu_device(3);
  problem p = make_problem(base, seed);
  const int64_t n = base->jacobians, row = base->batch * base->dim, size = (int64_t)bppsa_dtype_size(base->dtype);
  uint8_t *cuts = bppsa_calloc(n * base->batch + 1, 1);
  assert_non_null(cuts);
  if (cut) {
    cut_some(&p, cuts);
  }
  turn_weights(&p);
  double *h = reference(&p, !shares(&p) && !transposed);
  for (size_t v = 0; v < VARIANTS; ++v) {
    const bppsa_scan_config c = with_variant(base, v);
    bppsa_scan_plan *plan = NULL;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    const form f = {&p, cut ? cuts : NULL, base->affine && seed % 2 == 0, transposed};
    char *found = run_forward(&f, plan, one), *again = run_forward(&f, plan, three);
    const int64_t rows = c.input ? n + 1 : n; /* the last state only if it is planned */
    assert_memory_equal(found, again, (size_t)(rows * row * size));
    const double r = residual(base->dtype, found, h, rows * row, sqrt((double)(n > 0 ? n : 1)));
    if (!(r < 30)) {
      fail_msg("%s n=%lld dim=%lld: residual %g", bppsa_scan_algorithm_name(bppsa_scan_plan_config(plan)->method.algorithm),
               (long long)n, (long long)base->dim, r);
    }
    bppsa_free(again);
    bppsa_free(found);
    bppsa_scan_plan_destroy(plan);
  }
  bppsa_free(h);
  bppsa_free(cuts);
  free_problem(&p);
  bppsa_device_destroy(one);
  bppsa_device_destroy(three);
}

static void check_element(bppsa_element element, int64_t matrices, bool diagonal, bool transposed) {
  static const int64_t lengths[] = {0, 1, 2, 3, 5, 16, 31, 67}, sizes[] = {1, 2, 5, 20}, batches[] = {1, 3, 17};
  const bool cuts = element == BPPSA_ELEMENT_RECURRENT || element == BPPSA_ELEMENT_PAIR;
  uint64_t seed = 1;
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; ++l) {
    for (int bits = 0; bits < 8; ++bits, ++seed) {
      bppsa_scan_config c = bppsa_scan_config_default();
      c.element = element;
      c.matrices = matrices;
      c.diagonal = diagonal;
      c.dtype = (bits & 1) != 0 ? BPPSA_F64 : BPPSA_F32;
      c.affine = (bits & 2) != 0;
      c.input = (bits & 4) != 0;
      c.jacobians = lengths[l];
      c.dim = sizes[(l + seed) % 4] * (element == BPPSA_ELEMENT_PAIR ? 2 : 1);
      c.batch = batches[seed % 3];
      check_forward(&c, cuts && seed % 3 == 0, transposed, seed);
    }
  }
}

static void test_dense(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_DENSE, 1, false, false);
  check_element(BPPSA_ELEMENT_DENSE, 1, false, true);
}

static void test_diagonal(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_DIAGONAL, 1, false, false);
}

static void test_recurrent(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_RECURRENT, 1, false, false);
  check_element(BPPSA_ELEMENT_RECURRENT, 3, true, false);
}

static void test_pairs(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_PAIR, 1, true, false);
  check_element(BPPSA_ELEMENT_PAIR, 4, true, false);
}

static void test_refusals(void **state) {
  (void)state;
  const int64_t dims[] = {4, 4, 4, 4};
  bppsa_device *device = cpu_device(1);
  bppsa_scan_config c = bppsa_scan_config_default();
  c.jacobians = 3;
  c.dim = 4;
  problem p = make_problem(&c, 3);
  operand_copies copies = copy_operands(&p, device);
  bppsa_scan_operands operands = operands_of(&p, &copies, false);
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  bppsa_scan_nonfinite where;
  operands.forward = true;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_find_nonfinite(plan, device, &operands, &where), BPPSA_ERR_UNSUPPORTED);
  bppsa_scan_plan_destroy(plan);
  c.dims = dims;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  assert_int_equal(executor->execute(executor, &operands), BPPSA_ERR_UNSUPPORTED);
  assert_string_equal(bppsa_last_error(), "scan: forward operands of differing sizes, expected a chain of gradients");
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  c.dims = NULL;
  c.element = BPPSA_ELEMENT_DIAGONAL;
  operands.transposed = true;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  assert_int_equal(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "scan: transposed operands of diagonal elements, expected dense ones");
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  free_operands(&copies);
  free_problem(&p);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dense), cmocka_unit_test(test_diagonal), cmocka_unit_test(test_recurrent),
      cmocka_unit_test(test_pairs), cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

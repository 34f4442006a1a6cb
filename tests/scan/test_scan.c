/* On the device that CTest names: the scan executor against the recurrence g_{t-1} = J_tᵀ g_t + u_{t-1}, written out in float64
 * over explicit matrices. */
#include <stdio.h>

#include "tests/scan/scan_problem.h"

/* Checks all gradients as one tensor, because a single g_t may cancel where injected gradients meet. */
static void check(const problem *p, const bppsa_scan_plan *plan, const bppsa_device *device, bool alias) {
  const int64_t n = p->config.jacobians, width = (int64_t)bppsa_dtype_size(p->config.dtype);
  const int64_t first = g_at(p, p->config.input || n == 0 ? 0 : 1), count = g_at(p, n + 1) - first;
  char *g = run(p, plan, device, alias, 1);
  const double r = residual(p->config.dtype, g + first * width, p->g + first, count, sqrt((double)(n > 0 ? n : 1)));
  if (!(r < 30)) {
    fail_msg("%s n=%lld alias=%d: residual %g", bppsa_scan_algorithm_name(bppsa_scan_plan_config(plan)->method.algorithm),
             (long long)n, alias, r);
  }
  bppsa_free(g);
}

static void check_variants(const bppsa_scan_config *base, const bppsa_device *device, uint64_t seed) {
  problem p = make_problem(base, seed);
  for (size_t v = is_emulated(device) ? seed % 2 : 0; v < VARIANTS; v += is_emulated(device) ? 2 : 1) {
    const bppsa_scan_config c = with_variant(base, v);
    bppsa_scan_plan *plan = NULL;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    check(&p, plan, device, false);
    if (c.affine) {
      check(&p, plan, device, true);
    }
    bppsa_scan_plan_destroy(plan);
  }
  free_problem(&p);
}

static const int64_t lengths[] = {0, 1, 2, 3, 5, 10, 16, 31, 50, 67};

/* A GPU, real or emulated, gets fewer: bench/gpu.sh gives its tests three minutes. */
static void check_element(bppsa_element element, int64_t matrices, bool diagonal) {
  static const int64_t sizes[] = {1, 2, 5, 20}, batches[] = {1, 3, 17};
  bppsa_device *device = test_device(2);
  const bool few = bppsa_device_get_kind(device) == BPPSA_CUDA;
  uint64_t seed = 1;
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; ++l) {
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
      for (int bits = 0; bits < 8; ++bits, ++seed) {
        if (few && ((size_t)bits % 4 != (5 * l + 3 * s) % 4 || (l > 2 && lengths[l] % 26 != 5))) {
          continue; /* lengths 0, 1, 2, 5 and 31 */
        }
        bppsa_scan_config c = bppsa_scan_config_default();
        c.element = element;
        c.matrices = matrices;
        c.diagonal = diagonal;
        c.dtype = (bits & 1) != 0 ? BPPSA_F64 : BPPSA_F32;
        c.affine = (bits & 2) != 0;
        c.input = (bits & 4) != 0;
        c.jacobians = lengths[l];
        c.dim = sizes[s] * (element == BPPSA_ELEMENT_PAIR ? 2 : 1);
        c.batch = batches[few ? seed % 2 : seed % 3];
        check_variants(&c, device, seed);
      }
    }
  }
  bppsa_device_destroy(device);
}

static void test_dense(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_DENSE, 1, false);
}

static void test_diagonal(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_DIAGONAL, 1, false);
}

static void test_recurrent_rnn(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_RECURRENT, 1, false);
}

static void test_recurrent_gru(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_RECURRENT, 3, true);
}

static void test_pairs(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_PAIR, 1, true);
  check_element(BPPSA_ELEMENT_PAIR, 4, true);
}

/* Half a pair, a pair that keeps nothing of c, an operand that is not there. */
static void test_bad_pairs(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_scan_config c = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  c.element = BPPSA_ELEMENT_PAIR;
  c.jacobians = 3;
  c.dim = 5;
  c.diagonal = true;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "scan plan: pairs of size 5, expected an even size and a diagonal");
  c.dim = 4;
  c.diagonal = false;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_ERR_ARGUMENT);
  c.diagonal = true;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  problem p = make_problem(&c, 3);
  operand_copies copies = copy_operands(&p, device);
  bppsa_scan_operands operands = operands_of(&p, &copies, false);
  operands.weight_row = 1;
  assert_int_equal(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "scan: rows of weights 1 elements apart, expected 0 or at least 2");
  operands.weight_row = 0;
  const void *const without[] = {copies.columns[0], NULL};
  operands.columns = without;
  assert_int_equal(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "scan: operand 'the column factor from h to c' is missing");
  free_operands(&copies);
  free_problem(&p);
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
}

/* An element that shares its weights, without one of its operands. */
static void test_missing(void **state) {
  (void)state;
  enum { MATRICES = 2 };
  bppsa_device *device = cpu_device(1);
  bppsa_scan_config c = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  c.element = BPPSA_ELEMENT_RECURRENT;
  c.jacobians = 3;
  c.dim = 4;
  c.matrices = MATRICES;
  c.diagonal = true;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  problem p = make_problem(&c, 3);
  operand_copies copies = copy_operands(&p, device);
  const bppsa_scan_operands whole = operands_of(&p, &copies, false);
  assert_int_equal(executor->execute(executor, &whole), BPPSA_OK);
  for (int missing = 0; missing < 4 + 2 * MATRICES; ++missing) {
    bppsa_scan_operands operands = whole;
    const void *weights[MATRICES], *columns[MATRICES];
    memcpy(weights, whole.weights, sizeof weights);
    memcpy(columns, whole.columns, sizeof columns);
    operands.weights = missing == 0 ? NULL : weights;
    operands.columns = missing == 1 ? NULL : columns;
    operands.diagonal = missing == 2 ? NULL : operands.diagonal;
    operands.gradients = missing == 3 ? NULL : operands.gradients;
    for (int k = 0; k < MATRICES; ++k) {
      weights[k] = missing == 4 + k ? NULL : weights[k];
      columns[k] = missing == 4 + MATRICES + k ? NULL : columns[k];
    }
    static const char *const names[] = {"weights", "columns", "diagonal", "gradients"};
    char expected[64];
    snprintf(expected, sizeof expected, "scan: operand '%s' is missing",
             missing < 4 ? names[missing] : "a weight or column factor");
    assert_int_equal(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT);
    assert_string_equal(bppsa_last_error(), expected);
  }
  free_operands(&copies);
  free_problem(&p);
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
}

static void test_differing_sizes(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  static const int64_t some[] = {3, 8, 1, 5, 2, 9, 4};
  int64_t dims[128];
  for (uint64_t seed = 0; seed < 60; ++seed) {
    bppsa_scan_config c = bppsa_scan_config_default();
    c.dtype = seed % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    c.affine = seed % 3 == 0;
    c.input = seed % 5 < 3;
    c.batch = 1 + (int64_t)(seed % 11);
    c.jacobians = (int64_t)(seed % 23);
    for (int64_t t = 0; t <= c.jacobians; ++t) {
      dims[t] = some[(seed * 5 + (uint64_t)(t * t)) % 7];
    }
    c.dims = dims;
    check_variants(&c, device, seed + 5000);
  }
  bppsa_device_destroy(device);
}

static void test_large_size(void **state) { /* blocks of one sample */
  (void)state;
  bppsa_device *device = test_device(2);
  bppsa_scan_config c = bppsa_scan_config_default();
  c.element = BPPSA_ELEMENT_RECURRENT;
  c.jacobians = 21;
  c.dim = 131;
  c.batch = 3;
  c.affine = c.input = true;
  check_variants(&c, device, 77);
  bppsa_device_destroy(device);
}

/* Weights above 1 MB, of which no strip of rows is held in the first-level cache. */
static void test_large_weights(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  bppsa_scan_config c = bppsa_scan_config_default();
  c.element = BPPSA_ELEMENT_RECURRENT;
  c.dtype = BPPSA_F64;
  c.matrices = 2;
  c.jacobians = 9;
  c.dim = 364; /* 364² · 8 bytes */
  c.batch = 2;
  c.method = (bppsa_scan_method){.algorithm = BPPSA_SCAN_CHUNKED, .up_levels = -1, .chunks = 4};
  if (!is_emulated(device)) {
    problem p = make_problem(&c, 3);
    bppsa_scan_plan *plan = NULL;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    check(&p, plan, device, false);
    bppsa_scan_plan_destroy(plan);
    free_problem(&p);
  }
  bppsa_device_destroy(device);
}

/* The same bits with 1, 2 and 7 threads, and when executed again; a smaller batch gives the same bits as a plan made for it. */
static void test_bits(void **state) {
  (void)state;
  bppsa_device *devices[] = {test_device(1), test_device(2), test_device(7)};
  const bool few = is_emulated(devices[0]);
  for (size_t v = 0; v < VARIANTS; ++v) {
    const bppsa_scan_config base = bppsa_scan_config_default();
    bppsa_scan_config c = with_variant(&base, v);
    c.element = BPPSA_ELEMENT_RECURRENT;
    c.matrices = 2;
    c.diagonal = c.affine = c.input = true;
    c.jacobians = few ? 30 : 100;
    c.dim = few ? 5 : 13;
    c.batch = few ? 2 : 19;
    problem p = make_problem(&c, 9);
    bppsa_scan_plan *plan = NULL, *larger = NULL;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    c.batch = few ? 3 : 30;
    assert_int_equal(bppsa_scan_plan_create(&c, &larger), BPPSA_OK);
    void *first = run(&p, plan, devices[0], false, 1);
    const size_t bytes = (size_t)g_at(&p, c.jacobians + 1) * sizeof(float);
    for (size_t d = 0; d < 3; ++d) {
      void *again = run(&p, d == 1 ? larger : plan, devices[d], false, 2);
      assert_memory_equal(first, again, bytes);
      bppsa_free(again);
    }
    bppsa_free(first);
    bppsa_scan_plan_destroy(plan);
    bppsa_scan_plan_destroy(larger);
    free_problem(&p);
  }
  for (size_t d = 0; d < 3; ++d) {
    bppsa_device_destroy(devices[d]);
  }
}

/* Rows of weights may be at any distance of at least H: the bits are the same, and numbers between the rows are not used. */
static void test_rows_of_weights(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  for (size_t v = 0; v < VARIANTS; ++v) {
    const bppsa_scan_config base = bppsa_scan_config_default();
    bppsa_scan_config c = with_variant(&base, v);
    c.element = BPPSA_ELEMENT_RECURRENT;
    c.dtype = v % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    c.matrices = 2;
    c.diagonal = c.input = true;
    c.jacobians = 20;
    c.dim = 5;
    c.batch = 2;
    problem p = make_problem(&c, 9);
    bppsa_scan_plan *plan = NULL;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    void *packed = run(&p, plan, device, false, 1);
    const int64_t rows[] = {c.dim, bppsa_dtype_padded(c.dtype, c.dim), c.dim + 2};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; ++r) {
      p.weight_row = rows[r];
      void *apart = run(&p, plan, device, false, 1);
      assert_memory_equal(packed, apart, (size_t)g_at(&p, c.jacobians + 1) * bppsa_dtype_size(c.dtype));
      bppsa_free(apart);
    }
    bppsa_free(packed);
    bppsa_scan_plan_destroy(plan);
    free_problem(&p);
  }
  bppsa_device_destroy(device);
}

static void test_rows_too_near(void **state) {
  (void)state;
  bppsa_scan_config c = bppsa_scan_config_default();
  c.element = BPPSA_ELEMENT_RECURRENT;
  c.jacobians = 4;
  c.dim = 5;
  problem p = make_problem(&c, 9);
  bppsa_device *device = test_device(1);
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  operand_copies copies = copy_operands(&p, device);
  bppsa_scan_operands operands = operands_of(&p, &copies, false);
  operands.weight_row = 4;
  assert_int_equal(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "scan: rows of weights 4 elements apart, expected 0 or at least 5");
  free_operands(&copies);
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
  free_problem(&p);
}

static void test_execute_allocates_nothing(void **state) {
  (void)state;
  bppsa_scan_config c = bppsa_scan_config_default();
  c.jacobians = 40;
  c.dim = 6;
  problem p = make_problem(&c, 3);
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  bppsa_device *device = test_device(2);
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  operand_copies copies = copy_operands(&p, device);
  bppsa_scan_operands operands = operands_of(&p, &copies, false);
  bppsa_alloc_fail_at(1);
  const bppsa_status status = executor->execute(executor, &operands);
  const int64_t calls = bppsa_alloc_calls();
  bppsa_alloc_fail_at(0);
  assert_int_equal(status, BPPSA_OK);
  assert_int_equal(calls, 0);
  operands.batch = 2;
  assert_int_equal(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT);
  operands.batch = 1;
  operands.jt = NULL;
  assert_int_equal(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT);
  free_operands(&copies);
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
  free_problem(&p);
}

static void test_allocation_failure(void **state) {
  (void)state;
  const int64_t dims[] = {2, 3, 5, 7, 4, 3, 2, 6};
  bppsa_scan_config c = bppsa_scan_config_default();
  c.jacobians = 7;
  c.dims = dims;
  bppsa_scan_plan *plan = NULL;
  bppsa_device *device = test_device(2);
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  const int64_t live = bppsa_alloc_live();
  /* on a GPU: the executor, the note of its block of GPU memory, the offsets */
  const int64_t calls = bppsa_device_get_kind(device) == BPPSA_CPU ? 11 : 3;
  for (int64_t call = 1; call <= calls + 1; ++call) {
    bppsa_scan_executor *executor = NULL;
    bppsa_alloc_fail_at(call);
    const bppsa_status status = bppsa_scan_executor_create(plan, device, &executor);
    bppsa_alloc_fail_at(0);
    assert_int_equal(status, call <= calls ? BPPSA_ERR_MEMORY : BPPSA_OK);
    bppsa_scan_executor_destroy(executor);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
}

/* Every algorithm of the table is among the variants that these tests execute. */
static void test_every_algorithm(void **state) {
  (void)state;
  for (int a = 0; a < BPPSA_SCAN_ALGORITHMS; ++a) {
    bool executed = strcmp(bppsa_scan_algorithm_name((bppsa_scan_algorithm)a), "unknown") == 0;
    for (size_t v = 0; v < VARIANTS; ++v) {
      executed = executed || (int)variants[v].algorithm == a;
    }
    if (!executed) {
      fail_msg("%s is none of the variants", bppsa_scan_algorithm_name((bppsa_scan_algorithm)a));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dense),
      cmocka_unit_test(test_diagonal),
      cmocka_unit_test(test_recurrent_rnn),
      cmocka_unit_test(test_recurrent_gru),
      cmocka_unit_test(test_pairs),
      cmocka_unit_test(test_bad_pairs),
      cmocka_unit_test(test_missing),
      cmocka_unit_test(test_differing_sizes),
      cmocka_unit_test(test_large_size),
      cmocka_unit_test(test_large_weights),
      cmocka_unit_test(test_every_algorithm),
      cmocka_unit_test(test_bits),
      cmocka_unit_test(test_rows_of_weights),
      cmocka_unit_test(test_rows_too_near),
      cmocka_unit_test(test_execute_allocates_nothing),
      cmocka_unit_test(test_allocation_failure),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

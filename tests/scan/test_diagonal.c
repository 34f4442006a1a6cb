/* On the device that CTest names: long chains of few numbers, which a GPU's warps share. */
#include <math.h>

#include "core/alloc.h"
#include "core/memory.h"
#include "scan/scan.h"
#include "tests/support/support.h"

/* Few numbers and many steps, of which some grow and some shrink so much that parts of the chain exceed the type's range;
 * gradients do not. */
static void test_long_diagonal(void **state) {
  (void)state;
  enum { LONGEST = 300 };
  static const int64_t steps[] = {64, 127, 128, 129, LONGEST};
  bppsa_device *device = test_device(2);
  for (int k = 0; k < 5 * 4; ++k) {
    const bool wide = k % 2 == 1, affine = k % 4 >= 2;
    const int64_t n = steps[k / 4], batch = 1 + k % 3, dim = 1 + k % 2, state_size = batch * dim;
    bppsa_scan_config c = bppsa_scan_config_default();
    c.element = BPPSA_ELEMENT_DIAGONAL;
    c.method.algorithm = BPPSA_SCAN_LINEAR;
    c.dtype = wide ? BPPSA_F64 : BPPSA_F32;
    c.jacobians = n;
    c.batch = batch;
    c.dim = dim;
    c.affine = affine;
    c.input = true;
    double *jt = uniform((uint64_t)k, n * state_size, 1),
           *g = uniform((uint64_t)k + 100, (n + 1) * state_size, wide ? 1e-200 : 1e-25);
    for (int64_t i = 0; i < n * state_size; ++i) { /* the last 45 steps, which come first, grow, the 45 before shrink again, .. */
      jt[i] =
          (jt[i] < 0 ? -1 : 1) * pow(wide ? 1e7 : 10, (n - 1 - i / state_size) / 45 % 2 == 0 ? 1 : -1) * (1 + 1e-3 * fabs(jt[i]));
    }
    void *typed_jt = rounded(c.dtype, jt, n * state_size), *typed_g = rounded(c.dtype, g, (n + 1) * state_size);
    void *on_jt = on_device(device, typed_jt, n * state_size * (int64_t)bppsa_dtype_size(c.dtype));
    void *on_g = on_device(device, typed_g, (n + 1) * state_size * (int64_t)bppsa_dtype_size(c.dtype));
    for (int64_t i = n * state_size - 1; i >= 0; --i) {
      g[i] = jt[i] * g[i + state_size] + (affine ? g[i] : 0);
    }
    bppsa_scan_plan *plan = NULL;
    bppsa_scan_executor *executor = NULL;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
    const bppsa_scan_operands operands = {.batch = batch, .jt = on_jt, .gradients = on_g, .injected = affine ? on_g : NULL};
    assert_int_equal(executor->execute(executor, &operands), BPPSA_OK);
    const int64_t row = state_size * (int64_t)bppsa_dtype_size(c.dtype);
    assert_int_equal(bppsa_memory_get(device, typed_g, on_g, (n + 1) * row), BPPSA_OK);
    for (int64_t t = 0; t <= n; ++t) {
      assert_true(residual(c.dtype, (char *)typed_g + t * row, g + t * state_size, state_size, sqrt((double)n)) < 30);
    }
    bppsa_scan_executor_destroy(executor);
    bppsa_scan_plan_destroy(plan);
    bppsa_memory_free(device, on_jt);
    bppsa_memory_free(device, on_g);
    void *const own[] = {jt, g, typed_jt, typed_g};
    for (size_t i = 0; i < sizeof own / sizeof *own; ++i) {
      bppsa_free(own[i]);
    }
  }
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_diagonal)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

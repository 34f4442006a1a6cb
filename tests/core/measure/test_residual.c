/* Residuals: how far results lie from a reference, in rounding errors. */
#include "core/measure/residual.h"
#include "tests/core/helpers.h"

#include <math.h>

static void test_residual(void **state) {
  (void)state;
  float values[] = {1, 2, 2, 0};
  const double reference[] = {1, 2, 2, 0};
  const bppsa_view view = bppsa_view_make(values, BPPSA_F32, 1, (int64_t[]){4});
  assert_true(bppsa_residual(&view, reference, 4) == 0);
  values[3] = 1e-4f; /* 1e-4 / (3 eps sqrt(4)) */
  assert_true(fabs(bppsa_residual(&view, reference, 4) - 1e-4 / (3 * 1.1920929e-7 * 2)) < 0.01);
  values[3] = NAN;
  assert_true(isinf(bppsa_residual(&view, reference, 4)));
  const double nothing[] = {0, 0, 0, 0};
  const float tiny[] = {1e-37f, 0, 0, 0}; /* absolutely: in units of the smallest normal number */
  memcpy(values, tiny, sizeof values);
  assert_true(fabs(bppsa_residual(&view, nothing, 1) - 1e-37 / 1.17549435e-38) < 1e-3);
}

/* NaN is worse than any number, on either side. */
static void test_worse(void **state) {
  (void)state;
  assert_true(bppsa_residual_worse(1, 2) == 2 && bppsa_residual_worse(2, 1) == 2);
  assert_true(isnan(bppsa_residual_worse(NAN, 1)));
  assert_true(isnan(bppsa_residual_worse(1, NAN)));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_residual), cmocka_unit_test(test_worse)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

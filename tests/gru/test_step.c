/* The factors of a GRU step's Jacobian against differences. */
#include "gru/gru.h"
#include "tests/recurrent/step_differences.h"

static void unit(bool relu, const double *x, const double *h, double before, double next[2]) {
  const double r = sigmoid_of(x[0] + h[0]), z = sigmoid_of(x[1] + h[1]), n = tanh(x[2] + r * h[2]);
  (void)relu;
  next[0] = (1 - z) * n + z * before;
}

static void expected(double by[][2], double *d) {
  for (int k = 0; k < 4; ++k) {
    d[k] = by[k][0];
  }
}

static void test_factors(void **state) {
  (void)state;
  check_step(&bppsa_gru_step, unit, expected, false);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_factors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

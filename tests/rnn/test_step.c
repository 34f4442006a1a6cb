/* The factor of an RNN step's Jacobian against differences. */
#include "rnn/rnn.h"
#include "tests/recurrent/step_differences.h"

static void unit(bool relu, const double *x, const double *h, double before, double next[2]) {
  const double y = x[0] + h[0];
  (void)before;
  next[0] = relu ? fmax(y, 0) : tanh(y);
}

static void expected(double by[][2], double *d) {
  d[0] = by[0][0];
}

static void test_factors(void **state) {
  (void)state;
  check_step(&bppsa_rnn_step, unit, expected, false);
  check_step(&bppsa_rnn_step, unit, expected, true);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_factors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The factors of an LSTM step's Jacobian against differences: of c by the gates i, f and g, of h by o, of c by c_{-1}, and of h by
 * c. */
#include "lstm/lstm.h"
#include "tests/recurrent/step_differences.h"

enum { I, F, G, O, BEFORE };

static void unit(bool relu, const double *x, const double *h, double before, double next[2]) {
  const double c = sigmoid_of(x[F] + h[F]) * before + sigmoid_of(x[I] + h[I]) * tanh(x[G] + h[G]);
  (void)relu;
  next[0] = c;
  next[1] = sigmoid_of(x[O] + h[O]) * tanh(c);
}

static void expected(double by[][2], double *d) {
  d[I] = by[I][0];
  d[F] = by[F][0];
  d[G] = by[G][0];
  d[O] = by[O][1];
  d[BEFORE] = by[BEFORE][0];
  d[BEFORE + 1] = by[BEFORE][1] / by[BEFORE][0];
}

static void test_factors(void **state) {
  (void)state;
  check_step(&bppsa_lstm_step, unit, expected, false);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_factors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

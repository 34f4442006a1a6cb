/* tanh and the logistic function against long double, in units of the last place. */
#include <float.h>
#include <math.h>

#include "core/squash.h"
#include "tests/support/support.h"

/* |found - exact| in units of the last place of `exact`; NaN where it is not one number. */
static double ulps(long double exact, long double found, int digits) {
  const int exponent = exact == 0 ? 0 : ilogbl(exact);
  return (double)(fabsl(found - exact) / ldexpl(1, exponent - digits + 1));
}

enum { POINTS = 400001 };

static void test_accuracy(void **state) {
  (void)state;
  double worst[4] = {0};
  for (int i = 0; i < POINTS; ++i) {
    const double wide = 40 * ((double)i / (POINTS - 1) - 0.5) * ((i & 1) == 0 ? 1 : 1e-3);
    const float single = (float)wide;
    const long double x = single, y = wide;
    const double found[4] = {ulps(tanhl(x), bppsa_squash_tanh_f32(single), FLT_MANT_DIG),
                             ulps(1 / (1 + expl(-x)), bppsa_squash_sigmoid_f32(single), FLT_MANT_DIG),
                             ulps(tanhl(y), bppsa_squash_tanh_f64(wide), DBL_MANT_DIG),
                             ulps(1 / (1 + expl(-y)), bppsa_squash_sigmoid_f64(wide), DBL_MANT_DIG)};
    for (int k = 0; k < 4; ++k) {
      worst[k] = found[k] <= worst[k] ? worst[k] : found[k]; /* NaN stays */
    }
  }
  for (int k = 0; k < 4; ++k) {
    assert_true(worst[k] < 4);
  }
}

static void test_ends(void **state) {
  (void)state;
  assert_true(bppsa_squash_tanh_f32(INFINITY) == 1 && bppsa_squash_tanh_f64(-INFINITY) == -1);
  assert_true(bppsa_squash_sigmoid_f32(INFINITY) == 1 && bppsa_squash_sigmoid_f64(-INFINITY) == 0);
  assert_true(bppsa_squash_tanh_f64(0) == 0 && bppsa_squash_sigmoid_f64(-0.0) == 0.5);
  assert_true(isnan(bppsa_squash_tanh_f32(NAN)) && isnan(bppsa_squash_tanh_f64(NAN)));
  assert_true(isnan(bppsa_squash_sigmoid_f32(NAN)) && isnan(bppsa_squash_sigmoid_f64(NAN)));
  const float tiny = 1e-40f;
  assert_true(bppsa_squash_tanh_f32(tiny) == tiny && bppsa_squash_tanh_f64(-1e-310) == -1e-310);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_accuracy), cmocka_unit_test(test_ends)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

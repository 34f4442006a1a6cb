/* tanh and the logistic function against long double, in units of the last place. */
#include <float.h>
#include <math.h>

#include "core/compute/squash.h"
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

static long double tanh_slope_of(long double x) {
  const long double e = expl(-2 * fabsl(x));
  return 4 * e / ((1 + e) * (1 + e));
}

static long double sigmoid_slope_of(long double x) {
  const long double e = expl(-fabsl(x));
  return e / ((1 + e) * (1 + e));
}

/* The error of a derivative in units of the last place; 0 where the exact one is below the least normal number, and `found` is
 * about as small. */
static double slope_ulps(long double exact, long double found, int digits, long double least) {
  return exact < least ? (found < 2 * least ? 0 : INFINITY) : ulps(exact, found, digits);
}

static void test_slopes(void **state) {
  (void)state;
  double worst[4] = {0};
  for (int i = 0; i < POINTS; ++i) {
    const double wide = 160 * ((double)i / (POINTS - 1) - 0.5) * ((i & 1) == 0 ? 1 : 1e-2);
    const float single = (float)wide;
    const double found[4] = {slope_ulps(tanh_slope_of(single), bppsa_squash_tanh_slope_f32(single), FLT_MANT_DIG, FLT_MIN),
                             slope_ulps(sigmoid_slope_of(single), bppsa_squash_sigmoid_slope_f32(single), FLT_MANT_DIG, FLT_MIN),
                             slope_ulps(tanh_slope_of(wide), bppsa_squash_tanh_slope_f64(wide), DBL_MANT_DIG, DBL_MIN),
                             slope_ulps(sigmoid_slope_of(wide), bppsa_squash_sigmoid_slope_f64(wide), DBL_MANT_DIG, DBL_MIN)};
    for (int k = 0; k < 4; ++k) {
      worst[k] = found[k] <= worst[k] ? worst[k] : found[k]; /* NaN stays */
    }
  }
  for (int k = 0; k < 4; ++k) {
    assert_true(worst[k] < 4);
  }
  const float largest = FLT_MAX;
  assert_true(bppsa_squash_tanh_slope_f32(0) == 1 && bppsa_squash_sigmoid_slope_f64(0) == 0.25);
  assert_true(bppsa_squash_tanh_slope_f32(largest) == 0 && bppsa_squash_tanh_slope_f64(-INFINITY) == 0);
  assert_true(bppsa_squash_sigmoid_slope_f32(INFINITY) == 0 && isnan(bppsa_squash_sigmoid_slope_f64(NAN)));
  assert_true(isnan(bppsa_squash_tanh_slope_f32(NAN)) && isnan(bppsa_squash_minus_tanh_f64(0, NAN)));
}

/* a - tanh(x), and its digits where both are near 1 or -1 */
static void test_difference(void **state) {
  (void)state;
  for (int i = -400; i <= 400; ++i) {
    const double x = i / 10.0, e = exp(-2 * fabs(x)), rest = 2 * e / (1 + e);
    assert_true(fabs(bppsa_squash_minus_tanh_f64(0.25, x) - (0.25 - tanh(x))) < 1e-15);
    if (fabs(x) > 1) {
      assert_true(fabs(bppsa_squash_minus_tanh_f64(x > 0 ? 1 : -1, x) / (x > 0 ? rest : -rest) - 1) < 1e-15);
    }
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_accuracy), cmocka_unit_test(test_slopes),
                                     cmocka_unit_test(test_difference), cmocka_unit_test(test_ends)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Activations against long double: within a few ulp of the larger of the value and of what it is a sum of, far tails included, for
 * both real types. The kernels of every instruction set have the bits of the functions. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/compute/simd.h"
#include "jacobian/kernels.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

static const char *const names[] = {"none", "relu6", "hardsigmoid", "hardswish", "silu", "gelu", "gelu by tanh"};
enum { FIRST = BPPSA_ACTIVATION_RELU6, LAST = BPPSA_ACTIVATION_GELU_TANH };

static long double logistic(long double x) {
  return 1 / (1 + expl(-x));
}

/* f(x), or f'(x) with the largest of its summands in *scale. */
static long double expected(bppsa_activation f, bool slope, long double x, long double *scale) {
  const long double pi = acosl(-1), root = sqrtl(2 / pi), b = 0.044715L, six = x + 3 < 0 ? 0 : x > 3 ? 6 : x + 3;
  const long double twice = 2 * root * (x + b * x * x * x), s = logistic(f == BPPSA_ACTIVATION_SILU ? x : twice);
  const long double t = logistic(-(f == BPPSA_ACTIVATION_SILU ? x : twice)), normal = erfcl(-x / sqrtl(2)) / 2;
  long double a = 0, c = 0;
  switch (f) {
  case BPPSA_ACTIVATION_RELU6:
    a = slope ? (x > 0 && x < 6) : x < 0 ? 0 : x > 6 ? 6 : x;
    break;
  case BPPSA_ACTIVATION_HARDSIGMOID:
    a = slope ? (x > -3 && x < 3) / 6.0L : six / 6;
    break;
  case BPPSA_ACTIVATION_HARDSWISH:
    a = slope ? (x < -3 ? 0 : x >= 3 ? 1 : x / 3) : x * six / 6;
    c = slope && x >= -3 && x < 3 ? 0.5L : 0;
    break;
  case BPPSA_ACTIVATION_SILU:
    a = slope ? s : x * s;
    c = slope ? x * s * t : 0;
    break;
  case BPPSA_ACTIVATION_GELU:
    a = slope ? normal : x * normal;
    c = slope ? x * expl(-x * x / 2) / sqrtl(2 * pi) : 0;
    break;
  default:
    a = slope ? s : x * s;
    c = slope ? x * s * t * 2 * root * (1 + 3 * b * x * x) : 0;
  }
  *scale = fmaxl(fabsl(a), fabsl(c));
  return a + c;
}

/* Errors in ulps: those of e^-y grow with y, the argument's rounding being multiplied.
 * What is below the least normal number may be 0. */
static void check(bppsa_activation f, bool slope, bppsa_dtype dtype, double x) {
  const double eps = dtype == BPPSA_F32 ? FLT_EPSILON : DBL_EPSILON, least = dtype == BPPSA_F32 ? 0x1p-126 : 0x1p-1022;
  double found;
  if (dtype == BPPSA_F32) {
    x = (double)(float)x;
    found = (double)(slope ? bppsa_activation_slope_f32(f, (float)x) : bppsa_activation_value_f32(f, (float)x));
  } else {
    found = slope ? bppsa_activation_slope_f64(f, x) : bppsa_activation_value_f64(f, x);
  }
  long double scale;
  const long double wanted = expected(f, slope, (long double)x, &scale), grown = f == BPPSA_ACTIVATION_GELU ? x * x / 2 : 0;
  const long double steep = f == BPPSA_ACTIVATION_GELU_TANH ? fminl(1500, 4 * fabsl(x) + fabsl(x * x * x) / 5) : 0;
  if (!(fabsl(found - wanted) <= eps * (8 + grown + steep) * scale + 8 * least * (1 + fabs(x * x * x)))) {
    fail_msg("%s%s of %a in %s is %.17g, expected %.17Lg", names[f], slope ? "'" : "", x, bppsa_dtype_name(dtype), found, wanted);
  }
}

static void test_values(void **state) {
  (void)state;
  enum { POINTS = 20000 };
  double *x = uniform(5, POINTS, 1);
  for (int f = FIRST; f <= LAST; ++f) {
    for (int i = 0; i < POINTS; ++i) {
      const double scales[] = {1, 4, 12, 40, 1e-6}, at = x[i] * scales[i % 5];
      for (int slope = 0; slope < 2; ++slope) {
        check((bppsa_activation)f, slope, BPPSA_F32, at);
        check((bppsa_activation)f, slope, BPPSA_F64, at);
      }
    }
  }
  bppsa_free(x);
}

/* Every instruction set gives the bits of the function itself. */
static void test_kernels(void **state) {
  (void)state;
  enum { POINTS = 1003 };
  static const char *const sets[] = {"portable", "avx2", "avx512"};
  double *x = uniform(6, POINTS, 9);
  float narrow[POINTS], found_f32[POINTS];
  double found_f64[POINTS];
  for (int i = 0; i < POINTS; ++i) {
    narrow[i] = (float)x[i];
  }
  for (size_t k = 0; k < sizeof sets / sizeof *sets; ++k) {
    if (bppsa_simd_select(sets[k]) != BPPSA_OK) {
      continue;
    }
    const bppsa_jacobian_kernels *kernels = bppsa_jacobian_kernels_get();
    for (int f = FIRST; f <= LAST; ++f) {
      for (int slope = 0; slope < 2; ++slope) {
        (slope ? kernels->f32.activation_slope : kernels->f32.activation)((bppsa_activation)f, POINTS, narrow, found_f32);
        (slope ? kernels->f64.activation_slope : kernels->f64.activation)((bppsa_activation)f, POINTS, x, found_f64);
        for (int i = 0; i < POINTS; ++i) {
          const float a = slope ? bppsa_activation_slope_f32((bppsa_activation)f, narrow[i])
                                : bppsa_activation_value_f32((bppsa_activation)f, narrow[i]);
          const double b = slope ? bppsa_activation_slope_f64((bppsa_activation)f, x[i])
                                 : bppsa_activation_value_f64((bppsa_activation)f, x[i]);
          assert_memory_equal(&a, &found_f32[i], sizeof a);
          assert_memory_equal(&b, &found_f64[i], sizeof b);
        }
      }
    }
  }
  assert_int_equal(bppsa_simd_select("auto"), BPPSA_OK);
  bppsa_free(x);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_kernels)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

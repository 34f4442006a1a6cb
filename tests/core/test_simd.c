/* The kernels of every instruction set this processor has, against the definition in long double. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/blas.h"
#include "core/simd.h"
#include "tests/support/support.h"

static const char *const names[] = {"portable", "avx2", "avx512"};

/* Runs `check` with every set of kernels that this processor supports; at least the portable one. */
static void with_each(void (*check)(const bppsa_simd *)) {
  int ran = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    const bppsa_status status = bppsa_simd_select(names[i]);
    assert_true(status == BPPSA_OK || (status == BPPSA_ERR_UNSUPPORTED && i > 0));
    if (status == BPPSA_OK) {
      assert_string_equal(bppsa_simd_get()->name, names[i]);
      check(bppsa_simd_get());
      ++ran;
    }
  }
  assert_true(ran >= 1);
  assert_int_equal(bppsa_simd_select("auto"), BPPSA_OK);
}

/* Exact-size arrays: a sanitized build sees every access outside them. */
static void check_gemm_case(const bppsa_simd *kernels, int64_t m, int64_t n, int64_t k, bool columns, bool add, int64_t pad) {
  const int64_t lda = columns ? m + pad : k + pad, a_size = columns ? (k - 1) * lda + m : (m - 1) * lda + k;
  const int64_t ldb = n + pad, b_size = k * ldb, ldc = n + pad, c_size = (m - 1) * ldc + n;
  const int64_t a_row = columns ? 1 : lda, a_step = columns ? lda : 1;
  double *a = uniform(1, a_size > 0 ? a_size : 1, 1), *b = uniform(2, b_size > 0 ? b_size : 1, 1), *c = uniform(3, c_size, 1);
  float *af = rounded(BPPSA_F32, a, a_size), *bf = rounded(BPPSA_F32, b, b_size), *cf = rounded(BPPSA_F32, c, c_size);
  double *cd = bppsa_calloc(c_size, sizeof *cd);
  assert_non_null(cd);
  memcpy(cd, c, (size_t)c_size * sizeof *cd);
  kernels->f32.gemm(m, n, k, af, a_row, a_step, bf, ldb, add ? cf : NULL, ldc, cf, ldc);
  kernels->f64.gemm(m, n, k, a, a_row, a_step, b, ldb, add ? cd : NULL, ldc, cd, ldc);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < ldc && i * ldc + j < c_size; ++j) {
      const int64_t at = i * ldc + j;
      if (j >= n) { /* between the rows nothing is written */
        assert_true(cd[at] == c[at] && cf[at] == (float)c[at]);
        continue;
      }
      long double sum = add ? (long double)c[at] : 0, size = fabsl(sum);
      for (int64_t p = 0; p < k; ++p) {
        const long double term = (long double)a[i * a_row + p * a_step] * (long double)b[p * ldb + j];
        sum += term;
        size += fabsl(term);
      }
      const long double terms = (long double)(k + 2);
      assert_true(fabsl((long double)cf[at] - sum) <= terms * size * (long double)FLT_EPSILON);
      assert_true(fabsl((long double)cd[at] - sum) <= terms * size * (long double)DBL_EPSILON);
    }
  }
  void *const blocks[] = {a, b, c, af, bf, cf, cd};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

static void check_gemm(const bppsa_simd *kernels) {
  static const int64_t ns[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 48, 50, 65};
  static const int64_t ks[] = {1, 2, 20, 67};
  for (int64_t m = 1; m <= 23; ++m) {
    for (size_t n = 0; n < sizeof ns / sizeof *ns; ++n) {
      for (size_t k = 0; k < sizeof ks / sizeof *ks; ++k) {
        const bool odd = (m + (int64_t)n + (int64_t)k) % 2 == 1;
        check_gemm_case(kernels, m, ns[n], ks[k], odd, (m + (int64_t)n) % 3 == 0,
                        m % 4 == 0   ? 3
                        : m % 4 == 1 ? (16 - ns[n] % 16) % 16
                                     : 0);
      }
    }
  }
}

static void test_gemm(void **state) {
  (void)state;
  with_each(check_gemm);
}

static void check_gemm_order(const bppsa_simd *kernels) { /* rows computed together have the bits of rows computed alone */
  enum { M = 27, N = 45, K = 33 };
  double *a = uniform(5, M * K, 1), *b = uniform(6, K * N, 1);
  float *af = rounded(BPPSA_F32, a, M * K), *bf = rounded(BPPSA_F32, b, K * N), together[M * N], alone[M * N];
  kernels->f32.gemm(M, N, K, af, K, 1, bf, N, NULL, 0, together, N);
  for (int64_t i = 0; i < M; ++i) {
    kernels->f32.gemm(1, N, K, af + i * K, K, 1, bf, N, NULL, 0, alone + i * N, N);
  }
  assert_memory_equal(together, alone, sizeof together);
  for (int64_t j = 0; j < N; ++j) { /* and so have columns */
    kernels->f32.gemm(M, 1, K, af, K, 1, bf + j, N, NULL, 0, alone + j, N);
  }
  assert_memory_equal(together, alone, sizeof together);
  bppsa_free(a);
  bppsa_free(b);
  bppsa_free(af);
  bppsa_free(bf);
}

static void test_gemm_order(void **state) {
  (void)state;
  with_each(check_gemm_order);
}

/* |got - exact| in units of the last place of exact. */
static double ulps(double got, long double exact, bool single) {
  const double size = fabs((double)exact);
  const double unit = single ? (double)(nextafterf((float)size, INFINITY) - (float)size) : nextafter(size, INFINITY) - size;
  return (double)(fabsl((long double)got - exact) / (long double)unit);
}

static void check_tanh(const bppsa_simd *kernels) {
  double worst_single = 0, worst = 0;
  for (int64_t i = 0; i < 400000; ++i) {
    const double wide = ((double)i - 200000) * 6e-5;                  /* ±12 */
    const double x = i % 3 == 0 ? ldexp(wide, -(int)(i % 60)) : wide; /* and small ones */
    const float single = (float)x;
    float y;
    double z;
    kernels->f32.tanh(1, &single, &y);
    kernels->f64.tanh(1, &x, &z);
    if (fabsf(single) > 1e-37f) {
      worst_single = fmax(worst_single, ulps((double)y, tanhl((long double)single), true));
    }
    worst = x == 0 ? worst : fmax(worst, ulps(z, tanhl((long double)x), false));
    assert_true(fabsf(y) <= 1 && fabs(z) <= 1);
  }
  assert_true(worst_single <= 4);
  assert_true(worst <= 4);
  /* slope exactly 1 at 0, odd, saturating, NaN kept */
  const float edges[] = {1e-6f, -1e-6f, 0.0f, -0.0f, 50.0f, -50.0f, (float)INFINITY, (float)-INFINITY, (float)NAN, 9.5f, 1e30f};
  const float expected[] = {1e-6f, -1e-6f, 0.0f, -0.0f, 1.0f, -1.0f, 1.0f, -1.0f, (float)NAN, 1.0f, 1.0f};
  const double edges64[] = {1e-9, -1e-9, 0.0, -0.0, 50.0, -50.0, INFINITY, -INFINITY, NAN, 19.5, 1e300};
  const double expected64[] = {1e-9, -1e-9, 0.0, -0.0, 1.0, -1.0, 1.0, -1.0, NAN, 1.0, 1.0};
  enum { EDGES = sizeof edges / sizeof *edges };
  float y[EDGES];
  double z[EDGES];
  kernels->f32.tanh(EDGES, edges, y);
  kernels->f64.tanh(EDGES, edges64, z);
  for (int i = 0; i < EDGES; ++i) {
    assert_true(isnan(expected[i]) ? isnan(y[i]) : y[i] == expected[i] && signbit(y[i]) == signbit(expected[i]));
    assert_true(isnan(expected64[i]) ? isnan(z[i]) : z[i] == expected64[i] && signbit(z[i]) == signbit(expected64[i]));
  }
  /* the position in a vector does not matter */
  double *x = uniform(9, 67, 3);
  float *xf = rounded(BPPSA_F32, x, 67), all[67], one;
  kernels->f32.tanh(67, xf, all);
  for (int i = 0; i < 67; ++i) {
    kernels->f32.tanh(1, xf + i, &one);
    assert_true(one == all[i]);
  }
  bppsa_free(x);
  bppsa_free(xf);
}

static void test_tanh(void **state) {
  (void)state;
  with_each(check_tanh);
}

static void check_elementwise(const bppsa_simd *kernels) {
  for (int64_t count = 1; count <= 70; ++count) {
    double *a = uniform(11, count, 1), *b = uniform(12, count, 1), *y = uniform(13, count, 1);
    float *af = rounded(BPPSA_F32, a, count), *bf = rounded(BPPSA_F32, b, count), *yf = bppsa_calloc(count, sizeof *yf);
    double *yd = bppsa_calloc(count, sizeof *yd);
    for (int64_t period = 1; period <= 16; period *= 2) {
      if (count < period) {
        break;
      }
      for (int add = 0; add < 2; ++add) {
        for (int64_t i = 0; i < count; ++i) {
          yd[i] = y[i];
          yf[i] = (float)y[i];
        }
        kernels->f32.mul_periodic(count, period, af, bf, add == 1, yf);
        kernels->f64.mul_periodic(count, period, a, b, add == 1, yd);
        for (int64_t i = 0; i < count; ++i) {
          const double exact = a[i] * b[i % period] + (add == 1 ? y[i] : 0);
          assert_true(fabs((double)yf[i] - exact) < 1e-6 && fabs(yd[i] - exact) < 1e-15);
        }
      }
    }
    kernels->f32.mul(count, af, bf, false, yf);
    kernels->f64.mul(count, a, b, false, yd);
    kernels->f64.mul(count, a, b, true, yd);
    for (int64_t i = 0; i < count; ++i) {
      assert_true(fabs((double)yf[i] - a[i] * b[i]) < 1e-7 && fabs(yd[i] - 2 * a[i] * b[i]) < 1e-15);
    }
    kernels->f32.tanh_slope(count, af, yf);
    kernels->f64.tanh_delta(count, a, b, yd);
    for (int64_t i = 0; i < count; ++i) {
      assert_true(fabs((double)yf[i] - (1 - a[i] * a[i])) < 1e-6 && fabs(yd[i] - (1 - a[i] * a[i]) * b[i]) < 1e-15);
    }
    void *const blocks[] = {a, b, y, af, bf, yf, yd};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
      bppsa_free(blocks[i]);
    }
  }
}

static void test_elementwise(void **state) {
  (void)state;
  with_each(check_elementwise);
}

/* Large products go to CBLAS; both ways agree. */
static void test_matmul(void **state) {
  (void)state;
  enum { M = 9, N = 600, K = 500 };
  assert_int_equal(bppsa_blas_start(), BPPSA_OK); /* one thread inside BLAS, as every device sees to */
  double *a = uniform(21, M * K, 1), *b = uniform(22, K * N, 1), *c = bppsa_calloc(M * N, sizeof *c),
         *d = bppsa_calloc(M * N, sizeof *d);
  double *at = bppsa_calloc(M * K, sizeof *at);
  for (int64_t i = 0; i < M; ++i) {
    for (int64_t p = 0; p < K; ++p) {
      at[p * M + i] = a[i * K + p];
    }
  }
  bppsa_simd_get()->f64.gemm(M, N, K, a, K, 1, b, N, NULL, 0, c, N);
  bppsa_matmul_f64(M, N, K, a, K, 1, b, N, NULL, 0, d, N);
  bppsa_matmul_f64(M, N, K, at, 1, M, b, N, d, N, d, N);
  for (int64_t i = 0; i < M * N; ++i) {
    assert_true(fabs(2 * c[i] - d[i]) < 1e-11);
  }
  bppsa_matmul_f64(M, N, K, a, K, 1, b, N, b, 0, d, N); /* b's first row as a bias, large and small */
  bppsa_matmul_f64(M, 5, K, a, K, 1, b, N, b, 0, c, N);
  for (int64_t i = 0; i < M; ++i) {
    for (int64_t j = 0; j < 5; ++j) {
      assert_true(fabs(c[i * N + j] - d[i * N + j]) < 1e-11);
    }
  }
  void *const blocks[] = {a, b, c, d, at};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

static void test_select(void **state) {
  (void)state;
  const char *before = bppsa_simd_get()->name;
  assert_int_equal(bppsa_simd_select("sse9"), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_simd_get()->name, before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gemm),        cmocka_unit_test(test_gemm_order), cmocka_unit_test(test_tanh),
      cmocka_unit_test(test_elementwise), cmocka_unit_test(test_matmul),     cmocka_unit_test(test_select),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The kernels of every instruction set this processor has, against the definition in long double. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/blas.h"
#include "core/compute/matmul.h"
#include "core/compute/simd.h"
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

/* The arrays have exactly the needed size, so that a sanitized build sees every access outside them. */
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
      if (j >= n) { /* padding between rows is not written */
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

/* Rows of one vector and a few columns more, which tiles may compute by fours: each has the bits of the row alone, whatever begins
 * the sums. B has padded rows or none, A rows or columns. */
static void check_gemm_ends_case(const bppsa_simd *kernels, int64_t m, int64_t n, int64_t k, bool columns, int64_t init_row) {
  const int64_t ldb = columns ? n : (n + 15) / 16 * 16, a_row = columns ? 1 : k, a_step = columns ? m : 1;
  double *a = uniform(1, m * k, 1), *b = uniform(2, k * ldb, 1), *c = uniform(3, m * n, 1);
  float *af = rounded(BPPSA_F32, a, m * k), *bf = rounded(BPPSA_F32, b, k * ldb), *init = rounded(BPPSA_F32, c, m * n),
        *together = rounded(BPPSA_F32, c, m * n), *alone = rounded(BPPSA_F32, c, m * n);
  const bool none = init_row < 0;
  kernels->f32.gemm(m, n, k, af, a_row, a_step, bf, ldb, none ? NULL : init_row == n ? together : init, init_row, together, n);
  for (int64_t i = 0; i < m; ++i) {
    kernels->f32.gemm(1, n, k, af + i * a_row, 0, a_step, bf, ldb, none ? NULL : init + i * init_row, init_row, alone + i * n, n);
  }
  assert_memory_equal(together, alone, (size_t)(m * n) * sizeof *alone);
  void *const blocks[] = {a, b, c, af, bf, init, together, alone};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

static void check_gemm_ends(const bppsa_simd *kernels) {
  static const int64_t ms[] = {4, 8, 11, 16, 20, 23, 41, 60}, ks[] = {1, 3, 4, 6, 20, 60, 191, 192, 193};
  for (size_t m = 0; m < sizeof ms / sizeof *ms; ++m) {
    for (int64_t n = 16; n <= 21; ++n) {
      for (size_t k = 0; k < sizeof ks / sizeof *ks; ++k) {
        for (int form = 0; form < 6; ++form) {
          check_gemm_ends_case(kernels, ms[m], n, ks[k], form % 2 == 1, (const int64_t[]){-1, 0, n}[form / 2]);
        }
      }
    }
  }
}

static void test_gemm_ends(void **state) {
  (void)state;
  with_each(check_gemm_ends);
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
  /* The result does not depend on the position in a vector. */
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

static long double exact_sigmoid(long double x) {
  return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}

static void check_sigmoid(const bppsa_simd *kernels) {
  double worst_single = 0, worst = 0;
  for (int64_t i = 0; i < 400000; ++i) {
    const double x = ((double)i - 200000) * (i % 2 == 0 ? 4.3e-4 : 1e-5); /* ±86 and ±2 */
    const float single = (float)x;
    float y;
    double z;
    kernels->f32.sigmoid(1, &single, &y);
    kernels->f64.sigmoid(1, &x, &z);
    worst_single = fmax(worst_single, ulps((double)y, exact_sigmoid((long double)single), true));
    worst = fmax(worst, ulps(z, exact_sigmoid((long double)x), false));
  }
  assert_true(worst_single <= 4);
  assert_true(worst <= 4);
  const double wide[] = {-700, -300, 300, 700};
  for (size_t i = 0; i < sizeof wide / sizeof *wide; ++i) {
    double z;
    kernels->f64.sigmoid(1, wide + i, &z);
    assert_true(ulps(z, exact_sigmoid((long double)wide[i]), false) <= 4);
  }
  const float edges[] = {0.0f, -0.0f, 100.0f, -100.0f, 1e30f, -1e30f, (float)INFINITY, (float)-INFINITY, (float)NAN};
  const double edges64[] = {0.0, -0.0, 800.0, -800.0, 1e300, -1e300, INFINITY, -INFINITY, NAN};
  const double expected[] = {0.5, 0.5, 1, 0, 1, 0, 1, 0, NAN};
  enum { EDGES = sizeof edges / sizeof *edges };
  float y[EDGES];
  double z[EDGES];
  kernels->f32.sigmoid(EDGES, edges, y);
  kernels->f64.sigmoid(EDGES, edges64, z);
  for (int i = 0; i < EDGES; ++i) {
    assert_true(isnan(expected[i]) ? isnan(y[i]) && isnan(z[i]) : (double)y[i] == expected[i] && z[i] == expected[i]);
  }
}

static void test_sigmoid(void **state) {
  (void)state;
  with_each(check_sigmoid);
}

static void check_decay(const bppsa_simd *kernels) {
  double worst_single = 0, worst = 0;
  for (int64_t i = 0; i < 200000; ++i) {
    const double x = (double)i * (i % 2 == 0 ? 4.3e-4 : 1e-5); /* 0 .. 86 and 0 .. 2 */
    const float single = (float)x;
    float y;
    double z;
    kernels->f32.decay(1, &single, &y);
    kernels->f64.decay(1, &x, &z);
    worst_single = fmax(worst_single, ulps((double)y, expl(-(long double)single), true));
    worst = fmax(worst, ulps(z, expl(-(long double)x), false));
  }
  assert_true(worst_single <= 2);
  assert_true(worst <= 2);
  const float edges[] = {0.0f, 1e-30f, 89.0f, 1e30f, (float)INFINITY, (float)NAN};
  const double edges64[] = {0.0, 1e-300, 710.0, 1e300, INFINITY, NAN}, expected[] = {1, 1, 0, 0, 0, NAN};
  enum { EDGES = sizeof edges / sizeof *edges };
  float y[EDGES];
  double z[EDGES];
  kernels->f32.decay(EDGES, edges, y);
  kernels->f64.decay(EDGES, edges64, z);
  for (int i = 0; i < EDGES; ++i) {
    assert_true(isnan(expected[i]) ? isnan(y[i]) && isnan(z[i]) : (double)y[i] == expected[i] && z[i] == expected[i]);
  }
  const double wide[] = {300, 700};
  for (size_t i = 0; i < sizeof wide / sizeof *wide; ++i) {
    double w;
    kernels->f64.decay(1, wide + i, &w);
    assert_true(ulps(w, expl(-(long double)wide[i]), false) <= 2);
  }
}

static void test_decay(void **state) {
  (void)state;
  with_each(check_decay);
}

static void check_elementwise(const bppsa_simd *kernels) {
  for (int64_t count = 1; count <= 70; ++count) {
    double *a = uniform(11, count, 1), *b = uniform(12, count, 1), *y = uniform(13, count, 1);
    float *af = rounded(BPPSA_F32, a, count), *bf = rounded(BPPSA_F32, b, count), *yf = bppsa_calloc(count, sizeof *yf);
    double *yd = bppsa_calloc(count, sizeof *yd);
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

/* Columns multiplied by a pattern of one cache line: alone, added, and on the way into a product. */
static void check_lines(const bppsa_simd *kernels) {
  enum { ROWS = 13, K = 7, MOST = 70, F32_LINE = 16, F64_LINE = 8 };
  double *a = uniform(31, ROWS * K, 1), *b = uniform(32, K * MOST, 1), *d = uniform(33, K * F32_LINE, 1),
         *c = bppsa_calloc(ROWS * MOST, sizeof *c), *scaled = bppsa_calloc(K * MOST, sizeof *scaled);
  float *af = rounded(BPPSA_F32, a, ROWS * K), *bf = rounded(BPPSA_F32, b, K * MOST), *df = rounded(BPPSA_F32, d, K * F32_LINE),
        *cf = bppsa_calloc(ROWS * MOST, sizeof *cf), *sf = bppsa_calloc(K * MOST, sizeof *sf);
  for (int64_t n = 1; n <= MOST; ++n) { /* a is [K][ROWS] */
    kernels->f32.mul_lines(K, n, bf, MOST, df, false, sf, n);
    kernels->f64.mul_lines(K, n, b, MOST, d, false, scaled, n);
    kernels->f32.mul_lines(K, n, bf, MOST, df, true, sf, n);
    kernels->f64.mul_lines(K, n, b, MOST, d, true, scaled, n);
    kernels->f32.gemm_scaled(ROWS, n, K, af, ROWS, bf, MOST, df, cf, MOST, cf, MOST); /* accumulates over n */
    kernels->f64.gemm_scaled(ROWS, n, K, a, ROWS, b, MOST, d, NULL, 0, c, MOST);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t p = 0; p < K; ++p) {
        assert_true(fabs((double)sf[p * n + j] - 2 * b[p * MOST + j] * d[p * F32_LINE + j % F32_LINE]) < 1e-6);
        assert_true(fabs(scaled[p * n + j] - 2 * b[p * MOST + j] * d[p * F64_LINE + j % F64_LINE]) < 1e-15);
      }
      for (int64_t i = 0; i < ROWS; ++i) {
        double single = 0, sum = 0;
        for (int64_t p = 0; p < K; ++p) {
          single += a[p * ROWS + i] * b[p * MOST + j] * d[p * F32_LINE + j % F32_LINE];
          sum += a[p * ROWS + i] * b[p * MOST + j] * d[p * F64_LINE + j % F64_LINE];
        }
        assert_true(fabs((double)cf[i * MOST + j] - (double)(n - j) * single) < 1e-3);
        assert_true(fabs(c[i * MOST + j] - sum) < 1e-14);
      }
    }
  }
  void *const blocks[] = {a, b, d, c, scaled, af, bf, df, cf, sf};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

static void test_lines(void **state) {
  (void)state;
  with_each(check_lines);
}

/* Every element arrives, and nothing around the result is touched. */
static void check_transpose(const bppsa_simd *kernels) {
  enum { MOST = 35 };
  float in[MOST * MOST], out[MOST * MOST];
  double wide_in[MOST * MOST], wide_out[MOST * MOST];
  for (int i = 0; i < MOST * MOST; ++i) {
    in[i] = (float)i + 1;
    wide_in[i] = i + 1;
  }
  for (int64_t rows = 1; rows < MOST; ++rows) {
    for (int64_t columns = 1; columns < MOST; ++columns) {
      memset(out, 0, sizeof out);
      memset(wide_out, 0, sizeof wide_out);
      kernels->f32.transpose(rows, columns, in, MOST, out, MOST);
      kernels->f64.transpose(rows, columns, wide_in, MOST, wide_out, MOST);
      for (int64_t i = 0; i < MOST; ++i) {
        for (int64_t j = 0; j < MOST; ++j) {
          const double expected = i < columns && j < rows ? wide_in[j * MOST + i] : 0;
          assert_true((double)out[i * MOST + j] == expected && wide_out[i * MOST + j] == expected);
        }
      }
    }
  }
}

static void test_transpose(void **state) {
  (void)state;
  with_each(check_transpose);
}

/* column_largest ignores NaN, row_largest keeps it. */
static void check_largest(const bppsa_simd *kernels) {
  enum { ROWS = 5, N = 37 };
  double *x = uniform(41, ROWS * N, 3), rows[ROWS], columns[N];
  float *xf = rounded(BPPSA_F32, x, ROWS * N), rows_f[ROWS], columns_f[N];
  x[2 * N + 3] = NAN;
  xf[2 * N + 3] = (float)NAN;
  kernels->f32.column_largest(ROWS, N, xf, N, columns_f);
  kernels->f64.column_largest(ROWS, N, x, N, columns);
  kernels->f32.row_largest(ROWS, N, xf, rows_f);
  kernels->f64.row_largest(ROWS, N, x, rows);
  for (int j = 0; j < N; ++j) {
    double most = 0, most_f = 0;
    for (int r = 0; r < ROWS; ++r) {
      most = fmax(most, fabs(x[r * N + j])); /* passes NaN over, too */
      most_f = fmax(most_f, fabs((double)xf[r * N + j]));
    }
    assert_true(columns[j] == most && (double)columns_f[j] == most_f);
  }
  for (int r = 0; r < ROWS; ++r) {
    double most = 0;
    for (int j = 0; j < N; ++j) {
      most = fmax(most, fabs(x[r * N + j]));
    }
    assert_true(r == 2 ? isnan(rows[r]) && isnan(rows_f[r]) : rows[r] == most);
  }
  kernels->f32.column_largest(0, N, xf, N, columns_f);
  assert_true(columns_f[0] == 0 && columns_f[N - 1] == 0);
  bppsa_free(x);
  bppsa_free(xf);
}

/* The peak is a rate of FLOPs that no product can exceed. */
static void check_peak(const bppsa_simd *kernels) {
  float single = 1;
  double wide = 1;
  const int64_t flops = kernels->f32.multiply_adds(10, &single);
  assert_true(flops > 0 && flops == 2 * kernels->f64.multiply_adds(10, &wide));
  double expected = 0; /* Σ over 12 chains of x -> 0.999 x + 1, from 1 .. 12 */
  for (int chain = 1; chain <= 12; ++chain) {
    double x = chain;
    for (int r = 0; r < 10; ++r) {
      x = x * 0.999 + 1;
    }
    expected += x;
  }
  assert_true(fabs((double)single - expected) < 1e-3 && fabs(wide - expected) < 1e-10);
}

static void test_peak(void **state) {
  (void)state;
  with_each(check_peak);
}

static void test_largest(void **state) {
  (void)state;
  with_each(check_largest);
}

static void test_elementwise(void **state) {
  (void)state;
  with_each(check_elementwise);
}

/* Large products go to CBLAS; both ways agree. */
static void test_matmul(void **state) {
  (void)state;
  enum { M = 9, N = 600, K = 500 };
  assert_int_equal(bppsa_blas_hold(), BPPSA_OK); /* one thread inside BLAS, as every device has it */
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
      cmocka_unit_test(test_gemm),        cmocka_unit_test(test_gemm_order), cmocka_unit_test(test_gemm_ends),
      cmocka_unit_test(test_tanh),        cmocka_unit_test(test_sigmoid),    cmocka_unit_test(test_decay),
      cmocka_unit_test(test_elementwise), cmocka_unit_test(test_lines),      cmocka_unit_test(test_transpose),
      cmocka_unit_test(test_largest),     cmocka_unit_test(test_peak),       cmocka_unit_test(test_matmul),
      cmocka_unit_test(test_select),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

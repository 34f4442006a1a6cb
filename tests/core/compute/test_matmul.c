/* Products of every instruction set that this processor has, whole and in panels, against three loops in float64. */
#include "core/compute/matmul.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/simd.h"
#include "tests/support/dice.h"
#include "tests/support/support.h"

static const char *const names[] = {"portable", "avx2", "avx512"};

typedef struct {
  int64_t m, n, k;
  int64_t gap; /* numbers behind each row of C, which stay as they are */
  int start;   /* init: none, one row as a bias, or C itself */
  bool columns, transposed;
} product;

enum { NONE, BIAS, ADD };

/* The factors as f32 numbers, which f64 holds exactly. */
typedef struct {
  double *a, *b, *c; /* A [m,k], B [k,n], C [m, n + gap] */
  float *af, *bf, *cf;
  double *at, *bt; /* Aᵀ, Bᵀ */
  float *atf, *btf;
} numbers;

static void *turned(bppsa_dtype dtype, const double *from, int64_t rows, int64_t columns) {
  double *to = bppsa_calloc(rows * columns, sizeof *to);
  for (int64_t i = 0; i < rows * columns; ++i) {
    to[i % columns * rows + i / columns] = from[i];
  }
  void *made = rounded(dtype, to, rows * columns);
  bppsa_free(to);
  return made;
}

static numbers make(const product *p) {
  numbers x = {.a = uniform(1, p->m * p->k, 1), .b = uniform(2, p->k * p->n, 1), .c = uniform(3, p->m * (p->n + p->gap), 1)};
  x.af = rounded(BPPSA_F32, x.a, p->m * p->k);
  x.bf = rounded(BPPSA_F32, x.b, p->k * p->n);
  x.cf = rounded(BPPSA_F32, x.c, p->m * (p->n + p->gap));
  x.at = turned(BPPSA_F64, x.a, p->m, p->k);
  x.bt = turned(BPPSA_F64, x.b, p->k, p->n);
  x.atf = turned(BPPSA_F32, x.a, p->m, p->k);
  x.btf = turned(BPPSA_F32, x.b, p->k, p->n);
  return x;
}

static void drop(numbers *x) {
  void *const blocks[] = {x->a, x->b, x->c, x->af, x->bf, x->cf, x->at, x->bt, x->atf, x->btf};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

/* Checks C [m, n + gap] after a product, whose C was x->c before it. */
static void check(const product *p, const numbers *x, bppsa_dtype dtype, const void *got, const char *what) {
  const int64_t row = p->n + p->gap;
  const double eps = dtype == BPPSA_F32 ? (double)FLT_EPSILON : DBL_EPSILON;
  for (int64_t i = 0; i < p->m * row; ++i) {
    const double found = dtype == BPPSA_F32 ? (double)((const float *)got)[i] : ((const double *)got)[i];
    const int64_t r = i / row, j = i % row;
    double sum = j >= p->n || p->start == ADD ? x->c[i] : p->start == BIAS ? x->c[j] : 0, size = fabs(sum);
    for (int64_t q = 0; j < p->n && q < p->k; ++q) {
      sum += x->a[r * p->k + q] * x->b[q * p->n + j];
      size += fabs(x->a[r * p->k + q] * x->b[q * p->n + j]);
    }
    if (!(fabs(found - sum) <= (j < p->n ? 4 * sqrt((double)p->k + 1) * eps * size : 0))) {
      fail_msg("%s, %s: C(%d, %d) of %d x %d x %d is %g, expected %g", what, bppsa_simd_get()->name, (int)r, (int)j, (int)p->m,
               (int)p->n, (int)p->k, found, sum);
    }
  }
}

/* Computes the product in panels, on so many threads, into a copy of C. */
static void *by_panels(const product *p, const numbers *x, bppsa_dtype dtype, int32_t threads) {
  const int64_t row = p->n + p->gap, size = (int64_t)bppsa_dtype_size(dtype);
  const int64_t a_row = p->columns ? 1 : p->k, a_step = p->columns ? p->m : 1;
  const int64_t b_row = p->transposed ? 1 : p->n, b_step = p->transposed ? p->k : 1;
  void *panels = bppsa_calloc(bppsa_panels_bytes(p->k, p->n, size), 1), *c = bppsa_calloc(p->m * row, (size_t)size);
  assert_true(panels != NULL && c != NULL);
  memcpy(c, dtype == BPPSA_F32 ? (void *)x->cf : x->c, (size_t)(p->m * row * size));
  if (dtype == BPPSA_F32) {
    const float *init = p->start == NONE ? NULL : p->start == BIAS ? x->cf : c, *a = p->columns ? x->atf : x->af;
    bppsa_panels_pack_f32(threads, p->k, p->n, p->transposed ? x->btf : x->bf, b_row, b_step, panels);
    bppsa_panels_multiply_f32(threads, p->m, p->n, p->k, a, a_row, a_step, panels, init, p->start == BIAS ? 0 : row, c, row);
  } else {
    const double *init = p->start == NONE ? NULL : p->start == BIAS ? x->c : c, *a = p->columns ? x->at : x->a;
    bppsa_panels_pack_f64(threads, p->k, p->n, p->transposed ? x->bt : x->b, b_row, b_step, panels);
    bppsa_panels_multiply_f64(threads, p->m, p->n, p->k, a, a_row, a_step, panels, init, p->start == BIAS ? 0 : row, c, row);
  }
  bppsa_free(panels);
  return c;
}

static void *whole(const product *p, const numbers *x, bppsa_dtype dtype) {
  const int64_t row = p->n + p->gap, size = (int64_t)bppsa_dtype_size(dtype);
  const int64_t a_row = p->columns ? 1 : p->k, a_step = p->columns ? p->m : 1, init_row = p->start == BIAS ? 0 : row;
  void *c = bppsa_calloc(p->m * row, (size_t)size);
  assert_non_null(c);
  memcpy(c, dtype == BPPSA_F32 ? (void *)x->cf : x->c, (size_t)(p->m * row * size));
  if (dtype == BPPSA_F32) {
    const float *init = p->start == NONE ? NULL : p->start == BIAS ? x->cf : c;
    bppsa_matmul_f32(p->m, p->n, p->k, p->columns ? x->atf : x->af, a_row, a_step, x->bf, p->n, init, init_row, c, row);
  } else {
    const double *init = p->start == NONE ? NULL : p->start == BIAS ? x->c : c;
    bppsa_matmul_f64(p->m, p->n, p->k, p->columns ? x->at : x->a, a_row, a_step, x->b, p->n, init, init_row, c, row);
  }
  return c;
}

static void check_product(const product *p, bppsa_dtype dtype) {
  numbers x = make(p);
  const size_t bytes = (size_t)(p->m * (p->n + p->gap)) * bppsa_dtype_size(dtype);
  void *first = by_panels(p, &x, dtype, 1), *same = whole(p, &x, dtype);
  check(p, &x, dtype, first, "panels");
  check(p, &x, dtype, same, "whole");
  assert_memory_equal(first, same, bytes);
  for (int32_t threads = 2; threads <= 3; ++threads) {
    void *again = by_panels(p, &x, dtype, threads);
    assert_memory_equal(first, again, bytes);
    bppsa_free(again);
  }
  product one = *p; /* a row alone has the bits that it has beside others */
  one.m = 1;
  one.columns = false;
  void *alone = by_panels(&one, &x, dtype, 1);
  assert_memory_equal(first, alone, (size_t)p->n * bppsa_dtype_size(dtype));
  bppsa_free(first);
  bppsa_free(same);
  bppsa_free(alone);
  drop(&x);
}

static void check_products(void) {
  /* columns around a panel's width, depths around its length, rows around a block; large enough for copies (matmul.c) */
  static const product edges[] = {
      {1, 1, 1, 0, NONE, false, false},      {7, 31, 128, 1, ADD, true, true},     {96, 33, 129, 0, BIAS, false, true},
      {97, 17, 257, 3, ADD, false, false},   {193, 129, 300, 2, ADD, true, true},  {64, 128, 256, 0, NONE, true, false},
      {100, 515, 70, 5, BIAS, false, false}, {65, 64, 513, 0, ADD, true, true},    {2, 119, 260, 1, ADD, false, true},
      {3, 201, 129, 0, BIAS, false, false},  {300, 70, 300, 1, ADD, false, false}, {50, 140, 530, 0, ADD, false, false},
      {100, 300, 256, 0, NONE, true, false}, {4, 260, 270, 2, BIAS, true, true}};
  dice d = {.seed = 11};
  for (size_t i = 0; i < sizeof edges / sizeof *edges; ++i) {
    check_product(&edges[i], BPPSA_F32);
    check_product(&edges[i], BPPSA_F64);
  }
  for (int i = 0; i < 30; ++i) {
    const product p = {.m = roll(&d, 1, i % 3 == 0 ? 200 : 9),
                       .n = roll(&d, 1, 200),
                       .k = roll(&d, 1, i % 2 == 0 ? 300 : 20),
                       .gap = roll(&d, 0, 3),
                       .start = (int)roll(&d, NONE, ADD),
                       .columns = roll(&d, 0, 1) == 1,
                       .transposed = roll(&d, 0, 1) == 1};
    check_product(&p, i % 2 == 0 ? BPPSA_F32 : BPPSA_F64);
  }
}

static void test_products(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    const bppsa_status status = bppsa_simd_select(names[i]);
    assert_true(status == BPPSA_OK || (status == BPPSA_ERR_UNSUPPORTED && i > 0));
    if (status == BPPSA_OK) {
      check_products();
    }
  }
  assert_int_equal(bppsa_simd_select("auto"), BPPSA_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_products)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* y = x Wᵀ + b and its gradients against loops, to the bit: all numbers are small integers, whose sums are exact in any order. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/linear.h"
#include "core/compute/matmul.h"
#include "tests/support/length.h"
#include "tests/support/support.h"

typedef struct {
  bppsa_linear l;
  double *x, *w, *bias, *dy; /* [rows][in], [out][in], [out], [rows][out] */
} problem;

/* count integers in -3 .. 3. */
static double *integers(uint64_t seed, int64_t count) {
  double *numbers = uniform(seed, count, 3.49);
  for (int64_t i = 0; i < count; ++i) {
    numbers[i] = (double)(int64_t)(numbers[i] < 0 ? numbers[i] - 0.5 : numbers[i] + 0.5);
  }
  return numbers;
}

static problem make_problem(const bppsa_linear *l, uint64_t seed) {
  return (problem){*l, integers(seed, l->rows * l->in), integers(seed + 1, l->out * l->in), integers(seed + 2, l->out),
                   integers(seed + 3, l->rows * l->out)};
}

static void free_problem(problem *p) {
  bppsa_free(p->x);
  bppsa_free(p->w);
  bppsa_free(p->bias);
  bppsa_free(p->dy);
}

/* Zeroes in the dtype, and one number more, by which writes beyond the end are seen. */
static void *room(bppsa_dtype dtype, int64_t count) {
  void *numbers = bppsa_calloc(count + 1, bppsa_dtype_size(dtype));
  assert_non_null(numbers);
  return numbers;
}

static void expect(const problem *p, const char *what, const void *got, const double *expected, int64_t count) {
  for (int64_t i = 0; i <= count; ++i) {
    const double number = p->l.dtype == BPPSA_F32 ? (double)((const float *)got)[i] : ((const double *)got)[i];
    const double wanted = i < count ? expected[i] : 0;
    if (number != wanted) {
      fail_msg("%s of %s, %d rows, %d to %d, unit %d, run %d, block %d: number %d is %g, expected %g", what,
               bppsa_dtype_name(p->l.dtype), (int)p->l.rows, (int)p->l.in, (int)p->l.out, (int)p->l.unit, (int)p->l.run,
               (int)p->l.block, (int)i, number, wanted);
    }
  }
}

/* to [m][n] = start (a row of n, or NULL) + left [m][k] right [k][n], by strides of left and right. */
static double *product(int64_t m, int64_t n, int64_t k, const double *left, int64_t row, int64_t column, const double *right,
                       int64_t right_row, int64_t right_column, const double *start) {
  double *to = bppsa_calloc(m * n + 1, sizeof *to);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      to[i * n + j] = start != NULL ? start[j] : 0;
      for (int64_t q = 0; q < k; ++q) {
        to[i * n + j] += left[i * row + q * column] * right[q * right_row + j * right_column];
      }
    }
  }
  return to;
}

/* Forward, with and without a bias, and dx. */
static void check_rows(const problem *p) {
  const bppsa_linear *l = &p->l;
  void *x = rounded(l->dtype, p->x, l->rows * l->in), *w = rounded(l->dtype, p->w, l->out * l->in);
  void *bias = rounded(l->dtype, p->bias, l->out), *dy = rounded(l->dtype, p->dy, l->rows * l->out);
  void *wt = room(l->dtype, l->out * l->in), *y = room(l->dtype, l->rows * l->out), *dx = room(l->dtype, l->rows * l->in);
  bppsa_linear_transpose(l, w, wt, l->out);
  for (int biased = 0; biased < 2; ++biased) {
    double *expected = product(l->rows, l->out, l->in, p->x, l->in, 1, p->w, 1, l->in, biased ? p->bias : NULL);
    bppsa_linear_forward(l, x, wt, biased ? bias : NULL, y);
    expect(p, "forward", y, expected, l->rows * l->out);
    bppsa_free(expected);
  }
  double *expected = product(l->rows, l->in, l->out, p->dy, l->out, 1, p->w, l->in, 1, NULL);
  bppsa_linear_input_gradient(l, dy, w, dx);
  expect(p, "dx", dx, expected, l->rows * l->in);
  bppsa_free(expected);
  void *const all[] = {x, w, bias, dy, wt, y, dx};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) {
    bppsa_free(all[i]);
  }
}

/* Parts cover the rows in whole units. */
static void check_cut(const bppsa_linear *l) {
  const bppsa_linear_cut cut = bppsa_linear_cut_rows(l);
  assert_true(cut.length >= 1 && cut.length % l->unit == 0 && cut.parts >= 1 && cut.parts <= 64);
  assert_true(cut.parts * cut.length >= l->rows && (cut.parts - 1) * cut.length < l->rows);
}

/* dw and db at once; by parts, one at a time; by runs of three units; and both again with sums in dw's own memory, runs in panels.
 * db begins behind an output. */
static void check_weights(const problem *p) {
  enum { AT_ONCE, WITHOUT_DB, PARTS, RUNS, PARTS_IN_PLACE, RUNS_IN_PLACE, WAYS };
  bppsa_linear of = p->l;
  const bppsa_linear *l = &of;
  const int64_t run = 3 * l->unit, size = (int64_t)bppsa_dtype_size(l->dtype);
  const bppsa_linear_cut cut = bppsa_linear_cut_rows(l);
  void *x = rounded(l->dtype, p->x, l->rows * l->in), *dy = rounded(l->dtype, p->dy, l->rows * l->out);
  const char *x_bytes = x, *dy_bytes = dy;
  void *workspace = bppsa_alloc((size_t)bppsa_linear_workspace(l)),
       *panels = bppsa_alloc((size_t)bppsa_panels_bytes(run, l->in, size));
  double *ones = bppsa_calloc(l->rows, sizeof *ones);
  for (int64_t r = 0; r < l->rows; ++r) {
    ones[r] = 1;
  }
  double *dw = product(l->out, l->in, l->rows, p->dy, 1, l->out, p->x, l->in, 1, NULL);
  double *db = product(1, l->out, l->rows, ones, 0, 1, p->dy, l->out, 1, NULL);
  for (int way = AT_ONCE; way < WAYS; ++way) {
    void *got_dw = room(l->dtype, l->out * l->in), *got_db = room(l->dtype, l->out);
    const bool parts = way == PARTS || way == PARTS_IN_PLACE;
    const int64_t bias_from = parts && l->out > 1 ? l->out / 2 : 0;
    memset(workspace, 0x7f, (size_t)bppsa_linear_workspace(l));
    of.dw = way >= PARTS_IN_PLACE ? got_dw : NULL;
    of.panels = way == RUNS_IN_PLACE ? panels : NULL;
    if (way <= WITHOUT_DB) {
      bppsa_linear_weight_gradient(l, dy, x, got_dw, way == AT_ONCE ? got_db : NULL, workspace);
    } else {
      for (int64_t part = cut.parts - 1; part >= 0; --part) {
        const int64_t first = part * cut.length, left = l->rows - first, rows = left < cut.length ? left : cut.length;
        if (parts) {
          bppsa_linear_sum_parts(l, part, 1, dy_bytes + first * l->out * size, x_bytes + first * l->in * size, bias_from,
                                 workspace);
          continue;
        }
        for (int64_t r = (rows - 1) / run * run; r >= 0; r -= run) {
          bppsa_linear_sum_run(l, part, rows, r, rows - r < run ? rows - r : run, dy_bytes + (first + r) * l->out * size,
                               x_bytes + (first + r) * l->in * size, 0, workspace);
        }
      }
      bppsa_linear_finish(l, got_dw, got_db, workspace);
    }
    expect(p, "dw", got_dw, dw, l->out * l->in);
    if (way != WITHOUT_DB) { /* without a db nothing is written */
      expect(p, "db", (char *)got_db + bias_from * size, db + bias_from, l->out - bias_from);
    }
    bppsa_free(got_dw);
    bppsa_free(got_db);
  }
  void *const all[] = {x, dy, workspace, panels, ones, dw, db};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) {
    bppsa_free(all[i]);
  }
}

static void check(const bppsa_linear *l) {
  problem p = make_problem(l, (uint64_t)(l->rows + 1000 * l->in + 100000 * l->out));
  check_rows(&p);
  check_cut(l);
  check_weights(&p);
  free_problem(&p);
}

/* Rows around the size of a block, of a unit and of a run; layers narrower and wider than a tile of 64 outputs. */
static void shapes(void **state) {
  (void)state;
  static const int64_t rows[] = {1, 2, 63, 255, 256, 257, 513, 770}, widths[] = {1, 3, 17, 64, 65, 130};
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r += at_full_length() ? 1 : 3) {
    for (size_t in = 0; in < sizeof widths / sizeof widths[0]; ++in) {
      for (size_t out = 0; out < sizeof widths / sizeof widths[0]; ++out) {
        const bool few = rows[r] < 256;
        check(&(bppsa_linear){.dtype = (r + in + out) % 2 == 0 ? BPPSA_F32 : BPPSA_F64,
                              .threads = 1 + (int32_t)(in % 3),
                              .rows = rows[r],
                              .in = widths[in],
                              .out = widths[out],
                              .unit = few ? 1 : 1 + (int64_t)((in + out) % 5),
                              .run = out % 2 == 0 ? 0 : 20,
                              .block = in % 2 == 0 ? 0 : 1 + (int64_t)(r % 3) * 16});
      }
    }
  }
}

/* Every number of rows around a task's block of 4. */
static void blocks(void **state) {
  (void)state;
  for (int64_t rows = 1; rows <= 17; ++rows) {
    check(&(bppsa_linear){.dtype = BPPSA_F64, .threads = 2, .rows = rows, .in = 3, .out = 5, .unit = 1, .block = 4});
  }
}

/* So many numbers that BLAS multiplies them, and a workspace whose size no 64 bits hold. */
static void large(void **state) {
  (void)state;
  check(&(bppsa_linear){.dtype = BPPSA_F32, .threads = 2, .rows = 530, .in = 260, .out = 300, .unit = 2});
  check(&(bppsa_linear){.dtype = BPPSA_F64, .threads = 2, .rows = 1100, .in = 40, .out = 4100, .unit = 1}); /* 65 tiles */
  for (int32_t threads = 1; threads <= 3; ++threads) { /* runs of 90 rows that are packed into panels */
    check(&(bppsa_linear){.dtype = threads == 2 ? BPPSA_F64 : BPPSA_F32,
                          .threads = threads,
                          .rows = 200,
                          .in = 97 + 20 * threads,
                          .out = 400,
                          .unit = 30});
  }
  const bppsa_linear beyond = {.dtype = BPPSA_F64, .threads = 1, .rows = 1, .in = INT64_MAX / 4, .out = 8, .unit = 1};
  assert_int_equal(bppsa_linear_workspace(&beyond), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shapes), cmocka_unit_test(blocks), cmocka_unit_test(large)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

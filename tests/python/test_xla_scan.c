/* python/xla_scan.c by frames as XLA makes them: both directions, transposes, diagonals, several scans in a call, no steps, what is
 * refused, and memory that fails. */
#include "python/xla_scan.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/alloc.h"
#include "tests/python/xla_frame.h"
#include "tests/support/support.h"

enum { T = 9, B = 2, H = 3, E = 3, MOST = E * (T + 1) * B * H * H };

typedef struct {
  int64_t diagonal, affine, reverse, transposed;
  int64_t steps;
  int64_t members[4]; /* of a, b, h0 and the result: 0: no axis for several scans */
  const char *method;
  double data[4][MOST];
  bppsa_xla_buffer buffers[4];
  int64_t dims[4][5];
} problem;

static void set_shapes(problem *p) {
  const int64_t shapes[4][5] = {{p->steps, B, H, H}, {p->steps, B, H}, {B, H}, {p->steps + 1, B, H}};
  const int64_t ranks[4] = {p->diagonal ? 3 : 4, 3, 2, 3};
  for (int k = 0; k < 4; ++k) {
    const bool axis = p->members[k] > 0;
    p->dims[k][0] = p->members[k];
    memcpy(p->dims[k] + axis, shapes[k], 4 * sizeof(int64_t));
    p->buffers[k] = (bppsa_xla_buffer){.size = sizeof(bppsa_xla_buffer),
                                       .dtype = BPPSA_XLA_F64,
                                       .data = p->data[k],
                                       .rank = ranks[k] + axis,
                                       .dims = p->dims[k]};
  }
}

static problem *make_problem(int64_t steps) {
  problem *p = calloc(1, sizeof *p);
  assert_non_null(p);
  for (int k = 0; k < 4; ++k) {
    for (int i = 0; i < MOST; ++i) {
      p->data[k][i] = sin(1.0 + k * 131 + i * 17) * 0.7;
    }
  }
  p->steps = steps;
  p->affine = 1;
  p->method = "linear";
  set_shapes(p);
  return p;
}

static int32_t call(problem *p) {
  xla_attributes attributes = {.count = 0};
  xla_buffers arguments = {.count = 0}, results = {.count = 0};
  xla_add_word(&attributes, "method", p->method);
  xla_add_number(&attributes, "diagonal", p->diagonal);
  xla_add_number(&attributes, "affine", p->affine);
  xla_add_number(&attributes, "reverse", p->reverse);
  xla_add_number(&attributes, "transposed", p->transposed);
  xla_add_number(&attributes, "threads", 2);
  for (int k = 0; k < 3; ++k) {
    if (k != 1 || p->affine) {
      xla_add_buffer(&arguments, &p->buffers[k]);
    }
  }
  xla_add_buffer(&results, &p->buffers[3]);
  return xla_call(bppsa_python_xla_scan, &attributes, &arguments, &results);
}

/* The part of an array for a scan. */
static const double *part(const problem *p, int which, int64_t member, int64_t count) {
  return p->data[which] + (p->members[which] > 0 ? member * count : 0);
}

/* The recurrence, written out. */
static void expect_states(const problem *p, int64_t member) {
  const int64_t width = p->diagonal ? 1 : H, row = (int64_t)B * H;
  const double *a = part(p, 0, member, p->steps * row * width), *b = part(p, 1, member, p->steps * row),
               *begin = part(p, 2, member, row), *found = part(p, 3, member, (p->steps + 1) * row);
  double now[B * H], next[B * H];
  memcpy(now, begin, sizeof now);
  for (int64_t step = 0; step <= p->steps; ++step) {
    const double *states = found + (p->reverse ? p->steps - step : step) * row;
    for (int64_t i = 0; i < row; ++i) {
      assert_true(fabs(states[i] - now[i]) < 1e-12);
    }
    const int64_t t = p->reverse ? p->steps - 1 - step : step;
    for (int64_t i = 0; step < p->steps && i < row; ++i) {
      const double *matrix = a + (t * row + i / H * H) * H;
      double sum = p->affine ? b[t * row + i] : 0;
      for (int64_t k = 0; !p->diagonal && k < H; ++k) {
        sum += matrix[p->transposed ? k * H + i % H : i % H * H + k] * now[i / H * H + k];
      }
      next[i] = p->diagonal ? sum + a[t * row + i] * now[i] : sum;
    }
    memcpy(now, next, sizeof now);
  }
}

static void test_forms(void **state) {
  (void)state;
  const char *const methods[] = {"auto", "linear", "blelloch", "chunked 3"};
  for (int bits = 0; bits < 64; ++bits) {
    problem *p = make_problem(bits % 3 == 0 ? T : bits % 3);
    p->diagonal = bits & 1;
    p->affine = bits >> 1 & 1;
    p->reverse = bits >> 2 & 1;
    p->transposed = (bits >> 3 & 1) && !p->diagonal;
    p->method = methods[bits >> 4];
    set_shapes(p);
    assert_int_equal(call(p), 0);
    expect_states(p, 0);
    free(p);
  }
}

/* Several scans in a call, of which some arrays are one for all. */
static void test_members(void **state) {
  (void)state;
  for (int bits = 1; bits < 8; ++bits) {
    problem *p = make_problem(T);
    for (int k = 0; k < 3; ++k) {
      p->members[k] = bits >> k & 1 ? E : 0;
    }
    p->members[3] = E;
    p->reverse = bits % 2;
    set_shapes(p);
    assert_int_equal(call(p), 0);
    for (int64_t member = 0; member < E; ++member) {
      expect_states(p, member);
    }
    free(p);
  }
}

static void test_refusals(void **state) {
  (void)state;
  problem *p = make_problem(T);
  p->method = "fast";
  assert_int_equal(call(p), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "bppsa.jax: scan, fast: "));
  p->method = "linear";
  p->dims[1][0] = T - 1;
  assert_int_equal(call(p), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "b: axis 0 has 8, expected T = 9"));
  set_shapes(p);
  p->buffers[2].dtype = BPPSA_XLA_F32;
  assert_int_equal(call(p), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "h0: type 11 with 2 axes, expected type 12 with 2 axes"));
  set_shapes(p);
  p->buffers[0].dtype = BPPSA_XLA_S32;
  assert_int_equal(call(p), BPPSA_XLA_INVALID_ARGUMENT);
  p->members[1] = E;
  set_shapes(p);
  assert_int_equal(call(p), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "result: 1 scans, expected 3"));
  p->members[2] = E - 1;
  set_shapes(p);
  assert_int_equal(call(p), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "h0: 2 scans, expected 3"));
  p->members[1] = p->members[2] = 0;
  set_shapes(p);
  p->dims[0][3] = H + 1;
  assert_int_equal(call(p), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "a: axis 3 has 4, expected H = 3"));
  set_shapes(p);
  assert_int_equal(call(p), 0);
  free(p);
}

/* Memory that fails: an error each time, nothing stays, and the next call succeeds. */
static void test_memory(void **state) {
  (void)state;
  problem *p = make_problem(T);
  p->method = "blelloch";
  assert_int_equal(call(p), 0);
  const int64_t live = bppsa_alloc_live();
  for (int64_t k = 1;; ++k) {
    bppsa_alloc_fail_at(k);
    const int32_t code = call(p);
    bppsa_alloc_fail_at(0);
    assert_int_equal(bppsa_alloc_live(), live);
    if (code == 0) {
      assert_true(k > 3);
      break;
    }
    assert_int_equal(code, BPPSA_XLA_RESOURCE_EXHAUSTED);
  }
  expect_states(p, 0);
  free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_members),
                                     cmocka_unit_test(test_refusals), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

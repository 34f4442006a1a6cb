/* bppsa_scan, a scan in one call: every shape, type and method beside the recurrence in float64, on the device that CTest names;
 * what it refuses; out of memory at every allocation. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "scan/one_call.h"
#include "tests/support/support.h"

/* Arrays of a call on a device, and what is expected of it. */
typedef struct {
  const bppsa_device *device;
  bppsa_dtype dtype;
  int64_t steps, batch, size;
  bool diagonal;
  bppsa_view jt, u, g;
  double *expected; /* [steps + 1][batch][size] */
} call;

static bppsa_view placed(const call *c, double *numbers, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make(NULL, c->dtype, ndim, shape);
  const int64_t count = bppsa_view_count(&view);
  void *typed = rounded(c->dtype, numbers, count);
  view.data = on_device(c->device, typed, count * (int64_t)bppsa_dtype_size(c->dtype));
  view.device = bppsa_device_get_kind(c->device);
  bppsa_free(typed);
  return view;
}

static void expect(call *c, const double *jt, const double *u, const double *seed) {
  const int64_t size = c->size, state = c->batch * size;
  c->expected = bppsa_calloc((c->steps + 1) * state, sizeof *c->expected);
  memcpy(c->expected + c->steps * state, seed, (size_t)state * sizeof *seed);
  for (int64_t i = c->steps * state - 1; i >= 0; --i) {
    const double *next = c->expected + (i / size) * size + state;
    double sum = u != NULL ? u[i] : 0;
    for (int64_t j = 0; j < size; ++j) {
      sum += c->diagonal ? (j == i % size ? jt[i] * next[j] : 0) : jt[i * size + j] * next[j];
    }
    c->expected[i] = sum;
  }
}

static call open_call(const bppsa_device *device, bppsa_dtype dtype, int64_t steps, int64_t batch, int64_t size, bool diagonal,
                      bool affine, uint64_t seed) {
  call c = {.device = device, .dtype = dtype, .steps = steps, .batch = batch, .size = size, .diagonal = diagonal};
  const int64_t state = batch * size, square[] = {steps, batch, size, size}, states[] = {steps + 1, batch, size};
  double *jt = uniform(seed, steps * state * (diagonal ? 1 : size) + 1, diagonal ? 1 : sqrt(3. / (double)size)),
         *u = uniform(seed + 1, steps * state + 1, 1), *g = uniform(seed + 2, (steps + 1) * state, 1);
  c.jt = placed(&c, jt, diagonal ? 3 : 4, square);
  if (affine) {
    c.u = placed(&c, u, 3, square);
  }
  c.g = placed(&c, g, 3, states);
  expect(&c, jt, affine ? u : NULL, g + steps * state); /* of the rounded numbers */
  bppsa_free(jt);
  bppsa_free(u);
  bppsa_free(g);
  return c;
}

static void close_call(call *c) {
  bppsa_memory_free(c->device, c->jt.data);
  bppsa_memory_free(c->device, c->u.data);
  bppsa_memory_free(c->device, c->g.data);
  bppsa_free(c->expected);
}

static void check_result(const call *c) {
  const int64_t count = bppsa_view_count(&c->g), bytes = count * (int64_t)bppsa_dtype_size(c->dtype);
  void *found = bppsa_alloc((size_t)bytes);
  assert_int_equal(bppsa_memory_get(c->device, found, c->g.data, bytes), BPPSA_OK);
  const double r = residual(c->dtype, found, c->expected, count, sqrt((double)c->steps + 1));
  assert_true(r < 30);
  bppsa_free(found);
}

static void test_shapes(void **state) {
  (void)state;
  static const bppsa_scan_algorithm algorithms[] = {BPPSA_SCAN_AUTO, BPPSA_SCAN_LINEAR, BPPSA_SCAN_BLELLOCH, BPPSA_SCAN_CHUNKED};
  static const int64_t steps[] = {0, 1, 2, 5, 21, 64};
  bppsa_device *device = test_device(2);
  for (int k = 0; k < 6 * 5 * 8; ++k) {
    call c = open_call(device, k % 2 == 0 ? BPPSA_F64 : BPPSA_F32, steps[k / 8 % 6], 1 + k % 3, 1 + k % 7, k / 2 % 2 == 0,
                       k / 4 % 2 == 0, (uint64_t)k);
    const int a = k / 8 / 6;
    const bppsa_scan_method method = a > 0 ? bppsa_scan_method_of(algorithms[a - 1]) : (bppsa_scan_method){0};
    assert_int_equal(bppsa_scan(device, &c.jt, c.u.data != NULL ? &c.u : NULL, &c.g, a > 0 ? &method : NULL), BPPSA_OK);
    check_result(&c);
    close_call(&c);
  }
  bppsa_device_destroy(device);
}

/* u may lie where the gradients will. */
static void test_in_place(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  call c = open_call(device, BPPSA_F64, 9, 2, 3, false, true, 7);
  const int64_t bytes = bppsa_view_count(&c.u) * (int64_t)sizeof(double);
  void *injected = bppsa_alloc((size_t)bytes);
  assert_int_equal(bppsa_memory_get(device, injected, c.u.data, bytes), BPPSA_OK);
  assert_int_equal(bppsa_memory_put(device, c.g.data, injected, bytes), BPPSA_OK);
  bppsa_view u = c.u;
  u.data = c.g.data;
  assert_int_equal(bppsa_scan(device, &c.jt, &u, &c.g, NULL), BPPSA_OK);
  check_result(&c);
  bppsa_free(injected);
  close_call(&c);
  bppsa_device_destroy(device);
}

static void refuse(const call *c, const bppsa_view *jt, const bppsa_view *u, const bppsa_view *g, bppsa_status expected,
                   const char *message) {
  assert_int_equal(bppsa_scan(c->device, jt, u, g, NULL), expected);
  assert_string_equal(bppsa_last_error(), message);
}

static void test_refused(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  call c = open_call(device, BPPSA_F64, 4, 2, 3, false, true, 1);
  bppsa_view v = c.jt;
  v.shape[3] = 2;
  refuse(&c, &v, &c.u, &c.g, BPPSA_ERR_SHAPE, "jt: shape [4, 2, 3, 2], expected [T, B, H, H] = [4, 2, 3, 3]");
  v = c.jt;
  v.ndim = 2;
  refuse(&c, &v, &c.u, &c.g, BPPSA_ERR_SHAPE, "jt: f64 [4, 2], expected f32 or f64 [T, B, H, H], or [T, B, H] for diagonals");
  v = c.u;
  v.shape[0] = 5;
  refuse(&c, &c.jt, &v, &c.g, BPPSA_ERR_SHAPE, "u: shape [5, 2, 3], expected [T, B, H] = [4, 2, 3]");
  v = c.g;
  v.shape[0] = 4;
  refuse(&c, &c.jt, &c.u, &v, BPPSA_ERR_SHAPE, "g: shape [4, 2, 3], expected [T+1, B, H] = [5, 2, 3]");
  v = c.g;
  v.dtype = BPPSA_F32;
  refuse(&c, &c.jt, &c.u, &v, BPPSA_ERR_SHAPE, "g: f32, expected f64 as jt");
  v = c.g;
  v.strides[0] += 1;
  refuse(&c, &c.jt, &c.u, &v, BPPSA_ERR_SHAPE, "g: with gaps between its numbers, expected row-major without gaps");
  v = c.g;
  v.device = v.device == BPPSA_CPU ? BPPSA_CUDA : BPPSA_CPU;
  assert_int_equal(bppsa_scan(device, &c.jt, &c.u, &v, NULL), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "g: an array of another device, expected one in the memory of "));
  v = c.g;
  v.data = NULL;
  assert_int_equal(bppsa_scan(device, &c.jt, &c.u, &v, NULL), BPPSA_ERR_ARGUMENT);
  const bppsa_scan_method unknown = {.algorithm = BPPSA_SCAN_ALGORITHMS};
  assert_int_equal(bppsa_scan(device, &c.jt, &c.u, &c.g, &unknown), BPPSA_ERR_UNSUPPORTED);
  assert_int_equal(bppsa_scan(NULL, &c.jt, &c.u, &c.g, NULL), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_scan(device, NULL, &c.u, &c.g, NULL), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_scan(device, &c.jt, &c.u, NULL, NULL), BPPSA_ERR_ARGUMENT);
  close_call(&c);
  bppsa_device_destroy(device);
}

/* Out of memory at every allocation in turn: nothing leaks, and the next call computes. */
static void test_memory(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  call c = open_call(device, BPPSA_F64, 21, 2, 3, false, true, 3);
  const bppsa_scan_method method = bppsa_scan_method_of(BPPSA_SCAN_BLELLOCH);
  const int64_t live = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t at = 1;
  for (; at < 1000; ++at) {
    bppsa_alloc_fail_at(at);
    status = bppsa_scan(device, &c.jt, &c.u, &c.g, &method);
    bppsa_alloc_fail_at(0);
    assert_int_equal(bppsa_alloc_live(), live);
    if (status != BPPSA_ERR_MEMORY) {
      break;
    }
  }
  assert_int_equal(status, BPPSA_OK);
  assert_true(at > 3);
  check_result(&c);
  close_call(&c);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shapes),
      cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

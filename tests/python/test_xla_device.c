/* The handlers of python/xla.c for a GPU, by frames as XLA makes them: beside those for a CPU, on XLA's stream, with one member and
 * with several, lengths that are int32, memory of XLA's or none, and what is refused. BPPSA_TEST_DEVICE names the device; without a
 * GPU calls are refused. */
#include "core/compute/memory.h"
#include "tests/python/xla_problem.h"
#include "tests/support/support.h"

typedef bppsa_xla_error *handler(bppsa_xla_frame *frame);

static const int64_t DIRECTION = BIT(d_x) | BIT(d_h0) | BIT(d_w_ih) | BIT(d_w_hh) | BIT(d_b_ih) | BIT(d_b_hh);

/* The passes: what they are given and what they compute, without the inputs that all of them read. */
static const struct {
  handler *on_cpu, *on_gpu;
  int64_t given, made;
} passes[] = {{bppsa_python_xla_forward, bppsa_python_xla_gpu_forward, 0, BIT(h) | BIT(saved)},
              {bppsa_python_xla_backward, bppsa_python_xla_gpu_backward, BIT(h) | BIT(saved) | BIT(of_h),
               BIT(of_x) | BIT(of_h0) | BIT(of_w_ih) | BIT(of_w_hh) | BIT(of_b_ih) | BIT(of_b_hh)},
              {bppsa_python_xla_tangent, bppsa_python_xla_gpu_tangent, BIT(h) | BIT(saved) | DIRECTION, BIT(d_h)},
              {bppsa_python_xla_second, bppsa_python_xla_gpu_second,
               BIT(h) | BIT(saved) | BIT(of_h) | BIT(d_of_h) | BIT(d_h) | DIRECTION,
               BIT(of_x) | BIT(of_h0) | BIT(of_w_ih) | BIT(of_w_hh) | BIT(of_b_ih) | BIT(of_b_hh)}};
enum { PASSES = sizeof passes / sizeof *passes };

/* A GPU, or NULL; XLA's stream is the device's. */
static bppsa_device *open_gpu(void) {
  bppsa_device *device = test_device(1);
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    bppsa_device_destroy(device);
    return NULL;
  }
  xla_gpu.device = device;
  xla_gpu.number = bppsa_device_get_index(device);
  xla_gpu.taken = xla_gpu.held = 0;
  return device;
}

static void close_gpu(bppsa_device *device) {
  xla_gpu.device = NULL;
  bppsa_device_destroy(device);
}

/* Gives all arrays their places in the GPU's memory. Row 0 of gradients of h is not read there. */
static void send(const bppsa_device *device, problem *p) {
  for (int which = 0; which < ARRAYS; ++which) {
    p->buffers[which].data = on_device(device, p->data[which], (int64_t)sizeof p->data[which]);
  }
}

static void fetch(const bppsa_device *device, problem *p) {
  for (int which = 0; which < ARRAYS; ++which) {
    if (which != ARRAY_scratch) {
      assert_int_equal(bppsa_memory_get(device, p->data[which], p->buffers[which].data, (int64_t)sizeof p->data[which]),
                       BPPSA_OK);
    }
    bppsa_memory_free(device, p->buffers[which].data);
    p->buffers[which].data = p->data[which];
  }
}

static int64_t count_of(const problem *p, int which) {
  int64_t count = p->with_axis >> which & 1 ? p->members : 1;
  for (const char *letter = shapes[which]; *letter != '\0'; ++letter) {
    count *= p->extents[*letter - 'A'];
  }
  return count;
}

static void assert_near(const problem *found, const problem *wanted, int64_t bits) {
  for (int which = 0; which < ARRAYS; ++which) {
    for (int64_t k = 0; (bits >> which & 1) && k < count_of(found, which); ++k) {
      const double a = found->data[which][k], b = wanted->data[which][k];
      if (!(fabs(a - b) <= 1e-12 * (1 + fabs(b)))) {
        fail_msg("array %d, number %d: %.17g, expected %.17g", which, (int)k, a, b);
      }
    }
  }
}

/* Without row 0 in gradients of h, which a handler on a GPU does not read. */
static void clear_first_rows(problem *p) {
  const int64_t rows = p->extents['N' - 'A'] * p->extents['B' - 'A'] * p->extents['H' - 'A'],
                row = p->extents['B' - 'A'] * p->extents['H' - 'A'];
  for (int64_t k = 0; k < MOST; ++k) {
    if (k % rows < row) {
      p->data[ARRAY_of_h][k] = p->data[ARRAY_d_of_h][k] = 0;
    }
  }
}

/* All passes, one behind the other, on both devices. */
static void compare(const bppsa_device *device, problem *found, problem *wanted, int64_t inputs) {
  clear_first_rows(found);
  clear_first_rows(wanted);
  for (int k = 0; k < PASSES; ++k) {
    const int64_t given = inputs | passes[k].given, made = passes[k].made | BIT(scratch);
    assert_int_equal(call(passes[k].on_cpu, wanted, given, made), 0);
    send(device, found);
    assert_int_equal(call(passes[k].on_gpu, found, given, made), 0);
    fetch(device, found);
    if (k != 0) { /* what a GPU saves has its own form */
      assert_near(found, wanted, passes[k].made);
    }
    assert_near(found, wanted, BIT(h));
  }
}

static void test_passes(void **state) {
  (void)state;
  bppsa_device *device = open_gpu();
  if (device == NULL) {
    return;
  }
  static const char *const methods[] = {"bp", "chunked 3", "blelloch", "auto"};
  for (size_t k = 0; k < sizeof methods / sizeof *methods; ++k) {
    problem *found = make_problem(), *wanted = make_problem();
    found->method = wanted->method = methods[k];
    compare(device, found, wanted, INPUTS);
    free(found);
    free(wanted);
  }
  close_gpu(device);
}

/* Memory of XLA's in the place of scratch that is too small: it is given back each time. */
static void test_memory(void **state) {
  (void)state;
  bppsa_device *device = open_gpu();
  if (device == NULL) {
    return;
  }
  problem *found = make_problem(), *wanted = make_problem();
  found->dims[ARRAY_scratch][0] = 0;
  const int64_t held = bppsa_memory_held(device);
  compare(device, found, wanted, INPUTS);
  assert_int_equal(xla_gpu.taken, PASSES);
  assert_int_equal(xla_gpu.held, 0);
  assert_int_equal(bppsa_memory_held(device), held);
  free(found);
  free(wanted);
  close_gpu(device);
}

/* Lengths that are int32 and int64; a length beyond T counts as T. Resets that are XLA's truth values. */
static void test_spans(void **state) {
  (void)state;
  bppsa_device *device = open_gpu();
  if (device == NULL) {
    return;
  }
  for (int small = 0; small < 2; ++small) {
    problem *found = make_problem(), *wanted = make_problem();
    const int64_t lengths[B] = {4, T, 1}, beyond[B] = {4, T + 3, 0};
    for (int b = 0; b < B; ++b) {
      ((int32_t *)(void *)wanted->data[ARRAY_lengths])[b] = (int32_t)lengths[b];
      ((int32_t *)(void *)found->data[ARRAY_lengths])[b] = (int32_t)beyond[b];
    }
    if (!small) {
      memcpy(found->data[ARRAY_lengths], beyond, sizeof beyond);
      found->buffers[ARRAY_lengths].dtype = BPPSA_XLA_S64;
    }
    for (int k = 0; k < T * B; ++k) {
      ((uint8_t *)(void *)found->data[ARRAY_resets])[k] = ((uint8_t *)(void *)wanted->data[ARRAY_resets])[k] = k % 5 == 1;
    }
    found->buffers[ARRAY_resets].dtype = wanted->buffers[ARRAY_resets].dtype = BPPSA_XLA_PRED;
    compare(device, found, wanted, INPUTS | BIT(resets));
    compare(device, found, wanted, INPUTS | BIT(lengths));
    free(found);
    free(wanted);
  }
  close_gpu(device);
}

/* Several members in a call, of which x is one for all. */
static void test_members(void **state) {
  (void)state;
  bppsa_device *device = open_gpu();
  if (device == NULL) {
    return;
  }
  problem *found = make_problem(), *wanted = make_problem();
  found->members = wanted->members = 3;
  found->with_axis = wanted->with_axis = ~(BIT(x) | BIT(scratch));
  for (int which = 0; which < ARRAYS; ++which) {
    set_shape(found, which);
    set_shape(wanted, which);
  }
  compare(device, found, wanted, INPUTS);
  free(found);
  free(wanted);
  close_gpu(device);
}

static void test_refusals(void **state) {
  (void)state;
  problem *p = make_problem();
  const int64_t made = passes[0].made | BIT(scratch);
  /* an XLA that cannot be asked for its GPU */
  assert_int_equal(call(passes[0].on_gpu, p, INPUTS, made), BPPSA_XLA_UNIMPLEMENTED);
  assert_non_null(strstr(last.text, "does not say on which GPU"));
  bppsa_device *device = open_gpu();
  if (device != NULL) {
    send(device, p);
    xla_gpu.fails = true;
    assert_int_equal(call(passes[0].on_gpu, p, INPUTS, made), BPPSA_XLA_INTERNAL);
    assert_string_equal(last.text, "XLA: no stream");
    xla_gpu.fails = false;
    xla_gpu.number = 77;
    assert_int_equal(call(passes[0].on_gpu, p, INPUTS, made), BPPSA_XLA_UNIMPLEMENTED);
    assert_non_null(strstr(last.text, "cuda:77"));
    xla_gpu.number = bppsa_device_get_index(device);
    const int64_t third = INPUTS | BIT(h) | BIT(saved) | DIRECTION | BIT(d_h) | BIT(e_x);
    assert_int_equal(call(bppsa_python_xla_gpu_third, p, third, BIT(e_h) | BIT(scratch)), BPPSA_XLA_UNIMPLEMENTED);
    assert_non_null(strstr(last.text, "tangents of tangents on a GPU"));
    assert_int_equal(bppsa_python_xla_find_gpu(), BPPSA_OK);
    p->extents['B' - 'A'] = 0;
    for (int which = 0; which < ARRAYS; ++which) {
      p->dims[which][0] = strchr("B", shapes[which][0]) != NULL ? 0 : p->dims[which][0];
      p->dims[which][1] = strlen(shapes[which]) > 1 && shapes[which][1] == 'B' ? 0 : p->dims[which][1];
    }
    assert_int_equal(call(passes[0].on_gpu, p, INPUTS, made), BPPSA_XLA_UNIMPLEMENTED);
    assert_non_null(strstr(last.text, "7 steps of 0 samples on a GPU"));
    fetch(device, p);
    close_gpu(device);
  }
  free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_passes),  cmocka_unit_test(test_memory),   cmocka_unit_test(test_spans),
      cmocka_unit_test(test_members), cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

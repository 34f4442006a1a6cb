/* python/xla.c by frames as XLA makes them: the passes of recurrent/layer.h, bit for bit, with one member and with several, lengths
 * that are int32, memory of XLA's or none, and what is refused. */
#include "python/xla.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "gru/gru.h"
#include "recurrent/layer.h"
#include "tests/python/xla_problem.h"
#include "tests/support/support.h"

static int32_t forward(problem *p, int64_t inputs) {
  return call(bppsa_python_xla_forward, p, inputs, TAPE | BIT(scratch));
}

static int32_t backward(problem *p, int64_t inputs) {
  return call(bppsa_python_xla_backward, p, inputs | TAPE | BIT(of_h), GRADIENTS | BIT(scratch));
}

/* ---- the passes by recurrent/layer.h ---- */

static void compute(problem *p, const int64_t *lengths, int member) {
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  bppsa_device *device;
  bppsa_layer *layer;
  bppsa_layer_sizes sizes;
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  config.seq_len = T;
  config.batch = B;
  config.input = I;
  config.hidden = H;
  config.dtype = BPPSA_F64;
  config.input_gradients = true;
  config.lengths = lengths != NULL;
  assert_int_equal(bppsa_gradient_method_parse(p->method, &config.method), BPPSA_OK);
  assert_int_equal(bppsa_layer_create(&config, &bppsa_gru_cell, device, &layer), BPPSA_OK);
  bppsa_layer_bytes(layer, &sizes);
  void *scratch = bppsa_alloc((size_t)(sizes.forward > sizes.backward ? sizes.forward : sizes.backward));
  double *d[ARRAYS];
  for (int which = 0; which < ARRAYS; ++which) {
    int64_t count = 1;
    for (const char *letter = shapes[which]; *letter != '\0'; ++letter) {
      count *= p->extents[*letter - 'A'];
    }
    d[which] = p->data[which] + (p->with_axis >> which & 1 ? member * count : 0);
  }
  const bppsa_layer_inputs inputs = {.x = d[ARRAY_x],
                                     .h0 = d[ARRAY_h0],
                                     .w_ih = d[ARRAY_w_ih],
                                     .w_hh = d[ARRAY_w_hh],
                                     .b_ih = d[ARRAY_b_ih],
                                     .b_hh = d[ARRAY_b_hh],
                                     .lengths = lengths};
  const bppsa_layer_tape tape = {.h = d[ARRAY_h], .saved = d[ARRAY_saved]};
  const bppsa_layer_seed seed = {.h = d[ARRAY_of_h] + B * H};
  const bppsa_layer_gradients gradients = {.x = d[ARRAY_of_x],
                                           .h0 = d[ARRAY_of_h0],
                                           .w_ih = d[ARRAY_of_w_ih],
                                           .w_hh = d[ARRAY_of_w_hh],
                                           .b_ih = d[ARRAY_of_b_ih],
                                           .b_hh = d[ARRAY_of_b_hh]};
  assert_int_equal(bppsa_layer_forward(layer, device, &inputs, &tape, scratch), BPPSA_OK);
  assert_int_equal(bppsa_layer_backward(layer, device, &inputs, &tape, &seed, &gradients, scratch), BPPSA_OK);
  for (int k = 0; k < B * H; ++k) {
    d[ARRAY_of_h0][k] += d[ARRAY_of_h][k]; /* row 0 */
  }
  bppsa_free(scratch);
  bppsa_layer_destroy(layer);
  bppsa_device_destroy(device);
}

static void assert_same(const problem *found, const problem *wanted, int64_t bits) {
  for (int which = 0; which < ARRAYS; ++which) {
    if (bits >> which & 1) {
      assert_memory_equal(found->data[which], wanted->data[which], sizeof found->data[which]);
    }
  }
}

/* ---- tests ---- */

static void test_passes(void **state) {
  (void)state;
  const char *const methods[] = {"bp", "linear", "chunked 3", "auto"};
  for (size_t k = 0; k < sizeof methods / sizeof methods[0]; ++k) {
    problem *found = make_problem(), *wanted = make_problem();
    found->method = wanted->method = methods[k];
    assert_int_equal(forward(found, INPUTS), 0);
    assert_int_equal(backward(found, INPUTS), 0);
    compute(wanted, NULL, 0);
    assert_same(found, wanted, TAPE | GRADIENTS);
    /* the same with scratch that is too small */
    memset(found->data[ARRAY_h], 0, sizeof(double) * (T + 1) * B * H);
    found->dims[ARRAY_scratch][0] = 0;
    assert_int_equal(forward(found, INPUTS), 0);
    assert_int_equal(backward(found, INPUTS), 0);
    assert_same(found, wanted, TAPE | GRADIENTS);
    free(found);
    free(wanted);
  }
}

static void test_lengths(void **state) {
  (void)state;
  problem *found = make_problem(), *wanted = make_problem();
  const int64_t lengths[B] = {4, T, 1};
  memcpy(found->data[ARRAY_lengths], (const int32_t[B]){4, T, 1}, B * sizeof(int32_t));
  assert_int_equal(forward(found, INPUTS | BIT(lengths)), 0);
  assert_int_equal(backward(found, INPUTS | BIT(lengths)), 0);
  compute(wanted, lengths, 0);
  assert_same(found, wanted, TAPE | GRADIENTS);
  found->buffers[ARRAY_lengths].dtype = BPPSA_XLA_S64;
  memcpy(found->data[ARRAY_lengths], lengths, sizeof lengths);
  assert_int_equal(forward(found, INPUTS | BIT(lengths)), 0);
  assert_same(found, wanted, TAPE);
  ((int64_t *)(void *)found->data[ARRAY_lengths])[2] = T + 1;
  assert_int_equal(forward(found, INPUTS | BIT(lengths)), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "bppsa.jax: gru, forward: "));
  assert_non_null(strstr(last.text, "expected 1 .. 7"));
  free(found);
  free(wanted);
}

/* Several members in a call, of which x is one for all. */
static void test_members(void **state) {
  (void)state;
  problem *found = make_problem(), *wanted = make_problem();
  found->members = wanted->members = 3;
  found->with_axis = wanted->with_axis = (INPUTS | TAPE | BIT(of_h) | GRADIENTS) & ~BIT(x);
  for (int which = 0; which < ARRAYS; ++which) {
    set_shape(found, which);
  }
  assert_int_equal(forward(found, INPUTS), 0);
  assert_int_equal(backward(found, INPUTS), 0);
  for (int member = 0; member < 3; ++member) {
    compute(wanted, NULL, member);
  }
  assert_same(found, wanted, TAPE | GRADIENTS);
  found->buffers[ARRAY_w_hh].dims[0] = 2;
  assert_int_equal(forward(found, INPUTS), BPPSA_XLA_INVALID_ARGUMENT);
  found->members = 3;
  found->with_axis &= ~BIT(h);
  set_shape(found, ARRAY_w_hh);
  set_shape(found, ARRAY_h);
  assert_int_equal(forward(found, INPUTS), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "h: a result without an axis for the 3 passes"));
  free(found);
  free(wanted);
}

static void test_empty(void **state) {
  (void)state;
  problem *p = make_problem();
  p->extents['B' - 'A'] = 0;
  for (int which = 0; which < ARRAYS; ++which) {
    set_shape(p, which);
  }
  assert_int_equal(forward(p, INPUTS), 0);
  assert_int_equal(backward(p, INPUTS), 0);
  for (int k = 0; k < G * H; ++k) {
    assert_true(p->data[ARRAY_of_w_hh][k] == 0);
  }
  p->extents['B' - 'A'] = B;
  p->extents['T' - 'A'] = 0;
  p->extents['N' - 'A'] = 1;
  for (int which = 0; which < ARRAYS; ++which) {
    set_shape(p, which);
  }
  assert_int_equal(forward(p, INPUTS), 0);
  assert_int_equal(backward(p, INPUTS), 0);
  assert_memory_equal(p->data[ARRAY_h], p->data[ARRAY_h0], B * H * sizeof(double));
  assert_memory_equal(p->data[ARRAY_of_h0], p->data[ARRAY_of_h], B * H * sizeof(double));
  free(p);
}

static void test_refusals(void **state) {
  (void)state;
  problem *p = make_problem();
  p->cell = "elman";
  assert_int_equal(forward(p, INPUTS), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "'elman': unknown recurrent cell"));
  p->cell = "gru";
  p->method = "fast";
  assert_int_equal(forward(p, INPUTS), BPPSA_XLA_INVALID_ARGUMENT);
  p->method = "a method of more than all characters that fit";
  assert_int_equal(forward(p, INPUTS), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "attribute method: expected a text of at most 23 characters"));
  p->method = "bp";
  p->buffers[ARRAY_b_hh].dtype = BPPSA_XLA_F32;
  assert_int_equal(forward(p, INPUTS), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "b_hh: "));
  set_shape(p, ARRAY_b_hh);
  p->dims[ARRAY_h][0] = T;
  assert_int_equal(forward(p, INPUTS), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "h: axis 0 has 7, expected N = 8"));
  set_shape(p, ARRAY_h);
  assert_int_equal(forward(p, INPUTS & ~BIT(w_hh)), BPPSA_XLA_INVALID_ARGUMENT);
  assert_int_equal(forward(p, INPUTS), 0);
  free(p);
}

/* Memory that fails: an error each time, nothing stays but the layer once it is made, and the next call succeeds. */
static void test_memory(void **state) {
  (void)state;
  problem *p = make_problem();
  p->method = "chunked 5"; /* a layer that no test above has made */
  p->dims[ARRAY_scratch][0] = 0;
  const int64_t kept = bppsa_python_xla_kept();
  int64_t live = bppsa_alloc_live();
  bool made = false;
  for (int64_t k = 1;; ++k) {
    bppsa_alloc_fail_at(k);
    const int32_t code = forward(p, INPUTS);
    bppsa_alloc_fail_at(0);
    if (code == 0) {
      assert_true(k > 3);
      break;
    }
    assert_int_equal(code, BPPSA_XLA_RESOURCE_EXHAUSTED);
    if (!made && bppsa_python_xla_kept() > kept) {
      made = true;
      live = bppsa_alloc_live();
    }
    assert_int_equal(bppsa_alloc_live(), live);
  }
  assert_int_equal(backward(p, INPUTS), 0);
  free(p);
}

/* Layers beyond those that are kept take the place of the ones that were used longest ago. */
static void test_kept(void **state) {
  (void)state;
  int64_t facts[BPPSA_PYTHON_XLA_FACTS];
  for (int64_t steps = 1; steps < 200; ++steps) {
    const int64_t sizes[] = {steps, 1, 1, 2};
    assert_int_equal(bppsa_python_xla_facts("lstm", "bp", "sequential", 0, 0, 1, -1, sizes, 0, facts), BPPSA_OK);
    assert_int_equal(facts[0] % (steps * 2 * 4), 0);
    assert_int_equal(facts[6], 2);
  }
  assert_int_equal(bppsa_python_xla_kept(), 64);
  assert_int_equal(bppsa_python_xla_facts("gru", "bp", "sequential", 0, 0, 1, -1, (const int64_t[]){1, 1, 1, -2}, 0, facts),
                   BPPSA_ERR_ARGUMENT);
}

enum { CALLERS = 4, CALLS = 12 };

typedef struct {
  problem *p;
  int32_t code; /* of the first call that failed; 0: none */
} caller;

static void *call_often(void *context) {
  caller *c = context;
  for (int k = 0; k < CALLS && c->code == 0; ++k) {
    memset(c->p->data[ARRAY_h], 0, sizeof(double) * (T + 1) * B * H);
    c->code = forward(c->p, INPUTS);
    c->code = c->code == 0 ? backward(c->p, INPUTS) : c->code;
  }
  return NULL;
}

/* Four threads compute at once, two with one layer and two with another one that nobody has made before: the bits of one call. */
static void test_threads(void **state) {
  (void)state;
  static const char *const methods[] = {"bp", "chunked 2"};
  caller callers[CALLERS];
  pthread_t threads[CALLERS];
  for (int k = 0; k < CALLERS; ++k) {
    callers[k] = (caller){.p = make_problem()};
    callers[k].p->method = methods[k % 2];
    assert_int_equal(pthread_create(&threads[k], NULL, call_often, &callers[k]), 0);
  }
  for (int k = 0; k < CALLERS; ++k) {
    assert_int_equal(pthread_join(threads[k], NULL), 0);
    assert_int_equal(callers[k].code, 0);
    problem *wanted = make_problem();
    wanted->method = methods[k % 2];
    compute(wanted, NULL, 0);
    assert_same(callers[k].p, wanted, TAPE | GRADIENTS);
    free(wanted);
    free(callers[k].p);
  }
}

/* XLA asks for the version of the interface before the first call. */
static void test_metadata(void **state) {
  (void)state;
  bppsa_xla_metadata metadata = {.size = sizeof metadata, .traits = 7};
  bppsa_xla_metadata_extension extension = {.base = {sizeof extension, BPPSA_XLA_METADATA, NULL}, .metadata = &metadata};
  bppsa_xla_frame frame = {.size = sizeof frame, .extensions = &extension.base};
  assert_null(bppsa_python_xla_forward(&frame));
  assert_int_equal(metadata.version.major, 0);
  assert_int_equal(metadata.version.minor, 3);
  assert_int_equal(metadata.traits, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_passes), cmocka_unit_test(test_lengths),  cmocka_unit_test(test_members),
      cmocka_unit_test(test_empty),  cmocka_unit_test(test_refusals), cmocka_unit_test(test_memory),
      cmocka_unit_test(test_kept),   cmocka_unit_test(test_metadata), cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

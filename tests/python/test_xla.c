/* python/xla.c by frames as XLA makes them: the passes of recurrent/layer.h, bit for bit, with one member and with several, lengths
 * that are int32, memory of XLA's or none, and what is refused. */
#include "python/xla.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "gru/gru.h"
#include "recurrent/layer.h"
#include "tests/python/xla_frame.h"
#include "tests/support/support.h"

enum { T = 7, B = 3, I = 2, H = 5, G = 3 * H, MOST = 4096 };
#define NUMBER(name, shape, type) A_##name,
enum { BPPSA_XLA_ARRAYS(NUMBER) ARRAYS };
#define SHAPE(name, shape, type) shape,
static const char *const shapes[ARRAYS] = {BPPSA_XLA_ARRAYS(SHAPE)};
#define TYPE(name, shape, type) type,
static const char types[ARRAYS] = {BPPSA_XLA_ARRAYS(TYPE)};
#define BIT(name) (INT64_C(1) << A_##name)

static const int64_t INPUTS = BIT(x) | BIT(h0) | BIT(w_ih) | BIT(w_hh) | BIT(b_ih) | BIT(b_hh);
static const int64_t TAPE = BIT(h) | BIT(saved);
static const int64_t GRADIENTS = BIT(of_x) | BIT(of_h0) | BIT(of_w_ih) | BIT(of_w_hh) | BIT(of_b_ih) | BIT(of_b_hh);

/* ---- a frame ---- */

typedef struct {
  int64_t extents[26]; /* by letter */
  int64_t members;     /* 0: no axis for them */
  int64_t with_axis;   /* bits: arrays that have it */
  double data[ARRAYS][MOST];
  bppsa_xla_buffer buffers[ARRAYS];
  int64_t dims[ARRAYS][4];
  const char *cell, *method;
} problem;

static void set_shape(problem *p, int which) {
  const int64_t rank = (int64_t)strlen(shapes[which]);
  const bool axis = p->with_axis >> which & 1;
  int64_t *dims = p->dims[which];
  *dims = p->members;
  for (int64_t k = 0; k < rank; ++k) {
    dims[axis + k] = p->extents[shapes[which][k] - 'A'];
  }
  p->buffers[which] = (bppsa_xla_buffer){.size = sizeof(bppsa_xla_buffer),
                                         .dtype = types[which] == 'r'   ? BPPSA_XLA_F64
                                                  : types[which] == 'u' ? BPPSA_XLA_U8
                                                                        : BPPSA_XLA_S32,
                                         .data = p->data[which],
                                         .rank = rank + axis,
                                         .dims = dims};
}

static problem *make_problem(void) {
  problem *p = calloc(1, sizeof *p);
  assert_non_null(p);
  const int64_t extents[] = {T, T + 1, B, I, H, G, H, 4 * H, (int64_t)sizeof p->data[0]};
  for (int k = 0; k < 9; ++k) {
    p->extents["TNBIHGSKZ"[k] - 'A'] = extents[k];
  }
  for (int which = 0; which < ARRAYS; ++which) {
    for (int k = 0; k < MOST && types[which] == 'r'; ++k) {
      p->data[which][k] = sin(1.0 + which * 131 + k * 17) * 0.7;
    }
    set_shape(p, which);
  }
  p->cell = "gru";
  p->method = "bp";
  return p;
}

static void list_buffers(problem *p, int64_t bits, xla_buffers *list) {
  for (int which = 0; which < ARRAYS; ++which) {
    if (bits >> which & 1) {
      xla_add_buffer(list, &p->buffers[which]);
    }
  }
}

/* Calls a handler; 0, or the error's code. */
static int32_t call(bppsa_xla_error *(*handler)(bppsa_xla_frame *), problem *p, int64_t arguments, int64_t results) {
  xla_attributes attributes = {.count = 0};
  xla_buffers given = {.count = 0}, wanted = {.count = 0};
  xla_add_number(&attributes, "arguments", arguments);
  xla_add_word(&attributes, "cell", p->cell);
  xla_add_word(&attributes, "forward", "sequential");
  xla_add_word(&attributes, "method", p->method);
  xla_add_number(&attributes, "relu", 0);
  xla_add_number(&attributes, "results", results);
  xla_add_number(&attributes, "threads", 1);
  list_buffers(p, arguments, &given);
  list_buffers(p, results, &wanted);
  return xla_call(handler, &attributes, &given, &wanted);
}

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
  const bppsa_layer_inputs inputs = {d[A_x], d[A_h0], NULL, d[A_w_ih], d[A_w_hh], d[A_b_ih], d[A_b_hh], NULL, lengths, NULL};
  const bppsa_layer_tape tape = {d[A_h], NULL, d[A_saved]};
  const bppsa_layer_seed seed = {.h = d[A_of_h] + B * H};
  const bppsa_layer_gradients gradients = {
      .x = d[A_of_x], .h0 = d[A_of_h0], .w_ih = d[A_of_w_ih], .w_hh = d[A_of_w_hh], .b_ih = d[A_of_b_ih], .b_hh = d[A_of_b_hh]};
  assert_int_equal(bppsa_layer_forward(layer, device, &inputs, &tape, scratch), BPPSA_OK);
  assert_int_equal(bppsa_layer_backward(layer, device, &inputs, &tape, &seed, &gradients, scratch), BPPSA_OK);
  for (int k = 0; k < B * H; ++k) {
    d[A_of_h0][k] += d[A_of_h][k]; /* row 0 */
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
    memset(found->data[A_h], 0, sizeof(double) * (T + 1) * B * H);
    found->dims[A_scratch][0] = 0;
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
  memcpy(found->data[A_lengths], (const int32_t[B]){4, T, 1}, B * sizeof(int32_t));
  assert_int_equal(forward(found, INPUTS | BIT(lengths)), 0);
  assert_int_equal(backward(found, INPUTS | BIT(lengths)), 0);
  compute(wanted, lengths, 0);
  assert_same(found, wanted, TAPE | GRADIENTS);
  found->buffers[A_lengths].dtype = BPPSA_XLA_S64;
  memcpy(found->data[A_lengths], lengths, sizeof lengths);
  assert_int_equal(forward(found, INPUTS | BIT(lengths)), 0);
  assert_same(found, wanted, TAPE);
  ((int64_t *)(void *)found->data[A_lengths])[2] = T + 1;
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
  found->buffers[A_w_hh].dims[0] = 2;
  assert_int_equal(forward(found, INPUTS), BPPSA_XLA_INVALID_ARGUMENT);
  found->members = 3;
  found->with_axis &= ~BIT(h);
  set_shape(found, A_w_hh);
  set_shape(found, A_h);
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
    assert_true(p->data[A_of_w_hh][k] == 0);
  }
  p->extents['B' - 'A'] = B;
  p->extents['T' - 'A'] = 0;
  p->extents['N' - 'A'] = 1;
  for (int which = 0; which < ARRAYS; ++which) {
    set_shape(p, which);
  }
  assert_int_equal(forward(p, INPUTS), 0);
  assert_int_equal(backward(p, INPUTS), 0);
  assert_memory_equal(p->data[A_h], p->data[A_h0], B * H * sizeof(double));
  assert_memory_equal(p->data[A_of_h0], p->data[A_of_h], B * H * sizeof(double));
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
  p->buffers[A_b_hh].dtype = BPPSA_XLA_F32;
  assert_int_equal(forward(p, INPUTS), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "b_hh: "));
  set_shape(p, A_b_hh);
  p->dims[A_h][0] = T;
  assert_int_equal(forward(p, INPUTS), BPPSA_XLA_INVALID_ARGUMENT);
  assert_non_null(strstr(last.text, "h: axis 0 has 7, expected N = 8"));
  set_shape(p, A_h);
  assert_int_equal(forward(p, INPUTS & ~BIT(w_hh)), BPPSA_XLA_INVALID_ARGUMENT);
  assert_int_equal(forward(p, INPUTS), 0);
  free(p);
}

/* Memory that fails: an error each time, nothing stays but the layer once it is made, and the next call succeeds. */
static void test_memory(void **state) {
  (void)state;
  problem *p = make_problem();
  p->method = "chunked 5"; /* a layer that no test above has made */
  p->dims[A_scratch][0] = 0;
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
    assert_int_equal(bppsa_python_xla_facts("lstm", "bp", "sequential", 0, 0, 1, sizes, 0, facts), BPPSA_OK);
    assert_int_equal(facts[0] % (steps * 2 * 4), 0);
    assert_int_equal(facts[6], 2);
  }
  assert_int_equal(bppsa_python_xla_kept(), 64);
  assert_int_equal(bppsa_python_xla_facts("gru", "bp", "sequential", 0, 0, 1, (const int64_t[]){1, 1, 1, -2}, 0, facts),
                   BPPSA_ERR_ARGUMENT);
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
      cmocka_unit_test(test_kept),   cmocka_unit_test(test_metadata),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a recurrent network does beyond a cell's own arithmetic: layers without biases, outputs without a head. With every cell of
 * the library, by BP and by every scan, on test_device(); a cell without kernels runs on the CPU. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

enum { STEPS = 9, BATCH = 5, INPUT = 3, HIDDEN = 4, LAYERS = 2, CLASSES = 3, MOST = 600 };

static bppsa_device *device;

static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
enum { CELLS = sizeof cells / sizeof *cells };

static const bppsa_gradient_method methods[] = {
    {BPPSA_BACKWARD_BP, {BPPSA_SCAN_AUTO, -1, 0}},       {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_LINEAR, -1, 0}},
    {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, -1, 0}}, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 1, 0}},
    {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 3}},
};
enum { METHODS = sizeof methods / sizeof *methods };

static bppsa_recurrent_config small(bppsa_dtype dtype, const bppsa_gradient_method *method, bool all) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = STEPS;
  c.batch = BATCH;
  c.input = INPUT;
  c.hidden = HIDDEN;
  c.layers = LAYERS;
  c.classes = CLASSES;
  c.dtype = dtype;
  c.method = *method;
  c.loss_all = all;
  c.input_gradients = true;
  return c;
}

static const bppsa_device *device_of(const bppsa_cell *cell, bppsa_device *cpu) {
  return cell->cuda != NULL ? device : cpu;
}

/* An array of random numbers where the model computes; free with free_view. */
static bppsa_view random_view(const bppsa_model *model, uint64_t seed, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make(NULL, model->dtype, ndim, shape);
  double *values = uniform(seed, bppsa_view_count(&view), 1);
  view.data = rounded(model->dtype, values, bppsa_view_count(&view));
  bppsa_free(values);
  if (model->device != NULL) {
    void *host = view.data;
    view.data = on_device(model->device, host, (int64_t)bppsa_view_bytes(&view));
    view.device = BPPSA_CUDA;
    bppsa_free(host);
  }
  return view;
}

static void free_view(const bppsa_model *model, bppsa_view *view) {
  bppsa_memory_free(model->device, view->data);
}

/* The values of a view as doubles; returns how many. */
static int64_t values_of(const bppsa_model *model, const bppsa_view *view, double values[MOST]) {
  const int64_t count = bppsa_view_count(view);
  double raw[MOST];
  assert_true(count <= MOST);
  assert_int_equal(bppsa_memory_get(model->device, raw, view->data, (int64_t)bppsa_view_bytes(view)), BPPSA_OK);
  const bppsa_view host = bppsa_view_make(raw, view->dtype, view->ndim, view->shape);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = bppsa_view_get(&host, i);
  }
  return count;
}

static const bppsa_parameter *find(const bppsa_model *model, const char *name) {
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    if (strcmp(model->parameters[i].name, name) == 0) {
      return &model->parameters[i];
    }
  }
  return NULL;
}

static void assert_same(const bppsa_model *a, const bppsa_view *x, const bppsa_model *b, const bppsa_view *y) {
  double left[MOST], right[MOST];
  const int64_t count = values_of(a, x, left);
  assert_int_equal(values_of(b, y, right), count);
  assert_memory_equal(left, right, (size_t)count * sizeof *left);
}

/* Outputs, the gradients of x and h0, and those of all parameters of `b`, which `a` has too. */
static void assert_same_pass(bppsa_model *a, const bppsa_view *out_a, bppsa_model *b, const bppsa_view *out_b) {
  bppsa_view dx[2], dh0[2];
  assert_same(a, out_a, b, out_b);
  assert_int_equal(a->ops->input_gradients(a, &dx[0], &dh0[0]), BPPSA_OK);
  assert_int_equal(b->ops->input_gradients(b, &dx[1], &dh0[1]), BPPSA_OK);
  assert_same(a, &dx[0], b, &dx[1]);
  assert_same(a, &dh0[0], b, &dh0[1]);
  assert_int_equal(bppsa_model_pull(a, true), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(b, true), BPPSA_OK);
  for (int64_t i = 0; i < b->parameter_count; ++i) {
    const bppsa_parameter *p = &b->parameters[i], *q = find(a, p->name);
    assert_non_null(q);
    assert_memory_equal(p->gradient.data, q->gradient.data, bppsa_view_bytes(&p->gradient));
  }
}

static void put_zeros(bppsa_model *model, const char *part) {
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    if (strstr(model->parameters[i].name, part) != NULL) {
      memset(model->parameters[i].value.data, 0, bppsa_view_bytes(&model->parameters[i].value));
    }
  }
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
}

typedef void (*check)(const bppsa_cell *cell, const bppsa_recurrent_config *config, const bppsa_device *on);

static void for_all(check function) {
  const bool gpu = bppsa_device_get_kind(device) == BPPSA_CUDA;
  bppsa_device *cpu = cpu_device(2);
  for (int k = 0; k < CELLS * METHODS * 4; ++k) {
    const bppsa_cell *cell = cells[k % CELLS];
    const int method = k / CELLS / 4;
    const bool wide = k / CELLS % 2 == 1, all = k / CELLS % 4 >= 2;
    if (gpu && (method % 2 == 1 || wide != (method == METHODS - 1))) {
      continue; /* BP, blelloch and chunks, each in one type, to stay short under emulation */
    }
    const bppsa_recurrent_config config = small(wide ? BPPSA_F64 : BPPSA_F32, &methods[method], all);
    function(cell, &config, device_of(cell, cpu));
  }
  bppsa_device_destroy(cpu);
}

/* A network without biases is one whose biases are 0, bit for bit; it has the same initial weights. */
static void check_no_bias(const bppsa_cell *cell, const bppsa_recurrent_config *config, const bppsa_device *on) {
  bppsa_recurrent_config without = *config;
  bppsa_model *m[2];
  bppsa_view logits[2];
  without.no_bias = true;
  assert_int_equal(bppsa_recurrent_create(config, cell, on, &m[0]), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_create(&without, cell, on, &m[1]), BPPSA_OK);
  assert_int_equal(m[1]->parameter_count, 2 * LAYERS + 2);
  for (int i = 0; i < 2; ++i) {
    assert_int_equal(bppsa_recurrent_init(m[i], BPPSA_INIT_ORTHOGONAL, 4), BPPSA_OK);
    put_zeros(m[i], ".bias_");
    bppsa_view x = random_view(m[i], 1, 3, (int64_t[]){STEPS, BATCH, INPUT});
    bppsa_view h0 = random_view(m[i], 2, 3, (int64_t[]){LAYERS, BATCH, (cell->pair ? 2 : 1) * HIDDEN});
    assert_int_equal(m[i]->ops->forward(m[i], &x, &h0, &logits[i]), BPPSA_OK);
    bppsa_view seed = random_view(m[i], 3, logits[i].ndim, logits[i].shape);
    for (int pass = 0; pass < 2; ++pass) { /* what the first one left in the place of biases' gradients is not read */
      assert_int_equal(m[i]->ops->backward(m[i], &seed), BPPSA_OK);
    }
    free_view(m[i], &x);
    free_view(m[i], &h0);
    free_view(m[i], &seed);
  }
  for (int64_t i = 0; i < m[1]->parameter_count; ++i) {
    const bppsa_parameter *p = &m[1]->parameters[i], *q = find(m[0], p->name);
    assert_null(strstr(p->name, ".bias_"));
    assert_non_null(q);
    assert_memory_equal(p->value.data, q->value.data, bppsa_view_bytes(&p->value));
  }
  assert_same_pass(m[0], &logits[0], m[1], &logits[1]);
  bppsa_model_destroy(m[0]);
  bppsa_model_destroy(m[1]);
}

static void test_no_bias(void **state) {
  (void)state;
  for_all(check_no_bias);
}

/* Without a head the outputs are the states, and the seed is their gradient: the layers' own passes of a network with a head. */
static void check_no_head(const bppsa_cell *cell, const bppsa_recurrent_config *config, const bppsa_device *on) {
  bppsa_recurrent_config without = *config;
  bppsa_model *m[2];
  bppsa_view outputs, states;
  without.no_head = true;
  assert_int_equal(bppsa_recurrent_create(config, cell, on, &m[0]), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_create(&without, cell, on, &m[1]), BPPSA_OK);
  assert_int_equal(m[1]->parameter_count, 4 * LAYERS);
  assert_int_equal(m[1]->classes, HIDDEN);
  bppsa_view x = random_view(m[0], 1, 3, (int64_t[]){STEPS, BATCH, INPUT});
  assert_int_equal(bppsa_recurrent_init(m[0], BPPSA_INIT_DEFAULT, 4), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(m[1], BPPSA_INIT_DEFAULT, 4), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_forward_layers(m[0], &x, NULL), BPPSA_OK);
  assert_int_equal(m[1]->ops->forward(m[1], &x, NULL, &outputs), BPPSA_OK);
  assert_int_equal(outputs.ndim, config->loss_all ? 3 : 2);
  assert_int_equal(outputs.shape[outputs.ndim - 1], HIDDEN);
  assert_int_equal(bppsa_recurrent_states(m[0], LAYERS - 1, &states), BPPSA_OK);
  if (!config->loss_all) { /* the last step's */
    states.data = (char *)states.data + (STEPS - 1) * (int64_t)bppsa_view_bytes(&outputs);
    states =
        (bppsa_view){.data = states.data, .dtype = states.dtype, .ndim = 2, .shape = {BATCH, HIDDEN}, .device = states.device};
  }
  bppsa_view seed = random_view(m[0], 3, outputs.ndim, outputs.shape);
  assert_int_equal(bppsa_recurrent_backward_layers(m[0], &seed), BPPSA_OK);
  assert_int_equal(m[1]->ops->backward(m[1], &seed), BPPSA_OK);
  assert_same_pass(m[0], &states, m[1], &outputs);
  bppsa_nonfinite where;
  assert_false(m[1]->ops->find_nonfinite(m[1], &where));
  free_view(m[0], &x);
  free_view(m[0], &seed);
  bppsa_model_destroy(m[0]);
  bppsa_model_destroy(m[1]);
}

static void test_no_head(void **state) {
  (void)state;
  for_all(check_no_head);
}

/* A file of weights says whether there are biases; a head is not looked for where none is wanted. */
static void test_inferred(void **state) {
  (void)state;
  bppsa_device *cpu = cpu_device(1);
  bppsa_recurrent_config config = small(BPPSA_F64, &methods[0], false), found = bppsa_recurrent_config_default();
  bppsa_named_view tensors[16];
  bppsa_model *model;
  config.no_bias = true;
  assert_int_equal(bppsa_recurrent_create(&config, &bppsa_gru_cell, cpu, &model), BPPSA_OK);
  const int64_t count = model->parameter_count, heads = 2;
  for (int64_t i = 0; i < count; ++i) {
    tensors[i] = (bppsa_named_view){model->parameters[i].name, model->parameters[i].value};
  }
  assert_int_equal(bppsa_recurrent_infer("W", "gru", 3, count, tensors, &found), BPPSA_OK);
  assert_true(found.no_bias);
  assert_int_equal(found.layers, LAYERS);
  assert_int_equal(found.classes, CLASSES);
  assert_error(bppsa_recurrent_infer("W", "gru", 3, count - heads, tensors, &found), BPPSA_ERR_FORMAT,
               "W: tensor 'linear.weight' is missing");
  found.no_head = true;
  assert_int_equal(bppsa_recurrent_infer("W", "gru", 3, count - heads, tensors, &found), BPPSA_OK);
  const int64_t out = 3 * HIDDEN;
  tensors[count] = (bppsa_named_view){"gru.bias_hh_l1", bppsa_view_make(model->parameters[0].value.data, BPPSA_F64, 1, &out)};
  assert_error(bppsa_recurrent_infer("W", "gru", 3, count + 1, tensors, &found), BPPSA_ERR_FORMAT,
               "W: tensor 'gru.bias_hh_l1', but layer 0 has no biases, expected biases in all layers or in none");
  tensors[count].name = "gru.bias_ih_l0";
  assert_error(bppsa_recurrent_infer("W", "gru", 3, count + 1, tensors, &found), BPPSA_ERR_FORMAT,
               "W: tensor 'gru.bias_hh_l0' is missing, expected a network with biases");
  bppsa_model_destroy(model);
  bppsa_device_destroy(cpu);
}

static bppsa_status create(void *argument) {
  bppsa_model *model = NULL;
  const bppsa_status status = bppsa_recurrent_create(argument, &bppsa_gru_cell, device, &model);
  bppsa_model_destroy(model);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_recurrent_config config = small(BPPSA_F32, &methods[0], true);
  config.no_bias = config.no_head = true;
  assert_true(walk_allocations(create, &config) > 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_bias), cmocka_unit_test(test_no_head),
                                     cmocka_unit_test(test_inferred), cmocka_unit_test(test_memory)};
  device = test_device(2);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}

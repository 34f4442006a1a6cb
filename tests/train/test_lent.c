/* Training and evaluation lend the model memory of their own, which is freed when they return: the model forgets it. Then a
 * backward pass without a forward pass is refused, and passes of the caller's own are those of a fresh model. Under the address
 * sanitizer (preset asan) nothing that was freed is read. */
#include <stdio.h>

#include "cnn/cnn.h"
#include "cnn/network_internal.h"
#include "core/base/alloc.h"
#include "lstm/lstm.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "tests/support/support.h"
#include "train/trainer.h"

enum { SAMPLES = 6, BATCH = 4, STEPS = 5, SIDE = 6, CLASSES = 3 };

/* ---- models and data sets ---- */

static void fill_images(const bppsa_dataset *dataset, int32_t threads, int64_t count, const int64_t *indices, const bppsa_view *x,
                        int64_t *labels) {
  (void)threads;
  for (int64_t i = 0; x != NULL && i < bppsa_view_count(x); ++i) {
    bppsa_view_set(x, i, 0.1 * (double)(1 + indices[i / dataset->input]) + 0.01 * (double)(i % dataset->input));
  }
  for (int64_t b = 0; labels != NULL && b < count; ++b) {
    labels[b] = indices[b] % CLASSES;
  }
}

static void destroy_images(bppsa_dataset *dataset) {
  bppsa_free(dataset);
}

static const bppsa_dataset_ops images_ops = {.name = "images", .fill = fill_images, .destroy = destroy_images};

static bppsa_dataset *images(void) {
  bppsa_dataset *made = bppsa_calloc(1, sizeof *made);
  assert_non_null(made);
  *made = (bppsa_dataset){
      .ops = &images_ops, .samples = SAMPLES, .seq_len = 1, .input = SIDE * SIDE, .image = {1, SIDE, SIDE}, .classes = CLASSES};
  return made;
}

static bppsa_dataset *sequences(void) {
  const bppsa_dataset_options options = {.samples = SAMPLES, .seq_len = STEPS};
  bppsa_dataset *made = NULL;
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &made), BPPSA_OK);
  made->lengths = bppsa_calloc(SAMPLES, sizeof *made->lengths);
  assert_non_null(made->lengths);
  for (int64_t i = 0; i < SAMPLES; ++i) {
    made->lengths[i] = 1 + i % STEPS;
  }
  return made;
}

static bppsa_model *recurrent(const bppsa_cell *cell, const bppsa_device *device) {
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  bppsa_model *model = NULL;
  config.seq_len = STEPS;
  config.batch = BATCH;
  config.hidden = 3;
  config.layers = 2;
  config.lengths = true;
  config.dropout = 0.4;
  config.bidirectional = cell->pair;
  assert_int_equal(bppsa_recurrent_create(&config, cell, device, &model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(model, BPPSA_INIT_DEFAULT, 1), BPPSA_OK);
  return model;
}

static bppsa_model *make_rnn(const bppsa_device *device) {
  return recurrent(&bppsa_rnn_cell, device);
}

static bppsa_model *make_lstm(const bppsa_device *device) {
  return recurrent(&bppsa_lstm_cell, device);
}

static void add(bppsa_cnn_network *network, bppsa_op op, const char *name) {
  bppsa_cnn_layer layer = {.op = op};
  snprintf(layer.name, sizeof layer.name, "%s", name);
  snprintf(layer.prefix, sizeof layer.prefix, "%s", name);
  assert_int_equal(bppsa_cnn_network_add(network, &layer), BPPSA_OK);
}

static bppsa_model *make_cnn(const bppsa_device *device) {
  bppsa_cnn_network network = {.name = "small", .in = {1, SIDE, SIDE}};
  bppsa_cnn_config config = bppsa_cnn_config_default();
  bppsa_op conv = bppsa_op_default(BPPSA_OPERATOR_CONV2D), linear = bppsa_op_default(BPPSA_OPERATOR_LINEAR);
  bppsa_model *model = NULL;
  conv.out_channels = 2;
  conv.kernel[0] = conv.kernel[1] = 3;
  linear.out_channels = CLASSES;
  assert_int_equal(bppsa_cnn_network_reserve(4, &network), BPPSA_OK);
  add(&network, conv, "conv");
  add(&network, bppsa_op_default(BPPSA_OPERATOR_RELU), "relu");
  add(&network, bppsa_op_default(BPPSA_OPERATOR_FLATTEN), "flatten");
  add(&network, linear, "fc");
  config.batch = BATCH;
  config.method.backward = BPPSA_BACKWARD_BP;
  assert_int_equal(bppsa_cnn_create(&network, &config, device, &model), BPPSA_OK);
  assert_int_equal(bppsa_cnn_init(model, 1), BPPSA_OK);
  bppsa_cnn_network_free(&network);
  return model;
}

typedef struct {
  bppsa_model *(*make)(const bppsa_device *device);
  bppsa_dataset *(*data)(void);
} kind;

static const kind kinds[] = {{make_rnn, sequences}, {make_lstm, sequences}, {make_cnn, images}};

/* ---- what is called ---- */

static bppsa_status fail_at_two(void *context, const bppsa_train_record *record) {
  (void)context;
  return record->step == 2 ? bppsa_fail(BPPSA_ERR_UNSUPPORTED, "enough") : BPPSA_OK;
}

/* Three steps, the second of which may fail. */
static bppsa_status train(bppsa_model *model, const bppsa_dataset *data, const bppsa_device *device, bool fails) {
  const bppsa_train_callbacks callbacks = {.on_step = fails ? fail_at_two : NULL};
  bppsa_train_config config = bppsa_train_config_default();
  bppsa_train_result result;
  config.iterations = 3;
  config.batch = BATCH;
  return bppsa_train(&config, model, data, device, &callbacks, &result);
}

static bppsa_view seed_of(const bppsa_model *model) {
  static const float ones[BATCH * 16] = {1, -1, 0.5F, 2};
  return bppsa_view_make((void *)(uintptr_t)ones, BPPSA_F32, 2, (int64_t[]){BATCH, model->classes});
}

static void assert_forgotten(bppsa_model *model) {
  const bppsa_view seed = seed_of(model);
  bppsa_nonfinite where;
  assert_int_equal(model->ops->backward(model, &seed), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "backward: no forward pass precedes it");
  assert_false(model->ops->find_nonfinite(model, &where));
}

/* Passes of the caller's own; bits as those of a model with the same weights that never trained. */
static void assert_as_fresh(const kind *k, bppsa_model *model, const bppsa_device *device) {
  bppsa_dataset *data = k->data();
  bppsa_model *fresh = k->make(device);
  int64_t shape[4];
  const int64_t indices[BATCH] = {5, 0, 3, 1};
  const int32_t ndim = bppsa_dataset_shape(data, BATCH, shape);
  bppsa_view x = bppsa_view_make(NULL, BPPSA_F32, ndim, shape), logits, expected;
  const bppsa_view seed = seed_of(model);
  x.data = bppsa_calloc(bppsa_view_count(&x), sizeof(float));
  assert_int_equal(bppsa_dataset_fill(data, NULL, BATCH, indices, &x, NULL), BPPSA_OK);
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    assert_int_equal(bppsa_view_convert(&model->parameters[i].value, &fresh->parameters[i].value), BPPSA_OK);
  }
  assert_int_equal(bppsa_model_forward(model, &x, NULL, NULL, &logits), BPPSA_OK);
  assert_int_equal(bppsa_model_forward(fresh, &x, NULL, NULL, &expected), BPPSA_OK);
  assert_memory_equal(logits.data, expected.data, bppsa_view_bytes(&logits));
  assert_int_equal(model->ops->backward(model, &seed), BPPSA_OK);
  assert_int_equal(fresh->ops->backward(fresh, &seed), BPPSA_OK);
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_view *gradient = &model->parameters[i].gradient;
    assert_memory_equal(gradient->data, fresh->parameters[i].gradient.data, bppsa_view_bytes(gradient));
  }
  bppsa_model_destroy(fresh);
  bppsa_free(x.data);
  bppsa_dataset_destroy(data);
}

static void check_kind(const kind *k) {
  bppsa_device *device = cpu_device(2);
  bppsa_dataset *data = k->data();
  bppsa_model *model = k->make(device);
  bppsa_evaluation evaluation;
  assert_int_equal(train(model, data, device, false), BPPSA_OK);
  assert_forgotten(model);
  assert_as_fresh(k, model, device);
  assert_int_equal(train(model, data, device, false), BPPSA_OK);
  assert_forgotten(model);
  assert_int_equal(train(model, data, device, true), BPPSA_ERR_UNSUPPORTED);
  assert_forgotten(model);
  assert_as_fresh(k, model, device);
  assert_int_equal(bppsa_evaluate(model, data, device, 0, SAMPLES, BATCH, &evaluation), BPPSA_OK);
  assert_forgotten(model);
  assert_as_fresh(k, model, device);
  bppsa_model_destroy(model);
  bppsa_dataset_destroy(data);
  bppsa_device_destroy(device);
}

static void test_sequences_of_calls(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i) {
    check_kind(&kinds[i]);
  }
}

/* A run that is refused has lent nothing, and leaves the caller's pass as it is. */
static void test_refused(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_dataset *data = images();
  bppsa_model *model = make_cnn(device);
  bppsa_view logits;
  float numbers[BATCH * SIDE * SIDE] = {0.5F};
  const bppsa_view x = bppsa_view_make(numbers, BPPSA_F32, 4, (int64_t[]){BATCH, 1, SIDE, SIDE}), seed = seed_of(model);
  assert_int_equal(bppsa_model_forward(model, &x, NULL, NULL, &logits), BPPSA_OK);
  data->classes = CLASSES + 1;
  assert_int_equal(train(model, data, device, false), BPPSA_ERR_ARGUMENT);
  assert_int_equal(model->ops->backward(model, &seed), BPPSA_OK);
  bppsa_model_destroy(model);
  bppsa_dataset_destroy(data);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sequences_of_calls), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

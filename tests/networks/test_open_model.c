/* A model by its name: the same bits as the calls behind it, weights of a file, and requests that contradict themselves. */
#include "cnn/cnn.h"
#include "core/files/safetensors.h"
#include "gru/gru.h"
#include "networks/open_model.h"
#include "tests/core/helpers.h"

#define PATH "open_model.safetensors"

static bppsa_device *device;

static bppsa_model_config small(void) {
  bppsa_model_config config = bppsa_model_config_default();
  config.seq_len = 6;
  config.batch = 3;
  config.input = 2;
  config.hidden = 4;
  config.classes = 5;
  config.seed = 9;
  config.dtype = BPPSA_F64;
  return config;
}

static bppsa_model *open_model(const char *name, const bppsa_model_config *config) {
  bppsa_model *model = NULL;
  const bppsa_status status = bppsa_model_open(name, config, device, &model);
  if (status != BPPSA_OK) {
    fail_msg("%s: %s", name, bppsa_last_error());
  }
  return model;
}

static void assert_same_parameters(const bppsa_model *a, const bppsa_model *b) {
  assert_int_equal(a->parameter_count, b->parameter_count);
  for (int64_t i = 0; i < a->parameter_count; ++i) {
    const bppsa_view *p = &a->parameters[i].value, *q = &b->parameters[i].value;
    assert_string_equal(a->parameters[i].name, b->parameters[i].name);
    assert_true(p->dtype == q->dtype && bppsa_view_same_shape(p, q));
    assert_memory_equal(p->data, q->data, bppsa_view_bytes(p));
  }
}

static void save_model(const bppsa_model *model) {
  bppsa_named_view tensors[16];
  assert_true(model->parameter_count <= 16);
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    tensors[i] = (bppsa_named_view){model->parameters[i].name, model->parameters[i].value};
  }
  assert_int_equal(bppsa_safetensors_save(PATH, model->parameter_count, tensors, 0, NULL), BPPSA_OK);
}

/* The network, its sizes and its parameters are those of bppsa_recurrent_create and bppsa_recurrent_init. */
static void test_recurrent(void **state) {
  (void)state;
  const bppsa_model_config asked = small();
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  config.seq_len = 6;
  config.batch = 3;
  config.input = 2;
  config.hidden = 4;
  config.classes = 5;
  config.dtype = BPPSA_F64;
  bppsa_model *model = open_model("gru", &asked), *expected = NULL;
  assert_int_equal(bppsa_recurrent_create(&config, &bppsa_gru_cell, device, &expected), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(expected, BPPSA_INIT_DEFAULT, 9), BPPSA_OK);
  assert_same_parameters(model, expected);
  double x[6 * 3 * 2];
  for (int i = 0; i < 36; ++i) {
    x[i] = 0.1 * i - 1;
  }
  const bppsa_view input = bppsa_view_make(x, BPPSA_F64, 3, (int64_t[]){6, 3, 2});
  bppsa_view found, wanted;
  assert_int_equal(bppsa_model_forward(model, &input, NULL, NULL, &found), BPPSA_OK);
  assert_int_equal(bppsa_model_forward(expected, &input, NULL, NULL, &wanted), BPPSA_OK);
  assert_true(bppsa_view_same_shape(&found, &wanted));
  assert_memory_equal(found.data, wanted.data, bppsa_view_bytes(&found));
  bppsa_model_destroy(model);
  bppsa_model_destroy(expected);
}

/* A file of weights says all sizes but those of a batch, and the type. */
static void test_weights(void **state) {
  (void)state;
  bppsa_model_config asked = small();
  asked.layers = 2;
  bppsa_model *drawn = open_model("gru", &asked);
  save_model(drawn);
  bppsa_model_config open = bppsa_model_config_default();
  open.weights = PATH;
  open.seq_len = 4;
  open.batch = 1;
  bppsa_model *model = open_model("gru", &open);
  assert_same_parameters(model, drawn);
  bppsa_model_destroy(model);
  open.hidden = 4; /* agrees */
  open.layers = 2;
  bppsa_model_destroy(open_model("gru", &open));
  model = NULL;
  open.hidden = 5;
  assert_error(bppsa_model_open("gru", &open, device, &model), BPPSA_ERR_ARGUMENT,
               "hidden: 5 contradicts the weights in " PATH ", expected 4");
  open.hidden = 0;
  assert_error(bppsa_model_open("lstm", &open, device, &model), BPPSA_ERR_FORMAT, "is missing; the file has gru.weight_ih_l0");
  open.weights = "there_is_none.safetensors";
  assert_error(bppsa_model_open("gru", &open, device, &model), BPPSA_ERR_ARGUMENT, "there_is_none.safetensors");
  assert_null(model);
  bppsa_model_destroy(drawn);
}

static void test_convolutional(void **state) {
  (void)state;
  bppsa_model_config asked = bppsa_model_config_default();
  asked.batch = 2;
  asked.seed = 3;
  bppsa_model *model = open_model("lenet5", &asked), *expected = NULL;
  bppsa_cnn_network network;
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = 2;
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  assert_int_equal(bppsa_cnn_create(&network, &config, device, &expected), BPPSA_OK);
  assert_int_equal(bppsa_cnn_init(expected, 3), BPPSA_OK);
  assert_same_parameters(model, expected);
  save_model(model);
  asked.weights = PATH;
  asked.seed = 4;
  bppsa_model *loaded = open_model("lenet5", &asked);
  assert_same_parameters(loaded, model);
  bppsa_cnn_network_free(&network);
  bppsa_model_destroy(model);
  bppsa_model_destroy(expected);
  bppsa_model_destroy(loaded);
}

/* A weight that PyTorch has pruned is a tensor and its mask, which the model keeps. */
static void test_pruned(void **state) {
  (void)state;
  bppsa_model_config asked = bppsa_model_config_default();
  asked.batch = 1;
  bppsa_model *drawn = open_model("lenet5", &asked);
  bppsa_named_view tensors[16];
  uint8_t kept[6 * 3 * 5 * 5];
  const int64_t last = drawn->parameter_count;
  for (int i = 0; i < 450; ++i) {
    kept[i] = i % 2 == 1;
  }
  for (int64_t i = 0; i < last; ++i) {
    tensors[i] = (bppsa_named_view){drawn->parameters[i].name, drawn->parameters[i].value};
  }
  assert_string_equal(tensors[0].name, "conv1.weight");
  assert_int_equal(bppsa_view_count(&tensors[0].view), 450);
  tensors[0].name = "conv1.weight_orig";
  tensors[last] = (bppsa_named_view){"conv1.weight_mask", bppsa_view_make(kept, BPPSA_BOOL, 4, tensors[0].view.shape)};
  assert_int_equal(bppsa_safetensors_save(PATH, last + 1, tensors, 0, NULL), BPPSA_OK);
  asked.weights = PATH;
  bppsa_model *pruned = open_model("lenet5", &asked);
  assert_non_null(bppsa_cnn_mask(pruned, 0));
  assert_null(bppsa_cnn_mask(drawn, 0));
  for (int64_t i = 0; i < 450; ++i) {
    assert_true(bppsa_view_get(&pruned->parameters[0].value, i) ==
                (kept[i] ? bppsa_view_get(&drawn->parameters[0].value, i) : 0));
  }
  bppsa_model_destroy(drawn);
  bppsa_model_destroy(pruned);
}

static void test_refused(void **state) {
  (void)state;
  bppsa_model *model = NULL;
  bppsa_model_config asked = small();
  assert_error(bppsa_model_open("grx", &asked, device, &model), BPPSA_ERR_ARGUMENT, "unknown 'grx'");
  assert_error(bppsa_model_open("lenet5", &asked, device, &model), BPPSA_ERR_ARGUMENT, "lenet5: seq_len is 6, expected 0");
  asked.hidden = -1;
  assert_error(bppsa_model_open("gru", &asked, device, &model), BPPSA_ERR_ARGUMENT, "gru: hidden is -1, expected 0 or more");
  asked = bppsa_model_config_default();
  asked.loss_all = true;
  assert_error(bppsa_model_open("lenet5", &asked, device, &model), BPPSA_ERR_ARGUMENT, "loss_all");
  asked = small();
  asked.dtype = BPPSA_I64;
  assert_true(bppsa_model_open("gru", &asked, device, &model) != BPPSA_OK);
  assert_error(bppsa_model_open(NULL, &asked, device, &model), BPPSA_ERR_ARGUMENT, "name != NULL");
  assert_error(bppsa_model_open("gru", &asked, NULL, &model), BPPSA_ERR_ARGUMENT, "device != NULL");
  assert_null(model);
}

static bppsa_status open_and_close(void *config) {
  bppsa_model *model = NULL;
  BPPSA_TRY(bppsa_model_open("gru", config, device, &model));
  bppsa_model_destroy(model);
  return BPPSA_OK;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_model_config asked = small();
  bppsa_model *drawn = open_model("gru", &asked);
  save_model(drawn);
  bppsa_model_destroy(drawn);
  assert_true(walk_allocations(open_and_close, &asked) > 0);
  asked.weights = PATH;
  assert_true(walk_allocations(open_and_close, &asked) > 0);
}

int main(void) {
  if (bppsa_device_create("cpu", 1, &device) != BPPSA_OK) {
    return 1;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_recurrent),     cmocka_unit_test(test_weights),
                                     cmocka_unit_test(test_convolutional), cmocka_unit_test(test_pruned),
                                     cmocka_unit_test(test_refused),       cmocka_unit_test(test_memory)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}

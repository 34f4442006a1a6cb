/* Weights of a file: names behind a prefix, what contradicts them, rounding. */
#include <math.h>

#include "core/base/alloc.h"
#include "networks/weights.h"
#include "tests/core/helpers.h"

#define PATH "models_weights.safetensors"

enum { HIDDEN = 3 };

/* An RNN's weights of this dtype under names behind `before`, which ends in a dot or is empty. */
static void save(bppsa_dtype dtype, const char *before, int64_t metadata_count, const bppsa_metadata *metadata) {
  static const struct {
    const char *name;
    int32_t ndim;
    int64_t shape[2];
  } parts[] = {{"rnn.weight_ih_l0", 2, {HIDDEN, 1}}, {"rnn.weight_hh_l0", 2, {HIDDEN, HIDDEN}}, {"rnn.bias_ih_l0", 1, {HIDDEN}},
               {"rnn.bias_hh_l0", 1, {HIDDEN}},      {"linear.weight", 2, {4, HIDDEN}},         {"linear.bias", 1, {4}}};
  double data[16] = {0.25, -0.5};
  char names[6][64];
  bppsa_named_view tensors[6];
  for (int i = 0; i < 6; ++i) {
    snprintf(names[i], sizeof names[i], "%s%s", before, parts[i].name);
    tensors[i] = (bppsa_named_view){names[i], bppsa_view_make(data, dtype, parts[i].ndim, parts[i].shape)};
  }
  assert_int_equal(bppsa_safetensors_save(PATH, 6, tensors, metadata_count, metadata), BPPSA_OK);
}

typedef struct {
  bppsa_network network;
  bppsa_network_config config;
  bppsa_safetensors *file;
} loaded;

static bppsa_status load(const bppsa_weights_request *request, loaded *l) {
  *l = (loaded){.file = NULL};
  assert_int_equal(bppsa_network_open("rnn", NULL, &l->network), BPPSA_OK);
  l->config = bppsa_network_config_default(&l->network);
  return bppsa_weights_load(request, &l->network, &l->config, &l->file);
}

static void unload(loaded *l) {
  bppsa_safetensors_destroy(l->file);
  bppsa_network_close(&l->network);
}

static void test_architecture(void **state) {
  (void)state;
  const bppsa_metadata metadata[] = {{"nonlinearity", "relu"}, {"loss", "all"}};
  const bppsa_dtype f32 = BPPSA_F32;
  loaded l;
  save(BPPSA_F64, "", 2, metadata);
  assert_int_equal(load(&(bppsa_weights_request){.path = PATH}, &l), BPPSA_OK);
  assert_true(l.config.steps.hidden == HIDDEN && l.config.input == 1 && l.config.steps.layers == 1 && l.config.classes == 4);
  assert_true(l.config.dtype == BPPSA_F64 && l.config.loss_all && l.config.steps.nonlinearity == BPPSA_NONLINEARITY_RELU);
  unload(&l);
  assert_int_equal(load(&(bppsa_weights_request){.path = PATH, .dtype = &f32, .loss_given = true}, &l), BPPSA_OK);
  assert_true(l.config.dtype == BPPSA_F32 && !l.config.loss_all);
  unload(&l);
}

static void test_contradictions(void **state) {
  (void)state;
  const bppsa_metadata metadata = {"nonlinearity", "relu"};
  loaded l;
  save(BPPSA_F32, "", 1, &metadata);
  assert_int_equal(load(&(bppsa_weights_request){.path = PATH, .hidden = 5}, &l), BPPSA_ERR_ARGUMENT);
  assert_message("--hidden: 5 contradicts the weights in " PATH ", expected 3");
  assert_int_equal(l.config.steps.hidden, 20); /* untouched */
  unload(&l);
  assert_int_equal(load(&(bppsa_weights_request){.path = PATH, .layers = 2}, &l), BPPSA_ERR_ARGUMENT);
  assert_message("--layers: 2 contradicts");
  unload(&l);
  assert_int_equal(load(&(bppsa_weights_request){.path = PATH, .nonlinearity = "tanh"}, &l), BPPSA_ERR_ARGUMENT);
  assert_message("--nonlinearity: tanh contradicts the weights in " PATH ", expected relu");
  unload(&l);
  assert_int_equal(load(&(bppsa_weights_request){.path = "nowhere.safetensors"}, &l), BPPSA_ERR_ARGUMENT);
  unload(&l);
}

static void test_prefix(void **state) {
  (void)state;
  loaded l;
  save(BPPSA_F32, "net.", 0, NULL);
  assert_int_equal(load(&(bppsa_weights_request){.path = PATH, .prefix = "net"}, &l), BPPSA_OK);
  assert_int_equal(l.config.steps.hidden, HIDDEN);
  unload(&l);
  assert_int_equal(load(&(bppsa_weights_request){.path = PATH, .propose_prefix = true}, &l), BPPSA_ERR_FORMAT);
  assert_message("did you mean --prefix net?");
  unload(&l);
  assert_int_equal(load(&(bppsa_weights_request){.path = PATH}, &l), BPPSA_ERR_FORMAT);
  assert_null(strstr(bppsa_last_error(), "did you mean")); /* this caller has no --prefix */
  unload(&l);
}

/* A file of 300 first weights and 300 heads has 90 000 prefixes that could fit; only some are tried. A try takes memory once. */
static void test_many_prefixes(void **state) {
  (void)state;
  enum { PAIRS = 300 };
  static char names[2 * PAIRS][40];
  static bppsa_named_view tensors[2 * PAIRS];
  float value = 0;
  loaded l;
  for (int i = 0; i < 2 * PAIRS; ++i) {
    snprintf(names[i], sizeof names[i], i < PAIRS ? "a%d.weight_ih_l0" : "b%d.weight", i);
    tensors[i] = (bppsa_named_view){names[i], bppsa_view_make(&value, BPPSA_F32, 2, (const int64_t[]){1, 1})};
  }
  assert_int_equal(bppsa_safetensors_save(PATH, 2 * PAIRS, tensors, 0, NULL), BPPSA_OK);
  const int64_t before = bppsa_alloc_calls();
  assert_int_equal(load(&(bppsa_weights_request){.path = PATH, .propose_prefix = true}, &l), BPPSA_ERR_FORMAT);
  assert_null(strstr(bppsa_last_error(), "did you mean"));
  assert_true(bppsa_alloc_calls() - before < 10 * PAIRS);
  unload(&l);
}

static void test_rounding(void **state) {
  (void)state;
  static const bppsa_dtype dtypes[] = {BPPSA_F32, BPPSA_F64};
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  for (int i = 0; i < 4; ++i) { /* with weights that f32 holds, then with one that it does not */
    const bppsa_weights_request request = {.path = PATH, .dtype = &dtypes[i % 2]};
    bppsa_model *model = NULL;
    char note[BPPSA_WEIGHTS_NOTE];
    loaded l;
    save(BPPSA_F64, "", 0, NULL);
    assert_int_equal(load(&request, &l), BPPSA_OK);
    l.config.steps.seq_len = 4;
    bppsa_view_set(bppsa_safetensors_find(l.file, "rnn.weight_hh_l0"), 2, i < 2 ? 0.125 : 0.1);
    assert_int_equal(bppsa_network_create(&l.network, &l.config, device, &model), BPPSA_OK);
    assert_int_equal(bppsa_weights_set(&request, &l.network, l.file, model, note), BPPSA_OK);
    assert_string_equal(note, i == 2 ? "f64 weights, converted to f32, which rounds them" : "");
    assert_true(bppsa_view_get(&model->parameters[0].value, 1) == -0.5);
    bppsa_model_destroy(model);
    unload(&l);
  }
  bppsa_device_destroy(device);
}

/* Values that the model's dtype cannot hold are a fault of the file, and change nothing. */
static void test_values(void **state) {
  (void)state;
  const bppsa_dtype f32 = BPPSA_F32;
  const bppsa_weights_request request = {.path = PATH, .dtype = &f32};
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  loaded l;
  save(BPPSA_F64, "", 0, NULL);
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  assert_int_equal(load(&request, &l), BPPSA_OK);
  l.config.steps.seq_len = 4;
  assert_int_equal(bppsa_network_create(&l.network, &l.config, device, &model), BPPSA_OK);
  const bppsa_view *tensor = bppsa_safetensors_find(l.file, "rnn.weight_hh_l0");
  bppsa_view_set(tensor, 2, 1e300);
  assert_int_equal(bppsa_weights_set(&request, &l.network, l.file, model, NULL), BPPSA_ERR_FORMAT);
  assert_message(PATH ": rnn.weight_hh_l0: element 2 is 1e+300, beyond f32, expected --dtype f64 or smaller weights");
  bppsa_view_set(tensor, 2, (double)NAN);
  assert_int_equal(bppsa_weights_set(&request, &l.network, l.file, model, NULL), BPPSA_ERR_FORMAT);
  assert_message(PATH ": rnn.weight_hh_l0: element 2 is nan, expected finite weights");
  assert_true(bppsa_view_get(&model->parameters[0].value, 0) == 0); /* untouched */
  bppsa_model_destroy(model);
  unload(&l);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_architecture), cmocka_unit_test(test_contradictions),
                                     cmocka_unit_test(test_prefix),       cmocka_unit_test(test_many_prefixes),
                                     cmocka_unit_test(test_rounding),     cmocka_unit_test(test_values)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

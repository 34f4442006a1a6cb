/* Networks by their names and files, their configurations, and what they are checked against. */
#include "networks/named_network.h"
#include "tests/core/helpers.h"

#define FILE_PATH "models_network.json"
#define MASK_PATH "models_network_mask.safetensors"

static const char text[] = "{\"input\": [1, 4, 4], \"layers\": [{\"name\": \"conv\", \"op\": \"conv2d\", \"out\": 2, "
                           "\"kernel\": 3}, {\"name\": \"head\", \"op\": \"linear\", \"out\": 5}]}";

static void save_mask(void) {
  uint8_t bytes[18] = {1, 0, 1};
  const bppsa_view view = bppsa_view_make(bytes, BPPSA_BOOL, 4, (const int64_t[]){2, 1, 3, 3});
  const bppsa_named_view mask = {"conv.weight", view};
  assert_int_equal(bppsa_safetensors_save(MASK_PATH, 1, &mask, 0, NULL), BPPSA_OK);
}

static void test_names(void **state) {
  (void)state;
  static const char *const names[] = {"rnn",      "gru",      "lstm",        "lenet5", "vgg11",
                                      "resnet18", "resnet50", "mobilenetv2", "vgg16",  "resnet20"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    bppsa_network network;
    assert_int_equal(bppsa_network_open(names[i], NULL, &network), BPPSA_OK);
    assert_string_equal(network.kind->name, names[i]);
    assert_ptr_equal(network.kind->family, i < 3 ? &bppsa_network_recurrent : &bppsa_network_convolutional);
    assert_int_equal(network.layers.count > 0, i >= 3);
    bppsa_network_close(&network);
    assert_null(network.kind);
  }
  assert_null(bppsa_network_kind_find("mgu"));
  assert_string_equal(bppsa_network_kind_find("some/path/net.json")->name, BPPSA_NETWORK_FILE);
}

static void test_files(void **state) {
  (void)state;
  bppsa_network network;
  put_file(FILE_PATH, text, sizeof text - 1);
  save_mask();
  assert_int_equal(bppsa_network_open(FILE_PATH, MASK_PATH, &network), BPPSA_OK);
  assert_string_equal(network.name, FILE_PATH);
  assert_int_equal(network.layers.count, 2);
  assert_int_equal(network.mask_count, 1);
  assert_string_equal(network.masks[0].name, "conv.weight");
  char masked[32], whole[32];
  bppsa_network_identity(&network, masked, sizeof masked);
  bppsa_network_close(&network);
  assert_int_equal(bppsa_network_open(FILE_PATH, NULL, &network), BPPSA_OK);
  bppsa_network_identity(&network, whole, sizeof whole);
  assert_memory_equal(masked, whole, 8);
  assert_string_not_equal(masked, whole);
  bppsa_network_close(&network);
}

static void test_refusals(void **state) {
  (void)state;
  bppsa_network network = {.name = "untouched"};
  assert_int_equal(bppsa_network_open("mgu", NULL, &network), BPPSA_ERR_ARGUMENT);
  assert_message("network: unknown 'mgu', expected rnn, gru, lstm, lenet5, vgg11, resnet18, resnet50, mobilenetv2, vgg16, "
                 "resnet20 or the path of a .json or .onnx file");
  assert_int_equal(bppsa_network_open("nowhere.json", NULL, &network), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_network_open("lenet5", "nowhere.safetensors", &network), BPPSA_ERR_ARGUMENT);
  put_file(FILE_PATH, "{", 1);
  assert_int_equal(bppsa_network_open(FILE_PATH, NULL, &network), BPPSA_ERR_FORMAT);
  assert_string_equal(network.name, "untouched");
}

static void test_configurations(void **state) {
  (void)state;
  bppsa_network network;
  assert_int_equal(bppsa_network_open("gru", NULL, &network), BPPSA_OK);
  bppsa_network_config config = bppsa_network_config_default(&network);
  const bppsa_recurrent_config usual = bppsa_recurrent_config_default();
  assert_int_equal(config.steps.seq_len * config.batch + config.steps.hidden, usual.seq_len * usual.batch + usual.hidden);
  config.loss_all = true;
  config.steps.hidden = 7;
  config.memory_limit = 12345;
  config.method.backward = BPPSA_BACKWARD_SCAN;
  const bppsa_recurrent_config made = bppsa_network_recurrent_config(&config);
  assert_true(made.loss_all && made.hidden == 7 && made.memory_limit == 12345);
  assert_int_equal(made.method.backward, BPPSA_BACKWARD_SCAN);
  char words[BPPSA_NETWORK_TEXT];
  assert_string_equal(bppsa_network_describe(&network, &config, words, sizeof words),
                      "gru: T 1000, B 16, I 1, H 7, layers 1, loss all");
  bppsa_network_close(&network);
  assert_int_equal(bppsa_network_open("lenet5", NULL, &network), BPPSA_OK);
  config = bppsa_network_config_default(&network);
  assert_int_equal(config.batch, 256);
  assert_int_equal(config.classes, 10);
  assert_int_equal(config.input, 3 * 32 * 32);
  assert_int_equal(config.steps.seq_len + config.steps.hidden + config.steps.layers, 0); /* an image has no steps */
  network.weight_gradients = BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM;
  config.memory_limit = 99;
  const bppsa_cnn_config cnn = bppsa_network_cnn_config(&network, &config);
  assert_int_equal(cnn.weight_gradients, BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM);
  assert_int_equal(cnn.memory_limit, 99);
  assert_string_equal(bppsa_network_describe(&network, &config, words, sizeof words),
                      "lenet5: B 256, 11 layers, [3, 32, 32] to 10 classes");
  bppsa_network_close(&network);
}

/* Data that the network cannot take. */
static void test_match(void **state) {
  (void)state;
  bppsa_network recurrent, images;
  bppsa_dataset *dataset = NULL;
  const bppsa_dataset_options options = {.samples = 4, .seq_len = 6};
  assert_int_equal(bppsa_network_open("rnn", NULL, &recurrent), BPPSA_OK);
  assert_int_equal(bppsa_network_open("lenet5", NULL, &images), BPPSA_OK);
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_OK);
  bppsa_network_config config = bppsa_network_config_default(&recurrent);
  assert_int_equal(bppsa_network_match(&recurrent, &config, "W", dataset), BPPSA_OK);
  const bppsa_network_config pixels = bppsa_network_config_default(&images);
  assert_int_equal(bppsa_network_match(&images, &pixels, NULL, dataset), BPPSA_ERR_SHAPE);
  assert_message("bitstream: sequences, expected images for lenet5");
  config.input = 3;
  assert_int_equal(bppsa_network_match(&recurrent, &config, "W", dataset), BPPSA_ERR_SHAPE);
  assert_message("W: weights for input size 3, expected 1 as in the data");
  assert_int_equal(bppsa_network_match(&recurrent, &config, NULL, dataset), BPPSA_OK); /* sizes of no weights follow the data */
  config.input = 1;
  config.classes = 9;
  assert_int_equal(bppsa_network_match(&recurrent, &config, "W", dataset), BPPSA_ERR_SHAPE);
  assert_message("W: weights for 9 classes, expected at least 10 as in the data");
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&recurrent);
  bppsa_network_close(&images);
}

/* Without weights a recurrent network takes all sizes from the data, with weights the number of steps alone. */
static void test_fit(void **state) {
  (void)state;
  bppsa_network network;
  bppsa_dataset *dataset = NULL;
  const bppsa_dataset_options options = {.samples = 4, .seq_len = 6, .input = 3};
  assert_int_equal(bppsa_network_open("gru", NULL, &network), BPPSA_OK);
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_OK);
  bppsa_network_config config = bppsa_network_config_default(&network);
  config.classes = 12;
  assert_int_equal(bppsa_network_fit(&network, "W", dataset, &config), BPPSA_ERR_SHAPE); /* 1 and 3 inputs */
  assert_int_equal(config.steps.seq_len, 1000);
  config.input = 3;
  assert_int_equal(bppsa_network_fit(&network, "W", dataset, &config), BPPSA_OK);
  assert_true(config.steps.seq_len == 6 && config.input == 3 && config.classes == 12);
  config.input = 1;
  assert_int_equal(bppsa_network_fit(&network, NULL, dataset, &config), BPPSA_OK);
  assert_true(config.input == 3 && config.classes == 10);
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
}

/* ---- a family of one's own ---- */

static bppsa_network_config stages_config(const bppsa_network *network) {
  return (bppsa_network_config){.batch = (int64_t)strlen(network->kind->name)};
}

static const char *stages_describe(const bppsa_network *network, const bppsa_network_config *config, char *words, size_t size) {
  snprintf(words, size, "%s of %d", network->kind->family->name, (int)config->batch);
  return words;
}

static bool stages_json(const bppsa_network *network, const bppsa_network_config *config, json_t *object) {
  (void)network;
  return bppsa_json_put_integer(object, "stages", config->batch);
}

static bppsa_status stages_create(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                                  bppsa_model **model) {
  (void)config;
  (void)device;
  (void)model;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: not made yet", network->kind->name);
}

/* A third sort of network is a table and a row: everything asks the table. */
static void test_family(void **state) {
  (void)state;
  static const bppsa_network_family stages = {.name = "chain",
                                              .samples = "images",
                                              .config = stages_config,
                                              .create = stages_create,
                                              .describe = stages_describe,
                                              .json = stages_json};
  static const bppsa_network_kind kind = {.name = "stage", .family = &stages};
  const bppsa_network network = {.kind = &kind, .name = "stage"};
  const bppsa_network_config config = bppsa_network_config_default(&network);
  const bppsa_dataset_options options = {.samples = 4, .seq_len = 6};
  char words[BPPSA_NETWORK_TEXT];
  bppsa_model *model = NULL;
  bppsa_dataset *dataset = NULL;
  assert_string_equal(bppsa_network_describe(&network, &config, words, sizeof words), "chain of 5");
  assert_string_equal(bppsa_network_identity(&network, words, sizeof words), "");
  assert_int_equal(bppsa_network_create(&network, &config, NULL, &model), BPPSA_ERR_UNSUPPORTED);
  json_t *object = json_object();
  assert_true(bppsa_network_json(&network, &config, object));
  assert_int_equal(json_integer_value(json_object_get(object, "stages")), 5);
  json_decref(object);
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_OK);
  assert_int_equal(bppsa_network_match(&network, &config, NULL, dataset), BPPSA_ERR_SHAPE);
  assert_message("bitstream: sequences, expected images for stage");
  bppsa_dataset_destroy(dataset);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),    cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_refusals), cmocka_unit_test(test_configurations),
                                     cmocka_unit_test(test_match),    cmocka_unit_test(test_fit),
                                     cmocka_unit_test(test_family)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Networks by their names and files, their configurations, and what they are checked against. */
#include "models/network.h"
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
  static const char *const names[] = {"rnn", "gru", "lenet5", "vgg11"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    bppsa_network network;
    assert_int_equal(bppsa_network_open(names[i], NULL, &network), BPPSA_OK);
    assert_string_equal(network.kind->name, names[i]);
    assert_int_equal(network.kind->convolutional, i >= 2);
    assert_int_equal(network.layers.count > 0, i >= 2);
    bppsa_network_close(&network);
    assert_null(network.kind);
  }
  assert_null(bppsa_network_kind_find("lstm"));
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
  assert_int_equal(bppsa_network_open("lstm", NULL, &network), BPPSA_ERR_ARGUMENT);
  assert_message("network: unknown 'lstm', expected rnn, gru, lenet5, vgg11 or the path of a .json file");
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
  assert_int_equal(config.seq_len * config.batch + config.hidden, usual.seq_len * usual.batch + usual.hidden);
  config.loss_all = true;
  config.hidden = 7;
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_files), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_configurations), cmocka_unit_test(test_match)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

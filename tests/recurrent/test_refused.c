/* Recurrent networks, batches and files of weights that are refused, each with what was expected. */
#include <string.h>

#include "core/base/alloc.h"
#include "recurrent/chain.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "tests/support/support.h"

static void assert_message(bppsa_status status, bppsa_status expected, const char *text) {
  assert_int_equal(status, expected);
  if (strstr(bppsa_last_error(), text) == NULL) {
    fail_msg("'%s' does not say '%s'", bppsa_last_error(), text);
  }
}

static bppsa_recurrent_config small(void) {
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  config.seq_len = 3;
  config.batch = 2;
  config.input = 2;
  config.hidden = 4;
  config.classes = 3;
  return config;
}

static void test_configurations(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_model *model = NULL;
  bppsa_recurrent_config config = small();
  config.nonlinearity = (bppsa_nonlinearity)9;
  assert_message(bppsa_recurrent_create(&config, &bppsa_rnn_cell, device, &model), BPPSA_ERR_ARGUMENT,
                 "unknown nonlinearity 9 or backward");
  config = small();
  config.method.backward = (bppsa_backward)5;
  assert_message(bppsa_recurrent_create(&config, &bppsa_rnn_cell, device, &model), BPPSA_ERR_ARGUMENT, "or backward 5");
  config = small();
  config.memory_limit = -1;
  config.optimizer_slots = 2;
  assert_message(bppsa_recurrent_create(&config, &bppsa_rnn_cell, device, &model), BPPSA_ERR_ARGUMENT,
                 "memory limit -1, optimizer slots 2, expected 0 or more");
  config = small();
  config.lengths = true;
  config.part.seq_len = 6;
  assert_message(bppsa_recurrent_create(&config, &bppsa_rnn_cell, device, &model), BPPSA_ERR_UNSUPPORTED,
                 "lengths of samples in a part of a sequence, expected a network with all steps");
  config = small();
  config.no_head = true;
  bppsa_chain *chain = NULL;
  assert_message(bppsa_recurrent_chain_create(&config, &bppsa_rnn_cell, device, &chain), BPPSA_ERR_UNSUPPORTED,
                 "chain: a network without a head, expected one with a head");
  assert_null(chain);
  assert_null(model);
  bppsa_device_destroy(device);
}

static void test_batches(void **state) {
  (void)state;
  static float values[3 * 2 * 2];
  const int64_t shape[3] = {3, 2, 2};
  bppsa_device *device = cpu_device(1);
  bppsa_model *model = NULL;
  bppsa_recurrent_config config = small();
  assert_int_equal(bppsa_recurrent_create(&config, &bppsa_rnn_cell, device, &model), BPPSA_OK);
  bppsa_view x = bppsa_view_make(values, BPPSA_F32, 3, shape), logits, dx, dh0;
  x.strides[0] = 2;
  x.strides[1] = 6; /* the same shape, another order */
  assert_message(model->ops->forward(model, &x, NULL, &logits), BPPSA_ERR_SHAPE, "x: not contiguous, expected row-major");
  x = bppsa_view_make(values, BPPSA_F32, 3, shape);
  x.device = BPPSA_CUDA;
  assert_message(model->ops->forward(model, &x, NULL, &logits), BPPSA_ERR_ARGUMENT, "x: in the memory of a GPU, expected");
  assert_message(model->ops->input_gradients(model, &dx, &dh0), BPPSA_ERR_UNSUPPORTED, "the model was created without them");
  bppsa_model_destroy(model);
  config.input_gradients = true;
  assert_int_equal(bppsa_recurrent_create(&config, &bppsa_rnn_cell, device, &model), BPPSA_OK);
  assert_message(model->ops->input_gradients(model, &dx, &dh0), BPPSA_ERR_ARGUMENT, "no backward pass precedes them");
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
}

/* A forward pass has the samples of the x that its tape was given with, because the output has room for no more. */
static void test_tapes(void **state) {
  (void)state;
  static float values[3 * 2 * 2], output[3 * 4];
  bppsa_device *device = cpu_device(1);
  bppsa_model *model = NULL;
  bppsa_recurrent_config config = small();
  config.tape = true;
  assert_int_equal(bppsa_recurrent_create(&config, &bppsa_rnn_cell, device, &model), BPPSA_OK);
  int64_t size;
  assert_int_equal(bppsa_recurrent_tape_size(model, &size), BPPSA_OK);
  float *memory = bppsa_calloc(size, sizeof *memory);
  const bppsa_view tape = bppsa_view_make(memory, BPPSA_F32, 1, &size),
                   one = bppsa_view_make(values, BPPSA_F32, 3, (int64_t[]){3, 1, 2}),
                   two = bppsa_view_make(values, BPPSA_F32, 3, (int64_t[]){3, 2, 2}),
                   h = bppsa_view_make(output, BPPSA_F32, 3, (int64_t[]){3, 1, 4});
  bppsa_view logits;
  assert_int_equal(bppsa_recurrent_use_tape(model, &one, &tape, &h), BPPSA_OK);
  assert_message(bppsa_model_forward(model, &two, NULL, NULL, &logits), BPPSA_ERR_ARGUMENT,
                 "rnn: a forward pass of 2 samples, expected the 1 that bppsa_recurrent_use_tape was given");
  assert_int_equal(bppsa_model_forward(model, &one, NULL, NULL, &logits), BPPSA_OK);
  bppsa_free(memory);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
}

static void test_weights(void **state) {
  (void)state;
  static int64_t values[16];
  const int64_t shape[2] = {4, 4};
  const bppsa_named_view tensor = {"rnn.weight_hh_l0", bppsa_view_make(values, BPPSA_I64, 2, shape)};
  bppsa_recurrent_config config = small();
  assert_message(bppsa_recurrent_infer("w", "rnn", 1, 1, &tensor, &config), BPPSA_ERR_UNSUPPORTED,
                 "w: tensor 'rnn.weight_hh_l0' is i64, expected f32 or f64");
}

/* The choice of a method names what it was not given, and leaves the result as it is. */
static void test_choices(void **state) {
  (void)state;
  const bppsa_recurrent_config config = small();
  bppsa_recurrent_config chosen = small();
  chosen.seq_len = 77;
  assert_message(bppsa_recurrent_choose(NULL, &bppsa_rnn_cell, BPPSA_CPU, &chosen), BPPSA_ERR_ARGUMENT, "config != NULL");
  assert_message(bppsa_recurrent_choose(&config, NULL, BPPSA_CPU, &chosen), BPPSA_ERR_ARGUMENT, "cell != NULL");
  assert_message(bppsa_recurrent_choose(&config, &bppsa_rnn_cell, BPPSA_CPU, NULL), BPPSA_ERR_ARGUMENT, "chosen != NULL");
  assert_int_equal(chosen.seq_len, 77);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_configurations), cmocka_unit_test(test_batches),
                                     cmocka_unit_test(test_weights), cmocka_unit_test(test_choices),
                                     cmocka_unit_test(test_tapes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

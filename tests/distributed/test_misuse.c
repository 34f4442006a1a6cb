/* Wrong calls of models that share a network among ranks: each is answered by one sentence, and the model goes on. One rank, and
 * two that must agree. */
#include <math.h>

#include "cnn/cnn.h"
#include "cnn/network.h"
#include "core/base/alloc.h"
#include "distributed/layers/layer_split.h"
#include "distributed/layers/layer_train.h"
#include "distributed/time/scan_messages.h"
#include "distributed/time/scan_ranks.h"
#include "distributed/time/split_time.h"
#include "rnn/rnn.h"
#include "tests/comm/cases.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

/* A call must fail so, and say this. */
#define REFUSED(call, expected, words)                                                                                           \
  do {                                                                                                                           \
    const bppsa_status got_ = (call);                                                                                            \
    if (got_ != (expected) || strstr(bppsa_last_error(), (words)) == NULL) {                                                     \
      return bppsa_fail(BPPSA_ERR_NUMERIC, "line %d: %s: %s, expected %s", __LINE__, bppsa_status_name(got_),                    \
                        bppsa_last_error(), (words));                                                                            \
    }                                                                                                                            \
  } while (0)

static void run_on(int64_t ranks, bppsa_status (*body)(bppsa_comm *comm, void *context)) {
  const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
  if (bppsa_comm_run(&config, body, NULL, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

/* ---- along time ---- */

enum { STEPS = 4, BATCH = 2, INPUT = 3, HIDDEN = 3, CLASSES = 2 };

static bppsa_recurrent_config small(void) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = STEPS;
  c.batch = BATCH;
  c.input = INPUT;
  c.hidden = HIDDEN;
  c.classes = CLASSES;
  c.dtype = BPPSA_F64;
  c.loss_all = true;
  return c;
}

static bppsa_status refuse_configurations(bppsa_comm *comm, const bppsa_device *device) {
  bppsa_model *model = NULL;
  bppsa_recurrent_config c = small();
  bppsa_split_time split = {.comm = comm, .micro_batches = 1, .tag = -1};
  REFUSED(bppsa_split_time_create(&split, &c, &bppsa_rnn_cell, device, &model), BPPSA_ERR_ARGUMENT,
          "split time: tag -1, expected 0 .. ");
  split.tag = BPPSA_COMM_MAX_TAG;
  REFUSED(bppsa_split_time_create(&split, &c, &bppsa_rnn_cell, device, &model), BPPSA_ERR_ARGUMENT, "split time: tag 32767");
  split.tag = 0;
  c.part.seq_len = 2;
  REFUSED(bppsa_split_time_create(&split, &c, &bppsa_rnn_cell, device, &model), BPPSA_ERR_ARGUMENT,
          "a configuration with a factory, ends or a part of its own, expected none");
  CHECK(model == NULL);
  return BPPSA_OK;
}

static bppsa_status misuse_time(bppsa_comm *comm, void *context) {
  static double numbers[STEPS * (BATCH + 1) * INPUT];
  (void)context;
  bppsa_device *device = cpu_device(1);
  BPPSA_TRY(refuse_configurations(comm, device));
  const bppsa_split_time split = {.comm = comm, .micro_batches = 1};
  const bppsa_recurrent_config c = small();
  bppsa_model *m = NULL;
  BPPSA_TRY(bppsa_split_time_create(&split, &c, &bppsa_rnn_cell, device, &m));
  const bppsa_view seed = bppsa_view_make(numbers, BPPSA_F64, 3, (int64_t[]){STEPS, BATCH, CLASSES});
  const bppsa_view x = bppsa_view_make(numbers, BPPSA_F64, 3, (int64_t[]){STEPS, BATCH, INPUT});
  const bppsa_view many = bppsa_view_make(numbers, BPPSA_F64, 3, (int64_t[]){STEPS, BATCH + 1, INPUT});
  const bppsa_view f32 = bppsa_view_make(numbers, BPPSA_F32, 3, (int64_t[]){STEPS, BATCH, INPUT});
  const bppsa_view wide = bppsa_view_make(numbers, BPPSA_F64, 3, (int64_t[]){1, BATCH, HIDDEN + 1});
  bppsa_view logits, dx, dh0;
  REFUSED(m->ops->backward(m, &seed), BPPSA_ERR_ARGUMENT, "backward: no forward pass precedes it");
  REFUSED(m->ops->input_gradients(m, &dx, &dh0), BPPSA_ERR_UNSUPPORTED, "input gradients: the model was created without them");
  REFUSED(m->ops->forward(m, &many, NULL, &logits), BPPSA_ERR_SHAPE, "x has 3 samples, expected 1 .. 2");
  REFUSED(m->ops->forward(m, &f32, NULL, &logits), BPPSA_ERR_SHAPE, "x is f32 [4, 2, 3], expected f64 [4, 2, 3] without gaps");
  REFUSED(m->ops->forward(m, &x, &wide, &logits), BPPSA_ERR_SHAPE, "h0 is f64 [1, 2, 4], expected f64 [1, 2, 3]");
  BPPSA_TRY(m->ops->forward(m, &x, NULL, &logits));
  REFUSED(m->ops->backward(m, &x), BPPSA_ERR_SHAPE, "expected f64 [4, 2, 2]");
  BPPSA_TRY(m->ops->backward(m, &seed));
  bppsa_model_forget(m);
  REFUSED(m->ops->backward(m, &seed), BPPSA_ERR_ARGUMENT, "backward: no forward pass precedes it");
  BPPSA_TRY(m->ops->forward(m, &x, NULL, &logits));
  BPPSA_TRY(m->ops->backward(m, &seed));
  bppsa_model_destroy(m);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static bppsa_status misuse_time_with_gradients(bppsa_comm *comm, void *context) {
  (void)context;
  bppsa_device *device = cpu_device(1);
  const bppsa_split_time split = {.comm = comm, .micro_batches = 1};
  bppsa_recurrent_config c = small();
  c.input_gradients = true;
  bppsa_model *m = NULL;
  bppsa_view dx, dh0;
  BPPSA_TRY(bppsa_split_time_create(&split, &c, &bppsa_rnn_cell, device, &m));
  REFUSED(m->ops->input_gradients(m, &dx, &dh0), BPPSA_ERR_ARGUMENT, "input gradients: no backward pass precedes them");
  bppsa_model_destroy(m);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static void along_time(void **state) {
  (void)state;
  run_on(1, misuse_time);
  run_on(1, misuse_time_with_gradients);
}

/* ---- scans ---- */

static bppsa_status misuse_scan(bppsa_comm *comm, void *context) {
  (void)context;
  bppsa_device *device = cpu_device(1);
  bppsa_scan_config c = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  c.element = BPPSA_ELEMENT_DIAGONAL;
  c.dim = 3;
  c.batch = 2;
  c.jacobians = 2;
  c.method = bppsa_scan_method_of(BPPSA_SCAN_LINEAR);
  BPPSA_TRY(bppsa_scan_plan_create(&c, &plan));
  BPPSA_TRY(bppsa_ranks_scan_create(comm, 1, plan, device, &executor));
  double gradients[3 * 2 * 3] = {0};
  bppsa_scan_operands operands = {.batch = 3, .gradients = gradients};
  REFUSED(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT, "batch 3 and its gradients, expected 1 .. 2 as planned");
  operands = (bppsa_scan_operands){.batch = 2};
  REFUSED(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT, "batch 2 and no gradients");
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static void scans(void **state) {
  (void)state;
  bppsa_scan_message messages[4];
  int64_t count = 7;
  run_on(1, misuse_scan);
  assert_int_equal(bppsa_ranks_scan_messages(BPPSA_SCAN_AUTO, 2, messages, &count), BPPSA_ERR_UNSUPPORTED);
  assert_message("messages of ranks: auto, expected linear, chunked or blelloch");
  assert_int_equal(count, 7);
}

/* ---- layers ---- */

static bppsa_cnn_network lenet5(void) {
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  return network;
}

static bppsa_status misuse_layers(bppsa_comm *comm, void *context) {
  (void)context;
  bppsa_device *device = cpu_device(1);
  bppsa_cnn_network network = lenet5();
  bppsa_model *m = NULL;
  bppsa_layer_split_config config = {.strategy = BPPSA_LAYERS_FILTER, .group = comm, .batch = 2, .dtype = BPPSA_F32};
  BPPSA_TRY(bppsa_layer_split_create(&network, &config, device, &m));
  const int64_t *in = network.in, classes = m->classes;
  float *numbers = bppsa_calloc(3 * in[0] * in[1] * in[2], sizeof *numbers);
  CHECK(numbers != NULL);
  const bppsa_view x = bppsa_view_make(numbers, BPPSA_F32, 4, (int64_t[]){2, in[0], in[1], in[2]});
  const bppsa_view many = bppsa_view_make(numbers, BPPSA_F32, 4, (int64_t[]){3, in[0], in[1], in[2]});
  const bppsa_view flat = bppsa_view_make(numbers, BPPSA_F32, 1, (int64_t[]){2});
  const bppsa_view seed = bppsa_view_make(numbers, BPPSA_F32, 2, (int64_t[]){2, classes});
  bppsa_view logits, dx, dh0;
  REFUSED(m->ops->backward(m, &seed), BPPSA_ERR_ARGUMENT, "backward: no forward pass precedes it");
  REFUSED(m->ops->forward(m, &x, &x, &logits), BPPSA_ERR_ARGUMENT, "an initial state, expected none");
  REFUSED(m->ops->forward(m, &flat, NULL, &logits), BPPSA_ERR_SHAPE, "input: f32 [2], expected contiguous f32 [2, ");
  REFUSED(m->ops->forward(m, &many, NULL, &logits), BPPSA_ERR_SHAPE, "input: 3 samples, expected 1 .. 2");
  REFUSED(m->ops->input_gradients(m, &dx, &dh0), BPPSA_ERR_UNSUPPORTED, "input gradients: the model was created without them");
  REFUSED(bppsa_layer_split_tensor(m, 0, false, numbers), BPPSA_ERR_ARGUMENT, "tensor 0, expected 0 .. ");
  BPPSA_TRY(m->ops->forward(m, &x, NULL, &logits));
  REFUSED(bppsa_layer_split_tensor(m, network.count + 1, false, numbers), BPPSA_ERR_ARGUMENT, ", expected 0 .. ");
  REFUSED(bppsa_layer_split_tensor(m, 1, true, numbers), BPPSA_ERR_ARGUMENT, "tensor 1, expected 0 .. ");
  REFUSED(m->ops->backward(m, &x), BPPSA_ERR_SHAPE, "seed: f32 [2, ");
  BPPSA_TRY(m->ops->backward(m, &seed));
  REFUSED(bppsa_layer_split_tensor(m, 0, true, numbers), BPPSA_ERR_UNSUPPORTED, "the model was created without them");
  bppsa_model_destroy(m);
  m = NULL;
  config.input_gradients = true;
  BPPSA_TRY(bppsa_layer_split_create(&network, &config, device, &m));
  REFUSED(m->ops->input_gradients(m, &dx, &dh0), BPPSA_ERR_ARGUMENT, "input gradients: no backward pass precedes them");
  BPPSA_TRY(m->ops->forward(m, &x, NULL, &logits));
  BPPSA_TRY(m->ops->backward(m, &seed));
  BPPSA_TRY(m->ops->input_gradients(m, &dx, &dh0));
  CHECK(dx.ndim == 4 && dx.shape[0] == 2 && bppsa_view_count(&dh0) == 0);
  bppsa_nonfinite where;
  CHECK(!m->ops->find_nonfinite(m, &where));
  numbers[in[0] * in[1] * in[2] + 3] = (float)NAN; /* of the second sample */
  BPPSA_TRY(m->ops->forward(m, &x, NULL, &logits));
  CHECK(m->ops->find_nonfinite(m, &where) && where.sample == 1);
  bppsa_model_forget(m);
  CHECK(!m->ops->find_nonfinite(m, &where));
  REFUSED(m->ops->backward(m, &seed), BPPSA_ERR_ARGUMENT, "backward: no forward pass precedes it");
  REFUSED(m->ops->input_gradients(m, &dx, &dh0), BPPSA_ERR_ARGUMENT, "input gradients: no backward pass precedes them");
  REFUSED(bppsa_layer_split_tensor(m, 0, false, numbers), BPPSA_ERR_ARGUMENT, "tensor 0, expected 0 .. ");
  bppsa_model_destroy(m);
  bppsa_free(numbers);
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

/* Groups that the ranks cannot form. */
static bppsa_status misuse_groups(bppsa_comm *comm, void *context) {
  (void)context;
  bppsa_device *device = cpu_device(1);
  bppsa_cnn_network network = lenet5();
  bppsa_cnn_config whole = bppsa_cnn_config_default();
  bppsa_model *model = NULL;
  bppsa_layer_train *train = NULL;
  whole.batch = 2;
  BPPSA_TRY(bppsa_cnn_create(&network, &whole, device, &model));
  bppsa_layer_train_config config = {.strategy = BPPSA_LAYERS_FILTER, .group = 3, .batch = 2};
  REFUSED(bppsa_layer_train_create(comm, &network, model, &config, device, &train), BPPSA_ERR_ARGUMENT,
          "groups of 3 ranks, expected a divisor of the 2 ranks");
  config.group = 1;
  config.batch = 1;
  REFUSED(bppsa_layer_train_create(comm, &network, model, &config, device, &train), BPPSA_ERR_ARGUMENT, "2 groups");
  CHECK(train == NULL);
  const bppsa_cnn_network empty = {0};
  const bppsa_layer_split_config split = {.strategy = BPPSA_LAYERS_FILTER, .group = comm, .batch = 2, .dtype = BPPSA_F32};
  bppsa_model *none = NULL;
  REFUSED(bppsa_layer_split_create(&empty, &split, device, &none), BPPSA_ERR_ARGUMENT,
          "network: no linear operator at its end, expected one");
  CHECK(none == NULL);
  bppsa_model_destroy(model);
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static void layers(void **state) {
  (void)state;
  run_on(1, misuse_layers);
  run_on(2, misuse_groups);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(along_time), cmocka_unit_test(scans), cmocka_unit_test(layers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

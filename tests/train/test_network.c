/* RNN and GRU in the training loop on test_device(): curves as on a CPU, the same bits from run to run, and the place where a NaN
 * appeared. On a GPU 300 iterations of the main job; elsewhere a small one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cnn/cnn.h"
#include "core/base/alloc.h"
#include "core/files/npy.h"
#include "gru/gru.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "tests/support/support.h"
#include "train/trainer.h"

enum { MOST_ITERATIONS = 300, BATCH = 16 };

static bppsa_device *device;

/* How a network is trained. */
typedef struct {
  const bppsa_cell *cell;
  bppsa_dtype dtype;
  int64_t hidden, layers, chunks; /* chunks 0: sequential BP */
  bool loss_all;
  bppsa_rate_kind rate; /* but for a constant one with another optimiser and weight decay too */
  bppsa_optimizer_kind optimizer;
} job;

typedef struct {
  double losses[MOST_ITERATIONS];
  int64_t steps;
  bppsa_model *model;
} curve;

static bool is_large(void) {
  return bppsa_device_get_kind(device) == BPPSA_CUDA && !is_emulated(device);
}

static bppsa_status keep_loss(void *context, const bppsa_train_record *record) {
  curve *c = context;
  c->losses[c->steps++] = record->loss;
  return BPPSA_OK;
}

static bppsa_model *make(const job *j, const bppsa_device *where, int64_t seq_len) {
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  bppsa_model *model = NULL;
  config.seq_len = seq_len;
  config.batch = BATCH;
  config.dtype = j->dtype;
  config.hidden = j->hidden;
  config.layers = j->layers;
  config.loss_all = j->loss_all;
  config.method.backward = j->chunks > 0 ? BPPSA_BACKWARD_SCAN : BPPSA_BACKWARD_BP;
  config.method.scan.algorithm = BPPSA_SCAN_CHUNKED;
  config.method.scan.chunks = j->chunks;
  assert_int_equal(bppsa_recurrent_create(&config, j->cell, where, &model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(model, BPPSA_INIT_DEFAULT, 0), BPPSA_OK);
  return model;
}

static bppsa_dataset *bitstream(int64_t samples, int64_t seq_len, bool loss_all) {
  const bppsa_dataset_options options = {.samples = samples, .seq_len = seq_len, .labels_per_step = loss_all};
  bppsa_dataset *data = NULL;
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &data), BPPSA_OK);
  return data;
}

static curve train(const job *j, const bppsa_device *where) {
  const int64_t seq_len = is_large() ? 1000 : 23;
  bppsa_dataset *data = bitstream(is_large() ? 32000 : 40, seq_len, j->loss_all); /* 40: batches of 16, 16 and 8 */
  curve c = {.model = make(j, where, seq_len)};
  const bppsa_train_callbacks callbacks = {.context = &c, .on_step = keep_loss};
  bppsa_train_config config = bppsa_train_config_default();
  bppsa_train_result result;
  config.iterations = is_large() ? MOST_ITERATIONS : 8;
  config.batch = BATCH;
  config.optimizer.lr = 3e-4;
  if (j->rate != BPPSA_RATE_CONSTANT) {
    config.optimizer = (bppsa_optimizer_config){j->optimizer, 0.05, 0.0, 0.9, 0.999, 1e-8, 0.1};
    config.rate = (bppsa_rate_config){.kind = j->rate, .step_size = 2, .gamma = 0.5, .warmup = 2};
  }
  assert_int_equal(bppsa_train(&config, c.model, data, where, &callbacks, &result), BPPSA_OK);
  assert_int_equal(c.steps, config.iterations);
  assert_true(result.forward_s > 0 && result.backward_s > 0 && result.update_s > 0);
  bppsa_dataset_destroy(data);
  return c;
}

/* If a recorded step kept its first learning rate, the losses of the last jobs would show it. */
static const job jobs[] = {{&bppsa_rnn_cell, BPPSA_F32, 20, 1, 0, false, BPPSA_RATE_CONSTANT, BPPSA_ADAM},
                           {&bppsa_rnn_cell, BPPSA_F32, 20, 1, 4, false, BPPSA_RATE_CONSTANT, BPPSA_ADAM},
                           {&bppsa_rnn_cell, BPPSA_F64, 7, 2, 3, true, BPPSA_RATE_CONSTANT, BPPSA_ADAM},
                           {&bppsa_gru_cell, BPPSA_F32, 20, 1, 0, false, BPPSA_RATE_CONSTANT, BPPSA_ADAM},
                           {&bppsa_gru_cell, BPPSA_F32, 20, 1, 4, false, BPPSA_RATE_CONSTANT, BPPSA_ADAM},
                           {&bppsa_gru_cell, BPPSA_F64, 7, 2, 3, true, BPPSA_RATE_CONSTANT, BPPSA_ADAM},
                           {&bppsa_rnn_cell, BPPSA_F64, 7, 1, 3, false, BPPSA_RATE_COSINE, BPPSA_SGD},
                           {&bppsa_rnn_cell, BPPSA_F64, 7, 1, 3, false, BPPSA_RATE_STEP, BPPSA_ADAMW}};

static void curves_are_the_processors(void **state) {
  (void)state;
  bppsa_device *cpu = cpu_device(2);
  for (size_t k = 0; k < sizeof jobs / sizeof jobs[0]; ++k) {
    const curve host = train(&jobs[k], cpu), here = train(&jobs[k], device), again = train(&jobs[k], device);
    const double bound = jobs[k].dtype == BPPSA_F32 ? 1e-3 : 1e-9;
    for (int64_t i = 0; i < host.steps; ++i) {
      if (!(fabs(here.losses[i] - host.losses[i]) < bound)) {
        fail_msg("job %d, iteration %d: loss %.17g, the processor's %.17g", (int)k, (int)i + 1, here.losses[i], host.losses[i]);
      }
    }
    assert_memory_equal(here.losses, again.losses, sizeof here.losses);
    for (int64_t p = 0; p < here.model->parameter_count; ++p) {
      const bppsa_view *value = &here.model->parameters[p].value;
      assert_memory_equal(value->data, again.model->parameters[p].value.data, bppsa_view_bytes(value));
    }
    bppsa_model_destroy(host.model);
    bppsa_model_destroy(here.model);
    bppsa_model_destroy(again.model);
  }
  bppsa_device_destroy(cpu);
}

/* Real targets, or labels of which some are ignored, for every step: two losses, with data sets made on the host. */
static bppsa_dataset *compared(bool targets) {
  enum { N = 40, STEPS = 6, OUTPUTS = 3 };
  static double x[N * STEPS], y[N * STEPS * OUTPUTS];
  static int64_t labels[N * STEPS];
  const int64_t x_shape[3] = {N, STEPS, 1}, y_shape[3] = {N, STEPS, OUTPUTS};
  const bppsa_dataset_options options = {
      .labels_per_step = true,
      .objective = {targets ? BPPSA_LOSS_SQUARED : BPPSA_LOSS_CROSS_ENTROPY, .ignores = !targets, .ignored = -100}};
  bppsa_dataset *data = NULL;
  for (int i = 0; i < N * STEPS * OUTPUTS; ++i) {
    y[i] = sin((double)i);
    x[i / OUTPUTS] = cos((double)i);
    labels[i / OUTPUTS] = i / OUTPUTS % 4 == 1 ? -100 : i % OUTPUTS;
  }
  const bppsa_view inputs = bppsa_view_make(x, BPPSA_F64, 3, x_shape);
  const bppsa_view outputs =
      bppsa_view_make(targets ? (void *)y : (void *)labels, targets ? BPPSA_F64 : BPPSA_I64, targets ? 3 : 2, y_shape);
  assert_int_equal(bppsa_npy_save("network_x.npy", &inputs), BPPSA_OK);
  assert_int_equal(bppsa_npy_save("network_y.npy", &outputs), BPPSA_OK);
  assert_int_equal(bppsa_dataset_create("npy:network_x.npy,network_y.npy", &options, &data), BPPSA_OK);
  return data;
}

static curve train_compared(bool targets, const bppsa_device *where) {
  bppsa_dataset *data = compared(targets);
  bppsa_recurrent_config shape = bppsa_recurrent_config_default();
  bppsa_train_config config = bppsa_train_config_default();
  bppsa_train_result result;
  bppsa_evaluation evaluation;
  curve c = {.steps = 0};
  const bppsa_train_callbacks callbacks = {.context = &c, .on_step = keep_loss};
  shape.seq_len = data->seq_len;
  shape.batch = BATCH;
  shape.classes = 3;
  shape.hidden = 5;
  shape.dtype = BPPSA_F64;
  shape.loss_all = true;
  config.iterations = 8; /* batches of 16, 16 and 8: a GPU replays both sizes */
  config.batch = BATCH;
  config.optimizer.lr = 0.05;
  assert_int_equal(bppsa_recurrent_create(&shape, &bppsa_rnn_cell, where, &c.model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(c.model, BPPSA_INIT_DEFAULT, 0), BPPSA_OK);
  assert_int_equal(bppsa_train(&config, c.model, data, where, &callbacks, &result), BPPSA_OK);
  assert_true(targets == isnan(result.last.accuracy));
  assert_int_equal(bppsa_evaluate(c.model, data, where, 0, 40, BATCH, &evaluation), BPPSA_OK);
  assert_true(targets == isnan(evaluation.accuracy));
  c.losses[c.steps++] = evaluation.loss;
  bppsa_dataset_destroy(data);
  return c;
}

static void other_losses_train_alike(void **state) {
  (void)state;
  bppsa_device *cpu = cpu_device(2);
  for (int targets = 0; targets < 2; ++targets) {
    const curve host = train_compared(targets == 1, cpu), here = train_compared(targets == 1, device);
    for (int64_t i = 0; i < host.steps; ++i) {
      assert_true(fabs(here.losses[i] - host.losses[i]) < 1e-9);
    }
    assert_true(host.losses[8] < host.losses[0]);
    bppsa_model_destroy(host.model);
    bppsa_model_destroy(here.model);
  }
  bppsa_device_destroy(cpu);
}

/* Overwrites a weight after step 4. */
static bppsa_status spoil(void *context, const bppsa_train_record *record) {
  bppsa_model *model = context;
  if (record->step == 4) {
    BPPSA_TRY(bppsa_model_pull(model, false));
    bppsa_view_set(&model->parameters[0].value, 2, (double)NAN);
    return bppsa_model_push(model);
  }
  return BPPSA_OK;
}

/* Step 5 is a full batch, which a GPU replays; the last pass in which the host took part was step 3, with a smaller batch. */
static void a_nan_is_found_where_it_appeared(void **state) {
  (void)state;
  for (size_t k = 0; k < sizeof jobs / sizeof jobs[0]; ++k) {
    char says[256];
    int64_t order[40];
    bppsa_dataset *data = bitstream(40, 23, jobs[k].loss_all);
    bppsa_model *model = make(&jobs[k], device, 23);
    const bppsa_train_callbacks callbacks = {.context = model, .on_step = spoil};
    bppsa_train_config config = bppsa_train_config_default();
    bppsa_train_result result;
    config.epochs = 3;
    config.batch = BATCH;
    bppsa_shuffle(0, 2, 40, order);
    snprintf(
        says, sizeof says,
        "training step 5 (epoch 2): non-finite hidden state in layer 0, time step 1, sample 0 of the batch (data set index %d)",
        (int)order[16]);
    assert_int_equal(bppsa_train(&config, model, data, device, &callbacks, &result), BPPSA_ERR_NUMERIC);
    assert_string_equal(bppsa_last_error(), says);
    bppsa_model_destroy(model);
    bppsa_dataset_destroy(data);
  }
}

enum { WINDOWS = 3, PIECE = 5, STREAMS = 4, SAMPLES = 14 };

/* Trains a GRU on streams whose gradients go back through three batches, in rows of several lengths or in whole ones. */
static bppsa_status train_streams(bool whole, bool reset_state, bool lengths, curve *c) {
  bppsa_dataset *data = bitstream(SAMPLES, PIECE, true);
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  bppsa_train_config trained = bppsa_train_config_default();
  bppsa_train_result result;
  const bppsa_train_callbacks callbacks = {.context = c, .on_step = keep_loss};
  data->streams = true;
  data->windows = WINDOWS;
  data->whole_rows = whole;
  data->lengths = lengths ? bppsa_calloc(SAMPLES, sizeof *data->lengths) : NULL;
  for (int64_t i = 0; lengths && i < SAMPLES; ++i) {
    data->lengths[i] = PIECE;
  }
  config.seq_len = WINDOWS * PIECE;
  config.batch = STREAMS;
  config.dtype = BPPSA_F64;
  config.hidden = 3;
  config.loss_all = true;
  config.method.backward = BPPSA_BACKWARD_BP;
  config.lengths = !whole;
  config.resets = whole;
  config.reset_state = reset_state;
  *c = (curve){0};
  assert_int_equal(bppsa_recurrent_create(&config, &bppsa_gru_cell, device, &c->model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(c->model, BPPSA_INIT_DEFAULT, 0), BPPSA_OK);
  trained.iterations = 9; /* more than two epochs, whose last batches have two samples */
  trained.batch = STREAMS;
  trained.order.kind = BPPSA_ORDER_DATA;
  const bppsa_status status = bppsa_train(&trained, c->model, data, device, &callbacks, &result);
  bppsa_model_destroy(c->model);
  bppsa_dataset_destroy(data);
  return status;
}

static void whole_rows_train_alike(void **state) {
  (void)state;
  curve ragged, whole;
  assert_int_equal(train_streams(false, false, false, &ragged), BPPSA_OK);
  assert_int_equal(train_streams(true, false, false, &whole), BPPSA_OK);
  assert_int_equal(whole.steps, 9);
  for (int64_t i = 0; i < 9; ++i) {
    assert_true(fabs(ragged.losses[i] - whole.losses[i]) < 1e-12);
  }
  assert_int_equal(train_streams(true, true, false, &whole), BPPSA_ERR_UNSUPPORTED);
  assert_string_equal(bppsa_last_error(),
                      "gradients through 3 batches: of a network with a reset state in whole rows, expected rows of "
                      "several lengths");
  assert_int_equal(train_streams(true, false, true, &whole), BPPSA_ERR_UNSUPPORTED);
  assert_string_equal(bppsa_last_error(),
                      "gradients through 3 batches: of samples with lengths in whole rows, expected rows of several "
                      "lengths");
}

/* This program is not linked with the stand-in for cuDNN: on the SIMT machine there are no convolutions, but there are the other
 * operators. */
static void convolutions_need_cudnn(void **state) {
  (void)state;
  static const char linear[] = "{\"input\": [4, 1, 1], \"layers\": [{\"name\": \"h\", \"op\": \"linear\", \"out\": 2}]}";
  bppsa_cnn_network network;
  bppsa_model *model = NULL;
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = 1;
  if (!is_emulated(device)) {
    skip();
  }
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  assert_int_equal(bppsa_cnn_create(&network, &config, device, &model), BPPSA_ERR_UNSUPPORTED);
  assert_non_null(strstr(bppsa_last_error(), "convolutions on a GPU: this build has no cuDNN; install it"));
  bppsa_cnn_network_free(&network);
  assert_int_equal(bppsa_cnn_network_parse("linear", linear, (int64_t)sizeof linear - 1, &network), BPPSA_OK);
  assert_int_equal(bppsa_cnn_create(&network, &config, device, &model), BPPSA_OK);
  bppsa_model_destroy(model);
  bppsa_cnn_network_free(&network);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(curves_are_the_processors), cmocka_unit_test(other_losses_train_alike),
                                     cmocka_unit_test(a_nan_is_found_where_it_appeared), cmocka_unit_test(whole_rows_train_alike),
                                     cmocka_unit_test(convolutions_need_cudnn)};
  device = test_device(2);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}

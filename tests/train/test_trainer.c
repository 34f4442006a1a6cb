/* The training loop and evaluation with a network made for the test, in host memory or on the test's GPU. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/files/npy.h"
#include "tests/support/support.h"
#include "tests/train/tiny_model.h"
#include "train/ranks.h"
#include "train/trainer.h"

static bppsa_device *device; /* NULL: a processor */

#define LOG "train_trainer.jsonl"

enum { SEQ_LEN = 40, CLASSES = 10, MAX_STEPS = 512 };

static bppsa_dataset *bitstream(int64_t samples, bool per_step) {
  const bppsa_dataset_options options = {.samples = samples, .seq_len = SEQ_LEN, .labels_per_step = per_step};
  bppsa_dataset *dataset = NULL;
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_OK);
  return dataset;
}

/* What the callbacks were given. */
typedef struct {
  int64_t steps, epochs, calls, progress;
  bppsa_train_record step[MAX_STEPS], epoch[MAX_STEPS];
  int64_t stop_at; /* on_step fails at this step; 0: never */
  double last_eta;
} seen;

static bppsa_status on_step(void *context, const bppsa_train_record *record) {
  seen *s = context;
  s->step[s->steps++ % MAX_STEPS] = *record;
  return record->step == s->stop_at ? bppsa_fail(BPPSA_ERR_UNSUPPORTED, "enough") : BPPSA_OK;
}

static bppsa_status on_epoch(void *context, const bppsa_train_record *record) {
  seen *s = context;
  s->epoch[s->epochs++ % MAX_STEPS] = *record;
  return BPPSA_OK;
}

static void on_progress(void *context, const bppsa_progress *progress) {
  seen *s = context;
  s->progress += 1;
  assert_int_equal(progress->step, s->progress);
  assert_true(progress->elapsed_s >= 0.0 && progress->eta_s >= 0.0);
  s->last_eta = progress->eta_s;
}

static bppsa_train_callbacks watch(seen *s) {
  memset(s, 0, sizeof *s);
  return (bppsa_train_callbacks){.context = s, .on_step = on_step, .on_epoch = on_epoch, .progress = on_progress};
}

/* The log's lines as a JSON array; each must parse on its own. */
static json_t *read_log(void) {
  char text[1024];
  json_t *lines = json_array();
  FILE *file = fopen(LOG, "r");
  assert_non_null(file);
  while (fgets(text, sizeof text, file) != NULL) {
    json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(line);
    assert_int_equal(json_array_append_new(lines, line), 0);
  }
  (void)fclose(file);
  return lines;
}

static double field(const json_t *lines, size_t line, const char *key) {
  const json_t *value = json_object_get(json_array_get(lines, line), key);
  assert_non_null(value);
  return json_is_null(value) ? (double)NAN : json_number_value(value);
}

static void iterations_lower_the_loss_and_log_every_step(void **state) {
  (void)state;
  static seen s;
  const bppsa_train_callbacks callbacks = watch(&s);
  for (int per_step = 0; per_step < 2; ++per_step) {
    bppsa_dataset *dataset = bitstream(200, per_step == 1);
    tiny_model *model = tiny_create(per_step == 1 ? BPPSA_F64 : BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, per_step == 1);
    bppsa_train_config config = bppsa_train_config_default();
    bppsa_train_result result;
    config.iterations = 300;
    config.optimizer.lr = 0.05;
    config.log_path = LOG;
    memset(&s, 0, sizeof s);
    assert_int_equal(bppsa_train(&config, &model->base, dataset, device, &callbacks, &result), BPPSA_OK);
    assert_int_equal(result.steps, 300);
    assert_int_equal(result.epochs, 24); /* 13 steps an epoch: 12 of 16 and one of 8 */
    assert_int_equal(s.steps, 300);
    assert_int_equal(s.epochs, 23);
    assert_int_equal(s.progress, 300);
    assert_true(s.last_eta == 0.0);
    json_t *lines = read_log();
    assert_int_equal(json_array_size(lines), 300);
    double early = 0.0, late = 0.0;
    for (size_t i = 0; i < 300; ++i) {
      assert_true(field(lines, i, "step") == (double)(i + 1));
      assert_true(field(lines, i, "epoch") == (double)(i / 13 + 1));
      assert_true(field(lines, i, "loss") == s.step[i].loss);
      assert_true(field(lines, i, "grad_norm") > 0.0);
      assert_null(json_object_get(json_array_get(lines, i), "validation_loss"));
      early += i < 20 ? s.step[i].loss : 0.0;
      late += i >= 280 ? s.step[i].loss : 0.0;
    }
    assert_true(late < (per_step == 1 ? 0.98 : 0.75) * early);
    assert_true(result.first.loss == s.step[0].loss && result.last.loss == s.step[299].loss);
    json_decref(lines);
    bppsa_model_destroy(&model->base);
    bppsa_dataset_destroy(dataset);
  }
}

/* Each epoch visits every training sample once, and no held-out sample; the epoch's line has the mean over its rows. */
static void epochs_log_means_and_validation(void **state) {
  (void)state;
  static seen s;
  const bppsa_train_callbacks callbacks = watch(&s);
  bppsa_dataset *dataset = bitstream(50, false);
  tiny_model *model = tiny_create(BPPSA_F64, SEQ_LEN, 1, CLASSES, 16, false);
  bppsa_train_config config = bppsa_train_config_default();
  bppsa_train_result result;
  config.epochs = 3;
  config.validation = 0.2;
  config.log_path = LOG;
  assert_int_equal(bppsa_train(&config, &model->base, dataset, device, &callbacks, &result), BPPSA_OK);
  assert_int_equal(result.steps, 9); /* 40 samples: 16, 16, 8 */
  assert_int_equal(result.epochs, 3);
  json_t *lines = read_log();
  assert_int_equal(json_array_size(lines), 3);
  for (size_t e = 0; e < 3; ++e) {
    const bppsa_train_record *step = &s.step[3 * e];
    const double loss = (16 * step[0].loss + 16 * step[1].loss + 8 * step[2].loss) / 40;
    assert_true(fabs(field(lines, e, "loss") - loss) < 1e-14);
    assert_true(fabs(field(lines, e, "grad_norm") - (step[0].grad_norm + step[1].grad_norm + step[2].grad_norm) / 3) < 1e-14);
    assert_true(field(lines, e, "step") == 3.0 * (double)(e + 1));
    assert_true(field(lines, e, "epoch") == (double)(e + 1));
    assert_true(field(lines, e, "validation_loss") == s.epoch[e].validation_loss);
    assert_true(s.epoch[e].has_validation && !step[2].has_validation);
  }
  bppsa_evaluation evaluation; /* of the final weights, on samples 40 .. 49, in smaller batches */
  assert_int_equal(bppsa_evaluate(&model->base, dataset, device, 40, 10, 3, &evaluation), BPPSA_OK);
  assert_int_equal(evaluation.samples, 10);
  assert_true(fabs(evaluation.loss - field(lines, 2, "validation_loss")) < 1e-14);
  assert_true(evaluation.accuracy == field(lines, 2, "validation_accuracy"));
  assert_true(result.last.has_validation && result.last.validation_loss == s.epoch[2].validation_loss);
  json_decref(lines);
  bppsa_model_destroy(&model->base);
  bppsa_dataset_destroy(dataset);
}

static void set_weight(tiny_model *model, int64_t i, double value) {
  bppsa_view_set(&model->parameters[0].value, i, value);
  assert_int_equal(bppsa_model_push(&model->base), BPPSA_OK);
}

/* One full-batch epoch without shuffling effects: the first step is gradient descent on the evaluated loss. */
static void first_step_is_gradient_descent(void **state) {
  (void)state;
  bppsa_dataset *dataset = bitstream(30, false);
  tiny_model *model = tiny_create(BPPSA_F64, SEQ_LEN, 1, CLASSES, 30, false);
  bppsa_evaluation before, above, below;
  bppsa_train_result result;
  bppsa_train_config config = bppsa_train_config_default();
  assert_int_equal(bppsa_evaluate(&model->base, dataset, device, 0, 30, 30, &before), BPPSA_OK);
  double slopes[CLASSES], weights[CLASSES];
  for (int64_t c = 0; c < CLASSES; ++c) {
    const double kept = bppsa_view_get(&model->parameters[0].value, c), h = 1e-5;
    set_weight(model, c, kept + h);
    assert_int_equal(bppsa_evaluate(&model->base, dataset, device, 0, 30, 30, &above), BPPSA_OK);
    set_weight(model, c, kept - h);
    assert_int_equal(bppsa_evaluate(&model->base, dataset, device, 0, 30, 30, &below), BPPSA_OK);
    set_weight(model, c, kept);
    slopes[c] = (above.loss - below.loss) / (2 * h);
    weights[c] = kept;
  }
  config.iterations = 1;
  config.batch = 30;
  config.optimizer.kind = BPPSA_SGD;
  config.optimizer.lr = 0.5;
  config.clip_norm = 0.01;
  assert_int_equal(bppsa_train(&config, &model->base, dataset, device, NULL, &result), BPPSA_OK);
  assert_true(fabs(result.first.loss - before.loss) < 1e-14);
  assert_true(result.first.accuracy == before.accuracy);
  assert_true(result.first.grad_norm > 0.01);
  const double factor = 0.01 / (result.first.grad_norm + 1e-6);
  for (int64_t c = 0; c < CLASSES; ++c) {
    const double moved = weights[c] - bppsa_view_get(&model->parameters[0].value, c);
    assert_true(fabs(moved - 0.5 * factor * slopes[c]) < 1e-10);
  }
  bppsa_model_destroy(&model->base);
  bppsa_dataset_destroy(dataset);
}

/* The same seed gives the same weights with any number of threads; another seed gives another order. */
static void runs_repeat_bit_for_bit(void **state) {
  (void)state;
  static const struct {
    int64_t threads;
    uint64_t seed;
  } runs[] = {{1, 0}, {2, 0}, {7, 0}, {1, 1}};
  float weights[4][CLASSES];
  bppsa_dataset *dataset = bitstream(100, true);
  for (int k = 0; k < 4; ++k) {
    bppsa_device *own = test_device(runs[k].threads);
    tiny_device = own;
    tiny_model *model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, true);
    bppsa_train_config config = bppsa_train_config_default();
    bppsa_train_result result;
    config.iterations = 20;
    config.seed = runs[k].seed;
    assert_int_equal(bppsa_train(&config, &model->base, dataset, own, NULL, &result), BPPSA_OK);
    memcpy(weights[k], model->parameters[0].value.data, sizeof weights[k]);
    bppsa_model_destroy(&model->base);
    bppsa_device_destroy(own);
  }
  tiny_device = device;
  assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
  assert_memory_equal(weights[0], weights[2], sizeof weights[0]);
  assert_memory_not_equal(weights[0], weights[3], sizeof weights[0]);
  bppsa_dataset_destroy(dataset);
}

/* Trains until the failure at `at`; expects the message, and the step's log line with its nulls. */
static void stops(tiny_model *model, int64_t iterations, int64_t epochs, int64_t at, const char *says, const char *null_field) {
  static seen s;
  const bppsa_train_callbacks callbacks = watch(&s);
  bppsa_dataset *dataset = bitstream(64, model->per_step);
  bppsa_train_config config = bppsa_train_config_default();
  bppsa_train_result result = {.steps = 77};
  config.iterations = iterations;
  config.epochs = epochs;
  config.log_path = LOG;
  assert_int_equal(bppsa_train(&config, &model->base, dataset, device, &callbacks, &result), BPPSA_ERR_NUMERIC);
  if (strncmp(bppsa_last_error(), says, strlen(says)) != 0) {
    fail_msg("'%s' does not start with '%s'", bppsa_last_error(), says);
  }
  assert_int_equal(result.steps, 77);
  assert_int_equal(s.steps, at);
  json_t *lines = read_log();
  assert_int_equal(json_array_size(lines), iterations > 0 ? at : (at - 1) / 4 + 1);
  if (null_field != NULL) {
    assert_true(isnan(field(lines, json_array_size(lines) - 1, null_field)));
  }
  assert_true(field(lines, json_array_size(lines) - 1, "step") == (double)at);
  json_decref(lines);
  bppsa_dataset_destroy(dataset);
  bppsa_model_destroy(&model->base);
}

static void stops_where_something_is_not_finite(void **state) {
  (void)state;
  char says[256];
  int64_t order[64];
  tiny_model *model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, false);
  model->poison_forward = 6; /* the second batch of the second epoch */
  bppsa_shuffle(0, 2, 64, order);
  (void)snprintf(says, sizeof says,
                 "training step 6 (epoch 2): non-finite hidden state in layer 0, time step 3, sample 1 of the batch "
                 "(data set index %lld)",
                 (long long)order[16 + 1]);
  stops(model, 100, 0, 6, says, "loss");
  model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, false);
  model->poison_backward = 1;
  bppsa_shuffle(0, 1, 64, order);
  (void)snprintf(says, sizeof says,
                 "training step 1 (epoch 1): non-finite gradient of the hidden state in layer 0, time step 3, sample 1 of "
                 "the batch (data set index %lld)",
                 (long long)order[1]);
  stops(model, 100, 0, 1, says, "grad_norm");
  model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, false);
  model->poison_backward = 7;
  stops(model, 0, 5, 7, "training step 7 (epoch 2): non-finite gradient of the hidden state", "grad_norm");
}

static void stops_where_the_norm_or_a_parameter_overflows(void **state) {
  (void)state;
  tiny_model *model = tiny_create(BPPSA_F64, SEQ_LEN, 1, CLASSES, 16, false);
  model->explode = DBL_MAX; /* every gradient is finite, their norm is not */
  stops(model, 5, 0, 1, "training step 1 (epoch 1): non-finite gradient norm", "grad_norm");
  model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, false);
  model->explode = HUGE_VAL;
  stops(model, 5, 0, 1, "training step 1 (epoch 1): non-finite ", "grad_norm");
  assert_non_null(strstr(bppsa_last_error(), "non-finite gradient of linear.weight"));

  bppsa_dataset *dataset = bitstream(64, false);
  bppsa_train_config config = bppsa_train_config_default();
  bppsa_train_result result;
  config.iterations = 5;
  config.optimizer.kind = BPPSA_SGD;
  config.optimizer.lr = 1e39; /* beyond f32 */
  model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, false);
  assert_int_equal(bppsa_train(&config, &model->base, dataset, device, NULL, &result), BPPSA_ERR_NUMERIC);
  assert_non_null(strstr(bppsa_last_error(), "training step 1 (epoch 1): non-finite value of linear.weight after the update"));
  assert_int_equal(bppsa_train(&config, &model->base, dataset, device, NULL, &result), BPPSA_ERR_NUMERIC); /* it still is not */
  assert_non_null(strstr(bppsa_last_error(), "before training: non-finite value of linear.weight"));
  bppsa_model_destroy(&model->base);
  bppsa_dataset_destroy(dataset);
}

static void evaluation_stops_too(void **state) {
  (void)state;
  bppsa_dataset *dataset = bitstream(64, false);
  tiny_model *model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, false);
  bppsa_evaluation evaluation = {.samples = 77};
  model->poison_forward = 2;
  assert_int_equal(bppsa_evaluate(&model->base, dataset, device, 10, 40, 16, &evaluation), BPPSA_ERR_NUMERIC);
  assert_string_equal(bppsa_last_error(), "evaluation of samples 26 .. 41: non-finite hidden state in layer 0, time step 3, "
                                          "sample 1 of the batch (data set index 27)");
  assert_int_equal(evaluation.samples, 77);
  bppsa_model_destroy(&model->base);
  bppsa_dataset_destroy(dataset);
}

static void callbacks_end_the_run(void **state) {
  (void)state;
  static seen s;
  const bppsa_train_callbacks callbacks = watch(&s);
  bppsa_dataset *dataset = bitstream(64, false);
  tiny_model *model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, false);
  bppsa_train_config config = bppsa_train_config_default();
  bppsa_train_result result;
  config.iterations = 10;
  s.stop_at = 4;
  assert_int_equal(bppsa_train(&config, &model->base, dataset, device, &callbacks, &result), BPPSA_ERR_UNSUPPORTED);
  assert_string_equal(bppsa_last_error(), "enough");
  assert_int_equal(s.steps, 4);
  bppsa_model_destroy(&model->base);
  bppsa_dataset_destroy(dataset);
}

static void bad_settings_are_named_and_create_no_log(void **state) {
  (void)state;
  bppsa_train_config good = bppsa_train_config_default();
  good.iterations = 2;
  good.log_path = LOG;
  struct {
    bppsa_train_config config;
    const char *says;
  } cases[12];
  for (size_t i = 0; i < 12; ++i) {
    cases[i].config = good;
  }
  cases[0].config.iterations = 0;
  cases[0].says = "0 epochs and 0 iterations, expected exactly one";
  cases[1].config.epochs = 1;
  cases[1].says = "1 epochs and 2 iterations, expected exactly one";
  cases[2].config.iterations = -2;
  cases[2].says = "0 epochs and -2 iterations";
  cases[3].config.batch = 0;
  cases[3].says = "batch 0, expected 1 ..";
  cases[4].config.clip_norm = -1.0;
  cases[4].says = "clip norm -1";
  cases[5].config.validation = 1.0;
  cases[5].says = "validation fraction 1";
  cases[6].config.optimizer.lr = -1.0;
  cases[6].says = "learning rate -1";
  cases[7].config.iterations = 0;
  cases[7].config.epochs = INT64_MAX;
  cases[7].says = "too many";
  cases[8].says = "labels reach 9, expected 0 .. 8";
  bppsa_train_ranks ranks = {.capacity = 0};
  cases[9].config.ranks = cases[10].config.ranks = &ranks;
  cases[9].says = "training on ranks: 0 samples at once, no reduction, expected 1 or more and the reduction's name";
  cases[11].config.order.kind = BPPSA_ORDER_GIVEN;
  cases[11].says = "no indices, expected at least one sample an epoch";
  cases[10].config.reduction = "tree";
  cases[10].says = "training on ranks: 0 samples at once, tree, expected";
  bppsa_dataset *dataset = bitstream(64, false);
  const int64_t live = bppsa_alloc_live();
  (void)remove(LOG);
  for (size_t i = 0; i < 12; ++i) {
    tiny_model *model = tiny_create(BPPSA_F32, SEQ_LEN, 1, i == 8 ? 9 : CLASSES, 16, false);
    bppsa_train_result result = {.steps = 77};
    assert_int_equal(bppsa_train(&cases[i].config, &model->base, dataset, device, NULL, &result), BPPSA_ERR_ARGUMENT);
    if (strstr(bppsa_last_error(), cases[i].says) == NULL) {
      fail_msg("'%s' does not say '%s'", bppsa_last_error(), cases[i].says);
    }
    assert_int_equal(result.steps, 77);
    assert_int_equal(access(LOG, F_OK), -1);
    bppsa_model_destroy(&model->base);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  bppsa_dataset_destroy(dataset);
}

static void a_model_that_does_not_fit_its_data_is_named(void **state) {
  (void)state;
  bppsa_train_config good = bppsa_train_config_default();
  good.iterations = 2;
  good.log_path = LOG;
  bppsa_dataset *dataset = bitstream(64, false);
  const bppsa_dataset_options real = {.objective = {.kind = BPPSA_LOSS_SQUARED}};
  bppsa_dataset *targets = NULL;
  float two[2 * SEQ_LEN] = {0}, three[6] = {0};
  const bppsa_view x = bppsa_view_make(two, BPPSA_F32, 3, (const int64_t[]){2, SEQ_LEN, 1});
  const bppsa_view y = bppsa_view_make(three, BPPSA_F32, 2, (const int64_t[]){2, 3});
  assert_int_equal(bppsa_npy_save("targets_x.npy", &x), BPPSA_OK);
  assert_int_equal(bppsa_npy_save("targets_y.npy", &y), BPPSA_OK);
  assert_int_equal(bppsa_dataset_create("npy:targets_x.npy,targets_y.npy", &real, &targets), BPPSA_OK);
  tiny_model *ten = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, false);
  bppsa_train_result nothing;
  assert_int_equal(bppsa_train(&good, &ten->base, targets, device, NULL, &nothing), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "data set: 3 targets, expected 10: the model has 10 outputs"));
  bppsa_model_destroy(&ten->base);
  bppsa_dataset_destroy(targets);
  tiny_model *odd = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, false);
  odd->base.dtype = BPPSA_I64;
  bppsa_train_result none;
  assert_int_equal(bppsa_train(&good, &odd->base, dataset, device, NULL, &none), BPPSA_ERR_UNSUPPORTED);
  assert_non_null(strstr(bppsa_last_error(), "model: dtype i64, expected f32 or f64"));
  odd->base.dtype = BPPSA_F32;
  bppsa_model_destroy(&odd->base);
  tiny_model *wrong = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, true); /* logits per step, labels per sample */
  bppsa_train_result result;
  bppsa_evaluation evaluation;
  assert_int_equal(bppsa_train(&good, &wrong->base, dataset, device, NULL, &result), BPPSA_ERR_SHAPE);
  assert_non_null(strstr(bppsa_last_error(), "logits: shape [40, 16, 10], expected [16, 10]: the labels are per sample"));
  assert_int_equal(bppsa_evaluate(&wrong->base, dataset, device, 60, 5, 4, &evaluation), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_evaluate(&wrong->base, dataset, device, 0, 0, 4, &evaluation), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_evaluate(&wrong->base, dataset, device, 0, 5, 0, &evaluation), BPPSA_ERR_ARGUMENT);
  bppsa_model_destroy(&wrong->base);
  bppsa_dataset_destroy(dataset);
}

static void failing_logs_end_the_run(void **state) {
  (void)state;
  if (access("/dev/full", W_OK) != 0) {
    skip();
  }
  bppsa_dataset *dataset = bitstream(64, false);
  tiny_model *model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, false);
  bppsa_train_config config = bppsa_train_config_default();
  bppsa_train_result result;
  config.iterations = 2;
  config.log_path = "/dev/full";
  assert_int_equal(bppsa_train(&config, &model->base, dataset, device, NULL, &result), BPPSA_ERR_IO);
  assert_non_null(strstr(bppsa_last_error(), "/dev/full"));
  bppsa_model_destroy(&model->base);
  bppsa_dataset_destroy(dataset);
}

static bppsa_status count_allocations(void *context, const bppsa_train_record *record) {
  int64_t *calls = context; /* at the latest but one and at the latest step */
  (void)record;
  calls[0] = calls[1];
  calls[1] = bppsa_alloc_calls();
  return BPPSA_OK;
}

/* Every allocation of a short run fails in turn; the loop itself makes none, except for a GPU's recording in its second step. */
static void out_of_memory_leaks_nothing(void **state) {
  (void)state;
  bppsa_dataset *dataset = bitstream(64, true);
  tiny_model *model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, true);
  bppsa_train_config config = bppsa_train_config_default();
  bppsa_train_result result;
  int64_t calls[2] = {-1, -2}, failures = 0;
  const bppsa_train_callbacks callbacks = {.context = calls, .on_step = count_allocations};
  bppsa_status status = BPPSA_ERR_MEMORY;
  config.iterations = device == NULL ? 2 : 3;
  config.validation = 0.25;
  config.log_path = LOG;
  /* The first run leaves the tiny model's state on the GPU, until the model goes. */
  assert_int_equal(bppsa_train(&config, &model->base, dataset, device, NULL, &result), BPPSA_OK);
  const int64_t live = bppsa_alloc_live();
  for (int once = 0; once < 2; ++once) {
    status = BPPSA_ERR_MEMORY;
    for (int64_t call = 1; status != BPPSA_OK; ++call) {
      (once ? bppsa_alloc_fail_once : bppsa_alloc_fail_at)(call);
      status = bppsa_train(&config, &model->base, dataset, device, &callbacks, &result);
      bppsa_alloc_fail_at(0);
      assert_true(status == BPPSA_OK || status == BPPSA_ERR_MEMORY);
      assert_int_equal(bppsa_alloc_live(), live);
      failures += status != BPPSA_OK;
      assert_true(call < 200);
    }
  }
  assert_true(failures >= 2 * 15);
  assert_int_equal(calls[0], calls[1]);
  bppsa_evaluation evaluation;
  status = BPPSA_ERR_MEMORY;
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    bppsa_alloc_fail_at(call);
    status = bppsa_evaluate(&model->base, dataset, device, 0, 64, 16, &evaluation);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_MEMORY);
    assert_int_equal(bppsa_alloc_live(), live);
    assert_true(call < 100);
  }
  bppsa_model_destroy(&model->base);
  bppsa_dataset_destroy(dataset);
}

/* A run on the device agrees with one on a CPU, with batches made on the device or on the host, also if their sizes differ; and
 * it reports its time. */
static void devices_agree(void **state) {
  (void)state;
  static seen host, here;
  const bppsa_dataset_options options = {.samples = 90, .seq_len = SEQ_LEN, .labels_per_step = false};
  bppsa_dataset *stream = bitstream(90, false), *files = NULL;
  assert_int_equal(bppsa_dataset_write(stream, NULL, BPPSA_F32, "trainer_x.npy", "trainer_y.npy", NULL, NULL), BPPSA_OK);
  assert_int_equal(bppsa_dataset_create("npy:trainer_x.npy,trainer_y.npy", &options, &files), BPPSA_OK);
  for (int k = 0; k < 8; ++k) {
    const bppsa_dtype dtype = k % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    const bppsa_dataset *data = k / 2 % 2 == 0 ? stream : files;
    const bppsa_train_callbacks callbacks = watch(&host), other = watch(&here);
    bppsa_train_config config = bppsa_train_config_default();
    bppsa_train_result result, reference;
    config.epochs = 5;
    config.validation = 0.1; /* 81 to train on: 5 batches of 16 and one of 1 */
    config.optimizer.lr = 0.02;
    config.optimizer.kind = k < 4 ? BPPSA_ADAM : BPPSA_SGD;
    config.optimizer.momentum = k < 4 ? 0.0 : 0.5;
    config.clip_norm = 0.3;
    tiny_device = NULL;
    tiny_model *on_host = tiny_create(dtype, SEQ_LEN, 1, CLASSES, 16, false);
    tiny_device = device;
    tiny_model *model = tiny_create(dtype, SEQ_LEN, 1, CLASSES, 16, false);
    assert_int_equal(bppsa_train(&config, &on_host->base, data, NULL, &callbacks, &reference), BPPSA_OK);
    assert_int_equal(bppsa_train(&config, &model->base, data, device, &other, &result), BPPSA_OK);
    assert_int_equal(here.steps, 30);
    const double bound = dtype == BPPSA_F32 ? 1e-5 : 1e-12;
    for (int i = 0; i < 30; ++i) {
      assert_true(fabs(here.step[i].loss - host.step[i].loss) < bound);
      assert_true(fabs(here.step[i].grad_norm - host.step[i].grad_norm) < bound);
      assert_true(here.step[i].accuracy == host.step[i].accuracy);
      assert_true(here.step[i].forward_s >= 0 && here.step[i].backward_s >= 0 && here.step[i].update_s >= 0);
      assert_true(here.step[i].forward_s + here.step[i].backward_s + here.step[i].update_s < 16.5 / here.step[i].samples_per_s);
    }
    for (int e = 0; e < 5; ++e) {
      assert_true(fabs(here.epoch[e].validation_loss - host.epoch[e].validation_loss) < bound);
      assert_true(here.epoch[e].validation_accuracy == host.epoch[e].validation_accuracy);
    }
    assert_true(result.forward_s > 0 && result.backward_s > 0 && result.update_s > 0);
    for (int64_t i = 0; i < CLASSES; ++i) {
      const double moved = bppsa_view_get(&model->parameters[0].value, i) - bppsa_view_get(&on_host->parameters[0].value, i);
      assert_true(fabs(moved) < bound);
    }
    bppsa_model_destroy(&model->base);
    bppsa_model_destroy(&on_host->base);
  }
  bppsa_dataset_destroy(files);
  bppsa_dataset_destroy(stream);
}

static void a_model_must_be_on_the_device(void **state) {
  (void)state;
  bppsa_dataset *dataset = bitstream(30, false);
  tiny_device = NULL;
  tiny_model *model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, 16, false);
  tiny_device = device;
  bppsa_evaluation evaluation;
  assert_int_equal(bppsa_evaluate(&model->base, dataset, device, 0, 30, 16, &evaluation),
                   device == NULL ? BPPSA_OK : BPPSA_ERR_ARGUMENT);
  if (device != NULL) {
    assert_non_null(strstr(bppsa_last_error(), "model: in host memory, expected it on the device cuda:0"));
  }
  bppsa_model_destroy(&model->base);
  bppsa_dataset_destroy(dataset);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(iterations_lower_the_loss_and_log_every_step),
      cmocka_unit_test(epochs_log_means_and_validation),
      cmocka_unit_test(first_step_is_gradient_descent),
      cmocka_unit_test(runs_repeat_bit_for_bit),
      cmocka_unit_test(devices_agree),
      cmocka_unit_test(a_model_must_be_on_the_device),
      cmocka_unit_test(stops_where_something_is_not_finite),
      cmocka_unit_test(stops_where_the_norm_or_a_parameter_overflows),
      cmocka_unit_test(evaluation_stops_too),
      cmocka_unit_test(callbacks_end_the_run),
      cmocka_unit_test(bad_settings_are_named_and_create_no_log),
      cmocka_unit_test(a_model_that_does_not_fit_its_data_is_named),
      cmocka_unit_test(failing_logs_end_the_run),
      cmocka_unit_test(out_of_memory_leaks_nothing),
  };
  tiny_device = device = getenv("BPPSA_TEST_DEVICE") != NULL ? test_device(2) : NULL;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}

/* Interrupted and resumed runs end with the bits of uninterrupted ones; on a CPU, or on the test's GPU. */
#include <errno.h>
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

#include "tests/core/helpers.h"
#include "tests/support/folder.h"
#include "tests/support/io_fault.h"
#include "tests/support/rescue_folder.h"
#include "tests/support/support.h"
#include "tests/train/tiny_model.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

#define FOLDER "resume_test"
#define CHECKPOINT FOLDER "/run"
#define LOG FOLDER "/log.jsonl"
#define LATEST CHECKPOINT "/checkpoint.safetensors"

enum { SEQ_LEN = 12, CLASSES = 10, SAMPLES = 50, BATCH = 8, WEIGHTS = CLASSES + CLASSES, MAX_LINES = 64 };

static bppsa_device *device; /* NULL: a processor */

/* The results that must be equal whether or not a run was interrupted. */
typedef struct {
  double weights[WEIGHTS];
  int64_t lines;
  double log[MAX_LINES][6]; /* step, epoch, loss, accuracy, grad_norm, validation_loss or NaN */
  bppsa_train_result result;
} outcome;

/* Where a run is interrupted. */
typedef struct {
  int64_t fail_at;           /* on_step fails at this step; 0: never */
  int64_t stop_at;           /* stop asks for the end at this step; 0: never */
  bppsa_train_start resumed; /* what the callback was told */
  char notice[BPPSA_CHECKPOINT_NOTICE];
  int64_t step;
} control;

static bppsa_status on_step(void *context, const bppsa_train_record *record) {
  control *c = context;
  c->step = record->step;
  return record->step == c->fail_at ? bppsa_fail(BPPSA_ERR_UNSUPPORTED, "power cut") : BPPSA_OK;
}

static bppsa_status on_started(void *context, const bppsa_train_start *start) {
  control *c = context;
  c->resumed = *start;
  snprintf(c->notice, sizeof c->notice, "%s", start->notice);
  return BPPSA_OK;
}

static bool stop(void *context) {
  const control *c = context;
  return c->step == c->stop_at;
}

static bppsa_train_config basic(void) {
  bppsa_train_config config = bppsa_train_config_default();
  config.batch = BATCH;
  config.optimizer.lr = 0.05;
  config.clip_norm = 0.5;
  config.validation = 0.1;
  config.seed = 5;
  config.log_path = LOG;
  return config;
}

/* Trains a new model with its initial weights. The outcome is filled if the run succeeds; it may be NULL. */
static bppsa_status run(const bppsa_train_config *config, control *how, outcome *end) {
  const bppsa_dataset_options options = {.samples = SAMPLES, .seq_len = SEQ_LEN, .seed = 2};
  bppsa_dataset *dataset = NULL;
  control none = {0};
  control *c = how != NULL ? how : &none;
  const bppsa_train_callbacks callbacks = {.context = c, .on_step = on_step, .started = on_started, .stop = stop};
  bppsa_train_result result;
  BPPSA_TRY(bppsa_dataset_create("bitstream", &options, &dataset));
  tiny_model *model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, BATCH, false);
  const bppsa_status status =
      model == NULL ? BPPSA_ERR_MEMORY : bppsa_train(config, &model->base, dataset, device, &callbacks, &result);
  if (status == BPPSA_OK && end != NULL) {
    end->result = result;
    for (int64_t i = 0; i < WEIGHTS; ++i) {
      end->weights[i] = bppsa_view_get(&model->parameters[i / CLASSES].value, i % CLASSES);
    }
  }
  if (model != NULL) {
    bppsa_model_destroy(&model->base);
  }
  bppsa_dataset_destroy(dataset);
  return status;
}

static double number(const json_t *line, const char *key) {
  const json_t *value = json_object_get(line, key);
  return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void read_log(outcome *end) {
  static const char *const keys[] = {"step", "epoch", "loss", "accuracy", "grad_norm", "validation_loss"};
  char text[1024];
  end->lines = 0;
  FILE *file = fopen(LOG, "r");
  assert_non_null(file);
  while (fgets(text, sizeof text, file) != NULL) {
    json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(line);
    assert_true(end->lines < MAX_LINES);
    for (size_t k = 0; k < 6; ++k) {
      end->log[end->lines][k] = number(line, keys[k]);
    }
    end->lines += 1;
    json_decref(line);
  }
  (void)fclose(file);
}

static void must_run(const bppsa_train_config *config, control *how, outcome *end) {
  if (run(config, how, end) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  read_log(end);
}

static void assert_same(const outcome *a, const outcome *b) {
  assert_memory_equal(a->weights, b->weights, sizeof a->weights);
  assert_int_equal(a->lines, b->lines);
  assert_memory_equal(a->log, b->log, (size_t)a->lines * sizeof a->log[0]);
  assert_int_equal(a->result.steps, b->result.steps);
  assert_int_equal(a->result.epochs, b->result.epochs);
  assert_true(a->result.last.loss == b->result.last.loss);
  assert_int_equal(a->result.last.has_validation, b->result.last.has_validation);
  assert_true(a->result.last.validation_loss == b->result.last.validation_loss);
}

static int setup(void **state) {
  (void)state;
  fresh_folder(FOLDER);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  remove_folder(FOLDER);
  return 0;
}

/* Interrupted after every single step, in every mode. 45 training samples in batches of 8: 6 steps an epoch. */
static void resumed_runs_have_the_bits_of_whole_ones(void **state) {
  (void)state;
  for (int mode = 0; mode < 3; ++mode) {
    const bool epochs = mode % 2 == 0;
    bppsa_train_config config = basic();
    config.epochs = epochs ? 3 : 0;
    config.iterations = epochs ? 0 : 18;
    if (mode >= 2) {
      config.optimizer.kind = BPPSA_SGD;
      config.optimizer.momentum = 0.9;
    }
    static outcome whole, resumed;
    must_run(&config, NULL, &whole);
    assert_int_equal(whole.result.steps, 18);
    assert_int_equal(whole.lines, epochs ? 3 : 18);
    for (int64_t at = 1; at <= 18; at += device == NULL ? 1 : 5) {
      fresh_folder(FOLDER);
      control cut = {.fail_at = at};
      config.checkpoint = CHECKPOINT;
      config.checkpoint_every = 1 + at % 4;
      config.resume = false;
      assert_error(run(&config, &cut, NULL), BPPSA_ERR_UNSUPPORTED, "power cut");
      control go_on = {0};
      config.resume = true;
      must_run(&config, &go_on, &resumed);
      assert_same(&resumed, &whole);
      assert_int_equal(go_on.resumed.step, (at - 1) / config.checkpoint_every * config.checkpoint_every);
      assert_int_equal(resumed.result.resumed, go_on.resumed.step);
      assert_int_equal(go_on.resumed.epoch.epoch, go_on.resumed.step / 6);
      assert_string_equal(go_on.notice, "");
    }
    must_run(&config, NULL, &resumed); /* of a run that is done nothing is left to do */
    assert_same(&resumed, &whole);
    assert_int_equal(resumed.result.resumed, 18);
  }
}

static void a_run_can_be_trained_further(void **state) {
  (void)state;
  static outcome whole, resumed;
  bppsa_train_config config = basic();
  config.epochs = 4;
  must_run(&config, NULL, &whole);
  config.checkpoint = CHECKPOINT;
  config.epochs = 1;
  must_run(&config, NULL, &resumed);
  assert_int_equal(resumed.result.steps, 6);
  config.resume = true;
  config.epochs = 4;
  must_run(&config, NULL, &resumed);
  assert_same(&resumed, &whole);
  config.epochs = 3;
  assert_error(run(&config, NULL, NULL), BPPSA_ERR_ARGUMENT, "24 steps are done, more than the 18 asked for");
}

static void a_stopped_run_has_a_checkpoint(void **state) {
  (void)state;
  static outcome whole, resumed;
  bppsa_train_config config = basic();
  config.iterations = 10;
  must_run(&config, NULL, &whole);
  config.checkpoint = CHECKPOINT;
  control how = {.stop_at = 4};
  must_run(&config, &how, &resumed);
  assert_true(resumed.result.stopped);
  assert_int_equal(resumed.result.steps, 4);
  assert_int_equal(resumed.lines, 4);
  config.resume = true;
  control go_on = {.stop_at = 10}; /* at the end there is nothing to stop */
  must_run(&config, &go_on, &resumed);
  assert_int_equal(go_on.resumed.step, 4);
  assert_false(resumed.result.stopped);
  assert_same(&resumed, &whole);
}

/* If the latest checkpoint is damaged, the one before it leads to the same end. */
static void damage_costs_steps_not_bits(void **state) {
  (void)state;
  static outcome whole, resumed;
  bppsa_train_config config = basic();
  config.iterations = 9;
  must_run(&config, NULL, &whole);
  config.checkpoint = CHECKPOINT;
  config.checkpoint_every = 2;
  control cut = {.fail_at = 8};
  assert_error(run(&config, &cut, NULL), BPPSA_ERR_UNSUPPORTED, "power cut");
  FILE *file = fopen(LATEST, "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, -1, SEEK_END), 0);
  assert_int_equal(fputc(0x55, file), 0x55);
  assert_int_equal(fclose(file), 0);
  control go_on = {0};
  config.resume = true;
  must_run(&config, &go_on, &resumed);
  assert_int_equal(go_on.resumed.step, 4);
  assert_non_null(strstr(go_on.notice, "checksum"));
  assert_same(&resumed, &whole);
}

static void append(const char *path, const char *text) {
  FILE *file = fopen(path, "ab");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static void wrong_requests_are_refused(void **state) {
  (void)state;
  static outcome end;
  bppsa_train_config config = basic();
  const bppsa_metadata scan = {"algorithm", "linear"}, other = {"algorithm", "chunked"};
  config.iterations = 4;
  config.field_count = 1;
  config.fields = &scan;
  config.resume = true;
  assert_error(run(&config, NULL, NULL), BPPSA_ERR_ARGUMENT, "to be resumed without a checkpoint directory");
  config.checkpoint = CHECKPOINT;
  assert_error(run(&config, NULL, NULL), BPPSA_ERR_ARGUMENT, "no checkpoint to resume");
  assert_true(access(LOG, F_OK) != 0);
  config.resume = false;
  must_run(&config, NULL, &end);
  assert_error(run(&config, NULL, NULL), BPPSA_ERR_ARGUMENT, "holds a checkpoint");
  config.resume = true;
  config.iterations = 6;
  enum { CHANGES = 7 };
  static const char *const texts[CHANGES] = {"algorithm linear contradicts this run, which has chunked",
                                             "seed 5 contradicts this run, which has 6",
                                             "lr 0.05 contradicts this run, which has 0.01",
                                             "optimizer adam contradicts this run, which has sgd",
                                             "batch 8 contradicts this run, which has 4",
                                             "validation 0.1 contradicts this run, which has 0.2",
                                             "clip_norm 0.5 contradicts this run, which has 0"};
  bppsa_train_config changed[CHANGES];
  for (int i = 0; i < CHANGES; ++i) {
    changed[i] = config;
  }
  changed[0].fields = &other;
  changed[1].seed = 6;
  changed[2].optimizer.lr = 0.01;
  changed[3].optimizer.kind = BPPSA_SGD;
  changed[4].batch = 4;
  changed[5].validation = 0.2;
  changed[6].clip_norm = 0.0;
  for (int i = 0; i < CHANGES; ++i) {
    assert_error(run(&changed[i], NULL, NULL), BPPSA_ERR_ARGUMENT, texts[i]);
  }
  bppsa_train_config by_epochs = config;
  by_epochs.iterations = 0;
  by_epochs.epochs = 2;
  assert_error(run(&by_epochs, NULL, NULL), BPPSA_ERR_ARGUMENT, "counted_in iterations contradicts this run, which has epochs");
  append(LOG, "what a killed run had not finished");
  must_run(&config, NULL, &end); /* cut off */
  assert_int_equal(end.lines, 6);
}

static void the_log_must_be_the_runs_own(void **state) {
  (void)state;
  static outcome end;
  char bytes[16] = "";
  bppsa_train_config config = basic();
  config.iterations = 2;
  config.checkpoint = CHECKPOINT;
  must_run(&config, NULL, &end);
  config.resume = true;
  config.iterations = 4;
  assert_int_equal(system("cp " LOG " " FOLDER "/good; printf 'XX' | dd of=" LOG " bs=1 conv=notrunc 2>/dev/null"), 0);
  assert_error(run(&config, NULL, NULL), BPPSA_ERR_ARGUMENT, "bytes are not what the run to continue wrote");
  assert_int_equal(system("printf 'mine' >" LOG), 0);
  assert_error(run(&config, NULL, NULL), BPPSA_ERR_ARGUMENT, "4 bytes, but the run to continue had written");
  FILE *file = fopen(LOG, "rb");
  assert_non_null(file);
  assert_int_equal(fread(bytes, 1, sizeof bytes, file), 4); /* it stays as it is */
  assert_int_equal(fclose(file), 0);
  assert_string_equal(bytes, "mine");
  assert_int_equal(remove(LOG), 0);
  assert_error(run(&config, NULL, NULL), BPPSA_ERR_ARGUMENT, "log of the run to continue: " LOG ": cannot open");
  assert_true(access(LOG, F_OK) != 0);
  config.log_path = NULL; /* a run may go on without its log */
  assert_int_equal(run(&config, NULL, NULL), BPPSA_OK);
  config.log_path = LOG; /* and begin one anew, in a new file */
  config.iterations = 6;
  append(LOG, "mine");
  assert_error(run(&config, NULL, NULL), BPPSA_ERR_ARGUMENT, "has 4 bytes, but the run to continue had no log");
  assert_int_equal(remove(LOG), 0);
  must_run(&config, NULL, &end);
  assert_int_equal(end.lines, 2);
  assert_true(end.log[0][0] == 5.0);
}

static bool is_error(bppsa_status status, int error) {
  return status == BPPSA_ERR_IO && strstr(bppsa_last_error(), strerror(error)) != NULL &&
         strstr(bppsa_last_error(), FOLDER) != NULL;
}

/* Every call of a run and of its continuation fails in turn: the error names the file, nothing is leaked, and a run that
 * continues from the directory has the bits of the uninterrupted run. */
static void no_failure_loses_a_run(void **state) {
  (void)state;
  static outcome whole, resumed;
  bppsa_train_config config = basic();
  config.iterations = 3;
  must_run(&config, NULL, &whole);
  config.checkpoint = CHECKPOINT;
  config.checkpoint_every = 2;
  for (int way = 0; way < 2; ++way) {
    const int error = way == 0 ? ENOSPC : EIO;
    bool done = false, second_done = false;
    int64_t walked = 0;
    rescue_to("resume_rescued");
    for (int64_t call = 1; !done || !second_done; ++call) {
      fresh_folder(FOLDER);
      bool *const now_done = done ? &second_done : &done; /* first the run itself, then the run resumed */
      if (done && walked == 0) {
        assert_true(call > 60);
        walked = call - 1;
      }
      config.resume = false;
      if (now_done == &second_done) {
        control cut = {.fail_at = 3};
        assert_error(run(&config, &cut, NULL), BPPSA_ERR_UNSUPPORTED, "power cut");
        config.resume = true;
      }
      const int64_t live = bppsa_alloc_live(), open_files = bppsa_io_open_count();
      io_fault fault;
      io_fault_set(&fault, call - walked, way == 1, error);
      const bppsa_status status = run(&config, NULL, NULL);
      io_fault_clear();
      assert_int_equal(bppsa_alloc_live(), live);
      assert_int_equal(bppsa_io_open_count(), open_files);
      *now_done = fault.failed == 0;
      if (status != BPPSA_OK && !is_error(status, error) &&
          !(config.resume &&
            (status == BPPSA_ERR_FORMAT || status == BPPSA_ERR_ARGUMENT))) { /* neither can be read; nor can the log */
        fail_msg("call %d (%s): %s: %s", (int)(call - walked), bppsa_io_name(fault.kind), bppsa_status_name(status),
                 bppsa_last_error());
      }
      if (status == BPPSA_OK) {
        /* nothing failed, or only the closing of what was read, or a read that the previous checkpoint stood in for */
        assert_true(*now_done || fault.kind == BPPSA_IO_CLOSE || config.resume);
      }
      config.resume = access(LATEST, F_OK) == 0 || access(CHECKPOINT "/checkpoint.previous.safetensors", F_OK) == 0;
      assert_true(config.resume || (now_done == &done && call < 32)); /* only a first checkpoint may be missing */
      must_run(&config, NULL, &resumed);
      assert_same(&resumed, &whole);
    }
  }
  remove_folder("resume_rescued");
}

static void out_of_memory_leaks_nothing(void **state) {
  (void)state;
  bppsa_train_config config = basic();
  config.iterations = 2;
  config.checkpoint = CHECKPOINT;
  for (int resume = 0; resume < 2; ++resume) {
    bool done = false;
    int64_t call = 1;
    for (; !done; ++call) {
      fresh_folder(FOLDER);
      config.resume = false;
      config.iterations = 2;
      if (resume == 1) {
        assert_int_equal(run(&config, NULL, NULL), BPPSA_OK);
        config.resume = true;
        config.iterations = 4;
      }
      const int64_t live = bppsa_alloc_live(), open_files = bppsa_io_open_count();
      bppsa_alloc_fail_once(call);
      const bppsa_status status = run(&config, NULL, NULL);
      done = bppsa_alloc_calls() < call;
      bppsa_alloc_fail_at(0);
      assert_int_equal(status, done ? BPPSA_OK : BPPSA_ERR_MEMORY);
      assert_int_equal(bppsa_alloc_live(), live);
      assert_int_equal(bppsa_io_open_count(), open_files);
    }
    assert_true(call > 50);
  }
}

/* Another device has other bits: a run continues on the device where it began. */
static void devices_are_not_exchanged(void **state) {
  (void)state;
  static outcome end;
  bppsa_device *const own = device;
  bppsa_train_config config = basic();
  config.iterations = 2;
  config.checkpoint = CHECKPOINT;
  for (int first = 0; first < 2; ++first) { /* begun on the processor, and on the GPU */
    fresh_folder(FOLDER);
    tiny_device = device = first == 0 ? NULL : own;
    config.resume = false;
    must_run(&config, NULL, &end);
    tiny_device = device = first == 0 ? own : NULL;
    config.resume = true;
    config.iterations = 4;
    assert_error(run(&config, NULL, NULL), BPPSA_ERR_ARGUMENT,
                 first == 0 ? "device missing contradicts this run, which has cuda"
                            : "device cuda contradicts this run, which has cpu");
    config.iterations = 2;
  }
  tiny_device = device = own;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(resumed_runs_have_the_bits_of_whole_ones, setup, teardown),
      cmocka_unit_test_setup_teardown(a_run_can_be_trained_further, setup, teardown),
      cmocka_unit_test_setup_teardown(a_stopped_run_has_a_checkpoint, setup, teardown),
      cmocka_unit_test_setup_teardown(damage_costs_steps_not_bits, setup, teardown),
      cmocka_unit_test_setup_teardown(wrong_requests_are_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(the_log_must_be_the_runs_own, setup, teardown),
      cmocka_unit_test_setup_teardown(no_failure_loses_a_run, setup, teardown),
      cmocka_unit_test_setup_teardown(out_of_memory_leaks_nothing, setup, teardown),
  };
  /* These follow the GPU's steps; the other tests do not depend on where they run. */
  const struct CMUnitTest on_gpu[] = {
      cmocka_unit_test_setup_teardown(resumed_runs_have_the_bits_of_whole_ones, setup, teardown),
      cmocka_unit_test_setup_teardown(a_run_can_be_trained_further, setup, teardown),
      cmocka_unit_test_setup_teardown(a_stopped_run_has_a_checkpoint, setup, teardown),
      cmocka_unit_test_setup_teardown(devices_are_not_exchanged, setup, teardown),
  };
  if (getenv("BPPSA_TEST_DEVICE") == NULL) {
    return cmocka_run_group_tests(tests, NULL, NULL);
  }
  tiny_device = device = test_device(1);
  const int failed = cmocka_run_group_tests(on_gpu, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}

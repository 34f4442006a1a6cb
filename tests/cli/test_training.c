/* The parts of training other than the gradients: optimisers, weight decay, schedules; alone, in logs and in checkpoints. */
#include "tests/cli/batch_files.h"

#include <math.h>

#include "cli/command.h"
#include "networks/network_kinds.h"

#define SMALL "train rnn --seq-len 12 --samples 48 --hidden 4 --threads 2"

static int setup(void **state) {
  (void)state;
  return system("rm -rf d *.jsonl *.safetensors");
}

/* ---- schedules ---- */

/* Row i's lr. */
static double rate_of(const json_t *document, size_t i) {
  return get_real(json_array_get(json_object_get(document, "rows"), i), "lr");
}

static void test_schedules(void **state) {
  (void)state;
  static const double pi = 3.14159265358979323846;
  json_t *step = run_json(SMALL " --epochs 5 --lr 0.1 --lr-schedule step --lr-step-size 2 --lr-gamma 0.5 --json");
  json_t *cosine = run_json(SMALL " --iterations 6 --lr 0.1 --lr-schedule cosine --lr-min 0.02 --json");
  json_t *warm = run_json(SMALL " --iterations 6 --lr 0.1 --warmup 4 --json");
  for (size_t i = 0; i < 5; ++i) {
    assert_true(fabs(rate_of(step, i) - 0.1 * pow(0.5, (double)(i / 2))) < 1e-16);
  }
  for (size_t i = 0; i < 6; ++i) {
    assert_true(fabs(rate_of(cosine, i) - (0.02 + 0.08 * (1 + cos(pi * (double)i / 6)) / 2)) < 1e-16);
    assert_true(fabs(rate_of(warm, i) - (i < 4 ? 0.025 * (double)(i + 1) : 0.1)) < 1e-16);
  }
  const json_t *config = json_object_get(cosine, "config");
  assert_string_equal(get_text(config, "lr_schedule"), "cosine");
  assert_int_equal(get_integer(config, "lr_period"), 6);
  assert_true(get_real(config, "lr_min") == 0.02);
  json_decref(step);
  json_decref(cosine);
  json_decref(warm);
  run_result text = run(SMALL " --iterations 2 --optimizer adamw --lr-schedule cosine --warmup 3");
  assert_non_null(
      strstr(text.out, "update     adamw, lr 0.001, cosine to 0 over 2 steps, 3 steps of warm-up, weight decay 0.01\n"));
  release(&text);
}

/* The rate takes part in the update: SGD's first step is lr g, whatever made the lr; later weights of two schedules differ. */
static void test_rates_are_used(void **state) {
  (void)state;
  setup(NULL);
  const char *const line = SMALL " --optimizer sgd --dtype f64";
  assert_runs("%s --iterations 3 --lr 0.05 --save-weights plain.safetensors", line);
  assert_runs("%s --iterations 3 --lr 0.05 --lr-schedule step --lr-step-size 3 --save-weights same.safetensors", line);
  assert_runs("%s --iterations 3 --lr 0.05 --lr-schedule step --lr-step-size 2 --save-weights other.safetensors", line);
  assert_equal_files("plain.safetensors", "same.safetensors");
  size_t size = 0, other_size = 0;
  char *plain = read_bytes("plain.safetensors", &size), *other = read_bytes("other.safetensors", &other_size);
  assert_int_equal(size, other_size);
  assert_true(memcmp(plain, other, size) != 0);
  free(plain);
  free(other);
}

static void test_requests(void **state) {
  (void)state;
  const struct {
    const char *options, *says;
  } cases[] = {
      {"--lr-schedule step", "--lr-schedule: step without --lr-step-size, expected --lr-step-size N too"},
      {"--lr-step-size 3", "--lr-step-size: given beside --lr-schedule constant, expected --lr-schedule step"},
      {"--lr-gamma 0.5 --lr-schedule cosine", "--lr-gamma: given beside --lr-schedule cosine, expected --lr-schedule step"},
      {"--lr-min 0.1", "--lr-min: given beside --lr-schedule constant, expected --lr-schedule cosine"},
      {"--lr-period 3 --lr-schedule step --lr-step-size 1", "--lr-period: given beside --lr-schedule step"},
      {"--lr-schedule cosine --lr-min 0.1 --lr 0.01", "--lr-min: 0.1, more than the learning rate 0.01"},
      {"--lr-schedule linear", "--lr-schedule: 'linear', expected constant, step or cosine"},
      {"--optimizer adamw --momentum 0.9", "--momentum: given beside --optimizer adamw, expected --optimizer sgd"},
      {"--weight-decay -1", "--weight-decay: '-1', expected a number, 0 or more"},
      {"--warmup -1", "--warmup: '-1', expected a whole number, 0 or more"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    assert_fails(2, cases[i].says, SMALL " --iterations 2 %s", cases[i].options);
  }
}

/* ---- predicted weights ---- */

static double error_of(const json_t *row, const char *key, size_t ahead) {
  const json_t *value = json_array_get(json_object_get(row, key), ahead - 1);
  assert_true(json_is_real(value));
  return json_real_value(value);
}

/* With a momentum so small that rounding loses it, an update is lr g: weights of one update ago are
 * lr |g| / sqrt(number of weights) away, in the table and in the log alike. With a larger one, predictions are nearer than old
 * weights. The run itself does not change. */
static void test_predictions(void **state) {
  (void)state;
  setup(NULL);
  const char *const line = SMALL " --iterations 6 --optimizer sgd --lr 0.05 --momentum 1e-30 --dtype f64";
  assert_runs("%s --save-weights plain.safetensors", line);
  json_t *plain = run_json("%s --predict-ahead 3 --log run.jsonl --save-weights same.safetensors --json", line);
  assert_equal_files("plain.safetensors", "same.safetensors");
  const json_t *rows = json_object_get(plain, "rows");
  const double weights = (double)get_integer(plain, "parameters");
  for (size_t i = 0; i < 6; ++i) {
    const json_t *row = json_array_get(rows, i);
    assert_int_equal(json_array_size(json_object_get(row, "stale_rmse")), 3);
    for (size_t ahead = 1; ahead <= 3; ++ahead) {
      const bool known = i >= ahead; /* the first weights that are kept are those of the first update */
      assert_true(known || json_is_null(json_array_get(json_object_get(row, "predicted_rmse"), ahead - 1)));
      assert_true(!known || error_of(row, "stale_rmse", ahead) > 0);
    }
    const double distance = 0.05 * get_real(row, "grad_norm") / sqrt(weights);
    assert_true(i == 0 || fabs(error_of(row, "stale_rmse", 1) - distance) < 1e-12 * distance);
  }
  size_t size = 0;
  char *log = read_bytes("run.jsonl", &size), found[200];
  const json_t *last = json_array_get(rows, 5);
  snprintf(found, sizeof found, "\"stale_rmse\":[%.9g,%.9g,%.9g],\"predicted_rmse\":[", error_of(last, "stale_rmse", 1),
           error_of(last, "stale_rmse", 2), error_of(last, "stale_rmse", 3));
  assert_non_null(strstr(log, found));
  free(log);
  json_decref(plain);
  json_t *smooth = run_json(SMALL " --iterations 60 --optimizer sgd --lr 0.01 --momentum 0.9 --predict-ahead 2 --json");
  const json_t *row = json_array_get(json_object_get(smooth, "rows"), 59);
  assert_true(error_of(row, "predicted_rmse", 2) < error_of(row, "stale_rmse", 2));
  json_decref(smooth);
  run_result text = run(SMALL " --iterations 4 --predict-ahead 2");
  assert_non_null(strstr(text.out, "\nweights 1 update ahead: RMSE predicted "));
  assert_non_null(strstr(text.out, "\nweights 2 updates ahead: RMSE predicted "));
  release(&text);
  static const struct {
    const char *options, *says;
  } cases[] = {{"--epochs 1 --predict-ahead 3", "--predict-ahead: given without --iterations, whose rows have the errors"},
               {"--iterations 2 --predict-ahead 0", "--predict-ahead: '0', expected a whole number from 1 to 8"},
               {"--iterations 2 --predict-ahead 9", "--predict-ahead: '9', expected a whole number from 1 to 8"},
               {"--iterations 2 --predict-ahead 3 --optimizer sgd",
                "--momentum: 0 beside --predict-ahead, which predicts from the "
                "smoothed gradient, expected a momentum above 0 or --optimizer"},
               {"--iterations 2 --predict-ahed 3", "did you mean --predict-ahead"},
               {"--iterations 2 --predict-ahead 3 --ranks 2", "--predict-ahead: given beside ranks"},
               {"--iterations 2 --predict-ahead 3 --checkpoint d", "--predict-ahead: given beside --checkpoint"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    assert_fails(2, cases[i].says, SMALL " %s", cases[i].options);
  }
}

/* ---- checkpoints ---- */

/* A run in two pieces ends with the bits of a run in one piece; options that contradict the checkpoint are named. */
static void test_resume(void **state) {
  (void)state;
  const char *const settings[] = {"--optimizer adamw --weight-decay 0.2 --lr-schedule step --lr-step-size 2 --warmup 3",
                                  "--optimizer sgd --momentum 0.9 --weight-decay 0.2 --lr-schedule cosine --lr-period 6",
                                  "--weight-decay 0.2 --lr-schedule cosine --lr-period 6 --lr-min 0.0001"};
  const struct {
    const char *option, *says;
  } contradictions[] = {{"--weight-decay 0.1", "weight_decay 0.2 contradicts this run, which has 0.1"},
                        {"--lr-min 0.0002", "lr_min 0.0001 contradicts this run, which has 0.0002"},
                        {"--lr-period 5", "lr_period 6 contradicts this run, which has 5"},
                        {"--warmup 1", "warmup 0 contradicts this run, which has 1"},
                        {"--optimizer adamw", "optimizer adam contradicts this run, which has adamw"}};
  for (size_t i = 0; i < 3; ++i) {
    setup(NULL);
    assert_runs(SMALL " --iterations 6 %s --save-weights whole.safetensors", settings[i]);
    assert_runs(SMALL " --iterations 4 %s --checkpoint d", settings[i]);
    assert_runs(SMALL " --iterations 6 %s --checkpoint d --resume --threads 1 --save-weights w.safetensors", settings[i]);
    assert_equal_files("w.safetensors", "whole.safetensors");
  }
  for (size_t i = 0; i < sizeof contradictions / sizeof contradictions[0]; ++i) {
    assert_fails(2, contradictions[i].says, SMALL " --iterations 8 %s %s --checkpoint d --resume", settings[2],
                 contradictions[i].option);
  }
  setup(NULL);
  assert_runs(SMALL " --iterations 4 --lr-schedule cosine --checkpoint d"); /* the run's length is its period */
  assert_fails(2, "lr_period 4 contradicts this run, which has 6",
               SMALL " --iterations 6 --lr-schedule cosine --checkpoint d --resume");
  assert_runs(SMALL " --iterations 6 --lr-schedule cosine --lr-period 4 --checkpoint d --resume");
}

/* ---- defaults ---- */

/* The command `train KIND`. */
static const bppsa_command *find_train(const char *kind) {
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    if (strcmp((*command)->verb, "train") == 0 && strcmp((*command)->object, kind) == 0) {
      return *command;
    }
  }
  fail_msg("no command 'train %s'", kind);
  return NULL;
}

/* Every kind of network can be trained, and the defaults of its options are those of its row. */
static void test_defaults(void **state) {
  (void)state;
  const bppsa_network_kind *kind;
  int64_t found = 0;
  for (; (kind = bppsa_network_kind_at(found)) != NULL; ++found) {
    bppsa_option_value values[BPPSA_OPTION_COUNT];
    char data[] = "--data=bitstream", *argv[] = {data};
    assert_int_equal(bppsa_options_parse("train", find_train(kind->name)->uses, 1, argv, values), BPPSA_OK);
    const bppsa_train_config config = bppsa_network_train_config(kind);
    assert_true(kind->training.lr > 0 && kind->training.batch > 0);
    assert_true(values[BPPSA_OPTION_LR].real == kind->training.lr && config.optimizer.lr == kind->training.lr);
    assert_string_equal(values[BPPSA_OPTION_OPTIMIZER].text, bppsa_optimizer_name(kind->training.optimizer));
    assert_int_equal(config.optimizer.kind, kind->training.optimizer);
    assert_true(values[BPPSA_OPTION_MOMENTUM].real == kind->training.momentum);
    assert_true(config.optimizer.momentum == kind->training.momentum);
    assert_int_equal(values[BPPSA_OPTION_BATCH].integer, kind->training.batch);
    assert_int_equal(config.batch, kind->training.batch);
    assert_string_equal(values[BPPSA_OPTION_LR_SCHEDULE].text, bppsa_rate_name(config.rate.kind));
  }
  assert_true(found >= 6); /* rnn, gru, lstm, lenet5, vgg11, a file's */
  assert_null(bppsa_network_kind_at(-1));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_schedules), cmocka_unit_test(test_rates_are_used),
                                     cmocka_unit_test(test_requests),  cmocka_unit_test(test_resume),
                                     cmocka_unit_test(test_defaults),  cmocka_unit_test(test_predictions)};
  return cmocka_run_group_tests_name("cli_training", tests, enter_directory, leave_directory);
}

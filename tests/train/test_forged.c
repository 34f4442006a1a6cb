/* Checkpoints whose checksums are right, and whose contents no run can have written. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/support.h"
#include "tests/train/forge.h"
#include "tests/train/tiny_model.h"
#include "train/trainer.h"

#define FOLDER "forged_test"
#define LATEST FOLDER "/checkpoint.safetensors"

enum { SEQ_LEN = 6, CLASSES = 10, SAMPLES = 21, BATCH = 4 };

static bppsa_status train(int64_t iterations, bool resume) {
  const bppsa_dataset_options options = {.samples = SAMPLES, .seq_len = SEQ_LEN, .seed = 2};
  bppsa_train_config config = bppsa_train_config_default();
  bppsa_dataset *dataset = NULL;
  bppsa_train_result result;
  config.batch = BATCH;
  config.iterations = iterations;
  config.checkpoint = FOLDER;
  config.resume = resume;
  BPPSA_TRY(bppsa_dataset_create("bitstream", &options, &dataset));
  tiny_model *model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, BATCH, false);
  assert_non_null(model);
  const bppsa_status status = bppsa_train(&config, &model->base, dataset, NULL, NULL, &result);
  bppsa_model_destroy(&model->base);
  bppsa_dataset_destroy(dataset);
  return status;
}

static void fresh(int64_t iterations) {
  assert_int_equal(system("rm -rf " FOLDER), 0);
  if (train(iterations, false) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

static void numbers(void **state) {
  (void)state;
  static const struct {
    const char *tensor;
    int64_t index, whole;
    double real;
    const char *message;
  } forged[] = {
      {"train.cursor", 0, -1, 0, "step -1, expected 0 or more"},
      {"train.cursor", 0, INT64_MAX, 0, "9223372036854775807 steps are done, more than the 20 asked for"},
      {"train.cursor", 0, 7, 0, "position 8, not where a run of 7 steps can be"},
      {"train.cursor", 1, INT64_MAX, 0,
       "train.cursor: epoch 9223372036854775807, not where a run of 8 steps can be, expected 2 .. 2"},
      {"train.cursor", 1, INT64_MIN, 0, "train.cursor: epoch"},
      {"train.cursor", 1, 0, 0, "train.cursor: epoch 0"},
      {"train.cursor", 2, 9, 0, "train.cursor: position 9, not where a run of 8 steps can be, expected 8 .. 8"},
      {"train.cursor", 2, 12, 0, "train.cursor: position"},
      {"train.cursor", 2, -4, 0, "train.cursor: position"},
      {"train.cursor", 3, 33, 0, "steps of the optimiser 33, not where a run of 8 steps can be, expected 0 .. 32"},
      {"train.cursor", 3, -1, 0, "steps of the optimiser"},
      {"train.epoch_counts", 0, -1, 0, "train.epoch_counts: correct rows -1"},
      {"train.epoch_counts", 0, 9, 0, "train.epoch_counts: correct rows 9"},
      {"train.epoch_counts", 1, -1, 0, "train.epoch_counts: rows -1"},
      {"train.epoch_counts", 1, 9, 0, "train.epoch_counts: rows 9"},
      {"train.epoch_counts", 2, -1, 0, "train.epoch_counts: steps -1"},
      {"train.epoch_counts", 3, 7, 0, "train.epoch_counts: samples 7"},
      {"train.epoch_counts", 4, -1, 0, "train.epoch_counts: redone products -1"},
      {"train.epoch_sums", 0, 0, (double)NAN, "train.epoch_sums: loss"},
      {"train.epoch_sums", 5, 0, -1, "train.epoch_sums: seconds -1, expected a finite sum, 0 or more"},
      {"train.last_step", 0, 0, 1e300, "train.last_step: step"},
      {"train.last_step", 0, 0, (double)NAN, "train.last_step: step"},
      {"train.last_step", 1, 0, 2.5, "train.last_step: epoch"},
      {"train.last_step", 11, 0, (double)INFINITY, "train.last_step: redone"},
      {"train.last_step", 2, 0, -(double)INFINITY, "train.last_step: loss -inf, expected -1.79769e+308 .. 1.79769e+308"},
      {"train.last_step", 3, 0, -1e300, "train.last_step: accuracy -1e+300, expected 0 .. 1"},
      {"train.last_step", 4, 0, (double)NAN, "train.last_step: grad_norm nan, expected 0 .. 1.79769e+308"},
      {"train.last_step", 5, 0, -1, "train.last_step: forward_s -1"},
      {"train.last_step", 6, 0, (double)INFINITY, "train.last_step: backward_s inf"},
      {"train.last_step", 7, 0, -1e-9, "train.last_step: update_s -1e-09"},
      {"train.last_step", 8, 0, -1, "train.last_step: samples_per_s -1"},
      {"train.last_step", 12, 0, -0.5, "train.last_step: lr -0.5"},
      {"train.last_step", 9, 0, 5, "train.last_step: validation_loss 5"}, /* of a run that holds nothing out */
      {"train.last_step", 10, 0, 0.5, "train.last_step: validation_accuracy 0.5"},
      {"train.last_epoch", 9, 0, (double)INFINITY, "train.last_epoch: validation_loss inf"},
      {"train.last_epoch", 2, 0, (double)NAN, "train.last_epoch: loss nan"},
      {"train.last_epoch", 3, 0, 1.5, "train.last_epoch: accuracy 1.5"},
      {"train.last_epoch", 12, 0, (double)INFINITY, "train.last_epoch: lr inf"},
      {"optimizer.linear.bias.exp_avg_sq", 0, 0, -1, /* as two numbers of f32 */
       "optimizer.linear.bias.exp_avg_sq: element 1 is -1.875, expected 0 or more"},
      {"train.last_epoch", 0, 0, 7, "train.last_epoch: step 7"},
      {"train.last_epoch", 1, 0, -1, "train.last_epoch: epoch -1"},
      {"train.last_epoch", 11, 0, 0.5, "train.last_epoch: redone"},
      {"train.log", 0, -2, 0, "train.log: bytes -2"},
      {"train.log", 1, -1, 0, "train.log: crc32 -1"},
      {"train.log", 1, (int64_t)1 << 32, 0, "train.log: crc32"},
  };
  for (size_t i = 0; i < sizeof forged / sizeof forged[0]; ++i) {
    fresh(8); /* the second step of the second epoch of six */
    const bool real = strstr(forged[i].tensor, "sums") != NULL || strstr(forged[i].tensor, "last") != NULL ||
                      strstr(forged[i].tensor, "exp_avg") != NULL;
    forge(FOLDER, forged[i].tensor, forged[i].index, real ? (const void *)&forged[i].real : (const void *)&forged[i].whole);
    const bppsa_status status = train(20, true);
    if (status == BPPSA_OK || strstr(bppsa_last_error(), forged[i].message) == NULL ||
        strstr(bppsa_last_error(), FOLDER) == NULL) {
      fail_msg("%s[%d]: %s: %s, expected \"%s\"", forged[i].tensor, (int)forged[i].index, bppsa_status_name(status),
               bppsa_last_error(), forged[i].message);
    }
  }
}

/* What a run has written is where a run can be: after every number of steps, with checksums made anew. */
static void every_place_is_one(void **state) {
  (void)state;
  for (int64_t steps = 1; steps <= 13; ++steps) {
    const int64_t log = -1;
    fresh(steps);
    forge(FOLDER, "train.log", 0, &log);
    if (train(20, true) != BPPSA_OK) {
      fail_msg("after %d steps: %s", (int)steps, bppsa_last_error());
    }
  }
  assert_int_equal(system("rm -rf " FOLDER), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(every_place_is_one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

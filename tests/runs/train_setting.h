/* A run of training for tests: a small RNN or LeNet-5's kind on data that the program makes, set up as `train` does it. */
#ifndef BPPSA_TESTS_RUNS_TRAIN_SETTING_H
#define BPPSA_TESTS_RUNS_TRAIN_SETTING_H

#include "runs/train_run.h"
#include "tests/core/helpers.h"

enum { RUN_SAMPLES = 12, RUN_STEPS = 6, RUN_BATCH = 5 };

/* A run over one epoch of RUN_SAMPLES samples, a sixth of them held out. */
static inline bppsa_status open_run(bppsa_backward backward, bppsa_train_run *run) {
  const bppsa_dataset_options options = {.samples = RUN_SAMPLES, .seq_len = RUN_STEPS};
  *run = (bppsa_train_run){.train = bppsa_train_config_default(), .init = "default", .chosen = BPPSA_CHOSEN_BY_OPTION};
  BPPSA_TRY(bppsa_network_open("rnn", NULL, &run->network));
  run->config = bppsa_network_config_default(&run->network);
  run->config.batch = run->train.batch = RUN_BATCH;
  run->config.steps.hidden = 3;
  run->config.method = (bppsa_gradient_method){backward, bppsa_scan_method_of(BPPSA_SCAN_BLELLOCH)};
  run->train.epochs = 1;
  run->train.validation = 1.0 / 6;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &run->device));
  BPPSA_TRY(bppsa_dataset_create("bitstream", &options, &run->dataset));
  BPPSA_TRY(bppsa_dataset_split(run->dataset, run->train.validation, &run->split));
  run->epoch_samples = run->split.train;
  BPPSA_TRY(bppsa_network_fit(&run->network, NULL, run->dataset, &run->config));
  BPPSA_TRY(bppsa_train_run_create_model(run));
  BPPSA_TRY(bppsa_network_init(&run->network, run->model, BPPSA_INIT_DEFAULT, 3));
  bppsa_train_run_set_fields(run);
  return BPPSA_OK;
}

#endif

/* The checkpoints of `train`: their options, what a run must agree with to be resumed, and its end by a signal. */
#ifndef BPPSA_CLI_TRAIN_CHECKPOINT_H
#define BPPSA_CLI_TRAIN_CHECKPOINT_H

#include "cli/train_report.h"

enum { BPPSA_RUN_FIELDS = 5, BPPSA_RUN_FIELD_TEXT = 64 };

/* What the library cannot know of a run; config.fields points here. */
typedef struct {
  bppsa_metadata fields[BPPSA_RUN_FIELDS];
  char texts[BPPSA_RUN_FIELDS][BPPSA_RUN_FIELD_TEXT];
} bppsa_run_fields;

/* --checkpoint, --checkpoint-every and --resume into the configuration. ERR_ARGUMENT: one without the other, a directory that
 * cannot be written. */
bppsa_status bppsa_train_checkpoint_options(const bppsa_cli *cli, bppsa_train_config *train);
/* A resumed run computes its gradients as it did, also where `auto` would choose otherwise today: *chosen is then the checkpoint.
 * ERR_ARGUMENT, ERR_FORMAT. */
bppsa_status bppsa_train_checkpoint_method(const bppsa_train_config *train, bppsa_recurrent_config *config, bppsa_chosen *chosen);
/* The fields, once the model exists. */
void bppsa_train_checkpoint_fields(bppsa_train_run *run, bppsa_run_fields *fields);

/* bppsa_train; SIGINT and SIGTERM end it after its step, the second one at once (cli/interrupt.h). */
bppsa_status bppsa_train_interruptible(bppsa_train_run *run, bppsa_train_callbacks *callbacks);
/* ERR_IO where the run was stopped: the message names what is kept. */
bppsa_status bppsa_train_check_stopped(const bppsa_train_run *run);

#endif

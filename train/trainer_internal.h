/* A training run and what of it is kept in checkpoints. Internal. */
#ifndef BPPSA_TRAIN_TRAINER_INTERNAL_H
#define BPPSA_TRAIN_TRAINER_INTERNAL_H

#include "core/clock.h"
#include "train/batch.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

/* Sums over the steps of an epoch. */
typedef struct {
  double loss; /* Σ loss of a row */
  int64_t correct, rows;
  double grad_norm;
  int64_t steps, samples, redone;
  double forward_s, backward_s, update_s, seconds;
} bppsa_epoch_sums;

enum { BPPSA_RECORD_NUMBERS = 13, BPPSA_FIELD_TEXT = 64 };

/* What a checkpoint holds besides the weights and the optimiser's state: these arrays, each a tensor. The seed is one of the
 * fields; the random numbers are counted by epoch and step, so that they need no state of their own. */
typedef struct {
  int64_t cursor[4];                       /* train.cursor: step, epoch, position, optimiser's steps */
  int64_t counts[5];                       /* train.epoch_counts: correct, rows, steps, samples, redone */
  double sums[6];                          /* train.epoch_sums: loss, grad_norm, forward_s, backward_s, update_s, seconds */
  double last_step[BPPSA_RECORD_NUMBERS];  /* train.last_step: a record's fields; validation NaN where there is none */
  double last_epoch[BPPSA_RECORD_NUMBERS]; /* train.last_epoch: likewise */
  int64_t log[2];                          /* train.log: bytes (-1: no log), crc32 */
} bppsa_stored;

typedef struct bppsa_gpu_steps bppsa_gpu_steps; /* train/step_gpu.c */

typedef struct {
  const bppsa_train_config *config;
  bppsa_train_callbacks callbacks;
  bppsa_model *model;
  const bppsa_dataset *dataset;
  const bppsa_device *device;
  bppsa_split split;
  bppsa_batch batch;
  int64_t samples; /* of an epoch */
  int64_t *order;  /* the epoch's, size samples */
  bppsa_optimizer *optimizer;
  bppsa_gpu_steps *gpu; /* NULL: the model is in host memory */
  int64_t redone;       /* of the model, as far as they have been counted */
  bppsa_log *log;       /* NULL: none */
  bppsa_batch_cursor cursor;
  int64_t total_steps;
  bppsa_rate_config rate; /* the config's, its period set */
  double start;
  bppsa_epoch_sums epoch;
  bppsa_train_record last_epoch; /* the latest complete one */
  bppsa_line nonfinite;          /* what was found, empty while everything is finite */
  bppsa_train_result result;

  /* checkpoints; NULL: none */
  bppsa_checkpoint *checkpoint;
  int64_t checkpoint_step; /* of the latest saved or loaded */
  bppsa_stored stored;
  bppsa_named_view *tensors; /* weights, optimiser's state, the arrays of `stored` */
  char *names;               /* the optimiser's tensors' */
  bppsa_metadata *fields;    /* the caller's and the training's own */
  char (*texts)[BPPSA_FIELD_TEXT];
  char order_text[BPPSA_FIELD_TEXT];
} bppsa_training;

/* A step of the batch that has been staged: forward pass, loss, backward pass, update. Fills the record's loss, accuracy, norm
 * and times. Where something is not finite it stops there, nothing is updated, and run->nonfinite says what. On a GPU all of it
 * is queued, from the second batch of a size on as a recording, and waited for once. */
bppsa_status bppsa_step(bppsa_training *run, bppsa_train_record *record, bppsa_loss_result *loss);

/* Those of a GPU, for step.c and trainer.c. */
bppsa_status bppsa_gpu_steps_create(const bppsa_device *device, bppsa_gpu_steps **steps); /* ERR_CUDA, ERR_MEMORY */
void bppsa_gpu_steps_destroy(const bppsa_device *device, bppsa_gpu_steps *steps);         /* NULL is legal */
bppsa_status bppsa_step_gpu(bppsa_training *run, bppsa_train_record *record, bppsa_loss_result *loss);

/* Opens the checkpoint directory and the log: saves the first checkpoint of a new run, restores a resumed one. Everything else is
 * prepared. */
bppsa_status bppsa_training_open_files(bppsa_training *run);
/* Saves a checkpoint: at the step, if it is due there; or where `now`, unless that step has one. */
bppsa_status bppsa_training_save(bppsa_training *run, bool epoch_complete, bool now);
void bppsa_training_close_checkpoint(bppsa_training *run);

#endif

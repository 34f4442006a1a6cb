/* A training run and the part of it that checkpoints keep. Internal. */
#ifndef BPPSA_TRAIN_TRAINER_INTERNAL_H
#define BPPSA_TRAIN_TRAINER_INTERNAL_H

#include "core/base/clock.h"
#include "train/batch.h"
#include "train/checkpoint.h"
#include "train/ranks.h"
#include "train/trainer.h"

/* Sums over the steps of an epoch. */
typedef struct {
  double loss; /* Σ of the rows' losses, each times its weight */
  double weight;
  int64_t correct, rows;
  double grad_norm;
  int64_t steps, samples, redone;
  double forward_s, backward_s, update_s, seconds;
  double account[BPPSA_PASS_KINDS][BPPSA_ACCOUNT_NUMBERS]; /* the model's accounts of its passes */
  bppsa_train_certificate certificate;                     /* no checkpoint has it */
} bppsa_epoch_sums;

enum { BPPSA_RECORD_NUMBERS = 13, BPPSA_FIELD_TEXT = 64 };

/* What a checkpoint holds besides the weights and the optimiser's state: these arrays, each a tensor. The seed is among the
 * fields; random numbers are numbered by epoch and step and need no state. */
typedef struct {
  int64_t cursor[4];                       /* train.cursor: step, epoch, position, optimiser's steps */
  int64_t counts[5];                       /* train.epoch_counts: correct, rows, steps, samples, redone */
  double sums[6];                          /* train.epoch_sums: loss, grad_norm, forward_s, backward_s, update_s, seconds */
  double last_step[BPPSA_RECORD_NUMBERS];  /* train.last_step: the fields of a record; validation is NaN if there was none */
  double last_epoch[BPPSA_RECORD_NUMBERS]; /* train.last_epoch: the same for the latest complete epoch */
  int64_t log[2];                          /* train.log: bytes (-1: no log), crc32 */
  /* train.states, of streams, is the batch's */
  double weight; /* train.epoch_weight, of data with weights: the sum of the counted rows' weights in this epoch */
  /* train.forward and train.backward, of passes of which the model gives an account: its state, the epoch's sums */
  double account[BPPSA_PASS_KINDS][BPPSA_ACCOUNT_NUMBERS];
} bppsa_stored;

typedef struct bppsa_gpu_steps bppsa_gpu_steps; /* train/step_gpu.c */

typedef struct {
  const bppsa_train_config *config;
  bppsa_train_callbacks callbacks;
  bppsa_model *model;
  const bppsa_model_account *accounts[BPPSA_PASS_KINDS]; /* of the model's passes; NULL: there is none */
  const bppsa_dataset *dataset;
  const bppsa_device *device;
  bppsa_split split;
  bppsa_batch batch;
  int64_t samples;                /* in an epoch */
  int64_t most;                   /* samples of a full batch */
  int64_t count;                  /* samples of the present batch; with ranks of all ranks together */
  const bppsa_train_ranks *ranks; /* NULL: one rank */
  bppsa_train_lead lead;          /* what ranks that hold parts of the weights ask for */
  bool first;                     /* this rank writes the files */
  int64_t *order;                 /* the epoch's order, size samples */
  bppsa_optimizer *optimizer;
  bppsa_model copies;   /* the model's parameters in host memory */
  bppsa_gpu_steps *gpu; /* NULL: the model is in host memory, or ranks update it */
  int64_t redone;       /* the model's redone products that have been counted so far */
  bppsa_log *log;       /* NULL: none */
  bppsa_batch_cursor cursor;
  int64_t total_steps;
  bppsa_rate_config rate; /* the configured rate, with its period set */
  double start;
  bppsa_epoch_sums epoch;
  bppsa_train_record last_epoch; /* the latest complete epoch */
  bppsa_line nonfinite;          /* what was found; empty while everything is finite */
  bppsa_train_result result;

  /* Checkpoints; NULL: none. */
  bppsa_checkpoint *checkpoint;
  int64_t checkpoint_step; /* step of the latest checkpoint saved or loaded */
  bppsa_stored stored;
  int64_t tensor_count;
  bppsa_named_view *tensors; /* weights, optimiser's state, the arrays of `stored` */
  char *names;               /* names of the optimiser's tensors */
  bppsa_metadata *fields;    /* the caller's fields and the training's own */
  bppsa_metadata *reduction; /* the field that says how ranks add gradients up; NULL: one rank */
  char (*texts)[BPPSA_FIELD_TEXT];
  char order_text[BPPSA_FIELD_TEXT];
  char windows_text[BPPSA_FIELD_TEXT];                   /* of streams whose gradients go back through several batches */
  char plan_texts[BPPSA_PASS_KINDS][BPPSA_ACCOUNT_PLAN]; /* how the model makes its passes; "" without an account */
} bppsa_training;

/* The samples of the present batch in the data set, size run->count. */
static inline const int64_t *bppsa_training_indices(const bppsa_training *run) {
  return run->order + run->cursor.position - run->count;
}

/* Takes a step with the present batch: forward pass, loss, backward pass, update. Fills the record's loss, accuracy, norm and
 * times. If something is not finite it stops, updates nothing, and sets run->nonfinite. On a GPU the whole step is queued, from
 * the second batch of a size on as a recording, and waited for once. */
bppsa_status bppsa_step(bppsa_training *run, bppsa_train_record *record, bppsa_loss_result *loss);

/* Is the step certified? */
static inline bool bppsa_step_is_certified(const bppsa_training *run, int64_t step) {
  const int64_t every = run->config->certify_every;
  return every > 0 && (step == 1 || step % every == 0);
}
/* Certifies the gradients that the latest backward pass has set. ERR_* of bppsa_certify. */
bppsa_status bppsa_step_certify(bppsa_training *run, bppsa_train_record *record);

/* The functions of step_gpu.c, for step.c and trainer.c. */
bppsa_status bppsa_gpu_steps_create(const bppsa_device *device, bppsa_gpu_steps **steps); /* ERR_CUDA, ERR_MEMORY */
void bppsa_gpu_steps_destroy(const bppsa_device *device, bppsa_gpu_steps *steps);         /* NULL is legal */
bppsa_status bppsa_step_gpu(bppsa_training *run, bppsa_train_record *record, bppsa_loss_result *loss);

/* Do ranks that hold parts of the weights update them? */
static inline bool bppsa_training_updated(const bppsa_training *run) {
  return run->ranks != NULL && run->ranks->updates > 0;
}

/* Makes the model, also on a GPU, and the optimiser's state whole, where ranks hold parts of them. */
static inline bppsa_status bppsa_training_gather(const bppsa_training *run) {
  if (!bppsa_training_updated(run)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(run->ranks->gather(run->ranks->context));
  return bppsa_model_push(run->model);
}

/* Names of tensors in checkpoints: what the optimiser's begin with; the states that streams go on with; the accounts of passes. */
#define BPPSA_TENSOR_OPTIMIZER "optimizer."
#define BPPSA_TENSOR_STATES "train.states"
extern const char *const bppsa_training_account_names[BPPSA_PASS_KINDS];
/* Checks what was read into `stored`, the optimiser and the batch. ERR_FORMAT: no run can have stored it; ERR_ARGUMENT: more steps
 * are done than are asked for. */
bppsa_status bppsa_training_check_stored(const bppsa_training *run);

/* Opens the checkpoint directory and the log: saves the first checkpoint of a new run, restores a resumed one. Everything else
 * must be prepared. */
bppsa_status bppsa_training_open_files(bppsa_training *run);
/* Saves a checkpoint if one is due at this step, or if `now`; never twice at one step. */
bppsa_status bppsa_training_save(bppsa_training *run, bool epoch_complete, bool now);
void bppsa_training_close_checkpoint(bppsa_training *run);
/* Writes a note to the log: `{"note":"…"}`. ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_training_log_note(bppsa_training *run, const char *note);

#endif

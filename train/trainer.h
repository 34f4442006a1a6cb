/* The training loop.
 *
 *     for every batch:  fill, forward, loss, backward, clip, update
 *
 * The loop drives a bppsa_model and never sees how it computes its gradients. A model of a GPU is trained there: batches are
 * made there or copied there, and a step is queued as a whole, recorded once a batch size, and waited for once. Whether the loss
 * is on the last or on every step is the data set's labels_per_step; the model's logits must agree with it. It is the
 * cross-entropy of labels, those the data set ignores left out, or the mean squared error of real targets (train/loss.h).
 */
#ifndef BPPSA_TRAIN_TRAINER_H
#define BPPSA_TRAIN_TRAINER_H

#include "core/device.h"
#include "core/model.h"
#include "core/safetensors.h"
#include "train/data/dataset.h"
#include "train/evaluate.h"
#include "train/log.h"
#include "train/optimizer.h"
#include "train/order.h"
#include "train/rate.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int64_t epochs;                   /* exactly one of epochs and iterations is above 0 */
  int64_t iterations;               /* training steps */
  int64_t batch;                    /* >= 1; the last batch of an epoch holds what is left */
  bppsa_optimizer_config optimizer; /* bppsa_optimizer_config_default() */
  bppsa_rate_config rate;           /* how the optimiser's lr changes: bppsa_rate_config_default() */
  double clip_norm;                 /* 0: no clipping */
  uint64_t seed;                    /* of the order of the samples */
  bppsa_order order;                /* zero: shuffled; what it points to is borrowed */
  double validation;                /* fraction held out, [0, 1) */
  const char *log_path;             /* NULL: no log. A line a step with iterations, a line an epoch with epochs */
  const char *log_header;           /* the log's first line, one JSON object without "step": what the run is; NULL: none */
  const char *checkpoint;           /* a directory (train/checkpoint.h), NULL: no checkpoints */
  int64_t checkpoint_every;         /* steps; 0: every epoch, or every 100 steps with iterations */
  bool resume;                      /* go on from the directory's checkpoint, which must be there; otherwise there must be none */
  const char *gradients;            /* how they are computed, for the log: "chunked 44"; NULL: not said */
  int64_t field_count;
  const bppsa_metadata
      *fields; /* what a resumed run must agree with besides what is known here: how gradients are computed, .. */
} bppsa_train_config;

/* epochs 0, iterations 0 (one must be set), batch 16, Adam 1e-3 without a schedule, no clipping, seed 0, no validation, no log, no
 * checkpoints. */
bppsa_train_config bppsa_train_config_default(void);

/* The same with what `bppsa train MODEL` takes where no option says otherwise: "rnn" as above; "gru" Adam 3e-4; every other
 * model, which is a convolutional one, SGD 1e-3 with momentum 0.9, batch 256. */
bppsa_train_config bppsa_train_config_for(const char *model);

typedef struct {
  int64_t step;        /* steps done */
  int64_t done;        /* of which by this call */
  int64_t total_steps; /* of the run */
  int64_t epoch;
  double loss;      /* of this step */
  double elapsed_s; /* since the first step began */
  double eta_s;     /* expected seconds left; 0 at the end */
} bppsa_progress;

/* Where a run begins. */
typedef struct {
  bool resumed;
  int64_t step;             /* steps done before */
  bppsa_train_record epoch; /* the latest complete epoch; step 0 where there is none */
  const char *notice;       /* "", or a line the user should see (bppsa_checkpoint_load) */
} bppsa_train_start;

/* Each may be NULL. on_step and on_epoch end the run by returning anything but OK; bppsa_train then returns that status.
 * on_step comes after every step's update; on_epoch after every complete epoch, with validation only in a run by epochs;
 * progress after every step: throttle in it. started comes before the first step, when nothing can be refused any more; what it
 * returns is as on_step's. stop is asked after every step: true ends the run there, with a checkpoint where there are
 * checkpoints; the log of a run by epochs then ends with a line of the epoch as far as it came, which the checkpoint does not
 * count. */
typedef struct {
  void *context;
  bppsa_status (*on_step)(void *context, const bppsa_train_record *record);
  bppsa_status (*on_epoch)(void *context, const bppsa_train_record *record);
  void (*progress)(void *context, const bppsa_progress *progress);
  bppsa_status (*started)(void *context, const bppsa_train_start *start);
  bool (*stop)(void *context);
} bppsa_train_callbacks;

typedef struct {
  int64_t steps;                          /* done, those before the run was resumed included */
  int64_t epochs;                         /* begun */
  int64_t resumed;                        /* steps done before this call: 0 in a new run */
  bool stopped;                           /* by the callback, before all steps were done */
  bppsa_train_record first;               /* this call's first step */
  bppsa_train_record last;                /* the last step; has_validation with the final weights' where samples are held out */
  bppsa_train_record partial;             /* where it was stopped: that epoch as far as it came */
  double forward_s, backward_s, update_s; /* sums over this call's steps */
  int64_t redone;                         /* scan products redone by this call's steps */
  double seconds;                         /* this call's whole loop, validation and checkpoints included */
} bppsa_train_result;

/* Trains the model in place; `device` is where the model is, and gives the threads. callbacks may be NULL. The log file is
 * created once everything else has been checked. The loop allocates nothing, except while a checkpoint is saved and for a GPU's
 * recordings. The parameters' views hold what was reached when it returns, also those of a GPU's model. On a GPU scan products
 * redone are counted a step at a time in runs by iterations or with checkpoints, else an epoch at a time. A new run saves one
 * before its first step (so that a directory that cannot take one is found out), then as configured, and after the last step. A
 * resumed run ends with the bits of one that was never interrupted: weights, optimiser, data cursor and logged losses; the log
 * is cut back to the checkpoint. It may be given more epochs or iterations than before, or as many as are done: then nothing is
 * left to do. ERR_ARGUMENT: a setting out of range, labels beyond the model's classes, a checkpoint where none is wanted, none
 * where one is, or of another run (the message names what contradicts), a log that is not the resumed run's. ERR_FORMAT: no
 * valid checkpoint. ERR_SHAPE, ERR_UNSUPPORTED: from the model. ERR_NUMERIC: the first loss, gradient or parameter that is not
 * finite, in the step in which it appears; that step's log line and on_step come first. ERR_IO: the log, a checkpoint. ERR_CUDA. */
bppsa_status bppsa_train(const bppsa_train_config *config, bppsa_model *model, const bppsa_dataset *dataset,
                         const bppsa_device *device, const bppsa_train_callbacks *callbacks, bppsa_train_result *result);

#ifdef __cplusplus
}
#endif
#endif

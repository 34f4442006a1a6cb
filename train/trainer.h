/* The training loop.
 *
 *     for every batch:  fill, forward, loss, backward, clip, update
 *
 * The loop drives a bppsa_model and never sees how it computes its gradients. A model on a GPU is trained on it: batches are made
 * on the GPU or copied to it; a step is queued as a whole, recorded once for each batch size, and waited for once. The data set's
 * labels_per_step says whether the loss is on every step or on the last one; the model's logits must agree. The loss is the
 * cross-entropy of labels, without those the data set ignores, or the mean squared error of real targets (train/loss.h).
 *
 * Of streams whose data set has windows K > 1 a step's pass has the latest K batches, each stream's pieces as one row of up to K T
 * steps, and the loss is that of the latest batch: BPTT(h; h') of Williams and Peng (1990) with h = K T, h' = T. The row begins
 * with the states in which the pass of K batches before has ended. The model is one of K T steps that takes lengths; where the data
 * set has whole_rows, one that takes resets and has no reset state of its own.
 */
#ifndef BPPSA_TRAIN_TRAINER_H
#define BPPSA_TRAIN_TRAINER_H

#include "core/compute/device.h"
#include "core/compute/model.h"
#include "core/files/safetensors.h"
#include "train/data/dataset.h"
#include "train/evaluate.h"
#include "train/log.h"
#include "train/optimizer.h"
#include "train/order.h"
#include "train/rate.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_train_ranks bppsa_train_ranks; /* several ranks that train one model */

typedef struct {
  int64_t epochs;                   /* exactly one of epochs and iterations is above 0 */
  int64_t iterations;               /* training steps */
  int64_t batch;                    /* >= 1; the last batch of an epoch holds the remaining samples */
  bppsa_optimizer_config optimizer; /* bppsa_optimizer_config_default() */
  bppsa_rate_config rate;           /* how the optimiser's lr changes; by default it does not */
  double clip_norm;                 /* 0: no clipping */
  uint64_t seed;                    /* of the shuffling */
  bppsa_order order;                /* zero: shuffled; borrowed */
  double validation;                /* fraction held out, [0, 1) */
  const char *log_path;             /* NULL: no log. One line for each step with iterations, for each epoch with epochs */
  const char *log_header;           /* the log's first line, a JSON object without "step" that describes the run; NULL: none */
  const char *checkpoint;           /* a directory; NULL: no checkpoints */
  int64_t checkpoint_every;         /* in steps; 0: every epoch, or every 100 steps with iterations */
  /* continue from the directory's checkpoint, which must exist; otherwise the directory must have none */
  bool resume;
  /* Every so many steps, and after the first, the weight gradients are certified (recurrent/certify.h) before they are clipped; 0:
   * never. No number of the run depends on it, and a checkpoint has nothing of it. Not with ranks. */
  int64_t certify_every;
  const char *gradients; /* the method of the gradients, for the log: "chunked 44"; NULL: left out */
  int64_t field_count;
  /* settings in which a resumed run must agree, besides those of this struct: how gradients are computed, .. */
  const bppsa_metadata *fields;
  const bppsa_train_ranks *ranks; /* the other ranks of this one, borrowed; NULL: it trains alone */
  const char *reduction;          /* with ranks: how gradients are added up, on which the bits depend */
  bool other_reduction;           /* resume a run even if its gradients were added up in another way */
} bppsa_train_config;

/* epochs 0, iterations 0 (one must be set), batch 16, Adam 1e-3 without a schedule, no clipping, seed 0, no validation, no log,
 * no checkpoints, no certificates. */
bppsa_train_config bppsa_train_config_default(void);

/* Steps between two checkpoints; 0: there are none, or one for each epoch. */
int64_t bppsa_train_checkpoint_steps(const bppsa_train_config *config);

typedef struct {
  int64_t step;        /* steps done, including those before the run was resumed */
  int64_t done;        /* steps done by this call */
  int64_t total_steps; /* of the run */
  int64_t epoch;
  double loss;      /* of this step */
  double elapsed_s; /* since the first step began */
  double eta_s;     /* expected seconds left; 0 at the end */
} bppsa_progress;

/* Where a run begins. */
typedef struct {
  bool resumed;
  int64_t step;             /* steps done before this call */
  bppsa_train_record epoch; /* the latest complete epoch; its step is 0 if there is none */
  const char *notice;       /* "", or a line for the user about the checkpoint */
} bppsa_train_start;

/* Each may be NULL. `started` comes before the first step, when all checks have passed. on_step comes after every step's update,
 * and `progress` too, which should limit how often it prints. on_epoch comes after every complete epoch, with validation only in
 * a run by epochs. on_update comes before on_step, with the weights that the update has made, and may fill in weight_errors of
 * the record; next: the optimiser's configuration, with the learning rate of the next update. It never comes on a GPU or with
 * ranks. If started, on_update, on_step or on_epoch returns anything but OK, the run ends and bppsa_train returns that status.
 * `stop` is asked after every step: true ends the run, with a checkpoint if there are checkpoints; the log of a run by epochs
 * then ends with a line for the incomplete epoch, which the checkpoint does not count. */
typedef struct {
  void *context;
  bppsa_status (*on_update)(void *context, bppsa_optimizer *optimizer, const bppsa_optimizer_config *next,
                            bppsa_train_record *record);
  bppsa_status (*on_step)(void *context, const bppsa_train_record *record);
  bppsa_status (*on_epoch)(void *context, const bppsa_train_record *record);
  void (*progress)(void *context, const bppsa_progress *progress);
  bppsa_status (*started)(void *context, const bppsa_train_start *start);
  bool (*stop)(void *context);
  void (*note)(void *context, const char *text); /* a line for the user, before the first step; the log has it too */
} bppsa_train_callbacks;

typedef struct {
  int64_t steps;                          /* steps done, including those before the run was resumed */
  int64_t epochs;                         /* epochs begun */
  int64_t resumed;                        /* steps done before this call: 0 in a new run */
  bool stopped;                           /* the callback stopped it before all steps were done */
  bppsa_train_record first;               /* the first step of this call */
  bppsa_train_record last;                /* the last step; has_validation with the final weights if samples are held out */
  bppsa_train_record partial;             /* if stopped: the epoch so far */
  double forward_s, backward_s, update_s; /* sums over this call's steps */
  double account[BPPSA_PASS_KINDS][BPPSA_ACCOUNT_NUMBERS]; /* the model's accounts of this call's passes */
  int64_t redone;                                          /* scan products redone in this call's steps */
  bppsa_train_certificate certificate;                     /* of this call's steps */
  double seconds;                                          /* of this call's loop, with validation and checkpoints */
} bppsa_train_result;

/* Trains the model in place. `device` is the model's and gives the threads. callbacks may be NULL.
 *
 * The log file is created after all other checks. The loop allocates nothing, except to save a checkpoint and to record on a GPU.
 * On return the parameters' views hold the values that were reached, also for a model on a GPU. However a run ends that has
 * computed a pass, the model has then forgotten its passes (bppsa_model_forget), whose memory was the run's. On a GPU redone scan
 * products are counted after each step in runs by iterations or with checkpoints, otherwise after each epoch.
 *
 * A new run saves a checkpoint before its first step (to find out whether the directory can take one), then as configured, and
 * after the last step. A resumed run ends with the bits of a run that was never interrupted: weights, optimiser, position in the
 * data and logged losses; the log is cut back to the checkpoint. It may be given more epochs or iterations than before, or as
 * many as are done, which leaves nothing to do.
 *
 * With ranks every rank calls it, with the same settings; only the first one writes files and gets callbacks, but `stop` is asked
 * on all. A run whose gradients were added up in another way is resumed only if other_reduction allows it, and the notice says so.
 *
 * ERR_ARGUMENT: a setting out of range, labels beyond the model's classes, a checkpoint where none may be, no checkpoint to
 * resume from, a checkpoint of another run (the message names what disagrees), a log that is not the resumed run's. ERR_FORMAT:
 * no valid checkpoint. ERR_SHAPE, ERR_UNSUPPORTED: from the model, or from certificates. ERR_NUMERIC: the first loss,
 * gradient or parameter that is not finite, in the step in which it appears, after that step's log line and on_step. ERR_IO: the
 * log, a checkpoint. ERR_CUDA. */
bppsa_status bppsa_train(const bppsa_train_config *config, bppsa_model *model, const bppsa_dataset *dataset,
                         const bppsa_device *device, const bppsa_train_callbacks *callbacks, bppsa_train_result *result);

#ifdef __cplusplus
}
#endif
#endif

/* Several ranks that train one model together, as the training loop sees them: a table of functions that distributed/ fills in.
 * Internal.
 *
 * Every rank runs the whole loop (train/trainer.h) with a model of its own, equal at the start. The ranks share the work of a
 * batch, and the gradients that every rank then holds are the same to the bit, so that equal updates keep the models equal. The
 * first rank alone writes the log and the checkpoints and calls the callbacks. Each function is collective.
 */
#ifndef BPPSA_TRAIN_RANKS_H
#define BPPSA_TRAIN_RANKS_H

#include "core/files/safetensors.h"
#include "train/batch.h"
#include "train/evaluate.h"
#include "train/log.h"
#include "train/optimizer.h"

/* What ranks that hold parts of the weights ask the loop for. */
typedef struct {
  void *context;
  bppsa_optimizer *optimizer; /* of the whole model; its state is the one that checkpoints hold */
  /* The learning rate of the step that comes `ahead` steps after the present one. */
  double (*rate)(const void *context, int64_t ahead);
  /* Steps from the present one to the end of the epoch or of the run, the present one included. */
  int64_t (*left)(const void *context);
} bppsa_train_lead;

typedef struct bppsa_train_ranks {
  void *context;
  bool first;       /* this is the first of the ranks */
  int64_t capacity; /* samples that the model takes at once */
  /* Ranks along time: steps first_step + 1 .. first_step + steps of every sample are this rank's. cut: there are such ranks */
  bool cut;
  int64_t first_step, steps;
  /* How many times a step the ranks update weights by themselves; 0: every rank holds all weights, and the loop updates them. Ranks
   * that hold parts of the weights, as the stages of a pipeline do, update them while they compute. They also set the record's
   * grad_norm, and may compute steps before they are asked for: `indices` then go on behind the batch, and samples_per_s, otherwise
   * 0, is the mean of the steps that were computed together. */
  int64_t updates;

  /* Loss and gradients of the batch that the data set's samples indices[0 .. count - 1] make up: on return every rank's model holds
   * the gradients of the whole batch. Fills the record's loss, accuracy, redone products, forward and backward time. batch: this
   * rank's buffers, of `capacity` samples. ERR_COMM, and the errors of the model. */
  bppsa_status (*forward_backward)(void *context, bppsa_batch *batch, int64_t count, const int64_t *indices,
                                   bppsa_train_record *record, bppsa_loss_result *loss);
  /* Appends to the line, in the same words on every rank, what is not finite in the batch whose gradients were just computed: a
   * value of its forward pass or, with `backward`, a gradient. `otherwise`: as for bppsa_batch_describe_nonfinite. */
  bppsa_status (*describe_nonfinite)(void *context, bppsa_batch *batch, int64_t count, const int64_t *indices, bool backward,
                                     const char *otherwise, bppsa_line *line);
  /* bppsa_batch_evaluate without a sink; every rank gets the result. */
  bppsa_status (*evaluate)(void *context, bppsa_batch *batch, int64_t first, int64_t count, bppsa_evaluation *result);
  /* *stop: true on every rank if it was true on any. */
  bppsa_status (*agree)(void *context, int64_t step, bool *stop);
  /* A line for the log, and at the start for the user too, about what has happened since the last call (borrowed, until the next
   * one); NULL: nothing. The function may be NULL. */
  const char *(*note)(void *context);
  /* Copies the first rank's tensors to the other ranks' tensors. */
  bppsa_status (*share)(void *context, int64_t count, const bppsa_named_view *tensors);
  /* Of streams: gives every rank the states in which all samples of a batch of `count` have ended, each sample's from the rank that
   * has computed it. NULL: these ranks do not carry states from batch to batch. */
  bppsa_status (*gather_states)(void *context, bppsa_batch *batch, int64_t count);
  /* Where updates > 0. begin takes over the weights and the optimiser's state that the run begins with; gather puts the present
   * ones back where a validation, a checkpoint or the end needs them. lead: borrowed until the run is over. */
  bppsa_status (*begin)(void *context, const bppsa_train_lead *lead);
  bppsa_status (*gather)(void *context);
} bppsa_train_ranks;

#endif

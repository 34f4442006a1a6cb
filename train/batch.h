/* The buffers of one batch, made once and used for every batch of a run. Internal. */
#ifndef BPPSA_TRAIN_BATCH_H
#define BPPSA_TRAIN_BATCH_H

#include "core/compute/device_buffer.h"
#include "core/compute/model.h"
#include "train/data/dataset.h"
#include "train/gpu.h"
#include "train/line.h"
#include "train/loss.h"

/* What the host tells the GPU about a batch before the batch's work runs. */
typedef struct {
  bppsa_step_factors factors;
  int64_t indices[];
} bppsa_gpu_input;

/* The memory of a GPU model's batch. Staging is host memory that the GPU reads and writes: it belongs to the GPU until
 * bppsa_device_wait. */
typedef struct {
  const bppsa_device *device; /* NULL: the model is in host memory, and the other fields are unused */
  char *staging, *memory;     /* owned: the parts below, in host memory and in GPU memory */
  bppsa_gpu_input *input, *device_input;
  bppsa_gpu_result *result, *device_result;
  int64_t *device_labels;
  void *device_targets;    /* if the data set has real targets instead of labels */
  int64_t *device_lengths; /* if each step has labels or targets, and samples have lengths; otherwise NULL */
  double *device_weights;  /* if rows have weights; otherwise NULL */
  bppsa_view x_staging;    /* the samples within staging if the host makes them; else empty */
  void *loss_scratch;
  void *device_begun, *device_ended; /* of streams: the states that a pass begins and ends with, [L, count, S] of capacity */
} bppsa_batch_gpu;

/* The batches of streams in front of the present one, through which a gradient goes back. */
typedef struct {
  int64_t windows; /* K >= 1: batches that a pass has at most, the present one included */
  int64_t number;  /* of the present batch in its epoch, or among those that are evaluated, from 0 */
  /* its samples in the order of the epoch; those of the batch before lie `apart` in front of them, ..; NULL: in the data's order */
  const int64_t *order;
  int64_t apart;
} bppsa_batch_past;

typedef struct {
  bppsa_model *model;
  const bppsa_dataset *dataset;
  const bppsa_device *device;
  int64_t capacity;  /* samples that passes take at once */
  int64_t whole;     /* samples of a whole batch, of which ranks compute parts */
  int64_t count;     /* samples in the present batch */
  bppsa_buffer x;    /* [T, capacity, I] or [capacity, C, H, W], the model's dtype */
  bppsa_buffer seed; /* [T or 1, capacity, C]; empty without gradients */
  int64_t *labels;   /* [T or 1, capacity], in host memory; NULL if a GPU makes them or the targets are real */
  /* [T or 1, capacity, C], the model's dtype, in host memory: real targets; data is NULL if there are labels */
  bppsa_view targets;
  bppsa_buffer own_targets; /* memory of `targets` if the model is in host memory */
  /* Of the samples in the present batch, size capacity, in host memory that a GPU reads when the batch's work runs; NULL: all
   * have T steps. */
  int64_t *lengths;
  uint8_t *resets; /* likewise [T, capacity], of the present batch [T][count]; NULL: no sample begins anew */
  double *weights; /* [T or 1, capacity], of the rows' losses, as the labels; NULL: all are 1 */
  /* Of streams, otherwise empty, in host memory that a GPU reads and writes (train/batch_streams.c): the states in which the latest
   * pass has ended, [L, whole, S], with windows in which the latest K passes have ended, the oldest one first, [K L, whole, S]; and
   * those in which the latest passes have begun, [L, whole, S] in all */
  bppsa_view states, begun;
  bppsa_buffer own_states[2]; /* memory of both if the model is in host memory */
  bool again;                 /* the next passes repeat the latest ones, and begin with the same states */
  bool fresh;                 /* the present samples have been staged, and no pass has begun with their states */
  bppsa_batch_past past;
  bool lent;        /* a pass has handed these buffers to the model, which may read them again */
  bool training;    /* the passes belong to a step of training; a model with dropout is told so */
  int64_t step;     /* of training, from 0 */
  int64_t *indices; /* of the samples in the present batch, size capacity, in host memory */
  int64_t length;   /* steps of a whole pass: T, with windows K T */
  /* The model computes steps first_step + 1 .. first_step + steps of a pass; all of them unless bppsa_batch_set_steps */
  int64_t first_step, steps;
  int64_t first;     /* where these samples are a part of a larger batch, so many of its samples come before them; for messages */
  bppsa_view x_view; /* x of the present batch */
  bppsa_view logits; /* of the latest forward pass, owned by the model */
  bppsa_view dlogits; /* seed of the present batch */
  bppsa_batch_gpu gpu;
} bppsa_batch;

/* Makes the buffers; x, seed, logits and dlogits are where the model is. whole >= capacity: samples of a whole batch, of which the
 * passes of this batch compute parts. ERR_ARGUMENT: labels beyond the model's classes, a device that is not the model's;
 * ERR_UNSUPPORTED: a dtype, streams for a model without states; ERR_MEMORY. Free with bppsa_batch_free. */
bppsa_status bppsa_batch_create(bppsa_model *model, const bppsa_dataset *dataset, const bppsa_device *device, int64_t capacity,
                                int64_t whole, bool gradients, bppsa_batch *batch);
/* A model that has made passes of the batch forgets them. A zeroed batch is legal. */
void bppsa_batch_free(bppsa_batch *batch);

/* From here on the model computes only these steps of every sample, one rank's share of a sequence that ranks cut along time. The
 * batch still holds whole samples, but forward passes, losses and seeds have the rows of these steps alone; there may be no such
 * row. */
void bppsa_batch_set_steps(bppsa_batch *batch, int64_t first_step, int64_t steps);
/* stage makes the first `count` of batch->indices the present batch, a whole one, and does the host's part; queue_fill queues the
 * GPU's part. */
bppsa_status bppsa_batch_stage(bppsa_batch *batch, int64_t count);
bppsa_status bppsa_batch_queue_fill(bppsa_batch *batch); /* does nothing for a model in host memory */
/* For callers that hold inputs themselves, as pipelines do. put_inputs writes the inputs of `count` samples of the data set to x,
 * which has their shape and is where the model is. put_targets makes the samples, with their labels or targets, the present batch,
 * whose loss can then be computed. On a GPU both are queued, once it has read what was staged before. */
bppsa_status bppsa_batch_put_inputs(bppsa_batch *batch, int64_t count, const int64_t *indices, const bppsa_view *x);
bppsa_status bppsa_batch_put_targets(bppsa_batch *batch, int64_t count, const int64_t *indices);
/* Tells the model which samples the next passes have, and which step of training it is, and of streams which states they begin
 * with. bppsa_batch_forward does so itself; call this before recorded passes are replayed. */
void bppsa_batch_tell(bppsa_batch *batch);
/* Of streams with windows: says which batches come before the batch that is staged next (bppsa_batch_past). */
void bppsa_batch_follow(bppsa_batch *batch, int64_t number, const int64_t *order, int64_t apart);
/* Makes the next passes of a batch of streams begin with states of 0. */
void bppsa_batch_restart(bppsa_batch *batch);
/* Runs the model's forward pass and checks the logits' shape. It begins with states of 0, or of streams with the last ones. */
bppsa_status bppsa_batch_forward(bppsa_batch *batch);
/* Computes the loss of the present logits, and its gradient if the batch was made with gradients. queue_loss only queues it on a
 * GPU and leaves the result in gpu.device_result; loss waits for it. */
bppsa_status bppsa_batch_queue_loss(bppsa_batch *batch);
bppsa_status bppsa_batch_loss(bppsa_batch *batch, bppsa_loss_result *result);
/* The same where the present batch is a part of a batch of so many samples: the mean is over all rows of that batch, ignored ones
 * included (bppsa_loss_part). */
bppsa_status bppsa_batch_loss_part(bppsa_batch *batch, int64_t samples, bppsa_loss_result *result);

/* Appends "non-finite WHAT in layer 0, time step 37, sample 5 of the batch (data set index 1234)": the first value that the model
 * finds, else a parameter's gradient, else `otherwise`. */
void bppsa_batch_describe_nonfinite(bppsa_batch *batch, const char *otherwise, bppsa_line *line);
/* Appends the same words for a value that has been found. */
void bppsa_batch_describe(const bppsa_batch *batch, const bppsa_nonfinite *found, bppsa_line *line);

/* The targets of the present batch, in the shape of the logits. */
bppsa_view bppsa_batch_targets(const bppsa_batch *batch);

/* Rows of the present batch, including ignored ones: samples, or samples times steps. */
static inline int64_t bppsa_batch_rows(const bppsa_batch *batch) {
  return batch->dataset->labels_per_step ? batch->length * batch->count : batch->count;
}

/* Rows of the data set's labels or targets that come before the rows of the model's own steps. */
static inline int64_t bppsa_batch_rows_before(const bppsa_batch *batch) {
  return batch->dataset->labels_per_step ? batch->first_step * batch->count : 0;
}

/* Have the samples of passes lengths, resets, and the rows of the loss weights? Those of streams with windows have weights, and
 * lengths or, in whole rows, resets. Does the data set make the samples on the GPU? The host joins the batches of windows. */
static inline bool bppsa_batch_has_lengths(const bppsa_batch *batch) {
  return batch->dataset->lengths != NULL || (batch->past.windows > 1 && !batch->dataset->whole_rows);
}
static inline bool bppsa_batch_has_resets(const bppsa_batch *batch) {
  return batch->dataset->resets != NULL || (batch->past.windows > 1 && batch->dataset->whole_rows);
}
static inline bool bppsa_batch_has_weights(const bppsa_batch *batch) {
  return batch->dataset->loss_weights != NULL || (batch->past.windows > 1 && batch->dataset->labels_per_step);
}
static inline bool bppsa_batch_is_made_on_gpu(const bppsa_batch *batch) {
  return batch->gpu.device != NULL && batch->dataset->ops->queue != NULL && batch->past.windows <= 1;
}

/* The functions of batch_streams.c, for batch.c and batch_gpu.c, which do nothing for other data sets. shape: sets the shapes of
 * `states` and `begun`. begin: takes the states of the present samples, from batch->first on, from `states`. put: *h0 is what a
 * pass begins with, where the model is; NULL: 0. take: takes the states in which the pass has ended. */
bppsa_status bppsa_batch_streams_shape(bppsa_batch *batch);
void bppsa_batch_streams_begin(bppsa_batch *batch);
bppsa_status bppsa_batch_streams_put(const bppsa_batch *batch, bppsa_view *states, const bppsa_view **h0);
bppsa_status bppsa_batch_streams_take(const bppsa_batch *batch);
/* Does a pass have the batches in front of its own? One of training does, and in whole rows one of evaluation too. */
static inline bool bppsa_batch_has_past(const bppsa_batch *batch) {
  return batch->training || (batch->past.windows > 1 && batch->dataset->whole_rows);
}
/* The functions of batch_windows.c, for batch.c. check: ERR_ARGUMENT, ERR_UNSUPPORTED. fill: x, labels or targets, lengths, resets
 * and weights of the present batch with the batches that its pass has in front of it. place: turns a step of the pass, from 1, into
 * one of a batch; returns its sample. */
bppsa_status bppsa_windows_check(const bppsa_model *model, const bppsa_dataset *dataset);
void bppsa_windows_fill(bppsa_batch *batch);
int64_t bppsa_windows_place(const bppsa_batch *batch, int64_t sample, int64_t *step);

/* The functions of batch_gpu.c, for batch.c. gpu_loss: of the present logits, at least one row; mean_rows as in bppsa_loss_rows,
 * or 0: the mean is over the counted rows. */
bppsa_status bppsa_batch_gpu_create(bppsa_batch *batch, int64_t labels);
void bppsa_batch_gpu_free(bppsa_batch *batch);
bppsa_status bppsa_batch_gpu_loss(bppsa_batch *batch, int64_t mean_rows, bppsa_loss_result *result);
bppsa_status bppsa_batch_gpu_inputs(const bppsa_batch *batch, int64_t count, const bppsa_view *x);
bppsa_status bppsa_batch_gpu_targets(const bppsa_batch *batch);

#endif

/* The buffers of one batch, made once and used for every batch of a run. Internal. */
#ifndef BPPSA_TRAIN_BATCH_H
#define BPPSA_TRAIN_BATCH_H

#include "core/buffer.h"
#include "core/model.h"
#include "train/data/dataset.h"
#include "train/gpu.h"
#include "train/line.h"
#include "train/loss.h"

/* What a batch must say to the GPU before its work runs. */
typedef struct {
  bppsa_step_factors factors;
  int64_t indices[];
} bppsa_gpu_input;

/* The memory of a GPU model's batch. Staging is host memory the GPU copies from and to: it belongs to the GPU until
 * bppsa_device_wait. */
typedef struct {
  const bppsa_device *device; /* NULL: the model is in host memory, and there is nothing else here */
  char *staging, *memory;     /* owned: the parts below, there and on the GPU */
  bppsa_gpu_input *input, *device_input;
  bppsa_gpu_result *result, *device_result;
  int64_t *device_labels;
  void *device_targets; /* where the data set has real targets, instead of labels */
  bppsa_view x_staging; /* with labels in staging: the samples of data sets that are made on the host; else empty */
  void *loss_scratch;
} bppsa_batch_gpu;

typedef struct {
  bppsa_model *model;
  const bppsa_dataset *dataset;
  const bppsa_device *device;
  int64_t capacity;   /* samples */
  int64_t count;      /* samples of the present batch */
  bppsa_buffer x;     /* [T, capacity, I] or [capacity, C, H, W], the model's dtype */
  bppsa_buffer seed;  /* [T or 1, capacity, C]; empty without gradients */
  int64_t *labels;    /* [T or 1, capacity], on the host; NULL where a GPU makes them, and of real targets */
  bppsa_view targets; /* [T or 1, capacity, C], the model's dtype, on the host: real targets; data NULL where there are labels */
  bppsa_buffer own_targets; /* their memory of a model in host memory */
  int64_t *indices;         /* of the present batch, size capacity, on the host */
  bppsa_view x_view;        /* the present batch's part of x */
  bppsa_view logits;        /* the model's, of the latest forward pass */
  bppsa_view dlogits;       /* the present batch's part of seed */
  bppsa_batch_gpu gpu;
} bppsa_batch;

/* x, seed, logits and dlogits are where the model is. ERR_ARGUMENT: labels beyond the model's classes, a device that is not the
 * model's; ERR_UNSUPPORTED: a dtype; ERR_MEMORY. Freed with bppsa_batch_free. */
bppsa_status bppsa_batch_create(bppsa_model *model, const bppsa_dataset *dataset, const bppsa_device *device, int64_t capacity,
                                bool gradients, bppsa_batch *batch);
void bppsa_batch_free(bppsa_batch *batch); /* a zeroed batch is legal */

/* Makes the batch of the first `count` of batch->indices the present one: what the host does of it, and what a GPU does, queued. */
bppsa_status bppsa_batch_stage(bppsa_batch *batch, int64_t count);
bppsa_status bppsa_batch_queue_fill(bppsa_batch *batch); /* nothing to do for a model in host memory */
/* The model's forward pass from a zero state; checks the logits' shape. */
bppsa_status bppsa_batch_forward(bppsa_batch *batch);
/* Loss of the present logits; also its gradient when the batch was made with gradients. Queued, or waited for: of a GPU the
 * former leaves it in gpu.device_result. */
bppsa_status bppsa_batch_queue_loss(bppsa_batch *batch);
bppsa_status bppsa_batch_loss(bppsa_batch *batch, bppsa_loss_result *result);

/* Appends "non-finite WHAT in layer 0, time step 37, sample 5 of the batch (data set index 1234)": the first thing the
 * model finds, else a parameter's gradient, else `otherwise`. */
void bppsa_batch_describe_nonfinite(bppsa_batch *batch, const char *otherwise, bppsa_line *line);
/* The same words for something found. */
void bppsa_batch_describe(const bppsa_batch *batch, const bppsa_nonfinite *found, bppsa_line *line);

/* The present batch's part of the targets, like the logits. */
bppsa_view bppsa_batch_targets(const bppsa_batch *batch);

/* Rows of the present batch, ignored ones too: samples, or samples times steps. */
static inline int64_t bppsa_batch_rows(const bppsa_batch *batch) {
  return batch->dataset->labels_per_step ? batch->dataset->seq_len * batch->count : batch->count;
}

/* The GPU's part, for batch.c. */
bppsa_status bppsa_batch_gpu_create(bppsa_batch *batch, int64_t labels);
void bppsa_batch_gpu_free(bppsa_batch *batch);

#endif

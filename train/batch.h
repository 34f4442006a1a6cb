/* The buffers of one batch, made once and used for every batch of a run. Internal. */
#ifndef BPPSA_TRAIN_BATCH_H
#define BPPSA_TRAIN_BATCH_H

#include "core/buffer.h"
#include "core/model.h"
#include "train/dataset.h"
#include "train/line.h"
#include "train/loss.h"
#include "train/trainer.h"

typedef struct {
  bppsa_model *model;
  const bppsa_dataset *dataset;
  const bppsa_device *device;
  int64_t capacity;   /* samples */
  int64_t count;      /* samples of the present batch */
  bppsa_buffer x;     /* [T, capacity, I] or [capacity, C, H, W], the model's dtype */
  bppsa_buffer seed;  /* [T or 1, capacity, C]; empty without gradients */
  int64_t *labels;    /* [T or 1, capacity] */
  int64_t *indices;   /* of the present batch, size capacity */
  bppsa_view x_view;  /* the present batch's part of x */
  bppsa_view logits;  /* the model's, of the latest forward pass */
  bppsa_view dlogits; /* the present batch's part of seed */
} bppsa_batch;

/* ERR_ARGUMENT: labels beyond the model's classes; ERR_UNSUPPORTED: a dtype; ERR_MEMORY. Freed with bppsa_batch_free. */
bppsa_status bppsa_batch_create(bppsa_model *model, const bppsa_dataset *dataset, const bppsa_device *device, int64_t capacity,
                                bool gradients, bppsa_batch *batch);
void bppsa_batch_free(bppsa_batch *batch); /* a zeroed batch is legal */

/* Makes the batch of the first `count` of batch->indices the present one. */
bppsa_status bppsa_batch_fill(bppsa_batch *batch, int64_t count);
/* The model's forward pass from a zero state; checks the logits' shape. */
bppsa_status bppsa_batch_forward(bppsa_batch *batch);
/* Loss of the present logits; also its gradient when the batch was made with gradients. */
bppsa_status bppsa_batch_loss(bppsa_batch *batch, bppsa_loss_result *result);

/* bppsa_evaluate on existing buffers, batch->capacity samples at a time. */
bppsa_status bppsa_batch_evaluate(bppsa_batch *batch, int64_t first, int64_t count, bppsa_evaluation *result);

/* Appends "non-finite WHAT in layer 0, time step 37, sample 5 of the batch (data set index 1234)": the first thing the
 * model finds, else a parameter's gradient, else `otherwise`. */
void bppsa_batch_describe_nonfinite(bppsa_batch *batch, const char *otherwise, bppsa_line *line);
/* The same words for something found. */
void bppsa_batch_describe(const bppsa_batch *batch, const bppsa_nonfinite *found, bppsa_line *line);

#endif

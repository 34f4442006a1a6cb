/* The checked arguments of a loss, as backends take them. Internal. */
#ifndef BPPSA_TRAIN_LOSS_INTERNAL_H
#define BPPSA_TRAIN_LOSS_INTERNAL_H

#include <stdbool.h>

#include "core/base/view.h"
#include "core/compute/device.h"
#include "train/gpu.h"
#include "train/objective.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const bppsa_view *logits, *seed; /* seed NULL: none */
  int64_t rows;
  const int64_t *labels; /* for the cross-entropy, size rows; NULL: an error of targets */
  const void *targets;   /* [rows][C] of the logits' dtype */
  bppsa_objective objective;
  const int64_t *lengths; /* the steps of each sample, whose rows of later steps are left out; NULL: every sample has all steps */
  int64_t mean_rows;      /* the mean is over so many rows; 0: over the counted ones, by their weights */
  const double *weights;  /* size rows; NULL: all are 1 */
} bppsa_loss_job;

/* Bytes of GPU memory for the sums of the blocks of rows. */
int64_t bppsa_loss_scratch(int64_t rows);
/* Queues a loss, which writes result->loss, correct and rows, and its gradient, which is written to the seed. All pointers,
 * including those in the job, point to GPU memory; labels have been checked. Sums run in an order fixed by the number of rows.
 * ERR_CUDA. */
bppsa_status bppsa_loss_queue(const bppsa_device *device, const bppsa_loss_job *job, void *scratch, bppsa_gpu_result *result);

#ifdef __cplusplus
}
#endif
#endif

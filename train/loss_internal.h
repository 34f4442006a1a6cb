/* The loss of logits in GPU memory. Internal. */
#ifndef BPPSA_TRAIN_LOSS_INTERNAL_H
#define BPPSA_TRAIN_LOSS_INTERNAL_H

#include "core/device.h"
#include "core/view.h"
#include "train/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of GPU memory for the sums of blocks of rows. */
int64_t bppsa_loss_scratch(int64_t rows);
/* Queues the loss of `rows` rows into result->loss and result->correct, and its gradient into the seed (NULL: none). All pointers are of GPU memory;
 * labels have been checked. Sums run in an order fixed by the number of rows. ERR_CUDA. */
bppsa_status bppsa_loss_queue(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels, const bppsa_view *seed,
                              int64_t rows, void *scratch, bppsa_gpu_result *result);

#ifdef __cplusplus
}
#endif
#endif

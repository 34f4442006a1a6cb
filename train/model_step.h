/* One step of training, in one call. Who needs another loss, clipping, lengths or resets makes the four calls behind it. */
#ifndef BPPSA_TRAIN_MODEL_STEP_H
#define BPPSA_TRAIN_MODEL_STEP_H

#include "core/compute/model.h"
#include "train/loss.h"
#include "train/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Forward pass, cross-entropy, backward pass, update. x: as the model's forward pass takes it. labels: one for each row of the
 * outputs, in 0 .. C-1, in host memory. optimizer: of this model. device: the model's, or a CPU that gives the threads. result: the
 * loss in front of the update, with the rows that were classified correctly. Allocates the gradient of the outputs. Errors of
 * bppsa_model_forward, bppsa_cross_entropy and bppsa_model_backward; ERR_NUMERIC: a loss or gradient that is not finite, and the
 * weights are then unchanged. */
bppsa_status bppsa_model_step(bppsa_model *model, bppsa_optimizer *optimizer, const bppsa_device *device, const bppsa_view *x,
                              const int64_t *labels, bppsa_loss_result *result);

#ifdef __cplusplus
}
#endif
#endif

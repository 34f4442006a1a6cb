/* loss = -1/n Σ_r log softmax(logits_r)[label_r]: the mean softmax cross-entropy over n = b or T*b rows. */
#ifndef BPPSA_TRAIN_LOSS_H
#define BPPSA_TRAIN_LOSS_H

#include "core/device.h"
#include "core/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  double loss;     /* mean over the rows; not finite where the logits are not */
  int64_t correct; /* rows whose largest logit (the first of equals) is the label's; none where a logit is NaN */
  int64_t rows;    /* b, or T*b */
} bppsa_loss_result;

/* logits: [b, C] or [T, b, C], f32 or f64, contiguous, in the device's memory. labels: one per row in the logits' order, each in 0 .. C-1, in
 * host memory. seed: the gradient of the loss with respect to the logits, same shape, dtype and place, or NULL. Sums are in double over
 * blocks fixed by the number of rows alone, so the bits do not depend on the threads (device NULL: one). Allocates nothing on the
 * processor; on a GPU it waits for the result. ERR_SHAPE, ERR_MEMORY, ERR_CUDA; ERR_ARGUMENT names the position and value of a label out of range, and nothing has then been written. */
bppsa_status bppsa_cross_entropy(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels,
                                 const bppsa_view *seed, bppsa_loss_result *result);

#ifdef __cplusplus
}
#endif
#endif

/* What training makes small, and its gradient with respect to the model's outputs.
 *
 *     cross-entropy         -1/n Σ_r log softmax(logits_r)[label_r]      over n = b or T*b rows, but not those ignored
 *     mean squared error     1/(n C) Σ_r Σ_c (output_rc - target_rc)²    over all outputs of n rows
 *
 * As torch.nn.CrossEntropyLoss(ignore_index) and torch.nn.MSELoss; where every label is ignored, PyTorch's loss is NaN and ours
 * 0, with a gradient of 0: a batch of nothing but padding changes nothing and does not end a run.
 */
#ifndef BPPSA_TRAIN_LOSS_H
#define BPPSA_TRAIN_LOSS_H

#include "core/device.h"
#include "core/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  double loss; /* mean over the rows; not finite where the logits are not; 0 where no row counts */
  /* rows whose largest logit (the first of equals) is the label's; none where a logit is NaN. Below 0: there are no
   * labels */
  int64_t correct;
  int64_t rows; /* that count: b, or T*b, without those ignored */
} bppsa_loss_result;

/* correct / rows; 0 where no row counts, NaN where there are no labels. */
double bppsa_accuracy(int64_t correct, int64_t rows);

/* logits: [b, C] or [T, b, C], f32 or f64, contiguous, in the device's memory. labels: one per row in the logits' order, each in
 * 0 .. C-1, in host memory. seed: the gradient of the loss with respect to the logits, same shape, dtype and place, or NULL.
 * Sums are in double over blocks fixed by the number of rows alone, so the bits do not depend on the threads (device NULL: one).
 * Allocates nothing on the processor; on a GPU it waits for the result. ERR_SHAPE, ERR_MEMORY, ERR_CUDA; ERR_ARGUMENT names the
 * position and value of a label out of range, and nothing has then been written. */
bppsa_status bppsa_cross_entropy(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels,
                                 const bppsa_view *seed, bppsa_loss_result *result);

/* The same without the rows whose label is `ignored`, any number: they take no part in the mean or the accuracy, and their part
 * of the seed is 0. */
bppsa_status bppsa_cross_entropy_ignoring(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels,
                                          int64_t ignored, const bppsa_view *seed, bppsa_loss_result *result);

/* The mean squared error of outputs, [b, C] or [T, b, C], and targets of the same shape and dtype, contiguous, in host memory.
 * Seed, sums, threads and errors as above; result->correct is below 0. */
bppsa_status bppsa_mean_squared_error(const bppsa_device *device, const bppsa_view *outputs, const bppsa_view *targets,
                                      const bppsa_view *seed, bppsa_loss_result *result);

#ifdef __cplusplus
}
#endif
#endif

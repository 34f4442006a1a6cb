/* Losses, and their gradients with respect to the model's outputs.
 *
 *     cross-entropy         -1/n Σ_r log softmax(logits_r)[label_r]      over n = b or T*b rows without the ignored ones
 *     mean squared error     1/(n C) Σ_r Σ_c (output_rc - target_rc)²    over all outputs of n rows
 *     binary cross-entropy   -1/(n C) Σ_r Σ_c (y log σ(x) + (1 - y) log σ(-x))    x = logit_rc, y = target_rc in [0, 1]
 *
 * Rows may have weights w_r >= 0. The loss is then the weighted mean: Σ_r w_r l_r / Σ_r w_r over the counted rows, where l_r is a
 * row's own loss (of real targets the mean over its C outputs), as PyTorch's mean over weights is. A row of weight 0 is left out:
 * its outputs, NaN too, count for nothing. Weights of 1 give the bits of a loss without weights.
 *
 * They agree with torch.nn.CrossEntropyLoss(ignore_index), MSELoss and BCEWithLogitsLoss except where every label is ignored:
 * PyTorch's loss is then NaN, this one is 0 with gradient 0, so that a batch of padding changes nothing and does not end a run.
 */
#ifndef BPPSA_TRAIN_LOSS_H
#define BPPSA_TRAIN_LOSS_H

#include "core/base/view.h"
#include "core/compute/device.h"
#include "train/objective.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  double loss; /* mean over the counted rows; not finite where the logits are not; 0 if no row counts */
  /* Rows whose largest logit (the first of equals) is the label's; a row with a NaN is not counted. Negative: there are no
   * labels. */
  int64_t correct;
  int64_t rows;  /* counted rows: b, or T*b, without ignored ones */
  double weight; /* Σ of the counted rows' weights, by which the loss is divided; without weights their number */
} bppsa_loss_result;

/* correct / rows; 0 if no row counts, NaN if there are no labels. */
double bppsa_accuracy(int64_t correct, int64_t rows);

/* logits: [b, C] or [T, b, C], f32 or f64, contiguous, in the device's memory. labels: one for each row in the logits' order, in
 * 0 .. C-1, in host memory. seed: the gradient of the loss with respect to the logits, of the same shape, dtype and device, or
 * NULL. Sums are in double over blocks fixed by the number of rows alone, so the bits do not depend on the threads (device NULL:
 * one thread). Allocates nothing on a CPU; on a GPU it waits for the result. ERR_SHAPE, ERR_MEMORY, ERR_CUDA; ERR_ARGUMENT names
 * position and value of a label out of range; nothing has been written then. */
bppsa_status bppsa_cross_entropy(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels,
                                 const bppsa_view *seed, bppsa_loss_result *result);

/* Checks that all targets are in [0, 1]; `where` names them in messages. ERR_ARGUMENT: the first one that is not. */
bppsa_status bppsa_binary_targets_check(const char *where, const bppsa_view *targets);

/* What the rows of a part of a batch are compared with, and how many rows the batch has. */
typedef struct {
  const int64_t *labels; /* for the cross-entropy, one for each row, in host memory; NULL: the error of `targets` */
  /* of the outputs' shape and dtype, contiguous, in host memory; in [0, 1] for the binary cross-entropy, which is computed without
   * σ(x), because that would round to 0 or 1 */
  const bppsa_view *targets;
  bppsa_objective objective; /* which error, and which label's rows are left out; such rows count among mean_rows */
  /* the steps of each sample of [T, b, C], in host memory: rows of later steps are left out, but count among mean_rows; NULL: every
   * sample has T steps */
  const int64_t *lengths;
  int64_t mean_rows; /* the mean is over so many rows, >= 1 */
  /* one for each row, finite and >= 0, in host memory: rows of weight 0 are left out, but count among mean_rows; NULL: all are 1 */
  const double *weights;
} bppsa_loss_rows;

/* The loss of a whole batch: the mean is over the counted rows, and mean_rows is not read. Ignored rows are left out of mean and
 * accuracy, and their seed is 0. The label `ignored` may be any number. Of targets result->correct is negative. Errors as above;
 * ERR_ARGUMENT: also a target outside [0, 1] or a weight that is negative or not finite, by position and value. */
bppsa_status bppsa_loss_of(const bppsa_device *device, const bppsa_view *outputs, const bppsa_loss_rows *rows,
                           const bppsa_view *seed, bppsa_loss_result *result);

/* A part's share of the loss of a batch: result->loss and the seed are divided by mean_rows instead of the part's own rows, so
 * that the shares of all parts add up to the loss of the batch. result->correct and result->rows are the part's own.
 * ERR_ARGUMENT: mean_rows below 1; otherwise the errors above. */
bppsa_status bppsa_loss_part(const bppsa_device *device, const bppsa_view *outputs, const bppsa_loss_rows *rows,
                             const bppsa_view *seed, bppsa_loss_result *result);

/* Queues the cross-entropy of a part of a batch on a GPU; the work may be recorded. labels: one for
 * each row, which bppsa_loss_check_labels accepts, and found: bppsa_loss_found_bytes, both in page-locked memory, which
 * the GPU reads and writes when it comes to them. memory: bppsa_loss_part_memory(rows) bytes of its own. The other arguments, and
 * the bits, are those of bppsa_loss_part. ERR_ARGUMENT, ERR_SHAPE, ERR_CUDA. */
bppsa_status bppsa_loss_part_queue(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels, int64_t mean_rows,
                                   const bppsa_view *seed, void *memory, void *found);
int64_t bppsa_loss_part_memory(int64_t rows);
int64_t bppsa_loss_found_bytes(void);
/* Reads what the queued work has written to `found`; call it after the GPU has done the work. */
bppsa_loss_result bppsa_loss_part_found(const void *found);
/* ERR_ARGUMENT names position and value of a label that is not in 0 .. C-1. */
bppsa_status bppsa_loss_check_labels(const bppsa_view *logits, const int64_t *labels);

#ifdef __cplusplus
}
#endif
#endif

/* Convolutions on batches by columns: forward, and the gradients of input, weights and bias. Internal.
 *
 * A block is a few samples, or a few output rows of one sample: P output positions. Its column matrix has a row for every tap (c,
 * a, b) of a group and a column for every position, with zeros where the tap is in the padding. With W [Co/G][taps] of the group,
 *
 *     Y [Co/G][P] = W col + bias       dcol = Wᵀ dY, added up where columns overlap       [dW | db] = dY [colᵀ | 1]
 *
 * Blocks, and the order of sums, depend on the operator and the batch alone, not on the number of threads.
 */
#ifndef BPPSA_CNN_CONV_H
#define BPPSA_CNN_CONV_H

#include "core/compute/device.h"
#include "jacobian/op.h"

typedef struct {
  bppsa_op op;
  int64_t out[3];
  bppsa_dtype dtype;
  int32_t threads;
  int64_t taps;          /* Ci/G · kh · kw */
  int64_t height, width; /* Co/G; positions in an output plane */
  int64_t samples, rows; /* in a block; if samples > 1 it has all rows */
  int64_t chunks;        /* blocks in a sample, 1 if a block has all rows */
  int64_t row_reals;     /* a row of colᵀ and its 1, padded to whole cache lines */
  int64_t scratch_reals; /* for one thread */
  int64_t most_parts;    /* parts of the weight gradient */
} bppsa_conv;

/* `batch`: the largest. ERR_MEMORY: counts beyond 64 bits. */
bppsa_status bppsa_conv_plan(const bppsa_op *op, bppsa_dtype dtype, int32_t threads, int64_t batch, bppsa_conv *conv);
/* Reals of scratch that a pass takes for all threads; reals of the weight gradient's partial sums. */
int64_t bppsa_conv_scratch(const bppsa_conv *conv);
int64_t bppsa_conv_sums(const bppsa_conv *conv);

/* y [b][Co][X]; bias [Co] or NULL */
void bppsa_conv_forward(const bppsa_conv *conv, int64_t batch, const void *x, const void *weights, const void *bias,
                        void *scratch, void *y);
/* dx [b][Ci][H][W]; a cache line behind dy must be readable. */
void bppsa_conv_input_gradient(const bppsa_conv *conv, int64_t batch, const void *dy, const void *weights, void *scratch,
                               void *dx);
/* dw [Co][Ci/G][kh][kw], db [Co] or NULL */
void bppsa_conv_weight_gradient(const bppsa_conv *conv, int64_t batch, const void *dy, const void *x, void *scratch, void *sums,
                                void *dw, void *db);

#endif

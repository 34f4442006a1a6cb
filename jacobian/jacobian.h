/* Generators: make the transposed Jacobian of an operator directly in CSR (BPPSA §3.4, appendix D).
 *
 * A generator is planned once from the operator's attributes; the plan is the pattern, which the batch shares. Values can then be
 * filled any number of times without allocating. Values of a convolution, a linear operator, an average pool or a batch
 * norm with given statistics depend on no activation, and the samples share them; values of the other operators differ from sample
 * to sample. Patterns are exact: no column outside the image, no entry twice, columns increase.
 *
 * On a GPU the pattern stays in host memory, and operands and values are in GPU memory. A fill is queued on the device's stream and
 * returns before it is done; a CUDA graph may record it. Its bits are the CPU's, except that NaN may have another payload.
 *
 * Jᵀ has a row for every input and a column for every output, both in the order [C][H][W].
 */
#ifndef BPPSA_JACOBIAN_JACOBIAN_H
#define BPPSA_JACOBIAN_JACOBIAN_H

#include "core/compute/device.h"
#include "jacobian/csr.h"
#include "jacobian/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_jacobian bppsa_jacobian; /* an operator's transposed Jacobian */

/* The arrays that values depend on: borrowed, contiguous, of the values' dtype, in the device's memory. */
typedef struct {
  int64_t batch;       /* B >= 0: samples of input and output */
  const void *weights; /* conv2d, linear, step (W_hh [G·H][H]) */
  const void *input;   /* [B][C][H][W]: relu, leaky_relu, maxpool2d, and tanh and sigmoid without output. step: x [B][I] */
  const void *output;  /* tanh, sigmoid: [B][C][H][W], or NULL */
  /* batchnorm2d: w / sqrt(v + epsilon) of each channel [C]. dropout that drops: 0 or 1 / (1 - p) for each number [B][C][H][W] */
  const void *scale;
  /* step */
  int64_t inputs;                /* I >= 0 */
  const void *state;             /* h_{-1} [B][H] */
  const void *weights_ih;        /* [G·H][I] */
  const void *bias_ih, *bias_hh; /* [G·H] */
} bppsa_jacobian_operands;

/* Plans a generator.
 *
 * mask: NULL, or a byte for every weight (bppsa_op_weights) in the weights' order. An entry whose weight has mask 0 is not in the
 * pattern; an entry of a step is in the pattern if any of its gates is kept, or if it is on the diagonal and e is present.
 *
 * symbolic: the pattern is known by its structure alone (bppsa_csr.blocks), mask must be NULL, and no values can be filled; for
 * counting.
 *
 * device: fills the values, with its number of threads; a GPU must outlive the generator.
 *
 * Errors of bppsa_op_shape; ERR_SHAPE: more columns than 2^31 - 1; ERR_ARGUMENT: a mask for an operator without weights;
 * ERR_MEMORY, on a GPU with the bytes; ERR_CUDA; ERR_UNSUPPORTED on a GPU: a step without kernels, a masked operator with entries
 * or weights beyond 31 bits. */
bppsa_status bppsa_jacobian_create(const bppsa_op *op, const uint8_t *mask, bool symbolic, const bppsa_device *device,
                                   bppsa_jacobian **jacobian);
void bppsa_jacobian_destroy(bppsa_jacobian *jacobian); /* NULL is legal */

const bppsa_op *bppsa_jacobian_op(const bppsa_jacobian *jacobian);
const bppsa_csr *bppsa_jacobian_pattern(const bppsa_jacobian *jacobian); /* borrowed */
/* Do all samples share the values? */
bool bppsa_jacobian_shared(const bppsa_jacobian *jacobian);
/* Bytes of GPU memory that the generator holds for its fills; 0 on a CPU. */
int64_t bppsa_jacobian_device_bytes(const bppsa_jacobian *jacobian);

/* Fills values: [nnz] when shared, else [B][nnz]. One fill at a time. Where a derivative does not exist the value is PyTorch's:
 * ReLU has 0 at 0 and 1 at NaN, leaky ReLU has its slope at 0 and NaN, a max-pool takes the first of equal largest values and
 * counts NaN as largest, the last NaN of several. Padding is never a pool's largest value. On a GPU the fill follows all work
 * queued on its stream. ERR_ARGUMENT: an operand is missing; ERR_UNSUPPORTED: a dtype other than f32 and f64, or one for which a
 * step has no factors; ERR_CUDA. */
bppsa_status bppsa_jacobian_fill(bppsa_jacobian *jacobian, bppsa_dtype dtype, const bppsa_jacobian_operands *operands,
                                 void *values);

#ifdef __cplusplus
}
#endif
#endif

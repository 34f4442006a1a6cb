/* Generators: from an operator straight to its transposed Jacobian in CSR (BPPSA §3.4, appendix D).
 *
 * A generator is planned once from the operator's attributes: the pattern, which the batch shares. Values are filled in any
 * number of times, without allocating: those of a convolution, a linear operator or an average pool depend on the weights alone
 * and are shared by the samples; the others are per sample. Patterns are exact: no column outside the image, no entry twice,
 * columns increasing.
 *
 * On a GPU the pattern stays in host memory; operands and values are the GPU's, a fill is queued on the device's stream and
 * returns, and may be recorded (core/graph.h). The values' bits are the CPU's; where a value is NaN its payload is the
 * processor's.
 *
 * Jᵀ has a row for every input and a column for every output, both in the order [C][H][W].
 */
#ifndef BPPSA_JACOBIAN_JACOBIAN_H
#define BPPSA_JACOBIAN_JACOBIAN_H

#include "core/device.h"
#include "jacobian/csr.h"
#include "jacobian/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_jacobian bppsa_jacobian;

/* What the values depend on; borrowed, contiguous, of the values' dtype, in the device's memory. */
typedef struct {
  int64_t batch;       /* B >= 0: samples of input and output */
  const void *weights; /* conv2d, linear, step (W_hh [G·H][H]) */
  const void *input;   /* [B][C][H][W]: relu, leaky_relu, maxpool2d, and tanh and sigmoid without output. step: x [B][I] */
  const void *output;  /* tanh, sigmoid: [B][C][H][W], or NULL */
  /* step */
  int64_t inputs;                /* I >= 0 */
  const void *state;             /* h_{-1} [B][H] */
  const void *weights_ih;        /* [G·H][I] */
  const void *bias_ih, *bias_hh; /* [G·H] */
} bppsa_jacobian_operands;

/* Plans a generator. mask: NULL, or a byte for every weight (bppsa_op_weights), in the weights' order: entries whose weights are
 * masked with 0 are not in the pattern (step: an entry is there where any of its gates is, and on the diagonal where e is
 * present). `device`: what fills the values, and its number of threads; on a GPU it must outlive the generator. With symbolic the
 * pattern is known by its structure alone (bppsa_csr.blocks; mask must be NULL) and no values can be filled: for counting. ERR_*
 * of bppsa_op_shape; ERR_SHAPE: more columns than 2^31 - 1; ERR_ARGUMENT: a mask for an operator without weights; ERR_MEMORY,
 * also of a GPU, with the bytes; ERR_CUDA; ERR_UNSUPPORTED: a step without kernels on a GPU, a masked operator's entries or
 * weights beyond 31 bits on a GPU. */
bppsa_status bppsa_jacobian_create(const bppsa_op *op, const uint8_t *mask, bool symbolic, const bppsa_device *device,
                                   bppsa_jacobian **jacobian);
void bppsa_jacobian_destroy(bppsa_jacobian *jacobian); /* NULL is legal */

const bppsa_op *bppsa_jacobian_op(const bppsa_jacobian *jacobian);
const bppsa_csr *bppsa_jacobian_pattern(const bppsa_jacobian *jacobian);
/* Do the samples share the values? */
bool bppsa_jacobian_shared(const bppsa_jacobian *jacobian);
/* Bytes of GPU memory that it holds: what its fills look up. 0 on a CPU. */
int64_t bppsa_jacobian_device_bytes(const bppsa_jacobian *jacobian);

/* Fills values: [nnz] when shared, else [B][nnz]. One fill at a time. Derivatives where there is none follow PyTorch: ReLU 0 at 0
 * and 1 at NaN, leaky ReLU its slope at 0 and NaN, a pool's first largest value, NaN counting as largest and the last of several.
 * Padding is never a pool's largest. ERR_ARGUMENT: an operand is missing; ERR_UNSUPPORTED: a dtype other than f32 and f64, or one
 * that a step has no factors in. On a GPU all work queued before on its stream comes first; ERR_CUDA. */
bppsa_status bppsa_jacobian_fill(bppsa_jacobian *jacobian, bppsa_dtype dtype, const bppsa_jacobian_operands *operands,
                                 void *values);

#ifdef __cplusplus
}
#endif
#endif

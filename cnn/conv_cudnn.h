/* A network's convolutions in cuDNN: forward, and the gradients of input, weights and bias. Internal; in a build without cuDNN
 * stand-ins answer ERR_UNSUPPORTED.
 *
 * cuDNN lists algorithms in the order of the time it expects. The first one is taken that is deterministic, computes in the dtype
 * itself (f32 without TF32) and whose workspace fits. It is chosen once, when a convolution is described for its batch. Padding
 * must be the same on both sides.
 *
 * All work is queued on a queue's stream and may be recorded. Errors of all functions: ERR_UNSUPPORTED if cuDNN is missing or
 * refuses (the message quotes it), ERR_MEMORY, ERR_CUDA.
 */
#ifndef BPPSA_CNN_CONV_CUDNN_H
#define BPPSA_CNN_CONV_CUDNN_H

#include "core/compute/device.h"
#include "jacobian/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cuDNN on one stream of a GPU. */
typedef struct bppsa_cudnn_queue bppsa_cudnn_queue;
bppsa_status bppsa_cudnn_queue_create(const bppsa_device *device, void *stream, bppsa_cudnn_queue **queue);
void bppsa_cudnn_queue_destroy(bppsa_cudnn_queue *queue); /* NULL is legal */

typedef struct bppsa_cudnn_conv bppsa_cudnn_conv;
/* Makes a convolution of this dtype, f32 or f64, without a shape. The queue must outlive it. */
bppsa_status bppsa_cudnn_conv_create(const bppsa_cudnn_queue *queue, bppsa_dtype dtype, bppsa_cudnn_conv **conv);
void bppsa_cudnn_conv_destroy(bppsa_cudnn_conv *conv); /* NULL is legal */
/* Bytes of workspaces: the forward pass and the input's gradient share one, the weights' gradient has another. */
typedef struct {
  int64_t passes, weights;
} bppsa_cudnn_bytes;
/* Sets shapes and chooses algorithms for a batch, with workspaces of at most `most`; chain: also for the input's gradient. *used:
 * the bytes they need. Allocates nothing. */
bppsa_status bppsa_cudnn_conv_describe(bppsa_cudnn_conv *conv, const bppsa_op *op, int64_t batch, bool chain,
                                       bppsa_cudnn_bytes most, bppsa_cudnn_bytes *used);
int64_t bppsa_cudnn_conv_batch(const bppsa_cudnn_conv *conv); /* for which it is described; 0: none */

/* y [b][Co][X] of x [b][Ci][H][W], weights [Co][Ci/G][kh][kw], bias [Co] or NULL; workspace of `passes` bytes */
bppsa_status bppsa_cudnn_conv_forward(const bppsa_cudnn_conv *conv, const bppsa_cudnn_queue *queue, const void *x,
                                      const void *weights, const void *bias, void *workspace, void *y);
bppsa_status bppsa_cudnn_conv_input_gradient(const bppsa_cudnn_conv *conv, const bppsa_cudnn_queue *queue, const void *dy,
                                             const void *weights, void *workspace, void *dx);
/* db NULL: not wanted. workspace of `weights` bytes */
bppsa_status bppsa_cudnn_conv_weight_gradient(const bppsa_cudnn_conv *conv, const bppsa_cudnn_queue *queue, const void *dy,
                                              const void *x, void *workspace, void *dw, void *db);

#ifdef __cplusplus
}
#endif
#endif

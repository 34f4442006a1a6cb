/* A network's convolutions by cuDNN: forward, and the gradients of input, weights and bias. Internal; a build without cuDNN has
 * stand-ins that say so.
 *
 * cuDNN offers algorithms in the order of the time it expects. The first one is taken that is deterministic, of the dtype's own
 * arithmetic (f32 without TF32) and whose workspace fits: when a convolution is described, for its batch, and not again. Padding
 * is the same on both sides here.
 *
 * Everything is queued on a queue's stream and may be recorded. Errors of all functions: ERR_UNSUPPORTED where cuDNN is not there
 * or refuses, in its words, ERR_MEMORY, ERR_CUDA.
 */
#ifndef BPPSA_CNN_CONV_CUDNN_H
#define BPPSA_CNN_CONV_CUDNN_H

#include "core/device.h"
#include "jacobian/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cuDNN on one stream of a GPU. */
typedef struct bppsa_cudnn_queue bppsa_cudnn_queue;
bppsa_status bppsa_cudnn_queue_create(const bppsa_device *device, void *stream, bppsa_cudnn_queue **queue);
void bppsa_cudnn_queue_destroy(bppsa_cudnn_queue *queue); /* NULL is legal */

typedef struct bppsa_cudnn_conv bppsa_cudnn_conv;
/* Room for a convolution of this dtype: f32 or f64. The queue must outlive it. */
bppsa_status bppsa_cudnn_conv_create(const bppsa_cudnn_queue *queue, bppsa_dtype dtype, bppsa_cudnn_conv **conv);
void bppsa_cudnn_conv_destroy(bppsa_cudnn_conv *conv); /* NULL is legal */
/* What the workspaces of passes may take: forward and the input's gradient share one, the weights' gradient has another. Bytes. */
typedef struct {
  int64_t passes, weights;
} bppsa_cudnn_bytes;
/* Shapes and algorithms for a batch, of workspaces within `most`; chain: also for the input's gradient. Allocates nothing. `used`
 * is what they need. */
bppsa_status bppsa_cudnn_conv_describe(bppsa_cudnn_conv *conv, const bppsa_op *op, int64_t batch, bool chain,
                                       bppsa_cudnn_bytes most, bppsa_cudnn_bytes *used);
int64_t bppsa_cudnn_conv_batch(const bppsa_cudnn_conv *conv); /* that it is described for; 0: none */

/* y [b][Co][X] of x [b][Ci][H][W], weights [Co][Ci/G][kh][kw], bias [Co] or NULL; workspace of `passes` bytes */
bppsa_status bppsa_cudnn_conv_forward(const bppsa_cudnn_conv *conv, const bppsa_cudnn_queue *queue, const void *x,
                                      const void *weights, const void *bias, void *workspace, void *y);
bppsa_status bppsa_cudnn_conv_input_gradient(const bppsa_cudnn_conv *conv, const bppsa_cudnn_queue *queue, const void *dy,
                                             const void *weights, void *workspace, void *dx);
/* db NULL: none is wanted. workspace of `weights` bytes */
bppsa_status bppsa_cudnn_conv_weight_gradient(const bppsa_cudnn_conv *conv, const bppsa_cudnn_queue *queue, const void *dy,
                                              const void *x, void *workspace, void *dw, void *db);

#ifdef __cplusplus
}
#endif
#endif

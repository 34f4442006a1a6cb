/* Operators without weights on batches: forward, and the gradient with respect to the input. Internal.
 *
 * Values, and derivatives where none exists, are PyTorch's: ReLU keeps NaN and passes its gradient on, at 0 it does not; a max-pool
 * takes the first largest value and counts NaN as largest, the last of several; padding is never a maximum.
 */
#ifndef BPPSA_CNN_LAYERS_H
#define BPPSA_CNN_LAYERS_H

#include "core/compute/device.h"
#include "jacobian/op.h"

typedef struct {
  const bppsa_op *op;
  const int64_t *out; /* [3] */
  bppsa_dtype dtype;
  int32_t threads;
  int64_t batch;
} bppsa_layer_call;

/* y [b][C'][H'][W'] from x [b][C][H][W]. places [b][C'][H'][W'], for maxpool2d: the index of each largest value in its plane, -1
 * for none. */
void bppsa_cnn_layer_forward(const bppsa_layer_call *call, const void *x, int32_t *places, void *y);
/* Computes dx from dy and from the arrays of the forward pass. */
void bppsa_cnn_layer_backward(const bppsa_layer_call *call, const void *dy, const void *x, const void *y, const int32_t *places,
                              void *dx);

#endif

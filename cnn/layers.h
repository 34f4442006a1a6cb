/* Operators without weights on batches: forward, and the gradient with respect to the input. Internal.
 *
 * Values and derivatives where there is none are PyTorch's: ReLU keeps NaN and lets the gradient through there, at 0 it does not;
 * a maximum pool takes the first largest value, NaN counting as largest and the last of several; padding is never a maximum.
 */
#ifndef BPPSA_CNN_LAYERS_H
#define BPPSA_CNN_LAYERS_H

#include "core/device.h"
#include "jacobian/op.h"

typedef struct {
  const bppsa_op *op;
  const int64_t *out; /* [3] */
  bppsa_dtype dtype;
  int32_t threads;
  int64_t batch;
} bppsa_layer_call;

/* y [b][C'][H'][W'] of x [b][C][H][W]. places [b][C'][H'][W']: maxpool2d, where in its plane each largest value stands, -1 for
 * none. */
void bppsa_layer_forward(const bppsa_layer_call *call, const void *x, int32_t *places, void *y);
/* dx from dy and what the forward pass had. */
void bppsa_layer_backward(const bppsa_layer_call *call, const void *dy, const void *x, const void *y, const int32_t *places,
                          void *dx);

#endif

#include "cnn/normalise.h"

#include <math.h>

#include "core/compute/flush.h"
#include "core/compute/pool.h"

bppsa_normalise_geometry bppsa_normalise_geometry_of(const bppsa_cnn_layer *layer) {
  const int64_t *in = layer->op.in;
  const bool sums = layer->node == BPPSA_CNN_SUMS;
  return (bppsa_normalise_geometry){.g = bppsa_cnn_groups_of(layer),
                                    .values = in[0] * in[1] * in[2],
                                    .plane = in[1] * in[2],
                                    .softmax = (sums ? layer->of : layer->node) == BPPSA_CNN_SOFTMAX,
                                    .halves = sums,
                                    .by_channel = layer->node == BPPSA_CNN_GROUPNORM,
                                    .epsilon = layer->op.epsilon};
}

#define EACH_REAL "cnn/normalise.inc"
#include "core/base/each_real.inc"

void bppsa_normalise_forward(const bppsa_normalise_call *call, void *y) {
  (call->dtype == BPPSA_F32 ? run_forward_f32 : run_forward_f64)(call, y);
}

void bppsa_normalise_backward(const bppsa_normalise_call *call, const void *dy, void *dx, void *dsums) {
  (call->dtype == BPPSA_F32 ? run_backward_f32 : run_backward_f64)(call, dy, dx, dsums);
}

void bppsa_normalise_weights(const bppsa_normalise_call *call, const void *dy, void *dw, void *db) {
  (call->dtype == BPPSA_F32 ? run_weights_f32 : run_weights_f64)(call, dy, dw, db);
}

void bppsa_normalise_block(const bppsa_normalise_call *call, int64_t k, int64_t stride, void *values) {
  (call->dtype == BPPSA_F32 ? run_block_f32 : run_block_f64)(call, k, stride, values);
}

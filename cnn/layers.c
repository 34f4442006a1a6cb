#include "cnn/layers.h"

#include <math.h>
#include <string.h>

#include "core/compute/flush.h"
#include "core/compute/pool.h"
#include "jacobian/kernels.h"

enum {
  BLOCK = 4096, /* values of an elementwise task */
  STRIP = 64    /* windows of a pool computed together */
};

static int64_t volume(const int64_t shape[3]) {
  return shape[0] * shape[1] * shape[2];
}

/* For output position X: where its window begins, its taps inside the input, and the divisor of an average. */
typedef struct {
  int64_t top, left, a0, a1, b0, b1, divisor;
} pool_window;

static pool_window window_at(const bppsa_op *op, const int64_t *out, int64_t X) {
  const int64_t X0 = X / out[2], X1 = X % out[2];
  pool_window w = {.top = bppsa_op_window(op, 0, X0),
                   .left = bppsa_op_window(op, 1, X1),
                   .divisor = bppsa_op_pool_extent(op, 0, X0) * bppsa_op_pool_extent(op, 1, X1)};
  bppsa_op_taps(op, 0, X0, &w.a0, &w.a1);
  bppsa_op_taps(op, 1, X1, &w.b0, &w.b1);
  return w;
}

/* Are all windows 2 x 2, adjacent, and inside the input? */
static bool is_pairs(const bppsa_op *op) {
  bool pairs = true;
  for (int axis = 0; axis < 2; ++axis) {
    pairs = pairs && op->kernel[axis] == 2 && op->stride[axis] == 2 && op->dilation[axis] == 1 && op->padding[2 * axis] == 0 &&
            op->padding[2 * axis + 1] == 0 && (op->in[axis + 1] % 2 == 0 || !op->ceil_mode);
  }
  return pairs;
}

/* The number of tasks: planes of pools, blocks of values of other operators. */
static int64_t tasks_of(const bppsa_layer_call *call) {
  return bppsa_op_is_pool(call->op) ? call->batch * call->op->in[0] : (call->batch * volume(call->out) + BLOCK - 1) / BLOCK;
}

static int64_t block_values(const bppsa_layer_call *call, int64_t task) {
  const int64_t left = call->batch * volume(call->out) - task * BLOCK;
  return left < BLOCK ? left : BLOCK;
}

#define EACH_REAL "cnn/layers.inc"
#include "core/base/each_real.inc"

void bppsa_cnn_layer_forward(const bppsa_layer_call *call, const void *x, int32_t *places, void *y) {
  (call->dtype == BPPSA_F32 ? forward_f32 : forward_f64)(call, x, places, y);
}

void bppsa_cnn_layer_backward(const bppsa_layer_call *call, const void *dy, const void *x, const void *y, const int32_t *places,
                              void *dx) {
  (call->dtype == BPPSA_F32 ? backward_f32 : backward_f64)(call, dy, x, y, places, dx);
}

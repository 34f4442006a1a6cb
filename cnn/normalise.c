#include "cnn/normalise.h"

#include <math.h>

#include "core/compute/flush.h"
#include "core/compute/pool.h"
#include "core/compute/squash.h"

/* The layer's geometry. */
typedef struct {
  const bppsa_normalise_call *call;
  bppsa_cnn_groups g;
  int64_t values, plane; /* of a sample; of a channel */
  bool softmax, halves;  /* halves: the layer is the sums */
  bool by_channel;       /* a weight belongs to a channel, otherwise to a position in the group */
} geometry;

static geometry geometry_of(const bppsa_normalise_call *call) {
  const bppsa_cnn_layer *layer = call->layer;
  const int64_t *in = layer->op.in;
  const bool sums = layer->node == BPPSA_CNN_SUMS;
  return (geometry){.call = call,
                    .g = bppsa_cnn_groups_of(layer),
                    .values = in[0] * in[1] * in[2],
                    .plane = in[1] * in[2],
                    .softmax = (sums ? layer->of : layer->node) == BPPSA_CNN_SOFTMAX,
                    .halves = sums,
                    .by_channel = layer->node == BPPSA_CNN_GROUPNORM};
}

/* e^(x - m), m >= x, by multiplications and additions alone. */
static double power_below(double x, double m) {
  enum { VANISHES = 709 /* from which on bppsa_squash_exp gives 0 */ };
  const double below = m - x;
  return bppsa_squash_exp_f64(below > VANISHES ? VANISHES : below, 0);
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

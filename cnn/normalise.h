/* Softmax, layer norm and group norm on batches, on a CPU (cnn/graph_gpu.h has them on a GPU): both halves of each, by the
 * equations of cnn/groups.h. Sums are of double and in order, so that threads change no bit. Internal. */
#ifndef BPPSA_CNN_NORMALISE_H
#define BPPSA_CNN_NORMALISE_H

#include "cnn/blocks.h"
#include "core/compute/squash.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One layer on a batch. Arrays are [batch][values of a sample]. */
typedef struct {
  const bppsa_cnn_layer *layer; /* sums, or what reads them */
  bppsa_dtype dtype;
  int32_t threads;
  int64_t batch;
  const void *x;             /* of both halves */
  const void *sums;          /* m [count], then r [count] of each sample; NULL in the forward pass of the sums themselves */
  const void *weight, *bias; /* of a norm that is affine, otherwise NULL */
} bppsa_normalise_call;

/* The layer's geometry. */
typedef struct {
  bppsa_cnn_groups g;
  int64_t values, plane; /* of a sample; of a channel */
  bool softmax, halves;  /* halves: the layer is the sums */
  bool by_channel;       /* a weight belongs to a channel, otherwise to a position in the group */
  double epsilon;
} bppsa_normalise_geometry;
bppsa_normalise_geometry bppsa_normalise_geometry_of(const bppsa_cnn_layer *layer);

/* e^(x - m), m >= x, by multiplications and additions alone. */
static inline BPPSA_HOST_DEVICE double bppsa_normalise_power(double x, double m) {
  const double below = m - x, vanishes = 709; /* from which on bppsa_squash_exp gives 0 */
  return bppsa_squash_exp_f64(below > vanishes ? vanishes : below, 0);
}

/* The layer's output: the sums, or y. */
void bppsa_normalise_forward(const bppsa_normalise_call *call, void *y);
/* Writes the gradients that follow from dy, the gradient of the layer's output: dx, that of x, and in the second half dsums, that
 * of the sums. Either may be NULL. */
void bppsa_normalise_backward(const bppsa_normalise_call *call, const void *dy, void *dx, void *dsums);
/* The gradients of weight and bias, [size of a group] of a layer norm, [C] of a group norm. */
void bppsa_normalise_weights(const bppsa_normalise_call *call, const void *dy, void *dw, void *db);

/* The entries of the block of input k in the order of its rows, `stride` reals from sample to sample. */
void bppsa_normalise_block(const bppsa_normalise_call *call, int64_t k, int64_t stride, void *values);

#ifdef __cplusplus
}
#endif

#endif

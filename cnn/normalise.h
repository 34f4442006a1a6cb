/* Softmax, layer norm and group norm on batches, on a CPU: both halves of each, by the equations of cnn/groups.h. Sums are of
 * double and in order, so that threads change no bit. Internal. */
#ifndef BPPSA_CNN_NORMALISE_H
#define BPPSA_CNN_NORMALISE_H

#include "cnn/blocks.h"

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

/* The layer's output: the sums, or y. */
void bppsa_normalise_forward(const bppsa_normalise_call *call, void *y);
/* Writes the gradients that follow from dy, the gradient of the layer's output: dx, that of x, and in the second half dsums, that
 * of the sums. Either may be NULL. */
void bppsa_normalise_backward(const bppsa_normalise_call *call, const void *dy, void *dx, void *dsums);
/* The gradients of weight and bias, [size of a group] of a layer norm, [C] of a group norm. */
void bppsa_normalise_weights(const bppsa_normalise_call *call, const void *dy, void *dw, void *db);

/* The entries of the block of input k in the order of its rows, `stride` reals from sample to sample. */
void bppsa_normalise_block(const bppsa_normalise_call *call, int64_t k, int64_t stride, void *values);

#endif

/* The passes of one operator on a batch in host memory, with all arrays given by the caller. Internal. */
#ifndef BPPSA_CNN_PASS_H
#define BPPSA_CNN_PASS_H

#include "cnn/conv.h"
#include "cnn/network.h"
#include "core/compute/linear.h"

/* What a pass does differently in a step of training. */
typedef struct {
  const int64_t *samples; /* the samples' numbers, size b; NULL: the pass is none of training */
  int64_t step;
  uint64_t seed;         /* of dropout's random numbers */
  int64_t layer;         /* the operator's place in the network */
  bool batch_statistics; /* batchnorm2d: the statistics are the batch's */
} bppsa_cnn_training;

typedef struct {
  const bppsa_cnn_layer *about;
  const bppsa_conv *conv; /* conv2d: planned for a batch at least as large */
  bppsa_dtype dtype;
  int32_t threads;
  int64_t batch;                     /* b */
  int64_t in, out;                   /* values of one sample */
  void *scratch, *sums, *transposed; /* sizes: bppsa_cnn_pass_room */
  /* batchnorm2d: its parameters and their gradients (bppsa_cnn_parameters), and what it keeps of the batch's statistics */
  void *parameters[BPPSA_CNN_PARAMETERS], *gradients[BPPSA_CNN_PARAMETERS], *kept;
  bppsa_cnn_training training;
} bppsa_cnn_pass;

/* Raises the bytes of scratch, sums and transposed to what this operator needs. ERR_MEMORY: beyond 64 bits. */
bppsa_status bppsa_cnn_pass_room(const bppsa_cnn_pass *pass, int64_t *scratch, int64_t *sums, int64_t *transposed);

/* y [b][out] from x [b][in]; weight and bias: NULL if the operator has none. places [b][out]: for maxpool2d, the index of each
 * largest value. */
void bppsa_cnn_pass_forward(const bppsa_cnn_pass *pass, const void *x, const void *weight, const void *bias, int32_t *places,
                            void *y);
/* dx [b][in] from dy [b][out] and the arrays of the forward pass; a cache line behind dy must be readable. */
void bppsa_cnn_pass_input_gradient(const bppsa_cnn_pass *pass, const void *dy, const void *weight, const void *x, const void *y,
                                   const int32_t *places, void *dx);
/* The gradients of an operator's weight and bias (NULL: none, or a batch norm's, which are in the pass); a cache line behind dy must be readable. */
void bppsa_cnn_pass_weight_gradient(const bppsa_cnn_pass *pass, const void *dy, const void *x, void *dw, void *db);

#endif

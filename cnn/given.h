/* What the passes of one operator on a batch in host memory are given. Internal. */
#ifndef BPPSA_CNN_GIVEN_H
#define BPPSA_CNN_GIVEN_H

#include "cnn/conv.h"
#include "cnn/network.h"

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

#endif

/* Inside of a convolutional network. */
#ifndef BPPSA_CNN_CNN_INTERNAL_H
#define BPPSA_CNN_CNN_INTERNAL_H

#include "cnn/cnn.h"
#include "cnn/conv.h"
#include "cnn/layers.h"
#include "jacobian/jacobian.h"
#include "recurrent/linear.h"

/* One operator. Arrays are of the planned batch; a smaller one packs its samples more tightly. */
typedef struct {
  const bppsa_cnn_layer *about;
  int64_t in, out;    /* values of a sample */
  int64_t weight;     /* its parameter's position; -1: none. A bias follows its weight */
  bppsa_conv conv;    /* conv2d */
  void *y;            /* [B][out] */
  int32_t *places;    /* maxpool2d: [B][out] */
  uint8_t *mask;      /* of its weights, or NULL */
  bppsa_jacobian *jt; /* scan: elements */
  void *values;       /* scan: of its transposed Jacobian, [nnz] or [B][nnz]; NULL: they are not used */
} cnn_layer;

typedef struct {
  bppsa_model base;
  bppsa_cnn_config config;
  bppsa_cnn_network network;
  const bppsa_device *device;
  int32_t threads;
  int64_t batch;        /* b of the latest forward; 0 before it */
  const void *x, *seed; /* borrowed; seed NULL before a backward pass */
  bool backward_done;
  cnn_layer *layers;                 /* size network.count; the last is the head, the others are t = 1 .. n */
  int64_t elements;                  /* n */
  int64_t *offsets;                  /* of g_t for one sample, size n + 2 */
  void *g;                           /* g_0 .. g_n one behind the other, each [b][size] */
  void *scratch, *sums, *transposed; /* of the layer at hand; transposed: a linear operator's weights */
  char (*names)[BPPSA_CNN_PARAMETER];
  void *parameter_values, *parameter_gradients; /* all parameters, one behind the other */
  bppsa_scan_plan *plan;
  bppsa_scan_executor *scan;
  const bppsa_csr **patterns;   /* of J_1ᵀ .. J_nᵀ, size n */
  bppsa_csr_values *csr_values; /* likewise */
} cnn;

extern const bppsa_model_ops bppsa_cnn_ops;
void bppsa_cnn_destroy(bppsa_model *model);
/* y = x Wᵀ + b of a linear operator for b samples. */
bppsa_linear bppsa_cnn_linear(const cnn *n, const cnn_layer *layer, int64_t batch);

#endif

/* The FLOPs of a network's backward pass by BP, counted from the operators' patterns (scan/work.h has the definition). */
#ifndef BPPSA_CNN_WORK_H
#define BPPSA_CNN_WORK_H

#include "cnn/network.h"
#include "scan/work.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  bppsa_work work;
  int64_t largest; /* FLOPs of its most expensive mat-vec except J_1ᵀ's, which is on no critical path */
} bppsa_cnn_bp_work;

/* FLOPs of the weight gradients of all operators but the head. own[i]: the pattern of layer i's own transposed Jacobian; NULL for a
 * layer of a graph that joins or splits tensors. */
double bppsa_cnn_flops_besides(const bppsa_cnn_network *network, const bppsa_csr *const *own);

/* Counts BP of one sample, for all layers but the head, from these patterns. What reaches a tensor by several ways is
 * added, and additions are not counted. Errors of bppsa_cnn_live_create and bppsa_scan_plan_create. */
bppsa_status bppsa_cnn_count_chain(const bppsa_cnn_network *network, const bppsa_csr *const *own, bool input,
                                   const bppsa_device *device, bppsa_cnn_bp_work *bp);
/* The same from the patterns of J_1ᵀ .. J_nᵀ over live sets, of which only the numbers are read; besides: FLOPs of the weight
 * gradients. */
bppsa_status bppsa_cnn_count_elements(const bppsa_cnn_network *network, const bppsa_csr *const *patterns, bool input,
                                      const bppsa_device *device, double besides, bppsa_cnn_bp_work *bp);
/* Counts BP of one sample. masks[i]: a byte for each weight of layer i, 0 where it is masked; NULL: all weights are kept; masks
 * NULL: no layer has a mask. input: the input's gradient is wanted. For layers without a mask it allocates nothing of a
 * Jacobian's size. ERR_MEMORY; errors of bppsa_jacobian_create. */
bppsa_status bppsa_cnn_count_bp(const bppsa_cnn_network *network, const uint8_t *const *masks, bool input,
                                const bppsa_device *device, bppsa_cnn_bp_work *bp);

/* ---- layers one by one ---- */

/* The passes of training over a layer, for one sample. */
typedef enum {
  BPPSA_CNN_FORWARD = 0,
  BPPSA_CNN_TO_INPUT,   /* the gradient of the layer's input */
  BPPSA_CNN_TO_WEIGHTS, /* the gradients of its weights */
  BPPSA_CNN_PASSES
} bppsa_cnn_pass_kind;

/* What is counted of a convolution or a linear operator, 2 FLOPs a pair of an input and an output that a weight joins; of other
 * layers the first three are the same. */
typedef enum {
  BPPSA_CNN_DENSE = 0, /* all weights at every output, which multiply the zeros of the padding too: what dense kernels do */
  BPPSA_CNN_UNPRUNED,  /* all weights, without the padding: the entries of the Jacobian */
  BPPSA_CNN_PRUNED,    /* the same of the weights that a mask keeps */
  BPPSA_CNN_SHRUNK,    /* dense, without the channels that a mask makes useless in the network (cnn/shrink.h) */
  BPPSA_CNN_COUNTS
} bppsa_cnn_count_kind;

typedef struct {
  int64_t parameters;    /* numbers that are trained: weights and biases, not a batch norm's statistics */
  int64_t weights, kept; /* weights of a convolution or a linear operator, and those that the mask keeps; else 0 */
  double flops[BPPSA_CNN_PASSES][BPPSA_CNN_COUNTS];
} bppsa_cnn_layer_work; /* bppsa_cnn_count_layer, which knows one layer alone, leaves what is shrunk as dense */

/* FLOPs of a layer's forward pass for one sample, dense. A convolution and a linear operator take 2 a product, without the bias;
 * a pool 1 for each number that it reads, a batch norm 2 a number, an activation 1 a number, add and mul 1 for each number of
 * their output and each input but the first; the sums of softmax 2 and those of a norm 4 for each number that they read, softmax
 * 2 and a norm 2 for each number of its output, 4 if it is affine; values that only move (flatten, dropout, concat, slice,
 * reshape, permute) none. */
double bppsa_cnn_forward_flops(const bppsa_cnn_network *network, int64_t i);
/* Counts layer i of a network, the head too, in closed form: nothing of a Jacobian's size is made. Backward passes take 2 FLOPs an
 * entry of the transposed Jacobian, as above; the additions of biases and of gradients that meet are not counted. mask: a byte for
 * each weight, 0 where it is left out; NULL: all are kept. input: the gradient of the network's input is wanted; without it a layer
 * has none towards that input. ERR_ARGUMENT: no such layer; ERR_SHAPE: counts beyond 64 bits. */
bppsa_status bppsa_cnn_count_layer(const bppsa_cnn_network *network, int64_t i, const uint8_t *mask, bool input,
                                   bppsa_cnn_layer_work *work);

#ifdef __cplusplus
}
#endif
#endif

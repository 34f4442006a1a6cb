/* What files say about one operator's Jacobian: its sizes, and the operands of its values. */
#ifndef BPPSA_RUNS_JACOBIAN_FILES_H
#define BPPSA_RUNS_JACOBIAN_FILES_H

#include "networks/weight_list.h"
#include "runs/jacobian_matrix.h"

/* Paths, NULL where there is no such file. For an operator all are NPY; a cell's step has its weights in safetensors, h0, and c0
 * where its state is a pair. */
typedef struct {
  const char *input, *weights, *mask, *h0, *c0;
} bppsa_jacobian_files;

enum { BPPSA_JACOBIAN_ARRAYS = 8 };

/* The arrays that the operands of a request point to. */
typedef struct {
  void *arrays[BPPSA_JACOBIAN_ARRAYS]; /* owned */
  int count;
  char note[BPPSA_CONVERTED_NOTE]; /* what was done to the weights, or "" */
} bppsa_jacobian_arrays;

/* Takes C, H, W from the shape of the input, [C,H,W], [C,H], [C] or a batch of one. ERR_ARGUMENT: no input, or another shape; ERR_*
 * of bppsa_npy_load. */
bppsa_status bppsa_jacobian_input_shape(const bppsa_jacobian_files *files, bppsa_op *op);
/* Takes output channels, unless they are `known`, and a convolution's kernel, unless it is, from the shape of the weights.
 * ERR_ARGUMENT: neither weights nor a known number, or weights of another rank; ERR_* of bppsa_npy_load. */
bppsa_status bppsa_jacobian_weight_shape(const bppsa_jacobian_files *files, bool known_channels, bool known_kernel, bppsa_op *op);

/* Loads the operands, in the request's dtype, and the mask; says whether the values depend on something that is missing (`filled`).
 * A step takes its sizes from the weights [KH,H] and the input [I]; without h0, or c0, that half of its state is 0. The request's
 * op and dtype are set before. ERR_ARGUMENT: an array of another size or dtype, a tensor that is missing, c0 of a state without c;
 * ERR_UNSUPPORTED: a cell without step; ERR_* of the readers; ERR_MEMORY. */
bppsa_status bppsa_jacobian_load(const bppsa_jacobian_files *files, bppsa_jacobian_request *request,
                                 bppsa_jacobian_arrays *arrays);
void bppsa_jacobian_arrays_free(bppsa_jacobian_arrays *arrays); /* a zeroed one is legal */

#endif

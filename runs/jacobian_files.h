/* What files say about one operator's Jacobian: its sizes, and the operands of its values. */
#ifndef BPPSA_RUNS_JACOBIAN_FILES_H
#define BPPSA_RUNS_JACOBIAN_FILES_H

#include "networks/weight_list.h"
#include "runs/jacobian_matrix.h"

/* Paths; NULL: no such file. An operator's files are all NPY; a cell's step has its weights in safetensors, and has h0 and, where
 * its state is a pair, c0. */
typedef struct {
  const char *input, *weights, *mask, *h0, *c0;
} bppsa_jacobian_files;

enum { BPPSA_JACOBIAN_ARRAYS = 8 };

/* The arrays that the operands of a request point to. */
typedef struct {
  void *arrays[BPPSA_JACOBIAN_ARRAYS]; /* owned */
  int count;
  char note[BPPSA_CONVERTED_NOTE]; /* how the weights were converted, or "" */
} bppsa_jacobian_arrays;

/* Takes C, H, W from the shape of the input, [C,H,W], [C,H], [C] or a batch of one. ERR_ARGUMENT: no input, or another shape; ERR_*
 * of bppsa_npy_load. */
bppsa_status bppsa_jacobian_input_shape(const bppsa_jacobian_files *files, bppsa_op *op);
/* Takes the output channels and a convolution's kernel from the shape of the weights, each unless it is `known`. ERR_ARGUMENT:
 * weights are missing and so is a known number, or they have another rank; ERR_* of bppsa_npy_load. */
bppsa_status bppsa_jacobian_weight_shape(const bppsa_jacobian_files *files, bool known_channels, bool known_kernel, bppsa_op *op);

/* Loads the operands and the mask, in the request's dtype; `filled` says whether all operands that the values depend on are
 * there. A step takes its sizes from the weights [KH,H] and the input [I]; if h0 or c0 is missing, that half of its state is 0.
 * The caller sets op and dtype of the request before. ERR_ARGUMENT: an array has another size or dtype, a tensor is missing, c0
 * is given for a state without c; ERR_UNSUPPORTED: the cell has no step; ERR_* of the readers; ERR_MEMORY. */
bppsa_status bppsa_jacobian_load(const bppsa_jacobian_files *files, bppsa_jacobian_request *request,
                                 bppsa_jacobian_arrays *arrays);
void bppsa_jacobian_arrays_free(bppsa_jacobian_arrays *arrays); /* a zeroed one is legal */

#endif

/* The transposed Jacobians of layers of graphs that have entries other than ones: mul, and the two halves of a normalisation
 * (cnn/groups.h). Each of their inputs has a block, with a row for every value of the input and a column for every value of the
 * output. Internal. */
#ifndef BPPSA_CNN_BLOCKS_H
#define BPPSA_CNN_BLOCKS_H

#include "cnn/groups.h"

/* Has the layer such blocks? */
bool bppsa_cnn_has_blocks(const bppsa_cnn_layer *layer);
/* The number of entries of the block of input k of layer i. */
int64_t bppsa_cnn_block_entries(const bppsa_cnn_network *network, int64_t i, int64_t k);
/* The number of entries in one row of it; their columns, which increase, are written to `col` unless it is NULL, with `first` added
 * to each. */
int64_t bppsa_cnn_block_row(const bppsa_cnn_network *network, int64_t i, int64_t k, int64_t row, int64_t first, int32_t *col);

/* How far apart the values of an input of mul lie that adjacent positions of the output read, along each axis: 0 where the input is
 * repeated. */
void bppsa_cnn_strides(const int64_t in[3], const int64_t out[3], int64_t strides[3]);
/* The same of the output of permute, for adjacent positions of its input. */
void bppsa_cnn_permuted(const bppsa_cnn_layer *layer, int64_t strides[3]);
/* The shape of layer i's k-th input. */
const int64_t *bppsa_cnn_input_shape(const bppsa_cnn_network *network, int64_t i, int64_t k);

#endif

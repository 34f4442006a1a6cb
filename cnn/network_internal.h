/* Making a network, layer by layer. Internal. */
#ifndef BPPSA_CNN_NETWORK_INTERNAL_H
#define BPPSA_CNN_NETWORK_INTERNAL_H

#include "cnn/network.h"

/* Makes room for `layers` layers in an empty network. */
bppsa_status bppsa_cnn_network_reserve(int64_t layers, bppsa_cnn_network *network);
/* Sets the output's shape of a layer that is an operator, from op.in. Errors of bppsa_op_shape. */
bppsa_status bppsa_cnn_operator_shape(bppsa_cnn_layer *layer);
/* Appends a layer whose input is the output of the network so far; sets the shapes of its input and output. Errors of
 * bppsa_op_shape. */
bppsa_status bppsa_cnn_network_add(bppsa_cnn_network *network, bppsa_cnn_layer *layer);

/* A layer as a file gives it. */
typedef struct {
  bppsa_cnn_layer layer;
  int32_t *inputs; /* the layers that it reads, by their places in the file; -1: the network's input. Owned */
  int64_t input_count;
} bppsa_cnn_entry;

/* Sets the shape of a layer that joins, splits, reorders or normalises tensors, whose inputs are in the network already; op.in is
 * the first one's shape. ERR_SHAPE, ERR_FORMAT, ERR_ARGUMENT: inputs or attributes that do not fit. */
bppsa_status bppsa_cnn_node_shape(const bppsa_cnn_network *network, int64_t i, bppsa_cnn_layer *layer);
/* ERR_ARGUMENT: the network does not end with a linear operator, the head. */
bppsa_status bppsa_cnn_network_check_head(const char *where, const bppsa_cnn_network *network);
/* Makes two entries of every normalisation: its sums, called NAME.sums, in front of it, and itself, which reads them behind its
 * input. *made, of *total entries, is NULL where there is none; free it with bppsa_cnn_entries_free. ERR_FORMAT: a name that is too
 * long for this or taken, or more layers than networks have; ERR_MEMORY. */
bppsa_status bppsa_cnn_entries_expand(const char *where, int64_t count, const bppsa_cnn_entry *entries, int64_t *total,
                                      bppsa_cnn_entry **made);
void bppsa_cnn_entries_free(int64_t count, bppsa_cnn_entry *entries); /* NULL is legal */

/* Puts the entries of a file in order, gives every layer the shapes of its inputs, and makes them the layers of an empty network.
 * The last entry is the head. Messages begin with "WHERE: layer 'NAME'". ERR_FORMAT, ERR_SHAPE, ERR_ARGUMENT, ERR_MEMORY as
 * bppsa_cnn_network_load has them. */
bppsa_status bppsa_cnn_network_order(const char *where, int64_t count, const bppsa_cnn_entry *entries,
                                     bppsa_cnn_network *network);

#endif

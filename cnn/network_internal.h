/* Making a network, layer by layer. Internal. */
#ifndef BPPSA_CNN_NETWORK_INTERNAL_H
#define BPPSA_CNN_NETWORK_INTERNAL_H

#include "cnn/network.h"

/* Makes room for `layers` layers in an empty network. */
bppsa_status bppsa_cnn_network_reserve(int64_t layers, bppsa_cnn_network *network);
/* Appends a layer whose input is the output of the network so far; sets the shapes of its input and output. Errors of
 * bppsa_op_shape. */
bppsa_status bppsa_cnn_network_add(bppsa_cnn_network *network, bppsa_cnn_layer *layer);

/* A layer as a file gives it. */
typedef struct {
  bppsa_cnn_layer layer;
  int32_t *inputs; /* the layers that it reads, by their places in the file; -1: the network's input. Owned */
  int64_t input_count;
} bppsa_cnn_entry;

/* Puts the entries of a file in order, gives every layer the shapes of its inputs, and appends them to an empty network with room.
 * The last entry is the head. Messages begin with "WHERE: layer 'NAME'". ERR_FORMAT, ERR_SHAPE, ERR_ARGUMENT, ERR_MEMORY as
 * bppsa_cnn_network_load has them. */
bppsa_status bppsa_cnn_network_order(const char *where, int64_t count, const bppsa_cnn_entry *entries,
                                     bppsa_cnn_network *network);

#endif

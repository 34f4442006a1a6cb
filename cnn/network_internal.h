/* Making a network, layer by layer. Internal. */
#ifndef BPPSA_CNN_NETWORK_INTERNAL_H
#define BPPSA_CNN_NETWORK_INTERNAL_H

#include "cnn/network.h"

/* Makes room for `layers` layers in an empty network. */
bppsa_status bppsa_cnn_network_reserve(int64_t layers, bppsa_cnn_network *network);
/* Appends a layer whose input is the output of the network so far; sets the shapes of its input and output. Errors of
 * bppsa_op_shape. */
bppsa_status bppsa_cnn_network_add(bppsa_cnn_network *network, bppsa_cnn_layer *layer);

#endif

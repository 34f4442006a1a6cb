/* Making a network, layer by layer. Internal. */
#ifndef BPPSA_CNN_NETWORK_INTERNAL_H
#define BPPSA_CNN_NETWORK_INTERNAL_H

#include "cnn/network.h"

/* Room for `layers` layers in a network without any. */
bppsa_status bppsa_cnn_network_reserve(int64_t layers, bppsa_cnn_network *network);
/* Appends a layer, whose input is what the network gives so far: sets the input's and the output's shape. ERR_* of
 * bppsa_op_shape. */
bppsa_status bppsa_cnn_network_add(bppsa_cnn_network *network, bppsa_cnn_layer *layer);

#endif

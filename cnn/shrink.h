/* What is left of a network once the channels that pruning has made useless are taken out, for dense kernels on smaller arrays.
 *
 * A channel stays if something that stays gives it, the network's input or a weight that is kept, and something that stays reads
 * it. Channels that other layers tie together stay or go together: those of the inputs and the output of an add, or in front of a
 * batch norm and behind it. What a channel that goes would still give, a bias or what a batch norm makes of it, is a constant,
 * which is left to the next biases. Layers that mix channels in other ways than by weights, as a softmax or a norm over channels,
 * keep them all. Internal. */
#ifndef BPPSA_CNN_SHRINK_H
#define BPPSA_CNN_SHRINK_H

#include "cnn/network.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int64_t in, out; /* channels that stay of the first input and of the output */
  double share;    /* of the layer's dense FLOPs that are left */
} bppsa_cnn_shrunk;

/* Fills layers [network->count]. masks[i]: a byte for each weight of layer i, 0 where it is pruned; NULL: all are kept. The logits
 * stay. ERR_MEMORY. */
bppsa_status bppsa_cnn_shrink(const bppsa_cnn_network *network, const uint8_t *const *masks, bppsa_cnn_shrunk *layers);

#ifdef __cplusplus
}
#endif
#endif

/* Convolutional networks as a chain of layers (core/compute/chain.h), for pipelines. */
#ifndef BPPSA_CNN_CHAIN_H
#define BPPSA_CNN_CHAIN_H

#include "cnn/network.h"
#include "core/compute/chain.h"
#include "core/compute/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the chain of a network (copied): a layer for each operator, with the parameters of bppsa_cnn_create. The passes are those
 * of the model, bit for bit. batch: the most samples of a call. device: must outlive the chain; a CPU gives the threads. The caller
 * destroys the chain with bppsa_chain_destroy. ERR_ARGUMENT: a batch out of range, a network that does not end with a linear
 * operator; ERR_UNSUPPORTED: a graph, a dtype, dropout, convolutions on a GPU without cuDNN or that cuDNN refuses; ERR_MEMORY,
 * ERR_CUDA. */
bppsa_status bppsa_cnn_chain_create(const bppsa_cnn_network *network, int64_t batch, bppsa_dtype dtype,
                                    const bppsa_device *device, bppsa_chain **chain);

#ifdef __cplusplus
}
#endif
#endif

/* Recurrent networks as a chain of layers (core/compute/chain.h), for pipelines: a recurrent layer, over all of its time, is a
 * layer of the chain, and the head is the last.
 *
 *     in of layer 0   x [T,b,I]
 *     between layers  h_0 .. h_T [T+1,b,H], where h_0 = 0; and their gradients, in the same places
 *     out of the head [b,C] or, with a loss on all steps, [T,b,C]
 */
#ifndef BPPSA_RECURRENT_CHAIN_H
#define BPPSA_RECURRENT_CHAIN_H

#include "core/compute/chain.h"
#include "recurrent/recurrent.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the chain of the network that bppsa_recurrent_create makes of the same configuration with sequential BP: the same
 * parameters and, bit for bit, the same passes. config->batch: the most samples of a call; method, input_gradients, factory and
 * ends are not used. The cell and the device must outlive the chain; the caller destroys it with bppsa_chain_destroy.
 * On a GPU every pass copies its weights to scratch memory, and their gradients from there. ERR_UNSUPPORTED: speculative forward
 * passes, no head, two directions; errors of bppsa_recurrent_create. */
bppsa_status bppsa_recurrent_chain_create(const bppsa_recurrent_config *config, const bppsa_cell *cell,
                                          const bppsa_device *device, bppsa_chain **chain);

#ifdef __cplusplus
}
#endif
#endif

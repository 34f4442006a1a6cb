/* A network as a chain of live sets, which makes every graph a chain of scan elements.
 *
 * The layers stand in an order in which each comes behind those that it reads. Behind layer t stands the live set x_t: the
 * tensors that exist by then and that a later layer reads, one behind the other, the oldest first. Layer t + 1 turns x_t into
 * x_{t+1}, so that the gradients obey g_{t-1} = J_tᵀ g_t, as in a chain, with
 *
 *     J_tᵀ = the layer's own transposed Jacobian, from the rows of its inputs to the columns of its output,
 *            beside an identity for each tensor that lives on
 *
 * A tensor that lives on although the layer reads it has both in its rows. Identities are ones beside the entries (jacobian/csr.h):
 * they are not stored as values, not multiplied, and no FLOPs. add, concat, slice, reshape, permute and flatten have nothing but
 * ones, mul has a diagonal for each input, and a normalisation is two layers with a block for each input. In a chain
 * every live set is one tensor, and J_tᵀ is the operator's own.
 *
 * Tensor 0 is the network's input and tensor i + 1 the output of layer i. The input is in x_0; in later live sets only if its
 * gradient is wanted.
 */
#ifndef BPPSA_CNN_LIVE_H
#define BPPSA_CNN_LIVE_H

#include "cnn/network.h"
#include "jacobian/csr.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int64_t elements; /* n: layers in front of the head */
  int64_t *sizes;   /* values of x_0 .. x_n, size n + 1 */
  int64_t *ptr;     /* tensors of x_t: tensors[ptr[t]] .. tensors[ptr[t + 1] - 1]; size n + 2 */
  int32_t *tensors; /* increasing within a live set */
  int64_t *offsets; /* where each of them begins in its live set */
} bppsa_cnn_live;

/* input: the gradient of the network's input is wanted. ERR_SHAPE: a live set of more than 2^31 - 1 values; ERR_MEMORY. */
bppsa_status bppsa_cnn_live_create(const bppsa_cnn_network *network, bool input, bppsa_cnn_live *live);
void bppsa_cnn_live_free(bppsa_cnn_live *live); /* a zeroed one is legal */
/* Where a tensor begins in x_t; -1: it is not in it. */
int64_t bppsa_cnn_live_offset(const bppsa_cnn_live *live, int64_t t, int64_t tensor);
/* Is J_tᵀ the operator's own transposed Jacobian? */
bool bppsa_cnn_live_is_own(const bppsa_cnn_live *live, const bppsa_cnn_network *network, int64_t t);
/* Counts the ones of J_tᵀ, and says whether the operator's own entries are in it: those of an input that is not live are not. */
int64_t bppsa_cnn_live_ones(const bppsa_cnn_live *live, const bppsa_cnn_network *network, int64_t t, bool *own);

/* A piece of what layer i, which is no operator with entries of its own, takes from its k-th input: `count` values of each sample,
 * which begin at `from` in the input and at `to` in the output. */
typedef struct {
  int64_t tensor, from, to, count;
} bppsa_cnn_part;
bppsa_cnn_part bppsa_cnn_part_of(const bppsa_cnn_network *network, int64_t i, int64_t k);

/* The scan's elements of a network. */
typedef struct {
  bppsa_cnn_live live;
  const bppsa_csr **patterns; /* of J_1ᵀ .. J_nᵀ, size n: the operators' own, or those of `made` */
  bppsa_csr *made;            /* size n */
} bppsa_cnn_elements;

/* Makes the live sets; the patterns are still NULL. Errors of bppsa_cnn_live_create. */
bppsa_status bppsa_cnn_elements_create(const bppsa_cnn_network *network, bool input, bppsa_cnn_elements *elements);
/* Sets the pattern of J_tᵀ, t >= 1. own: the operator's pattern, borrowed; NULL where the layer is no operator. A
 * pattern known by its structure alone stays so. Values of J_tᵀ are in the order of own's. ERR_MEMORY. */
bppsa_status bppsa_cnn_elements_set(const bppsa_cnn_network *network, int64_t t, const bppsa_csr *own,
                                    bppsa_cnn_elements *elements);
void bppsa_cnn_elements_free(bppsa_cnn_elements *elements); /* a zeroed one is legal */

#ifdef __cplusplus
}
#endif
#endif

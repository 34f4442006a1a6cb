/* The fused kernels of a recurrent layer, H <= 32: the sequential backward pass of a chunk of steps, and the products that make
 * chunks independent.
 *
 *     transition   (chunk_transition.cuh) products of chunks: the sequential backward pass of the rows of the identity (phase 1)
 *     carry        (chunk_carry.cuh) takes the gradient from chunk to chunk through the products (phase 2)
 *     walk         (chunk_walk.cuh) goes through all chunks at once, from the carried gradients, and sums weight
 *                  gradients (phase 3)
 *
 * Chunk p has the steps T - C(p) .. T - C(p + 1) + 1, in that order, where C(p) = bppsa_cut(T, P, p); one chunk is sequential BP.
 * Jacobians are never stored: their factors are computed from what the forward pass kept. Injected gradients enter a chunk as one
 * more vector, the walk from 0.
 *
 * Everything is in row-vector form, gᵀ_{t-1} = Σ_k (gᵀ_t ∘ d_k) W_k + gᵀ_t ∘ e + uᵀ_{t-1}. HP is H padded; the
 * padding of W_k is 0. scan/scan_products.inc explains the exponents of products, and when a product is useless and its steps are
 * redone. All sums run in one fixed order.
 */
#ifndef BPPSA_RECURRENT_GPU_CHUNK_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_CHUNK_KERNELS_CUH

#include "recurrent/gpu/chunk_carry.cuh"
#include "recurrent/gpu/chunk_transition.cuh"
#include "recurrent/gpu/chunk_walk.cuh"

#endif

/* Sums over ranks whose bits do not depend on who holds what.
 *
 * The terms are vectors of numbered blocks (16 samples of a batch each, or the micro-batches of a pipeline). They are added up
 * along a binary tree over the blocks' numbers: the node k of level l is the sum of blocks k 2^l .. (k + 1) 2^l - 1, its left
 * half plus its right half; a half beyond the last block is left out. The tree depends on the number of blocks alone, so one
 * rank and many get the same bits, provided that each block is computed as a whole by one rank.
 *
 * A node is held by the rank that holds its first block: a sum takes one message, of a vector, for every node whose halves
 * begin on different ranks (p - 1 where p ranks hold as many consecutive blocks each, a power of two), in at most
 * ceil(log2(blocks)) rounds, and a broadcast. A rank that holds all blocks and adds them in ascending order keeps at most
 * ceil(log2(blocks)) + 1 vectors.
 */
#ifndef BPPSA_COMM_ORDERED_H
#define BPPSA_COMM_ORDERED_H

#include "comm/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_ordered_sum bppsa_ordered_sum;

/* comm: borrowed; NULL: one rank, alone. blocks: how many there are in all, at least 1. owners: the rank of each block, size
 * `blocks`, equal on all ranks; NULL: consecutive blocks, cut by core/cut.h. dtype: f32 or f64. count: elements of a vector.
 * tag: of its messages, which nothing else may use meanwhile. The caller destroys it. ERR_ARGUMENT, ERR_UNSUPPORTED: the dtype.
 * ERR_MEMORY. */
bppsa_status bppsa_ordered_sum_create(bppsa_comm *comm, int64_t blocks, const int32_t *owners, bppsa_dtype dtype, int64_t count,
                                      int32_t tag, bppsa_ordered_sum **sum);
void bppsa_ordered_sum_destroy(bppsa_ordered_sum *sum); /* NULL is legal */

/* The vector of a block of this rank, in any order of blocks; it is copied. ERR_ARGUMENT: not a block of this rank, or added
 * before. ERR_SHAPE: another dtype or count. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_ordered_sum_add(bppsa_ordered_sum *sum, int64_t block, const bppsa_view *vector);

/* The sum over all blocks, on every rank; collective. Then the next sum may begin. After a failure it can only be destroyed.
 * ERR_ARGUMENT: a block of this rank was not added. ERR_SHAPE, ERR_MEMORY, ERR_COMM, ERR_CUDA. */
bppsa_status bppsa_ordered_sum_finish(bppsa_ordered_sum *sum, const bppsa_view *result);

/* Vectors that it holds now, and the most it ever held. */
int64_t bppsa_ordered_sum_vectors(const bppsa_ordered_sum *sum);
int64_t bppsa_ordered_sum_most_vectors(const bppsa_ordered_sum *sum);

#ifdef __cplusplus
}
#endif
#endif

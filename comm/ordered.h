/* Sums over ranks whose bits do not depend on which rank holds which term.
 *
 * The terms are vectors of numbered blocks (16 samples of a batch each, or the micro-batches of a pipeline). They are added up
 * along a binary tree over the blocks' numbers: the node k of level l is the sum of blocks k 2^l .. (k + 1) 2^l - 1, its left
 * half plus its right half; a half beyond the last block is left out. The tree depends on the number of blocks alone, so one
 * rank and many get the same bits, provided that each block is computed as a whole by one rank.
 *
 * The rank that holds the first block of a node holds the node. For every node whose halves begin on different ranks, one message
 * carries one vector. So a sum takes p - 1 messages if each of p ranks holds the same number of consecutive blocks and that
 * number is a power of two; it takes at most ceil(log2(blocks)) rounds, followed by a broadcast. A rank that holds all blocks and
 * adds them in ascending order keeps at most ceil(log2(blocks)) + 1 vectors.
 */
#ifndef BPPSA_COMM_ORDERED_H
#define BPPSA_COMM_ORDERED_H

#include "comm/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_ordered_sum bppsa_ordered_sum; /* a rank's part of a sum */

/* comm: borrowed; NULL: this rank computes alone. blocks: the number of blocks on all ranks together, at least 1. owners: the
 * rank of each block, size `blocks`, equal on all ranks; NULL: each rank has consecutive blocks, and the numbers of
 * blocks of two ranks differ by at most one. dtype: f32 or f64. count: elements of a vector. tag: the tag of the sum's messages;
 * nothing else may use it while the sum exists. The caller destroys the sum. ERR_ARGUMENT: a number out of its range.
 * ERR_UNSUPPORTED: the dtype. ERR_MEMORY. */
bppsa_status bppsa_ordered_sum_create(bppsa_comm *comm, int64_t blocks, const int32_t *owners, bppsa_dtype dtype, int64_t count,
                                      int32_t tag, bppsa_ordered_sum **sum);
void bppsa_ordered_sum_destroy(bppsa_ordered_sum *sum); /* NULL is legal */
/* Call it before the first vector is added: from then on this rank's vectors are in a GPU's memory, and work on the GPU's stream
 * adds them up. The communicator's arrays, if there is one, must be on the same GPU. The bits are those of sums in host memory. */
void bppsa_ordered_sum_set_device(bppsa_ordered_sum *sum, const bppsa_device *device);

/* Adds the vector of one of this rank's blocks; the blocks may come in any order, and the vector is copied. ERR_ARGUMENT: the
 * block belongs to another rank or was added before. ERR_SHAPE: another dtype or count. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_ordered_sum_add(bppsa_ordered_sum *sum, int64_t block, const bppsa_view *vector);

/* The two halves of bppsa_ordered_sum_finish, for sums that are computed beside other work. `reduce` brings the sum to the rank of
 * block 0: each call goes as far as it can without waiting, or to the end (`wait`); *done says whether this rank's part is over.
 * Several sums with different tags may be under way at once. `ibroadcast` then begins the collective broadcast of the sum to
 * `result`, which is borrowed until the request is done, and the object is ready for the next sum; with a comm of NULL the request
 * is NULL. Errors as below. */
bppsa_status bppsa_ordered_sum_reduce(bppsa_ordered_sum *sum, bool wait, bool *done);
bppsa_status bppsa_ordered_sum_ibroadcast(bppsa_ordered_sum *sum, const bppsa_view *result, bppsa_comm_request **request);

/* Returns the message that `reduce` waits for; NULL: none. It is borrowed until the next call for this sum. */
const bppsa_comm_request *bppsa_ordered_sum_pending(const bppsa_ordered_sum *sum);

/* Writes the sum over all blocks to result, on every rank; collective. Afterwards the object can compute the next sum; after a
 * failure it can only be destroyed.
 * ERR_ARGUMENT: a block of this rank was not added. ERR_SHAPE, ERR_MEMORY, ERR_COMM, ERR_CUDA. */
bppsa_status bppsa_ordered_sum_finish(bppsa_ordered_sum *sum, const bppsa_view *result);

/* Returns the number of vectors that this rank holds now; the next function returns the most that it has held. */
int64_t bppsa_ordered_sum_vectors(const bppsa_ordered_sum *sum);
int64_t bppsa_ordered_sum_most_vectors(const bppsa_ordered_sum *sum);

#ifdef __cplusplus
}
#endif
#endif

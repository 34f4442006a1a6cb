/* Gradients in buckets that are added up over ranks while the backward pass goes on. Internal. */
#ifndef BPPSA_DISTRIBUTED_BATCH_BUCKETS_H
#define BPPSA_DISTRIBUTED_BATCH_BUCKETS_H

#include "comm/ordered.h"
#include "core/compute/model.h"
#include "distributed/reduction.h"

typedef struct bppsa_buckets bppsa_buckets;

/* delayed: the number of parameters, the first ones, whose gradients come last and in ascending order. blocks: of a full batch,
 * on all ranks together. ERR_MEMORY. */
bppsa_status bppsa_buckets_create(bppsa_comm *comm, bppsa_model *model, const bppsa_data_parallel_config *config, int64_t delayed,
                                  int64_t blocks, bppsa_buckets **made);
void bppsa_buckets_destroy(bppsa_buckets *buckets); /* NULL is legal */
int64_t bppsa_buckets_count(const bppsa_buckets *buckets);

/* Begins a batch of `blocks` blocks, of which this rank holds first .. first + mine - 1. ERR_MEMORY: not for a full batch. */
bppsa_status bppsa_buckets_begin(bppsa_buckets *buckets, int64_t blocks, int64_t first, int64_t mine);
/* Begins this rank's next block. From here on the model's gradients are taken over as they become complete. */
void bppsa_buckets_begin_block(bppsa_buckets *buckets);
/* Ends the block, and adds its numbers. The error of a message that was under way. */
bppsa_status bppsa_buckets_end_block(bppsa_buckets *buckets, const bppsa_data_parallel_sums *sums);
/* Waits for all sums and writes them to the model's gradients. */
bppsa_status bppsa_buckets_finish(bppsa_buckets *buckets, bppsa_data_parallel_sums *sums);

#endif

/* Streams (train/data/dataset.h) on ranks that share a batch. Internal.
 *
 * A stream belongs to the rank whose share of a full batch has it: that rank computes its samples batch after batch, and has its
 * states. Of a smaller batch, the last one of an epoch, ranks have other shares, so that every rank gets all states before it. */
#ifndef BPPSA_DISTRIBUTED_BATCH_STREAMS_H
#define BPPSA_DISTRIBUTED_BATCH_STREAMS_H

#include "comm/comm.h"
#include "distributed/reduction.h"
#include "train/evaluate_internal.h"

/* How ranks share batches. first: as bppsa_data_parallel_first. */
typedef struct {
  bppsa_comm *comm;  /* of the ranks that share a batch */
  bppsa_comm *world; /* of all ranks; the others hold other steps of the same samples, and have the same states */
  const bppsa_data_parallel_config *config;
  int64_t block; /* samples of a block */
  int64_t (*first)(const bppsa_data_parallel_config *config, int64_t block, int32_t ranks, int64_t rank, int64_t count);
} batch_shares;

/* Gives every rank the states of the first `count` samples of a batch, each from the rank whose share of so many samples has it.
 * Collective. ERR_COMM. */
bppsa_status bppsa_streams_gather(const batch_shares *shares, const bppsa_batch *batch, int64_t count);
/* Evaluates samples first .. first + count - 1, batch->whole at a time, whose blocks the ranks share; batch->capacity is that of a
 * block. The sums go over blocks in the order of their samples. Collective. Errors of bppsa_ranks_evaluate. */
bppsa_status bppsa_streams_evaluate(const batch_shares *shares, bppsa_batch *batch, int64_t first, int64_t count,
                                    bppsa_evaluation *result);

#endif

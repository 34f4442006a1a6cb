/* Evaluation on ranks with a training run's buffers. Internal. */
#ifndef BPPSA_DISTRIBUTED_EVALUATE_INTERNAL_H
#define BPPSA_DISTRIBUTED_EVALUATE_INTERNAL_H

#include "comm/comm.h"
#include "train/evaluate_internal.h"

/* bppsa_ranks_evaluate with existing buffers, batch->capacity samples at a time. */
bppsa_status bppsa_ranks_evaluate_batch(bppsa_comm *comm, bppsa_batch *batch, int64_t first, int64_t count,
                                        bppsa_evaluation *result);

#endif

/* Evaluation on ranks with a training run's buffers. Internal. */
#ifndef BPPSA_DISTRIBUTED_EVALUATE_INTERNAL_H
#define BPPSA_DISTRIBUTED_EVALUATE_INTERNAL_H

#include "comm/comm.h"
#include "train/evaluate_internal.h"

/* bppsa_ranks_evaluate with existing buffers, batch->capacity samples at a time. The ranks of `comm` share the samples; the others
 * of `world` hold other steps of the same samples. */
bppsa_status bppsa_ranks_evaluate_batch(bppsa_comm *world, const bppsa_comm *comm, bppsa_batch *batch, int64_t first,
                                        int64_t count, bppsa_evaluation *result);

#endif

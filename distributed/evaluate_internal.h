/* Evaluation on ranks with a training run's buffers. Internal. */
#ifndef BPPSA_DISTRIBUTED_EVALUATE_INTERNAL_H
#define BPPSA_DISTRIBUTED_EVALUATE_INTERNAL_H

#include "comm/comm.h"
#include "train/evaluate_internal.h"

/* bppsa_ranks_evaluate with existing buffers, batch->capacity samples at a time. The ranks of `comm` share the samples; the others
 * of `world` hold other steps of the same samples. */
bppsa_status bppsa_ranks_evaluate_batch(bppsa_comm *world, const bppsa_comm *comm, bppsa_batch *batch, int64_t first,
                                        int64_t count, bppsa_evaluation *result);

/* What ranks tell each other of the samples that one of them has evaluated together. */
typedef struct {
  double loss, correct, rows, weight; /* as in bppsa_batch_sums */
} bppsa_ranks_part;
static inline bppsa_ranks_part bppsa_ranks_part_of(const bppsa_batch_sums *sums) {
  return (bppsa_ranks_part){sums->loss, (double)sums->correct, (double)sums->rows, sums->weight};
}
/* Adds the numbers of all parts, of which each rank has its own ones and zeros otherwise, to the sums. Collective. ERR_COMM. */
bppsa_status bppsa_ranks_add_parts(bppsa_comm *comm, int64_t count, bppsa_ranks_part *parts, bppsa_batch_sums *sums);

#endif

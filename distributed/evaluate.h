/* Evaluation on ranks: each takes every p-th part of the samples. */
#ifndef BPPSA_DISTRIBUTED_EVALUATE_H
#define BPPSA_DISTRIBUTED_EVALUATE_H

#include "comm/comm.h"
#include "core/compute/model.h"
#include "distributed/reduction.h"
#include "train/evaluate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bppsa_evaluate on ranks, `batch` samples at a time; every rank's model has the same weights, and every rank gets the result. Its
 * bits are those of bppsa_evaluate, because all parts are added up in the order of the samples. along: NULL, or the ranks along
 * time (the other members are not used): the model is then this rank's part, and the bits depend on the ranks. Collective. Errors
 * of bppsa_evaluate; ERR_UNSUPPORTED: streams, for which there is bppsa_data_parallel_evaluate_streams; ERR_MEMORY, ERR_COMM. */
bppsa_status bppsa_ranks_evaluate(bppsa_comm *comm, const bppsa_data_parallel_config *along, bppsa_model *model,
                                  const bppsa_dataset *dataset, const bppsa_device *device, int64_t first, int64_t count,
                                  int64_t batch, bppsa_evaluation *result);

#ifdef __cplusplus
}
#endif
#endif

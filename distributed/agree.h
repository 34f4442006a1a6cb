/* What ranks must have in common, compared before they work together. Internal. */
#ifndef BPPSA_DISTRIBUTED_AGREE_H
#define BPPSA_DISTRIBUTED_AGREE_H

#include "comm/comm.h"
#include "core/files/safetensors.h"

/* Gathers `count` numbers of every rank: *all [ranks][count], which the caller frees with bppsa_free. Numbers with a name must be
 * equal: ERR_ARGUMENT, the same on every rank, names the first rank that differs from rank 0; `where` begins the message. names:
 * size count, NULL for a number that may differ. Collective. ERR_MEMORY, ERR_COMM. */
bppsa_status bppsa_ranks_agree(bppsa_comm *comm, const char *where, int64_t count, const char *const *names, int64_t *mine,
                               int64_t **all);

/* Reduces numbers over all ranks, in place. Collective. ERR_COMM. */
bppsa_status bppsa_ranks_reduce(bppsa_comm *comm, bppsa_comm_op op, bppsa_dtype dtype, int64_t count, void *numbers);

/* Functions of a training loop's ranks (train/ranks.h): *stop becomes true on every rank if it was true on any; every other
 * rank gets the tensors of rank 0. Collective. ERR_COMM. */
bppsa_status bppsa_ranks_agree_stop(bppsa_comm *comm, int64_t step, bool *stop);
bppsa_status bppsa_ranks_copy(bppsa_comm *comm, int64_t count, const bppsa_named_view *tensors);

#endif

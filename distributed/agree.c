#include "distributed/agree.h"

#include <inttypes.h>

#include "core/base/alloc.h"

static bppsa_status compare(const char *where, int64_t ranks, int64_t count, const char *const *names, const int64_t *all) {
  for (int64_t at = count; at < ranks * count; ++at) {
    const int64_t k = at % count;
    if (names[k] != NULL && all[at] != all[k]) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s is %" PRId64 " on rank %" PRId64 ", expected %" PRId64 " as on rank 0", where,
                        names[k], all[at], at / count, all[k]);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_ranks_agree(bppsa_comm *comm, const char *where, int64_t count, const char *const *names, int64_t *mine,
                               int64_t **all) {
  const int64_t ranks = bppsa_comm_size(comm), shape[2] = {ranks, count};
  int64_t *gathered = bppsa_calloc(ranks * count, sizeof *gathered);
  if (gathered == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_view view = bppsa_view_make(mine, BPPSA_I64, 1, &count), to = bppsa_view_make(gathered, BPPSA_I64, 2, shape);
  bppsa_status status = bppsa_comm_allgather(comm, &view, NULL, &to);
  status = status == BPPSA_OK ? compare(where, ranks, count, names, gathered) : status;
  if (status != BPPSA_OK) {
    bppsa_free(gathered);
    return status;
  }
  *all = gathered;
  return BPPSA_OK;
}

bppsa_status bppsa_ranks_reduce(bppsa_comm *comm, bppsa_comm_op op, bppsa_dtype dtype, int64_t count, void *numbers) {
  const bppsa_view view = bppsa_view_make(numbers, dtype, 1, &count);
  return bppsa_comm_allreduce(comm, op, &view);
}

bppsa_status bppsa_ranks_agree_stop(bppsa_comm *comm, int64_t step, bool *stop) {
  int64_t wanted = *stop ? 1 : 0;
  bppsa_comm_at(comm, "the end of training step", step);
  BPPSA_TRY(bppsa_ranks_reduce(comm, BPPSA_COMM_MAX, BPPSA_I64, 1, &wanted));
  *stop = wanted != 0;
  return BPPSA_OK;
}

bppsa_status bppsa_ranks_copy(bppsa_comm *comm, int64_t count, const bppsa_named_view *tensors) {
  bppsa_comm_at(comm, "the start of training", -1);
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(bppsa_comm_broadcast(comm, 0, &tensors[i].view));
  }
  return BPPSA_OK;
}

#include "distributed/batch/streams.h"

#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "distributed/agree.h"
#include "distributed/evaluate_internal.h"
#include "train/blocks.h"

static int64_t first_of(const batch_shares *s, int64_t rank, int64_t count) {
  return s->first(s->config, s->block, bppsa_comm_size(s->comm), rank, count);
}

bppsa_status bppsa_streams_gather(const batch_shares *shares, const bppsa_batch *batch, int64_t count) {
  const bppsa_view *states = &batch->states;
  const int64_t row = states->shape[2] * (int64_t)bppsa_dtype_size(states->dtype);
  bppsa_comm_at(shares->comm, "the states of streams", -1);
  for (int32_t rank = 0; rank < bppsa_comm_size(shares->comm); ++rank) {
    const int64_t first = first_of(shares, rank, count), shape[2] = {first_of(shares, rank + 1, count) - first, states->shape[2]};
    for (int64_t l = 0; shape[0] > 0 && l < states->shape[0]; ++l) {
      const bppsa_view rows =
          bppsa_view_make((char *)states->data + (l * states->shape[1] + first) * row, states->dtype, 2, shape);
      BPPSA_TRY(bppsa_comm_broadcast(shares->comm, rank, &rows));
    }
  }
  return BPPSA_OK;
}

/* Evaluates this rank's blocks of every batch; parts: of each batch `blocks`. */
static bppsa_status evaluate_own(const batch_shares *s, bppsa_batch *batch, int64_t first, int64_t count, int64_t blocks,
                                 bppsa_ranks_part *parts, double *account) {
  const bppsa_model_account *kept = bppsa_model_get_account(batch->model, BPPSA_PASS_FORWARD);
  const int64_t rank = bppsa_comm_rank(s->comm);
  for (int64_t done = 0, size; done < count; done += size, parts += blocks) {
    size = bppsa_min(batch->whole, count - done);
    bppsa_batch_follow(batch, done / batch->whole, NULL, batch->whole);
    BPPSA_TRY(done > 0 && size < batch->whole ? bppsa_streams_gather(s, batch, batch->whole) : BPPSA_OK);
    const int64_t end = first_of(s, rank + 1, size);
    for (int64_t from = first_of(s, rank, size), here; from < end; from += here) {
      here = bppsa_min(batch->capacity, end - from);
      bppsa_batch_sums sums = {0};
      BPPSA_TRY(bppsa_batch_evaluate_part(batch, first + done + from, here, from, NULL, &sums));
      parts[s->config->reduction == BPPSA_REDUCTION_LIBRARY ? rank : from / s->block] = bppsa_ranks_part_of(&sums);
      if (kept != NULL) {
        kept->add(account, sums.account);
      }
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_streams_evaluate(const batch_shares *shares, bppsa_batch *batch, int64_t first, int64_t count,
                                    bppsa_evaluation *result) {
  const int64_t most = (batch->whole - 1) / shares->block + 1, ranks = bppsa_comm_size(shares->comm);
  const int64_t blocks = most > ranks ? most : ranks, batches = (count - 1) / batch->whole + 1;
  bppsa_ranks_part *parts = bppsa_calloc(batches * blocks, sizeof *parts);
  if (parts == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_batch_sums sums = {0};
  const bool training = batch->training;
  batch->training = false;
  bppsa_batch_restart(batch);
  bppsa_status status = evaluate_own(shares, batch, first, count, blocks, parts, sums.account);
  bppsa_batch_restart(batch);
  batch->training = training;
  status = status == BPPSA_OK ? bppsa_ranks_add_parts(shares->world, batches * blocks, parts, &sums) : status;
  bppsa_free(parts);
  BPPSA_TRY(status);
  *result = bppsa_batch_evaluation(&sums, count);
  return BPPSA_OK;
}

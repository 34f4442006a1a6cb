#include "distributed/evaluate.h"

#include "core/base/alloc.h"
#include "distributed/agree.h"
#include "distributed/evaluate_internal.h"
#include "train/blocks.h"

bppsa_status bppsa_ranks_add_parts(bppsa_comm *comm, int64_t count, bppsa_ranks_part *parts, bppsa_batch_sums *sums) {
  const int64_t numbers = count * (int64_t)(sizeof *parts / sizeof(double));
  /* exact without ranks along time: at most one of the terms is not 0 */
  BPPSA_TRY(bppsa_ranks_reduce(comm, BPPSA_COMM_SUM, BPPSA_F64, numbers, parts));
  for (int64_t i = 0; i < count; ++i) {
    sums->loss += parts[i].loss;
    sums->correct += (int64_t)parts[i].correct;
    sums->rows += (int64_t)parts[i].rows;
    sums->weight += parts[i].weight;
  }
  return BPPSA_OK;
}

/* Evaluates this rank's parts and writes their numbers to `parts`; account: the model's, of their passes. */
static bppsa_status evaluate_own(const bppsa_comm *comm, bppsa_batch *batch, int64_t first, int64_t count, int64_t all,
                                 bppsa_ranks_part *parts, double *account) {
  const bppsa_model_account *kept = bppsa_model_get_account(batch->model, BPPSA_PASS_FORWARD);
  const int64_t size = batch->capacity;
  for (int64_t i = bppsa_comm_rank(comm); i < all; i += bppsa_comm_size(comm)) {
    const int64_t from = i * size, here = count - from < size ? count - from : size;
    bppsa_batch_sums part;
    BPPSA_TRY(bppsa_batch_evaluate_sums(batch, first + from, here, NULL, &part));
    parts[i] = bppsa_ranks_part_of(&part);
    if (kept != NULL) {
      kept->add(account, part.account);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_ranks_evaluate_batch(bppsa_comm *world, const bppsa_comm *comm, bppsa_batch *batch, int64_t first,
                                        int64_t count, bppsa_evaluation *result) {
  const int64_t all = (count - 1) / batch->capacity + 1;
  bppsa_ranks_part *parts = bppsa_calloc(all, sizeof *parts);
  if (parts == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_batch_sums sums = {0};
  bppsa_status status = evaluate_own(comm, batch, first, count, all, parts, sums.account);
  status = status == BPPSA_OK ? bppsa_ranks_add_parts(world, all, parts, &sums) : status;
  bppsa_free(parts);
  BPPSA_TRY(status);
  *result = bppsa_batch_evaluation(&sums, count);
  return BPPSA_OK;
}

bppsa_status bppsa_ranks_evaluate(bppsa_comm *comm, const bppsa_data_parallel_config *along, bppsa_model *model,
                                  const bppsa_dataset *dataset, const bppsa_device *device, int64_t first, int64_t count,
                                  int64_t batch, bppsa_evaluation *result) {
  BPPSA_REQUIRE(comm != NULL && model != NULL && dataset != NULL && result != NULL);
  bppsa_batch buffers;
  if (dataset->streams) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "evaluation of streams on ranks that take whole batches, expected "
                                             "bppsa_data_parallel_evaluate_streams");
  }
  BPPSA_TRY(bppsa_evaluate_check(dataset, first, count, batch));
  const int64_t capacity = bppsa_min(batch, count);
  BPPSA_TRY(bppsa_batch_create(model, dataset, device, capacity, capacity, false, &buffers));
  const bool cut = along != NULL && along->time != NULL;
  if (cut) {
    bppsa_batch_set_steps(&buffers, along->first_step, along->steps);
  }
  const bppsa_status status = bppsa_ranks_evaluate_batch(cut ? along->world : comm, comm, &buffers, first, count, result);
  bppsa_batch_free(&buffers);
  return status;
}

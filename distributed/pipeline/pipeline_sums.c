#include "distributed/pipeline/pipeline_sums.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"

/* ---- creation ---- */

/* Marks the ranks that hold each layer, and splits a communicator for every layer that several hold: sums of different layers
 * end in any order, and the collective operations of one communicator must come in the same order on all of its ranks. marks:
 * [layers][ranks], false. */
static bppsa_status make_groups(const pipeline_plan *plan, pipeline_sum *sums, bool *marks) {
  for (int64_t layer = 0; layer < plan->layers; ++layer) {
    bool *mark = &marks[layer * plan->ranks];
    int64_t ranks = 0;
    for (int64_t replica = 0; replica < plan->list->replicas; ++replica) {
      const int32_t worker = plan->holder[replica * plan->layers + layer];
      if (worker >= 0 && !mark[pipeline_rank_of(plan, worker)]) {
        mark[pipeline_rank_of(plan, worker)] = true;
        ++ranks;
      }
    }
    if (ranks > 1 && plan->chain->layer[layer].parameters > 0) {
      bppsa_comm *host = bppsa_comm_get_host(plan->comm); /* communicators of NCCL may not go on side by side */
      BPPSA_TRY(bppsa_comm_split(host, mark[plan->rank] ? 0 : -1, (int32_t)plan->rank, &sums[layer].comm));
    }
  }
  return BPPSA_OK;
}

/* The rank, in the layer's group, of the worker that computes a micro-batch's gradient. */
static int32_t rank_in_group(const pipeline_plan *plan, const bool *mark, int64_t worker) {
  int32_t place = 0;
  for (int64_t rank = 0; rank < pipeline_rank_of(plan, worker); ++rank) {
    place += mark[rank];
  }
  return place;
}

/* Notes that the operation's worker computes a micro-batch's gradient. */
static bppsa_status own_block(const pipeline_plan *plan, const bppsa_schedule_op *op, const bppsa_pipeline_micro *micro,
                              const bool *marks, int64_t blocks, int32_t *owners) {
  for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
    const int32_t found = rank_in_group(plan, &marks[layer * plan->ranks], op->worker);
    int32_t *owner = micro->blocks == blocks ? &owners[layer * blocks + micro->block] : NULL;
    if (owner == NULL || (*owner >= 0 && *owner != found)) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                        "schedule %s: update %" PRId64
                        " of layer %s adds up other micro-batches than the first, expected the same in every update",
                        plan->list->scheme->id, micro->update, plan->chain->layer[layer].name);
    }
    *owner = found;
  }
  return BPPSA_OK;
}

/* Finds the rank that computes each block of every layer, which is the same in all updates. owners: [layers][blocks] */
static bppsa_status find_owners(const pipeline_plan *plan, const bool *marks, int64_t blocks, int32_t *owners) {
  memset(owners, 0xff, (size_t)(plan->layers * blocks) * sizeof *owners); /* -1 */
  for (int64_t id = 0; id < plan->list->count; ++id) {
    const bppsa_schedule_op *op = &plan->list->ops[id];
    const bool makes = op->kind == BPPSA_KIND_W || op->kind == BPPSA_KIND_B;
    const pipeline_span span = pipeline_span_of(plan, op);
    for (int64_t micro = span.first; makes && micro < span.end; ++micro) {
      BPPSA_TRY(own_block(plan, op, &plan->micro[micro], marks, blocks, owners));
    }
  }
  return BPPSA_OK;
}

/* mark: the ranks that hold the layer; owners: the ranks, within its group, that compute its blocks. */
static bppsa_status make_sum(const pipeline_plan *plan, pipeline_sum *sum, int64_t layer, const bool *mark, int64_t blocks,
                             const int32_t *owners) {
  const int64_t bytes = bppsa_pipeline_layer_bytes(plan, layer);
  const int32_t me = rank_in_group(plan, mark, plan->rank);
  for (int64_t b = 0; b < blocks; ++b) {
    sum->mine += owners[b] == me;
  }
  sum->count = bytes / (int64_t)bppsa_dtype_size(plan->chain->dtype);
  sum->parts = (pipeline_pool){.device = plan->chain->device, .bytes = (size_t)bytes + BPPSA_ALIGNMENT};
  BPPSA_TRY(bppsa_pipeline_make_array(plan, bytes, &sum->part));
  BPPSA_TRY(bppsa_pipeline_make_array(plan, bytes, &sum->result));
  BPPSA_TRY(bppsa_ordered_sum_create(sum->comm, blocks, sum->comm == NULL ? NULL : owners, plan->chain->dtype, sum->count,
                                     plan->config.tag + (int32_t)layer, &sum->sum));
  bppsa_ordered_sum_set_device(sum->sum, plan->chain->device);
  return BPPSA_OK;
}

static bppsa_status make_sums(const pipeline_plan *plan, pipeline_sum *sums, const bool *marks) {
  const int64_t blocks = plan->micro[0].blocks; /* of every update (own_block) */
  int32_t *owners = bppsa_calloc(plan->layers * blocks, sizeof *owners);
  bppsa_status status = owners == NULL ? BPPSA_ERR_MEMORY : find_owners(plan, marks, blocks, owners);
  for (int64_t layer = 0; layer < plan->layers && status == BPPSA_OK; ++layer) {
    const bool *mark = &marks[layer * plan->ranks];
    if (mark[plan->rank] && plan->chain->layer[layer].parameters > 0) {
      status = make_sum(plan, &sums[layer], layer, mark, blocks, &owners[layer * blocks]);
    }
  }
  bppsa_free(owners);
  return status;
}

bppsa_status bppsa_pipeline_sums_create(const pipeline_plan *plan, pipeline_sum **sums) {
  *sums = bppsa_calloc(plan->layers, sizeof **sums);
  bool *marks = bppsa_calloc(plan->layers * plan->ranks, sizeof *marks);
  bppsa_status status = *sums == NULL || marks == NULL ? BPPSA_ERR_MEMORY : make_groups(plan, *sums, marks);
  status = status == BPPSA_OK ? make_sums(plan, *sums, marks) : status;
  bppsa_free(marks);
  return status;
}

void bppsa_pipeline_sums_destroy(const pipeline_plan *plan, pipeline_sum *sums) {
  for (int64_t layer = 0; sums != NULL && layer < plan->layers; ++layer) {
    bppsa_comm_cancel(1, &sums[layer].request);
    bppsa_ordered_sum_destroy(sums[layer].sum);
    bppsa_comm_destroy(sums[layer].comm);
    bppsa_pipeline_pool_free(&sums[layer].parts);
    bppsa_memory_free(plan->chain->device, sums[layer].part);
    bppsa_memory_free(plan->chain->device, sums[layer].result);
  }
  bppsa_free(sums);
}

/* ---- adding up ---- */

void bppsa_pipeline_sums_begin(const pipeline_plan *plan, pipeline_sum *sums) {
  for (int64_t layer = 0; layer < plan->layers; ++layer) {
    sums[layer].finished = 0;
    bppsa_pipeline_pool_begin(&sums[layer].parts);
  }
}

bppsa_status bppsa_pipeline_sum_add(const pipeline_plan *plan, pipeline_sum *sum, int64_t micro, void *memory) {
  const bppsa_view part = pipeline_view_of(plan, memory, plan->chain->dtype, 1, &sum->count);
  BPPSA_TRY(bppsa_ordered_sum_add(sum->sum, plan->micro[micro].block, &part));
  sum->added++;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_sum_go(const pipeline_plan *plan, pipeline_sum *sum, int64_t update, bool *done) {
  *done = sum->sum == NULL || sum->finished > update;
  if (*done || (sum->state == PIPELINE_ADDING && sum->added < sum->mine)) {
    return BPPSA_OK;
  }
  bool over = true;
  if (sum->state != PIPELINE_SHARING) {
    sum->state = PIPELINE_REDUCING;
    BPPSA_TRY(bppsa_ordered_sum_reduce(sum->sum, false, &over));
    if (!over) {
      return BPPSA_OK;
    }
    const bppsa_view result = pipeline_view_of(plan, sum->result, plan->chain->dtype, 1, &sum->count);
    BPPSA_TRY(bppsa_ordered_sum_ibroadcast(sum->sum, &result, &sum->request));
    sum->state = PIPELINE_SHARING;
  }
  if (sum->request != NULL) {
    BPPSA_TRY(bppsa_comm_test(&sum->request, &over));
  }
  if (over) {
    sum->state = PIPELINE_ADDING;
    sum->added = 0;
    sum->finished++;
    *done = sum->finished > update;
  }
  return BPPSA_OK;
}

const bppsa_comm_request *bppsa_pipeline_sum_pending(const pipeline_sum *sum) {
  return sum->request == NULL && sum->sum != NULL ? bppsa_ordered_sum_pending(sum->sum) : sum->request;
}

/* What the executor of schedules knows from its creation on: all its parts read it, and none changes it. Internal. */
#ifndef BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_PLAN_H
#define BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_PLAN_H

#include "distributed/pipeline/pipeline.h"

/* With halving the executor counts halves of micro-batches: 2 m and 2 m + 1 are the halves of the list's micro-batch m. Its files
 * call such a half a micro-batch. */

enum { PIPELINE_HEADER = 64 /* bytes */, PIPELINE_MOST_PARAMETERS = 8 /* of a layer */ };

typedef struct {
  bppsa_comm *comm;
  bppsa_chain *chain;
  bppsa_pipeline_config config;
  const bppsa_schedule *list;
  int64_t rank, ranks, workers; /* workers: of this rank */
  int64_t layers, updates;      /* updates: of each layer in one run */
  int64_t parts;                /* of a micro-batch of the list */
  int64_t micros, samples;      /* micro-batches of a run, samples of each */
  int64_t most_micros;          /* in a transfer */
  int32_t *send, *recv;         /* of each group (bppsa_schedule_pair) */
  int64_t *turn; /* of each SEND and RECV that goes to another rank, size of the list; NULL: they may begin in any order */
  bppsa_pipeline_micro *micro; /* size micros; update within a run */
  int32_t *holder;             /* the worker that holds [replica][layer], or -1 */
} pipeline_plan;

/* Fills in the rest of a plan that has comm, chain, config and list. Free it also after a failure. ERR_* of
 * bppsa_pipeline_create. */
bppsa_status bppsa_pipeline_plan_make(pipeline_plan *plan);
void bppsa_pipeline_plan_free(pipeline_plan *plan);

/* The micro-batches of an operation: first .. end - 1. */
typedef struct {
  int64_t first, end;
} pipeline_span;

static inline pipeline_span pipeline_span_of(const pipeline_plan *plan, const bppsa_schedule_op *op) {
  const int64_t first = op->micro * plan->parts + (op->part > 0 ? op->part : 0);
  return (pipeline_span){first, first + (op->part >= 0 ? 1 : op->micros * plan->parts)};
}

/* The rank that runs a worker. */
static inline int64_t pipeline_rank_of(const pipeline_plan *plan, int64_t worker) {
  return worker % plan->ranks;
}

static inline bool pipeline_is_here(const pipeline_plan *plan, int64_t worker) {
  return pipeline_rank_of(plan, worker) == plan->rank;
}

/* The RECV of a SEND, the SEND of a RECV. */
static inline int32_t pipeline_partner_of(const pipeline_plan *plan, int64_t id) {
  const bppsa_schedule_op *op = &plan->list->ops[id];
  return (op->kind == BPPSA_KIND_SEND ? plan->recv : plan->send)[op->group];
}

/* The operation that makes what a SEND or a RECV carries. */
static inline int32_t pipeline_source_of(const pipeline_plan *plan, int64_t id) {
  const int32_t send = plan->send[plan->list->ops[id].group];
  return plan->list->deps[plan->list->ops[send].deps];
}

/* The worker at the other end of a SEND or a RECV. */
static inline int32_t pipeline_other_worker(const pipeline_plan *plan, int64_t id) {
  return plan->list->ops[pipeline_partner_of(plan, id)].worker;
}

/* A view of an array in the chain's memory. */
static inline bppsa_view pipeline_view_of(const pipeline_plan *plan, void *data, bppsa_dtype dtype, int32_t ndim,
                                          const int64_t *shape) {
  bppsa_view view = bppsa_view_make(data, dtype, ndim, shape);
  view.device = plan->chain->device != NULL ? BPPSA_CUDA : BPPSA_CPU;
  return view;
}

/* Rows of a micro-batch's logits. */
static inline int64_t pipeline_rows_of(const pipeline_plan *plan, int64_t classes) {
  return plan->samples * plan->chain->layer[plan->layers - 1].out / classes;
}

/* ---- arrays of a layer's parameters, one behind the other ---- */

int64_t bppsa_pipeline_layer_bytes(const pipeline_plan *plan, int64_t layer);
/* Where each parameter of the layer lies in such an array. */
void bppsa_pipeline_lay_out(const pipeline_plan *plan, int64_t layer, void *memory, void *arrays[PIPELINE_MOST_PARAMETERS]);
/* Makes a zeroed array where the chain computes. */
bppsa_status bppsa_pipeline_make_array(const pipeline_plan *plan, int64_t bytes, void **array);

#endif

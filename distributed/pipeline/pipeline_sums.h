/* The executor's sums of gradients over the micro-batches of an update, and over the ranks that hold a layer. Internal. */
#ifndef BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_SUMS_H
#define BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_SUMS_H

#include "comm/ordered.h"
#include "distributed/pipeline/pipeline_arrays.h"

/* The sum of a layer's gradients over the micro-batches of an update. */
typedef struct {
  bppsa_comm *comm; /* the ranks that hold the layer, owned; NULL: this rank alone */
  bppsa_ordered_sum *sum;
  bppsa_comm_request *request;
  void *part, *result; /* of one micro-batch; of the update */
  pipeline_pool parts; /* of several micro-batches, where they are computed on streams */
  int64_t count;       /* reals */
  int64_t mine;        /* blocks of this rank in an update */
  int64_t added;
  int64_t finished; /* updates whose sum was made, since the run began */
  enum { PIPELINE_ADDING = 0, PIPELINE_REDUCING, PIPELINE_SHARING } state;
} pipeline_sum;

/* Makes a sum for each layer; collective. */
bppsa_status bppsa_pipeline_sums_create(const pipeline_plan *plan, pipeline_sum **sums);
void bppsa_pipeline_sums_destroy(const pipeline_plan *plan, pipeline_sum *sums); /* NULL is legal */
void bppsa_pipeline_sums_begin(const pipeline_plan *plan, pipeline_sum *sums);   /* a run begins */
/* Adds a micro-batch's gradient. */
bppsa_status bppsa_pipeline_sum_add(const pipeline_plan *plan, pipeline_sum *sum, int64_t micro, void *part);
/* Goes on with the sum of update number `update` of the run, as far as it can without waiting. */
bppsa_status bppsa_pipeline_sum_go(const pipeline_plan *plan, pipeline_sum *sum, int64_t update, bool *done);
/* The sum's message or broadcast that has begun and is not over; NULL: none. */
const bppsa_comm_request *bppsa_pipeline_sum_pending(const pipeline_sum *sum);

#endif

#include "distributed/part_ranks.h"

#include "distributed/agree.h"
#include "distributed/evaluate_internal.h"

static bppsa_status describe_nonfinite(void *context, bppsa_batch *batch, int64_t count, const int64_t *indices, bool backward,
                                       const char *otherwise, bppsa_line *line) {
  const part_ranks *r = context;
  (void)batch;
  (void)count;
  (void)indices;
  (void)backward;
  bppsa_line_add(line, "non-finite %s %s", otherwise, r->words);
  return BPPSA_OK;
}

static bppsa_status evaluate(void *context, bppsa_batch *batch, int64_t first, int64_t count, bppsa_evaluation *result) {
  const part_ranks *r = context;
  bppsa_comm_at(r->comm, "the evaluation", -1);
  return bppsa_ranks_evaluate_batch(r->comm, r->comm, batch, first, count, result);
}

static bppsa_status agree(void *context, int64_t step, bool *stop) {
  const part_ranks *r = context;
  return bppsa_ranks_agree_stop(r->comm, step, stop);
}

static bppsa_status share(void *context, int64_t count, const bppsa_named_view *tensors) {
  const part_ranks *r = context;
  return bppsa_ranks_copy(r->comm, count, tensors);
}

static bppsa_status begin(void *context, const bppsa_train_lead *lead) {
  part_ranks *r = context;
  r->lead = lead;
  r->whole = true;
  return r->place(context);
}

static bppsa_status gather(void *context) {
  part_ranks *r = context;
  if (r->whole) {
    return BPPSA_OK;
  }
  bppsa_comm_at(r->comm, "the collection of the weights", -1);
  BPPSA_TRY(r->collect(context));
  r->whole = true;
  return BPPSA_OK;
}

void bppsa_part_ranks_init(part_ranks *ranks, bppsa_comm *comm, int64_t capacity) {
  *ranks = (part_ranks){.comm = comm};
  ranks->table = (bppsa_train_ranks){.context = ranks,
                                     .first = bppsa_comm_rank(comm) == 0,
                                     .capacity = capacity,
                                     .describe_nonfinite = describe_nonfinite,
                                     .evaluate = evaluate,
                                     .agree = agree,
                                     .share = share,
                                     .begin = begin,
                                     .gather = gather};
}

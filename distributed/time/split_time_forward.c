/* Speculative forward passes of a network cut along time: one plan for the whole sequence, and what its parts send each other
 * (bppsa_forward_part, recurrent/parallel_forward.h). */
#include "distributed/agree.h"
#include "distributed/time/split_time_internal.h"

bppsa_status split_time_forward_method(const split_network *s, const bppsa_device *device, bppsa_forward_method *method) {
  bppsa_forward_plan plan;
  bppsa_forward_method made = bppsa_forward_method_default();
  if (s->config.forward.kind != BPPSA_FORWARD_SEQUENTIAL) {
    BPPSA_TRY(bppsa_recurrent_plan_forward(&s->config, s->cell, device, &plan));
    int64_t chunks = plan.speculative ? plan.chunks : 0;
    BPPSA_TRY(s->gpu ? bppsa_ranks_reduce(s->comm, BPPSA_COMM_MIN, BPPSA_I64, 1, &chunks) : BPPSA_OK); /* GPUs may differ */
    BPPSA_TRY(s->gpu ? bppsa_ranks_reduce(s->comm, BPPSA_COMM_MIN, BPPSA_F64, 1, &plan.most_path) : BPPSA_OK);
    if (chunks > 0) {
      made = s->config.forward; /* what is left open does not depend on the samples of a group */
      made.kind = BPPSA_FORWARD_SPECULATIVE;
      made.chunks = chunks;
      made.most_work = plan.most_work;
      made.most_path = plan.most_path;
    }
  }
  *method = made;
  return BPPSA_OK;
}

/* Rank r has later steps than rank r + 1, so messages go from r + 1 to r. */
static bppsa_status send(void *context, const bppsa_view *numbers, const bppsa_view *states) {
  const split_group *g = context;
  const split_network *s = g->split;
  BPPSA_TRY(split_time_wait(g));
  if (numbers != NULL) {
    BPPSA_TRY(bppsa_comm_isend(s->active, s->rank - 1, s->tag + TAG_STATES, numbers, &g->sent[0]));
  }
  return split_time_send_off(s, s->rank - 1, TAG_STATES, states, &g->sent[1]);
}

static bppsa_status receive(void *context, const bppsa_view *numbers, const bppsa_view *states) {
  const split_group *g = context;
  const split_network *s = g->split;
  if (numbers != NULL) {
    BPPSA_TRY(bppsa_comm_recv(s->active, s->rank + 1, s->tag + TAG_STATES, numbers));
  }
  return bppsa_comm_recv(s->active, s->rank + 1, s->tag + TAG_STATES, states);
}

static bppsa_status join(void *context, int64_t sums, int64_t count, double *numbers) {
  const split_group *g = context;
  const split_network *s = g->split;
  BPPSA_TRY(split_time_wait(g));
  BPPSA_TRY(bppsa_ranks_reduce(s->active, BPPSA_COMM_SUM, BPPSA_F64, sums, numbers));
  return bppsa_ranks_reduce(s->active, BPPSA_COMM_MAX, BPPSA_F64, count - sums, numbers + sums);
}

bppsa_forward_part split_time_part(split_group *g) {
  const split_network *s = g->split;
  bppsa_forward_part part = {.context = g,
                             .first = s->steps > 0 ? s->first : 0,
                             .seq_len = s->config.seq_len,
                             .send = send,
                             .receive = receive,
                             .join = join};
  split_time_add_back(g, &part);
  return part;
}

bppsa_status split_time_begin(const split_network *s, bool *speculates, bppsa_forward_pause *pause) {
  const bool plans = s->config.forward.kind == BPPSA_FORWARD_SPECULATIVE;
  *pause = (bppsa_forward_pause){0};
  BPPSA_TRY(plans ? bppsa_forward_pause_get(s->groups[0].model, pause) : BPPSA_OK);
  for (int64_t g = 1; plans && g < s->group_count; ++g) { /* a resumed run has told the first group alone */
    BPPSA_TRY(bppsa_forward_pause_set(s->groups[g].model, pause));
  }
  *speculates = plans && pause->left == 0;
  return BPPSA_OK;
}

bppsa_status split_time_end(const split_network *s, const bppsa_forward_pause *before) {
  if (s->group_count == 1 || s->config.forward.kind != BPPSA_FORWARD_SPECULATIVE) {
    return BPPSA_OK;
  }
  return bppsa_forward_groups_end(s->group_count, s->models, s->samples, before);
}

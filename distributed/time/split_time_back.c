/* Speculative backward passes of a network cut along time: one plan for the whole sequence, what the ranks send each other, and
 * sums of weight gradients whose bits do not depend on the number of ranks (bppsa_forward_part, recurrent/parallel_forward.h).
 *
 * The steps are cut into as many blocks as the weight gradients of a network on one device would be summed in. A block belongs to
 * the rank with its last step, which adds up what its groups of samples give to it. Then the blocks are added along the tree of an
 * ordered sum. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "core/compute/accumulate.h"
#include "core/compute/linear.h"
#include "distributed/time/split_time_internal.h"

bppsa_status split_time_backward_method(split_network *s, const bppsa_device *device) {
  bppsa_backward_plan plan;
  if (!split_speculates_back(s)) {
    return BPPSA_OK;
  }
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(&s->config, s->cell, bppsa_device_get_kind(device), 0);
  BPPSA_TRY(bppsa_backward_plan_make(&s->config.speculation, &shape, &plan));
  s->config.method.backward = plan.speculative ? BPPSA_BACKWARD_SPECULATIVE : BPPSA_BACKWARD_BP;
  s->config.speculation.chunks = plan.chunks; /* what is left open does not depend on the samples of a group */
  return BPPSA_OK;
}

/* ---- messages: rank r has later steps than rank r + 1 ---- */

static bppsa_status send_back(void *context, const bppsa_view *numbers, const bppsa_view *states) {
  const split_group *g = context;
  const split_network *s = g->split;
  BPPSA_TRY(split_time_wait(g));
  if (numbers != NULL) {
    BPPSA_TRY(bppsa_comm_isend(s->active, s->rank + 1, s->tag + TAG_ENDS, numbers, &g->sent[0]));
  }
  return split_time_send_off(s, s->rank + 1, TAG_ENDS, states, &g->sent[1]);
}

static bppsa_status receive_back(void *context, const bppsa_view *numbers, const bppsa_view *states) {
  const split_group *g = context;
  const split_network *s = g->split;
  bppsa_comm_at(s->comm, "the backward pass along time", -1);
  if (numbers != NULL) {
    BPPSA_TRY(bppsa_comm_recv(s->active, s->rank - 1, s->tag + TAG_ENDS, numbers));
  }
  return bppsa_comm_recv(s->active, s->rank - 1, s->tag + TAG_ENDS, states);
}

/* Adds a parameter's gradient to the sum that belongs to this block of steps. */
static bppsa_status take(void *context, int64_t index, int64_t parameter, const bppsa_view *gradient) {
  const split_group *g = context;
  const split_network *s = g->split;
  int64_t at = (index - s->first_block) * s->reals;
  for (int64_t i = 0; i < parameter; ++i) {
    at += bppsa_view_count(&s->base.parameters[i].gradient);
  }
  return bppsa_accumulate(s->device, s->config.dtype, bppsa_view_count(gradient), gradient->data,
                          s->taken + at * (int64_t)bppsa_dtype_size(s->config.dtype));
}

/* Blocks: as many as one device would cut the rows of all steps into. */
static int64_t count_blocks(const split_network *s) {
  const bppsa_recurrent_config *c = &s->config;
  const bppsa_linear l = {c->dtype, 1, c->seq_len * c->batch, c->hidden, s->cell->gates * c->hidden, c->batch, 0, 0, NULL, NULL};
  const int64_t parts = bppsa_linear_cut_rows(&l).parts;
  return parts < c->seq_len ? parts : c->seq_len;
}

void split_time_add_back(split_group *g, bppsa_forward_part *part) {
  part->send_back = send_back;
  part->receive_back = receive_back;
  part->blocks = count_blocks(g->split);
  part->take = take;
}

/* ---- sums over ranks ---- */

/* The rank that holds a step, from 0. */
static int32_t owner_of(const split_network *s, int32_t ranks, int64_t step) {
  int32_t rank = 0;
  int64_t first, steps;
  bppsa_ranks_share(s->config.seq_len, ranks, rank, &first, &steps);
  while (step < first) {
    bppsa_ranks_share(s->config.seq_len, ranks, ++rank, &first, &steps);
  }
  return rank;
}

bppsa_status split_time_create_sums(split_network *s) {
  const int32_t ranks = bppsa_comm_size(s->comm);
  s->blocks = count_blocks(s);
  int32_t *owners = bppsa_calloc(s->blocks, sizeof *owners);
  if (owners == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t k = s->blocks - 1; k >= 0; --k) {
    owners[k] = owner_of(s, ranks, bppsa_cut(s->config.seq_len, s->blocks, k + 1) - 1);
    if (owners[k] == s->rank) {
      s->first_block = k;
      ++s->own_blocks;
    }
  }
  const bppsa_status status =
      bppsa_ordered_sum_create(s->comm, s->blocks, owners, s->config.dtype, s->reals, s->tag + TAG_SUM, &s->sum);
  bppsa_free(owners);
  BPPSA_TRY(status);
  s->taken = bppsa_calloc(s->own_blocks * s->reals + 1, bppsa_dtype_size(s->config.dtype));
  return s->taken != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

bppsa_status split_time_add_sums(const split_network *s) {
  for (int64_t k = 0; k < s->own_blocks; ++k) {
    const bppsa_view vector =
        bppsa_view_make(s->taken + k * s->reals * (int64_t)bppsa_dtype_size(s->config.dtype), s->config.dtype, 1, &s->reals);
    BPPSA_TRY(bppsa_ordered_sum_add(s->sum, s->first_block + k, &vector));
  }
  return BPPSA_OK;
}

/* ---- a pass ---- */

bppsa_status split_time_back_begin(const split_network *s, bppsa_backward_state *before) {
  *before = (bppsa_backward_state){.warm_up = 0};
  if (!split_speculates_back(s)) {
    return BPPSA_OK;
  }
  memset(s->taken, 0, (size_t)(s->own_blocks * s->reals) * bppsa_dtype_size(s->config.dtype));
  BPPSA_TRY(bppsa_backward_state_get(s->groups[0].model, before));
  for (int64_t g = 1; g < s->group_count; ++g) { /* a resumed run has told the first group alone */
    BPPSA_TRY(bppsa_backward_state_set(s->groups[g].model, before));
  }
  return BPPSA_OK;
}

bppsa_status split_time_back_end(const split_network *s, const bppsa_backward_state *before) {
  const bool joins = split_speculates_back(s) && s->group_count > 1 && s->steps > 0;
  return joins ? bppsa_backward_groups_end(s->group_count, s->models, s->samples, before) : BPPSA_OK;
}

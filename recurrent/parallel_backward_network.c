/* A recurrent network's plan of its backward pass, and what its passes did (recurrent/parallel_backward.h). */
#include <math.h>

#include "recurrent/pause.h"
#include "recurrent/recurrent_internal.h"

static bppsa_status find_network(const bppsa_model *model, recurrent_network **n) {
  *n = bppsa_recurrent_network_of(model);
  return *n != NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_ARGUMENT, "backward pass of %s: not a recurrent network", model->ops->name);
}

const bppsa_backward_plan *bppsa_backward_plan_of(const bppsa_model *model) {
  const recurrent_network *n = bppsa_recurrent_network_of(model);
  return n != NULL && n->back.plan.speculative ? &n->back.plan : NULL;
}

bppsa_status bppsa_backward_stats_of(bppsa_model *model, bppsa_backward_stats *stats) {
  recurrent_network *n;
  BPPSA_REQUIRE(model != NULL && stats != NULL);
  BPPSA_TRY(find_network(model, &n));
  *stats = n->back.stats;
  return BPPSA_OK;
}

bppsa_status bppsa_backward_state_get(bppsa_model *model, bppsa_backward_state *state) {
  recurrent_network *n;
  BPPSA_REQUIRE(model != NULL && state != NULL);
  BPPSA_TRY(find_network(model, &n));
  *state = n->back.state;
  return BPPSA_OK;
}

bppsa_status bppsa_backward_state_set(bppsa_model *model, const bppsa_backward_state *state) {
  recurrent_network *n;
  BPPSA_REQUIRE(model != NULL && state != NULL && state->pause.failures >= 0 && state->pause.left >= 0 && state->warm_up >= 0);
  BPPSA_TRY(find_network(model, &n));
  n->back.state = *state;
  return BPPSA_OK;
}

/* ---- groups of samples ---- */

bppsa_status bppsa_backward_groups_add(bppsa_model *model, int64_t samples, bppsa_backward_groups *groups) {
  bppsa_backward_stats one;
  bppsa_backward_state state;
  BPPSA_REQUIRE(model != NULL && samples >= 0 && groups != NULL);
  BPPSA_TRY(bppsa_backward_stats_of(model, &one));
  BPPSA_TRY(bppsa_backward_state_get(model, &state));
  if (samples == 0) {
    return BPPSA_OK;
  }
  groups->samples += (double)samples;
  groups->steps += round(one.work * (double)one.possible * (double)samples);
  groups->mended += (double)one.mended;
  groups->speculated = fmax(groups->speculated, one.speculated);
  groups->given_up = fmax(groups->given_up, one.given_up);
  groups->path = fmax(groups->path, (double)one.path);
  groups->possible = fmax(groups->possible, (double)one.possible);
  groups->rounds = fmax(groups->rounds, (double)one.rounds);
  groups->gap = fmax(groups->gap, one.gap);
  groups->perturbation = fmax(groups->perturbation, one.perturbation);
  groups->left = fmax(groups->left, (double)state.pause.left);
  groups->warm_up = fmax(groups->warm_up, one.speculated ? (double)state.warm_up : 0);
  return BPPSA_OK;
}

bppsa_status bppsa_backward_groups_set(bppsa_model *model, const bppsa_backward_groups *groups,
                                       const bppsa_backward_state *before) {
  recurrent_network *n;
  BPPSA_REQUIRE(model != NULL && groups != NULL && groups->samples > 0 && before != NULL);
  BPPSA_TRY(find_network(model, &n));
  n->back.stats = (bppsa_backward_stats){.speculated = groups->speculated > 0,
                                         .given_up = groups->given_up > 0,
                                         .passes = 1,
                                         .path = (int64_t)groups->path,
                                         .possible = (int64_t)groups->possible,
                                         .work = groups->steps / (groups->possible * groups->samples),
                                         .rounds = (int64_t)groups->rounds,
                                         .mended = (int64_t)groups->mended,
                                         .gap = groups->gap,
                                         .perturbation = groups->perturbation};
  const bppsa_backward_stats *all = &n->back.stats;
  n->back.state = *before;
  if (all->speculated) {
    const bool failed = all->given_up || bppsa_forward_pause_fails(all->path, all->possible);
    n->back.state.warm_up = (int64_t)groups->warm_up;
    n->back.state.pause = bppsa_forward_pause_end(failed, before->pause);
  } else {
    n->back.state.pause.left = (int64_t)groups->left;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_backward_groups_end(int64_t count, bppsa_model *const *models, const int64_t *samples,
                                       const bppsa_backward_state *before) {
  bppsa_backward_groups all = {0};
  BPPSA_REQUIRE(count > 0 && models != NULL && samples != NULL && before != NULL);
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(bppsa_backward_groups_add(models[i], samples[i], &all));
  }
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(bppsa_backward_groups_set(models[i], &all, before));
  }
  return BPPSA_OK;
}

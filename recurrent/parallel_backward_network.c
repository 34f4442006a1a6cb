/* A recurrent network's plan of its backward pass, and what its passes did (recurrent/parallel_backward.h). */
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

bool bppsa_backward_fails(const bppsa_backward_plan *plan, const bppsa_backward_stats *pass) {
  return pass->speculated && (pass->given_up || bppsa_backward_pause_fails(plan->cost, pass->path, pass->possible, pass->work));
}

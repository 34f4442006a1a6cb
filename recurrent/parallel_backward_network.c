/* A recurrent network's plan of its backward pass, and what the latest one did (recurrent/parallel_backward.h). */
#include "recurrent/recurrent_internal.h"

const bppsa_backward_plan *bppsa_backward_plan_of(const bppsa_model *model) {
  const recurrent_network *n = bppsa_recurrent_network_of(model);
  return n != NULL && n->back.plan.speculative ? &n->back.plan : NULL;
}

bppsa_status bppsa_backward_stats_of(const bppsa_model *model, bppsa_backward_stats *stats) {
  BPPSA_REQUIRE(model != NULL && stats != NULL);
  const recurrent_network *n = bppsa_recurrent_network_of(model);
  if (n == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "backward pass of %s: not a recurrent network", model->ops->name);
  }
  *stats = n->back.stats;
  return BPPSA_OK;
}

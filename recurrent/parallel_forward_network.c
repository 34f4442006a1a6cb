/* A recurrent network's plan of its forward pass, and what its passes did (recurrent/parallel_forward.h). */
#include <math.h>

#include "recurrent/pause.h"
#include "recurrent/recurrent_internal.h"

recurrent_network *bppsa_recurrent_network_of(const bppsa_model *model) {
  const bppsa_model *inner = model->ops->inner != NULL ? model->ops->inner(model) : model;
  return inner->ops->destroy == bppsa_recurrent_destroy ? (recurrent_network *)inner : NULL;
}

static bppsa_status find_network(const bppsa_model *model, recurrent_network **n) {
  *n = bppsa_recurrent_network_of(model);
  return *n != NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_ARGUMENT, "forward pass of %s: not a recurrent network", model->ops->name);
}

const bppsa_forward_plan *bppsa_forward_plan_of(const bppsa_model *model) {
  const recurrent_network *n = bppsa_recurrent_network_of(model);
  return n != NULL ? &n->forward.plan : NULL;
}

bppsa_status bppsa_forward_stats_of(bppsa_model *model, bppsa_forward_stats *stats) {
  recurrent_network *n;
  BPPSA_REQUIRE(model != NULL && stats != NULL);
  BPPSA_TRY(find_network(model, &n));
  BPPSA_TRY(n->backend->look(n));
  *stats = n->forward.stats;
  return BPPSA_OK;
}

bppsa_status bppsa_forward_pause_get(bppsa_model *model, bppsa_forward_pause *pause) {
  recurrent_network *n;
  BPPSA_REQUIRE(model != NULL && pause != NULL);
  BPPSA_TRY(find_network(model, &n));
  BPPSA_TRY(n->backend->look(n));
  *pause = n->forward.pause;
  return BPPSA_OK;
}

bppsa_status bppsa_forward_pause_set(bppsa_model *model, const bppsa_forward_pause *pause) {
  recurrent_network *n;
  BPPSA_REQUIRE(model != NULL && pause != NULL && pause->failures >= 0 && pause->left >= 0);
  BPPSA_TRY(find_network(model, &n));
  n->forward.pause = *pause;
  return n->backend->tell(n);
}

bool bppsa_forward_fails(const bppsa_forward_plan *plan, const bppsa_forward_stats *pass) {
  return pass->speculated && (bppsa_forward_pause_fails(pass->path, pass->possible) || pass->work > plan->most_work);
}

bppsa_status bppsa_forward_stats_collect(bppsa_model *model, bppsa_forward_stats *sum) {
  BPPSA_REQUIRE(model != NULL && sum != NULL);
  bppsa_forward_stats pass;
  const bppsa_forward_plan *plan = bppsa_forward_plan_of(model);
  if (plan == NULL || !plan->speculative) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_forward_stats_of(model, &pass));
  bppsa_forward_stats_add(sum, &pass);
  return BPPSA_OK;
}

bppsa_status bppsa_forward_groups_end(int64_t count, bppsa_model *const *models, const int64_t *samples,
                                      const bppsa_forward_pause *before) {
  BPPSA_REQUIRE(count > 0 && models != NULL && samples != NULL && before != NULL);
  bppsa_forward_stats all = {.passes = 1};
  bppsa_forward_pause pause = {0};
  const bppsa_forward_plan *plan = NULL;
  double steps = 0;
  int64_t batch = 0;
  for (int64_t i = 0; i < count; ++i) {
    recurrent_network *n;
    BPPSA_TRY(find_network(models[i], &n));
    BPPSA_REQUIRE(n->gpu == NULL || n->config.part.seq_len > 0);
    const bppsa_forward_stats *one = &n->forward.stats;
    if (samples[i] == 0) {
      continue;
    }
    const int64_t path = one->path > all.path ? one->path : all.path;
    bppsa_forward_stats_add(&all, one);
    all.path = path;
    all.possible = one->possible;
    plan = &n->forward.plan;
    pause = n->forward.pause;
    steps += round(one->work * (double)one->possible * (double)samples[i]);
    batch += samples[i];
  }
  BPPSA_REQUIRE(batch > 0);
  all.passes = 1;
  all.work = steps / ((double)all.possible * (double)batch);
  if (all.speculated) {
    pause = bppsa_forward_pause_end(bppsa_forward_fails(plan, &all), *before);
  }
  for (int64_t i = 0; i < count; ++i) {
    recurrent_network *n = bppsa_recurrent_network_of(models[i]);
    n->forward.stats = all;
    n->forward.pause = pause;
  }
  return BPPSA_OK;
}

/* A recurrent network's plan of its forward pass, and what its passes did (recurrent/parallel_forward.h). */
#include <math.h>
#include <string.h>

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
  return pass->speculated &&
         (bppsa_forward_path_fails(pass->path, pass->possible, plan->most_path) || pass->work > plan->most_work);
}

bppsa_forward_pause bppsa_forward_pause_after(const bppsa_forward_plan *plan, const bppsa_forward_stats *pass,
                                              bppsa_forward_pause before) {
  const double twice = 0.75; /* about as much mended work takes the time of a sequential pass (parallel_forward.c) */
  if (pass->work > plan->most_work + twice && before.failures < BPPSA_FORWARD_FAILURES - 1) {
    before.failures = BPPSA_FORWARD_FAILURES - 1;
  }
  return bppsa_forward_pause_end(bppsa_forward_fails(plan, pass), before);
}

/* ---- the account (core/compute/model.h) ---- */

enum { FAILURES, LEFT, STATE, SPECULATED = STATE, PASSES, PATH, POSSIBLE, WORK, ROUNDS, MENDED, RESEEDED, TAILS, GAP, NUMBERS };

bppsa_forward_stats bppsa_forward_stats_from(const double *n) {
  return (bppsa_forward_stats){.speculated = n[SPECULATED] > 0,
                               .passes = (int64_t)n[PASSES],
                               .path = (int64_t)n[PATH],
                               .possible = (int64_t)n[POSSIBLE],
                               .work = n[WORK],
                               .rounds = (int64_t)n[ROUNDS],
                               .mended = (int64_t)n[MENDED],
                               .reseeded = (int64_t)n[RESEEDED],
                               .tails = (int64_t)n[TAILS],
                               .gap = n[GAP]};
}

static void write_stats(const bppsa_forward_stats *f, double *n) {
  const double all[] = {(double)f->speculated, (double)f->passes, (double)f->path,     (double)f->possible, f->work,
                        (double)f->rounds,     (double)f->mended, (double)f->reseeded, (double)f->tails,    f->gap};
  memcpy(n + SPECULATED, all, sizeof all);
}

static const char *plan_text(const bppsa_model *model, char *text, size_t size) {
  return bppsa_forward_plan_text(bppsa_forward_plan_of(model), text, size);
}

static bppsa_status latest_pass(bppsa_model *model, double *numbers) {
  bppsa_forward_stats pass;
  bppsa_forward_pause pause;
  BPPSA_TRY(bppsa_forward_stats_of(model, &pass));
  BPPSA_TRY(bppsa_forward_pause_get(model, &pause));
  numbers[FAILURES] = (double)pause.failures;
  numbers[LEFT] = (double)pause.left;
  write_stats(&pass, numbers);
  return BPPSA_OK;
}

static void add_numbers(double *sums, const double *numbers) {
  bppsa_forward_stats sum = bppsa_forward_stats_from(sums);
  const bppsa_forward_stats added = bppsa_forward_stats_from(numbers);
  bppsa_forward_stats_add(&sum, &added);
  write_stats(&sum, sums);
}

static bppsa_status restore_pause(bppsa_model *model, const double *numbers) {
  const bppsa_forward_pause pause = {.failures = (int64_t)numbers[FAILURES], .left = (int64_t)numbers[LEFT]};
  return bppsa_forward_pause_set(model, &pause);
}

const bppsa_model_account *bppsa_forward_account(const bppsa_model *model) {
  static const bppsa_model_account account = {.count = NUMBERS,
                                              .state = STATE,
                                              .reals = 1u << WORK | 1u << GAP,
                                              .plan = plan_text,
                                              .latest = latest_pass,
                                              .add = add_numbers,
                                              .text = bppsa_forward_numbers_text,
                                              .restore = restore_pause};
  return ((const recurrent_network *)model)->forward.plan.speculative ? &account : NULL;
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
    pause = bppsa_forward_pause_after(plan, &all, *before);
  }
  for (int64_t i = 0; i < count; ++i) {
    recurrent_network *n = bppsa_recurrent_network_of(models[i]);
    n->forward.stats = all;
    n->forward.pause = pause;
  }
  return BPPSA_OK;
}

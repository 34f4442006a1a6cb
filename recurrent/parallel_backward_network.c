/* A recurrent network's plan of its backward pass, and what its passes did (recurrent/parallel_backward.h). */
#include <math.h>
#include <string.h>

#include "recurrent/pause.h"
#include "recurrent/recurrent_internal.h"

static bppsa_status find_network(const bppsa_model *model, recurrent_network **n) {
  *n = bppsa_recurrent_network_of(model);
  return *n != NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_ARGUMENT, "backward pass of %s: not a recurrent network", model->ops->name);
}

/* Brings n->back up to date. */
static bppsa_status look(recurrent_network *n) {
  return n->backend->look_back != NULL ? n->backend->look_back(n) : BPPSA_OK;
}

const bppsa_backward_plan *bppsa_backward_plan_of(const bppsa_model *model) {
  const recurrent_network *n = bppsa_recurrent_network_of(model);
  return n != NULL && n->back.plan.speculative ? &n->back.plan : NULL;
}

bppsa_status bppsa_backward_stats_of(bppsa_model *model, bppsa_backward_stats *stats) {
  recurrent_network *n;
  BPPSA_REQUIRE(model != NULL && stats != NULL);
  BPPSA_TRY(find_network(model, &n));
  BPPSA_TRY(look(n));
  *stats = n->back.stats;
  return BPPSA_OK;
}

bppsa_status bppsa_backward_state_get(bppsa_model *model, bppsa_backward_state *state) {
  recurrent_network *n;
  BPPSA_REQUIRE(model != NULL && state != NULL);
  BPPSA_TRY(find_network(model, &n));
  BPPSA_TRY(look(n));
  *state = n->back.state;
  return BPPSA_OK;
}

bppsa_status bppsa_backward_state_set(bppsa_model *model, const bppsa_backward_state *state) {
  recurrent_network *n;
  BPPSA_REQUIRE(model != NULL && state != NULL && state->pause.failures >= 0 && state->pause.left >= 0 && state->warm_up >= 0);
  BPPSA_TRY(find_network(model, &n));
  n->back.state = *state;
  return n->backend->tell_back != NULL ? n->backend->tell_back(n) : BPPSA_OK;
}

/* ---- the account (core/compute/model.h) ---- */

enum {
  FAILURES,
  LEFT,
  WARM_UP,
  STATE,
  SPECULATED = STATE,
  PASSES,
  PATH,
  POSSIBLE,
  WORK,
  ROUNDS,
  MENDED,
  GIVEN_UP, /* 1; 2: to the scan */
  GAP,
  PERTURBATION,
  NUMBERS
};

bppsa_backward_stats bppsa_backward_stats_from(const double *n) {
  return (bppsa_backward_stats){.speculated = n[SPECULATED] > 0,
                                .given_up = n[GIVEN_UP] > 0,
                                .scanned = n[GIVEN_UP] > 1,
                                .passes = (int64_t)n[PASSES],
                                .path = (int64_t)n[PATH],
                                .possible = (int64_t)n[POSSIBLE],
                                .work = n[WORK],
                                .rounds = (int64_t)n[ROUNDS],
                                .mended = (int64_t)n[MENDED],
                                .gap = n[GAP],
                                .perturbation = n[PERTURBATION]};
}

static void write_stats(const bppsa_backward_stats *b, double *n) {
  const double all[] = {(double)b->speculated,
                        (double)b->passes,
                        (double)b->path,
                        (double)b->possible,
                        b->work,
                        (double)b->rounds,
                        (double)b->mended,
                        (double)(b->given_up + b->scanned),
                        b->gap,
                        b->perturbation};
  memcpy(n + SPECULATED, all, sizeof all);
}

static const char *plan_text(const bppsa_model *model, char *text, size_t size) {
  return bppsa_backward_plan_text(bppsa_backward_plan_of(model), text, size);
}

static bppsa_status latest_pass(bppsa_model *model, double *numbers) {
  bppsa_backward_stats pass;
  bppsa_backward_state state;
  BPPSA_TRY(bppsa_backward_stats_of(model, &pass));
  BPPSA_TRY(bppsa_backward_state_get(model, &state));
  numbers[FAILURES] = (double)state.pause.failures;
  numbers[LEFT] = (double)state.pause.left;
  numbers[WARM_UP] = (double)state.warm_up;
  write_stats(&pass, numbers);
  return BPPSA_OK;
}

static void add_numbers(double *sums, const double *numbers) {
  bppsa_backward_stats sum = bppsa_backward_stats_from(sums);
  const bppsa_backward_stats added = bppsa_backward_stats_from(numbers);
  bppsa_backward_stats_add(&sum, &added);
  write_stats(&sum, sums);
}

static bppsa_status restore_state(bppsa_model *model, const double *numbers) {
  const bppsa_backward_state state = {.pause = {.failures = (int64_t)numbers[FAILURES], .left = (int64_t)numbers[LEFT]},
                                      .warm_up = (int64_t)numbers[WARM_UP]};
  return bppsa_backward_state_set(model, &state);
}

const bppsa_model_account *bppsa_back_account(const bppsa_model *model) {
  static const bppsa_model_account account = {.count = NUMBERS,
                                              .state = STATE,
                                              .reals = 1u << WORK | 1u << GAP | 1u << PERTURBATION,
                                              .plan = plan_text,
                                              .latest = latest_pass,
                                              .add = add_numbers,
                                              .text = bppsa_backward_numbers_text,
                                              .restore = restore_state};
  return ((const recurrent_network *)model)->back.plan.speculative ? &account : NULL;
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
  groups->scanned = fmax(groups->scanned, one.scanned);
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
                                         .scanned = groups->scanned > 0,
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
    n->back.state.warm_up = (int64_t)groups->warm_up;
    n->back.state.pause = bppsa_forward_pause_end(bppsa_backward_fails(&n->back.plan, all), before->pause);
  } else {
    n->back.state.pause.left = (int64_t)groups->left;
  }
  return n->backend->tell_back != NULL ? n->backend->tell_back(n) : BPPSA_OK;
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

bool bppsa_backward_fails(const bppsa_backward_plan *plan, const bppsa_backward_stats *pass) {
  return pass->speculated && (pass->given_up || bppsa_backward_pause_fails(plan->cost, pass->path, pass->possible, pass->work));
}

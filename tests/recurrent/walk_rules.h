/* Where a GPU's walk through a chunk stops, by the rules of recurrent/settle.h: from how far each new state is from the stored
 * one. */
#ifndef BPPSA_TESTS_RECURRENT_WALK_RULES_H
#define BPPSA_TESTS_RECURRENT_WALK_RULES_H

#include "recurrent/parallel_forward.h"
#include "recurrent/settle.h"
#include "tests/support/support.h"

enum { CHUNKS = 3, LENGTH = 128, STEPS = CHUNKS * LENGTH };

/* How far the new states of a chunk are from the stored ones, and the sizes that tolerances are relative to. */
typedef struct {
  double apart[LENGTH], size[LENGTH];
} distances;

static inline bool within(const distances *d, int64_t i, double tolerance) {
  return d->apart[i] == 0 || d->apart[i] <= tolerance * d->size[i];
}

/* Returns the steps of a walk. It has to stop, as all cases here do. */
static inline int64_t walk_steps(const bppsa_forward_plan *plan, const distances *d) {
  int64_t since = BPPSA_SETTLE_NEVER;
  for (int64_t i = 0; i < LENGTH; ++i) {
    bool stops = false;
    if (i == 0) {
      stops = within(d, i, plan->accept);
    } else if (bppsa_walk_looks_on_gpu(i, i + 1 == LENGTH)) {
      stops = bppsa_walk_settles(within(d, i, plan->settled), within(d, i, plan->stop),
                                 within(d, i, BPPSA_SETTLE_GROWTH * plan->stop), i, &since);
    }
    if (stops) {
      return i + 1;
    }
  }
  fail_msg("tolerance %g: a walk that should stop goes to the end of its chunk", plan->accept);
  return 0;
}

#endif

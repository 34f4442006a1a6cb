/* Computes how well a problem (cell_problem.h) determines its own gradients; a residual of 30 or more is compared with that. */
#ifndef BPPSA_TESTS_SUPPORT_CELL_SENSITIVITY_H
#define BPPSA_TESTS_SUPPORT_CELL_SENSITIVITY_H

#include "core/base/cut.h"
#include "tests/support/cell_problem.h"
#include "tests/support/dice.h"

/* Copies a tensor; the caller frees the copy. */
static double *copy_of(const double *values, int64_t count) {
  double *copy = zeros(count);
  memcpy(copy, values, (size_t)count * sizeof *copy);
  return copy;
}

/* Tensor i of the problem: first the parameters, then x and h0. */
typedef struct {
  double *values, *gradient, *magnitude; /* magnitude: NULL unless the tensor is a parameter */
  int64_t count;
} problem_tensor;

static problem_tensor tensor_of(const problem *p, int64_t i) {
  const bppsa_recurrent_config *c = &p->c;
  if (i < p->count) {
    return (problem_tensor){p->w[i], p->dw[i], p->magnitude[i], p->sizes[i]};
  }
  return i == p->count ? (problem_tensor){p->x, p->dx, NULL, c->seq_len * c->batch * c->input}
                       : (problem_tensor){p->h0, p->dh0, NULL, sweeps_of(c) * c->batch * state_of(c)};
}

/* Returns the largest residual of the tensor's parts; as among ranks (bppsa_ranks_share), the last part comes first. */
static double moved_by(const problem_tensor *t, const double *before, int64_t steps, int64_t parts, double root) {
  double worst = 0;
  for (int64_t r = 0; r < parts; ++r) {
    const int64_t size = t->count / steps, first = (steps - bppsa_cut(steps, parts, r + 1)) * size,
                  end = (steps - bppsa_cut(steps, parts, r)) * size;
    const double found = residual(BPPSA_F64, t->gradient + first, before + first, end - first, root);
    worst = found <= worst ? worst : found;
  }
  return worst;
}

/* Finds how far the reference's own gradient of each tensor moves, in units of the residual, if every weight and input moves by
 * one rounding of the dtype: the most of `moves` random moves. No algorithm can be expected to come closer. The gradient of x is
 * judged in `parts` parts, as ranks judge it, because far from the loss it may be small and a long product. Infinite if a unit
 * sits on relu's kink. Overwrites the problem. */
static void sensitivities(problem *p, int64_t moves, int64_t parts, dice *d, double worst[TENSORS + 2]) {
  const double epsilon = p->c.dtype == BPPSA_F32 ? 0x1p-24 : 0x1p-53, root = sqrt((double)p->c.seq_len);
  double *still[TENSORS + 2], *before[TENSORS + 2];
  for (int64_t i = 0; i < p->count + 2; ++i) {
    const problem_tensor t = tensor_of(p, i);
    worst[i] = 0;
    still[i] = copy_of(t.values, t.count);
    before[i] = copy_of(t.gradient, t.count);
  }
  for (int64_t move = 0; move < moves; ++move) {
    for (int64_t i = 0; i < p->count + 2; ++i) {
      const problem_tensor t = tensor_of(p, i);
      for (int64_t k = 0; k < t.count; ++k) {
        t.values[k] = still[i][k] * (1 + (double)roll(d, -1, 1) * epsilon);
        t.gradient[k] = 0;
        if (t.magnitude != NULL) {
          t.magnitude[k] = 0;
        }
      }
    }
    reference(p);
    for (int64_t i = 0; i < p->count + 2; ++i) {
      const problem_tensor t = tensor_of(p, i);
      if (i < p->count && !has_tensor(p, i)) {
        continue;
      }
      const int64_t cuts = i == p->count ? parts : 1, steps = i == p->count ? p->c.seq_len : 1;
      const double found = moved_by(&t, before[i], steps, cuts, root) * 0x1p-53 / epsilon;
      worst[i] = found <= worst[i] ? worst[i] : found;
    }
  }
  for (int64_t i = 0; i < p->count + 2; ++i) {
    bppsa_free(still[i]);
    bppsa_free(before[i]);
  }
}

/* Returns the largest of these numbers. */
static inline double sensitivity(problem *p, int64_t moves, int64_t parts, dice *d) {
  double moved[TENSORS + 2], worst = 0;
  sensitivities(p, moves, parts, d, moved);
  for (int64_t i = 0; i < p->count + 2; ++i) {
    worst = moved[i] <= worst ? worst : moved[i];
  }
  return worst;
}

#endif

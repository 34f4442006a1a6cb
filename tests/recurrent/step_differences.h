/* Compares the factors of a step's Jacobian (bppsa_step) with differences of the step's equations, which each test writes out, at
 * random points. */
#ifndef BPPSA_TESTS_RECURRENT_STEP_DIFFERENCES_H
#define BPPSA_TESTS_RECURRENT_STEP_DIFFERENCES_H

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "jacobian/op.h"
#include "tests/support/support.h"

enum { STEP_FACTORS = BPPSA_STEP_GATES + 2 };

/* Computes the next state of one unit from x = W_ih x + b_ih [gates], h = W_hh h_{-1} + b_hh [gates] and `before`: h_{-1}, or
 * c_{-1} if the state is a pair (h, c). For a pair next[0] is c and next[1] is h. */
typedef void (*step_unit)(bool relu, const double *x, const double *h, double before, double next[2]);

/* Computes the step's factors from the derivatives of `next` (c or h) by the gates' h, by[0 .. gates - 1][2], and by the state
 * before, by[gates][2]. */
typedef void (*step_expected)(double by[][2], double *d);

static inline void derivatives(step_unit unit, int64_t gates, bool relu, const double *x, const double *h, double before,
                               double by[][2]) {
  const double eps = 1e-6;
  for (int64_t k = 0; k <= gates; ++k) {
    double next[2][2] = {{0}}, moved[BPPSA_STEP_GATES];
    for (int side = 0; side < 2; ++side) {
      const double by_eps = side == 0 ? -eps : eps;
      memcpy(moved, h, sizeof moved);
      if (k < gates) {
        moved[k] += by_eps;
      }
      unit(relu, x, moved, before + (k == gates ? by_eps : 0), next[side]);
    }
    for (int i = 0; i < 2; ++i) {
      by[k][i] = (next[1][i] - next[0][i]) / (2 * eps);
    }
  }
}

static inline void check_step(const bppsa_step *step, step_unit unit, step_expected expected, bool relu) {
  enum { POINTS = 500, NUMBERS = 2 * BPPSA_STEP_GATES + 1 };
  double *numbers = uniform(17, POINTS * NUMBERS, 2);
  const int64_t factors = step->gates + step->diagonal + step->pair;
  for (int64_t p = 0; p < POINTS; ++p) {
    const double *x = numbers + p * NUMBERS, *h = x + BPPSA_STEP_GATES, before = x[NUMBERS - 1];
    double by[BPPSA_STEP_GATES + 1][2], found[STEP_FACTORS], wanted[STEP_FACTORS];
    float narrow[STEP_FACTORS];
    if (relu && fabs(x[0] + h[0]) < 1e-4) {
      continue; /* there is no derivative */
    }
    derivatives(unit, step->gates, relu, x, h, before, by);
    expected(by, wanted);
    step->factors_f64(relu, x, h, before, found);
    step->factors_f32(relu, x, h, (float)before, narrow);
    for (int64_t k = 0; k < factors; ++k) {
      if (!(fabs(found[k] - wanted[k]) < 1e-7) || !(fabs((double)narrow[k] - wanted[k]) < 1e-5)) {
        fail_msg("%s, point %d, factor %d: %.9g and %.9g, expected %.9g", step->name, (int)p, (int)k, found[k], (double)narrow[k],
                 wanted[k]);
      }
    }
  }
  bppsa_free(numbers);
}

static inline double sigmoid_of(double x) {
  return 1 / (1 + exp(-x));
}

#endif

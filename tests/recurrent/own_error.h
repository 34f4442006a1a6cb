/* Gradients of speculative BP beside BP's own rounding. */
#ifndef BPPSA_TESTS_RECURRENT_OWN_ERROR_H
#define BPPSA_TESTS_RECURRENT_OWN_ERROR_H

#include <math.h>

#include "core/base/alloc.h"
#include "tests/support/support.h"

/* Asserts that the largest error of `found` is at most twice that of `bp`, and frees all three, [count] each. what: of the case. */
static inline void assert_within_own(int64_t count, double *exact, double *bp, double *found, double what) {
  double own = 0, error = 0, largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = fmax(largest, fabs(exact[i]));
    own = fmax(own, fabs(bp[i] - exact[i]));
    error = fmax(error, fabs(found[i] - exact[i]));
  }
  if (!(error <= 2 * own)) {
    fail_msg("%g: error %.3g of the largest gradient, %.3g; BP's %.3g", what, error / largest, largest, own / largest);
  }
  bppsa_free(exact);
  bppsa_free(bp);
  bppsa_free(found);
}

#endif

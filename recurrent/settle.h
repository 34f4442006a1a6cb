/* Where a walk that mends stops (recurrent/parallel_forward.h), on a CPU and on a GPU.
 *
 * A walk looks at how far its new states are from the stored ones. One close step proves little: where the network is about to
 * leave an unstable state, a distance of two roundings can grow 200-fold within a chunk, and the stored states behind it belong to
 * another course. So a walk stops where the distance has stayed small for some steps, or at once where it is at most one rounding,
 * which the sequential pass makes in every step. A state at which it stops is within the tolerance in both cases. */
#ifndef BPPSA_RECURRENT_SETTLE_H
#define BPPSA_RECURRENT_SETTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/host_device.h"

/* A distance stays small if it is within the tolerance twice, STEPS or more apart, and in between never above GROWTH tolerances. */
enum { BPPSA_SETTLE_STEPS = 16, BPPSA_SETTLE_GROWTH = 4 };

#define BPPSA_SETTLE_NEVER INT64_MAX

/* A GPU's walk looks at the first step of a chunk, at the last, and at one of so many in between: it takes them at once, with
 * reads ahead, because a look takes half as long as a step and waits for memory. */
enum { BPPSA_SETTLE_GPU_LOOK = 8 };

/* Does a GPU's walk look at a step of a chunk, counted from 0? last: of the chunk. */
static inline BPPSA_HOST_DEVICE bool bppsa_walk_looks_on_gpu(int64_t step, bool last) {
  return step % BPPSA_SETTLE_GPU_LOOK == 0 || last;
}

/* Does the walk stop at a step at which it looks? rounding, within, near: the distance is at most one rounding, the tolerance,
 * GROWTH tolerances; each implies the next. *since: the first step within the tolerance after which the distance stayed small;
 * NEVER at first. */
static inline BPPSA_HOST_DEVICE bool bppsa_walk_settles(bool rounding, bool within, bool near, int64_t step, int64_t *since) {
  if (!near) {
    *since = BPPSA_SETTLE_NEVER;
  } else if (within && *since > step) {
    *since = step;
  }
  return rounding || (within && step - *since >= BPPSA_SETTLE_STEPS);
}

#endif

/* When a network's parallel passes pause (recurrent/parallel_forward.h, recurrent/parallel_backward.h). */
#ifndef BPPSA_RECURRENT_PAUSE_H
#define BPPSA_RECURRENT_PAUSE_H

#include "core/base/host_device.h"
#include "recurrent/parallel_backward.h"

/* Does a speculative pass gain too little on its path? path and possible as in bppsa_forward_stats, most_path as in a plan. */
static inline BPPSA_HOST_DEVICE bool bppsa_forward_path_fails(int64_t path, int64_t possible, double most_path) {
  return (double)path >= most_path * (double)possible;
}

/* The same where nothing is known but the paths. */
static inline BPPSA_HOST_DEVICE bool bppsa_forward_pause_fails(int64_t path, int64_t possible) {
  return 10 * (double)path >= 9 * (double)possible;
}

/* Does a speculative backward pass gain too little on its path, or take too long? cost: the plan's. */
static inline BPPSA_HOST_DEVICE bool bppsa_backward_pause_fails(bppsa_backward_cost cost, int64_t path, int64_t possible,
                                                                double work) {
  return bppsa_forward_pause_fails(path, possible) ||
         cost.fixed + cost.path * (double)path / (double)possible + cost.work * work > 1;
}

/* The warm-up of a GPU's next pass; of a CPU's: bppsa_backward_next_warm_up. A GPU pays for dependent steps and not for work, so
 * that the slowest chunk counts: W grows by the longest mend of a first round, to no more than `most`, a chunk, and saves the
 * round. Where no chunk was mended it shrinks by one step, because a mend of a warp is a round for the whole sample. */
static inline BPPSA_HOST_DEVICE int64_t bppsa_backward_gpu_warm_up(int64_t warm_up, int64_t most, bppsa_backward_need need) {
  const int64_t more = 8, least = 8, longer = warm_up + need.longest + more;
  if (need.compared == 0) {
    return warm_up;
  }
  if (need.mended > 0) {
    const int64_t bounded = longer < most ? longer : most;
    return bounded > warm_up ? bounded : warm_up;
  }
  return warm_up > least ? warm_up - 1 : warm_up;
}

/* Returns the state of the pauses after a speculative pass, on every device. If the pass after a pause fails, the next pause is
 * twice as long, up to a bound. */
static inline BPPSA_HOST_DEVICE bppsa_forward_pause bppsa_forward_pause_end(bool failed, bppsa_forward_pause before) {
  const int64_t most = BPPSA_FORWARD_FAILURES + BPPSA_FORWARD_DOUBLINGS;
  bppsa_forward_pause after = {0, 0};
  if (!failed) {
    return after;
  }
  after.failures = before.failures < most ? before.failures + 1 : most;
  if (after.failures >= BPPSA_FORWARD_FAILURES) {
    after.left = (int64_t)BPPSA_FORWARD_PAUSE << (after.failures - BPPSA_FORWARD_FAILURES);
  }
  return after;
}

#endif

/* What a kernel of sparse products and mat-vecs costs on a GPU: predicted, not measured.
 *
 *     seconds = launch · launches / items that share them + passes · max(instructions / issue rate, bytes / bandwidth)
 */
#ifndef BPPSA_JACOBIAN_GPU_COST_H
#define BPPSA_JACOBIAN_GPU_COST_H

#include <stdint.h>

/* A round of a warp's inner loop, counted from the code that nvcc 13.0 makes for sm_90 in f32 along the path of a full round
 * (docs/gpu-kernels.md); a kernel without a loop is one round. */
typedef struct {
  double most;         /* items that a launch holds */
  double instructions; /* issue slots of a warp in a round */
  double work;         /* what the 32 threads do in it */
} bppsa_gpu_cost;

/* Seconds of `passes` passes of one of `together` items that are queued together; each pass does `work` and moves `bytes`. H200:
 * four schedulers on each of 132 multiprocessors at 1.98 GHz issue an instruction a cycle; 4e12 bytes/s of its 4.8e12; a launch,
 * assumed to take 1.2 µs, with the beginning and end of a kernel, 3500 cycles. */
static inline double bppsa_gpu_cost_seconds(const bppsa_gpu_cost *kernel, int64_t together, double passes, double work,
                                            double bytes) {
  const double issue_rate = 132 * 4 * 1.98e9, bandwidth = 4e12, launch = 3e-6;
  const double items = together < 1 ? 1 : (double)together;
  const double launches = (double)(int64_t)((items + kernel->most - 1) / kernel->most);
  const double issued = work / kernel->work * kernel->instructions / issue_rate, moved = bytes / bandwidth;
  return launch * launches / items + passes * (issued > moved ? issued : moved);
}

#endif

/* How the block of a walk that ends last adds the parts of all blocks' weight gradients, in the place of another launch.
 *
 *     parts [n][G·H·H + 2 G·H + (I = 1 ? G·H : 0)]     dW_hh, db_hh, db_ih, dW_ih of a block or of a cluster of blocks
 *
 * A block counts itself when its part is written. The one that finds all others counted adds all parts, always from the first to
 * the last, so that no bit depends on which block that is. It reads alone what all have written, so this pays for few parts only
 * (walk_sums_pay). */
#ifndef BPPSA_RECURRENT_GPU_WALK_SUMS_CUH
#define BPPSA_RECURRENT_GPU_WALK_SUMS_CUH

#include <stdint.h>

#include "core/base/host_device.h"
#include "core/compute/launch.cuh"

/* The gradients to which a walk's sums go. */
template <typename real> struct walk_targets {
  unsigned long long *counted; /* blocks that have ended, 0 between launches; NULL: another launch adds the parts */
  int64_t w_hh, all;           /* G·H·H and G·H */
  real *to[4];                 /* dW_hh [w_hh], and db_hh, db_ih, dW_ih [all] each */
};

/* Numbers that a thread reads at once: so many parts of each of some sums. */
enum { WALK_SUMS_LANES = 32, WALK_SUMS_AHEAD = 8, WALK_SUMS_PARTS = 8 };

/* Is it faster than a launch? A round of reads takes some 700 cycles (estimate), and the launch 4 to 5 µs (docs/gpu.md,
 * "Measured"). */
inline bool walk_sums_pay(int64_t parts, int64_t count, int64_t threads) {
  enum { MOST_ROUNDS = 6 };
  const int64_t at_once = WALK_SUMS_AHEAD * threads;
  return (count + at_once - 1) / at_once * ((parts + WALK_SUMS_PARTS - 1) / WALK_SUMS_PARTS) <= MOST_ROUNDS;
}

/* Adds a number of each of the next WALK_SUMS_PARTS parts to the sums 0, 32, .. of a thread, as far as these are below `end`. All
 * reads begin before the first number is added. WHOLE: so many parts are left; otherwise `left`. *from: in the first of them, then
 * in the first behind them. */
template <bool WHOLE, typename real>
__device__ __forceinline__ void walk_sums_round(const real **from, int left, int64_t stride, int end,
                                                real (&result)[WALK_SUMS_AHEAD]) {
  real read[WALK_SUMS_AHEAD][WALK_SUMS_PARTS];
  BPPSA_UNROLL
  for (int k = 0; k < WALK_SUMS_AHEAD * WALK_SUMS_PARTS; ++k) {
    const int i = k % WALK_SUMS_AHEAD, p = k / WALK_SUMS_AHEAD;
    read[i][p] = (WHOLE || p < left) && i * WALK_SUMS_LANES < end ? (*from)[i * WALK_SUMS_LANES] : 0;
    *from += i + 1 == WALK_SUMS_AHEAD ? stride : 0;
  }
  BPPSA_UNROLL
  for (int k = 0; k < WALK_SUMS_AHEAD * WALK_SUMS_PARTS; ++k) {
    result[k % WALK_SUMS_AHEAD] += read[k % WALK_SUMS_AHEAD][k / WALK_SUMS_AHEAD];
  }
}

/* Adds one number of each of n parts, `stride` numbers apart, of the sums first, first + 32, .. below end; result[i] of those that
 * exist. A function of its own, which all kernels call: it runs at their end, and its code is long. */
template <typename real>
__device__ __noinline__ void walk_sums_add(const real *parts, int n, int64_t stride, int first, int end,
                                           real (&result)[WALK_SUMS_AHEAD]) {
  const real *from = parts + first;
  BPPSA_UNROLL
  for (int i = 0; i < WALK_SUMS_AHEAD; ++i) {
    result[i] = 0;
  }
  BPPSA_UNROLL_BY(1)
  for (; n >= WALK_SUMS_PARTS; n -= WALK_SUMS_PARTS) {
    walk_sums_round<true>(&from, n, stride, end - first, result);
  }
  if (n > 0) {
    walk_sums_round<false>(&from, n, stride, end - first, result);
  }
}

/* The first of the sums that a thread adds, of those from `begin` on; a warp has WALK_SUMS_AHEAD lines of 32 neighbours. */
__device__ __forceinline__ int walk_sums_first(int begin) {
  const int warp = (int)threadIdx.x / WALK_SUMS_LANES, lane = (int)threadIdx.x % WALK_SUMS_LANES;
  return begin + warp * WALK_SUMS_AHEAD * WALK_SUMS_LANES + lane;
}

/* Adds, by a block of a cluster, its share of the sums over the parts of the cluster's `blocks` blocks, to the first of them. The
 * cluster has met since they were written. */
template <typename real> __device__ __forceinline__ void walk_sums_join(real *parts, int64_t count, int blocks, int rank) {
  const int share = ((int)count + blocks - 1) / blocks, begin = rank * share,
            end = begin + share < (int)count ? begin + share : (int)count;
  for (int first = walk_sums_first(begin); first < end; first += WALK_SUMS_AHEAD * (int)blockDim.x) {
    real sums[WALK_SUMS_AHEAD];
    walk_sums_add(parts, blocks, count, first, end, sums);
    BPPSA_UNROLL
    for (int i = 0; i < WALK_SUMS_AHEAD; ++i) {
      if (first + i * WALK_SUMS_LANES < end) {
        parts[first + i * WALK_SUMS_LANES] = sums[i];
      }
    }
  }
}

/* Called by all threads of a block that has written its part: the last of `blocks` blocks adds parts [n] and writes the gradients.
 * stride: numbers from one of these parts to the next. */
template <typename real>
__device__ __forceinline__ void walk_sums_end(const walk_targets<real> &t, const real *parts, int n, int64_t stride,
                                              int64_t count, unsigned blocks) {
  bool last = false;
  __threadfence(); /* others see this thread's numbers before they see that the block is counted */
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(t.counted, 1ull) + 1 == blocks;
    if (last) {
      *t.counted = 0;
    }
  }
  if (!__syncthreads_or(last)) {
    return;
  }
  __threadfence(); /* this block sees the numbers of all blocks that are counted */
  for (int first = walk_sums_first(0); first < (int)count; first += WALK_SUMS_AHEAD * (int)blockDim.x) {
    real sums[WALK_SUMS_AHEAD];
    walk_sums_add(parts, n, stride, first, (int)count, sums);
    BPPSA_UNROLL
    for (int i = 0; i < WALK_SUMS_AHEAD; ++i) {
      const int at = first + i * WALK_SUMS_LANES, of_units = at - (int)t.w_hh;
      if (at < (int)count) {
        real *to = of_units < 0                ? t.to[0] + at
                   : of_units < (int)t.all     ? t.to[1] + of_units
                   : of_units < 2 * (int)t.all ? t.to[2] + (of_units - t.all)
                                               : t.to[3] + (of_units - 2 * t.all);
        *to = sums[i];
      }
    }
  }
}

#endif

/* CUDA kernels of the update: the norm of all gradients, clipping, and Adam, AdamW or SGD over all parameters at once.
 *
 * The norm never over- or underflows: besides Σ g² the kernels sum Σ (g 2^-600)² and Σ (g 2^600)², and use the sum that is
 * in range. Sums run in one order that the number of parameters fixes: within a thread, within its warp by shuffles, over the
 * warps, over the blocks.
 */
#ifndef BPPSA_TRAIN_OPTIMIZER_KERNELS_CUH
#define BPPSA_TRAIN_OPTIMIZER_KERNELS_CUH

#include <float.h>
#include <math.h>
#include <stdint.h>

#include "core/base/host_device.h"
#include "core/compute/launch.cuh"
#include "train/gpu.h"

#define EACH_REAL "train/optimizer_element.inc"
#include "core/base/each_real.inc"

enum { UPDATE_THREADS = 256, UPDATE_WARP = 32, UPDATE_BLOCKS = 64 /* that sum squares; at most UPDATE_THREADS */ };

struct update_rule {
  bool moments; /* by Adam's equations; otherwise by SGD's */
  double momentum, beta1, beta2, epsilon;
  double decay, clip_norm; /* decay: of the L2 term; 0: none */
};

struct update_squares {
  double plain, large, small; /* Σ g², Σ (g 2^-600)², Σ (g 2^600)² */
};

template <typename real> struct update_reals {
  int64_t count;
  real *values;
  const real *gradients;
  real *first, *second; /* the moments; or velocity, or NULL */
  const uint8_t *fixed; /* not 0: the real stays as it is; NULL: none does */
};

/* ---- the norm ---- */

/* The sum over a block's threads, returned to every thread. own: in shared memory, a number for each warp. */
__device__ inline double update_block_sum(double x, double *own) {
  for (int other = UPDATE_WARP / 2; other > 0; other /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, other);
  }
  __syncthreads(); /* all threads have read the sums */
  if (threadIdx.x % UPDATE_WARP == 0) {
    own[threadIdx.x / UPDATE_WARP] = x;
  }
  __syncthreads();
  double sum = 0.0;
  for (int w = 0; w < UPDATE_THREADS / UPDATE_WARP; ++w) {
    sum += own[w];
  }
  return sum;
}

__device__ inline update_squares update_block_squares(const update_squares &s, double *own) {
  update_squares sum;
  sum.plain = update_block_sum(s.plain, own);
  sum.large = update_block_sum(s.large, own);
  sum.small = update_block_sum(s.small, own);
  return sum;
}

/* Sums the squares of gradients first .. end-1 in one block. */
template <typename real>
__device__ update_squares update_sum_squares(const real *gradients, int64_t first, int64_t end, double *own) {
  update_squares s = {0.0, 0.0, 0.0};
  for (int64_t i = first + threadIdx.x; i < end; i += UPDATE_THREADS) {
    const double g = (double)gradients[i], large = g * 0x1p-600, small = g * 0x1p600;
    s.plain += g * g;
    s.large += large * large;
    s.small += small * small;
  }
  return update_block_squares(s, own);
}

__device__ inline double update_norm(const update_squares &s) {
  if (isinf(s.plain)) {
    return sqrt(s.large) * 0x1p600;
  }
  return s.plain <= DBL_MIN / DBL_EPSILON ? sqrt(s.small) * 0x1p-600 : sqrt(s.plain); /* NaN stays NaN */
}

/* Block k sums the squares of `size` gradients from k size on. */
template <typename real>
__global__ void bppsa_update_squares(int64_t count, int64_t size, const real *gradients, update_squares *sums,
                                     bppsa_gpu_result *result) {
  BPPSA_SHARED(double, own);
  const int64_t first = blockIdx.x * size, end = first + size < count ? first + size : count;
  const update_squares s = update_sum_squares(gradients, first, end, own);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = s;
    if (blockIdx.x == 0) {
      result->nonfinite = 0; /* set before the launch that may change it */
    }
  }
}

/* ---- the update ---- */

/* Updates parameter i and returns whether the result is finite. An element whose numbers are all 0 stays 0, also with ε = 0:
 * gaps between tensors are such elements. */
template <typename real>
__device__ bool update_one(const update_reals<real> &a, const update_rule &r, const bppsa_step_factors &f, int64_t i, real g) {
  if (!r.moments) {
    update_sgd(r.momentum, r.decay, f.rate, g, a.first == nullptr ? nullptr : &a.first[i], &a.values[i]);
  } else if (!(g == 0 && a.values[i] == 0 && a.first[i] == 0 && a.second[i] == 0)) {
    update_adam(r.beta1, r.beta2, r.epsilon, r.decay, f, g, &a.first[i], &a.second[i], &a.values[i]);
  }
  return isfinite(a.values[i]);
}

/* Every block adds up the sums of squares by itself. If there are no sums, the launch has one block, which makes them. */
template <typename real>
__global__ void bppsa_update_apply(update_reals<real> a, update_rule rule, const update_squares *sums, int64_t blocks,
                                   const bppsa_step_factors *factors, bppsa_gpu_result *result) {
  BPPSA_SHARED(double, own);
  update_squares s = {0.0, 0.0, 0.0};
  if (sums == nullptr) {
    s = update_sum_squares(a.gradients, 0, a.count, own);
  } else {
    if (threadIdx.x < blocks) {
      s = sums[threadIdx.x];
    }
    s = update_block_squares(s, own);
  }
  const double norm = update_norm(s);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    result->norm = norm;
    if (sums == nullptr) {
      result->nonfinite = 0;
    }
  }
  __syncthreads();
  if (!isfinite(norm) || !isfinite(result->loss)) {
    return;
  }
  const double factor = rule.clip_norm > 0.0 ? rule.clip_norm / (norm + 1e-6) : 1.0;
  bool finite = true;
  for (int64_t i = (int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x; i < a.count; i += (int64_t)gridDim.x * UPDATE_THREADS) {
    const real g = factor < 1.0 ? a.gradients[i] * (real)factor : a.gradients[i];
    if (a.fixed == nullptr || a.fixed[i] == 0) {
      finite = update_one(a, rule, *factors, i, g) && finite;
    }
  }
  if (!finite) {
    result->nonfinite = 1;
  }
}

#endif

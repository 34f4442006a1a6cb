/* Kernels that reach a GPU's peak rates (core/measure/peak_cuda.cu): multiply-adds alone, writes, and a copy. */
#ifndef BPPSA_CORE_MEASURE_PEAK_KERNELS_CUH
#define BPPSA_CORE_MEASURE_PEAK_KERNELS_CUH

#include <stdint.h>

#include "core/compute/launch.cuh"

enum {
  PEAK_CHAINS = 8, /* independent sums of a thread, more than the latency of a multiply-add in cycles */
  PEAK_UNROLL = 16 /* multiply-adds of a chain in a round */
};

/* 16 bytes, moved by one load and one store. */
struct alignas(16) peak_line {
  uint32_t word[4];
};

/* out[i] = Σ_c s_c, where s_c = c at first and then `rounds` · PEAK_UNROLL times s_c = s_c · factor + term; out: one real for
 * each thread */
template <typename real> __global__ void bppsa_peak_multiply_adds(int64_t rounds, real factor, real term, real *out) {
  real sums[PEAK_CHAINS], total = 0;
  BPPSA_UNROLL
  for (int c = 0; c < PEAK_CHAINS; ++c) {
    sums[c] = (real)c;
  }
  for (int64_t r = 0; r < rounds; ++r) {
    BPPSA_UNROLL
    for (int u = 0; u < PEAK_UNROLL; ++u) {
      BPPSA_UNROLL
      for (int c = 0; c < PEAK_CHAINS; ++c) {
        sums[c] = sums[c] * factor + term;
      }
    }
  }
  BPPSA_UNROLL
  for (int c = 0; c < PEAK_CHAINS; ++c) {
    total += sums[c];
  }
  out[(int64_t)blockIdx.x * blockDim.x + threadIdx.x] = total;
}

/* The words of line i: a function of i whose bits look random. */
__device__ inline peak_line peak_pattern(int64_t i) {
  peak_line line;
  for (int w = 0; w < 4; ++w) {
    uint32_t x = (uint32_t)i * 4u + (uint32_t)w;
    x = (x ^ x >> 16) * 0x7feb352du;
    line.word[w] = (x ^ x >> 15) * 0x846ca68bu;
  }
  return line;
}

/* to[i] = pattern of i; size n */
__global__ void bppsa_peak_fill(int64_t n, peak_line *to) {
  const int64_t threads = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
    to[i] = peak_pattern(i);
  }
}

/* to = from; size n. A thread has four lines in flight, and each is part of a warp's 512 consecutive bytes. */
__global__ void bppsa_peak_copy(int64_t n, const peak_line *from, peak_line *to) {
  const int64_t threads = (int64_t)gridDim.x * blockDim.x;
  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 3 * threads < n; i += 4 * threads) {
    const peak_line a = from[i], b = from[i + threads], c = from[i + 2 * threads], d = from[i + 3 * threads];
    to[i] = a;
    to[i + threads] = b;
    to[i + 2 * threads] = c;
    to[i + 3 * threads] = d;
  }
  for (; i < n; i += threads) {
    to[i] = from[i];
  }
}

/* *wrong += the number of lines of `at` that differ from their pattern; size n */
__global__ void bppsa_peak_check(int64_t n, const peak_line *at, unsigned long long *wrong) {
  const int64_t threads = (int64_t)gridDim.x * blockDim.x;
  unsigned long long mine = 0;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
    const peak_line expected = peak_pattern(i), found = at[i];
    bool same = true;
    for (int w = 0; w < 4; ++w) {
      same = same && expected.word[w] == found.word[w];
    }
    mine += same ? 0 : 1;
  }
  if (mine > 0) {
    atomicAdd(wrong, mine);
  }
}

#endif

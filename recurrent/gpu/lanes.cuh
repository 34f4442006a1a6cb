/* The number of threads of a recurrent layer's kernels, the unit in which they read, and what a warp's lanes find together. */
#ifndef BPPSA_RECURRENT_GPU_LANES_CUH
#define BPPSA_RECURRENT_GPU_LANES_CUH

#include "core/compute/launch.cuh"

enum { WARP_LANES = 32, CHUNK_THREADS = 128 };

/* 16 bytes, read at once. */
template <typename real> struct alignas(16) quad {
  enum { SIZE = 16 / (int)sizeof(real) };
  real v[SIZE];
};

/* The sum of a warp's values, in all its lanes. */
template <typename number> __device__ __forceinline__ number warp_sum(number value) {
  BPPSA_UNROLL
  for (int other = WARP_LANES / 2; other > 0; other /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, other);
  }
  return value;
}

/* The largest value of a warp, in all its lanes; NaN is passed over. */
template <typename number> __device__ __forceinline__ number warp_largest(number value) {
  BPPSA_UNROLL
  for (int other = WARP_LANES / 2; other > 0; other /= 2) {
    const number theirs = __shfl_xor_sync(0xffffffffu, value, other);
    value = theirs > value ? theirs : value;
  }
  return value;
}

#endif

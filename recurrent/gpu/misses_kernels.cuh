/* Does the loss of a parallel backward pass reach every step? */
#ifndef BPPSA_RECURRENT_GPU_MISSES_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_MISSES_KERNELS_CUH

#include "recurrent/gpu/lanes.cuh"
#include "recurrent/gpu/speculate_back.cuh"

/* Says in the report whether the loss misses a step, whose gradient of `width` numbers is 0: a thread for each step of a sample. */
template <typename real>
__global__ void bppsa_recurrent_back_misses(const real *seed, int64_t rows, int64_t batch, int64_t width, const int64_t *lengths,
                                            back_report *report) {
  const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  bool reached = row >= rows || (lengths != NULL && row / batch >= lengths[row % batch]);
  for (int64_t i = 0; !reached && i < width; ++i) {
    reached = seed[row * width + i] != 0;
  }
  if (!reached) {
    report->misses = 1;
  }
}

#endif

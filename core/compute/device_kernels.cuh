/* The self-test kernel of bppsa_cuda_probe. */
#ifndef BPPSA_CORE_COMPUTE_DEVICE_KERNELS_CUH
#define BPPSA_CORE_COMPUTE_DEVICE_KERNELS_CUH

#include <stdint.h>

#include "core/compute/launch.cuh"

/* y = a*x + y, one element for each thread; x, y: [n] */
__global__ void bppsa_self_test_axpy(int64_t n, float a, const float *x, float *y) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    y[i] = a * x[i] + y[i];
  }
}

#endif

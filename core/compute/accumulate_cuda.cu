/* Adds arrays on a GPU: one thread for each element. */
#include "core/compute/accumulate_internal.h"
#include "core/compute/check.cuh"
#include "core/compute/launch.cuh"

enum { ADD_THREADS = 256 };

template <typename real> __global__ void bppsa_accumulate_add(int64_t count, const real *from, real *to) {
  const int64_t i = (int64_t)blockIdx.x * ADD_THREADS + threadIdx.x;
  if (i < count) {
    to[i] += from[i];
  }
}

extern "C" bppsa_status bppsa_accumulate_queue(const bppsa_device *device, bppsa_dtype dtype, int64_t count, const void *from,
                                               void *to) {
  const cudaStream_t stream = (cudaStream_t)bppsa_device_get_stream(device);
  const int64_t blocks = (count - 1) / ADD_THREADS + 1;
  if (blocks > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "sum of arrays on a GPU: %lld elements, expected fewer than 2^39", (long long)count);
  }
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(bppsa_device_get_index(device)), "sum of arrays"));
  if (dtype == BPPSA_F32) {
    BPPSA_LAUNCH(bppsa_accumulate_add<float>, (unsigned)blocks, ADD_THREADS, 0, stream, count, (const float *)from, (float *)to);
  } else {
    BPPSA_LAUNCH(bppsa_accumulate_add<double>, (unsigned)blocks, ADD_THREADS, 0, stream, count, (const double *)from,
                 (double *)to);
  }
  return bppsa_cuda_check(cudaGetLastError(), "sum of arrays: launch");
}

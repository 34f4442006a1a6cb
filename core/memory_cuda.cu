/* GPU memory for core/memory.h. */
#include "core/check.cuh"
#include "core/memory_internal.h"

extern "C" bppsa_status bppsa_cuda_alloc(int32_t index, int64_t bytes, void **data) {
  void *made = NULL;
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "GPU memory"));
  const cudaError_t error = cudaMalloc(&made, bytes > 0 ? (size_t)bytes : 1);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return bppsa_fail(BPPSA_ERR_MEMORY, "GPU memory: %lld bytes could not be had, expected room for them", (long long)bytes);
  }
  BPPSA_TRY(bppsa_cuda_check(error, "GPU memory"));
  *data = made;
  return BPPSA_OK;
}

extern "C" void bppsa_cuda_free(int32_t index, void *data) {
  if (cudaSetDevice(index) == cudaSuccess) {
    (void)cudaFree(data);
  }
}

static bppsa_status copy(int32_t index, void *to, const void *from, int64_t bytes, cudaMemcpyKind kind) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "copy"));
  return bppsa_cuda_check(cudaMemcpy(to, from, (size_t)bytes, kind), "copy");
}

extern "C" bppsa_status bppsa_cuda_put(int32_t index, void *to, const void *from_host, int64_t bytes) {
  return copy(index, to, from_host, bytes, cudaMemcpyHostToDevice);
}

extern "C" bppsa_status bppsa_cuda_get(int32_t index, void *to_host, const void *from, int64_t bytes) {
  return copy(index, to_host, from, bytes, cudaMemcpyDeviceToHost);
}

extern "C" bppsa_status bppsa_cuda_clear(int32_t index, void *data, int64_t bytes) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "clear"));
  BPPSA_TRY(bppsa_cuda_check(cudaMemset(data, 0, (size_t)bytes), "clear"));
  return bppsa_cuda_check(cudaDeviceSynchronize(), "clear");
}

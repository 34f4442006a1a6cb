/* GPU memory for core/memory.h. */
#include "core/check.cuh"
#include "core/device_internal.h"
#include "core/memory_internal.h"

static bppsa_status take(int32_t index, const char *what, cudaError_t (*allocate)(void **, size_t), int64_t bytes, void **data) {
  void *made = NULL;
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), what));
  const cudaError_t error = allocate(&made, bytes > 0 ? (size_t)bytes : 1);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return bppsa_fail(BPPSA_ERR_MEMORY, "%s: %lld bytes of GPU memory are not free, expected them to be", what, (long long)bytes);
  }
  BPPSA_TRY(bppsa_cuda_check(error, what));
  *data = made;
  return BPPSA_OK;
}

extern "C" bppsa_status bppsa_cuda_alloc(int32_t index, int64_t bytes, void **data) {
  return take(index, "GPU memory", cudaMalloc, bytes, data);
}

extern "C" bppsa_status bppsa_cuda_alloc_staging(int32_t index, int64_t bytes, void **data) {
  return take(index, "pinned host memory", cudaMallocHost, bytes, data);
}

extern "C" void bppsa_cuda_free(int32_t index, void *data) {
  if (cudaSetDevice(index) == cudaSuccess) {
    (void)cudaFree(data);
  }
}

extern "C" void bppsa_cuda_free_staging(int32_t index, void *data) {
  if (cudaSetDevice(index) == cudaSuccess) {
    (void)cudaFreeHost(data);
  }
}

static bppsa_status queue_copy(int32_t index, void *stream, void *to, const void *from, int64_t bytes, cudaMemcpyKind kind) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "copy"));
  return bppsa_cuda_check(cudaMemcpyAsync(to, from, (size_t)bytes, kind, (cudaStream_t)stream), "copy");
}

extern "C" bppsa_status bppsa_cuda_queue_put(int32_t index, void *stream, void *to, const void *from_staging, int64_t bytes) {
  return queue_copy(index, stream, to, from_staging, bytes, cudaMemcpyHostToDevice);
}

extern "C" bppsa_status bppsa_cuda_queue_get(int32_t index, void *stream, void *to_staging, const void *from, int64_t bytes) {
  return queue_copy(index, stream, to_staging, from, bytes, cudaMemcpyDeviceToHost);
}

extern "C" bppsa_status bppsa_cuda_put(int32_t index, void *stream, void *to, const void *from_host, int64_t bytes) {
  BPPSA_TRY(bppsa_cuda_queue_put(index, stream, to, from_host, bytes));
  return bppsa_cuda_wait(index, stream);
}

extern "C" bppsa_status bppsa_cuda_get(int32_t index, void *stream, void *to_host, const void *from, int64_t bytes) {
  BPPSA_TRY(bppsa_cuda_queue_get(index, stream, to_host, from, bytes));
  return bppsa_cuda_wait(index, stream);
}

extern "C" bppsa_status bppsa_cuda_clear(int32_t index, void *stream, void *data, int64_t bytes) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "clear"));
  BPPSA_TRY(bppsa_cuda_check(cudaMemsetAsync(data, 0, (size_t)bytes, (cudaStream_t)stream), "clear"));
  return bppsa_cuda_wait(index, stream);
}

extern "C" bppsa_status bppsa_cuda_available(int32_t index, int64_t *bytes) {
  size_t available = 0, all = 0;
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "available memory"));
  BPPSA_TRY(bppsa_cuda_check(cudaMemGetInfo(&available, &all), "available memory"));
  *bytes = (int64_t)available;
  return BPPSA_OK;
}

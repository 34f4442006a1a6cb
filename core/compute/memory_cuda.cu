/* GPU memory for core/compute/memory.h. */
#include <pthread.h>

#include "core/base/alloc.h"
#include "core/compute/check.cuh"
#include "core/compute/device_internal.h"
#include "core/compute/memory_internal.h"

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

/* Blocks that were taken and not freed. CUDA tells neither their sizes nor their sum: it takes memory from the system in pieces of
 * megabytes, and only these are missing in what cudaMemGetInfo says. */
struct held_block {
  void *data;
  int64_t bytes;
  int32_t index;
  struct held_block *next;
};
static struct held_block *blocks;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

static void note(struct held_block *made) {
  pthread_mutex_lock(&blocks_lock);
  made->next = blocks;
  blocks = made;
  pthread_mutex_unlock(&blocks_lock);
}

static void forget(const void *data) {
  pthread_mutex_lock(&blocks_lock);
  struct held_block **at = &blocks;
  while (*at != NULL && (*at)->data != data) {
    at = &(*at)->next;
  }
  struct held_block *found = *at;
  if (found != NULL) {
    *at = found->next;
  }
  pthread_mutex_unlock(&blocks_lock);
  bppsa_free(found);
}

extern "C" int64_t bppsa_cuda_held(int32_t index) {
  int64_t bytes = 0;
  pthread_mutex_lock(&blocks_lock);
  for (const struct held_block *b = blocks; b != NULL; b = b->next) {
    bytes += b->index == index ? b->bytes : 0;
  }
  pthread_mutex_unlock(&blocks_lock);
  return bytes;
}

extern "C" bppsa_status bppsa_cuda_alloc(int32_t index, int64_t bytes, void **data) {
  struct held_block *made = (struct held_block *)bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = take(index, "GPU memory", cudaMalloc, bytes, &made->data);
  if (status != BPPSA_OK) {
    bppsa_free(made);
    return status;
  }
  made->bytes = bytes;
  made->index = index;
  *data = made->data;
  note(made);
  return BPPSA_OK;
}

extern "C" bppsa_status bppsa_cuda_alloc_staging(int32_t index, int64_t bytes, void **data) {
  return take(index, "pinned host memory", cudaMallocHost, bytes, data);
}

extern "C" void bppsa_cuda_free(int32_t index, void *data) {
  forget(data); /* first: once it is freed, another thread may be given the same address */
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

extern "C" bppsa_status bppsa_cuda_queue_copy(int32_t index, void *stream, void *to, int64_t to_stride, const void *from,
                                              int64_t from_stride, int64_t width, int64_t rows) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "copy"));
  if (width == 0 || rows == 0) {
    return BPPSA_OK;
  }
  return bppsa_cuda_check(cudaMemcpy2DAsync(to, (size_t)to_stride, from, (size_t)from_stride, (size_t)width, (size_t)rows,
                                            cudaMemcpyDeviceToDevice, (cudaStream_t)stream),
                          "copy");
}

extern "C" bppsa_status bppsa_cuda_put(int32_t index, void *stream, void *to, const void *from_host, int64_t bytes) {
  BPPSA_TRY(bppsa_cuda_queue_put(index, stream, to, from_host, bytes));
  return bppsa_cuda_wait(index, stream);
}

extern "C" bppsa_status bppsa_cuda_get(int32_t index, void *stream, void *to_host, const void *from, int64_t bytes) {
  BPPSA_TRY(bppsa_cuda_queue_get(index, stream, to_host, from, bytes));
  return bppsa_cuda_wait(index, stream);
}

extern "C" bppsa_status bppsa_cuda_queue_clear(int32_t index, void *stream, void *data, int64_t bytes) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "clear"));
  return bppsa_cuda_check(cudaMemsetAsync(data, 0, (size_t)bytes, (cudaStream_t)stream), "clear");
}

extern "C" bppsa_status bppsa_cuda_clear(int32_t index, void *stream, void *data, int64_t bytes) {
  BPPSA_TRY(bppsa_cuda_queue_clear(index, stream, data, bytes));
  return bppsa_cuda_wait(index, stream);
}

extern "C" bppsa_status bppsa_cuda_cache(int32_t index, int64_t *bytes) {
  int size = 0;
  BPPSA_TRY(bppsa_cuda_check(cudaDeviceGetAttribute(&size, cudaDevAttrL2CacheSize, index), "cache"));
  *bytes = size;
  return BPPSA_OK;
}

extern "C" bppsa_status bppsa_cuda_available(int32_t index, int64_t *bytes) {
  size_t available = 0, all = 0;
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "available memory"));
  BPPSA_TRY(bppsa_cuda_check(cudaMemGetInfo(&available, &all), "available memory"));
  *bytes = (int64_t)available;
  return BPPSA_OK;
}

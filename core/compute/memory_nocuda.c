/* Stands in for memory_cuda.cu in a build without CUDA, in which no GPU device exists. */
#include "core/compute/memory_internal.h"

static bppsa_status without(void) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "GPU memory: this build has no CUDA; use device cpu");
}

bppsa_status bppsa_cuda_alloc(int32_t index, int64_t bytes, void **data) {
  (void)index, (void)bytes, (void)data;
  return without();
}

void bppsa_cuda_free(int32_t index, void *data) {
  (void)index, (void)data;
}

bppsa_status bppsa_cuda_put(int32_t index, void *stream, void *to, const void *from_host, int64_t bytes) {
  (void)index, (void)stream, (void)to, (void)from_host, (void)bytes;
  return without();
}

bppsa_status bppsa_cuda_get(int32_t index, void *stream, void *to_host, const void *from, int64_t bytes) {
  (void)index, (void)stream, (void)to_host, (void)from, (void)bytes;
  return without();
}

bppsa_status bppsa_cuda_clear(int32_t index, void *stream, void *data, int64_t bytes) {
  (void)index, (void)stream, (void)data, (void)bytes;
  return without();
}

bppsa_status bppsa_cuda_alloc_staging(int32_t index, int64_t bytes, void **data) {
  return bppsa_cuda_alloc(index, bytes, data);
}

void bppsa_cuda_free_staging(int32_t index, void *data) {
  bppsa_cuda_free(index, data);
}

bppsa_status bppsa_cuda_queue_put(int32_t index, void *stream, void *to, const void *from_staging, int64_t bytes) {
  return bppsa_cuda_put(index, stream, to, from_staging, bytes);
}

bppsa_status bppsa_cuda_queue_get(int32_t index, void *stream, void *to_staging, const void *from, int64_t bytes) {
  return bppsa_cuda_get(index, stream, to_staging, from, bytes);
}

bppsa_status bppsa_cuda_queue_clear(int32_t index, void *stream, void *data, int64_t bytes) {
  return bppsa_cuda_clear(index, stream, data, bytes);
}

bppsa_status bppsa_cuda_queue_copy(int32_t index, void *stream, void *to, int64_t to_stride, const void *from,
                                   int64_t from_stride, int64_t width, int64_t rows) {
  (void)index, (void)stream, (void)to, (void)to_stride, (void)from, (void)from_stride, (void)width, (void)rows;
  return without();
}

bppsa_status bppsa_cuda_cache(int32_t index, int64_t *bytes) {
  (void)index, (void)bytes;
  return without();
}

bppsa_status bppsa_cuda_available(int32_t index, int64_t *bytes) {
  (void)index, (void)bytes;
  return without();
}

int64_t bppsa_cuda_held(int32_t index) {
  (void)index;
  return 0;
}

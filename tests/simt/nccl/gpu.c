/* Sixteen GPUs without kernels, whose memory is the host's, in the place of core/compute/device_nocuda.c and
 * core/compute/memory_nocuda.c: enough for what moves arrays. Unlike the SIMT machine, several threads may use them. */
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/device.h"
#include "core/compute/memory_internal.h"

void bppsa_cuda_probe(bppsa_cuda_report *report) {
  *report = (bppsa_cuda_report){.built = true, .runtime = 13000, .driver = 13000, .devices = 16, .kernel_checked = true};
  snprintf(report->name, sizeof report->name, "stand-in");
}

bppsa_status bppsa_cuda_alloc(int32_t index, int64_t bytes, void **data) {
  (void)index;
  void *made = bppsa_alloc((size_t)bytes);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memset(made, 0xC5, (size_t)bytes);
  *data = made;
  return BPPSA_OK;
}

void bppsa_cuda_free(int32_t index, void *data) {
  (void)index;
  bppsa_free(data);
}

bppsa_status bppsa_cuda_put(int32_t index, void *stream, void *to, const void *from_host, int64_t bytes) {
  (void)index, (void)stream;
  memcpy(to, from_host, (size_t)bytes);
  return BPPSA_OK;
}

bppsa_status bppsa_cuda_get(int32_t index, void *stream, void *to_host, const void *from, int64_t bytes) {
  return bppsa_cuda_put(index, stream, to_host, from, bytes);
}

bppsa_status bppsa_cuda_clear(int32_t index, void *stream, void *data, int64_t bytes) {
  (void)index, (void)stream;
  memset(data, 0, (size_t)bytes);
  return BPPSA_OK;
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
  return bppsa_cuda_put(index, stream, to_staging, from, bytes);
}

bppsa_status bppsa_cuda_queue_clear(int32_t index, void *stream, void *data, int64_t bytes) {
  return bppsa_cuda_clear(index, stream, data, bytes);
}

bppsa_status bppsa_cuda_queue_copy(int32_t index, void *stream, void *to, int64_t to_stride, const void *from,
                                   int64_t from_stride, int64_t width, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    BPPSA_TRY(bppsa_cuda_put(index, stream, (char *)to + r * to_stride, (const char *)from + r * from_stride, width));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cuda_cache(int32_t index, int64_t *bytes) {
  (void)index;
  *bytes = INT64_C(1) << 20;
  return BPPSA_OK;
}

bppsa_status bppsa_cuda_available(int32_t index, int64_t *bytes) {
  (void)index;
  *bytes = INT64_C(1) << 30;
  return BPPSA_OK;
}

int64_t bppsa_cuda_held(int32_t index) {
  (void)index;
  return 0;
}

bppsa_status bppsa_cuda_stream_create(int32_t index, void **stream) {
  (void)index;
  *stream = NULL;
  return BPPSA_OK;
}

void bppsa_cuda_stream_destroy(int32_t index, void *stream) {
  (void)index, (void)stream;
}

bppsa_status bppsa_cuda_wait(int32_t index, void *stream) {
  (void)index, (void)stream;
  return BPPSA_OK;
}

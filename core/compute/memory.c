#include "core/compute/memory.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory_internal.h"

static bool is_host(const bppsa_device *device) {
  return device == NULL || bppsa_device_get_kind(device) == BPPSA_CPU;
}

bppsa_status bppsa_memory_alloc(const bppsa_device *device, int64_t bytes, void **data) {
  if (!is_host(device)) {
    return bppsa_cuda_alloc(bppsa_device_get_index(device), bytes, data);
  }
  void *made = bppsa_alloc((size_t)bytes);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *data = made;
  return BPPSA_OK;
}

void bppsa_memory_free(const bppsa_device *device, void *data) {
  if (data == NULL) {
    return;
  }
  if (is_host(device)) {
    bppsa_free(data);
  } else {
    bppsa_cuda_free(bppsa_device_get_index(device), data);
  }
}

bppsa_status bppsa_memory_put(const bppsa_device *device, void *to, const void *from_host, int64_t bytes) {
  if (!is_host(device)) {
    return bppsa_cuda_put(bppsa_device_get_index(device), bppsa_device_get_stream(device), to, from_host, bytes);
  }
  memcpy(to, from_host, (size_t)bytes);
  return BPPSA_OK;
}

bppsa_status bppsa_memory_get(const bppsa_device *device, void *to_host, const void *from, int64_t bytes) {
  if (!is_host(device)) {
    return bppsa_cuda_get(bppsa_device_get_index(device), bppsa_device_get_stream(device), to_host, from, bytes);
  }
  memcpy(to_host, from, (size_t)bytes);
  return BPPSA_OK;
}

bppsa_status bppsa_memory_clear(const bppsa_device *device, void *data, int64_t bytes) {
  if (!is_host(device)) {
    return bppsa_cuda_clear(bppsa_device_get_index(device), bppsa_device_get_stream(device), data, bytes);
  }
  memset(data, 0, (size_t)bytes);
  return BPPSA_OK;
}

bppsa_status bppsa_memory_alloc_staging(const bppsa_device *device, int64_t bytes, void **data) {
  return is_host(device) ? bppsa_memory_alloc(device, bytes, data)
                         : bppsa_cuda_alloc_staging(bppsa_device_get_index(device), bytes, data);
}

void bppsa_memory_free_staging(const bppsa_device *device, void *data) {
  if (is_host(device)) {
    bppsa_free(data);
  } else if (data != NULL) {
    bppsa_cuda_free_staging(bppsa_device_get_index(device), data);
  }
}

bppsa_status bppsa_memory_queue_put(const bppsa_device *device, void *to, const void *from_staging, int64_t bytes) {
  return is_host(device)
             ? bppsa_memory_put(device, to, from_staging, bytes)
             : bppsa_cuda_queue_put(bppsa_device_get_index(device), bppsa_device_get_stream(device), to, from_staging, bytes);
}

bppsa_status bppsa_memory_queue_get(const bppsa_device *device, void *to_staging, const void *from, int64_t bytes) {
  return is_host(device)
             ? bppsa_memory_get(device, to_staging, from, bytes)
             : bppsa_cuda_queue_get(bppsa_device_get_index(device), bppsa_device_get_stream(device), to_staging, from, bytes);
}

bppsa_status bppsa_memory_queue_clear(const bppsa_device *device, void *data, int64_t bytes) {
  return is_host(device) ? bppsa_memory_clear(device, data, bytes)
                         : bppsa_cuda_queue_clear(bppsa_device_get_index(device), bppsa_device_get_stream(device), data, bytes);
}

bppsa_status bppsa_memory_queue_copy(const bppsa_device *device, void *to, int64_t to_stride, const void *from,
                                     int64_t from_stride, int64_t width, int64_t rows) {
  if (!is_host(device)) {
    return bppsa_cuda_queue_copy(bppsa_device_get_index(device), bppsa_device_get_stream(device), to, to_stride, from,
                                 from_stride, width, rows);
  }
  for (int64_t r = 0; width > 0 && r < rows; ++r) {
    memcpy((char *)to + r * to_stride, (const char *)from + r * from_stride, (size_t)width);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_memory_cache(const bppsa_device *device, int64_t *bytes) {
  if (is_host(device)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cache: expected a GPU, not device cpu");
  }
  return bppsa_cuda_cache(bppsa_device_get_index(device), bytes);
}

bppsa_status bppsa_memory_available(const bppsa_device *device, int64_t *bytes) {
  if (is_host(device)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "available memory: expected a GPU, not device cpu");
  }
  return bppsa_cuda_available(bppsa_device_get_index(device), bytes);
}

int64_t bppsa_memory_held(const bppsa_device *device) {
  return is_host(device) ? 0 : bppsa_cuda_held(bppsa_device_get_index(device));
}

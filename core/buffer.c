#include "core/buffer.h"

#include "core/alloc.h"

bppsa_status bppsa_buffer_create(const bppsa_device *device, bppsa_dtype dtype, int32_t ndim, const int64_t *shape,
                                 bppsa_buffer *buffer) {
  size_t bytes = 0;
  BPPSA_TRY(bppsa_shape_bytes(dtype, ndim, shape, NULL, &bytes));
  if (device != NULL && bppsa_device_get_kind(device) != BPPSA_CPU) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "device %s: buffers live in host memory only; use device cpu",
                      bppsa_device_get_name(device));
  }
  void *data = bppsa_calloc((int64_t)bytes, 1);
  if (data == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  buffer->view = bppsa_view_make(data, dtype, ndim, shape);
  return BPPSA_OK;
}

void bppsa_buffer_free(bppsa_buffer *buffer) {
  bppsa_free(buffer->view.data);
  *buffer = (bppsa_buffer){0};
}

#include "core/compute/device_buffer.h"

#include "core/compute/memory.h"

bppsa_status bppsa_buffer_create(const bppsa_device *device, bppsa_dtype dtype, int32_t ndim, const int64_t *shape,
                                 bppsa_buffer *buffer) {
  BPPSA_REQUIRE(buffer != NULL);
  BPPSA_REQUIRE(ndim == 0 || shape != NULL);
  size_t bytes = 0;
  void *data = NULL;
  BPPSA_TRY(bppsa_shape_bytes(dtype, ndim, shape, NULL, &bytes));
  BPPSA_TRY(bppsa_memory_alloc(device, (int64_t)bytes, &data));
  const bppsa_status status = bppsa_memory_clear(device, data, (int64_t)bytes);
  if (status != BPPSA_OK) {
    bppsa_memory_free(device, data);
    return status;
  }
  *buffer = (bppsa_buffer){.view = bppsa_view_make(data, dtype, ndim, shape), .device = device, .release = bppsa_memory_free};
  buffer->view.device = device == NULL ? BPPSA_CPU : bppsa_device_get_kind(device);
  return BPPSA_OK;
}

bppsa_status bppsa_buffer_move(const bppsa_device *device, bppsa_buffer *buffer) {
  BPPSA_REQUIRE(buffer != NULL);
  bppsa_buffer moved;
  const bppsa_view *view = &buffer->view;
  if (device == NULL || bppsa_device_get_kind(device) == BPPSA_CPU) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_buffer_create(device, view->dtype, view->ndim, view->shape, &moved));
  const bppsa_status status = bppsa_memory_put(device, moved.view.data, view->data, (int64_t)bppsa_view_bytes(view));
  bppsa_buffer_free(status == BPPSA_OK ? buffer : &moved);
  if (status == BPPSA_OK) {
    *buffer = moved;
  }
  return status;
}

bppsa_status bppsa_buffer_fetch(const bppsa_device *device, const bppsa_view *view, bppsa_buffer *copy) {
  BPPSA_REQUIRE(view != NULL && copy != NULL);
  bppsa_buffer made;
  BPPSA_TRY(bppsa_buffer_create(NULL, view->dtype, view->ndim, view->shape, &made));
  const bppsa_status status = bppsa_memory_get(device, made.view.data, view->data, (int64_t)bppsa_view_bytes(view));
  if (status != BPPSA_OK) {
    bppsa_buffer_free(&made);
    return status;
  }
  *copy = made;
  return BPPSA_OK;
}

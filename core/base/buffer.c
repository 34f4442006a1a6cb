#include "core/base/buffer.h"

#include "core/base/alloc.h"

bppsa_status bppsa_buffer_make(bppsa_dtype dtype, int32_t ndim, const int64_t *shape, bppsa_buffer *buffer) {
  BPPSA_REQUIRE(buffer != NULL);
  BPPSA_REQUIRE(ndim == 0 || shape != NULL);
  size_t bytes = 0;
  BPPSA_TRY(bppsa_shape_bytes(dtype, ndim, shape, NULL, &bytes));
  void *data = bppsa_calloc((int64_t)bytes, 1);
  if (data == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *buffer = (bppsa_buffer){.view = bppsa_view_make(data, dtype, ndim, shape)};
  return BPPSA_OK;
}

void bppsa_buffer_free(bppsa_buffer *buffer) {
  if (buffer == NULL) {
    return;
  }
  if (buffer->release != NULL) {
    buffer->release(buffer->device, buffer->view.data);
  } else {
    bppsa_free(buffer->view.data);
  }
  *buffer = (bppsa_buffer){0};
}

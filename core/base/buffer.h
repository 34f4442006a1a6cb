/* Owning buffers: one allocation, described by a contiguous view. core/compute/device_buffer.h makes them on devices. */
#ifndef BPPSA_CORE_BASE_BUFFER_H
#define BPPSA_CORE_BASE_BUFFER_H

#include "core/base/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_device bppsa_device; /* core/compute/device.h */

typedef struct {
  bppsa_view view;                                         /* view.data is owned */
  const bppsa_device *device;                              /* where its memory is, borrowed; NULL: the host */
  void (*release)(const bppsa_device *device, void *data); /* gives memory on a device back; NULL: it is the host's */
} bppsa_buffer;

/* Zeroed memory of the host. The caller frees it with bppsa_buffer_free. ERR_SHAPE, ERR_MEMORY. */
bppsa_status bppsa_buffer_make(bppsa_dtype dtype, int32_t ndim, const int64_t *shape, bppsa_buffer *buffer);
/* Frees the memory and zeroes the struct. A zeroed or already freed buffer is legal. */
void bppsa_buffer_free(bppsa_buffer *buffer);

#ifdef __cplusplus
}
#endif
#endif

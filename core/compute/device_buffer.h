/* Owning buffers (core/base/buffer.h) on a device. */
#ifndef BPPSA_CORE_COMPUTE_DEVICE_BUFFER_H
#define BPPSA_CORE_COMPUTE_DEVICE_BUFFER_H

#include "core/base/buffer.h"
#include "core/compute/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zeroed memory on the device (NULL: the host). The caller frees it with bppsa_buffer_free.
 * The device must outlive it. ERR_SHAPE, ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_buffer_create(const bppsa_device *device, bppsa_dtype dtype, int32_t ndim, const int64_t *shape,
                                 bppsa_buffer *buffer);
/* Moves a buffer from host memory to the device's memory; on a CPU it stays. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_buffer_move(const bppsa_device *device, bppsa_buffer *buffer);
/* Copies a contiguous view of the device's memory to host memory. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_buffer_fetch(const bppsa_device *device, const bppsa_view *view, bppsa_buffer *copy);

#ifdef __cplusplus
}
#endif
#endif

/* Memory of a device, and copies to and from it.
 *
 * Copies and fills are ordered with the device's work and are complete when the function returns, except those named "queue".
 */
#ifndef BPPSA_CORE_COMPUTE_MEMORY_H
#define BPPSA_CORE_COMPUTE_MEMORY_H

#include "core/compute/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates uninitialised memory of the device; host memory if device is NULL. 0 bytes give a pointer that may be freed.
 * ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_memory_alloc(const bppsa_device *device, int64_t bytes, void **data);
void bppsa_memory_free(const bppsa_device *device, void *data); /* NULL data is legal */

/* Copies from host memory to the device, and back. ERR_CUDA. */
bppsa_status bppsa_memory_put(const bppsa_device *device, void *to, const void *from_host, int64_t bytes);
bppsa_status bppsa_memory_get(const bppsa_device *device, void *to_host, const void *from, int64_t bytes);
/* Sets all bytes to 0. ERR_CUDA. */
bppsa_status bppsa_memory_clear(const bppsa_device *device, void *data, int64_t bytes);
/* Bytes of a GPU's memory that are free. ERR_UNSUPPORTED: a CPU. ERR_CUDA. */
bppsa_status bppsa_memory_available(const bppsa_device *device, int64_t *bytes);
/* Bytes of a GPU's L2 cache. ERR_UNSUPPORTED: the device is no GPU. ERR_CUDA. */
bppsa_status bppsa_memory_cache(const bppsa_device *device, int64_t *bytes);
/* Bytes of a GPU's memory that this process took with bppsa_memory_alloc and has not freed, to the byte; what libraries and
 * recordings take for themselves is not in it. 0 for a CPU, whose bytes core/base/alloc.h counts. */
int64_t bppsa_memory_held(const bppsa_device *device);

/* Allocates host memory for the copies below, which a GPU can read and write by itself (pinned); ordinary memory for a CPU. Not
 * initialised. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_memory_alloc_staging(const bppsa_device *device, int64_t bytes, void **data);
void bppsa_memory_free_staging(const bppsa_device *device, void *data); /* NULL data is legal */

/* Like put and get, but they are only queued: the host memory is in use until bppsa_device_wait. They may be recorded
 * (core/compute/graph.h). ERR_CUDA. */
bppsa_status bppsa_memory_queue_put(const bppsa_device *device, void *to, const void *from_staging, int64_t bytes);
bppsa_status bppsa_memory_queue_get(const bppsa_device *device, void *to_staging, const void *from, int64_t bytes);

/* Sets all bytes to 0; only queued too. ERR_CUDA. */
bppsa_status bppsa_memory_queue_clear(const bppsa_device *device, void *data, int64_t bytes);

/* Copies `rows` rows of `width` bytes within the device's memory; the rows begin `to_stride` and `from_stride` bytes apart. It is
 * queued too; on a CPU it is done at once. ERR_CUDA. */
bppsa_status bppsa_memory_queue_copy(const bppsa_device *device, void *to, int64_t to_stride, const void *from,
                                     int64_t from_stride, int64_t width, int64_t rows);

#ifdef __cplusplus
}
#endif
#endif

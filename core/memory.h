/* Memory of a device: what data sets, tests and executors move to it and from it.
 *
 * Copies and fills are ordered with the device's work and have happened when they return, except those whose name says "queue".
 */
#ifndef BPPSA_CORE_MEMORY_H
#define BPPSA_CORE_MEMORY_H

#include "core/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bytes of the device's memory, not initialised; NULL for the device is the host. 0 bytes give a pointer that may be freed.
 * ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_memory_alloc(const bppsa_device *device, int64_t bytes, void **data);
void bppsa_memory_free(const bppsa_device *device, void *data); /* NULL data is legal */

/* From host memory to the device's, and back. ERR_CUDA. */
bppsa_status bppsa_memory_put(const bppsa_device *device, void *to, const void *from_host, int64_t bytes);
bppsa_status bppsa_memory_get(const bppsa_device *device, void *to_host, const void *from, int64_t bytes);
/* All bytes 0. ERR_CUDA. */
bppsa_status bppsa_memory_clear(const bppsa_device *device, void *data, int64_t bytes);
/* Bytes of a GPU's memory that nobody holds. ERR_UNSUPPORTED: a CPU. ERR_CUDA. */
bppsa_status bppsa_memory_available(const bppsa_device *device, int64_t *bytes);

/* Host memory for the copies below, which a GPU reads and writes by itself (pinned); ordinary memory for a CPU. Not initialised.
 * ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_memory_alloc_staging(const bppsa_device *device, int64_t bytes, void **data);
void bppsa_memory_free_staging(const bppsa_device *device, void *data); /* NULL data is legal */

/* As put and get, but they only take their turn in the device's work: the host memory is read or written until bppsa_device_wait.
 * They may be recorded (core/graph.h). ERR_CUDA. */
bppsa_status bppsa_memory_queue_put(const bppsa_device *device, void *to, const void *from_staging, int64_t bytes);
bppsa_status bppsa_memory_queue_get(const bppsa_device *device, void *to_staging, const void *from, int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif

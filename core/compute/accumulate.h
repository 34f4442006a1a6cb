/* Adds arrays in the memory of a device. */
#ifndef BPPSA_CORE_COMPUTE_ACCUMULATE_H
#define BPPSA_CORE_COMPUTE_ACCUMULATE_H

#include "core/compute/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to[i] += from[i], i < count; f32 or f64, both arrays in the device's memory (NULL: the host's). On a GPU it is queued.
 * ERR_UNSUPPORTED: another dtype. ERR_CUDA. */
bppsa_status bppsa_accumulate(const bppsa_device *device, bppsa_dtype dtype, int64_t count, const void *from, void *to);

#ifdef __cplusplus
}
#endif
#endif

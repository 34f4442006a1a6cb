/* Adds arrays on a GPU, for core/compute/accumulate.c. Internal. */
#ifndef BPPSA_CORE_COMPUTE_ACCUMULATE_INTERNAL_H
#define BPPSA_CORE_COMPUTE_ACCUMULATE_INTERNAL_H

#include "core/compute/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bppsa_accumulate for at least one element of f32 or f64. */
bppsa_status bppsa_accumulate_queue(const bppsa_device *device, bppsa_dtype dtype, int64_t count, const void *from, void *to);

#ifdef __cplusplus
}
#endif
#endif

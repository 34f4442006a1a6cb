/* The functions of core/compute/device.h for a GPU. index: number of the GPU. */
#ifndef BPPSA_CORE_COMPUTE_DEVICE_INTERNAL_H
#define BPPSA_CORE_COMPUTE_DEVICE_INTERNAL_H

#include <stdint.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a stream that does not wait for the default stream. It has the highest priority, so that other work runs only where this
 * stream leaves room. ERR_CUDA; ERR_UNSUPPORTED in a build without CUDA. */
bppsa_status bppsa_cuda_stream_create(int32_t index, void **stream);
void bppsa_cuda_stream_destroy(int32_t index, void *stream);
/* Waits until all work queued on the stream is done. ERR_CUDA: some of it failed; ERR_UNSUPPORTED in a build without CUDA. */
bppsa_status bppsa_cuda_wait(int32_t index, void *stream);

#ifdef __cplusplus
}
#endif
#endif

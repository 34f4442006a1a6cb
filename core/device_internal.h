/* The GPU's side of core/device.h: its streams. index: of the GPU. */
#ifndef BPPSA_CORE_DEVICE_INTERNAL_H
#define BPPSA_CORE_DEVICE_INTERNAL_H

#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Streams do not wait for the default one, and are of the highest priority: work beside them takes what they leave free.
 * ERR_CUDA; ERR_UNSUPPORTED in a build without CUDA. */
bppsa_status bppsa_cuda_stream_create(int32_t index, void **stream);
void bppsa_cuda_stream_destroy(int32_t index, void *stream);
/* All work queued on the stream is done. ERR_CUDA: some of it failed; ERR_UNSUPPORTED in a build without CUDA. */
bppsa_status bppsa_cuda_wait(int32_t index, void *stream);

#ifdef __cplusplus
}
#endif
#endif

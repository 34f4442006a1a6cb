/* The functions of core/compute/memory.h for a GPU. index: number of the GPU. */
#ifndef BPPSA_CORE_COMPUTE_MEMORY_INTERNAL_H
#define BPPSA_CORE_COMPUTE_MEMORY_INTERNAL_H

#include "core/base/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

bppsa_status bppsa_cuda_alloc(int32_t index, int64_t bytes, void **data);
void bppsa_cuda_free(int32_t index, void *data);
bppsa_status bppsa_cuda_put(int32_t index, void *stream, void *to, const void *from_host, int64_t bytes);
bppsa_status bppsa_cuda_get(int32_t index, void *stream, void *to_host, const void *from, int64_t bytes);
bppsa_status bppsa_cuda_clear(int32_t index, void *stream, void *data, int64_t bytes);
bppsa_status bppsa_cuda_alloc_staging(int32_t index, int64_t bytes, void **data);
void bppsa_cuda_free_staging(int32_t index, void *data);
bppsa_status bppsa_cuda_queue_put(int32_t index, void *stream, void *to, const void *from_staging, int64_t bytes);
bppsa_status bppsa_cuda_queue_get(int32_t index, void *stream, void *to_staging, const void *from, int64_t bytes);
bppsa_status bppsa_cuda_queue_clear(int32_t index, void *stream, void *data, int64_t bytes);
bppsa_status bppsa_cuda_queue_copy(int32_t index, void *stream, void *to, int64_t to_stride, const void *from,
                                   int64_t from_stride, int64_t width, int64_t rows);
bppsa_status bppsa_cuda_cache(int32_t index, int64_t *bytes);
bppsa_status bppsa_cuda_available(int32_t index, int64_t *bytes);
int64_t bppsa_cuda_held(int32_t index);

#ifdef __cplusplus
}
#endif
#endif

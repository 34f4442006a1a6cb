/* In a build without CUDA no arrays are in GPU memory. */
#include "core/compute/accumulate_internal.h"

bppsa_status bppsa_accumulate_queue(const bppsa_device *device, bppsa_dtype dtype, int64_t count, const void *from, void *to) {
  (void)device, (void)dtype, (void)count, (void)from, (void)to;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "sum of arrays on a GPU: this build has no CUDA; use device cpu");
}

/* Stands in for peak_cuda.cu in a build without CUDA, in which no GPU device exists. */
#include "core/measure/peak_internal.h"

bppsa_status bppsa_peak_cuda(const bppsa_device *device, bppsa_dtype dtype, bppsa_peak *peak) {
  (void)device, (void)dtype, (void)peak;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "peak: this build has no CUDA; use device cpu");
}

/* Stands in for jacobian_cuda.cu in a build without CUDA, in which no GPU device exists. */
#include "jacobian/jacobian_internal.h"

bppsa_status bppsa_jacobian_cuda_create(bppsa_jacobian *j, const bppsa_device *device) {
  (void)j, (void)device;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "Jacobian: this build has no CUDA; use device cpu");
}

void bppsa_jacobian_cuda_destroy(struct bppsa_jacobian_gpu *gpu) {
  (void)gpu;
}

bppsa_status bppsa_jacobian_cuda_fill(const bppsa_jacobian *j, bppsa_dtype dtype, const bppsa_jacobian_operands *o,
                                      void *values) {
  (void)j, (void)dtype, (void)o, (void)values;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "Jacobian: this build has no CUDA; use device cpu");
}

int64_t bppsa_jacobian_cuda_bytes(const struct bppsa_jacobian_gpu *gpu) {
  (void)gpu;
  return 0;
}

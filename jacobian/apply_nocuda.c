/* Stands in for apply_cuda.cu in a build without CUDA. */
#include "jacobian/apply_internal.h"

bppsa_status bppsa_apply_cuda_run(const bppsa_apply_pass *passes, int64_t count, int64_t batch, void *stream) {
  (void)passes, (void)count, (void)batch, (void)stream;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "mat-vec: this build has no CUDA; use device cpu");
}

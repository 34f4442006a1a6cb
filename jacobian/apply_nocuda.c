/* The place of apply_cuda.cu in a build without CUDA. */
#include "jacobian/apply_internal.h"

bppsa_status bppsa_apply_cuda_run(const bppsa_apply *a, void *stream, int64_t batch, bppsa_csr_values values, const void *x,
                                  void *y) {
  (void)a, (void)stream, (void)batch, (void)values, (void)x, (void)y;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "mat-vec: this build has no CUDA; use device cpu");
}

/* Stands in for product_cuda.cu in a build without CUDA. */
#include "jacobian/product_internal.h"

bppsa_status bppsa_product_cuda_prepare(const bppsa_product *p) {
  (void)p;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "product: this build has no CUDA; use device cpu");
}

bppsa_status bppsa_product_cuda_run(const bppsa_product_pass *first, int64_t count, int64_t batch, void *stream) {
  (void)count, (void)batch, (void)stream;
  return bppsa_product_cuda_prepare(first->product);
}

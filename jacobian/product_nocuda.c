/* The place of product_cuda.cu in a build without CUDA. */
#include "jacobian/product_internal.h"

bppsa_status bppsa_product_cuda_prepare(const bppsa_product *p) {
  (void)p;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "product: this build has no CUDA; use device cpu");
}

bppsa_status bppsa_product_cuda_run(const bppsa_product *p, void *stream, int64_t samples, bppsa_csr_values a, bppsa_csr_values b,
                                    void *c) {
  (void)stream, (void)samples, (void)a, (void)b, (void)c;
  return bppsa_product_cuda_prepare(p);
}

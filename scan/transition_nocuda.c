/* In a build without CUDA no transitions are in GPU memory. */
#include "scan/transition_internal.h"

static bppsa_status refuse(void) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "transition on a GPU: this build has no CUDA; use device cpu");
}

bppsa_status bppsa_transition_cuda_prepare(const bppsa_device *device, const bppsa_transition_sizes *sizes) {
  (void)device, (void)sizes;
  return refuse();
}

bppsa_status bppsa_transition_cuda_measure(const bppsa_device *device, const bppsa_transition_sizes *sizes, int64_t samples,
                                           const bppsa_scan_product *product) {
  (void)device, (void)sizes, (void)samples, (void)product;
  return refuse();
}

bppsa_status bppsa_transition_cuda_mark(const bppsa_device *device, const bppsa_transition_sizes *sizes, const uint8_t *cuts,
                                        int64_t elements, int64_t batch, int64_t parts, const bppsa_scan_product *products) {
  (void)device, (void)sizes, (void)cuts, (void)elements, (void)batch, (void)parts, (void)products;
  return refuse();
}

bppsa_status bppsa_transition_cuda_join(const bppsa_device *device, const bppsa_transition_joins *joins) {
  (void)device, (void)joins;
  return refuse();
}

bppsa_status bppsa_transition_cuda_apply(const bppsa_device *device, const bppsa_transition_sizes *sizes, int64_t batch,
                                         const bppsa_scan_product *product, const void *in, void *out, int32_t *useless) {
  (void)device, (void)sizes, (void)batch, (void)product, (void)in, (void)out, (void)useless;
  return refuse();
}

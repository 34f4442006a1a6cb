/* Stands in for scan_cuda.cu in a build without CUDA. */
#include "scan/scan_internal.h"

bppsa_status bppsa_scan_cuda_create(const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor) {
  (void)plan, (void)executor;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "scan: device %s: this build has no CUDA; use device cpu",
                    bppsa_device_get_name(device));
}

bppsa_status bppsa_scan_cuda_create_in(const bppsa_scan_plan *plan, const bppsa_device *device, void *memory,
                                       bppsa_scan_executor **executor) {
  (void)memory;
  return bppsa_scan_cuda_create(plan, device, executor); /* this call gives the reason */
}

bppsa_status bppsa_scan_cuda_bytes(const bppsa_scan_plan *plan, int64_t *bytes) {
  (void)plan, (void)bytes;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "scan on a GPU: this build has no CUDA; use device cpu");
}

bppsa_status bppsa_scan_cuda_products(bppsa_scan_executor *executor, const bppsa_scan_operands *o, int64_t parts,
                                      const bppsa_scan_product *to) {
  (void)executor, (void)o, (void)parts, (void)to;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "scan on a GPU: this build has no CUDA; use device cpu");
}

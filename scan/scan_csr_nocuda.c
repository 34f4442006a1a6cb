/* Stands in for scan_csr_cuda.cu in a build without CUDA. */
#include "scan/scan_internal.h"

bppsa_status bppsa_scan_csr_cuda_create(const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor) {
  return bppsa_scan_cuda_create(plan, device, executor); /* this call gives the reason */
}

bppsa_csr_values bppsa_scan_csr_cuda_product(const bppsa_scan_executor *executor, const bppsa_scan_operands *operands) {
  return bppsa_scan_csr_product(executor, operands); /* no executor is on a GPU */
}

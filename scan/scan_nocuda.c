/* Stands in for scan_cuda.cu in a build without CUDA. */
#include "scan/scan_internal.h"

bppsa_status bppsa_scan_cuda_create(const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor) {
  (void)plan, (void)executor;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "scan: device %s: this build has no CUDA; use device cpu",
                    bppsa_device_get_name(device));
}

/* bppsa_cuda_probe in a build without CUDA, which has no streams. */
#include <stdio.h>
#include <string.h>

#include "core/compute/device.h"
#include "core/compute/device_internal.h"

void bppsa_cuda_probe(bppsa_cuda_report *report) {
  if (report == NULL) {
    return;
  }
  memset(report, 0, sizeof *report);
  snprintf(
      report->detail, sizeof report->detail,
      "built without CUDA: install the CUDA toolkit 13 (package cuda-toolkit-13-0 of NVIDIA's repository) and configure with "
      "-DBPPSA_WITH_CUDA=ON");
}

static bppsa_status without(void) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "GPU: this build has no CUDA; use device cpu");
}

bppsa_status bppsa_cuda_stream_create(int32_t index, void **stream) {
  (void)index, (void)stream;
  return without();
}

void bppsa_cuda_stream_destroy(int32_t index, void *stream) {
  (void)index, (void)stream;
}

bppsa_status bppsa_cuda_wait(int32_t index, void *stream) {
  (void)index, (void)stream;
  return without();
}

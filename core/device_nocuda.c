/* bppsa_cuda_probe of a build without CUDA. */
#include <stdio.h>
#include <string.h>

#include "core/device.h"

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

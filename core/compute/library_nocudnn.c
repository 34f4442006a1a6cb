/* Stands in for library_cudnn.c in a build without cuDNN. */
#include <stdio.h>

#include "core/compute/cudnn.h"

void bppsa_cudnn_probe(bppsa_cudnn_report *report) {
  *report = (bppsa_cudnn_report){.built = false};
  snprintf(report->detail, sizeof report->detail,
           "install it (package cudnn9-cuda-13 of NVIDIA's repository) beside the CUDA toolkit and configure with "
           "-DBPPSA_WITH_CUDNN=ON");
}

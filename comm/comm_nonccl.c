/* Replaces comm_nccl.c in a build without NCCL's header. */
#include <stdio.h>

#include "comm/comm_internal.h"

#define MISSING                                                                                                                  \
  "not in this build: it needs the CUDA backend and nccl.h (packages libnccl2 libnccl-dev of NVIDIA's repository, "              \
  "-DBPPSA_WITH_NCCL=ON)"

void bppsa_comm_probe_nccl(bppsa_comm_transport_report *report) {
  snprintf(report->detail, sizeof report->detail, MISSING);
}

bppsa_status bppsa_comm_create_nccl(bppsa_comm *host, const bppsa_device *device, bppsa_comm **comm) {
  BPPSA_REQUIRE(host != NULL && comm != NULL);
  (void)device;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "transport nccl: " MISSING);
}

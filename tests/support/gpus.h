/* Which GPUs the ranks of a test share: four emulated ones (SIMT_DEVICES), otherwise the machine's. */
#ifndef BPPSA_TESTS_SUPPORT_GPUS_H
#define BPPSA_TESTS_SUPPORT_GPUS_H

#include <stdlib.h>

#include "comm/comm.h"
#include "tests/support/support.h"

/* Returns the number of GPUs; 0: the test's device is the CPU. Skips the test if the device is missing. nccl: whether NCCL
 * connects them. */
static inline int gpus_of_ranks(bool *nccl) {
  bppsa_comm_transport_report reports[BPPSA_COMM_TRANSPORT_COUNT];
  bppsa_cuda_report found = {0};
  (void)setenv("SIMT_DEVICES", "4", 1);
  bppsa_device *tried = test_device(1);
  if (bppsa_device_get_kind(tried) == BPPSA_CUDA) {
    bppsa_cuda_probe(&found);
  }
  bppsa_comm_transports(reports);
  *nccl = found.devices > 0 && reports[BPPSA_COMM_NCCL].found;
  bppsa_device_destroy(tried);
  return found.devices;
}

#endif

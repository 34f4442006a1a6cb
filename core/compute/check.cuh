/* Turns a CUDA error into a status. */
#ifndef BPPSA_CORE_COMPUTE_CHECK_CUH
#define BPPSA_CORE_COMPUTE_CHECK_CUH

#include "core/base/status.h"
#include "core/compute/launch.cuh"

/* ERR_MEMORY or ERR_CUDA with a message of `what` and the runtime's text. Clears errors that are not sticky. */
static inline bppsa_status bppsa_cuda_check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) {
    return BPPSA_OK;
  }
  (void)cudaGetLastError();
  return bppsa_fail(error == cudaErrorMemoryAllocation ? BPPSA_ERR_MEMORY : BPPSA_ERR_CUDA, "%s: %s (%s), expected success", what,
                    cudaGetErrorString(error), cudaGetErrorName(error));
}

#endif

/* The NCCL library, loaded when it is first needed: every function that is called, by its own name. */
#ifndef BPPSA_COMM_LIBRARY_NCCL_H
#define BPPSA_COMM_LIBRARY_NCCL_H

#include <nccl.h>

#include "core/status.h"

/* The functions that are called: a member of the table below each, and a look-up. */
#define NCCL_FUNCTIONS(with)                                                                                                     \
  with(ncclGetVersion) with(ncclGetErrorString) with(ncclGetUniqueId) with(ncclCommInitRankConfig) with(ncclCommDestroy)         \
      with(ncclCommAbort) with(ncclCommGetAsyncError) with(ncclGroupStart) with(ncclGroupEnd) with(ncclSend) with(ncclRecv)      \
          with(ncclBroadcast) with(ncclAllReduce)

#define NCCL_MEMBER(function) __typeof__(function) *function;
typedef struct {
  NCCL_FUNCTIONS(NCCL_MEMBER)
} nccl_library;

/* The library, the same at every call. ERR_UNSUPPORTED: it is not there; the loader's words. */
bppsa_status bppsa_nccl_load(const nccl_library **library);

#endif

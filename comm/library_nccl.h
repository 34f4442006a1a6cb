/* The NCCL library, loaded when it is first needed: a table of the functions that this library calls, under NCCL's names. */
#ifndef BPPSA_COMM_LIBRARY_NCCL_H
#define BPPSA_COMM_LIBRARY_NCCL_H

#include <nccl.h>

#include "core/base/status.h"

/* The NCCL functions that are called. Each becomes a member of the table below and is looked up when NCCL is loaded. */
#define NCCL_FUNCTIONS(with)                                                                                                     \
  with(ncclGetVersion) with(ncclGetErrorString) with(ncclGetUniqueId) with(ncclCommInitRankConfig) with(ncclCommDestroy)         \
      with(ncclCommAbort) with(ncclCommGetAsyncError) with(ncclGroupStart) with(ncclGroupEnd) with(ncclSend) with(ncclRecv)      \
          with(ncclBroadcast) with(ncclAllReduce) with(ncclReduceScatter)

#define NCCL_MEMBER(function) __typeof__(function) *function;
typedef struct {
  NCCL_FUNCTIONS(NCCL_MEMBER)
} nccl_library;

/* Loads NCCL; later calls return the same table. ERR_UNSUPPORTED: NCCL cannot be loaded, with the loader's message. */
bppsa_status bppsa_nccl_load(const nccl_library **library);

#endif

/* The cuBLAS library, loaded when it is first needed. A table holds the functions that are called, under their own names. */
#ifndef BPPSA_BENCH_RIVALS_LIBRARY_CUBLAS_H
#define BPPSA_BENCH_RIVALS_LIBRARY_CUBLAS_H

#include <cublas_v2.h>

#include "core/base/status.h"

/* The functions that are called. Each becomes a member of the table below and is looked up by its name. The header's short names,
 * such as cublasCreate, are macros for these. */
#define CUBLAS_FUNCTIONS(with)                                                                                                   \
  with(cublasGetStatusString) with(cublasCreate_v2) with(cublasDestroy_v2) with(cublasSetStream_v2) with(cublasSetWorkspace_v2)  \
      with(cublasSetMathMode) with(cublasSgemm_v2)

#define CUBLAS_MEMBER(function) __typeof__(function) *function;
typedef struct {
  CUBLAS_FUNCTIONS(CUBLAS_MEMBER)
} cublas_library;

/* Returns the library, the same at every call. ERR_UNSUPPORTED, with the loader's message: it is not installed, or it is not the
 * version that the program was built for. */
bppsa_status bppsa_cublas_load(const cublas_library **library);

#endif

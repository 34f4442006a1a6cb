/* The cuBLAS library, loaded when it is first needed: every function that is called, by its own name. */
#ifndef BPPSA_CLI_LIBRARY_CUBLAS_H
#define BPPSA_CLI_LIBRARY_CUBLAS_H

#include <cublas_v2.h>

#include "core/status.h"

/* The functions that are called: a member of the table below each, and a look-up. The header's short names, cublasCreate, are
 * macros for these. */
#define CUBLAS_FUNCTIONS(with)                                                                                                   \
  with(cublasGetStatusString) with(cublasCreate_v2) with(cublasDestroy_v2) with(cublasSetStream_v2) with(cublasSetWorkspace_v2)  \
      with(cublasSetMathMode) with(cublasSgemm_v2)

#define CUBLAS_MEMBER(function) __typeof__(function) *function;
typedef struct {
  CUBLAS_FUNCTIONS(CUBLAS_MEMBER)
} cublas_library;

/* The library, the same at every call. ERR_UNSUPPORTED: it is not there, or not of the version it was built for; the loader's
 * words. */
bppsa_status bppsa_cublas_load(const cublas_library **library);

#endif

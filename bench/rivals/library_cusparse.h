/* The cuSPARSE library, loaded when it is first needed. A table holds the functions that are called, under their own names. */
#ifndef BPPSA_BENCH_RIVALS_LIBRARY_CUSPARSE_H
#define BPPSA_BENCH_RIVALS_LIBRARY_CUSPARSE_H

#define DISABLE_CUSPARSE_DEPRECATED /* without this, calls of SpGEMMreuse give warnings */
#include <cusparse.h>

#include "core/base/status.h"

/* SpGEMMreuse is deprecated after CUDA 13.0, whose cuSPARSE is 12.6; the next major version does not have it. */
#define BPPSA_CUSPARSE_REUSE (CUSPARSE_VER_MAJOR <= 12)

/* The functions that are called. Each becomes a member of the table below and is looked up by its name. */
#define CUSPARSE_FUNCTIONS(with)                                                                                                 \
  with(cusparseGetErrorString) with(cusparseCreate) with(cusparseDestroy) with(cusparseSetStream) with(cusparseCreateCsr)        \
      with(cusparseDestroySpMat) with(cusparseSpMatGetSize) with(cusparseCsrSetPointers) with(cusparseSpGEMM_createDescr)        \
          with(cusparseSpGEMM_destroyDescr) with(cusparseSpGEMM_workEstimation) with(cusparseSpGEMM_compute)                     \
              with(cusparseSpGEMM_copy)
#if BPPSA_CUSPARSE_REUSE
#define CUSPARSE_REUSE_FUNCTIONS(with)                                                                                           \
  with(cusparseSpGEMMreuse_workEstimation) with(cusparseSpGEMMreuse_nnz) with(cusparseSpGEMMreuse_copy)                          \
      with(cusparseSpGEMMreuse_compute)
#else
#define CUSPARSE_REUSE_FUNCTIONS(with)
#endif

#define CUSPARSE_MEMBER(function) __typeof__(function) *function;
typedef struct {
  CUSPARSE_FUNCTIONS(CUSPARSE_MEMBER)
  CUSPARSE_REUSE_FUNCTIONS(CUSPARSE_MEMBER)
} cusparse_library;

/* Returns the library, the same at every call. ERR_UNSUPPORTED, with the loader's message: it is not installed, or it is not the
 * version that the program was built for. */
bppsa_status bppsa_cusparse_load(const cusparse_library **library);

#endif

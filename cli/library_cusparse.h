/* The cuSPARSE library, loaded when it is first needed: every function that is called, by its own name. */
#ifndef BPPSA_CLI_LIBRARY_CUSPARSE_H
#define BPPSA_CLI_LIBRARY_CUSPARSE_H

#define DISABLE_CUSPARSE_DEPRECATED /* SpGEMMreuse is called all the same */
#include <cusparse.h>

#include "core/status.h"

/* Products that reuse a structure are deprecated after CUDA 13.0, whose cuSPARSE is 12.6: a later major version is without them. */
#define BPPSA_CUSPARSE_REUSE (CUSPARSE_VER_MAJOR <= 12)

/* The functions that are called: a member of the table below each, and a look-up. */
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

/* The library, the same at every call. ERR_UNSUPPORTED: it is not there, or not of the version it was built for; the loader's
 * words. */
bppsa_status bppsa_cusparse_load(const cusparse_library **library);

#endif

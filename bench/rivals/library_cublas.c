#include "bench/rivals/library_cublas.h"

#include "core/compute/library.h"

static cublas_library loaded;
static const bppsa_library_function functions[] = {CUBLAS_FUNCTIONS(BPPSA_LIBRARY_FUNCTION)};
static const bppsa_library list[] = {BPPSA_LIBRARY("libcublas.so." BPPSA_LIBRARY_TEXT(CUBLAS_VER_MAJOR), NULL, functions),
                                     {.file = NULL}};
static bppsa_libraries libraries = BPPSA_LIBRARIES(list);

bppsa_status bppsa_cublas_load(const cublas_library **library) {
  const char *problem = bppsa_libraries_load(&libraries);
  if (problem != NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuBLAS: %s, expected the library beside the program or in LD_LIBRARY_PATH",
                      problem);
  }
  *library = &loaded;
  return BPPSA_OK;
}

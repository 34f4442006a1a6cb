#include "comm/library_nccl.h"

#include "core/compute/library.h"

static nccl_library loaded;
static const bppsa_library_function functions[] = {NCCL_FUNCTIONS(BPPSA_LIBRARY_FUNCTION)};
static const bppsa_library list[] = {BPPSA_LIBRARY("libnccl.so." BPPSA_LIBRARY_TEXT(NCCL_MAJOR), NULL, functions),
                                     {.file = NULL}};
static bppsa_libraries libraries = BPPSA_LIBRARIES(list);

bppsa_status bppsa_nccl_load(const nccl_library **library) {
  const char *problem = bppsa_libraries_load(&libraries);
  if (problem != NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "NCCL: %s, expected the library (package libnccl2) in the loader's path", problem);
  }
  *library = &loaded;
  return BPPSA_OK;
}

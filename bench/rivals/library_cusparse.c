#include "bench/rivals/library_cusparse.h"

#include "core/compute/library.h"

static cusparse_library loaded;
static const bppsa_library_function functions[] = {CUSPARSE_FUNCTIONS(BPPSA_LIBRARY_FUNCTION)
                                                       CUSPARSE_REUSE_FUNCTIONS(BPPSA_LIBRARY_FUNCTION)};
static const bppsa_library list[] = {BPPSA_LIBRARY("libcusparse.so." BPPSA_LIBRARY_TEXT(CUSPARSE_VER_MAJOR), NULL, functions),
                                     {.file = NULL}};
static bppsa_libraries libraries = BPPSA_LIBRARIES(list);

bppsa_status bppsa_cusparse_load(const cusparse_library **library) {
  const char *problem = bppsa_libraries_load(&libraries);
  if (problem != NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuSPARSE: %s, expected the library beside the program or in LD_LIBRARY_PATH",
                      problem);
  }
  *library = &loaded;
  return BPPSA_OK;
}

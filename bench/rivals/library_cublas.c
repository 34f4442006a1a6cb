#include "bench/rivals/library_cublas.h"

#include <pthread.h>

#include "core/compute/library.h"

#define TEXT_OF(value) #value
#define TEXT(value) TEXT_OF(value)
#define FILE_NAME "libcublas.so." TEXT(CUBLAS_VER_MAJOR)

static cublas_library loaded;
static char problem[256]; /* why it could not be loaded; "" when it is loaded */

static void load(void) {
#define LOOK_UP(function) {#function, (void **)(void *)&loaded.function},
  const bppsa_library_function functions[] = {CUBLAS_FUNCTIONS(LOOK_UP)};
  if (bppsa_library_load(FILE_NAME, sizeof functions / sizeof functions[0], functions, problem, sizeof problem)) {
    problem[0] = '\0';
  }
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

bppsa_status bppsa_cublas_load(const cublas_library **library) {
  (void)pthread_once(&once, load);
  if (problem[0] != '\0') {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuBLAS: %s, expected the library beside the program or in LD_LIBRARY_PATH",
                      problem);
  }
  *library = &loaded;
  return BPPSA_OK;
}

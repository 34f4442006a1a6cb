#include "comm/library_nccl.h"

#include <pthread.h>

#include "core/compute/library.h"

#define TEXT_OF(value) #value
#define TEXT(value) TEXT_OF(value)
#define FILE_NAME "libnccl.so." TEXT(NCCL_MAJOR)

static nccl_library loaded;
static char problem[256]; /* why NCCL is not loaded; "": it is loaded */

static void load(void) {
#define LOOK_UP(function) {#function, (void **)(void *)&loaded.function},
  const bppsa_library_function functions[] = {NCCL_FUNCTIONS(LOOK_UP)};
  if (bppsa_library_load(FILE_NAME, sizeof functions / sizeof functions[0], functions, problem, sizeof problem)) {
    problem[0] = '\0';
  }
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

bppsa_status bppsa_nccl_load(const nccl_library **library) {
  (void)pthread_once(&once, load);
  if (problem[0] != '\0') {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "NCCL: %s, expected the library (package libnccl2) in the loader's path", problem);
  }
  *library = &loaded;
  return BPPSA_OK;
}

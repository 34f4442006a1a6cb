#include "cli/library_cusparse.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define TEXT_OF(value) #value
#define TEXT(value) TEXT_OF(value)
#define FILE_NAME "libcusparse.so." TEXT(CUSPARSE_VER_MAJOR)

static cusparse_library loaded;
static char problem[256]; /* "": it is loaded */

/* The loader looks first, then CUDA's own directory, which is often not in its list. What was loaded stays. */
static void load(void) {
  void *file = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL);
  if (file == NULL) {
    snprintf(problem, sizeof problem, "%s", dlerror());
    file = dlopen("/usr/local/cuda/lib64/" FILE_NAME, RTLD_NOW | RTLD_LOCAL);
  }
  if (file == NULL) {
    return;
  }
  problem[0] = '\0';
#define LOOK_UP(function) {#function, (void **)(void *)&loaded.function},
  const struct {
    const char *name;
    void **at;
  } functions[] = {CUSPARSE_FUNCTIONS(LOOK_UP) CUSPARSE_REUSE_FUNCTIONS(LOOK_UP)};
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; ++i) {
    *functions[i].at = dlsym(file, functions[i].name);
    if (*functions[i].at == NULL) {
      snprintf(problem, sizeof problem, FILE_NAME ": has no function %s", functions[i].name);
      return;
    }
  }
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

bppsa_status bppsa_cusparse_load(const cusparse_library **library) {
  (void)pthread_once(&once, load);
  if (problem[0] != '\0') {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuSPARSE: %s, expected the library beside the program or in LD_LIBRARY_PATH",
                      problem);
  }
  *library = &loaded;
  return BPPSA_OK;
}

#include "core/compute/library.h"

#include <dlfcn.h>
#include <stdio.h>

bool bppsa_library_load(const char *file, size_t count, const bppsa_library_function *functions, char *problem, size_t size) {
  char path[256];
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(problem, size, "%s", dlerror());
    snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", file);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  for (size_t i = 0; library != NULL && i < count; ++i) {
    *functions[i].at = dlsym(library, functions[i].name);
    if (*functions[i].at == NULL) {
      snprintf(problem, size, "%s: has no function %s", file, functions[i].name);
      return false;
    }
  }
  return library != NULL;
}

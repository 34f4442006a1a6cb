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

static void load_all(bppsa_libraries *libraries) {
  enum { ALONE = 255, BESIDE_PACKAGE = 199 }; /* characters of a problem that there is room for */
  char why[ALONE + 1];
  for (const bppsa_library *one = libraries->list; one->file != NULL; ++one) {
    if (!bppsa_library_load(one->file, one->count, one->functions, why, sizeof why)) {
      const bool named = one->package != NULL;
      snprintf(libraries->problem, sizeof libraries->problem, "%.*s%s%s", named ? BESIDE_PACKAGE : ALONE, why,
               named ? "; install " : "", named ? one->package : "");
      return;
    }
  }
}

const char *bppsa_libraries_load(bppsa_libraries *libraries) {
  if (!atomic_load(&libraries->tried)) {
    (void)pthread_mutex_lock(&libraries->lock);
    if (!atomic_load(&libraries->tried)) {
      load_all(libraries);
      atomic_store(&libraries->tried, true);
    }
    (void)pthread_mutex_unlock(&libraries->lock);
  }
  return libraries->problem[0] != '\0' ? libraries->problem : NULL;
}

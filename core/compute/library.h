/* Loads shared libraries at run time, so that a program runs without them where it does not need them. Internal. */
#ifndef BPPSA_CORE_COMPUTE_LIBRARY_H
#define BPPSA_CORE_COMPUTE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* A function of the library, and where to store its address. */
typedef struct {
  const char *name;
  void **at;
} bppsa_library_function;

/* Loads `file`, for example "libcudnn.so.9": first by the loader's own search, then from CUDA's directory, which is often not on
 * the loader's list. A loaded library stays loaded. false: the library or a function is missing, and `problem` says so. */
bool bppsa_library_load(const char *file, size_t count, const bppsa_library_function *functions, char *problem, size_t size);

#endif

/* Shared libraries that are loaded by the program that needs them, and are not there otherwise. Internal. */
#ifndef BPPSA_CORE_LIBRARY_H
#define BPPSA_CORE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* A function of the library, and where its address goes. */
typedef struct {
  const char *name;
  void **at;
} bppsa_library_function;

/* Loads `file`, "libcudnn.so.9": the loader looks first, then CUDA's own directory, which is often not in its list. What was
 * loaded stays. false: it or a function is not there, and `problem` says so. */
bool bppsa_library_load(const char *file, size_t count, const bppsa_library_function *functions, char *problem, size_t size);

#endif

/* Loads shared libraries at run time, so that a program runs without them where it does not need them. Internal. */
#ifndef BPPSA_CORE_COMPUTE_LIBRARY_H
#define BPPSA_CORE_COMPUTE_LIBRARY_H

#include <pthread.h>
#include <stdatomic.h>
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

/* A library whose functions a table of pointers holds. */
typedef struct {
  const char *file, *package; /* Debian's package, which the problem names; NULL: it names none */
  size_t count;
  const bppsa_library_function *functions;
} bppsa_library;

/* Libraries that are loaded together when one of their functions is first needed. */
typedef struct {
  const bppsa_library *list; /* ends with a library without a file */
  pthread_mutex_t lock;
  atomic_bool tried;
  char problem[256]; /* "": all of them are loaded */
} bppsa_libraries;

/* For `list`, where a table of pointers `loaded` has a member of the function's name. */
#define BPPSA_LIBRARY_FUNCTION(function) {#function, (void **)(void *)&loaded.function},
#define BPPSA_LIBRARY(file, package, functions)                                                                                  \
  { (file), (package), sizeof(functions) / sizeof(functions)[0], (functions) }
#define BPPSA_LIBRARIES(list)                                                                                                    \
  { (list), PTHREAD_MUTEX_INITIALIZER, false, "" }
/* The text of a version number that is a macro. */
#define BPPSA_LIBRARY_TEXT_OF(value) #value
#define BPPSA_LIBRARY_TEXT(value) BPPSA_LIBRARY_TEXT_OF(value)

/* Loads them at the first call; any thread may call it. Returns NULL, or why one of them is missing. */
const char *bppsa_libraries_load(bppsa_libraries *libraries);

#endif

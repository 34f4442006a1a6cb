#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "tests/support/json_memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"

/* The bytes in front of a block; they say if it is core/base/alloc's or malloc's. */
enum { FRONT = 16 };

static _Thread_local bool parsing;

static void *allocate(size_t bytes) {
  char *block = parsing ? malloc(bytes + FRONT) : bppsa_alloc(bytes + FRONT);
  if (block == NULL) {
    errno = ENOMEM; /* as malloc reports it */
    return NULL;
  }
  block[0] = (char)parsing;
  return block + FRONT;
}

static void release(void *pointer) {
  char *block = pointer;
  if (block != NULL && block[-FRONT] != 0) {
    free(block - FRONT);
  } else if (block != NULL) {
    bppsa_free(block - FRONT);
  }
}

void count_json_memory(void) {
  json_set_alloc_funcs(allocate, release);
}

/* Replaces jansson's function of this name, and calls it. */
json_t *json_loadb(const char *text, size_t size, size_t flags, json_error_t *error) {
  json_t *(*next)(const char *, size_t, size_t, json_error_t *) = NULL;
  void *found = dlsym(RTLD_NEXT, "json_loadb");
  memcpy(&next, &found, sizeof next);
  parsing = true;
  json_t *value = next(text, size, flags, error);
  parsing = false;
  return value;
}

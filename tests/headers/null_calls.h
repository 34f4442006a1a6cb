/* Calls of public functions with NULL; the list is made by null_calls.awk. */
#ifndef BPPSA_TESTS_HEADERS_NULL_CALLS_H
#define BPPSA_TESTS_HEADERS_NULL_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"

typedef struct {
  const char *name; /* NULL: the end */
  bool has_status;  /* otherwise the function releases something */
  bppsa_status (*call)(int64_t n);
} null_call;

extern const null_call null_calls[];

#endif

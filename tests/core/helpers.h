/* Shared by the tests of core/: cmocka, files made by hand, and the walk over all allocations. */
#ifndef BPPSA_TESTS_CORE_HELPERS_H
#define BPPSA_TESTS_CORE_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/base/status.h"

/* Replaces the file's contents, without the library. */
static inline void put_file(const char *path, const void *data, size_t bytes) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

/* Reads at most `size` bytes and returns how many there were; -1 without such a file. */
static inline long get_file(const char *path, void *data, size_t size) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    return -1;
  }
  const long bytes = (long)fread(data, 1, size, file);
  fclose(file);
  return bytes;
}

static inline void assert_message(const char *part) {
  if (strstr(bppsa_last_error(), part) == NULL) {
    fail_msg("last error is \"%s\", expected \"%s\" in it", bppsa_last_error(), part);
  }
}

/* A status, and part of the message that came with it. */
static inline void assert_error(bppsa_status status, bppsa_status expected, const char *part) {
  if (status != expected || strstr(bppsa_last_error(), part) == NULL) {
    fail_msg("%s: \"%s\", expected %s with \"%s\"", bppsa_status_name(status), bppsa_last_error(), bppsa_status_name(expected),
             part);
  }
}

/* For n = 1, 2, 3 ... calls `action` twice: allocation n and all later ones fail, then allocation n alone fails, until a call makes
 * fewer than n. Every failure must be ERR_MEMORY with a message, and leave as many blocks allocated as before. Returns how many
 * allocations the last call made. `action` frees what it makes. */
static inline int64_t walk_allocations(bppsa_status (*action)(void *), void *argument) {
  for (int64_t call = 1; call < 10000; ++call) {
    for (int alone = 0; alone < 2; ++alone) {
      const int64_t before = bppsa_alloc_live();
      (alone ? bppsa_alloc_fail_once : bppsa_alloc_fail_at)(call);
      const bppsa_status status = action(argument);
      const int64_t calls = bppsa_alloc_calls();
      bppsa_alloc_fail_at(0);
      assert_int_equal(bppsa_alloc_live(), before);
      if (status == BPPSA_OK && calls < call) {
        return calls;
      }
      assert_int_equal(status, BPPSA_ERR_MEMORY);
      assert_message("out of memory");
    }
  }
  fail_msg("does not succeed after 10000 allocations");
  return -1;
}

#endif

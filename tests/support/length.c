#include "tests/support/length.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"

bool at_full_length(void) {
  const char *length = getenv("BPPSA_TEST_LENGTH");
  return length != NULL && strcmp(length, "full") == 0;
}

void only_at_full_length(void) {
  if (!at_full_length()) {
    skip();
  }
}

bool is_drawn(int64_t of) {
  static uint64_t seed, asked;
  if (at_full_length()) {
    return true;
  }
  if (asked == 0) {
    const char *given = getenv("BPPSA_TEST_SEED");
    seed = given != NULL ? strtoull(given, NULL, 10) : 1;
    printf("a sample of its grid: BPPSA_TEST_SEED=%llu\n", (unsigned long long)seed);
  }
  return bppsa_random_double(seed, BPPSA_STREAM_TEST, asked++) * (double)of < 1;
}

/* Advice about pages changes no number and no errno. Where the system has large pages, its list of mappings shows the advice. */
#include "core/base/pages.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/alloc.h"

enum { LARGE = 9 << 20, SMALL = 1 << 20 };

static void test_values(void **state) {
  (void)state;
  unsigned char *array = bppsa_alloc(LARGE);
  assert_non_null(array);
  for (int i = 0; i < LARGE; ++i) {
    array[i] = (unsigned char)(i % 251);
  }
  errno = EDOM;
  bppsa_pages_advise(array, LARGE);
  bppsa_pages_advise(array + 3, LARGE - 5);
  bppsa_pages_advise(array, SMALL);
  bppsa_pages_advise(array, 0);
  bppsa_pages_advise(NULL, LARGE);
  assert_int_equal(errno, EDOM);
  for (int i = 0; i < LARGE; ++i) {
    assert_int_equal(array[i], i % 251);
  }
  bppsa_free(array);
}

/* Are large pages asked for at the address? */
static bool is_advised(const void *address) {
  FILE *file = fopen("/proc/self/smaps", "r");
  char line[512];
  unsigned long long first, end;
  bool here = false, advised = false;
  assert_non_null(file);
  while (fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "%llx-%llx ", &first, &end) == 2) {
      here = first <= (uintptr_t)address && (uintptr_t)address < end;
    }
    advised = advised || (here && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") != NULL);
  }
  (void)fclose(file);
  return advised;
}

static void test_mappings(void **state) {
  (void)state;
  if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0 || access("/proc/self/smaps", R_OK) != 0) {
    skip();
  }
  char *large = bppsa_alloc(LARGE), *small = bppsa_alloc(SMALL);
  assert_true(large != NULL && small != NULL);
  assert_true(is_advised(large + LARGE / 2));
  assert_false(is_advised(small + SMALL / 2));
  bppsa_free(large);
  bppsa_free(small);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_mappings)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Results for people are printable, line by line, however long they are, and printing them allocates nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "terminal/output.h"

/* Texts on both sides of 4096 bytes, and far longer ones, with what a terminal obeys and what is no UTF-8 at both ends. */
static void test_lengths(void **state) {
  (void)state;
  static const size_t sizes[] = {1, 100, 4080, 4086, 4087, 4088, 4095, 4096, 5000, 100000};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    const size_t size = sizes[i];
    char *middle = malloc(size + 1), *wanted = malloc(size + 32), *found = NULL;
    size_t written = 0;
    assert_non_null(middle);
    assert_non_null(wanted);
    memset(middle, 'a', size);
    middle[size] = '\0';
    FILE *out = open_memstream(&found, &written);
    assert_non_null(out);
    const bppsa_output to = {.out = out, .err = stderr};
    bppsa_alloc_fail_at(1);
    const bppsa_status status = bppsa_output_print(&to, "\x1b[1m\n%s\xff\n\xc3\xa9%d\xc2\x9b\n", middle, 7);
    bppsa_alloc_fail_at(0);
    assert_int_equal(status, BPPSA_OK);
    assert_int_equal(fclose(out), 0);
    (void)snprintf(wanted, size + 32, "?[1m\n%s?\n\xc3\xa9%d??\n", middle, 7);
    assert_string_equal(found, wanted);
    free(found);
    free(wanted);
    free(middle);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

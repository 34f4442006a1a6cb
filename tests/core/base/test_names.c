/* What is said in messages: names of calls, guesses of axes. */
#include <string.h>

#include "core/base/io.h"
#include "core/base/view.h"
#include "tests/support/support.h"

static void test_calls(void **state) {
  (void)state;
  for (int call = 0; call < BPPSA_IO_COUNT; ++call) {
    const char *name = bppsa_io_name((bppsa_io_call)call);
    assert_true(strlen(name) > 2 && strcmp(name, "unknown") != 0);
    for (int other = 0; other < call; ++other) {
      assert_string_not_equal(name, bppsa_io_name((bppsa_io_call)other));
    }
  }
  assert_string_equal(bppsa_io_name(BPPSA_IO_SYNC), "fsync");
  assert_string_equal(bppsa_io_name(BPPSA_IO_COUNT), "unknown");
}

static void test_guesses(void **state) {
  (void)state;
  static const struct {
    int64_t found[3], expected[3];
    const char *guess;
  } cases[] = {{{7, 5, 3}, {5, 7, 3}, "; it looks like [T, B, I]"},
               {{3, 5, 7}, {5, 7, 3}, "; it looks like [I, B, T]"},
               {{5, 7, 3}, {5, 7, 3}, ""},  /* it is what was expected */
               {{5, 8, 3}, {5, 7, 3}, ""},  /* an extent that is none of them */
               {{5, 5, 3}, {5, 3, 3}, ""}}; /* one of them twice */
  char text[64];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_shape_guess("[B, T, I]", 3, cases[i].found, cases[i].expected, text, sizeof text);
    assert_string_equal(text, cases[i].guess);
  }
  bppsa_shape_guess("[B, T, I]", 3, cases[0].found, cases[0].expected, text, 12); /* no room */
  assert_string_equal(text, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls), cmocka_unit_test(test_guesses)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Status names and the thread's last error. */
#include <pthread.h>

#include "tests/core/helpers.h"

static void names(void **state) {
  (void)state;
  static const char *const expected[] = {"OK",     "ERR_ARGUMENT", "ERR_SHAPE", "ERR_MEMORY", "ERR_UNSUPPORTED", "ERR_NUMERIC",
                                         "ERR_IO", "ERR_FORMAT",   "ERR_CUDA",  "ERR_COMM",   "ERR_LIBRARY"};
  for (int i = 0; i < 11; ++i) {
    assert_string_equal(bppsa_status_name((bppsa_status)i), expected[i]);
  }
  assert_string_equal(bppsa_status_name((bppsa_status)11), "ERR_UNKNOWN");
  assert_string_equal(bppsa_status_name((bppsa_status)-1), "ERR_UNKNOWN");
}

static void message(void **state) {
  (void)state;
  assert_int_equal(bppsa_fail(BPPSA_ERR_SHAPE, "h0: %d of %s", 3, "x"), BPPSA_ERR_SHAPE);
  assert_string_equal(bppsa_last_error(), "h0: 3 of x");
  assert_int_equal(bppsa_fail(BPPSA_ERR_IO, "again: %s and %s", bppsa_last_error(), bppsa_last_error()), BPPSA_ERR_IO);
  assert_string_equal(bppsa_last_error(), "again: h0: 3 of x and h0: 3 of x");
  assert_int_equal(bppsa_fail_prefix(BPPSA_ERR_FORMAT, "file %d", 7), BPPSA_ERR_FORMAT);
  assert_string_equal(bppsa_last_error(), "file 7: again: h0: 3 of x and h0: 3 of x");
  assert_int_equal(bppsa_fail_prefix(BPPSA_ERR_FORMAT, "%s", bppsa_last_error()), BPPSA_ERR_FORMAT);
  assert_message("x: file 7: again");
}

static void control_characters(void **state) {
  (void)state;
  bppsa_fail(BPPSA_ERR_IO, "%s", "a\nb\rc\td\x1b[31m\x7f\x01 \xc2\x9b \xc3\xa9");
  assert_string_equal(bppsa_last_error(), "a?b?c?d?[31m?? ?? \xc3\xa9");
}

/* A message is UTF-8 whatever bytes it quotes; characters of several bytes stay whole or go. */
static void other_encodings(void **state) {
  (void)state;
  static const char *const texts[][2] = {{"\x9b"
                                          "2J\xe6",
                                          "?2J?"},
                                         {"caf\xe9 au lait", "caf? au lait"},
                                         {"\xc0\x80 \xe0\x80\x80 \xf0\x80\x80\x80", "?? ??? ????"}, /* longer than needed */
                                         {"\xed\xa0\x80 \xf4\x90\x80\x80 \xff", "??? ???? ?"}, /* surrogates, above U+10FFFF */
                                         {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
                                         {"\xe2\x82", "??"}};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    bppsa_fail(BPPSA_ERR_IO, "%s", texts[i][0]);
    assert_string_equal(bppsa_last_error(), texts[i][1]);
  }
  bppsa_fail(BPPSA_ERR_IO, "'%.4s'", "a\xe2\x82\xac\xe2\x82\xac"); /* a precision that cuts nothing, and one that does */
  assert_string_equal(bppsa_last_error(), "'a\xe2\x82\xac'");
  bppsa_fail(BPPSA_ERR_IO, "'%.3s'", "a\xe2\x82\xac");
  assert_string_equal(bppsa_last_error(), "'a?"
                                          "?'");
}

static void has_control_characters(void **state) {
  (void)state;
  static const char *const with[] = {"\n", "a\x1b[2J", "a\x01", "\x1f", "b\x7f", "\xc2\x80", "a\xc2\x9b", "\xc2\x9f z"};
  static const char *const without[] = {"", " ", "a b~", "\xc2\xa0", "\xc3\xa9", "\xe2\x82\x80", "\xc3\x80", "\xc2", "\x80"};
  for (size_t i = 0; i < sizeof with / sizeof with[0]; ++i) {
    char text[16];
    snprintf(text, sizeof text, "%s", with[i]);
    assert_true(bppsa_has_control_characters(text));
    bppsa_make_printable(text);
    assert_false(bppsa_has_control_characters(text));
    assert_int_equal(strlen(text), strlen(with[i]));
  }
  for (size_t i = 0; i < sizeof without / sizeof without[0]; ++i) {
    assert_false(bppsa_has_control_characters(without[i]));
  }
}

static void long_messages_are_cut(void **state) {
  (void)state;
  char text[2000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  bppsa_fail(BPPSA_ERR_IO, "%s", text);
  assert_int_equal(strlen(bppsa_last_error()), 511);
  bppsa_fail_prefix(BPPSA_ERR_IO, "front");
  assert_int_equal(strlen(bppsa_last_error()), 511);
  assert_int_equal(strncmp(bppsa_last_error(), "front: xxx", 10), 0);
  /* a three-byte character across the cut goes as a whole, one that ends there stays */
  for (size_t start = 505; start < 512; ++start) {
    memset(text, 'x', sizeof text - 1);
    memcpy(text + start, "\xe2\x82\xac", 3);
    bppsa_fail(BPPSA_ERR_IO, "%s", text);
    assert_int_equal(strlen(bppsa_last_error()), start + 3 <= 511 || start >= 511 ? 511 : start);
  }
}

static void *other_thread(void *result) {
  *(bool *)result = bppsa_last_error()[0] == '\0';
  bppsa_fail(BPPSA_ERR_COMM, "the other thread's");
  return NULL;
}

static void one_message_a_thread(void **state) {
  (void)state;
  bool empty = false;
  bppsa_fail(BPPSA_ERR_IO, "mine");
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, other_thread, &empty), 0);
  pthread_join(thread, NULL);
  assert_true(empty);
  assert_string_equal(bppsa_last_error(), "mine");
}

static void input_status(void **state) {
  (void)state;
  assert_int_equal(bppsa_input_status(BPPSA_ERR_IO), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_input_status(BPPSA_ERR_FORMAT), BPPSA_ERR_FORMAT);
  assert_int_equal(bppsa_input_status(BPPSA_OK), BPPSA_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(names),
                                     cmocka_unit_test(message),
                                     cmocka_unit_test(control_characters),
                                     cmocka_unit_test(has_control_characters),
                                     cmocka_unit_test(other_encodings),
                                     cmocka_unit_test(long_messages_are_cut),
                                     cmocka_unit_test(one_message_a_thread),
                                     cmocka_unit_test(input_status)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

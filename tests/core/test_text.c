/* Growing text, and suggestions. */
#include "core/text.h"

#include "tests/core/helpers.h"

static void grows(void **state) {
  (void)state;
  bppsa_text text = {0};
  for (int i = 0; i < 1000; ++i) {
    bppsa_text_add(&text, "%d,", i);
  }
  assert_int_equal(bppsa_text_check(&text), BPPSA_OK);
  assert_int_equal(strlen(text.text), text.size);
  assert_int_equal(text.size, 10 * 2 + 90 * 3 + 900 * 4);
  assert_string_equal(text.text + text.size - 8, "998,999,");
  bppsa_text_free(&text);
  assert_null(text.text);
  bppsa_text_add_escaped(&text, "a<b> & \"c\"");
  assert_string_equal(text.text, "a&lt;b&gt; &amp; &quot;c&quot;");
  bppsa_text_free(&text);
}

/* After a failure nothing is added, even where there is memory again. */
static void failure_stays(void **state) {
  (void)state;
  bppsa_text text = {0};
  bppsa_text_add(&text, "kept");
  bppsa_alloc_fail_at(1);
  for (int i = 0; i < 100; ++i) {
    bppsa_text_add(&text, "0123456789");
  }
  bppsa_alloc_fail_at(0);
  const size_t size = text.size;
  bppsa_text_add(&text, "x");
  assert_int_equal(text.size, size);
  assert_int_equal(bppsa_text_check(&text), BPPSA_ERR_MEMORY);
  assert_memory_equal(text.text, "kept", 4);
  bppsa_text_free(&text);
}

static void suggestions(void **state) {
  (void)state;
  const char *const names[] = {"--seq-len", "--batch", "--hidden", "--json", "--lr", "--loss", "--log", NULL};
  assert_string_equal(bppsa_suggest("--seqlen", names), "--seq-len");
  assert_string_equal(bppsa_suggest("--seq-eln", names), "--seq-len"); /* a swap counts once */
  assert_string_equal(bppsa_suggest("-json", names), "--json");
  assert_string_equal(bppsa_suggest("--hiden", names), "--hidden");
  assert_string_equal(bppsa_suggest("--hid", names), "--hidden"); /* cut short */
  assert_string_equal(bppsa_suggest("--los", names), "--loss");
  assert_null(bppsa_suggest("--quux", names));
  assert_null(bppsa_suggest("--", names));
  assert_null(bppsa_suggest("", names));
  char longest[400];
  memset(longest, 'a', sizeof longest);
  longest[sizeof longest - 1] = '\0';
  assert_null(bppsa_suggest(longest, names));
  char hint[64];
  assert_string_equal(bppsa_suggestion("--hid", names, hint, sizeof hint), "; did you mean --hidden?");
  assert_string_equal(bppsa_suggestion("--quux", names, hint, sizeof hint), "");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(grows), cmocka_unit_test(failure_stays), cmocka_unit_test(suggestions)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

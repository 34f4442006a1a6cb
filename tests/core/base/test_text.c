/* Growing text, and suggestions. */
#include "core/base/text.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>

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
  bppsa_text_add_escaped(&text, "a<b> & \"c\" 'd'\n\t\033[31m\b");
  assert_string_equal(text.text, "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;\n\t?[31m?");
  bppsa_text_free(&text);
}

/* After a failure nothing more is added, even if memory is available again. */
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

/* Significant digits: without leading and trailing zeros, and without those of the exponent. */
static int count_digits(const char *text) {
  int count = 0, all = 0;
  for (; *text != '\0' && *text != 'e'; ++text) {
    if (*text >= '0' && *text <= '9' && (all > 0 || *text != '0')) {
      ++all;
      count = *text != '0' ? all : count;
    }
  }
  return count;
}

/* Numbers by the fewest digits that read back. */
static void reals(void **state) {
  (void)state;
  static const struct {
    double value;
    const char *text;
  } known[] = {{0, "0"},
               {-0.0, "-0"},
               {0.1, "0.1"},
               {1.0 / 3, "0.3333333333333333"},
               {-2050, "-2050"},
               {16777217, "16777217"},
               {1e15, "1000000000000000"},
               {1e16, "1e16"},
               {-1.25e20, "-1.25e20"},
               {0.00001, "0.00001"},
               {9.9e-6, "9.9e-6"},
               {1234.5, "1234.5"},
               {5e-324, "5e-324"},
               {2.2250738585072014e-308, "2.2250738585072014e-308"},
               {1.7976931348623157e308, "1.7976931348623157e308"},
               {9007199254740993.0, "9007199254740992"},
               {52.80352480417754, "52.80352480417754"},
               {NAN, "nan"},
               {-INFINITY, "-inf"}};
  char text[BPPSA_REAL_TEXT];
  for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
    assert_string_equal(bppsa_real_text(known[i].value, text), known[i].text);
  }
  uint64_t bits = 1;
  for (int i = 0; i < 200000; ++i) { /* patterns of bits: all sizes of numbers */
    double value;
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    memcpy(&value, &bits, sizeof value);
    if (isfinite(value)) {
      char shorter[BPPSA_REAL_TEXT];
      const double back = strtod(bppsa_real_text(value, text), NULL);
      assert_memory_equal(&back, &value, sizeof value);
      const int digits = count_digits(text);
      assert_in_range(digits, 1, 17);
      if (digits > 1) { /* one digit less is another number */
        snprintf(shorter, sizeof shorter, "%.*e", digits - 2, value);
        assert_true(strtod(shorter, NULL) != value);
      }
    }
  }
  bppsa_text cells = {0};
  bppsa_text_add_cells(&cells, 4, (double[]){0.5, NAN, INFINITY, 1e-7});
  assert_string_equal(cells.text, ",0.5,,,1e-7");
  bppsa_text_free(&cells);
}

/* A locale whose numbers have a comma changes nothing. Skipped if none is installed. */
static void reals_of_any_locale(void **state) {
  (void)state;
  static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE", NULL};
  int found = 0;
  while (names[found] != NULL && (setlocale(LC_NUMERIC, names[found]) == NULL || localeconv()->decimal_point[0] != ',')) {
    ++found;
  }
  if (names[found] == NULL) {
    setlocale(LC_NUMERIC, "C");
    skip();
  }
  char text[BPPSA_REAL_TEXT];
  const char *fixed = bppsa_real_text(0.1, text);
  const bool point = strcmp(fixed, "0.1") == 0 && strcmp(bppsa_real_text(-1.5e-9, text), "-1.5e-9") == 0;
  setlocale(LC_NUMERIC, "C");
  assert_true(point);
}

static const char *word(const void *context, int32_t index) {
  return ((const char *const *)context)[index];
}

static void choices(void **state) {
  (void)state;
  static const char *const words[] = {"threads", "mpi", "nccl", NULL};
  char text[40];
  assert_string_equal(bppsa_text_choices(word, words, text, sizeof text), "threads, mpi or nccl");
  assert_string_equal(bppsa_text_choices(word, words + 1, text, sizeof text), "mpi or nccl");
  assert_string_equal(bppsa_text_choices(word, words + 2, text, sizeof text), "nccl");
  assert_string_equal(bppsa_text_choices(word, words + 3, text, sizeof text), "");
  assert_string_equal(bppsa_text_choices(word, words, text, 12), "threads, mp"); /* what fits */
}

static void test_numbers(void **state) {
  static const char *const wrong[] = {"", ",", "1,", ",1", "1,,2", "1 ,2", "-1", "+1", "1,2,3,4", "12345678901", "1x", "0x1"};
  int64_t numbers[3];
  int count = -1;
  (void)state;
  assert_true(bppsa_text_numbers("3,05,9999999999", 3, numbers, &count));
  assert_int_equal(count, 3);
  assert_int_equal(numbers[0], 3);
  assert_int_equal(numbers[1], 5);
  assert_int_equal(numbers[2], INT64_C(9999999999));
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    assert_false(bppsa_text_numbers(wrong[i], 3, numbers, &count));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_numbers),       cmocka_unit_test(grows),   cmocka_unit_test(failure_stays),
      cmocka_unit_test(suggestions),        cmocka_unit_test(choices), cmocka_unit_test(reals),
      cmocka_unit_test(reals_of_any_locale)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

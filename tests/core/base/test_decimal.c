/* Numbers that are read from text: decimal notation alone. tests/train/test_locale.c has the locales. */
#include <math.h>

#include "core/base/decimal.h"
#include "tests/core/helpers.h"

static void decimal(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double value;
    size_t length;
  } good[] = {{"1.5", 1.5, 3},
              {"-2e-3,", -2e-3, 5},
              {"+0", 0, 2},
              {" \t7 x", 7, 3},
              {"0", 0, 1},
              {"00x1", 0, 2},
              {"0.5x2", 0.5, 3},
              {"1x", 1, 1},
              {"1e400", INFINITY, 5},
              {"-inf", -INFINITY, 4},
              {"infinity", INFINITY, 8},
              {"0x10", 0, 1},
              {"0X1p3", 0, 1},
              {"-0x1", 0, 2},
              {"+0X.8", 0, 2},
              {" \t\n\v\f\r0x1", 0, 7},
              {"0x", 0, 1},
              {"0xg", 0, 1}};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; ++i) {
    char *end = NULL;
    assert_true(bppsa_read_real(good[i].text, &end) == good[i].value);
    assert_ptr_equal(end, good[i].text + good[i].length);
    assert_true(bppsa_read_real(good[i].text, NULL) == good[i].value);
  }
  char *end = NULL;
  static const char not_a_number[] = "nan";
  assert_true(isnan(bppsa_read_real(not_a_number, &end)));
  assert_ptr_equal(end, not_a_number + 3);
}

static void no_number(void **state) {
  (void)state;
  static const char *const bad[] = {"", " ", "x", "-x1", "+", "e5"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    char *end = NULL;
    assert_true(bppsa_read_real(bad[i], &end) == 0);
    assert_ptr_equal(end, bad[i]);
    assert_true(bppsa_read_real(bad[i], NULL) == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(decimal), cmocka_unit_test(no_number)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

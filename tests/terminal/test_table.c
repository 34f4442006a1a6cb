/* Tables as data: every kind of column, what a row lacks, headings that stand above their columns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/json.h"
#include "terminal/table.h"

static const char *write_context(const void *context, const json_t *row, char *text, size_t size) {
  snprintf(text, size, "<%s:%lld>", (const char *)context, (long long)json_integer_value(json_object_get(row, "n")));
  return text;
}

static const bppsa_table_column columns[] = {
    {.heading = "name", .width = -6, .key = "name"},
    {.heading = "n", .width = 5, .kind = BPPSA_COLUMN_INTEGER, .key = "n"},
    {.heading = "real", .width = 8, .kind = BPPSA_COLUMN_REAL, .key = "x", .digits = 2},
    {.heading = "scaled", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "x", .scale = 1e3, .digits = 1},
    {.heading = "rate", .width = 7, .kind = BPPSA_COLUMN_REAL, .key = "n", .over = "x"},
    {.heading = "small", .width = 9, .kind = BPPSA_COLUMN_EXPONENT, .key = "x"},
    {.heading = "share", .width = 7, .kind = BPPSA_COLUMN_PERCENT, .key = "x", .over = "n"},
    {.heading = "work", .width = -10, .kind = BPPSA_COLUMN_SI, .key = "flops", .unit = "FLOP"},
    {.heading = "median", .width = 8, .kind = BPPSA_COLUMN_MARKED, .key = "x", .digits = 1},
    {.heading = "took", .width = 10, .kind = BPPSA_COLUMN_TIME, .key = "s", .missing = ""},
    {.heading = "about", .width = 10, .kind = BPPSA_COLUMN_MARKED_TIME, .key = "s", .missing = "none"},
    {.heading = "own", .width = 8, .key = "", .write = write_context},
    {0}};

typedef bppsa_status (*printer)(const bppsa_output *to, const json_t *row);

static bppsa_status print_headings(const bppsa_output *to, const json_t *row) {
  (void)row;
  return bppsa_table_print_headings(to, columns);
}

static bppsa_status print_row(const bppsa_output *to, const json_t *row) {
  return bppsa_table_print_row(to, columns, "it", row, "  WRONG");
}

static bppsa_status print_note(const bppsa_output *to, const json_t *row) {
  return bppsa_table_print_note(to, columns, "it", row, "skipped: no room");
}

static bppsa_status print_left_out(const bppsa_output *to, const json_t *row) {
  return bppsa_table_print_left_out(to, columns, row);
}

static void assert_printed(printer print, const char *row_text, const char *expected) {
  char *out = NULL;
  size_t size = 0;
  const bppsa_output to = {.out = open_memstream(&out, &size)};
  json_t *row = json_loads(row_text, 0, NULL);
  assert_non_null(row);
  assert_int_equal(print(&to, row), BPPSA_OK);
  fclose(to.out);
  assert_string_equal(out, expected);
  free(out);
  json_decref(row);
}

static void test_cells(void **state) {
  (void)state;
  assert_printed(print_headings, "{}",
                 "  name      n    real   scaled   rate    small  share  work        median      took     about     own\n");
  assert_printed(
      print_row, "{\"name\":\"conv1\",\"n\":4,\"x\":0.5,\"flops\":2500000,\"noisy\":true,\"s\":0.01}",
      "  conv1     4    0.50    500.0      8  5.0e-01    12%  2.5 MFLOP     ~0.5   10.0 ms  ~10.0 ms  <it:4>  WRONG\n");
}

/* Three digits, and the unit that keeps them short. */
static void test_times(void **state) {
  (void)state;
  static const struct {
    double seconds;
    const char *text;
  } cases[] = {{0, "0.00 us"},        {9.994e-6, "9.99 us"}, {9.996e-6, "10.0 us"}, {99.96e-6, "100 us"},
               {0.9994e-3, "999 us"}, {1e-3, "1.00 ms"},     {0.25, "250 ms"},      {1, "1.00 s "}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    char text[24];
    assert_string_equal(bppsa_table_time_text(cases[i].seconds, text, sizeof text), cases[i].text);
  }
}

/* What a row does not have, or has as null, is a dash, or what the column says instead; also as a divisor. */
static void test_missing(void **state) {
  (void)state;
  assert_printed(
      print_row, "{\"n\":4,\"x\":null}",
      "  -         4       -        -      -        -      -  -                -                none  <it:4>  WRONG\n");
}

static void test_left_out(void **state) {
  (void)state;
  assert_printed(print_left_out, "{\"name\":\"pool1\",\"reason\":\"too large\"}", "  pool1   left out: too large\n");
  assert_printed(print_left_out, "{\"reason\":\"too large\"}", "          left out: too large\n");
}

/* A note stands behind the text columns, in the place of the others. */
static void test_note(void **state) {
  (void)state;
  assert_printed(print_note, "{\"name\":\"pool1\",\"n\":4}", "  pool1  skipped: no room\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_times), cmocka_unit_test(test_note), cmocka_unit_test(test_cells),
                                     cmocka_unit_test(test_missing), cmocka_unit_test(test_left_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

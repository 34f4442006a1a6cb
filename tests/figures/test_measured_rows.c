/* The methods of the tables, and what the rows say of them. */
#include <math.h>

#include "figures/lockstep.h"
#include "figures/measured_rows.h"
#include "figures/verdict.h"
#include "tests/core/helpers.h"

/* Tables and figures have BP, every algorithm of scan/algorithm.h, and PyTorch. */
static void test_methods(void **state) {
  (void)state;
  char text[BPPSA_MEASURED_TEXT];
  int parallel = 0, first = 1;
  assert_string_equal(bppsa_measured_method(0), "bp");
  for (int a = 0; a < BPPSA_SCAN_ALGORITHMS; ++a) {
    const char *name = bppsa_scan_algorithm_name((bppsa_scan_algorithm)a);
    const bool breaks = a != BPPSA_SCAN_AUTO && !bppsa_scan_algorithm_is_bp((bppsa_scan_algorithm)a);
    assert_string_equal(bppsa_measured_method(a == BPPSA_SCAN_AUTO ? BPPSA_SCAN_ALGORITHMS : first++), name);
    assert_int_equal(bppsa_measured_is_parallel(name), breaks);
    if (breaks) {
      assert_int_equal(bppsa_measured_parallel(parallel++), a);
      assert_string_equal(bppsa_lockstep_name(parallel), name);
    }
  }
  assert_int_equal(parallel, BPPSA_MEASURED_PARALLEL);
  assert_int_equal(parallel + 1, BPPSA_LOCKSTEP_METHODS);
  assert_string_equal(bppsa_measured_method(BPPSA_MEASURED_METHODS - 1), "pytorch");
  assert_string_equal(bppsa_lockstep_name(0), "bp");
  assert_false(bppsa_measured_is_parallel("bp") || bppsa_measured_is_parallel(NULL));
  assert_string_equal(bppsa_measured_parallel_text(text, sizeof text), "blelloch and chunked");
}

static void add_row(json_t *rows, const char *phase, const char *method, double median, bool noisy) {
  json_t *row = json_pack("{s:i, s:i, s:s, s:s, s:s, s:f, s:f, s:b, s:f}", "seq_len", 9, "batch", 2, "phase", phase, "method",
                          method, "init", "default", "median_s", median, "min_s", median, "noisy", noisy, "flops", 1.0);
  assert_int_equal(json_array_append_new(rows, row), 0);
}

/* The best scan is the fastest parallel one: neither linear nor auto, however fast. */
static void test_best(void **state) {
  (void)state;
  json_t *document = json_pack("{s:{s:i}, s:[]}", "device", "threads", 3, "rows"), *rows = json_object_get(document, "rows");
  bppsa_text text = {0};
  bool noisy = true;
  assert_true(isnan(bppsa_measured_best_scan(rows, 9, 2, &noisy)));
  assert_false(noisy);
  add_row(rows, "forward", "forward", 1, false);
  add_row(rows, "backward", "bp", 3, false);
  add_row(rows, "backward", "linear", 0.5, false);
  add_row(rows, "backward", "auto", 0.25, false);
  for (int i = 0; i < BPPSA_MEASURED_PARALLEL; ++i) {
    add_row(rows, "backward", bppsa_scan_algorithm_name(bppsa_measured_parallel(i)), 7 - i, false);
  }
  const double best = 1 + 7 - (BPPSA_MEASURED_PARALLEL - 1);
  assert_true(bppsa_measured_best_scan(rows, 9, 2, &noisy) == best);
  assert_false(noisy);
  bppsa_figures_verdict(document, &text);
  assert_non_null(strstr(text.text, "with 3 threads, one forward and one backward pass of sequential BP"));
  assert_non_null(strstr(text.text, "than by every parallel scan (blelloch and chunked) at 1 of 1 measured points"));
  bppsa_text_free(&text);
  json_object_set_new(json_array_get(rows, json_array_size(rows) - 1), "noisy", json_true());
  assert_true(bppsa_measured_best_scan(rows, 9, 2, &noisy) == best);
  assert_true(noisy);
  bppsa_figures_verdict(document, &text);
  assert_non_null(strstr(text.text, "No conclusion"));
  bppsa_text_free(&text);
  json_decref(document);
}

static void test_check(void **state) {
  (void)state;
  json_t *rows = json_array();
  add_row(rows, "forward", "forward", 1, false);
  assert_int_equal(bppsa_measured_check("--results", "R.json", rows), BPPSA_OK);
  assert_int_equal(json_array_append_new(rows, json_pack("{s:i}", "seq_len", 4)), 0);
  assert_error(bppsa_measured_check("--results", "R.json", rows), BPPSA_ERR_FORMAT,
               "--results: R.json: row 1 lacks seq_len, batch, method or phase, expected a row of bench rnn");
  json_decref(rows);
}

/* Names that could be commands of a shell, break a CSV file or control a terminal, and more of them than a figure has room for. */
static void test_names(void **state) {
  (void)state;
  char longest[BPPSA_MEASURED_NAME + 2] = {0}, expected[300];
  memset(longest, 'n', BPPSA_MEASURED_NAME + 1);
  const char *const bad[] = {"a;touch x", "a'b", "a\"b", "`id`", "$(id)",   "a|b", "a,b",      "a\nb", "a\\b", "a&b",
                             "a<b",       "",    "=1",   " a",   "\033[1m", "-n",  "\xc3\xa9", "(a)",  "a%s",  longest};
  const char *const keys[] = {"group", "way",   "network", "share", "method", "model",
                              "init",  "phase", "study",   "task",  "scheme", "optimizer"};
  for (size_t k = 0; k < sizeof keys / sizeof keys[0]; ++k) {
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
      json_t *rows = json_pack("[{s:s}, {s:s}]", keys[k], "1F1B a._+=:/-", keys[k], bad[i]);
      assert_int_equal(bppsa_measured_check_rows("--results", "R.json", rows), BPPSA_ERR_FORMAT);
      snprintf(expected, sizeof expected, "--results: R.json: row 1: %s '", keys[k]);
      assert_int_equal(strncmp(bppsa_last_error(), expected, strlen(expected)), 0);
      json_array_remove(rows, 1);
      assert_int_equal(bppsa_measured_check_rows("--results", "R.json", rows), BPPSA_OK);
      json_decref(rows);
    }
  }
  longest[BPPSA_MEASURED_NAME] = '\0';
  json_t *rows = json_pack("[{s:s}]", "task", longest);
  for (int i = 1; i < 4; ++i) {
    json_array_append_new(rows, json_pack("{s:s+}", "task", "t", (const char *[]){"0", "1", "2", "3"}[i]));
  }
  while (json_array_size(rows) < BPPSA_MEASURED_ROWS) {
    json_array_append(rows, json_array_get(rows, 3));
  }
  assert_int_equal(bppsa_measured_check_rows("--results", "R.json", rows), BPPSA_OK);
  json_array_append(rows, json_array_get(rows, 3));
  assert_error(bppsa_measured_check_rows("--results", "R.json", rows), BPPSA_ERR_FORMAT,
               "--results: R.json: 1025 rows, expected at most 1024");
  json_array_remove(rows, 1024);
  json_array_set_new(rows, 1023, json_pack("{s:s}", "task", "another"));
  assert_error(bppsa_measured_check_rows("--results", "R.json", rows), BPPSA_ERR_FORMAT,
               "--results: R.json: row 1023: task 'another' is one of more than 4, expected at most so many");
  json_decref(rows);
}

/* Times that gnuplot cannot draw on a logarithmic axis; a row that failed has null. */
static void test_times(void **state) {
  (void)state;
  const char *const keys[] = {"median_s", "min_s", "max_s"};
  for (size_t k = 0; k < sizeof keys / sizeof keys[0]; ++k) {
    char expected[100];
    json_t *rows = json_pack("[{s:f}, {s:n}, {s:i}]", keys[k], 1e-15, keys[k], keys[k], 0);
    snprintf(expected, sizeof expected, "--results: R.json: row 2: %s 0, expected 1e-15 to 1e+15 seconds", keys[k]);
    assert_error(bppsa_measured_check_rows("--results", "R.json", rows), BPPSA_ERR_FORMAT, expected);
    json_object_set_new(json_array_get(rows, 2), keys[k], json_real(-1.5));
    assert_int_equal(bppsa_measured_check_rows("--results", "R.json", rows), BPPSA_ERR_FORMAT);
    json_object_set_new(json_array_get(rows, 2), keys[k], json_real(1e308));
    assert_int_equal(bppsa_measured_check_rows("--results", "R.json", rows), BPPSA_ERR_FORMAT);
    json_array_remove(rows, 2);
    assert_int_equal(bppsa_measured_check_rows("--results", "R.json", rows), BPPSA_OK);
    json_decref(rows);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_methods), cmocka_unit_test(test_best), cmocka_unit_test(test_check),
                                     cmocka_unit_test(test_names), cmocka_unit_test(test_times)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

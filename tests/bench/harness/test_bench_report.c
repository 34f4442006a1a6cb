/* Documents of benchmarks: what every one has, the file, timings, limits, counts of rows. */
#include "tests/core/helpers.h"

#include <math.h>
#include <stdlib.h>

#include "bench/harness/bench_report.h"
#include "core/base/clock.h"
#include "tests/support/rescue_folder.h"

static bppsa_device *device;

static void test_document(void **state) {
  (void)state;
  char *out = NULL;
  size_t size = 0;
  bppsa_bench_report report;
  bppsa_bench_request request = {.to = {.json = true}, .path = "report.json", .device = device};
  request.to.out = open_memstream(&out, &size);
  assert_int_equal(bppsa_bench_open(&request, "some", &report), BPPSA_OK);
  assert_int_equal(json_array_append_new(report.rows, json_integer(3)), 0);
  assert_int_equal(bppsa_bench_finish(&report), BPPSA_OK);
  json_decref(report.document);
  fclose(request.to.out);
  json_t *printed = json_loads(out, 0, NULL), *written = json_load_file("report.json", 0, NULL);
  assert_true(json_equal(printed, written));
  assert_string_equal(json_string_value(json_object_get(printed, "bench")), "some");
  const char *const keys[] = {"device", "version", "commit", "date"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
    assert_non_null(json_object_get(printed, keys[i]));
  }
  assert_string_equal(json_string_value(json_object_get(json_object_get(printed, "device"), "name")), "cpu");
  assert_int_equal(json_integer_value(json_array_get(json_object_get(printed, "rows"), 0)), 3);
  json_decref(printed);
  json_decref(written);
  free(out);
  assert_int_equal(remove("report.json"), 0);
  request = (bppsa_bench_request){.path = "missing/report.json", .device = device};
  assert_int_equal(bppsa_bench_open(&request, "some", &report), BPPSA_OK);
  rescue_to("report_rescued");
  assert_int_equal(bppsa_bench_finish(&report), BPPSA_ERR_IO);
  assert_non_null(strstr(bppsa_last_error(), rescue_folder)); /* the measurements are not lost */
  assert_int_equal(entries("report_rescued"), 1);
  remove_folder("report_rescued");
  json_decref(report.document);
}

static void test_timing(void **state) {
  (void)state;
  json_t *row = json_object();
  assert_true(bppsa_bench_put_timing(row, &(bppsa_timing){2, 1, 3, 5, true}));
  assert_true(json_number_value(json_object_get(row, "median_s")) == 2 && json_number_value(json_object_get(row, "min_s")) == 1);
  assert_true(json_number_value(json_object_get(row, "max_s")) == 3 && json_is_true(json_object_get(row, "noisy")));
  assert_int_equal(json_integer_value(json_object_get(row, "repeats")), 5);
  assert_true(bppsa_bench_put_timing(row, &(bppsa_timing){0})); /* what was not timed has no times */
  assert_true(json_is_null(json_object_get(row, "median_s")) && json_is_null(json_object_get(row, "max_s")));
  assert_int_equal(json_integer_value(json_object_get(row, "repeats")), 0);
  json_decref(row);
}

static void test_limits(void **state) {
  (void)state;
  int64_t bytes = 0, half = 0;
  bppsa_bench_request request = {.device = device, .memory_limit = 77};
  assert_int_equal(bppsa_bench_memory_limit(&request, 2, &bytes), BPPSA_OK);
  assert_int_equal(bytes, 77); /* as asked, whatever there is */
  request.memory_limit = 0;
  assert_int_equal(bppsa_bench_memory_limit(&request, 1, &bytes), BPPSA_OK);
  assert_int_equal(bppsa_bench_memory_limit(&request, 2, &half), BPPSA_OK);
  assert_true(bytes > 0 && half > bytes);
  assert_true(bppsa_bench_deadline(&request) == 0);
  request.time_limit_s = 100;
  const double deadline = bppsa_bench_deadline(&request) - bppsa_now();
  assert_true(deadline > 50 && deadline <= 100);
  request.quick = true;
  assert_true(bppsa_bench_rounds_of(&request, 2, 0.5).budget_s == 0.5);
  request.quick = false;
  request.repeats = 9;
  const bppsa_rounds rounds = bppsa_bench_rounds_of(&request, 2, 0.5);
  assert_true(rounds.budget_s == 2 && rounds.repeats == 9);
}

/* The worst residual may be NaN, and stays. */
static void test_counts(void **state) {
  (void)state;
  bppsa_bench_count_rows rows = {0};
  assert_int_equal(bppsa_bench_rows_status(&rows, 30), BPPSA_OK);
  bppsa_bench_count_row(&rows, 3, true, true);
  assert_int_equal(bppsa_bench_rows_status(&rows, 30), BPPSA_OK);
  bppsa_bench_count_row(&rows, NAN, false, false);
  bppsa_bench_count_row(&rows, 1, true, false);
  assert_true(rows.measured == 3 && rows.failed == 1 && rows.noisy == 1 && isnan(rows.worst));
  assert_int_equal(bppsa_bench_rows_status(&rows, 30), BPPSA_ERR_NUMERIC);
  assert_non_null(strstr(bppsa_last_error(), "bench: 1 of 3 rows have a residual of 30 or more"));
  assert_string_equal(bppsa_bench_wrong(true), "");
  assert_string_equal(bppsa_bench_wrong(false), "  WRONG");
}

static void test_memory(void **state) {
  (void)state;
  const bppsa_bench_request request = {.to = {.json = true, .out = stderr}, .device = device};
  const int64_t live = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    bppsa_bench_report report;
    bppsa_alloc_fail_at(call);
    status = bppsa_bench_open(&request, "some", &report);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_MEMORY);
    if (status == BPPSA_OK) {
      json_decref(report.document);
    }
    assert_int_equal(bppsa_alloc_live(), live);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_document), cmocka_unit_test(test_timing),
                                     cmocka_unit_test(test_limits), cmocka_unit_test(test_counts), cmocka_unit_test(test_memory)};
  if (bppsa_device_create("cpu", 1, &device) != BPPSA_OK) {
    return 1;
  }
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}

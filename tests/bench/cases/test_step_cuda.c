/* `bench step` on a GPU: queued steps and graphs of whole steps, of all cells and losses, and graphs that do nothing. */
#include "tests/bench/rows.h"
#include "tests/cli/run_cli.h"
#include "tests/support/support.h"

#include "bench/harness/recording.h"

#define STEP "bench step --device cuda --hidden 3 --batch 2 --seq-len 40 --init default --repeats 2 --threads 1 --json"

static bppsa_device *device;

static void check_row(const json_t *rows, const char *method, const char *forward) {
  const json_t *row = find_row(rows, method);
  assert_true(json_is_true(json_object_get(row, "ok")) && get_real(row, "residual") < 30 && get_real(row, "median_s") > 0);
  assert_string_equal(get_text(row, "forward"), forward);
}

static void steps(void **state) {
  (void)state;
  static const char *const models[] = {"rnn", "gru", "lstm"};
  for (int i = 0; i < 3; ++i) {
    json_t *document = run_json(STEP " --model %s --loss %s --forward-chunks 3", models[i], i == 1 ? "all" : "last");
    const json_t *rows = json_object_get(document, "rows");
    assert_int_equal(json_array_size(rows), 8);
    check_row(rows, "sequential", "sequential");
    check_row(rows, "sequential_graph", "sequential");
    check_row(rows, "scan_graph", "sequential");
    check_row(rows, "speculative", "speculative");
    check_row(rows, "speculative_graph", "speculative");
    assert_true(get_integer(find_row(rows, "speculative_graph"), "path") > 0);
    assert_true(get_real(find_row(rows, "auto_graph"), "median_s") > 0);
    assert_non_null(strstr(get_text(find_row(json_object_get(document, "left_out"), "cudnn"), "reason"), "no whole step"));
    json_decref(document);
  }
}

/* A graph that leaves the weights as they are is wrong. */
static void nothing(void **state) {
  (void)state;
  bppsa_bench_record_nothing(true);
  run_result result = run(STEP);
  bppsa_bench_record_nothing(false);
  assert_int_equal(result.code, 1);
  json_t *document = json_loads(result.out, 0, NULL);
  const json_t *rows = json_object_get(document, "rows");
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    const bool graph = strstr(get_text(row, "method"), "_graph") != NULL;
    assert_true(json_is_true(json_object_get(row, "ok")) == !graph);
    assert_true(json_is_null(json_object_get(row, "median_s")) == graph);
  }
  json_decref(document);
  release(&result);
}

int main(void) {
  if (bppsa_device_create("cuda", 1, &device) != BPPSA_OK) {
    puts(bppsa_last_error());
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps), cmocka_unit_test(nothing)};
  const int failed = cmocka_run_group_tests(tests, enter_directory, leave_directory);
  bppsa_device_destroy(device);
  return failed;
}

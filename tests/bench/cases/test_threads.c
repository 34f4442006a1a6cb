/* `bench threads`: its document, its table, wrong requests, running out of memory. No time is asserted. */
#include "tests/cli/memory_walk.h"

#include <math.h>

#define SMALL "bench threads --seq-len 40 --batch 9 --hidden 5 --repeats 3 --threads 3"

static void check_row(const json_t *row, int64_t threads, int64_t neighbours) {
  assert_int_equal(get_integer(row, "threads"), threads);
  assert_int_equal(get_integer(row, "neighbours"), neighbours);
  assert_int_equal(get_integer(row, "seq_len"), 40);
  assert_int_equal(get_integer(row, "batch"), 9);
  assert_int_equal(get_integer(row, "hidden"), 5);
  assert_int_equal(get_integer(row, "repeats"), 3);
  assert_string_equal(get_text(row, "phase"), "step");
  assert_true(json_is_true(json_object_get(row, "identical")));
  assert_true(get_real(row, "min_s") > 0 && get_real(row, "min_s") <= get_real(row, "median_s"));
  assert_true(get_real(row, "median_s") <= get_real(row, "max_s"));
}

static void test_document(void **state) {
  (void)state;
  json_t *document = run_json(SMALL " --neighbours 2 --out F.json --json");
  assert_string_equal(get_text(document, "bench"), "threads");
  const json_t *rows = json_object_get(document, "rows");
  assert_int_equal(json_array_size(rows), 4);
  for (size_t i = 0; i < 4; ++i) {
    const json_t *row = json_array_get(rows, i), *one = json_array_get(rows, i / 2 * 2);
    check_row(row, i % 2 == 0 ? 1 : 3, i < 2 ? 0 : 2);
    const double ratio = get_real(row, "median_s") / get_real(one, "median_s");
    assert_true(fabs(get_real(row, "over_one_thread") - ratio) <= 1e-9 * ratio);
  }
  assert_written("F.json", document);
  json_decref(document);
  assert_int_equal(remove("F.json"), 0);
}

static void test_table(void **state) {
  (void)state;
  run_result result = run(SMALL " --neighbours 0");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "T 40, B 9, H 5, bp, f32"));
  assert_non_null(strstr(result.out, "\n           0        1"));
  assert_non_null(strstr(result.out, "\n           0        3"));
  assert_null(strstr(result.out, "\n           1 "));
  release(&result);
}

static void test_requests(void **state) {
  (void)state;
  assert_fails(2, "--neighbours: '-1', expected a whole number from 0 to 4096", "bench threads --neighbours -1");
  assert_fails(2, "--neighbours: 'all', expected", "bench threads --neighbours all");
  assert_fails(2, "threads: 1, expected 2 or more", "bench threads --threads 1");
  assert_fails(2, "--seq-len: '0'", "bench threads --seq-len 0");
  assert_fails(2, "--out: missing/F.json: cannot write", "bench threads --out missing/F.json");
  assert_fails(2, "--device: unknown option", "bench threads --device cpu");
}

static void test_memory(void **state) {
  (void)state;
  walk_benchmark("bench threads --seq-len 3 --batch 9 --hidden 5 --repeats 1 --threads 3 --neighbours 0 --json", 1, 60, 11, 2000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_document), cmocka_unit_test(test_table),
                                     cmocka_unit_test(test_requests), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

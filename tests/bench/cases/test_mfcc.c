/* `bench mfcc`: its document, its table, wrong requests. */
#include "tests/cli/memory_walk.h"

#include "audio/audio.h"

static void test_document(void **state) {
  (void)state;
  json_t *document = run_json("bench mfcc --repeats 2 --padding reflect --out F.json --json");
  assert_string_equal(get_text(document, "bench"), "mfcc");
  const json_t *rows = json_object_get(document, "rows");
  static const char *const sets[] = {"S", "M", "L"};
  assert_int_equal(json_array_size(rows), 3);
  for (size_t i = 0; i < 3; ++i) {
    const json_t *row = json_array_get(rows, i);
    assert_string_equal(get_text(row, "set"), sets[i]);
    assert_string_equal(get_text(row, "padding"), "reflect");
    assert_string_equal(get_text(row, "method"), "bppsa");
    assert_int_equal(get_integer(row, "repeats"), 2);
    assert_int_equal(get_integer(row, "threads"), 1);
    assert_int_equal(get_integer(row, "samples"), 132300);
    assert_true(get_real(row, "min_s") > 0 && get_real(row, "min_s") <= get_real(row, "median_s"));
    assert_true(get_real(row, "median_s") <= get_real(row, "max_s"));
    assert_true(get_real(row, "fft_s") > 0 && get_real(row, "fft_share") > 0);
    assert_true(get_real(row, "difference") >= 0 && get_real(row, "difference") < 1e-5);
    assert_true(json_is_true(json_object_get(row, "ok")));
  }
  assert_written("F.json", document);
  json_decref(document);
  assert_int_equal(remove("F.json"), 0);
}

static void test_table(void **state) {
  (void)state;
  run_result result = run("bench mfcc --set M --repeats 1");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "\n  M       517        12"));
  assert_null(strstr(result.out, "\n  S "));
  release(&result);
}

static void test_requests(void **state) {
  (void)state;
  assert_fails(2, "--set: 'X', expected S, M or L", "bench mfcc --set X");
  assert_fails(2, "--repeats: '0'", "bench mfcc --repeats 0");
  assert_fails(2, "--out: missing/F.json: cannot write", "bench mfcc --out missing/F.json");
  assert_fails(2, "--batch: unknown option", "bench mfcc --batch 1");
}

static void test_memory(void **state) {
  (void)state;
  walk_benchmark("bench mfcc --set L --repeats 1 --json", 1, 40, 11, 2000);
}

int main(void) {
  if (bppsa_audio_check() != BPPSA_OK) {
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_document), cmocka_unit_test(test_table),
                                     cmocka_unit_test(test_requests), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

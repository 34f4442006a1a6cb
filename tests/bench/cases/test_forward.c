/* `bench forward`: its document, its table, a network from a file, wrong requests, out of memory. */
#include "tests/cli/memory_walk.h"

static void check_row(const json_t *row, const char *method, int64_t seq_len) {
  assert_string_equal(get_text(row, "method"), method);
  assert_int_equal(get_integer(row, "seq_len"), seq_len);
  assert_int_equal(get_integer(row, "possible"), seq_len);
  assert_int_equal(get_integer(row, "repeats"), 3);
  assert_true(get_real(row, "min_s") > 0 && get_real(row, "min_s") <= get_real(row, "median_s"));
  assert_true(get_real(row, "residual") <= 2.4e-7 && get_real(row, "gap") <= 2.4e-7);
  assert_true(get_real(row, "error") > 0 && get_real(row, "moves") > 0);
  if (strcmp(method, "sequential") == 0) {
    assert_true(get_real(row, "own") >= get_real(row, "error"));
    assert_int_equal(get_integer(row, "path"), seq_len);
    assert_true(get_real(row, "residual") == 0 && get_real(row, "work") == 1);
  } else {
    assert_true(get_integer(row, "path") > 0 && get_real(row, "work") > 1 && get_integer(row, "chunks") > 1);
  }
}

static bool has_mean(const json_t *row) {
  return json_is_real(json_object_get(row, "mean_s")) && json_is_real(json_object_get(row, "failing_s"));
}

/* Both passes of a point have a mean, if the speculative one fails by its path or its work. Work of several times the sequential
 * pass's is above the bound of any plan here. */
static void check_mean(const json_t *sequential, const json_t *speculative) {
  const int64_t path = get_integer(speculative, "path"), possible = get_integer(speculative, "possible");
  const double work = get_real(speculative, "work");
  assert_true(has_mean(sequential) == has_mean(speculative));
  if (10 * path >= 9 * possible || work > 2.2) {
    assert_true(has_mean(speculative) && get_real(speculative, "mean_s") > 0);
  } else if (work < 1.5) {
    assert_false(has_mean(speculative));
  }
}

static void test_document(void **state) {
  (void)state;
  static const char *const names[] = {"default", "orthogonal", "orthogonal x 1.2", "orthogonal x 1.5"};
  json_t *document = run_json("bench forward --hidden 8 --seq-len 700 --repeats 3 --quick --out F.json --json");
  const json_t *rows = json_object_get(document, "rows");
  assert_string_equal(get_text(document, "bench"), "forward");
  assert_int_equal(json_array_size(rows), 8);
  for (size_t i = 0; i < 8; ++i) {
    const json_t *row = json_array_get(rows, i);
    assert_string_equal(get_text(row, "init"), names[i / 2]);
    check_row(row, i % 2 == 0 ? "sequential" : "speculative", 700);
    assert_int_equal(get_integer(row, "batch"), 1);
    check_mean(json_array_get(rows, i / 2 * 2), json_array_get(rows, i / 2 * 2 + 1));
  }
  /* a network with default weights: errors are those of the sequential pass */
  assert_true(get_real(json_array_get(rows, 1), "error") <= 2 * get_real(json_array_get(rows, 0), "error"));
  assert_true(get_real(json_array_get(rows, 0), "moves") < 1e-5);
  /* units in other orders: the same network, with other errors of the same size */
  const double own = get_real(json_array_get(rows, 0), "own");
  assert_true(own < 1e-6 && own == get_real(json_array_get(rows, 1), "own"));
  for (size_t i = 0, larger = 0; i < 8; i += 2) {
    larger += get_real(json_array_get(rows, i), "own") > get_real(json_array_get(rows, i), "error");
    assert_true(i < 6 || larger > 0);
  }
  assert_int_equal(get_integer(json_array_get(rows, 1), "mended"), 0);
  assert_true(get_integer(json_array_get(rows, 7), "mended") > 0);
  assert_written("F.json", document);
  json_decref(document);
}

/* Of an LSTM both halves of every state are verified, c relative to max(1, |c|). */
static void test_pairs(void **state) {
  (void)state;
  json_t *document = run_json("bench forward --model lstm --hidden 8 --seq-len 700 --repeats 3 --quick --json");
  const json_t *rows = json_object_get(document, "rows");
  assert_int_equal(json_array_size(rows), 8);
  for (size_t i = 0; i < 8; ++i) {
    assert_string_equal(get_text(json_array_get(rows, i), "model"), "lstm");
    check_row(json_array_get(rows, i), i % 2 == 0 ? "sequential" : "speculative", 700);
  }
  json_decref(document);
}

static void test_weights(void **state) {
  (void)state;
  assert_runs(
      "train gru --layers 2 --hidden 6 --dtype f64 --seq-len 20 --samples 16 --batch 4 --iterations 2 --save-weights W.st");
  json_t *document =
      run_json("bench forward --model gru --weights W.st --seq-len 900 --batch 2 --forward-chunks 5 --repeats 3 --json");
  const json_t *rows = json_object_get(document, "rows"), *row = json_array_get(rows, 1);
  assert_int_equal(json_array_size(rows), 2);
  assert_string_equal(get_text(row, "init"), "W.st");
  assert_string_equal(get_text(row, "model"), "gru");
  assert_string_equal(get_text(row, "dtype"), "f64");
  assert_int_equal(get_integer(row, "hidden"), 6);
  assert_int_equal(get_integer(row, "layers"), 2);
  assert_int_equal(get_integer(row, "chunks"), 5);
  assert_int_equal(get_integer(row, "possible"), 1800);
  assert_true(get_real(row, "residual") <= 2e-14 && get_real(row, "error") < 1e-12);
  assert_true(get_real(row, "own") > 0 && get_real(row, "own") < 1e-12);     /* of two layers of three gates */
  assert_true(get_real(row, "moves") > 0 && get_real(row, "moves") < 1e-12); /* by a rounding of f64, not of f32 */
  json_decref(document);
  run_result result = run("bench forward --model gru --weights W.st --seq-len 900 --repeats 3");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "forward passes of gru on "));
  assert_non_null(strstr(result.out, "\n  W.st                speculative             900   1    6 "));
  release(&result);
}

/* Networks that fail by their work, and long ones, have means too; not those whose 200 passes would take minutes. */
static void test_means(void **state) {
  (void)state;
  json_t *document = run_json("bench forward --hidden 64 --repeats 3 --quick --json");
  const json_t *rows = json_object_get(document, "rows");
  for (size_t i = 0; i < 4; ++i) {
    check_mean(json_array_get(rows, 2 * i), json_array_get(rows, 2 * i + 1));
  }
  assert_false(has_mean(json_array_get(rows, 1)));                                                   /* default weights */
  assert_true(get_real(json_array_get(rows, 3), "work") > 2.2 && has_mean(json_array_get(rows, 3))); /* above its bound */
  json_decref(document);
  for (int large = 0; large < 2; ++large) { /* T B H^2 of 1.5e7 and 2.3e8 */
    assert_runs("train rnn --hidden %d --seq-len 20 --samples 16 --batch 4 --iterations 1 --save-weights W.st", large ? 277 : 71);
    document = run_json("bench forward --weights W.st --seq-len 3000 --forward-chunks 12 --warm-up 0 --tolerance 0 --repeats 1 "
                        "--json");
    rows = json_object_get(document, "rows");
    assert_true(get_integer(json_array_get(rows, 1), "path") >= 2700);
    assert_true(has_mean(json_array_get(rows, 1)) == !large);
    json_decref(document);
  }
}

/* The sweep: 4 initialisations of 9 shapes with B = 1 and of 6 with B = 16, whose larger ones are left out. */
static void test_sweep(void **state) {
  (void)state;
  json_t *document = run_json("bench forward --repeats 1 --time-limit 1 --json");
  const int64_t begun = (int64_t)json_array_size(json_object_get(document, "rows")) / 2;
  assert_int_equal(begun + get_integer(document, "points_left_out"), 4 * (9 + 6));
  json_decref(document);
  document = run_json("bench forward --seq-len 300 --hidden 5 --batch 3 --repeats 1 --json");
  const json_t *rows = json_object_get(document, "rows");
  assert_int_equal(json_array_size(rows), 8);
  assert_int_equal(get_integer(json_array_get(rows, 7), "batch"), 3);
  json_decref(document);
  document = run_json("bench forward --seq-len 300 --hidden 5 --repeats 1 --json");
  rows = json_object_get(document, "rows");
  assert_int_equal(json_array_size(rows), 16);
  for (size_t i = 0; i < 16; ++i) {
    assert_int_equal(get_integer(json_array_get(rows, i), "batch"), i < 8 ? 1 : 16);
  }
  json_decref(document);
}

/* Behind the time limit no further point begins, and those left out are counted. The first point takes longer than the limit. */
static void test_time_limit(void **state) {
  (void)state;
  json_t *document = run_json("bench forward --hidden 8 --seq-len 5000 --batch 1 --repeats 5000 --time-limit 1 --json");
  assert_int_equal(json_array_size(json_object_get(document, "rows")), 2);
  assert_int_equal(get_integer(document, "points_left_out"), 3);
  json_decref(document);
}

static void test_requests(void **state) {
  (void)state;
  assert_fails(2, "--model: 'lenet5', expected rnn, gru or lstm", "bench forward --model lenet5");
  assert_fails(2, "--forward-chunks: '0', expected", "bench forward --forward-chunks 0");
  assert_fails(2, "missing.st", "bench forward --weights missing.st");
  assert_fails(2, "--algorithm: unknown option", "bench forward --algorithm bp");
}

static void test_memory(void **state) {
  (void)state;
  walk_benchmark("bench forward --hidden 3 --seq-len 200 --batch 1 --repeats 1 --json", 1, 60, 17, 20000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_document),   cmocka_unit_test(test_means),
                                     cmocka_unit_test(test_sweep),      cmocka_unit_test(test_pairs),
                                     cmocka_unit_test(test_weights),    cmocka_unit_test(test_requests),
                                     cmocka_unit_test(test_time_limit), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

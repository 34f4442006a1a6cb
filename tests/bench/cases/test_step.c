/* `bench step`: its document, its table, a network from a file, wrong requests, out of memory. */
#include <math.h>

#include "tests/bench/rows.h"
#include "tests/cli/memory_walk.h"

static const char *const methods[] = {"sequential", "scan", "speculative", "both", "auto"};

static void check_row(const json_t *row, const char *method, const char *loss) {
  assert_string_equal(get_text(row, "method"), method);
  assert_string_equal(get_text(row, "loss_on"), loss);
  assert_int_equal(get_integer(row, "repeats"), 3);
  assert_true(get_real(row, "min_s") > 0 && get_real(row, "min_s") <= get_real(row, "median_s"));
  assert_true(get_real(row, "residual") > 0 && get_real(row, "residual") < 30);
  assert_true(json_is_true(json_object_get(row, "ok")));
  assert_null(json_object_get(row, "rival_times")); /* there is no rival */
  assert_true(get_real(row, "error") > 0 && get_real(row, "error") < 1e-5);
  assert_true(get_real(row, "forward_s") > 0 && get_real(row, "backward_s") > 0 && get_real(row, "other_s") > 0);
  if (strcmp(method, "auto") != 0) {
    const bool both = strcmp(method, "both") == 0, forward = both || strcmp(method, "speculative") == 0;
    assert_string_equal(get_text(row, "backward"), strcmp(method, "sequential") == 0 ? "bp" : both ? "speculative" : "chunked");
    assert_string_equal(get_text(row, "forward"), forward ? "speculative" : "sequential");
  }
}

/* Default weights forget: the gradient of the last step ends before the first one. */
static void test_document(void **state) {
  (void)state;
  static const char *const models[] = {"rnn", "gru", "lstm"};
  for (int i = 0; i < 6; ++i) {
    const char *loss = i % 2 == 0 ? "last" : "all";
    json_t *document =
        run_json("bench step --model %s --loss %s --hidden 6 --seq-len 700 --batch 1 --forward-chunks 2 --repeats 3 "
                 "--out F.json --json",
                 models[i / 2], loss);
    const json_t *rows = json_object_get(document, "rows");
    assert_string_equal(get_text(document, "bench"), "step");
    assert_int_equal(json_array_size(rows), 10);
    for (size_t r = 0; r < 10; ++r) {
      const json_t *row = json_array_get(rows, r);
      assert_string_equal(get_text(row, "model"), models[i / 2]);
      assert_string_equal(get_text(row, "init"), r < 5 ? "default" : "orthogonal");
      check_row(row, methods[r % 5], loss);
      assert_true(get_integer(row, "reach") > 10 && get_integer(row, "reach") < 700);
    }
    assert_int_equal(get_integer(json_array_get(rows, 2), "chunks"), 2);
    assert_in_range(get_integer(json_array_get(rows, 2), "path"), 350, 699); /* half of T, and a warm-up */
    assert_null(json_object_get(json_array_get(rows, 1), "path"));
    const json_t *both = json_array_get(rows, 3);
    assert_int_equal(get_integer(both, "backward_chunks"), 8);
    assert_in_range(get_integer(both, "backward_path"), 700 / 8, 699); /* a chunk, a warm-up, and mends */
    assert_true(get_real(both, "backward_work") >= 1 && get_real(both, "backward_gap") <= 2.4e-7);
    assert_true(get_real(both, "backward_perturbation") < 1e-7 && get_integer(both, "backward_possible") == 700);
    assert_null(json_object_get(json_array_get(rows, 2), "backward_path"));
    assert_written("F.json", document);
    json_decref(document);
  }
}

/* The loss of the reference is the one that training logs. */
static void test_weights(void **state) {
  (void)state;
  assert_runs(
      "train gru --layers 2 --hidden 6 --dtype f64 --seq-len 20 --samples 16 --batch 4 --iterations 2 --save-weights W.st");
  json_t *document =
      run_json("bench step --model gru --weights W.st --seq-len 20 --batch 3 --forward-chunks 2 --repeats 3 --json");
  const json_t *rows = json_object_get(document, "rows"), *row = json_array_get(rows, 1);
  json_t *evaluated = run_json("eval gru --weights W.st --samples 3 --seq-len 20 --batch 3 --json");
  assert_int_equal(json_array_size(rows), 4);
  assert_string_equal(get_text(row, "init"), "W.st");
  assert_string_equal(get_text(row, "dtype"), "f64");
  assert_int_equal(get_integer(row, "layers"), 2);
  assert_int_equal(get_integer(row, "reach"), 20);
  assert_true(fabs(get_real(row, "loss") - get_real(evaluated, "loss")) < 1e-12);
  json_decref(evaluated);
  json_decref(document);
  static const char *const losses[] = {"last", "all"}; /* an option may name another loss than that of the training */
  for (int i = 0; i < 2; ++i) {
    document = run_json("bench step --model gru --weights W.st --loss %s --seq-len 20 --batch 3 --compare sequential --repeats 1 "
                        "--json",
                        losses[i]);
    assert_string_equal(get_text(json_array_get(json_object_get(document, "rows"), 0), "loss_on"), losses[i]);
    json_decref(document);
  }
}

/* The table says which times are those of a race over zeros; of a loss on every step there is none. */
static void test_table(void **state) {
  (void)state;
  run_result result = run("bench step --hidden 6 --seq-len 700 --batch 1 --init default --quick --repeats 1");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "training steps of rnn, T 700, B 1, H 6, loss on the last step, on "));
  assert_non_null(strstr(result.out, "\n  default                   scan                  sequential    chunked "));
  assert_non_null(strstr(result.out, " of 700 steps: the rest is a race over zeros\n"));
  release(&result);
  result = run("bench step --hidden 6 --seq-len 700 --batch 1 --init default --loss all --quick --repeats 1");
  assert_int_equal(result.code, 0);
  assert_null(strstr(result.out, "race over zeros"));
  release(&result);
}

/* A batch that fills a processor's vectors leaves one chunk to a speculative pass: a row of it would be that of scan again. */
static void test_one_chunk(void **state) {
  (void)state;
  static const char command[] = "bench step --hidden 3 --seq-len 200 --batch 16 --init default --repeats 1";
  json_t *document = run_json("%s --json", command);
  const json_t *rows = json_object_get(document, "rows"), *left_out = json_object_get(document, "left_out");
  assert_int_equal(json_array_size(rows), 3);
  assert_string_equal(get_text(find_row(rows, "scan"), "forward"), "sequential");
  assert_int_equal(json_array_size(left_out), 2);
  assert_non_null(strstr(get_text(find_row(left_out, "speculative"), "reason"), "sequential here, and the step that of scan"));
  assert_non_null(strstr(get_text(find_row(left_out, "both"), "reason"), "its forward pass would be sequential here"));
  json_decref(document);
  document = run_json("%s --json --forward-chunks 2", command);
  assert_string_equal(get_text(find_row(document, "speculative"), "forward"), "speculative");
  left_out = json_object_get(document, "left_out");
  assert_int_equal(json_array_size(left_out), 1); /* the backward pass is still one chunk */
  assert_non_null(strstr(get_text(find_row(left_out, "both"), "reason"), "its backward pass would be BP here"));
  json_decref(document);
  document = run_json("%s --json --forward-chunks 2 --backward-chunks 3 --backward-warm-up 30", command);
  assert_int_equal(get_integer(find_row(document, "both"), "backward_chunks"), 3);
  assert_int_equal(get_integer(find_row(document, "both"), "backward_warm_up"), 30);
  assert_int_equal(json_array_size(json_object_get(document, "left_out")), 0);
  json_decref(document);
  run_result result = run("%s", command);
  const char *line = strstr(result.out, "\n  default                   speculative ");
  assert_non_null(line);
  const char *note = strstr(line + 1, "left out: its forward pass would be sequential here, and the step that of scan");
  assert_true(note != NULL && note < strchr(line + 1, '\n'));
  release(&result);
}

/* --compare: these alone have rows. */
static void test_methods(void **state) {
  (void)state;
  json_t *document = run_json("bench step --hidden 3 --seq-len 20 --batch 1 --init default --repeats 1 --compare auto,sequential "
                              "--json");
  const json_t *rows = json_object_get(document, "rows");
  assert_int_equal(json_array_size(rows), 2);
  assert_string_equal(get_text(json_array_get(rows, 0), "method"), "sequential");
  assert_string_equal(get_text(json_array_get(rows, 1), "method"), "auto");
  assert_int_equal(json_array_size(json_object_get(document, "left_out")), 0);
  json_decref(document);
}

/* Behind the time limit no further point begins, and those left out are counted. */
static void test_time_limit(void **state) {
  (void)state;
  json_t *document = run_json("bench step --hidden 6 --seq-len 700 --batch 4 --repeats 1000 --time-limit 1 --json");
  assert_int_equal((int64_t)json_array_size(json_object_get(document, "rows")) / 4 + get_integer(document, "points_left_out"), 2);
  json_decref(document);
}

static void test_requests(void **state) {
  (void)state;
  assert_runs("train rnn --hidden 3 --seq-len 5 --samples 4 --batch 4 --iterations 1 --save-weights W.st");
  assert_fails(2, "--model: 'lenet5', expected rnn, gru or lstm", "bench step --model lenet5");
  assert_fails(2, "--forward: unknown option", "bench step --forward auto");
  assert_fails(2, "--forward-chunks: '0', expected", "bench step --forward-chunks 0");
  assert_fails(2, "--backward-tolerance: '-1'", "bench step --backward-tolerance -1");
  assert_fails(2, "missing.st", "bench step --weights missing.st");
  assert_fails(2, "--weights: given beside --init", "bench step --weights W.st --init default");
  assert_fails(2, "gru", "bench step --model gru --weights W.st");
  assert_fails(2, "--nonlinearity: given beside --model gru", "bench step --model gru --nonlinearity relu");
  assert_fails(2, "--compare: 'bp', expected sequential, scan, speculative, both, auto, or", "bench step --compare auto,bp");
  assert_fails(2, "--compare: ''", "bench step --compare auto,");
  assert_fails(2, "--rivals: missing.py", "bench step --seq-len 5 --rivals missing.py");
  assert_fails(2, "--earlier", "bench step --seq-len 5 --earlier missing.jsonl");
  assert_fails(2, "--loss: 'mse'", "bench step --loss mse");
}

static void test_memory(void **state) {
  (void)state;
  walk_benchmark("bench step --hidden 3 --seq-len 40 --batch 1 --init default --repeats 1 --json", 1, 60, 17, 20000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_document),   cmocka_unit_test(test_weights),
                                     cmocka_unit_test(test_table),      cmocka_unit_test(test_one_chunk),
                                     cmocka_unit_test(test_requests),   cmocka_unit_test(test_methods),
                                     cmocka_unit_test(test_time_limit), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

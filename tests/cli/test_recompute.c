/* --recompute-every of train, grad, plan and bench. */
#include "tests/cli/batch_files.h"

#define TRAIN "train gru --seq-len 150 --samples 24 --batch 8 --hidden 4 --layers 2"

/* Weights after training, and gradients, are those of BP bit for bit, on any number of threads and ranks that share the batch; a
 * run that was begun without goes on with it. */
static void test_bits(void **state) {
  (void)state;
  assert_runs(TRAIN " --iterations 6 --backward bp --save-weights all.safetensors");
  assert_runs(TRAIN " --iterations 6 --recompute-every 20 --threads 2 --save-weights again.safetensors");
  assert_equal_files("again.safetensors", "all.safetensors");
  assert_runs(TRAIN " --iterations 3 --backward bp --checkpoint d");
  assert_runs(TRAIN " --iterations 6 --backward bp --recompute-every 1 --checkpoint d --resume --save-weights again.safetensors");
  assert_equal_files("again.safetensors", "all.safetensors");
  assert_runs(TRAIN " --iterations 6 --backward bp --ranks 2 --save-weights all.safetensors");
  assert_runs(TRAIN " --iterations 6 --recompute-every 7 --ranks 2 --save-weights again.safetensors");
  assert_equal_files("again.safetensors", "all.safetensors");
  write_reals("X.npy", BPPSA_F32, 3, (int64_t[]){150, 8, 1});
  write_labels("Y.npy", 1, (int64_t[]){8}, -1, 0);
#define GRAD "grad gru --weights all.safetensors --input X.npy --labels Y.npy"
  assert_runs(GRAD " --backward bp --out G.safetensors");
  assert_runs(GRAD " --recompute-every 9 --out H.safetensors");
  assert_equal_files("H.safetensors", "G.safetensors");
}

/* A scan goes through segments: bits do not depend on threads, and the plan is that of a segment. */
static void test_scan(void **state) {
  (void)state;
#define SCAN " --iterations 4 --algorithm chunked --chunks 4 --recompute-every 20"
  assert_runs(TRAIN SCAN " --save-weights one.safetensors");
  assert_runs(TRAIN SCAN " --threads 2 --save-weights two.safetensors");
  assert_equal_files("two.safetensors", "one.safetensors");
  json_t *plan =
      run_json("plan gru --seq-len 48000 --batch 50 --hidden 40 --recompute-every 220 --algorithm chunked --chunks 8 --json");
  assert_string_equal(get_text(plan, "backward"), "scan");
  assert_int_equal(get_integer(plan, "segments"), 219);
  assert_true(5 * get_integer(plan, "network_bytes") < get_integer(plan, "network_bytes_kept"));
  json_decref(plan);
  run_result text = run("plan gru --seq-len 500 --recompute-every 100 --algorithm blelloch");
  assert_non_null(strstr(text.out, "up to 5 segments, one after the other; what follows is one of them"));
  release(&text);
}

/* What a plan counts, and what benchmarks say of the methods that do not take it. */
static void test_reports(void **state) {
  (void)state;
  json_t *plan = run_json("plan gru --seq-len 48000 --batch 50 --hidden 40 --recompute-every 220 --json");
  assert_string_equal(get_text(plan, "backward"), "bp");
  assert_int_equal(get_integer(plan, "recompute"), 220);
  assert_true(20 * get_integer(plan, "network_bytes") < get_integer(plan, "network_bytes_kept"));
  assert_true(get_integer(plan, "network_bytes_kept") > INT64_C(3) * 48000 * 50 * 40 * 4);
  json_decref(plan);
  run_result text = run("plan gru --seq-len 48000 --batch 50 --hidden 40 --recompute-every 220");
  assert_non_null(strstr(text.out, "with the states of every 220th step"));
  release(&text);
  json_t *bench =
      run_json("bench rnn --seq-len 300 --batch 2 --hidden 3 --init orthogonal --recompute-every 10 --repeats 3 --json");
  const json_t *row;
  size_t i, measured = 0;
  json_array_foreach(json_object_get(bench, "rows"), i, row) {
    const char *method = get_text(row, "method");
    const bool other = strncmp(method, "speculative", 11) == 0;
    assert_int_equal(get_integer(row, "recompute"), 10);
    measured += json_is_real(json_object_get(row, "median_s"));
    assert_true(json_is_real(json_object_get(row, "median_s")) != other);
  }
  assert_true(measured > 4);
  json_decref(bench);
}

static void test_requests(void **state) {
  (void)state;
  assert_fails(2, "--recompute-every: given beside speculative BP, expected --backward bp, scan or auto",
               TRAIN " --iterations 1 --recompute-every 5 --backward speculative");
  assert_fails(2, "recompute beside two directions, expected BP or a scan",
               TRAIN " --iterations 1 --recompute-every 5 --bidirectional");
  assert_fails(2, "recompute beside a speculative forward pass",
               TRAIN " --iterations 1 --recompute-every 5 --forward speculative");
  assert_fails(2, "--recompute-every: '0', expected a whole number, 1 or more", TRAIN " --iterations 1 --recompute-every 0");
  assert_fails(2, "recompute beside a part of a sequence", TRAIN " --iterations 1 --recompute-every 5 --ranks 2 --split time");
  assert_fails(2, "--recompute-every: given beside --split gpipe, whose layers keep all states, expected none",
               TRAIN " --iterations 1 --recompute-every 5 --ranks 2 --split gpipe --micro-batches 2");
  assert_fails(2, "--recompute-every: on a GPU, expected --device cpu", "plan gru --recompute-every 5 --device cuda");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_scan), cmocka_unit_test(test_reports),
                                     cmocka_unit_test(test_requests)};
  return cmocka_run_group_tests_name("cli_recompute", tests, enter_directory, leave_directory);
}

/* `bench lenet5` on a GPU: every row verified, BP also with the second stream, each as a graph beside BP's graph. */
#include "tests/bench/rows.h"
#include "tests/cli/run_cli.h"
#include "tests/support/support.h"

#include "bench/harness/recording.h"

static void rows_of_lenet5(void **state) {
  (void)state;
  static const char *const names[] = {"forward",
                                      "forward_graph",
                                      "bp",
                                      "bp_graph",
                                      "bp_second_stream",
                                      "bp_second_stream_graph",
                                      "linear",
                                      "linear_graph",
                                      "blelloch 1",
                                      "blelloch 2",
                                      "blelloch 1_graph",
                                      "blelloch 2_graph",
                                      "blelloch",
                                      "auto",
                                      "blelloch_graph",
                                      "auto_graph"};
  json_t *document = run_json("bench lenet5 --json --device cuda --batch 1 --repeats 1 --threads 1 --out F.json");
  const json_t *rows = json_object_get(document, "rows");
  assert_int_equal(json_array_size(rows), sizeof names / sizeof names[0]);
  assert_int_equal(json_array_size(json_object_get(document, "left_out")), 0);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    const json_t *row = find_row(rows, names[i]);
    const bool graph = strstr(names[i], "_graph") != NULL, backward = i > 1;
    assert_string_equal(get_text(row, "phase"), backward ? "backward" : "forward");
    assert_true(get_real(row, "residual") < 30 && get_real(row, "flops") > 0 && get_integer(row, "repeats") == 1);
    assert_true(json_is_true(json_object_get(row, "graph")) == graph && (get_integer(row, "graph_nodes") > 0) == graph);
    assert_true(!backward || (get_real(row, "time_of_bp") > 0 && get_real(row, "critical_flops_of_bp") > 0));
  }
  assert_true(get_real(find_row(rows, "bp_second_stream"), "flops_of_bp") == 1);
  assert_int_equal(get_integer(find_row(rows, "bp_graph"), "graph_nodes"),
                   get_integer(find_row(rows, "bp_second_stream_graph"), "graph_nodes"));
  assert_written("F.json", document);
  json_decref(document);
}

/* With too little memory for the scans' products only BP is measured, and the others are named as left out. */
static void without_room(void **state) {
  (void)state;
  json_t *document =
      run_json("bench lenet5 --json --device cuda --batch 1 --repeats 1 --threads 1 --prune 0.5 --memory-limit 2M");
  const json_t *rows = json_object_get(document, "rows"), *left_out = json_object_get(document, "left_out");
  assert_true(get_real(find_row(rows, "bp"), "residual") < 30);
  assert_true(json_array_size(left_out) > 0);
  assert_non_null(strstr(get_text(json_array_get(left_out, 0), "reason"), "lenet5: "));
  json_decref(document);
}

/* Verification finds a graph that does nothing, although the pass before it left the right results. */
static void idle_graphs(void **state) {
  (void)state;
  bppsa_bench_record_nothing(true);
  json_t *document =
      run_json_wrong("bench lenet5 --json --device cuda --batch 1 --repeats 1 --threads 1 --prune 0.5 --memory-limit 2M");
  bppsa_bench_record_nothing(false);
  const json_t *rows = json_object_get(document, "rows");
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    const bool graph = json_is_true(json_object_get(row, "graph"));
    assert_int_equal(get_real(row, "residual") < 30, !graph);
    assert_int_equal(get_integer(row, "repeats"), graph ? 0 : 1); /* what is wrong is not timed */
  }
  assert_int_equal(get_integer(find_row(rows, "forward_graph"), "graph_nodes"), 0); /* the marks do not count */
  assert_int_equal(get_integer(find_row(rows, "bp_graph"), "graph_nodes"), 0);
  json_decref(document);
}

/* Graphs that cannot be recorded are named as left out; the queued passes are measured. */
static void refused_graphs(void **state) {
  (void)state;
  bppsa_bench_record_waits(true);
  json_t *document =
      run_json("bench lenet5 --json --device cuda --batch 1 --repeats 1 --threads 1 --prune 0.5 --memory-limit 2M");
  bppsa_bench_record_waits(false);
  const json_t *rows = json_object_get(document, "rows"), *left_out = json_object_get(document, "left_out");
  assert_true(get_real(find_row(rows, "forward"), "residual") < 30 && get_real(find_row(rows, "bp"), "residual") < 30);
  assert_non_null(strstr(get_text(find_row(left_out, "forward_graph"), "reason"), "recording: "));
  assert_non_null(strstr(get_text(find_row(left_out, "bp_graph"), "reason"), "recording: "));
  json_decref(document);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_lenet5), cmocka_unit_test(without_room),
                                     cmocka_unit_test(idle_graphs), cmocka_unit_test(refused_graphs)};
  bppsa_device *device = NULL;
  if (bppsa_device_create("cuda", 1, &device) != BPPSA_OK) {
    puts(bppsa_last_error());
    return 77;
  }
  bppsa_device_destroy(device);
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

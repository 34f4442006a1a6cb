/* The benchmarks on a GPU: rows, their floors, their graphs, and rivals that qualify. (The file is long because every test reads
 * rows of the same documents with the same few helpers.) */
#include "tests/bench/rows.h"
#include "tests/cli/batch_files.h"

#include <math.h>

#include "bench/cases/case.h"
#include "core/base/clock.h"
#include "jacobian/jacobian.h"
#include "rnn/rnn.h"
#include "tests/support/support.h"

static bppsa_device *device;

/* ---- rows ---- */

static void names(void **state) {
  (void)state;
  static const struct {
    int row;
    const char *name;
    bool backward, graph;
  } expected[] = {
      {BPPSA_BENCH_FORWARD, "forward", false, false},
      {BPPSA_BENCH_SPECULATIVE, "speculative", true, false},
      {BPPSA_BENCH_AUTO, "auto", true, false},
      {BPPSA_BENCH_GRAPHS + BPPSA_BENCH_FORWARD, "forward_graph", false, true},
      {BPPSA_BENCH_GRAPHS + BPPSA_BENCH_SCAN(BPPSA_SCAN_CHUNKED), "chunked_graph", true, true},
      {BPPSA_BENCH_RIVALS, "cudnn_standard", false, false},
      {BPPSA_BENCH_RIVALS + 1, "cudnn_standard", true, false},
      {BPPSA_BENCH_RIVALS + 4 * BPPSA_CUDNN_PERSIST_STATIC_SMALL_H + 2, "cudnn_persist_static_small_h_graph", false, true},
      {BPPSA_BENCH_RIVALS + 4 * BPPSA_CUDNN_STANDARD_TF32 + 3, "cudnn_standard_tf32_graph", true, true},
      {BPPSA_BENCH_GUESTS - 3, "cudnn_persist_static_small_h_bf16_packed", true, false},
      {BPPSA_BENCH_GUESTS - 1, "cudnn_persist_static_small_h_bf16_packed_graph", true, true},
      {BPPSA_BENCH_GUESTS, "", false, false},
      {BPPSA_BENCH_ROWS - 1, "", true, false}};
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; ++i) {
    char name[BPPSA_BENCH_NAME];
    assert_string_equal(bppsa_bench_row_name(NULL, expected[i].row, name, sizeof name), expected[i].name);
    assert_int_equal(bppsa_bench_row_backward(expected[i].row), expected[i].backward);
    assert_int_equal(bppsa_bench_row_graph(expected[i].row), expected[i].graph);
  }
}

/* Did a rival keep the single time of its qualifying pass? On an emulated GPU its time decides, which is a processor's. */
static bool is_beaten(const json_t *row) {
  if (json_object_get(row, "qualifying") == NULL) {
    return false;
  }
  assert_true(json_is_true(json_object_get(row, "rival")) && get_real(row, "qualifying") > 0);
  assert_true(json_is_null(json_object_get(row, "median_s")) && get_integer(row, "repeats") == 0);
  return true;
}

/* Floor and ceilings agree with each other, and with FLOP, bytes and time. */
static void check_row(const json_t *row) {
  if (is_beaten(row)) {
    return;
  }
  const double seconds = get_real(row, "median_s"), flops = get_real(row, "peak_flops_per_s"),
               bytes = get_real(row, "copy_bytes_per_s");
  const double floor = fmax((double)get_integer(row, "flops") / flops, (double)get_integer(row, "bytes") / bytes);
  assert_true(seconds >= 0 && get_integer(row, "flops") > 0 && get_integer(row, "bytes") > 0);
  assert_true(fabs(get_real(row, "floor_s") / floor - 1) < 1e-9);
  assert_true(fabs(get_real(row, "over_floor") * floor - seconds) <= 1e-9 * seconds);
  assert_true(fabs(get_real(row, "step_s") * (double)get_integer(row, "seq_len") - seconds) <= 1e-9 * seconds);
  assert_int_equal(get_integer(row, "peak_device_bytes"), get_integer(row, "memory_bytes"));
}

/* ---- one point ---- */

static bppsa_status nothing_after(void *context, int64_t done, int64_t all) {
  (void)context;
  assert_true(done == 1 && all == 1);
  return BPPSA_OK;
}

/* T = 30, B = 3, H = 4. */
static bppsa_bench_settings settings_of(const bppsa_network_kind *kind) {
  bppsa_bench_settings asked = {
      .request = {.to = {.err = stderr}, .device = device, .repeats = 2, .memory_limit = INT64_C(1) << 28},
      .point = {.kind = kind, .config = bppsa_recurrent_config_default(), .data = "bitstream"},
      .one_point = true};
  asked.point.config.seq_len = 30;
  asked.point.config.batch = 3;
  asked.point.config.hidden = 4;
  return asked;
}

/* Measures a point and returns the rows, which the caller frees. */
static json_t *measure_rows(const bppsa_bench_case *kind, const bppsa_bench_settings *asked, bppsa_bench_count_rows *count) {
  const bppsa_bench_keeper keeper = {.rows = json_array(), .after = nothing_after};
  if (bppsa_bench_drive_rows(kind, &asked->request, asked, &keeper, count) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  return keeper.rows;
}

/* ---- a network that cannot run one of the methods ---- */

static bppsa_status refuse_blelloch(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *given,
                                    bppsa_model **model) {
  if (config->method.backward == BPPSA_BACKWARD_SCAN && config->method.scan.algorithm == BPPSA_SCAN_BLELLOCH) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "no kernels for this");
  }
  return bppsa_recurrent_create(config, cell, given, model);
}

static void refused_way(void **state) {
  (void)state;
  if (!is_emulated(device)) {
    skip();
  }
  bppsa_network_kind kind = *bppsa_network_kind_find("rnn");
  kind.create = refuse_blelloch;
  bppsa_bench_settings asked = settings_of(&kind);
  bppsa_bench_count_rows count = {0};
  json_t *rows = measure_rows(&bppsa_bench_case_rnn, &asked, &count);
  assert_int_equal(count.measured,
                   2 * 5 + 4 * 9); /* the stand-in for cuDNN has five algorithms of padded data, four of packed, without bf16 */
  assert_int_equal(count.failed, 0);
  const char *const methods[] = {"bp", "linear", "chunked", "auto"}, *const graphs[] = {"bp_graph", "linear_graph",
                                                                                        "chunked_graph", "auto_graph"};
  check_row(find_phase(rows, "forward", "forward"));
  for (size_t m = 0; m < 4; ++m) {
    const json_t *plain = find_phase(rows, "backward", methods[m]), *graph = find_phase(rows, "backward", graphs[m]);
    check_row(plain);
    assert_true(json_is_true(json_object_get(plain, "ok")) && json_is_false(json_object_get(plain, "graph")));
    assert_true(json_is_true(json_object_get(graph, "ok")) && json_is_true(json_object_get(graph, "graph")));
    assert_true(get_integer(graph, "graph_nodes") > 0);
    assert_int_equal(get_integer(graph, "repeats"), 2);
  }
  assert_string_equal(get_text(find_phase(rows, "backward", "blelloch"), "skipped"), "no kernels for this");
  const char *const rivals[] = {"cudnn_standard", "cudnn_persist_dynamic_graph", "cudnn_standard_tf32", "cudnn_standard_packed",
                                "cudnn_persist_static_small_h_packed_graph"};
  for (size_t r = 0; r < sizeof rivals / sizeof rivals[0]; ++r) {
    check_row(find_phase(rows, "forward", rivals[r]));
    check_row(find_phase(rows, "backward", rivals[r]));
    assert_true(json_is_true(json_object_get(find_phase(rows, "backward", rivals[r]), "ok")));
  }
  assert_non_null(strstr(get_text(find_phase(rows, "backward", "cudnn_persist_static"), "skipped"), "no shape is static enough"));
  assert_non_null(
      strstr(get_text(find_phase(rows, "backward", "cudnn_persist_dynamic_packed"), "skipped"), "packed data are not dynamic"));
  assert_true(get_real(find_phase(rows, "backward", "bp"), "hidden_zeros") == 0); /* counted on the host */
  assert_true(json_is_false(json_object_get(find_phase(rows, "backward", "bp"), "underflow")));
  json_decref(rows);
  char *out = NULL;
  size_t size = 0;
  asked.request.to.out = open_memstream(&out, &size);
  assert_int_equal(bppsa_bench_drive(&bppsa_bench_case_rnn, &asked.request, &asked), BPPSA_OK);
  fclose(asked.request.to.out);
  assert_non_null(strstr(out, "x floor"));
  assert_non_null(strstr(out, "skipped: no kernels for this"));
  assert_non_null(strstr(out, "chunked_graph"));
  assert_non_null(strstr(out, "the rivals' best, cudnn_"));
  free(out);
}

/* ---- one point of an emulated GPU ---- */

static int64_t most_nodes;
static double deadline, qualify = 2;
static json_t *earlier;

/* The point as `bench rnn` enters it, with these bounds. */
static bppsa_status enter_bounded(bppsa_bench *bench, int64_t point, bool *more) {
  ((bppsa_bench_session *)bench->session)->most_nodes = most_nodes;
  bench->deadline = deadline;
  bench->qualify = qualify;
  json_decref(bench->earlier); /* the entry of the point before */
  bench->earlier = json_incref(earlier);
  return bppsa_bench_case_rnn.enter(bench, point, more);
}

/* Measures T = 30, B = 3 and this H, and returns the rows, which the caller frees. */
static json_t *measure_point(int64_t hidden) {
  bppsa_bench_case kind = bppsa_bench_case_rnn;
  bppsa_bench_settings asked = settings_of(bppsa_network_kind_find("rnn"));
  bppsa_bench_count_rows count = {0};
  asked.point.config.hidden = hidden;
  kind.enter = enter_bounded;
  return measure_rows(&kind, &asked, &count);
}

static void assert_skipped(const json_t *rows, const char *method, const char *words) {
  assert_non_null(strstr(get_text(find_phase(rows, "forward", method), "skipped"), words));
  assert_non_null(strstr(get_text(find_phase(rows, "backward", method), "skipped"), words));
}

static void assert_right(const json_t *rows, const char *method) {
  check_row(find_phase(rows, "backward", method));
  assert_true(json_is_true(json_object_get(find_phase(rows, "backward", method), "ok")));
}

/* An algorithm that takes the shape when it is made and refuses its first forward or backward pass has a row with cuDNN's words;
 * those after it are measured. */
static void refused_pass(void **state) {
  (void)state;
  if (!is_emulated(device)) {
    skip();
  }
  static const char *const words[] = {"five is not small enough", "six is not small enough"};
  most_nodes = 0;
  deadline = 0;
  for (int64_t hidden = 5; hidden <= 6; ++hidden) {
    json_t *rows = measure_point(hidden);
    assert_skipped(rows, "cudnn_persist_static_small_h", words[hidden - 5]);
    assert_right(rows, "cudnn_standard");
    assert_right(rows, "cudnn_standard_tf32_graph");
    assert_skipped(rows, "cudnn_persist_static_small_h_tf32", words[hidden - 5]);
    json_decref(rows);
  }
}

/* Passes of more launches than the limit are timed as they are queued, and not recorded; after the deadline no row of cuDNN's
 * begins. */
static void bounded_rivals(void **state) {
  (void)state;
  if (!is_emulated(device)) {
    skip();
  }
  most_nodes = 59;
  deadline = 0;
  json_t *rows = measure_point(4);
  assert_skipped(rows, "cudnn_standard_graph", "a graph of 60 launches or more, expected at most 59");
  assert_skipped(rows, "cudnn_standard_tf32_graph", "a graph of 60 launches or more");
  assert_right(rows, "cudnn_standard");
  assert_right(rows, "cudnn_persist_dynamic_graph");
  json_decref(rows);
  most_nodes = 60;
  rows = measure_point(4);
  assert_right(rows, "cudnn_standard_graph");
  json_decref(rows);
  deadline = bppsa_now();
  rows = measure_point(4);
  assert_skipped(rows, "cudnn_standard", "--time-limit was over");
  assert_skipped(rows, "cudnn_standard_tf32", "--time-limit was over");
  assert_right(rows, "chunked_graph");
  json_decref(rows);
}

/* Rivals that take longer than the fastest keep the time of their single pass, and those of earlier points that did so by more than
 * twice, with their graphs, do not run; whatever they do, a rival that won is timed. */
static void qualifying_rivals(void **state) {
  (void)state;
  if (!is_emulated(device)) {
    skip();
  }
  int64_t timed = 0, beaten = 0;
  most_nodes = 0;
  deadline = 0;
  qualify = 1; /* the fastest alone takes part */
  json_t *rows = measure_point(4);
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    const bool rival = strncmp(get_text(row, "method"), "cudnn_", 6) == 0;
    assert_int_equal(json_is_true(json_object_get(row, "rival")), rival);
    if (rival && json_object_get(row, "skipped") == NULL && strstr(get_text(row, "method"), "tf32") == NULL) {
      beaten += is_beaten(row);
      timed += get_integer(row, "repeats") == 2;
      assert_true(get_real(row, "residual") < 30);
    } else if (!rival && json_object_get(row, "skipped") == NULL) {
      assert_int_equal(get_integer(row, "repeats"), 2);
    }
  }
  assert_true(timed == 2 && beaten == 2 * 9); /* forward and backward; of five algorithms, queued and recorded */
  json_decref(rows);
  qualify = 2;
  earlier = json_loads("[{\"method\": \"cudnn_persist_dynamic_graph\", \"phase\": \"forward\", \"rival\": true, \"seq_len\": 10,"
                       "  \"batch\": 3, \"hidden\": 4, \"input\": 1, \"layers\": 1, \"dtype\": \"f32\", \"init\": \"default\","
                       "  \"qualifying\": 0.03},"
                       " {\"method\": \"cudnn_standard_packed\", \"phase\": \"forward\", \"rival\": true, \"seq_len\": 10,"
                       "  \"batch\": 3, \"hidden\": 4, \"input\": 1, \"layers\": 1, \"dtype\": \"f32\", \"init\": \"default\","
                       "  \"median_s\": 0.01}]",
                       0, NULL);
  assert_non_null(earlier);
  rows = measure_point(4);
  assert_skipped(rows, "cudnn_persist_dynamic", "not run: 3.0 times as long as the fastest rival at T 10, predicted 90.0 ms");
  assert_true(fabs(get_real(find_phase(rows, "backward", "cudnn_persist_dynamic"), "predicted_s") / 0.09 - 1) < 1e-12);
  assert_right(rows, "cudnn_standard_packed");
  assert_right(rows, "cudnn_standard");
  json_decref(rows);
  json_decref(earlier);
  earlier = NULL;
}

/* A GPU's memory comes in pieces of 2 MiB, and small networks fit into one: their bytes are still those that they hold, a graph's
 * those of its network. */
static void bytes_of_small_networks(void **state) {
  (void)state;
  static const char *const methods[] = {"bp", "chunked", "cudnn_standard"}; /* also where the latter does not qualify */
  assert_int_equal(setenv("SIMT_PIECE", "2097152", 1), 0);
  json_t *document =
      run_json("bench rnn --json --device cuda --seq-len 30 --batch 3 --hidden 4 --init default --repeats 1 --threads 1");
  assert_int_equal(unsetenv("SIMT_PIECE"), 0);
  const json_t *rows = json_object_get(document, "rows");
  for (size_t m = 0; m < (is_emulated(device) ? 3 : 2); ++m) {
    char graph[40];
    snprintf(graph, sizeof graph, "%s_graph", methods[m]);
    const int64_t bytes = get_integer(find_phase(rows, "backward", methods[m]), "peak_device_bytes");
    assert_in_range(bytes, 30 * 3 * 4 * 4, 1 << 20); /* at least the states */
    assert_int_equal(get_integer(find_phase(rows, "backward", graph), "peak_device_bytes"), bytes);
  }
  json_decref(document);
}

/* `bench forward` on a GPU: both passes and cuDNN's exact algorithms, queued and recorded; of a wide layer too. */
static void forward_passes(void **state) {
  (void)state;
  static const char line[] =
      "bench forward --json --device cuda --seq-len 12 --batch 3 --forward-chunks 3 --repeats 1 --threads 1";
  static const char train[] = "train rnn --seq-len 5 --samples 32 --iterations 1 --threads 1";
  static const char *const own[] = {"sequential", "sequential_graph", "speculative", "speculative_graph"};
  static const char *const rivals[] = {"cudnn_standard", "cudnn_standard_graph", "cudnn_persist_dynamic",
                                       "cudnn_standard_packed_graph"};
  assert_runs("%s --hidden 4 --save-weights narrow.st", train);
  assert_runs("%s --hidden 33 --save-weights wide.st", train);
  json_t *document = run_json("%s --weights narrow.st", line);
  const json_t *rows = json_object_get(document, "rows");
  for (size_t m = 0; m < 4; ++m) {
    const json_t *row = find_phase(rows, "forward", own[m]);
    assert_true(get_real(row, "median_s") > 0 && get_real(row, "residual") <= 1e-6 && get_integer(row, "possible") == 12);
    if (is_emulated(device)) {
      row = find_phase(rows, "forward", rivals[m]);
      assert_true((is_beaten(row) || get_real(row, "median_s") > 0) && get_real(row, "error") < 1e-5 &&
                  json_is_null(json_object_get(row, "residual")));
    }
  }
  assert_true(json_array_size(json_object_get(document, "left_out")) > 0 || !is_emulated(device));
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    assert_null(strstr(get_text(json_array_get(rows, i), "method"), "tf32"));
  }
  json_decref(document);
  document = run_json("%s --weights wide.st", line); /* wider than a warp: a block for each chunk and sample */
  assert_string_equal(get_text(json_array_get(json_object_get(document, "rows"), 0), "method"), "sequential");
  assert_true(get_real(find_phase(json_object_get(document, "rows"), "forward", "speculative"), "residual") < 2e-6);
  json_decref(document);
}

/* Seconds that the cost model expects of a method's plans at T = 40, B = 3, H = 4 and two layers. */
static double expected_seconds(bppsa_bench_method method) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  const bppsa_network_kind *kind = bppsa_network_kind_find("rnn");
  double seconds = 0;
  c.seq_len = 40;
  c.batch = 3;
  c.hidden = 4;
  c.layers = 2;
  c = bppsa_bench_config(&c, method);
  for (int64_t l = 0; l < c.layers; ++l) {
    bppsa_scan_config scan = bppsa_network_scan(kind, &c, l);
    bppsa_scan_plan *plan = NULL;
    scan.device = BPPSA_CUDA;
    assert_int_equal(bppsa_scan_plan_create(&scan, &plan), BPPSA_OK);
    seconds += bppsa_scan_plan_seconds(plan);
    bppsa_scan_plan_destroy(plan);
  }
  return seconds;
}

/* The backward rows of the project's methods, queued and as graphs, have the cost model's seconds; no other row has. */
static void predictions(void **state) {
  (void)state;
  static const struct {
    const char *row;
    bppsa_bench_method method;
  } expected[] = {{"bp", BPPSA_BENCH_BP},
                  {"bp_graph", BPPSA_BENCH_BP},
                  {"chunked", BPPSA_BENCH_SCAN(BPPSA_SCAN_CHUNKED)},
                  {"chunked_graph", BPPSA_BENCH_SCAN(BPPSA_SCAN_CHUNKED)}};
  static const char shape[] =
      "bench rnn --device cuda --seq-len 40 --batch 3 --hidden 4 --layers 2 --init default --repeats 1 --threads 1";
  json_t *document = run_json("%s --json", shape);
  const json_t *rows = json_object_get(document, "rows");
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; ++i) {
    const double seconds = expected_seconds(expected[i].method);
    assert_true(seconds > 3e-6 &&
                fabs(get_real(find_phase(rows, "backward", expected[i].row), "predicted_s") / seconds - 1) < 1e-12);
  }
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    const char *method = get_text(row, "method");
    const bool ours = strcmp(get_text(row, "phase"), "backward") == 0 && strncmp(method, "cudnn_", 6) != 0 &&
                      strncmp(method, "speculative", 11) != 0;
    assert_int_equal(json_object_get(row, "predicted_s") != NULL, ours);
  }
  json_decref(document);
  run_result result = run("%s", shape);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "  predicted     floor  x floor    memory\n"));
  release(&result);
}

/* ---- the program ---- */

/* The rows of every method and of its graph are right. */
static void program(void **state) {
  (void)state;
  const char *const variants[] = {"rnn --init default",
                                  "rnn --init orthogonal --dtype f64",
                                  "rnn --init default --layers 2 --loss all --nonlinearity relu",
                                  "rnn --init default --layers 2",
                                  "gru --init default --layers 2",
                                  "gru --init default --loss all --dtype f64",
                                  "lstm --init default --layers 2 --loss all"};
  for (size_t v = 0; v < sizeof variants / sizeof variants[0]; ++v) {
    json_t *document =
        run_json("bench %s --json --device cuda --seq-len 40 --batch 3 --hidden 4 --repeats 2 --threads 1", variants[v]);
    const json_t *rows = json_object_get(document, "rows");
    const char *const methods[] = {"bp", "linear", "blelloch", "chunked", "auto"};
    check_row(find_phase(rows, "forward", "forward"));
    check_row(find_phase(rows, "forward", "forward_graph"));
    assert_true(json_is_true(json_object_get(find_phase(rows, "forward", "forward_graph"), "ok")));
    for (size_t m = 0; m < 5; ++m) {
      char graph[40];
      snprintf(graph, sizeof graph, "%s_graph", methods[m]);
      check_row(find_phase(rows, "backward", methods[m]));
      check_row(find_phase(rows, "backward", graph));
      assert_true(json_is_true(json_object_get(find_phase(rows, "backward", graph), "ok")));
      assert_true(get_integer(find_phase(rows, "backward", graph), "graph_nodes") > 0);
    }
    json_decref(document);
  }
  json_t *document =
      run_json("bench crossover --json --device cuda --quick --seq-len 20 --hidden 3 --batch 2 --init default --repeats 1 "
               "--threads 1");
  assert_int_equal(json_array_size(json_object_get(document, "rows")), 2 * 2 * 3 * 4); /* no graphs, no rivals */
  json_decref(document);
}

/* Speculative BP has a row and a graph's row where the device has kernels for it, with numbers of its own; otherwise its row says
 * that there are none. */
static void speculative(void **state) {
  (void)state;
  json_t *document = run_json("bench rnn --json --device cuda --seq-len 40 --batch 3 --hidden 4 --init default --repeats 1 "
                              "--threads 1 --backward-chunks 3 --backward-warm-up 5");
  const json_t *rows = json_object_get(document, "rows"), *row = find_phase(rows, "backward", "speculative");
  if (json_object_get(row, "skipped") != NULL) {
    assert_non_null(strstr(get_text(row, "skipped"), "a speculative backward pass on a GPU"));
  } else {
    const json_t *graph = find_phase(rows, "backward", "speculative_graph");
    assert_true(json_is_true(json_object_get(row, "ok")) && json_is_true(json_object_get(graph, "ok")));
    assert_true(get_integer(row, "chunks") == 3 && get_integer(row, "path") >= 14 && get_real(row, "gap") >= 0);
    assert_int_equal(get_integer(graph, "path"), get_integer(row, "path"));
  }
  json_decref(document);
}

static const char *const small[] = {"rnn --init default", "gru --init default --layers 2 --loss all"};

/* Verification finds graphs that do nothing, forward and backward, the project's and cuDNN's, although the passes before them
 * were right. No other row fails. */
static void idle_graphs(void **state) {
  (void)state;
  for (size_t v = 0; v < sizeof small / sizeof small[0]; ++v) {
    int64_t graphs[2] = {0, 0};
    bppsa_bench_record_nothing(true);
    json_t *document =
        run_json_wrong("bench %s --json --device cuda --seq-len 20 --batch 3 --hidden 4 --repeats 2 --threads 1", small[v]);
    bppsa_bench_record_nothing(false);
    const json_t *rows = json_object_get(document, "rows");
    for (size_t i = 0; i < json_array_size(rows); ++i) {
      const json_t *row = json_array_get(rows, i);
      if (json_is_string(json_object_get(row, "skipped"))) {
        continue;
      }
      const bool graph = json_is_true(json_object_get(row, "graph"));
      assert_int_equal(json_is_true(json_object_get(row, "ok")), !graph);
      assert_int_equal(get_integer(row, "repeats"), graph || is_beaten(row) ? 0 : 2); /* what is wrong is not timed */
      assert_true(!graph || get_integer(row, "graph_nodes") == 0);                    /* the marks do not count */
      graphs[strcmp(get_text(row, "phase"), "backward") == 0] += graph;
    }
    assert_true(graphs[0] >= (is_emulated(device) ? 5 : 1)); /* bp's, and four of the stand-in for cuDNN */
    assert_true(graphs[1] >= (is_emulated(device) ? 9 : 5));
    json_decref(document);
  }
}

/* The rows of passes that cannot be recorded say so; the others are measured. */
static void refused_graphs(void **state) {
  (void)state;
  for (size_t v = 0; v < sizeof small / sizeof small[0]; ++v) {
    bppsa_bench_record_waits(true);
    json_t *document =
        run_json("bench %s --json --device cuda --seq-len 20 --batch 3 --hidden 4 --repeats 2 --threads 1", small[v]);
    bppsa_bench_record_waits(false);
    const json_t *rows = json_object_get(document, "rows");
    const char *const graphs[] = {"bp_graph", "linear_graph", "blelloch_graph", "chunked_graph", "auto_graph"};
    assert_non_null(strstr(get_text(find_phase(rows, "forward", "forward_graph"), "skipped"), "recording: "));
    for (size_t m = 0; m < sizeof graphs / sizeof graphs[0]; ++m) {
      assert_non_null(strstr(get_text(find_phase(rows, "backward", graphs[m]), "skipped"), "recording: "));
    }
    check_row(find_phase(rows, "forward", "forward"));
    check_row(find_phase(rows, "backward", "chunked"));
    if (is_emulated(device)) {
      assert_non_null(strstr(get_text(find_phase(rows, "forward", "cudnn_standard_graph"), "skipped"), "recording: "));
      check_row(find_phase(rows, "backward", "cudnn_standard"));
    }
    json_decref(document);
  }
}

/* All values equal the processor's, and the share is that of the measured bandwidth. conv1 and conv7, ReLU and pool are enough
 * for an emulation. */
static void generators(void **state) {
  (void)state;
  json_t *document =
      run_json("bench jacobian --json --device cuda --repeats 1 --threads 1%s", is_emulated(device) ? " --memory-limit 40M" : "");
  const json_t *rows = json_object_get(document, "rows");
  const double bandwidth = get_real(document, "write_bytes_per_s");
  assert_int_equal(json_array_size(rows), is_emulated(device) ? 8 : 18);
  assert_true(bandwidth > 1e6);
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    const double bytes = get_real(row, "bytes"), seconds = get_real(row, "median_s");
    assert_int_equal(get_integer(row, "differing"), 0);
    assert_true(get_real(row, "residual") < 1e-5);
    assert_true(fabs(get_real(row, "write_share") * bandwidth * seconds - bytes) <= 1e-9 * bytes);
  }
  json_decref(document);
}

/* A recorded fill that writes nothing marks its row, although the fill before it was right. */
static void idle_fills(void **state) {
  (void)state;
  bppsa_bench_record_nothing(true);
  json_t *document = run_json_wrong("bench jacobian --json --device cuda --repeats 1 --threads 1 --memory-limit 2M");
  bppsa_bench_record_nothing(false);
  const json_t *rows = json_object_get(document, "rows");
  assert_true(json_array_size(rows) > 0);
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    assert_true(get_integer(json_array_get(rows, i), "differing") > 0);
  }
  json_decref(document);
}

/* A fill that cannot be recorded is named as left out; csr is measured. */
static void refused_fills(void **state) {
  (void)state;
  bppsa_bench_record_waits(true);
  json_t *document = run_json("bench jacobian --json --device cuda --repeats 1 --threads 1 --memory-limit 2M");
  bppsa_bench_record_waits(false);
  const json_t *rows = json_object_get(document, "rows"), *left_out = json_object_get(document, "left_out");
  size_t refused = 0;
  for (size_t i = 0; i < json_array_size(left_out); ++i) {
    const json_t *one = json_array_get(left_out, i);
    refused += strstr(get_text(one, "reason"), "recording: ") != NULL && strcmp(get_text(one, "phase"), "values") == 0;
  }
  assert_true(refused > 0 && refused == json_array_size(rows));
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    assert_string_equal(get_text(json_array_get(rows, i), "phase"), "csr");
  }
  json_decref(document);
}

/* The bytes that the reason for leaving conv1 out names; 0: conv1 is measured. */
static int64_t conv1_needs(int64_t limit) {
  json_t *document =
      run_json("bench jacobian --json --device cuda --repeats 1 --threads 1 --memory-limit %lld", (long long)limit);
  const json_t *rows = json_object_get(document, "rows"), *left_out = json_object_get(document, "left_out");
  long long bytes = 0, most = 0;
  for (size_t i = 0; i < json_array_size(left_out); ++i) {
    const json_t *one = json_array_get(left_out, i);
    if (strcmp(get_text(one, "operator"), "conv1") == 0) {
      assert_int_equal(sscanf(get_text(one, "reason"), "needs %lld bytes, the memory limit is %lld", &bytes, &most), 2);
      assert_int_equal(most, limit);
    }
  }
  assert_int_equal(strcmp(get_text(json_array_get(rows, 0), "operator"), "conv1") == 0, bytes == 0);
  json_decref(document);
  return bytes;
}

/* On a GPU the limit counts the GPU's memory, to the byte: x, weights and values, and twice the lists that a generator's kernels
 * read. */
static void limit_of_fills(void **state) {
  (void)state;
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
  bppsa_jacobian *j = NULL;
  memcpy(op.in, (int64_t[]){3, 32, 32}, sizeof op.in);
  op.out_channels = 64;
  for (int i = 0; i < 2; ++i) {
    op.kernel[i] = 3;
    op.padding[2 * i] = op.padding[2 * i + 1] = 1;
  }
  assert_int_equal(bppsa_jacobian_create(&op, NULL, false, device, &j), BPPSA_OK);
  const int64_t arrays = 4 * (3 * 32 * 32 + 64 * 27 + bppsa_jacobian_pattern(j)->nnz), lists = bppsa_jacobian_device_bytes(j);
  bppsa_jacobian_destroy(j);
  assert_true(lists > 0);
  assert_int_equal(conv1_needs(arrays), arrays + 2 * lists);
  assert_int_equal(conv1_needs(arrays + 2 * lists - 1), arrays + 2 * lists);
  assert_int_equal(conv1_needs(arrays + 2 * lists), 0);
}

int main(void) {
  if (bppsa_device_create("cuda", 1, &device) != BPPSA_OK) {
    puts(bppsa_last_error());
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(refused_pass),
                                     cmocka_unit_test(bounded_rivals),
                                     cmocka_unit_test(qualifying_rivals),
                                     cmocka_unit_test(bytes_of_small_networks),
                                     cmocka_unit_test(forward_passes),
                                     cmocka_unit_test(predictions),
                                     cmocka_unit_test(names),
                                     cmocka_unit_test(refused_way),
                                     cmocka_unit_test(program),
                                     cmocka_unit_test(speculative),
                                     cmocka_unit_test(idle_graphs),
                                     cmocka_unit_test(refused_graphs),
                                     cmocka_unit_test(generators),
                                     cmocka_unit_test(idle_fills),
                                     cmocka_unit_test(refused_fills),
                                     cmocka_unit_test(limit_of_fills)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}

/* `bench rnn` and `bench crossover`: the documents, verification, memory limits, wrong requests. (The file is
 * long because every test reads rows of the same documents with the same few helpers.) */
#include "tests/bench/rows.h"
#include "tests/cli/batch_files.h"
#include "tests/cli/memory_walk.h"

#include <math.h>

#include "bench/cases/case.h"
#include "core/base/alloc.h"
#include "core/measure/residual.h"

#define TINY "--batch 3 --hidden 4 --init default --repeats 2 --threads 2"

static void check_row(const json_t *row) {
  const char *const parameters[] = {"seq_len", "batch", "hidden", "input", "layers", "threads"};
  for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; ++i) {
    assert_true(get_integer(row, parameters[i]) > 0);
  }
  const bool forward = strcmp(get_text(row, "method"), "forward") == 0;
  assert_string_equal(get_text(row, "phase"), forward ? "forward" : "backward");
  assert_true(get_real(row, "min_s") > 0);
  assert_true(get_real(row, "min_s") <= get_real(row, "median_s") && get_real(row, "median_s") <= get_real(row, "max_s"));
  assert_true(get_real(row, "residual") >= 0 && get_real(row, "residual") < BPPSA_RESIDUAL_BOUND);
  assert_true(json_is_true(json_object_get(row, "ok")));
  assert_true(get_integer(row, "flops") > 0 && get_integer(row, "bytes") > 0 && get_integer(row, "memory_bytes") > 0);
  if (!forward) {
    assert_true(get_real(row, "forward_min_s") > 0 && get_real(row, "forward_min_s") <= get_real(row, "forward_s"));
    assert_true(get_integer(row, "redone") >= 0 && get_real(row, "peak_fraction") > 0 && get_real(row, "peak_fraction") < 1.2);
    const char *const fractions[] = {"zeros", "subnormals", "hidden_zeros", "hidden_subnormals"};
    for (size_t i = 0; i < sizeof fractions / sizeof fractions[0]; ++i) {
      assert_true(get_real(row, fractions[i]) >= 0 && get_real(row, fractions[i]) <= 1);
    }
  }
}

static void check_document(const json_t *document, int repeats) {
  const char *const methods[] = {"forward", "bp", "speculative", "linear", "blelloch", "chunked", "auto"};
  const json_t *rows = json_object_get(document, "rows"), *device = json_object_get(document, "device");
  assert_string_equal(get_text(document, "bench"), "rnn");
  assert_int_equal(strlen(get_text(document, "date")), 20);
  assert_non_null(json_object_get(document, "commit"));
  assert_int_equal(get_integer(device, "threads"), 2);
  assert_true(strlen(get_text(device, "blas")) > 0);
  assert_non_null(json_object_get(device, "hardware"));
  assert_non_null(json_object_get(device, "vector"));
  assert_int_equal(json_array_size(rows), 7); /* one point, one initialisation */
  for (size_t i = 0; i < 7; ++i) {
    const json_t *row = json_array_get(rows, i);
    const bool skipped = i == BPPSA_BENCH_SPECULATIVE && json_object_get(row, "skipped") != NULL;
    assert_string_equal(get_text(row, "method"), methods[i]);
    assert_int_equal(get_integer(row, "repeats"), skipped ? 0 : repeats);
    if (skipped) {
      assert_non_null(strstr(get_text(row, "skipped"), "one chunk of so few steps"));
    } else {
      check_row(row);
    }
  }
}

static void test_point(void **state) {
  (void)state;
  const char *const variants[] = {"--init orthogonal",           "--layers 2 --loss all",     "--dtype f64",
                                  "--nonlinearity relu",         "--up-levels 1 --chunks 3",  "--loss all --dtype f64 --layers 3",
                                  "--init default --device cpu", "--memory-limit 64M --quick"};
  const int lengths[] = {1, 2, 50};
  for (size_t v = 0; v < sizeof variants / sizeof variants[0]; ++v) {
    for (size_t t = 0; t < sizeof lengths / sizeof lengths[0]; ++t) {
      run_result result = run("bench rnn --json --seq-len %d %s %s", lengths[t], TINY, variants[v]);
      const bool fewer = lengths[t] < 50 && strstr(variants[v], "--chunks") != NULL; /* than asked for, which a note says */
      json_t *document = fewer ? parse_noted_document(result) : parse_document(result);
      check_document(document, 2);
      assert_int_equal(get_integer(find_row(document, "bp"), "seq_len"), lengths[t]);
      json_decref(document);
    }
  }
}

static void test_counts(void **state) {
  (void)state;
  json_t *document = run_json("bench rnn --json --seq-len 10 --batch 3 --hidden 4 --init default --repeats 1 --threads 2");
  check_document(document, 1);
  const int64_t gemm = 2 * 10 * 3 * 4 * (1 + 4);
  assert_int_equal(get_integer(find_row(document, "forward"), "flops"), gemm);
  assert_int_equal(get_integer(find_row(document, "bp"), "flops"), 9 * 3 * 2 * 4 * 4 + gemm); /* g_10 is the seed */
  assert_int_equal(get_integer(find_row(document, "linear"), "flops"), get_integer(find_row(document, "bp"), "flops"));
  assert_true(get_integer(find_row(document, "blelloch"), "flops") > get_integer(find_row(document, "bp"), "flops"));
  assert_int_equal(get_integer(find_row(document, "forward"), "bytes"), 4 * 10 * 3 * (1 + 4));
  assert_string_equal(get_text(find_row(document, "linear"), "algorithm"), "linear");
  assert_true(get_integer(find_row(document, "blelloch"), "up_levels") > 0);
  assert_true(get_integer(find_row(document, "chunked"), "chunks") > 0);
  assert_true(get_integer(find_row(document, "blelloch"), "workspace_bytes") > 0);
  json_decref(document);
  /* default weights: after a few hundred steps the gradients of the early hidden states are zero in f32 */
  document = run_json("bench rnn --json --seq-len 600 --batch 1 --hidden 4 --init default --repeats 1 --threads 2");
  assert_true(get_real(find_row(document, "bp"), "hidden_zeros") > 0.3);
  assert_true(json_is_true(json_object_get(find_row(document, "bp"), "underflow")));
  assert_null(json_object_get(find_row(document, "forward"), "underflow"));
  json_decref(document);
}

/* Default weights and orthogonal ones stand side by side, also at one point; times on gradients that underflow have a mark. */
static void test_inits(void **state) {
  (void)state;
  static const char line[] = "bench rnn --seq-len 600 --batch 1 --hidden 4 --nonlinearity relu --repeats 1 --threads 1";
  json_t *document = run_json("%s --json", line);
  const json_t *rows = json_object_get(document, "rows"), *first = json_array_get(rows, 1), *last = json_array_get(rows, 8);
  assert_int_equal(json_array_size(rows), 14);
  assert_string_equal(get_text(first, "init"), "default");
  assert_string_equal(get_text(last, "init"), "orthogonal");
  assert_true(json_is_true(json_object_get(first, "underflow")));
  json_decref(document);
  run_result result = run("%s --init default", line);
  const char *row = strstr(result.out, "  backward bp "), *mark = row == NULL ? NULL : strchr(row, '*');
  assert_true(mark != NULL && mark < strchr(row, '\n')); /* a noisy time has ~ in front of it */
  assert_non_null(strstr(result.out, " % of the gradients of the hidden states are zero and "));
  release(&result);
  result = run("bench rnn --seq-len 6 --batch 2 --hidden 4 --repeats 1 --threads 1");
  assert_null(strchr(result.out, '*'));
  release(&result);
}

static void test_data_file(void **state) {
  (void)state;
  write_reals("X.npy", BPPSA_F32, 3, (int64_t[]){5, 7, 2});
  write_labels("Y.npy", 1, (int64_t[]){5}, -1, 0);
  json_t *document = run_json("bench rnn --json --data npy:X.npy,Y.npy %s", TINY);
  check_document(document, 2);
  assert_int_equal(get_integer(find_row(document, "bp"), "seq_len"), 7); /* the file's length */
  assert_int_equal(get_integer(find_row(document, "bp"), "input"), 2);
  json_decref(document);
  assert_fails(2, "--batch: 6, more than the 5 samples", "bench rnn --json --data npy:X.npy,Y.npy --batch 6 --hidden 4");
  assert_fails(2, "none.npy", "bench rnn --json --data npy:none.npy,Y.npy");
}

/* --forward: the project's forward row says what the first pass did; the others stay as they are, and so does a run without it. */
static void test_forward(void **state) {
  (void)state;
  static const char line[] = "bench rnn --seq-len 600 --hidden 4 --init default --repeats 1 --threads 2 --batch";
  json_t *document = run_json("%s 1 --forward speculative --json", line);
  const json_t *row = find_row(document, "forward");
  check_document(document, 1);
  assert_true(get_integer(row, "chunks") > 1 && get_integer(row, "warm_up") == 40);
  assert_true(get_integer(row, "path") < 200 && get_integer(row, "possible") == 600 && get_real(row, "work") > 1);
  assert_true(get_integer(row, "tails") == 0 && get_real(row, "gap") <= 1e-6);
  assert_null(json_object_get(find_row(document, "bp"), "path"));
  json_decref(document);
  document = run_json("%s 1 --json", line);
  assert_null(json_object_get(find_row(document, "forward"), "path"));
  json_decref(document);
  document = run_json("%s 16 --forward auto --json", line); /* sixteen samples fill the vectors: one step after the other */
  assert_int_equal(get_integer(find_row(document, "forward"), "path"), 600);
  json_decref(document);
  run_result result = run("%s 1 --forward-chunks 5 --warm-up 30", line);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, " residual    path  work      gap  perturbation\n")); /* both passes have chunks */
  assert_non_null(strstr(result.out, "  forward pass: speculative, 5 chunks, warm-up 30, 8 rounds, tolerance 2.4e-07, "
                                     "work up to 1.53: 15"));
  release(&result);
  assert_fails(2, "--warm-up: given beside --forward sequential", "%s 1 --forward sequential --warm-up 3", line);
}

/* The row of speculative BP: as many steps as one chunk and its warm-up, and gradients that were verified like any others. */
static void test_speculative(void **state) {
  (void)state;
  static const char line[] = "bench rnn --seq-len 600 --hidden 4 --init default --repeats 1 --threads 2 --batch";
  json_t *document = run_json("%s 2 --loss all --backward-chunks 5 --backward-warm-up 60 --json", line);
  const json_t *row = find_row(document, "speculative");
  check_document(document, 1);
  assert_null(json_object_get(row, "skipped"));
  assert_true(get_integer(row, "chunks") == 5 && get_integer(row, "warm_up") == 60 && get_integer(row, "possible") == 600);
  assert_true(get_integer(row, "path") >= 180 && get_integer(row, "path") < 400);
  assert_true(get_real(row, "work") >= 1.39 && get_real(row, "work") < 3);
  assert_true(get_real(row, "gap") <= 2.4e-7 && get_real(row, "perturbation") < 1e-8);
  assert_null(json_object_get(find_row(document, "bp"), "path"));
  assert_int_equal(get_integer(row, "flops"), get_integer(find_row(document, "bp"), "flops"));
  json_decref(document);
  run_result result = run("%s 2 --backward-chunks 5", line);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, " residual    path  work      gap  perturbation\n"));
  assert_non_null(strstr(result.out, "  speculative 1."));
  release(&result);
  result = run("%s 16", line); /* sixteen samples fill the vectors: they are not cut into chunks */
  assert_int_equal(result.code, 0);
  assert_null(strstr(result.out, "perturbation"));
  assert_non_null(strstr(result.out, "\n  backward speculative  skipped: one chunk of so few steps, or of so many samples"));
  release(&result);
  assert_fails(2, "--backward-chunks: '0', expected", "%s 2 --backward-chunks 0", line);
}

static void test_table_and_file(void **state) {
  (void)state;
  run_result result = run("bench rnn --seq-len 20 --out R.json %s", TINY);
  assert_int_equal(result.code, 0);
  assert_string_equal(result.err, "");
  const char *const words[] = {"forward", "bp",    "linear",     "blelloch", "chunked",
                               "auto",    "zeros", "subnormals", "GFLOP/s",  "T 20  B 3  H 4"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i) {
    assert_non_null(strstr(result.out, words[i]));
  }
  assert_null(strstr(result.out, "WRONG"));
  assert_null(strstr(result.out, "{"));
  release(&result);
  json_error_t error;
  json_t *document = json_load_file("R.json", 0, &error);
  assert_non_null(document);
  check_document(document, 2);
  json_decref(document);
  result = run("bench rnn --json --seq-len 20 --out R2.json %s", TINY);
  size_t size;
  char *bytes = read_bytes("R2.json", &size);
  assert_int_equal(strlen(result.out), size + 1); /* plus a line end */
  assert_memory_equal(result.out, bytes, size);
  free(bytes);
  release(&result);
}

static void test_sweep(void **state) {
  (void)state;
  const bppsa_bench_sweep *full = bppsa_bench_get_sweep(false), *quick = bppsa_bench_get_sweep(true);
  assert_int_equal(full->seq_len_count, 8);
  assert_int_equal(full->batch_count, 8);
  assert_int_equal(full->seq_lens[0], 10);
  assert_int_equal(full->seq_lens[7], 30000);
  assert_int_equal(full->batches[0], 2);
  assert_int_equal(full->batches[7], 256);
  assert_true(full->seq_len == 1000 && full->batch == 16);
  assert_true(quick->seq_len_count < full->seq_len_count && quick->batch_count < full->batch_count);
}

/* The methods are those of the table of algorithms, each once, behind the forward pass and BP, and auto is the last. */
static void test_methods(void **state) {
  (void)state;
  assert_string_equal(bppsa_bench_method_name(BPPSA_BENCH_FORWARD), "forward");
  assert_string_equal(bppsa_bench_method_name(BPPSA_BENCH_BP), "bp");
  assert_string_equal(bppsa_bench_method_name(BPPSA_BENCH_SPECULATIVE), "speculative");
  assert_int_equal(BPPSA_BENCH_METHODS, 3 + BPPSA_SCAN_ALGORITHMS);
  assert_int_equal(BPPSA_BENCH_SCAN(BPPSA_SCAN_AUTO), BPPSA_BENCH_METHODS - 1);
  bppsa_recurrent_config asked = bppsa_recurrent_config_default();
  asked.method.scan.up_levels = 3;
  asked.method.scan.chunks = 5;
  for (int a = 0; a < BPPSA_SCAN_ALGORITHMS; ++a) {
    const bppsa_bench_method method = BPPSA_BENCH_SCAN((bppsa_scan_algorithm)a);
    const bppsa_recurrent_config config = bppsa_bench_config(&asked, method);
    assert_string_equal(bppsa_bench_method_name(method), bppsa_scan_algorithm_name((bppsa_scan_algorithm)a));
    assert_true(config.method.backward == BPPSA_BACKWARD_SCAN && config.method.scan.algorithm == (bppsa_scan_algorithm)a);
    assert_true(config.method.scan.up_levels == 3 && config.method.scan.chunks == 5);
    assert_int_equal(bppsa_bench_is_scan(method), a == BPPSA_SCAN_BLELLOCH || a == BPPSA_SCAN_CHUNKED);
  }
  assert_int_equal(bppsa_bench_config(&asked, BPPSA_BENCH_FORWARD).method.backward, BPPSA_BACKWARD_BP);
  assert_int_equal(bppsa_bench_config(&asked, BPPSA_BENCH_SPECULATIVE).method.backward, BPPSA_BACKWARD_SPECULATIVE);
  assert_false(bppsa_bench_is_scan(BPPSA_BENCH_SPECULATIVE));
  assert_false(bppsa_bench_is_scan(BPPSA_BENCH_BP) || bppsa_bench_is_scan(BPPSA_BENCH_FORWARD));
}

/* With a time limit of one second, only the first point of a large sweep is measured, and the others are counted. */
static void test_time_limit(void **state) {
  (void)state;
  json_t *document = run_json("bench crossover --quick --seq-len 3000 --threads 1 --time-limit 1 --json");
  const int64_t left_out = get_integer(document, "points_left_out");
  const int64_t rows = (int64_t)json_array_size(json_object_get(document, "rows"));
  assert_true(rows >= 4 && left_out >= 1);
  assert_int_equal(rows / 4 + left_out, 2 * 2 * 4 * 3); /* T 10, 100, 1000, 3000 */
  json_decref(document);
  document = run_json("bench rnn --json --seq-len 5 --batch 2 --hidden 3 --repeats 1 --threads 1 --time-limit 1000");
  assert_int_equal(get_integer(document, "points_left_out"), 0);
  json_decref(document);
  assert_fails(2, "--time-limit: '0'", "bench rnn --time-limit 0");
}

static void test_memory_limit(void **state) {
  (void)state;
  const char *line = "bench rnn --seq-len 400 --batch 4 --hidden 20 --repeats 1 --threads 2 --memory-limit 2400K";
  json_t *document = run_json("%s --json", line); /* blelloch holds 199 products of 4 samples: 1.27 MB */
  const json_t *refused = find_row(document, "blelloch");
  assert_true(json_is_null(json_object_get(refused, "median_s")));
  assert_int_equal(get_integer(refused, "repeats"), 0);
  assert_true(get_integer(refused, "memory_bytes") > 1 << 20);
  char bytes[40];
  snprintf(bytes, sizeof bytes, "%lld bytes", (long long)get_integer(refused, "memory_bytes"));
  assert_non_null(strstr(get_text(refused, "skipped"), bytes));
  check_row(find_row(document, "bp"));
  check_row(find_row(document, "chunked"));
  json_decref(document);
  run_result result = run("%s", line);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "skipped: needs"));
  release(&result);
  assert_fails(2, "--memory-limit: 100 bytes, expected at least", "bench rnn --seq-len 400 --memory-limit 100 --json");
  assert_fails(2, "--memory-limit: 100 bytes, expected at least",
               "bench crossover --quick --seq-len 10 --memory-limit 100 --json");
}

/* ---- rows that the test makes up ---- */

enum { STAGED = 4 };
static bppsa_bench_result staged[STAGED];
static int64_t staged_count;

/* `bench rnn` as it is, but that its points are staged: T = 100, 200, 400, 800. */
static bppsa_status enter_staged(bppsa_bench *bench, int64_t point, bool *more) {
  bppsa_bench_session *s = bench->session;
  *more = point < staged_count;
  if (*more) {
    s->result = staged[point];
    s->point.config.seq_len = INT64_C(100) << point;
  }
  return BPPSA_OK;
}

static bppsa_bench_settings settings_of(const bppsa_device *device, bool json, FILE *out) {
  bppsa_bench_settings asked = {
      .request = {.to = {.out = out, .err = stderr, .json = json}, .device = device},
      .point = {.kind = bppsa_network_kind_find("rnn"), .config = bppsa_recurrent_config_default(), .data = "bitstream"},
      .one_point = true};
  asked.point.config.seq_len = 100;
  return asked;
}

/* What the benchmark prints about the first points (free it), and its status. */
static char *drive_staged(int64_t count, bool json, bppsa_status *status) {
  bppsa_bench_case kind = bppsa_bench_case_rnn;
  bppsa_device *device = NULL;
  char *out = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&out, &size);
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  const bppsa_bench_settings asked = settings_of(device, json, stream);
  kind.enter = enter_staged;
  staged_count = count;
  *status = bppsa_bench_drive(&kind, &asked.request, &asked);
  bppsa_device_destroy(device);
  fclose(stream);
  return out;
}

/* The document about the first points (release it). */
static json_t *document_of(int64_t count, bppsa_status expected) {
  bppsa_status status;
  char *out = drive_staged(count, true, &status);
  assert_int_equal(status, expected);
  json_t *document = json_loads(out, 0, NULL);
  assert_non_null(document);
  free(out);
  return document;
}

static bppsa_status never_after(void *context, int64_t done, int64_t all) {
  (void)context;
  fail_msg("point %d of %d was measured, although it has rows", (int)done, (int)all);
  return BPPSA_OK;
}

/* Rows that fail their check are marked, counted and end the program with 1. */
static void test_failed_rows(void **state) {
  (void)state;
  bppsa_bench_row *made = staged[0].rows;
  staged[0] = (bppsa_bench_result){0};
  for (int m = 0; m < BPPSA_BENCH_METHODS; ++m) {
    made[m] = (bppsa_bench_row){.measured = true, .time = {1, 1, 1, 1, false}, .residual = 1, .flops = 1};
  }
  made[BPPSA_BENCH_SCAN(BPPSA_SCAN_CHUNKED)].residual = BPPSA_RESIDUAL_BOUND;
  made[BPPSA_BENCH_SCAN(BPPSA_SCAN_CHUNKED)].time = (bppsa_timing){0}; /* what is wrong is not timed */
  made[BPPSA_BENCH_AUTO].residual = INFINITY;
  json_t *document = document_of(1, BPPSA_ERR_NUMERIC); /* exit 1 */
  assert_non_null(strstr(bppsa_last_error(), "bench: 2 of 7 rows have a residual of 30 or more"));
  json_t *rows = json_object_get(document, "rows");
  assert_true(json_is_true(json_object_get(json_array_get(rows, BPPSA_BENCH_SCAN(BPPSA_SCAN_BLELLOCH)), "ok")));
  const json_t *wrong = json_array_get(rows, BPPSA_BENCH_SCAN(BPPSA_SCAN_CHUNKED));
  assert_true(json_is_false(json_object_get(wrong, "ok")));
  assert_true(get_real(wrong, "residual") == BPPSA_RESIDUAL_BOUND && get_integer(wrong, "repeats") == 0);
  assert_true(json_is_null(json_object_get(wrong, "median_s")) && json_is_null(json_object_get(wrong, "step_s")));
  /* a run that goes on from these rows counts them, and measures nothing */
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  const bppsa_bench_settings asked = settings_of(device, true, stdout);
  const bppsa_bench_keeper keeper = {.rows = rows, .after = never_after};
  bppsa_bench_count_rows found = {0};
  assert_int_equal(bppsa_bench_drive_rows(&bppsa_bench_case_rnn, &asked.request, &asked, &keeper, &found), BPPSA_OK);
  bppsa_device_destroy(device);
  assert_true(found.measured == 7 && found.failed == 2);
  assert_int_equal(json_array_size(rows), 7);
  json_decref(document);
  bppsa_status status;
  char *out = drive_staged(1, false, &status);
  assert_int_equal(status, BPPSA_ERR_NUMERIC);
  const char *first = strstr(out, "WRONG");
  assert_non_null(first);
  assert_non_null(strstr(first + 1, "WRONG"));
  assert_non_null(strstr(out, "\n  backward chunked      not timed: its residual is 30.00  WRONG\n"));
  free(out);
}

static char *table_of_first(void) {
  bppsa_status status;
  char *out = drive_staged(1, false, &status);
  assert_int_equal(status, BPPSA_OK);
  return out;
}

/* Every heading ends where the cells below it end. */
static void test_headings(void **state) {
  (void)state;
  bppsa_bench_row *made = staged[0].rows;
  staged[0] = (bppsa_bench_result){.peak = {.flops = 5e9, .bytes = 1}};
  made[BPPSA_BENCH_FORWARD] =
      (bppsa_bench_row){.measured = true, .time = {.002, .00095, 3, 5, false}, .residual = 1, .flops = 1e6, .bytes = 2e6};
  made[BPPSA_BENCH_BP] = made[BPPSA_BENCH_FORWARD];
  made[BPPSA_BENCH_BP].forward = made[BPPSA_BENCH_BP].time;
  char *out = table_of_first();
  assert_non_null(strstr(
      out, "  phase    method        median       min       max    n    x bp  GFLOP/s     %      GB/s   residual\n"
           "  forward  forward      2.00 ms    950 us   3.00 s     5             0.50    10      1.00       1.00       \n"
           "  backward bp           2.00 ms    950 us   3.00 s     5    1.00     0.50    10      1.00       1.00       \n"));
  free(out);
}

/* Noisy rows are marked, explained, and decide nothing: no winner, no place in a fitted line. */
static void test_noisy_rows(void **state) {
  (void)state;
  bppsa_timing *chunked = &staged[0].rows[BPPSA_BENCH_SCAN(BPPSA_SCAN_CHUNKED)].time;
  staged[0] = (bppsa_bench_result){.peak = {.flops = 1, .bytes = 1}};
  for (int m = 0; m < BPPSA_BENCH_METHODS; ++m) {
    staged[0].rows[m] = (bppsa_bench_row){
        .measured = true, .time = {2, 2, 3, 5, false}, .forward = {1, 1, 1, 5, false}, .residual = 1, .flops = 1};
  }
  *chunked = (bppsa_timing){0.3, 0.2, 3, 5, false};
  char *quiet = table_of_first();
  assert_non_null(strstr(quiet, "; here chunked wins\n"));
  assert_null(strchr(quiet, '~'));
  free(quiet);
  chunked->noisy = true;
  char *noisy = table_of_first();
  assert_null(strstr(noisy, "wins"));
  assert_non_null(strstr(noisy, "; no winner is named: noisy: chunked\n"));
  assert_non_null(strstr(noisy, " ~300 ms"));
  assert_non_null(strstr(noisy, "~0.15"));
  assert_non_null(strstr(noisy, BPPSA_TIMING_NOTE));
  assert_null(strstr(strstr(noisy, BPPSA_TIMING_NOTE) + 1, BPPSA_TIMING_NOTE)); /* once a point */
  free(noisy);
  for (int64_t t = 0; t < STAGED; ++t) { /* the times of chunked do not grow with T, but for one that is noisy */
    staged[t] = staged[0];
    staged[t].rows[BPPSA_BENCH_SCAN(BPPSA_SCAN_CHUNKED)].time.noisy = t == 3;
    staged[t].rows[BPPSA_BENCH_SCAN(BPPSA_SCAN_CHUNKED)].time.median_s = t == 3 ? 90 : 0.3;
  }
  json_t *document = document_of(STAGED, BPPSA_OK), *rows = json_object_get(document, "rows");
  int64_t marked = 0;
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    marked += json_is_true(json_object_get(json_array_get(rows, i), "noisy"));
  }
  assert_int_equal(marked, 1);
  assert_true(json_is_false(json_object_get(json_array_get(rows, BPPSA_BENCH_SCAN(BPPSA_SCAN_CHUNKED)), "noisy")));
  assert_true(json_is_true(
      json_object_get(json_array_get(rows, 3 * BPPSA_BENCH_METHODS + BPPSA_BENCH_SCAN(BPPSA_SCAN_CHUNKED)), "noisy")));
  json_t *growth = json_object_get(document, "growth");
  bool found = false;
  for (size_t i = 0; i < json_array_size(growth); ++i) {
    const json_t *g = json_array_get(growth, i);
    if (strcmp(get_text(g, "method"), "chunked") == 0) {
      found = true;
      assert_int_equal(get_integer(g, "points"), 3);
      assert_true(fabs(get_real(g, "time_exponent")) < 1e-9);
    }
  }
  assert_true(found);
  json_decref(document);
  bppsa_status status;
  char *table = drive_staged(STAGED, false, &status);
  assert_non_null(strstr(table, "\n  init        phase     method          a      r2       b   products\n"
                                "  default     forward   forward      0.00  1.0000"));
  free(table);
}

/* ---- crossover ---- */

static void check_cell(const json_t *cell) {
  const double ratio = get_real(cell, "ratio");
  assert_true(fabs(ratio - get_real(cell, "bp_s") / get_real(cell, "scan_s")) < 1e-12 * ratio);
  const json_t *noisy = json_object_get(cell, "noisy");
  assert_true(json_is_boolean(noisy));
  assert_string_equal(get_text(cell, "winner"), json_is_true(noisy) ? "" : ratio > 1 ? get_text(cell, "scan") : "bp");
  assert_true(strcmp(get_text(cell, "scan"), "blelloch") == 0 || strcmp(get_text(cell, "scan"), "chunked") == 0);
}

static void test_crossover_gru(void **state) {
  (void)state;
  json_t *document =
      run_json("bench crossover --model gru --quick --seq-len 10 --hidden 3 --batch 2 --repeats 1 --threads 1 --json");
  const json_t *rows = json_object_get(document, "rows");
  assert_string_equal(get_text(document, "network"), "gru");
  assert_int_equal(json_array_size(rows), 2 * 2 * 3 * 4); /* inits x maps x columns x (forward, bp, blelloch, chunked) */
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    check_row(json_array_get(rows, i));
  }
  check_cell(
      json_array_get(json_array_get(json_object_get(json_array_get(json_object_get(document, "maps"), 0), "measured"), 0), 0));
  json_decref(document);
  assert_fails(2, "--nonlinearity: given beside --model gru", "bench crossover --model gru --nonlinearity relu");
}

static void test_crossover(void **state) {
  (void)state;
  json_t *document = run_json(
      "bench crossover --quick --seq-len 20 --hidden 5 --batch 2 --repeats 1 --threads 1 --workers 1 --out C.json --json");
  const json_t *maps = json_object_get(document, "maps");
  assert_string_equal(get_text(document, "bench"), "crossover");
  assert_int_equal(get_integer(document, "workers"), 1);
  assert_non_null(strstr(get_text(document, "model"), "max(critical, total / p)"));
  assert_int_equal(json_array_size(maps), 4);
  for (size_t i = 0; i < 4; ++i) {
    const size_t m = i % 2;
    const json_t *map = json_array_get(maps, i), *here = json_object_get(map, "measured"),
                 *predicted = json_object_get(map, "predicted");
    const size_t columns = json_array_size(json_object_get(map, m == 0 ? "batch" : "hidden"));
    assert_string_equal(get_text(map, "init"), i < 2 ? "default" : "orthogonal");
    assert_int_equal(get_integer(map, m == 0 ? "hidden" : "batch"), m == 0 ? 5 : 2);
    assert_int_equal(json_array_size(json_object_get(map, "seq_len")), 2); /* 10 and 20 */
    assert_int_equal(json_array_size(here), 2);
    for (size_t r = 0; r < 2; ++r) {
      assert_int_equal(json_array_size(json_array_get(here, r)), columns);
      for (size_t c = 0; c < columns; ++c) {
        const json_t *cell = json_array_get(json_array_get(here, r), c), *model = json_array_get(json_array_get(predicted, r), c);
        check_cell(cell);
        check_cell(model);
        assert_true(fabs(get_real(cell, "bp_s") / get_real(model, "bp_s") - 1) < 1e-9); /* one worker: the measurement itself */
        assert_true(fabs(get_real(cell, "scan_s") / get_real(model, "scan_s") - 1) < 1e-9);
      }
    }
  }
  const json_t *rows = json_object_get(document, "rows");
  assert_int_equal(json_array_size(rows), 4 * 2 * 3 * 4); /* maps x T x columns x (forward, bp, blelloch, chunked) */
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    check_row(json_array_get(rows, i));
    assert_string_equal(get_text(json_array_get(rows, i), "init"), i < 2 * 2 * 3 * 4 ? "default" : "orthogonal");
  }
  json_decref(document);
  assert_true(file_exists("C.json"));
  run_result result = run("bench crossover --quick --seq-len 10 --repeats 1 --threads 2 --workers 1000 --init orthogonal");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "init orthogonal, predicted for 1000 workers"));
  assert_non_null(strstr(result.out, "T x H at B 16, init orthogonal, measured"));
  assert_null(strstr(result.out, "init default"));
  release(&result);
}

/* --input: noise of any size, at one point. */
static void test_input(void **state) {
  (void)state;
  const char *const kinds[] = {"rnn", "gru"};
  for (int k = 0; k < 2; ++k) {
    json_t *document =
        run_json("bench %s --input 7 --init default --repeats 1 --threads 1 --seq-len 9 --batch 2 --json", kinds[k]);
    const json_t *rows = json_object_get(document, "rows"), *first = json_array_get(rows, 0);
    assert_int_equal(json_array_size(rows), 7);
    assert_int_equal(get_integer(first, "input"), 7);
    assert_true(get_real(first, "flops") == 2.0 * 9 * 2 * (k == 0 ? 1 : 3) * 20 * (7 + 20)); /* 2 T B G H (I + H) */
    json_decref(document);
  }
  json_t *document = run_json("bench gru --input 7 --repeats 1 --threads 1 --json"); /* instead of the sweep */
  assert_int_equal(json_array_size(json_object_get(document, "rows")), 2 * 7);
  json_decref(document);
  assert_fails(2, "--input: '0'", "bench gru --input 0");
  assert_fails(2, "--input: given beside --data npy:a,b, whose files say how wide steps are",
               "bench rnn --input 2 --data npy:a,b");
}

/* Whichever allocation fails, the program ends with 1 and one line, prints no half document, and holds nothing. */
static void test_memory(void **state) {
  (void)state;
  static const char *const lines[] = {
      "bench rnn --seq-len 3 --batch 1 --hidden 2 --init default --repeats 1 --threads 1 --json",
      "bench crossover --quick --seq-len 10 --hidden 2 --init default --repeats 1 --threads 2 --workers 2 --json"};
  assert_true(walk_document(lines[0], NULL) > 50);
  assert_true(walk_document(lines[1], NULL) > 50);
}

static void test_wrong_requests(void **state) {
  (void)state;
  assert_fails(2,
               "bench: benchmark missing, expected rnn, gru, lstm, crossover, mfcc, forward, step, ranks, schedule, oracle, "
               "jacobian, product, scan, threads, lenet5 or vgg11",
               "bench");
  assert_fails(2,
               "unknown benchmark 'rnm', expected rnn, gru, lstm, crossover, mfcc, forward, step, ranks, schedule, oracle, "
               "jacobian, product, scan, threads, lenet5 or vgg11; did you mean rnn?",
               "bench rnm");
  assert_fails(2, "--repeats: '0'", "bench rnn --repeats 0");
  assert_fails(2, "--memory-limit: '5X', expected a number of bytes", "bench rnn --memory-limit 5X");
  assert_fails(2, "--memory-limit: '0'", "bench rnn --memory-limit 0");
  assert_fails(2, "--seq-len: '0'", "bench rnn --seq-len 0");
  assert_fails(2, "--workers: '0'", "bench crossover --workers 0");
  assert_fails(2, "--validation: unknown option", "bench rnn --validation 0.5");
  assert_fails(2, "--quick: 'yes', expected the flag", "bench rnn --quick=yes");
  assert_fails(2, "--out: no/such/R.json", "bench rnn --seq-len 5 --out no/such/R.json");
  assert_fails(2, "--set: given beside --data bitstream", "bench gru --set L --seq-len 5");
  assert_fails(2, "data set 'nothing:x'", "bench rnn --seq-len 5 --data nothing:x");
}

/* Rows that grow as T^1.5 in time, T in memory, 2 log2 T in steps give these numbers back. */
static void test_growth(void **state) {
  (void)state;
  json_t *rows = json_array();
  for (int64_t t = 10; t <= 6400; t *= 2) { /* below 100: left out */
    for (int method = 0; method < 2; ++method) {
      json_array_append_new(rows, json_pack("{s:I,s:I,s:s,s:s,s:s,s:f,s:I,s:f}", "seq_len", (json_int_t)t, "batch",
                                            (json_int_t)16, "init", "default", "phase", method == 0 ? "forward" : "backward",
                                            "method", method == 0 ? "forward" : "blelloch", "median_s",
                                            t < 100 ? 1 : 1e-6 * pow((double)t, 1.5), "memory_bytes", (json_int_t)(40 * t),
                                            "critical_steps", method == 0 ? 0 : 2 * log2((double)t)));
    }
  }
  json_t *growth = bppsa_bench_growth(rows, 16), *none = bppsa_bench_growth(rows, 8);
  assert_int_equal(json_array_size(none), 0);
  assert_int_equal(json_array_size(growth), 2);
  for (size_t i = 0; i < 2; ++i) {
    const json_t *g = json_array_get(growth, i);
    assert_string_equal(get_text(g, "method"), i == 0 ? "forward" : "blelloch");
    assert_int_equal(get_integer(g, "points"), 6); /* 160 .. 5120 */
    assert_int_equal(get_integer(g, "from"), 160);
    assert_int_equal(get_integer(g, "to"), 5120);
    assert_true(fabs(get_real(g, "time_exponent") - 1.5) < 1e-9);
    assert_true(fabs(get_real(g, "memory_exponent") - 1) < 1e-9);
    assert_true(fabs(get_real(g, "time_r2") - 1) < 1e-9);
    assert_true(i == 0 ? json_object_get(g, "critical_steps_per_doubling") == NULL
                       : fabs(get_real(g, "critical_steps_per_doubling") - 2) < 1e-9);
  }
  json_decref(rows);
  json_decref(growth);
  json_decref(none);
}

/* The weights of a file are those that are timed: initial ones that were saved give the residual of --init, others another one. */
static void test_weights(void **state) {
  (void)state;
  static const char line[] = "bench rnn --json --seq-len 12 --batch 3 --repeats 1 --threads 1";
  double residuals[3];
  assert_runs("train rnn --hidden 4 --seq-len 5 --iterations 0 --threads 1 --save-weights same.st");
  assert_runs("train rnn --hidden 4 --seq-len 5 --iterations 0 --seed 7 --threads 1 --save-weights other.st");
  json_t *documents[] = {run_json("%s --init default --hidden 4", line), run_json("%s --weights ./same.st", line),
                         run_json("%s --weights other.st", line)};
  for (int i = 0; i < 3; ++i) {
    const json_t *row = find_row(documents[i], "bp");
    assert_int_equal(json_array_size(json_object_get(documents[i], "rows")), 7); /* one point */
    assert_string_equal(get_text(row, "init"), ((const char *[]){"default", "same.st", "other.st"})[i]);
    assert_true(get_integer(row, "hidden") == 4 && json_is_true(json_object_get(row, "ok")));
    residuals[i] = get_real(row, "residual");
    json_decref(documents[i]);
  }
  assert_true(residuals[0] == residuals[1] && residuals[0] != residuals[2]);
  assert_runs("train rnn --hidden 4 --seq-len 5 --iterations 0 --bidirectional --threads 1 --save-weights both.st");
  assert_runs("train rnn --hidden 4 --seq-len 5 --input 3 --iterations 0 --threads 1 --save-weights wide.st");
  json_t *wide = run_json("%s --weights wide.st", line); /* noise of as many features */
  assert_int_equal(get_integer(find_row(wide, "bp"), "input"), 3);
  json_decref(wide);
  assert_fails(2, "--weights: given beside --init", "%s --weights same.st --init default", line);
  assert_fails(2, "--hidden: 5 contradicts", "%s --weights same.st --hidden 5", line);
  assert_fails(2, "--input: 3, expected the 1 of same.st", "%s --weights same.st --input 3", line);
  assert_fails(2, "layers in both directions, expected", "%s --weights both.st", line);
  assert_fails(2, "wide.st takes 3 features, --data has 1", "%s --weights wide.st --data bitstream", line);
  assert_fails(2, "none.st", "%s --weights none.st", line);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_growth),         cmocka_unit_test(test_point),          cmocka_unit_test(test_counts),
      cmocka_unit_test(test_inits),          cmocka_unit_test(test_data_file),      cmocka_unit_test(test_sweep),
      cmocka_unit_test(test_methods),        cmocka_unit_test(test_forward),        cmocka_unit_test(test_speculative),
      cmocka_unit_test(test_table_and_file), cmocka_unit_test(test_time_limit),     cmocka_unit_test(test_memory_limit),
      cmocka_unit_test(test_headings),       cmocka_unit_test(test_failed_rows),    cmocka_unit_test(test_noisy_rows),
      cmocka_unit_test(test_input),          cmocka_unit_test(test_crossover),      cmocka_unit_test(test_crossover_gru),
      cmocka_unit_test(test_memory),         cmocka_unit_test(test_wrong_requests), cmocka_unit_test(test_weights)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

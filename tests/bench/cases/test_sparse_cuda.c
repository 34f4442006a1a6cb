/* `bench product` and `bench scan` on a GPU: every kind that applies, cuSPARSE and cuBLAS beside them, queued scans and
 * recordings. */
#include "tests/cli/run_cli.h"
#include "tests/support/support.h"

#include "bench/cases/product_case.h"
#include "bench/harness/recording.h"
#include "calibrate/limits.h"
#include "core/base/philox.h"

static bppsa_device *device;

/* A random matrix file, `each` entries a row. */
static void put_matrix(const char *path, int rows, int cols, int each, uint64_t seed) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, "%%%%MatrixMarket matrix coordinate real general\n%d %d %d\n", rows, cols, rows * each);
  for (int i = 0; i < rows * each; ++i) {
    const int strip = cols / each, column = i % each * strip + (int)bppsa_random_below(seed, 99, (uint64_t)i, (uint64_t)strip);
    fprintf(file, "%d %d %.9g\n", i / each + 1, column + 1, 2 * bppsa_random_double(seed, 98, (uint64_t)i) - 1);
  }
  assert_int_equal(fclose(file), 0);
}

static const json_t *find(const json_t *rows, const char *method, const char *phase) {
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(get_text(row, "method"), method) == 0 && strcmp(get_text(row, "phase"), phase) == 0) {
      return row;
    }
  }
  return NULL;
}

static void check_row(const json_t *row) {
  assert_non_null(row);
  assert_true(get_real(row, "residual") < 30 && get_real(row, "median_s") > 0 && get_real(row, "floor_s") >= 0);
}

static void products(void **state) {
  (void)state;
  put_matrix("L.mtx", 90, 80, 7, 1);
  put_matrix("R.mtx", 80, 120, 9, 2);
  json_t *document = run_json("bench product --device cuda --left L.mtx --right R.mtx --repeats 2 --threads 1 --json");
  const json_t *rows = json_object_get(document, "rows");
  check_row(find(rows, "auto", "numeric"));
  check_row(find(rows, "slots", "numeric"));
  check_row(find(rows, "slots", "graph"));
  assert_null(find(rows, "conv", "numeric")); /* a file has no channels */
  assert_non_null(find(json_object_get(document, "left_out"), "conv", "numeric"));
  if (is_emulated(device)) {
    assert_int_equal(json_array_size(rows), 7);
    check_row(find(rows, "cusparse-reuse", "numeric"));
    check_row(find(rows, "cusparse-reuse", "graph"));
    check_row(find(rows, "cusparse", "full"));
    const json_t *left_out = find(json_object_get(document, "left_out"), "cublas", "numeric");
    assert_non_null(strstr(get_text(left_out, "reason"), "cuBLAS: a factor with gaps"));
  }
  json_decref(document);
  put_matrix("L.mtx", 2000, 80, 1, 3); /* too much for the stand-in: left out, and said; scaled rows besides */
  run_result result = run("bench product --device cuda --left L.mtx --right R.mtx --repeats 1 --threads 1");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "diagonal"));
  if (is_emulated(device)) {
    assert_non_null(strstr(result.out, "left out: cuSPARSE: SpGEMMreuse: work estimation: insufficient resources"));
  }
  release(&result);
}

static void put_full_factors(void) {
  put_matrix("L.mtx", 12, 7, 7, 1);
  put_matrix("R.mtx", 7, 9, 9, 2);
}

#define FULL_PRODUCT "bench product --device cuda --left L.mtx --right R.mtx --repeats 2 --threads 1"

/* Factors without a gap go to cuBLAS too, in both of its modes, queued and recorded. */
static void full_products(void **state) {
  (void)state;
  put_full_factors();
  json_t *document = run_json(FULL_PRODUCT " --json");
  const json_t *rows = json_object_get(document, "rows");
  check_row(find(rows, "dense", "numeric"));
  if (is_emulated(device)) {
    check_row(find(rows, "cublas", "numeric"));
    check_row(find(rows, "cublas", "graph"));
    check_row(find(rows, "cublas-default", "numeric"));
    check_row(find(rows, "cublas-default", "graph"));
  }
  json_decref(document);
}

/* cuBLAS is named as left out where the library is missing or refuses a call. A product in TF32 marks its own rows and no others.
 * */
static void cublas_fails(void **state) {
  (void)state;
  if (!is_emulated(device)) {
    skip();
  }
  static const char *const asked[][2] = {{"missing", "left out: cuBLAS: libcublas.so.13: cannot open"},
                                         {"refuses", "left out: cuBLAS: Sgemm: not supported"}};
  put_full_factors();
  for (int i = 0; i < 2; ++i) {
    setenv("STAND_IN_CUBLAS", asked[i][0], 1);
    run_result result = run(FULL_PRODUCT);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, asked[i][1]));
    assert_non_null(strstr(result.out, "cublas-default"));
    assert_null(strstr(result.out, "cublas               graph"));
    release(&result);
  }
  setenv("STAND_IN_CUBLAS", "tf32", 1);
  run_result result = run(FULL_PRODUCT " --json");
  unsetenv("STAND_IN_CUBLAS");
  assert_int_equal(result.code, 1);
  json_t *document = json_loads(result.out, 0, NULL);
  const json_t *rows = json_object_get(document, "rows");
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    assert_int_equal(!(get_real(row, "residual") < 30), strcmp(get_text(row, "method"), "cublas-default") == 0);
  }
  assert_non_null(find(rows, "cublas-default", "graph"));
  json_decref(document);
  release(&result);
}

/* When the host's memory runs out while cuBLAS is opened, everything is released. */
static void cublas_memory(void **state) {
  (void)state;
  if (!is_emulated(device)) {
    skip();
  }
  bppsa_product_case c;
  put_full_factors();
  assert_int_equal(bppsa_product_case_load("L.mtx", "R.mtx", &c), BPPSA_OK);
  c.device = device;
  const int64_t live = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  void *rival = NULL;
  int64_t call = 0;
  while (status != BPPSA_OK) {
    assert_int_equal(bppsa_alloc_live(), live);
    bppsa_alloc_fail_at(++call);
    status = bppsa_product_cublas_rivals[0]->create(&c, 1, &rival);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_MEMORY || status == BPPSA_ERR_UNSUPPORTED);
  }
  assert_true(call > 2); /* the rival itself, and the handle */
  bppsa_product_cublas_rivals[0]->destroy(rival);
  bppsa_product_case_free(&c);
}

/* Verification finds every recording that does nothing, although the pass before it was right. No other row fails. */
static void idle_recordings(void **state) {
  (void)state;
  static const char *const lines[] = {"product --left L.mtx --right R.mtx", "scan --memory-limit 4M"};
  put_matrix("L.mtx", 20, 30, 3, 1);
  put_matrix("R.mtx", 30, 40, 4, 2);
  bppsa_bench_record_nothing(true);
  for (int i = 0; i < 2; ++i) {
    json_t *document = run_json_wrong("bench %s --device cuda --repeats 1 --threads 1 --json", lines[i]);
    const json_t *rows = json_object_get(document, "rows");
    int64_t recorded = 0;
    for (size_t k = 0; k < json_array_size(rows); ++k) {
      const json_t *row = json_array_get(rows, k);
      const bool graph = strstr(get_text(row, i == 0 ? "phase" : "method"), "graph") != NULL;
      assert_int_equal(!(get_real(row, "residual") < 30), graph);
      assert_int_equal(get_integer(row, "repeats"), graph ? 0 : 1); /* what is wrong is not timed */
      recorded += graph;
    }
    assert_true(recorded >= (i == 1 ? 1 : is_emulated(device) ? 3 : 2)); /* auto, slots, cuSPARSE */
    json_decref(document);
  }
  bppsa_bench_record_nothing(false);
}

/* Recordings that are refused are named as left out; the queued passes are measured. */
static void refused_recordings(void **state) {
  (void)state;
  static const char *const lines[] = {"product --left L.mtx --right R.mtx", "scan --memory-limit 4M"};
  put_matrix("L.mtx", 20, 30, 3, 1);
  put_matrix("R.mtx", 30, 40, 4, 2);
  bppsa_bench_record_waits(true);
  for (int i = 0; i < 2; ++i) {
    json_t *document = run_json("bench %s --device cuda --repeats 1 --threads 1 --json", lines[i]);
    const json_t *rows = json_object_get(document, "rows"), *left_out = json_object_get(document, "left_out");
    int64_t refused = 0;
    for (size_t k = 0; k < json_array_size(left_out); ++k) {
      const json_t *one = json_array_get(left_out, k);
      const bool graph = strstr(get_text(one, i == 0 ? "phase" : "method"), "graph") != NULL;
      assert_int_equal(strstr(get_text(one, "reason"), "recording: ") != NULL, graph);
      refused += graph;
    }
    assert_true(refused >= (i == 1 ? 1 : is_emulated(device) ? 3 : 2)); /* auto, slots, cuSPARSE */
    assert_true(json_array_size(rows) > 0);
    for (size_t k = 0; k < json_array_size(rows); ++k) {
      check_row(json_array_get(rows, k));
      assert_null(strstr(get_text(json_array_get(rows, k), i == 0 ? "phase" : "method"), "graph"));
    }
    json_decref(document);
  }
  bppsa_bench_record_waits(false);
}

/* Every limit of a GPU is measured. */
static void limits(void **state) {
  (void)state;
  bppsa_machine_limits found = {0};
  assert_int_equal(bppsa_machine_limits_measure(device, &found), BPPSA_OK);
  assert_true(found.peak > 0 && found.write_bytes > 0 && found.copy_bytes > 0);
}

/* ---- a rival that is slow to open ---- */

enum { SLOW_US = 300000 };
static int64_t opened, planned;

static const bppsa_product_gpu_rival *real_rival(void) {
  return (const bppsa_product_gpu_rival *)bppsa_product_cusparse_rivals[0];
}

static bppsa_status create_slowly(const bppsa_product_case *c, int32_t threads, void **rival) {
  ++opened;
  usleep(SLOW_US);
  return real_rival()->rival.create(c, threads, rival);
}

static bppsa_status plan_slowly_once(void *rival) {
  usleep(planned++ == 0 ? SLOW_US : 1000);
  return real_rival()->rival.plan(rival);
}

/* plan_s includes neither opening a rival nor the extra time of its first plan. */
static void plans(void **state) {
  (void)state;
  if (!is_emulated(device)) {
    skip();
  }
  bppsa_product_gpu_rival slow = *real_rival();
  const bppsa_product_rival *const list[] = {&slow.rival, NULL};
  slow.rival.name = "slow";
  slow.rival.create = create_slowly;
  slow.rival.plan = plan_slowly_once;
  put_matrix("L.mtx", 20, 30, 3, 1);
  put_matrix("R.mtx", 30, 40, 4, 2);
  bppsa_product_rivals_on_gpu[0] = list;
  json_t *document = run_json("bench product --device cuda --left L.mtx --right R.mtx --repeats 1 --threads 1 --json");
  bppsa_product_rivals_on_gpu[0] = bppsa_product_cusparse_rivals;
  const json_t *row = find(json_object_get(document, "rows"), "slow", "numeric");
  check_row(row);
  assert_true(get_real(row, "plan_s") >= 1e-3 && get_real(row, "plan_s") < 1e-6 * SLOW_US);
  assert_true(opened == 2 && planned == 2);
  json_decref(document);
}

/* ---- the timer of recordings ---- */

static int64_t calls[2]; /* of work and clear */

static bppsa_status wait_and_count(void *context) {
  (void)context;
  ++calls[0];
  usleep(200000);
  return BPPSA_OK;
}

static bppsa_status count_clear(void *context) {
  (void)context;
  ++calls[1];
  return BPPSA_OK;
}

static bppsa_status replay_once(void *recording, double *residual) {
  *residual = 0;
  return bppsa_bench_replay_cleared(recording);
}

/* The time of a recording does not include the host's time before a launch: the action is called once, and only replays are
 * timed. */
static void recordings(void **state) {
  (void)state;
  bppsa_bench_recording recording;
  bppsa_contender replays = {.name = "replays",
                             .verification = {replay_once, &recording, 1},
                             .pass = bppsa_bench_replay_pass,
                             .context = &recording,
                             .parts = 1};
  const bppsa_rounds rounds = {.repeats = 4};
  calls[0] = calls[1] = 0;
  assert_int_equal(bppsa_bench_record(device, wait_and_count, count_clear, NULL, &recording), BPPSA_OK);
  assert_int_equal(recording.nodes, 0); /* the marks are not counted */
  assert_int_equal(calls[1], 0);
  assert_int_equal(bppsa_rounds_run(&rounds, 1, &replays), BPPSA_OK);
  assert_int_equal(replays.timing[0].repeats, 4);
  assert_true(calls[0] == 1 && calls[1] == 1 && replays.timing[0].median_s < 0.2);
  bppsa_bench_recording_free(&recording);
}

/* When the host's memory runs out, the benchmark fails or leaves the rival out, and releases everything. */
static void memory(void **state) {
  (void)state;
  int64_t failed = 0;
  put_matrix("L.mtx", 20, 30, 3, 1);
  put_matrix("R.mtx", 30, 40, 4, 2);
  for (int64_t call = 1; call < 400; call += is_emulated(device) ? 9 : 41) {
    bppsa_alloc_fail_at(call);
    run_result result = run("bench product --device cuda --left L.mtx --right R.mtx --repeats 1 --threads 1 --json");
    bppsa_alloc_fail_at(0);
    assert_in_range(result.code, 0, 1);
    failed += result.code;
    release(&result);
  }
  assert_true(failed > 3 || !is_emulated(device));
}

static void scans(void **state) {
  (void)state;
  const char *limit = is_emulated(device) ? "--memory-limit 16M" : ""; /* leaves out the products that take long there */
  json_t *document = run_json("bench scan --device cuda --repeats 1 --batch 1 --threads 1 --json %s", limit);
  const json_t *rows = json_object_get(document, "rows");
  assert_int_equal(json_array_size(rows), is_emulated(device) ? 6 : 12);
  check_row(find(rows, "linear", "scan"));
  assert_true(json_real_value(json_object_get(find(rows, "linear", "scan"), "predicted_s")) > 9 * 3e-6); /* nine mat-vecs */
  check_row(find(rows, "linear graph", "scan"));
  check_row(find(rows, "blelloch 1 graph", "scan"));
  json_decref(document);
  run_result result = run("bench scan --device cuda --repeats 1 --threads 1 --memory-limit 4M");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "left out: scan plan: the products up to"));
  release(&result);
}

int main(void) {
  if (bppsa_device_create("cuda", 1, &device) != BPPSA_OK) {
    puts(bppsa_last_error());
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(products),        cmocka_unit_test(full_products),
                                     cmocka_unit_test(cublas_fails),    cmocka_unit_test(cublas_memory),
                                     cmocka_unit_test(memory),          cmocka_unit_test(scans),
                                     cmocka_unit_test(plans),           cmocka_unit_test(recordings),
                                     cmocka_unit_test(idle_recordings), cmocka_unit_test(refused_recordings),
                                     cmocka_unit_test(limits)};
  const int failed = cmocka_run_group_tests(tests, enter_directory, leave_directory);
  bppsa_device_destroy(device);
  return failed;
}

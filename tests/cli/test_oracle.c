/* `bppsa oracle`: the table and its sentence, JSON, files, and one line for what cannot be. */
#include <time.h>

#include "tests/cli/run_cli.h"

/* Where this machine's measurements are kept. */
static void use_cache(const char *name) {
  char directory[4096];
  assert_non_null(getcwd(directory, sizeof directory - 64));
  strcat(strcat(directory, "/"), name);
  assert_int_equal(setenv("XDG_CACHE_HOME", directory, 1), 0);
}

static void expect_error(const char *line, int code, const char *part) {
  run_result result = run("%s", line);
  assert_int_equal(result.code, code);
  assert_string_equal(result.out, "");
  if (strncmp(result.err, "bppsa: error: ", 14) != 0 || strstr(result.err, part) == NULL ||
      strchr(result.err, '\n') != result.err + strlen(result.err) - 1) {
    fail_msg("%s: %s lacks '%s'", line, result.err, part);
  }
  release(&result);
}

static void test_errors(void **state) {
  (void)state;
  expect_error("oracle", 2, "model missing");
  expect_error("oracle vgg16", 2, "system missing");
  expect_error("oracle vgg17 dgx-h100", 2, "did you mean vgg16?");
  expect_error("oracle vgg16 dgx-h10", 2, "did you mean dgx-h100?");
  expect_error("oracle lenet5 other-machine", 2, "a file .json, which bppsa calibrate --out writes of this machine");
  expect_error("oracle lenet5 this-machin", 2, "did you mean this-machine?");
  expect_error("oracle vgg16 dgx-h100 more", 2, "'more': unexpected argument");
  expect_error("oracle vgg16 h200x4 --processors 5", 2, "--processors: 5, expected 1 to the 4 of h200x4\n");
  expect_error("oracle vgg16 h200x4 --processors 0", 2, "--processors: 0, expected 1 to the 4 of h200x4\n");
  expect_error("oracle vgg16 h200x4 --processors 2..5", 2, "--processors: 2..5, expected 1 to the 4 of h200x4\n");
  expect_error("oracle vgg16 h200x4 --processors 4..2", 2,
               "--processors: 4..2, expected 1 to the 4 of h200x4, the smaller number first\n");
  expect_error("oracle --list lenet5", 2, "oracle: --model given beside --list, expected --json alone");
  expect_error("oracle --list --json --batch 4", 2, "oracle: --batch given beside --list, expected --json alone");
  expect_error("oracle vgg16 h200x4 --plot x.png", 2, "--plot: 'x.png', expected a path that ends in .svg");
  expect_error("oracle vgg16 h200x4 --plot .svg", 2, "--plot: '.svg', expected");
  expect_error("oracle vgg16 h200x4 --processors 1-4", 2, "--processors: '1-4'");
  expect_error("oracle vgg16 h200x4 --processors 1..4x", 2, "--processors: '1..4x'");
  expect_error("oracle vgg16 h200x4 --batch -1", 2, "--batch: '-1'");
  expect_error("oracle vgg16 h200x4 --chunks 0", 2, "--chunks: '0', expected a whole number from 1 to 1000000");
  expect_error("oracle vgg16 h200x4 --strategy dta", 2, "did you mean data?");
  expect_error("oracle vgg16 h200x4 --strategy data,dta", 2, "did you mean data?");
  expect_error("oracle vgg16 h200x4 --strategy data,", 2, "'': unknown strategy");
  expect_error("oracle vgg16 h200x4 --scaling wek", 2, "did you mean weak?");
  expect_error("oracle no.json h200x4", 2, "no.json");
  expect_error("oracle vgg16 no.json", 2, "no.json");
}

static void test_table(void **state) {
  (void)state;
  run_result result = run("oracle vgg16 paradl-v100 --processors 1024 --scaling strong --batch 1024 --collective ring");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "Take data+filter for vgg16 on 1024 processors of paradl-v100"));
  assert_non_null(strstr(result.out, "filter (the narrowest layer has 64 filters)"));
  assert_non_null(strstr(result.out, "time-bp, time-chunked, time-blelloch (the model has no recurrent layer)"));
  release(&result);
  /* Data + filter beats data at scale: the sentence names the number. */
  result = run("oracle vgg16 paradl-v100 --processors 16..1024 --scaling strong --batch 1024 --collective ring "
               "--strategy data,data+filter");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "Fastest: data from 16, data+filter from 256."));
  assert_null(strstr(result.out, "filter (the narrowest"));
  release(&result);
  result = run("oracle cosmoflow512 paradl-v100 --processors 4 --batch 1 --strategy data");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "No strategy trains cosmoflow512 on 4 processors"));
  assert_non_null(strstr(result.out, "it needs 50.7 GB of memory, a processor has 16 GB"));
  release(&result);
  /* Nothing is possible on fewer processors: the sentence begins with the first number that is. */
  result = run("oracle cosmoflow512 paradl-v100 --processors 1..16 --batch 1 --scaling strong --strategy spatial");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, ". Fastest: spatial from 4.\n"));
  release(&result);
  result = run("oracle cosmoflow512 paradl-v100 --processors 1..4 --batch 1 --strategy data");
  assert_null(strstr(result.out, "Fastest"));
  release(&result);
  result = run("oracle --list");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "cosmoflow256"));
  release(&result);
  /* Groups are said, and processors that have none. */
  result = run("oracle lenet5 dgx-h100 --processors 8 --strategy data+filter");
  assert_non_null(strstr(result.out, "  2 groups of 4\n"));
  release(&result);
  result = run("oracle lenet5 dgx-h100 --processors 8 --strategy data+filter --group 6");
  assert_non_null(strstr(result.out, "\nnot possible\ndata+filter            8  8 processors are not cut into groups of 6\n"));
  release(&result);
}

/* Impossible rows stand below the table, a line for each strategy and reason, and have no place in it. */
static void test_impossible(void **state) {
  (void)state;
  run_result result = run("oracle vgg16 paradl-v100 --processors 32..1024 --scaling strong --batch 1024 --collective ring "
                          "--strategy data,filter,gpipe");
  assert_int_equal(result.code, 0);
  const char *below = strstr(result.out, "\nnot possible\n"), *verdict = strstr(result.out, "\nTake data for vgg16");
  assert_non_null(below);
  assert_non_null(verdict);
  assert_true(below > strstr(result.out, "\ndata                1024") && verdict > below);
  assert_non_null(strstr(below, "\nfilter            32..64  it needs "));
  assert_non_null(strstr(below, "\nfilter         128..1024  the narrowest layer has 64 filters\n"));
  assert_non_null(strstr(below, "\ngpipe           64..1024  the model has 38 layers\n"));
  assert_null(strstr(result.out, "no: "));
  assert_non_null(strstr(result.out, "\nspeed-up: over serial, one processor with mini-batches of 1024\n"));
  release(&result);
  /* Where nothing is possible there is no table. */
  result = run("oracle cosmoflow512 paradl-v100 --processors 4 --batch 1 --strategy data");
  assert_null(strstr(result.out, "compute s"));
  release(&result);
}

/* Bubbles are no communication: the verdict names both. */
static void test_waiting(void **state) {
  (void)state;
  run_result result = run("oracle vgg11 h200x4 --processors 4 --batch 8 --strategy gpipe,1f1b");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, " compute s  commun. s  waiting s    epoch s  speed-up     memory\n"));
  assert_non_null(strstr(result.out, " % of it communication, "));
  assert_non_null(strstr(result.out, " % waiting. Slower: "));
  assert_non_null(strstr(result.out, " % communication, "));
  release(&result);
}

static void write_file(const char *path, const char *text);

/* Data takes 1.5 % less time than fast-forward, which waits more, so that its processors slow each other down less. Without a
 * spread, with one that changes nothing, and with one at whose end fast-forward is faster. */
static void test_spread(void **state) {
  (void)state;
  static const char *const spreads[] = {"", ", \"spread\": {\"slowdown\": [1.4, 1.6], \"messages\": [0.95, 1.05]}",
                                        ", \"spread\": {\"slowdown\": [1, 2], \"messages\": [0.1, 10]}"};
  for (size_t i = 0; i < sizeof spreads / sizeof spreads[0]; ++i) {
    char text[512];
    snprintf(
        text, sizeof text,
        "{\"name\": \"busy\", \"peak_flops\": 1e9, \"memory_bytes\": 1e12, \"levels\": [{\"name\": \"n\", \"processors\": 2, "
        "\"alpha_s\": 1e-4, \"bandwidth\": 1e8, \"slowdown\": 1.5%s}]}",
        spreads[i]);
    write_file("oracle_busy.json", text);
    const char *const line =
        "oracle lenet5 oracle_busy.json --processors 2 --scaling strong --batch 64 --strategy data,fast-forward";
    run_result result = run("%s", line);
    assert_int_equal(result.code, 0);
    assert_int_equal(strstr(result.out, "Take data for lenet5 on 2 processors of busy: ") != NULL, 1);
    assert_int_equal(
        strstr(result.out, " Within the measured spread, fast-forward may be as fast. Slower: fast-forward (") != NULL, i == 2);
    assert_int_equal(strstr(result.out, "    spread of epoch\n") != NULL, i > 0);
    assert_int_equal(
        strstr(result.out, "\nwarning: busy: 2 processors at once compute 1.50 times as long as one, up to 2.00: ") != NULL,
        i == 2);
    release(&result);
    json_t *document = run_json("%s --json", line), *rows = json_object_get(document, "rows");
    const json_t *rivals = json_object_get(document, "may_be_as_fast"), *pair;
    assert_int_equal(json_array_size(rivals), i == 2);
    assert_int_equal(json_array_size(json_object_get(document, "warnings")), i == 2);
    assert_true((rivals != NULL) == (i > 0));
    pair = json_object_get(json_array_get(rows, 0), "time_spread_s");
    assert_int_equal(json_array_size(pair), i > 0 ? 2 : 0);
    if (i > 0) {
      const double time = get_real(json_array_get(rows, 0), "time_s");
      assert_true(json_number_value(json_array_get(pair, 0)) < time && json_number_value(json_array_get(pair, 1)) > time);
    }
    if (i == 2) {
      assert_string_equal(json_string_value(json_array_get(rivals, 0)), "fast-forward");
      assert_non_null(strstr(get_text(document, "verdict"), " Within the measured spread, fast-forward may be as fast."));
    }
    json_decref(document);
  }
  write_file("oracle_busy.json",
             "{\"name\": \"busy\", \"peak_flops\": 1e9, \"memory_bytes\": 1e12, \"spread\": [1, 2], \"levels\": []}");
  expect_error("oracle lenet5 oracle_busy.json", 2, "oracle_busy.json: \"spread\": a list of 2, expected a JSON object");
}

/* --list --json is one document, whose names the command takes. */
static void test_list(void **state) {
  (void)state;
  json_t *document = run_json("oracle --list --json");
  static const char *const lists[] = {"models", "systems", "strategies"};
  use_cache("oracle_cache");
  static const size_t sizes[] = {13, 4, 24};
  for (int k = 0; k < 3; ++k) {
    const json_t *list = json_object_get(document, lists[k]);
    assert_int_equal(json_array_size(list), sizes[k]);
    for (size_t i = 0; i < json_array_size(list); ++i) {
      const char *name = get_text(json_array_get(list, i), "name");
      assert_true(strlen(get_text(json_array_get(list, i), "summary")) > 0);
      run_result result = run("oracle %s %s --strategy %s --processors 1", k == 0 ? name : "lenet5", k == 1 ? name : "h200x4",
                              k == 2 ? name : "serial");
      assert_int_equal(result.code, 0);
      release(&result);
    }
  }
  json_decref(document);
}

/* Phases add up, powers of two and the last number of the range have a row, impossible ones have nulls. */
static void test_json(void **state) {
  (void)state;
  json_t *document = run_json("oracle resnet50 dgx-h100 --processors 4..100 --json");
  const json_t *rows = json_object_get(document, "rows");
  static const int64_t sizes[] = {4, 8, 16, 32, 64, 100};
  int64_t possible = 0;
  assert_true(get_real(document, "parameters") == 25557032);
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i), *phases = json_object_get(row, "phases_s");
    assert_int_equal(get_integer(row, "processors"), sizes[i % 6]);
    if (json_is_null(json_object_get(row, "time_s"))) {
      assert_true(json_is_false(json_object_get(row, "feasible")));
      assert_true(strlen(get_text(row, "reason")) > 0);
      continue;
    }
    double sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)phases, key, value) {
      sum += json_number_value(value);
    }
    const double time = get_real(row, "time_s"), computing = get_real(row, "compute_s");
    assert_true(sum > 0.999999 * time && sum < 1.000001 * time);
    const double parts = computing + get_real(row, "communication_s") + get_real(row, "waiting_s");
    assert_true(parts > 0.999999 * time && parts < 1.000001 * time);
    assert_true(get_real(row, "waiting_s") == get_real(phases, "wait") && get_real(row, "speedup") > 0);
    assert_null(json_object_get(row, "time_spread_s")); /* a built-in system has none */
    ++possible;
  }
  assert_true(possible > 30);
  json_decref(document);
}

static void write_file(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

static json_t *row_named(const json_t *rows, const char *strategy) {
  size_t i;
  json_t *row;
  json_array_foreach(rows, i, row) {
    if (strcmp(get_text(row, "strategy"), strategy) == 0) {
      return row;
    }
  }
  fail_msg("no row of %s", strategy);
  return NULL;
}

/* --strategy all has the pipelines with several stages a processor too: eleven layers are five processors' with two stages each,
 * and three's with three. */
static void test_several_stages(void **state) {
  (void)state;
  json_t *document = run_json("oracle lenet5 dgx-h100 --processors 5 --scaling strong --batch 40 --strategy all --json");
  const json_t *row = row_named(json_object_get(document, "rows"), "interleaved");
  assert_true(json_is_true(json_object_get(row, "feasible")));
  assert_int_equal(get_integer(row, "limit"), 5);
  assert_int_equal(get_integer(row, "chunks"), 2);
  assert_int_equal(get_integer(row, "micro_batches"), 20);
  assert_int_equal(json_array_size(json_object_get(row, "cut")), 9);
  row = row_named(json_object_get(document, "rows"), "modulo");
  assert_true(json_is_true(json_object_get(row, "feasible")));
  assert_int_equal(get_integer(row, "limit"), 11);
  assert_null(json_object_get(row, "cut"));
  assert_null(json_object_get(row, "chunks"));
  json_decref(document);
  document = run_json("oracle lenet5 dgx-h100 --processors 3 --chunks 3 --strategy interleaved --json");
  row = json_array_get(json_object_get(document, "rows"), 0);
  assert_int_equal(get_integer(row, "chunks"), 3);
  assert_int_equal(json_array_size(json_object_get(row, "cut")), 8);
  json_decref(document);
  /* Two layers: the recurrent one and the head. */
  document = run_json("oracle gru dgx-h100 --processors 2 --strategy all --json");
  assert_true(json_is_true(json_object_get(row_named(json_object_get(document, "rows"), "modulo"), "feasible")));
  assert_string_equal(get_text(row_named(json_object_get(document, "rows"), "interleaved"), "reason"),
                      "the model has 2 layers for 2 stages a processor");
  json_decref(document);
}

/* Saved files give the same document; a network file is a model too. */
static void test_files(void **state) {
  (void)state;
  json_t *first =
      run_json("oracle lenet5 h200x4 --save-model oracle_m.json --save-system oracle_s.json --plot oracle.svg --json");
  json_t *second = run_json("oracle oracle_m.json oracle_s.json --json");
  assert_true(json_array_size(json_object_get(first, "rows")) == json_array_size(json_object_get(second, "rows")));
  assert_string_equal(get_text(first, "verdict"), get_text(second, "verdict"));
  assert_int_equal(access("oracle.svg", R_OK), 0);
  json_decref(first);
  json_decref(second);
  write_file(
      "oracle_n.json",
      "{\"input\": [1, 8, 8], \"layers\": [{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 2, \"kernel\": 3, \"dilation\": 2},"
      "{\"name\": \"fc\", \"op\": \"linear\", \"out\": 3}]}");
  first = run_json("oracle oracle_n.json h200x4 --processors 2 --samples 64 --batch 2 --json");
  assert_true(get_real(first, "parameters") == 2 * 9 + 2 + 2 * 16 * 3 + 3);
  json_decref(first);
}

/* A model without FLOPs takes no time, which has no place on an axis of logarithms. */
static void test_plot_of_nothing(void **state) {
  (void)state;
  write_file("oracle_zero.json",
             "{\"name\": \"zero\", \"samples\": 10, \"layers\": [{\"name\": \"a\", \"kind\": \"elementwise\", "
             "\"in\": [1], \"out\": [1], \"flops\": 0}]}");
  write_file("oracle_plain.json",
             "{\"name\": \"plain\", \"peak_flops\": 1e9, \"memory_bytes\": 1e9, \"levels\": [{\"name\": \"n\", "
             "\"processors\": 4, \"alpha_s\": 1e-4, \"bandwidth\": 1e6}]}");
  json_t *document = run_json("oracle oracle_zero.json oracle_plain.json --strategy serial,data --processors 1..4 --batch 4 "
                              "--plot oracle_zero.svg --json");
  assert_true(get_real(json_array_get(json_object_get(document, "rows"), 0), "time_s") == 0);
  assert_int_equal(access("oracle_zero.svg", R_OK), 0);
  json_decref(document);
  run_result result = run("oracle oracle_zero.json oracle_plain.json --strategy serial,spatial --processors 1 --batch 4");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "Take serial for zero on 1 processor of plain: 0 s an epoch, 0 % of it communication. "
                                     "Others: spatial (0 s, 0 % communication).\n"));
  release(&result);
}

/* Numbers below the axis keep clear of each other; the last one is there. */
static void test_plot_of_many_sizes(void **state) {
  (void)state;
  run_result result = run("oracle vgg16 dgx-h100 --strategy data --processors 1..1000000 --batch 1 --plot oracle_many.svg");
  assert_int_equal(result.code, 0);
  char *svg = read_file("oracle_many.svg");
  assert_non_null(strstr(svg, ">1<"));
  assert_non_null(strstr(svg, ">128<"));
  assert_non_null(strstr(svg, ">1000000<"));
  assert_null(strstr(svg, ">524288<"));
  assert_null(strstr(svg, ">262144<"));
  free(svg);
  release(&result);
}

/* Seconds of the processor that one command takes; its verdict has the part. */
static double seconds_of(const char *options, const char *part) {
  const clock_t start = clock();
  json_t *document = run_json("oracle resnet152 dgx-h100 --json %s", options);
  const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
  assert_non_null(strstr(get_text(document, "verdict"), part));
  json_decref(document);
  return seconds;
}

/* A table has a row for each power of two: a thousand times the processors make it twice as long. Simulations of pipelines stop at
 * a number of micro-batches: four times as many do not take four times as long. */
static void test_million(void **state) {
  (void)state;
  static const char *const cases[][2] = {{"--processors 1000000 --batch 1", "1000000 processors"},
                                         {"--processors 1..1000000 --batch 1", "1000000 processors"},
                                         {"--processors 1..1000000 --scaling strong --batch 1000000", "1000000 processors"},
                                         {"--processors 64 --scaling strong --batch 1024 --micro-batches 256", "64 processors"},
                                         {"--processors 64 --scaling strong --batch 1024 --micro-batches 1024", "64 processors"}};
  const double thousand = seconds_of("--processors 1..1000 --scaling strong --batch 1000", "1000 processors");
  double fewer = 0;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const double seconds = seconds_of(cases[i][0], cases[i][1]);
    if (seconds > 5 * thousand + 0.1) {
      fail_msg("%s: %.2f s of the processor, 1 to 1000 processors took %.2f", cases[i][0], seconds, thousand);
    }
    if (i == 4) {
      assert_true(seconds < 2 * fewer + 0.1);
    }
    fewer = seconds;
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_errors),
                                     cmocka_unit_test(test_table),
                                     cmocka_unit_test(test_list),
                                     cmocka_unit_test(test_impossible),
                                     cmocka_unit_test(test_waiting),
                                     cmocka_unit_test(test_spread),
                                     cmocka_unit_test(test_json),
                                     cmocka_unit_test(test_several_stages),
                                     cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_plot_of_nothing),
                                     cmocka_unit_test(test_plot_of_many_sizes),
                                     cmocka_unit_test(test_million)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* `bppsa schedule`: the documents, the files, what is refused, memory running out. */
#include "tests/cli/run_cli.h"

#include <math.h>

#include "core/files/json.h"

enum { OPTION = 40 };

/* Does a scheme of `schedule --list --json` take an option? */
static bool takes(const json_t *scheme, const char *option) {
  const json_t *name;
  size_t i;
  bool found = false;
  json_array_foreach(json_object_get(scheme, "options"), i, name) {
    found = found || strcmp(json_string_value(name), option) == 0;
  }
  return found;
}

/* "--width 2", or "" where the scheme has no such option. */
static const char *if_taken(const json_t *scheme, const char *option, int value, char text[OPTION]) {
  text[0] = '\0';
  if (takes(scheme, option)) {
    snprintf(text, OPTION, "--%s %d", option, value);
  }
  return text;
}

static void check_makespan(double expected, const char *line) {
  json_t *document = run_json("schedule %s --json", line);
  const double found = get_real(document, "makespan");
  if (found != expected) {
    fail_msg("%s: makespan %.17g, expected %g", line, found, expected);
  }
  json_decref(document);
}

static void test_worked_numbers(void **state) {
  (void)state;
  const char *const eight = "--stages 2 --layers 8 --micro-batches 1 --skip-first-input-grad",
                    *const sixteen = "--stages 4 --layers 16 --micro-batches 4 "
                                     "--skip-first-input-grad";
  char line[256];
  const struct {
    double makespan;
    const char *scheme, *rest, *more;
  } numbers[] = {{23, "model-parallel", eight, "--split-backward wi"},
                 {22, "model-parallel", eight, "--split-backward iw"},
                 {19, "fast-forward", eight, ""},
                 {16, "modulo", eight, ""},
                 {83, "gpipe", sixteen, "--split-backward wi"},
                 {80, "gpipe", sixteen, "--split-backward iw"},
                 {68, "fast-forward", sixteen, ""},
                 {51, "modulo", sixteen, ""}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
    snprintf(line, sizeof line, "%s %s %s", numbers[i].scheme, numbers[i].rest, numbers[i].more);
    check_makespan(numbers[i].makespan, line);
  }
  check_makespan(26, "chimera --stages 6 --micro-batches 6");  /* 5D - 4 */
  check_makespan(58, "chimera --stages 4 --micro-batches 16"); /* 3N + (K + 1)(D - 2) */
  check_makespan(57, "1f1b --stages 4 --micro-batches 16");
  run_result said = run("schedule chimera --stages 4 --micro-batches 16");
  assert_non_null(strstr(said.out, "Note: direct concatenation of 4 units leaves (K + 1)(D - 2) = 10 bubbles"));
  release(&said);
  said = run("schedule chimera --stages 4 --micro-batches 12");
  assert_null(strstr(said.out, "Note"));
  release(&said);
}

static void test_figure4(void **state) {
  (void)state;
  const char *costs = "{\"sync\": [3, 1, 1, 2, 4]}";
  write_bytes("costs.json", costs, strlen(costs));
  check_makespan(18, "wait-free --layers 5 --skip-first-input-grad --costs costs.json");
  check_makespan(17, "priority --layers 5 --skip-first-input-grad --costs costs.json");
  check_makespan(15, "reverse-first-k --layers 5 --skip-first-input-grad --costs costs.json --window backward-forward");
  check_makespan(16, "reverse-first-k --layers 5 --skip-first-input-grad --costs costs.json --reverse-k 2");
}

static void test_document(void **state) {
  (void)state;
  json_t *document = run_json("schedule 1f1b --stages 4 --micro-batches 6 --json");
  assert_string_equal(get_text(document, "scheme"), "1f1b");
  assert_int_equal(get_integer(document, "stages"), 4);
  assert_int_equal(get_integer(document, "micro_batches"), 6);
  const json_t *workers = json_object_get(document, "workers"), *ops = json_object_get(document, "ops");
  assert_int_equal(json_array_size(workers), 4);
  double busy = 0;
  for (size_t i = 0; i < 4; ++i) {
    const json_t *worker = json_array_get(workers, i);
    busy += get_real(worker, "busy");
    assert_true(get_real(worker, "peak_activations") == (double)(4 - i));
    assert_true(get_real(worker, "weight_versions") == 1);
  }
  assert_true(fabs(get_real(document, "bubble_ratio") - (1 - busy / (4 * get_real(document, "makespan")))) < 1e-12);
  int forward = 0, backward = 0;
  for (size_t i = 0; i < json_array_size(ops); ++i) {
    const json_t *op = json_array_get(ops, i), *deps = json_object_get(op, "deps");
    assert_int_equal(get_integer(op, "id"), i);
    forward += strcmp(get_text(op, "kind"), "F") == 0;
    backward += strcmp(get_text(op, "kind"), "B") == 0;
    for (size_t k = 0; k < json_array_size(deps); ++k) {
      const json_t *dep = json_array_get(ops, (size_t)json_integer_value(json_array_get(deps, k)));
      const bool together = strcmp(get_text(op, "kind"), "RECV") == 0;
      assert_true(get_real(dep, together ? "start" : "end") <= get_real(op, "start"));
    }
  }
  assert_int_equal(forward, 24);
  assert_int_equal(backward, 24);
  json_decref(document);
}

static void test_list_and_compare(void **state) {
  (void)state;
  json_t *list = run_json("schedule --list --json");
  assert_int_equal(json_array_size(list), 20);
  run_result text = run("schedule --list");
  for (size_t i = 0; i < 20; ++i) {
    const json_t *scheme = json_array_get(list, i);
    assert_non_null(strstr(text.out, get_text(scheme, "id")));
    assert_non_null(strstr(text.out, get_text(scheme, "paper")));
    char id[64];
    const char *text_of = get_text(scheme, "id");
    assert_true(text_of != NULL && strlen(text_of) < sizeof id);
    strcpy(id, text_of);
    assert_runs("schedule %s", id);
  }
  release(&text);
  json_decref(list);
  json_t *rows = run_json("schedule --compare gpipe,1f1b,chimera --micro-batches 4 --json");
  assert_int_equal(json_array_size(rows), 3);
  assert_true(get_real(json_array_get(rows, 2), "makespan") == 16);
  json_decref(rows);
  assert_runs("schedule --compare gpipe,scan-blelloch,wait-free");
}

/* ---- files ---- */

/* For every scheme --load reads the file that --csv wrote as the same schedule, and writes the same file again. */
static void test_csv(void **state) {
  (void)state;
  json_t *list = run_json("schedule --list --json");
  for (size_t i = 0; i < json_array_size(list); ++i) {
    const char *id = get_text(json_array_get(list, i), "id");
    char copies[OPTION];
    json_t *made = run_json("schedule %s --layers 9 %s --alpha 0.5 --csv A.csv --json", id,
                            if_taken(json_array_get(list, i), "width", 2, copies));
    json_t *loaded = run_json("schedule --load A.csv --csv B.csv --json");
    assert_true(get_real(made, "makespan") == get_real(loaded, "makespan"));
    assert_int_equal(get_integer(made, "operations"), get_integer(loaded, "operations"));
    assert_true(json_equal(json_object_get(made, "workers"), json_object_get(loaded, "workers")));
    char *a = read_file("A.csv"), *b = read_file("B.csv");
    assert_int_equal(strlen(a), strlen(b)); /* what starts at one time in two lanes may change places */
    assert_int_equal(count_of(a, "\n"), 1 + (int)json_array_size(json_object_get(made, "workers")));
    free(a);
    free(b);
    json_decref(made);
    json_decref(loaded);
  }
  json_decref(list);
}

/* An edited file: GPipe's order made 1F1B's. */
static void test_edited(void **state) {
  (void)state;
  const char *text = "scheme=gpipe,stages=2,micro-batches=2,layers=2\r\n"
                     "1,F0@1v0,B0@1v0,F1@1v0,B1@1v0,STEP@1v1,,\n"
                     "0,F0@0v0,F1@0v0,B0@0v0,B1@0v0=5,STEP@0v1\n";
  write_bytes("E.csv", text, strlen(text));
  json_t *loaded = run_json("schedule --load E.csv --json");
  assert_true(get_real(loaded, "makespan") == 12); /* 9, and 3 more of B1 on worker 0 */
  json_decref(loaded);
  const char *wrong = "scheme=gpipe,stages=2,micro-batches=2,layers=2\n0,F0@0v0,F1@0v0,B0@0v0,B1@0v0,STEP@0v1\n1,F0@1v0,B1@1v0,"
                      "F1@1v0,B0@1v0,STEP@1v1\n";
  write_bytes("E.csv", wrong, strlen(wrong));
  assert_fails(2, "--load: E.csv: rule acyclic: ", "schedule --load E.csv");
}

static void test_malformed(void **state) {
  (void)state;
  const struct {
    const char *text, *said;
  } files[] = {{"", "row 1, cell 0"},
               {"hello", "row 1, cell 1: 'hello', expected name=value"},
               {"scheme=gpipee", "row 1, cell 1: 'gpipee', expected scheme=ID"},
               {"stages=4", "row 1"},
               {"scheme=gpipe,stages=x", "row 1, cell 2: 'x', expected a whole number of stages from 1 to 1000000"},
               {"scheme=gpipe,stages=0", "row 1, cell 2: '0'"},
               {"scheme=gpipe,wheels=4", "row 1, cell 2: 'wheels'"},
               {"scheme=chimera,stages=3", "row 1: stages: 3 for chimera"},
               {"scheme=gpipe,stages=1,micro-batches=100,layers=1000000", "M.csv: row 1: 100 micro-batches of all iterations"},
               {"scheme=gpipe,stages=1,width=200000", "--load: M.csv: row 1: 200000 workers, expected at most 131072"},
               {"scheme=gpipe,stages=2\n0,F0@0+3", "row 2, cell 2: 'F0@0+3', expected an operation over at most two"},
               {"scheme=gpipe,stages=2\n7,F0@0", "row 2, cell 1: '7', expected the number of a worker"},
               {"scheme=gpipe,stages=2\n0,F0@0v0\n0,F0@1", "row 3, cell 1: '0'"},
               {"scheme=gpipe,stages=2\n0,F0@0v0,X1@0", "row 2, cell 3: 'X1@0', expected an operation such as"},
               {"scheme=gpipe,stages=2\n0,F0@0v0,F@0", "row 2, cell 3: 'F@0'"},
               {"scheme=gpipe,stages=2\n0,F0@9", "row 2, cell 2: 'F0@9', expected micro-batch, stage"},
               {"scheme=gpipe,stages=2\n0,F99@0", "row 2, cell 2: 'F99@0'"},
               {"scheme=gpipe,stages=2\n0,F0@0=abc", "row 2, cell 2"},
               {"scheme=gpipe,stages=2\n0,F0@0%9", "row 2, cell 2"},
               {"scheme=gpipe,stages=2\n0,F0@0v0\n1,F0@1v0", "rule complete-forward: "},
               {"scheme=gpipe,stages=2\n0,F0@0v0=-1", "rule cost: operation 0"}};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
    write_bytes("M.csv", files[i].text, strlen(files[i].text));
    assert_fails(2, files[i].said, "schedule --load M.csv");
  }
  assert_fails(2, "no.csv", "schedule --load no.csv");
  write_bytes("big.csv", "scheme=1f1b\n", 12);
  assert_int_equal(truncate("big.csv", (8 << 20) + 1), 0);
  assert_fails(2, "--load: big.csv: 8388609 bytes, expected at most 8388608", "schedule --load big.csv");
  assert_int_equal(remove("big.csv"), 0);
  assert_fails(2, "--stages: given beside --load", "schedule --load M.csv --stages 3");
}

static void test_costs(void **state) {
  (void)state;
  const struct {
    const char *text, *said;
  } files[] = {
      {"[1]", "no object"},
      {"{\"forward\": [1, 2, -3, 4]}", "forward, row 2: -3, expected a number, 0 or more"},
      {"{\"forward\": [1, 2, \"x\", 4]}", "forward, row 2: a text, expected"},
      {"{\"forward\": [1, 2]}", "forward: 2 rows, expected 4"},
      {"{\"forwart\": 1}", "unknown key 'forwart', expected forward, input_grad, weight_grad, ...; did you mean forward?"},
      {"{\"samples\": 1.5}", "samples: 1.5, expected a whole number, 1 or more"},
      {"{\"forward\": null}", "forward: null, expected a number, 0 or more and at most 1e15, or an array of them"},
      {"{\"forward\": 1e308, \"backward\": 1e308}", "forward: 1e308, expected a number, 0 or more and at most 1e15, or"},
      {"{\"step\": [1, 1e16, 1, 1]}", "step, row 1: 1e16, expected a number, 0 or more and at most 1e15"},
      {"{\"forward\": }", "line 1"}};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
    write_bytes("C.json", files[i].text, strlen(files[i].text));
    assert_fails(2, files[i].said, "schedule gpipe --costs C.json");
  }
  const char *good = "{\"forward\": [4, 1, 1, 1], \"input_grad\": 0, \"weight_grad\": 0}";
  write_bytes("C.json", good, strlen(good));
  check_makespan(4 * 4 + 3, "gpipe --costs C.json"); /* the first stage is the bottleneck */
}

static void write_text(const char *path, const char *text) {
  write_bytes(path, text, strlen(text));
}

/* Rows a stage and rows a layer are understood by every scheme, whatever it makes of stages; any other number of them is refused.
 * Rows a layer would cut the layers too, so that the cut is given (interleaved has a stage for each layer). */
static void test_cost_rows(void **state) {
  (void)state;
  const struct {
    const char *text, *said; /* said NULL: the same as the first */
  } files[] = {{"[4, 1, 1, 2]", NULL},
               {"[2, 2, 0.5, 0.5, 0.5, 0.5, 1, 1]", NULL},
               {"[4, 1, 1]", "3 rows, expected 8, one for each layer, or 4, one for each stage"},
               {"[4, 1, 1, 2, 2]", "5 rows, expected 8"},
               {"[2, 2, 0.5, 0.5, 0.5, 0.5, 1]", "7 rows, expected 8"},
               {"[2, 2, 0.5, 0.5, 0.5, 0.5, 1, 1, 1]", "9 rows, expected 8"},
               {"[]", "0 rows, expected 8"}};
  static const char *const keys[] = {"forward", "input_grad", "weight_grad", "sync", "step", "activation", "message", "gradient"};
  json_t *list = run_json("schedule --list --json");
  assert_true(json_array_size(list) >= 20);
  for (size_t i = 0; i < json_array_size(list); ++i) {
    const char *id = get_text(json_array_get(list, i), "id");
    const bool cut = takes(json_array_get(list, i), "cut") && strcmp(id, "interleaved") != 0;
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; ++k) {
      double first = 0;
      for (size_t f = 0; f < sizeof files / sizeof files[0]; ++f) {
        char line[160], text[160], micros[OPTION];
        snprintf(text, sizeof text, "{\"%s\": %s}", keys[k], files[f].text);
        write_text("C.json", text);
        snprintf(line, sizeof line, "schedule %s --layers 8 %s %s --alpha 0.25 --beta 1 --costs C.json", id,
                 if_taken(json_array_get(list, i), "micro-batches", 8, micros), cut ? "--cut 2,4,6" : "");
        if (files[f].said != NULL) {
          snprintf(text, sizeof text, "--costs: C.json: %s: %s", keys[k], files[f].said);
          assert_fails(2, text, "%s", line);
          continue;
        }
        json_t *document = run_json("%s --json", line);
        first = f == 0 ? get_real(document, "makespan") : first;
        assert_true(get_real(document, "makespan") == first && first > 0);
        json_decref(document);
      }
    }
  }
  json_decref(list);
}

/* The output for a scheme does not depend on the schemes before it, and equals its output alone on the common model. */
static void check_orders(const char *const *ids, const char *options, int64_t layers) {
  static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  double alone[3];
  for (int i = 0; i < 3; ++i) {
    json_t *document = run_json("schedule %s %s --layers %d --json", ids[i], options, (int)layers);
    alone[i] = get_real(document, "makespan");
    json_decref(document);
  }
  for (int o = 0; o < 6; ++o) {
    json_t *rows =
        run_json("schedule --compare %s,%s,%s %s --json", ids[orders[o][0]], ids[orders[o][1]], ids[orders[o][2]], options);
    for (int i = 0; i < 3; ++i) {
      const json_t *row = json_array_get(rows, (size_t)i);
      assert_string_equal(get_text(row, "scheme"), ids[orders[o][i]]);
      assert_int_equal(json_integer_value(json_object_get(row, "layers")), layers);
      assert_int_equal(json_array_size(json_object_get(row, "differs")), 0);
      assert_true(get_real(row, "makespan") == alone[orders[o][i]]);
    }
    json_decref(rows);
  }
}

static void test_compare_orders(void **state) {
  (void)state;
  char stages[400] = "{\"forward\": [", layers[700] = "{\"forward\": [";
  for (int i = 0; i < 16; ++i) {
    snprintf(stages + strlen(stages), sizeof stages - strlen(stages), "%s%d", i > 0 ? ", " : "", 1 + i % 3);
    snprintf(layers + strlen(layers), sizeof layers - strlen(layers), "%s%d, %d", i > 0 ? ", " : "", 1 + i % 3, 2 + i % 5);
  }
  write_text("S.json", strcat(stages, "], \"message\": 20}"));
  write_text("L.json", strcat(layers, "]}"));
  const char *const ids[] = {"1f1b", "interleaved", "gems"};
  const char *const size = "--stages 16 --micro-batches 64 --alpha 0.02 --beta 1";
  char options[160];
  check_orders(ids, size, 32);
  snprintf(options, sizeof options, "%s --costs S.json", size);
  check_orders(ids, options, 32);
  snprintf(options, sizeof options, "%s --costs L.json", size);
  check_orders(ids, options, 32);
  snprintf(options, sizeof options, "%s --costs L.json --layers 32", size);
  check_orders(ids, options, 32);
  assert_fails(2, "--costs: L.json: forward: 32 rows, expected 16, one for each layer",
               "schedule --compare 1f1b,gems %s --costs L.json", size);
  assert_fails(2, "--costs: S.json: forward: 16 rows, expected 32, one for each layer, or 8",
               "schedule --compare 1f1b,gems --stages 8 --layers 32 --costs S.json");
}

/* All columns have one model; the table and the document name the settings that differ. */
static void test_compare_models(void **state) {
  (void)state;
  run_result said = run("schedule --compare 1f1b,interleaved --stages 16 --micro-batches 64");
  assert_non_null(
      strstr(said.out, "The same for all: layers 32, micro-batches 64, workers 16, iterations 1, window iteration.\n"));
  assert_null(strstr(said.out, "Not the same"));
  assert_non_null(strstr(said.out, " 1f1b              474 ")); /* 3 (N + D - 1) of stages of two layers */
  assert_non_null(strstr(said.out, " interleaved       429 "));
  release(&said);
  said = run("schedule --compare gpipe,multi-stream,scan-linear,wait-free");
  assert_non_null(strstr(
      said.out, "Not the same for all: layers, micro-batches, elements, workers, window. Their times are of different work.\n"));
  assert_non_null(strstr(said.out, "  layers  micro-batches  elements  workers  window\n"));
  release(&said);
  json_t *rows = run_json("schedule --compare wait-free,gpipe,priority --window iteration --json");
  for (size_t i = 0; i < 3; ++i) {
    const json_t *differs = json_object_get(json_array_get(rows, i), "differs");
    assert_int_equal(json_array_size(differs), 1);
    assert_string_equal(json_string_value(json_array_get(differs, 0)), "micro_batches");
  }
  json_decref(rows);
  rows = run_json("schedule --compare scan-linear,scan-chunked --elements 30 --json");
  assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 1), "elements")), 30);
  assert_int_equal(json_array_size(json_object_get(json_array_get(rows, 1), "differs")), 0);
  json_decref(rows);
  assert_fails(2, "--compare: ',', expected schemes with commas between", "schedule --compare ,");
}

/* The profile's columns are layers, also where it has one. */
static void test_profile_shape(void **state) {
  (void)state;
  const struct {
    const char *text, *said;
  } files[] = {
      {"{\"main\": [2], \"sub\": [[1, 1]], \"speedup\": [[1, 1]]}", "profile: 2 columns, expected 4, one for each layer"},
      {"{\"main\": [1, 1, 1, 1, 1], \"sub\": [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]], "
       "\"speedup\": [[1, 1, 1, 1], "
       "[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]}",
       "profile: 5 regions, expected 1 to 4"},
      {"{\"main\": [1, 1], \"sub\": [[1, 1, 1, 1], [1]], \"speedup\": [[1, 1, 1, 1], [1]]}",
       "profile, sub, row 1: expected an array of 4 numbers"},
      {"{\"main\": [], \"sub\": [], \"speedup\": []}", "profile: 0 regions"},
      {"{\"main\": [1], \"sub\": [1], \"speedup\": [1]}", "profile: 1 regions of 0 layers"}};
  char text[400];
  for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
    snprintf(text, sizeof text, "{\"profile\": %s}", files[i].text);
    write_text("C.json", text);
    assert_fails(2, files[i].said, "schedule multi-stream --costs C.json");
  }
  write_text("C.json", "{\"profile\": {\"main\": [2], \"sub\": [[3]], \"speedup\": [[1]]}}");
  assert_runs("schedule multi-stream --layers 1 --costs C.json");
}

/* Algorithm 1 by hand: two regions of two layers. Layer 3 gains most beside the second region, then layer 1; layer 2's gradient is
 * not there when the first region begins. */
static void test_profile(void **state) {
  (void)state;
  const char *costs = "{\"profile\": {\"main\": [4, 4], \"sub\": [[2, 2, 2, 2], [2, 2, 2, 2]], \"speedup\": [[1, 1, 1.5, 1.1], "
                      "[1, 1.3, 1.2, 2]]}}";
  const int64_t expected[] = {3, 1, 2, 0};
  write_bytes("C.json", costs, strlen(costs));
  json_t *document = run_json("schedule multi-stream --layers 4 --costs C.json --memory-cap 10 --json");
  const json_t *ops = json_object_get(document, "ops");
  size_t found = 0;
  for (size_t i = 0; i < json_array_size(ops); ++i) {
    const json_t *op = json_array_get(ops, i);
    if (strcmp(get_text(op, "lane"), "gradient") == 0) {
      assert_true(found < 4);
      assert_int_equal(json_integer_value(json_array_get(json_object_get(op, "layer_range"), 0)), expected[found]);
      assert_true(get_real(op, "cost") == (found < 2 ? 2 : 1));
      ++found;
    }
  }
  assert_int_equal(found, 4);
  json_decref(document);
}

static void test_drawings(void **state) {
  (void)state;
  json_t *list = run_json("schedule --list --json");
  for (size_t i = 0; i < json_array_size(list); ++i) {
    for (int d = 4; d <= 16; d += 12) {
      const json_t *scheme = json_array_get(list, i);
      char stages[OPTION], micros[OPTION];
      json_t *document = run_json("schedule %s %s %s --svg S.svg --trace T.json --json", get_text(scheme, "id"),
                                  if_taken(scheme, "stages", d, stages), if_taken(scheme, "micro-batches", d, micros));
      const json_t *ops = json_object_get(document, "ops");
      char *svg = read_file("S.svg"), *trace = read_file("T.json");
      int shown = 0;
      for (size_t k = 0; k < json_array_size(ops); ++k) {
        const json_t *op = json_array_get(ops, k);
        shown += get_real(op, "end") > get_real(op, "start") && strcmp(get_text(op, "kind"), "RECV") != 0;
      }
      assert_int_equal(count_of(svg, "<g class=\"op "), shown);
      assert_int_equal(count_of(svg, "class=\"memory\""), json_array_size(json_object_get(document, "workers")));
      json_t *events = json_loads(trace, JSON_REJECT_DUPLICATES, NULL);
      assert_non_null(events);
      assert_int_equal(count_of(trace, "\"ph\":\"X\""), json_array_size(ops));
      assert_int_equal(count_of(trace, "\"ph\":\"s\""), count_of(trace, "\"ph\":\"f\""));
      json_decref(events);
      free(svg);
      free(trace);
      json_decref(document);
    }
  }
  json_decref(list);
  assert_fails(2, "--svg: ", "schedule gpipe --stages 100 --micro-batches 100 --svg L.svg");
  assert_false(file_exists("L.svg"));
}

static void test_refused(void **state) {
  (void)state;
  assert_fails(2, "scheme missing", "schedule");
  assert_fails(2, "unknown scheme 'dapple'", "schedule dapple");
  assert_fails(2, "did you mean chimera?", "schedule chimra");
  assert_fails(2, "stages: 5 for chimera, expected an even number", "schedule chimera --stages 5");
  assert_fails(2, "replicas: 6 for chimera, expected 2f", "schedule chimera --stages 8 --replicas 6");
  assert_fails(2, "doubling: 4 micro-batches, expected at least 2D = 8", "schedule chimera --doubling");
  assert_fails(2, "expected one of the two", "schedule chimera --doubling --halving");
  assert_fails(2, "--doubling: given for gpipe, expected a scheme that takes it: chimera", "schedule gpipe --doubling");
  assert_fails(2, "micro-batches: 6 for interleaved, expected a multiple", "schedule interleaved --micro-batches 6");
  assert_fails(2, "micro-batches: 3 for 2bw, expected at least", "schedule 2bw --micro-batches 3");
  assert_fails(2, "layers: 3 for 1f1b over 4 stages", "schedule 1f1b --layers 3");
  assert_fails(2, "elements: 4 for scan-linear over 4 workers", "schedule scan-linear --elements 4");
  assert_fails(2, "reverse-k: 9, expected at most the 4 layers", "schedule reverse-first-k --reverse-k 9");
  assert_fails(2, "window backward-forward for pipedream", "schedule pipedream --window backward-forward");
  assert_fails(2, "--stages: '0'", "schedule gpipe --stages 0");
  assert_fails(2, "--forward: '-1'", "schedule gpipe --forward -1");
  assert_fails(2, "--compare", "schedule --compair gpipe");
  assert_fails(2, "unknown scheme 'x'", "schedule --compare gpipe,x");
  assert_fails(2, "rule memory-cap: ", "schedule gpipe --micro-batches 8 --memory-cap 4");
  assert_fails(2, "expected fewer operations", "schedule gpipe --stages 100000 --micro-batches 100000");
  assert_fails(2, "--csv: ", "schedule gpipe --svg X --csv X");
}

/* No scheme ignores an option: what differs between schemes is taken by one and refused by the other, in one line. */
static void test_options(void **state) {
  (void)state;
  static const struct {
    const char *name, *value;
  } options[] = {{"stages", "4"},
                 {"width", "2"},
                 {"micro-batches", "4"},
                 {"iterations", "2"},
                 {"chunks", "2"},
                 {"replicas", "2"},
                 {"doubling", ""},
                 {"halving", ""},
                 {"reverse-k", "1"},
                 {"elements", "9"},
                 {"skip-first-input-grad", ""},
                 {"cut", ""},
                 {"recompute", ""},
                 {"sync", "post"},
                 {"split-backward", "wi"}};
  json_t *list = run_json("schedule --list --json");
  int taken = 0, refused = 0;
  for (size_t i = 0; i < json_array_size(list); ++i) {
    const json_t *scheme = json_array_get(list, i);
    const char *id = get_text(scheme, "id");
    const bool halves = strcmp(id, "interleaved") == 0; /* twice as many stages */
    for (size_t k = 0; k < sizeof options / sizeof options[0]; ++k) {
      const char *name = options[k].name, *value = options[k].value;
      value = strcmp(name, "cut") != 0 ? value : halves ? "1,2,3,4,5,6,7" : "1,2,3";
      const char *more = strcmp(name, "doubling") == 0 ? "--micro-batches 8" : "";
      if (takes(scheme, name)) {
        assert_runs("schedule %s --%s %s %s", id, name, value, more);
        ++taken;
        continue;
      }
      char said[96];
      snprintf(said, sizeof said, "--%s: given for %s, expected a scheme that takes it: ", name, id);
      assert_fails(2, said, "schedule %s --%s %s", id, name, value);
      ++refused;
    }
  }
  assert_true(taken > 100 && refused > 100);
  json_decref(list);
  assert_fails(2, "--chunks: given for gpipe,1f1b, expected a scheme that takes it: interleaved",
               "schedule --compare gpipe,1f1b --chunks 3");
  assert_runs("schedule --compare gpipe,interleaved --chunks 3"); /* one of them takes it */
  assert_runs("schedule multi-stream --stages 1 --micro-batches 1");
  run_result text = run("schedule --list");
  assert_non_null(strstr(text.out, "\n--reverse-k               reverse-first-k\n"));
  release(&text);
}

static void test_odd(void **state) {
  (void)state;
  json_t *list = run_json("schedule --list --json");
  for (size_t i = 0; i < json_array_size(list); ++i) {
    const char *id = get_text(json_array_get(list, i), "id");
    if (strcmp(id, "chimera") != 0) {
      assert_runs("schedule %s --stages 1 --micro-batches 1", id);
    }
    if (strcmp(id, "2bw") != 0 && strcmp(id, "interleaved") != 0) {
      assert_runs("schedule %s --micro-batches 1", id);
    }
    json_t *free_of_cost = run_json("schedule %s --forward 0 --input-grad 0 --weight-grad 0 --product 0 --apply 0 --json", id);
    assert_true(get_real(free_of_cost, "makespan") == 0 && get_real(free_of_cost, "bubble_ratio") == 0);
    json_decref(free_of_cost);
  }
  json_decref(list);
  check_makespan(3 * 4 + 3 * 3, "gpipe --stages 4 --layers 4");
  check_makespan(6, "1f1b --stages 1 --micro-batches 2");
  for (int n = 1; n <= 9; ++n) {
    assert_runs("schedule chimera --micro-batches %d", n); /* not divisible: a last unit with fewer */
  }
}

/* ---- running out ---- */

static void test_memory(void **state) {
  (void)state;
  const char *const costs = "{\"forward\": [1, 2, 3, 4]}";
  write_bytes("C.json", costs, strlen(costs));
  const char *const profile = "{\"profile\": {\"main\": [2], \"sub\": [[1, 1, 1, 1]], \"speedup\": [[1, 1, 1, 1]]}}";
  write_bytes("P.json", profile, strlen(profile));
  assert_runs("schedule chimera --stages 2 --csv L.csv");
  const char *const lines[] = {"schedule chimera --stages 2 --micro-batches 2 --json --svg S.svg --trace T.json --csv O.csv",
                               "schedule --load L.csv",
                               "schedule modulo --micro-batches 2 --stages 2 --layers 4",
                               "schedule reverse-first-k --stages 2 --layers 4 --costs C.json",
                               "schedule multi-stream --layers 3 --json",
                               "schedule multi-stream --layers 4 --costs P.json",
                               "schedule spectrain --stages 2 --micro-batches 2",
                               "schedule scan-blelloch",
                               "schedule --compare gems,zb-h1 --json",
                               "schedule --compare interleaved,gpipe --costs C.json",
                               "schedule --list --json"};
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    bool done = false;
    for (int64_t call = 1; !done; ++call) {
      bppsa_alloc_fail_at(call);
      run_result result = run("%s", lines[i]);
      done = bppsa_alloc_calls() < call;
      bppsa_alloc_fail_at(0);
      assert_int_equal(result.code, done ? 0 : 1);
      if (!done) {
        assert_one_error(&result, "out of memory");
        assert_false(file_exists("O.csv"));
      }
      release(&result);
    }
    (void)remove("O.csv");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_worked_numbers),   cmocka_unit_test(test_figure4),   cmocka_unit_test(test_document),
      cmocka_unit_test(test_list_and_compare), cmocka_unit_test(test_csv),       cmocka_unit_test(test_edited),
      cmocka_unit_test(test_malformed),        cmocka_unit_test(test_costs),     cmocka_unit_test(test_profile),
      cmocka_unit_test(test_profile_shape),    cmocka_unit_test(test_cost_rows), cmocka_unit_test(test_compare_orders),
      cmocka_unit_test(test_compare_models),   cmocka_unit_test(test_drawings),  cmocka_unit_test(test_refused),
      cmocka_unit_test(test_options),          cmocka_unit_test(test_odd),       cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

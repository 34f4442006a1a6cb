/* train --trace: what ranks did and when, and what the simulator predicts from --costs, in one file for Perfetto. No time is
 * asserted. */
#include <math.h>

#include "tests/cli/cnn_files.h"
#include "tests/cli/memory_walk.h"

#define TRAIN "train gru --layers 4 --seq-len 5 --hidden 3 --samples 32 --batch 8 --validation 0.25 --threads 1 "

static const char *const costs =
    "{\"samples\": 2, \"forward\": [1, 1, 1, 1, 0.5], \"backward\": [1, 2, 2, 2, 8], \"alpha\": 0.25}";

/* ---- events ---- */

static json_t *read_trace(const char *path) {
  json_error_t error;
  json_t *trace = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (trace == NULL) {
    fail_msg("%s: %s", path, error.text);
  }
  return trace;
}

/* The number of the process with this name; -1: there is none. */
static int64_t process_of(const json_t *trace, const char *name) {
  const json_t *event;
  size_t i;
  json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
    if (strcmp(get_text(event, "ph"), "M") == 0 && strcmp(get_text(event, "name"), "process_name") == 0 &&
        strcmp(get_text(json_object_get(event, "args"), "name"), name) == 0) {
      return get_integer(event, "pid");
    }
  }
  return -1;
}

/* The spans of a process whose names begin with `name`. Those of a lane come one behind the other; *end: the latest end, in
 * microseconds. */
static int64_t count_spans(const json_t *trace, int64_t process, const char *name, double *end) {
  enum { LANES = 5 };
  double free_at[LANES] = {0};
  const json_t *event;
  int64_t count = 0;
  size_t i;
  json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
    if (strcmp(get_text(event, "ph"), "X") != 0 || get_integer(event, "pid") != process) {
      continue;
    }
    const int64_t lane = get_integer(event, "tid");
    const double start = get_real(event, "ts"), length = get_real(event, "dur");
    assert_true(lane >= 0 && lane < LANES && length >= 0);
    assert_true(start >= free_at[lane] * (1 - 1e-8) - 1e-3); /* the numbers have nine digits */
    free_at[lane] = start + length;
    count += strncmp(get_text(event, "name"), name, strlen(name)) == 0;
    *end = fmax(*end, free_at[lane]);
  }
  return count;
}

static int64_t count_in(const json_t *trace, const char *process, const char *name) {
  double end = 0;
  const int64_t number = process_of(trace, process);
  if (number < 0) {
    fail_msg("no process \"%s\"", process);
  }
  return count_spans(trace, number, name, &end);
}

/* The greatest version of weights that an operation of the process names. */
static int64_t latest_version(const json_t *trace, int64_t process) {
  const json_t *event;
  int64_t latest = -1;
  size_t i;
  json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
    if (strcmp(get_text(event, "ph"), "X") == 0 && get_integer(event, "pid") == process) {
      const int64_t version = get_integer(json_object_get(event, "args"), "weight_version");
      latest = version > latest ? version : latest;
    }
  }
  return latest;
}

/* ---- schedules ---- */

/* Six steps of 1F1B: each operation of each run once, behind those of the run before; and the list once, as it is predicted, with
 * the makespan that bppsa schedule says. */
static void test_pipeline(void **state) {
  (void)state;
  put_text("costs.json", costs);
  run_result text = run(
      TRAIN "--epochs 2 --ranks 2 --split 1f1b --micro-batches 4 --costs costs.json --trace T.json --save-weights a.safetensors");
  assert_string_equal(text.err, "");
  assert_non_null(strstr(text.out, "\ntimeline of 6 steps written to T.json, for Perfetto or chrome://tracing\n"));
  assert_non_null(strstr(text.out, "split 1f1b, 2 stages from layers 0, 4, 4 micro-batches")); /* cut by the costs: 11 and 8.5 */
  release(&text);
  json_t *trace = read_trace("T.json");
  assert_int_equal(process_of(trace, "1f1b, predicted: worker 0"), 0);
  assert_int_equal(process_of(trace, "1f1b, measured: worker 1"), 3);
  assert_int_equal(process_of(trace, "rank 1"), 5);
  assert_int_equal(process_of(trace, "rank 2"), -1);
  json_t *list =
      run_json("schedule 1f1b --stages 2 --layers 5 --micro-batches 4 --skip-first-input-grad --costs costs.json --json");
  double predicted = 0;
  for (int64_t worker = 0; worker < 2; ++worker) {
    double measured = 0;
    for (int kind = 0; kind < 2; ++kind) {
      const char *name = kind == 0 ? "F " : "B ";
      assert_int_equal(count_spans(trace, worker, name, &predicted), 4);
      assert_int_equal(count_spans(trace, 2 + worker, name, &measured), 24);
    }
    assert_int_equal(count_spans(trace, worker, "", &predicted) * 6, count_spans(trace, 2 + worker, "", &measured));
    assert_int_equal(latest_version(trace, worker), 1); /* that the update makes */
    assert_int_equal(latest_version(trace, 2 + worker), 6);
  }
  assert_true(fabs(predicted - 1e6 * get_real(list, "makespan")) <= 1e-6 * predicted);
  json_decref(list);
  for (int rank = 0; rank < 2; ++rank) {
    char name[24];
    snprintf(name, sizeof name, "rank %d", rank);
    assert_int_equal(count_in(trace, name, "forward, backward and update"), 6);
    assert_int_equal(count_in(trace, name, "evaluation"), 2);
    assert_int_equal(count_in(trace, name, "collection of the weights"), count_in(trace, name, "") - 8);
  }
  json_decref(trace);
  /* the bits are those of a run that nobody looks at, and of one that is cut elsewhere */
  assert_runs(TRAIN "--epochs 2 --ranks 2 --split 1f1b --micro-batches 4 --save-weights b.safetensors");
  assert_equal_files("a.safetensors", "b.safetensors");
}

/* A list of several iterations is a run of several steps. Without costs nothing is predicted. */
static void test_asynchronous(void **state) {
  (void)state;
  json_t *document = run_json(TRAIN "--epochs 2 --ranks 2 --split pipedream --trace T.json --json");
  assert_int_equal(get_integer(document, "traced_steps"), 6);
  json_decref(document);
  json_t *trace = read_trace("T.json");
  assert_int_equal(process_of(trace, "pipedream, measured: worker 0"), 0);
  assert_int_equal(count_in(trace, "pipedream, measured: worker 1", "F "), 12); /* two micro-batches a step */
  assert_int_equal(latest_version(trace, 0), 12);
  assert_int_equal(process_of(trace, "pipedream, predicted: worker 0"), -1);
  json_decref(trace);
}

/* A hand-written list has its costs in its first row; two workers of one rank. */
static void test_file(void **state) {
  (void)state;
  assert_runs("schedule gpipe --stages 2 --layers 5 --micro-batches 2 --skip-first-input-grad --csv mine.csv");
  assert_runs(TRAIN "--iterations 3 --ranks 1 --split mine.csv --trace T.json");
  json_t *trace = read_trace("T.json");
  assert_int_equal(count_in(trace, "gpipe, measured: worker 0", "RECV"), 6);
  assert_int_equal(count_in(trace, "gpipe, measured: worker 1", "RECV"), 6);
  json_decref(trace);
}

/* ---- other splits ---- */

static void test_other_splits(void **state) {
  (void)state;
  static const char *const splits[] = {"batch", "time", "time:2,batch:2"};
  for (size_t i = 0; i < sizeof splits / sizeof splits[0]; ++i) {
    const int ranks = i == 2 ? 4 : 3;
    assert_runs(TRAIN "--epochs 1 --ranks %d --split %s --trace T.json", ranks, splits[i]);
    json_t *trace = read_trace("T.json");
    for (int rank = 0; rank < ranks; ++rank) {
      char name[24];
      snprintf(name, sizeof name, "rank %d", rank);
      assert_int_equal(process_of(trace, name), rank);
      assert_int_equal(count_in(trace, name, "forward and backward"), 3);
      assert_int_equal(count_in(trace, name, "update"), 3);
      assert_int_equal(count_in(trace, name, "evaluation"), 1);
    }
    json_decref(trace);
  }
}

/* ---- costs ---- */

static void test_costs(void **state) {
  (void)state;
  put_text("costs.json", costs);
  put_text("stages.json",
           "{\"samples\": 4, \"forward\": [1, 2], \"backward\": [2, 4]}"); /* of the stages: the layers are cut by their FLOPs */
  json_t *flops = run_json(TRAIN "--iterations 1 --ranks 2 --split gpipe --json"),
         *by_stage = run_json(TRAIN "--iterations 1 --ranks 2 --split gpipe --costs stages.json --json"),
         *by_layer = run_json(TRAIN "--iterations 1 --ranks 2 --split gpipe --micro-batches 4 --costs costs.json --json");
  const json_t *cut = json_object_get(json_object_get(flops, "ranks"), "cut");
  assert_int_equal(json_integer_value(json_array_get(cut, 0)), 2);
  assert_true(json_equal(cut, json_object_get(json_object_get(by_stage, "ranks"), "cut")));
  assert_int_equal(json_integer_value(json_array_get(json_object_get(json_object_get(by_layer, "ranks"), "cut"), 0)), 4);
  json_decref(flops);
  json_decref(by_stage);
  json_decref(by_layer);
}

static void test_refused(void **state) {
  (void)state;
  put_text("costs.json", costs);
  put_text("three.json", "{\"forward\": [1, 2, 3]}");
  put_text("bad.json", "{\"forwards\": 1}");
  put_text("any.json", "{\"forward\": 1}");
  put_text("half.json", "{\"forward\": 1, \"samples\": 0.5}");
  /* of 4 samples: states of 3 f32 in front of and behind 5 steps, and the logits of 10 classes, after 64 bytes each */
  put_text("wide.json", "{\"samples\": 4, \"forward\": 1, \"message\": [352, 352, 352, 368, 224]}");
  put_text("deep.json", "{\"samples\": 4, \"forward\": 1, \"gradient\": [216, 288, 288, 288, 164]}");
  assert_runs("schedule gpipe --stages 2 --layers 5 --micro-batches 2 --csv mine.csv");
  static const struct {
    const char *options, *words;
  } cases[] = {
      {"--trace T.json", "--trace: given without ranks, expected --ranks P too, or mpirun"},
      {"--costs costs.json", "--costs: given without ranks, expected --ranks P too, or mpirun"},
      {"--ranks 2 --costs costs.json", "--costs: given without a schedule, expected --split SCHEME"},
      {"--ranks 2 --split mine.csv --costs costs.json", "--costs: given beside a schedule's file, expected in the first row"},
      {"--ranks 2 --split gpipe --costs three.json", "--costs: three.json: forward: 3 rows, expected 5"},
      {"--ranks 2 --split gpipe --costs bad.json", "--costs: bad.json: unknown key 'forwards'"},
      {"--ranks 2 --split gpipe --costs none.json", "--costs: none.json: "},
      {"--ranks 2 --split gpipe --costs costs.json",
       "--costs: costs.json: of micro-batches of 2 samples, expected 4, as this run's --batch and --micro-batches make them"},
      {"--ranks 2 --split wait-free --costs costs.json", "--costs: costs.json: of micro-batches of 2 samples, expected 4"},
      {"--ranks 2 --split chimera --halving --costs costs.json",
       "--costs: costs.json: of micro-batches of 2 samples, expected 4"},
      {"--ranks 2 --split gpipe --costs any.json",
       "--costs: any.json: no samples, expected \"samples\": 4, of the micro-batches whose seconds it has"},
      {"--ranks 2 --split gpipe --costs half.json", "--costs: half.json: samples: 0.5, expected a whole number, 1 or more"},
      {"--ranks 2 --split gpipe --costs wide.json",
       "--costs: wide.json: message: 368 bytes of layer 3, expected 352, as this run's network and --dtype make them"},
      {"--ranks 2 --split gpipe --costs deep.json", "--costs: deep.json: gradient: 164 bytes of layer 4, expected 160"},
      {"--ranks 2 --split gpipe --dtype f64 --costs deep.json",
       "--costs: deep.json: gradient: 216 bytes of layer 0, expected 432"},
      {"--ranks 2 --split gpipe --trace missing/T.json", "--trace: missing/T.json: "},
      {"--ranks 2 --split gpipe --trace costs.json --costs costs.json", "--trace: costs.json, the file of --costs"},
      {"--ranks 2 --split gpipe --trac T.json", "did you mean --trace?"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const int files = count_files();
    assert_fails(2, cases[i].words, TRAIN "--iterations 2 %s", cases[i].options);
    assert_int_equal(count_files(), files);
  }
  assert_fails(2, "--iterations: 0, no step, beside --trace", TRAIN "--iterations 0 --ranks 2 --trace T.json");
}

static void test_memory(void **state) {
  (void)state;
  put_text("costs.json", costs);
  walk(bppsa_alloc_fail_at,
       "train rnn --seq-len 2 --hidden 1 --samples 4 --batch 2 --threads 1 --iterations 2 --ranks 1 --stages 2 --split gpipe "
       "--costs two.json --trace T.json",
       "T.json", 100);
}

static int enter_with_costs(void **state) {
  enter_directory(state);
  put_text("two.json", "{\"samples\": 1, \"forward\": [1, 2], \"backward\": [2, 4]}");
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_pipeline, enter_directory, leave_directory),
                                     cmocka_unit_test_setup_teardown(test_asynchronous, enter_directory, leave_directory),
                                     cmocka_unit_test_setup_teardown(test_file, enter_directory, leave_directory),
                                     cmocka_unit_test_setup_teardown(test_other_splits, enter_directory, leave_directory),
                                     cmocka_unit_test_setup_teardown(test_costs, enter_directory, leave_directory),
                                     cmocka_unit_test_setup_teardown(test_refused, enter_directory, leave_directory),
                                     cmocka_unit_test_setup_teardown(test_memory, enter_with_costs, leave_directory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

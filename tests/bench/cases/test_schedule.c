/* `bench schedule`: its document, what its costs predict elsewhere, its table, wrong requests, out of memory; and that what is
 * wrong is found. No time is asserted. */
#include "tests/bench/rows.h"
#include "tests/cli/memory_walk.h"

#include <math.h>

#include "bench/cases/bench_schedule.h"
#include "core/compute/pool.h"
#include "tests/comm/cases.h"

#define SMALL "bench schedule --layers 4 --hidden 3 --seq-len 5 --input 2 --batch 8 --threads 1 --quick "

/* ---- the document ---- */

static void check_row(const json_t *row) {
  const double median = get_real(row, "median_s"), predicted = get_real(row, "predicted_makespan_s");
  const bool lanes = strcmp(get_text(row, "method"), "multi-stream") == 0;
  assert_true(get_real(row, "residual") == 0);
  assert_int_equal(get_integer(row, "repeats"), 3);
  assert_true(get_real(row, "min_s") > 0 && get_real(row, "min_s") <= median && median <= get_real(row, "max_s"));
  assert_true(predicted > 0 && get_real(row, "makespan_s") == median && get_real(row, "ratio") == median / predicted);
  assert_true(get_real(row, "bubble_ratio") >= 0 && get_real(row, "bubble_ratio") < 1);
  assert_true(get_real(row, "predicted_bubble_ratio") >= 0 && get_real(row, "predicted_bubble_ratio") < 1);
  assert_int_equal(get_integer(row, "samples") * get_integer(row, "micro_batches"), 8);
  /* the second lane runs between the passes of the first */
  const double peak = get_real(row, "peak_activations"), expected = get_real(row, "predicted_peak_activations");
  assert_true(lanes ? peak <= expected : fabs(peak - expected) <= 1e-6 * expected);
  assert_string_equal(get_text(row, "note"), lanes                   ? "lanes share a thread"
                                             : bppsa_pool_cpus() > 1 ? ""
                                                                     : "ranks share processors");
}

/* The file of costs predicts what the benchmark predicts. */
static void check_costs(const json_t *row, const char *options) {
  const json_t *cut = json_object_get(row, "cut");
  assert_int_equal(json_array_size(cut), 1);
  json_t *again = run_json("schedule %s --stages 2 --layers 5 --cut %d --skip-first-input-grad --costs costs.json --json %s",
                           get_text(row, "method"), (int)json_integer_value(json_array_get(cut, 0)), options);
  const double expected = get_real(row, "predicted_makespan_s"), found = get_real(again, "makespan");
  if (bppsa_pool_cpus() > 1 && fabs(found - expected) > 1e-9 * expected) {
    fail_msg("%s: %g s, expected %g", get_text(row, "method"), found, expected);
  }
  json_decref(again);
}

static void test_document(void **state) {
  (void)state;
  int64_t schemes, trained = 0;
  const bppsa_schedule_scheme *all = bppsa_schedule_schemes(&schemes);
  json_t *document = run_json(SMALL "--ranks 2 --repeats 3 --save-costs costs.json --out F.json --json");
  assert_string_equal(get_text(document, "bench"), "schedule");
  assert_string_equal(get_text(document, "transport"), "threads");
  assert_int_equal(get_integer(document, "ranks"), 2);
  assert_true(get_real(json_object_get(document, "link"), "alpha_s") > 0);
  for (int64_t i = 0; i < schemes; ++i) {
    if (!all[i].scan) {
      check_row(find_row(document, all[i].id));
      ++trained;
    }
  }
  assert_int_equal(json_array_size(json_object_get(document, "rows")), trained);
  assert_int_equal(json_array_size(json_object_get(document, "left_out")), 0);
  /* micro-batches of 2 samples with one update and with one each, of 4 (copies), and of 8 (one device) */
  const json_t *costs = json_object_get(document, "costs"), *ordering = json_object_get(document, "ordering");
  static const int64_t sizes[][2] = {{2, 1}, {2, 4}, {4, 1}, {8, 1}};
  assert_int_equal(json_array_size(costs), 4);
  for (size_t i = 0; i < 4; ++i) {
    assert_int_equal(get_integer(json_array_get(costs, i), "samples"), sizes[i][0]);
    assert_int_equal(get_integer(json_array_get(costs, i), "updates"), sizes[i][1]);
  }
  /* every scheme with replicas has two; the file of costs has the sums */
  const json_t *sums = json_object_get(document, "sums"), *sync = json_object_get(json_array_get(sums, 0), "sync");
  assert_int_equal(json_array_size(sums), 1);
  assert_int_equal(get_integer(json_array_get(sums, 0), "ranks"), 2);
  assert_int_equal(json_array_size(sync), 5);
  for (size_t l = 0; l < 5; ++l) {
    assert_true(json_real_value(json_array_get(sync, l)) > 0);
  }
  assert_int_equal(json_array_size(json_object_get(json_array_get(costs, 0), "backward")), 5);
  assert_int_equal(get_integer(ordering, "pairs") - get_integer(ordering, "as_predicted"),
                   json_array_size(json_object_get(ordering, "inverted")));
  check_costs(find_row(document, "1f1b"), "");
  check_costs(find_row(document, "zb-h1"), "");
  check_costs(find_row(document, "chimera"), "");
  json_t *written = json_load_file("costs.json", 0, NULL); /* of the micro-batches that are asked for */
  assert_int_equal(get_integer(written, "samples"), 2);
  json_decref(written);
  assert_written("F.json", document);
  json_decref(document);
  assert_int_equal(remove("F.json"), 0);
  assert_int_equal(remove("costs.json"), 0);
}

/* Schemes with an update for each micro-batch have costs of their own, which are those of the file where all schemes are such. */
static void updates_of_each_micro_batch_are_measured(void **state) {
  (void)state;
  json_t *document = run_json(SMALL "--ranks 2 --repeats 3 --compare pipedream,vanilla --save-costs costs.json --json");
  assert_int_equal(json_array_size(json_object_get(document, "costs")), 2);
  check_costs(find_row(document, "pipedream"), "--micro-batches 4");
  check_costs(find_row(document, "vanilla"), "--micro-batches 4");
  json_decref(document);
  assert_int_equal(remove("costs.json"), 0);
}

/* ---- timelines ---- */

enum { LANES = 5, PROCESSES = 8, MOST_SPANS = 512 };

typedef struct {
  double start, end;
} span;

/* Spans of one lane of one process, in the file's order; returns how many. */
static int64_t spans_of(const json_t *events, int64_t process, int64_t lane, span *spans) {
  const json_t *event;
  size_t i;
  int64_t count = 0;
  json_array_foreach(events, i, event) {
    if (strcmp(get_text(event, "ph"), "X") == 0 && get_integer(event, "pid") == process && get_integer(event, "tid") == lane) {
      const double start = get_real(event, "ts");
      assert_true(count < MOST_SPANS);
      spans[count++] = (span){start, start + get_real(event, "dur")};
    }
  }
  return count;
}

static int by_start(const void *a, const void *b) {
  const span *x = a, *y = b;
  return (x->start > y->start) - (x->start < y->start);
}

/* One file has the processes of both groups, which have the same operations. No two spans of a lane overlap, and the last one ends
 * with the makespan that the row has: of the fastest pass its minimum. */
static void test_trace(void **state) {
  (void)state;
  json_t *document =
      run_json(SMALL "--ranks 2 --repeats 3 --micro-batches 4 --compare 1f1b,chimera --trace T.json --svg S.svg --json");
  char *trace = read_file("T.json"), *svg = read_file("S.svg");
  json_t *parsed = json_loads(trace, JSON_REJECT_DUPLICATES, NULL);
  const json_t *events = json_object_get(parsed, "traceEvents");
  static const char *const schemes[] = {"1f1b", "chimera"}, *const groups[] = {"predicted", "measured"};
  for (int64_t process = 0; process < PROCESSES; ++process) {
    char name[80];
    snprintf(name, sizeof name, "\"pid\":%d,\"args\":{\"name\":\"%s, %s: worker %d\"", (int)process, schemes[process / 4],
             groups[process / 2 % 2], (int)process % 2);
    assert_non_null(strstr(trace, name));
  }
  for (int64_t group = 0; group < PROCESSES / 2; ++group) {
    const json_t *row = find_row(document, schemes[group / 2]);
    double last = 0;
    int64_t all = 0;
    for (int64_t lane = 0; lane < 2 * LANES; ++lane) {
      span spans[MOST_SPANS], other[MOST_SPANS];
      const int64_t process = 2 * group + lane / LANES, count = spans_of(events, process, lane % LANES, spans);
      assert_int_equal(count, spans_of(events, process ^ 2, lane % LANES, other)); /* of the other group */
      qsort(spans, (size_t)count, sizeof *spans, by_start);
      for (int64_t i = 0; i < count; ++i) {
        assert_true(spans[i].start >= 0 && spans[i].end >= spans[i].start);
        assert_true(i == 0 || spans[i].start >= spans[i - 1].end - 1e-6 * last - 1e-3);
        last = fmax(last, spans[i].end);
      }
      all += count;
    }
    assert_int_equal(all, get_integer(row, "operations"));
    const double expected = 1e6 * get_real(row, group % 2 == 0 ? "predicted_makespan_s" : "min_s");
    assert_true(bppsa_pool_cpus() == 1 || group % 2 == 1 || fabs(last - expected) <= 1e-6 * expected);
    assert_true(group % 2 == 0 || last <= expected * (1 + 1e-6)); /* passes that verify count too */
  }
  assert_non_null(strstr(svg, "1f1b, D = 2, N = 4, predicted: makespan "));
  assert_non_null(strstr(svg, "chimera, D = 2, N = 4, measured: makespan "));
  assert_int_equal(count_of(svg, "class=\"op F\""), count_of(trace, "\"name\":\"F "));
  json_decref(parsed);
  json_decref(document);
  free(trace);
  free(svg);
  assert_int_equal(remove("T.json"), 0);
  assert_int_equal(remove("S.svg"), 0);
}

/* With halving a pass takes half a micro-batch: the bits are those of twice as many on one device. */
static void test_halving(void **state) {
  (void)state;
  json_t *document = run_json(SMALL "--ranks 2 --repeats 3 --micro-batches 2 --halving --recompute --compare chimera --json");
  const json_t *row = find_row(document, "chimera");
  assert_true(get_real(row, "residual") == 0 && get_real(row, "predicted_makespan_s") > 0);
  assert_int_equal(get_integer(row, "micro_batches"), 2);
  assert_int_equal(get_integer(row, "samples"), 2);
  assert_true(fabs(get_real(row, "peak_activations") - get_real(row, "predicted_peak_activations")) < 1);
  json_decref(document);
  assert_fails(
      2, "schedule: no scheme can run, chimera neither: --batch: 4 samples for 8 halves of micro-batches, expected a multiple",
      "bench schedule --quick --batch 4 --micro-batches 4 --halving --compare chimera");
}

/* Lists of several iterations; the makespan is an iteration's. */
static void test_iterations(void **state) {
  (void)state;
  json_t *document = run_json(SMALL "--ranks 2 --repeats 3 --iterations 3 --compare pipedream,gpipe --json");
  assert_int_equal(get_integer(find_row(document, "pipedream"), "iterations"), 3);
  check_row(find_row(document, "pipedream"));
  check_row(find_row(document, "gpipe"));
  json_decref(document);
}

static void test_table(void **state) {
  (void)state;
  run_result result =
      run(SMALL "--ranks 3 --micro-batches 4 --stages 3 --compare chimera,1f1b,interleaved,wait-free --repeats 1");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "gru: T 5, B 8, I 2, H 3, layers 4, loss last, f32, 5 layers\n3 ranks over threads"));
  assert_non_null(strstr(result.out, "chimera            left out: stages: 3 for chimera, expected an even number"));
  assert_non_null(
      strstr(result.out, "interleaved        left out: micro-batches: 4 for interleaved, expected a multiple of the 3"));
  assert_non_null(strstr(result.out, "wait-free          left out: --batch: 8 samples for 3 micro-batches, expected a multiple"));
  assert_non_null(strstr(result.out, "\n  1f1b                    3     4 "));
  release(&result);
  result = run(SMALL "--ranks 2 --stages 4 --compare gpipe --repeats 1 --cut 1,2,4");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, bppsa_pool_cpus() > 1 ? "  workers share a rank\n" : "  ranks share processors\n"));
  release(&result);
  json_t *document =
      run_json(SMALL "--ranks %d --stages 2 --compare gpipe,modulo --repeats 1 --json", (int)bppsa_pool_cpus() + 1);
  assert_true(json_is_true(json_object_get(find_row(document, "gpipe"), "judged")) == (bppsa_pool_cpus() > 1));
  json_decref(document);
  document = run_json("bench schedule --model lenet5 --batch 4 --quick --threads 1 --compare 1f1b,gems,zb-h1 --repeats 1 --json");
  assert_string_equal(get_text(json_object_get(document, "network"), "name"), "lenet5");
  assert_true(get_real(find_row(document, "gems"), "residual") == 0);
  json_decref(document);
}

static void test_requests(void **state) {
  (void)state;
  assert_fails(
      2, "--compare: '1f1c', expected schemes of schedule --list with micro-batches, and commas between; did you mean 1f1b?",
      "bench schedule --compare gpipe,1f1c");
  assert_fails(2, "--compare: 'scan-blelloch', expected schemes", "bench schedule --compare scan-blelloch");
  assert_fails(2, "--compare: '', expected schemes", "bench schedule --compare ,");
  assert_fails(2, "--batch: 64 samples for 5 micro-batches, expected a multiple", "bench schedule --micro-batches 5");
  assert_fails(2, "--width: 2 copies over 3 ranks, expected a divisor", "bench schedule --ranks 3 --width 2");
  assert_fails(2, "--hidden: given beside --model lenet5, expected a recurrent network",
               "bench schedule --model lenet5 --hidden 3");
  assert_fails(2, "--model: ", "bench schedule --model nothing");
  assert_fails(2, "--cut: '3,x'", "bench schedule --cut 3,x");
  assert_fails(2, "schedule: no scheme can run, 1f1b neither: cut: stage 1 begins with layer 9, expected 1 to 8",
               "bench schedule --quick --threads 1 --compare 1f1b --cut 9");
  assert_fails(2, "--chunks: given for gpipe,1f1b, expected a scheme that takes it: interleaved",
               "bench schedule --compare gpipe,1f1b --chunks 3");
  assert_fails(2, "--save-costs: missing/F.json: cannot write", "bench schedule --save-costs missing/F.json");
  assert_fails(2, "transport mpi: no launcher has started this process", "bench schedule --transport mpi");
}

static void test_memory(void **state) {
  (void)state;
  walk_benchmark(SMALL "--ranks 2 --repeats 1 --compare 1f1b,wait-free --json", 17, 900, 97, 20000);
}

/* ---- what is wrong is found ---- */

static bppsa_status tamper(bppsa_comm *comm, void *context) {
  const bppsa_bench_settings *given = context;
  bppsa_bench_settings asked = *given;
  bppsa_device *device = NULL;
  bppsa_schedule_crew *crew = bppsa_calloc(1, sizeof *crew);
  CHECK(crew != NULL);
  asked.comm = comm;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  asked.request.device = device;
  BPPSA_TRY(bppsa_schedule_crew_open(&asked, device, crew));
  bppsa_schedule_entry *e = &crew->entries[0];
  BPPSA_TRY(bppsa_schedule_crew_make(crew, 0));
  BPPSA_TRY(bppsa_schedule_crew_pass(crew, 0, true));
  CHECK(bppsa_schedule_residual(e, 0) == 0);
  const double loss = e->size->losses[0], norm = e->size->norms[0];
  e->size->losses[0] = nextafter(loss, 2 * loss);
  CHECK(bppsa_schedule_residual(e, 0) > 1e-16);
  e->size->losses[0] = loss;
  e->size->norms[0] = -norm;
  CHECK(bppsa_schedule_residual(e, 0) > 1e-16);
  e->size->norms[0] = norm;
  e->losses[0] = (double)NAN;
  CHECK(isinf(bppsa_schedule_residual(e, 0)));
  BPPSA_TRY(bppsa_schedule_crew_pass(crew, 0, true));
  CHECK(bppsa_schedule_residual(e, 1) == 0 && bppsa_schedule_residual(e, 0) > 1e-16); /* of another pass */
  /* predictions are made from the costs that were measured in front of the timed passes, not from what the lists were made from */
  double *const costs = e->size->costs.memory;
  for (int64_t i = 0; i < e->size->costs.layers; ++i) {
    costs[i] = 1e6; /* the first cost is that of forward passes */
  }
  CHECK(e->size->costs.cost[BPPSA_COST_FORWARD] == costs);
  const double before = e->predicted_s;
  BPPSA_TRY(bppsa_schedule_crew_settle(crew));
  CHECK(costs[0] > 0 && costs[0] < 1 && e->predicted_s > 0 && e->predicted_s < 1 && e->predicted_s != before);
  e->runs = 0; /* every operation sees newer weights than those of the first run */
  BPPSA_TRY(bppsa_schedule_crew_pass(crew, 0, true));
  CHECK(bppsa_schedule_residual(e, 9) > 1e-16);
  bppsa_schedule_crew_close(crew);
  bppsa_free(crew);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static void test_wrong(void **state) {
  (void)state;
  bppsa_network network;
  const bppsa_comm_config one = bppsa_comm_config_default();
  assert_int_equal(bppsa_network_open("gru", NULL, &network), BPPSA_OK);
  bppsa_bench_settings asked = {.request = {.seed = 3, .quick = true},
                                .network = &network,
                                .batch = 4,
                                .network_config = bppsa_network_config_default(&network),
                                .schedule = bppsa_schedule_config_default(),
                                .schemes = "1f1b"};
  asked.network_config.steps.seq_len = 3;
  asked.schedule.stages = 2; /* two workers on one rank */
  asked.schedule.micro_batches = 2;
  asked.schedule.skip_first_input_grad = true;
  assert_int_equal(bppsa_comm_run(&one, tamper, &asked, NULL), BPPSA_OK);
  bppsa_network_close(&network);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_document), cmocka_unit_test(updates_of_each_micro_batch_are_measured),
                                     cmocka_unit_test(test_trace),    cmocka_unit_test(test_iterations),
                                     cmocka_unit_test(test_halving),  cmocka_unit_test(test_table),
                                     cmocka_unit_test(test_requests), cmocka_unit_test(test_memory),
                                     cmocka_unit_test(test_wrong)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

/* `bench oracle`: its document, what its numbers have to do with each other, its table, wrong requests, out of memory; and that
 * what is wrong is found. No time is asserted. */
#include "tests/cli/memory_walk.h"

#include <math.h>

#include "bench/cases/bench_oracle.h"
#include "core/measure/residual.h"
#include "tests/comm/cases.h"

#define SMALL "bench oracle --batch 4 --micro-batches 2 --threads 1 "

static double sum_of(const json_t *object) {
  const char *key;
  json_t *value;
  double sum = 0;
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    sum += json_real_value(value);
  }
  return sum;
}

static void near(double found, double expected) {
  if (!(fabs(found - expected) <= 1e-9 * fabs(expected))) {
    fail_msg("%.17g, expected %.17g", found, expected);
  }
}

static double mean_of(const json_t *array) {
  double sum = 0;
  for (size_t i = 0; i < json_array_size(array); ++i) {
    sum += json_real_value(json_array_get(array, i));
  }
  return sum / (double)json_array_size(array);
}

/* The projection is the sum of its phases, the measurement that of its passes, and both are means of the turns. */
static void check_row(const json_t *row, int64_t samples) {
  const json_t *parts = json_object_get(row, "measured_parts_s"), *phases = json_object_get(row, "predicted_phases_s");
  const double measured = get_real(row, "measured_s"), predicted = get_real(row, "predicted_s");
  assert_true(get_real(row, "residual") < 30);
  assert_int_equal(get_integer(row, "samples"), samples);
  assert_int_equal(get_integer(row, "iterations"), 10 * (int64_t)json_array_size(json_object_get(row, "measured_of_turns_s")));
  assert_true(measured > 0 && predicted > 0);
  near(get_real(row, "accuracy"), 1 - fabs(predicted - measured) / measured);
  near(mean_of(json_object_get(row, "measured_of_turns_s")), measured);
  near(mean_of(json_object_get(row, "predicted_of_turns_s")), predicted);
  near(sum_of(phases), predicted);
  near(get_real(parts, "forward") + get_real(parts, "backward") + get_real(parts, "update"), measured);
  const json_t *compute = json_object_get(parts, "compute");
  assert_true(json_is_null(json_object_get(row, "accuracy_of_best")) == (compute == NULL));
  if (compute != NULL) { /* the phases of shared layers are those of both passes */
    near(get_real(row, "computed_s"), json_real_value(compute) + get_real(parts, "update"));
    const double best = get_real(row, "measured_best_s"); /* the exchange of the best turn, not of all */
    assert_true(best >= get_real(row, "computed_s") && best < measured);
    near(get_real(row, "accuracy_of_best"), 1 - fabs(predicted - best) / best);
    assert_true(sum_of(parts) - measured <= get_real(parts, "forward") + get_real(parts, "backward"));
    assert_true(get_real(parts, "exchange") >= 0 && get_real(phases, "forward") > 0);
  }
}

static const char *method_at(const json_t *rows, size_t i) {
  return get_text(json_array_get(rows, i), "method");
}

static void test_document(void **state) {
  (void)state;
  static const char *const methods[] = {"data", "gpipe", "spatial", "filter", "channel", "data+filter", "data+spatial"};
  static const int64_t samples[] = {1, 2, 4, 4, 4, 2, 2};
  enum { COUNT = sizeof methods / sizeof methods[0] };
  json_t *document = run_json(SMALL "--ranks 4 --quick --out F.json --json");
  const json_t *rows = json_object_get(document, "rows");
  assert_string_equal(get_text(document, "bench"), "oracle");
  assert_string_equal(get_text(document, "model"), "lenet5");
  assert_int_equal(get_integer(document, "ranks"), 4);
  assert_string_equal(get_text(document, "calibrated_by"), get_integer(document, "processors_of_node") < 4 ? "means" : "medians");
  assert_int_equal(json_array_size(rows), COUNT);
  for (size_t i = 0; i < COUNT; ++i) {
    const json_t *row = json_array_get(rows, i), *phases = json_object_get(row, "predicted_phases_s");
    assert_string_equal(method_at(rows, i), methods[i]);
    check_row(row, samples[i]);
    assert_true((get_real(phases, "halo") > 0) == (strstr(methods[i], "spatial") != NULL));
    assert_true((get_real(phases, "collectives") > 0) == (i >= 2));
    assert_int_equal(json_array_size(json_object_get(row, "cut")), i == 1 ? 3 : 0);
    assert_int_equal(get_integer(row, "ways"), i < 2 ? 1 : i < 5 ? 4 : 2);
  }
  assert_string_equal(method_at(json_object_get(document, "left_out"), 0), "serial");
  assert_written("F.json", document);
  json_decref(document);
  assert_int_equal(remove("F.json"), 0);
}

/* One rank shares nothing. */
static void test_one_rank(void **state) {
  (void)state;
  json_t *document = run_json(SMALL "--ranks 1 --quick --json");
  const json_t *rows = json_object_get(document, "rows"), *serial = json_array_get(rows, 0), *data = json_array_get(rows, 1);
  assert_int_equal(json_array_size(rows), 2);
  assert_string_equal(get_text(document, "calibrated_by"), "medians"); /* there is always a processor for one */
  assert_string_equal(method_at(rows, 0), "serial");
  assert_string_equal(method_at(rows, 1), "data");
  check_row(serial, 4);
  check_row(data, 4);
  near(get_real(serial, "computed_s"), get_real(serial, "measured_s"));
  assert_true(json_is_null(json_object_get(data, "computed_s")));
  assert_true(get_real(json_object_get(data, "predicted_phases_s"), "gradient_exchange") > 0);
  json_decref(document);
}

static void test_table(void **state) {
  (void)state;
  run_result result = run("bench oracle --batch 4 --threads 1 --ranks 2 --repeats 1 --compare filter,serial");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "lenet5, batches of 4\n2 ranks over threads"));
  assert_non_null(strstr(result.out, "milliseconds of an iteration, means of n; predicted from me"));
  assert_non_null(strstr(result.out, "  serial         left out: serial: 2 ranks, expected 1\n"));
  assert_non_null(strstr(result.out, "\n  filter              4   10 "));
  assert_null(strstr(result.out, "spatial"));
  release(&result);
  result = run("bench oracle --batch 4 --threads 1 --ranks 5 --repeats 1 --compare data");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "  data           left out: ranks: 5, more than the 4 samples of a batch"));
  release(&result);
}

static void test_requests(void **state) {
  (void)state;
  assert_fails(2, "--compare: 'data,time', expected some of serial,data,gpipe,", "bench oracle --compare data,time");
  assert_fails(2, "--compare: ',', expected some of serial", "bench oracle --compare ,");
  assert_fails(2, "--batch: 6 samples for 4 micro-batches, expected a multiple", "bench oracle --batch 6");
  assert_fails(2, "--model: gru takes sequences, expected a network of images", "bench oracle --model gru");
  assert_fails(2, "--model: ", "bench oracle --model nothing");
  assert_fails(2, "transport mpi: no launcher has started this process", "bench oracle --transport mpi");
}

static void test_memory(void **state) {
  (void)state;
  walk_benchmark(SMALL "--ranks 2 --repeats 1 --compare data,gpipe,filter --json", 61, 900, 397, 40000);
}

/* ---- what is wrong is found ---- */

static bppsa_status tamper(bppsa_comm *comm, void *context) {
  bppsa_bench_settings asked = *(const bppsa_bench_settings *)context;
  bppsa_oracle_crew crew = {.ground = {.asked = NULL}};
  bppsa_device *device = NULL;
  double residual = NAN;
  asked.comm = comm;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  BPPSA_TRY(bppsa_oracle_ground_open(&asked, device, &crew.ground));
  BPPSA_TRY(bppsa_oracle_entry_open(&crew.ground, bppsa_oracle_runnables(&(int64_t){0}) + 1, &crew.entry));
  double *right = crew.ground.reference->parameters[0].value.data;
  BPPSA_TRY(bppsa_oracle_entry_verify(&crew.entry, &residual));
  CHECK(residual < BPPSA_RESIDUAL_BOUND);
  right[0] *= 1.001; /* one gradient of one weight */
  BPPSA_TRY(bppsa_oracle_entry_verify(&crew.entry, &residual));
  CHECK(residual >= BPPSA_RESIDUAL_BOUND);
  bppsa_oracle_entry_close(&crew.entry);
  bppsa_oracle_ground_close(&crew.ground);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static void test_wrong(void **state) {
  (void)state;
  bppsa_network network;
  const bppsa_comm_config one = bppsa_comm_config_default();
  assert_int_equal(bppsa_network_open("lenet5", NULL, &network), BPPSA_OK);
  bppsa_bench_settings asked = {
      .request = {.seed = 3}, .network = &network, .model = "lenet5", .batch = 4, .schedule = {.micro_batches = 2}};
  assert_int_equal(bppsa_comm_run(&one, tamper, &asked, NULL), BPPSA_OK);
  bppsa_network_close(&network);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_document), cmocka_unit_test(test_one_rank),
                                     cmocka_unit_test(test_table),    cmocka_unit_test(test_requests),
                                     cmocka_unit_test(test_memory),   cmocka_unit_test(test_wrong)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

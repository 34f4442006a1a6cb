/* Requests for schedules: what is left to the scheme, files of costs, several schemes for one model. */
#include "core/files/json.h"
#include "schedule/compare.h"
#include "schedule/schedule_internal.h"
#include "tests/core/helpers.h"
#include "tests/support/json_memory.h"

/* The window and the elements of a scheme, unless the request sets them; the model's layers, unless it has some. */
static void test_defaults(void **state) {
  (void)state;
  static const struct {
    const char *scheme;
    bppsa_schedule_window window;
  } cases[] = {{"1f1b", BPPSA_WINDOW_ITERATION},
               {"wait-free", BPPSA_WINDOW_BACKWARD_FORWARD},
               {"multi-stream", BPPSA_WINDOW_ITERATION},
               {"scan-chunked", BPPSA_WINDOW_ITERATION}};
  bppsa_schedule_request request = bppsa_schedule_request_default();
  bppsa_timed timed;
  request.config.stages = 3;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    assert_int_equal(bppsa_schedule_request_make(&request, cases[i].scheme, 0, &timed), BPPSA_OK);
    assert_int_equal(timed.list->config.window, cases[i].window);
    assert_true(!timed.list->scheme->scan || timed.list->config.elements == 3 * 16 + 1);
    bppsa_timed_free(&timed);
  }
  assert_int_equal(bppsa_schedule_request_make(&request, "gpipe", 12, &timed), BPPSA_OK);
  assert_int_equal(timed.list->config.layers, 12);
  bppsa_timed_free(&timed);
  request.config.layers = 6;
  request.config.elements = 20;
  request.sets_elements = true;
  request.config.window = BPPSA_WINDOW_ITERATION;
  request.sets_window = true;
  assert_int_equal(bppsa_schedule_request_make(&request, "wait-free", 12, &timed), BPPSA_OK);
  assert_true(timed.list->config.layers == 6 && timed.list->config.window == BPPSA_WINDOW_ITERATION);
  bppsa_timed_free(&timed);
  assert_int_equal(bppsa_schedule_request_make(&request, "scan-linear", 0, &timed), BPPSA_OK);
  assert_int_equal(timed.list->config.elements, 20);
  bppsa_timed_free(&timed);
  assert_error(bppsa_schedule_request_make(&request, "gipe", 0, &timed), BPPSA_ERR_ARGUMENT,
               "schedule: unknown scheme 'gipe', expected one that bppsa schedule --list names; did you mean gpipe?");
}

static void test_costs(void **state) {
  (void)state;
  static const char costs[] = "{\"forward\": [1, 2, 3, 4]}";
  bppsa_schedule_request request = bppsa_schedule_request_default();
  bppsa_timed timed;
  put_file("request_costs.json", costs, sizeof costs - 1);
  assert_int_equal(bppsa_schedule_request_costs(&request, "request_costs.json"), BPPSA_OK);
  assert_int_equal(bppsa_schedule_request_make(&request, "1f1b", 0, &timed), BPPSA_OK);
  assert_true(timed.list->config.cost[BPPSA_COST_FORWARD][3] == 4);
  bppsa_timed_free(&timed);
  assert_int_equal(bppsa_schedule_request_costs(&request, "request_costs.json"), BPPSA_ERR_ARGUMENT); /* it has some already */
  request.config.layers = 8;
  request.config.stages = 2;
  assert_error(bppsa_schedule_request_make(&request, "1f1b", 0, &timed), BPPSA_ERR_ARGUMENT,
               "--costs: request_costs.json: forward: 4 rows, expected 8, one for each layer, or 2, one for each stage");
  bppsa_schedule_request_free(&request);
  bppsa_schedule_request_free(&request);
  request = bppsa_schedule_request_default();
  assert_error(bppsa_schedule_request_costs(&request, "nowhere.json"), BPPSA_ERR_ARGUMENT, "--costs: nowhere.json");
  put_file("request_costs.json", "{", 1);
  assert_error(bppsa_schedule_request_costs(&request, "request_costs.json"), BPPSA_ERR_FORMAT, "--costs: request_costs.json");
  assert_null(request.costs);
}

/* Costs by layer cut the layers, unless the request does; costs by stage and one cost for all leave the stages even. */
static void test_costs_cut(void **state) {
  (void)state;
  static const struct {
    const char *costs, *cut;
    int64_t first;
  } cases[] = {{"{\"forward\": [9, 1, 1, 1, 1, 1], \"backward\": [9, 1, 1, 1, 1, 1]}", NULL, 1},
               {"{\"weight_grad\": [1, 1, 1, 1, 1, 20]}", NULL, 5},
               {"{\"forward\": [1, 1, 1, 1, 1, 20]}", "2", 2},
               {"{\"forward\": [1, 20]}", NULL, 3},
               {"{\"forward\": 20}", NULL, 3},
               {"{\"sync\": [1, 1, 1, 1, 1, 20]}", NULL, 3}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_schedule_request request = bppsa_schedule_request_default();
    bppsa_timed timed;
    put_file("request_costs.json", cases[i].costs, strlen(cases[i].costs));
    request.config.stages = 2;
    assert_int_equal(bppsa_schedule_request_costs(&request, "request_costs.json"), BPPSA_OK);
    if (cases[i].cut != NULL) {
      assert_int_equal(bppsa_schedule_request_cut(&request, cases[i].cut), BPPSA_OK);
    }
    assert_int_equal(bppsa_schedule_request_make(&request, "1f1b", 6, &timed), BPPSA_OK);
    assert_int_equal(bppsa_schedule_layer_of(timed.list, 1), cases[i].first);
    bppsa_timed_free(&timed);
    assert_int_equal(bppsa_schedule_request_make(&request, "wait-free", 6, &timed),
                     cases[i].cut != NULL ? BPPSA_ERR_ARGUMENT : BPPSA_OK);
    if (cases[i].cut == NULL) {
      bppsa_timed_free(&timed); /* it has no stages */
    }
    bppsa_schedule_request_free(&request);
  }
}

/* B has a cost of its own, and of a first layer without an input gradient that of W; the link is in the file too. What is written
 * reads back. */
static void test_backward_and_link(void **state) {
  (void)state;
  static const char costs[] =
      "{\"forward\": 1, \"input_grad\": 2, \"weight_grad\": [3, 3], \"backward\": [4, 4.25], \"alpha\": 0.5, "
      "\"beta\": 0.125, \"message\": [2, 2]}";
  bppsa_schedule_request request = bppsa_schedule_request_default(), again = request;
  bppsa_timed timed;
  bppsa_text text = {0};
  put_file("request_costs.json", costs, sizeof costs - 1);
  assert_int_equal(bppsa_schedule_request_costs(&request, "request_costs.json"), BPPSA_OK);
  request.config.stages = request.config.layers = 2;
  request.config.micro_batches = 1;
  assert_int_equal(bppsa_schedule_request_make(&request, "gpipe", 0, &timed), BPPSA_OK);
  assert_true(timed.times.makespan == 1 + 0.75 + 1 + 4.25 + 0.75 + 4);
  bppsa_timed_free(&timed);
  request.config.skip_first_input_grad = true;
  assert_int_equal(bppsa_schedule_request_make(&request, "gpipe", 0, &timed), BPPSA_OK);
  assert_true(timed.times.makespan == 1 + 0.75 + 1 + 4.25 + 0.75 + 3);
  bppsa_timed_free(&timed);
  request.config.split = BPPSA_SPLIT_IW; /* no B */
  assert_int_equal(bppsa_schedule_request_make(&request, "gpipe", 0, &timed), BPPSA_OK);
  assert_true(timed.times.makespan == 1 + 0.75 + 1 + 2 + 0.75 + 3);
  bppsa_timed_free(&timed);
  assert_int_equal(bppsa_schedule_costs_write(&request.config, &text), BPPSA_OK);
  put_file("request_costs.json", text.text, text.size);
  assert_int_equal(bppsa_schedule_request_costs(&again, "request_costs.json"), BPPSA_OK);
  assert_true(again.config.alpha == 0.5 && again.config.beta == 0.125);
  for (int cost = 0; cost < BPPSA_COST_COUNT; ++cost) {
    const double *array = request.config.cost[cost], *found = again.config.cost[cost];
    assert_true((array == NULL) == (found == NULL));
    assert_true(array == NULL || (again.config.rows[cost] == 2 && found[0] == array[0] && found[1] == array[1]));
  }
  bppsa_text_free(&text);
  bppsa_schedule_request_free(&request);
  bppsa_schedule_request_free(&again);
  request = bppsa_schedule_request_default();
  put_file("request_costs.json", "{\"alpha\": [1]}", 14);
  assert_error(bppsa_schedule_request_costs(&request, "request_costs.json"), BPPSA_ERR_FORMAT,
               "alpha: a list of 1, expected a number, 0 or more");
  put_file("request_costs.json", "{\"alhpa\": 1}", 12);
  assert_error(bppsa_schedule_request_costs(&request, "request_costs.json"), BPPSA_ERR_FORMAT, "did you mean alpha?");
}

/* Schemes are compared for one model: the most layers that one of them takes by itself. */
static void test_compare(void **state) {
  (void)state;
  bppsa_schedule_request request = bppsa_schedule_request_default();
  bppsa_text text = {0};
  json_t *documents = NULL;
  request.config.chunks = 3;
  assert_int_equal(bppsa_schedule_compare(&request, "gpipe,interleaved,scan-linear", false, &text), BPPSA_OK);
  assert_non_null(strstr(text.text, "\n interleaved"));
  assert_non_null(strstr(text.text, "Not the same for all: layers, micro-batches, elements."));
  bppsa_text_free(&text);
  assert_int_equal(bppsa_schedule_compare(&request, "gpipe,interleaved", true, &text), BPPSA_OK);
  assert_int_equal(bppsa_json_parse("documents", text.text, (int64_t)strlen(text.text), &documents), BPPSA_OK);
  assert_int_equal(json_array_size(documents), 2);
  for (size_t i = 0; i < 2; ++i) {
    assert_int_equal(json_integer_value(json_object_get(json_array_get(documents, i), "layers")), 4 * 3);
    assert_int_equal(json_array_size(json_object_get(json_array_get(documents, i), "differs")), 0);
    assert_null(json_object_get(json_array_get(documents, i), "ops"));
  }
  json_decref(documents);
  bppsa_text_free(&text);
  char many[1100];
  memset(many, 'a', sizeof many);
  many[sizeof many - 1] = '\0';
  assert_error(bppsa_schedule_compare(&request, ",", false, &text), BPPSA_ERR_ARGUMENT, "--compare: ',', expected schemes");
  assert_error(bppsa_schedule_compare(&request, many, false, &text), BPPSA_ERR_ARGUMENT,
               "--compare: 1099 characters, expected fewer than 1024");
  assert_error(bppsa_schedule_compare(&request, "gpipe,nope", true, &text), BPPSA_ERR_ARGUMENT, "unknown scheme 'nope'");
  assert_null(text.text);
}

/* A file is the whole schedule. */
static void test_load(void **state) {
  (void)state;
  bppsa_schedule_request request = bppsa_schedule_request_default();
  bppsa_timed timed, again;
  bppsa_text text = {0};
  assert_int_equal(bppsa_schedule_request_make(&request, "zb-h1", 0, &timed), BPPSA_OK);
  assert_int_equal(bppsa_schedule_csv_write(&timed, &text), BPPSA_OK);
  put_file("request_schedule.csv", text.text, text.size);
  bppsa_text_free(&text);
  assert_int_equal(bppsa_schedule_load("request_schedule.csv", &again), BPPSA_OK);
  assert_true(again.times.makespan == timed.times.makespan && again.list->count == timed.list->count);
  bppsa_timed_free(&again);
  bppsa_timed_free(&timed);
  assert_error(bppsa_schedule_load("nowhere.csv", &again), BPPSA_ERR_ARGUMENT, "--load: nowhere.csv");
}

static bppsa_status compare_both(void *request) {
  bppsa_text text = {0}, document = {0};
  bppsa_status status = bppsa_schedule_compare(request, "gpipe,1f1b", false, &text);
  status = status == BPPSA_OK ? bppsa_schedule_compare(request, "gpipe,1f1b", true, &document) : status;
  bppsa_text_free(&text);
  bppsa_text_free(&document);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_schedule_request request = bppsa_schedule_request_default();
  request.config.stages = request.config.micro_batches = 2;
  const int64_t even = walk_allocations(compare_both, &request);
  assert_true(even > 50);
  put_file("request_costs.json", "{\"forward\": [1, 2, 3, 9]}", 25); /* cuts the layers */
  assert_int_equal(bppsa_schedule_request_costs(&request, "request_costs.json"), BPPSA_OK);
  request.config.layers = 4;
  assert_true(walk_allocations(compare_both, &request) > even);
  bppsa_schedule_request_free(&request);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_defaults),  cmocka_unit_test(test_costs),
                                     cmocka_unit_test(test_costs_cut), cmocka_unit_test(test_backward_and_link),
                                     cmocka_unit_test(test_compare),   cmocka_unit_test(test_load),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Counts of a network without a command line. */
#include "runs/flops.h"
#include "tests/core/helpers.h"

static bppsa_flops_request request_of(const char *network) {
  bppsa_flops_request request = bppsa_flops_request_default();
  request.network = network;
  request.assumed_limit = (int64_t)1 << 31;
  return request;
}

static const char *get(const json_t *document, const char *key) {
  const char *text = json_string_value(json_object_get(document, key));
  assert_non_null(text);
  return text;
}

static void test_document(void **state) {
  (void)state;
  bppsa_flops_request request = request_of("lenet5");
  bppsa_flops flops;
  bppsa_text text = {0};
  char words[BPPSA_FLOPS_CONCLUSION];
  request.prune = 0.9;
  request.scan = (bppsa_scan_method){.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = 2};
  assert_int_equal(bppsa_flops_count(&request, &flops), BPPSA_OK);
  assert_true(flops.pruned && flops.count == 10);
  json_t *document = bppsa_flops_json(&flops);
  assert_string_equal(get(document, "network"), "lenet5");
  assert_string_equal(get(document, "method"), "class-uniform");
  assert_string_equal(get(document, "dominant"), bppsa_flops_dominant(&flops, words, sizeof words));
  assert_string_equal(get(document, "conclusion"), bppsa_flops_conclusion(&flops, words, sizeof words));
  assert_int_equal(json_array_size(json_object_get(document, "operators")), 10);
  assert_int_equal(json_integer_value(json_object_get(document, "up_levels")), 2);
  json_decref(document);
  bppsa_flops_text(&flops, &text);
  assert_int_equal(bppsa_text_check(&text), BPPSA_OK);
  assert_non_null(strstr(text.text, words));
  bppsa_text_free(&text);
  assert_int_equal(bppsa_flops_draw(&flops, &text), BPPSA_OK);
  assert_non_null(strstr(text.text, "<svg"));
  bppsa_text_free(&text);
  bppsa_flops_free(&flops);
}

/* `auto` counts with the up-levels that it names. */
static void test_auto(void **state) {
  (void)state;
  const bppsa_flops_request request = request_of("lenet5");
  bppsa_flops flops;
  assert_int_equal(bppsa_flops_count(&request, &flops), BPPSA_OK);
  assert_false(flops.pruned);
  assert_int_equal(bppsa_scan_plan_config(flops.plan)->method.up_levels,
                   bppsa_scan_plan_config(flops.automatic)->method.up_levels);
  bppsa_flops_free(&flops);
}

static void check_refused(const bppsa_flops_request *request, const char *message) {
  bppsa_flops flops = {.count = -1};
  assert_int_equal(bppsa_flops_count(request, &flops), BPPSA_ERR_ARGUMENT);
  assert_message(message);
  assert_int_equal(flops.count, -1); /* untouched */
}

static void test_refusals(void **state) {
  (void)state;
  bppsa_flops_request request = request_of("rnn");
  check_refused(&request, "rnn: a recurrent network, expected a convolutional one");
  request.network = "nothing";
  check_refused(&request, "network: unknown 'nothing'");
  request.network = "lenet5";
  request.input = "x.npy";
  check_refused(&request, "--input: given beside --pattern guaranteed, expected --pattern value");
  request.values = true;
  check_refused(&request, "x.npy");
  request = request_of("lenet5");
  request.memory_limit = 1000;
  check_refused(&request, "the memory limit is 1000");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_document), cmocka_unit_test(test_auto),
                                     cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

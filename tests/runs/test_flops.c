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

/* Counts row by row are those over patterns, in all that is shown but kinds of products. */
static void test_rows(void **state) {
  (void)state;
  static const struct {
    const char *network;
    double prune;
    bool input;
  } cases[] = {{"lenet5", 0.9, false}, {"resnet20", 0.97, true}, {"resnet20", 0, false}, {"mobilenetv2", 0.98, false}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_flops_request request = request_of(cases[i].network);
    bppsa_flops flops[2];
    request.prune = cases[i].prune;
    request.input_grad = cases[i].input;
    request.scan = (bppsa_scan_method){.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = 2};
    for (int axis = 0; i > 0 && axis < 3; ++axis) {
      request.in[axis] = axis == 0 ? 3 : 8;
    }
    for (int rows = 0; rows < 2; ++rows) {
      request.most_patterns = rows == 1 ? 0 : INT64_MAX;
      assert_int_equal(bppsa_flops_count(&request, &flops[rows]), BPPSA_OK);
      assert_true((flops[rows].counter != NULL) == (rows == 1));
    }
    assert_int_equal(flops[0].step_count, flops[1].step_count);
    for (int64_t k = 0; k < flops[0].step_count; ++k) {
      const bppsa_scan_step *e = &flops[0].steps[k], *f = &flops[1].steps[k];
      assert_true(e->nnz == f->nnz && e->flops == f->flops && e->bytes == f->bytes && e->critical == f->critical);
    }
    for (int64_t k = 0; k < flops[0].count; ++k) {
      assert_memory_equal(&flops[0].operators[k], &flops[1].operators[k], sizeof(bppsa_flops_operator));
    }
    assert_memory_equal(&flops[0].work, &flops[1].work, sizeof(bppsa_work));
    assert_memory_equal(&flops[0].bp, &flops[1].bp, sizeof(bppsa_work));
    assert_memory_equal(&flops[0].unpruned, &flops[1].unpruned, sizeof(bppsa_cnn_bp_work));
    assert_int_equal(flops[0].totals.workspace_bytes, flops[1].totals.workspace_bytes);
    bppsa_flops_free(&flops[0]);
    bppsa_flops_free(&flops[1]);
  }
}

/* Estimates are called so, in the document and in the text, with their standard errors. */
static void test_estimated(void **state) {
  (void)state;
  bppsa_flops_request request = request_of("lenet5");
  bppsa_flops flops;
  bppsa_text text = {0};
  request.prune = 0.5;
  request.scan = (bppsa_scan_method){.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = 2};
  request.most_patterns = 0;
  for (int drawn = 0; drawn < 2; ++drawn) {
    request.count_work = drawn == 1 ? 1 : 1e18;
    assert_int_equal(bppsa_flops_count(&request, &flops), BPPSA_OK);
    json_t *document = bppsa_flops_json(&flops);
    assert_int_equal(json_is_true(json_object_get(document, "estimated")), drawn);
    assert_true((json_number_value(json_object_get(document, "flops_standard_error")) > 0) == (drawn == 1));
    assert_true((json_number_value(json_object_get(document, "critical_flops_standard_error")) > 0) == (drawn == 1));
    json_decref(document);
    bppsa_flops_text(&flops, &text);
    assert_int_equal(bppsa_text_check(&text), BPPSA_OK);
    assert_true((strstr(text.text, " +- ") != NULL) == (drawn == 1));
    bppsa_text_free(&text);
    bppsa_flops_free(&flops);
  }
  request.memory_limit = 1000;
  check_refused(&request, "lenet5: counting the rows of the Jacobians needs ");
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_document), cmocka_unit_test(test_auto), cmocka_unit_test(test_rows),
                                     cmocka_unit_test(test_estimated), cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

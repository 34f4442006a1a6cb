/* The plans of a recurrent network's layers: one a layer, by the method asked for, in numbers and in words. */
#include "runs/layer_plans.h"
#include "tests/core/helpers.h"
#include "tests/support/json_memory.h"

static bppsa_recurrent_config config_of(bppsa_scan_algorithm algorithm) {
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  config.seq_len = 9;
  config.batch = 2;
  config.hidden = 3;
  config.layers = 2;
  config.method = (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, bppsa_scan_method_of(algorithm)};
  return config;
}

static int64_t integer(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  assert_true(json_is_integer(value));
  return json_integer_value(value);
}

/* The lower layer's gradients enter at every step, so its scan is affine and as long as the sequence. */
static void test_layers(void **state) {
  (void)state;
  const bppsa_network_kind *kind = bppsa_network_kind_find("gru");
  const bppsa_recurrent_config config = config_of(BPPSA_SCAN_BLELLOCH);
  bppsa_layer_plans plans;
  assert_int_equal(bppsa_layer_plans_make(kind, &config, BPPSA_CPU, NULL, &plans), BPPSA_OK);
  json_t *document = bppsa_layer_plans_json(&plans);
  assert_string_equal(json_string_value(json_object_get(document, "model")), "gru");
  assert_string_equal(json_string_value(json_object_get(document, "algorithm")), "blelloch");
  assert_string_equal(json_string_value(json_object_get(document, "chosen")), "option");
  assert_int_equal(integer(document, "layer"), 1);
  assert_int_equal(integer(document, "seq_len"), 9);
  assert_int_equal(json_array_size(json_object_get(document, "layer_plans")), 2);
  const json_t *below = json_array_get(json_object_get(document, "layer_plans"), 0),
               *top = json_array_get(json_object_get(document, "layer_plans"), 1);
  assert_true(json_is_true(json_object_get(below, "affine")));
  assert_true(json_is_false(json_object_get(top, "affine")));
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(plans.plans[1]);
  assert_int_equal(integer(json_object_get(document, "totals"), "mm"), totals->mm);
  assert_int_equal(json_array_size(json_object_get(document, "steps")), totals->mm + totals->mv);
  json_decref(document);
  bppsa_text text = {0};
  bppsa_layer_plans_text(&plans, &text);
  assert_int_equal(bppsa_text_check(&text), BPPSA_OK);
  const char *first = strstr(text.text, "Layer 1: "), *second = strstr(text.text, "Layer 0: ");
  assert_true(first != NULL && second != NULL && first < second); /* in the order in which they run */
  assert_non_null(strstr(second, "affine (a gradient enters at every step)"));
  bppsa_text_free(&text);
  bppsa_layer_plans_free(&plans);
  bppsa_layer_plans_free(&plans);
}

/* `auto` is resolved for the kind of device that is named, which need not be here; all layers have the same method. */
static void test_auto(void **state) {
  (void)state;
  const bppsa_network_kind *kind = bppsa_network_kind_find("rnn");
  const bppsa_device_kind devices[] = {BPPSA_CPU, BPPSA_CUDA};
  for (int d = 0; d < 2; ++d) {
    const bppsa_recurrent_config config = config_of(BPPSA_SCAN_AUTO);
    bppsa_layer_plans plans;
    assert_int_equal(bppsa_layer_plans_make(kind, &config, devices[d], NULL, &plans), BPPSA_OK);
    const bppsa_gradient_method top = bppsa_scan_plan_method(plans.plans[1]), below = bppsa_scan_plan_method(plans.plans[0]);
    assert_false(bppsa_gradient_method_open(&top));
    assert_int_equal(top.scan.algorithm, below.scan.algorithm);
    assert_int_equal(bppsa_scan_plan_config(plans.plans[0])->device, devices[d]);
    json_t *document = bppsa_layer_plans_json(&plans);
    assert_string_equal(json_string_value(json_object_get(document, "chosen")), "estimate");
    json_decref(document);
    bppsa_layer_plans_free(&plans);
  }
}

/* The linear scan is called what it is. */
static void test_chain(void **state) {
  (void)state;
  const bppsa_recurrent_config config = config_of(BPPSA_SCAN_LINEAR);
  bppsa_layer_plans plans;
  bppsa_text text = {0};
  assert_int_equal(bppsa_layer_plans_make(bppsa_network_kind_find("rnn"), &config, BPPSA_CPU, NULL, &plans), BPPSA_OK);
  bppsa_layer_plans_text(&plans, &text);
  assert_non_null(strstr(text.text, "This is the recurrence itself: 8 mat-vecs, each waiting for the one before."));
  bppsa_text_free(&text);
  bppsa_layer_plans_free(&plans);
}

static void test_refused(void **state) {
  (void)state;
  bppsa_recurrent_config config = config_of(BPPSA_SCAN_BLELLOCH);
  bppsa_layer_plans plans = {.kind = NULL};
  config.batch = 0;
  assert_int_equal(bppsa_layer_plans_make(bppsa_network_kind_find("rnn"), &config, BPPSA_CPU, NULL, &plans), BPPSA_ERR_ARGUMENT);
  assert_null(plans.plans);
}

static bppsa_status make(void *config) {
  bppsa_layer_plans plans;
  bppsa_text text = {0};
  BPPSA_TRY(bppsa_layer_plans_make(bppsa_network_kind_find("rnn"), config, BPPSA_CPU, NULL, &plans));
  char *document = NULL;
  bppsa_status status = bppsa_json_render(bppsa_layer_plans_json(&plans), &document);
  if (status == BPPSA_OK) {
    bppsa_layer_plans_text(&plans, &text);
    status = bppsa_text_check(&text);
  }
  bppsa_free(document);
  bppsa_text_free(&text);
  bppsa_layer_plans_free(&plans);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_recurrent_config config = config_of(BPPSA_SCAN_CHUNKED);
  assert_true(walk_allocations(make, &config) > 50);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers), cmocka_unit_test(test_auto), cmocka_unit_test(test_chain),
                                     cmocka_unit_test(test_refused), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

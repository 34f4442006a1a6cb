/* The plans of a recurrent network's layers: one a layer, by the method asked for, in numbers and in words. */
#include "runs/layer_plans.h"

#include <math.h>

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

/* An RNN of 3 units and one input, 12 steps in 4 chunks with 2 steps of warm-up, by hand. BP: 11 products of a 3 x 3 matrix, 18
 * FLOPs each; weight gradients of 12 x 3 x (1 + 3) entries. Chunks: 3 warm-ups make 18 of 12 steps, and 3 boundaries compare 3
 * numbers each, at 2 FLOPs. */
static void test_flops(void **state) {
  (void)state;
  const bppsa_network_kind *kind = bppsa_network_kind_find("rnn");
  bppsa_recurrent_config c = config_of(BPPSA_SCAN_AUTO);
  bppsa_layer_plans plans;
  bppsa_work_ratios ratios;
  c.method.backward = BPPSA_BACKWARD_SPECULATIVE;
  c.seq_len = 12;
  c.batch = c.input = c.layers = 1;
  c.loss_all = true;
  c.speculation.chunks = 4;
  c.speculation.warm_up = 2;
  assert_int_equal(bppsa_layer_plans_make(kind, &c, BPPSA_CPU, NULL, &plans), BPPSA_OK);
  const bppsa_backward_plan *plan = &plans.backward.plan;
  assert_int_equal(bppsa_backward_ratios(kind, &c, plan, NULL, &ratios), BPPSA_OK);
  const double bp = 11 * 18, weights = 2 * 12 * 3 * (1 + 3), walked = bp * 18 / 12 + 2 * 3 * 3;
  assert_true(fabs(ratios.gradients - walked / bp) < 1e-12);
  assert_true(fabs(ratios.backward - (walked + weights) / (bp + weights)) < 1e-12);
  assert_true(fabs(ratios.critical - (bp * 5 / 12 + 6) / bp) < 1e-12);
  json_t *document = bppsa_layer_plans_json(&plans);
  assert_true(json_real_value(json_object_get(document, "flops_of_bp")) == ratios.gradients);
  json_decref(document);

  /* A pass that walked 24 steps: 6 more, by one mend, which compares a boundary again and sums 6 steps of weight gradients. */
  const bppsa_backward_stats mended = {.speculated = true, .passes = 1, .path = 8, .possible = 12, .work = 2, .mended = 1};
  assert_int_equal(bppsa_backward_ratios(kind, &c, plan, &mended, &ratios), BPPSA_OK);
  assert_true(fabs(ratios.gradients - (2 * bp + 2 * 3 * 4) / bp) < 1e-12);
  assert_true(fabs(ratios.backward - (2 * bp + 2 * 3 * 4 + weights * 1.5) / (bp + weights)) < 1e-12);
  const bppsa_backward_stats paused = {.passes = 1, .path = 12, .possible = 12, .work = 1};
  assert_int_equal(bppsa_backward_ratios(kind, &c, plan, &paused, &ratios), BPPSA_OK);
  assert_true(ratios.gradients == 1 && ratios.backward == 1 && ratios.critical == 1);
  bppsa_layer_plans_free(&plans);
}

/* The document and the words of speculative BP, and a drawing with every chunk. */
static void test_speculative(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(BPPSA_SCAN_AUTO);
  bppsa_layer_plans plans;
  bppsa_text text = {0}, drawing = {0};
  c.method.backward = BPPSA_BACKWARD_SPECULATIVE;
  c.seq_len = 300;
  c.speculation.chunks = 7;
  assert_int_equal(bppsa_layer_plans_make(bppsa_network_kind_find("lstm"), &c, BPPSA_CPU, NULL, &plans), BPPSA_OK);
  bppsa_layer_plans_text(&plans, &text);
  assert_int_equal(bppsa_text_check(&text), BPPSA_OK);
  assert_non_null(strstr(text.text, "Backward: speculative, 7 chunks, warm-up 40, 3 rounds, tolerance 2.4e-07"));
  assert_non_null(strstr(text.text, "  speculative BP "));
  assert_non_null(strstr(text.text, "  sequential BP "));
  assert_non_null(strstr(text.text, "166 steps where nothing is mended, of 600")); /* of two layers */
  assert_int_equal(bppsa_backward_report_draw(&plans.backward, &drawing), BPPSA_OK);
  int chunks = 0;
  for (const char *at = drawing.text; (at = strstr(at, "class=\"chunk\"")) != NULL; ++at) {
    ++chunks;
  }
  assert_int_equal(chunks, 7);
  assert_non_null(strstr(drawing.text, "steps 43 .. 1, started at 83"));
  bppsa_text_free(&text);
  bppsa_text_free(&drawing);
  bppsa_layer_plans_free(&plans);
  c.speculation.chunks = 0;
  c.batch = 64; /* one chunk: BP */
  assert_int_equal(bppsa_layer_plans_make(bppsa_network_kind_find("lstm"), &c, BPPSA_CPU, NULL, &plans), BPPSA_OK);
  bppsa_layer_plans_text(&plans, &text);
  assert_non_null(strstr(text.text, "Backward: bp"));
  assert_error(bppsa_backward_report_draw(&plans.backward, &drawing), BPPSA_ERR_ARGUMENT, "drawing: 1 chunks of time");
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
  config.method.backward = BPPSA_BACKWARD_SPECULATIVE;
  config.speculation.chunks = 3;
  assert_true(walk_allocations(make, &config) > 50);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers),      cmocka_unit_test(test_auto),
                                     cmocka_unit_test(test_chain),       cmocka_unit_test(test_flops),
                                     cmocka_unit_test(test_speculative), cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

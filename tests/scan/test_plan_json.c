/* A scan plan as JSON: every number of a step and of the totals, and no document with a gap when memory runs out. */
#include <string.h>

#include "core/base/alloc.h"
#include "scan/plan_json.h"
#include "tests/support/json_memory.h"
#include "tests/support/support.h"

static bppsa_scan_plan *make(bppsa_scan_algorithm algorithm) {
  bppsa_scan_config c = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  c.method.algorithm = algorithm;
  c.jacobians = 11;
  c.dim = 3;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  return plan;
}

static void assert_integer(const json_t *object, const char *key, int64_t expected) {
  const json_t *value = json_object_get(object, key);
  assert_true(json_is_integer(value));
  assert_int_equal(json_integer_value(value), expected);
}

static void assert_text(const json_t *object, const char *key, const char *expected) {
  assert_string_equal(json_string_value(json_object_get(object, key)), expected);
}

static void test_steps(void **state) {
  (void)state;
  static const bppsa_scan_algorithm algorithms[] = {BPPSA_SCAN_LINEAR, BPPSA_SCAN_BLELLOCH, BPPSA_SCAN_CHUNKED};
  for (int a = 0; a < 3; ++a) {
    bppsa_scan_plan *plan = make(algorithms[a]);
    json_t *steps = bppsa_plan_steps_json(plan);
    bppsa_scan_iterator iterator = {0};
    bppsa_scan_step step;
    size_t count = 0;
    for (; bppsa_scan_plan_next(plan, &iterator, &step); ++count) {
      char left[BPPSA_OPERAND_TEXT], right[BPPSA_OPERAND_TEXT], out[BPPSA_OPERAND_TEXT];
      const json_t *object = json_array_get(steps, count);
      bppsa_scan_step_text(plan, &step, left, right, out);
      assert_int_equal(json_object_size(object), 16);
      assert_integer(object, "id", step.id);
      assert_integer(object, "level", step.level->level);
      assert_text(object, "phase", bppsa_scan_phase_name(step.level->phase));
      assert_text(object, "op", bppsa_scan_op_name(step.level->op));
      assert_text(object, "left", left);
      assert_text(object, "right", right);
      assert_text(object, "out", out);
      assert_integer(object, "m", step.m);
      assert_integer(object, "k", step.k);
      assert_integer(object, "n", step.n);
      assert_integer(object, "nnz", step.nnz);
      assert_integer(object, "flops", step.flops);
      assert_integer(object, "bytes", step.bytes);
      assert_int_equal(json_is_true(json_object_get(object, "critical")), step.critical);
      assert_int_equal(json_is_true(json_object_get(object, "dead")), step.level->dead);
      assert_int_equal(json_is_true(json_object_get(object, "affine")), bppsa_scan_plan_config(plan)->affine);
    }
    assert_true(count > 0);
    assert_int_equal(json_array_size(steps), count);
    json_decref(steps);
    bppsa_scan_plan_destroy(plan);
  }
}

static void test_totals(void **state) {
  (void)state;
  const bppsa_scan_totals totals = {.mm = 1,
                                    .mv = 2,
                                    .dead = 3,
                                    .mm_flops = 4,
                                    .mv_flops = 5,
                                    .critical_flops = 6,
                                    .critical_steps = 7,
                                    .bp_flops = 8,
                                    .bp_critical_flops = 9,
                                    .workspace_bytes = 10,
                                    .executed_flops = 11};
  static const char *const keys[] = {"mm",
                                     "mv",
                                     "dead_steps",
                                     "mm_flops",
                                     "mv_flops",
                                     "critical_flops",
                                     "critical_steps",
                                     "bp_flops",
                                     "bp_critical_flops",
                                     "workspace_bytes",
                                     "executed_flops"};
  json_t *object = bppsa_plan_totals_json(&totals);
  for (int i = 0; i < 11; ++i) {
    assert_integer(object, keys[i], i + 1);
  }
  assert_int_equal(json_object_size(object), 11);
  json_decref(object);
}

typedef json_t *(*maker)(const bppsa_scan_plan *plan);

static json_t *make_totals(const bppsa_scan_plan *plan) {
  return bppsa_plan_totals_json(bppsa_scan_plan_totals(plan));
}

/* Every allocation fails once: the document is whole or NULL. */
static void test_memory(void **state) {
  (void)state;
  static const maker makers[] = {bppsa_plan_steps_json, bppsa_plan_levels_json, make_totals};
  bppsa_scan_plan *plan = make(BPPSA_SCAN_BLELLOCH);
  for (int i = 0; i < 3; ++i) {
    json_t *whole = makers[i](plan);
    const int64_t live = bppsa_alloc_live();
    int64_t call = 1;
    for (bool done = false; !done; ++call) {
      bppsa_alloc_fail_at(call);
      json_t *found = makers[i](plan);
      done = bppsa_alloc_calls() < call; /* nothing has failed */
      bppsa_alloc_fail_at(0);
      assert_int_equal(found != NULL, done);
      assert_true(found == NULL || json_equal(found, whole));
      json_decref(found);
      assert_int_equal(bppsa_alloc_live(), live);
    }
    assert_true(call > 10);
    json_decref(whole);
  }
  bppsa_scan_plan_destroy(plan);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_totals), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

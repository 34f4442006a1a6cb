/* Configurations that no scheme has a schedule for, each refused with the value and what was expected. */
#include <math.h>
#include <string.h>

#include "schedule/schedule_internal.h"
#include "tests/support/support.h"

static void assert_refused(const char *scheme, const bppsa_schedule_config *config, const char *text) {
  bppsa_schedule *list = NULL;
  assert_int_equal(bppsa_schedule_create(scheme, config, &list), BPPSA_ERR_ARGUMENT);
  if (strstr(bppsa_last_error(), text) == NULL) {
    fail_msg("%s: '%s' does not say '%s'", scheme, bppsa_last_error(), text);
  }
  assert_null(list);
}

static void test_counts(void **state) {
  (void)state;
  static const struct {
    size_t offset;
    int64_t value;
    const char *text;
  } counts[] = {
      {offsetof(bppsa_schedule_config, stages), 0, "stages: 0, expected 1 to 1000000"},
      {offsetof(bppsa_schedule_config, micro_batches), 1000001, "micro-batches: 1000001, expected 1 to 1000000"},
      {offsetof(bppsa_schedule_config, width), -1, "width: -1, expected 1 to"},
      {offsetof(bppsa_schedule_config, iterations), INT64_MAX, "iterations: 9223372036854775807, expected 1 to"},
      {offsetof(bppsa_schedule_config, reverse), -2, "reverse-k: -2, expected -1 to"},
  };
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
    bppsa_schedule_config config = bppsa_schedule_config_default();
    *(int64_t *)(void *)((char *)&config + counts[i].offset) = counts[i].value;
    assert_refused("1f1b", &config, counts[i].text);
  }
  bppsa_schedule_config config = bppsa_schedule_config_default();
  config.stages = config.width = 1001; /* each of them is good */
  assert_refused("1f1b", &config, "stages x width: 1002001, expected 1 to 1000000");
}

static void test_costs(void **state) {
  (void)state;
  const double rows[4] = {1, 1, -2, 1};
  bppsa_schedule_config config = bppsa_schedule_config_default();
  config.uniform[BPPSA_COST_FORWARD] = (double)NAN;
  assert_refused("1f1b", &config, "forward, row 0: nan, expected a number, 0 or more and at most 1e+15");
  config = bppsa_schedule_config_default();
  config.cost[BPPSA_COST_STEP] = rows;
  config.rows[BPPSA_COST_STEP] = 4;
  assert_refused("1f1b", &config, "step, row 2: -2, expected a number, 0 or more");
  config = bppsa_schedule_config_default();
  config.beta = -0.5;
  assert_refused("1f1b", &config, "beta: -0.5, expected a number, 0 or more");
  config = bppsa_schedule_config_default();
  config.memory_cap = (double)INFINITY;
  assert_refused("1f1b", &config, "memory cap: inf, expected a number, 0 or more");
  config = bppsa_schedule_config_default();
  config.uniform[BPPSA_COST_SYNC] = -1; /* from the link */
  bppsa_schedule *list = NULL;
  assert_int_equal(bppsa_schedule_create("1f1b", &config, &list), BPPSA_OK);
  bppsa_schedule_destroy(list);
}

static void test_searches(void **state) {
  (void)state;
  bppsa_schedule_config config = bppsa_schedule_config_default();
  config.layers = 5000;
  config.reverse = -1;
  assert_refused("reverse-first-k", &config, "reverse-k: a search over 5000 layers, expected at most 4096, or k itself");
  assert_refused("multi-stream", &config, "multi-stream: 5000 layers in 5000 regions, expected at most 512, and no more regions");
}

static int64_t by_id(const bppsa_schedule *list, const bppsa_schedule_op *op) {
  return op - list->ops;
}

/* A list whose first operation waits for itself, as no scheme makes one. */
static void test_circle(void **state) {
  (void)state;
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_schedule_times times;
  bppsa_schedule *list = NULL;
  config.stages = config.micro_batches = 1;
  assert_int_equal(bppsa_schedule_create("gpipe", &config, &list), BPPSA_OK);
  assert_true(list->ops[1].dep_count > 0 && list->deps[list->ops[1].deps] == 0);
  list->ops[0].deps = list->ops[1].deps;
  list->ops[0].dep_count = 1;
  assert_int_equal(bppsa_schedule_simulate(list, &times), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "operations wait for each other, expected none"));
  assert_int_equal(bppsa_schedule_prioritise(list, by_id), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "operations wait for each other, expected none"));
  bppsa_schedule_destroy(list);
}

static void test_schemes(void **state) {
  (void)state;
  bppsa_schedule_config config = bppsa_schedule_config_default();
  assert_refused("2f2b", &config, "unknown scheme '2f2b'");
  int64_t count = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  int parallel = 0;
  config.recompute = true;
  for (int64_t i = 0; i < count; ++i) {
    if (schemes[i].data_parallel) {
      assert_refused(schemes[i].id, &config, "expected a pipeline");
      ++parallel;
    }
  }
  assert_true(parallel > 0);
  config.split = BPPSA_SPLIT_WI;
  assert_refused("2bw", &config, "recompute beside a split backward pass for 2bw, expected gpipe, 1f1b or model-parallel");
  config = bppsa_schedule_config_default();
  config.scale = BPPSA_SCALE_DOUBLING;
  config.micro_batches = 8;
  config.split = BPPSA_SPLIT_IW;
  assert_refused("chimera", &config, "doubling or halving beside a split backward pass");
  assert_refused("gpipe", &config, "doubling or halving for gpipe, expected chimera");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts), cmocka_unit_test(test_costs), cmocka_unit_test(test_searches),
                                     cmocka_unit_test(test_circle), cmocka_unit_test(test_schemes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Scan plans that are refused, each with the value and what was expected. */
#include <string.h>

#include "scan/plan.h"
#include "tests/support/support.h"

static void assert_refused(const bppsa_scan_config *config, bppsa_status status, const char *text) {
  bppsa_scan_plan *plan = NULL;
  assert_int_equal(bppsa_scan_plan_create(config, &plan), status);
  if (strstr(bppsa_last_error(), text) == NULL) {
    fail_msg("'%s' does not say '%s'", bppsa_last_error(), text);
  }
  assert_null(plan);
}

static bppsa_scan_config good(void) {
  bppsa_scan_config config = bppsa_scan_config_default();
  config.jacobians = 3;
  config.dim = 2;
  return config;
}

static void test_configurations(void **state) {
  (void)state;
  bppsa_scan_config config = good();
  bppsa_scan_plan *plan = NULL;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
  bppsa_scan_plan_destroy(plan);
  config.element = (bppsa_element)77;
  assert_refused(&config, BPPSA_ERR_ARGUMENT, "scan plan: unknown element 77");
  config = good();
  config.batch = 0;
  assert_refused(&config, BPPSA_ERR_ARGUMENT, "batch 0 and chunks 0, expected at least 1 and 0");
  config = good();
  config.method.chunks = -3;
  assert_refused(&config, BPPSA_ERR_ARGUMENT, "batch 1 and chunks -3, expected at least 1 and 0");
  config = good();
  config.dtype = BPPSA_I64;
  assert_refused(&config, BPPSA_ERR_UNSUPPORTED, "dtype i64, expected f32 or f64");
  config = good();
  config.jacobians = INT64_MAX / 4;
  assert_refused(&config, BPPSA_ERR_ARGUMENT, "Jacobians, expected 0 .. 2^61");
  config = good();
  config.jacobians = INT64_C(1) << 40;
  config.dim = 128; /* 4 n dim³ is about 2^63 */
  assert_refused(&config, BPPSA_ERR_ARGUMENT, "scan plan: 1099511627776 Jacobians of size 128: the counts do not fit in 64 bits");
  config = good();
  config.element = BPPSA_ELEMENT_RECURRENT;
  config.matrices = 0;
  assert_refused(&config, BPPSA_ERR_ARGUMENT, "0 shared matrices, expected at least 1");
}

static void test_sizes(void **state) {
  (void)state;
  const int64_t dims[4] = {2, 3, 2, 1};
  bppsa_scan_config config = good();
  config.dims = dims;
  config.element = BPPSA_ELEMENT_RECURRENT;
  config.matrices = 1;
  assert_refused(&config, BPPSA_ERR_ARGUMENT, "differing sizes need dense elements");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_configurations), cmocka_unit_test(test_sizes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What scans over steps pay more than BP: of recurrent networks alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "calibrate/step_product.h"

static bppsa_status measure(const char *name, bppsa_step_cost *cost) {
  bppsa_device *device = NULL;
  bppsa_network network = {.kind = NULL};
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  assert_int_equal(bppsa_network_open(name, NULL, &network), BPPSA_OK);
  bppsa_network_config config = bppsa_network_config_default(&network);
  config.batch = 2;
  config.steps.seq_len = config.steps.seq_len > 0 ? 64 : 0;
  const bppsa_status status = bppsa_step_product_measure(&network, &config, device, 1, 3, cost);
  bppsa_network_close(&network);
  bppsa_device_destroy(device);
  return status;
}

static void test_networks(void **state) {
  (void)state;
  bppsa_step_cost cost = {.scan_s = -1, .product_s = -1};
  assert_int_equal(measure("rnn", &cost), BPPSA_OK);
  assert_true(cost.scan_spread.low <= cost.scan_s && cost.scan_spread.high >= cost.scan_s);
  assert_true(cost.product_spread.low <= cost.product_s && cost.product_spread.high >= cost.product_s);
  assert_true(cost.product_s >= 0 && isfinite(cost.product_s) && cost.scan_s >= 0 && isfinite(cost.scan_s));
  cost = (bppsa_step_cost){.scan_s = -1, .product_s = -1};
  assert_int_equal(measure("lenet5", &cost), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "lenet5: no recurrent network"));
  assert_true(cost.scan_s == -1 && cost.product_s == -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_networks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

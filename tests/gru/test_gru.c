/* GRU gradients: the tests of any cell, and what a GRU refuses. */
#include "gru/gru.h"

#include <math.h>

#include "tests/support/gru_reference.h"

static const cell_reference cell = GRU_REFERENCE;

#include "tests/support/cell_tests.h"

static void test_relu_is_refused(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_recurrent_config c = small();
  bppsa_model *model = NULL;
  c.nonlinearity = BPPSA_NONLINEARITY_RELU;
  assert_int_equal(bppsa_recurrent_create(&c, &bppsa_gru_cell, device, &model), BPPSA_ERR_ARGUMENT);
  assert_null(model);
  assert_non_null(strstr(bppsa_last_error(), "expected tanh"));
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {SHARED_TESTS, cmocka_unit_test(test_relu_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

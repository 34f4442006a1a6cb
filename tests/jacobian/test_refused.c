/* Operators, patterns and products that are refused, each with the value and what was expected. */
#include <string.h>

#include "core/base/alloc.h"
#include "jacobian/csr.h"
#include "jacobian/jacobian.h"
#include "jacobian/product.h"
#include "tests/support/support.h"

static void assert_message(bppsa_status status, bppsa_status expected, const char *text) {
  assert_int_equal(status, expected);
  if (strstr(bppsa_last_error(), text) == NULL) {
    fail_msg("'%s' does not say '%s'", bppsa_last_error(), text);
  }
}

static void test_operators(void **state) {
  (void)state;
  int64_t out[3];
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_AVGPOOL2D);
  op.in[0] = op.in[1] = op.in[2] = 4;
  op.kernel[0] = op.kernel[1] = 2;
  op.dilation[1] = 2;
  assert_message(bppsa_op_shape(&op, out), BPPSA_ERR_ARGUMENT, "avgpool2d: dilation 1 x 2, expected 1 x 1");
  op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
  op.in[0] = op.out_channels = INT32_MAX;
  op.in[1] = op.in[2] = 1;
  op.kernel[0] = op.kernel[1] = 1;
  assert_message(bppsa_op_shape(&op, out), BPPSA_ERR_SHAPE, "expected at most 2^59 weights");
}

static void test_jacobians(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_jacobian *jacobian = NULL;
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
  op.kind = (bppsa_operator)99;
  assert_message(bppsa_jacobian_create(&op, NULL, false, device, &jacobian), BPPSA_ERR_ARGUMENT, "Jacobian: unknown operator 99");
  assert_null(jacobian);
  bppsa_device_destroy(device);
}

/* A factor that is known by its structure alone is spelled out, if the memory limit allows that. */
static void test_spelled_out(void **state) {
  (void)state;
  int64_t rows[65];
  int32_t columns[64];
  bppsa_csr positions = {0}, blocks = {0};
  for (int i = 0; i <= 64; ++i) {
    rows[i] = i;
    columns[i % 64] = i % 64;
  }
  const bppsa_csr diagonal = {.rows = 64, .cols = 64, .nnz = 64, .row_ptr = rows, .col = columns};
  bppsa_device *device = cpu_device(1);
  bppsa_product *product = NULL;
  bppsa_product_config config = bppsa_product_config_default();
  assert_int_equal(bppsa_csr_create(1, 1, 1, &positions), BPPSA_OK);
  positions.row_ptr[1] = 1;
  positions.col[0] = 0;
  assert_int_equal(bppsa_csr_from_blocks(1, 64, 64, &positions, &blocks), BPPSA_OK);
  config.kind = BPPSA_PRODUCT_SLOTS;
  config.memory_limit = 1000;
  assert_message(bppsa_product_create(&blocks, &diagonal, &config, device, &product), BPPSA_ERR_ARGUMENT,
                 "product: a factor with 4096 entries needs 16904 bytes, the memory limit is 1000");
  assert_null(product);
  bppsa_csr_free(&blocks);
  bppsa_device_destroy(device);
}

static void test_patterns(void **state) {
  (void)state;
  int64_t rows[4] = {0, 2, 1, 3};
  int32_t columns[3] = {0, 2, 1};
  bppsa_csr csr = {.rows = 3, .cols = 3, .nnz = 3, .row_ptr = rows, .col = columns};
  assert_message(bppsa_csr_check(&csr), BPPSA_ERR_FORMAT, "row 1: offsets 2 to 1, expected them to rise to 3 at most");
  rows[2] = 4;
  assert_message(bppsa_csr_check(&csr), BPPSA_ERR_FORMAT, "row 1: offsets 2 to 4, expected them to rise to 3 at most");
  rows[2] = 2;
  assert_int_equal(bppsa_csr_check(&csr), BPPSA_OK);
  columns[1] = 0;
  assert_message(bppsa_csr_check(&csr), BPPSA_ERR_FORMAT, "row 0: column 0, expected increasing ones from 0 to 2");
  columns[1] = 3;
  assert_message(bppsa_csr_check(&csr), BPPSA_ERR_FORMAT, "row 0: column 3, expected increasing ones from 0 to 2");
  columns[0] = -1;
  assert_message(bppsa_csr_check(&csr), BPPSA_ERR_FORMAT, "row 0: column -1, expected increasing ones from 0 to 2");
  assert_message(bppsa_csr_expand(NULL, 1), BPPSA_ERR_ARGUMENT, "NULL");
}

static void test_blocks(void **state) {
  (void)state;
  static const struct {
    int64_t groups, rows, columns;
    bppsa_status status;
    const char *text;
  } wrong[] = {{2, 4, 3, BPPSA_ERR_ARGUMENT, "2 groups of 4 and 3 channels, expected a divisor of both"},
               {0, 4, 4, BPPSA_ERR_ARGUMENT, "0 groups of 4 and 4 channels"},
               {1, INT64_MAX, 2, BPPSA_ERR_SHAPE, "do not fit in 64 bits"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    bppsa_csr positions = {0}, csr = {0};
    const int64_t live = bppsa_alloc_live();
    assert_int_equal(bppsa_csr_create(2, 2, 2, &positions), BPPSA_OK);
    const bppsa_status status = bppsa_csr_from_blocks(wrong[i].groups, wrong[i].rows, wrong[i].columns, &positions, &csr);
    assert_message(status, wrong[i].status, wrong[i].text);
    assert_int_equal(bppsa_alloc_live(), live); /* the positions were taken over */
  }
}

static void test_products(void **state) {
  (void)state;
  int64_t rows[2] = {0, 1};
  int32_t column = 0;
  const bppsa_csr csr = {.rows = 1, .cols = 1, .nnz = 1, .row_ptr = rows, .col = &column};
  bppsa_device *device = cpu_device(1);
  bppsa_product *product = NULL;
  bppsa_product_config config = bppsa_product_config_default();
  config.kind = (bppsa_product_kind)99;
  assert_message(bppsa_product_create(&csr, &csr, &config, device, &product), BPPSA_ERR_ARGUMENT, "product: unknown kind 99");
  config = bppsa_product_config_default();
  config.memory_limit = -1;
  assert_message(bppsa_product_create(&csr, &csr, &config, device, &product), BPPSA_ERR_ARGUMENT, "a negative memory limit");
  assert_null(product);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_operators),   cmocka_unit_test(test_jacobians),
                                     cmocka_unit_test(test_spelled_out), cmocka_unit_test(test_patterns),
                                     cmocka_unit_test(test_blocks),      cmocka_unit_test(test_products)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

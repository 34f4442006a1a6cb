/* Jacobians counted without making them: against those that the generators make, and for sizes that are too large to make. */
#include "core/base/philox.h"
#include "jacobian/jacobian.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

static uint64_t counter;

static int64_t below(int64_t bound) {
  return (int64_t)bppsa_random_below(12, 98, counter++, (uint64_t)bound);
}

static void test_as_made(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  static const bppsa_operator kinds[] = {
      BPPSA_OPERATOR_CONV2D, BPPSA_OPERATOR_MAXPOOL2D, BPPSA_OPERATOR_AVGPOOL2D,          BPPSA_OPERATOR_LINEAR,
      BPPSA_OPERATOR_RELU,   BPPSA_OPERATOR_FLATTEN,   BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D, BPPSA_OPERATOR_BATCHNORM2D};
  int made = 0;
  for (int i = 0; i < 3000; ++i) {
    bppsa_op op = bppsa_op_default(kinds[below(8)]);
    const bool conv = op.kind == BPPSA_OPERATOR_CONV2D;
    op.groups = conv ? 1 + below(2) : 1;
    op.in[0] = op.groups * (1 + below(3));
    op.out_channels = op.groups * (1 + below(3));
    for (int axis = 0; axis < 2; ++axis) {
      op.in[axis + 1] = 1 + below(9);
      op.kernel[axis] = 1 + below(below(4) == 0 ? 9 : 4);
      op.size[axis] = 1 + below(12);
      op.stride[axis] = 1 + below(4);
      op.dilation[axis] = op.kind == BPPSA_OPERATOR_AVGPOOL2D ? 1 : 1 + below(3);
      for (int end = 0; end < 2; ++end) {
        op.padding[2 * axis + end] = conv ? below(7) : below(op.kernel[axis] / 2 + 1);
      }
    }
    op.ceil_mode = below(2) == 0;
    int64_t out[3];
    if (bppsa_op_shape(&op, out) != BPPSA_OK) {
      continue;
    }
    ++made;
    for (int symbolic = 0; symbolic < 2; ++symbolic) {
      bppsa_jacobian *j = NULL;
      bppsa_op_size size = {0};
      assert_int_equal(bppsa_jacobian_create(&op, NULL, symbolic, device, &j), BPPSA_OK);
      assert_int_equal(bppsa_op_count(&op, &size), BPPSA_OK);
      const bppsa_csr *pattern = bppsa_jacobian_pattern(j);
      if (size.entries != pattern->nnz || size.position_rows != pattern->blocks->positions.rows ||
          size.position_entries != pattern->blocks->positions.nnz) {
        fail_msg("%s, case %d: %lld entries, %lld x %lld of positions", bppsa_op_name(&op), i, (long long)size.entries,
                 (long long)size.position_rows, (long long)size.position_entries);
      }
      bppsa_jacobian_destroy(j);
    }
  }
  assert_true(made > 1000);
  bppsa_device_destroy(device);
}

/* Too large to make, and counted all the same. */
static void test_large(void **state) {
  (void)state;
  const int64_t live = bppsa_alloc_live();
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_MAXPOOL2D);
  bppsa_op_size size;
  op.in[1] = op.in[2] = 46000;
  op.kernel[0] = op.kernel[1] = op.stride[0] = op.stride[1] = 2;
  assert_int_equal(bppsa_op_count(&op, &size), BPPSA_OK);
  assert_int_equal(size.entries, (int64_t)46000 * 46000);
  op = bppsa_op_default(BPPSA_OPERATOR_LINEAR);
  op.in[0] = op.out_channels = INT32_MAX;
  assert_int_equal(bppsa_op_count(&op, &size), BPPSA_OK);
  assert_int_equal(size.entries, (int64_t)INT32_MAX * INT32_MAX);
  op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
  op.in[0] = op.out_channels = 1 << 20;
  op.in[1] = op.in[2] = 32;
  op.kernel[0] = op.kernel[1] = 3;
  op.padding[0] = op.padding[1] = op.padding[2] = op.padding[3] = 1;
  assert_int_equal(bppsa_op_count(&op, &size), BPPSA_OK);
  assert_int_equal(size.position_entries, 94 * 94);
  assert_int_equal(size.entries, ((int64_t)94 * 94) << 40);
  op.in[1] = op.in[2] = 40; /* 2^40 pairs of channels, 118 x 118 entries each: still within 64 bits */
  assert_int_equal(bppsa_op_count(&op, &size), BPPSA_OK);
  op = bppsa_op_default(BPPSA_OPERATOR_CONV2D); /* kernels as large as the image */
  op.in[0] = op.out_channels = 1 << 10;
  op.in[1] = op.in[2] = 1400;
  op.kernel[0] = op.kernel[1] = 1399;
  op.padding[0] = op.padding[1] = op.padding[2] = op.padding[3] = 699;
  size = (bppsa_op_size){.entries = 7};
  assert_int_equal(bppsa_op_count(&op, &size), BPPSA_OK);
  assert_true(size.entries > 1000000);
  op.in[1] = 0;
  size.entries = 7;
  assert_int_equal(bppsa_op_count(&op, &size), BPPSA_ERR_SHAPE);
  assert_int_equal(size.entries, 7); /* untouched */
  assert_int_equal(bppsa_alloc_live(), live);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_made), cmocka_unit_test(test_large)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* An operator's transposed Jacobian as a matrix: values, entries that are left out, files, memory. */
#include <unistd.h>

#include "jacobian/file.h"
#include "runs/jacobian_matrix.h"
#include "tests/core/helpers.h"

static bppsa_jacobian_request request_of(bppsa_operator kind, int64_t c, int64_t h, int64_t w) {
  bppsa_jacobian_request request = {.op = bppsa_op_default(kind), .dtype = BPPSA_F64, .memory = (int64_t)1 << 30};
  request.op.in[0] = c;
  request.op.in[1] = h;
  request.op.in[2] = w;
  return request;
}

static bppsa_device *make_device(void) {
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  return device;
}

/* Without operands every value is 1; both files hold the matrix. */
static void test_pattern(void **state) {
  (void)state;
  bppsa_device *device = make_device();
  bppsa_jacobian_request request = request_of(BPPSA_OPERATOR_CONV2D, 1, 4, 4);
  bppsa_jacobian_matrix matrix;
  bppsa_csr_matrix read;
  bppsa_text text = {0};
  request.op.out_channels = 2;
  request.op.kernel[0] = request.op.kernel[1] = 3;
  assert_int_equal(bppsa_jacobian_matrix_create(&request, device, &matrix), BPPSA_OK);
  assert_int_equal(matrix.csr->rows, 16);
  assert_int_equal(matrix.csr->cols, 8);
  assert_int_equal(matrix.csr->nnz, 2 * 9 * 4);
  for (int64_t i = 0; i < matrix.csr->nnz; ++i) {
    assert_true(((const double *)matrix.values)[i] == 1);
  }
  assert_int_equal(bppsa_jacobian_picture(&matrix, "models_j.npz", "models_j.png"), BPPSA_OK);
  assert_int_equal(bppsa_csr_load("models_j.npz", &read), BPPSA_OK);
  assert_int_equal(read.csr.nnz, matrix.csr->nnz);
  bppsa_csr_matrix_free(&read);
  assert_int_equal(access("models_j.png", F_OK), 0);
  bppsa_jacobian_matrix_text(&matrix, &text);
  assert_non_null(strstr(text.text, "conv2d [1, 4, 4] to [2, 2, 2], transposed, f64, all values 1\n"));
  bppsa_text_free(&text);
  bppsa_jacobian_matrix_free(&matrix);
  bppsa_device_destroy(device);
}

/* Entries whose value is 0 at the input go with `compact`. */
static void test_compact(void **state) {
  (void)state;
  const double x[4] = {1, -1, 2, -2};
  bppsa_device *device = make_device();
  bppsa_jacobian_request request = request_of(BPPSA_OPERATOR_RELU, 1, 2, 2);
  bppsa_jacobian_matrix matrix;
  request.filled = true;
  request.operands.input = x;
  assert_int_equal(bppsa_jacobian_matrix_create(&request, device, &matrix), BPPSA_OK);
  assert_int_equal(matrix.csr->nnz, 4);
  assert_true(((const double *)matrix.values)[1] == 0);
  bppsa_jacobian_matrix_free(&matrix);
  request.compact = true;
  assert_int_equal(bppsa_jacobian_matrix_create(&request, device, &matrix), BPPSA_OK);
  assert_int_equal(matrix.csr->nnz, 2);
  bppsa_jacobian_matrix_free(&matrix);
  bppsa_device_destroy(device);
}

static void test_memory(void **state) {
  (void)state;
  bppsa_device *device = make_device();
  bppsa_jacobian_request request = request_of(BPPSA_OPERATOR_RELU, 16, 16, 16);
  bppsa_jacobian_matrix matrix;
  request.memory = 1000;
  assert_int_equal(bppsa_jacobian_matrix_create(&request, device, &matrix), BPPSA_ERR_ARGUMENT);
  assert_message("relu: the matrix needs 81920 bytes, expected at most 3/4 of the 1000 available");
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pattern), cmocka_unit_test(test_compact),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

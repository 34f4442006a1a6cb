/* What files say about a Jacobian: sizes, operands, masks, and files that do not fit. */
#include "core/files/npy.h"
#include "core/files/safetensors.h"
#include "gru/gru.h"
#include "runs/jacobian_files.h"
#include "tests/core/helpers.h"

static void put(const char *path, bppsa_dtype dtype, int32_t ndim, const int64_t *shape, const void *values) {
  const bppsa_view view = bppsa_view_make((void *)(uintptr_t)values, dtype, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
}

static bppsa_jacobian_request request_of(bppsa_operator kind) {
  bppsa_jacobian_request request = {.op = bppsa_op_default(kind), .dtype = BPPSA_F64, .memory = (int64_t)1 << 30};
  request.op.out_channels = 1;
  request.op.kernel[0] = request.op.kernel[1] = 1;
  return request;
}

/* C, H, W of an input that has them all, fewer, or a batch of one. */
static void test_input_shape(void **state) {
  (void)state;
  static const struct {
    int32_t ndim;
    int64_t shape[5], expected[3]; /* expected 0: refused */
  } cases[] = {{1, {4}, {4, 1, 1}},          {2, {2, 3}, {2, 3, 1}}, {3, {2, 3, 2}, {2, 3, 2}},
               {4, {1, 3, 2, 2}, {3, 2, 2}}, {4, {2, 3, 1, 1}, {0}}, {5, {1, 1, 1, 1, 1}, {0}}};
  const double values[24] = {0};
  const bppsa_jacobian_files files = {.input = "files_x.npy"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_RELU);
    put("files_x.npy", BPPSA_F64, cases[i].ndim, cases[i].shape, values);
    const bppsa_status status = bppsa_jacobian_input_shape(&files, &op);
    if (cases[i].expected[0] == 0) {
      assert_error(status, BPPSA_ERR_ARGUMENT, "expected one sample [C,H,W]");
    } else {
      assert_int_equal(status, BPPSA_OK);
      assert_memory_equal(op.in, cases[i].expected, sizeof op.in);
    }
  }
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_RELU);
  assert_error(bppsa_jacobian_input_shape(&(bppsa_jacobian_files){.input = NULL}, &op), BPPSA_ERR_ARGUMENT,
               "--in-shape: missing");
  assert_int_equal(bppsa_jacobian_input_shape(&(bppsa_jacobian_files){.input = "nowhere.npy"}, &op), BPPSA_ERR_ARGUMENT);
}

/* A cell whose table has no step has no Jacobian. */
static void test_no_step(void **state) {
  (void)state;
  const bppsa_jacobian_files files = {.input = "nowhere.npy", .weights = "nowhere.safetensors"};
  bppsa_jacobian_request request = request_of(BPPSA_OPERATOR_STEP);
  bppsa_jacobian_arrays arrays = {.count = 0};
  assert_error(bppsa_jacobian_load(&files, &request, &arrays), BPPSA_ERR_UNSUPPORTED, "the cell has no step");
  assert_int_equal(arrays.count, 0);
}

/* Output channels and kernel come from the weights where nothing else gives them. */
static void test_weight_shape(void **state) {
  (void)state;
  const double values[30] = {0};
  const bppsa_jacobian_files files = {.weights = "files_w.npy"}, none = {.weights = NULL};
  bppsa_op conv = bppsa_op_default(BPPSA_OPERATOR_CONV2D), linear = bppsa_op_default(BPPSA_OPERATOR_LINEAR);
  put("files_w.npy", BPPSA_F64, 4, (int64_t[]){5, 1, 2, 3}, values);
  assert_int_equal(bppsa_jacobian_weight_shape(&files, false, false, &conv), BPPSA_OK);
  assert_true(conv.out_channels == 5 && conv.kernel[0] == 2 && conv.kernel[1] == 3);
  conv.out_channels = 7;
  conv.kernel[0] = conv.kernel[1] = 4;
  assert_int_equal(bppsa_jacobian_weight_shape(&files, true, true, &conv), BPPSA_OK);
  assert_true(conv.out_channels == 7 && conv.kernel[0] == 4 && conv.kernel[1] == 4);
  assert_error(bppsa_jacobian_weight_shape(&files, false, false, &linear), BPPSA_ERR_ARGUMENT,
               "--weights: files_w.npy: 4 dimensions, expected [Co,C*H*W]");
  assert_int_equal(bppsa_jacobian_weight_shape(&none, true, true, &conv), BPPSA_OK);
  assert_error(bppsa_jacobian_weight_shape(&none, true, false, &conv), BPPSA_ERR_ARGUMENT, "--kernel: missing");
  assert_error(bppsa_jacobian_weight_shape(&none, false, true, &conv), BPPSA_ERR_ARGUMENT, "--out-channels: missing");
}

/* Operands are converted to the request's dtype; a mask is a byte a weight, and -0.0 is 0. */
static void test_operands(void **state) {
  (void)state;
  const double w[4] = {2, -3, 5, 7}, mask[4] = {-0.0, 1, 0, -1};
  const bppsa_jacobian_files files = {.weights = "files_w.npy", .mask = "files_m.npy"};
  bppsa_jacobian_request request = request_of(BPPSA_OPERATOR_LINEAR);
  bppsa_jacobian_arrays arrays = {.count = 0};
  request.dtype = BPPSA_F32;
  request.op.in[0] = 4;
  put("files_w.npy", BPPSA_F64, 2, (int64_t[]){1, 4}, w);
  put("files_m.npy", BPPSA_F64, 1, (int64_t[]){4}, mask);
  assert_int_equal(bppsa_jacobian_load(&files, &request, &arrays), BPPSA_OK);
  assert_true(request.filled);
  assert_memory_equal(request.operands.weights, ((const float[]){2, -3, 5, 7}), 4 * sizeof(float));
  assert_memory_equal(request.mask, ((const uint8_t[]){0, 1, 0, 1}), 4);
  bppsa_jacobian_arrays_free(&arrays);
  bppsa_jacobian_arrays_free(&arrays);
  const uint8_t bits[4] = {1, 0, 0, 1};
  request.op.in[0] = 4;
  put("files_m.npy", BPPSA_BOOL, 1, (int64_t[]){4}, bits);
  assert_int_equal(bppsa_jacobian_load(&files, &request, &arrays), BPPSA_OK);
  assert_memory_equal(request.mask, bits, 4);
  bppsa_jacobian_arrays_free(&arrays);
  /* values without weights: only where they do not depend on an input */
  bppsa_jacobian_request relu = request_of(BPPSA_OPERATOR_RELU), flatten = request_of(BPPSA_OPERATOR_FLATTEN);
  relu.op.in[0] = flatten.op.in[0] = 3;
  assert_int_equal(bppsa_jacobian_load(&(bppsa_jacobian_files){.input = NULL}, &relu, &arrays), BPPSA_OK);
  assert_int_equal(bppsa_jacobian_load(&(bppsa_jacobian_files){.input = NULL}, &flatten, &arrays), BPPSA_OK);
  assert_false(relu.filled);
  assert_true(flatten.filled);
}

static void test_refusals(void **state) {
  (void)state;
  const int64_t labels[4] = {((int64_t)1 << 53) + 1};
  const double values[6] = {0};
  bppsa_jacobian_request request = request_of(BPPSA_OPERATOR_LINEAR);
  bppsa_jacobian_arrays arrays = {.count = -1};
  bppsa_jacobian_files files = {.weights = "files_w.npy"};
  request.op.in[0] = 4;
  put("files_w.npy", BPPSA_I64, 2, (int64_t[]){1, 4}, labels);
  assert_error(bppsa_jacobian_load(&files, &request, &arrays), BPPSA_ERR_FORMAT,
               "files_w.npy: i64 9007199254740993 at [0, 0], expected a number that f64 holds");
  put("files_w.npy", BPPSA_F64, 2, (int64_t[]){1, 6}, values);
  assert_error(bppsa_jacobian_load(&files, &request, &arrays), BPPSA_ERR_ARGUMENT,
               "--weights: files_w.npy: shape [1, 6], expected 4 values");
  put("files_w.npy", BPPSA_F64, 2, (int64_t[]){1, 4}, values);
  files.mask = "files_m.npy";
  put("files_m.npy", BPPSA_F64, 1, (int64_t[]){6}, values);
  assert_error(bppsa_jacobian_load(&files, &request, &arrays), BPPSA_ERR_ARGUMENT,
               "--mask: files_m.npy: 6 values, expected 4, one for each weight");
  assert_int_equal(arrays.count, -1);
  assert_null(request.operands.weights); /* untouched */
}

/* ---- a cell's step ---- */

static const bppsa_jacobian_files step_files = {.input = "files_x.npy", .weights = "files_s.safetensors"};

/* A GRU with H = 2 and I = 3; `rows` of W_hh. */
static void put_cell(int64_t rows) {
  double values[18];
  for (int i = 0; i < 18; ++i) {
    values[i] = 0.1 * (i + 1);
  }
  const bppsa_named_view tensors[] = {{"gru.weight_hh_l0", bppsa_view_make(values, BPPSA_F64, 2, (const int64_t[]){rows, 2})},
                                      {"gru.weight_ih_l0", bppsa_view_make(values, BPPSA_F64, 2, (const int64_t[]){6, 3})},
                                      {"gru.bias_ih_l0", bppsa_view_make(values, BPPSA_F64, 1, (const int64_t[]){6})},
                                      {"gru.bias_hh_l0", bppsa_view_make(values, BPPSA_F64, 1, (const int64_t[]){6})}};
  assert_int_equal(bppsa_safetensors_save("files_s.safetensors", 4, tensors, 0, NULL), BPPSA_OK);
  put("files_x.npy", BPPSA_F64, 1, (int64_t[]){3}, values);
}

static bppsa_jacobian_request step_request(void) {
  bppsa_jacobian_request request = request_of(BPPSA_OPERATOR_STEP);
  request.op.step = bppsa_gru_cell.step;
  return request;
}

static void test_step(void **state) {
  (void)state;
  bppsa_jacobian_request request = step_request();
  bppsa_jacobian_arrays arrays;
  put_cell(6);
  assert_int_equal(bppsa_jacobian_load(&step_files, &request, &arrays), BPPSA_OK);
  assert_true(request.filled && request.op.in[0] == 2 && request.operands.inputs == 3);
  assert_true(((const double *)request.operands.state)[0] == 0 && ((const double *)request.operands.state)[1] == 0);
  assert_true(((const double *)request.operands.weights)[3] == 0.4);
  bppsa_jacobian_arrays_free(&arrays);
  request = step_request();
  put_cell(4);
  assert_error(bppsa_jacobian_load(&step_files, &request, &arrays), BPPSA_ERR_ARGUMENT,
               "files_s.safetensors: gru.weight_hh_l0 has another shape, expected [3H,H]");
  const double one = 1;
  const bppsa_named_view other = {"rnn.weight_hh_l0",
                                  bppsa_view_make((void *)(uintptr_t)&one, BPPSA_F64, 2, (const int64_t[]){1, 1})};
  assert_int_equal(bppsa_safetensors_save("files_s.safetensors", 1, &other, 0, NULL), BPPSA_OK);
  assert_error(bppsa_jacobian_load(&step_files, &request, &arrays), BPPSA_ERR_ARGUMENT,
               "gru.weight_hh_l0 missing, expected weights with PyTorch's names");
}

static bppsa_status load_all(void *argument) {
  bppsa_jacobian_request step = step_request(), linear = request_of(BPPSA_OPERATOR_LINEAR);
  bppsa_jacobian_arrays arrays;
  (void)argument;
  BPPSA_TRY(bppsa_jacobian_load(&step_files, &step, &arrays));
  bppsa_jacobian_arrays_free(&arrays);
  linear.op.in[0] = 4;
  const bppsa_jacobian_files files = {.weights = "files_w.npy", .mask = "files_m.npy"};
  BPPSA_TRY(bppsa_jacobian_load(&files, &linear, &arrays));
  bppsa_jacobian_arrays_free(&arrays);
  return BPPSA_OK;
}

static void test_memory(void **state) {
  (void)state;
  const double values[4] = {1, 0, 1, 1};
  put_cell(6);
  put("files_w.npy", BPPSA_F64, 2, (int64_t[]){1, 4}, values);
  put("files_m.npy", BPPSA_F64, 1, (int64_t[]){4}, values);
  assert_true(walk_allocations(load_all, NULL) > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_input_shape),  cmocka_unit_test(test_no_step),
                                     cmocka_unit_test(test_weight_shape), cmocka_unit_test(test_operands),
                                     cmocka_unit_test(test_refusals),     cmocka_unit_test(test_step),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

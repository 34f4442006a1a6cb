/* NaN, infinities and ties through functions and pools: PyTorch 1.13's own numbers, by BP and by the scan. BPPSA_TEST_DEVICE
 * names the device. */
#include "tests/cnn/problems.h"

enum { MOST = 25 };

/* Equal, both NaN, or a zero of either sign. */
static void assert_number(double got, double expected) {
  if (!(got == expected || (isnan(got) && isnan(expected)) || fabs(got - expected) < 1e-15)) {
    fail_msg("found %g, expected %g", got, expected);
  }
}

/* Checks the input's gradient of layers in front of a head of one class with the weights 1, 2, .. (or all 1). y: the output of
 * the last layer. */
static void check(const char *text, const double *x, int64_t size, bool counting, const double *y, int64_t out,
                  const double *dx) {
  bppsa_device *device = test_device(1);
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_parse("chain", text, (int64_t)strlen(text), &network), BPPSA_OK);
  for (int64_t levels = -1; levels <= 1; ++levels) { /* BP, linear, blelloch */
    bppsa_cnn_config config = bppsa_cnn_config_default();
    config.batch = 1;
    config.dtype = BPPSA_F64;
    config.input_gradients = true;
    config.method.backward = levels < 0 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN;
    config.method.scan.algorithm = levels == 0 ? BPPSA_SCAN_LINEAR : BPPSA_SCAN_BLELLOCH;
    bppsa_model *model = NULL;
    assert_int_equal(bppsa_cnn_create(&network, &config, device, &model), BPPSA_OK);
    for (int64_t k = 0; k < out; ++k) {
      bppsa_view_set(&model->parameters[0].value, k, counting ? (double)(k + 1) : 1);
    }
    assert_int_equal(bppsa_model_push(model), BPPSA_OK);
    double copy[MOST], one = 1;
    memcpy(copy, x, (size_t)size * sizeof *x);
    inputs held = put_inputs(&(problem){.network = network, .batch = 1, .x = copy, .seed = &one}, BPPSA_F64, device);
    bppsa_view logits, view;
    run_model(model, &held, &logits);
    assert_int_equal(bppsa_cnn_activation(model, network.count - 2, &view), BPPSA_OK);
    double *values = widened(device, &view);
    for (int64_t k = 0; k < out; ++k) {
      assert_number(values[k], y[k]);
    }
    bppsa_free(values);
    assert_int_equal(model->ops->input_gradients(model, &view, NULL), BPPSA_OK);
    values = widened(device, &view);
    for (int64_t k = 0; k < size; ++k) {
      assert_number(values[k], dx[k]);
    }
    bppsa_free(values);
    bppsa_nonfinite where;
    assert_true(model->ops->find_nonfinite(model, &where));
    assert_string_equal(where.what, "input");
    bppsa_model_destroy(model);
    drop_inputs(&held);
  }
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

#define HEAD "{\"name\": \"h\", \"op\": \"linear\", \"out\": 1, \"bias\": false}]}"
#define FUNCTION(op) "{\"input\": [7, 1, 1], \"layers\": [{\"name\": \"f\", \"op\": \"" op "\"}, " HEAD

static void test_functions(void **state) {
  (void)state;
  const double x[7] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 2, -2};
  const double relu[7] = {NAN, INFINITY, 0, 0, 0, 2, 0}, relu_slope[7] = {1, 1, 0, 0, 0, 1, 0};
  const double leaky[7] = {NAN, INFINITY, -INFINITY, 0, 0, 2, -0.02}, leaky_slope[7] = {0.01, 1, 0.01, 0.01, 0.01, 1, 0.01};
  const double tanhs[7] = {NAN, 1, -1, 0, 0, 0.9640275800758169, -0.9640275800758169};
  const double tanh_slope[7] = {NAN, 0, 0, 1, 1, 0.07065082485316443, 0.07065082485316443};
  const double sigmoid[7] = {NAN, 1, 0, 0.5, 0.5, 0.8807970779778823, 0.11920292202211755};
  const double sigmoid_slope[7] = {NAN, 0, 0, 0.25, 0.25, 0.10499358540350662, 0.1049935854035065};
  check(FUNCTION("relu"), x, 7, false, relu, 7, relu_slope);
  check(FUNCTION("leaky_relu"), x, 7, false, leaky, 7, leaky_slope);
  check(FUNCTION("tanh"), x, 7, false, tanhs, 7, tanh_slope);
  check(FUNCTION("sigmoid"), x, 7, false, sigmoid, 7, sigmoid_slope);
  const double relu6[7] = {NAN, 6, 0, 0, 0, 2, 0}, relu6_slope[7] = {0, 0, 0, 0, 0, 1, 0};
  const double hard[7] = {NAN, 1, 0, 0.5, 0.5, 5.0 / 6, 1.0 / 6}, t = 1.0 / 6, hard_slope[7] = {0, 0, 0, t, t, t, t};
  const double swish[7] = {NAN, INFINITY, NAN, 0, 0, 10.0 / 6, -2.0 / 6};
  const double swish_slope[7] = {NAN, 1, 0, 0.5, 0.5, 7.0 / 6, -1.0 / 6};
  const double silu[7] = {NAN, INFINITY, NAN, 0, 0, 1.7615941559557646, -0.2384058440442351};
  const double silu_slope[7] = {NAN, NAN, NAN, 0.5, 0.5, 1.0907842487848955, -0.0907842487848955};
  const double gelu[7] = {NAN, INFINITY, NAN, 0, 0, 1.9544997361036416, -0.04550026389635842};
  const double gelu_slope[7] = {NAN, NAN, NAN, 0.5, 0.5, 1.085231801078197, -0.08523180107819692};
  check(FUNCTION("relu6"), x, 7, false, relu6, 7, relu6_slope);
  check(FUNCTION("hardsigmoid"), x, 7, false, hard, 7, hard_slope);
  check(FUNCTION("hardswish"), x, 7, false, swish, 7, swish_slope);
  check(FUNCTION("silu"), x, 7, false, silu, 7, silu_slope);
  check(FUNCTION("gelu"), x, 7, false, gelu, 7, gelu_slope);
}

/* ReLU and an overlapping pool: the first of equal values, the last NaN. */
static void test_pools(void **state) {
  (void)state;
  const double x[16] = {1, 1, -1, NAN, 1, NAN, INFINITY, -INFINITY, -2, -0.0, 0, INFINITY, 3, 3, -5, NAN};
  const double y[9] = {NAN, NAN, NAN, NAN, NAN, INFINITY, 3, 3, NAN};
  const double dx[16] = {0, 0, 0, 3, 0, 12, 6, 0, 0, 0, 0, 0, 7, 8, 0, 9};
  check("{\"input\": [1, 4, 4], \"layers\": [{\"name\": \"r\", \"op\": \"relu\"}, {\"name\": \"p\", \"op\": \"maxpool2d\", "
        "\"kernel\": [2, 2], \"stride\": [1, 1]}, " HEAD,
        x, 16, true, y, 9, dx);
  const double ties[16] = {2, 2, NAN, NAN, 2, 2, 1, NAN, 5, 1, 0, 0, 1, 5, 0, 0}; /* windows beside each other: the fast path */
  const double ties_y[4] = {2, NAN, 5, 0}, ties_dx[16] = {1, 0, 0, 0, 0, 0, 0, 2, 3, 0, 4, 0, 0, 0, 0, 0};
  check("{\"input\": [1, 4, 4], \"layers\": [{\"name\": \"p\", \"op\": \"maxpool2d\", \"kernel\": [2, 2]}, " HEAD, ties, 16, true,
        ties_y, 4, ties_dx);
  const double odd[25] = {1, 2, 3, 4, 9, 5, 6, 7, 8, 9, 4, 3,  2,
                          1, 9, 0, 0, 0, 9, 9, 9, 9, 9, 9, NAN}; /* no window reads the rim */
  const double odd_y[4] = {6, 8, 4, 9};
  const double odd_dx[25] = {0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0};
  check("{\"input\": [1, 5, 5], \"layers\": [{\"name\": \"p\", \"op\": \"maxpool2d\", \"kernel\": [2, 2]}, " HEAD, odd, 25, true,
        odd_y, 4, odd_dx);
  const double means[4] = {1, NAN, INFINITY, 2}, mean_y[1] = {NAN}, mean_dx[4] = {0.25, 0.25, 0.25, 0.25};
  check("{\"input\": [1, 2, 2], \"layers\": [{\"name\": \"p\", \"op\": \"avgpool2d\", \"kernel\": [2, 2]}, " HEAD, means, 4,
        false, mean_y, 1, mean_dx);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_functions), cmocka_unit_test(test_pools)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

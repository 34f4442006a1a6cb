/* LSTM gradients: the tests of any cell, and what an LSTM refuses. */
#include "lstm/lstm.h"

#include <math.h>

#include "tests/support/lstm_reference.h"

static const cell_reference cell = LSTM_REFERENCE;

#include "tests/support/cell_tests.h"

static void test_relu_is_refused(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_recurrent_config c = small();
  bppsa_model *model = NULL;
  c.nonlinearity = BPPSA_NONLINEARITY_RELU;
  assert_int_equal(bppsa_recurrent_create(&c, &bppsa_lstm_cell, device, &model), BPPSA_ERR_ARGUMENT);
  assert_null(model);
  assert_non_null(strstr(bppsa_last_error(), "expected tanh"));
  bppsa_device_destroy(device);
}

/* The gradients of one method in one tensor after the other: all parameters', the input's, the initial states'. */
static bppsa_view tensor_of(const run *r, int64_t index) {
  bppsa_view dx, dh0;
  if (index < r->model->parameter_count) {
    return r->model->parameters[index].gradient;
  }
  assert_int_equal(r->model->ops->input_gradients(r->model, &dx, &dh0), BPPSA_OK);
  return index == r->model->parameter_count ? dx : dh0;
}

/* Long products that grow, vanish or cancel: W_hh is `scale` times an orthogonal matrix in each gate, and the forget gate is opened
 * or closed by its bias, so that c keeps what h loses. All methods have the same states, and must have BP's gradients. */
static void check_hard(const bppsa_device *device, double scale, double forget, bppsa_dtype dtype, uint64_t seed) {
  bppsa_recurrent_config c = small();
  c.seq_len = 150;
  c.batch = 3;
  c.hidden = 6;
  c.loss_all = seed % 2 == 0;
  c.dtype = dtype;
  problem p = make_problem(&c, true, seed);
  for (int64_t i = 0; i < p.sizes[1]; ++i) {
    p.w[1][i] *= scale;
  }
  for (int64_t j = 0; j < c.hidden; ++j) {
    p.w[2][c.hidden + j] += forget;
  }
  const bppsa_recurrent_config bp = with_method(&c, 1);
  run exact = run_model(&p, &bp, device);
  for (size_t m = 2; m < METHODS; ++m) {
    const bppsa_recurrent_config one = with_method(&c, m);
    run r = run_model(&p, &one, device);
    for (int64_t i = 0; i < p.count + 2; ++i) {
      const bppsa_view got = tensor_of(&r, i), view = tensor_of(&exact, i);
      const int64_t count = bppsa_view_count(&view);
      double *expected = zeros(count);
      for (int64_t k = 0; k < count; ++k) {
        expected[k] = bppsa_view_get(&view, k);
        assert_true(isfinite(expected[k]));
      }
      const double error = residual(dtype, got.data, expected, count, sqrt((double)c.seq_len));
      if (!(error < 30)) {
        fail_msg("scale %g, forget %g, dtype %d, method %d, tensor %d: residual %g", scale, forget, (int)dtype, (int)m, (int)i,
                 error);
      }
      bppsa_free(expected);
    }
    free_run(&r);
  }
  free_run(&exact);
  free_problem(&p);
}

static void test_growth_and_cancellation(void **state) {
  (void)state;
  static const double scales[] = {0.01, 1, 3, 5}, biases[] = {-8, 0, 8};
  bppsa_device *device = cpu_device(2);
  uint64_t seed = 1;
  for (size_t s = 0; s < sizeof scales / sizeof scales[0]; ++s) {
    for (size_t b = 0; b < sizeof biases / sizeof biases[0]; ++b) {
      for (int d = 0; d < 2; ++d, ++seed) {
        check_hard(device, scales[s], biases[b], d == 0 ? BPPSA_F32 : BPPSA_F64, seed);
      }
    }
  }
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {SHARED_TESTS, cmocka_unit_test(test_relu_is_refused),
                                     cmocka_unit_test(test_growth_and_cancellation)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

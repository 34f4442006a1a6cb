/* RNN gradients: the tests of any cell, a long memory, and the architecture told from weights. */
#include <math.h>

#include "rnn/rnn.h"
#include "tests/support/rnn_reference.h"

static const cell_reference cell = RNN_REFERENCE;

#include "tests/support/cell_tests.h"

/* ‖got - ref‖ / ‖ref‖ < 2e-5 for every tensor after 10 000 steps through an orthogonal W_hh. The weights and inputs are
 * small, so that the hidden states stay near 0, where tanh has slope 1: nothing vanishes, and an approximation whose slope is off
 * by an ulp shows. */
static void test_long_memory(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  bppsa_recurrent_config config = small();
  config.seq_len = 10000;
  config.batch = 4;
  problem p = make_problem(&config, true, 91);
  const int64_t small_tensors[] = {0, 2, 3};
  for (size_t i = 0; i < 3; ++i) {
    const int64_t tensor = small_tensors[i];
    for (int64_t j = 0; j < p.sizes[tensor]; ++j) {
      p.w[tensor][j] *= i == 0 ? 1e-3 : 1e-5;
    }
    bppsa_free(rounded(config.dtype, p.w[tensor], p.sizes[tensor]));
  }
  for (int64_t i = 0; i < config.batch * config.hidden; ++i) {
    p.h0[i] = (double)(float)(0.02 * p.h0[i]);
  }
  reference(&p);
  double first = 0, last = 0;
  for (int64_t i = 0; i < config.batch; ++i) {
    first += fabs(p.dx[i]);
    last += fabs(p.dx[(config.seq_len - 1) * config.batch + i]);
  }
  assert_true(first > 0.01 * last); /* the memory is long */
  for (size_t m = 0; m < METHODS; ++m) {
    const bppsa_recurrent_config c = with_method(&config, m);
    run r = run_model(&p, &c, device);
    for (int64_t i = 0; i < p.count; ++i) {
      const double error = residual(BPPSA_F32, r.model->parameters[i].gradient.data, p.dw[i], p.sizes[i], 1) * 0x1p-23;
      if (!(error < 2e-5)) {
        fail_msg("method %zu, %s: relative error %g", m, r.model->parameters[i].name, error);
      }
    }
    bppsa_view dx, dh0;
    assert_int_equal(r.model->ops->input_gradients(r.model, &dx, &dh0), BPPSA_OK);
    assert_true(residual(BPPSA_F32, dx.data, p.dx, bppsa_view_count(&dx), 1) * 0x1p-23 < 2e-5);
    assert_true(residual(BPPSA_F32, dh0.data, p.dh0, bppsa_view_count(&dh0), 1) * 0x1p-23 < 2e-5);
    free_run(&r);
  }
  free_problem(&p);
  bppsa_device_destroy(device);
}

static void test_infer(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_recurrent_config c = small(), found = bppsa_recurrent_config_default();
  c.hidden = 6;
  c.layers = 3;
  c.input = 2;
  c.classes = 5;
  c.dtype = BPPSA_F64;
  bppsa_model *model = NULL;
  assert_int_equal(bppsa_recurrent_create(&c, &bppsa_rnn_cell, device, &model), BPPSA_OK);
  bppsa_named_view tensors[14];
  for (int64_t i = 0; i < 14; ++i) {
    tensors[i] = (bppsa_named_view){model->parameters[i].name, model->parameters[i].value};
  }
  assert_int_equal(bppsa_recurrent_infer("W", "rnn", 1, 14, tensors, &found), BPPSA_OK);
  assert_int_equal(found.hidden, 6);
  assert_int_equal(found.layers, 3);
  assert_int_equal(found.input, 2);
  assert_int_equal(found.classes, 5);
  assert_int_equal(found.dtype, BPPSA_F64);
  assert_int_equal(bppsa_recurrent_infer("W", "rnn", 1, 13, tensors, &found), BPPSA_ERR_FORMAT);
  assert_string_equal(bppsa_last_error(), "W: tensor 'linear.bias' is missing");
  tensors[7].name = "rnn.bias"; /* instead of bias_hh_l1 */
  assert_int_equal(bppsa_recurrent_infer("W", "rnn", 1, 14, tensors, &found), BPPSA_ERR_FORMAT);
  assert_string_equal(bppsa_last_error(), "W: tensor 'rnn.bias_hh_l1' is missing, expected a network with biases");
  tensors[7].name = model->parameters[7].name;
  tensors[4].name = "rnn.weight_ih_l7"; /* a gap: layers 0 and 2 */
  assert_int_equal(bppsa_recurrent_infer("W", "rnn", 1, 14, tensors, &found), BPPSA_ERR_FORMAT);
  assert_non_null(strstr(bppsa_last_error(), "belongs to none of the 1 layers found"));
  tensors[4].name = model->parameters[4].name;
  tensors[4].view.shape[1] = 7;
  assert_int_equal(bppsa_recurrent_infer("W", "rnn", 1, 14, tensors, &found), BPPSA_ERR_SHAPE);
  assert_string_equal(bppsa_last_error(), "W: tensor 'rnn.weight_ih_l1' has shape [6, 7], expected [6, 6]");
  tensors[4].view.shape[1] = 6;
  tensors[5].view.dtype = BPPSA_F32;
  assert_int_equal(bppsa_recurrent_infer("W", "rnn", 1, 14, tensors, &found), BPPSA_ERR_UNSUPPORTED);
  tensors[5].view.dtype = BPPSA_F64;
  tensors[13].name = "rnn.weight_hr_l0";
  assert_int_equal(bppsa_recurrent_infer("W", "rnn", 1, 14, tensors, &found), BPPSA_ERR_UNSUPPORTED);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {SHARED_TESTS, cmocka_unit_test(test_long_memory), cmocka_unit_test(test_infer)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

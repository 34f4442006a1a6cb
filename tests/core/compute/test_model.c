/* Setting a model's parameters by name, and the search for values that are not finite. */
#include <math.h>

#include "core/compute/model.h"
#include "tests/core/helpers.h"

static double weight[6], bias[3], weight_gradient[6], bias_gradient[3];
static bppsa_parameter parameters[2];
static int destroyed;

static void destroy(bppsa_model *model) {
  (void)model;
  ++destroyed;
}

static const bppsa_model_ops ops = {.name = "test", .destroy = destroy};

static bppsa_model make_model(void) {
  memset(weight, 0, sizeof weight);
  memset(bias, 0, sizeof bias);
  memset(weight_gradient, 0, sizeof weight_gradient);
  memset(bias_gradient, 0, sizeof bias_gradient);
  parameters[0] = (bppsa_parameter){"rnn.weight_hh_l12", bppsa_view_make(weight, BPPSA_F64, 2, (const int64_t[]){2, 3}),
                                    bppsa_view_make(weight_gradient, BPPSA_F64, 2, (const int64_t[]){2, 3}), false};
  parameters[1] = (bppsa_parameter){"linear.bias", bppsa_view_make(bias, BPPSA_F64, 1, (const int64_t[]){3}),
                                    bppsa_view_make(bias_gradient, BPPSA_F64, 1, (const int64_t[]){3}), false};
  return (bppsa_model){.ops = &ops, .dtype = BPPSA_F64, .parameter_count = 2, .parameters = parameters, .classes = 3};
}

static void set(void **state) {
  (void)state;
  bppsa_model model = make_model();
  float w[6] = {1, 2, 3, 4, 5, 6.5f};
  double b[3] = {0.1, 0.2, 0.3};
  int64_t other[1] = {7};
  const bppsa_named_view values[] = {{"other", bppsa_view_make(other, BPPSA_I64, 0, NULL)},
                                     {"linear.bias", bppsa_view_make(b, BPPSA_F64, 1, (const int64_t[]){3})},
                                     {"rnn.weight_hh_l12", bppsa_view_make(w, BPPSA_F32, 2, (const int64_t[]){2, 3})}};
  assert_int_equal(bppsa_model_set(&model, "w.safetensors", 3, values), BPPSA_OK);
  assert_true(weight[5] == 6.5 && bias[0] == 0.1);
}

static void set_refused(void **state) {
  (void)state;
  bppsa_model model = make_model();
  double w[6] = {1, 2, 3, 4, 5, 6};
  const bppsa_named_view good = {"rnn.weight_hh_l12", bppsa_view_make(w, BPPSA_F64, 2, (const int64_t[]){2, 3})};
  bppsa_named_view strided = {"linear.bias", bppsa_view_make(w, BPPSA_F64, 1, (const int64_t[]){3})};
  strided.view.strides[0] = 2;
  const struct {
    bppsa_named_view second;
    bppsa_status status;
    const char *message;
  } bad[] = {
      {{"linear.bia", good.view}, BPPSA_ERR_FORMAT, "W: \"linear.bias\" is missing"},
      {{"linear.bias", bppsa_view_make(w, BPPSA_I64, 1, (const int64_t[]){3})},
       BPPSA_ERR_FORMAT,
       "dtype i64, expected f32 or f64"},
      {{"linear.bias", bppsa_view_make(w, BPPSA_F64, 1, (const int64_t[]){4})},
       BPPSA_ERR_SHAPE,
       "W: \"linear.bias\": shape [4], expected [3]"},
      {{"linear.bias", bppsa_view_make(w, BPPSA_F64, 2, (const int64_t[]){1, 3})}, BPPSA_ERR_SHAPE, "shape [1, 3], expected [3]"},
      {strided, BPPSA_ERR_UNSUPPORTED, "contiguous"}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    const bppsa_named_view values[] = {good, bad[i].second};
    assert_int_equal(bppsa_model_set(&model, "W", 2, values), bad[i].status);
    assert_message(bad[i].message);
    assert_true(weight[0] == 0.0); /* the good one is not copied either */
  }
}

/* A finite f64 value that f32 does not hold is named; one that is not finite is copied as it is. */
static void beyond_f32(void **state) {
  (void)state;
  float narrow[6] = {0};
  double w[6] = {1, 2, 3, 4, (double)INFINITY, -1e300};
  bppsa_parameter only = {"w", bppsa_view_make(narrow, BPPSA_F32, 2, (const int64_t[]){2, 3}), {0}, false};
  bppsa_model model = {.ops = &ops, .dtype = BPPSA_F32, .parameter_count = 1, .parameters = &only};
  const bppsa_named_view value = {"w", bppsa_view_make(w, BPPSA_F64, 2, (const int64_t[]){2, 3})};
  assert_int_equal(bppsa_model_set(&model, "W", 1, &value), BPPSA_ERR_FORMAT);
  assert_message("W: w: element 5 is -1e+300, beyond f32");
  assert_true(narrow[0] == 0);
  w[5] = 1e-300;
  assert_int_equal(bppsa_model_set(&model, "W", 1, &value), BPPSA_OK);
  assert_true(narrow[0] == 1 && isinf(narrow[4]) && narrow[5] == 0);
}

static void nonfinite(void **state) {
  (void)state;
  bppsa_model model = make_model();
  bppsa_nonfinite where = {0};
  assert_false(bppsa_model_parameter_nonfinite(&model, false, &where));
  assert_false(bppsa_model_parameter_nonfinite(&model, true, &where));
  assert_null(where.what);
  weight_gradient[4] = (double)INFINITY;
  bias[2] = (double)NAN;
  assert_true(bppsa_model_parameter_nonfinite(&model, true, &where));
  assert_string_equal(where.what, "gradient of");
  assert_string_equal(where.name, "rnn.weight_hh_l12");
  assert_int_equal(where.layer, 12);
  assert_int_equal(where.step, -1);
  assert_int_equal(where.sample, -1);
  assert_true(bppsa_model_parameter_nonfinite(&model, false, &where));
  assert_string_equal(where.what, "value of");
  assert_string_equal(where.name, "linear.bias");
  assert_int_equal(where.layer, -1);
}

static void lengths_refused(void **state) {
  (void)state;
  bppsa_model model = make_model();
  const bppsa_view x = bppsa_view_make(weight, BPPSA_F64, 1, (const int64_t[]){6});
  bppsa_view logits;
  assert_error(bppsa_model_forward(&model, &x, NULL, &(bppsa_spans){.lengths = (const int64_t[]){1}}, &logits),
               BPPSA_ERR_UNSUPPORTED, "test: takes no lengths of samples, expected a recurrent network that is not cut");
}

static void backward_checks(void **state) {
  (void)state;
  bppsa_model model = make_model();
  const bppsa_view seed = bppsa_view_make(weight, BPPSA_F64, 1, (const int64_t[]){6});
  assert_error(bppsa_model_backward(NULL, &seed), BPPSA_ERR_ARGUMENT, "model != NULL");
  assert_error(bppsa_model_backward(&model, NULL), BPPSA_ERR_ARGUMENT, "seed != NULL");
}

static void destruction(void **state) {
  (void)state;
  bppsa_model model = make_model();
  destroyed = 0;
  bppsa_model_destroy(NULL);
  assert_int_equal(destroyed, 0);
  bppsa_model_destroy(&model);
  assert_int_equal(destroyed, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(set),
                                     cmocka_unit_test(set_refused),
                                     cmocka_unit_test(beyond_f32),
                                     cmocka_unit_test(nonfinite),
                                     cmocka_unit_test(backward_checks),
                                     cmocka_unit_test(destruction),
                                     cmocka_unit_test(lengths_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

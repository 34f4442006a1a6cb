/* A cell that the library does not know: its gradients on the CPU, and the errors where its table has no entry. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "tests/support/invented_cell.h"
#include "tests/support/support.h"

static bppsa_device *device, *host;

static const char *const methods[] = {"auto", "bp", "scan", "linear", "blelloch", "blelloch 2", "chunked", "chunked 3"};
enum { METHODS = sizeof methods / sizeof methods[0] };

static bppsa_recurrent_config small(void) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = 11;
  c.batch = 3;
  c.input = 2;
  c.hidden = 5;
  c.layers = 2;
  c.classes = 4;
  c.dtype = BPPSA_F64;
  c.input_gradients = true;
  return c;
}

/* Σ seed ∘ logits, a loss whose gradient is the seed. */
static double loss_of(bppsa_model *model, const bppsa_view *x, const bppsa_view *seed) {
  bppsa_view logits;
  double sum = 0;
  assert_int_equal(model->ops->forward(model, x, NULL, &logits), BPPSA_OK);
  for (int64_t i = 0; i < bppsa_view_count(seed); ++i) {
    sum += bppsa_view_get(seed, i) * bppsa_view_get(&logits, i);
  }
  return sum;
}

/* The gradient of one number of an array against a central difference. */
static void check_difference(bppsa_model *model, const bppsa_view *x, const bppsa_view *seed, const bppsa_view *array, int64_t at,
                             double gradient, const char *name) {
  const double h = 1e-6, value = bppsa_view_get(array, at);
  bppsa_view_set(array, at, value + h);
  const double above = loss_of(model, x, seed);
  bppsa_view_set(array, at, value - h);
  const double below = loss_of(model, x, seed);
  bppsa_view_set(array, at, value);
  const double difference = (above - below) / (2 * h);
  if (!(fabs(difference - gradient) <= 1e-7 * (1 + fabs(difference)))) {
    fail_msg("%s[%lld]: gradient %.12g, difference %.12g", name, (long long)at, gradient, difference);
  }
}

static void check_gradients(const bppsa_recurrent_config *c) {
  bppsa_model *model = NULL;
  bppsa_view dx, logits;
  const int64_t inputs = c->seq_len * c->batch * c->input, rows = c->loss_all ? c->seq_len : 1;
  double *numbers = uniform(3, inputs, 1), *weights = uniform(4, rows * c->batch * c->classes, 1);
  assert_int_equal(bppsa_recurrent_create(c, &two_tanh, host, &model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(model, BPPSA_INIT_ORTHOGONAL, 1), BPPSA_OK);
  assert_string_equal(model->parameters[0].name, "sum.weight_ih_l0");
  const bppsa_view x = bppsa_view_make(numbers, BPPSA_F64, 3, (int64_t[]){c->seq_len, c->batch, c->input});
  const bppsa_view seed = c->loss_all ? bppsa_view_make(weights, BPPSA_F64, 3, (int64_t[]){c->seq_len, c->batch, c->classes})
                                      : bppsa_view_make(weights, BPPSA_F64, 2, (int64_t[]){c->batch, c->classes});
  assert_int_equal(model->ops->forward(model, &x, NULL, &logits), BPPSA_OK);
  assert_int_equal(model->ops->backward(model, &seed), BPPSA_OK);
  assert_int_equal(model->ops->input_gradients(model, &dx, NULL), BPPSA_OK);
  for (int64_t i = 0; i < inputs; i += 7) {
    check_difference(model, &x, &seed, &x, i, bppsa_view_get(&dx, i), "x");
  }
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    const bppsa_parameter *parameter = &model->parameters[p];
    for (int64_t i = 0; i < bppsa_view_count(&parameter->value); i += 3) {
      check_difference(model, &x, &seed, &parameter->value, i, bppsa_view_get(&parameter->gradient, i), parameter->name);
    }
  }
  bppsa_model_destroy(model);
  bppsa_free(numbers);
  bppsa_free(weights);
}

static void runs_on_the_cpu(void **state) {
  (void)state;
  static const bppsa_scan_algorithm algorithms[] = {BPPSA_SCAN_LINEAR, BPPSA_SCAN_BLELLOCH, BPPSA_SCAN_CHUNKED, BPPSA_SCAN_AUTO};
  for (int all = 0; all < 2; ++all) {
    bppsa_recurrent_config c = small();
    c.loss_all = all == 1;
    c.method.backward = BPPSA_BACKWARD_BP;
    check_gradients(&c);
    c.method.backward = BPPSA_BACKWARD_SCAN;
    for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; ++a) {
      c.method.scan.algorithm = algorithms[a];
      check_gradients(&c);
    }
  }
}

static void expect(const bppsa_recurrent_config *c, const bppsa_cell *cell, const bppsa_device *on, bppsa_status status,
                   const char *words) {
  bppsa_model *model = NULL;
  assert_int_equal(bppsa_recurrent_create(c, cell, on, &model), status);
  assert_null(model);
  assert_string_equal(bppsa_last_error(), words);
}

/* A cell without kernels does not run on a GPU, whatever its gates, size, dtype and method: neither if its table names no
 * function for them, nor if that function returns NULL. */
static const struct bppsa_cell_cuda *no_kernels(void) {
  return NULL;
}

static void has_no_kernels(void **state) {
  (void)state;
  bppsa_recurrent_config c = small();
  if (bppsa_device_get_kind(device) != BPPSA_CUDA) {
    skip();
  }
  for (int i = 0; i < 16 * METHODS; ++i) {
    bppsa_cell cell = two_tanh;
    cell.gates = i % 2 == 0 ? 2 : 3;
    c.hidden = i / 2 % 2 == 0 ? 5 : 40;
    c.dtype = i / 4 % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    cell.cuda = i / 8 % 2 == 0 ? NULL : no_kernels;
    assert_int_equal(bppsa_gradient_method_parse(methods[i / 16], &c.method), BPPSA_OK);
    expect(&c, &cell, device, BPPSA_ERR_UNSUPPORTED, "sum on a GPU: the cell has no kernels, expected device cpu");
  }
}

/* A cell with an empty table runs by no method on a CPU. */
static void has_nothing(void **state) {
  (void)state;
  static const bppsa_cell empty = {.name = "empty", .gates = 2, .matrices = 2};
  bppsa_recurrent_config c = small();
  for (int i = 0; i < 2 * METHODS; ++i) {
    c.dtype = i % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    assert_int_equal(bppsa_gradient_method_parse(methods[i / 2], &c.method), BPPSA_OK);
    expect(&c, &empty, host, BPPSA_ERR_UNSUPPORTED,
           c.dtype == BPPSA_F32
               ? "empty on a CPU: the cell has no forward pass in f32, expected an entry 'forward' in its table"
               : "empty on a CPU: the cell has no forward pass in f64, expected an entry 'forward' in its table");
  }
}

static void lacks_entries(void **state) {
  (void)state;
  bppsa_recurrent_config c = small();
  c.method = (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, bppsa_scan_method_of(BPPSA_SCAN_BLELLOCH)};
  bppsa_cell cell = two_tanh;
  c.dtype = BPPSA_F32;
  expect(&c, &cell, host, BPPSA_ERR_UNSUPPORTED,
         "sum on a CPU: the cell has no forward pass in f32, expected an entry 'forward' in its table");
  c.dtype = BPPSA_F64;
  cell.coefficients[BPPSA_F64] = NULL;
  expect(&c, &cell, host, BPPSA_ERR_UNSUPPORTED,
         "sum on a CPU: the cell has no factors of its Jacobian in f64, expected an entry 'coefficients' in its table");
  cell = two_tanh;
  cell.deltas[BPPSA_F64] = NULL;
  expect(&c, &cell, host, BPPSA_ERR_UNSUPPORTED,
         "sum on a CPU: the cell has no deltas behind a scan in f64, expected an entry 'deltas' in its table");
  cell = two_tanh;
  cell.backward[BPPSA_F64] = NULL;
  bppsa_model *model = NULL;
  assert_int_equal(bppsa_recurrent_create(&c, &cell, host, &model), BPPSA_OK); /* the scan does not need it */
  bppsa_model_destroy(model);
  c.method.backward = BPPSA_BACKWARD_BP;
  expect(&c, &cell, host, BPPSA_ERR_UNSUPPORTED,
         "sum on a CPU: the cell has no sequential backward pass in f64, expected an entry 'backward' in its table");
}

static void contradicts_itself(void **state) {
  (void)state;
  bppsa_recurrent_config c = small();
  bppsa_cell cell = two_tanh;
  cell.matrices = 3;
  expect(&c, &cell, host, BPPSA_ERR_ARGUMENT, "cell 'sum': matrices is 3, expected 1 .. 2");
  cell.gates = cell.matrices = 9;
  expect(&c, &cell, host, BPPSA_ERR_ARGUMENT, "cell 'sum': matrices is 9, expected 1 .. 8");
  cell = two_tanh;
  cell.gates = 0;
  expect(&c, &cell, host, BPPSA_ERR_ARGUMENT, "cell 'sum': gates is 0, expected 1 .. 2147483647");
  cell = two_tanh;
  cell.split_from = 3;
  expect(&c, &cell, host, BPPSA_ERR_ARGUMENT, "cell 'sum': split_from is 3, expected 0 .. 2");
  cell = two_tanh;
  cell.saved = -1;
  expect(&c, &cell, host, BPPSA_ERR_ARGUMENT, "cell 'sum': saved is -1, expected 0 .. 2147483647");
  cell = two_tanh;
  cell.name = "a name of sixteen";
  expect(&c, &cell, host, BPPSA_ERR_ARGUMENT, "cell: name 'a name of sixteen', expected 1 .. 15 characters");
  cell = two_tanh;
  c.nonlinearity = BPPSA_NONLINEARITY_RELU;
  expect(&c, &cell, host, BPPSA_ERR_ARGUMENT, "sum: nonlinearity 1, expected tanh: the cell has no other");
}

/* The architecture is inferred from weights with any number of gates. */
static void is_inferred(void **state) {
  (void)state;
  bppsa_recurrent_config c = small(), found = bppsa_recurrent_config_default();
  bppsa_model *model = NULL;
  bppsa_named_view tensors[10];
  assert_int_equal(bppsa_recurrent_create(&c, &two_tanh, host, &model), BPPSA_OK);
  assert_int_equal(model->parameter_count, 10);
  for (int64_t i = 0; i < 10; ++i) {
    tensors[i] = (bppsa_named_view){model->parameters[i].name, model->parameters[i].value};
  }
  assert_int_equal(bppsa_recurrent_infer("W", "sum", 2, 10, tensors, &found), BPPSA_OK);
  assert_true(found.hidden == c.hidden && found.layers == c.layers && found.input == c.input && found.classes == c.classes);
  tensors[1].view.shape[0] = 9;
  assert_int_equal(bppsa_recurrent_infer("W", "sum", 2, 10, tensors, &found), BPPSA_ERR_SHAPE);
  assert_string_equal(bppsa_last_error(), "W: tensor 'sum.weight_hh_l0' has shape [9, 5], expected [2H, H]");
  bppsa_model_destroy(model);
}

int main(void) {
  device = test_device(1);
  host = cpu_device(2);
  const struct CMUnitTest tests[] = {cmocka_unit_test(runs_on_the_cpu), cmocka_unit_test(has_no_kernels),
                                     cmocka_unit_test(has_nothing),     cmocka_unit_test(lacks_entries),
                                     cmocka_unit_test(is_inferred),     cmocka_unit_test(contradicts_itself)};
  const int code = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
  return code;
}

/* cuDNN's layers against the processor's sequential BP in float64, for every algorithm that takes the shape. On the SIMT machine
 * cuDNN is the stand-in of tests/simt/cudnn. BPPSA_TEST_DEVICE names the device. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "bench/rivals/rnn_cudnn.h"
#include "core/base/alloc.h"
#include "core/compute/cudnn.h"
#include "core/compute/memory.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "tests/support/invented_cell.h"
#include "tests/support/support.h"

enum { HEAD = 2 };

static bppsa_device *device, *host;

typedef struct {
  bppsa_recurrent_config config;
  const bppsa_cell *cell;
} problem;

static bppsa_model *make_model(const problem *p, bppsa_dtype dtype) {
  bppsa_recurrent_config config = p->config;
  bppsa_model *model = NULL;
  config.dtype = dtype;
  config.method.backward = BPPSA_BACKWARD_BP;
  config.input_gradients = true;
  assert_int_equal(bppsa_recurrent_create(&config, p->cell, host, &model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(model, BPPSA_INIT_ORTHOGONAL, 5), BPPSA_OK);
  return model;
}

/* values, of the host, in the device's memory */
static bppsa_view moved(const void *values, bppsa_dtype dtype, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make(NULL, dtype, ndim, shape);
  view.data = on_device(device, values, (int64_t)bppsa_view_bytes(&view));
  view.device = BPPSA_CUDA;
  return view;
}

/* The reference's gradients, with the weights rounded to the dtype of `typed`. */
static void run_reference(const problem *p, const bppsa_model *typed, bppsa_model *wide, const double *x, const double *seed) {
  const bppsa_recurrent_config *c = &p->config;
  bppsa_named_view values[64];
  for (int64_t i = 0; i < typed->parameter_count; ++i) {
    values[i] = (bppsa_named_view){typed->parameters[i].name, typed->parameters[i].value};
  }
  assert_int_equal(bppsa_model_set(wide, "test", typed->parameter_count, values), BPPSA_OK);
  const bppsa_view x_view = bppsa_view_make((void *)(uintptr_t)x, BPPSA_F64, 3, (int64_t[]){c->seq_len, c->batch, c->input});
  const int64_t all[] = {c->seq_len, c->batch, c->hidden};
  const bppsa_view seed_view =
      bppsa_view_make((void *)(uintptr_t)seed, BPPSA_F64, c->loss_all ? 3 : 2, c->loss_all ? all : all + 1);
  assert_int_equal(bppsa_recurrent_forward_layers(wide, &x_view, NULL), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_backward_layers(wide, &seed_view), BPPSA_OK);
}

/* True if cuDNN accepted a request; false if it refused the algorithm for this shape, in its own words. */
static bool accepted(bppsa_status status) {
  if (status != BPPSA_OK) {
    assert_int_equal(status, BPPSA_ERR_UNSUPPORTED);
    assert_non_null(strstr(bppsa_last_error(), "cuDNN: "));
  }
  return status == BPPSA_OK;
}

/* Makes two passes, because gradients must not add up. False if the first one is refused: cuDNN may describe an algorithm, and find
 * only then that it does not take the shape. The second pass must succeed. */
static bool make_passes(bppsa_cudnn_network *network, const bppsa_view *x, const bppsa_view *seed) {
  if (!accepted(bppsa_cudnn_forward(network, x)) || !accepted(bppsa_cudnn_backward(network, seed))) {
    return false;
  }
  assert_int_equal(bppsa_cudnn_forward(network, x), BPPSA_OK);
  assert_int_equal(bppsa_cudnn_backward(network, seed), BPPSA_OK);
  return true;
}

/* The residual of one array; of bf16, whose weights are rounded too, a tenth of the array is right as well. */
static void check_residual(const problem *p, bppsa_cudnn_algorithm algorithm, const char *name, const void *got,
                           const double *reference, int64_t count) {
  const bppsa_dtype dtype = p->config.dtype;
  const double steps = sqrt((double)p->config.seq_len), r = residual(dtype, got, reference, count, steps);
  const double bound = bppsa_cudnn_bf16(algorithm) ? 0.1 / (FLT_EPSILON * steps) : 30 * bppsa_cudnn_rounding(algorithm, dtype);
  if (!(r < bound)) {
    fail_msg("%s, %s: %s: residual %g", p->cell->name, bppsa_cudnn_algorithm_name(algorithm), name, r);
  }
}

/* The gradient of x, which every network computes. */
static void check_input_gradient(const problem *p, bppsa_cudnn_algorithm algorithm, const bppsa_cudnn_network *network,
                                 bppsa_model *wide) {
  bppsa_view expected;
  assert_int_equal(wide->ops->input_gradients(wide, &expected, NULL), BPPSA_OK);
  void *dx = bppsa_calloc(bppsa_view_count(&expected), (int64_t)sizeof(double));
  assert_non_null(dx);
  assert_int_equal(bppsa_cudnn_input_gradient(network, dx), BPPSA_OK);
  check_residual(p, algorithm, "x", dx, expected.data, bppsa_view_count(&expected));
  bppsa_free(dx);
}

/* Holds the gradients of a network's passes against the reference's, and tries requests that must be refused. */
static void check_gradients(const problem *p, bppsa_cudnn_algorithm algorithm, bppsa_cudnn_network *network, bppsa_model *typed,
                            const bppsa_model *wide, const bppsa_view *seed) {
  const bppsa_recurrent_config *c = &p->config;
  const char *prefix = p->cell->name;
  assert_int_equal(bppsa_cudnn_pull(network, prefix, typed), BPPSA_OK);
  for (int64_t i = 0; i < typed->parameter_count - HEAD; ++i) {
    const bppsa_view *got = &typed->parameters[i].gradient;
    check_residual(p, algorithm, typed->parameters[i].name, got->data, wide->parameters[i].gradient.data, bppsa_view_count(got));
  }
  assert_int_equal(bppsa_cudnn_set(network, "no", typed), BPPSA_ERR_SHAPE);
  assert_int_equal(bppsa_cudnn_forward(network, seed), c->loss_all && c->input == c->hidden ? BPPSA_OK : BPPSA_ERR_SHAPE);
}

/* True if the algorithm accepts the shape. */
static bool run(const problem *p, bppsa_cudnn_algorithm algorithm) {
  const bppsa_recurrent_config *c = &p->config;
  const int64_t xs = c->seq_len * c->batch * c->input, seeds = (c->loss_all ? c->seq_len : 1) * c->batch * c->hidden;
  const int64_t all[] = {c->seq_len, c->batch, c->hidden};
  bppsa_cudnn_network *network = NULL;
  if (!accepted(bppsa_cudnn_create(c, p->cell, algorithm, device, &network))) {
    return false;
  }
  double *x = uniform(1, xs, 1), *seed = uniform(2, seeds, 1);
  void *typed_x = rounded(c->dtype, x, xs), *typed_seed = rounded(c->dtype, seed, seeds);
  bppsa_view x_view = moved(typed_x, c->dtype, 3, (int64_t[]){c->seq_len, c->batch, c->input});
  bppsa_view seed_view = moved(typed_seed, c->dtype, c->loss_all ? 3 : 2, c->loss_all ? all : all + 1);
  bppsa_model *typed = make_model(p, c->dtype), *wide = make_model(p, BPPSA_F64);
  run_reference(p, typed, wide, x, seed);
  assert_int_equal(bppsa_cudnn_backward(network, &seed_view), BPPSA_ERR_ARGUMENT); /* no forward pass yet */
  assert_int_equal(bppsa_cudnn_set(network, p->cell->name, typed), BPPSA_OK);
  assert_int_equal(bppsa_cudnn_take(network, typed_x, typed_seed), BPPSA_OK);
  const bool took = make_passes(network, &x_view, &seed_view);
  if (took) {
    check_input_gradient(p, algorithm, network, wide);
    check_gradients(p, algorithm, network, typed, wide, &seed_view);
  }
  bppsa_memory_free(device, x_view.data);
  bppsa_memory_free(device, seed_view.data);
  bppsa_model_destroy(typed);
  bppsa_model_destroy(wide);
  bppsa_cudnn_destroy(network);
  void *const blocks[] = {x, seed, typed_x, typed_seed};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
    bppsa_free(blocks[i]);
  }
  return took;
}

static void gradients(void **state) {
  (void)state;
  int taken = 0, refused = 0;
  for (int i = 0; i < 24 + 12; ++i) {
    const bppsa_cell *cell = i >= 24 ? &bppsa_lstm_cell : i % 2 == 1 ? &bppsa_gru_cell : &bppsa_rnn_cell;
    problem p = {.config = bppsa_recurrent_config_default(), .cell = cell};
    p.config.seq_len = (const int64_t[]){1, 2, 9}[i % 3];
    p.config.batch = 1 + i % 4;
    p.config.input = 1 + i % 3;
    p.config.hidden = 2 + i % 5;
    p.config.layers = 1 + i / 2 % 3;
    p.config.loss_all = i / 4 % 2 == 1;
    p.config.dtype = i / 8 % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    p.config.nonlinearity = cell->relu && i % 4 == 2 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
    for (int a = 0; a < BPPSA_CUDNN_ALGORITHMS; ++a) {
      const bool took = run(&p, (bppsa_cudnn_algorithm)a);
      taken += took;
      refused += !took;
      assert_true(took || a % BPPSA_CUDNN_PACKED != BPPSA_CUDNN_STANDARD);
      assert_true(took || a % BPPSA_CUDNN_PACKED != BPPSA_CUDNN_STANDARD_BF16 || p.config.dtype == BPPSA_F64 ||
                  !is_emulated(device));
      assert_true(!took || !is_emulated(device) || a != BPPSA_CUDNN_PACKED + BPPSA_CUDNN_PERSIST_DYNAMIC);
    }
  }
  assert_true(taken >= 24 + 12 && refused > 0); /* at least TF32 with f64 is refused */
}

/* A cell that cuDNN does not have is refused, whatever its number of gates. */
static void invented_cell(void **state) {
  (void)state;
  bppsa_cudnn_network *network = NULL;
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  assert_int_equal(bppsa_cudnn_create(&config, &two_tanh, BPPSA_CUDNN_STANDARD, device, &network), BPPSA_ERR_UNSUPPORTED);
  assert_string_equal(bppsa_last_error(),
                      "cuDNN: it has no layers of the cell 'sum' with nonlinearity 0, expected rnn, gru or lstm");
  bppsa_cell namesake = two_tanh; /* the equations count, and not the name */
  namesake.name = "rnn";
  assert_int_equal(bppsa_cudnn_create(&config, &namesake, BPPSA_CUDNN_STANDARD, device, &network), BPPSA_ERR_UNSUPPORTED);
  config.nonlinearity = BPPSA_NONLINEARITY_RELU;
  assert_int_equal(bppsa_cudnn_create(&config, &bppsa_gru_cell, BPPSA_CUDNN_STANDARD, device, &network), BPPSA_ERR_UNSUPPORTED);
  assert_null(network);
}

static void wrong_requests(void **state) {
  (void)state;
  bppsa_cudnn_network *network = NULL;
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  assert_int_equal(bppsa_cudnn_create(&config, &bppsa_rnn_cell, BPPSA_CUDNN_STANDARD, host, &network), BPPSA_ERR_UNSUPPORTED);
  assert_int_equal(bppsa_cudnn_create(&config, &bppsa_rnn_cell, BPPSA_CUDNN_ALGORITHMS, device, &network), BPPSA_ERR_ARGUMENT);
  config.hidden = 0;
  assert_int_equal(bppsa_cudnn_create(&config, &bppsa_rnn_cell, BPPSA_CUDNN_STANDARD, device, &network), BPPSA_ERR_ARGUMENT);
  assert_null(network);
  bppsa_cudnn_destroy(NULL);
}

int main(void) {
  bppsa_cudnn_report report;
  device = test_device(1);
  host = cpu_device(1);
  bppsa_cudnn_probe(&report);
  int code = 77;
  if (bppsa_device_get_kind(device) == BPPSA_CUDA && report.version > 0) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients), cmocka_unit_test(invented_cell),
                                       cmocka_unit_test(wrong_requests)};
    code = cmocka_run_group_tests(tests, NULL, NULL);
  }
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
  return code;
}

/* Errors of old and of predicted weights: against a history of all weights, in closed form, and without memory. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "core/compute/device_buffer.h"
#include "distributed/pipeline/staleness.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

enum { PARAMETERS = 2, WEIGHTS = 11, STEPS = 12 };

/* A model of two parameters, [2,4] and [3], whose gradients the test sets. */
typedef struct {
  bppsa_model model;
  bppsa_parameter parameters[PARAMETERS];
  bppsa_buffer values[PARAMETERS], gradients[PARAMETERS];
  bppsa_optimizer_config config;
  bppsa_optimizer *optimizer;
} setting;

static void open_setting(setting *s, bppsa_dtype dtype, const bppsa_optimizer_config *config) {
  static const int64_t shapes[PARAMETERS][2] = {{2, 4}, {3, 1}};
  *s = (setting){.config = *config};
  for (int i = 0; i < PARAMETERS; ++i) {
    assert_int_equal(bppsa_buffer_create(NULL, dtype, 2 - i, shapes[i], &s->values[i]), BPPSA_OK);
    assert_int_equal(bppsa_buffer_create(NULL, dtype, 2 - i, shapes[i], &s->gradients[i]), BPPSA_OK);
    s->parameters[i] = (bppsa_parameter){i == 0 ? "weight" : "bias", s->values[i].view, s->gradients[i].view, false};
  }
  s->model = (bppsa_model){.dtype = dtype, .parameter_count = PARAMETERS, .parameters = s->parameters};
  assert_int_equal(bppsa_optimizer_create(config, &s->model, &s->optimizer), BPPSA_OK);
}

static void close_setting(setting *s) {
  bppsa_optimizer_destroy(s->optimizer);
  for (int i = 0; i < PARAMETERS; ++i) {
    bppsa_buffer_free(&s->values[i]);
    bppsa_buffer_free(&s->gradients[i]);
  }
}

/* Value number k of all values, or of the tensors `first`, `first` + `stride` of the optimiser's state. */
static double weight_of(const setting *s, int64_t k) {
  return k < 8 ? bppsa_view_get(&s->values[0].view, k) : bppsa_view_get(&s->values[1].view, k - 8);
}

static double state_of(const setting *s, int64_t first, int64_t stride, int64_t k) {
  const bppsa_named_view *tensors = bppsa_optimizer_get_state(s->optimizer)->tensors;
  return k < 8 ? bppsa_view_get(&tensors[first].view, k) : bppsa_view_get(&tensors[first + stride].view, k - 8);
}

static void step(setting *s, double constant, uint64_t seed) {
  for (int64_t k = 0; k < WEIGHTS; ++k) {
    const bppsa_view *gradient = &s->gradients[k < 8 ? 0 : 1].view;
    const double noise = seed == 0 ? 0 : bppsa_random_double(seed, 1, (uint64_t)k) - 0.5;
    bppsa_view_set(gradient, k < 8 ? k : k - 8, constant + noise);
  }
  bppsa_optimizer_step(s->optimizer, NULL);
}

/* ---- against a history ---- */

/* What the executor would see in the place of the weights `ahead` updates later (pipeline.h). */
static double prediction_of(const setting *s, int64_t ahead, int64_t k) {
  const double w = weight_of(s, k), rate = (double)ahead * s->config.lr;
  if (s->config.kind == BPPSA_SGD) {
    return w - rate * state_of(s, 0, 1, k);
  }
  const double n = (double)bppsa_optimizer_get_state(s->optimizer)->step;
  const double m = state_of(s, 0, 2, k) / (1 - pow(0.9, n)), v = state_of(s, 1, 2, k) / (1 - pow(0.999, n));
  return w - rate * m / (sqrt(v) + s->config.epsilon);
}

static void check_history(bppsa_dtype dtype, const bppsa_optimizer_config *config, int64_t ahead) {
  double weights[STEPS][WEIGHTS], predicted[STEPS][BPPSA_MOST_AHEAD][WEIGHTS];
  setting s;
  bppsa_staleness *staleness = NULL;
  bppsa_weight_errors errors;
  open_setting(&s, dtype, config);
  assert_int_equal(bppsa_staleness_create(&s.model, ahead, &staleness), BPPSA_OK);
  for (int64_t t = 0; t < STEPS; ++t) {
    step(&s, 0.3, (uint64_t)t + 1);
    assert_int_equal(bppsa_staleness_update(staleness, s.optimizer, config, &errors), BPPSA_OK);
    assert_int_equal(errors.ahead, ahead);
    for (int64_t k = 0; k < WEIGHTS; ++k) {
      weights[t][k] = weight_of(&s, k);
      for (int64_t a = 0; a < ahead; ++a) {
        predicted[t][a][k] = prediction_of(&s, a + 1, k);
      }
    }
    for (int64_t a = 0; a < ahead; ++a) {
      double stale = 0, missed = 0;
      for (int64_t k = 0; t > a && k < WEIGHTS; ++k) {
        stale += pow(weights[t][k] - weights[t - a - 1][k], 2);
        missed += pow(weights[t][k] - predicted[t - a - 1][a][k], 2);
      }
      const double bound = dtype == BPPSA_F32 ? 1e-7 : 1e-15;
      assert_true(t > a ? fabs(errors.stale[a] - sqrt(stale / WEIGHTS)) < bound : isnan(errors.stale[a]));
      assert_true(t > a ? fabs(errors.predicted[a] - sqrt(missed / WEIGHTS)) < bound : isnan(errors.predicted[a]));
    }
  }
  bppsa_staleness_destroy(staleness);
  close_setting(&s);
}

static bppsa_optimizer_config sgd(void) {
  bppsa_optimizer_config config = bppsa_optimizer_config_default();
  config.kind = BPPSA_SGD;
  config.lr = 0.05;
  config.momentum = 0.9;
  return config;
}

static void test_history(void **state) {
  (void)state;
  bppsa_optimizer_config adam = bppsa_optimizer_config_default(), momentum = sgd();
  adam.lr = 0.01;
  for (int64_t ahead = 1; ahead <= BPPSA_MOST_AHEAD; ahead = 2 * ahead + 1) {
    check_history(BPPSA_F64, &momentum, ahead);
    check_history(BPPSA_F32, &momentum, ahead);
    check_history(BPPSA_F64, &adam, ahead);
  }
  check_history(BPPSA_F64, &adam, BPPSA_MOST_AHEAD);
}

/* ---- in closed form ---- */

/* With a constant gradient and a momentum buffer that has settled at g / (1 - γ), every prediction is exact, and weights of s
 * updates ago are s η g / (1 - γ) away. Adam's update of a constant gradient is η from the first step on. */
static void test_constant_gradients(void **state) {
  (void)state;
  bppsa_optimizer_config configs[2] = {sgd(), bppsa_optimizer_config_default()};
  configs[1].lr = 0.05;
  for (int i = 0; i < 2; ++i) {
    setting s;
    bppsa_staleness *staleness = NULL;
    bppsa_weight_errors errors = {0};
    open_setting(&s, BPPSA_F64, &configs[i]);
    assert_int_equal(bppsa_staleness_create(&s.model, 3, &staleness), BPPSA_OK);
    for (int t = 0; t < 300; ++t) {
      step(&s, 0.3, 0);
      assert_int_equal(bppsa_staleness_update(staleness, s.optimizer, &configs[i], &errors), BPPSA_OK);
    }
    const double distance = i == 0 ? 0.05 * 0.3 / (1 - 0.9) : 0.05;
    for (int64_t a = 0; a < 3; ++a) {
      assert_true(fabs(errors.stale[a] - (double)(a + 1) * distance) < 1e-6 * distance);
      assert_true(errors.predicted[a] < 1e-6 * distance);
    }
    bppsa_staleness_destroy(staleness);
    close_setting(&s);
  }
}

/* A learning rate that is about to change is the one that predictions take. */
static void test_next_rate(void **state) {
  (void)state;
  bppsa_optimizer_config config = sgd();
  setting s;
  bppsa_staleness *staleness = NULL;
  bppsa_weight_errors errors;
  open_setting(&s, BPPSA_F64, &config);
  assert_int_equal(bppsa_staleness_create(&s.model, 1, &staleness), BPPSA_OK);
  for (int t = 0; t < 300; ++t) {
    step(&s, 0.3, 0);
    config.lr = t == 298 ? 0.025 : 0.05;
    bppsa_optimizer_set_lr(s.optimizer, config.lr);
    assert_int_equal(bppsa_staleness_update(staleness, s.optimizer, &config, &errors), BPPSA_OK);
  }
  assert_true(errors.predicted[0] < 1e-6 && fabs(errors.stale[0] - 0.025 * 0.3 / (1 - 0.9)) < 1e-6);
  bppsa_staleness_destroy(staleness);
  close_setting(&s);
}

/* ---- refusals, memory ---- */

static void test_refused(void **state) {
  (void)state;
  const bppsa_optimizer_config config = sgd();
  setting s;
  bppsa_staleness *staleness = NULL;
  open_setting(&s, BPPSA_F32, &config);
  assert_int_equal(bppsa_staleness_create(&s.model, 0, &staleness), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "staleness: weights of 0 updates ahead, expected 1 .. 8");
  assert_int_equal(bppsa_staleness_create(&s.model, 9, &staleness), BPPSA_ERR_ARGUMENT);
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  s.model.device = device; /* as of a GPU: anything but NULL */
  assert_int_equal(bppsa_staleness_create(&s.model, 3, &staleness), BPPSA_ERR_UNSUPPORTED);
  s.model.device = NULL;
  bppsa_device_destroy(device);
  const int64_t live = bppsa_alloc_live();
  for (int64_t call = 1;; ++call) {
    bppsa_alloc_fail_at(call);
    const bppsa_status status = bppsa_staleness_create(&s.model, 3, &staleness);
    bppsa_alloc_fail_at(0);
    if (status == BPPSA_OK) {
      assert_int_equal(call, 7); /* the object, places, a ring of weights, three of predictions; the seventh is not reached */
      break;
    }
    assert_int_equal(status, BPPSA_ERR_MEMORY);
    assert_null(staleness);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  bppsa_staleness_destroy(staleness);
  bppsa_staleness_destroy(NULL);
  assert_int_equal(bppsa_alloc_live(), live);
  close_setting(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_history), cmocka_unit_test(test_constant_gradients),
                                     cmocka_unit_test(test_next_rate), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Shared by the test programs of convolutional networks: random networks with numbers, one pass of a model on any device, and the
 * comparison of two results. */
#ifndef BPPSA_TESTS_CNN_PROBLEMS_H
#define BPPSA_TESTS_CNN_PROBLEMS_H

#include <math.h>

#include "core/compute/device_buffer.h"
#include "core/compute/memory.h"
#include "tests/cnn/chains.h"

enum { MOST_PARAMETERS = 64 };

/* A network with random weights, input and seed, in float64 rounded to the dtype that is tested. */
typedef struct {
  bppsa_cnn_network network;
  int64_t batch, count;
  double *parameters[MOST_PARAMETERS];
  double *x, *seed;
} problem;

static inline int64_t size_of_parameter(const bppsa_cnn_network *network, int64_t which) {
  for (int64_t i = 0; i < network->count; ++i) {
    const bppsa_cnn_layer *layer = &network->layers[i];
    char name[BPPSA_CNN_PARAMETER];
    if (which < bppsa_cnn_parameters(layer)) {
      const bppsa_parameter parameter = bppsa_cnn_parameter(layer, which, BPPSA_F64, name);
      return bppsa_view_count(&parameter.value);
    }
    which -= bppsa_cnn_parameters(layer);
  }
  return 0;
}

/* Is the parameter a running mean (1) or variance (2)? These have no gradient. */
static inline int statistic_of(const bppsa_cnn_network *network, int64_t which) {
  for (int64_t i = 0; i < network->count; ++i) {
    const int64_t count = bppsa_cnn_parameters(&network->layers[i]);
    if (which < count) {
      return network->layers[i].op.kind != BPPSA_OPERATOR_BATCHNORM2D ? 0 : which == count - 1 ? 2 : which == count - 2;
    }
    which -= count;
  }
  return 0;
}

static inline void *keep(bppsa_dtype dtype, double *values, int64_t count) {
  void *typed = rounded(dtype, values, count); /* rounds `values` too */
  bppsa_free(typed);
  return values;
}

static inline void make_problem(bppsa_cnn_network network, int64_t batch, bppsa_dtype dtype, uint64_t seed, problem *p) {
  *p = (problem){.network = network, .batch = batch};
  const int64_t in = bppsa_cnn_size(&network, 0), classes = bppsa_cnn_size(&network, network.count);
  for (int64_t size; (size = size_of_parameter(&network, p->count)) > 0; ++p->count) {
    assert_true(p->count < MOST_PARAMETERS);
    double *values = uniform(seed + 10 + (uint64_t)p->count, size, 0.7);
    for (int64_t k = 0; statistic_of(&network, p->count) == 2 && k < size; ++k) {
      values[k] = 0.3 + fabs(values[k]); /* a variance */
    }
    p->parameters[p->count] = keep(dtype, values, size);
  }
  p->x = keep(dtype, uniform(seed + 1, batch * in, 1), batch * in);
  p->seed = keep(dtype, uniform(seed + 2, batch * classes, 1), batch * classes);
}

static inline void free_problem(problem *p) {
  for (int64_t i = 0; i < p->count; ++i) {
    bppsa_free(p->parameters[i]);
  }
  bppsa_free(p->x);
  bppsa_free(p->seed);
  bppsa_cnn_network_free(&p->network);
}

static inline bppsa_model *make_model(const problem *p, const bppsa_cnn_config *config, const bppsa_device *device) {
  bppsa_model *model = NULL;
  if (bppsa_cnn_create(&p->network, config, device, &model) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  assert_int_equal(model->parameter_count, p->count);
  for (int64_t i = 0; i < p->count; ++i) {
    const bppsa_view *value = &model->parameters[i].value;
    assert_int_equal(bppsa_view_count(value), size_of_parameter(&p->network, i));
    for (int64_t k = 0; k < bppsa_view_count(value); ++k) {
      bppsa_view_set(value, k, p->parameters[i][k]);
    }
  }
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
  return model;
}

/* x and seed of the problem on the device; free with drop_inputs. */
typedef struct {
  const bppsa_device *device;
  bppsa_view x, seed;
} inputs;

static inline bppsa_view put_numbers(const bppsa_device *device, bppsa_dtype dtype, double *values, int32_t ndim,
                                     const int64_t *shape) {
  bppsa_view view = bppsa_view_make(NULL, dtype, ndim, shape);
  void *typed = rounded(dtype, values, bppsa_view_count(&view));
  view.data = on_device(device, typed, (int64_t)bppsa_view_bytes(&view));
  view.device = bppsa_device_get_kind(device);
  bppsa_free(typed);
  return view;
}

static inline inputs put_inputs(const problem *p, bppsa_dtype dtype, const bppsa_device *device) {
  const int64_t *in = p->network.in, x_shape[] = {p->batch, in[0], in[1], in[2]},
                seed_shape[] = {p->batch, bppsa_cnn_size(&p->network, p->network.count)};
  return (inputs){device, put_numbers(device, dtype, p->x, 4, x_shape), put_numbers(device, dtype, p->seed, 2, seed_shape)};
}

static inline void drop_inputs(inputs *in) {
  bppsa_memory_free(in->device, in->x.data);
  bppsa_memory_free(in->device, in->seed.data);
}

/* Forward and backward; allocates nothing in the model. The inputs must stay until the model is gone. */
static inline void run_model(bppsa_model *model, const inputs *in, bppsa_view *logits) {
  bppsa_alloc_fail_at(1);
  const bppsa_status forward = model->ops->forward(model, &in->x, NULL, logits);
  const bppsa_status backward = forward == BPPSA_OK ? model->ops->backward(model, &in->seed) : forward;
  bppsa_alloc_fail_at(0);
  if (backward != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

/* All gradients of a model as float64: parameters, then the input. */
typedef struct {
  int64_t count[MOST_PARAMETERS + 1];
  double *values[MOST_PARAMETERS + 1];
  double *logits;
} result;

static inline double *widened(const bppsa_device *device, const bppsa_view *view) {
  double *values = bppsa_alloc((size_t)bppsa_view_count(view) * sizeof *values);
  bppsa_buffer copy = {0};
  if (view->device == BPPSA_CUDA) {
    assert_int_equal(bppsa_buffer_fetch(device, view, &copy), BPPSA_OK);
    view = &copy.view;
  }
  for (int64_t i = 0; i < bppsa_view_count(view); ++i) {
    values[i] = bppsa_view_get(view, i);
  }
  bppsa_buffer_free(&copy);
  return values;
}

/* The results of the latest passes of a model. */
static inline result take_result(const problem *p, bppsa_model *model, const bppsa_device *device, const bppsa_view *logits,
                                 bool with_input) {
  result r = {.logits = widened(device, logits)};
  assert_int_equal(bppsa_model_pull(model, true), BPPSA_OK);
  for (int64_t i = 0; i < p->count; ++i) {
    r.count[i] = bppsa_view_count(&model->parameters[i].gradient);
    r.values[i] = widened(device, &model->parameters[i].gradient);
  }
  if (with_input) {
    bppsa_view x;
    assert_int_equal(model->ops->input_gradients(model, &x, NULL), BPPSA_OK);
    r.count[p->count] = bppsa_view_count(&x);
    r.values[p->count] = widened(device, &x);
  }
  return r;
}

static inline result compute(const problem *p, const bppsa_cnn_config *config, const bppsa_device *device) {
  bppsa_view logits;
  bppsa_model *model = make_model(p, config, device);
  inputs in = put_inputs(p, config->dtype, device);
  run_model(model, &in, &logits);
  const result r = take_result(p, model, device, &logits, config->input_gradients);
  bppsa_model_destroy(model);
  drop_inputs(&in);
  return r;
}

static inline void free_result(result *r) {
  for (int64_t i = 0; i <= MOST_PARAMETERS; ++i) {
    bppsa_free(r->values[i]);
  }
  bppsa_free(r->logits);
}

/* The residual of tensor i of a, which has values of the dtype, against b. */
static inline double residual_at(const problem *p, bppsa_dtype dtype, const result *a, const result *b, int64_t i) {
  double *copy = bppsa_alloc((size_t)a->count[i] * sizeof *copy);
  memcpy(copy, a->values[i], (size_t)a->count[i] * sizeof *copy);
  void *typed = rounded(dtype, copy, a->count[i]);
  const double r = residual(dtype, typed, b->values[i], b->count[i], sqrt((double)p->network.count));
  bppsa_free(typed);
  bppsa_free(copy);
  return r;
}

/* Every tensor of a against b, the reference; a failure names all that miss the bound. */
static inline void compare(const problem *p, bppsa_dtype dtype, const result *a, const result *b, int number) {
  char text[1024] = "";
  for (int64_t i = 0; i <= p->count; ++i) {
    const double r = a->values[i] == NULL ? 0 : residual_at(p, dtype, a, b, i);
    const size_t used = strlen(text);
    if (!(r < 30)) {
      snprintf(text + used, sizeof text - used, " %d: %g", (int)i, r);
    }
  }
  if (text[0] != '\0') {
    fail_msg("chain %d of %s, residuals of tensors 0 .. %d:%s", number, bppsa_dtype_name(dtype), (int)p->count, text);
  }
}

static inline bppsa_cnn_config config_of(const problem *p, bppsa_dtype dtype, bppsa_backward backward, int64_t levels) {
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = p->batch;
  config.dtype = dtype;
  config.method.backward = backward;
  config.input_gradients = true;
  config.method.scan.algorithm = levels == -2 ? BPPSA_SCAN_AUTO : levels == 0 ? BPPSA_SCAN_LINEAR : BPPSA_SCAN_BLELLOCH;
  config.method.scan.up_levels = levels;
  return config;
}

/* How much float64 BP's gradient of tensor i changes, as a residual, when every parameter, input and seed changes by one ε of
 * the dtype: the largest of eight random changes. Gradients through a bottleneck of one or two values can cancel almost
 * completely; then no arithmetic of that precision meets the bound. */
static inline double sensitivity(problem *p, bppsa_dtype dtype, const result *reference, int64_t i, const bppsa_device *device) {
  const double epsilon = dtype == BPPSA_F32 ? 0x1p-23 : 0x1p-52;
  const bppsa_cnn_config wide = config_of(p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
  double *const x = p->x, *const seed = p->seed, *kept[MOST_PARAMETERS], largest = 0;
  memcpy(kept, p->parameters, sizeof kept);
  for (uint64_t change = 0; change < 8; ++change) {
    for (int64_t t = 0; t < p->count + 2; ++t) {
      const double *from = t < p->count ? kept[t] : t == p->count ? x : seed;
      const int64_t values = bppsa_cnn_size(&p->network, t == p->count ? 0 : p->network.count);
      const int64_t size = t < p->count ? size_of_parameter(&p->network, t) : p->batch * values;
      double *nudged = uniform(7000 + 100 * change + (uint64_t)t, size, 1);
      for (int64_t k = 0; k < size; ++k) {
        nudged[k] = from[k] * (1 + (nudged[k] > 0 ? epsilon : -epsilon));
      }
      *(t < p->count ? &p->parameters[t] : t == p->count ? &p->x : &p->seed) = nudged;
    }
    result r = compute(p, &wide, device);
    largest = fmax(largest, residual_at(p, BPPSA_F64, &r, reference, i) * 0x1p-52 / epsilon);
    free_result(&r);
    for (int64_t t = 0; t < p->count; ++t) {
      bppsa_free(p->parameters[t]);
    }
    bppsa_free(p->x);
    bppsa_free(p->seed);
    memcpy(p->parameters, kept, sizeof kept);
    p->x = x;
    p->seed = seed;
  }
  return largest;
}

/* Like compare; a tensor that misses the bound must be within twice its sensitivity. Returns how many do. */
static inline int compare_conditioned(problem *p, bppsa_dtype dtype, const result *a, const result *b, const bppsa_device *device,
                                      int number) {
  int beyond = 0;
  for (int64_t i = 0; i <= p->count; ++i) {
    const double r = a->values[i] == NULL ? 0 : residual_at(p, dtype, a, b, i);
    if (!(r < 30) && !(r < 2 * sensitivity(p, dtype, b, i, device))) {
      fail_msg("chain %d, tensor %d of %d: residual %g", number, (int)i, (int)p->count, r);
    }
    beyond += !(r < 30);
  }
  return beyond;
}

/* ---- LeNet-5 ---- */

/* PyTorch's initial weights: gradients of the size they have in training. */
static inline void lenet_problem(int64_t batch, bppsa_dtype dtype, problem *p) {
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  make_problem(network, batch, dtype, 5, p);
  for (int64_t i = 0; i < p->count; i += 2) { /* weight and bias, within 1/√k */
    const int64_t weights = size_of_parameter(&p->network, i), outputs = size_of_parameter(&p->network, i + 1);
    for (int64_t k = 0; k < weights + outputs; ++k) {
      double *value = k < weights ? &p->parameters[i][k] : &p->parameters[i + 1][k - weights];
      *value /= 0.7 * sqrt((double)weights / (double)outputs);
    }
    keep(dtype, p->parameters[i], weights);
    keep(dtype, p->parameters[i + 1], outputs);
  }
}

#endif

/* Convolutional networks: forward against textbook loops, sequential BP against finite differences, the scan against BP. */
#include <math.h>

#include "tests/cnn/chains.h"

enum { CHAINS = 520, MOST_PARAMETERS = 64, BATCH = 3 };

/* A network with random weights, input and seed, in float64 rounded to the dtype that is tested. */
typedef struct {
  bppsa_cnn_network network;
  int64_t batch, count;
  double *parameters[MOST_PARAMETERS];
  double *x, *seed;
} problem;

static int64_t size_of_parameter(const bppsa_cnn_network *network, int64_t which) {
  for (int64_t i = 0; i < network->count; ++i) {
    const bppsa_cnn_layer *layer = &network->layers[i];
    int64_t shape[4], count = 1;
    if (!bppsa_cnn_has_weights(layer)) {
      continue;
    }
    const int32_t ndim = bppsa_cnn_weight_shape(layer, shape);
    for (int32_t d = 0; d < ndim; ++d) {
      count *= shape[d];
    }
    if (which == 0 || (which == 1 && layer->bias)) {
      return which == 0 ? count : shape[0];
    }
    which -= 1 + layer->bias;
  }
  return 0;
}

static void *keep(bppsa_dtype dtype, double *values, int64_t count) {
  void *typed = rounded(dtype, values, count); /* rounds `values` too */
  bppsa_free(typed);
  return values;
}

static void make_problem(bppsa_cnn_network network, int64_t batch, bppsa_dtype dtype, uint64_t seed, problem *p) {
  *p = (problem){.network = network, .batch = batch};
  const int64_t in = bppsa_cnn_size(&network, 0), classes = bppsa_cnn_size(&network, network.count);
  for (int64_t size; (size = size_of_parameter(&network, p->count)) > 0; ++p->count) {
    assert_true(p->count < MOST_PARAMETERS);
    p->parameters[p->count] = keep(dtype, uniform(seed + 10 + (uint64_t)p->count, size, 0.7), size);
  }
  p->x = keep(dtype, uniform(seed + 1, batch * in, 1), batch * in);
  p->seed = keep(dtype, uniform(seed + 2, batch * classes, 1), batch * classes);
}

static void free_problem(problem *p) {
  for (int64_t i = 0; i < p->count; ++i) {
    bppsa_free(p->parameters[i]);
  }
  bppsa_free(p->x);
  bppsa_free(p->seed);
  bppsa_cnn_network_free(&p->network);
}

static bppsa_model *make_model(const problem *p, const bppsa_cnn_config *config, const bppsa_device *device) {
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
  return model;
}

/* Forward and backward; allocates nothing in the model. The typed x must stay until the model is gone. */
static void run_model(const problem *p, bppsa_model *model, void *x, void *seed, bppsa_view *logits) {
  const int64_t *in = p->network.in, x_shape[] = {p->batch, in[0], in[1], in[2]}, seed_shape[] = {p->batch, model->classes};
  const bppsa_view x_view = bppsa_view_make(x, model->dtype, 4, x_shape);
  const bppsa_view seed_view = bppsa_view_make(seed, model->dtype, 2, seed_shape);
  bppsa_alloc_fail_at(1);
  assert_int_equal(model->ops->forward(model, &x_view, NULL, logits), BPPSA_OK);
  assert_int_equal(model->ops->backward(model, &seed_view), BPPSA_OK);
  bppsa_alloc_fail_at(0);
}

/* All gradients of a model as float64: parameters, then the input. */
typedef struct {
  int64_t count[MOST_PARAMETERS + 1];
  double *values[MOST_PARAMETERS + 1];
  double *logits;
} result;

static double *widened(const bppsa_view *view) {
  double *values = bppsa_alloc((size_t)bppsa_view_count(view) * sizeof *values);
  for (int64_t i = 0; i < bppsa_view_count(view); ++i) {
    values[i] = bppsa_view_get(view, i);
  }
  return values;
}

static result compute(const problem *p, const bppsa_cnn_config *config, const bppsa_device *device) {
  result r = {0};
  bppsa_view logits, x;
  bppsa_model *model = make_model(p, config, device);
  void *typed_x = rounded(config->dtype, p->x, p->batch * bppsa_cnn_size(&p->network, 0));
  void *typed_seed = rounded(config->dtype, p->seed, p->batch * model->classes);
  run_model(p, model, typed_x, typed_seed, &logits);
  r.logits = widened(&logits);
  for (int64_t i = 0; i < p->count; ++i) {
    r.count[i] = bppsa_view_count(&model->parameters[i].gradient);
    r.values[i] = widened(&model->parameters[i].gradient);
  }
  if (config->input_gradients) {
    assert_int_equal(model->ops->input_gradients(model, &x, NULL), BPPSA_OK);
    r.count[p->count] = bppsa_view_count(&x);
    r.values[p->count] = widened(&x);
  }
  bppsa_model_destroy(model);
  bppsa_free(typed_x);
  bppsa_free(typed_seed);
  return r;
}

static void free_result(result *r) {
  for (int64_t i = 0; i <= MOST_PARAMETERS; ++i) {
    bppsa_free(r->values[i]);
  }
  bppsa_free(r->logits);
}

/* The residual of tensor i of a, which has values of the dtype, against b. */
static double residual_at(const problem *p, bppsa_dtype dtype, const result *a, const result *b, int64_t i) {
  double *copy = bppsa_alloc((size_t)a->count[i] * sizeof *copy);
  memcpy(copy, a->values[i], (size_t)a->count[i] * sizeof *copy);
  void *typed = rounded(dtype, copy, a->count[i]);
  const double r = residual(dtype, typed, b->values[i], b->count[i], sqrt((double)p->network.count));
  bppsa_free(typed);
  bppsa_free(copy);
  return r;
}

/* Every tensor of a against b, the reference. */
static void compare(const problem *p, bppsa_dtype dtype, const result *a, const result *b, int number) {
  for (int64_t i = 0; i <= p->count; ++i) {
    const double r = a->values[i] == NULL ? 0 : residual_at(p, dtype, a, b, i);
    if (!(r < 30)) {
      fail_msg("chain %d, tensor %d of %d: residual %g", number, (int)i, (int)p->count, r);
    }
  }
}

static bppsa_cnn_config config_of(const problem *p, bppsa_dtype dtype, bppsa_backward backward, int64_t levels) {
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = p->batch;
  config.dtype = dtype;
  config.backward = backward;
  config.input_gradients = true;
  config.algorithm = levels == -2 ? BPPSA_SCAN_AUTO : levels == 0 ? BPPSA_SCAN_LINEAR : BPPSA_SCAN_BLELLOCH;
  config.up_levels = levels;
  return config;
}

/* ---- against finite differences ---- */

/* Σ seed · logits, with one number of a parameter (or of x) changed. */
static double functional(const problem *p, double *number, double value) {
  const int64_t in = bppsa_cnn_size(&p->network, 0), classes = bppsa_cnn_size(&p->network, p->network.count);
  const double kept = *number;
  double sum = 0;
  *number = value;
  for (int64_t b = 0; b < p->batch; ++b) {
    double *logits = chain_forward(&p->network, p->parameters, p->x + b * in);
    for (int64_t c = 0; c < classes; ++c) {
      sum += p->seed[b * classes + c] * logits[c];
    }
    bppsa_free(logits);
  }
  *number = kept;
  return sum;
}

/* Whether a slope agrees with central differences; where two steps disagree there is a kink between them: nothing is said. */
static bool agrees(const problem *p, double *number, double gradient) {
  double slopes[2];
  for (int i = 0; i < 2; ++i) {
    const double step = i == 0 ? 1e-5 : 3e-6;
    slopes[i] = (functional(p, number, *number + step) - functional(p, number, *number - step)) / (2 * step);
  }
  const double size = 1 + fabs(gradient);
  return fabs(slopes[0] - slopes[1]) > 1e-6 * size || fabs(slopes[1] - gradient) < 1e-6 * size;
}

static void check_differences(const problem *p, const result *r, uint64_t from, uint64_t *counter, int number) {
  const int64_t in = bppsa_cnn_size(&p->network, 0), classes = bppsa_cnn_size(&p->network, p->network.count);
  for (int64_t b = 0; b < p->batch; ++b) {
    double *logits = chain_forward(&p->network, p->parameters, p->x + b * in);
    for (int64_t c = 0; c < classes; ++c) {
      if (!(fabs(logits[c] - r->logits[b * classes + c]) < 1e-10 * (1 + fabs(logits[c])))) {
        char text[CHAIN_TEXT + 256];
        uint64_t again = from;
        chain_text(&again, text);
        fail_msg("chain %d: logit %g, expected %g: %s", number, r->logits[b * classes + c], logits[c], text);
      }
    }
    bppsa_free(logits);
  }
  for (int64_t i = 0; i <= p->count; ++i) {
    double *values = i < p->count ? p->parameters[i] : p->x;
    for (int probe = 0; probe < 3; ++probe) {
      const int64_t k = chain_below(counter, r->count[i]);
      if (!agrees(p, &values[k], r->values[i][k])) {
        fail_msg("chain %d, tensor %d, number %d: gradient %g", number, (int)i, (int)k, r->values[i][k]);
      }
    }
  }
}

/* What one ε of the dtype more or less in every parameter, input and seed does to float64 BP's gradient of tensor i, as a residual: the largest of
 * eight random changes. Gradients through a bottleneck of one or two values can cancel to almost nothing: there no arithmetic of that precision
 * meets the bound. */
static double sensitivity(problem *p, bppsa_dtype dtype, const result *reference, int64_t i, const bppsa_device *device) {
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

/* As compare; where the bound is missed the tensor must be within twice its sensitivity. Returns how many were. */
static int compare_conditioned(problem *p, bppsa_dtype dtype, const result *a, const result *b, const bppsa_device *device,
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

static void test_chains(void **state) {
  (void)state;
  int beyond = 0; /* tensors within their sensitivity only */
  bppsa_device *device = cpu_device(2);
  uint64_t counter = 0;
  int64_t live = -1;
  for (int number = 0; number < CHAINS; ++number) {
    problem p;
    const uint64_t from = counter; /* the file's text follows from it */
    const bppsa_cnn_network network = chain_network(&counter);
    make_problem(network, 1 + chain_below(&counter, BATCH), number % 2 == 0 ? BPPSA_F32 : BPPSA_F64, 1000 * (uint64_t)number, &p);
    const bppsa_cnn_config wide = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
    result reference = compute(&p, &wide, device);
    check_differences(&p, &reference, from, &counter, number);
    for (int64_t levels = -2; levels <= 3; ++levels) { /* auto, all, linear, 1 .. */
      bppsa_cnn_config scan = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_SCAN, levels);
      scan.input_gradients = (levels + number) % 3 != 0;
      result r = compute(&p, &scan, device);
      compare(&p, BPPSA_F64, &r, &reference, number);
      free_result(&r);
    }
    if (number % 2 == 0) {
      for (int method = 0; method < 3; ++method) { /* BP, blelloch, linear */
        const bppsa_cnn_config narrow =
            config_of(&p, BPPSA_F32, method == 0 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN, method == 1 ? -1 : 0);
        result r = compute(&p, &narrow, device);
        beyond += compare_conditioned(&p, BPPSA_F32, &r, &reference, device, number);
        free_result(&r);
      }
    }
    free_result(&reference);
    free_problem(&p);
    live = live < 0 ? bppsa_alloc_live() : live;
    assert_int_equal(bppsa_alloc_live(), live);
  }
  assert_true(beyond < 30); /* of some 4000 tensors */
  bppsa_device_destroy(device);
}

/* ---- LeNet-5 ---- */

/* PyTorch's initial weights: gradients of the size they have in training. */
static void lenet_problem(int64_t batch, bppsa_dtype dtype, problem *p) {
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

static void test_lenet(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  static const int64_t batches[] = {1, 2, 3, 7, 16, 64};
  for (size_t i = 0; i < sizeof batches / sizeof batches[0]; ++i) {
    for (bppsa_dtype dtype = BPPSA_F32; dtype <= BPPSA_F64; ++dtype) {
      problem p;
      lenet_problem(batches[i], dtype, &p);
      const bppsa_cnn_config wide = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
      result reference = compute(&p, &wide, device);
      for (int64_t levels = -3; levels <= 4; ++levels) { /* BP, auto, all, linear, 1 .. */
        const bppsa_backward backward = levels == -3 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN;
        const bppsa_cnn_config config = config_of(&p, dtype, backward, levels == -3 ? 0 : levels);
        result r = compute(&p, &config, device);
        compare(&p, dtype, &r, &reference, (int)batches[i]);
        free_result(&r);
      }
      free_result(&reference);
      free_problem(&p);
    }
  }
  bppsa_device_destroy(device);
}

/* ---- threads, smaller batches ---- */

static void assert_same_bits(const problem *p, const result *a, const result *b) {
  for (int64_t i = 0; i <= p->count; ++i) {
    assert_memory_equal(a->values[i], b->values[i], (size_t)a->count[i] * sizeof(double));
  }
}

static void test_threads(void **state) {
  (void)state;
  bppsa_device *one = cpu_device(1), *four = cpu_device(4);
  for (int64_t levels = -2; levels <= 2; ++levels) {
    problem p;
    lenet_problem(9, BPPSA_F32, &p);
    const bppsa_cnn_config config =
        config_of(&p, BPPSA_F32, levels == -2 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN, levels == -2 ? 0 : levels);
    result a = compute(&p, &config, one), b = compute(&p, &config, four);
    assert_same_bits(&p, &a, &b);
    free_result(&a);
    free_result(&b);
    free_problem(&p);
  }
  bppsa_device_destroy(one);
  bppsa_device_destroy(four);
}

/* A model for 16 samples takes 5, and gives what a model for 5 gives. */
static void test_smaller_batch(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  for (int method = 0; method < 2; ++method) {
    problem p;
    lenet_problem(5, BPPSA_F64, &p);
    bppsa_cnn_config config = config_of(&p, BPPSA_F64, method == 0 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN, -1);
    result fitting = compute(&p, &config, device);
    config.batch = 16;
    result larger = compute(&p, &config, device);
    compare(&p, BPPSA_F64, &larger, &fitting, method);
    free_result(&fitting);
    free_result(&larger);
    free_problem(&p);
  }
  bppsa_device_destroy(device);
}

/* ---- errors ---- */

static void test_refusals(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  problem p;
  bppsa_model *model = NULL;
  lenet_problem(2, BPPSA_F32, &p);
  bppsa_cnn_config config = config_of(&p, BPPSA_F32, BPPSA_BACKWARD_SCAN, -1);
  config.batch = 0;
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  assert_message("batch is 0, expected 1");
  config.batch = 2;
  config.dtype = BPPSA_I64;
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_UNSUPPORTED);
  config.dtype = BPPSA_F32;
  config.algorithm = BPPSA_SCAN_CHUNKED;
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_UNSUPPORTED);
  assert_message("lenet5: scan plan: sparse elements with chunks");
  config.algorithm = BPPSA_SCAN_BLELLOCH;
  config.memory_limit = 1 << 20;
  const int64_t live = bppsa_alloc_live();
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  assert_message("lenet5: needs at least ");
  assert_int_equal(bppsa_alloc_live(), live);
  config.memory_limit = 10 << 20; /* patterns fit, products do not */
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  assert_message("lenet5: ");
  assert_message("memory limit");
  assert_int_equal(bppsa_alloc_live(), live);
  --p.network.count; /* a chain that ends with a ReLU */
  config.memory_limit = 0;
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  assert_message("expected one");
  ++p.network.count;
  free_problem(&p);
  bppsa_device_destroy(device);
}

static void test_calls(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  problem p;
  lenet_problem(2, BPPSA_F32, &p);
  bppsa_cnn_config config = config_of(&p, BPPSA_F32, BPPSA_BACKWARD_BP, 0);
  config.input_gradients = false;
  bppsa_model *model = make_model(&p, &config, device);
  float x[3 * 3072] = {0}, seed[20] = {0};
  const bppsa_view seed_view = bppsa_view_make(seed, BPPSA_F32, 2, (int64_t[]){2, 10});
  bppsa_view view, logits;
  bppsa_nonfinite where;
  assert_int_equal(model->ops->backward(model, &seed_view), BPPSA_ERR_ARGUMENT);
  assert_message("no forward pass");
  assert_false(model->ops->find_nonfinite(model, &where));
  view = bppsa_view_make(x, BPPSA_F32, 4, (int64_t[]){2, 3, 32, 31});
  assert_int_equal(model->ops->forward(model, &view, NULL, &logits), BPPSA_ERR_SHAPE);
  assert_message("expected contiguous f32 [2, 3, 32, 32]");
  view = bppsa_view_make(x, BPPSA_F32, 4, (int64_t[]){3, 3, 32, 32});
  assert_int_equal(model->ops->forward(model, &view, NULL, &logits), BPPSA_ERR_SHAPE);
  assert_message("3 samples, expected 1 .. 2");
  view = bppsa_view_make(x, BPPSA_F32, 4, (int64_t[]){2, 3, 32, 32});
  assert_int_equal(model->ops->forward(model, &view, &view, &logits), BPPSA_ERR_ARGUMENT);
  assert_int_equal(model->ops->forward(model, &view, NULL, &logits), BPPSA_OK);
  const bppsa_view narrow = bppsa_view_make(seed, BPPSA_F32, 2, (int64_t[]){2, 9});
  assert_int_equal(model->ops->backward(model, &narrow), BPPSA_ERR_SHAPE);
  assert_int_equal(model->ops->backward(model, &seed_view), BPPSA_OK);
  assert_int_equal(model->ops->input_gradients(model, &view, NULL), BPPSA_ERR_UNSUPPORTED);
  assert_false(model->ops->find_nonfinite(model, &where));
  seed[13] = NAN;
  assert_int_equal(model->ops->backward(model, &seed_view), BPPSA_OK);
  assert_true(model->ops->find_nonfinite(model, &where));
  assert_string_equal(where.what, "gradient of the logits");
  assert_int_equal(where.sample, 1);
  view = bppsa_view_make(x, BPPSA_F32, 4, (int64_t[]){2, 3, 32, 32});
  bppsa_view_set(&model->parameters[2].value, 7, INFINITY); /* conv2.weight */
  x[3072 + 5] = 1;
  assert_int_equal(model->ops->forward(model, &view, NULL, &logits), BPPSA_OK);
  assert_true(model->ops->find_nonfinite(model, &where));
  assert_string_equal(where.what, "output of");
  assert_string_equal(where.name, "conv2");
  bppsa_model_destroy(model);
  free_problem(&p);
  bppsa_device_destroy(device);
}

typedef struct {
  const bppsa_cnn_network *network;
  bppsa_cnn_config config;
  bppsa_device *device;
} creation;

static bppsa_status create_and_destroy(void *argument) {
  const creation *c = argument;
  bppsa_model *model = NULL;
  BPPSA_TRY(bppsa_cnn_create(c->network, &c->config, c->device, &model));
  bppsa_model_destroy(model);
  return BPPSA_OK;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  uint64_t counter = 900;
  for (int number = 0; number < 6; ++number) {
    problem p;
    make_problem(chain_network(&counter), 2, BPPSA_F32, (uint64_t)number, &p);
    creation c = {&p.network, config_of(&p, BPPSA_F32, BPPSA_BACKWARD_SCAN, number % 2 == 0 ? -1 : -2), device};
    assert_true(walk_allocations(create_and_destroy, &c) > 10);
    free_problem(&p);
  }
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_chains),   cmocka_unit_test(test_lenet),
                                     cmocka_unit_test(test_threads),  cmocka_unit_test(test_smaller_batch),
                                     cmocka_unit_test(test_refusals), cmocka_unit_test(test_calls),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

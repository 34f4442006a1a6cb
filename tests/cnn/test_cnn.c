/* Convolutional networks: forward against textbook loops, sequential BP against finite differences, the scan against BP. */
#include <float.h>

#include "tests/cnn/problems.h"
#include "tests/support/length.h"

enum { BATCH = 3 };

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

/* Does a slope agree with central differences? If two steps disagree, a kink lies between them, and nothing can be said. */
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
    if (i < p->count && statistic_of(&p->network, i) != 0) {
      assert_true(r->values[i][chain_below(counter, r->count[i])] == 0);
      continue;
    }
    for (int probe = 0; probe < 3; ++probe) {
      const int64_t k = chain_below(counter, r->count[i]);
      if (!agrees(p, &values[k], r->values[i][k])) {
        fail_msg("chain %d, tensor %d, number %d: gradient %g", number, (int)i, (int)k, r->values[i][k]);
      }
    }
  }
}

static void test_chains(void **state) {
  (void)state;
  int beyond = 0; /* tensors within their sensitivity only */
  bppsa_device *device = cpu_device(2);
  uint64_t counter = 0;
  int64_t live = -1;
  const int chains = at_full_length() ? 520 : 130;
  for (int number = 0; number < chains; ++number) {
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
  assert_true(17 * beyond < chains); /* of some 8 tensors a chain */
  bppsa_device_destroy(device);
}

/* ---- LeNet-5 ---- */

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

/* ---- a 1 x 1 convolution of one image, which reads the image itself ---- */

static void test_pointwise(void **state) {
  (void)state;
  static const char text[] = "{\"input\": [32, 12, 12], \"layers\": [{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 32, "
                             "\"kernel\": 1}, {\"name\": \"h\", \"op\": \"linear\", \"out\": 3}]}";
  bppsa_device *device = cpu_device(1);
  bppsa_cnn_network network;
  problem p;
  uint64_t counter = 0;
  assert_int_equal(bppsa_cnn_network_parse("pointwise", text, (int64_t)strlen(text), &network), BPPSA_OK);
  make_problem(network, 1, BPPSA_F64, 5, &p);
  const bppsa_cnn_config config = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
  result r = compute(&p, &config, device);
  check_differences(&p, &r, 0, &counter, 0);
  free_result(&r);
  free_problem(&p);
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

/* A model made for 16 samples and given 5 has the results of a model made for 5. */
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
  config.method.scan.algorithm = BPPSA_SCAN_CHUNKED;
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_UNSUPPORTED);
  assert_message("lenet5: scan plan: sparse elements with chunks");
  config.method.scan.algorithm = BPPSA_SCAN_BLELLOCH;
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
  assert_int_equal(bppsa_cnn_activation(model, 0, &view), BPPSA_ERR_ARGUMENT);
  assert_message("activation of layer 0, expected -1 .. ");
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
  volatile float least = FLT_MIN; /* passes flush smaller numbers to 0, and the caller's thread does not */
  assert_true(least / 2 > 0);
  const bppsa_view narrow = bppsa_view_make(seed, BPPSA_F32, 2, (int64_t[]){2, 9});
  assert_int_equal(model->ops->backward(model, &narrow), BPPSA_ERR_SHAPE);
  assert_int_equal(model->ops->backward(model, &seed_view), BPPSA_OK);
  assert_true(least / 2 > 0);
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
  assert_int_equal(bppsa_cnn_activation(model, -2, &view), BPPSA_ERR_ARGUMENT);
  assert_message("activation of layer -2, expected -1 .. ");
  bppsa_model_destroy(model);
  config.input_gradients = true;
  model = make_model(&p, &config, device);
  assert_int_equal(model->ops->input_gradients(model, &view, NULL), BPPSA_ERR_ARGUMENT);
  assert_message("input gradients: no backward pass precedes them");
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_chains),        cmocka_unit_test(test_lenet),
                                     cmocka_unit_test(test_pointwise),     cmocka_unit_test(test_threads),
                                     cmocka_unit_test(test_smaller_batch), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_calls),         cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

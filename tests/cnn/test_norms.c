/* Batch norm by the batch's statistics and dropout that leaves numbers out: against textbook loops and differences, in sequences of
 * steps of training and evaluations on one model, and what is refused. */
#include "tests/cnn/problems.h"

enum { BATCH = 5 };

static const char norms[] = "{\"input\": [3, 4, 5], \"layers\": ["
                            "{\"name\": \"bn0\", \"op\": \"batchnorm2d\", \"momentum\": 0.25, \"eps\": 0.01},"
                            "{\"name\": \"conv\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": 3, \"padding\": 1},"
                            "{\"name\": \"bn1\", \"op\": \"batchnorm2d\", \"affine\": false},"
                            "{\"name\": \"act\", \"op\": \"silu\"}, {\"name\": \"pool\", \"op\": \"global_avgpool\"},"
                            "{\"name\": \"head\", \"op\": \"linear\", \"out\": 3}]}";
static const char drops[] = "{\"input\": [3, 4, 5], \"layers\": ["
                            "{\"name\": \"d0\", \"op\": \"dropout\", \"p\": 0.25},"
                            "{\"name\": \"conv\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": 3},"
                            "{\"name\": \"act\", \"op\": \"tanh\"}, {\"name\": \"d1\", \"op\": \"dropout\"},"
                            "{\"name\": \"head\", \"op\": \"linear\", \"out\": 3}]}";
static const int64_t samples[BATCH] = {7, 3, 11, 2, 900};

static problem problem_of(const char *text, bppsa_dtype dtype, uint64_t seed) {
  bppsa_cnn_network network;
  problem p;
  assert_int_equal(bppsa_cnn_network_parse("net", text, (int64_t)strlen(text), &network), BPPSA_OK);
  make_problem(network, BATCH, dtype, seed, &p);
  return p;
}

static bppsa_cnn_config config_with(bppsa_dtype dtype, bool statistics) {
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = BATCH;
  config.dtype = dtype;
  config.input_gradients = true;
  config.dropping = true;
  config.batch_statistics = statistics;
  config.dropout_seed = 42;
  return config;
}

/* ---- batch norm ---- */

static double logits_sum(bppsa_model *model, const inputs *in, const double *seed) {
  bppsa_view logits;
  double sum = 0;
  assert_int_equal(model->ops->forward(model, &in->x, NULL, &logits), BPPSA_OK);
  for (int64_t i = 0; i < bppsa_view_count(&logits); ++i) {
    sum += seed[i] * bppsa_view_get(&logits, i);
  }
  return sum;
}

/* The central difference of Σ seed · logits by one number. */
static double difference(bppsa_model *model, const inputs *in, const double *seed, const bppsa_view *of, int64_t i) {
  const double step = 1e-5, kept = bppsa_view_get(of, i);
  bppsa_view_set(of, i, kept + step);
  const double above = logits_sum(model, in, seed);
  bppsa_view_set(of, i, kept - step);
  const double below = logits_sum(model, in, seed);
  bppsa_view_set(of, i, kept);
  return (above - below) / (2 * step);
}

/* Gradients in a step of training are differences of the forward pass, of x too, although every sample changes the statistics. */
static void test_gradients(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  problem p = problem_of(norms, BPPSA_F64, 5);
  const bppsa_cnn_config config = config_with(BPPSA_F64, true);
  bppsa_model *model = make_model(&p, &config, device);
  inputs in = put_inputs(&p, BPPSA_F64, device);
  bppsa_view logits, dx;
  bppsa_model_drop(model, 1, samples);
  run_model(model, &in, &logits);
  result r = take_result(&p, model, device, &logits, true);
  assert_int_equal(model->ops->input_gradients(model, &dx, NULL), BPPSA_OK);
  for (int64_t t = 0; t <= p.count; ++t) {
    const bppsa_view *of = t < p.count ? &model->parameters[t].value : &in.x;
    for (int64_t i = 0; i < r.count[t]; ++i) {
      const bool statistic = t < p.count && model->parameters[t].statistic;
      const double wanted = statistic ? 0 : difference(model, &in, p.seed, of, i);
      if (!(fabs(r.values[t][i] - wanted) < 1e-8)) {
        fail_msg("tensor %d, number %d: gradient %.12g, expected %.12g", (int)t, (int)i, r.values[t][i], wanted);
      }
    }
  }
  free_result(&r);
  drop_inputs(&in);
  bppsa_model_destroy(model);
  free_problem(&p);
  bppsa_device_destroy(device);
}

/* The first layer, by textbook: y, and what the running statistics become. */
static void check_first_layer(const problem *p, bppsa_model *model, const double *mean, const double *variance) {
  bppsa_view y;
  assert_int_equal(bppsa_cnn_activation(model, 0, &y), BPPSA_OK);
  for (int64_t c = 0; c < 3; ++c) {
    double m = 0, v = 0;
    const int64_t count = BATCH * 20;
    for (int64_t i = 0; i < count; ++i) {
      m += p->x[i / 20 * 60 + c * 20 + i % 20] / (double)count;
    }
    for (int64_t i = 0; i < count; ++i) {
      v += pow(p->x[i / 20 * 60 + c * 20 + i % 20] - m, 2) / (double)count;
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = i / 20 * 60 + c * 20 + i % 20;
      const double wanted = p->parameters[0][c] * (p->x[at] - m) / sqrt(v + 0.01) + p->parameters[1][c];
      assert_true(fabs(bppsa_view_get(&y, at) - wanted) < 1e-12);
    }
    const double new_mean = 0.75 * mean[c] + 0.25 * m,
                 new_variance = 0.75 * variance[c] + 0.25 * v * (BATCH * 20.0) / (BATCH * 20.0 - 1);
    assert_true(fabs(bppsa_view_get(&model->parameters[2].value, c) - new_mean) < 1e-14);
    assert_true(fabs(bppsa_view_get(&model->parameters[3].value, c) - new_variance) < 1e-14);
  }
}

/* Training, evaluation, training again: evaluations leave everything as it is, and are those of a fresh model with the same
 * parameters; training goes on as if there had been none. */
static void test_sequence(void **state) {
  (void)state;
  for (bppsa_dtype dtype = BPPSA_F32; dtype <= BPPSA_F64; ++dtype) {
    bppsa_device *device = cpu_device(2), *one = cpu_device(1);
    problem p = problem_of(norms, dtype, 9);
    const bppsa_cnn_config config = config_with(dtype, true), given = config_with(dtype, false);
    bppsa_model *model = make_model(&p, &config, device), *straight = make_model(&p, &config, one);
    inputs in = put_inputs(&p, dtype, device);
    bppsa_view logits;
    for (int64_t step = 1; step <= 4; ++step) {
      bppsa_model_drop(model, step, samples);
      run_model(model, &in, &logits);
      if (dtype == BPPSA_F64 && step == 1) {
        check_first_layer(&p, model, p.parameters[2], p.parameters[3]);
      }
      bppsa_model_drop(straight, step, samples); /* without evaluations between, on one thread */
      run_model(straight, &in, &logits);
      bppsa_model_drop(model, step, NULL);
      run_model(model, &in, &logits);
      result evaluated = take_result(&p, model, device, &logits, true);
      bppsa_model *fresh = make_model(&p, &given, one);
      for (int64_t i = 0; i < p.count; ++i) {
        assert_int_equal(bppsa_view_convert(&model->parameters[i].value, &fresh->parameters[i].value), BPPSA_OK);
        assert_memory_equal(model->parameters[i].value.data, straight->parameters[i].value.data,
                            bppsa_view_bytes(&model->parameters[i].value));
      }
      bppsa_model_drop(fresh, step, samples); /* given statistics, also in a step of training */
      run_model(fresh, &in, &logits);
      result wanted = take_result(&p, fresh, one, &logits, true);
      for (int64_t t = 0; t <= p.count; ++t) {
        assert_memory_equal(evaluated.values[t], wanted.values[t], (size_t)wanted.count[t] * sizeof(double));
      }
      free_result(&evaluated);
      free_result(&wanted);
      bppsa_model_destroy(fresh);
    }
    bppsa_model_destroy(model);
    bppsa_model_destroy(straight);
    drop_inputs(&in);
    free_problem(&p);
    bppsa_device_destroy(device);
    bppsa_device_destroy(one);
  }
}

static void test_refused(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  problem p = problem_of(norms, BPPSA_F64, 5);
  bppsa_cnn_config config = config_with(BPPSA_F64, true);
  config.method.backward = BPPSA_BACKWARD_SCAN;
  bppsa_model *model = NULL;
  const int64_t live = bppsa_alloc_live();
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_UNSUPPORTED);
  assert_string_equal(
      bppsa_last_error(),
      "layer 'bn0': a batch norm by the batch's statistics couples the samples, whose Jacobians a scan multiplies "
      "one by one, expected --batch-norm given or --backward bp");
  assert_int_equal(bppsa_alloc_live(), live);
  const bppsa_named_view mask = {"bn0.weight", bppsa_view_make(p.parameters[0], BPPSA_F64, 1, (int64_t[]){3})};
  config.mask_count = 1;
  config.masks = &mask;
  config.method.backward = BPPSA_BACKWARD_BP;
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  assert_message("mask 'bn0.weight': no weight of the network, expected one such as 'head.weight'");
  config.mask_count = 0;
  model = make_model(&p, &config, device);
  double scale[4];
  assert_int_equal(bppsa_cnn_scale(model, 1, scale), BPPSA_ERR_ARGUMENT);
  assert_message("scale of layer 1, expected a batch norm");
  assert_int_equal(bppsa_cnn_scale(model, 0, scale), BPPSA_OK);
  assert_true(fabs(scale[1] - p.parameters[0][1] / sqrt(p.parameters[3][1] + 0.01)) < 1e-15);
  bppsa_model_destroy(model);
  free_problem(&p);
  static const char flat[] = "{\"input\": [3, 1, 1], \"layers\": [{\"name\": \"b\", \"op\": \"batchnorm2d\"},"
                             "{\"name\": \"head\", \"op\": \"linear\", \"out\": 3}]}";
  p = problem_of(flat, BPPSA_F64, 5);
  model = make_model(&p, &config, device);
  inputs in = put_inputs(&p, BPPSA_F64, device);
  bppsa_view logits, alone = in.x;
  alone.shape[0] = 1;
  bppsa_model_drop(model, 1, samples);
  assert_int_equal(model->ops->forward(model, &alone, NULL, &logits), BPPSA_ERR_SHAPE);
  assert_message("b: one number for each channel, expected two or more, of which a batch norm takes the variance");
  bppsa_model_drop(model, 1, NULL);
  assert_int_equal(model->ops->forward(model, &alone, NULL, &logits), BPPSA_OK);
  bppsa_model_drop(model, 1, samples);
  assert_int_equal(model->ops->forward(model, &in.x, NULL, &logits), BPPSA_OK);
  drop_inputs(&in);
  bppsa_model_destroy(model);
  free_problem(&p);
  bppsa_device_destroy(device);
}

/* ---- dropout ---- */

/* The factors that d1 applied: y / x, 0 or 2, as bits; counts the zeros. */
static int64_t zeros_of(bppsa_model *model, int64_t layer, double factor, uint64_t *bits) {
  bppsa_view x, y;
  int64_t zeros = 0;
  assert_int_equal(bppsa_cnn_activation(model, layer - 1, &x), BPPSA_OK);
  assert_int_equal(bppsa_cnn_activation(model, layer, &y), BPPSA_OK);
  *bits = 0;
  for (int64_t i = 0; i < bppsa_view_count(&y); ++i) {
    const double value = bppsa_view_get(&y, i);
    zeros += value == 0;
    *bits = *bits * 31 + (value == 0);
    assert_true(value == 0 || fabs(value - factor * bppsa_view_get(&x, i)) <= 1e-6 * fabs(value));
  }
  return zeros;
}

/* The numbers left out follow from step and samples alone, evaluations leave none out, and every scan has BP's gradients. */
static void test_dropout(void **state) {
  (void)state;
  bppsa_device *devices[] = {cpu_device(1), cpu_device(2)};
  problem p = problem_of(drops, BPPSA_F64, 3);
  result reference = {0};
  uint64_t seen[5], bits;
  for (int k = 0; k < 6; ++k) { /* BP on one thread and two, scans */
    bppsa_cnn_config config = config_with(BPPSA_F64, false);
    config.method.backward = k < 2 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN;
    config.method.scan = bppsa_scan_method_of(k == 2 ? BPPSA_SCAN_LINEAR : BPPSA_SCAN_BLELLOCH);
    config.method.scan.up_levels = k > 2 ? k - 2 : config.method.scan.up_levels;
    bppsa_model *model = make_model(&p, &config, devices[k % 2]);
    inputs in = put_inputs(&p, BPPSA_F64, devices[k % 2]);
    bppsa_view logits;
    for (int64_t step = 0; step < 5; ++step) { /* step 4 is step 1 again */
      bppsa_model_drop(model, step == 4 ? 1 : step, samples);
      run_model(model, &in, &logits);
      const int64_t left_out = zeros_of(model, 3, 2, &bits);
      assert_true(left_out > 20 && left_out < 100); /* of 120, half */
      assert_true(k == 0 || bits == seen[step]);
      seen[step] = bits;
      const int64_t input_zeros = zeros_of(model, 0, 4.0 / 3, &bits);
      assert_true(input_zeros > 45 && input_zeros < 110); /* of 300, a quarter */
      bppsa_model_drop(model, step, NULL);
      run_model(model, &in, &logits);
      assert_int_equal(zeros_of(model, 3, 1, &bits), 0);
    }
    assert_true(seen[4] == seen[1] && seen[0] != seen[1] && seen[1] != seen[2] && seen[2] != seen[3]);
    bppsa_model_drop(model, 2, samples);
    run_model(model, &in, &logits);
    result r = take_result(&p, model, devices[k % 2], &logits, true);
    for (int64_t t = 0; k > 0 && t <= p.count; ++t) {
      for (int64_t i = 0; i < r.count[t]; ++i) {
        assert_true(k == 1 ? r.values[t][i] == reference.values[t][i] : fabs(r.values[t][i] - reference.values[t][i]) < 1e-13);
      }
    }
    if (k == 0) {
      reference = r;
    } else {
      free_result(&r);
    }
    drop_inputs(&in);
    bppsa_model_destroy(model);
  }
  free_result(&reference);
  free_problem(&p);
  bppsa_device_destroy(devices[0]);
  bppsa_device_destroy(devices[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients), cmocka_unit_test(test_sequence),
                                     cmocka_unit_test(test_refused), cmocka_unit_test(test_dropout)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

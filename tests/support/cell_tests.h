/* The tests of a recurrent cell. A cell's test program includes this after it has defined
 *
 *     static const cell_reference cell = {..};
 *
 * They compare the gradients of every algorithm with a float64 reference written from the textbook, and both the reference and
 * the library with finite differences of the forward pass alone. */
#ifndef BPPSA_TESTS_SUPPORT_CELL_TESTS_H
#define BPPSA_TESTS_SUPPORT_CELL_TESTS_H

#include "core/compute/simd.h"
#include "tests/support/cell_run.h"
#include "tests/support/length.h"

/* With a single hidden unit a weight gradient is one sum, which may cancel to nothing: then its terms are the measure. */
static void check_tensor(const char *name, const bppsa_recurrent_config *c, const void *got, const double *expected,
                         const double *magnitude, int64_t count) {
  const double r =
      residual_of_sum(c->dtype, got, expected, c->hidden == 1 ? magnitude : expected, count, sqrt((double)c->seq_len));
  if (!(r < 30)) {
    fail_msg("%s: residual %g (backward %d, algorithm %d, T=%lld B=%lld H=%lld L=%lld I=%lld, dtype %d, all %d)", name, r,
             (int)c->method.backward, (int)c->method.scan.algorithm, (long long)c->seq_len, (long long)c->batch,
             (long long)c->hidden, (long long)c->layers, (long long)c->input, (int)c->dtype, (int)c->loss_all);
  }
}

static void check_run(problem *p, const bppsa_recurrent_config *config, const bppsa_device *device) {
  run r = run_model(p, config, device);
  for (int64_t i = 0; i < p->count; ++i) {
    check_tensor(r.model->parameters[i].name, config, r.model->parameters[i].gradient.data, p->dw[i], p->magnitude[i],
                 p->sizes[i]);
  }
  bppsa_view dx, dh0;
  assert_int_equal(r.model->ops->input_gradients(r.model, &dx, &dh0), BPPSA_OK);
  check_tensor("input", config, dx.data, p->dx, p->dx, bppsa_view_count(&dx));
  check_tensor("h0", config, dh0.data, p->dh0, p->dh0, bppsa_view_count(&dh0));
  bppsa_nonfinite where;
  assert_false(r.model->ops->find_nonfinite(r.model, &where));
  free_run(&r);
}

static const struct {
  bppsa_backward backward;
  bppsa_scan_algorithm algorithm;
  int64_t up_levels, chunks;
} methods[] = {{BPPSA_BACKWARD_AUTO, BPPSA_SCAN_AUTO, -1, 0},     {BPPSA_BACKWARD_BP, BPPSA_SCAN_AUTO, -1, 0},
               {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_AUTO, -1, 0},     {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_LINEAR, -1, 0},
               {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH, -1, 0}, {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH, 2, 0},
               {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, -1, 0},  {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, -1, 3}};

enum { METHODS = sizeof methods / sizeof *methods };

static bppsa_recurrent_config with_method(const bppsa_recurrent_config *base, size_t m) {
  bppsa_recurrent_config c = *base;
  c.method.backward = methods[m].backward;
  c.method.scan.algorithm = methods[m].algorithm;
  c.method.scan.up_levels = methods[m].up_levels;
  c.method.scan.chunks = methods[m].chunks;
  return c;
}

static void check_all_methods(const bppsa_recurrent_config *config, bool orthogonal_hh, uint64_t seed,
                              const bppsa_device *device) {
  problem p = make_problem(config, orthogonal_hh, seed);
  reference(&p);
  for (size_t m = 0; m < METHODS; ++m) {
    const bppsa_recurrent_config c = with_method(config, m);
    check_run(&p, &c, device);
  }
  free_problem(&p);
}

static bppsa_recurrent_config small(void) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.input_gradients = true;
  c.classes = 4;
  return c;
}

static void test_small_shapes(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 2, 3, 5, 10, 50}, sizes[] = {1, 2, 7, 20}, batches[] = {1, 2, 9, 17}, inputs[] = {1, 3};
  bppsa_device *device = cpu_device(2);
  uint64_t seed = 1;
  for (size_t t = 0; t < sizeof lengths / sizeof *lengths; ++t) {
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
      for (unsigned bits = 0; bits < 16; ++bits, ++seed) {
        if (((bits & 4) != 0 && !cell.relu) || !is_drawn(5)) {
          continue;
        }
        bppsa_recurrent_config c = small();
        c.seq_len = lengths[t];
        c.hidden = sizes[s];
        c.batch = batches[seed % 4];
        c.input = inputs[seed / 4 % 2];
        /* stacked single units make a chain of scalar sums; each may cancel, so no bound holds for the last one */
        c.layers = c.hidden == 1 ? 1 : 1 + (int64_t)(seed % 3);
        c.dtype = (bits & 1) != 0 ? BPPSA_F64 : BPPSA_F32;
        c.loss_all = (bits & 2) != 0;
        c.nonlinearity = (bits & 4) != 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
        /* One relu unit with W_hh = -1 gives b, b - b, b, ..: it lies exactly on the kink, where rounding decides. */
        const bool kink = c.hidden == 1 && c.nonlinearity == BPPSA_NONLINEARITY_RELU;
        check_all_methods(&c, (bits & 8) != 0 && !kink, 1000 * seed, device);
      }
    }
  }
  bppsa_device_destroy(device);
}

static void test_long_sequences(void **state) {
  (void)state;
  static const struct {
    int64_t seq_len, batch, hidden, layers;
    bool loss_all;
  } cases[] = {
      {2000, 2, 5, 1, false}, {1000, 3, 20, 1, false}, {777, 1, 6, 2, false}, {513, 2, 9, 1, true}, {301, 2, 8, 3, true}};
  bppsa_device *device = cpu_device(2);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    for (unsigned bits = 0; bits < 4; ++bits) {
      bppsa_recurrent_config c = small();
      c.seq_len = cases[i].seq_len;
      c.batch = cases[i].batch;
      c.hidden = cases[i].hidden;
      c.layers = cases[i].layers;
      c.loss_all = cases[i].loss_all;
      c.dtype = (bits & 1) != 0 ? BPPSA_F64 : BPPSA_F32;
      check_all_methods(&c, (bits & 2) != 0, 70 + i, device);
    }
  }
  bppsa_device_destroy(device);
}

static void test_wide_layer(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  for (int bits = 0; bits < 2; ++bits) {
    bppsa_recurrent_config c = small();
    c.seq_len = 13;
    c.hidden = 200;
    c.input = 70;
    c.batch = 3;
    c.layers = 2;
    c.loss_all = true;
    c.dtype = bits == 0 ? BPPSA_F32 : BPPSA_F64;
    check_all_methods(&c, bits == 0, 5, device);
  }
  bppsa_device_destroy(device);
}

/* Around the widths of vectors and panels, by BP with every instruction set; several samples share a product, and few do. */
static void test_wide_sizes(void **state) {
  (void)state;
  static const int64_t sizes[] = {129, 257, 513}, batches[] = {2, 7};
  static const char *const sets[] = {"portable", "avx2", "avx512"};
  bppsa_device *device = cpu_device(2);
  for (size_t i = 0; i < 2 * 2 * sizeof sizes / sizeof *sizes; ++i) {
    bppsa_recurrent_config c = small();
    c.seq_len = 4;
    c.hidden = sizes[i / 4];
    c.input = 3;
    c.batch = batches[i % 2];
    c.loss_all = true;
    c.dtype = i / 2 % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    problem p = make_problem(&c, false, 9 + i);
    c.method.backward = BPPSA_BACKWARD_BP;
    reference(&p);
    for (size_t k = 0; k < sizeof sets / sizeof *sets; ++k) {
      if (bppsa_simd_select(sets[k]) == BPPSA_OK) { /* the processor has it */
        check_run(&p, &c, device);
      }
    }
    assert_int_equal(bppsa_simd_select("auto"), BPPSA_OK);
    free_problem(&p);
  }
  bppsa_device_destroy(device);
}

/* The tests below compare every parameter, the input and h0 with central differences of this forward pass in float64. */
static double forward_loss(problem *p) {
  reference_states states = make_states(p);
  double *seed = zeros(logit_count(&p->c));
  const double loss = reference_forward(p, &states, seed);
  free_states(&states);
  bppsa_free(seed);
  return loss;
}

static void check_differences(problem *p, double *values, const double *gradient, int64_t count) {
  const double step = 1e-5;
  for (int64_t i = 0; i < count; ++i) {
    const double keep = values[i];
    if (isnan(keep)) { /* x behind a sample's end */
      assert_true(gradient[i] == 0);
      continue;
    }
    values[i] = keep + step;
    const double above = forward_loss(p);
    values[i] = keep - step;
    const double below = forward_loss(p);
    values[i] = keep;
    assert_true(fabs((above - below) / (2 * step) - gradient[i]) < 1e-9);
  }
}

static void test_finite_differences(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  for (int kind = 0; kind < 8; ++kind) {
    bppsa_recurrent_config c = small();
    c.seq_len = 6;
    c.hidden = 4;
    c.batch = 2;
    c.input = 3;
    c.layers = 2;
    c.loss_all = kind % 2 == 1;
    c.lengths = kind / 2 % 2 == 1;
    c.bidirectional = c.no_bias = kind / 4 == 1;
    c.dtype = BPPSA_F64;
    c.method.backward = BPPSA_BACKWARD_SCAN;
    c.method.scan.algorithm = BPPSA_SCAN_BLELLOCH;
    problem p = make_problem(&c, true, 11);
    if (c.lengths) {
      set_lengths(&p, (int64_t[]){3, 6});
    }
    reference(&p);
    run r = run_model(&p, &c, device);
    assert_true(fabs(r.loss - forward_loss(&p)) < 1e-13); /* the two forward passes agree */
    bppsa_view dx, dh0;
    assert_int_equal(r.model->ops->input_gradients(r.model, &dx, &dh0), BPPSA_OK);
    for (int64_t i = 0; i < r.model->parameter_count; ++i) {
      const int64_t tensor = tensor_of_parameter(&p, i);
      check_differences(&p, p.w[tensor], p.dw[tensor], p.sizes[tensor]);
      check_differences(&p, p.w[tensor], r.model->parameters[i].gradient.data, p.sizes[tensor]);
    }
    check_differences(&p, p.x, p.dx, c.seq_len * c.batch * c.input);
    check_differences(&p, p.x, dx.data, c.seq_len * c.batch * c.input);
    check_differences(&p, p.h0, p.dh0, sweeps_of(&c) * c.batch * state_of(&c));
    check_differences(&p, p.h0, dh0.data, sweeps_of(&c) * c.batch * state_of(&c));
    free_run(&r);
    free_problem(&p);
  }
  bppsa_device_destroy(device);
}

static void assert_same_bits(const run *a, const run *b) {
  for (int64_t i = 0; i < a->model->parameter_count; ++i) {
    assert_memory_equal(a->model->parameters[i].gradient.data, b->model->parameters[i].gradient.data,
                        bppsa_view_bytes(&a->model->parameters[i].gradient));
  }
  bppsa_view xa, xb, ha, hb;
  assert_int_equal(a->model->ops->input_gradients(a->model, &xa, &ha), BPPSA_OK);
  assert_int_equal(b->model->ops->input_gradients(b->model, &xb, &hb), BPPSA_OK);
  assert_memory_equal(xa.data, xb.data, bppsa_view_bytes(&xa));
  assert_memory_equal(ha.data, hb.data, bppsa_view_bytes(&ha));
}

static void test_bits_do_not_depend_on_threads(void **state) {
  (void)state;
  bppsa_device *devices[] = {cpu_device(1), cpu_device(2), cpu_device(7)};
  for (size_t m = 0; m < METHODS; ++m) {
    bppsa_recurrent_config c = small();
    c.seq_len = 200;
    c.batch = 27;
    c.layers = 2;
    c.loss_all = m % 2 == 0;
    c = with_method(&c, m);
    problem p = make_problem(&c, true, 21);
    run first = run_model(&p, &c, devices[0]);
    for (size_t d = 1; d < 3; ++d) {
      run again = run_model(&p, &c, devices[d]);
      assert_same_bits(&first, &again);
      free_run(&again);
    }
    free_run(&first);
    free_problem(&p);
  }
  for (size_t d = 0; d < 3; ++d) {
    bppsa_device_destroy(devices[d]);
  }
}

static void test_smaller_batch(void **state) { /* a partial batch gives the bits of a model made for it */
  (void)state;
  bppsa_device *device = cpu_device(2);
  for (size_t m = 0; m < METHODS; ++m) {
    bppsa_recurrent_config c = small();
    c.seq_len = 33;
    c.batch = 5;
    c = with_method(&c, m);
    problem p = make_problem(&c, true, 31);
    bppsa_recurrent_config larger = c;
    larger.batch = 16;
    run exact = run_model(&p, &c, device), partial = run_model(&p, &larger, device);
    assert_same_bits(&exact, &partial);
    free_run(&exact);
    free_run(&partial);
    free_problem(&p);
  }
  bppsa_device_destroy(device);
}

static void test_passes_allocate_nothing(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  bppsa_recurrent_config c = small();
  c.seq_len = 20;
  c.method = (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, bppsa_scan_method_of(BPPSA_SCAN_CHUNKED)};
  problem p = make_problem(&c, true, 41);
  run r = run_model(&p, &c, device);
  const bppsa_view x = bppsa_view_make(r.x, c.dtype, 3, (int64_t[]){c.seq_len, c.batch, c.input});
  bppsa_view logits;
  bppsa_alloc_fail_at(1);
  const bppsa_status forward = r.model->ops->forward(r.model, &x, NULL, &logits);
  const bppsa_view seed = bppsa_view_make(r.seed, c.dtype, 2, logits.shape);
  const bppsa_status backward = r.model->ops->backward(r.model, &seed);
  const int64_t calls = bppsa_alloc_calls();
  bppsa_alloc_fail_at(0);
  assert_int_equal(forward, BPPSA_OK);
  assert_int_equal(backward, BPPSA_OK);
  assert_int_equal(calls, 0);
  free_run(&r);
  free_problem(&p);
  bppsa_device_destroy(device);
}

static void test_nonfinite_is_located(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_recurrent_config c = small();
  c.seq_len = 9;
  c.batch = 4;
  c.layers = 2;
  c.loss_all = true;
  problem p = make_problem(&c, true, 51);
  run r = run_model(&p, &c, device);
  bppsa_nonfinite where;
  const bppsa_view x = bppsa_view_make(r.x, c.dtype, 3, (int64_t[]){c.seq_len, c.batch, c.input});
  bppsa_view logits;
  /* a seed that is not finite at step 6, sample 2 */
  ((float *)r.seed)[(5 * c.batch + 2) * c.classes + 1] = (float)INFINITY;
  assert_int_equal(r.model->ops->forward(r.model, &x, NULL, &logits), BPPSA_OK);
  const bppsa_view seed = bppsa_view_make(r.seed, c.dtype, 3, logits.shape);
  assert_int_equal(r.model->ops->backward(r.model, &seed), BPPSA_OK);
  assert_true(r.model->ops->find_nonfinite(r.model, &where));
  assert_string_equal(where.what, "gradient of the hidden state");
  assert_int_equal(where.layer, 1);
  assert_int_equal(where.step, 6);
  assert_int_equal(where.sample, 2);
  /* an input that is not finite at step 4, sample 3 */
  ((float *)r.x)[3 * c.batch + 3] = (float)NAN;
  assert_int_equal(r.model->ops->forward(r.model, &x, NULL, &logits), BPPSA_OK);
  assert_true(r.model->ops->find_nonfinite(r.model, &where));
  assert_string_equal(where.what, "hidden state");
  assert_int_equal(where.layer, 0);
  assert_int_equal(where.step, 4);
  assert_int_equal(where.sample, 3);
  free_run(&r);
  free_problem(&p);
  bppsa_device_destroy(device);
}

static void assert_orthogonal(int64_t h, const double *w) {
  for (int64_t r = 0; r < h; ++r) {
    for (int64_t s = 0; s < h; ++s) {
      double dot = 0;
      for (int64_t k = 0; k < h; ++k) {
        dot += w[r * h + k] * w[s * h + k];
      }
      assert_true(fabs(dot - (r == s)) < 1e-14);
    }
  }
}

static void test_init(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_recurrent_config c = small();
  c.hidden = 31;
  c.layers = 2;
  bppsa_model *single = NULL, *twice = NULL;
  assert_int_equal(bppsa_recurrent_create(&c, cell.cell, device, &single), BPPSA_OK);
  c.dtype = BPPSA_F64;
  assert_int_equal(bppsa_recurrent_create(&c, cell.cell, device, &twice), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(single, BPPSA_INIT_ORTHOGONAL, 3), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(twice, BPPSA_INIT_ORTHOGONAL, 3), BPPSA_OK);
  for (int64_t i = 0; i < single->parameter_count; ++i) {
    const bppsa_view *a = &single->parameters[i].value, *b = &twice->parameters[i].value;
    double most = 0, sum = 0;
    for (int64_t j = 0; j < bppsa_view_count(a); ++j) {
      assert_true(bppsa_view_get(a, j) == (double)(float)bppsa_view_get(b, j));
      most = fmax(most, fabs(bppsa_view_get(b, j)));
      sum += bppsa_view_get(b, j);
    }
    if (strstr(single->parameters[i].name, "weight_hh") == NULL) {
      const double bound = 1 / sqrt(31.0);
      assert_true(most <= bound && most > bound * (1 - 20.0 / (double)bppsa_view_count(a)));
      assert_true(fabs(sum) < 5 * bound * sqrt((double)bppsa_view_count(a) / 3));
      continue;
    }
    for (int64_t gate = 0; gate < cell.gates; ++gate) {
      assert_orthogonal(31, (const double *)b->data + gate * 31 * 31);
    }
  }
  bppsa_model_destroy(single);
  bppsa_model_destroy(twice);
  bppsa_device_destroy(device);
}

static void test_refusals(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_model *model = NULL;
  bppsa_recurrent_config c = small();
  c.seq_len = 0;
  assert_int_equal(bppsa_recurrent_create(&c, cell.cell, device, &model), BPPSA_ERR_ARGUMENT);
  c = small();
  c.seq_len = c.hidden = c.batch = INT32_MAX;
  assert_int_equal(bppsa_recurrent_create(&c, cell.cell, device, &model), BPPSA_ERR_ARGUMENT);
  c = small();
  c.dtype = BPPSA_F16;
  assert_int_equal(bppsa_recurrent_create(&c, cell.cell, device, &model), BPPSA_ERR_UNSUPPORTED);
  assert_null(model);
  c = small();
  c.seq_len = 5;
  assert_int_equal(bppsa_recurrent_create(&c, cell.cell, device, &model), BPPSA_OK);
  float x[5 * 17] = {0};
  bppsa_view logits, wrong = bppsa_view_make(x, BPPSA_F32, 3, (int64_t[]){5, 17, 1});
  assert_int_equal(model->ops->forward(model, &wrong, NULL, &logits), BPPSA_ERR_SHAPE);
  wrong = bppsa_view_make(x, BPPSA_F32, 3, (int64_t[]){4, 2, 1});
  assert_int_equal(model->ops->forward(model, &wrong, NULL, &logits), BPPSA_ERR_SHAPE);
  assert_string_equal(bppsa_last_error(), "x: f32 [4, 2, 1], expected f32 [5, 2, 1]");
  wrong = bppsa_view_make(x, BPPSA_F32, 3, (int64_t[]){2, 5, 1});
  assert_int_equal(model->ops->forward(model, &wrong, NULL, &logits), BPPSA_ERR_SHAPE);
  assert_string_equal(bppsa_last_error(), "x: f32 [2, 5, 1], expected f32 [5, 2, 1]; it looks like [B, T, I]");
  wrong = bppsa_view_make(x, BPPSA_F32, 2, (int64_t[]){2, 4});
  assert_int_equal(model->ops->backward(model, &wrong), BPPSA_ERR_ARGUMENT);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
}

static void test_allocation_failure(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_recurrent_config c = small();
  c.layers = 2;
  c.method = (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, bppsa_scan_method_of(BPPSA_SCAN_CHUNKED)};
  const int64_t live = bppsa_alloc_live();
  for (int64_t call = 1;; ++call) {
    bppsa_model *model = NULL;
    bppsa_alloc_fail_at(call);
    const bppsa_status status = bppsa_recurrent_create(&c, cell.cell, device, &model);
    bppsa_alloc_fail_at(0);
    if (status == BPPSA_OK) {
      assert_true(call > 15);
      bppsa_model_destroy(model);
      break;
    }
    assert_int_equal(status, BPPSA_ERR_MEMORY);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  assert_int_equal(bppsa_alloc_live(), live);
  bppsa_device_destroy(device);
}

/* All tests above. */
#define SHARED_TESTS                                                                                                             \
  cmocka_unit_test(test_small_shapes), cmocka_unit_test(test_long_sequences), cmocka_unit_test(test_wide_layer),                 \
      cmocka_unit_test(test_wide_sizes), cmocka_unit_test(test_finite_differences),                                              \
      cmocka_unit_test(test_bits_do_not_depend_on_threads), cmocka_unit_test(test_smaller_batch),                                \
      cmocka_unit_test(test_passes_allocate_nothing), cmocka_unit_test(test_nonfinite_is_located), cmocka_unit_test(test_init),  \
      cmocka_unit_test(test_refusals), cmocka_unit_test(test_allocation_failure)

#endif

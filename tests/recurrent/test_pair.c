/* What the recurrent layer does for a cell whose state is a pair (h, c), with a cell that the library does not know:
 *
 *     p_t = tanh(x W_iaᵀ + b_ia + b_ha + h_{t-1} W_haᵀ),   q_t = tanh(x W_ibᵀ + b_ib + b_hb + h_{t-1} W_hbᵀ)
 *     c_t = c_{t-1} / 2 + p_t,   h_t = q_t ∘ tanh(c_t)
 *
 * in float64 alone. (The LSTM goes through the tests of any cell.) */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "recurrent/recurrent.h"
#include "tests/support/support.h"

/* ---- the cell ---- */

/* The row of sample b of the block, step t, in an array of `vectors` H-vectors a sample. */
static double *row(const bppsa_cell_block *k, const void *base, int64_t t, int64_t b, int64_t vectors) {
  return (double *)base + (t * k->batch + k->first + b) * vectors * k->hidden;
}

static void forward(const bppsa_cell_block *k) {
  const int64_t h = k->hidden;
  for (int64_t at = 0; at < k->steps * k->samples; ++at) {
    const int64_t t = 1 + at / k->samples, b = at % k->samples;
    const double *before = row(k, k->h, t - 1, b, 1), *pre = row(k, k->pre, t - 1, b, 2), *c = row(k, k->c, t - 1, b, 1);
    double *state = row(k, k->h, t, b, 1), *cell = row(k, k->c, t, b, 1), *kept = row(k, k->saved, t - 1, b, 2);
    for (int64_t i = 0; i < 2 * h; ++i) {
      double sum = pre[i];
      for (int64_t j = 0; j < h; ++j) {
        sum += ((const double *)k->w_hh_t)[j * k->w_row_t + i] * before[j];
      }
      kept[i] = tanh(sum);
    }
    for (int64_t i = 0; i < h; ++i) {
      cell[i] = c[i] / 2 + kept[i];
      state[i] = kept[h + i] * tanh(cell[i]);
    }
  }
}

/* d_0, d_1 and d_2 of unit i: of p, of q, and from h to c. */
static void slopes(const bppsa_cell_block *k, int64_t t, int64_t b, int64_t i, double d[3]) {
  const double *kept = row(k, k->saved, t - 1, b, 2), p = kept[i], q = kept[k->hidden + i], out = tanh(row(k, k->c, t, b, 1)[i]);
  d[0] = 1 - p * p;
  d[1] = out * (1 - q * q);
  d[2] = q * (1 - out * out);
}

/* The deltas of a step; returns δ of unit i. */
static double step_delta(const bppsa_cell_block *k, int64_t t, int64_t b, int64_t i) {
  const double *g = row(k, k->g, t, b, 2);
  double *delta = row(k, k->delta_x, t - 1, b, 2), d[3];
  slopes(k, t, b, i, d);
  const double through_c = g[k->hidden + i] + d[2] * g[i];
  delta[i] = d[0] * through_c;
  delta[k->hidden + i] = d[1] * g[i];
  return through_c;
}

static void backward(const bppsa_cell_block *k) {
  const int64_t h = k->hidden;
  for (int64_t t = k->steps; t >= 1; --t) {
    for (int64_t b = 0; b < k->samples; ++b) {
      double *before = row(k, k->g, t - 1, b, 2);
      const bool carry = t > 1 || k->input;
      for (int64_t i = 0; i < h; ++i) {
        const double through_c = step_delta(k, t, b, i);
        if (carry) {
          before[h + i] = (k->injected ? before[h + i] : 0) + through_c / 2;
        }
      }
      const double *delta = row(k, k->delta_x, t - 1, b, 2);
      for (int64_t j = 0; carry && j < h; ++j) {
        double sum = k->injected ? before[j] : 0;
        for (int64_t i = 0; i < 2 * h; ++i) {
          sum += ((const double *)k->w_hh)[i * k->w_row + j] * delta[i];
        }
        before[j] = sum;
      }
    }
  }
}

static void coefficients(const bppsa_cell_block *k) {
  for (int64_t at = 0; at < k->steps * k->samples * k->hidden; ++at) {
    const int64_t i = at % k->hidden, b = at / k->hidden % k->samples, t = 1 + at / k->hidden / k->samples;
    double d[3];
    slopes(k, t, b, i, d);
    for (int q = 0; q < 3; ++q) {
      row(k, k->columns[q], t - 1, b, 1)[i] = d[q];
    }
    row(k, k->diagonal, t - 1, b, 1)[i] = 0.5;
  }
}

static void deltas(const bppsa_cell_block *k) {
  for (int64_t at = 0; at < k->steps * k->samples * k->hidden; ++at) {
    (void)step_delta(k, 1 + at / k->hidden / k->samples, at / k->hidden % k->samples, at % k->hidden);
  }
}

static const bppsa_cell halving = {.name = "halving",
                                   .gates = 2,
                                   .matrices = 2,
                                   .diagonal = true,
                                   .pair = true,
                                   .saved = 2,
                                   .forward = {NULL, forward},
                                   .backward = {NULL, backward},
                                   .coefficients = {NULL, coefficients},
                                   .deltas = {NULL, deltas}};

/* ---- a network of it ---- */

static bppsa_recurrent_config config_of(int64_t steps, bool all) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = steps;
  c.batch = 3;
  c.input = 2;
  c.hidden = 4;
  c.layers = 2;
  c.classes = 3;
  c.loss_all = all;
  c.dtype = BPPSA_F64;
  c.input_gradients = true;
  return c;
}

typedef struct {
  double *x, *start, *seed;
  bppsa_model *model;
} network;

static network make(const bppsa_recurrent_config *c, const bppsa_device *device) {
  network n = {.x = uniform(1, c->seq_len * c->batch * c->input, 1),
               .start = uniform(2, c->layers * c->batch * 2 * c->hidden, 0.7),
               .seed = uniform(3, c->seq_len * c->batch * c->classes, 1)};
  assert_int_equal(bppsa_recurrent_create(c, &halving, device, &n.model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(n.model, BPPSA_INIT_ORTHOGONAL, 4), BPPSA_OK);
  return n;
}

static void free_network(network *n) {
  bppsa_model_destroy(n->model);
  bppsa_free(n->x);
  bppsa_free(n->start);
  bppsa_free(n->seed);
}

/* Σ seed ∘ logits */
static double loss_of(const network *n, const bppsa_recurrent_config *c, bppsa_view *logits) {
  const bppsa_view x = bppsa_view_make(n->x, BPPSA_F64, 3, (int64_t[]){c->seq_len, c->batch, c->input});
  const bppsa_view start = bppsa_view_make(n->start, BPPSA_F64, 3, (int64_t[]){c->layers, c->batch, 2 * c->hidden});
  double sum = 0;
  assert_int_equal(n->model->ops->forward(n->model, &x, &start, logits), BPPSA_OK);
  for (int64_t i = 0; i < bppsa_view_count(logits); ++i) {
    sum += n->seed[i] * bppsa_view_get(logits, i);
  }
  return sum;
}

static void run(const network *n, const bppsa_recurrent_config *c) {
  bppsa_view logits;
  (void)loss_of(n, c, &logits);
  const bppsa_view seed = bppsa_view_make(n->seed, BPPSA_F64, logits.ndim, logits.shape);
  assert_int_equal(n->model->ops->backward(n->model, &seed), BPPSA_OK);
}

static void check_differences(const network *n, const bppsa_recurrent_config *c, double *values, const bppsa_view *gradient) {
  const double step = 1e-5;
  bppsa_view logits;
  for (int64_t i = 0; i < bppsa_view_count(gradient); ++i) {
    const double keep = values[i], expected = bppsa_view_get(gradient, i);
    values[i] = keep + step;
    const double above = loss_of(n, c, &logits);
    values[i] = keep - step;
    const double below = loss_of(n, c, &logits);
    values[i] = keep;
    assert_true(fabs((above - below) / (2 * step) - expected) < 1e-8);
  }
}

/* Sequential BP against finite differences: of every weight, the input, and both halves of the initial state. */
static void test_gradients(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  for (int all = 0; all < 2; ++all) {
    bppsa_recurrent_config c = config_of(7, all == 1);
    c.method.backward = BPPSA_BACKWARD_BP;
    network n = make(&c, device);
    run(&n, &c);
    bppsa_view dx, dstart;
    assert_int_equal(n.model->ops->input_gradients(n.model, &dx, &dstart), BPPSA_OK);
    assert_int_equal(dstart.shape[2], 2 * c.hidden);
    for (int64_t i = 0; i < n.model->parameter_count; ++i) {
      check_differences(&n, &c, n.model->parameters[i].value.data, &n.model->parameters[i].gradient);
    }
    check_differences(&n, &c, n.x, &dx);
    check_differences(&n, &c, n.start, &dstart);
    free_network(&n);
  }
  bppsa_device_destroy(device);
}

/* Scans, and windows of BP, against BP of a single window on one thread. */
static void test_methods(void **state) {
  (void)state;
  static const bppsa_scan_algorithm algorithms[] = {BPPSA_SCAN_AUTO, BPPSA_SCAN_LINEAR, BPPSA_SCAN_BLELLOCH, BPPSA_SCAN_CHUNKED};
  static const int64_t lengths[] = {1, 2, 3, 50, 333};
  bppsa_device *device = cpu_device(2);
  for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; ++l) {
    for (int all = 0; all < 2; ++all) {
      bppsa_recurrent_config c = config_of(lengths[l], all == 1);
      c.method.backward = BPPSA_BACKWARD_BP;
      network bp = make(&c, device);
      run(&bp, &c);
      c.method.backward = BPPSA_BACKWARD_SCAN;
      for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; ++a) {
        bppsa_view dx[2], dstart[2];
        c.method.scan = bppsa_scan_method_of(algorithms[a]);
        network n = make(&c, device);
        run(&n, &c);
        assert_int_equal(bp.model->ops->input_gradients(bp.model, &dx[0], &dstart[0]), BPPSA_OK);
        assert_int_equal(n.model->ops->input_gradients(n.model, &dx[1], &dstart[1]), BPPSA_OK);
        const double root = sqrt((double)c.seq_len);
        for (int64_t i = 0; i < n.model->parameter_count; ++i) {
          const bppsa_view *g = &n.model->parameters[i].gradient;
          assert_true(residual(BPPSA_F64, g->data, bp.model->parameters[i].gradient.data, bppsa_view_count(g), root) < 30);
        }
        assert_true(residual(BPPSA_F64, dx[1].data, dx[0].data, bppsa_view_count(&dx[0]), root) < 30);
        assert_true(residual(BPPSA_F64, dstart[1].data, dstart[0].data, bppsa_view_count(&dstart[0]), root) < 30);
        free_network(&n);
      }
      free_network(&bp);
    }
  }
  bppsa_device_destroy(device);
}

/* h and c of every step; c that is infinite where h is not. */
static void test_states(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  const bppsa_recurrent_config c = config_of(5, true);
  network n = make(&c, device);
  bppsa_view h, cell;
  assert_int_equal(bppsa_recurrent_cell_states(n.model, 0, &cell), BPPSA_ERR_ARGUMENT); /* no pass yet */
  run(&n, &c);
  assert_int_equal(bppsa_recurrent_states(n.model, 1, &h), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_cell_states(n.model, 1, &cell), BPPSA_OK);
  assert_true(h.ndim == 3 && h.shape[2] == c.hidden && cell.ndim == 3 && cell.shape[0] == 5 && cell.shape[2] == c.hidden);
  for (int64_t i = 0; i < bppsa_view_count(&h); ++i) {
    assert_true(fabs(bppsa_view_get(&h, i)) < fabs(tanh(bppsa_view_get(&cell, i))));
  }
  bppsa_view seed = bppsa_view_make(n.seed, BPPSA_F64, 3, (int64_t[]){5, c.batch, c.classes}), gradients;
  assert_int_equal(bppsa_recurrent_hidden_gradients(n.model, &seed, &gradients), BPPSA_ERR_SHAPE);
  double *of_h = uniform(6, 5 * c.batch * c.hidden, 1);
  seed = bppsa_view_make(of_h, BPPSA_F64, 3, (int64_t[]){5, c.batch, c.hidden});
  assert_int_equal(bppsa_recurrent_hidden_gradients(n.model, &seed, &gradients), BPPSA_OK);
  assert_int_equal(gradients.shape[2], 2 * c.hidden);
  for (int64_t b = 0; b < c.batch; ++b) { /* the last step has the seed, and nothing of c */
    for (int64_t i = 0; i < 2 * c.hidden; ++i) {
      const double expected = i < c.hidden ? of_h[(4 * c.batch + b) * c.hidden + i] : 0;
      assert_true(bppsa_view_get(&gradients, ((4 * c.batch + b) * 2) * c.hidden + i) == expected);
    }
  }
  bppsa_free(of_h);
  bppsa_nonfinite where;
  n.start[2 * c.hidden + c.hidden + 1] = (double)INFINITY; /* c of layer 0, sample 1: h stays finite */
  run(&n, &c);
  assert_true(bppsa_recurrent_forward_nonfinite(n.model, &where));
  assert_string_equal(where.what, "cell state");
  assert_true(where.layer == 0 && where.step == 0 && where.sample == 1);
  free_network(&n);
  bppsa_device_destroy(device);
}

/* States of a speculative pass with `chunks` chunks in which the pair must agree in both halves: with tolerance 0 they are the
 * sequential pass's. */
static void test_parallel_forward(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  for (int64_t chunks = 2; chunks <= 40; chunks += 19) {
    bppsa_recurrent_config c = config_of(200, false);
    bppsa_model *models[2] = {NULL, NULL};
    bppsa_view views[2][2];
    double *x = uniform(1, c.seq_len * c.batch * c.input, 1), *start = uniform(2, 2 * c.layers * c.batch * c.hidden, 1);
    const bppsa_view in = bppsa_view_make(x, BPPSA_F64, 3, (int64_t[]){c.seq_len, c.batch, c.input});
    const bppsa_view h0 = bppsa_view_make(start, BPPSA_F64, 3, (int64_t[]){c.layers, c.batch, 2 * c.hidden});
    for (int i = 0; i < 2; ++i) {
      c.forward = (bppsa_forward_method){.kind = i == 0 ? BPPSA_FORWARD_SEQUENTIAL : BPPSA_FORWARD_SPECULATIVE,
                                         .chunks = chunks,
                                         .warm_up = 5,
                                         .rounds = chunks == 2 ? 0 : -1};
      assert_int_equal(bppsa_recurrent_create(&c, &halving, device, &models[i]), BPPSA_OK);
      assert_int_equal(bppsa_recurrent_init(models[i], BPPSA_INIT_DEFAULT, 3), BPPSA_OK);
      assert_int_equal(bppsa_recurrent_forward_layers(models[i], &in, &h0), BPPSA_OK);
    }
    bppsa_forward_stats stats;
    assert_int_equal(bppsa_forward_stats_of(models[1], &stats), BPPSA_OK);
    assert_true(stats.speculated && stats.mended > 0 && stats.gap == 0 && (chunks > 2 || stats.tails > 0));
    for (int64_t l = 0; l < c.layers; ++l) {
      for (int i = 0; i < 2; ++i) {
        assert_int_equal(bppsa_recurrent_states(models[i], l, &views[i][0]), BPPSA_OK);
        assert_int_equal(bppsa_recurrent_cell_states(models[i], l, &views[i][1]), BPPSA_OK);
      }
      for (int half = 0; half < 2; ++half) {
        assert_memory_equal(views[0][half].data, views[1][half].data, bppsa_view_bytes(&views[0][half]));
      }
    }
    bppsa_model_destroy(models[0]);
    bppsa_model_destroy(models[1]);
    bppsa_free(x);
    bppsa_free(start);
  }
  bppsa_device_destroy(device);
}

/* AUTO takes a parallel forward pass for a long sequence on a GPU, and on a processor where the layer has at least 64 units. */
static void test_parallel_plans(void **state) {
  (void)state;
  bppsa_forward_shape shape = {.seq_len = 30000,
                               .batch = 1,
                               .input = 1,
                               .hidden = 20,
                               .gates = 2,
                               .dtype = BPPSA_F32,
                               .device = BPPSA_CUDA,
                               .multiprocessors = 132,
                               .most_hidden = BPPSA_FORWARD_GPU_HIDDEN};
  bppsa_forward_method m = bppsa_forward_method_default();
  bppsa_forward_plan plan;
  m.kind = BPPSA_FORWARD_AUTO;
  assert_int_equal(bppsa_forward_plan_make(&m, &shape, &plan), BPPSA_OK);
  assert_true(plan.speculative);
  shape.device = BPPSA_CPU;
  assert_int_equal(bppsa_forward_plan_make(&m, &shape, &plan), BPPSA_OK);
  assert_false(plan.speculative);
  shape.hidden = 64;
  assert_int_equal(bppsa_forward_plan_make(&m, &shape, &plan), BPPSA_OK);
  assert_true(plan.speculative);
}

/* What is wrong is refused in a sentence. */
static void test_refusals(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_recurrent_config c = config_of(5, false);
  bppsa_model *model = NULL;
  bppsa_view cell;
  bppsa_cell wrong = halving;
  wrong.diagonal = false;
  assert_int_equal(bppsa_recurrent_create(&c, &wrong, device, &model), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "cell 'halving': a pair without a diagonal, expected e, which leads from c to c");
  c.seq_len = 5000;
  assert_int_equal(bppsa_recurrent_create(&c, &halving, device, &model), BPPSA_OK);
  double *x = uniform(1, 5000 * c.batch * c.input, 1);
  const bppsa_view view = bppsa_view_make(x, BPPSA_F64, 3, (int64_t[]){5000, c.batch, c.input});
  const bppsa_view h0 = bppsa_view_make(x, BPPSA_F64, 3, (int64_t[]){c.layers, c.batch, c.hidden});
  assert_int_equal(bppsa_recurrent_forward_layers(model, &view, &h0), BPPSA_ERR_SHAPE);
  assert_string_equal(bppsa_last_error(), "h0: f64 [2, 3, 4], expected f64 [2, 3, 8]");
  bppsa_model_destroy(model);
  wrong = halving;
  wrong.pair = false;
  assert_int_equal(bppsa_recurrent_create(&c, &wrong, device, &model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_cell_states(model, 0, &cell), BPPSA_ERR_UNSUPPORTED);
  bppsa_model_destroy(model);
  bppsa_free(x);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients),      cmocka_unit_test(test_methods),
                                     cmocka_unit_test(test_states),         cmocka_unit_test(test_parallel_forward),
                                     cmocka_unit_test(test_parallel_plans), cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

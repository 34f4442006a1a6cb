/* Networks with two directions: beside the textbook's equations, sample by sample, for every cell of the library, by BP and by
 * every scan, of whole samples and of samples that have lengths; with dropout beside difference quotients. */
#include "recurrent/chain.h"
#include "tests/recurrent/passes.h"
#include "tests/support/gru_reference.h"
#include "tests/support/lstm_reference.h"
#include "tests/support/rnn_reference.h"

enum { STEPS = 11, BATCH = 5, INPUT = 3, HIDDEN = 4, CLASSES = 6, MOST_LAYERS = 3, SIDES = 2 * MOST_LAYERS };

static const cell_reference cells[] = {RNN_REFERENCE, GRU_REFERENCE, LSTM_REFERENCE};
enum { CELLS = sizeof cells / sizeof *cells };

static const int64_t mixed[BATCH] = {4, 11, 1, 7, 4}, whole[BATCH] = {11, 11, 11, 11, 11}, samples[BATCH] = {70, 3, 41, 12, 5};

static bppsa_recurrent_config config_of(bppsa_dtype dtype, const bppsa_gradient_method *method, bool all, int64_t layers) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = STEPS;
  c.batch = BATCH;
  c.input = INPUT;
  c.hidden = HIDDEN;
  c.layers = layers;
  c.classes = CLASSES;
  c.dtype = dtype;
  c.method = *method;
  c.loss_all = all;
  c.input_gradients = true;
  c.bidirectional = true;
  return c;
}

/* Σ seed · logits */
static double forward(run *r, const int64_t *lengths) {
  double sum = 0;
  assert_int_equal(bppsa_model_forward(r->model, &r->x, &r->h0, &(bppsa_spans){.lengths = lengths}, &r->logits), BPPSA_OK);
  for (int64_t i = 0; i < bppsa_view_count(&r->logits); ++i) {
    sum += bppsa_view_get(&r->logits, i) * bppsa_view_get(&r->seed, i);
  }
  return sum;
}

/* ---- the textbook ---- */

/* One sample in float64. Arrays of a direction are in the order in which it walks. */
typedef struct {
  const cell_reference *cell;
  const run *r;
  int64_t sample, steps, size;                 /* size: of a state */
  double states[SIDES][STEPS + 1][2 * HIDDEN]; /* [direction of a layer][step] */
  double px[SIDES][STEPS][4 * HIDDEN], ph[SIDES][STEPS][4 * HIDDEN];
  double in[MOST_LAYERS + 1][STEPS][2 * HIDDEN];    /* inputs of each layer, then the outputs, in the order of time */
  double of_in[MOST_LAYERS + 1][STEPS][2 * HIDDEN]; /* their gradients */
  double of_h0[SIDES][2 * HIDDEN];
} sample_run;

/* A parameter's value or, in float64, its gradient; NULL: the network has none. */
static const bppsa_view *parameter(const run *r, int64_t side, int64_t which) {
  const int64_t of_side = r->config.no_bias ? 2 : 4;
  return which >= of_side ? NULL : &r->model->parameters[side * of_side + which].value;
}

static double *gradient_of(double **gradients, const run *r, int64_t side, int64_t which) {
  const int64_t of_side = r->config.no_bias ? 2 : 4;
  return which >= of_side ? NULL : gradients[side * of_side + which];
}

static int64_t time_of(const sample_run *s, int64_t side, int64_t step) {
  return side % 2 == 0 ? step : s->steps - 1 - step;
}

static int64_t width_of(const run *r, int64_t layer) {
  return layer == 0 ? r->config.input : 2 * r->config.hidden;
}

/* to [out] = W in + b */
static void apply(const bppsa_view *w, const bppsa_view *b, int64_t out, int64_t width, const double *in, double *to) {
  for (int64_t j = 0; j < out; ++j) {
    to[j] = b != NULL ? bppsa_view_get(b, j) : 0;
    for (int64_t k = 0; k < width; ++k) {
      to[j] += bppsa_view_get(w, j * width + k) * in[k];
    }
  }
}

/* dw += d inᵀ, db += d, din += Wᵀ d */
static void apply_back(const bppsa_view *w, int64_t out, int64_t width, const double *in, const double *d, double *dw, double *db,
                       double *din) {
  for (int64_t j = 0; j < out; ++j) {
    for (int64_t k = 0; k < width; ++k) {
      dw[j * width + k] += d[j] * in[k];
      din[k] += bppsa_view_get(w, j * width + k) * d[j];
    }
    if (db != NULL) {
      db[j] += d[j];
    }
  }
}

static void walk(sample_run *s, int64_t side) {
  const run *r = s->r;
  const int64_t hidden = r->config.hidden, layer = side / 2, batch = r->x.shape[1], gates = s->cell->gates * hidden;
  for (int64_t i = 0; i < s->size; ++i) {
    s->states[side][0][i] = bppsa_view_get(&r->h0, (side * batch + s->sample) * s->size + i);
  }
  for (int64_t k = 0; k < s->steps; ++k) {
    const int64_t t = time_of(s, side, k);
    double *before = s->states[side][k], *h = s->states[side][k + 1];
    apply(parameter(r, side, 0), parameter(r, side, 2), gates, width_of(r, layer), s->in[layer][t], s->px[side][k]);
    apply(parameter(r, side, 1), parameter(r, side, 3), gates, hidden, before, s->ph[side][k]);
    s->cell->forward(&r->config, s->px[side][k], s->ph[side][k], before, h);
    memcpy(s->in[layer + 1][t] + side % 2 * hidden, h, (size_t)hidden * sizeof *h);
  }
}

/* ends: the gradient of h after the last step, or NULL. */
static void walk_back(sample_run *s, int64_t side, const double *ends, double **gradients) {
  const run *r = s->r;
  const int64_t hidden = r->config.hidden, layer = side / 2, gates = s->cell->gates * hidden;
  double g[2 * HIDDEN] = {0}, dx[4 * HIDDEN], dh[4 * HIDDEN], carried[2 * HIDDEN];
  for (int64_t i = 0; ends != NULL && i < hidden; ++i) {
    g[i] = ends[i];
  }
  for (int64_t k = s->steps - 1; k >= 0; --k) {
    const int64_t t = time_of(s, side, k);
    double *before = s->states[side][k];
    for (int64_t i = 0; i < hidden; ++i) {
      g[i] += s->of_in[layer + 1][t][side % 2 * hidden + i];
    }
    memset(carried, 0, sizeof carried);
    s->cell->backward(&r->config, s->px[side][k], s->ph[side][k], before, s->states[side][k + 1], g, dx, dh, carried);
    memcpy(g, carried, sizeof g);
    apply_back(parameter(r, side, 0), gates, width_of(r, layer), s->in[layer][t], dx, gradient_of(gradients, r, side, 0),
               gradient_of(gradients, r, side, 2), s->of_in[layer][t]);
    apply_back(parameter(r, side, 1), gates, hidden, before, dh, gradient_of(gradients, r, side, 1),
               gradient_of(gradients, r, side, 3), g);
  }
  memcpy(s->of_h0[side], g, sizeof g);
}

/* The outputs of row t (or the last ones) through the head; of_rows: their gradient. */
static void head(sample_run *s, int64_t t, const double *row, double *of_row, double *logits, double **gradients) {
  const run *r = s->r;
  const int64_t outputs = outputs_of(&r->config), width = 2 * r->config.hidden, at = (t * r->x.shape[1] + s->sample) * outputs;
  const bppsa_parameter *w = &r->model->parameters[r->model->parameter_count - 2];
  double seed[CLASSES + 2 * HIDDEN];
  for (int64_t i = 0; i < outputs; ++i) {
    seed[i] = bppsa_view_get(&r->seed, at + i);
    logits[at + i] = row[i < width ? i : 0];
    of_row[i < width ? i : 0] = r->config.no_head ? seed[i] : 0;
  }
  if (!r->config.no_head) {
    memset(of_row, 0, (size_t)width * sizeof *of_row);
    apply(&w[0].value, &w[1].value, outputs, width, row, logits + at);
    apply_back(&w[0].value, outputs, width, row, seed, gradients[r->model->parameter_count - 2],
               gradients[r->model->parameter_count - 1], of_row);
  }
}

/* What the textbook has for a run, in the shapes of the library's arrays. */
typedef struct {
  double *logits, *dx, *dh0, **gradients;
} textbook;

static void compute_sample(sample_run *s, textbook *e) {
  const run *r = s->r;
  const int64_t hidden = r->config.hidden, layers = r->config.layers, sides = 2 * layers, batch = r->x.shape[1];
  double ends[2 * HIDDEN], of_ends[2 * HIDDEN];
  for (int64_t i = 0; i < s->steps * INPUT; ++i) {
    s->in[0][i / INPUT][i % INPUT] = bppsa_view_get(&r->x, (i / INPUT * batch + s->sample) * INPUT + i % INPUT);
  }
  for (int64_t side = 0; side < sides; ++side) {
    walk(s, side);
  }
  for (int64_t i = 0; i < 2 * hidden; ++i) {
    ends[i] = s->states[sides - 2 + i / hidden][s->steps][i % hidden];
  }
  for (int64_t t = 0; r->config.loss_all && t < s->steps; ++t) {
    head(s, t, s->in[layers][t], s->of_in[layers][t], e->logits, e->gradients);
  }
  if (!r->config.loss_all) {
    head(s, 0, ends, of_ends, e->logits, e->gradients);
  }
  for (int64_t side = sides - 1; side >= 0; --side) {
    const bool from_ends = !r->config.loss_all && side / 2 + 1 == layers;
    walk_back(s, side, from_ends ? of_ends + side % 2 * hidden : NULL, e->gradients);
  }
  for (int64_t i = 0; i < s->steps * INPUT; ++i) {
    e->dx[(i / INPUT * batch + s->sample) * INPUT + i % INPUT] = s->of_in[0][i / INPUT][i % INPUT];
  }
  for (int64_t i = 0; i < sides * s->size; ++i) {
    e->dh0[(i / s->size * batch + s->sample) * s->size + i % s->size] = s->of_h0[i / s->size][i % s->size];
  }
}

static double *zeros_like(const bppsa_view *view) {
  double *made = bppsa_calloc(bppsa_view_count(view), sizeof *made);
  assert_non_null(made);
  return made;
}

static void assert_close(const run *r, const bppsa_view *found, double *expected, const char *what) {
  const double size = residual(r->config.dtype, found->data, expected, bppsa_view_count(found), sqrt((double)STEPS));
  if (!(size < 30)) {
    fail_msg("%s: %s: residual %g", r->cell->name, what, size);
  }
  bppsa_free(expected);
}

/* Logits and all gradients of a run beside the textbook's. lengths NULL: all samples have all steps. */
static void check_run(const cell_reference *cell, run *r, const int64_t *lengths) {
  textbook e = {.gradients = bppsa_calloc(r->model->parameter_count, sizeof *e.gradients)};
  static sample_run s;
  compute(r, lengths);
  e.logits = zeros_like(&r->logits);
  e.dx = zeros_like(&r->dx);
  e.dh0 = zeros_like(&r->dh0);
  for (int64_t p = 0; p < r->model->parameter_count; ++p) {
    e.gradients[p] = zeros_like(&r->model->parameters[p].value);
  }
  for (int64_t b = 0; b < r->x.shape[1]; ++b) {
    s = (sample_run){
        .cell = cell, .r = r, .sample = b, .steps = lengths != NULL ? lengths[b] : r->config.seq_len, .size = r->h0.shape[2]};
    compute_sample(&s, &e);
  }
  assert_close(r, &r->logits, e.logits, "logits");
  assert_close(r, &r->dx, e.dx, "gradient of x");
  assert_close(r, &r->dh0, e.dh0, "gradient of h0");
  for (int64_t p = 0; p < r->model->parameter_count; ++p) {
    assert_close(r, &r->model->parameters[p].gradient, e.gradients[p], r->model->parameters[p].name);
  }
  bppsa_free(e.gradients);
}

/* ---- tests ---- */

/* Layers 1 .. 3, both real types, both losses, with and without a head and biases, lengths, every method, a batch that is smaller
 * than the planned one. */
static void test_textbook(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * METHODS * MOST_LAYERS * 8; ++k) {
    const int which = k / CELLS / METHODS / MOST_LAYERS;
    bppsa_recurrent_config config = config_of(which % 2 == 0 ? BPPSA_F64 : BPPSA_F32, &methods[k / CELLS % METHODS],
                                              which / 2 % 2 == 1, 1 + k / CELLS / METHODS % MOST_LAYERS);
    config.lengths = which >= 4;
    config.no_head = k % 7 == 0;
    config.no_bias = k % 5 == 0;
    const int64_t batch = k % 3 == 0 ? BATCH - 2 : BATCH;
    run r = open_run(cells[k % CELLS].cell, &config, batch, 2);
    if (config.lengths) {
      spoil(&r, mixed);
    }
    check_run(&cells[k % CELLS], &r, config.lengths ? mixed : NULL);
    bppsa_nonfinite where;
    assert_false(r.model->ops->find_nonfinite(r.model, &where));
    close_run(&r);
  }
}

/* One step, one sample, one unit. */
static void test_smallest(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * METHODS * 3; ++k) {
    bppsa_recurrent_config config = config_of(BPPSA_F64, &methods[k / CELLS % METHODS], k % 2 == 0, 2);
    config.seq_len = 1 + k / CELLS / METHODS;
    config.hidden = 1 + k % 2;
    run r = open_run(cells[k % CELLS].cell, &config, 1, 1);
    check_run(&cells[k % CELLS], &r, NULL);
    close_run(&r);
  }
}

/* With dropout the gradients are the difference quotients of Σ seed · logits, in which the same numbers are left out. */
static void test_dropout(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 4; ++k) {
    bppsa_recurrent_config config = config_of(BPPSA_F64, &methods[k / CELLS % 2 == 0 ? 0 : 2], k % 2 == 0, 3);
    const int64_t *lengths = k / CELLS >= 2 ? mixed : NULL;
    config.lengths = lengths != NULL;
    config.dropout = 0.4;
    config.dropout_seed = 9;
    run r = open_run(cells[k % CELLS].cell, &config, BATCH, 1);
    const double without = forward(&r, lengths);
    bppsa_model_drop(r.model, 7, samples);
    assert_true(forward(&r, lengths) != without);
    compute(&r, lengths);
    for (int64_t p = -1; p < r.model->parameter_count; ++p) {
      const bppsa_view *value = p < 0 ? &r.x : &r.model->parameters[p].value;
      const bppsa_view *gradient = p < 0 ? &r.dx : &r.model->parameters[p].gradient;
      const int64_t count = bppsa_view_count(value), stride = count > 12 ? count / 12 : 1;
      for (int64_t i = 0; i < count; i += stride) {
        const double kept = bppsa_view_get(value, i), h = 1e-5;
        bppsa_view_set(value, i, kept + h);
        const double up = forward(&r, lengths);
        bppsa_view_set(value, i, kept - h);
        const double down = forward(&r, lengths);
        bppsa_view_set(value, i, kept);
        assert_true(fabs((up - down) / (2 * h) - bppsa_view_get(gradient, i)) < 1e-8);
      }
    }
    close_run(&r);
  }
}

/* Any number of threads gives the same bits, also where the copies are long enough for several of them; lengths that are all T give
 * those of a network without lengths. */
static void test_bits(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * METHODS * 2; ++k) {
    bppsa_recurrent_config config = config_of(BPPSA_F32, &methods[k / CELLS / 2], k / CELLS % 2 == 1, 2);
    config.lengths = true;
    config.dropout = k % 2 == 0 ? 0.3 : 0;
    config.hidden = k < CELLS ? 100 : HIDDEN;
    bppsa_recurrent_config plain = config;
    plain.lengths = false;
    run one = open_run(cells[k % CELLS].cell, &config, BATCH, 1), three = open_run(cells[k % CELLS].cell, &config, BATCH, 3);
    run without = open_run(cells[k % CELLS].cell, &plain, BATCH, 1);
    run *const all[] = {&one, &three, &without};
    for (int i = 0; i < 3; ++i) {
      bppsa_model_drop(all[i]->model, 3, samples);
    }
    compute(&one, mixed);
    compute(&three, mixed);
    assert_same_runs(&one, &three);
    compute(&one, whole);
    compute(&three, NULL);
    compute(&without, NULL);
    assert_same_runs(&one, &three);
    assert_same_runs(&one, &without);
    close_run(&one);
    close_run(&three);
    close_run(&without);
  }
}

/* The states of a layer, both directions in the order of time: without a head those of the top layer are the outputs. */
static void test_states(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 2; ++k) {
    bppsa_recurrent_config config = config_of(BPPSA_F64, &methods[0], true, 2);
    config.no_head = config.lengths = true;
    run r = open_run(cells[k % CELLS].cell, &config, BATCH, 1);
    const int64_t *lengths = k < CELLS ? mixed : NULL;
    bppsa_view states;
    (void)forward(&r, lengths);
    assert_int_equal(bppsa_recurrent_states(r.model, 1, &states), BPPSA_OK);
    assert_same_bits(&states, &r.logits);
    assert_int_equal(bppsa_recurrent_states(r.model, 0, &states), BPPSA_OK);
    assert_int_equal(states.shape[2], 2 * HIDDEN);
    if (cells[k % CELLS].pair) {
      assert_int_equal(bppsa_recurrent_cell_states(r.model, 1, &states), BPPSA_OK);
      for (int64_t i = 0; i < bppsa_view_count(&states); ++i) { /* |h| = |o tanh c| < |c| */
        assert_true(fabs(bppsa_view_get(&r.logits, i)) <= fabs(bppsa_view_get(&states, i)));
      }
    }
    assert_error(bppsa_recurrent_states(r.model, 2, &states), BPPSA_ERR_ARGUMENT, "states of layer 2, expected 0 .. 1");
    close_run(&r);
  }
}

/* A speculative forward pass takes each direction by itself. */
static void test_speculative(void **state) {
  (void)state;
  for (int k = 0; k < CELLS; ++k) {
    bppsa_recurrent_config config = config_of(BPPSA_F64, &methods[0], true, 2);
    config.seq_len = 200;
    config.input = 2 * HIDDEN; /* as wide as the inputs above it */
    run sequential = open_run(cells[k].cell, &config, BATCH, 1);
    config.forward.kind = BPPSA_FORWARD_SPECULATIVE;
    config.forward.chunks = 4;
    run r = open_run(cells[k].cell, &config, BATCH, 2);
    bppsa_forward_stats stats;
    compute(&sequential, NULL);
    compute(&r, NULL);
    assert_int_equal(bppsa_forward_stats_of(r.model, &stats), BPPSA_OK);
    assert_true(stats.speculated);
    assert_int_equal(stats.possible, 4 * 200);
    for (int64_t i = 0; i < bppsa_view_count(&r.logits); ++i) {
      assert_true(fabs(bppsa_view_get(&r.logits, i) - bppsa_view_get(&sequential.logits, i)) < 1e-9);
    }
    close_run(&r);
    close_run(&sequential);
  }
}

/* A value that is not finite is found at its step: in x of a sample by the forward direction, which comes first; in h0 of the
 * reverse direction at the sample's last step; in a seed. */
static void test_nonfinite(void **state) {
  (void)state;
  static const struct {
    const char *what;
    int64_t layer, step, sample;
  } found[] = {{"hidden state", 0, 6, 3},
               {"reverse hidden state", 0, 0, 3},
               {"gradient of the reverse hidden state", 1, 3, 1},
               {"reverse hidden state", 0, 4, 4}};
  for (int k = 0; k < 4; ++k) {
    bppsa_recurrent_config config = config_of(BPPSA_F64, &methods[k % 2 == 0 ? 0 : METHODS - 1], true, 2);
    config.lengths = true;
    config.nonlinearity = k == 3 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
    run r = open_run(cells[k == 3 ? 0 : 1].cell, &config, BATCH, 1);
    bppsa_nonfinite where;
    if (k == 0) {
      bppsa_view_set(&r.x, (5 * BATCH + 3) * INPUT, (double)NAN);
    } else if (k == 1) {
      bppsa_view_set(&r.h0, (BATCH + 3) * HIDDEN, (double)NAN);
    } else if (k == 2) {
      bppsa_view_set(&r.seed, (2 * BATCH + 1) * CLASSES, (double)NAN);
    } else if (k == 3) { /* the forward direction does not see x, the reverse one overflows */
      for (int64_t i = 0; i < bppsa_view_count(&r.model->parameters[0].value); ++i) {
        bppsa_view_set(&r.model->parameters[0].value, i, 0);
        bppsa_view_set(&r.model->parameters[4].value, i, 10);
      }
      bppsa_view_set(&r.x, (3 * BATCH + 4) * INPUT, 1e308);
    }
    compute(&r, mixed);
    assert_true(r.model->ops->find_nonfinite(r.model, &where));
    assert_string_equal(where.what, found[k].what);
    assert_int_equal(where.layer, found[k].layer);
    assert_int_equal(where.step, found[k].step);
    assert_int_equal(where.sample, found[k].sample);
    close_run(&r);
  }
}

/* PyTorch's names in PyTorch's order, from which the architecture is found again. */
static void test_names(void **state) {
  (void)state;
  static const char *const names[] = {"gru.weight_ih_l0",       "gru.weight_hh_l0",         "gru.bias_ih_l0",
                                      "gru.bias_hh_l0",         "gru.weight_ih_l0_reverse", "gru.weight_hh_l0_reverse",
                                      "gru.bias_ih_l0_reverse", "gru.bias_hh_l0_reverse",   "gru.weight_ih_l1"};
  enum { NAMES = sizeof names / sizeof *names, TENSORS = 18 };
  const bppsa_recurrent_config config = config_of(BPPSA_F64, &methods[0], false, 2);
  run r = open_run(cells[1].cell, &config, BATCH, 1);
  bppsa_recurrent_config found = bppsa_recurrent_config_default();
  bppsa_named_view tensors[TENSORS];
  assert_int_equal(r.model->parameter_count, TENSORS);
  for (int64_t i = 0; i < TENSORS; ++i) {
    tensors[i] = (bppsa_named_view){r.model->parameters[i].name, r.model->parameters[i].value};
    assert_true(i >= NAMES || strcmp(tensors[i].name, names[i]) == 0);
  }
  assert_string_equal(tensors[15].name, "gru.bias_hh_l1_reverse");
  assert_string_equal(tensors[16].name, "linear.weight");
  assert_int_equal(bppsa_recurrent_infer("weights", "gru", 3, TENSORS, tensors, &found), BPPSA_OK);
  assert_true(found.bidirectional);
  assert_int_equal(found.layers, 2);
  assert_int_equal(found.hidden, HIDDEN);
  assert_int_equal(found.input, INPUT);
  assert_int_equal(found.classes, CLASSES);
  const char *name = tensors[13].name;
  tensors[13].name = "gru.weight_hh_l2_reverse";
  assert_error(bppsa_recurrent_infer("weights", "gru", 3, TENSORS, tensors, &found), BPPSA_ERR_FORMAT,
               "tensor 'gru.weight_hh_l1_reverse' is missing");
  tensors[13].name = name;
  tensors[4].name = "gru.weight_ih_l7_reverse";
  assert_error(bppsa_recurrent_infer("weights", "gru", 3, TENSORS, tensors, &found), BPPSA_ERR_SHAPE,
               "tensor 'gru.weight_ih_l1' has shape [12, 8], expected [12, 4]");
  tensors[4].name = names[4];
  tensors[16].view.shape[1] = HIDDEN;
  assert_error(bppsa_recurrent_infer("weights", "gru", 3, TENSORS, tensors, &found), BPPSA_ERR_SHAPE,
               "tensor 'linear.weight' has shape [6, 4], expected [C, 8]");
  close_run(&r);
}

static bppsa_status create(void *argument) {
  bppsa_model *model = NULL;
  bppsa_device *device = NULL;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  const bppsa_status status = bppsa_recurrent_create(argument, cells[2].cell, device, &model);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  return status;
}

/* Passes allocate nothing; every failing allocation of a creation is reported; a memory limit counts the arrays. */
static void test_memory(void **state) {
  (void)state;
  bppsa_recurrent_config config = config_of(BPPSA_F32, &methods[METHODS - 1], false, 2);
  config.lengths = true;
  config.dropout = 0.5;
  run r = open_run(cells[2].cell, &config, BATCH, 2);
  bppsa_model_drop(r.model, 1, samples);
  compute(&r, mixed);
  bppsa_alloc_fail_at(1);
  compute(&r, whole);
  assert_int_equal(bppsa_alloc_calls(), 0);
  bppsa_alloc_fail_at(0);
  close_run(&r);
  assert_true(walk_allocations(create, &config) > 30);
  config.memory_limit = 1000;
  assert_int_equal(create(&config), BPPSA_ERR_ARGUMENT);
}

static bppsa_status take_gradients(void *context, int64_t layer, const void *g) {
  (void)context, (void)layer, (void)g;
  return BPPSA_OK;
}

static void test_refusals(void **state) {
  (void)state;
  bppsa_recurrent_config config = config_of(BPPSA_F64, &methods[0], true, 1);
  run r = open_run(cells[0].cell, &config, BATCH, 1);
  bppsa_view view;
  bppsa_chain *chain;
  const bppsa_view few = bppsa_view_make(r.h0.data, BPPSA_F64, 3, (int64_t[]){1, BATCH, HIDDEN});
  assert_error(bppsa_model_forward(r.model, &r.x, &few, NULL, &r.logits), BPPSA_ERR_SHAPE, "expected f64 [2, 5, 4]");
  (void)forward(&r, NULL);
  assert_error(bppsa_recurrent_hidden_gradients(r.model, &r.seed, &view), BPPSA_ERR_UNSUPPORTED,
               "gradients of the states in two directions");
  assert_error(bppsa_recurrent_chain_create(&config, cells[0].cell, r.device, &chain), BPPSA_ERR_UNSUPPORTED,
               "chain: two directions");
  config.ends.after = take_gradients;
  assert_error(create(&config), BPPSA_ERR_UNSUPPORTED, "two directions in a part of a sequence");
  config.ends.after = NULL;
  config.part = (bppsa_forward_part){.seq_len = 2 * STEPS};
  assert_error(create(&config), BPPSA_ERR_UNSUPPORTED, "two directions in a part of a sequence");
  close_run(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_textbook),  cmocka_unit_test(test_smallest),
                                     cmocka_unit_test(test_dropout),   cmocka_unit_test(test_bits),
                                     cmocka_unit_test(test_states),    cmocka_unit_test(test_speculative),
                                     cmocka_unit_test(test_nonfinite), cmocka_unit_test(test_names),
                                     cmocka_unit_test(test_memory),    cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

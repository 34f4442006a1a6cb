/* The parallel backward pass (recurrent/parallel_backward.h): gradients of random networks against float64 and against BP's own
 * rounding, what a pass costs, a network whose gradients come back after they have all but vanished, bits, and refusals. (The file
 * is long because one set of networks serves plans, passes and refusals.) */
#include "recurrent/parallel_backward.h"

#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/recurrent/own_error.h"
#include "tests/recurrent/passes.h"
#include "tests/support/dice.h"

static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};

enum { CELLS = sizeof cells / sizeof *cells, ORDERS = 3, MOST_HIDDEN = 64, MOST_PARAMETERS_OF_ALL = 32 };

/* The network of a configuration in float64 or float32, with weights and inputs that are float32 numbers. */
typedef struct {
  const bppsa_cell *cell;
  bppsa_recurrent_config config;
  double scale; /* of W_hh */
  const int64_t *lengths;
  const int64_t *order; /* of the units; NULL: as they are */
} problem;

/* Where number i of a parameter stands when units are in another order. */
static int64_t moved(const problem *p, const bppsa_parameter *parameter, int64_t i) {
  const int64_t hidden = p->config.hidden, columns = parameter->value.ndim == 2 ? parameter->value.shape[1] : 1;
  const bool head = strstr(parameter->name, "linear.") != NULL, first = strstr(parameter->name, "weight_ih_l0") != NULL;
  int64_t row = i / columns, column = i % columns;
  if (p->order == NULL) {
    return i;
  }
  row = head ? row : row / hidden * hidden + p->order[row % hidden];
  if (parameter->value.ndim == 2 && !first) {
    column = column / hidden * hidden + p->order[column % hidden];
  }
  return row * columns + column;
}

/* Gradients of all parameters in the order of the units as they were, which the caller frees. */
typedef struct {
  int64_t count;
  double *of[MOST_PARAMETERS_OF_ALL];
  int64_t sizes[MOST_PARAMETERS_OF_ALL];
  bppsa_backward_stats stats;
  bppsa_backward_plan plan;
} gradients;

static void free_gradients(gradients *g) {
  for (int64_t i = 0; i < g->count; ++i) {
    bppsa_free(g->of[i]);
  }
}

static gradients gradients_of(const problem *p, bppsa_dtype dtype, bppsa_backward backward) {
  bppsa_recurrent_config f32 = p->config, c = p->config;
  gradients found = {0};
  f32.dtype = BPPSA_F32;
  f32.method.backward = BPPSA_BACKWARD_BP;
  c.dtype = dtype;
  c.method.backward = backward;
  run weights = open_run(p->cell, &f32, c.batch, 1), r = open_run(p->cell, &c, c.batch, 1);
  found.count = r.model->parameter_count;
  assert_true(found.count <= MOST_PARAMETERS_OF_ALL);
  for (int64_t i = 0; i < found.count; ++i) {
    const bppsa_parameter *from = &weights.model->parameters[i];
    const double scale = strstr(from->name, "weight_hh") != NULL ? p->scale : 1;
    for (int64_t j = 0; j < bppsa_view_count(&from->value); ++j) {
      bppsa_view_set(&r.model->parameters[i].value, moved(p, from, j), (double)(float)(scale * bppsa_view_get(&from->value, j)));
    }
  }
  bppsa_view *const to[] = {&r.x, &r.seed}, *const of[] = {&weights.x, &weights.seed};
  for (int k = 0; k < 2; ++k) {
    for (int64_t j = 0; j < bppsa_view_count(of[k]); ++j) {
      bppsa_view_set(to[k], j, bppsa_view_get(of[k], j));
    }
  }
  assert_int_equal(bppsa_model_forward(r.model, &r.x, NULL, &(bppsa_spans){.lengths = p->lengths}, &r.logits), BPPSA_OK);
  assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
  assert_int_equal(bppsa_backward_stats_of(r.model, &found.stats), BPPSA_OK);
  found.plan = bppsa_backward_plan_of(r.model) != NULL ? *bppsa_backward_plan_of(r.model) : (bppsa_backward_plan){0};
  for (int64_t i = 0; i < found.count; ++i) {
    const bppsa_parameter *of_i = &r.model->parameters[i];
    found.sizes[i] = bppsa_view_count(&of_i->gradient);
    found.of[i] = bppsa_calloc(found.sizes[i], sizeof(double));
    for (int64_t j = 0; j < found.sizes[i]; ++j) {
      found.of[i][j] = bppsa_view_get(&of_i->gradient, moved(p, of_i, j));
    }
  }
  close_run(&weights);
  close_run(&r);
  return found;
}

/* The largest error over the largest number, of any parameter. Infinite where one is finite and the other is not. */
static double error_of(const gradients *found, const gradients *exact) {
  double worst = 0;
  for (int64_t i = 0; i < exact->count; ++i) {
    double largest = 0, error = 0;
    for (int64_t j = 0; j < exact->sizes[i]; ++j) {
      const double difference = fabs(found->of[i][j] - exact->of[i][j]);
      largest = fmax(largest, fabs(exact->of[i][j]));
      error = isfinite(difference) ? fmax(error, difference) : (double)INFINITY;
    }
    worst = error > 0 ? fmax(worst, error / largest) : worst;
  }
  return worst;
}

static bool same_numbers(const gradients *a, const gradients *b) {
  for (int64_t i = 0; i < a->count; ++i) {
    if (memcmp(a->of[i], b->of[i], (size_t)a->sizes[i] * sizeof(double)) != 0) {
      return false;
    }
  }
  return true;
}

/* The error of BP in float32: the largest of some orders of the units. */
static double own_error(problem p, const gradients *exact, dice *d) {
  double worst = 0;
  for (int order = 0; order < ORDERS; ++order) {
    int64_t units[MOST_HIDDEN];
    for (int64_t u = 0; u < p.config.hidden; ++u) {
      const int64_t at = roll(d, 0, u);
      units[u] = units[at];
      units[at] = u;
    }
    p.order = order > 0 ? units : NULL;
    gradients bp = gradients_of(&p, BPPSA_F32, BPPSA_BACKWARD_BP);
    worst = fmax(worst, error_of(&bp, exact));
    free_gradients(&bp);
  }
  return worst;
}

/* Returns whether the pass speculated to its end. */
static bool check_problem(const problem *p, uint64_t seed, dice *d) {
  gradients exact = gradients_of(p, BPPSA_F64, BPPSA_BACKWARD_BP), bp = gradients_of(p, BPPSA_F32, BPPSA_BACKWARD_BP),
            found = gradients_of(p, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE);
  const bool ends = found.stats.speculated && !found.stats.given_up, same = same_numbers(&found, &bp);
  const double own = own_error(*p, &exact, d), error = error_of(&found, &exact);
  if (!(same || error <= 2 * own)) {
    char text[BPPSA_BACKWARD_TEXT];
    fail_msg("case %llu: %s T %lld B %lld H %lld scale %g: error %.3g, BP's own %.3g; %s", (unsigned long long)seed,
             p->cell->name, (long long)p->config.seq_len, (long long)p->config.batch, (long long)p->config.hidden, p->scale,
             error, own, bppsa_backward_stats_text(&found.stats, text, sizeof text));
  }
  if (ends) {
    assert_true(found.stats.perturbation <= 2 * found.plan.accept);
    assert_true(found.stats.gap <= found.plan.accept || p->config.loss_all == false);
  } else if (p->config.layers == 1 && !p->config.bidirectional) { /* of several layers others may have speculated */
    assert_true(same);
  }
  free_gradients(&exact);
  free_gradients(&bp);
  free_gradients(&found);
  return ends;
}

static bppsa_recurrent_config config_of(int64_t seq_len, int64_t batch, int64_t hidden) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = seq_len;
  c.batch = batch;
  c.hidden = hidden;
  c.input = 3;
  c.classes = 4;
  c.method.backward = BPPSA_BACKWARD_SPECULATIVE;
  return c;
}

static void test_random(void **state) {
  (void)state;
  enum { CASES = 60 };
  int64_t ends = 0;
  for (uint64_t seed = 1; seed <= CASES; ++seed) {
    dice d = {.seed = seed};
    int64_t lengths[4];
    problem p = {.cell = cells[roll(&d, 0, CELLS - 1)]};
    p.config = config_of(roll(&d, 2, 300), roll(&d, 1, 4), roll(&d, 1, 24));
    p.config.layers = roll(&d, 1, 3);
    p.config.bidirectional = roll(&d, 0, 3) == 0;
    p.config.loss_all = roll(&d, 0, 1) == 1;
    p.config.lengths = roll(&d, 0, 3) == 0;
    p.config.nonlinearity = p.cell->relu && roll(&d, 0, 2) == 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
    p.config.input_gradients = roll(&d, 0, 1) == 1;
    p.config.speculation.chunks = roll(&d, 2, 20);
    p.config.speculation.warm_up = roll(&d, -1, 60);
    p.scale = pow(10, (double)roll(&d, -10, p.config.nonlinearity == BPPSA_NONLINEARITY_RELU ? 1 : 10) / 10);
    for (int64_t b = 0; b < p.config.batch; ++b) {
      lengths[b] = roll(&d, 1, p.config.seq_len);
    }
    p.lengths = p.config.lengths ? lengths : NULL;
    ends += check_problem(&p, seed, &d);
  }
  assert_true(ends >= CASES / 2); /* most of them do not give up */
}

/* Default weights: a chunk and its warm-up are the path, and nearly all of the work. */
static void test_paths(void **state) {
  (void)state;
  for (int k = 0; k < CELLS; ++k) {
    problem p = {.cell = cells[k], .config = config_of(1000, 2, 20), .scale = .8};
    p.config.loss_all = true;
    p.config.speculation.chunks = 13;
    dice d = {.seed = 1};
    assert_true(check_problem(&p, 0, &d));
    gradients found = gradients_of(&p, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE);
    const int64_t length = (p.config.seq_len + found.plan.chunks - 1) / found.plan.chunks;
    assert_true(found.stats.path <= length + found.plan.warm_up + 12);
    assert_true(found.stats.path >= length + found.plan.warm_up);
    assert_true(found.stats.rounds <= 1);
    assert_true(found.stats.work <= 1.05 * (1 + (double)found.plan.warm_up / (double)length));
    assert_int_equal(found.stats.possible, p.config.seq_len);
    free_gradients(&found);
  }
}

/* An RNN with W_hh = 2 Q, Q orthogonal, and states for which 1 - h² is .25, and .55 in the steps 441 .. 940: the gradient of the
 * last step falls to 1e-18 in 60 steps, then grows by a tenth with each of 500. Nothing is injected there, and differences that
 * look small at a boundary are not: without the bound for silent chunks the weight gradient is wrong by its size. A forward pass
 * would not find these states in float32, so the tape is written by hand. */
enum { BACK_STEPS = 1000, BACK_HIDDEN = 20, GROWS_FIRST = 441, GROWS_LAST = 940 };

/* Returns the gradient of W_hh [H][H], which the caller frees. tiny: of steps in front of the last one the loss's gradients, too,
 * made so much smaller; 0: it has none. */
static double *gradient_of_tape(bppsa_dtype dtype, bppsa_backward backward, const double *w_hh, double tiny,
                                bppsa_backward_stats *stats) {
  bppsa_recurrent_config c = config_of(BACK_STEPS, 1, BACK_HIDDEN);
  c.dtype = dtype;
  c.tape = true;
  c.loss_all = tiny > 0;
  c.method.backward = backward;
  c.speculation.chunks = 13;
  run r = open_run(&bppsa_rnn_cell, &c, 1, 1);
  for (int64_t i = 0; c.loss_all && i < (BACK_STEPS - 1) * r.model->classes; ++i) {
    bppsa_view_set(&r.seed, i, (double)(float)(tiny * bppsa_view_get(&r.seed, i)));
  }
  int64_t size;
  assert_int_equal(bppsa_recurrent_tape_size(r.model, &size), BPPSA_OK);
  bppsa_view tape = random_view(dtype, 4, 1, &size);
  for (int64_t i = 0; i < (BACK_STEPS + 1) * BACK_HIDDEN; ++i) {
    const int64_t t = i / BACK_HIDDEN;
    bppsa_view_set(&tape, i,
                   (double)(float)(sqrt(1 - (t >= GROWS_FIRST && t <= GROWS_LAST ? .55 : .25)) * (i % 2 == 0 ? 1 : -1)));
  }
  for (int64_t i = 0; i < BACK_HIDDEN * BACK_HIDDEN; ++i) {
    bppsa_view_set(&r.model->parameters[1].value, i, (double)(float)w_hh[i]);
  }
  assert_int_equal(bppsa_recurrent_use_tape(r.model, &r.x, &tape, NULL), BPPSA_OK);
  assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
  assert_int_equal(bppsa_backward_stats_of(r.model, stats), BPPSA_OK);
  double *found = bppsa_calloc(BACK_HIDDEN * BACK_HIDDEN, sizeof *found);
  for (int64_t i = 0; i < BACK_HIDDEN * BACK_HIDDEN; ++i) {
    found[i] = bppsa_view_get(&r.model->parameters[1].gradient, i);
  }
  bppsa_free(tape.data);
  close_run(&r);
  return found;
}

/* Where nothing is injected a random vector says that differences grow; where little is, that they are not small beside it. */
static void test_comes_back(void **state) {
  (void)state;
  static const double tiny[] = {0, 1e-36, 1e-30, 1e-20, 1e-12};
  double *q = orthogonal(7, BACK_HIDDEN, 2);
  for (size_t k = 0; k < sizeof tiny / sizeof *tiny; ++k) {
    bppsa_backward_stats stats;
    double *exact = gradient_of_tape(BPPSA_F64, BPPSA_BACKWARD_BP, q, tiny[k], &stats),
           *bp = gradient_of_tape(BPPSA_F32, BPPSA_BACKWARD_BP, q, tiny[k], &stats),
           *found = gradient_of_tape(BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, q, tiny[k], &stats);
    assert_true(stats.speculated && (k > 0 || !stats.given_up));
    assert_within_own(BACK_HIDDEN * BACK_HIDDEN, exact, bp, found, tiny[k]);
  }
  bppsa_free(q);
}

/* What the upper layer might drop grows in the lower one, by a half with each of 150 steps. */
static void test_grows_below(void **state) {
  (void)state;
  enum { STEPS = 300, HIDDEN = 4 };
  double found[2][HIDDEN];
  for (int k = 0; k < 2; ++k) {
    bppsa_recurrent_config c = config_of(STEPS, 1, HIDDEN);
    c.layers = 2;
    c.input = 1;
    c.method.backward = k == 0 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SPECULATIVE;
    c.speculation.chunks = 10;
    run r = open_run(&bppsa_rnn_cell, &c, 1, 1);
    static const struct {
      const char *name;
      double diagonal; /* W = diagonal · I, of W_ih of the first layer all numbers */
    } weights[] = {{"rnn.weight_ih_l0", 1}, {"rnn.weight_hh_l0", 1.5}, {"rnn.weight_ih_l1", .05}, {"rnn.weight_hh_l1", .8}};
    const bppsa_parameter *bias = NULL;
    for (int64_t i = 0; i < r.model->parameter_count; ++i) {
      bppsa_parameter *p = &r.model->parameters[i];
      for (int64_t j = 0; strncmp(p->name, "rnn.", 4) == 0 && j < bppsa_view_count(&p->value); ++j) {
        bppsa_view_set(&p->value, j, 0);
      }
      bias = strcmp(p->name, "rnn.bias_hh_l0") == 0 ? p : bias;
      for (size_t w = 0; w < sizeof weights / sizeof *weights; ++w) {
        for (int64_t j = 0; strcmp(p->name, weights[w].name) == 0 && j < HIDDEN; ++j) {
          bppsa_view_set(&p->value, w == 0 ? j : j * (HIDDEN + 1), weights[w].diagonal);
        }
      }
    }
    for (int64_t t = 0; t < STEPS; ++t) {
      bppsa_view_set(&r.x, t, t < STEPS / 2 ? 0 : .2);
    }
    assert_int_equal(bppsa_model_forward(r.model, &r.x, NULL, NULL, &r.logits), BPPSA_OK);
    assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
    for (int64_t j = 0; j < HIDDEN; ++j) {
      found[k][j] = bppsa_view_get(&bias->gradient, j);
    }
    close_run(&r);
  }
  for (int64_t j = 0; j < HIDDEN; ++j) {
    assert_true(fabs(found[0][j]) > 1e6 && fabs(found[1][j] - found[0][j]) <= 1e-5 * fabs(found[0][j]));
  }
}

/* With tolerance 0, and where a chunk is all there is, every pass is BP. */
static void test_exact(void **state) {
  (void)state;
  for (int k = 0; k < 2 * CELLS; ++k) {
    bppsa_recurrent_config c = config_of(90, 2, 9);
    c.loss_all = k % 2 == 0;
    c.speculation.chunks = k % 2 == 0 ? 5 : 1;
    c.speculation.tolerance = k % 2 == 0 ? 0 : -1;
    run found = open_run(cells[k / 2], &c, 2, 1);
    c.method.backward = BPPSA_BACKWARD_BP;
    run bp = open_run(cells[k / 2], &c, 2, 1);
    assert_null(bppsa_backward_plan_of(found.model));
    c.input_gradients = true;
    assert_int_equal(bppsa_model_forward(found.model, &found.x, NULL, NULL, &found.logits), BPPSA_OK);
    assert_int_equal(bppsa_model_forward(bp.model, &bp.x, NULL, NULL, &bp.logits), BPPSA_OK);
    assert_int_equal(found.model->ops->backward(found.model, &found.seed), BPPSA_OK);
    assert_int_equal(bp.model->ops->backward(bp.model, &bp.seed), BPPSA_OK);
    for (int64_t i = 0; i < bp.model->parameter_count; ++i) {
      assert_same_bits(&found.model->parameters[i].gradient, &bp.model->parameters[i].gradient);
    }
    close_run(&found);
    close_run(&bp);
  }
}

/* Threads change no bit, and neither does what an earlier pass left. */
static void test_bits(void **state) {
  (void)state;
  for (int k = 0; k < CELLS; ++k) {
    bppsa_recurrent_config c = config_of(600, 6, 12);
    c.loss_all = true;
    c.input_gradients = true;
    c.layers = 2;
    c.speculation.chunks = 9;
    run one = open_run(cells[k], &c, 6, 1), three = open_run(cells[k], &c, 6, 3);
    compute(&one, NULL);
    compute(&three, NULL);
    assert_same_runs(&one, &three);
    assert_true(one.model->ops != NULL);
    bppsa_backward_stats stats;
    assert_int_equal(bppsa_backward_stats_of(one.model, &stats), BPPSA_OK);
    assert_true(stats.speculated && !stats.given_up && stats.mended > 0);
    close_run(&one);
    close_run(&three);
  }
}

/* A number that is not finite: BP's bits, for all samples. */
static void test_nonfinite(void **state) {
  (void)state;
  static const double numbers[] = {NAN, INFINITY, 1e30};
  for (int k = 0; k < CELLS * 3; ++k) {
    bppsa_recurrent_config c = config_of(150, 3, 8);
    c.loss_all = true;
    c.input_gradients = true;
    c.speculation.chunks = 6;
    run found = open_run(cells[k / 3], &c, 3, 1);
    c.method.backward = BPPSA_BACKWARD_BP;
    run bp = open_run(cells[k / 3], &c, 3, 1);
    bppsa_view_set(&found.seed, 70 * 3 * c.classes + 1, numbers[k % 3]);
    bppsa_view_set(&bp.seed, 70 * 3 * c.classes + 1, numbers[k % 3]);
    compute(&found, NULL);
    compute(&bp, NULL);
    bppsa_backward_stats stats;
    assert_int_equal(bppsa_backward_stats_of(found.model, &stats), BPPSA_OK);
    if (k % 3 < 2) {
      assert_true(stats.given_up);
      assert_same_runs(&found, &bp);
    }
    close_run(&found);
    close_run(&bp);
  }
}

/* A network that forgets nothing: each pass is given up early, three of them in a row make the next ones BP. */
static void test_pause(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(300, 1, 64);
  c.loss_all = true;
  c.nonlinearity = BPPSA_NONLINEARITY_RELU;
  c.speculation.chunks = 4;
  run r = open_run(&bppsa_rnn_cell, &c, 1, 1); /* every Jacobian is 1: W_hh is, and biases of 3 keep all units above 0 */
  for (int64_t i = 0; i < c.hidden * c.hidden; ++i) {
    bppsa_view_set(&r.model->parameters[1].value, i, i % (c.hidden + 1) == 0 ? 1 : 0);
    bppsa_view_set(&r.model->parameters[3].value, i % c.hidden, 3);
  }
  bppsa_backward_stats stats;
  for (int pass = 0; pass < 5; ++pass) {
    assert_int_equal(bppsa_model_forward(r.model, &r.x, NULL, NULL, &r.logits), BPPSA_OK);
    assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
    assert_int_equal(bppsa_backward_stats_of(r.model, &stats), BPPSA_OK);
    assert_int_equal(stats.speculated, pass < 3);
    assert_true(stats.path <= 300 + 2 * (75 + 40));
  }
  close_run(&r);
}

/* Where gradients of x must be exact, a pass is BP, bit for bit, if the loss misses a step. */
static void test_exact_inputs(void **state) {
  (void)state;
  enum { STEPS = 400, BATCH = 2, HIDDEN = 4 };
  for (int misses = 0; misses < 3; ++misses) { /* no step; step 7 of sample 1; all but the last ones */
    bppsa_view dx[2];
    run r[2];
    for (int k = 0; k < 2; ++k) {
      bppsa_recurrent_config c = config_of(STEPS, BATCH, HIDDEN);
      c.loss_all = misses < 2;
      c.input_gradients = true;
      c.method.backward = k == 0 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SPECULATIVE;
      c.speculation = (bppsa_backward_method){.chunks = 4, .warm_up = 40, .tolerance = -1, .exact_inputs = true};
      r[k] = open_run(&bppsa_gru_cell, &c, BATCH, 3);
      for (int64_t i = 0; misses == 1 && i < r[k].model->classes; ++i) {
        bppsa_view_set(&r[k].seed, (7 * BATCH + 1) * r[k].model->classes + i, 0);
      }
      assert_int_equal(bppsa_model_forward(r[k].model, &r[k].x, NULL, NULL, &r[k].logits), BPPSA_OK);
      assert_int_equal(r[k].model->ops->backward(r[k].model, &r[k].seed), BPPSA_OK);
      assert_int_equal(r[k].model->ops->input_gradients(r[k].model, &dx[k], NULL), BPPSA_OK);
    }
    bppsa_backward_stats stats;
    assert_int_equal(bppsa_backward_stats_of(r[1].model, &stats), BPPSA_OK);
    assert_int_equal(stats.speculated, misses == 0);
    assert_true(misses == 0 || memcmp(dx[0].data, dx[1].data, (size_t)bppsa_view_count(&dx[0]) * sizeof(float)) == 0);
    close_run(&r[0]);
    close_run(&r[1]);
  }
}

/* Passes of a network that forgets slowly lengthen its warm-ups until few chunks are mended, those of one that forgets quickly
 * shorten them. What a pass computes depends on the state alone. */
static void test_warm_ups(void **state) {
  (void)state;
  static const struct {
    double scale;
    bool grows;
  } cases[] = {{1, true}, {.3, false}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; ++k) {
    bppsa_recurrent_config c = config_of(2000, 1, 8);
    c.method.backward = BPPSA_BACKWARD_SPECULATIVE;
    c.loss_all = true;
    c.speculation.chunks = 13;
    c.speculation.adapts = true;
    run r[2] = {open_run(&bppsa_rnn_cell, &c, 1, 1), open_run(&bppsa_rnn_cell, &c, 1, 1)};
    double *q = orthogonal(5, 8, cases[k].scale);
    for (int j = 0; j < 2; ++j) {
      assert_int_equal(bppsa_model_forward(r[j].model, &r[j].x, NULL, NULL, &r[j].logits), BPPSA_OK);
      for (int64_t i = 0; i < 64; ++i) {
        bppsa_view_set(&r[j].model->parameters[1].value, i, (double)(float)q[i]);
      }
      assert_int_equal(bppsa_model_forward(r[j].model, &r[j].x, NULL, NULL, &r[j].logits), BPPSA_OK);
    }
    bppsa_backward_state first, last = {.warm_up = 0};
    bppsa_backward_stats stats[2];
    for (int pass = 0; pass < 30; ++pass) {
      first = last;
      assert_int_equal(r[0].model->ops->backward(r[0].model, &r[0].seed), BPPSA_OK);
      assert_int_equal(bppsa_backward_state_get(r[0].model, &last), BPPSA_OK);
      assert_true(cases[k].grows ? last.warm_up > 40 : first.warm_up == 0 || last.warm_up <= first.warm_up);
    }
    assert_true(cases[k].grows ? last.warm_up > 40 && last.warm_up <= 2000 / 13 : last.warm_up < 40 && last.warm_up >= 8);
    assert_int_equal(bppsa_backward_state_set(r[1].model, &first), BPPSA_OK);
    assert_int_equal(r[1].model->ops->backward(r[1].model, &r[1].seed), BPPSA_OK);
    for (int j = 0; j < 2; ++j) {
      assert_int_equal(bppsa_backward_stats_of(r[j].model, &stats[j]), BPPSA_OK);
    }
    assert_memory_equal(r[0].model->parameters[1].gradient.data, r[1].model->parameters[1].gradient.data, 64 * sizeof(float));
    assert_true(stats[0].path == stats[1].path && stats[0].mended == stats[1].mended);
    bppsa_free(q);
    close_run(&r[0]);
    close_run(&r[1]);
  }
}

static bppsa_status create(void *argument) {
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  const bppsa_status status = bppsa_recurrent_create(argument, &bppsa_lstm_cell, device, &model);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  return status;
}

static void test_refusals(void **state) {
  (void)state;
  static const bppsa_backward_method wrong[] = {{.chunks = -1, .warm_up = -1, .tolerance = -1},
                                                {.warm_up = -2, .tolerance = -1},
                                                {.warm_up = -1, .tolerance = NAN},
                                                {.warm_up = -1, .tolerance = INFINITY}};
  bppsa_recurrent_config c = config_of(200, 2, 5);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    c.speculation = wrong[i];
    assert_int_equal(create(&c), BPPSA_ERR_ARGUMENT);
    assert_non_null(strstr(bppsa_last_error(), "expected numbers of 0 or more"));
  }
  c = config_of(200, 2, 5);
  c.part = (bppsa_forward_part){.seq_len = 400};
  assert_int_equal(create(&c), BPPSA_ERR_ARGUMENT); /* nothing to send and to receive with */
  assert_non_null(strstr(bppsa_last_error(), "all functions of bppsa_forward_part"));
  bppsa_backward_plan plan;
  static const struct {
    int64_t hidden, gates, most_hidden;
    bppsa_dtype dtype;
    const char *why;
  } too_large[] = {{33, 1, 32, BPPSA_F32, "33 units on a GPU, expected at most 32 whose"},
                   {513, 1, 512, BPPSA_F32, "513 units on a GPU, expected at most 512 whose"},
                   {300, 4, 512, BPPSA_F64, "expected at most 512 whose W_hh have at most 4194304 bytes"}};
  const bppsa_backward_method open = bppsa_backward_method_default();
  for (size_t i = 0; i < sizeof too_large / sizeof *too_large; ++i) {
    const bppsa_forward_shape gpu = {.seq_len = 1000,
                                     .batch = 1,
                                     .input = 1,
                                     .hidden = too_large[i].hidden,
                                     .gates = too_large[i].gates,
                                     .dtype = too_large[i].dtype,
                                     .device = BPPSA_CUDA,
                                     .multiprocessors = 132,
                                     .most_hidden = too_large[i].most_hidden};
    assert_int_equal(bppsa_backward_plan_make(&open, &gpu, &plan), BPPSA_ERR_UNSUPPORTED);
    assert_non_null(strstr(bppsa_last_error(), too_large[i].why));
  }
}

/* Chunks on a GPU with 132 multiprocessors: of 64 steps at least, as many as teams of a cluster, or with two launches at least
 * twice as many. Of a wide layer: as many as blocks or clusters run at once. */
static void test_plan_on_gpu(void **state) {
  (void)state;
  static const struct {
    int64_t steps, batch, chunks, hidden, gates;
  } cases[] = {{100, 1, 1, 20, 1},     {1000, 16, 15, 20, 1},  {1000, 1, 15, 20, 1},   {10000, 16, 32, 20, 1},
               {10000, 1, 156, 20, 1}, {30000, 8, 66, 20, 1},  {30000, 64, 8, 20, 1},  {1000000, 1, 528, 20, 1},
               {1000, 1000, 4, 20, 1}, {1000, 16, 15, 64, 1},  {10000, 16, 16, 64, 1}, {10000, 1, 132, 50, 3},
               {10000, 1, 44, 128, 3}, {10000, 1, 26, 256, 1}, {10000, 2, 3, 512, 4},  {1000, 16, 1, 256, 1}};
  const bppsa_backward_method open = bppsa_backward_method_default();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    const bppsa_forward_shape gpu = {.seq_len = cases[i].steps,
                                     .batch = cases[i].batch,
                                     .input = 1,
                                     .hidden = cases[i].hidden,
                                     .gates = cases[i].gates,
                                     .device = BPPSA_CUDA,
                                     .multiprocessors = 132,
                                     .most_hidden = BPPSA_FORWARD_GPU_HIDDEN};
    bppsa_backward_plan plan;
    assert_int_equal(bppsa_backward_plan_make(&open, &gpu, &plan), BPPSA_OK);
    assert_int_equal(plan.chunks, cases[i].chunks);
    assert_true(plan.speculative == (plan.chunks > 1) && (!plan.speculative || plan.warm_up == 40));
  }
}

static void test_memory(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(200, 2, 5), bp = c;
  int64_t bytes, fewer;
  bppsa_device *device = cpu_device(1);
  bp.method.backward = BPPSA_BACKWARD_BP;
  assert_int_equal(bppsa_recurrent_count(&c, &bppsa_lstm_cell, device, &bytes), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_count(&bp, &bppsa_lstm_cell, device, &fewer), BPPSA_OK);
  assert_true(bytes > fewer);
  bppsa_device_destroy(device);
  assert_true(walk_allocations(create, &c) > 10);
  run r = open_run(&bppsa_lstm_cell, &c, 2, 2);
  c.input_gradients = true;
  assert_int_equal(bppsa_model_forward(r.model, &r.x, NULL, NULL, &r.logits), BPPSA_OK);
  bppsa_alloc_fail_at(1);
  assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
  assert_int_equal(bppsa_alloc_calls(), 0);
  bppsa_alloc_fail_at(0);
  close_run(&r);
}

static void test_texts(void **state) {
  (void)state;
  char text[BPPSA_BACKWARD_TEXT];
  const bppsa_backward_plan plan = {true, 13, 40, 6, 2.4e-7, 6e-8, false, 1, {0, 0, 0}}, none = {.chunks = 1};
  const bppsa_backward_stats pass = {.speculated = true,
                                     .passes = 2,
                                     .path = 240,
                                     .possible = 2000,
                                     .work = 1.5,
                                     .rounds = 2,
                                     .mended = 3,
                                     .gap = 2.25e-7,
                                     .perturbation = 1.5e-9};
  assert_string_equal(bppsa_backward_plan_text(&plan, text, sizeof text),
                      "speculative, 13 chunks, warm-up 40, 6 rounds, tolerance 2.4e-07");
  assert_string_equal(
      bppsa_backward_plan_text(&(bppsa_backward_plan){true, 13, 40, 6, 2.4e-7, 6e-8, true, 1, {0, 0, 0}}, text, sizeof text),
      "speculative, 13 chunks, warm-up 40 at first, 6 rounds, tolerance 2.4e-07");
  assert_string_equal(bppsa_backward_plan_text(&none, text, sizeof text), "bp");
  assert_string_equal(bppsa_backward_stats_text(&pass, text, sizeof text),
                      "120 dependent steps of 1000 a pass, 1.50 times the work, 3 chunks mended in up to 2 rounds, largest gap "
                      "2.2e-07; equals BP "
                      "for dL/dh_t changed by 1.5e-09 of its size");
  bppsa_backward_stats left = pass;
  left.given_up = true;
  assert_non_null(strstr(bppsa_backward_stats_text(&left, text, sizeof text), "2.2e-07, given up to BP; equals"));
  left.scanned = true;
  assert_non_null(strstr(bppsa_backward_stats_text(&left, text, sizeof text), "2.2e-07, given up to the scan; equals"));
  bppsa_backward_stats sum = {0};
  bppsa_backward_stats_add(&sum, &pass);
  bppsa_backward_stats_add(&sum,
                           &(bppsa_backward_stats){.passes = 2, .path = 2000, .possible = 2000, .work = 1, .given_up = true});
  assert_true(sum.passes == 4 && sum.path == 2240 && sum.possible == 4000 && sum.work == 1.25 && sum.given_up && sum.speculated);
}

/* Numbers that a caller gives stay; a text of BP says nothing, and a broken one changes nothing. */
static void test_read(void **state) {
  (void)state;
  char text[BPPSA_BACKWARD_TEXT];
  const bppsa_backward_plan plan = {true, 13, 40, 6, 0.1 + 0.2, 6e-8, false, 1, {0, 0, 0}};
  bppsa_backward_method read = bppsa_backward_method_default();
  assert_int_equal(bppsa_backward_plan_read("bp", &read), BPPSA_OK);
  assert_int_equal(bppsa_backward_plan_read("", &read), BPPSA_OK);
  assert_int_equal(bppsa_backward_plan_read("speculative, 13 chunks, warm-up 40, 6 rounds", &read), BPPSA_ERR_FORMAT);
  assert_int_equal(bppsa_backward_plan_read("speculative, 13 chunks, warm-up 40, 6 rounds, tolerance nan", &read),
                   BPPSA_ERR_FORMAT);
  assert_true(read.chunks == 0 && read.warm_up == -1 && read.tolerance < 0);
  read.warm_up = 7;
  assert_int_equal(bppsa_backward_plan_read(bppsa_backward_plan_text(&plan, text, sizeof text), &read), BPPSA_OK);
  assert_true(read.chunks == 13 && read.warm_up == 7 && read.tolerance == 0.1 + 0.2);
  for (int adapts = 0; adapts < 2; ++adapts) { /* a warm-up that adapts stays open */
    const bppsa_backward_plan other = {true, 13, 40, 6, 2.4e-7, 6e-8, adapts, adapts ? 45 : 1, {0, 0, 0}};
    read = bppsa_backward_method_default();
    assert_int_equal(bppsa_backward_plan_read(bppsa_backward_plan_text(&other, text, sizeof text), &read), BPPSA_OK);
    assert_true(read.chunks == 13 && read.warm_up == (adapts ? -1 : 40) && read.adapts == adapts && read.tolerance == 2.4e-7);
    assert_int_equal(read.scan_chunks, adapts ? 45 : 1);
  }
}

/* The numbers of an account and their text, in which what is not finite is null. */
static void test_account(void **state) {
  (void)state;
  const double numbers[BPPSA_ACCOUNT_NUMBERS] = {2, 1, 40, 1, 3, 240, 3000, 1.5, 2, 4, 1, 0.25, INFINITY},
               none[BPPSA_ACCOUNT_NUMBERS] = {2, 1, 40};
  char text[BPPSA_ACCOUNT_TEXT];
  assert_null(bppsa_backward_numbers_text(none, text, sizeof text));
  assert_string_equal(
      bppsa_backward_numbers_text(numbers, text, sizeof text),
      "{\"speculated\":true,\"given_up\":true,\"scanned\":false,\"passes\":3,\"path\":240,\"possible\":3000,\"work\":1.5,"
      "\"rounds\":2,\"mended\":4,\"gap\":0.25,\"perturbation\":null}");
  bppsa_recurrent_config c = config_of(200, 2, 5);
  run r = open_run(&bppsa_rnn_cell, &c, 2, 1);
  const bppsa_model_account *account = bppsa_model_get_account(r.model, BPPSA_PASS_BACKWARD);
  double sums[BPPSA_ACCOUNT_NUMBERS] = {0}, latest[BPPSA_ACCOUNT_NUMBERS];
  assert_non_null(account);
  assert_null(bppsa_model_get_account(r.model, BPPSA_PASS_FORWARD));
  assert_int_equal(account->restore(r.model, numbers), BPPSA_OK);
  for (int pass = 0; pass < 2; ++pass) { /* the second is no pause */
    assert_int_equal(bppsa_model_forward(r.model, &r.x, NULL, NULL, &r.logits), BPPSA_OK);
    assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
    assert_int_equal(bppsa_model_add_pass(r.model, BPPSA_PASS_BACKWARD, sums), BPPSA_OK);
    assert_int_equal(account->latest(r.model, latest), BPPSA_OK);
    assert_true(latest[1] == 0 && latest[3] == pass);
  }
  const bppsa_backward_stats all = bppsa_backward_stats_from(sums);
  assert_true(all.passes == 2 && all.speculated && all.possible == 400 && sums[0] == 0 && sums[2] == 0);
  sums[10] = 2; /* given up to a scan */
  assert_true(bppsa_backward_stats_from(sums).given_up && bppsa_backward_stats_from(sums).scanned);
  account->add(sums, latest);
  assert_true(sums[10] == 2 && !bppsa_backward_stats_from(numbers).scanned && bppsa_backward_stats_from(numbers).given_up);
  close_run(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random),      cmocka_unit_test(test_paths),    cmocka_unit_test(test_comes_back),
      cmocka_unit_test(test_grows_below), cmocka_unit_test(test_exact),    cmocka_unit_test(test_bits),
      cmocka_unit_test(test_nonfinite),   cmocka_unit_test(test_pause),    cmocka_unit_test(test_exact_inputs),
      cmocka_unit_test(test_warm_ups),    cmocka_unit_test(test_refusals), cmocka_unit_test(test_memory),
      cmocka_unit_test(test_plan_on_gpu), cmocka_unit_test(test_texts),    cmocka_unit_test(test_read),
      cmocka_unit_test(test_account)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The parallel backward pass on a device (recurrent/parallel_backward.h): gradients of every cell, type and width of the kernels
 * against float64 and BP's own rounding, every phase, samples that are given up, pauses, recordings. BPPSA_TEST_DEVICE names the
 * device. (The file is long because every phase meets the same reference, `check`, with networks made for it.) */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/compute/graph.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/recurrent/forward_problem.h"
#include "tests/recurrent/own_error.h"
#include "tests/support/dice.h"

static bppsa_device *device, *host;

enum { RNN, GRU, LSTM, CELLS, MOST_ARRAYS = 32 };
static const bppsa_cell *const cells[CELLS] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};

static int open_devices(void **state) {
  (void)state;
  device = test_device(2);
  host = cpu_device(1);
  return 0;
}

/* On a CPU a walk goes on through silent chunks without rounds. */
static bool is_gpu(void) {
  return bppsa_device_get_kind(device) != BPPSA_CPU;
}

static int close_devices(void **state) {
  (void)state;
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
  return 0;
}

/* A network with its numbers: those of forward_problem, and the gradient of its outputs. */
typedef struct {
  forward_problem network;
  const int64_t *lengths;
  int64_t spoiled;      /* the place of a NaN in that gradient; -1: none */
  int64_t missed;       /* the step of sample 0 whose gradient is 0; -1: none */
  bool alone;           /* the last step alone has a gradient that is not 0 */
  bool first_unit;      /* the first output alone has a gradient that is not 0: 1 */
  bool still;           /* x, h0 and biases are 0, and so are all states of an RNN: BP is linear, with W_hh in each step */
  const double *louder; /* [T]: what the gradients of a step are multiplied by; NULL: 1 */
} problem;

static problem problem_of(int cell, int64_t seq_len, int64_t batch, int64_t hidden, int64_t chunks, int64_t warm_up) {
  problem p = {.network = forward_problem_default(), .spoiled = -1, .missed = -1};
  bppsa_recurrent_config *c = &p.network.config;
  p.network.cell = cells[cell];
  c->forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  c->method.backward = BPPSA_BACKWARD_SPECULATIVE;
  c->seq_len = seq_len;
  c->batch = batch;
  c->hidden = hidden;
  c->classes = 3;
  c->speculation.chunks = chunks;
  c->speculation.warm_up = warm_up;
  return p;
}

/* Gradients of all parameters, and with config.input_gradients those of x and h0 behind them. */
typedef struct {
  int64_t count, sizes[MOST_ARRAYS];
  double *of[MOST_ARRAYS];
  bppsa_backward_stats stats;
  bppsa_backward_plan plan;
} gradients;

static void free_gradients(gradients *g) {
  for (int64_t i = 0; i < g->count; ++i) {
    bppsa_free(g->of[i]);
  }
}

/* A network on a device, with its inputs and its seed there. */
typedef struct {
  const problem *p;
  const bppsa_device *on;
  bppsa_model *model;
  bppsa_view x, seed;
} net;

static bppsa_view view_on(const bppsa_device *on, bppsa_dtype dtype, double *numbers, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make(NULL, dtype, ndim, shape);
  bppsa_free(rounded(BPPSA_F32, numbers, bppsa_view_count(&view)));
  view.data = sent(on, dtype, numbers, bppsa_view_count(&view));
  view.device = bppsa_device_get_kind(on);
  bppsa_free(numbers);
  return view;
}

/* weights: of another network; NULL: drawn. */
static net open_net(const problem *p, const bppsa_device *on, bppsa_dtype dtype, bppsa_backward backward,
                    const bppsa_model *weights) {
  forward_problem network = p->network;
  bppsa_recurrent_config *c = &network.config;
  const int64_t directions = c->bidirectional ? 2 : 1, width = c->no_head ? directions * c->hidden : c->classes,
                rows = (c->loss_all ? c->seq_len : 1) * c->batch;
  c->dtype = dtype;
  c->method.backward = backward;
  network.weights = weights != NULL ? weights : network.weights;
  net n = {.p = p, .on = on, .model = make_forward_model(&network, on)};
  double *seed = uniform(network.seed + 5, rows * width, 1);
  for (int64_t i = 0; p->missed >= 0 && i < width; ++i) {
    seed[p->missed * c->batch * width + i] = 0;
  }
  for (int64_t i = 0; p->alone && i < (rows - c->batch) * width; ++i) {
    seed[i] = 0;
  }
  for (int64_t i = 0; i < rows * width; ++i) {
    const double louder = p->louder != NULL ? p->louder[i / (c->batch * width)] : 1;
    seed[i] = !p->first_unit ? seed[i] * louder : i % width == 0 ? louder : 0;
  }
  if (p->spoiled >= 0) {
    seed[p->spoiled * width] = NAN;
  }
  for (int64_t i = 0; p->still && i < n.model->parameter_count; ++i) {
    const bppsa_view *bias = &n.model->parameters[i].value;
    for (int64_t j = 0; strstr(n.model->parameters[i].name, "bias_") != NULL && j < bppsa_view_count(bias); ++j) {
      bppsa_view_set(bias, j, 0);
    }
  }
  assert_int_equal(bppsa_model_push(n.model), BPPSA_OK);
  n.x = view_on(on, dtype, uniform(network.seed + 4, c->seq_len * c->batch * c->input, p->still ? 0 : 1), 3,
                (int64_t[]){c->seq_len, c->batch, c->input});
  const int64_t shape[] = {c->seq_len, c->batch, width};
  n.seed = view_on(on, dtype, seed, c->loss_all ? 3 : 2, c->loss_all ? shape : shape + 1);
  return n;
}

static void close_net(net *n) {
  bppsa_memory_free(n->on, n->x.data);
  bppsa_memory_free(n->on, n->seed.data);
  bppsa_model_destroy(n->model);
}

static gradients pass(const net *n) {
  gradients g = {0};
  bppsa_view logits, inputs[2];
  assert_int_equal(bppsa_model_forward(n->model, &n->x, NULL, &(bppsa_spans){.lengths = n->p->lengths}, &logits), BPPSA_OK);
  assert_int_equal(n->model->ops->backward(n->model, &n->seed), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(n->model, true), BPPSA_OK);
  for (; g.count < n->model->parameter_count; ++g.count) {
    const bppsa_view *of = &n->model->parameters[g.count].gradient;
    g.sizes[g.count] = bppsa_view_count(of);
    g.of[g.count] = bppsa_calloc(g.sizes[g.count], sizeof(double));
    for (int64_t i = 0; i < g.sizes[g.count]; ++i) {
      g.of[g.count][i] = bppsa_view_get(of, i);
    }
  }
  if (n->p->network.config.input_gradients) {
    assert_int_equal(n->model->ops->input_gradients(n->model, &inputs[0], &inputs[1]), BPPSA_OK);
    for (int k = 0; k < 2; ++k, ++g.count) {
      g.sizes[g.count] = bppsa_view_count(&inputs[k]);
      g.of[g.count] = fetched(n->on, &inputs[k]);
    }
  }
  assert_int_equal(bppsa_backward_stats_of(n->model, &g.stats), BPPSA_OK);
  g.plan = bppsa_backward_plan_of(n->model) != NULL ? *bppsa_backward_plan_of(n->model) : (bppsa_backward_plan){0};
  return g;
}

static gradients gradients_on(const problem *p, const bppsa_device *on, bppsa_dtype dtype, bppsa_backward backward,
                              const bppsa_model *weights) {
  net n = open_net(p, on, dtype, backward, weights);
  gradients g = pass(&n);
  close_net(&n);
  return g;
}

/* The largest error over the largest number, of any array. Infinite where one is finite and the other is not. */
static double error_of(const gradients *found, const gradients *exact) {
  double worst = 0;
  for (int64_t i = 0; i < exact->count; ++i) {
    double largest = 0, error = 0;
    for (int64_t j = 0; j < exact->sizes[i]; ++j) {
      const double a = found->of[i][j], b = exact->of[i][j];
      const bool same = isnan(a) && isnan(b);
      largest = isfinite(b) ? fmax(largest, fabs(b)) : largest;
      error = same ? error : isfinite(a - b) ? fmax(error, fabs(a - b)) : (double)INFINITY;
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

/* Another pass of the same numbers does the same, bit for bit. */
static void check_again(const net *n, const gradients *found) {
  gradients again = pass(n);
  const bppsa_backward_stats s = found->stats, t = again.stats;
  assert_true(same_numbers(found, &again));
  assert_true(s.path == t.path && s.work == t.work && s.rounds == t.rounds && s.mended == t.mended && s.gap == t.gap &&
              s.perturbation == t.perturbation && s.given_up == t.given_up);
  free_gradients(&again);
}

/* Checks a problem in its dtype against float64, and the error against that of BP: the larger one of two orders of sums, the host's
 * and the device's. */
static bppsa_backward_stats check(const problem *p) {
  const bppsa_recurrent_config *c = &p->network.config;
  const bool wide = c->dtype == BPPSA_F64;
  net n = open_net(p, device, c->dtype, BPPSA_BACKWARD_SPECULATIVE, NULL);
  gradients found = pass(&n), bp = gradients_on(p, host, c->dtype, BPPSA_BACKWARD_BP, n.model),
            device_bp = gradients_on(p, device, c->dtype, BPPSA_BACKWARD_BP, n.model),
            exact = gradients_on(p, host, BPPSA_F64, BPPSA_BACKWARD_BP, n.model);
  const double own = fmax(error_of(&bp, &exact), error_of(&device_bp, &exact)), error = error_of(&found, &exact);
  if (!(error <= 2 * own + (wide ? 5e-14 : 1e-7))) {
    char text[BPPSA_BACKWARD_TEXT];
    fail_msg("seed %d: %s T %d B %d H %d: error %.3g, BP's own %.3g; %s", (int)p->network.seed, p->network.cell->name,
             (int)c->seq_len, (int)c->batch, (int)c->hidden, error, own,
             bppsa_backward_stats_text(&found.stats, text, sizeof text));
  }
  const bppsa_backward_stats s = found.stats;
  assert_int_equal(s.passes, 1);
  assert_int_equal(s.possible, c->seq_len * c->layers * (c->bidirectional ? 2 : 1));
  assert_true(s.perturbation <= 2 * found.plan.accept);
  if (p->network.seed % 8 == 1) {
    check_again(&n, &found);
  }
  free_gradients(&found);
  free_gradients(&bp);
  free_gradients(&device_bp);
  free_gradients(&exact);
  close_net(&n);
  return s;
}

/* Nothing to mend: a chunk and its warm-up are the path. */
static void test_nothing_to_mend(void **state) {
  (void)state;
  for (int kind = 0; kind < CELLS; ++kind) {
    problem p = problem_of(kind, 80, 1, 7, 2, 36 + kind);
    p.network.config.loss_all = true;
    p.network.scale = .2;
    p.network.config.speculation.tolerance = 1e-3;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated && !s.given_up && s.gap <= 1e-3);
    assert_int_equal(s.path, 40 + 36 + kind);
    assert_true(fabs(s.work - (80 + 36. + kind) / 80) < 1e-12);
    assert_int_equal(s.mended + s.rounds, 0);
  }
}

/* Every cell in every type at every width of the kernels, in one direction or two, with samples of their own lengths, the loss on
 * the last step or on all, weights that forget and weights that do not. */
static void test_widths(void **state) {
  (void)state;
  static const int64_t hidden[] = {1, 8, 13, 20, 32};
  int64_t mended = 0, rounds = 0, given_up = 0;
  for (uint64_t i = 0; i < 30; ++i) {
    dice d = {.seed = i};
    int64_t lengths[2];
    problem p = problem_of((int)(i / 5 % 3), roll(&d, 10, 24), roll(&d, 1, 2), hidden[i % 5], roll(&d, 2, 5), roll(&d, 0, 5));
    bppsa_recurrent_config *c = &p.network.config;
    p.network.seed = i + 1;
    p.network.scale = pow(10, (double)roll(&d, -8, 2) / 10);
    c->dtype = i < 15 ? BPPSA_F32 : BPPSA_F64;
    c->input = roll(&d, 1, 2);
    c->layers = roll(&d, 1, 2);
    c->bidirectional = i % 7 == 3;
    c->loss_all = roll(&d, 0, 1) == 1;
    c->lengths = i % 4 == 2;
    c->input_gradients = i % 3 == 0;
    c->nonlinearity = i % 15 < 5 && roll(&d, 0, 2) == 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
    for (int64_t b = 0; b < c->batch; ++b) {
      lengths[b] = roll(&d, 1, c->seq_len);
    }
    p.lengths = c->lengths ? lengths : NULL;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated);
    mended += s.mended;
    rounds += s.rounds > 1;
    given_up += s.given_up;
  }
  assert_true(mended > 40 && rounds > (is_gpu() ? 3 : 0) && given_up > 2);
}

/* Units at both ends of each padded width, in every cell and type: a walker's lanes without a unit, and rows with and without
 * padding. */
static void test_edges(void **state) {
  (void)state;
  static const int64_t hidden[] = {2, 16, 17, 31};
  for (uint64_t i = 0; i < 4 * CELLS * 2; ++i) {
    problem p = problem_of((int)(i / 4 % CELLS), 19, 2, hidden[i % 4], 3, (int64_t)(i % 3));
    p.network.seed = 200 + i;
    p.network.scale = .7;
    p.network.config.dtype = i < 4 * CELLS ? BPPSA_F32 : BPPSA_F64;
    p.network.config.loss_all = i % 2 == 0;
    p.network.config.input_gradients = i % 3 == 1;
    assert_true(check(&p).speculated);
  }
}

/* Wide layers, H > 32, likewise: a chunk is walked by one block or by a cluster of two, four, eight or sixteen. One cluster takes a
 * sample through all phases, or rounds are launches of their own. */
static void test_wide(void **state) {
  (void)state;
  static const struct {
    int cell;
    int64_t hidden, steps, chunks, warm_up;
    bool f64, all;
    double scale;
  } cases[] = {
      {RNN, 33, 40, 5, 4, false, true, 1},   {RNN, 64, 30, 10, 3, false, true, 1.2}, {RNN, 40, 36, 6, 3, true, false, 1.3},
      {GRU, 40, 30, 5, 4, false, true, 1},   {GRU, 64, 22, 11, 2, true, false, 1},   {LSTM, 48, 24, 4, 5, false, true, 1},
      {LSTM, 33, 20, 10, 2, true, true, 1},  {RNN, 100, 15, 5, 2, false, true, 1},   {GRU, 128, 14, 7, 1, false, true, 1},
      {LSTM, 65, 12, 4, 2, false, false, 1}, {RNN, 200, 8, 4, 1, false, true, 1},    {GRU, 65, 8, 4, 1, true, true, 1.5},
      {RNN, 300, 6, 3, 1, false, true, 1},   {GRU, 260, 4, 2, 0, false, true, 1}};
  int64_t mended = 0, rounds = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    problem p = problem_of(cases[i].cell, cases[i].steps, 1 + i % 2, cases[i].hidden, cases[i].chunks, cases[i].warm_up);
    bppsa_recurrent_config *c = &p.network.config;
    const int64_t lengths[] = {cases[i].steps / 2 + 1, cases[i].steps};
    p.network.seed = i + 1;
    p.network.scale = cases[i].scale;
    c->dtype = cases[i].f64 ? BPPSA_F64 : BPPSA_F32;
    c->loss_all = cases[i].all;
    c->layers = i < 6 ? 1 + (int64_t)i % 2 : 1;
    c->bidirectional = i == 0 || i == 3;
    c->input_gradients = i % 3 == 0;
    c->lengths = i % 4 == 1 && c->batch == 2;
    p.lengths = c->lengths ? lengths : NULL;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated);
    mended += s.mended;
    rounds = s.rounds > rounds ? s.rounds : rounds;
  }
  assert_true(mended > 20 && rounds > (is_gpu() ? 2 : 0));
}

/* A wide layer's pass does what the CPU's does: the same path where nothing is mended, for warm-ups and chunks of odd and even
 * lengths; where chunks are mended the same rounds, and paths that differ by the two steps at which a difference may stop. */
static void test_wide_paths(void **state) {
  (void)state;
  int64_t mended = 0;
  for (int i = 0; i < 8; ++i) {
    problem p = problem_of(i < 4 ? RNN : i % CELLS, 40 + i, 1, 33, 4, 9 + i / 2);
    p.network.seed = 2 + (uint64_t)i;
    p.network.scale = i < 4 ? .2 : .5;
    p.network.config.loss_all = true;
    p.network.config.speculation.tolerance = i < 4 ? 1e-3 : -1;
    const bppsa_backward_stats s = check(&p);
    gradients g = gradients_on(&p, host, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
    assert_true(s.speculated && !s.given_up);
    assert_int_equal(s.rounds, g.stats.rounds);
    assert_int_equal(s.mended, g.stats.mended);
    assert_true(i >= 4 ||
                (s.path == g.stats.path && s.work == g.stats.work && s.mended == 0 && s.path == 9 + i / 2 + (43 + i) / 4));
    assert_true(imaxabs(s.path - g.stats.path) <= 2 * s.rounds);
    mended += s.mended;
    free_gradients(&g);
  }
  assert_true(mended > 4);
}

/* How many teams of a sample form a cluster changes nothing but launches; a GPU without clusters refuses what needs one. */
static void test_wide_clusters(void **state) {
  (void)state;
  static const char *const clusters[] = {"8", "2", "1"};
  bppsa_backward_stats s[3];
  for (int k = 0; k < 3; ++k) {
    problem p = problem_of(RNN, 33, 1, 33, 11, 1);
    p.network.seed = 90;
    assert_int_equal(setenv("SIMT_MOST_CLUSTER", clusters[k], 1), 0);
    s[k] = check(&p);
    assert_true(s[k].path == s[0].path && s[k].work == s[0].work && s[k].rounds == s[0].rounds && s[k].gap == s[0].gap);
    assert_true(s[k].mended == s[0].mended && s[k].given_up == s[0].given_up && s[k].perturbation == s[0].perturbation);
  }
  assert_true(s[0].mended > 5 && s[0].rounds > (is_gpu() ? 4 : 0));
  problem p = problem_of(GRU, 20, 1, 128, 4, 2);
  forward_problem network = p.network;
  bppsa_model *model = NULL;
  const bppsa_status status = bppsa_recurrent_create(&network.config, network.cell, device, &model);
  assert_int_equal(status, is_gpu() ? BPPSA_ERR_UNSUPPORTED : BPPSA_OK);
  assert_true(!is_gpu() || strstr(bppsa_last_error(), "128 units") != NULL);
  bppsa_model_destroy(model);
  assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
}

/* Differences of every size at boundaries, from those of no warm-up to those that are just too large, in chunks so short that they
 * go on into the next ones: none may be dropped that shows beside BP's own rounding. */
static void test_boundaries(void **state) {
  (void)state;
  enum { WARM_UPS = 9 };
  for (int kind = 0; kind < CELLS; ++kind) {
    int64_t rounds = 0, mended = 0;
    for (int i = 0; i < WARM_UPS; ++i) {
      problem p = problem_of(kind, 96, 1, 8, 8, 2 * i);
      p.network.config.loss_all = true;
      p.network.seed = 300 + (uint64_t)i;
      const bppsa_backward_stats s = check(&p);
      rounds = s.rounds > rounds ? s.rounds : rounds;
      mended += s.mended;
    }
    assert_true(mended >= 7 * WARM_UPS / 2 && rounds >= (is_gpu() ? 2 : 1));
  }
}

/* Chunks of a loss on the last step are silent: each walks a random vector, and then what comes from behind. An upper layer drops
 * none of it, because a layer below may make it grow, and may be left to BP. */
static void test_silent(void **state) {
  (void)state;
  for (int i = 0; i < CELLS + 2; ++i) {
    const int kind = i % CELLS;
    const bool wide = i >= CELLS;
    const int64_t length = kind == GRU ? 20 : 10, warm_up = kind == GRU ? 18 : 4;
    problem p = problem_of(kind, 6 * length, 2, wide ? 33 : 6, 6, warm_up);
    p.network.config.layers = 1 + kind % 2;
    p.network.config.input = 1 + kind;
    p.network.scale = kind == GRU ? 1 : 1.5;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated && s.mended >= 4 && s.path > warm_up + 2 * length && (kind % 2 == 1 || !s.given_up));
  }
}

/* A gradient of the last step falls to nothing, and grows again far in front of that: an RNN with W_hh = 2 Q, Q orthogonal, and
 * states for which 1 - h² is .25, and .9 in the middle. What enters a chunk there is below the tolerance, and so is what leaves
 * the first chunks: the bound for silent chunks must look at all chunks in front. A forward pass would not find these states, so
 * the tape is written by hand. */
enum { BACK_STEPS = 120, GROWS_FIRST = 16, GROWS_LAST = 68 };

/* Returns the gradient of W_hh [H][H], which the caller frees. tiny: what the loss has at the steps in front of the last one, over
 * what it has there; negative: it is on the last step alone. */
static double *gradient_of_tape(const bppsa_device *on, bppsa_dtype dtype, bppsa_backward backward, int64_t hidden,
                                const double *w_hh, double tiny, bppsa_backward_stats *stats) {
  problem p = problem_of(RNN, BACK_STEPS, 1, hidden, 8, 10);
  p.network.config.tape = true;
  p.network.config.loss_all = tiny >= 0;
  net n = open_net(&p, on, dtype, backward, NULL);
  int64_t size;
  assert_int_equal(bppsa_recurrent_tape_size(n.model, &size), BPPSA_OK);
  double *states = bppsa_calloc(size, sizeof *states);
  for (int64_t i = 0; i < (BACK_STEPS + 1) * hidden; ++i) {
    const int64_t t = i / hidden;
    states[i] = sqrt(1 - (t >= GROWS_FIRST && t <= GROWS_LAST ? .9 : .25)) * (i % 2 == 0 ? 1 : -1);
  }
  for (int64_t i = 0; i < hidden * hidden; ++i) {
    bppsa_view_set(&n.model->parameters[1].value, i, (double)(float)w_hh[i]);
  }
  assert_int_equal(bppsa_model_push(n.model), BPPSA_OK);
  bppsa_view tape = view_on(on, dtype, states, 1, &size);
  assert_int_equal(bppsa_recurrent_use_tape(n.model, &n.x, &tape, NULL), BPPSA_OK);
  const int64_t steps = tiny >= 0 ? BACK_STEPS : 1, shape[] = {steps, 1, n.model->classes};
  double *of_loss = bppsa_calloc(steps * n.model->classes, sizeof *of_loss);
  for (int64_t i = 0; i < steps * n.model->classes; ++i) {
    of_loss[i] = ((double)(i % 3) - .5) * (i < (steps - 1) * n.model->classes ? tiny : 1);
  }
  bppsa_view seed = view_on(on, dtype, of_loss, tiny >= 0 ? 3 : 2, tiny >= 0 ? shape : shape + 1);
  assert_int_equal(n.model->ops->backward(n.model, &seed), BPPSA_OK);
  assert_int_equal(bppsa_backward_stats_of(n.model, stats), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(n.model, true), BPPSA_OK);
  bppsa_memory_free(on, seed.data);
  double *found = bppsa_calloc(hidden * hidden, sizeof *found);
  for (int64_t i = 0; i < hidden * hidden; ++i) {
    found[i] = bppsa_view_get(&n.model->parameters[1].gradient, i);
  }
  bppsa_memory_free(on, tape.data);
  close_net(&n);
  return found;
}

static void test_comes_back(void **state) {
  (void)state;
  static const double tiny[] = {-1, 0, 1e-30, 1e-20, -1};
  for (size_t k = 0; k < sizeof tiny / sizeof *tiny; ++k) {
    const int64_t hidden = k == 4 ? 34 : 8;
    bppsa_backward_stats stats;
    double *q = orthogonal(7, hidden, 2),
           *exact = gradient_of_tape(host, BPPSA_F64, BPPSA_BACKWARD_BP, hidden, q, tiny[k], &stats),
           *bp = gradient_of_tape(device, BPPSA_F32, BPPSA_BACKWARD_BP, hidden, q, tiny[k], &stats),
           *found = gradient_of_tape(device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, hidden, q, tiny[k], &stats);
    assert_true(stats.speculated && (k == 2 || k == 3 || !stats.given_up));
    assert_within_own(hidden * hidden, exact, bp, found, tiny[k]);
    bppsa_free(q);
  }
}

/* More chunks than a sample has warps, in clusters of several sizes and on GPUs with few multiprocessors: warps take them in turn,
 * and what a pass did is the same. Rounds, the tail, and samples that are given up. */
static void test_many_chunks(void **state) {
  (void)state;
  static const struct {
    int64_t chunks, length, warm_up, hidden;
    int cell;
    double scale;
    bool all, f64;
  } cases[] = {{9, 6, 3, 7, RNN, 1.2, true, false},   {20, 2, 0, 7, GRU, 1, true, false}, {18, 2, 1, 5, LSTM, 1, false, true},
               {66, 1, 0, 5, RNN, 1.1, false, false}, {12, 3, 2, 9, GRU, 3, false, true}, {10, 4, 1, 6, RNN, 6, true, false}};
  static const char *const clusters[] = {"1", "8"};
  int64_t rounds = 0, given_up = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_backward_stats s[2];
    for (size_t k = 0; k < 2; ++k) {
      problem p =
          problem_of(cases[i].cell, cases[i].chunks * cases[i].length, 1, cases[i].hidden, cases[i].chunks, cases[i].warm_up);
      p.network.seed = 80 + i;
      p.network.scale = cases[i].scale;
      p.network.config.dtype = cases[i].f64 ? BPPSA_F64 : BPPSA_F32;
      p.network.config.loss_all = cases[i].all;
      assert_int_equal(setenv("SIMT_MOST_CLUSTER", clusters[k], 1), 0);
      assert_int_equal(setenv("SIMT_MULTIPROCESSORS", k == 1 ? "132" : "4", 1), 0);
      s[k] = check(&p);
      assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
      assert_int_equal(unsetenv("SIMT_MULTIPROCESSORS"), 0);
      assert_true(s[k].path == s[0].path && s[k].work == s[0].work && s[k].rounds == s[0].rounds);
      assert_true(s[k].mended == s[0].mended && s[k].gap == s[0].gap && s[k].given_up == s[0].given_up);
    }
    rounds = s[0].rounds > rounds ? s[0].rounds : rounds;
    given_up += s[0].given_up;
  }
  assert_true(rounds >= (is_gpu() ? 9 : 2) && given_up > 0);
}

/* Chunks that a round leaves as they are, while others are mended: their ends are still needed, by chunks in front that later
 * rounds mend, and as the gradient of h0. The first chunk's gradients are much larger than others, or any part's are. */
static void test_kept(void **state) {
  (void)state;
  enum { CHUNKS = 5, LENGTH = 24, STEPS = CHUNKS * LENGTH, PROBLEMS = 3 };
  int64_t rounds = 0, kept = 0;
  for (int i = 0; i < 2 * CELLS * PROBLEMS; ++i) {
    const bool first = i % PROBLEMS == 0;
    dice d = {.seed = 400 + (uint64_t)i};
    double louder[STEPS];
    problem p = problem_of(i / PROBLEMS % CELLS, STEPS, 1 + i % 2, i < CELLS * PROBLEMS ? 33 : 6, CHUNKS, 3);
    for (int64_t t = 0, power = 0; t < STEPS; ++t) {
      power = t % (LENGTH / 2) == 0 ? roll(&d, 0, 5) : power;
      louder[t] = pow(10, (double)(!first ? power : t < LENGTH ? 8 : 0));
    }
    p.louder = louder;
    p.network.seed = 400 + (uint64_t)i;
    p.network.scale = .6;
    p.network.config.loss_all = true;
    p.network.config.input_gradients = true;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated);
    kept += first && s.mended > 0 && !s.given_up;
    rounds = s.rounds > rounds ? s.rounds : rounds;
  }
  assert_true(kept == 2 * CELLS && rounds > (is_gpu() ? 1 : 0));
}

/* What a pass measures is what the CPU's measures: the scale of a chunk is the mean of its gradients or of its latest ones, of all
 * its units and of both numbers of a pair, without its warm-up; a difference stops where it is small beside the least mean. */
static void test_measures(void **state) {
  (void)state;
  enum { CHUNKS = 4, LENGTH = 24, STEPS = CHUNKS * LENGTH, PROBLEMS = 6 };
  static const int64_t hidden[PROBLEMS] = {33, 48, 64, 7, 20, 32};
  int64_t mended = 0, stopped = 0;
  for (int i = 0; i < 2 * CELLS * PROBLEMS; ++i) {
    const bool stops = i >= CELLS * PROBLEMS, wide = i % PROBLEMS < 3;
    dice d = {.seed = 500 + (uint64_t)i};
    double louder[STEPS];
    problem p = problem_of(i / PROBLEMS % CELLS, STEPS, 1, hidden[i % PROBLEMS], CHUNKS, stops ? 2 : 5);
    for (int64_t t = 0, power = 0; t < STEPS; ++t) {
      power = t % 4 == 0 ? roll(&d, -8, 8) : power;
      louder[t] = stops ? (t % LENGTH < LENGTH / 2 ? 1e-4 : 1) : pow(10, (double)power / 10);
    }
    p.louder = louder;
    p.network.seed = 500 + (uint64_t)i;
    p.network.scale = !stops ? .6 : i / PROBLEMS % CELLS == RNN ? .5 : .3;
    p.network.config.loss_all = true;
    p.network.config.speculation.tolerance = stops ? -1 : .03;
    gradients found = gradients_on(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL),
              cpu = gradients_on(&p, host, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
    const bppsa_backward_stats s = found.stats, t = cpu.stats;
    assert_true(s.speculated && s.given_up == t.given_up && s.rounds == t.rounds && s.mended == t.mended);
    assert_true(s.path >= t.path && s.path - t.path <= (wide ? 4 : 8) * s.rounds); /* it looks at fewer steps */
    if (!stops) {
      assert_true(fabs(s.gap - t.gap) <= 1e-3 * t.gap && fabs(s.perturbation - t.perturbation) <= 1e-3 * t.perturbation);
      assert_true(error_of(&found, &cpu) <= 1e-5);
    }
    mended += s.mended;
    stopped += s.gap == 0 && s.perturbation > 0; /* nothing was dropped but where walks stopped */
    free_gradients(&found);
    free_gradients(&cpu);
  }
  assert_true(mended > 20 && stopped > 2);
}

/* Between two parts of a sequence that the loss reaches, a difference grows beyond all numbers: it is NaN at the boundary of the
 * chunk in front, which the loss reaches again. That is no difference to accept. */
static void test_overflows(void **state) {
  (void)state;
  enum { CHUNKS = 8, LENGTH = 15, STEPS = CHUNKS * LENGTH };
  double louder[STEPS] = {[STEPS - 1] = 1};
  for (int64_t t = 0; t < LENGTH; ++t) {
    louder[t] = 1;
  }
  for (int k = 0; k < 2; ++k) {
    problem p = problem_of(RNN, STEPS, 1, k == 0 ? 6 : 33, CHUNKS, 5);
    p.louder = louder;
    p.still = p.network.orthogonal = true;
    p.network.scale = 40;
    p.network.config.loss_all = true;
    p.network.config.input_gradients = true;
    gradients found = gradients_on(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL),
              bp = gradients_on(&p, device, BPPSA_F32, BPPSA_BACKWARD_BP, NULL);
    int64_t finite = 0, others = 0;
    for (int64_t i = 0; i < bp.count; ++i) {
      for (int64_t j = 0; j < bp.sizes[i]; ++j) {
        assert_int_equal(isfinite(found.of[i][j]) != 0, isfinite(bp.of[i][j]) != 0);
        finite += isfinite(bp.of[i][j]) != 0;
        others += isfinite(bp.of[i][j]) == 0;
      }
    }
    assert_true(found.stats.speculated && finite > LENGTH && others > LENGTH);
    free_gradients(&found);
    free_gradients(&bp);
  }
}

/* A chunk's gradients overflow because its warm-up does not see what takes them to 0: W_hh is 8 times the identity, and the loss
 * gives -1 / 8 one step behind a 1. No difference mends that, so the sample is given up. */
static void test_guess_overflows(void **state) {
  (void)state;
  enum { STEPS = 100, WARM_UP = 5 };
  double louder[STEPS] = {[STEPS / 2 + WARM_UP - 1] = 1, [STEPS / 2 + WARM_UP] = -.125};
  for (int k = 0; k < 2; ++k) {
    problem p = problem_of(RNN, STEPS, 1, k == 0 ? 6 : 33, 2, WARM_UP);
    bppsa_recurrent_config *c = &p.network.config;
    p.louder = louder;
    p.still = p.first_unit = true;
    c->loss_all = c->no_head = c->input_gradients = true;
    net weights = open_net(&p, host, BPPSA_F32, BPPSA_BACKWARD_BP, NULL);
    for (int64_t i = 0; i < c->hidden * c->hidden; ++i) {
      bppsa_view_set(&weights.model->parameters[1].value, i, i % (c->hidden + 1) == 0 ? 8 : 0);
    }
    p.network.weights = weights.model;
    assert_true(check(&p).given_up);
    close_net(&weights);
  }
}

/* A difference that is nearly nothing at two steps in turn, and large at the next one: W_hh moves it from unit to unit, with a
 * factor for each. A wide layer's walk stops at what it has measured behind the two. (A CPU's stops at one step.) */
static void test_small_twice(void **state) {
  (void)state;
  enum { STEPS = 32, HIDDEN = 33, FIRST = 18 };
  for (int64_t from = FIRST; is_gpu() && from < FIRST + 2; ++from) {
    const int64_t small = from - FIRST + 4; /* the difference begins in the unit in front of this one */
    double louder[STEPS];
    problem p = problem_of(RNN, STEPS, 1, HIDDEN, 2, 2);
    for (int64_t t = 0; t < STEPS; ++t) {
      louder[t] = t < STEPS / 2 || t == from ? 1 : 0;
    }
    p.louder = louder;
    p.still = p.first_unit = true;
    p.network.config.loss_all = p.network.config.no_head = true;
    net weights = open_net(&p, host, BPPSA_F32, BPPSA_BACKWARD_BP, NULL);
    bppsa_view *w = &weights.model->parameters[1].value;
    for (int64_t i = 0; i < HIDDEN * HIDDEN; ++i) { /* row: the unit from which a gradient comes */
      const int64_t unit = i / HIDDEN;
      bppsa_view_set(w, i, i % HIDDEN != unit + 1 || unit > 12 ? 0 : unit == small ? 1e-14 : unit == small + 2 ? 1e16 : 1);
    }
    p.network.weights = weights.model;
    assert_int_equal(check(&p).mended, 1);
    close_net(&weights);
  }
}

/* What is not finite in one sample stands where BP puts it, and the other samples have their gradients. */
static void test_nonfinite(void **state) {
  (void)state;
  for (int kind = 0; kind < CELLS; ++kind) {
    problem p = problem_of(kind, 48, 3, kind == RNN ? 34 : 5, 4, 6);
    p.network.config.loss_all = true;
    p.network.config.input_gradients = true;
    p.spoiled = 20 * 3 + 1; /* step 20 of sample 1 */
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated && s.given_up && isfinite(s.gap) && isfinite(s.perturbation));
  }
}

/* A network that forgets nothing: every Jacobian is 1. Passes are given up after a round, and three of them in a row make the next
 * ones BP. */
static void test_pauses(void **state) {
  (void)state;
  enum { HIDDEN = 4, PASSES = 6 };
  problem p = problem_of(RNN, 60, 2, HIDDEN, 4, 5), bp = p;
  p.network.config.loss_all = true;
  p.network.config.nonlinearity = BPPSA_NONLINEARITY_RELU;
  bp = p;
  net n = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
  bppsa_backward_stats none;
  assert_int_equal(bppsa_backward_stats_of(n.model, &none), BPPSA_OK);
  assert_true(none.passes == 0 && none.path == 0 && !none.speculated);
  for (int64_t i = 0; i < HIDDEN * HIDDEN; ++i) {
    bppsa_view_set(&n.model->parameters[1].value, i, i % (HIDDEN + 1) == 0 ? 1 : 0);
    bppsa_view_set(&n.model->parameters[3].value, i % HIDDEN, 3);
  }
  assert_int_equal(bppsa_model_push(n.model), BPPSA_OK);
  gradients expected = gradients_on(&bp, device, BPPSA_F32, BPPSA_BACKWARD_BP, n.model);
  for (int i = 0; i < PASSES; ++i) {
    gradients g = pass(&n);
    bppsa_backward_state now;
    assert_int_equal(bppsa_backward_state_get(n.model, &now), BPPSA_OK);
    assert_int_equal(g.stats.speculated, i < 3 || i == 5);
    assert_int_equal(g.stats.given_up, g.stats.speculated);
    assert_int_equal(g.stats.path, g.stats.speculated ? 15 + 5 + 15 + 60 : 60);
    assert_true(g.stats.speculated ? g.stats.work > 1 : g.stats.work == 1);
    assert_true(error_of(&g, &expected) <= 1e-6);
    assert_int_equal(now.pause.failures, i < 3 ? i + 1 : i < 5 ? 3 : 4);
    assert_int_equal(now.pause.left, i < 2 ? 0 : i < 5 ? 102 - i : 200);
    if (i == 4) {
      now = (bppsa_backward_state){.pause = {3, 0}, .warm_up = 5};
      assert_int_equal(bppsa_backward_state_set(n.model, &now), BPPSA_OK);
    }
    free_gradients(&g);
  }
  free_gradients(&expected);
  close_net(&n);
}

/* During a pause a wide layer's pass is BP too, with its bits. */
static void test_wide_pause(void **state) {
  (void)state;
  for (int kind = 0; kind < CELLS; kind += 2) {
    const bppsa_backward_state paused = {.pause = {3, 1}};
    problem p = problem_of(kind, 24, 2, 33, 4, 3), bp = p;
    bppsa_backward_state after;
    net n = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
    gradients expected = gradients_on(&bp, device, BPPSA_F32, BPPSA_BACKWARD_BP, n.model);
    assert_int_equal(bppsa_backward_state_set(n.model, &paused), BPPSA_OK);
    gradients found = pass(&n);
    assert_true(!found.stats.speculated && found.stats.path == 24 && found.stats.work == 1 && same_numbers(&found, &expected));
    assert_int_equal(bppsa_backward_state_get(n.model, &after), BPPSA_OK);
    assert_true(after.pause.failures == 3 && after.pause.left == 0);
    free_gradients(&found);
    found = pass(&n);
    assert_true(found.stats.speculated);
    free_gradients(&found);
    free_gradients(&expected);
    close_net(&n);
  }
}

/* Passes of a network that forgets slowly lengthen W, those of one that forgets quickly shorten it, without the host. What a pass
 * computes depends on the state alone. Two layers: all of a pass counts. */
static void test_warm_ups(void **state) {
  (void)state;
  enum { PASSES = 4 };
  static const struct { double scale, tolerance; } cases[] = {{.8, 2.4e-7}, {.1, 1e-4}};
  for (int k = 0; k < 2; ++k) {
    problem p = problem_of(RNN, 180, 2, 6, 3, -1);
    p.network.config.loss_all = true;
    p.network.config.layers = 2;
    p.network.config.speculation.adapts = true;
    p.network.config.speculation.tolerance = cases[k].tolerance;
    p.network.orthogonal = true;
    p.network.scale = cases[k].scale;
    net n = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
    net again = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, n.model);
    bppsa_backward_state first = {.warm_up = 0}, last = first;
    int64_t longest = 0;
    assert_true(bppsa_backward_plan_of(n.model)->adapts);
    for (int i = 0; i < PASSES; ++i) {
      first = last;
      gradients g = pass(&n);
      assert_int_equal(bppsa_backward_state_get(n.model, &last), BPPSA_OK);
      const int64_t before = first.warm_up > 0 ? first.warm_up : bppsa_backward_plan_of(n.model)->warm_up;
      assert_true(!g.stats.given_up && (g.stats.mended > 0 ? last.warm_up >= before : last.warm_up < before));
      longest = last.warm_up > longest ? last.warm_up : longest;
      if (i + 1 == PASSES) {
        assert_int_equal(bppsa_backward_state_set(again.model, &first), BPPSA_OK);
        gradients same = pass(&again);
        assert_true(same_numbers(&g, &same) && g.stats.path == same.stats.path);
        free_gradients(&same);
      }
      free_gradients(&g);
    }
    assert_true(k == 0 ? longest > 40 && longest <= 60 : !is_gpu() || last.warm_up == 40 - PASSES); /* up to a chunk */
    close_net(&n);
    close_net(&again);
  }
}

/* With tolerance 0 every pass is BP, bit for bit. */
static void test_exact(void **state) {
  (void)state;
  for (int kind = 0; kind < CELLS; ++kind) {
    problem p = problem_of(kind, 40, 2, 5, 4, 3);
    p.network.config.speculation.tolerance = 0;
    p.network.config.input_gradients = true;
    gradients found = gradients_on(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL),
              bp = gradients_on(&p, device, BPPSA_F32, BPPSA_BACKWARD_BP, NULL);
    assert_true(same_numbers(&found, &bp) && !found.stats.speculated && !found.plan.speculative);
    free_gradients(&found);
    free_gradients(&bp);
  }
}

/* Where gradients of x must be exact, a pass is BP if the loss misses a step. That is no pause. */
static void test_exact_inputs(void **state) {
  (void)state;
  for (int misses = 0; misses < 4; ++misses) { /* no step; step 7; all but the last ones; what is behind a sample's end */
    static const int64_t lengths[] = {7, 30};
    problem p = problem_of(RNN, 40, 2, 4, 4, 6);
    p.network.config.loss_all = misses != 2;
    p.network.config.input_gradients = true;
    p.network.config.speculation.exact_inputs = true;
    p.network.scale = .2;
    p.missed = misses == 1 || misses == 3 ? 7 : -1;
    p.network.config.lengths = misses == 3;
    p.lengths = misses == 3 ? lengths : NULL;
    const bppsa_backward_stats s = check(&p);
    assert_int_equal(s.speculated, misses == 0 || misses == 3);
    assert_int_equal(s.given_up, false);
    assert_true(s.speculated || (s.path == 40 && s.work == 1));
  }
}

static bppsa_status queue_pass(void *context) {
  const net *n = context;
  return n->model->ops->backward(n->model, &n->seed);
}

/* A recording replays with the same bits, and counts. */
static void test_recording(void **state) {
  (void)state;
  if (!is_gpu()) {
    return;
  }
  problem p = problem_of(LSTM, 60, 2, 5, 6, 4);
  p.network.config.loss_all = true;
  net n = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
  gradients first = pass(&n);
  bppsa_graph *graph = NULL;
  bppsa_backward_stats s;
  assert_int_equal(bppsa_graph_capture(device, queue_pass, &n, &graph), BPPSA_OK);
  assert_int_equal(bppsa_graph_launch(device, graph), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(n.model, true), BPPSA_OK);
  for (int64_t i = 0; i < first.count; ++i) {
    for (int64_t j = 0; j < first.sizes[i]; ++j) {
      assert_true(bppsa_view_get(&n.model->parameters[i].gradient, j) == first.of[i][j]);
    }
  }
  assert_int_equal(bppsa_backward_stats_of(n.model, &s), BPPSA_OK);
  assert_true(s.speculated && s.path == first.stats.path && s.mended == first.stats.mended && s.mended > 0);
  bppsa_graph_destroy(device, graph);
  free_gradients(&first);
  close_net(&n);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_to_mend),
                                     cmocka_unit_test(test_widths),
                                     cmocka_unit_test(test_edges),
                                     cmocka_unit_test(test_boundaries),
                                     cmocka_unit_test(test_wide),
                                     cmocka_unit_test(test_wide_paths),
                                     cmocka_unit_test(test_wide_clusters),
                                     cmocka_unit_test(test_wide_pause),
                                     cmocka_unit_test(test_warm_ups),
                                     cmocka_unit_test(test_silent),
                                     cmocka_unit_test(test_comes_back),
                                     cmocka_unit_test(test_many_chunks),
                                     cmocka_unit_test(test_kept),
                                     cmocka_unit_test(test_measures),
                                     cmocka_unit_test(test_overflows),
                                     cmocka_unit_test(test_guess_overflows),
                                     cmocka_unit_test(test_small_twice),
                                     cmocka_unit_test(test_nonfinite),
                                     cmocka_unit_test(test_pauses),
                                     cmocka_unit_test(test_exact),
                                     cmocka_unit_test(test_exact_inputs),
                                     cmocka_unit_test(test_recording)};
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}

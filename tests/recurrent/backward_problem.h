/* Backward passes of a network on a device, planned in chunks of time, against BP on the host in float64. A program that includes
 * this opens the devices with open_devices, which BPPSA_TEST_DEVICE names. */
#ifndef BPPSA_TESTS_RECURRENT_BACKWARD_PROBLEM_H
#define BPPSA_TESTS_RECURRENT_BACKWARD_PROBLEM_H

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/recurrent/forward_problem.h"

static bppsa_device *device, *host;

/* Bytes of shared memory that a block of the emulated GPU has, as an H200's. */
static const char H200_SHARED[] = "232448";

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
  if (bppsa_model_forward(n->model, &n->x, NULL, &(bppsa_spans){.lengths = n->p->lengths}, &logits) != BPPSA_OK ||
      n->model->ops->backward(n->model, &n->seed) != BPPSA_OK) {
    fail_msg("a pass: %s", bppsa_last_error());
  }
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

/* Passes of a network that forgets nothing, since every Jacobian is 1: each is given up after a round, and three of them in a row
 * make the next ones a scan of so many chunks, or with 0 BP. path, work: that pass's. */
enum { PAUSED_HIDDEN = 4 };
static inline void check_pauses(int64_t scan_chunks, int64_t path, double work) {
  enum { HIDDEN = PAUSED_HIDDEN, PASSES = 6 };
  problem p = problem_of(RNN, 60, 2, HIDDEN, 4, 5);
  p.network.config.speculation.scan_chunks = scan_chunks;
  p.network.config.loss_all = true;
  p.network.config.nonlinearity = BPPSA_NONLINEARITY_RELU;
  net n = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
  bppsa_backward_stats none;
  assert_int_equal(bppsa_backward_stats_of(n.model, &none), BPPSA_OK);
  assert_true(none.passes == 0 && none.path == 0 && !none.speculated);
  for (int64_t i = 0; i < HIDDEN * HIDDEN; ++i) {
    bppsa_view_set(&n.model->parameters[1].value, i, i % (HIDDEN + 1) == 0 ? 1 : 0);
    bppsa_view_set(&n.model->parameters[3].value, i % HIDDEN, 3);
  }
  assert_int_equal(bppsa_model_push(n.model), BPPSA_OK);
  gradients expected = gradients_on(&p, device, BPPSA_F32, BPPSA_BACKWARD_BP, n.model);
  for (int i = 0; i < PASSES; ++i) {
    gradients g = pass(&n);
    bppsa_backward_state now;
    assert_int_equal(bppsa_backward_state_get(n.model, &now), BPPSA_OK);
    assert_int_equal(g.stats.speculated, i < 3 || i == 5);
    assert_int_equal(g.stats.given_up, g.stats.speculated);
    assert_int_equal(g.stats.scanned, g.stats.speculated && scan_chunks > 0 && is_gpu());
    assert_int_equal(g.stats.path, (g.stats.speculated ? 15 + 5 + 15 : 0) + path);
    assert_true(g.stats.speculated ? g.stats.work > 1 : g.stats.work == work);
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

#endif

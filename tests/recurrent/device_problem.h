/* Compares recurrent networks on a device, for every way a device computes them, with the CPU's sequential BP in float64. A
 * program that includes this sets `device`, which is tested, and `host`. */
#ifndef BPPSA_TESTS_RECURRENT_DEVICE_PROBLEM_H
#define BPPSA_TESTS_RECURRENT_DEVICE_PROBLEM_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "tests/support/support.h"

static bppsa_device *device, *host;

enum { RNN, GRU, LSTM };
static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};

/* Sets how much shared memory a block of the emulated device has, and how many blocks a cluster has; NULL: as much as a block of
 * any GPU, as many as possible. */
static void set_most(const char *what, const char *most) {
  assert_int_equal(most != NULL ? setenv(what, most, 1) : unsetenv(what), 0);
}
static const char LARGE_SHARED[] = "232448"; /* an H200's */

typedef struct {
  bppsa_backward backward;
  bppsa_scan_algorithm algorithm;
  int64_t chunks;
} way;

/* A problem, with the inputs and results of both networks. */
typedef struct {
  bppsa_recurrent_config config;
  const bppsa_cell *cell;
  bool state;                       /* the network has an h0 */
  int64_t batch;                    /* samples of the pass, at most the configuration's */
  bppsa_init init;                  /* how the weights are drawn */
  const int64_t *lengths, *samples; /* the samples' lengths and numbers for dropout; NULL: T; no dropout */
  const uint8_t *resets;            /* [T][b]; NULL: no sample begins anew */
  double *x, *h0, *seed;
  bppsa_model *reference;
  bppsa_view logits;
} problem;

/* What a shape has besides its sizes: the loss on every step, gradients of x and h0, an h0, ReLU where the cell knows it, no
 * biases, two directions, samples of their own lengths. */
enum { LOSS_ALL = 1, INPUTS = 2, H0 = 4, RELU = 8, NO_BIAS = 16, BOTH_WAYS = 32, LENGTHS = 64 };

/* T, B of the configuration, b of the pass, I, H and L of a problem. */
typedef struct {
  int64_t steps, planned, batch, input, hidden, layers;
  unsigned has;
} device_shape;

/* Returns a problem without numbers, of orthogonal weights and three classes. */
static inline problem shaped_problem(const bppsa_cell *cell, const device_shape *s, bppsa_dtype dtype) {
  problem p = {.config = bppsa_recurrent_config_default(),
               .cell = cell,
               .init = BPPSA_INIT_ORTHOGONAL,
               .state = (s->has & H0) != 0,
               .batch = s->batch};
  bppsa_recurrent_config *c = &p.config;
  c->seq_len = s->steps;
  c->batch = s->planned;
  c->input = s->input;
  c->hidden = s->hidden;
  c->layers = s->layers;
  c->classes = 3;
  c->dtype = dtype;
  c->loss_all = (s->has & LOSS_ALL) != 0;
  c->input_gradients = (s->has & INPUTS) != 0;
  c->nonlinearity = (s->has & RELU) != 0 && cell->relu ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  c->no_bias = (s->has & NO_BIAS) != 0;
  c->bidirectional = (s->has & BOTH_WAYS) != 0;
  c->lengths = (s->has & LENGTHS) != 0;
  return p;
}

static bppsa_status create(const problem *p, const bppsa_recurrent_config *config, const bppsa_device *on, bppsa_model **model) {
  return bppsa_recurrent_create(config, p->cell, on, model);
}

/* Counts the initial states of a sample: one for each direction of a layer. */
static int64_t layers_of(const problem *p) {
  return (p->config.bidirectional ? 2 : 1) * p->config.layers;
}

/* Counts the numbers in a state. */
static int64_t state_size(const problem *p) {
  return (p->cell->pair ? 2 : 1) * p->config.hidden;
}

/* Returns a view of an array's copy on a device; free its data with bppsa_memory_free. */
static bppsa_view put(const bppsa_device *on, bppsa_dtype dtype, const double *values, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make(NULL, dtype, ndim, shape);
  const int64_t count = bppsa_view_count(&view);
  double *copy = bppsa_calloc(count, sizeof *copy);
  assert_non_null(copy);
  memcpy(copy, values, (size_t)count * sizeof *copy);
  void *typed = rounded(dtype, copy, count);
  view.data = on_device(on, typed, (int64_t)bppsa_view_bytes(&view));
  view.device = bppsa_device_get_kind(on);
  bppsa_free(typed);
  bppsa_free(copy);
  return view;
}

/* Returns gradients [T][S] of all states in a network whose states are 0, so that Jᵀ = Wᵀ (RNN) or Wᵀ_hn / 4 + I / 2 (GRU),
 * or, with open forget gates, δ becomes (Wᵀ_hg / 4 + I) δ (LSTM); the weights follow from the Jacobian J [H][H]. seed: [H] */
static inline double *hidden_gradients(int cell, const bppsa_device *on, bppsa_dtype dtype, const way *w, int64_t steps,
                                       int64_t hidden, const double *jacobian, const double *seed, int64_t *redone) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  bppsa_model *model = NULL;
  bppsa_view logits, gradients;
  c.seq_len = steps;
  c.batch = 1;
  c.hidden = hidden;
  c.dtype = dtype;
  c.method.backward = w->backward;
  c.method.scan.algorithm = w->algorithm;
  c.method.scan.chunks = w->chunks;
  assert_int_equal(bppsa_recurrent_create(&c, cells[cell], on, &model), BPPSA_OK);
  const bppsa_view *w_hh = &model->parameters[1].value;
  for (int64_t i = 0; i < hidden * hidden; ++i) { /* both cells have n and g in the third place */
    const double diagonal = i % hidden == i / hidden, kept = cell == GRU ? 2 : 4;
    bppsa_view_set(w_hh, (cell != RNN ? 2 * hidden * hidden : 0) + i,
                   cell != RNN ? 4 * jacobian[i] - kept * diagonal : jacobian[i]);
  }
  for (int64_t j = 0; cell == LSTM && j < hidden; ++j) {
    bppsa_view_set(&model->parameters[2].value, hidden + j, 60); /* σ is 1 */
  }
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
  double *x = bppsa_calloc(steps, sizeof *x), *result = bppsa_calloc(2 * steps * hidden, sizeof *result);
  bppsa_view in = put(on, dtype, x, 3, (int64_t[]){steps, 1, 1}), from = put(on, dtype, seed, 2, (int64_t[]){1, hidden});
  assert_int_equal(model->ops->forward(model, &in, NULL, &logits), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_hidden_gradients(model, &from, &gradients), BPPSA_OK);
  bppsa_view wide = bppsa_view_make(result, BPPSA_F64, 3, gradients.shape),
             typed = bppsa_view_make(NULL, dtype, 3, gradients.shape);
  typed.data = bppsa_alloc(bppsa_view_bytes(&typed));
  assert_int_equal(bppsa_memory_get(on, typed.data, gradients.data, (int64_t)bppsa_view_bytes(&typed)), BPPSA_OK);
  assert_int_equal(bppsa_view_convert(&typed, &wide), BPPSA_OK);
  assert_int_equal(bppsa_model_update_redone(model), BPPSA_OK);
  *redone = model->redone;
  bppsa_free(typed.data);
  bppsa_free(x);
  bppsa_memory_free(on, in.data);
  bppsa_memory_free(on, from.data);
  bppsa_model_destroy(model);
  return result;
}

/* Compares a device's array with the host's in float64. */
static void check(const problem *p, const way *w, const char *what, const bppsa_view *got, const double *expected) {
  const int64_t count = bppsa_view_count(got);
  void *copy = bppsa_alloc(bppsa_view_bytes(got));
  assert_non_null(copy);
  assert_int_equal(bppsa_memory_get(got->device == BPPSA_CUDA ? device : NULL, copy, got->data, (int64_t)bppsa_view_bytes(got)),
                   BPPSA_OK);
  const double r = residual(got->dtype, copy, expected, count, sqrt((double)p->config.seq_len));
  if (!(r < 30)) {
    const bppsa_recurrent_config *c = &p->config;
    fail_msg("%s %s: T %lld, B %lld of %lld, I %lld, H %lld, L %lld, %s, %s; backward %d, algorithm %d, chunks %lld: residual %g",
             p->cell->name, what, (long long)c->seq_len, (long long)p->batch, (long long)c->batch, (long long)c->input,
             (long long)c->hidden, (long long)c->layers, bppsa_dtype_name(c->dtype), c->loss_all ? "all" : "last",
             (int)w->backward, (int)w->algorithm, (long long)w->chunks, r);
  }
  bppsa_free(copy);
}

/* Draws the learned state from which samples begin anew, which is 0 at first. */
static inline void draw_reset_state(bppsa_model *model) {
  const bppsa_parameter *first = &model->parameters[0];
  for (int64_t i = 0; strstr(first->name, ".reset_state") != NULL && i < bppsa_view_count(&first->value); ++i) {
    bppsa_view_set(&first->value, i, .7 * sin((double)(3 * i + 1)));
  }
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
}

/* Gives both networks the device's weights, rounded to its type. */
static void share_weights(problem *p, bppsa_model *model) {
  bppsa_named_view values[64];
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    values[i] = (bppsa_named_view){model->parameters[i].name, model->parameters[i].value};
  }
  assert_int_equal(bppsa_model_set(p->reference, "test", model->parameter_count, values), BPPSA_OK);
}

/* Makes a forward and a backward pass. Shapes: x [T, b, I], h0 [L, b, S], seed [b, C] or [T, b, C]. */
static void pass(const problem *p, bppsa_model *model, const bppsa_device *on, bppsa_view *logits, bppsa_view held[3]) {
  const bppsa_recurrent_config *c = &p->config;
  const int64_t x[] = {c->seq_len, p->batch, c->input}, h0[] = {layers_of(p), p->batch, state_size(p)},
                seed[] = {c->seq_len, p->batch, c->classes};
  held[0] = put(on, model->dtype, p->x, 3, x);
  held[1] = put(on, model->dtype, p->h0, 3, h0);
  held[2] = put(on, model->dtype, p->seed, c->loss_all ? 3 : 2, c->loss_all ? seed : seed + 1);
  const bppsa_view resets = bppsa_view_make((void *)(uintptr_t)p->resets, BPPSA_U8, 2, x);
  const bppsa_spans spans = {.lengths = p->lengths, .resets = p->resets != NULL ? &resets : NULL};
  bppsa_model_drop(model, 7, p->samples);
  assert_int_equal(bppsa_model_forward(model, &held[0], p->state ? &held[1] : NULL, &spans, logits), BPPSA_OK);
  assert_int_equal(model->ops->backward(model, &held[2]), BPPSA_OK);
}

static void drop(const bppsa_device *on, bppsa_view held[3]) {
  for (int i = 0; i < 3; ++i) {
    bppsa_memory_free(on, held[i].data);
  }
}

static inline void check_way(problem *p, const way *w) {
  bppsa_recurrent_config c = p->config, exact = p->config;
  bppsa_model *model = NULL;
  bppsa_view logits, expected_logits, held[3], expected_held[3], got[2], expected[2];
  c.method.backward = w->backward;
  c.method.scan.algorithm = w->algorithm;
  c.method.scan.chunks = w->chunks;
  exact.dtype = BPPSA_F64;
  exact.method.backward = BPPSA_BACKWARD_BP;
  assert_int_equal(create(p, &c, device, &model), BPPSA_OK);
  assert_int_equal(create(p, &exact, host, &p->reference), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(model, p->init, (uint64_t)c.seq_len), BPPSA_OK);
  draw_reset_state(model);
  share_weights(p, model);
  assert_int_equal(bppsa_recurrent_states(model, 0, &got[0]), BPPSA_ERR_ARGUMENT); /* no pass yet */
  pass(p, p->reference, host, &expected_logits, expected_held);
  for (int again = 0; again < 2; ++again) { /* a second pass must give the same */
    pass(p, model, device, &logits, held);
    check(p, w, "logits", &logits, expected_logits.data);
    for (int64_t l = 0; l < c.layers; ++l) {
      assert_int_equal(bppsa_recurrent_states(model, l, &got[0]), BPPSA_OK);
      assert_int_equal(bppsa_recurrent_states(p->reference, l, &expected[0]), BPPSA_OK);
      assert_true(bppsa_view_same_shape(&got[0], &expected[0]));
      check(p, w, "states", &got[0], expected[0].data);
      if (p->cell->pair) {
        assert_int_equal(bppsa_recurrent_cell_states(model, l, &got[0]), BPPSA_OK);
        assert_int_equal(bppsa_recurrent_cell_states(p->reference, l, &expected[0]), BPPSA_OK);
        check(p, w, "states c", &got[0], expected[0].data);
      }
    }
    assert_int_equal(bppsa_model_pull(model, true), BPPSA_OK);
    for (int64_t i = 0; i < model->parameter_count; ++i) {
      check(p, w, model->parameters[i].name, &model->parameters[i].gradient, p->reference->parameters[i].gradient.data);
    }
    if (c.input_gradients) {
      assert_int_equal(model->ops->input_gradients(model, &got[0], &got[1]), BPPSA_OK);
      assert_int_equal(p->reference->ops->input_gradients(p->reference, &expected[0], &expected[1]), BPPSA_OK);
      check(p, w, "gradient of x", &got[0], expected[0].data);
      check(p, w, "gradient of h0", &got[1], expected[1].data);
    }
    drop(device, held);
  }
  assert_int_equal(bppsa_recurrent_states(model, c.layers, &got[0]), BPPSA_ERR_ARGUMENT);
  drop(host, expected_held);
  bppsa_model_destroy(model);
  bppsa_model_destroy(p->reference);
}

static void make_numbers(problem *p, uint64_t seed) {
  const bppsa_recurrent_config *c = &p->config;
  p->x = uniform(seed, c->seq_len * p->batch * c->input, 1);
  p->h0 = uniform(seed + 1, layers_of(p) * p->batch * state_size(p), 0.5);
  p->seed = uniform(seed + 2, (c->loss_all ? c->seq_len : 1) * p->batch * c->classes, 1);
  bppsa_free(rounded(c->dtype, p->x, c->seq_len * p->batch * c->input)); /* rounds the array itself, too */
  bppsa_free(rounded(c->dtype, p->h0, layers_of(p) * p->batch * state_size(p)));
  bppsa_free(rounded(c->dtype, p->seed, (c->loss_all ? c->seq_len : 1) * p->batch * c->classes));
}

static inline void free_numbers(problem *p) {
  bppsa_free(p->x);
  bppsa_free(p->h0);
  bppsa_free(p->seed);
}

#endif

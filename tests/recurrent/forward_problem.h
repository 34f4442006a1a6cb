/* Forward passes of random networks: the problems, their states in float64, and one step from each state. */
#ifndef BPPSA_TESTS_RECURRENT_FORWARD_PROBLEM_H
#define BPPSA_TESTS_RECURRENT_FORWARD_PROBLEM_H

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "recurrent/parallel_forward.h"
#include "recurrent/recurrent.h"
#include "tests/support/support.h"

enum { MOST_SPOILED = 3, MOST_LAYERS = 3 };

typedef struct {
  bppsa_recurrent_config config;
  const bppsa_cell *cell;
  uint64_t seed;
  double scale;               /* W_hh is its default initialisation times this */
  bool orthogonal;            /* W_hh is orthogonal */
  bool from_zero;             /* there is no h0 */
  bool far;                   /* biases of every third unit have far parts (core/compute/far_bias.h) */
  const bppsa_model *weights; /* weights are copied from it; NULL: they are random */
  bool bits;                  /* the input is zeros and ones, like the bitstream's */
  int64_t spoiled, places[MOST_SPOILED];
  double spoils[MOST_SPOILED]; /* numbers that are put into the input, each at a place modulo its size */
  int64_t infinite;            /* the number of h0 at this place is infinite; 0: none is */
} forward_problem;

typedef struct {
  bppsa_forward_plan plan;
  bppsa_forward_stats stats;
  int64_t count;                           /* T·B·H */
  double *x, *h0;                          /* [T][B][I], [L][B][S] */
  double *h[MOST_LAYERS], *c[MOST_LAYERS]; /* [T][B][H]; c NULL where states are no pairs */
  bppsa_model *model;
  void *in, *state; /* copies of x and h0 in the device's memory and the network's dtype */
} forward_run;

static inline uint64_t next_random(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static inline forward_problem forward_problem_default(void) {
  forward_problem p = {.config = bppsa_recurrent_config_default(), .scale = 1, .seed = 1};
  p.config.method.backward = BPPSA_BACKWARD_BP;
  p.config.classes = 2;
  p.config.forward.kind = BPPSA_FORWARD_SPECULATIVE;
  return p;
}

/* Counts the numbers in a state. */
static inline int64_t forward_state(const forward_problem *p) {
  return (p->cell->pair ? 2 : 1) * p->config.hidden;
}

static inline bppsa_model *make_forward_model(const forward_problem *p, const bppsa_device *device) {
  bppsa_model *model = NULL;
  assert_int_equal(bppsa_recurrent_create(&p->config, p->cell, device, &model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(model, p->orthogonal ? BPPSA_INIT_ORTHOGONAL : BPPSA_INIT_DEFAULT, p->seed), BPPSA_OK);
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_view *w = &model->parameters[i].value;
    for (int64_t j = 0; strstr(model->parameters[i].name, "weight_hh") != NULL && j < bppsa_view_count(w); ++j) {
      bppsa_view_set(w, j, p->scale * bppsa_view_get(w, j));
    }
    for (int64_t j = 0; p->far && strstr(model->parameters[i].name, "bias_") != NULL && j < bppsa_view_count(w); j += 3) {
      bppsa_view_set(w, j, bppsa_view_get(w, j) + (double)(j % 7 - 3) * 1.7);
    }
    for (int64_t j = 0; p->weights != NULL && j < bppsa_view_count(w); ++j) {
      bppsa_view_set(w, j, bppsa_view_get(&p->weights->parameters[i].value, j));
    }
  }
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
  return model;
}

static inline bppsa_view device_view(const bppsa_device *device, void *data, bppsa_dtype dtype, const int64_t shape[3]) {
  bppsa_view view = bppsa_view_make(data, dtype, 3, shape);
  view.device = bppsa_device_get_kind(device);
  return view;
}

/* Copies `count` numbers to the device's memory, in the dtype; rounds the array itself too. */
static inline void *sent(const bppsa_device *device, bppsa_dtype dtype, double *from, int64_t count) {
  void *host = rounded(dtype, from, count);
  void *copy = on_device(device, host, count * (int64_t)bppsa_dtype_size(dtype));
  bppsa_free(host);
  return copy;
}

/* Copies numbers of the device as float64. */
static inline double *fetched(const bppsa_device *device, const bppsa_view *view) {
  const int64_t count = bppsa_view_count(view);
  const int64_t bytes = (int64_t)bppsa_view_bytes(view);
  void *host = bppsa_calloc(bytes, 1);
  double *to = bppsa_calloc(count, sizeof *to);
  assert_true(host != NULL && to != NULL);
  assert_int_equal(bppsa_memory_get(device, host, view->data, bytes), BPPSA_OK);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = view->dtype == BPPSA_F32 ? (double)((const float *)host)[i] : ((const double *)host)[i];
  }
  bppsa_free(host);
  return to;
}

static inline void pass_forward(const forward_problem *p, forward_run *run, const bppsa_device *device) {
  const bppsa_recurrent_config *c = &p->config;
  const bppsa_view in = device_view(device, run->in, c->dtype, (int64_t[]){c->seq_len, c->batch, c->input}),
                   h0 = device_view(device, run->state, c->dtype, (int64_t[]){c->layers, c->batch, forward_state(p)});
  assert_int_equal(bppsa_recurrent_forward_layers(run->model, &in, p->from_zero ? NULL : &h0), BPPSA_OK);
  for (int64_t l = 0; l < c->layers; ++l) {
    bppsa_view h, cells;
    assert_int_equal(bppsa_recurrent_states(run->model, l, &h), BPPSA_OK);
    bppsa_free(run->h[l]);
    run->h[l] = fetched(device, &h);
    if (p->cell->pair) {
      assert_int_equal(bppsa_recurrent_cell_states(run->model, l, &cells), BPPSA_OK);
      bppsa_free(run->c[l]);
      run->c[l] = fetched(device, &cells);
    }
  }
  assert_int_equal(bppsa_forward_stats_of(run->model, &run->stats), BPPSA_OK);
}

/* Makes a network and one pass of it. */
static inline forward_run run_forward(const forward_problem *p, const bppsa_device *device) {
  const bppsa_recurrent_config *c = &p->config;
  const int64_t inputs = c->seq_len * c->batch * c->input, states = c->layers * c->batch * forward_state(p);
  forward_run run = {.count = c->seq_len * c->batch * c->hidden, .model = make_forward_model(p, device)};
  run.plan = *bppsa_forward_plan_of(run.model);
  run.x = uniform(p->seed + 77, inputs, 1);
  run.h0 = uniform(p->seed + 78, states, 1);
  for (int64_t i = 0; p->bits && i < inputs; ++i) {
    run.x[i] = run.x[i] > 0;
  }
  for (int64_t i = 0; p->from_zero && i < states; ++i) {
    run.h0[i] = 0;
  }
  for (int64_t i = 0; i < p->spoiled; ++i) {
    run.x[p->places[i] % inputs] = p->spoils[i];
  }
  if (p->infinite > 0) {
    run.h0[p->infinite] = (double)INFINITY;
  }
  run.in = sent(device, c->dtype, run.x, inputs);
  run.state = sent(device, c->dtype, run.h0, states);
  pass_forward(p, &run, device);
  return run;
}

static inline void free_run(forward_run *run, const bppsa_device *device) {
  bppsa_model_destroy(run->model);
  bppsa_free(run->x);
  bppsa_free(run->h0);
  bppsa_memory_free(device, run->in);
  bppsa_memory_free(device, run->state);
  for (int64_t l = 0; l < MOST_LAYERS; ++l) {
    bppsa_free(run->h[l]);
    bppsa_free(run->c[l]);
  }
}

/* Returns the states of layer l before each step, [T][B][S]. */
static inline double *states_before(const forward_problem *p, const forward_run *run, int64_t l) {
  const int64_t batch = p->config.batch, hidden = p->config.hidden, size = forward_state(p), rows = p->config.seq_len * batch;
  double *before = bppsa_calloc(rows * size, sizeof *before);
  assert_non_null(before);
  memcpy(before, run->h0 + l * batch * size, (size_t)(batch * size) * sizeof *before);
  for (int64_t row = batch; row < rows; ++row) {
    memcpy(before + row * size, run->h[l] + (row - batch) * hidden, (size_t)hidden * sizeof *before);
    if (p->cell->pair) {
      memcpy(before + row * size + hidden, run->c[l] + (row - batch) * hidden, (size_t)hidden * sizeof *before);
    }
  }
  return before;
}

/* Computes f(h_{t-1}, x_t) of layer l for all t at once, by a network of one step whose batch is all rows of the run. Returns
 * [T][B][H]; for pairs c goes to *cells, unless that is NULL. */
static inline double *one_step_of(const forward_problem *p, const forward_run *run, int64_t l, const bppsa_device *device,
                                  double **cells) {
  const bppsa_recurrent_config *c = &p->config;
  const int64_t rows = c->seq_len * c->batch, size = forward_state(p), input = l == 0 ? c->input : c->hidden;
  forward_problem step = *p;
  step.config.seq_len = step.config.layers = 1;
  step.config.batch = rows;
  step.config.input = input;
  step.config.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  step.config.method.backward = BPPSA_BACKWARD_BP;
  bppsa_model *model = make_forward_model(&step, device);
  for (int64_t i = 0; i < 4; ++i) {
    const bppsa_view *to = &model->parameters[i].value, *from = &run->model->parameters[4 * l + i].value;
    memcpy(to->data, from->data, bppsa_view_bytes(to));
  }
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
  double *before = states_before(p, run, l), *x = l == 0 ? run->x : run->h[l - 1];
  void *in = sent(device, c->dtype, x, rows * input), *state = sent(device, c->dtype, before, rows * size);
  const bppsa_view in_view = device_view(device, in, c->dtype, (int64_t[]){1, rows, input}),
                   h0 = device_view(device, state, c->dtype, (int64_t[]){1, rows, size});
  bppsa_view h;
  assert_int_equal(bppsa_recurrent_forward_layers(model, &in_view, &h0), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_states(model, 0, &h), BPPSA_OK);
  double *next = fetched(device, &h);
  if (cells != NULL && p->cell->pair) {
    assert_int_equal(bppsa_recurrent_cell_states(model, 0, &h), BPPSA_OK);
    *cells = fetched(device, &h);
  }
  bppsa_model_destroy(model);
  bppsa_free(before);
  bppsa_memory_free(device, in);
  bppsa_memory_free(device, state);
  return next;
}

static inline double *one_step(const forward_problem *p, const forward_run *run, int64_t l, const bppsa_device *device) {
  return one_step_of(p, run, l, device, NULL);
}

#endif

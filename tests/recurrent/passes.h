/* Passes of small networks on a CPU, with random inputs, initial states and seeds, for tests of sequences. */
#ifndef BPPSA_TESTS_RECURRENT_PASSES_H
#define BPPSA_TESTS_RECURRENT_PASSES_H

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "recurrent/recurrent.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

static const bppsa_gradient_method methods[] = {
    {BPPSA_BACKWARD_BP, {BPPSA_SCAN_AUTO, -1, 0}},       {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_LINEAR, -1, 0}},
    {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, -1, 0}}, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 1, 0}},
    {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 3}},
};
enum { METHODS = sizeof methods / sizeof *methods };

typedef struct {
  const bppsa_cell *cell;
  bppsa_recurrent_config config;
  bppsa_device *device;
  bppsa_model *model;
  bppsa_view x, h0, logits, seed, dx, dh0; /* x, h0 and seed are owned */
} run;

static inline bppsa_view random_view(bppsa_dtype dtype, uint64_t seed, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make(NULL, dtype, ndim, shape);
  double *values = uniform(seed, bppsa_view_count(&view), 1);
  view.data = rounded(dtype, values, bppsa_view_count(&view));
  bppsa_free(values);
  return view;
}

/* Steps first .. first + steps - 1 of a view whose outermost axis is that of steps. */
static inline bppsa_view rows_of(const bppsa_view *whole, int64_t first, int64_t steps) {
  bppsa_view rows = *whole;
  rows.shape[0] = steps; /* rows are the outermost axis, so the view has no gaps */
  rows.data = (char *)whole->data + (size_t)first * (bppsa_view_bytes(whole) / (size_t)whole->shape[0]);
  return rows;
}

/* Two layers of 4 units over 3 inputs, with 3 classes and input gradients. */
static inline bppsa_recurrent_config two_layers(int64_t seq_len, int64_t batch, bppsa_dtype dtype,
                                                const bppsa_gradient_method *method, bool loss_all) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = seq_len;
  c.batch = batch;
  c.input = 3;
  c.hidden = 4;
  c.layers = 2;
  c.classes = 3;
  c.dtype = dtype;
  c.method = *method;
  c.loss_all = loss_all;
  c.input_gradients = true;
  return c;
}

static inline int64_t outputs_of(const bppsa_recurrent_config *c) {
  return !c->no_head ? c->classes : (c->bidirectional ? 2 : 1) * c->hidden;
}

/* batch: samples of its passes, at most the planned number. */
static inline run open_run(const bppsa_cell *cell, const bppsa_recurrent_config *c, int64_t batch, int64_t threads) {
  run r = {.cell = cell, .config = *c, .device = cpu_device(threads)};
  const int64_t state = (cell->pair ? 2 : 1) * c->hidden, all[3] = {c->seq_len, batch, outputs_of(c)};
  r.x = random_view(c->dtype, 1, 3, (int64_t[]){c->seq_len, batch, c->input});
  r.h0 = random_view(c->dtype, 2, 3, (int64_t[]){(c->bidirectional ? 2 : 1) * c->layers, batch, state});
  r.seed = random_view(c->dtype, 3, c->loss_all ? 3 : 2, c->loss_all ? all : all + 1);
  assert_int_equal(bppsa_recurrent_create(c, cell, r.device, &r.model), BPPSA_OK);
  enum { LARGE = 100 }; /* orthogonal weights take H^3 operations */
  assert_int_equal(bppsa_recurrent_init(r.model, c->hidden > LARGE ? BPPSA_INIT_DEFAULT : BPPSA_INIT_ORTHOGONAL, 5), BPPSA_OK);
  if (c->reset_state) { /* which begins with zeros */
    const bppsa_view *value = &r.model->parameters[0].value, drawn = random_view(c->dtype, 6, 2, value->shape);
    memcpy(value->data, drawn.data, bppsa_view_bytes(value));
    bppsa_free(drawn.data);
  }
  return r;
}

static inline void compute(run *r, const int64_t *lengths) {
  for (int pass = 0; pass < 2; ++pass) { /* the second must not depend on what the first left behind */
    assert_int_equal(bppsa_model_forward(r->model, &r->x, &r->h0, &(bppsa_spans){.lengths = lengths}, &r->logits), BPPSA_OK);
    assert_int_equal(r->model->ops->backward(r->model, &r->seed), BPPSA_OK);
  }
  assert_int_equal(r->model->ops->input_gradients(r->model, &r->dx, &r->dh0), BPPSA_OK);
}

static inline void close_run(run *r) {
  bppsa_model_destroy(r->model);
  bppsa_device_destroy(r->device);
  bppsa_free(r->x.data);
  bppsa_free(r->h0.data);
  bppsa_free(r->seed.data);
}

/* Spoils what follows a sample's end, which must not be read. */
static inline void spoil(run *r, const int64_t *lengths) {
  bppsa_view *const views[] = {&r->x, &r->seed};
  for (int v = 0; v < (r->config.loss_all ? 2 : 1); ++v) {
    const int64_t width = views[v]->shape[2], batch = views[v]->shape[1];
    for (int64_t i = 0; i < bppsa_view_count(views[v]); ++i) {
      if (i / (width * batch) >= lengths[i / width % batch]) {
        bppsa_view_set(views[v], i, (double)NAN);
      }
    }
  }
}

static inline void assert_same_bits(const bppsa_view *a, const bppsa_view *b) {
  assert_true(bppsa_view_same_shape(a, b));
  assert_memory_equal(a->data, b->data, bppsa_view_bytes(a));
}

static inline void assert_same_runs(const run *a, const run *b) {
  assert_same_bits(&a->logits, &b->logits);
  assert_same_bits(&a->dx, &b->dx);
  assert_same_bits(&a->dh0, &b->dh0);
  for (int64_t i = 0; i < a->model->parameter_count; ++i) {
    assert_same_bits(&a->model->parameters[i].gradient, &b->model->parameters[i].gradient);
  }
}

#endif

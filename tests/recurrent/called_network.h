/* A recurrent network on which a sequence of calls is made, the inputs of its latest passes, and a fresh network that gets the
 * same inputs. For test_calls.c. */
#ifndef BPPSA_TESTS_RECURRENT_CALLED_NETWORK_H
#define BPPSA_TESTS_RECURRENT_CALLED_NETWORK_H

#include <string.h>

#include "core/base/alloc.h"
#include "recurrent/recurrent.h"
#include "tests/support/calls.h"
#include "tests/support/support.h"

enum { TAPES = 3, MOST_READY = 64, OTHERS = 2 };

/* The inputs of a forward pass. Each array is a block of its own, so that a sanitizer sees who reads beyond its end. */
typedef struct {
  int64_t batch; /* 0: there was no pass */
  void *x, *h0;
  int64_t *lengths, *samples; /* samples: numbers for dropout, or NULL */
  int64_t step;
  void *values; /* values of the parameters */
  bppsa_forward_pause pause;
} pass;

typedef struct {
  pass pass; /* batch 0: the tape was not written */
  void *memory;
  int64_t size;
} tape;

typedef struct {
  bppsa_recurrent_config config;
  const bppsa_cell *cell;
  bppsa_device *device, *others[OTHERS]; /* others: devices of fresh networks, with other numbers of threads */
  bppsa_model *model;
  size_t value_bytes;
  void *values; /* values of the parameters, as they were set last */
  pass pass;    /* the latest pass; with tapes a copy of a tape's pass, which owns nothing */
  void *seed;   /* seed of the latest backward pass; NULL: none since the latest forward pass */
  bool has_gradients;
  int64_t *samples, step; /* for the next forward passes; the model borrows them, like those of the latest one */
  int64_t *used;
  int ready[MOST_READY]; /* how often the listener was told that a parameter's gradient is complete */
  tape tapes[TAPES];
} subject;

static inline void free_pass(pass *p) {
  void *const blocks[] = {p->x, p->h0, p->lengths, p->samples, p->values};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
  *p = (pass){0};
}

static inline int64_t state_size(const subject *o) {
  return (o->cell->pair ? 2 : 1) * o->config.hidden;
}

static inline int64_t sweeps(const subject *o) {
  return o->config.layers * (o->config.bidirectional ? 2 : 1);
}

static inline int64_t state_count(const subject *o, int64_t batch) {
  return sweeps(o) * batch * state_size(o);
}

static inline bppsa_view x_view(const subject *o, const pass *p) {
  const int64_t shape[] = {o->config.seq_len, p->batch, o->config.input};
  return bppsa_view_make(p->x, o->config.dtype, 3, shape);
}

static inline bppsa_view h0_view(const subject *o, const pass *p) {
  const int64_t shape[] = {sweeps(o), p->batch, state_size(o)};
  return bppsa_view_make(p->h0, o->config.dtype, 3, shape);
}

/* Do samples of the latest pass have lengths other than T? */
static inline bool is_ragged(const subject *o) {
  bool ragged = false;
  for (int64_t b = 0; o->pass.lengths != NULL && b < o->pass.batch; ++b) {
    ragged = ragged || o->pass.lengths[b] < o->config.seq_len;
  }
  return ragged;
}

/* ---- parameters ---- */

/* Copies the values of all parameters from a block to the model, or back. */
static inline void load_values(const subject *o, bppsa_model *model, const void *values) {
  const char *at = values;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const size_t bytes = bppsa_view_bytes(&model->parameters[i].value);
    memcpy(model->parameters[i].value.data, at, bytes);
    at += bytes;
  }
  assert_int_equal(at - (const char *)values, o->value_bytes);
}

/* The parameters must have the values that were set last. */
static inline void assert_values(const subject *o) {
  const char *at = o->values;
  for (int64_t i = 0; i < o->model->parameter_count; ++i) {
    const bppsa_view *value = &o->model->parameters[i].value;
    assert_same_reals(o->model->parameters[i].name, value->dtype, value->data, at, bppsa_view_count(value));
    at += bppsa_view_bytes(value);
  }
}

/* Sets random weights. */
static inline void draw_values(call_sequence *s, subject *o) {
  const bppsa_dtype dtype = o->config.dtype;
  const int64_t count = (int64_t)(o->value_bytes / bppsa_dtype_size(dtype));
  bppsa_free(o->values);
  o->values = random_reals(s, dtype, count, chance(s, 15) ? 3 : 0.4);
  bppsa_named_view tensors[MOST_READY];
  char *at = o->values;
  assert_true(o->model->parameter_count <= MOST_READY);
  for (int64_t i = 0; i < o->model->parameter_count; ++i) {
    const bppsa_parameter *p = &o->model->parameters[i];
    tensors[i] = (bppsa_named_view){p->name, bppsa_view_make(at, dtype, p->value.ndim, p->value.shape)};
    at += bppsa_view_bytes(&p->value);
  }
  assert_ok(bppsa_model_set(o->model, "test", o->model->parameter_count, tensors));
}

/* ---- the latest passes ---- */

static inline void forget_seed(subject *o) {
  bppsa_free(o->seed);
  o->seed = NULL;
  o->has_gradients = false;
}

/* Takes the seed of a backward pass, which the model borrows until the next forward pass. */
static inline void take_seed(subject *o, void *seed) {
  if (o->seed != NULL) {
    bppsa_free(o->seed);
  }
  o->seed = seed;
  o->has_gradients = true;
}

/* Notes what the forward pass that is about to begin depends on besides its arguments. */
static inline void begin_pass(subject *o, pass *p) {
  p->values = copy_bytes(o->values, o->value_bytes);
  p->step = o->step;
  p->samples = copy_bytes(o->samples, (size_t)o->config.batch * sizeof *o->samples);
  assert_ok(bppsa_forward_pause_get(o->model, &p->pause));
}

/* Takes the pass that was made: the model no longer borrows anything of the one before. */
static inline void take_pass(subject *o, const pass *p) {
  forget_seed(o);
  free_pass(&o->pass);
  o->pass = *p;
  if (o->used != o->samples) {
    bppsa_free(o->used);
  }
  o->used = o->samples;
}

static inline void tell_samples(subject *o, int64_t step, int64_t *samples) {
  bppsa_model_drop(o->model, step, samples);
  if (o->samples != o->used) {
    bppsa_free(o->samples);
  }
  o->samples = samples;
  o->step = step;
}

/* Keeps the pass that was made on a tape. */
static inline void keep_tape(subject *o, tape *t, const pass *p, void *memory, int64_t size) {
  forget_seed(o);
  free_pass(&t->pass);
  bppsa_free(t->memory);
  *t = (tape){*p, memory, size};
  o->pass = (pass){0};
}

/* ---- fresh networks ---- */

/* Makes a fresh network that repeats the latest forward pass; it has no tapes. */
static inline bppsa_model *fresh(call_sequence *s, const subject *o, bppsa_view *logits) {
  bppsa_recurrent_config config = o->config;
  bppsa_model *model;
  const pass *p = &o->pass;
  const bppsa_view x = x_view(o, p), h0 = h0_view(o, p);
  config.tape = false;
  assert_ok(bppsa_recurrent_create(&config, o->cell, o->others[draw(s, 0, OTHERS - 1)], &model));
  load_values(o, model, p->values);
  assert_ok(bppsa_forward_pause_set(model, &p->pause));
  bppsa_model_drop(model, p->step, p->samples);
  assert_ok(bppsa_model_forward(model, &x, p->h0 != NULL ? &h0 : NULL, &(bppsa_spans){.lengths = p->lengths}, logits));
  return model;
}

/* The gradients must be the same; layers: except the head's, which were not computed. */
static inline void assert_same_gradients(const subject *o, const bppsa_model *expected, bool layers) {
  const int64_t count = o->model->parameter_count - (layers && !o->config.no_head ? 2 : 0);
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_parameter *found = &o->model->parameters[i];
    assert_same_views(found->name, &found->gradient, &expected->parameters[i].gradient);
  }
  if (o->config.input_gradients) {
    bppsa_view dx, dh0, same_dx, same_dh0;
    assert_ok(o->model->ops->input_gradients(o->model, &dx, &dh0));
    assert_ok(expected->ops->input_gradients((bppsa_model *)expected, &same_dx, &same_dh0));
    assert_same_views("gradient of x", &dx, &same_dx);
    assert_same_views("gradient of h0", &dh0, &same_dh0);
  }
}

/* Both must find the same value that is not finite. A tape does not keep logits. */
static inline void assert_same_nonfinite(const subject *o, bppsa_model *other) {
  bppsa_nonfinite found = {0}, expected = {0};
  const bool is_there = other->ops->find_nonfinite(other, &expected);
  if (o->config.tape && is_there && strcmp(expected.what, "logits") == 0) {
    return;
  }
  assert_int_equal(o->model->ops->find_nonfinite(o->model, &found), is_there);
  if (is_there) {
    assert_string_equal(found.what, expected.what);
    assert_string_equal(found.name != NULL ? found.name : "", expected.name != NULL ? expected.name : "");
    assert_int_equal(found.layer, expected.layer);
    assert_int_equal(found.step, expected.step);
    assert_int_equal(found.sample, expected.sample);
  }
}

static inline void assert_same_states(const subject *o, const bppsa_model *other) {
  bppsa_view found, expected;
  for (int64_t l = 0; l < o->config.layers; ++l) {
    assert_ok(bppsa_recurrent_states(o->model, l, &found));
    assert_ok(bppsa_recurrent_states(other, l, &expected));
    assert_same_views("states", &found, &expected);
    if (o->cell->pair) {
      assert_ok(bppsa_recurrent_cell_states(o->model, l, &found));
      assert_ok(bppsa_recurrent_cell_states(other, l, &expected));
      assert_same_views("cell states", &found, &expected);
    }
  }
}

/* ---- the object ---- */

static inline void gradient_ready(void *context, int64_t first, int64_t count) {
  subject *o = context;
  for (int64_t i = first; i < first + count; ++i) {
    o->ready[i] += 1;
  }
}

static inline void begin_subject(call_sequence *s, subject *o) {
  o->device = random_device(s);
  o->others[0] = cpu_device(1);
  o->others[1] = cpu_device(3);
  assert_ok(bppsa_recurrent_create(&o->config, o->cell, o->device, &o->model));
  o->model->listener = (bppsa_gradient_listener){gradient_ready, o};
  for (int64_t i = 0; i < o->model->parameter_count; ++i) {
    o->value_bytes += bppsa_view_bytes(&o->model->parameters[i].value);
  }
  draw_values(s, o);
}

static inline void end_subject(subject *o) {
  bppsa_model_destroy(o->model);
  forget_seed(o);
  for (int64_t i = 0; i < TAPES; ++i) {
    free_pass(&o->tapes[i].pass);
    bppsa_free(o->tapes[i].memory);
  }
  if (!o->config.tape) {
    free_pass(&o->pass);
  }
  if (o->used != o->samples) {
    bppsa_free(o->used);
  }
  bppsa_free(o->samples);
  bppsa_free(o->values);
  bppsa_device_destroy(o->device);
  for (int64_t i = 0; i < OTHERS; ++i) {
    bppsa_device_destroy(o->others[i]);
  }
}

#endif

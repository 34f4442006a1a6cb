/* Random sequences of calls on one recurrent network (tests/support/calls.h). */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/certify.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "scan/method.h"
#include "tests/recurrent/called_network.h"

/* ---- forward passes ---- */

/* Draws what the next forward pass is given. */
static pass draw_pass(call_sequence *s, const subject *o) {
  const bppsa_recurrent_config *c = &o->config;
  pass p = {.batch = draw(s, 1, c->batch)};
  p.x = random_reals(s, c->dtype, c->seq_len * p.batch * c->input, chance(s, 10) ? 30 : 1);
  if (chance(s, 50)) {
    p.h0 = random_reals(s, c->dtype, state_count(o, p.batch), 1);
  }
  if (chance(s, 5)) {
    spoil(s, c->dtype, chance(s, 70) || p.h0 == NULL ? p.x : p.h0, p.batch);
  }
  if (c->lengths && chance(s, 70)) {
    p.lengths = bppsa_calloc(p.batch, sizeof *p.lengths);
    assert_non_null(p.lengths);
    const bool whole = chance(s, 10);
    for (int64_t b = 0; b < p.batch; ++b) {
      p.lengths[b] = whole ? c->seq_len : draw(s, 1, c->seq_len);
    }
  }
  note(s, " batch %lld%s%s", (long long)p.batch, p.h0 != NULL ? ", h0" : "", p.lengths != NULL ? ", lengths" : "");
  return p;
}

static void forward(call_sequence *s, void *object) {
  subject *o = object;
  pass p = draw_pass(s, o);
  bppsa_view logits;
  const bool layers = o->config.no_head && chance(s, 10);
  begin_pass(o, &p);
  const bppsa_view x = x_view(o, &p), h0 = h0_view(o, &p);
  int64_t *lengths = copy_bytes(p.lengths, (size_t)p.batch * sizeof *lengths);
  bppsa_alloc_fail_at(chance(s, 50) ? 1 : 0); /* passes allocate nothing */
  if (layers && lengths == NULL) {
    assert_ok(bppsa_recurrent_forward_layers(o->model, &x, p.h0 != NULL ? &h0 : NULL));
  } else {
    assert_ok(bppsa_model_forward(o->model, &x, p.h0 != NULL ? &h0 : NULL, &(bppsa_spans){.lengths = lengths}, &logits));
  }
  bppsa_alloc_fail_at(0);
  bppsa_free(lengths);
  take_pass(o, &p);
  if (!(layers && p.lengths == NULL) && chance(s, 30)) {
    bppsa_view expected;
    bppsa_model *other = fresh(s, o, &expected);
    assert_same_views("outputs", &logits, &expected);
    bppsa_model_destroy(other);
  }
}

/* ---- backward passes ---- */

/* Replays a backward pass on a fresh network, beside that of the object or after it. */
typedef struct {
  bppsa_model *model;
  const bppsa_view *seed;
  bool layers;
  bppsa_status status;
} replay;

static void *replay_backward(void *argument) {
  replay *r = argument;
  r->status = r->layers ? bppsa_recurrent_backward_layers(r->model, r->seed) : r->model->ops->backward(r->model, r->seed);
  return NULL;
}

static bppsa_status object_backward(subject *o, const bppsa_view *seed, bool layers) {
  memset(o->ready, 0, sizeof o->ready);
  const bppsa_status status = layers ? bppsa_recurrent_backward_layers(o->model, seed) : o->model->ops->backward(o->model, seed);
  const int64_t head = layers && !o->config.no_head ? 2 : 0; /* parameters without a gradient */
  for (int64_t i = 0; status == BPPSA_OK && i < o->model->parameter_count; ++i) {
    assert_int_equal(o->ready[i], i < o->model->parameter_count - head);
  }
  return status;
}

/* A backward pass from a drawn seed, of the latest forward pass, beside that of a fresh network. */
static void check_backward(call_sequence *s, subject *o, bool layers) {
  const bppsa_recurrent_config *c = &o->config;
  bppsa_view outputs, seed;
  replay r = {.model = fresh(s, o, &outputs), .layers = layers};
  load_values(o, r.model, o->values);
  seed = outputs;
  seed.shape[seed.ndim - 1] = layers ? c->hidden * (c->bidirectional ? 2 : 1) : outputs.shape[outputs.ndim - 1];
  seed = bppsa_view_make(NULL, c->dtype, seed.ndim, seed.shape);
  void *gradient = random_reals(s, c->dtype, bppsa_view_count(&seed), chance(s, 10) ? 0 : 1);
  if (chance(s, 5)) {
    spoil(s, c->dtype, gradient, bppsa_view_count(&seed));
  }
  seed.data = gradient;
  r.seed = &seed;
  pthread_t thread;
  const bool beside = chance(s, 30);
  note(s, "%s", beside ? " beside another thread" : "");
  bppsa_alloc_fail_at(chance(s, 50) ? 1 : 0);
  const bool started = beside && pthread_create(&thread, NULL, replay_backward, &r) == 0;
  const bppsa_status status = object_backward(o, &seed, layers);
  if (started) {
    assert_int_equal(pthread_join(thread, NULL), 0);
  } else {
    replay_backward(&r);
  }
  bppsa_alloc_fail_at(0);
  assert_int_equal(status, BPPSA_OK);
  assert_int_equal(r.status, BPPSA_OK);
  assert_same_gradients(o, r.model, layers);
  take_seed(o, gradient);
  if ((!layers || c->no_head) && chance(s, 15)) { /* gradients of the head are those of an earlier pass */
    assert_same_nonfinite(o, r.model);
    assert_same_gradients(o, r.model, layers);
  }
  if (chance(s, 20)) {
    assert_same_states(o, r.model);
  }
  bppsa_model_destroy(r.model);
}

/* Before a forward pass it is refused. */
static void backward_of(call_sequence *s, subject *o, bool layers) {
  if (o->pass.batch > 0) {
    check_backward(s, o, layers);
    return;
  }
  const int64_t shape[] = {o->config.seq_len, 1, o->model->classes};
  const bppsa_view seed = bppsa_view_make(o->model->parameters[0].value.data, o->config.dtype, 3, shape);
  assert_refused(object_backward(o, &seed, layers), BPPSA_ERR_ARGUMENT);
}

static void backward(call_sequence *s, void *object) {
  backward_of(s, object, false);
}

static void backward_layers(call_sequence *s, void *object) {
  backward_of(s, object, true);
}

static void hidden_gradients(call_sequence *s, void *object) {
  subject *o = object;
  const bppsa_recurrent_config *c = &o->config;
  const int64_t outputs = c->hidden * (c->bidirectional ? 2 : 1), b = o->pass.batch > 0 ? o->pass.batch : 1;
  const int64_t shape[] = {c->seq_len, b, outputs};
  void *gradient = random_reals(s, c->dtype, c->seq_len * b * outputs, 1);
  const bppsa_view seed = bppsa_view_make(gradient, c->dtype, c->loss_all ? 3 : 2, c->loss_all ? shape : shape + 1);
  bppsa_view found, expected, logits;
  if (o->pass.batch == 0 && !c->bidirectional) {
    assert_refused(bppsa_recurrent_hidden_gradients(o->model, &seed, &found), BPPSA_ERR_ARGUMENT);
  } else if (c->bidirectional || is_ragged(o)) {
    assert_refused(bppsa_recurrent_hidden_gradients(o->model, &seed, &found), BPPSA_ERR_UNSUPPORTED);
  } else {
    bppsa_model *other = fresh(s, o, &logits);
    load_values(o, other, o->values);
    assert_ok(bppsa_recurrent_hidden_gradients(other, &seed, &expected));
    assert_ok(bppsa_recurrent_hidden_gradients(o->model, &seed, &found));
    assert_same_views("gradients of the states", &found, &expected);
    bppsa_model_destroy(other);
  }
  bppsa_free(gradient);
}

/* ---- what lies between passes ---- */

/* The present pass keeps the samples that it was told. */
static void drop(call_sequence *s, void *object) {
  subject *o = object;
  int64_t *samples = NULL;
  if (chance(s, 75)) {
    samples = bppsa_calloc(o->config.batch, sizeof *samples);
    assert_non_null(samples);
    for (int64_t b = 0; b < o->config.batch; ++b) {
      samples[b] = draw(s, 0, 1000);
    }
  }
  tell_samples(o, draw(s, 0, 50), samples);
}

/* What was lent is freed at once; until the next forward pass there is none. */
static void forget(call_sequence *s, void *object) {
  subject *o = object;
  (void)s;
  bppsa_model_forget(o->model);
  forget_seed(o);
  if (o->config.tape) { /* the pass is a tape's */
    o->pass = (pass){0};
  } else {
    free_pass(&o->pass);
  }
  bppsa_free(o->used != o->samples ? o->used : NULL);
  bppsa_free(o->samples);
  o->used = o->samples = NULL;
}

static void set_weights(call_sequence *s, void *object) {
  subject *o = object;
  draw_values(s, o);
  note(s, "%s", o->pass.batch > 0 ? " behind a forward pass" : "");
}

/* Weights that cannot be set leave those that are there. */
static void set_wrong_weights(call_sequence *s, void *object) {
  subject *o = object;
  bppsa_named_view tensors[64];
  const int64_t count = o->model->parameter_count, wrong = draw(s, 0, count - 1), how = draw(s, 0, 3);
  int64_t integers[1] = {0};
  const double huge = 1e300;
  assert_true(count <= 64);
  for (int64_t i = 0; i < count; ++i) {
    tensors[i] = (bppsa_named_view){o->model->parameters[i].name, o->model->parameters[i].value};
  }
  bppsa_view *view = &tensors[wrong].view;
  double *values = bppsa_calloc(bppsa_view_count(view), sizeof *values);
  values[bppsa_view_count(view) - 1] = huge;
  bppsa_status expected = BPPSA_ERR_FORMAT;
  if (how == 0) {
    tensors[wrong].name = "nothing";
  } else if (how == 1) {
    *view = bppsa_view_make(integers, BPPSA_I64, view->ndim, view->shape);
  } else if (how == 2 && o->config.dtype == BPPSA_F32) {
    *view = bppsa_view_make(values, BPPSA_F64, view->ndim, view->shape);
  } else {
    view->shape[0] += 1;
    expected = BPPSA_ERR_SHAPE;
  }
  assert_refused(bppsa_model_set(o->model, "test", count, tensors), expected);
  bppsa_free(values);
  assert_values(o);
}

static void look_for_nonfinite(call_sequence *s, void *object) {
  subject *o = object;
  bppsa_view logits;
  if (o->pass.batch == 0 || o->seed != NULL) {
    bppsa_nonfinite where;
    (void)o->model->ops->find_nonfinite(o->model, &where);
    return;
  }
  bppsa_model *other = fresh(s, o, &logits);
  load_values(o, other, o->values);
  assert_same_nonfinite(o, other);
  bppsa_model_destroy(other);
}

static void states(call_sequence *s, void *object) {
  subject *o = object;
  bppsa_view logits, found;
  if (o->pass.batch == 0) {
    assert_refused(bppsa_recurrent_states(o->model, 0, &found), BPPSA_ERR_ARGUMENT);
    return;
  }
  bppsa_model *other = fresh(s, o, &logits);
  assert_same_states(o, other);
  bppsa_model_destroy(other);
}

/* Other networks are made meanwhile, and some allocation fails. */
static void out_of_memory(call_sequence *s, void *object) {
  const subject *o = object;
  const int64_t blocks = bppsa_alloc_live();
  bppsa_model *other = NULL;
  fail_an_allocation(s, 60);
  const bppsa_status status = bppsa_recurrent_create(&o->config, o->cell, o->device, &other);
  const bool failed = allocations_work();
  note(s, "%s", failed ? " failed" : "");
  assert_int_equal(status, failed ? BPPSA_ERR_MEMORY : BPPSA_OK);
  bppsa_model_destroy(other);
  assert_int_equal(bppsa_alloc_live(), blocks);
}

/* ---- calls that are refused: what was there before them works on ---- */

static void refused_forward(call_sequence *s, void *object) {
  subject *o = object;
  const bppsa_recurrent_config *c = &o->config;
  pass p = draw_pass(s, o);
  bppsa_view x = x_view(o, &p), h0 = h0_view(o, &p), logits = {.ndim = 7};
  int64_t *lengths = bppsa_calloc(p.batch, sizeof *lengths);
  bppsa_status expected = BPPSA_ERR_SHAPE;
  const bppsa_view *given_x = &x, *given_h0 = NULL;
  const int64_t *given_lengths = NULL;
  const int64_t how = draw(s, 0, 8);
  for (int64_t b = 0; b < p.batch; ++b) {
    lengths[b] = 1;
  }
  note(s, " way %lld", (long long)how);
  switch (how) {
  case 0:
    x.shape[1] = chance(s, 50) ? 0 : c->batch + 1;
    break;
  case 1:
    x.shape[draw(s, 0, 1) * 2] += 1;
    break;
  case 2:
    x.dtype = c->dtype == BPPSA_F32 ? BPPSA_F64 : BPPSA_F32;
    break;
  case 3:
    x.strides[0] += 1;
    expected = c->seq_len > 1 ? expected : BPPSA_OK;
    break;
  case 4:
    x.data = NULL;
    expected = BPPSA_ERR_ARGUMENT;
    break;
  case 5:
    given_x = NULL;
    expected = BPPSA_ERR_ARGUMENT;
    break;
  case 6:
    h0.shape[draw(s, 0, 2)] += 1;
    given_h0 = &h0;
    break;
  case 7:
    given_lengths = lengths;
    lengths[draw(s, 0, p.batch - 1)] = chance(s, 50) ? 0 : c->seq_len + 1;
    expected = BPPSA_ERR_ARGUMENT;
    break;
  default:
    x.ndim = 2;
  }
  if (expected != BPPSA_OK) {
    const bppsa_view before = logits;
    assert_refused(bppsa_model_forward(o->model, given_x, given_h0, &(bppsa_spans){.lengths = given_lengths}, &logits), expected);
    assert_memory_equal(&logits, &before, sizeof logits);
  }
  bppsa_free(lengths);
  free_pass(&p);
}

static void refused_backward(call_sequence *s, void *object) {
  subject *o = object;
  const bppsa_recurrent_config *c = &o->config;
  const int64_t b = o->pass.batch > 0 ? o->pass.batch : 1, shape[] = {c->seq_len, b, o->model->classes};
  bppsa_view seed = bppsa_view_make(NULL, c->dtype, c->loss_all ? 3 : 2, c->loss_all ? shape : shape + 1);
  if (o->pass.batch == 0 || chance(s, 30)) {
    assert_refused(o->model->ops->backward(o->model, chance(s, 50) ? NULL : &seed), BPPSA_ERR_ARGUMENT);
    return;
  }
  seed.data = (void *)&seed; /* never read */
  seed.shape[draw(s, 0, seed.ndim - 1)] += 1;
  assert_refused(o->model->ops->backward(o->model, &seed), BPPSA_ERR_SHAPE);
}

static void input_gradients(call_sequence *s, void *object) {
  subject *o = object;
  bppsa_view dx;
  (void)s;
  if (!o->config.input_gradients) {
    assert_refused(o->model->ops->input_gradients(o->model, &dx, NULL), BPPSA_ERR_UNSUPPORTED);
  } else if (!o->has_gradients) {
    assert_refused(o->model->ops->input_gradients(o->model, &dx, NULL), BPPSA_ERR_ARGUMENT);
  } else {
    assert_ok(o->model->ops->input_gradients(o->model, &dx, NULL));
    assert_int_equal(dx.shape[1], o->pass.batch);
  }
}

/* The gradients of the latest backward pass are compared with others; all that they come from is still there. */
static void certify(call_sequence *s, void *object) {
  subject *o = object;
  const int64_t blocks = bppsa_alloc_live();
  bppsa_certificate found = {.error = -1};
  if (o->seed == NULL) {
    assert_refused(bppsa_certify(o->model, &found), BPPSA_ERR_ARGUMENT);
    return;
  }
  fail_an_allocation(s, 30);
  const bppsa_status status = bppsa_certify(o->model, &found);
  const bool failed = allocations_work();
  note(s, "%s", failed ? " failed" : "");
  assert_int_equal(status, failed ? BPPSA_ERR_MEMORY : BPPSA_OK);
  assert_true(failed ? found.error == -1 : found.error >= 0 && found.parameter != NULL);
  assert_int_equal(bppsa_alloc_live(), blocks);
  assert_values(o);
}

static const call_kind plain_calls[] = {{"forward", 20, forward},
                                        {"backward", 20, backward},
                                        {"backward_layers", 4, backward_layers},
                                        {"hidden_gradients", 3, hidden_gradients},
                                        {"drop", 6, drop},
                                        {"forget", 4, forget},
                                        {"set_weights", 6, set_weights},
                                        {"set_wrong_weights", 3, set_wrong_weights},
                                        {"find_nonfinite", 4, look_for_nonfinite},
                                        {"states", 3, states},
                                        {"out_of_memory", 3, out_of_memory},
                                        {"certify", 3, certify},
                                        {"refused_forward", 6, refused_forward},
                                        {"refused_backward", 4, refused_backward},
                                        {"input_gradients", 3, input_gradients},
                                        {NULL, 0, NULL}};

/* ---- tapes: several forward passes before their backward passes, in any order ---- */

/* A tape in new memory, and what its forward pass is given; the arrays of the one before go. */
static void tape_forward(call_sequence *s, void *object) {
  subject *o = object;
  const bppsa_recurrent_config *c = &o->config;
  tape *t = &o->tapes[draw(s, 0, TAPES - 1)];
  pass p = draw_pass(s, o);
  int64_t size;
  bppsa_view logits;
  assert_ok(bppsa_recurrent_tape_size(o->model, &size));
  void *memory = random_reals(s, c->dtype, size, 1);
  const int64_t count = c->seq_len * p.batch * c->hidden, shape[] = {c->seq_len, p.batch, c->hidden};
  void *out = chance(s, 50) ? random_reals(s, c->dtype, count, 1) : NULL;
  const bppsa_view x = x_view(o, &p), h0 = h0_view(o, &p), array = bppsa_view_make(memory, c->dtype, 1, &size),
                   output = bppsa_view_make(out, c->dtype, 3, shape);
  begin_pass(o, &p);
  assert_ok(bppsa_recurrent_use_tape(o->model, &x, &array, out != NULL ? &output : NULL));
  if (chance(s, 20) && c->batch > 1) { /* of a batch that the output may have no room for */
    pass other = {.batch = p.batch < c->batch ? p.batch + 1 : 1};
    other.x = random_reals(s, c->dtype, c->seq_len * other.batch * c->input, 1);
    const bppsa_view wrong = x_view(o, &other);
    assert_refused(bppsa_model_forward(o->model, &wrong, NULL, NULL, &logits), BPPSA_ERR_ARGUMENT);
    free_pass(&other);
  }
  assert_ok(bppsa_model_forward(o->model, &x, p.h0 != NULL ? &h0 : NULL, NULL, &logits));
  if (out != NULL) {
    bppsa_view found;
    assert_ok(bppsa_recurrent_states(o->model, 0, &found));
    assert_same_reals("output", c->dtype, out, found.data, count);
  }
  bppsa_free(out);
  keep_tape(o, t, &p, memory, size);
}

/* The backward pass of any tape that was written, which may have moved meanwhile, as x may. */
static void tape_backward(call_sequence *s, void *object) {
  subject *o = object;
  const bppsa_recurrent_config *c = &o->config;
  tape *t = &o->tapes[draw(s, 0, TAPES - 1)];
  if (t->pass.batch == 0) {
    return;
  }
  const size_t real = bppsa_dtype_size(c->dtype);
  if (chance(s, 50)) {
    void *moved = copy_bytes(t->memory, (size_t)t->size * real);
    void *x = copy_bytes(t->pass.x, (size_t)(c->seq_len * t->pass.batch * c->input) * real);
    bppsa_free(t->memory);
    bppsa_free(t->pass.x);
    t->memory = moved;
    t->pass.x = x;
    note(s, " moved");
  }
  const bppsa_view x = x_view(o, &t->pass), array = bppsa_view_make(t->memory, c->dtype, 1, &t->size);
  o->pass = t->pass;
  forget_seed(o);
  memcpy(o->values, t->pass.values, o->value_bytes); /* the parameters with which the tape was written */
  load_values(o, o->model, o->values);
  assert_ok(bppsa_recurrent_use_tape(o->model, &x, &array, NULL));
  check_backward(s, o, false);
}

static void refused_tape(call_sequence *s, void *object) {
  subject *o = object;
  const bppsa_recurrent_config *c = &o->config;
  pass p = draw_pass(s, o);
  int64_t size;
  assert_ok(bppsa_recurrent_tape_size(o->model, &size));
  bppsa_view x = x_view(o, &p), array = bppsa_view_make(p.x, c->dtype, 1, &size);
  bppsa_view output = bppsa_view_make(p.x, c->dtype, 3, (int64_t[]){c->seq_len, p.batch, c->hidden});
  bppsa_view *const wrong[] = {&x, &array, &output};
  bppsa_view *at = wrong[draw(s, 0, 2)];
  at->shape[draw(s, 0, at->ndim - 1)] += c->batch;
  assert_refused(bppsa_recurrent_use_tape(o->model, &x, &array, &output), BPPSA_ERR_SHAPE);
  free_pass(&p);
}

static const call_kind tape_calls[] = {{"tape_forward", 20, tape_forward},
                                       {"tape_backward", 25, tape_backward},
                                       {"forget", 4, forget},
                                       {"set_weights", 6, set_weights},
                                       {"set_wrong_weights", 2, set_wrong_weights},
                                       {"refused_tape", 4, refused_tape},
                                       {"out_of_memory", 2, out_of_memory},
                                       {"certify", 2, certify},
                                       {NULL, 0, NULL}};

/* ---- a sequence ---- */

static void draw_config(call_sequence *s, subject *o) {
  static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
  static const char *const methods[] = {"auto", "bp", "linear", "blelloch", "blelloch 2", "chunked", "chunked 3"};
  const bool large = chance(s, 12), tapes = chance(s, 25); /* threads share only the loops of large networks */
  bppsa_recurrent_config *c = &o->config;
  *c = bppsa_recurrent_config_default();
  o->cell = cells[draw(s, 0, 2)];
  c->seq_len = large ? draw(s, 20, 40) : draw(s, 1, 10);
  c->batch = large ? draw(s, 8, 16) : draw(s, 1, 5);
  c->hidden = large ? draw(s, 20, 40) : draw(s, 1, 8);
  c->input = draw(s, 1, 5);
  c->classes = draw(s, 1, 5);
  c->layers = tapes ? 1 : draw(s, 1, large ? 2 : 3);
  c->tape = tapes;
  c->bidirectional = !tapes && chance(s, 30);
  c->lengths = !tapes && chance(s, 40);
  c->dropout = chance(s, 40) ? 0.4 : 0;
  c->dropout_seed = (uint64_t)draw(s, 0, 9);
  c->no_bias = chance(s, 20);
  c->no_head = chance(s, 30);
  c->loss_all = chance(s, 50);
  c->input_gradients = chance(s, 60);
  c->dtype = chance(s, 50) ? BPPSA_F64 : BPPSA_F32;
  c->nonlinearity = o->cell->relu && chance(s, 30) ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  const char *method = methods[draw(s, 0, 6)];
  assert_ok(bppsa_gradient_method_parse(method, &c->method));
  if (!c->lengths && chance(s, 40)) {
    c->forward.kind = BPPSA_FORWARD_SPECULATIVE;
    c->forward.chunks = draw(s, 0, 4);
    c->forward.warm_up = draw(s, -1, 3);
    c->forward.rounds = draw(s, -1, 2);
  }
  note(s, "\n%s T %lld B %lld I %lld H %lld L %lld C %lld %s %s%s%s%s%s%s%s%s%s%s", o->cell->name, (long long)c->seq_len,
       (long long)c->batch, (long long)c->input, (long long)c->hidden, (long long)c->layers, (long long)c->classes,
       bppsa_dtype_name(c->dtype), method, c->bidirectional ? " bidirectional" : "", c->lengths ? " lengths" : "",
       c->dropout > 0 ? " dropout" : "", c->no_bias ? " no_bias" : "", c->no_head ? " no_head" : "", c->loss_all ? " all" : "",
       c->input_gradients ? " input_gradients" : "", tapes ? " tape" : "",
       c->forward.kind == BPPSA_FORWARD_SPECULATIVE ? " speculative" : "");
}

static void run(call_sequence *s) {
  subject o = {0};
  draw_config(s, &o);
  begin_subject(s, &o);
  make_calls(s, o.config.tape ? tape_calls : plain_calls, &o);
  end_subject(&o);
}

int main(int argc, char **argv) {
  const call_subject network = {"recurrent", 200, 2000, 10, 30, run};
  return run_sequences(&network, argc, argv);
}

/* Random sequences of calls that train one network (tests/support/calls.h): runs of all kinds, evaluations, predictions and files
 * of weights between them; runs that are interrupted and resumed, that diverge, that are refused, whose files and allocations fail.
 * What a call leaves behind is what it leaves in a fresh network that had the same weights. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/files/safetensors.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "scan/method.h"
#include "tests/support/calls.h"
#include "tests/support/folder.h"
#include "tests/support/io_fault.h"
#include "tests/support/support.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

#define FOLDER "train_calls"
#define RUN FOLDER "/run"
#define LOG FOLDER "/log.jsonl"
#define WEIGHTS FOLDER "/weights.safetensors"

enum { MOST_SAMPLES = 40, MOST_PARAMETERS = 32 };

typedef struct {
  bppsa_recurrent_config config;
  const bppsa_cell *cell;
  bppsa_device *device, *other; /* other: of fresh networks */
  bppsa_dataset *dataset;
  bppsa_model *model;
} subject;

/* What a network is made again from. */
typedef struct {
  void *values;
  bppsa_forward_pause pause;
  bppsa_backward_state backward;
} snapshot;

/* ---- weights ---- */

static size_t value_bytes(const bppsa_model *model) {
  size_t bytes = 0;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    bytes += bppsa_view_bytes(&model->parameters[i].value);
  }
  return bytes;
}

/* Copies all values to a block, or from it. */
static void move_values(const bppsa_model *model, char *block, bool back) {
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_view *value = &model->parameters[i].value;
    const size_t bytes = bppsa_view_bytes(value);
    memcpy(back ? value->data : block, back ? block : value->data, bytes);
    block += bytes;
  }
}

static snapshot take_snapshot(const subject *o) {
  snapshot now = {.values = bppsa_alloc(value_bytes(o->model))};
  assert_non_null(now.values);
  move_values(o->model, now.values, false);
  assert_ok(bppsa_forward_pause_get(o->model, &now.pause));
  assert_ok(bppsa_backward_state_get(o->model, &now.backward));
  return now;
}

static void restore(bppsa_model *model, const snapshot *from) {
  move_values(model, from->values, true);
  assert_ok(bppsa_forward_pause_set(model, &from->pause));
  assert_ok(bppsa_backward_state_set(model, &from->backward));
}

static bppsa_model *fresh(const subject *o, const snapshot *from) {
  bppsa_model *model;
  assert_ok(bppsa_recurrent_create(&o->config, o->cell, o->other, &model));
  restore(model, from);
  return model;
}

static void assert_same_weights(const subject *o, const bppsa_model *expected) {
  bppsa_forward_pause pause, same;
  bppsa_backward_state backward, other;
  for (int64_t i = 0; i < expected->parameter_count; ++i) {
    assert_same_views(expected->parameters[i].name, &o->model->parameters[i].value, &expected->parameters[i].value);
  }
  assert_ok(bppsa_forward_pause_get(o->model, &pause));
  assert_ok(bppsa_forward_pause_get((bppsa_model *)expected, &same));
  assert_int_equal(pause.failures, same.failures);
  assert_int_equal(pause.left, same.left);
  assert_ok(bppsa_backward_state_get(o->model, &backward));
  assert_ok(bppsa_backward_state_get((bppsa_model *)expected, &other));
  assert_int_equal(backward.pause.failures, other.pause.failures);
  assert_int_equal(backward.pause.left, other.pause.left);
  assert_int_equal(backward.warm_up, other.warm_up);
}

/* Nothing has happened to the network since then. */
static void assert_untouched(const subject *o, const snapshot *before) {
  bppsa_model *same = fresh(o, before);
  assert_same_weights(o, same);
  bppsa_model_destroy(same);
}

static void draw_weights(call_sequence *s, subject *o) {
  char *values = random_reals(s, o->config.dtype, (int64_t)(value_bytes(o->model) / bppsa_dtype_size(o->config.dtype)), 0.4);
  move_values(o->model, values, true);
  bppsa_free(values);
}

/* Changes what bits of speculative passes depend on, where there are such passes. */
static void draw_states(call_sequence *s, subject *o) {
  const bppsa_forward_pause pause = {.failures = draw(s, 0, 2), .left = draw(s, 0, 3)};
  const bppsa_backward_state state = {.pause = {.failures = draw(s, 0, 2), .left = draw(s, 0, 3)}, .warm_up = draw(s, 0, 3)};
  if (bppsa_forward_plan_of(o->model)->speculative) {
    assert_ok(bppsa_forward_pause_set(o->model, &pause));
  }
  if (bppsa_backward_plan_of(o->model) != NULL) {
    assert_ok(bppsa_backward_state_set(o->model, &state));
  }
}

/* ---- runs ---- */

typedef struct {
  bppsa_train_config config;
  int64_t order[MOST_SAMPLES];
  int64_t stop_at, fail_at, step; /* steps; 0: never */
} training;

static bppsa_status on_step(void *context, const bppsa_train_record *record) {
  training *t = context;
  t->step = record->step;
  return record->step == t->fail_at ? bppsa_fail(BPPSA_ERR_UNSUPPORTED, "power cut") : BPPSA_OK;
}

static bool stop(void *context) {
  const training *t = context;
  return t->step == t->stop_at;
}

static void draw_training(call_sequence *s, const subject *o, training *t) {
  static const double rates[] = {1e-3, 1e-2, 0.1};
  bppsa_train_config *c = &t->config;
  *t = (training){.config = bppsa_train_config_default()};
  if (chance(s, 50)) {
    c->iterations = draw(s, 1, 6);
  } else {
    c->epochs = draw(s, 1, 2);
  }
  c->batch = draw(s, 4, o->config.batch);
  c->seed = (uint64_t)draw(s, 0, 99);
  c->clip_norm = chance(s, 30) ? 0.5 : 0;
  c->validation = chance(s, 30) ? 0.2 : 0;
  c->optimizer.kind = (bppsa_optimizer_kind)draw(s, 0, BPPSA_OPTIMIZER_COUNT - 1);
  c->optimizer.lr = rates[draw(s, 0, 2)];
  c->optimizer.momentum = chance(s, 50) ? 0.9 : 0;
  c->optimizer.weight_decay = chance(s, 20) ? 0.01 : 0;
  c->rate.kind = (bppsa_rate_kind)draw(s, 0, BPPSA_RATE_COUNT - 1);
  c->rate.period = chance(s, 50) ? 3 : 0;
  c->rate.warmup = chance(s, 20) ? 2 : 0;
  c->order.kind = (bppsa_order_kind)draw(s, 0, BPPSA_ORDER_GIVEN);
  if (c->order.kind == BPPSA_ORDER_GIVEN) {
    c->order.samples = draw(s, 1, 20);
    c->order.indices = t->order;
    for (int64_t i = 0; i < c->order.samples; ++i) {
      t->order[i] = draw(s, 0, 9);
    }
  }
  note(s, " %lld iterations, %lld epochs, batch %lld, %s", (long long)c->iterations, (long long)c->epochs, (long long)c->batch,
       bppsa_optimizer_name(c->optimizer.kind));
}

/* The memory of the batches is gone: the network knows nothing of them, and refuses what would read it. */
static void assert_forgotten(const subject *o, bppsa_model *model) {
  const int64_t shape[] = {o->config.seq_len, 1, model->classes};
  const bppsa_view seed = bppsa_view_make(model->parameters[0].value.data, o->config.dtype, o->config.loss_all ? 3 : 2,
                                          o->config.loss_all ? shape : shape + 1);
  bppsa_nonfinite where;
  bppsa_view states;
  assert_refused(model->ops->backward(model, &seed), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "backward: no forward pass precedes it");
  assert_refused(bppsa_recurrent_states(model, 0, &states), BPPSA_ERR_ARGUMENT);
  assert_false(model->ops->find_nonfinite(model, &where));
}

static bppsa_status train_on(const subject *o, bppsa_model *model, const bppsa_device *device, training *t,
                             bppsa_train_result *result) {
  const bppsa_train_callbacks callbacks = {.context = t, .on_step = on_step, .stop = stop};
  t->step = 0;
  const bppsa_status status = bppsa_train(&t->config, model, o->dataset, device, &callbacks, result);
  char message[512];
  snprintf(message, sizeof message, "%s", status != BPPSA_OK ? bppsa_last_error() : "");
  assert_forgotten(o, model);
  return status == BPPSA_OK ? status : bppsa_fail(status, "%s", message);
}

static void assert_same_results(const bppsa_train_result *a, const bppsa_train_result *b) {
  const double found[] = {a->last.loss, a->last.grad_norm, a->last.lr, a->last.validation_loss},
               expected[] = {b->last.loss, b->last.grad_norm, b->last.lr, b->last.validation_loss};
  assert_int_equal(a->steps, b->steps);
  assert_int_equal(a->epochs, b->epochs);
  assert_same_reals("the last step", BPPSA_F64, found, expected, 4);
}

/* A whole run on a fresh network leaves what the object has now. `from`: the weights before the run. */
static void assert_trained(const subject *o, const snapshot *from, const training *t, bppsa_status status,
                           const bppsa_train_result *result) {
  training again = *t;
  again.config.checkpoint = again.config.log_path = NULL;
  again.config.checkpoint_every = 0;
  again.config.resume = false;
  bppsa_train_result expected;
  bppsa_model *other = fresh(o, from);
  assert_int_equal(train_on(o, other, o->other, &again, &expected), status);
  if (status == BPPSA_OK) {
    assert_same_results(result, &expected);
  }
  assert_same_weights(o, other);
  bppsa_model_destroy(other);
}

static void train(call_sequence *s, void *object) {
  subject *o = object;
  training t;
  bppsa_train_result result;
  draw_training(s, o, &t);
  t.config.log_path = chance(s, 30) ? LOG : NULL;
  snapshot before = take_snapshot(o);
  const bppsa_status status = train_on(o, o->model, o->device, &t, &result);
  if (status != BPPSA_OK) { /* drawn weights and rates may diverge */
    assert_int_equal(status, BPPSA_ERR_NUMERIC);
  }
  assert_trained(o, &before, &t, status, &result);
  bppsa_free(before.values);
  if (status != BPPSA_OK) {
    draw_weights(s, o);
  }
}

/* A step that is far too long ends in a number that is not finite, where a fresh network's run ends. */
static void diverge(call_sequence *s, void *object) {
  subject *o = object;
  training t;
  bppsa_train_result result;
  draw_training(s, o, &t);
  t.config.optimizer.kind = BPPSA_SGD;
  t.config.optimizer.lr = o->config.dtype == BPPSA_F32 ? 1e38 : 1e308;
  t.config.optimizer.momentum = t.config.optimizer.weight_decay = 0.5;
  t.config.rate.kind = BPPSA_RATE_CONSTANT;
  snapshot before = take_snapshot(o);
  const bppsa_status status = train_on(o, o->model, o->device, &t, &result);
  note(s, " %s", bppsa_status_name(status));
  assert_trained(o, &before, &t, status, &result);
  bppsa_free(before.values);
  draw_weights(s, o);
}

/* ---- what stands between runs ---- */

static void evaluate(call_sequence *s, void *object) {
  subject *o = object;
  bppsa_evaluation found = {0}, expected = {0};
  snapshot before = take_snapshot(o);
  const int64_t first = draw(s, 0, 9), count = draw(s, 1, o->dataset->samples - first), batch = draw(s, 1, o->config.batch);
  bppsa_model *other = fresh(o, &before);
  const bppsa_status status = bppsa_evaluate(o->model, o->dataset, o->device, first, count, batch, &found);
  assert_int_equal(bppsa_evaluate(other, o->dataset, o->other, first, count, batch, &expected), status);
  assert_same_reals("loss", BPPSA_F64, &found.loss, &expected.loss, 1);
  assert_same_reals("accuracy", BPPSA_F64, &found.accuracy, &expected.accuracy, 1);
  assert_forgotten(o, o->model);
  assert_same_weights(o, other);
  bppsa_model_destroy(other);
  bppsa_free(before.values);
}

/* Passes of the caller's own: nothing is left out of them, whatever was trained before. */
static void predict(call_sequence *s, void *object) {
  subject *o = object;
  bppsa_view found, expected;
  snapshot before = take_snapshot(o);
  const int64_t batch = draw(s, 1, o->config.batch), shape[] = {o->config.seq_len, batch, o->config.input};
  void *numbers = random_reals(s, o->config.dtype, shape[0] * shape[1] * shape[2], 1);
  const bppsa_view x = bppsa_view_make(numbers, o->config.dtype, 3, shape);
  bppsa_model *other = fresh(o, &before);
  assert_ok(bppsa_model_forward(o->model, &x, NULL, NULL, &found));
  assert_ok(bppsa_model_forward(other, &x, NULL, NULL, &expected));
  assert_same_views("outputs", &found, &expected);
  bppsa_view seed = expected;
  seed.data = copy_bytes(expected.data, bppsa_view_bytes(&expected));
  assert_ok(o->model->ops->backward(o->model, &seed));
  assert_ok(other->ops->backward(other, &seed));
  for (int64_t i = 0; i < other->parameter_count; ++i) {
    assert_same_views("gradients", &o->model->parameters[i].gradient, &other->parameters[i].gradient);
  }
  bppsa_model_forget(o->model); /* of the numbers that are freed here */
  bppsa_free(seed.data);
  bppsa_model_destroy(other);
  bppsa_free(numbers);
  bppsa_free(before.values);
}

/* Weights go to a file, change, and come back; a call to the operating system may fail. */
static void save_and_load(call_sequence *s, void *object) {
  subject *o = object;
  bppsa_named_view tensors[MOST_PARAMETERS];
  const int64_t count = o->model->parameter_count;
  snapshot before = take_snapshot(o);
  io_fault fault;
  assert_true(count <= MOST_PARAMETERS);
  for (int64_t i = 0; i < count; ++i) {
    tensors[i] = (bppsa_named_view){o->model->parameters[i].name, o->model->parameters[i].value};
  }
  io_fault_set(&fault, draw(s, 1, 12), chance(s, 50), chance(s, 50) ? EIO : ENOSPC);
  const bppsa_status status = bppsa_safetensors_save(WEIGHTS, count, tensors, 0, NULL);
  io_fault_clear();
  note(s, " %s", bppsa_status_name(status));
  if (status == BPPSA_OK || chance(s, 50)) {
    assert_ok(bppsa_safetensors_save(WEIGHTS, count, tensors, 0, NULL));
    bppsa_safetensors *file = NULL;
    draw_weights(s, o);
    assert_ok(bppsa_safetensors_load(WEIGHTS, &file));
    bppsa_named_view *all;
    int64_t found;
    assert_ok(bppsa_safetensors_list(file, &all, &found));
    assert_ok(bppsa_model_set(o->model, WEIGHTS, found, all));
    bppsa_free(all);
    bppsa_safetensors_destroy(file);
  }
  assert_untouched(o, &before);
  bppsa_free(before.values);
}

static void set_weights(call_sequence *s, void *object) {
  draw_weights(s, object);
}

/* ---- runs that do not get to their end ---- */

/* What may go wrong in a part of a run with checkpoints. */
typedef enum { STOPS, FAILS, FILES_FAIL, MEMORY_FAILS, INTERRUPTIONS } interruption;

/* Part of a run, until something happens; true: the run is over. */
static bool run_part(call_sequence *s, const subject *o, training *t, int64_t steps, bppsa_train_result *result) {
  const interruption what = (interruption)draw(s, 0, INTERRUPTIONS - 1);
  io_fault fault;
  bool failed = false;
  t->stop_at = what == STOPS ? draw(s, 1, steps) : 0;
  t->fail_at = what == FAILS ? draw(s, 1, steps) : 0;
  const int64_t blocks = bppsa_alloc_live(), descriptors = entries("/proc/self/fd");
  if (what == FILES_FAIL) {
    io_fault_set(&fault, draw(s, 1, 60), chance(s, 50), chance(s, 50) ? EIO : ENOSPC);
  } else if (what == MEMORY_FAILS) {
    fail_an_allocation(s, 120);
  }
  const bppsa_status status = train_on(o, o->model, o->device, t, result);
  io_fault_clear();
  failed = what == MEMORY_FAILS && allocations_work();
  note(s, " (%s)", status != BPPSA_OK ? bppsa_last_error() : result->stopped ? "stopped" : "over");
  assert_int_equal(bppsa_alloc_live(), blocks);
  assert_int_equal(entries("/proc/self/fd"), descriptors);
  if (status != BPPSA_OK && status != BPPSA_ERR_NUMERIC) {
    const bppsa_status expected[] = {BPPSA_OK, BPPSA_ERR_UNSUPPORTED, BPPSA_ERR_IO, BPPSA_ERR_MEMORY};
    const bool unread = t->config.resume && what == FILES_FAIL && (status == BPPSA_ERR_ARGUMENT || status == BPPSA_ERR_FORMAT);
    assert_true(unread || status == expected[what]); /* unread: no checkpoint could be */
  }
  assert_true(!failed || status == BPPSA_ERR_MEMORY || status == BPPSA_OK || status == BPPSA_ERR_NUMERIC);
  t->stop_at = t->fail_at = 0;
  return (status == BPPSA_OK && !result->stopped) || status == BPPSA_ERR_NUMERIC;
}

static bool holds_checkpoint(void) {
  const char *key = "model";
  char value[1][BPPSA_CHECKPOINT_VALUE];
  return bppsa_checkpoint_peek(RUN, 1, &key, value) == BPPSA_OK;
}

/* Is interrupted any number of times, once with other calls in between, and resumed in the same network until it is over. */
static void train_in_parts(call_sequence *s, void *object) {
  subject *o = object;
  training t;
  bppsa_train_result result = {0}, expected;
  draw_training(s, o, &t);
  snapshot before = take_snapshot(o);
  bppsa_model *other = fresh(o, &before);
  const bppsa_status status = train_on(o, other, o->other, &t, &expected);
  fresh_folder(FOLDER);
  t.config.checkpoint = RUN;
  t.config.checkpoint_every = draw(s, 0, 3);
  t.config.log_path = chance(s, 50) ? LOG : NULL;
  bool over = status != BPPSA_OK; /* what diverges is not resumed */
  for (int64_t part = 0; part < 4 && !over; ++part) {
    over = run_part(s, o, &t, expected.steps, &result);
    t.config.resume = holds_checkpoint();
    if (!over && !t.config.resume) { /* not even the first one was saved */
      restore(o->model, &before);
    } else if (!over && chance(s, 40)) {
      draw_weights(s, o);
      draw_states(s, o);
      predict(s, o);
    }
  }
  if (!over) {
    assert_ok(train_on(o, o->model, o->device, &t, &result));
  }
  if (status == BPPSA_OK) {
    assert_same_results(&result, &expected);
    assert_same_weights(o, other);
  }
  bppsa_model_destroy(other);
  bppsa_free(before.values);
}

/* The network stays as it was. */
static void refused(call_sequence *s, void *object) {
  subject *o = object;
  training t;
  bppsa_train_result result;
  bppsa_status expected = BPPSA_ERR_ARGUMENT;
  draw_training(s, o, &t);
  bppsa_train_config *c = &t.config;
  remove_folder(RUN);
  remove_folder(LOG);
  c->log_path = LOG;
  bppsa_view *value = &o->model->parameters[0].value;
  const double first = bppsa_view_get(value, 0);
  switch (draw(s, 0, 8)) {
  case 0:
    c->batch = 0;
    break;
  case 1:
    c->iterations = c->epochs = 1;
    break;
  case 2:
    c->clip_norm = -1;
    break;
  case 3:
    c->optimizer.lr = 0;
    break;
  case 4:
    c->resume = true;
    break;
  case 5:
    c->checkpoint = RUN;
    c->resume = true;
    break;
  case 6:
    c->order = (bppsa_order){.kind = BPPSA_ORDER_GIVEN, .indices = t.order, .samples = 1};
    t.order[0] = MOST_SAMPLES + 1;
    break;
  case 7:
    c->validation = 1;
    break;
  default:
    bppsa_view_set(value, 0, INFINITY);
    expected = BPPSA_ERR_NUMERIC;
  }
  snapshot before = take_snapshot(o);
  assert_refused(train_on(o, o->model, o->device, &t, &result), expected);
  assert_untouched(o, &before);
  bppsa_view_set(value, 0, first);
  bppsa_free(before.values);
  FILE *log = fopen(LOG, "r");
  assert_null(log);
}

/* A run without files either has its memory before the first step, or changes nothing. */
static void out_of_memory(call_sequence *s, void *object) {
  subject *o = object;
  training t;
  bppsa_train_result result;
  draw_training(s, o, &t);
  snapshot before = take_snapshot(o);
  const int64_t blocks = bppsa_alloc_live();
  fail_an_allocation(s, 60);
  const bppsa_status status = train_on(o, o->model, o->device, &t, &result);
  const bool failed = allocations_work();
  assert_int_equal(bppsa_alloc_live(), blocks);
  if (failed) {
    assert_int_equal(status, BPPSA_ERR_MEMORY);
    assert_untouched(o, &before);
  } else {
    assert_trained(o, &before, &t, status, &result);
  }
  bppsa_free(before.values);
  if (status == BPPSA_ERR_NUMERIC) {
    draw_weights(s, o);
  }
}

static const call_kind calls[] = {{"train", 20, train},
                                  {"train_in_parts", 8, train_in_parts},
                                  {"evaluate", 8, evaluate},
                                  {"predict", 8, predict},
                                  {"save_and_load", 5, save_and_load},
                                  {"set_weights", 3, set_weights},
                                  {"diverge", 4, diverge},
                                  {"refused", 8, refused},
                                  {"out_of_memory", 5, out_of_memory},
                                  {NULL, 0, NULL}};

/* ---- a sequence ---- */

static void make_dataset(call_sequence *s, subject *o) {
  const bppsa_recurrent_config *c = &o->config;
  const bppsa_dataset_options options = {.samples = draw(s, 20, MOST_SAMPLES),
                                         .seq_len = c->seq_len,
                                         .input = c->input,
                                         .seed = (uint64_t)draw(s, 0, 99),
                                         .labels_per_step = c->loss_all};
  assert_ok(bppsa_dataset_create("bitstream", &options, &o->dataset));
  if (c->lengths) {
    o->dataset->lengths = bppsa_calloc(options.samples, sizeof *o->dataset->lengths);
    assert_non_null(o->dataset->lengths);
    for (int64_t i = 0; i < options.samples; ++i) {
      o->dataset->lengths[i] = draw(s, 1, c->seq_len);
    }
  }
}

static void draw_config(call_sequence *s, subject *o) {
  static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
  static const char *const methods[] = {"bp", "blelloch", "chunked 3", "speculative"};
  const bool large = chance(s, 8); /* threads share only the loops of large networks */
  bppsa_recurrent_config *c = &o->config;
  *c = bppsa_recurrent_config_default();
  o->cell = cells[draw(s, 0, 2)];
  c->seq_len = large ? draw(s, 15, 25) : draw(s, 2, 8);
  c->batch = large ? 16 : draw(s, 4, 8);
  c->hidden = large ? draw(s, 20, 30) : draw(s, 1, 8);
  c->input = draw(s, 1, 2);
  c->layers = draw(s, 1, 2);
  c->bidirectional = chance(s, 20);
  c->lengths = chance(s, 30);
  c->dropout = c->layers > 1 && chance(s, 60) ? 0.4 : 0;
  c->loss_all = chance(s, 40);
  c->dtype = chance(s, 50) ? BPPSA_F64 : BPPSA_F32;
  c->forward.kind = !c->lengths && chance(s, 30) ? BPPSA_FORWARD_SPECULATIVE : BPPSA_FORWARD_SEQUENTIAL;
  c->forward.chunks = draw(s, 0, 3);
  assert_ok(bppsa_gradient_method_parse(methods[draw(s, 0, 3)], &c->method));
  c->speculation = (bppsa_backward_method){.chunks = draw(s, 2, 4), .warm_up = draw(s, -1, 2), .tolerance = -1};
  note(s, "\n%s T %lld B %lld I %lld H %lld L %lld %s%s%s%s%s%s, backward %s", o->cell->name, (long long)c->seq_len,
       (long long)c->batch, (long long)c->input, (long long)c->hidden, (long long)c->layers, bppsa_dtype_name(c->dtype),
       c->bidirectional ? " bidirectional" : "", c->lengths ? " lengths" : "", c->dropout > 0 ? " dropout" : "",
       c->loss_all ? " all" : "", c->forward.kind == BPPSA_FORWARD_SPECULATIVE ? " speculative" : "",
       bppsa_backward_name(c->method.backward));
}

static void run(call_sequence *s) {
  subject o = {.device = random_device(s), .other = cpu_device(2)};
  draw_config(s, &o);
  make_dataset(s, &o);
  assert_ok(bppsa_recurrent_create(&o.config, o.cell, o.device, &o.model));
  draw_weights(s, &o);
  draw_states(s, &o);
  fresh_folder(FOLDER);
  make_calls(s, calls, &o);
  remove_folder(FOLDER);
  bppsa_model_destroy(o.model);
  bppsa_dataset_destroy(o.dataset);
  bppsa_device_destroy(o.device);
  bppsa_device_destroy(o.other);
}

int main(int argc, char **argv) {
  const call_subject network = {"trained network", 40, 400, 5, 15, run};
  return run_sequences(&network, argc, argv);
}

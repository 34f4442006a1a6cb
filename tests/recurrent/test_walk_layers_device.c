/* Where the walks that verify and mend a parallel forward pass stop on a GPU, of layers of tanh and gates, whose numbers no one
 * computes by hand: the GPU's own sequential pass computes the chunks from their guesses and the walks from the ends in front of
 * them, and the rules of recurrent/settle.h say which of these states the pass must leave, bit by bit, with which path and gap.
 * test_walk_device.c has a layer of ReLU that is computed without the GPU. BPPSA_TEST_DEVICE names the GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/recurrent/forward_problem.h"
#include "tests/recurrent/walk_rules.h"

enum { MOST_STATE = 2 * 66, CHAIN = 31 };

/* Widths of a warp, of a block, and of what the emulated GPU computes by the kernels for any width where it has no clusters. */
static const int64_t widths[] = {32, 40, 66};
enum { WIDTHS = sizeof widths / sizeof *widths };

static bppsa_device *device;

/* A layer of any cell, which `change` gives its weights, unless it is NULL: then they are random. */
typedef struct layer_case {
  const bppsa_cell *cell;
  bppsa_dtype dtype;
  bppsa_nonlinearity nonlinearity;
  int64_t hidden, warm_up;
  double tolerance; /* negative: the library's own */
  double x[STEPS], start[MOST_STATE];
  void (*change)(const struct layer_case *, bppsa_model *);
  double gains[CHAIN];
} layer_case;

static layer_case layer_of(const bppsa_cell *cell, bppsa_dtype dtype, int64_t hidden) {
  layer_case k = {.cell = cell, .dtype = dtype, .hidden = hidden, .warm_up = 2, .tolerance = -1};
  k.nonlinearity = BPPSA_NONLINEARITY_TANH;
  uint64_t random = (uint64_t)hidden;
  for (int64_t t = 0; t < STEPS; ++t) {
    k.x[t] = (double)(next_random(&random) >> 63);
  }
  return k;
}

static int64_t state_size(const layer_case *k) {
  return (k->cell->pair ? 2 : 1) * k->hidden;
}

/* Runs the steps first .. first + count - 1 from `start`. Returns their states [count][S]. plan, stats: of a pass that speculates;
 * NULL: it is sequential. */
static double *run_steps(const layer_case *k, int64_t first, int64_t count, const double *start, bppsa_forward_plan *plan,
                         bppsa_forward_stats *stats) {
  const int64_t size = state_size(k), hidden = k->hidden;
  forward_problem p = forward_problem_default();
  p.cell = k->cell;
  p.config.seq_len = count;
  p.config.hidden = hidden;
  p.config.batch = 1;
  p.config.dtype = k->dtype;
  p.config.nonlinearity = k->nonlinearity;
  p.config.forward.kind = plan != NULL ? BPPSA_FORWARD_SPECULATIVE : BPPSA_FORWARD_SEQUENTIAL;
  p.config.forward.chunks = CHUNKS;
  p.config.forward.warm_up = k->warm_up;
  p.config.forward.tolerance = k->tolerance;
  bppsa_model *model = make_forward_model(&p, device);
  if (k->change != NULL) {
    k->change(k, model);
    assert_int_equal(bppsa_model_push(model), BPPSA_OK);
  }
  double x[STEPS], from[MOST_STATE];
  memcpy(x, k->x + first, (size_t)count * sizeof *x);
  memcpy(from, start, (size_t)size * sizeof *from);
  void *in = sent(device, k->dtype, x, count), *state = sent(device, k->dtype, from, size);
  const bppsa_view in_view = device_view(device, in, k->dtype, (int64_t[]){count, 1, 1}),
                   h0 = device_view(device, state, k->dtype, (int64_t[]){1, 1, size});
  double *states = bppsa_calloc(count * size, sizeof *states);
  assert_non_null(states);
  assert_int_equal(bppsa_recurrent_forward_layers(model, &in_view, &h0), BPPSA_OK);
  for (int half = 0; half < size / hidden; ++half) {
    bppsa_view view;
    assert_int_equal((half == 0 ? bppsa_recurrent_states : bppsa_recurrent_cell_states)(model, 0, &view), BPPSA_OK);
    double *numbers = fetched(device, &view);
    for (int64_t t = 0; t < count; ++t) {
      memcpy(states + t * size + half * hidden, numbers + t * hidden, (size_t)hidden * sizeof *states);
    }
    bppsa_free(numbers);
  }
  if (plan != NULL) {
    *plan = *bppsa_forward_plan_of(model);
    assert_int_equal(bppsa_forward_stats_of(model, stats), BPPSA_OK);
  }
  bppsa_memory_free(device, in);
  bppsa_memory_free(device, state);
  bppsa_model_destroy(model);
  return states;
}

/* The chunks from W steps early, from 0, and all steps that a walk may take through each, from the end of the chunk in front. */
typedef struct {
  double stored[STEPS * MOST_STATE], fresh[STEPS * MOST_STATE]; /* [T][S] */
  distances apart[CHUNKS];
} layer_parts;

static double rounded_to(const layer_case *k, double x) {
  return k->dtype == BPPSA_F32 ? (double)(float)x : x;
}

/* h of a pair by itself, c relative to max(1, |c|). */
static double apart_of(const layer_case *k, const double *fresh, const double *stored) {
  double largest = 0;
  for (int64_t j = 0; j < state_size(k); ++j) {
    const double apart = rounded_to(k, fabs(fresh[j] - stored[j]));
    largest = fmax(largest, j < k->hidden ? apart : rounded_to(k, apart / fmax(1, fabs(fresh[j]))));
  }
  return largest;
}

static void find_parts(const layer_case *k, layer_parts *parts) {
  const int64_t size = state_size(k), chunk = LENGTH * size;
  const double nothing[MOST_STATE] = {0};
  for (int64_t p = 0; p < CHUNKS; ++p) {
    const int64_t early = p == 0 ? 0 : k->warm_up;
    double *states = run_steps(k, p * LENGTH - early, early + LENGTH, p == 0 ? k->start : nothing, NULL, NULL);
    memcpy(parts->stored + p * chunk, states + early * size, (size_t)chunk * sizeof *states);
    bppsa_free(states);
  }
  for (int64_t p = 1; p < CHUNKS; ++p) {
    double *states = run_steps(k, p * LENGTH, LENGTH, parts->stored + p * chunk - size, NULL, NULL);
    memcpy(parts->fresh + p * chunk, states, (size_t)chunk * sizeof *states);
    bppsa_free(states);
    for (int64_t i = 0; i < LENGTH; ++i) {
      const int64_t at = p * chunk + i * size;
      parts->apart[p].apart[i] = apart_of(k, parts->fresh + at, parts->stored + at);
      parts->apart[p].size[i] = 1;
    }
  }
}

/* Returns the steps of the longest walk. mended: how many chunks have to be. */
static int64_t check_layer(const layer_case *k, const layer_parts *parts, int64_t mended) {
  static double expected[STEPS * MOST_STATE];
  const int64_t size = state_size(k), chunk = LENGTH * size;
  bppsa_forward_plan plan;
  bppsa_forward_stats s;
  double *states = run_steps(k, 0, STEPS, k->start, &plan, &s), gap = 0;
  int64_t longest = 0;
  memcpy(expected, parts->stored, sizeof expected);
  for (int64_t p = 1; p < CHUNKS; ++p) {
    const int64_t steps = walk_steps(&plan, &parts->apart[p]);
    memcpy(expected + p * chunk, parts->fresh + p * chunk, (size_t)((steps - 1) * size) * sizeof *expected);
    gap = fmax(gap, parts->apart[p].apart[steps - 1]);
    longest = steps > longest ? steps : longest;
    mended -= steps > 1;
  }
  assert_int_equal(mended, 0);
  for (int64_t i = 0; i < STEPS * size; ++i) {
    if (states[i] != expected[i]) {
      fail_msg("%s, H %d, W %d, tolerance %.17g, step %d, number %d: %.17g, expected %.17g", k->cell->name, (int)k->hidden,
               (int)k->warm_up, k->tolerance, (int)(i / size), (int)(i % size), states[i], expected[i]);
    }
  }
  assert_int_equal(s.tails + s.reseeded, 0);
  assert_int_equal(s.path, k->warm_up + LENGTH + longest);
  assert_true(s.gap == gap);
  bppsa_free(states);
  return longest;
}

/* With tolerances on both sides of what the first steps of the chunks are apart, and the library's own: these are accepted, or
 * mended until the distance has become small. */
static void check_tolerances(layer_case *k) {
  static layer_parts parts;
  find_parts(k, &parts);
  const double first[] = {parts.apart[1].apart[0], parts.apart[2].apart[0]};
  k->tolerance = fmax(first[0], first[1]);
  assert_int_equal(check_layer(k, &parts, 0), 1);
  k->tolerance = fmin(first[0], first[1]) * .99;
  assert_true(k->tolerance > 0 && check_layer(k, &parts, CHUNKS - 1) > 1);
  k->tolerance = -1;
  (void)check_layer(k, &parts, CHUNKS - 1);
}

static void test_cells(void **state) {
  (void)state;
  static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
  for (int i = 0; i < 9; ++i) {
    layer_case k = layer_of(cells[i % 3], i / 3 == 1 ? BPPSA_F64 : BPPSA_F32, i < 6 ? 20 - 6 * (i % 3) : 34);
    check_tolerances(&k);
  }
}

/* Sets all weights and biases to 0. */
static void clear_weights(bppsa_model *model) {
  for (int64_t i = 0; i < 4; ++i) {
    const bppsa_view *to = &model->parameters[i].value;
    for (int64_t j = 0; j < bppsa_view_count(to); ++j) {
      bppsa_view_set(to, j, 0);
    }
  }
}

/* A chain of units, each of which takes over its gain times what the one before it was. */
static void make_chain(const layer_case *k, bppsa_model *model) {
  clear_weights(model);
  bppsa_view_set(&model->parameters[0].value, 0, 1);
  for (int64_t i = 1; i < CHAIN; ++i) {
    bppsa_view_set(&model->parameters[1].value, i * k->hidden + i - 1, k->gains[i]);
  }
}

/* As pulse(), of tanh: the tolerances are relative to 1. */
static void check_tanh_pulse(bppsa_dtype dtype, int64_t hidden, const double apart[3], int64_t stop) {
  static layer_parts parts;
  layer_case k = layer_of(&bppsa_rnn_cell, dtype, hidden);
  k.change = make_chain;
  k.warm_up = 0;
  for (int i = 0; i < CHAIN; ++i) {
    k.gains[i] = 1;
  }
  for (int i = 0; i < 3; ++i) {
    k.gains[9 + 8 * i] = apart[i] / (i > 0 ? apart[i - 1] : 0x1p-4);
  }
  for (int64_t t = 0; t < STEPS; ++t) {
    k.x[t] = (t + 1) % LENGTH == 0 ? 0x1p-4 : 0;
  }
  find_parts(&k, &parts);
  assert_int_equal(check_layer(&k, &parts, CHUNKS - 1), stop + 1);
}

/* A distance that was far since it was small has to stay small anew. Each of them is a little smaller than its name, because tanh
 * flattens the pulse. */
static void test_tanh_pulses(void **state) {
  (void)state;
  for (int i = 0; i < 4; ++i) {
    const bppsa_dtype dtype = i % 2 ? BPPSA_F64 : BPPSA_F32;
    const int64_t hidden = i / 2 ? 64 : 32;
    const double stop = dtype == BPPSA_F32 ? 0x1p-22 : 0x1p-50, rounding = dtype == BPPSA_F32 ? 0x1p-24 : 0x1p-53;
    check_tanh_pulse(dtype, hidden, (double[]){stop, 0x1p-4, stop}, 32);
    check_tanh_pulse(dtype, hidden, (double[]){stop, 2 * stop, stop}, 24);
    check_tanh_pulse(dtype, hidden, (double[]){stop, 8 * stop, stop}, 32);
    check_tanh_pulse(dtype, hidden, (double[]){0x1p-6, rounding, stop}, 16);
  }
}

/* An LSTM whose output gates are closed, so that h is 0 and c, which reaches 5, forgets at a speed of each unit's own. */
static void close_outputs(const layer_case *k, bppsa_model *model) {
  const int64_t hidden = k->hidden;
  const bppsa_view *w_ih = &model->parameters[0].value, *bias = &model->parameters[2].value;
  clear_weights(model);
  for (int64_t j = 0; j < hidden; ++j) {
    const double sign = j % 2 ? -1 : 1;
    bppsa_view_set(bias, j, 2.2);
    bppsa_view_set(bias, hidden + j, (k->dtype == BPPSA_F32 ? 1.5 : .8) - .05 * (double)(j % 7));
    bppsa_view_set(bias, 2 * hidden + j, sign * 1.5);
    bppsa_view_set(w_ih, 2 * hidden + j, sign * .25);
    bppsa_view_set(w_ih, 3 * hidden + j, -1000);
  }
}

static void test_closed_outputs(void **state) {
  (void)state;
  assert_int_equal(setenv("SIMT_MOST_CLUSTER", "1", 1), 0);
  for (int i = 0; i < WIDTHS + 1; ++i) {
    layer_case k = layer_of(&bppsa_lstm_cell, i < WIDTHS ? BPPSA_F32 : BPPSA_F64, widths[i % WIDTHS]);
    k.change = close_outputs;
    for (int64_t t = 0; t < STEPS; ++t) {
      k.x[t] += 1;
    }
    check_tolerances(&k);
  }
  assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
}

/* A pass whose walks go on to the ends of their chunks. Returns its states; *stats: what it did. */
static double *run_all(const layer_case *k, bppsa_forward_stats *stats) {
  bppsa_forward_plan plan;
  return run_steps(k, 0, STEPS, k->start, &plan, stats);
}

/* A ReLU layer of units by themselves, of which the first one keeps what it is, and the second half takes an input that is too
 * large for it. */
static void make_keeper(const layer_case *k, bppsa_model *model) {
  clear_weights(model);
  bppsa_view_set(&model->parameters[1].value, 0, 1);
  for (int64_t j = k->hidden / 2; j < k->hidden; ++j) {
    bppsa_view_set(&model->parameters[0].value, j, k->dtype == BPPSA_F32 ? 1e30 : 1e200);
  }
}

/* At the last step of a chunk half of the units overflow in guess and truth alike. They cannot be subtracted, and the chunk has
 * moved far all the same, by the one unit that guesses cannot know. */
static void test_equal_overflow(void **state) {
  (void)state;
  assert_int_equal(setenv("SIMT_MOST_CLUSTER", "1", 1), 0); /* for 130 units: the kernels for any width */
  for (int i = 0; i < 6; ++i) {
    layer_case k = layer_of(&bppsa_rnn_cell, i % 2 ? BPPSA_F64 : BPPSA_F32, i < 2 ? 32 : i < 4 ? 64 : 130);
    bppsa_forward_stats s;
    k.change = make_keeper;
    k.nonlinearity = BPPSA_NONLINEARITY_RELU;
    k.start[0] = 1;
    memset(k.x, 0, sizeof k.x);
    k.x[2 * LENGTH - 1] = k.dtype == BPPSA_F32 ? 1e30 : 1e200;
    double *states = run_all(&k, &s);
    for (int64_t t = 0; t < 2 * LENGTH; ++t) {
      assert_true(states[t * k.hidden] == 1 && isinf(states[t * k.hidden + k.hidden - 1]) == (t + 1 == 2 * LENGTH));
    }
    for (int64_t t = 2 * LENGTH; t < STEPS; ++t) {
      assert_true(isnan(states[t * k.hidden]));
    }
    assert_int_equal(s.reseeded, 1);
    bppsa_free(states);
  }
  assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
}

enum { KEPT = 5 };

/* As close_outputs, and one unit keeps its c: nothing comes in, and nothing is forgotten. */
static void close_and_keep(const layer_case *k, bppsa_model *model) {
  const bppsa_view *w_ih = &model->parameters[0].value;
  close_outputs(k, model);
  bppsa_view_set(w_ih, KEPT, -1000);
  bppsa_view_set(w_ih, k->hidden + KEPT, 1000);
}

/* c of all units but one is infinite from the beginning, and so are its distances from guesses and the sizes to which they are
 * relative: the quotients are no numbers, and agree with nothing. They do not hide how far c of that one is. */
static void test_infinite_c(void **state) {
  (void)state;
  assert_int_equal(setenv("SIMT_MOST_CLUSTER", "1", 1), 0);
  for (int i = 0; i < 4 * WIDTHS; ++i) {
    layer_case k = layer_of(&bppsa_lstm_cell, i % 2 ? BPPSA_F64 : BPPSA_F32, widths[i / 4]);
    const int64_t size = state_size(&k);
    const bool far = i / 2 % 2 == 1;
    bppsa_forward_stats s;
    k.change = close_and_keep;
    for (int64_t j = 0; j < k.hidden; ++j) {
      k.start[k.hidden + j] = j == KEPT ? far : (double)INFINITY;
    }
    for (int64_t t = 0; t < STEPS; ++t) {
      k.x[t] += 1;
    }
    double *states = run_all(&k, &s);
    for (int64_t t = 0; t < STEPS; ++t) {
      for (int64_t j = 0; j < k.hidden; ++j) {
        assert_true(states[t * size + k.hidden + j] == k.start[k.hidden + j]);
      }
    }
    assert_int_equal(s.reseeded, far);
    bppsa_free(states);
  }
  assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
}

int main(void) {
  const struct CMUnitTest unit_tests[] = {cmocka_unit_test(test_cells), cmocka_unit_test(test_tanh_pulses),
                                          cmocka_unit_test(test_closed_outputs), cmocka_unit_test(test_equal_overflow),
                                          cmocka_unit_test(test_infinite_c)};
  device = test_device(2);
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    printf("skipped: BPPSA_TEST_DEVICE names no GPU\n");
    bppsa_device_destroy(device);
    return 77;
  }
  const int failed = cmocka_run_group_tests(unit_tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}

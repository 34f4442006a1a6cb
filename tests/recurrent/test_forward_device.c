/* The parallel forward pass on a device: every branch of its kernels, the bits of the device's own sequential pass with
 * tolerance 0, pauses, recordings. BPPSA_TEST_DEVICE names the device. (The file is long because all
 * branches are reached from one set of problems.) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compute/graph.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/recurrent/forward_problem.h"

static bppsa_device *device;

enum { RNN, GRU, LSTM, CELLS };
static const bppsa_cell *const cells[CELLS] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};

static int open_device(void **state) {
  (void)state;
  device = test_device(2);
  return 0;
}

static int close_device(void **state) {
  (void)state;
  bppsa_device_destroy(device);
  return 0;
}

static forward_problem problem_of(int64_t seq_len, int64_t hidden, int64_t chunks, int64_t warm_up) {
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.config.seq_len = seq_len;
  p.config.hidden = hidden;
  p.config.batch = 2;
  p.config.forward.chunks = chunks;
  p.config.forward.warm_up = warm_up;
  return p;
}

static void check_states(const forward_problem *p, int64_t l, int64_t count, double tolerance, const double *a, const double *b) {
  for (int64_t i = 0; i < count; ++i) {
    const bool same = a[i] == b[i] || (isnan(a[i]) && isnan(b[i]));
    if (!same && !(isfinite(b[i]) && fabs(a[i] - b[i]) <= tolerance * fmax(1, fabs(b[i])))) {
      fail_msg("seed %d, layer %d, number %d: %.9g, sequentially %.9g", (int)p->seed, (int)l, (int)i, a[i], b[i]);
    }
  }
}

/* Another pass of the same input does the same, and its statistics are its own. */
static void check_again(const forward_problem *p, forward_run *run) {
  const bppsa_forward_stats before = run->stats;
  const bppsa_forward_pause none = {0}; /* a pass that does too much work begins a pause */
  assert_int_equal(bppsa_forward_pause_set(run->model, &none), BPPSA_OK);
  pass_forward(p, run, device);
  const bppsa_forward_stats s = run->stats;
  assert_true(s.speculated && s.path == before.path && s.work == before.work && s.rounds == before.rounds);
  assert_true(s.mended == before.mended && s.reseeded == before.reseeded && s.tails == before.tails && s.gap == before.gap);
}

/* Runs the problem and its sequential twin; states must be equal up to the tolerance, relative for ReLU and for c of a pair, and
 * what is not finite stands in the same places. */
static bppsa_forward_stats check(const forward_problem *p) {
  forward_problem twin = *p;
  twin.config.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  forward_run run = run_forward(p, device), sequential = run_forward(&twin, device);
  check_again(p, &run);
  const double tolerance = run.plan.accept > 1e-9 ? 1e-5 : run.plan.accept;
  for (int64_t l = 0; l < p->config.layers; ++l) {
    check_states(p, l, run.count, tolerance, run.h[l], sequential.h[l]);
    if (p->cell->pair) {
      check_states(p, l, run.count, tolerance, run.c[l], sequential.c[l]);
    }
  }
  const bppsa_forward_stats s = run.stats;
  assert_true(s.speculated && s.passes == 1 && s.possible == p->config.seq_len * p->config.layers);
  assert_true(s.path >= 1 && s.work >= 1 - 1e-12 && s.gap <= fmax(run.plan.accept, run.plan.stop));
  assert_false(sequential.stats.speculated);
  free_run(&run, device);
  free_run(&sequential, device);
  return s;
}

/* Nothing to mend: path and work are those of the plan, a step of verification for each chunk but the first. */
static void test_nothing_to_mend(void **state) {
  (void)state;
  for (int kind = 0; kind < CELLS; ++kind) {
    forward_problem p = problem_of(240, 7, 4, 50);
    p.cell = cells[kind];
    p.scale = .5;
    p.config.input = kind == GRU ? 3 : 1;
    const bppsa_forward_stats s = check(&p);
    assert_int_equal(s.path, 50 + 60 + 1);
    assert_true(fabs(s.work - (240 + 3 * 51.) / 240) < 1e-12);
    assert_int_equal(s.mended + s.rounds + s.tails + s.reseeded, 0);
  }
}

/* Mends that stop early, and further rounds for those that reach the end of their chunk. */
static void test_mends(void **state) {
  (void)state;
  forward_problem p = problem_of(240, 9, 4, 2);
  bppsa_forward_stats s = check(&p);
  assert_int_equal(s.mended, 2 * 3);
  assert_int_equal(s.rounds, 1);
  assert_int_equal(s.tails, 0);
  assert_true(s.path > 2 + 60 + 2 && s.path < 2 + 2 * 60);
  p.config.forward.rounds = 0; /* the tail alone mends, which is no round */
  s = check(&p);
  assert_true(s.mended == 2 * 3 && s.rounds == 0 && s.tails == 2);
  p = problem_of(80, 9, 16, 0); /* chunks of five steps: every mend goes through several of them */
  const bool gives_up = bppsa_device_get_kind(device) == BPPSA_CPU; /* whose rounds cost time */
  p.config.forward.rounds = gives_up ? 3 : 8;                       /* as many as a GPU has */
  s = check(&p);
  assert_true(s.rounds == (gives_up ? 1 : 8) && s.mended >= 2 * 15 && s.tails > 0);
}

/* Two stable states: the guess stays on the ridge, and what is behind the first mend begins anew (test_forward.c). */
static void reseed(bppsa_dtype dtype, int64_t hidden) {
  forward_problem p = problem_of(1000, hidden, 10, 50);
  p.config.batch = 1;
  p.config.dtype = dtype;
  bppsa_model *model = make_forward_model(&p, device);
  for (int64_t i = 0; i < 4; ++i) {
    const bppsa_view *w = &model->parameters[i].value;
    for (int64_t k = 0; k < bppsa_view_count(w); ++k) {
      bppsa_view_set(w, k, i == 1 && k % (hidden + 1) == 0 ? 2 : 0); /* every unit by itself */
    }
  }
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
  double x[1000] = {0}, start[130];
  for (int64_t j = 0; j < hidden; ++j) {
    start[j] = j == hidden - 1 ? .5 : 0;
  }
  void *in = sent(device, dtype, x, 1000), *first = sent(device, dtype, start, hidden);
  const bppsa_view in_view = device_view(device, in, dtype, (int64_t[]){1000, 1, 1}),
                   h0 = device_view(device, first, dtype, (int64_t[]){1, 1, hidden});
  bppsa_view h;
  bppsa_forward_stats s;
  assert_int_equal(bppsa_recurrent_forward_layers(model, &in_view, &h0), BPPSA_OK);
  assert_int_equal(bppsa_forward_stats_of(model, &s), BPPSA_OK);
  assert_int_equal(s.reseeded, 1);
  assert_int_equal(s.mended, 1);
  assert_int_equal(s.rounds, 1);
  assert_int_equal(s.tails, 0);
  assert_int_equal(s.path, (50 + 100) + 100 + (50 + 100) + 1);
  assert_int_equal(bppsa_recurrent_states(model, 0, &h), BPPSA_OK);
  double *states = fetched(device, &h);
  for (int64_t t = 100; t < 1000; ++t) {
    for (int64_t j = 0; j < hidden; ++j) {
      assert_true(fabs(states[t * hidden + j] - (j == hidden - 1 ? 0.957504 : 0)) < 1e-5);
    }
  }
  bppsa_free(states);
  bppsa_memory_free(device, in);
  bppsa_memory_free(device, first);
  bppsa_model_destroy(model);
}

static void test_reseeding(void **state) {
  (void)state;
  reseed(BPPSA_F32, 1);
  reseed(BPPSA_F64, 1);
  reseed(BPPSA_F32, 33);
}

/* Every cell in every type at every width of the kernels, as a first layer whose input is one number and as one behind it, with
 * tolerance 0, which leaves no bit to chance; with far parts of biases, with a NaN in the input. */
static void test_exact(void **state) {
  (void)state;
  static const int64_t hidden[] = {1, 8, 13, 20, 32};
  int64_t tails = 0, mended = 0, anew = 0;
  for (uint64_t i = 0; i < 30; ++i) {
    const uint64_t kind = i < 20 ? i / 5 % 2 : LSTM;
    forward_problem p = problem_of(60 + (int64_t)i, hidden[i % 5], 2 + (int64_t)(i % 6), (int64_t)(i % 4) * 5);
    p.seed = i + 1;
    p.cell = cells[kind];
    p.config.dtype = i < 10 || (i >= 20 && i < 25) ? BPPSA_F32 : BPPSA_F64;
    p.config.layers = 2;
    p.config.batch = 1 + (int64_t)(i % 3);
    p.config.nonlinearity = kind == RNN && i % 3 == 2 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
    p.config.forward.tolerance = 0;
    p.config.forward.rounds = (int64_t)(i % 5);
    p.scale = i % 3 == 2 ? 5 : 1;
    p.from_zero = i % 2 == 1;
    p.far = i % 3 == 1;
    p.spoiled = i % 4 == 3;
    p.spoils[0] = NAN;
    p.places[0] = 40;
    const bppsa_forward_stats s = check(&p);
    tails += s.tails;
    mended += s.mended;
    anew += kind == LSTM ? s.reseeded : 0;
    assert_true(s.gap == 0);
  }
  assert_true(tails > 10 && mended > 40 && anew > 0);
}

/* More chunks than a GPU's block has warps (8), and than its largest cluster has (64): the warps take them in turn, in one block or
 * in several. Every chunk begins from a wrong state, so that rounds go on, samples begin anew, and tails are left. */
static void test_many_chunks(void **state) {
  (void)state;
  static const struct {
    int64_t chunks, length, rounds;
    int cell;
    double scale;
    bool f64;
  } cases[] = {{9, 6, 8, RNN, 1, false},  {17, 3, 2, GRU, 2, false}, {33, 2, 8, LSTM, 3, true}, {70, 3, 8, RNN, 1, false},
               {130, 2, 3, GRU, 1, true}, {70, 2, 1, RNN, 5, false}, {20, 3, 0, RNN, 2, false}};
  static const char *const clusters[] = {"1", "2", "8"};
  int64_t reseeded = 0, tails = 0, rounds = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_forward_stats s[3];
    for (size_t k = 0; k < 3; ++k) {
      forward_problem p = problem_of(cases[i].chunks * cases[i].length, 7, cases[i].chunks, 1);
      p.seed = 80 + i;
      p.cell = cells[cases[i].cell];
      p.config.dtype = cases[i].f64 ? BPPSA_F64 : BPPSA_F32;
      p.config.layers = 1 + (int64_t)(i % 2);
      p.config.batch = 3;
      p.config.forward.tolerance = 0;
      p.config.forward.rounds = cases[i].rounds;
      p.scale = cases[i].scale;
      assert_int_equal(setenv("SIMT_MOST_CLUSTER", clusters[k], 1), 0);
      assert_int_equal(setenv("SIMT_MULTIPROCESSORS", i % 3 == 2 ? "1" : "132", 1),
                       0); /* 1: fewer warps than a block has room for */
      s[k] = check(&p);
      assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
      assert_int_equal(unsetenv("SIMT_MULTIPROCESSORS"), 0);
      assert_true(s[k].path == s[0].path && s[k].work == s[0].work && s[k].rounds == s[0].rounds && s[k].gap == 0);
      assert_true(s[k].mended == s[0].mended && s[k].reseeded == s[0].reseeded && s[k].tails == s[0].tails);
    }
    reseeded += s[0].reseeded;
    tails += s[0].tails;
    rounds = s[0].rounds > rounds ? s[0].rounds : rounds;
  }
  assert_true(reseeded > 3 && tails > 3 && rounds > 2);
}

/* Code for GPUs that have no clusters may run on one that has them: then there are none. */
static void test_old_code(void **state) {
  (void)state;
  assert_int_equal(setenv("SIMT_OLD_CODE", "1", 1), 0);
  assert_int_equal(setenv("SIMT_MULTIPROCESSORS", "132", 1), 0);
  forward_problem p = problem_of(60, 7, 20, 1);
  assert_true(check(&p).mended > 0);
  p = problem_of(24, 70, 4, 2); /* of two blocks a sample, if it had clusters */
  p.cell = &bppsa_gru_cell;
  assert_true(check(&p).mended > 0);
  assert_int_equal(unsetenv("SIMT_MULTIPROCESSORS"), 0);
  assert_int_equal(unsetenv("SIMT_OLD_CODE"), 0);
}

/* Wide layers, H > 32, of one block (64) and of clusters of two (GRU, 128) and four blocks (f64, GRU): as test_exact. With NaN. */
static void test_wide(void **state) {
  (void)state;
  static const struct {
    int64_t hidden;
    int cell;
    bool f64;
    int64_t seq_len, chunks, warm_up, rounds, batch, layers;
    double scale;
    bool relu, nan;
  } cases[] = {{33, RNN, false, 40, 5, 3, 1, 2, 1, 1, false, false}, {64, GRU, false, 30, 4, 0, 3, 1, 1, 1, false, false},
               {40, RNN, true, 24, 6, 2, 0, 1, 2, 5, true, false},   {50, RNN, false, 33, 4, 30, 3, 2, 1, .5, false, false},
               {60, GRU, true, 21, 3, 5, 2, 2, 1, 5, false, true},   {70, GRU, false, 14, 3, 2, 1, 1, 1, 1, false, false},
               {100, GRU, true, 9, 2, 1, 1, 1, 1, 5, false, false},  {50, RNN, true, 120, 3, 0, 3, 1, 1, .2, false, false},
               {34, LSTM, false, 40, 5, 3, 1, 2, 2, 3, false, true}, {40, LSTM, true, 60, 3, 0, 3, 1, 1, .2, false, false},
               {70, LSTM, false, 20, 4, 2, 2, 1, 1, 5, false, false}};
  int64_t mended = 0, tails = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    forward_problem p = problem_of(cases[i].seq_len, cases[i].hidden, cases[i].chunks, cases[i].warm_up);
    p.seed = 40 + i;
    p.cell = cells[cases[i].cell];
    p.config.dtype = cases[i].f64 ? BPPSA_F64 : BPPSA_F32;
    p.config.batch = cases[i].batch;
    p.config.layers = cases[i].layers;
    p.config.nonlinearity = cases[i].relu ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
    p.config.forward.tolerance = 0;
    p.config.forward.rounds = cases[i].rounds;
    p.scale = cases[i].scale;
    p.far = i % 2 != 0;
    p.spoiled = cases[i].nan;
    p.spoils[0] = NAN;
    p.places[0] = 12;
    const bppsa_forward_stats s = check(&p);
    assert_true(s.gap == 0);
    mended += s.mended;
    tails += s.tails;
  }
  assert_true(mended > 15 && tails > 4);
}

/* Their statistics: warm-ups alone, mends that stop early, further rounds, a ReLU's relative tolerance. */
static void test_wide_mends(void **state) {
  (void)state;
  forward_problem p = problem_of(96, 34, 3, 28);
  bppsa_forward_stats s;
  p.scale = .5;
  for (int kind = RNN; kind < CELLS; kind += LSTM) {
    p.cell = cells[kind];
    s = check(&p);
    assert_int_equal(s.path, 28 + 32 + 1);
    assert_int_equal(s.mended + s.rounds + s.tails + s.reseeded, 0);
    assert_true(s.gap > 0);
  }
  p = problem_of(144, 34, 3, 2); /* c reaches as far back as forget gates let it */
  p.cell = &bppsa_lstm_cell;
  p.scale = .5;
  s = check(&p);
  assert_true(s.mended == 2 * 2 && s.rounds == 1 && s.tails == 0 && s.path > 2 + 48 + 2 && s.path < 2 + 2 * 48);
  p = problem_of(144, 34, 3, 2);
  s = check(&p);
  assert_true(s.mended == 2 * 2 && s.rounds == 1 && s.tails == 0 && s.path > 2 + 48 + 2 && s.path < 2 + 2 * 48);
  p.config.dtype = BPPSA_F64;
  p.config.forward.tolerance = 1e-6;
  p.scale = .2;
  s = check(&p);
  assert_true(s.mended == 2 * 2 && s.tails == 0 && s.path < 2 + 2 * 48);
  p = problem_of(40, 34, 8, 0); /* chunks of five steps: every mend goes through several of them */
  s = check(&p);
  assert_true(s.mended > 2 * 8 && s.rounds > 1);
  p = problem_of(60, 34, 3, 12);
  p.config.nonlinearity = BPPSA_NONLINEARITY_RELU;
  (void)check(&p);
}

/* A tolerance that is relative to unbounded states. */
static void test_relu(void **state) {
  (void)state;
  forward_problem p = problem_of(200, 6, 5, 20);
  p.config.nonlinearity = BPPSA_NONLINEARITY_RELU;
  for (p.seed = 1; p.seed <= 3; ++p.seed) {
    (void)check(&p);
  }
}

/* A ReLU network of size H = 1 or 2 with given w_ih [H], w_hh [H][H] and b_ih [H], in f32 with inputs 0 and 1. Chunks begin at the
 * steps 0, 60, 120 and 180, without a warm-up. */
static void check_overflow(int64_t hidden, const double *w_ih, const double *w_hh, const double *b_ih, double spoil) {
  forward_problem p = problem_of(240, hidden, 4, 0);
  p.config.nonlinearity = BPPSA_NONLINEARITY_RELU;
  p.bits = true;
  p.spoiled = 1;
  p.spoils[0] = spoil;
  p.places[0] = 2 * 100; /* step 100 of the first sample */
  bppsa_model *model = make_forward_model(&p, device);
  const double *const values[] = {w_ih, w_hh, b_ih};
  for (int i = 0; i < 4; ++i) {
    const bppsa_view *to = &model->parameters[i].value;
    for (int64_t j = 0; j < bppsa_view_count(to); ++j) {
      bppsa_view_set(to, j, i < 3 ? values[i][j] : 0);
    }
  }
  p.weights = model;
  (void)check(&p);
  bppsa_model_destroy(model);
}

/* The overflow of a state agrees with nothing but itself, although a tolerance relative to infinity would be infinite. */
static void test_overflow(void **state) {
  (void)state;
  /* h doubles, so that it overflows at step 129 or so; guesses that begin at step 120 are still small. */
  check_overflow(1, (double[]){1}, (double[]){2}, (double[]){0}, 1);
  /* One state overflows at step 100 in guess and truth, while the other counts steps: 41 in the guess. */
  check_overflow(2, (double[]){2, 0}, (double[]){0, 0, 0, 1}, (double[]){0, 1}, 3e38);
}

/* Before its first pass a network has no statistics. */
static void test_before_a_pass(void **state) {
  (void)state;
  for (int kind = BPPSA_FORWARD_SEQUENTIAL; kind <= BPPSA_FORWARD_SPECULATIVE; ++kind) {
    forward_problem p = problem_of(60, 5, 6, 3);
    p.config.forward.kind = (bppsa_forward_kind)kind;
    bppsa_model *model = make_forward_model(&p, device);
    bppsa_forward_stats s = {.path = 1};
    assert_int_equal(bppsa_forward_stats_of(model, &s), BPPSA_OK);
    assert_true(!s.speculated && s.passes == 0 && s.path == 0 && s.possible == 0 && s.work == 0);
    bppsa_model_destroy(model);
  }
}

/* The states of unit v, in [T]: h_t = h_{t-1} / 2 + 1 from 0, while unit u is constantly 1000 and all others are 0. */
static double *lonely_states(int64_t hidden, bppsa_dtype dtype, int64_t v, int64_t u, double tolerance, bppsa_forward_stats *s) {
  forward_problem p = problem_of(40, hidden, 4, 2);
  p.config.batch = 1;
  p.config.dtype = dtype;
  p.config.nonlinearity = BPPSA_NONLINEARITY_RELU;
  p.config.forward.tolerance = tolerance;
  bppsa_model *model = make_forward_model(&p, device);
  for (int64_t i = 0; i < 4; ++i) { /* weight_ih, weight_hh, bias_ih, bias_hh */
    const bppsa_view *w = &model->parameters[i].value;
    for (int64_t k = 0; k < bppsa_view_count(w); ++k) {
      bppsa_view_set(w, k, i == 1 && k == v * hidden + v ? .5 : i == 2 && k == v ? 1 : i == 2 && k == u ? 1000 : 0);
    }
  }
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
  double x[40] = {0}, *all, *states = bppsa_calloc(40, sizeof *states);
  void *in = sent(device, dtype, x, 40);
  const bppsa_view in_view = device_view(device, in, dtype, (int64_t[]){40, 1, 1});
  bppsa_view h;
  assert_int_equal(bppsa_recurrent_forward_layers(model, &in_view, NULL), BPPSA_OK);
  assert_int_equal(bppsa_forward_stats_of(model, s), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_states(model, 0, &h), BPPSA_OK);
  all = fetched(device, &h);
  for (int64_t t = 0; t < 40; ++t) {
    states[t] = all[t * hidden + v];
    assert_true(all[t * hidden + u] == 1000);
  }
  bppsa_free(all);
  bppsa_memory_free(device, in);
  bppsa_model_destroy(model);
  return states;
}

/* One unit begins every chunk at another place than the chunk in front ends at; another unit is so large that this is within the
 * tolerance. So every chunk is accepted at its first step, and the gap is that of the one unit: 2^-2 (1 - 2^-10), after two steps
 * from 0 instead of twelve. With tolerance 0 the one unit is mended. */
static void check_lonely_unit(int64_t hidden, int64_t v) {
  for (int wide = 0; wide < 2; ++wide) {
    const bppsa_dtype dtype = wide ? BPPSA_F64 : BPPSA_F32;
    bppsa_forward_stats s;
    bppsa_free(lonely_states(hidden, dtype, v, (v + 19) % hidden, 1e-2, &s));
    assert_int_equal(s.mended + s.rounds + s.tails + s.reseeded, 0);
    assert_true(s.gap == .25 * (1 - 1. / 1024));
    double *states = lonely_states(hidden, dtype, v, (v + 19) % hidden, 0, &s), expected = 0;
    assert_true(s.mended > 0 && s.gap == 0);
    for (int64_t t = 0; t < 40; ++t) {
      expected = wide ? .5 * expected + 1 : (double)(.5F * (float)expected + 1);
      assert_true(states[t] == expected);
    }
    bppsa_free(states);
  }
}

/* Each of 32 units in turn, and some of a wider layer, which looks at states by other means. */
static void test_lonely_unit(void **state) {
  (void)state;
  for (int64_t v = 0; v < 32; ++v) {
    check_lonely_unit(32, v);
  }
  for (int64_t v = 5; v < 64; v += 23) {
    check_lonely_unit(64, v);
  }
}

/* Another h0 of the network and its twin, and a pass of both, whose states must have the same bits. */
static void pass_both(const forward_problem *p, forward_run *run, const forward_problem *sequential, forward_run *twin,
                      uint64_t seed) {
  const forward_problem *const problems[] = {p, sequential};
  forward_run *const runs[] = {run, twin};
  for (int i = 0; i < 2; ++i) {
    const int64_t states = p->config.layers * p->config.batch * p->config.hidden;
    bppsa_free(runs[i]->h0);
    bppsa_memory_free(device, runs[i]->state);
    runs[i]->h0 = uniform(seed, states, 1);
    runs[i]->state = sent(device, p->config.dtype, runs[i]->h0, states);
    pass_forward(problems[i], runs[i], device);
  }
  for (int64_t l = 0; l < p->config.layers; ++l) {
    check_states(p, l, run->count, 0, run->h[l], twin->h[l]);
  }
}

/* Three passes that end in the tail, or on a CPU one, whose work is too much, then a pause, which the state that checkpoints keep
 * can shorten. */
static void pauses(int64_t hidden, int64_t batch, int64_t chunks) {
  enum { PASSES = 7 };
  static const int failures[2][PASSES] = {{1, 2, 3, 3, 3, 3, 4}, {3, 3, 3, 3, 3, 3, 4}},
                   left[2][PASSES] = {{0, 0, 100, 99, 98, 0, 200}, {100, 99, 98, 97, 96, 0, 200}};
  const int cpu = bppsa_device_get_kind(device) == BPPSA_CPU;
  forward_problem p = problem_of(60, hidden, chunks, 3);
  p.scale = 20;
  p.config.batch = batch;
  p.config.forward.rounds = 1;
  p.config.forward.tolerance = 0;
  p.config.layers = 2;
  forward_problem sequential = p;
  sequential.config.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  forward_run run = run_forward(&p, device), twin = run_forward(&sequential, device);
  bppsa_forward_pause pause;
  for (int pass = 0; pass < PASSES; ++pass) {
    const bool speculates = pass < (cpu ? 1 : 3) || pass == PASSES - 1;
    assert_true(run.stats.speculated == speculates);
    assert_int_equal(run.stats.possible, 120);
    assert_true(speculates ? run.stats.tails > 0 : run.stats.path == 120 && run.stats.work == 1);
    assert_int_equal(bppsa_forward_pause_get(run.model, &pause), BPPSA_OK);
    assert_int_equal(pause.failures, failures[cpu][pass]);
    assert_int_equal(pause.left, left[cpu][pass]); /* behind a pause the first failing pass begins one, twice as long */
    if (pass == 4) {
      pause.left = 1;
      assert_int_equal(bppsa_forward_pause_set(run.model, &pause), BPPSA_OK);
    }
    pass_both(&p, &run, &sequential, &twin, 90 + (uint64_t)pass);
  }
  free_run(&run, device);
  free_run(&twin, device);
}

static void test_pauses(void **state) {
  (void)state;
  pauses(5, 2, 6);
  pauses(12, 1, 20); /* of a GPU with clusters, in several blocks for the one sample */
  pauses(36, 2, 6);
}

typedef struct {
  forward_run *run;
  bppsa_view in;
} recorded;

static bppsa_status queue_pass(void *context) {
  const recorded *r = context;
  return bppsa_recurrent_forward_layers(r->run->model, &r->in, NULL);
}

/* A recording replays with the same bits, and its pauses go on. */
static void test_recording(void **state) {
  (void)state;
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    return;
  }
  forward_problem p = problem_of(100, 6, 5, 4);
  p.from_zero = true;
  forward_run run = run_forward(&p, device);
  recorded r = {&run, device_view(device, run.in, BPPSA_F32, (int64_t[]){100, 2, 1})};
  bppsa_graph *graph = NULL;
  bppsa_view h;
  assert_int_equal(bppsa_graph_capture(device, queue_pass, &r, &graph), BPPSA_OK);
  assert_int_equal(bppsa_graph_launch(device, graph), BPPSA_OK);
  assert_int_equal(bppsa_device_wait(device), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_states(run.model, 0, &h), BPPSA_OK);
  double *again = fetched(device, &h);
  assert_memory_equal(again, run.h[0], (size_t)run.count * sizeof *again);
  bppsa_free(again);
  bppsa_graph_destroy(device, graph);
  free_run(&run, device);
}

/* Layers of any width, whose W_hh neither a warp nor a cluster holds: H > 512, and what would be in clusters on a GPU without them;
 * W_hh in caches and, with as much shared memory as an sm_90 has, in shared memory. As test_exact; mends, reseeding, pauses. On
 * another device than the emulated one only H > 512 takes these kernels. */
static void test_any_width(void **state) {
  (void)state;
  static const struct {
    int64_t hidden;
    int cell;
    bool f64;
    int64_t seq_len, chunks, warm_up, rounds, batch, layers;
    double scale;
    bool relu, nan;
  } cases[] = {{513, RNN, false, 12, 3, 2, 1, 1, 1, 1, false, false}, {130, RNN, false, 30, 5, 3, 3, 2, 2, 1, false, true},
               {70, GRU, true, 24, 4, 3, 2, 2, 1, 5, false, false},   {130, RNN, false, 33, 4, 3, 0, 1, 1, 1, true, false},
               {70, GRU, true, 30, 4, 29, 3, 1, 1, .5, false, false}, {130, LSTM, false, 24, 4, 2, 2, 2, 2, 3, false, true},
               {70, LSTM, true, 30, 4, 3, 1, 1, 1, 1, false, false}};
  int64_t mended = 0, tails = 0;
  assert_int_equal(setenv("SIMT_MOST_CLUSTER", "1", 1), 0);
  /* on a CPU products of H 513 are BLAS's, for which tolerance 0 plans the sequential pass */
  for (size_t i = bppsa_device_get_kind(device) == BPPSA_CPU; i < sizeof cases / sizeof *cases; ++i) {
    forward_problem p = problem_of(cases[i].seq_len, cases[i].hidden, cases[i].chunks, cases[i].warm_up);
    p.seed = 60 + i;
    p.cell = cells[cases[i].cell];
    p.config.dtype = cases[i].f64 ? BPPSA_F64 : BPPSA_F32;
    p.config.batch = cases[i].batch;
    p.config.layers = cases[i].layers;
    p.config.nonlinearity = cases[i].relu ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
    p.config.forward.tolerance = 0;
    p.config.forward.rounds = cases[i].rounds;
    p.scale = cases[i].scale;
    p.spoiled = cases[i].nan;
    p.spoils[0] = NAN;
    p.places[0] = 12;
    if (i % 2 == 1) {
      assert_int_equal(setenv("SIMT_MOST_SHARED", "232448", 1), 0);
    }
    const bppsa_forward_stats s = check(&p);
    assert_int_equal(unsetenv("SIMT_MOST_SHARED"), 0);
    assert_true(s.gap == 0);
    mended += s.mended;
    tails += s.tails;
  }
  assert_true(mended > 30 && tails > 2);
  forward_problem p = problem_of(96, 130, 3, 28);
  p.scale = .5;
  bppsa_forward_stats s = check(&p);
  assert_int_equal(s.path, 28 + 32 + 1);
  assert_true(s.mended + s.rounds + s.tails + s.reseeded == 0 && s.gap > 0);
  p = problem_of(96, 130, 3, 2);
  p.scale = .5;
  s = check(&p);
  assert_true(s.mended == 2 * 2 && s.rounds == 1 && s.tails == 0 && s.path > 2 + 32 + 2 && s.path < 2 + 2 * 32);
  p.config.nonlinearity = BPPSA_NONLINEARITY_RELU;
  (void)check(&p);
  reseed(BPPSA_F32, 130);
  pauses(130, 2, 6);
  assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
}

/* ---- where a mend stops ---- */

/* Two chunks of a layer whose units are all alike, each with a weight of 1.2 to itself, so that near a state s a distance changes
 * by the factor 1.2 (1 - s^2) in a step. Inputs lead the units along a course of states. The second chunk begins at 0, and its
 * distance from the course falls at `fast` until a walk first sees it within the tolerance, at one of the steps at which it looks
 * (a CPU at every fourth, a GPU at every eighth); then the course goes on elsewhere. */
enum { HALF = 100, COURSE = 2 * HALF };
static const double own_weight = 1.2;

typedef struct {
  double states[COURSE], x[COURSE];
  int64_t within; /* the steps of the second chunk up to the one that is within the tolerance */
} course;

/* The course stays at `fast`, and behind the step `within` at `slow` for `steps` steps. */
static course make_course(double fast, double slow, int64_t within, int64_t steps) {
  course c = {.within = within};
  for (int64_t t = 0; t < COURSE; ++t) {
    const int64_t step = t - HALF; /* of the second chunk */
    c.states[t] = step > within && step <= within + steps ? slow : fast;
    c.x[t] = atanh(c.states[t]) - own_weight * (t > 0 ? c.states[t - 1] : 0);
  }
  return c;
}

/* Looks for a state `fast` at which the distance that is first seen within the tolerance is about three roundings of 2^-24: less
 * than the tolerance, four, but more than one. */
static course find_course(double slow, int64_t steps) {
  const bool cpu = bppsa_device_get_kind(device) == BPPSA_CPU;
  for (double fast = .7; fast < .8; fast += .0005) {
    const course c = make_course(fast, slow, HALF, 0);
    double guess = 0;
    for (int64_t step = 0; step < HALF; ++step) {
      guess = tanh(own_weight * guess + c.x[HALF + step]);
      const double apart = fabs(guess - fast) * 0x1p24;
      if (step % (cpu ? 4 : 8) == (cpu ? 3 : 0) && apart < 4) {
        if (apart > 2.9 && apart < 3.1) {
          return make_course(fast, slow, step, steps);
        }
        break;
      }
    }
  }
  fail_msg("no course comes within three roundings");
  return (course){0};
}

typedef struct {
  bppsa_forward_stats stats;
  double apart, amplified; /* the largest difference from the sequential pass's states; and the factor along the slow part */
} course_run;

static double *follow(const course *c, int64_t hidden, bppsa_forward_kind kind, bppsa_forward_stats *stats) {
  forward_problem p = problem_of(COURSE, hidden, 2, 0);
  double x[COURSE];
  bppsa_view h;
  p.config.batch = 1;
  p.config.forward.kind = kind;
  bppsa_model *model = make_forward_model(&p, device);
  for (int64_t i = 0; i < 4; ++i) {
    const bppsa_view *w = &model->parameters[i].value;
    for (int64_t k = 0; k < bppsa_view_count(w); ++k) {
      bppsa_view_set(w, k, i == 0 ? 1 : i == 1 && k % (hidden + 1) == 0 ? own_weight : 0);
    }
  }
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
  memcpy(x, c->x, sizeof x);
  void *in = sent(device, BPPSA_F32, x, COURSE);
  const bppsa_view view = device_view(device, in, BPPSA_F32, (int64_t[]){COURSE, 1, 1});
  assert_int_equal(bppsa_recurrent_forward_layers(model, &view, NULL), BPPSA_OK);
  assert_int_equal(bppsa_forward_stats_of(model, stats), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_states(model, 0, &h), BPPSA_OK);
  double *states = fetched(device, &h);
  bppsa_memory_free(device, in);
  bppsa_model_destroy(model);
  return states;
}

static course_run run_course(const course *c, int64_t hidden, double slow, int64_t steps) {
  course_run run = {.amplified = pow(own_weight * (1 - slow * slow), (double)steps)};
  bppsa_forward_stats none;
  double *states = follow(c, hidden, BPPSA_FORWARD_SPECULATIVE, &run.stats),
         *expected = follow(c, hidden, BPPSA_FORWARD_SEQUENTIAL, &none);
  for (int64_t i = 0; i < COURSE * hidden; ++i) {
    run.apart = fmax(run.apart, fabs(states[i] - expected[i]));
  }
  bppsa_free(states);
  bppsa_free(expected);
  return run;
}

/* Widths of a warp, of a block, and of what needs a cluster or, on a GPU without them, the kernels for any width. */
static const struct {
  int64_t hidden;
  bool any;
} course_widths[] = {{3, false}, {40, false}, {130, true}};

/* The distance is within the tolerance when the course comes to an unstable state, near which it becomes 200 times as large. A mend
 * that stopped there would leave errors of 200 times three roundings; no more than one rounding may grow. */
static void test_growth(void **state) {
  (void)state;
  const double slow = .05;
  const course c = find_course(slow, 30);
  for (size_t i = 0; i < sizeof course_widths / sizeof *course_widths; ++i) {
    assert_int_equal(course_widths[i].any ? setenv("SIMT_MOST_CLUSTER", "1", 1) : 0, 0);
    const course_run run = run_course(&c, course_widths[i].hidden, slow, 30);
    assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
    assert_true(run.amplified > 200 && c.within + 30 + 30 < HALF);
    assert_true(run.stats.mended == 1 && run.stats.rounds == 1 && run.stats.tails == 0);
    if (!(run.apart <= 1.5 * 0x1p-24 * run.amplified)) {
      fail_msg("H %d: %g from the sequential states, %g times a rounding", (int)course_widths[i].hidden, run.apart,
               run.apart * 0x1p24);
    }
    assert_true(run.stats.path > HALF + c.within + 30); /* it went through all of the slow part */
  }
}

/* The distance stays at three roundings: the mend stops, but not before it has seen that for some steps. */
static void test_lingering(void **state) {
  (void)state;
  const double slow = .415; /* a factor of 0.993 */
  const course c = find_course(slow, HALF);
  for (size_t i = 0; i < sizeof course_widths / sizeof *course_widths; ++i) {
    assert_int_equal(course_widths[i].any ? setenv("SIMT_MOST_CLUSTER", "1", 1) : 0, 0);
    const course_run run = run_course(&c, course_widths[i].hidden, slow, 0);
    assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
    assert_true(run.stats.mended == 1 && run.stats.tails == 0 && run.stats.gap > 0x1p-24 && run.stats.gap <= 2.4e-7);
    assert_true(run.stats.path > HALF + c.within + 16 && run.stats.path < HALF + c.within + 40);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nothing_to_mend), cmocka_unit_test(test_mends),         cmocka_unit_test(test_reseeding),
      cmocka_unit_test(test_exact),           cmocka_unit_test(test_relu),          cmocka_unit_test(test_overflow),
      cmocka_unit_test(test_lonely_unit),     cmocka_unit_test(test_before_a_pass), cmocka_unit_test(test_pauses),
      cmocka_unit_test(test_recording),       cmocka_unit_test(test_any_width),     cmocka_unit_test(test_wide),
      cmocka_unit_test(test_wide_mends),      cmocka_unit_test(test_growth),        cmocka_unit_test(test_lingering),
      cmocka_unit_test(test_many_chunks),     cmocka_unit_test(test_old_code)};
  return cmocka_run_group_tests(tests, open_device, close_device);
}

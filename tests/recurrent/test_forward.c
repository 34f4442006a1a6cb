/* The parallel forward pass: its states satisfy the recurrence for any weights and inputs, whatever path it took; its plan, its
 * statistics and its pauses. BPPSA_TEST_CONFIGURATIONS: the number of random configurations (100); 2000 take a minute.
 * BPPSA_TEST_RECORD: the path of a JSON document about them (bench/scripts/forward_random.py). (The file is long
 * because plan, statistics and pauses are seen in the same passes.) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/files/json.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/pause.h"
#include "rnn/rnn.h"
#include "tests/recurrent/forward_problem.h"
#include "tests/support/length.h"

static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};

/* ---- random configurations ---- */

static int64_t pick(uint64_t *state, int64_t least, int64_t most) {
  return least + (int64_t)(next_random(state) % (uint64_t)(most - least + 1));
}

static const double out_of_range[] = {NAN, 1e30, -1e30};

/* The backward passes of the gradients that are compared. */
static const struct {
  const char *name;
  bppsa_backward backward;
  bppsa_scan_algorithm algorithm;
} methods[] = {{"bp", BPPSA_BACKWARD_BP, BPPSA_SCAN_AUTO},
               {"linear", BPPSA_BACKWARD_SCAN, BPPSA_SCAN_LINEAR},
               {"blelloch", BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH},
               {"chunked", BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED}};
enum { METHODS = sizeof methods / sizeof methods[0] };

/* An RNN or a GRU, or with `pairs` an LSTM. Sizes have about the same product: T 1 .. 5000, H 1 .. 200, B 1 .. 40. */
static forward_problem random_problem(uint64_t seed, bool pairs) {
  uint64_t state = seed;
  forward_problem p = forward_problem_default();
  const bool gru = pick(&state, 0, 1) == 1;
  bppsa_recurrent_config *c = &p.config;
  p.cell = pairs ? &bppsa_lstm_cell : gru ? &bppsa_gru_cell : &bppsa_rnn_cell;
  c->hidden = pick(&state, 0, 3) > 0 ? pick(&state, 1, 24) : pick(&state, 25, 200);
  c->batch = pick(&state, 0, 2) > 0 ? pick(&state, 1, 4) : pick(&state, 5, 40);
  const int64_t most = 40000000 / (c->hidden * (c->hidden + 20) * c->batch * p.cell->gates);
  c->seq_len = pick(&state, 1, most > 5000 ? 5000 : most < 40 ? 40 : most);
  c->layers = pick(&state, 1, 2);
  c->input = pick(&state, 1, 3);
  c->dtype = pick(&state, 0, 1) == 1 ? BPPSA_F64 : BPPSA_F32;
  c->nonlinearity = p.cell->relu && pick(&state, 0, 3) == 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  c->forward.kind = BPPSA_FORWARD_SPECULATIVE;
  c->forward.chunks = pick(&state, 0, 2) > 0 ? pick(&state, 2, 40) : 0;
  c->forward.warm_up = pick(&state, 0, 2) > 0 ? pick(&state, 0, 60) : -1;
  c->forward.rounds = pick(&state, 0, 1) == 1 ? pick(&state, 0, 10) : -1;
  c->forward.tolerance = (const double[]){-1, -1, 0, 1e-3, 1e-5}[pick(&state, 0, 4)];
  c->method.backward = methods[seed % METHODS].backward;
  c->method.scan.algorithm = methods[seed % METHODS].algorithm;
  p.seed = seed;
  p.scale = pow(10, (double)pick(&state, -4, 4) / 4);
  p.orthogonal = pick(&state, 0, 3) == 0;
  p.from_zero = pick(&state, 0, 1) == 1;
  p.spoiled = pick(&state, 0, 3) == 0 ? pick(&state, 1, 3) : 0;
  for (int64_t i = 0; i < p.spoiled; ++i) {
    p.spoils[i] = out_of_range[pick(&state, 0, 2)];
    p.places[i] = (int64_t)(next_random(&state) >> 1);
  }
  return p;
}

/* What the random configurations went through, so that none of it is left out. */
typedef struct {
  int64_t speculated, untouched, mended, reseeded, tails, not_finite, exact, above_one;
  int64_t layers, spoiled, longest, widest, most_samples;
  double worst;               /* the largest residual over the tolerance, where there is one */
  int64_t gradients[METHODS]; /* networks whose gradients were compared, by method */
  double worst_gradient;      /* the largest residual of a gradient */
} seen;

/* Rows of f(h_{t-1}, x_t) against rows of h_t: the largest difference, relative where states are unbounded. What is not finite must
 * stand where f puts it, and in a row that overflows nothing may differ. c: the rows are c_t, each number counts for itself. */
static double largest_residual(const forward_problem *p, bool c, const double *h, const double *next, int64_t count, seen *s) {
  const int64_t hidden = p->config.hidden;
  const bool relu = p->config.nonlinearity == BPPSA_NONLINEARITY_RELU;
  double worst = 0;
  for (int64_t row = 0; row < count / hidden; ++row) {
    double most = 0, size = 1;
    for (int64_t j = row * hidden; j < (row + 1) * hidden; ++j) {
      const bool same = (isnan(h[j]) && isnan(next[j])) || h[j] == next[j];
      s->not_finite += !isfinite(h[j]);
      size = relu && fabs(next[j]) > size ? fabs(next[j]) : size;
      s->above_one += c && fabs(h[j]) > 1;
      most = same                                    ? most
             : !isfinite(h[j]) || !isfinite(next[j]) ? INFINITY
                                                     : fmax(most, fabs(h[j] - next[j]) / (c ? fmax(1, fabs(next[j])) : 1));
    }
    worst = fmax(worst, most > 0 && (isinf(most) || isinf(size)) ? INFINITY : most / size);
  }
  return worst;
}

static double largest_difference(const double *a, const double *b, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = fmax(most, fabs(a[i] - b[i]));
  }
  return most;
}

static bool same_nans(const double *a, const double *b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (isnan(a[i]) != isnan(b[i])) {
      return false;
    }
  }
  return true;
}

static const char *describe(const forward_problem *p) {
  static char text[300];
  const bppsa_recurrent_config *c = &p->config;
  snprintf(text, sizeof text, "seed %d: %s %s T %d H %d B %d L %d %s, scale %g, chunks %d, warm-up %d, rounds %d, tolerance %g",
           (int)p->seed, p->cell->name, bppsa_nonlinearity_name(c->nonlinearity), (int)c->seq_len, (int)c->hidden, (int)c->batch,
           (int)c->layers, bppsa_dtype_name(c->dtype), p->scale, (int)c->forward.chunks, (int)c->forward.warm_up,
           (int)c->forward.rounds, c->forward.tolerance);
  return text;
}

static void go_back(const forward_run *run, double *seed, const bppsa_recurrent_config *c) {
  void *from = rounded(c->dtype, seed, c->batch * c->hidden);
  const bppsa_view view = bppsa_view_make(from, c->dtype, 2, (int64_t[]){c->batch, c->hidden});
  assert_int_equal(bppsa_recurrent_backward_layers(run->model, &view), BPPSA_OK);
  bppsa_free(from);
}

static bool are_finite(const bppsa_model *model) {
  for (int64_t k = 0; k < model->parameter_count; ++k) {
    const bppsa_view *gradient = &model->parameters[k].gradient;
    for (int64_t i = 0; i < bppsa_view_count(gradient); ++i) {
      if (!isfinite(bppsa_view_get(gradient, i))) {
        return false;
      }
    }
  }
  return true;
}

/* Gradients in f64 by one of the methods from speculative states against those from sequential ones; where the network is so far
 * from chaotic that the states of both passes are as close as rounding leaves them, and gradients do not overflow. */
static void check_gradients(const forward_problem *p, const forward_run *run, const forward_run *reference, seen *s) {
  const bppsa_recurrent_config *c = &p->config;
  double most = 0;
  for (int64_t l = 0; l < c->layers; ++l) {
    most = fmax(most, largest_difference(run->h[l], reference->h[l], run->count));
  }
  if (c->dtype != BPPSA_F64 || p->spoiled > 0 || !(most <= 1e-13)) {
    return;
  }
  double *seed = uniform(p->seed + 79, c->batch * c->hidden, 1);
  go_back(run, seed, c);
  go_back(reference, seed, c);
  const bool finite = are_finite(reference->model);
  for (int64_t k = 0; finite && k < 4 * c->layers; ++k) {
    const bppsa_view *got = &run->model->parameters[k].gradient, *expected = &reference->model->parameters[k].gradient;
    const double found = residual(BPPSA_F64, got->data, expected->data, bppsa_view_count(got), sqrt((double)c->seq_len));
    s->worst_gradient = fmax(s->worst_gradient, found);
    if (!(found < 30)) {
      fail_msg("%s, method %d: gradient %d: residual %g, states %g apart", describe(p), (int)(p->seed % METHODS), (int)k, found,
               most);
    }
  }
  s->gradients[p->seed % METHODS] += finite;
  bppsa_free(seed);
}

/* Every state of a layer follows from the one in front of it. */
static void check_layer(const forward_problem *p, const forward_run *run, int64_t l, const bppsa_device *device, seen *s) {
  const double tolerance = fmax(run->plan.accept, run->plan.stop);
  double *next_c = NULL, *next = one_step_of(p, run, l, device, &next_c);
  for (int half = 0; half < (p->cell->pair ? 2 : 1); ++half) {
    const double worst =
        largest_residual(p, half == 1, half == 0 ? run->h[l] : run->c[l], half == 0 ? next : next_c, run->count, s);
    s->worst = tolerance > 0 ? fmax(s->worst, worst / tolerance) : s->worst;
    if (!(worst <= tolerance)) { /* the step has the same kernels, so its bits */
      fail_msg("%s: layer %d, %s: residual %g, expected at most %g", describe(p), (int)l, half == 0 ? "h" : "c", worst,
               tolerance);
    }
  }
  bppsa_free(next);
  bppsa_free(next_c);
}

static void check_random(const forward_problem *random, const bppsa_device *device, seen *s) {
  const forward_problem p = *random;
  forward_problem sequential = p;
  sequential.config.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  forward_run run = run_forward(&p, device), reference = run_forward(&sequential, device);
  for (int64_t l = 0; l < p.config.layers; ++l) {
    check_layer(&p, &run, l, device, s);
  }
  if (p.config.nonlinearity == BPPSA_NONLINEARITY_TANH) {
    assert_true(same_nans(run.h[0], reference.h[0], run.count));
  }
  if (p.config.forward.tolerance == 0) {
    ++s->exact;
    for (int64_t l = 0; l < p.config.layers; ++l) {
      const size_t bytes = (size_t)run.count * sizeof(double);
      if (memcmp(run.h[l], reference.h[l], bytes) != 0 || (p.cell->pair && memcmp(run.c[l], reference.c[l], bytes) != 0)) {
        fail_msg("%s: layer %d: other bits than the sequential pass", describe(&p), (int)l);
      }
    }
  }
  const bppsa_forward_stats *f = &run.stats;
  assert_true(f->path >= 1 && f->work >= 1 - 1e-9 && f->path <= (int64_t)ceil(f->work * (double)(f->possible * p.config.batch)));
  const bppsa_recurrent_config *c = &p.config;
  s->layers += c->layers;
  s->spoiled += p.spoiled > 0;
  s->longest = c->seq_len > s->longest ? c->seq_len : s->longest;
  s->widest = c->hidden > s->widest ? c->hidden : s->widest;
  s->most_samples = c->batch > s->most_samples ? c->batch : s->most_samples;
  s->speculated += f->speculated;
  s->untouched += f->speculated && f->mended == 0;
  s->mended += f->mended > 0;
  s->reseeded += f->reseeded > 0;
  s->tails += f->tails > 0;
  check_gradients(&p, &run, &reference, s);
  free_run(&run, device);
  free_run(&reference, device);
}

/* Writes what the configurations went through, for records. */
static void record(const char *path, int64_t count, const seen *s) {
  const struct {
    const char *key;
    int64_t value;
  } numbers[] = {{"configurations", count},
                 {"layers", s->layers},
                 {"with_nan_or_1e30", s->spoiled},
                 {"longest", s->longest},
                 {"widest", s->widest},
                 {"most_samples", s->most_samples},
                 {"speculated", s->speculated},
                 {"nothing_mended", s->untouched},
                 {"mended", s->mended},
                 {"reseeded", s->reseeded},
                 {"tails", s->tails},
                 {"states_not_finite", s->not_finite},
                 {"tolerance_0_and_same_bits", s->exact}};
  json_t *object = json_object();
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
    assert_true(bppsa_json_put_integer(object, numbers[i].key, numbers[i].value));
  }
  assert_true(bppsa_json_put_real(object, "largest_residual_over_tolerance", s->worst));
  for (int i = 0; i < METHODS; ++i) {
    char key[40];
    snprintf(key, sizeof key, "gradients_by_%s", methods[i].name);
    assert_true(bppsa_json_put_integer(object, key, s->gradients[i]));
  }
  assert_true(bppsa_json_put_real(object, "largest_residual_of_a_gradient", s->worst_gradient));
  assert_int_equal(json_dump_file(object, path, JSON_INDENT(1)), 0);
  json_decref(object);
}

static void test_random(void **state) {
  (void)state;
  const char *asked = getenv("BPPSA_TEST_CONFIGURATIONS");
  const int64_t count = asked != NULL ? strtoll(asked, NULL, 10) : at_full_length() ? 100 : 50;
  bppsa_device *device = cpu_device(2);
  seen s = {0};
  for (int64_t i = 0; i < count; ++i) {
    const forward_problem p = random_problem(1000 + (uint64_t)i, false);
    check_random(&p, device, &s);
  }
  const char *path = getenv("BPPSA_TEST_RECORD");
  if (path != NULL) {
    record(path, count, &s);
  }
  const int64_t least = count / 30;
  assert_true(s.speculated > count / 2 && s.untouched > least && s.mended > least && s.reseeded > least && s.tails > least &&
              s.not_finite > least && s.exact > least);
  for (int i = 0; i < METHODS; ++i) {
    assert_true(s.gradients[i] > least / 2);
  }
  bppsa_device_destroy(device);
}

/* With far parts of biases, which the cells add themselves, the parallel pass has the sequential one's bits as well. */
static void test_far_biases(void **state) {
  (void)state;
  const bppsa_cell *const kinds[] = {&bppsa_gru_cell, &bppsa_lstm_cell};
  bppsa_device *device = cpu_device(2);
  for (size_t i = 0; i < 4; ++i) {
    forward_problem p = forward_problem_default();
    p.cell = kinds[i % 2];
    p.config.dtype = i < 2 ? BPPSA_F32 : BPPSA_F64;
    p.config.seq_len = 60;
    p.config.hidden = 9;
    p.config.batch = 3;
    p.config.forward.chunks = 4;
    p.config.forward.warm_up = 5;
    p.config.forward.tolerance = 0;
    p.far = true;
    forward_problem sequential = p;
    sequential.config.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
    forward_run run = run_forward(&p, device), reference = run_forward(&sequential, device);
    assert_true(run.stats.speculated && !reference.stats.speculated);
    assert_memory_equal(run.h[0], reference.h[0], (size_t)run.count * sizeof(double));
    free_run(&run, device);
    free_run(&reference, device);
  }
  bppsa_device_destroy(device);
}

/* The same of an LSTM's pairs (h, c), of which both are verified; c has no bound. */
static void test_random_pairs(void **state) {
  (void)state;
  const char *asked = getenv("BPPSA_TEST_CONFIGURATIONS");
  const int64_t count = asked != NULL ? strtoll(asked, NULL, 10) : at_full_length() ? 60 : 50;
  bppsa_device *device = cpu_device(2);
  seen s = {0};
  for (int64_t i = 0; i < count; ++i) {
    const forward_problem p = random_problem(7000 + (uint64_t)i, true);
    check_random(&p, device, &s);
  }
  const int64_t least = count / 30;
  assert_true(s.speculated > count / 2 && s.untouched > least && s.mended > least && s.reseeded > least && s.tails > least &&
              s.not_finite > least && s.exact > least && s.above_one > least);
  bppsa_device_destroy(device);
}

/* ---- networks that forget ---- */

/* Networks with default weights: nothing is mended, states are as good as the sequential pass's. */
static void test_default_weights(void **state) {
  (void)state;
  static const int64_t lengths[] = {1000, 4000}, hidden[] = {20, 64};
  bppsa_device *device = cpu_device(2);
  for (int at = 0; at < 12; ++at) {
    forward_problem p = forward_problem_default();
    p.cell = cells[at % 3];
    p.config.hidden = hidden[at / 3 % 2];
    p.config.seq_len = lengths[at / 6];
    p.config.batch = 3;
    p.bits = true;
    forward_problem sequential = p, exact = p;
    sequential.config.forward.kind = exact.config.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
    exact.config.dtype = BPPSA_F64;
    forward_run run = run_forward(&p, device), slow = run_forward(&sequential, device);
    exact.weights = run.model;
    forward_run reference = run_forward(&exact, device);
    double *next = one_step(&p, &run, 0, device);
    assert_true(run.stats.speculated && run.stats.mended == 0 && run.stats.tails == 0 && run.stats.rounds == 0);
    assert_true(run.stats.gap <= 3e-7 && largest_difference(run.h[0], next, run.count) <= 5e-7);
    assert_true(largest_difference(run.h[0], reference.h[0], run.count) <=
                2 * largest_difference(slow.h[0], reference.h[0], run.count));
    assert_int_equal(run.stats.path, run.plan.warm_up + (p.config.seq_len + run.plan.chunks - 1) / run.plan.chunks + 1);
    assert_int_equal(run.stats.possible, p.config.seq_len);
    assert_int_equal(slow.stats.path, p.config.seq_len);
    assert_true(slow.stats.work == 1 && !slow.stats.speculated && slow.stats.passes == 1);
    bppsa_free(next);
    free_run(&run, device);
    free_run(&slow, device);
    free_run(&reference, device);
  }
  bppsa_device_destroy(device);
}

/* What a pass accepts adds no more than 2e-6 to its error against float64, and 4 times the sequential pass's: networks that forget
 * slowly and mend, and those that forget, none of them chaotic. */
static void test_errors(void **state) {
  (void)state;
  int64_t mended = 0;
  bppsa_device *device = cpu_device(2);
  for (uint64_t i = 0; i < 36; ++i) {
    forward_problem p = forward_problem_default();
    p.cell = i >= 24 ? &bppsa_lstm_cell : i % 2 == 0 ? &bppsa_rnn_cell : &bppsa_gru_cell;
    p.seed = 7 + i;
    p.orthogonal = i % 4 > 1;
    p.config.hidden = i % 3 == 0 ? 64 : 20;
    p.config.batch = 2;
    p.config.forward.warm_up = i % 8 < 4 ? -1 : 10;
    p.bits = i % 3 != 1;
    forward_problem sequential = p, exact = p;
    sequential.config.forward.kind = exact.config.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
    exact.config.dtype = BPPSA_F64;
    forward_run run = run_forward(&p, device), slow = run_forward(&sequential, device);
    exact.weights = run.model;
    forward_run reference = run_forward(&exact, device);
    const double error = largest_difference(run.h[0], reference.h[0], run.count),
                 own = largest_difference(slow.h[0], reference.h[0], run.count);
    assert_true(run.stats.speculated && own < 1e-4);
    if (!(error <= 2e-6 + 4 * own)) {
      fail_msg("%s: error %g, of the sequential pass %g", describe(&p), error, own);
    }
    mended += run.stats.mended > 0;
    free_run(&run, device);
    free_run(&slow, device);
    free_run(&reference, device);
  }
  assert_true(mended >= 12 && mended < 36);
  bppsa_device_destroy(device);
}

/* With a warm-up that is too short mends end early; rounds are few, and the tail has nothing to do. */
static void test_short_warm_up(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.config.batch = 2;
  p.config.forward.warm_up = 4;
  forward_run run = run_forward(&p, device);
  assert_int_equal(run.stats.mended, 2 * (run.plan.chunks - 1));
  assert_true(run.stats.rounds == 1 && run.stats.tails == 0 && run.stats.reseeded == 0);
  assert_true(run.stats.gap > 0 && run.stats.gap <= run.plan.stop); /* every chunk was mended, until it agreed closely */
  assert_true(run.stats.path > run.plan.warm_up + p.config.seq_len / run.plan.chunks + 10 && run.stats.path < 200);
  free_run(&run, device);
  bppsa_device_destroy(device);
}

/* One unit with two stable states. From 0 the guess stays on the ridge between them; the first mended end shows it, and everything
 * behind it begins anew. */
static void test_two_basins(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.config.hidden = p.config.batch = 1;
  p.config.forward.chunks = 10;
  p.config.forward.warm_up = 50;
  bppsa_model *model = make_forward_model(&p, device);
  for (int64_t i = 0; i < 4; ++i) {
    bppsa_view_set(&model->parameters[i].value, 0, i == 1 ? 2 : 0);
  }
  float x[1000] = {0}, start = .5f;
  bppsa_view h, in = bppsa_view_make(x, BPPSA_F32, 3, (int64_t[]){1000, 1, 1}),
                h0 = bppsa_view_make(&start, BPPSA_F32, 3, (int64_t[]){1, 1, 1});
  bppsa_forward_stats s;
  assert_int_equal(bppsa_recurrent_forward_layers(model, &in, &h0), BPPSA_OK);
  assert_int_equal(bppsa_forward_stats_of(model, &s), BPPSA_OK);
  assert_int_equal(s.mended, 1);
  assert_int_equal(s.rounds, 1);
  assert_int_equal(s.reseeded, 1);
  assert_int_equal(s.tails, 0);
  /* guesses, the mend of chunk 1, guesses anew, a step that verifies them */
  assert_int_equal(s.path, (50 + 100) + 100 + (50 + 100) + 1);
  assert_int_equal(bppsa_recurrent_states(model, 0, &h), BPPSA_OK);
  for (int64_t t = 100; t < 1000; ++t) {
    assert_true(fabs(bppsa_view_get(&h, t) - 0.957504) < 1e-5);
  }
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
}

/* ---- networks that do not ---- */

/* Chaos: the path is that of the sequential pass and little more, and so is the work; three such passes are followed by a pause,
 * and so is each one behind a pause, by a longer one. */
static void test_chaos_and_pauses(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.scale = 8;
  p.config.batch = 2;
  p.config.forward.chunks = 16;
  forward_run run = run_forward(&p, device);
  const int64_t length = (p.config.seq_len + run.plan.chunks - 1) / run.plan.chunks;
  bppsa_forward_stats sum = {0};
  for (int pass = 1; pass <= 1120; ++pass) {
    /* one pass shows that they do too much work; 100 passes in between, then 200, then 400 */
    const bool expected = pass == 1 || pass == 102 || pass == 303 || pass == 704 || pass == 1105;
    const bppsa_forward_stats *s = &run.stats;
    assert_true(s->speculated == expected);
    assert_true((double)s->path <= 1.15 * (double)p.config.seq_len + 2 * (double)(run.plan.warm_up + length));
    assert_int_equal(s->tails, expected ? 2 : 0);
    assert_true(s->work < 3.5 && s->rounds <= 1);
    bppsa_forward_stats_add(&sum, s);
    pass_forward(&p, &run, device);
  }
  assert_int_equal(sum.passes, 1120);
  assert_int_equal(sum.tails, 2 * 5);
  assert_true(sum.speculated && sum.work > 1 && sum.work < 1.02 && sum.path > sum.possible && sum.gap == run.stats.gap + sum.gap);
  bppsa_forward_pause pause = {.failures = 2, .left = 1}, found;
  assert_int_equal(bppsa_forward_pause_set(run.model, &pause), BPPSA_OK);
  assert_int_equal(bppsa_forward_pause_get(run.model, &found), BPPSA_OK);
  assert_memory_equal(&found, &pause, sizeof pause);
  pass_forward(&p, &run, device);
  assert_false(run.stats.speculated);
  pass_forward(&p, &run, device);
  assert_true(run.stats.speculated);
  assert_int_equal(bppsa_forward_pause_get(run.model, &found), BPPSA_OK);
  assert_true(found.failures == 3 && found.left == 100);
  free_run(&run, device);
  bppsa_device_destroy(device);
}

/* A unit that forgets by the factor `keeps` a step, T 320 in 16 chunks without warm-ups. Returns what a pass did; its states are
 * those of the sequential pass, *same: in every bit. */
static bppsa_forward_stats forget(double keeps, bppsa_dtype dtype, double tolerance, bool *same) {
  bppsa_device *device = cpu_device(1);
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.config.seq_len = 320;
  p.config.hidden = 1;
  p.config.batch = 2;
  p.config.dtype = dtype;
  p.config.forward.chunks = 16;
  p.config.forward.warm_up = 0;
  p.config.forward.tolerance = tolerance;
  bppsa_model *weights = make_forward_model(&p, device);
  const double values[] = {.002, keeps, .002, 0}; /* states near .002 / (1 - keeps), not 0, from which chunks begin */
  for (int64_t i = 0; i < 4; ++i) {
    bppsa_view_set(&weights->parameters[i].value, 0, values[i]);
  }
  p.weights = weights;
  forward_problem twin = p;
  twin.config.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  forward_run run = run_forward(&p, device), sequential = run_forward(&twin, device);
  for (int64_t i = 0; i < run.count; ++i) {
    assert_true(fabs(run.h[0][i] - sequential.h[0][i]) < 2e-6);
  }
  *same = memcmp(run.h[0], sequential.h[0], (size_t)run.count * sizeof *run.h[0]) == 0;
  const bppsa_forward_stats s = run.stats;
  free_run(&run, device);
  free_run(&sequential, device);
  bppsa_model_destroy(weights);
  bppsa_device_destroy(device);
  return s;
}

/* The rounds end behind the first one if what it changed will outlast them, and only then. A difference that 20 steps make 2^-3
 * times as large is gone within the plan's 8 rounds, and with 2^-2.34 it is gone behind the last of them. With 2^-2.2 the first
 * round expects that it will be, so that all rounds run. With 2^-1.5 it does not. */
static void test_giving_up(void **state) {
  (void)state;
  bool same;
  bppsa_forward_stats s = forget(pow(2, -3. / 20), BPPSA_F32, -1, &same);
  assert_true(s.rounds > 4 && s.rounds < 8 && s.tails == 0);
  s = forget(pow(2, -2.2 / 20), BPPSA_F32, -1, &same);
  assert_int_equal(s.rounds, 8);
  s = forget(pow(2, -2.34 / 20), BPPSA_F32, -1, &same);
  assert_true(s.rounds == 8 && s.tails == 0);
  s = forget(pow(2, -1.5 / 20), BPPSA_F32, -1, &same);
  assert_true(s.rounds == 1 && s.tails == 2 && same);
  assert_int_equal(s.path, 320);
  assert_int_equal(s.mended, 2 * (15 + 14));
  assert_true(fabs(s.work - (1 + 15. / 16 + 14. / 16)) < 1e-12);
  s = forget(pow(2, -5. / 20), BPPSA_F32, 0, &same); /* exact: the distance is that of the type's rounding */
  assert_true(s.rounds > 3 && s.tails == 0 && same);
  s = forget(pow(2, -3. / 20), BPPSA_F64, -1, &same);
  assert_true(s.rounds == 1 && s.tails == 2 && same);
}

/* A sample that fails does not touch the bits of one that does not. */
static void test_not_a_number(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_gru_cell;
  p.config.batch = 2;
  forward_run good = run_forward(&p, device);
  p.spoiled = 1;
  p.spoils[0] = NAN;
  p.places[0] = 2 * 600 + 1; /* step 600 of the second sample */
  forward_run bad = run_forward(&p, device);
  const int64_t hidden = p.config.hidden;
  for (int64_t i = 0; i < good.count; ++i) {
    const bool spoiled = i / hidden % 2 == 1 && i / (2 * hidden) >= 600;
    assert_true(spoiled ? isnan(bad.h[0][i]) : bad.h[0][i] == good.h[0][i]);
  }
  assert_int_equal(bad.stats.tails + good.stats.tails, 0); /* behind the NaN every bit is the same again */
  free_run(&good, device);
  free_run(&bad, device);
  bppsa_device_destroy(device);
}

/* ---- bits ---- */

static void test_threads(void **state) {
  (void)state;
  static const double scales[] = {1, 4, 8};
  for (int i = 0; i < 9; ++i) {
    forward_problem p = forward_problem_default();
    p.cell = cells[i % 3];
    p.scale = scales[i / 3];
    p.config.batch = 3;
    p.config.layers = 2;
    p.config.forward.chunks = 30;
    bppsa_device *one = cpu_device(1), *four = cpu_device(4);
    forward_run first = run_forward(&p, one), second = run_forward(&p, four);
    for (int again = 0; again < 2; ++again) {
      for (int64_t l = 0; l < 2; ++l) {
        assert_memory_equal(first.h[l], second.h[l], (size_t)first.count * sizeof(double));
      }
      assert_memory_equal(&first.stats, &second.stats, sizeof first.stats);
      assert_int_equal(bppsa_forward_pause_set(second.model, &(bppsa_forward_pause){0}), BPPSA_OK); /* it may fail */
      pass_forward(&p, &second, four);
    }
    free_run(&first, one);
    free_run(&second, four);
    bppsa_device_destroy(one);
    bppsa_device_destroy(four);
  }
}

/* A batch smaller than the planned one, which has fewer lanes of as many chunks. */
static void test_smaller_batch(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_gru_cell;
  p.config.batch = 1;
  p.config.forward.chunks = 16;
  forward_run small = run_forward(&p, device);
  p.config.batch = 5;
  forward_run large = run_forward(&p, device);
  const bppsa_view in = device_view(device, small.in, BPPSA_F32, (int64_t[]){1000, 1, 1}),
                   h0 = device_view(device, small.state, BPPSA_F32, (int64_t[]){1, 1, 20});
  bppsa_view h;
  assert_int_equal(bppsa_recurrent_forward_layers(large.model, &in, &h0), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_states(large.model, 0, &h), BPPSA_OK);
  for (int64_t i = 0; i < small.count; ++i) {
    assert_true(bppsa_view_get(&h, i) == small.h[0][i]);
  }
  free_run(&small, device);
  free_run(&large, device);
  bppsa_device_destroy(device);
}

/* ---- gradients ---- */

/* Gradients by every method, in f64, from speculative states against those by BP from sequential ones. */
static void test_gradients(void **state) {
  (void)state;
  static const bppsa_scan_algorithm algorithms[] = {BPPSA_SCAN_AUTO, BPPSA_SCAN_LINEAR, BPPSA_SCAN_BLELLOCH, BPPSA_SCAN_CHUNKED};
  bppsa_device *device = cpu_device(2);
  for (int i = 0; i < 24; ++i) {
    forward_problem p = forward_problem_default();
    bppsa_recurrent_config *c = &p.config;
    p.cell = cells[i % 3];
    p.scale = i / 3 % 2 == 0 ? 1 : 1.5;
    c->dtype = BPPSA_F64;
    c->layers = 2;
    c->batch = 2;
    c->forward.chunks = 7;
    c->forward.tolerance = 1e-15; /* the gradients' rounding is of the order of the default tolerance */
    c->method.backward = i / 6 == 0 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN;
    c->method.scan.algorithm = algorithms[i / 6];
    forward_run run = run_forward(&p, device);
    c->forward.kind = BPPSA_FORWARD_SEQUENTIAL;
    c->method.backward = BPPSA_BACKWARD_BP;
    forward_run reference = run_forward(&p, device);
    double *seed = uniform(9, c->batch * c->hidden, 1);
    go_back(&run, seed, c);
    go_back(&reference, seed, c);
    for (int64_t k = 0; k < 8; ++k) {
      const bppsa_view *got = &run.model->parameters[k].gradient, *expected = &reference.model->parameters[k].gradient;
      assert_true(residual(BPPSA_F64, got->data, expected->data, bppsa_view_count(got), sqrt((double)c->seq_len)) < 30);
    }
    assert_true(run.stats.speculated);
    bppsa_free(seed);
    free_run(&run, device);
    free_run(&reference, device);
  }
  bppsa_device_destroy(device);
}

/* With tolerance 0 the gradients have the sequential pass's bits too: what is saved with a step belongs to the state in front of
 * it, also where the warm-up came from another state and met the same one. */
static void test_exact_gradients(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  forward_problem p = forward_problem_default();
  bppsa_recurrent_config *c = &p.config;
  c->forward.chunks = 100;
  c->forward.tolerance = 0;
  for (int i = 0; i < 10; ++i) {
    const bool large = i >= 8; /* values saved by GRUs and LSTMs take more than BPPSA_STREAM_BYTES */
    p.cell = cells[large ? 1 + i % 2 : 1 + i / 4];
    c->seq_len = large ? 30000 : 1000;
    c->batch = large ? 1 : 8;
    c->forward.warm_up = 20 + i % 4 * 10;
    c->forward.kind = BPPSA_FORWARD_SPECULATIVE;
    forward_run run = run_forward(&p, device);
    c->forward.kind = BPPSA_FORWARD_SEQUENTIAL;
    forward_run reference = run_forward(&p, device);
    double *seed = uniform(9, c->batch * c->hidden, 1);
    go_back(&run, seed, c);
    go_back(&reference, seed, c);
    assert_true(run.stats.speculated && run.stats.gap == 0);
    assert_memory_equal(run.h[0], reference.h[0], (size_t)run.count * sizeof(double));
    for (int64_t k = 0; k < 4; ++k) {
      const bppsa_view *got = &run.model->parameters[k].gradient, *expected = &reference.model->parameters[k].gradient;
      assert_memory_equal(got->data, expected->data, bppsa_view_bytes(got));
    }
    bppsa_free(seed);
    free_run(&run, device);
    free_run(&reference, device);
  }
  bppsa_device_destroy(device);
}

/* ---- plans ---- */

static bppsa_forward_plan plan_of(bppsa_forward_method method, int64_t seq_len, int64_t batch, bppsa_dtype dtype,
                                  bppsa_device_kind device) {
  const bppsa_forward_shape shape = {.seq_len = seq_len,
                                     .batch = batch,
                                     .input = 1,
                                     .hidden = 20,
                                     .gates = 1,
                                     .dtype = dtype,
                                     .device = device,
                                     .multiprocessors = device == BPPSA_CPU ? 0 : 132,
                                     .most_hidden = device == BPPSA_CPU ? 0 : BPPSA_FORWARD_GPU_HIDDEN};
  bppsa_forward_plan plan = {0};
  assert_int_equal(bppsa_forward_plan_make(&method, &shape, &plan), BPPSA_OK);
  return plan;
}

static void test_plans(void **state) {
  (void)state;
  bppsa_forward_method m = bppsa_forward_method_default();
  bppsa_forward_plan p = plan_of(m, 1000, 1, BPPSA_F32, BPPSA_CPU);
  assert_true(!p.speculative && p.chunks == 1 && p.warm_up == 0 && p.rounds == 0 && isinf(p.most_work));
  m.kind = BPPSA_FORWARD_SPECULATIVE;
  p = plan_of(m, 1000, 1, BPPSA_F32, BPPSA_CPU);
  assert_true(p.speculative && p.chunks == 13 && p.warm_up == 40 && p.rounds == 8 && p.accept == 2.4e-7 && p.stop == 2.4e-7);
  assert_true(p.settled == 0x1p-24);
  p = plan_of(m, 1000, 1, BPPSA_F64, BPPSA_CPU);
  assert_true(p.speculative && p.chunks == 4 && p.warm_up == 128 && p.accept == 2e-14 && p.stop == 1e-15);
  assert_true(p.settled == 0x1p-53);
  assert_int_equal(plan_of(m, 100000, 1, BPPSA_F32, BPPSA_CPU).chunks, 97); /* warm-ups are a sixteenth of the work */
  assert_int_equal(plan_of(m, 30000, 16, BPPSA_F32, BPPSA_CUDA).chunks, 132);
  assert_int_equal(plan_of(m, 10000, 16, BPPSA_F32, BPPSA_CUDA).chunks, 79);
  assert_int_equal(plan_of(m, 30000, 1000, BPPSA_F32, BPPSA_CUDA).chunks, 2);
  assert_false(plan_of(m, 1, 1, BPPSA_F32, BPPSA_CPU).speculative);
  m.chunks = 1000;
  m.warm_up = 5000;
  m.rounds = 0;
  m.tolerance = 1e-7;
  p = plan_of(m, 300, 16, BPPSA_F32, BPPSA_CPU);
  assert_true(p.chunks == 300 && p.warm_up == 300 && p.rounds == 0 && p.accept == 1e-7 && p.stop == 1e-7);
  m.tolerance = 1e-8;
  assert_true(plan_of(m, 300, 16, BPPSA_F32, BPPSA_CPU).settled == 1e-8);
  m.rounds = 9;
  assert_int_equal(plan_of(m, 300, 16, BPPSA_F32, BPPSA_CPU).rounds, 9);
  assert_int_equal(plan_of(m, 300, 16, BPPSA_F32, BPPSA_CUDA).rounds, 9);
  m.rounds = 30;
  assert_int_equal(plan_of(m, 300, 16, BPPSA_F32, BPPSA_CUDA).rounds, 24);
  const bppsa_forward_shape wide = {.seq_len = 300,
                                    .batch = 16,
                                    .input = 1,
                                    .hidden = 33,
                                    .gates = 1,
                                    .dtype = BPPSA_F32,
                                    .device = BPPSA_CUDA,
                                    .multiprocessors = 132,
                                    .most_hidden = 512};
  assert_int_equal(bppsa_forward_plan_make(&m, &wide, &p), BPPSA_OK);
  assert_int_equal(p.rounds, 3); /* each is a launch */
  m = bppsa_forward_method_default();
  m.kind = BPPSA_FORWARD_AUTO;
  assert_true(plan_of(m, 1000, 1, BPPSA_F32, BPPSA_CPU).speculative);
  p = plan_of(m, 1000, 16, BPPSA_F32, BPPSA_CPU); /* without a largest work, since chunks do not pay */
  assert_true(!p.speculative && isinf(p.most_work));
  assert_false(plan_of(m, 100, 1, BPPSA_F32, BPPSA_CPU).speculative);
  for (int i = 0; i < 8; ++i) { /* gates gain less, so that warm-ups must be fewer, and next to nothing in a narrow layer */
    const bppsa_forward_shape gates = {.seq_len = i % 2 == 0 ? 1000 : 10000,
                                       .batch = 1,
                                       .input = 1,
                                       .hidden = i / 2 % 2 == 0 ? 63 : 64,
                                       .gates = i < 4 ? 3 : 4,
                                       .dtype = BPPSA_F32,
                                       .device = BPPSA_CPU};
    assert_int_equal(bppsa_forward_plan_make(&m, &gates, &p), BPPSA_OK);
    assert_true(p.speculative == (gates.seq_len == 10000 && gates.hidden == 64) && (!p.speculative || p.most_work == 1.22));
  }
}

/* On a GPU every scheduler has a warp: chunks are shorter than twice their warm-ups where there would be fewer. Rounds reach
 * through half of them. */
static void test_idle_schedulers(void **state) {
  (void)state;
  static const struct {
    int64_t seq_len, batch, chunks, rounds;
    bppsa_dtype dtype;
  } cases[] = {{1000, 16, 33, 16, BPPSA_F32},  {1000, 1, 33, 16, BPPSA_F32},   {1000, 64, 13, 8, BPPSA_F32},
               {10000, 1, 208, 24, BPPSA_F32}, {10000, 16, 79, 24, BPPSA_F32}, {300, 16, 10, 8, BPPSA_F32},
               {1000, 16, 10, 8, BPPSA_F64},   {10, 1, 1, 0, BPPSA_F32}};
  bppsa_forward_method m = bppsa_forward_method_default();
  m.kind = BPPSA_FORWARD_SPECULATIVE;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    const bppsa_forward_plan p = plan_of(m, cases[i].seq_len, cases[i].batch, cases[i].dtype, BPPSA_CUDA);
    assert_int_equal(p.chunks, cases[i].chunks);
    assert_int_equal(p.rounds, cases[i].rounds);
  }
}

/* On a GPU a pass fails by its predicted time: launches cost as much as many steps, so that the longest path that gains something
 * is shorter the shorter a sequence is, and a pass that was asked for may mend a little. */
static void test_longest_paths(void **state) {
  (void)state;
  bppsa_forward_method m = bppsa_forward_method_default();
  char text[BPPSA_FORWARD_TEXT];
  double before = 0, slack = .02; /* where schedulers have more warps, a step takes longer */
  for (int64_t length = 200; length <= 100000; length *= 2) {
    m.kind = BPPSA_FORWARD_AUTO;
    const bppsa_forward_plan p = plan_of(m, length, 16, BPPSA_F32, BPPSA_CUDA);
    assert_true(p.speculative && p.most_path > before - slack && p.most_path < BPPSA_FORWARD_MOST_PATH && isinf(p.most_work));
    before = p.most_path;
    const int64_t most = (int64_t)ceil(p.most_path * (double)length);
    bppsa_forward_stats pass = {.speculated = true, .path = most, .possible = length, .work = 9};
    assert_true(bppsa_forward_fails(&p, &pass));
    pass.path = most - 1;
    assert_false(bppsa_forward_fails(&p, &pass));
    m.kind = BPPSA_FORWARD_SPECULATIVE;
    const bppsa_forward_plan asked = plan_of(m, length, 16, BPPSA_F32, BPPSA_CUDA);
    pass.path = asked.warm_up + length / asked.chunks + 2; /* it mends nothing */
    assert_true(asked.most_path >= p.most_path && !bppsa_forward_fails(&asked, &pass));
    bppsa_forward_method read = bppsa_forward_method_default();
    assert_int_equal(bppsa_forward_plan_read(bppsa_forward_plan_text(&p, text, sizeof text), &read), BPPSA_OK);
    assert_true(read.most_path == p.most_path && read.chunks == p.chunks && read.rounds == p.rounds);
  }
  assert_true(before > .75);
  m.kind = BPPSA_FORWARD_AUTO; /* launches take as long as the steps that are saved */
  assert_false(plan_of(m, 100, 16, BPPSA_F32, BPPSA_CUDA).speculative);
  assert_true(plan_of(m, 1000, 1, BPPSA_F32, BPPSA_CPU).most_path == BPPSA_FORWARD_MOST_PATH);
}

/* Wide layers on a GPU: as many chunks as its registers have room for, and none where the batch fills them. Where registers do not
 * hold W_hh, a block on every second multiprocessor. */
static void test_wide_plans(void **state) {
  (void)state;
  static const struct {
    int64_t hidden, batch, chunks; /* chunks 1: sequential */
  } cases[] = {{32, 16, 132}, {64, 16, 74}, {128, 16, 18}, {256, 16, 4}, {256, 1, 74},
               {512, 1, 18},  {512, 16, 1}, {513, 1, 66},  {513, 16, 4}, {513, 64, 1}};
  bppsa_forward_method m = bppsa_forward_method_default();
  bppsa_forward_plan p;
  m.kind = BPPSA_FORWARD_AUTO;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_forward_shape shape = {.seq_len = 30000,
                                 .batch = cases[i].batch,
                                 .input = 1,
                                 .hidden = cases[i].hidden,
                                 .gates = 1,
                                 .dtype = BPPSA_F32,
                                 .device = BPPSA_CUDA,
                                 .multiprocessors = 132,
                                 .most_hidden = BPPSA_FORWARD_GPU_HIDDEN};
    assert_int_equal(bppsa_forward_plan_make(&m, &shape, &p), BPPSA_OK);
    assert_int_equal(p.chunks, cases[i].chunks);
    assert_true(p.speculative == (cases[i].chunks > 1));
    shape.most_hidden = 32; /* a GPU without clusters */
    assert_int_equal(bppsa_forward_plan_make(&m, &shape, &p), BPPSA_OK);
    assert_int_equal(p.chunks, cases[i].hidden == 32 ? 132 : 66 / cases[i].batch > 1 ? 66 / cases[i].batch : 1);
  }
}

/* With tolerance 0 the states of a network whose weights are read in blocks have the sequential pass's bits too: a row's sums do
 * not depend on the rows beside it. */
static void test_exact_wide(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.config.seq_len = 48;
  p.config.batch = 2;
  p.config.hidden = 520; /* more than 2^18 weights */
  p.config.input = 700;
  p.config.forward.chunks = 4;
  p.config.forward.warm_up = 4;
  p.config.forward.tolerance = 0;
  forward_run found = run_forward(&p, device);
  assert_true(found.plan.speculative && found.stats.mended > 0);
  p.config.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  forward_run exact = run_forward(&p, device);
  assert_true(largest_difference(found.h[0], exact.h[0], found.count) == 0);
  free_run(&found, device);
  free_run(&exact, device);
  bppsa_device_destroy(device);
}

/* A plan with a largest work: three passes that do more are followed by a pause, however short their paths are. */
static void test_most_work(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.config.batch = 1;
  for (int costly = 0; costly < 2; ++costly) {
    p.config.forward.most_work = costly ? 1.1 : 1.6;
    forward_run run = run_forward(&p, device);
    assert_true(run.plan.most_work == p.config.forward.most_work && run.stats.work > 1.1 && run.stats.work < 1.6);
    for (int pass = 1; pass <= 4; ++pass) {
      assert_true(run.stats.speculated == (!costly || pass < 4) && run.stats.tails == 0);
      pass_forward(&p, &run, device);
    }
    free_run(&run, device);
  }
  bppsa_device_destroy(device);
}

/* The text of a plan gives back what a resumed run cannot work out by itself. */
static void test_texts(void **state) {
  (void)state;
  char text[BPPSA_FORWARD_TEXT];
  bppsa_forward_method m = bppsa_forward_method_default(), read = m;
  m.kind = BPPSA_FORWARD_AUTO;
  bppsa_forward_plan p = plan_of(m, 1000, 1, BPPSA_F32, BPPSA_CPU);
  assert_true(p.most_work == 1.72); /* a step of a mend costs three of speculation */
  p.most_work = 2.2;
  assert_string_equal(bppsa_forward_plan_text(&p, text, sizeof text),
                      "speculative, 13 chunks, warm-up 40, 8 rounds, tolerance 2.4e-07, work up to 2.20");
  assert_int_equal(bppsa_forward_plan_read(text, &read), BPPSA_OK);
  assert_true(read.kind == BPPSA_FORWARD_SPECULATIVE && read.most_work == 2.2 && read.warm_up == -1 && read.rounds == 8 &&
              read.chunks == 13 && read.most_path == BPPSA_FORWARD_MOST_PATH);
  read.rounds = -1; /* as of a checkpoint from when a GPU had three rounds */
  assert_int_equal(bppsa_forward_plan_read("speculative, 13 chunks, warm-up 40, 3 rounds, tolerance 2.4e-07", &read), BPPSA_OK);
  assert_true(read.rounds == 3 && isinf(read.most_work));
  assert_int_equal(bppsa_forward_plan_read("speculative, 13 chunks, warm-up 40, 5 rounds, tolerance 2.4e-07", &read), BPPSA_OK);
  assert_int_equal(read.rounds, 3); /* it was given */
  p.most_work = 1.83;
  assert_int_equal(bppsa_forward_plan_read(bppsa_forward_plan_text(&p, text, sizeof text), &read), BPPSA_OK);
  assert_true(read.most_work == 1.83);
  assert_int_equal(bppsa_forward_plan_read("", &read), BPPSA_OK);
  assert_true(read.kind == BPPSA_FORWARD_SEQUENTIAL && read.most_work == 0);
  static const char *const wrong[] = {"chunky, 3 chunks",
                                      "speculative, work up to -1",
                                      "speculative, work up to x",
                                      "speculative, work up to 1.5 or so",
                                      "speculative, work up to nan",
                                      "speculative, work up to inf",
                                      "speculative, path up to x",
                                      "speculative, path up to 0",
                                      "speculative, path up to 0.5 or so",
                                      "speculative, work up to 2.20, path up to 0.5"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    assert_int_equal(bppsa_forward_plan_read(wrong[i], &read), BPPSA_ERR_FORMAT);
    assert_int_equal(read.kind, BPPSA_FORWARD_SEQUENTIAL);
  }
  p = plan_of(m, 1000, 1, BPPSA_F32, BPPSA_CUDA); /* a GPU waits for the path */
  assert_true(isinf(p.most_work));
  assert_int_equal(bppsa_forward_plan_read(bppsa_forward_plan_text(&p, text, sizeof text), &read), BPPSA_OK);
  assert_true(read.kind == BPPSA_FORWARD_SPECULATIVE && isinf(read.most_work) && read.most_path == p.most_path);
  p.most_path = .6;
  p.most_work = 1.5;
  bppsa_forward_method other = bppsa_forward_method_default();
  other.chunks = 7; /* it was given */
  assert_int_equal(bppsa_forward_plan_read(bppsa_forward_plan_text(&p, text, sizeof text), &other), BPPSA_OK);
  assert_true(other.most_path == .6 && other.most_work == 1.5 && other.chunks == 7);
}

/* A speculative pass that was asked for has the bound of work that `auto` has, or a quarter more than its warm-ups take, which a
 * pass that mends nothing never reaches; and its text keeps the bound. */
static void test_work_of_plans(void **state) {
  (void)state;
  bppsa_forward_method m = bppsa_forward_method_default(), read = m;
  m.kind = BPPSA_FORWARD_SPECULATIVE;
  assert_true(plan_of(m, 1000, 1, BPPSA_F32, BPPSA_CPU).most_work == 1.85);
  assert_true(isinf(plan_of(m, 1000, 1, BPPSA_F32, BPPSA_CUDA).most_work));
  for (int64_t length = 50; length <= 200000; length = 3 * length / 2) {
    for (int64_t batch = 1; batch <= 16; batch *= 2) {
      for (int64_t warm_up = -1; warm_up <= 300; warm_up += 43) {
        char text[BPPSA_FORWARD_TEXT];
        m.warm_up = warm_up;
        const bppsa_forward_plan p = plan_of(m, length, batch, warm_up % 2 == 0 ? BPPSA_F32 : BPPSA_F64, BPPSA_CPU);
        const double least = 1 + (double)(p.warm_up * (p.chunks - 1)) / (double)length;
        if (p.speculative) {
          assert_true(p.most_work >= 1.25 * least && p.most_work <= fmax(2.2, 1.25 * least + .01));
          assert_int_equal(bppsa_forward_plan_read(bppsa_forward_plan_text(&p, text, sizeof text), &read), BPPSA_OK);
          assert_true(read.most_work == p.most_work);
        }
      }
    }
  }
}

/* Does the pass fail by its work, so much that it takes twice as long as a sequential one? */
static bool is_costly(const forward_run *run) {
  return run->stats.work > run->plan.most_work + .75;
}

/* W_hh orthogonal, H 64: there are networks whose mends would do several times the work (which ones depends on roundings, and so on
 * the compiler). Rounds end when it is more than chunks pay for; one such pass is followed by a pause. */
static void test_costly_passes(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.config.hidden = 64;
  p.config.batch = 1;
  p.orthogonal = p.bits = true;
  forward_run run = run_forward(&p, device);
  while (!is_costly(&run) && p.seed < 40) {
    free_run(&run, device);
    ++p.seed;
    run = run_forward(&p, device);
  }
  assert_true(is_costly(&run) && run.plan.bounded);
  assert_true(run.stats.rounds == 1 && run.stats.tails == 1 && run.stats.work < run.plan.most_work + .93 + 1.05);
  for (int pass = 1; pass <= 105; ++pass) {
    assert_true(run.stats.speculated == (pass == 1 || pass == 102));
    assert_true(bppsa_forward_fails(&run.plan, &run.stats) == run.stats.speculated);
    pass_forward(&p, &run, device);
  }
  free_run(&run, device);
  bppsa_device_destroy(device);
}

/* Nine tenths of the sequential path is a failure, a step less is none; the third failure in a row begins a pause. */
static void test_pause_rule(void **state) {
  (void)state;
  bppsa_forward_pause pause = {0};
  for (int64_t failures = 1; failures < BPPSA_FORWARD_FAILURES; ++failures) {
    pause = bppsa_forward_pause_end(bppsa_forward_pause_fails(900, 1000), pause);
    assert_true(pause.failures == failures && pause.left == 0);
  }
  bppsa_forward_pause good = bppsa_forward_pause_end(bppsa_forward_pause_fails(899, 1000), pause);
  assert_true(good.failures == 0 && good.left == 0);
  pause = bppsa_forward_pause_end(bppsa_forward_pause_fails(1200, 1000), pause);
  assert_true(pause.failures == BPPSA_FORWARD_FAILURES && pause.left == 100);
  pause.left = 0; /* behind it one failing pass begins the next, which is longer, and a good one ends this */
  pause = bppsa_forward_pause_end(true, pause);
  assert_int_equal(pause.left, 200);
  for (int i = 0; i < 3; ++i) {
    pause.left = 0;
    pause = bppsa_forward_pause_end(true, pause);
    assert_int_equal(pause.left, 400);
  }
  pause = bppsa_forward_pause_end(true, (bppsa_forward_pause){.failures = INT64_MAX}); /* as no pass leaves it */
  assert_true(pause.failures == BPPSA_FORWARD_FAILURES + BPPSA_FORWARD_DOUBLINGS && pause.left == 400);
  good = bppsa_forward_pause_end(false, pause);
  assert_true(good.failures == 0 && good.left == 0);
}

static void test_wrong_requests(void **state) {
  (void)state;
  const bppsa_forward_method wrong[] = {
      {.kind = (bppsa_forward_kind)3}, {.chunks = -1},    {.warm_up = -2},   {.rounds = -2}, {.tolerance = NAN},
      {.tolerance = INFINITY},         {.most_work = -1}, {.most_work = NAN}};
  bppsa_device *device = cpu_device(1);
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    bppsa_recurrent_config c = bppsa_recurrent_config_default();
    bppsa_model *model = NULL;
    c.forward = wrong[i];
    assert_int_equal(bppsa_recurrent_create(&c, &bppsa_rnn_cell, device, &model), BPPSA_ERR_ARGUMENT);
    assert_non_null(strstr(bppsa_last_error(), i == 0 ? "unknown kind 3" : "expected numbers of 0 or more"));
    assert_null(model);
  }
  bppsa_forward_kind kind = BPPSA_FORWARD_AUTO;
  assert_int_equal(bppsa_forward_parse("speculativ", &kind), BPPSA_ERR_FORMAT);
  assert_string_equal(bppsa_last_error(), "forward pass 'speculativ', expected sequential, speculative or auto");
  assert_int_equal(kind, BPPSA_FORWARD_AUTO);
  for (int i = 0; i < 3; ++i) {
    assert_int_equal(bppsa_forward_parse(bppsa_forward_name((bppsa_forward_kind)i), &kind), BPPSA_OK);
    assert_int_equal(kind, i);
  }
  bppsa_device_destroy(device);
}

static void test_out_of_memory(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  forward_problem p = forward_problem_default();
  bppsa_model *model = NULL;
  const int64_t live = bppsa_alloc_live();
  int64_t call = 1;
  for (bppsa_alloc_fail_at(1); bppsa_recurrent_create(&p.config, &bppsa_gru_cell, device, &model) != BPPSA_OK;
       bppsa_alloc_fail_at(++call)) {
    assert_null(model);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  bppsa_alloc_fail_at(1); /* a pass allocates nothing */
  const bppsa_view in = bppsa_view_make(NULL, BPPSA_F32, 3, (int64_t[]){1000, 16, 1});
  static float x[16000];
  bppsa_view given = in;
  given.data = x;
  assert_int_equal(bppsa_recurrent_forward_layers(model, &given, NULL), BPPSA_OK);
  bppsa_alloc_fail_at(0);
  assert_true(call > 10);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random),          cmocka_unit_test(test_random_pairs),     cmocka_unit_test(test_far_biases),
      cmocka_unit_test(test_default_weights), cmocka_unit_test(test_errors),           cmocka_unit_test(test_short_warm_up),
      cmocka_unit_test(test_two_basins),      cmocka_unit_test(test_chaos_and_pauses), cmocka_unit_test(test_giving_up),
      cmocka_unit_test(test_not_a_number),    cmocka_unit_test(test_threads),          cmocka_unit_test(test_smaller_batch),
      cmocka_unit_test(test_gradients),       cmocka_unit_test(test_exact_gradients),  cmocka_unit_test(test_plans),
      cmocka_unit_test(test_exact_wide),      cmocka_unit_test(test_wide_plans),       cmocka_unit_test(test_pause_rule),
      cmocka_unit_test(test_idle_schedulers), cmocka_unit_test(test_longest_paths),    cmocka_unit_test(test_most_work),
      cmocka_unit_test(test_work_of_plans),   cmocka_unit_test(test_costly_passes),    cmocka_unit_test(test_texts),
      cmocka_unit_test(test_wrong_requests),  cmocka_unit_test(test_out_of_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Where the walks that verify and mend a parallel forward pass stop on a GPU, to the bit: a ReLU layer whose numbers are sums of
 * powers of two is computed here too, chunk by chunk, with the rules of recurrent/settle.h. A scale that is too large or too small,
 * a tolerance in another one's place, a stored state of another step or one that is not put back each move a number that is
 * compared: states, the path, how many chunks are mended, the gap. BPPSA_TEST_DEVICE names the GPU; a CPU's walks look at each step
 * and are tested in test_forward.c and test_mends.c. Other layers than ReLU's are those of test_walk_layers_device.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rnn/rnn.h"
#include "tests/recurrent/forward_problem.h"
#include "tests/recurrent/walk_rules.h"

enum { MOST_RING = 31 };

static bppsa_device *device;

/* A ring of units: unit i is gains[i] times what the unit before it was, and the first one, which follows the last, also takes its
 * bias and x_t. One more unit is always `size`, if that is above 0, and the others are 0. */
typedef struct {
  bppsa_dtype dtype;
  int64_t hidden, ring, first; /* H; units of the ring, and the first one's index: they go around H */
  double gains[MOST_RING], bias, size, x[STEPS];
  int64_t warm_up;
  double tolerance;
} walk_case;

/* A case whose ring multiplies once around by `factor`, with an input of zeros and ones. */
static walk_case ring_of(bppsa_dtype dtype, int64_t hidden, int64_t ring, int64_t first, double factor) {
  walk_case w = {.dtype = dtype, .hidden = hidden, .ring = ring, .first = first, .gains = {factor}, .bias = 1, .warm_up = 2};
  for (int64_t i = 1; i < ring; ++i) {
    w.gains[i] = 1;
  }
  uint64_t random = (uint64_t)(hidden + ring);
  for (int64_t t = 0; t < STEPS; ++t) {
    w.x[t] = (double)(next_random(&random) >> 63);
  }
  return w;
}

static int64_t unit(const walk_case *w, int64_t i) {
  return (w->first + i) % w->hidden;
}

static double real_of(const walk_case *w, double x) {
  return w->dtype == BPPSA_F32 ? (double)(float)x : x;
}

/* Step t of the ring. */
static void step(const walk_case *w, int64_t t, double h[MOST_RING]) {
  const double given = real_of(w, w->bias + w->x[t]), first = real_of(w, w->gains[0] * h[w->ring - 1] + given);
  for (int64_t i = w->ring - 1; i > 0; --i) {
    h[i] = w->gains[i] * h[i - 1];
  }
  h[0] = first > 0 ? first : 0;
}

/* What the pass is expected to do. */
typedef struct {
  double h[STEPS][MOST_RING];
  int64_t path, mended;
  double gap;
} expectation;

/* The chunks from W steps early, from 0. */
static void speculate(const walk_case *w, expectation *e) {
  for (int64_t p = 0; p < CHUNKS; ++p) {
    double h[MOST_RING] = {0};
    for (int64_t t = p == 0 ? 0 : p * LENGTH - w->warm_up; t < (p + 1) * LENGTH; ++t) {
      step(w, t, h);
      if (t >= p * LENGTH) {
        memcpy(e->h[t], h, sizeof h);
      }
    }
  }
}

/* How far the new state is from the stored one. */
static double distance(const walk_case *w, const double h[MOST_RING], const double stored[MOST_RING]) {
  double largest = 0;
  for (int64_t i = 0; i < w->ring; ++i) {
    largest = fmax(largest, fabs(real_of(w, h[i] - stored[i])));
  }
  return largest;
}

/* The size of a state that tolerances of a ReLU layer are relative to. */
static double size_of(const walk_case *w, const double h[MOST_RING]) {
  double size = fmax(1, w->size);
  for (int64_t i = 0; i < w->ring; ++i) {
    size = fmax(size, h[i]);
  }
  return size;
}

/* The walk through chunk p from the state in front of it; returns its steps. */
static int64_t walk(const walk_case *w, const bppsa_forward_plan *plan, int64_t p, double h[MOST_RING], expectation *e) {
  static double fresh[LENGTH][MOST_RING];
  distances d;
  for (int64_t i = 0; i < LENGTH; ++i) {
    step(w, p * LENGTH + i, h);
    memcpy(fresh[i], h, sizeof fresh[i]);
    d.apart[i] = distance(w, h, e->h[p * LENGTH + i]);
    d.size[i] = size_of(w, h);
  }
  const int64_t steps = walk_steps(plan, &d);
  memcpy(e->h[p * LENGTH], fresh, (size_t)(steps - 1) * sizeof *fresh); /* where it stops the stored state stays */
  e->gap = fmax(e->gap, d.apart[steps - 1]);
  return steps;
}

static void expect(const walk_case *w, const bppsa_forward_plan *plan, expectation *e) {
  double ends[CHUNKS][MOST_RING];
  int64_t longest = 0;
  *e = (expectation){0};
  speculate(w, e);
  for (int64_t p = 0; p < CHUNKS; ++p) {
    memcpy(ends[p], e->h[(p + 1) * LENGTH - 1], sizeof ends[p]);
  }
  for (int64_t p = 1; p < CHUNKS; ++p) {
    const int64_t steps = walk(w, plan, p, ends[p - 1], e);
    longest = steps > longest ? steps : longest;
    e->mended += steps > 1;
  }
  e->path = w->warm_up + LENGTH + longest;
}

static bppsa_model *make(const walk_case *w) {
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.config.seq_len = STEPS;
  p.config.hidden = w->hidden;
  p.config.batch = 1;
  p.config.dtype = w->dtype;
  p.config.nonlinearity = BPPSA_NONLINEARITY_RELU;
  p.config.forward.chunks = CHUNKS;
  p.config.forward.warm_up = w->warm_up;
  p.config.forward.tolerance = w->tolerance;
  bppsa_model *model = make_forward_model(&p, device);
  for (int64_t i = 0; i < 4; ++i) { /* weight_ih, weight_hh, bias_ih, bias_hh */
    const bppsa_view *to = &model->parameters[i].value;
    for (int64_t k = 0; k < bppsa_view_count(to); ++k) {
      bppsa_view_set(to, k, 0);
    }
  }
  const bppsa_view *w_hh = &model->parameters[1].value, *bias = &model->parameters[2].value;
  for (int64_t i = 0; i < w->ring; ++i) {
    bppsa_view_set(w_hh, unit(w, i) * w->hidden + unit(w, i > 0 ? i - 1 : w->ring - 1), w->gains[i]);
  }
  bppsa_view_set(&model->parameters[0].value, unit(w, 0), 1);
  bppsa_view_set(bias, unit(w, 0), w->bias);
  bppsa_view_set(bias, unit(w, w->ring), w->size);
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
  return model;
}

static void check_states(const walk_case *w, const expectation *e, const bppsa_view *view) {
  double *h = fetched(device, view);
  for (int64_t t = 0; t < STEPS; ++t) {
    for (int64_t i = 0; i < w->ring; ++i) {
      if (h[t * w->hidden + unit(w, i)] != e->h[t][i]) {
        fail_msg("H %d, ring %d, W %d, tolerance %.17g, step %d, unit %d: %.17g, expected %.17g", (int)w->hidden, (int)w->ring,
                 (int)w->warm_up, w->tolerance, (int)t, (int)i, h[t * w->hidden + unit(w, i)], e->h[t][i]);
      }
    }
  }
  bppsa_free(h);
}

/* Returns how many chunks were mended. */
static int64_t check(const walk_case *w) {
  static expectation e;
  bppsa_model *model = make(w);
  double x[STEPS];
  memcpy(x, w->x, sizeof x);
  void *in = sent(device, w->dtype, x, STEPS);
  const bppsa_view in_view = device_view(device, in, w->dtype, (int64_t[]){STEPS, 1, 1});
  bppsa_view h;
  bppsa_forward_stats s;
  assert_int_equal(bppsa_recurrent_forward_layers(model, &in_view, NULL), BPPSA_OK);
  assert_int_equal(bppsa_forward_stats_of(model, &s), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_states(model, 0, &h), BPPSA_OK);
  expect(w, bppsa_forward_plan_of(model), &e);
  check_states(w, &e, &h);
  assert_int_equal(s.rounds, e.mended > 0);
  assert_int_equal(s.tails + s.reseeded, 0);
  assert_int_equal(s.mended, e.mended);
  assert_int_equal(s.path, e.path);
  assert_true(s.gap == e.gap);
  bppsa_memory_free(device, in);
  bppsa_model_destroy(model);
  return e.mended;
}

/* How far the first state of a chunk is from what the chunk in front of it leads to; the chunks' distances differ. */
static double first_distance(const walk_case *w, bool largest) {
  static expectation e;
  speculate(w, &e);
  double found = largest ? 0 : INFINITY;
  for (int64_t p = 1; p < CHUNKS; ++p) {
    double h[MOST_RING];
    memcpy(h, e.h[p * LENGTH - 1], sizeof h);
    step(w, p * LENGTH, h);
    const double apart = distance(w, h, e.h[p * LENGTH]);
    found = largest ? fmax(found, apart) : fmin(found, apart);
  }
  return found;
}

/* A tolerance of the largest distance accepts all chunks, one a little below the smallest accepts none; the distance has both
 * signs. Where the size is a power of 2 and so the tolerance exact, a little is less than a rounding of float. */
static void check_acceptance(bppsa_dtype dtype, int64_t hidden, int64_t first, double factor, double size, int64_t warm_up) {
  walk_case w = ring_of(dtype, hidden, 1, first, factor);
  w.size = size;
  w.warm_up = warm_up;
  w.tolerance = size > 0 ? first_distance(&w, true) / size : first_distance(&w, true) * 1.01;
  assert_int_equal(check(&w), 0);
  w.tolerance = first_distance(&w, false) * (size > 0 ? (1 - 0x1p-40) / size : .99 / 4); /* the states are below 4 */
  assert_int_equal(check(&w), CHUNKS - 1);
}

static void test_acceptance(void **state) {
  (void)state;
  for (int64_t k = 0; k < 24; ++k) {
    const int64_t hidden = k % 3 == 0 ? 32 : k % 3 == 1 ? 7 : 64;
    check_acceptance(k % 2 ? BPPSA_F64 : BPPSA_F32, hidden, 5 * k % hidden, k / 6 % 2 ? -.5 : .5, k / 12 ? 1024 : 0,
                     2 + k / 3 % 2);
  }
}

/* Walks stop by one rounding, or where the distance has stayed small for some steps: rings of several units halve it as seldom as
 * once in so many steps, and tolerances go down until the library's own bounds take their place. */
static void test_stops(void **state) {
  (void)state;
  static const struct {
    bppsa_dtype dtype;
    int64_t hidden, ring;
  } shapes[] = {{BPPSA_F32, 32, 4}, {BPPSA_F32, 20, 6}, {BPPSA_F64, 32, 1}, {BPPSA_F32, 64, 5}, {BPPSA_F64, 40, 2}};
  for (int k = 0; k < 5; ++k) {
    for (int exponent = 6; exponent <= 20; exponent += 2) {
      walk_case w = ring_of(shapes[k].dtype, shapes[k].hidden, shapes[k].ring, shapes[k].hidden - 2, k % 2 ? -.5 : .5);
      w.size = 1024;
      w.tolerance = ldexp(1.01, -exponent - 10);
      (void)check(&w);
    }
  }
}

/* The distance is a pulse that goes through units with gains, behind which nothing is left of it: it can become small, large and
 * small again. apart: of the looks at the steps 8, 16 and 24. Returns where the walks stop. */
static int64_t pulse(bppsa_dtype dtype, int64_t hidden, const double apart[3]) {
  walk_case w = ring_of(dtype, hidden, MOST_RING, 3, 0);
  w.bias = 0;
  w.warm_up = 0;
  w.size = 1024;
  w.tolerance = 1e-4;
  for (int i = 0; i < 3; ++i) {
    w.gains[9 + 8 * i] = apart[i] / (i > 0 ? apart[i - 1] : 1);
  }
  for (int64_t t = 0; t < STEPS; ++t) {
    w.x[t] = (t + 1) % LENGTH == 0;
  }
  static expectation e;
  bppsa_model *model = make(&w);
  expect(&w, bppsa_forward_plan_of(model), &e);
  bppsa_model_destroy(model);
  assert_int_equal(check(&w), CHUNKS - 1);
  return e.path - LENGTH - 1;
}

/* A walk goes on where the distance was far away since it was small, and stops where it has only grown a little, or is at most one
 * rounding. */
static void check_pulses(bppsa_dtype dtype, int64_t hidden) {
  const double stop = dtype == BPPSA_F32 ? 0x1p-12 : 0x1p-40, rounding = dtype == BPPSA_F32 ? 0x1p-14 : 0x1p-43;
  assert_int_equal(pulse(dtype, hidden, (double[]){stop, 0x1p-4, stop}), 32);
  assert_int_equal(pulse(dtype, hidden, (double[]){stop, 2 * stop, stop}), 24);
  assert_int_equal(pulse(dtype, hidden, (double[]){stop, 8 * stop, stop}), 32);
  assert_int_equal(pulse(dtype, hidden, (double[]){2 * stop, stop, stop}), 32);
  assert_int_equal(pulse(dtype, hidden, (double[]){0x1p-4, rounding, stop}), 16);
}

static void test_pulses(void **state) {
  (void)state;
  for (int k = 0; k < 4; ++k) {
    check_pulses(k % 2 ? BPPSA_F64 : BPPSA_F32, k / 2 ? 64 : 32);
  }
}

/* With tolerance 0 equal bits alone end a walk. A ring whose factor is 0 forgets what was before it. */
static void check_equal_bits(bppsa_dtype dtype, int64_t hidden, int64_t first) {
  const walk_case w = ring_of(dtype, hidden, 6, first, 0);
  assert_int_equal(check(&w), CHUNKS - 1);
}

static void test_equal_bits(void **state) {
  (void)state;
  for (int k = 0; k < 4; ++k) {
    check_equal_bits(k % 2 ? BPPSA_F64 : BPPSA_F32, k / 2 ? 64 : 32, 11 + k);
  }
}

/* The kernels for layers of any width, which the emulated GPU takes where a layer needs clusters and it has none. */
static void test_any_width(void **state) {
  (void)state;
  assert_int_equal(setenv("SIMT_MOST_CLUSTER", "1", 1), 0);
  for (int k = 0; k < 2; ++k) {
    const bppsa_dtype dtype = k ? BPPSA_F64 : BPPSA_F32;
    check_acceptance(dtype, 130, 35 + k, .5, 1024, 2);
    check_pulses(dtype, 130);
    check_equal_bits(dtype, 130, 125 + k);
  }
  assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
}

int main(void) {
  const struct CMUnitTest unit_tests[] = {cmocka_unit_test(test_acceptance), cmocka_unit_test(test_stops),
                                          cmocka_unit_test(test_pulses), cmocka_unit_test(test_equal_bits),
                                          cmocka_unit_test(test_any_width)};
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

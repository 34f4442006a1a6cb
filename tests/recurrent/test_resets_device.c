/* Samples that begin anew, on a device: every way in which a device computes passes, beside the processor's BP in float64 with the
 * same resets (test_resets.c holds that against the textbook); segments beside the same segments alone; NaN on both sides of a
 * reset; sequences of passes, and recorded ones. BPPSA_TEST_DEVICE names the device. */
#include "core/compute/graph.h"
#include "recurrent/certify.h"
#include "tests/core/helpers.h"
#include "tests/recurrent/device_problem.h"
#include "tests/support/length.h"

static const way ways[] = {{BPPSA_BACKWARD_BP, BPPSA_SCAN_AUTO, 0},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 3},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 6},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH, 0},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_LINEAR, 0}};
static const double rates[] = {.02, .1, .5, 1};
enum { CELLS = 3, WAYS = sizeof ways / sizeof *ways, RATES = sizeof rates / sizeof *rates };

/* One step and one unit; inputs of size 1, sums within the walks, and layers wider than a warp; more steps than a word of resets
 * has bits. */
static const device_shape shapes[] = {{1, 1, 1, 1, 1, 1, INPUTS | H0},
                                      {40, 3, 2, 1, 20, 1, INPUTS | H0},
                                      {21, 5, 5, 1, 20, 2, LOSS_ALL | INPUTS | H0},
                                      {70, 4, 4, 5, 8, 1, INPUTS | H0},
                                      {13, 3, 3, 1, 7, 3, H0 | BOTH_WAYS},
                                      {34, 4, 3, 2, 32, 2, LOSS_ALL | BOTH_WAYS},
                                      {9, 3, 3, 3, 40, 2, INPUTS | H0},
                                      {31, 4, 4, 3, 9, 2, LOSS_ALL | INPUTS | H0 | BOTH_WAYS | LENGTHS},
                                      {10, 3, 3, 1, 37, 2, LOSS_ALL | INPUTS | H0 | BOTH_WAYS | LENGTHS},
                                      {67, 1, 1, 1, 5, 1, LOSS_ALL | INPUTS | LENGTHS},
                                      {36, 2, 2, 1, 33, 1, LOSS_ALL | INPUTS | H0},
                                      {17, 2, 2, 2, 70, 1, LOSS_ALL | INPUTS | H0}};
enum { SHAPES = sizeof shapes / sizeof *shapes, WIDEST = SHAPES - 1, MOST = 5 };

static problem problem_of(int cell, int s, bppsa_dtype dtype) {
  problem p = shaped_problem(cells[cell], &shapes[s], dtype);
  p.config.resets = true;
  p.config.forward = bppsa_forward_method_default();
  return p;
}

static void use_way(problem *p, const way *w) {
  p->config.method.backward = w->backward;
  p->config.method.scan.algorithm = w->algorithm;
  p->config.method.scan.chunks = w->chunks;
}

/* A mask [T][b] with at least one reset. */
static uint8_t *draw_mask(const problem *p, double rate, uint64_t seed) {
  const int64_t count = p->config.seq_len * p->batch;
  uint8_t *mask = bppsa_calloc(count, 1);
  double *numbers = uniform(seed, count + 1, .5);
  assert_non_null(mask);
  for (int64_t i = 0; i < count; ++i) {
    mask[i] = numbers[i] + .5 < rate;
  }
  mask[(int64_t)((numbers[count] + .5) * (double)count) % count] = 1;
  bppsa_free(numbers);
  return mask;
}

static void make_lengths(int64_t steps, int64_t lengths[MOST]) {
  const int64_t made[MOST] = {steps > 2 ? steps / 2 : 1, steps, 1, steps > 3 ? steps - 1 : 1, steps};
  memcpy(lengths, made, sizeof made);
}

/* ---- beside the processor ---- */

static void check_drawn(int cell, int s, bppsa_dtype dtype, const way *w, bool learned, double rate, uint64_t seed) {
  int64_t lengths[MOST];
  problem p = problem_of(cell, s, dtype);
  p.config.reset_state = learned;
  make_lengths(p.config.seq_len, lengths);
  p.lengths = p.config.lengths ? lengths : NULL;
  make_numbers(&p, seed);
  uint8_t *mask = draw_mask(&p, rate, seed);
  p.resets = mask;
  check_way(&p, w);
  bppsa_free(mask);
  free_numbers(&p);
}

static void check_shape(int cell, int s, bppsa_dtype dtype, const way *w, double rate, uint64_t seed) {
  check_drawn(cell, s, dtype, w, false, rate, seed);
}

static void check_learned(int cell, int s, bppsa_dtype dtype, const way *w, double rate, uint64_t seed) {
  check_drawn(cell, s, dtype, w, true, rate, seed);
}

static void test_ways(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * WIDEST * WAYS * 2; ++k) {
    const int cell = k % CELLS, s = k / CELLS % WIDEST, w = k / CELLS / WIDEST % WAYS, f64 = k / CELLS / WIDEST / WAYS;
    if (is_drawn(10)) {
      check_shape(cell, s, f64 != 0 ? BPPSA_F64 : BPPSA_F32, &ways[w], rates[(cell + s + w) % RATES], (uint64_t)k);
    }
  }
}

static void test_dropout(void **state) {
  (void)state;
  static const int64_t samples[MOST] = {70, 3, 41, 12, 5};
  for (int k = 0; k < CELLS; ++k) {
    problem p = problem_of(k, 2, BPPSA_F64);
    p.config.dropout = .4;
    p.config.dropout_seed = 99;
    p.samples = samples;
    make_numbers(&p, (uint64_t)k);
    uint8_t *mask = draw_mask(&p, .2, 5);
    p.resets = mask;
    check_way(&p, &ways[k]);
    bppsa_free(mask);
    free_numbers(&p);
  }
}

/* ---- bits ---- */

static bppsa_model *open_model(const problem *p) {
  bppsa_model *model = NULL;
  assert_int_equal(create(p, &p->config, device, &model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(model, BPPSA_INIT_ORTHOGONAL, 5), BPPSA_OK);
  draw_reset_state(model);
  return model;
}

static int64_t fetch(const bppsa_view *view, double *to) {
  const int64_t count = bppsa_view_count(view);
  void *copy = bppsa_alloc(bppsa_view_bytes(view));
  bppsa_view from = bppsa_view_make(copy, view->dtype, 1, &count), wide = bppsa_view_make(to, BPPSA_F64, 1, &count);
  assert_int_equal(
      bppsa_memory_get(view->device == BPPSA_CUDA ? device : NULL, copy, view->data, (int64_t)bppsa_view_bytes(view)), BPPSA_OK);
  assert_int_equal(bppsa_view_convert(&from, &wide), BPPSA_OK);
  bppsa_free(copy);
  return count;
}

/* What a forward and a backward pass make: the outputs, the gradients of x and of h0, and those of the parameters, one behind the
 * other; where[i]: the first number of each of these four. */
typedef struct {
  double *numbers;
  int64_t where[5];
} outcome;

static outcome compute(const problem *p, bppsa_model *model) {
  bppsa_view views[3], held[3];
  outcome o = {0};
  pass(p, model, device, &views[0], held);
  assert_int_equal(bppsa_model_pull(model, true), BPPSA_OK);
  assert_int_equal(model->ops->input_gradients(model, &views[1], &views[2]), BPPSA_OK);
  int64_t count = 0;
  for (int i = 0; i < 3; ++i) {
    count += bppsa_view_count(&views[i]);
  }
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    count += bppsa_view_count(&model->parameters[i].gradient);
  }
  o.numbers = bppsa_calloc(count, sizeof *o.numbers);
  for (int i = 0; i < 3; ++i) {
    o.where[i + 1] = o.where[i] + fetch(&views[i], o.numbers + o.where[i]);
  }
  o.where[4] = o.where[3];
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    o.where[4] += fetch(&model->parameters[i].gradient, o.numbers + o.where[4]);
  }
  assert_int_equal(o.where[4], count);
  drop(device, held);
  assert_int_equal(bppsa_model_update_redone(model), BPPSA_OK);
  return o;
}

static void assert_same(const outcome *a, const outcome *b) {
  assert_int_equal(a->where[4], b->where[4]);
  assert_memory_equal(a->numbers, b->numbers, (size_t)a->where[4] * sizeof *a->numbers);
}

/* A mask of zeros has the bits of no mask, and of a network without resets, also behind passes with resets. */
static void test_bits(void **state) {
  (void)state;
  static const uint8_t none[128 * MOST];
  for (int k = 0; k < CELLS * WAYS; ++k) {
    problem p = problem_of(k % CELLS, 1 + k % 2, BPPSA_F32);
    use_way(&p, &ways[k / CELLS]);
    make_numbers(&p, (uint64_t)k);
    uint8_t *mask = draw_mask(&p, .1, (uint64_t)k);
    const uint8_t *const masks[] = {mask, none, NULL};
    bppsa_model *model = open_model(&p);
    outcome found[3];
    for (int m = 0; m < 3; ++m) {
      p.resets = masks[m];
      found[m] = compute(&p, model);
      assert_int_equal(model->redone, 0);
    }
    bppsa_model_destroy(model);
    p.config.resets = false;
    model = open_model(&p);
    const outcome without = compute(&p, model);
    assert_same(&found[1], &without);
    assert_same(&found[2], &without);
    for (int m = 0; m < 3; ++m) {
      bppsa_free(found[m].numbers);
    }
    bppsa_free(without.numbers);
    bppsa_model_destroy(model);
    bppsa_free(mask);
    free_numbers(&p);
  }
}

/* Copies so many steps of sample b, from step `first` on, of an array [T][b][width]. */
static double *take_steps(const double *from, int64_t batch, int64_t width, int64_t b, int64_t first, int64_t steps) {
  double *to = bppsa_calloc(steps * width, sizeof *to);
  for (int64_t t = 0; t < steps; ++t) {
    memcpy(to + t * width, from + ((first + t) * batch + b) * width, (size_t)width * sizeof *to);
  }
  return to;
}

static void assert_steps(const double *found, int64_t batch, int64_t width, int64_t b, int64_t first, int64_t steps,
                         const double *alone) {
  double *own = take_steps(found, batch, width, b, first, steps);
  assert_memory_equal(own, alone, (size_t)(steps * width) * sizeof *own);
  bppsa_free(own);
}

/* A segment of a row has the outputs and the gradients of x of the segment alone, bit for bit. */
static void check_segment(const problem *p, const outcome *all, int64_t b, int64_t first, int64_t steps) {
  problem one = *p;
  const bool anew = p->resets[first * p->batch + b] != 0;
  const int64_t input = p->config.input, classes = p->config.classes, states = p->config.layers;
  one.config.seq_len = steps;
  one.config.batch = one.batch = 1;
  one.config.resets = false;
  one.resets = NULL;
  one.state = !anew;
  one.x = take_steps(p->x, p->batch, input, b, first, steps);
  one.seed = take_steps(p->seed, p->batch, classes, b, first, steps);
  one.h0 = take_steps(p->h0, p->batch, state_size(p), b, 0, states);
  bppsa_model *model = open_model(&one);
  outcome alone = compute(&one, model);
  assert_steps(all->numbers, p->batch, classes, b, first, steps, alone.numbers);
  assert_steps(all->numbers + all->where[1], p->batch, input, b, first, steps, alone.numbers + alone.where[1]);
  bppsa_free(alone.numbers);
  bppsa_model_destroy(model);
  free_numbers(&one);
}

static void test_segments(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 2; ++k) {
    problem p = problem_of(k % CELLS, k / CELLS == 0 ? 2 : 10, BPPSA_F32);
    use_way(&p, &ways[0]);
    make_numbers(&p, (uint64_t)k);
    uint8_t *mask = draw_mask(&p, .15, (uint64_t)k);
    p.resets = mask;
    bppsa_model *model = open_model(&p);
    outcome all = compute(&p, model);
    for (int64_t b = 0; b < p.batch; b += 2) {
      for (int64_t first = 0, end = 1; first < p.config.seq_len; first = end++) {
        while (end < p.config.seq_len && !mask[end * p.batch + b]) {
          ++end;
        }
        check_segment(&p, &all, b, first, end - first);
      }
    }
    bppsa_free(all.numbers);
    bppsa_free(mask);
    bppsa_model_destroy(model);
    free_numbers(&p);
  }
}

/* ---- a learned state from which samples begin anew ---- */

static void test_learned(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * SHAPES * WAYS; ++k) {
    const int cell = k % CELLS, s = k / CELLS % SHAPES, w = k / CELLS / SHAPES;
    if (is_drawn(s == WIDEST ? 20 : 8)) {
      check_learned(cell, s, k % 2 == 0 ? BPPSA_F64 : BPPSA_F32, &ways[w], rates[(cell + s + w) % RATES], (uint64_t)k);
    }
  }
}

/* One network for batches with and without resets and lengths, of several sizes, beside a fresh one for each: nothing of the
 * gradients of an earlier batch is left in that of the state. */
static void test_learned_sequences(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 2; ++k) {
    problem p = problem_of(k % CELLS, 7, k % 2 == 0 ? BPPSA_F32 : BPPSA_F64);
    use_way(&p, &ways[k % WAYS]);
    p.config.reset_state = true;
    bppsa_model *model = open_model(&p);
    for (int step = 0; step < 5; ++step) {
      int64_t lengths[MOST];
      p.batch = 1 + (step * 5 + k) % p.config.batch;
      make_lengths(p.config.seq_len, lengths);
      make_numbers(&p, (uint64_t)(10 * k + step));
      uint8_t *mask = draw_mask(&p, rates[step % RATES], (uint64_t)step);
      p.resets = step % 3 == 1 ? NULL : mask;
      p.lengths = step % 4 == 2 ? lengths : NULL;
      bppsa_model *fresh = open_model(&p);
      outcome found = compute(&p, model), expected = compute(&p, fresh);
      assert_same(&found, &expected);
      for (int64_t i = found.where[3], end = i + bppsa_view_count(&model->parameters[0].value); step % 3 == 1 && i < end; ++i) {
        assert_true(found.numbers[i] == 0);
      }
      bppsa_free(found.numbers);
      bppsa_free(expected.numbers);
      bppsa_model_destroy(fresh);
      bppsa_free(mask);
      free_numbers(&p);
    }
    bppsa_model_destroy(model);
  }
}

/* With a state of zeros a network has the bits of one that learns none. */
static void test_learned_zeros(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * WAYS; ++k) {
    problem p = problem_of(k % CELLS, k % 2 == 0 ? 2 : 3, BPPSA_F32);
    use_way(&p, &ways[k / CELLS]);
    make_numbers(&p, (uint64_t)k);
    uint8_t *mask = draw_mask(&p, .1, (uint64_t)k);
    p.resets = mask;
    bppsa_model *plain = open_model(&p);
    p.config.reset_state = true;
    bppsa_model *learned = open_model(&p);
    const bppsa_view *value = &learned->parameters[0].value;
    const int64_t count = bppsa_view_count(value);
    for (int64_t i = 0; i < count; ++i) {
      bppsa_view_set(value, i, 0);
    }
    assert_int_equal(bppsa_model_push(learned), BPPSA_OK);
    outcome of = compute(&p, learned), without = compute(&p, plain);
    assert_int_equal(of.where[4], without.where[4] + count);
    assert_memory_equal(of.numbers, without.numbers, (size_t)of.where[3] * sizeof(double));
    assert_memory_equal(of.numbers + of.where[3] + count, without.numbers + of.where[3],
                        (size_t)(without.where[4] - of.where[3]) * sizeof(double));
    bppsa_free(of.numbers);
    bppsa_free(without.numbers);
    bppsa_model_destroy(plain);
    bppsa_model_destroy(learned);
    bppsa_free(mask);
    free_numbers(&p);
  }
}

/* ---- NaN ---- */

enum { CUT = 13 };

/* Cuts all samples in front of step CUT, and some elsewhere. NaN (or inf) in x, or in the seed, of a step on one side leaves the
 * other side as it is. */
static void check_side(problem *p, int64_t step, double bad) {
  const bool later = step >= CUT;
  const int64_t of_x = p->batch * p->config.input, of_seed = p->batch * p->config.classes;
  uint8_t *mask = draw_mask(p, .05, (uint64_t)step);
  memset(mask + CUT * p->batch, 1, (size_t)p->batch);
  p->resets = mask;
  bppsa_model *model = open_model(p);
  outcome clean = compute(p, model);
  double *spoiled = later ? p->seed + step * of_seed : p->x + step * of_x;
  const double good = *spoiled;
  *spoiled = bad;
  outcome found = compute(p, model);
  *spoiled = good;
  for (int v = 0; v < 2; ++v) {
    const int64_t width = v == 0 ? of_seed : of_x, first = later ? 0 : CUT, end = later ? CUT : p->config.seq_len;
    assert_memory_equal(found.numbers + found.where[v] + first * width, clean.numbers + clean.where[v] + first * width,
                        (size_t)((end - first) * width) * sizeof(double));
  }
  assert_true(!isfinite(found.numbers[found.where[1] + (later ? step : 0) * of_x]) || !later);
  bppsa_free(clean.numbers);
  bppsa_free(found.numbers);
  bppsa_model_destroy(model);
  bppsa_free(mask);
}

static void test_nan(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * WAYS * 4; ++k) {
    const int shape = k / CELLS / WAYS % 2 == 0 ? 5 : 10;
    problem p = problem_of(k % CELLS, shape, k % 2 == 0 ? BPPSA_F32 : BPPSA_F64);
    use_way(&p, &ways[k / CELLS % WAYS]);
    p.config.bidirectional = false;
    p.config.layers = 1;
    p.config.input_gradients = true;
    const bool pairs =
        k % CELLS == LSTM && ways[k / CELLS % WAYS].chunks == 6; /* whose products of chunks have kernels of their own */
    if (!is_drawn(5) && !pairs) {
      continue;
    }
    p.config.hidden = pairs ? 9 : p.config.hidden;
    p.config.reset_state = k / CELLS % 2 == 1;
    make_numbers(&p, (uint64_t)k);
    const double bad = k / CELLS / WAYS / 2 == 0 ? (double)NAN : (double)INFINITY;
    check_side(&p, CUT, bad);
    check_side(&p, p.config.seq_len - 1 - k % 7, bad);
    check_side(&p, CUT - 1 - k % CUT, bad);
    free_numbers(&p);
  }
}

/* What the loss injects into the last state of an episode is none of the gradient of the state from which the next one begins. */
static void test_injected_nan(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * WAYS * 2; ++k) {
    problem p = problem_of(k % CELLS, k / CELLS / WAYS == 0 ? 2 : 10, k % 2 == 0 ? BPPSA_F32 : BPPSA_F64);
    use_way(&p, &ways[k / CELLS % WAYS]);
    p.config.layers = 1;
    p.config.reset_state = true;
    make_numbers(&p, (uint64_t)k);
    uint8_t *mask = bppsa_calloc(p.config.seq_len * p.batch, 1);
    assert_non_null(mask);
    memset(mask + CUT * p.batch, 1, (size_t)p.batch);
    p.resets = mask;
    bppsa_model *model = open_model(&p);
    const int64_t count = bppsa_view_count(&model->parameters[0].value);
    outcome clean = compute(&p, model);
    p.seed[(CUT - 1) * p.batch * p.config.classes] = k % 3 == 0 ? (double)INFINITY : (double)NAN;
    outcome found = compute(&p, model);
    assert_memory_equal(found.numbers + found.where[3], clean.numbers + clean.where[3], (size_t)count * sizeof(double));
    assert_true(!isfinite(found.numbers[found.where[4] - p.config.classes])); /* the head's bias */
    bppsa_free(clean.numbers);
    bppsa_free(found.numbers);
    bppsa_model_destroy(model);
    bppsa_free(mask);
    free_numbers(&p);
  }
}

/* The same for every step behind the cut, so that some product of products has NaN on its left side and a cut on its right one. */
static void test_joins(void **state) {
  (void)state;
  problem p = problem_of(RNN, 9, BPPSA_F64);
  use_way(&p, &ways[3]);
  p.state = true;
  make_numbers(&p, 6);
  for (int64_t step = CUT; step < 50; ++step) {
    check_side(&p, step, (double)NAN);
  }
  free_numbers(&p);
}

/* What runs where a device has no room for the kernels of wide layers. */
static void test_fallback(void **state) {
  (void)state;
  set_most("SIMT_MOST_CLUSTER", "1");
  for (int k = 0; k < CELLS; ++k) {
    problem p = problem_of(k, WIDEST, k == LSTM ? BPPSA_F64 : BPPSA_F32);
    use_way(&p, &ways[0]);
    make_numbers(&p, (uint64_t)k);
    check_side(&p, CUT - 1, (double)NAN);
    free_numbers(&p);
    check_shape(k, WIDEST, k == LSTM ? BPPSA_F64 : BPPSA_F32, &ways[0], .2, (uint64_t)k);
    check_learned(k, WIDEST, k == LSTM ? BPPSA_F32 : BPPSA_F64, &ways[0], .2, (uint64_t)k);
  }
  set_most("SIMT_MOST_CLUSTER", NULL);
}

/* A sample that begins anew in front of the first step: its h0 is not read, and has the gradient 0. */
static void test_start(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * WAYS; ++k) {
    problem p = problem_of(k % CELLS, k % 2 == 0 ? 6 : 2, BPPSA_F64);
    use_way(&p, &ways[k / CELLS]);
    bppsa_nonfinite where;
    make_numbers(&p, (uint64_t)k);
    uint8_t mask[32 * MOST] = {0, 1};
    for (int64_t i = 0; i < p.config.layers * p.batch * state_size(&p); ++i) {
      p.h0[i] = i / state_size(&p) % p.batch == 1 ? (double)NAN : p.h0[i];
    }
    p.resets = mask;
    bppsa_model *model = open_model(&p);
    bppsa_view logits, held[3];
    pass(&p, model, device, &logits, held);
    assert_false(model->ops->find_nonfinite(model, &where));
    drop(device, held);
    outcome o = compute(&p, model);
    for (int64_t i = o.where[2]; i < o.where[3]; ++i) {
      assert_int_equal(o.numbers[i] == 0, (i - o.where[2]) / state_size(&p) % p.batch == 1);
    }
    bppsa_free(o.numbers);
    bppsa_model_destroy(model);
    free_numbers(&p);
  }
}

/* ---- sequences of passes ---- */

/* One network for batches with and without resets and lengths, of several sizes, beside a fresh one for each. */
static void test_sequences(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 2; ++k) {
    problem p = problem_of(k % CELLS, k / CELLS == 0 ? 7 : 8, BPPSA_F64);
    use_way(&p, &ways[k % WAYS]);
    bppsa_model *model = open_model(&p);
    for (int step = 0; step < (k < CELLS ? 6 : 3); ++step) {
      int64_t lengths[MOST];
      p.batch = 1 + (step * 5 + k) % p.config.batch;
      make_lengths(p.config.seq_len, lengths);
      make_numbers(&p, (uint64_t)(10 * k + step));
      uint8_t *mask = draw_mask(&p, rates[step % RATES], (uint64_t)step);
      p.resets = step % 3 == 2 ? NULL : mask;
      p.lengths = step % 4 == 1 ? lengths : NULL;
      bppsa_model *fresh = open_model(&p);
      outcome found = compute(&p, model), expected = compute(&p, fresh);
      assert_same(&found, &expected);
      bppsa_free(found.numbers);
      bppsa_free(expected.numbers);
      bppsa_model_destroy(fresh);
      bppsa_free(mask);
      free_numbers(&p);
    }
    bppsa_model_destroy(model);
  }
}

/* float64 BP over the same states finds no difference. */
static void test_certificate(void **state) {
  (void)state;
  problem p = problem_of(LSTM, 2, BPPSA_F64);
  bppsa_certificate certificate;
  bppsa_view logits, held[3];
  make_numbers(&p, 4);
  uint8_t *mask = draw_mask(&p, .1, 4);
  p.resets = mask;
  bppsa_model *model = open_model(&p);
  pass(&p, model, device, &logits, held);
  assert_int_equal(bppsa_certify(model, &certificate), BPPSA_OK);
  assert_true(certificate.error < 1e-13);
  drop(device, held);
  bppsa_model_destroy(model);
  bppsa_free(mask);
  free_numbers(&p);
}

typedef struct {
  problem p;
  bppsa_model *model;
  bppsa_view x, seed;
  uint8_t *resets; /* page-locked */
  bppsa_view far;  /* in the device's memory; data NULL: the other ones count */
} recorded;

static bppsa_status queue(void *context) {
  recorded *r = context;
  bppsa_view logits;
  const bppsa_view resets = r->far.data != NULL ? r->far : bppsa_view_make(r->resets, BPPSA_U8, 2, r->x.shape);
  BPPSA_TRY(bppsa_model_forward(r->model, &r->x, NULL, &(bppsa_spans){.resets = &resets}, &logits));
  return r->model->ops->backward(r->model, &r->seed);
}

static outcome look(const recorded *r) {
  outcome o = {.numbers = bppsa_calloc(1 << 12, sizeof(double))};
  assert_int_equal(bppsa_device_wait(device), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(r->model, true), BPPSA_OK);
  for (int64_t i = 0; i < r->model->parameter_count; ++i) {
    o.where[4] += fetch(&r->model->parameters[i].gradient, o.numbers + o.where[4]);
  }
  return o;
}

/* The same mask in the device's memory: bool, and bytes, which are checked. */
static void check_far(recorded *r, const outcome *expected) {
  const int64_t count = r->x.shape[0] * r->x.shape[1];
  r->far = bppsa_view_make(NULL, BPPSA_BOOL, 2, r->x.shape);
  r->far.device = bppsa_device_get_kind(device);
  assert_int_equal(bppsa_memory_alloc(device, count, &r->far.data), BPPSA_OK);
  assert_int_equal(bppsa_memory_put(device, r->far.data, r->resets, count), BPPSA_OK);
  for (int i = 0; i < 2; ++i) {
    assert_int_equal(queue(r), BPPSA_OK);
    outcome found = look(r);
    assert_same(&found, expected);
    bppsa_free(found.numbers);
    r->far.dtype = BPPSA_U8;
  }
  bppsa_memory_free(device, r->far.data);
  r->far.data = NULL;
}

/* A recorded pass goes by the resets that stand in the caller's memory when it is replayed. */
static void test_replay(void **state) {
  (void)state;
  recorded r = {.p = problem_of(GRU, 7, BPPSA_F64)};
  problem *p = &r.p;
  const int64_t x[] = {p->config.seq_len, p->batch, p->config.input}, seed[] = {x[0], x[1], p->config.classes};
  bppsa_graph *graph = NULL;
  make_numbers(p, 3);
  p->config.hidden = 6;
  r.model = open_model(p);
  assert_int_equal(bppsa_memory_alloc_staging(device, x[0] * x[1], (void **)&r.resets), BPPSA_OK);
  r.x = put(device, BPPSA_F64, p->x, 3, x);
  r.seed = put(device, BPPSA_F64, p->seed, 3, seed);
  for (uint64_t step = 0; step < 3; ++step) {
    uint8_t *mask = draw_mask(p, .2, step);
    memcpy(r.resets, mask, (size_t)(x[0] * x[1]));
    assert_int_equal(queue(&r), BPPSA_OK);
    outcome expected = look(&r);
    if (step == 0 && bppsa_device_get_kind(device) == BPPSA_CUDA) {
      assert_int_equal(bppsa_graph_capture(device, queue, &r, &graph), BPPSA_OK);
    }
    assert_int_equal(graph == NULL ? queue(&r) : bppsa_graph_launch(device, graph), BPPSA_OK);
    outcome found = look(&r);
    assert_same(&found, &expected);
    check_far(&r, &expected);
    bppsa_free(found.numbers);
    bppsa_free(expected.numbers);
    bppsa_free(mask);
  }
  bppsa_graph_destroy(device, graph);
  bppsa_memory_free(device, r.x.data);
  bppsa_memory_free(device, r.seed.data);
  bppsa_memory_free_staging(device, r.resets);
  bppsa_model_destroy(r.model);
  free_numbers(p);
}

/* What a device does not compute yet, and values that are neither 0 nor 1. */
static void test_refused(void **state) {
  (void)state;
  problem p = problem_of(GRU, 2, BPPSA_F32);
  uint8_t mask[32 * MOST] = {0};
  const int64_t x[] = {p.config.seq_len, p.batch, p.config.input};
  bppsa_model *model = open_model(&p);
  bppsa_view logits, resets = bppsa_view_make(mask, BPPSA_U8, 2, x);
  make_numbers(&p, 1);
  bppsa_view held = put(device, BPPSA_F32, p.x, 3, x);
  mask[7 * p.batch + 3] = 2;
  assert_error(bppsa_model_forward(model, &held, NULL, &(bppsa_spans){.resets = &resets}, &logits), BPPSA_ERR_ARGUMENT,
               "resets: 2 at step 7 of sample 3 of the batch, expected 0 or 1");
  if (bppsa_device_get_kind(device) == BPPSA_CUDA) { /* the same of a mask that lies on the GPU */
    bppsa_view far = resets;
    far.device = BPPSA_CUDA;
    assert_int_equal(bppsa_memory_alloc(device, x[0] * x[1], &far.data), BPPSA_OK);
    assert_int_equal(bppsa_memory_put(device, far.data, mask, x[0] * x[1]), BPPSA_OK);
    assert_error(bppsa_model_forward(model, &held, NULL, &(bppsa_spans){.resets = &far}, &logits), BPPSA_ERR_ARGUMENT,
                 "resets: 2 at step 7 of sample 3 of the batch, expected 0 or 1");
    bppsa_memory_free(device, far.data);
  }
  bppsa_model_destroy(model);
  bppsa_memory_free(device, held.data);
  free_numbers(&p);
}

int main(void) {
  set_most("SIMT_MOST_SHARED", LARGE_SHARED);
  device = test_device(2);
  host = cpu_device(2);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ways),          cmocka_unit_test(test_dropout),      cmocka_unit_test(test_bits),
      cmocka_unit_test(test_segments),      cmocka_unit_test(test_nan),          cmocka_unit_test(test_joins),
      cmocka_unit_test(test_fallback),      cmocka_unit_test(test_learned),      cmocka_unit_test(test_learned_sequences),
      cmocka_unit_test(test_learned_zeros), cmocka_unit_test(test_injected_nan), cmocka_unit_test(test_start),
      cmocka_unit_test(test_sequences),     cmocka_unit_test(test_certificate),  cmocka_unit_test(test_replay),
      cmocka_unit_test(test_refused)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
  return failed;
}

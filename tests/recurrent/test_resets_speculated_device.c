/* Samples that begin anew, in the speculative passes of a device: random networks beside the processor's sequential pass and BP in
 * float64 with the same resets (test_resets.c holds that against the textbook), what is mended and what is not, NaN on both sides
 * of a reset, sequences of passes. BPPSA_TEST_DEVICE names the device. */
#include <float.h>

#include "recurrent/parallel_backward.h"
#include "tests/recurrent/device_problem.h"
#include "tests/support/dice.h"
#include "tests/support/length.h"

static const double rates[] = {0, .02, .1, .5, 1};
enum { CELLS = 3, RATES = sizeof rates / sizeof *rates, MOST = 3 };

static int open_devices(void **state) {
  (void)state;
  device = test_device(2);
  host = cpu_device(1);
  return 0;
}

static int close_devices(void **state) {
  (void)state;
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
  return 0;
}

/* A mask [T][b]. */
static uint8_t *draw_mask(dice *d, const problem *p, double rate) {
  const int64_t count = p->config.seq_len * p->batch;
  uint8_t *mask = bppsa_calloc(count, 1);
  assert_non_null(mask);
  for (int64_t i = 0; i < count; ++i) {
    mask[i] = (double)roll(d, 0, 9999) < rate * 10000;
  }
  return mask;
}

/* What both passes of a network did. */
typedef struct {
  bppsa_forward_stats forward;
  bppsa_backward_stats backward;
} done;

/* A network on a device, and the processor's in float64 with the same weights. */
typedef struct {
  problem p;
  bppsa_model *model;
} pair;

/* Both passes speculate, and accept no more than roundings. W_hh is the drawn one times `scale`. */
static pair open_pair(const problem *p, double scale) {
  pair n = {.p = *p};
  bppsa_recurrent_config exact = p->config;
  exact.dtype = BPPSA_F64;
  exact.method.backward = BPPSA_BACKWARD_BP;
  exact.forward = bppsa_forward_method_default();
  if (create(p, &p->config, device, &n.model) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  assert_int_equal(create(p, &exact, host, &n.p.reference), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(n.model, p->init, (uint64_t)p->config.seq_len), BPPSA_OK);
  for (int64_t i = 0; i < n.model->parameter_count; ++i) {
    const bppsa_view *w = &n.model->parameters[i].value;
    for (int64_t j = 0; strstr(n.model->parameters[i].name, "weight_hh") != NULL && j < bppsa_view_count(w); ++j) {
      bppsa_view_set(w, j, scale * bppsa_view_get(w, j));
    }
  }
  draw_reset_state(n.model);
  share_weights(&n.p, n.model);
  return n;
}

static void close_pair(pair *n) {
  bppsa_model_destroy(n->model);
  bppsa_model_destroy(n->p.reference);
}

/* Compares the gradients of all parameters. What a pass drops is a rounding of the δ that are summed to them; in some sums most of
 * these cancel. So errors are measured by the largest gradient. */
static void check_parameters(const pair *n) {
  const bool single = n->p.config.dtype == BPPSA_F32;
  const bppsa_parameter *of = n->model->parameters, *expected = n->p.reference->parameters;
  double largest = 0;
  for (int64_t i = 0; i < n->model->parameter_count; ++i) {
    for (int64_t j = 0; j < bppsa_view_count(&of[i].gradient); ++j) {
      largest = fmax(largest, fabs(bppsa_view_get(&expected[i].gradient, j)));
    }
  }
  const double most = 30 * (single ? (double)FLT_EPSILON : DBL_EPSILON) * sqrt((double)n->p.config.seq_len) * largest;
  for (int64_t i = 0; i < n->model->parameter_count; ++i) {
    for (int64_t j = 0; j < bppsa_view_count(&of[i].gradient); ++j) {
      const double a = bppsa_view_get(&of[i].gradient, j), b = bppsa_view_get(&expected[i].gradient, j);
      if (!(fabs(a - b) <= most)) {
        fail_msg("%s, H %d, T %d: %s[%d] is %g, expected %g, the largest gradient is %g", n->p.cell->name,
                 (int)n->p.config.hidden, (int)n->p.config.seq_len, of[i].name, (int)j, a, b, largest);
      }
    }
  }
}

/* A pass of both networks with a mask, or NULL; the results are compared, the gradient of a learned reset state too. */
static done pass_both(pair *n, const uint8_t *mask) {
  static const way speculative = {.backward = BPPSA_BACKWARD_SPECULATIVE};
  bppsa_view logits, expected_logits, held[3], expected_held[3], got[2], expected[2];
  done d;
  n->p.resets = mask;
  pass(&n->p, n->p.reference, host, &expected_logits, expected_held);
  pass(&n->p, n->model, device, &logits, held);
  check(&n->p, &speculative, "logits", &logits, expected_logits.data);
  for (int64_t l = 0; l < n->p.config.layers; ++l) {
    assert_int_equal(bppsa_recurrent_states(n->model, l, &got[0]), BPPSA_OK);
    assert_int_equal(bppsa_recurrent_states(n->p.reference, l, &expected[0]), BPPSA_OK);
    check(&n->p, &speculative, "states", &got[0], expected[0].data);
  }
  assert_int_equal(bppsa_model_pull(n->model, true), BPPSA_OK);
  check_parameters(n);
  if (n->p.config.input_gradients) {
    assert_int_equal(n->model->ops->input_gradients(n->model, &got[0], &got[1]), BPPSA_OK);
    assert_int_equal(n->p.reference->ops->input_gradients(n->p.reference, &expected[0], &expected[1]), BPPSA_OK);
    check(&n->p, &speculative, "gradient of x", &got[0], expected[0].data);
    check(&n->p, &speculative, "gradient of h0", &got[1], expected[1].data);
  }
  assert_int_equal(bppsa_forward_stats_of(n->model, &d.forward), BPPSA_OK);
  assert_int_equal(bppsa_backward_stats_of(n->model, &d.backward), BPPSA_OK);
  drop(device, held);
  drop(host, expected_held);
  return d;
}

static problem problem_of(int cell, bppsa_dtype dtype, int64_t steps, int64_t batch, int64_t hidden) {
  problem p = {.config = bppsa_recurrent_config_default(), .cell = cells[cell], .batch = batch, .init = BPPSA_INIT_ORTHOGONAL};
  p.config.seq_len = steps;
  p.config.batch = batch;
  p.config.hidden = hidden;
  p.config.classes = 3;
  p.config.dtype = dtype;
  p.config.resets = true;
  p.config.forward = bppsa_forward_method_default();
  p.config.method.backward = BPPSA_BACKWARD_SPECULATIVE;
  return p;
}

static void speculate(problem *p, int64_t chunks, int64_t warm_up) {
  const double rounding = p->config.dtype == BPPSA_F32 ? 0x1p-24 : 0x1p-53;
  p->config.speculation.chunks = p->config.forward.chunks = chunks;
  p->config.speculation.warm_up = p->config.forward.warm_up = warm_up;
  p->config.speculation.tolerance = rounding;
  p->config.forward.kind = BPPSA_FORWARD_SPECULATIVE;
  p->config.forward.tolerance = 0;
}

/* ---- random networks ---- */

/* What the passes of many networks did. */
typedef struct {
  int64_t speculated, mended, tails, reseeded, back_speculated, back_mended, back_rounds, given_up;
} counts;

static void count(counts *c, const done *d) {
  c->speculated += d->forward.speculated;
  c->mended += d->forward.mended;
  c->tails += d->forward.tails;
  c->reseeded += d->forward.reseeded;
  c->back_speculated += d->backward.speculated;
  c->back_mended += d->backward.mended;
  c->back_rounds += d->backward.rounds > 1;
  c->given_up += d->backward.given_up;
}

static problem draw_problem(dice *d, const int64_t *widths, int64_t count_of_widths, int64_t most_steps) {
  /* one by one: compilers evaluate arguments in orders of their own */
  const int64_t width = widths[roll(d, 0, count_of_widths - 1)], batch = roll(d, 1, MOST), steps = roll(d, 8, most_steps);
  const bppsa_dtype dtype = roll(d, 0, 1) == 0 ? BPPSA_F32 : BPPSA_F64;
  problem p = problem_of((int)roll(d, 0, CELLS - 1), dtype, steps, batch, width);
  p.config.input = roll(d, 1, 2);
  p.config.layers = roll(d, 1, 2);
  p.config.bidirectional = roll(d, 0, 4) == 0;
  p.config.loss_all = roll(d, 0, 2) > 0;
  p.config.input_gradients = roll(d, 0, 2) > 0;
  p.config.lengths = roll(d, 0, 3) == 0;
  p.config.nonlinearity = p.cell == &bppsa_rnn_cell && roll(d, 0, 3) == 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  p.state = roll(d, 0, 1) == 0;
  const int64_t warm_up = roll(d, 0, 7);
  speculate(&p, roll(d, 2, 5), warm_up);
  p.config.forward.rounds = roll(d, -1, 1);
  p.config.forward = p.config.lengths ? bppsa_forward_method_default() : p.config.forward; /* sequential */
  return p;
}

/* Passes with two masks of one rate, and without one, on one network. bp: the backward pass is BP. */
static void check_random(uint64_t seed, const int64_t *widths, int64_t count_of_widths, int64_t most_steps, bool bp, counts *c) {
  dice d = {.seed = seed};
  problem p = draw_problem(&d, widths, count_of_widths, most_steps);
  p.config.method.backward = bp ? BPPSA_BACKWARD_BP : p.config.method.backward;
  p.config.reset_state = seed % 3 != 0;
  int64_t lengths[MOST];
  for (int64_t b = 0; b < p.batch; ++b) {
    lengths[b] = roll(&d, 1, p.config.seq_len);
  }
  p.lengths = p.config.lengths ? lengths : NULL;
  make_numbers(&p, seed + 9);
  const double scale = pow(10, (double)roll(&d, -6, 1) / 10), rate = rates[seed % RATES];
  uint8_t *first = draw_mask(&d, &p, rate), *second = draw_mask(&d, &p, rate);
  pair n = open_pair(&p, scale);
  const uint8_t *const masks[] = {first, second, NULL};
  for (size_t i = 0; i < sizeof masks / sizeof *masks; ++i) {
    const done of = pass_both(&n, masks[i]);
    if (masks[i] != NULL) {
      count(c, &of);
    }
    if (masks[i] != NULL && rate == 1) {
      assert_true(of.forward.mended == 0 && of.forward.tails == 0 && of.backward.mended == 0 && !of.backward.given_up);
    }
  }
  close_pair(&n);
  bppsa_free(first);
  bppsa_free(second);
  free_numbers(&p);
}

static void test_random(void **state) {
  (void)state;
  static const int64_t widths[] = {1, 5, 8, 13, 20, 27, 32};
  counts c = {0};
  const uint64_t networks = at_full_length() ? 300 : 25;
  for (uint64_t seed = 1; seed <= networks; ++seed) {
    check_random(seed, widths, sizeof widths / sizeof *widths, 60, false, &c);
  }
  assert_true(c.speculated > 15 && c.mended > 20 && c.tails > 2 && c.reseeded > 2);
  assert_true(c.back_speculated > 25 && c.back_mended > 20 && c.back_rounds > 2 && c.given_up > 2);
}

/* Layers wider than a warp, as clusters and, where a GPU has no room for these, by the kernels of any width. */
static void test_random_wide(void **state) {
  (void)state;
  static const int64_t widths[] = {33, 40, 64, 70};
  counts c = {0};
  const uint64_t networks = at_full_length() ? 60 : 6;
  for (uint64_t seed = 1; seed <= networks; ++seed) {
    const bool alone = seed % 3 == 0; /* there is no speculative BP then */
    set_most("SIMT_MOST_CLUSTER", alone ? "1" : NULL);
    check_random(seed + 500, widths, sizeof widths / sizeof *widths, 26, alone, &c);
  }
  set_most("SIMT_MOST_CLUSTER", NULL);
  assert_true(c.speculated > 4 && c.mended > 4 && c.back_speculated > 4 && c.back_mended > 4);
}

/* ---- what is mended ---- */

/* Sets a reset of every sample in front of a step. */
static void cut_at(uint8_t *mask, const problem *p, int64_t step) {
  memset(mask + step * p->batch, 1, (size_t)p->batch);
}

/* A device and the processor do the same. */
static done check_same(const problem *p, double scale, const uint8_t *mask) {
  done of[2];
  bppsa_device *const own = device;
  for (int k = 0; k < 2; ++k) {
    device = k == 0 ? own : host;
    pair n = open_pair(p, scale);
    of[k] = pass_both(&n, mask);
    close_pair(&n);
  }
  device = own;
  const bppsa_forward_stats f = of[0].forward, g = of[1].forward;
  const bppsa_backward_stats s = of[0].backward, t = of[1].backward;
  if (!(f.path == g.path && f.work == g.work && f.rounds == g.rounds && f.mended == g.mended && f.tails == g.tails)) {
    fail_msg("forward: path %d and %d, work %g and %g, rounds %d and %d, mended %d and %d, tails %d and %d", (int)f.path,
             (int)g.path, f.work, g.work, (int)f.rounds, (int)g.rounds, (int)f.mended, (int)g.mended, (int)f.tails, (int)g.tails);
  }
  if (!(s.path == t.path && s.work == t.work && s.rounds == t.rounds && s.mended == t.mended && s.given_up == t.given_up)) {
    fail_msg("backward: path %d and %d, work %g and %g, rounds %d and %d, mended %d and %d", (int)s.path, (int)t.path, s.work,
             t.work, (int)s.rounds, (int)t.rounds, (int)s.mended, (int)t.mended);
  }
  return of[0];
}

/* T 40 in chunks of 10 with one reset in each, at the same place. Nothing is forgotten, so what begins without a reset is mended:
 * forward by a walk from the chunk's beginning to its reset, backward by one from the chunk's end to it. */
static void test_one_reset(void **state) {
  (void)state;
  enum { T = 40, EACH = 10, WARM_UP = 3 };
  static const int64_t hidden[] = {5, 40};
  for (int k = 0; k < CELLS * 2 * 2; ++k) {
    problem p = problem_of(k % CELLS, k / CELLS % 2 == 0 ? BPPSA_F32 : BPPSA_F64, T, 2, hidden[k / CELLS / 2]);
    uint8_t mask[T * 2];
    p.config.loss_all = p.config.input_gradients = p.state = true;
    speculate(&p, T / EACH, WARM_UP);
    make_numbers(&p, (uint64_t)k);
    for (int64_t step = 1; step < T; step += k % 4 == 0 ? 3 : 13) {
      memset(mask, 0, sizeof mask);
      for (int64_t chunk = 0; chunk < T / EACH; ++chunk) {
        cut_at(mask, &p, chunk * EACH + (step - 1) % EACH);
      }
      const int64_t at = (step - 1) % EACH; /* of a chunk */
      const done of = check_same(&p, 1, mask);
      const bool exact = at == 0 || at >= EACH - WARM_UP, exact_back = at <= WARM_UP;
      const int64_t ahead = at == 0 ? 0 : exact ? EACH - at : WARM_UP, behind = exact_back ? at : WARM_UP;
      assert_int_equal(of.forward.path, EACH + ahead + (exact ? 0 : at));
      assert_int_equal(of.forward.mended, exact ? 0 : 2 * (T / EACH - 1));
      assert_true(of.forward.rounds == !exact && of.forward.tails == 0 && of.forward.reseeded == 0);
      assert_int_equal(of.backward.path, EACH + behind + (exact_back ? 0 : EACH - at));
      assert_int_equal(of.backward.mended, exact_back ? 0 : 2 * (T / EACH - 1));
      assert_true(of.backward.rounds == !exact_back && !of.backward.given_up);
    }
    free_numbers(&p);
  }
}

/* The same in wide layers, with one reset in the middle of each chunk: the tail alone mends, or the first round does. In front of
 * the reset a walk has not reached its chunk's end, and the next chunk is walked from that end. An emulated GPU without clusters
 * does this with the kernels of any width, and has no speculative BP. */
static void test_one_reset_wide(void **state) {
  (void)state;
  enum { CHUNKS = 4, EACH = 10, WARM_UP = 3, AT = 4 };
  for (int k = 0; k < CELLS * 2 * 2; ++k) {
    const bool tail = k / CELLS % 2 == 0, clusters = k / CELLS / 2 == 0;
    const int64_t batch = clusters ? 2 : 1;
    problem p = problem_of(k % CELLS, k % 2 == 0 ? BPPSA_F32 : BPPSA_F64, CHUNKS * EACH, batch, clusters ? 37 : 130);
    uint8_t mask[CHUNKS * EACH * 2] = {0};
    p.config.loss_all = p.config.input_gradients = p.state = true;
    speculate(&p, CHUNKS, WARM_UP);
    p.config.forward.rounds = tail ? 0 : 1;
    p.config.method.backward = BPPSA_BACKWARD_BP;
    make_numbers(&p, (uint64_t)k + 30);
    for (int64_t chunk = 0; chunk < CHUNKS; ++chunk) {
      cut_at(mask, &p, chunk * EACH + AT);
    }
    set_most("SIMT_MOST_CLUSTER", clusters ? NULL : "1");
    const done of = check_same(&p, 1, mask);
    set_most("SIMT_MOST_CLUSTER", NULL);
    assert_int_equal(of.forward.path, WARM_UP + EACH + (tail ? (CHUNKS - 1) * AT : AT));
    assert_int_equal(of.forward.mended, batch * (CHUNKS - 1));
    assert_true(of.forward.rounds == !tail && of.forward.tails == (tail ? batch : 0) && of.forward.reseeded == 0);
    free_numbers(&p);
  }
}

/* With a reset in front of every step lanes begin where their chunks begin, and nothing is verified. */
static void test_all_reset(void **state) {
  (void)state;
  static const int64_t hidden[] = {1, 20, 32, 40};
  for (int k = 0; k < CELLS * 4; ++k) {
    problem p = problem_of(k % CELLS, k % 2 == 0 ? BPPSA_F32 : BPPSA_F64, 43, 2, hidden[k / CELLS]);
    p.config.loss_all = p.config.input_gradients = true;
    p.config.layers = 2;
    speculate(&p, 5, 4);
    make_numbers(&p, (uint64_t)k);
    uint8_t mask[43 * 2];
    memset(mask, 1, sizeof mask);
    const done of = check_same(&p, 1, mask);
    assert_true(of.forward.path == 2 * 9 && of.forward.work == 1 && of.forward.mended == 0 && of.forward.rounds == 0);
    assert_true(of.backward.path == 2 * 9 && of.backward.work == 1 && of.backward.mended == 0 && of.backward.rounds == 0);
    free_numbers(&p);
  }
}

/* The loss on the last step alone: in front of the last reset all gradients are 0, and no random vector walks. */
static void test_last_alone(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 2; ++k) {
    problem p = problem_of(k % CELLS, BPPSA_F32, 40, 1, k / CELLS == 0 ? 7 : 36);
    uint8_t mask[40] = {0};
    p.config.input_gradients = true;
    speculate(&p, 4, 5);
    make_numbers(&p, (uint64_t)k);
    cut_at(mask, &p, 33); /* in the last chunk, which is exact, and in the warm-up of the one in front */
    cut_at(mask, &p, 8);
    pair n = open_pair(&p, 1);
    const done of = pass_both(&n, mask);
    assert_true(of.backward.speculated && !of.backward.given_up && of.backward.mended == 0);
    assert_int_equal(of.backward.path, 13); /* from the reset in the last chunk through the one in front */
    bppsa_view got[2];
    assert_int_equal(n.model->ops->input_gradients(n.model, &got[0], &got[1]), BPPSA_OK);
    double dx[40], dh0[72];
    float row[72];
    assert_int_equal(bppsa_memory_get(got[0].device == BPPSA_CUDA ? device : NULL, row, got[0].data, 40 * sizeof *row), BPPSA_OK);
    for (int t = 0; t < 40; ++t) {
      dx[t] = (double)row[t];
      assert_true(t < 33 ? dx[t] == 0 : true);
    }
    assert_true(dx[39] != 0 && dx[33] != 0);
    const int64_t states = bppsa_view_count(&got[1]);
    assert_int_equal(
        bppsa_memory_get(got[1].device == BPPSA_CUDA ? device : NULL, row, got[1].data, states * (int64_t)sizeof *row), BPPSA_OK);
    for (int64_t i = 0; i < states; ++i) {
      dh0[i] = (double)row[i];
      assert_true(dh0[i] == 0);
    }
    close_pair(&n);
    free_numbers(&p);
  }
}

/* ---- NaN ---- */

/* The view's numbers in float64. */
static double *numbers_of(const bppsa_view *view) {
  const int64_t all = bppsa_view_count(view);
  bppsa_view typed =
      bppsa_view_make(bppsa_calloc(all, (size_t)bppsa_dtype_size(view->dtype)), view->dtype, view->ndim, view->shape);
  bppsa_view wide = bppsa_view_make(bppsa_calloc(all, sizeof(double)), BPPSA_F64, view->ndim, view->shape);
  assert_int_equal(
      bppsa_memory_get(view->device == BPPSA_CUDA ? device : NULL, typed.data, view->data, (int64_t)bppsa_view_bytes(&typed)),
      BPPSA_OK);
  assert_int_equal(bppsa_view_convert(&typed, &wide), BPPSA_OK);
  bppsa_free(typed.data);
  return wide.data;
}

/* x and the gradient of the outputs are NaN in one step of an episode. Nothing outside of it is, and what is outside is the same as
 * without NaN but for roundings. An episode's end and its beginning lie within chunks, at their ends, and in warm-ups. */
static void check_spoiled(int k, int64_t hidden, bppsa_backward backward, int64_t first, int64_t end, int64_t step) {
  problem p = problem_of(k % CELLS, k / CELLS % 2 == 0 ? BPPSA_F32 : BPPSA_F64, 48, 2, hidden);
  uint8_t mask[48 * 2] = {0};
  double *outputs[2], *dx[2];
  p.config.loss_all = p.config.input_gradients = p.config.no_head = true;
  p.config.method.backward = backward;
  speculate(&p, 4, 5);
  make_numbers(&p, 70);
  bppsa_free(p.seed);
  p.config.classes = hidden; /* the outputs' width, for device_problem.h */
  p.seed = uniform(71, 48 * 2 * hidden, 1);
  cut_at(mask, &p, first);
  cut_at(mask, &p, end);
  for (int spoiled = 0; spoiled < 2; ++spoiled) {
    bppsa_view logits, held[3], got[2];
    pair n = open_pair(&p, 1);
    n.p.resets = mask;
    if (spoiled == 1) {
      p.x[step * 2] = p.seed[step * 2 * hidden] = (double)NAN;
    }
    pass(&n.p, n.model, device, &logits, held);
    assert_int_equal(n.model->ops->input_gradients(n.model, &got[0], &got[1]), BPPSA_OK);
    outputs[spoiled] = numbers_of(&logits);
    dx[spoiled] = numbers_of(&got[0]);
    drop(device, held);
    close_pair(&n);
  }
  const double most = p.config.dtype == BPPSA_F32 ? 1e-4 : 1e-12;
  for (int64_t t = 0; t < 48; ++t) {
    for (int64_t i = 0; i < 2 * hidden; ++i) {
      const double a = outputs[0][t * 2 * hidden + i], b = outputs[1][t * 2 * hidden + i];
      const bool hit = i < hidden && t >= step && t < end;
      assert_true(hit ? isnan(b) : fabs(a - b) <= most);
    }
    for (int64_t b = 0; b < 2; ++b) {
      const double was = dx[0][t * 2 + b], is = dx[1][t * 2 + b];
      const bool hit = b == 0 && t >= first && t < end;
      assert_true(hit ? isnan(is) : fabs(is - was) <= most);
    }
  }
  for (int i = 0; i < 2; ++i) {
    bppsa_free(outputs[i]);
    bppsa_free(dx[i]);
  }
  free_numbers(&p);
}

static void test_nan(void **state) {
  (void)state;
  static const int64_t episodes[][3] = {{5, 20, 11}, {12, 24, 13}, {22, 27, 26}, {10, 38, 30}};
  for (int k = 0; k < CELLS * 2; ++k) {
    for (size_t i = 0; i < sizeof episodes / sizeof *episodes; ++i) {
      check_spoiled(k,
                    k % 2 == 0   ? 6
                    : i % 2 == 0 ? 17
                                 : 35,
                    BPPSA_BACKWARD_SPECULATIVE, episodes[i][0], episodes[i][1], episodes[i][2]);
    }
  }
}

/* A parallel forward pass of the kernels of any width, which have no speculative BP: the next episode begins within a
 * chunk and in a warm-up. One block has room for the kernels of wide layers of an RNN up to 128 units. */
static void test_nan_any(void **state) {
  (void)state;
  static const int64_t ends[] = {20, 32, 22};
  set_most("SIMT_MOST_CLUSTER", "1");
  for (int k = 0; k < CELLS; ++k) {
    const int64_t end = ends[k];
    check_spoiled(k, k == RNN ? 130 : 70, BPPSA_BACKWARD_BP, 5, end, end - 1);
  }
  set_most("SIMT_MOST_CLUSTER", NULL);
}

/* ---- h0 ---- */

/* A sample that begins anew in front of the first step does not read h0, whose gradient there is 0. */
static void test_first_step(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 2; ++k) {
    problem p = problem_of(k % CELLS, BPPSA_F32, 30, 2, k / CELLS == 0 ? 9 : 33);
    uint8_t mask[30 * 2] = {0};
    p.config.loss_all = p.config.input_gradients = p.state = true;
    speculate(&p, 3, 12);
    make_numbers(&p, (uint64_t)k + 20);
    const int64_t size = state_size(&p);
    for (int64_t i = 0; i < size; ++i) {
      p.h0[i] = (double)NAN; /* of sample 0 */
    }
    mask[0] = 1;
    pair n = open_pair(&p, 1);
    (void)pass_both(&n, mask);
    bppsa_view got[2];
    assert_int_equal(n.model->ops->input_gradients(n.model, &got[0], &got[1]), BPPSA_OK);
    double *dh0 = numbers_of(&got[1]);
    for (int64_t i = 0; i < size; ++i) {
      assert_true(dh0[i] == 0 && dh0[size + i] != 0);
    }
    bppsa_free(dh0);
    close_pair(&n);
    free_numbers(&p);
  }
}

/* ---- sequences of passes ---- */

/* Passes that fail and the pauses behind them, with masks of other rates in turn. */
static void test_sequence(void **state) {
  (void)state;
  for (int k = 0; k < CELLS; ++k) {
    problem p = problem_of(k, BPPSA_F32, 40, 2, 6);
    p.config.reset_state = k != GRU;
    dice d = {.seed = (uint64_t)k + 3};
    p.config.loss_all = p.config.input_gradients = true;
    speculate(&p, 8, 1);
    make_numbers(&p, (uint64_t)k + 40);
    pair n = open_pair(&p, 1.2);
    int64_t speculated = 0, paused = 0;
    for (int i = 0; i < 14; ++i) {
      uint8_t *mask = draw_mask(&d, &p, i < 7 ? rates[i % 2] : rates[3 + i % 2]);
      const done of = pass_both(&n, i % 5 == 4 ? NULL : mask);
      speculated += of.backward.speculated;
      paused += !of.backward.speculated;
      bppsa_free(mask);
    }
    assert_true(speculated > 1 && paused > 1);
    close_pair(&n);
    free_numbers(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),     cmocka_unit_test(test_random_wide),
                                     cmocka_unit_test(test_one_reset),  cmocka_unit_test(test_one_reset_wide),
                                     cmocka_unit_test(test_all_reset),  cmocka_unit_test(test_last_alone),
                                     cmocka_unit_test(test_nan),        cmocka_unit_test(test_nan_any),
                                     cmocka_unit_test(test_first_step), cmocka_unit_test(test_sequence)};
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}

/* Samples that begin anew, on a device: every way in which a device computes passes, beside the processor's BP in float64 with the
 * same resets (test_resets.c holds that against the textbook); segments beside the same segments alone; sequences of passes, and
 * recorded ones. NaN and learned states have tests of their own. BPPSA_TEST_DEVICE names the device. */
#include "core/compute/graph.h"
#include "recurrent/certify.h"
#include "tests/core/helpers.h"
#include "tests/recurrent/resets_device.h"

/* ---- beside the processor ---- */

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

/* ---- gradients far apart ---- */

/* Steps of a chunk of the scan that has three; the cut lies in the middle one, of which products are 0. */
enum { FAR_STEPS = 48, FAR_CUT = 30 };

/* An RNN whose states are 0, so that the gradient is multiplied by a power of two a step. In front of the cut it begins with
 * numbers that are further below those behind it than the type's range: of a common scale with them nothing would be left. */
static void check_far_apart(const way *w, bppsa_dtype dtype, int64_t hidden) {
  const device_shape shape = {FAR_STEPS, 1, 1, 1, hidden, 1, LOSS_ALL | INPUTS};
  const bool narrow = dtype == BPPSA_F32;
  const double growth = narrow ? 0x1p4 : 0x1p20, before = narrow ? 0x1p-100 : 0x1p-900, behind = narrow ? 0x1p55 : 0x1p600;
  problem p = shaped_problem(cells[RNN], &shape, dtype);
  uint8_t mask[FAR_STEPS] = {0};
  p.config.resets = true;
  use_way(&p, w);
  make_numbers(&p, 1);
  memset(p.x, 0, FAR_STEPS * sizeof *p.x);
  for (int64_t i = 0; i < FAR_STEPS * p.config.classes; ++i) {
    p.seed[i] = i / p.config.classes < FAR_CUT ? before : behind;
  }
  mask[FAR_CUT] = 1;
  p.resets = mask;
  bppsa_model *model = open_model(&p);
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_view *to = &model->parameters[i].value;
    const bool square = strstr(model->parameters[i].name, "weight_hh") != NULL;
    for (int64_t j = 0; j < bppsa_view_count(to); ++j) {
      const double bias = strstr(model->parameters[i].name, "bias") != NULL ? 0 : 1;
      bppsa_view_set(to, j, !square ? bias : j % (hidden + 1) == 0 ? growth : 0);
    }
  }
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
  outcome found = compute(&p, model);
  double gradient = 0;
  for (int64_t t = FAR_STEPS - 1; t >= 0; --t) {
    const double injected = (double)p.config.classes * (t < FAR_CUT ? before : behind);
    gradient = injected + (t + 1 == FAR_CUT ? 0 : growth * gradient);
    const double expected = (double)hidden * gradient;
    assert_true(fabs(found.numbers[found.where[1] + t] - expected) <= 1e-5 * expected);
  }
  bppsa_free(found.numbers);
  bppsa_model_destroy(model);
  free_numbers(&p);
}

static void test_far_apart(void **state) {
  (void)state;
  for (int w = 0; w < WAYS; ++w) {
    for (int64_t hidden = 1; hidden <= 9; hidden += 8) {
      check_far_apart(&ways[w], BPPSA_F32, hidden);
      check_far_apart(&ways[w], BPPSA_F64, hidden);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ways),     cmocka_unit_test(test_dropout),   cmocka_unit_test(test_bits),
      cmocka_unit_test(test_segments), cmocka_unit_test(test_sequences), cmocka_unit_test(test_certificate),
      cmocka_unit_test(test_replay),   cmocka_unit_test(test_refused),   cmocka_unit_test(test_far_apart)};
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}

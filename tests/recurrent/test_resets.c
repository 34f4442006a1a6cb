/* Samples that begin anew within a batch: random networks beside the textbook's loop (resets_reference.h), segments beside the same
 * segments alone, NaN on both sides of a reset, speculative passes, refusals, sequences of passes. (The file is long because
 * every method of both passes meets the same reference.) */
#include <sys/mman.h>
#include <unistd.h>

#include "recurrent/certify.h"
#include "tests/recurrent/resets_reference.h"
#include "tests/support/gru_reference.h"
#include "tests/support/invented_cell.h"
#include "tests/support/length.h"
#include "tests/support/lstm_reference.h"
#include "tests/support/rnn_reference.h"

static const cell_reference cells[] = {RNN_REFERENCE, GRU_REFERENCE, LSTM_REFERENCE};
enum { CELLS = sizeof cells / sizeof *cells, STEPS = 24, BATCH = 5 };

static const double rates[] = {0, .02, .1, .5, 1};
enum { RATES = sizeof rates / sizeof *rates };

/* Random numbers of one test. */
typedef struct {
  double *numbers;
  int64_t next;
} dice;

enum { NUMBERS = 1 << 14 };

static dice open_dice(uint64_t seed) {
  return (dice){.numbers = uniform(seed, NUMBERS, 1)};
}

static double toss(dice *d) { /* in 0 .. 1 */
  return d->numbers[d->next++ % NUMBERS] / 2 + .5;
}

static int64_t roll(dice *d, int64_t least, int64_t most) {
  const int64_t at = least + (int64_t)(toss(d) * (double)(most - least + 1));
  return at < most ? at : most;
}

/* A mask [T][b]; with a rate above 0 it has at least one reset. */
static uint8_t *draw_mask(dice *d, double rate, int64_t steps, int64_t batch) {
  uint8_t *mask = bppsa_calloc(steps * batch, 1);
  assert_non_null(mask);
  for (int64_t i = 0; i < steps * batch; ++i) {
    mask[i] = toss(d) < rate;
  }
  mask[roll(d, 0, steps * batch - 1)] |= rate > 0;
  return mask;
}

static bppsa_view mask_view(const run *r, const uint8_t *mask) {
  return bppsa_view_make((void *)(uintptr_t)mask, BPPSA_U8, 2, (int64_t[]){r->x.shape[0], r->x.shape[1]});
}

/* One forward and one backward pass. */
static void pass(run *r, const int64_t *lengths, const uint8_t *mask) {
  const bppsa_view resets = mask_view(r, mask);
  const bppsa_spans spans = {.lengths = lengths, .resets = mask != NULL ? &resets : NULL};
  assert_int_equal(bppsa_model_forward(r->model, &r->x, &r->h0, &spans, &r->logits), BPPSA_OK);
  assert_int_equal(r->model->ops->backward(r->model, &r->seed), BPPSA_OK);
  assert_int_equal(r->model->ops->input_gradients(r->model, &r->dx, &r->dh0), BPPSA_OK);
}

/* Samples that begin anew in front of the first step do not read h0. */
static void spoil_start(run *r, const uint8_t *mask) {
  const int64_t batch = r->x.shape[1], size = r->h0.shape[2], sides = r->config.bidirectional ? 2 : 1;
  for (int64_t i = 0; i < bppsa_view_count(&r->h0); ++i) {
    if (mask[i / size % batch] && i / size / batch % sides == 0) {
      bppsa_view_set(&r->h0, i, (double)NAN);
    }
  }
}

static bppsa_recurrent_config config_of(bppsa_dtype dtype, const bppsa_gradient_method *method, bool all) {
  bppsa_recurrent_config c = two_layers(STEPS, BATCH, dtype, method, all);
  c.resets = true;
  return c;
}

/* ---- the textbook ---- */

/* Speculative passes that accept no more than roundings. */
static void speculate(bppsa_recurrent_config *c, int64_t chunks, int64_t warm_up) {
  const double rounding = c->dtype == BPPSA_F32 ? 0x1p-24 : 0x1p-53;
  c->method.backward = BPPSA_BACKWARD_SPECULATIVE;
  c->speculation.chunks = chunks;
  c->speculation.warm_up = warm_up;
  c->speculation.tolerance = rounding;
}

static void speculate_forward(bppsa_recurrent_config *c, int64_t chunks, int64_t warm_up) {
  c->forward = bppsa_forward_method_default();
  c->forward.kind = BPPSA_FORWARD_SPECULATIVE;
  c->forward.chunks = chunks;
  c->forward.warm_up = warm_up;
  c->forward.tolerance = 0;
}

static bppsa_recurrent_config draw_config(dice *d) {
  bppsa_recurrent_config c =
      config_of(roll(d, 0, 1) == 0 ? BPPSA_F32 : BPPSA_F64, &methods[roll(d, 0, METHODS - 1)], roll(d, 0, 1) == 0);
  c.seq_len = roll(d, 0, 5) == 0 ? roll(d, 1, 3) : roll(d, 4, 60);
  c.batch = roll(d, 1, 7);
  c.input = roll(d, 1, 6);
  c.hidden = roll(d, 1, 20);
  c.layers = roll(d, 1, 3);
  c.bidirectional = roll(d, 0, 2) == 0;
  c.no_head = roll(d, 0, 3) == 0;
  c.no_bias = roll(d, 0, 4) == 0;
  c.lengths = roll(d, 0, 2) == 0;
  c.reset_state = roll(d, 0, 1) == 0;
  if (roll(d, 0, 49) == 0) {
    c.hidden = roll(d, 0, 1) == 0 ? 129 : 257;
    c.seq_len = roll(d, 1, 8);
    c.batch = roll(d, 1, 4);
  }
  if (c.seq_len > 3 && roll(d, 0, 2) == 0) {
    speculate(&c, roll(d, 2, c.seq_len / 2), roll(d, 0, 12));
  }
  if (c.seq_len > 3 && !c.lengths && roll(d, 0, 2) == 0) {
    speculate_forward(&c, roll(d, 2, c.seq_len / 2), roll(d, 0, 12));
  }
  return c;
}

enum { MANY = 200 };

/* A random configuration beside the textbook; twice, since the second pass must not depend on the first. many: of more samples than
 * a word of a mask has, up to MANY. */
static void check_random(uint64_t seed, bool many) {
  dice d = open_dice(seed);
  const cell_reference *cell = &cells[roll(&d, 0, CELLS - 1)];
  bppsa_recurrent_config c = draw_config(&d);
  if (many) {
    c.batch = roll(&d, 9, MANY);
    c.seq_len = roll(&d, 4, 12);
    c.hidden = roll(&d, 1, 5);
  }
  const double rate = rates[roll(&d, 0, RATES - 1)];
  run r = open_run(cell->cell, &c, many ? c.batch : roll(&d, 1, c.batch), roll(&d, 1, 3));
  const int64_t batch = r.x.shape[1];
  int64_t lengths[MANY];
  for (int64_t b = 0; b < batch; ++b) {
    lengths[b] = roll(&d, 1, c.seq_len);
  }
  uint8_t *mask = draw_mask(&d, rate, c.seq_len, batch);
  if (c.lengths) {
    spoil(&r, lengths);
  }
  spoil_start(&r, mask);
  pass(&r, c.lengths ? lengths : NULL, mask);
  pass(&r, c.lengths ? lengths : NULL, mask);
  textbook e = compute_textbook(cell, &r, c.lengths ? lengths : NULL, mask);
  const char *what = "";
  const double most = largest_residual(&r, &e, &what);
  if (!(most < 30) || r.model->redone != 0) {
    fail_msg("seed %llu: %s, T %lld, B %lld, H %lld, rate %g: residual %g of %s, %lld redone", (unsigned long long)seed,
             cell->cell->name, (long long)c.seq_len, (long long)batch, (long long)c.hidden, rate, most, what,
             (long long)r.model->redone);
  }
  free_textbook(&e, &r);
  bppsa_free(mask);
  bppsa_free(d.numbers);
  close_run(&r);
}

static void test_random(void **state) {
  (void)state;
  const uint64_t count = at_full_length() ? 500 : 60;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    check_random(seed, false);
  }
}

static void test_many_samples(void **state) {
  (void)state;
  const uint64_t count = at_full_length() ? 100 : 12;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    check_random(seed, true);
  }
}

/* Every cell, method and rate, both losses, in float64: 1e-12 beside the loop. */
static void test_every_method(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * METHODS * RATES * 2; ++k) {
    dice d = open_dice((uint64_t)k + 1000);
    const cell_reference *cell = &cells[k % CELLS];
    bppsa_recurrent_config c = config_of(BPPSA_F64, &methods[k / CELLS % METHODS], k / CELLS / METHODS % 2 == 0);
    c.reset_state = k % 2 == 0;
    run r = open_run(cell->cell, &c, BATCH, 1);
    uint8_t *mask = draw_mask(&d, rates[k / CELLS / METHODS / 2], STEPS, BATCH);
    pass(&r, NULL, mask);
    textbook e = compute_textbook(cell, &r, NULL, mask);
    const bppsa_view *found[] = {&r.logits, &r.dx, &r.dh0};
    const double *expected[] = {e.logits, e.dx, e.dh0};
    for (int64_t i = 0; i < 3 + r.model->parameter_count; ++i) {
      const bppsa_view *view = i < 3 ? found[i] : &r.model->parameters[i - 3].gradient;
      for (int64_t j = 0; j < bppsa_view_count(view); ++j) {
        assert_true(fabs(bppsa_view_get(view, j) - (i < 3 ? expected[i] : e.gradients[i - 3])[j]) <= 1e-12);
      }
    }
    assert_int_equal(r.model->redone, 0);
    free_textbook(&e, &r);
    bppsa_free(mask);
    bppsa_free(d.numbers);
    close_run(&r);
  }
}

/* ---- segments alone ---- */

/* Copies steps first .. of sample b of a view [T][b][width] to another one [T'][1][width]. */
static void take_steps(const bppsa_view *from, int64_t first, int64_t b, const bppsa_view *to) {
  const int64_t width = to->shape[2], batch = from->shape[1];
  for (int64_t i = 0; i < bppsa_view_count(to); ++i) {
    bppsa_view_set(to, i, bppsa_view_get(from, ((first + i / width) * batch + b) * width + i % width));
  }
}

static void assert_steps(const bppsa_view *found, int64_t first, int64_t b, const bppsa_view *alone) {
  bppsa_view steps = random_view(alone->dtype, 1, 3, alone->shape);
  take_steps(found, first, b, &steps);
  assert_same_bits(&steps, alone);
  bppsa_free(steps.data);
}

/* A segment of a row, from a zero state or in front of the first reset from h0, has the bits of the segment alone. */
static void check_segment(const run *r, const cell_reference *cell, int64_t b, int64_t first, int64_t steps, bool anew) {
  bppsa_recurrent_config c = r->config;
  c.seq_len = steps;
  c.batch = 1;
  c.resets = c.lengths = false;
  c.forward = bppsa_forward_method_default();
  run one = open_run(cell->cell, &c, 1, 1);
  take_steps(&r->x, first, b, &one.x);
  take_steps(&r->seed, first, b, &one.seed);
  take_steps(&r->h0, 0, b, &one.h0);
  if (anew) {
    memset(one.h0.data, 0, bppsa_view_bytes(&one.h0));
  }
  compute(&one, NULL);
  assert_steps(&r->logits, first, b, &one.logits);
  assert_steps(&r->dx, first, b, &one.dx);
  close_run(&one);
}

/* y and dx of float32 rows with resets, with and without lengths, on one thread and three, by BP. */
static void test_segments(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 6; ++k) {
    dice d = open_dice((uint64_t)k + 50);
    const cell_reference *cell = &cells[k % CELLS];
    bppsa_recurrent_config c = config_of(BPPSA_F32, &methods[0], true);
    c.lengths = k / CELLS % 2 == 1;
    c.no_head = true;
    c.hidden = k / CELLS == 2 ? 64 : 9;
    run r = open_run(cell->cell, &c, BATCH, k / CELLS == 4 ? 3 : 1);
    uint8_t *mask = draw_mask(&d, k / CELLS == 5 ? .5 : .1, STEPS, BATCH);
    int64_t lengths[BATCH];
    for (int64_t b = 0; b < BATCH; ++b) {
      lengths[b] = c.lengths ? roll(&d, 1, STEPS) : STEPS;
    }
    pass(&r, c.lengths ? lengths : NULL, mask);
    for (int64_t b = 0; b < BATCH; ++b) {
      for (int64_t first = 0, end = 1; first < lengths[b]; first = end++) {
        while (end < lengths[b] && !mask[end * BATCH + b]) {
          ++end;
        }
        check_segment(&r, cell, b, first, end - first, mask[first * BATCH + b]);
      }
    }
    bppsa_free(mask);
    bppsa_free(d.numbers);
    close_run(&r);
  }
}

/* A mask of zeros has the bits of no mask, and of a network without resets; any number of threads has the same bits. */
static void test_bits(void **state) {
  (void)state;
  static const uint8_t none[STEPS * BATCH];
  for (int k = 0; k < 2 * CELLS * (METHODS + 1); ++k) {
    dice d = open_dice((uint64_t)k + 90);
    bppsa_recurrent_config c = config_of(BPPSA_F32, &methods[k / CELLS % METHODS], k % 2 == 0);
    c.bidirectional = k % 5 == 0;
    c.reset_state = k / CELLS > METHODS;
    if (k / CELLS % (METHODS + 1) == METHODS) {
      speculate(&c, 4, 2);
      speculate_forward(&c, 4, 2);
    }
    bppsa_recurrent_config plain = c;
    plain.resets = false;
    run one = open_run(cells[k % CELLS].cell, &c, BATCH, 1), three = open_run(cells[k % CELLS].cell, &c, BATCH, 3),
        without = open_run(cells[k % CELLS].cell, &plain, BATCH, 1);
    uint8_t *mask = draw_mask(&d, .1, STEPS, BATCH);
    pass(&one, NULL, mask);
    pass(&three, NULL, mask);
    assert_same_runs(&one, &three);
    pass(&one, NULL, none);
    pass(&three, NULL, NULL);
    pass(&without, NULL, NULL);
    assert_same_runs(&one, &three);
    assert_same_runs(&one, &without);
    bppsa_free(mask);
    bppsa_free(d.numbers);
    close_run(&one);
    close_run(&three);
    close_run(&without);
  }
}

/* ---- NaN ---- */

enum { CUT = 10 };

/* Cuts all samples in front of step CUT. NaN in x, or in the seed, of a step on one side leaves the other side as it is. */
static void check_side(const cell_reference *cell, const bppsa_recurrent_config *c, int64_t step) {
  const bool later = step >= CUT;
  uint8_t mask[STEPS * BATCH] = {0};
  memset(mask + CUT * BATCH, 1, BATCH);
  run clean = open_run(cell->cell, c, BATCH, 1), r = open_run(cell->cell, c, BATCH, 1);
  bppsa_view *spoiled = later ? &r.seed : &r.x;
  const int64_t row = c->loss_all || !later ? step : 0;
  bppsa_view_set(spoiled, row * BATCH * spoiled->shape[spoiled->ndim - 1] + 1, (double)NAN);
  pass(&clean, NULL, mask);
  pass(&r, NULL, mask);
  const bppsa_view *found[] = {&r.logits, &r.dx}, *expected[] = {&clean.logits, &clean.dx};
  for (int v = c->loss_all ? 0 : 1; v < 2; ++v) {
    const int64_t width = BATCH * found[v]->shape[2], first = later ? 0 : CUT, end = later ? CUT : STEPS;
    for (int64_t i = first * width; i < end * width; ++i) {
      assert_true(bppsa_view_get(found[v], i) == bppsa_view_get(expected[v], i)); /* NaN is not equal */
    }
  }
  assert_true(isnan(bppsa_view_get(&r.dx, (later ? step : 0) * BATCH * c->input)));
  close_run(&clean);
  close_run(&r);
}

static void test_nan(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * METHODS * 2; ++k) {
    bppsa_recurrent_config c = config_of(k / CELLS / METHODS == 0 ? BPPSA_F32 : BPPSA_F64, &methods[k / CELLS % METHODS], true);
    c.layers = 1;
    for (int64_t step = CUT; step < STEPS; ++step) {
      check_side(&cells[k % CELLS], &c, step);
    }
    check_side(&cells[k % CELLS], &c, 0);
    speculate_forward(&c, 4, 3);
    check_side(&cells[k % CELLS], &c, 0);
    c.loss_all = false;
    check_side(&cells[k % CELLS], &c, STEPS - 1);
  }
}

/* A sample that begins anew in front of the first step: its h0 is not read, and has the gradient 0. */
static void test_start(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * METHODS; ++k) {
    const bppsa_recurrent_config c = config_of(BPPSA_F64, &methods[k / CELLS], k % 2 == 0);
    run r = open_run(cells[k % CELLS].cell, &c, BATCH, 1);
    uint8_t mask[STEPS * BATCH] = {0, 1, 0, 1, 0};
    bppsa_nonfinite where;
    spoil_start(&r, mask);
    pass(&r, NULL, mask);
    assert_false(r.model->ops->find_nonfinite(r.model, &where));
    for (int64_t i = 0; i < bppsa_view_count(&r.dh0); ++i) {
      assert_int_equal(bppsa_view_get(&r.dh0, i) == 0, mask[i / r.dh0.shape[2] % BATCH]);
    }
    close_run(&r);
  }
}

/* ---- speculative passes ---- */

/* With tolerance 0 the states have the bits of the sequential pass. Where every chunk has a reset in front of its first step,
 * nothing is verified or mended, in either pass, and the gradients have BP's bits but for the order of the sums. */
static void test_speculation(void **state) {
  (void)state;
  enum { LONG = 64, CHUNKS = 8 };
  for (int k = 0; k < CELLS * 8; ++k) {
    dice d = open_dice((uint64_t)k + 700);
    bppsa_recurrent_config c = config_of(BPPSA_F32, &methods[0], k / CELLS % 2 == 0);
    const bool every = k / CELLS / 2 % 2 == 1;
    c.seq_len = LONG;
    c.bidirectional = k / CELLS / 4 == 1;
    run sequential = open_run(cells[k % CELLS].cell, &c, BATCH, 1);
    speculate_forward(&c, CHUNKS, every ? 1 : 4);
    speculate(&c, CHUNKS, every ? 1 : 4);
    run r = open_run(cells[k % CELLS].cell, &c, BATCH, 2);
    uint8_t *mask = draw_mask(&d, .05, LONG, BATCH);
    for (int64_t i = 0; every && i < LONG * BATCH; ++i) {
      mask[i] |= i / BATCH % (LONG / CHUNKS) == 0;
    }
    pass(&sequential, NULL, mask);
    pass(&r, NULL, mask);
    assert_same_bits(&r.logits, &sequential.logits);
    bppsa_forward_stats forward;
    bppsa_backward_stats backward;
    assert_int_equal(bppsa_forward_stats_of(r.model, &forward), BPPSA_OK);
    assert_int_equal(bppsa_backward_stats_of(r.model, &backward), BPPSA_OK);
    assert_true(forward.speculated && backward.speculated);
    if (every) {
      assert_int_equal(forward.mended + forward.rounds + forward.tails + forward.reseeded, 0);
      assert_int_equal(backward.mended + backward.rounds, 0);
      assert_true(backward.gap == 0);
      assert_int_equal(forward.path, c.layers * (c.bidirectional ? 2 : 1) * LONG / CHUNKS);
      assert_same_bits(&r.dx, &sequential.dx);
      assert_same_bits(&r.dh0, &sequential.dh0);
    }
    bppsa_free(mask);
    bppsa_free(d.numbers);
    close_run(&sequential);
    close_run(&r);
  }
}

/* Where every chunk has a reset in its middle, and no warm-up, all chunks are mended up to there, and no further: in the forward
 * pass from its first step on, backward from its last one. */
static void test_mends_stop(void **state) {
  (void)state;
  enum { CHUNKS = 6, LENGTH = STEPS / CHUNKS };
  for (int k = 0; k < CELLS * 2; ++k) {
    bppsa_recurrent_config c = config_of(BPPSA_F64, &methods[0], true);
    c.bidirectional = k / CELLS == 1;
    speculate_forward(&c, CHUNKS, 0);
    speculate(&c, CHUNKS, 0);
    c.speculation.tolerance = 1e-15;
    run r = open_run(cells[k % CELLS].cell, &c, BATCH, 1);
    uint8_t mask[STEPS * BATCH];
    for (int64_t i = 0; i < STEPS * BATCH; ++i) {
      mask[i] = i / BATCH % LENGTH == LENGTH / 2;
    }
    pass(&r, NULL, mask);
    bppsa_forward_stats forward;
    bppsa_backward_stats backward;
    assert_int_equal(bppsa_forward_stats_of(r.model, &forward), BPPSA_OK);
    assert_int_equal(bppsa_backward_stats_of(r.model, &backward), BPPSA_OK);
    assert_true(forward.speculated && backward.speculated && !backward.given_up);
    const int64_t sides = c.layers * (c.bidirectional ? 2 : 1);
    assert_int_equal(forward.path, sides * (LENGTH + LENGTH / 2));
    assert_int_equal(backward.path, sides * (LENGTH + LENGTH / 2));
    assert_int_equal(forward.mended, sides * (CHUNKS - 1) * BATCH);
    assert_int_equal(backward.mended, sides * (CHUNKS - 1) * BATCH);
    assert_int_equal(forward.rounds + backward.rounds, 2);
    close_run(&r);
  }
}

/* ---- what else goes with resets ---- */

/* float64 BP over the same states finds no difference, and float32 only rounding. */
static void test_certificate(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 4; ++k) {
    dice d = open_dice((uint64_t)k + 800);
    bppsa_recurrent_config c = config_of(k / CELLS % 2 == 0 ? BPPSA_F64 : BPPSA_F32, &methods[k % METHODS], true);
    bppsa_certificate certificate;
    c.bidirectional = k / CELLS / 2 == 1;
    c.reset_state = k % 2 == 0;
    run r = open_run(cells[k % CELLS].cell, &c, BATCH, 1);
    uint8_t *mask = draw_mask(&d, .1, STEPS, BATCH);
    pass(&r, NULL, mask);
    assert_int_equal(bppsa_certify(r.model, &certificate), BPPSA_OK);
    assert_true(certificate.error < (c.dtype == BPPSA_F64 ? 1e-13 : 1e-5));
    bppsa_free(mask);
    bppsa_free(d.numbers);
    close_run(&r);
  }
}

/* With dropout the gradients are the difference quotients of Σ seed · logits. */
static void test_dropout(void **state) {
  (void)state;
  static const int64_t samples[BATCH] = {70, 3, 41, 12, 5};
  for (int k = 0; k < CELLS * 2; ++k) {
    dice d = open_dice((uint64_t)k + 900);
    bppsa_recurrent_config c = config_of(BPPSA_F64, &methods[k / CELLS == 0 ? 0 : METHODS - 1], true);
    c.dropout = .4;
    c.reset_state = k % 2 == 0;
    run r = open_run(cells[k % CELLS].cell, &c, BATCH, 1);
    uint8_t *mask = draw_mask(&d, .1, STEPS, BATCH);
    bppsa_model_drop(r.model, 7, samples);
    pass(&r, NULL, mask);
    for (int i = 0; i < 12; ++i) {
      const int64_t p = roll(&d, 0, r.model->parameter_count - 1);
      const bppsa_view *value = &r.model->parameters[p].value;
      const int64_t at = roll(&d, 0, bppsa_view_count(value) - 1);
      const double kept = bppsa_view_get(value, at), h = 1e-5, gradient = bppsa_view_get(&r.model->parameters[p].gradient, at);
      double sums[2] = {0, 0};
      for (int side = 0; side < 2; ++side) {
        bppsa_view_set(value, at, side == 0 ? kept + h : kept - h);
        pass(&r, NULL, mask);
        for (int64_t j = 0; j < bppsa_view_count(&r.logits); ++j) {
          sums[side] += bppsa_view_get(&r.logits, j) * bppsa_view_get(&r.seed, j);
        }
      }
      bppsa_view_set(value, at, kept);
      pass(&r, NULL, mask);
      assert_true(fabs((sums[0] - sums[1]) / (2 * h) - gradient) < 1e-7);
    }
    bppsa_free(mask);
    bppsa_free(d.numbers);
    close_run(&r);
  }
}

/* A cell that the library does not know needs nothing for resets: a segment has the bits of the segment alone, and every method
 * the gradients of BP. */
static void test_own_cell(void **state) {
  (void)state;
  static const cell_reference own = {.gates = 2, .cell = &two_tanh};
  for (int k = 0; k < METHODS; ++k) {
    dice d = open_dice((uint64_t)k + 40);
    bppsa_recurrent_config c = config_of(BPPSA_F64, &methods[0], true);
    c.no_head = true;
    run bp = open_run(&two_tanh, &c, BATCH, 1);
    c.method = methods[k];
    run r = open_run(&two_tanh, &c, BATCH, 1);
    uint8_t *mask = draw_mask(&d, .1, STEPS, BATCH);
    pass(&bp, NULL, mask);
    pass(&r, NULL, mask);
    for (int64_t b = 0; b < BATCH; ++b) {
      for (int64_t first = 0, end = 1; first < STEPS; first = end++) {
        while (end < STEPS && !mask[end * BATCH + b]) {
          ++end;
        }
        check_segment(&bp, &own, b, first, end - first, mask[first * BATCH + b]);
      }
    }
    for (int64_t i = 0; i < r.model->parameter_count; ++i) {
      const bppsa_view *found = &r.model->parameters[i].gradient, *expected = &bp.model->parameters[i].gradient;
      assert_true(residual(BPPSA_F64, found->data, expected->data, bppsa_view_count(found), sqrt(STEPS)) < 30);
    }
    bppsa_free(mask);
    bppsa_free(d.numbers);
    close_run(&bp);
    close_run(&r);
  }
}

/* One network, many passes: with and without resets and lengths, of batches of several sizes, each beside a fresh network. */
static void test_sequences(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * METHODS; ++k) {
    dice d = open_dice((uint64_t)k + 600);
    bppsa_recurrent_config c = config_of(BPPSA_F32, &methods[k / CELLS], k % 2 == 0);
    c.lengths = true;
    c.bidirectional = k % 4 == 1;
    c.reset_state = k % 3 == 0;
    bppsa_model *kept = NULL;
    run first = open_run(cells[k % CELLS].cell, &c, BATCH, 1);
    kept = first.model;
    for (int i = 0; i < 6; ++i) {
      const int64_t batch = roll(&d, 1, BATCH);
      run fresh = open_run(cells[k % CELLS].cell, &c, batch, 1);
      uint8_t *mask = draw_mask(&d, rates[roll(&d, 0, RATES - 1)], STEPS, batch), wrong[STEPS * BATCH];
      const uint8_t *given = roll(&d, 0, 2) == 0 ? NULL : mask;
      int64_t lengths[BATCH];
      for (int64_t b = 0; b < batch; ++b) {
        lengths[b] = roll(&d, 1, STEPS);
      }
      const int64_t *ends = roll(&d, 0, 1) == 0 ? NULL : lengths;
      run same = fresh;
      same.model = kept;
      memset(wrong, 2, sizeof wrong);
      const bppsa_view refused = mask_view(&same, wrong);
      assert_int_equal(
          bppsa_model_forward(kept, &same.x, NULL, &(bppsa_spans){.lengths = ends, .resets = &refused}, &same.logits),
          BPPSA_ERR_ARGUMENT);
      pass(&same, ends, given);
      pass(&fresh, ends, given);
      assert_same_runs(&same, &fresh);
      bppsa_free(mask);
      close_run(&fresh);
    }
    bppsa_free(d.numbers);
    close_run(&first);
  }
}

/* Memory of so many bytes on pages of its own, for which mprotect may be called. */
static void *own_pages(size_t bytes, size_t *all) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  *all = (bytes + page - 1) / page * page;
  void *pages = mmap(NULL, *all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(pages, MAP_FAILED);
  return pages;
}

/* A tape is read and not written by backward passes, not even for a moment, so several may read it at once. */
static void test_tape(void **state) {
  (void)state;
  for (int k = 0; k < CELLS; ++k) {
    dice d = open_dice((uint64_t)k + 30);
    bppsa_recurrent_config c = config_of(BPPSA_F32, &methods[0], true);
    c.layers = 1;
    c.no_head = true;
    c.reset_state = k > 0;
    run plain = open_run(cells[k].cell, &c, BATCH, 1);
    c.tape = true;
    run r = open_run(cells[k].cell, &c, BATCH, 1);
    uint8_t *mask = draw_mask(&d, .1, STEPS, BATCH);
    int64_t size;
    assert_int_equal(bppsa_recurrent_tape_size(r.model, &size), BPPSA_OK);
    size_t pages;
    const bppsa_view tape = bppsa_view_make(own_pages((size_t)size * sizeof(float), &pages), BPPSA_F32, 1, &size);
    assert_int_equal(bppsa_recurrent_use_tape(r.model, &r.x, &tape, NULL), BPPSA_OK);
    pass(&plain, NULL, mask);
    const bppsa_view resets = mask_view(&r, mask);
    assert_int_equal(bppsa_model_forward(r.model, &r.x, &r.h0, &(bppsa_spans){.resets = &resets}, &r.logits), BPPSA_OK);
    assert_int_equal(mprotect(tape.data, pages, PROT_READ), 0);
    assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
    assert_int_equal(r.model->ops->input_gradients(r.model, &r.dx, &r.dh0), BPPSA_OK);
    assert_same_runs(&plain, &r);
    bppsa_free(mask);
    bppsa_free(d.numbers);
    assert_int_equal(munmap(tape.data, pages), 0);
    close_run(&plain);
    close_run(&r);
  }
}

static void test_refused(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(BPPSA_F32, &methods[0], true);
  uint8_t mask[STEPS * BATCH] = {0};
  run r = open_run(&bppsa_gru_cell, &c, BATCH, 1);
  bppsa_view wrong = mask_view(&r, mask);
  const bppsa_spans spans = {.resets = &wrong};
  wrong.shape[0] = BATCH;
  wrong.shape[1] = STEPS;
  assert_error(bppsa_model_forward(r.model, &r.x, NULL, &spans, &r.logits), BPPSA_ERR_SHAPE,
               "resets: u8 [5, 24], expected bool or u8 [24, 5]");
  wrong = mask_view(&r, mask);
  wrong.dtype = BPPSA_F32;
  assert_error(bppsa_model_forward(r.model, &r.x, NULL, &spans, &r.logits), BPPSA_ERR_SHAPE, "expected bool or u8 [24, 5]");
  wrong.dtype = BPPSA_BOOL;
  assert_int_equal(bppsa_model_forward(r.model, &r.x, NULL, &spans, &r.logits), BPPSA_OK);
  mask[7 * BATCH + 3] = 2;
  assert_error(bppsa_model_forward(r.model, &r.x, NULL, &spans, &r.logits), BPPSA_ERR_ARGUMENT,
               "resets: 2 at step 7 of sample 3 of the batch, expected 0 or 1");
  mask[7 * BATCH + 3] = 0;
  wrong.device = BPPSA_CUDA;
  assert_error(bppsa_model_forward(r.model, &r.x, NULL, &spans, &r.logits), BPPSA_ERR_ARGUMENT, "expected that of the host");
  wrong = mask_view(&r, NULL);
  assert_error(bppsa_model_forward(r.model, &r.x, NULL, &spans, &r.logits), BPPSA_ERR_ARGUMENT, "its data are NULL");
  close_run(&r);
  c.resets = false;
  r = open_run(&bppsa_gru_cell, &c, BATCH, 1);
  wrong = mask_view(&r, mask);
  assert_error(bppsa_model_forward(r.model, &r.x, NULL, &spans, &r.logits), BPPSA_ERR_ARGUMENT,
               "gru: resets of samples for a model that was created without them");
  close_run(&r);
  c.resets = true;
  c.part.seq_len = 2 * STEPS;
  r = open_run(&bppsa_gru_cell, &c, BATCH, 1);
  wrong = mask_view(&r, mask);
  assert_error(bppsa_model_forward(r.model, &r.x, NULL, &spans, &r.logits), BPPSA_ERR_SHAPE,
               "resets: u8 [24, 5], expected bool or u8 [48, 5]");
  close_run(&r);
}

static bppsa_status create(void *context) {
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  bppsa_status status = bppsa_device_create("cpu", 1, &device);
  status = status == BPPSA_OK ? bppsa_recurrent_create(context, &bppsa_lstm_cell, device, &model) : status;
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  return status;
}

/* Passes allocate nothing; a network whose memory cannot be had leaks none. */
static void test_memory(void **state) {
  (void)state;
  dice d = open_dice(3);
  bppsa_recurrent_config c = config_of(BPPSA_F32, &methods[METHODS - 1], false);
  c.reset_state = true;
  run r = open_run(&bppsa_lstm_cell, &c, BATCH, 2);
  uint8_t *mask = draw_mask(&d, .3, STEPS, BATCH);
  bppsa_alloc_fail_at(1);
  pass(&r, NULL, mask);
  assert_int_equal(bppsa_alloc_calls(), 0);
  bppsa_alloc_fail_at(0);
  close_run(&r);
  assert_true(walk_allocations(create, &c) > 10);
  bppsa_free(mask);
  bppsa_free(d.numbers);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random),      cmocka_unit_test(test_every_method), cmocka_unit_test(test_segments),
      cmocka_unit_test(test_bits),        cmocka_unit_test(test_nan),          cmocka_unit_test(test_start),
      cmocka_unit_test(test_speculation), cmocka_unit_test(test_mends_stop),   cmocka_unit_test(test_certificate),
      cmocka_unit_test(test_dropout),     cmocka_unit_test(test_own_cell),     cmocka_unit_test(test_sequences),
      cmocka_unit_test(test_tape),        cmocka_unit_test(test_refused),      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_many_samples)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

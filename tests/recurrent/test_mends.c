/* Where mends of a speculative backward pass end, and the tail behind its rounds (recurrent/parallel_backward.h): RNNs whose
 * gradients fall and grow as they are told. W_hh is twice an orthogonal matrix, so that a step multiplies gradients by 2 (1 - h²),
 * and the states are a tape that is written by hand. */
#include <math.h>

#include "recurrent/certify.h"
#include "rnn/rnn.h"
#include "tests/recurrent/passes.h"

enum { STEPS = 1000, HIDDEN = 12, CHUNKS = 10, LENGTH = STEPS / CHUNKS, WARM_UP = 40, STRETCHES = 6, PULSES = 2 };

/* What the gradients of some units do. */
typedef struct {
  struct {
    int64_t last;  /* step: the stretch ends with it, the first one begins at step 1 */
    double factor; /* of gradients at each of its steps */
  } stretches[STRETCHES];
  struct {
    int64_t step;
    double size; /* of what the loss injects there */
  } pulses[PULSES];
  double elsewhere; /* what the loss injects at all other steps */
} course;

static double factor_at(const course *c, int64_t step) {
  int k = 0;
  while (step > c->stretches[k].last) {
    ++k;
  }
  return c->stretches[k].factor;
}

static double injected_at(const course *c, int64_t step) {
  for (int k = 0; k < PULSES; ++k) {
    if (c->pulses[k].step == step) {
      return c->pulses[k].size;
    }
  }
  return c->elsewhere;
}

/* Sets weights, seed and tape. Unit i follows courses[i % count]; with several courses W_hh is 2 I, so that they stay apart. */
static void set_courses(run *r, const bppsa_view *tape, int count, const course *courses) {
  double *w_hh = orthogonal(7, HIDDEN, 2);
  for (int64_t i = 0; i < HIDDEN * HIDDEN; ++i) {
    bppsa_view_set(&r->model->parameters[1].value, i, count == 1 ? w_hh[i] : i % (HIDDEN + 1) == 0 ? 2 : 0);
  }
  bppsa_free(w_hh);
  for (int64_t i = 0; i < STEPS * HIDDEN; ++i) {
    const course *c = &courses[i % HIDDEN % count];
    const int64_t step = i / HIDDEN + 1;
    const double state = sqrt(1 - factor_at(c, step) / 2);
    bppsa_view_set(tape, HIDDEN + i, i % 2 == 0 ? state : -state);
    bppsa_view_set(&r->seed, i, injected_at(c, step) * bppsa_view_get(&r->seed, i));
  }
}

/* A pass that is over, whose states the tape has. */
typedef struct {
  run r;
  bppsa_view tape;
} pass;

static void close_pass(pass *p) {
  close_run(&p->r);
  bppsa_free(p->tape.data);
}

/* The caller closes it. */
static pass pass_of(int count, const course *courses, bppsa_backward backward, bppsa_backward_stats *stats) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = STEPS;
  c.batch = 1;
  c.hidden = HIDDEN;
  c.tape = c.no_head = c.loss_all = true;
  c.method.backward = backward;
  c.speculation.chunks = CHUNKS;
  c.speculation.warm_up = WARM_UP;
  pass p = {.r = open_run(&bppsa_rnn_cell, &c, 1, 1)};
  int64_t size;
  assert_int_equal(bppsa_recurrent_tape_size(p.r.model, &size), BPPSA_OK);
  p.tape = bppsa_view_make(bppsa_calloc(size, sizeof(float)), BPPSA_F32, 1, &size);
  set_courses(&p.r, &p.tape, count, courses);
  assert_int_equal(bppsa_recurrent_use_tape(p.r.model, &p.r.x, &p.tape, NULL), BPPSA_OK);
  assert_int_equal(p.r.model->ops->backward(p.r.model, &p.r.seed), BPPSA_OK);
  assert_int_equal(bppsa_backward_stats_of(p.r.model, stats), BPPSA_OK);
  return p;
}

/* Returns the error of the pass's certificate. */
static double error_of(int count, const course *courses, bppsa_backward backward, bppsa_backward_stats *stats) {
  bppsa_certificate found;
  pass p = pass_of(count, courses, backward, stats);
  assert_int_equal(bppsa_certify(p.r.model, &found), BPPSA_OK);
  close_pass(&p);
  return found.error;
}

/* The chunk of the steps 301 .. 400 lacks a thousandth of its gradients, which comes from step 500. On the way through it they fall
 * to 1e-9 and grow again, to a thousand times what they were. A mend that stopped in the dip, because the difference is small
 * beside the chunk's mean gradient, would lack a thousandth of everything in front. */
static void test_dip(void **state) {
  (void)state;
  static const course dip = {.stretches = {{150, .5}, {320, 1}, {360, 2}, {390, .5}, {500, 1}, {STEPS, .5}},
                             .pulses = {{500, 1e-3}, {410, 1}},
                             .elsewhere = 1e-25};
  bppsa_backward_stats stats, of_bp;
  const double own = error_of(1, &dip, BPPSA_BACKWARD_BP, &of_bp), error = error_of(1, &dip, BPPSA_BACKWARD_SPECULATIVE, &stats);
  assert_true(stats.speculated && !stats.given_up && stats.mended > 0);
  if (!(error <= 2 * own)) {
    fail_msg("error %.3g, BP's %.3g", error, own);
  }
}

/* Beside what comes behind it, the chunk of the steps 401 .. 500 has next to nothing of its own. The difference that enters it may
 * matter in front of it, whatever it is beside the chunk's own gradients: it walks through to the chunk's end. */
static void test_quiet(void **state) {
  (void)state;
  static const course quiet = {.stretches = {{500, .5}, {600, .8}, {STEPS, .5}}, .pulses = {{600, 1}}, .elsewhere = 1e-14};
  bppsa_backward_stats stats;
  const double error = error_of(1, &quiet, BPPSA_BACKWARD_SPECULATIVE, &stats);
  assert_true(stats.speculated && !stats.given_up);
  assert_int_equal(stats.mended, 1);
  assert_int_equal(stats.rounds, 1);
  assert_int_equal(stats.path, WARM_UP + LENGTH + LENGTH);
  assert_true(error <= 1e-6);
}

/* Three kinds of units: some forget, and make the scale; the others keep gradients that steps 960 and 760 send, after they have
 * shrunk in the chunk that the pass looks at when it asks whether its rounds will do. They do not: half as many rounds as chunks
 * take the first one from chunk 8 to chunk 4, the second one from chunk 6 to chunk 2, counted from 0. In the tail the first one
 * dies in chunk 3, and the second one waits for that; then it walks through chunks 1 and 0. */
static void test_tail(void **state) {
  (void)state;
  static const course courses[] = {
      {.stretches = {{STEPS, .5}}, .elsewhere = 1},
      {.stretches = {{300, 1}, {400, .5}, {800, 1}, {900, .95}, {STEPS, 1}}, .pulses = {{960, 2e-3}}},
      {.stretches = {{600, 1}, {700, .95}, {STEPS, 1}}, .pulses = {{760, 2e-3}}}};
  enum { ROUNDS = CHUNKS / 2 };
  bppsa_backward_stats stats, of_bp;
  const double own = error_of(3, courses, BPPSA_BACKWARD_BP, &of_bp),
               error = error_of(3, courses, BPPSA_BACKWARD_SPECULATIVE, &stats);
  assert_true(stats.speculated && !stats.given_up);
  if (!(error <= 2 * own)) {
    fail_msg("error %.3g, BP's %.3g", error, own);
  }
  assert_int_equal(stats.mended, 2 * ROUNDS + 3);
  assert_int_equal(stats.rounds, ROUNDS + 3);
}

/* ---- what is dropped is counted ---- */

enum { EIGHT = 8 };

/* Sums of max |g_t|, by the recurrence in double, of units that forget. */
typedef struct {
  double all, chunk, head, least; /* of all steps, of the steps 801 .. 900, of the last eight of them, of the least eight */
} sums;

static sums sums_of(const run *r, int count, const course *forgets) {
  double g[HIDDEN] = {0}, eight = 0;
  sums s = {.least = (double)INFINITY};
  for (int64_t step = STEPS; step >= 1; --step) {
    double largest = 0;
    for (int64_t i = 0; i < HIDDEN; i += count) {
      const double arrives = step < STEPS ? factor_at(forgets, step + 1) * g[i] : 0;
      g[i] = arrives + bppsa_view_get(&r->seed, (step - 1) * HIDDEN + i);
      largest = fmax(largest, fabs(g[i]));
    }
    s.all += largest;
    if (step > 800 && step <= 900) {
      s.chunk += largest;
      s.head += step > 900 - EIGHT ? largest : 0;
      eight += largest;
      if ((901 - step) % EIGHT == 0) {
        s.least = fmin(s.least, eight);
        eight = 0;
      }
    }
  }
  return s;
}

/* The largest number that the loss injects into the other units at step 960. */
static double pulse_of(const run *r) {
  double largest = 0;
  for (int64_t i = 1; i < HIDDEN; i += 2) {
    largest = fmax(largest, fabs(bppsa_view_get(&r->seed, 959 * HIDDEN + i)));
  }
  return largest;
}

static void assert_near(double found, double expected) {
  if (!(fabs(found / expected - 1) < 1e-4)) {
    fail_msg("%.8g, expected %.8g", found, expected);
  }
}

/* Every other unit forgets, and makes the scale; the others are 0 but for what step 960 sends. Chunk 8 starts in front of that. A
 * difference that is small enough is dropped there; a larger one is mended, and dropped where it has become small. */
static void test_counts(void **state) {
  (void)state;
  for (int k = 0; k < 2; ++k) {
    const course courses[] = {{.stretches = {{STEPS, .5}}, .elsewhere = 1},
                              {.stretches = {{900, .5}, {STEPS, 1}}, .pulses = {{960, k == 0 ? 1e-7 : 1e-5}}}};
    bppsa_backward_stats stats;
    pass p = pass_of(2, courses, BPPSA_BACKWARD_SPECULATIVE, &stats);
    const bppsa_backward_plan *plan = bppsa_backward_plan_of(p.r.model);
    const sums s = sums_of(&p.r, 2, courses);
    double dropped = pulse_of(&p.r);
    const double scale = fmin(s.chunk / LENGTH, s.head / EIGHT);
    assert_true((dropped <= plan->accept * scale) == (k == 0));
    while (k == 1 && dropped > plan->stop * fmin(s.least / EIGHT, scale)) {
      dropped /= 2;
    }
    assert_int_equal(stats.mended, k);
    assert_near(stats.perturbation, dropped / s.all);
    if (k == 0) {
      assert_near(stats.gap, dropped / scale);
    }
    close_pass(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_dip), cmocka_unit_test(test_quiet), cmocka_unit_test(test_tail),
                                     cmocka_unit_test(test_counts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

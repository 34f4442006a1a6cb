/* The parallel backward pass on a device (recurrent/parallel_backward.h) where numbers make verification hard: chunks that the loss
 * does not reach, gradients that fall to nothing and return, numbers beyond the type's range, NaN. BPPSA_TEST_DEVICE names the
 * device. */
#include "tests/recurrent/backward_problem.h"
#include "tests/recurrent/own_error.h"

/* Chunks of a loss on the last step are silent: each walks a random vector, and then what comes from behind. An upper layer drops
 * none of it, because a layer below may make it grow, and may be left to BP. */
static void test_silent(void **state) {
  (void)state;
  for (int i = 0; i < CELLS + 2; ++i) {
    const int kind = i % CELLS;
    const bool wide = i >= CELLS;
    const int64_t length = kind == GRU ? 20 : 10, warm_up = kind == GRU ? 18 : 4;
    problem p = problem_of(kind, 6 * length, 2, wide ? 33 : 6, 6, warm_up);
    p.network.config.layers = 1 + kind % 2;
    p.network.config.input = 1 + kind;
    p.network.scale = kind == GRU ? 1 : 1.5;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated && s.mended >= 4 && s.path > warm_up + 2 * length && (kind % 2 == 1 || !s.given_up));
  }
}

/* The loss reaches the last step, and far in front of it one unit of one step: the chunk of that step is not silent, though its
 * warm-up is. */
static void test_loss_returns(void **state) {
  (void)state;
  enum { CHUNKS = 6, LENGTH = 10, STEPS = CHUNKS * LENGTH };
  static const double louder[STEPS] = {[2 * LENGTH + LENGTH / 2] = 1, [STEPS - 1] = 1};
  for (int k = 0; k < 4; ++k) {
    problem p = problem_of(RNN, STEPS, 1, k % 2 == 0 ? 32 : 33, CHUNKS, 3);
    p.louder = louder;
    p.first_unit = true;
    p.network.config.dtype = k < 2 ? BPPSA_F32 : BPPSA_F64;
    p.network.config.loss_all = p.network.config.no_head = true;
    assert_true(check(&p).speculated);
  }
}

/* A gradient of the last step falls to nothing, and grows again far in front of that: an RNN with W_hh = 2 Q, Q orthogonal, and
 * states for which 1 - h² is .25, and .9 in the middle. What enters a chunk there is below the tolerance, and so is what leaves
 * the first chunks: the bound for silent chunks must look at all chunks in front. A forward pass would not find these states, so
 * the tape is written by hand. */
enum { BACK_STEPS = 120, GROWS_FIRST = 16, GROWS_LAST = 68 };

/* An RNN whose states are written by hand. slope: 1 - h² of all units at step t; tiny: what the loss has at the steps in front of
 * the last one, over what it has there; negative: it is on the last step alone. */
typedef struct written_tape {
  int64_t steps, chunks, warm_up, hidden;
  double (*slope)(const struct written_tape *of, int64_t t);
  double tiny;
} written_tape;

static double slope_that_grows(const written_tape *of, int64_t t) {
  (void)of;
  return t >= GROWS_FIRST && t <= GROWS_LAST ? .9 : .25;
}

/* Returns the gradient of W_hh [H][H], which the caller frees. */
static double *gradient_of_tape(const bppsa_device *on, bppsa_dtype dtype, bppsa_backward backward, const written_tape *of,
                                const double *w_hh, bppsa_backward_stats *stats) {
  const int64_t hidden = of->hidden;
  const double tiny = of->tiny;
  problem p = problem_of(RNN, of->steps, 1, hidden, of->chunks, of->warm_up);
  p.network.config.tape = true;
  p.network.config.loss_all = tiny >= 0;
  net n = open_net(&p, on, dtype, backward, NULL);
  int64_t size;
  assert_int_equal(bppsa_recurrent_tape_size(n.model, &size), BPPSA_OK);
  double *states = bppsa_calloc(size, sizeof *states);
  for (int64_t i = 0; i < (of->steps + 1) * hidden; ++i) {
    states[i] = sqrt(1 - of->slope(of, i / hidden)) * (i % 2 == 0 ? 1 : -1);
  }
  for (int64_t i = 0; i < hidden * hidden; ++i) {
    bppsa_view_set(&n.model->parameters[1].value, i, (double)(float)w_hh[i]);
  }
  assert_int_equal(bppsa_model_push(n.model), BPPSA_OK);
  bppsa_view tape = view_on(on, dtype, states, 1, &size);
  assert_int_equal(bppsa_recurrent_use_tape(n.model, &n.x, &tape, NULL), BPPSA_OK);
  const int64_t steps = tiny >= 0 ? of->steps : 1, shape[] = {steps, 1, n.model->classes};
  double *of_loss = bppsa_calloc(steps * n.model->classes, sizeof *of_loss);
  for (int64_t i = 0; i < steps * n.model->classes; ++i) {
    of_loss[i] = ((double)(i % 3) - .5) * (i < (steps - 1) * n.model->classes ? tiny : 1);
  }
  bppsa_view seed = view_on(on, dtype, of_loss, tiny >= 0 ? 3 : 2, tiny >= 0 ? shape : shape + 1);
  assert_int_equal(n.model->ops->backward(n.model, &seed), BPPSA_OK);
  assert_int_equal(bppsa_backward_stats_of(n.model, stats), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(n.model, true), BPPSA_OK);
  bppsa_memory_free(on, seed.data);
  double *found = bppsa_calloc(hidden * hidden, sizeof *found);
  for (int64_t i = 0; i < hidden * hidden; ++i) {
    found[i] = bppsa_view_get(&n.model->parameters[1].gradient, i);
  }
  bppsa_memory_free(on, tape.data);
  close_net(&n);
  return found;
}

/* Compares speculative BP of a tape with BP: in float32 with its own rounding, in float64 within 1e-10 of the largest gradient.
 * gain: W_hh is so many times an orthogonal matrix. */
static bppsa_backward_stats check_tape(const written_tape *of, double gain, bppsa_dtype dtype) {
  const int64_t count = of->hidden * of->hidden;
  bppsa_backward_stats stats;
  double *q = orthogonal(7, of->hidden, gain), *exact = gradient_of_tape(host, BPPSA_F64, BPPSA_BACKWARD_BP, of, q, &stats),
         *bp = gradient_of_tape(device, dtype, BPPSA_BACKWARD_BP, of, q, &stats),
         *found = gradient_of_tape(device, dtype, BPPSA_BACKWARD_SPECULATIVE, of, q, &stats), largest = 0;
  assert_true(stats.speculated);
  for (int64_t i = 0; i < count; ++i) {
    largest = fmax(largest, fabs(exact[i]));
  }
  for (int64_t i = 0; dtype == BPPSA_F64 && i < count; ++i) { /* BP's own rounding may be nothing */
    assert_true(fabs(bp[i] - exact[i]) <= 1e-10 * largest);
    bp[i] = exact[i] + .5e-10 * largest;
  }
  assert_within_own(count, exact, bp, found, of->tiny);
  bppsa_free(q);
  return stats;
}

static void test_comes_back(void **state) {
  (void)state;
  static const struct {
    double tiny;
    bool wide, f64;
  } cases[] = {{-1, false, false}, {0, false, false}, {1e-30, false, false}, {1e-20, false, false},
               {-1, true, false},  {0, true, false},  {0, true, true}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; ++k) {
    const double tiny = cases[k].tiny;
    const written_tape of = {BACK_STEPS, 8, 10, cases[k].wide ? 34 : 8, slope_that_grows, tiny};
    const bppsa_backward_stats stats = check_tape(&of, 2, cases[k].f64 ? BPPSA_F64 : BPPSA_F32);
    assert_true(tiny > 0 || !stats.given_up);
  }
}

/* In the next two tests W_hh is PEAK_GAIN times an orthogonal matrix: a gradient keeps its length in a step of slope EVEN, becomes
 * `steeper` times as long in one of slope STEEP, and as short in one of EVEN / steeper. It falls to 1e-27 in the last chunks. */
enum { PEAK_GAIN = 50, PEAK_CHUNKS = 24, PEAK_LENGTH = 32, FALLS = PEAK_CHUNKS - 2 };
static const double EVEN = 1. / PEAK_GAIN, STEEP = .9, steeper = .9 * PEAK_GAIN;

/* The same within one chunk: the gradient stays so small in the chunks in front, and in one chunk far in front it is nearly as
 * large as at first, for a few steps. The bound for silent chunks must look at what every chunk in front of a boundary holds, not
 * only at what comes out of it. */
static double slope_of_peak(const written_tape *of, int64_t t) {
  enum { PEAK = 3, STEPS = 15 };
  const int64_t length = of->steps / of->chunks, chunk = (t - 1) / length, at = (t - 1) % length;
  if (chunk == PEAK && at < 2 * STEPS) {
    return at < STEPS ? EVEN / steeper / steeper : STEEP;
  }
  return chunk == FALLS && at < length / 2 ? EVEN / steeper : EVEN;
}

/* The gradient falls once more. Four chunks, which lie sixteen chunks in front of that and more, take it back to what it was. So
 * the bound must know what comes out of every chunk in front of a boundary, also of chunks that are far away. */
static double slope_of_valley(const written_tape *of, int64_t t) {
  enum { VALLEY = FALLS - 2, STEPS = 4, RISES = 5 };
  const int64_t length = of->steps / of->chunks, chunk = (t - 1) / length, at = (t - 1) % length;
  const bool falls = (chunk == FALLS && at < length / 2) || (chunk == VALLEY && at < STEPS);
  return falls ? EVEN / steeper : chunk >= 1 && chunk <= VALLEY - 16 && at < RISES ? STEEP : EVEN;
}

static void test_peak(void **state) {
  (void)state;
  for (int k = 0; k < 8; ++k) {
    const double tiny = k < 4 ? -1 : 0; /* the loss is on the last step alone, or on all and 0 in front of it */
    const written_tape of = {PEAK_CHUNKS * PEAK_LENGTH, PEAK_CHUNKS, 2, 5, k % 4 < 2 ? slope_of_peak : slope_of_valley, tiny};
    assert_true(!check_tape(&of, PEAK_GAIN, k % 2 == 0 ? BPPSA_F32 : BPPSA_F64).given_up);
  }
}

/* Between two parts of a sequence that the loss reaches, a difference grows beyond all numbers: it is NaN at the boundary of the
 * chunk in front, which the loss reaches again. That is no difference to accept. */
static void test_overflows(void **state) {
  (void)state;
  enum { CHUNKS = 8, LENGTH = 15, STEPS = CHUNKS * LENGTH };
  double louder[STEPS] = {[STEPS - 1] = 1};
  for (int64_t t = 0; t < LENGTH; ++t) {
    louder[t] = 1;
  }
  for (int k = 0; k < 4; ++k) {
    const bppsa_dtype dtype = k < 2 ? BPPSA_F32 : BPPSA_F64;
    problem p = problem_of(RNN, STEPS, 1, k % 2 == 0 ? 6 : 33, CHUNKS, 5);
    p.louder = louder;
    p.still = p.network.orthogonal = true;
    p.network.scale = dtype == BPPSA_F32 ? 40 : 1e8;
    p.network.config.loss_all = true;
    p.network.config.input_gradients = true;
    gradients found = gradients_on(&p, device, dtype, BPPSA_BACKWARD_SPECULATIVE, NULL),
              bp = gradients_on(&p, device, dtype, BPPSA_BACKWARD_BP, NULL);
    int64_t finite = 0, others = 0;
    for (int64_t i = 0; i < bp.count; ++i) {
      for (int64_t j = 0; j < bp.sizes[i]; ++j) {
        assert_int_equal(isfinite(found.of[i][j]) != 0, isfinite(bp.of[i][j]) != 0);
        finite += isfinite(bp.of[i][j]) != 0;
        others += isfinite(bp.of[i][j]) == 0;
      }
    }
    assert_true(found.stats.speculated && finite > LENGTH && others > LENGTH);
    free_gradients(&found);
    free_gradients(&bp);
  }
}

/* A chunk's gradients overflow because its warm-up does not see what takes them to 0: W_hh is a multiple of the identity, and the
 * loss gives minus its reciprocal one step behind a 1. No difference mends that, so the sample is given up. */
static void test_guess_overflows(void **state) {
  (void)state;
  enum { STEPS = 100, WARM_UP = 5 };
  static const double factors[] = {
      [BPPSA_F32] = 8, [BPPSA_F64] = 0x1p23}; /* to the power of half the steps: beyond all numbers */
  for (int k = 0; k < 4; ++k) {
    problem p = problem_of(RNN, STEPS, 1, k % 2 == 0 ? 32 : 33, 2, WARM_UP); /* one lane or thread alone has the 1 */
    bppsa_recurrent_config *c = &p.network.config;
    c->dtype = k < 2 ? BPPSA_F32 : BPPSA_F64;
    const double factor = factors[c->dtype], louder[STEPS] = {[STEPS / 2 + WARM_UP - 1] = 1, [STEPS / 2 + WARM_UP] = -1 / factor};
    p.louder = louder;
    p.still = p.first_unit = true;
    c->loss_all = c->no_head = c->input_gradients = true;
    net weights = open_net(&p, host, BPPSA_F32, BPPSA_BACKWARD_BP, NULL);
    for (int64_t i = 0; i < c->hidden * c->hidden; ++i) {
      bppsa_view_set(&weights.model->parameters[1].value, i, i % (c->hidden + 1) == 0 ? factor : 0);
    }
    p.network.weights = weights.model;
    assert_true(check(&p).given_up);
    close_net(&weights);
  }
}

/* A difference that is nearly nothing at two steps in turn, and large at the next one: W_hh moves it from unit to unit, with a
 * factor for each. A wide layer's walk stops at what it has measured behind the two. (A CPU's stops at one step.) */
static void test_small_twice(void **state) {
  (void)state;
  enum { STEPS = 32, HIDDEN = 33, FIRST = 18 };
  for (int64_t from = FIRST; is_gpu() && from < FIRST + 2; ++from) {
    const int64_t small = from - FIRST + 4; /* the difference begins in the unit in front of this one */
    double louder[STEPS];
    problem p = problem_of(RNN, STEPS, 1, HIDDEN, 2, 2);
    for (int64_t t = 0; t < STEPS; ++t) {
      louder[t] = t < STEPS / 2 || t == from ? 1 : 0;
    }
    p.louder = louder;
    p.still = p.first_unit = true;
    p.network.config.loss_all = p.network.config.no_head = true;
    net weights = open_net(&p, host, BPPSA_F32, BPPSA_BACKWARD_BP, NULL);
    bppsa_view *w = &weights.model->parameters[1].value;
    for (int64_t i = 0; i < HIDDEN * HIDDEN; ++i) { /* row: the unit from which a gradient comes */
      const int64_t unit = i / HIDDEN;
      bppsa_view_set(w, i, i % HIDDEN != unit + 1 || unit > 12 ? 0 : unit == small ? 1e-14 : unit == small + 2 ? 1e16 : 1);
    }
    p.network.weights = weights.model;
    assert_int_equal(check(&p).mended, 1);
    close_net(&weights);
  }
}

/* What is not finite in one sample stands where BP puts it, and the other samples have their gradients. */
static void test_nonfinite(void **state) {
  (void)state;
  for (int kind = 0; kind < CELLS; ++kind) {
    problem p = problem_of(kind, 48, 3, kind == RNN ? 34 : 5, 4, 6);
    p.network.config.loss_all = true;
    p.network.config.input_gradients = true;
    p.spoiled = 20 * 3 + 1; /* step 20 of sample 1 */
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated && s.given_up && isfinite(s.gap) && isfinite(s.perturbation));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_silent),      cmocka_unit_test(test_loss_returns),
                                     cmocka_unit_test(test_comes_back),  cmocka_unit_test(test_peak),
                                     cmocka_unit_test(test_overflows),   cmocka_unit_test(test_guess_overflows),
                                     cmocka_unit_test(test_small_twice), cmocka_unit_test(test_nonfinite)};
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}

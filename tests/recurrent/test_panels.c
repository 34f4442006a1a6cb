/* Wide layers on a CPU, whose W_hh is packed into panels (core/compute/matmul.h), against the same cells without panels: states and
 * gradients of states have the same bits, on any number of threads and beside any other samples. */
#include <float.h>

#include "core/compute/simd.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/recurrent/passes.h"

static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
enum { CELLS = sizeof cells / sizeof *cells };

typedef struct {
  int64_t steps, batch, hidden, layers;
  bppsa_dtype dtype;
  bool relu, bidirectional;
} shape;

static bppsa_recurrent_config config_of(const shape *s, const bppsa_cell *cell) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = s->steps;
  c.batch = s->batch;
  c.input = 3;
  c.hidden = s->hidden;
  c.layers = s->layers;
  c.no_head = c.loss_all = c.input_gradients = c.lengths = true;
  c.bidirectional = s->bidirectional;
  c.dtype = s->dtype;
  c.nonlinearity = s->relu && cell->relu ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  c.method.backward = BPPSA_BACKWARD_BP;
  return c;
}

/* Weight gradients are sums of all rows, in another order. */
static void check_weights(const run *got, const run *expected) {
  const bppsa_recurrent_config *c = &got->config;
  const double eps = c->dtype == BPPSA_F32 ? (double)FLT_EPSILON : DBL_EPSILON;
  for (int64_t p = 0; p < got->model->parameter_count; ++p) {
    const bppsa_view *a = &got->model->parameters[p].gradient, *b = &expected->model->parameters[p].gradient;
    double most = 0, difference = 0;
    for (int64_t i = 0; i < bppsa_view_count(a); ++i) {
      most = fmax(most, fabs(bppsa_view_get(b, i)));
      difference = fmax(difference, fabs(bppsa_view_get(a, i) - bppsa_view_get(b, i)));
    }
    if (!(most > 0 && difference <= 8 * sqrt((double)(c->seq_len * c->batch)) * eps * most)) {
      fail_msg("%s, H %d, B %d: %s differs by %g of %g", got->cell->name, (int)c->hidden, (int)c->batch,
               got->model->parameters[p].name, difference, most);
    }
  }
}

static void check_states(const run *got, const run *expected) {
  assert_same_bits(&got->logits, &expected->logits);
  assert_same_bits(&got->dx, &expected->dx);
  assert_same_bits(&got->dh0, &expected->dh0);
}

/* Copies sample b of rows [rows][batch][width] to rows [rows][1][width]. */
static void take(const bppsa_view *all, int64_t b, const bppsa_view *one) {
  const int64_t batch = all->shape[1], width = all->shape[2];
  for (int64_t i = 0; i < bppsa_view_count(one); ++i) {
    bppsa_view_set(one, i, bppsa_view_get(all, (i / width * batch + b) * width + i % width));
  }
}

static void check_sample(int64_t b, const bppsa_view *found, const bppsa_view *alone) {
  const int64_t batch = found->shape[1], width = found->shape[2];
  for (int64_t i = 0; i < bppsa_view_count(alone); ++i) {
    assert_true(bppsa_view_get(alone, i) == bppsa_view_get(found, (i / width * batch + b) * width + i % width));
  }
}

/* The last sample alone has the bits that it has beside the others. */
static void check_alone(const run *all) {
  bppsa_recurrent_config c = all->config;
  const int64_t last = c.batch - 1;
  c.batch = 1;
  run one = open_run(all->cell, &c, 1, 1);
  take(&all->x, last, &one.x);
  take(&all->h0, last, &one.h0);
  take(&all->seed, last, &one.seed);
  compute(&one, NULL);
  check_sample(last, &all->logits, &one.logits);
  check_sample(last, &all->dx, &one.dx);
  check_sample(last, &all->dh0, &one.dh0);
  close_run(&one);
}

static void check_shape(const shape *s, const bppsa_cell *cell, int64_t most_threads) {
  const bppsa_recurrent_config c = config_of(s, cell);
  bppsa_cell plain = *cell;
  assert_true(cell->takes_panels);
  plain.takes_panels = false;
  run one = open_run(cell, &c, s->batch, 1), expected = open_run(&plain, &c, s->batch, 1);
  compute(&one, NULL);
  compute(&expected, NULL);
  check_states(&one, &expected);
  check_weights(&one, &expected);
  check_alone(&one);
  close_run(&expected);
  for (int64_t threads = 2; threads <= most_threads; ++threads) {
    run several = open_run(cell, &c, s->batch, threads);
    compute(&several, NULL);
    assert_same_runs(&several, &one);
    close_run(&several);
  }
  close_run(&one);
}

/* Sizes around a panel, batches around a block of rows; the last three are too narrow for threads to share single steps. */
static void test_shapes(void **state) {
  (void)state;
  static const shape shapes[] = {{5, 1, 129, 2, BPPSA_F32, false, false},   {3, 7, 129, 1, BPPSA_F64, true, false},
                                 {2, 200, 130, 1, BPPSA_F32, true, false},  {2, 97, 144, 1, BPPSA_F64, false, false},
                                 {4, 2, 257, 1, BPPSA_F32, true, true},     {3, 33, 257, 1, BPPSA_F64, false, false},
                                 {300, 1, 129, 1, BPPSA_F32, false, false}, {2, 8, 513, 1, BPPSA_F32, false, false},
                                 {130, 2, 98, 2, BPPSA_F32, true, false},   {9, 40, 93, 1, BPPSA_F32, false, true},
                                 {40, 3, 71, 1, BPPSA_F64, true, true}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
    for (int k = 0; k < CELLS; ++k) {
      check_shape(&shapes[i], cells[k], 3);
    }
  }
}

/* Samples of their own lengths. */
static void test_lengths(void **state) {
  (void)state;
  static const shape s = {6, 5, 131, 2, BPPSA_F32, false, false};
  static const int64_t lengths[] = {6, 1, 4, 4, 2};
  for (int k = 0; k < CELLS; ++k) {
    const bppsa_recurrent_config c = config_of(&s, cells[k]);
    bppsa_cell plain = *cells[k];
    plain.takes_panels = false;
    run one = open_run(cells[k], &c, s.batch, 1), two = open_run(cells[k], &c, s.batch, 2),
        expected = open_run(&plain, &c, s.batch, 1);
    compute(&one, lengths);
    compute(&two, lengths);
    compute(&expected, lengths);
    check_states(&one, &expected);
    check_weights(&one, &expected);
    assert_same_runs(&two, &one);
    close_run(&one);
    close_run(&two);
    close_run(&expected);
  }
}

/* A speculative forward pass that accepts no difference takes other products, and has the same bits. */
static void test_speculative(void **state) {
  (void)state;
  static const shape s = {40, 2, 129, 1, BPPSA_F32, false, false};
  for (int k = 0; k < CELLS; ++k) {
    bppsa_recurrent_config c = config_of(&s, cells[k]);
    c.lengths = false;
    run sequential = open_run(cells[k], &c, s.batch, 1);
    c.forward = bppsa_forward_method_default();
    c.forward.kind = BPPSA_FORWARD_SPECULATIVE;
    c.forward.chunks = 3;
    c.forward.warm_up = 2;
    c.forward.tolerance = 0;
    run speculative = open_run(cells[k], &c, s.batch, 2);
    compute(&sequential, NULL);
    compute(&speculative, NULL);
    check_states(&speculative, &sequential);
    close_run(&sequential);
    close_run(&speculative);
  }
}

/* The same with every instruction set that the processor has, and batches of one to four samples, of which up to three are few. */
static void test_instruction_sets(void **state) {
  (void)state;
  static const char *const sets[] = {"portable", "avx2", "avx512"};
  static const shape shapes[] = {{3, 1, 129, 1, BPPSA_F32, false, false}, {3, 2, 161, 1, BPPSA_F64, false, false},
                                 {3, 3, 257, 1, BPPSA_F32, true, false},  {2, 1, 513, 1, BPPSA_F64, false, false},
                                 {2, 4, 513, 1, BPPSA_F32, false, false}, {3, 1, 128, 1, BPPSA_F32, false, true},
                                 {3, 1, 320, 1, BPPSA_F32, false, false}, {3, 2, 96, 1, BPPSA_F32, false, false}};
  for (size_t k = 0; k < sizeof sets / sizeof *sets; ++k) {
    if (bppsa_simd_select(sets[k]) != BPPSA_OK) {
      continue;
    }
    for (size_t i = 0; i < CELLS * sizeof shapes / sizeof *shapes; ++i) {
      check_shape(&shapes[i / CELLS], cells[i % CELLS], 2);
    }
  }
  assert_int_equal(bppsa_simd_select("auto"), BPPSA_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_lengths),
                                     cmocka_unit_test(test_speculative), cmocka_unit_test(test_instruction_sets)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

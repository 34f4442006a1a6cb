/* Long-lived networks of wide layers on a CPU, H 129, 257 and 513, with everything that a batch or a network may have, in random
 * sequences of passes: beside the same cells without panels, which other tests hold against the textbook. Outputs, states and the
 * gradients of inputs and initial states have the same bits on any number of threads; weight gradients are sums in another order,
 * whose bits do not depend on threads. */
#include <float.h>

#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/recurrent/passes.h"
#include "tests/support/dice.h"
#include "tests/support/length.h"

static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
enum { CELLS = sizeof cells / sizeof *cells, NETWORKS = 3, MOST_BATCH = 120 };
enum { ONE_THREAD, SEVERAL, PLAIN }; /* the networks */

/* The same weights in three networks, and what the present pass reads. */
typedef struct {
  dice d;
  bppsa_cell plain;
  bppsa_recurrent_config config;
  run r[NETWORKS];
  bppsa_view x, h0, seed;
  int64_t batch, lengths[MOST_BATCH], samples[MOST_BATCH];
  uint8_t *resets;
} problem;

static bool one_in(problem *p, int64_t of) {
  return roll(&p->d, 1, of) == 1;
}

static void draw_config(problem *p, const bppsa_cell *cell) {
  static const int64_t widths[] = {129, 257, 513};
  bppsa_recurrent_config *c = &p->config;
  *c = bppsa_recurrent_config_default();
  c->hidden = widths[roll(&p->d, 0, 2)];
  c->seq_len = roll(&p->d, 1, c->hidden > 300 ? 4 : 12);
  c->batch = one_in(p, 4) ? roll(&p->d, 60, MOST_BATCH) : roll(&p->d, 1, 9);
  c->input = one_in(p, 3) ? 140 : roll(&p->d, 1, 5);
  c->layers = roll(&p->d, 1, c->hidden > 300 ? 1 : 2);
  c->classes = roll(&p->d, 1, 4);
  c->dtype = one_in(p, 3) ? BPPSA_F64 : BPPSA_F32;
  c->loss_all = one_in(p, 2);
  c->no_head = one_in(p, 3);
  c->no_bias = one_in(p, 4);
  c->bidirectional = one_in(p, 4);
  c->lengths = one_in(p, 3);
  c->resets = one_in(p, 3);
  c->reset_state = c->resets && one_in(p, 2);
  c->dropout = one_in(p, 3) ? .4 : 0;
  c->input_gradients = true;
  c->nonlinearity = cell->relu && one_in(p, 3) ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  c->method.backward = BPPSA_BACKWARD_BP;
  c->recompute = !c->lengths && !c->bidirectional && one_in(p, 3) ? roll(&p->d, 1, 4) : 0;
}

/* A batch of at most the planned size, with what it may have. */
static void draw_batch(problem *p, uint64_t seed) {
  const bppsa_recurrent_config *c = &p->config;
  const int64_t state = p->r[0].h0.shape[2], sides = p->r[0].h0.shape[0], outputs = outputs_of(c);
  p->batch = roll(&p->d, 1, c->batch);
  p->x = random_view(c->dtype, seed, 3, (int64_t[]){c->seq_len, p->batch, c->input});
  p->h0 = random_view(c->dtype, seed + 1, 3, (int64_t[]){sides, p->batch, state});
  p->seed = c->loss_all ? random_view(c->dtype, seed + 2, 3, (int64_t[]){c->seq_len, p->batch, outputs})
                        : random_view(c->dtype, seed + 2, 2, (int64_t[]){p->batch, outputs});
  p->resets = bppsa_calloc(c->seq_len * p->batch, 1);
  assert_non_null(p->resets);
  for (int64_t i = 0; i < c->seq_len * p->batch; ++i) {
    p->resets[i] = one_in(p, 5);
  }
  for (int64_t b = 0; b < p->batch; ++b) {
    p->lengths[b] = roll(&p->d, 1, c->seq_len);
    p->samples[b] = roll(&p->d, 0, 1000);
  }
}

static void drop_batch(problem *p) {
  bppsa_free(p->x.data);
  bppsa_free(p->h0.data);
  bppsa_free(p->seed.data);
  bppsa_free(p->resets);
}

static void go_forward(problem *p) {
  const bppsa_recurrent_config *c = &p->config;
  const bool begins = one_in(p, 2), ragged = c->lengths && !one_in(p, 4), resets = c->resets && !one_in(p, 4),
             drops = !one_in(p, 3);
  const bppsa_view mask = bppsa_view_make(p->resets, BPPSA_U8, 2, (int64_t[]){c->seq_len, p->batch});
  const bppsa_spans spans = {.lengths = ragged ? p->lengths : NULL, .resets = resets ? &mask : NULL};
  for (int k = 0; k < NETWORKS; ++k) {
    run *r = &p->r[k];
    bppsa_model_drop(r->model, 3, drops ? p->samples : NULL);
    assert_int_equal(bppsa_model_forward(r->model, &p->x, begins ? &p->h0 : NULL, &spans, &r->logits), BPPSA_OK);
    assert_same_bits(&r->logits, &p->r[0].logits);
  }
}

/* Weight gradients beside those of the plain cells: sums of as many terms, over the largest entry. */
static void check_weights(const problem *p) {
  const bppsa_recurrent_config *c = &p->config;
  const double eps = c->dtype == BPPSA_F32 ? (double)FLT_EPSILON : DBL_EPSILON;
  for (int64_t i = 0; i < p->r[0].model->parameter_count; ++i) {
    const bppsa_view *got = &p->r[ONE_THREAD].model->parameters[i].gradient,
                     *expected = &p->r[PLAIN].model->parameters[i].gradient;
    double most = 0, difference = 0;
    assert_same_bits(got, &p->r[SEVERAL].model->parameters[i].gradient);
    for (int64_t j = 0; j < bppsa_view_count(got); ++j) {
      most = fmax(most, fabs(bppsa_view_get(expected, j)));
      difference = fmax(difference, fabs(bppsa_view_get(got, j) - bppsa_view_get(expected, j)));
    }
    if (!(difference <= 8 * sqrt((double)(c->seq_len * p->batch)) * eps * most)) {
      fail_msg("%s, H %d, B %d: %s differs by %g of %g", p->plain.name, (int)c->hidden, (int)p->batch,
               p->r[0].model->parameters[i].name, difference, most);
    }
  }
}

static void go_back(problem *p) {
  for (int k = 0; k < NETWORKS; ++k) {
    run *r = &p->r[k];
    assert_int_equal(r->model->ops->backward(r->model, &p->seed), BPPSA_OK);
    assert_int_equal(r->model->ops->input_gradients(r->model, &r->dx, &r->dh0), BPPSA_OK);
    assert_same_bits(&r->dx, &p->r[0].dx);
    assert_same_bits(&r->dh0, &p->r[0].dh0);
    assert_same_bits(&r->logits, &p->r[0].logits);
  }
  check_weights(p);
}

static void check_case(uint64_t seed) {
  const bppsa_cell *cell = cells[seed % CELLS];
  problem *p = bppsa_calloc(1, sizeof *p);
  assert_non_null(p);
  p->d.seed = seed;
  draw_config(p, cell);
  assert_true(cell->takes_panels);
  p->plain = *cell;
  p->plain.takes_panels = false;
  p->r[ONE_THREAD] = open_run(cell, &p->config, 1, 1);
  p->r[SEVERAL] = open_run(cell, &p->config, 1, roll(&p->d, 2, 3));
  p->r[PLAIN] = open_run(&p->plain, &p->config, 1, 1);
  for (uint64_t pass = 0; pass < 3; ++pass) {
    draw_batch(p, 100 * seed + 10 * pass);
    go_forward(p);
    for (int64_t backward = roll(&p->d, 0, 2); backward > 0; --backward) {
      go_back(p);
    }
    drop_batch(p);
  }
  for (int k = 0; k < NETWORKS; ++k) {
    close_run(&p->r[k]);
  }
  bppsa_free(p);
}

static void test_random(void **state) {
  (void)state;
  const uint64_t cases = at_full_length() ? 600 : 12;
  for (uint64_t seed = 0; seed < cases; ++seed) {
    check_case(seed);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

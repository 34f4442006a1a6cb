/* Speculative backward passes of ranks that share a batch: gradients, statistics and states have the same bits on every number of
 * ranks, also where one block of samples is given up and the others are not. */
#include "distributed/batch/data_parallel.h"
#include "gru/gru.h"
#include "rnn/rnn.h"
#include "tests/comm/cases.h"
#include "tests/recurrent/passes.h"

enum { BATCH = 56, PASSES = 5, MOST_RANKS = 4, STEPS = 96, HIDDEN = 6, MOST_GRADIENTS = 6 };

typedef struct {
  const bppsa_cell *cell;
  bppsa_recurrent_config config;
  run whole;
  bool known; /* what follows is */
  double gradients[PASSES][MOST_GRADIENTS][HIDDEN * HIDDEN * 3];
  bppsa_backward_stats stats[PASSES];
  bppsa_backward_state states[PASSES];
} expectation;

typedef struct {
  const expectation *e;
  bppsa_model *model;
} block_of;

/* Samples of rows [T][BATCH][width]. */
static bppsa_view samples_of(const bppsa_view *whole, int64_t first, int64_t count) {
  const size_t row = bppsa_view_bytes(whole) / (size_t)(whole->shape[0] * whole->shape[1]);
  bppsa_view part = bppsa_view_make(NULL, whole->dtype, 3, (int64_t[]){whole->shape[0], count, whole->shape[2]});
  part.data = bppsa_calloc((int64_t)bppsa_view_bytes(&part) + 1, 1);
  for (int64_t t = 0; t < whole->shape[0]; ++t) {
    memcpy((char *)part.data + (size_t)(t * count) * row, (const char *)whole->data + (size_t)(t * BATCH + first) * row,
           (size_t)count * row);
  }
  return part;
}

static bppsa_status compute_block(void *context, int64_t first, int64_t count, bppsa_data_parallel_sums *sums) {
  const block_of *b = context;
  const bppsa_view x = samples_of(&b->e->whole.x, first, count), seed = samples_of(&b->e->whole.seed, first, count);
  bppsa_view logits;
  bppsa_status status = b->model->ops->forward(b->model, &x, NULL, &logits);
  status = status == BPPSA_OK ? b->model->ops->backward(b->model, &seed) : status;
  bppsa_free(x.data);
  bppsa_free(seed.data);
  sums->rows = (double)count;
  return status;
}

static bool same_stats(const bppsa_backward_stats *a, const bppsa_backward_stats *b) {
  return a->speculated == b->speculated && a->given_up == b->given_up && a->passes == b->passes && a->path == b->path &&
         a->possible == b->possible && a->work == b->work && a->rounds == b->rounds && a->mended == b->mended &&
         a->gap == b->gap && a->perturbation == b->perturbation;
}

/* One rank, which comes first, says what is expected. */
static bppsa_status check_pass(expectation *e, bppsa_model *m, int pass) {
  bppsa_backward_stats stats;
  bppsa_backward_state state;
  BPPSA_TRY(bppsa_backward_stats_of(m, &stats));
  BPPSA_TRY(bppsa_backward_state_get(m, &state));
  for (int64_t i = 0; i < m->parameter_count; ++i) {
    const bppsa_view *g = &m->parameters[i].gradient;
    for (int64_t j = 0; j < bppsa_view_count(g); ++j) {
      const double got = bppsa_view_get(g, j);
      double *expected = &e->gradients[pass][i][j];
      if (!e->known) {
        *expected = got;
      }
      CHECK(memcmp(&got, expected, sizeof got) == 0 || (isnan(got) && isnan(*expected)));
    }
  }
  if (!e->known) {
    e->stats[pass] = stats;
    e->states[pass] = state;
  }
  const bppsa_backward_state *s = &e->states[pass];
  CHECK(same_stats(&stats, &e->stats[pass]));
  CHECK(state.warm_up == s->warm_up && state.pause.failures == s->pause.failures && state.pause.left == s->pause.left);
  return BPPSA_OK;
}

static bppsa_status compute_rank(bppsa_comm *comm, void *context) {
  expectation *e = context;
  bppsa_device *device = NULL;
  bppsa_data_parallel *dp = NULL;
  block_of b = {.e = e};
  bppsa_data_parallel_config config = bppsa_data_parallel_config_default();
  config.batch = BATCH;
  bppsa_status status = bppsa_device_create("cpu", 1, &device);
  status = status == BPPSA_OK ? bppsa_recurrent_create(&e->config, e->cell, device, &b.model) : status;
  for (int64_t i = 0; status == BPPSA_OK && i < b.model->parameter_count; ++i) {
    const bppsa_view *from = &e->whole.model->parameters[i].value;
    memcpy(b.model->parameters[i].value.data, from->data, bppsa_view_bytes(from));
  }
  status = status == BPPSA_OK ? bppsa_data_parallel_create(comm, b.model, &config, &dp) : status;
  for (int pass = 0; status == BPPSA_OK && pass < PASSES; ++pass) {
    bppsa_data_parallel_sums sums;
    status = bppsa_data_parallel_compute(dp, BATCH, compute_block, &b, &sums);
    status = status == BPPSA_OK ? check_pass(e, b.model, pass) : status;
  }
  bppsa_data_parallel_destroy(dp);
  bppsa_model_destroy(b.model);
  bppsa_device_destroy(device);
  return status;
}

static expectation make(const bppsa_cell *cell) {
  expectation e = {.cell = cell, .config = bppsa_recurrent_config_default()};
  bppsa_recurrent_config *c = &e.config;
  c->seq_len = STEPS;
  c->batch = BATCH;
  c->input = 2;
  c->hidden = HIDDEN;
  c->classes = 3;
  c->loss_all = true;
  c->method.backward = BPPSA_BACKWARD_SPECULATIVE;
  c->speculation.chunks = 5;
  c->speculation.warm_up = 3;
  e.whole = open_run(cell, c, BATCH, 1);
  c->batch = BPPSA_DATA_PARALLEL_BLOCK;
  return e;
}

static void compute_all(expectation *e) {
  for (int64_t ranks = 1; ranks <= MOST_RANKS; ++ranks) {
    const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
    if (bppsa_comm_run(&config, compute_rank, e, NULL) != BPPSA_OK) {
      fail_msg("%d ranks: %s", (int)ranks, bppsa_last_error());
    }
    e->known = true;
  }
}

static void test_ranks(void **state) {
  (void)state;
  static expectation e; /* large */
  e = make(&bppsa_rnn_cell);
  e.config.speculation.warm_up = -1; /* it follows what passes show */
  e.config.speculation.adapts = true;
  compute_all(&e);
  assert_true(e.states[PASSES - 1].warm_up > 0);
  close_run(&e.whole);
  e = make(&bppsa_gru_cell);
  compute_all(&e);
  assert_true(e.stats[0].speculated && !e.stats[0].given_up && e.stats[0].mended > 10 && e.stats[0].work > 1.1);
  close_run(&e.whole);
}

/* A number that is not finite, in one sample: its block alone is BP, but all blocks pause, as one batch does. */
static void test_given_up(void **state) {
  (void)state;
  static expectation e;
  e = make(&bppsa_rnn_cell);
  bppsa_view_set(&e.whole.seed, (50 * BATCH + 20) * 3, INFINITY);
  compute_all(&e);
  assert_true(e.stats[0].given_up && e.stats[2].given_up && !e.stats[3].speculated && e.states[4].pause.left == 98);
  assert_true(e.stats[0].mended > 10);
  close_run(&e.whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks), cmocka_unit_test(test_given_up)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

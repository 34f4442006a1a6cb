/* Speculative forward passes of networks cut along time: for every number of ranks the states, statistics and pauses of one device,
 * bit for bit, and what the ranks say when one of them dies. */
#include <math.h>

#include "distributed/split_time.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/comm/cases.h"
#include "tests/recurrent/forward_problem.h"

enum { PASSES = 5, MOST_RANKS = 8 };

/* What a network on one device does with the same numbers in every pass. */
typedef struct {
  const forward_problem *p;
  bppsa_model *weights;
  double *x, *h0;
  double *h[PASSES][MOST_LAYERS]; /* [T][B][H]; with tolerance 0 or in a pause a pass has other bits than the one before it */
  double *c[PASSES][MOST_LAYERS]; /* likewise of pairs, otherwise NULL */
  bppsa_forward_plan plan;
  bppsa_forward_stats stats[PASSES];
  bppsa_forward_pause pauses[PASSES];
  int64_t groups;
} expectation;

static expectation expect_passes(const forward_problem *p) {
  expectation e = {.p = p, .groups = 1};
  bppsa_device *device = cpu_device(1);
  forward_run run = run_forward(p, device);
  for (int pass = 0; pass < PASSES; ++pass) {
    e.stats[pass] = run.stats;
    assert_int_equal(bppsa_forward_pause_get(run.model, &e.pauses[pass]), BPPSA_OK);
    for (int64_t l = 0; l < p->config.layers; ++l) {
      e.h[pass][l] = bppsa_calloc(run.count, sizeof(double));
      memcpy(e.h[pass][l], run.h[l], (size_t)run.count * sizeof(double));
      e.c[pass][l] = p->cell->pair ? bppsa_calloc(run.count, sizeof(double)) : NULL;
      if (p->cell->pair) {
        memcpy(e.c[pass][l], run.c[l], (size_t)run.count * sizeof(double));
      }
    }
    pass_forward(p, &run, device);
  }
  e.plan = run.plan;
  e.weights = run.model;
  e.x = run.x;
  e.h0 = run.h0;
  run.model = NULL;
  run.x = run.h0 = NULL;
  free_run(&run, device);
  bppsa_device_destroy(device);
  return e;
}

static void free_expectation(expectation *e) {
  bppsa_model_destroy(e->weights);
  bppsa_free(e->x);
  bppsa_free(e->h0);
  for (int pass = 0; pass < PASSES; ++pass) {
    for (int64_t l = 0; l < MOST_LAYERS; ++l) {
      bppsa_free(e->h[pass][l]);
      bppsa_free(e->c[pass][l]);
    }
  }
}

/* ---- a rank ---- */

typedef struct {
  bppsa_model *model;
  bppsa_device *device;
  int64_t first, steps;
  void *x, *h0; /* in the network's type */
} part;

static void *numbers_of(bppsa_dtype dtype, const double *from, int64_t count) {
  void *to = bppsa_calloc(count + 1, bppsa_dtype_size(dtype));
  const bppsa_view view = bppsa_view_make(to, dtype, 1, &count);
  for (int64_t i = 0; to != NULL && i < count; ++i) {
    bppsa_view_set(&view, i, from[i]);
  }
  return to;
}

static bppsa_status make_part(bppsa_comm *comm, const expectation *e, part *r) {
  const bppsa_recurrent_config *c = &e->p->config;
  const bppsa_split_time split = {.comm = comm, .tag = 3, .micro_batches = e->groups};
  const int64_t row = c->batch * c->input;
  *r = (part){0};
  bppsa_ranks_share(c->seq_len, bppsa_comm_size(comm), bppsa_comm_rank(comm), &r->first, &r->steps);
  r->x = numbers_of(c->dtype, e->x + r->first * row, r->steps * row);
  r->h0 = numbers_of(c->dtype, e->h0, c->layers * c->batch * forward_state(e->p));
  CHECK(r->x != NULL && r->h0 != NULL);
  BPPSA_TRY(bppsa_device_create("cpu", 1, &r->device));
  BPPSA_TRY(bppsa_split_time_create(&split, c, e->p->cell, r->device, &r->model));
  for (int64_t i = 0; i < r->model->parameter_count; ++i) {
    const bppsa_view *to = &r->model->parameters[i].value, *from = &e->weights->parameters[i].value;
    memcpy(to->data, from->data, bppsa_view_bytes(to));
  }
  return BPPSA_OK;
}

static void free_part(part *r) {
  bppsa_model_destroy(r->model);
  bppsa_device_destroy(r->device);
  bppsa_free(r->x);
  bppsa_free(r->h0);
}

static bppsa_status pass_part(const expectation *e, const part *r) {
  const bppsa_recurrent_config *c = &e->p->config;
  const bppsa_view x = bppsa_view_make(r->x, c->dtype, 3, (int64_t[]){r->steps, c->batch, c->input});
  const bppsa_view h0 = bppsa_view_make(r->h0, c->dtype, 3, (int64_t[]){c->layers, c->batch, forward_state(e->p)});
  bppsa_view logits;
  return r->model->ops->forward(r->model, &x, e->p->from_zero ? NULL : &h0, &logits);
}

static bool same_stats(const bppsa_forward_stats *a, const bppsa_forward_stats *b) {
  return a->speculated == b->speculated && a->passes == b->passes && a->path == b->path && a->possible == b->possible &&
         a->work == b->work && a->rounds == b->rounds && a->mended == b->mended && a->reseeded == b->reseeded &&
         a->tails == b->tails && a->gap == b->gap;
}

static bool same_numbers(const bppsa_view *numbers, const double *expected) {
  for (int64_t i = 0; i < bppsa_view_count(numbers); ++i) {
    const double got = bppsa_view_get(numbers, i);
    if (memcmp(&got, &expected[i], sizeof got) != 0 && !(isnan(got) && isnan(expected[i]))) {
      return false;
    }
  }
  return true;
}

/* Are the states of this rank's steps those of one device? With one group alone. */
static bool same_states(const expectation *e, const part *r, int pass) {
  const bppsa_recurrent_config *c = &e->p->config;
  const bppsa_model *inner = r->model->ops->inner(r->model);
  const int64_t before = r->first * c->batch * c->hidden;
  for (int64_t l = 0; l < c->layers; ++l) {
    bppsa_view view;
    if (bppsa_recurrent_states(inner, l, &view) != BPPSA_OK || !same_numbers(&view, e->h[pass][l] + before)) {
      return false;
    }
    if (e->p->cell->pair &&
        (bppsa_recurrent_cell_states(inner, l, &view) != BPPSA_OK || !same_numbers(&view, e->c[pass][l] + before))) {
      return false;
    }
  }
  return true;
}

static bppsa_status check_pass(const expectation *e, const part *r, int pass) {
  bppsa_forward_stats stats;
  bppsa_forward_pause pause;
  if (r->steps == 0) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_forward_stats_of(r->model, &stats));
  BPPSA_TRY(bppsa_forward_pause_get(r->model, &pause));
  if (!same_stats(&stats, &e->stats[pass])) {
    const bppsa_forward_stats *b = &e->stats[pass];
    return bppsa_fail(BPPSA_ERR_NUMERIC,
                      "pass %d: path %d, work %.17g, rounds %d, mended %d, reseeded %d, tails %d, gap %g, expected path %d, work "
                      "%.17g, rounds %d, mended %d, reseeded %d, tails %d, gap %g",
                      pass, (int)stats.path, stats.work, (int)stats.rounds, (int)stats.mended, (int)stats.reseeded,
                      (int)stats.tails, stats.gap, (int)b->path, b->work, (int)b->rounds, (int)b->mended, (int)b->reseeded,
                      (int)b->tails, b->gap);
  }
  CHECK(pause.failures == e->pauses[pass].failures && pause.left == e->pauses[pass].left);
  return e->groups > 1 || same_states(e, r, pass) ? BPPSA_OK : bppsa_fail(BPPSA_ERR_NUMERIC, "pass %d: other bits", pass);
}

static bppsa_status compare_rank(bppsa_comm *comm, void *context) {
  const expectation *e = context;
  part r;
  bppsa_status status = make_part(comm, e, &r);
  if (status == BPPSA_OK) {
    const bppsa_forward_plan *plan = bppsa_forward_plan_of(r.model);
    status = plan != NULL && plan->speculative == e->plan.speculative && plan->chunks == e->plan.chunks &&
                     plan->warm_up == e->plan.warm_up && plan->rounds == e->plan.rounds && plan->accept == e->plan.accept &&
                     plan->stop == e->plan.stop && plan->most_work == e->plan.most_work
                 ? BPPSA_OK
                 : bppsa_fail(BPPSA_ERR_NUMERIC, "another plan");
  }
  for (int pass = 0; status == BPPSA_OK && pass < PASSES; ++pass) {
    status = pass_part(e, &r);
    status = status == BPPSA_OK ? check_pass(e, &r, pass) : status;
  }
  free_part(&r);
  return status;
}

static void run_on(const expectation *e, int64_t ranks) {
  const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
  expectation copy = *e;
  if (bppsa_comm_run(&config, compare_rank, &copy, NULL) != BPPSA_OK) {
    const forward_problem *p = e->p;
    const bppsa_recurrent_config *c = &p->config;
    fail_msg("seed %d, %d ranks, %d groups: %s T %d H %d B %d L %d, chunks %d, warm-up %d, rounds %d, tolerance %g: %s",
             (int)p->seed, (int)ranks, (int)e->groups, p->cell->name, (int)c->seq_len, (int)c->hidden, (int)c->batch,
             (int)c->layers, (int)e->plan.chunks, (int)e->plan.warm_up, (int)e->plan.rounds, e->plan.accept, bppsa_last_error());
  }
}

/* ---- random networks ---- */

static int64_t pick(uint64_t *state, int64_t least, int64_t most) {
  return least + (int64_t)(next_random(state) % (uint64_t)(most - least + 1));
}

static forward_problem random_problem(uint64_t seed) {
  uint64_t state = seed;
  forward_problem p = forward_problem_default();
  bppsa_recurrent_config *c = &p.config;
  const bool gru = pick(&state, 0, 1) == 1;
  p.cell = seed % 3 == 0 ? &bppsa_lstm_cell : gru ? &bppsa_gru_cell : &bppsa_rnn_cell;
  c->hidden = pick(&state, 1, 9);
  c->batch = pick(&state, 1, 4);
  c->seq_len = pick(&state, 0, 3) == 0 ? pick(&state, 2, 20) : pick(&state, 21, 400);
  c->layers = pick(&state, 1, 2);
  c->input = pick(&state, 1, 3);
  c->dtype = pick(&state, 0, 1) == 1 ? BPPSA_F64 : BPPSA_F32;
  c->nonlinearity = p.cell->relu && pick(&state, 0, 3) == 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  c->forward.chunks = pick(&state, 2, 24);
  c->forward.warm_up = pick(&state, 0, 3) > 0 ? pick(&state, 0, 60) : -1;
  c->forward.rounds = pick(&state, 0, 1) == 1 ? pick(&state, 0, 6) : -1;
  c->forward.tolerance = (const double[]){-1, -1, 0, 1e-3}[pick(&state, 0, 3)];
  p.seed = seed;
  p.scale = pow(10, (double)pick(&state, -2, 4) / 4);
  p.orthogonal = pick(&state, 0, 3) == 0;
  p.from_zero = pick(&state, 0, 1) == 1;
  p.spoiled = pick(&state, 0, 3) == 0 ? pick(&state, 1, 3) : 0;
  for (int64_t i = 0; i < p.spoiled; ++i) {
    p.spoils[i] = (const double[]){NAN, 1e30, -1e30}[pick(&state, 0, 2)];
    p.places[i] = (int64_t)(next_random(&state) >> 1);
  }
  return p;
}

/* Every number of ranks in turn, up to more than there are chunks and more than there are steps. */
static void test_random(void **state) {
  (void)state;
  enum { CONFIGURATIONS = 150 };
  static const int64_t rank_counts[] = {1, 2, 3, 4, 8, 5, 13};
  int64_t mended = 0, reseeded = 0, tails = 0, spoiled = 0, paused = 0, untouched = 0;
  for (int64_t i = 0; i < CONFIGURATIONS; ++i) {
    const forward_problem p = random_problem(500 + (uint64_t)i);
    expectation e = expect_passes(&p);
    run_on(&e, rank_counts[i % 7]);
    run_on(&e, rank_counts[(i + 3) % 7]);
    const bppsa_forward_stats *f = &e.stats[0];
    mended += f->mended > 0;
    untouched += f->speculated && f->mended == 0;
    reseeded += f->reseeded > 0;
    tails += f->tails > 0;
    spoiled += p.spoiled > 0;
    paused += !e.stats[PASSES - 1].speculated;
    free_expectation(&e);
  }
  const int64_t least = CONFIGURATIONS / 20;
  assert_true(mended > least && untouched > least && reseeded > least && tails > least && spoiled > least && paused > least);
}

/* ---- lanes that cross borders ---- */

/* One unit with two stable states, as in test_recurrent_forward: chunk 1 of 10 is mended to its end, which shows that the guesses
 * behind it are wrong. Borders between ranks are in chunk 1 (8 and 17 ranks), at its ends (10 ranks), in front of it and behind it;
 * with 17 ranks a chunk has steps on three of them. */
static void test_two_basins(void **state) {
  (void)state;
  static const int64_t rank_counts[] = {1, 2, 3, 4, 7, 8, 10, 17};
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.config.hidden = p.config.batch = 1;
  p.config.forward.chunks = 10;
  p.config.forward.warm_up = 50;
  bppsa_device *device = cpu_device(1);
  bppsa_model *weights = make_forward_model(&p, device);
  for (int64_t i = 0; i < weights->parameter_count; ++i) {
    for (int64_t k = 0; k < bppsa_view_count(&weights->parameters[i].value); ++k) {
      bppsa_view_set(&weights->parameters[i].value, k, i == 1 ? 2 : 0);
    }
  }
  p.weights = weights;
  for (int rounds = 0; rounds < 2; ++rounds) { /* without rounds the tail mends */
    p.config.forward.rounds = rounds == 0 ? -1 : 0;
    expectation e = expect_passes(&p);
    assert_int_equal(e.stats[0].reseeded, rounds == 0);
    assert_int_equal(e.stats[0].tails, rounds != 0);
    assert_true(e.stats[0].mended >= 1);
    for (size_t i = 0; i < sizeof rank_counts / sizeof rank_counts[0]; ++i) {
      run_on(&e, rank_counts[i]);
    }
    free_expectation(&e);
  }
  bppsa_model_destroy(weights);
  bppsa_device_destroy(device);
}

/* Groups of samples: their passes count as one, the same for every number of ranks, and failing ones pause together. */
static void test_groups(void **state) {
  (void)state;
  for (int chaotic = 0; chaotic < 2; ++chaotic) {
    forward_problem p = forward_problem_default();
    p.cell = chaotic ? &bppsa_rnn_cell : &bppsa_lstm_cell;
    p.scale = chaotic ? 8 : 1;
    p.config.batch = 3;
    p.config.seq_len = 300;
    p.config.forward.chunks = 6;
    p.config.forward.rounds = 2;
    expectation e = expect_passes(&p);
    assert_true(e.stats[PASSES - 1].speculated == !chaotic && (e.stats[0].tails > 0) == chaotic);
    for (e.groups = 2; e.groups <= 3; ++e.groups) {
      for (int64_t ranks = 1; ranks <= 4; ++ranks) {
        run_on(&e, ranks);
      }
    }
    free_expectation(&e);
  }
}

/* ---- AUTO ---- */

/* AUTO is what it is on one device: speculative with one sample and a long sequence, up to the work that pays. */
static void test_auto(void **state) {
  (void)state;
  for (int64_t batch = 1; batch <= 16; batch += 15) {
    forward_problem p = forward_problem_default();
    p.cell = &bppsa_rnn_cell;
    p.config.seq_len = 3000 / batch;
    p.config.hidden = 8;
    p.config.batch = batch;
    p.config.forward.kind = BPPSA_FORWARD_AUTO;
    expectation e = expect_passes(&p);
    assert_true(e.plan.speculative == (batch == 1) && isfinite(e.plan.most_work) == (batch == 1));
    run_on(&e, 3);
    free_expectation(&e);
  }
}

/* ---- ranks that die ---- */

typedef struct {
  const expectation *e;
  int64_t die_at;
} fault;

static bppsa_status dies(bppsa_comm *comm, void *context) {
  const fault *f = context;
  part r;
  bppsa_status status = make_part(comm, f->e, &r);
  if (status == BPPSA_OK && bppsa_comm_rank(comm) == 1) {
    bppsa_comm_set_fault(comm, &(bppsa_comm_fault){.die_at = f->die_at});
  }
  status = status == BPPSA_OK ? pass_part(f->e, &r) : status;
  free_part(&r);
  return status;
}

/* At every operation of a pass that mends, begins anew and ends in a tail: one line names the rank, and nothing is left behind. */
static void test_deaths(void **state) {
  (void)state;
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.scale = 8;
  p.config.batch = 2;
  p.config.seq_len = 200;
  p.config.forward.chunks = 12;
  p.config.forward.warm_up = 10;
  expectation e = expect_passes(&p);
  assert_true(e.stats[0].reseeded > 0 && e.stats[0].tails > 0 && e.stats[0].rounds > 1);
  fault f = {.e = &e};
  const int64_t blocks = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_COMM;
  for (f.die_at = 1; status != BPPSA_OK && f.die_at < 200; ++f.die_at) {
    const bppsa_comm_config config = {.ranks = 3, .timeout = 20};
    bppsa_comm_outcome outcome;
    status = bppsa_comm_run(&config, dies, &f, &outcome);
    assert_int_equal(bppsa_alloc_live(), blocks);
    if (status != BPPSA_OK) {
      assert_true(outcome.rank == 1 && outcome.left_behind == 0);
      assert_non_null(strstr(bppsa_last_error(), "the forward pass along time"));
      assert_null(strchr(bppsa_last_error(), '\n'));
    }
  }
  assert_in_range(f.die_at, 20, 199);
  free_expectation(&e);
}

/* ---- what is refused, and no memory ---- */

static bppsa_status differs(bppsa_comm *comm, void *context) {
  const bool tolerance = *(const bool *)context;
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  const bppsa_split_time split = {.comm = comm, .micro_batches = 1};
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  c.forward.kind = BPPSA_FORWARD_SPECULATIVE;
  if (bppsa_comm_rank(comm) == 1) {
    c.forward.tolerance = tolerance ? 1e-3 : -1;
    c.forward.warm_up = tolerance ? -1 : 7;
  }
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  CHECK(bppsa_split_time_create(&split, &c, &bppsa_rnn_cell, device, &model) == BPPSA_ERR_ARGUMENT && model == NULL);
  CHECK(
      strstr(bppsa_last_error(), tolerance ? "its tolerance (bits) is" : "its warm-up is 7 on rank 1, expected -1 as on rank 0"));
  c.part = (bppsa_forward_part){.first = 1, .seq_len = 1000};
  CHECK(bppsa_recurrent_create(&c, &bppsa_rnn_cell, device, &model) == BPPSA_ERR_ARGUMENT);
  CHECK(strstr(bppsa_last_error(), "steps 2 .. 1001 of a sequence of 1000, expected a part of it") != NULL);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static void test_refused(void **state) {
  (void)state;
  for (int i = 0; i < 2; ++i) {
    bool tolerance = i == 1;
    const bppsa_comm_config config = {.ranks = 2, .timeout = 60};
    if (bppsa_comm_run(&config, differs, &tolerance, NULL) != BPPSA_OK) {
      fail_msg("%s", bppsa_last_error());
    }
  }
}

static void test_memory_runs_out(void **state) {
  (void)state;
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_gru_cell;
  p.config.seq_len = 50;
  p.config.hidden = 3;
  p.config.forward.chunks = 5;
  p.config.forward.warm_up = 12;
  expectation e = expect_passes(&p);
  const bppsa_comm_config config = {.ranks = 2, .timeout = 60};
  fault f = {.e = &e};
  const int64_t blocks = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t call = 1;
  for (; status != BPPSA_OK && call < 1000; ++call) {
    bppsa_alloc_fail_once(call);
    status = bppsa_comm_run(&config, dies, &f, NULL);
    assert_int_equal(bppsa_alloc_live(), blocks);
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_MEMORY || strstr(bppsa_last_error(), "not so") != NULL);
  }
  bppsa_alloc_fail_at(0);
  assert_in_range(call, 50, 999);
  free_expectation(&e);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),         cmocka_unit_test(test_two_basins),
                                     cmocka_unit_test(test_groups),         cmocka_unit_test(test_auto),
                                     cmocka_unit_test(test_deaths),         cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_memory_runs_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Speculative backward passes of networks cut along time: for every number of ranks the gradients, statistics and states of one
 * device, bit for bit. Weight gradients of one device are summed in another order; those of one rank are the same. */
#include "comm/comm.h"
#include "distributed/time/split_time.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/comm/cases.h"
#include "tests/recurrent/passes.h"
#include "tests/support/dice.h"

enum { PASSES = 5, MOST_RANKS = 5, MOST_GRADIENTS = 16 };

static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
enum { CELLS = sizeof cells / sizeof *cells };

/* What passes of a network on one device do, and of a network on one rank. */
typedef struct {
  const bppsa_cell *cell;
  bppsa_recurrent_config config;
  run whole;
  int64_t samples, groups;
  bppsa_backward_state resumed; /* before the first pass */
  bppsa_view dx[PASSES], dh0[PASSES];
  bppsa_backward_stats stats[PASSES];
  bppsa_backward_state states[PASSES];
  bppsa_view weights[PASSES][MOST_GRADIENTS];
  bool known; /* weights are */
} expectation;

static bppsa_view copy_view(const bppsa_view *view) {
  bppsa_view copy = *view;
  copy.data = bppsa_calloc((int64_t)bppsa_view_bytes(view) + 1, 1);
  memcpy(copy.data, view->data, bppsa_view_bytes(view));
  return copy;
}

static bool same_bytes(const bppsa_view *a, const bppsa_view *b) {
  return bppsa_view_bytes(a) == bppsa_view_bytes(b) && memcmp(a->data, b->data, bppsa_view_bytes(a)) == 0;
}

static expectation expect_passes(const bppsa_cell *cell, const bppsa_recurrent_config *c, double scale, int64_t groups) {
  expectation e = {.cell = cell, .config = *c, .samples = c->batch, .groups = groups};
  e.whole = open_run(cell, c, c->batch, 1);
  for (int64_t i = 0; i < e.whole.model->parameter_count; ++i) {
    const bppsa_parameter *p = &e.whole.model->parameters[i];
    if (strstr(p->name, "weight_hh") != NULL) {
      bppsa_view_scale(&p->value, scale);
    }
  }
  return e;
}

static void compute_whole(expectation *e) {
  bppsa_model *m = e->whole.model;
  assert_int_equal(bppsa_backward_state_set(m, &e->resumed), BPPSA_OK);
  for (int pass = 0; pass < PASSES; ++pass) {
    assert_int_equal(bppsa_model_forward(m, &e->whole.x, &e->whole.h0, NULL, &e->whole.logits), BPPSA_OK);
    assert_int_equal(m->ops->backward(m, &e->whole.seed), BPPSA_OK);
    assert_int_equal(m->ops->input_gradients(m, &e->whole.dx, &e->whole.dh0), BPPSA_OK);
    e->dx[pass] = copy_view(&e->whole.dx);
    e->dh0[pass] = copy_view(&e->whole.dh0);
    assert_int_equal(bppsa_backward_stats_of(m, &e->stats[pass]), BPPSA_OK);
    assert_int_equal(bppsa_backward_state_get(m, &e->states[pass]), BPPSA_OK);
  }
}

static void free_expectation(expectation *e) {
  for (int pass = 0; pass < PASSES; ++pass) {
    bppsa_free(e->dx[pass].data);
    bppsa_free(e->dh0[pass].data);
    for (int i = 0; i < MOST_GRADIENTS; ++i) {
      bppsa_free(e->weights[pass][i].data);
    }
  }
  close_run(&e->whole);
}

/* ---- a rank ---- */

typedef struct {
  bppsa_model *model;
  bppsa_device *device;
  int64_t first, steps;
  bool has_head;
} part;

static bppsa_status make_part(bppsa_comm *comm, const expectation *e, part *r) {
  const bppsa_recurrent_config *c = &e->config;
  bppsa_ranks_share(c->seq_len, bppsa_comm_size(comm), bppsa_comm_rank(comm), &r->first, &r->steps);
  r->has_head = r->steps > 0 && (c->loss_all || bppsa_comm_rank(comm) == 0);
  BPPSA_TRY(bppsa_device_create("cpu", 1 + bppsa_comm_rank(comm) % 2, &r->device));
  const bppsa_split_time split = {.comm = comm, .tag = 3, .micro_batches = e->groups};
  BPPSA_TRY(bppsa_split_time_create(&split, c, e->cell, r->device, &r->model));
  for (int64_t i = 0; i < r->model->parameter_count; ++i) {
    const bppsa_view *from = &e->whole.model->parameters[i].value;
    memcpy(r->model->parameters[i].value.data, from->data, bppsa_view_bytes(from));
  }
  return BPPSA_OK;
}

static bppsa_status pass_part(const expectation *e, const part *r) {
  const bool all = e->config.loss_all;
  const bppsa_view x = rows_of(&e->whole.x, r->first, r->steps);
  bppsa_view logits, seed = all ? rows_of(&e->whole.seed, r->first, r->steps) : e->whole.seed;
  seed.shape[0] = all || r->has_head ? seed.shape[0] : 0;
  BPPSA_TRY(r->model->ops->forward(r->model, &x, &e->whole.h0, &logits));
  return r->model->ops->backward(r->model, &seed);
}

static bppsa_status check_inputs(const expectation *e, const part *r, int pass) {
  bppsa_view dx, dh0;
  BPPSA_TRY(r->model->ops->input_gradients(r->model, &dx, &dh0));
  const bppsa_view expected = rows_of(&e->dx[pass], r->first, r->steps);
  for (int64_t i = 0; i < bppsa_view_count(&dx); ++i) {
    if (bppsa_view_get(&dx, i) != bppsa_view_get(&expected, i) && !isnan(bppsa_view_get(&expected, i))) {
      return bppsa_fail(BPPSA_ERR_NUMERIC, "pass %d: dx of step %d is %.9g, expected %.9g", pass,
                        (int)(r->first + 1 + i / (dx.shape[1] * dx.shape[2])), bppsa_view_get(&dx, i),
                        bppsa_view_get(&expected, i));
    }
  }
  CHECK(r->first > 0 || r->steps == 0 || same_bytes(&dh0, &e->dh0[pass]));
  return BPPSA_OK;
}

static bppsa_status check_stats(const expectation *e, const part *r, int pass) {
  bppsa_backward_stats a;
  bppsa_backward_state state;
  const bppsa_backward_stats *b = &e->stats[pass];
  BPPSA_TRY(bppsa_backward_stats_of(r->model, &a));
  BPPSA_TRY(bppsa_backward_state_get(r->model, &state));
  if (a.speculated != b->speculated || a.given_up != b->given_up || a.passes != b->passes || a.path != b->path ||
      a.possible != b->possible || a.work != b->work || a.rounds != b->rounds || a.mended != b->mended || a.gap != b->gap ||
      a.perturbation != b->perturbation) {
    return bppsa_fail(BPPSA_ERR_NUMERIC,
                      "pass %d: speculated %d, given up %d, path %d, work %.17g, rounds %d, mended %d, gap %.17g, perturbation "
                      "%.17g, expected %d, %d, %d, %.17g, %d, %d, %.17g, %.17g",
                      pass, a.speculated, a.given_up, (int)a.path, a.work, (int)a.rounds, (int)a.mended, a.gap, a.perturbation,
                      b->speculated, b->given_up, (int)b->path, b->work, (int)b->rounds, (int)b->mended, b->gap, b->perturbation);
  }
  const bppsa_backward_state *s = &e->states[pass];
  CHECK(state.pause.failures == s->pause.failures && state.pause.left == s->pause.left && state.warm_up == s->warm_up);
  return BPPSA_OK;
}

/* Passes of groups are resumed in a pause of all groups. */
static bppsa_status check_pause(const expectation *e, const part *r, int pass) {
  bppsa_backward_stats stats;
  BPPSA_TRY(bppsa_backward_stats_of(r->model, &stats));
  CHECK(e->groups == 1 || pass >= e->resumed.pause.left || !stats.speculated);
  return BPPSA_OK;
}

/* The first rank to come here, alone, says what is expected. */
static bppsa_status check_weights(expectation *e, const part *r, int pass) {
  for (int64_t i = 0; i < r->model->parameter_count; ++i) {
    const bppsa_view *gradient = &r->model->parameters[i].gradient;
    if (!e->known) {
      e->weights[pass][i] = copy_view(gradient);
    } else if (!same_bytes(gradient, &e->weights[pass][i])) {
      return bppsa_fail(BPPSA_ERR_NUMERIC, "pass %d, %s: other bits", pass, r->model->parameters[i].name);
    }
  }
  return BPPSA_OK;
}

static bppsa_status compare_rank(bppsa_comm *comm, void *context) {
  expectation *e = context;
  part r = {.model = NULL};
  bppsa_status status = make_part(comm, e, &r);
  status = status == BPPSA_OK && r.steps > 0 ? bppsa_backward_state_set(r.model, &e->resumed) : status;
  for (int pass = 0; status == BPPSA_OK && pass < PASSES; ++pass) {
    status = pass_part(e, &r);
    status = status == BPPSA_OK && r.steps > 0 ? check_pause(e, &r, pass) : status;
    status = status == BPPSA_OK && e->groups == 1 && r.steps > 0 ? check_stats(e, &r, pass) : status;
    status = status == BPPSA_OK && e->groups == 1 ? check_inputs(e, &r, pass) : status;
    status = status == BPPSA_OK ? check_weights(e, &r, pass) : status;
  }
  status = status == BPPSA_OK ? bppsa_comm_check_order(comm) : status;
  bppsa_model_destroy(r.model);
  bppsa_device_destroy(r.device);
  return status;
}

static void run_on(expectation *e, int64_t ranks) {
  const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
  if (bppsa_comm_run(&config, compare_rank, e, NULL) != BPPSA_OK) {
    const bppsa_recurrent_config *c = &e->config;
    fail_msg("%d ranks, %d groups: %s %s T %d H %d B %d L %d loss %d, chunks %d, warm-up %d: %s", (int)ranks, (int)e->groups,
             e->cell->name, bppsa_dtype_name(c->dtype), (int)c->seq_len, (int)c->hidden, (int)c->batch, (int)c->layers,
             c->loss_all, (int)c->speculation.chunks, (int)c->speculation.warm_up, bppsa_last_error());
  }
}

/* One rank first, then more. */
static void run_all(expectation *e) {
  compute_whole(e);
  run_on(e, 1);
  e->known = true;
  for (int64_t ranks = 2; ranks <= MOST_RANKS; ++ranks) {
    run_on(e, ranks);
  }
}

static bppsa_recurrent_config config_of(int64_t steps, int64_t batch, int64_t hidden) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = steps;
  c.batch = batch;
  c.input = 2;
  c.hidden = hidden;
  c.classes = 3;
  c.loss_all = true;
  c.input_gradients = true;
  c.method.backward = BPPSA_BACKWARD_SPECULATIVE;
  return c;
}

/* Weight gradients differ from one device's by rounding alone. */
static void assert_weights_close(const expectation *e) {
  for (int64_t i = 0; i < e->whole.model->parameter_count; ++i) {
    const bppsa_view *expected = &e->whole.model->parameters[i].gradient, *got = &e->weights[PASSES - 1][i];
    double largest = 0, error = 0;
    for (int64_t j = 0; j < bppsa_view_count(expected); ++j) {
      largest = fmax(largest, fabs(bppsa_view_get(expected, j)));
      error = fmax(error, fabs(bppsa_view_get(expected, j) - bppsa_view_get(got, j)));
    }
    assert_true(error <= (e->config.dtype == BPPSA_F64 ? 1e-14 : 4e-6) * largest);
  }
}

/* Random shapes: chunks longer than a rank's share, and short ones, mends that cross several ranks, two layers, both losses. So
 * some chunks are silent and some are not. */
static void test_random(void **state) {
  (void)state;
  int64_t mended = 0, rounds = 0, given_up = 0, adapted = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    dice d = {.seed = seed};
    bppsa_recurrent_config c = config_of(roll(&d, 30, 240), roll(&d, 1, 4), roll(&d, 3, 14));
    c.dtype = seed % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    c.loss_all = roll(&d, 0, 2) > 0;
    c.layers = roll(&d, 1, 2);
    c.no_bias = roll(&d, 0, 3) == 0;
    c.speculation.chunks = roll(&d, 2, 20);
    c.speculation.warm_up = roll(&d, 0, 25);
    if (seed % 4 == 1) { /* it follows what passes show */
      c.speculation.warm_up = -1;
      c.speculation.adapts = true;
      c.speculation.chunks = 6;
      c.seq_len *= 3;
    }
    expectation e = expect_passes(cells[seed % CELLS], &c, .2 + .1 * (double)roll(&d, 0, 8), 1);
    for (int64_t i = 0; c.loss_all && seed % 4 == 0 && i < bppsa_view_count(&e.whole.seed) * 2 / 3; ++i) {
      bppsa_view_set(&e.whole.seed, i, 0); /* silent chunks in front of others */
    }
    run_all(&e);
    assert_weights_close(&e);
    mended += e.stats[0].mended;
    rounds = e.stats[0].rounds > rounds ? e.stats[0].rounds : rounds;
    given_up += e.stats[0].given_up;
    adapted += e.states[PASSES - 1].warm_up != e.states[0].warm_up;
    free_expectation(&e);
  }
  assert_true(mended > 300 && rounds > 4 && given_up > 2 && given_up < 16 && adapted > 0);
}

/* With a loss on the last step alone differences walk on through silent chunks, whichever ranks have these. */
static void test_silent(void **state) {
  (void)state;
  int64_t mended = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    dice d = {.seed = 2000 + seed};
    bppsa_recurrent_config c = config_of(roll(&d, 120, 240), roll(&d, 1, 4), roll(&d, 6, 14));
    c.loss_all = false;
    c.speculation.chunks = roll(&d, 12, 20);
    c.speculation.warm_up = roll(&d, 0, 25);
    expectation e = expect_passes(cells[seed % CELLS], &c, .6 + .2 * (double)roll(&d, 0, 12), 1);
    run_all(&e);
    mended += e.stats[0].mended;
    free_expectation(&e);
  }
  assert_true(mended > 100);
}

/* Groups of samples, of which one alone may be given up: their statistics together. With more ranks than steps, too. */
static void test_groups(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    dice d = {.seed = 100 + seed};
    bppsa_recurrent_config c = config_of(seed < 4 ? roll(&d, 60, 200) : 4, roll(&d, 3, 5), roll(&d, 3, 9));
    c.layers = roll(&d, 1, 2);
    c.speculation.chunks = seed < 4 ? roll(&d, 3, 9) : 3;
    c.speculation.warm_up = roll(&d, 0, 12);
    expectation e = expect_passes(cells[seed % CELLS], &c, .7, 2);
    e.resumed.pause.left = (int64_t)(seed % 3);
    run_all(&e);
    assert_weights_close(&e);
    free_expectation(&e);
  }
}

/* A network that forgets nothing is given up in all parts alike, and pauses. So is a pass with a number that is not finite: no
 * matter which rank has it. */
static void test_given_up(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(120, 2, 6);
  c.nonlinearity = BPPSA_NONLINEARITY_RELU;
  c.speculation.chunks = 4;
  c.speculation.warm_up = 5;
  expectation e = expect_passes(&bppsa_rnn_cell, &c, 1, 1);
  for (int64_t i = 0; i < c.hidden * c.hidden; ++i) {
    bppsa_view_set(&e.whole.model->parameters[1].value, i, i % (c.hidden + 1) == 0 ? 1 : 0);
    bppsa_view_set(&e.whole.model->parameters[3].value, i % c.hidden, 3);
  }
  run_all(&e);
  assert_true(e.stats[2].given_up && !e.stats[3].speculated && e.states[4].pause.left > 0);
  free_expectation(&e);
  for (int k = 0; k < 4; ++k) {
    c = config_of(90, 3, 5);
    c.speculation.chunks = 7;
    c.speculation.warm_up = 6;
    c.layers = 1 + k % 2;
    e = expect_passes(cells[k % CELLS], &c, .5, 1);
    bppsa_view_set(&e.whole.seed, (10 + 25 * k) * 3 * c.classes + 1, k % 2 == 0 ? NAN : INFINITY);
    run_all(&e);
    assert_true(e.stats[0].given_up);
    free_expectation(&e);
  }
}

/* Where gradients of x must be exact, all ranks find out whether the loss misses a step of one of them. */
static void test_exact_inputs(void **state) {
  (void)state;
  for (int misses = 0; misses < 2; ++misses) {
    bppsa_recurrent_config c = config_of(80, 2, 5);
    c.speculation.chunks = 4;
    c.speculation.warm_up = 20;
    c.speculation.exact_inputs = true;
    expectation e = expect_passes(&bppsa_gru_cell, &c, .5, 1);
    for (int64_t i = 0; misses && i < c.classes; ++i) {
      bppsa_view_set(&e.whole.seed, 7 * 2 * c.classes + i, 0);
    }
    run_all(&e);
    assert_int_equal(e.stats[0].speculated, !misses);
    free_expectation(&e);
  }
}

/* ---- errors ---- */

/* Ranks whose plans differ, and a plan that is BP. */
static bppsa_status refused_rank(bppsa_comm *comm, void *context) {
  const bppsa_recurrent_config *c = context;
  bppsa_recurrent_config own = *c;
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  own.speculation.warm_up += bppsa_comm_rank(comm);
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  const bppsa_split_time split = {.comm = comm, .tag = 3, .micro_batches = 1};
  const bppsa_status status = bppsa_split_time_create(&split, &own, &bppsa_gru_cell, device, &model);
  CHECK(status == BPPSA_ERR_ARGUMENT && strstr(bppsa_last_error(), "its warm-up") != NULL);
  own.speculation = c->speculation;
  own.speculation.tolerance = 0;
  bppsa_status made = bppsa_split_time_create(&split, &own, &bppsa_gru_cell, device, &model);
  CHECK(made == BPPSA_OK && bppsa_backward_plan_of(model) == NULL &&
        bppsa_split_time_method(model).backward == BPPSA_BACKWARD_BP);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  return made;
}

static void test_refusals(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(80, 2, 5);
  const bppsa_comm_config config = {.ranks = 2, .timeout = 60};
  c.speculation.chunks = 4;
  c.speculation.warm_up = 20;
  if (bppsa_comm_run(&config, refused_rank, &c, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

/* A rank that fails in a pass ends it for all: here the first rank does not call the backward pass. */
static bppsa_status failing_rank(bppsa_comm *comm, void *context) {
  const expectation *e = context;
  part r = {.model = NULL};
  bppsa_status status = make_part(comm, e, &r);
  if (status == BPPSA_OK && bppsa_comm_rank(comm) == 1) {
    status = bppsa_fail(BPPSA_ERR_NUMERIC, "disk full");
  }
  status = status == BPPSA_OK ? pass_part(e, &r) : status;
  bppsa_model_destroy(r.model);
  bppsa_device_destroy(r.device);
  return status;
}

static void test_failing_rank(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(80, 2, 5);
  const bppsa_comm_config config = {.ranks = 3, .timeout = 60};
  c.speculation.chunks = 4;
  expectation e = expect_passes(&bppsa_lstm_cell, &c, 1, 1);
  assert_int_equal(bppsa_comm_run(&config, failing_rank, &e, NULL), BPPSA_ERR_NUMERIC);
  assert_string_equal(bppsa_last_error(), "rank 1: disk full");
  free_expectation(&e);
}

static bppsa_status create_rank(bppsa_comm *comm, void *context) {
  part r = {.model = NULL};
  const bppsa_status status = make_part(comm, context, &r);
  bppsa_model_destroy(r.model);
  bppsa_device_destroy(r.device);
  return status;
}

static bppsa_status create_alone(void *argument) {
  const bppsa_comm_config config = {.ranks = 1, .timeout = 60};
  return bppsa_comm_run(&config, create_rank, argument, NULL);
}

static void test_memory(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(300, 2, 5);
  c.speculation.chunks = 4;
  expectation e = expect_passes(&bppsa_lstm_cell, &c, 1, 2);
  assert_true(walk_allocations(create_alone, &e) > 20);
  free_expectation(&e);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),       cmocka_unit_test(test_silent),
                                     cmocka_unit_test(test_groups),       cmocka_unit_test(test_given_up),
                                     cmocka_unit_test(test_exact_inputs), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_failing_rank), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

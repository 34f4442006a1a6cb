/* Speculative forward passes of networks cut along time: for every number of ranks the states, statistics and pauses of one device,
 * bit for bit, and what the ranks say when one of them dies. The device is BPPSA_TEST_DEVICE; ranks have GPUs over threads and,
 * where the program has it, over NCCL. (The file is long because states, statistics, pauses and deaths are seen in the same
 * passes.) */
#include <math.h>
#include <stdio.h>

#include "distributed/time/split_time.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/comm/cases.h"
#include "tests/recurrent/forward_problem.h"
#include "tests/support/gpus.h"
#include "tests/support/length.h"

enum { PASSES = 5, MOST_RANKS = 8 };

static int gpus; /* 0: the ranks compute on processors */
static bool nccl;

/* A rank's device. */
static bppsa_status open_device(int32_t rank, bppsa_device **device) {
  char name[24] = "cpu";
  if (gpus > 0) {
    snprintf(name, sizeof name, "cuda:%d", (int)(rank % gpus));
  }
  return bppsa_device_create(name, 1, device);
}

static bppsa_device *first_device(void) {
  bppsa_device *device = NULL;
  assert_int_equal(open_device(0, &device), BPPSA_OK);
  return device;
}

/* What a network on one device does with the same numbers in every pass. */
typedef struct {
  const forward_problem *p;
  bppsa_device *device;
  bppsa_model *weights;
  double *x, *h0;
  double *h[PASSES][MOST_LAYERS]; /* [T][B][H]; with tolerance 0 or in a pause a pass has other bits than the one before it */
  double *c[PASSES][MOST_LAYERS]; /* likewise of pairs, otherwise NULL */
  bppsa_forward_plan plan;
  bppsa_forward_stats stats[PASSES];
  bppsa_forward_pause pauses[PASSES];
  int64_t groups;
  bool nccl;
} expectation;

static expectation expect_passes(const forward_problem *p) {
  expectation e = {.p = p, .groups = 1};
  bppsa_device *device = first_device();
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
  e.device = device; /* the weights', too */
  run.model = NULL;
  run.x = run.h0 = NULL;
  free_run(&run, device);
  return e;
}

static void free_expectation(expectation *e) {
  bppsa_model_destroy(e->weights);
  bppsa_device_destroy(e->device);
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
  bppsa_comm *world, *comm; /* comm: of the arrays */
  int64_t first, steps;
  void *x, *h0; /* in the network's type and the device's memory */
} part;

static bppsa_status put_numbers(const bppsa_device *device, bppsa_dtype dtype, const double *from, int64_t count, void **to) {
  const int64_t bytes = count * (int64_t)bppsa_dtype_size(dtype);
  void *host = bppsa_calloc(bytes + 1, 1);
  const bppsa_view view = bppsa_view_make(host, dtype, 1, &count);
  for (int64_t i = 0; host != NULL && i < count; ++i) {
    bppsa_view_set(&view, i, from[i]);
  }
  bppsa_status status = host == NULL ? BPPSA_ERR_MEMORY : bppsa_memory_alloc(device, bytes + 1, to);
  status = status == BPPSA_OK ? bppsa_memory_put(device, *to, host, bytes) : status;
  bppsa_free(host);
  return status;
}

/* The rank's own network has the weights of one device. */
static bppsa_status put_weights(const bppsa_model *from, bppsa_model *to) {
  for (int64_t i = 0; i < to->parameter_count; ++i) {
    memcpy(to->parameters[i].value.data, from->parameters[i].value.data, bppsa_view_bytes(&from->parameters[i].value));
  }
  return bppsa_model_push(to);
}

static bppsa_status make_part(bppsa_comm *comm, const expectation *e, part *r) {
  const bppsa_recurrent_config *c = &e->p->config;
  const int64_t row = c->batch * c->input;
  *r = (part){.world = comm, .comm = comm};
  bppsa_ranks_share(c->seq_len, bppsa_comm_size(comm), bppsa_comm_rank(comm), &r->first, &r->steps);
  BPPSA_TRY(open_device(bppsa_comm_rank(comm), &r->device));
  bppsa_comm_set_device(comm, r->device);
  BPPSA_TRY(put_numbers(r->device, c->dtype, e->x + r->first * row, r->steps * row, &r->x));
  BPPSA_TRY(put_numbers(r->device, c->dtype, e->h0, c->layers * c->batch * forward_state(e->p), &r->h0));
  BPPSA_TRY(e->nccl ? bppsa_comm_create_nccl(comm, r->device, &r->comm) : BPPSA_OK);
  const bppsa_split_time split = {.comm = r->comm, .tag = 3, .micro_batches = e->groups};
  BPPSA_TRY(bppsa_split_time_create(&split, c, e->p->cell, r->device, &r->model));
  return put_weights(e->weights, r->model);
}

static void free_part(part *r) {
  bppsa_model_destroy(r->model);
  bppsa_memory_free(r->device, r->x);
  bppsa_memory_free(r->device, r->h0);
  if (r->comm != r->world) {
    bppsa_comm_destroy(r->comm);
  }
  bppsa_comm_set_device(r->world, NULL);
  bppsa_device_destroy(r->device);
}

static bppsa_status pass_part(const expectation *e, const part *r) {
  const bppsa_recurrent_config *c = &e->p->config;
  const bppsa_view x = device_view(r->device, r->x, c->dtype, (int64_t[]){r->steps, c->batch, c->input});
  const bppsa_view h0 = device_view(r->device, r->h0, c->dtype, (int64_t[]){c->layers, c->batch, forward_state(e->p)});
  bppsa_view logits;
  return r->model->ops->forward(r->model, &x, e->p->from_zero ? NULL : &h0, &logits);
}

static bool same_stats(const bppsa_forward_stats *a, const bppsa_forward_stats *b) {
  return a->speculated == b->speculated && a->passes == b->passes && a->path == b->path && a->possible == b->possible &&
         a->work == b->work && a->rounds == b->rounds && a->mended == b->mended && a->reseeded == b->reseeded &&
         a->tails == b->tails && a->gap == b->gap;
}

static bool same_numbers(const part *r, const bppsa_view *there, const double *expected) {
  bppsa_view numbers = *there;
  bool same = true;
  numbers.data = bppsa_calloc((int64_t)bppsa_view_bytes(there) + 1, 1);
  numbers.device = BPPSA_CPU;
  same = numbers.data != NULL &&
         bppsa_memory_get(r->device, numbers.data, there->data, (int64_t)bppsa_view_bytes(there)) == BPPSA_OK;
  for (int64_t i = 0; same && i < bppsa_view_count(&numbers); ++i) {
    const double got = bppsa_view_get(&numbers, i);
    same = memcmp(&got, &expected[i], sizeof got) == 0 || (isnan(got) && isnan(expected[i]));
  }
  bppsa_free(numbers.data);
  return same;
}

/* Are the states of this rank's steps those of one device? With one group alone. */
static bool same_states(const expectation *e, const part *r, int pass) {
  const bppsa_recurrent_config *c = &e->p->config;
  const bppsa_model *inner = r->model->ops->inner(r->model);
  const int64_t before = r->first * c->batch * c->hidden;
  for (int64_t l = 0; l < c->layers; ++l) {
    bppsa_view view;
    if (bppsa_recurrent_states(inner, l, &view) != BPPSA_OK || !same_numbers(r, &view, e->h[pass][l] + before)) {
      return false;
    }
    if (e->p->cell->pair &&
        (bppsa_recurrent_cell_states(inner, l, &view) != BPPSA_OK || !same_numbers(r, &view, e->c[pass][l] + before))) {
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
                     plan->stop == e->plan.stop && plan->most_work == e->plan.most_work && plan->most_path == e->plan.most_path
                 ? BPPSA_OK
                 : bppsa_fail(BPPSA_ERR_NUMERIC, "another plan");
  }
  for (int pass = 0; status == BPPSA_OK && pass < PASSES; ++pass) {
    status = pass_part(e, &r);
    status = status == BPPSA_OK ? check_pass(e, &r, pass) : status;
  }
  status = status == BPPSA_OK ? bppsa_comm_check_order(r.comm) : status;
  free_part(&r);
  return status;
}

static void run_body(const expectation *e, int64_t ranks, bppsa_comm_body body) {
  const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
  expectation copy = *e;
  for (int transport = 0; transport <= (nccl && ranks <= gpus ? 1 : 0); ++transport) {
    copy.nccl = transport == 1;
    if (bppsa_comm_run(&config, body, &copy, NULL) != BPPSA_OK) {
      const forward_problem *p = e->p;
      const bppsa_recurrent_config *c = &p->config;
      fail_msg("seed %d, %d ranks, %s, %d groups: %s T %d H %d B %d L %d, chunks %d, warm-up %d, rounds %d, tolerance %g: %s",
               (int)p->seed, (int)ranks, copy.nccl ? "nccl" : "threads", (int)e->groups, p->cell->name, (int)c->seq_len,
               (int)c->hidden, (int)c->batch, (int)c->layers, (int)e->plan.chunks, (int)e->plan.warm_up, (int)e->plan.rounds,
               e->plan.accept, bppsa_last_error());
    }
  }
}

static void run_on(const expectation *e, int64_t ranks) {
  run_body(e, ranks, compare_rank);
}

/* ---- gradients ---- */

/* A backward pass from a seed of ones, for a loss on all of the rank's steps. */
static bppsa_status pass_back(const expectation *e, bppsa_model *model, const bppsa_device *device, int64_t steps) {
  const int64_t shape[] = {steps, e->p->config.batch, e->p->config.classes}, count = shape[0] * shape[1] * shape[2];
  double *ones = bppsa_calloc(count + 1, sizeof *ones);
  void *seed = NULL;
  CHECK(ones != NULL);
  for (int64_t i = 0; i < count; ++i) {
    ones[i] = 1;
  }
  bppsa_status status = put_numbers(device, e->p->config.dtype, ones, count, &seed);
  bppsa_free(ones);
  const bppsa_view view = device_view(device, seed, e->p->config.dtype, shape);
  status = status == BPPSA_OK ? model->ops->backward(model, &view) : status;
  status = status == BPPSA_OK ? bppsa_model_pull(model, true) : status;
  bppsa_memory_free(device, seed);
  return status;
}

/* A forward and a backward pass of the whole sequence on one device. */
static bppsa_status pass_whole(const expectation *e) {
  const bppsa_recurrent_config *c = &e->p->config;
  part whole = {.model = e->weights, .device = e->device, .steps = c->seq_len};
  bppsa_status status = put_numbers(e->device, c->dtype, e->x, c->seq_len * c->batch * c->input, &whole.x);
  status = status == BPPSA_OK ? put_numbers(e->device, c->dtype, e->h0, c->layers * c->batch * forward_state(e->p), &whole.h0)
                              : status;
  status = status == BPPSA_OK ? pass_part(e, &whole) : status;
  status = status == BPPSA_OK ? pass_back(e, e->weights, e->device, c->seq_len) : status;
  bppsa_memory_free(e->device, whole.x);
  bppsa_memory_free(e->device, whole.h0);
  return status;
}

static bppsa_status compare_gradients(bppsa_comm *comm, void *context) {
  const expectation *e = context;
  part r;
  bppsa_status status = make_part(comm, e, &r);
  status = status == BPPSA_OK ? pass_part(e, &r) : status;
  status = status == BPPSA_OK ? pass_back(e, r.model, r.device, r.steps) : status;
  for (int64_t i = 0; status == BPPSA_OK && i < r.model->parameter_count; ++i) {
    const bppsa_view *got = &r.model->parameters[i].gradient, *expected = &e->weights->parameters[i].gradient;
    for (int64_t k = 0; status == BPPSA_OK && k < bppsa_view_count(got); ++k) {
      const double a = bppsa_view_get(got, k), b = bppsa_view_get(expected, k);
      if (!(fabs(a - b) <= 1e-12 * fmax(1, fabs(b)))) {
        status = bppsa_fail(BPPSA_ERR_NUMERIC, "%s %d: %.17g, expected %.17g", r.model->parameters[i].name, (int)k, a, b);
      }
    }
  }
  free_part(&r);
  return status;
}

/* With a large tolerance chunks are accepted that begin at another state than the chunk in front ends at: what is saved with their
 * first step must belong to the latter, or the gradients are not those of one device, which differ by rounding alone. */
static void test_gradients(void **state) {
  (void)state;
  for (int rounds = 0; rounds < 2; ++rounds) { /* mends, and the tail's walks */
    forward_problem p = forward_problem_default();
    p.cell = &bppsa_gru_cell;
    p.seed = 5;
    p.config.dtype = BPPSA_F64;
    p.config.hidden = 6;
    p.config.batch = 2;
    p.config.layers = 2;
    p.config.seq_len = 400;
    p.config.loss_all = true;
    p.scale = .3;
    p.config.forward.chunks = 5;
    p.config.forward.warm_up = 4;
    p.config.forward.rounds = 2 * rounds;
    p.config.forward.tolerance = .02;
    p.config.forward.most_work = p.config.forward.most_path = INFINITY; /* no pause */
    expectation e = expect_passes(&p);
    assert_true(e.stats[PASSES - 1].speculated && e.stats[0].mended > 0 && e.stats[0].gap > 1e-3);
    assert_int_equal(pass_whole(&e), BPPSA_OK);
    for (int64_t ranks = 1; ranks <= 4; ++ranks) {
      run_body(&e, ranks, compare_gradients);
    }
    free_expectation(&e);
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
  const int64_t configurations = gpus == 0 ? 150 : at_full_length() ? 42 : 10;
  static const int64_t rank_counts[] = {1, 2, 3, 4, 8, 5, 13};
  int64_t mended = 0, reseeded = 0, tails = 0, spoiled = 0, paused = 0, untouched = 0;
  for (int64_t i = 0; i < configurations; ++i) {
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
  const int64_t least = configurations / 20;
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
  bppsa_device *device = first_device();
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

/* Every second rank has no chunk that begins with it, so that the tail of a sample passes over it. It is one tail all the same, and
 * its steps add up. */
static void test_ranks_between(void **state) {
  (void)state;
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.scale = .1;
  p.config.seq_len = 60;
  p.config.hidden = 4;
  p.config.batch = 2;
  p.config.forward = (bppsa_forward_method){.kind = BPPSA_FORWARD_SPECULATIVE, .chunks = 3, .warm_up = 15, .tolerance = -1};
  expectation e = expect_passes(&p);
  assert_true(e.stats[0].tails == 2 && e.stats[0].mended == 0);
  run_on(&e, 6);
  free_expectation(&e);
}

/* Every width of a GPU's kernels: in warps, in blocks (33, 64), in clusters (70: GRU, f64) and, where a GPU has no room for
 * clusters, with W_hh in caches; inputs of one number and of more; both types, and a ReLU's relative tolerance; NaN; and chunks of
 * several windows. With tolerance 0 the states are the sequential pass's. */
static void test_widths(void **state) {
  (void)state;
  static const struct {
    int64_t hidden, input;
    bool gru, f64, relu, nan, exact, no_clusters;
    int64_t seq_len, chunks, warm_up, rounds, batch, layers, ranks;
    double scale;
  } cases[] = {{33, 1, false, false, false, true, true, false, 40, 5, 3, 1, 2, 1, 3, 1},
               {64, 2, true, false, false, false, false, false, 30, 4, 6, 3, 1, 2, 2, 1},
               {40, 1, false, true, true, false, false, false, 24, 6, 2, 0, 1, 1, 4, .2},
               {70, 1, true, true, false, true, true, false, 14, 3, 2, 1, 1, 1, 2, 5},
               {130, 1, false, false, false, false, true, true, 20, 4, 3, 2, 1, 2, 3, 1},
               {70, 3, true, true, false, true, false, true, 18, 3, 4, 2, 2, 1, 2, 1},
               {20, 1, true, false, false, false, true, false, 60, 5, 7, 2, 2, 1, 4, 1},
               {32, 1, false, true, false, true, true, false, 50, 4, 8, 3, 1, 1, 3, 5},
               {5, 1, false, false, false, false, false, false, 1300, 2, 620, 1, 1, 1, 3, 1},
               {5, 2, true, true, false, false, true, false, 900, 2, 20, 0, 1, 1, 2, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    forward_problem p = forward_problem_default();
    p.cell = cases[i].gru ? &bppsa_gru_cell : &bppsa_rnn_cell;
    p.seed = 70 + i;
    p.scale = cases[i].scale;
    p.spoiled = cases[i].nan;
    p.spoils[0] = NAN;
    p.places[0] = 12;
    p.config.hidden = cases[i].hidden;
    p.config.input = cases[i].input;
    p.config.dtype = cases[i].f64 ? BPPSA_F64 : BPPSA_F32;
    p.config.nonlinearity = cases[i].relu ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
    p.config.seq_len = cases[i].seq_len;
    p.config.batch = cases[i].batch;
    p.config.layers = cases[i].layers;
    p.config.forward.chunks = cases[i].chunks;
    p.config.forward.warm_up = cases[i].warm_up;
    p.config.forward.rounds = cases[i].rounds;
    p.config.forward.tolerance = cases[i].exact ? 0 : -1;
    if (cases[i].no_clusters) {
      assert_int_equal(setenv("SIMT_MOST_CLUSTER", "1", 1), 0);
    }
    expectation e = expect_passes(&p);
    run_on(&e, cases[i].ranks);
    if (cases[i].exact) {
      forward_problem sequential = p;
      sequential.weights = e.weights;
      sequential.config.forward = bppsa_forward_method_default();
      expectation exact = expect_passes(&sequential);
      for (int64_t l = 0; l < p.config.layers; ++l) {
        assert_memory_equal(e.h[0][l], exact.h[0][l],
                            (size_t)(p.config.seq_len * p.config.batch * p.config.hidden) * sizeof(double));
      }
      free_expectation(&exact);
    }
    free_expectation(&e);
    assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
  }
}

/* Unit v of 32 alone is not what it will be after two steps of warm-up: h_t = h_{t-1} / 2 + 1, all others are 0. Every rank must
 * see it. With tolerance 0 it is mended. */
static void lonely_unit(bppsa_dtype dtype, int64_t v) {
  enum { HIDDEN = 32, STEPS = 40 };
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.from_zero = true;
  p.config.dtype = dtype;
  p.config.nonlinearity = BPPSA_NONLINEARITY_RELU;
  p.config.seq_len = STEPS;
  p.config.hidden = HIDDEN;
  p.config.batch = p.config.layers = 1;
  p.config.forward = (bppsa_forward_method){.kind = BPPSA_FORWARD_SPECULATIVE, .chunks = 4, .warm_up = 2, .rounds = -1};
  bppsa_device *device = first_device();
  bppsa_model *weights = make_forward_model(&p, device);
  for (int64_t i = 0; i < 4; ++i) { /* weight_ih, weight_hh, bias_ih, bias_hh */
    const bppsa_view *w = &weights->parameters[i].value;
    for (int64_t k = 0; k < bppsa_view_count(w); ++k) {
      bppsa_view_set(w, k, i == 1 && k == v * HIDDEN + v ? .5 : i == 2 && k == v ? 1 : 0);
    }
  }
  p.weights = weights;
  expectation e = expect_passes(&p);
  assert_true(e.stats[0].speculated && e.stats[0].mended > 0 && e.stats[0].gap == 0);
  double expected = 0;
  for (int64_t t = 0; t < STEPS; ++t) {
    expected = dtype == BPPSA_F64 ? .5 * expected + 1 : (double)(.5F * (float)expected + 1);
    assert_true(e.h[0][0][t * HIDDEN + v] == expected);
  }
  run_on(&e, 3);
  free_expectation(&e);
  bppsa_model_destroy(weights);
  bppsa_device_destroy(device);
}

static void test_lonely_unit(void **state) {
  (void)state;
  for (int64_t v = 0; v < 32; v += 7) {
    lonely_unit(BPPSA_F32, v);
    lonely_unit(BPPSA_F64, v);
  }
}

/* An LSTM whose output gates are closed by the input, so that h is 0 and each unit's c goes on by itself. c of one unit is infinite
 * from the beginning: how far it is from a guess, relative to its size, is no number. Those that verify must see that. */
static void infinite_c(bppsa_dtype dtype) {
  enum { HIDDEN = 32, STEPS = 200 };
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_lstm_cell;
  p.infinite = HIDDEN + 5; /* c_5 */
  p.bits = true;
  p.config.dtype = dtype;
  p.config.seq_len = STEPS;
  p.config.hidden = HIDDEN;
  p.config.batch = p.config.layers = 1;
  p.config.forward = (bppsa_forward_method){.kind = BPPSA_FORWARD_SPECULATIVE, .chunks = 2, .warm_up = 2, .rounds = -1};
  p.config.forward.tolerance = 1e-3;
  bppsa_device *device = first_device();
  bppsa_model *weights = make_forward_model(&p, device);
  for (int64_t i = 0; i < 4; ++i) { /* weight_ih, weight_hh, bias_ih, bias_hh, rows of i, f, g and o in each */
    const bppsa_view *w = &weights->parameters[i].value;
    for (int64_t k = 0; k < bppsa_view_count(w); ++k) {
      const bool output = i == 2 && k >= 3 * HIDDEN, cell = i == 2 && k / HIDDEN == 2;
      bppsa_view_set(w, k, output ? -1000 : cell ? 1 : 0);
    }
  }
  p.weights = weights;
  expectation e = expect_passes(&p);
  assert_true(e.stats[0].speculated && e.stats[0].mended > 0);
  for (int64_t t = 0; t < STEPS; ++t) {
    assert_true(e.h[0][0][t * HIDDEN] == 0 && isinf(e.c[0][0][t * HIDDEN + 5]) && isfinite(e.c[0][0][t * HIDDEN]));
  }
  run_on(&e, 3);
  free_expectation(&e);
  bppsa_model_destroy(weights);
  bppsa_device_destroy(device);
}

static void test_infinite_c(void **state) {
  (void)state;
  infinite_c(BPPSA_F32);
  infinite_c(BPPSA_F64);
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
      for (int64_t ranks = 1; ranks <= 4; ranks += at_full_length() || gpus == 0 ? 1 : 2) {
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
    p.config.seq_len = batch == 1 ? 3000 : 480;
    p.config.hidden = 8;
    p.config.batch = batch;
    p.config.forward.kind = BPPSA_FORWARD_AUTO;
    expectation e = expect_passes(&p);
    assert_true(e.plan.speculative == (batch == 1 || gpus > 0) && isfinite(e.plan.most_work) == (batch == 1 && gpus == 0));
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

/* At every operation of a pass that mends, begins anew and ends in a tail (on every push at each fifth): one line names the rank,
 * and nothing is left behind. */
static void test_deaths(void **state) {
  (void)state;
  forward_problem p = forward_problem_default();
  p.cell = &bppsa_rnn_cell;
  p.scale = 2.5;
  p.config.batch = 2;
  p.config.seq_len = 200;
  p.config.forward.chunks = 12;
  p.config.forward.warm_up = 10;
  expectation e = expect_passes(&p);
  assert_true(e.stats[0].reseeded > 0 && e.stats[0].tails > 0 && e.stats[0].rounds > 1);
  fault f = {.e = &e};
  const int64_t blocks = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_COMM;
  for (f.die_at = 1; status != BPPSA_OK && f.die_at < 400; f.die_at += at_full_length() ? 1 : 5) {
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
  assert_in_range(f.die_at, 20, 404);
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
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random),        cmocka_unit_test(test_two_basins),  cmocka_unit_test(test_widths),
      cmocka_unit_test(test_gradients),     cmocka_unit_test(test_groups),      cmocka_unit_test(test_auto),
      cmocka_unit_test(test_deaths),        cmocka_unit_test(test_refused),     cmocka_unit_test(test_memory_runs_out),
      cmocka_unit_test(test_ranks_between), cmocka_unit_test(test_lonely_unit), cmocka_unit_test(test_infinite_c)};
  gpus = gpus_of_ranks(&nccl);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

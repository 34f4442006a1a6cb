/* Samples that begin anew in networks cut along time: random masks, methods and numbers of ranks beside one device and beside the
 * textbook's loop, sequences of passes, NaN on both sides of a cut, what is refused. BPPSA_TEST_DEVICE names the device: of a GPU,
 * BP and every scan behind every forward pass beside the textbook, and states with the same bits on every number of ranks. */
#include "comm/comm.h"
#include "core/compute/device_buffer.h"
#include "core/compute/memory.h"
#include "distributed/time/split_time.h"
#include "tests/comm/cases.h"
#include "tests/recurrent/resets_reference.h"
#include "tests/support/dice.h"
#include "tests/support/gpus.h"
#include "tests/support/gru_reference.h"
#include "tests/support/length.h"
#include "tests/support/lstm_reference.h"
#include "tests/support/rnn_reference.h"

enum { PASSES = 3, MOST_RANKS = 5, MOST_GRADIENTS = 11 };

static const cell_reference cells[] = {RNN_REFERENCE, GRU_REFERENCE, LSTM_REFERENCE};
enum { CELLS = sizeof cells / sizeof *cells };

static int gpus; /* 0: the ranks compute on processors */

static const int rates[] = {0, 20, 100, 500, 1000}; /* of 1000 */
enum { RATES = sizeof rates / sizeof *rates };

/* What one device has found in a pass, and the textbook. */
typedef struct {
  uint8_t *mask; /* [T][b]; NULL: none */
  bppsa_view logits, dx, dh0;
  bppsa_forward_stats forward;
  bppsa_backward_stats backward;
  textbook book;
  bppsa_view of_gpus;                   /* logits of two ranks on GPUs, which more ranks find again */
  bppsa_view gradients[MOST_GRADIENTS]; /* of the parameters, on one rank */
} found;

typedef struct {
  const cell_reference *cell;
  run whole;
  int64_t groups;
  found passes[PASSES];
  bool same_bits; /* of the gradients of x and h0: those of speculative passes */
  bool finite;    /* and they are compared with the textbook */
  bool known;     /* one rank has run */
} expectation;

static bppsa_view copy_view(const bppsa_view *view) {
  bppsa_view copy = *view;
  copy.data = bppsa_calloc((int64_t)bppsa_view_bytes(view) + 1, 1);
  memcpy(copy.data, view->data, bppsa_view_bytes(view));
  return copy;
}

static bppsa_view mask_view(const expectation *e, const uint8_t *mask) {
  return bppsa_view_make((void *)(uintptr_t)mask, BPPSA_U8, 2, (int64_t[]){e->whole.config.seq_len, e->whole.x.shape[1]});
}

static void compute_whole(expectation *e) {
  run *r = &e->whole;
  for (int i = 0; i < PASSES; ++i) {
    found *f = &e->passes[i];
    const bppsa_view resets = mask_view(e, f->mask);
    const bppsa_spans spans = {.resets = f->mask != NULL ? &resets : NULL};
    assert_int_equal(bppsa_model_forward(r->model, &r->x, &r->h0, &spans, &r->logits), BPPSA_OK);
    assert_int_equal(r->model->ops->backward(r->model, &r->seed), BPPSA_OK);
    assert_int_equal(r->model->ops->input_gradients(r->model, &r->dx, &r->dh0), BPPSA_OK);
    f->logits = copy_view(&r->logits);
    f->dx = copy_view(&r->dx);
    f->dh0 = copy_view(&r->dh0);
    assert_int_equal(bppsa_forward_stats_of(r->model, &f->forward), BPPSA_OK);
    assert_int_equal(bppsa_backward_stats_of(r->model, &f->backward), BPPSA_OK);
    f->book = compute_textbook(e->cell, r, NULL, f->mask);
    f->of_gpus = copy_view(&r->logits);
  }
}

static void free_expectation(expectation *e) {
  for (int i = 0; i < PASSES; ++i) {
    found *f = &e->passes[i];
    bppsa_free(f->mask);
    bppsa_free(f->logits.data);
    bppsa_free(f->of_gpus.data);
    bppsa_free(f->dx.data);
    bppsa_free(f->dh0.data);
    for (int k = 0; k < MOST_GRADIENTS; ++k) {
      bppsa_free(f->gradients[k].data);
    }
    free_textbook(&f->book, &e->whole);
  }
  close_run(&e->whole);
}

/* ---- a rank ---- */

typedef struct {
  bppsa_model *model;
  bppsa_device *device;
  int64_t first, steps;
  bool has_head;
  bppsa_buffer copies[3], logits; /* x, h0 and seed in the device's memory; logits in the host's */
} part;

/* A view of the device's memory with the same numbers, until the next pass; on a processor the view itself. */
static bppsa_status lend(const part *r, const bppsa_view *from, bppsa_buffer *copy, bppsa_view *to) {
  *to = *from;
  to->device = bppsa_device_get_kind(r->device);
  bppsa_buffer_free(copy);
  if (gpus == 0 || bppsa_view_count(from) == 0) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_buffer_create(r->device, from->dtype, from->ndim, from->shape, copy));
  *to = copy->view;
  return bppsa_memory_put(r->device, to->data, from->data, (int64_t)bppsa_view_bytes(from));
}

/* A copy in host memory, or the view itself if it is there. */
static bppsa_status bring(const part *r, bppsa_view *view, bppsa_buffer *copy) {
  if (gpus == 0 || bppsa_view_count(view) == 0) {
    return BPPSA_OK;
  }
  bppsa_buffer_free(copy);
  BPPSA_TRY(bppsa_buffer_fetch(r->device, view, copy));
  *view = copy->view;
  return BPPSA_OK;
}

static bppsa_status make_part(bppsa_comm *comm, const expectation *e, part *r) {
  const bppsa_recurrent_config *c = &e->whole.config;
  bppsa_ranks_share(c->seq_len, bppsa_comm_size(comm), bppsa_comm_rank(comm), &r->first, &r->steps);
  r->has_head = r->steps > 0 && (c->loss_all || bppsa_comm_rank(comm) == 0);
  char name[24];
  snprintf(name, sizeof name, "cuda:%d", (int)bppsa_comm_rank(comm) % (gpus > 0 ? gpus : 1));
  BPPSA_TRY(bppsa_device_create(gpus > 0 ? name : "cpu", 1 + bppsa_comm_rank(comm) % 2, &r->device));
  bppsa_comm_set_device(comm, gpus > 0 ? r->device : NULL);
  const bppsa_split_time split = {.comm = comm, .tag = 3, .micro_batches = e->groups};
  BPPSA_TRY(bppsa_split_time_create(&split, c, e->cell->cell, r->device, &r->model));
  for (int64_t i = 0; i < r->model->parameter_count; ++i) {
    const bppsa_view *from = &e->whole.model->parameters[i].value;
    memcpy(r->model->parameters[i].value.data, from->data, bppsa_view_bytes(from));
  }
  return bppsa_model_push(r->model);
}

static bppsa_status pass_part(const expectation *e, part *r, const found *f, bppsa_view *logits) {
  const bool all = e->whole.config.loss_all;
  const bppsa_view x = rows_of(&e->whole.x, r->first, r->steps), resets = mask_view(e, f->mask);
  bppsa_view seed = all ? rows_of(&e->whole.seed, r->first, r->steps) : e->whole.seed;
  seed.shape[0] = all || r->has_head ? seed.shape[0] : 0;
  const bppsa_view *const from[3] = {&x, &e->whole.h0, &seed};
  bppsa_view to[3];
  for (int i = 0; i < 3; ++i) {
    BPPSA_TRY(lend(r, from[i], &r->copies[i], &to[i]));
  }
  BPPSA_TRY(bppsa_model_forward(r->model, &to[0], &to[1], &(bppsa_spans){.resets = f->mask != NULL ? &resets : NULL}, logits));
  BPPSA_TRY(r->model->ops->backward(r->model, &to[2]));
  BPPSA_TRY(bppsa_model_pull(r->model, true));
  return bring(r, logits, &r->logits);
}

static bppsa_status check_same(const char *what, const bppsa_view *a, const bppsa_view *b) {
  for (int64_t i = 0; i < bppsa_view_count(a); ++i) {
    const double got = bppsa_view_get(a, i), expected = bppsa_view_get(b, i);
    if (got != expected && !(isnan(got) && isnan(expected))) {
      return bppsa_fail(BPPSA_ERR_NUMERIC, "%s: element %d is %.17g, expected %.17g", what, (int)i, got, expected);
    }
  }
  return BPPSA_OK;
}

static bppsa_status check_close(const expectation *e, const char *what, const bppsa_view *view, const double *expected) {
  const int64_t count = bppsa_view_count(view);
  const double of = count == 0 ? 0 : residual(view->dtype, view->data, expected, count, sqrt((double)e->whole.config.seq_len));
  return of < 30 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_NUMERIC, "%s: residual %g", what, of);
}

static bppsa_status check_found(const expectation *e, const part *r, const found *f, bppsa_view dx, bppsa_view dh0) {
  const bppsa_view expected = rows_of(&f->dx, r->first, r->steps);
  const bool begins = r->first == 0 && r->steps > 0;
  if (e->same_bits) {
    BPPSA_TRY(check_same("dx", &dx, &expected));
    BPPSA_TRY(begins ? check_same("dh0", &dh0, &f->dh0) : BPPSA_OK);
  }
  if (!e->finite) {
    for (int64_t i = 0; i < bppsa_view_count(&dx); ++i) { /* NaN where one device has it, and nowhere else */
      CHECK(isnan(bppsa_view_get(&dx, i)) == isnan(bppsa_view_get(&expected, i)));
    }
    return BPPSA_OK;
  }
  BPPSA_TRY(check_close(e, "dx", &dx, f->book.dx + r->first * dx.shape[1] * dx.shape[2]));
  BPPSA_TRY(begins ? check_close(e, "dh0", &dh0, f->book.dh0) : BPPSA_OK);
  for (int64_t i = 0; i < r->model->parameter_count; ++i) {
    BPPSA_TRY(check_close(e, r->model->parameters[i].name, &r->model->parameters[i].gradient, f->book.gradients[i]));
  }
  BPPSA_TRY(bppsa_model_update_redone(r->model));
  CHECK(r->model->redone == 0);
  return BPPSA_OK;
}

static bppsa_status check_inputs(const expectation *e, const part *r, const found *f) {
  bppsa_view dx, dh0;
  bppsa_buffer copies[2] = {{.device = NULL}, {.device = NULL}};
  BPPSA_TRY(r->model->ops->input_gradients(r->model, &dx, &dh0));
  bppsa_status status = bring(r, &dx, &copies[0]);
  status = status == BPPSA_OK && r->first == 0 && r->steps > 0 ? bring(r, &dh0, &copies[1]) : status;
  status = status == BPPSA_OK ? check_found(e, r, f, dx, dh0) : status;
  bppsa_buffer_free(&copies[0]);
  bppsa_buffer_free(&copies[1]);
  return status;
}

/* Logits of one device have those of every number of ranks on processors; on GPUs more than two ranks have those of two. */
static bppsa_status check_logits(const bppsa_comm *comm, const expectation *e, const part *r, const found *f,
                                 const bppsa_view *logits) {
  const bool all = e->whole.config.loss_all;
  const bppsa_view *whole = gpus > 0 ? &f->of_gpus : &f->logits;
  const bppsa_view expected = all ? rows_of(whole, r->first, r->steps) : *whole;
  if (gpus > 0) {
    const int64_t rows = all ? r->first * logits->shape[1] * logits->shape[2] : 0;
    BPPSA_TRY(e->finite ? check_close(e, "logits", logits, f->book.logits + rows) : BPPSA_OK);
    if (bppsa_comm_size(comm) == 2) {
      memcpy(expected.data, logits->data, bppsa_view_bytes(logits));
    }
  }
  return gpus > 0 && bppsa_comm_size(comm) < 2 ? BPPSA_OK : check_same("logits", logits, &expected);
}

/* Gradients of the parameters by speculative passes have the same bits for every number of ranks. */
static bppsa_status check_gradients(const expectation *e, const part *r, found *f) {
  CHECK(r->model->parameter_count <= MOST_GRADIENTS);
  for (int64_t i = 0; e->whole.config.method.backward == BPPSA_BACKWARD_SPECULATIVE && i < r->model->parameter_count; ++i) {
    const bppsa_parameter *p = &r->model->parameters[i];
    if (!e->known) { /* the only rank */
      f->gradients[i] = copy_view(&p->gradient);
    } else {
      BPPSA_TRY(check_same(p->name, &p->gradient, &f->gradients[i]));
    }
  }
  return BPPSA_OK;
}

/* Speculative passes do the same for every number of ranks. */
static bppsa_status check_stats(const part *r, const found *f) {
  bppsa_forward_stats forward;
  bppsa_backward_stats backward;
  BPPSA_TRY(bppsa_forward_stats_of(r->model, &forward));
  BPPSA_TRY(bppsa_backward_stats_of(r->model, &backward));
  const bppsa_forward_stats *a = &f->forward;
  const bppsa_backward_stats *b = &f->backward;
  if (forward.speculated != a->speculated || forward.path != a->path || forward.mended != a->mended ||
      forward.rounds != a->rounds || forward.reseeded != a->reseeded || forward.tails != a->tails || forward.gap != a->gap) {
    return bppsa_fail(BPPSA_ERR_NUMERIC, "forward: path %d, mended %d, rounds %d, reseeded %d, expected %d, %d, %d, %d",
                      (int)forward.path, (int)forward.mended, (int)forward.rounds, (int)forward.reseeded, (int)a->path,
                      (int)a->mended, (int)a->rounds, (int)a->reseeded);
  }
  if (b->speculated != backward.speculated || b->given_up != backward.given_up || b->path != backward.path ||
      b->mended != backward.mended || b->rounds != backward.rounds || b->work != backward.work || b->gap != backward.gap) {
    return bppsa_fail(BPPSA_ERR_NUMERIC, "backward: path %d, mended %d, rounds %d, work %g, expected %d, %d, %d, %g",
                      (int)backward.path, (int)backward.mended, (int)backward.rounds, backward.work, (int)b->path, (int)b->mended,
                      (int)b->rounds, b->work);
  }
  return BPPSA_OK;
}

static bppsa_status compare_rank(bppsa_comm *comm, void *context) {
  expectation *e = context;
  part r = {.model = NULL};
  bppsa_status status = make_part(comm, e, &r);
  for (int i = 0; status == BPPSA_OK && i < PASSES; ++i) {
    found *f = &e->passes[i];
    bppsa_view logits;
    status = pass_part(e, &r, f, &logits);
    if (status == BPPSA_OK && r.has_head) {
      status = check_logits(comm, e, &r, f, &logits);
    }
    status = status == BPPSA_OK ? check_inputs(e, &r, f) : status;
    status = status == BPPSA_OK ? check_gradients(e, &r, f) : status;
    status = status == BPPSA_OK && e->groups == 1 && r.steps > 0 && e->finite && gpus == 0 ? check_stats(&r, f) : status;
  }
  status = status == BPPSA_OK ? bppsa_comm_check_order(comm) : status;
  for (int i = 0; i < 3; ++i) {
    bppsa_buffer_free(&r.copies[i]);
  }
  bppsa_buffer_free(&r.logits);
  bppsa_model_destroy(r.model);
  bppsa_comm_set_device(comm, NULL);
  bppsa_device_destroy(r.device);
  return status;
}

static void run_on(expectation *e, int64_t ranks, uint64_t seed) {
  const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
  if (bppsa_comm_run(&config, compare_rank, e, NULL) != BPPSA_OK) {
    const bppsa_recurrent_config *c = &e->whole.config;
    fail_msg("seed %d, %d ranks, %d groups: %s %s T %d H %d B %d L %d loss %d, backward %d, forward %d: %s", (int)seed,
             (int)ranks, (int)e->groups, e->cell->cell->name, bppsa_dtype_name(c->dtype), (int)c->seq_len, (int)c->hidden,
             (int)c->batch, (int)c->layers, c->loss_all, c->method.backward, c->forward.kind, bppsa_last_error());
  }
  e->known = true;
}

/* ---- random cases ---- */

static uint8_t *draw_mask(dice *d, int rate, int64_t count) {
  uint8_t *mask = bppsa_calloc(count, 1);
  assert_non_null(mask);
  for (int64_t i = 0; i < count; ++i) {
    mask[i] = roll(d, 0, 999) < rate;
  }
  return mask;
}

/* way: a method of sequential, scanning and speculative passes. */
static bppsa_recurrent_config config_of(dice *d, int way) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = roll(d, 0, 4) == 0 ? roll(d, 1, 6) : roll(d, 20, 90);
  c.batch = roll(d, 1, 5);
  c.input = 2;
  c.hidden = roll(d, 3, 12);
  c.layers = roll(d, 1, 2);
  c.classes = 3;
  c.dtype = roll(d, 0, 1) == 0 ? BPPSA_F32 : BPPSA_F64;
  c.loss_all = roll(d, 0, 2) > 0;
  c.input_gradients = c.resets = true;
  c.method = methods[way % METHODS];
  const double rounding = c.dtype == BPPSA_F32 ? 0x1p-24 : 0x1p-53;
  if (way >= METHODS) {
    c.method.backward = BPPSA_BACKWARD_SPECULATIVE;
    c.speculation.chunks = roll(d, 2, 12);
    c.speculation.warm_up = roll(d, 0, 12);
    c.speculation.tolerance = rounding;
  }
  c.reset_state = roll(d, 0, 1) == 0;
  if (roll(d, 0, 2) == 0 || way >= METHODS) {
    c.forward.kind = BPPSA_FORWARD_SPECULATIVE;
    c.forward.chunks = roll(d, 2, 12);
    c.forward.warm_up = roll(d, 0, 12);
    c.forward.tolerance = roll(d, 0, 1) == 0 ? 0 : rounding;
  }
  return c;
}

static expectation expect(const cell_reference *cell, const bppsa_recurrent_config *c) {
  return (expectation){.cell = cell,
                       .whole = open_run(cell->cell, c, c->batch, 1),
                       .groups = 1,
                       .same_bits = c->method.backward == BPPSA_BACKWARD_SPECULATIVE,
                       .finite = true};
}

static void check_random(uint64_t seed) {
  dice d = {.seed = seed};
  const int way = (int)(gpus > 0 ? seed % METHODS : seed % (METHODS + 2)); /* a part on a GPU does not speculate backward */
  bppsa_recurrent_config c = config_of(&d, way);
  if (gpus > 0 && seed / METHODS % 2 == 1 && way >= 2) { /* here the products of every scan travel; an emulation takes long */
    c.hidden = BPPSA_SCAN_FUSED_DIM + 1;
    c.seq_len = roll(&d, 3, 9);
    c.batch = roll(&d, 1, 2);
    c.layers = 1;
  }
  const int64_t groups = roll(&d, 0, 3) == 0 ? roll(&d, 1, c.batch) : 1;
  c.forward.tolerance = groups > 1 ? 0 : c.forward.tolerance; /* groups decide by themselves what they accept */
  expectation e = expect(&cells[seed / 7 % CELLS], &c);
  e.groups = groups;
  for (int i = 0; i < PASSES; ++i) {
    const int rate = rates[roll(&d, 0, RATES - 1)];
    e.passes[i].mask = rate == 0 && roll(&d, 0, 1) == 0 ? NULL : draw_mask(&d, rate, c.seq_len * c.batch);
  }
  e.same_bits = e.same_bits && e.groups == 1;
  compute_whole(&e);
  for (int64_t ranks = 1; ranks <= MOST_RANKS; ++ranks) {
    run_on(&e, ranks, seed);
  }
  free_expectation(&e);
}

static void test_random(void **state) {
  (void)state;
  const uint64_t all = at_full_length() ? 420 : 42, count = gpus > 0 ? all / 3 : all;
  for (uint64_t seed = 0; seed < count; ++seed) {
    check_random(seed);
  }
}

/* ---- NaN ---- */

/* All samples are cut in front of a step, at a rank's border or not. NaN in the seed behind it, or in x in front of it, stays on
 * its side: exactly 0 crosses. */
static void test_nan(void **state) {
  (void)state;
  enum { STEPS = 20, BATCH = 2 };
  for (int k = 0; k<CELLS * METHODS * 4; k += gpus> 0 ? 5 : 1) {
    dice d = {.seed = (uint64_t)k};
    bppsa_recurrent_config c = config_of(&d, k / CELLS % METHODS);
    const int64_t cut = k % 2 == 0 ? 10 : 7;
    c.seq_len = STEPS;
    c.batch = BATCH;
    c.layers = 1;
    c.loss_all = true;
    c.forward = bppsa_forward_method_default();
    expectation e = expect(&cells[k % CELLS], &c);
    e.finite = e.same_bits = false;
    bppsa_view *spoiled = k / CELLS / METHODS % 2 == 0 ? &e.whole.seed : &e.whole.x;
    const int64_t step = spoiled == &e.whole.seed ? cut + 4 : cut - 3;
    bppsa_view_set(spoiled, step * BATCH * spoiled->shape[2] + 1, (double)NAN);
    for (int i = 0; i < PASSES; ++i) {
      e.passes[i].mask = draw_mask(&d, 0, STEPS * BATCH);
      memset(e.passes[i].mask + cut * BATCH, 1, BATCH);
    }
    compute_whole(&e);
    const int64_t width = BATCH * c.input, first = spoiled == &e.whole.seed ? 0 : cut,
                  end = spoiled == &e.whole.seed ? cut : STEPS;
    for (int64_t i = first * width; i < end * width; ++i) {
      assert_true(isfinite(bppsa_view_get(&e.passes[0].dx, i)));
    }
    for (int64_t ranks = 1; ranks <= MOST_RANKS; ++ranks) {
      run_on(&e, ranks, (uint64_t)k);
    }
    free_expectation(&e);
  }
}

/* ---- what is refused ---- */

static bppsa_status refuse_on_rank(bppsa_comm *comm, void *context) {
  expectation *e = context;
  const bppsa_recurrent_config *c = &e->whole.config;
  const int64_t lengths[] = {3, 4};
  uint8_t mask[64] = {0};
  part r = {.model = NULL};
  bppsa_view logits;
  BPPSA_TRY(make_part(comm, e, &r));
  const bppsa_view x = rows_of(&e->whole.x, r.first, r.steps),
                   own = bppsa_view_make(mask, BPPSA_U8, 2, (int64_t[]){r.steps, c->batch}),
                   real = bppsa_view_make(e->whole.x.data, BPPSA_F32, 2, (int64_t[]){c->seq_len, c->batch}),
                   whole = mask_view(e, mask);
  CHECK(bppsa_model_forward(r.model, &x, NULL, &(bppsa_spans){.resets = &own}, &logits) == BPPSA_ERR_SHAPE);
  CHECK(strstr(bppsa_last_error(), "expected bool or u8 [7, 2]") != NULL);
  CHECK(bppsa_model_forward(r.model, &x, NULL, &(bppsa_spans){.resets = &real}, &logits) == BPPSA_ERR_SHAPE);
  CHECK(bppsa_model_forward(r.model, &x, NULL, &(bppsa_spans){.lengths = lengths}, &logits) == BPPSA_ERR_UNSUPPORTED);
  mask[5] = 2;
  CHECK(bppsa_model_forward(r.model, &x, NULL, &(bppsa_spans){.resets = &whole}, &logits) == BPPSA_ERR_ARGUMENT);
  CHECK(strstr(bppsa_last_error(), "resets: 2 at step 2 of sample 1 of the batch, expected 0 or 1") != NULL);
  mask[5] = 1;
  BPPSA_TRY(bppsa_model_forward(r.model, &x, NULL, &(bppsa_spans){.resets = &whole}, &logits));
  bppsa_model_destroy(r.model);
  bppsa_device_destroy(r.device);
  return BPPSA_OK;
}

/* Ranks that differ in whether samples may begin anew. */
static bppsa_status differ_on_rank(bppsa_comm *comm, void *context) {
  expectation *e = context;
  const bppsa_split_time split = {.comm = comm, .tag = 3, .micro_batches = 1};
  bppsa_recurrent_config c = e->whole.config;
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  c.resets = bppsa_comm_rank(comm) == 0;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  const bppsa_status status = bppsa_split_time_create(&split, &c, e->cell->cell, device, &model);
  bppsa_device_destroy(device);
  CHECK(status == BPPSA_ERR_ARGUMENT && model == NULL && strstr(bppsa_last_error(), "resets") != NULL);
  return BPPSA_OK;
}

static void test_refused(void **state) {
  (void)state;
  dice d = {.seed = 1};
  bppsa_recurrent_config c = config_of(&d, 0);
  c.seq_len = 7;
  c.batch = 2;
  c.dtype = BPPSA_F32;
  c.reset_state = false;
  c.forward = bppsa_forward_method_default();
  expectation e = expect(&cells[1], &c);
  const bppsa_comm_config two = {.ranks = 2, .timeout = 60};
  assert_int_equal(bppsa_comm_run(&two, refuse_on_rank, &e, NULL), BPPSA_OK);
  assert_int_equal(bppsa_comm_run(&two, differ_on_rank, &e, NULL), BPPSA_OK);
  close_run(&e.whole);
}

static bppsa_status refuse_on_gpu(bppsa_comm *comm, void *context) {
  expectation *e = context;
  part r = {.model = NULL};
  const bppsa_status status = make_part(comm, e, &r);
  CHECK(status == BPPSA_ERR_UNSUPPORTED && r.model == NULL);
  CHECK(strstr(bppsa_last_error(), "a speculative backward pass of a part of a sequence on a GPU, expected bp, scan") != NULL);
  bppsa_device_destroy(r.device);
  return BPPSA_OK;
}

/* Ranks that share time on GPUs have no speculative backward pass. All of them say so, and none waits for another. */
static void test_refused_on_gpus(void **state) {
  (void)state;
  dice d = {.seed = 2};
  bppsa_recurrent_config c = config_of(&d, METHODS);
  c.seq_len = 40;
  c.batch = 2;
  c.speculation.chunks = 4;
  c.speculation.warm_up = 2;
  expectation e = expect(&cells[1], &c);
  const bppsa_comm_config two = {.ranks = 2, .timeout = 60};
  assert_int_equal(bppsa_comm_run(&two, refuse_on_gpu, &e, NULL), BPPSA_OK);
  close_run(&e.whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_nan), cmocka_unit_test(test_refused)};
  const struct CMUnitTest on_gpus[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_nan),
                                       cmocka_unit_test(test_refused_on_gpus)};
  bool nccl;
  gpus = gpus_of_ranks(&nccl);
  return gpus > 0 ? cmocka_run_group_tests(on_gpus, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
}

/* `bppsa bench threads`: a training step on one thread and on several, on a quiet machine and beside threads that keep processors
 * busy. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "bench/cases/case.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/decimal.h"
#include "core/base/philox.h"
#include "core/compute/pool.h"
#include "train/loss.h"
#include "train/optimizer.h"

const char bppsa_bench_notes_threads[] =
    "A step is the forward pass, the loss, sequential back-propagation and Adam's update of an RNN in f32. A pass is 20 steps.\n"
    "First one network makes three steps on one thread, and an equal network makes them on several. If a single bit of the\n"
    "weights, the gradients or the loss differs, nothing is timed and the program exits 1. Then all rows take turns.\n"
    "The neighbours are threads of this program that do nothing but count. They sleep while the rows without them run.\n"
    "x one: the median over that of one thread with as many neighbours.\n";

enum { STEPS = 20, VERIFIED = 3, CELLS = 4 };

/* ---- neighbours ---- */

typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  atomic_bool busy, ended;
  atomic_int counting; /* neighbours at work */
  int64_t count;
  pthread_t *threads; /* size count */
  bool started;       /* they must be stopped before anything that they use is freed */
} neighbours;

static void *keep_busy(void *context) {
  neighbours *n = context;
  while (!atomic_load(&n->ended)) {
    pthread_mutex_lock(&n->mutex);
    while (!atomic_load(&n->busy) && !atomic_load(&n->ended)) {
      pthread_cond_wait(&n->changed, &n->mutex);
    }
    pthread_mutex_unlock(&n->mutex);
    atomic_fetch_add(&n->counting, 1);
    while (atomic_load_explicit(&n->busy, memory_order_relaxed)) {
    }
    atomic_fetch_sub(&n->counting, 1);
  }
  return NULL;
}

static void tell(neighbours *n, bool busy, bool ended) {
  pthread_mutex_lock(&n->mutex);
  atomic_store(&n->busy, busy);
  atomic_store(&n->ended, ended);
  pthread_cond_broadcast(&n->changed);
  pthread_mutex_unlock(&n->mutex);
}

/* Wakes all neighbours or puts them to sleep, and waits until they are. */
static void set_busy(neighbours *n, bool busy) {
  const struct timespec moment = {.tv_nsec = 200000};
  tell(n, busy, false);
  while (atomic_load(&n->counting) != (busy ? n->count : 0)) {
    nanosleep(&moment, NULL);
  }
}

static void stop_neighbours(neighbours *n) {
  tell(n, false, true);
  for (int64_t i = 0; i < n->count; ++i) {
    pthread_join(n->threads[i], NULL);
  }
  n->count = 0;
  n->started = false;
  bppsa_free(n->threads);
  pthread_cond_destroy(&n->changed);
  pthread_mutex_destroy(&n->mutex);
}

static bppsa_status start_neighbours(neighbours *n, int64_t wanted) {
  n->started = true;
  pthread_mutex_init(&n->mutex, NULL);
  pthread_cond_init(&n->changed, NULL);
  n->threads = bppsa_calloc(wanted, sizeof *n->threads);
  bppsa_status status = n->threads == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  while (status == BPPSA_OK && n->count < wanted) {
    if (pthread_create(&n->threads[n->count], NULL, keep_busy, n) != 0) {
      status = bppsa_fail(BPPSA_ERR_MEMORY, "bench: no thread for neighbour %" PRId64 " of %" PRId64, n->count + 1, wanted);
    } else {
      ++n->count;
    }
  }
  if (status != BPPSA_OK) {
    stop_neighbours(n);
  }
  return status;
}

/* ---- the network that is trained ---- */

/* A network with its optimiser, on a number of threads. */
typedef struct {
  const bppsa_device *device;
  bppsa_model *model;
  bppsa_optimizer *optimizer;
  void *seed; /* of the backward pass, in the logits' shape */
  bppsa_loss_result loss;
  double norm;
} trainee;

/* A row: a number of threads, beside a number of neighbours. */
typedef struct {
  struct session *s;
  trainee *who;
  int64_t beside; /* neighbours at work */
} cell;

typedef struct session {
  const bppsa_bench *bench;
  bppsa_recurrent_config config;
  bppsa_device *one; /* of one thread */
  trainee trainees[2];
  bppsa_view x;    /* [T,B,1] */
  int64_t *labels; /* [B] */
  bool compared;
  int64_t differing; /* how many numbers differ after VERIFIED steps */
  neighbours neighbours;
  cell cells[CELLS];
} session;

static bppsa_status step(const session *s, trainee *t) {
  bppsa_view logits;
  BPPSA_TRY(t->model->ops->forward(t->model, &s->x, NULL, &logits));
  bppsa_view seed = logits;
  seed.data = t->seed;
  BPPSA_TRY(bppsa_cross_entropy(t->device, &logits, s->labels, &seed, &t->loss));
  BPPSA_TRY(t->model->ops->backward(t->model, &seed));
  return bppsa_optimizer_update(t->optimizer, t->device, 0, &t->norm);
}

static bppsa_status make_trainee(const session *s, const bppsa_device *device, uint64_t seed, trainee *t) {
  const bppsa_optimizer_config config = bppsa_optimizer_config_default();
  t->device = device;
  t->seed = bppsa_calloc(s->config.batch * s->config.classes, bppsa_dtype_size(s->config.dtype));
  if (t->seed == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(bppsa_recurrent_create(&s->config, s->bench->asked->point.kind->cell, device, &t->model));
  BPPSA_TRY(bppsa_recurrent_init(t->model, BPPSA_INIT_DEFAULT, seed));
  return bppsa_optimizer_create(&config, t->model, &t->optimizer);
}

static bppsa_status make_inputs(session *s, uint64_t seed) {
  const bppsa_recurrent_config *c = &s->config;
  int64_t count;
  if (!bppsa_mul(c->seq_len, c->batch, &count)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "bench: inputs of %" PRId64 " steps do not fit in 64 bits", c->seq_len);
  }
  s->x = bppsa_view_make(bppsa_calloc(count, sizeof(float)), BPPSA_F32, 3, (int64_t[]){c->seq_len, c->batch, 1});
  s->labels = bppsa_calloc(c->batch, sizeof *s->labels);
  if (s->x.data == NULL || s->labels == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    ((float *)s->x.data)[i] = (float)bppsa_random_double(seed, 1, (uint64_t)i);
  }
  for (int64_t b = 0; b < c->batch; ++b) {
    s->labels[b] = b % c->classes;
  }
  return BPPSA_OK;
}

/* ---- verification ---- */

/* Counts the values whose bits differ between two tensors. */
static int64_t count_differing(const bppsa_view *a, const bppsa_view *b) {
  const size_t size = bppsa_dtype_size(a->dtype);
  int64_t differing = 0;
  for (int64_t i = 0; i < bppsa_view_count(a); ++i) {
    differing += memcmp((const char *)a->data + (size_t)i * size, (const char *)b->data + (size_t)i * size, size) != 0;
  }
  return differing;
}

/* Makes the same steps with both trainees and compares them. */
static bppsa_status compare_trainees(session *s) {
  trainee *one = &s->trainees[0], *several = &s->trainees[1];
  for (int i = 0; i < VERIFIED; ++i) {
    BPPSA_TRY(step(s, one));
    BPPSA_TRY(step(s, several));
    s->differing += memcmp(&one->loss.loss, &several->loss.loss, sizeof one->loss.loss) != 0;
  }
  for (int64_t p = 0; p < one->model->parameter_count; ++p) {
    const bppsa_parameter *a = &one->model->parameters[p], *b = &several->model->parameters[p];
    s->differing += count_differing(&a->value, &b->value) + count_differing(&a->gradient, &b->gradient);
  }
  s->compared = true;
  return BPPSA_OK;
}

/* All rows are right when the two trainees have the same bits; they are compared once. */
static bppsa_status verify(void *context, double *residual) {
  session *s = ((const cell *)context)->s;
  BPPSA_TRY(s->compared ? BPPSA_OK : compare_trainees(s));
  *residual = (double)s->differing;
  return BPPSA_OK;
}

/* ---- timing ---- */

/* Makes one step that is not timed, then STEPS steps that are. */
static bppsa_status pass(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  const cell *c = context;
  set_busy(&c->s->neighbours, c->beside > 0);
  BPPSA_TRY(step(c->s, c->who));
  const double begun = bppsa_now();
  for (int i = 0; i < STEPS; ++i) {
    BPPSA_TRY(step(c->s, c->who));
  }
  seconds[0] = bppsa_now() - begun;
  return BPPSA_OK;
}

/* Points without neighbours come first; within both, one thread comes first. */
static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  session *s = bench->session;
  const int count = s->neighbours.count > 0 ? CELLS : CELLS / 2;
  *more = point == 0;
  for (int i = 0; *more && i < count; ++i) {
    const bppsa_contender contender = {
        .verification = {verify, &s->cells[i], 0}, .pass = pass, .context = &s->cells[i], .parts = 1};
    s->cells[i] = (cell){s, &s->trainees[i % 2], i < 2 ? 0 : s->neighbours.count};
    BPPSA_TRY(bppsa_bench_enter_contender(bench, &contender, &s->cells[i], "bp", "step", NULL));
  }
  return BPPSA_OK;
}

/* ---- rows ---- */

/* The timing of a step, from the timing of a pass. */
static bppsa_timing of_step(const bppsa_timing *t) {
  bppsa_timing step_time = *t;
  step_time.median_s /= STEPS;
  step_time.min_s /= STEPS;
  step_time.max_s /= STEPS;
  return step_time;
}

/* The timing of one thread beside as many neighbours. */
static const bppsa_timing *one_thread(const bppsa_bench_entrant *e) {
  const cell *c = e->context;
  return &e->bench->entrants[(c - c->s->cells) / 2 * 2]->contender.timing[0];
}

static bool put(const bppsa_bench_entrant *e, json_t *row) {
  const cell *c = e->context;
  const bppsa_recurrent_config *config = &c->s->config;
  const bppsa_timing t = of_step(&e->contender.timing[0]);
  bool ok = bppsa_json_put_integer(row, "seq_len", config->seq_len);
  ok = ok && bppsa_json_put_integer(row, "batch", config->batch);
  ok = ok && bppsa_json_put_integer(row, "hidden", config->hidden);
  ok = ok && bppsa_json_put_integer(row, "input", config->input) && bppsa_json_put_integer(row, "layers", 1);
  ok = ok && bppsa_json_put_text(row, "dtype", "f32") && bppsa_json_put_text(row, "method", e->method);
  ok = ok && bppsa_json_put_text(row, "phase", e->phase);
  ok = ok && bppsa_json_put_integer(row, "threads", bppsa_device_get_threads(c->who->device));
  ok = ok && bppsa_json_put_integer(row, "neighbours", c->beside) && bppsa_bench_put_timing(row, &t);
  ok = ok && bppsa_json_put_integer(row, "steps_per_pass", STEPS);
  ok = ok && bppsa_json_put_bool(row, "identical", e->contender.verdict == BPPSA_VERIFIED);
  ok = ok && bppsa_json_put_real(row, "residual", e->contender.residual);
  return ok && bppsa_json_put_real(row, "over_one_thread",
                                   t.repeats > 0 ? e->contender.timing[0].median_s / one_thread(e)->median_s : NAN);
}

static const char *write_ratio(const void *context, const json_t *row, char *text, size_t size) {
  const bppsa_bench_entrant *e = context;
  const json_t *ratio = json_object_get(row, "over_one_thread");
  if (!json_is_number(ratio)) {
    return "-";
  }
  bppsa_print(text, size, "%s%.2f", bppsa_timing_mark(e->contender.timing[0].noisy || one_thread(e)->noisy),
              json_number_value(ratio));
  return text;
}

static const bppsa_table_column columns[] = {
    {.heading = "neighbours", .width = 12, .kind = BPPSA_COLUMN_INTEGER, .key = "neighbours"},
    {.heading = "threads", .width = 9, .kind = BPPSA_COLUMN_INTEGER, .key = "threads"},
    BPPSA_COLUMN_TIMES(11, 11, 7, 3),
    {.heading = "x one", .width = 9, .key = "over_one_thread", .write = write_ratio},
    {0}};

static bppsa_status print_head(const bppsa_bench *bench) {
  const session *s = bench->session;
  return bppsa_output_print(
      &bench->request->to,
      "one training step of rnn: T %" PRId64 ", B %" PRId64 ", H %" PRId64 ", bp, f32, on %s, %d processors\n"
      "milliseconds; rows are WRONG where the results of both numbers of threads differ in a bit\n\n",
      s->config.seq_len, s->config.batch, s->config.hidden, bppsa_device_get_hardware(bench->device), (int)bppsa_pool_cpus());
}

/* ---- the benchmark ---- */

static bppsa_status prepare(bppsa_bench *bench) {
  session *s = bench->session;
  const uint64_t seed = bench->request->seed;
  s->bench = bench;
  s->config = bppsa_bench_config(&bench->asked->point.config, BPPSA_BENCH_BP);
  if (bppsa_device_get_threads(bench->device) < 2) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--threads: 1, expected 2 or more: one thread is what they are compared with");
  }
  BPPSA_TRY(bppsa_device_create("cpu", 1, &s->one));
  BPPSA_TRY(make_inputs(s, seed));
  BPPSA_TRY(make_trainee(s, s->one, seed, &s->trainees[0]));
  BPPSA_TRY(make_trainee(s, bench->device, seed, &s->trainees[1]));
  return start_neighbours(&s->neighbours, bench->asked->neighbours >= 0 ? bench->asked->neighbours : bppsa_pool_cpus());
}

static void release(bppsa_bench *bench) {
  session *s = bench->session;
  if (s->neighbours.started) {
    stop_neighbours(&s->neighbours);
  }
  for (int i = 0; i < 2; ++i) {
    bppsa_optimizer_destroy(s->trainees[i].optimizer);
    bppsa_model_destroy(s->trainees[i].model);
    bppsa_free(s->trainees[i].seed);
  }
  bppsa_free(s->x.data);
  bppsa_free(s->labels);
  bppsa_device_destroy(s->one);
}

const bppsa_bench_case bppsa_bench_case_threads = {.name = "threads",
                                                   .session = sizeof(session),
                                                   .budget_s = 3,
                                                   .quick_s = 0.3,
                                                   .bound = 1, /* not a single number may differ */
                                                   .columns = columns,
                                                   .prepare = prepare,
                                                   .head = print_head,
                                                   .enter = enter,
                                                   .put = put,
                                                   .release = release};

/* `bppsa bench threads`: a training step on one thread and on several, on a quiet machine and beside threads that keep processors
 * busy. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "bench/cases/case.h"
#include "bench/harness/machine.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/philox.h"
#include "core/pool.h"
#include "train/loss.h"
#include "train/optimizer.h"

const char bppsa_bench_notes_threads[] =
    "A step is forward pass, loss, sequential back-propagation and Adam's update of an RNN in f32; a pass is 20 of them.\n"
    "First both numbers of threads make three steps: results that differ in a bit exit 1. Then all rows take turns. The\n"
    "neighbours are threads of this program that do nothing but count; they sleep while the rows without them run.\n"
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

/* Waits until all neighbours are at work, or asleep. */
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
  bppsa_free(n->threads);
  pthread_cond_destroy(&n->changed);
  pthread_mutex_destroy(&n->mutex);
}

static bppsa_status start_neighbours(neighbours *n, int64_t wanted) {
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

typedef struct {
  const bppsa_bench_settings *asked;
  json_t *rows;
  bppsa_recurrent_config config;
  bppsa_device *one; /* of one thread */
  trainee trainees[2];
  bppsa_view x;    /* [T,B,1] */
  int64_t *labels; /* [B] */
  neighbours neighbours;
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
  BPPSA_TRY(bppsa_recurrent_create(&s->config, s->asked->point.kind->cell, device, &t->model));
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

static bool same_values(const bppsa_view *a, const bppsa_view *b) {
  return memcmp(a->data, b->data, bppsa_view_bytes(a)) == 0;
}

static bppsa_status verify(session *s) {
  trainee *one = &s->trainees[0], *several = &s->trainees[1];
  bool same = true;
  for (int i = 0; i < VERIFIED; ++i) {
    BPPSA_TRY(step(s, one));
    BPPSA_TRY(step(s, several));
    same = same && memcmp(&one->loss.loss, &several->loss.loss, sizeof one->loss.loss) == 0;
  }
  for (int64_t p = 0; p < one->model->parameter_count; ++p) {
    const bppsa_parameter *a = &one->model->parameters[p], *b = &several->model->parameters[p];
    same = same && same_values(&a->value, &b->value) && same_values(&a->gradient, &b->gradient);
  }
  return same ? BPPSA_OK
              : bppsa_fail(BPPSA_ERR_NUMERIC, "bench: after %d steps 1 and %d threads differ, expected the same bits", VERIFIED,
                           bppsa_device_get_threads(several->device));
}

/* ---- timing ---- */

typedef struct {
  session *s;
  trainee *who;
  int64_t beside; /* neighbours at work */
} cell;

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

/* The timing of a step, from the timing of a pass. */
static bppsa_timing of_step(const bppsa_timing *t) {
  bppsa_timing step_time = *t;
  step_time.median_s /= STEPS;
  step_time.min_s /= STEPS;
  step_time.max_s /= STEPS;
  return step_time;
}

static bppsa_status add_row(const session *s, const cell *c, const bppsa_timing *t, double ratio, bool marked) {
  const int64_t threads = bppsa_device_get_threads(c->who->device);
  char median[BPPSA_TIMING_TEXT];
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_integer(object, "seq_len", s->config.seq_len);
  ok = ok && bppsa_json_put_integer(object, "batch", s->config.batch);
  ok = ok && bppsa_json_put_integer(object, "hidden", s->config.hidden);
  ok = ok && bppsa_json_put_integer(object, "input", s->config.input) && bppsa_json_put_integer(object, "layers", 1);
  ok = ok && bppsa_json_put_text(object, "dtype", "f32") && bppsa_json_put_text(object, "method", "bp");
  ok = ok && bppsa_json_put_text(object, "phase", "step") && bppsa_json_put_integer(object, "threads", threads);
  ok = ok && bppsa_json_put_integer(object, "neighbours", c->beside) && bppsa_bench_put_timing(object, t);
  ok = ok && bppsa_json_put_integer(object, "steps_per_pass", STEPS) && bppsa_json_put_bool(object, "identical", true);
  ok = ok && bppsa_json_put_real(object, "over_one_thread", ratio);
  if (json_array_append_new(s->rows, bppsa_json_finish(object, ok)) != 0) {
    return bppsa_bench_no_room();
  }
  return s->asked->request.to.json
             ? BPPSA_OK
             : bppsa_output_print(&s->asked->request.to, "%12" PRId64 "%9" PRId64 "%11s%11.3f%11.3f%7" PRId64 "%9s%.2f\n",
                                  c->beside, threads, bppsa_timing_median_ms(t, 3, median), 1e3 * t->min_s, 1e3 * t->max_s,
                                  t->repeats, bppsa_timing_mark(marked), ratio);
}

static bppsa_status print_head(const session *s) {
  const bppsa_device *device = s->trainees[1].device;
  return bppsa_output_print(
      &s->asked->request.to,
      "one training step of rnn: T %" PRId64 ", B %" PRId64 ", H %" PRId64 ", bp, f32, on %s, %d processors\n"
      "milliseconds; the results of both numbers of threads have the same bits\n\n"
      "  neighbours  threads     median        min        max      n    x one\n",
      s->config.seq_len, s->config.batch, s->config.hidden, bppsa_device_get_hardware(device), (int)bppsa_pool_cpus());
}

/* Quiet first, then beside the neighbours; one thread first. */
static bppsa_status time_cells(session *s) {
  const int count = s->neighbours.count > 0 ? CELLS : CELLS / 2;
  cell cells[CELLS];
  bppsa_contender list[CELLS] = {0};
  const bppsa_rounds rounds = bppsa_bench_rounds_of(&s->asked->request, 3, 0.3);
  int64_t noisy = 0;
  for (int i = 0; i < count; ++i) {
    cells[i] = (cell){s, &s->trainees[i % 2], i < 2 ? 0 : s->neighbours.count};
    list[i] = (bppsa_contender){.pass = pass, .context = &cells[i], .parts = 1};
  }
  BPPSA_TRY(bppsa_rounds_run(&rounds, count, list));
  BPPSA_TRY(s->asked->request.to.json ? BPPSA_OK : print_head(s));
  for (int i = 0; i < count; ++i) {
    const bppsa_timing t = of_step(&list[i].timing[0]), *one = &list[i / 2 * 2].timing[0];
    BPPSA_TRY(add_row(s, &cells[i], &t, list[i].timing[0].median_s / one->median_s, t.noisy || one->noisy));
    noisy += t.noisy;
  }
  return s->asked->request.to.json ? BPPSA_OK : bppsa_bench_show_noisy(&s->asked->request.to, noisy);
}

/* ---- the benchmark ---- */

static bppsa_status measure(session *s, const bppsa_device *several) {
  const uint64_t seed = s->asked->request.seed;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &s->one));
  BPPSA_TRY(make_inputs(s, seed));
  BPPSA_TRY(make_trainee(s, s->one, seed, &s->trainees[0]));
  BPPSA_TRY(make_trainee(s, several, seed, &s->trainees[1]));
  BPPSA_TRY(verify(s));
  BPPSA_TRY(start_neighbours(&s->neighbours, s->asked->neighbours >= 0 ? s->asked->neighbours : bppsa_pool_cpus()));
  const bppsa_status status = time_cells(s);
  stop_neighbours(&s->neighbours);
  return status;
}

static void release(session *s) {
  for (int i = 0; i < 2; ++i) {
    bppsa_optimizer_destroy(s->trainees[i].optimizer);
    bppsa_model_destroy(s->trainees[i].model);
    bppsa_free(s->trainees[i].seed);
  }
  bppsa_free(s->x.data);
  bppsa_free(s->labels);
  bppsa_device_destroy(s->one);
}

static bppsa_status run(const bppsa_bench_settings *asked) {
  bppsa_bench_report report;
  BPPSA_TRY(bppsa_bench_open(&asked->request, "threads", &report));
  session s = {.asked = asked, .rows = report.rows, .config = bppsa_bench_config(&asked->point.config, BPPSA_BENCH_BP)};
  bppsa_status status =
      bppsa_device_get_threads(asked->request.device) > 1
          ? measure(&s, asked->request.device)
          : bppsa_fail(BPPSA_ERR_ARGUMENT, "--threads: 1, expected 2 or more: one thread is what they are compared with");
  release(&s);
  return bppsa_bench_close(&report, status, 0, 0);
}

const bppsa_bench_case bppsa_bench_case_threads = {"threads", run};

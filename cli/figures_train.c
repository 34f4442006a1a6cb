/* Figures 7 and 13: training by BP and by the scan, all methods in turn at every iteration, so that other load hits them alike. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "cli/bench.h"
#include "cli/figures.h"
#include "cli/setup.h"
#include "core/alloc.h"
#include "train/data/dataset.h"
#include "train/loss.h"
#include "train/optimizer.h"
#include "train/trainer.h"

static const bppsa_bench_method methods[] = {BPPSA_BENCH_BP, BPPSA_BENCH_BLELLOCH, BPPSA_BENCH_CHUNKED};
enum { METHODS = sizeof methods / sizeof methods[0], WINDOW = 20 };
static const double learning_rate = 3e-4;

typedef struct {
  bppsa_model *model;
  bppsa_optimizer *optimizer;
  double *losses, *seconds; /* per iteration; seconds of this method's own work so far */
  double forward_s, backward_s;
  bppsa_evaluation held_out; /* of the trained network */
} runner;

typedef struct {
  const bppsa_figures *figures;
  const bppsa_device *device;
  bppsa_dataset *data;
  bppsa_split split;
  bppsa_recurrent_config config; /* the data set's shape */
  int64_t *order, *labels;
  float *x, *seed;
  runner runners[METHODS];
} training;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bppsa_status open_bitstream(training *t) {
  const bppsa_recurrent_config *c = &t->config;
  bppsa_dataset_options options = bppsa_dataset_options_default();
  options.seq_len = c->seq_len;
  options.seed = t->figures->seed;
  options.samples = c->batch > BPPSA_PAPER_SAMPLES ? c->batch : 0;
  return bppsa_dataset_create("bitstream", &options, &t->data);
}

/* The data set, and its shape into the configuration. */
static bppsa_status open_data(training *t) {
  bppsa_recurrent_config *c = &t->config;
  *c = t->figures->config;
  if (t->figures->data != NULL) {
    BPPSA_TRY(bppsa_setup_dataset_of(t->figures->cli, t->figures->data, t->device, false, NULL, &t->data));
  } else {
    BPPSA_TRY(open_bitstream(t));
  }
  c->seq_len = t->data->seq_len;
  c->input = t->data->input;
  c->classes = t->data->classes;
  BPPSA_TRY(bppsa_split_make(t->data->samples, t->figures->validation, &t->split));
  return c->batch <= t->split.train
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--batch: %" PRId64 ", more than the %" PRId64 " training samples, expected at most that many",
                          c->batch, t->split.train);
}

static bppsa_status prepare(training *t) {
  const bppsa_recurrent_config *c = &t->config;
  BPPSA_TRY(open_data(t));
  t->order = bppsa_calloc(t->split.train, sizeof *t->order);
  t->labels = bppsa_calloc(c->batch, sizeof *t->labels);
  t->x = bppsa_calloc(c->seq_len * c->batch * c->input, sizeof *t->x);
  t->seed = bppsa_calloc(c->batch * c->classes, sizeof *t->seed);
  if (t->order == NULL || t->labels == NULL || t->x == NULL || t->seed == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int m = 0; m < METHODS; ++m) {
    runner *r = &t->runners[m];
    const bppsa_recurrent_config config = bppsa_bench_config(c, methods[m]);
    bppsa_optimizer_config adam = bppsa_optimizer_config_default();
    adam.lr = learning_rate;
    BPPSA_TRY(t->figures->kind->create(&config, t->device, &r->model));
    BPPSA_TRY(bppsa_recurrent_init(r->model, BPPSA_INIT_DEFAULT, t->figures->seed));
    BPPSA_TRY(bppsa_optimizer_create(&adam, r->model, &r->optimizer));
    r->losses = bppsa_calloc(t->figures->iterations, sizeof *r->losses);
    r->seconds = bppsa_calloc(t->figures->iterations, sizeof *r->seconds);
    if (r->losses == NULL || r->seconds == NULL) {
      return BPPSA_ERR_MEMORY;
    }
  }
  return BPPSA_OK;
}

static bppsa_view batch_view(const training *t) {
  const bppsa_recurrent_config *c = &t->config;
  return bppsa_view_make(t->x, BPPSA_F32, 3, (int64_t[]){c->seq_len, c->batch, c->input});
}

static bppsa_status step(training *t, runner *r, int64_t iteration) {
  const bppsa_recurrent_config *c = &t->config;
  const bppsa_view x = batch_view(t);
  const bppsa_view seed = bppsa_view_make(t->seed, BPPSA_F32, 2, (int64_t[]){c->batch, c->classes});
  bppsa_view logits;
  bppsa_loss_result loss;
  const double start = now();
  BPPSA_TRY(r->model->ops->forward(r->model, &x, NULL, &logits));
  const double forward = now();
  BPPSA_TRY(bppsa_cross_entropy(t->device, &logits, t->labels, &seed, &loss));
  const double scored = now();
  BPPSA_TRY(r->model->ops->backward(r->model, &seed));
  const double backward = now();
  bppsa_optimizer_step(r->optimizer, t->device);
  r->losses[iteration] = loss.loss;
  r->seconds[iteration] = (iteration > 0 ? r->seconds[iteration - 1] : 0) + now() - start;
  r->forward_s += forward - start;
  r->backward_s += backward - scored;
  return BPPSA_OK;
}

static bppsa_status train(training *t, bppsa_progress_line *line) {
  const bppsa_recurrent_config *c = &t->config;
  const bppsa_view x = batch_view(t);
  const int64_t batches = t->split.train / c->batch;
  for (int64_t i = 0; i < t->figures->iterations; ++i) {
    if (i % batches == 0) {
      bppsa_shuffle(t->figures->seed, i / batches + 1, t->split.train, t->order);
    }
    BPPSA_TRY(bppsa_dataset_fill(t->data, t->device, c->batch, t->order + i % batches * c->batch, &x, t->labels));
    for (int m = 0; m < METHODS; ++m) {
      BPPSA_TRY(step(t, &t->runners[m], i));
    }
    if (bppsa_progress_due(line)) {
      bppsa_progress_show(line, "%s: iteration %" PRId64 " of %" PRId64 ", loss %.3f", t->figures->curves, i + 1,
                          t->figures->iterations, t->runners[0].losses[i]);
    }
  }
  for (int m = 0; t->split.validation > 0 && m < METHODS; ++m) {
    BPPSA_TRY(bppsa_evaluate(t->runners[m].model, t->data, t->device, t->split.train, t->split.validation, c->batch,
                             &t->runners[m].held_out));
  }
  return BPPSA_OK;
}

static double window_mean(const double *values, int64_t first, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += values[first + i];
  }
  return sum / (double)count;
}

static void verdict_text(const training *t, double most, bppsa_text *verdict) {
  const bppsa_recurrent_config *c = &t->config;
  const int64_t last = t->figures->iterations - 1;
  const runner *bp = &t->runners[0],
               *scan = t->runners[1].seconds[last] < t->runners[2].seconds[last] ? &t->runners[1] : &t->runners[2];
  bppsa_text_add(
      verdict,
      "%s, T = %" PRId64 ", B = %" PRId64 ", H = %" PRId64 ", Adam %g, %" PRId64
      " iterations. The largest difference of any single loss from BP's is %.1e. The time of BP over that of the faster "
      "scan: %.2f overall, %.2f for the backward pass. ",
      strcmp(t->figures->kind->name, "gru") == 0 ? "GRU" : "RNN", c->seq_len, c->batch, c->hidden, learning_rate, last + 1, most,
      bp->seconds[last] / scan->seconds[last], bp->backward_s / scan->backward_s);
  for (int m = 0; t->split.validation > 0 && m < METHODS; ++m) {
    bppsa_text_add(verdict, "%s%s %.1f %%", m == 0 ? "Accuracy on the samples held out: " : ", ",
                   bppsa_bench_method_name(methods[m]), 100 * t->runners[m].held_out.accuracy);
  }
  if (t->split.validation > 0) {
    bppsa_text_add(verdict, " of %" PRId64 ". ", t->split.validation);
  }
  bppsa_text_add(verdict, "%s",
                 t->figures->data == NULL
                     ? "The paper (RTX 2070, 80 epochs, Adam 1e-5): 2.73 overall, 16 for the backward pass."
                     : "The paper (RTX cards, 400 epochs of IRMAS at B = 16): up to 2.36 overall, 13.4 for the "
                       "backward pass, over all sets and batches.");
}

static void report(const training *t, bppsa_text *csv, bppsa_text *verdict) {
  const int64_t all = t->figures->iterations;
  const runner *bp = &t->runners[0];
  double most = 0;
  bppsa_text_add(csv, "method,iterations,seconds,mean_loss\n");
  for (int m = 0; m < METHODS; ++m) {
    const runner *r = &t->runners[m];
    for (int64_t first = 0; first < all; first += WINDOW) {
      const int64_t count = all - first < WINDOW ? all - first : WINDOW;
      bppsa_text_add(csv, "%s,%" PRId64 ",%.6f,%.9g\n", bppsa_bench_method_name(methods[m]), first + count,
                     r->seconds[first + count - 1], window_mean(r->losses, first, count));
    }
    for (int64_t i = 0; i < all; ++i) {
      most = fmax(most, fabs(r->losses[i] - bp->losses[i]));
    }
  }
  verdict_text(t, most, verdict);
}

bppsa_status bppsa_figures_train(const bppsa_figures *figures, const bppsa_device *device, bppsa_progress_line *line,
                                 bppsa_text *csv, bppsa_text *verdict) {
  training t = {.figures = figures, .device = device};
  bppsa_status status = prepare(&t);
  if (status == BPPSA_OK) {
    status = train(&t, line);
  }
  bppsa_progress_clear(line);
  if (status == BPPSA_OK) {
    report(&t, csv, verdict);
  }
  for (int m = 0; m < METHODS; ++m) {
    bppsa_optimizer_destroy(t.runners[m].optimizer);
    bppsa_model_destroy(t.runners[m].model);
    bppsa_free(t.runners[m].losses);
    bppsa_free(t.runners[m].seconds);
  }
  bppsa_dataset_destroy(t.data);
  void *const blocks[] = {t.order, t.labels, t.x, t.seed};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
    bppsa_free(blocks[i]);
  }
  return status;
}

#include "figures/lockstep.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "figures/figure_data_set.h"
#include "figures/keep_measurements.h"
#include "train/loss.h"

const double bppsa_lockstep_rate = 3e-4;

enum { METHODS = BPPSA_LOCKSTEP_METHODS, WINDOW = BPPSA_LOCKSTEP_WINDOW };

/* ---- methods ---- */

const char *bppsa_lockstep_name(int method) {
  return method == 0 ? bppsa_backward_name(BPPSA_BACKWARD_BP) : bppsa_scan_algorithm_name(bppsa_measured_parallel(method - 1));
}

static bppsa_gradient_method method_of(int method) {
  return method == 0 ? (bppsa_gradient_method){.backward = BPPSA_BACKWARD_BP}
                     : (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, bppsa_scan_method_of(bppsa_measured_parallel(method - 1))};
}

/* ---- data ---- */

/* Opens the data set (bitstream if the run names none) and writes its shape to the configuration. */
static bppsa_status open_data(bppsa_lockstep *t) {
  const bppsa_figures_request *r = t->figures->request;
  const bool given = r->data.spec != NULL;
  bppsa_recurrent_config *c = &t->config;
  *c = bppsa_figures_config(t->figures);
  const bppsa_figures_dataset asked = {.spec = given ? r->data.spec : "bitstream",
                                       .seq_len = r->seq_len,
                                       .samples = !given && c->batch > BPPSA_PAPER_SAMPLES ? c->batch : 0,
                                       .batch = c->batch,
                                       .validation = given ? r->data.validation : 0};
  BPPSA_TRY(bppsa_figures_open_data(t->figures, &asked, &t->data, &t->split));
  c->seq_len = t->data->seq_len;
  c->input = t->data->input;
  c->classes = t->data->classes;
  return BPPSA_OK;
}

static bppsa_status reserve(bppsa_lockstep *t) {
  const bppsa_recurrent_config *c = &t->config;
  t->iterations = t->figures->request->iterations;
  t->windows = (t->iterations + WINDOW - 1) / WINDOW;
  t->order = bppsa_calloc(t->split.train, sizeof *t->order);
  t->labels = bppsa_calloc(c->batch, sizeof *t->labels);
  t->x = bppsa_calloc(c->seq_len * c->batch * c->input, sizeof *t->x);
  t->seed = bppsa_calloc(c->batch * c->classes, sizeof *t->seed);
  bool got = t->order != NULL && t->labels != NULL && t->x != NULL && t->seed != NULL;
  for (int m = 0; got && m < METHODS; ++m) {
    bppsa_lockstep_runner *r = &t->runners[m];
    r->losses = bppsa_calloc(t->iterations, sizeof *r->losses);
    r->seconds = bppsa_calloc(t->windows, sizeof *r->seconds);
    got = r->losses != NULL && r->seconds != NULL;
  }
  return got ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

/* ---- one repeat ---- */

static void end_runners(bppsa_lockstep *t) {
  for (int m = 0; m < METHODS; ++m) {
    bppsa_optimizer_destroy(t->runners[m].optimizer);
    bppsa_model_destroy(t->runners[m].model);
    t->runners[m].optimizer = NULL;
    t->runners[m].model = NULL;
  }
}

static bppsa_status begin_runners(bppsa_lockstep *t) {
  for (int m = 0; m < METHODS; ++m) {
    bppsa_lockstep_runner *r = &t->runners[m];
    bppsa_recurrent_config config = t->config;
    config.method = method_of(m);
    bppsa_optimizer_config adam = bppsa_optimizer_config_default();
    adam.lr = bppsa_lockstep_rate;
    memset(r->seconds, 0, (size_t)t->windows * sizeof *r->seconds);
    BPPSA_TRY(t->figures->kind->create(&config, t->figures->kind->cell, t->figures->request->device, &r->model));
    BPPSA_TRY(bppsa_recurrent_init(r->model, BPPSA_INIT_DEFAULT, t->figures->request->seed));
    BPPSA_TRY(bppsa_optimizer_create(&adam, r->model, &r->optimizer));
  }
  return BPPSA_OK;
}

static bppsa_view batch_view(const bppsa_lockstep *t) {
  const bppsa_recurrent_config *c = &t->config;
  return bppsa_view_make(t->x, BPPSA_F32, 3, (int64_t[]){c->seq_len, c->batch, c->input});
}

static bppsa_status step(bppsa_lockstep *t, bppsa_lockstep_runner *r, int64_t iteration) {
  const bppsa_device *device = t->figures->request->device;
  const bppsa_recurrent_config *c = &t->config;
  const bppsa_view x = batch_view(t);
  const bppsa_view seed = bppsa_view_make(t->seed, BPPSA_F32, 2, (int64_t[]){c->batch, c->classes});
  bppsa_view logits;
  bppsa_loss_result loss;
  const double start = bppsa_now();
  BPPSA_TRY(r->model->ops->forward(r->model, &x, NULL, &logits));
  const double forward = bppsa_now();
  BPPSA_TRY(bppsa_cross_entropy(device, &logits, t->labels, &seed, &loss));
  const double scored = bppsa_now();
  BPPSA_TRY(r->model->ops->backward(r->model, &seed));
  r->seconds[iteration / WINDOW] += bppsa_now() - scored + forward - start;
  bppsa_optimizer_step(r->optimizer, device);
  r->losses[iteration] = loss.loss;
  return BPPSA_OK;
}

static bppsa_status train_all(bppsa_lockstep *t, const char *done) {
  const bppsa_figures_request *request = t->figures->request;
  const bppsa_recurrent_config *c = &t->config;
  const bppsa_view x = batch_view(t);
  const int64_t batches = t->split.train / c->batch;
  for (int64_t i = 0; i < t->iterations; ++i) {
    if (i % batches == 0) {
      bppsa_shuffle(request->seed, i / batches + 1, t->split.train, t->order);
    }
    BPPSA_TRY(bppsa_dataset_fill(t->data, request->device, c->batch, t->order + i % batches * c->batch, &x, t->labels));
    for (int m = 0; m < METHODS; ++m) {
      BPPSA_TRY(step(t, &t->runners[m], i));
    }
    BPPSA_TRY(bppsa_keep_check_stop(t->figures, done));
    if (bppsa_progress_due(&t->line)) {
      bppsa_progress_show(&t->line, "%s: %s done, iteration %" PRId64 " of %" PRId64 ", loss %.3f", t->name, done, i + 1,
                          t->iterations, t->runners[0].losses[i]);
    }
  }
  for (int m = 0; t->split.validation > 0 && m < METHODS; ++m) {
    BPPSA_TRY(bppsa_evaluate(t->runners[m].model, t->data, request->device, t->split.train, t->split.validation, c->batch,
                             &t->runners[m].held_out));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_lockstep_repeat(bppsa_lockstep *t, const char *done) {
  bppsa_status status = begin_runners(t);
  status = status == BPPSA_OK ? train_all(t, done) : status;
  end_runners(t);
  return status;
}

/* ---- all repeats ---- */

bppsa_status bppsa_lockstep_open(const bppsa_figures *figures, const char *name, bppsa_lockstep *t) {
  *t = (bppsa_lockstep){.figures = figures, .name = name, .line = bppsa_progress_start(figures->request->to.err)};
  BPPSA_TRY(open_data(t));
  return reserve(t);
}

void bppsa_lockstep_close(bppsa_lockstep *t) {
  bppsa_progress_clear(&t->line);
  for (int m = 0; m < METHODS; ++m) {
    bppsa_free(t->runners[m].losses);
    bppsa_free(t->runners[m].seconds);
  }
  bppsa_dataset_destroy(t->data);
  void *const blocks[] = {t->order, t->labels, t->x, t->seed};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
    bppsa_free(blocks[i]);
  }
}

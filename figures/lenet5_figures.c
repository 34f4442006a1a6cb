/* Figure 6: LeNet-5 trained by BP and by the scan at two learning rates. Every curve is kept as one part (keep_measurements.h). */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/io.h"
#include "figures/figure_data.h"
#include "figures/figure_data_set.h"
#include "figures/keep_measurements.h"
#include "runs/train_report.h"
#include "terminal/machine.h"
#include "train/data/cifar10.h"
#include "train/trainer.h"

enum { RATES = 2, METHODS = 2 };
static const struct {
  const char *text;
  double lr;
} rates[RATES] = {{"0.001", 0.001}, {"0.01", 0.01}};
static const struct {
  const char *name;
  bppsa_gradient_method method;
} methods[METHODS] = {{"bp", {.backward = BPPSA_BACKWARD_BP}},
                      {"scan", {BPPSA_BACKWARD_SCAN, {.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = 1}}}};

/* ---- images ---- */

static void show_images(void *context, int64_t done, int64_t total) {
  bppsa_progress_line *line = context;
  if (bppsa_progress_due(line)) {
    bppsa_progress_show(line, "%" PRId64 " of %" PRId64 " images", done, total);
  }
}

/* Makes synthetic images in DIR/cifar.new, which becomes `directory` when it is complete. What a run that was killed has left in
 * it is made anew. */
static bppsa_status make_images(const bppsa_figures *f, const char *directory) {
  const bppsa_figures_request *r = f->request;
  char made[BPPSA_FIGURES_PATH], path[BPPSA_FIGURES_PATH];
  BPPSA_TRY(bppsa_figures_path(f, "cifar.new", "", made));
  for (int i = 0; i < BPPSA_CIFAR10_FILES; ++i) {
    BPPSA_TRY(bppsa_figures_path(f, "cifar.new/", bppsa_cifar10_file(i), path));
    (void)bppsa_io_unlink(path);
  }
  bppsa_progress_line line = bppsa_progress_start(r->to.err);
  const bppsa_status status =
      bppsa_cifar10_write(made, r->quick ? 512 : 10000, 1, bppsa_device_get_threads(r->device), show_images, &line);
  bppsa_progress_clear(&line);
  BPPSA_TRY(status);
  return bppsa_io_rename(made, directory) == 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_IO, "%s: cannot be made of %s (%s), expected no directory there, or an empty one", directory,
                          made, strerror(errno));
}

/* Finds the run's data set. If the run names none, uses synthetic images in the directory, and makes them if they are missing. */
static bppsa_status find_images(const bppsa_figures *f, char spec[BPPSA_FIGURES_PATH]) {
  const bppsa_figures_request *r = f->request;
  const char *kind = "cifar10:";
  char path[BPPSA_FIGURES_PATH];
  struct stat found;
  if (r->data.spec != NULL) {
    snprintf(spec, BPPSA_FIGURES_PATH, "%s", r->data.spec);
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_figures_path(f, "cifar/test_batch.bin", "", path)); /* written last; longer than spec */
  snprintf(spec, BPPSA_FIGURES_PATH, "%s%s/cifar", kind, r->directory);
  return stat(path, &found) == 0 ? BPPSA_OK : make_images(f, spec + strlen(kind));
}

/* ---- one curve ---- */

typedef struct {
  const bppsa_figures *figures;
  bppsa_progress_line line;
  const char *name; /* the curve's name */
  bppsa_network network;
  bppsa_network_config config;
  bppsa_dataset *data;
  bppsa_model *model;
  json_t *rows; /* one row for each epoch */
} curve;

static bppsa_status on_epoch(void *context, const bppsa_train_record *record) {
  curve *c = context;
  return json_array_append_new(c->rows, bppsa_train_row_json(record)) == 0 ? BPPSA_OK : bppsa_figures_no_room();
}

static void show_progress(void *context, const bppsa_progress *p) {
  curve *c = context;
  if (p->step < p->total_steps && bppsa_progress_due(&c->line)) {
    bppsa_progress_show(&c->line, "%s: step %" PRId64 " of %" PRId64 ", epoch %" PRId64 ", loss %.4f", c->name, p->step,
                        p->total_steps, p->epoch, p->loss);
  }
}

static bool is_stopped(void *context) {
  const curve *c = context;
  const bppsa_figures_request *r = c->figures->request;
  return r->stop != NULL && r->stop(r->stop_context);
}

/* Opens the network, the data and the model of a curve. */
static bppsa_status open_curve(curve *c, const char *spec, bppsa_gradient_method method) {
  const bppsa_figures_request *r = c->figures->request;
  bppsa_split split;
  c->rows = json_array();
  BPPSA_TRY(c->rows != NULL ? BPPSA_OK : bppsa_figures_no_room());
  BPPSA_TRY(bppsa_network_open("lenet5", NULL, &c->network));
  c->config = bppsa_network_config_default(&c->network);
  c->config.method = method;
  c->config.memory_limit = bppsa_machine_memory() / 4 * 3;
  BPPSA_TRY(
      bppsa_figures_open_data(c->figures, &(bppsa_figures_dataset){.spec = spec, .batch = c->config.batch}, &c->data, &split));
  BPPSA_TRY(bppsa_network_match(&c->network, &c->config, NULL, c->data));
  BPPSA_TRY(bppsa_network_create(&c->network, &c->config, r->device, &c->model));
  return bppsa_network_init(&c->network, c->model, BPPSA_INIT_DEFAULT, r->seed);
}

static bppsa_status run_curve(curve *c, double lr) {
  const bppsa_figures_request *r = c->figures->request;
  const bppsa_train_callbacks callbacks = {.context = c, .on_epoch = on_epoch, .progress = show_progress, .stop = is_stopped};
  bppsa_train_config config = bppsa_network_train_config(c->network.kind);
  bppsa_train_result result;
  config.optimizer.lr = lr;
  config.epochs = r->quick ? 2 : 20;
  config.seed = r->seed;
  return bppsa_train(&config, c->model, c->data, r->device, &callbacks, &result);
}

/* Trains by one method at one learning rate and keeps one row for each epoch. If the run is told to stop, it ends without this
 * curve (bppsa_keep_part). */
static bppsa_status train_curve(const bppsa_figures *f, const char *spec, int rate, int method, const char *name) {
  curve c = {.figures = f, .name = name, .line = bppsa_progress_start(f->request->to.err)};
  bppsa_status status = open_curve(&c, spec, methods[method].method);
  status = status == BPPSA_OK ? run_curve(&c, rates[rate].lr) : status;
  bppsa_progress_clear(&c.line);
  status = status == BPPSA_OK ? bppsa_keep_part(f, name, json_incref(c.rows)) : status;
  json_decref(c.rows);
  bppsa_model_destroy(c.model);
  bppsa_dataset_destroy(c.data);
  bppsa_network_close(&c.network);
  return status;
}

/* ---- all curves ---- */

static double number_of(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

/* Adds one CSV line for each epoch. *last: the final loss. */
static bppsa_status add_curve(const bppsa_figures *f, const char *spec, int rate, int method, bppsa_text *csv, double *last) {
  char name[64];
  snprintf(name, sizeof name, "figure6 lr %s %s", rates[rate].text, methods[method].name);
  BPPSA_TRY(bppsa_keep_find_part(f, name) != NULL ? BPPSA_OK : train_curve(f, spec, rate, method, name));
  const json_t *rows = bppsa_keep_find_part(f, name);
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    bppsa_text_add(csv, "%s,%s", rates[rate].text, methods[method].name);
    bppsa_text_add_cells(csv, 4,
                         (double[]){number_of(row, "epoch"), number_of(row, "loss"), number_of(row, "validation_loss"),
                                    number_of(row, "validation_accuracy")});
    bppsa_text_add(csv, "\n");
    *last = number_of(row, "loss");
  }
  return BPPSA_OK;
}

bppsa_status bppsa_make_figure6(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  char spec[BPPSA_FIGURES_PATH];
  double last[RATES][METHODS] = {{0}};
  (void)figure;
  BPPSA_TRY(find_images(f, spec));
  bppsa_text_add(&made->csv, "lr,method,epoch,training_loss,test_loss,test_accuracy\n");
  for (int i = 0; i < RATES * METHODS; ++i) {
    BPPSA_TRY(add_curve(f, spec, i / METHODS, i % METHODS, &made->csv, &last[i / METHODS][i % METHODS]));
  }
  bppsa_text_add(&made->caption,
                 "LeNet-5, B = 256, SGD with momentum 0.9, one seed, by BP and by the scan with one up-level, float32, ");
  bppsa_text_add_escaped(&made->caption, f->request->data.spec != NULL ? f->request->data.spec : "synthetic images");
  bppsa_text_add(&made->caption,
                 ". Training losses of the last epoch: %.4f and %.4f at the paper's 0.001, %.4f and %.4f at 0.01.", last[0][0],
                 last[0][1], last[1][0], last[1][1]);
  return BPPSA_OK;
}

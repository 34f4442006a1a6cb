#include "cli/planner.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bppsa_version.h"
#include "cli/machine.h"
#include "cli/progress.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/graph.h"
#include "core/philox.h"
#include "core/simd.h"

enum { LEAST_REPEATS = 3, MOST_REPEATS = 25, KEY_SIZE = 640 };

#define BUDGET_S 0.1       /* of one candidate's timed passes */
#define HOPELESS_RATIO 2.0 /* a first pass this much slower than the best median ends a candidate */

const char *bppsa_chosen_name(bppsa_chosen chosen) {
  static const char *const names[BPPSA_CHOSEN_COUNT] = {"option", "estimate", "measurement", "cache", "checkpoint"};
  return names[chosen];
}

bppsa_chosen bppsa_planner_chooser(const bppsa_recurrent_config *config) {
  return bppsa_gradient_method_open(&config->method) ? BPPSA_CHOSEN_BY_ESTIMATE : BPPSA_CHOSEN_BY_OPTION;
}

/* ---- one candidate ---- */

typedef struct {
  const bppsa_network *network;
  const bppsa_device *device;
  bppsa_buffer x, seed;
  double best_s;
  bppsa_recurrent_config best;
} contest;

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static bool is_gpu(const bppsa_device *device) {
  return bppsa_device_get_kind(device) == BPPSA_CUDA;
}

/* The passes that are timed: of a recurrent network without its head. */
static bppsa_status forward(const contest *c, bppsa_model *model) {
  bppsa_view logits;
  return c->network->kind->convolutional ? model->ops->forward(model, &c->x.view, NULL, &logits)
                                         : bppsa_recurrent_forward_layers(model, &c->x.view, NULL);
}

/* A backward pass of a candidate. */
typedef struct {
  const contest *contest;
  bppsa_model *model;
} pass;

static bppsa_status queue_pass(void *context) {
  const pass *p = context;
  return p->contest->network->kind->convolutional ? p->model->ops->backward(p->model, &p->contest->seed.view)
                                                  : bppsa_recurrent_backward_layers(p->model, &p->contest->seed.view);
}

/* Its seconds; on a GPU of a replay, as in training, where there is one. */
static bppsa_status time_pass(pass *p, const bppsa_graph *graph, double *seconds) {
  const bppsa_device *device = p->contest->device;
  BPPSA_TRY(bppsa_device_wait(device));
  const double start = bppsa_now();
  BPPSA_TRY(graph != NULL ? bppsa_graph_launch(device, graph) : queue_pass(p));
  BPPSA_TRY(bppsa_device_wait(device));
  *seconds = bppsa_now() - start;
  return BPPSA_OK;
}

static bppsa_status time_passes(pass *p, const bppsa_graph *graph, double *median_s) {
  double times[MOST_REPEATS], spent = 0;
  int repeats = 0;
  while (repeats < LEAST_REPEATS || (repeats < MOST_REPEATS && spent < BUDGET_S)) {
    BPPSA_TRY(time_pass(p, graph, &times[repeats]));
    spent += times[repeats++];
  }
  qsort(times, (size_t)repeats, sizeof *times, compare);
  *median_s = times[repeats / 2];
  return BPPSA_OK;
}

/* Median seconds of the backward pass; of the first pass alone where that is hopeless already. */
static bppsa_status time_model(const contest *c, bppsa_model *model, double *median_s) {
  bppsa_graph *graph = NULL;
  pass p = {c, model};
  BPPSA_TRY(bppsa_network_init(c->network, model, BPPSA_INIT_DEFAULT, 0));
  BPPSA_TRY(forward(c, model));
  BPPSA_TRY(time_pass(&p, NULL, median_s)); /* warm-up */
  if (c->best_s > 0 && *median_s > HOPELESS_RATIO * c->best_s && *median_s > 1e-3) {
    return BPPSA_OK;
  }
  if (is_gpu(c->device)) {
    BPPSA_TRY(bppsa_graph_capture(c->device, queue_pass, &p, &graph));
  }
  const bppsa_status status = time_passes(&p, graph, median_s);
  bppsa_graph_destroy(c->device, graph);
  return status;
}

/* Times one configuration and keeps it when it is the fastest so far. What the memory limit refuses is no candidate. */
static bppsa_status try_candidate(contest *c, const bppsa_recurrent_config *config) {
  bppsa_model *model = NULL;
  double median_s;
  bppsa_status status = bppsa_network_create(c->network, config, c->device, &model);
  if (status == BPPSA_ERR_ARGUMENT && c->best_s > 0) { /* the first candidate, BP or linear, had no other fault */
    return BPPSA_OK;
  }
  BPPSA_TRY(status);
  status = time_model(c, model, &median_s);
  bppsa_model_destroy(model);
  BPPSA_TRY(status);
  if (c->best_s == 0 || median_s < c->best_s) {
    c->best_s = median_s;
    c->best = *config;
  }
  return BPPSA_OK;
}

/* ---- all of them ---- */

/* Random numbers in the device's memory. */
static bppsa_status fill(const bppsa_device *device, bppsa_buffer *buffer, bppsa_dtype dtype, int32_t ndim, const int64_t *shape,
                         double scale) {
  BPPSA_TRY(bppsa_buffer_create(NULL, dtype, ndim, shape, buffer));
  const int64_t count = bppsa_view_count(&buffer->view);
  for (int64_t i = 0; i < count; ++i) {
    bppsa_view_set(&buffer->view, i, scale * (2 * bppsa_random_double(0, BPPSA_STREAM_TEST, (uint64_t)i) - 1));
  }
  return bppsa_buffer_move(device, buffer);
}

/* A candidate, by number; false when there are no more. A sparse scan has no chunks. */
static bool next_candidate(const contest *c, const bppsa_recurrent_config *config, int64_t index, bppsa_scan_config *candidate) {
  if (!c->network->kind->convolutional) {
    bppsa_scan_config asked = bppsa_network_scan(c->network->kind, config, 0);
    asked.device = bppsa_device_get_kind(c->device);
    return bppsa_scan_candidate(&asked, index, candidate);
  }
  bppsa_scan_config asked = bppsa_scan_config_default();
  asked.jacobians = c->network->layers.count - 1;
  return bppsa_scan_candidate(&asked, index, candidate) && candidate->method.algorithm != BPPSA_SCAN_CHUNKED;
}

static bppsa_status try_method(contest *c, bppsa_recurrent_config *config, bppsa_gradient_method method,
                               bppsa_progress_line *line) {
  char text[BPPSA_METHOD_TEXT];
  bppsa_progress_show(line, "measuring: %s", bppsa_gradient_method_words(&method, text, sizeof text));
  config->method = method;
  return try_candidate(c, config);
}

/* The cost model's candidates, BP among them where it is left open, and on a processor chunks as many as keep the threads
 * busy. In a recurrent network BP is the linear scan. */
static bppsa_status try_all(contest *c, const bppsa_recurrent_config *config, bppsa_progress_line *line) {
  const int64_t threads = bppsa_device_get_threads(c->device), busy[] = {threads, 2 * threads, 4 * threads};
  const bool recurrent = !c->network->kind->convolutional, chunks = recurrent && !is_gpu(c->device);
  const bool any = config->method.backward == BPPSA_BACKWARD_AUTO;
  bppsa_recurrent_config tried = *config;
  bppsa_scan_config candidate;
  if (any) {
    BPPSA_TRY(try_method(c, &tried, (bppsa_gradient_method){.backward = BPPSA_BACKWARD_BP}, line));
  }
  for (int64_t index = 0; next_candidate(c, config, index, &candidate); ++index) {
    if (!any || !recurrent || candidate.method.algorithm != BPPSA_SCAN_LINEAR) {
      BPPSA_TRY(try_method(c, &tried, (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, candidate.method}, line));
    }
  }
  for (size_t i = 0; chunks && i < sizeof busy / sizeof busy[0]; ++i) {
    const bppsa_scan_method method = {.algorithm = BPPSA_SCAN_CHUNKED, .chunks = busy[i]};
    BPPSA_TRY(try_method(c, &tried, (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, method}, line));
  }
  return BPPSA_OK;
}

/* A batch of inputs and a seed of the timed passes' shapes. */
static bppsa_status fill_operands(const bppsa_recurrent_config *config, contest *c) {
  const int64_t b = config->batch, *in = c->network->layers.in;
  const int64_t images[] = {b, in[0], in[1], in[2]}, logits[] = {b, config->classes};
  const int64_t steps[] = {config->seq_len, b, config->input}, states[] = {config->seq_len, b, config->hidden};
  if (c->network->kind->convolutional) {
    BPPSA_TRY(fill(c->device, &c->x, config->dtype, 4, images, 1));
    return fill(c->device, &c->seed, config->dtype, 2, logits, 1 / (double)b);
  }
  BPPSA_TRY(fill(c->device, &c->x, config->dtype, 3, steps, 1));
  return fill(c->device, &c->seed, config->dtype, config->loss_all ? 3 : 2, config->loss_all ? states : states + 1,
              1 / (double)b);
}

static bppsa_status measure(const bppsa_network *network, const bppsa_device *device, FILE *err, bppsa_recurrent_config *config,
                            double *median_s) {
  contest c = {.network = network, .device = device};
  bppsa_progress_line line = bppsa_progress_start(err);
  bppsa_status status = fill_operands(config, &c);
  if (status == BPPSA_OK) {
    status = try_all(&c, config, &line);
  }
  bppsa_progress_clear(&line);
  bppsa_buffer_free(&c.x);
  bppsa_buffer_free(&c.seed);
  if (status == BPPSA_OK) {
    *config = c.best;
    *median_s = c.best_s;
  }
  return status;
}

/* Everything a measurement depends on. */
static void make_key(const bppsa_network *network, const bppsa_device *device, int64_t limit, const bppsa_recurrent_config *c,
                     char *key) {
  char identity[32];
  snprintf(key, KEY_SIZE,
           "bppsa %s %s|%s|%s|%s|threads %d|%s|%s|T %" PRId64 " B %" PRId64 " I %" PRId64 " H %" PRId64 " layers %" PRId64
           "|loss %s|input gradients %d|memory limit %" PRId64 "|backward %s|%s",
           BPPSA_VERSION, BPPSA_COMMIT, bppsa_device_get_name(device), bppsa_device_get_hardware(device), bppsa_simd_get()->name,
           (int)bppsa_device_get_threads(device), network->kind->name, bppsa_dtype_name(c->dtype), c->seq_len, c->batch, c->input,
           c->hidden, c->layers, c->loss_all ? "all" : "last", (int)c->input_gradients, limit,
           bppsa_backward_name(c->method.backward),
           network->kind->convolutional ? bppsa_network_identity(network, identity, sizeof identity) : "");
}

/* Bytes a network may hold where the user does not say: three quarters of what the machine or the GPU has. */
static int64_t memory_of(const bppsa_device *device) {
  bppsa_cuda_report report = {0};
  if (!is_gpu(device)) {
    return bppsa_machine_memory() / 4 * 3;
  }
  bppsa_cuda_probe(&report);
  return report.memory / 4 * 3;
}

bppsa_status bppsa_planner_choose(const bppsa_cli *cli, const bppsa_network *network, const bppsa_device *device,
                                  bppsa_recurrent_config *config, bppsa_chosen *chosen) {
  const bppsa_option_value *limit = bppsa_cli_value(cli, BPPSA_OPTION_MEMORY_LIMIT);
  const bool measured = strcmp(bppsa_cli_value(cli, BPPSA_OPTION_PLAN)->text, "measure") == 0;
  char key[KEY_SIZE];
  make_key(network, device, limit->integer, config, key); /* the limit as given or 0: what is available changes all the time */
  config->memory_limit = limit->given ? limit->integer : memory_of(device);
  if (!measured || *chosen == BPPSA_CHOSEN_BY_CHECKPOINT) {
    return BPPSA_OK;
  }
  if (*chosen != BPPSA_CHOSEN_BY_ESTIMATE) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--plan: measure beside a given %s, expected --backward auto, or scan with --algorithm auto",
                      config->method.backward == BPPSA_BACKWARD_BP ? "--backward bp" : "algorithm");
  }
  if (bppsa_plan_cache_find(key, &config->method)) {
    *chosen = BPPSA_CHOSEN_BY_CACHE;
    return BPPSA_OK;
  }
  double median_s;
  BPPSA_TRY(measure(network, device, cli->err, config, &median_s));
  *chosen = BPPSA_CHOSEN_BY_MEASUREMENT;
  if (bppsa_plan_cache_store(key, &config->method, median_s) != BPPSA_OK) {
    fprintf(cli->err, "bppsa: note: the measured plan is not kept: %s\n", bppsa_last_error());
  }
  return BPPSA_OK;
}

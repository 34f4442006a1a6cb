#include "networks/planner.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bppsa_version.h"
#include "core/base/alloc.h"
#include "core/base/decimal.h"
#include "core/base/philox.h"
#include "core/compute/device_buffer.h"
#include "core/compute/graph.h"
#include "core/compute/simd.h"
#include "core/measure/residual.h"
#include "core/measure/rounds.h"
#include "networks/plan_cache.h"

enum { KEY_SIZE = 720 };

#define BUDGET_S 0.1       /* seconds that one candidate's rounds may take (core/measure/rounds.h) */
#define HOPELESS_RATIO 2.0 /* a first pass this much slower than the best median ends a candidate */
/* Bound on a right candidate's residual. Twice the usual bound, because the first candidate's gradients are rounded as well. */
#define BOUND (2 * BPPSA_RESIDUAL_BOUND)

const char *bppsa_chosen_name(bppsa_chosen chosen) {
  static const char *const names[BPPSA_CHOSEN_COUNT] = {"option", "estimate", "measurement", "cache", "checkpoint"};
  return names[chosen];
}

bppsa_chosen bppsa_chosen_of(const bppsa_gradient_method *method) {
  return bppsa_gradient_method_open(method) ? BPPSA_CHOSEN_BY_ESTIMATE : BPPSA_CHOSEN_BY_OPTION;
}

const char *bppsa_chosen_method_text(bppsa_chosen chosen, const bppsa_gradient_method *method, char *text, size_t size) {
  bppsa_gradient_method_words(method, text, size);
  const size_t used = strlen(text);
  if (chosen != BPPSA_CHOSEN_BY_OPTION) {
    snprintf(text + used, size - used, ", chosen by %s", bppsa_chosen_name(chosen));
  }
  return text;
}

const char *bppsa_chosen_plan_text(bppsa_chosen chosen, const bppsa_scan_plan *plan, char *text, size_t size) {
  const bppsa_gradient_method method = bppsa_scan_plan_method(plan);
  const int64_t chain = bppsa_scan_plan_totals(plan)->critical_steps;
  if (!bppsa_scan_plan_is_chain(plan)) {
    return bppsa_chosen_method_text(chosen, &method, text, size);
  }
  snprintf(text, size, "a chain of %" PRId64 ", no scan%s%s", chain, chosen != BPPSA_CHOSEN_BY_OPTION ? ", chosen by " : "",
           chosen != BPPSA_CHOSEN_BY_OPTION ? bppsa_chosen_name(chosen) : "");
  return text;
}

bppsa_status bppsa_chosen_share(bppsa_comm *comm, bppsa_gradient_method *method, bppsa_chosen *chosen) {
  BPPSA_REQUIRE(comm != NULL && method != NULL && chosen != NULL);
  bppsa_scan_method *scan = &method->scan;
  int64_t numbers[] = {(int64_t)method->backward, (int64_t)scan->algorithm, scan->up_levels, scan->chunks, (int64_t)*chosen};
  const int64_t count = sizeof numbers / sizeof numbers[0];
  const bppsa_view view = bppsa_view_make(numbers, BPPSA_I64, 1, &count);
  BPPSA_TRY(bppsa_comm_broadcast(comm, 0, &view));
  method->backward = (bppsa_backward)numbers[0];
  *scan = (bppsa_scan_method){.algorithm = (bppsa_scan_algorithm)numbers[1], .up_levels = numbers[2], .chunks = numbers[3]};
  *chosen = (bppsa_chosen)numbers[4];
  return BPPSA_OK;
}

bool bppsa_chosen_method_json(json_t *object, const bppsa_gradient_method *method, bppsa_chosen chosen) {
  return bppsa_gradient_method_put(object, method) && bppsa_json_put_bool(object, "auto", chosen != BPPSA_CHOSEN_BY_OPTION) &&
         bppsa_json_put_text(object, "chosen", bppsa_chosen_name(chosen));
}

/* ---- one candidate ---- */

typedef struct {
  const bppsa_planner_request *request;
  const bppsa_network *network;
  const bppsa_device *device;
  bppsa_buffer x, seed;
  int64_t steps;     /* steps of the chain */
  bool forward;      /* the forward pass is chosen, not the backward one */
  double *reference; /* the gradients that the first candidate computes; or its states of the top layer */
  int64_t count;     /* numbers in the reference */
  double best_s;
  bppsa_network_config best;
  int64_t layers;              /* layers with states */
  bppsa_forward_plan plan;     /* of the latest candidate of forward passes */
  bppsa_forward_stats passed;  /* of that candidate's latest pass */
  bppsa_backward_stats walked; /* of the latest pass of speculative BP */
  char *note;                  /* BPPSA_PLANNER_NOTE bytes: the latest candidate that was wrong */
} contest;

static bool is_gpu(const bppsa_device *device) {
  return bppsa_device_get_kind(device) == BPPSA_CUDA;
}

/* Runs the forward pass that a timed backward pass needs. */
static bppsa_status forward(const contest *c, bppsa_model *model) {
  return c->network->kind->family->forward(model, &c->x.view);
}

/* The pass of a candidate, which is timed. */
typedef struct {
  contest *contest;
  bppsa_model *model;
  bppsa_graph *graph; /* the pass recorded on a GPU, as training replays it; NULL: it is not recorded */
  bppsa_timed_work work;
  double first_s; /* seconds of the pass that was verified */
} pass;

static bppsa_status queue_pass(void *context) {
  const pass *p = context;
  return p->contest->forward ? forward(p->contest, p->model)
                             : p->contest->network->kind->family->backward(p->model, &p->contest->seed.view);
}

static bppsa_status run_pass(void *context) {
  pass *p = context;
  return p->graph != NULL ? bppsa_graph_launch(p->contest->device, p->graph) : queue_pass(p);
}

/* Counts the arrays that a candidate computes. The pass computes no gradients of a recurrent network's head: they are 0 in every
 * candidate. */
static int64_t count_results(const pass *p) {
  return p->contest->forward ? 1 : p->model->parameter_count;
}

/* Gives array i of the results in host memory, a gradient or the top layer's states; `host` has room for it. */
static bppsa_status get_result(const pass *p, int64_t i, bppsa_buffer *host, bppsa_view *result) {
  const contest *c = p->contest;
  if (!c->forward) {
    *result = p->model->parameters[i].gradient;
    return BPPSA_OK;
  }
  bppsa_view states;
  BPPSA_TRY(c->network->kind->family->states(p->model, c->layers - 1, &states));
  BPPSA_TRY(bppsa_buffer_fetch(c->device, &states, host));
  *result = host->view;
  return BPPSA_OK;
}

/* Keeps the first candidate's results; the others are compared with them. */
static bppsa_status keep_reference(contest *c, const bppsa_view *result) {
  const int64_t count = bppsa_view_count(result);
  double *grown = bppsa_realloc(c->reference, (size_t)(c->count + count) * sizeof *grown);
  if (grown == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  c->reference = grown;
  for (int64_t k = 0; k < count; ++k) {
    grown[c->count + k] = bppsa_view_get(result, k);
  }
  c->count += count;
  return BPPSA_OK;
}

/* Makes the first pass and compares its results with the first candidate's. */
static bppsa_status verify_pass(void *context, double *residual) {
  pass *p = context;
  contest *c = p->contest;
  double seconds[BPPSA_TIMING_PARTS], worst = 0;
  BPPSA_TRY(bppsa_timed_work_pass(&p->work, seconds));
  BPPSA_TRY(bppsa_model_pull(p->model, true));
  p->first_s = seconds[0];
  const bool first = c->reference == NULL;
  bppsa_status status = BPPSA_OK;
  int64_t at = 0;
  for (int64_t i = 0; status == BPPSA_OK && i < count_results(p); ++i) {
    bppsa_buffer host = {0};
    bppsa_view result;
    status = get_result(p, i, &host, &result);
    if (status == BPPSA_OK && first) {
      status = keep_reference(c, &result);
    } else if (status == BPPSA_OK) {
      worst = bppsa_residual_worse(worst, bppsa_residual(&result, c->reference + at, c->steps));
      at += bppsa_view_count(&result);
    }
    bppsa_buffer_free(&host);
  }
  *residual = worst;
  return status;
}

/* Records the pass on a GPU. A pass that cannot be recorded is timed as it is queued, so its time includes the waits for its
 * launches. Any failure but a refusal to record shows again when the pass itself runs. */
static bppsa_status record_pass(pass *p) {
  const bppsa_device *device = p->contest->device;
  const bppsa_status status = is_gpu(device) ? bppsa_graph_capture(device, queue_pass, p, &p->graph) : BPPSA_OK;
  return status == BPPSA_ERR_CUDA || status == BPPSA_ERR_UNSUPPORTED ? BPPSA_OK : status;
}

/* Sets *median_s to the seconds of the backward pass: the median, or the first pass if that was hopelessly slow already, or
 * infinity for a candidate whose gradients are wrong. */
static bppsa_status time_pass(pass *p, const char *name, double *median_s) {
  const contest *c = p->contest;
  const bppsa_rounds rounds = {.budget_s = BUDGET_S};
  bppsa_contender alone = {
      .name = name, .verification = {verify_pass, p, BOUND}, .pass = bppsa_timed_work_pass, .context = &p->work, .parts = 1};
  BPPSA_TRY(bppsa_contender_verify(&alone));
  if (alone.verdict == BPPSA_WRONG) {
    (void)bppsa_contender_status(&alone);
    snprintf(c->note, BPPSA_PLANNER_NOTE, "not a candidate: %s", bppsa_last_error());
    *median_s = INFINITY;
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_contender_status(&alone));
  *median_s = p->first_s;
  if (c->best_s > 0 && p->first_s > HOPELESS_RATIO * c->best_s && p->first_s > 1e-3) {
    return BPPSA_OK;
  }
  BPPSA_TRY(record_pass(p));
  BPPSA_TRY(bppsa_rounds_run(&rounds, 1, &alone));
  BPPSA_TRY(bppsa_contender_status(&alone));
  *median_s = alone.timing[0].median_s;
  return BPPSA_OK;
}

static bppsa_status time_model(contest *c, bppsa_model *model, const bppsa_gradient_method *method, double *median_s) {
  char name[BPPSA_METHOD_TEXT];
  pass p = {.contest = c, .model = model, .work = {.device = c->device, .action = run_pass, .context = &p}};
  bppsa_gradient_method_text(method, name, sizeof name);
  BPPSA_TRY(bppsa_network_init(c->network, model, BPPSA_INIT_DEFAULT, 0));
  BPPSA_TRY(forward(c, model)); /* a backward pass needs it */
  BPPSA_TRY(bppsa_timed_work_open(&p.work));
  const bppsa_status status = time_pass(&p, name, median_s);
  bppsa_graph_destroy(c->device, p.graph);
  bppsa_timed_work_close(&p.work);
  BPPSA_TRY(status);
  return c->forward                                       ? bppsa_forward_stats_of(model, &c->passed)
         : method->backward == BPPSA_BACKWARD_SPECULATIVE ? bppsa_backward_stats_of(model, &c->walked)
                                                          : BPPSA_OK;
}

/* Verifies and times one configuration and keeps it if it is the fastest so far. It is no candidate if it exceeds the memory
 * limit, if its results are wrong, or if it is a pass in chunks of time for which the device has no kernels. */
static bppsa_status try_candidate(contest *c, const bppsa_network_config *config) {
  bppsa_model *model = NULL;
  double median_s;
  bppsa_status status = bppsa_network_create(c->network, config, c->device, &model);
  /* The first candidate, BP or linear, ran. So only the memory limit can be wrong with this one. */
  const bool chunks = c->forward || config->method.backward == BPPSA_BACKWARD_SPECULATIVE;
  if ((status == BPPSA_ERR_ARGUMENT || (chunks && status == BPPSA_ERR_UNSUPPORTED)) && c->best_s > 0) {
    return BPPSA_OK;
  }
  BPPSA_TRY(status);
  if (c->forward) {
    c->plan = *bppsa_forward_plan_of(model);
  }
  status = time_model(c, model, &config->method, &median_s);
  bppsa_model_destroy(model);
  BPPSA_TRY(status);
  if (c->best_s == 0 || median_s < c->best_s) {
    c->best_s = median_s;
    c->best = *config;
  }
  return BPPSA_OK;
}

/* ---- all candidates ---- */

/* Fills a new buffer with random numbers and moves it to the device. */
static bppsa_status fill(const bppsa_device *device, bppsa_buffer *buffer, bppsa_dtype dtype, int32_t ndim, const int64_t *shape,
                         double scale) {
  BPPSA_TRY(bppsa_buffer_create(NULL, dtype, ndim, shape, buffer));
  const int64_t count = bppsa_view_count(&buffer->view);
  for (int64_t i = 0; i < count; ++i) {
    bppsa_view_set(&buffer->view, i, scale * (2 * bppsa_random_double(0, BPPSA_STREAM_TEST, (uint64_t)i) - 1));
  }
  return bppsa_buffer_move(device, buffer);
}

/* Shows the words of the candidate that is about to be tried. */
static void show(const contest *c, const char *words) {
  if (c->request->show != NULL) {
    c->request->show(c->request->context, words);
  }
}

/* Returns the configuration whose candidates the scan lists. */
static bppsa_scan_config scan_asked(const contest *c, const bppsa_network_config *config) {
  bppsa_scan_config asked = c->network->kind->family->scan(c->network, config);
  asked.device = bppsa_device_get_kind(c->device);
  return asked;
}

static bppsa_status try_method(contest *c, bppsa_network_config *config, bppsa_gradient_method method) {
  char text[BPPSA_METHOD_TEXT];
  show(c, bppsa_gradient_method_words(&method, text, sizeof text));
  config->method = method;
  return try_candidate(c, config);
}

/* The plan of speculative BP, and its cost: both times, of a pass that did what the latest one did, say how much faster or slower
 * passes are than the cost model expects. */
static bppsa_status scale_cost(const contest *c, double bp_s, bppsa_network_config *config) {
  const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(config);
  const bppsa_cell *cell = c->network->kind->cell;
  const bppsa_device_kind kind = bppsa_device_get_kind(c->device);
  const bppsa_forward_shape shape =
      bppsa_recurrent_forward_shape(&recurrent, cell, kind, kind == BPPSA_CPU ? 0 : BPPSA_FORWARD_MULTIPROCESSORS);
  bppsa_backward_plan plan;
  bppsa_backward_method method = recurrent.speculation;
  BPPSA_TRY(bppsa_recurrent_plan_speculation(&recurrent, cell, kind, &plan));
  BPPSA_TRY(bppsa_recurrent_find_fallback(&recurrent, cell, kind, &method));
  const bppsa_backward_expected expected = bppsa_backward_expect(&shape, &plan);
  bppsa_backward_cost cost = bppsa_backward_model(&shape, &plan);
  const double scale =
      c->best_s / bp_s / bppsa_backward_time(&cost, (double)c->walked.path / (double)c->walked.possible, c->walked.work);
  cost = (bppsa_backward_cost){scale * cost.fixed, scale * cost.path, scale * cost.work};
  config->steps.speculation.cost = bppsa_backward_limit(&cost, &expected, method.scan_time);
  return BPPSA_OK;
}

/* Tries speculative BP, where AUTO may choose it; BP has been tried. */
static bppsa_status try_speculation(contest *c, const bppsa_network_config *config) {
  if (!c->network->kind->family->steps) {
    return BPPSA_OK;
  }
  const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(config);
  const bppsa_network_config bp = c->best;
  const double bp_s = c->best_s;
  bppsa_network_config tried = *config;
  bppsa_backward_plan plan;
  BPPSA_TRY(bppsa_recurrent_plan_speculation(&recurrent, c->network->kind->cell, bppsa_device_get_kind(c->device), &plan));
  tried.steps.speculation.exact_inputs = true;
  BPPSA_TRY(plan.speculative ? try_method(c, &tried, (bppsa_gradient_method){.backward = BPPSA_BACKWARD_SPECULATIVE}) : BPPSA_OK);
  if (c->best.method.backward != BPPSA_BACKWARD_SPECULATIVE) {
    return BPPSA_OK;
  }
  if (!c->walked.speculated || c->walked.given_up) { /* these passes were BP */
    c->best = bp;
    c->best_s = bp_s;
    return BPPSA_OK;
  }
  return scale_cost(c, bp_s, &c->best);
}

/* Tries what is worth measuring, and BP and speculative BP too if the method is left open. */
static bppsa_status try_all(contest *c, const bppsa_network_config *config) {
  const bppsa_scan_config asked = scan_asked(c, config);
  const int32_t threads = bppsa_device_get_threads(c->device);
  const bool any = config->method.backward == BPPSA_BACKWARD_AUTO, twice = any && c->network->kind->family->bp_is_linear;
  bppsa_network_config tried = *config;
  bppsa_scan_config candidate;
  c->steps = asked.jacobians;
  if (any) {
    BPPSA_TRY(try_method(c, &tried, (bppsa_gradient_method){.backward = BPPSA_BACKWARD_BP}));
    BPPSA_TRY(try_speculation(c, config));
  }
  for (int64_t index = 0; bppsa_scan_candidate_to_measure(&asked, threads, index, &candidate); ++index) {
    if (!twice || !bppsa_scan_algorithm_is_bp(candidate.method.algorithm)) {
      BPPSA_TRY(try_method(c, &tried, (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, candidate.method}));
    }
  }
  return BPPSA_OK;
}

/* Tries the forward pass step by step, then in chunks, and puts the faster one into *best. On a CPU the time of chunks follows
 * the work; then *best also has the work up to which they are faster. */
static bppsa_status try_forward(contest *c, const bppsa_network_config *config, bppsa_forward_plan *best) {
  bppsa_network_config tried = *config;
  tried.method = (bppsa_gradient_method){.backward = BPPSA_BACKWARD_BP};
  tried.steps.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  c->steps = config->steps.seq_len;
  c->layers = config->steps.layers;
  show(c, "forward pass, sequential");
  BPPSA_TRY(try_candidate(c, &tried));
  const double sequential_s = c->best_s;
  *best = c->plan;
  tried.steps.forward.kind = BPPSA_FORWARD_SPECULATIVE;
  tried.steps.forward.most_work = INFINITY; /* no timed pass may pause */
  show(c, "forward pass, speculative");
  BPPSA_TRY(try_candidate(c, &tried));
  if (c->plan.speculative && c->best.steps.forward.kind == BPPSA_FORWARD_SPECULATIVE) {
    *best = c->plan;
    const double gain = c->passed.work * sequential_s / c->best_s;
    best->most_work =
        is_gpu(c->device) ? INFINITY : bppsa_forward_most_work(c->network->kind->cell->gates, best, config->steps.seq_len, gain);
  }
  return BPPSA_OK;
}

/* Makes a batch of inputs and a seed of the shapes that the timed passes take. */
static bppsa_status fill_operands(const bppsa_network_config *config, contest *c) {
  bppsa_network_shape x, seed;
  c->network->kind->family->batch(c->network, config, &x, &seed);
  BPPSA_TRY(fill(c->device, &c->x, config->dtype, x.ndim, x.shape, 1));
  return fill(c->device, &c->seed, config->dtype, seed.ndim, seed.shape, 1 / (double)config->batch);
}

/* Measures the backward pass if forward is NULL; otherwise the forward passes, and *forward receives the plan of the faster one. */
static bppsa_status measure(const bppsa_planner_request *request, const bppsa_network *network, const bppsa_device *device,
                            bppsa_network_config *config, bppsa_forward_plan *forward, double *median_s, char *note) {
  contest c = {.request = request, .network = network, .device = device, .forward = forward != NULL, .note = note};
  bppsa_status status = fill_operands(config, &c);
  if (status == BPPSA_OK) {
    status = forward != NULL ? try_forward(&c, config, forward) : try_all(&c, config);
  }
  bppsa_buffer_free(&c.x);
  bppsa_buffer_free(&c.seed);
  bppsa_free(c.reference);
  if (status == BPPSA_OK) {
    config->method = forward != NULL ? config->method : c.best.method;
    config->steps.speculation = forward != NULL ? config->steps.speculation : c.best.steps.speculation;
    *median_s = c.best_s;
  }
  return status;
}

/* Writes everything that a measurement depends on. */
static void make_key(const bppsa_network *network, const bppsa_device *device, int64_t limit, const bppsa_network_config *c,
                     char *key) {
  char identity[32], inputs[BPPSA_SHAPE_TEXT], seeds[BPPSA_SHAPE_TEXT];
  const bppsa_network_family *family = network->kind->family;
  bppsa_network_shape x, seed;
  family->batch(network, c, &x, &seed);
  snprintf(key, KEY_SIZE,
           "bppsa %s %s|%s|%s|%s|threads %d|%s|%s|inputs %s seed %s layers %" PRId64
           "|loss %s|input gradients %d|memory limit %" PRId64 "|backward %s|%s",
           BPPSA_VERSION, BPPSA_COMMIT, bppsa_device_get_name(device), bppsa_device_get_hardware(device), bppsa_simd_get()->name,
           (int)bppsa_device_get_threads(device), network->kind->name, bppsa_dtype_name(c->dtype),
           bppsa_shape_text(x.ndim, x.shape, inputs, sizeof inputs), bppsa_shape_text(seed.ndim, seed.shape, seeds, sizeof seeds),
           family->layers(network, c), c->loss_all ? "all" : "last", (int)c->input_gradients, limit,
           bppsa_backward_name(c->method.backward), bppsa_network_identity(network, identity, sizeof identity));
  const size_t used = strlen(key);
  const bppsa_backward_method *speculation = &c->steps.speculation;
  bppsa_print(key + used, KEY_SIZE - used, "|%" PRId64 " chunks, warm-up %" PRId64 ", tolerance %.17g", speculation->chunks,
              speculation->warm_up, speculation->tolerance);
}

/* Writes a note if a choice could not be kept. */
static void note_kept(bppsa_status status, char *note) {
  if (status != BPPSA_OK) {
    snprintf(note, BPPSA_PLANNER_NOTE, "the measured plan is not kept: %s", bppsa_last_error());
  }
}

/* Finds a kept method; that of speculative BP has a cost under a key of its own. */
static bool find_kept(const char *key, const char *of_speculation, bppsa_network_config *config) {
  bppsa_gradient_method method;
  bppsa_backward_method speculation = config->steps.speculation;
  speculation.exact_inputs = true;
  if (!bppsa_plan_cache_find(key, &method) ||
      (method.backward == BPPSA_BACKWARD_SPECULATIVE && !bppsa_plan_cache_find_speculation(of_speculation, &speculation))) {
    return false;
  }
  config->method = method;
  config->steps.speculation = method.backward == BPPSA_BACKWARD_SPECULATIVE ? speculation : config->steps.speculation;
  return true;
}

static bppsa_status choose_method(const bppsa_planner_request *request, const bppsa_network *network, const bppsa_device *device,
                                  const char *key, bppsa_network_config *config, bppsa_chosen *chosen, char *note) {
  char of_speculation[KEY_SIZE + 16];
  snprintf(of_speculation, sizeof of_speculation, "%s|speculation", key);
  if (find_kept(key, of_speculation, config)) {
    *chosen = BPPSA_CHOSEN_BY_CACHE;
    return BPPSA_OK;
  }
  double median_s;
  BPPSA_TRY(measure(request, network, device, config, NULL, &median_s, note));
  *chosen = BPPSA_CHOSEN_BY_MEASUREMENT;
  bppsa_status status = bppsa_plan_cache_store(key, &config->method, median_s);
  if (status == BPPSA_OK && config->method.backward == BPPSA_BACKWARD_SPECULATIVE) {
    const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(config);
    bppsa_backward_plan plan;
    BPPSA_TRY(bppsa_recurrent_plan_speculation(&recurrent, network->kind->cell, bppsa_device_get_kind(device), &plan));
    status = bppsa_plan_cache_store_speculation(of_speculation, &plan, median_s);
  }
  note_kept(status, note);
  return BPPSA_OK;
}

static bppsa_status choose_forward(const bppsa_planner_request *request, const bppsa_network *network, const bppsa_device *device,
                                   const char *of_network, bppsa_network_config *config, char *note) {
  bppsa_forward_method *f = &config->steps.forward;
  bppsa_forward_plan plan;
  char key[KEY_SIZE + 120];
  double median_s;
  bppsa_print(key, sizeof key, "%s|%s|forward %" PRId64 " chunks, warm-up %" PRId64 ", tolerance %.17g", of_network,
              bppsa_nonlinearity_name(config->steps.nonlinearity), f->chunks, f->warm_up, f->tolerance);
  if (bppsa_plan_cache_find_forward(key, f)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(measure(request, network, device, config, &plan, &median_s, note));
  f->kind = plan.speculative ? BPPSA_FORWARD_SPECULATIVE : BPPSA_FORWARD_SEQUENTIAL;
  f->most_work = plan.speculative ? plan.most_work : 0;
  f->most_path = plan.speculative ? plan.most_path : 0;
  note_kept(bppsa_plan_cache_store_forward(key, &plan, median_s), note);
  return BPPSA_OK;
}

bppsa_status bppsa_planner_choose(const bppsa_planner_request *request, const bppsa_network *network, const bppsa_device *device,
                                  bppsa_network_config *config, bppsa_chosen *chosen, char *note) {
  char key[KEY_SIZE];
  /* The key has the limit that the user asked for, because the available memory changes all the time. */
  make_key(network, device, request->memory_limit, config, key);
  note[0] = '\0';
  const bool open = config->steps.forward.kind == BPPSA_FORWARD_AUTO;
  if (!request->measure || (*chosen == BPPSA_CHOSEN_BY_CHECKPOINT && !open)) {
    return BPPSA_OK;
  }
  if (*chosen == BPPSA_CHOSEN_BY_OPTION && !open) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--plan: measure beside a given %s, expected --backward auto, or scan with --algorithm auto%s",
                      config->method.backward == BPPSA_BACKWARD_BP ? "--backward bp" : "algorithm",
                      network->kind->family->steps ? ", or --forward auto" : "");
  }
  BPPSA_TRY(*chosen == BPPSA_CHOSEN_BY_ESTIMATE ? choose_method(request, network, device, key, config, chosen, note) : BPPSA_OK);
  return open ? choose_forward(request, network, device, key, config, note) : BPPSA_OK;
}

/* Pipelines: ParaDL's formula, and the schemes of schedule/ by simulation, over stages of consecutive layers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "oracle/strategies.h"
#include "schedule/schedule.h"

enum { MOST_SIMULATED = 64, MOST_PASSES = 1 << 14 }; /* processors that are simulated; stages times micro-batches */

/* Sums over the layers of a stage, for one sample; update_s is for one update. */
typedef struct {
  int64_t first; /* its first layer */
  double forward_s, backward_s, weight_grad_s, update_s;
  double activations; /* |x| + |y| */
  double w, bias, y;  /* y: output of the last layer, which goes to the next stage */
} stage;

static void add(const bppsa_oracle_query *q, const bppsa_oracle_layer *layer, stage *s) {
  const double backward = bppsa_layer_backward_s(q, layer);
  s->forward_s += bppsa_layer_forward_s(q, layer);
  s->backward_s += backward;
  s->weight_grad_s += layer->w > 0 ? backward / 2 : 0; /* half: the gradients of input and weights take equal products */
  s->update_s += bppsa_layer_update_s(q, layer);
  s->activations += layer->x + layer->y;
  s->w += layer->w;
  s->bias += layer->bias;
  s->y = layer->y;
}

static double cost(const bppsa_oracle_query *q, int64_t l) {
  return bppsa_layer_forward_s(q, &q->model->layers[l]) + bppsa_layer_backward_s(q, &q->model->layers[l]);
}

/* Fills n stages from the front with layers, each up to `most` seconds. Every stage gets a layer, and the last one gets the rest.
 * Returns the seconds of the longest stage. */
static double fill(const bppsa_oracle_query *q, double most, int64_t n, stage *stages) {
  const int64_t count = q->model->count;
  double longest = 0;
  int64_t l = 0;
  memset(stages, 0, (size_t)n * sizeof *stages);
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    stages[i].first = l;
    do {
      sum += cost(q, l);
      add(q, &q->model->layers[l++], &stages[i]);
    } while (count - l > n - 1 - i && (i + 1 == n || sum + cost(q, l) <= most));
    longest = fmax(longest, sum);
  }
  return longest;
}

/* Cuts the layers into n stages so that the longest is as short as possible, by bisection of its length. */
static void cut_evenly(const bppsa_oracle_query *q, int64_t n, stage *stages) {
  double low = 0, high = 0;
  for (int64_t l = 0; l < q->model->count; ++l) {
    low = fmax(low, cost(q, l));
    high += cost(q, l);
  }
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2, longest = fill(q, middle, n, stages);
    low = longest <= middle ? low : middle;
    high = longest <= middle ? fmin(middle, longest) : high;
  }
  fill(q, high, n, stages);
}

/* Takes the stages that the query asks for, or cuts evenly. */
static void cut(const bppsa_oracle_query *q, int64_t n, stage *stages) {
  if (q->cuts != n - 1) {
    cut_evenly(q, n, stages);
    return;
  }
  memset(stages, 0, (size_t)n * sizeof *stages);
  for (int64_t i = 0; i < n; ++i) {
    stages[i].first = i > 0 ? q->cut[i - 1] : 0;
    for (int64_t l = stages[i].first; l < (i + 1 < n ? q->cut[i] : q->model->count); ++l) {
      add(q, &q->model->layers[l], &stages[i]);
    }
  }
}

int64_t bppsa_oracle_pipeline_limit(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  snprintf(row->reason, sizeof row->reason, "the model has %" PRId64 " layers", q->model->count);
  return q->model->count;
}

static double stage_elements(const stage *s, double batch, double versions) {
  return 2 * batch * s->activations + (1 + versions) * s->w + s->bias;
}

/* Projects by ParaDL's equations 12 to 14. Equation 12 puts WU into the factor (p + S - 1) / S and lacks its D / B; here an
 * update comes once an iteration. A stage computes in S of the p + S - 1 slots and waits in the others. */
static bppsa_status project_formula(const bppsa_oracle_query *q, const stage *stages, int64_t p, bppsa_oracle_row *row) {
  const double samples = (double)q->samples, batch = (double)row->mini_batch, s = (double)row->micro_batches;
  double forward = 0, backward = 0, update = 0, y = 0;
  for (int64_t i = 0; i < p; ++i) {
    forward = fmax(forward, stages[i].forward_s);
    backward = fmax(backward, stages[i].backward_s);
    update = fmax(update, stages[i].update_s);
    y = i + 1 < p ? fmax(y, stages[i].y) : y;
    row->memory_bytes = fmax(row->memory_bytes, q->memory_reuse * (double)q->item_bytes * stage_elements(&stages[i], batch, 1));
  }
  row->phase_s[BPPSA_PHASE_FORWARD] = samples * forward;
  row->phase_s[BPPSA_PHASE_BACKWARD] = samples * backward;
  row->phase_s[BPPSA_PHASE_WAIT] = samples * ((double)p - 1) / s * (forward + backward);
  row->phase_s[BPPSA_PHASE_UPDATE] = samples / batch * update;
  if (p > 1) {
    row->phase_s[BPPSA_PHASE_POINT_TO_POINT] =
        2 * samples * ((double)p + s - 2) / batch * bppsa_oracle_message_s(q, p, batch / s * y * (double)q->item_bytes);
  }
  return BPPSA_OK;
}

/* A function that projects a model that is cut into n stages. */
typedef bppsa_status (*projection)(const bppsa_oracle_query *q, const stage *stages, int64_t n, bppsa_oracle_row *row);

/* Cuts the model into n stages, and projects it. */
static bppsa_status with_stages(const bppsa_oracle_query *q, int64_t n, projection project, bppsa_oracle_row *row) {
  stage *stages = bppsa_calloc(n, sizeof *stages);
  if (stages == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  cut(q, n, stages);
  for (int64_t i = 1; i < n && n <= 1 + BPPSA_ORACLE_MOST_CUTS; ++i) {
    row->cut[row->cuts++] = stages[i].first;
  }
  row->micro_batches = bppsa_micro_batches(q, row->processors, row->mini_batch);
  const bppsa_status status = project(q, stages, n, row);
  bppsa_free(stages);
  return status;
}

bppsa_status bppsa_oracle_pipeline(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  return with_stages(q, row->processors, project_formula, row);
}

/* ---- simulation ---- */

int64_t bppsa_oracle_scheme_limit(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  int64_t most = bppsa_oracle_pipeline_limit(q, row);
  if (bppsa_schedule_takes(bppsa_schedule_find(row->strategy), "chunks")) {
    most /= q->chunks;
    snprintf(row->reason, sizeof row->reason, "the model has %" PRId64 " layers for %" PRId64 " stages a processor",
             q->model->count, q->chunks);
  }
  if (most > MOST_SIMULATED) {
    most = MOST_SIMULATED;
    snprintf(row->reason, sizeof row->reason, "simulated for up to %d processors", MOST_SIMULATED);
  }
  return most;
}

enum { ARRAYS = 7 };
static const bppsa_schedule_cost arrays[ARRAYS] = {BPPSA_COST_FORWARD, BPPSA_COST_INPUT_GRAD, BPPSA_COST_WEIGHT_GRAD,
                                                   BPPSA_COST_STEP,    BPPSA_COST_ACTIVATION, BPPSA_COST_MESSAGE,
                                                   BPPSA_COST_GRADIENT};

/* Returns the configuration of a schedule of p workers and n stages; a stage is one layer of the schedule, and a byte one word.
 * `costs`: [ARRAYS][n], borrowed by the result. */
static bppsa_schedule_config config_of(const bppsa_oracle_query *q, const stage *stages, int64_t n, const bppsa_oracle_row *row,
                                       double *costs) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  const int64_t p = row->processors;
  const double micro = (double)row->mini_batch / (double)row->micro_batches, bytes = (double)q->item_bytes;
  const bppsa_link link = bppsa_oracle_stage_link(q, p);
  for (int64_t i = 0; i < n; ++i) {
    const stage *s = &stages[i];
    const double values[ARRAYS] = {micro * s->forward_s,
                                   micro * (s->backward_s - s->weight_grad_s),
                                   micro * s->weight_grad_s,
                                   s->update_s,
                                   micro * s->activations,
                                   micro * s->y * bytes,
                                   s->w * bytes};
    for (int a = 0; a < ARRAYS; ++a) {
      costs[a * n + i] = values[a];
    }
  }
  for (int a = 0; a < ARRAYS; ++a) {
    config.cost[arrays[a]] = &costs[a * n];
    config.rows[arrays[a]] = n;
  }
  config.stages = p;
  config.layers = n;
  config.chunks = q->chunks;
  config.micro_batches = row->micro_batches;
  config.uniform[BPPSA_COST_SYNC] = -1; /* it follows from the link */
  config.alpha = link.alpha_s;
  config.beta = link.beta_s;
  return config;
}

/* Sets the memory of the fullest worker. It holds the activations of the simulated peak, and for every stage that it has (several
 * in schemes with replicas or chunks) all versions of the weights, one gradient, the biases, and, if weights are predicted, the
 * velocity. */
static bppsa_status take_memory(const bppsa_oracle_query *q, const stage *stages, const bppsa_schedule *list,
                                const bppsa_schedule_times *times, bppsa_oracle_row *row) {
  const int64_t p = row->processors, n = list->stages, places = list->replicas * n;
  const double micro = (double)row->mini_batch / (double)row->micro_batches;
  const double velocity = list->scheme->weights == BPPSA_WEIGHTS_PREDICTED ? 1 : 0;
  double activations = 0;
  int64_t *holder = bppsa_calloc(places, sizeof *holder); /* 1 + the worker of each replica's stages, [replicas][n]; 0: none */
  if (holder == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < list->count; ++i) {
    const bppsa_schedule_op *op = &list->ops[i];
    holder[op->replica * n + op->stage] = 1 + op->worker;
  }
  for (int64_t i = 0; i < n; ++i) {
    activations += stages[i].activations / (double)p; /* one M_a */
  }
  for (int64_t worker = 0; worker < p; ++worker) {
    const bppsa_schedule_worker *at = &times->worker[worker];
    const double versions = at->weight_versions / (double)list->replicas;
    double elements = 2 * micro * at->peak_activations * activations;
    for (int64_t place = 0; place < places; ++place) {
      elements += holder[place] == 1 + worker ? stage_elements(&stages[place % n], 0, versions + velocity) : 0;
    }
    row->memory_bytes = fmax(row->memory_bytes, q->memory_reuse * (double)q->item_bytes * elements);
  }
  bppsa_free(holder);
  return BPPSA_OK;
}

/* Returns how often a stage is updated while it computes this many micro-batches: once an iteration, with replicas once for each
 * of them, and without a flush (PipeDream) once for each micro-batch. */
static double updates_of(const bppsa_schedule *list, double micro_batches) {
  int64_t steps = 0;
  for (int64_t i = 0; i < list->count; ++i) {
    steps += list->ops[i].kind == BPPSA_KIND_STEP;
  }
  const double all = (double)(list->config.iterations * list->config.micro_batches);
  return (double)steps / (double)list->stages * micro_batches / all;
}

/* Returns the time at which the last of the first `micro_batches` micro-batches ends. */
static double end_of(const bppsa_schedule *list, const bppsa_schedule_times *times, int64_t micro_batches) {
  double end = 0;
  for (int64_t i = 0; i < list->count; ++i) {
    const bool first = list->ops[i].micro >= 0 && list->ops[i].micro < micro_batches;
    end = first ? fmax(end, times->end[i]) : end;
  }
  return end;
}

/* The times of one iteration of a scheme. */
typedef struct {
  double seconds, updates;
  double travelling; /* how much longer it takes because messages take time */
} iteration;

/* Returns the seconds of an iteration: the makespan, or without a flush the time that passes while the pipeline is full. */
static double seconds_of(const bppsa_schedule *list, const bppsa_schedule_times *times, int64_t p, int64_t window, int64_t all) {
  const double share = (double)all / (double)window;
  return list->scheme->weights == BPPSA_WEIGHTS_SYNCHRONOUS ? times->makespan
                                                            : share * (end_of(list, times, p + window) - end_of(list, times, p));
}

/* Simulates the same order with messages and sums of gradients that take no time. If they take none anyway, *seconds is
 * unchanged. */
static bppsa_status send_for_nothing(bppsa_schedule *list, int64_t p, int64_t window, int64_t all, double *seconds) {
  bppsa_schedule_times times = {0};
  bool any = false;
  for (int64_t i = 0; i < list->count; ++i) {
    const bppsa_schedule_kind kind = list->ops[i].kind;
    const bool travels = kind == BPPSA_KIND_SEND || kind == BPPSA_KIND_RECV || kind == BPPSA_KIND_SYNC;
    any = any || (travels && list->ops[i].cost > 0);
    list->ops[i].cost = travels ? 0 : list->ops[i].cost;
  }
  if (!any) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_schedule_simulate(list, &times));
  *seconds = seconds_of(list, &times, p, window, all);
  bppsa_schedule_times_free(&times);
  return BPPSA_OK;
}

/* Simulates an iteration. With a flush it takes the makespan. Without one iterations overlap, so the oracle looks at a window: p
 * micro-batches fill the pipeline before it, and p more keep the pipeline full until the window ends. The window of 2BW is an
 * iteration, because it updates once in each. The other schemes update after every micro-batch, so all micro-batches are alike,
 * and the window is p of them. */
static bppsa_status simulate(const bppsa_oracle_query *q, const stage *stages, bppsa_schedule_config *config,
                             bppsa_oracle_row *row, iteration *one) {
  const bppsa_schedule_weights weights = bppsa_schedule_find(row->strategy)->weights;
  const bool flushes = weights == BPPSA_WEIGHTS_SYNCHRONOUS;
  const int64_t p = row->processors, all = row->micro_batches, window = weights == BPPSA_WEIGHTS_BUFFERED ? all : p;
  bppsa_schedule *list = NULL;
  bppsa_schedule_times times = {0};
  int64_t forward = 0, backward = 0;
  config->micro_batches = flushes ? all : window;
  config->iterations = flushes ? 1 : 1 + (2 * p - 1) / window + 1;
  BPPSA_TRY(bppsa_schedule_create(row->strategy, config, &list));
  bppsa_status status = bppsa_schedule_simulate(list, &times);
  status = status == BPPSA_OK ? bppsa_schedule_model(list, &row->model_s, &forward, &backward) : status;
  if (status == BPPSA_OK) {
    *one = (iteration){.seconds = seconds_of(list, &times, p, window, all), .updates = updates_of(list, (double)all)};
    status = take_memory(q, stages, list, &times, row);
  }
  bppsa_schedule_times_free(&times);
  double at_rest = one->seconds;
  status = status == BPPSA_OK ? send_for_nothing(list, p, window, all, &at_rest) : status;
  one->travelling = fmax(0, one->seconds - at_rest);
  bppsa_schedule_destroy(list);
  return status;
}

/* Simulates processors that do not slow each other down, then slows them by as many processors as compute on average: a processor
 * in a bubble leaves the machine to the others. */
static bppsa_status project_simulated(const bppsa_oracle_query *q, const stage *stages, int64_t n, bppsa_oracle_row *row) {
  const double iterations = (double)q->samples / (double)row->mini_batch;
  const double p = (double)row->processors;
  iteration one = {.seconds = 0};
  if (row->micro_batches > MOST_PASSES / n) {
    row->feasible = false;
    snprintf(row->reason, sizeof row->reason, "simulated for up to %d micro-batches times stages", MOST_PASSES);
    return BPPSA_OK;
  }
  double *costs = bppsa_calloc(ARRAYS * n, sizeof *costs);
  if (costs == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_schedule_config config = config_of(q, stages, n, row, costs);
  const bppsa_status status = simulate(q, stages, &config, row, &one);
  bppsa_free(costs);
  if (status == BPPSA_ERR_ARGUMENT) { /* the scheme has no schedule for these numbers; the message says why */
    row->feasible = false;
    snprintf(row->reason, sizeof row->reason, "%.150s", bppsa_last_error());
    return BPPSA_OK;
  }
  BPPSA_TRY(status);
  bppsa_oracle_compute(q, row, 1 / p, one.updates / p);
  const double busy = row->phase_s[BPPSA_PHASE_FORWARD] + row->phase_s[BPPSA_PHASE_BACKWARD] + row->phase_s[BPPSA_PHASE_UPDATE];
  const double epoch = iterations * one.seconds, idle = epoch - busy > 1e-12 * epoch ? epoch - busy : 0; /* not a rounding */
  const double travelling = fmin(idle, iterations * one.travelling);
  row->busy = epoch > 0 ? p * fmin(1, busy / epoch) : p;
  const double slowdown = bppsa_oracle_system_slowdown(q->system, row->busy);
  row->phase_s[BPPSA_PHASE_POINT_TO_POINT] = travelling * slowdown;
  row->phase_s[BPPSA_PHASE_WAIT] = idle - travelling > 1e-12 * epoch ? (idle - travelling) * slowdown : 0;
  for (int phase = BPPSA_PHASE_FORWARD; phase <= BPPSA_PHASE_UPDATE; ++phase) {
    row->phase_s[phase] *= slowdown;
  }
  row->model_s *= iterations * slowdown;
  return BPPSA_OK;
}

bppsa_status bppsa_oracle_scheme(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  const bppsa_schedule_scheme *scheme = bppsa_schedule_find(row->strategy);
  const int64_t p = row->processors;
  bppsa_oracle_query alone = *q;
  alone.slowdown = 1;
  if (scheme->pipelines > 1 && p % 2 != 0) {
    row->feasible = false;
    snprintf(row->reason, sizeof row->reason, "its two pipelines need an even number of stages");
    return BPPSA_OK;
  }
  if (!bppsa_schedule_takes(scheme, "cut")) { /* stage l belongs to processor l mod p, whatever layers cost */
    const bppsa_status status = with_stages(&alone, q->model->count, project_simulated, row);
    row->cuts = 0;
    return status;
  }
  if (bppsa_schedule_takes(scheme, "chunks")) {
    /* A micro-batch goes round the processors once for each of their stages. The scheme takes p micro-batches at a time, so the
     * oracle chooses a multiple of p if it can. */
    const int64_t most = bppsa_micro_batches(q, p, row->mini_batch);
    alone.micro_batches = q->micro_batches > 0 || most < p ? most : most - most % p;
    row->chunks = q->chunks;
    return with_stages(&alone, p * q->chunks, project_simulated, row);
  }
  return with_stages(&alone, p, project_simulated, row);
}

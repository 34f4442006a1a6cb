/* The ranks of `bench schedule`: what each of them holds of a scheme, and the orders that rank 0 gives. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/bench_schedule.h"
#include "core/base/alloc.h"
#include "core/base/text.h"
#include "core/compute/pool.h"
#include "distributed/pipeline/pipeline_train.h"

/* ---- micro-batches of one size ---- */

static void free_size(bppsa_schedule_size *z) {
  bppsa_chain_costs_free(&z->costs);
  bppsa_chain_probe_destroy(z->probe);
  bppsa_chain_noise_destroy(z->noise);
  bppsa_chain_destroy(z->chain);
  bppsa_free(z->losses);
  bppsa_free(z->norms);
  *z = (bppsa_schedule_size){0};
}

static bppsa_status make_pipeline(const bppsa_schedule_crew *crew, bppsa_comm *comm, const bppsa_schedule_size *z,
                                  const bppsa_schedule *list, bppsa_pipeline **pipeline) {
  const bppsa_pipeline_config config = {
      .schedule = list, .samples = z->samples * bppsa_pipeline_parts(list), .optimizer = crew->optimizer};
  return bppsa_pipeline_create(comm, z->chain, &config, crew->values, pipeline);
}

static bppsa_status train_on_one_device(const bppsa_schedule_crew *crew, const bppsa_schedule *list, bppsa_schedule_size *z) {
  bppsa_pipeline *pipeline = NULL;
  BPPSA_TRY(make_pipeline(crew, crew->self, z, list, &pipeline));
  bppsa_status status = BPPSA_OK;
  for (int64_t update = 0; status == BPPSA_OK && update < z->updates; ++update) {
    status = bppsa_pipeline_run(pipeline, bppsa_chain_noise_data(z->noise), &z->losses[update]);
    z->norms[update] = bppsa_pipeline_norms(pipeline)[0];
  }
  bppsa_pipeline_destroy(pipeline);
  return status;
}

/* Trains on one device with the same micro-batches: synchronous schemes must have the same losses and norms. */
static bppsa_status make_reference(const bppsa_schedule_crew *crew, bppsa_schedule_size *z) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_schedule *list = NULL;
  z->updates = BPPSA_SCHEDULE_VERIFIED * crew->asked->schedule.iterations;
  z->losses = bppsa_calloc(z->updates + 1, sizeof *z->losses);
  z->norms = bppsa_calloc(z->updates + 1, sizeof *z->norms);
  if (z->losses == NULL || z->norms == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  config.stages = 1;
  config.layers = z->chain->layers;
  config.micro_batches = crew->asked->batch / z->samples;
  config.skip_first_input_grad = true;
  BPPSA_TRY(bppsa_schedule_create("gpipe", &config, &list));
  const bppsa_status status = train_on_one_device(crew, list, z);
  bppsa_schedule_destroy(list);
  return status;
}

static bppsa_status measure_size(const bppsa_schedule_crew *crew, bppsa_schedule_size *z) {
  const bppsa_network *network = crew->asked->network;
  bppsa_network_config config = crew->config;
  config.batch = z->samples;
  BPPSA_TRY(network->kind->family->chain(network, &config, crew->device, &z->chain));
  BPPSA_TRY(bppsa_chain_noise_create(z->chain, z->samples, crew->asked->request.seed, &z->noise));
  const bppsa_chain_measuring how = {.samples = z->samples,
                                     .optimizer = crew->optimizer,
                                     .values = crew->values,
                                     .data = bppsa_chain_noise_data(z->noise),
                                     .micro_batches = z->micro_batches,
                                     .updates = z->step_count,
                                     .at_once = crew->at_once,
                                     .repeats = crew->asked->request.quick ? 3 : 0,
                                     .budget_s = 0.5};
  BPPSA_TRY(bppsa_chain_probe_create(crew->world, z->chain, &how, &z->probe));
  BPPSA_TRY(bppsa_chain_probe_measure(crew->world, z->probe, &how, &z->costs));
  bppsa_chain_probe_forget(z->probe);
  z->costs.alpha = crew->alpha;
  z->costs.beta = crew->beta;
  return bppsa_comm_rank(crew->world) == 0 ? make_reference(crew, z) : BPPSA_OK;
}

/* How a scheme divides a batch. */
typedef struct {
  int64_t samples;  /* samples of a pass: those of a micro-batch or, with halving, of a half */
  int64_t parts;    /* of a micro-batch */
  int64_t passes;   /* passes of a worker through a layer between two updates */
  int64_t steps;    /* updates of an iteration */
  int64_t replicas; /* of the model */
} share;

/* Finds the size of the share's micro-batches, and measures it if it is new. Collective. */
static bppsa_status find_size(bppsa_schedule_crew *crew, const share *s, bppsa_schedule_size **found) {
  for (int64_t i = 0; i < crew->size_count; ++i) {
    const bppsa_schedule_size *z = &crew->sizes[i];
    if (z->samples == s->samples && (z->step_count > 1) == (s->steps > 1)) {
      *found = &crew->sizes[i];
      return BPPSA_OK;
    }
  }
  if (crew->size_count == BPPSA_SCHEDULE_SIZES) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "more than %d sizes of micro-batches", BPPSA_SCHEDULE_SIZES);
  }
  bppsa_schedule_size *z = &crew->sizes[crew->size_count++];
  z->samples = s->samples;
  z->micro_batches = s->passes;
  z->step_count = s->steps;
  *found = z;
  return measure_size(crew, z);
}

/* Finds the times of sums over so many replicas, and measures them if they are new; NULL if there is nothing to sum. A rank holds
 * one replica unless there are more replicas than ranks. Collective. */
static bppsa_status find_sums(bppsa_schedule_crew *crew, int64_t replicas, const double **seconds) {
  const int64_t size = bppsa_comm_size(crew->world), ranks = replicas < size ? replicas : size;
  const bppsa_chain *chain = crew->sizes[0].chain;
  bppsa_schedule_sums *s = crew->sums;
  *seconds = NULL;
  while (s < crew->sums + crew->sum_count && s->ranks != ranks) {
    ++s;
  }
  if (ranks < 2) {
    return BPPSA_OK;
  }
  if (s == crew->sums + BPPSA_SCHEDULE_SIZES) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "sums over more than %d numbers of ranks", BPPSA_SCHEDULE_SIZES);
  }
  if (s == crew->sums + crew->sum_count) {
    s->ranks = ranks;
    s->seconds = bppsa_calloc(chain->layers, sizeof *s->seconds);
    crew->sum_count++;
    BPPSA_TRY(s->seconds != NULL ? bppsa_chain_measure_sync(crew->world, chain, ranks, s->seconds) : BPPSA_ERR_MEMORY);
  }
  *seconds = s->seconds;
  return BPPSA_OK;
}

/* ---- the list of a scheme ---- */

static bppsa_status share_of(const bppsa_schedule_crew *crew, const char *scheme, const bppsa_schedule_config *config, share *s) {
  const int64_t batch = crew->asked->batch;
  bppsa_schedule *empty = NULL;
  BPPSA_TRY(bppsa_schedule_create_empty(scheme, config, &empty));
  s->parts = bppsa_pipeline_parts(empty);
  s->replicas = empty->replicas;
  const bool each = bppsa_schedule_updates_each(empty);
  s->passes = each ? s->parts : empty->config.micro_batches * s->parts;
  s->steps = each ? empty->config.micro_batches : 1;
  const int64_t blocks = bppsa_pipeline_train_micros(empty) * s->parts;
  bppsa_schedule_destroy(empty);
  s->samples = batch / blocks;
  return batch % blocks == 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--batch: %" PRId64 " samples for %" PRId64 " %smicro-batches, expected a multiple",
                          batch, blocks, s->parts > 1 ? "halves of " : "");
}

/* Makes the costs of whole micro-batches from those of one of their `parts` parts. *scaled: owned by the caller, borrowed by the
 * configuration. */
static bppsa_status scale_costs(int64_t parts, bppsa_schedule_config *config, double **scaled) {
  static const bppsa_schedule_cost of_samples[] = {BPPSA_COST_FORWARD,  BPPSA_COST_INPUT_GRAD, BPPSA_COST_WEIGHT_GRAD,
                                                   BPPSA_COST_BACKWARD, BPPSA_COST_ACTIVATION, BPPSA_COST_MESSAGE};
  enum { KINDS = sizeof of_samples / sizeof of_samples[0] };
  *scaled = bppsa_calloc(KINDS * config->layers, sizeof **scaled);
  if (*scaled == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int i = 0; i < KINDS; ++i) {
    double *array = *scaled + i * config->layers;
    for (int64_t l = 0; l < config->layers; ++l) {
      array[l] = (double)parts * config->cost[of_samples[i]][l];
    }
    config->cost[of_samples[i]] = array;
  }
  return BPPSA_OK;
}

/* Cuts the layers as asked, or evenly by what a micro-batch costs. *even: owned by the caller, borrowed by the configuration. */
static bppsa_status cut_layers(const bppsa_schedule_crew *crew, const char *scheme, bppsa_schedule_config *config,
                               int64_t **even) {
  config->cut = crew->cut;
  config->cuts = crew->cuts;
  if (crew->cut != NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_schedule_cut_scheme(scheme, config, even, &config->cuts));
  config->cut = *even;
  return BPPSA_OK;
}

/* sums: of each layer over the replicas, or NULL. */
static bppsa_status make_list(const bppsa_schedule_crew *crew, const char *scheme, const bppsa_schedule_size *z,
                              const double *sums, int64_t parts, bppsa_schedule_config *config, bppsa_schedule **list) {
  double *scaled = NULL;
  int64_t *even = NULL;
  bppsa_chain_costs_set(&z->costs, config);
  config->cost[BPPSA_COST_SYNC] = sums;
  config->rows[BPPSA_COST_SYNC] = sums != NULL ? config->layers : 0;
  bppsa_status status = scale_costs(parts, config, &scaled);
  status = status == BPPSA_OK ? cut_layers(crew, scheme, config, &even) : status;
  status = status == BPPSA_OK ? bppsa_schedule_create(scheme, config, list) : status;
  bppsa_free(even);
  bppsa_free(scaled);
  return status;
}

/* Predicts an iteration's time: the simulator's, but no less than the busiest rank's work, or all work over the processors. */
static void judge(const bppsa_schedule_crew *crew, bppsa_schedule_entry *e) {
  const bppsa_schedule *list = e->predicted.list;
  const int64_t ranks = bppsa_comm_size(crew->world);
  double all = 0, most = 0;
  bool lanes = false;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    double own = 0;
    for (int64_t id = 0; id < list->count; ++id) {
      const bppsa_schedule_op *op = &list->ops[id];
      own += op->worker % ranks == rank && bppsa_schedule_kind_busy(op->kind) ? op->cost : 0;
      lanes = lanes || op->lane == BPPSA_LANE_GRADIENT;
    }
    all += own;
    most = fmax(most, own);
  }
  const int64_t active = list->workers < ranks ? list->workers : ranks;
  const bool crowded = active > crew->at_once, several = list->workers > ranks;
  e->predicted_s = fmax(fmax(e->predicted.times.makespan, most), all / (double)crew->at_once) / (double)list->rounds;
  e->note = crowded ? "ranks share processors" : several ? "workers share a rank" : lanes ? "lanes share a thread" : "";
  e->judged = !crowded && !several;
}

/* ---- a scheme ---- */

static void free_entry(bppsa_schedule_entry *e) {
  bppsa_pipeline_destroy(e->pipeline);
  bppsa_timed_free(&e->predicted);
  bppsa_schedule_times_free(&e->latest);
  bppsa_schedule_times_free(&e->fastest);
  bppsa_free(e->losses);
  bppsa_free(e->shared);
  *e = (bppsa_schedule_entry){.scheme = e->scheme};
}

static bppsa_status make_entry(bppsa_schedule_crew *crew, bppsa_schedule_entry *e) {
  const char *id = e->scheme->id;
  bppsa_schedule_config config = crew->asked->schedule;
  bppsa_schedule *list = NULL;
  const double *sums = NULL;
  share s;
  config.layers = crew->sizes[0].chain->layers;
  BPPSA_TRY(share_of(crew, id, &config, &s));
  BPPSA_TRY(find_size(crew, &s, &e->size));
  BPPSA_TRY(find_sums(crew, s.replicas, &sums));
  BPPSA_TRY(make_list(crew, id, e->size, sums, s.parts, &config, &list));
  BPPSA_TRY(bppsa_timed_create(list, &e->predicted)); /* takes the list over */
  judge(crew, e);
  BPPSA_TRY(make_pipeline(crew, crew->world, e->size, list, &e->pipeline));
  e->updates = bppsa_pipeline_updates(e->pipeline);
  e->shared_count = 2 * list->count + list->workers + 1;
  e->losses = bppsa_calloc(e->updates + 1, sizeof *e->losses);
  e->shared = bppsa_calloc(e->shared_count, sizeof *e->shared);
  return e->losses == NULL || e->shared == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

/* ---- predictions ---- */

/* Predicts again from the latest costs. */
static bppsa_status predict(const bppsa_schedule_crew *crew, bppsa_schedule_entry *e) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_schedule_times times;
  double *scaled = NULL;
  bppsa_chain_costs_set(&e->size->costs, &config);
  BPPSA_TRY(scale_costs(bppsa_pipeline_parts(e->predicted.list), &config, &scaled));
  bppsa_schedule_reprice(e->predicted.list, &config);
  bppsa_free(scaled);
  BPPSA_TRY(bppsa_schedule_simulate(e->predicted.list, &times));
  bppsa_schedule_times_free(&e->predicted.times);
  e->predicted.times = times;
  judge(crew, e);
  return BPPSA_OK;
}

bppsa_status bppsa_schedule_crew_settle(bppsa_schedule_crew *crew) {
  for (int64_t i = 0; i < crew->size_count; ++i) {
    bppsa_chain_probe_times(crew->sizes[i].probe, &crew->sizes[i].costs);
  }
  for (int64_t i = 0; i < crew->count; ++i) {
    BPPSA_TRY(crew->entries[i].pipeline != NULL ? predict(crew, &crew->entries[i]) : BPPSA_OK);
  }
  return BPPSA_OK;
}

/* ---- passes ---- */

/* Did this pass read, or this update make, the version of the weights that the list names? Versions count over all runs. Layers
 * without weights have none. */
static bool sees_its_version(const bppsa_schedule_entry *e, int64_t id, const bppsa_pipeline_event *event) {
  const bppsa_schedule_op *op = &e->predicted.list->ops[id];
  const bool tagged = (op->kind <= BPPSA_KIND_RECOMPUTE || op->kind == BPPSA_KIND_STEP) && op->weight_version >= 0;
  bool weights = false;
  for (int64_t l = op->layer; tagged && l < op->layer + op->layers; ++l) {
    weights = weights || e->size->chain->layer[l].parameters > 0;
  }
  return !weights || event->version == op->weight_version + (e->runs - 1) * e->updates;
}

/* Fills this rank's part of what rank 0 gets; the parts of others are 0. */
static void fill_shared(const bppsa_schedule_crew *crew, bppsa_schedule_entry *e) {
  const bppsa_schedule *list = e->predicted.list;
  const bppsa_pipeline_event *events = bppsa_pipeline_events(e->pipeline);
  double *start = e->shared, *end = start + list->count, *peaks = end + list->count, *wrong = peaks + list->workers;
  memset(e->shared, 0, (size_t)e->shared_count * sizeof *e->shared);
  bppsa_pipeline_times(e->pipeline, start, end);
  for (int64_t id = 0; id < list->count; ++id) {
    const bool own = list->ops[id].worker % bppsa_comm_size(crew->world) == bppsa_comm_rank(crew->world);
    *wrong += own && !sees_its_version(e, id, &events[id]);
  }
  for (int64_t w = 0; w < list->workers; ++w) {
    peaks[w] = (double)bppsa_pipeline_peak_activations(e->pipeline, w);
  }
}

/* Stores the times of the pass, counted from the first pass through a layer. */
static bppsa_status take_times(bppsa_schedule_entry *e) {
  const bppsa_schedule *list = e->predicted.list;
  double *start = e->shared, *end = start + list->count, first = INFINITY;
  for (int64_t id = 0; id < list->count; ++id) {
    first = bppsa_schedule_kind_busy(list->ops[id].kind) ? fmin(first, start[id]) : first;
  }
  bppsa_pipeline_settle_times(list, first, start, end);
  bppsa_schedule_times_free(&e->latest);
  BPPSA_TRY(bppsa_schedule_times_of(list, start, end, &e->latest));
  if (e->fastest.start != NULL && e->latest.makespan >= e->fastest.makespan) {
    return BPPSA_OK;
  }
  bppsa_schedule_times_free(&e->fastest);
  return bppsa_schedule_times_of(list, start, end, &e->fastest);
}

double bppsa_schedule_peak(const bppsa_schedule_entry *e) {
  const bppsa_schedule *list = e->predicted.list;
  double most = 0;
  for (int64_t w = 0; w < list->workers; ++w) {
    most = fmax(most, e->shared[2 * list->count + w]);
  }
  return most;
}

/* The relative difference of two numbers; 0: they have the same bits. */
static double apart(double found, double expected) {
  return found == expected ? 0 : isfinite(found) && expected != 0 ? fabs(found / expected - 1) + DBL_EPSILON : INFINITY;
}

double bppsa_schedule_residual(const bppsa_schedule_entry *e, int64_t run) {
  const bool synchronous = e->scheme->weights == BPPSA_WEIGHTS_SYNCHRONOUS;
  const double *norms = bppsa_pipeline_norms(e->pipeline);
  double worst = e->shared[e->shared_count - 1]; /* number of wrong tags */
  for (int64_t u = 0; u < e->updates; ++u) {
    const int64_t at = run * e->updates + u;
    worst = isfinite(e->losses[u]) && isfinite(norms[u]) ? worst : INFINITY;
    if (synchronous && at < e->size->updates) {
      worst = fmax(worst, fmax(apart(e->losses[u], e->size->losses[at]), apart(norms[u], e->size->norms[at])));
    }
  }
  return worst;
}

/* ---- orders ---- */

static bppsa_status make(void *context, const int64_t *entry) {
  bppsa_schedule_crew *crew = context;
  bppsa_schedule_entry *e = &crew->entries[*entry];
  const bppsa_status status = make_entry(crew, e);
  if (status != BPPSA_OK) {
    free_entry(e);
  }
  return status;
}

/* Executes the list once; all ranks begin together. The costs are measured just before, so that both meet the same machine. */
static bppsa_status pass(void *context, const int64_t *numbers) {
  bppsa_schedule_crew *crew = context;
  bppsa_schedule_entry *e = &crew->entries[numbers[0]];
  const bppsa_view shared = bppsa_view_make(e->shared, BPPSA_F64, 1, &e->shared_count);
  BPPSA_TRY(numbers[1] != 0 ? bppsa_chain_probe_run(e->size->probe) : BPPSA_OK);
  BPPSA_TRY(bppsa_comm_barrier(crew->world));
  BPPSA_TRY(bppsa_pipeline_run(e->pipeline, bppsa_chain_noise_data(e->size->noise), e->losses));
  e->runs++;
  fill_shared(crew, e);
  BPPSA_TRY(bppsa_comm_allreduce(crew->world, BPPSA_COMM_SUM, &shared));
  return bppsa_comm_rank(crew->world) == 0 ? take_times(e) : BPPSA_OK;
}

enum { MAKE = 0, PASS };
static const bppsa_crew_action actions[] = {[MAKE] = {make, true}, [PASS] = {pass, false}};

static bppsa_status order(bppsa_schedule_crew *crew, int64_t action, int64_t entry, bool timed) {
  return bppsa_crew_order(crew->world, actions, crew, action, (const int64_t[BPPSA_CREW_NUMBERS]){entry, timed});
}

bppsa_status bppsa_schedule_crew_make(bppsa_schedule_crew *crew, int64_t entry) {
  return order(crew, MAKE, entry, false);
}

bppsa_status bppsa_schedule_crew_pass(bppsa_schedule_crew *crew, int64_t entry, bool timed) {
  return order(crew, PASS, entry, timed);
}

bppsa_status bppsa_schedule_crew_serve(const bppsa_bench_request *request, const struct bppsa_bench_settings *asked) {
  bppsa_schedule_crew *crew = bppsa_calloc(1, sizeof *crew);
  if (crew == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = bppsa_schedule_crew_open(asked, request->device, crew);
  status = status == BPPSA_OK ? bppsa_crew_serve(crew->world, actions, crew) : status;
  bppsa_schedule_crew_close(crew);
  bppsa_free(crew);
  return status;
}

/* ---- the crew ---- */

/* Lists the schemes that train, or those that `asked` names, with commas between. */
static bppsa_status list_schemes(bppsa_schedule_crew *crew, const char *asked) {
  int64_t all;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&all);
  const char *known[BPPSA_SCHEDULE_SCHEMES + 1] = {NULL};
  int64_t words = 0;
  for (int64_t i = 0; i < all && words < BPPSA_SCHEDULE_SCHEMES; ++i) {
    if (!schemes[i].scan) {
      known[words++] = schemes[i].id;
      crew->entries[crew->count].scheme = asked == NULL ? &schemes[i] : NULL;
      crew->count += asked == NULL;
    }
  }
  for (const char *at = asked; at != NULL && *at != '\0';) {
    const size_t length = strcspn(at, ",");
    char word[BPPSA_SUGGESTION_LIMIT + 1], hint[96];
    snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), at);
    const bppsa_schedule_scheme *found = bppsa_schedule_find(word);
    if (found == NULL || found->scan || crew->count == BPPSA_SCHEDULE_SCHEMES) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT,
                        "--compare: '%s', expected schemes of schedule --list with micro-batches, and commas "
                        "between%s",
                        word, bppsa_suggestion(word, known, hint, sizeof hint));
    }
    crew->entries[crew->count++].scheme = found;
    at += length + (at[length] == ',');
  }
  return crew->count > 0 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_ARGUMENT, "--compare: '', expected schemes with commas between");
}

static bppsa_status make_weights(bppsa_schedule_crew *crew) {
  const struct bppsa_bench_settings *asked = crew->asked;
  crew->config = asked->network_config;
  crew->config.batch = 1;
  crew->config.method.backward = BPPSA_BACKWARD_BP;
  BPPSA_TRY(bppsa_network_create(asked->network, &crew->config, crew->device, &crew->model));
  BPPSA_TRY(bppsa_network_init(asked->network, crew->model, BPPSA_INIT_DEFAULT, asked->request.seed));
  crew->values = bppsa_calloc(crew->model->parameter_count + 1, sizeof *crew->values);
  if (crew->values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < crew->model->parameter_count; ++i) {
    crew->values[i] = crew->model->parameters[i].value;
  }
  crew->optimizer = bppsa_network_train_config(asked->network->kind).optimizer;
  return BPPSA_OK;
}

bppsa_status bppsa_schedule_crew_open(const struct bppsa_bench_settings *asked, const bppsa_device *device,
                                      bppsa_schedule_crew *crew) {
  *crew = (bppsa_schedule_crew){.asked = asked, .device = device, .world = asked->comm};
  const int64_t ranks = bppsa_comm_size(crew->world), nodes = ranks / bppsa_comm_node_size(crew->world);
  const int64_t fit = nodes * bppsa_pool_cpus() / bppsa_device_get_threads(device);
  const int64_t n = asked->schedule.micro_batches;
  const share whole = {.samples = asked->batch / n, .parts = 1, .passes = n, .steps = 1, .replicas = 1};
  bppsa_schedule_size *first;
  crew->at_once = fit < 1 ? 1 : fit < ranks ? fit : ranks;
  BPPSA_TRY(list_schemes(crew, asked->schemes));
  if (asked->cut != NULL) {
    const bppsa_status status = bppsa_schedule_cut_parse(asked->cut, &crew->cut, &crew->cuts);
    BPPSA_TRY(status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(status, "--cut"));
  }
  BPPSA_TRY(make_weights(crew));
  BPPSA_TRY(bppsa_comm_split(crew->world, bppsa_comm_rank(crew->world), 0, &crew->self));
  BPPSA_TRY(bppsa_chain_measure_link(crew->world, &crew->alpha, &crew->beta));
  return find_size(crew, &whole, &first);
}

void bppsa_schedule_crew_close(bppsa_schedule_crew *crew) {
  for (int64_t i = crew->count - 1; i >= 0; --i) {
    free_entry(&crew->entries[i]);
  }
  for (int64_t i = 0; i < crew->size_count; ++i) {
    free_size(&crew->sizes[i]);
  }
  for (int64_t i = 0; i < crew->sum_count; ++i) {
    bppsa_free(crew->sums[i].seconds);
  }
  bppsa_comm_destroy(crew->self);
  bppsa_free(crew->cut);
  bppsa_free(crew->values);
  bppsa_model_destroy(crew->model);
  *crew = (bppsa_schedule_crew){0};
}

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "calibrate/calibrate_internal.h"
#include "calibrate/limits.h"
#include "calibrate/step_product.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/compute/memory.h"
#include "distributed/agree.h"
#include "terminal/machine.h"

static bool first(const bppsa_calibration *s) {
  return bppsa_comm_rank(s->world) == 0;
}

/* ---- the model ---- */

/* Does the oracle have a model for what is measured? It has one size of some recurrent networks. */
static bool oracle_knows(const bppsa_calibrate_request *r) {
  const bppsa_network_kind *kind = bppsa_network_kind_find(r->model);
  if (kind == NULL || !kind->family->steps) {
    return true;
  }
  const bppsa_recurrent_config size = bppsa_recurrent_config_default();
  bool found = false;
  for (int64_t i = 0; bppsa_oracle_model_name(i) != NULL && !found; ++i) {
    found = strcmp(bppsa_oracle_model_name(i), r->model) == 0;
  }
  return found && r->seq_len == size.seq_len && r->hidden == size.hidden && r->layers == size.layers && r->input == size.input;
}

static bppsa_status open_chain(bppsa_calibration *s) {
  const bppsa_calibrate_request *r = s->request;
  s->config = bppsa_network_config_default(&s->network);
  s->config.batch = r->batch;
  if (s->network.kind->family->steps) {
    s->config.input = r->input;
    s->config.steps.seq_len = r->seq_len;
    s->config.steps.hidden = r->hidden;
    s->config.steps.layers = r->layers;
  }
  s->config.method.backward = BPPSA_BACKWARD_BP;
  BPPSA_TRY(bppsa_network_create(&s->network, &s->config, r->device, &s->weights));
  BPPSA_TRY(bppsa_network_init(&s->network, s->weights, BPPSA_INIT_DEFAULT, r->seed));
  BPPSA_TRY(s->network.kind->family->chain(&s->network, &s->config, r->device, &s->chain));
  BPPSA_TRY(bppsa_chain_noise_create(s->chain, r->batch, r->seed, &s->noise));
  s->values = bppsa_calloc(s->chain->parameter_count + 1, sizeof *s->values);
  if (s->values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < s->chain->parameter_count; ++i) {
    s->values[i] = s->weights->parameters[i].value;
  }
  if (s->model.count == 0) {
    char name[BPPSA_ORACLE_NAME];
    snprintf(name, sizeof name, "%s, T %" PRId64 ", H %" PRId64 ", L %" PRId64 ", I %" PRId64, r->model, r->seq_len, r->hidden,
             r->layers, r->input);
    return bppsa_chain_model(s->chain, name, &s->model);
  }
  return s->chain->layers == s->model.count
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE, "%s: %" PRId64 " layers to train, expected the oracle's %" PRId64, r->model,
                          s->chain->layers, s->model.count);
}

/* ---- layers ---- */

static bppsa_chain_measuring measuring_of(const bppsa_calibration *s, int64_t at_once, int64_t repeats) {
  return (bppsa_chain_measuring){.samples = s->request->batch,
                                 .optimizer = bppsa_network_train_config(s->network.kind).optimizer,
                                 .values = s->values,
                                 .data = bppsa_chain_noise_data(s->noise),
                                 .at_once = at_once,
                                 .repeats = repeats,
                                 .budget_s = s->request->quick ? 0.05 : 1};
}

static bppsa_status measure_chain(bppsa_calibration *s, int64_t at_once, int64_t repeats, bppsa_chain_costs *costs) {
  const bppsa_chain_measuring how = measuring_of(s, at_once, repeats);
  return bppsa_chain_measure(s->world, s->chain, &how, costs);
}

/* Measures the file of costs. As many ranks as have processors measure side by side, as in a pipeline. */
static bppsa_status measure_costs(const bppsa_calibration *s) {
  const bppsa_chain_measuring how = measuring_of(s, bppsa_ranks_at_once(s->world, s->request->device), 0);
  return s->request->costs != NULL ? bppsa_chain_measure_file(s->world, s->chain, &how, s->request->costs) : BPPSA_OK;
}

/* Seconds of a forward pass, a backward pass and an update of all layers. */
static double sum_of(const bppsa_chain_costs *costs) {
  double sum = 0;
  for (int64_t l = 0; l < costs->layers; ++l) {
    sum += costs->cost[BPPSA_COST_FORWARD][l] + costs->cost[BPPSA_COST_BACKWARD][l] + costs->cost[BPPSA_COST_STEP][l];
  }
  return sum;
}

/* Takes the layers' times, per sample, and from them the share of the peak that they reach. */
static bppsa_status measure_layers(bppsa_calibration *s, double *pass_s) {
  double flops = 0, seconds = 0;
  BPPSA_TRY(measure_chain(s, 1, 0, &s->costs));
  bppsa_chain_layers(&s->costs, (double)s->request->batch, &s->model);
  for (int64_t l = 0; l < s->model.count; ++l) {
    const bppsa_oracle_layer *layer = &s->model.layers[l];
    flops += layer->flops * (layer->w > 0 ? 3 : 2);
    seconds += layer->forward_s + layer->backward_s;
  }
  *pass_s = sum_of(&s->costs);
  s->system.efficiency = fmin(1, fmax(1e-6, flops / (seconds * s->system.peak_flops)));
  return BPPSA_OK;
}

/* Measures the products of the scan over ranks, on rank 0 while the others wait. */
static bppsa_status measure_products(bppsa_calibration *s) {
  const bool steps = s->network.kind->cell != NULL;
  bppsa_progress_show(&s->progress, "products of matrices");
  if (first(s)) {
    BPPSA_TRY(bppsa_products_measure(s->request->device, s->request->batch, steps ? s->config.steps.hidden : 0, s->request->quick,
                                     s->request->seed, s->products));
    for (int i = 0; i < BPPSA_PRODUCTS; ++i) {
      s->system.products[i] = s->products[i].cost;
      s->system.product_spread[i] = s->products[i].spread;
    }
  }
  return bppsa_comm_barrier(s->world);
}

/* Measures how much longer scans take than BP if the model has steps, on rank 0 while the others wait. */
static bppsa_status measure_steps(bppsa_calibration *s) {
  bppsa_step_cost cost = {0};
  if (s->network.kind->cell == NULL) {
    return BPPSA_OK;
  }
  bppsa_progress_show(&s->progress, "products of steps");
  if (first(s)) {
    BPPSA_TRY(bppsa_step_product_measure(&s->network, &s->config, s->request->device, s->request->seed,
                                         s->request->quick ? 3 : 31, &cost));
  }
  for (int64_t l = 0; l < s->model.count; ++l) {
    if (s->model.layers[l].kind == BPPSA_LAYER_RECURRENT) {
      s->model.layers[l].scan_s = cost.scan_s;
      s->model.layers[l].product_s = cost.product_s;
      s->model.layers[l].scan_spread = cost.scan_spread;
      s->model.layers[l].product_spread = cost.product_spread;
    }
  }
  return bppsa_comm_barrier(s->world);
}

/* Sets the time that the slowest of `at_once` ranks (one, or all of the level) takes for the layers' passes while they run side by
 * side. Passes that share a core take turns, which medians of short operations do not show. */
static bppsa_status time_layers(void *context, int64_t at_once, double *seconds) {
  bppsa_calibration *s = context;
  BPPSA_TRY(bppsa_comm_barrier(s->world));
  const double start = bppsa_now();
  for (int64_t i = 0; i < s->repeats; ++i) {
    BPPSA_TRY(bppsa_chain_probe_run(s->probes[at_once > 1]));
  }
  *seconds = bppsa_now() - start;
  return bppsa_ranks_reduce(s->world, BPPSA_COMM_MAX, BPPSA_F64, 1, seconds);
}

/* Creates two probes, one for a rank alone and one for all ranks at once, and runs each once as a warm-up. */
static bppsa_status open_probes(bppsa_calibration *s, int64_t ranks) {
  for (int i = 0; i < BPPSA_CALIBRATE_PROBES; ++i) {
    const bppsa_chain_measuring how = measuring_of(s, i == 0 ? 1 : ranks, 0);
    BPPSA_TRY(bppsa_chain_probe_create(s->world, s->chain, &how, &s->probes[i]));
    BPPSA_TRY(bppsa_chain_probe_run(s->probes[i]));
  }
  return BPPSA_OK;
}

static void close_probes(bppsa_calibration *s) {
  for (int i = 0; i < BPPSA_CALIBRATE_PROBES; ++i) {
    bppsa_chain_probe_destroy(s->probes[i]);
    s->probes[i] = NULL;
  }
}

/* Gives this level an equal part of the time that is left for it and the levels behind it; the same on all ranks. */
static bppsa_status share_budget(const bppsa_calibration *s, int64_t levels_left, double *budget_s) {
  double spent_s = bppsa_now() - s->start;
  BPPSA_TRY(bppsa_ranks_reduce(s->world, BPPSA_COMM_MAX, BPPSA_F64, 1, &spent_s));
  *budget_s = (BPPSA_CALIBRATE_MOST_S - spent_s) / (double)levels_left;
  return BPPSA_OK;
}

/* Measures how many times longer the passes take when all ranks of the level make them, and how far that ratio spreads. The time of
 * one rank alone spreads as the layers' times do. */
static bppsa_status measure_slowdown(bppsa_calibration *s, double pass_s, int64_t levels_left, bppsa_oracle_level *level) {
  const double long_enough = s->request->quick ? 0.02 : 0.1; /* seconds that one rank computes */
  bppsa_slowdown *found = &s->slowdowns[s->system.count - 1];
  bppsa_slowdown_measuring how = {
      .time = time_layers, .context = s, .ranks = level->processors, .quick = s->request->quick, .progress = &s->progress};
  s->repeats = (int64_t)fmin(101, fmax(1, long_enough / (2 * pass_s)));
  BPPSA_TRY(share_budget(s, levels_left, &how.budget_s));
  bppsa_status status = open_probes(s, level->processors);
  status = status == BPPSA_OK ? bppsa_slowdown_measure(&how, found) : status;
  close_probes(s);
  BPPSA_TRY(status);
  level->slowdown = found->slowdown.median;
  level->slowdown_spread = (bppsa_oracle_spread){found->slowdown.low, found->slowdown.high};
  bppsa_oracle_spread *layers = &s->system.layer_spread;
  const double low = found->alone_s.low / found->alone_s.median, high = found->alone_s.high / found->alone_s.median;
  *layers = layers->high > 0 ? (bppsa_oracle_spread){fmin(low, layers->low), fmax(high, layers->high)}
                             : (bppsa_oracle_spread){low, high};
  return BPPSA_OK;
}

/* ---- shares ---- */

/* Measures how long a rank of the group takes for its part of a step; ways 1: for the whole step. A network that has fewer tiles,
 * filters or channels than there are ways has no such share. */
static bppsa_status measure_share(bppsa_calibration *s, bppsa_comm *group, int strategy, int64_t ways) {
  const double batch = (double)s->request->batch;
  const bppsa_step_measuring how = {.batch = s->request->batch,
                                    .optimizer = bppsa_network_train_config(s->network.kind).optimizer,
                                    .seed = s->request->seed,
                                    .budget_s = s->request->quick ? 0.05 : 0.5,
                                    .mean = bppsa_ranks_at_once(group, s->request->device) < bppsa_comm_size(group),
                                    .device = s->request->device};
  const bppsa_layer_strategy split = (bppsa_layer_strategy)strategy;
  const char *name = ways > 1 ? bppsa_layer_strategy_name(split) : "data";
  bppsa_step_costs costs;
  bppsa_progress_show(&s->progress, "%s in %" PRId64 " parts on %d ranks", name, ways, bppsa_comm_size(group));
  const bppsa_status status =
      bppsa_step_measure(group, &s->network.layers, s->weights, ways > 1 ? &split : NULL, ways, &how, &costs);
  if (status != BPPSA_OK) {
    return status == BPPSA_ERR_ARGUMENT ? BPPSA_OK : status;
  }
  s->shares[s->share_count++] = bppsa_step_share(&costs, name, ways, bppsa_comm_size(group), batch);
  return BPPSA_OK;
}

/* Measures the whole model, and its parts for as many ways as the levels up to this one have ranks. */
static bppsa_status measure_shares(bppsa_calibration *s, bppsa_comm *group) {
  if (s->network.kind->family->steps) {
    return BPPSA_OK; /* ranks cannot share the layers of a recurrent network */
  }
  BPPSA_TRY(measure_share(s, group, 0, 1));
  for (int64_t level = 0; level < s->system.count; ++level) {
    const int64_t ways = s->system.levels[level].processors;
    for (int strategy = 0; strategy < BPPSA_LAYERS_COUNT && bppsa_comm_size(group) % ways == 0; ++strategy) {
      BPPSA_TRY(measure_share(s, group, strategy, ways));
    }
  }
  return BPPSA_OK;
}

/* Measures rank 0 by itself. */
static bppsa_status measure_alone(bppsa_calibration *s) {
  bppsa_comm *self = NULL;
  BPPSA_TRY(bppsa_comm_split(s->world, first(s) ? 0 : -1, 0, &self));
  const bppsa_status status = self != NULL ? measure_shares(s, self) : BPPSA_OK;
  bppsa_comm_destroy(self);
  return status;
}

/* ---- levels ---- */

/* Does the operation run over NCCL? Ordered sums add up in the host's memory, and schedules do not run over NCCL. */
static bool over_nccl(int32_t operation) {
  return operation != BPPSA_OPERATION_ORDERED_SUM && operation != BPPSA_OPERATION_STAGE_MESSAGE;
}

static bppsa_status measure_operations(bppsa_calibration *s, bppsa_comm *group, bppsa_oracle_level *level) {
  const int64_t first_fit = s->fit_count;
  for (int32_t operation = 0; operation < BPPSA_OPERATIONS; ++operation) {
    if (s->request->nccl && !over_nccl(operation)) {
      continue;
    }
    bppsa_link_fit *fit = &s->fits[s->fit_count++];
    bppsa_progress_show(&s->progress, "%s of %" PRId64 " ranks", bppsa_oracle_operation_name(operation), level->processors);
    if (group != NULL) {
      BPPSA_TRY(bppsa_link_measure(group, (bppsa_oracle_operation)operation, s->request->quick, fit));
    }
    level->own[operation] = fit->link;
    level->own_spread[operation] = fit->spread;
  }
  const bppsa_link_fit *fits = &s->fits[first_fit];
  const double count = (double)(s->fit_count - first_fit);
  for (int64_t i = 0; i < s->fit_count - first_fit && group != NULL; ++i) {
    level->message_spread.low += fits[i].spread.low / count;
    level->message_spread.high += fits[i].spread.high / count;
  }
  level->alpha_s = level->own[BPPSA_OPERATION_POINT_TO_POINT].alpha_s;
  level->beta_s = level->own[BPPSA_OPERATION_POINT_TO_POINT].beta_s;
  return BPPSA_OK;
}

/* Measures the level of the first `ranks` ranks; the others wait. levels_left: the levels from this one on. */
static bppsa_status measure_level(bppsa_calibration *s, int64_t ranks, double pass_s, int64_t levels_left) {
  bppsa_oracle_level *level = &s->system.levels[s->system.count++];
  bppsa_comm *group = NULL;
  *level = (bppsa_oracle_level){.processors = ranks, .contention = 1};
  snprintf(level->name, sizeof level->name, "%" PRId64 " ranks", ranks);
  BPPSA_TRY(bppsa_comm_split(s->links, bppsa_comm_rank(s->world) < ranks ? 0 : -1, bppsa_comm_rank(s->world), &group));
  bppsa_status status = measure_operations(s, group, level);
  status = status == BPPSA_OK && group != NULL && !s->request->nccl ? measure_shares(s, group) : status;
  bppsa_comm_destroy(group);
  BPPSA_TRY(status);
  if (s->request->nccl) {
    level->slowdown = 1; /* each rank has its own GPU */
    return BPPSA_OK;
  }
  bppsa_progress_show(&s->progress, "layers on %" PRId64 " ranks", ranks);
  return measure_slowdown(s, pass_s, levels_left, level);
}

/* Measures levels of 2, 4, .. and all ranks. */
static bppsa_status measure_levels(bppsa_calibration *s, double pass_s) {
  const int64_t all = bppsa_comm_size(s->world);
  int64_t ranks = 2, inner = 0; /* inner: levels before the last one */
  for (int64_t n = 2; n < all && inner + 1 < BPPSA_ORACLE_MOST_LEVELS; n *= 2) {
    ++inner;
  }
  for (int64_t i = 0; i < inner; ++i, ranks *= 2) {
    BPPSA_TRY(measure_level(s, ranks, pass_s, inner + 1 - i));
  }
  return measure_level(s, all, pass_s, 1);
}

/* ---- the machine ---- */

void bppsa_calibrate_name(const bppsa_device *device, char name[BPPSA_ORACLE_NAME]) {
  const char *hardware = bppsa_device_get_hardware(device);
  snprintf(name, BPPSA_ORACLE_NAME, "%.47s", hardware[0] != '\0' ? hardware : "this machine");
}

/* Measures the machine on rank 0 while the others wait. Each rank has its share of the memory. */
static bppsa_status measure_machine(bppsa_calibration *s) {
  bppsa_machine_limits limits = {0};
  bppsa_progress_show(&s->progress, "the processor and its memory");
  if (first(s)) {
    BPPSA_TRY(bppsa_machine_limits_measure(s->request->device, &limits));
  }
  bppsa_calibrate_name(s->request->device, s->system.name);
  s->system.peak_flops = first(s) ? limits.peak : 1;
  s->system.memory_bandwidth = limits.copy_bytes;
  s->system.memory_bytes = (double)bppsa_machine_memory() / (double)bppsa_comm_node_size(s->world);
  s->system.memory_reuse = 0.5;
  if (s->request->nccl) {
    int64_t bytes = 0;
    BPPSA_TRY(bppsa_memory_available(s->request->device, &bytes));
    s->system.memory_bytes = (double)bytes;
    s->system.efficiency = 0.5; /* assumed, as in the built-in systems */
  }
  return bppsa_comm_barrier(s->world);
}

/* ---- all of it ---- */

static bppsa_status measure(bppsa_calibration *s) {
  double pass_s = 0;
  BPPSA_TRY(s->request->nccl ? BPPSA_OK : bppsa_network_open(s->request->model, NULL, &s->network));
  if (oracle_knows(s->request)) {
    BPPSA_TRY(bppsa_oracle_model_open(s->request->model, &s->model));
  }
  s->links = s->world;
  if (s->request->nccl) {
    BPPSA_TRY(bppsa_comm_create_nccl(s->world, s->request->device, &s->links));
    BPPSA_TRY(measure_machine(s));
    return measure_levels(s, 0);
  }
  BPPSA_TRY(open_chain(s));
  BPPSA_TRY(measure_machine(s));
  bppsa_progress_show(&s->progress, "the layers of %s", s->model.name);
  BPPSA_TRY(measure_layers(s, &pass_s));
  BPPSA_TRY(measure_costs(s));
  BPPSA_TRY(measure_products(s));
  BPPSA_TRY(measure_steps(s));
  BPPSA_TRY(measure_alone(s));
  return measure_levels(s, pass_s);
}

static void close_session(bppsa_calibration *s) {
  bppsa_progress_clear(&s->progress);
  bppsa_comm_destroy(s->links != s->world ? s->links : NULL);
  bppsa_free(s->values);
  bppsa_chain_costs_free(&s->costs);
  bppsa_chain_noise_destroy(s->noise);
  bppsa_chain_destroy(s->chain);
  bppsa_model_destroy(s->weights);
  bppsa_network_close(&s->network);
  bppsa_oracle_model_free(&s->model);
  bppsa_free(s);
}

bppsa_status bppsa_calibrate(bppsa_comm *world, const bppsa_calibrate_request *request, json_t **document) {
  BPPSA_REQUIRE(world != NULL && request != NULL && request->device != NULL && request->batch >= 1 && document != NULL);
  if (bppsa_comm_size(world) < 2) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "calibrate: one rank has nobody to send to, expected 2 or more");
  }
  if (bppsa_device_get_kind(request->device) == BPPSA_CUDA && !request->nccl) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "calibrate: %s, whose layers are not measured, expected cpu, or --transport nccl too",
                      bppsa_device_get_name(request->device));
  }
  bppsa_calibration *s = bppsa_calloc(1, sizeof *s);
  json_t *made = NULL;
  if (s == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  s->world = world;
  s->request = request;
  s->start = bppsa_now();
  s->progress = bppsa_progress_start(request->err);
  bppsa_status status = measure(s);
  status = status == BPPSA_OK && first(s) ? bppsa_calibration_document(s, &made) : status;
  close_session(s);
  BPPSA_TRY(status);
  *document = made;
  return BPPSA_OK;
}

/* The list of operations, its configuration, and the cost of an operation. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "schedule/schedule_internal.h"

static const char *const kinds[BPPSA_KIND_COUNT] = {"F",     "I",       "W",          "B",    "RECOMPUTE", "SEND",
                                                    "RECV",  "SYNC",    "COLLECTIVE", "HALO", "STEP",      "PREDICT",
                                                    "STASH", "PRODUCT", "CARRY",      "APPLY"};
static const char *const lanes[BPPSA_LANE_COUNT] = {"compute", "gradient", "send", "receive", "sync"};
static const char *const costs[BPPSA_COST_COUNT] = {"forward",    "input_grad", "weight_grad", "backward", "sync", "step",
                                                    "activation", "message",    "gradient",    "product",  "apply"};

const char *bppsa_schedule_kind_name(int32_t kind) {
  return kind >= 0 && kind < BPPSA_KIND_COUNT ? kinds[kind] : "?";
}

const char *bppsa_schedule_lane_name(int32_t lane) {
  return lane >= 0 && lane < BPPSA_LANE_COUNT ? lanes[lane] : "?";
}

const char *bppsa_schedule_window_name(int32_t window) {
  return window == BPPSA_WINDOW_ITERATION ? "iteration" : window == BPPSA_WINDOW_BACKWARD_FORWARD ? "backward-forward" : "?";
}

const char *bppsa_schedule_cost_name(int32_t cost) {
  return cost >= 0 && cost < BPPSA_COST_COUNT ? costs[cost] : "?";
}

bool bppsa_schedule_kind_busy(int32_t kind) {
  static const bool busy[BPPSA_KIND_COUNT] = {
      [BPPSA_KIND_F] = true,     [BPPSA_KIND_I] = true,       [BPPSA_KIND_W] = true,         [BPPSA_KIND_B] = true,
      [BPPSA_KIND_STEP] = true,  [BPPSA_KIND_PREDICT] = true, [BPPSA_KIND_RECOMPUTE] = true, [BPPSA_KIND_PRODUCT] = true,
      [BPPSA_KIND_CARRY] = true, [BPPSA_KIND_APPLY] = true};
  return kind >= 0 && kind < BPPSA_KIND_COUNT && busy[kind];
}

bppsa_schedule_config bppsa_schedule_config_default(void) {
  return (bppsa_schedule_config){.stages = 4,
                                 .micro_batches = 4,
                                 .width = 1,
                                 .chunks = 2,
                                 .iterations = 1,
                                 .reverse = -1,
                                 .elements = 64,
                                 .sync = BPPSA_SYNC_EAGER_OPT,
                                 .uniform = {[BPPSA_COST_FORWARD] = 1,
                                             [BPPSA_COST_INPUT_GRAD] = 1,
                                             [BPPSA_COST_WEIGHT_GRAD] = 1,
                                             [BPPSA_COST_BACKWARD] = -1,
                                             [BPPSA_COST_SYNC] = -1,
                                             [BPPSA_COST_ACTIVATION] = 1,
                                             [BPPSA_COST_MESSAGE] = 1,
                                             [BPPSA_COST_GRADIENT] = 1,
                                             [BPPSA_COST_PRODUCT] = 1,
                                             [BPPSA_COST_APPLY] = 1}};
}

/* ---- geometry ---- */

int64_t bppsa_schedule_layer_of(const bppsa_schedule *list, int64_t stage) {
  if (list->config.cuts > 0 && stage > 0 && stage <= list->config.cuts) {
    return list->config.cut[stage - 1];
  }
  return bppsa_cut(list->config.layers, list->stages, stage);
}

/* Down pipeline i of Chimera begins at worker i D / f, and up pipelines mirror it (section 3.6). GEMS has one of each. Interleaved
 * and modulo place stages on the workers in turn. */
int64_t bppsa_schedule_place(const bppsa_schedule *list, int64_t replica, int64_t stage) {
  const int64_t d = list->config.stages, pipelines = list->replicas / list->config.width;
  const int64_t copy = replica / pipelines, pipeline = replica % pipelines;
  if (list->scheme->data_parallel) {
    return replica;
  }
  const int64_t f = pipelines > 1 ? pipelines / 2 : 1, down = (pipeline / 2 * (d / f) + stage) % d;
  return copy * d + (pipeline % 2 == 0 ? down : d - 1 - down);
}

int64_t bppsa_schedule_micro(const bppsa_schedule *list, int64_t replica, int64_t iteration, int64_t micro) {
  return (replica * list->rounds + iteration) * list->config.micro_batches + micro;
}

double bppsa_schedule_cost_of(const bppsa_schedule_config *config, bppsa_schedule_cost cost, int64_t layer) {
  return config->cost[cost] != NULL ? config->cost[cost][layer] : config->uniform[cost];
}

static double sum_of(const bppsa_schedule_config *config, bppsa_schedule_cost cost, int64_t layer, int64_t layers) {
  if (config->cost[cost] == NULL) {
    return config->uniform[cost] * (double)layers;
  }
  double sum = 0;
  for (int64_t i = 0; i < layers; ++i) {
    sum += config->cost[cost][layer + i];
  }
  return sum;
}

const char *bppsa_schedule_op_text(const bppsa_schedule *list, int64_t id, char *text, size_t size) {
  const bppsa_schedule_op *op = &list->ops[id];
  snprintf(text, size, "%s of micro-batch %d, stage %d, worker %d", bppsa_schedule_kind_name(op->kind), (int)op->micro,
           (int)op->stage, (int)op->worker);
  return text;
}

/* ---- cost, memory and weights ---- */

bool bppsa_schedule_frees(const bppsa_schedule *list, const bppsa_schedule_op *op) {
  const bool last_is_input = list->config.split == BPPSA_SPLIT_WI && !(op->layer == 0 && list->config.skip_first_input_grad);
  return op->kind == BPPSA_KIND_B || op->kind == (last_is_input ? BPPSA_KIND_I : BPPSA_KIND_W);
}

/* Rabenseifner's allreduce over r ranks: 2 log2(r) alpha + 2 (r - 1) beta L / r. (Chimera, section 3.4) */
static double allreduce(const bppsa_schedule *list, double words) {
  const double r = (double)list->replicas;
  return 2 * log2(r) * list->config.alpha + 2 * (r - 1) * list->config.beta * words / r;
}

/* Returns the cost of B. If `skipped`, its first layer has a weight gradient but no input gradient. */
static double backward(const bppsa_schedule_config *c, const bppsa_schedule_op *op, bool skipped) {
  if (bppsa_schedule_cost_of(c, BPPSA_COST_BACKWARD, op->layer) >= 0) {
    return sum_of(c, BPPSA_COST_WEIGHT_GRAD, op->layer, skipped) +
           sum_of(c, BPPSA_COST_BACKWARD, op->layer + skipped, op->layers - skipped);
  }
  return sum_of(c, BPPSA_COST_INPUT_GRAD, op->layer + skipped, op->layers - skipped) +
         sum_of(c, BPPSA_COST_WEIGHT_GRAD, op->layer, op->layers);
}

static double cost_of(const bppsa_schedule *list, const bppsa_schedule_op *op) {
  const bppsa_schedule_config *c = &list->config;
  const double share = (double)op->micros * (op->part >= 0 ? 0.5 : 1);
  const bool skipped = op->layer == 0 && c->skip_first_input_grad;
  double sync = 0;
  switch ((bppsa_schedule_kind)op->kind) {
  case BPPSA_KIND_F:
  case BPPSA_KIND_RECOMPUTE:
    return share * sum_of(c, BPPSA_COST_FORWARD, op->layer, op->layers);
  case BPPSA_KIND_I:
    return share * sum_of(c, BPPSA_COST_INPUT_GRAD, op->layer + skipped, op->layers - skipped);
  case BPPSA_KIND_W:
    return share * sum_of(c, BPPSA_COST_WEIGHT_GRAD, op->layer, op->layers);
  case BPPSA_KIND_B:
    return share * backward(c, op, skipped);
  case BPPSA_KIND_SYNC:
    sync = sum_of(c, BPPSA_COST_SYNC, op->layer, op->layers);
    return sync >= 0 ? sync : allreduce(list, sum_of(c, BPPSA_COST_GRADIENT, op->layer, op->layers));
  case BPPSA_KIND_STEP:
    return sum_of(c, BPPSA_COST_STEP, op->layer, op->layers);
  case BPPSA_KIND_PRODUCT:
    return c->uniform[BPPSA_COST_PRODUCT] * (double)op->micros;
  case BPPSA_KIND_CARRY:
  case BPPSA_KIND_APPLY:
    return c->uniform[BPPSA_COST_APPLY] * (double)op->micros;
  default:
    return 0;
  }
}

/* Returns activations in M_a. One M_a is the mean of a stage: the activations of all layers, divided by D. */
static double activations(const bppsa_schedule *list, const bppsa_schedule_op *op) {
  const bppsa_schedule_config *c = &list->config;
  const double all = list->activations, d = list->scheme->data_parallel ? 1 : (double)c->stages;
  const double own = sum_of(c, BPPSA_COST_ACTIVATION, op->layer, op->layers);
  return all > 0 ? (double)op->micros * (op->part >= 0 ? 0.5 : 1) * own * d / all : 0;
}

static double memory_of(const bppsa_schedule *list, const bppsa_schedule_op *op) {
  if (list->scheme->scan) {
    return 0;
  }
  if (bppsa_schedule_frees(list, op)) {
    return -activations(list, op);
  }
  return op->kind == (list->config.recompute ? BPPSA_KIND_RECOMPUTE : BPPSA_KIND_F) ? activations(list, op) : 0;
}

void bppsa_schedule_price(const bppsa_schedule *list, bppsa_schedule_op *op) {
  const bool stashed = list->scheme->weights == BPPSA_WEIGHTS_STASHED;
  op->cost = isnan(op->cost) ? cost_of(list, op) : op->cost;
  op->memory_delta = isnan(op->memory_delta) ? memory_of(list, op) : op->memory_delta;
  if (op->kind == BPPSA_KIND_STASH) {
    op->weight_delta = 1;
  } else if (stashed && bppsa_schedule_frees(list, op) && op->layer == bppsa_schedule_layer_of(list, op->stage)) {
    op->weight_delta = -1;
  }
}

/* ---- the list ---- */

void bppsa_schedule_reprice(bppsa_schedule *list, const bppsa_schedule_config *config) {
  static const bppsa_schedule_cost times[] = {BPPSA_COST_FORWARD, BPPSA_COST_INPUT_GRAD, BPPSA_COST_WEIGHT_GRAD,
                                              BPPSA_COST_BACKWARD, BPPSA_COST_STEP};
  for (size_t i = 0; i < sizeof times / sizeof times[0]; ++i) {
    const double *own = list->config.cost[times[i]], *given = config->cost[times[i]];
    for (int64_t layer = 0; own != NULL && given != NULL && layer < list->config.layers; ++layer) {
      list->layer_costs[own - list->layer_costs + layer] = given[layer];
    }
  }
  for (int64_t id = 0; id < list->count; ++id) {
    bppsa_schedule_op *op = &list->ops[id];
    op->cost = bppsa_schedule_kind_busy(op->kind) ? cost_of(list, op) : op->cost;
  }
}

bppsa_status bppsa_schedule_append(bppsa_schedule *list, const bppsa_schedule_op *op) {
  BPPSA_REQUIRE(list != NULL && op != NULL);
  if (list->count == list->room) {
    const int64_t room = list->room < 64 ? 64 : list->room + list->room / 2;
    if (room > INT32_MAX / 4) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule: more than %d operations, expected fewer", INT32_MAX / 4);
    }
    bppsa_schedule_op *grown = bppsa_realloc(list->ops, (size_t)room * sizeof *grown);
    if (grown == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    list->ops = grown;
    list->room = room;
  }
  list->ops[list->count++] = *op;
  return BPPSA_OK;
}

bppsa_status bppsa_schedule_add_dep(bppsa_schedule *list, int64_t op, int64_t dep) {
  if (list->dep_count == list->dep_room) {
    const int64_t room = list->dep_room < 64 ? 64 : list->dep_room + list->dep_room / 2;
    int32_t *grown = bppsa_realloc(list->deps, (size_t)room * sizeof *grown);
    if (grown == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    list->deps = grown;
    list->dep_room = room;
  }
  list->ops[op].dep_count += 1;
  list->deps[list->dep_count++] = (int32_t)dep;
  return BPPSA_OK;
}

void bppsa_schedule_destroy(bppsa_schedule *list) {
  if (list != NULL) {
    bppsa_free(list->layer_costs);
    bppsa_free(list->cut);
    bppsa_free(list->ops);
    bppsa_free(list->deps);
    bppsa_free(list);
  }
}

bppsa_status bppsa_schedule_create(const char *scheme, const bppsa_schedule_config *config, bppsa_schedule **schedule) {
  BPPSA_REQUIRE(scheme != NULL && config != NULL && schedule != NULL);
  bppsa_schedule *list = NULL;
  BPPSA_TRY(bppsa_schedule_create_empty(scheme, config, &list));
  bppsa_status status = list->scheme->generate(list);
  if (status == BPPSA_OK) {
    status = bppsa_schedule_connect(list);
  }
  if (status != BPPSA_OK) {
    bppsa_schedule_destroy(list);
    return status;
  }
  list->config.profile = (bppsa_schedule_profile){0}; /* it was borrowed, and is no longer needed */
  *schedule = list;
  return BPPSA_OK;
}

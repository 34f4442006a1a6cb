/* The costs of a chain's layers, from two lists that the executor runs on one rank; and a file of all costs. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/measure/rounds.h"
#include "distributed/pipeline/chain_costs.h"
#include "distributed/pipeline/pipeline_executor.h"
#include "schedule/timed.h"

enum { LEAST_RUNS = 3, MOST_RUNS = 101, KEPT_RUNS = 512 };

/* The costs that are measured, and the operations that give them: in a list with B, or in one with I and W. */
static const struct {
  bppsa_schedule_cost cost;
  bppsa_schedule_kind kind;
  bool split;
} timed[] = {{BPPSA_COST_FORWARD, BPPSA_KIND_F, false},
             {BPPSA_COST_BACKWARD, BPPSA_KIND_B, false},
             {BPPSA_COST_STEP, BPPSA_KIND_STEP, false},
             {BPPSA_COST_INPUT_GRAD, BPPSA_KIND_I, true},
             {BPPSA_COST_WEIGHT_GRAD, BPPSA_KIND_W, true}};
static const bppsa_schedule_cost counted[] = {BPPSA_COST_ACTIVATION, BPPSA_COST_MESSAGE, BPPSA_COST_GRADIENT};
enum { TIMED = sizeof timed / sizeof timed[0], COUNTED = sizeof counted / sizeof counted[0], LISTS = 2 };

/* ---- the numbers ---- */

void bppsa_chain_costs_free(bppsa_chain_costs *costs) {
  if (costs != NULL) {
    bppsa_free(costs->memory);
    *costs = (bppsa_chain_costs){.layers = 0};
  }
}

void bppsa_chain_costs_set(const bppsa_chain_costs *costs, bppsa_schedule_config *config) {
  config->layers = costs->layers;
  config->samples = costs->samples;
  config->alpha = costs->alpha;
  config->beta = costs->beta;
  for (int cost = 0; cost < BPPSA_COST_COUNT; ++cost) {
    config->cost[cost] = costs->cost[cost];
    config->rows[cost] = costs->cost[cost] != NULL ? costs->layers : 0;
  }
}

/* An array of the costs, to be written; others may only read it. */
static double *own(bppsa_chain_costs *costs, const double *array) {
  return costs->memory + (array - costs->memory);
}

static bppsa_status make_costs(const bppsa_chain *chain, int64_t samples, bppsa_chain_costs *costs) {
  const int64_t layers = chain->layers;
  *costs = (bppsa_chain_costs){
      .layers = layers, .samples = samples, .memory = bppsa_calloc((3 * TIMED + COUNTED) * layers, sizeof *costs->memory)};
  if (costs->memory == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int i = 0; i < TIMED; ++i) { /* medians first, then both ends */
    costs->cost[timed[i].cost] = costs->memory + i * layers;
    costs->low[timed[i].cost] = costs->memory + (TIMED + i) * layers;
    costs->high[timed[i].cost] = costs->memory + (2 * TIMED + i) * layers;
  }
  for (int i = 0; i < COUNTED; ++i) {
    costs->cost[counted[i]] = costs->memory + (3 * TIMED + i) * layers;
  }
  for (int64_t l = 0; l < layers; ++l) {
    const double message = bppsa_chain_message(chain, samples, l);
    own(costs, costs->cost[BPPSA_COST_ACTIVATION])[l] = message - PIPELINE_HEADER + (double)(samples * chain->layer[l].kept);
    own(costs, costs->cost[BPPSA_COST_MESSAGE])[l] = message;
    own(costs, costs->cost[BPPSA_COST_GRADIENT])[l] = bppsa_chain_gradient(chain, l);
  }
  return BPPSA_OK;
}

/* ---- a list ---- */

static bppsa_status append(bppsa_schedule *list, bppsa_schedule_kind kind, int64_t layer, int64_t micro, int32_t version) {
  bppsa_schedule_op op = {.cost = NAN,
                          .memory_delta = NAN,
                          .stage = (int32_t)layer,
                          .layer = (int32_t)layer,
                          .layers = 1,
                          .micro = (int32_t)micro,
                          .micros = micro >= 0,
                          .part = -1,
                          .weight_version = version,
                          .group = -1,
                          .kind = (uint8_t)kind,
                          .lane = BPPSA_LANE_COMPUTE};
  bppsa_schedule_price(list, &op);
  return bppsa_schedule_append(list, &op);
}

/* One micro-batch after the other through all layers and back, then an update; again for every update. The first layer has no input
 * gradient. */
static bppsa_status append_all(bppsa_schedule *list, bool split) {
  const int64_t layers = list->config.layers, each = list->config.micro_batches;
  for (int64_t micro = 0; micro < list->micros; ++micro) {
    const int32_t version = (int32_t)(micro / each);
    for (int64_t l = 0; l < layers; ++l) {
      BPPSA_TRY(append(list, BPPSA_KIND_F, l, micro, version));
    }
    for (int64_t l = layers - 1; l >= 0; --l) {
      BPPSA_TRY(append(list, split ? BPPSA_KIND_W : BPPSA_KIND_B, l, micro, version));
      BPPSA_TRY(split && l > 0 ? append(list, BPPSA_KIND_I, l, micro, version) : BPPSA_OK);
    }
    for (int64_t l = 0; (micro + 1) % each == 0 && l < layers; ++l) {
      BPPSA_TRY(append(list, BPPSA_KIND_STEP, l, -1, version + 1));
    }
  }
  return bppsa_schedule_connect(list);
}

/* A list for one worker, with a stage for each layer. */
static bppsa_status make_list(int64_t layers, const bppsa_chain_measuring *how, bool split, bppsa_schedule **list) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  config.stages = 1;
  config.micro_batches = how->micro_batches > 0 ? how->micro_batches : 1;
  config.iterations = how->updates > 0 ? how->updates : 1;
  config.layers = config.chunks = layers;
  config.split = split ? BPPSA_SPLIT_WI : BPPSA_SPLIT_NONE;
  config.skip_first_input_grad = true;
  bppsa_schedule *made = NULL;
  BPPSA_TRY(bppsa_schedule_create_empty("interleaved", &config, &made));
  const bppsa_status status = append_all(made, split);
  if (status != BPPSA_OK) {
    bppsa_schedule_destroy(made);
    return status;
  }
  *list = made;
  return BPPSA_OK;
}

/* ---- runs of a list ---- */

typedef struct {
  bppsa_pipeline *pipeline;
  bppsa_schedule *list;
  bool split;
  int64_t runs;    /* of which the latest KEPT_RUNS are kept */
  double *seconds; /* of the operations, means over the micro-batches or updates, [TIMED][layers][KEPT_RUNS] */
  double *losses;
} watch;

static double *seconds_of(const watch *w, int i, int64_t layer) {
  return &w->seconds[(i * w->list->config.layers + layer) * KEPT_RUNS];
}

static bppsa_status open_watch(bppsa_comm *self, bppsa_chain *chain, const bppsa_chain_measuring *how, bool split, watch *w) {
  w->split = split;
  BPPSA_TRY(make_list(chain->layers, how, split, &w->list));
  const bppsa_pipeline_config config = {.schedule = w->list, .samples = how->samples, .optimizer = how->optimizer};
  BPPSA_TRY(bppsa_pipeline_create(self, chain, &config, how->values, &w->pipeline));
  w->seconds = bppsa_calloc(TIMED * chain->layers * KEPT_RUNS, sizeof *w->seconds);
  w->losses = bppsa_calloc(bppsa_pipeline_updates(w->pipeline) + 1, sizeof *w->losses);
  return w->seconds != NULL && w->losses != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

static void close_watch(watch *w) {
  bppsa_pipeline_destroy(w->pipeline);
  bppsa_schedule_destroy(w->list);
  bppsa_free(w->seconds);
  bppsa_free(w->losses);
}

static bppsa_status run_watch(watch *w, const bppsa_pipeline_data *data) {
  BPPSA_TRY(bppsa_pipeline_run(w->pipeline, data, w->losses));
  const bppsa_pipeline_event *events = bppsa_pipeline_events(w->pipeline);
  const int64_t at = w->runs++ % KEPT_RUNS;
  for (int i = 0; i < TIMED; ++i) {
    for (int64_t l = 0; l < w->list->config.layers; ++l) {
      seconds_of(w, i, l)[at] = 0;
    }
  }
  for (int64_t id = 0; id < w->list->count; ++id) {
    const bppsa_schedule_op *op = &w->list->ops[id];
    const int64_t times = op->micros > 0 ? w->list->micros : w->list->rounds;
    const double seconds = (events[id].end - events[id].start) / (double)times;
    for (int i = 0; i < TIMED; ++i) {
      if ((int)timed[i].kind == op->kind) {
        seconds_of(w, i, op->layer)[at] += seconds;
      }
    }
  }
  return BPPSA_OK;
}

/* ---- both lists ---- */

struct bppsa_chain_probe {
  bppsa_chain *chain;
  bppsa_comm *self;
  bppsa_chain_noise *noise; /* where no data is given */
  const bppsa_pipeline_data *data;
  int64_t samples;
  bool measures; /* this rank */
  watch lists[LISTS];
};

void bppsa_chain_probe_destroy(bppsa_chain_probe *probe) {
  if (probe != NULL) {
    for (int i = 0; i < LISTS; ++i) {
      close_watch(&probe->lists[i]);
    }
    bppsa_chain_noise_destroy(probe->noise);
    bppsa_comm_destroy(probe->self);
    bppsa_free(probe);
  }
}

static bppsa_status open_probe(bppsa_comm *comm, const bppsa_chain_measuring *how, bppsa_chain_probe *probe) {
  BPPSA_TRY(bppsa_comm_split(comm, bppsa_comm_rank(comm), 0, &probe->self));
  if (!probe->measures) {
    return BPPSA_OK;
  }
  if (how->data == NULL) {
    BPPSA_TRY(bppsa_chain_noise_create(probe->chain, how->samples, 1, &probe->noise));
  }
  probe->data = how->data != NULL ? how->data : bppsa_chain_noise_data(probe->noise);
  BPPSA_TRY(open_watch(probe->self, probe->chain, how, false, &probe->lists[0]));
  return open_watch(probe->self, probe->chain, how, true, &probe->lists[1]);
}

bppsa_status bppsa_chain_probe_create(bppsa_comm *comm, bppsa_chain *chain, const bppsa_chain_measuring *how,
                                      bppsa_chain_probe **probe) {
  BPPSA_REQUIRE(comm != NULL && chain != NULL && how != NULL && how->values != NULL && how->at_once >= 1 &&
                how->micro_batches >= 0 && how->updates >= 0 && probe != NULL);
  bppsa_chain_probe *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->chain = chain;
  made->samples = how->samples;
  made->measures = bppsa_comm_rank(comm) < how->at_once;
  const bppsa_status status = open_probe(comm, how, made);
  if (status != BPPSA_OK) {
    bppsa_chain_probe_destroy(made);
    return status;
  }
  *probe = made;
  return BPPSA_OK;
}

bppsa_status bppsa_chain_probe_run(bppsa_chain_probe *probe) {
  BPPSA_REQUIRE(probe != NULL);
  for (int i = 0; probe->measures && i < LISTS; ++i) {
    BPPSA_TRY(run_watch(&probe->lists[i], probe->data));
  }
  return BPPSA_OK;
}

void bppsa_chain_probe_forget(bppsa_chain_probe *probe) {
  for (int i = 0; i < LISTS; ++i) {
    probe->lists[i].runs = 0;
  }
}

void bppsa_chain_probe_times(const bppsa_chain_probe *probe, bppsa_chain_costs *costs) {
  for (int i = 0; probe->measures && i < TIMED; ++i) {
    const watch *w = &probe->lists[timed[i].split];
    const int64_t runs = w->runs < KEPT_RUNS ? w->runs : KEPT_RUNS;
    double kept[KEPT_RUNS]; /* sorted below */
    for (int64_t l = 0; runs > 0 && l < costs->layers; ++l) {
      memcpy(kept, seconds_of(w, i, l), (size_t)runs * sizeof *kept);
      const bppsa_spread found = bppsa_spread_of(runs, kept);
      own(costs, costs->cost[timed[i].cost])[l] = found.median;
      own(costs, costs->low[timed[i].cost])[l] = found.low;
      own(costs, costs->high[timed[i].cost])[l] = found.high;
    }
  }
}

/* ---- measuring at one go ---- */

static bppsa_status repeat(bppsa_chain_probe *probe, const bppsa_chain_measuring *how) {
  const int64_t asked = how->repeats, most = asked > 0 && asked < MOST_RUNS ? asked : MOST_RUNS;
  BPPSA_TRY(bppsa_chain_probe_run(probe)); /* warms up */
  bppsa_chain_probe_forget(probe);
  const double start = bppsa_now();
  for (int64_t runs = 0; probe->measures && runs < most; ++runs) {
    if (asked == 0 && runs >= LEAST_RUNS && bppsa_now() - start >= LISTS * how->budget_s) {
      break;
    }
    BPPSA_TRY(bppsa_chain_probe_run(probe));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_chain_probe_measure(bppsa_comm *comm, bppsa_chain_probe *probe, const bppsa_chain_measuring *how,
                                       bppsa_chain_costs *costs) {
  BPPSA_REQUIRE(comm != NULL && probe != NULL && how != NULL && how->repeats >= 0 && costs != NULL);
  bppsa_chain_costs made;
  BPPSA_TRY(make_costs(probe->chain, probe->samples, &made));
  const int64_t count = 3 * TIMED * made.layers;
  const bppsa_view view = bppsa_view_make(made.memory, BPPSA_F64, 1, &count);
  bppsa_status status = bppsa_comm_barrier(comm);
  status = status == BPPSA_OK ? repeat(probe, how) : status;
  bppsa_chain_probe_times(probe, &made);
  status = status == BPPSA_OK ? bppsa_comm_broadcast(comm, 0, &view) : status;
  if (status != BPPSA_OK) {
    bppsa_chain_costs_free(&made);
    return status;
  }
  *costs = made;
  return BPPSA_OK;
}

bppsa_status bppsa_chain_measure(bppsa_comm *comm, bppsa_chain *chain, const bppsa_chain_measuring *how,
                                 bppsa_chain_costs *costs) {
  bppsa_chain_probe *probe = NULL;
  BPPSA_TRY(bppsa_chain_probe_create(comm, chain, how, &probe));
  const bppsa_status status = bppsa_chain_probe_measure(comm, probe, how, costs);
  bppsa_chain_probe_destroy(probe);
  return status;
}

/* ---- all of it ---- */

/* sums: size L, or NULL. */
static bppsa_status write_file(const bppsa_chain_costs *costs, const double *sums, char **text) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_chain_costs_set(costs, &config);
  config.cost[BPPSA_COST_SYNC] = sums;
  config.rows[BPPSA_COST_SYNC] = sums != NULL ? costs->layers : 0;
  bppsa_text written = {0};
  const bppsa_status status = bppsa_schedule_costs_write(&config, &written);
  if (status != BPPSA_OK) {
    bppsa_text_free(&written);
    return status;
  }
  *text = written.text;
  return BPPSA_OK;
}

bppsa_status bppsa_chain_measure_file(bppsa_comm *comm, bppsa_chain *chain, const bppsa_chain_measuring *how, char **text) {
  BPPSA_REQUIRE(comm != NULL && chain != NULL && text != NULL);
  const int64_t ranks = bppsa_comm_size(comm);
  char *made = NULL;
  double *sums = bppsa_calloc(chain->layers, sizeof *sums);
  bppsa_chain_costs costs = {.layers = 0};
  bppsa_status status = sums != NULL ? bppsa_chain_measure(comm, chain, how, &costs) : BPPSA_ERR_MEMORY;
  status = status == BPPSA_OK ? bppsa_chain_measure_link(comm, &costs.alpha, &costs.beta) : status;
  status = status == BPPSA_OK ? bppsa_chain_measure_sync(comm, chain, ranks, sums) : status;
  status = status == BPPSA_OK && bppsa_comm_rank(comm) == 0 ? write_file(&costs, ranks == 2 ? sums : NULL, &made) : status;
  bppsa_chain_costs_free(&costs);
  bppsa_free(sums);
  if (status == BPPSA_OK) {
    *text = made;
  }
  return status;
}

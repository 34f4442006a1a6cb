/* The table of schemes, and the configurations that each accepts. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "schedule/schedule_internal.h"

#define CHIMERA "Li and Hoefler 2021 (Chimera)"
#define OOO "Oh et al. 2022 (ooo-backprop)"
#define SPECTRAIN "Chen et al. 2018 (SpecTrain)"
#define BPPSA "Wang et al. 2020 (BPPSA), section 3.6"

/* The options that kinds of schemes take. ORDERED: pipelines that decide themselves when I and W run. */
enum {
  ORDERED = TAKES_STAGES | TAKES_MICRO_BATCHES | TAKES_GRADIENTS | TAKES_CUT,
  PIPELINE = ORDERED | TAKES_SYNC | TAKES_SPLIT | TAKES_RECOMPUTE,
  COPIES = TAKES_STAGES | TAKES_GRADIENTS | TAKES_SPLIT,
  SCAN = TAKES_STAGES | TAKES_ELEMENTS
};

static const bppsa_schedule_scheme schemes[] = {
    {.id = "model-parallel",
     .summary = "one worker at a time, stage after stage",
     .paper = "Chen et al. 2018, section 2.2",
     .takes = PIPELINE | TAKES_RECOMPUTE_SPLIT,
     .generate = bppsa_schedule_model_parallel},
    {.id = "gpipe",
     .summary = "all forward passes, then all backward passes, then a flush",
     .paper = "Huang et al. 2019; " CHIMERA,
     .takes = PIPELINE | TAKES_RECOMPUTE_SPLIT,
     .generate = bppsa_schedule_gpipe},
    {.id = "1f1b",
     .summary = "DAPPLE: forward and backward passes in turn, then a flush",
     .paper = "Fan et al. 2021; " CHIMERA,
     .takes = PIPELINE | TAKES_RECOMPUTE_SPLIT,
     .generate = bppsa_schedule_1f1b},
    {.id = "interleaved",
     .summary = "1F1B with several stages on each worker, then a flush",
     .paper = "Narayanan et al. 2021",
     .takes = PIPELINE | TAKES_CHUNKS,
     .generate = bppsa_schedule_interleaved},
    {.id = "gems",
     .summary = "two replicas in opposite directions, one micro-batch at a time",
     .paper = "Jain et al. 2020; " CHIMERA,
     .pipelines = 2,
     .takes = PIPELINE,
     .generate = bppsa_schedule_gems},
    {.id = "pipedream",
     .summary = "1F1B without a flush, an update after each micro-batch, stashed weights",
     .paper = "Narayanan et al. 2019; " CHIMERA,
     .weights = BPPSA_WEIGHTS_STASHED,
     .takes = PIPELINE,
     .generate = bppsa_schedule_asynchronous},
    {.id = "2bw",
     .summary = "PipeDream-2BW: 1F1B without a flush, two versions of the weights",
     .paper = "Narayanan et al. 2020; " CHIMERA,
     .weights = BPPSA_WEIGHTS_BUFFERED,
     .takes = PIPELINE,
     .generate = bppsa_schedule_asynchronous},
    {.id = "vanilla",
     .summary = "1F1B without a flush, each pass with the latest weights",
     .paper = SPECTRAIN,
     .weights = BPPSA_WEIGHTS_LATEST,
     .takes = PIPELINE,
     .generate = bppsa_schedule_asynchronous},
    {.id = "spectrain",
     .summary = "1F1B without a flush, each pass with predicted weights",
     .paper = SPECTRAIN,
     .weights = BPPSA_WEIGHTS_PREDICTED,
     .takes = PIPELINE,
     .generate = bppsa_schedule_asynchronous},
    {.id = "chimera",
     .summary = "f pipelines down and f up over the same workers, then a flush",
     .paper = CHIMERA,
     .pipelines = 2,
     .takes = PIPELINE | TAKES_REPLICAS,
     .generate = bppsa_schedule_chimera},
    {.id = "zb-h1",
     .summary = "1F1B with weight gradients in the bubbles, then a flush",
     .paper = "Qi et al. 2023 (zero bubble)",
     .takes = ORDERED | TAKES_SYNC,
     .generate = bppsa_schedule_zb_h1},
    {.id = "fast-forward",
     .summary = "a pipeline that computes input gradients before weight gradients",
     .paper = OOO ", section 5.2",
     .takes = ORDERED,
     .generate = bppsa_schedule_fast_forward},
    {.id = "modulo",
     .summary = "fast-forward with layer l on worker l mod D",
     .paper = OOO ", section 5.2",
     .takes = ORDERED & ~TAKES_CUT,
     .generate = bppsa_schedule_modulo},
    {.id = "wait-free",
     .summary = "data parallel, gradients synchronised in the order in which they are ready",
     .paper = OOO ", figure 4(a)",
     .data_parallel = true,
     .takes = COPIES,
     .generate = bppsa_schedule_wait_free},
    {.id = "priority",
     .summary = "wait-free, but the first layers' gradients go before others",
     .paper = OOO ", figure 4(b)",
     .data_parallel = true,
     .takes = COPIES,
     .generate = bppsa_schedule_prioritised},
    {.id = "reverse-first-k",
     .summary = "wait-free, but the first k weight gradients come last and in reverse",
     .paper = OOO ", algorithm 2",
     .data_parallel = true,
     .takes = COPIES | TAKES_REVERSE,
     .generate = bppsa_schedule_reverse_first_k},
    {.id = "multi-stream",
     .summary = "one device with weight gradients in a second stream",
     .paper = OOO ", algorithm 1",
     .data_parallel = true,
     .takes = TAKES_GRADIENTS,
     .generate = bppsa_schedule_multi_stream},
    {.id = "scan-linear",
     .summary = "back-propagation through time, worker after worker",
     .paper = BPPSA,
     .scan = true,
     .takes = SCAN,
     .generate = bppsa_schedule_scan_linear},
    {.id = "scan-blelloch",
     .summary = "each worker's product, a Blelloch scan over workers",
     .paper = BPPSA,
     .scan = true,
     .takes = SCAN,
     .generate = bppsa_schedule_scan_blelloch},
    {.id = "scan-chunked",
     .summary = "each worker's product, then the gradient is carried through them",
     .paper = BPPSA,
     .scan = true,
     .takes = SCAN,
     .generate = bppsa_schedule_scan_chunked},
};

const bppsa_schedule_scheme *bppsa_schedule_schemes(int64_t *count) {
  *count = sizeof schemes / sizeof schemes[0];
  return schemes;
}

const bppsa_schedule_scheme *bppsa_schedule_find(const char *id) {
  for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; ++i) {
    if (strcmp(schemes[i].id, id) == 0) {
      return &schemes[i];
    }
  }
  return NULL;
}

/* ---- what a configuration may ask for ---- */

#define MOST 1000000 /* limit of every count */
#define MOST_PASSES (1 << 23)

static bppsa_status check_counts(const bppsa_schedule_config *c) {
  const struct {
    const char *name;
    int64_t value, least;
  } counts[] = {
      {"stages", c->stages, 1},     {"micro-batches", c->micro_batches, 1},
      {"width", c->width, 1},       {"layers", c->layers, 1},
      {"chunks", c->chunks, 1},     {"iterations", c->iterations, 1},
      {"elements", c->elements, 2}, {"reverse-k", c->reverse, -1},
      {"replicas", c->replicas, 0}, {"stages x width", c->stages > MOST || c->width > MOST ? MOST + 1 : c->stages * c->width, 1}};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
    if (counts[i].value < counts[i].least || counts[i].value > MOST) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %" PRId64 ", expected %" PRId64 " to %d", counts[i].name, counts[i].value,
                        counts[i].least, MOST);
    }
  }
  return BPPSA_OK;
}

static bppsa_status check_cost(const bppsa_schedule_config *c, int cost, double value, int64_t row) {
  const bool calculated = (cost == BPPSA_COST_SYNC || cost == BPPSA_COST_BACKWARD) && c->cost[cost] == NULL;
  if (value <= BPPSA_SCHEDULE_MOST_COST && (value >= 0 || (calculated && isfinite(value)))) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s, row %" PRId64 ": %g, expected a number, 0 or more and at most %g",
                    bppsa_schedule_cost_name(cost), row, value, BPPSA_SCHEDULE_MOST_COST);
}

static bppsa_status check_costs(const bppsa_schedule_config *c) {
  for (int cost = 0; cost < BPPSA_COST_COUNT; ++cost) {
    for (int64_t row = 0; row < (c->cost[cost] != NULL ? c->rows[cost] : 1); ++row) {
      BPPSA_TRY(check_cost(c, cost, c->cost[cost] != NULL ? c->cost[cost][row] : c->uniform[cost], row));
    }
  }
  const double machine[] = {c->alpha, c->beta, c->issue_overhead, c->memory_cap};
  static const char *const names[] = {"alpha", "beta", "issue overhead", "memory cap"};
  for (int i = 0; i < 4; ++i) {
    if (!(machine[i] >= 0 && machine[i] <= BPPSA_SCHEDULE_MOST_COST)) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %g, expected a number, 0 or more and at most %g", names[i], machine[i],
                        BPPSA_SCHEDULE_MOST_COST);
    }
  }
  return BPPSA_OK;
}

static bppsa_status check_chimera(const bppsa_schedule_config *c) {
  const int64_t d = c->stages, n = c->micro_batches, pipelines = c->replicas;
  if (d % 2 != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "stages: %" PRId64 " for chimera, expected an even number (pipelines in both directions)", d);
  }
  if (pipelines % 2 != 0 || pipelines > d || d % pipelines != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "replicas: %" PRId64 " for chimera, expected 2f pipelines with f a divisor of %" PRId64 ", half the stages",
                      pipelines, d / 2);
  }
  if (c->scale == BPPSA_SCALE_DOUBLING && n < 2 * d) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "doubling: %" PRId64 " micro-batches, expected at least 2D = %" PRId64, n, 2 * d);
  }
  return BPPSA_OK;
}

/* Checks what only some schemes ask for. */
static bppsa_status check_scheme(const bppsa_schedule *list) {
  const bppsa_schedule_config *c = &list->config;
  const bppsa_schedule_scheme *scheme = list->scheme;
  const char *id = scheme->id;
  if ((scheme->takes & TAKES_REPLICAS) != 0) {
    BPPSA_TRY(check_chimera(c));
  }
  if (c->recompute && scheme->data_parallel) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "recompute for %s, expected a pipeline", id);
  }
  if ((scheme->takes & TAKES_CHUNKS) != 0 && c->micro_batches % c->stages != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "micro-batches: %" PRId64 " for interleaved, expected a multiple of the %" PRId64
                      " stages (Narayanan 2021)",
                      c->micro_batches, c->stages);
  }
  if (scheme->weights == BPPSA_WEIGHTS_BUFFERED && c->micro_batches < c->stages) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "micro-batches: %" PRId64 " for 2bw, expected at least the %" PRId64
                      " stages (two versions are too few otherwise)",
                      c->micro_batches, c->stages);
  }
  if (c->scale != BPPSA_SCALE_DIRECT && (scheme->takes & TAKES_REPLICAS) == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "doubling or halving for %s, expected chimera", id);
  }
  if (c->scale != BPPSA_SCALE_DIRECT && c->split != BPPSA_SPLIT_NONE) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "doubling or halving beside a split backward pass, expected one of the two");
  }
  if (c->recompute && c->split != BPPSA_SPLIT_NONE && (scheme->takes & TAKES_RECOMPUTE_SPLIT) == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "recompute beside a split backward pass for %s, expected gpipe, 1f1b or model-parallel, or one B", id);
  }
  if (c->window == BPPSA_WINDOW_BACKWARD_FORWARD &&
      (c->iterations > 1 || scheme->scan || scheme->weights != BPPSA_WEIGHTS_SYNCHRONOUS)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "window backward-forward for %s, expected one iteration of a synchronous scheme", id);
  }
  if (scheme->scan && c->elements - 1 < list->workers) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "elements: %" PRId64 " for %s over %" PRId64 " workers, expected a Jacobian a worker: %" PRId64 " or more",
                      c->elements, id, list->workers, list->workers + 1);
  }
  const int64_t stages = scheme->data_parallel || scheme->scan ? 1 : list->stages;
  return c->layers >= stages
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "layers: %" PRId64 " for %s over %" PRId64 " stages, expected at least as many layers as stages",
                          c->layers, id, stages);
}

/* ---- an empty list ---- */

int64_t bppsa_schedule_layers(const bppsa_schedule_scheme *scheme, const bppsa_schedule_config *c) {
  const int64_t chunks = (scheme->takes & TAKES_CHUNKS) != 0 ? c->chunks : 1;
  return c->layers > 0 ? c->layers : c->stages <= MOST && chunks <= MOST ? c->stages * chunks : MOST + 1;
}

static void fill_in(bppsa_schedule *list) {
  bppsa_schedule_config *c = &list->config;
  const bppsa_schedule_scheme *scheme = list->scheme;
  c->chunks = (scheme->takes & TAKES_CHUNKS) != 0 ? c->chunks : 1;
  c->layers = bppsa_schedule_layers(scheme, c);
  if ((scheme->takes & TAKES_REPLICAS) == 0 || c->replicas <= 0) {
    c->replicas = scheme->pipelines > 0 ? scheme->pipelines : 1;
  }
  if ((scheme->takes & TAKES_SPLIT) == 0 || (scheme->data_parallel && c->split == BPPSA_SPLIT_NONE)) {
    c->split = scheme->scan ? BPPSA_SPLIT_NONE : BPPSA_SPLIT_IW;
  }
  if ((scheme->takes & TAKES_STAGES) == 0) {
    c->stages = c->width = 1; /* one device */
  }
  if (scheme->data_parallel || scheme->scan) {
    c->micro_batches = 1;
    c->iterations = 1;
  }
}

/* Makes a list without operations: the scheme, the configuration with its defaults, the geometry. */
static bppsa_status begin(const char *scheme, const bppsa_schedule_config *config, bppsa_schedule *made) {
  *made = (bppsa_schedule){.scheme = bppsa_schedule_find(scheme), .config = *config};
  bppsa_schedule_config *c = &made->config;
  if (made->scheme == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule: unknown scheme '%s', expected one of bppsa_schedule_schemes", scheme);
  }
  fill_in(made);
  BPPSA_TRY(check_counts(c));
  made->workers = c->stages * c->width;
  made->stages = made->scheme->scan || (made->scheme->takes & TAKES_CUT) != 0 ? c->stages * c->chunks : c->layers;
  made->replicas = made->scheme->data_parallel ? made->workers : made->scheme->scan ? 1 : c->replicas * c->width;
  made->rounds = c->iterations + (c->window == BPPSA_WINDOW_BACKWARD_FORWARD);
  made->micros = c->micro_batches * made->rounds * (made->scheme->data_parallel ? made->replicas : c->width);
  return BPPSA_OK;
}

/* ---- rows of costs ---- */

static bppsa_status check_profile(const bppsa_schedule *list, const bppsa_schedule_profile *profile) {
  const int64_t layers = list->config.layers;
  if ((list->scheme->takes & TAKES_STAGES) != 0 || profile->regions == 0) {
    return BPPSA_OK;
  }
  if (profile->regions < 0 || profile->regions > layers) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "profile: %" PRId64 " regions, expected 1 to %" PRId64 ", at most one for each layer",
                      profile->regions, layers);
  }
  return profile->layers == layers
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "profile: %" PRId64 " columns, expected %" PRId64 ", one for each layer",
                          profile->layers, layers);
}

/* Checks the rows of costs. The list has defaults filled in; `config` is the user's, with the stages that the user knows. */
static bppsa_status check_rows(const bppsa_schedule *list, const bppsa_schedule_config *config) {
  const int64_t layers = list->config.layers, stages = config->stages < layers ? config->stages : layers;
  for (int cost = 0; cost < BPPSA_COST_COUNT; ++cost) {
    const int64_t rows = config->rows[cost];
    if (config->cost[cost] != NULL && rows != layers && rows != stages) {
      char other[64] = "";
      if (stages != layers) {
        snprintf(other, sizeof other, ", or %" PRId64 ", one for each stage", stages);
      }
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %" PRId64 " rows, expected %" PRId64 ", one for each layer%s",
                        bppsa_schedule_cost_name(cost), rows, layers, other);
    }
  }
  return check_profile(list, &config->profile);
}

bppsa_status bppsa_schedule_check_rows(const char *scheme, const bppsa_schedule_config *config) {
  BPPSA_REQUIRE(scheme != NULL && config != NULL);
  bppsa_schedule made;
  BPPSA_TRY(begin(scheme, config, &made));
  return check_rows(&made, config);
}

/* Gives every layer its cost: its own row, or its share of its stage's row. */
static bppsa_status spread_costs(bppsa_schedule *list) {
  bppsa_schedule_config *c = &list->config;
  int64_t arrays = 0;
  for (int cost = 0; cost < BPPSA_COST_COUNT; ++cost) {
    arrays += c->cost[cost] != NULL;
  }
  if (arrays == 0) {
    return BPPSA_OK;
  }
  list->layer_costs = bppsa_calloc(arrays * c->layers, sizeof *list->layer_costs);
  if (list->layer_costs == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  double *each = list->layer_costs;
  for (int cost = 0; cost < BPPSA_COST_COUNT; ++cost) {
    if (c->cost[cost] == NULL) {
      continue;
    }
    for (int64_t row = 0; row < c->rows[cost]; ++row) {
      const int64_t first = bppsa_cut(c->layers, c->rows[cost], row), last = bppsa_cut(c->layers, c->rows[cost], row + 1);
      for (int64_t layer = first; layer < last; ++layer) {
        each[layer] = c->cost[cost][row] / (double)(last - first);
      }
    }
    c->cost[cost] = each;
    c->rows[cost] = c->layers;
    each += c->layers;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_schedule_create_empty(const char *scheme, const bppsa_schedule_config *config, bppsa_schedule **schedule) {
  BPPSA_REQUIRE(scheme != NULL && config != NULL && schedule != NULL);
  bppsa_schedule made;
  bppsa_schedule_config *c = &made.config;
  BPPSA_TRY(begin(scheme, config, &made));
  BPPSA_TRY(check_rows(&made, config));
  BPPSA_TRY(check_costs(c));
  BPPSA_TRY(check_scheme(&made));
  if (made.micros > MOST_PASSES / made.stages || made.replicas > INT32_MAX / c->layers) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "schedule: %" PRId64 " micro-batches through %" PRId64 " stages, expected fewer operations", made.micros,
                      made.stages);
  }
  BPPSA_TRY(bppsa_schedule_keep_cut(&made));
  const bppsa_status spread = spread_costs(&made);
  if (spread != BPPSA_OK) {
    bppsa_free(made.cut);
    return spread;
  }
  for (int64_t layer = 0; layer < c->layers; ++layer) {
    made.activations += bppsa_schedule_cost_of(c, BPPSA_COST_ACTIVATION, layer);
  }
  bppsa_schedule *list = bppsa_alloc(sizeof *list);
  if (list == NULL) {
    bppsa_free(made.layer_costs);
    bppsa_free(made.cut);
    return BPPSA_ERR_MEMORY;
  }
  *list = made;
  *schedule = list;
  return BPPSA_OK;
}

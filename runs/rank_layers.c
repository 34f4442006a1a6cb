#include "runs/rank_layers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
  const char *word;
  bppsa_layer_strategy strategy;
  bool groups;
} words[] = {{"spatial", BPPSA_LAYERS_SPATIAL, false},
             {"filter", BPPSA_LAYERS_FILTER, false},
             {"channel", BPPSA_LAYERS_CHANNEL, false},
             {"data+spatial", BPPSA_LAYERS_SPATIAL, true},
             {"data+filter", BPPSA_LAYERS_FILTER, true}};

enum { WORDS = sizeof words / sizeof *words };

const char *bppsa_rank_layers_word(int32_t index) {
  return index >= 0 && index < WORDS ? words[index].word : NULL;
}

void bppsa_rank_layers_find(const char *split, bppsa_rank_layers *layers) {
  *layers = (bppsa_rank_layers){.split = NULL};
  for (int i = 0; i < WORDS; ++i) {
    if (strcmp(split, words[i].word) == 0) {
      layers->split = words[i].word;
      layers->groups = words[i].groups;
      layers->config.strategy = words[i].strategy;
    }
  }
}

/* ---- what they cannot do ---- */

static bppsa_status refuse(const bppsa_rank_layers *l, const char *option, const char *why, const char *expected) {
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside --split %s, %s, expected %s", option, l->split, why, expected);
}

static bppsa_status check(const bppsa_rank_layers *l, const bppsa_network *network, const bppsa_device *device, int64_t ranks,
                          const bppsa_network_config *config) {
  if (network->kind->family->steps) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--split: %s for %s, which has no images, expected batch or time", l->split,
                      network->name);
  }
  if (bppsa_device_get_kind(device) == BPPSA_CUDA) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "--device: %s beside --split %s, whose ranks compute on processors, expected cpu",
                      bppsa_device_get_name(device), l->split);
  }
  if (network->mask_count > 0) {
    return refuse(l, network->mask != NULL ? "--mask" : "--weights with masks", "whose ranks have parts of whole weights",
                  "none");
  }
  if (config->method.backward == BPPSA_BACKWARD_SCAN) {
    return refuse(l, "--backward scan", "whose ranks propagate back layer by layer", "--backward bp");
  }
  return l->config.group > ranks || ranks % l->config.group != 0
             ? bppsa_fail(BPPSA_ERR_ARGUMENT, "--group: %" PRId64 " ranks, expected a divisor of the %" PRId64 " ranks",
                          l->config.group, ranks)
             : BPPSA_OK;
}

/* ---- the request ---- */

static int64_t default_group(int64_t ranks) {
  int64_t group = 1;
  for (int64_t size = 1; size * size <= ranks; ++size) {
    group = ranks % size == 0 ? size : group;
  }
  return group;
}

bppsa_status bppsa_rank_layers_make(bppsa_rank_layers *layers, const bppsa_network *network, const bppsa_train_config *train,
                                    const bppsa_device *device, int64_t ranks, bppsa_network_config *config) {
  bppsa_rank_layers l = *layers;
  bppsa_layer_plan *plan = NULL;
  l.config.group = !l.groups ? ranks : l.config.group > 0 ? l.config.group : default_group(ranks);
  l.config.batch = train->batch;
  l.config.optimizer = train->optimizer;
  l.config.clip_norm = train->clip_norm;
  BPPSA_TRY(check(&l, network, device, ranks, config));
  if (ranks / l.config.group > train->batch) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--ranks: %" PRId64 " groups of %" PRId64 ", more than the %" PRId64
                      " samples of a batch, expected at most that many",
                      ranks / l.config.group, l.config.group, train->batch);
  }
  const bppsa_status status = bppsa_layer_plan_create(&network->layers, l.config.strategy, l.config.group, &plan);
  if (status != BPPSA_OK) {
    return bppsa_fail_prefix(status, "--split");
  }
  memcpy(l.grid, plan->grid, sizeof l.grid);
  bppsa_layer_plan_destroy(plan);
  config->batch = bppsa_layer_train_samples(&l.config, ranks);
  config->method.backward = BPPSA_BACKWARD_BP;
  *layers = l;
  return BPPSA_OK;
}

/* ---- words and numbers ---- */

void bppsa_rank_layers_text(const bppsa_rank_layers *l, int64_t ranks, bppsa_text *text) {
  bppsa_text_add(text, "%s", l->split);
  if (l->groups) {
    bppsa_text_add(text, ", %" PRId64 " group%s of %" PRId64, ranks / l->config.group, ranks > l->config.group ? "s" : "",
                   l->config.group);
  }
  if (l->config.strategy == BPPSA_LAYERS_SPATIAL) {
    bppsa_text_add(text, ", tiles %" PRId64 " x %" PRId64, l->grid[0], l->grid[1]);
  }
}

static json_t *phases_json(const bppsa_layer_train *train, int64_t steps) {
  const double *seconds = bppsa_layer_split_seconds(bppsa_layer_train_part(train));
  json_t *object = json_object();
  bool ok = object != NULL;
  for (int i = 0; i < BPPSA_LAYER_PHASES; ++i) {
    char name[32];
    snprintf(name, sizeof name, "%s_s", bppsa_layer_phase_name((bppsa_layer_phase)i));
    ok = ok && bppsa_json_put_real(object, name, seconds[i] / (double)steps);
  }
  return bppsa_json_finish(object, ok);
}

bool bppsa_rank_layers_put(json_t *object, const bppsa_rank_layers *l, const bppsa_layer_train *train, int64_t steps) {
  const bool tiles = l->config.strategy == BPPSA_LAYERS_SPATIAL;
  bool ok = bppsa_json_put_text(object, "split", l->split);
  ok = ok && bppsa_json_put_integer(object, "group", l->config.group);
  ok = ok && (tiles ? bppsa_json_put_shape(object, "grid", 2, l->grid) : bppsa_json_put(object, "grid", json_null()));
  return ok && (steps == 0 || bppsa_json_put(object, "phases", phases_json(train, steps)));
}

/* What the executor of schedules reads from the list before it runs. */
#include "distributed/pipeline/pipeline_plan.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"

int64_t bppsa_pipeline_parts(const bppsa_schedule *list) {
  return list->config.scale == BPPSA_SCALE_HALVING ? 2 : 1;
}

/* ---- what it can execute ---- */

static bppsa_status unsupported(const bppsa_schedule *list, const char *what) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "schedule %s: the executor has no %s", list->scheme->id, what);
}

static bppsa_status check_list(const bppsa_schedule *list) {
  if (list->scheme->scan) {
    return unsupported(list, "scans, expected a scheme with layers and micro-batches");
  }
  if (list->rounds != list->config.iterations) {
    return unsupported(list, "window from backward to forward, expected whole iterations");
  }
  for (int64_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    if (op->kind == BPPSA_KIND_COLLECTIVE || op->kind == BPPSA_KIND_HALO) {
      return unsupported(list, "collectives inside layers and no exchange of borders");
    }
  }
  return bppsa_schedule_validate(list);
}

static bppsa_status check(const pipeline_plan *plan) {
  const bppsa_pipeline_config *config = &plan->config;
  const bppsa_chain *chain = plan->chain;
  const bppsa_schedule *list = plan->list;
  if (list->config.layers != chain->layers) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule %s: %" PRId64 " layers, expected the network's %" PRId64, list->scheme->id,
                      list->config.layers, chain->layers);
  }
  const int64_t parts = plan->parts;
  if (config->samples < 1 || config->samples % parts != 0 || config->samples / parts > chain->batch) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "pipeline: micro-batches of %" PRId64 " samples, expected %s1 .. %" PRId64,
                      config->samples, parts > 1 ? "an even number in " : "", parts * chain->batch);
  }
  const int64_t most = (list->workers + plan->ranks - 1) / plan->ranks, tags = chain->layers + 2 * most * most;
  if (config->tag < 0 || config->tag > BPPSA_COMM_MAX_TAG || tags > BPPSA_COMM_MAX_TAG - config->tag) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "pipeline: %" PRId64 " tags from %d, expected at most %d of them; more ranks need fewer", tags, config->tag,
                      BPPSA_COMM_MAX_TAG);
  }
  for (int64_t layer = 0; layer < chain->layers; ++layer) {
    if (chain->layer[layer].parameters > PIPELINE_MOST_PARAMETERS) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "pipeline: layer %s has %" PRId64 " parameters, expected at most %d",
                        chain->layer[layer].name, chain->layer[layer].parameters, PIPELINE_MOST_PARAMETERS);
    }
  }
  return check_list(list);
}

/* ---- what the list says ---- */

/* Finds the update that a micro-batch's gradients go into, and its number among that update's micro-batches. */
static bppsa_status find_updates(pipeline_plan *plan) {
  const bppsa_schedule *list = plan->list;
  int64_t *steps = bppsa_calloc(list->replicas * plan->layers, sizeof *steps), *count = NULL;
  if (steps == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
      int64_t *step = &steps[op->replica * plan->layers + layer];
      if (op->kind == BPPSA_KIND_STEP) {
        plan->updates = ++*step > plan->updates ? *step : plan->updates;
      } else if (op->kind == BPPSA_KIND_W || op->kind == BPPSA_KIND_B) {
        const pipeline_span span = pipeline_span_of(plan, op);
        for (int64_t m = span.first; m < span.end; ++m) {
          plan->micro[m].update = *step;
        }
      }
    }
  }
  bppsa_free(steps);
  count = bppsa_calloc(plan->updates + 1, sizeof *count);
  if (count == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t m = 0; m < plan->micros; ++m) {
    plan->micro[m].block = count[plan->micro[m].update]++;
  }
  for (int64_t m = 0; m < plan->micros; ++m) {
    plan->micro[m].blocks = count[plan->micro[m].update];
  }
  bppsa_free(count);
  return BPPSA_OK;
}

/* Finds the worker that holds each layer, and how many micro-batches the largest transfer has. */
static void find_holders(pipeline_plan *plan) {
  memset(plan->holder, 0xff, (size_t)(plan->list->replicas * plan->layers) * sizeof *plan->holder); /* -1 */
  for (int64_t id = 0; id < plan->list->count; ++id) {
    const bppsa_schedule_op *op = &plan->list->ops[id];
    const bool holds =
        op->kind == BPPSA_KIND_F || op->kind == BPPSA_KIND_STEP; /* a pipeline without micro-batches has STEP alone */
    const pipeline_span span = pipeline_span_of(plan, op);
    if (op->kind == BPPSA_KIND_SEND && span.end - span.first > plan->most_micros) {
      plan->most_micros = span.end - span.first;
    }
    for (int64_t layer = op->layer; holds && layer < op->layer + op->layers; ++layer) {
      plan->holder[op->replica * plan->layers + layer] = op->worker;
    }
  }
}

/* NCCL runs the messages of a rank one after the other, in the order in which they begin, and a message ends when both ranks have
 * come to it. The list is in an order in which it can run (schedule/connect.c). So every rank begins its messages in the order of
 * the list, whichever of its workers sends or receives them: then the first message that is not over can always go on. */
static bppsa_status find_turns(pipeline_plan *plan) {
  int64_t turns = 0;
  if (bppsa_comm_get_transport(plan->comm) != BPPSA_COMM_NCCL) {
    return BPPSA_OK;
  }
  plan->turn = bppsa_alloc((size_t)plan->list->count * sizeof *plan->turn);
  if (plan->turn == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memset(plan->turn, 0xff, (size_t)plan->list->count * sizeof *plan->turn); /* -1 */
  for (int64_t id = 0; id < plan->list->count; ++id) {
    const bppsa_schedule_op *op = &plan->list->ops[id];
    if (op->kind != BPPSA_KIND_SEND) {
      continue;
    }
    const int32_t recv = pipeline_partner_of(plan, id);
    const int64_t from = pipeline_rank_of(plan, op->worker), to = pipeline_rank_of(plan, plan->list->ops[recv].worker);
    if (from != to && (from == plan->rank || to == plan->rank)) {
      plan->turn[id] = plan->turn[recv] = turns++;
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_plan_make(pipeline_plan *plan) {
  const bppsa_schedule *list = plan->list;
  plan->rank = bppsa_comm_rank(plan->comm);
  plan->ranks = bppsa_comm_size(plan->comm);
  plan->workers = (list->workers - plan->rank + plan->ranks - 1) / plan->ranks;
  plan->parts = bppsa_pipeline_parts(list);
  plan->micros = list->micros * plan->parts;
  plan->samples = plan->config.samples / plan->parts;
  plan->layers = plan->chain->layers;
  BPPSA_TRY(check(plan));
  plan->micro = bppsa_calloc(plan->micros, sizeof *plan->micro);
  plan->holder = bppsa_calloc(list->replicas * plan->layers, sizeof *plan->holder);
  if (plan->micro == NULL || plan->holder == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(find_updates(plan));
  find_holders(plan);
  BPPSA_TRY(bppsa_schedule_pair(list, NULL, &plan->send, &plan->recv));
  return find_turns(plan);
}

void bppsa_pipeline_plan_free(pipeline_plan *plan) {
  void *const blocks[] = {plan->micro, plan->holder, plan->send, plan->recv, plan->turn};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

/* ---- arrays of a layer's parameters ---- */

static int64_t padded(const bppsa_view *view) {
  return ((int64_t)bppsa_view_bytes(view) + BPPSA_ALIGNMENT - 1) / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT;
}

static const bppsa_parameter *parameter_of(const pipeline_plan *plan, int64_t layer, int64_t i) {
  return &plan->chain->parameters[plan->chain->layer[layer].first_parameter + i];
}

int64_t bppsa_pipeline_layer_bytes(const pipeline_plan *plan, int64_t layer) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < plan->chain->layer[layer].parameters; ++i) {
    bytes += padded(&parameter_of(plan, layer, i)->value);
  }
  return bytes;
}

void bppsa_pipeline_lay_out(const pipeline_plan *plan, int64_t layer, void *memory, void *arrays[PIPELINE_MOST_PARAMETERS]) {
  char *at = memory;
  for (int64_t i = 0; i < plan->chain->layer[layer].parameters; ++i) {
    arrays[i] = at;
    at += padded(&parameter_of(plan, layer, i)->value);
  }
}

bppsa_status bppsa_pipeline_make_array(const pipeline_plan *plan, int64_t bytes, void **array) {
  BPPSA_TRY(bppsa_memory_alloc(plan->chain->device, bytes + 1, array));
  return bppsa_memory_clear(plan->chain->device, *array, bytes + 1);
}

#include "distributed/pipeline/pipeline_arrays.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"

/* ---- pools ---- */

static void forget_uses(const pipeline_pool *pool, pipeline_block *block) {
  memset(block->uses, 0xff, (size_t)(pool->streams + 1) * sizeof *block->uses); /* -1 */
}

void bppsa_pipeline_pool_begin(pipeline_pool *pool) {
  if (pool->taken > 0) {
    return;
  }
  pool->free = NULL;
  for (pipeline_block *block = pool->latest; block != NULL; block = block->older) {
    forget_uses(pool, block);
    block->next = pool->free;
    pool->free = block;
  }
}

static bppsa_status make_block(pipeline_pool *pool) {
  pipeline_block *block = bppsa_calloc(1, (size_t)(pool->streams + 1) * sizeof *block->uses + sizeof *block);
  if (block == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  forget_uses(pool, block);
  block->older = pool->latest;
  pool->latest = pool->free = block; /* its memory is freed also after a failure */
  BPPSA_TRY(
      (pool->staging ? bppsa_memory_alloc_staging : bppsa_memory_alloc)(pool->device, (int64_t)pool->bytes, &block->memory));
  return bppsa_memory_clear(pool->staging ? NULL : pool->device, block->memory, (int64_t)pool->bytes);
}

bppsa_status bppsa_pipeline_pool_take(pipeline_pool *pool, pipeline_block **block) {
  BPPSA_TRY(pool->free == NULL ? make_block(pool) : BPPSA_OK);
  *block = pool->free;
  pool->free = pool->free->next;
  pool->taken++;
  return BPPSA_OK;
}

void bppsa_pipeline_pool_give(pipeline_pool *pool, pipeline_block *block) {
  block->next = pool->free;
  pool->free = block;
  pool->taken--;
}

void bppsa_pipeline_pool_free(pipeline_pool *pool) {
  for (pipeline_block *block = pool->latest, *older; block != NULL; block = older) {
    older = block->older;
    (pool->staging ? bppsa_memory_free_staging : bppsa_memory_free)(pool->device, block->memory);
    bppsa_free(block);
  }
  *pool = (pipeline_pool){0};
}

/* ---- arrays ---- */

int64_t bppsa_pipeline_bytes(const pipeline_plan *plan, pipeline_array array, int64_t layer) {
  const bppsa_chain_layer *layers = plan->chain->layer;
  const int64_t values = layer < plan->layers ? layers[layer].in : layers[plan->layers - 1].out;
  if (array == PIPELINE_KEPT) {
    return layer < plan->layers ? plan->samples * layers[layer].kept : 0;
  }
  return plan->samples * values * (int64_t)bppsa_dtype_size(plan->chain->dtype);
}

/* Does an array that the operation makes count among the activations? With recomputation only those of RECOMPUTE do. */
static bool counts(const pipeline_plan *plan, pipeline_array array, int64_t layer, const bppsa_schedule_op *op) {
  const bool made = op->kind == (plan->list->config.recompute ? BPPSA_KIND_RECOMPUTE : BPPSA_KIND_F);
  return made && (array == PIPELINE_KEPT || (array == PIPELINE_VALUES && layer > op->layer));
}

pipeline_array bppsa_pipeline_array_sent(const pipeline_plan *plan, int64_t id, int64_t *layer) {
  const bppsa_schedule_op *op = &plan->list->ops[id];
  const bool gradients = plan->list->ops[pipeline_source_of(plan, id)].kind != BPPSA_KIND_F;
  *layer = gradients ? op->layer : op->layer + op->layers;
  return gradients ? PIPELINE_GRADIENTS : PIPELINE_VALUES;
}

/* ---- creation ---- */

bppsa_status bppsa_pipeline_pools_make(const pipeline_plan *plan, pipeline_pool **pools) {
  pipeline_pool *pool = *pools = bppsa_calloc(PIPELINE_ARRAYS * (plan->layers + 1), sizeof *pool);
  for (int array = 0; pool != NULL && array < PIPELINE_ARRAYS; ++array) {
    for (int64_t layer = 0; layer <= plan->layers; ++layer, ++pool) {
      const int64_t bytes = bppsa_pipeline_bytes(plan, (pipeline_array)array, layer);
      pool->device = plan->chain->device;
      pool->bytes = (size_t)(PIPELINE_HEADER + (bytes + 7) / 8 * 8 + BPPSA_ALIGNMENT);
    }
  }
  return *pools != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

void bppsa_pipeline_pools_free(const pipeline_plan *plan, pipeline_pool *pools) {
  for (int64_t i = 0; pools != NULL && i < PIPELINE_ARRAYS * (plan->layers + 1); ++i) {
    bppsa_pipeline_pool_free(&pools[i]);
  }
  bppsa_free(pools);
}

/* ---- use ---- */

static pipeline_pool *pool_of(const pipeline_arrays *a, pipeline_array array, int64_t layer) {
  return &a->pools[(int64_t)array * (a->plan->layers + 1) + layer];
}

bppsa_status bppsa_pipeline_take(pipeline_arrays *a, int64_t id, pipeline_array array, int64_t micro, int64_t layer) {
  const bppsa_schedule_op *op = &a->plan->list->ops[id];
  pipeline_slot *slot = pipeline_slot_of(a, array, micro, layer);
  const bool again = op->kind == BPPSA_KIND_RECOMPUTE;
  if (slot->block == NULL) {
    BPPSA_TRY(bppsa_pipeline_pool_take(pool_of(a, array, layer), &slot->block));
    slot->left = 0;
  }
  /* the operation that makes the array counts as a reader too */
  slot->left += 1 + (again ? slot->again : op->kind == BPPSA_KIND_RECV ? slot->readers + slot->again : slot->readers);
  if (!slot->counted && counts(a->plan, array, layer, op)) {
    slot->counted = true;
    a->activations += bppsa_pipeline_bytes(a->plan, array, layer);
    a->peak = a->activations > a->peak ? a->activations : a->peak;
  }
  return BPPSA_OK;
}

void bppsa_pipeline_release(pipeline_arrays *a, pipeline_array array, int64_t micro, int64_t layer) {
  pipeline_slot *slot = pipeline_slot_of(a, array, micro, layer);
  if (slot->block == NULL || --slot->left > 0) {
    return;
  }
  bppsa_pipeline_pool_give(pool_of(a, array, layer), slot->block);
  slot->block = NULL;
  if (slot->counted) {
    slot->counted = false;
    a->activations -= bppsa_pipeline_bytes(a->plan, array, layer);
  }
}

/* ---- readers ---- */

/* Counts a reader, or releases it. again: it reads what RECOMPUTE makes. */
static void visit(pipeline_arrays *a, pipeline_array array, int64_t micro, int64_t layer, bool again, bool make) {
  pipeline_slot *slot = pipeline_slot_of(a, array, micro, layer);
  if (!make) {
    bppsa_pipeline_release(a, array, micro, layer);
  } else if (again) {
    slot->again++;
  } else {
    slot->readers++;
  }
}

/* Does another layer of the same stage make the input of the operation's first layer? */
static bool is_inside(const bppsa_schedule *list, const bppsa_schedule_op *op) {
  return op->layer > bppsa_schedule_layer_of(list, op->stage);
}

static void visit_backward(pipeline_arrays *a, const bppsa_schedule_op *op, int64_t micro, bool make) {
  const bool again = a->plan->list->config.recompute;
  visit(a, PIPELINE_VALUES, micro, op->layer, again && is_inside(a->plan->list, op), make);
  for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
    visit(a, PIPELINE_VALUES, micro, layer + 1, again, make);
    visit(a, PIPELINE_KEPT, micro, layer, again, make);
    visit(a, PIPELINE_GRADIENTS, micro, layer + 1, false, make);
  }
}

void bppsa_pipeline_read(pipeline_arrays *a, int64_t id, bool make) {
  const bppsa_schedule_op *op = &a->plan->list->ops[id];
  const pipeline_span span = pipeline_span_of(a->plan, op);
  for (int64_t micro = span.first; micro < span.end; ++micro) {
    int64_t layer;
    pipeline_array sent;
    switch ((bppsa_schedule_kind)op->kind) {
    case BPPSA_KIND_F:
    case BPPSA_KIND_RECOMPUTE:
      visit(a, PIPELINE_VALUES, micro, op->layer, false, make);
      break;
    case BPPSA_KIND_SEND:
      sent = bppsa_pipeline_array_sent(a->plan, id, &layer);
      visit(a, sent, micro, layer, false, make);
      break;
    case BPPSA_KIND_I:
    case BPPSA_KIND_W:
    case BPPSA_KIND_B:
      visit_backward(a, op, micro, make);
      break;
    default:
      break;
    }
  }
}

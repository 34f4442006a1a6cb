/* The executor's arrays of micro-batches: who reads them, and when they are given back. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "distributed/pipeline/pipeline_internal.h"

/* ---- pools ---- */

void bppsa_pipeline_pool_begin(pipeline_pool *pool) {
  for (int64_t i = 0; pool->count == pool->made && i < pool->made; ++i) {
    pool->free[i] = pool->all[pool->made - 1 - i];
    memset(pool->uses[i], 0xff, (size_t)(pool->streams + 1) * sizeof *pool->uses[i]); /* -1 */
  }
}

/* Makes room for one more block, so that giving one back cannot fail. */
static bppsa_status make_room(pipeline_pool *pool) {
  if (pool->made < pool->room) {
    return BPPSA_OK;
  }
  const int64_t room = pool->room < 4 ? 4 : 2 * pool->room;
  void **grown = bppsa_realloc((void *)pool->free, (size_t)room * sizeof *grown);
  pool->free = grown != NULL ? grown : pool->free;
  void **all = grown == NULL ? NULL : bppsa_realloc((void *)pool->all, (size_t)room * sizeof *all);
  pool->all = all != NULL ? all : pool->all;
  int32_t **uses = all == NULL ? NULL : bppsa_realloc((void *)pool->uses, (size_t)room * sizeof *uses);
  pool->uses = uses != NULL ? uses : pool->uses;
  pool->room = uses != NULL ? room : pool->room;
  return uses != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

static bppsa_status make_block(pipeline_pool *pool, void **block) {
  void *made = NULL;
  BPPSA_TRY((pool->staging ? bppsa_memory_alloc_staging : bppsa_memory_alloc)(pool->device, (int64_t)pool->bytes, &made));
  const bppsa_status status = bppsa_memory_clear(pool->staging ? NULL : pool->device, made, (int64_t)pool->bytes);
  int32_t *uses = status == BPPSA_OK ? bppsa_alloc((size_t)(pool->streams + 1) * sizeof *uses) : NULL;
  if (uses == NULL) {
    (pool->staging ? bppsa_memory_free_staging : bppsa_memory_free)(pool->device, made);
    return status == BPPSA_OK ? BPPSA_ERR_MEMORY : status;
  }
  memset(uses, 0xff, (size_t)(pool->streams + 1) * sizeof *uses); /* -1 */
  pool->uses[pool->made] = uses;
  pool->all[pool->made++] = made;
  *block = made;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_pool_take(pipeline_pool *pool, void **block) {
  if (pool->count > 0) {
    *block = pool->free[--pool->count];
    return BPPSA_OK;
  }
  BPPSA_TRY(make_room(pool));
  return make_block(pool, block);
}

void bppsa_pipeline_pool_give(pipeline_pool *pool, void *block) {
  pool->free[pool->count++] = block;
}

/* Who uses a block: the pool has as many as micro-batches are in flight. */
static int32_t *uses_of(const pipeline_pool *pool, const void *block) {
  int64_t i = 0;
  while (pool->all[i] != block) {
    ++i;
  }
  return pool->uses[i];
}

void bppsa_pipeline_pool_free(pipeline_pool *pool) {
  for (int64_t i = 0; i < pool->count; ++i) {
    (pool->staging ? bppsa_memory_free_staging : bppsa_memory_free)(pool->device, pool->free[i]);
  }
  for (int64_t i = 0; i < pool->made; ++i) {
    bppsa_free(pool->uses[i]);
  }
  bppsa_free((void *)pool->free);
  bppsa_free((void *)pool->all);
  bppsa_free((void *)pool->uses);
  *pool = (pipeline_pool){0};
}

/* ---- arrays ---- */

int64_t bppsa_pipeline_bytes(const bppsa_pipeline *p, pipeline_array array, int64_t layer) {
  const bppsa_chain_layer *layers = p->chain->layer;
  const int64_t values = layer < p->layers ? layers[layer].in : layers[p->layers - 1].out;
  if (array == PIPELINE_KEPT) {
    return layer < p->layers ? p->samples * layers[layer].kept : 0;
  }
  return p->samples * values * (int64_t)bppsa_dtype_size(p->chain->dtype);
}

/* Do an operation's own activations count from it on? With recomputation those of RECOMPUTE do. */
static bool counts(const bppsa_pipeline *p, pipeline_array array, int64_t layer, const bppsa_schedule_op *op) {
  const bool made = op->kind == (p->list->config.recompute ? BPPSA_KIND_RECOMPUTE : BPPSA_KIND_F);
  return made && (array == PIPELINE_KEPT || (array == PIPELINE_VALUES && layer > op->layer));
}

bppsa_status bppsa_pipeline_take(bppsa_pipeline *p, pipeline_worker *w, int64_t id, pipeline_array array, int64_t micro,
                                 int64_t layer) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  pipeline_slot *slot = pipeline_slot_of(p, w, array, micro, layer);
  const bool again = op->kind == BPPSA_KIND_RECOMPUTE;
  if (slot->block == NULL) {
    pipeline_pool *pool = &p->pools[(int64_t)array * (p->layers + 1) + layer];
    void *block;
    BPPSA_TRY(bppsa_pipeline_pool_take(pool, &block));
    slot->block = block;
    slot->uses = uses_of(pool, block);
    slot->left = 0;
  }
  /* one reader more: the operation that makes it */
  slot->left += 1 + (again ? slot->again : op->kind == BPPSA_KIND_RECV ? slot->readers + slot->again : slot->readers);
  if (!slot->counted && counts(p, array, layer, op)) {
    slot->counted = true;
    w->activations += bppsa_pipeline_bytes(p, array, layer);
    w->peak = w->activations > w->peak ? w->activations : w->peak;
  }
  return BPPSA_OK;
}

void bppsa_pipeline_release(bppsa_pipeline *p, pipeline_worker *w, pipeline_array array, int64_t micro, int64_t layer) {
  pipeline_slot *slot = pipeline_slot_of(p, w, array, micro, layer);
  if (slot->block == NULL || --slot->left > 0) {
    return;
  }
  bppsa_pipeline_pool_give(&p->pools[(int64_t)array * (p->layers + 1) + layer], slot->block);
  slot->block = NULL;
  if (slot->counted) {
    slot->counted = false;
    w->activations -= bppsa_pipeline_bytes(p, array, layer);
  }
}

/* ---- readers ---- */

/* Counts a reader, or releases it. again: it reads what RECOMPUTE makes. */
static void visit(bppsa_pipeline *p, pipeline_worker *w, pipeline_array array, int64_t micro, int64_t layer, bool again,
                  bool make) {
  pipeline_slot *slot = pipeline_slot_of(p, w, array, micro, layer);
  if (!make) {
    bppsa_pipeline_release(p, w, array, micro, layer);
  } else if (again) {
    slot->again++;
  } else {
    slot->readers++;
  }
}

/* Does another layer of the same stage make the input of the operation's first layer? */
static bool is_inside(const bppsa_pipeline *p, const bppsa_schedule_op *op) {
  return op->layer > p->first_layer[op->stage];
}

static void visit_backward(bppsa_pipeline *p, pipeline_worker *w, const bppsa_schedule_op *op, int64_t micro, bool make) {
  const bool again = p->list->config.recompute;
  visit(p, w, PIPELINE_VALUES, micro, op->layer, again && is_inside(p, op), make);
  for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
    visit(p, w, PIPELINE_VALUES, micro, layer + 1, again, make);
    visit(p, w, PIPELINE_KEPT, micro, layer, again, make);
    visit(p, w, PIPELINE_GRADIENTS, micro, layer + 1, false, make);
  }
}

void bppsa_pipeline_read(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool make) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  const pipeline_span span = pipeline_span_of(p, op);
  for (int64_t micro = span.first; micro < span.end; ++micro) {
    switch ((bppsa_schedule_kind)op->kind) {
    case BPPSA_KIND_F:
    case BPPSA_KIND_RECOMPUTE:
      visit(p, w, PIPELINE_VALUES, micro, op->layer, false, make);
      break;
    case BPPSA_KIND_SEND:
      if (p->transfers[id].gradients) {
        visit(p, w, PIPELINE_GRADIENTS, micro, op->layer, false, make);
      } else {
        visit(p, w, PIPELINE_VALUES, micro, op->layer + op->layers, false, make);
      }
      break;
    case BPPSA_KIND_I:
    case BPPSA_KIND_W:
    case BPPSA_KIND_B:
      visit_backward(p, w, op, micro, make);
      break;
    default:
      break;
    }
  }
}

/* The executor's arrays of micro-batches: who reads them, and when they are given back. */
#include <string.h>

#include "core/alloc.h"
#include "core/memory.h"
#include "distributed/pipeline_internal.h"

/* ---- pools ---- */

bppsa_status bppsa_pipeline_pool_take(pipeline_pool *pool, void **block) {
  if (pool->count > 0) {
    *block = pool->free[--pool->count];
    return BPPSA_OK;
  }
  if (pool->made == pool->room) { /* there is room for every block, so that giving one back cannot fail */
    const int64_t room = pool->room < 4 ? 4 : 2 * pool->room;
    void **grown = bppsa_realloc((void *)pool->free, (size_t)room * sizeof *grown);
    if (grown == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    pool->free = grown;
    pool->room = room;
  }
  void *made = NULL;
  BPPSA_TRY(bppsa_memory_alloc(pool->device, (int64_t)pool->bytes, &made));
  const bppsa_status status = bppsa_memory_clear(pool->device, made, (int64_t)pool->bytes);
  if (status != BPPSA_OK) {
    bppsa_memory_free(pool->device, made);
    return status;
  }
  pool->made++;
  *block = made;
  return BPPSA_OK;
}

void bppsa_pipeline_pool_give(pipeline_pool *pool, void *block) {
  pool->free[pool->count++] = block;
}

void bppsa_pipeline_pool_free(pipeline_pool *pool) {
  for (int64_t i = 0; i < pool->count; ++i) {
    bppsa_memory_free(pool->device, pool->free[i]);
  }
  bppsa_free((void *)pool->free);
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
    void *block;
    BPPSA_TRY(bppsa_pipeline_pool_take(&p->pools[(int64_t)array * (p->layers + 1) + layer], &block));
    slot->block = block;
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

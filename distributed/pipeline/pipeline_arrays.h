/* The executor's arrays of micro-batches: who reads them, and when they are given back. Internal. */
#ifndef BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_ARRAYS_H
#define BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_ARRAYS_H

#include "distributed/pipeline/pipeline_plan.h"

/* ---- pools ---- */

/* Memory of a pool. */
typedef struct pipeline_block pipeline_block;
struct pipeline_block {
  void *memory;
  pipeline_block *older; /* the block that was made before this one */
  pipeline_block *next;  /* of a free block: the next free one */
  /* size 1 + streams: the operation that wrote the block, and the latest one on each stream that used it; -1: none; PIPELINE_HERE:
   * the chain's own stream */
  int32_t uses[];
};

enum { PIPELINE_HERE = -2 };

/* Blocks of equal size that are taken and given back; the memory of the first run serves all later ones. Equal runs take the same
 * blocks in the same order. */
typedef struct {
  const bppsa_device *device; /* that has the memory; NULL: the host */
  size_t bytes;
  bool staging;                  /* it is host memory that the device reads and writes by itself (core/compute/memory.h) */
  int64_t streams;               /* that use the blocks; 0: uses are not noted */
  pipeline_block *latest, *free; /* the block that was made last; the one that is taken next */
  int64_t taken;
} pipeline_pool;

void bppsa_pipeline_pool_begin(pipeline_pool *pool); /* a run begins */
bppsa_status bppsa_pipeline_pool_take(pipeline_pool *pool, pipeline_block **block);
void bppsa_pipeline_pool_give(pipeline_pool *pool, pipeline_block *block);
/* Frees all blocks, also those that are not given back. */
void bppsa_pipeline_pool_free(pipeline_pool *pool);

/* ---- arrays ---- */

typedef enum { PIPELINE_VALUES = 0, PIPELINE_GRADIENTS, PIPELINE_KEPT, PIPELINE_ARRAYS } pipeline_array;

/* An array of one micro-batch: the values in front of layer l, their gradient, or what layer l keeps. It is given back when the
 * last operation that reads it is over. */
typedef struct {
  pipeline_block *block;  /* a message's header, then the array; NULL: the array is not there */
  int32_t readers, again; /* operations of the list that read it as it is made first, and as RECOMPUTE makes it again */
  int32_t left;           /* readers that are still to come */
  bool counted;           /* among the worker's activations */
} pipeline_slot;

/* The arrays of one worker. */
typedef struct {
  const pipeline_plan *plan;
  pipeline_pool *pools;      /* [PIPELINE_ARRAYS][layers + 1]; the rank's workers share them */
  pipeline_slot *slots;      /* [PIPELINE_ARRAYS][micros][layers + 1] */
  int64_t activations, peak; /* bytes */
} pipeline_arrays;

static inline pipeline_slot *pipeline_slot_of(const pipeline_arrays *a, pipeline_array array, int64_t micro, int64_t layer) {
  return &a->slots[((int64_t)array * a->plan->micros + micro) * (a->plan->layers + 1) + layer];
}

/* The array of a slot; NULL: it is not there. */
static inline void *pipeline_data_of(const pipeline_slot *slot) {
  return slot->block == NULL ? NULL : (char *)slot->block->memory + PIPELINE_HEADER;
}

bppsa_status bppsa_pipeline_pools_make(const pipeline_plan *plan, pipeline_pool **pools);
void bppsa_pipeline_pools_free(const pipeline_plan *plan, pipeline_pool *pools); /* NULL is legal */

/* Bytes of an array of one micro-batch. */
int64_t bppsa_pipeline_bytes(const pipeline_plan *plan, pipeline_array array, int64_t layer);
/* The array that a SEND or a RECV carries, and its layer. */
pipeline_array bppsa_pipeline_array_sent(const pipeline_plan *plan, int64_t id, int64_t *layer);
/* Makes the array that operation `id` writes; the operation releases it when it is over. */
bppsa_status bppsa_pipeline_take(pipeline_arrays *arrays, int64_t id, pipeline_array array, int64_t micro, int64_t layer);
/* A reader is done with the array; the last one gives it back. */
void bppsa_pipeline_release(pipeline_arrays *arrays, pipeline_array array, int64_t micro, int64_t layer);
/* Counts what the operation reads among the readers of every array (`make`), or releases it. */
void bppsa_pipeline_read(pipeline_arrays *arrays, int64_t id, bool make);

#endif

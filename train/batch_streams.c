/* Batches of streams: a pass begins with the states in which the pass before has ended.
 *
 * `states` [L][whole][S] has the states of all samples of a batch, with windows (batch_windows.c) those of K batches, the oldest
 * one first. A pass of a part of the batch takes those of its samples to a block of `begun`, [L][count][S], from which the model
 * begins, and puts those in which it ends in the place of the latest ones. With windows a pass of training begins with the oldest
 * ones, and the others move up by one place. Where samples `first` .. `first` + `count` - 1 are the part, its block begins
 * first * L * S reals behind the array's beginning, so that each part has its own; a pass that is repeated begins with the same
 * states. On a GPU both arrays are in page-locked host memory, and copies are queued with the pass. */
#include <string.h>

#include "core/compute/memory.h"
#include "train/batch.h"

static size_t bytes_of(const bppsa_batch *b, int64_t rows) {
  return (size_t)(rows * b->states.shape[2]) * bppsa_dtype_size(b->states.dtype);
}

/* The states of a layer, from the first of the present samples on; pass: 0, the oldest one that is kept, .. K - 1, the latest. */
static char *states_at(const bppsa_batch *b, int64_t pass, int64_t layer) {
  return (char *)b->states.data + bytes_of(b, (pass * b->begun.shape[0] + layer) * b->whole + b->first);
}

static char *latest_at(const bppsa_batch *b, int64_t layer) {
  return states_at(b, b->past.windows - 1, layer);
}

static char *begun_at(const bppsa_batch *b, int64_t layer) {
  return (char *)b->begun.data + bytes_of(b, b->first * b->begun.shape[0] + layer * b->count);
}

bppsa_status bppsa_batch_streams_shape(bppsa_batch *b) {
  int64_t size[2];
  if (!b->dataset->streams) {
    return BPPSA_OK;
  }
  if (b->model->ops->last_states == NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "model: %s has no states, expected a recurrent network for streams",
                      b->model->ops->name);
  }
  BPPSA_TRY(b->model->ops->last_states(b->model, size, 0, NULL));
  const int64_t shape[3] = {size[0], b->whole, size[1]}, all[3] = {b->past.windows * size[0], b->whole, size[1]};
  b->states = bppsa_view_make(NULL, b->model->dtype, 3, all);
  b->begun = bppsa_view_make(NULL, b->model->dtype, 3, shape);
  return BPPSA_OK;
}

void bppsa_batch_restart(bppsa_batch *b) {
  if (b->states.data != NULL) {
    memset(b->states.data, 0, bppsa_view_bytes(&b->states));
  }
}

/* A pass that is recorded is told of its batch twice, so it takes the states once. */
void bppsa_batch_streams_begin(bppsa_batch *b) {
  const int64_t layers = b->begun.shape[0];
  if (b->states.data == NULL || b->again || !b->fresh) {
    return;
  }
  b->fresh = false;
  for (int64_t l = 0; l < layers; ++l) {
    memcpy(begun_at(b, l), bppsa_batch_has_past(b) ? states_at(b, 0, l) : latest_at(b, l), bytes_of(b, b->count));
    for (int64_t pass = 0; bppsa_batch_has_past(b) && pass + 1 < b->past.windows; ++pass) {
      memcpy(states_at(b, pass, l), states_at(b, pass + 1, l), bytes_of(b, b->count));
    }
  }
}

bppsa_status bppsa_batch_streams_put(const bppsa_batch *b, bppsa_view *states, const bppsa_view **h0) {
  const bppsa_device *device = b->gpu.device;
  if (b->states.data == NULL) {
    return BPPSA_OK;
  }
  const int64_t shape[3] = {b->begun.shape[0], b->count, b->begun.shape[2]};
  *states = bppsa_view_make(begun_at(b, 0), b->states.dtype, 3, shape);
  *h0 = states;
  if (device == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_memory_queue_put(device, b->gpu.device_begun, states->data, (int64_t)bppsa_view_bytes(states)));
  states->data = b->gpu.device_begun;
  states->device = BPPSA_CUDA;
  return BPPSA_OK;
}

bppsa_status bppsa_batch_streams_take(const bppsa_batch *b) {
  const bppsa_device *device = b->gpu.device;
  int64_t size[2];
  if (b->states.data == NULL) {
    return BPPSA_OK;
  }
  if (device == NULL) {
    return b->model->ops->last_states(b->model, size, b->whole, latest_at(b, 0));
  }
  BPPSA_TRY(b->model->ops->last_states(b->model, size, b->count, b->gpu.device_ended));
  for (int64_t l = 0; l < size[0]; ++l) {
    const char *ended = (const char *)b->gpu.device_ended + bytes_of(b, l * b->count);
    BPPSA_TRY(bppsa_memory_queue_get(device, latest_at(b, l), ended, (int64_t)bytes_of(b, b->count)));
  }
  return BPPSA_OK;
}

/* A batch of a GPU model: its memory, and the work that is queued for it. */
#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "train/batch.h"
#include "train/loss_internal.h"

enum { LINE = 256 /* bytes between parts */ };

/* Lays out the parts of one allocation: the first time, from NULL, adds up their sizes; the second time gives them addresses. */
typedef struct {
  char *base;
  int64_t bytes;
  bool fits;
} layout;

static void *place(layout *l, int64_t count, int64_t size) {
  int64_t bytes = 0;
  void *at = l->base == NULL ? NULL : l->base + l->bytes;
  l->fits = l->fits && bppsa_mul(count, size, &bytes) && bytes < INT64_MAX / 2 - l->bytes;
  l->bytes += l->fits ? (bytes + LINE - 1) / LINE * LINE : 0;
  return at;
}

static int64_t input_bytes(int64_t count) {
  return (int64_t)sizeof(bppsa_gpu_input) + count * (int64_t)sizeof(int64_t);
}

/* Bytes of `rows` rows of real targets; negative if they do not fit in 64 bits. */
static int64_t target_bytes(const bppsa_batch *b, int64_t rows) {
  int64_t bytes;
  const bool fits =
      bppsa_mul(rows, b->model->classes, &bytes) && bppsa_mul(bytes, (int64_t)bppsa_dtype_size(b->model->dtype), &bytes);
  return fits ? bytes : -1;
}

/* Does the loss leave out rows behind the ends of samples? */
static bool has_row_lengths(const bppsa_batch *b) {
  return bppsa_batch_has_lengths(b) && b->dataset->labels_per_step;
}

static void place_memory(bppsa_batch *b, int64_t labels, layout *l) {
  b->gpu.device_result = place(l, 1, sizeof(bppsa_gpu_result));
  b->gpu.device_input = place(l, input_bytes(b->capacity), 1);
  if (bppsa_objective_real(&b->dataset->objective)) {
    b->gpu.device_targets = place(l, target_bytes(b, labels), 1);
  } else {
    b->gpu.device_labels = place(l, labels, sizeof(int64_t));
  }
  if (has_row_lengths(b)) {
    b->gpu.device_lengths = place(l, b->capacity, sizeof(int64_t));
  }
  if (bppsa_batch_has_weights(b)) {
    b->gpu.device_weights = place(l, labels, sizeof(double));
  }
  b->gpu.loss_scratch = place(l, bppsa_loss_scratch(labels), 1);
  if (b->dataset->streams) {
    const int64_t state = b->begun.shape[0] * b->begun.shape[2] * (int64_t)bppsa_dtype_size(b->begun.dtype);
    b->gpu.device_begun = place(l, b->capacity, state);
    b->gpu.device_ended = place(l, b->capacity, state);
  }
}

static void place_staging(bppsa_batch *b, int64_t labels, layout *l) {
  b->gpu.result = place(l, 1, sizeof(bppsa_gpu_result));
  b->gpu.input = place(l, input_bytes(b->capacity), 1);
  if (bppsa_batch_has_lengths(b)) {
    b->lengths = place(l, b->capacity, sizeof *b->lengths);
  }
  if (bppsa_batch_has_weights(b)) {
    b->weights = place(l, labels, sizeof *b->weights);
  }
  if (bppsa_batch_has_resets(b)) {
    b->resets = place(l, b->capacity, b->length);
  }
  if (b->dataset->streams) {
    b->states.data = place(l, (int64_t)bppsa_view_bytes(&b->states), 1);
    b->begun.data = place(l, (int64_t)bppsa_view_bytes(&b->begun), 1);
  }
  if (!bppsa_batch_is_made_on_gpu(b)) {
    if (bppsa_objective_real(&b->dataset->objective)) {
      b->targets.data = place(l, target_bytes(b, labels), 1);
    } else {
      b->labels = place(l, labels, sizeof(int64_t));
    }
    b->gpu.x_staging = b->x.view;
    b->gpu.x_staging.data = place(l, (int64_t)bppsa_view_bytes(&b->x.view), 1);
  }
}

bppsa_status bppsa_batch_gpu_create(bppsa_batch *b, int64_t labels) {
  layout memory = {NULL, 0, true}, staging = {NULL, 0, true};
  const bppsa_device *device = b->model->device;
  b->gpu.device = device;
  place_memory(b, labels, &memory);
  place_staging(b, labels, &staging);
  if (!memory.fits || !staging.fits) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "batch: %lld samples do not fit in 64 bits", (long long)b->capacity);
  }
  BPPSA_TRY(bppsa_memory_alloc(device, memory.bytes, (void **)&b->gpu.memory));
  BPPSA_TRY(bppsa_memory_alloc_staging(device, staging.bytes, (void **)&b->gpu.staging));
  memory = (layout){b->gpu.memory, 0, true};
  staging = (layout){b->gpu.staging, 0, true};
  place_memory(b, labels, &memory);
  place_staging(b, labels, &staging);
  b->indices = b->gpu.input->indices;
  return BPPSA_OK;
}

void bppsa_batch_gpu_free(bppsa_batch *b) {
  bppsa_memory_free(b->gpu.device, b->gpu.memory);
  bppsa_memory_free_staging(b->gpu.device, b->gpu.staging);
}

/* Queues the copy of the labels or targets that the host has made. */
static bppsa_status queue_targets(const bppsa_batch *b) {
  const bppsa_batch_gpu *g = &b->gpu;
  if (bppsa_objective_real(&b->dataset->objective)) {
    const bppsa_view targets = bppsa_batch_targets(b);
    return bppsa_memory_queue_put(g->device, g->device_targets, targets.data, (int64_t)bppsa_view_bytes(&targets));
  }
  return bppsa_memory_queue_put(g->device, g->device_labels, b->labels, bppsa_batch_rows(b) * (int64_t)sizeof *b->labels);
}

/* Tells the GPU the samples' numbers; the data set makes x or labels there (NULL: not wanted). */
static bppsa_status queue_made(const bppsa_batch *b, int64_t count, const bppsa_view *x, int64_t *labels) {
  const bppsa_batch_gpu *g = &b->gpu;
  BPPSA_TRY(bppsa_memory_queue_put(g->device, g->device_input, g->input, input_bytes(count)));
  return !bppsa_batch_is_made_on_gpu(b) ? BPPSA_OK
                                        : bppsa_dataset_queue(b->dataset, g->device, count, g->device_input->indices, x, labels);
}

bppsa_status bppsa_batch_queue_fill(bppsa_batch *b) {
  const bppsa_batch_gpu *g = &b->gpu;
  if (g->device == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(queue_made(b, b->count, &b->x_view, g->device_labels));
  if (g->device_lengths != NULL) {
    BPPSA_TRY(bppsa_memory_queue_put(g->device, g->device_lengths, b->lengths, b->count * (int64_t)sizeof *b->lengths));
  }
  if (g->device_weights != NULL) {
    BPPSA_TRY(bppsa_memory_queue_put(g->device, g->device_weights, b->weights, bppsa_batch_rows(b) * (int64_t)sizeof(double)));
  }
  if (bppsa_batch_is_made_on_gpu(b)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_memory_queue_put(g->device, b->x_view.data, g->x_staging.data, (int64_t)bppsa_view_bytes(&b->x_view)));
  return queue_targets(b);
}

bppsa_status bppsa_batch_gpu_inputs(const bppsa_batch *b, int64_t count, const bppsa_view *x) {
  const bppsa_batch_gpu *g = &b->gpu;
  const bppsa_view host = bppsa_view_make(g->x_staging.data, x->dtype, x->ndim, x->shape);
  if (bppsa_batch_is_made_on_gpu(b)) {
    return queue_made(b, count, x, NULL);
  }
  BPPSA_TRY(bppsa_dataset_fill(b->dataset, b->device, count, b->indices, &host, NULL));
  return bppsa_memory_queue_put(g->device, x->data, host.data, (int64_t)bppsa_view_bytes(x));
}

bppsa_status bppsa_batch_gpu_targets(const bppsa_batch *b) {
  return bppsa_batch_is_made_on_gpu(b) ? queue_made(b, b->count, NULL, b->gpu.device_labels) : queue_targets(b);
}

/* Queues the loss of the logits, which belong to the model's own steps. */
static bppsa_status queue_loss(bppsa_batch *b, int64_t mean_rows) {
  const int64_t classes = b->model->classes, before = bppsa_batch_rows_before(b);
  const int64_t skipped = before * classes * (int64_t)bppsa_dtype_size(b->model->dtype);
  const bppsa_loss_job job = {.logits = &b->logits,
                              .seed = b->dlogits.data == NULL ? NULL : &b->dlogits,
                              .rows = bppsa_view_count(&b->logits) / classes,
                              .labels = b->gpu.device_labels == NULL ? NULL : b->gpu.device_labels + before,
                              .objective = b->dataset->objective,
                              .targets = b->gpu.device_targets == NULL ? NULL : (const char *)b->gpu.device_targets + skipped,
                              .mean_rows = mean_rows,
                              .lengths = b->gpu.device_lengths,
                              .weights = b->gpu.device_weights == NULL ? NULL : b->gpu.device_weights + before};
  return bppsa_loss_queue(b->gpu.device, &job, b->gpu.loss_scratch, b->gpu.device_result);
}

bppsa_status bppsa_batch_queue_loss(bppsa_batch *b) {
  return queue_loss(b, 0);
}

bppsa_status bppsa_batch_gpu_loss(bppsa_batch *b, int64_t mean_rows, bppsa_loss_result *result) {
  const bppsa_batch_gpu *g = &b->gpu;
  BPPSA_TRY(queue_loss(b, mean_rows));
  BPPSA_TRY(bppsa_memory_queue_get(g->device, g->result, g->device_result, sizeof *g->result));
  BPPSA_TRY(bppsa_device_wait(g->device));
  *result = bppsa_loss_part_found(g->result);
  return BPPSA_OK;
}

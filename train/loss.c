#include "train/loss.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "core/both.h"
#include "core/memory.h"
#include "core/pool.h"
#include "train/blocks.h"
#include "train/loss_internal.h"

#define BPPSA_REAL 32
#include "train/loss.inc"
#undef BPPSA_REAL
#define BPPSA_REAL 64
#include "train/loss.inc"
#undef BPPSA_REAL

enum { ROWS_PER_BLOCK = 16, LINE = 256 /* bytes between parts of GPU memory */ };

static bppsa_status check(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels, const bppsa_view *seed,
                          int64_t *rows) {
  const bppsa_device_kind kind = device == NULL ? BPPSA_CPU : bppsa_device_get_kind(device);
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT];
  bppsa_shape_text(logits->ndim, logits->shape, expected, sizeof expected);
  if ((logits->ndim != 2 && logits->ndim != 3) || bppsa_view_count(logits) < 1) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "logits: shape %s, expected [samples, classes] or [steps, samples, classes]", expected);
  }
  if ((logits->dtype != BPPSA_F32 && logits->dtype != BPPSA_F64) || logits->device != kind ||
      (seed != NULL && seed->device != kind) || !bppsa_view_contiguous(logits)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "logits: expected a contiguous array of f32 or f64 in %s memory",
                      kind == BPPSA_CPU ? "host" : "GPU");
  }
  if (seed != NULL && (!bppsa_view_same_shape(seed, logits) || seed->dtype != logits->dtype || !bppsa_view_contiguous(seed))) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "seed gradient: %s %s, expected %s %s as the logits", bppsa_dtype_name(seed->dtype),
                      bppsa_shape_text(seed->ndim, seed->shape, found, sizeof found), bppsa_dtype_name(logits->dtype), expected);
  }
  const int64_t classes = logits->shape[logits->ndim - 1], batch = logits->shape[logits->ndim - 2];
  const int64_t count = bppsa_view_count(logits) / classes;
  for (int64_t r = 0; r < count; ++r) {
    if (labels[r] < 0 || labels[r] >= classes) {
      char step[48] = "";
      if (logits->ndim == 3) {
        (void)snprintf(step, sizeof step, ", time step %lld", (long long)(r / batch + 1));
      }
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "label %lld at sample %lld of the batch%s, expected 0 .. %lld", (long long)labels[r],
                        (long long)(r % batch), step, (long long)classes - 1);
    }
  }
  *rows = count;
  return BPPSA_OK;
}

/* Losses of blocks of rows. */
typedef struct {
  const bppsa_view *logits;
  const int64_t *labels;
  const bppsa_view *seed;
  int64_t rows, size; /* size: rows of a block */
  double *losses;
  int64_t *corrects;
} block_losses;

static void sum_blocks(const void *context, int32_t worker, int64_t first, int64_t end) {
  const block_losses *b = context;
  (void)worker;
  for (int64_t k = first; k < end; ++k) {
    const int64_t row = k * b->size, last = bppsa_min(row + b->size, b->rows);
    int64_t correct = 0;
    b->losses[k] = (b->logits->dtype == BPPSA_F32 ? block_loss_f32 : block_loss_f64)(b->logits, b->labels, b->seed, b->rows, row,
                                                                                     last, &correct);
    b->corrects[k] = correct;
  }
}

static bppsa_status on_cpu(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels, const bppsa_view *seed,
                           int64_t rows, bppsa_loss_result *result) {
  enum { LOGIT_FLOPS = 80 }; /* an exponential takes as long as so many FLOP of a kernel */
  const int64_t size = bppsa_block_terms(rows, ROWS_PER_BLOCK), blocks = (rows - 1) / size + 1;
  double losses[BPPSA_BLOCKS];
  int64_t corrects[BPPSA_BLOCKS];
  const block_losses all = {logits, labels, seed, rows, size, losses, corrects};
  bppsa_parallel_for(bppsa_threads(device), blocks, bppsa_loop_work(LOGIT_FLOPS * (double)bppsa_view_count(logits), 0),
                     sum_blocks, &all);
  bppsa_loss_result total = {.rows = rows};
  for (int64_t k = 0; k < blocks; ++k) {
    total.loss += losses[k];
    total.correct += corrects[k];
  }
  total.loss /= (double)rows;
  *result = total;
  return BPPSA_OK;
}

/* The labels and what the kernels need, in memory of its own for the while. */
static bppsa_status on_gpu(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels, const bppsa_view *seed,
                           int64_t rows, bppsa_loss_result *result) {
  const int64_t label_bytes = rows * (int64_t)sizeof *labels, scratch = (LINE + label_bytes + LINE - 1) / LINE * LINE;
  bppsa_gpu_result found = {0};
  void *memory;
  BPPSA_TRY(bppsa_memory_alloc(device, scratch + bppsa_loss_scratch(rows), &memory));
  char *at = memory;
  bppsa_status status = bppsa_memory_put(device, at + LINE, labels, label_bytes);
  if (status == BPPSA_OK) {
    status = bppsa_loss_queue(device, logits, (const int64_t *)(at + LINE), seed, rows, at + scratch, memory);
  }
  if (status == BPPSA_OK) {
    status = bppsa_memory_get(device, &found, memory, sizeof found);
  }
  bppsa_memory_free(device, memory);
  BPPSA_TRY(status);
  *result = (bppsa_loss_result){.loss = found.loss, .correct = found.correct, .rows = rows};
  return BPPSA_OK;
}

bppsa_status bppsa_cross_entropy(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels,
                                 const bppsa_view *seed, bppsa_loss_result *result) {
  int64_t rows;
  BPPSA_TRY(check(device, logits, labels, seed, &rows));
  return (logits->device == BPPSA_CPU ? on_cpu : on_gpu)(device, logits, labels, seed, rows, result);
}

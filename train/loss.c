#include "train/loss.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "core/base/host_device.h"
#include "core/compute/memory.h"
#include "core/compute/pool.h"
#include "core/compute/simd.h"
#include "train/blocks.h"
#include "train/loss_internal.h"

/* Does a row take no part in the loss? */
static bool is_left_out(const bppsa_loss_job *job, int64_t row) {
  const int64_t batch = job->logits->shape[job->logits->ndim - 2];
  return (job->objective.ignores && job->labels[row] == job->objective.ignored) ||
         (job->lengths != NULL && row / batch >= job->lengths[row % batch]) || (job->weights != NULL && job->weights[row] == 0);
}

#define EACH_REAL "train/loss.inc"
#include "core/base/each_real.inc"

enum { ROWS_PER_BLOCK = 16, LINE = 256 /* bytes between parts of GPU memory */ };

static int64_t padded(int64_t bytes) {
  return (bytes + LINE - 1) / LINE * LINE;
}

static int64_t rows_of(const bppsa_view *logits) {
  return bppsa_view_count(logits) / logits->shape[logits->ndim - 1];
}

/* Checks a model's outputs and the array for their gradient. */
static bppsa_status check_views(const bppsa_device *device, const bppsa_view *logits, const bppsa_view *seed) {
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
  return BPPSA_OK;
}

/* Checks that labels are in 0 .. C-1 or left out; *counted: the number of labels that are not left out. */
static bppsa_status check_labels(const bppsa_loss_job *job, int64_t *counted) {
  const bppsa_view *logits = job->logits;
  const int64_t classes = logits->shape[logits->ndim - 1], batch = logits->shape[logits->ndim - 2];
  int64_t count = 0;
  for (int64_t r = 0; r < job->rows; ++r) {
    const int64_t label = job->labels[r];
    if (is_left_out(job, r)) {
      continue;
    }
    if (label < 0 || label >= classes) {
      char step[48] = "";
      if (logits->ndim == 3) {
        (void)snprintf(step, sizeof step, ", time step %lld", (long long)(r / batch + 1));
      }
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "label %lld at sample %lld of the batch%s, expected 0 .. %lld", (long long)label,
                        (long long)(r % batch), step, (long long)classes - 1);
    }
    ++count;
  }
  *counted = count;
  return BPPSA_OK;
}

/* Checks that targets are in [0, 1], except in rows that the job leaves out (NULL: there is no job). */
static bppsa_status check_binary(const char *where, const bppsa_view *targets, const bppsa_loss_job *job) {
  const int64_t count = bppsa_view_count(targets), classes = targets->shape[targets->ndim - 1];
  for (int64_t i = 0; i < count; ++i) {
    const double value = bppsa_view_get(targets, i);
    if (!(value >= 0 && value <= 1) && (job == NULL || !is_left_out(job, i / classes))) {
      char text[BPPSA_SHAPE_TEXT];
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: value %g at %s, expected 0 .. 1 for the binary cross-entropy", where, value,
                        bppsa_index_text(targets, i, text, sizeof text));
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_binary_targets_check(const char *where, const bppsa_view *targets) {
  BPPSA_REQUIRE(where != NULL && targets != NULL);
  return check_binary(where, targets, NULL);
}

static bppsa_status check_targets(const bppsa_view *targets, const bppsa_loss_job *job) {
  const bppsa_view *outputs = job->logits;
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT];
  if (!bppsa_view_same_shape(targets, outputs) || targets->dtype != outputs->dtype || targets->device != BPPSA_CPU ||
      !bppsa_view_contiguous(targets)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "targets: %s %s, expected %s %s as the outputs, contiguous in host memory",
                      bppsa_dtype_name(targets->dtype), bppsa_shape_text(targets->ndim, targets->shape, found, sizeof found),
                      bppsa_dtype_name(outputs->dtype),
                      bppsa_shape_text(outputs->ndim, outputs->shape, expected, sizeof expected));
  }
  return job->objective.kind == BPPSA_LOSS_BINARY ? check_binary("targets", targets, job) : BPPSA_OK;
}

/* Computes the losses of blocks of rows. */
typedef struct {
  const bppsa_loss_job *job;
  double terms; /* of the mean */
  int64_t size; /* rows in a block */
  double *losses;
  int64_t *corrects;
} block_losses;

static void sum_blocks(const void *context, int32_t worker, int64_t first, int64_t end) {
  const block_losses *b = context;
  const bool narrow = b->job->logits->dtype == BPPSA_F32;
  (void)worker;
  for (int64_t k = first; k < end; ++k) {
    const int64_t row = k * b->size, last = bppsa_min(row + b->size, b->job->rows);
    int64_t correct = 0;
    b->losses[k] = (narrow ? block_loss_f32 : block_loss_f64)(b->job, b->terms, row, last, &correct);
    b->corrects[k] = correct;
  }
}

/* *sum: the weights of the rows that are not left out; without weights the number of these rows, `counted`. */
static bppsa_status sum_weights(const bppsa_loss_job *job, int64_t counted, double *sum) {
  double total = job->weights != NULL ? 0 : (double)counted;
  for (int64_t r = 0; job->weights != NULL && r < job->rows; ++r) {
    const double weight = job->weights[r];
    if (!(weight >= 0 && isfinite(weight))) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "weight %g of row %lld of the batch, expected a finite number of 0 or more", weight,
                        (long long)r);
    }
    total += is_left_out(job, r) ? 0 : weight;
  }
  *sum = total;
  return BPPSA_OK;
}

/* The loss on a CPU; `counted` rows of the job are not left out. */
static bppsa_status on_cpu(const bppsa_device *device, const bppsa_loss_job *job, int64_t counted, bppsa_loss_result *result) {
  enum { LOGIT_FLOPS = 80 }; /* an exponential takes as long as this many FLOP of a kernel */
  const bppsa_view *logits = job->logits;
  const int64_t size = bppsa_block_terms(job->rows, ROWS_PER_BLOCK), blocks = (job->rows - 1) / size + 1;
  double weight = 0;
  BPPSA_TRY(sum_weights(job, counted, &weight));
  const double mean = job->mean_rows > 0 ? (double)job->mean_rows : weight;
  const double terms = mean * (double)(job->labels == NULL ? logits->shape[logits->ndim - 1] : 1);
  double losses[BPPSA_BLOCKS];
  int64_t corrects[BPPSA_BLOCKS];
  const block_losses all = {job, terms, size, losses, corrects};
  bppsa_parallel_for(bppsa_threads(device), blocks, bppsa_loop_work(LOGIT_FLOPS * (double)bppsa_view_count(logits), 0),
                     sum_blocks, &all);
  bppsa_loss_result total = {.rows = counted, .weight = weight};
  for (int64_t k = 0; k < blocks; ++k) {
    total.loss += losses[k];
    total.correct += corrects[k];
  }
  total.loss = counted > 0 ? total.loss / terms : 0.0;
  total.correct = job->labels == NULL ? -counted : total.correct;
  *result = total;
  return BPPSA_OK;
}

/* The loss on a GPU, which counts the rows itself. Allocates memory for what the kernels read and need, and frees it. */
static bppsa_status on_gpu(const bppsa_device *device, const bppsa_loss_job *job, int64_t counted, bppsa_loss_result *result) {
  const void *compared = job->labels != NULL ? (const void *)job->labels : job->targets;
  const int64_t bytes = job->labels != NULL ? job->rows * (int64_t)sizeof *job->labels : (int64_t)bppsa_view_bytes(job->logits);
  const int64_t batch = job->logits->shape[job->logits->ndim - 2];
  const int64_t lengths = padded(LINE + bytes), weights = padded(lengths + batch * (int64_t)sizeof *job->lengths);
  const int64_t scratch = weights + (job->weights != NULL ? padded(job->rows * (int64_t)sizeof *job->weights) : 0);
  double sum;
  bppsa_gpu_result found = {0};
  bppsa_loss_job on_device = *job;
  void *memory;
  BPPSA_TRY(sum_weights(job, counted, &sum)); /* only checks the weights */
  BPPSA_TRY(bppsa_memory_alloc(device, scratch + bppsa_loss_scratch(job->rows), &memory));
  char *at = memory;
  on_device.labels = job->labels != NULL ? (const int64_t *)(at + LINE) : NULL;
  on_device.targets = at + LINE;
  on_device.lengths = job->lengths != NULL ? (const int64_t *)(void *)(at + lengths) : NULL;
  on_device.weights = job->weights != NULL ? (const double *)(void *)(at + weights) : NULL;
  bppsa_status status = bppsa_memory_put(device, at + LINE, compared, bytes);
  if (status == BPPSA_OK && job->lengths != NULL) {
    status = bppsa_memory_put(device, at + lengths, job->lengths, batch * (int64_t)sizeof *job->lengths);
  }
  if (status == BPPSA_OK && job->weights != NULL) {
    status = bppsa_memory_put(device, at + weights, job->weights, job->rows * (int64_t)sizeof *job->weights);
  }
  if (status == BPPSA_OK) {
    status = bppsa_loss_queue(device, &on_device, at + scratch, memory);
  }
  if (status == BPPSA_OK) {
    status = bppsa_memory_get(device, &found, memory, sizeof found);
  }
  bppsa_memory_free(device, memory);
  BPPSA_TRY(status);
  *result = bppsa_loss_part_found(&found);
  return BPPSA_OK;
}

/* mean_rows: 0 where the mean is over the counted rows. */
static bppsa_status of_rows(const bppsa_device *device, const bppsa_view *outputs, const bppsa_loss_rows *rows, int64_t mean_rows,
                            const bppsa_view *seed, bppsa_loss_result *result) {
  BPPSA_REQUIRE((rows->labels == NULL) != (rows->targets == NULL));
  bppsa_loss_job job = {.logits = outputs,
                        .seed = seed,
                        .labels = rows->labels,
                        .objective = rows->objective,
                        .lengths = outputs->ndim == 3 ? rows->lengths : NULL,
                        .weights = rows->weights,
                        .mean_rows = mean_rows};
  int64_t counted = 0;
  BPPSA_TRY(check_views(device, outputs, seed));
  job.rows = rows_of(outputs);
  if (rows->labels != NULL) {
    BPPSA_TRY(check_labels(&job, &counted));
  } else {
    BPPSA_TRY(check_targets(rows->targets, &job));
    job.targets = rows->targets->data;
    for (int64_t r = 0; r < job.rows; ++r) {
      counted += job.lengths == NULL || !is_left_out(&job, r);
    }
  }
  return (outputs->device == BPPSA_CPU ? on_cpu : on_gpu)(device, &job, counted, result);
}

bppsa_status bppsa_cross_entropy(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels,
                                 const bppsa_view *seed, bppsa_loss_result *result) {
  BPPSA_REQUIRE(logits != NULL && labels != NULL && result != NULL);
  return of_rows(device, logits, &(bppsa_loss_rows){.labels = labels}, 0, seed, result);
}

bppsa_status bppsa_loss_of(const bppsa_device *device, const bppsa_view *outputs, const bppsa_loss_rows *rows,
                           const bppsa_view *seed, bppsa_loss_result *result) {
  BPPSA_REQUIRE(outputs != NULL && rows != NULL && result != NULL);
  return of_rows(device, outputs, rows, 0, seed, result);
}

bppsa_status bppsa_loss_part(const bppsa_device *device, const bppsa_view *outputs, const bppsa_loss_rows *rows,
                             const bppsa_view *seed, bppsa_loss_result *result) {
  BPPSA_REQUIRE(outputs != NULL && rows != NULL && result != NULL);
  if (rows->mean_rows < 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "loss of a part of %lld rows, expected 1 or more", (long long)rows->mean_rows);
  }
  return of_rows(device, outputs, rows, rows->mean_rows, seed, result);
}

/* ---- queued ---- */

int64_t bppsa_loss_part_memory(int64_t rows) {
  return LINE + padded(rows * (int64_t)sizeof(int64_t)) + bppsa_loss_scratch(rows);
}

int64_t bppsa_loss_found_bytes(void) {
  return sizeof(bppsa_gpu_result);
}

bppsa_loss_result bppsa_loss_part_found(const void *found) {
  const bppsa_gpu_result *result = found;
  return (bppsa_loss_result){.loss = result->loss, .correct = result->correct, .rows = result->rows, .weight = result->weight};
}

bppsa_status bppsa_loss_check_labels(const bppsa_view *logits, const int64_t *labels) {
  BPPSA_REQUIRE(logits != NULL && labels != NULL);
  const bppsa_loss_job job = {.logits = logits, .labels = labels, .rows = rows_of(logits)};
  int64_t counted;
  return check_labels(&job, &counted);
}

bppsa_status bppsa_loss_part_queue(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels, int64_t mean_rows,
                                   const bppsa_view *seed, void *memory, void *found) {
  BPPSA_REQUIRE(device != NULL && logits != NULL && labels != NULL && memory != NULL && found != NULL);
  BPPSA_TRY(check_views(device, logits, seed));
  if (mean_rows < 1 || logits->device != BPPSA_CUDA) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "queued loss of a part of %lld rows, expected 1 or more, and logits on a GPU",
                      (long long)mean_rows);
  }
  const int64_t rows = rows_of(logits), bytes = rows * (int64_t)sizeof *labels;
  char *on_device = (char *)memory + LINE;
  const bppsa_loss_job job = {
      .logits = logits, .seed = seed, .rows = rows, .labels = (const int64_t *)(void *)on_device, .mean_rows = mean_rows};
  BPPSA_TRY(bppsa_memory_queue_put(device, on_device, labels, bytes));
  BPPSA_TRY(bppsa_loss_queue(device, &job, on_device + padded(bytes), memory));
  return bppsa_memory_queue_get(device, found, memory, sizeof(bppsa_gpu_result));
}

double bppsa_accuracy(int64_t correct, int64_t rows) {
  if (correct < 0) {
    return (double)NAN;
  }
  return rows > 0 ? (double)correct / (double)rows : 0.0;
}

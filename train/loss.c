#include "train/loss.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "train/blocks.h"

#define BPPSA_REAL 32
#include "train/loss.inc"
#undef BPPSA_REAL
#define BPPSA_REAL 64
#include "train/loss.inc"
#undef BPPSA_REAL

enum { ROWS_PER_BLOCK = 16 };

static bppsa_status check(const bppsa_view *logits, const int64_t *labels, const bppsa_view *seed, int64_t *rows) {
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT];
  bppsa_shape_text(logits->ndim, logits->shape, expected, sizeof expected);
  if ((logits->ndim != 2 && logits->ndim != 3) || bppsa_view_count(logits) < 1) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "logits: shape %s, expected [samples, classes] or [steps, samples, classes]", expected);
  }
  if ((logits->dtype != BPPSA_F32 && logits->dtype != BPPSA_F64) || logits->device != BPPSA_CPU ||
      !bppsa_view_contiguous(logits)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "logits: expected a contiguous host array of f32 or f64");
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

bppsa_status bppsa_cross_entropy(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels,
                                 const bppsa_view *seed, bppsa_loss_result *result) {
  int64_t rows;
  BPPSA_TRY(check(logits, labels, seed, &rows));
  const int64_t size = bppsa_block_terms(rows, ROWS_PER_BLOCK), blocks = (rows - 1) / size + 1;
  double losses[BPPSA_BLOCKS];
  int64_t corrects[BPPSA_BLOCKS];
  const int32_t threads = bppsa_threads(device);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && blocks > 4)
  for (int64_t k = 0; k < blocks; ++k) {
    const int64_t first = k * size, end = bppsa_min(first + size, rows);
    int64_t correct = 0;
    losses[k] = (logits->dtype == BPPSA_F32 ? block_loss_f32 : block_loss_f64)(logits, labels, seed, rows, first, end, &correct);
    corrects[k] = correct;
  }
  bppsa_loss_result total = {.rows = rows};
  for (int64_t k = 0; k < blocks; ++k) {
    total.loss += losses[k];
    total.correct += corrects[k];
  }
  total.loss /= (double)rows;
  *result = total;
  return BPPSA_OK;
}

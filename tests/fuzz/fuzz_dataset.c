/* Reader: train/data/dataset_npy.c, orders of samples (train/order.c), their lengths (train/data/lengths.c), where they begin anew
 * (train/data/resets.c), their weights (train/data/loss_weights.c). The parts are the headers and the elements of X, Y, and of an
 * order that is taken for lengths, resets and weights too; options: labels for every step, real targets, an ignored label, the
 * dtype of the batch. */
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/device_buffer.h"
#include "core/files/npy.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/make.h"
#include "train/data/lengths.h"
#include "train/data/loss_weights.h"
#include "train/data/resets.h"
#include "train/order.h"

/* Fills a batch of the first and the last sample, and its targets. */
static void fill(const bppsa_dataset *d, bppsa_dtype dtype) {
  const int64_t indices[2] = {0, d->samples - 1};
  const bool real = bppsa_objective_real(&d->objective);
  int64_t shape[4];
  bppsa_buffer x = {0}, targets = {0};
  const int32_t ndim = bppsa_dataset_shape(d, 2, shape);
  FUZZ_CHECK(bppsa_buffer_create(NULL, dtype, ndim, shape, &x) == BPPSA_OK);
  int64_t *labels = bppsa_calloc(2 * d->seq_len, sizeof *labels);
  FUZZ_CHECK(labels != NULL);
  const bool finite = bppsa_dataset_check(d, dtype) == BPPSA_OK;
  FUZZ_CHECK(bppsa_dataset_fill(d, NULL, 2, indices, &x.view, real ? NULL : labels) == BPPSA_OK);
  for (int64_t i = 0; finite && i < bppsa_view_count(&x.view); ++i) {
    const double value = bppsa_view_get(&x.view, i);
    FUZZ_CHECK(value - value == 0);
  }
  for (int64_t i = 0; !real && i < 2 * (d->labels_per_step ? d->seq_len : 1); ++i) {
    FUZZ_CHECK((d->objective.ignores && labels[i] == d->objective.ignored) || (labels[i] >= 0 && labels[i] < d->classes));
  }
  if (real) {
    const int64_t wide[3] = {d->seq_len, 2, d->classes};
    FUZZ_CHECK(bppsa_buffer_create(NULL, dtype, d->labels_per_step ? 3 : 2, d->labels_per_step ? wide : wide + 1, &targets) ==
               BPPSA_OK);
    FUZZ_CHECK(bppsa_dataset_targets(d, 2, indices, &targets.view) == BPPSA_OK);
  }
  bppsa_free(labels);
  bppsa_buffer_free(&x);
  bppsa_buffer_free(&targets);
}

/* As `train --order`, cli/train.c. */
static void order(const fuzz_input *input, int64_t samples) {
  char path[256];
  bppsa_buffer array = {0};
  fuzz_write_array(path, "order.npy", &input->part[4]);
  if (input->count < 6 || bppsa_npy_load(path, &array) != BPPSA_OK) {
    return;
  }
  const bppsa_view *v = &array.view;
  if (v->dtype == BPPSA_I64 && (v->ndim == 1 || v->ndim == 2) && v->shape[v->ndim - 1] >= 1 && bppsa_view_count(v) > 0) {
    const bppsa_order given = {.kind = BPPSA_ORDER_GIVEN,
                               .indices = v->data,
                               .epochs = v->ndim == 2 ? v->shape[0] : 0,
                               .samples = v->shape[v->ndim - 1]};
    char text[64];
    if (bppsa_order_check(&given, samples, 1) == BPPSA_OK) {
      const int64_t count = bppsa_order_samples(&given, samples);
      int64_t *indices = bppsa_calloc(count, sizeof *indices);
      FUZZ_CHECK(indices != NULL);
      bppsa_order_fill(&given, 1, 1, samples, indices);
      for (int64_t i = 0; i < count; ++i) {
        FUZZ_CHECK(indices[i] >= 0 && indices[i] < samples);
      }
      (void)bppsa_order_text(&given, text, sizeof text);
      bppsa_free(indices);
    }
  }
  bppsa_buffer_free(&array);
}

/* The third array may be the samples' lengths too, */
static void lengths(const fuzz_input *input, bppsa_dataset *dataset) {
  char path[256];
  fuzz_write_array(path, "lengths.npy", &input->part[4]);
  if (input->count >= 6 && bppsa_dataset_load_lengths(dataset, path) == BPPSA_OK) {
    for (int64_t i = 0; i < dataset->samples; ++i) {
      FUZZ_CHECK(dataset->lengths[i] >= 1 && dataset->lengths[i] <= dataset->seq_len);
    }
  }
}

/* and say where they begin anew. */
static void resets(const fuzz_input *input, bppsa_dataset *dataset) {
  char path[256];
  fuzz_write_array(path, "resets.npy", &input->part[4]);
  if (input->count >= 6 && bppsa_dataset_load_resets(dataset, path) == BPPSA_OK) {
    for (int64_t i = 0; i < dataset->samples * dataset->seq_len; ++i) {
      FUZZ_CHECK(dataset->resets[i] <= 1);
    }
  }
}

/* and be the weights of their losses. */
static void weights(const fuzz_input *input, bppsa_dataset *dataset) {
  char path[256];
  fuzz_write_array(path, "weights.npy", &input->part[4]);
  if (input->count >= 6 && bppsa_dataset_load_loss_weights(dataset, path) == BPPSA_OK) {
    for (int64_t i = 0; i < dataset->samples * (dataset->labels_per_step ? dataset->seq_len : 1); ++i) {
      FUZZ_CHECK(dataset->loss_weights[i] >= 0 && dataset->loss_weights[i] < 2);
    }
  }
}

bppsa_status fuzz_run(const fuzz_input *input) {
  char spec[600], x[256], y[256];
  bppsa_dataset *dataset = NULL;
  bppsa_dataset_options options = bppsa_dataset_options_default();
  options.labels_per_step = (input->options & 1) != 0;
  options.objective.kind = (input->options & 2) != 0 ? BPPSA_LOSS_SQUARED : BPPSA_LOSS_CROSS_ENTROPY;
  options.objective.ignores = (input->options & 4) != 0;
  options.objective.ignored = -100;
  fuzz_write_array(x, "x.npy", &input->part[0]);
  fuzz_write_array(y, "y.npy", &input->part[2]);
  snprintf(spec, sizeof spec, "npy:%s,%s", x, y);
  const bppsa_status status = bppsa_dataset_create(spec, &options, &dataset);
  if (status == BPPSA_OK) {
    fill(dataset, (input->options & 8) != 0 ? BPPSA_F64 : BPPSA_F32);
    order(input, dataset->samples);
    lengths(input, dataset);
    resets(input, dataset);
    weights(input, dataset);
  }
  bppsa_dataset_destroy(dataset);
  return status;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const struct {
    uint8_t options;
    const char *x_type, *x_shape, *y_type, *y_shape;
    size_t x_size, y_size;
  } seeds[] = {{0, "<f4", "(2, 3, 1)", "<i8", "(2,)", 24, 16},   {9, "<f8", "(2, 3, 1)", "<i4", "(2, 3)", 48, 24},
               {2, "<f4", "(2, 1, 2)", "<f8", "(2, 3)", 16, 48}, {3, "<f4", "(2, 2, 1)", "<f4", "(2, 2)", 16, 16},
               {4, "<f4", "(2, 1, 2, 2)", "|u1", "(2,)", 32, 2}, {8, "<f8", "(1, 1, 1)", "<u8", "(1,)", 8, 8},
               {0, "<f8", "(2, 1, 1)", "<i2", "(2,)", 16, 4},    {0, "<f4", "(3, 2, 1)", "<i8", "(3,)", 24, 24}};
  static const uint8_t elements[64] = {0, 0, 0, 0, 0, 0, 0, 0, 1};
  static const int64_t order[3] = {0, 1, 0}, steps[3] = {2, 1, 2};
  const bool last = index == (int)(sizeof seeds / sizeof seeds[0]) - 1;
  if (index >= (int)(sizeof seeds / sizeof seeds[0])) {
    return false;
  }
  fuzz_add_number(seed, seeds[index].options, 1);
  fuzz_add_array_parts(seed, seeds[index].x_type, seeds[index].x_shape, elements, seeds[index].x_size);
  fuzz_add_array_parts(seed, seeds[index].y_type, seeds[index].y_shape, elements, seeds[index].y_size);
  if (index == 1) { /* resets of two samples */
    fuzz_add_array_parts(seed, "|b1", "(2, 3)", elements, 6);
    return true;
  }
  fuzz_add_array_parts(seed, "<i8", index % 2 == 0 || last ? "(3,)" : "(1, 3)", last ? steps : order, sizeof order);
  return true;
}

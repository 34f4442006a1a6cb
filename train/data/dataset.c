#include "train/data/dataset.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "core/compute/pool.h"
#include "train/blocks.h"
#include "train/data/bitstream.h"
#include "train/data/dataset_internal.h"

typedef bppsa_status (*dataset_create)(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset);

static const struct {
  const char *name;
  dataset_create create;
} kinds[] = {{"bitstream", bppsa_dataset_bitstream},
             {"npy", bppsa_dataset_npy},
             {"irmas", bppsa_dataset_irmas},
             {"instruments", bppsa_dataset_instruments},
             {"cifar10", bppsa_dataset_cifar10}};

bppsa_dataset_options bppsa_dataset_options_default(void) {
  return (bppsa_dataset_options){0};
}

static bppsa_status check_count(const char *name, int64_t value) {
  if (value < 0 || value > BPPSA_MAX_SAMPLES) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data set: %s is %lld, expected 1 .. %lld", name, (long long)value,
                      (long long)BPPSA_MAX_SAMPLES);
  }
  return BPPSA_OK;
}

static bppsa_status create_kind(size_t kind, const char *spec, const char *argument, const bppsa_dataset_options *options,
                                bppsa_dataset **dataset) {
  bppsa_dataset *made = NULL;
  if (bppsa_objective_real(&options->objective) && kinds[kind].create != bppsa_dataset_npy) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data set '%.100s': has labels, expected npy:X,Y with real targets", spec);
  }
  BPPSA_TRY(kinds[kind].create(argument, options, &made));
  made->objective = options->objective;
  *dataset = made;
  return BPPSA_OK;
}

bppsa_status bppsa_dataset_create(const char *spec, const bppsa_dataset_options *options, bppsa_dataset **dataset) {
  if (spec == NULL || options == NULL || dataset == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data set: spec, options and dataset must not be NULL");
  }
  BPPSA_TRY(check_count("the number of samples", options->samples));
  BPPSA_TRY(check_count("the sequence length", options->seq_len));
  BPPSA_TRY(check_count("the size of a step", options->input));
  const bool files = strcmp(spec, "bitstream") != 0;
  if (options->input > 0 && files) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data set '%.100s': steps of %" PRId64 " features, expected the files' own size", spec,
                      options->input);
  }
  if (options->classes != 0 && (files || options->classes < 1 || options->classes > BPPSA_BITSTREAM_CLASSES)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data set '%.100s': %" PRId64 " classes, expected %s", spec, options->classes,
                      files ? "the files' own number" : "1 .. 10");
  }
  const char *colon = strchr(spec, ':');
  const size_t length = colon == NULL ? strlen(spec) : (size_t)(colon - spec);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    if (strlen(kinds[i].name) == length && strncmp(spec, kinds[i].name, length) == 0) {
      return create_kind(i, spec, colon == NULL ? NULL : colon + 1, options, dataset);
    }
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT,
                    "data set '%.100s': unknown kind, expected bitstream, npy:X,Y, irmas:DIR, instruments:DIR or cifar10:DIR",
                    spec);
}

void bppsa_dataset_destroy(bppsa_dataset *dataset) {
  if (dataset != NULL) {
    bppsa_free(dataset->lengths);
    bppsa_free(dataset->resets);
    bppsa_free(dataset->loss_weights);
    dataset->ops->destroy(dataset);
  }
}

int32_t bppsa_dataset_shape(const bppsa_dataset *dataset, int64_t count, int64_t shape[4]) {
  const bool images = dataset->image[0] > 0;
  const int64_t *image = dataset->image;
  const int64_t image_shape[4] = {count, image[0], image[1], image[2]}, steps[4] = {dataset->seq_len, count, dataset->input, 0};
  memcpy(shape, images ? image_shape : steps, sizeof steps);
  return images ? 4 : 3;
}

void bppsa_dataset_copy_row(bppsa_dtype from_dtype, const void *from, bppsa_dtype to_dtype, void *to, int64_t n) {
  if (from_dtype == to_dtype) {
    memcpy(to, from, (size_t)n * bppsa_dtype_size(to_dtype));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (to_dtype == BPPSA_F32) {
      ((float *)to)[i] = (float)((const double *)from)[i];
    } else {
      ((double *)to)[i] = ((const float *)from)[i];
    }
  }
}

typedef struct {
  bppsa_dtype dtype;
  const char *from;
  const int64_t *indices; /* size count */
  int64_t count, steps, input;
  const bppsa_view *x;
} batch_copy;

static void copy_steps(const void *context, int32_t worker, int64_t first, int64_t end) {
  const batch_copy *c = context;
  const size_t from_size = bppsa_dtype_size(c->dtype), to_size = bppsa_dtype_size(c->x->dtype);
  (void)worker;
  for (int64_t t = first; t < end; ++t) {
    for (int64_t s = 0; s < c->count; ++s) {
      const char *from = c->from + (size_t)((c->indices[s] * c->steps + t) * c->input) * from_size;
      char *to = (char *)c->x->data + (size_t)((t * c->count + s) * c->input) * to_size;
      bppsa_dataset_copy_row(c->dtype, from, c->x->dtype, to, c->input);
    }
  }
}

void bppsa_dataset_copy_steps(bppsa_dtype from_dtype, const void *from, int32_t threads, int64_t count, const int64_t *indices,
                              const bppsa_dataset *dataset, const bppsa_view *x) {
  bppsa_parallel_for(threads, dataset->seq_len, bppsa_loop_work(0, 2 * (double)bppsa_view_bytes(x)), copy_steps,
                     &(batch_copy){from_dtype, from, indices, count, dataset->seq_len, dataset->input, x});
}

void bppsa_dataset_copy_part(bppsa_dtype from_dtype, const void *from, int64_t first, int64_t width, int64_t steps,
                             const bppsa_dataset_part *part, void *to) {
  const size_t from_size = bppsa_dtype_size(from_dtype), to_size = bppsa_dtype_size(part->dtype);
  for (int64_t t = 0; to != NULL && t < steps; ++t) {
    bppsa_dataset_copy_row(from_dtype, (const char *)from + (size_t)((first + t) * width) * from_size, part->dtype,
                           (char *)to + (size_t)(t * part->apart * width) * to_size, width);
  }
}

/* Checks x: the batch's shape for `count` samples, contiguous, on the given device, f32 or f64. */
static bppsa_status check_batch(const bppsa_dataset *dataset, bppsa_device_kind kind, int64_t count, const bppsa_view *x) {
  char found[BPPSA_SHAPE_TEXT], wanted[BPPSA_SHAPE_TEXT];
  int64_t shape[4];
  if (count < 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "batch: %lld samples, expected at least 1", (long long)count);
  }
  if (x == NULL) {
    return BPPSA_OK;
  }
  const bppsa_view expected = bppsa_view_make(NULL, BPPSA_F32, bppsa_dataset_shape(dataset, count, shape), shape);
  if (!bppsa_view_same_shape(x, &expected)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "batch input: shape %s, expected %s",
                      bppsa_shape_text(x->ndim, x->shape, found, sizeof found),
                      bppsa_shape_text(expected.ndim, expected.shape, wanted, sizeof wanted));
  }
  if ((x->dtype != BPPSA_F32 && x->dtype != BPPSA_F64) || x->device != kind || !bppsa_view_contiguous(x)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "batch input: expected a contiguous array of f32 or f64 in %s memory",
                      kind == BPPSA_CPU ? "host" : "GPU");
  }
  return BPPSA_OK;
}

static bppsa_status check_indices(const bppsa_dataset *dataset, int64_t count, const int64_t *indices) {
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] < 0 || indices[i] >= dataset->samples) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "batch: data set index %lld at position %lld, expected 0 .. %lld",
                        (long long)indices[i], (long long)i, (long long)dataset->samples - 1);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_dataset_check(const bppsa_dataset *dataset, bppsa_dtype dtype) {
  BPPSA_REQUIRE(dataset != NULL);
  return dataset->ops->check == NULL ? BPPSA_OK : dataset->ops->check(dataset, dtype);
}

bppsa_status bppsa_dataset_fill(const bppsa_dataset *dataset, const bppsa_device *device, int64_t count, const int64_t *indices,
                                const bppsa_view *x, int64_t *labels) {
  BPPSA_REQUIRE(dataset != NULL && indices != NULL);
  BPPSA_TRY(check_batch(dataset, BPPSA_CPU, count, x));
  BPPSA_TRY(check_indices(dataset, count, indices));
  if (labels != NULL && bppsa_objective_real(&dataset->objective)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "batch: the data set has real targets, expected no labels to be asked for");
  }
  dataset->ops->fill(dataset, bppsa_threads(device), count, indices, x, labels);
  return BPPSA_OK;
}

bppsa_status bppsa_dataset_targets(const bppsa_dataset *dataset, int64_t count, const int64_t *indices,
                                   const bppsa_view *targets) {
  BPPSA_REQUIRE(dataset != NULL && indices != NULL && targets != NULL);
  const int64_t steps = dataset->labels_per_step ? dataset->seq_len : 1, shape[3] = {steps, count, dataset->classes};
  const bool per_step = dataset->labels_per_step;
  const bppsa_view expected = bppsa_view_make(NULL, targets->dtype, per_step ? 3 : 2, per_step ? shape : shape + 1);
  BPPSA_TRY(check_batch(dataset, BPPSA_CPU, count, NULL));
  BPPSA_TRY(check_indices(dataset, count, indices));
  if (!bppsa_objective_real(&dataset->objective)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "batch: the data set has labels, expected one with real targets");
  }
  if (!bppsa_view_same_shape(targets, &expected) || (targets->dtype != BPPSA_F32 && targets->dtype != BPPSA_F64) ||
      targets->device != BPPSA_CPU || !bppsa_view_contiguous(targets)) {
    char found[BPPSA_SHAPE_TEXT], wanted[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_SHAPE, "batch targets: shape %s, expected %s of f32 or f64, contiguous in host memory",
                      bppsa_shape_text(targets->ndim, targets->shape, found, sizeof found),
                      bppsa_shape_text(expected.ndim, expected.shape, wanted, sizeof wanted));
  }
  dataset->ops->targets(dataset, count, indices, targets);
  return BPPSA_OK;
}

bppsa_status bppsa_dataset_queue(const bppsa_dataset *dataset, const bppsa_device *device, int64_t count, const int64_t *indices,
                                 const bppsa_view *x, int64_t *labels) {
  BPPSA_REQUIRE(dataset != NULL && device != NULL && indices != NULL);
  BPPSA_TRY(check_batch(dataset, BPPSA_CUDA, count, x));
  if (dataset->ops->queue == NULL || bppsa_device_get_kind(device) != BPPSA_CUDA) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "batch: %s on device %s is made on the host", dataset->ops->name,
                      bppsa_device_get_name(device));
  }
  return dataset->ops->queue(dataset, device, count, indices, x, labels);
}

bppsa_status bppsa_split_make(int64_t samples, double fraction, bppsa_split *split) {
  if (samples < 1 || samples > BPPSA_MAX_SAMPLES) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "split: %lld samples, expected 1 .. %lld", (long long)samples,
                      (long long)BPPSA_MAX_SAMPLES);
  }
  if (!(fraction >= 0.0 && fraction < 1.0)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "validation fraction %g, expected 0 <= fraction < 1", fraction);
  }
  const int64_t validation = (int64_t)llround((double)samples * fraction);
  if (fraction > 0.0 && (validation == 0 || validation == samples)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "validation fraction %g of %lld samples leaves none for %s, expected at least one",
                      fraction, (long long)samples, validation == 0 ? "validation" : "training");
  }
  *split = (bppsa_split){.train = samples - validation, .validation = validation};
  return BPPSA_OK;
}

bppsa_status bppsa_dataset_split(const bppsa_dataset *dataset, double fraction, bppsa_split *split) {
  BPPSA_REQUIRE(dataset != NULL && split != NULL);
  BPPSA_TRY(bppsa_split_make(dataset->samples - dataset->held_out, fraction, split));
  split->validation = fraction > 0.0 ? split->validation : dataset->held_out;
  return BPPSA_OK;
}

void bppsa_shuffle(uint64_t seed, int64_t epoch, int64_t count, int64_t *order) {
  const uint64_t stream = BPPSA_STREAM_SHUFFLE + ((uint64_t)epoch << 8);
  for (int64_t i = 0; i < count; ++i) {
    order[i] = i;
  }
  for (int64_t i = count - 1; i > 0; --i) {
    const int64_t j = (int64_t)bppsa_random_below(seed, stream, (uint64_t)i, (uint64_t)i + 1);
    const int64_t moved = order[i];
    order[i] = order[j];
    order[j] = moved;
  }
}

/* A pair of NPY files, kept in memory: X [N,T,I] or [N,C,H,W] as f32 or f64 (core/files/npy.h); Y is labels [N] or [N,T], converted
 * to int64, or real targets [N], [N,C], [N,T] or [N,T,C]. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "core/base/number.h"
#include "core/files/npy.h"
#include "train/data/dataset_internal.h"
#include "train/loss.h"

typedef struct {
  bppsa_dataset base;
  bppsa_buffer x; /* [N, T, I]; images have the same layout with T = 1 */
  /* as in the file: labels [N] or [N, T]; real targets [N, C] or [N, T, C], with a last axis of 1 if the file has none */
  bppsa_buffer y;
  char *x_path; /* owned; y_path is in the same allocation */
  const char *y_path;
  bool whole; /* X is integers or bools in its file */
} npy_dataset;

/* x[t, s, :] = X[indices[s], t, :] */
static void npy_fill(const bppsa_dataset *dataset, int32_t threads, int64_t count, const int64_t *indices, const bppsa_view *x,
                     int64_t *labels) {
  const npy_dataset *self = (const npy_dataset *)dataset;
  const int64_t label_steps = dataset->labels_per_step ? dataset->seq_len : 1;
  for (int64_t t = 0; labels != NULL && t < label_steps; ++t) {
    for (int64_t s = 0; s < count; ++s) {
      /* checked when the files were loaded */
      (void)bppsa_number_whole(&self->y.view, indices[s] * label_steps + t, &labels[t * count + s]);
    }
  }
  if (x == NULL) {
    return;
  }
  bppsa_dataset_copy_steps(self->x.view.dtype, self->x.view.data, threads, count, indices, dataset, x);
}

/* targets[t, s, :] = Y[indices[s], t, :] */
static void npy_targets(const bppsa_dataset *dataset, int64_t count, const int64_t *indices, const bppsa_view *targets) {
  const npy_dataset *self = (const npy_dataset *)dataset;
  const int64_t steps = dataset->labels_per_step ? dataset->seq_len : 1, width = dataset->classes;
  const size_t from_size = bppsa_dtype_size(self->y.view.dtype), to_size = bppsa_dtype_size(targets->dtype);
  for (int64_t t = 0; t < steps; ++t) {
    for (int64_t s = 0; s < count; ++s) {
      const char *from = (const char *)self->y.view.data + (size_t)((indices[s] * steps + t) * width) * from_size;
      char *to = (char *)targets->data + (size_t)((t * count + s) * width) * to_size;
      bppsa_dataset_copy_row(self->y.view.dtype, from, targets->dtype, to, width);
    }
  }
}

static void npy_part(const bppsa_dataset *dataset, const bppsa_dataset_part *p) {
  const npy_dataset *self = (const npy_dataset *)dataset;
  const int64_t rows = dataset->labels_per_step ? dataset->seq_len : 1, count = dataset->labels_per_step ? p->steps : 1;
  for (int64_t t = 0; p->labels != NULL && t < count; ++t) {
    (void)bppsa_number_whole(&self->y.view, p->sample * rows + t, &p->labels[t * p->apart]); /* checked as in npy_fill */
  }
  bppsa_dataset_copy_part(self->y.view.dtype, self->y.view.data, p->sample * rows, dataset->classes, count, p, p->targets);
  bppsa_dataset_copy_part(self->x.view.dtype, self->x.view.data, p->sample * dataset->seq_len, dataset->input, p->steps, p, p->x);
}

static void npy_destroy(bppsa_dataset *dataset) {
  npy_dataset *self = (npy_dataset *)dataset;
  bppsa_buffer_free(&self->x);
  bppsa_buffer_free(&self->y);
  bppsa_free(self->x_path);
  bppsa_free(self);
}

/* Checks that every value is finite as `dtype`; the message gives the first that is not, and its place. */
static bppsa_status check_finite(const char *path, const bppsa_view *view, bppsa_dtype dtype) {
  const int64_t count = bppsa_view_count(view);
  for (int64_t i = 0; i < count; ++i) {
    const double value = bppsa_view_get(view, i);
    const bool finite = dtype == BPPSA_F32 ? isfinite((float)value) : isfinite(value);
    if (!finite) {
      char text[BPPSA_SHAPE_TEXT];
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: value %g at %s%s, expected finite values", path, value,
                        bppsa_index_text(view, i, text, sizeof text), isfinite(value) ? " is beyond f32" : "");
    }
  }
  return BPPSA_OK;
}

/* Checks that f32 holds the file's whole numbers exactly; the message gives the first that it does not hold. */
static bppsa_status check_whole(const char *path, const bppsa_view *view) {
  const int64_t count = bppsa_view_count(view);
  for (int64_t i = 0; i < count; ++i) {
    const double value = bppsa_view_get(view, i);
    if ((double)(float)value != value) {
      char text[BPPSA_SHAPE_TEXT];
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: the integer %.0f at %s, expected a number that f32 holds, or --dtype f64", path,
                        value, bppsa_index_text(view, i, text, sizeof text));
    }
  }
  return BPPSA_OK;
}

static bppsa_status npy_check(const bppsa_dataset *dataset, bppsa_dtype dtype) {
  const npy_dataset *self = (const npy_dataset *)dataset;
  BPPSA_TRY(dtype == BPPSA_F32 && self->whole ? check_whole(self->x_path, &self->x.view) : BPPSA_OK);
  if (dtype == BPPSA_F32 && self->x.view.dtype == BPPSA_F64) {
    BPPSA_TRY(check_finite(self->x_path, &self->x.view, dtype));
  }
  return dtype == BPPSA_F32 && self->y.view.dtype == BPPSA_F64 ? check_finite(self->y_path, &self->y.view, dtype) : BPPSA_OK;
}

static const bppsa_dataset_ops npy_ops = {
    .name = "npy", .fill = npy_fill, .destroy = npy_destroy, .targets = npy_targets, .check = npy_check, .part = npy_part};

/* Checks that X is [N >= 1, T >= 1, I >= 1] or [N >= 1, C >= 1, H >= 1, W >= 1], finite f32 or f64. */
static bppsa_status check_x(const char *path, const bppsa_view *x) {
  char text[BPPSA_SHAPE_TEXT];
  bppsa_shape_text(x->ndim, x->shape, text, sizeof text);
  if (x->ndim != 3 && x->ndim != 4) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: shape %s, expected [samples, steps, inputs] or [samples, channels, height, width]",
                      path, text);
  }
  for (int32_t d = 0; d < x->ndim; ++d) {
    if (x->shape[d] < 1 || (d < 2 && x->shape[d] > BPPSA_MAX_SAMPLES)) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "%s: shape %s is %s, expected [samples, %s], each at least 1", path, text,
                        x->shape[d] < 1 ? "empty" : "too large", x->ndim == 4 ? "channels, height, width" : "steps, inputs");
    }
  }
  return check_finite(path, x, BPPSA_F64);
}

/* Says which axes look swapped if Y, [N], [N,T] or [N,T,C], disagrees with X [N,T,I]; appended to the message, "" if no swap
 * fits. Tries the axes of Y first. */
static const char *guess_axes(const bppsa_view *y, const bppsa_view *x, bool per_step, char *text, size_t size) {
  static const struct {
    const char *words;
    int32_t sample, step; /* the axes of X that are taken for N and T */
  } orders[] = {{"[T, N, I]", 1, 0}, {"[N, I, T]", 0, 2}, {"[T, I, N]", 2, 0}, {"[I, N, T]", 1, 2}, {"[I, T, N]", 2, 1}};
  const int64_t *found = y->shape;
  text[0] = '\0';
  if (x->ndim != 3 || (found[0] == x->shape[0] && (!per_step || found[1] == x->shape[1]))) {
    return text;
  }
  if (per_step) {
    const int64_t expected[3] = {x->shape[0], x->shape[1], y->ndim == 3 ? found[2] : 1};
    bppsa_shape_guess(y->ndim == 3 ? "[N, T, C]" : "[N, T]", y->ndim, found, expected, text, size);
  }
  for (size_t i = 0; text[0] == '\0' && i < sizeof orders / sizeof orders[0]; ++i) {
    if (x->shape[orders[i].sample] == found[0] && (!per_step || x->shape[orders[i].step] == found[1])) {
      snprintf(text, size, ": the inputs are [N, T, I], but look like %s", orders[i].words);
    }
  }
  return text;
}

/* Checks that Y is [N], or [N,T] with a label for each step, and agrees with X. */
static bppsa_status check_y_shape(const char *path, const bppsa_view *y, const bppsa_view *x, bool per_step) {
  char text[BPPSA_SHAPE_TEXT];
  bppsa_shape_text(y->ndim, y->shape, text, sizeof text);
  if (y->dtype == BPPSA_F32 || y->dtype == BPPSA_F64 || y->dtype == BPPSA_F16) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: dtype %s, expected integer labels, or the mean squared error as the loss", path,
                      bppsa_dtype_name(y->dtype));
  }
  if (per_step && x->ndim == 4) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: a label for every step of images, expected the loss on the last step", path);
  }
  if (y->ndim != (per_step ? 2 : 1)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: shape %s, expected %s", path, text,
                      per_step ? "[samples, steps] with the loss on all steps" : "[samples] with the loss on the last step");
  }
  if (y->shape[0] != x->shape[0] || (per_step && y->shape[1] != x->shape[1])) {
    char expected[BPPSA_SHAPE_TEXT], guess[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: shape %s disagrees with the inputs' %lld samples of %lld steps, expected %s%s", path,
                      text, (long long)x->shape[0], (long long)x->shape[1],
                      bppsa_shape_text(per_step ? 2 : 1, x->shape, expected, sizeof expected),
                      guess_axes(y, x, per_step, guess, sizeof guess));
  }
  return BPPSA_OK;
}

/* Checks that Y is reals [N] or [N,C], for every step [N,T] or [N,T,C], and agrees with X. Adds a missing last axis of extent 1. */
static bppsa_status take_targets(const char *path, const bppsa_view *x, const bppsa_dataset_options *options, bppsa_view *y,
                                 int64_t *width) {
  const bool per_step = options->labels_per_step;
  const int32_t axes = per_step ? 2 : 1;
  char text[BPPSA_SHAPE_TEXT];
  bppsa_shape_text(y->ndim, y->shape, text, sizeof text);
  if (y->dtype != BPPSA_F32 && y->dtype != BPPSA_F64) { /* integers are more likely labels than targets */
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: dtype %s, expected f32 or f64 targets of the %s", path,
                      bppsa_dtype_name(y->dtype),
                      options->objective.kind == BPPSA_LOSS_BINARY ? "binary cross-entropy" : "mean squared error");
  }
  if (per_step && x->ndim == 4) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: a target for every step of images, expected the loss on the last step", path);
  }
  if (y->ndim != axes && y->ndim != axes + 1) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: shape %s, expected %s", path, text,
                      per_step ? "[samples, steps] or [samples, steps, targets] with the loss on all steps"
                               : "[samples] or [samples, targets] with the loss on the last step");
  }
  const int64_t values = y->ndim == axes ? 1 : y->shape[axes];
  if (y->shape[0] != x->shape[0] || (per_step && y->shape[1] != x->shape[1]) || values < 1 || values > INT32_MAX) {
    char guess[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_SHAPE,
                      "%s: shape %s disagrees with the inputs' %lld samples of %lld steps, expected as many and at least one "
                      "target each%s",
                      path, text, (long long)x->shape[0], (long long)x->shape[1],
                      guess_axes(y, x, per_step, guess, sizeof guess));
  }
  BPPSA_TRY(check_finite(path, y, BPPSA_F64));
  BPPSA_TRY(options->objective.kind == BPPSA_LOSS_BINARY ? bppsa_binary_targets_check(path, y) : BPPSA_OK);
  const int64_t shape[3] = {y->shape[0], per_step ? y->shape[1] : values, values};
  *y = bppsa_view_make(y->data, y->dtype, axes + 1, shape);
  *width = values;
  return BPPSA_OK;
}

/* *classes = 1 + the largest label that is not ignored. */
static bppsa_status check_labels(const char *path, const bppsa_view *y, const bppsa_dataset_options *options, int64_t *classes) {
  const int64_t count = bppsa_view_count(y), width = y->ndim == 2 ? y->shape[1] : 1;
  int64_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t label = 0;
    const bool fits = bppsa_number_whole(y, i, &label);
    if (fits && options->objective.ignores && label == options->objective.ignored) {
      continue;
    }
    if (!fits || label < 0 || label >= INT32_MAX) {
      char where[64], shown[24];
      const int64_t index[2] = {i / width, i % width};
      snprintf(shown, sizeof shown, fits ? "%" PRId64 : "%" PRIu64, fits ? label : ((const int64_t *)y->data)[i]); /* of u64 */
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: label %s at %s, expected 0 .. %lld", path, shown,
                        bppsa_shape_text(y->ndim, index, where, sizeof where), (long long)INT32_MAX - 1);
    }
    largest = label > largest ? label : largest;
  }
  *classes = largest + 1;
  return BPPSA_OK;
}

static bppsa_status check_option(const char *path, const char *name, int64_t asked, int64_t found) {
  if (asked != 0 && asked != found) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s has %lld %s, but %lld were asked for, expected the file's number or none", path,
                      (long long)found, name, (long long)asked);
  }
  return BPPSA_OK;
}

/* The upper half is the CRC-32 of X, the lower half that of Y. */
static uint64_t checksum(const npy_dataset *self) {
  const uLong none = crc32_z(0, NULL, 0);
  const uLong x = crc32_z(none, self->x.view.data, bppsa_view_bytes(&self->x.view));
  const uLong y = crc32_z(none, self->y.view.data, bppsa_view_bytes(&self->y.view));
  return (uint64_t)x << 32 | (uint64_t)y;
}

static bppsa_status npy_load(npy_dataset *self, const bppsa_dataset_options *options) {
  const char *x_path = self->x_path, *y_path = self->y_path;
  bppsa_dataset *base = &self->base;
  BPPSA_TRY(bppsa_npy_load(x_path, &self->x));
  const bppsa_dtype stored = self->x.view.dtype;
  self->whole = stored != BPPSA_F16 && stored != BPPSA_F32 && stored != BPPSA_F64;
  BPPSA_TRY(bppsa_npy_to_reals(x_path, &self->x));
  BPPSA_TRY(check_x(x_path, &self->x.view));
  BPPSA_TRY(bppsa_npy_load(y_path, &self->y));
  if (bppsa_objective_real(&options->objective)) {
    BPPSA_TRY(self->y.view.dtype == BPPSA_F16 ? bppsa_npy_to_reals(y_path, &self->y) : BPPSA_OK);
    BPPSA_TRY(take_targets(y_path, &self->x.view, options, &self->y.view, &base->classes));
  } else {
    BPPSA_TRY(check_y_shape(y_path, &self->y.view, &self->x.view, options->labels_per_step));
    BPPSA_TRY(check_labels(y_path, &self->y.view, options, &base->classes));
  }
  const int64_t *shape = self->x.view.shape;
  const bool images = self->x.view.ndim == 4;
  base->samples = shape[0];
  base->seq_len = images ? 1 : shape[1];
  base->input = images ? shape[1] * shape[2] * shape[3] : shape[2];
  if (images) {
    memcpy(base->image, shape + 1, sizeof base->image);
  }
  base->labels_per_step = options->labels_per_step;
  base->identity = checksum(self);
  BPPSA_TRY(check_option(x_path, "samples", options->samples, base->samples));
  return check_option(x_path, "time steps", options->seq_len, base->seq_len);
}

bppsa_status bppsa_dataset_npy(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset) {
  const char *comma = argument == NULL ? NULL : strchr(argument, ',');
  if (comma == NULL || comma == argument || comma[1] == '\0' || strchr(comma + 1, ',') != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data set 'npy%s%.200s': expected two files separated by one comma, npy:X,Y",
                      argument == NULL ? "" : ":", argument == NULL ? "" : argument);
  }
  npy_dataset *made = bppsa_calloc(1, sizeof *made);
  char *x_path = bppsa_strdup(argument);
  if (made == NULL || x_path == NULL) {
    bppsa_free(made);
    bppsa_free(x_path);
    return BPPSA_ERR_MEMORY;
  }
  made->base.ops = &npy_ops;
  x_path[comma - argument] = '\0';
  made->x_path = x_path;
  made->y_path = x_path + (comma - argument) + 1;
  const bppsa_status status = npy_load(made, options);
  if (status != BPPSA_OK) {
    npy_destroy(&made->base);
    return status;
  }
  *dataset = &made->base;
  return BPPSA_OK;
}

#include "core/base/view.h"

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"

static const struct {
  const char *name;
  size_t size; /* bytes per element */
} dtypes[BPPSA_DTYPE_COUNT] = {
    [BPPSA_F32] = {"f32", 4}, [BPPSA_F64] = {"f64", 8},   [BPPSA_I64] = {"i64", 8}, [BPPSA_I32] = {"i32", 4},
    [BPPSA_I16] = {"i16", 2}, [BPPSA_I8] = {"i8", 1},     [BPPSA_U8] = {"u8", 1},   [BPPSA_BOOL] = {"bool", 1},
    [BPPSA_F16] = {"f16", 2}, [BPPSA_BF16] = {"bf16", 2}, [BPPSA_U16] = {"u16", 2}, [BPPSA_U32] = {"u32", 4},
    [BPPSA_U64] = {"u64", 8},
};

static bool dtype_known(bppsa_dtype dtype) {
  return (unsigned)dtype < BPPSA_DTYPE_COUNT;
}

size_t bppsa_dtype_size(bppsa_dtype dtype) {
  return dtype_known(dtype) ? dtypes[dtype].size : 0;
}

int64_t bppsa_dtype_padded(bppsa_dtype dtype, int64_t width) {
  const int64_t line = dtype_known(dtype) ? BPPSA_ALIGNMENT / (int64_t)bppsa_dtype_size(dtype) : 1;
  return (width + line - 1) / line * line;
}

const char *bppsa_dtype_name(bppsa_dtype dtype) {
  return dtype_known(dtype) ? dtypes[dtype].name : "unknown";
}

const char *bppsa_view_dtype_name(const bppsa_view *view) {
  return view->dtype == BPPSA_DTYPE_OTHER && view->data != NULL ? view->data : bppsa_dtype_name(view->dtype);
}

bppsa_status bppsa_dtype_parse(const char *text, bppsa_dtype *dtype) {
  BPPSA_REQUIRE(text != NULL && dtype != NULL);
  if (strcmp(text, "f32") == 0) {
    *dtype = BPPSA_F32;
    return BPPSA_OK;
  }
  if (strcmp(text, "f64") == 0) {
    *dtype = BPPSA_F64;
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "dtype \"%s\": expected f32 or f64", text);
}

bppsa_view bppsa_view_make(void *data, bppsa_dtype dtype, int32_t ndim, const int64_t *shape) {
  if (ndim < 0 || ndim > BPPSA_MAX_DIMS || (shape == NULL && ndim > 0)) {
    bppsa_fail(BPPSA_ERR_ARGUMENT, "view: %d dimensions%s, expected 0 .. %d and the shape", (int)ndim,
               shape == NULL ? " and no shape" : "", BPPSA_MAX_DIMS);
    return (bppsa_view){.dtype = BPPSA_DTYPE_COUNT, .device = BPPSA_CPU, .ndim = 1, .strides = {1}};
  }
  bppsa_view view = {.data = data, .dtype = dtype, .device = BPPSA_CPU, .ndim = ndim};
  int64_t stride = 1; /* an extent of 0 counts as 1, as in NumPy */
  for (int32_t d = ndim - 1; d >= 0; --d) {
    view.shape[d] = shape[d];
    view.strides[d] = stride;
    stride =
        (int64_t)((uint64_t)stride * (uint64_t)(shape[d] > 0 ? shape[d] : 1)); /* bppsa_shape_bytes tells what is too large */
  }
  return view;
}

int64_t bppsa_view_count(const bppsa_view *view) {
  int64_t count = 1;
  for (int32_t d = 0; d < view->ndim; ++d) {
    count = (int64_t)((uint64_t)count * (uint64_t)view->shape[d]);
  }
  return count;
}

size_t bppsa_view_bytes(const bppsa_view *view) {
  return (size_t)bppsa_view_count(view) * bppsa_dtype_size(view->dtype);
}

bppsa_status bppsa_view_check_data(const char *what, const bppsa_view *view) {
  BPPSA_REQUIRE(what != NULL && view != NULL);
  return view->data != NULL || bppsa_view_count(view) == 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: its data are NULL, expected an array", what);
}

bool bppsa_view_contiguous(const bppsa_view *view) {
  if (bppsa_view_count(view) == 0) {
    return true;
  }
  int64_t stride = 1;
  for (int32_t d = view->ndim - 1; d >= 0; --d) {
    if (view->shape[d] != 1 && view->strides[d] != stride) {
      return false;
    }
    stride *= view->shape[d];
  }
  return true;
}

bool bppsa_view_same_shape(const bppsa_view *a, const bppsa_view *b) {
  if (a->ndim != b->ndim) {
    return false;
  }
  for (int32_t d = 0; d < a->ndim; ++d) {
    if (a->shape[d] != b->shape[d]) {
      return false;
    }
  }
  return true;
}

bppsa_status bppsa_shape_bytes(bppsa_dtype dtype, int32_t ndim, const int64_t *shape, int64_t *count, size_t *bytes) {
  if (!dtype_known(dtype)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "dtype %d: not a dtype", (int)dtype);
  }
  if (ndim < 0 || ndim > BPPSA_MAX_DIMS) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%d dimensions, expected 0 .. %d", (int)ndim, BPPSA_MAX_DIMS);
  }
  BPPSA_REQUIRE(ndim == 0 || shape != NULL);
  char text[BPPSA_SHAPE_TEXT];
  int64_t product = (int64_t)dtypes[dtype].size; /* of extents of at least 1, because strides must fit as well */
  bool empty = false;
  for (int32_t d = 0; d < ndim; ++d) {
    if (shape[d] < 0) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "shape %s: extent %d is negative", bppsa_shape_text(ndim, shape, text, sizeof text),
                        (int)d);
    }
    empty = empty || shape[d] == 0;
    if (shape[d] > 0 && !bppsa_mul(product, shape[d], &product)) {
      return bppsa_fail(BPPSA_ERR_MEMORY, "shape %s of %s: the bytes do not fit in 64 bits",
                        bppsa_shape_text(ndim, shape, text, sizeof text), dtypes[dtype].name);
    }
  }
  const int64_t total = empty ? 0 : product;
  if (count != NULL) {
    *count = total / (int64_t)dtypes[dtype].size;
  }
  if (bytes != NULL) {
    *bytes = (size_t)total;
  }
  return BPPSA_OK;
}

/* Axis `axis` of "[B, C, H, W]": the beginning of its name, and its length. */
static const char *axis_name(const char *words, int32_t axis, int *length) {
  const char *at = words + 1;
  for (int32_t d = 0; d < axis; ++d) {
    at += strcspn(at, ",");
    at += strspn(at, ", ");
  }
  *length = (int)strcspn(at, ",]");
  return at;
}

const char *bppsa_shape_guess(const char *words, int32_t ndim, const int64_t *found, const int64_t *expected, char *text,
                              size_t size) {
  bool taken[BPPSA_MAX_DIMS] = {false}, other = false;
  size_t used = (size_t)snprintf(text, size, "; it looks like [");
  for (int32_t d = 0; d < ndim; ++d) {
    int32_t e = 0;
    while (e < ndim && (taken[e] || expected[e] != found[d])) {
      ++e;
    }
    if (e == ndim) {
      text[0] = '\0';
      return text;
    }
    int length = 0;
    const char *name = axis_name(words, e, &length);
    taken[e] = true;
    other = other || e != d;
    used += used < size ? (size_t)snprintf(text + used, size - used, "%s%.*s", d > 0 ? ", " : "", length, name) : 0;
  }
  if (!other || used + 2 > size) {
    text[0] = '\0';
    return text;
  }
  memcpy(text + used, "]", 2);
  return text;
}

const char *bppsa_shape_text(int32_t ndim, const int64_t *shape, char *text, size_t size) {
  if (size == 0) {
    return "";
  }
  size_t used = (size_t)snprintf(text, size, "[");
  for (int32_t d = 0; d < ndim && used < size; ++d) {
    used += (size_t)snprintf(text + used, size - used, "%s%lld", d > 0 ? ", " : "", (long long)shape[d]);
  }
  if (used < size) {
    snprintf(text + used, size - used, "]");
  }
  return text;
}

const char *bppsa_index_text(const bppsa_view *view, int64_t i, char *text, size_t size) {
  int64_t index[BPPSA_MAX_DIMS] = {0};
  for (int32_t d = view->ndim - 1; d >= 0; --d) {
    index[d] = i % view->shape[d];
    i /= view->shape[d];
  }
  return bppsa_shape_text(view->ndim, index, text, size);
}

bppsa_status bppsa_view_convert(const bppsa_view *from, const bppsa_view *to) {
  BPPSA_REQUIRE(from != NULL && to != NULL);
  if (!bppsa_view_same_shape(from, to)) {
    char a[BPPSA_SHAPE_TEXT], b[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_SHAPE, "shape %s, expected %s", bppsa_shape_text(from->ndim, from->shape, a, sizeof a),
                      bppsa_shape_text(to->ndim, to->shape, b, sizeof b));
  }
  if (from->device != BPPSA_CPU || to->device != BPPSA_CPU || !bppsa_view_contiguous(from) || !bppsa_view_contiguous(to)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "conversion needs contiguous arrays in host memory");
  }
  const int64_t n = bppsa_view_count(from);
  if (from->dtype == to->dtype) {
    if (n > 0) {
      memmove(to->data, from->data, bppsa_view_bytes(from));
    }
    return BPPSA_OK;
  }
  if (from->dtype == BPPSA_F32 && to->dtype == BPPSA_F64) {
    const float *x = from->data;
    double *y = to->data;
    for (int64_t i = 0; i < n; ++i) {
      y[i] = (double)x[i];
    }
    return BPPSA_OK;
  }
  if (from->dtype == BPPSA_F64 && to->dtype == BPPSA_F32) {
    const double *x = from->data;
    float *y = to->data;
    for (int64_t i = 0; i < n; ++i) {
      y[i] = (float)x[i];
    }
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "conversion from %s to %s, expected f32 or f64 on both sides",
                    bppsa_dtype_name(from->dtype), bppsa_dtype_name(to->dtype));
}

double bppsa_view_get(const bppsa_view *view, int64_t i) {
  return view->dtype == BPPSA_F32 ? (double)((const float *)view->data)[i] : ((const double *)view->data)[i];
}

void bppsa_view_set(const bppsa_view *view, int64_t i, double value) {
  if (view->dtype == BPPSA_F32) {
    ((float *)view->data)[i] = (float)value;
  } else {
    ((double *)view->data)[i] = value;
  }
}

void bppsa_view_scale(const bppsa_view *view, double factor) {
  const int64_t count = bppsa_view_count(view);
  for (int64_t i = 0; i < count; ++i) {
    bppsa_view_set(view, i, factor * bppsa_view_get(view, i));
  }
}

const char *bppsa_view_guess(const char *words, const bppsa_view *view, int32_t ndim, const int64_t *expected,
                             char text[BPPSA_SHAPE_TEXT]) {
  text[0] = '\0';
  return view->ndim == ndim ? bppsa_shape_guess(words, ndim, view->shape, expected, text, BPPSA_SHAPE_TEXT) : text;
}

int64_t bppsa_view_batch(const bppsa_view *x, int64_t steps, int64_t width) {
  const bool turned = x->ndim == 3 && x->shape[0] != steps && x->shape[1] == steps && x->shape[2] == width;
  return x->ndim != 3 ? 0 : turned ? x->shape[0] : x->shape[1];
}

bppsa_status bppsa_view_check_shape(const char *where, const bppsa_view *view, const char *words, int32_t ndim,
                                    const int64_t *shape) {
  BPPSA_REQUIRE(where != NULL && view != NULL && words != NULL && shape != NULL && ndim >= 0);
  bool same = view->ndim == ndim;
  for (int32_t d = 0; same && d < ndim; ++d) {
    same = view->shape[d] == shape[d];
  }
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT], guess[BPPSA_SHAPE_TEXT];
  return same ? BPPSA_OK
              : bppsa_fail(BPPSA_ERR_SHAPE, "%s: shape %s, expected %s = %s%s", where,
                           bppsa_shape_text(view->ndim, view->shape, found, sizeof found), words,
                           bppsa_shape_text(ndim, shape, expected, sizeof expected),
                           bppsa_view_guess(words, view, ndim, shape, guess));
}

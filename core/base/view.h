/* Borrowed views of arrays, with the fields of DLPack: pointer, dtype, shape, strides, device. A view never owns its memory. It is
 * row-major unless strides say otherwise; strides count elements.
 */
#ifndef BPPSA_CORE_BASE_VIEW_H
#define BPPSA_CORE_BASE_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BPPSA_MAX_DIMS 8 /* the most extents of a view */

typedef enum {
  BPPSA_F32 = 0,
  BPPSA_F64,
  BPPSA_I64,
  /* The following occur in files only; nothing computes with them. */
  BPPSA_I32,
  BPPSA_I16,
  BPPSA_I8,
  BPPSA_U8,
  BPPSA_BOOL,
  BPPSA_F16,
  BPPSA_BF16,
  BPPSA_U16,
  BPPSA_U32,
  BPPSA_U64,
  BPPSA_DTYPE_COUNT,
  /* Any other type of a file. A view of it has a shape, but no elements: its data are the type's name, a text. */
  BPPSA_DTYPE_OTHER
} bppsa_dtype;

typedef enum { BPPSA_CPU = 0, BPPSA_CUDA = 1 } bppsa_device_kind; /* in whose memory an array lies */

typedef struct {
  void *data;
  bppsa_dtype dtype;
  bppsa_device_kind device;
  int32_t ndim;                    /* 0 (a scalar) .. BPPSA_MAX_DIMS */
  int64_t shape[BPPSA_MAX_DIMS];   /* extents, size ndim */
  int64_t strides[BPPSA_MAX_DIMS]; /* in elements, size ndim */
} bppsa_view;

/* A view with a name: a weight, a gradient, a tensor of a file. The name is borrowed too. */
typedef struct {
  const char *name;
  bppsa_view view;
} bppsa_named_view;

size_t bppsa_dtype_size(bppsa_dtype dtype); /* bytes per element */
/* Elements in a row of `width` that is padded to whole cache lines (BPPSA_ALIGNMENT bytes), so that kernels read its end without
 * masks. */
int64_t bppsa_dtype_padded(bppsa_dtype dtype, int64_t width);
const char *bppsa_dtype_name(bppsa_dtype dtype);           /* "f32" */
const char *bppsa_view_dtype_name(const bppsa_view *view); /* the same, or as its file names a type of BPPSA_DTYPE_OTHER */
/* "f32" or "f64" to the dtype; ERR_ARGUMENT for anything else. */
bppsa_status bppsa_dtype_parse(const char *text, bppsa_dtype *dtype);

/* A contiguous host view. `shape` has size ndim. Does not allocate. Where ndim is not in 0 .. BPPSA_MAX_DIMS, or the shape is NULL,
 * the view is empty, [0] without data and of no dtype, which every function refuses, and bppsa_last_error() tells why. */
bppsa_view bppsa_view_make(void *data, bppsa_dtype dtype, int32_t ndim, const int64_t *shape);
int64_t bppsa_view_count(const bppsa_view *view); /* product of the extents */
size_t bppsa_view_bytes(const bppsa_view *view);
/* ERR_ARGUMENT: a view of elements whose data are NULL; `what` names it. */
bppsa_status bppsa_view_check_data(const char *what, const bppsa_view *view);
bool bppsa_view_contiguous(const bppsa_view *view);
bool bppsa_view_same_shape(const bppsa_view *a, const bppsa_view *b);

/* Number of elements and bytes of a shape, with overflow checked: ERR_MEMORY names the shape, ERR_SHAPE a negative extent. */
bppsa_status bppsa_shape_bytes(bppsa_dtype dtype, int32_t ndim, const int64_t *shape, int64_t *count, size_t *bytes);

#define BPPSA_SHAPE_TEXT 192 /* holds any shape of BPPSA_MAX_DIMS extents */

/* Writes "[2, 3, 4]" into text (cut at size) and returns text. */
const char *bppsa_shape_text(int32_t ndim, const int64_t *shape, char *text, size_t size);

/* If `found` is `expected` with its axes in another order: "; it looks like [B, H, W, C]", with the axes' names from `words`, for
 * example "[B, C, H, W]"; otherwise "". For messages about a refused shape. Returns text. */
const char *bppsa_shape_guess(const char *words, int32_t ndim, const int64_t *found, const int64_t *expected, char *text,
                              size_t size);

/* The same for a view whose shape was refused; "" also where it has another number of axes. */
const char *bppsa_view_guess(const char *words, const bppsa_view *view, int32_t ndim, const int64_t *expected,
                             char text[BPPSA_SHAPE_TEXT]);

/* Returns the number of samples of a batch x [T,B,I], its second extent. Where x looks like [B,T,I] it is the first extent, so
 * that a message about the shape can say so; where x has not three axes it is 0. */
int64_t bppsa_view_batch(const bppsa_view *x, int64_t steps, int64_t width);

/* Checks that the view has this shape. For messages: `where` names the view, `words` is the shape in letters, "[B, C, H, W]".
 * ERR_SHAPE. */
bppsa_status bppsa_view_check_shape(const char *where, const bppsa_view *view, const char *words, int32_t ndim,
                                    const int64_t *shape);

/* "[3, 0, 2]": the indices of element i of a contiguous view. Returns text. */
const char *bppsa_index_text(const bppsa_view *view, int64_t i, char *text, size_t size);

/* Copies element by element between contiguous host views of equal shape, converting f32 <-> f64 (round to nearest).
 * ERR_SHAPE when shapes differ, ERR_UNSUPPORTED for other dtype pairs that are not equal. */
bppsa_status bppsa_view_convert(const bppsa_view *from, const bppsa_view *to);

/* The real at flat index i of a contiguous host f32 or f64 view, as double. */
double bppsa_view_get(const bppsa_view *view, int64_t i);
void bppsa_view_set(const bppsa_view *view, int64_t i, double value);
/* Multiplies every real of such a view by the factor, in double. */
void bppsa_view_scale(const bppsa_view *view, double factor);

#ifdef __cplusplus
}
#endif
#endif

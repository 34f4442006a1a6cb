#include <string.h>

#include "core/base/alloc.h"
#include "jacobian/jacobian_internal.h"

/* The outputs X that input position x reaches: from the first X with s X >= x + p - d (k - 1) on, those with s X + d t = x + p
 * for some tap t. With fill NULL they are only counted. */
static int64_t walk(int64_t x, const bppsa_axis *axis, int64_t stride, int64_t dilation, int64_t padding, bppsa_axis *fill,
                    int64_t at) {
  const int64_t y = x + padding, least = y - dilation * (axis->kernel - 1);
  int64_t X = least > 0 ? (least + stride - 1) / stride : 0, count = 0;
  for (; X < axis->out && X * stride <= y; ++X) {
    if ((y - X * stride) % dilation == 0) {
      if (fill != NULL) {
        fill->output[at + count] = (int32_t)X;
        fill->tap[at + count] = (int32_t)((y - X * stride) / dilation);
      }
      ++count;
    }
  }
  return count;
}

/* Finds the classes. The taps of a position are equally spaced, so the first tap and the number of taps identify them. heads
 * [kernel + 1]: for each first tap the latest class that begins with it (the last entry: positions without taps); next: the class
 * before that one. */
static void find_classes(bppsa_axis *axis, int32_t *heads, int32_t *next) {
  memset(heads, -1, (size_t)(axis->kernel + 1) * sizeof *heads);
  for (int64_t x = 0; x < axis->in; ++x) {
    const int64_t count = axis->ptr[x + 1] - axis->ptr[x], first = count > 0 ? axis->tap[axis->ptr[x]] : axis->kernel;
    int32_t c = heads[first];
    while (c >= 0 && axis->ptr[axis->member[c] + 1] - axis->ptr[axis->member[c]] != count) {
      c = next[c];
    }
    if (c < 0) {
      c = (int32_t)axis->classes++;
      axis->member[c] = (int32_t)x;
      next[c] = heads[first];
      heads[first] = c;
    }
    axis->class_of[x] = c;
  }
}

/* What has a number for each input position. */
static bppsa_status allocate_inputs(bppsa_axis *axis) {
  axis->ptr = bppsa_calloc(axis->in + 1, sizeof *axis->ptr);
  axis->class_of = bppsa_calloc(axis->in, sizeof *axis->class_of);
  axis->member = bppsa_calloc(axis->in, sizeof *axis->member);
  return axis->ptr == NULL || axis->class_of == NULL || axis->member == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

static bppsa_status fill_axis(bppsa_axis *axis, int64_t stride, int64_t dilation, int64_t padding) {
  BPPSA_TRY(allocate_inputs(axis));
  for (int64_t x = 0; x < axis->in; ++x) {
    axis->ptr[x + 1] = axis->ptr[x] + walk(x, axis, stride, dilation, padding, NULL, 0);
  }
  axis->output = bppsa_calloc(axis->ptr[axis->in], sizeof *axis->output);
  axis->tap = bppsa_calloc(axis->ptr[axis->in], sizeof *axis->tap);
  int32_t *heads = bppsa_calloc(axis->kernel + 1, sizeof *heads), *next = bppsa_calloc(axis->in, sizeof *next);
  const bool got = axis->output != NULL && axis->tap != NULL && heads != NULL && next != NULL;
  if (got) {
    for (int64_t x = 0; x < axis->in; ++x) {
      walk(x, axis, stride, dilation, padding, axis, axis->ptr[x]);
    }
    find_classes(axis, heads, next);
  }
  bppsa_free(heads);
  bppsa_free(next);
  return got ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

bppsa_status bppsa_axis_create(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t dilation, int64_t padding,
                               bppsa_axis *axis) {
  bppsa_axis made = {.in = in, .out = out, .kernel = kernel};
  const bppsa_status status = fill_axis(&made, stride, dilation, padding);
  if (status != BPPSA_OK) {
    bppsa_axis_free(&made);
    return status;
  }
  *axis = made;
  return BPPSA_OK;
}

/* Input x is in the windows X of an adaptive pool with floor(X in / out) <= x < ceil((X + 1) in / out). */
static bppsa_status fill_adaptive(const bppsa_op *op, int which, bppsa_axis *axis) {
  BPPSA_TRY(allocate_inputs(axis));
  for (int64_t x = 0; x < axis->in; ++x) {
    axis->ptr[x + 1] = axis->ptr[x] + ((x + 1) * axis->out - 1) / axis->in - x * axis->out / axis->in + 1;
    axis->class_of[x] = (int32_t)x; /* every position is a class of its own */
    axis->member[x] = (int32_t)x;
  }
  axis->classes = axis->in;
  axis->output = bppsa_calloc(axis->ptr[axis->in], sizeof *axis->output);
  axis->tap = bppsa_calloc(axis->ptr[axis->in], sizeof *axis->tap);
  if (axis->output == NULL || axis->tap == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t x = 0; x < axis->in; ++x) {
    for (int64_t e = axis->ptr[x], X = x * axis->out / axis->in; e < axis->ptr[x + 1]; ++e, ++X) {
      axis->output[e] = (int32_t)X;
      axis->tap[e] = (int32_t)(x - bppsa_op_window(op, which, X));
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_axis_of(const bppsa_op *op, int axis, int64_t out, bppsa_axis *made) {
  const int64_t in = op->in[axis + 1];
  if (op->kind != BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D && op->kind != BPPSA_OPERATOR_GLOBAL_AVGPOOL) {
    return bppsa_axis_create(in, out, op->kernel[axis], op->stride[axis], op->dilation[axis], op->padding[2 * axis], made);
  }
  bppsa_axis adaptive = {.in = in, .out = out, .kernel = in};
  const bppsa_status status = fill_adaptive(op, axis, &adaptive);
  if (status != BPPSA_OK) {
    bppsa_axis_free(&adaptive);
    return status;
  }
  *made = adaptive;
  return BPPSA_OK;
}

void bppsa_axis_free(bppsa_axis *axis) {
  bppsa_free(axis->ptr);
  bppsa_free(axis->output);
  bppsa_free(axis->tap);
  bppsa_free(axis->class_of);
  bppsa_free(axis->member);
  *axis = (bppsa_axis){0};
}

bppsa_status bppsa_axis_positions(const bppsa_axis axes[2], bppsa_csr *positions) {
  const bppsa_axis *h = &axes[0], *w = &axes[1];
  int64_t nnz;
  if (!bppsa_mul(h->ptr[h->in], w->ptr[w->in], &nnz)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "Jacobian: %lld x %lld entries of positions do not fit in 64 bits",
                      (long long)h->ptr[h->in], (long long)w->ptr[w->in]);
  }
  bppsa_csr s;
  BPPSA_TRY(bppsa_csr_create(h->in * w->in, h->out * w->out, nnz, &s));
  int64_t at = 0;
  for (int64_t x = 0; x < s.rows; ++x) {
    const int64_t x0 = x / w->in, x1 = x % w->in;
    for (int64_t p = h->ptr[x0]; p < h->ptr[x0 + 1]; ++p) {
      for (int64_t q = w->ptr[x1]; q < w->ptr[x1 + 1]; ++q) {
        s.col[at++] = (int32_t)(h->output[p] * w->out) + w->output[q];
      }
    }
    s.row_ptr[x + 1] = at;
  }
  *positions = s;
  return BPPSA_OK;
}

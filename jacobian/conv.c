/* Convolutions and linear operators. Row (ci, x) of Jᵀ holds w[co][ci][t] at column (co, X), for every output channel co of ci's
 * group and every X that x reaches through a tap t (jacobian_internal.h). Its columns are ordered by channel co, then by X in the
 * order of row x of S. A linear operator is a 1 x 1 convolution of C·H·W channels.
 */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "core/compute/stream.h"
#include "jacobian/jacobian_internal.h"
#include "jacobian/kernels.h"

#define AHEAD 16 /* rows of weights that are prefetched: each lies in a memory page of its own */

/* The place of tap t among the taps of a class along one axis, or -1. A class's taps decrease in equal steps. */
static int64_t tap_index(const bppsa_axis *axis, int64_t class_index, int64_t t) {
  const int64_t from = axis->ptr[axis->member[class_index]], count = axis->ptr[axis->member[class_index] + 1] - from;
  if (count == 0) {
    return -1;
  }
  const int64_t step = count > 1 ? axis->tap[from] - axis->tap[from + 1] : 1, below = axis->tap[from] - t;
  return below >= 0 && below % step == 0 && below / step < count ? below / step : -1;
}

/* The same for both axes: the place of tap t in a row of S. */
static int64_t slot_of(const bppsa_jacobian *j, int64_t class_index, int64_t t) {
  const bppsa_axis *w = &j->axes[1];
  const int64_t c1 = class_index % w->classes, i0 = tap_index(&j->axes[0], class_index / w->classes, t / w->kernel);
  const int64_t i1 = tap_index(w, c1, t % w->kernel), count = w->ptr[w->member[c1] + 1] - w->ptr[w->member[c1]];
  return i0 < 0 || i1 < 0 ? -1 : i0 * count + i1;
}

static int64_t class_of(const bppsa_jacobian *j, int64_t x) {
  const bppsa_axis *h = &j->axes[0], *w = &j->axes[1];
  return h->class_of[x / w->in] * w->classes + w->class_of[x % w->in];
}

/* Notes where the weight of entry `at` of class c, which is tap t, lies for every lane. A class's entries of one channel are
 * neighbours. */
static void fetch_entry(bppsa_jacobian *j, int64_t c, int64_t at, int64_t t) {
  const int64_t first = j->class_ptr[c], count = j->class_ptr[c + 1] - first;
  for (int64_t lane = 0; lane < j->lanes; ++lane) {
    j->class_from[j->lanes * first + lane * count + at - first] = (int32_t)(lane * j->stride + t);
  }
}

/* Chooses how many output channels are fetched at once. Weights of channels that are neighbours in memory fill whole cache lines:
 * 64 reals of every output channel are fetched together. Entries with few taps are fetched for 16 output channels together. */
static bppsa_status choose_blocks(bppsa_jacobian *j) {
  enum { MOST_TAPS = 1 << 26 };
  if (j->taps > MOST_TAPS) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %lld taps, expected at most %d", bppsa_op_name(&j->op), (long long)j->taps,
                      (int)MOST_TAPS);
  }
  j->channel_block = 64 / j->taps < 1 ? 1 : 64 / j->taps < j->height ? 64 / j->taps : j->height;
  j->lanes = j->taps <= 32 ? 16 : 1;
  j->stride = j->taps == 1 ? 1 : j->channel_block * j->taps;
  return BPPSA_OK;
}

static bppsa_status make_classes(bppsa_jacobian *j) {
  const bppsa_axis *h = &j->axes[0], *w = &j->axes[1];
  const int64_t classes = h->classes * w->classes;
  j->class_ptr = bppsa_calloc(classes + 1, sizeof *j->class_ptr);
  if (j->class_ptr == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int pass = 0; pass < 2; ++pass) { /* first count, then fill */
    int64_t at = 0;
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t m0 = h->member[c / w->classes], m1 = w->member[c % w->classes];
      for (int64_t p = h->ptr[m0]; p < h->ptr[m0 + 1]; ++p) {
        for (int64_t q = w->ptr[m1]; q < w->ptr[m1 + 1]; ++q, ++at) {
          if (pass == 1) {
            fetch_entry(j, c, at, h->tap[p] * w->kernel + w->tap[q]);
          }
        }
      }
      j->class_ptr[c + 1] = at;
    }
    if (pass == 0 && (j->class_from = bppsa_calloc(j->lanes * at, sizeof *j->class_from)) == NULL) {
      return BPPSA_ERR_MEMORY;
    }
  }
  return BPPSA_OK;
}

/* Lists the weights that the mask keeps, by input channel. */
static bppsa_status make_kept(bppsa_jacobian *j, const uint8_t *mask) {
  const int64_t channels = j->groups * j->height, weights = channels * j->width * j->taps;
  j->kept_ptr = bppsa_calloc(channels + 1, sizeof *j->kept_ptr);
  if (j->kept_ptr == NULL || j->width * j->taps > INT32_MAX) {
    return j->kept_ptr == NULL
               ? BPPSA_ERR_MEMORY
               : bppsa_fail(BPPSA_ERR_SHAPE, "Jacobian: %lld masked weights of a channel, expected at most 2147483647",
                            (long long)(j->width * j->taps));
  }
  int64_t count = 0;
  for (int64_t i = 0; i < weights; ++i) {
    count += mask[i] != 0;
  }
  j->kept = bppsa_calloc(count, sizeof *j->kept);
  if (j->kept == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  int64_t at = 0;
  for (int64_t ci = 0; ci < channels; ++ci) {
    const int64_t g = ci / j->height;
    for (int64_t c = 0; c < j->width; ++c) {
      const uint8_t *m = mask + ((g * j->width + c) * j->height + ci % j->height) * j->taps;
      for (int64_t t = j->taps - 1; t >= 0; --t) {
        if (m[t] != 0) {
          j->kept[at++] = (int32_t)(c * j->taps + t);
        }
      }
    }
    j->kept_ptr[ci + 1] = at;
  }
  return BPPSA_OK;
}

/* Counts the entries in a row of every class, for channel ci: count [classes]. */
static void count_kept(const bppsa_jacobian *j, int64_t ci, int64_t *count) {
  const int64_t classes = j->axes[0].classes * j->axes[1].classes;
  for (int64_t c = 0; c < classes; ++c) {
    count[c] = 0;
    for (int64_t p = j->kept_ptr[ci]; p < j->kept_ptr[ci + 1]; ++p) {
      count[c] += slot_of(j, c, j->kept[p] % j->taps) >= 0;
    }
  }
}

static void masked_columns(const bppsa_jacobian *j, int64_t ci, int64_t x, int32_t *to) {
  const bppsa_csr *s = &j->positions;
  const int64_t c = class_of(j, x), first = ci / j->height * j->width;
  for (int64_t p = j->kept_ptr[ci]; p < j->kept_ptr[ci + 1]; ++p) {
    const int64_t slot = slot_of(j, c, j->kept[p] % j->taps);
    if (slot >= 0) {
      *to++ = (int32_t)((first + j->kept[p] / j->taps) * s->cols) + s->col[s->row_ptr[x] + slot];
    }
  }
}

static void masked_rows(const void *context, int32_t worker, int64_t first, int64_t end) {
  const bppsa_jacobian *j = context;
  const int64_t plane = j->positions.rows;
  (void)worker;
  for (int64_t r = first; r < end; ++r) {
    masked_columns(j, r / plane, r % plane, j->pattern.col + j->pattern.row_ptr[r]);
  }
}

static bppsa_status masked_pattern(bppsa_jacobian *j, int64_t rows, int64_t cols) {
  const int64_t channels = j->groups * j->height, plane = j->positions.rows;
  const int64_t classes = j->axes[0].classes * j->axes[1].classes;
  int64_t *count = bppsa_calloc(classes, sizeof *count), *row_ptr = bppsa_calloc(rows + 1, sizeof *row_ptr);
  bppsa_status status = count == NULL || row_ptr == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t ci = 0; status == BPPSA_OK && ci < channels; ++ci) {
    count_kept(j, ci, count);
    for (int64_t x = 0; x < plane; ++x) {
      row_ptr[ci * plane + x + 1] = row_ptr[ci * plane + x] + count[class_of(j, x)];
    }
  }
  if (status == BPPSA_OK) {
    status = bppsa_csr_create(rows, cols, row_ptr[rows], &j->pattern);
  }
  if (status == BPPSA_OK) {
    memcpy(j->pattern.row_ptr, row_ptr, (size_t)(rows + 1) * sizeof *row_ptr);
    bppsa_parallel_for(j->threads, rows, bppsa_loop_work(0, 4 * sizeof(int32_t) * (double)j->pattern.nnz), masked_rows, j);
  }
  bppsa_free(count);
  bppsa_free(row_ptr);
  return status;
}

/* The positions of a linear operator's pattern: each of the H·W positions reaches the only output position. */
static bppsa_status linear_positions(const bppsa_op *op, bppsa_csr *s) {
  const int64_t plane = op->in[1] * op->in[2];
  BPPSA_TRY(bppsa_csr_create(plane, 1, plane, s));
  for (int64_t x = 0; x < plane; ++x) {
    s->col[x] = 0;
    s->row_ptr[x + 1] = x + 1;
  }
  return BPPSA_OK;
}

static bppsa_status make_axes(bppsa_jacobian *j) {
  const bppsa_op *op = &j->op;
  for (int axis = 0; axis < 2; ++axis) {
    BPPSA_TRY(op->kind == BPPSA_OPERATOR_LINEAR
                  ? bppsa_axis_create(1, 1, 1, 1, 1, 0, &j->axes[axis])
                  : bppsa_axis_create(op->in[axis + 1], j->out[axis + 1], op->kernel[axis], op->stride[axis], op->dilation[axis],
                                      op->padding[2 * axis], &j->axes[axis]));
  }
  return bppsa_axis_positions(j->axes, &j->positions);
}

static bppsa_status make_pattern(bppsa_jacobian *j, const uint8_t *mask) {
  const bppsa_op *op = &j->op;
  if (mask != NULL) {
    BPPSA_TRY(make_kept(j, mask));
    return masked_pattern(j, op->in[0] * op->in[1] * op->in[2], j->out[0] * j->out[1] * j->out[2]);
  }
  bppsa_csr positions;
  BPPSA_TRY(op->kind == BPPSA_OPERATOR_LINEAR ? linear_positions(op, &positions) : bppsa_csr_copy(&j->positions, &positions));
  BPPSA_TRY(bppsa_csr_from_blocks(j->groups, op->in[0], j->out[0], &positions, &j->pattern));
  return j->symbolic ? BPPSA_OK : bppsa_csr_expand(&j->pattern, j->threads);
}

bppsa_status bppsa_jacobian_conv_create(bppsa_jacobian *j, const uint8_t *mask) {
  const bppsa_op *op = &j->op;
  const bool linear = op->kind == BPPSA_OPERATOR_LINEAR;
  j->shared = true;
  j->groups = linear ? 1 : op->groups;
  j->width = op->out_channels / j->groups;
  j->height = linear ? op->in[0] * op->in[1] * op->in[2] : op->in[0] / j->groups;
  j->taps = linear ? 1 : op->kernel[0] * op->kernel[1];
  BPPSA_TRY(choose_blocks(j));
  BPPSA_TRY(make_axes(j));
  BPPSA_TRY(make_classes(j));
  BPPSA_TRY(make_pattern(j, mask));
  if (j->symbolic) {
    return BPPSA_OK;
  }
  int64_t packed, templates;
  if (!bppsa_mul(j->channel_block * j->width, j->taps, &packed) ||
      !bppsa_mul(j->width, j->class_ptr[j->axes[0].classes * j->axes[1].classes], &templates)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "Jacobian: scratch of %lld channels does not fit in 64 bits", (long long)j->width);
  }
  return bppsa_jacobian_reserve(j, packed + templates);
}

#define EACH_REAL "jacobian/conv.inc"
#include "core/base/each_real.inc"

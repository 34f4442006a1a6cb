/* Generators on a GPU: index arrays in its memory when one is made, a launch or two when values are filled. */
#include "core/alloc.h"
#include "core/check.cuh"
#include "core/memory_internal.h"
#include "jacobian/jacobian_internal.h"
#include "jacobian/jacobian_kernels.cuh"

/* One allocation, the parts of a family in it. */
struct bppsa_jacobian_gpu {
  int32_t index;
  cudaStream_t stream;
  void *memory;
  /* conv2d, linear (conv_fill): */
  const int32_t *class_of, *class_end, *items;
  const int64_t *start, *list;
  int64_t most; /* items of a class */
  /* pools: of every entry of S; the average's divisors, the others' row and column */
  const int64_t *divisors;
  const int32_t *rows, *cols;
  /* rnn, gru (step_fill): */
  const uint8_t *mask;
  const int32_t *entry;
  void *factors;
  int64_t samples; /* factors has room for */
};

namespace {

enum { THREADS = 256, WARP = 32, LINE_BYTES = 128, STAGED_BYTES = 24 * 1024, MOST_ACROSS = 128, MOST_COLS = 256 };
/* Blocks for a processor of 132 multiprocessors: enough of them that the last ones do not matter, and each with enough to write that its beginning does
 * not. */
enum { FEW_BLOCKS = 4 * 132, MANY_BLOCKS = 16 * 132, LEAST_BYTES = 16 * 1024, MOST_Y = 65535 };
enum { FACTOR_BYTES = 4 << 20, FACTORS = 4 };

int64_t parts_of(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* The least power of two that is at least `count`, at most `bound`. */
int power_for(int64_t count, int bound) {
  int power = 1;
  while (power < count && power < bound) {
    power *= 2;
  }
  return power;
}

/* ---- memory ---- */

/* A part of the one allocation: its contents, NULL: none yet; where it lies, once there. */
struct part {
  const void *from;
  int64_t bytes;
  void *to;
};

bppsa_status send(bppsa_jacobian_gpu *gpu, part *parts, int count) {
  int64_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    bytes += parts_of(parts[i].bytes, 256) * 256;
  }
  BPPSA_TRY(bppsa_cuda_alloc(gpu->index, bytes, &gpu->memory));
  char *at = (char *)gpu->memory;
  for (int i = 0; i < count; ++i) {
    parts[i].to = at;
    if (parts[i].from != NULL && parts[i].bytes > 0) {
      BPPSA_TRY(bppsa_cuda_put(gpu->index, gpu->stream, at, parts[i].from, parts[i].bytes));
    }
    at += parts_of(parts[i].bytes, 256) * 256;
  }
  return BPPSA_OK;
}

template <typename T> part part_of(const T *from, int64_t count) {
  return {from, count * (int64_t)sizeof(T), NULL};
}

/* ---- convolutions and linear operators: arrays ---- */

/* What is sent, in host memory. */
struct conv_arrays {
  int64_t plane, classes, channels;
  int32_t *class_of, *class_end, *items, *taps; /* taps: of every class, one behind the other, at class_ptr */
  int64_t *order, *start, *list, *cursor;       /* order: positions, sorted by class */
  uint8_t *in_class;                            /* of every tap */
  int64_t item_count;
};

void free_arrays(conv_arrays *a) {
  void *const blocks[] = {a->class_of, a->class_end, a->items, a->taps, a->order, a->start, a->list, a->cursor, a->in_class};
  for (void *block : blocks) {
    bppsa_free(block);
  }
}

bppsa_status sort_positions(const bppsa_jacobian *j, conv_arrays *a) {
  const bppsa_axis *h = &j->axes[0], *w = &j->axes[1];
  a->plane = h->in * w->in;
  a->classes = h->classes * w->classes;
  a->channels = j->groups * j->height;
  a->class_of = (int32_t *)bppsa_calloc(a->plane, sizeof *a->class_of);
  a->class_end = (int32_t *)bppsa_calloc(a->classes, sizeof *a->class_end);
  a->order = (int64_t *)bppsa_calloc(a->plane, sizeof *a->order);
  if (a->class_of == NULL || a->class_end == NULL || a->order == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t x = 0; x < a->plane; ++x) {
    a->class_end[h->class_of[x / w->in] * w->classes + w->class_of[x % w->in]] += 1;
  }
  int32_t before = 0; /* class_end: where each class begins, which then moves to its end */
  for (int64_t k = 0; k < a->classes; ++k) {
    const int32_t count = a->class_end[k];
    a->class_end[k] = before;
    before += count;
  }
  for (int64_t x = 0; x < a->plane; ++x) {
    const int64_t k = h->class_of[x / w->in] * w->classes + w->class_of[x % w->in];
    a->class_of[a->class_end[k]] = (int32_t)k;
    a->order[a->class_end[k]++] = x;
  }
  return BPPSA_OK;
}

/* The taps of every class. */
bppsa_status list_taps(const bppsa_jacobian *j, conv_arrays *a) {
  const bppsa_axis *h = &j->axes[0], *w = &j->axes[1];
  a->taps = (int32_t *)bppsa_calloc(j->class_ptr[a->classes], sizeof *a->taps);
  if (a->taps == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  int32_t *to = a->taps;
  for (int64_t k = 0; k < a->classes; ++k) {
    const int64_t m0 = h->member[k / w->classes], m1 = w->member[k % w->classes];
    for (int64_t p = h->ptr[m0]; p < h->ptr[m0 + 1]; ++p) {
      for (int64_t q = w->ptr[m1]; q < w->ptr[m1 + 1]; ++q) {
        *to++ = (int32_t)(h->tap[p] * w->kernel + w->tap[q]);
      }
    }
  }
  return BPPSA_OK;
}

bppsa_status plain_lists(const bppsa_jacobian *j, conv_arrays *a) {
  a->start = (int64_t *)bppsa_calloc(a->plane, sizeof *a->start);
  a->list = (int64_t *)bppsa_calloc(a->classes + 1, sizeof *a->list);
  if (a->start == NULL || a->list == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t p = 0; p < a->plane; ++p) {
    a->start[p] = j->positions.row_ptr[a->order[p]];
  }
  for (int64_t k = 0; k <= a->classes; ++k) {
    a->list[k] = j->class_ptr[k];
  }
  a->items = a->taps;
  a->taps = NULL;
  a->item_count = j->class_ptr[a->classes];
  return BPPSA_OK;
}

/* Kept weights of class k that belong to channel ci, counted, or with `fill` written behind its cursor. */
void list_kept(const bppsa_jacobian *j, conv_arrays *a, int64_t k, bool fill) {
  for (int64_t e = j->class_ptr[k]; e < j->class_ptr[k + 1]; ++e) {
    a->in_class[a->taps[e]] = 1;
  }
  for (int64_t ci = 0; ci < a->channels; ++ci) {
    int64_t *at = &a->cursor[ci * a->classes + k];
    for (int64_t p = j->kept_ptr[ci]; p < j->kept_ptr[ci + 1]; ++p) {
      const int64_t c = j->kept[p] / j->taps, t = j->kept[p] % j->taps;
      if (a->in_class[t] != 0 && fill) {
        a->items[*at] = (int32_t)(c * j->height * j->taps + t);
      }
      *at += a->in_class[t];
    }
  }
  for (int64_t e = j->class_ptr[k]; e < j->class_ptr[k + 1]; ++e) {
    a->in_class[a->taps[e]] = 0;
  }
}

bppsa_status masked_lists(const bppsa_jacobian *j, conv_arrays *a) {
  const int64_t lists = a->channels * a->classes;
  if (j->width * j->height * j->taps > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "Jacobian on a GPU: a mask of %lld weights in a group, expected at most 2147483647",
                      (long long)(j->width * j->height * j->taps));
  }
  a->start = (int64_t *)bppsa_calloc(a->channels * a->plane, sizeof *a->start);
  a->list = (int64_t *)bppsa_calloc(lists + 1, sizeof *a->list);
  a->cursor = (int64_t *)bppsa_calloc(lists, sizeof *a->cursor);
  a->in_class = (uint8_t *)bppsa_calloc(j->taps, 1);
  if (a->start == NULL || a->list == NULL || a->cursor == NULL || a->in_class == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < a->channels * a->plane; ++i) {
    a->start[i] = j->pattern.row_ptr[i / a->plane * a->plane + a->order[i % a->plane]];
  }
  for (int64_t k = 0; k < a->classes; ++k) {
    list_kept(j, a, k, false);
  }
  for (int64_t i = 0; i < lists; ++i) {
    a->list[i + 1] = a->list[i] + a->cursor[i];
    a->cursor[i] = a->list[i];
  }
  a->item_count = a->list[lists];
  a->items = (int32_t *)bppsa_calloc(a->item_count, sizeof *a->items);
  if (a->items == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t k = 0; k < a->classes; ++k) {
    list_kept(j, a, k, true);
  }
  return BPPSA_OK;
}

bppsa_status send_conv(const bppsa_jacobian *j, bppsa_jacobian_gpu *gpu, conv_arrays *a) {
  const bool masked = j->kept != NULL;
  BPPSA_TRY(sort_positions(j, a));
  BPPSA_TRY(list_taps(j, a));
  BPPSA_TRY(masked ? masked_lists(j, a) : plain_lists(j, a));
  const int64_t lists = masked ? a->channels * a->classes : a->classes;
  for (int64_t i = 0; i < lists; ++i) {
    gpu->most = most(gpu->most, a->list[i + 1] - a->list[i]);
  }
  part parts[] = {part_of(a->class_of, a->plane), part_of(a->class_end, a->classes),
                  part_of(a->start, masked ? a->channels * a->plane : a->plane), part_of(a->list, lists + 1),
                  part_of(a->items, a->item_count)};
  BPPSA_TRY(send(gpu, parts, 5));
  gpu->class_of = (const int32_t *)parts[0].to;
  gpu->class_end = (const int32_t *)parts[1].to;
  gpu->start = (const int64_t *)parts[2].to;
  gpu->list = (const int64_t *)parts[3].to;
  gpu->items = (const int32_t *)parts[4].to;
  return BPPSA_OK;
}

bppsa_status create_conv(const bppsa_jacobian *j, bppsa_jacobian_gpu *gpu) {
  conv_arrays arrays = {};
  const bppsa_status status = send_conv(j, gpu, &arrays);
  free_arrays(&arrays);
  return status;
}

/* ---- pools and steps: arrays ---- */

bppsa_status create_average(const bppsa_jacobian *j, bppsa_jacobian_gpu *gpu) {
  const bppsa_csr *s = &j->pattern.blocks->positions;
  int64_t *divisors = (int64_t *)bppsa_calloc(s->nnz, sizeof *divisors);
  if (divisors == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t e = 0; e < s->nnz; ++e) {
    divisors[e] = bppsa_op_pool_extent(&j->op, 0, s->col[e] / j->out[2]) * bppsa_op_pool_extent(&j->op, 1, s->col[e] % j->out[2]);
  }
  part parts[] = {part_of(divisors, s->nnz)};
  const bppsa_status status = send(gpu, parts, 1);
  gpu->divisors = (const int64_t *)parts[0].to;
  bppsa_free(divisors);
  return status;
}

bppsa_status create_largest(const bppsa_jacobian *j, bppsa_jacobian_gpu *gpu) {
  const bppsa_csr *s = &j->pattern.blocks->positions;
  int32_t *rows = (int32_t *)bppsa_calloc(s->nnz, sizeof *rows);
  if (rows == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t x = 0; x < s->rows; ++x) {
    for (int64_t e = s->row_ptr[x]; e < s->row_ptr[x + 1]; ++e) {
      rows[e] = (int32_t)x;
    }
  }
  part parts[] = {part_of(rows, s->nnz), part_of(s->col, s->nnz)};
  const bppsa_status status = send(gpu, parts, 2);
  gpu->rows = (const int32_t *)parts[0].to;
  gpu->cols = (const int32_t *)parts[1].to;
  bppsa_free(rows);
  return status;
}

/* Factors of as many samples as fit into a few megabytes; with a mask the entries' places too. */
bppsa_status create_step(const bppsa_jacobian *j, bppsa_jacobian_gpu *gpu) {
  const int64_t h = j->op.in[0], bytes = FACTORS * h * (int64_t)sizeof(double);
  gpu->samples = least(most(FACTOR_BYTES / bytes, STEP_ROWS), MOST_Y * (int64_t)STEP_ROWS);
  int32_t *entry = NULL;
  if (j->mask != NULL && j->pattern.nnz > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "Jacobian on a GPU: a mask that keeps %lld entries, expected at most 2147483647",
                      (long long)j->pattern.nnz);
  }
  if (j->mask != NULL) {
    entry = (int32_t *)bppsa_calloc(h * h, sizeof *entry);
    if (entry == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    for (int64_t i = 0; i < h * h; ++i) {
      entry[i] = -1;
    }
    for (int64_t i = 0; i < h; ++i) {
      for (int64_t p = j->pattern.row_ptr[i]; p < j->pattern.row_ptr[i + 1]; ++p) {
        entry[i * h + j->pattern.col[p]] = (int32_t)p;
      }
    }
  }
  part parts[] = {{NULL, gpu->samples * bytes, NULL},
                  part_of(entry, entry != NULL ? h * h : 0),
                  part_of(j->mask, j->mask != NULL ? bppsa_op_weights(&j->op) : 0)};
  const bppsa_status status = send(gpu, parts, 3);
  gpu->factors = parts[0].to;
  gpu->entry = entry != NULL ? (const int32_t *)parts[1].to : NULL;
  gpu->mask = j->mask != NULL ? (const uint8_t *)parts[2].to : NULL;
  bppsa_free(entry);
  return status;
}

/* ---- fills ---- */

bppsa_status launched() {
  return bppsa_cuda_check(cudaGetLastError(), "Jacobian: launch");
}

template <typename real> bool lies_on(const void *p, int reals) {
  return (uintptr_t)p % (reals * sizeof(real)) == 0;
}

/* Channels, columns and staging of a block: about a line of weights of each column, fewer where the blocks would be. */
template <typename real> void choose_blocks(const bppsa_jacobian *j, const bppsa_jacobian_gpu *gpu, conv_fill<real> *f) {
  const int64_t size = (int64_t)sizeof(real), bytes = j->pattern.nnz * size;
  int64_t channels = least(most(LINE_BYTES / size / j->taps, 1), j->height), cols = j->width;
  f->line = 0;
  if (j->kept == NULL && 4 * (j->taps + 1) * size > STAGED_BYTES) {
    channels = 1;
    cols = least(j->width, most(least((1 << 28) / gpu->most, MOST_COLS) / 4 * 4, 1));
  }
  for (bool chosen = j->kept != NULL || 4 * (j->taps + 1) * size > STAGED_BYTES; !chosen;) {
    f->line = channels * j->taps | 1;
    const int64_t fit = least(STAGED_BYTES / (f->line * size), MOST_COLS);
    cols = least(j->width, fit >= 128 ? fit / 128 * 128 : fit / 4 * 4);
    const int64_t blocks = j->groups * parts_of(j->height, channels) * parts_of(j->width, cols);
    chosen = channels == 1 || blocks >= FEW_BLOCKS || bytes / blocks < LEAST_BYTES;
    channels = chosen ? channels : parts_of(channels, 2);
  }
  f->channels = (int)(j->kept != NULL ? 1 : channels);
  f->cols = (int)cols;
  f->blocks = parts_of(j->height, f->channels);
  f->chunks = parts_of(j->width, cols);
}

/* Segments of positions, and threads: `across` of them along a row. Returns the number of threads. */
template <typename real> int choose_threads(const bppsa_jacobian *j, const bppsa_jacobian_gpu *gpu, int n, conv_fill<real> *f) {
  const int64_t blocks = j->groups * f->blocks * f->chunks, bytes = j->pattern.nnz * (int64_t)sizeof(real) / blocks;
  const int64_t segments = least(least(parts_of(MANY_BLOCKS / 2, blocks), most(bytes / LEAST_BYTES, 1)), f->plane);
  f->length = parts_of(f->plane, segments);
  f->segments = parts_of(f->plane, f->length);
  const int64_t packs = j->kept != NULL ? gpu->most : parts_of(f->cols * gpu->most, n);
  f->across = power_for(packs, MOST_ACROSS);
  const int threads = f->across * power_for(f->channels * f->length, THREADS / f->across);
  return threads < WARP ? (int)WARP : threads;
}

template <typename real> bppsa_status fill_conv(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, real *values) {
  const bppsa_jacobian_gpu *gpu = j->gpu;
  const int wide = 16 / (int)sizeof(real);
  const bool packed = j->kept == NULL && j->width % wide == 0 && lies_on<real>(values, wide);
  conv_fill<real> f = {};
  f.weights = (const real *)o->weights;
  f.values = values;
  f.height = j->height;
  f.width = j->width;
  f.taps = j->taps;
  f.plane = j->axes[0].in * j->axes[1].in;
  f.entries = j->positions.nnz;
  f.class_of = gpu->class_of;
  f.class_end = gpu->class_end;
  f.start = gpu->start;
  f.list = gpu->list;
  f.items = gpu->items;
  f.classes = j->axes[0].classes * j->axes[1].classes;
  choose_blocks(j, gpu, &f);
  const int threads = choose_threads(j, gpu, packed ? wide : 1, &f);
  const int64_t blocks = j->groups * f.blocks * f.chunks * f.segments;
  const size_t shared = (size_t)(f.line * f.cols) * sizeof(real);
  if (blocks > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "Jacobian on a GPU: %lld blocks, expected at most 2147483647", (long long)blocks);
  }
  if (j->kept != NULL) {
    BPPSA_LAUNCH((bppsa_jacobian_conv<real, 1, true>), (unsigned)blocks, threads, shared, gpu->stream, f);
  } else if (packed) {
    BPPSA_LAUNCH((bppsa_jacobian_conv<real, 16 / sizeof(real), false>), (unsigned)blocks, threads, shared, gpu->stream, f);
  } else {
    BPPSA_LAUNCH((bppsa_jacobian_conv<real, 1, false>), (unsigned)blocks, threads, shared, gpu->stream, f);
  }
  return launched();
}

diagonal_slope slope_of(const bppsa_op *op, bool output) {
  switch (op->kind) {
  case BPPSA_OPERATOR_RELU:
    return SLOPE_RELU;
  case BPPSA_OPERATOR_LEAKY_RELU:
    return SLOPE_LEAKY;
  case BPPSA_OPERATOR_TANH:
    return output ? SLOPE_TANH_OUTPUT : SLOPE_TANH;
  case BPPSA_OPERATOR_SIGMOID:
    return output ? SLOPE_SIGMOID_OUTPUT : SLOPE_SIGMOID;
  default: /* flatten */
    return SLOPE_ONE;
  }
}

template <typename real> bppsa_status fill_diagonal(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, real *values) {
  enum { WIDE = 16 / sizeof(real) };
  const int64_t count = j->pattern.nnz * (j->shared ? 1 : o->batch);
  const bool smooth = j->op.kind == BPPSA_OPERATOR_TANH || j->op.kind == BPPSA_OPERATOR_SIGMOID;
  const diagonal_slope kind = slope_of(&j->op, o->output != NULL);
  const real *from = (const real *)(kind == SLOPE_ONE ? NULL : smooth && o->output != NULL ? o->output : o->input);
  const bool packed = lies_on<real>(from, WIDE) && lies_on<real>(values, WIDE);
  const unsigned blocks = (unsigned)least(parts_of(count, packed ? THREADS * (int64_t)WIDE : (int64_t)THREADS), MANY_BLOCKS);
  if (packed) {
    BPPSA_LAUNCH((bppsa_jacobian_diagonal<real, WIDE>), blocks, THREADS, 0, j->gpu->stream, kind, (real)j->op.slope, count, from,
                 values);
  } else {
    BPPSA_LAUNCH((bppsa_jacobian_diagonal<real, 1>), blocks, THREADS, 0, j->gpu->stream, kind, (real)j->op.slope, count, from,
                 values);
  }
  return launched();
}

/* Blocks along the entries of a plane, and planes at a time. */
dim3 plane_blocks(int64_t entries, int64_t planes) {
  const int64_t x = parts_of(entries, THREADS);
  return dim3((unsigned)x, (unsigned)least(least(planes, parts_of(MANY_BLOCKS, x)), MOST_Y));
}

template <typename real> void launch_pairs(const bppsa_jacobian *j, int64_t planes, const real *input, real *values) {
  const int64_t pairs = planes * j->op.in[1] / 2, half = j->op.in[2] / 2;
  const int across = power_for(half, THREADS), lines = THREADS / across;
  BPPSA_LAUNCH(bppsa_jacobian_largest_pairs<real>, (unsigned)least(parts_of(pairs, lines), MANY_BLOCKS), THREADS, 0,
               j->gpu->stream, pairs, half, across, input, values);
}

template <typename real> bppsa_status fill_pool(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, real *values) {
  const bppsa_op *op = &j->op;
  const int64_t entries = j->pattern.blocks->positions.nnz, planes = op->in[0] * (j->shared ? 1 : o->batch);
  const real *input = (const real *)o->input;
  if (j->shared) {
    BPPSA_LAUNCH(bppsa_jacobian_average<real>, plane_blocks(entries, planes), THREADS, 0, j->gpu->stream, entries, planes,
                 j->gpu->divisors, values);
  } else if (bppsa_jacobian_pool_is_plain(op) && lies_on<real>(input, 2) && lies_on<real>(values, 2)) {
    launch_pairs(j, planes, input, values);
  } else {
    pool_shape s = {{op->in[1], op->in[2]}, j->out[2], {}, {}, {}, {op->padding[0], op->padding[2]}};
    for (int axis = 0; axis < 2; ++axis) {
      s.kernel[axis] = op->kernel[axis];
      s.stride[axis] = op->stride[axis];
      s.dilation[axis] = op->dilation[axis];
    }
    BPPSA_LAUNCH(bppsa_jacobian_largest<real>, plane_blocks(entries, planes), THREADS, 0, j->gpu->stream, s, entries, planes,
                 j->gpu->rows, j->gpu->cols, input, values);
  }
  return launched();
}

template <typename real, int K> bppsa_status launch_step(const bppsa_jacobian_gpu *gpu, const step_fill<real> &s) {
  const size_t tile = STEP_TILE * (STEP_TILE + 1), rows = STEP_ROWS * (STEP_TILE + 1);
  const int64_t across = parts_of(s.units, STEP_TILE), tiles = across * across;
  const int threads = STEP_TILE * STEP_ROWS;
  if (tiles > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "Jacobian on a GPU: %lld units, expected tiles below 2^31", (long long)s.units);
  }
  BPPSA_LAUNCH((bppsa_jacobian_step_factors<real, K>), dim3((unsigned)across, (unsigned)parts_of(s.batch, STEP_ROWS)), threads,
               (K * tile + rows) * sizeof(real) + K * tile, gpu->stream, s);
  BPPSA_TRY(launched());
  BPPSA_LAUNCH((bppsa_jacobian_step_values<real, K>),
               dim3((unsigned)tiles, (unsigned)least(least(s.batch, parts_of(MANY_BLOCKS, tiles)), MOST_Y)), threads,
               tile * (sizeof(real) + 1), gpu->stream, s);
  return launched();
}

/* As many samples at a time as there is room for their factors; launches follow each other on the stream. */
template <typename real> bppsa_status fill_step(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, real *values) {
  const bppsa_jacobian_gpu *gpu = j->gpu;
  const bool gru = j->op.kind == BPPSA_OPERATOR_GRU;
  for (int64_t first = 0; first < o->batch; first += gpu->samples) {
    step_fill<real> s = {};
    s.units = j->op.in[0];
    s.inputs = o->inputs;
    s.batch = least(gpu->samples, o->batch - first);
    s.relu = j->op.relu;
    s.weights = (const real *)o->weights;
    s.weights_ih = (const real *)o->weights_ih;
    s.bias_ih = (const real *)o->bias_ih;
    s.bias_hh = (const real *)o->bias_hh;
    s.input = (const real *)o->input + first * s.inputs;
    s.state = (const real *)o->state + first * s.units;
    s.mask = gpu->mask;
    s.entry = gpu->entry;
    s.nnz = j->pattern.nnz;
    s.factors = (real *)gpu->factors;
    s.values = values + first * s.nnz;
    BPPSA_TRY(gru ? (launch_step<real, 3>(gpu, s)) : (launch_step<real, 1>(gpu, s)));
  }
  return BPPSA_OK;
}

template <typename real> bppsa_status fill(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, real *values) {
  switch (j->op.kind) {
  case BPPSA_OPERATOR_CONV2D:
  case BPPSA_OPERATOR_LINEAR:
    return fill_conv(j, o, values);
  case BPPSA_OPERATOR_MAXPOOL2D:
  case BPPSA_OPERATOR_AVGPOOL2D:
    return fill_pool(j, o, values);
  case BPPSA_OPERATOR_RNN:
  case BPPSA_OPERATOR_GRU:
    return fill_step(j, o, values);
  default:
    return fill_diagonal(j, o, values);
  }
}

bppsa_status create(const bppsa_jacobian *j, bppsa_jacobian_gpu *gpu) {
  switch (j->op.kind) {
  case BPPSA_OPERATOR_CONV2D:
  case BPPSA_OPERATOR_LINEAR:
    return create_conv(j, gpu);
  case BPPSA_OPERATOR_AVGPOOL2D:
    return create_average(j, gpu);
  case BPPSA_OPERATOR_MAXPOOL2D:
    return create_largest(j, gpu);
  case BPPSA_OPERATOR_RNN:
  case BPPSA_OPERATOR_GRU:
    return create_step(j, gpu);
  default:
    return BPPSA_OK;
  }
}

} // namespace

extern "C" bppsa_status bppsa_jacobian_cuda_create(bppsa_jacobian *j, const bppsa_device *device) {
  j->gpu = (bppsa_jacobian_gpu *)bppsa_calloc(1, sizeof *j->gpu);
  if (j->gpu == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  j->gpu->index = bppsa_device_get_index(device);
  j->gpu->stream = (cudaStream_t)bppsa_device_get_stream(device);
  return create(j, j->gpu);
}

extern "C" void bppsa_jacobian_cuda_destroy(bppsa_jacobian_gpu *gpu) {
  if (gpu != NULL) {
    if (gpu->memory != NULL) {
      bppsa_cuda_free(gpu->index, gpu->memory);
    }
    bppsa_free(gpu);
  }
}

extern "C" bppsa_status bppsa_jacobian_cuda_fill(const bppsa_jacobian *j, bppsa_dtype dtype, const bppsa_jacobian_operands *o,
                                                 void *values) {
  if (j->pattern.nnz == 0 || (!j->shared && o->batch == 0)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(j->gpu->index), "Jacobian"));
  return dtype == BPPSA_F32 ? fill(j, o, (float *)values) : fill(j, o, (double *)values);
}

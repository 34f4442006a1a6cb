/* Generators on a GPU. Creation puts index arrays into GPU memory; a fill is one launch or two. */
#include "core/base/alloc.h"
#include "core/compute/check.cuh"
#include "core/compute/memory_internal.h"
#include "jacobian/jacobian_internal.h"
#include "jacobian/jacobian_kernels.cuh"
#include "jacobian/step_table.cuh"

/* The index arrays of a generator, all in one allocation. */
struct bppsa_jacobian_gpu {
  int32_t index;
  cudaStream_t stream;
  void *memory;
  int64_t bytes; /* size of the allocation */
  /* conv2d, linear (conv_fill): */
  const int32_t *class_of, *class_end, *items;
  const int64_t *start, *list;
  int64_t most; /* the most items of any class */
  /* pools: for every entry of S the average's divisor, or the maximum's row and column */
  const int64_t *divisors;
  const int32_t *rows, *cols;
  /* step (step_fill): */
  const bppsa_step_cuda *step;
  const uint8_t *mask;
  const int32_t *entry;
  void *factors;
  int64_t samples; /* samples for which `factors` has room */
};

namespace {

enum { THREADS = 256, WARP = 32, LINE_BYTES = 128, STAGED_BYTES = 24 * 1024, MOST_ACROSS = 128, MOST_COLS = 256 };
/* Bounds on the number of blocks, for 132 multiprocessors. There are so many that it does not matter which one ends last, and each
 * has so much to write that its start does not matter. */
enum { FEW_BLOCKS = 4 * 132, MANY_BLOCKS = 16 * 132, LEAST_BYTES = 16 * 1024, MOST_Y = 65535 };
enum { FACTOR_BYTES = 4 << 20 };

int64_t parts_of(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* The smallest power of two that is at least `count`, at most `bound`. */
int power_for(int64_t count, int bound) {
  int power = 1;
  while (power < count && power < bound) {
    power *= 2;
  }
  return power;
}

/* ---- memory ---- */

/* One array within the allocation: its contents (NULL: none yet), and its address once it has one. */
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
  const bppsa_status status = bppsa_cuda_alloc(gpu->index, bytes, &gpu->memory);
  if (status != BPPSA_OK) {
    return bppsa_fail_prefix(status, "Jacobian");
  }
  gpu->bytes = bytes;
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

/* ---- arrays of the families ---- */

bppsa_status send_lists(const bppsa_jacobian_lists *a, bppsa_jacobian_gpu *gpu) {
  part parts[] = {part_of(a->class_of, a->plane), part_of(a->class_end, a->classes), part_of(a->start, a->start_count),
                  part_of(a->list, a->list_count + 1), part_of(a->items, a->list[a->list_count])};
  BPPSA_TRY(send(gpu, parts, 5));
  gpu->class_of = (const int32_t *)parts[0].to;
  gpu->class_end = (const int32_t *)parts[1].to;
  gpu->start = (const int64_t *)parts[2].to;
  gpu->list = (const int64_t *)parts[3].to;
  gpu->items = (const int32_t *)parts[4].to;
  for (int64_t i = 0; i < a->list_count; ++i) {
    gpu->most = most(gpu->most, a->list[i + 1] - a->list[i]);
  }
  return BPPSA_OK;
}

bppsa_status create_conv(const bppsa_jacobian *j, bppsa_jacobian_gpu *gpu) {
  bppsa_jacobian_lists lists = {};
  bppsa_status status = bppsa_jacobian_lists_create(j, &lists);
  status = status == BPPSA_OK ? send_lists(&lists, gpu) : status;
  bppsa_jacobian_lists_free(&lists);
  return status;
}

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

/* Reserves factors of as many samples as fit into a few megabytes; with a mask also lists where the entries are. */
bppsa_status create_step(const bppsa_jacobian *j, bppsa_jacobian_gpu *gpu) {
  const bppsa_step *step = j->op.step;
  const int64_t h = j->op.in[0], bytes = (step->gates + step->diagonal) * h * (int64_t)sizeof(double);
  gpu->step = step->cuda != NULL ? step->cuda() : NULL;
  if (gpu->step == NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: the cell's step has no kernels for a GPU, expected device cpu", step->name);
  }
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

/* Chooses channels, columns and staging of a block: about a cache line of weights of each column, less where there would be too
 * few blocks. */
template <typename real> conv_source choose_blocks(const bppsa_jacobian *j, const bppsa_jacobian_gpu *gpu, conv_fill<real> *f) {
  const int64_t size = (int64_t)sizeof(real), bytes = j->pattern.nnz * size;
  const bool staged = j->kept == NULL && 4 * (j->taps + 1) * size <= STAGED_BYTES;
  int64_t channels = staged ? least(most(LINE_BYTES / size / j->taps, 1), j->height) : 1, cols = j->width, line = 0;
  if (j->kept == NULL && !staged) {
    cols = least(j->width, most(least((1 << 28) / gpu->most, MOST_COLS), 1));
  }
  for (bool chosen = !staged; !chosen;) {
    line = channels * j->taps | 1;
    const int64_t fit = least(STAGED_BYTES / (line * size), MOST_COLS);
    cols = least(j->width, fit >= 128 ? fit / 128 * 128 : fit / 4 * 4);
    const int64_t blocks = j->groups * parts_of(j->height, channels) * parts_of(j->width, cols);
    chosen = channels == 1 || blocks >= FEW_BLOCKS || bytes / blocks < LEAST_BYTES;
    channels = chosen ? channels : parts_of(channels, 2);
  }
  f->line = (int)line;
  f->channels = (int)channels;
  f->cols = (int)cols;
  f->blocks = (int)parts_of(j->height, channels);
  f->chunks = (int)parts_of(j->width, cols);
  return staged ? CONV_STAGED : j->kept != NULL ? CONV_MASKED : CONV_DIRECT;
}

/* Chooses segments of positions and threads, `across` of them along a row. Returns the number of threads; *blocks: of the launch.
 */
template <typename real>
int choose_threads(const bppsa_jacobian *j, const bppsa_jacobian_gpu *gpu, int n, conv_fill<real> *f, int64_t *blocks) {
  const int64_t parts = j->groups * f->blocks * f->chunks, bytes = j->pattern.nnz * (int64_t)sizeof(real) / parts;
  const int64_t segments = least(parts_of(MANY_BLOCKS / 2, parts), most(bytes / LEAST_BYTES, 1));
  const int64_t length = least(parts_of(f->plane, segments), INT32_MAX / 2 / f->channels);
  const int64_t packs = j->kept != NULL ? gpu->most : parts_of(f->cols * gpu->most, n);
  f->length = (int)length;
  f->segments = (int)parts_of(f->plane, length);
  f->across = power_for(packs, MOST_ACROSS);
  *blocks = parts * f->segments;
  const int threads = f->across * power_for(f->channels * length, THREADS / f->across);
  return threads < WARP ? (int)WARP : threads;
}

template <typename real> bppsa_status fill_conv(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, real *values) {
  enum { WIDE = 16 / sizeof(real) };
  const bppsa_jacobian_gpu *gpu = j->gpu;
  conv_fill<real> f = {};
  int64_t blocks;
  f.weights = (const real *)o->weights;
  f.values = values;
  f.height = (int)j->height;
  f.width = (int)j->width;
  f.taps = (int)j->taps;
  f.plane = (int)(j->axes[0].in * j->axes[1].in);
  f.classes = (int)(j->axes[0].classes * j->axes[1].classes);
  f.entries = j->positions.nnz;
  f.class_of = gpu->class_of;
  f.class_end = gpu->class_end;
  f.start = gpu->start;
  f.list = gpu->list;
  f.items = gpu->items;
  const conv_source source = choose_blocks(j, gpu, &f);
  const bool packed = source == CONV_STAGED && j->width % WIDE == 0 && lies_on<real>(values, WIDE);
  const int threads = choose_threads(j, gpu, packed ? (int)WIDE : 1, &f, &blocks);
  const size_t shared = (size_t)f.line * (size_t)f.cols * sizeof(real);
  if (blocks > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "Jacobian on a GPU: %lld blocks, expected at most 2147483647", (long long)blocks);
  }
  if (packed) {
    BPPSA_LAUNCH((bppsa_jacobian_conv<real, WIDE, CONV_STAGED>), (unsigned)blocks, threads, shared, gpu->stream, f);
  } else if (source == CONV_STAGED) {
    BPPSA_LAUNCH((bppsa_jacobian_conv<real, 1, CONV_STAGED>), (unsigned)blocks, threads, shared, gpu->stream, f);
  } else if (source == CONV_DIRECT) {
    BPPSA_LAUNCH((bppsa_jacobian_conv<real, 1, CONV_DIRECT>), (unsigned)blocks, threads, 0, gpu->stream, f);
  } else {
    BPPSA_LAUNCH((bppsa_jacobian_conv<real, 1, CONV_MASKED>), (unsigned)blocks, threads, 0, gpu->stream, f);
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
  case BPPSA_OPERATOR_RELU6:
  case BPPSA_OPERATOR_HARDSIGMOID:
  case BPPSA_OPERATOR_HARDSWISH:
  case BPPSA_OPERATOR_SILU:
  case BPPSA_OPERATOR_GELU:
    return (diagonal_slope)(SLOPE_ACTIVATION + bppsa_activation_of(op));
  default: /* flatten */
    return SLOPE_ONE;
  }
}

template <typename real> bppsa_status fill_scale(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, real *values) {
  const int64_t count = j->pattern.nnz * (j->shared ? 1 : o->batch), plane = j->shared ? j->op.in[1] * j->op.in[2] : 1;
  BPPSA_LAUNCH(bppsa_jacobian_scale<real>, (unsigned)least(parts_of(count, THREADS), MANY_BLOCKS), THREADS, 0, j->gpu->stream,
               count, plane, (const real *)o->scale, values);
  return launched();
}

template <typename real> bppsa_status fill_diagonal(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, real *values) {
  enum { WIDE = 16 / sizeof(real) };
  if (bppsa_op_is_scaled(&j->op)) {
    return fill_scale<real>(j, o, values);
  }
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

bppsa_status fill_samples(const bppsa_jacobian_gpu *gpu, const step_fill<float> &s) {
  return gpu->step->fill_f32(gpu->stream, s);
}

bppsa_status fill_samples(const bppsa_jacobian_gpu *gpu, const step_fill<double> &s) {
  return gpu->step->fill_f64(gpu->stream, s);
}

/* Fills as many samples at a time as `factors` has room for; the launches follow each other on the stream. */
template <typename real> bppsa_status fill_step(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, real *values) {
  const bppsa_jacobian_gpu *gpu = j->gpu;
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
    BPPSA_TRY(fill_samples(gpu, s));
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
  case BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D:
  case BPPSA_OPERATOR_GLOBAL_AVGPOOL:
    return fill_pool(j, o, values);
  case BPPSA_OPERATOR_STEP:
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
  case BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D:
  case BPPSA_OPERATOR_GLOBAL_AVGPOOL:
    return create_average(j, gpu);
  case BPPSA_OPERATOR_MAXPOOL2D:
    return create_largest(j, gpu);
  case BPPSA_OPERATOR_STEP:
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

extern "C" int64_t bppsa_jacobian_cuda_bytes(const bppsa_jacobian_gpu *gpu) {
  return gpu->bytes;
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

/* The generators' kernels, one for each family of operators (jacobian.h). A fill is bound by writing nnz · size bytes. So every
 * kernel writes values in their order, the threads of a warp side by side, from registers that are computed once for as many rows,
 * planes or samples as possible.
 *
 * The bits are those of the CPU (conv.inc, pooling.inc, diagonal.inc, step.inc): the same operations in the same order, none
 * contracted (--fmad=false), no library functions. Only the payload of a NaN may differ. */
#ifndef BPPSA_JACOBIAN_JACOBIAN_KERNELS_CUH
#define BPPSA_JACOBIAN_JACOBIAN_KERNELS_CUH

#include <math.h>
#include <stdint.h>

#include "core/compute/launch.cuh"
#include "core/compute/squash.h"
#include "jacobian/activation.h"

/* N reals that one instruction moves. */
template <typename real, int N> struct alignas(N * sizeof(real)) jacobian_pack { real v[N]; };

__device__ inline int64_t jacobian_least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* ---- convolutions and linear operators ----
 *
 * Row (ci, x) is a template that depends on ci and on x's class: for every co of the group, in order, the taps of that class
 * (jacobian_internal.h). Positions are sorted by class. A block has `channels` input channels, `cols` output channels and a
 * segment of the sorted positions, and stages its weights in shared memory in lines of about 128 bytes. Its threads form a grid
 * of `across` x (threads / across): a thread makes N entries of a template (one division, N loads of a tap and of a weight) and
 * stores them to all rows of that class that belong to it, with a load of the row's start, which the warp shares, a multiply-add
 * and a store of 16 bytes for each row. For VGG-11's second convolution, 64 channels of 16 x 16 to 128: 69 MB of values in 64 · 16
 * blocks, in which a thread stores its entries to 8 rows; weights are read 16 times, 5 MB, from the second-level cache.
 *
 * With a mask the template of a channel and class is a list of weights; then N = 1, and a block has one channel and all its
 * columns.
 */
template <typename real> struct conv_fill {
  const real *weights; /* [G][width][height][taps] */
  real *values;
  int64_t entries;          /* entries of S */
  int height, width, taps;  /* Ci/G, Co/G, T */
  int plane, classes;       /* number of positions, and of their classes */
  int blocks, chunks;       /* blocks of channels in a group; chunks of columns */
  int segments, length;     /* segments of positions and their length; channels · length fits into an int */
  int channels, cols;       /* at most, in a block */
  int across;               /* a power of two */
  int line;                 /* staged: reals from one co to the next, odd, so that lanes of different co use different banks */
  const int32_t *class_of;  /* class of each sorted position [plane] */
  const int32_t *class_end; /* index behind the last sorted position of each class */
  const int64_t *start;     /* S's first entry of each sorted position [plane]; with a mask the offset of the value [Ci][plane] */
  const int64_t *list;      /* first item of every class; with a mask of every channel and class [Ci][classes] */
  const int32_t *items;     /* taps; with a mask c·height·taps + t */
};

/* The source of a template's weights: shared memory; the weights themselves, if there are too many taps; or a list of weights. */
enum conv_source { CONV_STAGED, CONV_DIRECT, CONV_MASKED };

/* The part of the matrix that a block computes. */
struct conv_block {
  int group, first, channels; /* input channels, within the group */
  int co, cols;               /* output channels, within the group */
  int position, positions;    /* of the sorted positions */
};

template <typename real> __device__ inline conv_block conv_block_of(const conv_fill<real> &f) {
  const unsigned segments = (unsigned)f.segments, chunks = (unsigned)f.chunks, blocks = (unsigned)f.blocks;
  const unsigned segment = blockIdx.x % segments, rest = blockIdx.x / segments, chunk = rest % chunks, block = rest / chunks;
  conv_block b;
  b.group = (int)(block / blocks);
  b.first = (int)(block % blocks) * f.channels;
  b.channels = min(f.channels, f.height - b.first);
  b.co = (int)chunk * f.cols;
  b.cols = min(f.cols, f.width - b.co);
  b.position = (int)segment * f.length;
  b.positions = min(f.length, f.plane - b.position);
  return b;
}

/* The address of the block's first weight. */
template <typename real> __device__ inline const real *conv_weights(const conv_fill<real> &f, const conv_block &b) {
  return f.weights + (((int64_t)b.group * f.width + b.co) * f.height + b.first) * f.taps;
}

/* Loads the block's weights as [cols][channels][taps] with `line` between columns: a warp loads one column, eight columns are in
 * flight. */
template <typename real> __device__ inline void conv_stage(const conv_fill<real> &f, const conv_block &b, real *staged) {
  const int warp = (int)(threadIdx.x >> 5), warps = (int)(blockDim.x >> 5), count = b.channels * f.taps;
  const real *from = conv_weights(f, b);
  const int64_t apart = (int64_t)f.height * f.taps;
  for (int i = (int)(threadIdx.x & 31); i < count; i += 32) {
    BPPSA_UNROLL_BY(8)
    for (int co = warp; co < b.cols; co += warps) {
      staged[co * f.line + i] = from[co * apart + i];
    }
  }
}

/* Computes `rows` rows of a class from `position` on, for channel c of the block: entries are made once and stored to all rows.
 * w: the channel's weights, `apart` between columns. */
template <typename real, int N, typename offset>
__device__ inline void conv_rows(const conv_fill<real> &f, const conv_block &b, const real *w, offset apart, int c, int position,
                                 int rows) {
  const int32_t k = f.class_of[position];
  const int32_t *tap = f.items + f.list[k];
  const int count = (int)(f.list[k + 1] - f.list[k]), all = b.cols * count;
  const int64_t channel = (int64_t)b.group * f.height + b.first + c, width = f.width;
  const int64_t *__restrict__ start = f.start + position;
  real *__restrict__ to = f.values + width * (channel * f.entries) + (int64_t)b.co * count;
  for (int i = (int)(threadIdx.x & (unsigned)(f.across - 1)) * N; i < all; i += f.across * N) {
    jacobian_pack<real, N> pack;
    int co = (int)((unsigned)i / (unsigned)count), e = i - co * count;
    BPPSA_UNROLL
    for (int n = 0; n < N; ++n) {
      pack.v[n] = w[co * apart + tap[e]];
      const bool next = ++e == count;
      e = next ? 0 : e;
      co += next;
    }
    BPPSA_UNROLL_BY(4)
    for (int r = 0; r < rows; ++r) {
      *(jacobian_pack<real, N> *)(void *)(to + width * start[r] + i) = pack;
    }
  }
}

template <typename real>
__device__ inline void conv_masked_rows(const conv_fill<real> &f, const conv_block &b, int c, int position, int rows) {
  const int64_t channel = (int64_t)b.group * f.height + b.first + c, at = channel * f.classes + f.class_of[position];
  const int32_t *item = f.items + f.list[at];
  const int64_t all = f.list[at + 1] - f.list[at];
  const int64_t *__restrict__ start = f.start + channel * f.plane + position;
  real *__restrict__ values = f.values;
  const real *w = conv_weights(f, b) + (int64_t)c * f.taps;
  for (int64_t i = threadIdx.x & (unsigned)(f.across - 1); i < all; i += f.across) {
    const real value = w[item[i]];
    BPPSA_UNROLL_BY(4)
    for (int r = 0; r < rows; ++r) {
      values[start[r] + i] = value;
    }
  }
}

/* The rows of a block's channels, ordered by channel and sorted position, are cut into equal runs, one for each line of threads. */
template <typename real, int N, conv_source SOURCE> __global__ void bppsa_jacobian_conv(conv_fill<real> f) {
  BPPSA_SHARED(real, staged);
  const conv_block b = conv_block_of(f);
  if (SOURCE == CONV_STAGED) {
    conv_stage(f, b, staged);
    __syncthreads();
  }
  const unsigned across = (unsigned)f.across;
  const int lines = (int)(blockDim.x / across), all = b.channels * b.positions, each = (all + lines - 1) / lines;
  const int mine = (int)(threadIdx.x / across) * each, end = min(mine + each, all);
  int c = mine / b.positions, p = mine % b.positions;
  for (int row = mine; row < end;) {
    const int position = b.position + p, same = f.class_end[f.class_of[position]] - position;
    const int some = min(min(same, b.positions - p), end - row);
    if (SOURCE == CONV_STAGED) {
      conv_rows<real, N, int>(f, b, staged + c * f.taps, f.line, c, position, some);
    } else if (SOURCE == CONV_DIRECT) {
      conv_rows<real, N, int64_t>(f, b, conv_weights(f, b) + (int64_t)c * f.taps, (int64_t)f.height * f.taps, c, position, some);
    } else {
      conv_masked_rows(f, b, c, position, some);
    }
    row += some;
    p += some;
    if (p == b.positions) {
      p = 0;
      ++c;
    }
  }
}

/* ---- elementwise operators: one read and one write of N reals ---- */

/* The type is fixed, because values behind SLOPE_ACTIVATION have no names. */
enum diagonal_slope : int {
  SLOPE_ONE,
  SLOPE_RELU,
  SLOPE_LEAKY,
  SLOPE_TANH,
  SLOPE_TANH_OUTPUT,
  SLOPE_SIGMOID,
  SLOPE_SIGMOID_OUTPUT,
  SLOPE_ACTIVATION /* and a bppsa_activation more */
};

__device__ inline float tanh_slope_of(float x) {
  return bppsa_squash_tanh_slope_f32(x);
}
__device__ inline double tanh_slope_of(double x) {
  return bppsa_squash_tanh_slope_f64(x);
}
__device__ inline float sigmoid_slope_of(float x) {
  return bppsa_squash_sigmoid_slope_f32(x);
}
__device__ inline double sigmoid_slope_of(double x) {
  return bppsa_squash_sigmoid_slope_f64(x);
}

__device__ inline float activation_slope_of(bppsa_activation f, float x) {
  return bppsa_activation_slope_f32(f, x);
}
__device__ inline double activation_slope_of(bppsa_activation f, double x) {
  return bppsa_activation_slope_f64(f, x);
}

/* x is the input, or the output if the kind says so. All threads have the same kind. */
template <typename real> __device__ inline real diagonal_value(diagonal_slope kind, real slope, real x) {
  switch (kind) {
  case SLOPE_RELU:
    return x <= 0 ? (real)0 : (real)1;
  case SLOPE_LEAKY:
    return x > 0 ? (real)1 : slope;
  case SLOPE_TANH:
    return tanh_slope_of(x);
  case SLOPE_TANH_OUTPUT:
    return 1 - x * x;
  case SLOPE_SIGMOID:
    return sigmoid_slope_of(x);
  case SLOPE_SIGMOID_OUTPUT:
    return x * (1 - x);
  case SLOPE_ONE:
    return 1;
  default:
    return activation_slope_of((bppsa_activation)(kind - SLOPE_ACTIVATION), x);
  }
}

/* from: NULL where nothing is read. Fewer than N reals remain behind the packs. */
template <typename real, int N>
__global__ void bppsa_jacobian_diagonal(diagonal_slope kind, real slope, int64_t count, const real *from, real *values) {
  typedef jacobian_pack<real, N> pack;
  const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, threads = (int64_t)gridDim.x * blockDim.x;
  const int64_t packs = count / N;
  for (int64_t i = first; i < packs; i += threads) {
    pack p = {};
    if (from != NULL) {
      p = ((const pack *)(const void *)from)[i];
    }
    BPPSA_UNROLL
    for (int n = 0; n < N; ++n) {
      p.v[n] = diagonal_value(kind, slope, p.v[n]);
    }
    ((pack *)(void *)values)[i] = p;
  }
  if (first < count - packs * N) {
    const int64_t i = packs * N + first;
    values[i] = diagonal_value(kind, slope, from != NULL ? from[i] : (real)0);
  }
}

/* Factors that the caller gives: one of every `plane` values, or of every value where plane is 1. */
template <typename real> __global__ void bppsa_jacobian_scale(int64_t count, int64_t plane, const real *scale, real *values) {
  const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, threads = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = first; i < count; i += threads) {
    values[i] = scale[i / plane];
  }
}

/* ---- pools ---- */

/* values [C][entries]: a thread divides once and writes its entry of every plane. */
template <typename real>
__global__ void bppsa_jacobian_average(int64_t entries, int64_t planes, const int64_t *divisors, real *values) {
  const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (e < entries) {
    const real value = 1 / (real)divisors[e];
    for (int64_t p = blockIdx.y; p < planes; p += gridDim.y) {
      values[p * entries + e] = value;
    }
  }
}

struct pool_shape {
  int64_t in[2], out; /* in: H, W; out: windows along the width */
  int64_t kernel[2], stride[2], dilation[2], front[2];
};

/* The input positions of a window along an axis: the first, how many, and the distance between them. */
struct pool_span {
  int64_t first;
  int count, step;
};

__device__ inline pool_span pool_span_of(const pool_shape &s, int axis, int64_t X) {
  const int64_t start = X * s.stride[axis] - s.front[axis], d = s.dilation[axis];
  const int64_t end = jacobian_least(s.in[axis], start + d * (s.kernel[axis] - 1) + 1);
  pool_span span;
  span.first = start < 0 ? start + (-start + d - 1) / d * d : start;
  span.count = span.first < end ? (int)((end - span.first + d - 1) / d) : 0;
  span.step = (int)d;
  return span;
}

/* values [B·C][entries]: a thread has one entry of every plane, for input position row[e] and window col[e], and finds the
 * window's largest value by itself, because neighbours share most of their reads; AHEAD of them are under way at once. The value is
 * 1 where the largest is at row[e], else 0. NaN counts as largest; the first of equals wins, and the last of several NaN. */
template <typename real>
__global__ void bppsa_jacobian_largest(pool_shape s, int64_t entries, int64_t planes, const int32_t *rows, const int32_t *cols,
                                       const real *input, real *values) {
  enum { AHEAD = 4 };
  const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (e >= entries) {
    return;
  }
  const int64_t width = s.in[1], size = s.in[0] * width, window = cols[e];
  const pool_span down = pool_span_of(s, 0, window / s.out), across = pool_span_of(s, 1, window % s.out);
  const int count = down.count * across.count; /* positions of the window, row by row */
  const int wanted =
      (int)((rows[e] / width - down.first) / down.step) * across.count + (int)((rows[e] % width - across.first) / across.step);
  const int line =
      (int)(down.step * width) - (across.count - 1) * across.step; /* from the end of a row to the next one's begin */
  const real *plane = input + down.first * width + across.first;
  for (int64_t p = blockIdx.y; p < planes; p += gridDim.y) {
    const real *from = launch_kept(plane + p * size);
    int best = 0, x = 1, at = 0; /* x: positions of the row that were read, with the one at `at` */
    real most = -(real)INFINITY;
    BPPSA_UNROLL_BY(1)
    for (int first = 0; first < count; first += AHEAD) {
      real v[AHEAD];
      BPPSA_UNROLL
      for (int n = 0; n < AHEAD; ++n) {
        v[n] = from[(unsigned)at];
        const bool row = x < across.count, more = first + n + 1 < count; /* beyond the last position stands the last one */
        at += !more ? 0 : row ? across.step : line;
        x = row ? x + 1 : 1;
      }
      BPPSA_UNROLL
      for (int n = 0; n < AHEAD; ++n) {
        const bool larger = v[n] > most || v[n] != v[n];
        best = larger ? min(first + n, count - 1) : best;
        most = larger ? v[n] : most;
      }
    }
    values[p * entries + e] = best == wanted ? (real)1 : (real)0;
  }
}

/* Windows of 2 x 2 that cover the planes exactly, with entries in the order of the inputs. pairs: number of pairs of rows; half:
 * windows in a pair. A thread reads a window as two pairs of reals and writes it likewise. */
template <typename real>
__global__ void bppsa_jacobian_largest_pairs(int64_t pairs, int64_t half, int across, const real *input, real *values) {
  typedef jacobian_pack<real, 2> pack;
  const int64_t lines = blockDim.x / (unsigned)across;
  const pack *from = (const pack *)(const void *)input;
  pack *to = (pack *)(void *)values;
  for (int64_t r = blockIdx.x * lines + threadIdx.x / (unsigned)across; r < pairs; r += gridDim.x * lines) {
    for (int64_t X = threadIdx.x & (unsigned)(across - 1); X < half; X += across) {
      const int64_t above = 2 * r * half + X, below = above + half;
      const pack a = from[above], b = from[below];
      const real v[4] = {a.v[0], a.v[1], b.v[0], b.v[1]};
      int best = 0;
      real most = v[0];
      BPPSA_UNROLL
      for (int n = 1; n < 4; ++n) {
        const bool larger = v[n] > most || v[n] != v[n];
        best = larger ? n : best;
        most = larger ? v[n] : most;
      }
      const pack first = {{(real)(best == 0), (real)(best == 1)}}, second = {{(real)(best == 2), (real)(best == 3)}};
      to[above] = first;
      to[below] = second;
    }
  }
}

#endif

/* Operators without weights on a GPU, padding and masks. Values, derivatives where none exists, and the order of sums are those of
 * the CPU (cnn/layers.h). Memory bounds every kernel: neighbouring threads work on neighbouring values, and each value is read and
 * written once. */
#ifndef BPPSA_CNN_LAYER_KERNELS_CUH
#define BPPSA_CNN_LAYER_KERNELS_CUH

#include <math.h>
#include <stdint.h>

#include "core/compute/launch.cuh"
#include "jacobian/activation.h"

/* A thread computes CNN_ROUNDS values, CNN_THREADS apart, so that as many loads are in flight at once. */
enum { CNN_THREADS = 256, CNN_ROUNDS = 4 };

/* The index of round r of this thread. */
__device__ inline int64_t cnn_index(int r) {
  return (int64_t)blockIdx.x * (CNN_THREADS * CNN_ROUNDS) + r * CNN_THREADS + threadIdx.x;
}

/* ---- elementwise ---- */

__device__ inline float cnn_activation(bppsa_activation f, bool slope, float x) {
  return slope ? bppsa_activation_slope_f32(f, x) : bppsa_activation_value_f32(f, x);
}
__device__ inline double cnn_activation(bppsa_activation f, bool slope, double x) {
  return slope ? bppsa_activation_slope_f64(f, x) : bppsa_activation_value_f64(f, x);
}

/* y = f(x). A kind from CNN_ACTIVATION on is that activation. */
enum { CNN_ACTIVATION = BPPSA_OPERATOR_COUNT };
template <typename real> __device__ inline real cnn_function(int kind, real slope, real x) {
  switch (kind) {
  case BPPSA_OPERATOR_RELU:
    return x <= 0 ? (real)0 : x;
  case BPPSA_OPERATOR_LEAKY_RELU:
    return x > 0 ? x : slope * x;
  case BPPSA_OPERATOR_TANH:
    return (real)tanh(x);
  case BPPSA_OPERATOR_SIGMOID:
    return 1 / (1 + (real)exp(-x));
  default:
    return cnn_activation((bppsa_activation)(kind - CNN_ACTIVATION), false, x);
  }
}

/* dx = f'(x) dy with y = f(x) */
template <typename real> __device__ inline real cnn_slope(int kind, real slope, real x, real y, real dy) {
  switch (kind) {
  case BPPSA_OPERATOR_RELU:
    return x <= 0 ? (real)0 : dy;
  case BPPSA_OPERATOR_LEAKY_RELU:
    return x > 0 ? dy : slope * dy;
  case BPPSA_OPERATOR_TANH:
    return (1 - y * y) * dy;
  case BPPSA_OPERATOR_SIGMOID:
    return dy * (y * (1 - y));
  default:
    return cnn_activation((bppsa_activation)(kind - CNN_ACTIVATION), true, x) * dy;
  }
}

template <typename real>
__global__ void bppsa_cnn_function(int kind, real slope, int64_t count, const real *__restrict__ x, real *__restrict__ y) {
  BPPSA_UNROLL
  for (int r = 0; r < CNN_ROUNDS; ++r) {
    const int64_t i = cnn_index(r);
    if (i < count) {
      y[i] = cnn_function(kind, slope, x[i]);
    }
  }
}

/* x is read if the slope depends on it (ReLU, leaky ReLU, an activation), y if the slope depends on that. */
template <typename real>
__global__ void bppsa_cnn_slope(int kind, real slope, int64_t count, const real *__restrict__ x, const real *__restrict__ y,
                                const real *__restrict__ dy, real *__restrict__ dx) {
  const bool by_x = kind == BPPSA_OPERATOR_RELU || kind == BPPSA_OPERATOR_LEAKY_RELU || kind >= CNN_ACTIVATION;
  BPPSA_UNROLL
  for (int r = 0; r < CNN_ROUNDS; ++r) {
    const int64_t i = cnn_index(r);
    if (i < count) {
      dx[i] = cnn_slope(kind, slope, by_x ? x[i] : (real)0, by_x ? (real)0 : y[i], dy[i]);
    }
  }
}

/* ---- pools ---- */

/* Positions of input and output along an axis, the window, and how an average counts padding. stride 0: an adaptive pool, whose
 * windows follow from `in` and `out`. */
struct cnn_axis {
  int in, out, kernel, stride, dilation, front, back;
};
struct cnn_pool {
  cnn_axis axis[2]; /* height, width */
  bool exclude_pad;
};

/* Window X: where it begins, and its taps first .. last inside the input. */
struct cnn_taps {
  int start, first, last;
};
__device__ inline cnn_taps cnn_taps_of(const cnn_axis &a, int X) {
  cnn_taps t;
  if (a.stride == 0) { /* an adaptive pool */
    t.start = (int)((int64_t)X * a.in / a.out);
    t.first = 0;
    t.last = (int)(((int64_t)(X + 1) * a.in + a.out - 1) / a.out) - 1 - t.start;
    return t;
  }
  t.start = X * a.stride - a.front;
  t.first = t.start < 0 ? (-t.start + a.dilation - 1) / a.dilation : 0;
  t.last = a.in - 1 < t.start ? -1 : (a.in - 1 - t.start) / a.dilation;
  t.last = t.last < a.kernel - 1 ? t.last : a.kernel - 1;
  return t;
}

/* Positions that window X covers along an axis (bppsa_op_pool_extent). */
__device__ inline int cnn_extent(const cnn_axis &a, bool exclude_pad, int X) {
  if (a.stride == 0) {
    return cnn_taps_of(a, X).last + 1;
  }
  const int start = X * a.stride - a.front, end = start + a.kernel, most = a.in + a.back, stop = end < most ? end : most;
  return exclude_pad ? (stop < a.in ? stop : a.in) - (start > 0 ? start : 0) : stop - start;
}

__device__ inline int cnn_divisor(const cnn_pool &p, int X0, int X1) {
  return cnn_extent(p.axis[0], p.exclude_pad, X0) * cnn_extent(p.axis[1], p.exclude_pad, X1);
}

/* The first largest value of one window of plane x, and its place, -1 if the window has none. NaN counts as largest; the last of
 * several NaN wins. */
template <typename real> __device__ inline real cnn_largest(const cnn_pool &p, const real *x, int X0, int X1, int32_t *place) {
  const cnn_taps a = cnn_taps_of(p.axis[0], X0), b = cnn_taps_of(p.axis[1], X1);
  real largest = -(real)INFINITY;
  int best = -1;
  for (int s = a.first; s <= a.last; ++s) {
    for (int t = b.first; t <= b.last; ++t) {
      const int at = (a.start + s * p.axis[0].dilation) * p.axis[1].in + b.start + t * p.axis[1].dilation;
      const real v = x[at];
      if (best < 0 || v > largest || v != v) {
        best = at;
        largest = v;
      }
    }
  }
  *place = best;
  return largest;
}

template <typename real> __device__ inline real cnn_mean(const cnn_pool &p, const real *x, int X0, int X1) {
  const cnn_taps a = cnn_taps_of(p.axis[0], X0), b = cnn_taps_of(p.axis[1], X1);
  real sum = 0;
  for (int s = a.first; s <= a.last; ++s) {
    for (int t = b.first; t <= b.last; ++t) {
      sum += x[(a.start + s) * p.axis[1].in + b.start + t];
    }
  }
  return sum / (real)cnn_divisor(p, X0, X1);
}

/* One thread for each window: count = planes · windows. places NULL: averages. */
template <typename real>
__global__ void bppsa_cnn_pool(cnn_pool p, int64_t count, const real *__restrict__ x, int32_t *__restrict__ places,
                               real *__restrict__ y) {
  const int64_t i = (int64_t)blockIdx.x * CNN_THREADS + threadIdx.x;
  if (i >= count) {
    return;
  }
  const int windows = p.axis[0].out * p.axis[1].out, X = (int)(i % windows), X0 = X / p.axis[1].out, X1 = X % p.axis[1].out;
  const real *plane = x + i / windows * ((int64_t)p.axis[0].in * p.axis[1].in);
  y[i] = places != NULL ? cnn_largest(p, plane, X0, X1, &places[i]) : cnn_mean(p, plane, X0, X1);
}

/* Only windows first .. last of an axis can contain position x; with a dilation some of them do not. */
__device__ inline void cnn_windows(const cnn_axis &a, int x, int *first, int *last) {
  if (a.stride == 0) {
    *first = (int)((int64_t)x * a.out / a.in);
    *last = (int)(((int64_t)(x + 1) * a.out - 1) / a.in);
    return;
  }
  const int behind = x + a.front, reach = (a.kernel - 1) * a.dilation;
  *first = behind <= reach ? 0 : (behind - reach + a.stride - 1) / a.stride;
  *last = behind / a.stride < a.out - 1 ? behind / a.stride : a.out - 1;
}

/* One thread for each input position adds up what its windows give, in their order, so no two threads write to one place. count =
 * planes · positions. */
template <typename real>
__global__ void bppsa_cnn_pool_gradient(cnn_pool p, int64_t count, const int32_t *__restrict__ places,
                                        const real *__restrict__ dy, real *__restrict__ dx) {
  const int64_t i = (int64_t)blockIdx.x * CNN_THREADS + threadIdx.x;
  if (i >= count) {
    return;
  }
  const int size = p.axis[0].in * p.axis[1].in, x = (int)(i % size);
  const int64_t plane = i / size * ((int64_t)p.axis[0].out * p.axis[1].out);
  int first[2], last[2];
  cnn_windows(p.axis[0], x / p.axis[1].in, &first[0], &last[0]);
  cnn_windows(p.axis[1], x % p.axis[1].in, &first[1], &last[1]);
  real sum = 0;
  for (int X0 = first[0]; X0 <= last[0]; ++X0) {
    for (int X1 = first[1]; X1 <= last[1]; ++X1) {
      const int64_t X = plane + X0 * p.axis[1].out + X1;
      if (places == NULL) {
        sum += dy[X] / (real)cnn_divisor(p, X0, X1);
      } else if (places[X] == x) {
        sum += dy[X];
      }
    }
  }
  dx[i] = sum;
}

/* ---- padding that is not the same on both sides ---- */

/* Where planes lie inside larger ones: rows top .. top + height - 1 and columns left .. left + width - 1. */
struct cnn_frame {
  int height, width, top, left, outer_height, outer_width;
};

/* Puts zeros around every plane: one thread for each value of the larger planes, `count` in all. */
template <typename real>
__global__ void bppsa_cnn_pad(cnn_frame f, int64_t count, const real *__restrict__ inner, real *__restrict__ outer) {
  const int64_t i = (int64_t)blockIdx.x * CNN_THREADS + threadIdx.x;
  if (i < count) {
    const int size = f.outer_height * f.outer_width, at = (int)(i % size);
    const int row = at / f.outer_width - f.top, column = at % f.outer_width - f.left;
    const bool inside = row >= 0 && row < f.height && column >= 0 && column < f.width;
    outer[i] = inside ? inner[(i / size * f.height + row) * f.width + column] : (real)0;
  }
}

/* The opposite, without the zeros: one thread for each value of the smaller planes. */
template <typename real>
__global__ void bppsa_cnn_crop(cnn_frame f, int64_t count, const real *__restrict__ outer, real *__restrict__ inner) {
  const int64_t i = (int64_t)blockIdx.x * CNN_THREADS + threadIdx.x;
  if (i < count) {
    const int size = f.height * f.width, at = (int)(i % size);
    const int row = at / f.width + f.top, column = at % f.width + f.left;
    inner[i] = outer[(i / size * f.outer_height + row) * f.outer_width + column];
  }
}

/* ---- masks ---- */

/* Sets weights whose byte is 0 to 0; all parameters lie one behind the other. */
template <typename real>
__global__ void bppsa_cnn_mask(int64_t count, const uint8_t *__restrict__ kept, real *__restrict__ values) {
  BPPSA_UNROLL
  for (int r = 0; r < CNN_ROUNDS; ++r) {
    const int64_t i = cnn_index(r);
    if (i < count && kept[i] == 0) {
      values[i] = 0;
    }
  }
}

#endif

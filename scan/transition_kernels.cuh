/* CUDA kernels of transitions: joins, gradients that are applied, and the largest entries of rows that have arrived. */
#ifndef BPPSA_SCAN_TRANSITION_KERNELS_CUH
#define BPPSA_SCAN_TRANSITION_KERNELS_CUH

#include "core/base/cut.h"
#include "scan/held.cuh"
#include "scan/transition_internal.h"

enum { TRANSITION_ROWS = 4 }; /* the most rows of a result that a block makes */

/* Products of samples that lie one behind the other. */
template <typename real> struct transition_samples {
  real *values; /* [samples][rows + affine][columns]; diagonal: [samples][1 + affine][columns] */
  int32_t *e;   /* [samples][rows + affine]; diagonal: as values */
  real *norms;  /* [samples][rows + affine] */
};

/* first [rows][middle] ⋄ second [middle][columns], for `items` groups of `batch` samples; groups of the operands begin `step`
 * samples apart. */
template <typename real> struct transition_joins {
  transition_samples<real> first, second, result;
  int64_t rows, middle, columns, batch, step;
  bool affine;
};

template <typename real>
__device__ inline scan_held<real> transition_sample(const transition_samples<real> &s, int64_t sample, int64_t rows,
                                                    int64_t columns, bool affine) {
  const int64_t all = rows + affine;
  return {s.values + sample * all * columns, s.e + sample * all, s.norms + sample * all, rows, columns, affine};
}

template <typename real> __device__ inline real transition_warp_sum(real x) {
  for (int other = warpSize / 2; other > 0; other /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, other);
  }
  return x;
}

/* Rows that are rounding error, by the rule of a gradient that is applied (scan_try), become NaN. So everything that is made of
 * them is useless as well, on this rank and on others, and their steps are redone. x [rows][room]: the factors by which rows y
 * [rows][right.columns] were made of the rows of right. A warp for each row; ends with a barrier. */
template <typename real>
__device__ void transition_mark_cancelled(int rows, int64_t room, const scan_held<real> &right, const real *x, real *y) {
  const int lane = (int)threadIdx.x % warpSize;
  const int64_t count = right.rows + right.affine, m = right.columns;
  for (int row = (int)threadIdx.x / warpSize; row < rows; row += (int)blockDim.x / warpSize) {
    real terms = 0, sum = 0;
    for (int64_t q = lane; q < count; q += warpSize) {
      terms += scan_size(x[row * room + q]) * right.norms[q];
    }
    for (int64_t j = lane; j < m; j += warpSize) {
      sum += scan_size(y[row * m + j]);
    }
    terms = transition_warp_sum(terms);
    sum = transition_warp_sum(sum);
    for (int64_t j = lane; !(terms <= (real)SCAN_CANCELLATION * sum) && j < m; j += warpSize) {
      y[row * m + j] = (real)NAN;
    }
  }
  __syncthreads();
}

/* block: a part of a sample's elements, one of `parts`; threads: any number. Marks the product where an element of the part is cut.
 * cuts [n][b]; first_row [parts][b]: the exponents of the products' first rows, `apart` apart. */
__global__ void bppsa_transition_mark(const uint8_t *cuts, int64_t n, int64_t batch, int64_t parts, int32_t *first_row,
                                      int64_t apart) {
  const int64_t b = blockIdx.x % batch, part = blockIdx.x / batch;
  const int64_t first = bppsa_cut(n, parts, part), end = bppsa_cut(n, parts, part + 1);
  bool found = false;
  for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x) {
    found = found || cuts[(n - 1 - i) * batch + b] != 0;
  }
  if (__syncthreads_or(found) != 0 && threadIdx.x == 0) {
    first_row[blockIdx.x * apart] = BPPSA_TRANSITION_CUT;
  }
}

/* Where an operand is cut, rows of a join are known: they are 0, and where the right operand is cut, its affine row is the
 * result's. Writes the known rows among first .. first + rows - 1, of `all` rows, with exponents and norms, and returns their
 * number. All threads take part; ends with a barrier. */
template <typename real>
__device__ int transition_join_cut(const scan_held<real> &left, const scan_held<real> &right, int64_t first, int rows,
                                   int64_t all, real *out, int32_t *e, real *norms) {
  const bool cut_right = right.e[0] == BPPSA_TRANSITION_CUT, cut = cut_right || left.e[0] == BPPSA_TRANSITION_CUT;
  const int64_t m = right.columns, given = (!cut ? 0 : left.affine && !cut_right ? all - 1 : all) - first;
  const int known = (int)(given < 0 ? 0 : given < rows ? given : rows);
  const int64_t affine = left.affine ? all - 1 - first : -1; /* the affine row's place, if it is known */
  for (int64_t at = threadIdx.x; at < known * m; at += blockDim.x) {
    out[at] = at / m == affine ? right.values[right.rows * m + at % m] : 0;
  }
  for (int row = (int)threadIdx.x; row < known; row += (int)blockDim.x) {
    e[row] = row == affine ? right.e[right.rows] : first + row == 0 ? BPPSA_TRANSITION_CUT : 0;
    norms[row] = row == affine ? right.norms[right.rows] : 0;
  }
  __syncthreads();
  return known;
}

/* block: rows first .. first + tile - 1 of one sample's result, `tiles` blocks a sample; threads: whole warps. shared: tile · room
 * factors, then tile norms, room exponents of the second operand and tile exponents of the result. */
template <typename real> __global__ void bppsa_transition_join(transition_joins<real> c, int64_t tiles, int tile, int64_t room) {
  BPPSA_SHARED(real, x);
  real *norms = x + tile * room;
  int32_t *er = (int32_t *)(norms + tile), *e = er + room;
  const int64_t sample = blockIdx.x / tiles, from = sample / c.batch * c.step + sample % c.batch;
  const int64_t first = blockIdx.x % tiles * tile, all = c.rows + c.affine;
  const int rows = (int)(all - first < tile ? all - first : tile);
  const scan_held<real> left = transition_sample(c.first, from, c.rows, c.middle, c.affine),
                        right = transition_sample(c.second, from, c.middle, c.columns, c.affine);
  const int64_t count = c.middle + c.affine, m = c.columns, at = sample * all + first;
  real *out = c.result.values + at * m;
  for (int64_t q = threadIdx.x; q < count; q += blockDim.x) {
    er[q] = right.e[q];
  }
  __syncthreads();
  const int known = transition_join_cut(left, right, first, rows, all, out, e, norms);
  scan_range range = {0, true};
  if (known < rows) { /* otherwise an exponent of the right operand may be a mark */
    range = scan_range_of(left, count, er);
  }
  for (int row = known; row < rows; ++row) {
    const int32_t exponent = scan_join_factors(left, first + row, range, count, er, x + row * room);
    if (threadIdx.x == 0) {
      e[row] = exponent;
    }
  }
  for (int64_t j = threadIdx.x; j < m; j += blockDim.x) {
    real sum[TRANSITION_ROWS] = {};
    for (int64_t q = 0; q < count; ++q) {
      const real entry = right.values[q * m + j];
      BPPSA_UNROLL
      for (int row = 0; row < TRANSITION_ROWS; ++row) {
        sum[row] += row >= known && row < rows ? x[row * room + q] * entry : 0;
      }
    }
    BPPSA_UNROLL
    for (int row = 0; row < TRANSITION_ROWS; ++row) {
      if (row >= known && row < rows) {
        out[row * m + j] = sum[row];
      }
    }
  }
  __syncthreads();
  transition_mark_cancelled(rows - known, room, right, x + known * room, out + known * m);
  scan_rescale(rows - known, m, m, out + known * m, e + known, norms + known);
  for (int row = (int)threadIdx.x; row < rows; row += (int)blockDim.x) {
    c.result.e[at + row] = e[row];
    c.result.norms[at + row] = norms[row];
  }
}

/* As scan_try for a product of which an element is cut: the gradient in front of it has no part in what is behind it. */
template <typename real> __device__ bool transition_try_cut(const scan_held<real> &p, real *out) {
  bool infinite = false;
  for (int64_t j = threadIdx.x; j < p.columns; j += blockDim.x) {
    out[j] = p.affine ? scan_scaled(p.values[p.rows * p.columns + j], p.e[p.rows]) : 0;
    infinite = infinite || !isfinite(out[j]);
  }
  return __syncthreads_or(infinite) == 0;
}

/* block: a sample; threads: whole warps. shared: 2 · room reals. */
template <typename real>
__global__ void bppsa_transition_apply(transition_samples<real> p, int64_t rows, int64_t columns, bool affine, const real *in,
                                       real *out, int32_t *useless, int64_t room) {
  BPPSA_SHARED(real, x);
  real *y = x + room;
  const int64_t b = blockIdx.x;
  const scan_held<real> held = transition_sample(p, b, rows, columns, affine);
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
    x[r] = in[b * rows + r];
  }
  __syncthreads();
  const bool useful = held.e[0] == BPPSA_TRANSITION_CUT ? transition_try_cut(held, y) : scan_try(held, x, y);
  for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) {
    out[b * columns + j] = y[j];
  }
  if (threadIdx.x == 0) {
    useless[b] = !useful;
  }
}

/* The largest entry of each of `rows` rows, [rows][columns]: a warp for each row. */
template <typename real>
__global__ void bppsa_transition_measure(int64_t rows, int64_t columns, const real *values, real *norms) {
  const int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / warpSize;
  if (row >= rows) {
    return;
  }
  const real largest = scan_row_largest(columns, values + row * columns);
  if (threadIdx.x % warpSize == 0) {
    norms[row] = largest;
  }
}

/* ---- diagonal elements ---- */

/* The same joins of diagonals: a thread for each number, `count` in all. */
template <typename real> __global__ void bppsa_transition_diagonal_join(transition_joins<real> c, int64_t count) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, m = c.columns, j = at % m, sample = at / m;
  if (at >= count) {
    return;
  }
  const int64_t size = (1 + c.affine) * m, from = (sample / c.batch * c.step + sample % c.batch) * size, to = sample * size;
  scan_join_numbers(c.affine, m, j, c.first.values + from, c.first.e + from, c.second.values + from, c.second.e + from,
                    c.result.values + to, c.result.e + to);
}

/* block: a sample. useless: where a number is not finite. */
template <typename real>
__global__ void bppsa_transition_diagonal_apply(transition_samples<real> p, int64_t m, bool affine, const real *in, real *out,
                                                int32_t *useless) {
  const int64_t b = blockIdx.x, at = b * (1 + affine) * m;
  bool infinite = false;
  for (int64_t j = threadIdx.x; j < m; j += blockDim.x) {
    const real y = scan_apply_number(affine, m, j, p.values + at, p.e + at, in[b * m + j]);
    infinite = infinite || !isfinite(y);
    out[b * m + j] = y;
  }
  const bool any = __syncthreads_or(infinite) != 0;
  if (threadIdx.x == 0) {
    useless[b] = any;
  }
}

#endif

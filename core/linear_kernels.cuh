/* Products of matrices on a GPU, of any size and stride, summed in one fixed order: inputs of all steps, heads, weight gradients.
 */
#ifndef BPPSA_CORE_LINEAR_KERNELS_CUH
#define BPPSA_CORE_LINEAR_KERNELS_CUH

#include <stdint.h>

#include "core/launch.cuh"

enum { PRODUCT_TILE = 64, PRODUCT_DEPTH = 16, PRODUCT_THREADS = 256, PRODUCT_SIDE = 4 };

/* c [m][n] = Σ_k a(i, k) b(k, j) + bias[j], with a(i, k) at a[i·a_row + k·a_column], and b likewise. With `ones` b has one
 * more column, of ones, and c too: the sums of a over k. With several parts each part sums k_part of the k into its own c; these
 * lie one behind the other. */
template <typename real> struct product_operands {
  int64_t m, n, k, k_part;
  const real *a, *b, *bias;
  int64_t a_row, a_column, b_row, b_column;
  bool ones;
  real *c;
};

/* blocks (tiles of m, tiles of n · parts) of 256 threads, with 4 x 4 sums each. */
template <typename real> __global__ void bppsa_linear_product(product_operands<real> p, int n_tiles) {
  BPPSA_SHARED(real, memory); /* [DEPTH][TILE + 1] of a, then of b */
  enum { ROW = PRODUCT_TILE + 1 };
  real *a_tile = memory, *b_tile = memory + PRODUCT_DEPTH * ROW;
  const int64_t i0 = (int64_t)blockIdx.x * PRODUCT_TILE, j0 = (int64_t)(blockIdx.y % n_tiles) * PRODUCT_TILE,
                part = blockIdx.y / n_tiles;
  const int64_t first = part * p.k_part, last = first + p.k_part < p.k ? first + p.k_part : p.k, columns = p.n + p.ones;
  const int thread = (int)threadIdx.x, ti = thread / (PRODUCT_TILE / PRODUCT_SIDE), tj = thread % (PRODUCT_TILE / PRODUCT_SIDE);
  real sum[PRODUCT_SIDE][PRODUCT_SIDE] = {};
  for (int64_t k0 = first; k0 < last; k0 += PRODUCT_DEPTH) {
    /* neighbouring threads read neighbouring values */
    for (int at = thread; at < PRODUCT_TILE * PRODUCT_DEPTH; at += PRODUCT_THREADS) {
      const int ak = p.a_column == 1 ? at % PRODUCT_DEPTH : at / PRODUCT_TILE,
                ai = p.a_column == 1 ? at / PRODUCT_DEPTH : at % PRODUCT_TILE;
      const int bk = p.b_row == 1 ? at % PRODUCT_DEPTH : at / PRODUCT_TILE,
                bj = p.b_row == 1 ? at / PRODUCT_DEPTH : at % PRODUCT_TILE;
      const int64_t i = i0 + ai, j = j0 + bj;
      a_tile[ak * ROW + ai] = i < p.m && k0 + ak < last ? p.a[i * p.a_row + (k0 + ak) * p.a_column] : 0;
      b_tile[bk * ROW + bj] = k0 + bk >= last || j >= columns ? 0 : j == p.n ? 1 : p.b[(k0 + bk) * p.b_row + j * p.b_column];
    }
    __syncthreads();
    BPPSA_UNROLL
    for (int k = 0; k < PRODUCT_DEPTH; ++k) {
      real a[PRODUCT_SIDE], b[PRODUCT_SIDE];
      BPPSA_UNROLL
      for (int s = 0; s < PRODUCT_SIDE; ++s) {
        a[s] = a_tile[k * ROW + ti + s * (PRODUCT_TILE / PRODUCT_SIDE)];
        b[s] = b_tile[k * ROW + tj + s * (PRODUCT_TILE / PRODUCT_SIDE)];
      }
      BPPSA_UNROLL
      for (int s = 0; s < PRODUCT_SIDE * PRODUCT_SIDE; ++s) {
        sum[s / PRODUCT_SIDE][s % PRODUCT_SIDE] += a[s / PRODUCT_SIDE] * b[s % PRODUCT_SIDE];
      }
    }
    __syncthreads();
  }
  BPPSA_UNROLL
  for (int s = 0; s < PRODUCT_SIDE * PRODUCT_SIDE; ++s) {
    const int64_t i = i0 + ti + s / PRODUCT_SIDE * (PRODUCT_TILE / PRODUCT_SIDE),
                  j = j0 + tj + s % PRODUCT_SIDE * (PRODUCT_TILE / PRODUCT_SIDE);
    if (i < p.m && j < columns) {
      p.c[(part * p.m + i) * columns + j] = sum[s / PRODUCT_SIDE][s % PRODUCT_SIDE] + (p.bias != NULL ? p.bias[j] : 0);
    }
  }
}

/* to [columns][rows] = the transpose of from [rows][columns] */
template <typename real> __global__ void bppsa_linear_transposed(const real *from, int64_t rows, int64_t columns, real *to) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < rows * columns) {
    to[at % columns * rows + at / columns] = from[at];
  }
}

enum { SUM_TARGETS = 4, SUM_THREADS = 256, SUM_LANES = 32 };

/* Where sums are written. A target receives entries first .. first + count - 1, in rows of `row` of which it keeps `take` from
 * column `from` on, packed. */
template <typename real> struct sum_target {
  int64_t first, count, row, from, take;
  real *to;
};
template <typename real> struct sum_targets {
  sum_target<real> target[SUM_TARGETS];
  int targets;
};

/* Sums entries [parts][count] over the parts: 32 entries in a block, 8 threads for each entry, whose sums are added in order. */
template <typename real>
__global__ void bppsa_linear_sum(const real *entries, int64_t parts, int64_t count, sum_targets<real> to) {
  BPPSA_SHARED(real, sums); /* [THREADS] */
  const int lane = (int)threadIdx.x % SUM_LANES, slice = (int)threadIdx.x / SUM_LANES, slices = SUM_THREADS / SUM_LANES;
  const int64_t at = (int64_t)blockIdx.x * SUM_LANES + lane;
  real sum = 0;
  for (int64_t part = slice; at < count && part < parts; part += slices) {
    sum += entries[part * count + at];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (slice != 0 || at >= count) {
    return;
  }
  for (int s = 1; s < slices; ++s) {
    sum += sums[s * SUM_LANES + lane];
  }
  for (int t = 0; t < to.targets; ++t) {
    const sum_target<real> &target = to.target[t];
    const int64_t i = at - target.first, column = i % target.row - target.from;
    if (i >= 0 && i < target.count && column >= 0 && column < target.take) {
      target.to[i / target.row * target.take + column] = sum;
    }
  }
}

#endif

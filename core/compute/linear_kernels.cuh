/* Products of matrices of any size and stride on a GPU, summed in one fixed order: for the inputs of all steps, heads and weight
 * gradients. */
#ifndef BPPSA_CORE_COMPUTE_LINEAR_KERNELS_CUH
#define BPPSA_CORE_COMPUTE_LINEAR_KERNELS_CUH

#include <stdint.h>

#include "core/compute/cluster.cuh"
#include "core/compute/far_bias.h"
#include "core/compute/launch.cuh"

enum { PRODUCT_TILE = 64, PRODUCT_DEPTH = 16, PRODUCT_THREADS = 256, PRODUCT_SIDE = 4 };

/* c [m][n] = Σ_k a(i, k) b(k, j) + bias[j], with a(i, k) at a[i·a_row + k·a_column], and b likewise. With `ones`, b has one
 * more column, which holds ones, and c's last column is the sums of a over k. With several parts each part sums k_part of the k
 * into its own c; these lie one behind the other. c_row: from one row of c to the next; 0: the rows lie without gaps. near: only
 * the near part of the bias (core/compute/far_bias.h) is added. added: all of it is added to what c holds. */
template <typename real> struct product_operands {
  int64_t m, n, k, k_part;
  const real *a, *b, *bias;
  int64_t a_row, a_column, b_row, b_column;
  bool ones, near, added;
  real *c;
  int64_t c_row;
};

/* The numbers of a tile that one thread loads: COUNT of them, at equal distances. Neighbouring threads load neighbouring numbers.
 * */
template <typename real> struct product_part {
  enum { COUNT = PRODUCT_TILE * PRODUCT_DEPTH / PRODUCT_THREADS };
  const real *from;        /* the address of its first number in the next tile */
  int64_t next, tile;      /* distances in memory: of a thread's numbers, of tiles */
  int k, at, k_step, step; /* the first number's place in the tile, and the distances of the others */
  real value[COUNT];
};

/* The thread's numbers of the first tile, which begins at row or column `first` and at `first_k` of k. */
template <typename real>
__device__ inline product_part<real> product_place(const real *matrix, int64_t of_k, int64_t of_other, int64_t first,
                                                   int64_t first_k, int thread) {
  const bool by_k = of_k == 1; /* neighbouring threads read neighbouring numbers */
  product_part<real> p = {};
  p.k = by_k ? thread % PRODUCT_DEPTH : thread / PRODUCT_TILE;
  p.at = by_k ? thread / PRODUCT_DEPTH : thread % PRODUCT_TILE;
  p.k_step = by_k ? 0 : PRODUCT_THREADS / PRODUCT_TILE;
  p.step = by_k ? PRODUCT_THREADS / PRODUCT_DEPTH : 0;
  p.from = matrix + (first + p.at) * of_other + (first_k + p.k) * of_k;
  p.next = p.step * of_other + p.k_step * of_k;
  p.tile = PRODUCT_DEPTH * of_k;
  return p;
}

/* Loads the thread's numbers of the next tile. `others` rows or columns and `depth` of k are left in the matrix; numbers beyond are
 * 0. ones: the column of ones, or -1. */
template <typename real>
__device__ __forceinline__ void product_fetch(int64_t depth, int64_t others, int64_t ones, product_part<real> *p) {
  BPPSA_UNROLL
  for (int i = 0; i < p->COUNT; ++i) {
    const int at = p->at + i * p->step, k = p->k + i * p->k_step;
    p->value[i] = 0;
    if (k < depth && at < others) {
      p->value[i] = p->from[i * p->next];
    }
    if (k < depth && at == ones) {
      p->value[i] = 1;
    }
  }
  p->from += p->tile;
}

template <typename real> __device__ __forceinline__ void product_store(const product_part<real> &p, real *tile) {
  BPPSA_UNROLL
  for (int i = 0; i < p.COUNT; ++i) {
    tile[(p.k + i * p.k_step) * (PRODUCT_TILE + 1) + p.at + i * p.step] = p.value[i];
  }
}

/* blocks (tiles of m, tiles of n · parts): 256 threads, 4 x 4 sums each. The next tile is loaded while one is multiplied. */
template <typename real>
__global__ void __launch_bounds__(PRODUCT_THREADS) bppsa_linear_product(product_operands<real> p, int n_tiles) {
  BPPSA_SHARED(real, memory); /* [DEPTH][TILE + 1] of a, of b */
  enum { ROW = PRODUCT_TILE + 1 };
  real *a_tile = memory, *b_tile = memory + PRODUCT_DEPTH * ROW;
  const int64_t i0 = (int64_t)blockIdx.x * PRODUCT_TILE, j0 = (int64_t)(blockIdx.y % n_tiles) * PRODUCT_TILE,
                part = blockIdx.y / n_tiles;
  const int64_t first = part * p.k_part, last = first + p.k_part < p.k ? first + p.k_part : p.k, columns = p.n + p.ones;
  const int thread = (int)threadIdx.x, ti = thread / (PRODUCT_TILE / PRODUCT_SIDE), tj = thread % (PRODUCT_TILE / PRODUCT_SIDE);
  real sum[PRODUCT_SIDE][PRODUCT_SIDE] = {};
  product_part<real> a_part = product_place(p.a, p.a_column, p.a_row, i0, first, thread),
                     b_part = product_place(p.b, p.b_row, p.b_column, j0, first, thread);
  const int64_t ones = p.ones ? p.n - j0 : -1;
  if (first < last) {
    product_fetch(last - first, p.m - i0, -1, &a_part);
    product_fetch(last - first, p.n - j0, ones, &b_part);
  }
  for (int64_t k0 = first; k0 < last; k0 += PRODUCT_DEPTH) {
    product_store(a_part, a_tile);
    product_store(b_part, b_tile);
    __syncthreads();
    if (k0 + PRODUCT_DEPTH < last) {
      product_fetch(last - k0 - PRODUCT_DEPTH, p.m - i0, -1, &a_part);
      product_fetch(last - k0 - PRODUCT_DEPTH, p.n - j0, ones, &b_part);
    }
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
      real *to = p.c + (part * p.m + i) * (p.c_row > 0 ? p.c_row : columns) + j;
      const real value = sum[s / PRODUCT_SIDE][s % PRODUCT_SIDE] + (p.bias == NULL ? 0
                                                                    : p.near       ? bppsa_near_bias(p.bias[j])
                                                                                   : p.bias[j]);
      *to = p.added ? *to + value : value;
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

enum { SUM_TARGETS = 4, SUM_THREADS = 512, SUM_AHEAD = 8 };

/* An array to which sums are written. It receives entries first .. first + count - 1, which form rows of `row` numbers. Of each
 * row it keeps `take` numbers from column `from` on, without gaps. */
template <typename real> struct sum_target {
  int64_t first, count, row, from, take;
  real *to;
};
template <typename real> struct sum_targets {
  sum_target<real> target[SUM_TARGETS];
  int targets;
  /* NULL: the kernel writes its sums. Otherwise the number of samples that have fallen back: with 0 the kernel does nothing, with
   * fewer than `all` it adds its sums to what the targets hold, with `all` it writes them. */
  const int *fallen;
  int all;
};

/* The number of entries that a block sums: 32, a line of memory; or 8 where there are many parts, so that more threads share an
 * entry. */
inline __host__ __device__ int sum_lanes(int64_t parts) {
  return parts > 4 * SUM_THREADS / 32 ? 8 : 32;
}

/* Sums entries [parts][count] over the parts: sum_lanes entries in a block, whose other threads share each entry's parts. Their
 * sums are added in a fixed order, halves to halves. */
template <typename real>
__global__ void __launch_bounds__(SUM_THREADS)
    bppsa_linear_sum(const real *entries, int64_t parts, int64_t count, sum_targets<real> to) {
  BPPSA_SHARED(real, sums); /* [THREADS] */
  launch_wait();
  const int fallen = to.fallen != NULL ? *to.fallen : 0;
  const bool adds = to.fallen != NULL && fallen < to.all;
  if (to.fallen != NULL && fallen == 0) {
    return;
  }
  const int lanes = sum_lanes(parts), slices = SUM_THREADS / lanes;
  const int lane = (int)threadIdx.x % lanes, slice = (int)threadIdx.x / lanes;
  const int64_t at = (int64_t)blockIdx.x * lanes + lane;
  real sum = 0;
  for (int64_t first = slice; at < count && first < parts; first += SUM_AHEAD * slices) {
    real value[SUM_AHEAD];
    BPPSA_UNROLL
    for (int i = 0; i < SUM_AHEAD; ++i) { /* all loads begin before the first number is added */
      const int64_t part = first + i * slices;
      value[i] = part < parts ? entries[part * count + at] : 0;
    }
    BPPSA_UNROLL
    for (int i = 0; i < SUM_AHEAD; ++i) {
      sum += value[i];
    }
  }
  sums[threadIdx.x] = sum;
  for (int half = slices / 2; half > 0; half /= 2) {
    __syncthreads();
    if (slice < half) {
      sums[threadIdx.x] += sums[(int)threadIdx.x + half * lanes];
    }
  }
  if (slice != 0 || at >= count) {
    return;
  }
  sum = sums[lane];
  for (int t = 0; t < to.targets; ++t) {
    const sum_target<real> &target = to.target[t];
    const int64_t i = at - target.first, column = i % target.row - target.from;
    if (i >= 0 && i < target.count && column >= 0 && column < target.take) {
      real *place = target.to + i / target.row * target.take + column;
      *place = adds ? *place + sum : sum;
    }
  }
}

#endif

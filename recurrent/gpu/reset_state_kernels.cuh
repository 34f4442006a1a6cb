/* The gradient of a learned state s from which samples begin anew (recurrent/reset_state.c), on a GPU:
 *
 *     ds = Σ_{t,b} r_{t,b} Jᵀ_{t,b} g_{t,b}        r: 1 where the sample begins anew in front of step t, 0 elsewhere
 *
 * Walks leave the terms of this sum in layer_arrays::begun, where they replace the gradient in front of such a step. A scan takes
 * Jᵀ as 0 there; behind it bppsa_recurrent_begun computes the terms. bppsa_recurrent_begun_sum adds them. */
#ifndef BPPSA_RECURRENT_GPU_RESET_STATE_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_RESET_STATE_KERNELS_CUH

#include "core/compute/launch.cuh"
#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/lanes.cuh"

/* Computes the terms from g_1 .. g_T and the deltas, a block for each word of 32 steps of a sample. */
template <typename real, template <typename> class cell> __global__ void bppsa_recurrent_begun(layer_arrays<real> c) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  const int64_t b = blockIdx.x % c.batch, word = blockIdx.x / c.batch, hidden = c.hidden;
  for (uint32_t bits = c.resets.words[b * c.resets.row + word]; bits != 0; bits &= bits - 1) {
    const int64_t row = (word * 32 + __ffs((int)bits) - 1) * c.batch + b;
    const real *delta = (cell<real>::SPLIT ? c.delta_h : c.delta_x) + row * K * hidden,
               *g = c.g + (row + c.batch) * (1 + PAIR) * hidden;
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      cell<real> unit = cell<real>::load(unit_place<real, cell>(c, row * hidden + j, j));
      begin_unit<real, cell>(c, j, &unit);
      const unit_back<real, cell> made(unit, c.relu, g[j], g[PAIR * hidden + j]);
      real sum = made.own;
      for (int64_t r = 0; r < K * hidden; ++r) {
        sum += delta[r] * c.w_hh[r * hidden + j];
      }
      put_begun<real, cell>(c, row, j, sum, made.own_c);
    }
  }
}

enum { BEGUN_WARPS = 16, BEGUN_THREADS = BEGUN_WARPS * WARP_LANES, BEGUN_AHEAD = 4 };

template <typename real> struct begun_rows {
  layer_resets resets;
  const real *rows; /* [T][b][size] */
  real *sum;        /* [size] */
  int64_t batch, size;
};

/* Adds the rows of a sample that belong to the steps of a word. A lane has number i; it reads some rows before it adds one. */
template <typename real>
__device__ __forceinline__ double begun_word(const begun_rows<real> &r, int64_t b, int64_t word, uint32_t bits, int64_t i,
                                             double sum) {
  while (bits != 0) {
    real read[BEGUN_AHEAD];
    BPPSA_UNROLL
    for (int k = 0; k < BEGUN_AHEAD; ++k) {
      read[k] = bits != 0 ? r.rows[((word * 32 + __ffs((int)bits) - 1) * r.batch + b) * r.size + i] : 0;
      bits &= bits - 1;
    }
    BPPSA_UNROLL
    for (int k = 0; k < BEGUN_AHEAD; ++k) {
      sum += (double)read[k];
    }
  }
  return sum;
}

/* Adds all rows that belong to a reset, in double, 32 numbers of each in a block. A warp adds the rows of every BEGUN_WARPS-th
 * sample in the order of time; the first warp then adds what the warps have found, in their order. */
template <typename real> __global__ void __launch_bounds__(BEGUN_THREADS) bppsa_recurrent_begun_sum(begun_rows<real> r) {
  BPPSA_SHARED(double, sums); /* [BEGUN_WARPS][WARP_LANES] */
  const int lane = (int)threadIdx.x % WARP_LANES, warp = (int)threadIdx.x / WARP_LANES;
  const int64_t i = (int64_t)blockIdx.x * WARP_LANES + lane, mine = i < r.size ? i : 0;
  double sum = 0;
  for (int64_t b = warp; b < r.batch; b += BEGUN_WARPS) {
    for (int64_t first = 0; first < r.resets.row; first += WARP_LANES) {
      const uint32_t own = first + lane < r.resets.row ? r.resets.words[b * r.resets.row + first + lane] : 0;
      for (unsigned some = __ballot_sync(0xffffffffu, own != 0); some != 0; some &= some - 1) {
        const int of = __ffs((int)some) - 1;
        sum = begun_word(r, b, first + of, __shfl_sync(0xffffffffu, own, of), mine, sum);
      }
    }
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (warp == 0 && i < r.size) {
    for (int w = 1; w < BEGUN_WARPS; ++w) {
      sum += sums[w * WARP_LANES + lane];
    }
    r.sum[i] = (real)sum;
  }
}

#endif

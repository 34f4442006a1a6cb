/* Mat-vecs on a GPU. */
#ifndef BPPSA_JACOBIAN_APPLY_KERNELS_CUH
#define BPPSA_JACOBIAN_APPLY_KERNELS_CUH

#include <stdint.h>

#include "core/compute/launch_group.cuh"

enum { APPLY_THREADS = 128 }; /* of a block */

template <typename real> struct apply_operands {
  int64_t rows, cols, samples;
  const int64_t *row_ptr; /* NULL: the identity */
  const int32_t *col;
  const real *values; /* sample s begins at values + s * stride */
  int64_t stride;
  const real *x; /* [samples][cols] */
  real *y;       /* [samples][rows] */
  int32_t lanes; /* threads for each row, a power of two up to a warp */
};

/* sum[s] += the thread's share of row `from` .. `from + length` - 1 of A_s times x_s, for samples s0 .. s0 + last; further sums
 * repeat the last sample. COMMON: the samples share A's values. A thread adds its entries in order, but has the reads of AHEAD of
 * them under way at once: columns and values, then x. Beyond the row it reads the last entry again. */
template <typename real, int SAMPLES, bool COMMON>
__device__ inline void apply_row(const apply_operands<real> &o, int64_t s0, int last, int64_t from, int length, int lane,
                                 real (&sum)[SAMPLES]) {
  enum { AHEAD = SAMPLES == 1 ? 4 : 2, EACH = COMMON ? 1 : SAMPLES };
  const int lanes = o.lanes;
  const int32_t *columns = launch_kept(o.col + from);
  const real *values[EACH], *x[SAMPLES];
  BPPSA_UNROLL
  for (int s = 0; s < SAMPLES; ++s) {
    const int64_t sample = s0 + (s < last ? s : last);
    x[s] = launch_kept(o.x + sample * o.cols);
    values[COMMON ? 0 : s] = launch_kept(o.values + sample * o.stride + from);
  }
  BPPSA_UNROLL_BY(1)
  for (int i = lane; i < length; i += AHEAD * lanes) {
    int32_t column[AHEAD];
    real value[AHEAD][EACH], term[AHEAD][SAMPLES];
    BPPSA_UNROLL
    for (int e = 0; e < AHEAD; ++e) {
      const unsigned at = (unsigned)min(i + e * lanes, length - 1);
      column[e] = columns[at];
      BPPSA_UNROLL
      for (int s = 0; s < EACH; ++s) {
        value[e][s] = values[s][at];
      }
    }
    BPPSA_UNROLL
    for (int n = 0; n < AHEAD * SAMPLES; ++n) {
      term[n / SAMPLES][n % SAMPLES] = x[n % SAMPLES][(unsigned)column[n / SAMPLES]];
    }
    BPPSA_UNROLL
    for (int n = 0; n < AHEAD * SAMPLES; ++n) {
      const int e = n / SAMPLES, s = n % SAMPLES;
      if (i + e * lanes < length) {
        sum[s] += value[e][COMMON ? 0 : s] * term[e][s];
      }
    }
  }
}

/* y_s = A_s x_s with `lanes` threads for each row. A thread computes SAMPLES samples, so that it reads a column, and a value that
 * the samples share, once for all of them. blocks (rows; samples / SAMPLES) of an item. No thread leaves before the sums are
 * added. */
template <typename real, int SAMPLES, int MOST>
__global__ void __launch_bounds__(APPLY_THREADS, 8)
    bppsa_apply_rows(BPPSA_GRID_CONSTANT(launch_group<apply_operands<real>, MOST>) g) {
  const launch_place at = launch_find(g);
  const apply_operands<real> &o = g.items[at.item];
  const int64_t r = ((int64_t)at.x * blockDim.x + threadIdx.x) / o.lanes, s0 = at.unit * SAMPLES;
  const int last = o.samples - s0 < SAMPLES ? (int)(o.samples - s0) - 1 : SAMPLES - 1, lane = (int)threadIdx.x % o.lanes;
  if (o.row_ptr == NULL) {
    for (int64_t s = s0; r < o.rows && s <= s0 + last; ++s) {
      o.y[s * o.rows + r] = o.x[s * o.rows + r];
    }
    return; /* the whole block leaves */
  }
  const int64_t from = r < o.rows ? o.row_ptr[r] : 0;
  const int length = r < o.rows ? (int)(o.row_ptr[r + 1] - from) : 0;
  real sum[SAMPLES] = {};
  if (o.stride == 0) {
    apply_row<real, SAMPLES, true>(o, s0, last, from, length, lane, sum);
  } else {
    apply_row<real, SAMPLES, false>(o, s0, last, from, length, lane, sum);
  }
  BPPSA_UNROLL
  for (int s = 0; s < SAMPLES; ++s) {
    for (int other = o.lanes / 2; other > 0; other /= 2) {
      sum[s] += __shfl_xor_sync(0xffffffffu, sum[s], other);
    }
    if (lane == 0 && r < o.rows && s <= last) {
      o.y[(s0 + s) * o.rows + r] = sum[s];
    }
  }
}

#endif

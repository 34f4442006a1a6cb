/* Mat-vecs on a GPU. */
#ifndef BPPSA_JACOBIAN_APPLY_KERNELS_CUH
#define BPPSA_JACOBIAN_APPLY_KERNELS_CUH

#include <stdint.h>

#include "core/launch_group.cuh"

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

/* y_s = A_s x_s with `lanes` threads for each row. A thread computes SAMPLES samples, so that it reads a column, and a value that
 * the samples share, once for all of them. blocks (rows; samples / SAMPLES) of an item. No thread leaves before the sums are
 * added. */
template <typename real, int SAMPLES, int MOST>
__global__ void bppsa_apply_rows(BPPSA_GRID_CONSTANT(launch_group<apply_operands<real>, MOST>) g) {
  const launch_place at = launch_find(g);
  const apply_operands<real> o = g.items[at.item];
  const int64_t r = ((int64_t)at.x * blockDim.x + threadIdx.x) / o.lanes, s0 = at.unit * SAMPLES;
  const int64_t count = o.samples - s0 < SAMPLES ? o.samples - s0 : (int64_t)SAMPLES;
  const int lane = (int)threadIdx.x % o.lanes;
  if (o.row_ptr == NULL) {
    for (int64_t s = s0; r < o.rows && s < s0 + count; ++s) {
      o.y[s * o.rows + r] = o.x[s * o.rows + r];
    }
    return; /* the whole block leaves */
  }
  const int64_t from = r < o.rows ? o.row_ptr[r] : 0, to = r < o.rows ? o.row_ptr[r + 1] : 0;
  real sum[SAMPLES] = {};
  for (int64_t p = from + lane; p < to; p += o.lanes) {
    const int32_t c = o.col[p];
    const real shared = o.values[s0 * o.stride + p];
    BPPSA_UNROLL
    for (int s = 0; s < SAMPLES; ++s) {
      if (s < count) {
        sum[s] += (o.stride == 0 ? shared : o.values[(s0 + s) * o.stride + p]) * o.x[(s0 + s) * o.cols + c];
      }
    }
  }
  BPPSA_UNROLL
  for (int s = 0; s < SAMPLES; ++s) {
    for (int other = o.lanes / 2; other > 0; other /= 2) {
      sum[s] += __shfl_xor_sync(0xffffffffu, sum[s], other);
    }
    if (lane == 0 && r < o.rows && s < count) {
      o.y[(s0 + s) * o.rows + r] = sum[s];
    }
  }
}

#endif

/* Copies between the rows of two directions. */
#ifndef BPPSA_RECURRENT_GPU_SIDE_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_SIDE_KERNELS_CUH

#include <stdint.h>

#include "core/compute/launch.cuh"

/* recurrent_rows; steps 0: rows stay in their places, otherwise row (t, b) comes from (steps - 1 - t, b), or, of a sample that has
 * a length, from (length - 1 - t, b), and there are zeros behind its end. */
template <typename real> struct side_rows {
  const int64_t *lengths; /* [b]; NULL: all are `steps` */
  const real *from;
  real *to;
  int64_t count, from_row, to_row, width, steps, batch; /* count: of numbers */
  bool added, last;                                     /* last: row b goes to that of the last step of sample b, by `lengths` */
};

template <typename real> __global__ void bppsa_recurrent_move(side_rows<real> r) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < r.count) {
    const int64_t row = at / r.width, i = at % r.width, t = row / r.batch;
    const int64_t length = r.lengths != nullptr ? r.lengths[row % r.batch] : r.steps;
    const int64_t source = r.steps > 0 ? row + (length - 1 - 2 * t) * r.batch : row;
    real *to = r.to + (r.last ? row + (length - 1) * r.batch : row) * r.to_row + i;
    const real value = r.steps > 0 && t >= length ? 0 : r.from[source * r.from_row + i];
    *to = r.added ? *to + value : value;
  }
}

#endif

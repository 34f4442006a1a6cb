/* Derivatives along a direction on a GPU (recurrent/tangent_cpu.c has their mathematics): the walk of the states' tangents with
 * time, and the curvature of every unit, for the derivative of the backward pass. */
#ifndef BPPSA_RECURRENT_GPU_TANGENT_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_TANGENT_KERNELS_CUH

#include "core/compute/launch.cuh"
#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/forward_kernels.cuh"

/* The tangents of a unit's states behind a step, from those of its sums: of_x [K] and of_h [K], which is added to of_x unless the
 * cell splits; before: of h_{t-1}, of a pair of c_{t-1}. Returns that of h_t; *of_c, of a pair: that of c_t. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ real unit_tangent(const cell<real> &unit, bool relu, const real *of_x, const real *of_h, real before,
                                             real *of_c) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR, SPLIT = cell<real>::SPLIT };
  real d[K + PAIR], e, d_x;
  unit.factors(relu, d, &e, &d_x);
  real sum = unit.carried(before);
  BPPSA_UNROLL
  for (int k = 0; k + 1 < K; ++k) {
    sum += d[k] * (of_x[k] + of_h[k]);
  }
  const real last = SPLIT ? d_x * of_x[K - 1] + d[K - 1] * of_h[K - 1] : d_x * (of_x[K - 1] + of_h[K - 1]);
  if constexpr (PAIR) {
    *of_c = sum;
    return d[K] * sum + last;
  }
  return sum + last;
}

/* Computes rows 1 .. T of the tangents of h and c from row 0, a block for each sample, whose threads share the units. w_t
 * [H][G·H]: W_hhᵀ, in shared memory if it fits. shared: 2 · H reals, and those of w_t if it fits. */
template <typename real, template <typename> class cell>
__global__ void bppsa_recurrent_tangent(layer_arrays<real> c, tangent_steps<real> s, const real *w_t, bool fits) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR, SPLIT = cell<real>::SPLIT };
  BPPSA_SHARED(real, shared);
  const int64_t b = blockIdx.x, hidden = c.hidden;
  real *in = shared, *out = shared + hidden;
  const real *w = held_weights(hidden * K * hidden, w_t, fits, shared + 2 * hidden);
  for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
    in[j] = s.h[b * hidden + j];
  }
  __syncthreads();
  for (int64_t t = 0; t < c.steps; ++t) {
    const int64_t row = t * c.batch + b;
    const bool anew = c.resets.at(row);
    for (int64_t j = threadIdx.x; anew && j < hidden; j += blockDim.x) {
      in[j] = s.begin_number(j);
    }
    if (anew) {
      __syncthreads();
    }
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      real of_x[K], of_h[K], of_c = 0;
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        const int64_t at = (row * K + k) * hidden + j;
        of_x[k] = s.product_x[at];
        of_h[k] = SPLIT ? s.product_h[at] : 0;
      }
      for (int64_t r = 0; r < hidden; ++r) {
        BPPSA_UNROLL
        for (int k = 0; k < K; ++k) {
          of_h[k] += in[r] * w[(r * K + k) * hidden + j];
        }
      }
      cell<real> unit = cell<real>::load(unit_place<real, cell>(c, row * hidden + j, j));
      if (anew) {
        begin_unit<real, cell>(c, j, &unit);
      }
      const real before = !PAIR ? in[j] : anew ? s.begin_number(hidden + j) : s.c[row * hidden + j];
      out[j] = unit_tangent<real, cell>(unit, c.relu, of_x, of_h, before, &of_c);
      s.h[(row + c.batch) * hidden + j] = out[j];
      if (PAIR) {
        s.c[(row + c.batch) * hidden + j] = of_c;
      }
    }
    __syncthreads();
    real *swap = in;
    in = out;
    out = swap;
  }
}

/* From the whole products and the gradients in c.g: the derivatives of the deltas, in the place of the products, and that of the
 * part of the gradients that does not go through W_hh, in s.own. */
template <typename real, template <typename> class cell>
__global__ void bppsa_recurrent_curve(layer_arrays<real> c, tangent_steps<real> s, int64_t count) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR, SPLIT = cell<real>::SPLIT };
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = at / c.hidden, j = at % c.hidden;
  if (at >= count) {
    return;
  }
  const int64_t size = (1 + PAIR) * c.hidden;
  const real *g = c.g + (row + c.batch) * size + j;
  const bool anew = c.resets.at(row);
  real of_x[K], of_h[K] = {}, delta_x[K], delta_h[K], own;
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    of_x[k] = s.product_x[(row * K + k) * c.hidden + j];
    of_h[k] = SPLIT ? s.product_h[(row * K + k) * c.hidden + j] : 0;
  }
  cell<real> unit = cell<real>::load(unit_place<real, cell>(c, at, j));
  if (anew) {
    begin_unit<real, cell>(c, j, &unit);
  }
  const real before = !PAIR ? s.before[at] : anew ? s.begin_number(c.hidden + j) : s.c[at];
  unit.curve(c.relu, of_x, of_h, before, g[0], g[PAIR * c.hidden], delta_x, delta_h, &own);
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    s.product_x[(row * K + k) * c.hidden + j] = delta_x[k];
    if (SPLIT) {
      s.product_h[(row * K + k) * c.hidden + j] = delta_h[k];
    }
  }
  s.own[row * size + j] = PAIR ? 0 : own;
  if (PAIR) {
    s.own[row * size + c.hidden + j] = own;
  }
}

#endif

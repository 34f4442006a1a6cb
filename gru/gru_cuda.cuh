/* A unit of the GRU on a GPU (recurrent/unit_kernels.cuh). */
#ifndef BPPSA_GRU_GRU_CUDA_CUH
#define BPPSA_GRU_GRU_CUDA_CUH

#include <math.h>

#include "recurrent/cell_cuda.cuh"

/* 1 / (1 + exp(-x)). In float the quotient is within 2 ulp without a branch for subnormal numbers, because the divisor is normal.
 */
__device__ inline float gru_sigmoid(float x) {
  return __fdividef(1, 1 + expf(-x));
}
__device__ inline double gru_sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

/* BPPSA appendix E. saved: r, u = 1 - z, m = h_{t-1} W_hnᵀ + b_hn, n. It keeps u and not z: where z is near 1, and memory is
 * long, computing 1 - z would lose its digits. */
template <typename real> struct gru_unit {
  enum { MATRICES = 3, SAVED = 4, DIAGONAL = 1, SPLIT = 1, PAIR = 0, AHEAD = sizeof(real) == 4 ? 4 : 2, EARLIER = 0 };
  real r, u, m, n, h; /* h of step t - 1 */

  __device__ static inline gru_unit load(const unit_place<real, ::gru_unit> &at, int i = 0) {
    gru_unit unit;
    unit.h = at.h[i];
    unit.r = at.saved[i];
    unit.u = at.saved[at.hidden + i];
    unit.m = at.saved[2 * at.hidden + i];
    unit.n = at.saved[3 * at.hidden + i];
    return unit;
  }
  __device__ inline real before(const gru_unit &) const {
    return h;
  }
  __device__ inline void factors(bool, real d[3], real *e, real *d_x) const {
    const real by_n = u * (1 - n * n);
    d[2] = by_n * r;
    d[0] = d[2] * m * (1 - r);
    d[1] = (h - n) * u * (1 - u);
    *e = 1 - u;
    *d_x = by_n;
  }
  /* g - u g, which is exact, while e = 1 - u is rounded. */
  __device__ inline real carried(real g) const {
    return g - u * g;
  }
  __device__ static inline real forward(bool, const real pre[3], const real product[3], real before, real saved[4]) {
    saved[0] = gru_sigmoid(pre[0] + product[0]);
    saved[1] = gru_sigmoid(-(pre[1] + product[1]));
    saved[2] = product[2];
    saved[3] = (real)tanh(pre[2] + saved[0] * product[2]);
    return before + saved[1] * (saved[3] - before);
  }
};

#endif

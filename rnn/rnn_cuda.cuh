/* A unit of the RNN on a GPU (recurrent/gpu/unit_kernels.cuh). */
#ifndef BPPSA_RNN_RNN_CUDA_CUH
#define BPPSA_RNN_RNN_CUDA_CUH

#include <math.h>

#include "recurrent/gpu/cell_cuda.cuh"

/* δ_t = d ∘ g_t with d = f'(pre_t) from h_t; Jᵀ_t = W_hhᵀ diag(d). */
template <typename real> struct rnn_unit {
  enum { MATRICES = 1, SAVED = 0, DIAGONAL = 0, SPLIT = 0, PAIR = 0, FAR = 0, AHEAD = sizeof(real) == 4 ? 8 : 4, EARLIER = 1 };
  real h; /* of step t */

  __device__ static inline rnn_unit load(const unit_place<real, ::rnn_unit> &at, int i = 0) {
    rnn_unit unit;
    unit.h = at.h[i];
    return unit;
  }
  __device__ inline real before(const rnn_unit &earlier) const {
    return earlier.h;
  }
  __device__ inline void begin(real, real) {} /* h is the state behind the step */
  __device__ inline void factors(bool relu, real d[1], real *e, real *d_x) const {
    d[0] = relu ? (h <= 0 ? (real)0 : (real)1) : 1 - h * h; /* 1 at NaN, as in PyTorch */
    *e = 0;
    *d_x = d[0];
  }
  __device__ inline real carried(real) const {
    return 0;
  }
  __device__ static inline real carry(real, real) {
    return 0;
  }
  /* relu has no curvature. */
  __device__ inline void curve(bool relu, const real sum[1], const real[1], real, real g, real, real delta_x[1], real[1],
                               real *own) const {
    delta_x[0] = relu ? (real)0 : -2 * h * ((1 - h * h) * sum[0]) * g;
    *own = 0;
  }
  __device__ static inline real forward(bool relu, const real pre[1], const real product[1], real, real *) {
    const real sum = pre[0] + product[0];
    return relu ? (sum < 0 ? (real)0 : sum) : (real)tanh(sum);
  }
};

#endif

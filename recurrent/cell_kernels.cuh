/* A layer's arrays on a GPU, and the cells: what a unit computes forward, and its factors of Jᵀ_t backward. */
#ifndef BPPSA_RECURRENT_CELL_KERNELS_CUH
#define BPPSA_RECURRENT_CELL_KERNELS_CUH

#include <math.h>
#include <stdint.h>

#include "core/launch.cuh"

/* Pointers are the GPU's; what is NULL is not there or not wanted. b samples a step. */
template <typename real> struct layer_arrays {
  int64_t steps, batch, hidden, input; /* T, b, H, I */
  bool relu;                           /* RNN */
  const real *w_ih, *b_ih, *w_hh, *b_hh;
  const real *x;               /* [T][b][I] */
  real *pre;                   /* [T][b][G·H]: x W_ihᵀ + b_ih; NULL: made on the way from an input of size 1 */
  real *h;                     /* [T+1][b][H] */
  real *saved;                 /* [T][b][SAVED][H] */
  real *g;                     /* [T+1][b][H]: g_T, and u_t on entry; g_t on return */
  bool injected, want_input;   /* u_t is there; g_0 is wanted */
  bool store_g;                /* g_1 .. g_{T-1} are wanted */
  real *delta_x, *delta_h;     /* [T][b][G·H] */
  real *columns[3], *diagonal; /* [T][b][H]: d_k and e */
};

/* δ_t = d ∘ g_t with d = f'(pre_t) from h_t; Jᵀ_t = W_hhᵀ diag(d). */
template <typename real> struct rnn_unit {
  enum {
    MATRICES = 1,
    SAVED = 0,
    DIAGONAL = 0,
    SPLIT = 0,
    AHEAD = sizeof(real) == 4 ? 8 : 4,
    EARLIER = 1
  };      /* as many gates as matrices */
  real h; /* of step t */

  /* What the backward step t of unit j reads; its h_{t-1} stands at h[past], h_t `state` behind it. */
  __device__ static inline rnn_unit load(const layer_arrays<real> &c, int64_t past, int64_t state, int64_t) {
    rnn_unit unit;
    unit.h = c.h[past + state];
    return unit;
  }
  /* h_{t-1}; `earlier` is the unit of step t - 1. */
  __device__ inline real before(const rnn_unit &earlier) const {
    return earlier.h;
  }
  __device__ inline void factors(bool relu, real d[1], real *e, real *d_x) const {
    d[0] = relu ? (h <= 0 ? (real)0 : (real)1) : 1 - h * h; /* 1 at NaN, as PyTorch has it */
    *e = 0;
    *d_x = d[0];
  }
  /* h_t from pre_t and h_{t-1} W_hhᵀ + b_hh. */
  __device__ static inline real forward(bool relu, const real pre[1], const real product[1], real, real *) {
    const real sum = pre[0] + product[0];
    return relu ? (sum < 0 ? (real)0 : sum) : (real)tanh(sum);
  }
};

template <typename real> __device__ inline real cell_sigmoid(real x) {
  return 1 / (1 + (real)exp(-x));
}

/* BPPSA appendix E. saved: r, u = 1 - z, m = h_{t-1} W_hnᵀ + b_hn, n. u is kept and not z: where z is near 1, and memory long, 1 - z
 * would have lost its digits. */
template <typename real> struct gru_unit {
  enum { MATRICES = 3, SAVED = 4, DIAGONAL = 1, SPLIT = 1, AHEAD = sizeof(real) == 4 ? 4 : 2, EARLIER = 0 };
  real r, u, m, n, h; /* h of step t - 1 */

  __device__ static inline gru_unit load(const layer_arrays<real> &c, int64_t past, int64_t, int64_t j) {
    gru_unit unit;
    const real *saved = c.saved + 4 * past - 3 * j;
    unit.h = c.h[past];
    unit.r = saved[0];
    unit.u = saved[c.hidden];
    unit.m = saved[2 * c.hidden];
    unit.n = saved[3 * c.hidden];
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
  __device__ static inline real forward(bool, const real pre[3], const real product[3], real before, real saved[4]) {
    saved[0] = cell_sigmoid(pre[0] + product[0]);
    saved[1] = cell_sigmoid(-(pre[1] + product[1]));
    saved[2] = product[2];
    saved[3] = (real)tanh(pre[2] + saved[0] * product[2]);
    return before + saved[1] * (saved[3] - before);
  }
};

/* The GRU's gradient through e is g - u g, which is exact where e = 1 - u is rounded. */
template <typename real> __device__ inline real cell_carried(const rnn_unit<real> &, real) {
  return 0;
}
template <typename real> __device__ inline real cell_carried(const gru_unit<real> &unit, real g) {
  return g - unit.u * g;
}

/* ---- every unit alone: a thread a unit of a step ---- */

/* d_k and e of all steps, for a scan of a recurrent element. */
template <typename real, template <typename> class cell>
__global__ void bppsa_recurrent_coefficients(layer_arrays<real> c, int64_t count) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) {
    real d[cell<real>::MATRICES], e, d_x;
    cell<real>::load(c, at, c.batch * c.hidden, at % c.hidden).factors(c.relu, d, &e, &d_x);
    BPPSA_UNROLL
    for (int k = 0; k < cell<real>::MATRICES; ++k) {
      c.columns[k][at] = d[k];
    }
    if (cell<real>::DIAGONAL) {
      c.diagonal[at] = e;
    }
  }
}

/* delta_x and, where the cell splits them, delta_h from g_1 .. g_T. */
template <typename real, template <typename> class cell>
__global__ void bppsa_recurrent_deltas(layer_arrays<real> c, int64_t count) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = at / c.hidden, j = at % c.hidden;
  if (at < count) {
    enum { K = cell<real>::MATRICES };
    real d[K], e, d_x;
    cell<real>::load(c, at, c.batch * c.hidden, j).factors(c.relu, d, &e, &d_x);
    const real g = c.g[at + c.batch * c.hidden];
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      c.delta_x[(row * K + k) * c.hidden + j] = (k + 1 == K ? d_x : d[k]) * g;
      if (cell<real>::SPLIT) {
        c.delta_h[(row * K + k) * c.hidden + j] = d[k] * g;
      }
    }
  }
}

#endif

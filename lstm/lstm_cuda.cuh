/* A unit of the LSTM on a GPU (recurrent/unit_kernels.cuh). */
#ifndef BPPSA_LSTM_LSTM_CUDA_CUH
#define BPPSA_LSTM_LSTM_CUDA_CUH

#include <math.h>

#include "recurrent/cell_cuda.cuh"
#include "recurrent/kept.cuh"

/* The equations of lstm/lstm.h. saved: the signed halves of i and f, g, that of o, and tanh(c). */
template <typename real> struct lstm_unit {
  enum { MATRICES = 4, SAVED = 5, DIAGONAL = 1, SPLIT = 0, PAIR = 1, AHEAD = sizeof(real) == 4 ? 4 : 2, EARLIER = 0 };
  real i, f, g, o, out, h, c; /* as saved, out: tanh(c); h and c of step t - 1 */

  __device__ static inline lstm_unit load(const unit_place<real, ::lstm_unit> &at, int j = 0) {
    lstm_unit unit;
    unit.h = at.h[j];
    unit.c = at.cells[j];
    unit.i = at.saved[j];
    unit.f = at.saved[at.hidden + j];
    unit.g = at.saved[2 * at.hidden + j];
    unit.o = at.saved[3 * at.hidden + j];
    unit.out = at.saved[4 * at.hidden + j];
    return unit;
  }
  __device__ inline real before(const lstm_unit &) const {
    return h;
  }
  __device__ inline void factors(bool, real d[5], real *e, real *d_x) const {
    d[0] = g * gate_slope_of(i);
    d[1] = c * gate_slope_of(f);
    d[2] = gate_of(i) * (1 - g * g);
    d[3] = out * gate_slope_of(o);
    d[4] = gate_of(o) * (1 - out * out); /* from h to c */
    *e = gate_of(f);
    *d_x = d[3];
  }
  __device__ inline real carried(real through) const {
    return gate_times(f, through);
  }
  __device__ static inline real forward(bool, const real pre[4], const real product[4], real *cell, real saved[5]) {
    saved[0] = half_of(pre[0] + product[0]);
    saved[1] = half_of(pre[1] + product[1]);
    saved[2] = (real)tanh(pre[2] + product[2]);
    saved[3] = half_of(pre[3] + product[3]);
    *cell = gate_of(saved[1]) * *cell + gate_of(saved[0]) * saved[2];
    saved[4] = (real)tanh(*cell);
    return gate_of(saved[3]) * saved[4];
  }
};

#endif

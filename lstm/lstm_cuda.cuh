/* A unit of the LSTM on a GPU (recurrent/gpu/unit_kernels.cuh). */
#ifndef BPPSA_LSTM_LSTM_CUDA_CUH
#define BPPSA_LSTM_LSTM_CUDA_CUH

#include <math.h>

#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/kept.cuh"

/* The equations of lstm/lstm.h. saved: the signed halves of i and f, then g, the signed half of o, and tanh(c). */
template <typename real> struct lstm_unit {
  enum { MATRICES = 4, SAVED = 5, DIAGONAL = 1, SPLIT = 0, PAIR = 1, FAR = 1, AHEAD = sizeof(real) == 4 ? 4 : 2, EARLIER = 0 };
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
  __device__ inline void begin(real to, real to_c) {
    h = to;
    c = to_c;
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
    return carry(f, through);
  }
  /* The same from what `carries` returns. */
  __device__ static inline real carry(real kept, real through) {
    return gate_times(kept, through);
  }
  __device__ inline real carries() const {
    return f;
  }
  /* Every factor belongs to δ = g_c + o (1 - tanh² c) g_h, but for that of o. */
  __device__ inline void curve(bool, const real sum[4], const real[4], real before, real g_h, real g_c, real delta[4], real[4],
                               real *own) const {
    const real slope_i = gate_slope_of(i), slope_f = gate_slope_of(f), slope_o = gate_slope_of(o), slope_g = 1 - g * g;
    const real i_dot = slope_i * sum[0], f_dot = slope_f * sum[1], g_dot = slope_g * sum[2], o_dot = slope_o * sum[3];
    const real c_dot = (f_dot * c + gate_times(f, before)) + (i_dot * g + gate_of(i) * g_dot), slope_c = 1 - out * out;
    const real out_dot = slope_c * c_dot, through = g_c + gate_of(o) * slope_c * g_h;
    const real through_dot = (o_dot * slope_c - gate_of(o) * out * out_dot * 2) * g_h;
    delta[0] = (g_dot * slope_i + g * i_dot * (closed_of(i) - gate_of(i))) * through + g * slope_i * through_dot;
    delta[1] = (before * slope_f + c * f_dot * (closed_of(f) - gate_of(f))) * through + c * slope_f * through_dot;
    delta[2] = (i_dot * slope_g - gate_of(i) * g * g_dot * 2) * through + gate_of(i) * slope_g * through_dot;
    delta[3] = (out_dot * slope_o + out * o_dot * (closed_of(o) - gate_of(o))) * g_h;
    *own = f_dot * through + gate_times(f, through_dot);
  }
  __device__ static inline real forward(bool, const real pre[4], const real product[4], real *cell, real saved[5]) {
    const real halves[] = {half_of(pre[0] + product[0]), half_of(pre[1] + product[1]), half_of(pre[3] + product[3])};
    return keep(halves, pre[2] + product[2], cell, saved);
  }
  /* The same with far parts of biases (recurrent/cell.h). */
  __device__ static inline real forward_far(const real pre[4], const real product[4], const real far[4], real *cell,
                                            real saved[5]) {
    const far_sum<real> to_i(pre[0] + product[0], far[0]), to_f(pre[1] + product[1], far[1]), to_o(pre[3] + product[3], far[3]);
    const real halves[] = {half_of_sum(to_i.sum, to_i.rest), half_of_sum(to_f.sum, to_f.rest), half_of_sum(to_o.sum, to_o.rest)};
    return keep(halves, pre[2] + product[2] + far[2], cell, saved);
  }
  /* halves: of i, f and o */
  __device__ static inline real keep(const real halves[3], real to_g, real *cell, real saved[5]) {
    saved[0] = halves[0];
    saved[1] = halves[1];
    saved[2] = (real)tanh(to_g);
    saved[3] = halves[2];
    *cell = gate_of(saved[1]) * *cell + gate_of(saved[0]) * saved[2];
    saved[4] = (real)tanh(*cell);
    return gate_of(saved[3]) * saved[4];
  }
};

#endif

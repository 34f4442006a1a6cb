/* A unit of the GRU on a GPU (recurrent/gpu/unit_kernels.cuh). */
#ifndef BPPSA_GRU_GRU_CUDA_CUH
#define BPPSA_GRU_GRU_CUDA_CUH

#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/kept.cuh"

/* BPPSA appendix E. saved: the signed halves of r and z, m = h_{t-1} W_hnᵀ + b_hn, and the code of n (gru/gru.h). */
template <typename real> struct gru_unit {
  enum { MATRICES = 3, SAVED = 4, DIAGONAL = 1, SPLIT = 1, PAIR = 0, FAR = 1, AHEAD = sizeof(real) == 4 ? 4 : 2, EARLIER = 0 };
  real r, z, m, n, h; /* as saved, and h of step t - 1 */

  __device__ static inline gru_unit load(const unit_place<real, ::gru_unit> &at, int i = 0) {
    gru_unit unit;
    unit.h = at.h[i];
    unit.r = at.saved[i];
    unit.z = at.saved[at.hidden + i];
    unit.m = at.saved[2 * at.hidden + i];
    unit.n = at.saved[3 * at.hidden + i];
    return unit;
  }
  __device__ inline real before(const gru_unit &) const {
    return h;
  }
  __device__ inline void begin(real to, real) {
    h = to;
  }
  __device__ inline void factors(bool, real d[3], real *e, real *d_x) const {
    const read_code<real> of(n);
    const real closed = closed_of(z), by_n = closed * of.slope;
    d[2] = by_n * gate_of(r);
    d[0] = closed * m * of.slope * gate_slope_of(r); /* m first: it may be large where the product of the others vanishes */
    d[1] = ((h - of.base) - of.rest) * gate_slope_of(z);
    *e = gate_of(z);
    *d_x = by_n;
  }
  __device__ inline real carried(real g) const {
    return carry(z, g);
  }
  /* The same from what `carries` returns. */
  __device__ static inline real carry(real kept, real g) {
    return gate_times(kept, g);
  }
  __device__ inline real carries() const {
    return z;
  }
  /* With q = (1 - z)(1 - n²) the factors of g are q m r (1 - r), (h_{t-1} - n) z (1 - z), and q, or q r for the product with h. */
  __device__ inline void curve(bool, const real of_x[3], const real of_h[3], real before, real g, real, real delta_x[3],
                               real delta_h[3], real *own) const {
    const read_code<real> of(n);
    const real gate = gate_of(r), closed = closed_of(z), slope_r = gate_slope_of(r), slope_z = gate_slope_of(z);
    const real r_dot = slope_r * (of_x[0] + of_h[0]), z_dot = slope_z * (of_x[1] + of_h[1]), m_dot = of_h[2];
    const real n_dot = of.slope * (of_x[2] + r_dot * m + gate * m_dot), q = closed * of.slope;
    const real q_dot = -(of.slope * z_dot + closed * (of.base + of.rest) * n_dot * 2);
    const real of_r = (q_dot * m + q * m_dot) * slope_r + q * m * r_dot * (closed_of(r) - gate);
    const real of_z = (before - n_dot) * slope_z + ((h - of.base) - of.rest) * z_dot * (closed - gate_of(z));
    delta_x[0] = delta_h[0] = of_r * g;
    delta_x[1] = delta_h[1] = of_z * g;
    delta_x[2] = q_dot * g;
    delta_h[2] = (q_dot * gate + q * r_dot) * g;
    *own = z_dot * g;
  }
  __device__ static inline real forward(bool, const real pre[3], const real product[3], real before, real saved[4]) {
    const real r = half_of(pre[0] + product[0]), z = half_of(pre[1] + product[1]);
    return keep(r, z, product[2], tanh_parts<real>(pre[2] + gate_of(r) * product[2]), before, saved);
  }
  /* The same with far parts of biases (recurrent/cell.h). Where m has one, it magnifies r's error, so r is computed in float64. */
  __device__ static inline real forward_far(const real pre[3], const real product[3], const real far[3], real far_m, real before,
                                            real saved[4]) {
    const far_sum<real> to_r(pre[0] + product[0], far[0]), to_z(pre[1] + product[1], far[1]);
    const real r = half_of_sum(to_r.sum, to_r.rest), z = half_of_sum(to_z.sum, to_z.rest), m = product[2] + far_m;
    far_sum<real> to_n(pre[2] + gate_of(r) * m, far[2]);
    if (sizeof(real) == 4 && far_m != 0) {
      const double exact = 1 / (1 + exp(-((double)pre[0] + (double)product[0] + (double)far[0])));
      const double sum = (double)pre[2] + (double)far[2] + exact * ((double)product[2] + (double)far_m);
      to_n.sum = (real)sum;
      to_n.rest = (real)(sum - (double)to_n.sum);
    }
    return keep(r, z, m, tanh_parts<real>::of_sum(to_n.sum, to_n.rest), before, saved);
  }
  __device__ static inline real keep(real r, real z, real m, const tanh_parts<real> &of, real before, real saved[4]) {
    saved[0] = r;
    saved[1] = z;
    saved[2] = m;
    saved[3] = of.code;
    return z * (before - of.n) +
           (signbit(z) ? before : of.n); /* the nearer of old state and n, plus a part of their difference */
  }
};

#endif

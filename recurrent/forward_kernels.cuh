/* Forward passes of a recurrent layer: a warp a sample with W_hh in registers, H <= 32, and a block a sample for any H. */
#ifndef BPPSA_RECURRENT_FORWARD_KERNELS_CUH
#define BPPSA_RECURRENT_FORWARD_KERNELS_CUH

#include "core/launch.cuh"
#include "recurrent/cell_cuda.cuh"
#include "recurrent/lanes.cuh"

/* h_1 .. h_T, a warp a sample, a lane a unit, its rows of W_hh in registers; ONE: an input of size 1, whose products are made on
 * the way. shared: 2 · HP reals. */
template <typename real, template <typename> class cell, int HP, bool ONE>
__global__ void __launch_bounds__(WARP_LANES) bppsa_recurrent_forward(layer_arrays<real> c) {
  enum {
    K = cell<real>::MATRICES,
    SAVED = cell<real>::SAVED > 0 ? cell<real>::SAVED : 1,
    AHEAD = cell<real>::AHEAD,
    GIVEN = ONE ? 1 : K,
    Q = quad<real>::SIZE
  };
  BPPSA_SHARED(real, shared);
  const int lane = (int)threadIdx.x;
  const int64_t b = blockIdx.x, hidden = c.hidden, state = c.batch * hidden;
  const bool unit = lane < hidden;
  const int64_t j = unit ? lane : 0; /* other lanes read along */
  real w[K][HP], w_x[K], b_x[K], b_h[K], now[AHEAD][GIVEN], next[AHEAD][GIVEN] = {};
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      w[k][r] = unit && r < hidden ? c.w_hh[(k * hidden + lane) * hidden + r] : 0;
    }
    b_h[k] = c.b_hh[k * hidden + j];
    w_x[k] = ONE ? c.w_ih[k * hidden + j] : 0;
    b_x[k] = ONE ? c.b_ih[k * hidden + j] : 0;
  }
  real h = unit ? c.h[b * hidden + lane] : 0;
  for (int64_t first = -AHEAD; first < c.steps; first += AHEAD) { /* the first round only fetches */
    BPPSA_UNROLL
    for (int i = 0; i < AHEAD * GIVEN; ++i) {
      const int64_t step = first + AHEAD + i / GIVEN, row = step * c.batch + b;
      now[i / GIVEN][i % GIVEN] = next[i / GIVEN][i % GIVEN];
      if (step < c.steps) {
        next[i / GIVEN][i % GIVEN] = ONE ? c.x[row] : c.pre[(row * K + i % GIVEN) * hidden + j];
      }
    }
    BPPSA_UNROLL
    for (int i = 0; i < AHEAD; ++i) {
      const int64_t t = first + i;
      if (first >= 0 && t < c.steps) {
        real *in = shared + i % 2 * HP, product[K], pre[K], saved[SAVED] = {};
        if (lane < HP) {
          in[lane] = h;
        }
        __syncwarp();
        BPPSA_UNROLL
        for (int k = 0; k < K; ++k) {
          real part[4] = {b_h[k], 0, 0, 0};
          BPPSA_UNROLL
          for (int q = 0; q < HP / Q; ++q) {
            const quad<real> rows = ((const quad<real> *)in)[q];
            BPPSA_UNROLL
            for (int l = 0; l < Q; ++l) {
              part[(q * Q + l) % 4] += rows.v[l] * w[k][q * Q + l];
            }
          }
          product[k] = (part[0] + part[1]) + (part[2] + part[3]);
          pre[k] = ONE ? b_x[k] + w_x[k] * now[i][0] : now[i][k % GIVEN];
        }
        const real fresh = cell<real>::forward(c.relu, pre, product, h, saved);
        h = unit ? fresh : 0;
        if (unit) {
          c.h[(t + 1) * state + b * hidden + lane] = h;
          BPPSA_UNROLL
          for (int v = 0; v < cell<real>::SAVED; ++v) {
            c.saved[((t * c.batch + b) * SAVED + v) * hidden + lane] = saved[v];
          }
        }
      }
    }
  }
}

/* Any H: a block a sample, units shared among its threads. w_t [H][G·H]: W_hhᵀ; in shared memory where it fits. shared: 2 · H
 * reals, and those of w_t where it fits. */
template <typename real, template <typename> class cell>
__global__ void bppsa_recurrent_forward_wide(layer_arrays<real> c, const real *w_t, bool fits) {
  enum { K = cell<real>::MATRICES, SAVED = cell<real>::SAVED > 0 ? cell<real>::SAVED : 1 };
  BPPSA_SHARED(real, shared);
  const int64_t b = blockIdx.x, hidden = c.hidden, state = c.batch * hidden;
  real *in = shared, *out = shared + hidden, *copy = shared + 2 * hidden;
  for (int64_t at = threadIdx.x; fits && at < hidden * K * hidden; at += blockDim.x) {
    copy[at] = w_t[at];
  }
  for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
    in[j] = c.h[b * hidden + j];
  }
  const real *w = fits ? copy : w_t;
  __syncthreads();
  for (int64_t t = 0; t < c.steps; ++t) {
    const int64_t row = t * c.batch + b;
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      real product[K], pre[K], saved[SAVED];
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        product[k] = c.b_hh[k * hidden + j];
        pre[k] = c.pre[(row * K + k) * hidden + j];
      }
      for (int64_t r = 0; r < hidden; ++r) {
        BPPSA_UNROLL
        for (int k = 0; k < K; ++k) {
          product[k] += in[r] * w[(r * K + k) * hidden + j];
        }
      }
      out[j] = cell<real>::forward(c.relu, pre, product, in[j], saved);
      c.h[(t + 1) * state + b * hidden + j] = out[j];
      BPPSA_UNROLL
      for (int v = 0; v < cell<real>::SAVED; ++v) {
        c.saved[(row * SAVED + v) * hidden + j] = saved[v];
      }
    }
    __syncthreads();
    real *swap = in;
    in = out;
    out = swap;
  }
}

#endif

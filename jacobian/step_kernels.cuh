/* Recurrent steps on a GPU (step.c has the mathematics): first the factors of some samples, then their values. */
#ifndef BPPSA_JACOBIAN_STEP_KERNELS_CUH
#define BPPSA_JACOBIAN_STEP_KERNELS_CUH

#include "core/compute/launch.cuh"
#include "jacobian/step_table.cuh"

/* sums[k] += (W v)[k·H + unit], in the order of v, for the thread's unit (its lane) and sample (its row). Tiles of W and of the
 * samples' vectors pass through shared memory, [K·32][33] and [8][33]; keep: the tile's bytes of the mask, if there is one. */
template <typename real, int K>
__device__ inline void step_affine(const step_fill<real> &s, const real *w, const uint8_t *mask, const real *vectors, int64_t n,
                                   real *tile, real *vector, uint8_t *keep, real sums[K]) {
  const int lane = (int)(threadIdx.x & 31), row = (int)(threadIdx.x >> 5), pitch = STEP_TILE + 1;
  const int64_t unit = (int64_t)blockIdx.x * STEP_TILE, sample = (int64_t)blockIdx.y * STEP_ROWS + row;
  for (int64_t from = 0; from < n; from += STEP_TILE) {
    const int some = (int)(n - from < STEP_TILE ? n - from : (int64_t)STEP_TILE);
    __syncthreads();
    for (int r = row; lane < some && r < K * STEP_TILE; r += STEP_ROWS) {
      const int64_t u = unit + r % STEP_TILE, at = ((r / STEP_TILE) * s.units + u) * n + from + lane;
      if (u < s.units) {
        tile[r * pitch + lane] = w[at];
        if (mask != NULL) {
          keep[r * pitch + lane] = mask[at];
        }
      }
    }
    if (lane < some && sample < s.batch) {
      vector[row * pitch + lane] = vectors[sample * n + from + lane];
    }
    __syncthreads();
    for (int i = 0; unit + lane < s.units && sample < s.batch && i < some; ++i) {
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        const int at = (k * STEP_TILE + lane) * pitch + i;
        if (mask == NULL || keep[at] != 0) {
          sums[k] += tile[at] * vector[row * pitch + i];
        }
      }
    }
  }
}

/* A block: 32 units of 8 samples. `step` has GATES, DIAGONAL and factors(relu, x, h, before, d) of either real type. */
template <typename real, typename step> __global__ void bppsa_jacobian_step_factors(step_fill<real> s) {
  enum { K = step::GATES, FACTORS = K + step::DIAGONAL };
  BPPSA_SHARED(real, tile);
  real *vector = tile + K * STEP_TILE * (STEP_TILE + 1);
  uint8_t *keep = (uint8_t *)(vector + STEP_ROWS * (STEP_TILE + 1));
  const int64_t unit = (int64_t)blockIdx.x * STEP_TILE + (threadIdx.x & 31);
  const int64_t sample = (int64_t)blockIdx.y * STEP_ROWS + (threadIdx.x >> 5);
  const bool there = unit < s.units && sample < s.batch;
  real of_x[K] = {}, of_h[K] = {}, d[FACTORS] = {};
  step_affine<real, K>(s, s.weights_ih, NULL, s.input, s.inputs, tile, vector, keep, of_x);
  step_affine<real, K>(s, s.weights, s.mask, s.state, s.units, tile, vector, keep, of_h);
  if (!there) {
    return;
  }
  double x[K], h[K];
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    x[k] = (double)of_x[k] + (double)s.bias_ih[k * s.units + unit];
    h[k] = (double)of_h[k] + (double)s.bias_hh[k * s.units + unit];
  }
  const real before = s.state[sample * s.units + unit];
  step::factors(s.relu, x, h, before, d);
  for (int k = 0; k < FACTORS; ++k) {
    s.factors[(sample * FACTORS + k) * s.units + unit] = d[k];
  }
}

/* values(i, c) = e_i [i = c] + Σ_k W_k[c][i] d_k[c]. A block transposes a tile of 32 x 32 weights once, through shared memory
 * into registers, and writes it for each of its samples; lanes are columns c. */
template <typename real, int K, bool DIAGONAL> __global__ void bppsa_jacobian_step_values(step_fill<real> s) {
  enum { ROWS = STEP_TILE / STEP_ROWS, FACTORS = K + DIAGONAL };
  BPPSA_SHARED(real, tile);
  uint8_t *keep = (uint8_t *)(tile + STEP_TILE * (STEP_TILE + 1));
  const int lane = (int)(threadIdx.x & 31), row = (int)(threadIdx.x >> 5), pitch = STEP_TILE + 1;
  const int64_t tiles = (s.units + STEP_TILE - 1) / STEP_TILE;
  const int64_t i0 = blockIdx.x / tiles * STEP_TILE, c0 = blockIdx.x % tiles * STEP_TILE, c = c0 + lane;
  real weights[K][ROWS];
  unsigned kept = 0; /* bit k·ROWS + n */
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    __syncthreads();
    for (int n = 0; n < ROWS; ++n) {
      const int64_t u = c0 + row + n * STEP_ROWS, at = (k * s.units + u) * s.units + i0 + lane;
      const bool there = u < s.units && i0 + lane < s.units;
      tile[(row + n * STEP_ROWS) * pitch + lane] = there ? s.weights[at] : (real)0;
      keep[(row + n * STEP_ROWS) * pitch + lane] = there && (s.mask == NULL || s.mask[at] != 0);
    }
    __syncthreads();
    BPPSA_UNROLL
    for (int n = 0; n < ROWS; ++n) {
      weights[k][n] = tile[lane * pitch + row + n * STEP_ROWS];
      kept |= (unsigned)(keep[lane * pitch + row + n * STEP_ROWS] != 0) << (k * ROWS + n);
    }
  }
  for (int64_t b = blockIdx.y; c < s.units && b < s.batch; b += gridDim.y) {
    const real *d = s.factors + b * FACTORS * s.units + c;
    real factor[K];
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      factor[k] = d[k * s.units];
    }
    const real diagonal = DIAGONAL ? d[K * s.units] : (real)0;
    BPPSA_UNROLL
    for (int n = 0; n < ROWS; ++n) {
      const int64_t i = i0 + row + n * STEP_ROWS;
      const int64_t at = i >= s.units ? -1 : s.entry == NULL ? i * s.units + c : s.entry[i * s.units + c];
      real sum = DIAGONAL && i == c ? diagonal : (real)0;
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        if ((kept >> (k * ROWS + n) & 1) != 0) {
          sum += weights[k][n] * factor[k];
        }
      }
      if (at >= 0) {
        s.values[b * s.nnz + at] = sum;
      }
    }
  }
}

#endif

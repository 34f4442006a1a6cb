/* A step's table of launchers from its factors, of both real types (one function each, for a processor and a GPU):
 *
 *     static const bppsa_step_cuda table = bppsa_step_make<step_of<GATES, DIAGONAL, factors_f32, factors_f64>>();
 *
 * A file that includes this is compiled with --fmad=false, so that a GPU's values have the processor's bits. */
#ifndef BPPSA_JACOBIAN_STEP_LAUNCH_CUH
#define BPPSA_JACOBIAN_STEP_LAUNCH_CUH

#include "jacobian/step_kernels.cuh"

/* factors(relu, x, h, before, d): d [GATES + DIAGONAL] of a unit from its pre-activations x and h [GATES], and h_{-1}. */
template <typename real> using step_factors = void (*)(bool relu, const double *x, const double *h, real before, real *d);

template <int K, int D, step_factors<float> f32, step_factors<double> f64> struct step_of {
  enum { GATES = K, DIAGONAL = D };
  __device__ static inline void factors(bool relu, const double *x, const double *h, float before, float *d) {
    f32(relu, x, h, before, d);
  }
  __device__ static inline void factors(bool relu, const double *x, const double *h, double before, double *d) {
    f64(relu, x, h, before, d);
  }
};

template <typename real, typename step> bppsa_status bppsa_step_fill(cudaStream_t stream, const step_fill<real> &s) {
  enum { K = step::GATES, MANY_BLOCKS = 16 * 132, MOST_Y = 65535, THREADS = STEP_TILE * STEP_ROWS };
  const size_t tile = STEP_TILE * (STEP_TILE + 1), rows = STEP_ROWS * (STEP_TILE + 1);
  const int64_t across = (s.units + STEP_TILE - 1) / STEP_TILE, tiles = across * across;
  if (tiles > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "Jacobian on a GPU: %lld units, expected tiles below 2^31", (long long)s.units);
  }
  int64_t samples = (MANY_BLOCKS + tiles - 1) / tiles; /* in one launch */
  samples = samples < s.batch ? samples : s.batch;
  samples = samples < MOST_Y ? samples : (int64_t)MOST_Y;
  BPPSA_LAUNCH((bppsa_jacobian_step_factors<real, step>),
               dim3((unsigned)across, (unsigned)((s.batch + STEP_ROWS - 1) / STEP_ROWS)), THREADS,
               (K * tile + rows) * sizeof(real) + K * tile, stream, s);
  BPPSA_TRY(bppsa_cuda_check(cudaGetLastError(), "Jacobian: launch"));
  BPPSA_LAUNCH((bppsa_jacobian_step_values<real, K, step::DIAGONAL != 0>), dim3((unsigned)tiles, (unsigned)samples), THREADS,
               tile * (sizeof(real) + 1), stream, s);
  return bppsa_cuda_check(cudaGetLastError(), "Jacobian: launch");
}

template <typename step> constexpr bppsa_step_cuda bppsa_step_make() {
  static_assert(step::GATES <= 4, "a tile of every gate's weights in 48 KiB of shared memory");
  return {bppsa_step_fill<float, step>, bppsa_step_fill<double, step>};
}

#endif

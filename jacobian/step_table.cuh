/* What a cell's step gives a generator on a GPU: a table of launchers. jacobian/step_launch.cuh makes it in rnn/rnn_step_cuda.cu
 * and gru/gru_step_cuda.cu. */
#ifndef BPPSA_JACOBIAN_STEP_TABLE_CUH
#define BPPSA_JACOBIAN_STEP_TABLE_CUH

#include <stdint.h>

#include "core/compute/check.cuh"

enum { STEP_TILE = 32, STEP_ROWS = 8 }; /* a block has STEP_TILE · STEP_ROWS threads */

template <typename real> struct step_fill {
  int64_t units, inputs, batch; /* H, I; samples in this launch */
  bool relu;
  const real *weights, *weights_ih, *bias_ih, *bias_hh;
  const real *input, *state; /* [batch][I], [batch][H] */
  const uint8_t *mask;       /* a byte for each weight, or NULL */
  const int32_t *entry;      /* with a mask: the place of entry (i, c), [H][H]; -1: not in the pattern */
  int64_t nnz;
  real *factors; /* [batch][K, then e][H] */
  real *values;  /* [batch][nnz] */
};

/* Queue the computation of the samples' factors, then of their values. ERR_CUDA; ERR_UNSUPPORTED: more tiles than a launch can
 * have. */
struct bppsa_step_cuda {
  bppsa_status (*fill_f32)(cudaStream_t stream, const step_fill<float> &s);
  bppsa_status (*fill_f64)(cudaStream_t stream, const step_fill<double> &s);
};

#endif

/* The RNN's step as an operator on a GPU: its table of launchers. */
#include "jacobian/step_launch.cuh"
#include "rnn/rnn.h"
#include "rnn/rnn_internal.h"
#include "rnn/rnn_step.h"

namespace {

struct rnn_step {
  enum { GATES = 1, DIAGONAL = 0 };
  __device__ static inline void factors(bool relu, const float *x, const float *h, float before, float *d) {
    rnn_step_factors_f32(relu, x, h, before, d);
  }
  __device__ static inline void factors(bool relu, const double *x, const double *h, double before, double *d) {
    rnn_step_factors_f64(relu, x, h, before, d);
  }
};

} // namespace

extern "C" const struct bppsa_step_cuda *bppsa_rnn_step_cuda(void) {
  static const bppsa_step_cuda table = bppsa_step_make<rnn_step>();
  return &table;
}

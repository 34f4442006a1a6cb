/* The GRU's step as an operator on a GPU: its table of launchers. */
#include "gru/gru.h"
#include "gru/gru_internal.h"
#include "gru/gru_step.h"
#include "jacobian/step_launch.cuh"

namespace {

struct gru_step {
  enum { GATES = (int)BPPSA_GRU_GATES, DIAGONAL = 1 };
  __device__ static inline void factors(bool relu, const float *x, const float *h, float before, float *d) {
    gru_step_factors_f32(relu, x, h, before, d);
  }
  __device__ static inline void factors(bool relu, const double *x, const double *h, double before, double *d) {
    gru_step_factors_f64(relu, x, h, before, d);
  }
};

} // namespace

extern "C" const struct bppsa_step_cuda *bppsa_gru_step_cuda(void) {
  static const bppsa_step_cuda table = bppsa_step_make<gru_step>();
  return &table;
}

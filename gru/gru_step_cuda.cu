/* The GRU's step as an operator on a GPU: its table of launchers. */
#include "core/compute/squash.h"
#include "gru/gru.h"
#include "gru/gru_internal.h"
#include "jacobian/step_launch.cuh"

#define EACH_REAL "gru/gru_factors.inc"
#include "core/base/each_real.inc"

extern "C" const struct bppsa_step_cuda *bppsa_gru_step_cuda(void) {
  static const bppsa_step_cuda table =
      bppsa_step_make<step_of<(int)BPPSA_GRU_GATES, 1, gru_step_factors_f32, gru_step_factors_f64>>();
  return &table;
}

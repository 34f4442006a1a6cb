/* The RNN's step as an operator on a GPU: its table of launchers. */
#include "core/compute/squash.h"
#include "jacobian/step_launch.cuh"
#include "rnn/rnn.h"
#include "rnn/rnn_internal.h"

#define EACH_REAL "rnn/rnn_factors.inc"
#include "core/base/each_real.inc"

extern "C" const struct bppsa_step_cuda *bppsa_rnn_step_cuda(void) {
  static const bppsa_step_cuda table = bppsa_step_make<step_of<1, 0, rnn_step_factors_f32, rnn_step_factors_f64>>();
  return &table;
}

/* Both real types and the table of one instruction set: TABLE is its name, SIMD_BYTES the size of its vectors. */
#include "core/compute/simd_vectors.h"
#include "lstm/kernels.h"

#define EACH_REAL "lstm/kernels.inc"
#include "core/base/each_real.inc"

#define FUNCTIONS(suffix)                                                                                                        \
  {                                                                                                                              \
    .forward = forward_##suffix, .backward = backward_##suffix, .coefficients = coefficients_##suffix,                           \
    .tangent = tangent_##suffix, .tangent_backward = tangent_backward_##suffix                                                   \
  }

const bppsa_lstm_kernels TABLE = {.f32 = FUNCTIONS(f32), .f64 = FUNCTIONS(f64)};

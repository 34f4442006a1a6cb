/* Both real types and the table of one instruction set; TABLE is its name. */
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "core/compute/squash.h"
#include "jacobian/kernels.h"

#define EACH_REAL "jacobian/kernels.inc"
#include "core/base/each_real.inc"

#define FUNCTIONS(suffix)                                                                                                        \
  {                                                                                                                              \
    .relu = relu_##suffix, .tanh_slope = tanh_slope_##suffix, .sigmoid_slope = sigmoid_slope_##suffix,                           \
    .activation = activation_##suffix, .activation_slope = activation_slope_##suffix, .pairs = pairs_##suffix,                   \
    .scatter16 = scatter16_##suffix, .scatter32 = scatter32_##suffix, .gather = gather_##suffix                                  \
  }

const bppsa_jacobian_kernels TABLE = {.f32 = FUNCTIONS(f32), .f64 = FUNCTIONS(f64)};

/* Both real types and the table of one instruction set: TABLE is its name, SIMD_BYTES the size of its vectors, GRU_SIDES the number
 * of vectors that go through tanh and the logistic function together. */
#include "core/simd_vectors.h"
#include "gru/kernels.h"

#define real float
#define integer int32_t
#define R(name) name##_f32
#define BPPSA_REAL 32
#include "core/squash_terms.inc"

#include "core/simd_vectors.inc"

#include "gru/kernels.inc"
#undef real
#undef integer
#undef R
#undef BPPSA_REAL

#define real double
#define integer int64_t
#define R(name) name##_f64
#define BPPSA_REAL 64
#include "core/squash_terms.inc"

#include "core/simd_vectors.inc"

#include "gru/kernels.inc"

#define FUNCTIONS(suffix)                                                                                                        \
  { .forward = forward_##suffix, .backward = backward_##suffix, .coefficients = coefficients_##suffix }

const bppsa_gru_kernels TABLE = {.f32 = FUNCTIONS(f32), .f64 = FUNCTIONS(f64)};

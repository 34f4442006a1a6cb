/* Both widths and the table of one instruction set: TABLE names it. */
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "jacobian/kernels.h"

#define real float
#define R(name) name##_f32
#include "jacobian/kernels.inc"
#undef real
#undef R
#define real double
#define R(name) name##_f64
#include "jacobian/kernels.inc"
#undef real
#undef R

const bppsa_jacobian_kernels TABLE = {.f32 = {relu_f32, pairs_f32, scatter16_f32, scatter32_f32, gather_f32},
                                      .f64 = {relu_f64, pairs_f64, scatter16_f64, scatter32_f64, gather_f64}};

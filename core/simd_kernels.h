/* The kernels of one instruction set: both widths, then the table. Included by core/simd_ISA.c alone, which is compiled with that
 * instruction set's flags and says how wide a vector is and how many rows of C a register tile holds. */
#include <string.h>

#if SIMD_BYTES > 16
#include <immintrin.h>
#endif

#define SIMD_JOIN_(a, b) a##b
#define SIMD_JOIN(a, b) SIMD_JOIN_(a, b)
#define SIMD_TABLE SIMD_JOIN(bppsa_simd_, SIMD_NAME)
#define SIMD_TEXT_(a) #a
#define SIMD_TEXT(a) SIMD_TEXT_(a)
#define SIMD_PRAGMA_(text) _Pragma(#text)
#define SIMD_PRAGMA(text) SIMD_PRAGMA_(text)
#define SIMD_INLINE static inline __attribute__((always_inline))

/* ---- f32 ---- */
#define real float
#define integer int32_t
#define R(name) name##_f32
#define MANTISSA 23
#define EXPONENT_BIAS 127
#define ROUNDING 0x1.8p23f
#define SATURATED 10.0f /* tanh rounds to 1 from here on */
#define LOG2E 0x1.715476p+0f
#define LN2 0x1.62e43p-1f
#define LN2_HIGH 0x1.62e4p-1f /* times a whole number of 7 bits: exact */
#define LN2_LOW 0x1.7f7d1cp-20f
#define VANISHING 88.0f /* round(88 / ln 2) = EXPONENT_BIAS: 2^-127 is made of a zero exponent, and so is 0 */
/* e^r = 1 + r + r² Σ c_i r^i on |r| <= ln 2 / 2, relative error 3.3e-9; highest first */
#define EXP_TERMS                                                                                                                \
  { 0x1.6a1a6ep-10f, 0x1.123fc6p-7f, 0x1.555916p-5f, 0x1.55548ap-3f, 0x1.fffffcp-2f }
/* tanh x = x + x z P(z) / Q(z), z = x², on |x| <= 0.55: P of degree 4, Q = 1; error 1.3e-9 */
#define TANH_P                                                                                                                   \
  { -0x1.963d8ap-8f, 0x1.5866a2p-6f, -0x1.b90fc2p-5f, 0x1.110c98p-3f, -0x1.555548p-2f }
#define TANH_Q                                                                                                                   \
  { 1.0f }
#include "core/simd_kernels.inc"
#undef real
#undef integer
#undef R
#undef MANTISSA
#undef EXPONENT_BIAS
#undef ROUNDING
#undef SATURATED
#undef LOG2E
#undef LN2
#undef LN2_HIGH
#undef LN2_LOW
#undef VANISHING
#undef EXP_TERMS
#undef TANH_P
#undef TANH_Q

/* ---- f64 ---- */
#define real double
#define integer int64_t
#define R(name) name##_f64
#define MANTISSA 52
#define EXPONENT_BIAS 1023
#define ROUNDING 0x1.8p52
#define SATURATED 20.0
#define LOG2E 0x1.71547652b82fep+0
#define LN2 0x1.62e42fefa39efp-1
#define LN2_HIGH 0x1.62e42feep-1 /* times a whole number of 11 bits: exact */
#define LN2_LOW 0x1.a39ef35793c76p-33
#define VANISHING 709.0
/* relative error 4e-18 */
#define EXP_TERMS                                                                                                                \
  {                                                                                                                              \
    0x1.ad7ac6edc45eep-26, 0x1.28b167f7c867cp-22, 0x1.71df2ecf0bf9fp-19, 0x1.a01995ed1b7d4p-16, 0x1.a01a01232a9b3p-13,           \
        0x1.6c16c1859cc58p-10, 0x1.111111112999cp-7, 0x1.5555555550249p-5, 0x1.55555555554fp-3, 0x1.000000000000bp-1             \
  }
/* degrees 2 and 3; error 1.3e-19 */
#define TANH_P                                                                                                                   \
  { -0x1.a1cfddcfc99e8p-13, -0x1.4fdef309bdf05p-6, -0x1.5555555555555p-2 }
#define TANH_Q                                                                                                                   \
  { 0x1.b13ed7be37db1p-13, 0x1.7da142b8fb5d6p-6, 0x1.d893672b6d30fp-2, 1.0 }
#include "core/simd_kernels.inc"

#define SIMD_FUNCTIONS(suffix)                                                                                                   \
  {                                                                                                                              \
    .gemm = gemm_##suffix, .tanh = tanh_##suffix, .mul = mul_##suffix, .mul_lines = mul_lines_##suffix,                          \
    .gemm_scaled = gemm_scaled_##suffix, .transpose = transpose_##suffix, .row_largest = row_largest_##suffix,                   \
    .column_largest = column_largest_##suffix, .tanh_slope = tanh_slope_##suffix, .tanh_delta = tanh_delta_##suffix,             \
    .multiply_adds = multiply_adds_##suffix, .sigmoid = sigmoid_##suffix, .gru_forward = gru_forward_##suffix,                   \
    .gru_backward = gru_backward_##suffix, .gru_coefficients = gru_coefficients_##suffix                                         \
  }

extern const bppsa_simd SIMD_TABLE;
const bppsa_simd SIMD_TABLE = {.name = SIMD_TEXT(SIMD_NAME), .f32 = SIMD_FUNCTIONS(f32), .f64 = SIMD_FUNCTIONS(f64)};

/* The kernels of one instruction set: both real types, then the table. Only core/compute/simd_ISA.c includes it; that file is
 * compiled with the instruction set's flags and says how wide a vector is and how many rows of C a register tile holds. */
#include "core/compute/simd_vectors.h"

#define SIMD_JOIN_(a, b) a##b
#define SIMD_JOIN(a, b) SIMD_JOIN_(a, b)
#define SIMD_TABLE SIMD_JOIN(bppsa_simd_, SIMD_NAME)
#define SIMD_TEXT_(a) #a
#define SIMD_TEXT(a) SIMD_TEXT_(a)

#define EACH_REAL "core/compute/simd_kernels.inc"
#include "core/base/each_real.inc"

#define SIMD_FUNCTIONS(suffix)                                                                                                   \
  {                                                                                                                              \
    .gemm = gemm_##suffix, .tanh = tanh_##suffix, .mul = mul_##suffix, .mul_lines = mul_lines_##suffix,                          \
    .gemm_scaled = gemm_scaled_##suffix, .transpose = transpose_##suffix, .row_largest = row_largest_##suffix,                   \
    .column_largest = column_largest_##suffix, .tanh_slope = tanh_slope_##suffix, .tanh_delta = tanh_delta_##suffix,             \
    .multiply_adds = multiply_adds_##suffix, .sigmoid = sigmoid_##suffix, .decay = decay_##suffix, .panel = panel_##suffix,      \
    .few_rows = few_rows_##suffix                                                                                                \
  }

extern const bppsa_simd SIMD_TABLE;
const bppsa_simd SIMD_TABLE = {
    .name = SIMD_TEXT(SIMD_NAME), .isa = SIMD_ISA, .f32 = SIMD_FUNCTIONS(f32), .f64 = SIMD_FUNCTIONS(f64)};

/* Kernels for AVX-512. */
#include "core/compute/simd.h"

#define SIMD_NAME avx512
#define SIMD_ISA BPPSA_SIMD_AVX512
#define SIMD_BYTES 64
#define SIMD_ROWS 10 /* rows of a register tile */
#define SIMD_SIDES 4
#include "core/compute/simd_kernels.h"

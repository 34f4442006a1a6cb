/* Kernels for AVX2 and FMA. */
#include "core/compute/simd.h"

#define SIMD_NAME avx2
#define SIMD_ISA BPPSA_SIMD_AVX2
#define SIMD_BYTES 32
#define SIMD_ROWS 6 /* rows of a register tile */
#define SIMD_SIDES 1
#include "core/compute/simd_kernels.h"

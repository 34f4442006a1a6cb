/* Kernels for any processor, four floats at a time. */
#include "core/compute/simd.h"

#define SIMD_NAME portable
#define SIMD_ISA BPPSA_SIMD_PORTABLE
#define SIMD_BYTES 16
#define SIMD_ROWS 6 /* rows of a register tile */
#define SIMD_SIDES 1
#include "core/compute/simd_kernels.h"

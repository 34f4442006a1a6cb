/* tanh and 1 / (1 + e^-x) of one number and their derivatives, with the same bits on every processor and GPU: they use
 * multiplications, additions and divisions, each of them rounded, and no library functions. Error at most 4 ulp; NaN stays NaN.
 * Files that include this are compiled without contraction of a·b + c, as all C files except the kernels per instruction set are;
 * a .cu file needs --fmad=false.
 *
 * The derivatives are computed from x, not from the function's value y: far from 0, 1 - y² and y (1 - y) are differences from a
 * rounded 1 and have few digits or none.
 *
 * The kernels of core/compute/simd.h are faster, but their bits depend on the instruction set. */
#ifndef BPPSA_CORE_COMPUTE_SQUASH_H
#define BPPSA_CORE_COMPUTE_SQUASH_H

#include <stdint.h>
#include <string.h>

#include "core/base/host_device.h"

#define EACH_REAL "core/compute/squash.inc"
#include "core/base/each_real.inc"

#undef MANTISSA
#undef integer
#undef unsigned_integer
#undef EXPONENT_BIAS
#undef ROUNDING
#undef SATURATED
#undef LOG2E
#undef LN2
#undef LN2_HIGH
#undef LN2_LOW
#undef VANISHING
#undef SLOPE_VANISHING
#undef EXP_TERMS
#undef TANH_P
#undef TANH_Q

#endif

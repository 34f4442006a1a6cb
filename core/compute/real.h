/* For `.inc` files that are compiled for f32 and f64 (core/base/each_real.inc) and use the kernels of core/compute/simd.h: names of
 * their real type. (Without an include guard, because every inclusion redefines the names for the other type.) */
#include "core/compute/simd.h"

#undef real
#undef R
#undef real_bits
#undef REAL_MANTISSA
#undef REAL_LINE
#undef REAL_LEAST_EXPONENT
#undef REAL_MOST_EXPONENT
#undef REAL_FIELD
#undef KERNELS
#if BPPSA_REAL == 32
#define real float
#define real_bits uint32_t
#define REAL_MANTISSA 23
#define REAL_LINE 16 /* reals in a cache line */
#define REAL_LEAST_EXPONENT (-126)
#define REAL_MOST_EXPONENT 127
#define R(name) name##_f32
#define REAL_FIELD f32 /* of a table of kernels */
#elif BPPSA_REAL == 64
#define real double
#define real_bits uint64_t
#define REAL_MANTISSA 52
#define REAL_LINE 8
#define REAL_LEAST_EXPONENT (-1022)
#define REAL_MOST_EXPONENT 1023
#define R(name) name##_f64
#define REAL_FIELD f64
#else
#error "BPPSA_REAL must be 32 or 64"
#endif
#define KERNELS (&bppsa_simd_get()->REAL_FIELD)

/* For files that are written once and compiled for f32 and f64: set BPPSA_REAL to 32 or 64 and include the typed
 * `.inc` file, which includes this header, uses `real`, and names its functions R(name) -> name_f32 / name_f64.
 * (No include guard: every inclusion redefines the names for the width asked for.)
 */
#include "core/blas.h"

#undef real
#undef R
#undef REAL_DTYPE
#undef REAL_MIN
#undef gemm
#undef REAL_TANH
#if BPPSA_REAL == 32
#define real float
#define R(name) name##_f32
#define REAL_DTYPE BPPSA_F32
#define gemm bppsa_gemm_f32
#define REAL_TANH tanhf
#elif BPPSA_REAL == 64
#define real double
#define R(name) name##_f64
#define REAL_DTYPE BPPSA_F64
#define gemm bppsa_gemm_f64
#define REAL_TANH tanh
#else
#error "BPPSA_REAL must be 32 or 64"
#endif

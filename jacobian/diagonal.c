/* Elementwise operators: Jᵀ = diag(f'(x)), computed from the input or, where that is cheaper, from the output. */
#include "core/pool.h"
#include "jacobian/jacobian_internal.h"
#include "jacobian/kernels.h"

enum { BLOCK = 1 << 14 }; /* values of a task */

#define JACOBIAN_KERNELS (&bppsa_jacobian_kernels_get()->f32)
#define BPPSA_REAL 32
#include "jacobian/diagonal.inc"
#undef BPPSA_REAL
#undef JACOBIAN_KERNELS
#define JACOBIAN_KERNELS (&bppsa_jacobian_kernels_get()->f64)
#define BPPSA_REAL 64
#include "jacobian/diagonal.inc"

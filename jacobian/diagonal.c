/* Elementwise operators: Jᵀ = diag(f'(x)), from the input or, where that is cheaper, from the output. */
#include "jacobian/jacobian_internal.h"

enum { BLOCK = 1 << 14 }; /* values of a task */

#define BPPSA_REAL 32
#include "jacobian/diagonal.inc"
#undef BPPSA_REAL
#define BPPSA_REAL 64
#include "jacobian/diagonal.inc"

/* Elementwise operators: Jᵀ = diag(f'(x)), computed from the input or, where that is cheaper, from the output. */
#include "core/compute/pool.h"
#include "jacobian/jacobian_internal.h"
#include "jacobian/kernels.h"

enum { BLOCK = 1 << 14 }; /* values of a task */

#define EACH_REAL "jacobian/diagonal.inc"
#include "core/base/each_real.inc"

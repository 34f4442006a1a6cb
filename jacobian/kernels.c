#include "jacobian/kernels.h"

BPPSA_SIMD_DEFINE_TABLES(bppsa_jacobian)

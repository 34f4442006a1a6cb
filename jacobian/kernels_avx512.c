#define TABLE bppsa_jacobian_avx512
#include "jacobian/kernels_table.h"

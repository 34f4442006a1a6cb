#define TABLE bppsa_jacobian_avx2
#include "jacobian/kernels_table.h"

#define TABLE bppsa_jacobian_portable
#include "jacobian/kernels_table.h"

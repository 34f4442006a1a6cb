#define TABLE bppsa_gru_portable
#define SIMD_BYTES 16
#define GRU_SIDES 1
#include "gru/kernels_table.h"

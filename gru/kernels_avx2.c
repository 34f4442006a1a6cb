#define TABLE bppsa_gru_avx2
#define SIMD_BYTES 32
#define GRU_SIDES 1
#include "gru/kernels_table.h"

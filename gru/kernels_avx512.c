#define TABLE bppsa_gru_avx512
#define SIMD_BYTES 64
#define GRU_SIDES 2
#include "gru/kernels_table.h"

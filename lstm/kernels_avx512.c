#define TABLE bppsa_lstm_avx512
#define SIMD_BYTES 64
#include "lstm/kernels_table.h"

#define TABLE bppsa_lstm_avx2
#define SIMD_BYTES 32
#include "lstm/kernels_table.h"

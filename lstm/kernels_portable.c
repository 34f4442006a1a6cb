#define TABLE bppsa_lstm_portable
#define SIMD_BYTES 16
#include "lstm/kernels_table.h"

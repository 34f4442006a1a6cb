/* The inside of the LSTM. */
#ifndef BPPSA_LSTM_LSTM_INTERNAL_H
#define BPPSA_LSTM_LSTM_INTERNAL_H

#include "recurrent/cell.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels' table (lstm_cuda.cu), or NULL in a build without CUDA (lstm_nocuda.c). */
const struct bppsa_cell_cuda *bppsa_lstm_cuda(void);

#ifdef __cplusplus
}
#endif

#endif

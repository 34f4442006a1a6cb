/* The inside of the RNN. */
#ifndef BPPSA_RNN_RNN_INTERNAL_H
#define BPPSA_RNN_RNN_INTERNAL_H

#include "recurrent/cell.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels' tables (rnn_cuda.cu, rnn_step_cuda.cu), or NULL in a build without CUDA (rnn_nocuda.c). */
const struct bppsa_cell_cuda *bppsa_rnn_cuda(void);
const struct bppsa_step_cuda *bppsa_rnn_step_cuda(void);

#ifdef __cplusplus
}
#endif
#endif

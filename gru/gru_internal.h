/* The inside of the GRU. */
#ifndef BPPSA_GRU_GRU_INTERNAL_H
#define BPPSA_GRU_GRU_INTERNAL_H

#include "recurrent/cell.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels' tables (gru_cuda.cu, gru_step_cuda.cu), or NULL in a build without CUDA (gru_nocuda.c). */
const struct bppsa_cell_cuda *bppsa_gru_cuda(void);
const struct bppsa_step_cuda *bppsa_gru_step_cuda(void);

#ifdef __cplusplus
}
#endif
#endif

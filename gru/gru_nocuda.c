/* Stands in for gru_cuda.cu in a build without CUDA, in which no cell has kernels. */
#include "gru/gru_internal.h"

const struct bppsa_cell_cuda *bppsa_gru_cuda(void) {
  return NULL;
}

const struct bppsa_step_cuda *bppsa_gru_step_cuda(void) {
  return NULL;
}

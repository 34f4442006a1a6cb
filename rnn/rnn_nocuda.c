/* Stands in for rnn_cuda.cu in a build without CUDA, in which no cell has kernels. */
#include "rnn/rnn_internal.h"

const struct bppsa_cell_cuda *bppsa_rnn_cuda(void) {
  return NULL;
}

const struct bppsa_step_cuda *bppsa_rnn_step_cuda(void) {
  return NULL;
}

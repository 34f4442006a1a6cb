/* Stands in for lstm_cuda.cu in a build without CUDA, in which no cell has kernels. */
#include "lstm/lstm_internal.h"

const struct bppsa_cell_cuda *bppsa_lstm_cuda(void) {
  return NULL;
}

/* The RNN on a GPU: its table of launchers. */
#include "rnn/rnn_cuda.cuh"

#include "recurrent/gpu/cell_launch.cuh"
#include "rnn/rnn_internal.h"

extern "C" const struct bppsa_cell_cuda *bppsa_rnn_cuda(void) {
  static const bppsa_cell_cuda table = bppsa_cell_make<rnn_unit>();
  return &table;
}

/* The LSTM on a GPU: its table of launchers. */
#include "lstm/lstm_cuda.cuh"

#include "lstm/lstm_internal.h"
#include "recurrent/gpu/cell_launch.cuh"

extern "C" const struct bppsa_cell_cuda *bppsa_lstm_cuda(void) {
  static const bppsa_cell_cuda table = bppsa_cell_make<lstm_unit>();
  return &table;
}

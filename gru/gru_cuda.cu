/* The GRU on a GPU: its table of launchers. */
#include "gru/gru_cuda.cuh"

#include "gru/gru_internal.h"
#include "recurrent/gpu/cell_launch.cuh"

extern "C" const struct bppsa_cell_cuda *bppsa_gru_cuda(void) {
  static const bppsa_cell_cuda table = bppsa_cell_make<gru_unit>();
  return &table;
}

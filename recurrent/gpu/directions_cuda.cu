/* Networks with two directions on a GPU: their rows are copied by a kernel. */
#include "recurrent/gpu/layers.cuh"
#include "recurrent/gpu/side_kernels.cuh"

namespace {

enum { THREADS = 256 };

template <typename real> bppsa_status move(const recurrent_network *n, const recurrent_rows *rows) {
  side_rows<real> r = {};
  r.from = (const real *)rows->from;
  r.to = (real *)rows->to;
  r.count = rows->rows * rows->width;
  r.from_row = rows->from_row;
  r.to_row = rows->to_row;
  r.width = rows->width;
  r.steps = rows->turned ? n->config.seq_len : 0;
  r.lengths = (rows->turned || rows->last) && n->ragged.active ? n->gpu->lengths : NULL;
  r.batch = n->batch;
  r.added = rows->added;
  r.last = rows->last && n->ragged.active;
  r.to += rows->last && !n->ragged.active ? (n->config.seq_len - 1) * n->batch * r.to_row : 0;
  BPPSA_LAUNCH(bppsa_recurrent_move<real>, (unsigned)((r.count + THREADS - 1) / THREADS), THREADS, 0,
               (cudaStream_t)bppsa_device_get_stream(n->base.device), r);
  return bppsa_cuda_check(cudaGetLastError(), "rows of two directions: launch");
}

} // namespace

extern "C" bppsa_status bppsa_sides_move_cuda(const recurrent_network *n, const recurrent_rows *rows) {
  return n->config.dtype == BPPSA_F32 ? move<float>(n, rows) : move<double>(n, rows);
}

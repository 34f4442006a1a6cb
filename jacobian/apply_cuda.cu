/* Mat-vecs on a GPU: launches. */
#include "core/check.cuh"
#include "jacobian/apply_internal.h"
#include "jacobian/apply_kernels.cuh"

namespace {

enum { THREADS = 128, MOST_GROUPS = 65535 /* of samples, in a launch: its second extent */ };

template <typename real, int SAMPLES> void launch(const bppsa_apply *a, cudaStream_t stream, apply_operands<real> o) {
  const int64_t blocks = (o.rows * a->lanes + THREADS - 1) / THREADS, all = o.samples;
  for (int64_t from = 0; from < all; from += (int64_t)MOST_GROUPS * SAMPLES) {
    o.samples = all - from < (int64_t)MOST_GROUPS * SAMPLES ? all - from : (int64_t)MOST_GROUPS * SAMPLES;
    BPPSA_LAUNCH((bppsa_apply_rows<real, SAMPLES>), dim3((unsigned)blocks, (unsigned)((o.samples + SAMPLES - 1) / SAMPLES)),
                 THREADS, 0, stream, o, a->lanes);
    o.values += o.samples * o.stride;
    o.x += o.samples * o.cols;
    o.y += o.samples * o.rows;
  }
}

template <typename real>
void run(const bppsa_apply *a, cudaStream_t stream, int64_t batch, bppsa_csr_values values, const void *x, void *y) {
  const apply_operands<real> o = {a->csr->rows,  a->csr->cols,    batch,    a->row_ptr, a->col, (const real *)values.data,
                                  values.stride, (const real *)x, (real *)y};
  if (batch > 1) {
    launch<real, 4>(a, stream, o);
  } else {
    launch<real, 1>(a, stream, o);
  }
}

} // namespace

extern "C" bppsa_status bppsa_apply_cuda_run(const bppsa_apply *a, void *stream, int64_t batch, bppsa_csr_values values,
                                             const void *x, void *y) {
  const cudaStream_t on = (cudaStream_t)stream;
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(a->index), "mat-vec"));
  if (a->csr->identity) {
    const size_t bytes = (size_t)(a->csr->rows * batch) * bppsa_dtype_size(a->dtype);
    return bppsa_cuda_check(cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, on), "mat-vec: copy");
  }
  if (a->csr->rows == 0) {
    return BPPSA_OK;
  }
  if (a->dtype == BPPSA_F32) {
    run<float>(a, on, batch, values, x, y);
  } else {
    run<double>(a, on, batch, values, x, y);
  }
  return bppsa_cuda_check(cudaGetLastError(), "mat-vec: launch");
}

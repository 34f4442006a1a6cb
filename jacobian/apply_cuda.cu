/* Launches of mat-vecs on a GPU. */
#include "core/compute/check.cuh"
#include "jacobian/apply_internal.h"
#include "jacobian/apply_kernels.cuh"

namespace {

static_assert(launch_most<apply_operands<float>>() == APPLY_TOGETHER, "mat-vecs that share a launch");

template <typename real, int SAMPLES>
void run(const bppsa_apply_pass *passes, int64_t count, int64_t batch, cudaStream_t stream) {
  typedef apply_operands<real> item;
  const auto launch = [&](const auto &g, auto most) {
    BPPSA_LAUNCH((bppsa_apply_rows<real, SAMPLES, most()>), launch_blocks(g), APPLY_THREADS, 0, stream, g);
  };
  launch_group<item> group;
  group.count = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_apply *a = passes[i].apply;
    const bppsa_csr_values values = passes[i].values;
    const item o = {a->csr->rows,
                    a->csr->cols,
                    batch,
                    a->row_ptr,
                    a->col,
                    (const real *)values.data,
                    values.stride,
                    (const real *)passes[i].x,
                    (real *)passes[i].y,
                    a->lanes};
    launch_add(&group, o, (o.rows * o.lanes + APPLY_THREADS - 1) / APPLY_THREADS, (batch + SAMPLES - 1) / SAMPLES, launch);
  }
  launch_flush(&group, launch);
}

template <typename real> void run_some(const bppsa_apply_pass *passes, int64_t count, int64_t batch, cudaStream_t stream) {
  (batch > 1 ? run<real, 4> : run<real, 1>)(passes, count, batch, stream);
}

} // namespace

extern "C" bppsa_status bppsa_apply_cuda_run(const bppsa_apply_pass *passes, int64_t count, int64_t batch, void *stream) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(passes[0].apply->index), "mat-vec"));
  (passes[0].apply->dtype == BPPSA_F32 ? run_some<float> : run_some<double>)(passes, count, batch, (cudaStream_t)stream);
  return bppsa_cuda_check(cudaGetLastError(), "mat-vec: launch");
}

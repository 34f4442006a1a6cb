/* The loss on a GPU: one launch where a block holds all rows, two otherwise. */
#include "core/check.cuh"
#include "train/loss_internal.h"
#include "train/loss_kernels.cuh"

static int64_t blocks_of(int64_t rows) {
  return (rows + LOSS_THREADS - 1) / LOSS_THREADS;
}

extern "C" int64_t bppsa_loss_scratch(int64_t rows) {
  return blocks_of(rows) * (int64_t)sizeof(loss_sum);
}

template <typename real>
static void launch(cudaStream_t stream, const bppsa_view *logits, const int64_t *labels, const bppsa_view *seed, int64_t rows,
                   loss_sum *sums, bppsa_gpu_result *result) {
  const int64_t blocks = blocks_of(rows), classes = logits->shape[logits->ndim - 1];
  const size_t shared = LOSS_THREADS * sizeof(loss_sum);
  real *out = seed == NULL ? NULL : (real *)seed->data;
  BPPSA_LAUNCH(bppsa_loss_rows<real>, (unsigned)blocks, LOSS_THREADS, shared, stream, rows, classes, (const real *)logits->data,
               labels, out, sums, result);
  if (blocks > 1) {
    BPPSA_LAUNCH(bppsa_loss_total, 1, LOSS_THREADS, shared, stream, rows, blocks, sums, result);
  }
}

extern "C" bppsa_status bppsa_loss_queue(const bppsa_device *device, const bppsa_view *logits, const int64_t *labels,
                                         const bppsa_view *seed, int64_t rows, void *scratch, bppsa_gpu_result *result) {
  const cudaStream_t stream = (cudaStream_t)bppsa_device_get_stream(device);
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(bppsa_device_get_index(device)), "loss"));
  if (blocks_of(rows) > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "loss on a GPU: %lld rows, expected fewer than 2^38", (long long)rows);
  }
  if (logits->dtype == BPPSA_F32) {
    launch<float>(stream, logits, labels, seed, rows, (loss_sum *)scratch, result);
  } else {
    launch<double>(stream, logits, labels, seed, rows, (loss_sum *)scratch, result);
  }
  return bppsa_cuda_check(cudaGetLastError(), "loss: launch");
}

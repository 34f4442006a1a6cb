/* Batches made on a GPU. */
#include "core/compute/check.cuh"
#include "train/data/dataset_internal.h"
#include "train/data/dataset_kernels.cuh"

enum { FILL_THREADS = 256 };

template <typename real>
static void launch(cudaStream_t stream, const bppsa_dataset *dataset, uint64_t seed, int64_t count, const int64_t *indices,
                   void *x, int64_t *labels) {
  const int64_t work = (dataset->seq_len + 3) / 4 * count, blocks = (work + FILL_THREADS - 1) / FILL_THREADS;
  BPPSA_LAUNCH(bppsa_bitstream_fill<real>, (unsigned)blocks, FILL_THREADS, 0, stream, seed, dataset->classes, dataset->seq_len,
               count, indices, (real *)x, labels, dataset->labels_per_step);
}

extern "C" bppsa_status bppsa_bitstream_queue(const bppsa_dataset *dataset, const bppsa_device *device, uint64_t seed,
                                              int64_t count, const int64_t *indices, const bppsa_view *x, int64_t *labels) {
  const cudaStream_t stream = (cudaStream_t)bppsa_device_get_stream(device);
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(bppsa_device_get_index(device)), "batch"));
  if ((dataset->seq_len + 3) / 4 * count / FILL_THREADS >= INT32_MAX) { /* each factor is below 2^31 */
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "batch on a GPU: %lld samples of %lld steps, expected fewer than 2^40 in all",
                      (long long)count, (long long)dataset->seq_len);
  }
  if (x == NULL || x->dtype == BPPSA_F32) {
    launch<float>(stream, dataset, seed, count, indices, x == NULL ? NULL : x->data, labels);
  } else {
    launch<double>(stream, dataset, seed, count, indices, x->data, labels);
  }
  return bppsa_cuda_check(cudaGetLastError(), "batch: launch");
}

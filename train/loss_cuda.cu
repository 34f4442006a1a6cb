/* The loss on a GPU: one launch if a block holds all rows, otherwise two; one more before them counts rows if some may be left
 * out. */
#include "core/compute/check.cuh"
#include "train/loss_internal.h"
#include "train/loss_kernels.cuh"

static int64_t blocks_of(int64_t rows) {
  return (rows + LOSS_THREADS - 1) / LOSS_THREADS;
}

extern "C" int64_t bppsa_loss_scratch(int64_t rows) {
  return blocks_of(rows) * (int64_t)sizeof(loss_sum);
}

template <typename real>
static void launch(cudaStream_t stream, const bppsa_loss_job *job, loss_sum *sums, bppsa_gpu_result *result) {
  const int64_t rows = job->rows, classes = job->logits->shape[job->logits->ndim - 1];
  const unsigned blocks = (unsigned)blocks_of(rows);
  const size_t shared = LOSS_THREADS * sizeof(loss_sum);
  const real *logits = (const real *)job->logits->data;
  real *seed = job->seed == NULL ? NULL : (real *)job->seed->data;
  loss_terms terms = {};
  terms.rows = rows;
  terms.classes = classes;
  terms.terms = job->labels == NULL ? classes : 1;
  terms.objective = job->objective;
  terms.mean_rows = job->mean_rows;
  terms.lengths = job->lengths;
  terms.weights = job->weights;
  terms.batch = job->logits->shape[job->logits->ndim - 2];
  if (job->objective.ignores || job->lengths != NULL || job->weights != NULL) {
    BPPSA_LAUNCH(bppsa_loss_count, 1, LOSS_THREADS, LOSS_THREADS * sizeof(loss_count), stream, terms, job->labels, result);
  }
  if (job->labels == NULL) {
    BPPSA_LAUNCH(bppsa_loss_squares<real>, blocks, LOSS_THREADS, shared, stream, terms, logits, (const real *)job->targets, seed,
                 sums, result);
  } else {
    BPPSA_LAUNCH(bppsa_loss_rows<real>, blocks, LOSS_THREADS, shared, stream, terms, logits, job->labels, seed, sums, result);
  }
  if (blocks > 1) {
    BPPSA_LAUNCH(bppsa_loss_total, 1, LOSS_THREADS, shared, stream, terms, (int64_t)blocks, sums, result);
  }
}

extern "C" bppsa_status bppsa_loss_queue(const bppsa_device *device, const bppsa_loss_job *job, void *scratch,
                                         bppsa_gpu_result *result) {
  const cudaStream_t stream = (cudaStream_t)bppsa_device_get_stream(device);
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(bppsa_device_get_index(device)), "loss"));
  if (blocks_of(job->rows) > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "loss on a GPU: %lld rows, expected fewer than 2^38", (long long)job->rows);
  }
  if (job->logits->dtype == BPPSA_F32) {
    launch<float>(stream, job, (loss_sum *)scratch, result);
  } else {
    launch<double>(stream, job, (loss_sum *)scratch, result);
  }
  return bppsa_cuda_check(cudaGetLastError(), "loss: launch");
}

/* Predicted weights on a GPU: a thread for each weight. */
#include "core/base/host_device.h"
#include "core/compute/check.cuh"
#include "core/compute/launch.cuh"
#include "distributed/pipeline/predict_internal.h"

#define EACH_REAL "distributed/pipeline/predict_element.inc"
#include "core/base/each_real.inc"

enum { PREDICT_THREADS = 256 };

/* Gaps between tensors, where everything is 0, get numbers that nothing reads. */
template <typename real>
__global__ void bppsa_predict_weights(predict_rule rule, int64_t count, const real *weights, const real *first,
                                      const real *second, real *predicted) {
  const int64_t i = (int64_t)blockIdx.x * PREDICT_THREADS + threadIdx.x;
  if (i < count) {
    predicted[i] = predict_one(rule, weights[i], first[i], second != nullptr ? second[i] : (real)0);
  }
}

template <typename real>
static void launch(const bppsa_model *model, unsigned blocks, const predict_rule &rule, const void *first, const void *second,
                   void *predicted) {
  BPPSA_LAUNCH(bppsa_predict_weights<real>, blocks, PREDICT_THREADS, 0, (cudaStream_t)bppsa_device_get_stream(model->device),
               rule, model->reals, (const real *)model->device_values, (const real *)first, (const real *)second,
               (real *)predicted);
}

extern "C" bppsa_status bppsa_predict_queue(const bppsa_model *model, const predict_rule *rule, const void *first,
                                            const void *second, void *predicted) {
  const int64_t blocks = (model->reals - 1) / PREDICT_THREADS + 1;
  if (blocks > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "prediction on a GPU: %lld weights, expected fewer than 2^39",
                      (long long)model->reals);
  }
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(bppsa_device_get_index(model->device)), "prediction"));
  if (model->dtype == BPPSA_F32) {
    launch<float>(model, (unsigned)blocks, *rule, first, second, predicted);
  } else {
    launch<double>(model, (unsigned)blocks, *rule, first, second, predicted);
  }
  return bppsa_cuda_check(cudaGetLastError(), "prediction: launch");
}

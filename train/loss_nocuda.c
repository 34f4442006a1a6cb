/* In a build without CUDA no logits are in GPU memory. */
#include "train/loss_internal.h"

int64_t bppsa_loss_scratch(int64_t rows) {
  (void)rows;
  return 0;
}

bppsa_status bppsa_loss_queue(const bppsa_device *device, const bppsa_loss_job *job, void *scratch, bppsa_gpu_result *result) {
  (void)device, (void)job, (void)scratch, (void)result;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "loss on a GPU: this build has no CUDA; use device cpu");
}

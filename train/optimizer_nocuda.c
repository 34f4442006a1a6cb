/* In a build without CUDA no parameters are in GPU memory. */
#include "train/optimizer_internal.h"

int64_t bppsa_update_scratch(void) {
  return 0;
}

bppsa_status bppsa_update_queue(const bppsa_device *device, const bppsa_update_arena *arena, double clip_norm,
                                const bppsa_step_factors *factors, bppsa_gpu_result *result) {
  (void)device, (void)arena, (void)clip_norm, (void)factors, (void)result;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "update on a GPU: this build has no CUDA; use device cpu");
}

/* Updates of parameters in GPU memory: queued, so that a step can be recorded. Internal. */
#ifndef BPPSA_TRAIN_OPTIMIZER_INTERNAL_H
#define BPPSA_TRAIN_OPTIMIZER_INTERNAL_H

#include "train/gpu.h"
#include "train/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begins a step: counts it and gives what changes from step to step. */
bppsa_step_factors bppsa_optimizer_begin(bppsa_optimizer *optimizer);
/* Takes back the count: the step was not taken. */
void bppsa_optimizer_cancel(bppsa_optimizer *optimizer);
/* Queues norm, clipping (0: none) and update of a GPU model. factors and result are of GPU memory. Nothing is updated where
 * result->loss or the norm is not finite. Sets result->norm and result->nonfinite; leaves the gradients as they are. ERR_CUDA. */
bppsa_status bppsa_optimizer_queue(bppsa_optimizer *optimizer, double clip_norm, const bppsa_step_factors *factors,
                                   bppsa_gpu_result *result);

/* The launches behind it. All pointers are of GPU memory; velocity or moments NULL where there are none. */
typedef struct {
  const bppsa_optimizer_config *config;
  bppsa_dtype dtype;
  int64_t reals; /* gaps hold 0 and stay 0 */
  void *values, *slots[2];
  const void *gradients;
  void *scratch; /* bppsa_update_scratch bytes */
} bppsa_update_arena;

int64_t bppsa_update_scratch(void);
bppsa_status bppsa_update_queue(const bppsa_device *device, const bppsa_update_arena *arena, double clip_norm,
                                const bppsa_step_factors *factors, bppsa_gpu_result *result);

#ifdef __cplusplus
}
#endif
#endif

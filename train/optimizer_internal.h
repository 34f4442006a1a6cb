/* Updates of parameters in GPU memory, which are queued so that a step can be recorded. Internal. */
#ifndef BPPSA_TRAIN_OPTIMIZER_INTERNAL_H
#define BPPSA_TRAIN_OPTIMIZER_INTERNAL_H

#include "train/gpu.h"
#include "train/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The factor by which the decay adds a parameter to its gradient. A decoupled decay is among the step's factors instead. */
static inline double bppsa_optimizer_added_decay(const bppsa_optimizer_config *config) {
  return bppsa_optimizer_get(config->kind)->decoupled ? 0.0 : config->weight_decay;
}

/* Begins a step: counts it and returns the numbers that change from step to step. */
bppsa_step_factors bppsa_optimizer_begin(bppsa_optimizer *optimizer);
/* Takes the count back if the step was not taken. */
void bppsa_optimizer_cancel(bppsa_optimizer *optimizer);
/* Queues norm, clipping (0: none) and update of a GPU model. factors and result are in GPU memory. Nothing is updated if
 * result->loss or the norm is not finite. Writes result->norm and result->nonfinite; does not change the gradients. ERR_CUDA. */
bppsa_status bppsa_optimizer_queue(bppsa_optimizer *optimizer, double clip_norm, const bppsa_step_factors *factors,
                                   bppsa_gpu_result *result);

/* State tensor `slot` of all parameters, 0 or 1, in GPU memory, laid out as the model's values; NULL: there is none. */
const void *bppsa_optimizer_device_slot(const bppsa_optimizer *optimizer, int64_t slot);

/* The arguments of an update's launches. All pointers point to GPU memory; a slot that the optimiser does not have is NULL. */
typedef struct {
  const bppsa_optimizer_config *config;
  bppsa_dtype dtype;
  int64_t reals; /* gaps between tensors hold 0 and stay 0 */
  void *values, *slots[2];
  const void *gradients;
  void *scratch;        /* bppsa_update_scratch() bytes */
  const uint8_t *fixed; /* [reals]: not 0 where a real is a statistic, which an update leaves alone; NULL: none is */
} bppsa_update_arena;

int64_t bppsa_update_scratch(void);
bppsa_status bppsa_update_queue(const bppsa_device *device, const bppsa_update_arena *arena, double clip_norm,
                                const bppsa_step_factors *factors, bppsa_gpu_result *result);

#ifdef __cplusplus
}
#endif
#endif

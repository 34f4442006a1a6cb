/* What the kernels of training share with the host. Internal.
 *
 * A step on a GPU is a sequence of launches without waiting. One small structure is copied to the GPU before it, with what the step
 * needs to know, and one is copied back after it, with what the step found.
 */
#ifndef BPPSA_TRAIN_GPU_H
#define BPPSA_TRAIN_GPU_H

#include <stdint.h>

/* Results of a step. The loss and the update each write their own fields. */
typedef struct {
  double loss; /* mean over the counted rows */
  int64_t correct;
  int64_t rows;      /* counted rows */
  double weight;     /* Σ of their weights; without weights their number */
  double norm;       /* of all gradients, before clipping */
  int64_t nonfinite; /* 1: a parameter was not finite after the update */
} bppsa_gpu_result;

/* Numbers of an update that change from step to step. */
typedef struct {
  double rate;       /* lr of this step */
  double keep;       /* adamw: 1 - lr λ, the factor on a parameter; otherwise 1 */
  double size;       /* adam, adamw: lr / (1 - β1^k) */
  double correction; /* adam, adamw: √(1 - β2^k) */
} bppsa_step_factors;

#endif

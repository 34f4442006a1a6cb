/* What the kernels of training share with the host. Internal.
 *
 * A step on a GPU is a row of launches that never waits. What it needs to know of the step is copied there before, what it found is
 * copied back after: one small structure each.
 */
#ifndef BPPSA_TRAIN_GPU_H
#define BPPSA_TRAIN_GPU_H

#include <stdint.h>

/* Written by the loss and by the update, each its own fields. */
typedef struct {
  double loss; /* mean over the rows that count */
  int64_t correct;
  int64_t rows;      /* that count */
  double norm;       /* of all gradients, before clipping */
  int64_t nonfinite; /* 1: a parameter was not finite after the update */
} bppsa_gpu_result;

/* What changes from step to step of an update. */
typedef struct {
  double rate;       /* lr of this step */
  double keep;       /* adamw: 1 - lr λ, what the decay leaves of a parameter; otherwise 1 */
  double size;       /* adam, adamw: lr / (1 - β1^k) */
  double correction; /* adam, adamw: √(1 - β2^k) */
} bppsa_step_factors;

#endif

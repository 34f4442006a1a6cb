/* The passes of tests/train/tiny_model.h on a GPU. */
#ifndef BPPSA_TESTS_TINY_GPU_H
#define BPPSA_TESTS_TINY_GPU_H

#include <stdbool.h>

#include "core/compute/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In GPU memory, so that passes are counted where they run: they may be replayed. */
typedef struct {
  int64_t forwards, backwards;
  int64_t poison_forward, poison_backward; /* the first pass with NaNs; 0: none */
  double explode;                          /* added to the gradient of every weight */
} tiny_state;

/* All pointers point to GPU memory. */
typedef struct {
  int64_t steps, batch, input, classes, bias_at; /* bias_at: reals from the weight [C,I] to the bias [C] */
  bool per_step;
  const void *x, *values, *seed;
  void *features, *logits, *gradients;
  tiny_state *state;
} tiny_gpu;

/* Queues the pass. ERR_CUDA. */
bppsa_status tiny_gpu_forward(const bppsa_device *device, bppsa_dtype dtype, const tiny_gpu *g);
bppsa_status tiny_gpu_backward(const bppsa_device *device, bppsa_dtype dtype, const tiny_gpu *g);

#ifdef __cplusplus
}
#endif
#endif

/* CUDA kernels that make batches. */
#ifndef BPPSA_TRAIN_DATA_DATASET_KERNELS_CUH
#define BPPSA_TRAIN_DATA_DATASET_KERNELS_CUH

#include <stdint.h>

#include "core/compute/launch.cuh"
#include "train/data/bitstream.h"

/* Thread i makes four steps of sample i % count, from step 4 (i / count) on. x: [steps][count]; labels: [count], or
 * [steps][count]; either may be NULL. */
template <typename real>
__global__ void bppsa_bitstream_fill(uint64_t seed, int64_t classes, int64_t steps, int64_t count, const int64_t *indices,
                                     real *x, int64_t *labels, bool labels_per_step) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, first = i / count * 4, s = i % count;
  if (first >= steps) {
    return;
  }
  const int64_t c = bppsa_bitstream_class(seed, classes, indices[s]), end = first + 4 < steps ? first + 4 : steps;
  uint32_t random[4];
  bppsa_bitstream_random(seed, indices[s], 0, first, random);
  for (int64_t t = first; x != nullptr && t < end; ++t) {
    x[t * count + s] = random[t - first] < bppsa_bitstream_threshold(c) ? (real)1 : (real)0;
  }
  for (int64_t t = first; labels != nullptr && t < (labels_per_step ? end : (int64_t)1); ++t) {
    labels[t * count + s] = c;
  }
}

#endif

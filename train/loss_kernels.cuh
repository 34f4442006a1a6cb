/* CUDA kernels of the cross-entropy: a thread a row, sums over blocks of rows in the rows' order. */
#ifndef BPPSA_TRAIN_LOSS_KERNELS_CUH
#define BPPSA_TRAIN_LOSS_KERNELS_CUH

#include <math.h>
#include <stdint.h>

#include "core/both.h"
#include "core/launch.cuh"
#include "train/gpu.h"

#define real float
#define R(name) name##_f32
#include "train/loss_row.inc"
#undef real
#undef R
#define real double
#define R(name) name##_f64
#include "train/loss_row.inc"
#undef real
#undef R

enum { LOSS_THREADS = 128 }; /* rows of a block */

struct loss_sum {
  double loss;
  int64_t correct;
};

__device__ inline double loss_of_row(const float *logits, int64_t classes, int64_t label, double scale, float *seed,
                                     int64_t *correct) {
  return row_loss_f32(logits, classes, label, scale, seed, correct);
}

__device__ inline double loss_of_row(const double *logits, int64_t classes, int64_t label, double scale, double *seed,
                                     int64_t *correct) {
  return row_loss_f64(logits, classes, label, scale, seed, correct);
}

__device__ inline void loss_finish(const loss_sum &sum, int64_t rows, bppsa_gpu_result *result) {
  result->loss = sum.loss / (double)rows;
  result->correct = sum.correct;
}

/* Row r = block LOSS_THREADS + thread. logits, seed: [rows][classes]; sums: a block each. The only block of a launch finishes the result. */
template <typename real>
__global__ void bppsa_loss_rows(int64_t rows, int64_t classes, const real *logits, const int64_t *labels, real *seed,
                                loss_sum *sums, bppsa_gpu_result *result) {
  BPPSA_SHARED(loss_sum, own);
  const int64_t first = (int64_t)blockIdx.x * LOSS_THREADS, r = first + threadIdx.x;
  if (r < rows) {
    int64_t correct = 0;
    own[threadIdx.x].loss = loss_of_row(logits + r * classes, classes, labels[r], 1.0 / (double)rows,
                                        seed == nullptr ? nullptr : seed + r * classes, &correct);
    own[threadIdx.x].correct = correct;
  }
  __syncthreads();
  if (threadIdx.x > 0) {
    return;
  }
  loss_sum sum = {0.0, 0};
  for (int64_t i = 0; i < LOSS_THREADS && first + i < rows; ++i) {
    sum.loss += own[i].loss;
    sum.correct += own[i].correct;
  }
  if (gridDim.x == 1) {
    loss_finish(sum, rows, result);
  } else {
    sums[blockIdx.x] = sum;
  }
}

/* One block: thread i takes a stretch of the blocks' sums, thread 0 the stretches. */
__global__ void bppsa_loss_total(int64_t rows, int64_t blocks, const loss_sum *sums, bppsa_gpu_result *result) {
  BPPSA_SHARED(loss_sum, own);
  const int64_t stretch = (blocks + LOSS_THREADS - 1) / LOSS_THREADS, first = threadIdx.x * stretch;
  loss_sum sum = {0.0, 0};
  for (int64_t i = first; i < first + stretch && i < blocks; ++i) {
    sum.loss += sums[i].loss;
    sum.correct += sums[i].correct;
  }
  own[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < LOSS_THREADS; ++i) {
      sum.loss += own[i].loss;
      sum.correct += own[i].correct;
    }
    loss_finish(sum, rows, result);
  }
}

#endif

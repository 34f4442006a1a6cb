/* CUDA kernels of the losses: one thread for each row, sums over blocks of rows in the order of the rows. */
#ifndef BPPSA_TRAIN_LOSS_KERNELS_CUH
#define BPPSA_TRAIN_LOSS_KERNELS_CUH

#include <math.h>
#include <stdint.h>

#include "core/base/host_device.h"
#include "core/compute/launch.cuh"
#include "train/gpu.h"
#include "train/objective.h"

#define EACH_REAL "train/loss_row.inc"
#include "core/base/each_real.inc"

enum { LOSS_THREADS = 128 }; /* rows in a block */

struct loss_sum {
  double loss;
  int64_t correct;
};

/* The rows and terms that the sums run over. */
struct loss_terms {
  int64_t rows, classes;
  int64_t terms;             /* of the mean, in each row */
  bppsa_objective objective; /* where it ignores a label, result->rows has the number of rows that are not left out */
  int64_t mean_rows;         /* the mean is over so many rows; 0: over the counted ones, by their weights */
  const int64_t *lengths;    /* the steps of each sample [b], whose rows of later steps are left out; NULL: all steps count */
  int64_t batch;
  const double *weights; /* [rows], rows of weight 0 are left out; NULL: all are 1 */
};

/* Does row r take no part? labels NULL: rows have targets. */
__device__ inline bool loss_left_out(const loss_terms &t, const int64_t *labels, int64_t r) {
  return (t.objective.ignores && labels[r] == t.objective.ignored) ||
         (t.lengths != nullptr && r / t.batch >= t.lengths[r % t.batch]) || (t.weights != nullptr && t.weights[r] == 0);
}

/* May rows be left out? Then the rows have been counted before. */
__device__ inline bool loss_is_counted(const loss_terms &t) {
  return t.objective.ignores || t.lengths != nullptr || t.weights != nullptr;
}

__device__ inline double loss_weight(const loss_terms &t, int64_t r) {
  return t.weights != nullptr ? t.weights[r] : 1.0;
}

/* The seed of a row that is left out; NULL: it is not wanted. */
template <typename real> __device__ inline void loss_clear_row(const loss_terms &t, real *seed) {
  for (int64_t c = 0; seed != nullptr && c < t.classes; ++c) {
    seed[c] = 0;
  }
}

/* The number of counted rows. */
__device__ inline int64_t loss_counted(const loss_terms &t, const bppsa_gpu_result *result) {
  return loss_is_counted(t) ? result->rows : t.rows;
}

/* The sum of the counted rows' weights. */
__device__ inline double loss_sum_weights(const loss_terms &t, const bppsa_gpu_result *result) {
  return t.weights != nullptr ? result->weight : (double)loss_counted(t, result);
}

/* The number of rows in the mean, each counted by its weight. */
__device__ inline double loss_mean_rows(const loss_terms &t, const bppsa_gpu_result *result) {
  return t.mean_rows > 0 ? (double)t.mean_rows : loss_sum_weights(t, result);
}

__device__ inline void loss_finish(const loss_terms &t, const loss_sum &sum, bppsa_gpu_result *result) {
  const int64_t rows = loss_counted(t, result);
  result->loss = rows > 0 ? sum.loss / (loss_mean_rows(t, result) * (double)t.terms) : 0.0;
  result->correct = sum.correct;
  result->weight = loss_sum_weights(t, result);
  result->rows = rows;
}

/* Thread 0 sums the rows of the block's threads in their order. If the launch has one block, it also finishes the result. */
__device__ inline void loss_sum_block(const loss_terms &t, const loss_sum *own, loss_sum *sums, bppsa_gpu_result *result) {
  const int64_t first = (int64_t)blockIdx.x * LOSS_THREADS;
  loss_sum sum = {0.0, 0};
  for (int64_t i = 0; i < LOSS_THREADS && first + i < t.rows; ++i) {
    sum.loss += own[i].loss;
    sum.correct += own[i].correct;
  }
  if (gridDim.x == 1) {
    loss_finish(t, sum, result);
  } else {
    sums[blockIdx.x] = sum;
  }
}

struct loss_count {
  int64_t rows;
  double weight;
};

/* In one block: result->rows = the number of rows that are not left out, and result->weight the sum of their weights. */
__global__ void bppsa_loss_count(loss_terms t, const int64_t *labels, bppsa_gpu_result *result) {
  BPPSA_SHARED(loss_count, own);
  loss_count count = {0, 0.0};
  for (int64_t r = threadIdx.x; r < t.rows; r += LOSS_THREADS) {
    if (!loss_left_out(t, labels, r)) {
      count.rows += 1;
      count.weight += loss_weight(t, r);
    }
  }
  own[threadIdx.x] = count;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < LOSS_THREADS; ++i) {
      count.rows += own[i].rows;
      count.weight += own[i].weight;
    }
    result->rows = count.rows;
    result->weight = count.weight;
  }
}

/* Row r = block LOSS_THREADS + thread. logits, seed: [rows][classes]; sums: one for each block. */
template <typename real>
__global__ void bppsa_loss_rows(loss_terms t, const real *logits, const int64_t *labels, real *seed, loss_sum *sums,
                                bppsa_gpu_result *result) {
  BPPSA_SHARED(loss_sum, own);
  const int64_t r = (int64_t)blockIdx.x * LOSS_THREADS + threadIdx.x;
  if (r < t.rows) {
    real *row_seed = seed == nullptr ? nullptr : seed + r * t.classes;
    int64_t correct = 0;
    double loss = 0.0;
    if (loss_left_out(t, labels, r)) {
      loss_clear_row(t, row_seed);
    } else {
      const double weight = loss_weight(t, r), scale = weight / loss_mean_rows(t, result);
      loss = weight * loss_of_row(logits + r * t.classes, t.classes, labels[r], scale, row_seed, &correct);
    }
    own[threadIdx.x].loss = loss;
    own[threadIdx.x].correct = correct;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    loss_sum_block(t, own, sums, result);
  }
}

/* Likewise for outputs and targets, [rows][classes], by either error. Rows have no label: each that is counted subtracts 1 from the
 * number of correct ones. */
template <typename real>
__global__ void bppsa_loss_squares(loss_terms t, const real *outputs, const real *targets, real *seed, loss_sum *sums,
                                   bppsa_gpu_result *result) {
  BPPSA_SHARED(loss_sum, own);
  const int64_t r = (int64_t)blockIdx.x * LOSS_THREADS + threadIdx.x;
  if (r < t.rows) {
    const real *row = outputs + r * t.classes, *wanted = targets + r * t.classes;
    const double weight = loss_weight(t, r), scale = weight / (loss_mean_rows(t, result) * (double)t.terms);
    real *row_seed = seed == nullptr ? nullptr : seed + r * t.classes;
    const bool left_out = loss_left_out(t, nullptr, r);
    double loss = 0.0;
    if (left_out) {
      loss_clear_row(t, row_seed);
    } else {
      loss = weight * error_of_row(t.objective.kind == BPPSA_LOSS_BINARY, row, wanted, t.classes, scale, row_seed);
    }
    own[threadIdx.x].loss = loss;
    own[threadIdx.x].correct = left_out ? 0 : -1;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    loss_sum_block(t, own, sums, result);
  }
}

/* In one block: each thread sums a range of the blocks' sums, thread 0 sums the ranges. */
__global__ void bppsa_loss_total(loss_terms t, int64_t blocks, const loss_sum *sums, bppsa_gpu_result *result) {
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
    loss_finish(t, sum, result);
  }
}

#endif

/* The tiny model on a GPU: one block computes every number as the CPU does. */
#include <math.h>

#include "core/compute/check.cuh"
#include "tests/support/tiny_gpu.h"

enum { TINY_THREADS = 64 };

__device__ static int64_t rows_of(const tiny_gpu &g) {
  return g.per_step ? g.steps * g.batch : g.batch;
}

/* Computes row r of the features [rows][input]. */
template <typename real> __device__ static void features_of(const tiny_gpu &g, int64_t r) {
  const real *x = (const real *)g.x;
  real *features = (real *)g.features + r * g.input;
  for (int64_t i = 0; i < g.input; ++i) {
    real sum = 0;
    for (int64_t t = 0; t < (g.per_step ? (int64_t)1 : g.steps); ++t) {
      const double value = (double)x[(t * g.batch + r) * g.input + i];
      sum = (real)((double)sum + (g.per_step ? value : value / (double)g.steps));
    }
    features[i] = sum;
  }
}

template <typename real> __global__ void tiny_forward_pass(tiny_gpu g) {
  const real *weight = (const real *)g.values, *bias = weight + g.bias_at, *features = (const real *)g.features;
  real *logits = (real *)g.logits;
  const bool poisoned = g.state->poison_forward > 0 && g.state->forwards + 1 >= g.state->poison_forward;
  for (int64_t r = threadIdx.x; r < rows_of(g); r += blockDim.x) {
    features_of<real>(g, r);
    for (int64_t c = 0; c < g.classes; ++c) {
      double sum = (double)bias[c];
      for (int64_t i = 0; i < g.input; ++i) {
        sum += (double)weight[c * g.input + i] * (double)features[r * g.input + i];
      }
      logits[r * g.classes + c] = poisoned && r == 1 ? (real)NAN : (real)sum;
    }
  }
  __syncthreads(); /* all threads have read the count */
  if (threadIdx.x == 0) {
    g.state->forwards += 1;
  }
}

template <typename real> __global__ void tiny_backward_pass(tiny_gpu g) {
  const real *seed = (const real *)g.seed, *features = (const real *)g.features;
  real *weight = (real *)g.gradients, *bias = weight + g.bias_at;
  const bool poisoned = g.state->poison_backward > 0 && g.state->backwards + 1 >= g.state->poison_backward;
  for (int64_t k = threadIdx.x; k < g.classes * (g.input + 1); k += blockDim.x) {
    const int64_t c = k / (g.input + 1), i = k % (g.input + 1);
    double sum = i < g.input ? g.state->explode : 0.0;
    for (int64_t r = 0; r < rows_of(g); ++r) {
      const double s = (double)seed[r * g.classes + c];
      sum += i < g.input ? s * (double)features[r * g.input + i] : s;
    }
    if (i < g.input) {
      weight[c * g.input + i] = poisoned && k == 0 ? (real)NAN : (real)sum;
    } else {
      bias[c] = (real)sum;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    g.state->backwards += 1;
  }
}

extern "C" bppsa_status tiny_gpu_forward(const bppsa_device *device, bppsa_dtype dtype, const tiny_gpu *g) {
  const cudaStream_t stream = (cudaStream_t)bppsa_device_get_stream(device);
  if (dtype == BPPSA_F32) {
    BPPSA_LAUNCH(tiny_forward_pass<float>, 1, TINY_THREADS, 0, stream, *g);
  } else {
    BPPSA_LAUNCH(tiny_forward_pass<double>, 1, TINY_THREADS, 0, stream, *g);
  }
  return bppsa_cuda_check(cudaGetLastError(), "tiny model");
}

extern "C" bppsa_status tiny_gpu_backward(const bppsa_device *device, bppsa_dtype dtype, const tiny_gpu *g) {
  const cudaStream_t stream = (cudaStream_t)bppsa_device_get_stream(device);
  if (dtype == BPPSA_F32) {
    BPPSA_LAUNCH(tiny_backward_pass<float>, 1, TINY_THREADS, 0, stream, *g);
  } else {
    BPPSA_LAUNCH(tiny_backward_pass<double>, 1, TINY_THREADS, 0, stream, *g);
  }
  return bppsa_cuda_check(cudaGetLastError(), "tiny model");
}

/* Streams, and bppsa_cuda_probe: asks the CUDA runtime, and runs and checks one small kernel on the first GPU. */
#include <stdio.h>
#include <string.h>

#include "core/compute/check.cuh"
#include "core/compute/device.h"
#include "core/compute/device_internal.h"
#include "core/compute/device_kernels.cuh"
#include "core/compute/launch.cuh"

enum { SELF_TEST_N = 1000, SELF_TEST_THREADS = 256 }; /* the last block is not full */

/* Runs y = 3x + y with x = i, y = 2i + 1: every value is a small integer, so the result 5i + 1 is exact in float whether or
 * not the product is fused with the sum. Returns the first error; *wrong is the first wrong element or -1. */
static cudaError_t self_test_run(float *device_x, float *device_y, int64_t *wrong) {
  float x[SELF_TEST_N], y[SELF_TEST_N];
  for (int i = 0; i < SELF_TEST_N; ++i) {
    x[i] = (float)i;
    y[i] = (float)(2 * i + 1);
  }
  const int blocks = (SELF_TEST_N + SELF_TEST_THREADS - 1) / SELF_TEST_THREADS;
  cudaError_t error = cudaMemcpy(device_x, x, sizeof x, cudaMemcpyHostToDevice);
  if (error == cudaSuccess) {
    error = cudaMemcpy(device_y, y, sizeof y, cudaMemcpyHostToDevice);
  }
  if (error == cudaSuccess) {
    BPPSA_LAUNCH(bppsa_self_test_axpy, blocks, SELF_TEST_THREADS, 0, 0, (int64_t)SELF_TEST_N, 3.0f, device_x, device_y);
    error = cudaGetLastError();
  }
  if (error == cudaSuccess) {
    error = cudaMemcpy(y, device_y, sizeof y, cudaMemcpyDeviceToHost);
  }
  *wrong = -1;
  for (int i = 0; error == cudaSuccess && i < SELF_TEST_N; ++i) {
    if (y[i] != (float)(5 * i + 1)) {
      *wrong = i;
      break;
    }
  }
  return error;
}

static cudaError_t self_test(int64_t *wrong) {
  float *x = NULL, *y = NULL;
  cudaError_t error = cudaMalloc((void **)&x, SELF_TEST_N * sizeof *x);
  if (error == cudaSuccess) {
    error = cudaMalloc((void **)&y, SELF_TEST_N * sizeof *y);
  }
  if (error == cudaSuccess) {
    error = self_test_run(x, y, wrong);
  }
  cudaFree(x);
  cudaFree(y);
  return error;
}

static void report_error(bppsa_cuda_report *report, const char *what, cudaError_t error) {
  snprintf(report->detail, sizeof report->detail, "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
  (void)cudaGetLastError(); /* clears errors that are not sticky */
}

static void probe(bppsa_cuda_report *report) {
  int runtime = 0, driver = 0, devices = 0, previous = 0;
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) {
    report->runtime = runtime;
  }
  if (cudaDriverGetVersion(&driver) == cudaSuccess) {
    report->driver = driver;
  }
  cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess && driver == 0) {
    (void)cudaGetLastError();
    snprintf(report->detail, sizeof report->detail, "no NVIDIA driver on this machine");
    return;
  }
  if (error != cudaSuccess) {
    report_error(report, "counting GPUs", error);
    return;
  }
  report->devices = devices;
  if (devices == 0) {
    snprintf(report->detail, sizeof report->detail, "no GPU on this machine");
    return;
  }
  cudaDeviceProp properties;
  error = cudaGetDeviceProperties(&properties, 0);
  if (error != cudaSuccess) {
    report_error(report, "properties of GPU 0", error);
    return;
  }
  snprintf(report->name, sizeof report->name, "%.127s", properties.name);
  report->memory = (int64_t)properties.totalGlobalMem;
  int64_t wrong = -1;
  error = cudaGetDevice(&previous);
  if (error == cudaSuccess) {
    error = cudaSetDevice(0);
  }
  if (error == cudaSuccess) {
    error = self_test(&wrong);
    cudaSetDevice(previous);
  }
  if (error != cudaSuccess) {
    report_error(report, "self-test kernel on GPU 0", error);
  } else if (wrong >= 0) {
    snprintf(report->detail, sizeof report->detail, "self-test kernel on GPU 0: element %lld is wrong", (long long)wrong);
  } else {
    report->kernel_checked = true;
  }
}

extern "C" void bppsa_cuda_probe(bppsa_cuda_report *report) {
  if (report == NULL) {
    return;
  }
  memset(report, 0, sizeof *report);
  report->built = true;
  probe(report);
}

extern "C" bppsa_status bppsa_cuda_stream_create(int32_t index, void **stream) {
  cudaStream_t made;
  int least = 0, greatest = 0;
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "stream"));
  BPPSA_TRY(bppsa_cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream"));
  BPPSA_TRY(bppsa_cuda_check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest), "stream"));
  *stream = made;
  return BPPSA_OK;
}

extern "C" void bppsa_cuda_stream_destroy(int32_t index, void *stream) {
  if (cudaSetDevice(index) == cudaSuccess) {
    (void)cudaStreamDestroy((cudaStream_t)stream);
  }
}

extern "C" bppsa_status bppsa_cuda_wait(int32_t index, void *stream) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "wait"));
  return bppsa_cuda_check(cudaStreamSynchronize((cudaStream_t)stream), "GPU work");
}

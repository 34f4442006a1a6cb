/* A small SIMT machine for the tests: stands where <cuda_runtime.h> would, so that a .cu file compiled as C++ runs its kernels on the
 * processor, under its sanitizers. No backend: it is slow, and it has one device, in host memory.
 *
 * A block's threads are fibers of one host thread. They run until a barrier, a shuffle or their end, in ascending order, and in
 * descending order after every other barrier: what depends on an order shows. Shared memory has exactly the launch's size, and so has
 * every allocation; both begin poisoned (all bits set: NaN). A barrier that some threads of a block miss by ending, or a shuffle whose mask names a
 * thread that does not come, ends the program with the kernel's name.
 */
#ifndef BPPSA_TESTS_SIMT_CUDA_RUNTIME_H
#define BPPSA_TESTS_SIMT_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <functional>

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint3 {
  unsigned x, y, z;
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* ---- for kernels ---- */

void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);
int __syncthreads_or(int predicate);

/* Every thread named in the mask gives `size` bytes and gets those of `lane`, which is of the mask. */
void simt_exchange(unsigned mask, const void *mine, void *theirs, size_t size, int lane);
unsigned simt_ballot(unsigned mask, int predicate);
int simt_lane();

template <typename T> T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  T result;
  const int first = simt_lane() / width * width;
  simt_exchange(mask, &value, &result, sizeof value, first + (lane & (width - 1)));
  return result;
}
template <typename T> T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32) {
  T result;
  const int lane = simt_lane() ^ other;
  simt_exchange(mask, &value, &result, sizeof value, lane / width > simt_lane() / width ? simt_lane() : lane);
  return result;
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return simt_ballot(mask, predicate);
}
inline int __any_sync(unsigned mask, int predicate) {
  return simt_ballot(mask, predicate) != 0;
}
template <typename T> T atomicAdd(T *at, T value) { /* fibers do not interrupt each other */
  const T before = *at;
  *at = before + value;
  return before;
}
/* The launch's dynamic shared memory. */
void *simt_shared();
#define BPPSA_SHARED(type, name) type *name = (type *)simt_shared()

using std::max;
using std::min;

/* ---- launches ---- */

typedef struct simt_stream *cudaStream_t;
struct simt_call {
  virtual void run() = 0;
};
void simt_launch(const char *kernel, dim3 grid, dim3 block, size_t shared, simt_call &call);
/* Work of a stream: done at once, or kept where the stream is being captured. */
void simt_queue(const std::function<void()> &work);
template <typename F> void simt_launch_of(const char *kernel, dim3 grid, dim3 block, size_t shared, F function) {
  struct bound : simt_call {
    F &f;
    explicit bound(F &f_) : f(f_) {}
    void run() {
      f();
    }
  };
  simt_queue([=]() mutable {
    bound call(function);
    simt_launch(kernel, grid, block, shared, call);
  });
}
#define BPPSA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                                         \
  ((void)(stream), simt_launch_of(#kernel, (blocks), (threads), (shared_bytes), [=]() { (kernel)(__VA_ARGS__); }))

/* ---- the runtime, as far as it is used ---- */

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901
};
enum cudaMemcpyKind { cudaMemcpyHostToHost = 0, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int multiProcessorCount;
};

cudaError_t cudaMalloc(void **data, size_t bytes);
cudaError_t cudaFree(void *data);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, 0);
}
cudaError_t cudaMemsetAsync(void *data, int value, size_t bytes, cudaStream_t stream);
inline cudaError_t cudaMemset(void *data, int value, size_t bytes) {
  return cudaMemsetAsync(data, value, bytes, 0);
}
cudaError_t cudaGetLastError();
const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version);
enum { cudaStreamNonBlocking = 1 };
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
inline cudaError_t cudaDeviceSynchronize() {
  return cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemGetInfo(size_t *available, size_t *all);

/* Events: the time at which they are recorded. */
typedef struct simt_event *cudaEvent_t;
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to);

/* Graphs: while the stream is captured its work is kept instead of done; to wait or to allocate then spoils the capture. */
typedef struct simt_graph *cudaGraph_t;
typedef struct simt_graph *cudaGraphExec_t;
typedef struct simt_node *cudaGraphNode_t;
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
template <typename F> cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute, int) {
  return cudaSuccess;
}

#endif

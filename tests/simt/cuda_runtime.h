/* A small SIMT machine for the tests. It takes the place of <cuda_runtime.h>, so that a .cu file that is compiled as C++ runs its
 * kernels on the CPU, under the sanitizers. It is not a backend: it is slow, and its device is in host memory. Tests of ranks,
 * which may be threads, give it several devices (SIMT_DEVICES); it computes for one thread at a time.
 *
 * The threads of a block are fibers of one host thread. They run until a barrier, a shuffle or their end, in ascending order, and
 * in descending order after every other barrier, so that a dependence on the order shows. Shared memory, and every allocation, has
 * exactly the requested size and is poisoned at first (all bits set: NaN). An access behind an allocation ends the program; without
 * the address sanitizer a read may go up to 15 bytes beyond a size that is no multiple of 16. A barrier that some threads of a
 * block miss because they have ended, or a shuffle whose mask names a thread that does not come, ends the program with the kernel's
 * name.
 *
 * Streams are lazy: queued work runs when the program waits for its stream (every other time: for any stream) and not before, so
 * that a missing wait shows. While a stream is captured its work is recorded with its predecessors, and any call that would wait or
 * allocate fails and spoils the capture, as on a real device; streams join a capture by an event, and must have come back when it
 * ends. A kernel that may begin early (core/compute/cluster.cuh) reads poison, until it waits, where the kernel in front of it in
 * its stream has changed memory; it must write nothing before, and no thread of it may end without having waited. The work of a
 * graph runs in the order in which it was queued and, every other time, in an order as far from that as its events allow.
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

#include "tests/simt/mutant.h"

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ [[gnu::noinline]]
#define __grid_constant__
#define __launch_bounds__(...)
#define __restrict__

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint3 {
  unsigned x, y, z;
};
/* Hidden: kernels, which are linked with the machine into one library, reach them directly. */
[[gnu::visibility("hidden")]] extern uint3 threadIdx, blockIdx;
[[gnu::visibility("hidden")]] extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* ---- for kernels ---- */

void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);
void launch_meet(int number, int threads);

/* Every thread named in the mask gives `size` bytes and receives those of `lane`, which must be in the mask; the lanes that vote
 * yes. mutant.h says what a place is. */
void simt_exchange(unsigned mask, const void *mine, void *theirs, size_t size, int lane, const simt_place &place);
unsigned simt_ballot(unsigned mask, int predicate, const simt_place &place);
int simt_lane();
int simt_width(int width, const simt_place &place); /* half of it, where the place is so broken */

int __syncthreads_or(int predicate, simt_place place = SIMT_HERE);
template <typename T> T __shfl_sync(unsigned mask, T value, int lane, int width = 32, simt_place place = SIMT_HERE) {
  T result;
  width = simt_width(width, place);
  const int first = simt_lane() / width * width;
  simt_exchange(mask, &value, &result, sizeof value, first + (lane & (width - 1)), place);
  return result;
}
template <typename T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, simt_place place = SIMT_HERE) {
  T result;
  width = simt_width(width, place);
  const int lane = simt_lane() % width < (int)by ? simt_lane() : simt_lane() - (int)by;
  simt_exchange(mask, &value, &result, sizeof value, lane, place);
  return result;
}
template <typename T> T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32, simt_place place = SIMT_HERE) {
  T result;
  width = simt_width(width, place);
  const int lane = simt_lane() ^ other;
  simt_exchange(mask, &value, &result, sizeof value, lane / width > simt_lane() / width ? simt_lane() : lane, place);
  return result;
}
inline unsigned __ballot_sync(unsigned mask, int predicate, simt_place place = SIMT_HERE) {
  return simt_ballot(mask, predicate, place);
}
inline int __any_sync(unsigned mask, int predicate, simt_place place = SIMT_HERE) {
  return simt_ballot(mask, predicate, place) != 0;
}
inline int __reduce_max_sync(unsigned mask, int value, simt_place place = SIMT_HERE) {
  for (int other = warpSize / 2; other > 0; other /= 2) {
    value = std::max(value, __shfl_xor_sync(mask, value, other, warpSize, place));
  }
  return value;
}
template <typename to, typename from> to simt_bits(from x) {
  to result;
  static_assert(sizeof result == sizeof x, "as many bits");
  memcpy(&result, &x, sizeof x);
  return result;
}
/* The place of the lowest bit that is set, from 1, or 0; bits that are 0 above the highest one that is set. */
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
inline unsigned __brev(unsigned x) {
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) {
    result = result << 1 | (x >> i & 1);
  }
  return result;
}
inline int __float_as_int(float x) {
  return simt_bits<int>(x);
}
inline float __int_as_float(int x) {
  return simt_bits<float>(x);
}
inline long long __double_as_longlong(double x) {
  return simt_bits<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return simt_bits<double>(x);
}
template <typename T> T atomicAdd(T *at, T value) { /* fibers do not interrupt each other */
  const T before = *at;
  *at = before + value;
  return before;
}
template <typename T> T atomicMax(T *at, T value) {
  const T before = *at;
  *at = std::max(before, value);
  return before;
}
inline void __threadfence() {}
/* Products that no compiler may fuse with an addition. */
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
/* A quotient with a larger rounding error. */
inline float __fdividef(float a, float b) {
  return a / b;
}
/* The launch's dynamic shared memory. */
void *simt_shared();
#define BPPSA_SHARED(type, name) type *name = (type *)simt_shared()
#define BPPSA_UNROLL
#define BPPSA_UNROLL_BY(n)
/* Clusters of blocks, core/compute/cluster.cuh in C++. */
struct cluster_gate {
  int missing;                 /* bytes of this phase; negative: they came before it was said how many are expected */
  unsigned short told, phases; /* whether it was said; phases that are over */
};
struct cluster_far {
  char *place;
};
void cluster_meet();
void cluster_gate_make(cluster_gate *gate);
void cluster_gate_expect(cluster_gate *gate, unsigned bytes);
cluster_far cluster_find(const void *mine, unsigned rank);
void simt_send(char *to, const void *value, size_t size, cluster_gate *gate);
template <typename real> void cluster_send(cluster_far far, unsigned at, real value, unsigned gate) {
  simt_send(far.place + at, &value, sizeof value, (cluster_gate *)(far.place + gate));
}
void cluster_gate_wait(cluster_gate *gate, unsigned parity);
/* Launches that begin early, likewise. */
void launch_wait();
void launch_next();
/* For groups of launches (core/compute/launch_group.cuh): a small device, so that launches which exceed it show. */
#define BPPSA_GRID_CONSTANT(...) const __VA_ARGS__ &
#define BPPSA_MOST_BLOCKS 300

using std::max;
using std::min;

/* ---- launches ---- */

extern const char *simt_real; /* what the running kernel calculates with (mutant.h) */

typedef struct simt_stream *cudaStream_t;
void simt_launch(const char *kernel, const void *function, unsigned cluster, bool early, dim3 grid, dim3 block, size_t shared,
                 cudaStream_t stream, std::function<void()> thread);
/* Shows a launch to a test that watches (tests/simt/watch.h). True: one does, and the launch is not to run. */
bool simt_show(const char *kernel, dim3 grid, dim3 block, int count, const void *const *arguments, const size_t *sizes);

/* A launch whose arguments follow. They are evaluated now, as the kernel's parameters, although the kernel runs later. */
template <typename... P> struct simt_prepared {
  const char *name;
  unsigned cluster;
  bool early;
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  void (*kernel)(P...);
  void operator()(P... arguments) const {
    void (*const function)(P...) = kernel;
    const void *const at[] = {&arguments..., nullptr};
    const size_t sizes[] = {sizeof arguments..., 0};
    if (simt_show(name, grid, block, (int)sizeof...(P), at, sizes)) {
      return;
    }
    static const char *const real = simt_real_of(typeid(function));
    simt_launch(name, (const void *)function, cluster, early, grid, block, shared, stream, [function, arguments...]() {
      simt_real = real;
      function(arguments...);
    });
  }
};
template <typename... P>
simt_prepared<P...> simt_prepare(const char *name, unsigned cluster, bool early, dim3 grid, dim3 block, size_t shared,
                                 cudaStream_t stream, void (*kernel)(P...)) {
  return {name, cluster, early, grid, block, shared, stream, kernel};
}
#define BPPSA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                                         \
  simt_prepare(#kernel, 1, false, (blocks), (threads), (shared_bytes), (stream), kernel)(__VA_ARGS__)
#define BPPSA_LAUNCH_CLUSTER(kernel, cluster, blocks, threads, shared_bytes, stream, ...)                                        \
  simt_prepare(#kernel, (cluster), false, (blocks), (threads), (shared_bytes), (stream), kernel)(__VA_ARGS__)
#define BPPSA_LAUNCH_EARLY(kernel, cluster, blocks, threads, shared_bytes, stream, ...)                                          \
  simt_prepare(#kernel, (cluster), true, (blocks), (threads), (shared_bytes), (stream), kernel)(__VA_ARGS__)

/* ---- the part of the runtime that the library uses ---- */

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureUnjoined = 904
};
enum cudaMemcpyKind { cudaMemcpyHostToHost = 0, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributeNonPortableClusterSizeAllowed = 14 };
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int multiProcessorCount;
};

cudaError_t cudaMalloc(void **data, size_t bytes);
cudaError_t cudaFree(void *data);
cudaError_t cudaMemGetInfo(size_t *available, size_t *all);
cudaError_t cudaMallocHost(void **data, size_t bytes);
cudaError_t cudaFreeHost(void *data);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemsetAsync(void *data, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemset(void *data, int value, size_t bytes);
cudaError_t cudaGetLastError();
const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38, /* 1 MiB */
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrClusterLaunch =
      120 /* a test that sets SIMT_MOST_CLUSTER to 1 has a GPU without clusters, to 8 one without larger ones */
};
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version);

enum { cudaStreamNonBlocking = 1 };
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();

typedef struct simt_event *cudaEvent_t;
enum { cudaEventRecordDefault = 0, cudaEventRecordExternal = 1 };
cudaError_t cudaEventCreate(cudaEvent_t *event);
enum { cudaEventDisableTiming = 2 };
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags);
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t first, cudaEvent_t second);

typedef struct simt_graph *cudaGraph_t;
typedef struct simt_graph_exec *cudaGraphExec_t;
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive,
  cudaStreamCaptureStatusInvalidated
};
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
typedef struct simt_node *cudaGraphNode_t;
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count); /* the count alone */
enum { cudaGraphInstantiateFlagUseNodePriority = 8 };
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* Launches with more than 48 KiB of shared memory, or in clusters of more than 8 blocks, are refused unless an instance was allowed
 * it. */
cudaError_t simt_allow(const void *function, cudaFuncAttribute attribute, int value);
template <typename F> cudaError_t cudaFuncSetAttribute(F function, cudaFuncAttribute attribute, int value) {
  return simt_allow((const void *)function, attribute, value);
}
struct cluster_config {
  unsigned cluster, threads;
  size_t shared;
  const cluster_config &config;
  cluster_config(unsigned cluster_, unsigned, unsigned threads_, size_t shared_, cudaStream_t)
      : cluster(cluster_), threads(threads_), shared(shared_), config(*this) {}
};
struct cudaFuncAttributes {
  int ptxVersion;
};
/* The code is that of a GPU with clusters, or with SIMT_OLD_CODE of one without. */
template <typename F> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, F *) {
  attributes->ptxVersion = getenv("SIMT_OLD_CODE") != nullptr ? 80 : 90;
  return cudaSuccess;
}
/* The number of clusters that run at the same time: here 1, or none that is so large. */
cudaError_t simt_most_clusters(int *clusters, const void *function, const cluster_config *config);
template <typename F> cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, F function, const cluster_config *config) {
  return simt_most_clusters(clusters, (const void *)function, config);
}

#endif

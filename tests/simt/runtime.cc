/* The runtime of the SIMT machine: a device in host memory, lazy streams, events, captured graphs. */
#include <stdio.h>

#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "tests/simt/simt.h"

typedef std::vector<std::function<void()>> simt_work;

struct simt_stream {
  simt_work queue;
  bool capturing, spoilt;
  simt_work captured;
};
struct simt_event {
  bool recorded, inside_capture;
  std::chrono::steady_clock::time_point time;
};
struct simt_graph {
  simt_work work;
};
struct simt_graph_exec {
  std::shared_ptr<const simt_work> work; /* launches that are queued keep it */
};

namespace {

const size_t memory_bytes = (size_t)1 << 30;

cudaError_t last_error = cudaSuccess;
simt_stream default_stream;
std::vector<simt_stream *> streams = {&default_stream};

cudaError_t fail(cudaError_t error) {
  last_error = error;
  return error;
}

simt_stream *stream_of(cudaStream_t stream) {
  return stream == nullptr ? &default_stream : stream;
}

void run(simt_stream *s) {
  const simt_work work = std::move(s->queue);
  s->queue.clear();
  for (const auto &one : work) {
    one();
  }
}

void run_all() {
  for (simt_stream *s : streams) {
    run(s);
  }
}

/* What may wait for a device spoils every capture that is going on. */
bool may_wait() {
  bool may = true;
  for (simt_stream *s : streams) {
    s->spoilt = s->spoilt || s->capturing;
    may = may && !s->capturing;
  }
  return may;
}

cudaError_t queue(cudaStream_t stream, std::function<void()> one) {
  simt_stream *s = stream_of(stream);
  (s->capturing ? s->captured : s->queue).push_back(std::move(one));
  return cudaSuccess;
}

/* What is held, and its bytes. */
std::map<void *, size_t> &held() {
  static std::map<void *, size_t> map;
  return map;
}

cudaError_t allocate(void **data, size_t bytes) {
  if (!may_wait()) {
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  *data = malloc(bytes > 0 ? bytes : 1);
  if (*data == nullptr) {
    return fail(cudaErrorMemoryAllocation);
  }
  memset(*data, 0xff, bytes > 0 ? bytes : 1);
  held()[*data] = bytes;
  return cudaSuccess;
}

cudaError_t release(void *data) {
  if (!may_wait()) {
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  run_all();
  held().erase(data);
  free(data);
  return cudaSuccess;
}

const struct {
  cudaError_t error;
  const char *name, *text;
} errors[] = {{cudaSuccess, "cudaSuccess", "no error"},
              {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
              {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
              {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid launch"},
              {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
              {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
              {cudaErrorIllegalState, "cudaErrorIllegalState", "not permitted in this state"},
              {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "not permitted while a stream is capturing"},
              {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "the capture failed earlier"}};

} // namespace

void simt_launch(const char *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream, std::function<void()> thread) {
  if (!simt_launch_is_valid(kernel, grid, block, shared)) {
    (void)fail(cudaErrorInvalidConfiguration);
    return;
  }
  (void)queue(stream, [=]() { simt_run(kernel, grid, block, shared, thread); });
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **data, size_t bytes) {
  return allocate(data, bytes);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *all) {
  size_t used = 0;
  for (const auto &block : held()) {
    used += block.second;
  }
  *all = memory_bytes;
  *available = used < memory_bytes ? memory_bytes - used : 0;
  return cudaSuccess;
}

cudaError_t cudaFree(void *data) {
  return release(data);
}

cudaError_t cudaMallocHost(void **data, size_t bytes) {
  return allocate(data, bytes);
}

cudaError_t cudaFreeHost(void *data) {
  return release(data);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return queue(stream, [=]() {
    if (bytes > 0) {
      memmove(to, from, bytes);
    }
  });
}

cudaError_t cudaMemsetAsync(void *data, int value, size_t bytes, cudaStream_t stream) {
  return queue(stream, [=]() {
    if (bytes > 0) {
      memset(data, value, bytes);
    }
  });
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  (void)cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemset(void *data, int value, size_t bytes) {
  return cudaMemsetAsync(data, value, bytes, nullptr);
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  *stream = new simt_stream();
  streams.push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  run(stream);
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!may_wait()) {
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  run(stream_of(stream));
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (!may_wait()) {
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  run_all();
  return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  *event = new simt_event();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  const bool capturing = stream_of(stream)->capturing, external = flags == cudaEventRecordExternal;
  if (external && !capturing) {
    return fail(cudaErrorInvalidValue);
  }
  event->inside_capture = capturing && !external; /* then it only orders the graph's work */
  return queue(stream, [=]() {
    event->recorded = true;
    event->time = std::chrono::steady_clock::now();
  });
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t first, cudaEvent_t second) {
  if (!first->recorded || !second->recorded || first->inside_capture || second->inside_capture) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(second->time - first->time).count();
  return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr) {
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  if (stream->capturing) {
    return fail(cudaErrorIllegalState);
  }
  stream->capturing = true;
  stream->spoilt = false;
  stream->captured.clear();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  if (!stream->capturing) {
    return fail(cudaErrorInvalidValue);
  }
  stream->capturing = false;
  *graph = nullptr;
  if (stream->spoilt) {
    return fail(cudaErrorStreamCaptureInvalidated);
  }
  *graph = new simt_graph{std::move(stream->captured)};
  stream->captured.clear();
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  const simt_stream *s = stream_of(stream);
  *status = !s->capturing ? cudaStreamCaptureStatusNone
            : s->spoilt   ? cudaStreamCaptureStatusInvalidated
                          : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *count) {
  *count = graph->work.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
  *exec = new simt_graph_exec{std::make_shared<const simt_work>(graph->work)};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const std::shared_ptr<const simt_work> work = exec->work;
  return queue(stream, [work]() {
    for (const auto &one : *work) {
      one();
    }
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

/* ---- errors and properties ---- */

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

const char *cudaGetErrorString(cudaError_t error) {
  for (const auto &known : errors) {
    if (known.error == error) {
      return known.text;
    }
  }
  return "unknown";
}

const char *cudaGetErrorName(cudaError_t error) {
  for (const auto &known : errors) {
    if (known.error == error) {
      return known.name;
    }
  }
  return "unknown";
}

cudaError_t cudaGetDeviceCount(int *count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
  *properties = cudaDeviceProp();
  snprintf(properties->name, sizeof properties->name, "SIMT emulation");
  properties->totalGlobalMem = memory_bytes;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}

/* Recordings, marks and fences: CUDA graphs captured from the device's stream, and events. */
#include "core/base/alloc.h"
#include "core/compute/check.cuh"
#include "core/compute/graph.h"

struct bppsa_graph {
  cudaGraphExec_t exec;
  int64_t nodes;
};

struct bppsa_mark {
  cudaEvent_t event;
};

struct bppsa_fence {
  cudaEvent_t event;
};

static cudaStream_t stream_of(const bppsa_device *device) {
  return (cudaStream_t)bppsa_device_get_stream(device);
}

static bppsa_status select_gpu(const bppsa_device *device, const char *what) {
  if (bppsa_device_get_kind(device) != BPPSA_CUDA) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: device %s has no queue of work, expected a GPU", what,
                      bppsa_device_get_name(device));
  }
  return bppsa_cuda_check(cudaSetDevice(bppsa_device_get_index(device)), what);
}

extern "C" bppsa_status bppsa_graph_begin(const bppsa_device *device) {
  BPPSA_TRY(select_gpu(device, "recording"));
  return bppsa_cuda_check(cudaStreamBeginCapture(stream_of(device), cudaStreamCaptureModeThreadLocal), "recording");
}

extern "C" bppsa_status bppsa_graph_end(const bppsa_device *device, bppsa_graph **graph) {
  cudaGraph_t captured = NULL;
  BPPSA_TRY(select_gpu(device, "recording"));
  const cudaError_t error = cudaStreamEndCapture(stream_of(device), &captured);
  if (graph == NULL) {
    (void)cudaGetLastError();
    (void)(captured != NULL ? cudaGraphDestroy(captured) : cudaSuccess);
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_cuda_check(error, "recording"));
  bppsa_graph *made = (bppsa_graph *)bppsa_alloc(sizeof *made);
  bppsa_status status = made == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  if (status == BPPSA_OK) {
    size_t nodes = 0;
    status = bppsa_cuda_check(cudaGraphGetNodes(captured, NULL, &nodes), "recording");
    made->nodes = (int64_t)nodes;
  }
  if (status == BPPSA_OK) {
    /* Without this flag all nodes would have the priority of the stream on which the recording is replayed. */
    status = bppsa_cuda_check(cudaGraphInstantiate(&made->exec, captured, cudaGraphInstantiateFlagUseNodePriority), "recording");
  }
  (void)cudaGraphDestroy(captured);
  if (status != BPPSA_OK) {
    bppsa_free(made);
    return status;
  }
  *graph = made;
  return BPPSA_OK;
}

extern "C" int64_t bppsa_graph_nodes(const bppsa_graph *graph) {
  return graph->nodes;
}

extern "C" bppsa_status bppsa_graph_launch(const bppsa_device *device, const bppsa_graph *graph) {
  BPPSA_TRY(select_gpu(device, "replay"));
  return bppsa_cuda_check(cudaGraphLaunch(graph->exec, stream_of(device)), "replay");
}

extern "C" void bppsa_graph_destroy(const bppsa_device *device, bppsa_graph *graph) {
  if (graph != NULL && select_gpu(device, "recording") == BPPSA_OK) {
    (void)cudaGraphExecDestroy(graph->exec);
  }
  bppsa_free(graph);
}

extern "C" bppsa_status bppsa_mark_create(const bppsa_device *device, bppsa_mark **mark) {
  BPPSA_TRY(select_gpu(device, "mark"));
  bppsa_mark *made = (bppsa_mark *)bppsa_alloc(sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = bppsa_cuda_check(cudaEventCreate(&made->event), "mark");
  if (status != BPPSA_OK) {
    bppsa_free(made);
    return status;
  }
  *mark = made;
  return BPPSA_OK;
}

extern "C" void bppsa_mark_destroy(const bppsa_device *device, bppsa_mark *mark) {
  if (mark != NULL && select_gpu(device, "mark") == BPPSA_OK) {
    (void)cudaEventDestroy(mark->event);
  }
  bppsa_free(mark);
}

/* A recorded event must be external; otherwise it only orders the recording's work and has no time. */
extern "C" bppsa_status bppsa_mark_set(const bppsa_device *device, bppsa_mark *mark) {
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  BPPSA_TRY(select_gpu(device, "mark"));
  BPPSA_TRY(bppsa_cuda_check(cudaStreamIsCapturing(stream_of(device), &capturing), "mark"));
  const unsigned flags = capturing == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal;
  return bppsa_cuda_check(cudaEventRecordWithFlags(mark->event, stream_of(device), flags), "mark");
}

extern "C" bppsa_status bppsa_mark_seconds(const bppsa_device *device, const bppsa_mark *first, const bppsa_mark *second,
                                           double *seconds) {
  float milliseconds = 0;
  BPPSA_TRY(select_gpu(device, "mark"));
  BPPSA_TRY(bppsa_cuda_check(cudaEventElapsedTime(&milliseconds, first->event, second->event), "time between two marks"));
  *seconds = 1e-3 * (double)milliseconds;
  return BPPSA_OK;
}

extern "C" bppsa_status bppsa_fence_create(const bppsa_device *device, bppsa_fence **fence) {
  BPPSA_TRY(select_gpu(device, "fence"));
  bppsa_fence *made = (bppsa_fence *)bppsa_alloc(sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = bppsa_cuda_check(cudaEventCreateWithFlags(&made->event, cudaEventDisableTiming), "fence");
  if (status != BPPSA_OK) {
    bppsa_free(made);
    return status;
  }
  *fence = made;
  return BPPSA_OK;
}

extern "C" void bppsa_fence_destroy(const bppsa_device *device, bppsa_fence *fence) {
  if (fence != NULL && select_gpu(device, "fence") == BPPSA_OK) {
    (void)cudaEventDestroy(fence->event);
  }
  bppsa_free(fence);
}

extern "C" bppsa_status bppsa_fence_set(const bppsa_device *device, bppsa_fence *fence) {
  BPPSA_TRY(select_gpu(device, "fence"));
  return bppsa_cuda_check(cudaEventRecord(fence->event, stream_of(device)), "fence");
}

extern "C" bppsa_status bppsa_fence_follow(const bppsa_device *device, bppsa_fence *fence) {
  BPPSA_TRY(select_gpu(device, "fence"));
  return bppsa_cuda_check(cudaStreamWaitEvent(stream_of(device), fence->event, 0), "fence");
}

extern "C" bppsa_status bppsa_fence_reached(const bppsa_device *device, bppsa_fence *fence, bool *reached) {
  BPPSA_TRY(select_gpu(device, "fence"));
  const cudaError_t error = cudaEventQuery(fence->event);
  if (error == cudaErrorNotReady) {
    *reached = false;
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_cuda_check(error, "GPU work"));
  *reached = true;
  return BPPSA_OK;
}

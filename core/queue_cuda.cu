/* Events and graphs for core/queue.h. */
#include "core/check.cuh"
#include "core/queue_internal.h"

extern "C" bppsa_status bppsa_cuda_event_create(int32_t index, void **event) {
  cudaEvent_t made;
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "event"));
  BPPSA_TRY(bppsa_cuda_check(cudaEventCreate(&made), "event"));
  *event = made;
  return BPPSA_OK;
}

extern "C" void bppsa_cuda_event_destroy(int32_t index, void *event) {
  if (event != NULL && cudaSetDevice(index) == cudaSuccess) {
    (void)cudaEventDestroy((cudaEvent_t)event);
  }
}

extern "C" bppsa_status bppsa_cuda_event_record(int32_t index, void *stream, void *event) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "event"));
  return bppsa_cuda_check(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream), "event");
}

extern "C" bppsa_status bppsa_cuda_event_seconds(int32_t index, void *from, void *to, double *seconds) {
  float milliseconds = 0;
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "event"));
  BPPSA_TRY(bppsa_cuda_check(cudaEventSynchronize((cudaEvent_t)from), "GPU work"));
  BPPSA_TRY(bppsa_cuda_check(cudaEventSynchronize((cudaEvent_t)to), "GPU work"));
  BPPSA_TRY(bppsa_cuda_check(cudaEventElapsedTime(&milliseconds, (cudaEvent_t)from, (cudaEvent_t)to), "event"));
  *seconds = 1e-3 * (double)milliseconds;
  return BPPSA_OK;
}

/* What `work` queued, as a graph. The stream captures no longer, whatever happened. */
static bppsa_status capture(cudaStream_t stream, bppsa_queued_work work, void *context, cudaGraph_t *graph) {
  *graph = NULL;
  BPPSA_TRY(bppsa_cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "graph"));
  const bppsa_status status = work(context);
  const cudaError_t error = cudaStreamEndCapture(stream, graph);
  if (status != BPPSA_OK) {
    (void)cudaGetLastError();
    return bppsa_fail_prefix(status, "graph");
  }
  return bppsa_cuda_check(error, "graph");
}

extern "C" bppsa_status bppsa_cuda_graph_capture(int32_t index, void *stream, bppsa_queued_work work, void *context, void **graph,
                                                 int64_t *nodes) {
  cudaGraph_t captured;
  cudaGraphExec_t made = NULL;
  size_t count = 0;
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "graph"));
  bppsa_status status = capture((cudaStream_t)stream, work, context, &captured);
  if (status == BPPSA_OK) {
    status = bppsa_cuda_check(cudaGraphGetNodes(captured, NULL, &count), "graph");
  }
  if (status == BPPSA_OK) {
    status = bppsa_cuda_check(cudaGraphInstantiate(&made, captured, 0), "graph");
  }
  if (captured != NULL) {
    (void)cudaGraphDestroy(captured);
  }
  if (status == BPPSA_OK) {
    *graph = made;
    *nodes = (int64_t)count;
  }
  return status;
}

extern "C" bppsa_status bppsa_cuda_graph_launch(int32_t index, void *stream, void *graph) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(index), "graph"));
  return bppsa_cuda_check(cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream), "graph");
}

extern "C" void bppsa_cuda_graph_destroy(int32_t index, void *graph) {
  if (cudaSetDevice(index) == cudaSuccess) {
    (void)cudaGraphExecDestroy((cudaGraphExec_t)graph);
  }
}

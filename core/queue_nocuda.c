/* Without CUDA there is no GPU, and no device that could get here. */
#include "core/queue_internal.h"

static bppsa_status without(void) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "GPU work: this build has no CUDA; use device cpu");
}

bppsa_status bppsa_cuda_event_create(int32_t index, void **event) {
  (void)index, (void)event;
  return without();
}

void bppsa_cuda_event_destroy(int32_t index, void *event) {
  (void)index, (void)event;
}

bppsa_status bppsa_cuda_event_record(int32_t index, void *stream, void *event) {
  (void)index, (void)stream, (void)event;
  return without();
}

bppsa_status bppsa_cuda_event_seconds(int32_t index, void *from, void *to, double *seconds) {
  (void)index, (void)from, (void)to, (void)seconds;
  return without();
}

bppsa_status bppsa_cuda_graph_capture(int32_t index, void *stream, bppsa_queued_work work, void *context, void **graph,
                                      int64_t *nodes) {
  (void)index, (void)stream, (void)work, (void)context, (void)graph, (void)nodes;
  return without();
}

bppsa_status bppsa_cuda_graph_launch(int32_t index, void *stream, void *graph) {
  (void)index, (void)stream, (void)graph;
  return without();
}

void bppsa_cuda_graph_destroy(int32_t index, void *graph) {
  (void)index, (void)graph;
}

/* The GPU's side of core/queue.h. index: of the GPU. */
#ifndef BPPSA_CORE_QUEUE_INTERNAL_H
#define BPPSA_CORE_QUEUE_INTERNAL_H

#include "core/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An event, its owner's to destroy. */
bppsa_status bppsa_cuda_event_create(int32_t index, void **event);
void bppsa_cuda_event_destroy(int32_t index, void *event);
bppsa_status bppsa_cuda_event_record(int32_t index, void *stream, void *event);
bppsa_status bppsa_cuda_event_seconds(int32_t index, void *from, void *to, double *seconds);

/* An executable graph and the number of its nodes. */
bppsa_status bppsa_cuda_graph_capture(int32_t index, void *stream, bppsa_queued_work work, void *context, void **graph,
                                      int64_t *nodes);
bppsa_status bppsa_cuda_graph_launch(int32_t index, void *stream, void *graph);
void bppsa_cuda_graph_destroy(int32_t index, void *graph);

#ifdef __cplusplus
}
#endif
#endif

/* The work of a GPU as one: recordings of queued work that are replayed by a single call, and marks that tell when they were
 * reached.
 *
 *     bppsa_graph_begin(device);      from here on the device's stream runs nothing: what is queued is recorded
 *     ... launches, bppsa_memory_queue_*, bppsa_mark_set ...
 *     bppsa_graph_end(device, &graph);
 *     bppsa_graph_launch(device, graph);      as often as wanted; queued like any other work
 *
 * While work is recorded nothing may wait for the device and no GPU memory may be had or freed: the recording then fails. A
 * recording keeps the addresses and numbers it was made with; what changes from replay to replay is read from memory.
 * ERR_UNSUPPORTED: the device is no GPU.
 */
#ifndef BPPSA_CORE_GRAPH_H
#define BPPSA_CORE_GRAPH_H

#include "core/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_graph bppsa_graph;
typedef struct bppsa_mark bppsa_mark;

/* ERR_CUDA: a recording is under way. */
bppsa_status bppsa_graph_begin(const bppsa_device *device);
/* Ends the recording in every case. ERR_CUDA: something in it was not allowed. ERR_MEMORY. graph NULL throws it away, without an
 * error of its own: what was to be recorded has failed. */
bppsa_status bppsa_graph_end(const bppsa_device *device, bppsa_graph **graph);
/* Records what work(context) queues. ERR_* of the above, and what `work` failed with. */
typedef bppsa_status (*bppsa_queued_work)(void *context);
bppsa_status bppsa_graph_capture(const bppsa_device *device, bppsa_queued_work work, void *context, bppsa_graph **graph);
int64_t bppsa_graph_nodes(const bppsa_graph *graph); /* kernels, copies, fills and marks in it */
bppsa_status bppsa_graph_launch(const bppsa_device *device, const bppsa_graph *graph); /* ERR_CUDA */
void bppsa_graph_destroy(const bppsa_device *device, bppsa_graph *graph);              /* NULL is legal */

bppsa_status bppsa_mark_create(const bppsa_device *device, bppsa_mark **mark); /* ERR_CUDA, ERR_MEMORY */
void bppsa_mark_destroy(const bppsa_device *device, bppsa_mark *mark);         /* NULL is legal */
/* Queues the mark, or records it. ERR_CUDA. */
bppsa_status bppsa_mark_set(const bppsa_device *device, bppsa_mark *mark);
/* From the first mark to the second, both reached: the device has been waited for. ERR_CUDA: one was never reached. */
bppsa_status bppsa_mark_seconds(const bppsa_device *device, const bppsa_mark *first, const bppsa_mark *second, double *seconds);

#ifdef __cplusplus
}
#endif
#endif

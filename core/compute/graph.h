/* Recordings, marks and fences. A recording holds queued work of a GPU and is replayed by a single call; marks tell when the work
 * reached them; fences order the work of several streams of one GPU (bppsa_device_fork).
 *
 *     bppsa_graph_begin(device);      from here on the stream does not run queued work, it is recorded
 *     ... launches, bppsa_memory_queue_*, bppsa_mark_set ...
 *     bppsa_graph_end(device, &graph);
 *     bppsa_graph_launch(device, graph);      as often as wanted; queued like any other work
 *
 * If another stream follows a fence that was set in the recording, its work from there on is recorded too. Before the recording
 * ends, the first stream must follow a fence behind the last work of each such stream.
 *
 * While work is recorded nothing may wait for the device, and GPU memory may be neither allocated nor freed: otherwise the
 * recording fails. A recording keeps its addresses and numbers; whatever changes between replays must be read from memory.
 * ERR_UNSUPPORTED: the device is no GPU. */
#ifndef BPPSA_CORE_COMPUTE_GRAPH_H
#define BPPSA_CORE_COMPUTE_GRAPH_H

#include "core/compute/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_graph bppsa_graph;
typedef struct bppsa_mark bppsa_mark;
typedef struct bppsa_fence bppsa_fence;

/* ERR_CUDA: a recording is in progress already. */
bppsa_status bppsa_graph_begin(const bppsa_device *device);
/* Ends the recording in every case. ERR_CUDA: something in it was not allowed. ERR_MEMORY. With graph NULL it throws the
 * recording away without an error of its own, because the work failed. */
bppsa_status bppsa_graph_end(const bppsa_device *device, bppsa_graph **graph);
/* Records what work(context) queues. Errors of begin and end, and those of `work`. */
typedef bppsa_status (*bppsa_queued_work)(void *context);
bppsa_status bppsa_graph_capture(const bppsa_device *device, bppsa_queued_work work, void *context, bppsa_graph **graph);
int64_t bppsa_graph_nodes(const bppsa_graph *graph); /* kernels, copies, fills and marks in the recording */
bppsa_status bppsa_graph_launch(const bppsa_device *device, const bppsa_graph *graph); /* ERR_CUDA */
void bppsa_graph_destroy(const bppsa_device *device, bppsa_graph *graph);              /* NULL is legal */

bppsa_status bppsa_mark_create(const bppsa_device *device, bppsa_mark **mark); /* ERR_CUDA, ERR_MEMORY */
void bppsa_mark_destroy(const bppsa_device *device, bppsa_mark *mark);         /* NULL is legal */
/* Queues the mark, or records it if a recording is in progress. ERR_CUDA. */
bppsa_status bppsa_mark_set(const bppsa_device *device, bppsa_mark *mark);
/* Seconds from the first mark to the second; the device must have reached both. ERR_CUDA: one was never reached. */
bppsa_status bppsa_mark_seconds(const bppsa_device *device, const bppsa_mark *first, const bppsa_mark *second, double *seconds);

bppsa_status bppsa_fence_create(const bppsa_device *device, bppsa_fence **fence); /* ERR_CUDA, ERR_MEMORY */
void bppsa_fence_destroy(const bppsa_device *device, bppsa_fence *fence);         /* NULL is legal */
/* Puts the fence behind the work that is queued on the device's stream so far; a fence that is set again moves. ERR_CUDA. */
bppsa_status bppsa_fence_set(const bppsa_device *device, bppsa_fence *fence);
/* Makes work that is queued on the device's stream from now on wait for the fence, which may be in another stream of the same GPU.
 * The host does not wait. ERR_CUDA. */
bppsa_status bppsa_fence_follow(const bppsa_device *device, bppsa_fence *fence);
/* Has the GPU reached the fence? Does not wait. ERR_CUDA: work in front of it failed; or it was set in a recording. */
bppsa_status bppsa_fence_reached(const bppsa_device *device, bppsa_fence *fence, bool *reached);

#ifdef __cplusplus
}
#endif
#endif

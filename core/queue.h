/* A device's queue of work, as benchmarks and training loops use it: marks between which time is taken, and graphs that replay work.
 *
 * On a GPU work is queued on the device's stream (core/device.h) and marks are queued with it: the time between two of them is what the stream
 * took from one to the other, waiting for the host included. On a CPU work is done when it returns, and a mark is the time it is set.
 */
#ifndef BPPSA_CORE_QUEUE_H
#define BPPSA_CORE_QUEUE_H

#include "core/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_timeline bppsa_timeline;

/* `count` marks, none of them set. The device must outlive it. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_timeline_create(const bppsa_device *device, int64_t count, bppsa_timeline **timeline);
void bppsa_timeline_destroy(bppsa_timeline *timeline); /* NULL is legal */
/* Sets a mark behind all work queued so far; setting it again moves it. ERR_CUDA. */
bppsa_status bppsa_timeline_mark(bppsa_timeline *timeline, int64_t index);
/* Waits until both marks are reached; *seconds from one to the other. ERR_CUDA: the work failed. ERR_ARGUMENT, ERR_CUDA: a
 * mark was never set. */
bppsa_status bppsa_timeline_seconds(const bppsa_timeline *timeline, int64_t from, int64_t to, double *seconds);

/* A CUDA graph: work that was queued once and is launched as a whole from then on. */
typedef struct bppsa_graph bppsa_graph;
typedef bppsa_status (*bppsa_queued_work)(void *context);

/* Captures what work(context) queues on the GPU's stream instead of running it. Work that waits for the GPU, or allocates its memory, is refused.
 * ERR_UNSUPPORTED: a CPU. ERR_CUDA: the runtime refused, in its words. What `work` failed with. */
bppsa_status bppsa_graph_capture(const bppsa_device *device, bppsa_queued_work work, void *context, bppsa_graph **graph);
/* Queues all of it. ERR_CUDA. */
bppsa_status bppsa_graph_launch(const bppsa_graph *graph);
int64_t bppsa_graph_nodes(const bppsa_graph *graph); /* kernels, copies and fills in it */
void bppsa_graph_destroy(bppsa_graph *graph);        /* NULL is legal */

#ifdef __cplusplus
}
#endif
#endif

#include "core/queue.h"

#include <time.h>

#include "core/alloc.h"
#include "core/queue_internal.h"

/* ---- marks ---- */

typedef union {
  void *event;    /* GPU */
  double seconds; /* CPU; below 0: not set */
} mark;

struct bppsa_timeline {
  const bppsa_device *device;
  int64_t count;
  mark *marks; /* size count */
};

static bool is_gpu(const bppsa_device *device) {
  return bppsa_device_get_kind(device) == BPPSA_CUDA;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bppsa_status prepare_marks(bppsa_timeline *timeline) {
  for (int64_t i = 0; i < timeline->count; ++i) {
    timeline->marks[i] = is_gpu(timeline->device) ? (mark){.event = NULL} : (mark){.seconds = -1};
  }
  for (int64_t i = 0; is_gpu(timeline->device) && i < timeline->count; ++i) {
    BPPSA_TRY(bppsa_cuda_event_create(bppsa_device_get_index(timeline->device), &timeline->marks[i].event));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_timeline_create(const bppsa_device *device, int64_t count, bppsa_timeline **timeline) {
  bppsa_timeline *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->device = device;
  made->marks = bppsa_calloc(count, sizeof *made->marks);
  made->count = made->marks != NULL ? count : 0;
  const bppsa_status status = made->marks != NULL ? prepare_marks(made) : BPPSA_ERR_MEMORY;
  if (status != BPPSA_OK) {
    bppsa_timeline_destroy(made);
    return status;
  }
  *timeline = made;
  return BPPSA_OK;
}

void bppsa_timeline_destroy(bppsa_timeline *timeline) {
  for (int64_t i = 0; timeline != NULL && is_gpu(timeline->device) && i < timeline->count; ++i) {
    bppsa_cuda_event_destroy(bppsa_device_get_index(timeline->device), timeline->marks[i].event);
  }
  if (timeline != NULL) {
    bppsa_free(timeline->marks);
  }
  bppsa_free(timeline);
}

bppsa_status bppsa_timeline_mark(bppsa_timeline *timeline, int64_t index) {
  const bppsa_device *device = timeline->device;
  mark *at = &timeline->marks[index];
  if (is_gpu(device)) {
    return bppsa_cuda_event_record(bppsa_device_get_index(device), bppsa_device_get_stream(device), at->event);
  }
  at->seconds = now();
  return BPPSA_OK;
}

bppsa_status bppsa_timeline_seconds(const bppsa_timeline *timeline, int64_t from, int64_t to, double *seconds) {
  const mark *first = &timeline->marks[from], *last = &timeline->marks[to];
  if (is_gpu(timeline->device)) {
    return bppsa_cuda_event_seconds(bppsa_device_get_index(timeline->device), first->event, last->event, seconds);
  }
  if (first->seconds < 0 || last->seconds < 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "timeline: mark %lld or %lld was never set", (long long)from, (long long)to);
  }
  *seconds = last->seconds - first->seconds;
  return BPPSA_OK;
}

/* ---- graphs ---- */

struct bppsa_graph {
  const bppsa_device *device;
  void *graph;
  int64_t nodes;
};

bppsa_status bppsa_graph_capture(const bppsa_device *device, bppsa_queued_work work, void *context, bppsa_graph **graph) {
  if (!is_gpu(device)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "graph: device %s runs its work at once, expected a GPU",
                      bppsa_device_get_name(device));
  }
  bppsa_graph *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->device = device;
  const bppsa_status status = bppsa_cuda_graph_capture(bppsa_device_get_index(device), bppsa_device_get_stream(device), work,
                                                       context, &made->graph, &made->nodes);
  if (status != BPPSA_OK) {
    bppsa_free(made);
    return status;
  }
  *graph = made;
  return BPPSA_OK;
}

bppsa_status bppsa_graph_launch(const bppsa_graph *graph) {
  return bppsa_cuda_graph_launch(bppsa_device_get_index(graph->device), bppsa_device_get_stream(graph->device), graph->graph);
}

int64_t bppsa_graph_nodes(const bppsa_graph *graph) {
  return graph->nodes;
}

void bppsa_graph_destroy(bppsa_graph *graph) {
  if (graph != NULL) {
    bppsa_cuda_graph_destroy(bppsa_device_get_index(graph->device), graph->graph);
  }
  bppsa_free(graph);
}

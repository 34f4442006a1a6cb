#include "core/timeline.h"

#include <time.h>

#include "core/alloc.h"
#include "core/graph.h"

typedef union {
  bppsa_mark *queued; /* GPU */
  double seconds;     /* CPU; 0: not set */
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

static bppsa_status make_marks(bppsa_timeline *timeline, int64_t count) {
  timeline->marks = bppsa_calloc(count, sizeof *timeline->marks);
  if (timeline->marks == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (; timeline->count < count; ++timeline->count) {
    mark *made = &timeline->marks[timeline->count];
    if (is_gpu(timeline->device)) {
      BPPSA_TRY(bppsa_mark_create(timeline->device, &made->queued));
    } else {
      made->seconds = 0;
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_timeline_create(const bppsa_device *device, int64_t count, bppsa_timeline **timeline) {
  bppsa_timeline *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->device = device;
  const bppsa_status status = make_marks(made, count);
  if (status != BPPSA_OK) {
    bppsa_timeline_destroy(made);
    return status;
  }
  *timeline = made;
  return BPPSA_OK;
}

void bppsa_timeline_destroy(bppsa_timeline *timeline) {
  if (timeline == NULL) {
    return;
  }
  for (int64_t i = 0; is_gpu(timeline->device) && i < timeline->count; ++i) {
    bppsa_mark_destroy(timeline->device, timeline->marks[i].queued);
  }
  bppsa_free(timeline->marks);
  bppsa_free(timeline);
}

bppsa_status bppsa_timeline_mark(bppsa_timeline *timeline, int64_t index) {
  mark *at = &timeline->marks[index];
  if (is_gpu(timeline->device)) {
    return bppsa_mark_set(timeline->device, at->queued);
  }
  at->seconds = now();
  return BPPSA_OK;
}

bppsa_status bppsa_timeline_seconds(const bppsa_timeline *timeline, int64_t from, int64_t to, double *seconds) {
  const mark *first = &timeline->marks[from], *last = &timeline->marks[to];
  if (is_gpu(timeline->device)) {
    BPPSA_TRY(bppsa_device_wait(timeline->device));
    return bppsa_mark_seconds(timeline->device, first->queued, last->queued, seconds);
  }
  if (first->seconds == 0 || last->seconds == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "timeline: mark %lld or %lld was never set", (long long)from, (long long)to);
  }
  *seconds = last->seconds - first->seconds;
  return BPPSA_OK;
}

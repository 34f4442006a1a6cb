#include "core/measure/timeline.h"

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/compute/graph.h"

typedef struct {
  bppsa_mark *queued; /* on a GPU */
  double seconds;     /* on a CPU */
  bool set;
} mark;

struct bppsa_timeline {
  const bppsa_device *device;
  bool gpu;
  int64_t count;
  mark *marks; /* size count */
};

bppsa_status bppsa_timeline_create(const bppsa_device *device, int64_t count, bppsa_timeline **timeline) {
  bppsa_timeline *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->device = device;
  made->gpu = bppsa_device_get_kind(device) == BPPSA_CUDA;
  made->marks = bppsa_calloc(count, sizeof *made->marks);
  made->count = made->marks != NULL ? count : 0;
  bppsa_status status = made->marks != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
  for (int64_t i = 0; status == BPPSA_OK && made->gpu && i < count; ++i) {
    status = bppsa_mark_create(device, &made->marks[i].queued);
  }
  if (status != BPPSA_OK) {
    bppsa_timeline_destroy(made);
    return status;
  }
  *timeline = made;
  return BPPSA_OK;
}

void bppsa_timeline_destroy(bppsa_timeline *timeline) {
  for (int64_t i = 0; timeline != NULL && i < timeline->count; ++i) {
    bppsa_mark_destroy(timeline->device, timeline->marks[i].queued);
  }
  if (timeline != NULL) {
    bppsa_free(timeline->marks);
  }
  bppsa_free(timeline);
}

bppsa_status bppsa_timeline_mark(bppsa_timeline *timeline, int64_t index) {
  mark *at = &timeline->marks[index];
  at->set = true;
  if (timeline->gpu) {
    return bppsa_mark_set(timeline->device, at->queued);
  }
  at->seconds = bppsa_now();
  return BPPSA_OK;
}

bppsa_status bppsa_timeline_seconds(const bppsa_timeline *timeline, int64_t from, int64_t to, double *seconds) {
  const mark *first = &timeline->marks[from], *last = &timeline->marks[to];
  if (!first->set || !last->set) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "timeline: mark %lld was never set, expected both marks",
                      (long long)(first->set ? to : from));
  }
  if (timeline->gpu) {
    BPPSA_TRY(bppsa_device_wait(timeline->device));
    return bppsa_mark_seconds(timeline->device, first->queued, last->queued, seconds);
  }
  *seconds = last->seconds - first->seconds;
  return BPPSA_OK;
}

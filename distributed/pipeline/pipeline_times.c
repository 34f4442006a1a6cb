/* When the operations of a run began and ended, on all ranks. */
#include <math.h>

#include "distributed/pipeline/pipeline_internal.h"

void bppsa_pipeline_times(const bppsa_pipeline *p, double *start, double *end) {
  for (int64_t id = 0; id < p->list->count; ++id) {
    const bppsa_pipeline_event *event = &p->events[id];
    start[id] = isnan(event->end) ? 0 : p->began + event->start;
    end[id] = isnan(event->end) ? 0 : p->began + event->end;
  }
}

void bppsa_pipeline_settle_times(const bppsa_schedule *list, double origin, double *start, double *end) {
  for (int64_t id = 0; id < list->count; ++id) {
    start[id] = fmax(0, start[id] - origin);
    end[id] = fmax(start[id], end[id] - origin);
  }
  for (int64_t id = 0; id + 1 < list->count; ++id) { /* a RECV stands behind its SEND */
    const bool pair = list->ops[id].kind == BPPSA_KIND_SEND && list->ops[id + 1].kind == BPPSA_KIND_RECV &&
                      list->ops[id].group == list->ops[id + 1].group;
    if (pair) {
      start[id + 1] = fmin(fmax(start[id], start[id + 1]), end[id + 1]);
    }
  }
}

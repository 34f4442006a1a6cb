/* A binary heap of events. */
#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

static bool precedes(const bppsa_event *a, const bppsa_event *b) {
  return a->time != b->time ? a->time < b->time : a->priority != b->priority ? a->priority < b->priority : a->id < b->id;
}

bppsa_status bppsa_events_reserve(bppsa_events *queue, int64_t room) {
  if (room > queue->room) {
    const int64_t grown_room = room > 2 * queue->room ? room : 2 * queue->room;
    bppsa_event *grown = bppsa_realloc(queue->events, (size_t)grown_room * sizeof *grown);
    if (grown == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    queue->events = grown;
    queue->room = grown_room;
  }
  return BPPSA_OK;
}

void bppsa_events_push(bppsa_events *queue, bppsa_event added) {
  int64_t at = queue->count++;
  for (; at > 0 && precedes(&added, &queue->events[(at - 1) / 2]); at = (at - 1) / 2) {
    queue->events[at] = queue->events[(at - 1) / 2];
  }
  queue->events[at] = added;
}

bppsa_event bppsa_events_pop(bppsa_events *queue) {
  const bppsa_event top = queue->events[0], last = queue->events[--queue->count];
  int64_t at = 0;
  for (int64_t child = 1; child < queue->count; child = 2 * at + 1) {
    child += child + 1 < queue->count && precedes(&queue->events[child + 1], &queue->events[child]);
    if (!precedes(&queue->events[child], &last)) {
      break;
    }
    queue->events[at] = queue->events[child];
    at = child;
  }
  queue->events[at] = last;
  return top;
}

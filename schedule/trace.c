/* Chrome's trace format, which Perfetto reads. Values of "ph": X a span, s and f the ends of an arrow, C a counter, M a name. */
#include <inttypes.h>

#include "core/alloc.h"
#include "schedule/timed.h"

#define MICROSECONDS 1000.0 /* in a unit of time */

static void add_names(const bppsa_schedule *list, bppsa_text *text) {
  for (int64_t w = 0; w < list->workers; ++w) {
    bppsa_text_add(text,
                   "%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%" PRId64 ",\"args\":{\"name\":\"worker %" PRId64 "\"}}",
                   w > 0 ? ",\n" : "", w, w);
    for (int lane = 0; lane < BPPSA_LANE_COUNT; ++lane) {
      bppsa_text_add(text, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%" PRId64 ",\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                     w, lane, bppsa_schedule_lane_name(lane));
    }
  }
}

static void add_span(const bppsa_timed *timed, int64_t id, bppsa_text *text) {
  const bppsa_schedule_op *op = &timed->list->ops[id];
  const double start = timed->times.start[id], end = timed->times.end[id];
  bppsa_text_add(text, ",\n{\"ph\":\"X\",\"name\":\"%s", bppsa_schedule_kind_name(op->kind));
  if (op->micro >= 0 && !timed->list->scheme->scan) {
    bppsa_text_add(text, " %d", (int)op->micro);
  }
  bppsa_text_add(text,
                 "\",\"pid\":%d,\"tid\":%d,\"ts\":%.9g,\"dur\":%.9g,\"args\":{\"id\":%" PRId64
                 ",\"stage\":%d,\"replica\":%d,\"layer\":%d,"
                 "\"layers\":%d,\"weight_version\":%d}}",
                 (int)op->worker, (int)op->lane, start * MICROSECONDS, (end - start) * MICROSECONDS, id, (int)op->stage,
                 (int)op->replica, (int)op->layer, (int)op->layers, (int)op->weight_version);
}

static void add_arrow(const bppsa_timed *timed, int64_t id, bppsa_text *text) {
  const bppsa_schedule_op *op = &timed->list->ops[id];
  const bool sends = op->kind == BPPSA_KIND_SEND;
  if (sends || op->kind == BPPSA_KIND_RECV) {
    bppsa_text_add(text,
                   ",\n{\"ph\":\"%s\",\"name\":\"tensor\",\"cat\":\"transfer\",\"id\":%d,\"pid\":%d,\"tid\":%d,\"ts\":%.9g%s}",
                   sends ? "s" : "f", (int)op->group, (int)op->worker, (int)op->lane,
                   (sends ? timed->times.start[id] : timed->times.end[id]) * MICROSECONDS, sends ? "" : ",\"bp\":\"e\"");
  }
}

static bppsa_status add_counters(const bppsa_timed *timed, bppsa_text *text) {
  bppsa_schedule_memory *curves = NULL;
  int64_t *first = NULL;
  BPPSA_TRY(bppsa_schedule_memory_curves(timed->list, &timed->times, &curves, &first));
  for (int64_t w = 0; w < timed->list->workers; ++w) {
    for (int64_t i = first[w]; i < first[w + 1]; ++i) {
      bppsa_text_add(text, ",\n{\"ph\":\"C\",\"name\":\"activations\",\"pid\":%" PRId64 ",\"ts\":%.9g,\"args\":{\"M_a\":%.9g}}",
                     w, curves[i].time * MICROSECONDS, curves[i].level);
    }
  }
  bppsa_free(curves);
  bppsa_free(first);
  return BPPSA_OK;
}

bppsa_status bppsa_schedule_trace(const bppsa_timed *timed, bppsa_text *text) {
  bppsa_text_add(text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  add_names(timed->list, text);
  for (int64_t id = 0; id < timed->list->count; ++id) {
    add_span(timed, id, text);
    add_arrow(timed, id, text);
  }
  BPPSA_TRY(add_counters(timed, text));
  bppsa_text_add(text, "\n]}\n");
  return bppsa_text_check(text);
}

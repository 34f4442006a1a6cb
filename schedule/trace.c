/* Chrome's trace format, which Perfetto reads. Values of "ph": X a span, s and f the ends of an arrow, C a counter, M a name. */
#include <inttypes.h>

#include "core/base/alloc.h"
#include "schedule/timed.h"

/* A group that is written. Its processes and arrows are numbered on from the ones of the groups in front of it. */
typedef struct {
  const bppsa_timed_group *group;
  int64_t process; /* the number of worker 0 */
  int64_t arrow;   /* the number of message 0 */
  double scale;    /* microseconds in a unit of time */
  bppsa_text *text;
} trace;

/* Begins the event that names a process. */
static void begin_name(const trace *t, int64_t process) {
  bppsa_text_add(t->text, "%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%" PRId64 ",\"args\":{\"name\":\"",
                 process > 0 ? ",\n" : "", process);
}

static void add_names(const trace *t) {
  const bppsa_timed_group *g = t->group;
  for (int64_t w = 0; w < g->list->workers; ++w) {
    const int64_t process = t->process + w;
    begin_name(t, process);
    if (g->name != NULL) {
      bppsa_text_add(t->text, "%s, %s: ", g->list->scheme->id, g->name);
    }
    bppsa_text_add(t->text, "worker %" PRId64 "\"}}", w);
    for (int lane = 0; lane < BPPSA_LANE_COUNT; ++lane) {
      bppsa_text_add(t->text,
                     ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%" PRId64 ",\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                     process, lane, bppsa_schedule_lane_name(lane));
    }
  }
}

static void add_span(const trace *t, int64_t id) {
  const bppsa_schedule *list = t->group->list;
  const bppsa_schedule_op *op = &list->ops[id];
  const double start = t->group->times->start[id], end = t->group->times->end[id];
  const int64_t version = op->weight_version < 0 ? -1 : op->weight_version + t->group->updates;
  bppsa_text_add(t->text, ",\n{\"ph\":\"X\",\"name\":\"%s", bppsa_schedule_kind_name(op->kind));
  if (op->micro >= 0 && !list->scheme->scan) {
    bppsa_text_add(t->text, " %d", (int)op->micro);
  }
  bppsa_text_add(t->text,
                 "\",\"pid\":%" PRId64 ",\"tid\":%d,\"ts\":%.9g,\"dur\":%.9g,\"args\":{\"id\":%" PRId64
                 ",\"stage\":%d,\"replica\":%d,\"layer\":%d,"
                 "\"layers\":%d,\"weight_version\":%" PRId64 "}}",
                 t->process + op->worker, (int)op->lane, start * t->scale, (end - start) * t->scale, id, (int)op->stage,
                 (int)op->replica, (int)op->layer, (int)op->layers, version);
}

static void add_arrow(const trace *t, int64_t id) {
  const bppsa_schedule_op *op = &t->group->list->ops[id];
  const bool sends = op->kind == BPPSA_KIND_SEND;
  if (sends || op->kind == BPPSA_KIND_RECV) {
    bppsa_text_add(t->text,
                   ",\n{\"ph\":\"%s\",\"name\":\"tensor\",\"cat\":\"transfer\",\"id\":%" PRId64 ",\"pid\":%" PRId64
                   ",\"tid\":%d,\"ts\":%.9g%s}",
                   sends ? "s" : "f", t->arrow + op->group, t->process + op->worker, (int)op->lane,
                   (sends ? t->group->times->start[id] : t->group->times->end[id]) * t->scale, sends ? "" : ",\"bp\":\"e\"");
  }
}

static bppsa_status add_counters(const trace *t) {
  bppsa_schedule_memory *curves = NULL;
  int64_t *first = NULL;
  BPPSA_TRY(bppsa_schedule_memory_curves(t->group->list, t->group->times, &curves, &first));
  for (int64_t w = 0; w < t->group->list->workers; ++w) {
    for (int64_t i = first[w] + t->group->again; i < first[w + 1]; ++i) { /* a later run skips the point of time 0 */
      bppsa_text_add(t->text,
                     ",\n{\"ph\":\"C\",\"name\":\"activations\",\"pid\":%" PRId64 ",\"ts\":%.9g,\"args\":{\"M_a\":%.9g}}",
                     t->process + w, curves[i].time * t->scale, curves[i].level);
    }
  }
  bppsa_free(curves);
  bppsa_free(first);
  return BPPSA_OK;
}

static bppsa_status add_group(const trace *t) {
  if (!t->group->again) {
    add_names(t);
  }
  for (int64_t id = 0; id < t->group->list->count; ++id) {
    add_span(t, id);
    add_arrow(t, id);
  }
  return add_counters(t);
}

static void add_track(const trace *t, const bppsa_timed_track *track) {
  begin_name(t, t->process);
  bppsa_text_add(t->text, "%s\"}}", track->name);
  for (int64_t i = 0; i < track->count; ++i) {
    const bppsa_timed_span *span = &track->spans[i];
    bppsa_text_add(t->text, ",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%" PRId64 ",\"tid\":0,\"ts\":%.9g,\"dur\":%.9g}",
                   span->name, t->process, span->start * t->scale, (span->end - span->start) * t->scale);
  }
}

bppsa_status bppsa_schedule_trace_groups(const bppsa_timed_groups *groups, bppsa_text *text) {
  trace t = {.scale = 1000 * groups->milliseconds, .text = text};
  bppsa_text_add(text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  for (int64_t i = 0; i < groups->count; ++i) {
    t.group = &groups->groups[i];
    BPPSA_TRY(add_group(&t));
    t.process += i + 1 < groups->count && t.group[1].again ? 0 : t.group->list->workers;
    t.arrow += t.group->list->groups;
  }
  for (int64_t i = 0; i < groups->tracks; ++i, ++t.process) {
    add_track(&t, &groups->track[i]);
  }
  bppsa_text_add(text, "\n]}\n");
  return bppsa_text_check(text);
}

bppsa_status bppsa_schedule_trace(const bppsa_timed *timed, bppsa_text *text) {
  if (timed->list->count > BPPSA_SCHEDULE_TRACE_LIMIT) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "trace: %" PRId64 " operations, expected at most %d", timed->list->count,
                      BPPSA_SCHEDULE_TRACE_LIMIT);
  }
  const bppsa_timed_group one = {.list = timed->list, .times = &timed->times};
  return bppsa_schedule_trace_groups(&(bppsa_timed_groups){.count = 1, .groups = &one, .milliseconds = 1}, text);
}

#include "cli/bench_queued.h"

enum { MARKS = 2 };

static bool records_nothing;

void bppsa_bench_record_nothing(bool on) {
  records_nothing = on;
}

static bppsa_status queue(void *context) {
  const bppsa_bench_recording *r = context;
  BPPSA_TRY(bppsa_timeline_mark(r->timeline, 0));
  BPPSA_TRY(records_nothing ? BPPSA_OK : r->action(r->context));
  return bppsa_timeline_mark(r->timeline, 1);
}

bppsa_status bppsa_bench_record(const bppsa_device *device, bppsa_queued_work action, bppsa_queued_work clear, void *context,
                                bppsa_bench_recording *made) {
  bppsa_bench_recording r = {.device = device, .action = action, .clear = clear, .context = context};
  BPPSA_TRY(bppsa_timeline_create(device, MARKS, &r.timeline));
  const bppsa_status status = bppsa_graph_capture(device, queue, &r, &r.graph);
  if (status != BPPSA_OK) {
    bppsa_timeline_destroy(r.timeline);
    return status;
  }
  r.nodes = bppsa_graph_nodes(r.graph) - MARKS;
  *made = r;
  return BPPSA_OK;
}

static bppsa_status replay_once(void *context, double *seconds) {
  const bppsa_bench_recording *r = context;
  BPPSA_TRY(bppsa_graph_launch(r->device, r->graph));
  return bppsa_timeline_seconds(r->timeline, 0, 1, seconds);
}

bppsa_status bppsa_bench_replay(bppsa_bench_recording *recording, int64_t repeats, double budget_s, bppsa_timing *timing) {
  BPPSA_TRY(recording->clear(recording->context));
  return bppsa_bench_collect(replay_once, recording, repeats, budget_s, timing);
}

void bppsa_bench_recording_free(bppsa_bench_recording *recording) {
  bppsa_graph_destroy(recording->device, recording->graph);
  bppsa_timeline_destroy(recording->timeline);
}

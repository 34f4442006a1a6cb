#include "bench/harness/recording.h"

enum { MARKS = 2 };

static bool records_nothing, records_waits;

void bppsa_bench_record_nothing(bool on) {
  records_nothing = on;
}

void bppsa_bench_record_waits(bool on) {
  records_waits = on;
}

static bppsa_status queue(void *context) {
  const bppsa_bench_recording *r = context;
  BPPSA_TRY(bppsa_timeline_mark(r->timeline, 0));
  BPPSA_TRY(records_nothing ? BPPSA_OK : r->action(r->context));
  BPPSA_TRY(records_waits ? bppsa_device_wait(r->device) : BPPSA_OK);
  return bppsa_timeline_mark(r->timeline, 1);
}

bppsa_status bppsa_bench_record(const bppsa_device *device, bppsa_queued_work action, bppsa_queued_work clear, void *context,
                                bppsa_bench_recording *made) {
  bppsa_bench_recording r = {.device = device, .action = action, .clear = clear, .context = context};
  BPPSA_TRY(bppsa_timeline_create(device, MARKS, &r.timeline));
  const bppsa_status status = bppsa_graph_capture(device, queue, &r, &r.graph);
  if (status != BPPSA_OK) {
    bppsa_timeline_destroy(r.timeline);
    return status == BPPSA_ERR_CUDA ? BPPSA_ERR_UNSUPPORTED : status;
  }
  r.nodes = bppsa_graph_nodes(r.graph) - MARKS;
  *made = r;
  return BPPSA_OK;
}

bppsa_status bppsa_bench_replay_queue(const bppsa_bench_recording *recording) {
  return bppsa_graph_launch(recording->device, recording->graph);
}

bppsa_status bppsa_bench_replay_seconds(const bppsa_bench_recording *recording, double *seconds) {
  return bppsa_timeline_seconds(recording->timeline, 0, 1, seconds);
}

bppsa_status bppsa_bench_replay_pass(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  const bppsa_bench_recording *r = context;
  BPPSA_TRY(bppsa_bench_replay_queue(r));
  return bppsa_bench_replay_seconds(r, &seconds[0]);
}

bppsa_status bppsa_bench_replay_cleared(const bppsa_bench_recording *recording) {
  BPPSA_TRY(recording->clear(recording->context));
  BPPSA_TRY(bppsa_bench_replay_queue(recording));
  return bppsa_device_wait(recording->device);
}

void bppsa_bench_recording_free(bppsa_bench_recording *recording) {
  bppsa_graph_destroy(recording->device, recording->graph);
  bppsa_timeline_destroy(recording->timeline);
}

/* Runs the contestants' passes and, at the end, counts the memory that they held. */
#include "bench/cases/bench_rnn.h"
#include "core/compute/memory.h"

/* ---- passes ---- */

/* These functions queue a pass of a plain contestant, also while it is recorded. */
static bppsa_status queue_forward(void *context) {
  const bppsa_bench_contestant *who = context;
  const bppsa_spans spans = bppsa_bench_spans(who->session, false);
  return who->rival != NULL ? bppsa_cudnn_forward(who->rival, &who->session->view_x)
                            : bppsa_recurrent_forward_spans(who->model, &who->session->view_x, NULL, &spans);
}

static bppsa_status queue_backward(void *context) {
  const bppsa_bench_contestant *who = context;
  return who->rival != NULL ? bppsa_cudnn_backward(who->rival, &who->session->view_seed)
                            : bppsa_recurrent_backward_layers(who->model, &who->session->view_seed);
}

static const bppsa_queued_work queue[2] = {queue_forward, queue_backward};

bppsa_status bppsa_bench_end_pauses(bppsa_model *model) {
  const bppsa_forward_pause none = {0};
  bppsa_backward_state state;
  BPPSA_TRY(bppsa_forward_plan_of(model)->speculative ? bppsa_forward_pause_set(model, &none) : BPPSA_OK);
  if (bppsa_backward_plan_of(model) == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_backward_state_get(model, &state));
  state.pause = none;
  return bppsa_backward_state_set(model, &state);
}

/* A plain contestant queues both passes before the host waits, so that the backward pass does not begin on an idle GPU. */
bppsa_status bppsa_bench_pass(bppsa_bench_contestant *forward, bppsa_bench_contestant *backward, double seconds[2]) {
  if (forward->guest != NULL) {
    return bppsa_guest_pass(forward->session->guest, forward->guest, 2, seconds); /* the guest times both passes itself */
  }
  bppsa_bench_contestant *who[2] = {forward, backward};
  bppsa_timeline *timeline = forward->session->timeline;
  bppsa_cold *cold = &forward->session->cold;
  const int64_t begin[2] = {0, cold->cache > 0 ? 2 : 1}; /* a mark; the next one ends the phase */
  for (int phase = 0; phase < 2; ++phase) {
    BPPSA_TRY(who[phase]->model != NULL ? bppsa_bench_end_pauses(who[phase]->model) : BPPSA_OK);
  }
  for (int phase = 0; phase < 2; ++phase) {
    BPPSA_TRY(bppsa_cold_sweep(cold));
    BPPSA_TRY(phase == 0 || begin[1] == 2 ? bppsa_timeline_mark(timeline, begin[phase]) : BPPSA_OK);
    BPPSA_TRY(who[phase]->plain == NULL ? queue[phase](who[phase]) : bppsa_bench_replay_queue(&who[phase]->recordings[phase]));
    BPPSA_TRY(bppsa_timeline_mark(timeline, begin[phase] + 1));
  }
  for (int phase = 0; phase < 2; ++phase) {
    BPPSA_TRY(who[phase]->plain == NULL ? bppsa_timeline_seconds(timeline, begin[phase], begin[phase] + 1, &seconds[phase])
                                        : bppsa_bench_replay_seconds(&who[phase]->recordings[phase], &seconds[phase]));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_bench_record_passes(bppsa_bench_contestant *graph) {
  const bppsa_device *device = graph->session->device;
  BPPSA_TRY(bppsa_bench_record(device, queue_forward, NULL, graph->plain, &graph->recordings[0]));
  const bppsa_status status = bppsa_bench_record(device, queue_backward, NULL, graph->plain, &graph->recordings[1]);
  if (status != BPPSA_OK) {
    bppsa_bench_recording_free(&graph->recordings[0]);
    graph->recordings[0] = (bppsa_bench_recording){0};
  }
  return status;
}

/* Makes a pass in the rounds; on a CPU a run for the peak follows it. */
static bppsa_status make_pass(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  bppsa_bench_session *s = ((bppsa_bench_contestant *)context)->session;
  BPPSA_TRY(bppsa_bench_pass(context, context, seconds));
  if (!s->bench->gpu) {
    s->per_flop[s->bursts++ % BPPSA_BENCH_BURSTS] = 1 / bppsa_peak_burst(s->device, s->point.config.dtype);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_bench_enter_contestant(bppsa_bench_contestant *who, bppsa_status (*verify)(void *who, double *residual),
                                          bool *entered) {
  const bppsa_contender contender = {.verification = {.verify = verify, .context = who},
                                     .pass = make_pass,
                                     .context = who,
                                     .parts = 2,
                                     .qualifies = !bppsa_bench_row_rival(who->backward)  ? BPPSA_QUALIFIED
                                                  : bppsa_bench_row_exact(who->backward) ? BPPSA_QUALIFIES
                                                                                         : BPPSA_QUALIFIES_BEHIND};
  char name[BPPSA_BENCH_NAME];
  bppsa_bench_row_name(who->session->guest, who->backward, name, sizeof name);
  return bppsa_bench_enter_contender(who->session->bench, &contender, who, name, "backward", entered);
}

/* ---- after the rounds ---- */

void bppsa_bench_skip_row(bppsa_bench_row *row, const char *reason) {
  row->measured = false;
  row->memory = 0; /* otherwise the row would look as if it lacked memory */
  snprintf(row->reason, sizeof row->reason, "%.*s", (int)sizeof row->reason - 1, reason);
}

static void fill_rows(const bppsa_bench_entrant *entrant) {
  const bppsa_bench_contestant *who = entrant->context;
  const bppsa_contender *c = &entrant->contender;
  bppsa_bench_row *rows = who->session->result.rows, *forward = who->forward >= 0 ? &rows[who->forward] : NULL;
  if (c->verdict == BPPSA_REFUSED) {
    bppsa_bench_skip_row(&rows[who->backward], c->reason);
    if (forward != NULL) {
      bppsa_bench_skip_row(forward, c->reason);
    }
    return;
  }
  if (forward != NULL) {
    forward->time = c->timing[0];
  }
  rows[who->backward].time = c->timing[1];
  rows[who->backward].forward = c->timing[0];
  if (c->beaten) { /* a rival, which has both rows */
    rows[who->forward].qualifying = c->qualifying[0];
    rows[who->backward].qualifying = c->qualifying[1];
  }
}

static void free_contestant(bppsa_bench_contestant *who) {
  bppsa_bench_recording_free(&who->recordings[0]);
  bppsa_bench_recording_free(&who->recordings[1]);
  if (who->plain == NULL) {
    bppsa_model_destroy(who->model);
    bppsa_cudnn_destroy(who->rival);
  }
}

static void set_memory(const bppsa_bench_contestant *who, int64_t bytes) {
  bppsa_bench_row *rows = who->session->result.rows;
  const int indices[] = {who->forward, who->backward};
  for (int i = 0; i < 2; ++i) {
    if (indices[i] >= 0 && rows[indices[i]].measured) {
      rows[indices[i]].memory = bytes;
    }
  }
}

/* Destroys a graph before the contestant whose passes it holds, because it uses that contestant's memory. */
void bppsa_bench_end_contestants(bppsa_bench_session *s) {
  int64_t freed[BPPSA_BENCH_ROWS];
  for (int i = s->count - 1; i >= 0; --i) {
    const int64_t before = bppsa_memory_held(s->device);
    free_contestant(&s->list[i]);
    freed[i] = before - bppsa_memory_held(s->device);
  }
  for (int i = 0; s->bench->gpu && i < s->count; ++i) {
    const bppsa_bench_contestant *who = &s->list[i];
    set_memory(who, freed[i] + (who->plain != NULL ? freed[who->plain - s->list] : 0));
  }
  s->count = 0;
  s->bp = NULL;
}

bppsa_status bppsa_bench_settle_point(bppsa_bench *bench) {
  bppsa_bench_session *s = bench->session;
  if (s->bursts > 0) {
    s->result.peak.flops =
        1 / bppsa_timing_of(s->bursts < BPPSA_BENCH_BURSTS ? s->bursts : BPPSA_BENCH_BURSTS, s->per_flop).median_s;
  }
  for (int64_t i = 0; i < bench->count; ++i) {
    fill_rows(bench->entrants[i]);
  }
  bppsa_bench_end_contestants(s);
  return BPPSA_OK;
}

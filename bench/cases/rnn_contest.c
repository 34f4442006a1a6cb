#include "bench/cases/rnn_contest.h"

#include <inttypes.h>

#include "core/alloc.h"
#include "core/memory.h"

enum { MARKS = 3 };

bppsa_status bppsa_contest_begin(const bppsa_device *device, bppsa_contest *contest) {
  *contest = (bppsa_contest){.device = device};
  return bppsa_timeline_create(device, MARKS, &contest->timeline);
}

/* ---- passes ---- */

/* The arguments of the function that queues a pass, also when it is recorded. */
typedef struct {
  const bppsa_contest *contest;
  const bppsa_contestant *who;
} turn;

static bppsa_status queue_forward(void *context) {
  const turn *t = context;
  return t->who->rival != NULL ? bppsa_cudnn_forward(t->who->rival, &t->contest->x)
                               : bppsa_recurrent_forward_layers(t->who->model, &t->contest->x, NULL);
}

static bppsa_status queue_backward(void *context) {
  const turn *t = context;
  return t->who->rival != NULL ? bppsa_cudnn_backward(t->who->rival, &t->contest->seed)
                               : bppsa_recurrent_backward_layers(t->who->model, &t->contest->seed);
}

static const bppsa_queued_work queue[2] = {queue_forward, queue_backward};

/* A plain contestant queues both passes before the host waits, so that the backward pass does not begin on an idle GPU. */
bppsa_status bppsa_contest_pass(bppsa_contest *contest, int forward, int backward, double seconds[2]) {
  const bppsa_contestant *who[2] = {&contest->list[forward], &contest->list[backward]};
  BPPSA_TRY(bppsa_timeline_mark(contest->timeline, 0));
  for (int phase = 0; phase < 2; ++phase) {
    turn t = {contest, who[phase]};
    BPPSA_TRY(who[phase]->plain < 0 ? queue[phase](&t) : bppsa_bench_replay_queue(&who[phase]->recordings[phase]));
    BPPSA_TRY(bppsa_timeline_mark(contest->timeline, phase + 1));
  }
  for (int phase = 0; phase < 2; ++phase) {
    BPPSA_TRY(who[phase]->plain < 0 ? bppsa_timeline_seconds(contest->timeline, phase, phase + 1, &seconds[phase])
                                    : bppsa_bench_replay_seconds(&who[phase]->recordings[phase], &seconds[phase]));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_contest_add_graph(bppsa_contest *contest, int plain, int forward, int backward) {
  const bppsa_contestant *same = &contest->list[plain];
  bppsa_contestant made = {.forward = forward, .backward = backward, .plain = plain, .model = same->model, .rival = same->rival};
  turn t = {contest, same};
  BPPSA_TRY(bppsa_bench_record(contest->device, queue_forward, NULL, &t, &made.recordings[0]));
  const bppsa_status status = bppsa_bench_record(contest->device, queue_backward, NULL, &t, &made.recordings[1]);
  if (status != BPPSA_OK) {
    bppsa_bench_recording_free(&made.recordings[0]);
    return status;
  }
  contest->list[contest->count++] = made;
  return BPPSA_OK;
}

/* ---- timing ---- */

/* A contestant's pass in the rounds. */
typedef struct {
  bppsa_contest *contest;
  int index;
} contender;

static bppsa_status make_pass(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  const contender *c = context;
  return bppsa_contest_pass(c->contest, c->index, c->index, seconds);
}

static void show_round(void *context, int64_t round, int64_t rounds) {
  const bppsa_bench_limits *limits = context;
  if (limits->line != NULL && bppsa_progress_due(limits->line)) {
    bppsa_progress_show(limits->line, "%s: round %" PRId64 " of %" PRId64, limits->label, round, rounds);
  }
}

void bppsa_contest_skip_row(bppsa_bench_row *row, const char *reason) {
  row->measured = false;
  row->memory = 0; /* so that the row does not look as if it lacked memory */
  snprintf(row->reason, sizeof row->reason, "%.*s", (int)sizeof row->reason - 1, reason);
}

static void fill_rows(const bppsa_contestant *who, bppsa_bench_result *result) {
  const bppsa_contender *c = &who->contender;
  bppsa_bench_row *forward = who->forward >= 0 ? &result->rows[who->forward] : NULL, *backward = &result->rows[who->backward];
  if (c->verdict == BPPSA_REFUSED) {
    bppsa_contest_skip_row(backward, c->reason);
    if (forward != NULL) {
      bppsa_contest_skip_row(forward, c->reason);
    }
    return;
  }
  if (forward != NULL) {
    forward->time = c->timing[0];
  }
  backward->time = c->timing[1];
  backward->forward = c->timing[0];
}

bppsa_status bppsa_contest_time(bppsa_contest *contest, const bppsa_bench_limits *limits, bppsa_bench_result *result) {
  bppsa_contender list[BPPSA_BENCH_ROWS];
  contender contenders[BPPSA_BENCH_ROWS];
  bppsa_bench_limits shown = *limits;
  const bppsa_rounds rounds = {.repeats = limits->repeats,
                               .budget_s = limits->budget_s / (double)contest->count,
                               .progress = show_round,
                               .context = &shown};
  for (int i = 0; i < contest->count; ++i) {
    contenders[i] = (contender){contest, i};
    list[i] = contest->list[i].contender;
    list[i].pass = make_pass;
    list[i].context = &contenders[i];
    list[i].parts = 2;
  }
  BPPSA_TRY(bppsa_rounds_run(&rounds, contest->count, list));
  for (int i = 0; i < contest->count; ++i) {
    contest->list[i].contender = list[i];
    fill_rows(&contest->list[i], result);
  }
  return BPPSA_OK;
}

/* ---- the end ---- */

static void free_contestant(bppsa_contestant *who) {
  bppsa_bench_recording_free(&who->recordings[0]);
  bppsa_bench_recording_free(&who->recordings[1]);
  if (who->plain < 0) {
    bppsa_model_destroy(who->model);
    bppsa_cudnn_destroy(who->rival);
  }
}

static void set_memory(bppsa_bench_result *result, const bppsa_contestant *who, int64_t bytes) {
  if (who->forward >= 0) {
    result->rows[who->forward].memory = bytes;
  }
  result->rows[who->backward].memory = bytes;
}

/* Destroys a graph before the contestant whose passes it holds, because it uses that contestant's memory. */
void bppsa_contest_end(bppsa_contest *contest, bppsa_bench_result *result) {
  int64_t freed[BPPSA_BENCH_ROWS];
  for (int i = contest->count - 1; i >= 0; --i) {
    const int64_t before = bppsa_memory_held(contest->device);
    free_contestant(&contest->list[i]);
    freed[i] = before - bppsa_memory_held(contest->device);
  }
  for (int i = 0; contest->device != NULL && bppsa_device_get_kind(contest->device) == BPPSA_CUDA && i < contest->count; ++i) {
    const bppsa_contestant *who = &contest->list[i];
    set_memory(result, who, freed[i] + (who->plain >= 0 ? freed[who->plain] : 0));
  }
  bppsa_timeline_destroy(contest->timeline);
  *contest = (bppsa_contest){0};
}

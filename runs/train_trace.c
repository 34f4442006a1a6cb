#include "runs/train_trace.h"

#include <math.h>
#include <stdio.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "schedule/timed.h"
#include "train/ranks.h"

enum { MOST_OPERATIONS = 100000, MOST_SPANS = 20000 };

struct bppsa_train_trace {
  bppsa_comm *comm;
  const bppsa_train_ranks *inner; /* the ranks themselves */
  const bppsa_schedule *list;
  const bppsa_pipeline *executor;
  bppsa_train_ranks ranks; /* what the loop drives */
  double origin;           /* zero of the trace's times on this rank's clock */
  bool full;
  bppsa_timed_span *spans; /* this rank's calls, the same on every rank; size span_count */
  int64_t span_count, span_room;
  double since;  /* when the loop got the gradients; NaN: it has called again since */
  int64_t steps; /* steps in the trace */
  double *times; /* times of operations, [runs][start or end][count of the list] */
  int64_t runs, run_room;
  double began; /* when the latest run in the trace began */
};

static double now(const bppsa_train_trace *t) {
  return bppsa_now() - t->origin;
}

/* ---- what a rank does ---- */

static bppsa_status add_span(bppsa_train_trace *t, const char *name, double start) {
  if (t->full) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_grow(&t->spans, t->span_count, &t->span_room, sizeof *t->spans));
  t->spans[t->span_count++] = (bppsa_timed_span){name, start, now(t)};
  return BPPSA_OK;
}

/* The loop calls again: since it got the gradients it has updated the weights, unless the ranks did that themselves. */
static bppsa_status end_update(bppsa_train_trace *t) {
  const double since = t->since;
  t->since = (double)NAN;
  return isnan(since) ? BPPSA_OK : add_span(t, "update", since);
}

/* Adds the times of the list's latest run. */
static bppsa_status take_run(bppsa_train_trace *t) {
  const int64_t count = t->list->count;
  if (bppsa_pipeline_began(t->executor) == t->began) { /* the step belongs to a run that is in the trace already */
    return BPPSA_OK;
  }
  if (t->runs == t->run_room) {
    const int64_t room = 2 * t->run_room + 1;
    double *grown = bppsa_realloc(t->times, (size_t)(room * 2 * count + 1) * sizeof *grown);
    if (grown == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    t->times = grown;
    t->run_room = room;
  }
  double *times = t->times + t->runs * 2 * count;
  bppsa_pipeline_times(t->executor, times, times + count);
  for (int64_t i = 0; i < 2 * count; ++i) {
    times[i] -= times[i] != 0 ? t->origin : 0; /* 0: another rank's operation */
  }
  t->began = bppsa_pipeline_began(t->executor);
  t->runs++;
  return BPPSA_OK;
}

static bppsa_status forward_backward(void *context, bppsa_batch *batch, int64_t count, const int64_t *indices,
                                     bppsa_train_record *record, bppsa_loss_result *loss) {
  bppsa_train_trace *t = context;
  const double start = now(t);
  BPPSA_TRY(t->inner->forward_backward(t->inner->context, batch, count, indices, record, loss));
  BPPSA_TRY(add_span(t, t->inner->updates > 0 ? "forward, backward and update" : "forward and backward", start));
  if (!t->full && t->list != NULL) {
    BPPSA_TRY(take_run(t));
  }
  t->steps += !t->full;
  t->since = t->inner->updates > 0 ? (double)NAN : now(t);
  return BPPSA_OK;
}

/* Stops the trace between two steps if no whole step fits. The steps of a list are all noted with the first one. */
static void check_room(bppsa_train_trace *t) {
  const int64_t next = t->list != NULL ? (t->runs + 1) * t->list->count : 0;
  const bool between = t->list == NULL || t->steps % t->list->rounds == 0;
  t->full = t->full || (between && t->steps > 0 && (next > MOST_OPERATIONS || t->span_count > MOST_SPANS));
}

/* ---- the other calls ---- */

static bppsa_status describe_nonfinite(void *context, bppsa_batch *batch, int64_t count, const int64_t *indices, bool backward,
                                       const char *otherwise, bppsa_line *line) {
  const bppsa_train_trace *t = context;
  return t->inner->describe_nonfinite(t->inner->context, batch, count, indices, backward, otherwise, line);
}

static bppsa_status evaluate(void *context, bppsa_batch *batch, int64_t first, int64_t count, bppsa_evaluation *result) {
  bppsa_train_trace *t = context;
  BPPSA_TRY(end_update(t));
  const double start = now(t);
  BPPSA_TRY(t->inner->evaluate(t->inner->context, batch, first, count, result));
  return add_span(t, "evaluation", start);
}

static bppsa_status agree(void *context, int64_t step, bool *stop) {
  bppsa_train_trace *t = context;
  BPPSA_TRY(end_update(t));
  check_room(t);
  return t->inner->agree(t->inner->context, step, stop);
}

static const char *note(void *context) {
  const bppsa_train_trace *t = context;
  return t->inner->note(t->inner->context);
}

static bppsa_status share(void *context, int64_t count, const bppsa_named_view *tensors) {
  const bppsa_train_trace *t = context;
  return t->inner->share(t->inner->context, count, tensors);
}

static bppsa_status begin(void *context, const bppsa_train_lead *lead) {
  const bppsa_train_trace *t = context;
  return t->inner->begin(t->inner->context, lead);
}

static bppsa_status gather(void *context) {
  bppsa_train_trace *t = context;
  const double start = now(t);
  BPPSA_TRY(t->inner->gather(t->inner->context));
  return add_span(t, "collection of the weights", start);
}

/* ---- creation ---- */

/* Finds the zero of times: rank 0's clock if all ranks are on one node, otherwise the rank's own, read after a barrier. */
static bppsa_status find_origin(bppsa_train_trace *t) {
  const int64_t one = 1;
  const bppsa_view view = bppsa_view_make(&t->origin, BPPSA_F64, 1, &one);
  BPPSA_TRY(bppsa_comm_barrier(t->comm));
  t->origin = bppsa_now();
  return bppsa_comm_node_size(t->comm) == bppsa_comm_size(t->comm) ? bppsa_comm_broadcast(t->comm, 0, &view) : BPPSA_OK;
}

bppsa_status bppsa_train_trace_create(bppsa_comm *comm, const bppsa_train_ranks *ranks, const bppsa_schedule *list,
                                      const bppsa_pipeline *executor, bppsa_train_trace **trace) {
  BPPSA_REQUIRE(comm != NULL && ranks != NULL && (list == NULL) == (executor == NULL) && trace != NULL);
  bppsa_train_trace *t = bppsa_calloc(1, sizeof *t);
  if (t == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *t = (bppsa_train_trace){
      .comm = comm, .inner = ranks, .list = list, .executor = executor, .ranks = *ranks, .since = (double)NAN};
  t->ranks.context = t;
  t->ranks.forward_backward = forward_backward;
  t->ranks.describe_nonfinite = describe_nonfinite;
  t->ranks.evaluate = evaluate;
  t->ranks.agree = agree;
  t->ranks.note = ranks->note != NULL ? note : NULL;
  t->ranks.share = share;
  t->ranks.begin = begin;
  t->ranks.gather = gather;
  const bppsa_status status = find_origin(t);
  if (status != BPPSA_OK) {
    bppsa_train_trace_destroy(t);
    return status;
  }
  *trace = t;
  return BPPSA_OK;
}

void bppsa_train_trace_destroy(bppsa_train_trace *t) {
  if (t != NULL) {
    bppsa_free(t->spans);
    bppsa_free(t->times);
    bppsa_free(t);
  }
}

const bppsa_train_ranks *bppsa_train_trace_ranks(const bppsa_train_trace *t) {
  return &t->ranks;
}

int64_t bppsa_train_trace_steps(const bppsa_train_trace *t) {
  return t->steps;
}

/* ---- the file ---- */

/* What rank 0 makes the file from. */
typedef struct {
  double *ends;            /* of every rank's spans: [ranks][span_count][start, end] */
  bppsa_timed_span *spans; /* [ranks][span_count] */
  bppsa_timed_track *tracks;
  bppsa_schedule_times *times; /* of each run, borrowing the trace's */
  bppsa_timed_group *groups;
  bppsa_schedule_times predicted;
} parts;

static void free_parts(parts *p) {
  void *const blocks[] = {p->ends, p->spans, p->tracks, p->times, p->groups};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
  bppsa_schedule_times_free(&p->predicted);
}

/* Gathers the spans on rank 0, where `ends` has room for all ranks. Collective. */
static bppsa_status gather_spans(const bppsa_train_trace *t, double *ends) {
  const int64_t mine = 2 * t->span_count, all = mine * bppsa_comm_size(t->comm);
  double *own = bppsa_calloc(mine + 1, sizeof *own);
  if (own == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < t->span_count; ++i) {
    own[2 * i] = t->spans[i].start;
    own[2 * i + 1] = t->spans[i].end;
  }
  const bppsa_view from = bppsa_view_make(own, BPPSA_F64, 1, &mine), to = bppsa_view_make(ends, BPPSA_F64, 1, &all);
  const bppsa_status status = bppsa_comm_gather(t->comm, 0, &from, NULL, &to);
  bppsa_free(own);
  return status;
}

static bppsa_status add_operations(const bppsa_train_trace *t) {
  const int64_t count = t->list != NULL ? t->runs * 2 * t->list->count : 0;
  const bppsa_view view = bppsa_view_make(t->times, BPPSA_F64, 1, &count);
  return count > 0 ? bppsa_comm_allreduce(t->comm, BPPSA_COMM_SUM, &view) : BPPSA_OK;
}

static void fill_tracks(const bppsa_train_trace *t, const parts *p) {
  for (int64_t rank = 0; rank < bppsa_comm_size(t->comm); ++rank) {
    bppsa_timed_span *spans = p->spans + rank * t->span_count;
    for (int64_t i = 0; i < t->span_count; ++i) {
      const double *ends = p->ends + 2 * (rank * t->span_count + i);
      spans[i] = (bppsa_timed_span){t->spans[i].name, fmax(0, ends[0]), fmax(0, ends[1])};
    }
    p->tracks[rank] = (bppsa_timed_track){.count = t->span_count, .spans = spans};
    snprintf(p->tracks[rank].name, sizeof p->tracks[rank].name, "rank %d", (int)rank);
  }
}

static void fill_groups(const bppsa_train_trace *t, const parts *p, int64_t first) {
  for (int64_t run = 0; run < t->runs; ++run) {
    double *start = t->times + run * 2 * t->list->count, *end = start + t->list->count;
    bppsa_pipeline_settle_times(t->list, 0, start, end);
    p->times[run] = (bppsa_schedule_times){.start = start, .end = end};
    p->groups[first + run] = (bppsa_timed_group){.name = "measured",
                                                 .list = t->list,
                                                 .times = &p->times[run],
                                                 .again = run > 0,
                                                 .updates = run * bppsa_pipeline_updates(t->executor)};
  }
}

static bppsa_status write_parts(const bppsa_train_trace *t, bool predicted, parts *p, bppsa_text *text) {
  const int64_t first = predicted && t->list != NULL ? 1 : 0;
  if (first > 0) {
    BPPSA_TRY(bppsa_schedule_simulate(t->list, &p->predicted));
    p->groups[0] = (bppsa_timed_group){.name = "predicted", .list = t->list, .times = &p->predicted};
  }
  fill_groups(t, p, first);
  fill_tracks(t, p);
  return bppsa_schedule_trace_groups(&(bppsa_timed_groups){.count = first + t->runs,
                                                           .groups = p->groups,
                                                           .milliseconds = 1e3,
                                                           .tracks = bppsa_comm_size(t->comm),
                                                           .track = p->tracks},
                                     text);
}

bppsa_status bppsa_train_trace_finish(bppsa_train_trace *t, bool predicted, bppsa_text *text) {
  BPPSA_REQUIRE(t != NULL && text != NULL);
  const int64_t ranks = bppsa_comm_rank(t->comm) == 0 ? bppsa_comm_size(t->comm) : 0;
  BPPSA_TRY(end_update(t));
  t->full = true;
  const int64_t spans = t->span_count * ranks;
  parts p = {.ends = bppsa_calloc(2 * spans + 1, sizeof *p.ends),
             .spans = bppsa_calloc(spans + 1, sizeof *p.spans),
             .tracks = bppsa_calloc(ranks + 1, sizeof *p.tracks),
             .times = bppsa_calloc(t->runs + 1, sizeof *p.times),
             .groups = bppsa_calloc(t->runs + 1, sizeof *p.groups)};
  const bool room = p.ends != NULL && p.spans != NULL && p.tracks != NULL && p.times != NULL && p.groups != NULL;
  bppsa_status status = room ? gather_spans(t, p.ends) : BPPSA_ERR_MEMORY;
  status = status == BPPSA_OK ? add_operations(t) : status;
  status = status == BPPSA_OK && ranks > 0 ? write_parts(t, predicted, &p, text) : status;
  free_parts(&p);
  return status;
}

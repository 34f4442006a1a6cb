/* Simulates discrete events: every lane runs its operations in the list's order, each once its dependencies have ended; operations
 * of a group start together.
 *
 * A heap orders events by time, and by id where times are equal, so the result depends on nothing else. An operation enters the
 * heap when the last operation it waits for has ended; the order in which operations leave the heap is an order in which they can
 * run. O((operations + dependencies) log operations).
 */
#include <math.h>

#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

typedef struct {
  const bppsa_schedule *list;
  bppsa_schedule_run *run;
  bool free_links;
  bool untimed;  /* ignores times, in linear time: only finds out whether everything can run */
  int64_t taken; /* taken from an untimed queue */
  bppsa_events queue;
  int64_t *first;     /* first successor of each operation, size count + 1 */
  int32_t *successor; /* size dep_count */
  int32_t *next;      /* next operation in the lane, or -1 */
  int32_t *waiting;   /* number of operations it waits for */
  double *ready;      /* the latest end of what it has waited for */
  int32_t *members;   /* members of each group that are not ready, size groups */
  double *together;   /* when the last member of each group is ready */
  int32_t *member;    /* first member of each group, or -1; size groups */
  int32_t *beside;    /* the next member of the operation's group, or -1 */
  double network;     /* when the network becomes free, if all transfers share one */
} engine;

/* ---- what waits for what ---- */

static bool is_transfer(const bppsa_schedule_op *op) {
  return op->kind == BPPSA_KIND_SEND || op->kind == BPPSA_KIND_RECV;
}

/* Does the operation wait for the one before it in its lane? Without contention at the port, transfers do not. */
static bool in_lane(const engine *e, const bppsa_schedule_op *op) {
  return !is_transfer(op) || (!e->free_links && e->list->config.contention == BPPSA_CONTENTION_PORT);
}

static void link_successors(engine *e) {
  const bppsa_schedule *list = e->list;
  for (int64_t i = 0; i < list->dep_count; ++i) {
    e->first[list->deps[i] + 1] += 1;
  }
  for (int64_t i = 0; i < list->count; ++i) {
    e->first[i + 1] += e->first[i];
  }
  for (int64_t i = list->count - 1; i >= 0; --i) { /* backwards: `first` moves down to its place */
    const bppsa_schedule_op *op = &list->ops[i];
    for (int32_t k = 0; k < op->dep_count; ++k) {
      e->successor[--e->first[list->deps[op->deps + k] + 1]] = (int32_t)i;
    }
    e->waiting[i] = op->dep_count;
  }
}

/* link_successors leaves the first successor of i at first[i + 1]. */
static int64_t successors_begin(const engine *e, int64_t id) {
  return e->first[id + 1];
}

static int64_t successors_end(const engine *e, int64_t id) {
  return id + 1 < e->list->count ? e->first[id + 2] : e->list->dep_count;
}

static bppsa_status link_lanes(engine *e) {
  const bppsa_schedule *list = e->list;
  int32_t *last = bppsa_alloc((size_t)(list->workers * BPPSA_LANE_COUNT) * sizeof *last);
  if (last == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < list->workers * BPPSA_LANE_COUNT; ++i) {
    last[i] = -1;
  }
  for (int64_t i = 0; i < list->groups; ++i) {
    e->member[i] = -1;
  }
  for (int64_t i = 0; i < list->count; ++i) {
    const bppsa_schedule_op *op = &list->ops[i];
    int32_t *previous = &last[(int64_t)op->worker * BPPSA_LANE_COUNT + op->lane];
    e->next[i] = e->beside[i] = -1;
    if (in_lane(e, op)) {
      if (*previous >= 0 &&
          (op->group < 0 || list->ops[*previous].group != op->group)) { /* members of one group in one lane wait as one */
        e->next[*previous] = (int32_t)i;
        e->waiting[i] += 1;
      }
      *previous = (int32_t)i;
    }
    if (op->group >= 0) {
      e->members[op->group] += 1;
      e->beside[i] = e->member[op->group];
      e->member[op->group] = (int32_t)i;
    }
  }
  bppsa_free(last);
  return BPPSA_OK;
}

/* Kernels are issued one after the other without waiting for the device: the k-th kernel of a worker starts no earlier than (k +
 * 1) overheads; a pre-compiled graph is issued once. (ooo-backprop, sections 2 and 4.2) */
static bppsa_status issue(engine *e) {
  const bppsa_schedule *list = e->list;
  const double overhead = e->free_links ? 0 : list->config.issue_overhead;
  int64_t *issued = bppsa_calloc(list->workers, sizeof *issued);
  if (issued == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < list->count; ++i) {
    const bppsa_schedule_op *op = &list->ops[i];
    if (bppsa_schedule_kind_busy(op->kind)) {
      issued[op->worker] = list->config.precompiled ? 1 : issued[op->worker] + 1;
      e->ready[i] = overhead * (double)issued[op->worker];
    }
  }
  bppsa_free(issued);
  return BPPSA_OK;
}

/* ---- events ---- */

static void put(engine *e, double time, int32_t id) {
  if (e->untimed) {
    e->queue.events[e->queue.count++] = (bppsa_event){.id = id};
  } else {
    bppsa_events_push(&e->queue, (bppsa_event){.time = time, .id = id});
  }
}

static void become_ready(engine *e, int32_t id) {
  const int32_t group = e->list->ops[id].group;
  if (group < 0) {
    put(e, e->ready[id], id);
    return;
  }
  e->together[group] = fmax(e->together[group], e->ready[id]);
  e->members[group] -= 1;
  if (e->members[group] == 0) {
    put(e, e->together[group], e->member[group]);
  }
}

static void release(engine *e, int32_t id, double time) {
  e->ready[id] = fmax(e->ready[id], time);
  e->waiting[id] -= 1;
  if (e->waiting[id] == 0) {
    become_ready(e, id);
  }
}

static void begin(engine *e, int32_t id, double time) {
  const bppsa_schedule_op *op = &e->list->ops[id];
  const double end = time + (e->free_links && is_transfer(op) ? 0 : op->cost);
  e->run->start[id] = time;
  e->run->end[id] = end;
  e->run->order[e->run->done++] = id;
  for (int64_t i = successors_begin(e, id); i < successors_end(e, id); ++i) {
    release(e, e->successor[i], end);
  }
  if (e->next[id] >= 0) {
    release(e, e->next[id], end);
  }
}

/* Starts the members of a group, the smallest id first: a SEND before its RECV. */
static void begin_group(engine *e, int32_t last, double time) {
  const bppsa_schedule_op *op = &e->list->ops[last];
  const bool network = e->list->config.contention == BPPSA_CONTENTION_NETWORK && !e->free_links &&
                       (is_transfer(op) || op->kind == BPPSA_KIND_SYNC);
  time = network ? fmax(time, e->network) : time;
  e->network = network ? time + op->cost : e->network;
  int32_t forward = -1;
  for (int32_t id = last; id >= 0;) { /* members are chained from the last to the first */
    const int32_t following = e->beside[id];
    e->beside[id] = forward;
    forward = id;
    id = following;
  }
  for (int32_t id = forward; id >= 0; id = e->beside[id]) {
    begin(e, id, time);
  }
}

static void loop(engine *e) {
  for (int32_t id = 0; id < e->list->count; ++id) {
    if (e->waiting[id] == 0) {
      become_ready(e, id);
    }
  }
  while (e->queue.count > e->taken) {
    const bppsa_event now = e->untimed ? e->queue.events[e->taken++] : bppsa_events_pop(&e->queue);
    if (e->list->ops[now.id].group < 0) {
      begin(e, now.id, now.time);
    } else {
      begin_group(e, now.id, now.time);
    }
  }
}

static bppsa_status prepare(engine *e) {
  const int64_t n = e->list->count, groups = e->list->groups;
  bppsa_schedule_run *run = e->run;
  const struct {
    void **array;
    int64_t count;
    size_t size;
  } arrays[] = {{(void **)&run->start, n, sizeof(double)},
                {(void **)&run->end, n, sizeof(double)},
                {(void **)&run->order, n, sizeof(int32_t)},
                {(void **)&e->first, n + 1, sizeof(int64_t)},
                {(void **)&e->successor, e->list->dep_count, sizeof(int32_t)},
                {(void **)&e->next, n, sizeof(int32_t)},
                {(void **)&e->waiting, n, sizeof(int32_t)},
                {(void **)&e->ready, n, sizeof(double)},
                {(void **)&e->members, groups, sizeof(int32_t)},
                {(void **)&e->together, groups, sizeof(double)},
                {(void **)&e->member, groups, sizeof(int32_t)},
                {(void **)&e->beside, n, sizeof(int32_t)}};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; ++i) {
    *arrays[i].array = bppsa_calloc(arrays[i].count, arrays[i].size);
    if (*arrays[i].array == NULL) {
      return BPPSA_ERR_MEMORY;
    }
  }
  BPPSA_TRY(bppsa_events_reserve(&e->queue, n));
  link_successors(e);
  BPPSA_TRY(link_lanes(e));
  return issue(e);
}

static bppsa_status run_lanes(engine *e) {
  const bppsa_status status = prepare(e);
  if (status == BPPSA_OK) {
    loop(e);
  } else {
    bppsa_schedule_run_free(e->run);
  }
  void *const arrays[] = {e->queue.events, e->first,   e->successor, e->next,   e->waiting,
                          e->ready,        e->members, e->together,  e->member, e->beside};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; ++i) {
    bppsa_free(arrays[i]);
  }
  return status;
}

bppsa_status bppsa_schedule_run_simulate(const bppsa_schedule *list, bool free_links, bppsa_schedule_run *run) {
  *run = (bppsa_schedule_run){.count = list->count};
  engine e = {.list = list, .run = run, .free_links = free_links};
  return run_lanes(&e);
}

bppsa_status bppsa_schedule_run_settle(const bppsa_schedule *list, bppsa_schedule_run *run) {
  *run = (bppsa_schedule_run){.count = list->count};
  engine e = {.list = list, .run = run, .untimed = true};
  return run_lanes(&e);
}

void bppsa_schedule_run_free(bppsa_schedule_run *run) {
  bppsa_free(run->start);
  bppsa_free(run->end);
  bppsa_free(run->order);
  *run = (bppsa_schedule_run){0};
}

/* Out-of-order back-propagation in pipelines: gradient fast-forwarding and modulo allocation. (ooo-backprop, section 5.2, figures
 * 5 and 13)
 *
 * A free worker takes, of the operations that are ready, the one with the highest priority. Fast-forwarding (figure 13) is the
 * priority F > I > W, modulo allocation I > F > W; of equals the earlier micro-batch comes first.
 */
#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

/* ---- list scheduling: no worker is idle while an operation is ready ---- */

typedef struct {
  const bppsa_schedule *list;
  bppsa_events ends;   /* the ends of running operations, by time */
  bppsa_events *ready; /* the operations that every worker could start, by priority */
  bool *running;       /* whether every worker runs an operation */
  int32_t *waiting;
  int64_t *first;
  int32_t *successor;
  int32_t *order;
  int64_t done;
  bppsa_schedule_priority priority;
} conserver;

static bppsa_status become_ready(conserver *c, int32_t id) {
  const bppsa_schedule_op *op = &c->list->ops[id];
  bppsa_events *ready = &c->ready[op->worker];
  BPPSA_TRY(bppsa_events_reserve(ready, ready->count + 1));
  bppsa_events_push(ready, (bppsa_event){.priority = c->priority(c->list, op), .id = id});
  return BPPSA_OK;
}

static void start_next(conserver *c, int32_t worker, double now) {
  if (c->running[worker] || c->ready[worker].count == 0) {
    return;
  }
  const int32_t id = bppsa_events_pop(&c->ready[worker]).id;
  c->running[worker] = true;
  c->order[c->done++] = id;
  /* a worker runs one operation, so there is room */
  bppsa_events_push(&c->ends, (bppsa_event){.time = now + c->list->ops[id].cost, .id = id});
}

/* Ends all operations that end at this time, before any operation starts at it. */
static bppsa_status end_together(conserver *c, double now, int32_t *freed, int64_t *count) {
  *count = 0;
  while (c->ends.count > 0 && c->ends.events[0].time <= now) {
    const int32_t id = bppsa_events_pop(&c->ends).id;
    c->running[c->list->ops[id].worker] = false;
    freed[(*count)++] = c->list->ops[id].worker;
    for (int64_t i = c->first[id]; i < c->first[id + 1]; ++i) {
      const int32_t next = c->successor[i];
      c->waiting[next] -= 1;
      if (c->waiting[next] == 0) {
        BPPSA_TRY(become_ready(c, next));
        freed[(*count)++] = c->list->ops[next].worker;
      }
    }
  }
  return BPPSA_OK;
}

static bppsa_status conserve(conserver *c, int32_t *freed) {
  for (int32_t id = 0; id < c->list->count; ++id) {
    if (c->waiting[id] == 0) {
      BPPSA_TRY(become_ready(c, id));
    }
  }
  for (int32_t worker = 0; worker < c->list->workers; ++worker) {
    start_next(c, worker, 0);
  }
  while (c->ends.count > 0) {
    const double now = c->ends.events[0].time;
    int64_t count = 0;
    BPPSA_TRY(end_together(c, now, freed, &count));
    for (int64_t i = 0; i < count; ++i) {
      start_next(c, freed[i], now);
    }
  }
  return BPPSA_OK;
}

static void link_all(conserver *c) {
  const bppsa_schedule *list = c->list;
  for (int64_t i = 0; i < list->dep_count; ++i) {
    c->first[list->deps[i] + 1] += 1;
  }
  for (int64_t i = 0; i < list->count; ++i) {
    c->first[i + 1] += c->first[i];
    c->waiting[i] = list->ops[i].dep_count;
  }
  for (int64_t i = list->count - 1; i >= 0; --i) { /* moves first[i + 1] from the end of i's successors to their beginning */
    for (int32_t k = 0; k < list->ops[i].dep_count; ++k) {
      const int32_t dep = list->deps[list->ops[i].deps + k];
      c->successor[--c->first[dep + 1]] = (int32_t)i;
    }
  }
  for (int64_t i = 0; i < list->count; ++i) { /* the beginning of i's successors is still at i + 1 */
    c->first[i] = c->first[i + 1];
  }
  c->first[list->count] = list->dep_count;
}

/* Puts the list into the new order. All its operations are in the compute lane. */
static bppsa_status reorder(bppsa_schedule *list, const int32_t *order) {
  bppsa_schedule_op *ops = bppsa_alloc((size_t)list->count * sizeof *ops);
  if (ops == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < list->count; ++i) {
    ops[i] = list->ops[order[i]];
    ops[i].deps = 0;
    ops[i].dep_count = 0;
  }
  bppsa_free(list->ops);
  list->ops = ops;
  list->room = list->count;
  list->dep_count = 0;
  return BPPSA_OK;
}

bppsa_status bppsa_schedule_prioritise(bppsa_schedule *list, bppsa_schedule_priority priority) {
  const int64_t n = list->count;
  conserver c = {.list = list, .priority = priority};
  c.ready = bppsa_calloc(list->workers, sizeof *c.ready);
  c.running = bppsa_calloc(list->workers, sizeof *c.running);
  c.waiting = bppsa_calloc(n, sizeof *c.waiting);
  c.first = bppsa_calloc(n + 1, sizeof *c.first);
  c.successor = bppsa_calloc(list->dep_count, sizeof *c.successor);
  c.order = bppsa_calloc(n, sizeof *c.order);
  int32_t *freed = bppsa_calloc(2 * n, sizeof *freed);
  const bool room = c.ready != NULL && c.running != NULL && c.waiting != NULL && c.first != NULL && c.successor != NULL &&
                    c.order != NULL && freed != NULL;
  bppsa_status status = room ? bppsa_events_reserve(&c.ends, list->workers) : BPPSA_ERR_MEMORY;
  if (status == BPPSA_OK) {
    link_all(&c);
    status = conserve(&c, freed);
  }
  if (status == BPPSA_OK && c.done < n) {
    status =
        bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule: %lld operations wait for each other, expected none", (long long)(n - c.done));
  }
  status = status == BPPSA_OK ? reorder(list, c.order) : status;
  for (int64_t worker = 0; c.ready != NULL && worker < list->workers; ++worker) {
    bppsa_free(c.ready[worker].events);
  }
  void *const arrays[] = {c.ready, c.running, c.waiting, c.first, c.successor, c.order, freed, c.ends.events};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; ++i) {
    bppsa_free(arrays[i]);
  }
  return status;
}

/* ---- the two schemes ---- */

/* Orders by kind, then round, then micro-batch; among equals the data flow decides. */
static int64_t rank(const bppsa_schedule *list, const bppsa_schedule_op *op, int64_t kind) {
  return kind * (list->micros + 1) + (op->micro >= 0 ? op->micro : list->micros);
}

static int64_t forward_first(const bppsa_schedule *list, const bppsa_schedule_op *op) {
  static const int64_t order[BPPSA_KIND_COUNT] = {[BPPSA_KIND_I] = 1, [BPPSA_KIND_W] = 2, [BPPSA_KIND_STEP] = 3};
  return rank(list, op, order[op->kind]);
}

static int64_t gradient_first(const bppsa_schedule *list, const bppsa_schedule_op *op) {
  static const int64_t order[BPPSA_KIND_COUNT] = {[BPPSA_KIND_F] = 1, [BPPSA_KIND_W] = 2, [BPPSA_KIND_STEP] = 3};
  return rank(list, op, order[op->kind]);
}

/* Writes all operations in the order of the data flow; the list scheduler then orders them. */
static bppsa_status write_passes(bppsa_schedule *list, bppsa_schedule_priority priority) {
  bppsa_writer w;
  BPPSA_TRY(bppsa_writer_start(list, &w));
  for (int64_t replica = 0; replica < list->replicas; ++replica) {
    for (int64_t round = 0; round < list->rounds; ++round) {
      for (int64_t stage = 0; stage < list->stages; ++stage) {
        for (int64_t m = 0; m < list->config.micro_batches; ++m) {
          bppsa_writer_forward(&w, replica, stage, bppsa_schedule_micro(list, replica, round, m), 1);
        }
        for (int64_t m = 0; m < list->config.micro_batches && round < list->config.iterations; ++m) {
          const int64_t micro = bppsa_schedule_micro(list, replica, round, m);
          bppsa_writer_gradient(&w, BPPSA_KIND_I, replica, stage, micro);
          bppsa_writer_gradient(&w, BPPSA_KIND_W, replica, stage, micro);
        }
        if (round < list->config.iterations) {
          bppsa_writer_sync(&w, replica, stage, BPPSA_LANE_SYNC);
          bppsa_writer_step(&w, replica, stage);
        }
      }
    }
  }
  BPPSA_TRY(bppsa_writer_finish(&w));
  BPPSA_TRY(bppsa_schedule_derive(list));
  return bppsa_schedule_prioritise(list, priority);
}

bppsa_status bppsa_schedule_fast_forward(bppsa_schedule *list) {
  return write_passes(list, forward_first);
}

bppsa_status bppsa_schedule_modulo(bppsa_schedule *list) {
  return write_passes(list, gradient_first);
}

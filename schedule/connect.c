/* Completes a list that has every worker's operations in order: adds the dependencies, a SEND and a RECV for each tensor that
 * goes to another worker, and groups. The whole list is in an order in which it can run, so no lane waits for an operation behind
 * it.
 *
 * The order comes from a simulation in which messages take no time: operations are sorted by the time at which they start in
 * the simulation; a SEND, followed by its RECV, by the time at which its tensor is ready. So tensors are sent and received in the
 * order in which they are ready.
 */
#include <inttypes.h>
#include <string.h>

#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

/* A transfer of a tensor. */
typedef struct {
  int32_t to;   /* the worker that receives it */
  int32_t recv; /* id of its RECV in the new list */
} transfer;

typedef struct {
  const bppsa_schedule *from;
  bppsa_schedule *list;   /* the new list */
  bppsa_schedule_run run; /* a simulation of the old list, with all operations in its order */
  int32_t *place;         /* the new id of each old operation */
  bppsa_events ready;     /* results to be sent, by the time at which they are ready */
  int32_t *leaving;       /* transfers of operation i's result: leaving[i] .. leaving[i + 1] - 1; size count + 1 */
  transfer *transfers;    /* size count */
  int32_t *by;            /* the transfer that brings each dependency, or -1: none is needed on the same worker; size dep_count */
  int64_t count, room;
  int64_t places;
  int64_t most_ops; /* the most operations that the new list may have */
} connector;

/* ---- transfers ---- */

/* For each operation a chain of the dependencies on it, the first reader first: head[operation], then next[dependency].
 * latest[worker]: the latest transfer to the worker so far. */
typedef struct {
  int32_t *head, *next, *latest;
} readers;

static bppsa_status chain_readers(const connector *c, readers *r) {
  const bppsa_schedule *from = c->from;
  r->head = bppsa_alloc((size_t)from->count * sizeof *r->head);
  r->next = bppsa_alloc((size_t)from->dep_count * sizeof *r->next);
  r->latest = bppsa_alloc((size_t)from->workers * sizeof *r->latest);
  if (r->head == NULL || r->next == NULL || r->latest == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memset(r->head, 0xff, (size_t)from->count * sizeof *r->head); /* -1 */
  memset(r->latest, 0xff, (size_t)from->workers * sizeof *r->latest);
  for (int64_t id = from->count - 1; id >= 0; --id) {
    const bppsa_schedule_op *op = &from->ops[id];
    for (int64_t k = op->deps + op->dep_count - 1; k >= op->deps; --k) {
      r->next[k] = r->head[from->deps[k]];
      r->head[from->deps[k]] = (int32_t)k;
      c->by[k] = op->worker; /* the reader's worker, until its transfer is known */
    }
  }
  return BPPSA_OK;
}

static bppsa_status add_transfer(connector *c, int32_t to) {
  if (c->from->count + 2 * (c->count + 1) > c->most_ops) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "more than %" PRId64 " operations, with a SEND and a RECV for each tensor that goes to another worker, "
                      "expected fewer",
                      c->most_ops);
  }
  BPPSA_TRY(bppsa_grow(&c->transfers, c->count, &c->room, sizeof *c->transfers));
  c->transfers[c->count++] = (transfer){.to = to, .recv = -1};
  return BPPSA_OK;
}

/* Adds one transfer of a result for each other worker that reads it, in the order of the first reads. */
static bppsa_status add_transfers(connector *c, const readers *r) {
  for (int64_t id = 0; id < c->from->count; ++id) {
    c->leaving[id] = (int32_t)c->count;
    for (int32_t k = r->head[id]; k >= 0; k = r->next[k]) {
      int32_t *latest = &r->latest[c->by[k]];
      if (c->by[k] == c->from->ops[id].worker) {
        c->by[k] = -1;
        continue;
      }
      if (*latest < c->leaving[id]) { /* this worker's latest transfer is of another result */
        *latest = (int32_t)c->count;
        BPPSA_TRY(add_transfer(c, c->by[k]));
      }
      c->by[k] = *latest;
    }
  }
  c->leaving[c->from->count] = (int32_t)c->count;
  return BPPSA_OK;
}

/* Finds all transfers. O(operations + dependencies). */
static bppsa_status find_transfers(connector *c) {
  readers r = {0};
  c->by = bppsa_alloc((size_t)c->from->dep_count * sizeof *c->by);
  bppsa_status status = c->by != NULL ? chain_readers(c, &r) : BPPSA_ERR_MEMORY;
  status = status == BPPSA_OK ? add_transfers(c, &r) : status;
  bppsa_free(r.head);
  bppsa_free(r.next);
  bppsa_free(r.latest);
  return status;
}

/* ---- the new list ---- */

/* Calls `add` in the new order, once for each operation and, if its result leaves the worker, once for the transfers (leaves =
 * true). */
static bppsa_status in_order(connector *c, bppsa_status (*add)(connector *c, int32_t old, bool leaves)) {
  c->ready.count = 0;
  for (int64_t i = 0; i < c->run.count; ++i) {
    const int32_t old = c->run.order[i];
    while (c->ready.count > 0 && (i >= c->run.done || c->ready.events[0].time <= c->run.start[old])) {
      BPPSA_TRY(add(c, bppsa_events_pop(&c->ready).id, true));
    }
    BPPSA_TRY(add(c, old, false));
    if (c->leaving[old] < c->leaving[old + 1]) {
      bppsa_events_push(&c->ready, (bppsa_event){.time = c->run.end[old], .priority = i, .id = old});
    }
  }
  while (c->ready.count > 0) {
    BPPSA_TRY(add(c, bppsa_events_pop(&c->ready).id, true));
  }
  return BPPSA_OK;
}

/* Assigns the new ids of an old operation or of its transfers. */
static bppsa_status assign_place(connector *c, int32_t old, bool leaves) {
  if (!leaves) {
    c->place[old] = (int32_t)c->places++;
    return BPPSA_OK;
  }
  for (int32_t at = c->leaving[old]; at < c->leaving[old + 1]; ++at) {
    c->transfers[at].recv = (int32_t)(c->places + 1);
    c->places += 2;
  }
  return BPPSA_OK;
}

/* Returns alpha + beta L. L counts the words of the activations behind the operation's last layer, or of the gradient in front of
 * its first layer. A product of a scan has `message` words. */
static double link_cost(const bppsa_schedule *list, const bppsa_schedule_op *op) {
  const bppsa_schedule_config *c = &list->config;
  const bool gradient = op->kind == BPPSA_KIND_I || op->kind == BPPSA_KIND_B;
  const int64_t layer = gradient ? op->layer - 1 : op->layer + op->layers - 1;
  const double share = list->scheme->scan ? 1 : (double)op->micros * (op->part >= 0 ? 0.5 : 1);
  return c->alpha + c->beta * share * bppsa_schedule_cost_of(c, BPPSA_COST_MESSAGE, list->scheme->scan || layer < 0 ? 0 : layer);
}

static bppsa_status append_transfer(connector *c, int32_t old, const transfer *t) {
  bppsa_schedule_op op = c->from->ops[old];
  op.cost = link_cost(c->list, &op);
  op.memory_delta = 0;
  op.weight_delta = 0;
  op.group = (int32_t)c->list->groups++;
  op.kind = BPPSA_KIND_SEND;
  op.lane = BPPSA_LANE_SEND;
  op.deps = c->list->dep_count;
  op.dep_count = 0;
  const int64_t send = c->list->count;
  BPPSA_TRY(bppsa_schedule_append(c->list, &op));
  BPPSA_TRY(bppsa_schedule_add_dep(c->list, send, c->place[old]));
  op.kind = BPPSA_KIND_RECV;
  op.lane = BPPSA_LANE_RECEIVE;
  op.worker = t->to;
  op.deps = c->list->dep_count;
  return bppsa_schedule_append(c->list, &op);
}

static bppsa_status append_place(connector *c, int32_t old, bool leaves) {
  if (leaves) {
    for (int32_t at = c->leaving[old]; at < c->leaving[old + 1]; ++at) {
      BPPSA_TRY(append_transfer(c, old, &c->transfers[at]));
    }
    return BPPSA_OK;
  }
  bppsa_schedule_op op = c->from->ops[old];
  const int64_t deps = op.deps, id = c->list->count;
  op.deps = c->list->dep_count;
  op.dep_count = 0;
  BPPSA_TRY(bppsa_schedule_append(c->list, &op));
  for (int32_t k = 0; k < c->from->ops[old].dep_count; ++k) {
    const int32_t by = c->by[deps + k];
    BPPSA_TRY(bppsa_schedule_add_dep(c->list, id, by < 0 ? c->place[c->from->deps[deps + k]] : c->transfers[by].recv));
  }
  return BPPSA_OK;
}

/* Tables that tell the group of the next SYNC. */
typedef struct {
  int32_t *latest; /* the group of the latest SYNC of [replica][layer], or -1 */
  int32_t *first;  /* the group of the first SYNC of each layer, or -1 */
  int32_t *next;   /* the group that follows each group in its layer, or -1 */
} sync_groups;

static bppsa_status start_groups(const bppsa_schedule *list, sync_groups *g) {
  const int64_t layers = list->config.layers, held = list->replicas * layers;
  int64_t syncs = 0;
  for (int64_t i = 0; i < list->count; ++i) {
    syncs += list->ops[i].kind == BPPSA_KIND_SYNC;
  }
  g->latest = bppsa_alloc((size_t)held * sizeof *g->latest);
  g->first = bppsa_alloc((size_t)layers * sizeof *g->first);
  g->next = bppsa_alloc((size_t)syncs * sizeof *g->next);
  if (g->latest == NULL || g->first == NULL || g->next == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memset(g->latest, 0xff, (size_t)held * sizeof *g->latest); /* -1 */
  memset(g->first, 0xff, (size_t)layers * sizeof *g->first);
  memset(g->next, 0xff, (size_t)syncs * sizeof *g->next);
  return BPPSA_OK;
}

/* Makes the k-th SYNC of a layer begin on all replicas together. The groups of a layer form a chain; with each SYNC a replica moves
 * on by one group. */
static bppsa_status group_syncs(bppsa_schedule *list) {
  sync_groups g = {0};
  const bppsa_status status = start_groups(list, &g);
  for (int64_t i = 0, made = list->groups; i < list->count && status == BPPSA_OK; ++i) {
    bppsa_schedule_op *op = &list->ops[i];
    if (op->kind == BPPSA_KIND_SYNC) {
      int32_t *latest = &g.latest[op->replica * list->config.layers + op->layer];
      int32_t *group = *latest < 0 ? &g.first[op->layer] : &g.next[*latest - made];
      *group = *group < 0 ? (int32_t)list->groups++ : *group;
      *latest = op->group = *group;
    }
  }
  bppsa_free(g.latest);
  bppsa_free(g.first);
  bppsa_free(g.next);
  return status;
}

bppsa_status bppsa_schedule_pair(const bppsa_schedule *list, const bool *counts, int32_t **send, int32_t **recv) {
  BPPSA_REQUIRE(list != NULL && send != NULL && recv != NULL);
  const size_t bytes = (size_t)list->groups * sizeof **send;
  int32_t *sends = bppsa_alloc(bytes), *recvs = bppsa_alloc(bytes);
  if (sends == NULL || recvs == NULL) {
    bppsa_free(sends);
    bppsa_free(recvs);
    return BPPSA_ERR_MEMORY;
  }
  memset(sends, 0xff, bytes); /* -1 */
  memset(recvs, 0xff, bytes);
  for (int64_t id = list->count - 1; id >= 0; --id) {
    const bppsa_schedule_op *op = &list->ops[id];
    if ((counts == NULL || counts[id]) && op->group >= 0) {
      (op->kind == BPPSA_KIND_RECV ? recvs : sends)[op->group] = (int32_t)id;
    }
  }
  *send = sends;
  *recv = recvs;
  return BPPSA_OK;
}

/* ---- the steps ---- */

/* Makes room for the whole order, and puts operations that wait for each other behind the rest. */
static bppsa_status complete_order(connector *c) {
  const int64_t count = c->run.count;
  c->place = bppsa_alloc((size_t)count * sizeof *c->place);
  c->leaving = bppsa_alloc((size_t)(count + 1) * sizeof *c->leaving);
  if (c->place == NULL || c->leaving == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memset(c->place, 0xff, (size_t)count * sizeof *c->place); /* -1 */
  for (int64_t i = 0; i < c->run.done; ++i) {
    c->place[c->run.order[i]] = 0;
  }
  for (int32_t id = 0, at = (int32_t)c->run.done; id < count; ++id) {
    if (c->place[id] < 0) {
      c->run.order[at++] = id;
    }
  }
  return bppsa_events_reserve(&c->ready, count);
}

/* Allocates the new list, whose size is now known. */
static bppsa_status reserve(connector *c) {
  bppsa_schedule *list = c->list;
  list->room = c->from->count + 2 * c->count;
  list->dep_room = c->from->dep_count + c->count;
  list->ops = bppsa_alloc((size_t)list->room * sizeof *list->ops);
  list->deps = bppsa_alloc((size_t)list->dep_room * sizeof *list->deps);
  return list->ops != NULL && list->deps != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

static bppsa_status rewrite(connector *c) {
  BPPSA_TRY(bppsa_schedule_run_simulate(c->from, true, &c->run));
  BPPSA_TRY(complete_order(c));
  BPPSA_TRY(find_transfers(c));
  BPPSA_TRY(reserve(c));
  BPPSA_TRY(in_order(c, assign_place));
  return in_order(c, append_place);
}

bppsa_status bppsa_schedule_connect(bppsa_schedule *list) {
  BPPSA_REQUIRE(list != NULL);
  return bppsa_schedule_connect_within(list, INT32_MAX, INT32_MAX);
}

bppsa_status bppsa_schedule_connect_within(bppsa_schedule *list, int64_t most_ops, int64_t most_deps) {
  for (int64_t i = 0; i < list->count; ++i) {
    bppsa_schedule_price(list, &list->ops[i]);
  }
  BPPSA_TRY(bppsa_schedule_derive(list));
  if (list->dep_count > most_deps) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "%" PRId64 " dependencies between operations, expected at most %" PRId64
                      " (updates of whole stages make fewer than those of single layers)",
                      list->dep_count, most_deps);
  }
  BPPSA_TRY(group_syncs(list));
  bppsa_schedule made = *list;
  made.ops = NULL;
  made.deps = NULL;
  made.count = made.room = made.dep_count = made.dep_room = 0;
  connector c = {.from = list, .list = &made, .most_ops = most_ops};
  const bppsa_status status = rewrite(&c);
  bppsa_schedule_run_free(&c.run);
  bppsa_free(c.ready.events);
  bppsa_free(c.place);
  bppsa_free(c.leaving);
  bppsa_free(c.transfers);
  bppsa_free(c.by);
  if (status != BPPSA_OK) {
    bppsa_free(made.ops);
    bppsa_free(made.deps);
    return status;
  }
  bppsa_free(list->ops);
  bppsa_free(list->deps);
  *list = made;
  return BPPSA_OK;
}

/* Completes a list that has every worker's operations in order: adds the dependencies, a SEND and a RECV for each tensor that
 * goes to another worker, and groups. The whole list is in an order in which it can run, so no lane waits for an operation behind
 * it.
 *
 * The order comes from a simulation in which messages take no time: operations are sorted by the time at which they start in
 * the simulation; a SEND, followed by its RECV, by the time at which its tensor is ready. So tensors are sent and received in the
 * order in which they are ready.
 */
#include <string.h>

#include "core/alloc.h"
#include "schedule/schedule_internal.h"

/* A transfer of a tensor. */
typedef struct {
  int32_t to;   /* worker */
  int32_t recv; /* id in the new list */
  int32_t next; /* the next transfer of the same operation's result, or -1 */
} transfer;

typedef struct {
  const bppsa_schedule *from;
  bppsa_schedule *list;   /* the new list */
  bppsa_schedule_run run; /* a simulation of the old list, whose order is complete */
  int32_t *place;         /* the new id of each old operation */
  bppsa_events ready;     /* results to be sent, by the time at which they are ready */
  int32_t *leaving;       /* the first transfer of each old operation's result, or -1 */
  transfer *transfers;    /* size count */
  int64_t count, room;
  int64_t places;
} connector;

/* ---- transfers ---- */

static int32_t find_transfer(const connector *c, int32_t op, int32_t to) {
  int32_t at = c->leaving[op];
  while (at >= 0 && c->transfers[at].to != to) {
    at = c->transfers[at].next;
  }
  return at;
}

static bppsa_status add_transfer(connector *c, int32_t op, int32_t to) {
  if (find_transfer(c, op, to) >= 0) {
    return BPPSA_OK;
  }
  if (c->count == c->room) {
    const int64_t room = c->room < 64 ? 64 : 2 * c->room;
    transfer *grown = bppsa_realloc(c->transfers, (size_t)room * sizeof *grown);
    if (grown == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    c->transfers = grown;
    c->room = room;
  }
  c->transfers[c->count] = (transfer){.to = to, .recv = -1, .next = -1};
  int32_t *end = &c->leaving[op]; /* these chains are short: a result goes to few workers */
  while (*end >= 0) {
    end = &c->transfers[*end].next;
  }
  *end = (int32_t)c->count++;
  return BPPSA_OK;
}

static bppsa_status find_transfers(connector *c) {
  for (int64_t i = 0; i < c->from->count; ++i) { /* the first reader is sent to first */
    const bppsa_schedule_op *op = &c->from->ops[i];
    for (int32_t k = 0; k < op->dep_count; ++k) {
      const int32_t dep = c->from->deps[op->deps + k];
      if (c->from->ops[dep].worker != op->worker) {
        BPPSA_TRY(add_transfer(c, dep, op->worker));
      }
    }
  }
  return BPPSA_OK;
}

/* ---- the new list ---- */

/* Calls `add` for everything in the new order: operations, and the transfers of an operation's result (leaves = true). */
static bppsa_status in_order(connector *c, bppsa_status (*add)(connector *c, int32_t old, bool leaves)) {
  c->ready.count = 0;
  for (int64_t i = 0; i < c->run.count; ++i) {
    const int32_t old = c->run.order[i];
    while (c->ready.count > 0 && (i >= c->run.done || c->ready.events[0].time <= c->run.start[old])) {
      BPPSA_TRY(add(c, bppsa_events_pop(&c->ready).id, true));
    }
    BPPSA_TRY(add(c, old, false));
    if (c->leaving[old] >= 0) {
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
  for (int32_t at = c->leaving[old]; at >= 0; at = c->transfers[at].next) {
    c->transfers[at].recv = (int32_t)(c->places + 1);
    c->places += 2;
  }
  return BPPSA_OK;
}

/* alpha + beta L, where L are the words of the activations behind the operation's last layer, or of the gradient in front of its
 * first. Products of a scan are `message` words each. */
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
    for (int32_t at = c->leaving[old]; at >= 0; at = c->transfers[at].next) {
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
    const int32_t dep = c->from->deps[deps + k];
    const bool here = c->from->ops[dep].worker == op.worker;
    BPPSA_TRY(bppsa_schedule_add_dep(c->list, id, here ? c->place[dep] : c->transfers[find_transfer(c, dep, op.worker)].recv));
  }
  return BPPSA_OK;
}

/* Makes the k-th SYNC of a layer begin on all replicas together. */
static bppsa_status group_syncs(bppsa_schedule *list) {
  const int64_t layers = list->config.layers, held = list->replicas * layers;
  int64_t most = 0;
  int32_t *seen = bppsa_calloc(held, sizeof *seen), *group = NULL;
  bppsa_status status = seen == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t i = 0; i < list->count && status == BPPSA_OK; ++i) {
    bppsa_schedule_op *op = &list->ops[i];
    if (op->kind == BPPSA_KIND_SYNC) {
      op->group = seen[op->replica * layers + op->layer]++; /* k */
      most = op->group >= most ? op->group + 1 : most;
    }
  }
  if (status == BPPSA_OK) {
    group = bppsa_calloc(most * layers, sizeof *group); /* 1 + the group of [k][layer] */
    status = group == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  }
  for (int64_t i = 0; i < list->count && status == BPPSA_OK; ++i) {
    bppsa_schedule_op *op = &list->ops[i];
    if (op->kind == BPPSA_KIND_SYNC) {
      int32_t *of = &group[op->group * layers + op->layer];
      *of = *of > 0 ? *of : (int32_t)++list->groups;
      op->group = *of - 1;
    }
  }
  bppsa_free(seen);
  bppsa_free(group);
  return status;
}

/* ---- the steps ---- */

/* Makes room for the whole order, and puts operations that wait for each other behind the rest. */
static bppsa_status complete_order(connector *c) {
  const int64_t count = c->run.count;
  c->place = bppsa_alloc((size_t)count * sizeof *c->place);
  c->leaving = bppsa_alloc((size_t)count * sizeof *c->leaving);
  if (c->place == NULL || c->leaving == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memset(c->place, 0xff, (size_t)count * sizeof *c->place); /* -1 */
  memset(c->leaving, 0xff, (size_t)count * sizeof *c->leaving);
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

static bppsa_status rewrite(connector *c) {
  BPPSA_TRY(bppsa_schedule_run_simulate(c->from, true, &c->run));
  BPPSA_TRY(complete_order(c));
  BPPSA_TRY(find_transfers(c));
  BPPSA_TRY(in_order(c, assign_place));
  return in_order(c, append_place);
}

bppsa_status bppsa_schedule_connect(bppsa_schedule *list) {
  BPPSA_REQUIRE(list != NULL);
  for (int64_t i = 0; i < list->count; ++i) {
    bppsa_schedule_price(list, &list->ops[i]);
  }
  BPPSA_TRY(bppsa_schedule_derive(list));
  BPPSA_TRY(group_syncs(list));
  bppsa_schedule made = *list;
  made.ops = NULL;
  made.deps = NULL;
  made.count = made.room = made.dep_count = made.dep_room = 0;
  connector c = {.from = list, .list = &made};
  const bppsa_status status = rewrite(&c);
  bppsa_schedule_run_free(&c.run);
  bppsa_free(c.ready.events);
  bppsa_free(c.place);
  bppsa_free(c.leaving);
  bppsa_free(c.transfers);
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

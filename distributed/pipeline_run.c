/* The executor of schedules: running. One thread goes round the lanes of its workers and does what can be done: communication goes
 * on between two passes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/memory.h"
#include "distributed/pipeline_internal.h"

/* ---- passes ---- */

static bppsa_status fail_at(const bppsa_pipeline *p, int64_t id, const char *what) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule %s: operation %" PRId64 ", %s of micro-batch %d at layer %d: %s",
                    p->list->scheme->id, id, bppsa_schedule_kind_name(op->kind), op->micro, op->layer, what);
}

static void *array_of(const bppsa_pipeline *p, const pipeline_worker *w, pipeline_array array, int64_t micro, int64_t layer) {
  return pipeline_data_of(pipeline_slot_of(p, w, array, micro, layer));
}

/* The micro-batch, with its update counted over all runs. */
static bppsa_pipeline_micro micro_of(const bppsa_pipeline *p, int64_t micro) {
  bppsa_pipeline_micro m = p->micro[micro];
  m.update += p->runs * p->updates;
  return m;
}

static bppsa_status load_input(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro) {
  const bppsa_pipeline_micro m = micro_of(p, micro);
  BPPSA_TRY(bppsa_pipeline_take(p, w, id, PIPELINE_VALUES, micro, 0));
  const bppsa_view x = pipeline_view_of(p, array_of(p, w, PIPELINE_VALUES, micro, 0), p->chain->dtype, 2,
                                        (int64_t[]){p->samples, p->chain->layer[0].in});
  return p->data->input(p->data->context, &m, &x);
}

static bppsa_status make_seed(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro) {
  const bppsa_pipeline_micro m = micro_of(p, micro);
  const int64_t shape[] = {p->samples, p->chain->layer[p->layers - 1].out};
  BPPSA_TRY(bppsa_pipeline_take(p, w, id, PIPELINE_GRADIENTS, micro, p->layers));
  const bppsa_view logits = pipeline_view_of(p, array_of(p, w, PIPELINE_VALUES, micro, p->layers), p->chain->dtype, 2, shape);
  const bppsa_view seed = pipeline_view_of(p, array_of(p, w, PIPELINE_GRADIENTS, micro, p->layers), p->chain->dtype, 2, shape);
  const bppsa_status status = p->data->loss(p->data->context, &m, &logits, &seed, &p->losses[micro]);
  bppsa_pipeline_release(p, w, PIPELINE_GRADIENTS, micro, p->layers);
  return status;
}

static bppsa_status forward_layer(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro, int64_t layer) {
  void *weights[PIPELINE_MOST_PARAMETERS];
  const void *x = array_of(p, w, PIPELINE_VALUES, micro, layer);
  if (x == NULL) {
    return fail_at(p, id, "its input is not there");
  }
  BPPSA_TRY(bppsa_pipeline_take(p, w, id, PIPELINE_KEPT, micro, layer));
  BPPSA_TRY(bppsa_pipeline_take(p, w, id, PIPELINE_VALUES, micro, layer + 1));
  BPPSA_TRY(bppsa_pipeline_weights(p, id, layer, weights));
  return p->chain->ops->forward(p->chain, layer, p->samples, weights, x, array_of(p, w, PIPELINE_KEPT, micro, layer),
                                array_of(p, w, PIPELINE_VALUES, micro, layer + 1));
}

/* F, or RECOMPUTE, which calculates no loss. */
static bppsa_status forward(bppsa_pipeline *p, pipeline_worker *w, int64_t id) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  const pipeline_span span = pipeline_span_of(p, op);
  const int64_t end = op->layer + op->layers;
  for (int64_t micro = span.first; micro < span.end; ++micro) {
    const bool load = op->layer == 0 && op->kind == BPPSA_KIND_F;
    if (load) {
      BPPSA_TRY(load_input(p, w, id, micro));
    }
    for (int64_t layer = op->layer; layer < end; ++layer) {
      BPPSA_TRY(forward_layer(p, w, id, micro, layer));
    }
    if (end == p->layers && op->kind == BPPSA_KIND_F) {
      BPPSA_TRY(make_seed(p, w, id, micro));
    }
    if (load) {
      bppsa_pipeline_release(p, w, PIPELINE_VALUES, micro, 0);
    }
    for (int64_t layer = op->layer; layer < end; ++layer) {
      bppsa_pipeline_release(p, w, PIPELINE_KEPT, micro, layer);
      bppsa_pipeline_release(p, w, PIPELINE_VALUES, micro, layer + 1);
    }
  }
  return BPPSA_OK;
}

/* The arrays of a layer's backward pass. */
typedef struct {
  void *weights[PIPELINE_MOST_PARAMETERS], *gradients[PIPELINE_MOST_PARAMETERS];
  const void *dy, *x, *y, *kept;
  void *dx;
} backward_arrays;

/* The passes of one layer: its weight gradient, its input gradient, or both. */
static bppsa_status backward_layer(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro, int64_t layer, bool weights,
                                   bool input) {
  const bppsa_chain_ops *ops = p->chain->ops;
  const int64_t samples = p->samples;
  backward_arrays a = {.dy = array_of(p, w, PIPELINE_GRADIENTS, micro, layer + 1),
                       .x = array_of(p, w, PIPELINE_VALUES, micro, layer),
                       .y = array_of(p, w, PIPELINE_VALUES, micro, layer + 1),
                       .kept = array_of(p, w, PIPELINE_KEPT, micro, layer)};
  if (input) {
    BPPSA_TRY(bppsa_pipeline_take(p, w, id, PIPELINE_GRADIENTS, micro, layer));
    a.dx = array_of(p, w, PIPELINE_GRADIENTS, micro, layer);
  }
  if (weights || input) {
    BPPSA_TRY(bppsa_pipeline_weights(p, id, layer, a.weights));
  }
  if (weights) {
    bppsa_pipeline_gradient(p, layer, a.gradients);
  }
  if (weights && p->chain->ops->backward != NULL) {
    BPPSA_TRY(ops->backward(p->chain, layer, samples, a.weights, a.dy, a.x, a.y, a.kept, a.gradients, a.dx));
    return bppsa_pipeline_sum_add(p, micro, layer);
  }
  if (weights) {
    BPPSA_TRY(ops->weight_gradient(p->chain, layer, samples, a.weights, a.dy, a.x, a.y, a.kept, a.gradients));
    BPPSA_TRY(bppsa_pipeline_sum_add(p, micro, layer));
  }
  return input ? ops->input_gradient(p->chain, layer, samples, a.weights, a.dy, a.x, a.y, a.kept, a.dx) : BPPSA_OK;
}

static bppsa_status backward_micro(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  const bool inputs = op->kind != BPPSA_KIND_W, weights = op->kind != BPPSA_KIND_I;
  for (int64_t layer = op->layer + op->layers - 1; layer >= op->layer; --layer) {
    if (array_of(p, w, PIPELINE_GRADIENTS, micro, layer + 1) == NULL ||
        array_of(p, w, PIPELINE_VALUES, micro, layer + 1) == NULL) {
      return fail_at(p, id, "a gradient or an activation is not there");
    }
    BPPSA_TRY(backward_layer(p, w, id, micro, layer, weights && p->chain->layer[layer].parameters > 0,
                             inputs && !(layer == 0 && p->list->config.skip_first_input_grad)));
  }
  for (int64_t layer = op->layer; inputs && layer < op->layer + op->layers; ++layer) {
    bppsa_pipeline_release(p, w, PIPELINE_GRADIENTS, micro, layer);
  }
  return BPPSA_OK;
}

/* I, W, or B, which is both. */
static bppsa_status backward(bppsa_pipeline *p, pipeline_worker *w, int64_t id) {
  const pipeline_span span = pipeline_span_of(p, &p->list->ops[id]);
  for (int64_t micro = span.first; micro < span.end; ++micro) {
    BPPSA_TRY(backward_micro(p, w, id, micro));
  }
  return BPPSA_OK;
}

/* ---- messages ---- */

typedef struct {
  int64_t kind, layer, micro, update, version, unused[3];
} header;

_Static_assert(sizeof(header) == PIPELINE_HEADER, "a header fills its place");

static pipeline_array array_sent(const bppsa_pipeline *p, int64_t id, int64_t *layer) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  *layer = p->transfers[id].gradients ? op->layer : op->layer + op->layers;
  return p->transfers[id].gradients ? PIPELINE_GRADIENTS : PIPELINE_VALUES;
}

static header header_of(const bppsa_pipeline *p, int64_t send, int64_t micro) {
  int64_t layer;
  const pipeline_array array = array_sent(p, send, &layer);
  return (header){.kind = array,
                  .layer = layer,
                  .micro = micro,
                  .update = micro_of(p, micro).update,
                  .version = p->list->ops[send].weight_version};
}

static bppsa_view message_of(const bppsa_pipeline *p, pipeline_slot *slot, pipeline_array array, int64_t layer) {
  const int64_t words = (PIPELINE_HEADER + bppsa_pipeline_bytes(p, array, layer) + 7) / 8;
  return pipeline_view_of(p, slot->block, BPPSA_I64, 1, &words);
}

static pipeline_worker *local(const bppsa_pipeline *p, int64_t worker) {
  return pipeline_rank_of(p, worker) == p->rank ? &p->worker[worker / p->ranks] : NULL;
}

/* Messages between two workers arrive in order; those of other workers on the same ranks have other tags. */
static int32_t tag_of(const bppsa_pipeline *p, pipeline_array array, const bppsa_schedule_op *from, const bppsa_schedule_op *to) {
  const int64_t most = (p->list->workers + p->ranks - 1) / p->ranks; /* workers on a rank */
  const int64_t pair = from->worker / p->ranks * most + to->worker / p->ranks;
  return p->config.tag + (int32_t)(p->layers + 2 * pair + (array == PIPELINE_GRADIENTS));
}

static bppsa_status begin_send(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bppsa_comm_request **requests) {
  const bppsa_schedule_op *op = &p->list->ops[id], *other = &p->list->ops[p->transfers[id].other];
  int64_t layer;
  const pipeline_array array = array_sent(p, id, &layer);
  const pipeline_span span = pipeline_span_of(p, op);
  for (int64_t micro = span.first; micro < span.end; ++micro) {
    pipeline_slot *slot = pipeline_slot_of(p, w, array, micro, layer);
    if (slot->block == NULL) {
      return fail_at(p, id, "what it sends is not there");
    }
    const header about = header_of(p, id, micro);
    BPPSA_TRY(bppsa_memory_put(p->chain->device, slot->block, &about, sizeof about));
    if (local(p, other->worker) == NULL) {
      const bppsa_view view = message_of(p, slot, array, layer);
      BPPSA_TRY(bppsa_comm_isend(p->comm, (int32_t)pipeline_rank_of(p, other->worker), tag_of(p, array, op, other), &view,
                                 &requests[micro - span.first]));
    }
  }
  return BPPSA_OK;
}

static bppsa_status begin_recv(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bppsa_comm_request **requests) {
  const bppsa_schedule_op *op = &p->list->ops[id], *other = &p->list->ops[p->transfers[id].other];
  int64_t layer;
  const pipeline_array array = array_sent(p, id, &layer);
  const pipeline_span span = pipeline_span_of(p, op);
  for (int64_t micro = span.first; micro < span.end; ++micro) {
    BPPSA_TRY(bppsa_pipeline_take(p, w, id, array, micro, layer));
    pipeline_slot *slot = pipeline_slot_of(p, w, array, micro, layer);
    const bppsa_view view = message_of(p, slot, array, layer);
    if (local(p, other->worker) == NULL) {
      BPPSA_TRY(bppsa_comm_irecv(p->comm, (int32_t)pipeline_rank_of(p, other->worker), tag_of(p, array, other, op), &view,
                                 &requests[micro - span.first]));
    }
  }
  return BPPSA_OK;
}

/* Copies what a worker of the same rank sends, once it has begun to. */
static bppsa_status take_over(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool *done) {
  const bppsa_schedule_op *op = &p->list->ops[id], *other = &p->list->ops[p->transfers[id].other];
  pipeline_worker *from = local(p, other->worker);
  const pipeline_lane *lane = &from->lanes[BPPSA_LANE_SEND];
  *done = lane->begun && lane->ops[lane->next] == p->transfers[id].other;
  if (!*done) {
    return BPPSA_OK;
  }
  int64_t layer;
  const pipeline_array array = array_sent(p, id, &layer);
  const pipeline_span span = pipeline_span_of(p, op);
  for (int64_t micro = span.first; micro < span.end; ++micro) {
    pipeline_slot *to = pipeline_slot_of(p, w, array, micro, layer);
    const pipeline_slot *source = pipeline_slot_of(p, from, array, micro, layer);
    const int64_t bytes = PIPELINE_HEADER + bppsa_pipeline_bytes(p, array, layer);
    BPPSA_TRY(bppsa_memory_queue_copy(p->chain->device, to->block, bytes, source->block, bytes, bytes, 1));
  }
  p->taken[p->transfers[id].other] = true;
  return BPPSA_OK;
}

static bppsa_status check_message(bppsa_pipeline *p, pipeline_worker *w, int64_t id) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  int64_t layer;
  const pipeline_array array = array_sent(p, id, &layer);
  const pipeline_span span = pipeline_span_of(p, op);
  for (int64_t micro = span.first; micro < span.end; ++micro) {
    header found;
    const header expected = header_of(p, p->transfers[id].other, micro);
    BPPSA_TRY(bppsa_memory_get(p->chain->device, &found, pipeline_slot_of(p, w, array, micro, layer)->block, sizeof found));
    if (memcmp(&found, &expected, sizeof found) != 0) {
      return bppsa_fail(BPPSA_ERR_COMM,
                        "schedule %s: operation %" PRId64 " received %s of layer %" PRId64 ", micro-batch %" PRId64
                        ", update %" PRId64 ", version %" PRId64 ", expected %s of layer %" PRId64 ", %" PRId64 ", %" PRId64
                        ", %" PRId64,
                        p->list->scheme->id, id, found.kind == PIPELINE_GRADIENTS ? "gradients" : "values", found.layer,
                        found.micro, found.update, found.version, array == PIPELINE_GRADIENTS ? "gradients" : "values",
                        expected.layer, expected.micro, expected.update, expected.version);
    }
    bppsa_pipeline_release(p, w, array, micro, layer);
  }
  return BPPSA_OK;
}

static bppsa_status transfer(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool begin, bool *done) {
  const bppsa_schedule_op *op = &p->list->ops[id], *other = &p->list->ops[p->transfers[id].other];
  const bool sends = op->kind == BPPSA_KIND_SEND;
  bppsa_comm_request **requests = &w->requests[sends ? 0 : p->most_micros + 1];
  if (begin) {
    BPPSA_TRY(sends ? begin_send(p, w, id, requests) : begin_recv(p, w, id, requests));
  }
  *done = true;
  if (local(p, other->worker) != NULL && sends) {
    *done = p->taken[id];
  } else if (local(p, other->worker) != NULL) {
    BPPSA_TRY(take_over(p, w, id, done));
  }
  const pipeline_span span = pipeline_span_of(p, op);
  for (int64_t i = 0; i < span.end - span.first; ++i) {
    bool over = true;
    if (requests[i] != NULL) {
      BPPSA_TRY(bppsa_comm_test(&requests[i], &over));
    }
    *done = *done && over;
  }
  return *done && !sends ? check_message(p, w, id) : BPPSA_OK;
}

/* ---- sums and updates ---- */

static bppsa_status sync(bppsa_pipeline *p, int64_t id, bool *done) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  *done = true;
  for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
    bool over;
    BPPSA_TRY(bppsa_pipeline_sum_go(p, layer, bppsa_pipeline_update_of(p, op->replica, layer), &over));
    *done = *done && over;
  }
  return BPPSA_OK;
}

/* Waits for the sums of all layers first, so that no layer is updated twice. */
static bppsa_status step(bppsa_pipeline *p, int64_t id, bool *done) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  BPPSA_TRY(sync(p, id, done));
  for (int64_t layer = op->layer; *done && layer < op->layer + op->layers; ++layer) {
    BPPSA_TRY(bppsa_pipeline_step(p, op->replica, layer, done));
  }
  return BPPSA_OK;
}

/* ---- the lanes ---- */

static bppsa_status execute(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool begin, bool *done) {
  *done = true;
  switch ((bppsa_schedule_kind)p->list->ops[id].kind) {
  case BPPSA_KIND_F:
  case BPPSA_KIND_RECOMPUTE:
    return forward(p, w, id);
  case BPPSA_KIND_I:
  case BPPSA_KIND_W:
  case BPPSA_KIND_B:
    return backward(p, w, id);
  case BPPSA_KIND_SEND:
  case BPPSA_KIND_RECV:
    return transfer(p, w, id, begin, done);
  case BPPSA_KIND_SYNC:
    return sync(p, id, done);
  case BPPSA_KIND_STEP:
    return step(p, id, done);
  default: /* STASH, PREDICT: pipeline.h */
    return BPPSA_OK;
  }
}

/* Are the operations that it waits for over? All of them run on the same worker. Is it the turn of a message? */
static bool is_ready(const bppsa_pipeline *p, int64_t id) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  for (int64_t i = op->deps; i < op->deps + op->dep_count; ++i) {
    const int32_t dep = p->list->deps[i];
    if (p->list->ops[dep].worker == op->worker && !p->done[dep]) {
      return false;
    }
  }
  return p->turn == NULL || p->turn[id] < 0 || p->turn[id] == p->begun;
}

static void finish(bppsa_pipeline *p, pipeline_worker *w, int64_t id) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  const bool reads_weights = op->kind <= BPPSA_KIND_RECOMPUTE;
  bppsa_pipeline_read(p, w, id, false);
  for (int64_t layer = op->layer; reads_weights && layer < op->layer + op->layers; ++layer) {
    bppsa_pipeline_weights_read(p, id, layer);
  }
  p->done[id] = true;
}

/* Does what a lane can do next. *moved: it did something. */
static bppsa_status advance(bppsa_pipeline *p, pipeline_worker *w, pipeline_lane *lane, double start, bool *moved) {
  if (lane->next == lane->count) {
    return BPPSA_OK;
  }
  const int32_t id = lane->ops[lane->next];
  const bool begin = !lane->begun;
  bool done;
  if (begin && !is_ready(p, id)) {
    return BPPSA_OK;
  }
  if (begin) {
    p->events[id].start = bppsa_now() - start;
    lane->begun = true;
    p->begun += p->turn != NULL && p->turn[id] >= 0;
  }
  BPPSA_TRY(execute(p, w, id, begin, &done));
  if (done) {
    finish(p, w, id);
    p->events[id].end = bppsa_now() - start;
    lane->begun = false;
    lane->next++;
  }
  *moved = *moved || done || begin;
  return BPPSA_OK;
}

/* Does what a lane of messages can do: the next message is begun as soon as the one before it is over, not behind a pass. */
static bppsa_status advance_messages(bppsa_pipeline *p, pipeline_worker *w, pipeline_lane *lane, double start, bool *moved) {
  for (int64_t before = -1; before != lane->next;) {
    before = lane->next;
    BPPSA_TRY(advance(p, w, lane, start, moved));
  }
  return BPPSA_OK;
}

/* The first operation that is not over, for a message. */
static int64_t waiting_for(const bppsa_pipeline *p) {
  int64_t first = p->list->count;
  for (int64_t i = 0; i < p->workers; ++i) {
    for (int lane = 0; lane < BPPSA_LANE_COUNT; ++lane) {
      const pipeline_lane *l = &p->worker[i].lanes[lane];
      first = l->next < l->count && l->ops[l->next] < first ? l->ops[l->next] : first;
    }
  }
  return first;
}

/* A message, a broadcast, or the message of a sum, that has been begun and is not over; NULL: none. */
static const bppsa_comm_request *pending(const bppsa_pipeline *p) {
  for (int64_t i = 0; i < p->workers; ++i) {
    for (int64_t k = 0; k < 2 * (p->most_micros + 1); ++k) {
      if (p->worker[i].requests[k] != NULL) {
        return p->worker[i].requests[k];
      }
    }
  }
  for (int64_t layer = 0; layer < p->layers; ++layer) {
    const pipeline_sum *sum = &p->sums[layer];
    const bppsa_comm_request *request =
        sum->request == NULL && sum->sum != NULL ? bppsa_ordered_sum_pending(sum->sum) : sum->request;
    if (request != NULL) {
      return request;
    }
  }
  return NULL;
}

/* The failure of a run in which nothing has gone on for longer than the timeout. */
static bppsa_status stuck(const bppsa_pipeline *p, double timeout) {
  const int64_t id = waiting_for(p);
  const bppsa_schedule_op *op = &p->list->ops[id];
  const bppsa_comm_request *request = pending(p);
  if (request == NULL) { /* its own operations wait for each other, which no list that the rules accept does */
    return bppsa_fail(BPPSA_ERR_COMM, "rank %" PRId64 " waited %g s: schedule %s: operation %" PRId64 ", %s of layer %d", p->rank,
                      timeout, p->list->scheme->id, id, bppsa_schedule_kind_name(op->kind), op->layer);
  }
  return bppsa_fail_prefix(bppsa_comm_expired(request), "schedule %s: operation %" PRId64 ", %s of layer %d", p->list->scheme->id,
                           id, bppsa_schedule_kind_name(op->kind), op->layer);
}

static bppsa_status run_lanes(bppsa_pipeline *p) {
  /* messages first, so that they travel while a pass is computed */
  static const bppsa_schedule_lane order[] = {BPPSA_LANE_RECEIVE, BPPSA_LANE_SEND, BPPSA_LANE_SYNC, BPPSA_LANE_COMPUTE,
                                              BPPSA_LANE_GRADIENT};
  const double start = bppsa_now(), timeout = bppsa_comm_get_timeout(p->comm);
  double latest = start;
  p->began = start;
  for (;;) {
    bool moved = false, over = true;
    for (int64_t i = 0; i < p->workers; ++i) {
      for (size_t l = 0; l < sizeof order / sizeof *order; ++l) {
        pipeline_lane *lane = &p->worker[i].lanes[order[l]];
        const bool computes = order[l] == BPPSA_LANE_COMPUTE || order[l] == BPPSA_LANE_GRADIENT;
        BPPSA_TRY((computes ? advance : advance_messages)(p, &p->worker[i], lane, start, &moved));
        over = over && lane->next == lane->count;
      }
    }
    if (over) {
      return BPPSA_OK;
    }
    if (moved) {
      latest = bppsa_now();
    } else if (bppsa_now() - latest > timeout) {
      return stuck(p, timeout);
    } else {
      pipeline_nap();
    }
  }
}

static void begin_run(bppsa_pipeline *p) {
  for (int64_t i = 0; i < p->workers; ++i) {
    for (int lane = 0; lane < BPPSA_LANE_COUNT; ++lane) {
      p->worker[i].lanes[lane].next = 0;
      p->worker[i].lanes[lane].begun = false;
    }
  }
  for (int64_t id = 0; id < p->list->count; ++id) {
    p->done[id] = p->taken[id] = false;
    p->events[id] = (bppsa_pipeline_event){NAN, NAN, -1, 0};
  }
  p->begun = 0;
  memset(p->losses, 0, (size_t)p->micros * sizeof *p->losses);
  memset(p->norms, 0, (size_t)(p->updates * p->layers) * sizeof *p->norms);
  bppsa_pipeline_weights_begin(p);
}

/* Every micro-batch's loss is known to one rank; zeros are added to it. */
static bppsa_status share_losses(bppsa_pipeline *p, double *losses) {
  const bppsa_view view = bppsa_view_make(p->losses, BPPSA_F64, 1, &p->micros);
  BPPSA_TRY(bppsa_comm_allreduce(p->comm, BPPSA_COMM_SUM, &view));
  memset(losses, 0, (size_t)p->updates * sizeof *losses);
  for (int64_t m = 0; m < p->micros; ++m) {
    if (p->micro[m].block >= 0) {
      losses[p->micro[m].update] += p->losses[m];
    }
  }
  return BPPSA_OK;
}

/* The norm of each update's gradients, from those of the layers, each of which one rank knows. They are scaled by the largest,
 * because their squares may overflow. */
static bppsa_status share_norms(bppsa_pipeline *p) {
  const int64_t all = p->updates * p->layers;
  const bppsa_view view = bppsa_view_make(p->norms, BPPSA_F64, 1, &all);
  BPPSA_TRY(bppsa_comm_allreduce(p->comm, BPPSA_COMM_SUM, &view));
  for (int64_t update = 0; update < p->updates; ++update) {
    const double *norms = &p->norms[update * p->layers];
    double largest = 0, squares = 0;
    for (int64_t layer = 0; layer < p->layers; ++layer) {
      largest = norms[layer] > largest || isnan(norms[layer]) ? norms[layer] : largest;
    }
    const bool scaled = largest > 0 && isfinite(largest);
    for (int64_t layer = 0; scaled && layer < p->layers; ++layer) {
      squares += norms[layer] / largest * (norms[layer] / largest);
    }
    p->norm[update] = scaled ? largest * sqrt(squares) : largest;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_run(bppsa_pipeline *p, const bppsa_pipeline_data *data, double *losses) {
  BPPSA_REQUIRE(p != NULL && data != NULL && data->input != NULL && data->loss != NULL && losses != NULL);
  p->data = data;
  begin_run(p);
  BPPSA_TRY(run_lanes(p));
  p->runs++;
  BPPSA_TRY(share_norms(p));
  return share_losses(p, losses);
}

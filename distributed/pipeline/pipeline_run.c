/* The executor of schedules: running. One thread goes round the lanes of its workers and does what can be done: communication goes
 * on between two passes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/compute/memory.h"
#include "distributed/pipeline/pipeline_internal.h"

/* ---- passes ---- */

bppsa_status bppsa_pipeline_fail_at(const bppsa_pipeline *p, int64_t id, const char *what) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule %s: operation %" PRId64 ", %s of micro-batch %d at layer %d: %s",
                    p->list->scheme->id, id, bppsa_schedule_kind_name(op->kind), op->micro, op->layer, what);
}

static void *array_of(const bppsa_pipeline *p, const pipeline_worker *w, pipeline_array array, int64_t micro, int64_t layer) {
  return pipeline_data_of(pipeline_slot_of(p, w, array, micro, layer));
}

/* The slot of an array that operation `id` reads or writes, and the array; NULL: it is not there. */
static bppsa_status use(bppsa_pipeline *p, pipeline_worker *w, int64_t id, pipeline_array array, int64_t micro, int64_t layer,
                        bool writes, void **data) {
  const pipeline_slot *slot = pipeline_slot_of(p, w, array, micro, layer);
  *data = pipeline_data_of(slot);
  return slot->block != NULL ? bppsa_pipeline_use(p, id, slot, writes) : BPPSA_OK;
}

/* Makes an array that the operation writes. */
static bppsa_status make(bppsa_pipeline *p, pipeline_worker *w, int64_t id, pipeline_array array, int64_t micro, int64_t layer,
                         void **data) {
  BPPSA_TRY(bppsa_pipeline_take(p, w, id, array, micro, layer));
  return use(p, w, id, array, micro, layer, true, data);
}

static bppsa_status fill_input(bppsa_pipeline *p, int64_t micro, void *data) {
  const bppsa_pipeline_micro m = pipeline_micro_of(p, micro);
  const int64_t shape[] = {p->samples, p->chain->layer[0].in};
  const bppsa_view x = pipeline_view_of(p, data, p->chain->dtype, 2, shape);
  return p->data->input(p->data->context, &m, &x);
}

static bppsa_status load_input(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro) {
  void *x, *loaded;
  BPPSA_TRY(make(p, w, id, PIPELINE_VALUES, micro, 0, &x));
  if (p->streams == NULL) {
    return fill_input(p, micro, x);
  }
  BPPSA_TRY(bppsa_pipeline_pool_take(&p->streams->loading, &loaded));
  const pipeline_due due = {.what = PIPELINE_LOADED, .op = (int32_t)id, .memory = loaded};
  pipeline_call call;
  BPPSA_TRY(bppsa_pipeline_promise(p, &due));
  BPPSA_TRY(fill_input(p, micro, loaded));
  BPPSA_TRY(bppsa_pipeline_after_here(p, id));
  memset(&call, 0, sizeof call);
  call.kind = PIPELINE_COPY;
  call.x = loaded;
  call.y = x;
  call.bytes = bppsa_pipeline_bytes(p, PIPELINE_VALUES, 0);
  return bppsa_pipeline_queue(p, id, &call);
}

static bppsa_status make_seed(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro) {
  const bppsa_pipeline_micro m = pipeline_micro_of(p, micro);
  const int64_t shape[] = {p->samples, p->chain->layer[p->layers - 1].out};
  BPPSA_TRY(bppsa_pipeline_take(p, w, id, PIPELINE_GRADIENTS, micro, p->layers));
  BPPSA_TRY(bppsa_pipeline_use_here(p, pipeline_slot_of(p, w, PIPELINE_GRADIENTS, micro, p->layers)));
  const bppsa_view logits = pipeline_view_of(p, array_of(p, w, PIPELINE_VALUES, micro, p->layers), p->chain->dtype, 2, shape);
  const bppsa_view seed = pipeline_view_of(p, array_of(p, w, PIPELINE_GRADIENTS, micro, p->layers), p->chain->dtype, 2, shape);
  const bppsa_status status = p->data->loss(p->data->context, &m, &logits, &seed, &p->losses[micro]);
  bppsa_pipeline_release(p, w, PIPELINE_GRADIENTS, micro, p->layers);
  bppsa_pipeline_release(p, w, PIPELINE_VALUES, micro, p->layers);
  return status;
}

/* The same without the host: the loss is queued, and known once it is reached. */
static bppsa_status queue_seed(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro) {
  const bppsa_pipeline_micro m = pipeline_micro_of(p, micro);
  const int64_t rows = pipeline_rows_of(p), shape[] = {rows, p->data->classes};
  pipeline_due due = {.what = PIPELINE_JUDGED, .op = (int32_t)id, .micro = micro};
  pipeline_call call;
  memset(&call, 0, sizeof call);
  call.kind = PIPELINE_LOSS;
  call.layer = p->data->classes;
  call.bytes = rows * m.blocks;
  BPPSA_TRY(use(p, w, id, PIPELINE_VALUES, micro, p->layers, false, &call.x));
  BPPSA_TRY(make(p, w, id, PIPELINE_GRADIENTS, micro, p->layers, &call.y));
  BPPSA_TRY(bppsa_pipeline_judge(p, &due));
  const bppsa_view logits = pipeline_view_of(p, call.x, p->chain->dtype, 2, shape);
  BPPSA_TRY(p->data->labels(p->data->context, &m, due.staged));
  BPPSA_TRY(bppsa_loss_check_labels(&logits, due.staged));
  call.kept = due.memory;
  call.dy = due.staged;
  call.dx = (int64_t *)due.staged + rows;
  bppsa_pipeline_release(p, w, PIPELINE_GRADIENTS, micro, p->layers);
  bppsa_pipeline_release(p, w, PIPELINE_VALUES, micro, p->layers);
  return bppsa_pipeline_queue(p, id, &call);
}

void bppsa_pipeline_judged(bppsa_pipeline *p, const pipeline_due *due) {
  const bppsa_pipeline_micro m = pipeline_micro_of(p, due->micro);
  const bppsa_loss_result found = bppsa_loss_part_found((const int64_t *)due->staged + pipeline_rows_of(p));
  p->losses[due->micro] = found.loss;
  if (p->data->judged != NULL) {
    p->data->judged(p->data->context, &m, &found);
  }
}

static bppsa_status forward_layer(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro, int64_t layer) {
  pipeline_call call;
  memset(&call, 0, sizeof call);
  call.kind = PIPELINE_FORWARD;
  call.layer = layer;
  BPPSA_TRY(use(p, w, id, PIPELINE_VALUES, micro, layer, false, &call.x));
  if (call.x == NULL) {
    return bppsa_pipeline_fail_at(p, id, "its input is not there");
  }
  BPPSA_TRY(make(p, w, id, PIPELINE_KEPT, micro, layer, &call.kept));
  BPPSA_TRY(make(p, w, id, PIPELINE_VALUES, micro, layer + 1, &call.y));
  BPPSA_TRY(bppsa_pipeline_weights(p, id, layer, call.weights));
  return bppsa_pipeline_queue(p, id, &call);
}

/* The passes of F or RECOMPUTE. judged: the logits are kept for the loss. */
static bppsa_status forward_micro(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro, bool judged) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  const int64_t end = op->layer + op->layers;
  const bool load = op->layer == 0 && op->kind == BPPSA_KIND_F;
  if (load) {
    BPPSA_TRY(load_input(p, w, id, micro));
  }
  for (int64_t layer = op->layer; layer < end; ++layer) {
    BPPSA_TRY(forward_layer(p, w, id, micro, layer));
  }
  if (load) {
    bppsa_pipeline_release(p, w, PIPELINE_VALUES, micro, 0);
  }
  for (int64_t layer = op->layer; layer < end; ++layer) {
    bppsa_pipeline_release(p, w, PIPELINE_KEPT, micro, layer);
    if (!(judged && layer + 1 == end)) {
      bppsa_pipeline_release(p, w, PIPELINE_VALUES, micro, layer + 1);
    }
  }
  return BPPSA_OK;
}

/* F, or RECOMPUTE, which calculates no loss. The loss is calculated once the logits are there. */
static bppsa_status forward(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool begin, bool *done) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  const pipeline_span span = pipeline_span_of(p, op);
  const bool judged = op->layer + op->layers == p->layers && op->kind == BPPSA_KIND_F;
  const bool here = judged && (p->streams == NULL || p->data->labels == NULL); /* by the host */
  for (int64_t micro = span.first; begin && micro < span.end; ++micro) {
    BPPSA_TRY(forward_micro(p, w, id, micro, judged));
    BPPSA_TRY(judged && !here ? queue_seed(p, w, id, micro) : BPPSA_OK);
  }
  BPPSA_TRY(begin ? bppsa_pipeline_queued(p, id) : BPPSA_OK);
  BPPSA_TRY(here ? bppsa_pipeline_reached(p, id, done) : BPPSA_OK);
  for (int64_t micro = span.first; here && *done && micro < span.end; ++micro) {
    BPPSA_TRY(make_seed(p, w, id, micro));
  }
  return BPPSA_OK;
}

/* The passes of one layer: its weight gradient, its input gradient, or both. */
static bppsa_status backward_layer(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro, int64_t layer, bool weights,
                                   bool input) {
  const bool together = weights && p->chain->ops->backward != NULL;
  void *part = NULL;
  pipeline_call call;
  if (!weights && !input) {
    return BPPSA_OK;
  }
  memset(&call, 0, sizeof call);
  call.layer = layer;
  BPPSA_TRY(use(p, w, id, PIPELINE_GRADIENTS, micro, layer + 1, false, &call.dy));
  BPPSA_TRY(use(p, w, id, PIPELINE_VALUES, micro, layer, false, &call.x));
  BPPSA_TRY(use(p, w, id, PIPELINE_VALUES, micro, layer + 1, false, &call.y));
  BPPSA_TRY(use(p, w, id, PIPELINE_KEPT, micro, layer, false, &call.kept));
  if (input) {
    BPPSA_TRY(make(p, w, id, PIPELINE_GRADIENTS, micro, layer, &call.dx));
  }
  BPPSA_TRY(bppsa_pipeline_weights(p, id, layer, call.weights));
  if (weights) {
    void *dx = call.dx;
    BPPSA_TRY(bppsa_pipeline_part_take(p, id, micro, layer, &part));
    bppsa_pipeline_gradient(p, layer, part, call.gradients);
    call.kind = together ? PIPELINE_BACKWARD : PIPELINE_WEIGHT_GRADIENT;
    call.dx = together ? dx : NULL;
    BPPSA_TRY(bppsa_pipeline_queue(p, id, &call));
    BPPSA_TRY(p->streams == NULL ? bppsa_pipeline_sum_add(p, micro, layer, part) : BPPSA_OK);
    memset(call.gradients, 0, sizeof call.gradients);
    call.dx = dx;
  }
  call.kind = PIPELINE_INPUT_GRADIENT;
  return input && !together ? bppsa_pipeline_queue(p, id, &call) : BPPSA_OK;
}

static bppsa_status backward_micro(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  const bool inputs = op->kind != BPPSA_KIND_W, weights = op->kind != BPPSA_KIND_I;
  for (int64_t layer = op->layer + op->layers - 1; layer >= op->layer; --layer) {
    if (array_of(p, w, PIPELINE_GRADIENTS, micro, layer + 1) == NULL ||
        array_of(p, w, PIPELINE_VALUES, micro, layer + 1) == NULL) {
      return bppsa_pipeline_fail_at(p, id, "a gradient or an activation is not there");
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
  return bppsa_pipeline_queued(p, id);
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

/* Waits for the sums of all layers first, so that no layer is updated twice; and for the passes that read the weights. */
static bppsa_status step(bppsa_pipeline *p, int64_t id, bool *done) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  BPPSA_TRY(bppsa_pipeline_worker_reached(p, op->worker, done));
  BPPSA_TRY(*done ? sync(p, id, done) : BPPSA_OK);
  for (int64_t layer = op->layer; *done && layer < op->layer + op->layers; ++layer) {
    BPPSA_TRY(bppsa_pipeline_step(p, id, layer, done));
  }
  return BPPSA_OK;
}

/* ---- the lanes ---- */

static bppsa_status execute(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool begin, bool *done) {
  *done = true;
  switch ((bppsa_schedule_kind)p->list->ops[id].kind) {
  case BPPSA_KIND_F:
  case BPPSA_KIND_RECOMPUTE:
    return forward(p, w, id, begin, done);
  case BPPSA_KIND_I:
  case BPPSA_KIND_W:
  case BPPSA_KIND_B:
    return backward(p, w, id);
  case BPPSA_KIND_SEND:
  case BPPSA_KIND_RECV:
    return bppsa_pipeline_transfer(p, w, id, begin, done);
  case BPPSA_KIND_SYNC:
    return sync(p, id, done);
  case BPPSA_KIND_STEP:
    return step(p, id, done);
  default: /* STASH, PREDICT: pipeline.h */
    return BPPSA_OK;
  }
}

/* Are the operations that it waits for over? All of them run on the same worker. What goes to another rank is there, and it is the
 * turn of a message. */
static bppsa_status is_ready(bppsa_pipeline *p, int64_t id, bool *ready) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  const bool leaves = op->kind == BPPSA_KIND_SEND && pipeline_local(p, p->list->ops[p->transfers[id].other].worker) == NULL;
  *ready = p->turn == NULL || p->turn[id] < 0 || p->turn[id] == p->begun;
  for (int64_t i = op->deps; *ready && i < op->deps + op->dep_count; ++i) {
    const int32_t dep = p->list->deps[i];
    if (p->list->ops[dep].worker == op->worker) {
      *ready = p->done[dep];
      BPPSA_TRY(*ready && leaves ? bppsa_pipeline_reached(p, dep, ready) : BPPSA_OK);
    }
  }
  return BPPSA_OK;
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
  bool done = true;
  BPPSA_TRY(begin ? is_ready(p, id, &done) : BPPSA_OK);
  if (!done) {
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
      return bppsa_pipeline_settle(p);
    }
    BPPSA_TRY(bppsa_pipeline_keep_promises(p, &moved));
    if (!moved && p->streams != NULL && p->streams->recorded && p->streams->aloft_count > 0) {
      BPPSA_TRY(bppsa_pipeline_settle(p)); /* nothing can be added to the recording */
      moved = true;
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
  bppsa_pipeline_streams_begin(p);
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
  if (data->labels != NULL && (data->classes < 1 || p->chain->layer[p->layers - 1].out % data->classes != 0)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "pipeline: rows of %" PRId64 " classes, expected a divisor of the logits' %" PRId64,
                      data->classes, p->chain->layer[p->layers - 1].out);
  }
  p->data = data;
  begin_run(p);
  BPPSA_TRY(run_lanes(p));
  p->runs++;
  BPPSA_TRY(share_norms(p));
  return share_losses(p, losses);
}

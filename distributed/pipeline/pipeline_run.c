/* The executor of schedules: running. One thread goes round the lanes of its workers and does what can be done: communication goes
 * on between two passes. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/compute/memory.h"
#include "distributed/agree.h"
#include "distributed/pipeline/pipeline_executor.h"

/* ---- passes ---- */

bppsa_status bppsa_pipeline_fail_at(const bppsa_pipeline *p, int64_t id, const char *what) {
  const bppsa_schedule_op *op = &p->plan.list->ops[id];
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule %s: operation %" PRId64 ", %s of micro-batch %d at layer %d: %s",
                    p->plan.list->scheme->id, id, bppsa_schedule_kind_name(op->kind), op->micro, op->layer, what);
}

static void *array_of(const pipeline_worker *w, pipeline_array array, int64_t micro, int64_t layer) {
  return pipeline_data_of(pipeline_slot_of(&w->arrays, array, micro, layer));
}

/* Finds an array that operation `id` reads or writes, and orders the streams so; *data NULL: it is not there. */
static bppsa_status use(bppsa_pipeline *p, pipeline_worker *w, int64_t id, pipeline_array array, int64_t micro, int64_t layer,
                        bool writes, void **data) {
  const pipeline_slot *slot = pipeline_slot_of(&w->arrays, array, micro, layer);
  *data = pipeline_data_of(slot);
  return slot->block != NULL ? bppsa_pipeline_use(&p->streams, id, slot, writes) : BPPSA_OK;
}

/* Makes an array that the operation writes. */
static bppsa_status make(bppsa_pipeline *p, pipeline_worker *w, int64_t id, pipeline_array array, int64_t micro, int64_t layer,
                         void **data) {
  BPPSA_TRY(bppsa_pipeline_take(&w->arrays, id, array, micro, layer));
  return use(p, w, id, array, micro, layer, true, data);
}

static bppsa_status fill_input(bppsa_pipeline *p, int64_t micro, void *data) {
  const bppsa_pipeline_micro m = pipeline_micro_of(p, micro);
  const int64_t shape[] = {p->plan.samples, p->plan.chain->layer[0].in};
  const bppsa_view x = pipeline_view_of(&p->plan, data, p->plan.chain->dtype, 2, shape);
  return p->run.data->input(p->run.data->context, &m, &x);
}

static bppsa_status load_input(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro) {
  pipeline_block *loaded;
  void *x;
  BPPSA_TRY(make(p, w, id, PIPELINE_VALUES, micro, 0, &x));
  if (!p->streams.on) {
    return fill_input(p, micro, x);
  }
  BPPSA_TRY(bppsa_pipeline_pool_take(&p->streams.loading, &loaded));
  const pipeline_due due = {.what = PIPELINE_LOADED, .op = (int32_t)id, .pool = &p->streams.loading, .block = loaded};
  const pipeline_call call = {
      .kind = PIPELINE_COPY, .x = loaded->memory, .y = x, .bytes = bppsa_pipeline_bytes(&p->plan, PIPELINE_VALUES, 0)};
  BPPSA_TRY(bppsa_pipeline_promise(&p->streams, &due));
  BPPSA_TRY(fill_input(p, micro, loaded->memory));
  BPPSA_TRY(bppsa_pipeline_after_here(&p->streams, id));
  return bppsa_pipeline_queue(&p->streams, id, &call);
}

static bppsa_status make_seed(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro) {
  const bppsa_pipeline_micro m = pipeline_micro_of(p, micro);
  const int64_t shape[] = {p->plan.samples, p->plan.chain->layer[p->plan.layers - 1].out};
  BPPSA_TRY(bppsa_pipeline_take(&w->arrays, id, PIPELINE_GRADIENTS, micro, p->plan.layers));
  BPPSA_TRY(bppsa_pipeline_use_here(&p->streams, pipeline_slot_of(&w->arrays, PIPELINE_GRADIENTS, micro, p->plan.layers)));
  const bppsa_view logits =
      pipeline_view_of(&p->plan, array_of(w, PIPELINE_VALUES, micro, p->plan.layers), p->plan.chain->dtype, 2, shape);
  const bppsa_view seed =
      pipeline_view_of(&p->plan, array_of(w, PIPELINE_GRADIENTS, micro, p->plan.layers), p->plan.chain->dtype, 2, shape);
  const bppsa_status status = p->run.data->loss(p->run.data->context, &m, &logits, &seed, &p->run.losses[micro]);
  bppsa_pipeline_release(&w->arrays, PIPELINE_GRADIENTS, micro, p->plan.layers);
  bppsa_pipeline_release(&w->arrays, PIPELINE_VALUES, micro, p->plan.layers);
  return status;
}

/* Does the same without the host: queues the loss, whose result is known when the GPU has reached it. */
static bppsa_status queue_seed(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro) {
  const bppsa_pipeline_micro m = pipeline_micro_of(p, micro);
  const int64_t rows = pipeline_rows_of(&p->plan, p->run.data->classes), shape[] = {rows, p->run.data->classes};
  pipeline_due due = {.what = PIPELINE_JUDGED, .op = (int32_t)id, .micro = micro};
  pipeline_call call = {.kind = PIPELINE_LOSS, .layer = shape[1], .bytes = rows * m.blocks};
  BPPSA_TRY(use(p, w, id, PIPELINE_VALUES, micro, p->plan.layers, false, &call.x));
  BPPSA_TRY(make(p, w, id, PIPELINE_GRADIENTS, micro, p->plan.layers, &call.y));
  BPPSA_TRY(bppsa_pipeline_judge(&p->streams, rows, &due));
  const bppsa_view logits = pipeline_view_of(&p->plan, call.x, p->plan.chain->dtype, 2, shape);
  BPPSA_TRY(p->run.data->labels(p->run.data->context, &m, due.staged->memory));
  BPPSA_TRY(bppsa_loss_check_labels(&logits, due.staged->memory));
  call.kept = due.block->memory;
  call.dy = due.staged->memory;
  call.dx = (int64_t *)due.staged->memory + rows;
  bppsa_pipeline_release(&w->arrays, PIPELINE_GRADIENTS, micro, p->plan.layers);
  bppsa_pipeline_release(&w->arrays, PIPELINE_VALUES, micro, p->plan.layers);
  return bppsa_pipeline_queue(&p->streams, id, &call);
}

/* Takes what a queued loss has found. */
static void take_loss(bppsa_pipeline *p, const pipeline_due *due) {
  const pipeline_run *run = &p->run;
  const bppsa_pipeline_micro m = pipeline_micro_of(p, due->micro);
  const bppsa_loss_result found =
      bppsa_loss_part_found((const int64_t *)due->staged->memory + pipeline_rows_of(&p->plan, run->data->classes));
  run->losses[due->micro] = found.loss;
  if (run->data->judged != NULL) {
    run->data->judged(run->data->context, &m, &found);
  }
}

static bppsa_status forward_layer(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro, int64_t layer) {
  pipeline_call call = {.kind = PIPELINE_FORWARD, .layer = layer};
  BPPSA_TRY(use(p, w, id, PIPELINE_VALUES, micro, layer, false, &call.x));
  if (call.x == NULL) {
    return bppsa_pipeline_fail_at(p, id, "its input is not there");
  }
  BPPSA_TRY(make(p, w, id, PIPELINE_KEPT, micro, layer, &call.kept));
  BPPSA_TRY(make(p, w, id, PIPELINE_VALUES, micro, layer + 1, &call.y));
  BPPSA_TRY(bppsa_pipeline_weights(&p->weights, id, layer, &p->run.events[id], call.weights));
  return bppsa_pipeline_queue(&p->streams, id, &call);
}

/* The passes of F or RECOMPUTE. judged: the logits are kept for the loss. */
static bppsa_status forward_micro(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro, bool judged) {
  const bppsa_schedule_op *op = &p->plan.list->ops[id];
  const int64_t end = op->layer + op->layers;
  const bool load = op->layer == 0 && op->kind == BPPSA_KIND_F;
  if (load) {
    BPPSA_TRY(load_input(p, w, id, micro));
  }
  for (int64_t layer = op->layer; layer < end; ++layer) {
    BPPSA_TRY(forward_layer(p, w, id, micro, layer));
  }
  if (load) {
    bppsa_pipeline_release(&w->arrays, PIPELINE_VALUES, micro, 0);
  }
  for (int64_t layer = op->layer; layer < end; ++layer) {
    bppsa_pipeline_release(&w->arrays, PIPELINE_KEPT, micro, layer);
    if (!(judged && layer + 1 == end)) {
      bppsa_pipeline_release(&w->arrays, PIPELINE_VALUES, micro, layer + 1);
    }
  }
  return BPPSA_OK;
}

/* F, or RECOMPUTE, which calculates no loss. The loss is calculated once the logits are there. */
static bppsa_status forward(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool begin, bool *done) {
  const bppsa_schedule_op *op = &p->plan.list->ops[id];
  const pipeline_span span = pipeline_span_of(&p->plan, op);
  const bool judged = op->layer + op->layers == p->plan.layers && op->kind == BPPSA_KIND_F;
  const bool here = judged && (!p->streams.on || p->run.data->labels == NULL); /* by the host */
  for (int64_t micro = span.first; begin && micro < span.end; ++micro) {
    BPPSA_TRY(forward_micro(p, w, id, micro, judged));
    BPPSA_TRY(judged && !here ? queue_seed(p, w, id, micro) : BPPSA_OK);
  }
  BPPSA_TRY(begin ? bppsa_pipeline_queued(&p->streams, id) : BPPSA_OK);
  BPPSA_TRY(here ? bppsa_pipeline_reached(&p->streams, id, done) : BPPSA_OK);
  for (int64_t micro = span.first; here && *done && micro < span.end; ++micro) {
    BPPSA_TRY(make_seed(p, w, id, micro));
  }
  return BPPSA_OK;
}

/* Takes memory for a micro-batch's gradient of a layer, which operation `id` writes; on streams, promises to add it to the sum. */
static bppsa_status part_take(bppsa_pipeline *p, int64_t id, int64_t micro, int64_t layer, void **part) {
  pipeline_sum *sum = &p->weights.sums[layer];
  pipeline_due due = {.what = PIPELINE_ADD, .op = (int32_t)id, .micro = micro, .layer = layer, .pool = &sum->parts};
  *part = sum->part;
  if (!p->streams.on) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_pipeline_pool_take(&sum->parts, &due.block));
  *part = due.block->memory;
  BPPSA_TRY(bppsa_pipeline_after_here(&p->streams, id)); /* a sum may still read it */
  return bppsa_pipeline_promise(&p->streams, &due);
}

/* The passes of one layer: its weight gradient, its input gradient, or both. */
static bppsa_status backward_layer(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro, int64_t layer, bool weights,
                                   bool input) {
  const bool together = weights && p->plan.chain->ops->backward != NULL;
  void *part = NULL;
  pipeline_call call = {.layer = layer};
  if (!weights && !input) {
    return BPPSA_OK;
  }
  BPPSA_TRY(use(p, w, id, PIPELINE_GRADIENTS, micro, layer + 1, false, &call.dy));
  BPPSA_TRY(use(p, w, id, PIPELINE_VALUES, micro, layer, false, &call.x));
  BPPSA_TRY(use(p, w, id, PIPELINE_VALUES, micro, layer + 1, false, &call.y));
  BPPSA_TRY(use(p, w, id, PIPELINE_KEPT, micro, layer, false, &call.kept));
  if (input) {
    BPPSA_TRY(make(p, w, id, PIPELINE_GRADIENTS, micro, layer, &call.dx));
  }
  BPPSA_TRY(bppsa_pipeline_weights(&p->weights, id, layer, &p->run.events[id], call.weights));
  if (weights) {
    void *dx = call.dx;
    BPPSA_TRY(part_take(p, id, micro, layer, &part));
    bppsa_pipeline_lay_out(&p->plan, layer, part, call.gradients);
    call.kind = together ? PIPELINE_BACKWARD : PIPELINE_WEIGHT_GRADIENT;
    call.dx = together ? dx : NULL;
    BPPSA_TRY(bppsa_pipeline_queue(&p->streams, id, &call));
    BPPSA_TRY(!p->streams.on ? bppsa_pipeline_sum_add(&p->plan, &p->weights.sums[layer], micro, part) : BPPSA_OK);
    memset(call.gradients, 0, sizeof call.gradients);
    call.dx = dx;
  }
  call.kind = PIPELINE_INPUT_GRADIENT;
  return input && !together ? bppsa_pipeline_queue(&p->streams, id, &call) : BPPSA_OK;
}

static bppsa_status backward_micro(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro) {
  const bppsa_schedule_op *op = &p->plan.list->ops[id];
  const bool inputs = op->kind != BPPSA_KIND_W, weights = op->kind != BPPSA_KIND_I;
  for (int64_t layer = op->layer + op->layers - 1; layer >= op->layer; --layer) {
    if (array_of(w, PIPELINE_GRADIENTS, micro, layer + 1) == NULL || array_of(w, PIPELINE_VALUES, micro, layer + 1) == NULL) {
      return bppsa_pipeline_fail_at(p, id, "a gradient or an activation is not there");
    }
    BPPSA_TRY(backward_layer(p, w, id, micro, layer, weights && p->plan.chain->layer[layer].parameters > 0,
                             inputs && !(layer == 0 && p->plan.list->config.skip_first_input_grad)));
  }
  for (int64_t layer = op->layer; inputs && layer < op->layer + op->layers; ++layer) {
    bppsa_pipeline_release(&w->arrays, PIPELINE_GRADIENTS, micro, layer);
  }
  return BPPSA_OK;
}

/* I, W, or B, which is both. */
static bppsa_status backward(bppsa_pipeline *p, pipeline_worker *w, int64_t id) {
  const pipeline_span span = pipeline_span_of(&p->plan, &p->plan.list->ops[id]);
  for (int64_t micro = span.first; micro < span.end; ++micro) {
    BPPSA_TRY(backward_micro(p, w, id, micro));
  }
  return bppsa_pipeline_queued(&p->streams, id);
}

/* ---- sums and updates ---- */

static bppsa_status sync(bppsa_pipeline *p, int64_t id, bool *done) {
  const bppsa_schedule_op *op = &p->plan.list->ops[id];
  *done = true;
  for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
    bool over;
    BPPSA_TRY(bppsa_pipeline_sum_go(&p->plan, &p->weights.sums[layer], bppsa_pipeline_update_of(&p->weights, op->replica, layer),
                                    &over));
    *done = *done && over;
  }
  return BPPSA_OK;
}

/* Waits for the sums of all layers first, so that no layer is updated twice; and for the passes that read the weights. */
static bppsa_status step(bppsa_pipeline *p, int64_t id, bool *done) {
  const bppsa_schedule_op *op = &p->plan.list->ops[id];
  BPPSA_TRY(bppsa_pipeline_worker_reached(&p->streams, op->worker, done));
  BPPSA_TRY(*done ? sync(p, id, done) : BPPSA_OK);
  for (int64_t layer = op->layer; *done && layer < op->layer + op->layers; ++layer) {
    BPPSA_TRY(bppsa_pipeline_step(&p->weights, id, layer, &p->run.events[id], done));
  }
  return BPPSA_OK;
}

/* ---- the lanes ---- */

bppsa_status bppsa_pipeline_keep(void *context, const pipeline_due *due) {
  bppsa_pipeline *p = context;
  if (due->what == PIPELINE_JUDGED) {
    take_loss(p, due);
  }
  return due->what == PIPELINE_ADD
             ? bppsa_pipeline_sum_add(&p->plan, &p->weights.sums[due->layer], due->micro, due->block->memory)
         : due->what == PIPELINE_TAG ? bppsa_pipeline_check_header(p, due->op, due->micro, due->header)
                                     : BPPSA_OK;
}

static bppsa_status execute(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool begin, bool *done) {
  *done = true;
  switch ((bppsa_schedule_kind)p->plan.list->ops[id].kind) {
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

/* Can the operation begin? The operations that it waits for, all of its worker, are over; the GPU has computed what a SEND takes to
 * another rank; and where messages have turns, it is this one's. */
static bppsa_status is_ready(bppsa_pipeline *p, int64_t id, bool *ready) {
  const bppsa_schedule_op *op = &p->plan.list->ops[id];
  const bool leaves = op->kind == BPPSA_KIND_SEND && !pipeline_is_here(&p->plan, pipeline_other_worker(&p->plan, id));
  *ready = p->plan.turn == NULL || p->plan.turn[id] < 0 || p->plan.turn[id] == p->run.begun;
  for (int64_t i = op->deps; *ready && i < op->deps + op->dep_count; ++i) {
    const int32_t dep = p->plan.list->deps[i];
    if (p->plan.list->ops[dep].worker == op->worker) {
      *ready = p->run.done[dep];
      BPPSA_TRY(*ready && leaves ? bppsa_pipeline_reached(&p->streams, dep, ready) : BPPSA_OK);
    }
  }
  return BPPSA_OK;
}

static void finish(bppsa_pipeline *p, pipeline_worker *w, int64_t id) {
  const bppsa_schedule_op *op = &p->plan.list->ops[id];
  const bool reads_weights = op->kind <= BPPSA_KIND_RECOMPUTE;
  bppsa_pipeline_read(&w->arrays, id, false);
  for (int64_t layer = op->layer; reads_weights && layer < op->layer + op->layers; ++layer) {
    bppsa_pipeline_weights_read(&p->weights, id, layer);
  }
  p->run.done[id] = true;
}

/* Does what a lane can do next; *moved becomes true if there was something. */
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
    p->run.events[id].start = bppsa_now() - start;
    lane->begun = true;
    p->run.begun += p->plan.turn != NULL && p->plan.turn[id] >= 0;
  }
  BPPSA_TRY(execute(p, w, id, begin, &done));
  if (done) {
    finish(p, w, id);
    p->run.events[id].end = bppsa_now() - start;
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

/* Finds the first operation that is not over, which an error message names. */
static int64_t waiting_for(const bppsa_pipeline *p) {
  int64_t first = p->plan.list->count;
  for (int64_t i = 0; i < p->plan.workers; ++i) {
    for (int lane = 0; lane < BPPSA_LANE_COUNT; ++lane) {
      const pipeline_lane *l = &p->worker[i].lanes[lane];
      first = l->next < l->count && l->ops[l->next] < first ? l->ops[l->next] : first;
    }
  }
  return first;
}

/* Finds a message, also of a sum, or a broadcast that has begun and is not over; NULL: there is none. */
static const bppsa_comm_request *pending(const bppsa_pipeline *p) {
  for (int64_t i = 0; i < p->plan.workers; ++i) {
    for (int64_t k = 0; k < 2 * (p->plan.most_micros + 1); ++k) {
      if (p->worker[i].requests[k] != NULL) {
        return p->worker[i].requests[k];
      }
    }
  }
  for (int64_t layer = 0; layer < p->plan.layers; ++layer) {
    const bppsa_comm_request *request = bppsa_pipeline_sum_pending(&p->weights.sums[layer]);
    if (request != NULL) {
      return request;
    }
  }
  return NULL;
}

/* The failure of a run in which nothing has gone on for longer than the timeout. */
static bppsa_status stuck(const bppsa_pipeline *p, double timeout) {
  const int64_t id = waiting_for(p);
  const bppsa_schedule_op *op = &p->plan.list->ops[id];
  const bppsa_comm_request *request = pending(p);
  if (request == NULL) { /* its own operations wait for each other, which no list that the rules accept does */
    return bppsa_fail(BPPSA_ERR_COMM, "rank %" PRId64 " waited %g s: schedule %s: operation %" PRId64 ", %s of layer %d",
                      p->plan.rank, timeout, p->plan.list->scheme->id, id, bppsa_schedule_kind_name(op->kind), op->layer);
  }
  return bppsa_fail_prefix(bppsa_comm_expired(request), "schedule %s: operation %" PRId64 ", %s of layer %d",
                           p->plan.list->scheme->id, id, bppsa_schedule_kind_name(op->kind), op->layer);
}

static bppsa_status run_lanes(bppsa_pipeline *p) {
  /* messages first, so that they travel while a pass is computed */
  static const bppsa_schedule_lane order[] = {BPPSA_LANE_RECEIVE, BPPSA_LANE_SEND, BPPSA_LANE_SYNC, BPPSA_LANE_COMPUTE,
                                              BPPSA_LANE_GRADIENT};
  const double start = bppsa_now(), timeout = bppsa_comm_get_timeout(p->plan.comm);
  double latest = start;
  p->run.began = start;
  for (;;) {
    bool moved = false, over = true;
    for (int64_t i = 0; i < p->plan.workers; ++i) {
      for (size_t l = 0; l < sizeof order / sizeof *order; ++l) {
        pipeline_lane *lane = &p->worker[i].lanes[order[l]];
        const bool computes = order[l] == BPPSA_LANE_COMPUTE || order[l] == BPPSA_LANE_GRADIENT;
        BPPSA_TRY((computes ? advance : advance_messages)(p, &p->worker[i], lane, start, &moved));
        over = over && lane->next == lane->count;
      }
    }
    if (over) {
      return bppsa_pipeline_settle(&p->streams);
    }
    BPPSA_TRY(bppsa_pipeline_keep_promises(&p->streams, &moved));
    if (!moved && p->streams.on && p->streams.recorded && p->streams.aloft_count > 0) {
      BPPSA_TRY(bppsa_pipeline_settle(&p->streams)); /* nothing can be added to the recording */
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
  for (int64_t i = 0; i < p->plan.workers; ++i) {
    for (int lane = 0; lane < BPPSA_LANE_COUNT; ++lane) {
      p->worker[i].lanes[lane].next = 0;
      p->worker[i].lanes[lane].begun = false;
    }
  }
  for (int64_t id = 0; id < p->plan.list->count; ++id) {
    p->run.done[id] = p->run.taken[id] = false;
    p->run.events[id] = (bppsa_pipeline_event){NAN, NAN, -1, 0};
  }
  p->run.begun = 0;
  memset(p->run.losses, 0, (size_t)p->plan.micros * sizeof *p->run.losses);
  for (int64_t i = 0; i < PIPELINE_ARRAYS * (p->plan.layers + 1); ++i) {
    bppsa_pipeline_pool_begin(&p->pools[i]);
  }
  bppsa_pipeline_weights_begin(&p->weights, p->run.data);
  bppsa_pipeline_streams_begin(&p->streams);
}

/* One rank knows the loss of a micro-batch; the others add zeros to it. */
static bppsa_status share_losses(bppsa_pipeline *p, double *losses) {
  BPPSA_TRY(bppsa_ranks_reduce(p->plan.comm, BPPSA_COMM_SUM, BPPSA_F64, p->plan.micros, p->run.losses));
  memset(losses, 0, (size_t)p->plan.updates * sizeof *losses);
  for (int64_t m = 0; m < p->plan.micros; ++m) {
    losses[p->plan.micro[m].update] += p->run.losses[m];
  }
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_run(bppsa_pipeline *p, const bppsa_pipeline_data *data, double *losses) {
  BPPSA_REQUIRE(p != NULL && data != NULL && data->input != NULL && data->loss != NULL && losses != NULL);
  if (data->labels != NULL && (data->classes < 1 || p->plan.chain->layer[p->plan.layers - 1].out % data->classes != 0)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "pipeline: rows of %" PRId64 " classes, expected a divisor of the logits' %" PRId64,
                      data->classes, p->plan.chain->layer[p->plan.layers - 1].out);
  }
  p->run.data = data;
  begin_run(p);
  BPPSA_TRY(run_lanes(p));
  BPPSA_TRY(bppsa_pipeline_weights_end(&p->weights));
  return share_losses(p, losses);
}

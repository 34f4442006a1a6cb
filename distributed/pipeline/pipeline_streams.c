#include "distributed/pipeline/pipeline_streams.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"

enum { MOST_RECORDINGS = 64 };

static bool copies(const pipeline_plan *plan, const bppsa_schedule_op *op) {
  const bool transfer = op->kind == BPPSA_KIND_SEND || op->kind == BPPSA_KIND_RECV;
  return transfer && pipeline_is_here(plan, pipeline_other_worker(plan, op - plan->list->ops));
}

static bool computes(const bppsa_schedule_op *op) {
  return op->kind <= BPPSA_KIND_RECOMPUTE;
}

/* The stream of an operation of this rank. */
static int64_t stream_of(const pipeline_plan *plan, int64_t id) {
  const bppsa_schedule_op *op = &plan->list->ops[id];
  return op->worker / plan->ranks * BPPSA_LANE_COUNT + op->lane;
}

/* ---- creation ---- */

static bppsa_status make_stream(pipeline_streams *s, int64_t id) {
  const pipeline_plan *plan = s->plan;
  pipeline_stream *stream = &s->stream[stream_of(plan, id)];
  const bppsa_schedule_op *op = &plan->list->ops[id];
  if (!pipeline_is_here(plan, op->worker) || !(computes(op) || copies(plan, op))) {
    return BPPSA_OK;
  }
  if (stream->device == NULL) {
    stream->followed = bppsa_calloc(s->count, sizeof *stream->followed);
    BPPSA_TRY(stream->followed == NULL ? BPPSA_ERR_MEMORY : bppsa_device_fork(plan->chain->device, &stream->device));
  }
  return computes(op) && stream->chain == NULL ? plan->chain->ops->twin(plan->chain, stream->device, &stream->chain) : BPPSA_OK;
}

bppsa_status bppsa_pipeline_streams_create(pipeline_streams *s, pipeline_pool *pools) {
  const pipeline_plan *plan = s->plan;
  const bppsa_device *device = plan->chain->device;
  if (device == NULL || plan->chain->ops->twin == NULL) {
    return BPPSA_OK;
  }
  s->on = true;
  s->recorded = plan->ranks == 1 && !plan->config.unrecorded;
  s->count = plan->workers * BPPSA_LANE_COUNT;
  s->stream = bppsa_calloc(s->count + 1, sizeof *s->stream);
  s->flight = bppsa_calloc(plan->list->count, sizeof *s->flight);
  s->aloft = bppsa_calloc(plan->list->count, sizeof *s->aloft);
  if (s->stream == NULL || s->flight == NULL || s->aloft == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t id = 0; id < plan->list->count; ++id) {
    BPPSA_TRY(make_stream(s, id));
  }
  for (int64_t i = 0; i < PIPELINE_ARRAYS * (plan->layers + 1); ++i) {
    pools[i].streams = s->count;
  }
  s->loading = (pipeline_pool){.device = device, .bytes = pools[0].bytes};
  BPPSA_TRY(
      bppsa_memory_alloc_staging(device, plan->list->count * plan->most_micros * PIPELINE_HEADER + 1, (void **)&s->headers));
  return bppsa_fence_create(device, &s->fork);
}

static void free_recordings(pipeline_streams *s) {
  for (int64_t i = 0; i < s->recording_count; ++i) {
    bppsa_graph_destroy(s->plan->chain->device, s->recordings[i].graph);
    bppsa_free(s->recordings[i].calls);
  }
  bppsa_free(s->recordings);
  s->recordings = NULL;
  s->recording_count = 0;
}

void bppsa_pipeline_streams_destroy(pipeline_streams *s) {
  if (!s->on) {
    return;
  }
  for (int64_t i = 0; s->stream != NULL && i < s->count; ++i) {
    if (s->stream[i].device != NULL) {
      (void)bppsa_device_wait(s->stream[i].device);
    }
  }
  (void)bppsa_device_wait(s->plan->chain->device);
  free_recordings(s);
  for (int64_t i = 0; s->stream != NULL && i < s->count; ++i) {
    bppsa_chain_destroy(s->stream[i].chain);
    bppsa_device_destroy(s->stream[i].device);
    bppsa_free(s->stream[i].followed);
  }
  for (int64_t id = 0; s->flight != NULL && id < s->plan->list->count; ++id) {
    bppsa_fence_destroy(s->plan->chain->device, s->flight[id].fence);
  }
  bppsa_fence_destroy(s->plan->chain->device, s->fork);
  bppsa_pipeline_pool_free(&s->loading);
  bppsa_pipeline_pool_free(&s->judging);
  bppsa_pipeline_pool_free(&s->judged);
  bppsa_memory_free_staging(s->plan->chain->device, s->headers);
  void *const blocks[] = {s->stream, s->flight, s->aloft, s->due, s->calls};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

void bppsa_pipeline_streams_begin(pipeline_streams *s) {
  bppsa_pipeline_pool_begin(&s->loading);
  bppsa_pipeline_pool_begin(&s->judging);
  bppsa_pipeline_pool_begin(&s->judged);
  s->next_recording = 0;
}

/* ---- calls ---- */

static bppsa_status perform_pass(const pipeline_call *c, bppsa_chain *chain, int64_t samples) {
  const bppsa_chain_ops *ops = chain->ops;
  switch ((pipeline_call_kind)c->kind) {
  case PIPELINE_FORWARD:
    return ops->forward(chain, c->layer, samples, c->weights, c->x, c->kept, c->y);
  case PIPELINE_BACKWARD:
    return ops->backward(chain, c->layer, samples, c->weights, c->dy, c->x, c->y, c->kept, c->gradients, c->dx);
  case PIPELINE_WEIGHT_GRADIENT:
    return ops->weight_gradient(chain, c->layer, samples, c->weights, c->dy, c->x, c->y, c->kept, c->gradients);
  default:
    return ops->input_gradient(chain, c->layer, samples, c->weights, c->dy, c->x, c->y, c->kept, c->dx);
  }
}

static bppsa_status perform_loss(const pipeline_plan *plan, const pipeline_call *c, const bppsa_device *device) {
  const int64_t shape[] = {pipeline_rows_of(plan, c->layer), c->layer};
  const bppsa_view logits = pipeline_view_of(plan, c->x, plan->chain->dtype, 2, shape);
  const bppsa_view seed = pipeline_view_of(plan, c->y, plan->chain->dtype, 2, shape);
  return bppsa_loss_part_queue(device, &logits, c->dy, c->bytes, &seed, c->kept, c->dx);
}

static bppsa_status perform(pipeline_streams *s, const pipeline_call *c) {
  const pipeline_stream *stream = &s->stream[c->stream];
  pipeline_flight *flight = &s->flight[c->op];
  switch ((pipeline_call_kind)c->kind) {
  case PIPELINE_COPY:
    return bppsa_memory_queue_copy(stream->device, c->y, c->bytes, c->x, c->bytes, c->bytes, 1);
  case PIPELINE_PUT:
    return bppsa_memory_queue_put(stream->device, c->y, c->x, c->bytes);
  case PIPELINE_GET:
    return bppsa_memory_queue_get(stream->device, c->y, c->x, c->bytes);
  case PIPELINE_LOSS:
    return perform_loss(s->plan, c, stream->device);
  case PIPELINE_SET:
    return bppsa_fence_set(stream->device, flight->fence);
  case PIPELINE_FOLLOW:
    return bppsa_fence_follow(stream->device, flight->fence);
  default:
    return perform_pass(c, stream->chain, s->plan->samples);
  }
}

static bppsa_status collect(pipeline_streams *s, const pipeline_call *call) {
  BPPSA_TRY(bppsa_grow(&s->calls, s->call_count, &s->call_room, sizeof *s->calls));
  s->calls[s->call_count++] = *call;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_queue(pipeline_streams *s, int64_t id, const pipeline_call *call) {
  if (!s->on) {
    return perform_pass(call, s->plan->chain, s->plan->samples);
  }
  pipeline_call made = *call;
  made.stream = stream_of(s->plan, id);
  made.op = call->kind == PIPELINE_FOLLOW ? call->op : id;
  return s->recorded ? collect(s, &made) : perform(s, &made);
}

/* ---- order ---- */

/* Lets the stream of operation `id` go on behind operation `first` of another stream. */
static bppsa_status follow(pipeline_streams *s, int64_t id, int32_t first) {
  const pipeline_flight *flight = &s->flight[first];
  int64_t *followed = &s->stream[stream_of(s->plan, id)].followed[stream_of(s->plan, first)];
  const pipeline_call call = {.kind = PIPELINE_FOLLOW, .op = first};
  if (!flight->aloft || *followed >= flight->place) {
    return BPPSA_OK;
  }
  *followed = flight->place;
  return bppsa_pipeline_queue(s, id, &call);
}

bppsa_status bppsa_pipeline_use(pipeline_streams *s, int64_t id, const pipeline_slot *slot, bool writes) {
  if (!s->on) {
    return BPPSA_OK;
  }
  const int64_t mine = stream_of(s->plan, id);
  BPPSA_TRY(slot->block->uses[0] == PIPELINE_HERE ? bppsa_pipeline_after_here(s, id) : BPPSA_OK);
  for (int64_t i = 0; i <= s->count; ++i) { /* the operation that wrote it; the latest on each stream */
    if (slot->block->uses[i] >= 0 && stream_of(s->plan, slot->block->uses[i]) != mine && (writes || i == 0)) {
      BPPSA_TRY(follow(s, id, slot->block->uses[i]));
    }
  }
  slot->block->uses[0] = writes ? (int32_t)id : slot->block->uses[0];
  slot->block->uses[1 + mine] = (int32_t)id;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_use_here(pipeline_streams *s, const pipeline_slot *slot) {
  for (int64_t i = 0; s->on && i <= s->count; ++i) {
    const int32_t user = slot->block->uses[i];
    if (user >= 0 && s->flight[user].aloft) {
      BPPSA_TRY(s->recorded ? bppsa_pipeline_settle(s) : bppsa_fence_follow(s->plan->chain->device, s->flight[user].fence));
    }
    slot->block->uses[i] = i == 0 ? PIPELINE_HERE : -1;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_after_here(pipeline_streams *s, int64_t id) {
  if (!s->on || s->recorded) { /* a recording is launched on the chain's stream */
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_fence_set(s->plan->chain->device, s->fork));
  return bppsa_fence_follow(s->stream[stream_of(s->plan, id)].device, s->fork);
}

bppsa_status bppsa_pipeline_queued(pipeline_streams *s, int64_t id) {
  const pipeline_call call = {.kind = PIPELINE_SET};
  if (!s->on) {
    return BPPSA_OK;
  }
  pipeline_flight *flight = &s->flight[id];
  if (flight->fence == NULL) {
    BPPSA_TRY(bppsa_fence_create(s->plan->chain->device, &flight->fence));
  }
  BPPSA_TRY(bppsa_pipeline_queue(s, id, &call));
  flight->place = ++s->places;
  flight->aloft = true;
  s->aloft[s->aloft_count++] = (int32_t)id;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_reached(pipeline_streams *s, int64_t id, bool *reached) {
  *reached = !s->on || !s->flight[id].aloft;
  if (!*reached && !s->recorded) {
    BPPSA_TRY(bppsa_fence_reached(s->plan->chain->device, s->flight[id].fence, reached));
    s->flight[id].aloft = !*reached;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_worker_reached(pipeline_streams *s, int64_t worker, bool *reached) {
  int64_t left = 0;
  *reached = true;
  for (int64_t i = 0; i < s->aloft_count; ++i) {
    const int32_t id = s->aloft[i];
    if (*reached && s->plan->list->ops[id].worker == worker) {
      BPPSA_TRY(bppsa_pipeline_reached(s, id, reached));
    }
    if (s->flight[id].aloft) {
      s->aloft[left++] = id;
    }
  }
  s->aloft_count = left;
  return BPPSA_OK;
}

/* ---- promises ---- */

bppsa_status bppsa_pipeline_promise(pipeline_streams *s, const pipeline_due *due) {
  BPPSA_TRY(bppsa_grow(&s->due, s->due_count, &s->due_room, sizeof *s->due));
  s->due[s->due_count++] = *due;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_judge(pipeline_streams *s, int64_t rows, pipeline_due *due) {
  s->judging.device = s->judged.device = s->plan->chain->device;
  s->judging.bytes = (size_t)bppsa_loss_part_memory(rows);
  s->judged.bytes = (size_t)(rows * (int64_t)sizeof(int64_t) + bppsa_loss_found_bytes());
  s->judged.staging = true;
  due->pool = &s->judging;
  BPPSA_TRY(bppsa_pipeline_pool_take(&s->judging, &due->block));
  BPPSA_TRY(bppsa_pipeline_pool_take(&s->judged, &due->staged));
  return bppsa_pipeline_promise(s, due);
}

/* Gives back the memory that a promise holds. */
static void give_back(pipeline_streams *s, const pipeline_due *due) {
  if (due->pool != NULL) {
    bppsa_pipeline_pool_give(due->pool, due->block);
  }
  if (due->staged != NULL) {
    bppsa_pipeline_pool_give(&s->judged, due->staged);
  }
}

bppsa_status bppsa_pipeline_keep_promises(pipeline_streams *s, bool *moved) {
  bool reached = true;
  while (reached && s->first_due < s->due_count) {
    const pipeline_due due = s->due[s->first_due];
    BPPSA_TRY(bppsa_pipeline_reached(s, due.op, &reached));
    if (reached) {
      s->first_due++;
      const bppsa_status status = s->keep(s->context, &due);
      give_back(s, &due);
      BPPSA_TRY(status);
      *moved = true;
    }
  }
  if (s->first_due == s->due_count) {
    s->first_due = s->due_count = 0;
  }
  return BPPSA_OK;
}

/* ---- recordings ---- */

static bppsa_status perform_all(pipeline_streams *s, const pipeline_call *calls, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(perform(s, &calls[i]));
  }
  return BPPSA_OK;
}

/* Lets all streams begin behind the chain's (`begin`), or the chain's go on behind all of them. */
static bppsa_status branch(pipeline_streams *s, bool begin) {
  const bppsa_device *trunk = s->plan->chain->device;
  BPPSA_TRY(begin ? bppsa_fence_set(trunk, s->fork) : BPPSA_OK);
  for (int64_t i = 0; i < s->count; ++i) {
    const bppsa_device *stream = s->stream[i].device;
    if (stream != NULL) {
      BPPSA_TRY(begin ? BPPSA_OK : bppsa_fence_set(stream, s->fork));
      BPPSA_TRY(bppsa_fence_follow(begin ? stream : trunk, s->fork));
    }
  }
  return BPPSA_OK;
}

/* The work of bppsa_graph_capture. */
static bppsa_status queue_all(void *context) {
  pipeline_streams *s = context;
  BPPSA_TRY(branch(s, true));
  BPPSA_TRY(perform_all(s, s->calls, s->call_count));
  return branch(s, false);
}

/* Notes the calls. They are recorded when they come again, because the first time may load kernels, and many lists run once. */
static bppsa_status note(pipeline_streams *s) {
  const size_t bytes = (size_t)s->call_count * sizeof *s->calls;
  if (s->recordings == NULL) {
    s->recordings = bppsa_calloc(MOST_RECORDINGS, sizeof *s->recordings);
  }
  pipeline_call *calls = s->recordings == NULL ? NULL : bppsa_alloc(bytes);
  if (calls == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memcpy(calls, s->calls, bytes);
  s->recordings[s->recording_count++] = (pipeline_recording){.calls = calls, .count = s->call_count};
  s->next_recording = s->recording_count;
  return BPPSA_OK;
}

/* Finds the recording of the collected calls, and looks first at the one that comes next in a run; NULL: there is none. */
static pipeline_recording *find_recording(pipeline_streams *s) {
  for (int64_t i = 0; i < s->recording_count; ++i) {
    const int64_t k = (s->next_recording + i) % s->recording_count;
    pipeline_recording *r = &s->recordings[k];
    if (r->count == s->call_count && memcmp(r->calls, s->calls, (size_t)r->count * sizeof *r->calls) == 0) {
      s->next_recording = k + 1;
      return r;
    }
  }
  return NULL;
}

/* Launches the collected calls as a graph. It queues them instead when they come for the first time, when more different recordings
 * are needed than are kept, and when the GPU does not record. */
static bppsa_status launch(pipeline_streams *s) {
  pipeline_recording *r = find_recording(s);
  if (r == NULL && s->recording_count < MOST_RECORDINGS) {
    BPPSA_TRY(note(s));
  } else if (r != NULL && r->graph == NULL && !s->refused) {
    const bppsa_status status = bppsa_graph_capture(s->plan->chain->device, queue_all, s, &r->graph);
    s->refused = status == BPPSA_ERR_CUDA;
    BPPSA_TRY(s->refused ? BPPSA_OK : status);
  }
  if (r == NULL || r->graph == NULL) {
    BPPSA_TRY(branch(s, true));
    return perform_all(s, s->calls, s->call_count);
  }
  s->launches++;
  return bppsa_graph_launch(s->plan->chain->device, r->graph);
}

bppsa_status bppsa_pipeline_settle(pipeline_streams *s) {
  bool moved;
  if (!s->on) {
    return BPPSA_OK;
  }
  if (s->call_count > 0) {
    BPPSA_TRY(launch(s));
    s->call_count = 0;
  }
  BPPSA_TRY(bppsa_device_wait(s->plan->chain->device));
  for (int64_t i = 0; i < s->count; ++i) {
    BPPSA_TRY(s->stream[i].device != NULL ? bppsa_device_wait(s->stream[i].device) : BPPSA_OK);
  }
  for (int64_t i = 0; i < s->aloft_count; ++i) {
    s->flight[s->aloft[i]].aloft = false;
  }
  s->aloft_count = 0;
  return bppsa_pipeline_keep_promises(s, &moved);
}

void *bppsa_pipeline_header(const pipeline_streams *s, int64_t id, int64_t index) {
  return s->headers + (id * s->plan->most_micros + index) * PIPELINE_HEADER;
}

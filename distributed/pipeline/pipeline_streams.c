/* The executor's lanes on a GPU: streams, the fences between them, and what the host does once the GPU has come to an operation.
 * Where one rank does the whole list, the work up to the next point at which the host must know a result is recorded as a graph. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "distributed/pipeline/pipeline_internal.h"

enum { MOST_RECORDINGS = 64 };

static bool copies(const bppsa_pipeline *p, const bppsa_schedule_op *op) {
  const bool transfer = op->kind == BPPSA_KIND_SEND || op->kind == BPPSA_KIND_RECV;
  return transfer && pipeline_rank_of(p, p->list->ops[p->transfers[op - p->list->ops].other].worker) == p->rank;
}

static bool computes(const bppsa_schedule_op *op) {
  return op->kind <= BPPSA_KIND_RECOMPUTE;
}

/* The stream of an operation of this rank. */
static int64_t stream_of(const bppsa_pipeline *p, int64_t id) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  return op->worker / p->ranks * BPPSA_LANE_COUNT + op->lane;
}

/* ---- creation ---- */

static bppsa_status make_stream(bppsa_pipeline *p, int64_t id) {
  pipeline_stream *stream = &p->streams->stream[stream_of(p, id)];
  const bppsa_schedule_op *op = &p->list->ops[id];
  if (op->worker % p->ranks != p->rank || !(computes(op) || copies(p, op))) {
    return BPPSA_OK;
  }
  if (stream->device == NULL) {
    stream->followed = bppsa_calloc(p->streams->count, sizeof *stream->followed);
    BPPSA_TRY(stream->followed == NULL ? BPPSA_ERR_MEMORY : bppsa_device_fork(p->chain->device, &stream->device));
  }
  return computes(op) && stream->chain == NULL ? p->chain->ops->twin(p->chain, stream->device, &stream->chain) : BPPSA_OK;
}

bppsa_status bppsa_pipeline_streams_create(bppsa_pipeline *p) {
  if (p->chain->device == NULL || p->chain->ops->twin == NULL) {
    return BPPSA_OK;
  }
  pipeline_streams *s = bppsa_calloc(1, sizeof *s);
  if (s == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  p->streams = s;
  s->recorded = p->ranks == 1 && !p->config.unrecorded;
  s->count = p->workers * BPPSA_LANE_COUNT;
  s->stream = bppsa_calloc(s->count + 1, sizeof *s->stream);
  s->flight = bppsa_calloc(p->list->count, sizeof *s->flight);
  s->aloft = bppsa_calloc(p->list->count, sizeof *s->aloft);
  if (s->stream == NULL || s->flight == NULL || s->aloft == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t id = 0; id < p->list->count; ++id) {
    BPPSA_TRY(make_stream(p, id));
  }
  for (int64_t i = 0; i < PIPELINE_ARRAYS * (p->layers + 1); ++i) {
    p->pools[i].streams = s->count;
  }
  for (int64_t layer = 0; layer < p->layers; ++layer) {
    p->sums[layer].parts = (pipeline_pool){
        .device = p->chain->device, .bytes = (size_t)p->sums[layer].count * bppsa_dtype_size(p->chain->dtype) + BPPSA_ALIGNMENT};
  }
  s->loading = (pipeline_pool){.device = p->chain->device, .bytes = p->pools[0].bytes};
  BPPSA_TRY(
      bppsa_memory_alloc_staging(p->chain->device, p->list->count * p->most_micros * PIPELINE_HEADER + 1, (void **)&s->headers));
  return bppsa_fence_create(p->chain->device, &s->fork);
}

static void free_recordings(bppsa_pipeline *p) {
  pipeline_streams *s = p->streams;
  for (int64_t i = 0; i < s->recording_count; ++i) {
    bppsa_graph_destroy(p->chain->device, s->recordings[i].graph);
    bppsa_free(s->recordings[i].calls);
  }
  bppsa_free(s->recordings);
  s->recordings = NULL;
  s->recording_count = 0;
}

/* Gives back the memory that a promise holds. */
static void give_back(bppsa_pipeline *p, const pipeline_due *due) {
  pipeline_streams *s = p->streams;
  if (due->what == PIPELINE_ADD) {
    bppsa_pipeline_pool_give(&p->sums[due->layer].parts, due->memory);
  } else if (due->what == PIPELINE_LOADED) {
    bppsa_pipeline_pool_give(&s->loading, due->memory);
  } else if (due->what == PIPELINE_JUDGED) {
    bppsa_pipeline_pool_give(&s->judging, due->memory);
    bppsa_pipeline_pool_give(&s->judged, due->staged);
  }
}

void bppsa_pipeline_streams_destroy(bppsa_pipeline *p) {
  pipeline_streams *s = p->streams;
  if (s == NULL) {
    return;
  }
  for (int64_t i = 0; s->stream != NULL && i < s->count; ++i) {
    if (s->stream[i].device != NULL) {
      (void)bppsa_device_wait(s->stream[i].device);
    }
  }
  (void)bppsa_device_wait(p->chain->device);
  for (; s->first_due < s->due_count; ++s->first_due) { /* promises that a failed run does not keep */
    give_back(p, &s->due[s->first_due]);
  }
  free_recordings(p);
  for (int64_t i = 0; s->stream != NULL && i < s->count; ++i) {
    bppsa_chain_destroy(s->stream[i].chain);
    bppsa_device_destroy(s->stream[i].device);
    bppsa_free(s->stream[i].followed);
  }
  for (int64_t id = 0; s->flight != NULL && id < p->list->count; ++id) {
    bppsa_fence_destroy(p->chain->device, s->flight[id].fence);
  }
  bppsa_fence_destroy(p->chain->device, s->fork);
  bppsa_pipeline_pool_free(&s->loading);
  bppsa_pipeline_pool_free(&s->judging);
  bppsa_pipeline_pool_free(&s->judged);
  bppsa_memory_free_staging(p->chain->device, s->headers);
  void *const blocks[] = {s->stream, s->flight, s->aloft, s->due, s->calls, s};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
  p->streams = NULL;
}

void bppsa_pipeline_streams_begin(bppsa_pipeline *p) {
  for (int64_t i = 0; i < PIPELINE_ARRAYS * (p->layers + 1); ++i) {
    bppsa_pipeline_pool_begin(&p->pools[i]);
  }
  for (int64_t layer = 0; layer < p->layers; ++layer) {
    bppsa_pipeline_pool_begin(&p->sums[layer].parts);
  }
  if (p->streams != NULL) {
    bppsa_pipeline_pool_begin(&p->streams->loading);
    bppsa_pipeline_pool_begin(&p->streams->judging);
    bppsa_pipeline_pool_begin(&p->streams->judged);
    p->streams->next_recording = 0;
  }
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

static bppsa_status perform_loss(const bppsa_pipeline *p, const pipeline_call *c, const bppsa_device *device) {
  const int64_t shape[] = {pipeline_rows_of(p), c->layer};
  const bppsa_view logits = pipeline_view_of(p, c->x, p->chain->dtype, 2, shape);
  const bppsa_view seed = pipeline_view_of(p, c->y, p->chain->dtype, 2, shape);
  return bppsa_loss_part_queue(device, &logits, c->dy, c->bytes, &seed, c->kept, c->dx);
}

static bppsa_status perform(bppsa_pipeline *p, const pipeline_call *c) {
  const pipeline_stream *stream = &p->streams->stream[c->stream];
  pipeline_flight *flight = &p->streams->flight[c->op];
  switch ((pipeline_call_kind)c->kind) {
  case PIPELINE_COPY:
    return bppsa_memory_queue_copy(stream->device, c->y, c->bytes, c->x, c->bytes, c->bytes, 1);
  case PIPELINE_PUT:
    return bppsa_memory_queue_put(stream->device, c->y, c->x, c->bytes);
  case PIPELINE_GET:
    return bppsa_memory_queue_get(stream->device, c->y, c->x, c->bytes);
  case PIPELINE_LOSS:
    return perform_loss(p, c, stream->device);
  case PIPELINE_SET:
    return bppsa_fence_set(stream->device, flight->fence);
  case PIPELINE_FOLLOW:
    return bppsa_fence_follow(stream->device, flight->fence);
  default:
    return perform_pass(c, stream->chain, p->samples);
  }
}

static bppsa_status collect(pipeline_streams *s, const pipeline_call *call) {
  if (s->call_count == s->call_room) {
    const int64_t room = s->call_room < 64 ? 64 : 2 * s->call_room;
    pipeline_call *grown = bppsa_realloc(s->calls, (size_t)room * sizeof *grown);
    if (grown == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    s->calls = grown;
    s->call_room = room;
  }
  s->calls[s->call_count++] = *call;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_queue(bppsa_pipeline *p, int64_t id, const pipeline_call *call) {
  if (p->streams == NULL) {
    return perform_pass(call, p->chain, p->samples);
  }
  pipeline_call made = *call; /* the caller has set all bytes to 0 first, so that equal calls are equal byte by byte */
  made.stream = stream_of(p, id);
  made.op = call->kind == PIPELINE_FOLLOW ? call->op : id;
  return p->streams->recorded ? collect(p->streams, &made) : perform(p, &made);
}

/* ---- order ---- */

/* The stream runs on behind operation `first`, which another stream has queued. */
static bppsa_status follow(bppsa_pipeline *p, int64_t id, int32_t first) {
  pipeline_streams *s = p->streams;
  const pipeline_flight *flight = &s->flight[first];
  int64_t *followed = &s->stream[stream_of(p, id)].followed[stream_of(p, first)];
  pipeline_call call;
  if (!flight->aloft || *followed >= flight->place) {
    return BPPSA_OK;
  }
  *followed = flight->place;
  memset(&call, 0, sizeof call);
  call.kind = PIPELINE_FOLLOW;
  call.op = first;
  return bppsa_pipeline_queue(p, id, &call);
}

bppsa_status bppsa_pipeline_use(bppsa_pipeline *p, int64_t id, const pipeline_slot *slot, bool writes) {
  if (p->streams == NULL) {
    return BPPSA_OK;
  }
  const int64_t mine = stream_of(p, id);
  BPPSA_TRY(slot->uses[0] == PIPELINE_HERE ? bppsa_pipeline_after_here(p, id) : BPPSA_OK);
  for (int64_t i = 0; i <= p->streams->count; ++i) { /* its writer; the latest on each stream */
    if (slot->uses[i] >= 0 && stream_of(p, slot->uses[i]) != mine && (writes || i == 0)) {
      BPPSA_TRY(follow(p, id, slot->uses[i]));
    }
  }
  slot->uses[0] = writes ? (int32_t)id : slot->uses[0];
  slot->uses[1 + mine] = (int32_t)id;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_use_here(bppsa_pipeline *p, const pipeline_slot *slot) {
  pipeline_streams *s = p->streams;
  for (int64_t i = 0; s != NULL && i <= s->count; ++i) {
    const int32_t user = slot->uses[i];
    if (user >= 0 && s->flight[user].aloft) {
      BPPSA_TRY(s->recorded ? bppsa_pipeline_settle(p) : bppsa_fence_follow(p->chain->device, s->flight[user].fence));
    }
    slot->uses[i] = i == 0 ? PIPELINE_HERE : -1;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_after_here(bppsa_pipeline *p, int64_t id) {
  const pipeline_streams *s = p->streams;
  if (s == NULL || s->recorded) { /* a recording is launched on the chain's stream */
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_fence_set(p->chain->device, s->fork));
  return bppsa_fence_follow(s->stream[stream_of(p, id)].device, s->fork);
}

bppsa_status bppsa_pipeline_queued(bppsa_pipeline *p, int64_t id) {
  pipeline_streams *s = p->streams;
  pipeline_call call;
  if (s == NULL) {
    return BPPSA_OK;
  }
  pipeline_flight *flight = &s->flight[id];
  if (flight->fence == NULL) {
    BPPSA_TRY(bppsa_fence_create(p->chain->device, &flight->fence));
  }
  memset(&call, 0, sizeof call);
  call.kind = PIPELINE_SET;
  BPPSA_TRY(bppsa_pipeline_queue(p, id, &call));
  flight->place = ++s->places;
  flight->aloft = true;
  s->aloft[s->aloft_count++] = (int32_t)id;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_reached(bppsa_pipeline *p, int64_t id, bool *reached) {
  pipeline_streams *s = p->streams;
  *reached = s == NULL || !s->flight[id].aloft;
  if (!*reached && !s->recorded) {
    BPPSA_TRY(bppsa_fence_reached(p->chain->device, s->flight[id].fence, reached));
    s->flight[id].aloft = !*reached;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_worker_reached(bppsa_pipeline *p, int64_t worker, bool *reached) {
  pipeline_streams *s = p->streams;
  const int64_t count = s != NULL ? s->aloft_count : 0;
  int64_t left = 0;
  *reached = true;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t id = s->aloft[i];
    if (*reached && p->list->ops[id].worker == worker) {
      BPPSA_TRY(bppsa_pipeline_reached(p, id, reached));
    }
    if (s->flight[id].aloft) {
      s->aloft[left++] = id;
    }
  }
  if (s != NULL) {
    s->aloft_count = left;
  }
  return BPPSA_OK;
}

/* ---- promises ---- */

bppsa_status bppsa_pipeline_promise(bppsa_pipeline *p, const pipeline_due *due) {
  pipeline_streams *s = p->streams;
  if (s->due_count == s->due_room) {
    const int64_t room = s->due_room < 16 ? 16 : 2 * s->due_room;
    pipeline_due *grown = bppsa_realloc(s->due, (size_t)room * sizeof *grown);
    if (grown == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    s->due = grown;
    s->due_room = room;
  }
  s->due[s->due_count++] = *due;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_judge(bppsa_pipeline *p, pipeline_due *due) {
  pipeline_streams *s = p->streams;
  const int64_t rows = pipeline_rows_of(p);
  s->judging.device = s->judged.device = p->chain->device;
  s->judging.bytes = (size_t)bppsa_loss_part_memory(rows);
  s->judged.bytes = (size_t)(rows * (int64_t)sizeof(int64_t) + bppsa_loss_found_bytes());
  s->judged.staging = true;
  BPPSA_TRY(bppsa_pipeline_pool_take(&s->judging, &due->memory));
  BPPSA_TRY(bppsa_pipeline_pool_take(&s->judged, &due->staged));
  return bppsa_pipeline_promise(p, due);
}

static bppsa_status keep(bppsa_pipeline *p, const pipeline_due *due) {
  bppsa_status status = BPPSA_OK;
  if (due->what == PIPELINE_ADD) {
    status = bppsa_pipeline_sum_add(p, due->micro, due->layer, due->memory);
  } else if (due->what == PIPELINE_TAG) {
    status = bppsa_pipeline_check_tag(p, due->op, due->micro);
  } else if (due->what == PIPELINE_JUDGED) {
    bppsa_pipeline_judged(p, due);
  }
  give_back(p, due);
  return status;
}

bppsa_status bppsa_pipeline_keep_promises(bppsa_pipeline *p, bool *moved) {
  pipeline_streams *s = p->streams;
  bool reached = s != NULL;
  while (reached && s->first_due < s->due_count) {
    const pipeline_due due = s->due[s->first_due];
    BPPSA_TRY(bppsa_pipeline_reached(p, due.op, &reached));
    if (reached) {
      s->first_due++;
      BPPSA_TRY(keep(p, &due));
      *moved = true;
    }
  }
  if (s != NULL && s->first_due == s->due_count) {
    s->first_due = s->due_count = 0;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_part_take(bppsa_pipeline *p, int64_t id, int64_t micro, int64_t layer, void **part) {
  pipeline_sum *sum = &p->sums[layer];
  pipeline_due due = {.what = PIPELINE_ADD, .op = (int32_t)id, .micro = micro, .layer = layer};
  *part = sum->part;
  if (p->streams == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_pipeline_pool_take(&sum->parts, part));
  due.memory = *part;
  BPPSA_TRY(bppsa_pipeline_after_here(p, id)); /* a sum may still read it */
  return bppsa_pipeline_promise(p, &due);
}

/* ---- recordings ---- */

static bppsa_status perform_all(bppsa_pipeline *p, const pipeline_call *calls, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(perform(p, &calls[i]));
  }
  return BPPSA_OK;
}

/* All streams begin behind the chain's (`begin`), or it runs on behind all of them. */
static bppsa_status branch(bppsa_pipeline *p, bool begin) {
  pipeline_streams *s = p->streams;
  const bppsa_device *trunk = p->chain->device;
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
  bppsa_pipeline *p = context;
  BPPSA_TRY(branch(p, true));
  BPPSA_TRY(perform_all(p, p->streams->calls, p->streams->call_count));
  return branch(p, false);
}

/* Notes the calls. They are recorded when they come again: a first time may load kernels, and many lists run once. */
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

/* The recording of the collected calls, of those that come next in a run first; NULL: there is none. */
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

/* Launches the collected calls as a graph; or queues them: the first time, where more different ones are needed than are kept, or
 * where a GPU does not record. */
static bppsa_status launch(bppsa_pipeline *p) {
  pipeline_streams *s = p->streams;
  pipeline_recording *r = find_recording(s);
  if (r == NULL && s->recording_count < MOST_RECORDINGS) {
    BPPSA_TRY(note(s));
  } else if (r != NULL && r->graph == NULL && !s->refused) {
    const bppsa_status status = bppsa_graph_capture(p->chain->device, queue_all, p, &r->graph);
    s->refused = status == BPPSA_ERR_CUDA;
    BPPSA_TRY(s->refused ? BPPSA_OK : status);
  }
  if (r == NULL || r->graph == NULL) {
    BPPSA_TRY(branch(p, true));
    return perform_all(p, s->calls, s->call_count);
  }
  s->launches++;
  return bppsa_graph_launch(p->chain->device, r->graph);
}

bppsa_status bppsa_pipeline_settle(bppsa_pipeline *p) {
  pipeline_streams *s = p->streams;
  bool moved;
  if (s == NULL) {
    return BPPSA_OK;
  }
  if (s->call_count > 0) {
    BPPSA_TRY(launch(p));
    s->call_count = 0;
  }
  BPPSA_TRY(bppsa_device_wait(p->chain->device));
  for (int64_t i = 0; i < s->count; ++i) {
    BPPSA_TRY(s->stream[i].device != NULL ? bppsa_device_wait(s->stream[i].device) : BPPSA_OK);
  }
  for (int64_t i = 0; i < s->aloft_count; ++i) {
    s->flight[s->aloft[i]].aloft = false;
  }
  s->aloft_count = 0;
  return bppsa_pipeline_keep_promises(p, &moved);
}

void *bppsa_pipeline_header(const bppsa_pipeline *p, int64_t id, int64_t index) {
  return p->streams->headers + (id * p->most_micros + index) * PIPELINE_HEADER;
}

void bppsa_pipeline_recordings(const bppsa_pipeline *p, int64_t *made, int64_t *launches) {
  const pipeline_streams *s = p->streams;
  *made = 0;
  *launches = s != NULL ? s->launches : 0;
  for (int64_t i = 0; s != NULL && i < s->recording_count; ++i) {
    *made += s->recordings[i].graph != NULL;
  }
}

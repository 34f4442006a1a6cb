/* The executor of schedules: messages between ranks, and between workers of one rank. */
#include <inttypes.h>
#include <string.h>

#include "core/compute/memory.h"
#include "distributed/pipeline/pipeline_internal.h"

typedef struct {
  int64_t kind, layer, micro, update, version, unused[3];
} header;

_Static_assert(sizeof(header) == PIPELINE_HEADER, "a header fills its place");

static pipeline_array array_sent(const bppsa_pipeline *p, int64_t id, int64_t *layer) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  *layer = p->transfers[id].gradients ? op->layer : op->layer + op->layers;
  return p->transfers[id].gradients ? PIPELINE_GRADIENTS : PIPELINE_VALUES;
}

/* The operation that makes what a SEND carries. */
static int32_t source_of(const bppsa_pipeline *p, int64_t send) {
  return p->list->deps[p->list->ops[send].deps];
}

/* The version that made what a SEND carries, by the list; -1: layers without weights. */
static int64_t version_of(const bppsa_pipeline *p, int64_t send) {
  const bppsa_schedule_op *op = &p->list->ops[source_of(p, send)];
  bool reads = false;
  for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
    reads = reads || p->chain->layer[layer].parameters > 0;
  }
  return reads ? op->weight_version + p->runs * p->updates : -1;
}

static header header_of(const bppsa_pipeline *p, int64_t send, int64_t micro, int64_t version) {
  int64_t layer;
  const pipeline_array array = array_sent(p, send, &layer);
  return (header){
      .kind = array, .layer = layer, .micro = micro, .update = pipeline_micro_of(p, micro).update, .version = version};
}

static bppsa_view message_of(const bppsa_pipeline *p, pipeline_slot *slot, pipeline_array array, int64_t layer) {
  const int64_t words = (PIPELINE_HEADER + bppsa_pipeline_bytes(p, array, layer) + 7) / 8;
  return pipeline_view_of(p, slot->block, BPPSA_I64, 1, &words);
}

/* Messages between two workers arrive in order; those of other workers on the same ranks have other tags. */
static int32_t tag_of(const bppsa_pipeline *p, pipeline_array array, const bppsa_schedule_op *from, const bppsa_schedule_op *to) {
  const int64_t most = (p->list->workers + p->ranks - 1) / p->ranks; /* workers on a rank */
  const int64_t pair = from->worker / p->ranks * most + to->worker / p->ranks;
  return p->config.tag + (int32_t)(p->layers + 2 * pair + (array == PIPELINE_GRADIENTS));
}

/* A header of a message within this rank, to (`put`) or from its place in staging memory. */
static bppsa_status move_header(bppsa_pipeline *p, pipeline_worker *w, int64_t id, int64_t micro, bool put) {
  int64_t layer;
  const pipeline_array array = array_sent(p, id, &layer);
  const pipeline_slot *slot = pipeline_slot_of(p, w, array, micro, layer);
  void *staged = bppsa_pipeline_header(p, id, micro - pipeline_span_of(p, &p->list->ops[id]).first);
  pipeline_call call;
  BPPSA_TRY(bppsa_pipeline_use(p, id, slot, put));
  if (put) {
    const header about = header_of(p, id, micro, p->events[source_of(p, id)].version);
    memcpy(staged, &about, sizeof about);
  }
  memset(&call, 0, sizeof call);
  call.kind = put ? PIPELINE_PUT : PIPELINE_GET;
  call.x = put ? staged : slot->block;
  call.y = put ? slot->block : staged;
  call.bytes = PIPELINE_HEADER;
  return bppsa_pipeline_queue(p, id, &call);
}

static bppsa_status begin_send(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bppsa_comm_request **requests) {
  const bppsa_schedule_op *op = &p->list->ops[id], *other = &p->list->ops[p->transfers[id].other];
  int64_t layer;
  const pipeline_array array = array_sent(p, id, &layer);
  const pipeline_span span = pipeline_span_of(p, op);
  const bool here = pipeline_local(p, other->worker) != NULL;
  for (int64_t micro = span.first; micro < span.end; ++micro) {
    pipeline_slot *slot = pipeline_slot_of(p, w, array, micro, layer);
    if (slot->block == NULL) {
      return bppsa_pipeline_fail_at(p, id, "what it sends is not there");
    }
    if (here && p->streams != NULL) {
      BPPSA_TRY(move_header(p, w, id, micro, true));
      continue;
    }
    const header about = header_of(p, id, micro, p->events[source_of(p, id)].version);
    BPPSA_TRY(bppsa_memory_put(p->chain->device, slot->block, &about, sizeof about));
    if (!here) {
      const bppsa_view view = message_of(p, slot, array, layer);
      BPPSA_TRY(bppsa_comm_isend(p->comm, (int32_t)pipeline_rank_of(p, other->worker), tag_of(p, array, op, other), &view,
                                 &requests[micro - span.first]));
    }
  }
  return here ? bppsa_pipeline_queued(p, id) : BPPSA_OK;
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
    if (pipeline_local(p, other->worker) == NULL) {
      BPPSA_TRY(bppsa_pipeline_use_here(p, slot));
      BPPSA_TRY(bppsa_comm_irecv(p->comm, (int32_t)pipeline_rank_of(p, other->worker), tag_of(p, array, other, op), &view,
                                 &requests[micro - span.first]));
    }
  }
  return BPPSA_OK;
}

static bppsa_status take_over_micro(bppsa_pipeline *p, pipeline_worker *w, pipeline_worker *from, int64_t id, int64_t micro) {
  int64_t layer;
  const pipeline_array array = array_sent(p, id, &layer);
  const pipeline_slot *to = pipeline_slot_of(p, w, array, micro, layer), *source = pipeline_slot_of(p, from, array, micro, layer);
  pipeline_call call;
  memset(&call, 0, sizeof call);
  call.kind = PIPELINE_COPY;
  call.x = source->block;
  call.y = to->block;
  call.bytes = PIPELINE_HEADER + bppsa_pipeline_bytes(p, array, layer);
  if (p->streams == NULL) {
    return bppsa_memory_queue_copy(p->chain->device, to->block, call.bytes, source->block, call.bytes, call.bytes, 1);
  }
  const pipeline_due due = {.what = PIPELINE_TAG, .op = (int32_t)id, .micro = micro};
  BPPSA_TRY(bppsa_pipeline_use(p, id, source, false));
  BPPSA_TRY(bppsa_pipeline_use(p, id, to, true));
  BPPSA_TRY(bppsa_pipeline_queue(p, id, &call));
  BPPSA_TRY(move_header(p, w, id, micro, false));
  return bppsa_pipeline_promise(p, &due);
}

/* Copies what a worker of the same rank sends, once it has begun to. */
static bppsa_status take_over(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool *done) {
  pipeline_worker *from = pipeline_local(p, p->list->ops[p->transfers[id].other].worker);
  const pipeline_lane *lane = &from->lanes[BPPSA_LANE_SEND];
  *done = lane->begun && lane->ops[lane->next] == p->transfers[id].other;
  if (!*done) {
    return BPPSA_OK;
  }
  const pipeline_span span = pipeline_span_of(p, &p->list->ops[id]);
  for (int64_t micro = span.first; micro < span.end; ++micro) {
    BPPSA_TRY(take_over_micro(p, w, from, id, micro));
  }
  p->taken[p->transfers[id].other] = true;
  return bppsa_pipeline_queued(p, id);
}

static const char *text_of(const header *h) {
  return h->kind == PIPELINE_GRADIENTS ? "gradients" : "values";
}

bppsa_status bppsa_pipeline_check_header(const bppsa_pipeline *p, int64_t id, int64_t micro, const void *bytes) {
  const int32_t send = p->transfers[id].other;
  const header expected = header_of(p, send, micro, version_of(p, send)), *found = bytes;
  if (memcmp(found, &expected, sizeof *found) == 0) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_COMM,
                    "schedule %s: operation %" PRId64 " received %s of layer %" PRId64 ", micro-batch %" PRId64
                    ", update %" PRId64 ", version %" PRId64 ", expected %s of layer %" PRId64 ", %" PRId64 ", %" PRId64
                    ", %" PRId64,
                    p->list->scheme->id, id, text_of(found), found->layer, found->micro, found->update, found->version,
                    text_of(&expected), expected.layer, expected.micro, expected.update, expected.version);
}

bppsa_status bppsa_pipeline_check_tag(const bppsa_pipeline *p, int64_t id, int64_t micro) {
  const int64_t first = pipeline_span_of(p, &p->list->ops[id]).first;
  return bppsa_pipeline_check_header(p, id, micro, bppsa_pipeline_header(p, id, micro - first));
}

static bppsa_status check_message(bppsa_pipeline *p, pipeline_worker *w, int64_t id) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  const bool later = p->streams != NULL && pipeline_local(p, p->list->ops[p->transfers[id].other].worker) != NULL;
  int64_t layer;
  const pipeline_array array = array_sent(p, id, &layer);
  const pipeline_span span = pipeline_span_of(p, op);
  for (int64_t micro = span.first; micro < span.end; ++micro) {
    header found;
    if (!later) {
      BPPSA_TRY(bppsa_memory_get(p->chain->device, &found, pipeline_slot_of(p, w, array, micro, layer)->block, sizeof found));
      BPPSA_TRY(bppsa_pipeline_check_header(p, id, micro, &found));
    }
    bppsa_pipeline_release(p, w, array, micro, layer);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_transfer(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool begin, bool *done) {
  const bppsa_schedule_op *op = &p->list->ops[id], *other = &p->list->ops[p->transfers[id].other];
  const bool sends = op->kind == BPPSA_KIND_SEND;
  bppsa_comm_request **requests = &w->requests[sends ? 0 : p->most_micros + 1];
  if (begin) {
    BPPSA_TRY(sends ? begin_send(p, w, id, requests) : begin_recv(p, w, id, requests));
  }
  *done = true;
  if (pipeline_local(p, other->worker) != NULL && sends) {
    *done = p->taken[id];
  } else if (pipeline_local(p, other->worker) != NULL) {
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

/* The executor of schedules: messages between ranks, and between workers of one rank. */
#include <inttypes.h>
#include <string.h>

#include "core/compute/memory.h"
#include "distributed/pipeline/pipeline_executor.h"

typedef struct {
  int64_t kind, layer, micro, update, version, unused[3];
} header;

_Static_assert(sizeof(header) == PIPELINE_HEADER, "a header fills its place");

/* A SEND or a RECV, and what it moves. */
typedef struct {
  bppsa_pipeline *p;
  pipeline_worker *w;
  int64_t id;
  bool sends;
  int32_t partner;
  pipeline_worker *local; /* the partner's worker; NULL: it is on another rank */
  pipeline_array array;
  int64_t layer;
  pipeline_span span;
} transfer;

static transfer transfer_of(bppsa_pipeline *p, pipeline_worker *w, int64_t id) {
  transfer t = {.p = p, .w = w, .id = id, .partner = pipeline_partner_of(&p->plan, id)};
  t.sends = p->plan.list->ops[id].kind == BPPSA_KIND_SEND;
  t.local = pipeline_local(p, p->plan.list->ops[t.partner].worker);
  t.array = bppsa_pipeline_array_sent(&p->plan, id, &t.layer);
  t.span = pipeline_span_of(&p->plan, &p->plan.list->ops[id]);
  return t;
}

static pipeline_slot *slot_of(const transfer *t, const pipeline_worker *w, int64_t micro) {
  return pipeline_slot_of(&w->arrays, t->array, micro, t->layer);
}

static int64_t bytes_of(const transfer *t) {
  return PIPELINE_HEADER + bppsa_pipeline_bytes(&t->p->plan, t->array, t->layer);
}

/* ---- headers ---- */

/* The version of the weights that made what a message carries, as the list says; -1: its layers have no weights. */
static int64_t version_of(const bppsa_pipeline *p, int64_t send) {
  const bppsa_schedule_op *op = &p->plan.list->ops[pipeline_source_of(&p->plan, send)];
  bool reads = false;
  for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
    reads = reads || p->plan.chain->layer[layer].parameters > 0;
  }
  return reads ? op->weight_version + p->weights.before : -1;
}

static header header_of(const bppsa_pipeline *p, int64_t id, int64_t micro, int64_t version) {
  int64_t layer;
  const pipeline_array array = bppsa_pipeline_array_sent(&p->plan, id, &layer);
  return (header){
      .kind = array, .layer = layer, .micro = micro, .update = pipeline_micro_of(p, micro).update, .version = version};
}

/* The header that a SEND gives its message. */
static header header_sent(const transfer *t, int64_t micro) {
  return header_of(t->p, t->id, micro, t->p->run.events[pipeline_source_of(&t->p->plan, t->id)].version);
}

static const char *text_of(const header *h) {
  return h->kind == PIPELINE_GRADIENTS ? "gradients" : "values";
}

bppsa_status bppsa_pipeline_check_header(const bppsa_pipeline *p, int64_t id, int64_t micro, const void *bytes) {
  const header expected = header_of(p, id, micro, version_of(p, id)), *found = bytes;
  if (memcmp(found, &expected, sizeof *found) == 0) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_COMM,
                    "schedule %s: operation %" PRId64 " received %s of layer %" PRId64 ", micro-batch %" PRId64
                    ", update %" PRId64 ", version %" PRId64 ", expected %s of layer %" PRId64 ", %" PRId64 ", %" PRId64
                    ", %" PRId64,
                    p->plan.list->scheme->id, id, text_of(found), found->layer, found->micro, found->update, found->version,
                    text_of(&expected), expected.layer, expected.micro, expected.update, expected.version);
}

/* Queues the copy of a header of a message within this rank, to (`put`) or from its place in staging memory. */
static bppsa_status move_header(const transfer *t, int64_t micro, bool put) {
  pipeline_streams *streams = &t->p->streams;
  const pipeline_slot *slot = slot_of(t, t->w, micro);
  void *staged = bppsa_pipeline_header(streams, t->id, micro - t->span.first);
  const pipeline_call call = {.kind = put ? PIPELINE_PUT : PIPELINE_GET,
                              .x = put ? staged : slot->block->memory,
                              .y = put ? slot->block->memory : staged,
                              .bytes = PIPELINE_HEADER};
  BPPSA_TRY(bppsa_pipeline_use(streams, t->id, slot, put));
  if (put) {
    const header about = header_sent(t, micro);
    memcpy(staged, &about, sizeof about);
  }
  return bppsa_pipeline_queue(streams, t->id, &call);
}

/* ---- to and from other ranks ---- */

/* Messages between two workers arrive in order; the messages of other workers on the same ranks have other tags. */
static int32_t tag_of(const transfer *t) {
  const pipeline_plan *plan = &t->p->plan;
  const bppsa_schedule_op *ops = plan->list->ops;
  const bppsa_schedule_op *from = &ops[t->sends ? t->id : t->partner], *to = &ops[t->sends ? t->partner : t->id];
  const int64_t most = (plan->list->workers + plan->ranks - 1) / plan->ranks; /* workers on a rank */
  const int64_t pair = from->worker / plan->ranks * most + to->worker / plan->ranks;
  return plan->config.tag + (int32_t)(plan->layers + 2 * pair + (t->array == PIPELINE_GRADIENTS));
}

/* Begins the message of a micro-batch. */
static bppsa_status begin_message(const transfer *t, int64_t micro, bppsa_comm_request **requests) {
  const pipeline_plan *plan = &t->p->plan;
  const int64_t words = (bytes_of(t) + 7) / 8, other = pipeline_rank_of(plan, plan->list->ops[t->partner].worker);
  const bppsa_view view = pipeline_view_of(plan, slot_of(t, t->w, micro)->block->memory, BPPSA_I64, 1, &words);
  return (t->sends ? bppsa_comm_isend : bppsa_comm_irecv)(plan->comm, (int32_t)other, tag_of(t), &view,
                                                          &requests[micro - t->span.first]);
}

static bppsa_status begin_send(const transfer *t, bppsa_comm_request **requests) {
  bppsa_pipeline *p = t->p;
  for (int64_t micro = t->span.first; micro < t->span.end; ++micro) {
    pipeline_slot *slot = slot_of(t, t->w, micro);
    if (slot->block == NULL) {
      return bppsa_pipeline_fail_at(p, t->id, "what it sends is not there");
    }
    if (t->local != NULL && p->streams.on) {
      BPPSA_TRY(move_header(t, micro, true));
      continue;
    }
    const header about = header_sent(t, micro);
    BPPSA_TRY(bppsa_memory_put(p->plan.chain->device, slot->block->memory, &about, sizeof about));
    BPPSA_TRY(t->local == NULL ? begin_message(t, micro, requests) : BPPSA_OK);
  }
  return t->local != NULL ? bppsa_pipeline_queued(&p->streams, t->id) : BPPSA_OK;
}

static bppsa_status begin_recv(const transfer *t, bppsa_comm_request **requests) {
  for (int64_t micro = t->span.first; micro < t->span.end; ++micro) {
    BPPSA_TRY(bppsa_pipeline_take(&t->w->arrays, t->id, t->array, micro, t->layer));
    if (t->local == NULL) {
      BPPSA_TRY(bppsa_pipeline_use_here(&t->p->streams, slot_of(t, t->w, micro)));
      BPPSA_TRY(begin_message(t, micro, requests));
    }
  }
  return BPPSA_OK;
}

/* ---- within a rank ---- */

static bppsa_status take_over_micro(const transfer *t, int64_t micro) {
  pipeline_streams *streams = &t->p->streams;
  const pipeline_slot *to = slot_of(t, t->w, micro), *source = slot_of(t, t->local, micro);
  const int64_t bytes = bytes_of(t);
  const pipeline_call call = {.kind = PIPELINE_COPY, .x = source->block->memory, .y = to->block->memory, .bytes = bytes};
  if (!streams->on) {
    return bppsa_memory_queue_copy(t->p->plan.chain->device, to->block->memory, bytes, source->block->memory, bytes, bytes, 1);
  }
  const pipeline_due due = {.what = PIPELINE_TAG,
                            .op = (int32_t)t->id,
                            .micro = micro,
                            .header = bppsa_pipeline_header(streams, t->id, micro - t->span.first)};
  BPPSA_TRY(bppsa_pipeline_use(streams, t->id, source, false));
  BPPSA_TRY(bppsa_pipeline_use(streams, t->id, to, true));
  BPPSA_TRY(bppsa_pipeline_queue(streams, t->id, &call));
  BPPSA_TRY(move_header(t, micro, false));
  return bppsa_pipeline_promise(streams, &due);
}

/* Copies what a worker of the same rank sends, once its SEND has begun. */
static bppsa_status take_over(const transfer *t, bool *done) {
  const pipeline_lane *lane = &t->local->lanes[BPPSA_LANE_SEND];
  *done = lane->begun && lane->ops[lane->next] == t->partner;
  if (!*done) {
    return BPPSA_OK;
  }
  for (int64_t micro = t->span.first; micro < t->span.end; ++micro) {
    BPPSA_TRY(take_over_micro(t, micro));
  }
  t->p->run.taken[t->partner] = true;
  return bppsa_pipeline_queued(&t->p->streams, t->id);
}

/* ---- both ---- */

static bppsa_status check_message(const transfer *t) {
  const bool later = t->p->streams.on && t->local != NULL; /* a promise checks the header */
  for (int64_t micro = t->span.first; micro < t->span.end; ++micro) {
    header found;
    if (!later) {
      BPPSA_TRY(bppsa_memory_get(t->p->plan.chain->device, &found, slot_of(t, t->w, micro)->block->memory, sizeof found));
      BPPSA_TRY(bppsa_pipeline_check_header(t->p, t->id, micro, &found));
    }
    bppsa_pipeline_release(&t->w->arrays, t->array, micro, t->layer);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_transfer(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool begin, bool *done) {
  const transfer t = transfer_of(p, w, id);
  bppsa_comm_request **requests = &w->requests[t.sends ? 0 : p->plan.most_micros + 1];
  if (begin) {
    BPPSA_TRY(t.sends ? begin_send(&t, requests) : begin_recv(&t, requests));
  }
  *done = true;
  if (t.local != NULL && t.sends) {
    *done = p->run.taken[id];
  } else if (t.local != NULL) {
    BPPSA_TRY(take_over(&t, done));
  }
  for (int64_t i = 0; i < t.span.end - t.span.first; ++i) {
    bool over = true;
    if (requests[i] != NULL) {
      BPPSA_TRY(bppsa_comm_test(&requests[i], &over));
    }
    *done = *done && over;
  }
  return *done && !t.sends ? check_message(&t) : BPPSA_OK;
}

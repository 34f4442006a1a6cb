/* The executor's lanes on a GPU. Internal.
 *
 * Every lane that computes or copies has a stream. An operation queues its work there; a fence behind it orders the work
 * of other streams that read what it wrote, or write what it read. The host goes on, and asks for the fence where it needs to know:
 * before a message leaves, a gradient is added, weights are updated. Where one rank does the whole list, the work up to the next
 * such point is recorded as a graph. */
#ifndef BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_STREAMS_H
#define BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_STREAMS_H

#include "core/compute/graph.h"
#include "distributed/pipeline/pipeline_arrays.h"

typedef struct {
  bppsa_device *device; /* owned; NULL: the lane has no such operation */
  bppsa_chain *chain;   /* computes the lane's passes; owned; NULL: a lane that copies */
  int64_t *followed;    /* of each stream the latest operation behind which this stream runs, as pipeline_flight.place */
} pipeline_stream;

typedef enum {
  PIPELINE_FORWARD = 0,
  PIPELINE_BACKWARD,
  PIPELINE_WEIGHT_GRADIENT,
  PIPELINE_INPUT_GRADIENT,
  PIPELINE_COPY,  /* between arrays of the device */
  PIPELINE_PUT,   /* from staging memory */
  PIPELINE_GET,   /* to staging memory */
  PIPELINE_LOSS,  /* x: logits, y: their gradient, dy: labels, dx: what it finds, kept: its memory, layer: classes, bytes: rows */
  PIPELINE_SET,   /* sets the fence behind `op` */
  PIPELINE_FOLLOW /* waits for the fence behind `op` */
} pipeline_call_kind;

/* Work of one stream. Two calls that are equal byte by byte do the same; all members have 8 bytes, so nothing lies between them. */
typedef struct {
  int64_t kind, stream, layer, op, bytes;
  void *weights[PIPELINE_MOST_PARAMETERS], *gradients[PIPELINE_MOST_PARAMETERS];
  void *dy, *x, *y, *kept, *dx; /* of copies: from x to y */
} pipeline_call;

/* The work between two points at which the host needs to know its results, as a graph. */
typedef struct {
  pipeline_call *calls;
  int64_t count;
  bppsa_graph *graph;
} pipeline_recording;

/* What the host does once the GPU has reached an operation. */
typedef struct {
  enum { PIPELINE_ADD = 0, PIPELINE_TAG, PIPELINE_LOADED, PIPELINE_JUDGED } what;
  int32_t op;
  int64_t micro, layer;
  const void *header;  /* of a message within this rank */
  pipeline_pool *pool; /* of `block`, which it gets back; NULL: there is none */
  pipeline_block *block;
  pipeline_block *staged; /* of pipeline_streams.judged, likewise; or NULL */
} pipeline_due;

/* An operation whose work was queued. */
typedef struct {
  bppsa_fence *fence;
  int64_t place; /* in the order of queueing, counted over all runs */
  bool aloft;    /* the GPU may not have reached it */
} pipeline_flight;

typedef struct {
  const pipeline_plan *plan;
  bppsa_status (*keep)(void *context, const pipeline_due *due); /* keeps a promise */
  void *context;
  bool on;                 /* false: passes are executed at once, or on the chain's stream, and nothing below is used */
  bool recorded;           /* calls are collected, and launched as graphs */
  pipeline_stream *stream; /* [workers][BPPSA_LANE_COUNT] */
  int64_t count;           /* streams */
  pipeline_flight *flight; /* size of the list */
  int32_t *aloft;          /* operations, size aloft_count; room for the list */
  int64_t aloft_count, places;
  pipeline_due *due; /* in the order of queueing: first_due .. due_count - 1 */
  int64_t first_due, due_count, due_room;
  pipeline_pool loading; /* inputs, before they are copied to where the first layer reads them */
  pipeline_pool judging; /* memory of the loss of a micro-batch */
  pipeline_pool judged;  /* staging memory of that loss: labels, and behind them what it found */
  char *headers;         /* staging memory: of messages within this rank, [list][most_micros] */
  bppsa_fence *fork;     /* stands for a moment behind the chain's stream, or behind a stream that the chain's then follows */
  bool refused;          /* the GPU could not record: calls are queued one by one */
  pipeline_call *calls;  /* the collected calls */
  int64_t call_count, call_room;
  pipeline_recording *recordings;
  int64_t recording_count, next_recording;
  int64_t launches;
} pipeline_streams;

/* Gives the lanes of a GPU streams, if the chain can have twins. `streams` has plan, keep and context, and is zero otherwise;
 * destroy it also after a failure. pools: of the arrays, which note from then on who uses their blocks. */
bppsa_status bppsa_pipeline_streams_create(pipeline_streams *streams, pipeline_pool *pools);
void bppsa_pipeline_streams_destroy(pipeline_streams *streams);
void bppsa_pipeline_streams_begin(pipeline_streams *streams); /* a run begins */
/* Operation `id` reads or writes the slot's block: its stream follows those whose work must come first. */
bppsa_status bppsa_pipeline_use(pipeline_streams *streams, int64_t id, const pipeline_slot *slot, bool writes);
/* The chain's own stream, on which callbacks, messages, sums and updates run, is going to write to the block: it follows the
 * block's users, and later users follow it. */
bppsa_status bppsa_pipeline_use_here(pipeline_streams *streams, const pipeline_slot *slot);
/* The operation's stream runs on behind what was queued on the chain's stream so far. */
bppsa_status bppsa_pipeline_after_here(pipeline_streams *streams, int64_t id);
/* Does the call of operation `id` on its lane's stream, or collects it. */
bppsa_status bppsa_pipeline_queue(pipeline_streams *streams, int64_t id, const pipeline_call *call);
/* Call after the last call of an operation: sets its fence. */
bppsa_status bppsa_pipeline_queued(pipeline_streams *streams, int64_t id);
/* Has the GPU reached the end of the operation? */
bppsa_status bppsa_pipeline_reached(pipeline_streams *streams, int64_t id, bool *reached);
/* Has it reached the end of every operation of the worker that was queued so far? */
bppsa_status bppsa_pipeline_worker_reached(pipeline_streams *streams, int64_t worker, bool *reached);
/* Promises to do something once the operation is reached. */
bppsa_status bppsa_pipeline_promise(pipeline_streams *streams, const pipeline_due *due);
/* Keeps the promises that can be kept without waiting. */
bppsa_status bppsa_pipeline_keep_promises(pipeline_streams *streams, bool *moved);
/* Launches what was collected, and waits for all streams. */
bppsa_status bppsa_pipeline_settle(pipeline_streams *streams);
/* Takes memory for the loss of a micro-batch of so many rows, and promises to take its result. */
bppsa_status bppsa_pipeline_judge(pipeline_streams *streams, int64_t rows, pipeline_due *due);
/* Staging memory for a header: of message number `index` of a SEND or a RECV within this rank. */
void *bppsa_pipeline_header(const pipeline_streams *streams, int64_t id, int64_t index);

#endif

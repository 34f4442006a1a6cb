/* The inside of the executor of schedules. */
#ifndef BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_INTERNAL_H
#define BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_INTERNAL_H

#include <time.h>

#include "comm/ordered.h"
#include "core/compute/graph.h"
#include "distributed/pipeline/pipeline.h"

/* With halving the executor counts halves of micro-batches: 2 m and 2 m + 1 are those of the list's micro-batch m. Below, and in
 * the files of the executor, they are the micro-batches. */

/* ---- arrays of micro-batches (pipeline_arrays.c) ---- */

/* Blocks of equal size that are taken and given back; the memory of the first run serves all later ones. Equal runs take the same
 * blocks in the same order. */
typedef struct {
  const bppsa_device *device; /* that has the memory; NULL: the host */
  size_t bytes;
  bool staging;    /* host memory that the device reads and writes by itself (core/compute/memory.h) */
  int64_t streams; /* that use the blocks; 0: who uses them is not noted */
  void **free;     /* size count */
  void **all;      /* free or taken, in the order in which they were made, size made */
  int32_t **uses;  /* [made][1 + streams]: the operation that wrote a block, and the latest on each stream that used it; -1: none;
                      PIPELINE_HERE: the chain's own stream */
  int64_t count, made, room;
} pipeline_pool;

typedef enum { PIPELINE_VALUES = 0, PIPELINE_GRADIENTS, PIPELINE_KEPT, PIPELINE_ARRAYS } pipeline_array;

/* An array of one micro-batch: the values in front of layer l, their gradient, or what layer l keeps. It is given back when the
 * last operation that reads it is over. */
typedef struct {
  char *block;            /* NULL: not there. A message's header, then the array */
  int32_t *uses;          /* of the block */
  int32_t readers, again; /* in the list: of the array as it is made first; of the one that RECOMPUTE makes */
  int32_t left;
  bool counted; /* among the worker's activations */
} pipeline_slot;

enum { PIPELINE_HEADER = 64 /* bytes */, PIPELINE_MOST_PARAMETERS = 8 /* of a layer */, PIPELINE_HERE = -2 };

/* ---- weights (pipeline_weights.c) ---- */

/* A kept copy of older weights. */
typedef struct {
  int64_t version; /* by which operations ask for it; -1: no operation to come asks for it */
  int64_t updates; /* that these values have seen, since creation */
  void *values;
} pipeline_version;

/* The weights of one layer of one replica. */
typedef struct {
  bppsa_model model; /* the layer's parameters alone, one behind the other */
  bppsa_optimizer *optimizer;
  void *values, *gradients, *predicted; /* where the chain computes */
  void *copies;                         /* of values in host memory, where the chain computes on a GPU */
  int64_t bytes;
  int64_t updates;        /* since creation */
  int64_t made;           /* likewise, counted by the updates of `values` themselves */
  int64_t *readers;       /* of each version in a run: operations that read it, size updates of a run + 1 */
  int64_t *left;          /* likewise, in the present run */
  pipeline_version *kept; /* size kept_count */
  int64_t kept_count, kept_used, kept_most;
  int64_t predicted_from, predicted_ahead; /* what `predicted` holds; -1: nothing */
  int64_t predicted_made;                  /* updates that the values had seen from which it was predicted */
} pipeline_held;

/* The sum of a layer's gradients over the micro-batches of an update. */
typedef struct {
  bppsa_comm *comm; /* the ranks that hold the layer, owned; NULL: this rank alone */
  bppsa_ordered_sum *sum;
  bppsa_comm_request *request;
  void *part, *result; /* of one micro-batch; of the update */
  pipeline_pool parts; /* of several micro-batches, where they are computed on streams */
  int64_t count;       /* reals */
  int64_t mine;        /* blocks of this rank in an update */
  int64_t added;
  int64_t finished; /* updates whose sum was made, since the run began */
  enum { PIPELINE_ADDING = 0, PIPELINE_REDUCING, PIPELINE_SHARING } state;
} pipeline_sum;

/* ---- streams (pipeline_streams.c) ----
 *
 * On a GPU every lane that computes or copies has a stream. An operation queues its work there; a fence behind it orders the work
 * of other streams that read what it wrote, or write what it read. The host goes on, and asks for the fence where it needs to know:
 * before a message leaves, a gradient is added, weights are updated. */

typedef struct {
  bppsa_device *device; /* owned; NULL: the lane has no such operation */
  bppsa_chain *chain;   /* computes the lane's passes; owned; NULL: a lane that copies */
  int64_t *followed;    /* of each stream, the latest operation that this one runs behind: its place in the order of queueing */
} pipeline_stream;

typedef enum {
  PIPELINE_FORWARD = 0,
  PIPELINE_BACKWARD,
  PIPELINE_WEIGHT_GRADIENT,
  PIPELINE_INPUT_GRADIENT,
  PIPELINE_COPY,  /* between arrays of the device */
  PIPELINE_PUT,   /* from staging memory */
  PIPELINE_GET,   /* to staging memory */
  PIPELINE_LOSS,  /* of logits x; labels dy, seed y, found dx; kept: its memory; layer: classes; bytes: rows of the mean */
  PIPELINE_SET,   /* the fence behind `op` */
  PIPELINE_FOLLOW /* the fence behind `op` */
} pipeline_call_kind;

/* Work of one stream. Two calls that are equal byte by byte do the same. */
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
  void *memory, *staged;
} pipeline_due;

/* An operation whose work was queued. */
typedef struct {
  bppsa_fence *fence;
  int64_t place; /* in the order of queueing, counted over all runs */
  bool aloft;    /* the GPU may not have reached it */
} pipeline_flight;

typedef struct {
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
  pipeline_pool judged;  /* likewise staging memory: labels, and what the loss found behind them */
  char *headers;         /* staging memory: of the messages within this rank, [list][most_micros] */
  bppsa_fence *fork;     /* behind the chain's stream, or behind another that it follows */
  bool refused;          /* the GPU did not record: calls are queued one by one, as before */
  pipeline_call *calls;  /* that are collected */
  int64_t call_count, call_room;
  pipeline_recording *recordings;
  int64_t recording_count, next_recording;
  int64_t launches;
} pipeline_streams;

/* ---- the executor ---- */

typedef struct {
  const int32_t *ops; /* in order */
  int64_t count, next;
  bool begun; /* the next operation waits for a message */
} pipeline_lane;

typedef struct {
  int64_t worker;
  pipeline_lane lanes[BPPSA_LANE_COUNT];
  int32_t *ops;                  /* of all lanes */
  pipeline_slot *slots;          /* [PIPELINE_ARRAYS][micros][layers + 1] */
  bppsa_comm_request **requests; /* of the present SEND, then of the present RECV; size 2 (most_micros + 1) */
  int64_t activations, peak;     /* bytes */
} pipeline_worker;

/* What the list says about a transfer. */
typedef struct {
  int32_t other;  /* the RECV of a SEND, and the SEND of a RECV */
  bool gradients; /* sends g_{layer - 1}; otherwise the values behind the last layer */
} pipeline_transfer;

struct bppsa_pipeline {
  bppsa_comm *comm;
  bppsa_chain *chain;
  bppsa_pipeline_config config;
  const bppsa_schedule *list;
  int64_t rank, ranks, layers, updates, runs;
  int64_t parts, micros, samples; /* of a micro-batch of the list; all of them; of each */
  bppsa_device *device;           /* one thread: of the optimisers */
  int64_t workers;                /* of this rank */
  pipeline_worker *worker;
  bool *done;                   /* size of the list */
  bool *taken;                  /* of a SEND to a worker of the same rank: its RECV has copied it */
  pipeline_transfer *transfers; /* size of the list */
  int64_t *turn;                /* of messages to and from other ranks, size of the list; NULL: they may begin in any order */
  int64_t begun;                /* how many of them have begun in the present run */
  int64_t *first_layer;         /* of each stage */
  bppsa_pipeline_micro *micro;  /* size micros; update within a run */
  pipeline_held **held;         /* [replicas][layers]; NULL: of another rank */
  pipeline_sum *sums;           /* size layers */
  int32_t *holder;              /* the worker that holds [replica][layer], or -1 */
  pipeline_pool *pools;         /* [PIPELINE_ARRAYS][layers + 1] */
  int64_t most_micros;          /* in a transfer */
  double *losses;               /* size micros */
  double *norms;                /* of the gradients, [updates][layers] */
  double *norm;                 /* of all layers together, size updates */
  bppsa_pipeline_event *events;
  pipeline_streams *streams; /* NULL: passes are executed at once, or on the chain's stream */
  double began;              /* the latest run */
  const bppsa_pipeline_data *data;
};

/* Rows of a micro-batch's logits. */
static inline int64_t pipeline_rows_of(const bppsa_pipeline *p) {
  return p->samples * p->chain->layer[p->layers - 1].out / p->data->classes;
}

/* The micro-batches of an operation: first .. end - 1. */
typedef struct {
  int64_t first, end;
} pipeline_span;

static inline pipeline_span pipeline_span_of(const bppsa_pipeline *p, const bppsa_schedule_op *op) {
  const int64_t first = op->micro * p->parts + (op->part > 0 ? op->part : 0);
  return (pipeline_span){first, first + (op->part >= 0 ? 1 : op->micros * p->parts)};
}

static inline pipeline_slot *pipeline_slot_of(const bppsa_pipeline *p, const pipeline_worker *w, pipeline_array array,
                                              int64_t micro, int64_t layer) {
  return &w->slots[((int64_t)array * p->micros + micro) * (p->layers + 1) + layer];
}

/* An array of a micro-batch, in the chain's memory. */
static inline bppsa_view pipeline_view_of(const bppsa_pipeline *p, void *data, bppsa_dtype dtype, int32_t ndim,
                                          const int64_t *shape) {
  bppsa_view view = bppsa_view_make(data, dtype, ndim, shape);
  view.device = p->chain->device != NULL ? BPPSA_CUDA : BPPSA_CPU;
  return view;
}

static inline void *pipeline_data_of(const pipeline_slot *slot) {
  return slot->block == NULL ? NULL : slot->block + PIPELINE_HEADER;
}

/* Bytes of an array of one micro-batch. */
int64_t bppsa_pipeline_bytes(const bppsa_pipeline *p, pipeline_array array, int64_t layer);
/* Makes the array that operation `id` writes; the operation releases it when it is over. */
bppsa_status bppsa_pipeline_take(bppsa_pipeline *p, pipeline_worker *w, int64_t id, pipeline_array array, int64_t micro,
                                 int64_t layer);
/* One reader of the array less; the last gives it back. */
void bppsa_pipeline_release(bppsa_pipeline *p, pipeline_worker *w, pipeline_array array, int64_t micro, int64_t layer);
/* Counts the readers of every array in the list (`make`), or releases what the operation has read. */
void bppsa_pipeline_read(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool make);
void bppsa_pipeline_pool_begin(pipeline_pool *pool); /* a run begins */
bppsa_status bppsa_pipeline_pool_take(pipeline_pool *pool, void **block);
void bppsa_pipeline_pool_give(pipeline_pool *pool, void *block);
void bppsa_pipeline_pool_free(pipeline_pool *pool);

/* Gives the lanes of a GPU streams, if the chain can have twins. */
bppsa_status bppsa_pipeline_streams_create(bppsa_pipeline *p);
void bppsa_pipeline_streams_destroy(bppsa_pipeline *p);
void bppsa_pipeline_streams_begin(bppsa_pipeline *p);
/* Operation `id` reads or writes the slot's block: its stream follows those whose work must come first. */
bppsa_status bppsa_pipeline_use(bppsa_pipeline *p, int64_t id, const pipeline_slot *slot, bool writes);
/* The chain's own stream, on which callbacks, messages, sums and updates run, is going to write to the block: it follows the
 * block's users, and later users follow it. */
bppsa_status bppsa_pipeline_use_here(bppsa_pipeline *p, const pipeline_slot *slot);
/* The operation's stream runs on behind what was queued on the chain's stream so far. */
bppsa_status bppsa_pipeline_after_here(bppsa_pipeline *p, int64_t id);
/* Does the call of operation `id` on its lane's stream, or collects it. */
bppsa_status bppsa_pipeline_queue(bppsa_pipeline *p, int64_t id, const pipeline_call *call);
/* Behind the last call of an operation. */
bppsa_status bppsa_pipeline_queued(bppsa_pipeline *p, int64_t id);
/* Has the GPU reached the end of the operation? */
bppsa_status bppsa_pipeline_reached(bppsa_pipeline *p, int64_t id, bool *reached);
/* Likewise all operations of a worker that were queued so far. */
bppsa_status bppsa_pipeline_worker_reached(bppsa_pipeline *p, int64_t worker, bool *reached);
/* Promises to do something once the operation is reached. */
bppsa_status bppsa_pipeline_promise(bppsa_pipeline *p, const pipeline_due *due);
/* Keeps the promises that can be kept without waiting. */
bppsa_status bppsa_pipeline_keep_promises(bppsa_pipeline *p, bool *moved);
/* Launches what was collected, and waits for all streams. */
bppsa_status bppsa_pipeline_settle(bppsa_pipeline *p);
/* Memory for the loss of a micro-batch, and the promise that its result is taken. */
bppsa_status bppsa_pipeline_judge(bppsa_pipeline *p, pipeline_due *due);
/* Takes what a queued loss has found. */
void bppsa_pipeline_judged(bppsa_pipeline *p, const pipeline_due *due);
/* Compares the header of a message, PIPELINE_HEADER bytes aligned for int64_t, with the list, of the RECV `id`. */
bppsa_status bppsa_pipeline_check_header(const bppsa_pipeline *p, int64_t id, int64_t micro, const void *bytes);
/* The same for the header of a message within this rank. */
bppsa_status bppsa_pipeline_check_tag(const bppsa_pipeline *p, int64_t id, int64_t micro);
/* Memory for a micro-batch's gradient of a layer, which operation `id` writes; on streams the sum takes it when it is reached. */
bppsa_status bppsa_pipeline_part_take(bppsa_pipeline *p, int64_t id, int64_t micro, int64_t layer, void **part);
/* Where the header of a message within this rank is, of the operation that sends or receives it. */
void *bppsa_pipeline_header(const bppsa_pipeline *p, int64_t id, int64_t index);

/* Compares a view of each of the chain's parameters, and of an optimiser's state (NULL: none), with the chain's. */
bppsa_status bppsa_pipeline_check_whole(const bppsa_pipeline *p, const bppsa_view *values, const bppsa_optimizer_state *state);
bppsa_status bppsa_pipeline_weights_create(bppsa_pipeline *p, const bppsa_view *values);
void bppsa_pipeline_weights_destroy(bppsa_pipeline *p);
void bppsa_pipeline_weights_begin(bppsa_pipeline *p);
/* The weights that the operation sees for a layer, an array for each parameter. Sets the event's version to the updates that these
 * arrays have seen, or are predicted to have seen. ERR_ARGUMENT: it is another than the list's. */
bppsa_status bppsa_pipeline_weights(bppsa_pipeline *p, int64_t id, int64_t layer, void *arrays[PIPELINE_MOST_PARAMETERS]);
void bppsa_pipeline_weights_read(bppsa_pipeline *p, int64_t id, int64_t layer);
/* Where a micro-batch's gradient of the layer is to be written within `part`, before it is added. */
void bppsa_pipeline_gradient(const bppsa_pipeline *p, int64_t layer, void *part, void *arrays[PIPELINE_MOST_PARAMETERS]);
bppsa_status bppsa_pipeline_sum_add(bppsa_pipeline *p, int64_t micro, int64_t layer, void *part);
/* Goes on with the sum of the layer's update number `update`, as far as it can without waiting. */
bppsa_status bppsa_pipeline_sum_go(bppsa_pipeline *p, int64_t layer, int64_t update, bool *done);
/* Updates a layer of the STEP `id`, once the sum is there, and sets the event's version to the updates that its weights have then
 * seen. ERR_ARGUMENT: the list's version is not the one that this update makes. */
bppsa_status bppsa_pipeline_step(bppsa_pipeline *p, int64_t id, int64_t layer, bool *done);
/* The learning rate of the update that comes next for this layer. */
double bppsa_pipeline_rate(const bppsa_pipeline *p, const pipeline_held *held);
/* The update of the present run that comes next. */
int64_t bppsa_pipeline_update_of(const bppsa_pipeline *p, int64_t replica, int64_t layer);

/* Ŵ (pipeline.h) of a layer's parameters, `ahead` updates from now. */
bppsa_status bppsa_pipeline_predict(const bppsa_model *model, bppsa_optimizer *optimizer, const bppsa_optimizer_config *config,
                                    int64_t ahead, void *const *predicted);

/* The micro-batch, with its update counted over all runs. */
static inline bppsa_pipeline_micro pipeline_micro_of(const bppsa_pipeline *p, int64_t micro) {
  bppsa_pipeline_micro m = p->micro[micro];
  m.update += p->runs * p->updates;
  return m;
}

/* Sleeps until the executor asks for its messages again. */
static inline void pipeline_nap(void) {
  const struct timespec nap = {.tv_nsec = 20000};
  (void)nanosleep(&nap, NULL);
}

/* Where an operation runs. */
static inline int64_t pipeline_rank_of(const bppsa_pipeline *p, int64_t worker) {
  return worker % p->ranks;
}

/* The worker, if it is this rank's; NULL. */
static inline pipeline_worker *pipeline_local(const bppsa_pipeline *p, int64_t worker) {
  return pipeline_rank_of(p, worker) == p->rank ? &p->worker[worker / p->ranks] : NULL;
}

/* Goes on with a SEND or a RECV, as far as it can without waiting. */
bppsa_status bppsa_pipeline_transfer(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool begin, bool *done);
/* ERR_ARGUMENT: names the operation and `what`. */
bppsa_status bppsa_pipeline_fail_at(const bppsa_pipeline *p, int64_t id, const char *what);

#endif

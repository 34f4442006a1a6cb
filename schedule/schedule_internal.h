/* What the files of this folder share. */
#ifndef BPPSA_SCHEDULE_SCHEDULE_INTERNAL_H
#define BPPSA_SCHEDULE_SCHEDULE_INTERNAL_H

#include <stddef.h>

#include "schedule/schedule.h"

/* The options that not every scheme takes: bits of bppsa_schedule_scheme.takes. What a scheme is follows from them. */
enum {
  TAKES_STAGES = 1, /* several workers; a scheme without it runs on one device, by a profile */
  TAKES_MICRO_BATCHES = 1 << 1,
  TAKES_GRADIENTS = 1 << 2, /* layers have input gradients; the first layer's may be left out */
  TAKES_CHUNKS = 1 << 3,    /* a worker holds several stages (interleaved) */
  TAKES_REPLICAS = 1 << 4,  /* pipelines run in both directions, as many as are asked for (Chimera) */
  TAKES_REVERSE = 1 << 5,
  TAKES_ELEMENTS = 1 << 6,
  TAKES_CUT = 1 << 7,   /* stages are neighbouring layers; a pipeline without it has a stage for each layer */
  TAKES_SPLIT = 1 << 8, /* the configuration says in which order I and W run; without it the scheme does */
  TAKES_RECOMPUTE = 1 << 9,
  TAKES_SYNC = 1 << 10,           /* the configuration says when replicas add gradients up */
  TAKES_RECOMPUTE_SPLIT = 1 << 11 /* recompute beside a split backward pass */
};

/* ---- geometry (schedule.c) ---- */

/* Checks the configuration's cut, and gives the list a copy of it. ERR_ARGUMENT, ERR_MEMORY. */
bppsa_status bppsa_schedule_keep_cut(bppsa_schedule *list); /* cut.c */
/* The worker that holds a stage of a replica. */
int64_t bppsa_schedule_place(const bppsa_schedule *list, int64_t replica, int64_t stage);
/* Cost of a layer. */
double bppsa_schedule_cost_of(const bppsa_schedule_config *config, bppsa_schedule_cost cost, int64_t layer);
/* Names an operation for messages by its kind, micro-batch and stage, as "F0@2". Returns text. */
const char *bppsa_schedule_op_text(const bppsa_schedule *list, int64_t id, char *text, size_t size);
#define BPPSA_SCHEDULE_OP_TEXT 64

/* Does the operation end the life of its layers' activations? Of I and W the later one does. */
bool bppsa_schedule_frees(const bppsa_schedule *list, const bppsa_schedule_op *op);

/* ---- writing operations (write.c) ---- */

/* The state of a generator that writes operations. After a failure nothing more is added; bppsa_writer_finish returns the
 * failure. */
typedef struct {
  bppsa_schedule *list;
  const bppsa_schedule_config *config;
  bool by_layer;    /* an operation for each layer instead of one for each stage */
  int32_t *updates; /* updates of every stage so far, [replica][stage] */
  int32_t *seen;    /* updates that a micro-batch's forward pass saw, [micro][stage]; NULL for scans */
  bppsa_status status;
} bppsa_writer;

bppsa_status bppsa_writer_start(bppsa_schedule *list, bppsa_writer *writer);
/* Frees the writer and returns its status. */
bppsa_status bppsa_writer_finish(bppsa_writer *writer);

void bppsa_writer_forward(bppsa_writer *writer, int64_t replica, int64_t stage, int64_t micro, int64_t micros);
/* Writes B, or I and W in the configured order, from the stage's last layer to its first, and RECOMPUTE before it. part: which half
 * of the micro-batch, or -1 for all of it. */
void bppsa_writer_backward(bppsa_writer *writer, int64_t replica, int64_t stage, int64_t micro, int64_t part);
/* Writes I or W of one micro-batch for all layers of the stage. */
void bppsa_writer_gradient(bppsa_writer *writer, bppsa_schedule_kind kind, int64_t replica, int64_t stage, int64_t micro);
/* Writes a SYNC over the replicas of the stage, if there are several. In the compute lane it waits for the operations before it. */
void bppsa_writer_sync(bppsa_writer *writer, int64_t replica, int64_t stage, bppsa_schedule_lane lane);
void bppsa_writer_step(bppsa_writer *writer, int64_t replica, int64_t stage);
/* Writes any operation; where cost and deltas are NaN the configuration gives them. */
void bppsa_writer_add(bppsa_writer *writer, bppsa_schedule_op op);
/* Makes an operation over whole micro-batches, without dependencies; its cost is set later. */
bppsa_schedule_op bppsa_schedule_op_make(bppsa_schedule_kind kind, int64_t worker, int64_t replica, int64_t stage, int64_t layer,
                                         int64_t layers, int64_t micro, int64_t micros);

/* The number of a micro-batch of a replica and round, if every replica has N of its own. */
int64_t bppsa_schedule_micro(const bppsa_schedule *list, int64_t replica, int64_t iteration, int64_t micro);

/* ---- dependencies (connect.c, derive.c) ---- */

/* Replaces all dependencies by the ones that follow from the data flow, without transfers. */
bppsa_status bppsa_schedule_derive(bppsa_schedule *list);
/* Does what bppsa_schedule_connect does, for lists from files. ERR_ARGUMENT: more than most_ops operations, with transfers, or more
 * than most_deps dependencies. */
bppsa_status bppsa_schedule_connect_within(bppsa_schedule *list, int64_t most_ops, int64_t most_deps);
bppsa_status bppsa_schedule_add_dep(bppsa_schedule *list, int64_t op, int64_t dep);

/* ---- events (events.c) ---- */

typedef struct {
  double time;
  int64_t priority; /* orders events of one time: the smaller first, then the smaller id */
  int32_t id;
} bppsa_event;

/* A queue that gives the earliest event first. A zeroed one is empty. `events` is owned (bppsa_free). */
typedef struct {
  bppsa_event *events;
  int64_t count, room;
} bppsa_events;

/* Reserves room for so many events in all. ERR_MEMORY. */
bppsa_status bppsa_events_reserve(bppsa_events *queue, int64_t room);
void bppsa_events_push(bppsa_events *queue, bppsa_event added); /* needs room */
bppsa_event bppsa_events_pop(bppsa_events *queue);              /* the queue must not be empty */

/* ---- running (run.c) ---- */

/* The state of a simulation, and the order of operations. */
typedef struct {
  int64_t count; /* operations */
  double *start, *end;
  int32_t *order; /* ids in the order of their starts, size done */
  int64_t done;
} bppsa_schedule_run;

/* Runs the list, every lane in its order. `free_links`: SEND, RECV and issuing kernels take no time. done < count if operations
 * wait for each other. */
bppsa_status bppsa_schedule_run_simulate(const bppsa_schedule *list, bool free_links, bppsa_schedule_run *run);
/* Does the same in linear time, but sets only `done` and an order. */
bppsa_status bppsa_schedule_run_settle(const bppsa_schedule *list, bppsa_schedule_run *run);
void bppsa_schedule_run_free(bppsa_schedule_run *run);

/* Reorders the operations of a derived list and drops its dependencies. Each worker takes, of the operations that are ready, the
 * one with the smallest priority (of equals the smallest id), and is never idle while one is ready. */
typedef int64_t (*bppsa_schedule_priority)(const bppsa_schedule *list, const bppsa_schedule_op *op);
bppsa_status bppsa_schedule_prioritise(bppsa_schedule *list, bppsa_schedule_priority priority);

/* ---- SpecTrain (spectrain.c) ---- */

/* Computes the versions that SpecTrain predicts. A micro-batch's trip is over when its update of layer 0 ends; aim[micro][layer]
 * becomes the number of the layer's updates by then, without the micro-batch's own, or -1 if the trip does not end. aim has size
 * micros x layers. Every pass takes one unit of time, whatever it costs. The list must be derived, and its operations must keep the
 * shape rules. */
bppsa_status bppsa_schedule_aims(const bppsa_schedule *list, int32_t *aim);

/* ---- generators ---- */

bppsa_status bppsa_schedule_model_parallel(bppsa_schedule *list);
bppsa_status bppsa_schedule_gpipe(bppsa_schedule *list);
bppsa_status bppsa_schedule_1f1b(bppsa_schedule *list);
bppsa_status bppsa_schedule_interleaved(bppsa_schedule *list);
bppsa_status bppsa_schedule_gems(bppsa_schedule *list);
bppsa_status bppsa_schedule_asynchronous(bppsa_schedule *list); /* pipedream, 2bw, vanilla, spectrain */
bppsa_status bppsa_schedule_zb_h1(bppsa_schedule *list);
bppsa_status bppsa_schedule_chimera(bppsa_schedule *list);
bppsa_status bppsa_schedule_fast_forward(bppsa_schedule *list);
bppsa_status bppsa_schedule_modulo(bppsa_schedule *list);
bppsa_status bppsa_schedule_wait_free(bppsa_schedule *list);
bppsa_status bppsa_schedule_prioritised(bppsa_schedule *list);
bppsa_status bppsa_schedule_reverse_first_k(bppsa_schedule *list);
bppsa_status bppsa_schedule_multi_stream(bppsa_schedule *list);
bppsa_status bppsa_schedule_scan_linear(bppsa_schedule *list);
bppsa_status bppsa_schedule_scan_blelloch(bppsa_schedule *list);
bppsa_status bppsa_schedule_scan_chunked(bppsa_schedule *list);

#endif

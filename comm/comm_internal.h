/* What the files of this folder share: the state of a rank, a request, and a transport's table of functions. */
#ifndef BPPSA_COMM_COMM_INTERNAL_H
#define BPPSA_COMM_COMM_INTERNAL_H

#include "comm/comm.h"
#include "core/base/alloc.h"

typedef enum {
  BPPSA_COMM_SEND = 0,
  BPPSA_COMM_RECV,
  BPPSA_COMM_BROADCAST,
  BPPSA_COMM_ALLREDUCE,
  BPPSA_COMM_REDUCE_SCATTER,
  BPPSA_COMM_ALLGATHER,
  BPPSA_COMM_GATHER,
  BPPSA_COMM_BARRIER,
  BPPSA_COMM_KIND_COUNT
} bppsa_comm_kind;

/* A block of staging memory, kept for its next use. */
typedef struct bppsa_comm_stage {
  struct bppsa_comm_stage *next;
  const bppsa_device *device;
  int64_t bytes;
  void *data;
} bppsa_comm_stage;

/* The state of a rank; its world and all communicators split from it share this state. */
typedef struct {
  int32_t world_rank, node_rank, node_size;
  double timeout;
  const char *where;
  int64_t step;
  const bppsa_device *device;
  bppsa_comm_counters counters;
  bppsa_comm_fault fault;
  int64_t operations; /* number of operations begun since the fault was set */
  bool dead;          /* an injected fault has killed this rank */
  int64_t splits;     /* splits so far; makes the contexts that this rank chooses unique */
  bppsa_alloc_account *account;
  bppsa_comm_request *pending, *spare; /* pending: begun and not yet freed; spare: free for the next use, linked by next */
  bppsa_comm_stage *stages;            /* free for the next use */
} bppsa_comm_endpoint;

/* For transports: gives a rank whose run begins the fault of bppsa_comm_set_run_fault, if that fault is for this rank. */
void bppsa_comm_begin_fault(bppsa_comm_endpoint *endpoint);

typedef struct bppsa_comm_table bppsa_comm_table;

struct bppsa_comm {
  const bppsa_comm_table *table;
  bppsa_comm_endpoint *endpoint;
  int32_t rank, size;
  int32_t *members;  /* the ranks' numbers in the world, size `size`; owned */
  uint64_t context;  /* marks its messages; unique in the world */
  uint64_t sequence; /* number of collective operations begun */
  void *own;         /* the transport's own data */
  bppsa_comm *host;  /* carries arrays in host memory if this transport carries only arrays on GPUs; otherwise NULL */
};

/* Each transport's request type has this as its first member and takes request_bytes. */
struct bppsa_comm_request {
  bppsa_comm *comm;
  bppsa_comm_request *previous, *next; /* in the endpoint's list of pending requests */
  bppsa_comm_kind kind;
  int32_t peer; /* the other rank of a message, or the root; -1: none */
  int32_t tag;  /* the tag of a message; -1: none */
  bppsa_comm_op op;
  bppsa_dtype dtype;
  void *data; /* the array to send, receive, broadcast or reduce, or this rank's part of a gather */
  int64_t count, bytes;
  void *all; /* gathers: the array of all parts if this rank receives it; reduce-scatter: this rank's part; otherwise NULL */
  int64_t *offsets; /* gathers: elements before each rank's part, size `size` + 1; then as many for the transport; owned */
  int32_t offset_room;
  /* The memory of the views if it is on a GPU and the transport needs host memory; data and all are then staging memory. */
  void *gpu_data, *gpu_all;
  bppsa_comm_stage *stage_data, *stage_all;
};

struct bppsa_comm_table {
  bppsa_comm_transport transport;
  unsigned reads_gpu; /* bit k: operations of kind k read and write GPU memory directly */
  size_t request_bytes;
  /* Begins the operation; after a failure nothing has begun. */
  bppsa_status (*post)(bppsa_comm_request *request);
  /* Advances the operation without waiting, and says whether it is done. After a failure the caller cancels the request. */
  bppsa_status (*poll)(bppsa_comm_request *request, bool *done);
  /* Ends the operation: afterwards nothing uses the request or its memory. Legal for requests that are done. */
  void (*cancel)(bppsa_comm_request *request);
  /* look returns a number that changes with every event that this rank may wait for. idle waits until that number differs from
   * `seen`, or until the deadline (in the time of bppsa_now). */
  uint64_t (*look)(const bppsa_comm *comm);
  void (*idle)(const bppsa_comm *comm, uint64_t seen, double deadline);
  /* Returns ERR_COMM, with the reason, if a rank has failed. */
  bppsa_status (*check)(const bppsa_comm *comm);
  /* Tells all ranks that this one failed. */
  void (*fail)(bppsa_comm *comm, const char *why);
  /* Writes the name of what the request waits for, for example "rank 3". */
  void (*blame)(const bppsa_comm_request *request, char *text, size_t size);
  /* Completes part, in which only the transport's own data are missing: the communicator of the ranks that gave this color, in
   * the order of key and rank. Every rank of comm calls it; part is NULL on ranks that gave color -1. */
  bppsa_status (*split)(bppsa_comm *comm, int32_t color, int32_t key, bppsa_comm *part);
  /* Does the work of bppsa_comm_check_order; NULL: the transport matches tags itself. */
  bppsa_status (*check_order)(bppsa_comm *comm);
  void (*close)(bppsa_comm *comm); /* frees `own` */
};

/* Each implements bppsa_comm_run (comm/comm.h) for one transport; the caller has checked config. Ranks that are threads may
 * outlive the call, so bppsa_comm_run_threads calls config->ended itself. */
bppsa_status bppsa_comm_run_threads(const bppsa_comm_config *config, bppsa_comm_body body, void *context,
                                    bppsa_comm_outcome *outcome);
bppsa_status bppsa_comm_run_mpi(const bppsa_comm_config *config, bppsa_comm_body body, void *context,
                                bppsa_comm_outcome *outcome);
void bppsa_comm_end_mpi_job(int exit_code);
/* Implements bppsa_comm_left_behind (comm/comm.h). */
int32_t bppsa_comm_threads_left(void);
/* These fill in built, found and detail. */
void bppsa_comm_probe_mpi(bppsa_comm_transport_report *report);
void bppsa_comm_probe_nccl(bppsa_comm_transport_report *report);

/* ---- comm/request.c ---- */

/* Begins the operation that `wanted` describes, without the transport's part of a request, and counts it. The views may be on any
 * device. mine: the view for wanted->data. all: the result of a gather or a reduce-scatter; otherwise NULL. */
bppsa_status bppsa_comm_begin(const bppsa_comm_request *wanted, const bppsa_view *mine, const bppsa_view *all,
                              const int64_t *counts, bppsa_comm_request **request);
/* Cancels the pending requests of this communicator (NULL: of all communicators of the endpoint) and returns their number. */
int64_t bppsa_comm_cancel_pending(bppsa_comm_endpoint *endpoint, const bppsa_comm *comm);
/* Reports the error of a rank whose function returned while requests were pending. */
bppsa_status bppsa_comm_unwaited(const bppsa_comm_endpoint *endpoint);
/* Frees staging memory that no request uses, while its GPU exists. */
void bppsa_comm_free_stages(bppsa_comm_endpoint *endpoint);
/* Frees an endpoint's memory; no request may be pending. */
void bppsa_comm_endpoint_clear(bppsa_comm_endpoint *endpoint);
/* Writes where the rank is, for example ", at up-sweep 12", or nothing, to text and returns text. */
enum { BPPSA_COMM_PLACE = 96 };
const char *bppsa_comm_place(const bppsa_comm_endpoint *endpoint, char text[BPPSA_COMM_PLACE]);
/* Writes for example "recv from rank 1, tag 7, 80 bytes, at up-sweep 12" to text and returns text. */
const char *bppsa_comm_describe(const bppsa_comm_request *request, char *text, size_t size);
#define BPPSA_COMM_TEXT 200 /* enough bytes for any such description */
/* Writes the last error as the reason why this rank failed, for example "rank 1: disk full". The text of an ERR_COMM already
 * names its rank. */
void bppsa_comm_reason(int32_t rank, bppsa_status status, char *text, size_t size);
bool bppsa_comm_is_message(bppsa_comm_kind kind);
const char *bppsa_comm_kind_name(bppsa_comm_kind kind);
const char *bppsa_comm_op_name(bppsa_comm_op op);

/* to[i] = to[i] op from[i], i < count; f32, f64 or i64. (comm/reduce.c) */
void bppsa_comm_reduce(bppsa_comm_op op, bppsa_dtype dtype, int64_t count, const void *from, void *to);

#endif

/* What the files of this folder share: a rank's state, a request, and the table of functions that a transport is. */
#ifndef BPPSA_COMM_COMM_INTERNAL_H
#define BPPSA_COMM_COMM_INTERNAL_H

#include "comm/comm.h"
#include "core/alloc.h"

typedef enum {
  BPPSA_COMM_SEND = 0,
  BPPSA_COMM_RECV,
  BPPSA_COMM_BROADCAST,
  BPPSA_COMM_ALLREDUCE,
  BPPSA_COMM_ALLGATHER,
  BPPSA_COMM_GATHER,
  BPPSA_COMM_BARRIER,
  BPPSA_COMM_KIND_COUNT
} bppsa_comm_kind;

/* A block of staging memory that waits for its next use. */
typedef struct bppsa_comm_stage {
  struct bppsa_comm_stage *next;
  const bppsa_device *device;
  int64_t bytes;
  void *data;
} bppsa_comm_stage;

/* What belongs to a rank and is shared by its world and all that was split from it. */
typedef struct {
  int32_t world_rank, node_rank, node_size;
  double timeout;
  const char *where;
  int64_t step;
  const bppsa_device *device;
  bppsa_comm_counters counters;
  bppsa_comm_fault fault;
  int64_t operations; /* begun since the fault was set */
  bool dead;          /* injected */
  int64_t splits;     /* done: numbers the contexts that this rank proposes */
  bppsa_alloc_account *account;
  bppsa_comm_request *pending, *spare; /* begun and not taken back; to be used again, linked by next */
  bppsa_comm_stage *stages;            /* to be used again */
} bppsa_comm_endpoint;

typedef struct bppsa_comm_table bppsa_comm_table;

struct bppsa_comm {
  const bppsa_comm_table *table;
  bppsa_comm_endpoint *endpoint;
  int32_t rank, size;
  int32_t *members;  /* the ranks' numbers in the world, size `size`; owned */
  uint64_t context;  /* of its messages, unique in the world */
  uint64_t sequence; /* collective operations begun */
  void *own;         /* the transport's */
  bppsa_comm *host;  /* carries what is not of a GPU, where this one cannot; otherwise NULL */
};

/* A transport's requests begin with this one (request_bytes). */
struct bppsa_comm_request {
  bppsa_comm *comm;
  bppsa_comm_request *previous, *next; /* in the endpoint's list of those pending */
  bppsa_comm_kind kind;
  int32_t peer; /* of a message, or the root; -1 */
  int32_t tag;  /* of a message; -1 */
  bppsa_comm_op op;
  bppsa_dtype dtype;
  void *data; /* what is sent, received, broadcast, reduced, or this rank's part */
  int64_t count, bytes;
  void *all;        /* gathers: the whole, where this rank gets it; otherwise NULL */
  int64_t *offsets; /* gathers: elements in front of each rank's part, size `size` + 1; then as much for the transport; owned */
  int32_t offset_room;
  /* Where the views are of a GPU and the transport wants host memory: data and all are staging memory, and these the views'. */
  void *gpu_data, *gpu_all;
  bppsa_comm_stage *stage_data, *stage_all;
};

struct bppsa_comm_table {
  bppsa_comm_transport transport;
  unsigned reads_gpu; /* bit k: takes a GPU's views as they are in operations of kind k */
  size_t request_bytes;
  /* Begins the operation; its failure leaves nothing begun. */
  bppsa_status (*post)(bppsa_comm_request *request);
  /* Is it done? Does what it can to get it done, without waiting. After a failure the request is to be cancelled. */
  bppsa_status (*poll)(bppsa_comm_request *request, bool *done);
  /* Nobody touches the request or its memory afterwards. Also for requests that are done. */
  void (*cancel)(bppsa_comm_request *request);
  /* A number that changes when something happens, and: wait until it is no longer `seen`, or until the deadline (bppsa_now). */
  uint64_t (*look)(const bppsa_comm *comm);
  void (*idle)(const bppsa_comm *comm, uint64_t seen, double deadline);
  /* ERR_COMM with the reason where a rank has failed. */
  bppsa_status (*check)(const bppsa_comm *comm);
  /* All ranks are to know that this one failed. */
  void (*fail)(bppsa_comm *comm, const char *why);
  /* Whom it waits for: "rank 3". */
  void (*blame)(const bppsa_comm_request *request, char *text, size_t size);
  /* part, filled in except for what is the transport's own, becomes the communicator of those who gave this color, in order of
   * key and rank. Every rank of comm calls it; part is NULL on those that get none. */
  bppsa_status (*split)(bppsa_comm *comm, int32_t color, int32_t key, bppsa_comm *part);
  /* What bppsa_comm_check_order does; NULL: tags are matched by the transport. */
  bppsa_status (*check_order)(bppsa_comm *comm);
  void (*close)(bppsa_comm *comm); /* frees what `own` is */
};

/* The whole of comm/comm.h's bppsa_comm_run, a transport each; config is checked. */
bppsa_status bppsa_comm_run_threads(const bppsa_comm_config *config, bppsa_comm_body body, void *context,
                                    bppsa_comm_outcome *outcome);
bppsa_status bppsa_comm_run_mpi(const bppsa_comm_config *config, bppsa_comm_body body, void *context,
                                bppsa_comm_outcome *outcome);
void bppsa_comm_end_mpi_job(int exit_code);
/* Fills in built, found and detail. */
void bppsa_comm_probe_mpi(bppsa_comm_transport_report *report);
void bppsa_comm_probe_nccl(bppsa_comm_transport_report *report);

/* ---- comm/request.c ---- */

/* Begins what `wanted` describes (its transport's part is empty), with views on whatever device, and counts it. mine: what
 * wanted->data is to be; all: NULL but for gathers. */
bppsa_status bppsa_comm_begin(const bppsa_comm_request *wanted, const bppsa_view *mine, const bppsa_view *all,
                              const int64_t *counts, bppsa_comm_request **request);
/* Cancels what is pending of this communicator, or of all of the endpoint (NULL); how many they were. */
int64_t bppsa_comm_cancel_pending(bppsa_comm_endpoint *endpoint, const bppsa_comm *comm);
/* The error of a rank whose function returned while requests are pending. */
bppsa_status bppsa_comm_unwaited(const bppsa_comm_endpoint *endpoint);
/* Frees an endpoint's memory; nothing is pending. */
void bppsa_comm_endpoint_clear(bppsa_comm_endpoint *endpoint);
/* "recv from rank 1, tag 7, 80 bytes, at up-sweep 12"; returns text. */
const char *bppsa_comm_describe(const bppsa_comm_request *request, char *text, size_t size);
#define BPPSA_COMM_TEXT 200 /* holds any of them */
/* The last error as the reason why this rank failed: "rank 1: disk full". What fails with ERR_COMM names its rank itself. */
void bppsa_comm_reason(int32_t rank, bppsa_status status, char *text, size_t size);
bool bppsa_comm_is_message(bppsa_comm_kind kind);
const char *bppsa_comm_kind_name(bppsa_comm_kind kind);
const char *bppsa_comm_op_name(bppsa_comm_op op);

/* to[i] = to[i] op from[i], i < count; f32, f64 or i64. (comm/reduce.c) */
void bppsa_comm_reduce(bppsa_comm_op op, bppsa_dtype dtype, int64_t count, const void *from, void *to);

#endif

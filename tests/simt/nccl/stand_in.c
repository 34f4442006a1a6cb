/* A stand-in for NCCL and for the streams its operations are queued on: what its documentation says of the calls that
 * comm/comm_nccl.c makes, between threads of one process. A GPU's memory is the host's here (gpu.c, or the SIMT machine).
 *
 * A stream runs the groups that were queued on it one after the other, and of each the operations side by side. A send and a
 * receive meet when both are in running groups, in the order in which each was queued for the peer; a collective operation when
 * it is in the running groups of all ranks. A device's own stream is the SIMT machine's, if the program has one: what is queued on
 * it is done when NCCL's stream begins to wait for it. Arrays of different sizes, undefined in NCCL, are an asynchronous error of
 * both sides here. Communicators do not block: what waits for other ranks says ncclInProgress.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "comm/comm_internal.h"
#include "comm/library_nccl.h"

enum { MOST_RANKS = 16 };

typedef enum { SEND, RECV, BROADCAST, REDUCE, SCATTER } kind;

typedef struct operation {
  struct operation *next; /* of the group */
  kind kind;
  const void *from;
  void *to;
  size_t bytes;
  int64_t count;
  int peer; /* or the root */
  ncclDataType_t type;
  ncclRedOp_t op;
  bool done;
} operation;

typedef struct group {
  struct group *next;
  operation *first, **last;
} group;

struct stand_in_comm {
  struct stand_in_world *world;
  int rank;
  ncclResult_t error;
  group *running, **last; /* the stream's, from the one that runs on */
  int64_t queued, finished;
  cudaStream_t stream;
};

typedef struct stand_in_world {
  struct stand_in_world *next;
  ncclUniqueId id;
  int ranks, joined, left;
  struct stand_in_comm *comms[MOST_RANKS];
} world;

struct stand_in_stream {
  struct stand_in_stream *next;
  struct stand_in_comm *comm; /* whose operations it has */
};
struct stand_in_event {
  struct stand_in_stream *stream;
  int64_t after; /* groups */
  void *device;  /* the SIMT machine's stream on which it was recorded instead; NULL: none */
};

/* Of the SIMT machine, where there is one: does what is queued on a device's stream. */
extern int simt_finish(void *stream) __attribute__((weak));

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static world *worlds;
static struct stand_in_stream *streams;
static int64_t ids;
static int failing = -1;
static _Thread_local int depth;
static _Thread_local struct stand_in_comm *grouped; /* the communicator of the group that is being made */
static _Thread_local group *making;

static void lock(void) {
  (void)pthread_mutex_lock(&mutex);
}
static void unlock(void) {
  (void)pthread_mutex_unlock(&mutex);
}

/* ---- running ---- */

/* The first operation of rank a's running group that is not done and passes for this one's partner. */
static operation *find(const struct stand_in_comm *comm, kind wanted, int peer) {
  for (operation *o = comm != NULL && comm->running != NULL ? comm->running->first : NULL; o != NULL; o = o->next) {
    if (!o->done && o->kind == wanted && (wanted > RECV || o->peer == peer)) {
      return o;
    }
  }
  return NULL;
}

static bool message(world *w, int rank, operation *send) {
  operation *receive = find(w->comms[send->peer], RECV, rank);
  if (receive == NULL) {
    return false;
  }
  if (receive->bytes != send->bytes) {
    w->comms[rank]->error = w->comms[send->peer]->error = ncclInvalidUsage;
    return false;
  }
  memcpy(receive->to, send->from, send->bytes);
  send->done = receive->done = true;
  return true;
}

static bool collective(world *w, kind what) {
  operation *all[MOST_RANKS];
  for (int r = 0; r < w->ranks; ++r) {
    all[r] = find(w->comms[r], what, 0);
    if (all[r] == NULL) {
      return false;
    }
  }
  const bppsa_comm_op op = all[0]->op == ncclSum ? BPPSA_COMM_SUM : all[0]->op == ncclMax ? BPPSA_COMM_MAX : BPPSA_COMM_MIN;
  const bppsa_dtype type = all[0]->type == ncclFloat32 ? BPPSA_F32 : all[0]->type == ncclFloat64 ? BPPSA_F64 : BPPSA_I64;
  for (int r = 0; r < w->ranks; ++r) {
    if (what == BROADCAST && r != all[r]->peer) {
      memmove(all[r]->to, all[all[r]->peer]->from, all[r]->bytes);
    } else if (what == REDUCE && r > 0) {
      bppsa_comm_reduce(op, type, all[0]->count, all[r]->from, all[0]->to); /* in place */
    }
  }
  for (int r = 0; r < w->ranks; ++r) {
    for (int from = 0; what == SCATTER && from < w->ranks; ++from) {
      const char *part = (const char *)all[from]->from + (size_t)r * all[r]->bytes;
      if (from == 0) {
        memcpy(all[r]->to, part, all[r]->bytes);
      } else {
        bppsa_comm_reduce(op, type, all[r]->count, part, all[r]->to);
      }
    }
    if (what == REDUCE && r > 0) {
      memcpy(all[r]->to, all[0]->to, all[0]->bytes);
    }
    all[r]->done = true;
  }
  return true;
}

static void free_group(group *g) {
  while (g->first != NULL) {
    operation *o = g->first;
    g->first = o->next;
    bppsa_free(o);
  }
  bppsa_free(g);
}

/* Ends groups whose operations are all done. */
static bool finish_groups(struct stand_in_comm *comm) {
  bool ended = false;
  for (group *g = comm != NULL ? comm->running : NULL; g != NULL; g = comm->running) {
    for (const operation *o = g->first; o != NULL; o = o->next) {
      if (!o->done) {
        return ended;
      }
    }
    comm->running = g->next;
    comm->last = comm->running == NULL ? &comm->running : comm->last;
    comm->finished++;
    free_group(g);
    ended = true;
  }
  return ended;
}

static void advance(world *w) {
  for (bool moved = w->joined == w->ranks; moved;) {
    moved = false;
    for (int r = 0; r < w->ranks; ++r) {
      struct stand_in_comm *comm = w->comms[r];
      for (operation *o = comm != NULL && comm->running != NULL ? comm->running->first : NULL; o != NULL; o = o->next) {
        moved = (o->kind == SEND && !o->done && message(w, r, o)) || moved;
      }
    }
    moved = collective(w, BROADCAST) || moved;
    moved = collective(w, REDUCE) || moved;
    moved = collective(w, SCATTER) || moved;
    for (int r = 0; r < w->ranks; ++r) {
      moved = finish_groups(w->comms[r]) || moved;
    }
  }
}

/* ---- communicators ---- */

ncclResult_t ncclGetVersion(int *version) {
  *version = 22809;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidUsage ? "invalid usage" : result == ncclRemoteError ? "remote process exited" : "other error";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  lock();
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "stand-in %lld", (long long)++ids);
  unlock();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  struct stand_in_comm *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL || config->blocking != 0 || ranks > MOST_RANKS || rank < 0 || rank >= ranks) {
    bppsa_free(made);
    return ncclInvalidArgument;
  }
  lock();
  world *w = worlds;
  while (w != NULL && memcmp(&w->id, &id, sizeof id) != 0) {
    w = w->next;
  }
  if (w == NULL && (w = bppsa_calloc(1, sizeof *w)) != NULL) {
    w->id = id;
    w->ranks = ranks;
    w->next = worlds;
    worlds = w;
  }
  const bool fits = w != NULL && w->ranks == ranks && w->comms[rank] == NULL;
  if (fits) {
    made->world = w;
    made->rank = rank;
    made->last = &made->running;
    w->comms[rank] = made;
    w->joined++;
    *comm = made;
  } else {
    bppsa_free(made);
  }
  unlock();
  return fits ? ncclInProgress : ncclInvalidUsage;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  lock();
  world *w = comm->world;
  while (comm->running != NULL) {
    group *g = comm->running;
    comm->running = g->next;
    free_group(g);
  }
  if (comm->stream != NULL) {
    comm->stream->comm = NULL;
  }
  w->comms[comm->rank] = NULL;
  if (++w->left == w->joined) {
    world **at = &worlds;
    while (*at != w) {
      at = &(*at)->next;
    }
    *at = w->next;
    bppsa_free(w);
  }
  bppsa_free(comm);
  unlock();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return ncclCommAbort(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  lock();
  advance(comm->world);
  if (failing == comm->rank) {
    comm->error = ncclRemoteError;
    failing = -1;
  }
  *error = comm->error != ncclSuccess ? comm->error : comm->world->joined < comm->world->ranks ? ncclInProgress : ncclSuccess;
  unlock();
  return ncclSuccess;
}

void nccl_stand_in_fail(int rank) {
  lock();
  failing = rank;
  unlock();
}

/* ---- operations ---- */

ncclResult_t ncclGroupStart(void) {
  depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  if (depth-- != 1 || making == NULL) {
    return depth < 0 ? ncclInvalidUsage : ncclSuccess;
  }
  lock();
  struct stand_in_comm *comm = grouped;
  *comm->last = making;
  comm->last = &making->next;
  comm->queued++;
  making = NULL;
  advance(comm->world);
  unlock();
  return ncclInProgress;
}

static ncclResult_t add(operation what, ncclComm_t comm, cudaStream_t stream) {
  if (depth == 0 || stream == NULL || what.peer < 0 || what.peer >= comm->world->ranks || (making != NULL && grouped != comm)) {
    return ncclInvalidUsage; /* the library always makes groups, of one communicator */
  }
  operation *o = bppsa_alloc(sizeof *o);
  if (making == NULL && (making = bppsa_calloc(1, sizeof *making)) != NULL) {
    making->last = &making->first;
    grouped = comm;
  }
  if (o == NULL || making == NULL) {
    bppsa_free(o);
    return ncclSystemError;
  }
  *o = what;
  *making->last = o;
  making->last = &o->next;
  lock();
  stream->comm = comm;
  comm->stream = stream;
  unlock();
  return ncclSuccess;
}

static size_t size_of(ncclDataType_t type) {
  return type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 8;
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add((operation){.kind = SEND, .from = data, .bytes = count * size_of(type), .peer = peer}, comm, stream);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add((operation){.kind = RECV, .to = data, .bytes = count * size_of(type), .peer = peer}, comm, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return add((operation){.kind = BROADCAST, .from = from, .to = to, .bytes = count * size_of(type), .peer = root}, comm, stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  const operation what = {.kind = REDUCE, .from = from, .to = to, .count = (int64_t)count, .type = type, .op = op};
  operation sized = what;
  sized.bytes = count * size_of(type);
  return from == to ? add(sized, comm, stream) : ncclInvalidArgument; /* the library reduces in place */
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  operation what = {.kind = SCATTER, .from = from, .to = to, .count = (int64_t)count, .type = type, .op = op};
  what.bytes = count * size_of(type);
  return add(what, comm, stream);
}

/* ---- streams ---- */

cudaError_t cudaSetDevice(int device) {
  return device >= 0 && device < MOST_RANKS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device) {
  snprintf(text, (size_t)size, "0000:%02X:00.0", device);
  return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorNotReady ? "not ready" : "invalid value";
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  *stream = bppsa_calloc(1, sizeof **stream);
  if (*stream == NULL || flags != cudaStreamNonBlocking) {
    return cudaErrorInvalidValue;
  }
  lock();
  (*stream)->next = streams;
  streams = *stream;
  unlock();
  return cudaSuccess;
}

/* Where the stream stands in the list; NULL: it is not one of NCCL's. Locked. */
static struct stand_in_stream **find_stream(const void *stream) {
  struct stand_in_stream **at = &streams;
  while (*at != NULL && *at != stream) {
    at = &(*at)->next;
  }
  return *at != NULL ? at : NULL;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  lock();
  *find_stream(stream) = stream->next;
  unlock();
  bppsa_free(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  if (event != NULL && event->device != NULL && simt_finish != NULL && simt_finish(event->device) != cudaSuccess) {
    return cudaErrorInvalidValue;
  }
  return stream != NULL && event != NULL && flags == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  *event = bppsa_calloc(1, sizeof **event);
  return *event != NULL && flags == cudaEventDisableTiming ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  bppsa_free(event);
  return cudaSuccess;
}

/* Without the SIMT machine a device's own stream, NULL, has always done its work. */
cudaError_t cudaEventRecord(cudaEvent_t event, void *stream) {
  lock();
  event->stream = find_stream(stream) != NULL ? stream : NULL;
  event->device = event->stream == NULL ? stream : NULL;
  stream = event->stream;
  event->after = stream != NULL && event->stream->comm != NULL ? event->stream->comm->queued : 0;
  unlock();
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  lock();
  struct stand_in_comm *comm = event->stream != NULL ? event->stream->comm : NULL;
  if (comm != NULL) {
    advance(comm->world);
  }
  const bool reached = comm == NULL || comm->finished >= event->after;
  unlock();
  return reached ? cudaSuccess : cudaErrorNotReady;
}

/* ---- the library, loaded ---- */

bppsa_status bppsa_nccl_load(const nccl_library **library) {
#define POINT(function) .function = function,
  static const nccl_library all = {NCCL_FUNCTIONS(POINT)};
  *library = &all;
  return BPPSA_OK;
}

/* A communicator over NCCL for arrays on GPUs. It is made from a communicator of the same ranks over threads or MPI, called the
 * host's communicator, which carries everything else.
 *
 * Operations are queued on a CUDA stream that belongs to the communicator. Messages that are begun one after the other form a
 * group, which is launched when the rank first waits, tests, or begins a collective operation. Messages of one group do not wait
 * for each other. An event queued after the group tells when the group is done.
 *
 * NCCL has no tags: it matches the messages between two ranks by their order. Each rank records the messages that it begins with
 * every other rank, and bppsa_comm_check_order compares these records over the host's communicator.
 */
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm_internal.h"
#include "comm/library_nccl.h"
#include "core/base/clock.h"

enum { KEPT = 31 }; /* the first messages of a sequence, which are recorded one by one */

/* The messages in one direction between two ranks since the last comparison: the first KEPT one by one, later ones as a hash. */
typedef struct {
  int64_t count;
  uint64_t hash;
  struct {
    int64_t tag, bytes;
  } first[KEPT];
} sequence;

typedef struct event {
  struct event *next;
  cudaEvent_t cuda;
} event;

typedef struct nccl_request {
  bppsa_comm_request base;
  struct nccl_request *later; /* the next request of the group that is not launched yet */
  event *end;                 /* NULL: not launched */
  bool done;
} nccl_request;

typedef struct {
  bppsa_comm_endpoint endpoint;
  const nccl_library *library;
  bppsa_comm *host; /* borrowed; owned if this communicator is a part of another */
  bool owns_host;
  ncclComm_t comm; /* NULL after an abort */
  cudaStream_t stream;
  event *spare;
  nccl_request *group, **group_end; /* messages that are begun but not launched */
  sequence *sent, *received;        /* one for each rank of the communicator */
} nccl_state;

static nccl_state *state_of(const bppsa_comm *comm) {
  return comm->own;
}

/* ---- errors ---- */

static bppsa_status check_nccl(const nccl_library *library, ncclResult_t result, const char *what) {
  if (result == ncclSuccess || result == ncclInProgress) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_COMM, "NCCL: %s: %s", what, library->ncclGetErrorString(result));
}

static bppsa_status check_cuda(cudaError_t error, const char *what) {
  return error == cudaSuccess ? BPPSA_OK : bppsa_fail(BPPSA_ERR_CUDA, "NCCL: %s: %s", what, cudaGetErrorString(error));
}

static void pause_briefly(void) {
  const struct timespec time = {0, 20000};
  (void)nanosleep(&time, NULL);
}

/* Ends NCCL's kernels on the GPU, which would otherwise wait for ever. */
static void abort_comm(nccl_state *s) {
  if (s->comm != NULL) {
    (void)s->library->ncclCommAbort(s->comm);
    s->comm = NULL;
  }
}

/* Waits until NCCL has accepted the last call: its calls are non-blocking. */
static bppsa_status settle(nccl_state *s, ncclResult_t result, const char *what) {
  const double deadline = bppsa_now() + s->endpoint.timeout;
  bppsa_status status = check_nccl(s->library, result, what);
  while (status == BPPSA_OK && result == ncclInProgress) {
    pause_briefly();
    status = s->host->table->check(s->host);
    if (status == BPPSA_OK && bppsa_now() > deadline) {
      status = bppsa_fail(BPPSA_ERR_COMM, "rank %d waited %g s for the other ranks: NCCL: %s", s->endpoint.world_rank,
                          s->endpoint.timeout, what);
    }
    if (status == BPPSA_OK) {
      status = check_nccl(s->library, s->library->ncclCommGetAsyncError(s->comm, &result), what);
    }
    status = status == BPPSA_OK ? check_nccl(s->library, result, what) : status;
  }
  if (status != BPPSA_OK) {
    abort_comm(s);
  }
  return status;
}

/* ---- events ---- */

static bppsa_status take_event(nccl_state *s, event **taken) {
  event *e = s->spare;
  if (e != NULL) {
    s->spare = e->next;
    *taken = e;
    return BPPSA_OK;
  }
  e = bppsa_alloc(sizeof *e);
  if (e == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = check_cuda(cudaEventCreateWithFlags(&e->cuda, cudaEventDisableTiming), "event");
  if (status != BPPSA_OK) {
    bppsa_free(e);
    return status;
  }
  *taken = e;
  return BPPSA_OK;
}

static void give_event(nccl_state *s, event **given) {
  if (*given != NULL) {
    (*given)->next = s->spare;
    s->spare = *given;
    *given = NULL;
  }
}

/* ---- launching ---- */

/* Queues a gather as the messages of one group. */
static ncclResult_t queue_gather(const nccl_state *s, const bppsa_comm_request *r) {
  const nccl_library *l = s->library;
  const bppsa_comm *comm = r->comm;
  const int64_t width = (int64_t)bppsa_dtype_size(r->dtype);
  ncclResult_t result = ncclSuccess;
  for (int32_t peer = 0; peer < comm->size; ++peer) {
    const bool gets = r->peer < 0 || r->peer == peer;
    if (gets && r->bytes > 0 && result == ncclSuccess) {
      result = l->ncclSend(r->data, (size_t)r->bytes, ncclUint8, peer, s->comm, s->stream);
    }
    const int64_t bytes = (r->offsets[peer + 1] - r->offsets[peer]) * width;
    if (r->all != NULL && bytes > 0 && result == ncclSuccess) {
      result = l->ncclRecv((char *)r->all + r->offsets[peer] * width, (size_t)bytes, ncclUint8, peer, s->comm, s->stream);
    }
  }
  return result;
}

static ncclResult_t queue_one(const nccl_state *s, const bppsa_comm_request *r) {
  static const ncclDataType_t types[] = {[BPPSA_F32] = ncclFloat32, [BPPSA_F64] = ncclFloat64, [BPPSA_I64] = ncclInt64};
  static const ncclRedOp_t ops[] = {[BPPSA_COMM_SUM] = ncclSum, [BPPSA_COMM_MAX] = ncclMax, [BPPSA_COMM_MIN] = ncclMin};
  const nccl_library *l = s->library;
  const size_t bytes = (size_t)r->bytes;
  if (bytes == 0 && r->offsets == NULL) {
    return ncclSuccess;
  }
  switch (r->kind) {
  case BPPSA_COMM_SEND:
    return l->ncclSend(r->data, bytes, ncclUint8, r->peer, s->comm, s->stream);
  case BPPSA_COMM_RECV:
    return l->ncclRecv(r->data, bytes, ncclUint8, r->peer, s->comm, s->stream);
  case BPPSA_COMM_BROADCAST:
    return l->ncclBroadcast(r->data, r->data, bytes, ncclUint8, r->peer, s->comm, s->stream);
  case BPPSA_COMM_ALLREDUCE:
    return l->ncclAllReduce(r->data, r->data, (size_t)r->count, types[r->dtype], ops[r->op], s->comm, s->stream);
  case BPPSA_COMM_REDUCE_SCATTER:
    return l->ncclReduceScatter(r->data, r->all, (size_t)(r->count / r->comm->size), types[r->dtype], ops[r->op], s->comm,
                                s->stream);
  default:
    return queue_gather(s, r);
  }
}

/* Makes the stream wait for the work queued on the device so far. */
static bppsa_status follow_device(nccl_state *s) {
  event *ready = NULL;
  BPPSA_TRY(check_cuda(cudaSetDevice(bppsa_device_get_index(s->endpoint.device)), "device"));
  BPPSA_TRY(take_event(s, &ready));
  bppsa_status status = check_cuda(cudaEventRecord(ready->cuda, bppsa_device_get_stream(s->endpoint.device)), "event");
  status = status == BPPSA_OK ? check_cuda(cudaStreamWaitEvent(s->stream, ready->cuda, 0), "event") : status;
  give_event(s, &ready);
  return status;
}

/* Queues all messages that are begun but not launched as one group, followed by an event for each of them. */
static bppsa_status launch(nccl_state *s) {
  if (s->group == NULL) {
    return BPPSA_OK;
  }
  if (s->comm == NULL) {
    return bppsa_fail(BPPSA_ERR_COMM, "NCCL: the communicator was aborted after a failure");
  }
  BPPSA_TRY(follow_device(s));
  nccl_request *first = s->group;
  s->group = NULL;
  s->group_end = &s->group;
  BPPSA_TRY(check_nccl(s->library, s->library->ncclGroupStart(), "group"));
  ncclResult_t result = ncclSuccess;
  for (nccl_request *m = first; m != NULL && (result == ncclSuccess || result == ncclInProgress); m = m->later) {
    result = queue_one(s, &m->base);
  }
  const ncclResult_t ended = s->library->ncclGroupEnd(); /* a group must end also after an error */
  BPPSA_TRY(settle(s, result == ncclSuccess || result == ncclInProgress ? ended : result, "group"));
  for (nccl_request *m = first; m != NULL; m = m->later) {
    event *end = NULL;
    BPPSA_TRY(take_event(s, &end));
    m->end = end;
    BPPSA_TRY(check_cuda(cudaEventRecord(end->cuda, s->stream), "event"));
  }
  return BPPSA_OK;
}

/* ---- the table ---- */

static void keep(sequence *q, const bppsa_comm_request *r) {
  if (q->count < KEPT) {
    q->first[q->count].tag = r->tag;
    q->first[q->count].bytes = r->bytes;
  }
  q->count++;
  q->hash = (q->hash ^ ((uint64_t)r->tag << 40 ^ (uint64_t)r->bytes)) * UINT64_C(0x9E3779B97F4A7C15) + 1;
}

/* Removes the request from the group that is not launched yet; false if it was not in that group. */
static bool take_from_group(nccl_state *s, const nccl_request *m) {
  for (nccl_request **at = &s->group; *at != NULL; at = &(*at)->later) {
    if (*at == m) {
      *at = m->later;
      s->group_end = m->later == NULL ? at : s->group_end;
      return true;
    }
  }
  return false;
}

static bppsa_status post(bppsa_comm_request *r) {
  nccl_request *m = (nccl_request *)(void *)r;
  nccl_state *s = state_of(r->comm);
  const bool message = bppsa_comm_is_message(r->kind);
  if (!message) {
    BPPSA_TRY(launch(s)); /* messages begun earlier come first */
  }
  if (message) {
    keep(r->kind == BPPSA_COMM_SEND ? &s->sent[r->peer] : &s->received[r->peer], r);
  }
  *s->group_end = m;
  s->group_end = &m->later;
  const bppsa_status status = message ? BPPSA_OK : launch(s);
  if (status != BPPSA_OK) {
    (void)take_from_group(s, m);
  }
  return status;
}

static bppsa_status poll(bppsa_comm_request *r, bool *done) {
  nccl_request *m = (nccl_request *)(void *)r;
  nccl_state *s = state_of(r->comm);
  if (m->done) {
    *done = true;
    return BPPSA_OK;
  }
  BPPSA_TRY(launch(s));
  if (s->comm == NULL || m->end == NULL) {
    return bppsa_fail(BPPSA_ERR_COMM, "NCCL: the communicator was aborted after a failure");
  }
  ncclResult_t state = ncclSuccess;
  BPPSA_TRY(check_nccl(s->library, s->library->ncclCommGetAsyncError(s->comm, &state), "asynchronous error"));
  BPPSA_TRY(check_nccl(s->library, state, "asynchronous error"));
  const cudaError_t reached = cudaEventQuery(m->end->cuda);
  if (reached != cudaErrorNotReady) {
    BPPSA_TRY(check_cuda(reached, "operation"));
    m->done = true;
    give_event(s, &m->end);
  }
  *done = m->done;
  return BPPSA_OK;
}

static void cancel(bppsa_comm_request *r) {
  nccl_request *m = (nccl_request *)(void *)r;
  nccl_state *s = state_of(r->comm);
  if (take_from_group(s, m)) {
    return;
  }
  if (!m->done) {
    abort_comm(s); /* so that the GPU no longer reads or writes the request's array */
  }
  give_event(s, &m->end);
}

static uint64_t look(const bppsa_comm *comm) {
  (void)comm;
  return 0;
}

static void idle(const bppsa_comm *comm, uint64_t seen, double deadline) {
  (void)comm, (void)seen, (void)deadline;
  pause_briefly();
}

static bppsa_status check(const bppsa_comm *comm) {
  const bppsa_comm *host = state_of(comm)->host;
  return host->table->check(host);
}

static void fail(bppsa_comm *comm, const char *why) {
  bppsa_comm *host = state_of(comm)->host;
  host->table->fail(host, why);
}

static void blame(const bppsa_comm_request *r, char *text, size_t size) {
  if (bppsa_comm_is_message(r->kind)) {
    snprintf(text, size, "rank %d", r->comm->members[r->peer]);
  } else {
    snprintf(text, size, "the other ranks");
  }
}

/* ---- making ---- */

static void free_state(nccl_state *s) {
  if (s == NULL) {
    return;
  }
  if (s->comm != NULL) {
    (void)s->library->ncclCommDestroy(s->comm);
  }
  while (s->spare != NULL) {
    event *e = s->spare;
    s->spare = e->next;
    (void)cudaEventDestroy(e->cuda);
    bppsa_free(e);
  }
  if (s->stream != NULL) {
    (void)cudaStreamDestroy(s->stream);
  }
  bppsa_comm_endpoint_clear(&s->endpoint);
  bppsa_free(s->sent);
  bppsa_free(s->received);
  if (s->owns_host) {
    bppsa_comm_destroy(s->host);
  }
  bppsa_free(s);
}

static void close_comm(bppsa_comm *comm) {
  free_state(comm->own);
}

/* The location of a rank's GPU: the machine's name and the PCI bus id. */
typedef struct {
  char text[96];
} location;

/* Checks that no two ranks have the same GPU. All ranks return the same status. */
static bppsa_status check_locations(bppsa_comm *host, const bppsa_device *device) {
  location mine = {{0}};
  char machine[48] = "", bus[32] = "";
  (void)gethostname(machine, sizeof machine - 1);
  BPPSA_TRY(check_cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, bppsa_device_get_index(device)), "device"));
  snprintf(mine.text, sizeof mine.text, "%s %s", machine, bus);
  location *all = bppsa_calloc(host->size, sizeof *all);
  if (all == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const int64_t one = sizeof mine, every = one * host->size;
  const bppsa_view part = bppsa_view_make(&mine, BPPSA_U8, 1, &one), whole = bppsa_view_make(all, BPPSA_U8, 1, &every);
  bppsa_status status = bppsa_comm_allgather(host, &part, NULL, &whole);
  for (int32_t b = 1; status == BPPSA_OK && b < host->size; ++b) {
    for (int32_t a = 0; status == BPPSA_OK && a < b; ++a) {
      if (memcmp(&all[a], &all[b], sizeof mine) == 0) {
        status = bppsa_fail(BPPSA_ERR_ARGUMENT,
                            "transport nccl: ranks %d and %d share the GPU %.90s, expected one rank a GPU; "
                            "--transport mpi or threads lets them share it",
                            host->members[a], host->members[b], all[a].text);
      }
    }
  }
  bppsa_free(all);
  return status;
}

static bppsa_status start(nccl_state *s, bppsa_comm *host, const bppsa_device *device) {
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  if (host->rank == 0) {
    BPPSA_TRY(check_nccl(s->library, s->library->ncclGetUniqueId(&id), "unique id"));
  }
  const int64_t bytes = sizeof id;
  const bppsa_view view = bppsa_view_make(&id, BPPSA_U8, 1, &bytes);
  BPPSA_TRY(bppsa_comm_broadcast(host, 0, &view));
  BPPSA_TRY(check_cuda(cudaSetDevice(bppsa_device_get_index(device)), "device"));
  BPPSA_TRY(check_cuda(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "stream"));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return settle(s, s->library->ncclCommInitRankConfig(&s->comm, host->size, id, host->rank, &config), "start");
}

static bppsa_status make_state(bppsa_comm *host, const bppsa_device *device, nccl_state **made) {
  const nccl_library *library = NULL;
  BPPSA_TRY(bppsa_nccl_load(&library));
  BPPSA_TRY(check_locations(host, device));
  nccl_state *s = bppsa_calloc(1, sizeof *s);
  if (s == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_comm_endpoint *outer = host->endpoint;
  s->endpoint = (bppsa_comm_endpoint){.world_rank = outer->world_rank,
                                      .node_rank = outer->node_rank,
                                      .node_size = outer->node_size,
                                      .timeout = outer->timeout,
                                      .where = outer->where,
                                      .step = outer->step,
                                      .device = device};
  s->library = library;
  s->host = host;
  s->group_end = &s->group;
  s->sent = bppsa_calloc(host->size, sizeof *s->sent);
  s->received = bppsa_calloc(host->size, sizeof *s->received);
  const bool room = s->sent != NULL && s->received != NULL;
  const bppsa_status status = room ? start(s, host, device) : BPPSA_ERR_MEMORY;
  if (status != BPPSA_OK) {
    free_state(s);
    return status;
  }
  *made = s;
  return BPPSA_OK;
}

/* Splits the host's communicator as well, and makes this part from the host's part. */
static bppsa_status split(bppsa_comm *comm, int32_t color, int32_t key, bppsa_comm *part) {
  nccl_state *outer = state_of(comm), *made = NULL;
  bppsa_comm *host = NULL;
  BPPSA_TRY(bppsa_comm_split(outer->host, color, key, &host));
  if (part == NULL) {
    return BPPSA_OK;
  }
  const bppsa_status status = make_state(host, outer->endpoint.device, &made);
  if (status != BPPSA_OK) {
    bppsa_comm_destroy(host);
    return status;
  }
  made->owns_host = true;
  part->own = made;
  part->endpoint = &made->endpoint;
  part->host = host;
  return BPPSA_OK;
}

/* ---- the order of messages ---- */

static bppsa_status compare(const bppsa_comm *comm, int32_t from, const sequence *sent, const sequence *received) {
  const int32_t sender = comm->members[from], receiver = comm->members[comm->rank];
  for (int i = 0; i < KEPT && i < sent->count && i < received->count; ++i) {
    if (sent->first[i].tag != received->first[i].tag || sent->first[i].bytes != received->first[i].bytes) {
      return bppsa_fail(BPPSA_ERR_COMM,
                        "message %d from rank %d to rank %d: sent with tag %" PRId64 " and %" PRId64
                        " bytes, received with tag %" PRId64 " and %" PRId64 " bytes",
                        i + 1, sender, receiver, sent->first[i].tag, sent->first[i].bytes, received->first[i].tag,
                        received->first[i].bytes);
    }
  }
  if (sent->count != received->count || sent->hash != received->hash) {
    return bppsa_fail(BPPSA_ERR_COMM,
                      "messages from rank %d to rank %d: %" PRId64 " sent and %" PRId64
                      " received, in orders that differ behind the first %d",
                      sender, receiver, sent->count, received->count, KEPT);
  }
  return BPPSA_OK;
}

static bppsa_status check_order(bppsa_comm *comm) {
  nccl_state *s = state_of(comm);
  const int64_t bytes = sizeof(sequence);
  sequence *sent = bppsa_calloc(comm->size, sizeof *sent);
  if (sent == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = BPPSA_OK, verdict = BPPSA_OK;
  for (int32_t step = 0; status == BPPSA_OK && step < comm->size; ++step) {
    const int32_t to = (comm->rank + step) % comm->size, from = (comm->rank + comm->size - step) % comm->size;
    const bppsa_view out = bppsa_view_make(&s->sent[to], BPPSA_U8, 1, &bytes),
                     in = bppsa_view_make(&sent[from], BPPSA_U8, 1, &bytes);
    bppsa_comm_request *request = NULL;
    status = bppsa_comm_irecv(s->host, from, BPPSA_COMM_MAX_TAG, &in, &request);
    status = status == BPPSA_OK ? bppsa_comm_send(s->host, to, BPPSA_COMM_MAX_TAG, &out) : status;
    status = status == BPPSA_OK ? bppsa_comm_wait(&request) : status;
    bppsa_comm_cancel(1, &request);
    if (status == BPPSA_OK && verdict == BPPSA_OK) {
      verdict = compare(comm, from, &sent[from], &s->received[from]);
    }
  }
  bppsa_free(sent);
  memset(s->sent, 0, (size_t)(comm->size * bytes));
  memset(s->received, 0, (size_t)(comm->size * bytes));
  return status != BPPSA_OK ? status : verdict;
}

/* ---- making a world's ---- */

static const bppsa_comm_table table = {.transport = BPPSA_COMM_NCCL,
                                       .reads_gpu = ~0U,
                                       .request_bytes = sizeof(nccl_request),
                                       .post = post,
                                       .poll = poll,
                                       .cancel = cancel,
                                       .look = look,
                                       .idle = idle,
                                       .check = check,
                                       .fail = fail,
                                       .blame = blame,
                                       .split = split,
                                       .check_order = check_order,
                                       .close = close_comm};

bppsa_status bppsa_comm_create_nccl(bppsa_comm *host, const bppsa_device *device, bppsa_comm **comm) {
  BPPSA_REQUIRE(host != NULL && comm != NULL);
  if (device == NULL || bppsa_device_get_kind(device) != BPPSA_CUDA || host->table->transport == BPPSA_COMM_NCCL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "transport nccl: expected a GPU for every rank, and ranks of threads or mpi");
  }
  bppsa_comm *made = bppsa_calloc(1, sizeof *made);
  int32_t *members = bppsa_calloc(host->size, sizeof *members);
  nccl_state *s = NULL;
  const bppsa_status status = made != NULL && members != NULL ? make_state(host, device, &s) : BPPSA_ERR_MEMORY;
  if (status != BPPSA_OK) {
    bppsa_free(made);
    bppsa_free(members);
    return status;
  }
  memcpy(members, host->members, (size_t)host->size * sizeof *members);
  *made = (bppsa_comm){.table = &table, .endpoint = &s->endpoint, .host = host, .rank = host->rank, .size = host->size};
  made->members = members;
  made->own = s;
  *comm = made;
  return BPPSA_OK;
}

void bppsa_comm_probe_nccl(bppsa_comm_transport_report *report) {
  const nccl_library *library = NULL;
  int version = 0;
  report->built = true;
  report->found = bppsa_nccl_load(&library) == BPPSA_OK && library->ncclGetVersion(&version) == ncclSuccess;
  if (report->found) {
    snprintf(report->detail, sizeof report->detail, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  } else {
    snprintf(report->detail, sizeof report->detail, "%.250s", bppsa_last_error());
  }
}

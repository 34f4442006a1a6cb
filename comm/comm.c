/* Transports, ranks and operations. This file checks arguments; comm/request.c does the rest with the transport's table of
 * functions. */
#include "comm/comm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_internal.h"
#include "core/base/text.h"

extern char **environ;

/* ---- transports ---- */

static void probe_threads(bppsa_comm_transport_report *report) {
  report->built = report->found = true;
  snprintf(report->detail, sizeof report->detail, "in every build");
}

static const struct {
  const char *name, *package;                         /* package: "" if none is needed */
  void (*probe)(bppsa_comm_transport_report *report); /* fills in built, found and detail */
  bppsa_status (*run)(const bppsa_comm_config *config, bppsa_comm_body body, void *context,
                      bppsa_comm_outcome *outcome); /* NULL: it starts no ranks */
  int64_t least;                                    /* the fewest ranks that a run may ask for */
} transports[BPPSA_COMM_TRANSPORT_COUNT] = {
    [BPPSA_COMM_THREADS] = {"threads", "", probe_threads, bppsa_comm_run_threads, 1},
    [BPPSA_COMM_MPI] = {"mpi", "libopenmpi-dev openmpi-bin", bppsa_comm_probe_mpi, bppsa_comm_run_mpi, 0},
    [BPPSA_COMM_NCCL] = {"nccl", "libnccl2 libnccl-dev", bppsa_comm_probe_nccl, NULL, 1},
};

const char *bppsa_comm_transport_name(bppsa_comm_transport transport) {
  return (unsigned)transport < BPPSA_COMM_TRANSPORT_COUNT ? transports[transport].name : "unknown";
}

/* Returns the name of transport `index`, of all or of those that start ranks; NULL after the last. */
static const char *any_name(const void *context, int32_t index) {
  (void)context;
  return index < BPPSA_COMM_TRANSPORT_COUNT ? transports[index].name : NULL;
}

static const char *starting_name(const void *context, int32_t index) {
  (void)context;
  int32_t i = 0;
  while (i < BPPSA_COMM_TRANSPORT_COUNT && (transports[i].run == NULL || index-- > 0)) {
    ++i;
  }
  return any_name(NULL, i);
}

enum { NAMES = 120 /* bytes for a list of names */ };

bppsa_status bppsa_comm_transport_parse(const char *text, bppsa_comm_transport *transport) {
  BPPSA_REQUIRE(text != NULL && transport != NULL);
  for (int i = 0; i < BPPSA_COMM_TRANSPORT_COUNT; ++i) {
    if (strcmp(text, transports[i].name) == 0) {
      *transport = (bppsa_comm_transport)i;
      return BPPSA_OK;
    }
  }
  char names[NAMES];
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "transport \"%s\": expected %s", text,
                    bppsa_text_choices(any_name, NULL, names, sizeof names));
}

void bppsa_comm_transports(bppsa_comm_transport_report reports[BPPSA_COMM_TRANSPORT_COUNT]) {
  for (int i = 0; i < BPPSA_COMM_TRANSPORT_COUNT; ++i) {
    reports[i] = (bppsa_comm_transport_report){.name = transports[i].name, .package = transports[i].package};
    transports[i].probe(&reports[i]);
  }
}

bool bppsa_comm_launched(void) {
  static const char *const prefixes[] = {"OMPI_COMM_WORLD_", "PMIX_RANK", "PMIX_NAMESPACE", "PMI_"};
  for (char **variable = environ; variable != NULL && *variable != NULL; ++variable) {
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; ++i) {
      if (strncmp(*variable, prefixes[i], strlen(prefixes[i])) == 0) {
        return true;
      }
    }
  }
  return false;
}

bool bppsa_comm_launched_first(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    const char *number = getenv(names[i]);
    if (number != NULL) {
      return strcmp(number, "0") == 0;
    }
  }
  return true;
}

/* ---- running ranks ---- */

bppsa_comm_config bppsa_comm_config_default(void) {
  return (bppsa_comm_config){.transport = BPPSA_COMM_THREADS, .ranks = 1, .timeout = 60};
}

static bppsa_status check_config(const bppsa_comm_config *config) {
  if ((unsigned)config->transport >= BPPSA_COMM_TRANSPORT_COUNT || transports[config->transport].run == NULL) {
    char names[NAMES];
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "transport %s: it starts no ranks, expected %s, and bppsa_comm_create_nccl",
                      bppsa_comm_transport_name(config->transport), bppsa_text_choices(starting_name, NULL, names, sizeof names));
  }
  const int64_t least = transports[config->transport].least;
  if (config->ranks < least || config->ranks > BPPSA_COMM_MAX_RANKS) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "ranks %" PRId64 ": expected %" PRId64 " .. %d", config->ranks, least,
                      BPPSA_COMM_MAX_RANKS);
  }
  if (!(config->timeout > 0 && config->timeout <= 1e6)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "timeout %g s: expected above 0, at most 1e6", config->timeout);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_comm_run(const bppsa_comm_config *config, bppsa_comm_body body, void *context, bppsa_comm_outcome *outcome) {
  BPPSA_REQUIRE(config != NULL && body != NULL);
  bppsa_comm_outcome unused;
  outcome = outcome != NULL ? outcome : &unused;
  *outcome = (bppsa_comm_outcome){.rank = -1, .here = true};
  bppsa_status status = check_config(config);
  if (status == BPPSA_OK && config->transport == BPPSA_COMM_THREADS) {
    return bppsa_comm_run_threads(config, body, context, outcome);
  }
  status = status == BPPSA_OK ? transports[config->transport].run(config, body, context, outcome) : status;
  if (config->ended != NULL) {
    config->ended(context);
  }
  return status;
}

int32_t bppsa_comm_left_behind(void) {
  return bppsa_comm_threads_left();
}

void bppsa_comm_end_job(int exit_code) {
  bppsa_comm_end_mpi_job(exit_code);
}

/* ---- a communicator ---- */

int32_t bppsa_comm_rank(const bppsa_comm *comm) {
  return comm->rank;
}

int32_t bppsa_comm_size(const bppsa_comm *comm) {
  return comm->size;
}

int32_t bppsa_comm_node_rank(const bppsa_comm *comm) {
  return comm->endpoint->node_rank;
}

int32_t bppsa_comm_node_size(const bppsa_comm *comm) {
  return comm->endpoint->node_size;
}

bppsa_comm_transport bppsa_comm_get_transport(const bppsa_comm *comm) {
  return comm->table->transport;
}

bppsa_comm *bppsa_comm_get_host(bppsa_comm *comm) {
  return comm->host != NULL ? comm->host : comm;
}

double bppsa_comm_get_timeout(const bppsa_comm *comm) {
  return comm->endpoint->timeout;
}

void bppsa_comm_at(bppsa_comm *comm, const char *where, int64_t step) {
  comm->endpoint->where = where;
  comm->endpoint->step = step;
  if (comm->host != NULL) {
    bppsa_comm_at(comm->host, where, step);
  }
}

void bppsa_comm_set_device(bppsa_comm *comm, const bppsa_device *device) {
  if (device != comm->endpoint->device) {
    bppsa_comm_free_stages(comm->endpoint);
  }
  comm->endpoint->device = device;
}

const bppsa_device *bppsa_comm_get_device(const bppsa_comm *comm) {
  return comm->endpoint->device;
}

void bppsa_comm_abort(bppsa_comm *comm, const char *why) {
  if (comm != NULL) {
    comm->table->fail(comm, why != NULL ? why : "no reason given");
  }
}

bppsa_status bppsa_comm_check_order(bppsa_comm *comm) {
  BPPSA_REQUIRE(comm != NULL);
  return comm->table->check_order != NULL ? comm->table->check_order(comm) : BPPSA_OK;
}

void bppsa_comm_get_counters(const bppsa_comm *comm, bppsa_comm_counters *counters) {
  *counters = comm->endpoint->counters;
}

void bppsa_comm_reset_counters(bppsa_comm *comm) {
  comm->endpoint->counters = (bppsa_comm_counters){0};
}

void bppsa_comm_get_memory(const bppsa_comm *comm, int64_t *bytes, int64_t *peak) {
  const bppsa_comm_endpoint *endpoint = comm->host != NULL ? comm->host->endpoint : comm->endpoint;
  *bytes = bppsa_alloc_account_bytes(endpoint->account);
  *peak = bppsa_alloc_account_peak(endpoint->account);
}

void bppsa_comm_set_fault(bppsa_comm *comm, const bppsa_comm_fault *fault) {
  comm->endpoint->fault = *fault;
  comm->endpoint->operations = 0;
  comm->endpoint->dead = false;
}

/* A fault that tests inject into every run. */
static struct {
  bool wanted;
  int32_t rank; /* -1: every rank */
  bppsa_comm_fault fault;
} run_fault;

void bppsa_comm_set_run_fault(int32_t rank, const bppsa_comm_fault *fault) {
  run_fault.wanted = fault != NULL;
  run_fault.rank = rank;
  run_fault.fault = fault != NULL ? *fault : (bppsa_comm_fault){0};
}

void bppsa_comm_begin_fault(bppsa_comm_endpoint *endpoint) {
  if (run_fault.wanted && (run_fault.rank < 0 || run_fault.rank == endpoint->world_rank)) {
    endpoint->fault = run_fault.fault;
  }
}

/* ---- split ---- */

/* The message of each rank to the others in a split, sent as an array of i64. */
typedef struct {
  int64_t color, key, context;
} claim;
enum { CLAIM_SIZE = sizeof(claim) / sizeof(int64_t) };

/* Does rank a come before rank b in their part? Both gave the same color. */
static bool before(const claim *claims, int32_t a, int32_t b) {
  return claims[a].key < claims[b].key || (claims[a].key == claims[b].key && a < b);
}

/* Makes the communicator of this rank's color, except for the fields of the transport. */
static bppsa_status make_part(const bppsa_comm *comm, const claim *claims, bppsa_comm **part) {
  const int64_t color = claims[comm->rank].color;
  int32_t size = 0;
  for (int32_t r = 0; r < comm->size; ++r) {
    size += claims[r].color == color ? 1 : 0;
  }
  bppsa_comm *made = bppsa_calloc(1, sizeof *made);
  int32_t *members = bppsa_calloc(size, sizeof *members);
  if (made == NULL || members == NULL) {
    bppsa_free(made);
    bppsa_free(members);
    return BPPSA_ERR_MEMORY;
  }
  *made = (bppsa_comm){.table = comm->table, .endpoint = comm->endpoint, .size = size, .members = members};
  for (int32_t r = 0; r < comm->size; ++r) {
    int32_t place = 0;
    for (int32_t other = 0; other < comm->size && claims[r].color == color; ++other) {
      place += claims[other].color == color && before(claims, other, r) ? 1 : 0;
    }
    if (claims[r].color == color) {
      members[place] = comm->members[r];
      made->rank = r == comm->rank ? place : made->rank;
      made->context = place == 0 ? (uint64_t)claims[r].context : made->context;
    }
  }
  *part = made;
  return BPPSA_OK;
}

static void free_comm(bppsa_comm *comm) {
  if (comm != NULL) {
    bppsa_free(comm->members);
  }
  bppsa_free(comm);
}

bppsa_status bppsa_comm_split(bppsa_comm *comm, int32_t color, int32_t key, bppsa_comm **part) {
  BPPSA_REQUIRE(comm != NULL && part != NULL);
  if (color < -1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "split: color %d, expected at least 0, or -1 for no communicator", color);
  }
  bppsa_comm_endpoint *endpoint = comm->endpoint;
  /* The first rank of the part chooses the context: its number in the world, and its number of splits so far. */
  const claim mine = {color, key, ((int64_t)endpoint->world_rank << 40) + ++endpoint->splits};
  claim *claims = bppsa_calloc(comm->size, sizeof *claims);
  if (claims == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_comm_counters counters = endpoint->counters;
  const int64_t length = CLAIM_SIZE, lengths = length * comm->size;
  const bppsa_view one = bppsa_view_make((void *)&mine, BPPSA_I64, 1, &length);
  const bppsa_view all = bppsa_view_make(claims, BPPSA_I64, 1, &lengths);
  bppsa_comm *made = NULL;
  bppsa_status status = bppsa_comm_allgather(comm, &one, NULL, &all);
  if (status == BPPSA_OK && color >= 0) {
    status = make_part(comm, claims, &made);
  }
  bppsa_free(claims);
  if (status == BPPSA_OK) {
    status = comm->table->split(comm, color, key, made);
  }
  endpoint->counters = counters;
  endpoint->counters.collectives++;
  if (status != BPPSA_OK) {
    free_comm(made);
    return status;
  }
  *part = made;
  return BPPSA_OK;
}

void bppsa_comm_destroy(bppsa_comm *comm) {
  if (comm == NULL) {
    return;
  }
  (void)bppsa_comm_cancel_pending(comm->endpoint, comm);
  comm->table->close(comm);
  free_comm(comm);
}

/* ---- arguments ---- */

static bppsa_status check_peer(const bppsa_comm *comm, const char *what, int32_t peer) {
  if (peer < 0 || peer >= comm->size) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s rank %d: expected 0 .. %d", what, peer, comm->size - 1);
  }
  return BPPSA_OK;
}

static bppsa_status check_message(const bppsa_comm *comm, const char *what, int32_t peer, int32_t tag) {
  BPPSA_TRY(check_peer(comm, what, peer));
  if (tag < 0 || tag > BPPSA_COMM_MAX_TAG) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s rank %d, tag %d: expected a tag of 0 .. %d", what, peer, tag, BPPSA_COMM_MAX_TAG);
  }
  return BPPSA_OK;
}

/* Completes a blocking operation: waits for the request if it was begun without an error. */
static bppsa_status finish(bppsa_status begun, bppsa_comm_request *request) {
  return begun != BPPSA_OK ? begun : bppsa_comm_wait(&request);
}

/* ---- messages ---- */

bppsa_status bppsa_comm_isend(bppsa_comm *comm, int32_t to, int32_t tag, const bppsa_view *view, bppsa_comm_request **request) {
  BPPSA_REQUIRE(comm != NULL && view != NULL && request != NULL);
  BPPSA_TRY(check_message(comm, "send to", to, tag));
  return bppsa_comm_begin(&(bppsa_comm_request){.comm = comm, .kind = BPPSA_COMM_SEND, .peer = to, .tag = tag}, view, NULL, NULL,
                          request);
}

bppsa_status bppsa_comm_irecv(bppsa_comm *comm, int32_t from, int32_t tag, const bppsa_view *view, bppsa_comm_request **request) {
  BPPSA_REQUIRE(comm != NULL && view != NULL && request != NULL);
  BPPSA_TRY(check_message(comm, "recv from", from, tag));
  return bppsa_comm_begin(&(bppsa_comm_request){.comm = comm, .kind = BPPSA_COMM_RECV, .peer = from, .tag = tag}, view, NULL,
                          NULL, request);
}

bppsa_status bppsa_comm_send(bppsa_comm *comm, int32_t to, int32_t tag, const bppsa_view *view) {
  bppsa_comm_request *request = NULL;
  const bppsa_status begun = bppsa_comm_isend(comm, to, tag, view, &request);
  return finish(begun, request);
}

bppsa_status bppsa_comm_recv(bppsa_comm *comm, int32_t from, int32_t tag, const bppsa_view *view) {
  bppsa_comm_request *request = NULL;
  const bppsa_status begun = bppsa_comm_irecv(comm, from, tag, view, &request);
  return finish(begun, request);
}

/* ---- collective operations ---- */

bppsa_status bppsa_comm_ibroadcast(bppsa_comm *comm, int32_t root, const bppsa_view *view, bppsa_comm_request **request) {
  BPPSA_REQUIRE(comm != NULL && view != NULL && request != NULL);
  BPPSA_TRY(check_peer(comm, "broadcast from", root));
  return bppsa_comm_begin(&(bppsa_comm_request){.comm = comm, .kind = BPPSA_COMM_BROADCAST, .peer = root, .tag = -1}, view, NULL,
                          NULL, request);
}

bppsa_status bppsa_comm_broadcast(bppsa_comm *comm, int32_t root, const bppsa_view *view) {
  bppsa_comm_request *request = NULL;
  const bppsa_status begun = bppsa_comm_ibroadcast(comm, root, view, &request);
  return finish(begun, request);
}

static bppsa_status check_reduction(const char *name, bppsa_comm_op op, const bppsa_view *view) {
  if ((unsigned)op >= BPPSA_COMM_OP_COUNT) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: operation %d, expected sum, max or min", name, (int)op);
  }
  return view->dtype == BPPSA_F32 || view->dtype == BPPSA_F64 || view->dtype == BPPSA_I64
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: dtype %s, expected f32, f64 or i64", name, bppsa_dtype_name(view->dtype));
}

bppsa_status bppsa_comm_iallreduce(bppsa_comm *comm, bppsa_comm_op op, const bppsa_view *view, bppsa_comm_request **request) {
  BPPSA_REQUIRE(comm != NULL && view != NULL && request != NULL);
  BPPSA_TRY(check_reduction("allreduce", op, view));
  return bppsa_comm_begin(&(bppsa_comm_request){.comm = comm, .kind = BPPSA_COMM_ALLREDUCE, .peer = -1, .tag = -1, .op = op},
                          view, NULL, NULL, request);
}

bppsa_status bppsa_comm_allreduce(bppsa_comm *comm, bppsa_comm_op op, const bppsa_view *view) {
  bppsa_comm_request *request = NULL;
  const bppsa_status begun = bppsa_comm_iallreduce(comm, op, view, &request);
  return finish(begun, request);
}

bppsa_status bppsa_comm_ireduce_scatter(bppsa_comm *comm, bppsa_comm_op op, const bppsa_view *all, const bppsa_view *mine,
                                        bppsa_comm_request **request) {
  BPPSA_REQUIRE(comm != NULL && all != NULL && mine != NULL && request != NULL);
  BPPSA_TRY(check_reduction("reduce-scatter", op, all));
  return bppsa_comm_begin(&(bppsa_comm_request){.comm = comm, .kind = BPPSA_COMM_REDUCE_SCATTER, .peer = -1, .tag = -1, .op = op},
                          all, mine, NULL, request);
}

bppsa_status bppsa_comm_reduce_scatter(bppsa_comm *comm, bppsa_comm_op op, const bppsa_view *all, const bppsa_view *mine) {
  bppsa_comm_request *request = NULL;
  const bppsa_status begun = bppsa_comm_ireduce_scatter(comm, op, all, mine, &request);
  return finish(begun, request);
}

bppsa_status bppsa_comm_iallgather(bppsa_comm *comm, const bppsa_view *mine, const int64_t *counts, const bppsa_view *all,
                                   bppsa_comm_request **request) {
  BPPSA_REQUIRE(comm != NULL && mine != NULL && all != NULL && request != NULL);
  return bppsa_comm_begin(&(bppsa_comm_request){.comm = comm, .kind = BPPSA_COMM_ALLGATHER, .peer = -1, .tag = -1}, mine, all,
                          counts, request);
}

bppsa_status bppsa_comm_allgather(bppsa_comm *comm, const bppsa_view *mine, const int64_t *counts, const bppsa_view *all) {
  bppsa_comm_request *request = NULL;
  const bppsa_status begun = bppsa_comm_iallgather(comm, mine, counts, all, &request);
  return finish(begun, request);
}

bppsa_status bppsa_comm_igather(bppsa_comm *comm, int32_t root, const bppsa_view *mine, const int64_t *counts,
                                const bppsa_view *all, bppsa_comm_request **request) {
  BPPSA_REQUIRE(comm != NULL && mine != NULL && request != NULL);
  BPPSA_TRY(check_peer(comm, "gather to", root));
  return bppsa_comm_begin(&(bppsa_comm_request){.comm = comm, .kind = BPPSA_COMM_GATHER, .peer = root, .tag = -1}, mine,
                          comm->rank == root ? all : NULL, counts, request);
}

bppsa_status bppsa_comm_gather(bppsa_comm *comm, int32_t root, const bppsa_view *mine, const int64_t *counts,
                               const bppsa_view *all) {
  bppsa_comm_request *request = NULL;
  const bppsa_status begun = bppsa_comm_igather(comm, root, mine, counts, all, &request);
  return finish(begun, request);
}

bppsa_status bppsa_comm_ibarrier(bppsa_comm *comm, bppsa_comm_request **request) {
  BPPSA_REQUIRE(comm != NULL && request != NULL);
  const int64_t none = 0;
  const bppsa_view nothing = bppsa_view_make(NULL, BPPSA_U8, 1, &none);
  return bppsa_comm_begin(&(bppsa_comm_request){.comm = comm, .kind = BPPSA_COMM_BARRIER, .peer = -1, .tag = -1}, &nothing, NULL,
                          NULL, request);
}

bppsa_status bppsa_comm_barrier(bppsa_comm *comm) {
  bppsa_comm_request *request = NULL;
  const bppsa_status begun = bppsa_comm_ibarrier(comm, &request);
  return finish(begun, request);
}

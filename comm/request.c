/* Requests, the same for every transport: begins them, waits for them until the deadline, cancels them. Also: staging memory for
 * arrays on a GPU, and the faults that tests inject. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/comm_internal.h"
#include "core/base/clock.h"
#include "core/compute/memory.h"

static const char *const kind_names[BPPSA_COMM_KIND_COUNT] = {"send",           "recv",      "broadcast", "allreduce",
                                                              "reduce-scatter", "allgather", "gather",    "barrier"};
static const char *const op_names[BPPSA_COMM_OP_COUNT] = {"sum", "max", "min"};

const char *bppsa_comm_kind_name(bppsa_comm_kind kind) {
  return kind_names[kind];
}

const char *bppsa_comm_op_name(bppsa_comm_op op) {
  return op_names[op];
}

bool bppsa_comm_is_message(bppsa_comm_kind kind) {
  return kind == BPPSA_COMM_SEND || kind == BPPSA_COMM_RECV;
}

const char *bppsa_comm_place(const bppsa_comm_endpoint *endpoint, char text[BPPSA_COMM_PLACE]) {
  text[0] = '\0';
  if (endpoint->where != NULL && endpoint->step >= 0) {
    snprintf(text, BPPSA_COMM_PLACE, ", at %.60s %" PRId64, endpoint->where, endpoint->step);
  } else if (endpoint->where != NULL) {
    snprintf(text, BPPSA_COMM_PLACE, ", at %.60s", endpoint->where);
  }
  return text;
}

const char *bppsa_comm_describe(const bppsa_comm_request *request, char *text, size_t size) {
  const bppsa_comm *comm = request->comm;
  char peer[64] = "", place[BPPSA_COMM_PLACE];
  if (bppsa_comm_is_message(request->kind)) {
    snprintf(peer, sizeof peer, " %s rank %d, tag %d", request->kind == BPPSA_COMM_SEND ? "to" : "from",
             comm->members[request->peer], request->tag);
  } else if (request->peer >= 0) {
    snprintf(peer, sizeof peer, " %s rank %d", request->kind == BPPSA_COMM_GATHER ? "to" : "from", comm->members[request->peer]);
  } else if (request->kind == BPPSA_COMM_ALLREDUCE || request->kind == BPPSA_COMM_REDUCE_SCATTER) {
    snprintf(peer, sizeof peer, ", %s", op_names[request->op]);
  }
  snprintf(text, size, "%s%s, %" PRId64 " bytes%s", kind_names[request->kind], peer, request->bytes,
           bppsa_comm_place(comm->endpoint, place));
  return text;
}

void bppsa_comm_reason(int32_t rank, bppsa_status status, char *text, size_t size) {
  if (status == BPPSA_ERR_COMM) {
    snprintf(text, size, "%s", bppsa_last_error());
  } else {
    snprintf(text, size, "rank %d: %.480s", rank, bppsa_last_error());
  }
}

/* Prefixes the last error's text with the rank and what it was doing. */
static bppsa_status with_place(const bppsa_comm_request *request, bppsa_status status) {
  char text[BPPSA_COMM_TEXT];
  return bppsa_fail_prefix(status, "rank %d, %s", request->comm->endpoint->world_rank,
                           bppsa_comm_describe(request, text, sizeof text));
}

/* ---- staging memory ---- */

static bppsa_status take_stage(bppsa_comm_endpoint *endpoint, int64_t bytes, bppsa_comm_stage **stage) {
  for (bppsa_comm_stage **at = &endpoint->stages; *at != NULL; at = &(*at)->next) {
    if ((*at)->device == endpoint->device && (*at)->bytes >= bytes) {
      *stage = *at;
      *at = (*at)->next;
      return BPPSA_OK;
    }
  }
  bppsa_comm_stage *made = bppsa_alloc(sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *made = (bppsa_comm_stage){.device = endpoint->device, .bytes = bytes};
  const bppsa_status status = bppsa_memory_alloc_staging(endpoint->device, bytes, &made->data);
  if (status != BPPSA_OK) {
    bppsa_free(made);
    return status;
  }
  *stage = made;
  return BPPSA_OK;
}

static void give_stage(bppsa_comm_endpoint *endpoint, bppsa_comm_stage **stage) {
  if (*stage != NULL) {
    (*stage)->next = endpoint->stages;
    endpoint->stages = *stage;
    *stage = NULL;
  }
}

/* Does the operation read this rank's data? The next function: does it write them? */
static bool reads_data(const bppsa_comm_request *r) {
  return r->kind != BPPSA_COMM_RECV && !(r->kind == BPPSA_COMM_BROADCAST && r->peer != r->comm->rank);
}
static bool writes_data(const bppsa_comm_request *r) {
  return r->kind == BPPSA_COMM_RECV || r->kind == BPPSA_COMM_ALLREDUCE ||
         (r->kind == BPPSA_COMM_BROADCAST && r->peer != r->comm->rank);
}

static int64_t all_bytes(const bppsa_comm_request *r) {
  if (r->kind == BPPSA_COMM_REDUCE_SCATTER) {
    return r->bytes / r->comm->size;
  }
  return r->offsets != NULL ? r->offsets[r->comm->size] * (int64_t)bppsa_dtype_size(r->dtype) : 0;
}

/* Replaces GPU memory by host memory in the request; copies the data to it if the operation reads them. */
static bppsa_status stage_views(bppsa_comm_request *r, const bppsa_view *mine, const bppsa_view *all) {
  bppsa_comm_endpoint *endpoint = r->comm->endpoint;
  if ((r->comm->table->reads_gpu >> r->kind & 1U) != 0) {
    return BPPSA_OK;
  }
  if (mine->device == BPPSA_CUDA && r->bytes > 0) {
    BPPSA_TRY(take_stage(endpoint, r->bytes, &r->stage_data));
    r->gpu_data = r->data;
    r->data = r->stage_data->data;
    if (reads_data(r)) {
      BPPSA_TRY(bppsa_memory_get(endpoint->device, r->data, r->gpu_data, r->bytes));
    }
  }
  if (all != NULL && all->device == BPPSA_CUDA && all_bytes(r) > 0) {
    BPPSA_TRY(take_stage(endpoint, all_bytes(r), &r->stage_all));
    r->gpu_all = r->all;
    r->all = r->stage_all->data;
  }
  return BPPSA_OK;
}

/* Copies what a finished operation wrote from staging memory to the GPU. */
static bppsa_status land(const bppsa_comm_request *r) {
  const bppsa_device *device = r->comm->endpoint->device;
  if (r->stage_data != NULL && writes_data(r)) {
    BPPSA_TRY(bppsa_memory_put(device, r->gpu_data, r->data, r->bytes));
  }
  return r->stage_all != NULL ? bppsa_memory_put(device, r->gpu_all, r->all, all_bytes(r)) : BPPSA_OK;
}

/* ---- requests ---- */

static bppsa_comm_request *take_request(const bppsa_comm *comm) {
  bppsa_comm_endpoint *endpoint = comm->endpoint;
  bppsa_comm_request *request = endpoint->spare;
  if (request != NULL) {
    endpoint->spare = request->next;
    return request;
  }
  return bppsa_calloc(1, comm->table->request_bytes);
}

static void give_request(bppsa_comm_request *request) {
  bppsa_comm_endpoint *endpoint = request->comm->endpoint;
  give_stage(endpoint, &request->stage_data);
  give_stage(endpoint, &request->stage_all);
  bppsa_comm_request *spare = endpoint->spare;
  endpoint->spare = request;
  request->next = spare;
}

static void unlink_request(bppsa_comm_request *request) {
  bppsa_comm_endpoint *endpoint = request->comm->endpoint;
  *(request->previous != NULL ? &request->previous->next : &endpoint->pending) = request->next;
  if (request->next != NULL) {
    request->next->previous = request->previous;
  }
}

/* Frees a request that is done or cancelled. */
static void release(bppsa_comm_request **request) {
  unlink_request(*request);
  give_request(*request);
  *request = NULL;
}

static void cancel(bppsa_comm_request **request) {
  if (*request != NULL) {
    (*request)->comm->table->cancel(*request);
    release(request);
  }
}

void bppsa_comm_cancel(int64_t count, bppsa_comm_request **requests) {
  for (int64_t i = 0; i < count; ++i) {
    cancel(&requests[i]);
  }
}

int64_t bppsa_comm_cancel_pending(bppsa_comm_endpoint *endpoint, const bppsa_comm *comm) {
  int64_t cancelled = 0;
  for (bppsa_comm_request *request = endpoint->pending, *next = NULL; request != NULL; request = next) {
    next = request->next;
    if (comm == NULL || request->comm == comm) {
      cancel(&request);
      ++cancelled;
    }
  }
  return cancelled;
}

bppsa_status bppsa_comm_unwaited(const bppsa_comm_endpoint *endpoint) {
  char operation[BPPSA_COMM_TEXT];
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "the rank's function returned and did not wait for its request: %s",
                    bppsa_comm_describe(endpoint->pending, operation, sizeof operation));
}

void bppsa_comm_free_stages(bppsa_comm_endpoint *endpoint) {
  while (endpoint->stages != NULL) {
    bppsa_comm_stage *stage = endpoint->stages;
    endpoint->stages = stage->next;
    bppsa_memory_free_staging(stage->device, stage->data);
    bppsa_free(stage);
  }
}

void bppsa_comm_endpoint_clear(bppsa_comm_endpoint *endpoint) {
  while (endpoint->spare != NULL) {
    bppsa_comm_request *request = endpoint->spare;
    endpoint->spare = request->next;
    bppsa_free(request->offsets);
    bppsa_free(request);
  }
  bppsa_comm_free_stages(endpoint);
}

/* ---- beginning ---- */

static bppsa_status check_view(const bppsa_comm *comm, const char *what, const bppsa_view *view) {
  if (!bppsa_view_contiguous(view)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: a view with strides, expected a contiguous one", what);
  }
  const bppsa_device *device = comm->endpoint->device;
  if (view->device == BPPSA_CUDA && (device == NULL || bppsa_device_get_kind(device) != BPPSA_CUDA)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: a view of a GPU's memory, expected bppsa_comm_set_device to have named the GPU",
                      what);
  }
  return BPPSA_OK;
}

/* Computes the offsets of a gather from counts, or for equal parts, and checks that the sizes of mine and all agree with them. */
static bppsa_status set_parts(bppsa_comm_request *r, const int64_t *counts, const bppsa_view *all) {
  const bppsa_comm *comm = r->comm;
  const char *name = kind_names[r->kind];
  if (r->offsets == NULL || r->offset_room < comm->size + 1) {
    bppsa_free(r->offsets);
    r->offset_room = comm->size + 1;
    r->offsets = bppsa_calloc(2 * (int64_t)r->offset_room, sizeof *r->offsets);
    if (r->offsets == NULL) {
      return BPPSA_ERR_MEMORY;
    }
  }
  r->offsets[0] = 0;
  for (int32_t i = 0; i < comm->size; ++i) {
    const int64_t part = counts != NULL ? counts[i] : r->count;
    if (part < 0 || part > INT64_MAX / 16 - r->offsets[i]) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "%s: rank %d has %" PRId64 " elements, expected at least 0 and 2^59 in all", name, i,
                        part);
    }
    r->offsets[i + 1] = r->offsets[i] + part;
  }
  if (counts != NULL && counts[comm->rank] != r->count) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: a part of %" PRId64 " elements on rank %d, expected %" PRId64, name, r->count,
                      comm->rank, counts[comm->rank]);
  }
  const bool wants_all = r->kind == BPPSA_COMM_ALLGATHER || comm->rank == r->peer;
  if (wants_all && (all == NULL || bppsa_view_count(all) != r->offsets[comm->size] || all->dtype != r->dtype)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: the whole has %" PRId64 " elements of %s, expected %" PRId64 " of %s", name,
                      all != NULL ? bppsa_view_count(all) : 0, all != NULL ? bppsa_dtype_name(all->dtype) : "nothing",
                      r->offsets[comm->size], bppsa_dtype_name(r->dtype));
  }
  return BPPSA_OK;
}

static bppsa_status check_scatter(const bppsa_comm_request *r, const bppsa_view *mine) {
  const int64_t size = r->comm->size, count = bppsa_view_count(mine);
  return r->count / size == count && r->count % size == 0 && mine->dtype == r->dtype
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE,
                          "reduce-scatter: %" PRId64 " elements of %s to parts of %" PRId64 " elements of %s, expected %" PRId64
                          " times as many of one dtype",
                          r->count, bppsa_dtype_name(r->dtype), count, bppsa_dtype_name(mine->dtype), size);
}

static void sleep_seconds(double seconds) {
  const struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  (void)nanosleep(&time, NULL);
}

/* Counts the operation and carries out the injected fault. */
static bppsa_status inject(bppsa_comm *comm, bppsa_comm_kind kind) {
  bppsa_comm_endpoint *endpoint = comm->endpoint;
  const bppsa_comm_fault *fault = &endpoint->fault;
  const int64_t operation = ++endpoint->operations;
  endpoint->dead = endpoint->dead || operation == fault->die_at;
  if (endpoint->dead) {
    return bppsa_fail(BPPSA_ERR_COMM, "rank %d died at operation %" PRId64 ", as a test wants it", endpoint->world_rank,
                      fault->die_at);
  }
  if (operation == fault->stall_at) {
    const double deadline = bppsa_now() + 10 * endpoint->timeout;
    while (bppsa_now() < deadline) {
      const uint64_t seen = comm->table->look(comm);
      BPPSA_TRY(comm->table->check(comm));
      comm->table->idle(comm, seen, deadline);
    }
  }
  if (kind == BPPSA_COMM_SEND && fault->delay > 0) {
    sleep_seconds(fault->delay);
  }
  return BPPSA_OK;
}

static void count_begun(bppsa_comm_counters *counters, const bppsa_comm_request *r) {
  if (r->kind == BPPSA_COMM_SEND) {
    counters->messages_sent++;
    counters->bytes_sent += r->bytes;
  } else if (r->kind != BPPSA_COMM_RECV) {
    counters->collectives++;
    counters->collective_bytes += r->bytes;
  }
}

/* Fills a request. After a failure give_request frees what the request holds. */
static bppsa_status fill(bppsa_comm_request *r, const bppsa_view *mine, const bppsa_view *all, const int64_t *counts) {
  r->data = mine->data;
  r->dtype = mine->dtype;
  r->count = bppsa_view_count(mine);
  r->bytes = (int64_t)bppsa_view_bytes(mine);
  if (r->kind == BPPSA_COMM_ALLGATHER || r->kind == BPPSA_COMM_GATHER) {
    BPPSA_TRY(set_parts(r, counts, all));
    r->all = all != NULL ? all->data : NULL;
  } else if (r->kind == BPPSA_COMM_REDUCE_SCATTER) {
    BPPSA_TRY(check_scatter(r, all));
    r->all = all->data;
  }
  return stage_views(r, mine, all);
}

bppsa_status bppsa_comm_begin(const bppsa_comm_request *wanted, const bppsa_view *mine, const bppsa_view *all,
                              const int64_t *counts, bppsa_comm_request **request) {
  bppsa_comm *comm = wanted->comm;
  bppsa_comm_endpoint *endpoint = comm->endpoint;
  if (comm->host != NULL && all != NULL && all->device != mine->device) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "%s: the part and the whole in different memories, expected both on the GPU or on the host",
                      kind_names[wanted->kind]);
  }
  if (comm->host != NULL && mine->device == BPPSA_CPU) {
    bppsa_comm_request on_host = *wanted;
    on_host.comm = comm->host;
    return bppsa_comm_begin(&on_host, mine, all, counts, request);
  }
  BPPSA_TRY(check_view(comm, kind_names[wanted->kind], mine));
  if (all != NULL) {
    BPPSA_TRY(check_view(comm, kind_names[wanted->kind], all));
  }
  const bppsa_status injected = inject(comm, wanted->kind);
  if (injected != BPPSA_OK) {
    bppsa_comm_request place = *wanted;
    place.bytes = (int64_t)bppsa_view_bytes(mine);
    return with_place(&place, injected);
  }
  bppsa_comm_request *made = take_request(comm);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  int64_t *offsets = made->offsets;
  const int32_t offset_room = made->offset_room;
  memset(made, 0, comm->table->request_bytes);
  *made = *wanted;
  made->offsets = offsets;
  made->offset_room = offset_room;
  bppsa_status status = fill(made, mine, all, counts);
  if (status == BPPSA_OK) {
    status = comm->table->check(comm);
    status = status == BPPSA_OK ? comm->table->post(made) : status;
    status = status == BPPSA_ERR_COMM ? with_place(made, status) : status;
  }
  if (status != BPPSA_OK) {
    give_request(made);
    return status;
  }
  made->next = endpoint->pending;
  made->previous = NULL;
  if (made->next != NULL) {
    made->next->previous = made;
  }
  endpoint->pending = made;
  count_begun(&endpoint->counters, made);
  *request = made;
  return BPPSA_OK;
}

/* ---- waiting ---- */

/* Asks whether the request is done, and frees it if it is. */
static bppsa_status try_one(bppsa_comm_request **request, bool *done) {
  bppsa_comm_request *r = *request;
  bool finished = false;
  bppsa_status status = r->comm->table->poll(r, &finished);
  if (status == BPPSA_OK && finished) {
    status = land(r);
  }
  if (status != BPPSA_OK) {
    return with_place(r, status);
  }
  if (finished) {
    if (r->kind == BPPSA_COMM_RECV) {
      r->comm->endpoint->counters.messages_received++;
      r->comm->endpoint->counters.bytes_received += r->bytes;
    }
    release(request);
  }
  *done = finished;
  return BPPSA_OK;
}

/* Advances all collective operations of this rank, because other ranks may wait for them while this rank waits for something
 * else. Their failures are reported when this rank waits for them. */
static void progress(const bppsa_comm *comm) {
  for (bppsa_comm_request *r = comm->endpoint->pending; r != NULL; r = r->next) {
    bool done = false;
    if (!bppsa_comm_is_message(r->kind)) {
      (void)r->comm->table->poll(r, &done);
    }
  }
  if (comm->host != NULL) {
    progress(comm->host);
  }
}

bppsa_status bppsa_comm_expired(const bppsa_comm_request *r) {
  BPPSA_REQUIRE(r != NULL);
  char operation[BPPSA_COMM_TEXT], whom[64];
  r->comm->table->blame(r, whom, sizeof whom);
  const bppsa_comm_endpoint *endpoint = r->comm->endpoint;
  return bppsa_fail(BPPSA_ERR_COMM, "rank %d waited %g s for %s: %s", endpoint->world_rank, endpoint->timeout, whom,
                    bppsa_comm_describe(r, operation, sizeof operation));
}

/* Returns the first request that is not NULL, NULL if all are. */
static bppsa_comm_request *first_of(int64_t count, bppsa_comm_request *const *requests) {
  for (int64_t i = 0; i < count; ++i) {
    if (requests[i] != NULL) {
      return requests[i];
    }
  }
  return NULL;
}

/* All requests must belong to the rank of the first. */
static bppsa_status check_rank(int64_t count, bppsa_comm_request *const *requests) {
  const bppsa_comm_request *first = first_of(count, requests);
  for (int64_t i = 0; i < count; ++i) {
    if (requests[i] != NULL && requests[i]->comm->endpoint != first->comm->endpoint) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "wait: request %" PRId64 " belongs to another rank or transport", i);
    }
  }
  return BPPSA_OK;
}

/* Waits until the deadline for one of the requests to be done. */
static bppsa_status first_done(int64_t count, bppsa_comm_request **requests, double deadline, int64_t *index) {
  bppsa_comm_request *first = first_of(count, requests);
  if (first == NULL) {
    *index = -1;
    return BPPSA_OK;
  }
  const bppsa_comm *comm = first->comm;
  for (;;) {
    const uint64_t seen = comm->table->look(comm);
    for (int64_t i = 0; i < count; ++i) {
      bool done = false;
      if (requests[i] != NULL) {
        BPPSA_TRY(try_one(&requests[i], &done));
      }
      if (done) {
        *index = i;
        return BPPSA_OK;
      }
    }
    if (comm->table->check(comm) != BPPSA_OK) {
      return with_place(first, BPPSA_ERR_COMM);
    }
    if (bppsa_now() >= deadline) {
      return bppsa_comm_expired(first);
    }
    progress(comm);
    comm->table->idle(comm, seen, deadline);
  }
}

static double deadline_of(int64_t count, bppsa_comm_request *const *requests) {
  const bppsa_comm_request *first = first_of(count, requests);
  return first == NULL ? 0 : bppsa_now() + first->comm->endpoint->timeout;
}

bppsa_status bppsa_comm_wait_any(int64_t count, bppsa_comm_request **requests, int64_t *index) {
  BPPSA_REQUIRE(count >= 0 && requests != NULL && index != NULL);
  BPPSA_TRY(check_rank(count, requests));
  const bppsa_status status = first_done(count, requests, deadline_of(count, requests), index);
  if (status != BPPSA_OK) {
    bppsa_comm_cancel(count, requests);
  }
  return status;
}

bppsa_status bppsa_comm_wait_all(int64_t count, bppsa_comm_request **requests) {
  BPPSA_REQUIRE(count >= 0 && requests != NULL);
  BPPSA_TRY(check_rank(count, requests));
  const double deadline = deadline_of(count, requests);
  for (int64_t i = 0; i < count; ++i) {
    int64_t index = -1;
    const bppsa_status status = first_done(1, &requests[i], deadline, &index);
    if (status != BPPSA_OK) {
      bppsa_comm_cancel(count, requests);
      return status;
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_comm_wait(bppsa_comm_request **request) {
  BPPSA_REQUIRE(request != NULL);
  return bppsa_comm_wait_all(1, request);
}

bppsa_status bppsa_comm_test(bppsa_comm_request **request, bool *done) {
  BPPSA_REQUIRE(request != NULL && done != NULL);
  bool finished = *request == NULL;
  if (!finished) {
    const bppsa_comm *comm = (*request)->comm;
    bppsa_comm_request *r = *request;
    bppsa_status status = try_one(request, &finished);
    if (status == BPPSA_OK && !finished) {
      progress(comm);
      status = comm->table->check(comm) == BPPSA_OK ? BPPSA_OK : with_place(r, BPPSA_ERR_COMM);
    }
    if (status != BPPSA_OK) {
      cancel(request);
      return status;
    }
  }
  *done = finished;
  return BPPSA_OK;
}

/* Ranks that are threads of this process.
 *
 * A message is copied once, from the sender's array to the receiver's. Of the two ranks the one that calls second makes the copy;
 * until then the first one's request waits in a queue of the receiving rank. A rank that waits sleeps until one of its requests
 * changes.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/threads_internal.h"
#include "core/base/clock.h"

enum { COPY_AT_ONCE = 4096 }; /* this many bytes are copied with the mutex held: that costs less than locking it again */

/* ---- the world ---- */

void bppsa_threads_notify(threads_rank *rank) {
  rank->events++;
  (void)pthread_cond_signal(&rank->changed);
}

void bppsa_threads_notify_members(const bppsa_comm *comm) {
  for (int32_t r = 0; r < comm->size; ++r) {
    bppsa_threads_notify(threads_peer(comm, r));
  }
}

static void notify_all(threads_world *world) {
  for (int32_t r = 0; r < world->size; ++r) {
    bppsa_threads_notify(&world->ranks[r]);
  }
  (void)pthread_cond_signal(&world->over);
}

void bppsa_threads_fail(threads_world *world, int32_t rank, bppsa_status status, const char *reason) {
  if (world->failed < 0) {
    world->failed = rank;
    world->failure = status;
    world->failed_at = bppsa_now();
    snprintf(world->reason, sizeof world->reason, "%s", reason);
    notify_all(world);
  }
}

static bppsa_status failure(const threads_world *world) {
  return world->failed < 0 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_COMM, "%s", world->reason);
}

/* ---- queues ---- */

static void append(message_queue *queue, threads_request *r) {
  r->next = NULL;
  r->previous = queue->last;
  *(queue->last != NULL ? &queue->last->next : &queue->first) = r;
  queue->last = r;
}

static void take_out(message_queue *queue, threads_request *r) {
  *(r->previous != NULL ? &r->previous->next : &queue->first) = r->next;
  *(r->next != NULL ? &r->next->previous : &queue->last) = r->previous;
}

/* The queue in which a request waits; the receiving rank owns it. */
static message_queue *queue_of(const threads_request *r) {
  const bppsa_comm *comm = r->base.comm;
  return r->base.kind == BPPSA_COMM_SEND ? &threads_peer(comm, r->base.peer)->sent : &threads_rank_of(comm)->wanted;
}

/* Do these requests send and receive the same message? Both are in queues of the same receiver. */
static bool belong_together(const bppsa_comm_request *send, const bppsa_comm_request *recv) {
  return send->comm->context == recv->comm->context && send->tag == recv->tag && send->comm->rank == recv->peer;
}

static threads_request *find_partner(const threads_request *r) {
  const bool sends = r->base.kind == BPPSA_COMM_SEND;
  threads_rank *receiver = sends ? threads_peer(r->base.comm, r->base.peer) : threads_rank_of(r->base.comm);
  for (threads_request *other = sends ? receiver->wanted.first : receiver->sent.first; other != NULL; other = other->next) {
    if (sends ? belong_together(&r->base, &other->base) : belong_together(&other->base, &r->base)) {
      return other;
    }
  }
  return NULL;
}

/* ---- messages ---- */

static void meet(threads_world *world, threads_request *r, threads_request *other) {
  take_out(queue_of(other), other);
  message_state end = MESSAGE_DONE;
  if (r->base.bytes != other->base.bytes) {
    r->other_bytes = other->base.bytes;
    other->other_bytes = r->base.bytes;
    end = MESSAGE_MISMATCH;
  } else if (r->base.bytes > 0) {
    const threads_request *send = r->base.kind == BPPSA_COMM_SEND ? r : other;
    const threads_request *recv = send == r ? other : r;
    const size_t bytes = (size_t)r->base.bytes;
    if (bytes <= COPY_AT_ONCE) {
      memcpy(recv->base.data, send->base.data, bytes);
    } else {
      r->state = other->state = MESSAGE_COPYING;
      (void)pthread_mutex_unlock(&world->mutex);
      memcpy(recv->base.data, send->base.data, bytes);
      (void)pthread_mutex_lock(&world->mutex);
    }
  }
  threads_rank *partner = threads_rank_of(other->base.comm);
  r->state = other->state = end; /* after this the other rank may free its request */
  bppsa_threads_notify(partner);
}

static bppsa_status post(bppsa_comm_request *base) {
  threads_request *r = (threads_request *)(void *)base;
  if (!bppsa_comm_is_message(base->kind)) {
    return bppsa_threads_collective_post(r);
  }
  threads_world *world = threads_rank_of(base->comm)->world;
  (void)pthread_mutex_lock(&world->mutex);
  threads_request *other = find_partner(r);
  if (other != NULL) {
    meet(world, r, other);
  } else {
    append(queue_of(r), r);
  }
  (void)pthread_mutex_unlock(&world->mutex);
  return BPPSA_OK;
}

static bppsa_status poll_message(const threads_request *r, bool *done) {
  const bppsa_comm *comm = r->base.comm;
  const bool sends = r->base.kind == BPPSA_COMM_SEND;
  threads_rank *peer = threads_peer(comm, r->base.peer);
  threads_world *world = peer->world;
  (void)pthread_mutex_lock(&world->mutex);
  const message_state state = r->state;
  const bool gone = state == MESSAGE_PENDING && peer->gone && world->failed < 0;
  (void)pthread_mutex_unlock(&world->mutex);
  *done = state == MESSAGE_DONE;
  if (state == MESSAGE_MISMATCH) {
    return bppsa_fail(BPPSA_ERR_COMM, "rank %d %s %" PRId64 " bytes, this rank %s %" PRId64, comm->members[r->base.peer],
                      sends ? "expects" : "sent", r->other_bytes, sends ? "sent" : "expects", r->base.bytes);
  }
  if (gone) {
    return bppsa_fail(BPPSA_ERR_COMM, "rank %d has ended without this message", comm->members[r->base.peer]);
  }
  return BPPSA_OK;
}

static bppsa_status poll(bppsa_comm_request *base, bool *done) {
  threads_request *r = (threads_request *)(void *)base;
  return bppsa_comm_is_message(base->kind) ? poll_message(r, done) : bppsa_threads_collective_poll(r, done);
}

static void cancel(bppsa_comm_request *base) {
  threads_request *r = (threads_request *)(void *)base;
  if (!bppsa_comm_is_message(base->kind)) {
    bppsa_threads_collective_cancel(r);
    return;
  }
  threads_rank *rank = threads_rank_of(base->comm);
  (void)pthread_mutex_lock(&rank->world->mutex);
  if (r->state == MESSAGE_PENDING) {
    take_out(queue_of(r), r);
  }
  while (r->state == MESSAGE_COPYING) {
    (void)pthread_cond_wait(&rank->changed, &rank->world->mutex);
  }
  (void)pthread_mutex_unlock(&rank->world->mutex);
}

/* ---- waiting ---- */

static uint64_t look(const bppsa_comm *comm) {
  threads_rank *rank = threads_rank_of(comm);
  (void)pthread_mutex_lock(&rank->world->mutex);
  const uint64_t events = rank->events;
  (void)pthread_mutex_unlock(&rank->world->mutex);
  return events;
}

/* Waits for the condition until the deadline; false if the deadline has passed. */
static bool wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, double deadline) {
  const time_t seconds = (time_t)deadline;
  const struct timespec time = {seconds, (long)((deadline - (double)seconds) * 1e9)};
  return pthread_cond_timedwait(condition, mutex, &time) == 0;
}

static void idle(const bppsa_comm *comm, uint64_t seen, double deadline) {
  threads_rank *rank = threads_rank_of(comm);
  (void)pthread_mutex_lock(&rank->world->mutex);
  while (rank->events == seen && wait_until(&rank->changed, &rank->world->mutex, deadline)) {
  }
  (void)pthread_mutex_unlock(&rank->world->mutex);
}

static bppsa_status check(const bppsa_comm *comm) {
  threads_world *world = threads_rank_of(comm)->world;
  (void)pthread_mutex_lock(&world->mutex);
  const bppsa_status status = failure(world);
  (void)pthread_mutex_unlock(&world->mutex);
  return status;
}

static void fail(bppsa_comm *comm, const char *why) {
  threads_world *world = threads_rank_of(comm)->world;
  const int32_t rank = comm->endpoint->world_rank;
  char reason[512];
  snprintf(reason, sizeof reason, "rank %d gave up: %s", rank, why);
  (void)pthread_mutex_lock(&world->mutex);
  bppsa_threads_fail(world, rank, BPPSA_ERR_COMM, reason);
  (void)pthread_mutex_unlock(&world->mutex);
}

static void blame(const bppsa_comm_request *base, char *text, size_t size) {
  if (bppsa_comm_is_message(base->kind)) {
    snprintf(text, size, "rank %d", base->comm->members[base->peer]);
  } else {
    bppsa_threads_collective_blame((const threads_request *)(const void *)base, text, size);
  }
}

/* A part of a world needs nothing: its context keeps its messages apart from others. */
static bppsa_status split(bppsa_comm *comm, int32_t color, int32_t key, bppsa_comm *part) {
  (void)comm, (void)color, (void)key, (void)part;
  return BPPSA_OK;
}

static void close_comm(bppsa_comm *comm) {
  (void)comm;
}

static const bppsa_comm_table table = {.transport = BPPSA_COMM_THREADS,
                                       .request_bytes = sizeof(threads_request),
                                       .post = post,
                                       .poll = poll,
                                       .cancel = cancel,
                                       .look = look,
                                       .idle = idle,
                                       .check = check,
                                       .fail = fail,
                                       .blame = blame,
                                       .split = split,
                                       .close = close_comm};

/* ---- running ---- */

static atomic_int left_ranks; /* ranks left behind that have not ended, of all worlds */

int32_t bppsa_comm_threads_left(void) {
  return atomic_load(&left_ranks);
}

/* Frees the world; afterwards nothing uses the caller's context. */
static void free_world(threads_world *world) {
  void (*ended)(void *context) = world->ended;
  void *context = world->context;
  bppsa_threads_collective_clear(world);
  for (int32_t r = 0; r < world->size; ++r) {
    bppsa_comm_endpoint_clear(&world->ranks[r].endpoint);
    bppsa_alloc_account_destroy(world->ranks[r].endpoint.account);
    (void)pthread_cond_destroy(&world->ranks[r].changed);
  }
  (void)pthread_cond_destroy(&world->over);
  (void)pthread_mutex_destroy(&world->mutex);
  bppsa_free(world->members);
  bppsa_free(world->ranks);
  bppsa_free(world);
  if (ended != NULL) {
    ended(context);
  }
}

/* This thread no longer uses the world; the last thread frees it. */
static void release_world(threads_world *world) {
  (void)pthread_mutex_lock(&world->mutex);
  const int32_t left = --world->holders;
  (void)pthread_mutex_unlock(&world->mutex);
  if (left == 0) {
    free_world(world);
  }
}

static void start_condition(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  (void)pthread_condattr_init(&attributes);
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  (void)pthread_cond_init(condition, &attributes);
  (void)pthread_condattr_destroy(&attributes);
}

static bppsa_status make_world(const bppsa_comm_config *config, bppsa_comm_body body, void *context, threads_world **made) {
  const int32_t size = (int32_t)config->ranks;
  threads_world *world = bppsa_calloc(1, sizeof *world);
  if (world == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *world = (threads_world){.holders = 1, .body = body, .context = context, .timeout = config->timeout, .failed = -1};
  (void)pthread_mutex_init(&world->mutex, NULL);
  start_condition(&world->over);
  world->ranks = bppsa_calloc(size, sizeof *world->ranks);
  world->members = bppsa_calloc(size, sizeof *world->members);
  for (; world->ranks != NULL && world->members != NULL && world->size < size; ++world->size) {
    const int32_t r = world->size;
    threads_rank *rank = &world->ranks[r];
    bppsa_alloc_account *account = bppsa_alloc_account_create();
    if (account == NULL) {
      break;
    }
    world->members[r] = r;
    rank->world = world;
    rank->endpoint = (bppsa_comm_endpoint){.world_rank = r, .node_rank = r, .node_size = size, .timeout = config->timeout};
    rank->endpoint.account = account;
    bppsa_comm_begin_fault(&rank->endpoint);
    rank->comm = (bppsa_comm){.table = &table, .endpoint = &rank->endpoint, .rank = r, .size = size, .members = world->members};
    start_condition(&rank->changed);
  }
  if (world->size < size) {
    release_world(world);
    return BPPSA_ERR_MEMORY;
  }
  *made = world;
  return BPPSA_OK;
}

/* The main function of a rank's thread. */
static void *run_rank(void *argument) {
  threads_rank *rank = argument;
  threads_world *world = rank->world;
  bppsa_alloc_account_use(rank->endpoint.account);
  const int32_t number = rank->endpoint.world_rank;
  bppsa_status status = world->body(&rank->comm, world->context);
  if (status == BPPSA_OK && rank->endpoint.pending != NULL) {
    status = bppsa_comm_unwaited(&rank->endpoint);
  }
  if (status != BPPSA_OK) {
    char reason[512];
    bppsa_comm_reason(number, status, reason, sizeof reason);
    (void)pthread_mutex_lock(&world->mutex);
    bppsa_threads_fail(world, number, status, reason);
    (void)pthread_mutex_unlock(&world->mutex);
  }
  (void)bppsa_comm_cancel_pending(&rank->endpoint, NULL);
  (void)pthread_mutex_lock(&world->mutex);
  rank->gone = true;
  world->running--;
  const bool left = world->left;
  notify_all(world);
  (void)pthread_mutex_unlock(&world->mutex);
  release_world(world);
  if (left) {
    atomic_fetch_sub(&left_ranks, 1);
  }
  return NULL;
}

/* Starts a thread for each rank, with all signals blocked so that the program's own threads handle them. Returns the number of
 * threads that were started. */
static int32_t start_ranks(threads_world *world) {
  sigset_t all, before;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  int32_t started = 0;
  (void)pthread_mutex_lock(&world->mutex);
  while (started < world->size && pthread_create(&world->ranks[started].thread, NULL, run_rank, &world->ranks[started]) == 0) {
    ++started;
  }
  world->running = started;
  world->holders += started;
  for (int32_t r = started; r < world->size; ++r) {
    world->ranks[r].gone = true;
  }
  if (started < world->size) {
    char reason[96];
    snprintf(reason, sizeof reason, "rank %d cannot start: the system refuses another thread", started);
    bppsa_threads_fail(world, started, BPPSA_ERR_COMM, reason);
  }
  (void)pthread_mutex_unlock(&world->mutex);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return started;
}

/* Waits until the ranks have ended; after a failure, at most for the timeout. */
static void end_ranks(threads_world *world, int32_t started, bppsa_comm_outcome *outcome) {
  (void)pthread_mutex_lock(&world->mutex);
  bool in_time = true;
  while (world->running > 0 && in_time) {
    if (world->failed < 0) {
      (void)pthread_cond_wait(&world->over, &world->mutex);
    } else {
      in_time = wait_until(&world->over, &world->mutex, world->failed_at + world->timeout);
    }
  }
  outcome->rank = world->failed;
  outcome->left_behind = world->running;
  world->left = world->running > 0;
  atomic_fetch_add(&left_ranks, world->running);
  for (int32_t r = 0; r < started; ++r) {
    const bool gone = world->ranks[r].gone;
    const pthread_t thread = world->ranks[r].thread;
    (void)pthread_mutex_unlock(&world->mutex);
    (void)(gone ? pthread_join(thread, NULL) : pthread_detach(thread));
    (void)pthread_mutex_lock(&world->mutex);
  }
  (void)pthread_mutex_unlock(&world->mutex);
}

bppsa_status bppsa_comm_run_threads(const bppsa_comm_config *config, bppsa_comm_body body, void *context,
                                    bppsa_comm_outcome *outcome) {
  threads_world *world = NULL;
  const bppsa_status made = make_world(config, body, context, &world);
  if (made != BPPSA_OK) {
    if (config->ended != NULL) {
      config->ended(context);
    }
    return made;
  }
  world->ended = config->ended;
  const int32_t started = start_ranks(world);
  end_ranks(world, started, outcome);
  (void)pthread_mutex_lock(&world->mutex);
  const bppsa_status status = world->failed < 0 ? BPPSA_OK : bppsa_fail(world->failure, "%s", world->reason);
  (void)pthread_mutex_unlock(&world->mutex);
  release_world(world);
  return status;
}

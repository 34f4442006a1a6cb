/* Ranks that are threads: the world that they share, and the state of each rank. One mutex guards all of it; large arrays are
 * copied while the mutex is not held. */
#ifndef BPPSA_COMM_THREADS_INTERNAL_H
#define BPPSA_COMM_THREADS_INTERNAL_H

#include <pthread.h>

#include "comm/comm_internal.h"

/* PENDING until a partner is found; COPYING while a thread copies without holding the mutex; then DONE, or MISMATCH if the sizes
 * differ. */
typedef enum { MESSAGE_PENDING = 0, MESSAGE_COPYING, MESSAGE_DONE, MESSAGE_MISMATCH } message_state;

typedef struct threads_request threads_request;
typedef struct threads_collective threads_collective;
typedef struct threads_world threads_world;

struct threads_request {
  bppsa_comm_request base;
  /* for a message */
  message_state state;
  int64_t other_bytes;              /* the size of the partner's array, after MISMATCH */
  threads_request *previous, *next; /* in a queue, while PENDING */
  /* for a collective operation */
  threads_collective *collective;
  bool worked; /* this rank has made its own copy */
};

typedef struct {
  threads_request *first, *last;
} message_queue;

typedef struct {
  bppsa_comm_endpoint endpoint;
  threads_world *world;
  bppsa_comm comm; /* the communicator of all ranks */
  pthread_cond_t changed;
  uint64_t events;            /* number of events that this rank may wait for */
  message_queue wanted, sent; /* wanted: receives of this rank; sent: sends to this rank */
  bool gone;                  /* the rank's function has returned */
  pthread_t thread;
} threads_rank;

struct threads_world {
  pthread_mutex_t mutex;
  pthread_cond_t over; /* signalled when a rank is gone or has failed */
  int32_t size, running;
  int32_t holders; /* number of threads that use this memory; the last one frees it */
  bppsa_comm_body body;
  void *context;
  void (*ended)(void *context);
  bool left; /* bppsa_comm_run has returned before all ranks ended */
  double timeout;
  int32_t failed; /* the rank that failed first; -1: none */
  bppsa_status failure;
  double failed_at;
  char reason[512];
  threads_collective *collectives, *spare; /* collectives: not finished; spare: free for the next use */
  int32_t *members;                        /* 0 .. size - 1 */
  threads_rank *ranks;                     /* size `size` */
};

static inline threads_rank *threads_rank_of(const bppsa_comm *comm) {
  return (threads_rank *)(void *)comm->endpoint;
}
/* The state of the rank whose number in this communicator is `rank`. */
static inline threads_rank *threads_peer(const bppsa_comm *comm, int32_t rank) {
  return &threads_rank_of(comm)->world->ranks[comm->members[rank]];
}

/* The caller of these functions holds the mutex. */
void bppsa_threads_notify(threads_rank *rank);
void bppsa_threads_notify_members(const bppsa_comm *comm);
void bppsa_threads_fail(threads_world *world, int32_t rank, bppsa_status status, const char *reason);

/* The caller of these functions does not hold the mutex. They post, poll and cancel collective operations; blame names the first
 * rank that is missing. */
bppsa_status bppsa_threads_collective_post(threads_request *request);
bppsa_status bppsa_threads_collective_poll(threads_request *request, bool *done);
void bppsa_threads_collective_cancel(threads_request *request);
void bppsa_threads_collective_blame(const threads_request *request, char *text, size_t size);
void bppsa_threads_collective_clear(threads_world *world);

#endif

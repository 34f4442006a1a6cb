/* Ranks that are threads: the world they share, and what each has in it. One mutex guards all of it; arrays are copied outside.
 * */
#ifndef BPPSA_COMM_THREADS_INTERNAL_H
#define BPPSA_COMM_THREADS_INTERNAL_H

#include <pthread.h>

#include "comm/comm_internal.h"

/* PENDING until a partner is found; COPYING while some thread copies, without the mutex; then DONE or, sizes differing,
 * MISMATCH. */
typedef enum { MESSAGE_PENDING = 0, MESSAGE_COPYING, MESSAGE_DONE, MESSAGE_MISMATCH } message_state;

typedef struct threads_request threads_request;
typedef struct threads_collective threads_collective;
typedef struct threads_world threads_world;

struct threads_request {
  bppsa_comm_request base;
  /* a message */
  message_state state;
  int64_t other_bytes;              /* of the partner, after MISMATCH */
  threads_request *previous, *next; /* in a queue, while PENDING */
  /* a collective operation */
  threads_collective *collective;
  bool worked; /* its own copy is done */
};

typedef struct {
  threads_request *first, *last;
} message_queue;

typedef struct {
  bppsa_comm_endpoint endpoint;
  threads_world *world;
  bppsa_comm comm; /* of all ranks */
  pthread_cond_t changed;
  uint64_t events;            /* counts what this rank may wait for */
  message_queue wanted, sent; /* receives of this rank, sends to it */
  bool gone;                  /* its function has returned */
  pthread_t thread;
} threads_rank;

struct threads_world {
  pthread_mutex_t mutex;
  pthread_cond_t over; /* a rank is gone, or failed */
  int32_t size, running;
  int32_t holders; /* threads that use this memory: the last one frees it */
  bppsa_comm_body body;
  void *context;
  double timeout;
  int32_t failed; /* the rank that failed first; -1: none */
  bppsa_status failure;
  double failed_at;
  char reason[512];
  threads_collective *collectives, *spare; /* under way; to be used again */
  int32_t *members;                        /* 0 .. size - 1 */
  threads_rank *ranks;                     /* size `size` */
};

static inline threads_rank *threads_rank_of(const bppsa_comm *comm) {
  return (threads_rank *)(void *)comm->endpoint;
}
/* The rank of the world that is `rank` in this communicator. */
static inline threads_rank *threads_peer(const bppsa_comm *comm, int32_t rank) {
  return &threads_rank_of(comm)->world->ranks[comm->members[rank]];
}

/* All with the mutex held. */
void bppsa_threads_notify(threads_rank *rank);
void bppsa_threads_notify_members(const bppsa_comm *comm);
void bppsa_threads_fail(threads_world *world, int32_t rank, bppsa_status status, const char *reason);

/* Without it: posts, polls and cancels collective operations; blames the first rank that is missing. */
bppsa_status bppsa_threads_collective_post(threads_request *request);
bppsa_status bppsa_threads_collective_poll(threads_request *request, bool *done);
void bppsa_threads_collective_cancel(threads_request *request);
void bppsa_threads_collective_blame(const threads_request *request, char *text, size_t size);
void bppsa_threads_collective_clear(threads_world *world);

#endif

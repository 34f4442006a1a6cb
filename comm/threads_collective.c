/* Collective operations of ranks that are threads. Each rank enters the addresses of its arrays; the work is cut into pieces, and
 * a rank that polls does a piece. Each array is copied once:
 *
 *   broadcast   one piece for each rank but the root: the rank copies the root's array, without waiting for other ranks
 *   allgather   one piece for each rank: the rank copies all parts, after all ranks have come
 *   gather      one piece: the root copies all parts
 *   allreduce   pieces of 64 KiB: any rank adds up one piece of all arrays, in the order of ranks, and writes the sum to all
 *   reduce-scatter  one piece for each rank: the rank adds up its part of all arrays, in the order of ranks
 *   barrier     no pieces
 *
 * A rank is done when no rank reads or writes its arrays any more.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/threads_internal.h"

enum { PIECE_BYTES = 65536, TILE_BYTES = 4096 };

typedef struct {
  threads_request *request; /* NULL: the rank has not come, or has left */
  bool came;                /* true also after the rank has left */
} slot;

struct threads_collective {
  threads_collective *next;
  uint64_t context, sequence;
  /* The call of the rank that came first, and that rank's number in the world. */
  bppsa_comm_kind kind;
  int32_t peer, first;
  bppsa_comm_op op;
  bppsa_dtype dtype;
  int64_t bytes;
  int32_t size, arrived, left;
  int64_t pieces, claimed, finished, active; /* active: claimed but not finished */
  bool broken;                               /* a rank has cancelled its request; the others wait, most likely until it fails */
  int32_t broken_by;                         /* in the world */
  slot slots[];                              /* by rank; as many as the world has ranks */
};

/* ---- meeting ---- */

static int64_t piece_count(const bppsa_comm_request *r) {
  const int64_t counts[BPPSA_COMM_KIND_COUNT] = {[BPPSA_COMM_BROADCAST] = r->comm->size - 1,
                                                 [BPPSA_COMM_ALLREDUCE] = (r->bytes + PIECE_BYTES - 1) / PIECE_BYTES,
                                                 [BPPSA_COMM_REDUCE_SCATTER] = r->comm->size,
                                                 [BPPSA_COMM_ALLGATHER] = r->comm->size,
                                                 [BPPSA_COMM_GATHER] = 1,
                                                 [BPPSA_COMM_BARRIER] = 0};
  return counts[r->kind];
}

/* Finds the operation that this request belongs to; makes it if this is its first request. NULL: out of memory. */
static threads_collective *find(threads_world *world, const bppsa_comm_request *r, uint64_t sequence) {
  for (threads_collective *c = world->collectives; c != NULL; c = c->next) {
    if (c->context == r->comm->context && c->sequence == sequence) {
      return c;
    }
  }
  threads_collective *made = world->spare;
  const size_t bytes = sizeof *made + (size_t)world->size * sizeof(slot);
  if (made != NULL) {
    world->spare = made->next;
  } else if ((made = bppsa_alloc(bytes)) == NULL) {
    return NULL;
  }
  memset(made, 0, bytes);
  made->context = r->comm->context;
  made->sequence = sequence;
  made->kind = r->kind;
  made->peer = r->peer;
  made->first = r->comm->endpoint->world_rank;
  made->op = r->op;
  made->dtype = r->dtype;
  made->bytes = r->bytes;
  made->size = r->comm->size;
  made->pieces = piece_count(r);
  made->next = world->collectives;
  world->collectives = made;
  return made;
}

static void drop(threads_world *world, threads_collective *c) {
  threads_collective **at = &world->collectives;
  while (*at != c) {
    at = &(*at)->next;
  }
  *at = c->next;
  c->next = world->spare;
  world->spare = c;
}

void bppsa_threads_collective_clear(threads_world *world) {
  for (threads_collective **list = &world->collectives;; list = &world->spare) {
    while (*list != NULL) {
      threads_collective *c = *list;
      *list = c->next;
      bppsa_free(c);
    }
    if (list == &world->spare) {
      return;
    }
  }
}

/* Does this rank make the same call as the first one? If not, writes the difference to reason. */
static bool agrees(const threads_collective *c, const bppsa_comm_request *r, char *reason, size_t size) {
  const bool gathers = r->kind == BPPSA_COMM_ALLGATHER || r->kind == BPPSA_COMM_GATHER;
  const bool same = c->kind == r->kind && c->peer == r->peer && c->op == r->op && c->dtype == r->dtype;
  bool fits = same && (gathers || c->bytes == r->bytes);
  for (int32_t i = 0; same && gathers && i < c->size; ++i) { /* no rank leaves a gather before all have come */
    const threads_request *other = c->slots[i].request;
    fits = fits && (other == NULL || memcmp(other->base.offsets, r->offsets, (size_t)(c->size + 1) * sizeof *r->offsets) == 0);
  }
  if (!fits) {
    snprintf(reason, size,
             "rank %d calls %s (root %d, %s, %s, %" PRId64 " bytes) where rank %d calls %s (root %d, %s, %s, %" PRId64
             " bytes)%s",
             r->comm->endpoint->world_rank, bppsa_comm_kind_name(r->kind), r->peer, bppsa_comm_op_name(r->op),
             bppsa_dtype_name(r->dtype), r->bytes, c->first, bppsa_comm_kind_name(c->kind), c->peer, bppsa_comm_op_name(c->op),
             bppsa_dtype_name(c->dtype), c->bytes, same && gathers ? ", and their counts differ" : "");
  }
  return fits;
}

bppsa_status bppsa_threads_collective_post(threads_request *r) {
  bppsa_comm *comm = r->base.comm;
  threads_world *world = threads_rank_of(comm)->world;
  char reason[400] = "";
  bppsa_status status = BPPSA_OK;
  (void)pthread_mutex_lock(&world->mutex);
  threads_collective *c = find(world, &r->base, comm->sequence);
  if (c == NULL) {
    status = BPPSA_ERR_MEMORY;
  } else if (!agrees(c, &r->base, reason, sizeof reason)) {
    bppsa_threads_fail(world, comm->endpoint->world_rank, BPPSA_ERR_COMM, reason);
    status = bppsa_fail(BPPSA_ERR_COMM, "%s", reason);
  } else {
    comm->sequence++;
    r->collective = c;
    c->slots[comm->rank] = (slot){.request = r, .came = true};
    c->arrived++;
    if (c->arrived == c->size || c->kind == BPPSA_COMM_BROADCAST) {
      bppsa_threads_notify_members(comm);
    }
  }
  (void)pthread_mutex_unlock(&world->mutex);
  return status;
}

/* ---- working ---- */

/* Chooses the piece that this rank does next; -1: none. */
static int64_t claim(threads_collective *c, threads_request *r, const threads_world *world) {
  const bppsa_comm *comm = r->base.comm;
  if (c->broken || world->failed >= 0 || r->worked) {
    return -1;
  }
  const bool all_here = c->arrived == c->size;
  bool mine = false;
  switch (c->kind) {
  case BPPSA_COMM_BROADCAST:
    mine = comm->rank != c->peer && c->slots[c->peer].came;
    break;
  case BPPSA_COMM_ALLGATHER:
  case BPPSA_COMM_REDUCE_SCATTER:
    mine = all_here;
    break;
  case BPPSA_COMM_GATHER:
    mine = all_here && comm->rank == c->peer;
    break;
  case BPPSA_COMM_ALLREDUCE:
    if (all_here && c->claimed < c->pieces) {
      c->active++;
      return c->claimed++;
    }
    return -1;
  default:
    return -1;
  }
  if (!mine) {
    return -1;
  }
  r->worked = true;
  c->active++;
  return 0;
}

static void copy(void *to, const void *from, int64_t bytes) {
  if (bytes > 0 && to != from) {
    memcpy(to, from, (size_t)bytes);
  }
}

static void collect(const threads_collective *c, const threads_request *r) {
  const int64_t size = (int64_t)bppsa_dtype_size(r->base.dtype);
  for (int32_t i = 0; i < c->size; ++i) {
    const bppsa_comm_request *part = &c->slots[i].request->base;
    copy((char *)r->base.all + r->base.offsets[i] * size, part->data, part->bytes);
  }
}

/* Reduces piece `piece` of all ranks' arrays, in tiles that stay in the cache. */
static void reduce(const threads_collective *c, int64_t piece) {
  _Alignas(BPPSA_ALIGNMENT) char tile[TILE_BYTES];
  const int64_t last = (piece + 1) * PIECE_BYTES, end = last < c->bytes ? last : c->bytes;
  for (int64_t at = piece * PIECE_BYTES; at < end; at += TILE_BYTES) {
    const int64_t bytes = end - at < TILE_BYTES ? end - at : TILE_BYTES;
    memcpy(tile, (const char *)c->slots[0].request->base.data + at, (size_t)bytes);
    for (int32_t i = 1; i < c->size; ++i) {
      bppsa_comm_reduce(c->op, c->dtype, bytes / (int64_t)bppsa_dtype_size(c->dtype),
                        (const char *)c->slots[i].request->base.data + at, tile);
    }
    for (int32_t i = 0; i < c->size; ++i) {
      memcpy((char *)c->slots[i].request->base.data + at, tile, (size_t)bytes);
    }
  }
}

/* Reduces this rank's part of all ranks' arrays. */
static void reduce_part(const threads_collective *c, const threads_request *r) {
  const int64_t bytes = c->bytes / c->size, at = r->base.comm->rank * bytes, count = bytes / (int64_t)bppsa_dtype_size(c->dtype);
  copy(r->base.all, (const char *)c->slots[0].request->base.data + at, bytes);
  for (int32_t i = 1; i < c->size && bytes > 0; ++i) {
    bppsa_comm_reduce(c->op, c->dtype, count, (const char *)c->slots[i].request->base.data + at, r->base.all);
  }
}

static void work(const threads_collective *c, const threads_request *r, int64_t piece) {
  if (c->kind == BPPSA_COMM_BROADCAST) {
    copy(r->base.data, c->slots[c->peer].request->base.data, c->bytes);
  } else if (c->kind == BPPSA_COMM_ALLREDUCE) {
    reduce(c, piece);
  } else if (c->kind == BPPSA_COMM_REDUCE_SCATTER) {
    reduce_part(c, r);
  } else {
    collect(c, r);
  }
}

/* Removes the rank from the operation; the last rank to leave releases it. */
static void leave(threads_world *world, threads_request *r) {
  threads_collective *c = r->collective;
  r->collective = NULL;
  c->slots[r->base.comm->rank].request = NULL;
  if (++c->left == c->size) {
    drop(world, c);
  }
}

static bool is_finished(const threads_collective *c, const threads_request *r) {
  const bool others_too = !(c->kind == BPPSA_COMM_BROADCAST && r->base.comm->rank != c->peer);
  return others_too ? c->finished == c->pieces && (c->arrived == c->size || c->kind == BPPSA_COMM_BROADCAST) : r->worked;
}

/* Returns the number in the world of a rank that this one waits for, because it has not come or has cancelled its request; -1:
 * none. ended: consider only ranks whose function has returned. */
static int32_t find_missing(const threads_collective *c, const bppsa_comm *comm, bool ended) {
  if (c->broken && (!ended || threads_rank_of(comm)->world->ranks[c->broken_by].gone)) {
    return c->broken_by;
  }
  for (int32_t i = 0; i < c->size; ++i) {
    const bool needed = c->kind != BPPSA_COMM_BROADCAST || comm->rank == c->peer || i == c->peer;
    if (needed && !c->slots[i].came && (!ended || threads_peer(comm, i)->gone)) {
      return comm->members[i];
    }
  }
  return -1;
}

bppsa_status bppsa_threads_collective_poll(threads_request *r, bool *done) {
  const bppsa_comm *comm = r->base.comm;
  threads_world *world = threads_rank_of(comm)->world;
  (void)pthread_mutex_lock(&world->mutex);
  threads_collective *c = r->collective;
  if (c == NULL) { /* an earlier poll found it done */
    (void)pthread_mutex_unlock(&world->mutex);
    *done = true;
    return BPPSA_OK;
  }
  for (int64_t piece = claim(c, r, world); piece >= 0; piece = claim(c, r, world)) {
    (void)pthread_mutex_unlock(&world->mutex);
    work(c, r, piece);
    (void)pthread_mutex_lock(&world->mutex);
    c->active--;
    if (++c->finished == c->pieces || c->broken || world->failed >= 0) {
      bppsa_threads_notify_members(comm);
    }
  }
  const bool finished = is_finished(c, r);
  const int32_t missing = finished ? -1 : find_missing(c, comm, true);
  if (finished) {
    leave(world, r);
  }
  (void)pthread_mutex_unlock(&world->mutex);
  *done = finished;
  return missing < 0 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_COMM, "rank %d has ended without taking part", missing);
}

void bppsa_threads_collective_cancel(threads_request *r) {
  threads_rank *rank = threads_rank_of(r->base.comm);
  (void)pthread_mutex_lock(&rank->world->mutex);
  threads_collective *c = r->collective;
  if (c != NULL) {
    c->broken = true;
    c->broken_by = rank->endpoint.world_rank;
    while (c->active > 0) { /* another rank may still read or write this rank's array */
      (void)pthread_cond_wait(&rank->changed, &rank->world->mutex);
    }
    bppsa_threads_notify_members(r->base.comm);
    leave(rank->world, r);
  }
  (void)pthread_mutex_unlock(&rank->world->mutex);
}

void bppsa_threads_collective_blame(const threads_request *r, char *text, size_t size) {
  const bppsa_comm *comm = r->base.comm;
  threads_world *world = threads_rank_of(comm)->world;
  (void)pthread_mutex_lock(&world->mutex);
  const int32_t missing = r->collective != NULL ? find_missing(r->collective, comm, false) : -1;
  (void)pthread_mutex_unlock(&world->mutex);
  if (missing >= 0) {
    snprintf(text, size, "rank %d", missing);
  } else {
    snprintf(text, size, "the other ranks");
  }
}

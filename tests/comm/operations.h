/* Operations that all ranks of a communicator take part in, drawn by each of them from the same seed, and checked by plain
 * arithmetic: for test_calls.c. The arrays are malloc's, so that allocations can fail in the library alone. */
#ifndef BPPSA_TESTS_COMM_OPERATIONS_H
#define BPPSA_TESTS_COMM_OPERATIONS_H

#include <stdlib.h>
#include <string.h>

#include "tests/comm/cases.h"
#include "tests/support/calls.h"

enum { MOST_RANKS = 5, MOST_COUNT = 40, LARGE_COUNT = 20000 };

typedef enum { BROADCAST, ALLREDUCE, REDUCE_SCATTER, ALLGATHER, GATHER, RING, BARRIER, KINDS } operation_kind;

/* An operation that all ranks of a communicator take part in. Bytes are random; what is added up are numbers. */
typedef struct {
  operation_kind kind;
  bppsa_comm *comm;
  bppsa_dtype dtype;
  bppsa_comm_op op;
  int32_t rank, size, root, tag;
  int64_t number, count; /* count: elements of this rank's part, or of each */
  int64_t counts[MOST_RANKS];
  bool varies; /* gathers: the parts have different sizes */
  void *mine, *all;
  bppsa_comm_request *requests[2];
} operation;

/* Element i of what a rank brings to operation `number`. */
static inline double real_of(int64_t rank, int64_t number, int64_t i) {
  return (double)((rank * 7919 + number * 104729 + i * 31) % 65521) / 1000 - 30;
}

static inline void fill(bppsa_dtype dtype, void *array, int64_t count, int64_t rank, int64_t number) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = real_of(rank, number, i);
    if (dtype == BPPSA_F32) {
      ((float *)array)[i] = (float)value;
    } else if (dtype == BPPSA_F64) {
      ((double *)array)[i] = value;
    } else if (dtype == BPPSA_I64) {
      ((int64_t *)array)[i] = (int64_t)(value * 1000);
    } else {
      memset((char *)array + i * (int64_t)bppsa_dtype_size(dtype), (int)(value + 100), bppsa_dtype_size(dtype));
    }
  }
}

#define FOLD(type)                                                                                                               \
  for (int64_t i = 0; i < count; ++i) {                                                                                          \
    type *x = (type *)to + i, y = ((const type *)from)[i];                                                                       \
    *x = op == BPPSA_COMM_SUM ? (type)(*x + y) : op == BPPSA_COMM_MAX ? (y > *x ? y : *x) : (y < *x ? y : *x);                   \
  }

static inline void fold(bppsa_comm_op op, bppsa_dtype dtype, int64_t count, const void *from, void *to) {
  if (dtype == BPPSA_F32) {
    FOLD(float)
  } else if (dtype == BPPSA_F64) {
    FOLD(double)
  } else {
    FOLD(int64_t)
  }
}

static inline bool reduces(operation_kind kind) {
  return kind == ALLREDUCE || kind == REDUCE_SCATTER;
}

/* All ranks draw the same operation, in as many draws whatever their number in the communicator is. */
static inline operation draw_operation(call_sequence *s, int64_t number, bppsa_comm *comm) {
  static const bppsa_dtype dtypes[] = {BPPSA_F32, BPPSA_F64, BPPSA_I64, BPPSA_U8, BPPSA_I16};
  const bool large = chance(s, 5);
  operation e = {.kind = (operation_kind)draw(s, 0, KINDS - 1), .comm = comm, .number = number};
  e.rank = bppsa_comm_rank(comm);
  e.size = bppsa_comm_size(comm);
  e.dtype = dtypes[draw(s, 0, 4) % (reduces(e.kind) ? 3 : 5)];
  e.op = (bppsa_comm_op)draw(s, 0, BPPSA_COMM_OP_COUNT - 1);
  e.root = (int32_t)(draw(s, 0, 9999) % e.size);
  e.tag = (int32_t)draw(s, 0, 3);
  e.varies = chance(s, 50);
  const int64_t count = draw(s, 0, large ? LARGE_COUNT : MOST_COUNT);
  for (int32_t r = 0; r < MOST_RANKS; ++r) {
    e.counts[r] = e.varies ? draw(s, 0, MOST_COUNT) : count;
  }
  e.count = (e.kind == ALLGATHER || e.kind == GATHER) && e.rank < MOST_RANKS ? e.counts[e.rank] : count;
  return e;
}

/* Elements of `all`, and where a rank's part begins in it. */
static inline int64_t part_begin(const operation *e, int32_t rank) {
  int64_t begin = 0;
  for (int32_t r = 0; r < rank; ++r) {
    begin += e->kind == REDUCE_SCATTER ? e->count : e->counts[r];
  }
  return begin;
}

static inline bppsa_view view_of(const operation *e, void *data, int64_t count) {
  return bppsa_view_make(data, e->dtype, 1, &count);
}

static inline bppsa_status make_arrays(operation *e) {
  const size_t size = bppsa_dtype_size(e->dtype);
  const int64_t all = part_begin(e, e->size);
  e->mine = malloc((size_t)e->count * size + 1);
  e->all = malloc((size_t)all * size + (size_t)e->count * size + 1);
  CHECK(e->mine != NULL && e->all != NULL);
  fill(e->dtype, e->mine, e->count, e->rank, e->number);
  memset(e->all, 0xEE, (size_t)(all + e->count) * size);
  if (e->kind == REDUCE_SCATTER) {
    fill(e->dtype, e->all, all, e->rank, e->number);
  }
  return BPPSA_OK;
}

static inline void free_arrays(operation *e) {
  free(e->mine);
  free(e->all);
}

/* Begins it; of a ring both messages. */
static inline bppsa_status begin(operation *e) {
  const bppsa_view mine = view_of(e, e->mine, e->count), all = view_of(e, e->all, part_begin(e, e->size)),
                   in = view_of(e, e->all, e->count);
  const int64_t *counts = e->varies ? e->counts : NULL;
  bppsa_comm_request **r = e->requests;
  switch (e->kind) {
  case BROADCAST:
    return bppsa_comm_ibroadcast(e->comm, e->root, &mine, r);
  case ALLREDUCE:
    return bppsa_comm_iallreduce(e->comm, e->op, &mine, r);
  case REDUCE_SCATTER:
    return bppsa_comm_ireduce_scatter(e->comm, e->op, &all, &mine, r);
  case ALLGATHER:
    return bppsa_comm_iallgather(e->comm, &mine, counts, &all, r);
  case GATHER:
    return bppsa_comm_igather(e->comm, e->root, &mine, counts, e->rank == e->root ? &all : NULL, r);
  case RING:
    if (r[0] == NULL) {
      BPPSA_TRY(bppsa_comm_irecv(e->comm, (e->rank + e->size - 1) % e->size, e->tag, &in, &r[0]));
    }
    return bppsa_comm_isend(e->comm, (e->rank + 1) % e->size, e->tag, &mine, &r[1]);
  default:
    return bppsa_comm_ibarrier(e->comm, r);
  }
}

/* The same by the functions that wait. */
static inline bppsa_status call(operation *e) {
  const bppsa_view mine = view_of(e, e->mine, e->count), all = view_of(e, e->all, part_begin(e, e->size));
  const int64_t *counts = e->varies ? e->counts : NULL;
  switch (e->kind) {
  case BROADCAST:
    return bppsa_comm_broadcast(e->comm, e->root, &mine);
  case ALLREDUCE:
    return bppsa_comm_allreduce(e->comm, e->op, &mine);
  case REDUCE_SCATTER:
    return bppsa_comm_reduce_scatter(e->comm, e->op, &all, &mine);
  case ALLGATHER:
    return bppsa_comm_allgather(e->comm, &mine, counts, &all);
  case GATHER:
    return bppsa_comm_gather(e->comm, e->root, &mine, counts, e->rank == e->root ? &all : NULL);
  case RING:
    BPPSA_TRY(begin(e));
    return bppsa_comm_wait_all(2, e->requests);
  default:
    return bppsa_comm_barrier(e->comm);
  }
}

/* What this rank has, against what every rank brought. */
static inline bppsa_status check(const operation *e) {
  const size_t size = bppsa_dtype_size(e->dtype);
  const int64_t all = part_begin(e, e->size), room = all > e->count ? all : e->count;
  char *expected = malloc((size_t)room * size + 1), *next = malloc((size_t)room * size + 1);
  CHECK(expected != NULL && next != NULL);
  const void *found = e->mine;
  int64_t count = e->count, first = 0; /* first: element of `expected` */
  if (e->kind == BROADCAST) {
    fill(e->dtype, expected, count, e->root, e->number);
  } else if (reduces(e->kind)) {
    const int64_t whole = e->kind == ALLREDUCE ? count : all;
    first = e->kind == ALLREDUCE ? 0 : part_begin(e, e->rank);
    fill(e->dtype, expected, whole, 0, e->number);
    for (int32_t r = 1; r < e->size; ++r) {
      fill(e->dtype, next, whole, r, e->number);
      fold(e->op, e->dtype, whole, next, expected);
    }
  } else if (e->kind == ALLGATHER || (e->kind == GATHER && e->rank == e->root)) {
    for (int32_t r = 0; r < e->size; ++r) {
      fill(e->dtype, expected + part_begin(e, r) * (int64_t)size, e->counts[r], r, e->number);
    }
    found = e->all;
    count = all;
  } else if (e->kind == RING) {
    fill(e->dtype, expected, count, (e->rank + e->size - 1) % e->size, e->number);
    found = e->all;
  } else {
    count = 0;
  }
  const bool same = memcmp(found, expected + first * (int64_t)size, (size_t)count * size) == 0;
  free(expected);
  free(next);
  CHECK(same);
  return BPPSA_OK;
}

#endif

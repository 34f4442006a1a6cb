#include "tests/comm/cases.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/ordered.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"

enum { MOST = 200000 }; /* elements of the longest array; an allreduce cuts it into several pieces */

static bppsa_view view_of(void *data, bppsa_dtype dtype, int64_t count) {
  return bppsa_view_make(data, dtype, 1, &count);
}

/* The value that rank `rank` sends as element i of its message `number`. */
static double value(int64_t rank, int64_t number, int64_t i) {
  return (double)((rank * 7919 + number * 104729 + i * 31) % 65521);
}

static void fill(double *array, int64_t count, int64_t rank, int64_t number) {
  for (int64_t i = 0; i < count; ++i) {
    array[i] = value(rank, number, i);
  }
}

static bool holds(const double *array, int64_t count, int64_t rank, int64_t number) {
  for (int64_t i = 0; i < count; ++i) {
    if (array[i] != value(rank, number, i)) {
      return false;
    }
  }
  return true;
}

static bppsa_status identity(bppsa_comm *comm, void *context) {
  (void)context;
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  CHECK(size >= 1 && rank >= 0 && rank < size);
  CHECK(bppsa_comm_node_rank(comm) >= 0 && bppsa_comm_node_rank(comm) < bppsa_comm_node_size(comm));
  CHECK(bppsa_comm_node_size(comm) >= size);
  int64_t sum = rank;
  const bppsa_view view = view_of(&sum, BPPSA_I64, 1);
  BPPSA_TRY(bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, &view));
  CHECK(sum == (int64_t)size * (size - 1) / 2);
  return BPPSA_OK;
}

/* Each rank receives from its left neighbour and sends to its right neighbour; a single rank sends to itself. */
static bppsa_status ring(bppsa_comm *comm, void *context) {
  (void)context;
  static const int64_t counts[] = {0, 1, 3, 511, 513, 20000, MOST};
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  const int32_t left = (rank + size - 1) % size, right = (rank + 1) % size;
  double *out = bppsa_calloc(MOST, sizeof *out), *in = bppsa_calloc(MOST, sizeof *in);
  CHECK(out != NULL && in != NULL);
  for (int c = 0; c < (int)(sizeof counts / sizeof counts[0]); ++c) {
    fill(out, counts[c], rank, c);
    memset(in, 0xFF, MOST * sizeof *in);
    const bppsa_view from = view_of(in, BPPSA_F64, counts[c]), to = view_of(out, BPPSA_F64, counts[c]);
    bppsa_comm_request *request = NULL;
    BPPSA_TRY(bppsa_comm_irecv(comm, left, c, &from, &request));
    BPPSA_TRY(bppsa_comm_send(comm, right, c, &to));
    BPPSA_TRY(bppsa_comm_wait(&request));
    CHECK(request == NULL);
    CHECK(holds(in, counts[c], left, c));
  }
  bppsa_free(out);
  bppsa_free(in);
  return BPPSA_OK;
}

/* Messages with the same tag arrive in the order of the sends; messages with different tags in the order of the receives. */
static bppsa_status orders(bppsa_comm *comm, void *context) {
  (void)context;
  enum { MESSAGES = 40, COUNT = 5 };
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  double out[MESSAGES][COUNT], in[COUNT];
  bppsa_comm_request *requests[MESSAGES] = {0};
  const int32_t to = (rank + 1) % size, from = (rank + size - 1) % size;
  for (int m = 0; m < MESSAGES; ++m) { /* tags 3, 4, 3, 4, ... */
    fill(out[m], COUNT, rank, m);
    const bppsa_view view = view_of(out[m], BPPSA_F64, COUNT);
    BPPSA_TRY(bppsa_comm_isend(comm, to, 3 + m % 2, &view, &requests[m]));
  }
  const bppsa_view view = view_of(in, BPPSA_F64, COUNT);
  for (int m = 1; m < MESSAGES; m += 2) {
    BPPSA_TRY(bppsa_comm_recv(comm, from, 4, &view));
    CHECK(holds(in, COUNT, from, m));
  }
  for (int m = 0; m < MESSAGES; m += 2) {
    BPPSA_TRY(bppsa_comm_recv(comm, from, 3, &view));
    CHECK(holds(in, COUNT, from, m));
  }
  return bppsa_comm_wait_all(MESSAGES, requests);
}

/* Every rank begins several messages to every rank, all pending at the same time, and waits for them from the last to the first. */
static bppsa_status outstanding(bppsa_comm *comm, void *context) {
  (void)context;
  enum { MESSAGES = 12, COUNT = 700 };
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  const int64_t count = (int64_t)size * MESSAGES;
  double *out = bppsa_calloc(count * COUNT, sizeof *out), *in = bppsa_calloc(count * COUNT, sizeof *in);
  bppsa_comm_request **requests = bppsa_calloc(2 * count, sizeof *requests);
  CHECK(out != NULL && in != NULL && requests != NULL);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t peer = (int32_t)(i / MESSAGES), m = (int32_t)(i % MESSAGES);
    fill(out + i * COUNT, COUNT, rank, peer * MESSAGES + m);
    const bppsa_view sent = view_of(out + i * COUNT, BPPSA_F64, COUNT), got = view_of(in + i * COUNT, BPPSA_F64, COUNT);
    BPPSA_TRY(bppsa_comm_isend(comm, peer, m, &sent, &requests[count + i]));
    BPPSA_TRY(bppsa_comm_irecv(comm, peer, m, &got, &requests[i]));
  }
  for (int64_t i = count - 1; i >= count / 2; --i) {
    BPPSA_TRY(bppsa_comm_wait(&requests[i]));
  }
  BPPSA_TRY(bppsa_comm_wait_all(2 * count, requests));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t peer = i / MESSAGES, m = i % MESSAGES;
    CHECK(holds(in + i * COUNT, COUNT, peer, rank * MESSAGES + m));
  }
  bppsa_free(out);
  bppsa_free(in);
  bppsa_free(requests);
  return BPPSA_OK;
}

/* Rank 0 receives messages in any order with wait_any; higher ranks send first. */
static bppsa_status whatever_comes(bppsa_comm *comm, void *context) {
  (void)context;
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  double mine = value(rank, 5, 0);
  const bppsa_view out = view_of(&mine, BPPSA_F64, 1);
  if (rank > 0) {
    return bppsa_comm_send(comm, 0, 9, &out);
  }
  double *in = bppsa_calloc(size, sizeof *in);
  bool *seen = bppsa_calloc(size, sizeof *seen);
  bppsa_comm_request **requests = bppsa_calloc(size, sizeof *requests);
  CHECK(in != NULL && seen != NULL && requests != NULL);
  for (int32_t r = 1; r < size; ++r) { /* requests[0] stays NULL: wait_any ignores it */
    const bppsa_view view = view_of(&in[r], BPPSA_F64, 1);
    BPPSA_TRY(bppsa_comm_irecv(comm, r, 9, &view, &requests[r]));
  }
  for (int32_t n = 1; n < size; ++n) {
    int64_t index = -7;
    BPPSA_TRY(bppsa_comm_wait_any(size, requests, &index));
    CHECK(index > 0 && index < size && !seen[index] && requests[index] == NULL);
    seen[index] = true;
    CHECK(in[index] == value(index, 5, 0));
  }
  int64_t index = 0;
  BPPSA_TRY(bppsa_comm_wait_any(size, requests, &index));
  CHECK(index == -1);
  bppsa_free(in);
  bppsa_free(seen);
  bppsa_free(requests);
  return BPPSA_OK;
}

static bppsa_status tested(bppsa_comm *comm, void *context) {
  (void)context;
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  double in = 0, out = value(rank, 1, 1);
  const bppsa_view got = view_of(&in, BPPSA_F64, 1), sent = view_of(&out, BPPSA_F64, 1);
  bppsa_comm_request *requests[2] = {0};
  bool done = false;
  BPPSA_TRY(bppsa_comm_test(&requests[0], &done));
  CHECK(done); /* nothing to wait for */
  BPPSA_TRY(bppsa_comm_irecv(comm, (rank + size - 1) % size, 0, &got, &requests[0]));
  if (size > 1) {
    BPPSA_TRY(bppsa_comm_barrier(comm));
    BPPSA_TRY(bppsa_comm_test(&requests[0], &done));
    CHECK(!done && requests[0] != NULL); /* no rank sends before this barrier */
    BPPSA_TRY(bppsa_comm_barrier(comm));
  }
  BPPSA_TRY(bppsa_comm_isend(comm, (rank + 1) % size, 0, &sent, &requests[1]));
  for (int i = 0; i < 2; ++i) {
    const double begin = bppsa_now();
    for (done = false; !done;) {
      BPPSA_TRY(bppsa_comm_test(&requests[i], &done));
      CHECK(bppsa_now() - begin < 60);
    }
    CHECK(requests[i] == NULL);
  }
  CHECK(in == value((rank + size - 1) % size, 1, 1));
  return BPPSA_OK;
}

static bppsa_status broadcasts(bppsa_comm *comm, void *context) {
  (void)context;
  static const int64_t counts[] = {0, 1, 1000, MOST};
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  double *array = bppsa_calloc(MOST, sizeof *array);
  CHECK(array != NULL);
  for (int32_t root = 0; root < size; ++root) {
    for (int c = 0; c < 4; ++c) {
      fill(array, counts[c], rank, root);
      const bppsa_view view = view_of(array, BPPSA_F64, counts[c]);
      BPPSA_TRY(bppsa_comm_broadcast(comm, root, &view));
      CHECK(holds(array, counts[c], root, root));
    }
  }
  bppsa_free(array);
  return BPPSA_OK;
}

static double combined(bppsa_comm_op op, int32_t size, int64_t i) {
  double result = value(0, 2, i);
  for (int32_t r = 1; r < size; ++r) {
    const double next = value(r, 2, i);
    result = op == BPPSA_COMM_SUM ? result + next : (op == BPPSA_COMM_MAX) == (next > result) ? next : result;
  }
  return result; /* whole numbers below 2^24: exact in every dtype, in any order */
}

static void put(void *array, bppsa_dtype dtype, int64_t i, double x) {
  if (dtype == BPPSA_F32) {
    ((float *)array)[i] = (float)x;
  } else if (dtype == BPPSA_F64) {
    ((double *)array)[i] = x;
  } else {
    ((int64_t *)array)[i] = (int64_t)x;
  }
}

static double get(const void *array, bppsa_dtype dtype, int64_t i) {
  return dtype == BPPSA_F32   ? (double)((const float *)array)[i]
         : dtype == BPPSA_F64 ? ((const double *)array)[i]
                              : (double)((const int64_t *)array)[i];
}

static bppsa_status reductions(bppsa_comm *comm, void *context) {
  (void)context;
  static const int64_t counts[] = {0, 1, 5, 1025, 40000};
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  void *array = bppsa_calloc(MOST, sizeof(double));
  CHECK(array != NULL);
  for (int op = 0; op < BPPSA_COMM_OP_COUNT; ++op) {
    for (int dtype = BPPSA_F32; dtype <= BPPSA_I64; ++dtype) {
      for (int c = 0; c < 5; ++c) {
        for (int64_t i = 0; i < counts[c]; ++i) {
          put(array, (bppsa_dtype)dtype, i, value(rank, 2, i));
        }
        const bppsa_view view = view_of(array, (bppsa_dtype)dtype, counts[c]);
        BPPSA_TRY(bppsa_comm_allreduce(comm, (bppsa_comm_op)op, &view));
        for (int64_t i = 0; i < counts[c]; ++i) {
          CHECK(get(array, (bppsa_dtype)dtype, i) == combined((bppsa_comm_op)op, size, i));
        }
      }
    }
  }
  bppsa_free(array);
  return BPPSA_OK;
}

/* Each rank's part of the result, whose numbers lie behind those of the ranks in front of it; the whole array stays as it is. */
static bppsa_status scatters(bppsa_comm *comm, void *context) {
  (void)context;
  static const int64_t counts[] = {0, 1, 5, 1025, 20000};
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  void *whole = bppsa_calloc((int64_t)size * 20000, sizeof(double)), *part = bppsa_calloc(20000, sizeof(double));
  CHECK(whole != NULL && part != NULL);
  for (int op = 0; op < BPPSA_COMM_OP_COUNT; ++op) {
    for (int dtype = BPPSA_F32; dtype <= BPPSA_I64; ++dtype) {
      for (int c = 0; c < 5; ++c) {
        for (int64_t i = 0; i < size * counts[c]; ++i) {
          put(whole, (bppsa_dtype)dtype, i, value(rank, 2, i));
        }
        const bppsa_view all = view_of(whole, (bppsa_dtype)dtype, size * counts[c]),
                         mine = view_of(part, (bppsa_dtype)dtype, counts[c]);
        BPPSA_TRY(bppsa_comm_reduce_scatter(comm, (bppsa_comm_op)op, &all, &mine));
        for (int64_t i = 0; i < counts[c]; ++i) {
          CHECK(get(part, (bppsa_dtype)dtype, i) == combined((bppsa_comm_op)op, size, rank * counts[c] + i));
        }
        for (int64_t i = 0; i < size * counts[c]; ++i) {
          CHECK(get(whole, (bppsa_dtype)dtype, i) == value(rank, 2, i));
        }
      }
    }
  }
  bppsa_free(whole);
  bppsa_free(part);
  return BPPSA_OK;
}

/* Gathers parts of rank % 3 * 700 elements, and parts of equal size, to all ranks and to every root. */
static bppsa_status gathers(bppsa_comm *comm, void *context) {
  (void)context;
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  int64_t *counts = bppsa_calloc(size, sizeof *counts);
  double *mine = bppsa_calloc(1400, sizeof *mine), *all = bppsa_calloc((int64_t)size * 1400, sizeof *all);
  CHECK(counts != NULL && mine != NULL && all != NULL);
  fill(mine, 1400, rank, 3);
  for (int equal = 0; equal < 2; ++equal) {
    int64_t total = 0;
    for (int32_t r = 0; r < size; ++r) {
      counts[r] = equal ? 20 : (int64_t)(r % 3) * 700;
      total += counts[r];
    }
    const bppsa_view part = view_of(mine, BPPSA_F64, counts[rank]), whole = view_of(all, BPPSA_F64, total);
    for (int32_t root = -1; root < size; ++root) { /* -1: to all */
      memset(all, 0xFF, (size_t)size * 1400 * sizeof *all);
      if (root < 0) {
        BPPSA_TRY(bppsa_comm_allgather(comm, &part, equal ? NULL : counts, &whole));
      } else {
        BPPSA_TRY(bppsa_comm_gather(comm, root, &part, equal ? NULL : counts, rank == root ? &whole : NULL));
      }
      const double *at = all;
      for (int32_t r = 0; r < size && (root < 0 || root == rank); at += counts[r++]) {
        CHECK(holds(at, counts[r], r, 3));
      }
    }
  }
  /* This rank's part is already at its place in the result. */
  fill(all + 20 * rank, 20, rank, 4);
  const bppsa_view part = view_of(all + 20 * rank, BPPSA_F64, 20), whole = view_of(all, BPPSA_F64, 20 * size);
  BPPSA_TRY(bppsa_comm_allgather(comm, &part, NULL, &whole));
  for (int32_t r = 0; r < size; ++r) {
    CHECK(holds(all + 20 * r, 20, r, 4));
  }
  bppsa_free(counts);
  bppsa_free(mine);
  bppsa_free(all);
  return BPPSA_OK;
}

/* No rank leaves a barrier before all ranks have come; all ranks read the same clock. */
static bppsa_status barriers(bppsa_comm *comm, void *context) {
  (void)context;
  for (int round = 0; round < 20; ++round) {
    double came = bppsa_now();
    BPPSA_TRY(bppsa_comm_barrier(comm));
    const double left = bppsa_now();
    const bppsa_view view = view_of(&came, BPPSA_F64, 1);
    BPPSA_TRY(bppsa_comm_allreduce(comm, BPPSA_COMM_MAX, &view));
    CHECK(left >= came);
  }
  return BPPSA_OK;
}

/* Splits by three colors with the ranks in reverse order. Messages with the same tag in the whole and in a part do not mix. Then
 * splits a part again. */
static bppsa_status parts(bppsa_comm *comm, void *context) {
  (void)context;
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm), color = rank % 3;
  bppsa_comm *part = NULL, *inner = NULL, *none = comm;
  BPPSA_TRY(bppsa_comm_split(comm, color, -rank, &part));
  const int32_t members = (size - color + 2) / 3;
  CHECK(part != NULL && bppsa_comm_size(part) == members);
  CHECK(bppsa_comm_rank(part) == members - 1 - rank / 3);
  CHECK(bppsa_comm_node_rank(part) == bppsa_comm_node_rank(comm));

  double in[2] = {0}, out[2] = {value(rank, 0, 0), value(rank, 1, 0)};
  const int32_t left = (rank + size - 1) % size, right = (rank + 1) % size, me = bppsa_comm_rank(part);
  const int32_t part_left = (me + members - 1) % members, part_right = (me + 1) % members;
  bppsa_comm_request *requests[4] = {0};
  bppsa_view views[4];
  for (int i = 0; i < 4; ++i) {
    views[i] = view_of(i < 2 ? &in[i] : &out[i - 2], BPPSA_F64, 1);
  }
  BPPSA_TRY(bppsa_comm_isend(part, part_right, 5, &views[3], &requests[3]));
  BPPSA_TRY(bppsa_comm_isend(comm, right, 5, &views[2], &requests[2]));
  BPPSA_TRY(bppsa_comm_irecv(comm, left, 5, &views[0], &requests[0]));
  BPPSA_TRY(bppsa_comm_irecv(part, part_left, 5, &views[1], &requests[1]));
  BPPSA_TRY(bppsa_comm_wait_all(4, requests));
  CHECK(in[0] == value(left, 0, 0));
  CHECK(in[1] == value((members - 1 - part_left) * 3 + color, 1, 0));

  int64_t sum = rank;
  const bppsa_view view = view_of(&sum, BPPSA_I64, 1);
  BPPSA_TRY(bppsa_comm_allreduce(part, BPPSA_COMM_SUM, &view));
  CHECK(sum == (int64_t)members * color + (int64_t)3 * members * (members - 1) / 2);
  BPPSA_TRY(bppsa_comm_split(part, me == 0 ? -1 : 7, 0, &inner));
  CHECK((inner == NULL) == (me == 0));
  if (inner != NULL) {
    CHECK(bppsa_comm_size(inner) == members - 1 && bppsa_comm_rank(inner) == me - 1);
    BPPSA_TRY(bppsa_comm_barrier(inner));
  }
  BPPSA_TRY(bppsa_comm_split(comm, -1, 0, &none));
  CHECK(none == NULL);
  CHECK(bppsa_comm_split(comm, -2, 0, &none) == BPPSA_ERR_ARGUMENT);
  bppsa_comm_destroy(inner);
  bppsa_comm_destroy(part);
  bppsa_comm_destroy(NULL);
  return BPPSA_OK;
}

/* Several collective operations are pending at the same time and waited for in another order; a collective operation also advances
 * while this rank waits for a message. */
static bppsa_status overlapping(bppsa_comm *comm, void *context) {
  (void)context;
  enum { AT_ONCE = 6, COUNT = 3000 };
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  double(*arrays)[COUNT] = bppsa_calloc(AT_ONCE, sizeof *arrays);
  bppsa_comm_request *requests[AT_ONCE] = {0};
  CHECK(arrays != NULL);
  for (int i = 0; i < AT_ONCE; ++i) {
    fill(arrays[i], COUNT, rank, i % 2 == 0 ? 2 : i);
    const bppsa_view view = view_of(arrays[i], BPPSA_F64, COUNT);
    if (i % 2 == 0) {
      BPPSA_TRY(bppsa_comm_iallreduce(comm, BPPSA_COMM_SUM, &view, &requests[i]));
    } else {
      BPPSA_TRY(bppsa_comm_ibroadcast(comm, i % size, &view, &requests[i]));
    }
  }
  double token = 0;
  const bppsa_view view = view_of(&token, BPPSA_F64, 1);
  if (rank == 1 % size && size > 1) { /* the root of the first broadcast sends after the broadcast is done */
    BPPSA_TRY(bppsa_comm_wait(&requests[1]));
    for (int32_t r = 0; r < size; ++r) {
      if (r != rank) {
        BPPSA_TRY(bppsa_comm_send(comm, r, 1, &view));
      }
    }
  } else if (size > 1) {
    BPPSA_TRY(bppsa_comm_recv(comm, 1, 1, &view));
  }
  for (int i = AT_ONCE - 1; i >= 0; --i) {
    BPPSA_TRY(bppsa_comm_wait(&requests[i]));
    for (int64_t k = 0; k < COUNT; ++k) {
      CHECK(arrays[i][k] == (i % 2 == 0 ? combined(BPPSA_COMM_SUM, size, k) : value(i % size, i, k)));
    }
  }
  bppsa_free(arrays);
  return BPPSA_OK;
}

static bppsa_status counted(bppsa_comm *comm, void *context) {
  (void)context;
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  double array[10] = {0}, *all = bppsa_calloc(size, 10 * sizeof *all);
  CHECK(all != NULL);
  const bppsa_view ten = view_of(array, BPPSA_F64, 10), three = view_of(array, BPPSA_F32, 3);
  const bppsa_view whole = view_of(all, BPPSA_F64, 10 * size);
  bppsa_comm_reset_counters(comm);
  if (rank == 0) {
    for (int32_t r = 1; r < size; ++r) {
      BPPSA_TRY(bppsa_comm_send(comm, r, 0, &ten));
      BPPSA_TRY(bppsa_comm_send(comm, r, 1, &three));
    }
  } else {
    BPPSA_TRY(bppsa_comm_recv(comm, 0, 0, &ten));
    BPPSA_TRY(bppsa_comm_recv(comm, 0, 1, &three));
  }
  BPPSA_TRY(bppsa_comm_barrier(comm));
  BPPSA_TRY(bppsa_comm_allreduce(comm, BPPSA_COMM_MAX, &ten));
  BPPSA_TRY(bppsa_comm_allgather(comm, &ten, NULL, &whole));
  bppsa_comm *part = NULL;
  BPPSA_TRY(bppsa_comm_split(comm, 0, 0, &part));
  BPPSA_TRY(bppsa_comm_broadcast(part, 0, &three));
  bppsa_comm_counters c;
  bppsa_comm_get_counters(part, &c);
  bppsa_comm_destroy(part);
  const int64_t sent = rank == 0 ? 2 * (size - 1) : 0, received = rank == 0 ? 0 : 2;
  CHECK(c.messages_sent == sent && c.bytes_sent == sent * 92 / 2);
  CHECK(c.messages_received == received && c.bytes_received == received * 92 / 2);
  CHECK(c.collectives == 5 && c.collective_bytes == 80 + 80 + 12);
  bppsa_free(all);
  return BPPSA_OK;
}

#define REFUSED(call, status, words)                                                                                             \
  do {                                                                                                                           \
    CHECK((call) == (status));                                                                                                   \
    CHECK(strstr(bppsa_last_error(), words) != NULL);                                                                            \
  } while (0)

static bppsa_status refused(bppsa_comm *comm, void *context) {
  (void)context;
  const int32_t size = bppsa_comm_size(comm), rank = bppsa_comm_rank(comm);
  double array[8] = {0};
  const bppsa_view view = view_of(array, BPPSA_F64, 8);
  bppsa_view strided = view_of(array, BPPSA_F64, 4), gpu = view, small = view_of(array, BPPSA_F16, 4);
  strided.strides[0] = 2;
  gpu.device = BPPSA_CUDA;
  bppsa_comm_request *request = NULL;
  REFUSED(bppsa_comm_send(comm, size, 0, &view), BPPSA_ERR_ARGUMENT, "send to rank");
  REFUSED(bppsa_comm_recv(comm, -1, 0, &view), BPPSA_ERR_ARGUMENT, "recv from rank -1");
  REFUSED(bppsa_comm_isend(comm, 0, BPPSA_COMM_MAX_TAG + 1, &view, &request), BPPSA_ERR_ARGUMENT, "tag 32768");
  REFUSED(bppsa_comm_irecv(comm, 0, -1, &view, &request), BPPSA_ERR_ARGUMENT, "tag -1");
  REFUSED(bppsa_comm_isend(comm, 0, 0, &strided, &request), BPPSA_ERR_SHAPE, "strides");
  REFUSED(bppsa_comm_isend(comm, 0, 0, &gpu, &request), BPPSA_ERR_ARGUMENT, "GPU");
  REFUSED(bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, &small), BPPSA_ERR_UNSUPPORTED, "f16");
  REFUSED(bppsa_comm_allreduce(comm, (bppsa_comm_op)3, &view), BPPSA_ERR_ARGUMENT, "operation 3");
  REFUSED(bppsa_comm_broadcast(comm, size, &view), BPPSA_ERR_ARGUMENT, "broadcast from rank");
  REFUSED(bppsa_comm_gather(comm, -1, &view, NULL, &view), BPPSA_ERR_ARGUMENT, "gather to rank -1");
  int64_t *counts = bppsa_calloc(size, sizeof *counts);
  CHECK(counts != NULL);
  REFUSED(bppsa_comm_allgather(comm, &view, counts, &view), BPPSA_ERR_SHAPE, "a part of 8 elements");
  for (int32_t r = 0; r < size; ++r) {
    counts[r] = 8;
  }
  counts[size - 1] += rank == size - 1 ? 0 : 1;
  const bppsa_view nothing = view_of(array, BPPSA_F64, 1);
  REFUSED(bppsa_comm_allgather(comm, &view, counts, &nothing), BPPSA_ERR_SHAPE, "the whole has 1 elements");
  counts[0] = -1;
  REFUSED(bppsa_comm_allgather(comm, &view, counts, &view), BPPSA_ERR_SHAPE, "rank 0 has -1");
  bppsa_free(counts);
  const bppsa_view more = view_of(array, BPPSA_F64, 2);
  REFUSED(bppsa_comm_reduce_scatter(comm, BPPSA_COMM_SUM, &nothing, &more), BPPSA_ERR_SHAPE,
          "reduce-scatter: 1 elements of f64 to parts of 2 elements of f64");
  REFUSED(bppsa_comm_reduce_scatter(comm, (bppsa_comm_op)3, &view, &view), BPPSA_ERR_ARGUMENT, "operation 3");
  CHECK(request == NULL);
  bppsa_comm_request *requests[1] = {NULL};
  BPPSA_TRY(bppsa_comm_irecv(comm, rank, 11, &view, requests)); /* cancelled before it is done */
  bppsa_comm_cancel(1, requests);
  CHECK(requests[0] == NULL);
  return BPPSA_OK;
}

/* ---- ordered sums ---- */

/* Assigns blocks to ranks: consecutive blocks, in turns, or scattered. */
static void assign(int pattern, int64_t blocks, int32_t size, int32_t *owners) {
  for (int64_t i = 0; i < blocks; ++i) {
    owners[i] = (int32_t)(pattern == 0 ? i * size / blocks : pattern == 1 ? i % size : (i * 7 + i / 3) % size);
  }
}

static void terms(float *vector, int64_t count, int64_t block) {
  for (int64_t i = 0; i < count; ++i) { /* numbers whose sums are rounded */
    vector[i] = (float)((double)((block * 7919 + i * 104729) % 1009) / 997.0 - 0.5) * (block % 4 == 0 ? 1e4F : 1);
  }
}

static bppsa_status sum_blocks(bppsa_comm *comm, int64_t blocks, const int32_t *owners, int64_t count, float *result) {
  bppsa_ordered_sum *sum = NULL;
  const int32_t rank = comm != NULL ? bppsa_comm_rank(comm) : 0;
  float *vector = bppsa_calloc(count, sizeof *vector);
  CHECK(vector != NULL);
  BPPSA_TRY(bppsa_ordered_sum_create(comm, blocks, owners, BPPSA_F32, count, 2, &sum));
  const bppsa_view view = view_of(vector, BPPSA_F32, count), total = view_of(result, BPPSA_F32, count);
  for (int round = 0; round < 2; ++round) { /* in the second round blocks come in descending order */
    memset(result, 0xFF, (size_t)count * sizeof *result);
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t block = round == 0 ? i : blocks - 1 - i;
      if (owners == NULL || owners[block] == rank) {
        terms(vector, count, block);
        BPPSA_TRY(bppsa_ordered_sum_add(sum, block, &view));
      }
    }
    BPPSA_TRY(bppsa_ordered_sum_finish(sum, &total));
    CHECK(bppsa_ordered_sum_vectors(sum) == 0);
  }
  bppsa_ordered_sum_destroy(sum);
  bppsa_free(vector);
  return BPPSA_OK;
}

static bppsa_status ordered(bppsa_comm *comm, void *context) {
  (void)context;
  enum { COUNT = 37, MOST_BLOCKS = 40 };
  const int32_t size = bppsa_comm_size(comm);
  int32_t owners[MOST_BLOCKS];
  float alone[COUNT], together[COUNT];
  for (int64_t blocks = 1; blocks <= MOST_BLOCKS; blocks += blocks < 10 ? 1 : 15) {
    BPPSA_TRY(sum_blocks(NULL, blocks, NULL, COUNT, alone));
    for (int pattern = 0; pattern < 3; ++pattern) {
      assign(pattern, blocks, size, owners);
      bppsa_comm_counters before, after;
      bppsa_comm_get_counters(comm, &before);
      BPPSA_TRY(sum_blocks(comm, blocks, owners, COUNT, together));
      CHECK(memcmp(alone, together, sizeof alone) == 0);
      bppsa_comm_get_counters(comm, &after);
      int64_t messages = after.messages_sent - before.messages_sent, expected = 0;
      const bppsa_view view = view_of(&messages, BPPSA_I64, 1);
      BPPSA_TRY(bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, &view));
      for (int64_t half = 1; half < blocks; half *= 2) { /* nodes whose halves begin on different ranks */
        for (int64_t left = 0; left + half < blocks; left += 2 * half) {
          expected += owners[left] != owners[left + half] ? 1 : 0;
        }
      }
      CHECK(messages == 2 * expected);
    }
  }
  return BPPSA_OK;
}

const comm_case comm_cases[] = {{"identity", identity},
                                {"ring", ring},
                                {"orders", orders},
                                {"outstanding", outstanding},
                                {"whatever comes", whatever_comes},
                                {"tested", tested},
                                {"broadcasts", broadcasts},
                                {"reductions", reductions},
                                {"scatters", scatters},
                                {"gathers", gathers},
                                {"barriers", barriers},
                                {"parts", parts},
                                {"overlapping", overlapping},
                                {"counted", counted},
                                {"refused", refused},
                                {"ordered", ordered},
                                {NULL, NULL}};

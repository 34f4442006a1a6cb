/* Ranks on threads when something fails: deadlines, dead ranks, stalled ranks, calls that disagree, failed allocations. No rank
 * hangs, the error names the rank and the operation, and no memory is left allocated. (The file is long because each collective
 * meets each failure.) */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "tests/comm/cases.h"
#include "tests/support/support.h"

static bppsa_view view_of(void *data, bppsa_dtype dtype, int64_t count) {
  return bppsa_view_make(data, dtype, 1, &count);
}

static void sleep_for(double seconds) {
  const struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);
}

/* Runs the body and checks that all memory is freed afterwards; the last error is the run's. */
static bppsa_status run(int32_t ranks, double timeout, bppsa_comm_body body, void *context, bppsa_comm_outcome *outcome) {
  const int64_t blocks = bppsa_alloc_live();
  const bppsa_comm_config config = {.transport = BPPSA_COMM_THREADS, .ranks = ranks, .timeout = timeout};
  const bppsa_status status = bppsa_comm_run(&config, body, context, outcome);
  assert_int_equal(bppsa_alloc_live(), blocks);
  return status;
}

static void assert_says(const char *words) {
  if (strstr(bppsa_last_error(), words) == NULL) {
    fail_msg("the last error is \"%s\", expected \"%s\" in it", bppsa_last_error(), words);
  }
}

#define HAS(words) (strstr(bppsa_last_error(), words) != NULL)

/* ---- a rank fails ---- */

/* Rank 1 fails; rank 0 waits for it in an operation that *context chooses. */
static bppsa_status wait_for_failing(bppsa_comm *comm, void *context) {
  const int way = *(int *)context;
  double array[4] = {0};
  const bppsa_view view = view_of(array, BPPSA_F64, 4);
  bppsa_comm_at(comm, "up-sweep", 12);
  if (bppsa_comm_rank(comm) == 1) {
    sleep_for(0.02);
    return bppsa_fail(BPPSA_ERR_IO, "disk full");
  }
  const bppsa_status status = way == 0   ? bppsa_comm_recv(comm, 1, 7, &view)
                              : way == 1 ? bppsa_comm_send(comm, 1, 7, &view)
                              : way == 2 ? bppsa_comm_barrier(comm)
                              : way == 3 ? bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, &view)
                                         : bppsa_comm_broadcast(comm, 1, &view);
  CHECK(status == BPPSA_ERR_COMM);
  CHECK(HAS("rank 1: disk full") && HAS("at up-sweep 12"));
  CHECK(bppsa_comm_barrier(comm) == BPPSA_ERR_COMM); /* a failed communicator stays failed */
  return status;
}

static void failing_rank_wakes_others(void **state) {
  (void)state;
  for (int way = 0; way < 5; ++way) {
    bppsa_comm_outcome outcome;
    const double begin = bppsa_now();
    assert_int_equal(run(3, 60, wait_for_failing, &way, &outcome), BPPSA_ERR_IO);
    assert_string_equal(bppsa_last_error(), "rank 1: disk full");
    assert_int_equal(outcome.rank, 1);
    assert_true(outcome.here);
    assert_int_equal(outcome.left_behind, 0);
    assert_true(bppsa_now() - begin < 20); /* it did not wait for the deadline */
  }
}

static bppsa_status abort_rank(bppsa_comm *comm, void *context) {
  (void)context;
  if (bppsa_comm_rank(comm) == 2) {
    bppsa_comm_abort(comm, "the user pressed a key");
    return BPPSA_OK;
  }
  const bppsa_status status = bppsa_comm_barrier(comm);
  CHECK(status == BPPSA_ERR_COMM && HAS("rank 2 gave up: the user pressed a key"));
  return status;
}

static void abort_wakes_others(void **state) {
  (void)state;
  bppsa_comm_outcome outcome;
  assert_int_equal(run(4, 60, abort_rank, NULL, &outcome), BPPSA_ERR_COMM);
  assert_string_equal(bppsa_last_error(), "rank 2 gave up: the user pressed a key");
  assert_int_equal(outcome.rank, 2);
}

/* Rank 1 returns without sending the message, or calling the operation, that the other ranks wait for. */
static bppsa_status wait_for_ended(bppsa_comm *comm, void *context) {
  const int way = *(int *)context;
  double number = 0;
  const bppsa_view view = view_of(&number, BPPSA_F64, 1);
  if (bppsa_comm_rank(comm) == 1) {
    return BPPSA_OK;
  }
  const bppsa_status status = way == 0   ? bppsa_comm_recv(comm, 1, 0, &view)
                              : way == 1 ? bppsa_comm_send(comm, 1, 0, &view)
                              : way == 2 ? bppsa_comm_broadcast(comm, 1, &view)
                                         : bppsa_comm_barrier(comm);
  CHECK(status == BPPSA_ERR_COMM && HAS("rank 1 has ended"));
  return status;
}

/* Rank 1 cancels a reduction and returns OK, which still makes the run fail. Rank 2 comes only after that: a reduction for which
 * all ranks have come may end well before rank 1 cancels it. */
static bppsa_status cancel_reduction(bppsa_comm *comm, void *context) {
  atomic_bool *cancelled = context;
  double number = 0;
  const bppsa_view view = view_of(&number, BPPSA_F64, 1);
  bppsa_comm_request *request = NULL;
  while (bppsa_comm_rank(comm) == 2 && !atomic_load(cancelled)) {
    sleep_for(0.001);
  }
  BPPSA_TRY(bppsa_comm_iallreduce(comm, BPPSA_COMM_SUM, &view, &request));
  if (bppsa_comm_rank(comm) == 1) {
    bppsa_comm_cancel(1, &request);
    atomic_store(cancelled, true);
    return BPPSA_OK;
  }
  const bppsa_status status = bppsa_comm_wait(&request);
  CHECK(status == BPPSA_ERR_COMM && HAS("rank 1 has ended without taking part"));
  return status;
}

static void cancelled_reduction(void **state) {
  (void)state;
  const double begin = bppsa_now();
  atomic_bool cancelled = false;
  assert_int_equal(run(3, 60, cancel_reduction, &cancelled, NULL), BPPSA_ERR_COMM);
  assert_true(bppsa_now() - begin < 20);
}

static void ended_rank_is_not_waited_for(void **state) {
  (void)state;
  for (int way = 0; way < 4; ++way) {
    bppsa_comm_outcome outcome;
    const double begin = bppsa_now();
    assert_int_equal(run(3, 60, wait_for_ended, &way, &outcome), BPPSA_ERR_COMM);
    assert_says("rank 1 has ended without");
    assert_true(bppsa_now() - begin < 20);
  }
}

static bppsa_status forget_request(bppsa_comm *comm, void *context) {
  static double number;
  (void)context;
  const bppsa_view view = view_of(&number, BPPSA_F64, 1);
  bppsa_comm_request *request = NULL;
  return bppsa_comm_irecv(comm, 0, 31, &view, &request);
}

static void forgotten_request(void **state) {
  (void)state;
  assert_int_equal(run(1, 60, forget_request, NULL, NULL), BPPSA_ERR_ARGUMENT);
  assert_says("rank 0: the rank's function returned and did not wait for its request: recv from rank 0, tag 31, 8 bytes");
}

/* Rank 1's request, which rank 0 must not wait for. */
static _Atomic(bppsa_comm_request *) of_rank_1;

static bppsa_status wait_for_foreign(bppsa_comm *comm, void *context) {
  (void)context;
  double number = 1;
  const bppsa_view view = view_of(&number, BPPSA_F64, 1);
  bppsa_comm_request *request = NULL;
  if (bppsa_comm_rank(comm) == 1) {
    BPPSA_TRY(bppsa_comm_irecv(comm, 0, 5, &view, &request));
    atomic_store(&of_rank_1, request);
    BPPSA_TRY(bppsa_comm_barrier(comm));
    BPPSA_TRY(bppsa_comm_barrier(comm)); /* rank 0 has looked at the request */
    return bppsa_comm_wait(&request);
  }
  BPPSA_TRY(bppsa_comm_barrier(comm));
  BPPSA_TRY(bppsa_comm_irecv(comm, 1, 6, &view, &request));
  bppsa_comm_request *both[] = {NULL, request, atomic_load(&of_rank_1)};
  int64_t index = 7;
  bool said =
      bppsa_comm_wait_any(3, both, &index) == BPPSA_ERR_ARGUMENT && HAS("wait: request 2 belongs to another rank or transport");
  said =
      bppsa_comm_wait_all(3, both) == BPPSA_ERR_ARGUMENT && HAS("wait: request 2 belongs to another rank or transport") && said;
  bppsa_comm_cancel(1, &request);
  BPPSA_TRY(bppsa_comm_barrier(comm));
  BPPSA_TRY(bppsa_comm_send(comm, 1, 5, &view));
  return said && both[1] != NULL && both[2] != NULL && index == 7 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_NUMERIC, "not refused");
}

static void foreign_request(void **state) {
  (void)state;
  assert_int_equal(run(2, 60, wait_for_foreign, NULL, NULL), BPPSA_OK);
}

/* ---- deadlines ---- */

enum { BLOCKING = 8, WAYS = 10 };

/* The operations that wait, and what rank 0's error says about each. */
static const char *const waits[WAYS] = {
    "recv from rank 1, tag 7, 32 bytes, at carry 3", "send to rank 1, tag 7, 32 bytes, at carry 3",
    "allreduce, max, 32 bytes, at carry 3",          "barrier, 0 bytes, at carry 3",
    "broadcast from rank 1, 32 bytes, at carry 3",   "allgather, 32 bytes, at carry 3",
    "gather to rank 0, 32 bytes, at carry 3",        "allgather, 24 bytes, at carry 3" /* a split */,
    "recv from rank 1, tag 1, 32 bytes, at carry",   "recv from rank 1, tag 1, 32 bytes, at carry"};

static bppsa_status block(bppsa_comm *comm, int way, const bppsa_view *view, const bppsa_view *all) {
  bppsa_comm *part = NULL;
  switch (way) {
  case 0:
    return bppsa_comm_recv(comm, 1, 7, view);
  case 1:
    return bppsa_comm_send(comm, 1, 7, view);
  case 2:
    return bppsa_comm_allreduce(comm, BPPSA_COMM_MAX, view);
  case 3:
    return bppsa_comm_barrier(comm);
  case 4:
    return bppsa_comm_broadcast(comm, 1, view);
  case 5:
    return bppsa_comm_allgather(comm, view, NULL, all);
  case 6:
    return bppsa_comm_gather(comm, 0, view, NULL, all);
  default:
    return bppsa_comm_split(comm, 0, 0, &part);
  }
}

/* Rank 0 waits for the other ranks, which stall at their first operation. */
static bppsa_status wait_too_long(bppsa_comm *comm, void *context) {
  const int way = *(int *)context;
  double array[4] = {0}, whole[12] = {0};
  const bppsa_view view = view_of(array, BPPSA_F64, 4), all = view_of(whole, BPPSA_F64, 12);
  if (bppsa_comm_rank(comm) != 0) {
    bppsa_comm_set_fault(comm, &(bppsa_comm_fault){.stall_at = 1});
    const bppsa_status status = bppsa_comm_barrier(comm);
    CHECK(status == BPPSA_ERR_COMM && HAS("rank 0 waited 0.2 s for rank 1"));
    return status;
  }
  bppsa_comm_at(comm, "carry", way < BLOCKING ? 3 : -1);
  bppsa_comm_request *requests[2] = {NULL, NULL};
  int64_t index = 0;
  const double begin = bppsa_now();
  bppsa_status status;
  if (way < BLOCKING) {
    status = block(comm, way, &view, &all);
  } else {
    BPPSA_TRY(bppsa_comm_irecv(comm, 1, 1, &view, &requests[0]));
    BPPSA_TRY(bppsa_comm_irecv(comm, 1, 2, &all, &requests[1]));
    status = way == BLOCKING ? bppsa_comm_wait_any(2, requests, &index) : bppsa_comm_wait_all(2, requests);
    CHECK(requests[0] == NULL && requests[1] == NULL);
  }
  CHECK(HAS("rank 0 waited 0.2 s for rank 1: ") && HAS(waits[way]));
  CHECK(status == BPPSA_ERR_COMM);
  CHECK(bppsa_now() - begin >= 0.19);
  return status;
}

static void deadlines(void **state) {
  (void)state;
  for (int way = 0; way < WAYS; ++way) {
    bppsa_comm_outcome outcome;
    assert_int_equal(run(3, 0.2, wait_too_long, &way, &outcome), BPPSA_ERR_COMM);
    assert_says("rank 0 waited 0.2 s for rank 1");
    assert_int_equal(outcome.rank, 0);
    assert_int_equal(outcome.left_behind, 0);
  }
}

/* Rank 0 fails while rank 1 computes for ever. */
static atomic_bool released;
static bppsa_status compute_for_ever(bppsa_comm *comm, void *context) {
  (void)context;
  if (bppsa_comm_rank(comm) == 0) {
    return bppsa_fail(BPPSA_ERR_NUMERIC, "a NaN");
  }
  while (!atomic_load(&released)) {
    sleep_for(0.001);
  }
  const bppsa_status status = bppsa_comm_barrier(comm); /* the world is not freed while this rank uses it */
  CHECK(status == BPPSA_ERR_COMM && HAS("rank 0: a NaN"));
  return BPPSA_OK;
}

static void count_end(void *context) {
  atomic_fetch_add((atomic_int *)context, 1);
}

static void rank_that_does_not_come_back(void **state) {
  (void)state;
  const int64_t blocks = bppsa_alloc_live();
  atomic_int ends = 0;
  bppsa_comm_config config = {.ranks = 2, .timeout = 0.2, .ended = count_end};
  bppsa_comm_outcome outcome;
  const double begin = bppsa_now();
  assert_int_equal(bppsa_comm_run(&config, compute_for_ever, &ends, &outcome), BPPSA_ERR_NUMERIC);
  assert_string_equal(bppsa_last_error(), "rank 0: a NaN");
  assert_int_equal(outcome.left_behind, 1);
  assert_int_equal(bppsa_comm_left_behind(), 1);
  assert_int_equal(atomic_load(&ends), 0); /* it may still use the context */
  assert_true(bppsa_now() - begin >= 0.19);
  atomic_store(&released, true);
  while (bppsa_comm_left_behind() > 0) {
    assert_true(bppsa_now() - begin < 60);
    sleep_for(0.001);
  }
  assert_int_equal(atomic_load(&ends), 1);
  while (bppsa_alloc_live() != blocks) { /* the last thread frees the world */
    assert_true(bppsa_now() - begin < 60);
    sleep_for(0.001);
  }
}

/* ---- disagreements ---- */

static bppsa_status sizes_differ(bppsa_comm *comm, void *context) {
  const bool sender_first = *(bool *)context;
  double array[10] = {0};
  const bool sends = bppsa_comm_rank(comm) == 1;
  const bppsa_view view = view_of(array, BPPSA_F64, sends ? 5 : 10);
  if (sends != sender_first) {
    sleep_for(0.05);
  }
  const bppsa_status status = sends ? bppsa_comm_send(comm, 0, 3, &view) : bppsa_comm_recv(comm, 1, 3, &view);
  CHECK(status == BPPSA_ERR_COMM);
  CHECK(sends ? HAS("rank 0 expects 80 bytes, this rank sent 40") : HAS("rank 1 sent 40 bytes, this rank expects 80"));
  CHECK(HAS("tag 3"));
  BPPSA_TRY(bppsa_comm_barrier(comm)); /* the error does not affect other ranks or later operations */
  return BPPSA_OK;
}

static void sizes_that_differ(void **state) {
  (void)state;
  for (int first = 0; first < 2; ++first) {
    bool sender_first = first == 1;
    if (run(2, 60, sizes_differ, &sender_first, NULL) != BPPSA_OK) {
      fail_msg("%s", bppsa_last_error());
    }
  }
}

static bppsa_status calls_differ(bppsa_comm *comm, void *context) {
  const int way = *(int *)context;
  double array[8] = {0}, all[16] = {0};
  const bool odd = bppsa_comm_rank(comm) == 1;
  if (odd) {
    sleep_for(0.02);
  }
  const bppsa_view four = view_of(array, BPPSA_F64, 4), five = view_of(array, BPPSA_F64, 5), whole = view_of(all, BPPSA_F64, 10);
  const int64_t counts[2] = {5, 5}, others[2] = {4, 6};
  const bppsa_view mine = view_of(array, BPPSA_F64, odd ? 6 : 5);
  bppsa_status status = BPPSA_OK;
  switch (way) {
  case 0:
    status = odd ? bppsa_comm_barrier(comm) : bppsa_comm_broadcast(comm, 1, &four);
    break;
  case 1:
    status = bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, odd ? &four : &five);
    break;
  case 2:
    status = bppsa_comm_allreduce(comm, odd ? BPPSA_COMM_MAX : BPPSA_COMM_MIN, &four);
    break;
  case 3:
    status = bppsa_comm_broadcast(comm, odd ? 1 : 0, &four);
    break;
  default:
    status = bppsa_comm_allgather(comm, &mine, odd ? others : counts, &whole);
    break;
  }
  if (way == 3 && !odd) { /* its broadcast may be done before the other rank calls */
    CHECK(status == BPPSA_OK || status == BPPSA_ERR_COMM);
  } else {
    CHECK(status == BPPSA_ERR_COMM && HAS("rank 1 calls") && HAS("where rank 0 calls"));
  }
  return status;
}

static void calls_that_differ(void **state) {
  (void)state;
  for (int way = 0; way < 5; ++way) {
    bppsa_comm_outcome outcome;
    assert_int_equal(run(2, 60, calls_differ, &way, &outcome), BPPSA_ERR_COMM);
    assert_says("rank 1 calls");
    assert_int_equal(outcome.rank, 1);
  }
}

/* ---- injected faults ---- */

enum { LONG = 3000 };

/* The operations that a training step over ranks may use: small and large messages, pending requests, reductions, parts. */
static bppsa_status work(bppsa_comm *comm, int steps) {
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  const int32_t left = (rank + size - 1) % size, right = (rank + 1) % size;
  double *arrays = bppsa_calloc(4, LONG * sizeof *arrays);
  bppsa_comm *part = NULL;
  bppsa_status status = arrays == NULL ? BPPSA_ERR_MEMORY : bppsa_comm_split(comm, rank % 2, 0, &part);
  bppsa_comm_request *requests[3] = {0};
  for (int step = 0; status == BPPSA_OK && step < steps; ++step) {
    bppsa_comm_at(comm, "step", step);
    const int64_t count = step % 2 == 0 ? LONG : 3;
    const bppsa_view in = view_of(arrays, BPPSA_F64, count), out = view_of(arrays + LONG, BPPSA_F64, count);
    const bppsa_view sum = view_of(arrays + 2 * LONG, BPPSA_F64, LONG), few = view_of(arrays + 3 * LONG, BPPSA_F64, 9);
    status = bppsa_comm_iallreduce(comm, BPPSA_COMM_SUM, &sum, &requests[0]);
    status = status == BPPSA_OK ? bppsa_comm_irecv(comm, left, 4, &in, &requests[1]) : status;
    status = status == BPPSA_OK ? bppsa_comm_isend(comm, right, 4, &out, &requests[2]) : status;
    status = status == BPPSA_OK ? bppsa_comm_broadcast(part, 0, &few) : status;
    status = status == BPPSA_OK ? bppsa_comm_wait_all(3, requests) : status;
  }
  bppsa_comm_cancel(3, requests);
  bppsa_comm_destroy(part);
  bppsa_free(arrays);
  return status;
}

typedef struct {
  int32_t rank;
  bppsa_comm_fault fault;
} injection;

static bppsa_status work_with_fault(bppsa_comm *comm, void *context) {
  const injection *it = context;
  if (bppsa_comm_rank(comm) == it->rank) {
    bppsa_comm_set_fault(comm, &it->fault);
  }
  return work(comm, 6);
}

/* Lets every rank die at every operation: a hundred runs. */
static void deaths(void **state) {
  (void)state;
  for (int i = 0; i < 100; ++i) {
    injection it = {.rank = i % 4, .fault = {.die_at = 1 + i / 4}};
    bppsa_comm_outcome outcome;
    char words[96], rank[16]; /* the message: the rank and its operation, then why it failed */
    snprintf(words, sizeof words, ": rank %d died at operation %d, as a test wants it", (int)it.rank, 1 + i / 4);
    snprintf(rank, sizeof rank, "rank %d, ", (int)it.rank);
    const double begin = bppsa_now();
    assert_int_equal(run(4, 60, work_with_fault, &it, &outcome), BPPSA_ERR_COMM);
    assert_says(words);
    assert_says(" bytes");
    assert_int_equal(strncmp(bppsa_last_error(), rank, strlen(rank)), 0);
    assert_int_equal(outcome.rank, it.rank);
    assert_int_equal(outcome.left_behind, 0);
    assert_true(bppsa_now() - begin < 20);
  }
}

static void stalls(void **state) {
  (void)state;
  for (int i = 0; i < 12; ++i) {
    injection it = {.rank = i % 4, .fault = {.stall_at = 1 + 2 * i}};
    bppsa_comm_outcome outcome;
    assert_int_equal(run(4, 0.15, work_with_fault, &it, &outcome), BPPSA_ERR_COMM);
    assert_says(" waited 0.15 s for ");
    assert_int_not_equal(outcome.rank, it.rank);
    assert_int_equal(outcome.left_behind, 0);
  }
}

static bppsa_status late_message(bppsa_comm *comm, void *context) {
  (void)context;
  double number = 1;
  const bppsa_view view = view_of(&number, BPPSA_F64, 1);
  bppsa_comm_set_fault(comm, &(bppsa_comm_fault){.delay = 0.03});
  const double begin = bppsa_now();
  for (int i = 0; i < 3; ++i) {
    BPPSA_TRY(bppsa_comm_rank(comm) == 0 ? bppsa_comm_send(comm, 1, 0, &view) : bppsa_comm_recv(comm, 0, 0, &view));
  }
  CHECK(bppsa_now() - begin >= 0.08);
  return BPPSA_OK;
}

static void delays(void **state) {
  (void)state;
  if (run(2, 60, late_message, NULL, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

/* ---- memory ---- */

static bppsa_status work_a_little(bppsa_comm *comm, void *context) {
  (void)context;
  return work(comm, 2);
}

static void memory_runs_out(void **state) {
  (void)state;
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t call = 1;
  for (; status != BPPSA_OK && call < 1000; ++call) {
    bppsa_alloc_fail_once(call);
    status = run(3, 60, work_a_little, NULL, NULL);
    if (status != BPPSA_OK) {
      assert_int_equal(status, BPPSA_ERR_MEMORY);
      assert_says("out of memory");
    }
  }
  bppsa_alloc_fail_at(0);
  assert_in_range(call, 20, 999);
}

static bppsa_status take_memory(bppsa_comm *comm, void *context) {
  (void)context;
  const int32_t rank = bppsa_comm_rank(comm);
  int64_t before = -1, bytes = -1, peak = -1;
  bppsa_comm_get_memory(comm, &before, &peak);
  void *first = bppsa_alloc((size_t)(rank + 1) * 1000), *second = bppsa_alloc(500);
  bppsa_free(second);
  bppsa_comm_get_memory(comm, &bytes, &peak);
  CHECK(before == 0 && bytes == (rank + 1) * 1000 && peak == bytes + 500);
  bppsa_free(first);
  bppsa_comm_get_memory(comm, &bytes, &peak);
  CHECK(bytes == 0 && peak == (rank + 1) * 1000 + 500);
  return BPPSA_OK;
}

static void memory_by_rank(void **state) {
  (void)state;
  if (run(3, 60, take_memory, NULL, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

/* Later rounds use the requests of earlier rounds again, so they allocate nothing. */
static bppsa_status steady(bppsa_comm *comm, void *context) {
  (void)context;
  double numbers[4] = {0};
  const bppsa_view view = view_of(numbers, BPPSA_F64, 4);
  for (int round = 0; round < 20; ++round) {
    int64_t before = 0, after = 0, peak = 0;
    bppsa_comm_get_memory(comm, &before, &peak);
    if (bppsa_comm_rank(comm) == 0) {
      BPPSA_TRY(bppsa_comm_send(comm, 1, 0, &view));
    } else {
      BPPSA_TRY(bppsa_comm_recv(comm, 0, 0, &view));
    }
    BPPSA_TRY(bppsa_comm_allreduce(comm, BPPSA_COMM_MIN, &view));
    bppsa_comm_get_memory(comm, &after, &peak);
    CHECK(round < 3 || before == after);
  }
  return BPPSA_OK;
}

static void steady_state_allocates_nothing(void **state) {
  (void)state;
  if (run(2, 60, steady, NULL, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

/* ---- requests of the program ---- */

static bppsa_status do_nothing(bppsa_comm *comm, void *context) {
  (void)comm, (void)context;
  return BPPSA_OK;
}

static void bad_configurations(void **state) {
  (void)state;
  static const struct {
    bppsa_comm_config config;
    bppsa_status status;
    const char *words;
  } bad[] = {{{BPPSA_COMM_THREADS, 0, 60, NULL}, BPPSA_ERR_ARGUMENT, "ranks 0: expected 1 .. 4096"},
             {{BPPSA_COMM_THREADS, 4097, 60, NULL}, BPPSA_ERR_ARGUMENT, "ranks 4097"},
             {{BPPSA_COMM_THREADS, 2, 0, NULL}, BPPSA_ERR_ARGUMENT, "timeout 0 s"},
             {{BPPSA_COMM_THREADS, 2, -1, NULL}, BPPSA_ERR_ARGUMENT, "timeout -1 s"},
             {{BPPSA_COMM_MPI, -1, 60, NULL}, BPPSA_ERR_ARGUMENT, "ranks -1: expected 0 .. 4096"},
             {{BPPSA_COMM_MPI, 2, 60, NULL}, BPPSA_ERR_ARGUMENT, "no launcher has started this process, expected mpirun -n P"},
             {{BPPSA_COMM_NCCL, 2, 60, NULL}, BPPSA_ERR_UNSUPPORTED, "transport nccl"}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    bppsa_comm_config config = bad[i].config;
    atomic_int ends = 0;
    config.ended = count_end;
    assert_int_equal(bppsa_comm_run(&config, do_nothing, &ends, NULL), bad[i].status);
    assert_says(bad[i].words);
    assert_int_equal(atomic_load(&ends), 1); /* in every case */
  }
}

static void transports(void **state) {
  (void)state;
  for (int i = 0; i < BPPSA_COMM_TRANSPORT_COUNT; ++i) {
    bppsa_comm_transport parsed = BPPSA_COMM_TRANSPORT_COUNT;
    assert_int_equal(bppsa_comm_transport_parse(bppsa_comm_transport_name((bppsa_comm_transport)i), &parsed), BPPSA_OK);
    assert_int_equal(parsed, i);
  }
  bppsa_comm_transport parsed = BPPSA_COMM_NCCL;
  assert_int_equal(bppsa_comm_transport_parse("tcp", &parsed), BPPSA_ERR_ARGUMENT);
  assert_says("transport \"tcp\": expected threads, mpi or nccl");
  assert_int_equal(parsed, BPPSA_COMM_NCCL);
  bppsa_comm_transport_report reports[BPPSA_COMM_TRANSPORT_COUNT];
  bppsa_comm_transports(reports);
  assert_true(reports[BPPSA_COMM_THREADS].built && reports[BPPSA_COMM_THREADS].found);
  for (int i = 0; i < BPPSA_COMM_TRANSPORT_COUNT; ++i) {
    assert_string_equal(reports[i].name, bppsa_comm_transport_name((bppsa_comm_transport)i));
    assert_true(reports[i].detail[0] != '\0' && (reports[i].found || reports[i].package[0] != '\0'));
    assert_true(reports[i].built || !reports[i].found);
  }
}

static void launchers(void **state) {
  (void)state;
  static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  assert_int_equal(setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1), 0); /* a user's setting, as OMPI_MCA_* are */
  assert_false(bppsa_comm_launched());
  assert_int_equal(unsetenv("OMPI_ALLOW_RUN_AS_ROOT"), 0);
  for (int i = 0; i < 3; ++i) {
    assert_int_equal(setenv(variables[i], "nonsense", 1), 0);
    assert_true(bppsa_comm_launched());
    assert_int_equal(unsetenv(variables[i]), 0);
  }
  assert_false(bppsa_comm_launched());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(failing_rank_wakes_others),
                                     cmocka_unit_test(abort_wakes_others),
                                     cmocka_unit_test(ended_rank_is_not_waited_for),
                                     cmocka_unit_test(cancelled_reduction),
                                     cmocka_unit_test(forgotten_request),
                                     cmocka_unit_test(foreign_request),
                                     cmocka_unit_test(deadlines),
                                     cmocka_unit_test(rank_that_does_not_come_back),
                                     cmocka_unit_test(sizes_that_differ),
                                     cmocka_unit_test(calls_that_differ),
                                     cmocka_unit_test(deaths),
                                     cmocka_unit_test(stalls),
                                     cmocka_unit_test(delays),
                                     cmocka_unit_test(memory_runs_out),
                                     cmocka_unit_test(memory_by_rank),
                                     cmocka_unit_test(steady_state_allocates_nothing),
                                     cmocka_unit_test(bad_configurations),
                                     cmocka_unit_test(transports),
                                     cmocka_unit_test(launchers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Random sequences of calls on one communicator over threads (tests/support/calls.h): all ranks draw the same calls; what each of
 * them receives is compared with plain arithmetic in the order of ranks. Some ranks make calls that are refused, or cancel theirs,
 * meanwhile; some sequences end with a rank that fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/ordered.h"
#include "core/base/alloc.h"
#include "tests/comm/operations.h"

enum { MOST_TOGETHER = 4, MOST_MESSAGES = 12, NEVER = 32000 /* a tag */ };

typedef struct {
  bppsa_comm *world;
  int32_t rank, size;
  dice own; /* what this rank alone decides */
  int64_t operations;
  bppsa_status status; /* of the latest call */
} rank_state;

static bppsa_status run_one(call_sequence *s, rank_state *o, bppsa_comm *comm) {
  operation e = draw_operation(s, ++o->operations, comm);
  const bool waits = chance(s, 50);
  BPPSA_TRY(make_arrays(&e));
  bppsa_status status = waits ? call(&e) : begin(&e);
  status = status == BPPSA_OK ? bppsa_comm_wait_all(2, e.requests) : status;
  status = status == BPPSA_OK ? check(&e) : status;
  free_arrays(&e);
  return status;
}

/* ---- calls ---- */

static bppsa_status one(call_sequence *s, rank_state *o) {
  return run_one(s, o, o->world);
}

/* Each rank waits for its requests in its own way and order. */
static bppsa_status wait_somehow(rank_state *o, int64_t count, bppsa_comm_request **requests) {
  const int64_t way = roll(&o->own, 0, 3);
  int64_t index = 0;
  if (way == 0) {
    return bppsa_comm_wait_all(count, requests);
  }
  while (way == 1 && index >= 0) {
    BPPSA_TRY(bppsa_comm_wait_any(count, requests, &index));
  }
  if (way == 2) {
    for (int64_t left = count; left > 0;) {
      bool done = false;
      const int64_t i = roll(&o->own, 0, count - 1);
      left -= requests[i] != NULL ? 0 : 1; /* sooner or later */
      BPPSA_TRY(bppsa_comm_test(&requests[i], &done));
      CHECK(done == (requests[i] == NULL));
    }
    return bppsa_comm_wait_all(count, requests);
  }
  for (int64_t first = roll(&o->own, 0, count - 1), i = 0; way == 3 && i < count; ++i) {
    BPPSA_TRY(bppsa_comm_wait(&requests[(first + i) % count]));
  }
  return BPPSA_OK;
}

/* Several operations under way at once. */
static bppsa_status several(call_sequence *s, rank_state *o) {
  operation e[MOST_TOGETHER];
  bppsa_comm_request *requests[2 * MOST_TOGETHER] = {0};
  const int64_t count = draw(s, 2, MOST_TOGETHER);
  bppsa_status status = BPPSA_OK;
  for (int64_t i = 0; i < count; ++i) {
    e[i] = draw_operation(s, ++o->operations, o->world);
    status = status == BPPSA_OK ? make_arrays(&e[i]) : status;
    status = status == BPPSA_OK ? begin(&e[i]) : status;
    memcpy(requests + 2 * i, e[i].requests, sizeof e[i].requests);
  }
  status = status == BPPSA_OK ? wait_somehow(o, 2 * count, requests) : status;
  bppsa_comm_cancel(2 * count, requests);
  for (int64_t i = 0; i < count; ++i) {
    status = status == BPPSA_OK ? check(&e[i]) : status;
    free_arrays(&e[i]);
  }
  return status;
}

/* Messages between any two ranks, some of them with the same tags. */
static bppsa_status messages(call_sequence *s, rank_state *o) {
  struct {
    int32_t from, to, tag;
    double value, in;
  } m[MOST_MESSAGES];
  bppsa_comm_request *requests[2 * MOST_MESSAGES] = {0};
  const int64_t count = draw(s, 1, MOST_MESSAGES), one_number = 1, number = ++o->operations;
  for (int64_t i = 0; i < count; ++i) {
    m[i].from = (int32_t)draw(s, 0, o->size - 1);
    m[i].to = (int32_t)draw(s, 0, o->size - 1);
    m[i].tag = (int32_t)draw(s, 0, 2);
    m[i].value = real_of(m[i].from, number, i);
    m[i].in = -1;
    const bppsa_view out = bppsa_view_make(&m[i].value, BPPSA_F64, 1, &one_number);
    const bppsa_view in = bppsa_view_make(&m[i].in, BPPSA_F64, 1, &one_number);
    if (m[i].to == o->rank) {
      BPPSA_TRY(bppsa_comm_irecv(o->world, m[i].from, m[i].tag, &in, &requests[2 * i]));
    }
    if (m[i].from == o->rank) {
      BPPSA_TRY(bppsa_comm_isend(o->world, m[i].to, m[i].tag, &out, &requests[2 * i + 1]));
    }
  }
  const bppsa_status status = wait_somehow(o, 2 * count, requests);
  bppsa_comm_cancel(2 * count, requests);
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    CHECK(m[i].to != o->rank || m[i].in == m[i].value);
  }
  return status;
}

/* Parts of the world compute something, each by itself. */
static bppsa_status split(call_sequence *s, rank_state *o) {
  int32_t colors[MOST_RANKS], keys[MOST_RANKS];
  for (int32_t r = 0; r < MOST_RANKS; ++r) {
    colors[r] = (int32_t)draw(s, -1, 1);
    keys[r] = (int32_t)draw(s, 0, 2);
  }
  bppsa_comm *part = NULL;
  BPPSA_TRY(bppsa_comm_split(o->world, colors[o->rank], keys[o->rank], &part));
  CHECK((part == NULL) == (colors[o->rank] < 0));
  call_sequence inner = *s;
  rank_state within = *o;
  bppsa_status status = BPPSA_OK;
  for (int64_t left = draw(&inner, 1, 3); part != NULL && left > 0 && status == BPPSA_OK; --left) {
    status = run_one(&inner, &within, part);
  }
  s->d.drawn += 1000; /* on all ranks, also on those without a part */
  o->operations += 10;
  bppsa_comm_destroy(part);
  return status;
}

/* A sum with the bits that one rank computes alone. */
static bppsa_status ordered_sum(call_sequence *s, rank_state *o) {
  enum { BLOCKS = 9 };
  int32_t owners[BLOCKS];
  const int64_t blocks = draw(s, 1, BLOCKS), count = draw(s, 0, MOST_COUNT), number = ++o->operations;
  const bppsa_dtype dtype = chance(s, 50) ? BPPSA_F64 : BPPSA_F32;
  double values[MOST_COUNT], sum[MOST_COUNT], expected[MOST_COUNT];
  bppsa_ordered_sum *shared = NULL, *alone = NULL;
  for (int64_t i = 0; i < BLOCKS; ++i) {
    owners[i] = (int32_t)draw(s, 0, o->size - 1);
  }
  BPPSA_TRY(bppsa_ordered_sum_create(o->world, blocks, owners, dtype, count, 7, &shared));
  bppsa_status status = bppsa_ordered_sum_create(NULL, blocks, NULL, dtype, count, 7, &alone);
  const bppsa_view view = bppsa_view_make(values, dtype, 1, &count), all = bppsa_view_make(sum, dtype, 1, &count),
                   same = bppsa_view_make(expected, dtype, 1, &count);
  for (int64_t time = 0; time < 2 && status == BPPSA_OK; ++time) {
    for (int64_t i = 0; i < blocks && status == BPPSA_OK; ++i) {
      fill(dtype, values, count, i, number + time);
      status = bppsa_ordered_sum_add(alone, i, &view);
      if (status == BPPSA_OK && owners[i] == o->rank) {
        status = bppsa_ordered_sum_add(shared, i, &view);
      } else if (status == BPPSA_OK && bppsa_ordered_sum_add(shared, i, &view) != BPPSA_ERR_ARGUMENT) {
        status = bppsa_fail(BPPSA_ERR_NUMERIC, "another rank's block was added");
      }
    }
    status = status == BPPSA_OK ? bppsa_ordered_sum_finish(shared, &all) : status;
    status = status == BPPSA_OK ? bppsa_ordered_sum_finish(alone, &same) : status;
    if (status == BPPSA_OK && memcmp(sum, expected, (size_t)count * bppsa_dtype_size(dtype)) != 0) {
      status = bppsa_fail(BPPSA_ERR_NUMERIC, "the sum has other bits than that of one rank");
    }
  }
  o->operations += 1;
  bppsa_ordered_sum_destroy(shared);
  bppsa_ordered_sum_destroy(alone);
  return status;
}

/* Some ranks make a call that is refused at once. The others do not notice. */
static bppsa_status refused(call_sequence *s, rank_state *o) {
  double numbers[8] = {0};
  const int64_t four = 4, wrong_counts[MOST_RANKS] = {3, 3, 3, 3, 3};
  bppsa_view view = bppsa_view_make(numbers, BPPSA_F64, 1, &four), bytes = bppsa_view_make(numbers, BPPSA_U8, 1, &four);
  bppsa_comm_request *request = NULL;
  bppsa_comm *part = NULL;
  (void)s;
  if (roll(&o->own, 0, 1) == 0) {
    return BPPSA_OK;
  }
  bppsa_comm *w = o->world;
  switch (roll(&o->own, 0, 8)) {
  case 0:
    CHECK(bppsa_comm_broadcast(w, o->size, &view) == BPPSA_ERR_ARGUMENT);
    break;
  case 1:
    CHECK(bppsa_comm_irecv(w, -1, 0, &view, &request) == BPPSA_ERR_ARGUMENT);
    break;
  case 2:
    CHECK(bppsa_comm_isend(w, 0, BPPSA_COMM_MAX_TAG + 1, &view, &request) == BPPSA_ERR_ARGUMENT);
    break;
  case 3:
    CHECK(bppsa_comm_allreduce(w, BPPSA_COMM_SUM, &bytes) == BPPSA_ERR_UNSUPPORTED);
    break;
  case 4:
    CHECK(bppsa_comm_reduce_scatter(w, BPPSA_COMM_SUM, &view, &bytes) == BPPSA_ERR_SHAPE);
    break;
  case 5:
    CHECK(bppsa_comm_allgather(w, &view, wrong_counts, &view) == BPPSA_ERR_SHAPE);
    break;
  case 6:
    view.strides[0] = 2;
    CHECK(bppsa_comm_iallreduce(w, BPPSA_COMM_MAX, &view, &request) == BPPSA_ERR_SHAPE);
    break;
  case 7:
    CHECK(bppsa_comm_split(w, -2, 0, &part) == BPPSA_ERR_ARGUMENT);
    break;
  default:
    CHECK(bppsa_comm_barrier(NULL) == BPPSA_ERR_ARGUMENT);
  }
  CHECK(request == NULL && part == NULL && bppsa_last_error()[0] != '\0');
  return BPPSA_OK;
}

/* Some ranks begin a message that nobody takes, and think better of it. */
static bppsa_status cancel(call_sequence *s, rank_state *o) {
  double number = 0;
  const int64_t once = 1;
  const bppsa_view view = bppsa_view_make(&number, BPPSA_F64, 1, &once);
  bppsa_comm_request *request = NULL;
  (void)s;
  const int32_t peer = (int32_t)roll(&o->own, 0, o->size - 1), tag = NEVER + o->rank;
  const int64_t how = roll(&o->own, 0, 2);
  if (how < 2) {
    BPPSA_TRY(how == 0 ? bppsa_comm_irecv(o->world, peer, tag, &view, &request)
                       : bppsa_comm_isend(o->world, peer, tag, &view, &request));
    bool done = true;
    BPPSA_TRY(bppsa_comm_test(&request, &done));
    CHECK(!done && request != NULL);
    bppsa_comm_cancel(1, &request);
    CHECK(request == NULL);
  }
  return bppsa_comm_barrier(o->world); /* a message to a rank that has ended would fail */
}

/* Begins the operation again where the only allocation that fails was its own. */
static bppsa_status begin_again(operation *e) {
  const bppsa_status status = begin(e);
  return status == BPPSA_ERR_MEMORY ? begin(e) : status;
}

/* An allocation fails on one of the ranks: nothing has begun there, and the same call succeeds. */
static bppsa_status out_of_memory(call_sequence *s, rank_state *o) {
  const int64_t fails = draw(s, 1, 3), count = draw(s, 1, 3);
  BPPSA_TRY(bppsa_comm_barrier(o->world)); /* no rank is in an earlier call */
  if (o->rank == 0) {
    bppsa_alloc_fail_once(fails);
  }
  bppsa_status status = BPPSA_OK;
  for (int64_t i = 0; i < count && status == BPPSA_OK; ++i) {
    operation e = draw_operation(s, ++o->operations, o->world);
    BPPSA_TRY(make_arrays(&e));
    status = begin_again(&e);
    status = status == BPPSA_OK ? bppsa_comm_wait_all(2, e.requests) : status;
    bppsa_comm_cancel(2, e.requests);
    status = status == BPPSA_OK ? check(&e) : status;
    free_arrays(&e);
  }
  operation barrier = {.kind = BARRIER, .comm = o->world};
  status = status == BPPSA_OK ? begin_again(&barrier) : status;
  status = status == BPPSA_OK ? bppsa_comm_wait(barrier.requests) : status;
  if (o->rank == 0) {
    bppsa_alloc_fail_at(0);
  }
  barrier = (operation){.kind = BARRIER, .comm = o->world}; /* all ranks allocate again */
  status = status == BPPSA_OK ? begin_again(&barrier) : status;
  return status == BPPSA_OK ? bppsa_comm_wait(barrier.requests) : status;
}

#define CALL(name)                                                                                                               \
  static void call_##name(call_sequence *s, void *object) {                                                                      \
    rank_state *o = object;                                                                                                      \
    o->status = name(s, o);                                                                                                      \
  }
CALL(one)
CALL(several)
CALL(messages)
CALL(split)
CALL(ordered_sum)
CALL(refused)
CALL(cancel)
CALL(out_of_memory)

static const call_kind calls[] = {{"one", 25, call_one},
                                  {"several", 12, call_several},
                                  {"messages", 12, call_messages},
                                  {"split", 6, call_split},
                                  {"ordered_sum", 6, call_ordered_sum},
                                  {"refused", 10, call_refused},
                                  {"cancel", 8, call_cancel},
                                  {"out_of_memory", 3, call_out_of_memory},
                                  {NULL, 0, NULL}};

/* ---- a sequence, and its end ---- */

typedef enum { ALL_RETURN, ONE_FAILS, ONE_ABORTS, ONE_DIES, ONE_LEAVES, ONE_IS_LATE, ENDS } ending;

typedef struct {
  const call_sequence *sequence;
  int32_t ranks, culprit;
  ending end;
  double timeout;
} subject;

/* The last operation, which the culprit does not take part in. The others get its reason, and again whatever they try then. */
static bppsa_status end_badly(const subject *o, call_sequence *s, rank_state *state) {
  const bppsa_comm_fault fault = {.die_at = 1};
  const bool guilty = state->rank == o->culprit;
  if (guilty && o->end == ONE_FAILS) {
    return bppsa_fail(BPPSA_ERR_IO, "disk full");
  }
  if (guilty && o->end == ONE_LEAVES) {
    return BPPSA_OK;
  }
  if (guilty && o->end == ONE_ABORTS) {
    bppsa_comm_abort(state->world, "no reason");
  }
  if (guilty && o->end == ONE_DIES) {
    bppsa_comm_set_fault(state->world, &fault);
  }
  if (guilty && o->end == ONE_IS_LATE) {
    const struct timespec time = {.tv_sec = 3}; /* the run waits for it for two seconds after the others have failed */
    (void)nanosleep(&time, NULL);
  }
  operation e = draw_operation(s, ++state->operations, state->world);
  if (e.kind == BROADCAST || e.kind == RING || e.kind == GATHER) { /* the others need every rank */
    e.kind = ALLREDUCE;
    e.dtype = BPPSA_F64;
    e.count = 5;
  }
  BPPSA_TRY(make_arrays(&e));
  const bppsa_status status = call(&e);
  free_arrays(&e);
  CHECK(status == BPPSA_ERR_COMM && bppsa_last_error()[0] != '\0');
  return status;
}

static bppsa_status body(bppsa_comm *world, void *context) {
  subject *o = context;
  call_sequence s = *o->sequence;
  rank_state state = {.world = world, .rank = bppsa_comm_rank(world), .size = bppsa_comm_size(world)};
  state.own = (dice){.seed = 1000 * s.d.seed + (uint64_t)state.rank + 1};
  s.silent = state.rank != 0;
  for (const call_kind *k; (k = next_call(&s, calls)) != NULL;) {
    k->make(&s, &state);
    BPPSA_TRY(state.status);
  }
  return o->end == ALL_RETURN ? BPPSA_OK : end_badly(o, &s, &state);
}

static void run(call_sequence *s) {
  static const char *const reasons[ENDS] = {"", "disk full", "gave up: no reason", "died", "has ended", "waited"};
  subject o = {.ranks = (int32_t)draw(s, 1, MOST_RANKS), .timeout = 60};
  o.end = chance(s, 60) ? ALL_RETURN : (ending)draw(s, ONE_FAILS, ONE_LEAVES);
  o.end = draw(s, 1, 200) == 1 ? ONE_IS_LATE : o.end;
  o.end = o.ranks == 1 ? ALL_RETURN : o.end;
  o.timeout = o.end == ONE_IS_LATE ? 2 : o.timeout;
  o.culprit = (int32_t)draw(s, 0, o.ranks - 1);
  note(s, "\n%d ranks, end %d, rank %d", o.ranks, (int)o.end, o.culprit);
  o.sequence = s;
  const bppsa_comm_config config = {.transport = BPPSA_COMM_THREADS, .ranks = o.ranks, .timeout = o.timeout};
  bppsa_comm_outcome outcome;
  const bppsa_status status = bppsa_comm_run(&config, body, &o, &outcome);
  bppsa_alloc_fail_at(0);
  if (o.end == ALL_RETURN ? status != BPPSA_OK : strstr(bppsa_last_error(), reasons[o.end]) == NULL) {
    fail_msg("%s, expected \"%s\"", bppsa_last_error(), reasons[o.end]);
  }
  assert_int_equal(status, o.end == ALL_RETURN ? BPPSA_OK : o.end == ONE_FAILS ? BPPSA_ERR_IO : BPPSA_ERR_COMM);
  assert_int_equal(outcome.left_behind, 0);
  if (o.end == ONE_FAILS || o.end == ONE_ABORTS || o.end == ONE_DIES) {
    assert_int_equal(outcome.rank, o.culprit);
  }
}

int main(int argc, char **argv) {
  const call_subject communicator = {"communicator", 150, 1000, 5, 25, run};
  return run_sequences(&communicator, argc, argv);
}

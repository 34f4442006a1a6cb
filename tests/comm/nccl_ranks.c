/* Ranks with one GPU each, over a stand-in for NCCL's documented calls; and arrays on GPUs over threads, through host memory. */
#include <nccl.h>
#include <stdio.h>
#include <string.h>

#include "comm/ordered.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/compute/memory.h"
#include "tests/comm/cases.h"
#include "tests/support/support.h"

enum { MOST_RANKS = 8, COUNT = 5000 };

static bppsa_device *gpus[MOST_RANKS];

#define HAS(words) (strstr(bppsa_last_error(), words) != NULL)

/* A rank's arrays on its GPU: element i of array `number` is value(rank, number, i). */
typedef struct {
  const bppsa_device *gpu;
  double *data[3];
} arrays;

static double value(int64_t rank, int64_t number, int64_t i) {
  return (double)((rank * 7919 + number * 104729 + i * 31) % 65521);
}

static bppsa_view gpu_view(void *data, bppsa_dtype dtype, int64_t count) {
  bppsa_view view = bppsa_view_make(data, dtype, 1, &count);
  view.device = BPPSA_CUDA;
  return view;
}

static bppsa_status fill(const arrays *a, int which, int64_t rank, int64_t number) {
  double *host = bppsa_calloc(COUNT, sizeof *host);
  CHECK(host != NULL);
  for (int64_t i = 0; i < COUNT; ++i) {
    host[i] = value(rank, number, i);
  }
  const bppsa_status status = bppsa_memory_put(a->gpu, a->data[which], host, COUNT * (int64_t)sizeof *host);
  bppsa_free(host);
  return status;
}

static bppsa_status holds(const arrays *a, int which, int64_t first, int64_t count, int64_t rank, int64_t number) {
  double *host = bppsa_calloc(COUNT, sizeof *host);
  CHECK(host != NULL);
  bppsa_status status = bppsa_memory_get(a->gpu, host, a->data[which], COUNT * (int64_t)sizeof *host);
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    if (host[first + i] != value(rank, number, i)) {
      status =
          bppsa_fail(BPPSA_ERR_NUMERIC, "element %lld is %g, expected %g", (long long)i, host[first + i], value(rank, number, i));
    }
  }
  bppsa_free(host);
  return status;
}

/* ---- cases for both transports with arrays on GPUs ---- */

static bppsa_status messages(bppsa_comm *comm, const arrays *a) {
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  const int32_t left = (rank + size - 1) % size, right = (rank + 1) % size;
  for (int64_t count = 0; count <= COUNT; count += COUNT / 2) {
    bppsa_comm_request *requests[3] = {0};
    BPPSA_TRY(fill(a, 0, rank, count));
    BPPSA_TRY(fill(a, 1, 99, 99));
    const bppsa_view out = gpu_view(a->data[0], BPPSA_F64, count), in = gpu_view(a->data[1], BPPSA_F64, count);
    const bppsa_view few = gpu_view(a->data[0], BPPSA_F64, 3), got = gpu_view(a->data[2], BPPSA_F64, 3);
    BPPSA_TRY(bppsa_comm_irecv(comm, left, 1, &in, &requests[0]));
    BPPSA_TRY(bppsa_comm_isend(comm, right, 1, &out, &requests[1]));
    BPPSA_TRY(bppsa_comm_isend(comm, right, 2, &few, &requests[2]));
    BPPSA_TRY(bppsa_comm_recv(comm, left, 2, &got)); /* launches all four messages */
    int64_t index = -1;
    BPPSA_TRY(bppsa_comm_wait_any(3, requests, &index));
    CHECK(index >= 0 && requests[index] == NULL);
    BPPSA_TRY(bppsa_comm_wait_all(3, requests));
    BPPSA_TRY(holds(a, 1, 0, count, left, count));
    BPPSA_TRY(holds(a, 2, 0, 3, left, count));
  }
  return bppsa_comm_check_order(comm);
}

static bppsa_status reductions(bppsa_comm *comm, const arrays *a) {
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  double *host = bppsa_calloc(COUNT, sizeof *host);
  CHECK(host != NULL);
  for (int op = 0; op < BPPSA_COMM_OP_COUNT; ++op) {
    bppsa_comm_request *request = NULL;
    BPPSA_TRY(fill(a, 0, rank, 3));
    const bppsa_view view = gpu_view(a->data[0], BPPSA_F64, COUNT);
    BPPSA_TRY(bppsa_comm_iallreduce(comm, (bppsa_comm_op)op, &view, &request));
    BPPSA_TRY(bppsa_comm_wait(&request));
    BPPSA_TRY(bppsa_memory_get(a->gpu, host, a->data[0], COUNT * (int64_t)sizeof *host));
    for (int64_t i = 0; i < COUNT; ++i) {
      double expected = value(0, 3, i);
      for (int32_t r = 1; r < size; ++r) {
        const double next = value(r, 3, i);
        expected = op == BPPSA_COMM_SUM ? expected + next : (op == BPPSA_COMM_MAX) == (next > expected) ? next : expected;
      }
      CHECK(host[i] == expected);
    }
  }
  bppsa_free(host);
  return BPPSA_OK;
}

static bppsa_status scatters(bppsa_comm *comm, const arrays *a) {
  enum { PART = 100 };
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  double host[PART];
  BPPSA_TRY(fill(a, 0, rank, 3));
  const bppsa_view all = gpu_view(a->data[0], BPPSA_F64, PART * size), mine = gpu_view(a->data[1], BPPSA_F64, PART);
  BPPSA_TRY(bppsa_comm_reduce_scatter(comm, BPPSA_COMM_SUM, &all, &mine));
  BPPSA_TRY(bppsa_memory_get(a->gpu, host, a->data[1], PART * (int64_t)sizeof *host));
  for (int64_t i = 0; i < PART; ++i) {
    double expected = 0;
    for (int32_t r = 0; r < size; ++r) {
      expected += value(r, 3, rank * PART + i);
    }
    CHECK(host[i] == expected);
  }
  return holds(a, 0, 0, COUNT, rank, 3);
}

static bppsa_status gathers(bppsa_comm *comm, const arrays *a) {
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  int64_t counts[MOST_RANKS], total = 0;
  for (int32_t r = 0; r < size; ++r) {
    counts[r] = r % 3 * 200;
    total += counts[r];
  }
  BPPSA_TRY(fill(a, 0, rank, 6));
  const bppsa_view mine = gpu_view(a->data[0], BPPSA_F64, counts[rank]), all = gpu_view(a->data[1], BPPSA_F64, total);
  for (int32_t root = -1; root < size; ++root) {
    BPPSA_TRY(fill(a, 1, 99, 99));
    if (root < 0) {
      BPPSA_TRY(bppsa_comm_allgather(comm, &mine, counts, &all));
    } else {
      BPPSA_TRY(bppsa_comm_gather(comm, root, &mine, counts, rank == root ? &all : NULL));
    }
    int64_t first = 0;
    for (int32_t r = 0; r < size && (root < 0 || root == rank); first += counts[r++]) {
      BPPSA_TRY(holds(a, 1, first, counts[r], r, 6));
    }
  }
  return BPPSA_OK;
}

static bppsa_status broadcasts_and_parts(bppsa_comm *comm, const arrays *a) {
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  for (int32_t root = 0; root < size; ++root) {
    BPPSA_TRY(fill(a, 0, rank, root));
    const bppsa_view view = gpu_view(a->data[0], BPPSA_F64, COUNT);
    BPPSA_TRY(bppsa_comm_broadcast(comm, root, &view));
    BPPSA_TRY(holds(a, 0, 0, COUNT, root, root));
  }
  bppsa_comm *part = NULL;
  BPPSA_TRY(bppsa_comm_split(comm, rank % 2, -rank, &part));
  CHECK(bppsa_comm_size(part) == (size + 1 - rank % 2) / 2 && bppsa_comm_get_transport(part) == bppsa_comm_get_transport(comm));
  const bppsa_view view = gpu_view(a->data[0], BPPSA_F64, COUNT);
  bppsa_status status = fill(a, 0, rank, 8);
  status = status == BPPSA_OK ? bppsa_comm_broadcast(part, 0, &view) : status; /* the root is the highest rank of this color */
  status = status == BPPSA_OK ? holds(a, 0, 0, COUNT, (size - 1 - rank) % 2 == 0 ? size - 1 : size - 2, 8) : status;
  bppsa_comm_destroy(part);
  return status == BPPSA_OK ? bppsa_comm_barrier(comm) : status;
}

/* An ordered sum of vectors on GPUs and in host memory has the same bits as on one rank. */
static bppsa_status ordered(bppsa_comm *comm, const arrays *a) {
  enum { BLOCKS = 11 };
  double alone[COUNT], together[COUNT];
  const int64_t count = COUNT;
  for (int on_gpu = 0; on_gpu < 2; ++on_gpu) {
    for (int split = 0; split < 2; ++split) {
      bppsa_ordered_sum *sum = NULL;
      BPPSA_TRY(bppsa_ordered_sum_create(split ? comm : NULL, BLOCKS, NULL, BPPSA_F64, COUNT, 5, &sum));
      double *result = split ? together : alone;
      for (int64_t b = 0; b < BLOCKS; ++b) {
        for (int64_t i = 0; i < COUNT; ++i) {
          result[i] = value(b, 0, i) / 65537;
        }
        const bool use_gpu = on_gpu && split;
        if (use_gpu) {
          BPPSA_TRY(bppsa_memory_put(a->gpu, a->data[0], result, sizeof alone));
        }
        const bppsa_view view = use_gpu ? gpu_view(a->data[0], BPPSA_F64, COUNT) : bppsa_view_make(result, BPPSA_F64, 1, &count);
        const bppsa_status added = bppsa_ordered_sum_add(sum, b, &view);
        CHECK(added == BPPSA_OK || (split && HAS("it belongs to another rank")));
      }
      const bool use_gpu = on_gpu && split;
      const bppsa_view view = use_gpu ? gpu_view(a->data[0], BPPSA_F64, COUNT) : bppsa_view_make(result, BPPSA_F64, 1, &count);
      BPPSA_TRY(bppsa_ordered_sum_finish(sum, &view));
      if (use_gpu) {
        BPPSA_TRY(bppsa_memory_get(a->gpu, result, a->data[0], sizeof alone));
      }
      bppsa_ordered_sum_destroy(sum);
    }
    CHECK(memcmp(alone, together, sizeof alone) == 0);
  }
  return BPPSA_OK;
}

/* A broadcast in host memory advances while this rank waits for one on the GPU: rank 0, the root, sends after the first is done. */
static bppsa_status side_by_side(bppsa_comm *comm, const arrays *a) {
  const int32_t rank = bppsa_comm_rank(comm), size = bppsa_comm_size(comm);
  const int64_t one = 1;
  double number = rank == 0 ? 42 : 0;
  const bppsa_view on_host = bppsa_view_make(&number, BPPSA_F64, 1, &one), on_gpu = gpu_view(a->data[0], BPPSA_F64, 9);
  bppsa_comm_request *request = NULL;
  BPPSA_TRY(bppsa_comm_ibroadcast(comm, 0, &on_host, &request));
  bppsa_status status = rank == 0 ? bppsa_comm_wait(&request) : BPPSA_OK;
  if (rank == 0) {
    for (int32_t r = 1; r < size && status == BPPSA_OK; ++r) {
      status = bppsa_comm_send(comm, r, 1, &on_gpu);
    }
  } else {
    status = bppsa_comm_recv(comm, 0, 1, &on_gpu);
  }
  status = status == BPPSA_OK ? bppsa_comm_wait(&request) : status;
  bppsa_comm_cancel(1, &request);
  CHECK(status != BPPSA_OK || number == 42);
  return status;
}

typedef bppsa_status (*part)(bppsa_comm *comm, const arrays *a);

static bppsa_status with_arrays(bppsa_comm *comm, const bppsa_device *gpu, part tried) {
  arrays a = {.gpu = gpu};
  bppsa_status status = BPPSA_OK;
  for (int i = 0; i < 3 && status == BPPSA_OK; ++i) {
    status = bppsa_memory_alloc(gpu, COUNT * (int64_t)sizeof(double), (void **)&a.data[i]);
  }
  status = status == BPPSA_OK ? tried(comm, &a) : status;
  for (int i = 0; i < 3; ++i) {
    bppsa_memory_free(gpu, a.data[i]);
  }
  return status;
}

/* ---- runs ---- */

typedef struct {
  bool nccl;
  part tried;
} wish;

static bppsa_status on_ranks(bppsa_comm *world, void *context) {
  const wish *w = context;
  const bppsa_device *gpu = gpus[bppsa_comm_rank(world)];
  bppsa_comm *comm = world;
  if (w->nccl) {
    BPPSA_TRY(bppsa_comm_create_nccl(world, gpu, &comm));
    bppsa_comm_at(comm, "test", 1);
  } else {
    bppsa_comm_set_device(world, gpu);
  }
  const bppsa_status status = with_arrays(comm, gpu, w->tried);
  if (w->nccl) {
    bppsa_comm_destroy(comm);
  }
  return status;
}

static bppsa_status run(int32_t ranks, double timeout, bool nccl, part tried, bppsa_comm_outcome *outcome) {
  const int64_t blocks = bppsa_alloc_live();
  const bppsa_comm_config config = {.ranks = ranks, .timeout = timeout};
  wish w = {nccl, tried};
  const bppsa_status status = bppsa_comm_run(&config, on_ranks, &w, outcome);
  assert_int_equal(bppsa_alloc_live(), blocks);
  return status;
}

static void every_part(void **state) {
  const bool nccl = *state != NULL;
  static const part parts[] = {messages, reductions, scatters, gathers, broadcasts_and_parts, ordered, side_by_side};
  for (int32_t ranks = 1; ranks <= MOST_RANKS; ++ranks) {
    for (int i = 0; i < (int)(sizeof parts / sizeof parts[0]); ++i) {
      if (run(ranks, 60, nccl, parts[i], NULL) != BPPSA_OK) {
        fail_msg("%s, %d ranks, part %d: %s", nccl ? "nccl" : "threads", ranks, i, bppsa_last_error());
      }
    }
  }
}

static void assert_says(const char *words) {
  if (!HAS(words)) {
    fail_msg("the last error is \"%s\", expected \"%s\" in it", bppsa_last_error(), words);
  }
}

/* ---- errors ---- */

static bppsa_status share_gpu(bppsa_comm *world, void *context) {
  (void)context;
  bppsa_comm *comm = NULL;
  const bppsa_status status =
      bppsa_comm_create_nccl(world, gpus[bppsa_comm_rank(world) == 2 ? 0 : bppsa_comm_rank(world)], &comm);
  CHECK(status == BPPSA_ERR_ARGUMENT && comm == NULL);
  CHECK(HAS("ranks 0 and 2 share the GPU") && HAS("--transport mpi or threads lets them share it"));
  CHECK(bppsa_comm_create_nccl(world, NULL, &comm) == BPPSA_ERR_ARGUMENT && HAS("expected a GPU for every rank"));
  return BPPSA_OK;
}

static void shared_gpu(void **state) {
  (void)state;
  const bppsa_comm_config config = {.ranks = 3, .timeout = 60};
  if (bppsa_comm_run(&config, share_gpu, NULL, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

/* Rank 0 sends with tags 4, 5 and rank 1 receives with tags 5, 4: NCCL would deliver the wrong messages. */
static bppsa_status swap_tags(bppsa_comm *comm, const arrays *a) {
  const int32_t rank = bppsa_comm_rank(comm);
  bppsa_comm_request *requests[2] = {0};
  for (int i = 0; i < 2; ++i) {
    const bppsa_view view = gpu_view(a->data[i], BPPSA_F64, 10);
    BPPSA_TRY(rank == 0 ? bppsa_comm_isend(comm, 1, 4 + i, &view, &requests[i])
                        : bppsa_comm_irecv(comm, 0, 5 - i, &view, &requests[i]));
  }
  BPPSA_TRY(bppsa_comm_wait_all(2, requests));
  const bppsa_status status = bppsa_comm_check_order(comm);
  if (rank == 1) {
    CHECK(status == BPPSA_ERR_COMM);
    CHECK(HAS("message 1 from rank 0 to rank 1: sent with tag 4 and 80 bytes, received with tag 5 and 80 bytes"));
  } else {
    CHECK(status == BPPSA_OK);
  }
  return bppsa_comm_check_order(comm); /* compares only messages since the last call */
}

/* Sends as many messages as are recorded one by one, and then two in another order. */
static bppsa_status swap_late(bppsa_comm *comm, const arrays *a) {
  const int32_t rank = bppsa_comm_rank(comm);
  const bppsa_view view = gpu_view(a->data[0], BPPSA_F64, 1);
  for (int i = 0; i < 40; ++i) {
    const int tag = rank == 1 && i >= 38 ? 77 - i : i;
    BPPSA_TRY(rank == 0 ? bppsa_comm_send(comm, 1, tag, &view) : bppsa_comm_recv(comm, 0, tag, &view));
  }
  const bppsa_status status = bppsa_comm_check_order(comm);
  CHECK(rank == 0 || (status == BPPSA_ERR_COMM && HAS("40 sent and 40 received, in orders that differ behind the first 31")));
  return BPPSA_OK;
}

static void tags_in_another_order(void **state) {
  (void)state;
  if (run(2, 60, true, swap_tags, NULL) != BPPSA_OK || run(2, 60, true, swap_late, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

static bppsa_status wait_in_vain(bppsa_comm *comm, const arrays *a) {
  const bppsa_view view = gpu_view(a->data[0], BPPSA_F64, 10);
  if (bppsa_comm_rank(comm) == 1) {
    return bppsa_comm_barrier(comm);
  }
  const bppsa_status status = bppsa_comm_recv(comm, 1, 6, &view);
  CHECK(status == BPPSA_ERR_COMM && HAS("rank 0 waited 0.2 s for rank 1: recv from rank 1, tag 6, 80 bytes, at test 1"));
  CHECK(bppsa_comm_recv(comm, 1, 6, &view) == BPPSA_ERR_COMM);
  CHECK(HAS("aborted after a failure"));
  return bppsa_fail(BPPSA_ERR_COMM, "rank 0 waited in vain");
}

static void deadline(void **state) {
  (void)state;
  bppsa_comm_outcome outcome;
  assert_int_equal(run(2, 0.2, true, wait_in_vain, &outcome), BPPSA_ERR_COMM);
  assert_int_equal(outcome.left_behind, 0);
}

static bppsa_status meet_error(bppsa_comm *comm, const arrays *a) {
  const int32_t rank = bppsa_comm_rank(comm);
  const bppsa_view view = gpu_view(a->data[0], BPPSA_F64, 10);
  BPPSA_TRY(bppsa_comm_barrier(comm));
  if (rank == 0) {
    nccl_stand_in_fail(0);
  }
  const bppsa_status status = bppsa_comm_recv(comm, (rank + 1) % 2, 6, &view);
  CHECK(status == BPPSA_ERR_COMM);
  CHECK(HAS("rank 0, recv from rank 1, tag 6, 80 bytes, at test 1: NCCL: ") && HAS(": remote process exited"));
  return status;
}

static void asynchronous_error(void **state) {
  (void)state;
  bppsa_comm_outcome outcome;
  const double begin = bppsa_now();
  const bppsa_status status = run(2, 60, true, meet_error, &outcome);
  assert_int_equal(status, BPPSA_ERR_COMM);
  assert_says("rank 0, recv from rank 1, tag 6");
  assert_int_equal(outcome.rank, 0);
  assert_true(bppsa_now() - begin < 20);
}

static bppsa_status die(bppsa_comm *comm, const arrays *a) {
  const bppsa_view view = gpu_view(a->data[0], BPPSA_F64, 10);
  if (bppsa_comm_rank(comm) == 1) {
    return bppsa_fail(BPPSA_ERR_CUDA, "a kernel failed");
  }
  const bppsa_status status = bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, &view);
  CHECK(status == BPPSA_ERR_COMM && HAS("rank 1: a kernel failed"));
  return status;
}

static void dead_rank(void **state) {
  (void)state;
  bppsa_comm_outcome outcome;
  const double begin = bppsa_now();
  assert_int_equal(run(3, 60, true, die, &outcome), BPPSA_ERR_CUDA);
  assert_string_equal(bppsa_last_error(), "rank 1: a kernel failed");
  assert_true(bppsa_now() - begin < 20);
}

static bppsa_status memory_two(bppsa_comm *comm, const arrays *a) {
  BPPSA_TRY(messages(comm, a));
  return broadcasts_and_parts(comm, a);
}

static void memory_runs_out(void **state) {
  (void)state;
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t call = 1;
  for (; status != BPPSA_OK && call < 2000; ++call) {
    bppsa_alloc_fail_once(call);
    status = run(2, 60, true, memory_two, NULL);
  }
  bppsa_alloc_fail_at(0);
  assert_in_range(call, 30, 1999);
}

static void reported(void **state) {
  (void)state;
  bppsa_comm_transport_report reports[BPPSA_COMM_TRANSPORT_COUNT];
  bppsa_comm_transports(reports);
  assert_true(reports[BPPSA_COMM_NCCL].built && reports[BPPSA_COMM_NCCL].found);
  assert_string_equal(reports[BPPSA_COMM_NCCL].detail, "NCCL 2.28.9");
}

int main(void) {
  for (int k = 0; k < MOST_RANKS; ++k) {
    char name[24];
    snprintf(name, sizeof name, "cuda:%d", k);
    if (bppsa_device_create(name, 1, &gpus[k]) != BPPSA_OK) {
      fprintf(stderr, "%s\n", bppsa_last_error());
      return 1;
    }
  }
  static int nccl;
  const struct CMUnitTest tests[] = {{"arrays of GPUs over threads", every_part, NULL, NULL, NULL},
                                     {"over nccl", every_part, NULL, NULL, &nccl},
                                     cmocka_unit_test(shared_gpu),
                                     cmocka_unit_test(tags_in_another_order),
                                     cmocka_unit_test(deadline),
                                     cmocka_unit_test(asynchronous_error),
                                     cmocka_unit_test(dead_rank),
                                     cmocka_unit_test(memory_runs_out),
                                     cmocka_unit_test(reported)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (int k = 0; k < MOST_RANKS; ++k) {
    bppsa_device_destroy(gpus[k]);
  }
  return failed;
}

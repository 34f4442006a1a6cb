#include "bench/harness/links.h"

#include <inttypes.h>
#include <math.h>

#include "comm/ordered.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/rounds.h"

/* ---- the fit ---- */

double bppsa_link_seconds(bppsa_oracle_operation operation, bppsa_link link, int64_t ranks, double bytes) {
  switch (operation) {
  case BPPSA_OPERATION_ALLREDUCE:
    return bppsa_allreduce_s(BPPSA_COLLECTIVE_RING, link, ranks, bytes);
  case BPPSA_OPERATION_ORDERED_SUM:
    return bppsa_allreduce_s(BPPSA_COLLECTIVE_ORDERED, link, ranks, bytes);
  case BPPSA_OPERATION_ALLGATHER:
    return bppsa_allgather_s(link, ranks, bytes);
  default:
    return bppsa_point_to_point_s(link, bytes);
  }
}

/* Every formula is alpha A + beta B. Minimises the sum of (alpha a + beta b - 1)^2 with a = A / measured and b = B / measured. */
void bppsa_link_solve(bppsa_link_fit *fit) {
  static const double free_bytes = 1e-15; /* beta of messages whose bytes cost nothing: 1e15 bytes/s */
  double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0, sum = 0;
  for (int64_t i = 0; i < fit->count; ++i) {
    const bppsa_link_point *point = &fit->points[i];
    const double a = bppsa_link_seconds(fit->operation, (bppsa_link){1, 0}, fit->ranks, point->bytes) / point->median_s;
    const double b = bppsa_link_seconds(fit->operation, (bppsa_link){0, 1}, fit->ranks, point->bytes) / point->median_s;
    aa += a * a;
    ab += a * b;
    bb += b * b;
    a1 += a;
    b1 += b;
  }
  const double determinant = aa * bb - ab * ab;
  fit->link = (bppsa_link){(a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant};
  if (fit->link.alpha_s < 0) {
    fit->link = (bppsa_link){0, b1 / bb};
  } else if (fit->link.beta_s < free_bytes) {
    fit->link = (bppsa_link){a1 / aa, free_bytes};
  }
  for (int64_t i = 0; i < fit->count; ++i) {
    bppsa_link_point *point = &fit->points[i];
    point->fitted_s = bppsa_link_seconds(fit->operation, fit->link, fit->ranks, point->bytes);
    sum += (point->fitted_s / point->median_s - 1) * (point->fitted_s / point->median_s - 1);
  }
  fit->residual = sqrt(sum / (double)fit->count);
}

/* ---- operations ---- */

typedef struct {
  bppsa_comm *comm;
  bppsa_oracle_operation operation;
  bppsa_view mine, all; /* all: of an allgather's result, or of a sum */
  bppsa_ordered_sum *sum;
} exchange;

/* Rank 0 sends to rank 1 and gets its numbers back. */
static bppsa_status message(exchange *e) {
  const int32_t rank = bppsa_comm_rank(e->comm);
  if (rank == 0) {
    BPPSA_TRY(bppsa_comm_send(e->comm, 1, 0, &e->mine));
    return bppsa_comm_recv(e->comm, 1, 0, &e->all);
  }
  BPPSA_TRY(rank == 1 ? bppsa_comm_recv(e->comm, 0, 0, &e->all) : BPPSA_OK);
  return rank == 1 ? bppsa_comm_send(e->comm, 0, 0, &e->all) : BPPSA_OK;
}

static bppsa_status once(exchange *e) {
  switch (e->operation) {
  case BPPSA_OPERATION_ALLREDUCE:
    return bppsa_comm_allreduce(e->comm, BPPSA_COMM_SUM, &e->all);
  case BPPSA_OPERATION_ORDERED_SUM:
    BPPSA_TRY(bppsa_ordered_sum_add(e->sum, bppsa_comm_rank(e->comm), &e->mine));
    return bppsa_ordered_sum_finish(e->sum, &e->all);
  case BPPSA_OPERATION_ALLGATHER:
    return bppsa_comm_allgather(e->comm, &e->mine, NULL, &e->all);
  default:
    return message(e);
  }
}

static void fill(const bppsa_view *view, double value) {
  for (int64_t i = 0; i < view->shape[0]; ++i) {
    bppsa_view_set(view, i, value);
  }
}

/* Runs it once on ones: a sum has the number of ranks everywhere, a copy has ones. Afterwards all numbers are 0, as sums leave
 * them. */
static bppsa_status verify(exchange *e) {
  const bool sums = e->operation == BPPSA_OPERATION_ALLREDUCE || e->operation == BPPSA_OPERATION_ORDERED_SUM;
  const double right = sums ? bppsa_comm_size(e->comm) : 1;
  const bool reads = e->operation != BPPSA_OPERATION_POINT_TO_POINT || bppsa_comm_rank(e->comm) < 2;
  fill(&e->mine, 1);
  fill(&e->all, e->operation == BPPSA_OPERATION_ALLREDUCE ? 1 : 0);
  BPPSA_TRY(once(e));
  for (int64_t i = 0; reads && i < e->all.shape[0]; ++i) {
    if (bppsa_view_get(&e->all, i) != right) {
      return bppsa_fail(BPPSA_ERR_NUMERIC, "%s of %d ranks: number %" PRId64 " is %g, expected %g",
                        bppsa_oracle_operation_name((int32_t)e->operation), bppsa_comm_size(e->comm), i,
                        bppsa_view_get(&e->all, i), right);
    }
  }
  fill(&e->mine, 0);
  fill(&e->all, 0);
  return BPPSA_OK;
}

enum { ROUNDS = 51, ROUNDS_QUICK = 7, FEW_BYTES = 1 << 18 /* sizes up to it have all rounds, others a fifth */ };

static bppsa_status time_rounds(exchange *e, int64_t rounds, double *median) {
  double seconds[ROUNDS];
  const double ways = e->operation == BPPSA_OPERATION_POINT_TO_POINT ? 2 : 1;
  BPPSA_TRY(verify(e));
  BPPSA_TRY(bppsa_comm_barrier(e->comm));
  for (int64_t i = 0; i < rounds; ++i) {
    const double start = bppsa_now();
    BPPSA_TRY(once(e));
    seconds[i] = (bppsa_now() - start) / ways;
  }
  *median = bppsa_timing_of(rounds, seconds).median_s;
  return BPPSA_OK;
}

static bppsa_status time_size(bppsa_comm *comm, bppsa_oracle_operation operation, int64_t bytes, bool quick, double *median) {
  const int64_t numbers = bytes / 4, ranks = bppsa_comm_size(comm), gathered = numbers * ranks;
  const int64_t all = operation == BPPSA_OPERATION_ALLGATHER ? gathered : numbers;
  const int64_t rounds = quick ? ROUNDS_QUICK : bytes <= FEW_BYTES ? ROUNDS : ROUNDS / 5;
  char *memory = bppsa_alloc((size_t)(numbers + all) * 4);
  if (memory == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  exchange e = {.comm = comm,
                .operation = operation,
                .mine = bppsa_view_make(memory, BPPSA_F32, 1, &numbers),
                .all = bppsa_view_make(memory + numbers * 4, BPPSA_F32, 1, &all)};
  bppsa_status status = operation == BPPSA_OPERATION_ORDERED_SUM
                            ? bppsa_ordered_sum_create(comm, ranks, NULL, BPPSA_F32, numbers, 1, &e.sum)
                            : BPPSA_OK;
  status = status == BPPSA_OK ? time_rounds(&e, rounds, median) : status;
  bppsa_ordered_sum_destroy(e.sum);
  bppsa_free(memory);
  return status;
}

bppsa_status bppsa_link_measure(bppsa_comm *comm, bppsa_oracle_operation operation, bool quick, bppsa_link_fit *fit) {
  static const int64_t sizes[BPPSA_LINK_SIZES] = {64, 1024, 16384, 131072, 1 << 20, 4 << 20};
  bppsa_link_fit made = {.operation = operation, .ranks = bppsa_comm_size(comm)};
  made.count = quick ? BPPSA_LINK_SIZES_QUICK : BPPSA_LINK_SIZES;
  if (made.ranks < 2) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: one rank, expected 2 or more", bppsa_oracle_operation_name((int32_t)operation));
  }
  for (int64_t i = 0; i < made.count; ++i) {
    double median = 0;
    BPPSA_TRY(time_size(comm, operation, sizes[i], quick, &median));
    made.points[i] = (bppsa_link_point){.bytes = (double)sizes[i], .median_s = median > 0 ? median : 1e-9};
  }
  bppsa_link_solve(&made);
  *fit = made;
  return BPPSA_OK;
}

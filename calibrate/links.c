#include "calibrate/links.h"

#include <inttypes.h>
#include <math.h>

#include "comm/ordered.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/compute/memory.h"
#include "core/compute/pool.h"
#include "core/measure/rounds.h"
#include "distributed/agree.h"
#include "distributed/pipeline/chain_costs.h"

/* ---- the fit ---- */

double bppsa_link_seconds(bppsa_oracle_operation operation, bppsa_link link, int64_t ranks, double bytes) {
  switch (operation) {
  case BPPSA_OPERATION_ALLREDUCE:
    return bppsa_allreduce_s(BPPSA_COLLECTIVE_RING, link, ranks, bytes);
  case BPPSA_OPERATION_ORDERED_SUM:
    return bppsa_allreduce_s(BPPSA_COLLECTIVE_ORDERED, link, ranks, bytes);
  case BPPSA_OPERATION_ALLGATHER:
    return bppsa_allgather_s(link, ranks, bytes);
  case BPPSA_OPERATION_REDUCE_SCATTER:
    return bppsa_reduce_scatter_s(link, ranks, bytes);
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
  fit->spread = (bppsa_oracle_spread){0};
  for (int64_t i = 0; i < fit->count; ++i) {
    bppsa_link_point *point = &fit->points[i];
    fit->spread.low += point->low_s / point->median_s / (double)fit->count;
    fit->spread.high += point->high_s / point->median_s / (double)fit->count;
    point->fitted_s = bppsa_link_seconds(fit->operation, fit->link, fit->ranks, point->bytes);
    sum += (point->fitted_s / point->median_s - 1) * (point->fitted_s / point->median_s - 1);
  }
  fit->residual = sqrt(sum / (double)fit->count);
}

/* ---- operations ---- */

typedef struct {
  bppsa_comm *comm;
  bppsa_oracle_operation operation;
  const bppsa_device *gpu; /* holds in and out; NULL: the host does */
  bppsa_view in, out;
  float *host; /* as many numbers as the larger of in and out */
  bppsa_ordered_sum *sum;
} exchange;

/* Rank 0 sends to rank 1, which sends the numbers back. */
static bppsa_status message(exchange *e) {
  const int32_t rank = bppsa_comm_rank(e->comm);
  if (rank == 0) {
    BPPSA_TRY(bppsa_comm_send(e->comm, 1, 0, &e->in));
    return bppsa_comm_recv(e->comm, 1, 0, &e->out);
  }
  BPPSA_TRY(rank == 1 ? bppsa_comm_recv(e->comm, 0, 0, &e->out) : BPPSA_OK);
  return rank == 1 ? bppsa_comm_send(e->comm, 0, 0, &e->out) : BPPSA_OK;
}

/* The same between two stages of a pipeline. */
static bppsa_status stage_message(exchange *e) {
  const int32_t rank = bppsa_comm_rank(e->comm);
  if (rank > 1) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_chain_pass_on(e->comm, rank == 0, rank == 0 ? &e->in : &e->out));
  return bppsa_chain_pass_on(e->comm, rank == 1, &e->out);
}

static bppsa_status allreduce(exchange *e) {
  return bppsa_comm_allreduce(e->comm, BPPSA_COMM_SUM, &e->out);
}

static bppsa_status ordered_sum(exchange *e) {
  BPPSA_TRY(bppsa_ordered_sum_add(e->sum, bppsa_comm_rank(e->comm), &e->in));
  return bppsa_ordered_sum_finish(e->sum, &e->out);
}

static bppsa_status allgather(exchange *e) {
  return bppsa_comm_allgather(e->comm, &e->in, NULL, &e->out);
}

static bppsa_status reduce_scatter(exchange *e) {
  return bppsa_comm_reduce_scatter(e->comm, BPPSA_COMM_SUM, &e->in, &e->out);
}

static const struct {
  bppsa_status (*once)(exchange *);
  bool message, sums, gathers, scatters; /* message: two ranks send there and back; sums: adds up the ranks' numbers */
} operations[BPPSA_OPERATIONS] = {[BPPSA_OPERATION_POINT_TO_POINT] = {message, .message = true},
                                  [BPPSA_OPERATION_ALLREDUCE] = {allreduce, .sums = true},
                                  [BPPSA_OPERATION_ORDERED_SUM] = {ordered_sum, .sums = true},
                                  [BPPSA_OPERATION_ALLGATHER] = {allgather, .gathers = true},
                                  [BPPSA_OPERATION_REDUCE_SCATTER] = {reduce_scatter, .sums = true, .scatters = true},
                                  [BPPSA_OPERATION_STAGE_MESSAGE] = {stage_message, .message = true}};

static bppsa_status fill(exchange *e, const bppsa_view *view, float value) {
  for (int64_t i = 0; i < view->shape[0]; ++i) {
    e->host[i] = value;
  }
  return bppsa_memory_put(e->gpu, view->data, e->host, (int64_t)bppsa_view_bytes(view));
}

/* Runs the operation once on ones: a sum must give the number of ranks everywhere, a copy ones. Afterwards all numbers are 0, and
 * sums leave them 0. */
static bppsa_status verify(exchange *e) {
  const float right = operations[e->operation].sums ? (float)bppsa_comm_size(e->comm) : 1;
  const bool reads = !operations[e->operation].message || bppsa_comm_rank(e->comm) < 2;
  BPPSA_TRY(fill(e, &e->in, 1));
  BPPSA_TRY(fill(e, &e->out, e->operation == BPPSA_OPERATION_ALLREDUCE ? 1 : 0));
  BPPSA_TRY(operations[e->operation].once(e));
  BPPSA_TRY(bppsa_memory_get(e->gpu, e->host, e->out.data, (int64_t)bppsa_view_bytes(&e->out)));
  for (int64_t i = 0; reads && i < e->out.shape[0]; ++i) {
    if (e->host[i] != right) {
      return bppsa_fail(BPPSA_ERR_NUMERIC, "%s of %d ranks: number %" PRId64 " is %g, expected %g",
                        bppsa_oracle_operation_name((int32_t)e->operation), bppsa_comm_size(e->comm), i, (double)e->host[i],
                        (double)right);
    }
  }
  BPPSA_TRY(fill(e, &e->in, 0));
  return fill(e, &e->out, 0);
}

enum { ROUNDS = 51, ROUNDS_QUICK = 7, FEW_BYTES = 1 << 18 /* larger sizes have a fifth of the rounds, at least 3 */ };

/* Before every round the ranks compute for this long, and one of them, in turn, for twice as long: in training too, ranks wait for
 * the last one, fall asleep meanwhile, and have to be woken. */
static const double computing_s = 1e-4;

static void compute_for(double seconds) {
  const double start = bppsa_now();
  while (bppsa_now() - start < seconds) {
  }
}

/* The times when this rank came to each round and left it. */
typedef struct {
  double came[ROUNDS], left[ROUNDS];
} round_times;

/* Replaces the times of each round by the latest ones of all ranks, if all ranks have one clock. */
static bppsa_status share_times(const exchange *e, int64_t rounds, round_times *times) {
  if (bppsa_comm_node_size(e->comm) < bppsa_comm_size(e->comm)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_ranks_reduce(e->comm, BPPSA_COMM_MAX, BPPSA_F64, rounds, times->came));
  return bppsa_ranks_reduce(e->comm, BPPSA_COMM_MAX, BPPSA_F64, rounds, times->left);
}

static bppsa_status time_rounds(exchange *e, int64_t rounds, bool mean, bppsa_link_point *point) {
  const bool message = operations[e->operation].message;
  const int32_t rank = bppsa_comm_rank(e->comm), ranks = message ? 2 : bppsa_comm_size(e->comm);
  const double gap =
      ranks <= bppsa_pool_cpus() ? computing_s : 0; /* ranks that share a processor would keep it from the others */
  round_times times = {.came = {0}};
  double seconds[ROUNDS], sum = 0;
  BPPSA_TRY(bppsa_comm_barrier(e->comm));
  for (int64_t i = 0; i < rounds && rank < ranks; ++i) {
    compute_for(i % ranks == rank ? 2 * gap : gap);
    times.came[i] = bppsa_now();
    BPPSA_TRY(operations[e->operation].once(e));
    times.left[i] = bppsa_now();
  }
  BPPSA_TRY(share_times(e, rounds, &times));
  for (int64_t i = 0; i < rounds; ++i) {
    seconds[i] = fmax(0, times.left[i] - times.came[i]) / (message ? 2 : 1);
    sum += seconds[i];
  }
  const bppsa_spread spread = bppsa_spread_of(rounds, seconds);
  const double average = mean ? sum / (double)rounds : spread.median;
  point->median_s = fmax(average, 1e-9);
  point->low_s = fmin(spread.low, point->median_s);
  point->high_s = fmax(spread.high, point->median_s);
  return BPPSA_OK;
}

static bppsa_status make_view(exchange *e, int64_t numbers, bppsa_view *view) {
  void *data = NULL;
  BPPSA_TRY(bppsa_memory_alloc(e->gpu, numbers * (int64_t)sizeof(float), &data));
  *view = bppsa_view_make(data, BPPSA_F32, 1, &numbers);
  view->device = e->gpu != NULL ? BPPSA_CUDA : BPPSA_CPU;
  return BPPSA_OK;
}

/* Zeroed ones are legal. */
static void free_views(exchange *e) {
  bppsa_ordered_sum_destroy(e->sum);
  bppsa_memory_free(e->gpu, e->in.data);
  bppsa_memory_free(e->gpu, e->out.data);
  bppsa_free(e->host);
}

/* in and out have `numbers` numbers, but a gather makes as many for each rank, and a scatter takes them. */
static bppsa_status make_views(exchange *e, int64_t numbers) {
  const int64_t ranks = bppsa_comm_size(e->comm), part = operations[e->operation].scatters ? (numbers - 1) / ranks + 1 : numbers;
  const int64_t in = operations[e->operation].scatters ? part * ranks : part;
  const int64_t out = operations[e->operation].gathers ? part * ranks : part;
  BPPSA_TRY(make_view(e, in, &e->in));
  BPPSA_TRY(make_view(e, out, &e->out));
  e->host = bppsa_calloc(in > out ? in : out, sizeof *e->host);
  if (e->host == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  return e->operation == BPPSA_OPERATION_ORDERED_SUM
             ? bppsa_ordered_sum_create(e->comm, ranks, NULL, BPPSA_F32, numbers, 1, &e->sum)
             : BPPSA_OK;
}

/* ---- measuring ---- */

struct bppsa_link_probe {
  int64_t rounds;
  bool mean;
  bppsa_link_fit fit;
  exchange sizes[BPPSA_LINK_SIZES];
};

bppsa_status bppsa_link_probe_create(bppsa_comm *comm, bppsa_oracle_operation operation, int64_t sizes, const double *bytes,
                                     int64_t rounds, bool mean, bppsa_link_probe **probe) {
  BPPSA_REQUIRE(comm != NULL && sizes >= 1 && sizes <= BPPSA_LINK_SIZES && rounds >= 1 && rounds <= ROUNDS && probe != NULL);
  const bool nccl = bppsa_comm_get_transport(comm) == BPPSA_COMM_NCCL;
  bppsa_status status = BPPSA_OK;
  if (bppsa_comm_size(comm) < 2) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: one rank, expected 2 or more", bppsa_oracle_operation_name((int32_t)operation));
  }
  bppsa_link_probe *p = bppsa_calloc(1, sizeof *p);
  if (p == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  p->rounds = rounds;
  p->mean = mean;
  p->fit = (bppsa_link_fit){.operation = operation, .ranks = bppsa_comm_size(comm), .count = sizes};
  for (int64_t i = 0; status == BPPSA_OK && i < sizes; ++i) {
    const int64_t numbers = bytes[i] > 4 ? (int64_t)bytes[i] / 4 : 1;
    p->fit.points[i].bytes = 4 * (double)numbers;
    p->sizes[i] = (exchange){.comm = comm, .operation = operation, .gpu = nccl ? bppsa_comm_get_device(comm) : NULL};
    status = make_views(&p->sizes[i], numbers);
    status = status == BPPSA_OK ? verify(&p->sizes[i]) : status;
  }
  if (status != BPPSA_OK) {
    bppsa_link_probe_destroy(p);
    return status;
  }
  *probe = p;
  return BPPSA_OK;
}

void bppsa_link_probe_destroy(bppsa_link_probe *p) {
  for (int64_t i = 0; p != NULL && i < p->fit.count; ++i) {
    free_views(&p->sizes[i]);
  }
  bppsa_free(p);
}

/* The times of all sizes, without the fit. */
static bppsa_status time_sizes(bppsa_link_probe *p) {
  const int64_t few = p->rounds / 5 > 3 ? p->rounds / 5 : 3;
  for (int64_t i = 0; i < p->fit.count; ++i) {
    bppsa_link_point *point = &p->fit.points[i];
    BPPSA_TRY(time_rounds(&p->sizes[i], point->bytes <= FEW_BYTES ? p->rounds : few, p->mean, point));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_link_probe_measure(bppsa_link_probe *p, bppsa_link_fit *fit) {
  BPPSA_REQUIRE(p != NULL && p->fit.count >= 2 && fit != NULL);
  BPPSA_TRY(time_sizes(p));
  bppsa_link_solve(&p->fit);
  *fit = p->fit;
  return BPPSA_OK;
}

bppsa_status bppsa_link_measure(bppsa_comm *comm, bppsa_oracle_operation operation, bool quick, bppsa_link_fit *fit) {
  static const double sizes[BPPSA_LINK_SIZES] = {64, 1024, 16384, 131072, 1 << 20, 4 << 20, 32 << 20},
                      quick_sizes[BPPSA_LINK_SIZES_QUICK] = {64, 16384, 262144, 4 << 20};
  bppsa_link_fit made = {.operation = operation, .ranks = bppsa_comm_size(comm)};
  made.count = quick ? BPPSA_LINK_SIZES_QUICK : BPPSA_LINK_SIZES;
  for (int64_t i = 0; i < made.count; ++i) { /* a size at a time has memory */
    bppsa_link_probe *probe = NULL;
    BPPSA_TRY(bppsa_link_probe_create(comm, operation, 1, quick ? &quick_sizes[i] : &sizes[i], quick ? ROUNDS_QUICK : ROUNDS,
                                      false, &probe));
    const bppsa_status status = time_sizes(probe);
    made.points[i] = probe->fit.points[0];
    bppsa_link_probe_destroy(probe);
    BPPSA_TRY(status);
  }
  bppsa_link_solve(&made);
  *fit = made;
  return BPPSA_OK;
}

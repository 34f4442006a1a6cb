/* A chain cut over the ranks of a communicator: what a rank does, and the formulas of docs/ranks.md. For threads (test_scan.c)
 * and for MPI (mpi_scan.c): a check that fails is an error of the rank. */
#ifndef BPPSA_TESTS_DISTRIBUTED_SCAN_RANKS_H
#define BPPSA_TESTS_DISTRIBUTED_SCAN_RANKS_H

#include "distributed/scan.h"
#include "distributed/scan_rounds.h"
#include "tests/comm/cases.h"
#include "tests/scan/scan_problem.h"

enum { METHODS = 3, TAG = 5 };

static const bppsa_scan_algorithm methods[METHODS] = {BPPSA_SCAN_LINEAR, BPPSA_SCAN_CHUNKED, BPPSA_SCAN_BLELLOCH};

static inline bppsa_scan_config base_config(bppsa_element element, int64_t dim, int64_t batch) {
  bppsa_scan_config c = bppsa_scan_config_default();
  c.element = element;
  c.dtype = BPPSA_F64;
  c.dim = dim;
  c.batch = batch;
  return c;
}

/* What all ranks of a run share. */
typedef struct {
  const problem *p;
  const bppsa_device *device;
  bppsa_scan_algorithm algorithm;
  bool alias;     /* injections lie in the gradients' memory */
  bool count;     /* compare messages and bytes: sizes are uniform and no product is useless */
  double *got;    /* laid out like p->g */
  int64_t redone; /* of all ranks */
} job;

static int64_t log2_up(int64_t n) {
  int64_t levels = 0;
  while (((int64_t)1 << levels) < n) {
    ++levels;
  }
  return levels;
}

/* The formulas of docs/ranks.md, summed over the ranks. */
static void expected_traffic(const job *j, int64_t ranks, int64_t *messages, int64_t *bytes) {
  const bppsa_scan_config *c = &j->p->config;
  const int64_t q = ranks < c->jacobians ? ranks : c->jacobians, r = (int64_t)bppsa_dtype_size(c->dtype);
  const int64_t vector = c->batch * c->dim * r, rows = c->dim + c->affine;
  const int64_t product =
      c->element == BPPSA_ELEMENT_DIAGONAL ? c->batch * (1 + c->affine) * c->dim * (r + 4) : c->batch * rows * (c->dim * r + 4);
  const int64_t levels = log2_up(q), inner = q - 1 - levels;
  const bool tree = j->algorithm == BPPSA_SCAN_BLELLOCH;
  *messages = tree ? 2 * (q - 1) - levels : q - 1;
  *bytes = tree ? levels * vector + inner * (product + vector + r) : (q - 1) * vector;
}

/* This rank's messages, those of the list (distributed/scan_rounds.h): how many, and how many bytes. */
static bppsa_status compare_messages(const job *j, const bppsa_comm *comm, const bppsa_comm_counters *counters) {
  const bppsa_scan_config *c = &j->p->config;
  const int64_t r = (int64_t)bppsa_dtype_size(c->dtype), vector = c->batch * c->dim * r, rows = c->dim + c->affine;
  const int64_t product =
      c->element == BPPSA_ELEMENT_DIAGONAL ? c->batch * (1 + c->affine) * c->dim * (r + 4) : c->batch * rows * (c->dim * r + 4);
  const int32_t ranks = bppsa_comm_size(comm) < c->jacobians ? bppsa_comm_size(comm) : (int32_t)c->jacobians;
  int64_t count = 0, sent = 0, received = 0, bytes = 0;
  bppsa_scan_message *messages = bppsa_calloc(2 * ranks, sizeof *messages);
  CHECK(messages != NULL);
  const bppsa_status status = bppsa_ranks_scan_messages(j->algorithm, ranks, messages, &count);
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_scan_message *m = &messages[i];
    const bool numbered = j->algorithm == BPPSA_SCAN_BLELLOCH && m->from > m->to; /* on the way down with one number more */
    const bool mine = m->from == bppsa_comm_rank(comm);
    sent += mine;
    bytes += !mine ? 0 : m->count > 0 ? product : vector + (numbered ? r : 0);
    received += m->to == bppsa_comm_rank(comm);
  }
  bppsa_free(messages);
  BPPSA_TRY(status);
  CHECK(counters->messages_sent == sent && counters->messages_received == received && counters->bytes_sent == bytes);
  return BPPSA_OK;
}

static bppsa_status compare_traffic(const job *j, bppsa_comm *comm) {
  bppsa_comm_counters counters;
  bppsa_comm_get_counters(comm, &counters);
  int64_t sums[4] = {counters.messages_sent, counters.bytes_sent, counters.messages_received, counters.bytes_received};
  const int64_t four = 4;
  const bppsa_view view = bppsa_view_make(sums, BPPSA_I64, 1, &four);
  BPPSA_TRY(bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, &view));
  int64_t messages, bytes;
  expected_traffic(j, bppsa_comm_size(comm), &messages, &bytes);
  CHECK(counters.collectives == 0);
  CHECK(sums[0] == messages && sums[2] == messages);
  CHECK(sums[1] == bytes && sums[3] == bytes);
  return compare_messages(j, comm, &counters);
}

static const void *moved(const void *base, int64_t elements, bppsa_dtype dtype) {
  return base == NULL ? NULL : (const char *)base + elements * (int64_t)bppsa_dtype_size(dtype);
}

/* This rank's part of a problem. */
static bppsa_status run_rank(bppsa_comm *comm, void *context) {
  job *j = context;
  const problem *p = j->p;
  bppsa_scan_config c = p->config;
  int64_t first, count;
  bppsa_ranks_share(c.jacobians, bppsa_comm_size(comm), bppsa_comm_rank(comm), &first, &count);
  const int64_t begin = g_at(p, first), seed = g_at(p, first + count) - begin, size = g_at(p, first + count + 1) - begin;
  c.jacobians = count;
  c.dims = c.dims == NULL ? NULL : p->dims + first;
  c.method = bppsa_scan_method_of(j->algorithm);
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  double *g = bppsa_calloc(size, sizeof *g);
  bppsa_status status = g == NULL ? BPPSA_ERR_MEMORY : bppsa_scan_plan_create(&c, &plan);
  status = status == BPPSA_OK ? bppsa_ranks_scan_create(comm, TAG, plan, j->device, &executor) : status;
  const void *columns[3] = {NULL};
  const int64_t factors = first * c.batch * c.dim;
  for (int k = 0; k < 3; ++k) {
    columns[k] = moved(p->columns[k], factors, c.dtype);
  }
  const bppsa_scan_operands o = {
      .batch = c.batch,
      .jt = moved(p->typed_jt, c.element == BPPSA_ELEMENT_DENSE ? jt_at(p, first + 1) : factors, c.dtype),
      .weights = (const void *const *)p->weights,
      .columns = columns,
      .diagonal = moved(p->typed_e, factors, c.dtype),
      .injected = !c.affine  ? NULL
                  : j->alias ? g
                             : moved(p->typed_u, begin, c.dtype),
      .gradients = g};
  for (int repeat = 0; status == BPPSA_OK && repeat < 2; ++repeat) {
    for (int64_t i = 0; i < size; ++i) {
      g[i] = j->alias ? ((const double *)p->typed_u)[begin + i] : NAN;
    }
    if (bppsa_comm_rank(comm) == 0) {
      memcpy(g + seed, (const double *)p->seed + begin + seed, (size_t)(size - seed) * sizeof *g);
    }
    bppsa_comm_reset_counters(comm);
    status = executor->execute(executor, &o);
    status = status == BPPSA_OK && j->count ? compare_traffic(j, comm) : status;
  }
  if (status == BPPSA_OK && count > 0) { /* g_1 .. g_n of this rank, and the chain's g_0 */
    const int64_t from = first == 0 && c.input ? 0 : g_at(p, first + 1) - begin;
    memcpy(j->got + begin + from, g + from, (size_t)(size - from) * sizeof *g);
  }
  int64_t redone = status == BPPSA_OK ? executor->redone : 0;
  const bppsa_view view = bppsa_view_make(&redone, BPPSA_I64, 0, NULL);
  status = status == BPPSA_OK ? bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, &view) : status;
  if (bppsa_comm_rank(comm) == 0) {
    j->redone = redone;
  }
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_free(g);
  return status;
}

#endif

/* A chain cut over the ranks of a communicator: what a rank does, and the formulas of docs/time-ranks.md. For threads
 * (test_scan_ranks.c), for MPI (mpi_scan.c) and for GPUs (test_scan_device.c): a check that fails is an error of the rank. */
#ifndef BPPSA_TESTS_DISTRIBUTED_SCAN_RANKS_H
#define BPPSA_TESTS_DISTRIBUTED_SCAN_RANKS_H

#include <stdio.h>

#include "distributed/time/scan_messages.h"
#include "distributed/time/scan_ranks.h"
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
  const bppsa_device *device; /* of all ranks; NULL: rank r computes on GPU r % gpus */
  int32_t gpus;
  bool nccl;
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

/* The formulas of docs/time-ranks.md, summed over the ranks. */
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

/* This rank's messages, those of the list (distributed/time/scan_messages.h): how many, and how many bytes. */
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

/* What a rank holds. */
typedef struct {
  const bppsa_device *device;
  bppsa_device *own; /* NULL: the device of all */
  bppsa_comm *comm;  /* of its arrays */
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
  int64_t begin, seed,
      size;         /* its gradients: where they begin in the problem's, where g_n begins among them, how many there are */
  double *g;        /* its gradients in host memory */
  void *gradients;  /* where the device has them; g on a processor */
  void *copies[12]; /* in GPU memory */
  int copy_count;
  const void *columns[MOST_COLUMNS], *weights[MOST_MATRICES];
  bppsa_scan_operands operands;
} scan_part;

/* `count` elements of an array from the given one on, where the device reads them: on a processor in the array itself. */
static bppsa_status place(scan_part *s, const void *base, int64_t from, int64_t count, const void **placed) {
  const int64_t size = (int64_t)bppsa_dtype_size(bppsa_scan_plan_config(s->plan)->dtype);
  const void *at = base == NULL ? NULL : (const char *)base + from * size;
  *placed = at;
  if (at == NULL || bppsa_device_get_kind(s->device) == BPPSA_CPU) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_memory_alloc(s->device, count * size, &s->copies[s->copy_count]));
  *placed = s->copies[s->copy_count++];
  return bppsa_memory_put(s->device, s->copies[s->copy_count - 1], at, count * size);
}

static bppsa_status place_operands(scan_part *s, const job *j, int64_t first) {
  const problem *p = j->p;
  const bppsa_scan_config *c = bppsa_scan_plan_config(s->plan);
  const int64_t size = factor_size(c), factor = c->batch * size, factors = c->jacobians * factor;
  const bool dense = c->element == BPPSA_ELEMENT_DENSE;
  const int64_t from = dense ? jt_at(p, first + 1) : first * factor;
  bppsa_scan_operands *o = &s->operands;
  const void *gradients;
  *o = (bppsa_scan_operands){.batch = c->batch, .weights = s->weights, .columns = s->columns};
  BPPSA_TRY(place(s, p->typed_jt, from, dense ? jt_at(p, first + c->jacobians + 1) - from : factors, &o->jt));
  for (int k = 0; k < MOST_COLUMNS; ++k) {
    BPPSA_TRY(place(s, p->columns[k], first * factor, factors, &s->columns[k]));
    BPPSA_TRY(k < MOST_MATRICES ? place(s, p->weights[k], 0, size * size, &s->weights[k]) : BPPSA_OK);
  }
  BPPSA_TRY(place(s, p->typed_e, first * factor, factors, &o->diagonal));
  BPPSA_TRY(place(s, s->g, 0, s->size, &gradients));
  s->gradients = o->gradients = (void *)(uintptr_t)gradients;
  o->injected = c->affine ? gradients : NULL;
  return c->affine && !j->alias ? place(s, p->typed_u, s->begin, s->size, &o->injected) : BPPSA_OK;
}

static bppsa_status prepare_part(bppsa_comm *comm, const job *j, scan_part *s) {
  const problem *p = j->p;
  bppsa_scan_config c = p->config;
  int64_t first, count;
  char name[24];
  bppsa_ranks_share(c.jacobians, bppsa_comm_size(comm), bppsa_comm_rank(comm), &first, &count);
  s->device = j->device;
  s->comm = comm;
  if (j->device == NULL) {
    snprintf(name, sizeof name, "cuda:%d", (int)bppsa_comm_rank(comm) % (int)j->gpus);
    BPPSA_TRY(bppsa_device_create(name, 1, &s->own));
    s->device = s->own;
    bppsa_comm_set_device(comm, s->own);
  }
  BPPSA_TRY(j->nccl ? bppsa_comm_create_nccl(comm, s->own, &s->comm) : BPPSA_OK);
  s->begin = g_at(p, first);
  s->seed = g_at(p, first + count) - s->begin;
  s->size = g_at(p, first + count + 1) - s->begin;
  c.jacobians = count;
  c.dims = c.dims == NULL ? NULL : p->dims + first;
  c.method = bppsa_scan_method_of(j->algorithm);
  s->g = bppsa_calloc(s->size, sizeof *s->g);
  BPPSA_TRY(s->g == NULL ? BPPSA_ERR_MEMORY : bppsa_scan_plan_create(&c, &s->plan));
  BPPSA_TRY(place_operands(s, j, first));
  return bppsa_ranks_scan_create(s->comm, TAG, s->plan, s->device, &s->executor);
}

static void free_part(bppsa_comm *comm, scan_part *s) {
  bppsa_scan_executor_destroy(s->executor);
  bppsa_scan_plan_destroy(s->plan);
  for (int i = 0; i < s->copy_count; ++i) {
    bppsa_memory_free(s->device, s->copies[i]);
  }
  if (s->comm != comm) {
    bppsa_comm_destroy(s->comm);
  }
  if (s->own != NULL) {
    bppsa_comm_set_device(comm, NULL);
    bppsa_device_destroy(s->own);
  }
  bppsa_free(s->g);
}

static bppsa_status run_part(const job *j, scan_part *s) {
  const problem *p = j->p;
  const int64_t bytes = s->size * (int64_t)sizeof *s->g;
  for (int64_t i = 0; i < s->size; ++i) {
    s->g[i] = j->alias ? ((const double *)p->typed_u)[s->begin + i] : NAN;
  }
  if (bppsa_comm_rank(s->comm) == 0) {
    memcpy(s->g + s->seed, (const double *)p->seed + s->begin + s->seed, (size_t)(s->size - s->seed) * sizeof *s->g);
  }
  if (s->gradients != s->g) {
    BPPSA_TRY(bppsa_memory_put(s->device, s->gradients, s->g, bytes));
  }
  bppsa_comm_reset_counters(s->comm);
  BPPSA_TRY(s->executor->execute(s->executor, &s->operands));
  BPPSA_TRY(j->count ? compare_traffic(j, s->comm) : BPPSA_OK);
  return s->gradients != s->g ? bppsa_memory_get(s->device, s->g, s->gradients, bytes) : BPPSA_OK;
}

/* This rank's part of a problem, twice. */
static bppsa_status run_rank(bppsa_comm *comm, void *context) {
  job *j = context;
  const problem *p = j->p;
  int64_t first, count;
  bppsa_ranks_share(p->config.jacobians, bppsa_comm_size(comm), bppsa_comm_rank(comm), &first, &count);
  scan_part s = {0};
  bppsa_status status = prepare_part(comm, j, &s);
  for (int repeat = 0; status == BPPSA_OK && repeat < 2; ++repeat) {
    status = run_part(j, &s);
  }
  if (status == BPPSA_OK && count > 0) { /* g_1 .. g_n of this rank, and the chain's g_0 */
    const int64_t from = first == 0 && p->config.input ? 0 : g_at(p, first + 1) - s.begin;
    memcpy(j->got + s.begin + from, s.g + from, (size_t)(s.size - from) * sizeof *s.g);
  }
  status = status == BPPSA_OK ? bppsa_scan_executor_count(s.executor) : status;
  int64_t redone = status == BPPSA_OK ? s.executor->redone : 0;
  const bppsa_view view = bppsa_view_make(&redone, BPPSA_I64, 0, NULL);
  status = status == BPPSA_OK ? bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, &view) : status;
  if (bppsa_comm_rank(comm) == 0) {
    j->redone = redone;
  }
  free_part(comm, &s);
  return status;
}

#endif

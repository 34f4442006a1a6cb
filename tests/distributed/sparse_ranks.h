/* A chain of sparse Jacobians cut over ranks. A check that fails is an error of the rank. */
#ifndef BPPSA_TESTS_DISTRIBUTED_SPARSE_RANKS_H
#define BPPSA_TESTS_DISTRIBUTED_SPARSE_RANKS_H

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "distributed/time/scan_messages.h"
#include "distributed/time/scan_ranks.h"
#include "tests/comm/cases.h"

typedef struct {
  bppsa_scan_config config; /* of the whole chain; its method is the one on ranks */
  int64_t batch;            /* of the execution */
  const bppsa_csr_values *values;
  char *gradients; /* g_0 .. g_n: the seed is read, the others are written */
  int32_t gpus;    /* rank r computes on GPU r % gpus; 0: on processors */
  bool nccl;       /* NCCL carries what is in the GPUs' memory */
} sparse_job;

/* Bytes of g_0 .. g_{t-1}. */
static inline int64_t sparse_offset(const sparse_job *j, int64_t t) {
  int64_t reals = 0;
  for (int64_t s = 0; s < t; ++s) {
    reals += s == 0 ? j->config.patterns[0]->rows : j->config.patterns[s - 1]->cols;
  }
  return reals * j->batch * (int64_t)bppsa_dtype_size(j->config.dtype);
}

/* Entries of the pattern of J_aᵀ .. J_bᵀ, by boolean products. -1: out of memory. */
static inline int64_t product_entries(const sparse_job *j, int64_t a, int64_t b) {
  const bppsa_csr *const *p = j->config.patterns;
  const int64_t rows = p[a - 1]->rows;
  int64_t widest = rows, entries = 0;
  for (int64_t t = a; t <= b; ++t) {
    widest = p[t - 1]->cols > widest ? p[t - 1]->cols : widest;
  }
  bool *row = bppsa_calloc(2 * widest, sizeof *row);
  for (int64_t r = 0; row != NULL && r < rows; ++r) {
    bool *now = row, *next = row + widest;
    memset(row, 0, 2 * (size_t)widest * sizeof *row);
    now[r] = true;
    for (int64_t t = a; t <= b; ++t) {
      memset(next, 0, (size_t)widest * sizeof *next);
      for (int64_t i = 0; i < p[t - 1]->rows; ++i) {
        for (int64_t e = p[t - 1]->row_ptr[i]; now[i] && e < p[t - 1]->row_ptr[i + 1]; ++e) {
          next[p[t - 1]->col[e]] = true;
        }
      }
      bool *const other = now;
      now = next;
      next = other;
    }
    for (int64_t i = 0; i < p[b - 1]->cols; ++i) {
      entries += now[i] ? 1 : 0;
    }
  }
  const bool done = row != NULL;
  bppsa_free(row);
  return done ? entries : -1;
}

/* The messages and bytes of all ranks together, as docs/time-ranks.md has them: a vector, a vector and a number on the way down,
 * the entries of a product. */
static inline bppsa_status expected_messages(const sparse_job *j, int32_t ranks, int64_t expected[2]) {
  enum { MOST = 64 };
  const int64_t real = (int64_t)bppsa_dtype_size(j->config.dtype), n = j->config.jacobians;
  bppsa_scan_message messages[2 * MOST];
  expected[1] = 0;
  BPPSA_TRY(bppsa_ranks_scan_messages(j->config.method.algorithm, ranks, messages, &expected[0]));
  for (int64_t i = 0; i < expected[0]; ++i) {
    const bppsa_scan_message *m = &messages[i];
    int64_t begin, steps, last, count;
    bppsa_ranks_share(n, ranks, m->first, &begin, &steps);
    bppsa_ranks_share(n, ranks, m->count > 0 ? m->first + m->count - 1 : m->first, &last, &count);
    const int64_t t = begin + steps; /* the gradient in front of the rank is g_t */
    const int64_t reals = m->count > 0 ? product_entries(j, last + 1, t) * j->batch
                                       : (sparse_offset(j, t + 1) - sparse_offset(j, t)) / real + (m->to < m->from ? 1 : 0);
    if (reals < 0) {
      return BPPSA_ERR_MEMORY;
    }
    expected[1] += reals * real;
  }
  return BPPSA_OK;
}

static inline bppsa_status compare_sparse_messages(bppsa_comm *comm, const sparse_job *j) {
  const int64_t size = bppsa_comm_size(comm), q = size < j->config.jacobians ? size : j->config.jacobians, four = 4;
  bppsa_comm_counters counters;
  bppsa_comm_get_counters(comm, &counters);
  int64_t sums[] = {counters.messages_sent, counters.messages_received, counters.bytes_sent, counters.bytes_received},
          expected[2];
  const bppsa_view view = bppsa_view_make(sums, BPPSA_I64, 1, &four);
  BPPSA_TRY(bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, &view));
  if (bppsa_comm_rank(comm) > 0) {
    return BPPSA_OK;
  }
  BPPSA_TRY(expected_messages(j, (int32_t)q, expected));
  CHECK(sums[0] == expected[0] && sums[1] == expected[0]);
  CHECK(sums[2] == expected[1] && sums[3] == expected[1]);
  return BPPSA_OK;
}

/* What a rank holds. */
typedef struct {
  bppsa_device *device;
  bppsa_comm *comm; /* the ranks' own, or NCCL's */
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
  int64_t first, count, begin, seed,
      size; /* its steps; bytes of gradients: in front of its own, of those in front of g_n, its own */
  char *g;
  void *gradients; /* where the device has them; g on a processor */
  bppsa_csr_values *values;
} sparse_part;

/* The values of this rank's elements where its device reads them. */
static inline bppsa_status place_values(const sparse_job *j, sparse_part *s) {
  const int64_t size = (int64_t)bppsa_dtype_size(j->config.dtype);
  s->values = bppsa_calloc(s->count + 1, sizeof *s->values);
  if (s->values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t t = 0; t < s->count; ++t) {
    const bppsa_csr_values *from = &j->values[s->first + t];
    const int64_t bytes = j->config.patterns[s->first + t]->nnz * (from->stride == 0 ? 1 : j->batch) * size;
    if (j->gpus == 0 || from->data == NULL) {
      s->values[t] = *from;
      continue;
    }
    void *copy = NULL;
    BPPSA_TRY(bppsa_memory_alloc(s->device, bytes, &copy));
    s->values[t] = (bppsa_csr_values){copy, from->stride};
    BPPSA_TRY(bppsa_memory_put(s->device, copy, from->data, bytes));
  }
  return BPPSA_OK;
}

static inline bppsa_status prepare_sparse(bppsa_comm *comm, const sparse_job *j, sparse_part *s) {
  bppsa_scan_config c = j->config;
  char name[24] = "cpu";
  bppsa_ranks_share(c.jacobians, bppsa_comm_size(comm), bppsa_comm_rank(comm), &s->first, &s->count);
  s->begin = sparse_offset(j, s->first);
  s->seed = sparse_offset(j, s->first + s->count) - s->begin;
  s->size = sparse_offset(j, s->first + s->count + 1) - s->begin;
  c.jacobians = s->count;
  c.patterns += s->first;
  c.dim = 1;
  c.memory_limit = 0;
  if (j->gpus > 0) {
    snprintf(name, sizeof name, "cuda:%d", (int)bppsa_comm_rank(comm) % (int)j->gpus);
  }
  s->gradients = s->g = bppsa_calloc(s->size, 1);
  BPPSA_TRY(s->g == NULL ? BPPSA_ERR_MEMORY : bppsa_device_create(name, 1, &s->device));
  if (j->gpus > 0) {
    bppsa_comm_set_device(comm, s->device);
    s->gradients = NULL;
    BPPSA_TRY(bppsa_memory_alloc(s->device, s->size, &s->gradients));
  }
  s->comm = comm;
  BPPSA_TRY(j->nccl ? bppsa_comm_create_nccl(comm, s->device, &s->comm) : BPPSA_OK);
  c.planner = s->device;
  c.device = bppsa_device_get_kind(s->device);
  BPPSA_TRY(place_values(j, s));
  BPPSA_TRY(bppsa_scan_plan_create(&c, &s->plan));
  return bppsa_ranks_scan_create(s->comm, 1, s->plan, s->device, &s->executor);
}

static inline void free_sparse(bppsa_comm *comm, const sparse_job *j, sparse_part *s) {
  bppsa_scan_executor_destroy(s->executor);
  bppsa_scan_plan_destroy(s->plan);
  if (s->comm != comm) {
    bppsa_comm_destroy(s->comm);
  }
  for (int64_t t = 0; j->gpus > 0 && s->values != NULL && t < s->count; ++t) {
    bppsa_memory_free(s->device, (void *)(uintptr_t)s->values[t].data);
  }
  if (j->gpus > 0) {
    bppsa_memory_free(s->device, s->gradients);
    bppsa_comm_set_device(comm, NULL);
  }
  bppsa_device_destroy(s->device);
  bppsa_free(s->values);
  bppsa_free(s->g);
}

static inline bppsa_status run_sparse(bppsa_comm *comm, const sparse_job *j, sparse_part *s) {
  const bppsa_scan_operands o = {.batch = j->batch, .values = s->values, .gradients = s->gradients};
  memset(s->g, 0xff, (size_t)s->size); /* NaN */
  if (bppsa_comm_rank(comm) == 0) {
    memcpy(s->g + s->seed, j->gradients + s->begin + s->seed, (size_t)(s->size - s->seed));
  }
  BPPSA_TRY(s->gradients != s->g ? bppsa_memory_put(s->device, s->gradients, s->g, s->size) : BPPSA_OK);
  bppsa_comm_reset_counters(s->comm);
  BPPSA_TRY(s->executor->execute(s->executor, &o));
  BPPSA_TRY(compare_sparse_messages(s->comm, j));
  return s->gradients != s->g ? bppsa_memory_get(s->device, s->g, s->gradients, s->size) : BPPSA_OK;
}

/* This rank's part, twice. */
static inline bppsa_status sparse_rank(bppsa_comm *comm, void *context) {
  const sparse_job *j = context;
  sparse_part s = {0};
  bppsa_status status = prepare_sparse(comm, j, &s);
  for (int repeat = 0; status == BPPSA_OK && repeat < 2; ++repeat) {
    status = run_sparse(comm, j, &s);
  }
  if (status == BPPSA_OK && s.count > 0) {
    const int64_t from = s.first == 0 && j->config.input ? 0 : sparse_offset(j, s.first + 1) - s.begin;
    memcpy(j->gradients + s.begin + from, s.g + from, (size_t)(s.size - from));
  }
  free_sparse(comm, j, &s);
  return status;
}

#endif

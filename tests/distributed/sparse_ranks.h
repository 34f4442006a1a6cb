/* A chain of sparse Jacobians cut over ranks. A check that fails is an error of the rank. */
#ifndef BPPSA_TESTS_DISTRIBUTED_SPARSE_RANKS_H
#define BPPSA_TESTS_DISTRIBUTED_SPARSE_RANKS_H

#include <string.h>

#include "core/alloc.h"
#include "distributed/scan.h"
#include "distributed/scan_rounds.h"
#include "tests/comm/cases.h"

typedef struct {
  bppsa_scan_config config; /* of the whole chain; its method is the one on ranks */
  int64_t batch;            /* of the execution */
  const bppsa_csr_values *values;
  char *gradients; /* g_0 .. g_n: the seed is read, the others are written */
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

/* The messages and bytes of all ranks together, as docs/ranks.md has them: a vector, a vector and a number on the way down, the
 * entries of a product. */
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

/* This rank's part, twice. */
static inline bppsa_status sparse_rank(bppsa_comm *comm, void *context) {
  const sparse_job *j = context;
  bppsa_scan_config c = j->config;
  int64_t first, count;
  bppsa_ranks_share(c.jacobians, bppsa_comm_size(comm), bppsa_comm_rank(comm), &first, &count);
  const int64_t begin = sparse_offset(j, first), seed = sparse_offset(j, first + count) - begin,
                size = sparse_offset(j, first + count + 1) - begin;
  bppsa_device *device = NULL;
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  char *g = bppsa_calloc(size, 1);
  c.jacobians = count;
  c.patterns += first;
  c.dim = 1;
  c.memory_limit = 0;
  bppsa_status status = g == NULL ? BPPSA_ERR_MEMORY : bppsa_device_create("cpu", 1, &device);
  c.planner = device;
  status = status == BPPSA_OK ? bppsa_scan_plan_create(&c, &plan) : status;
  status = status == BPPSA_OK ? bppsa_ranks_scan_create(comm, 1, plan, device, &executor) : status;
  const bppsa_scan_operands o = {.batch = j->batch, .values = j->values + first, .gradients = g};
  for (int repeat = 0; status == BPPSA_OK && repeat < 2; ++repeat) {
    memset(g, 0xff, (size_t)size); /* NaN */
    if (bppsa_comm_rank(comm) == 0) {
      memcpy(g + seed, j->gradients + begin + seed, (size_t)(size - seed));
    }
    bppsa_comm_reset_counters(comm);
    status = executor->execute(executor, &o);
    status = status == BPPSA_OK ? compare_sparse_messages(comm, j) : status;
  }
  if (status == BPPSA_OK && count > 0) {
    const int64_t from = first == 0 && c.input ? 0 : sparse_offset(j, first + 1) - begin;
    memcpy(j->gradients + begin + from, g + from, (size_t)(size - from));
  }
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
  bppsa_free(g);
  return status;
}

#endif

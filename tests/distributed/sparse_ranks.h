/* A chain of sparse Jacobians cut over ranks that are threads. A check that fails is an error of the rank. */
#ifndef BPPSA_TESTS_DISTRIBUTED_SPARSE_RANKS_H
#define BPPSA_TESTS_DISTRIBUTED_SPARSE_RANKS_H

#include <string.h>

#include "core/alloc.h"
#include "distributed/scan.h"
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

static inline bppsa_status compare_messages(bppsa_comm *comm, const sparse_job *j) {
  const int64_t size = bppsa_comm_size(comm), q = size < j->config.jacobians ? size : j->config.jacobians;
  bppsa_comm_counters counters;
  bppsa_comm_get_counters(comm, &counters);
  int64_t sums[2] = {counters.messages_sent, counters.messages_received}, levels = 0;
  const int64_t two = 2;
  const bppsa_view view = bppsa_view_make(sums, BPPSA_I64, 1, &two);
  BPPSA_TRY(bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, &view));
  while (((int64_t)1 << levels) < q) {
    ++levels;
  }
  CHECK(sums[0] == (j->config.method.algorithm == BPPSA_SCAN_BLELLOCH ? 2 * (q - 1) - levels : q - 1) && sums[1] == sums[0]);
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
    status = status == BPPSA_OK ? compare_messages(comm, j) : status;
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

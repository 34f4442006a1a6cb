/* A program for mpirun: the scan over ranks for elements of every kind, against the float64 recurrence, with messages and bytes as
 * in docs/time-ranks.md. tests/comm/test_mpi.sh runs it. */
#include <stdio.h>

#include "tests/distributed/scan_ranks.h"
#include "tests/distributed/sparse_ranks.h"
#include "tests/scan/csr_chain.h"

/* Every method on one problem. A rank compares the gradients that it holds. */
static bppsa_status compare(bppsa_comm *comm, const bppsa_scan_config *c, const bppsa_device *device) {
  problem p = make_problem(c, 5);
  double *got = bppsa_calloc(g_at(&p, c->jacobians + 1), sizeof *got);
  CHECK(got != NULL);
  int64_t first, count;
  bppsa_ranks_share(c->jacobians, bppsa_comm_size(comm), bppsa_comm_rank(comm), &first, &count);
  const int64_t begin = g_at(&p, first == 0 && c->input ? 0 : first + 1), size = g_at(&p, first + count + 1) - begin;
  bppsa_status status = BPPSA_OK;
  for (int m = 0; status == BPPSA_OK && m < METHODS; ++m) {
    job j = {.p = &p, .device = device, .algorithm = methods[m], .count = c->dims == NULL, .got = got};
    status = run_rank(comm, &j);
    if (status == BPPSA_OK && count > 0 &&
        !(residual(BPPSA_F64, got + begin, p.g + begin, size, sqrt((double)c->jacobians)) < 30)) {
      status = bppsa_fail(BPPSA_ERR_NUMERIC, "%s, %d steps: not the recurrence's gradients",
                          bppsa_scan_algorithm_name(methods[m]), (int)c->jacobians);
    }
  }
  bppsa_free(got);
  free_problem(&p);
  return status;
}

/* Chains of sparse Jacobians; all ranks make the same ones. */
static bppsa_status compare_sparse(bppsa_comm *comm, int64_t n, bppsa_dtype dtype, const bppsa_device *device) {
  static const bppsa_scan_algorithm sparse_methods[] = {BPPSA_SCAN_LINEAR, BPPSA_SCAN_BLELLOCH};
  chain c;
  make_chain(&c, n, dtype, device);
  char *gradients = bppsa_calloc(c.offsets[n + 1] * c.batch, sizeof(double));
  CHECK(gradients != NULL);
  int64_t first, count;
  bppsa_ranks_share(n, bppsa_comm_size(comm), bppsa_comm_rank(comm), &first, &count);
  bppsa_status status = BPPSA_OK;
  for (int m = 0; status == BPPSA_OK && m < 2; ++m) {
    sparse_job j = {.config = config_of(&c, sparse_methods[m], -1, device), .batch = c.batch, .values = c.values};
    j.gradients = gradients;
    memcpy(gradients, c.seed, (size_t)sparse_offset(&j, n + 1));
    status = sparse_rank(comm, &j);
    for (int64_t t = first == 0 ? 0 : first + 1; status == BPPSA_OK && count > 0 && t < first + count; ++t) {
      const int64_t from = c.offsets[t] * c.batch, size = (c.offsets[t + 1] - c.offsets[t]) * c.batch;
      CHECK(residual(dtype, gradients + sparse_offset(&j, t), c.g + from, size, sqrt((double)n)) < 30);
    }
  }
  bppsa_free(gradients);
  free_chain(&c);
  return status;
}

static bppsa_status every_kind(bppsa_comm *comm, void *context) {
  static const int64_t lengths[] = {1, 2, 3, 5, 8, 17, 40, 1000};
  const bppsa_device *device = context;
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
    for (int e = BPPSA_ELEMENT_DENSE; e <= BPPSA_ELEMENT_RECURRENT; ++e) {
      for (int affine = 0; affine < 2; ++affine) {
        bppsa_scan_config c = base_config((bppsa_element)e, 4, 2);
        c.jacobians = lengths[i];
        c.affine = affine;
        c.input = i % 2 == 0;
        BPPSA_TRY(compare(comm, &c, device));
      }
    }
  }
  for (int64_t n = 1; n <= 22; n += 3) {
    BPPSA_TRY(compare_sparse(comm, n, n % 2 == 0 ? BPPSA_F32 : BPPSA_F64, device));
  }
  return BPPSA_OK;
}

int main(void) {
  const bppsa_comm_config config = {.transport = BPPSA_COMM_MPI, .timeout = 60};
  bppsa_comm_outcome outcome;
  bppsa_device *device = cpu_device(1);
  const bppsa_status status = bppsa_comm_run(&config, every_kind, device, &outcome);
  bppsa_device_destroy(device);
  if (status != BPPSA_OK) {
    printf("%s\n", outcome.here ? bppsa_last_error() : "another rank failed");
    bppsa_comm_end_job(1);
  }
  return status != BPPSA_OK;
}

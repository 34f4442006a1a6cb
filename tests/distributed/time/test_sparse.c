/* The scan over ranks for sparse elements: random chains of operators against the recurrence, with and without the
 * operators' structure, and no memory. */
#include "tests/distributed/sparse_ranks.h"
#include "tests/scan/csr_chain.h"

static const bppsa_scan_algorithm methods[] = {BPPSA_SCAN_LINEAR, BPPSA_SCAN_BLELLOCH};

static sparse_job job_of(const chain *c, bppsa_scan_algorithm algorithm, const bppsa_device *device, char *gradients) {
  sparse_job j = {.config = config_of(c, algorithm, -1, device), .batch = c->batch, .values = c->values, .gradients = gradients};
  memcpy(gradients, c->seed, (size_t)sparse_offset(&j, c->n + 1));
  return j;
}

static void check(const chain *c, const sparse_job *j, int64_t ranks) {
  for (int64_t t = 0; t < c->n; ++t) {
    const int64_t from = c->offsets[t] * c->batch, count = (c->offsets[t + 1] - c->offsets[t]) * c->batch;
    const double r = residual(c->dtype, j->gradients + sparse_offset(j, t), c->g + from, count, sqrt((double)c->n));
    if (!(r < 30)) {
      fail_msg("%s, %d ranks, %d elements: g_%d: residual %g", bppsa_scan_algorithm_name(j->config.method.algorithm), (int)ranks,
               (int)c->n, (int)t, r);
    }
  }
}

static void run_chain(const chain *c, bppsa_scan_algorithm method, int64_t ranks, const bppsa_device *device, char *gradients) {
  sparse_job j = job_of(c, method, device, gradients);
  const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
  if (bppsa_comm_run(&config, sparse_rank, &j, NULL) != BPPSA_OK) {
    fail_msg("%s, %d ranks, %d elements: %s", bppsa_scan_algorithm_name(method), (int)ranks, (int)c->n, bppsa_last_error());
  }
  check(c, &j, ranks);
}

static void random_chains(void **state) {
  (void)state;
  static const int64_t rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17};
  bppsa_device *device = cpu_device(1);
  for (int64_t i = 0; i < 66; ++i) {
    chain c;
    make_chain(&c, 1 + i % 22, i % 2 == 0 ? BPPSA_F32 : BPPSA_F64, device);
    char *gradients = bppsa_alloc((size_t)(c.offsets[c.n + 1] * c.batch) * sizeof(double));
    assert_non_null(gradients);
    for (size_t p = 0; p < sizeof rank_counts / sizeof *rank_counts; ++p) {
      for (int m = 0; m < 2; ++m) {
        run_chain(&c, methods[m], rank_counts[p], device, gradients);
      }
    }
    bppsa_free(gradients);
    free_chain(&c);
  }
  bppsa_device_destroy(device);
}

/* Messages and bytes for every p up to 33, and gradients. */
static void every_number_of_ranks(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  chain c;
  make_chain(&c, 34, BPPSA_F64, device);
  char *gradients = bppsa_alloc((size_t)(c.offsets[c.n + 1] * c.batch) * sizeof(double));
  assert_non_null(gradients);
  for (int64_t ranks = 1; ranks <= 33; ++ranks) {
    run_chain(&c, methods[ranks % 2], ranks, device, gradients);
    run_chain(&c, BPPSA_SCAN_BLELLOCH, ranks, device, gradients);
  }
  bppsa_free(gradients);
  free_chain(&c);
  bppsa_device_destroy(device);
}

static void memory_runs_out(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  chain c;
  make_chain(&c, 9, BPPSA_F64, device);
  char *gradients = bppsa_alloc((size_t)(c.offsets[c.n + 1] * c.batch) * sizeof(double));
  assert_non_null(gradients);
  sparse_job j = job_of(&c, BPPSA_SCAN_BLELLOCH, device, gradients);
  const bppsa_comm_config config = {.ranks = 6, .timeout = 60};
  const int64_t blocks = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t call = 1;
  for (; status != BPPSA_OK && call < 4000; ++call) {
    bppsa_alloc_fail_once(call);
    status = bppsa_comm_run(&config, sparse_rank, &j, NULL);
    assert_int_equal(bppsa_alloc_live(), blocks);
    if (status != BPPSA_OK) {
      assert_int_equal(status, BPPSA_ERR_MEMORY);
    }
  }
  bppsa_alloc_fail_at(0);
  assert_in_range(call, 100, 3999);
  bppsa_free(gradients);
  free_chain(&c);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_chains), cmocka_unit_test(every_number_of_ranks),
                                     cmocka_unit_test(memory_runs_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The scan over ranks with operands in GPU memory, of GPUs that ranks share or have one each, over threads and, where the program
 * has it, over NCCL: gradients against the float64 recurrence, messages and bytes against docs/time-ranks.md, useless products and
 * long ones. The device is BPPSA_TEST_DEVICE; on a processor the same cases run there. */
#include "tests/distributed/hard_chains.h"
#include "tests/distributed/sparse_ranks.h"
#include "tests/scan/csr_chain.h"
#include "tests/support/gpus.h"

static int32_t gpus; /* 0: the ranks compute on processors */
static bool nccl;

/* One method on p ranks, over every transport that fits; redone: products that were useless, over threads. */
static double *run_ranks(const problem *p, bppsa_scan_algorithm algorithm, int64_t ranks, bool alias, bool count,
                         int64_t *redone) {
  const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
  const int64_t size = g_at(p, p->config.jacobians + 1);
  double *first = NULL;
  bppsa_device *device = gpus > 0 ? NULL : cpu_device(1);
  for (int transport = 0; transport <= (nccl && ranks <= gpus ? 1 : 0); ++transport) {
    job j = {.p = p, .device = device, .gpus = gpus, .algorithm = algorithm, .alias = alias, .count = count && transport == 0};
    j.nccl = transport == 1;
    j.got = bppsa_calloc(size, sizeof *j.got);
    assert_non_null(j.got);
    if (bppsa_comm_run(&config, run_rank, &j, NULL) != BPPSA_OK) {
      fail_msg("%s, %s, %d ranks, %d steps: %s", j.nccl ? "nccl" : "threads", bppsa_scan_algorithm_name(algorithm), (int)ranks,
               (int)p->config.jacobians, bppsa_last_error());
    }
    if (transport == 1) { /* the same work: the same bits */
      assert_memory_equal(first, j.got, (size_t)size * sizeof *first);
      bppsa_free(j.got);
    } else {
      first = j.got;
      *redone = j.redone;
    }
  }
  bppsa_device_destroy(device);
  return first;
}

static void compare(const bppsa_scan_config *config, int64_t ranks, bool alias, uint64_t seed) {
  problem p = make_problem(config, seed);
  const int64_t n = config->jacobians, first = g_at(&p, config->input ? 0 : 1), size = g_at(&p, n + 1) - first;
  for (int m = 0; m < METHODS; ++m) {
    int64_t redone;
    double *got = run_ranks(&p, methods[m], ranks, alias, config->dims == NULL, &redone);
    const double r = residual(BPPSA_F64, got + first, p.g + first, size, sqrt((double)n));
    if (!(r < 30)) {
      fail_msg("%s, %d ranks, %d steps: residual %g", bppsa_scan_algorithm_name(methods[m]), (int)ranks, (int)n, r);
    }
    bppsa_free(got);
  }
  free_problem(&p);
}

/* Elements of every kind: T from 1 to 40, more ranks than steps and than GPUs too, injected gradients in memory of their own and in
 * that of the gradients. */
static void every_kind(void **state) {
  (void)state;
  static const int64_t some[] = {3, 5, 2, 4};
  static const struct {
    int64_t steps, ranks, matrices;
    bppsa_element element;
    bool affine, alias, input, differ;
  } cases[] = {{1, 1, 1, BPPSA_ELEMENT_DENSE, false, false, true, false},
               {5, 3, 1, BPPSA_ELEMENT_DENSE, true, false, false, false},
               {9, 4, 1, BPPSA_ELEMENT_DENSE, false, false, true, true},
               {40, 5, 1, BPPSA_ELEMENT_DENSE, true, true, true, true},
               {3, 5, 1, BPPSA_ELEMENT_DIAGONAL, false, false, true, false},
               {40, 3, 1, BPPSA_ELEMENT_DIAGONAL, true, false, false, false},
               {33, 5, 1, BPPSA_ELEMENT_DIAGONAL, true, true, true, false},
               {2, 2, 1, BPPSA_ELEMENT_RECURRENT, false, false, true, false},
               {12, 3, 1, BPPSA_ELEMENT_RECURRENT, true, false, true, false},
               {40, 4, 1, BPPSA_ELEMENT_RECURRENT, false, false, false, false},
               {40, 6, 3, BPPSA_ELEMENT_RECURRENT, true, true, true, false},
               {17, 9, 3, BPPSA_ELEMENT_RECURRENT, false, false, true, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_scan_config c = base_config(cases[i].element, 3, 2);
    int64_t dims[41];
    for (int64_t t = 0; t <= 40; ++t) {
      dims[t] = some[t * 5 % 4];
    }
    c.jacobians = cases[i].steps;
    c.matrices = cases[i].matrices;
    c.diagonal = c.matrices > 1;
    c.affine = cases[i].affine;
    c.input = cases[i].input;
    c.dims = cases[i].differ ? dims : NULL;
    compare(&c, cases[i].ranks, cases[i].alias, 20 + i);
  }
}

/* Every number is exact in the recurrence, so products that were not redone would show. */
static void useless_products(void **state) {
  (void)state;
  for (int affine = 0; affine < 2; ++affine) {
    problem p = cancelling(affine, 27);
    for (int64_t ranks = 2; ranks <= 9; ++ranks) {
      for (int m = 1; m < METHODS; ++m) {
        int64_t redone;
        double *got = run_ranks(&p, methods[m], ranks, affine, false, &redone);
        assert_memory_equal(got, p.g, (size_t)g_at(&p, 28) * sizeof *got);
        assert_true(ranks % 3 != 0 || redone > 0); /* shares of whole triples: the products that are applied cancel */
        bppsa_free(got);
      }
    }
    free_problem(&p);
  }
}

/* Products that leave the range of numbers. */
static void long_products(void **state) {
  (void)state;
  for (int e = BPPSA_ELEMENT_DIAGONAL; e <= BPPSA_ELEMENT_RECURRENT; ++e) {
    problem p = growing((bppsa_element)e, 150);
    for (int64_t ranks = 3; ranks <= 5; ranks += 2) {
      for (int m = 1; m < METHODS; ++m) {
        int64_t redone;
        double *got = run_ranks(&p, methods[m], ranks, false, true, &redone);
        assert_memory_equal(got, p.g, (size_t)g_at(&p, 151) * sizeof *got);
        assert_int_equal(redone, 0);
        bppsa_free(got);
      }
    }
    free_problem(&p);
  }
}

/* ---- sparse elements ---- */

static void sparse_chains(void **state) {
  (void)state;
  static const bppsa_scan_algorithm sparse[] = {BPPSA_SCAN_LINEAR, BPPSA_SCAN_BLELLOCH};
  static const int64_t lengths[] = {1, 4, 9, 14}, rank_counts[] = {3, 2, 4, 6};
  bppsa_device *host = cpu_device(1);
  for (int i = 0; i < 8; ++i) {
    chain c;
    make_chain(&c, lengths[i / 2], i % 2 == 0 ? BPPSA_F64 : BPPSA_F32, host);
    const int64_t reals = c.offsets[c.n + 1] * c.batch, wanted = c.offsets[c.n] * c.batch;
    char *gradients = bppsa_alloc((size_t)reals * sizeof(double));
    assert_non_null(gradients);
    for (int run = 0; run < 4; ++run) {
      const bppsa_comm_config config = {.ranks = rank_counts[i / 2], .timeout = 60};
      sparse_job j = {.config = config_of(&c, sparse[run % 2], -1, host),
                      .batch = c.batch,
                      .values = c.values,
                      .gradients = gradients,
                      .gpus = gpus,
                      .nccl = run >= 2};
      if (j.nccl && !(nccl && config.ranks <= gpus)) {
        continue;
      }
      memcpy(gradients, c.seed, (size_t)reals * bppsa_dtype_size(c.dtype));
      if (bppsa_comm_run(&config, sparse_rank, &j, NULL) != BPPSA_OK) {
        fail_msg("%s%s, chain %d, %d elements: %s", bppsa_scan_algorithm_name(sparse[run % 2]), j.nccl ? " over NCCL" : "", i,
                 (int)c.n, bppsa_last_error());
      }
      const double r = residual(c.dtype, gradients, c.g, wanted, sqrt((double)c.n));
      if (!(r < 30)) {
        fail_msg("%s, chain %d, %d elements: residual %g", bppsa_scan_algorithm_name(sparse[run % 2]), i, (int)c.n, r);
      }
    }
    bppsa_free(gradients);
    free_chain(&c);
  }
  bppsa_device_destroy(host);
}

/* ---- what is refused ---- */

/* A communicator that does not know the device. */
static bppsa_status refused_on_all(bppsa_comm *comm, void *context) {
  bppsa_scan_config c = base_config(BPPSA_ELEMENT_DENSE, 2, 1);
  bppsa_device *device = NULL;
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  (void)context;
  BPPSA_TRY(bppsa_device_create("cuda:0", 1, &device));
  c.jacobians = 1;
  c.method = bppsa_scan_method_of(BPPSA_SCAN_LINEAR);
  c.device = BPPSA_CUDA;
  BPPSA_TRY(bppsa_scan_plan_create(&c, &plan));
  CHECK(bppsa_ranks_scan_create(comm, TAG, plan, device, &executor) == BPPSA_ERR_ARGUMENT && executor == NULL);
  CHECK(strstr(bppsa_last_error(), "ranks scan: device cuda:0, expected a communicator for its arrays") != NULL);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static void refused(void **state) {
  (void)state;
  const bppsa_comm_config config = {.ranks = 2, .timeout = 60};
  if (gpus == 0) {
    skip();
  }
  if (bppsa_comm_run(&config, refused_on_all, NULL, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_kind), cmocka_unit_test(useless_products),
                                     cmocka_unit_test(long_products), cmocka_unit_test(sparse_chains), cmocka_unit_test(refused)};
  gpus = gpus_of_ranks(&nccl);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The scan over ranks, on ranks that are threads: gradients against the float64 recurrence, messages and bytes against the formulas
 * of docs/time-ranks.md, useless products, bad requests, memory that runs out. */
#include "core/base/clock.h"
#include "schedule/schedule.h"
#include "tests/distributed/hard_chains.h"
#include "tests/distributed/scan_ranks.h"
#include "tests/support/length.h"

static void run_job(job *j, int64_t ranks) {
  const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
  const int64_t n = j->p->config.jacobians;
  j->got = bppsa_calloc(g_at(j->p, n + 1), sizeof *j->got);
  assert_non_null(j->got);
  bppsa_device *device = cpu_device(1);
  j->device = device;
  if (bppsa_comm_run(&config, run_rank, j, NULL) != BPPSA_OK) {
    fail_msg("%s, %d ranks, %d steps: %s", bppsa_scan_algorithm_name(j->algorithm), (int)ranks, (int)n, bppsa_last_error());
  }
  bppsa_device_destroy(device);
}

/* Every method on p ranks against the recurrence. */
static void compare(const bppsa_scan_config *config, int64_t ranks, bool alias, uint64_t seed) {
  problem p = make_problem(config, seed);
  const int64_t n = config->jacobians, first = g_at(&p, config->input ? 0 : 1), size = g_at(&p, n + 1) - first;
  for (int m = 0; m < METHODS; ++m) {
    job j = {.p = &p, .algorithm = methods[m], .alias = alias, .count = config->dims == NULL};
    run_job(&j, ranks);
    const double r = residual(BPPSA_F64, j.got + first, p.g + first, size, sqrt((double)n));
    if (!(r < 30)) {
      fail_msg("%s, %d ranks, %d steps: residual %g", bppsa_scan_algorithm_name(methods[m]), (int)ranks, (int)n, r);
    }
    bppsa_free(j.got);
  }
  free_problem(&p);
}

static const int64_t rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17};

/* T = 1 .. 40 (above 5 a sample of a seventh) and every number of ranks, also more ranks than steps. */
static void every_length(bppsa_scan_config c, bool alias) {
  for (size_t i = 0; i < sizeof rank_counts / sizeof *rank_counts; ++i) {
    for (c.jacobians = 1; c.jacobians <= 40; ++c.jacobians) {
      if (c.jacobians > 5 && !is_drawn(7)) {
        continue;
      }
      c.input = c.jacobians % 2 == 1;
      compare(&c, rank_counts[i], alias, 11 + (uint64_t)c.jacobians);
    }
  }
}

static void recurrent_elements(void **state) {
  (void)state;
  bppsa_scan_config c = base_config(BPPSA_ELEMENT_RECURRENT, 4, 3);
  every_length(c, false);
  c.affine = true; /* loss all */
  every_length(c, false);
}

static void gated_elements(void **state) {
  (void)state;
  bppsa_scan_config c = base_config(BPPSA_ELEMENT_RECURRENT, 3, 2);
  c.matrices = 3;
  c.diagonal = true;
  every_length(c, false);
  c.affine = true;
  every_length(c, true);
}

static void diagonal_elements(void **state) {
  (void)state;
  bppsa_scan_config c = base_config(BPPSA_ELEMENT_DIAGONAL, 5, 2);
  every_length(c, false);
  c.affine = true;
  every_length(c, true);
}

static void pair_elements(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 2, 7, 19, 40};
  bppsa_scan_config c = base_config(BPPSA_ELEMENT_PAIR, 6, 2);
  c.matrices = 4;
  c.diagonal = true;
  for (size_t i = 0; i < sizeof rank_counts / sizeof *rank_counts; ++i) {
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; ++l) {
      c.jacobians = lengths[l];
      c.input = l % 2 == 1;
      c.affine = (i + l) % 2 == 0;
      compare(&c, rank_counts[i], c.affine && l % 2 == 0, 17 + l);
    }
  }
}

static void dense_elements(void **state) {
  (void)state;
  bppsa_scan_config c = base_config(BPPSA_ELEMENT_DENSE, 4, 2);
  every_length(c, false);
  int64_t dims[41];
  for (int64_t t = 0; t <= 40; ++t) {
    dims[t] = 3 + t * 5 % 4;
  }
  c.dims = dims;
  every_length(c, false);
  c.affine = true;
  every_length(c, true);
}

/* T = 1000 on every number of ranks. */
static void long_chains(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rank_counts / sizeof *rank_counts; ++i) {
    for (int e = BPPSA_ELEMENT_DENSE; e <= BPPSA_ELEMENT_RECURRENT; ++e) {
      for (int affine = 0; affine < 2; ++affine) {
        bppsa_scan_config c = base_config((bppsa_element)e, 4, 2);
        c.jacobians = 1000;
        c.affine = affine;
        c.input = i % 2 == 0;
        c.matrices = e == BPPSA_ELEMENT_RECURRENT && affine ? 3 : 1;
        c.diagonal = c.matrices > 1;
        compare(&c, rank_counts[i], i % 3 == 0 && affine, 1 + i);
      }
    }
  }
}

/* Messages and bytes for every p up to 33: steps for all, and fewer steps than ranks. */
static void every_number_of_ranks(void **state) {
  (void)state;
  bppsa_scan_config c = base_config(BPPSA_ELEMENT_RECURRENT, 3, 2);
  c.affine = true;
  for (int64_t ranks = 1; ranks <= 33; ++ranks) {
    c.jacobians = 40;
    compare(&c, ranks, false, 5);
    c.jacobians = 19;
    compare(&c, ranks, true, 6);
  }
}

/* ---- rounds ---- */

typedef struct {
  double delay, seconds; /* of every message; of the scan */
} delayed_run;

/* The time of a scan whose every message is delayed. */
static bppsa_status run_delayed(bppsa_comm *comm, void *context) {
  delayed_run *run = context;
  bppsa_scan_config c = base_config(BPPSA_ELEMENT_DIAGONAL, 1, 1);
  c.jacobians = 2;
  c.method = bppsa_scan_method_of(BPPSA_SCAN_BLELLOCH);
  bppsa_device *device = NULL;
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  double ones[2] = {1, 1}, g[3] = {0, 0, 1};
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  BPPSA_TRY(bppsa_scan_plan_create(&c, &plan));
  BPPSA_TRY(bppsa_ranks_scan_create(comm, TAG, plan, device, &executor));
  bppsa_comm_set_fault(comm, &(bppsa_comm_fault){.delay = run->delay});
  BPPSA_TRY(bppsa_comm_barrier(comm));
  const double start = bppsa_now();
  const bppsa_scan_operands o = {.batch = 1, .jt = ones, .gradients = g};
  BPPSA_TRY(executor->execute(executor, &o));
  double taken = bppsa_now() - start;
  const bppsa_view view = bppsa_view_make(&taken, BPPSA_F64, 0, NULL);
  BPPSA_TRY(bppsa_comm_allreduce(comm, BPPSA_COMM_MAX, &view));
  if (bppsa_comm_rank(comm) == 0) {
    run->seconds = taken;
  }
  CHECK(g[1] == 1);
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

/* Messages that follow each other in the schedule scan-blelloch on p workers. */
static int64_t scheduled_rounds(int64_t workers) {
  bppsa_schedule_config c = bppsa_schedule_config_default();
  bppsa_schedule *list = NULL;
  c.stages = (int32_t)workers;
  c.elements = 2 * workers + 1;
  assert_int_equal(bppsa_schedule_create("scan-blelloch", &c, &list), BPPSA_OK);
  int64_t *depth = bppsa_calloc(list->count, sizeof *depth), most = 0;
  assert_non_null(depth);
  for (bool changed = true; changed;) {
    changed = false;
    for (int64_t i = 0; i < list->count; ++i) {
      const bppsa_schedule_op *op = &list->ops[i];
      int64_t before = 0;
      for (int32_t k = 0; k < op->dep_count; ++k) {
        const int64_t d = depth[list->deps[op->deps + k]];
        before = d > before ? d : before;
      }
      for (int64_t k = 0; op->kind == BPPSA_KIND_RECV && k < list->count; ++k) { /* the SEND that it begins with */
        const bool pair = list->ops[k].group == op->group && list->ops[k].kind == BPPSA_KIND_SEND;
        before = pair && depth[k] > before ? depth[k] : before;
      }
      before += op->kind == BPPSA_KIND_SEND;
      changed = changed || before != depth[i];
      depth[i] = before;
      most = before > most ? before : most;
    }
  }
  bppsa_free(depth);
  bppsa_schedule_destroy(list);
  return most;
}

/* Rounds by the clock, for every p up to 33: with every message delayed a scan takes at least the delays that follow each other,
 * and less than one more in one of some tries, with ever longer delays where the machine is busy. The schedule's tree has the same
 * way up; on the way down, gradients that are known early go early. */
static void rounds(void **state) {
  (void)state;
  enum { TRIES = 40 };
  for (int64_t ranks = 1; ranks <= 33; ++ranks) {
    delayed_run run = {.delay = 0.02};
    int64_t expected = log2_up(ranks);
    for (int64_t reach = 3; reach < ranks; reach *= 2) {
      ++expected;
    }
    bool reached = false;
    for (int try = 0; try < TRIES && !reached; ++try) {
      const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
      run.delay *= try > 2 && run.delay < 1 ? 2 : 1;
      if (bppsa_comm_run(&config, run_delayed, &run, NULL) != BPPSA_OK) {
        fail_msg("%d ranks: %s", (int)ranks, bppsa_last_error());
      }
      assert_true(run.seconds >= (double)expected * run.delay);
      reached = run.seconds < (double)(expected + 1) * run.delay;
    }
    if (!reached) {
      fail_msg("%d ranks: %g s, expected %d rounds of %g s", (int)ranks, run.seconds, (int)expected, run.delay);
    }
    bppsa_scan_message messages[64];
    int64_t count = 0;
    assert_int_equal(bppsa_ranks_scan_messages(BPPSA_SCAN_BLELLOCH, (int32_t)ranks, messages, &count), BPPSA_OK);
    assert_int_equal(count == 0 ? 0 : messages[count - 1].round, expected);
    assert_in_range(expected, log2_up(ranks), ranks == 1 ? 0 : scheduled_rounds(ranks));
  }
}

/* ---- useless products ---- */

/* Every number is exact in the recurrence, so products that were not redone would show. */
static void useless_products(void **state) {
  (void)state;
  static const int64_t lengths[] = {9, 15, 21, 24, 27, 36};
  for (int affine = 0; affine < 2; ++affine) {
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; ++l) {
      problem p = cancelling(affine, lengths[l]);
      for (int64_t ranks = 1; ranks <= 9; ++ranks) {
        /* With shares of whole triples (c, c) is in front of every rank, and the products that are applied cancel; otherwise
         * entries cancel while products are joined. */
        const bool whole = lengths[l] % (3 * ranks) == 0;
        for (int m = 0; m < METHODS; ++m) {
          job j = {.p = &p, .algorithm = methods[m], .alias = affine};
          run_job(&j, ranks);
          for (int64_t i = 0; i < (lengths[l] + 1) * 4; ++i) {
            if (j.got[i] != p.g[i]) {
              fail_msg("%s, %d ranks, %d steps: [%d] is %g, expected %g", bppsa_scan_algorithm_name(methods[m]), (int)ranks,
                       (int)lengths[l], (int)i, j.got[i], p.g[i]);
            }
          }
          const bool needs = whole && m > 0 && ranks > 2;
          assert_true(m > 0 || j.redone == 0);
          assert_true(!needs || j.redone > 0);
          bppsa_free(j.got);
        }
      }
      free_problem(&p);
    }
  }
}

/* ---- long products ---- */

static void long_products(void **state) {
  (void)state;
  enum { N = 150 };
  for (int e = BPPSA_ELEMENT_DIAGONAL; e <= BPPSA_ELEMENT_RECURRENT; ++e) {
    problem p = growing((bppsa_element)e, N);
    for (int64_t ranks = 1; ranks <= 9; ++ranks) {
      for (int m = 0; m < METHODS; ++m) {
        job j = {.p = &p, .algorithm = methods[m], .count = true};
        run_job(&j, ranks);
        for (int64_t i = 0; i < g_at(&p, N + 1); ++i) {
          if (j.got[i] != p.g[i]) {
            fail_msg("%s, %d ranks: [%d] is %g, expected %g", bppsa_scan_algorithm_name(methods[m]), (int)ranks, (int)i, j.got[i],
                     p.g[i]);
          }
        }
        bppsa_free(j.got);
      }
    }
    free_problem(&p);
  }
}

/* ---- what is refused, and what fails ---- */

/* A rank's plan that does not fit the others'. */
typedef struct {
  bppsa_scan_config rank1; /* of rank 1; the others': 2 recurrent steps of size 3 */
  bppsa_status expected;
  const char *words;
} refusal;

static bppsa_status refused_on_all(bppsa_comm *comm, void *context) {
  const refusal *r = context;
  bppsa_scan_config c = base_config(r->rank1.element, 3, 1);
  c.jacobians = 2;
  c.method = r->rank1.method;
  c = bppsa_comm_rank(comm) == 1 ? r->rank1 : c;
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  bppsa_device *device = cpu_device(1);
  BPPSA_TRY(bppsa_scan_plan_create(&c, &plan));
  const bppsa_status status = bppsa_ranks_scan_create(comm, TAG, plan, device, &executor);
  CHECK(status == r->expected && strstr(bppsa_last_error(), r->words) != NULL);
  CHECK(executor == NULL);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static void refused(void **state) {
  (void)state;
  bppsa_scan_config fits = base_config(BPPSA_ELEMENT_RECURRENT, 3, 1);
  fits.jacobians = 2;
  fits.method = bppsa_scan_method_of(BPPSA_SCAN_CHUNKED);
  refusal r[] = {{fits, BPPSA_ERR_ARGUMENT, "rank 0 plans 2 of 7 steps, expected 3"},
                 {fits, BPPSA_ERR_ARGUMENT, "batch is 2 on rank 1, expected 1 as on rank 0"},
                 {fits, BPPSA_ERR_ARGUMENT, "affine is 1 on rank 1, expected 0 as on rank 0"},
                 {fits, BPPSA_ERR_SHAPE, "rank 1 begins with a gradient of size 4, expected 3 as rank 0 ends"}};
  r[0].rank1.jacobians = 3;
  r[1].rank1.batch = 2;
  r[2].rank1.affine = true;
  r[3].rank1.dim = 4;
  const bppsa_comm_config config = {.ranks = 3, .timeout = 60};
  for (size_t i = 0; i < sizeof r / sizeof *r; ++i) {
    if (bppsa_comm_run(&config, refused_on_all, &r[i], NULL) != BPPSA_OK) {
      fail_msg("%s", bppsa_last_error());
    }
  }
}

static void memory_runs_out(void **state) {
  (void)state;
  bppsa_scan_config c = base_config(BPPSA_ELEMENT_RECURRENT, 3, 2);
  c.jacobians = 13;
  problem p = make_problem(&c, 3);
  const bppsa_comm_config config = {.ranks = 5, .timeout = 60};
  bppsa_device *device = cpu_device(1);
  job j = {.p = &p, .device = device, .algorithm = BPPSA_SCAN_BLELLOCH, .got = bppsa_calloc(g_at(&p, 14), sizeof(double))};
  const int64_t blocks = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t call = 1;
  for (; status != BPPSA_OK && call < 1000; ++call) {
    bppsa_alloc_fail_once(call);
    status = bppsa_comm_run(&config, run_rank, &j, NULL);
    assert_int_equal(bppsa_alloc_live(), blocks);
    if (status != BPPSA_OK) {
      assert_int_equal(status, BPPSA_ERR_MEMORY);
    }
  }
  bppsa_alloc_fail_at(0);
  assert_in_range(call, 60, 999);
  bppsa_free(j.got);
  bppsa_device_destroy(device);
  free_problem(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(recurrent_elements),    cmocka_unit_test(gated_elements), cmocka_unit_test(diagonal_elements),
      cmocka_unit_test(pair_elements),         cmocka_unit_test(dense_elements), cmocka_unit_test(long_chains),
      cmocka_unit_test(every_number_of_ranks), cmocka_unit_test(rounds),         cmocka_unit_test(useless_products),
      cmocka_unit_test(long_products),         cmocka_unit_test(refused),        cmocka_unit_test(memory_runs_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Counts of products row by row, beside those of planned products whose patterns are in memory: exactly, and estimated from rows
 * drawn at random, within their standard errors. */
#include "cnn/row_counts.h"

#include "cnn/live.h"
#include "jacobian/jacobian.h"
#include "tests/cnn/graphs.h"

enum { GRAPHS = 40, CHAINS = 24 };

/* A network with masks, and its elements' patterns in memory. */
typedef struct {
  bppsa_cnn_network network;
  bool input;
  bppsa_device *device;
  const uint8_t **masks;
  uint8_t **bytes;
  bppsa_jacobian **own;
  bppsa_cnn_elements elements;
} made;

/* kept: of 8 weights, so many stay; 8: there are no masks. */
static void make(bppsa_cnn_network network, bool input, uint64_t seed, uint64_t kept, made *m) {
  const int64_t n = network.count - 1;
  *m = (made){.network = network, .input = input, .device = cpu_device(1)};
  m->masks = bppsa_calloc(n, sizeof *m->masks);
  m->bytes = bppsa_calloc(n, sizeof *m->bytes);
  m->own = bppsa_calloc(n, sizeof(bppsa_jacobian *));
  assert_int_equal(bppsa_cnn_elements_create(&network, input, &m->elements), BPPSA_OK);
  for (int64_t i = 0; i < n; ++i) {
    const bppsa_cnn_layer *layer = &network.layers[i];
    if (bppsa_cnn_has_weights(layer) && kept < 8) {
      m->bytes[i] = bppsa_calloc(bppsa_op_weights(&layer->op), 1);
      for (int64_t k = 0; k < bppsa_op_weights(&layer->op); ++k) {
        m->bytes[i][k] = bppsa_random_below(seed, BPPSA_STREAM_TEST, (uint64_t)(i << 20 | k), 8) < kept;
      }
      m->masks[i] = m->bytes[i];
    }
    if (layer->node == BPPSA_CNN_OPERATOR) {
      assert_int_equal(bppsa_jacobian_create(&layer->op, m->masks[i], false, m->device, &m->own[i]), BPPSA_OK);
    }
    const bppsa_csr *own = m->own[i] != NULL ? bppsa_jacobian_pattern(m->own[i]) : NULL;
    assert_int_equal(bppsa_cnn_elements_set(&network, i + 1, own, &m->elements), BPPSA_OK);
  }
}

static void drop(made *m) {
  for (int64_t i = 0; i + 1 < m->network.count; ++i) {
    bppsa_jacobian_destroy(m->own[i]);
    bppsa_free(m->bytes[i]);
  }
  bppsa_free((void *)m->masks);
  bppsa_free((void *)m->bytes);
  bppsa_free((void *)m->own);
  bppsa_cnn_elements_free(&m->elements);
  bppsa_cnn_network_free(&m->network);
  bppsa_device_destroy(m->device);
}

static bppsa_cnn_counter *counter_of(const made *m, double work, uint64_t seed) {
  const bppsa_cnn_counter_config config = {
      .network = &m->network, .masks = m->masks, .input = m->input, .work = work, .seed = seed};
  bppsa_cnn_counter *counter = NULL;
  assert_int_equal(bppsa_cnn_counter_create(&config, &counter), BPPSA_OK);
  return counter;
}

/* counter NULL: products are planned over the patterns in memory. */
static bppsa_scan_plan *plan_of(const made *m, bppsa_cnn_counter *counter, int64_t levels) {
  bppsa_scan_config config = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  config.method = (bppsa_scan_method){.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = levels};
  config.element = BPPSA_ELEMENT_CSR;
  config.jacobians = m->network.count - 1;
  config.dim = bppsa_cnn_size(&m->network, m->network.count - 1);
  config.patterns = counter != NULL ? bppsa_cnn_counter_patterns(counter) : m->elements.patterns;
  config.counter = counter != NULL ? bppsa_cnn_counter_of(counter) : config.counter;
  config.planner = m->device;
  config.symbolic = true;
  config.input = m->input;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
  return plan;
}

/* Every step has the counts that it has with patterns in memory. Returns the number of steps. */
static int64_t check_steps(const bppsa_scan_plan *expected, const bppsa_scan_plan *found, int number) {
  bppsa_scan_iterator its[2] = {{0}, {0}};
  bppsa_scan_step e, f;
  int64_t steps = 0;
  for (; bppsa_scan_plan_next(expected, &its[0], &e); ++steps) {
    assert_true(bppsa_scan_plan_next(found, &its[1], &f));
    if (e.nnz != f.nnz || e.flops != f.flops || e.copy != f.copy || e.critical != f.critical || f.flops_error != 0) {
      fail_msg("network %d, step %d (%d:%d:%d): %lld entries, %lld FLOPs, copy %d, expected %lld, %lld, %d", number, (int)e.id,
               (int)e.first, (int)e.split, (int)e.last, (long long)f.nnz, (long long)f.flops, f.copy, (long long)e.nnz,
               (long long)e.flops, e.copy);
    }
  }
  const bppsa_scan_totals *a = bppsa_scan_plan_totals(expected), *b = bppsa_scan_plan_totals(found);
  assert_int_equal(a->mm, b->mm);
  assert_int_equal(a->mv, b->mv);
  assert_int_equal(a->critical_flops, b->critical_flops);
  assert_int_equal(a->bp_flops, b->bp_flops);
  assert_int_equal(a->workspace_bytes, b->workspace_bytes);
  assert_true(b->flops_error == 0 && b->critical_error == 0);
  return steps;
}

static int64_t check_network(made *m, int number) {
  bppsa_cnn_counter *counter = counter_of(m, 1e18, 0);
  int64_t steps = 0;
  for (int64_t t = 1; t < m->network.count; ++t) { /* the elements themselves */
    const bppsa_csr *e = m->elements.patterns[t - 1], *f = bppsa_cnn_counter_patterns(counter)[t - 1];
    const bool same = e->rows == f->rows && e->cols == f->cols && e->nnz == f->nnz && e->identity == f->identity &&
                      (e->ones != NULL ? e->ones->nnz : 0) == (f->ones != NULL ? f->ones->nnz : 0);
    if (!same) {
      fail_msg("network %d, element %d: %lld entries, identity %d, expected %lld, %d", number, (int)t, (long long)f->nnz,
               f->identity, (long long)e->nnz, e->identity);
    }
  }
  for (int64_t levels = 0; levels <= 6; ++levels) {
    bppsa_scan_plan *expected = plan_of(m, NULL, levels), *found = plan_of(m, counter, levels);
    steps += check_steps(expected, found, number);
    bppsa_scan_plan_destroy(expected);
    bppsa_scan_plan_destroy(found);
  }
  bppsa_cnn_counter_destroy(counter);
  return steps;
}

static void test_exact(void **state) {
  (void)state;
  int64_t steps = 0;
  uint64_t counter = 77;
  for (int number = 0; number < GRAPHS + CHAINS; ++number) {
    made m;
    bppsa_cnn_network network = number < GRAPHS ? graph_network((uint64_t)number, number % 2 == 0) : chain_network(&counter);
    make(network, number % 3 == 0, (uint64_t)number, 2 + (uint64_t)number % 7, &m);
    steps += check_network(&m, number);
    drop(&m);
  }
  assert_true(steps > 2000);
}

/* Two residual blocks on images that have an inside, so that classes have more than one position. */
static const char two_paths[] =
    "{\"input\": [3, 13, 11], \"layers\": [{\"name\": \"a\", \"op\": \"conv2d\", \"out\": 70, \"kernel\": 3, \"padding\": 1},"
    "{\"name\": \"r\", \"op\": \"relu\"}, {\"name\": \"b\", \"op\": \"conv2d\", \"out\": 8, \"kernel\": 3, \"padding\": 1},"
    "{\"name\": \"s\", \"op\": \"relu\"}, {\"name\": \"c\", \"op\": \"conv2d\", \"out\": 70, \"kernel\": 1},"
    "{\"name\": \"d\", \"op\": \"add\", \"inputs\": [\"c\", \"r\"]},"
    "{\"name\": \"e\", \"op\": \"conv2d\", \"out\": 12, \"kernel\": 3, \"stride\": 2, \"groups\": 2},"
    "{\"name\": \"f\", \"op\": \"avgpool2d\", \"kernel\": 3, \"stride\": 2, \"padding\": 1},"
    "{\"name\": \"g\", \"op\": \"concat\", \"inputs\": [\"f\", \"f\"]}, {\"name\": \"h\", \"op\": \"global_avgpool\"},"
    "{\"name\": \"fc\", \"op\": \"linear\", \"out\": 10}]}";

static bppsa_cnn_network residual_network(void) {
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_parse("two paths", two_paths, (int64_t)strlen(two_paths), &network), BPPSA_OK);
  return network;
}

static void test_residual(void **state) {
  (void)state;
  for (int number = 0; number < 3; ++number) {
    made m;
    make(residual_network(), number == 1, 5, number == 2 ? 8 : 2, &m);
    check_network(&m, number);
    drop(&m);
  }
}

/* Estimates from rows drawn by 100 seeds: how far they are from the exact counts in standard errors. Most are within 3 of them, and
 * their mean is as near to 0 as that of 100 independent ones is in all but 3 of 1000 tries. */
static void check_estimates(const made *m, int64_t levels, bool critical) {
  enum { SEEDS = 100 };
  bppsa_cnn_counter *counter = counter_of(m, 1e18, 0);
  bppsa_scan_plan *plan = plan_of(m, counter, levels);
  const bppsa_scan_totals exact = *bppsa_scan_plan_totals(plan);
  bppsa_scan_plan_destroy(plan);
  bppsa_cnn_counter_destroy(counter);
  int within = 0;
  double sum = 0, squares = 0;
  for (uint64_t seed = 1; seed <= SEEDS; ++seed) {
    counter = counter_of(m, 1, seed);
    plan = plan_of(m, counter, levels);
    const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
    const double error = critical ? t->critical_error : t->flops_error;
    const double off = critical ? (double)(t->critical_flops - exact.critical_flops)
                                : (double)(t->mm_flops + t->mv_flops - exact.mm_flops - exact.mv_flops);
    assert_true(error > 0 && error < 0.5 * (double)(exact.mm_flops + exact.mv_flops));
    assert_int_equal(t->bp_flops, exact.bp_flops);
    within += fabs(off) <= 3 * error;
    sum += off;
    squares += off * off;
    bppsa_scan_plan_destroy(plan);
    bppsa_cnn_counter_destroy(counter);
  }
  print_message("%d of %d within 3 standard errors; mean %.3g, of spread %.3g\n", within, SEEDS, sum / SEEDS,
                sqrt(squares / SEEDS));
  assert_true(within >= SEEDS - 1);
  assert_true(critical || fabs(sum / SEEDS) <= 3 * sqrt(squares / SEEDS / SEEDS)); /* the largest of several is drawn upwards */
}

static void test_estimates(void **state) {
  (void)state;
  made m;
  make(residual_network(), false, 5, 2, &m);
  for (int64_t levels = 1; levels <= 2; ++levels) {
    check_estimates(&m, levels, false);
  }
  check_estimates(&m, 2, true);
  drop(&m);
}

/* A counter that has counted for one plan counts the same for another; one seed gives the same numbers. */
static void test_sequence(void **state) {
  (void)state;
  made m;
  make(residual_network(), true, 6, 3, &m);
  bppsa_cnn_counter *first = counter_of(&m, 1, 9), *second = counter_of(&m, 1, 9);
  bppsa_scan_plan *all = plan_of(&m, first, 3), *again = plan_of(&m, first, 1);
  bppsa_scan_plan *other = plan_of(&m, second, 1), *more = plan_of(&m, second, 3);
  assert_memory_equal(bppsa_scan_plan_totals(all), bppsa_scan_plan_totals(more), sizeof(bppsa_scan_totals));
  assert_memory_equal(bppsa_scan_plan_totals(again), bppsa_scan_plan_totals(other), sizeof(bppsa_scan_totals));
  assert_true(bppsa_scan_plan_totals(all)->flops_error > 0);
  bppsa_scan_plan *const plans[] = {all, again, other, more};
  for (int i = 0; i < 4; ++i) {
    bppsa_scan_plan_destroy(plans[i]);
  }
  bppsa_cnn_counter_destroy(first);
  bppsa_cnn_counter_destroy(second);
  drop(&m);
}

static void test_refusals(void **state) {
  (void)state;
  made m;
  make(residual_network(), false, 5, 2, &m);
  bppsa_cnn_counter_config config = {.network = &m.network, .masks = m.masks, .work = 1e18, .memory_limit = 1000};
  bppsa_cnn_counter *counter = NULL;
  assert_error(bppsa_cnn_counter_create(&config, &counter), BPPSA_ERR_ARGUMENT, "the memory limit is 1000");
  assert_null(counter);
  assert_int_equal(bppsa_cnn_counter_create(NULL, &counter), BPPSA_ERR_ARGUMENT);
  while (bppsa_cnn_counter_create(&config, &counter) != BPPSA_OK) { /* enough for sets, not for the counts of many rows */
    config.memory_limit += 500;
  }
  bppsa_scan_config scan = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  scan.element = BPPSA_ELEMENT_CSR;
  scan.jacobians = m.network.count - 1;
  scan.patterns = bppsa_cnn_counter_patterns(counter);
  scan.counter = bppsa_cnn_counter_of(counter);
  scan.planner = m.device;
  assert_error(bppsa_scan_plan_create(&scan, &plan), BPPSA_ERR_ARGUMENT, "expected a symbolic plan for a CPU");
  scan.symbolic = true;
  assert_error(bppsa_scan_plan_create(&scan, &plan), BPPSA_ERR_ARGUMENT, "bytes, the memory limit is ");
  assert_null(plan);
  bppsa_cnn_counter_destroy(counter);
  bppsa_cnn_counter_destroy(NULL);
  drop(&m);
}

static bppsa_status count_all(void *argument) {
  const made *m = argument;
  const bppsa_cnn_counter_config config = {.network = &m->network, .masks = m->masks, .work = 1e18};
  bppsa_cnn_counter *counter = NULL;
  bppsa_scan_plan *plan = NULL;
  BPPSA_TRY(bppsa_cnn_counter_create(&config, &counter));
  bppsa_scan_config scan = bppsa_scan_config_default();
  scan.element = BPPSA_ELEMENT_CSR;
  scan.jacobians = m->network.count - 1;
  scan.patterns = bppsa_cnn_counter_patterns(counter);
  scan.counter = bppsa_cnn_counter_of(counter);
  scan.planner = m->device;
  scan.symbolic = true;
  scan.method.up_levels = 1;
  const bppsa_status status = bppsa_scan_plan_create(&scan, &plan);
  bppsa_scan_plan_destroy(plan);
  bppsa_cnn_counter_destroy(counter);
  return status;
}

static void test_out_of_memory(void **state) {
  (void)state;
  made m;
  make(graph_network(3, false), false, 3, 3, &m);
  assert_true(walk_allocations(count_all, &m) > 50);
  drop(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_exact),     cmocka_unit_test(test_residual),
                                     cmocka_unit_test(test_estimates), cmocka_unit_test(test_sequence),
                                     cmocka_unit_test(test_refusals),  cmocka_unit_test(test_out_of_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

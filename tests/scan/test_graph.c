/* On a GPU: a scan that is captured as a graph and launched again has the bits of the scan itself, also for data that changed after
 * the capture. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/graph.h"
#include "core/compute/memory.h"
#include "scan/scan.h"
#include "tests/support/support.h"

enum { STEPS = 37, BATCH = 3, DIM = 5, REALS = (STEPS + 1) * BATCH * DIM, BYTES = REALS * (int)sizeof(double) };

typedef struct {
  bppsa_scan_executor *executor;
  bppsa_scan_operands operands;
} scan;

static bppsa_status execute(void *context) {
  scan *s = context;
  return s->executor->execute(s->executor, &s->operands);
}

/* The gradients of a seed: g_n is the given one, the rest is poisoned before. */
static void run(const bppsa_device *device, const scan *s, const bppsa_graph *graph, uint64_t seed, double *found) {
  double *g = uniform(seed, REALS, 1);
  memset(g, 0xff, (size_t)(STEPS * BATCH * DIM) * sizeof *g);
  assert_int_equal(bppsa_memory_put(device, s->operands.gradients, g, BYTES), BPPSA_OK);
  assert_int_equal(graph != NULL ? bppsa_graph_launch(device, graph) : execute((void *)s), BPPSA_OK);
  assert_int_equal(bppsa_memory_get(device, found, s->operands.gradients, BYTES), BPPSA_OK);
  bppsa_free(g);
}

static void check(const bppsa_device *device, scan *s) {
  double plain[2][REALS], replayed[2][REALS];
  bppsa_graph *graph = NULL;
  for (uint64_t i = 0; i < 2; ++i) {
    memset(plain[i], 0, BYTES);
    run(device, s, NULL, 7 + i, plain[i]);
  }
  assert_int_equal(bppsa_graph_capture(device, execute, s, &graph), BPPSA_OK);
  assert_true(bppsa_graph_nodes(graph) >= 1);
  for (uint64_t i = 0; i < 2; ++i) {
    run(device, s, graph, 7 + i, replayed[i]);
    assert_memory_equal(replayed[i] + BATCH * DIM, plain[i] + BATCH * DIM,
                        BYTES - BATCH * DIM * (int)sizeof(double)); /* not g_0 */
  }
  assert_memory_not_equal(replayed[0], replayed[1], BYTES);
  bppsa_graph_destroy(device, graph);
}

static void replays(void **state) {
  (void)state;
  const bppsa_scan_algorithm algorithms[] = {BPPSA_SCAN_LINEAR, BPPSA_SCAN_BLELLOCH, BPPSA_SCAN_CHUNKED};
  bppsa_device *device = test_device(1);
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    bppsa_device_destroy(device);
    skip();
  }
  double *jt = uniform(3, STEPS * BATCH * DIM * DIM, 0.5);
  void *matrices = on_device(device, jt, STEPS * BATCH * DIM * DIM * (int64_t)sizeof *jt);
  for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; ++a) {
    bppsa_scan_config config = bppsa_scan_config_default();
    config.method.algorithm = algorithms[a];
    config.dtype = BPPSA_F64;
    config.jacobians = STEPS;
    config.batch = BATCH;
    config.dim = DIM;
    bppsa_scan_plan *plan = NULL;
    scan s = {.operands = {.batch = BATCH, .jt = matrices}};
    assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
    assert_int_equal(bppsa_scan_executor_create(plan, device, &s.executor), BPPSA_OK);
    assert_int_equal(bppsa_memory_alloc(device, BYTES, &s.operands.gradients), BPPSA_OK);
    check(device, &s);
    bppsa_memory_free(device, s.operands.gradients);
    bppsa_scan_executor_destroy(s.executor);
    bppsa_scan_plan_destroy(plan);
  }
  bppsa_memory_free(device, matrices);
  bppsa_free(jt);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(replays)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

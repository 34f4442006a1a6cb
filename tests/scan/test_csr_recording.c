/* On a GPU, emulated or real: scans of sparse chains as recordings. */
#include <stdio.h>

#include "core/compute/graph.h"
#include "tests/scan/csr_chain.h"

/* A scan of a chain by Blelloch, and what it runs on. */
typedef struct {
  const bppsa_device *device;
  chain *c;
  int64_t bytes; /* of the gradients */
  bppsa_csr_values values[LONGEST];
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
  bppsa_scan_operands operands;
  bppsa_graph *graph;
} scan;

static bppsa_status execute(void *context) {
  scan *s = context;
  return s->executor->execute(s->executor, &s->operands);
}

static void record(scan *s, chain *c, int64_t levels, const bppsa_device *device) {
  const bppsa_scan_config config = config_of(c, BPPSA_SCAN_BLELLOCH, levels, device);
  *s = (scan){.device = device, .c = c, .operands = {.batch = c->batch, .values = s->values}};
  s->bytes = c->offsets[c->n + 1] * c->batch * (int64_t)bppsa_dtype_size(c->dtype);
  move_values(c, device, s->values);
  assert_int_equal(bppsa_scan_plan_create(&config, &s->plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(s->plan, device, &s->executor), BPPSA_OK);
  s->operands.gradients = on_device(device, c->seed, s->bytes);
  assert_int_equal(bppsa_graph_capture(device, execute, s, &s->graph), BPPSA_OK);
}

static void free_scan(scan *s) {
  bppsa_graph_destroy(s->device, s->graph);
  bppsa_scan_executor_destroy(s->executor);
  bppsa_scan_plan_destroy(s->plan);
  bppsa_memory_free(s->device, s->operands.gradients);
  free_values(s->c, s->device, s->values);
}

/* New values and a new seed at the same addresses. */
static void renew(scan *s) {
  chain *c = s->c;
  const int64_t size = (int64_t)bppsa_dtype_size(c->dtype);
  for (int64_t t = 0; t < c->n; ++t) {
    const bppsa_csr_values moved = s->values[t];
    const int64_t count = c->patterns[t]->nnz * (moved.stride == 0 ? 1 : c->batch);
    bppsa_free(c->wide[t]);
    bppsa_free(c->typed[t]);
    set_values(c, t, moved.stride == 0);
    if (moved.data != NULL) {
      assert_int_equal(bppsa_memory_put(s->device, (void *)moved.data, c->typed[t], count * size), BPPSA_OK);
    }
  }
  bppsa_free(c->g);
  bppsa_free(c->seed);
  make_seed(c);
  assert_int_equal(bppsa_memory_put(s->device, s->operands.gradients, c->seed, s->bytes), BPPSA_OK);
}

/* Records work on all streams, and replays it with values that arrive later: in the order of queueing, and in other orders that
 * its events allow. */
static void test_recording(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  for (int i = 0; i < 6; ++i) {
    chain c;
    scan s;
    make_chain(&c, 12 + i, i % 2 == 0 ? BPPSA_F32 : BPPSA_F64, device);
    record(&s, &c, i % 3 == 0 ? -1 : i % 3, device);
    char *g = bppsa_alloc((size_t)s.bytes), *again = bppsa_alloc((size_t)s.bytes);
    assert_true(bppsa_graph_nodes(s.graph) > 0);
    for (int pass = 0; pass < 4; ++pass) {
      renew(&s);
      assert_int_equal(bppsa_graph_launch(device, s.graph), BPPSA_OK);
      assert_int_equal(bppsa_memory_get(device, g, s.operands.gradients, s.bytes), BPPSA_OK);
      assert_int_equal(bppsa_memory_put(device, s.operands.gradients, c.seed, s.bytes), BPPSA_OK);
      assert_int_equal(execute(&s), BPPSA_OK);
      assert_int_equal(bppsa_memory_get(device, again, s.operands.gradients, s.bytes), BPPSA_OK);
      assert_memory_equal(g, again, (size_t)s.bytes);
      assert_true(residual(c.dtype, g, c.g, c.offsets[c.n] * c.batch, sqrt((double)c.n)) < 30);
    }
    bppsa_free(g);
    bppsa_free(again);
    free_scan(&s);
    free_chain(&c);
  }
  bppsa_device_destroy(device);
}

enum { GROWING = 24 };

/* A chain of growing matrices, every fourth of them diagonal: the first level's products are of two kinds, the later
 * ones' of one. */
static void make_growing(chain *c, const bppsa_device *device) {
  *c = (chain){.n = GROWING, .batch = 2, .dtype = BPPSA_F32};
  for (int64_t t = 0, size = 3; t < c->n; ++t) {
    bppsa_op op = bppsa_op_default(t % 4 == 1 ? BPPSA_OPERATOR_RELU : BPPSA_OPERATOR_LINEAR);
    op.in[0] = size;
    size += t % 2 == 0; /* up to 15: all products have tiles of 16 */
    op.out_channels = size;
    assert_int_equal(bppsa_jacobian_create(&op, NULL, false, device, &c->j[t]), BPPSA_OK);
    c->plain[t] = *bppsa_jacobian_pattern(c->j[t]);
    c->plain[t].blocks = NULL; /* kinds diagonal and dense, a launch each */
    c->patterns[t] = &c->plain[t];
    set_values(c, t, false);
  }
  make_seed(c);
}

/* A launch for each kind of a level's products, and one for its mat-vecs; a chain's links are levels. */
static int64_t expected_launches(const bppsa_scan_plan *plan) {
  int64_t runs[64][BPPSA_PRODUCT_KINDS] = {{0}}, expected = 0; /* of mat-vecs in the place of `auto` */
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    if (!step.level->dead) {
      const bool mm = step.level->op == BPPSA_OP_MM;
      const bppsa_product_kind kind = mm ? bppsa_product_get_info(step.product)->kind : BPPSA_PRODUCT_AUTO;
      assert_true(!mm || kind == BPPSA_PRODUCT_DIAGONAL || kind == BPPSA_PRODUCT_DENSE);
      runs[step.level->level][kind] = step.level->length;
    }
  }
  for (int i = 0; i < 64 * BPPSA_PRODUCT_KINDS; ++i) {
    expected += runs[i / BPPSA_PRODUCT_KINDS][i % BPPSA_PRODUCT_KINDS];
  }
  return expected;
}

/* Small matrices take no time beside a launch, of 3 µs, so that the prediction counts launches: as if a level's products were all
 * of one kind. Those of the first level are of two. */
static void check_predicted(const scan *s, int64_t levels, int64_t launches) {
  const double predicted = bppsa_scan_plan_seconds(s->plan) / 3e-6 - (double)(launches - (levels != 0));
  if (!(predicted > 0 && predicted < 0.05)) {
    fail_msg("levels %lld: %g launches more than %lld", (long long)levels, predicted, (long long)launches);
  }
}

static void test_launches(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  for (int64_t levels = -1; levels < 4; ++levels) {
    chain c;
    scan s;
    make_growing(&c, device);
    record(&s, &c, levels, device);
    const int64_t expected = expected_launches(s.plan);
    assert_true(expected >= 8 && expected <= GROWING + 1);
    assert_int_equal(bppsa_graph_nodes(s.graph), expected);
    check_predicted(&s, levels, expected);
    free_scan(&s);
    free_chain(&c);
  }
  bppsa_device_destroy(device);
}

int main(void) {
  bppsa_device *device = test_device(1);
  const bool recordable = bppsa_device_get_kind(device) == BPPSA_CUDA;
  bppsa_device_destroy(device);
  if (!recordable) {
    puts("test_csr_recording: skipped, a processor records nothing");
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_recording), cmocka_unit_test(test_launches)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

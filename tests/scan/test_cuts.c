/* Scans some of whose Jacobians are 0, whatever their factors are (bppsa_scan_operands.cuts): beside the recurrence in float64 with
 * zeros in their place; the factors of such steps are NaN. And what refuses them. BPPSA_TEST_DEVICE names the device. */
#include <stdio.h>

#include "tests/core/helpers.h"
#include "tests/scan/scan_problem.h"
#include "tests/support/length.h"

/* One execution; returns the gradients, typed. */
static char *run_cuts(const problem *p, const bppsa_scan_plan *plan, const bppsa_device *device, const uint8_t *cuts,
                      bool alias) {
  const int64_t n = p->config.jacobians, width = (int64_t)bppsa_dtype_size(p->config.dtype), size = g_at(p, n + 1) * width,
                last = g_at(p, n) * width;
  bppsa_scan_executor *executor = NULL;
  operand_copies copies = copy_operands(p, device);
  bppsa_scan_operands operands = operands_of(p, &copies, alias);
  void *own_cuts = on_device(device, cuts, n * p->config.batch + 1);
  operands.cuts = own_cuts;
  char *g = bppsa_alloc((size_t)size);
  assert_non_null(g);
  memcpy(g, alias ? p->typed_u : p->seed, (size_t)size);
  memcpy(g + last, (const char *)p->seed + last, (size_t)(size - last));
  assert_int_equal(bppsa_memory_put(device, copies.gradients, g, size), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  assert_int_equal(executor->execute(executor, &operands), BPPSA_OK);
  assert_int_equal(bppsa_memory_get(device, g, copies.gradients, size), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_count(executor), BPPSA_OK);
  assert_int_equal(executor->redone, 0);
  bppsa_memory_free(device, own_cuts);
  free_operands(&copies);
  bppsa_scan_executor_destroy(executor);
  return g;
}

static void check_cuts(const bppsa_scan_config *base, double rate, uint64_t seed) {
  bppsa_device *one = test_device(1), *three = test_device(3);
  problem p = make_problem(base, seed);
  uint8_t *cuts = cut_steps(&p, rate, seed);
  const int64_t n = base->jacobians, width = (int64_t)bppsa_dtype_size(base->dtype), first = g_at(&p, base->input ? 0 : 1),
                count = g_at(&p, n + 1) - first;
  for (size_t v = 0; v < VARIANTS; ++v) {
    if (bppsa_device_get_kind(one) == BPPSA_CUDA && !is_drawn(8)) {
      continue; /* an emulation takes long */
    }
    const bppsa_scan_config c = with_variant(base, v);
    bppsa_scan_plan *plan = NULL;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    char *g = run_cuts(&p, plan, one, cuts, seed % 2 == 0 && c.affine), *other = run_cuts(&p, plan, three, cuts, false);
    const double r = residual(c.dtype, g + first * width, p.g + first, count, sqrt((double)n));
    if (!(r < 30)) {
      fail_msg("seed %d, %s, element %d, n %d, size %d, batch %d, rate %g: residual %g", (int)seed,
               bppsa_scan_algorithm_name(c.method.algorithm), (int)c.element, (int)n, (int)c.dim, (int)c.batch, rate, r);
    }
    assert_memory_equal(g + first * width, other + first * width, (size_t)(count * width)); /* as many threads as there are */
    bppsa_free(g);
    bppsa_free(other);
    bppsa_scan_plan_destroy(plan);
  }
  bppsa_free(cuts);
  free_problem(&p);
  bppsa_device_destroy(one);
  bppsa_device_destroy(three);
}

static void test_cuts(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 2, 3, 5, 10, 31, 67}, sizes[] = {1, 2, 5, 20}, batches[] = {1, 3, 17};
  static const double rates[] = {.02, .2, .6, 1};
  for (uint64_t seed = 0; seed < 56; ++seed) {
    bppsa_scan_config c = bppsa_scan_config_default();
    const bool pairs = seed % 2 == 1;
    c.element = pairs ? BPPSA_ELEMENT_PAIR : BPPSA_ELEMENT_RECURRENT;
    c.matrices = pairs ? 4 : 1 + (int64_t)(seed / 2 % 3);
    c.diagonal = pairs || seed % 4 == 0;
    c.dtype = seed / 2 % 2 == 0 ? BPPSA_F64 : BPPSA_F32;
    c.affine = seed % 3 != 0;
    c.input = seed % 5 < 3;
    c.jacobians = lengths[seed % 7];
    c.dim = sizes[seed / 3 % 4] * (pairs ? 2 : 1);
    c.batch = batches[seed / 2 % 3];
    check_cuts(&c, rates[seed / 4 % 4], seed);
  }
}

/* Elements that share no weights have none. */
static void test_refused(void **state) {
  (void)state;
  static const uint8_t cuts[3] = {0, 1, 0};
  bppsa_device *device = cpu_device(1);
  bppsa_scan_config c = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  c.element = BPPSA_ELEMENT_DENSE;
  c.jacobians = 3;
  c.dim = 4;
  problem p = make_problem(&c, 3);
  operand_copies copies = copy_operands(&p, device);
  bppsa_scan_operands operands = operands_of(&p, &copies, false);
  operands.cuts = cuts;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  assert_error(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT, "scan: cuts in a chain of dense elements, expected");
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  free_operands(&copies);
  free_problem(&p);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

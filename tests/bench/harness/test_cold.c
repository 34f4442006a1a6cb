/* Memory that is written so that caches are cold. */
#include "bench/harness/cold.h"
#include "core/base/alloc.h"
#include "tests/support/support.h"

/* The fewest copies that take twice as much as the cache; none where caches stay as they are. */
static void plans(void **state) {
  (void)state;
  static const int64_t expected[][3] = {{1000, 2000, 1}, {1000, 1999, 2}, {1000, 3, 667}, {1, 1, 2}, {1000, 5000, 1}, {0, 7, 0}};
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; ++i) {
    const bppsa_cold cold = bppsa_cold_plan(NULL, expected[i][0], expected[i][1]);
    assert_int_equal(cold.copies, expected[i][2]);
    assert_int_equal(cold.bytes, expected[i][1] * expected[i][2]);
    assert_true(cold.bytes >= 2 * cold.cache && cold.memory == NULL);
  }
}

/* A sweep writes every line, from the first to the last byte's, on any number of threads. */
static void sweeps(void **state) {
  (void)state;
  enum { INPUTS = 3 * 65536 + 130 };
  for (int threads = 1; threads <= 3; ++threads) {
    bppsa_device *device = cpu_device(threads);
    bppsa_cold cold = bppsa_cold_plan(device, 100000, INPUTS);
    assert_int_equal(bppsa_cold_sweep(&cold), BPPSA_OK); /* nothing is allocated yet */
    assert_int_equal(cold.sweeps, 0);
    assert_int_equal(bppsa_cold_create(&cold), BPPSA_OK);
    assert_int_equal(bppsa_cold_sweep(&cold), BPPSA_OK);
    assert_int_equal(bppsa_cold_sweep(&cold), BPPSA_OK);
    assert_int_equal(cold.sweeps, 2);
    for (int64_t i = 0; i < cold.bytes; i += 64) {
      assert_int_equal(((const unsigned char *)cold.memory)[i], 2);
    }
    bppsa_cold_destroy(&cold);
    bppsa_alloc_fail_at(1);
    assert_int_equal(bppsa_cold_create(&cold), BPPSA_ERR_MEMORY);
    bppsa_alloc_fail_at(0);
    bppsa_cold_destroy(&cold);
    bppsa_device_destroy(device);
  }
}

/* The processor's cache, where the system says how large it is. */
static void cache(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  int64_t bytes = 0;
  const bppsa_status status = bppsa_cold_cache(device, &bytes);
  assert_true((status == BPPSA_OK && bytes >= 1 << 14) || (status == BPPSA_ERR_UNSUPPORTED && bytes == 0));
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plans), cmocka_unit_test(sweeps), cmocka_unit_test(cache)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The queue of events: by time, then by priority, then by id, whatever the order in which they came. */
#include "schedule/schedule_internal.h"
#include "tests/core/helpers.h"

static void test_order(void **state) {
  (void)state;
  enum { TIMES = 3, PRIORITIES = 3, IDS = 5, COUNT = TIMES * PRIORITIES * IDS };
  static const int64_t steps[] = {1, 2, 7, 11, 44}; /* without a common divisor with 45 */
  for (size_t s = 0; s < sizeof steps / sizeof steps[0]; ++s) {
    bppsa_events queue = {0};
    assert_int_equal(bppsa_events_reserve(&queue, COUNT), BPPSA_OK);
    for (int64_t i = 0; i < COUNT; ++i) {
      const int64_t n = i * steps[s] % COUNT;
      bppsa_events_push(&queue, (bppsa_event){.time = 0.5 * (double)(n / (PRIORITIES * IDS)),
                                              .priority = n / IDS % PRIORITIES - 1,
                                              .id = (int32_t)(n % IDS)});
    }
    for (int64_t n = 0; n < COUNT; ++n) {
      const bppsa_event next = bppsa_events_pop(&queue);
      assert_true(next.time == 0.5 * (double)(n / (PRIORITIES * IDS)));
      assert_int_equal(next.priority, n / IDS % PRIORITIES - 1);
      assert_int_equal(next.id, n % IDS);
    }
    assert_int_equal(queue.count, 0);
    bppsa_free(queue.events);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

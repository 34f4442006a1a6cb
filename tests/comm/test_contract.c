/* Runs the cases that every transport must pass (cases.c) over threads, with 1 to 9 and with 17 ranks. */
#include "tests/comm/cases.h"

#include "core/base/alloc.h"
#include "tests/support/support.h"

static void every_case(void **state) {
  const comm_case *tried = *state;
  static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17};
  const int64_t blocks = bppsa_alloc_live();
  for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); ++i) {
    bppsa_comm_config config = bppsa_comm_config_default();
    config.ranks = sizes[i];
    bppsa_comm_outcome outcome;
    if (bppsa_comm_run(&config, tried->run, NULL, &outcome) != BPPSA_OK) {
      fail_msg("%s, %d ranks: %s", tried->name, sizes[i], bppsa_last_error());
    }
    assert_int_equal(outcome.rank, -1);
    assert_int_equal(outcome.left_behind, 0);
    assert_int_equal(bppsa_alloc_live(), blocks);
  }
}

int main(void) {
  enum { MOST_CASES = 64 };
  struct CMUnitTest tests[MOST_CASES];
  size_t count = 0;
  for (; comm_cases[count].name != NULL && count < MOST_CASES; ++count) {
    tests[count] = (struct CMUnitTest){comm_cases[count].name, every_case, NULL, NULL, (void *)&comm_cases[count]};
  }
  return _cmocka_run_group_tests("threads", tests, count, NULL, NULL);
}

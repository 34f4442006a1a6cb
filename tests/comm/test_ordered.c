/* Sums over numbered blocks: bad arguments, the number of vectors held, and failed allocations. A case in cases.c tests for every
 * transport that the sums' bits do not depend on the ranks. */
#include <string.h>

#include "comm/ordered.h"
#include "core/base/alloc.h"
#include "tests/comm/cases.h"
#include "tests/support/support.h"

enum { COUNT = 6 };

#define HAS(words) (strstr(bppsa_last_error(), words) != NULL)

static void assert_says(const char *words) {
  if (!HAS(words)) {
    fail_msg("the last error is \"%s\", expected \"%s\" in it", bppsa_last_error(), words);
  }
}

static bppsa_view view_of(double *data, int64_t count) {
  return bppsa_view_make(data, BPPSA_F64, 1, &count);
}

/* The tree adds each block once: the numbers have few bits, so every order of additions gives the same sum. */
static void adds_every_block_once(void **state) {
  (void)state;
  double vector[COUNT], result[COUNT];
  const bppsa_view view = view_of(vector, COUNT), total = view_of(result, COUNT);
  for (int64_t blocks = 1; blocks <= 70; ++blocks) {
    bppsa_ordered_sum *sum = NULL;
    assert_int_equal(bppsa_ordered_sum_create(NULL, blocks, NULL, BPPSA_F64, COUNT, 0, &sum), BPPSA_OK);
    int most = 1; /* ceil(log2(blocks)) + 1 */
    for (int64_t reach = 1; reach < blocks; reach *= 2) {
      ++most;
    }
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t i = 0; i < COUNT; ++i) {
        vector[i] = (double)(b * b + i);
      }
      assert_int_equal(bppsa_ordered_sum_add(sum, b, &view), BPPSA_OK);
    }
    assert_int_equal(bppsa_ordered_sum_vectors(sum), 1);
    assert_in_range(bppsa_ordered_sum_most_vectors(sum), 1, most);
    assert_int_equal(bppsa_ordered_sum_finish(sum, &total), BPPSA_OK);
    const double squares = (double)((blocks - 1) * blocks * (2 * blocks - 1) / 6);
    for (int64_t i = 0; i < COUNT; ++i) {
      assert_true(result[i] == squares + (double)(blocks * i));
    }
    bppsa_ordered_sum_destroy(sum);
  }
}

/* The tree adds (a + b) + (c + d): these terms give another sum in any other order. */
static void adds_along_the_tree(void **state) {
  (void)state;
  const double terms[5] = {1e16, 1.0, -1e16, 1.0, 3.0};
  const double expected = ((terms[0] + terms[1]) + (terms[2] + terms[3])) + terms[4];
  assert_true(expected != (((terms[0] + terms[1]) + terms[2]) + terms[3]) + terms[4]);
  static const int64_t orders[3][5] = {{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 0, 4, 1, 3}};
  for (int o = 0; o < 3; ++o) {
    bppsa_ordered_sum *sum = NULL;
    double number = 0;
    const bppsa_view view = view_of(&number, 1);
    assert_int_equal(bppsa_ordered_sum_create(NULL, 5, NULL, BPPSA_F64, 1, 0, &sum), BPPSA_OK);
    for (int i = 0; i < 5; ++i) {
      number = terms[orders[o][i]];
      assert_int_equal(bppsa_ordered_sum_add(sum, orders[o][i], &view), BPPSA_OK);
    }
    assert_int_equal(bppsa_ordered_sum_finish(sum, &view), BPPSA_OK);
    assert_true(number == expected);
    bppsa_ordered_sum_destroy(sum);
  }
}

static void refused(void **state) {
  (void)state;
  bppsa_ordered_sum *sum = NULL;
  const int32_t owners[2] = {0, 1};
  assert_int_equal(bppsa_ordered_sum_create(NULL, 0, NULL, BPPSA_F64, 1, 0, &sum), BPPSA_ERR_ARGUMENT);
  assert_says("ordered sum of 0 blocks");
  assert_int_equal(bppsa_ordered_sum_create(NULL, 1, NULL, BPPSA_F64, -1, 0, &sum), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_ordered_sum_create(NULL, 1, NULL, BPPSA_F64, 1, BPPSA_COMM_MAX_TAG + 1, &sum), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_ordered_sum_create(NULL, 1, NULL, BPPSA_I64, 1, 0, &sum), BPPSA_ERR_UNSUPPORTED);
  assert_says("dtype i64, expected f32 or f64");
  assert_int_equal(bppsa_ordered_sum_create(NULL, 2, owners, BPPSA_F64, 1, 0, &sum), BPPSA_ERR_ARGUMENT);
  assert_says("block 1 on rank 1, expected 0 .. 0");
  assert_null(sum);
  double numbers[COUNT] = {0};
  const bppsa_view fits = view_of(numbers, COUNT), shorter = view_of(numbers, COUNT - 1);
  assert_int_equal(bppsa_ordered_sum_create(NULL, 3, NULL, BPPSA_F64, COUNT, 0, &sum), BPPSA_OK);
  assert_int_equal(bppsa_ordered_sum_add(sum, 3, &fits), BPPSA_ERR_ARGUMENT);
  assert_says("no such block");
  assert_int_equal(bppsa_ordered_sum_add(sum, 0, &shorter), BPPSA_ERR_SHAPE);
  assert_says("5 elements of f64, expected 6 of f64");
  assert_int_equal(bppsa_ordered_sum_add(sum, 0, &fits), BPPSA_OK);
  assert_int_equal(bppsa_ordered_sum_add(sum, 0, &fits), BPPSA_ERR_ARGUMENT);
  assert_says("it was added before");
  bppsa_comm_request *request = NULL;
  assert_int_equal(bppsa_ordered_sum_ibroadcast(sum, &fits, &request), BPPSA_ERR_ARGUMENT);
  assert_says("ordered sum: a broadcast before its reduction is done, expected it afterwards");
  assert_null(request);
  assert_int_equal(bppsa_ordered_sum_add(sum, 2, &fits), BPPSA_OK);
  assert_int_equal(bppsa_ordered_sum_finish(sum, &fits), BPPSA_ERR_ARGUMENT);
  assert_says("block 1 of rank 0 was not added");
  bppsa_ordered_sum_destroy(sum); /* while it holds vectors */
  bppsa_ordered_sum_destroy(NULL);
}

/* Blocks belong to the ranks that the caller names, the first one too. */
static bppsa_status add_named(bppsa_comm *comm, void *context) {
  static const int32_t owners[] = {2, 0, 1, 2, 0};
  enum { BLOCKS = sizeof owners / sizeof owners[0] };
  (void)context;
  bppsa_ordered_sum *sum = NULL;
  double number = 0;
  const bppsa_view view = view_of(&number, 1);
  BPPSA_TRY(bppsa_ordered_sum_create(comm, BLOCKS, owners, BPPSA_F64, 1, 0, &sum));
  for (int64_t b = 0; b < BLOCKS; ++b) {
    number = (double)(1 << b);
    const bppsa_status added = bppsa_ordered_sum_add(sum, b, &view);
    CHECK(added == (owners[b] == bppsa_comm_rank(comm) ? BPPSA_OK : BPPSA_ERR_ARGUMENT));
  }
  BPPSA_TRY(bppsa_ordered_sum_finish(sum, &view));
  CHECK(number == (1 << BLOCKS) - 1);
  bppsa_ordered_sum_destroy(sum);
  return BPPSA_OK;
}

static void blocks_have_owners(void **state) {
  (void)state;
  const bppsa_comm_config config = {.ranks = 3, .timeout = 60};
  if (bppsa_comm_run(&config, add_named, NULL, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

static bppsa_status add_all(bppsa_comm *comm, void *context) {
  (void)context;
  enum { BLOCKS = 7 };
  double numbers[COUNT] = {1, 2, 3, 4, 5, 6};
  const bppsa_view view = view_of(numbers, COUNT);
  bppsa_ordered_sum *sum = NULL;
  bppsa_status status = bppsa_ordered_sum_create(comm, BLOCKS, NULL, BPPSA_F64, COUNT, 0, &sum);
  for (int64_t b = 0; b < BLOCKS && status == BPPSA_OK; ++b) {
    const bppsa_status added = bppsa_ordered_sum_add(sum, b, &view);
    status = added == BPPSA_ERR_ARGUMENT && HAS("it belongs to another rank") ? BPPSA_OK : added;
  }
  status = status == BPPSA_OK ? bppsa_ordered_sum_finish(sum, &view) : status;
  bppsa_ordered_sum_destroy(sum);
  CHECK(status != BPPSA_OK || numbers[5] == 42);
  return status;
}

static void memory_runs_out(void **state) {
  (void)state;
  const int64_t blocks = bppsa_alloc_live();
  const bppsa_comm_config config = {.ranks = 3, .timeout = 60};
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t call = 1;
  for (; status != BPPSA_OK && call < 1000; ++call) {
    bppsa_alloc_fail_once(call);
    status = bppsa_comm_run(&config, add_all, NULL, NULL);
    assert_int_equal(bppsa_alloc_live(), blocks);
    if (status != BPPSA_OK) {
      assert_int_equal(status, BPPSA_ERR_MEMORY);
    }
  }
  bppsa_alloc_fail_at(0);
  assert_in_range(call, 15, 999);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(adds_every_block_once), cmocka_unit_test(adds_along_the_tree),
                                     cmocka_unit_test(blocks_have_owners), cmocka_unit_test(refused),
                                     cmocka_unit_test(memory_runs_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

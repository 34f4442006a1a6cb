/* The allocator: alignment, counters, overflow, failure injection. */
#include <pthread.h>

#include "tests/core/helpers.h"

static void aligned_and_counted(void **state) {
  (void)state;
  const int64_t blocks = bppsa_alloc_live();
  const int64_t bytes = bppsa_alloc_live_bytes();
  void *pointers[200];
  int64_t total = 0;
  for (int i = 0; i < 200; ++i) {
    pointers[i] = bppsa_alloc((size_t)i * 7);
    assert_non_null(pointers[i]);
    assert_int_equal((uintptr_t)pointers[i] % BPPSA_ALIGNMENT, 0);
    memset(pointers[i], i, (size_t)i * 7);
    total += i * 7;
  }
  assert_ptr_not_equal(pointers[0], pointers[1]);
  assert_int_equal(bppsa_alloc_live(), blocks + 200);
  assert_int_equal(bppsa_alloc_live_bytes(), bytes + total);
  for (int i = 0; i < 200; ++i) {
    for (int j = 0; j < i * 7; ++j) {
      assert_int_equal(((unsigned char *)pointers[i])[j], i);
    }
    bppsa_free(pointers[i]);
  }
  bppsa_free(NULL);
  assert_int_equal(bppsa_alloc_live(), blocks);
  assert_int_equal(bppsa_alloc_live_bytes(), bytes);
}

static void calloc_is_zero_and_checked(void **state) {
  (void)state;
  unsigned char *zeros = bppsa_calloc(1000, 3);
  assert_non_null(zeros);
  for (int i = 0; i < 3000; ++i) {
    assert_int_equal(zeros[i], 0);
  }
  bppsa_free(zeros);
  void *empty = bppsa_calloc(0, 8);
  assert_non_null(empty);
  bppsa_free(empty);
  static const struct {
    int64_t count;
    size_t size;
  } bad[] = {{-1, 8}, {INT64_MAX, 2}, {INT64_MAX / 8 + 1, 8}, {2, SIZE_MAX}, {INT64_MAX, 1}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    assert_null(bppsa_calloc(bad[i].count, bad[i].size));
    assert_message("out of memory");
  }
  assert_null(bppsa_alloc(SIZE_MAX));
  assert_null(bppsa_alloc((size_t)PTRDIFF_MAX));
  assert_message("out of memory: 9223372036854775807 bytes");
}

static void realloc_keeps_contents(void **state) {
  (void)state;
  const int64_t blocks = bppsa_alloc_live();
  char *text = bppsa_realloc(NULL, 4);
  assert_non_null(text);
  memcpy(text, "abc", 4);
  text = bppsa_realloc(text, 100000);
  assert_string_equal(text, "abc");
  text = bppsa_realloc(text, 2);
  assert_memory_equal(text, "ab", 2);
  assert_int_equal(bppsa_alloc_live(), blocks + 1);
  bppsa_alloc_fail_at(1);
  assert_null(bppsa_realloc(text, 1000));
  bppsa_alloc_fail_at(0);
  assert_memory_equal(text, "ab", 2);
  bppsa_free(text);
  assert_int_equal(bppsa_alloc_live(), blocks);
}

static void grows_when_full(void **state) {
  (void)state;
  const int64_t blocks = bppsa_alloc_live();
  int32_t *numbers = NULL;
  int64_t room = 0;
  for (int32_t i = 0; i < 129; ++i) {
    assert_int_equal(bppsa_grow(&numbers, i, &room, sizeof *numbers), BPPSA_OK);
    assert_true(room > i);
    numbers[i] = i;
  }
  assert_int_equal(room, 256);
  bppsa_alloc_fail_at(1);
  assert_int_equal(bppsa_grow(&numbers, 256, &room, sizeof *numbers), BPPSA_ERR_MEMORY);
  bppsa_alloc_fail_at(0);
  assert_int_equal(room, 256);
  for (int32_t i = 0; i < 129; ++i) {
    assert_int_equal(numbers[i], i);
  }
  bppsa_free(numbers);
  assert_int_equal(bppsa_alloc_live(), blocks);
}

static void strdup_copies(void **state) {
  (void)state;
  const char original[] = "some text";
  char *copy = bppsa_strdup(original);
  assert_string_equal(copy, original);
  assert_ptr_not_equal(copy, original);
  bppsa_free(copy);
}

static void products(void **state) {
  (void)state;
  static const struct {
    int64_t a, b;
    bool fits;
  } cases[] = {{0, 0, true},
               {0, INT64_MAX, true},
               {INT64_MAX, 0, true},
               {1, INT64_MAX, true},
               {2, INT64_MAX / 2, true},
               {2, INT64_MAX / 2 + 1, false},
               {(int64_t)1 << 32, (int64_t)1 << 31, false},
               {(int64_t)1 << 31, ((int64_t)1 << 32) - 1, true},
               {-1, 1, false},
               {1, -1, false},
               {INT64_MIN, -1, false},
               {INT64_MAX, INT64_MAX, false}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    int64_t product = -7;
    assert_int_equal(bppsa_mul(cases[i].a, cases[i].b, &product), cases[i].fits);
    assert_int_equal(product, cases[i].fits ? cases[i].a * cases[i].b : -7);
  }
}

static void injection(void **state) {
  (void)state;
  for (int mode = 0; mode < 2; ++mode) {
    (mode == 0 ? bppsa_alloc_fail_at : bppsa_alloc_fail_once)(3);
    for (int call = 1; call <= 5; ++call) {
      void *pointer = bppsa_alloc(8);
      const bool fails = mode == 0 ? call >= 3 : call == 3;
      assert_int_equal(pointer == NULL, fails);
      bppsa_free(pointer);
      assert_int_equal(bppsa_alloc_calls(), call);
    }
    assert_message("injected");
  }
  bppsa_alloc_fail_at(0);
  assert_int_equal(bppsa_alloc_calls(), 0);
  void *pointer = bppsa_alloc(8);
  assert_non_null(pointer);
  bppsa_free(pointer);
  assert_int_equal(bppsa_alloc_calls(), 1);
}

static void *allocate_much(void *seed) {
  for (size_t i = 0; i < 2000; ++i) {
    unsigned char *pointer = bppsa_calloc((int64_t)(i % 97), 1 + (size_t)(uintptr_t)seed);
    bppsa_free(bppsa_realloc(pointer, i % 13));
  }
  return NULL;
}

static void threads(void **state) {
  (void)state;
  const int64_t blocks = bppsa_alloc_live();
  bppsa_alloc_fail_at(0);
  pthread_t thread[8];
  for (uintptr_t i = 0; i < 8; ++i) {
    assert_int_equal(pthread_create(&thread[i], NULL, allocate_much, (void *)i), 0);
  }
  for (int i = 0; i < 8; ++i) {
    pthread_join(thread[i], NULL);
  }
  assert_int_equal(bppsa_alloc_live(), blocks);
  assert_int_equal(bppsa_alloc_calls(), 8 * 2000 * 2);
}

static void *allocate_on_account(void *account) {
  bppsa_alloc_account_use(account);
  void *block = bppsa_alloc(1000);
  bppsa_free(bppsa_alloc(5000));
  return block;
}

static void accounts(void **state) {
  (void)state;
  const int64_t blocks = bppsa_alloc_live();
  bppsa_alloc_account *accounts[2] = {bppsa_alloc_account_create(), bppsa_alloc_account_create()};
  bppsa_free(bppsa_alloc(100)); /* charged to none */
  bppsa_alloc_account_use(accounts[0]);
  void *mine = bppsa_alloc(70);
  bppsa_alloc_account_use(NULL);
  pthread_t thread;
  void *theirs = NULL;
  assert_int_equal(pthread_create(&thread, NULL, allocate_on_account, accounts[1]), 0);
  assert_int_equal(pthread_join(thread, &theirs), 0);
  assert_int_equal(bppsa_alloc_account_bytes(accounts[0]), 70);
  assert_int_equal(bppsa_alloc_account_peak(accounts[0]), 70);
  assert_int_equal(bppsa_alloc_account_bytes(accounts[1]), 1000);
  assert_int_equal(bppsa_alloc_account_peak(accounts[1]), 6000);
  bppsa_free(theirs); /* by another thread: the account that was charged is relieved */
  assert_int_equal(bppsa_alloc_account_bytes(accounts[1]), 0);
  bppsa_alloc_account_destroy(accounts[0]); /* before the block that is charged to it */
  bppsa_free(mine);
  bppsa_alloc_account_destroy(accounts[1]);
  bppsa_alloc_account_destroy(NULL);
  assert_int_equal(bppsa_alloc_live(), blocks);
  bppsa_alloc_fail_at(1);
  assert_null(bppsa_alloc_account_create());
  bppsa_alloc_fail_at(0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(aligned_and_counted),
                                     cmocka_unit_test(calloc_is_zero_and_checked),
                                     cmocka_unit_test(realloc_keeps_contents),
                                     cmocka_unit_test(grows_when_full),
                                     cmocka_unit_test(strdup_copies),
                                     cmocka_unit_test(products),
                                     cmocka_unit_test(injection),
                                     cmocka_unit_test(threads),
                                     cmocka_unit_test(accounts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Listing directories. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/directory.h"
#include "tests/support/io_fault.h"
#include "tests/support/support.h"

#define PLACE "directory_test"

static void test_order(void **state) {
  (void)state;
  bppsa_directory list = {0};
  assert_int_equal(bppsa_directory_list(PLACE, &list), BPPSA_OK);
  assert_int_equal(list.count, 40);
  for (int i = 0; i < 40; ++i) {
    char expected[16];
    snprintf(expected, sizeof expected, "%s%03d", i == 0 ? "." : "f", i);
    assert_string_equal(list.names[i], expected);
  }
  bppsa_directory_free(&list);
  bppsa_directory_free(&list);
}

static void test_failures(void **state) {
  (void)state;
  const int64_t live = bppsa_alloc_live(), open = bppsa_io_open_count();
  bppsa_directory list = {.count = -7};
  assert_int_equal(bppsa_directory_list("no/such/place", &list), BPPSA_ERR_IO);
  assert_non_null(strstr(bppsa_last_error(), "no/such/place: cannot list the directory: No such file"));
  assert_int_equal(bppsa_directory_list(PLACE "/f003", &list), BPPSA_ERR_IO);
  io_fault fault;
  io_fault_set(&fault, 1, false, EIO);
  assert_int_equal(bppsa_directory_list(PLACE, &list), BPPSA_ERR_IO);
  io_fault_clear();
  assert_int_equal(list.count, -7);
  bppsa_status status = BPPSA_ERR_MEMORY;
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    bppsa_alloc_fail_at(call);
    status = bppsa_directory_list(PLACE, &list);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || (status == BPPSA_ERR_MEMORY && bppsa_alloc_live() == live));
    assert_true(call < 100);
  }
  bppsa_directory_free(&list);
  assert_int_equal(bppsa_alloc_live(), live);
  assert_int_equal(bppsa_io_open_count(), open);
}

static int make_place(void **state) {
  (void)state;
  (void)mkdir(PLACE, 0777);
  for (int i = 39; i >= 0; --i) {
    char path[64];
    snprintf(path, sizeof path, PLACE "/%s%03d", i == 0 ? "." : "f", i);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
  }
  return 0;
}

static int remove_place(void **state) {
  (void)state;
  return system("rm -rf " PLACE);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, make_place, remove_place);
}

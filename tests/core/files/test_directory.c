/* Listing directories. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/files/directory.h"
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

static void test_measure(void **state) {
  (void)state;
  static const char bytes[] = "12345";
  int64_t size = -1, files = -1;
  assert_int_equal(mkdir("directory_measured", 0755), 0);
  assert_int_equal(mkdir("directory_measured/a", 0755), 0);
  for (int i = 0; i < 3; ++i) {
    char path[64];
    snprintf(path, sizeof path, "directory_measured/%s%d", i == 0 ? "" : "a/", i);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, sizeof bytes - 1, file), sizeof bytes - 1);
    assert_int_equal(fclose(file), 0);
  }
  assert_false(bppsa_directory_measure("directory_measured", 1, &size, &files)); /* a directory in it */
  assert_false(bppsa_directory_measure("no/such/place", 2, &size, &files));
  assert_int_equal(size, -1);
  assert_true(bppsa_directory_measure("directory_measured", 2, &size, &files));
  assert_true(size == 15 && files == 3);
  assert_true(bppsa_directory_measure("directory_measured/0", 0, &size, &files));
  assert_true(size == 5 && files == 1);
  assert_int_equal(system("rm -rf directory_measured"), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_failures),
                                     cmocka_unit_test(test_measure)};
  return cmocka_run_group_tests(tests, make_place, remove_place);
}

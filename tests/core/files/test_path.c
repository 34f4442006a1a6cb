/* Paths that are to be written, looked at before the work. */
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/path.h"
#include "tests/core/helpers.h"

/* A directory's name of so many characters. */
static void long_path(char *path, size_t length) {
  memset(path, 'd', length);
  memcpy(path + length, "/file", 6);
}

static void too_long(void **state) {
  (void)state;
  char path[8192];
  long_path(path, 4096);
  assert_error(bppsa_path_check_file(path), BPPSA_ERR_ARGUMENT, "a path of 4101 characters, expected at most 4095");
  assert_error(bppsa_path_check_folder(path), BPPSA_ERR_ARGUMENT, "a path of 4101 characters, expected at most 4095");
  long_path(path, 4095); /* as a directory it fits; the system refuses its name, and the message is cut */
  assert_error(bppsa_path_check_file(path), BPPSA_ERR_ARGUMENT, "dddd");
  assert_error(bppsa_path_check_folder(path), BPPSA_ERR_ARGUMENT, "a path of 4100 characters, expected at most 4095");
}

static void files_and_folders(void **state) {
  (void)state;
  assert_int_equal(mkdir("path_test", 0700), 0);
  put_file("path_test/file", "x", 1);
  assert_int_equal(bppsa_path_check_file("path_test/file"), BPPSA_OK);
  assert_int_equal(bppsa_path_check_file("path_test/new"), BPPSA_OK);
  assert_int_equal(bppsa_path_check_folder("path_test"), BPPSA_OK);
  assert_int_equal(bppsa_path_check_folder("path_test/new//"), BPPSA_OK);
  assert_error(bppsa_path_check_file("path_test"), BPPSA_ERR_ARGUMENT, "path_test: ");
  assert_error(bppsa_path_check_file("path_test/new/"), BPPSA_ERR_ARGUMENT, "path_test/new/: ");
  assert_error(bppsa_path_check_file(""), BPPSA_ERR_ARGUMENT, "expected the path of a new or a regular file");
  assert_error(bppsa_path_check_folder("path_test/file"), BPPSA_ERR_ARGUMENT, "path_test/file: ");
  assert_error(bppsa_path_check_file("path_test/none/file"), BPPSA_ERR_ARGUMENT,
               "path_test/none/file: cannot write into directory 'path_test/none', expected one that exists and is writable");
  assert_int_equal(chmod("path_test", 01777), 0); /* a file of one's own may be replaced in a sticky directory */
  assert_int_equal(bppsa_path_check_file("path_test/file"), BPPSA_OK);
  char text[8] = "";
  assert_int_equal(get_file("path_test/file", text, sizeof text - 1), 1);
  assert_int_equal(unlink("path_test/file"), 0);
  assert_int_equal(rmdir("path_test"), 0); /* proofs left nothing in it */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(too_long), cmocka_unit_test(files_and_folders)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Result files whose place fails at last are kept elsewhere, and the message says where. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/files/rescue.h"
#include "tests/core/helpers.h"
#include "tests/support/io_fault.h"
#include "tests/support/rescue_folder.h"

#define FOLDER "rescue_test"
#define TARGET FOLDER "/results.json"

static int setup(void **state) {
  (void)state;
  fresh_folder(FOLDER);
  rescue_to("rescue_tmp");
  return 0;
}

static int teardown(void **state) {
  (void)state;
  remove_folder(FOLDER);
  remove_folder("rescue_tmp");
  return unsetenv("TMPDIR");
}

/* The path behind `words` in the last error, up to a blank or the end; false: the words are not there. */
static bool find_place(const char *words, char *place, size_t size) {
  const char *found = strstr(bppsa_last_error(), words);
  if (found != NULL) {
    snprintf(place, size, "%.*s", (int)strcspn(found + strlen(words), " ;,"), found + strlen(words));
  }
  return found != NULL;
}

static void assert_holds(const char *path, const char *expected) {
  char text[32] = "";
  assert_int_equal(get_file(path, text, sizeof text - 1), (long)strlen(expected));
  assert_string_equal(text, expected);
}

static const bppsa_result_text content = {"results", 7};

static bppsa_status save_one(void) {
  return bppsa_save_results(1, &(bppsa_result_file){TARGET, bppsa_save_text, &content});
}

/* Whichever call fails: the results are in their place, or where the message says. */
static void nothing_is_lost(void **state) {
  (void)state;
  static const int errors[] = {ENOSPC, EDQUOT, EIO};
  bool done = false;
  int rescued = 0;
  for (int64_t call = 1; !done; ++call) {
    setup(NULL);
    const int64_t live = bppsa_alloc_live(), open_files = bppsa_io_open_count();
    char place[300] = TARGET;
    io_fault fault;
    io_fault_set(&fault, call, false, errors[call % 3]);
    const bppsa_status status = save_one();
    io_fault_clear();
    done = fault.failed == 0;
    assert_int_equal(bppsa_alloc_live(), live);
    assert_int_equal(bppsa_io_open_count(), open_files);
    if (status != BPPSA_OK) {
      struct stat found;
      assert_int_equal(status, BPPSA_ERR_IO);
      assert_message(TARGET ": ");
      assert_message(strerror(errors[call % 3]));
      assert_true(find_place("; it is in ", place, sizeof place));
      assert_true(strncmp(place, rescue_folder, strlen(rescue_folder)) == 0 && strstr(place, "/bppsa-rescued-") != NULL);
      ++rescued;
      *strrchr(place, '/') = '\0'; /* the directory is this user's alone */
      assert_int_equal(stat(place, &found), 0);
      assert_int_equal(found.st_mode & 0777, 0700);
      place[strlen(place)] = '/';
    }
    assert_holds(place, "results");
    assert_int_equal(entries("rescue_tmp"), status == BPPSA_OK ? 0 : 1);
  }
  assert_true(rescued >= 6); /* open, write, fsync, close, rename, open and fsync of the directory */
}

/* The first place that works is taken; if there is none, the message says that too, and nothing is left. */
static void places(void **state) {
  (void)state;
  char place[300] = "";
  remove_folder(FOLDER);
  assert_int_equal(setenv("TMPDIR", "/no/such/directory", 1), 0);
  assert_int_equal(save_one(), BPPSA_ERR_IO);
  assert_true(find_place("; it is in ", place, sizeof place));
  assert_true(strncmp(place, "/tmp/bppsa-rescued-", 19) == 0 && strcmp(strrchr(place, '/'), "/results.json") == 0);
  assert_holds(place, "results");
  assert_int_equal(unlink(place), 0);
  *strrchr(place, '/') = '\0';
  assert_int_equal(rmdir(place), 0);
  assert_int_equal(setenv("TMPDIR", rescue_folder, 1), 0);
  io_fault fault;
  io_fault_set(&fault, 1, true, ENOSPC);
  assert_int_equal(save_one(), BPPSA_ERR_IO);
  io_fault_clear();
  assert_message(TARGET ": cannot create a file in its directory: No space left on device; nor can it be kept in TMPDIR or /tmp");
  assert_int_equal(entries("rescue_tmp"), 0);
}

/* Fails in the folder that TMPDIR names, whose file system may be full too. */
static bppsa_status save_elsewhere(const char *path, const void *context) {
  return strncmp(path, rescue_folder, strlen(rescue_folder)) == 0 ? bppsa_fail(BPPSA_ERR_IO, "%s: full, too", path)
                                                                  : bppsa_save_text(path, context);
}

/* A folder in which the file cannot be written is left as it was, and the next place is tried. */
static void full_places(void **state) {
  (void)state;
  char place[300] = "";
  assert_int_equal(bppsa_save_results(1, &(bppsa_result_file){FOLDER "/none/a", save_elsewhere, &content}), BPPSA_ERR_IO);
  assert_true(
      find_place("/none/a: cannot create a file in its directory: No such file or directory; it is in ", place, sizeof place));
  assert_true(strncmp(place, "/tmp/bppsa-rescued-", 19) == 0);
  assert_holds(place, "results");
  assert_int_equal(unlink(place), 0);
  *strrchr(place, '/') = '\0';
  assert_int_equal(rmdir(place), 0);
  assert_int_equal(entries("rescue_tmp"), 0);
}

/* All files are tried, and all failures are said. */
static void several(void **state) {
  (void)state;
  static const bppsa_result_text second = {"second", 6}, third = {"third", 5};
  const bppsa_result_file files[] = {{FOLDER "/none/a", bppsa_save_text, &content},
                                     {TARGET, bppsa_save_text, &second},
                                     {NULL, bppsa_save_text, NULL},
                                     {FOLDER "/none/c", bppsa_save_text, &third}};
  char place[300] = "";
  assert_int_equal(bppsa_save_results(4, files), BPPSA_ERR_IO);
  assert_holds(TARGET, "second");
  assert_true(
      find_place("/none/a: cannot create a file in its directory: No such file or directory; it is in ", place, sizeof place));
  assert_holds(place, "results");
  assert_true(
      find_place("/none/c: cannot create a file in its directory: No such file or directory; it is in ", place, sizeof place));
  assert_holds(place, "third");
  assert_int_equal(entries("rescue_tmp"), 2);
  assert_int_equal(bppsa_save_results(2, files + 1), BPPSA_OK);
}

/* A long message is cut, a place is not. */
static void long_messages(void **state) {
  (void)state;
  char path[600], place[300] = "";
  const size_t folder = strlen(FOLDER);
  memcpy(path, FOLDER, folder);
  memset(path + folder, '/', 480);
  memcpy(path + folder + 480, "none/file", 10);
  assert_int_equal(bppsa_save_results(1, &(bppsa_result_file){path, bppsa_save_text, &content}), BPPSA_ERR_IO);
  assert_true(find_place("; it is in ", place, sizeof place));
  assert_holds(place, "results");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(nothing_is_lost, setup, teardown), cmocka_unit_test_setup_teardown(places, setup, teardown),
      cmocka_unit_test_setup_teardown(full_places, setup, teardown), cmocka_unit_test_setup_teardown(several, setup, teardown),
      cmocka_unit_test_setup_teardown(long_messages, setup, teardown)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

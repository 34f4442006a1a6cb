/* What a user would lose: results of long work whose place fails while the work goes on are kept elsewhere. */
#include <errno.h>
#include <unistd.h>

#include "tests/cli/run_cli.h"
#include "tests/support/io_fault.h"
#include "tests/support/rescue_folder.h"

#define SMALL "train rnn --seq-len 4 --hidden 2 --samples 32 --batch 16 --threads 1 "

static void prepare(void) {
  rescue_to("tmp");
  fresh_folder("d");
}

static int setup(void **state) {
  assert_int_equal(enter_directory(state), 0);
  prepare();
  assert_runs(SMALL "--iterations 5 --save-weights right.w");
  return 0;
}

/* The path behind `words` in what went to standard error. */
static const char *place_in(const run_result *result, const char *words) {
  static char place[300];
  const char *found = strstr(result->err, words);
  if (found == NULL) {
    fail_msg("expected a message with '%s', found '%s'", words, result->err);
  }
  snprintf(place, sizeof place, "%.*s", (int)strcspn(found + strlen(words), " ;,\n"), found + strlen(words));
  assert_true(strncmp(place, rescue_folder, strlen(rescue_folder)) == 0);
  return place;
}

/* Each call fails once, from the check of the paths to the end: exit code 2 and nothing done, or all is done and nothing lost. */
static void test_weights(void **state) {
  (void)state;
  bool done = false;
  int before = 0, rescued = 0;
  for (int64_t call = 1; !done; ++call) {
    io_fault fault;
    prepare();
    io_fault_set(&fault, call, false, ENOSPC);
    run_result result = run(SMALL "--iterations 5 --save-weights d/w");
    io_fault_clear();
    done = fault.failed == 0;
    if (result.code == 2) {
      ++before;
      assert_one_error(&result, "--save-weights: d/w: ");
      assert_string_equal(result.out, "");
      assert_int_equal(entries("d") + entries("tmp"), 0);
    } else if (result.code == 1) {
      ++rescued;
      assert_equal_files("right.w", place_in(&result, "; it is in "));
    } else {
      assert_int_equal(result.code, 0);
      assert_equal_files("right.w", "d/w");
    }
    release(&result);
  }
  assert_true(before == 4 && rescued >= 7);
}

/* The checkpoint with all that was done is rescued, and its directory is one to go on from. */
static void test_checkpoints(void **state) {
  (void)state;
  bool done = false;
  int rescued = 0;
  for (int64_t call = 1; !done; ++call) {
    io_fault fault;
    prepare();
    io_fault_set(&fault, call, false, ENOSPC);
    run_result result = run(SMALL "--iterations 2 --checkpoint d");
    io_fault_clear();
    done = fault.failed == 0;
    if (result.code == 1 && strstr(result.err, "; it is in ") != NULL) {
      char folder[300];
      ++rescued;
      snprintf(folder, sizeof folder, "%s", place_in(&result, "; it is in "));
      *strrchr(folder, '/') = '\0';
      assert_runs(SMALL "--iterations 5 --checkpoint %s --resume --save-weights w", folder);
      assert_equal_files("right.w", "w");
    }
    release(&result);
  }
  assert_true(rescued >= 9); /* open, write, fsync, close, renames, open and fsync of the directory */
}

/* Removes the directory d once the first step has been taken. */
static int remove_later(void *context, bppsa_io_call call) {
  int64_t *writes = context;
  if (call == BPPSA_IO_WRITE && ++*writes == 3) { /* the proofs of two files, then the log */
    remove_folder("d");
  }
  return 0;
}

static void test_removed_directory(void **state) {
  (void)state;
  static const char *const lines[] = {SMALL "--iterations 5 --log log --save-weights d/w",
                                      SMALL "--iterations 5 --log log --save-weights d/w --ranks 2"};
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    int64_t writes = 0;
    prepare();
    bppsa_io_set_hook(remove_later, &writes);
    run_result result = run("%s", lines[i]);
    bppsa_io_set_hook(NULL, NULL);
    assert_int_equal(result.code, 1);
    assert_one_error(&result, "d/w: cannot create a file in its directory: No such file or directory; it is in ");
    if (i == 0) {
      assert_equal_files("right.w", place_in(&result, "; it is in "));
    } else {
      assert_true(file_exists(place_in(&result, "; it is in ")));
    }
    release(&result);
  }
}

/* From a certain write on the log's disk is full: the weights of the steps so far are rescued where they are asked for. */
typedef struct {
  int64_t writes, full;
} disk;

static int fill_disk(void *context, bppsa_io_call call) {
  disk *d = context;
  return call == BPPSA_IO_WRITE && ++d->writes == d->full ? ENOSPC : 0;
}

static void test_log(void **state) {
  (void)state;
  disk d = {.full = 2 + 1 + 3}; /* two proofs, the log's first line, then its third step */
  prepare();
  bppsa_io_set_hook(fill_disk, &d);
  run_result result = run(SMALL "--iterations 5 --log log --save-weights d/w");
  bppsa_io_set_hook(NULL, NULL);
  assert_int_equal(result.code, 1);
  assert_one_error(&result, "log log: cannot be written: No space left on device; the weights so far are in ");
  assert_runs(SMALL "--iterations 3 --save-weights three");
  assert_equal_files("three", place_in(&result, "; the weights so far are in "));
  assert_int_equal(entries("d"), 0);
  release(&result);
  d.writes = 0;
  d.full = 1 + 1 + 3; /* weights that nobody asked for are not kept */
  prepare();
  bppsa_io_set_hook(fill_disk, &d);
  assert_int_equal((result = run(SMALL "--iterations 5 --log log")).code, 1);
  bppsa_io_set_hook(NULL, NULL);
  assert_int_equal(entries("tmp"), 0);
  release(&result);
}

/* The documents of measurements. */
static void test_documents(void **state) {
  (void)state;
  static const struct {
    const char *line, *key;
    int64_t proofs, files;
  } lines[] = {{"bench rnn --seq-len 3 --hidden 2 --batch 1 --repeats 1 --threads 1 --out d/a", "rows", 1, 1},
               {"calibrate rnn --seq-len 3 --hidden 2 --batch 1 --quick --out d/a --save-costs d/b", "levels", 2, 2}};
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    disk d = {.full = lines[i].proofs + 1};
    prepare();
    bppsa_io_set_hook(fill_disk, &d);
    run_result result = run("%s", lines[i].line);
    bppsa_io_set_hook(NULL, NULL);
    assert_int_equal(result.code, 1);
    assert_non_null(strstr(result.err, "d/a: cannot write after 0 bytes: No space left on device; it is in "));
    json_t *document = json_load_file(place_in(&result, "; it is in "), 0, NULL);
    assert_non_null(json_object_get(document, lines[i].key));
    json_decref(document);
    assert_int_equal(entries("d"), lines[i].files - 1);
    release(&result);
  }
}

/* A measurement whose costs cannot be written has its report all the same. */
static void test_one_file_of_several(void **state) {
  (void)state;
  disk d = {.full = 2 + 1};
  prepare();
  bppsa_io_set_hook(fill_disk, &d);
  run_result result =
      run("bench schedule --quick --ranks 2 --repeats 1 --compare gpipe --layers 2 --hidden 2 --seq-len 3 --batch 4 "
          "--micro-batches 2 --save-costs d/b --out d/a");
  bppsa_io_set_hook(NULL, NULL);
  assert_int_equal(result.code, 1);
  assert_non_null(strstr(result.err, "d/b: cannot write after 0 bytes: No space left on device; it is in "));
  json_t *document = json_load_file("d/a", 0, NULL);
  assert_non_null(json_object_get(document, "rows"));
  json_decref(document);
  release(&result);
}

/* A path need not be UTF-8: '?' stands in documents and in what is printed for what is none, and nothing is lost. */
static void test_paths_that_are_no_utf8(void **state) {
  (void)state;
  prepare();
  assert_int_equal(link("right.w", "d/r\xe9.w"), 0);
  run_result result = run("train rnn --seq-len 4 --samples 32 --batch 16 --threads 1 --iterations 2 --json --weights d/r\xe9.w "
                          "--save-weights d/w");
  assert_string_equal(result.err, "");
  assert_int_equal(result.code, 0);
  assert_true(file_exists("d/w"));
  json_t *document = json_loads(result.out, 0, NULL);
  assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(document, "inputs"), 0), "path")),
                      "d/r?.w");
  json_decref(document);
  release(&result);
  result = run(SMALL "--iterations 1 --save-weights d/\x1b[31m\xff\xc2\x9b");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "weights written to d/?[31m???\n"));
  assert_true(file_exists("d/\x1b[31m\xff\xc2\x9b"));
  release(&result);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights),
                                     cmocka_unit_test(test_checkpoints),
                                     cmocka_unit_test(test_removed_directory),
                                     cmocka_unit_test(test_log),
                                     cmocka_unit_test(test_documents),
                                     cmocka_unit_test(test_one_file_of_several),
                                     cmocka_unit_test(test_paths_that_are_no_utf8)};
  return cmocka_run_group_tests(tests, setup, leave_directory);
}

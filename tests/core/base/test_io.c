/* Every call to the operating system fails in turn: reads report it, writes are complete or leave nothing. */
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files/file.h"
#include "tests/core/helpers.h"
#include "tests/support/folder.h"
#include "tests/support/io_fault.h"

#define FOLDER "io_test"
#define TARGET FOLDER "/target"

static int setup(void **state) {
  (void)state;
  fresh_folder(FOLDER);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  remove_folder(FOLDER);
  return 0;
}

static const struct {
  int error;
  bool onwards;
} ways[] = {{ENOSPC, false}, {ENOSPC, true}, {EIO, false}, {EIO, true}};

static void reads_fail_clearly(void **state) {
  (void)state;
  put_file(TARGET, "abcdef", 6);
  for (size_t way = 0; way < sizeof ways / sizeof ways[0]; ++way) {
    bool done = false;
    int64_t call = 1;
    for (; !done; ++call) {
      const int64_t live = bppsa_alloc_live(), open_files = bppsa_io_open_count();
      io_fault fault;
      char *data = NULL;
      int64_t size = -1;
      io_fault_set(&fault, call, ways[way].onwards, ways[way].error);
      const bppsa_status status = bppsa_file_read(TARGET, 100, &data, &size);
      io_fault_clear();
      assert_int_equal(bppsa_io_open_count(), open_files);
      done = fault.failed == 0;
      if (status == BPPSA_OK) { /* nothing failed, or the close of a file that was only read */
        assert_true(done || fault.kind == BPPSA_IO_CLOSE);
        assert_string_equal(data, "abcdef");
        bppsa_free(data);
      } else {
        assert_int_equal(status, BPPSA_ERR_IO);
        assert_message(TARGET);
        assert_message(strerror(ways[way].error));
        assert_int_equal(size, -1);
      }
      assert_int_equal(bppsa_alloc_live(), live);
    }
    assert_int_equal(call - 2, 5); /* open, fstat, two reads, close */
  }
}

static void writes_are_complete_or_absent(void **state) {
  (void)state;
  for (int existing = 0; existing < 2; ++existing) {
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; ++way) {
      bool done = false;
      int64_t call = 1;
      for (; !done; ++call) {
        fresh_folder(FOLDER);
        if (existing == 1) {
          put_file(TARGET, "old", 3);
        }
        const int64_t live = bppsa_alloc_live(), open_files = bppsa_io_open_count();
        io_fault fault;
        io_fault_set(&fault, call, ways[way].onwards, ways[way].error);
        const bppsa_status status = bppsa_file_write(TARGET, "new!", 4);
        io_fault_clear();
        assert_int_equal(bppsa_alloc_live(), live);
        assert_int_equal(bppsa_io_open_count(), open_files);
        done = fault.failed == 0;
        char text[8] = "";
        const long bytes = get_file(TARGET, text, sizeof text - 1);
        if (status == BPPSA_OK) {
          assert_true(done || fault.kind == BPPSA_IO_CLOSE); /* of the directory */
          assert_string_equal(text, "new!");
        } else {
          assert_int_equal(status, BPPSA_ERR_IO);
          assert_message(TARGET);
          assert_message(strerror(ways[way].error));
          if (strcmp(text, "new!") == 0) { /* only after the rename, and then it is said */
            assert_message("written, but");
          } else {
            assert_int_equal(bytes, existing == 1 ? 3 : -1);
            assert_string_equal(text, existing == 1 ? "old" : "");
          }
        }
        const int left = fault.unlink_failed ? 1 : 0;
        assert_int_equal(entries(FOLDER), (bytes >= 0 ? 1 : 0) + left);
      }
      assert_true(call > 8); /* open, write, fsync, close, rename, open, fsync, close */
    }
  }
}

/* Killed before any call: the old file or the new one exists, and the next cleaning removes what is left over. */
static void a_kill_leaves_the_old_or_the_new(void **state) {
  (void)state;
  bool done = false;
  int olds = 0, news = 0;
  for (int64_t call = 1; !done; ++call) {
    fresh_folder(FOLDER);
    put_file(TARGET, "old", 3);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      io_fault fault;
      io_fault_set(&fault, call, false, 0);
      _exit(bppsa_file_write(TARGET, "new!", 4) == BPPSA_OK ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    done = WIFEXITED(status);
    assert_true(done ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
    char text[8] = "";
    assert_true(get_file(TARGET, text, sizeof text - 1) > 0);
    olds += strcmp(text, "old") == 0;
    news += strcmp(text, "new!") == 0;
    assert_int_equal(bppsa_file_clean(FOLDER), BPPSA_OK);
    assert_int_equal(entries(FOLDER), 1);
  }
  assert_true(olds >= 4 && news >= 3);
  assert_true(olds + news >= 8);
}

static void cleaning_spares_what_is_not_ours(void **state) {
  (void)state;
  static const char *const kept[] = {"/.bppsa-1-0.tmp", "/.bppsa-0-0.tmp", "/.bppsa-999999999-0.tmp2", "/bppsa-999999999-0.tmp",
                                     "/.bppsa-x-0.tmp"}; /* process 1 is alive */
  char path[64];
  fresh_folder(FOLDER);
  for (size_t i = 0; i < sizeof kept / sizeof kept[0]; ++i) {
    snprintf(path, sizeof path, FOLDER "%s", kept[i]);
    put_file(path, "x", 1);
  }
  put_file(FOLDER "/.bppsa-999999999-7.tmp", "x", 1); /* above the largest number a process can have */
  snprintf(path, sizeof path, FOLDER "/.bppsa-%ld-3.tmp", (long)getpid());
  put_file(path, "x", 1);
  assert_int_equal(bppsa_file_clean(FOLDER), BPPSA_OK);
  assert_int_equal(entries(FOLDER), (int)(sizeof kept / sizeof kept[0]));
  assert_int_equal(bppsa_file_clean(FOLDER "/none"), BPPSA_ERR_IO);
  assert_message(FOLDER "/none: cannot list the directory");
}

/* Two threads may write into one directory, of which one cleans it. */
static void cleaning_spares_open_writers(void **state) {
  (void)state;
  char text[8] = "";
  bppsa_file_writer *writer = NULL;
  assert_int_equal(bppsa_file_writer_create(TARGET, &writer), BPPSA_OK);
  assert_int_equal(bppsa_file_clean(FOLDER), BPPSA_OK);
  assert_int_equal(bppsa_file_writer_write(writer, "new!", 4), BPPSA_OK);
  assert_int_equal(bppsa_file_writer_commit(writer), BPPSA_OK);
  assert_int_equal(get_file(TARGET, text, sizeof text - 1), 4);
}

/* A proof changes nothing and leaves nothing, whichever of its calls fails, or is the last one before a kill. */
static void proofs_change_nothing(void **state) {
  (void)state;
  for (int existing = 0; existing < 3; ++existing) { /* a new file, one that is replaced, a directory */
    bool done = false, killed = false;
    int64_t call = 1;
    for (; !done || !killed; ++call) {
      fresh_folder(FOLDER);
      if (existing == 1) {
        put_file(TARGET, "old", 3);
      }
      const pid_t child = fork();
      assert_true(child >= 0);
      io_fault fault;
      if (child == 0) {
        io_fault_set(&fault, call, false, 0);
        _exit((existing == 2 ? bppsa_file_prove_directory(FOLDER) : bppsa_file_prove(TARGET)) == BPPSA_OK ? 0 : 1);
      }
      int ended = 0;
      assert_int_equal(waitpid(child, &ended, 0), child);
      killed = WIFEXITED(ended);
      assert_true(killed ? WEXITSTATUS(ended) == 0 : WTERMSIG(ended) == SIGKILL);
      assert_int_equal(bppsa_file_clean(FOLDER), BPPSA_OK);
      assert_int_equal(entries(FOLDER), existing == 1 ? 1 : 0);
      const int64_t live = bppsa_alloc_live(), open_files = bppsa_io_open_count();
      io_fault_set(&fault, call, false, ENOSPC);
      const bppsa_status status = existing == 2 ? bppsa_file_prove_directory(FOLDER) : bppsa_file_prove(TARGET);
      io_fault_clear();
      done = fault.failed == 0;
      assert_int_equal(status, done ? BPPSA_OK : BPPSA_ERR_IO);
      if (!done) {
        assert_message(existing == 2 ? FOLDER : TARGET);
        assert_message(strerror(ENOSPC));
      }
      char text[8] = "";
      assert_int_equal(get_file(TARGET, text, sizeof text - 1), existing == 1 ? 3 : -1);
      assert_int_equal(entries(FOLDER), existing == 1 ? 1 : 0);
      assert_int_equal(bppsa_alloc_live(), live);
      assert_int_equal(bppsa_io_open_count(), open_files);
    }
    assert_true(call - 2 >= 4); /* (rmdir,) open, write, close, unlink */
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(cleaning_spares_open_writers, setup, teardown),
      cmocka_unit_test_setup_teardown(proofs_change_nothing, setup, teardown),
      cmocka_unit_test_setup_teardown(reads_fail_clearly, setup, teardown),
      cmocka_unit_test_setup_teardown(writes_are_complete_or_absent, setup, teardown),
      cmocka_unit_test_setup_teardown(a_kill_leaves_the_old_or_the_new, setup, teardown),
      cmocka_unit_test_setup_teardown(cleaning_spares_what_is_not_ours, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

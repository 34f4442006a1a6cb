/* Reads of whole files, and writes that are complete or absent. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files/file.h"
#include "tests/core/helpers.h"
#include "tests/support/folder.h"

#define FOLDER "file_test"
#define TARGET FOLDER "/target"

static void assert_contents(const char *path, const char *expected) {
  char text[100] = "";
  assert_int_equal(get_file(path, text, sizeof text - 1), (long)strlen(expected));
  assert_string_equal(text, expected);
}

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

static void read_whole(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  char *data = NULL;
  int64_t size = -1;
  put_file(TARGET, "abc\0def", 7);
  assert_int_equal(bppsa_file_read(TARGET, 7, &data, &size), BPPSA_OK);
  assert_int_equal(size, 7);
  assert_memory_equal(data, "abc\0def", 8);
  bppsa_free(data);
  put_file(TARGET, "", 0);
  assert_int_equal(bppsa_file_read(TARGET, 0, &data, &size), BPPSA_OK);
  assert_int_equal(size, 0);
  assert_string_equal(data, "");
  bppsa_free(data);
  assert_int_equal(bppsa_alloc_live(), before);
}

static void read_refused(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  char *data = NULL;
  int64_t size = -1;
  put_file(TARGET, "12345678", 8);
  assert_int_equal(bppsa_file_read(TARGET, 7, &data, &size), BPPSA_ERR_FORMAT);
  assert_message(TARGET ": 8 bytes, expected at most 7");
  assert_int_equal(bppsa_file_read(FOLDER "/none", 100, &data, &size), BPPSA_ERR_IO);
  assert_message(FOLDER "/none: cannot open: No such file or directory");
  assert_int_equal(bppsa_file_read("", 100, &data, &size), BPPSA_ERR_IO);
  assert_int_equal(bppsa_file_read(FOLDER, 100, &data, &size), BPPSA_ERR_IO);
  assert_message("a directory, expected a regular file");
  assert_int_equal(mkfifo(FOLDER "/pipe", 0666), 0);
  assert_int_equal(bppsa_file_read(FOLDER "/pipe", 100, &data, &size), BPPSA_ERR_IO);
  assert_message("a pipe, expected a regular file");
  assert_int_equal(bppsa_file_read("/dev/zero", 100, &data, &size), BPPSA_ERR_IO);
  assert_message("a character device");
  assert_int_equal(bppsa_file_read(TARGET "/under", 100, &data, &size), BPPSA_ERR_IO);
  assert_message("Not a directory");
  assert_null(data);
  assert_int_equal(size, -1);
  assert_int_equal(bppsa_alloc_live(), before);
}

static void read_in_pieces(void **state) {
  (void)state;
  put_file(TARGET, "0123456789", 10);
  bppsa_file_reader reader;
  assert_int_equal(bppsa_file_reader_open(TARGET, &reader), BPPSA_OK);
  assert_int_equal(reader.size, 10);
  char text[11] = "";
  assert_int_equal(bppsa_file_reader_read(&reader, text, 4), BPPSA_OK);
  assert_string_equal(text, "0123");
  assert_int_equal(truncate(TARGET, 6), 0); /* it shrinks meanwhile */
  assert_int_equal(bppsa_file_reader_read(&reader, text, 6), BPPSA_ERR_IO);
  assert_message("byte 6: the file ends there, expected 4 more bytes");
  bppsa_file_reader_close(&reader);
}

static void write_is_atomic(void **state) {
  (void)state;
  put_file(TARGET, "old", 3);
  const int before = entries(FOLDER);
  bppsa_file_writer *writer = NULL;
  assert_int_equal(bppsa_file_writer_create(TARGET, &writer), BPPSA_OK);
  assert_int_equal(bppsa_file_writer_write(writer, "new ", 4), BPPSA_OK);
  assert_int_equal(bppsa_file_writer_write(writer, "text", 4), BPPSA_OK);
  assert_contents(TARGET, "old");
  assert_int_equal(bppsa_file_writer_commit(writer), BPPSA_OK);
  assert_contents(TARGET, "new text");
  assert_int_equal(entries(FOLDER), before);
  assert_int_equal(bppsa_file_writer_create(TARGET, &writer), BPPSA_OK);
  assert_int_equal(bppsa_file_writer_write(writer, "third", 5), BPPSA_OK);
  bppsa_file_writer_abort(writer);
  bppsa_file_writer_abort(NULL);
  assert_contents(TARGET, "new text");
  assert_int_equal(entries(FOLDER), before);
  assert_int_equal(bppsa_file_write(FOLDER "/empty", "", 0), BPPSA_OK);
  assert_contents(FOLDER "/empty", "");
}

static void modes_and_links(void **state) {
  (void)state;
  struct stat info;
  const mode_t mask = umask(027);
  assert_int_equal(bppsa_file_write(FOLDER "/fresh", "x", 1), BPPSA_OK);
  umask(mask);
  assert_int_equal(stat(FOLDER "/fresh", &info), 0);
  assert_int_equal(info.st_mode & 0777, 0640);
  assert_int_equal(chmod(FOLDER "/fresh", 0600), 0); /* a private file stays private */
  assert_int_equal(bppsa_file_write(FOLDER "/fresh", "y", 1), BPPSA_OK);
  assert_int_equal(stat(FOLDER "/fresh", &info), 0);
  assert_int_equal(info.st_mode & 0777, 0600);
  assert_int_equal(symlink("fresh", FOLDER "/link"), 0);
  assert_int_equal(bppsa_file_write(FOLDER "/link", "through", 7), BPPSA_OK);
  assert_int_equal(lstat(FOLDER "/link", &info), 0);
  assert_true(S_ISLNK(info.st_mode));
  assert_contents(FOLDER "/fresh", "through");
  bppsa_file_writer *writer = NULL;
  assert_int_equal(symlink("nowhere", FOLDER "/dangling"), 0);
  assert_int_equal(bppsa_file_writer_create(FOLDER "/dangling", &writer), BPPSA_ERR_IO);
  assert_message("leads nowhere");
  char name[300] = FOLDER "/"; /* the longest name that leaves room for the temporary file's name */
  memset(name + strlen(name), 'n', 255);
  assert_int_equal(bppsa_file_write(name, "z", 1), BPPSA_OK);
  assert_contents(name, "z");
  name[strlen(name)] = 'n';
  assert_int_equal(bppsa_file_writer_create(name, &writer), BPPSA_ERR_IO);
  assert_message("File name too long");
}

static void write_refused(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  const int names = entries(FOLDER);
  bppsa_file_writer *writer = NULL;
  static const struct {
    const char *path, *message;
  } bad[] = {{FOLDER, "a directory, expected a file"},
             {FOLDER "/", "a directory"},
             {"/", "a directory"},
             {"", "not the name of a file"},
             {FOLDER "/new/", "not the name of a file"},
             {FOLDER "/new/file", "No such file or directory"},
             {"/proc/bppsa_test", "/proc/bppsa_test: "}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    assert_int_equal(bppsa_file_writer_create(bad[i].path, &writer), BPPSA_ERR_IO);
    assert_message(bad[i].message);
    assert_null(writer);
  }
  assert_int_equal(bppsa_alloc_live(), before);
  assert_int_equal(entries(FOLDER), names);
}

/* Devices and pipes are written to, never replaced. */
static void devices(void **state) {
  (void)state;
  struct stat info;
  assert_int_equal(bppsa_file_write("/dev/null", "gone", 4), BPPSA_OK);
  assert_int_equal(stat("/dev/null", &info), 0);
  assert_true(S_ISCHR(info.st_mode));
  assert_int_equal(bppsa_file_write("/dev/full", "x", 1), BPPSA_ERR_IO);
  assert_message("/dev/full: cannot write after 0 bytes: No space left on device");
  assert_int_equal(stat("/dev/full", &info), 0);
  assert_true(S_ISCHR(info.st_mode));
  assert_true(stat(FOLDER "/pipe", &info) == 0 || mkfifo(FOLDER "/pipe", 0666) == 0);
  assert_int_equal(bppsa_file_write(FOLDER "/pipe", "flow", 4), BPPSA_ERR_IO); /* does not wait for a reader */
  assert_message(FOLDER "/pipe: a pipe or device that nobody reads, expected a file or a reader");
  const int descriptor = open(FOLDER "/pipe", O_RDONLY | O_NONBLOCK);
  assert_true(descriptor >= 0);
  assert_int_equal(bppsa_file_write(FOLDER "/pipe", "flow", 4), BPPSA_OK);
  char text[8] = "";
  assert_int_equal(read(descriptor, text, 8), 4);
  assert_string_equal(text, "flow");
  close(descriptor);
}

/* Standard output is a regular file: text is appended to it. */
static void standard_output(void **state) {
  (void)state;
  fflush(stdout);
  const int kept = dup(STDOUT_FILENO);
  const int file = open(FOLDER "/stdout", O_WRONLY | O_CREAT | O_TRUNC, 0666);
  assert_true(kept >= 0 && file >= 0);
  assert_int_equal(dup2(file, STDOUT_FILENO), STDOUT_FILENO);
  const ssize_t first = write(STDOUT_FILENO, "one ", 4);
  const bppsa_status status = bppsa_file_write("/dev/stdout", "two ", 4);
  const ssize_t last = write(STDOUT_FILENO, "three", 5);
  assert_int_equal(dup2(kept, STDOUT_FILENO), STDOUT_FILENO);
  close(kept);
  close(file);
  assert_int_equal(first + last, 9);
  assert_int_equal(status, BPPSA_OK);
  assert_contents(FOLDER "/stdout", "one two three");
  struct stat info;
  assert_int_equal(lstat("/dev/stdout", &info), 0);
  assert_true(S_ISLNK(info.st_mode));
}

/* The disk becomes full during a write: an error, and nothing is left. */
static void disk_full(void **state) {
  (void)state;
  put_file(TARGET, "old", 3);
  const int before = entries(FOLDER);
  const int64_t blocks = bppsa_alloc_live();
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit kept, small;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &kept), 0);
  small = (struct rlimit){.rlim_cur = 1000, .rlim_max = kept.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  static const char data[1500];
  const bppsa_status status = bppsa_file_write(TARGET, data, sizeof data);
  char message[600];
  snprintf(message, sizeof message, "%s", bppsa_last_error());
  bppsa_file_writer *writer = NULL;
  const bppsa_status created = bppsa_file_writer_create(TARGET, &writer);
  const bppsa_status written = created == BPPSA_OK ? bppsa_file_writer_write(writer, data, sizeof data) : BPPSA_OK;
  const bppsa_status committed = created == BPPSA_OK ? bppsa_file_writer_commit(writer) : BPPSA_OK;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &kept), 0);
  signal(SIGXFSZ, SIG_DFL);
  assert_int_equal(status, BPPSA_ERR_IO);
  assert_non_null(strstr(message, "target: cannot write after 1000 bytes: File too large"));
  assert_int_equal(written, BPPSA_ERR_IO);
  assert_int_equal(committed, BPPSA_ERR_IO); /* commit does not overlook a failed write */
  assert_contents(TARGET, "old");
  assert_int_equal(entries(FOLDER), before);
  assert_int_equal(bppsa_alloc_live(), blocks);
}

static bppsa_status write_and_read(void *argument) {
  (void)argument;
  char *data = NULL;
  int64_t size = 0;
  BPPSA_TRY(bppsa_file_write(TARGET, "data", 4));
  BPPSA_TRY(bppsa_file_read(TARGET, 100, &data, &size));
  bppsa_free(data);
  return BPPSA_OK;
}

static void allocation_failures(void **state) {
  (void)state;
  put_file(TARGET, "old", 3);
  const int before = entries(FOLDER);
  assert_true(walk_allocations(write_and_read, NULL) >= 4);
  assert_contents(TARGET, "data");
  assert_int_equal(entries(FOLDER), before);
}

/* What a signal handler does: the open writers' files are removed, earlier files stay, and more writers than the handler knows do
 * no harm. */
static void remove_temporaries(void **state) {
  (void)state;
  enum { WRITERS = 20, REMEMBERED = 16 };
  put_file(TARGET, "old", 3);
  const int before = entries(FOLDER);
  const int64_t blocks = bppsa_alloc_live();
  bppsa_file_writer *writers[WRITERS];
  bppsa_file_remove_temporaries();          /* there are none */
  for (int round = 0; round < 2; ++round) { /* slots are free again */
    for (int i = 0; i < WRITERS; ++i) {
      assert_int_equal(bppsa_file_writer_create(TARGET, &writers[i]), BPPSA_OK);
    }
    assert_int_equal(entries(FOLDER), before + WRITERS);
    if (round == 0) { /* a forked process owns none of the files */
      const pid_t child = fork();
      assert_true(child >= 0);
      if (child == 0) {
        bppsa_file_remove_temporaries();
        _exit(0);
      }
      assert_int_equal(waitpid(child, NULL, 0), child);
      assert_int_equal(entries(FOLDER), before + WRITERS);
    }
    errno = ERANGE;
    bppsa_file_remove_temporaries();
    assert_int_equal(errno, ERANGE);
    assert_int_equal(entries(FOLDER), before + WRITERS - REMEMBERED);
    assert_int_equal(bppsa_file_writer_commit(writers[0]), BPPSA_ERR_IO);
    assert_message("cannot put the new file in place");
    for (int i = 1; i < WRITERS; ++i) {
      bppsa_file_writer_abort(writers[i]);
    }
    assert_int_equal(entries(FOLDER), before);
  }
  assert_contents(TARGET, "old");
  assert_int_equal(bppsa_file_write(TARGET, "new", 3), BPPSA_OK);
  bppsa_file_remove_temporaries(); /* a committed file is not temporary */
  assert_contents(TARGET, "new");
  assert_int_equal(bppsa_alloc_live(), blocks);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(read_whole),        cmocka_unit_test(read_refused),
                                     cmocka_unit_test(read_in_pieces),    cmocka_unit_test(write_is_atomic),
                                     cmocka_unit_test(modes_and_links),   cmocka_unit_test(write_refused),
                                     cmocka_unit_test(devices),           cmocka_unit_test(standard_output),
                                     cmocka_unit_test(disk_full),         cmocka_unit_test(allocation_failures),
                                     cmocka_unit_test(remove_temporaries)};
  return cmocka_run_group_tests(tests, setup, teardown);
}

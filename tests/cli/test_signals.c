/* Signals that end the program: nothing is left behind, and it dies of the signal. */
#include "tests/cli/run_cli.h"

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/wait.h>

static size_t temporaries(void) {
  glob_t found;
  const int status = glob(".bppsa-*.tmp", 0, NULL, &found);
  assert_true(status == 0 || status == GLOB_NOMATCH);
  const size_t count = status == 0 ? found.gl_pathc : 0;
  globfree(&found);
  return count;
}

/* A program that is writing a large data set. */
static pid_t start(int ignored) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    if (null < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0) {
      _exit(9);
    }
    if (ignored != 0) {
      signal(ignored, SIG_IGN);
    }
    execl(BPPSA_TEST_PROGRAM, "bppsa", "data", "bitstream", "--samples", "200000", "--seq-len", "1000", "--threads", "2",
          "--out-x", "X.npy", "--out-y", "Y.npy", (char *)NULL);
    _exit(9);
  }
  for (int wait = 0; wait < 2000 && temporaries() < 2; ++wait) {
    (void)usleep(5000);
  }
  assert_int_equal(temporaries(), 2);
  return child;
}

static void assert_killed_by(pid_t child, int number) {
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), number);
  assert_int_equal(count_files(), 0);
}

static void test_ends(void **state) {
  (void)state;
  const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
    const pid_t child = start(0);
    assert_int_equal(kill(child, numbers[i]), 0);
    assert_killed_by(child, numbers[i]);
  }
}

/* As under nohup. */
static void test_ignored(void **state) {
  (void)state;
  const pid_t child = start(SIGHUP);
  assert_int_equal(kill(child, SIGHUP), 0);
  (void)usleep(20000);
  assert_int_equal(waitpid(child, NULL, WNOHANG), 0); /* alive */
  assert_int_equal(temporaries(), 2);
  assert_int_equal(kill(child, SIGTERM), 0);
  assert_killed_by(child, SIGTERM);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends), cmocka_unit_test(test_ignored)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

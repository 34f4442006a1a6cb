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

/* ---- training without checkpoints ---- */

#define TRAIN "train rnn --seq-len 12 --samples 4800 --hidden 4 --threads 1"

enum { PAST_HEADER = 4000 }; /* bytes of a log that holds lines of steps or epochs */

/* A program with this line, its output in out.txt and err.txt, once `file` has more than `bytes` bytes. */
static pid_t start_line(const char *line, const char *file, off_t bytes) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    char text[LINE_BYTES], *argv[MAX_ARGUMENTS + 1] = {NULL};
    snprintf(text, sizeof text, "bppsa %s", line);
    (void)split_line(text, argv);
    const int out = open("out.txt", O_WRONLY | O_CREAT | O_TRUNC, 0666),
              err = open("err.txt", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (out < 0 || err < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) {
      _exit(9);
    }
    execv(BPPSA_TEST_PROGRAM, argv);
    _exit(9);
  }
  struct stat info = {0};
  for (int wait = 0; wait < 2000 && (stat(file, &info) != 0 || info.st_size <= bytes); ++wait) {
    (void)usleep(5000);
  }
  if (info.st_size <= bytes) {
    (void)kill(child, SIGKILL);
    fail_msg("%s: not larger than %lld bytes", file, (long long)bytes);
  }
  return child;
}

/* It exits with 1, and its one line of error is ERROR; returns the number at its %lld, a step. */
static long long assert_stopped(pid_t child, const char *error) {
  int status = 0;
  size_t size = 0;
  long long step = -1;
  char wanted[300];
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 1);
  char *text = read_bytes("err.txt", &size);
  text[size] = '\0';
  assert_int_equal(sscanf(text, "bppsa: error: stopped by SIG%*[A-Z] after step %lld", &step), 1);
  snprintf(wanted, sizeof wanted, error, step);
  assert_string_equal(text, wanted);
  free(text);
  return step;
}

static json_t *load_document(const char *path) {
  json_t *document = json_load_file(path, 0, NULL);
  assert_non_null(document);
  return document;
}

static void assert_same_bytes(const char *a, const char *b) {
  size_t a_size = 0, b_size = 0;
  char *a_bytes = read_bytes(a, &a_size), *b_bytes = read_bytes(b, &b_size);
  assert_int_equal(a_size, b_size);
  assert_memory_equal(a_bytes, b_bytes, a_size);
  free(a_bytes);
  free(b_bytes);
}

/* The objects of a file of JSON lines; json_decref the last of them, *count in all. */
static json_t *last_line(const char *path, int64_t *count) {
  char line[8192];
  json_t *last = NULL;
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  for (*count = 0; fgets(line, sizeof line, file) != NULL; ++*count) {
    json_decref(last);
    last = json_loads(line, 0, NULL);
    assert_non_null(last);
  }
  fclose(file);
  assert_non_null(last);
  return last;
}

/* By iterations: document, weights and log are those of a run of as many steps. */
static void test_train_by_iterations(void **state) {
  (void)state;
  int64_t lines = 0;
  const pid_t child = start_line(TRAIN " --iterations 1000000000 --save-weights W --log L --json", "L", PAST_HEADER);
  assert_int_equal(kill(child, SIGINT), 0);
  const long long step =
      assert_stopped(child, "bppsa: error: stopped by SIGINT after step %lld, its weights are in W, its log is in L\n");
  json_t *document = load_document("out.txt"), *last = last_line("L", &lines);
  assert_true(json_is_true(json_object_get(document, "interrupted")));
  assert_int_equal(get_integer(document, "steps_done"), step);
  assert_int_equal(lines, step + 1); /* and the first line, which describes the run */
  assert_true(json_equal(json_object_get(json_object_get(document, "final"), "loss"), json_object_get(last, "loss")));
  json_decref(document);
  json_decref(last);
  document = run_json(TRAIN " --iterations %lld --save-weights W2 --json", step);
  assert_true(json_is_false(json_object_get(document, "interrupted")));
  json_decref(document);
  assert_same_bytes("W", "W2");
}

/* By epochs: the log's last line is the epoch as far as it came. */
static void test_train_by_epochs(void **state) {
  (void)state;
  int64_t lines = 0;
  size_t size = 0;
  const pid_t child = start_line(TRAIN " --epochs 1000000 --save-weights W --log L", "L", PAST_HEADER);
  assert_int_equal(kill(child, SIGTERM), 0);
  const long long step =
      assert_stopped(child, "bppsa: error: stopped by SIGTERM after step %lld, its weights are in W, its log is in L\n");
  json_t *last = last_line("L", &lines);
  assert_true(json_is_true(json_object_get(last, "interrupted")));
  assert_int_equal(get_integer(last, "step"), step);
  char *text = read_bytes("out.txt", &size), wanted[64];
  text[size] = '\0';
  snprintf(wanted, sizeof wanted, "interrupted: loss %.6f, accuracy", get_real(last, "loss"));
  assert_non_null(strstr(text, wanted));
  assert_non_null(strstr(text, "weights written to W\n"));
  free(text);
  json_decref(last);
  json_t *document = run_json(TRAIN " --iterations %lld --save-weights W2 --json", step);
  json_decref(document);
  assert_same_bytes("W", "W2");
}

/* Within its first epoch, and with nothing to keep. */
static void test_train_first_epoch(void **state) {
  (void)state;
  const pid_t child =
      start_line("train rnn --seq-len 12 --samples 9600000 --hidden 4 --threads 1 --epochs 2", "out.txt", 300); /* the header */
  assert_int_equal(kill(child, SIGINT), 0);
  (void)assert_stopped(child, "bppsa: error: stopped by SIGINT after step %lld, nothing is kept, expected --save-weights, --log "
                              "or --checkpoint\n");
}

/* With checkpoints: the marked line is not the resumed run's. */
static void test_train_resumed(void **state) {
  (void)state;
  int64_t lines = 0;
  char *end = NULL;
  size_t size = 0;
  const pid_t child = start_line(TRAIN " --epochs 1000000 --checkpoint d --log L", "L", PAST_HEADER);
  assert_int_equal(kill(child, SIGINT), 0);
  const long long step = assert_stopped(
      child,
      "bppsa: error: stopped by SIGINT after step %lld, its checkpoint is in d, expected --resume to go on, its log is in L\n");
  assert_runs(TRAIN " --epochs %lld --checkpoint d --resume --log L", step / 300 + 1);
  json_decref(last_line("L", &lines));
  assert_int_equal(lines, step / 300 + 2); /* the first line, and its epochs */
  char *text = read_bytes("L", &size);
  text[size] = '\0';
  end = strstr(text, "interrupted");
  assert_null(end);
  free(text);
}

/* The second signal ends a long step at once. Two signals that a busy machine delivers together are one to the program, so more of
 * them follow. */
static void test_train_second(void **state) {
  (void)state;
  int status = 0;
  const pid_t child =
      start_line("train rnn --seq-len 20000 --samples 32 --hidden 64 --iterations 1000 --threads 1 --save-weights N --log M",
                 "out.txt", 300);
  assert_int_equal(kill(child, SIGINT), 0);
  while (waitpid(child, &status, WNOHANG) == 0) {
    (void)usleep(20000);
    assert_int_equal(kill(child, SIGINT), 0);
  }
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGINT);
  assert_false(file_exists("N"));
  assert_int_equal(temporaries(), 0);
}

/* eval ends at once, and leaves no part of its outputs. */
static void test_eval(void **state) {
  (void)state;
  int status = 0;
  assert_runs("train rnn --seq-len 5 --samples 64 --iterations 1 --save-weights W");
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    execl(BPPSA_TEST_PROGRAM, "bppsa", "eval", "rnn", "--weights", "W", "--samples", "2000000", "--seq-len", "1000", "--threads",
          "1", "--out", "P.npz", (char *)NULL);
    _exit(9);
  }
  for (int wait = 0; wait < 2000 && temporaries() < 1; ++wait) {
    (void)usleep(5000);
  }
  assert_int_equal(kill(child, SIGINT), 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGINT);
  assert_int_equal(temporaries(), 0);
  assert_false(file_exists("P.npz"));
}

static int remove_files(void **state) {
  (void)state;
  return system("rm -rf -- *");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends),
                                     cmocka_unit_test(test_ignored),
                                     cmocka_unit_test_setup(test_train_by_iterations, remove_files),
                                     cmocka_unit_test_setup(test_train_by_epochs, remove_files),
                                     cmocka_unit_test_setup(test_train_first_epoch, remove_files),
                                     cmocka_unit_test_setup(test_train_resumed, remove_files),
                                     cmocka_unit_test_setup(test_train_second, remove_files),
                                     cmocka_unit_test_setup(test_eval, remove_files)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

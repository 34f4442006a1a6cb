/* Paths at which nothing can be written are refused before the work begins, by every command and for every output. */
#include "tests/cli/batch_files.h"

#include <unistd.h>

#define LONG_NAME                                                                                                                \
  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" \
  "aaaaaaaaaaaaaaaaaaaaaaaa"                                                                                                     \
  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" \
  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

/* Lines that lack the path of their last option. The training would take hours. */
#define TRAIN "train rnn --seq-len 100 --samples 3200 --epochs 100000 "
static const struct {
  const char *line, *option;
  const char *ending;
} outputs[] = {{TRAIN, "--save-weights", ""},
               {TRAIN, "--log", ""},
               {"grad rnn --weights W.safetensors --input X.npy --labels Y.npy", "--out", ""},
               {"plan rnn", "--svg", ""},
               {"data bitstream --samples 1000000000 --out-y B.npy", "--out-x", ""},
               {"data bitstream --samples 1000000000 --out-x B.npy", "--out-y", ""},
               {"schedule 1f1b", "--svg", ""},
               {"schedule 1f1b", "--trace", ""},
               {"schedule 1f1b", "--csv", ""},
               {"jacobian relu --in-shape 1,4,4", "--out", ".npz"},
               {"jacobian relu --in-shape 1,4,4 --out J.npz", "--spy", ".png"},
               {"eval rnn --weights W.safetensors", "--out", ""},
               {"prune --weights W.safetensors --fraction 0.5", "--out", ""},
               {"flops lenet5", "--svg", ""},
               {"plan lenet5", "--svg", ""},
               {"bench rnn", "--out", ""},
               {"bench crossover", "--out", ""},
               {"bench scan", "--out", ""},
               {"bench product", "--out", ""},
               {"bench jacobian", "--out", ""},
               {"bench lenet5", "--out", ""}};

static void assert_refused(const char *path, const char *says) {
  const int files = count_files();
  for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; ++i) {
    char wanted[600];
    snprintf(wanted, sizeof wanted, "%s: %s%s: %s", outputs[i].option, path, outputs[i].ending, says);
    wanted[400] = '\0'; /* messages are cut, too */
    assert_fails(2, wanted, "%s %s %s%s", outputs[i].line, outputs[i].option, path, outputs[i].ending);
    assert_int_equal(count_files(), files);
  }
}

static void link_both(const char *to, const char *name) {
  const char *const endings[] = {"", ".npz", ".png"};
  char path[64];
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; ++i) {
    snprintf(path, sizeof path, "%s%s", name, endings[i]);
    assert_int_equal(symlink(strcmp(to, name) == 0 ? path : to, path), 0);
  }
}

static void test_links(void **state) {
  (void)state;
  link_both("nowhere", "dangling");
  link_both("loop", "loop");
  assert_refused("dangling", "a symbolic link that leads nowhere, expected the path of a new or a regular file");
  assert_refused("loop", "Too many levels of symbolic links");
}

static void test_names(void **state) {
  (void)state;
  assert_refused(LONG_NAME, "File name too long");
}

static void test_directories(void **state) {
  (void)state;
  assert_int_equal(symlink("nowhere", "no-directory"), 0);
  assert_int_equal(symlink("circle", "circle"), 0);
  const int files = count_files();
  assert_fails(2, "--checkpoint: no-directory: a symbolic link that leads nowhere, expected the path of a directory",
               TRAIN "--checkpoint no-directory");
  assert_fails(2, "--checkpoint: circle: Too many levels of symbolic links", TRAIN "--checkpoint circle");
  assert_fails(2, "File name too long", TRAIN "--checkpoint " LONG_NAME);
  assert_fails(2, "--checkpoint: W.safetensors: not a directory", TRAIN "--checkpoint W.safetensors");
  assert_fails(2, "--out: no-directory: a symbolic link that leads nowhere", "figures --quick --out no-directory");
  assert_fails(2, "--out: circle: Too many levels of symbolic links", "figures --quick --out circle");
  assert_int_equal(count_files(), files);
}

/* A link to a file is followed, and stays: the file is replaced. */
static void test_link_to_file(void **state) {
  (void)state;
  struct stat found;
  assert_int_equal(mkdir("elsewhere", 0777), 0);
  write_bytes("elsewhere/W.safetensors", "", 0);
  assert_int_equal(symlink("elsewhere/W.safetensors", "link"), 0);
  assert_runs("train rnn --seq-len 3 --samples 32 --hidden 2 --iterations 1 --save-weights link");
  assert_int_equal(lstat("link", &found), 0);
  assert_true(S_ISLNK(found.st_mode));
  assert_int_equal(stat("elsewhere/W.safetensors", &found), 0);
  assert_true(found.st_size > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_links), cmocka_unit_test(test_names),
                                     cmocka_unit_test(test_directories), cmocka_unit_test(test_link_to_file)};
  return cmocka_run_group_tests(tests, enter_with_batch, leave_directory);
}

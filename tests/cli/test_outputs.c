#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* unshare */
#endif
/* Paths at which nothing can be written are refused before the work begins, by every command and for every output. */
#include "tests/cli/batch_files.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/command.h"
#include "networks/network_kinds.h"

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
  assert_int_equal(system("mkdir -p taken/checkpoint.new.safetensors"), 0);
  assert_fails(2, "--checkpoint: taken/checkpoint.new.safetensors: not a regular file", TRAIN "--checkpoint taken");
  assert_int_equal(system("rm -r taken"), 0);
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

/* ---- every path option of every command, from the table ---- */

/* Appends the command's words and the options it requires, but `but`, with values that the parser takes. */
static void compose(const bppsa_command *command, bppsa_option but, char *line, size_t size) {
  const bool file = command->object != NULL && strcmp(command->object, BPPSA_NETWORK_FILE) == 0;
  size_t used = (size_t)snprintf(line, size, "%s %s", command->verb,
                                 file                      ? "net.json"
                                 : command->object != NULL ? command->object
                                                           : "");
  for (const bppsa_option_use *use = command->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    const bppsa_option_info *info = bppsa_option_of(use);
    if (!use->required || use->option == but) {
      continue;
    }
    char value[32];
    snprintf(value, sizeof value, "x%d", (int)use->option);
    used += (size_t)snprintf(line + used, size - used, " %s %s", info->name,
                             info->kind == BPPSA_TEXT     ? value
                             : info->kind == BPPSA_CHOICE ? bppsa_option_choice(info, 0)
                                                          : "1");
    assert_true(used < size);
  }
}

/* Every command must refuse this path for every option that names a file (or directory) to be written, before it does anything. */
static int refuse_everywhere(const char *path, bppsa_path_use role, const char *says) {
  const int files = count_files();
  int refused = 0;
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    for (const bppsa_option_use *use = (*command)->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
      char line[1024], wanted[700];
      if (bppsa_option_path(use) != role) {
        continue;
      }
      const char *name = bppsa_option_get(use->option)->name;
      compose(*command, use->option, line, sizeof line);
      snprintf(wanted, sizeof wanted, "%s: %s: %s", name, path, says);
      wanted[400] = '\0'; /* messages are cut, too */
      assert_fails(2, wanted, "%s %s %s", line, name, path);
      assert_int_equal(count_files(), files);
      ++refused;
    }
  }
  return refused;
}

static void test_table(void **state) {
  (void)state;
  const struct {
    const char *path, *says;
    bppsa_path_use role;
  } bad[] = {{"dangling", "a symbolic link that leads nowhere, expected the path of a new or a regular file", BPPSA_PATH_WRITTEN},
             {"loop", "Too many levels of symbolic links", BPPSA_PATH_WRITTEN},
             {LONG_NAME, "File name too long", BPPSA_PATH_WRITTEN},
             {"folder", "not a regular file", BPPSA_PATH_WRITTEN},
             {"new/", "cannot write into directory 'new'", BPPSA_PATH_WRITTEN},
             {"folder/", "not a regular file", BPPSA_PATH_WRITTEN},
             {"pipe", "not a regular file", BPPSA_PATH_WRITTEN},
             {"/dev/full", "not a regular file", BPPSA_PATH_WRITTEN},
             {"missing/f", "cannot write into directory 'missing'", BPPSA_PATH_WRITTEN},
             {"X.npy/f", "cannot write into directory 'X.npy'", BPPSA_PATH_WRITTEN},
             {"dangling", "a symbolic link that leads nowhere, expected the path of a directory", BPPSA_PATH_FOLDER},
             {"loop", "Too many levels of symbolic links", BPPSA_PATH_FOLDER},
             {LONG_NAME, "File name too long", BPPSA_PATH_FOLDER},
             {"X.npy", "not a directory", BPPSA_PATH_FOLDER},
             {"pipe", "not a directory", BPPSA_PATH_FOLDER},
             {"missing/f", "cannot write into directory 'missing'", BPPSA_PATH_FOLDER},
             {"missing/f/", "cannot write into directory 'missing'", BPPSA_PATH_FOLDER}};
  assert_int_equal(mkdir("folder", 0777), 0);
  assert_int_equal(mkfifo("pipe", 0666), 0);
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    const int refused = refuse_everywhere(bad[i].path, bad[i].role, bad[i].says);
    assert_true(refused >= (bad[i].role == BPPSA_PATH_FOLDER ? 6 : 45)); /* train's checkpoints, data, figures; all the rest */
  }
}

/* Neither in a directory that may not be written, nor over a file that may not. */
static void test_permissions(void **state) {
  (void)state;
  assert_int_equal(system("chmod 755 . && mkdir -m 555 locked && mkdir -m 777 open && touch open/kept && chmod 444 open/kept"),
                   0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    if (getuid() == 0 && (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0)) {
      _exit(9);
    }
    assert_int_equal(chdir("open"), 0); /* so that the other outputs of a line can be written */
    refuse_everywhere("../locked/f", BPPSA_PATH_WRITTEN, "cannot write into directory '../locked'");
    refuse_everywhere("kept", BPPSA_PATH_WRITTEN, "Permission denied");
    refuse_everywhere("../locked/f", BPPSA_PATH_FOLDER, "cannot write into directory '../locked'");
    refuse_everywhere("../locked", BPPSA_PATH_FOLDER, "cannot write into directory '../locked'");
    _exit(0);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What only making a file shows: names that cannot be taken away, and directories that are none any more. */
static void test_proven(void **state) {
  (void)state;
  assert_int_equal(system("chmod 755 . && mkdir -m 1777 sticky && echo kept >sticky/theirs && chmod 666 sticky/theirs &&"
                          "mkdir -m 777 anyone && mkdir -m 1777 sticky/ck && touch sticky/ck/checkpoint.safetensors && "
                          "chmod 666 sticky/ck/checkpoint.safetensors"),
                   0);
  refuse_everywhere("/proc/f", BPPSA_PATH_WRITTEN, "cannot create a file in its directory: ");
  refuse_everywhere("/proc/f", BPPSA_PATH_FOLDER, "/proc: no file can be made in it: ");
  assert_fails(2, "--checkpoint: '', expected the path of a directory", TRAIN "--checkpoint=");
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    if (getuid() == 0 && (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0)) {
      _exit(9);
    }
    assert_int_equal(chdir("anyone"), 0); /* so that the other outputs of a line can be written */
    if (geteuid() == 65534) {             /* the sticky directories and the files in them are root's */
      refuse_everywhere("../sticky/theirs", BPPSA_PATH_WRITTEN,
                        "a new file cannot replace it in its directory: Operation not permitted");
      assert_fails(2, "sticky/ck/checkpoint.safetensors: a new file cannot replace it", TRAIN "--checkpoint ../sticky/ck");
    }
    assert_true(mkdir("gone", 0777) == 0 && chdir("gone") == 0 && rmdir("../gone") == 0);
    char line[LINE_BYTES];
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; ++i) {
      snprintf(line, sizeof line, "%s %s f%s", outputs[i].line, outputs[i].option, outputs[i].ending);
      run_result result = run("%s", line);
      assert_int_equal(result.code, 2);
      release(&result);
    }
    assert_fails(2, "--save-weights: f: cannot create a file in its directory: No such file", TRAIN "--save-weights f");
    assert_fails(2, "--checkpoint: ck: .: no file can be made in it: No such file", TRAIN "--checkpoint ck");
    _exit(0);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  char *text = read_file("sticky/theirs");
  assert_string_equal(text, "kept\n");
  free(text);
  assert_int_equal(system("rm -r sticky anyone"), 0);
}

/* Mounts file systems in a name space of its own, then tries them. */
static int try_mounted(void) {
  const char *const script = "mkdir -p m/full m/locked && touch m/one m/over &&"
                             "mount -t tmpfs -o size=8k none m/full && head -c 8192 /dev/zero >m/full/rest &&"
                             "mount -t tmpfs none m/locked && touch m/locked/f && mount -o remount,ro m/locked &&"
                             "mount --bind m/over m/one";
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || system(script) != 0) {
    return 77;
  }
  refuse_everywhere("m/full/f", BPPSA_PATH_WRITTEN, "cannot write after 0 bytes: No space left on device");
  refuse_everywhere("m/full/f", BPPSA_PATH_FOLDER, "m/full: no file can be made in it: No space left on device");
  refuse_everywhere("m/locked/f", BPPSA_PATH_WRITTEN, "cannot write into directory 'm/locked'");
  refuse_everywhere("m/locked", BPPSA_PATH_FOLDER, "cannot write into directory 'm/locked'");
  refuse_everywhere("m/one", BPPSA_PATH_WRITTEN, "mounted by itself, so no new file can replace it");
  return 0;
}

/* A file system that is full or read-only, and one that is mounted over a single file, as containers have them. */
static void test_mounted(void **state) {
  (void)state;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    _exit(try_mounted());
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(system("rm -rf m"), 0);
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) { /* only root may mount */
    skip();
  }
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* No output may be a file that the command reads, or another of its outputs; only train may replace its --weights. */
static void test_distinct(void **state) {
  (void)state;
  const int files = count_files();
  int pairs = 0;
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    for (const bppsa_option_use *in = (*command)->uses; in->option != BPPSA_OPTION_COUNT; ++in) {
      for (const bppsa_option_use *out = (*command)->uses; out->option != BPPSA_OPTION_COUNT; ++out) {
        const bool written = bppsa_option_path(in) == BPPSA_PATH_WRITTEN && in < out;
        char line[1024], wanted[100];
        if (bppsa_option_path(out) != BPPSA_PATH_WRITTEN || (bppsa_option_path(in) != BPPSA_PATH_READ && !written) ||
            (in->option == BPPSA_OPTION_WEIGHTS && out->option == BPPSA_OPTION_SAVE_WEIGHTS)) {
          continue;
        }
        const char *one = bppsa_option_get(in->option)->name, *other = bppsa_option_get(out->option)->name;
        compose(*command, out->option, line, sizeof line);
        snprintf(wanted, sizeof wanted, "%s: ./same, the file of %s, expected two different files", other, one);
        assert_fails(2, wanted, "%s %s same %s ./same", line, one, other);
        assert_int_equal(count_files(), files);
        ++pairs;
      }
    }
  }
  assert_true(pairs > 60);
  assert_fails(2, "--svg: net.json, the file of the network, expected two different files", "plan net.json --svg net.json");
}

/* Options that take a name or a file, and data sets that are folders: hard links and links lead to their files, too. */
static void test_inputs_that_are_no_paths(void **state) {
  (void)state;
  static const struct {
    const char *line, *says;
  } lines[] = {
      {"train rnn --ranks 2 --split s.csv --log ./s.csv", "--log: ./s.csv, the file of --split"},
      {"train rnn --ranks 2 --split s.csv --save-weights s.csv", "--save-weights: s.csv, the file of --split"},
      {"oracle m.json sy.json --save-model sy.json", "--save-model: sy.json, the file of --system"},
      {"oracle m.json h200x4 --save-model ./m.json", "--save-model: ./m.json, the file of --model"},
      {"calibrate net.json --out net.json", "--out: net.json, the file of --model"},
      {"train lenet5 --data cifar10:images --log images/data_batch_1.bin", "--log: images/data_batch_1.bin, the file of --data"},
      {"train lenet5 --data cifar10:images --save-weights images/test_batch.bin", "images/test_batch.bin, the file of --data"},
      {"train lenet5 --data cifar10:images --log hard", "--log: hard, the file of --data"},
      {"train rnn --data irmas:sounds --log sounds/cel/a.wav", "--log: sounds/cel/a.wav, the file of --data"},
      {"train rnn --data instruments:sounds --save-weights soft", "--save-weights: soft, the file of --data"},
      {"data irmas sounds --out-x sounds/cel/a.wav --out-y y.npy", "--out-x: sounds/cel/a.wav, the file of the folder of sounds"},
      {"data irmas sounds --out-x x.npy --out-y soft", "--out-y: soft, the file of the folder of sounds"}};
  assert_int_equal(system("mkdir -p images sounds/cel && touch images/data_batch_1.bin sounds/cel/a.wav && "
                          "ln images/data_batch_1.bin hard && ln -s sounds/cel/a.wav soft"),
                   0);
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    assert_fails(2, lines[i].says, "%s", lines[i].line);
  }
  /* a name is no file */
  json_decref(run_json("train rnn --seq-len 3 --samples 32 --hidden 2 --iterations 1 --ranks 2 --split time --log time --json"));
  assert_int_equal(system("mkdir -p d && touch d/checkpoint.new.safetensors"), 0);
  assert_fails(2, "--checkpoint: d/checkpoint.new.safetensors, the file of --weights, expected two different files",
               "train rnn --iterations 1 --checkpoint d --weights d/checkpoint.new.safetensors");
  assert_fails(2, "--checkpoint: d/checkpoint.new.safetensors, the file of --order",
               "train rnn --iterations 1 --checkpoint d --order d/../d/checkpoint.new.safetensors");
  assert_int_equal(system("rm -r images sounds hard soft time d"), 0);
}

/* Standard output and error may not go to the file of an output; /dev/stdout names it on purpose. */
static void test_streams(void **state) {
  (void)state;
  for (int descriptor = 1; descriptor <= 2; ++descriptor) {
    const int file = open("both", O_WRONLY | O_CREAT | O_TRUNC, 0666), kept = dup(descriptor);
    char wanted[100];
    assert_true(file >= 0 && kept >= 0 && dup2(file, descriptor) == descriptor);
    run_result result = run("train rnn --iterations 1 --samples 32 --seq-len 3 --log ./both");
    run_result stream =
        run("data bitstream --samples 2 --seq-len 2 --out-x /dev/std%s --out-y Y.npy", descriptor == 1 ? "out" : "err");
    assert_int_equal(dup2(kept, descriptor), descriptor);
    assert_int_equal(close(file) + close(kept), 0);
    snprintf(wanted, sizeof wanted, "bppsa: error: --log: ./both: standard %s goes to this file, expected another\n",
             descriptor == 1 ? "output" : "error");
    assert_string_equal(result.err, wanted);
    assert_int_equal(result.code, 2);
    assert_int_equal(stream.code, 0);
    release(&result);
    release(&stream);
  }
  assert_int_equal(remove("both") + remove("Y.npy"), 0);
}

static void check_role(const bppsa_option_info *info) {
  if (info->kind == BPPSA_TEXT && strncmp(info->expected, "the path of ", 12) == 0) {
    const bool written = strcmp(info->expected, "the path of the file to write") == 0;
    const bool folder = strcmp(info->expected, "the path of a directory") == 0;
    const bppsa_path_use wanted = written ? BPPSA_PATH_WRITTEN : !folder ? BPPSA_PATH_READ : BPPSA_PATH_FOLDER;
    if (info->path != wanted && info != bppsa_option_get(BPPSA_OPTION_DIRECTORY)) { /* --directory is read */
      fail_msg("%s: path is %d, expected %d", info->name, (int)info->path, (int)wanted);
    }
  } else {
    const bool either = info->kind == BPPSA_TEXT && (strstr(info->expected, ", or a file .json") != NULL ||
                                                     strstr(info->expected, ", or a schedule") != NULL);
    assert_int_equal(info->path, either ? BPPSA_PATH_OR_NAME : BPPSA_NO_PATH);
  }
}

/* A new option for a path cannot be forgotten in the checks. */
static void test_roles(void **state) {
  (void)state;
  for (int i = 0; i < BPPSA_OPTION_COUNT; ++i) {
    check_role(bppsa_option_get((bppsa_option)i));
  }
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    for (const bppsa_option_use *use = (*command)->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
      check_role(bppsa_option_of(use));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_links),        cmocka_unit_test(test_names),  cmocka_unit_test(test_directories),
      cmocka_unit_test(test_link_to_file), cmocka_unit_test(test_table),  cmocka_unit_test(test_permissions),
      cmocka_unit_test(test_distinct),     cmocka_unit_test(test_roles),  cmocka_unit_test(test_inputs_that_are_no_paths),
      cmocka_unit_test(test_streams),      cmocka_unit_test(test_proven), cmocka_unit_test(test_mounted)};
  return cmocka_run_group_tests(tests, enter_with_batch, leave_directory);
}

/* Checkpoints: saved states are restored bit for bit, damage is found, and no failure or kill leaves the directory without one. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "tests/core/helpers.h"
#include "tests/support/folder.h"
#include "tests/support/io_fault.h"
#include "tests/support/json_memory.h"
#include "tests/train/forge.h"
#include "train/checkpoint.h"

#define FOLDER "checkpoint_test"
#define DIR_NAME FOLDER "/run"
#define LATEST DIR_NAME "/checkpoint.safetensors"
#define PREVIOUS DIR_NAME "/checkpoint.previous.safetensors"

enum { WEIGHTS = 1000 };

static float weights[WEIGHTS];
static int64_t cursor[2];
static bppsa_named_view tensors[2];
static const bppsa_metadata fields[] = {{"model", "test"}, {"seed", "3"}};

static bppsa_checkpoint_contents contents(void) {
  const int64_t shapes[2] = {WEIGHTS, 2};
  tensors[0] = (bppsa_named_view){"weights", bppsa_view_make(weights, BPPSA_F32, 1, &shapes[0])};
  tensors[1] = (bppsa_named_view){"cursor", bppsa_view_make(cursor, BPPSA_I64, 1, &shapes[1])};
  return (bppsa_checkpoint_contents){2, tensors, 2, fields, NULL};
}

/* The state after `step` steps. */
static void set_state(int64_t step) {
  for (int64_t i = 0; i < WEIGHTS; ++i) {
    weights[i] = (float)step + (float)i / 3.0f;
  }
  cursor[0] = step;
  cursor[1] = -step;
}

static bool state_is(int64_t step) {
  bool same = cursor[0] == step && cursor[1] == -step;
  for (int64_t i = 0; i < WEIGHTS; ++i) {
    same = same && weights[i] == (float)step + (float)i / 3.0f;
  }
  return same;
}

static bppsa_status open_run(bppsa_checkpoint **checkpoint) {
  const bppsa_checkpoint_contents c = contents();
  return bppsa_checkpoint_open(DIR_NAME, &c, checkpoint);
}

static bppsa_checkpoint *must_open(void) {
  bppsa_checkpoint *checkpoint = NULL;
  if (open_run(&checkpoint) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  return checkpoint;
}

static void save_steps(int64_t first, int64_t last) {
  bppsa_checkpoint *checkpoint = must_open();
  for (int64_t step = first; step <= last; ++step) {
    set_state(step);
    assert_int_equal(bppsa_checkpoint_save(checkpoint), BPPSA_OK);
  }
  bppsa_checkpoint_close(checkpoint);
}

/* The step of the checkpoint that a load restores; fails the test if there is none. */
static int64_t load_step(char *notice) {
  bppsa_checkpoint *checkpoint = must_open();
  set_state(-99);
  if (bppsa_checkpoint_load(checkpoint, notice) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  bppsa_checkpoint_close(checkpoint);
  assert_true(state_is(cursor[0]));
  return cursor[0];
}

static int setup(void **state) {
  (void)state;
  fresh_folder(FOLDER);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  (void)umount2(FOLDER, MNT_DETACH); /* in case a failed test left it mounted */
  remove_folder(FOLDER);
  return 0;
}

static void saved_values_come_back(void **state) {
  (void)state;
  char notice[BPPSA_CHECKPOINT_NOTICE];
  const int64_t live = bppsa_alloc_live(), open_files = bppsa_io_open_count();
  bppsa_checkpoint *checkpoint = must_open();
  assert_false(bppsa_checkpoint_exists(checkpoint));
  assert_error(bppsa_checkpoint_load(checkpoint, notice), BPPSA_ERR_ARGUMENT, "there is no checkpoint to resume");
  bppsa_checkpoint_close(checkpoint);
  save_steps(1, 1);
  assert_int_equal(entries(DIR_NAME), 1);
  save_steps(2, 4);
  assert_int_equal(entries(DIR_NAME), 2); /* the latest and the previous one */
  assert_int_equal(load_step(notice), 4);
  assert_string_equal(notice, "");
  assert_int_equal(remove(LATEST), 0);
  assert_int_equal(load_step(notice), 3); /* a kill between the two renames */
  assert_non_null(strstr(notice, "the previous checkpoint is used"));
  const char *const keys[] = {"seed", "model", "none"};
  char values[3][BPPSA_CHECKPOINT_VALUE];
  assert_int_equal(bppsa_checkpoint_peek(DIR_NAME, 3, keys, values), BPPSA_OK);
  assert_string_equal(values[0], "3");
  assert_string_equal(values[1], "test");
  assert_string_equal(values[2], "");
  assert_error(bppsa_checkpoint_peek(FOLDER, 3, keys, values), BPPSA_ERR_ARGUMENT, "there is no checkpoint");
  assert_int_equal(bppsa_alloc_live(), live);
  assert_int_equal(bppsa_io_open_count(), open_files);
}

/* Flips one bit of the file. */
static void flip(const char *path, long byte) {
  FILE *file = fopen(path, "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, byte, SEEK_SET), 0);
  const int old = fgetc(file);
  assert_int_equal(fseek(file, byte, SEEK_SET), 0);
  assert_int_equal(fputc(old ^ 4, file), old ^ 4);
  assert_int_equal(fclose(file), 0);
}

static long size_of(const char *path) {
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  return (long)info.st_size;
}

/* Wherever a bit is wrong, in header or data, and wherever the file ends, the previous checkpoint is loaded. */
static void every_damage_is_found(void **state) {
  (void)state;
  char notice[BPPSA_CHECKPOINT_NOTICE];
  save_steps(1, 2);
  const long size = size_of(LATEST);
  int found = 0, tried = 0;
  assert_int_equal(system("cp " LATEST " " FOLDER "/good"), 0);
  for (long byte = 0; byte < size; byte += byte < 1000 ? 3 : 97) {
    flip(LATEST, byte);
    bppsa_checkpoint *checkpoint = must_open();
    set_state(-99);
    assert_int_equal(bppsa_checkpoint_load(checkpoint, notice), BPPSA_OK);
    bppsa_checkpoint_close(checkpoint);
    found += state_is(1) && notice[0] != '\0';
    assert_true(state_is(1) || state_is(2)); /* at most a space of the header's padding is another blank */
    ++tried;
    assert_int_equal(system("cp " FOLDER "/good " LATEST), 0);
  }
  assert_true(tried > 300 && found >= tried - 3);
  for (long end = 0; end < size; end += 1 + size / 20) {
    assert_int_equal(truncate(LATEST, end), 0);
    assert_int_equal(load_step(notice), 1);
    assert_non_null(strstr(notice, LATEST));
    assert_int_equal(system("cp " FOLDER "/good " LATEST), 0);
  }
  flip(LATEST, size - 1);
  flip(PREVIOUS, size - 1);
  bppsa_checkpoint *checkpoint = must_open();
  set_state(7);
  assert_error(bppsa_checkpoint_load(checkpoint, notice), BPPSA_ERR_FORMAT, "no valid checkpoint");
  assert_non_null(strstr(bppsa_last_error(), "checksum"));
  assert_true(state_is(7)); /* nothing was touched */
  bppsa_checkpoint_close(checkpoint);
}

/* A damaged latest checkpoint never replaces the good previous one. */
static void the_good_one_survives_the_next_save(void **state) {
  (void)state;
  char notice[BPPSA_CHECKPOINT_NOTICE];
  save_steps(1, 2);
  flip(LATEST, size_of(LATEST) - 1);
  bppsa_checkpoint *checkpoint = must_open();
  assert_int_equal(bppsa_checkpoint_load(checkpoint, notice), BPPSA_OK);
  assert_true(state_is(1));
  set_state(5);
  assert_int_equal(bppsa_checkpoint_save(checkpoint), BPPSA_OK);
  assert_int_equal(remove(LATEST), 0);
  assert_int_equal(bppsa_checkpoint_load(checkpoint, notice), BPPSA_OK);
  assert_true(state_is(1));
  bppsa_checkpoint_close(checkpoint);
}

static void contradictions_name_both_sides(void **state) {
  (void)state;
  char notice[BPPSA_CHECKPOINT_NOTICE];
  save_steps(1, 1);
  bppsa_checkpoint_contents c = contents();
  const bppsa_metadata other[] = {{"model", "test"}, {"seed", "4"}}, more[] = {{"model", "test"}, {"momentum", "0"}};
  const struct {
    const bppsa_metadata *values;
    const char *text;
  } cases[] = {{other, "seed 3 contradicts this run, which has 4"}, {more, "momentum missing contradicts this run, which has 0"}};
  bppsa_checkpoint *checkpoint = NULL;
  for (size_t i = 0; i < 2; ++i) {
    c.fields = cases[i].values;
    assert_int_equal(bppsa_checkpoint_open(DIR_NAME, &c, &checkpoint), BPPSA_OK);
    assert_error(bppsa_checkpoint_load(checkpoint, notice), BPPSA_ERR_ARGUMENT, cases[i].text);
    bppsa_checkpoint_close(checkpoint);
  }
  /* a field that the run lacks, unless it may differ */
  c.fields = other;
  c.field_count = 1;
  assert_int_equal(bppsa_checkpoint_open(DIR_NAME, &c, &checkpoint), BPPSA_OK);
  assert_error(bppsa_checkpoint_load(checkpoint, notice), BPPSA_ERR_ARGUMENT, "seed 3 contradicts this run, which has none");
  bppsa_checkpoint_close(checkpoint);
  for (c.field_count = 1, c.open_key = "seed"; c.field_count <= 2; ++c.field_count) {
    assert_int_equal(bppsa_checkpoint_open(DIR_NAME, &c, &checkpoint), BPPSA_OK);
    assert_int_equal(bppsa_checkpoint_load(checkpoint, notice), BPPSA_OK);
    bppsa_checkpoint_close(checkpoint);
  }
  c = contents();
  const int64_t smaller = WEIGHTS / 2;
  tensors[0].view = bppsa_view_make(weights, BPPSA_F64, 1, &smaller);
  assert_int_equal(bppsa_checkpoint_open(DIR_NAME, &c, &checkpoint), BPPSA_OK);
  assert_error(bppsa_checkpoint_load(checkpoint, notice), BPPSA_ERR_SHAPE,
               "\"weights\": f32 [1000] contradicts this run, which has f64 [500]");
  bppsa_checkpoint_close(checkpoint);
  tensors[0].name = "biases";
  assert_int_equal(bppsa_checkpoint_open(DIR_NAME, &c, &checkpoint), BPPSA_OK);
  assert_error(bppsa_checkpoint_load(checkpoint, notice), BPPSA_ERR_SHAPE, "\"biases\" is missing");
  bppsa_checkpoint_close(checkpoint);
}

static void other_formats_and_versions_are_named(void **state) {
  (void)state;
  char notice[BPPSA_CHECKPOINT_NOTICE], name[300];
  save_steps(1, 1);
  forge_entry(DIR_NAME, NULL, 0, NULL, "version", "0.0.1");
  bppsa_checkpoint *checkpoint = must_open();
  assert_int_equal(bppsa_checkpoint_load(checkpoint, notice), BPPSA_OK);
  assert_non_null(strstr(notice, "the checkpoint was written by version 0.0.1, this is "));
  bppsa_checkpoint_close(checkpoint);
  forge_entry(DIR_NAME, NULL, 0, NULL, "bppsa_checkpoint", "99");
  checkpoint = must_open();
  assert_error(bppsa_checkpoint_load(checkpoint, notice), BPPSA_ERR_ARGUMENT, ": format 99, expected ");
  bppsa_checkpoint_close(checkpoint);
  bppsa_checkpoint_contents c = contents();
  memset(name, 'w', sizeof name);
  name[241] = '\0';
  tensors[0].name = name;
  assert_error(bppsa_checkpoint_open(DIR_NAME, &c, &checkpoint), BPPSA_ERR_UNSUPPORTED,
               "checkpoint: a tensor's name of 241 bytes, expected at most 240");
}

static void a_directory_serves_one_run(void **state) {
  (void)state;
  bppsa_checkpoint *first = must_open(), *second = NULL;
  assert_error(open_run(&second), BPPSA_ERR_ARGUMENT, "in use by another run");
  assert_null(second);
  bppsa_checkpoint_close(first);
  bppsa_checkpoint_close(must_open());
  bppsa_checkpoint_contents c = contents();
  assert_error(bppsa_checkpoint_open(FOLDER "/no/run", &c, &second), BPPSA_ERR_IO, "cannot be made: No such file");
  assert_int_equal(system("touch " FOLDER "/file"), 0);
  assert_error(bppsa_checkpoint_open(FOLDER "/file", &c, &second), BPPSA_ERR_IO, "Not a directory");
  assert_int_equal(system("touch " DIR_NAME "/.bppsa-999999999-1.tmp " DIR_NAME "/checkpoint.new.safetensors"), 0);
  bppsa_checkpoint_close(must_open()); /* removes what killed runs left */
  assert_int_equal(entries(DIR_NAME), 0);
}

static void no_failure_loses_a_checkpoint(void **state) {
  (void)state;
  const int errors[] = {ENOSPC, EIO};
  char notice[BPPSA_CHECKPOINT_NOTICE];
  for (int way = 0; way < 4; ++way) {
    bool done = false;
    int64_t call = 1;
    for (; !done; ++call) {
      fresh_folder(FOLDER);
      save_steps(1, 2);
      const int64_t live = bppsa_alloc_live(), open_files = bppsa_io_open_count();
      bppsa_checkpoint *checkpoint = NULL;
      io_fault fault;
      io_fault_set(&fault, call, way >= 2, errors[way % 2]);
      bppsa_status status = open_run(&checkpoint);
      set_state(3);
      if (status == BPPSA_OK) {
        status = bppsa_checkpoint_save(checkpoint);
      }
      bppsa_checkpoint_close(checkpoint);
      io_fault_clear();
      done = fault.failed == 0;
      assert_int_equal(bppsa_alloc_live(), live);
      assert_int_equal(bppsa_io_open_count(), open_files);
      if (status != BPPSA_OK) {
        assert_error(status, BPPSA_ERR_IO, strerror(errors[way % 2]));
        assert_non_null(strstr(bppsa_last_error(), DIR_NAME));
      } else {
        assert_true(done || fault.kind == BPPSA_IO_CLOSE); /* of a directory */
      }
      const int64_t step = load_step(notice);
      assert_true(status == BPPSA_OK ? step == 3 : step == 2 || step == 3);
      assert_int_equal(entries(DIR_NAME), notice[0] == '\0' ? 2 : 1);
    }
    assert_true(call > 14);
  }
}

/* A load uses the previous checkpoint if the latest cannot be read; if neither can, it says so. */
static void no_failure_of_a_load_goes_unnoticed(void **state) {
  (void)state;
  char notice[BPPSA_CHECKPOINT_NOTICE];
  save_steps(1, 2);
  for (int onwards = 0; onwards < 2; ++onwards) {
    bool done = false;
    for (int64_t call = 1; !done; ++call) {
      bppsa_checkpoint *checkpoint = must_open();
      const int64_t live = bppsa_alloc_live(), open_files = bppsa_io_open_count();
      io_fault fault;
      set_state(-99);
      io_fault_set(&fault, call, onwards == 1, EIO);
      const bppsa_status status = bppsa_checkpoint_load(checkpoint, notice);
      io_fault_clear();
      assert_int_equal(bppsa_alloc_live(), live);
      assert_int_equal(bppsa_io_open_count(), open_files);
      done = fault.failed == 0;
      if (done || fault.kind == BPPSA_IO_CLOSE) {
        assert_int_equal(status, BPPSA_OK);
        assert_true(state_is(2) && notice[0] == '\0');
      } else if (onwards == 0) {
        assert_int_equal(status, BPPSA_OK);
        assert_true(state_is(1) && strstr(notice, "Input/output error") != NULL);
      } else {
        assert_error(status, BPPSA_ERR_FORMAT, "Input/output error");
        assert_true(state_is(-99));
      }
      bppsa_checkpoint_close(checkpoint);
    }
  }
}

static void out_of_memory_is_an_error(void **state) {
  (void)state;
  char notice[BPPSA_CHECKPOINT_NOTICE];
  save_steps(1, 2);
  bool done = false;
  int64_t call = 1;
  for (; !done; ++call) {
    const int64_t live = bppsa_alloc_live(), open_files = bppsa_io_open_count();
    bppsa_checkpoint *checkpoint = NULL;
    bppsa_alloc_fail_once(call);
    bppsa_status status = open_run(&checkpoint);
    if (status == BPPSA_OK) {
      status = bppsa_checkpoint_load(checkpoint, notice);
    }
    if (status == BPPSA_OK) {
      status = bppsa_checkpoint_save(checkpoint);
    }
    done = bppsa_alloc_calls() < call;
    bppsa_alloc_fail_at(0);
    bppsa_checkpoint_close(checkpoint);
    assert_int_equal(status, done ? BPPSA_OK : BPPSA_ERR_MEMORY);
    assert_int_equal(bppsa_alloc_live(), live);
    assert_int_equal(bppsa_io_open_count(), open_files);
    assert_int_equal(load_step(notice), 2);
    assert_string_equal(notice, "");
  }
  assert_true(call > 50);
}

/* Killed before every call of opening and saving: the latest, the previous, or the checkpoint being saved can be loaded. */
static void no_kill_loses_a_checkpoint(void **state) {
  (void)state;
  char notice[BPPSA_CHECKPOINT_NOTICE];
  bool done = false;
  int seen[4] = {0};
  for (int64_t call = 1; !done; ++call) {
    fresh_folder(FOLDER);
    save_steps(1, 2);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      bppsa_checkpoint *checkpoint = NULL;
      io_fault fault;
      io_fault_set(&fault, call, false, 0);
      bool good = open_run(&checkpoint) == BPPSA_OK;
      set_state(3);
      good = good && bppsa_checkpoint_save(checkpoint) == BPPSA_OK;
      bppsa_checkpoint_close(checkpoint);
      _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    done = WIFEXITED(status);
    assert_true(done ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
    const int64_t step = load_step(notice);
    assert_true(step == 2 || step == 3);
    seen[step] += 1;
    assert_int_equal(entries(DIR_NAME), notice[0] == '\0' ? 2 : 1); /* and nothing is left over */
  }
  assert_true(seen[2] > 8 && seen[3] > 1);
}

/* Saves until the disk is full; then the last complete checkpoint must still exist. */
static void fill(const char *what) {
  char notice[BPPSA_CHECKPOINT_NOTICE];
  bppsa_checkpoint *checkpoint = must_open();
  set_state(1);
  assert_int_equal(bppsa_checkpoint_save(checkpoint), BPPSA_OK);
  set_state(2);
  const bppsa_status status = bppsa_checkpoint_save(checkpoint);
  assert_error(status, BPPSA_ERR_IO, what);
  assert_int_equal(entries(DIR_NAME), 1); /* the temporary file is gone */
  bppsa_checkpoint_close(checkpoint);
  assert_int_equal(load_step(notice), 1);
  assert_string_equal(notice, "");
}

/* A file system with room for one checkpoint. */
static void a_full_disk_loses_nothing(void **state) {
  (void)state;
  if (mount("tmpfs", FOLDER, "tmpfs", 0, "size=8k") != 0) {
    print_message("no file system can be mounted here: %s\n", strerror(errno));
    skip();
  }
  fill("No space left on device");
  assert_int_equal(umount2(FOLDER, MNT_DETACH), 0);
}

/* The same with a limit on file sizes, which needs no mount. */
static void a_limit_loses_nothing(void **state) {
  (void)state;
  char notice[BPPSA_CHECKPOINT_NOTICE];
  struct rlimit before;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  save_steps(1, 1);
  bppsa_checkpoint *checkpoint = must_open();
  set_state(2);
  const struct rlimit limit = {4000, before.rlim_max};
  (void)signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const bppsa_status status = bppsa_checkpoint_save(checkpoint);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)signal(SIGXFSZ, SIG_DFL);
  assert_error(status, BPPSA_ERR_IO, "File too large");
  assert_int_equal(entries(DIR_NAME), 1);
  bppsa_checkpoint_close(checkpoint);
  assert_int_equal(load_step(notice), 1);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(saved_values_come_back, setup, teardown),
      cmocka_unit_test_setup_teardown(every_damage_is_found, setup, teardown),
      cmocka_unit_test_setup_teardown(the_good_one_survives_the_next_save, setup, teardown),
      cmocka_unit_test_setup_teardown(contradictions_name_both_sides, setup, teardown),
      cmocka_unit_test_setup_teardown(other_formats_and_versions_are_named, setup, teardown),
      cmocka_unit_test_setup_teardown(a_directory_serves_one_run, setup, teardown),
      cmocka_unit_test_setup_teardown(no_failure_loses_a_checkpoint, setup, teardown),
      cmocka_unit_test_setup_teardown(no_failure_of_a_load_goes_unnoticed, setup, teardown),
      cmocka_unit_test_setup_teardown(out_of_memory_is_an_error, setup, teardown),
      cmocka_unit_test_setup_teardown(no_kill_loses_a_checkpoint, setup, teardown),
      cmocka_unit_test_setup_teardown(a_full_disk_loses_nothing, setup, teardown),
      cmocka_unit_test_setup_teardown(a_limit_loses_nothing, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* `figures` that is interrupted and goes on, refuses what it cannot go on with, and draws no conclusion from noise. */
#include "tests/cli/run_cli.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "core/files/json.h"

#define SWEEP "--quick --repeats 1 --iterations 1 --threads 1"

static json_t *load(const char *path) {
  json_t *document = NULL;
  return bppsa_json_load(path, &document) == BPPSA_OK ? document : NULL;
}

static void save(const char *path, const json_t *document) {
  char *text = NULL;
  assert_int_equal(bppsa_json_text(document, 0, 0, &text), BPPSA_OK);
  write_bytes(path, text, strlen(text));
  bppsa_free(text);
}

static size_t rows_in(const char *path) {
  json_t *document = load(path);
  const size_t count = json_array_size(json_object_get(document, "rows"));
  json_decref(document);
  return count;
}

/* Without --resume the command is refused for DIRECTORY/name, which stays as it is. */
static void assert_kept(const char *directory, const char *name, const char *command) {
  char path[64], says[200];
  size_t size, after_size;
  snprintf(path, sizeof path, "%s/%s", directory, name);
  snprintf(says, sizeof says, "--out: %s: %s holds the measurements of an interrupted run, expected --resume to continue it",
           directory, name);
  char *before = read_bytes(path, &size);
  assert_fails(2, says, "%s --out %s", command, directory);
  char *after = read_bytes(path, &after_size);
  assert_int_equal(after_size, size);
  assert_memory_equal(after, before, size);
  free(before);
  free(after);
}

/* ---- interrupted sweeps ---- */

/* The real program, sweeping into `directory`, its errors in the file "err". */
static pid_t start(const char *directory) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY), err = open("err", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (null < 0 || err < 0 || dup2(null, 1) < 0 || dup2(err, 2) < 0) {
      _exit(9);
    }
    execl(BPPSA_TEST_PROGRAM, "bppsa", "figures", "--quick", "--repeats", "1", "--iterations", "1", "--threads", "1", "--out",
          directory, (char *)NULL);
    _exit(9);
  }
  return child;
}

/* Ends the program by the signal once its first point is kept. Returns how it ended. */
static int interrupt(const char *directory, int number) {
  char path[64];
  int status = 0;
  snprintf(path, sizeof path, "%s/results.json", directory);
  const pid_t child = start(directory);
  for (int wait = 0; wait < 60000 && rows_in(path) == 0; ++wait) {
    (void)usleep(1000);
  }
  assert_true(rows_in(path) > 0);
  assert_int_equal(kill(child, number), 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

static void check_message(void) {
  size_t size;
  char *text = read_bytes("err", &size);
  text[size] = '\0';
  assert_memory_equal(text, "bppsa: error: stopped by SIGINT after point ", 44);
  assert_non_null(strstr(text, " of 12, what it measured is kept in A, expected --resume to continue\n"));
  free(text);
}

static void test_interrupted(void **state) {
  (void)state;
  const struct {
    int number;
    const char *directory;
  } ends[] = {{SIGINT, "A"}, {SIGKILL, "B"}};
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; ++i) {
    char path[64];
    const int status = interrupt(ends[i].directory, ends[i].number);
    snprintf(path, sizeof path, "%s/results.json", ends[i].directory);
    if (ends[i].number == SIGINT) {
      assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
      check_message();
    } else {
      assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    json_t *before = load(path), *kept = json_object_get(before, "rows");
    assert_true(json_array_size(kept) > 0 && json_array_size(kept) < 12 * 7);
    assert_int_equal(json_array_size(kept) % 7, 0); /* whole points: forward, bp, speculative, linear, blelloch, chunked, auto */
    assert_kept(ends[i].directory, "results.json", "figures " SWEEP);
    json_decref(run_json("figures " SWEEP " --resume --out %s --json", ends[i].directory));
    json_t *after = load(path), *rows = json_object_get(after, "rows");
    assert_int_equal(json_array_size(rows), 12 * 7);
    assert_true(json_is_true(json_object_get(after, "finished")));
    for (size_t r = 0; r < json_array_size(kept); ++r) {
      assert_true(json_equal(json_array_get(kept, r), json_array_get(rows, r))); /* not measured again */
    }
    json_decref(before);
    json_decref(after);
    snprintf(path, sizeof path, "%s/index.html", ends[i].directory);
    assert_true(file_exists(path));
  }
}

/* ---- repeats of the training, and refusals ---- */

#define POINT "figures --seq-len 12 --hidden 3 --batch 4 --repeats 1 --iterations 25 --threads 1 --out C"

static void test_repeats(void **state) {
  (void)state;
  json_decref(run_json(POINT " --json"));
  json_t *curves = load("C/figure7.json"), *repeats = json_object_get(curves, "repeats");
  assert_in_range(json_array_size(repeats), 3, 5);
  json_t *first = json_deep_copy(json_array_get(repeats, 0)), *results = load("C/results.json");
  while (json_array_size(repeats) > 1) {
    json_array_remove(repeats, 1);
  }
  save("C/figure7.json", curves);
  json_decref(run_json(POINT " --resume --json"));
  json_t *after = load("C/figure7.json"), *same = load("C/results.json");
  assert_in_range(json_array_size(json_object_get(after, "repeats")), 3, 5);
  assert_true(json_equal(json_array_get(json_object_get(after, "repeats"), 0), first));
  assert_true(json_equal(json_object_get(after, "losses"), json_object_get(curves, "losses")));
  assert_true(json_equal(same, results)); /* its date, too: the point was not measured again */
  json_t *losses = json_array_get(json_object_get(after, "losses"), 1);
  json_array_set_new(losses, 0, json_real(1)); /* what a later repeat finds is held against it */
  json_array_clear(json_object_get(after, "repeats"));
  json_array_append(json_object_get(after, "repeats"), first);
  save("C/figure7.json", after);
  assert_fails(1, "figure7: the losses of a repeat differ from the first repeat's", POINT " --resume");
  json_array_clear(json_array_get(first, 0));
  save("C/figure7.json", after);
  assert_fails(2, "--resume: C/figure7.json: its lists have other lengths", POINT " --resume");
  json_decref(first);
  json_decref(after);
  json_decref(same);
  json_decref(results);
  json_decref(curves);
}

#define SMALL "figures --seq-len 5 --hidden 2 --batch 2 --repeats 1 --iterations 1 --threads 1"

static void set_finished(const char *path, bool finished) {
  json_t *document = load(path);
  assert_true(json_is_boolean(json_object_get(document, "finished")));
  assert_int_equal(json_object_set_new(document, "finished", json_boolean(finished)), 0);
  save(path, document);
  json_decref(document);
}

/* A finished run's directory is measured into again, an interrupted one's is not, whichever of its documents says so. */
static void test_overwrite(void **state) {
  (void)state;
  static const char *const names[] = {"results.json", "figure7.json"};
  json_decref(run_json(SMALL " --out F --json"));
  json_decref(run_json(SMALL " --seed 1 --out F --json"));
  json_t *document = load("F/results.json");
  assert_int_equal(get_integer(json_object_get(document, "configuration"), "--seed"), 1);
  json_decref(document);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    char path[64];
    snprintf(path, sizeof path, "F/%s", names[i]);
    set_finished(path, false);
    assert_kept("F", names[i], SMALL);
    set_finished(path, true);
  }
  write_bytes("F/results.json", "no JSON", 7);
  json_decref(run_json(SMALL " --out F --json"));
  write_bytes("F/networks.json", "{\"finished\": false}", 19);
  assert_kept("F", "networks.json", "figures --cnn --quick --threads 1");
  json_decref(run_json(SMALL " --out F --json")); /* overwrites nothing of networks.json */
}

static void test_refused(void **state) {
  (void)state;
  json_decref(run_json("figures --seq-len 5 --hidden 2 --batch 2 --repeats 1 --iterations 1 --threads 1 --out D --json"));
  assert_fails(2, "--resume: --seed: 1, but the measurements in D/results.json were made with 0, expected the same setting",
               "figures --seq-len 5 --hidden 2 --batch 2 --repeats 1 --iterations 1 --threads 1 --seed 1 --out D --resume");
  assert_fails(2, "--resume: --threads: 2, but the measurements in D/results.json were made with 1",
               "figures --seq-len 5 --hidden 2 --batch 2 --repeats 1 --iterations 1 --threads 2 --out D --resume");
  assert_fails(2, "--resume: --repeats: \"none\", but the measurements in D/results.json were made with 1",
               "figures --seq-len 5 --hidden 2 --batch 2 --iterations 1 --threads 1 --out D --resume");
  assert_fails(2, "--resume: N: the directory has no measurements", "figures --seq-len 5 --out N --resume");
  write_bytes("D/results.json", "{\"rows\": [", 10);
  assert_fails(2, "D/results.json: ", "figures --seq-len 5 --out D --resume");
  write_bytes("D/results.json", "{\"rows\": []}", 12);
  assert_fails(2, "no \"configuration\" or no list \"rows\"", "figures --seq-len 5 --out D --resume");
}

/* The whole sweep would take minutes: nothing is measured for a directory that cannot be written. */
static void test_cannot_be_written(void **state) {
  (void)state;
  assert_fails(2, "/proc/self", "figures --out /proc/self");
  assert_fails(2, "/proc/none", "figures --out /proc/none");
  assert_fails(2, "/proc/self", "figures --cnn --out /proc/self");
  assert_int_equal(system("mkdir -p P/figure8.png Q R && mkfifo Q/results.json && ln -s nowhere R/table1.csv"), 0);
  assert_fails(2, "--out: P/figure8.png: not a regular file, expected the path of a new or a regular file",
               "figures " SWEEP " --out P");
  assert_fails(2, "Q/results.json: a pipe, expected a regular file", "figures " SWEEP " --out Q");
  assert_fails(2, "--out: R/table1.csv: a symbolic link that leads nowhere", "figures --cnn --out R");
  assert_int_equal(system("mkdir S && touch S/cifar"), 0);
  assert_fails(2, "--out: S/cifar: not a directory, expected the path of a directory", "figures --cnn --out S");
  assert_false(file_exists("P/results.json"));
}

/* ---- what is concluded ---- */

static json_t *add_row(json_t *rows, int64_t seq_len, const char *phase, const char *method, double seconds, bool noisy) {
  json_t *row = json_pack("{s:I,s:i,s:s,s:s,s:s,s:f,s:f,s:f,s:b}", "seq_len", (json_int_t)seq_len, "batch", 16, "init", "default",
                          "phase", phase, "method", method, "median_s", seconds, "min_s", seconds, "flops", 1e6, "noisy", noisy);
  assert_int_equal(json_array_append_new(rows, row), 0);
  return rows;
}

/* BP takes 9 s and the scan 1 s backward, 1 s forward: (1 + 9) / (1 + 1) = 5. */
static void write_results(bool noisy) {
  json_t *rows = json_array();
  for (int64_t t = 10; t <= 20; t += 10) {
    add_row(rows, t, "forward", "forward", 1, false);
    add_row(rows, t, "backward", "bp", t == 10 ? 9 : 0.5, false);
    add_row(rows, t, "backward", "chunked", 1, noisy && t == 10);
  }
  json_t *document = json_pack("{s:s,s:o}", "bench", "rnn", "rows", rows);
  save("R.json", document);
  json_decref(document);
}

static char *read_text(const char *path) {
  size_t size;
  char *text = read_bytes(path, &size);
  text[size] = '\0';
  return text;
}

static void test_conclusions(void **state) {
  (void)state;
  const char *line = "figures --results R.json --seq-len 3 --batch 2 --iterations 1 --threads 1 --out E";
  write_results(false);
  run_result result = run("%s", line);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "wins most clearly at T = 10, B = 16 (init default), where BP takes 5.00 times"));
  assert_non_null(strstr(result.out, "at 1 of 2 measured points"));
  release(&result);
  char *page = read_text("E/index.html"), *table = read_text("E/table4.csv");
  assert_non_null(strstr(page, "forward and one backward pass</b>"));
  assert_non_null(strstr(page, "<td>5.000</td>"));
  assert_null(strstr(page, "<th>blelloch</th>")); /* not measured: no column */
  assert_null(strstr(page, "id=\"growth\""));     /* two points */
  assert_false(file_exists("E/growth.csv"));
  assert_non_null(strstr(table, ",20000,,,4000,,,\n")); /* 2000 iterations an epoch, minima last */
  free(page);
  free(table);
  write_results(true);
  result = run("%s", line);
  assert_int_equal(result.code, 0);
  assert_null(strstr(result.out, "wins most clearly"));
  assert_non_null(strstr(result.out, "comes closest at T = 20"));
  assert_non_null(strstr(result.out, "1 point is noisy, measured twice, and left out of this"));
  release(&result);
  page = read_text("E/index.html");
  char *points = read_text("E/figure8.csv");
  assert_non_null(strstr(page, "<td>~5.000</td>"));
  assert_non_null(strstr(points, "\nT,10,chunked,1000,9,5,2000,1\n"));
  assert_non_null(strstr(points, "\nT,20,chunked,1000,0.5,0.75,2000,0\n"));
  free(page);
  free(points);
}

/* Figure 3 is VGG-11's: its first product is the last pool's vector by the patterns of that network. */
static void test_sizes(void **state) {
  (void)state;
  json_t *plan = run_json("flops vgg11 --up-levels 4 --json");
  const json_t *steps = json_object_get(plan, "steps");
  char *csv = read_text("E/figure3.csv");
  size_t lines = 0;
  for (const char *at = csv; *at != '\0'; ++at) {
    lines += *at == '\n';
  }
  assert_int_equal(lines, 1 + json_array_size(steps));
  for (size_t i = 0; i < json_array_size(steps); ++i) {
    const json_t *step = json_array_get(steps, i);
    char cell[64];
    snprintf(cell, sizeof cell, ",%lld,%d,%d\n", (long long)get_integer(step, "flops"),
             json_is_true(json_object_get(step, "critical")), json_is_true(json_object_get(step, "dead")));
    if (strstr(csv, cell) == NULL) {
      fail_msg("no product with '%s'", cell);
    }
  }
  free(csv);
  json_decref(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_interrupted), cmocka_unit_test(test_repeats),           cmocka_unit_test(test_overwrite),
      cmocka_unit_test(test_refused),     cmocka_unit_test(test_cannot_be_written), cmocka_unit_test(test_conclusions),
      cmocka_unit_test(test_sizes)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

/* rank_faults PROGRAM COUNT SEED DIRECTORY [RESULT.json [WORDS]]
 *
 * WORDS go on behind the words of the run, such as "--layers 4 --split 1f1b --micro-batches 8".
 *
 * Ranks that die or hang: COUNT injected deaths and COUNT injected hangs among four ranks that are threads, COUNT kills (SIGKILL)
 * and COUNT stops (SIGSTOP) of a random process of `mpirun -n 4`, each at a random moment of a training run with a checkpoint after
 * every step. Every run must
 *
 *   - end within its timeout and 10 s more, with a status that is not 0, and leave no process behind;
 *   - among threads, and after a stop, print exactly one line of error, which names a rank, a step and an operation (a kill may
 *     leave all lines to the launcher);
 *   - leave checkpoints of which one is whole: the run is resumed on another number of ranks, or, along time, on as many, on which
 *     bits depend; and it ends with the weights, bit for bit, of a run that was never interrupted.
 *
 * Kills and stops begin with the first checkpoint, which precedes the first step: mpirun 4.1 itself may hang when a process is
 * killed while MPI starts. After the last step only MPI's own end is left: such a strike is not counted, and may change nothing,
 * but the job ends in the same time. A run that fails before it is struck is reported and counted; UNSTRUCK of them in a row are an
 * error.
 *
 * Prints one line of counts for each kind, and writes them to RESULT.json if given. Exit 1 at the first run that does otherwise, 77
 * without mpirun for the kinds that need it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "bppsa_version.h"
#include "cli/cli.h"
#include "comm/comm.h"
#include "core/compute/device.h"
#include "core/files/safetensors.h"
#include "tests/support/runs.h"

enum { RANKS = 4, STEPS = 60, GRACE = 10, UNSTRUCK = 3 };

/* Steps so many that a run under mpirun lasts some tenths of a second after its start. */
#define RUN "train gru --seq-len 40 --hidden 8 --samples 256 --batch 128 --iterations 60 --threads 1 --checkpoint-every 1"
#define TIMEOUT 2

extern char **environ;

typedef struct {
  const char *name;
  int64_t runs, one_line, before_first_checkpoint;
  int64_t too_late;           /* strikes when the run had ended; they do not count as runs */
  int64_t unstruck, in_a_row; /* runs that failed before they were struck; since the last one that did not */
  double longest;             /* seconds from the fault to the end */
} counts;

static const char *more_words = "";

static void fail(const counts *c, const char *what, const char *output) {
  fprintf(stderr, "rank_faults: %s %" PRId64 ": %s\n%s", c->name, c->runs + 1, what, output);
  exit(1);
}

static bool same_files(const char *a, const char *b) {
  size_t a_size = 0, b_size = 0;
  char *x = run_file(a, &a_size), *y = run_file(b, &b_size);
  const bool same = x != NULL && y != NULL && a_size == b_size && a_size > 0 && memcmp(x, y, a_size) == 0;
  free(x);
  free(y);
  return same;
}

static void clear(void) {
  (void)unlink("err");
  (void)unlink("weights.safetensors");
  DIR *folder = opendir("ck");
  for (const struct dirent *entry = folder != NULL ? readdir(folder) : NULL; entry != NULL; entry = readdir(folder)) {
    char path[400];
    snprintf(path, sizeof path, "ck/%s", entry->d_name);
    (void)unlink(path);
  }
  if (folder != NULL) {
    closedir(folder);
  }
}

/* ---- what a run leaves ---- */

/* Ranks of the runs with which the struck ones are compared. */
static int ranks_beside(int otherwise) {
  return strstr(more_words, "--split time") != NULL ? RANKS : otherwise;
}

/* Resumes the run on two ranks that are threads and compares its weights with those of an uninterrupted run. A run that had not
 * begun its first checkpoint begins again. */
static void resume(counts *c) {
  const bool begun = access("ck/checkpoint.safetensors", F_OK) == 0 || access("ck/checkpoint.previous.safetensors", F_OK) == 0;
  char line[512] = "", *argv[RUN_WORDS], *text = NULL;
  size_t size = 0;
  snprintf(line, sizeof line, "bppsa " RUN " %s --ranks %d --checkpoint ck --save-weights weights.safetensors%s", more_words,
           ranks_beside(2), begun ? " --resume" : "");
  FILE *out = fopen("/dev/null", "w"), *err = open_memstream(&text, &size);
  const int code = bppsa_cli_main(run_words(line, argv), argv, out, err);
  fclose(out);
  fclose(err);
  if (code != 0 || !same_files("weights.safetensors", "whole.safetensors")) {
    fail(c, code != 0 ? "it cannot be resumed" : "the resumed run has other weights", text);
  }
  free(text);
  c->before_first_checkpoint += begun ? 0 : 1;
}

/* Checks what was printed; `needed`: one line must be there. */
static void check_lines(counts *c, const char *text, bool needed) {
  int lines = 0;
  for (const char *at = strstr(text, "bppsa: error: "); at != NULL; at = strstr(at + 1, "bppsa: error: ")) {
    ++lines;
    const char *end = strchr(at, '\n');
    char line[1024];
    snprintf(line, sizeof line, "%.*s", end != NULL ? (int)(end - at) : (int)strlen(at), at);
    if (strstr(line, "rank ") == NULL || strstr(line, ", at ") == NULL || strstr(line, " bytes") == NULL) {
      fail(c, "the line names no rank, place or operation", text);
    }
  }
  if (lines > 1 || (needed && lines != 1)) {
    fail(c, "expected one line of error", text);
  }
  c->one_line += lines;
}

static void check_time(counts *c, double begin, const char *text) {
  const double seconds = run_now() - begin;
  c->longest = seconds > c->longest ? seconds : c->longest;
  if (seconds > TIMEOUT + GRACE) {
    fail(c, "it took too long to end", text);
  }
}

static void check_status(const counts *c, int status, const char *text) {
  if (status == 0) {
    fail(c, "it ended with status 0", text);
  }
}

/* ---- threads ---- */

/* A rank of a run in this process dies, or hangs, at a random operation. */
static void fail_among_threads(counts *c, bool hangs) {
  const int64_t operation = 1 + (int64_t)(run_uniform() * 250);
  const bppsa_comm_fault fault = {.die_at = hangs ? 0 : operation, .stall_at = hangs ? operation : 0};
  char line[512] = "", *argv[RUN_WORDS], *text = NULL;
  size_t size = 0;
  snprintf(line, sizeof line, "bppsa " RUN " %s --ranks %d --timeout %d --checkpoint ck", more_words, RANKS, TIMEOUT);
  clear();
  FILE *out = fopen("/dev/null", "w"), *err = open_memstream(&text, &size);
  bppsa_comm_set_run_fault((int32_t)(run_uniform() * RANKS), &fault);
  const double begin = run_now();
  const int code = bppsa_cli_main(run_words(line, argv), argv, out, err);
  bppsa_comm_set_run_fault(-1, NULL);
  fclose(out);
  fclose(err);
  check_time(c, begin, text);
  check_status(c, code, text);
  check_lines(c, text, true);
  if (code != 1) {
    fail(c, "it did not exit with 1", text);
  }
  free(text);
  resume(c);
  c->runs++;
}

/* ---- processes ---- */

/* The children of a process, at most RANKS of them; returns their number. */
static int children(pid_t parent, pid_t found[RANKS]) {
  char path[64];
  int count = 0;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
  FILE *file = fopen(path, "r");
  for (int pid; file != NULL && count < RANKS && fscanf(file, "%d", &pid) == 1; ++count) {
    found[count] = (pid_t)pid;
  }
  if (file != NULL) {
    fclose(file);
  }
  return count;
}

static pid_t start_mpi(const char *program) {
  char line[1024], *argv[RUN_WORDS];
  snprintf(line, sizeof line, "mpirun %s--oversubscribe -n %d %s " RUN " %s --timeout %d --checkpoint ck",
           geteuid() == 0 ? "--allow-run-as-root " : "", RANKS, program, more_words, TIMEOUT);
  (void)run_words(line, argv);
  posix_spawn_file_actions_t actions;
  pid_t child = -1;
  if (posix_spawn_file_actions_init(&actions) != 0 ||
      posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) != 0 ||
      posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "err", O_WRONLY | O_CREAT | O_TRUNC, 0644) != 0 ||
      posix_spawnp(&child, "mpirun", &actions, NULL, argv, environ) != 0) {
    exit(77);
  }
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

/* Waits for mpirun until the time has come that no run may take; -1: it did not end. */
static int wait_for(pid_t launcher, double begin) {
  int status = 0;
  while (waitpid(launcher, &status, WNOHANG) == 0) {
    if (run_now() - begin > TIMEOUT + GRACE + 5) {
      return -1;
    }
    run_pause(0.01);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Fails, because mpirun did not end. */
static void did_not_end(const counts *c, const pid_t *ranks, int count, int struck_rank, const char *text) {
  char states[256] = "";
  for (int r = 0; r < count; ++r) {
    snprintf(states + strlen(states), sizeof states - strlen(states), "rank %d %s%s; ", r,
             kill(ranks[r], 0) == 0 ? "remains" : "has ended", r == struck_rank ? ", struck" : "");
  }
  fprintf(stderr, "rank_faults: %s\n", states);
  fail(c, "it did not end", text);
}

/* Is the checkpoint that of the last step? Then nothing is left but MPI's own end. */
static bool all_steps_done(void) {
  bppsa_safetensors *file = NULL;
  if (bppsa_safetensors_load("ck/checkpoint.safetensors", &file) != BPPSA_OK) {
    return false;
  }
  const bppsa_view *cursor = bppsa_safetensors_find(file, "train.cursor");
  const bool done = cursor != NULL && ((const int64_t *)cursor->data)[0] == STEPS;
  bppsa_safetensors_destroy(file);
  return done;
}

/* Has the launcher ended? It remains to be waited for. */
static bool has_ended(pid_t launcher) {
  siginfo_t info = {0};
  return waitid(P_PID, (id_t)launcher, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == launcher;
}

/* Sends the signal to a random rank at a random moment. A run that has ended by then does not count, but must have done all. */
static void strike(counts *c, const char *program, int number) {
  pid_t ranks[RANKS];
  clear();
  const pid_t launcher = start_mpi(program);
  const double patience = run_now() + 30;
  while (access("ck/checkpoint.safetensors", F_OK) != 0 && run_now() < patience && !has_ended(launcher)) {
    run_pause(0.002);
  }
  run_pause(run_uniform() * 0.25);
  const int struck_rank = (int)(run_uniform() * RANKS), count = children(launcher, ranks);
  const bool hit = count == RANKS && kill(ranks[struck_rank], number) == 0;
  const double begin = run_now();
  const int status = wait_for(launcher, begin);
  size_t size = 0;
  char *text = run_file("err", &size);
  const char *said = text != NULL ? text : "";
  if (status == -1) {
    did_not_end(c, ranks, count, struck_rank, said);
  }
  for (int r = 0; r < count; ++r) { /* the launcher has ended them; the system may still be removing them */
    for (int tries = 0; kill(ranks[r], 0) == 0; ++tries) {
      if (tries > 200) {
        fail(c, "a process remains", said);
      }
      run_pause(0.01);
    }
  }
  if (hit) {
    check_time(c, begin, said);
  }
  if (status == 0 || all_steps_done()) {
    c->too_late++;
  } else if (!hit) {
    fprintf(stderr, "rank_faults: %s: a run failed before it was struck, with status %d\n%s", c->name, status, said);
    c->unstruck++;
    if (++c->in_a_row == UNSTRUCK) {
      fail(c, "no run lasts until it is struck", said);
    }
  } else {
    c->in_a_row = 0;
    check_status(c, status, said);
    check_lines(c, said, number == SIGSTOP);
    resume(c);
    c->runs++;
  }
  free(text);
}

/* ---- the program ---- */

static void report(const counts *c, json_t *results) {
  printf("rank_faults: %" PRId64 " %s: %" PRId64 " lines of error, %" PRId64
         " before the first checkpoint, at most %.1f s to the end\n",
         c->runs, c->name, c->one_line, c->before_first_checkpoint, c->longest);
  json_object_set_new(results, c->name,
                      json_pack("{s:I, s:I, s:I, s:I, s:I, s:f}", "runs", (json_int_t)c->runs, "error_lines",
                                (json_int_t)c->one_line, "before_first_checkpoint", (json_int_t)c->before_first_checkpoint,
                                "too_late", (json_int_t)c->too_late, "unstruck_failures", (json_int_t)c->unstruck, "longest_s",
                                c->longest));
}

static void train_whole(void) {
  char line[512] = "", *argv[RUN_WORDS];
  snprintf(line, sizeof line, "bppsa " RUN " %s --ranks %d --save-weights whole.safetensors --checkpoint ck", more_words,
           ranks_beside(1));
  FILE *out = fopen("/dev/null", "w");
  clear();
  if (bppsa_cli_main(run_words(line, argv), argv, out, stderr) != 0) {
    exit(1);
  }
  fclose(out);
}

/* Where, when and of what the counts are. */
static void describe(json_t *results) {
  const time_t today = time(NULL);
  char date[32];
  bppsa_device *device = NULL;
  (void)strftime(date, sizeof date, "%Y-%m-%d", gmtime(&today));
  if (bppsa_device_create("cpu", 1, &device) == BPPSA_OK) {
    json_object_set_new(results, "device", json_string(bppsa_device_get_hardware(device)));
  }
  bppsa_device_destroy(device);
  json_object_set_new(results, "bench", json_string("rank_faults"));
  json_object_set_new(results, "cores", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
  json_object_set_new(results, "date", json_string(date));
  json_object_set_new(results, "seed", json_integer((json_int_t)run_seed));
  json_object_set_new(results, "commit", json_string(BPPSA_COMMIT));
  json_object_set_new(results, "ranks", json_integer(RANKS));
  json_object_set_new(results, "timeout_s", json_integer(TIMEOUT));
  json_object_set_new(results, "command", json_sprintf("%s%s%s", RUN, more_words[0] != '\0' ? " " : "", more_words));
}

/* The path of a file of the directory in which the program was started, which it leaves. */
static char *from_here(const char *path) {
  char *here = getcwd(NULL, 0), *whole = NULL;
  size_t size = 0;
  FILE *text = open_memstream(&whole, &size);
  if (here == NULL || text == NULL) {
    perror(path);
    exit(1);
  }
  fprintf(text, "%s%s%s", path[0] == '/' ? "" : here, path[0] == '/' ? "" : "/", path);
  fclose(text);
  free(here);
  return whole;
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "rank_faults PROGRAM COUNT SEED DIRECTORY [RESULT.json [WORDS]]\n");
    return 2;
  }
  const int64_t count = atoll(argv[2]);
  run_seed = (uint64_t)atoll(argv[3]);
  json_t *results = json_object();
  more_words = argc > 6 ? argv[6] : "";
  char *const program = from_here(argv[1]), *const result = argc > 5 ? from_here(argv[5]) : NULL;
  if ((mkdir(argv[4], 0755) != 0 && errno != EEXIST) || chdir(argv[4]) != 0 || results == NULL) {
    perror(argv[4]);
    return 1;
  }
  train_whole();
  counts deaths = {.name = "deaths"}, hangs = {.name = "hangs"}, kills = {.name = "kills"}, stops = {.name = "stops"};
  while (deaths.runs < count) {
    fail_among_threads(&deaths, false);
  }
  report(&deaths, results);
  while (hangs.runs < count) {
    fail_among_threads(&hangs, true);
  }
  report(&hangs, results);
  if (system("command -v mpirun >/dev/null 2>&1") != 0) {
    printf("rank_faults: no mpirun (package openmpi-bin): no kills and no stops\n");
    return 77;
  }
  while (kills.runs < count) {
    strike(&kills, program, SIGKILL);
  }
  report(&kills, results);
  while (stops.runs < count) {
    strike(&stops, program, SIGSTOP);
  }
  report(&stops, results);
  describe(results);
  const int status = result != NULL ? json_dump_file(results, result, JSON_INDENT(1) | JSON_SORT_KEYS) : 0;
  json_decref(results);
  free(program);
  free(result);
  return status == 0 ? 0 : 1;
}

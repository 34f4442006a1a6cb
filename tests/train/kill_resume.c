/* kill_resume PROGRAM KILLS SEED DIRECTORY [RESULT.json [DEVICE]]
 *
 * Trains with the real program and kills it with SIGKILL at random moments, resumes, kills again, .. until KILLS kills have
 * happened and the interrupted run has ended. Every such run must end with the weights and the logged losses, bit for bit, of an
 * uninterrupted run. Prints in one line how many kills hit a save, and how many a start or a resume; writes the same to
 * RESULT.json if given. DEVICE: a GPU, such as cuda:0, on which the runs of a GPU are trained instead (with a program on emulated
 * GPUs, too). Exit 1 at the first difference.
 *
 * A kill hits a save if it leaves a temporary file or checkpoint.new in the directory. It hits a resume if the program was asked to
 * resume and had not yet logged a line: the log is as the kill before left it, or cut back to the checkpoint.
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
#include "core/files/safetensors.h"
#include "tests/support/runs.h"

#define CHECKPOINT "run"
#define LOG "log.jsonl"
#define WEIGHTS "weights.safetensors"

extern char **environ;

/* How the runs are trained, one after the other: a log line for each step or epoch, both optimisers, every algorithm. The options
 * begin with the model. */
typedef struct {
  const char *options, *checkpoints;
  const char *pauses; /* passes of this kind speculate, pause and speculate again; NULL: none do */
} way;

static const way modes_of_cpu[] = {
    {"rnn --iterations 30", "--checkpoint-every 1", NULL},
    {"rnn --iterations 40 --backward bp --dtype f64 --clip-norm 1 --validation 0.25", "--checkpoint-every 7", NULL},
    {"rnn --epochs 6 --validation 0.25 --optimizer sgd --momentum 0.9 --algorithm blelloch", "--checkpoint-every 3", NULL},
    {"rnn --epochs 8 --chunks 3 --layers 2 --loss all", "", NULL}, /* at the end of every epoch */
    /* speculative forward passes that fail, so that three are followed by a pause of 100, and one by the next pause */
    {"rnn --iterations 130 --forward-chunks 12 --warm-up 0 --tolerance 1e-30", "--checkpoint-every 2", "forward"},
    /* certificates change nothing */
    {"lstm --iterations 40 --layers 2 --algorithm chunked --forward-chunks 5 --warm-up 3 --certify-every 4",
     "--checkpoint-every 3", NULL},
    /* both passes speculative, and the backward passes fail likewise */
    {"gru --iterations 130 --loss all --clip-norm 1 --forward-chunks 4 --warm-up 4 --backward-chunks 12 --backward-warm-up 0 "
     "--backward-tolerance 1e-30",
     "--checkpoint-every 4", "backward"},
    /* batches that continue the ones before, the last one of an epoch smaller; likewise of rows of two samples */
    {"lstm --iterations 45 --layers 2 --stateful --validation 0.25", "--checkpoint-every 2", NULL},
    {"gru --iterations 40 --stateful --pack 60 --validation 0.25", "--checkpoint-every 3", NULL},
    /* gradients that go back through three of them */
    {"gru --iterations 45 --stateful --bptt 3 --validation 0.25", "--checkpoint-every 2", NULL},
    /* the same on ranks, which share the batch or the steps */
    {"lstm --iterations 40 --layers 2 --stateful --validation 0.25 --ranks 2", "--checkpoint-every 3", NULL},
    {"gru --iterations 40 --stateful --bptt 2 --batch 40 --ranks 2", "--checkpoint-every 2", NULL},
    {"lstm --iterations 40 --loss all --stateful --validation 0.25 --ranks 2 --split time", "--checkpoint-every 3", NULL},
    /* and in rows that all have the steps of two batches */
    {"gru --iterations 40 --loss all --stateful --bptt 2 --validation 0.25 --forward-chunks 4 --warm-up 8",
     "--checkpoint-every 3", NULL},
    {"gru --iterations 40 --stateful --bptt 2 --batch 40 --ranks 2 --split time", "--checkpoint-every 2", NULL},
};

static const way modes_of_gpu[] = {
    {"gru --iterations 12 --stateful --validation 0.25", "--checkpoint-every 2", NULL},
    {"lstm --iterations 12 --stateful --pack 60", "--checkpoint-every 3", NULL},
    {"gru --iterations 12 --stateful --bptt 2", "--checkpoint-every 2", NULL},
    {"lstm --iterations 12 --stateful --ranks 2", "--checkpoint-every 3", NULL},
};

enum { MOST_MODES = sizeof modes_of_cpu / sizeof modes_of_cpu[0] };

static const char *device = "cpu";
static const way *modes = modes_of_cpu;
static int mode_count = MOST_MODES;

typedef struct {
  int64_t kills, in_save, in_resume, in_start, runs, mismatches;
} counts;

static void die(const char *what) {
  fprintf(stderr, "kill_resume: %s: %s\n", what, strerror(errno));
  exit(1);
}

static pid_t start(const char *program, int mode, bool checkpoint, bool resume) {
  char line[1024], *argv[RUN_WORDS];
  snprintf(line, sizeof line,
           "%s train %s --device %s --seq-len 24 --samples 160 %s --hidden 5 --lr 0.01 --threads 1 --log " LOG
           " --save-weights " WEIGHTS " %s %s %s",
           program, modes[mode].options, device, strstr(modes[mode].options, "--batch") == NULL ? "--batch 16" : "",
           checkpoint ? "--checkpoint " CHECKPOINT : "", checkpoint ? modes[mode].checkpoints : "", resume ? "--resume" : "");
  (void)run_words(line, argv);
  posix_spawn_file_actions_t actions;
  pid_t child = -1;
  if (posix_spawn_file_actions_init(&actions) != 0 ||
      posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) != 0 ||
      posix_spawn(&child, program, &actions, NULL, argv, environ) != 0) {
    die(program);
  }
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

static bool exists(const char *path) {
  return access(path, F_OK) == 0;
}

/* Does the directory hold a file that a save did not finish? */
static bool save_interrupted(void) {
  bool found = false;
  DIR *directory = opendir(CHECKPOINT);
  if (directory == NULL) {
    return false;
  }
  for (const struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
    found = found || strncmp(entry->d_name, ".bppsa-", 7) == 0 || strcmp(entry->d_name, "checkpoint.new.safetensors") == 0;
  }
  closedir(directory);
  return found || (exists(CHECKPOINT "/checkpoint.previous.safetensors") && !exists(CHECKPOINT "/checkpoint.safetensors"));
}

/* The log's size without its first line, which describes the run; *header: the length of that line. */
static int64_t log_size(int64_t *header) {
  char line[8192];
  struct stat info;
  FILE *file = fopen(LOG, "r");
  *header = file != NULL && fgets(line, sizeof line, file) != NULL ? (int64_t)strlen(line) : 0;
  if (file != NULL) {
    (void)fclose(file);
  }
  return stat(LOG, &info) == 0 ? (int64_t)info.st_size - *header : 0;
}

/* The log's length according to the checkpoint that a resume would take; -1 without one. */
static int64_t log_size_of_checkpoint(void) {
  static const char *const paths[] = {CHECKPOINT "/checkpoint.safetensors", CHECKPOINT "/checkpoint.previous.safetensors"};
  int64_t size = -1;
  for (int i = 0; i < 2 && size < 0; ++i) {
    bppsa_safetensors *file = NULL;
    if (bppsa_safetensors_load(paths[i], &file) == BPPSA_OK) {
      const bppsa_view *stored = bppsa_safetensors_find(file, "train.log");
      size = stored != NULL ? ((const int64_t *)stored->data)[0] : -1;
    }
    bppsa_safetensors_destroy(file);
  }
  return size;
}

static bool has_checkpoint(void) {
  return exists(CHECKPOINT "/checkpoint.safetensors") || exists(CHECKPOINT "/checkpoint.previous.safetensors");
}

/* Runs the program and kills it after `seconds` (negative: never). True if it ended by itself. */
static bool run_for(const char *program, int mode, double seconds, counts *c) {
  const bool resume = has_checkpoint();
  int64_t header;
  const int64_t before = log_size(&header), cut = log_size_of_checkpoint() - header;
  const pid_t child = start(program, mode, true, resume);
  if (seconds >= 0) {
    run_pause(seconds);
    (void)kill(child, SIGKILL);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) {
    die("waitpid");
  }
  if (WIFEXITED(status)) {
    if (WEXITSTATUS(status) != 0) {
      fprintf(stderr, "kill_resume: the program failed with %d\n", WEXITSTATUS(status));
      exit(1);
    }
    return true;
  }
  const bool save = save_interrupted();
  const int64_t size = log_size(&header);
  c->kills += 1;
  c->in_save += save;
  c->in_resume += !save && resume && (size == before || size == cut);
  c->in_start += !save && !resume && size == 0;
  return false;
}

/* Compares the numbers that may not differ: all but times. */
static bool same_line(const char *a, const char *b) {
  static const char *const keys[] = {
      "step",    "epoch",   "loss", "accuracy", "grad_norm", "redone", "validation_loss", "validation_accuracy",
      "forward", "backward"};
  json_t *x = json_loads(a, JSON_DISABLE_EOF_CHECK, NULL), *y = json_loads(b, JSON_DISABLE_EOF_CHECK, NULL);
  bool same = x != NULL && y != NULL;
  for (size_t k = 0; same && k < sizeof keys / sizeof keys[0]; ++k) {
    json_t *u = json_object_get(x, keys[k]), *v = json_object_get(y, keys[k]);
    same = u == NULL || v == NULL ? u == v : json_equal(u, v) != 0;
  }
  json_decref(x);
  json_decref(y);
  return same;
}

static bool same_logs(const char *a, const char *b) {
  while (*a != '\0' && *b != '\0') {
    const char *a_end = strchr(a, '\n'), *b_end = strchr(b, '\n');
    if (a_end == NULL || b_end == NULL || !same_line(a, b)) {
      return false;
    }
    a = a_end + 1;
    b = b_end + 1;
  }
  return *a == *b;
}

static void clear(void) {
  if (system("rm -rf " CHECKPOINT " " LOG " " WEIGHTS) != 0) {
    die("rm");
  }
}

/* The results of an uninterrupted run. */
typedef struct {
  char *weights, *log;
  size_t weights_size, log_size;
  double seconds; /* with checkpoints */
} reference;

static reference make_reference(const char *program, int mode) {
  reference r = {0};
  for (int checkpoints = 0; checkpoints < 2; ++checkpoints) { /* the second only for its time */
    clear();
    const double begin = run_now();
    const pid_t child = start(program, mode, checkpoints == 1, false);
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      die("a run that is left alone");
    }
    r.seconds = run_now() - begin;
    if (checkpoints == 0) {
      r.weights = run_file(WEIGHTS, &r.weights_size);
      r.log = run_file(LOG, &r.log_size);
    }
  }
  if (r.weights == NULL || r.log == NULL) {
    die("the results of a run that is left alone");
  }
  return r;
}

/* Does the log have a pass of this kind that speculates, later one that does not, and later still one that does? */
static bool shows_pause(const char *log, const char *kind) {
  char words[64];
  for (int i = 0; i < 3 && log != NULL; ++i) {
    snprintf(words, sizeof words, "\"%s\":{\"speculated\":%s", kind, i == 1 ? "false" : "true");
    log = strstr(log, words);
  }
  return log != NULL;
}

/* One run with kills until it ends; without kills left it is not interrupted. False if its result differs. */
static bool one_run(const char *program, int mode, const reference *r, int64_t kills, counts *c) {
  clear();
  c->runs += 1;
  for (bool done = false; !done;) {
    /* Mostly within the time that a run takes, sometimes within its first moments, because resuming is short. */
    const double span = run_uniform() < 0.3 ? 0.25 * r->seconds : r->seconds;
    done = run_for(program, mode, c->kills < kills ? span * run_uniform() : -1.0, c);
  }
  size_t weights_size = 0, size = 0;
  char *weights = run_file(WEIGHTS, &weights_size), *log = run_file(LOG, &size);
  const bool same = weights != NULL && log != NULL && weights_size == r->weights_size &&
                    memcmp(weights, r->weights, weights_size) == 0 && same_logs(log, r->log);
  free(weights);
  free(log);
  return same;
}

static void hardware(char *text, size_t size) {
  snprintf(text, size, "unknown");
  FILE *file = fopen("/proc/cpuinfo", "r");
  char line[256];
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    char *value = strstr(line, ": ");
    if (strncmp(line, "model name", 10) == 0 && value != NULL) {
      value[strcspn(value, "\n")] = '\0';
      snprintf(text, size, "%s", value + 2);
      break;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
}

static void write_result(const char *path, const counts *c, double seconds) {
  char processor[200], date[32];
  const time_t today = time(NULL);
  hardware(processor, sizeof processor);
  (void)strftime(date, sizeof date, "%Y-%m-%d", gmtime(&today));
  json_t *result =
      json_pack("{s:s, s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "bench", "kill_resume", "device", processor,
                "cores", (int)sysconf(_SC_NPROCESSORS_ONLN), "commit", BPPSA_COMMIT, "date", date, "seed", (json_int_t)run_seed,
                "kills", (json_int_t)c->kills, "kills_during_a_save", (json_int_t)c->in_save, "kills_during_a_resume",
                (json_int_t)c->in_resume, "kills_before_the_first_step", (json_int_t)c->in_start, "runs_completed",
                (json_int_t)c->runs, "mismatches", (json_int_t)c->mismatches, "elapsed_s", seconds);
  json_t *lines = json_array();
  for (int mode = 0; mode < mode_count; ++mode) {
    json_array_append_new(lines, json_sprintf("%s %s", modes[mode].options, modes[mode].checkpoints));
  }
  if (result == NULL || json_object_set_new(result, "modes", lines) != 0 ||
      json_dump_file(result, path, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) != 0) {
    die(path);
  }
  json_decref(result);
}

int main(int argc, char **argv) {
  if (argc < 5 || argc > 7) {
    fprintf(stderr, "usage: kill_resume PROGRAM KILLS SEED DIRECTORY [RESULT.json [DEVICE]]\n");
    return 2;
  }
  if (argc == 7) {
    device = argv[6];
    modes = modes_of_gpu;
    mode_count = sizeof modes_of_gpu / sizeof modes_of_gpu[0];
  }
  const char *program = argv[1], *directory = argv[4];
  const int64_t kills = strtoll(argv[2], NULL, 10);
  char result[4096] = "", here[2048];
  run_seed = strtoull(argv[3], NULL, 10);
  if (getcwd(here, sizeof here) == NULL) {
    die("the working directory");
  }
  if (argc >= 6) {
    snprintf(result, sizeof result, "%s%s%s", argv[5][0] == '/' ? "" : here, argv[5][0] == '/' ? "" : "/", argv[5]);
  }
  if ((mkdir(directory, 0777) != 0 && errno != EEXIST) || chdir(directory) != 0) {
    die(directory);
  }
  reference references[MOST_MODES];
  for (int mode = 0; mode < mode_count; ++mode) {
    references[mode] = make_reference(program, mode);
    if (modes[mode].pauses != NULL && !shows_pause(references[mode].log, modes[mode].pauses)) {
      fprintf(stderr, "kill_resume: train %s: expected %s passes that speculate before and behind a pause\n", modes[mode].options,
              modes[mode].pauses);
      return 1;
    }
  }
  counts c = {0};
  const double begin = run_now();
  for (int mode = 0; c.kills < kills; mode = (mode + 1) % mode_count) {
    if (!one_run(program, mode, &references[mode], kills, &c)) {
      c.mismatches += 1;
      fprintf(stderr, "kill_resume: train %s: ended differently from a run that was left alone\n", modes[mode].options);
    }
  }
  printf("%" PRId64 " kills, %" PRId64 " during a save, %" PRId64 " during a resume, %" PRId64 " before the first step; %" PRId64
         " runs completed, %" PRId64 " mismatches\n",
         c.kills, c.in_save, c.in_resume, c.in_start, c.runs, c.mismatches);
  if (result[0] != '\0') {
    write_result(result, &c, run_now() - begin);
  }
  for (int mode = 0; mode < mode_count; ++mode) {
    free(references[mode].weights);
    free(references[mode].log);
  }
  clear();
  return c.mismatches == 0 ? 0 : 1;
}

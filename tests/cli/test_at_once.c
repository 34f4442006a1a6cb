/* Commands of one process do not disturb each other: several at once give what each gives alone, and ranks that are left behind
 * neither end the process nor stand in the way of what follows. */
#include <pthread.h>
#include <stdatomic.h>

#include "comm/comm.h"
#include "core/base/clock.h"
#include "core/base/io.h"
#include "tests/cli/batch_files.h"

/* ---- at once ---- */

#define TRAIN "train gru --seq-len 12 --hidden 5 --samples 48 --batch 16 --iterations 6 --threads 1 --json "
#define GRAD "grad rnn --weights W.safetensors --input X.npy --labels Y.npy --threads 1 --json "

/* %s is the word in which the names of a run's own files begin, of which `file` is compared; what is printed is compared where it
 * holds no times. */
static const struct {
  const char *line, *file;
  bool printed;
  int code;
} cases[] = {{TRAIN "--save-weights %s.w --checkpoint %s.ck --log %s.log", "w", false, 0},
             {TRAIN "--ranks 2 --save-weights %s.w", "w", false, 0},
             {TRAIN "--ranks 3 --split time --save-weights %s.w", "w", false, 0},
             {GRAD "--out %s.g", "g", false, 0},
             {GRAD "--ranks 2 --out %s.g", "g", false, 0},
             {"eval rnn --weights W.safetensors --seq-len 5 --samples 40 --out %s.npz --threads 1 --json", "npz", true, 0},
             {"eval rnn --weights W.safetensors --seq-len 5 --samples 1 --ranks 2 --json", NULL, true, 2},
             {"plan gru --seq-len 20 --json", NULL, true, 0}};
enum { CASES = sizeof cases / sizeof cases[0], THREADS = 4, ROUNDS = 2 };

typedef struct {
  char name[16]; /* of its files */
  int index;     /* of the case */
  run_result result;
} one;

static void *run_one(void *context) {
  one *o = context;
  char line[LINE_BYTES] = "bppsa ", *argv[MAX_ARGUMENTS];
  size_t sizes[2];
  snprintf(line + 6, sizeof line - 6, cases[o->index].line, o->name, o->name, o->name);
  FILE *out = open_memstream(&o->result.out, &sizes[0]), *err = open_memstream(&o->result.err, &sizes[1]);
  o->result.code = bppsa_cli_main(split_line(line, argv), argv, out, err);
  fclose(out);
  fclose(err);
  return NULL;
}

static void assert_same(const one *alone, const one *other) {
  char a[300], b[300];
  assert_int_equal(alone->result.code, cases[alone->index].code);
  assert_int_equal(other->result.code, alone->result.code);
  assert_string_equal(other->result.err, alone->result.err);
  if (cases[alone->index].printed) {
    assert_string_equal(other->result.out, alone->result.out);
  }
  if (cases[alone->index].file != NULL) {
    snprintf(a, sizeof a, "%s.%s", alone->name, cases[alone->index].file);
    snprintf(b, sizeof b, "%s.%s", other->name, cases[alone->index].file);
    assert_equal_files(a, b);
  }
}

static void test_at_once(void **state) {
  (void)state;
  one alone[CASES], others[THREADS];
  for (int i = 0; i < CASES; ++i) {
    alone[i] = (one){.index = i};
    snprintf(alone[i].name, sizeof alone[i].name, "alone%d", i);
    run_one(&alone[i]);
  }
  const int64_t live = bppsa_alloc_live();
  for (int i = 0; i < CASES * ROUNDS; ++i) {
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; ++t) {
      others[t] = (one){.index = (i + t * (1 + i / CASES)) % CASES};
      snprintf(others[t].name, sizeof others[t].name, "t%d-%d", i, t);
      assert_int_equal(pthread_create(&threads[t], NULL, run_one, &others[t]), 0);
    }
    for (int t = 0; t < THREADS; ++t) {
      assert_int_equal(pthread_join(threads[t], NULL), 0);
      assert_same(&alone[others[t].index], &others[t]);
      release(&others[t].result);
    }
  }
  assert_int_equal(bppsa_alloc_live(), live);
  for (int i = 0; i < CASES; ++i) {
    release(&alone[i].result);
  }
}

/* ---- ranks that are left behind ---- */

/* Runs a command on two ranks of which one waits for longer than the timeout. Returns how many ranks still computed when it ended:
 * none, if the other one was done soon after. */
static int leave_behind(const char *command, int index) {
  const int64_t live = bppsa_alloc_live(), open_files = bppsa_io_open_count();
  char *text = NULL, *line = malloc(LINE_BYTES), *argv[MAX_ARGUMENTS];
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  snprintf(line, LINE_BYTES, "bppsa %s --threads 1 --ranks 2 --split time --timeout 0.05", command);
  assert_int_equal(bppsa_cli_main(split_line(line, argv), argv, stream, stream), 1);
  const int left = bppsa_comm_left_behind();
  fclose(stream);
  if (strstr(text, "bppsa: error: rank ") == NULL || strstr(text, " waited 0.05 s for ") == NULL) {
    fail_msg("expected a rank that has waited, found '%s'", text);
  }
  free(text);
  memset(line, 'x', LINE_BYTES); /* nothing uses the words any more, nor the stream */
  free(line);
  one next = {.index = index, .name = "next"}; /* beside the ranks that still compute */
  run_one(&next);
  assert_int_equal(next.result.code, 0);
  release(&next.result);
  const double start = bppsa_now();
  while (bppsa_comm_left_behind() > 0) {
    assert_true(bppsa_now() - start < 120);
    usleep(1000);
  }
  assert_int_equal(bppsa_alloc_live(), live); /* the last of them has freed what they worked with */
  assert_int_equal(bppsa_io_open_count(), open_files);
  assert_false(file_exists("late.w") || file_exists("late.g"));
  assert_int_equal(system("rm -rf next.*"), 0);
  return left;
}

/* Rank 1 waits for states of rank 0, whose part of the forward pass takes longer than twice the timeout; on a fast machine the
 * sequence has to be longer. */
static void test_left_behind(void **state) {
  (void)state;
  assert_runs("train gru --seq-len 2 --hidden 256 --samples 3 --batch 3 --iterations 1 --save-weights big.w");
  write_reals("long.npy", BPPSA_F32, 3, (int64_t[]){6000, B, 1});
  int left = leave_behind("grad gru --weights big.w --input long.npy --labels Y.npy --out late.g", 0) +
             leave_behind("eval gru --weights big.w --seq-len 6000 --samples 3", 1);
  for (int steps = 6000; steps == 6000 || (left == 0 && steps < 200000); steps *= 2) {
    char command[LINE_BYTES];
    snprintf(command, sizeof command,
             "train gru --seq-len %d --hidden 256 --samples 3 --batch 3 --iterations 1 --save-weights late.w", steps);
    left += leave_behind(command, 2);
  }
  assert_true(left >= 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_at_once), cmocka_unit_test(test_left_behind)};
  return cmocka_run_group_tests(tests, enter_with_batch, leave_directory);
}

/* The program under LC_ALL=de_DE.UTF-8: the same output and the same files, byte for byte, and files with decimal points are read.
 * In the test's own process, whose locale has a decimal comma, the commands write the same files too. */
#include <unistd.h>

#include "core/base/text.h"
#include "core/measure/rounds.h"
#include "scan/work.h"
#include "tests/cli/batch_files.h"
#include "tests/support/locale.h"

/* glibc keeps the directory of LOCPATH in memory that it never frees. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
  return "leak:argz_add_sep";
}

/* Lines whose output does not depend on time. What they read was written by lines before them. */
static const char *const lines[] = {
    "plan rnn --seq-len 100 --algorithm blelloch --svg plan.svg",
    "plan lenet5 --json",
    "flops lenet5 --prune 0.9 --svg flops.svg",
    "flops lenet5 --prune 0.9 --json",
    "flops lenet5 --prune 0.9",
    "schedule chimera --stages 2 --micro-batches 2 --alpha 0.5 --svg s.svg --trace t.json --csv s.csv",
    "schedule 1f1b --stages 3 --forward 0.25 --json",
    "schedule --load s.csv --svg s2.svg",
    "schedule --compare gpipe,1f1b --stages 4",
    "data bitstream --seq-len 5 --samples 8 --out-x bx.npy --out-y by.npy",
    "jacobian leaky_relu --in-shape 6 --slope 0.25 --input one.npy --out J.mtx --spy J.png",
    "grad rnn --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors --json",
    "grad rnn --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors",
    "prune --weights W.safetensors --fraction 0.5 --out M.safetensors --json",
    "prune --weights W.safetensors --fraction 0.5 --out M.safetensors",
    "figures --results R.json --seq-len 8 --batch 2 --iterations 1 --threads 1 --out figures",
    "prune --weights W.safetensors --fraction 1.5 --out M.safetensors",
    "train rnn --lr 0,5"};
enum { LINES = sizeof lines / sizeof lines[0] };

/* What differs between two runs of `figures` besides the locale: when it ran, and how long its training took. */
static const char same[] =
    "diff -r -I '^  time ' -x index.html -x results.json -x '*.csv' -x 'figure7*' -x 'figure9*' plain comma >differs.txt";

static void test_program(void **state) {
  (void)state;
  static const char *const locales[] = {"C", COMMA_LOCALE}, *const folders[] = {"plain", "comma"};
  for (int k = 0; k < 2; ++k) {
    char command[1024];
    assert_int_equal(mkdir(folders[k], 0777), 0);
    snprintf(command, sizeof command, "cp W.safetensors X.npy Y.npy one.npy R.json %s", folders[k]);
    assert_int_equal(system(command), 0);
    for (int i = 0; i < LINES; ++i) {
      snprintf(command, sizeof command, "cd %s && LC_ALL=%s LANG=%s %s %s >out%d.txt 2>&1", folders[k], locales[k], locales[k],
               BPPSA_TEST_PROGRAM, lines[i], i);
      const int code = WEXITSTATUS(system(command));
      if (code != (i < LINES - 2 ? 0 : 2)) {
        fail_msg("%s: exit code %d", command, code);
      }
    }
  }
  if (system(same) != 0) {
    (void)system("head -c 2000 differs.txt");
    fail_msg("the two locales differ");
  }
  assert_int_equal(system("grep -qE '[0-9],[0-9]+ (ms|s|us)' comma/out*.txt"), 256);
  /* CSV of the figures: commas separate cells, and a decimal comma would add some. */
  assert_int_equal(system("for f in plain/figures/*.csv; do g=comma/figures/${f##*/}; "
                          "a=$(awk -F, '{ printf \"%d \", NF }' $f); b=$(awk -F, '{ printf \"%d \", NF }' $g); "
                          "test \"$a\" = \"$b\" || exit 1; done"),
                   0);
}

#define DROPPING "train rnn --seq-len 5 --samples 32 --layers 2 --dropout 0.25"

static void test_own_process(void **state) {
  (void)state;
  static const char *const folders[] = {"here", "there"};
  for (int k = 0; k < 2; ++k) {
    char command[1024];
    assert_int_equal(mkdir(folders[k], 0777), 0);
    snprintf(command, sizeof command, "cp W.safetensors X.npy Y.npy one.npy R.json %s", folders[k]);
    assert_int_equal(system(command), 0);
    assert_int_equal(chdir(folders[k]), 0);
    assert_non_null(setlocale(LC_ALL, k == 0 ? "C" : COMMA_LOCALE));
    for (int i = 0; i < LINES - 3; ++i) { /* without figures, which takes a second, and errors */
      run_result result = run("%s", lines[i]);
      assert_int_equal(result.code, 0);
      release(&result);
    }
    run_result train = run("train rnn --seq-len 5 --samples 32 --iterations 2 --lr 0.015 --clip-norm 0.5 --log l.jsonl "
                           "--checkpoint c --save-weights w.safetensors");
    assert_int_equal(train.code, 0);
    release(&train);
    train =
        run("train rnn --seq-len 5 --samples 32 --iterations 3 --lr 0.015 --clip-norm 0.5 --checkpoint c --resume --log l.jsonl");
    assert_string_equal(train.err, "");
    assert_int_equal(train.code, 0);
    release(&train);
    train = run(DROPPING " --iterations 2 --checkpoint d");
    assert_non_null(strstr(train.out, ", dropout 0.25"));
    assert_int_equal(train.code, 0);
    release(&train);
    assert_int_equal(chdir(".."), 0);
  }
  setlocale(LC_ALL, "C");
  assert_runs(DROPPING " --iterations 3 --checkpoint there/d --resume");  /* what the other locale wrote */
  assert_int_equal(system("diff -r -x l.jsonl -x c -x d here there"), 0); /* the log and the checkpoints hold times */
  assert_int_equal(system("grep -q '[0-9],[0-9]' there/l.jsonl"), 256);
}

/* Texts that show a number. */
static void test_texts(void **state) {
  (void)state;
  char text[2][3][64];
  for (int k = 0; k < 2; ++k) {
    const bppsa_timing timing = {.median_s = 0.0015};
    assert_non_null(setlocale(LC_ALL, k == 0 ? "C" : COMMA_LOCALE));
    bppsa_timing_median_ms(&timing, 3, text[k][0]);
    bppsa_text_si(1234567, "B", text[k][1], sizeof text[k][1]);
    bppsa_work_ratio(1.25, text[k][2]);
  }
  setlocale(LC_ALL, "C");
  for (int i = 0; i < 3; ++i) {
    assert_non_null(strchr(text[0][i], '.'));
    assert_string_equal(text[0][i], text[1][i]);
  }
}

static int prepare(void **state) {
  const int entered = enter_with_batch(state);
  make_comma_locale();
  const int64_t six = 6;
  const float ones[] = {1.5f, -2, 0.25f, 3, -0.5f, 1};
  const bppsa_view view = bppsa_view_make((void *)(uintptr_t)ones, BPPSA_F32, 1, &six);
  assert_int_equal(bppsa_npy_save("one.npy", &view), BPPSA_OK);
  assert_runs("bench rnn --seq-len 8 --batch 2 --hidden 2 --repeats 3 --threads 1 --out R.json");
  return entered;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_program), cmocka_unit_test(test_own_process),
                                     cmocka_unit_test(test_texts)};
  return cmocka_run_group_tests(tests, prepare, leave_directory);
}

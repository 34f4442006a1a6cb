/* train --split SCHEME with --device: pipelines whose ranks have a GPU each, or share one: the bits of one device with the same
 * micro-batches, and what the loop needs of their weights. The device is BPPSA_TEST_DEVICE. */
#include <math.h>

#include "tests/cli/batch_files.h"
#include "tests/cli/cnn_files.h"
#include "tests/support/gpus.h"

static char device[48]; /* "--device cuda" */
static int gpus;        /* 0: the ranks compute on processors */
static bool nccl;

#define GRU                                                                                                                      \
  "train gru --layers 3 --seq-len 4 --hidden 3 --samples 24 --batch 8 --validation 0.34 --dtype f64 --threads 1 --seed 5"
#define IMAGES "train net.json --data npy:IX.npy,IY.npy --validation 0.25 --batch 8 --threads 1 --lr 0.1 --seed 3"

static int enter_with_images(void **state) {
  enter_directory(state);
  put_text("net.json", SMALL_NETWORK);
  put_images("IX.npy", "IY.npy", (int64_t[]){22, 2, 6, 5}, 3);
  write_reals("SX.npy", BPPSA_F64, 3, (int64_t[]){24, 4, 2}); /* sequences, and targets of every step */
  write_reals("SY.npy", BPPSA_F64, 3, (int64_t[]){24, 4, 3});
  return 0;
}

static void assert_close(const char *a, const char *b, double bound) {
  const double difference = file_difference(a, b);
  if (!(difference < bound)) {
    fail_msg("%s and %s differ by %g, expected less than %g", a, b, difference, bound);
  }
}

/* The numbers of the last line of a log, which is an epoch's, but for times. */
static void assert_equal_ends(const char *a_path, const char *b_path) {
  static const char *const keys[] = {"step", "loss", "accuracy", "grad_norm", "validation_loss", "validation_accuracy"};
  const char *const paths[] = {a_path, b_path};
  json_t *ends[2];
  for (int i = 0; i < 2; ++i) {
    char *text = read_file(paths[i]);
    text[strlen(text) - 1] = '\0';
    ends[i] = json_loads(strrchr(text, '\n') + 1, 0, NULL);
    assert_non_null(ends[i]);
    free(text);
  }
  for (size_t k = 0; k < sizeof keys / sizeof keys[0]; ++k) {
    assert_non_null(json_object_get(ends[0], keys[k]));
    assert_true(json_equal(json_object_get(ends[0], keys[k]), json_object_get(ends[1], keys[k])));
  }
  json_decref(ends[0]);
  json_decref(ends[1]);
}

/* ---- layers over all of their time ---- */

static void test_synchronous(void **state) {
  (void)state;
  enum { OVER_NCCL = 2 }; /* pipelines in one direction and in both; a rank needs a GPU of its own */
  static const int ranks[OVER_NCCL] = {4, 2};
  static const char *const splits[] = {"--ranks 4 --split 1f1b --micro-batches 4", "--ranks 2 --split chimera --micro-batches 4",
                                       "--ranks 2 --split chimera --micro-batches 2 --halving --recompute",
                                       "--ranks 2 --stages 3 --split zb-h1 --micro-batches 4"};
  assert_runs(GRU " --epochs 2 --ranks 1 --micro-batches 4 --save-weights cpu.safetensors");
  assert_runs(GRU " --epochs 2 --ranks 1 --micro-batches 4 %s --save-weights one.safetensors --log one.jsonl", device);
  assert_close("cpu.safetensors", "one.safetensors", 1e-10);
  for (size_t i = 0; i < sizeof splits / sizeof splits[0]; ++i) {
    char log[32];
    snprintf(log, sizeof log, "many%zu.jsonl", i);
    assert_runs(GRU " --epochs 2 %s %s --save-weights many.safetensors --log %s", splits[i], device, log);
    assert_equal_files("one.safetensors", "many.safetensors");
    assert_equal_ends("one.jsonl", log);
    if (nccl && i < OVER_NCCL && gpus >= ranks[i]) {
      assert_runs(GRU " --epochs 2 %s --transport nccl %s --save-weights many.safetensors", splits[i], device);
      assert_equal_files("one.safetensors", "many.safetensors");
    }
  }
  /* several ranks on one GPU; a batch as one block has the bits of the model that needs no chain, whose loop updates it */
  const char *shared = gpus > 0 ? "--device cuda:0" : "";
  assert_runs(GRU " --epochs 2 --ranks 3 --split gpipe --micro-batches 4 %s --save-weights many.safetensors", shared);
  assert_equal_files("one.safetensors", "many.safetensors");
  assert_runs(GRU " --epochs 1 --backward bp %s --save-weights alone.safetensors", device);
  assert_runs(GRU " --epochs 1 --ranks 2 --split gpipe --micro-batches 1 %s --save-weights many.safetensors", device);
  assert_equal_files("alone.safetensors", "many.safetensors");
}

/* An LSTM, whose state is a pair. */
static void test_pairs(void **state) {
  (void)state;
  const char *line =
      "train lstm --layers 2 --seq-len 3 --hidden 2 --samples 16 --batch 8 --epochs 1 --threads 1 --micro-batches 2";
  assert_runs("%s --ranks 1 %s --save-weights one.safetensors", line, device);
  assert_runs("%s --ranks 3 --split 1f1b %s --save-weights many.safetensors", line, device);
  assert_equal_files("one.safetensors", "many.safetensors");
}

/* A run goes on with another schedule, with the bits of one that was never interrupted. */
static void test_resumes(void **state) {
  (void)state;
  assert_runs(GRU " --epochs 2 --ranks 1 --micro-batches 4 %s --save-weights whole.safetensors", device);
  assert_runs(GRU " --epochs 1 --ranks 4 --split 1f1b --micro-batches 4 %s --checkpoint ck", device);
  assert_runs(
      GRU " --epochs 2 --ranks 2 --split chimera --micro-batches 4 %s --checkpoint ck --resume --save-weights parts.safetensors",
      device);
  assert_equal_files("whole.safetensors", "parts.safetensors");
}

/* Real targets, and inputs that the host makes. */
static void test_targets(void **state) {
  (void)state;
  const char *line =
      "train rnn --layers 2 --hidden 3 --data npy:SX.npy,SY.npy --loss mse-all --batch 8 --validation 0.34 --dtype f64 "
      "--threads 1 --epochs 2 --micro-batches 4";
  assert_runs("%s --ranks 1 --save-weights cpu.safetensors", line);
  assert_runs("%s --ranks 1 %s --save-weights one.safetensors --log one.jsonl", line, device);
  assert_runs("%s --ranks 3 --split 1f1b %s --save-weights many.safetensors --log many.jsonl", line, device);
  assert_close("cpu.safetensors", "one.safetensors", 1e-10);
  assert_equal_files("one.safetensors", "many.safetensors");
  assert_equal_ends("one.jsonl", "many.jsonl");
}

/* Older weights that are kept, and predicted ones; the optimiser's state goes to a checkpoint and comes back. */
static void test_asynchronous(void **state) {
  (void)state;
  static const struct {
    const char *split, *optimizer;
  } runs[] = {{"pipedream", "sgd --lr 0.3 --momentum 0.5"},
              {"2bw", "adam --lr 0.02"},
              {"spectrain", "sgd --lr 0.3 --momentum 0.5"},
              {"spectrain", "adam --lr 0.02"}};
  for (size_t i = 0; i < sizeof runs / sizeof runs[0]; ++i) {
    char line[256];
    snprintf(line, sizeof line, GRU " --split %s --stages 4 --micro-batches 4 --optimizer %s", runs[i].split, runs[i].optimizer);
    assert_runs("%s --epochs 2 --ranks 4 --save-weights cpu.safetensors", line);
    assert_runs("%s --epochs 2 --ranks 4 %s --save-weights four.safetensors --log four%zu.jsonl", line, device, i);
    assert_close("cpu.safetensors", "four.safetensors", 1e-10);
    assert_runs("%s --epochs 1 --ranks 2 %s --checkpoint ck%zu --log two%zu.jsonl", line, device, i, i);
    assert_runs("%s --epochs 2 --ranks 1 %s --checkpoint ck%zu --resume --log two%zu.jsonl --save-weights two.safetensors", line,
                device, i, i);
    assert_equal_files("four.safetensors", "two.safetensors");
    char four[32], two[32];
    snprintf(four, sizeof four, "four%zu.jsonl", i);
    snprintf(two, sizeof two, "two%zu.jsonl", i);
    assert_equal_ends(four, two);
  }
}

/* The weights of the stages are evaluated where the whole model is. */
static void test_evaluates(void **state) {
  (void)state;
  const char *line = GRU " --epochs 2 --ranks 2 --split pipedream --lr 0.05 --json";
  json_t *here = run_json("%s", line), *there = run_json("%s %s", line, device);
  const json_t *a = json_object_get(here, "final"), *b = json_object_get(there, "final");
  assert_true(fabs(get_real(a, "validation_loss") - get_real(b, "validation_loss")) < 1e-12);
  assert_true(get_real(a, "validation_accuracy") == get_real(b, "validation_accuracy"));
  assert_true(fabs(get_real(a, "loss") - get_real(b, "loss")) < 1e-12);
  json_decref(here);
  json_decref(there);
}

/* ---- operators ---- */

static void test_networks(void **state) {
  (void)state;
  static const char *const splits[] = {"--ranks 2 --split 1f1b --micro-batches 4", "--ranks 4 --split chimera --micro-batches 4",
                                       "--ranks 2 --split zb-h1 --cut 4 --micro-batches 4",
                                       "--ranks 2 --split chimera --micro-batches 2 --halving --recompute"};
  assert_runs(IMAGES " --epochs 2 --ranks 1 --micro-batches 4 --dtype f64 --save-weights cpu.safetensors");
  assert_runs(IMAGES " --epochs 2 --ranks 1 --micro-batches 4 --dtype f64 %s --save-weights one.safetensors", device);
  assert_close("cpu.safetensors", "one.safetensors", 1e-12);
  assert_runs(IMAGES " --epochs 2 --ranks 1 --micro-batches 4 %s --save-weights one.safetensors --log one.jsonl", device);
  for (size_t i = 0; i < sizeof splits / sizeof splits[0]; ++i) {
    char log[32];
    snprintf(log, sizeof log, "many%zu.jsonl", i);
    assert_runs(IMAGES " --epochs 2 %s %s --save-weights many.safetensors --log %s", splits[i], device, log);
    assert_equal_files("one.safetensors", "many.safetensors");
    assert_equal_ends("one.jsonl", log);
  }
  assert_runs(IMAGES " --epochs 1 --backward bp %s --save-weights alone.safetensors", device);
  assert_runs(IMAGES " --epochs 1 --ranks 2 --split gpipe --micro-batches 1 %s --save-weights many.safetensors", device);
  assert_equal_files("alone.safetensors", "many.safetensors");
  assert_runs(IMAGES " --epochs 2 --ranks 3 --split 2bw --micro-batches 4 --optimizer adam %s --save-weights a.safetensors",
              device);
  assert_runs(IMAGES
              " --epochs 2 --ranks 2 --stages 3 --split 2bw --micro-batches 4 --optimizer adam %s --save-weights b.safetensors",
              device);
  assert_equal_files("a.safetensors", "b.safetensors");
}

/* LeNet-5 whole: two steps of two images, in one stage for each rank and in pipelines that go both ways. */
static void test_lenet5(void **state) {
  (void)state;
  static const char *const splits[] = {"--ranks 2 --split 1f1b", "--ranks 2 --split chimera",
                                       "--ranks 4 --split gpipe --recompute"};
  const char *line = "train lenet5 --data npy:LX.npy,LY.npy --batch 2 --iterations 2 --threads 1 --lr 0.05 --micro-batches 2";
  put_images("LX.npy", "LY.npy", (int64_t[]){4, 3, 32, 32}, 10);
  assert_runs("%s --ranks 1 --save-weights cpu.safetensors", line);
  assert_runs("%s --ranks 1 %s --save-weights one.safetensors", line, device);
  assert_close("cpu.safetensors", "one.safetensors", 1e-5);
  for (size_t i = 0; i < sizeof splits / sizeof splits[0]; ++i) {
    assert_runs("%s %s %s --save-weights many.safetensors", line, splits[i], device);
    assert_equal_files("one.safetensors", "many.safetensors");
  }
}

/* ---- refusals ---- */

static void test_refused(void **state) {
  (void)state;
  if (gpus == 0) {
    return;
  }
  assert_fails(2, "--weight-gradients second-stream: given beside --split gpipe, whose list says when they are computed",
               IMAGES " --epochs 1 --ranks 2 --split gpipe --backward bp --weight-gradients second-stream %s", device);
  assert_fails(1, "training step 2 (epoch 1): non-finite ",
               "train rnn --layers 2 --seq-len 8 --hidden 3 --nonlinearity relu --optimizer sgd --lr 1e30 --samples 16 --batch 8 "
               "--epochs 4 --threads 1 --ranks 2 --split 1f1b --json %s",
               device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_synchronous), cmocka_unit_test(test_asynchronous), cmocka_unit_test(test_pairs),
      cmocka_unit_test(test_resumes),     cmocka_unit_test(test_targets),      cmocka_unit_test(test_evaluates),
      cmocka_unit_test(test_networks),    cmocka_unit_test(test_lenet5),       cmocka_unit_test(test_refused)};
  gpus = gpus_of_ranks(&nccl);
  snprintf(device, sizeof device, "--device %s", gpus > 0 ? "cuda" : "cpu");
  return cmocka_run_group_tests(tests, enter_with_images, leave_directory);
}

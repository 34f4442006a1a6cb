/* train, eval, grad and calibrate on ranks with --device: a GPU for each rank, or one for several, over threads, and over NCCL
 * where the program has it. The device is BPPSA_TEST_DEVICE. */
#include <math.h>

#include "tests/cli/batch_files.h"
#include "tests/cli/cnn_files.h"
#include "tests/support/gpus.h"

static const char *device; /* "cuda" */
static int gpus;           /* 0: the ranks compute on processors */
static bool nccl;

#define SMALL "--seq-len 6 --hidden 3 --samples 36 --batch 28 --validation 0.1 --dtype f64 --threads 1"

/* The transports that arrays of the device have. */
static int transports(const char *names[2]) {
  names[0] = "threads";
  names[1] = "nccl";
  return nccl ? 2 : 1;
}

/* So many ranks; over NCCL (t = 1) no more than GPUs. */
static int most(int t, int ranks) {
  return t == 1 && ranks > gpus ? gpus : ranks;
}

static void assert_close(const char *a, const char *b, double bound) {
  const double difference = file_difference(a, b);
  if (!(difference < bound)) {
    fail_msg("%s and %s differ by %g, expected less than %g", a, b, difference, bound);
  }
}

/* Ordered sums have the same bits on any number of GPUs, as they have on processors. */
static void test_train(void **state) {
  (void)state;
  static const char *const runs[] = {"train rnn " SMALL " --epochs 2",
                                     "train gru " SMALL " --iterations 3 --loss all --chunks 2"};
  const char *names[2];
  const int count = transports(names);
  for (size_t i = 0; i < sizeof runs / sizeof *runs; ++i) {
    assert_runs("%s --save-weights cpu.safetensors", runs[i]);
    assert_runs("%s --ranks 1 --device %s --save-weights one.safetensors", runs[i], device);
    assert_close("cpu.safetensors", "one.safetensors", 1e-10);
    for (int t = 0; t < count; ++t) {
      const char *options = t == 0 ? "--device" : "--transport nccl --device";
      assert_runs("%s --ranks %d %s %s --save-weights many.safetensors", runs[i], most(t, 2), options, device);
      assert_equal_files("one.safetensors", "many.safetensors");
      json_t *library = run_json("%s --ranks %d %s %s --reduction library --save-weights many.safetensors --json", runs[i],
                                 most(t, 4 - t), options, device);
      assert_close("cpu.safetensors", "many.safetensors", 1e-10);
      assert_string_equal(get_text(json_object_get(library, "ranks"), "transport"), names[t]);
      json_decref(library);
    }
  }
}

/* Batches of which labels are left out: the gradients are scaled by the number of the others. */
static void test_grad(void **state) {
  (void)state;
  enum { SAMPLES = 18 };
  const char *names[2];
  const int count = transports(names);
  write_reals("XB.npy", BPPSA_F64, 3, (int64_t[]){T, SAMPLES, 1});
  write_labels("YTB.npy", 2, (int64_t[]){T, SAMPLES}, -1, 0);
  write_reals("H0B.npy", BPPSA_F64, 3, (int64_t[]){1, SAMPLES, H});
  const char *line =
      "grad rnn --weights W64.safetensors --input XB.npy --labels YTB.npy --h0 H0B.npy --loss all --ignore-label 3";
  assert_runs("%s --threads 1 --out alone.safetensors", line);
  for (int t = 0; t < count; ++t) {
    for (int ranks = 2; ranks <= 3; ++ranks) {
      assert_runs("%s --threads 1 --ranks %d --device %s --out many.safetensors %s", line, most(t, ranks), device,
                  t == 1 ? "--transport nccl" : "");
      assert_close("many.safetensors", "alone.safetensors", 1e-13);
    }
  }
}

/* Ranks along time, and both: the weights of one rank but for rounding, and the same bits twice. */
static void test_time(void **state) {
  (void)state;
  static const char *const splits[] = {"--ranks 2 --split time --chunks 2", "--ranks 4 --split time:2,batch:2 --micro-batches 3",
                                       "--ranks 3 --split time --backward bp --micro-batches 2",
                                       "--ranks 4 --split time --algorithm blelloch"};
  const char *names[2];
  const int count = transports(names);
  const char *data = "rnn --loss all --ignore-label 3 --seq-len 7 --hidden 3 --samples 12 --batch 8 --validation 0.2 --dtype f64 "
                     "--threads 1 --optimizer sgd --lr 0.5 --iterations 2";
  json_t *alone = run_json("train %s --save-weights alone.safetensors --json", data);
  for (size_t i = 0; i < sizeof splits / sizeof *splits; ++i) {
    for (int t = 0; t < (gpus < 4 ? 1 : count); ++t) {
      const char *over = t == 1 ? "--transport nccl" : "";
      json_t *cut = run_json("train %s %s %s --device %s --save-weights cut.safetensors --json", data, splits[i], over, device);
      assert_close("cut.safetensors", "alone.safetensors", 1e-12);
      const json_t *final = json_object_get(cut, "final"), *expected = json_object_get(alone, "final");
      assert_true(fabs(get_real(final, "validation_loss") - get_real(expected, "validation_loss")) < 1e-12);
      assert_true(get_real(final, "accuracy") == get_real(expected, "accuracy"));
      assert_runs("train %s %s %s --device %s --save-weights twice.safetensors", data, splits[i], over, device);
      assert_equal_files("cut.safetensors", "twice.safetensors");
      json_decref(cut);
    }
  }
  json_decref(alone);
  const char *line = "grad rnn --weights W64.safetensors --input X.npy --labels YT.npy --h0 H0.npy --loss all --ignore-label 3 "
                     "--threads 1";
  assert_runs("%s --out alone.safetensors", line);
  assert_runs("%s --ranks 3 --split time --chunks 3 --device %s --out cut.safetensors", line, device);
  assert_close("cut.safetensors", "alone.safetensors", 1e-13);
}

/* Forward passes in parallel over time: what they do does not depend on the number of ranks, `auto` takes them, and a run that is
 * resumed in a pause has the bits of one that was never interrupted. */
static void test_forward(void **state) {
  (void)state;
  static const char *const cells[] = {"rnn", "gru", "lstm"};
  const char *data = "--seq-len 120 --samples 8 --batch 4 --hidden 4 --iterations 1 --threads 1 --warm-up 9 --forward-chunks 6 "
                     "--loss all --layers 2";
  for (int i = 0; i < 3; ++i) {
    json_t *alone = run_json("train %s %s --device %s --json", cells[i], data, device);
    for (int ranks = 1; ranks <= 3; ++ranks) {
      json_t *cut = run_json("train %s %s --ranks %d --split time --device %s --json", cells[i], data, ranks, device);
      assert_true(get_integer(json_object_get(cut, "forward"), "mended") > 0);
      assert_true(json_equal(json_object_get(cut, "forward"), json_object_get(alone, "forward")));
      json_decref(cut);
    }
    json_decref(alone);
  }
  const char *train =
      "train gru --seq-len 24 --samples 48 --hidden 4 --forward-chunks 12 --warm-up 0 --tolerance 1e-30 --ranks 3 "
      "--split time --micro-batches 2 --threads 1";
  assert_runs("%s --device %s --iterations 8 --save-weights A.safetensors", train, device);
  assert_runs("%s --device %s --iterations 4 --checkpoint d", train, device);
  assert_runs("%s --device %s --iterations 8 --checkpoint d --resume --save-weights R.safetensors", train, device);
  assert_equal_files("A.safetensors", "R.safetensors");
  if (gpus > 0) {
    assert_runs("train gru --seq-len 400 --batch 1 --samples 2 --iterations 1 --ranks 2 --split time --forward auto --device %s",
                device);
  }
}

static void test_eval(void **state) {
  (void)state;
  const char *line = "eval rnn --weights W64.safetensors --samples 21 --seq-len 5 --batch 5 --threads 1 --json";
  json_t *alone = run_json("%s", line), *many = run_json("%s --ranks 3 --device %s", line, device);
  assert_true(fabs(get_real(alone, "loss") - get_real(many, "loss")) < 1e-12);
  assert_true(get_real(alone, "accuracy") == get_real(many, "accuracy"));
  json_decref(many);
  many = run_json("%s --ranks 4 --split time:2,batch:2 --device %s", line, device);
  assert_true(fabs(get_real(alone, "loss") - get_real(many, "loss")) < 1e-12);
  json_decref(alone);
  json_decref(many);
}

static void test_networks(void **state) {
  (void)state;
  put_text("net.json", SMALL_NETWORK);
  put_images("images.npy", "classes.npy", (int64_t[]){26, 2, 6, 5}, 3);
  const char *train =
      "train net.json --data npy:images.npy,classes.npy --batch 20 --iterations 2 --lr 0.05 --dtype f64 --threads 1";
  assert_runs("%s --backward bp --save-weights cpu.safetensors", train);
  assert_runs("%s --backward bp --ranks 2 --device %s --save-weights many.safetensors", train, device);
  assert_close("cpu.safetensors", "many.safetensors", 1e-12);
}

/* A run goes on at another number of GPUs, with the bits of one that was never interrupted. */
static void test_resumes(void **state) {
  (void)state;
  const char *line = "train gru " SMALL " --clip-norm 1";
  assert_runs("%s --iterations 4 --ranks 2 --device %s --save-weights whole.safetensors", line, device);
  assert_runs("%s --iterations 2 --ranks 2 --device %s --checkpoint ck", line, device);
  assert_runs("%s --iterations 4 --ranks 1 --device %s --checkpoint ck --resume --save-weights parts.safetensors", line, device);
  assert_equal_files("whole.safetensors", "parts.safetensors");
}

/* An explosion is reported once, in the words of one rank's run. */
static void test_nonfinite(void **state) {
  (void)state;
  const char *line =
      "train rnn --seq-len 20 --samples 40 --hidden 6 --nonlinearity relu --optimizer sgd --lr 1e30 --iterations 9 --ranks 2 "
      "--threads 1";
  run_result on_cpu = run("%s", line), on_device = run("%s --device %s", line, device);
  assert_int_equal(on_cpu.code, 1);
  assert_int_equal(on_device.code, 1);
  assert_one_error(&on_device, "non-finite");
  assert_string_equal(strstr(on_cpu.err, "training step"), strstr(on_device.err, "training step")); /* "rank 0: " or "rank 1: " */
  release(&on_cpu);
  release(&on_device);
  /* Ranks along time, of which one has logits. */
  on_cpu = run("%s --split time", line);
  on_device = run("%s --split time --device %s", line, device);
  assert_int_equal(on_device.code, 1);
  assert_string_equal(strstr(on_cpu.err, "training step"), strstr(on_device.err, "training step"));
  release(&on_cpu);
  release(&on_device);
}

/* One rank a GPU over NCCL; over threads several ranks share one. */
static void test_requests(void **state) {
  (void)state;
  if (gpus == 0) {
    assert_fails(2, "--transport: nccl carries arrays between GPUs, expected --device cuda, not cpu",
                 "train rnn " SMALL " --iterations 1 --ranks 2 --transport nccl");
    return;
  }
  char words[80];
  snprintf(words, sizeof words, "transport nccl: ranks 0 and %d share the GPU", gpus);
  assert_runs("train rnn " SMALL " --iterations 1 --ranks %d --device %s", gpus + 1, device);
  assert_runs("train rnn " SMALL " --iterations 1 --ranks 2 --device cuda:0");
  if (nccl) {
    assert_fails(2, words, "train rnn " SMALL " --iterations 1 --ranks %d --device %s --transport nccl", gpus + 1, device);
    assert_fails(2, "transport nccl: ranks 0 and 1 share the GPU",
                 "train rnn " SMALL " --iterations 1 --ranks 2 --device cuda:0 --transport nccl");
  }
}

/* What GPUs exchange: four operations, and nothing of the model. */
static void test_calibrate(void **state) {
  (void)state;
  if (gpus == 0) {
    return;
  }
  assert_fails(2, "whose layers are not measured, expected cpu, or --transport nccl too",
               "calibrate lenet5 --out no.json --ranks 2 --device %s", device);
  if (!nccl || gpus < 2) {
    return;
  }
  json_t *file = run_json("calibrate lenet5 --out nccl.json --ranks 2 --device %s --transport nccl --quick --json", device);
  const json_t *levels = json_object_get(file, "levels"), *level = json_array_get(levels, 0);
  assert_string_equal(get_text(json_object_get(file, "measured"), "transport"), "nccl");
  assert_int_equal(json_array_size(levels), 1);
  assert_int_equal(json_array_size(json_object_get(file, "fits")), 4);
  assert_true(get_real(json_object_get(level, "reduce_scatter"), "bandwidth") > 0 && get_real(level, "slowdown") == 1);
  assert_null(json_object_get(level, "ordered_sum"));
  assert_null(json_object_get(file, "layer_times"));
  json_decref(file);
  assert_runs("oracle vgg11 nccl.json --strategy data,filter");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_train),    cmocka_unit_test(test_grad),
                                     cmocka_unit_test(test_time),     cmocka_unit_test(test_forward),
                                     cmocka_unit_test(test_eval),     cmocka_unit_test(test_networks),
                                     cmocka_unit_test(test_resumes),  cmocka_unit_test(test_nonfinite),
                                     cmocka_unit_test(test_requests), cmocka_unit_test(test_calibrate)};
  gpus = gpus_of_ranks(&nccl);
  device = gpus > 0 ? "cuda" : "cpu";
  return cmocka_run_group_tests(tests, enter_with_batch, leave_directory);
}

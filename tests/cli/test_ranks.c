/* train, eval and grad on ranks that are threads: the same bits for every number of ranks, what is printed and by whom,
 * checkpoints, refusals. */
#include <math.h>

#include "tests/cli/batch_files.h"
#include "tests/cli/cnn_files.h"

#define TRAIN "train gru --seq-len 6 --hidden 5 --samples 150 --batch 64 --validation 0.2 --threads 1 --seed 3"

static const char network[] =
    "{\"input\": [2, 6, 6], \"layers\": [{\"name\": \"conv1\", \"op\": \"conv2d\", \"out\": 3, \"kernel\": [3, 3]}, {\"name\": "
    "\"relu1\", \"op\": \"relu\"}, {\"name\": \"flatten\", \"op\": \"flatten\"}, {\"name\": \"fc\", \"op\": \"linear\", \"out\": "
    "5}]}";

static void test_train_has_the_same_bits(void **state) {
  (void)state;
  assert_runs(TRAIN " --epochs 3 --ranks 1 --save-weights one.safetensors");
  for (int ranks = 2; ranks <= 4; ++ranks) {
    assert_runs(TRAIN " --epochs 3 --ranks %d --save-weights many.safetensors", ranks);
    assert_equal_files("one.safetensors", "many.safetensors");
  }
  assert_runs(TRAIN " --epochs 3 --save-weights alone.safetensors");
  assert_true(file_difference("one.safetensors", "alone.safetensors") < 1e-4);
  assert_runs(TRAIN " --epochs 3 --ranks 3 --reduction library --save-weights library.safetensors");
  assert_true(file_difference("library.safetensors", "alone.safetensors") < 1e-4);
}

/* Without --ranks nothing has changed: no member of the document, no line of the header, no field of the checkpoint. */
static void test_documents(void **state) {
  (void)state;
  json_t *alone = run_json(TRAIN " --iterations 2 --json");
  assert_null(json_object_get(alone, "ranks"));
  json_t *two = run_json(TRAIN " --iterations 2 --ranks 2 --json");
  const json_t *ranks = json_object_get(two, "ranks");
  assert_int_equal(get_integer(ranks, "ranks"), 2);
  assert_string_equal(get_text(ranks, "transport"), "threads");
  assert_string_equal(get_text(ranks, "reduction"), "a tree over blocks of 16 samples");
  assert_true(json_is_true(json_object_get(ranks, "same_bits")));
  assert_int_equal(get_integer(json_object_get(two, "config"), "batch"), 64);
  assert_int_equal(get_integer(json_object_get(two, "config"), "threads"), 1);
  assert_int_equal(json_array_size(json_object_get(two, "rows")), 2);
  json_decref(alone);
  json_decref(two);
  run_result text = run(TRAIN " --iterations 2 --ranks 7");
  assert_int_equal(text.code, 0);
  const char *line =
      strstr(text.out, "\nranks      7, threads, split batch, gradients added up by a tree over blocks of 10 samples: "
                       "the bits depend on the number of ranks\n");
  assert_non_null(line);
  assert_null(strstr(line + 1, "\nranks ")); /* printed once */
  release(&text);
}

static void test_logs(void **state) {
  (void)state;
  assert_runs(TRAIN " --iterations 4 --ranks 3 --log three.jsonl");
  size_t size = 0;
  char *log = read_bytes("three.jsonl", &size);
  int lines = 0;
  for (size_t i = 0; i < size; ++i) {
    lines += log[i] == '\n' ? 1 : 0;
  }
  assert_int_equal(lines, 5); /* the run, and four steps */
  free(log);
}

static void test_eval_has_the_same_bits(void **state) {
  (void)state;
  const char *line = "eval rnn --weights W.safetensors --samples 77 --seq-len 5 --batch 10 --threads 1 --json";
  run_result alone = run("%s", line);
  for (int ranks = 1; ranks <= 5; ++ranks) {
    run_result many = run("%s --ranks %d", line, ranks);
    assert_string_equal(many.err, "");
    assert_string_equal(many.out, alone.out);
    release(&many);
  }
  release(&alone);
  const char *every = "eval rnn --weights W.safetensors --samples 77 --seq-len 9 --batch 10 --threads 1 --json --loss all "
                      "--ignore-label 3";
  static const char *const cuts[] = {"--ranks 3 --split time", "--ranks 4 --split time:2,batch:2 --micro-batches 3",
                                     "--ranks 12 --split time"};
  for (int i = 0; i < 2; ++i) {
    json_t *expected = run_json("%s", i == 0 ? line : every);
    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; ++k) {
      json_t *cut = run_json("%s %s", i == 0 ? line : every, cuts[k]);
      assert_true(fabs(get_real(cut, "loss") - get_real(expected, "loss")) < 1e-6);
      assert_true(get_real(cut, "accuracy") == get_real(expected, "accuracy"));
      json_decref(cut);
    }
    json_decref(expected);
  }
  assert_fails(2, "--micro-batches: 11, more than the 10 samples that a rank takes at once",
               "%s --ranks 2 --split time --micro-batches 11", line);
  assert_fails(2, "--out: given beside ranks, which do not write it, expected one of them", "%s --ranks 2 --out o.npz", line);
  assert_fails(2, "--ranks: 78, more than the 77 samples of the evaluation, expected at most that many", "%s --ranks 78", line);
}

static void write_wide_batch(void) {
  enum { SAMPLES = 37 };
  write_reals("XB.npy", BPPSA_F64, 3, (int64_t[]){T, SAMPLES, 1});
  write_labels("YB.npy", 1, (int64_t[]){SAMPLES}, -1, 0);
  write_labels("YTB.npy", 2, (int64_t[]){T, SAMPLES}, -1, 0);
  write_reals("H0B.npy", BPPSA_F64, 3, (int64_t[]){1, SAMPLES, H});
}

static void test_grad(void **state) {
  (void)state;
  static const char *const lines[] = {
      "grad rnn --weights W64.safetensors --input XB.npy --labels YB.npy --h0 H0B.npy --threads 1",
      "grad rnn --weights W64.safetensors --input XB.npy --labels YTB.npy --loss all --ignore-label 3 --threads 1",
      "grad rnn --weights W64.safetensors --input XB.npy --labels YTB.npy --loss all --algorithm blelloch --threads 1"};
  write_wide_batch();
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    assert_runs("%s --out alone.safetensors", lines[i]);
    assert_runs("%s --ranks 1 --out one.safetensors", lines[i]);
    assert_true(file_difference("one.safetensors", "alone.safetensors") < 1e-14);
    for (int ranks = 2; ranks <= 3; ++ranks) {
      assert_runs("%s --ranks %d --out many.safetensors", lines[i], ranks);
      assert_equal_files("one.safetensors", "many.safetensors");
    }
    static const char *const cuts[] = {"--ranks 3 --split time", "--ranks 6 --split time:3,batch:2 --micro-batches 4",
                                       "--ranks 9 --split time"};
    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; ++k) {
      assert_runs("%s %s --out cut.safetensors", lines[i], cuts[k]);
      assert_true(file_difference("cut.safetensors", "alone.safetensors") < 1e-14);
    }
    assert_runs("%s --ranks 5 --out many.safetensors", lines[i]); /* blocks of 8 */
    assert_true(file_difference("many.safetensors", "alone.safetensors") < 1e-14);
    assert_runs("%s --ranks 2 --reduction library --out many.safetensors", lines[i]);
    assert_true(file_difference("many.safetensors", "alone.safetensors") < 1e-14);
  }
}

/* Passes in chunks of time: on ranks that share samples, and on those that share time, the same bits for every number of ranks, and
 * the same report. */
static void test_speculative_grad(void **state) {
  (void)state;
  static const char line[] = "grad rnn --weights W2.safetensors --input XB.npy --labels YTB.npy --loss all --threads 1 "
                             "--backward-chunks 3 --backward-warm-up 1";
  static const char *const alike[][4] = {
      {"--ranks 1", "--ranks 2", "--ranks 3", "--ranks 1 --transport threads"},
      {"--ranks 2 --split time", "--ranks 3 --split time", "--ranks 7 --split time", "--ranks 9 --split time"},
      {"--ranks 2 --split time --micro-batches 3", "--ranks 3 --split time --micro-batches 3",
       "--ranks 4 --split time --micro-batches 3", "--ranks 5 --split time --micro-batches 3"}};
  write_wide_batch();
  json_t *alone = run_json("%s --out alone.safetensors --json", line);
  const json_t *expected = json_object_get(alone, "speculation");
  assert_true(get_integer(expected, "mended") > 0);
  for (size_t i = 0; i < sizeof alike / sizeof alike[0]; ++i) {
    assert_runs("%s %s --out one.safetensors", line, alike[i][0]);
    assert_true(file_difference("one.safetensors", "alone.safetensors") < 1e-6);
    for (size_t k = 1; k < 4; ++k) {
      json_t *found = run_json("%s %s --out many.safetensors --json", line, alike[i][k]);
      assert_equal_files("one.safetensors", "many.safetensors");
      assert_true(json_equal(json_object_get(found, "speculation"), expected));
      json_decref(found);
    }
  }
  json_decref(alone);
}

/* Likewise training, and runs that go on from a checkpoint, which has the state of the backward passes. */
static void test_speculative_training(void **state) {
  (void)state;
  static const char train[] =
      "train rnn --seq-len 60 --loss all --hidden 5 --samples 96 --batch 48 --validation 0 --threads 1 --seed 3 "
      "--backward speculative --backward-chunks 3";
  static const char *const alike[][3] = {{"--ranks 1", "--ranks 2", "--ranks 3"},
                                         {"--ranks 2 --split time", "--ranks 3 --split time", "--ranks 5 --split time"},
                                         {"--ranks 4 --split time:2,batch:2 --micro-batches 2",
                                          "--ranks 6 --split time:3,batch:2 --micro-batches 2",
                                          "--ranks 8 --split time:4,batch:2 --micro-batches 2"}};
  for (size_t i = 0; i < sizeof alike / sizeof alike[0]; ++i) {
    json_t *first = run_json("%s %s --epochs 4 --save-weights one.safetensors --json", train, alike[i][0]);
    const json_t *expected = json_object_get(first, "backward");
    assert_int_equal(get_integer(expected, "passes"), 8);
    assert_true(json_is_true(json_object_get(expected, "speculated")) && get_real(expected, "work") > 1);
    for (size_t k = 1; k < 3; ++k) {
      json_t *found = run_json("%s %s --epochs 4 --save-weights many.safetensors --json", train, alike[i][k]);
      assert_equal_files("one.safetensors", "many.safetensors");
      assert_true(json_equal(json_object_get(found, "backward"), expected));
      json_decref(found);
    }
    json_decref(first);
    char folder[16];
    snprintf(folder, sizeof folder, "ck%zu", i);
    assert_runs("%s %s --epochs 1 --checkpoint %s", train, alike[i][0], folder);
    assert_runs("%s %s --epochs 4 --checkpoint %s --resume --save-weights many.safetensors", train, alike[i][1], folder);
    assert_equal_files("one.safetensors", "many.safetensors");
  }
}

/* A checkpoint of many ranks is one file, and goes on at another number of ranks with the bits of a run that was never
 * interrupted. */
static void test_resumes_at_another_number(void **state) {
  (void)state;
  assert_runs(TRAIN " --iterations 9 --ranks 1 --save-weights whole.safetensors");
  assert_runs(TRAIN " --iterations 4 --ranks 4 --checkpoint ck --log l.jsonl");
  assert_int_equal(file_exists("ck/checkpoint.safetensors"), 1);
  assert_runs(TRAIN " --iterations 7 --ranks 2 --checkpoint ck --resume --log l.jsonl");
  assert_runs(TRAIN " --iterations 9 --ranks 3 --checkpoint ck --resume --log l.jsonl --save-weights parts.safetensors");
  assert_equal_files("whole.safetensors", "parts.safetensors");
}

static void test_refuses_other_sums(void **state) {
  (void)state;
  static const struct {
    const char *first, *then, *words;
  } cases[] = {
      {"", "--ranks 2", "gradients added up by one rank without --ranks, in this run by a tree over blocks of 16 samples"},
      {"--ranks 2", "", "gradients added up by a tree over blocks of 16 samples, in this run by one rank without --ranks"},
      {"--ranks 2", "--ranks 5", "in this run by a tree over blocks of 13 samples"},
      {"--ranks 2 --reduction library", "--ranks 3 --reduction library",
       "gradients added up by the allreduce of threads over 2 ranks, in this run by the allreduce of threads over 3 ranks"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    char folder[16], log[24];
    snprintf(folder, sizeof folder, "ck%zu", i);
    snprintf(log, sizeof log, "log%zu", i);
    assert_runs(TRAIN " --iterations 4 --checkpoint %s --log %s %s", folder, log, cases[i].first);
    assert_fails(2, cases[i].words, TRAIN " --iterations 8 --checkpoint %s --resume %s", folder, cases[i].then);
    run_result allowed =
        run(TRAIN " --iterations 8 --checkpoint %s --log %s --resume --allow-other-ranks %s", folder, log, cases[i].then);
    assert_int_equal(allowed.code, 0);
    assert_non_null(strstr(allowed.err, "bppsa: note: gradients were added up by "));
    release(&allowed);
    size_t size = 0;
    char *text = read_bytes(log, &size);
    assert_non_null(strstr(text, "{\"note\":"));
    assert_non_null(strstr(text, "\"step\":8,"));
    free(text);
    /* from here on the checkpoint is the new run's */
    assert_runs(TRAIN " --iterations 9 --checkpoint %s --log %s --resume %s", folder, log, cases[i].then);
  }
  /* pipedream updates weights after every micro-batch, and the run goes on from its steps */
  const char *stages = "train rnn --seq-len 6 --samples 48 --batch 8 --layers 2 --hidden 3 --threads 1 --checkpoint stages";
  static const char *const others[] = {"--epochs 2 --ranks 2 --split gpipe", "--epochs 4"};
  assert_runs("%s --epochs 1 --ranks 2 --split pipedream", stages);
  for (int i = 0; i < 2; ++i) {
    run_result allowed = run("%s %s --resume --allow-other-ranks", stages, others[i]);
    assert_int_equal(allowed.code, 0);
    release(&allowed);
    assert_runs("%s --epochs %d %s --resume", stages, 3 + 2 * i, i == 0 ? "--ranks 2 --split gpipe" : "");
  }
}

/* Ranks along time, and along time and among the samples: the weights of one rank but for rounding, the same bits twice, and a run
 * that was interrupted. */
static void test_splits_time(void **state) {
  (void)state;
  static const char *const data[] = {"gru --seq-len 23 --layers 2", "rnn --seq-len 23 --loss all --ignore-label 3",
                                     "gru --seq-len 3 --loss all"};
  static const char *const splits[] = {"--ranks 3 --split time", "--ranks 4 --split time:2,batch:2 --micro-batches 3",
                                       "--ranks 4 --split batch:2,time:2 --algorithm chunked",
                                       "--ranks 2 --split time --algorithm blelloch --micro-batches 5"};
  for (size_t d = 0; d < sizeof data / sizeof data[0]; ++d) {
    const char *options = "--hidden 5 --samples 90 --batch 32 --validation 0.1 --threads 1 --dtype f64 --optimizer sgd --lr 0.5";
    assert_runs("train %s %s --epochs 3 --save-weights alone.safetensors", data[d], options);
    json_t *alone = run_json("train %s %s --epochs 3 --json", data[d], options);
    for (size_t s = 0; s < sizeof splits / sizeof splits[0]; ++s) {
      assert_runs("train %s %s %s --epochs 3 --save-weights cut.safetensors", data[d], options, splits[s]);
      assert_true(file_difference("cut.safetensors", "alone.safetensors") < 1e-13);
      json_t *cut = run_json("train %s %s %s --epochs 3 --json --save-weights twice.safetensors", data[d], options, splits[s]);
      assert_equal_files("cut.safetensors", "twice.safetensors");
      const json_t *final = json_object_get(cut, "final"), *expected = json_object_get(alone, "final");
      assert_true(fabs(get_real(final, "validation_loss") - get_real(expected, "validation_loss")) < 1e-13);
      assert_true(get_real(final, "validation_accuracy") == get_real(expected, "validation_accuracy"));
      assert_true(get_real(final, "accuracy") == get_real(expected, "accuracy"));
      assert_false(json_is_true(json_object_get(json_object_get(cut, "ranks"), "same_bits")));
      json_decref(cut);
    }
    json_decref(alone);
    char folder[16];
    snprintf(folder, sizeof folder, "ck%zu", d);
    assert_runs("train %s %s %s --epochs 1 --checkpoint %s", data[d], options, splits[1], folder);
    assert_runs("train %s %s %s --epochs 3 --checkpoint %s --resume --save-weights cut.safetensors", data[d], options, splits[1],
                folder);
    assert_runs("train %s %s %s --epochs 3 --save-weights twice.safetensors", data[d], options, splits[1]);
    assert_equal_files("cut.safetensors", "twice.safetensors");
    assert_fails(2,
                 "gradients added up by 2 ranks along time, 3 groups, a tree over blocks of 16 samples, in this run by 3 ranks "
                 "along time, a tree over blocks of 32 samples",
                 "train %s %s %s --epochs 4 --checkpoint %s --resume", data[d], options, splits[0], folder);
    const char *groups = "--ranks 4 --split time:2,batch:2 --micro-batches 4"; /* as before, but for the groups */
    assert_fails(2, "3 groups, a tree over blocks of 16 samples, in this run by 2 ranks along time, 4 groups, a tree",
                 "train %s %s %s --epochs 4 --checkpoint %s --resume", data[d], options, groups, folder);
    run_result allowed =
        run("train %s %s %s --epochs 4 --checkpoint %s --resume --allow-other-ranks", data[d], options, groups, folder);
    assert_int_equal(allowed.code, 0);
    assert_non_null(
        strstr(allowed.err, "3 groups, a tree over blocks of 16 samples, from here on by 2 ranks along time, 4 groups"));
    release(&allowed);
  }
}

static void test_networks(void **state) {
  (void)state;
  put_text("net.json", network);
  put_images("IX.npy", "IY.npy", (int64_t[]){40, 2, 6, 6}, 5);
  const char *train = "train net.json --data npy:IX.npy,IY.npy --batch 32 --epochs 8 --threads 1 --lr 0.1";
  assert_runs("%s --ranks 1 --save-weights one.safetensors", train);
  assert_runs("%s --ranks 2 --save-weights two.safetensors", train);
  assert_equal_files("one.safetensors", "two.safetensors");
  assert_runs("%s --ranks 2 --reverse-first 1 --save-weights two.safetensors", train);
  assert_equal_files("one.safetensors", "two.safetensors");
  json_t *found = run_json("%s --ranks 2 --reverse-first auto --save-weights two.safetensors --json", train);
  assert_equal_files("one.safetensors", "two.safetensors");
  assert_in_range(get_integer(json_object_get(found, "ranks"), "reverse_first"), 0, 1);
  json_decref(found);
  assert_runs(
      "grad net.json --weights one.safetensors --input IX.npy --labels IY.npy --threads 1 --dtype f64 --out alone.safetensors");
  assert_runs("grad net.json --weights one.safetensors --input IX.npy --labels IY.npy --threads 1 --dtype f64 --ranks 3 --out "
              "many.safetensors");
  assert_true(file_difference("many.safetensors", "alone.safetensors") < 1e-14);
}

static const char deep[] =
    "{\"input\": [2, 6, 6], \"layers\": [{\"name\": \"conv1\", \"op\": \"conv2d\", \"out\": 3, \"kernel\": [3, 3]}, "
    "{\"name\": \"relu1\", \"op\": \"relu\"}, {\"name\": \"conv2\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": [3, 3]}, "
    "{\"name\": \"tanh2\", \"op\": \"tanh\"}, {\"name\": \"fc\", \"op\": \"linear\", \"out\": 5}]}";

/* Runs with two weight gradients that are to come last; *k: those that do. `note`: what standard error says. Returns the log, which
 * the caller frees. */
static char *run_reversed(const char *train, const char *options, const char *note, int64_t *k) {
  size_t size;
  char said[256] = "";
  run_result result = run("%s %s --log l.jsonl --json --save-weights reversed.safetensors", train, options);
  if (note[0] != '\0') {
    snprintf(said, sizeof said, "bppsa: note: weight gradients that come last: %s\n", note);
  }
  assert_string_equal(result.err, said);
  result.err[0] = '\0';
  json_t *document = parse_document(result);
  const json_t *ranks = json_object_get(document, "ranks");
  *k = get_integer(ranks, "reverse_first");
  assert_true(*k <= get_integer(ranks, "reverse_first_most"));
  json_decref(document);
  assert_equal_files("one.safetensors", "reversed.safetensors");
  return read_bytes("l.jsonl", &size);
}

/* A limit of memory admits fewer of them, and whoever asked for more is told (ooo-backprop, Algorithm 2). */
static void test_memory_of_reverse_first(void **state) {
  (void)state;
  put_text("deep.json", deep);
  put_images("IX.npy", "IY.npy", (int64_t[]){40, 2, 6, 6}, 5);
  const char *train = "train deep.json --data npy:IX.npy,IY.npy --batch 32 --iterations 20 --threads 1 --backward bp --ranks 2";
  assert_runs("%s --save-weights one.safetensors", train);
  run_result refused = run("%s --reverse-first 2 --memory-limit 1K", train);
  assert_int_equal(refused.code, 2);
  const char *needs = strstr(refused.err, "needs at least ");
  assert_non_null(needs);
  const long long least = strtoll(needs + strlen("needs at least "), NULL, 10) + 40 * 8; /* and the order of the samples */
  release(&refused);
  char limit[64];
  int64_t k;
  /* conv1's gradient takes no more, because it is needed last anyway; conv2's 4 x 2 x 2 reals of 16 samples take 1024 bytes */
  for (int more = 1; more <= 1024; more += 1023) {
    snprintf(limit, sizeof limit, "--reverse-first 2 --memory-limit %lld", least + more);
    char *log = run_reversed(train, limit, "1 of 2 layers, 2 asked for: there is memory for 1 of 2", &k);
    assert_int_equal(k, 1);
    assert_non_null(strstr(log, "{\"note\":"));
    assert_non_null(strstr(log, "weight gradients that come last: 1 of 2 layers, 2 asked for: there is memory for 1 of 2\"}\n"));
    free(log);
    snprintf(limit, sizeof limit, "--reverse-first auto --memory-limit %lld", least + more);
    log = run_reversed(train, limit, "0 to 1 layers are measured: there is memory for 1 of 2", &k);
    assert_in_range(k, 0, 1);
    assert_non_null(strstr(log, " of 2 layers, the fastest of 0 to 1: "));
    free(log);
  }
  snprintf(limit, sizeof limit, "--reverse-first 2 --memory-limit %lld", least + 1025);
  char *log = run_reversed(train, limit, "", &k);
  assert_int_equal(k, 2);
  assert_null(strstr(log, "\"note\""));
  free(log);
  run_result text = run("%s --reverse-first 9", train);
  assert_non_null(strstr(text.out, "\norder      weight gradients that come last: 2 of 2 layers, 9 asked for\n"));
  assert_non_null(strstr(text.err, "bppsa: note: weight gradients that come last: 2 of 2 layers, 9 asked for\n"));
  release(&text);
  text = run("%s --reverse-first auto", train);
  assert_string_equal(text.err, "");
  assert_non_null(strstr(text.out, "\norder      weight gradients that come last: 0 to 2 layers are measured\n"));
  assert_non_null(strstr(text.out, " of 2 layers, the fastest of 0 to 2: "));
  release(&text);
}

/* Who holds what: every step of every sample once; and the formulas of docs/time-ranks.md. */
static void test_plan(void **state) {
  (void)state;
  static const struct {
    const char *options;
    int64_t ranks, messages, rounds, bytes; /* of f32, H = 4 */
  } cases[] = {{"--batch 6 --ranks 8 --algorithm blelloch", 8, 11, 5, 3 * 96 + 4 * (6 * 4 * 20 + 96 + 4)},
               {"--batch 6 --ranks 8 --algorithm chunked", 8, 7, 7, 7 * 96},
               {"--batch 6 --ranks 8 --algorithm linear --split time:4,batch:2", 8, 6, 3, 2 * 3 * 48},
               {"--batch 40 --ranks 2 --split batch", 2, 0, 0, 0},
               {"--batch 6 --ranks 30 --algorithm chunked", 30, 22, 22, 22 * 96}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    json_t *document = run_json("plan rnn --seq-len 23 --hidden 4 %s --json", cases[i].options);
    const json_t *ranks = json_object_get(document, "ranks"), *shares = json_object_get(ranks, "shares");
    int64_t covered = 0, batch = get_integer(document, "batch");
    assert_int_equal(get_integer(ranks, "ranks"), cases[i].ranks);
    assert_int_equal(json_array_size(shares), (size_t)cases[i].ranks);
    for (int64_t r = 0; r < cases[i].ranks; ++r) {
      const json_t *share = json_array_get(shares, (size_t)r);
      covered += get_integer(share, "samples") * get_integer(share, "steps");
      assert_true(get_integer(share, "first_sample") + get_integer(share, "samples") <= batch);
      assert_true(get_integer(share, "first_step") - 1 + get_integer(share, "steps") <= 23);
    }
    assert_int_equal(covered, 23 * batch);
    assert_int_equal(get_integer(ranks, "scan_messages"), cases[i].messages);
    assert_int_equal(get_integer(ranks, "scan_rounds"), cases[i].rounds);
    assert_int_equal(get_integer(ranks, "scan_bytes"), cases[i].bytes);
    const json_t *messages = json_object_get(ranks, "scan_schedule");
    const int64_t groups = cases[i].messages > 0 && strstr(cases[i].options, "batch:2") != NULL ? 2 : 1;
    const size_t count = json_array_size(messages);
    assert_int_equal((int64_t)count * groups, cases[i].messages);
    assert_int_equal(count == 0 ? 0 : get_integer(json_array_get(messages, count - 1), "round"), cases[i].rounds);
    json_decref(document);
  }
  run_result text = run("plan rnn --seq-len 23 --batch 6 --hidden 4 --ranks 3 --algorithm chunked");
  assert_int_equal(text.code, 0);
  assert_non_null(strstr(text.out, "\nRanks: 3, split time\n"));
  assert_non_null(strstr(text.out, "\n     0  6, from 0               8, from 16 to 23\n"));
  assert_non_null(strstr(text.out, "\n     2  6, from 0               7, from 1 to 7\n"));
  assert_non_null(strstr(text.out, "chunked: 2 messages in 2 rounds, "));
  assert_non_null(strstr(text.out, "\n      1     0  1     the gradient of h_15\n      2     1  2     the gradient of h_7\n"));
  release(&text);
  text = run("plan rnn --seq-len 23 --batch 6 --hidden 4 --ranks 5 --algorithm blelloch");
  assert_non_null(strstr(text.out, "\n  round  from  to    what\n"
                                   "      1     0  1     the gradient of h_18\n"
                                   "      1     2  3     the product of steps 9 to 13\n"
                                   "      2     1  3     the gradient of h_13\n"
                                   "      3     3  4     the gradient of h_4\n"
                                   "      4     3  2     the gradient of h_13\n"));
  release(&text);
  assert_fails(2, "--split: given without --ranks, expected --ranks P too", "plan rnn --split time");
  assert_fails(2, "--ranks: 9, more than the 6 samples of a batch", "plan rnn --batch 6 --ranks 9 --split batch");
  assert_fails(2, "for 6 ranks, expected it for 4", "plan rnn --ranks 4 --split time:3,batch:2");
}

static void test_refused(void **state) {
  (void)state;
  assert_fails(2, "--ranks: '0', expected a whole number from 1 to 4096", TRAIN " --ranks 0");
  assert_fails(2, "--ranks: 65, more than the 64 samples of a batch, expected at most that many", TRAIN " --ranks 65");
  assert_fails(2, "--transport: 'udp', expected threads, mpi or nccl", TRAIN " --ranks 2 --transport udp");
  assert_fails(2, "no launcher has started this process, expected mpirun -n P or srun in front of the program",
               TRAIN " --ranks 2 --transport mpi");
  assert_fails(2, "--transport: nccl carries arrays between GPUs", TRAIN " --ranks 2 --transport nccl");
  assert_fails(2, "--split: split \"rows\": expected batch, time, or time:P,batch:Q with P times Q ranks",
               TRAIN " --ranks 2 --split rows");
  assert_fails(2, "--split: split \"time:2,batch:2\": for 4 ranks, expected it for 3", TRAIN " --ranks 3 --split time:2,batch:2");
  assert_fails(2, "--micro-batches: 65, more than the 64 samples that a rank takes at once, expected at most that many",
               TRAIN " --ranks 2 --split time --micro-batches 65");
  for (int n = 1; n <= 2; ++n) {
    assert_fails(
        2, "beside --split batch, which has none, expected --split gpipe or another scheme of bppsa schedule --list, or time",
        TRAIN " --ranks 2 --micro-batches %d", n);
    assert_fails(2, "beside --split batch, which has none", TRAIN " --ranks 1 --split batch --micro-batches %d", n);
  }
  assert_fails(2, "--split: given without ranks, expected --ranks P too, or mpirun", TRAIN " --split batch");
  assert_fails(2, "--reduction: given without ranks", TRAIN " --reduction library");
  assert_fails(2, "--timeout: '0', expected a number above 0, at most 1e6", TRAIN " --ranks 2 --timeout 0");
  assert_fails(2, "--allow-other-ranks: given without --resume", TRAIN " --ranks 2 --checkpoint d --allow-other-ranks");
  assert_fails(2, "data set 'x': unknown kind", "train rnn --ranks 3 --data x");
  assert_fails(2, "--rank: unknown option, expected one that bppsa train gru --help lists; did you mean --ranks?",
               TRAIN " --rank 2");
  put_text("net.json", network);
  put_images("IX.npy", "IY.npy", (int64_t[]){40, 2, 6, 6}, 5);
  assert_fails(2, "--split: net.json takes images, which have no time, expected batch",
               "train net.json --data npy:IX.npy,IY.npy --batch 32 --ranks 2 --split time");
  assert_fails(2, "--reverse-first: 'x', expected a whole number from 0 to 1000000, or auto",
               "train net.json --data npy:IX.npy,IY.npy --batch 32 --ranks 2 --reverse-first x");
  assert_fails(2, "--device: device cuda: this build has no CUDA", TRAIN " --ranks 2 --device cuda");
  static const char *const commands[] = {TRAIN, "eval rnn --weights W.safetensors --samples 20 --seq-len 5",
                                         "grad rnn --weights W.safetensors --input X.npy --labels Y.npy --out o.safetensors"};
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; ++i) {
    for (int time = 0; time < 2; ++time) {
      assert_fails(2, "--forward: speculative beside ranks that take parts of a batch, expected --split time, sequential or auto",
                   "%s --warm-up 2 %s", commands[i], time == 1 ? "--ranks 4 --split time:2,batch:2" : "--ranks 2 --split batch");
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_train_has_the_same_bits, enter_directory, leave_directory),
      cmocka_unit_test_setup_teardown(test_documents, enter_directory, leave_directory),
      cmocka_unit_test_setup_teardown(test_logs, enter_directory, leave_directory),
      cmocka_unit_test_setup_teardown(test_eval_has_the_same_bits, enter_with_batch, leave_directory),
      cmocka_unit_test_setup_teardown(test_grad, enter_with_batch, leave_directory),
      cmocka_unit_test_setup_teardown(test_speculative_grad, enter_with_batch, leave_directory),
      cmocka_unit_test_setup_teardown(test_speculative_training, enter_directory, leave_directory),
      cmocka_unit_test_setup_teardown(test_resumes_at_another_number, enter_directory, leave_directory),
      cmocka_unit_test_setup_teardown(test_refuses_other_sums, enter_directory, leave_directory),
      cmocka_unit_test_setup_teardown(test_splits_time, enter_directory, leave_directory),
      cmocka_unit_test_setup_teardown(test_networks, enter_directory, leave_directory),
      cmocka_unit_test_setup_teardown(test_memory_of_reverse_first, enter_directory, leave_directory),
      cmocka_unit_test(test_plan),
      cmocka_unit_test_setup_teardown(test_refused, enter_with_batch, leave_directory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

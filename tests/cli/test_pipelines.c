/* train on ranks that execute a schedule: every synchronous scheme has the bits of one device with the same micro-batches; weights
 * of other versions; checkpoints, what is printed, refusals. */
#include <math.h>

#include "schedule/schedule.h"
#include "tests/cli/cnn_files.h"

#define NETWORK                                                                                                                  \
  "{\"input\": [2, 6, 6], \"layers\": [{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 3, \"kernel\": 3},"                        \
  "{\"name\": \"r\", \"op\": \"relu\"}, {\"name\": \"p\", \"op\": \"maxpool2d\", \"kernel\": 2},"                                \
  "{\"name\": \"f\", \"op\": \"linear\", \"out\": 9}, {\"name\": \"t\", \"op\": \"tanh\"},"                                      \
  "{\"name\": \"g\", \"op\": \"linear\", \"out\": 7}, {\"name\": \"s\", \"op\": \"relu\"},"                                      \
  "{\"name\": \"h\", \"op\": \"linear\", \"out\": 5}]}"

/* 48 images to train on, in three batches of an epoch. */
#define TRAIN "train net.json --data npy:IX.npy,IY.npy --validation 0.25 --batch 16 --threads 1 --lr 0.1 --seed 3"

static int enter_with_images(void **state) {
  enter_directory(state);
  put_text("net.json", NETWORK);
  put_images("IX.npy", "IY.npy", (int64_t[]){64, 2, 6, 6}, 5);
  return 0;
}

/* ---- synchronous schemes ---- */

static const struct {
  const char *options;
  int micro_batches; /* of all copies together */
} synchronous[] = {
    {"--ranks 2 --split model-parallel --micro-batches 4", 4},
    {"--ranks 4 --split gpipe", 4},
    {"--ranks 3 --split gpipe --micro-batches 4 --recompute", 4},
    {"--ranks 4 --split 1f1b --micro-batches 8 --cut 1,4,5", 8},
    {"--ranks 2 --split 1f1b --stages 8 --micro-batches 2", 2},
    {"--ranks 4 --split 1f1b --width 2 --micro-batches 2 --sync eager", 4},
    {"--ranks 2 --split interleaved --micro-batches 4 --chunks 3", 4},
    {"--ranks 2 --split gems --micro-batches 4", 4},
    {"--ranks 4 --split chimera --micro-batches 4 --sync eager-opt", 4},
    {"--ranks 4 --split chimera --micro-batches 8 --doubling", 8},
    {"--ranks 4 --split chimera --micro-batches 4 --halving", 8},
    {"--ranks 2 --split chimera --micro-batches 2 --halving --recompute", 4},
    {"--ranks 4 --split chimera --replicas 4 --micro-batches 4", 4},
    {"--ranks 4 --split zb-h1 --micro-batches 8", 8},
    {"--ranks 2 --split fast-forward", 2},
    {"--ranks 3 --split modulo --micro-batches 2", 2},
    {"--ranks 4 --split wait-free", 4},
    {"--ranks 2 --split priority", 2},
    {"--ranks 2 --split reverse-first-k --reverse-k 2", 2},
    {"--ranks 1 --split multi-stream", 1},
};

/* Every number of the log but the times. */
static void assert_equal_logs(const char *a_path, const char *b_path) {
  static const char *const keys[] = {
      "step", "epoch", "loss", "accuracy", "grad_norm", "lr", "validation_loss", "validation_accuracy"};
  size_t size;
  char *a = read_bytes(a_path, &size), *b = read_bytes(b_path, &size), *a_rest = NULL, *b_rest = NULL;
  char *x = strtok_r(a, "\n", &a_rest), *y = strtok_r(b, "\n", &b_rest); /* the runs, which differ */
  int lines = 0;
  while ((x = strtok_r(NULL, "\n", &a_rest)) != NULL) {
    y = strtok_r(NULL, "\n", &b_rest);
    assert_non_null(y);
    json_t *left = json_loads(x, 0, NULL), *right = json_loads(y, 0, NULL);
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; ++k) {
      assert_int_equal(json_object_get(left, keys[k]) == NULL, json_object_get(right, keys[k]) == NULL);
      assert_true(json_object_get(left, keys[k]) == NULL || get_real(left, keys[k]) == get_real(right, keys[k]));
    }
    json_decref(left);
    json_decref(right);
    ++lines;
  }
  assert_null(strtok_r(NULL, "\n", &b_rest));
  assert_true(lines > 1);
  free(a);
  free(b);
}

static void test_synchronous(void **state) {
  (void)state;
  for (int n = 1; n <= 8; n *= 2) { /* N = 1 is one device whose batch is one block */
    assert_runs(TRAIN " --epochs 2 --ranks 1 --micro-batches %d --save-weights one%d.safetensors --log one%d.jsonl", n, n, n);
  }
  for (size_t i = 0; i < sizeof synchronous / sizeof synchronous[0]; ++i) {
    char one[32], log[32];
    snprintf(one, sizeof one, "one%d.safetensors", synchronous[i].micro_batches);
    snprintf(log, sizeof log, "one%d.jsonl", synchronous[i].micro_batches);
    assert_runs(TRAIN " --epochs 2 %s --save-weights many.safetensors --log many%zu.jsonl", synchronous[i].options, i);
    assert_equal_files(one, "many.safetensors");
    char many[32];
    snprintf(many, sizeof many, "many%zu.jsonl", i);
    assert_equal_logs(log, many);
  }
  /* a batch as one block has the bits of the model that needs no chain; several blocks round otherwise */
  assert_runs(TRAIN " --epochs 2 --backward bp --save-weights alone.safetensors");
  assert_equal_files("one1.safetensors", "alone.safetensors");
  assert_true(file_difference("one4.safetensors", "alone.safetensors") < 1e-5);
}

/* Every scheme trains, or the table above forgets it. */
static void test_every_scheme(void **state) {
  (void)state;
  int64_t count;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  for (int64_t i = 0; i < count; ++i) {
    if (schemes[i].scan) {
      assert_fails(2, "--split: split \"scan-", TRAIN " --ranks 2 --split %s", schemes[i].id);
      continue;
    }
    const char *optimizer = i % 2 == 0 ? "adam --lr 0.01" : "sgd --momentum 0.5";
    json_t *document = run_json(TRAIN " --iterations 4 --ranks 2 --split %s --optimizer %s --json", schemes[i].id, optimizer);
    const json_t *ranks = json_object_get(document, "ranks");
    const bool synchronous_scheme = schemes[i].weights == BPPSA_WEIGHTS_SYNCHRONOUS;
    assert_string_equal(get_text(ranks, "scheme"), schemes[i].id);
    assert_int_equal(json_is_true(json_object_get(ranks, "same_bits")), synchronous_scheme);
    assert_int_equal(get_integer(document, "steps_done"), 4);
    assert_int_equal(json_array_size(json_object_get(document, "rows")), 4);
    json_decref(document);
  }
}

/* ---- layers over all of their time ---- */

#define SEQUENCES "--seq-len 7 --hidden 5 --samples 64 --batch 16 --validation 0.25 --threads 1 --epochs 2"

static void test_recurrent(void **state) {
  (void)state;
  static const char *const networks[] = {"rnn --layers 3 --nonlinearity relu --loss all", "gru --layers 7",
                                         "gru --layers 3 --dtype f64"};
  static const char *const splits[] = {"--ranks 2 --split 1f1b",        "--ranks 4 --split gpipe --recompute",
                                       "--ranks 2 --split chimera",     "--ranks 3 --split zb-h1",
                                       "--ranks 2 --split modulo",      "--ranks 2 --split gpipe --split-backward wi",
                                       "--ranks 2 --split interleaved", "--ranks 2 --split interleaved --chunks 1"};
  for (size_t i = 0; i < sizeof networks / sizeof networks[0]; ++i) {
    assert_runs("train %s " SEQUENCES " --ranks 1 --micro-batches 4 --save-weights one.safetensors", networks[i]);
    for (size_t s = 0; s < sizeof splits / sizeof splits[0]; ++s) {
      assert_runs("train %s " SEQUENCES " %s --micro-batches 4 --save-weights many.safetensors", networks[i], splits[s]);
      assert_equal_files("one.safetensors", "many.safetensors");
    }
    /* a batch as one block has the bits of the model that needs no chain */
    assert_runs("train %s " SEQUENCES " --backward bp --save-weights alone.safetensors", networks[i]);
    assert_runs("train %s " SEQUENCES " --ranks 2 --split gpipe --micro-batches 1 --save-weights many.safetensors", networks[i]);
    assert_equal_files("alone.safetensors", "many.safetensors");
  }
  assert_runs("train gru --layers 16 " SEQUENCES " --ranks 1 --micro-batches 8 --save-weights one.safetensors");
  for (int ranks = 2; ranks <= 8; ranks *= 2) {
    assert_runs("train gru --layers 16 " SEQUENCES " --ranks %d --split 1f1b --micro-batches 8 --save-weights many.safetensors",
                ranks);
    assert_equal_files("one.safetensors", "many.safetensors");
  }
}

/* Ranks without a stage, uneven stages, fewer micro-batches than stages, one micro-batch. */
static void test_odd_shapes(void **state) {
  (void)state;
  static const struct {
    const char *options;
    int micro_batches, batch;
  } shapes[] = {
      {"--ranks 8 --split 1f1b --stages 4", 4, 16}, /* four ranks only evaluate */
      {"--ranks 6 --split chimera --stages 4 --halving", 2, 16},
      {"--ranks 7 --split modulo", 4, 16}, /* five layers */
      {"--ranks 3 --split gpipe --cut 1,4", 4, 16},
      {"--ranks 2 --split zb-h1 --cut 4", 4, 16},
      {"--ranks 4 --split chimera", 3, 12}, /* the two pipelines share them unevenly */
      {"--ranks 4 --split chimera", 6, 12}, /* a unit of four and one of two */
      {"--ranks 4 --split 1f1b", 2, 16},
      {"--ranks 3 --split interleaved --chunks 1", 3, 12},
      {"--ranks 2 --split model-parallel", 1, 16},
      {"--ranks 4 --split gpipe", 1, 16},
      {"--ranks 4 --split 1f1b", 1, 16},
      {"--ranks 4 --split gems", 1, 16}, /* the second pipeline has none */
      {"--ranks 4 --split chimera", 1, 16},
      {"--ranks 4 --split zb-h1", 1, 16},
      {"--ranks 4 --split fast-forward", 1, 16},
  };
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
    const int parts = strstr(shapes[i].options, "--halving") != NULL ? 2 : 1;
    const char *network =
        strstr(shapes[i].options, "interleaved") != NULL ? TRAIN " --epochs 1" : "train gru --layers 4 " SEQUENCES;
    assert_runs("%s --batch %d --ranks 1 --micro-batches %d --save-weights one.safetensors", network, shapes[i].batch,
                shapes[i].micro_batches * parts);
    assert_runs("%s --batch %d %s --micro-batches %d --save-weights many.safetensors", network, shapes[i].batch,
                shapes[i].options, shapes[i].micro_batches);
    assert_equal_files("one.safetensors", "many.safetensors");
  }
}

/* ---- weights of other versions ---- */

static void test_asynchronous(void **state) {
  (void)state;
  static const char *const splits[] = {"pipedream", "2bw", "vanilla", "spectrain"};
  assert_runs(TRAIN " --epochs 2 --ranks 1 --micro-batches 4 --save-weights one.safetensors");
  for (size_t i = 0; i < sizeof splits / sizeof splits[0]; ++i) {
    const char *options = "--micro-batches 4 --momentum 0.5";
    char name[40];
    snprintf(name, sizeof name, "%s.safetensors", splits[i]);
    json_t *document = run_json(TRAIN " --epochs 2 --ranks 4 --split %s %s --save-weights %s --json", splits[i], options, name);
    assert_int_equal(get_integer(json_object_get(document, "ranks"), "flush_every"), 3); /* the steps of an epoch */
    assert_true(file_difference(name, "one.safetensors") > 1e-4);
    json_decref(document);
    for (size_t k = 0; k < i; ++k) { /* no two see the same weights */
      char other[40];
      snprintf(other, sizeof other, "%s.safetensors", splits[k]);
      assert_true(file_difference(name, other) > 1e-6);
    }
    /* any number of ranks that does the work of the four stages; a run that was interrupted */
    assert_runs(TRAIN " --epochs 2 --ranks 2 --stages 4 --split %s %s --save-weights two.safetensors", splits[i], options);
    assert_equal_files(name, "two.safetensors");
    assert_runs(TRAIN " --epochs 1 --ranks 4 --split %s %s --checkpoint ck%zu", splits[i], options, i);
    assert_runs(TRAIN " --epochs 2 --ranks 4 --split %s %s --checkpoint ck%zu --resume --save-weights two.safetensors", splits[i],
                options, i);
    assert_equal_files(name, "two.safetensors");
    char other[96]; /* the option that differs is named */
    snprintf(other, sizeof other, "in this run by the schedule %s (list ", splits[i]);
    assert_fails(2, other, TRAIN " --epochs 3 --ranks 3 --split %s %s --checkpoint ck%zu --resume", splits[i], options, i);
    assert_fails(2, ", --stages 4 --cut 2,4,6 --micro-batches 4 of 4 samples, a flush every 3 steps), expected the same",
                 TRAIN " --epochs 3 --ranks 4 --split %s %s --cut 2,4,6 --checkpoint ck%zu --resume", splits[i], options, i);
    assert_fails(2, "--micro-batches 4 of 4 samples, a flush every 3 steps), in this run by the schedule ",
                 TRAIN " --epochs 3 --ranks 4 --split %s %s --cut 2,4,6 --checkpoint ck%zu --resume", splits[i], options, i);
  }
  /* checkpoints are due where the pipeline is empty */
  json_t *document = run_json(TRAIN " --iterations 8 --ranks 2 --split 2bw --checkpoint often --checkpoint-every 2 --json");
  assert_int_equal(get_integer(json_object_get(document, "ranks"), "flush_every"), 1);
  json_decref(document);
  document = run_json(TRAIN " --iterations 2 --ranks 2 --split 2bw --json");
  assert_int_equal(get_integer(json_object_get(document, "ranks"), "flush_every"), 2);
  json_decref(document);
}

/* Steps between two flushes are computed together: each has the mean speed, and none is faster than the run. */
static void test_speed_of_flushed_steps(void **state) {
  (void)state;
  json_t *document = run_json(TRAIN " --iterations 6 --ranks 2 --split pipedream --json");
  const json_t *rows = json_object_get(document, "rows");
  const int64_t steps = get_integer(json_object_get(document, "ranks"), "flush_every");
  assert_true(steps > 1 && json_array_size(rows) == 6);
  for (size_t i = 0; i < 6; ++i) {
    const json_t *row = json_array_get(rows, i), *first = json_array_get(rows, i - i % (size_t)steps);
    const double speed = get_real(row, "samples_per_s"), of_passes = get_real(row, "forward_s") + get_real(row, "backward_s");
    assert_true(speed > 0 && speed == get_real(first, "samples_per_s"));
    assert_true(fabs(speed * of_passes - 16) < 1e-6); /* samples of a step */
  }
  json_decref(document);
}

/* ---- checkpoints, files, texts ---- */

static void test_resumes_with_another_schedule(void **state) {
  (void)state;
  assert_runs(TRAIN " --iterations 9 --ranks 1 --micro-batches 4 --momentum 0.9 --save-weights whole.safetensors --log w.jsonl");
  assert_runs(TRAIN " --iterations 4 --ranks 4 --split 1f1b --momentum 0.9 --checkpoint ck --log l.jsonl");
  assert_runs(TRAIN
              " --iterations 6 --ranks 2 --split chimera --micro-batches 2 --halving --momentum 0.9 --checkpoint ck --resume "
              "--log l.jsonl");
  assert_runs(
      TRAIN " --iterations 7 --ranks 2 --split chimera --micro-batches 4 --momentum 0.9 --checkpoint ck --resume --log l.jsonl");
  assert_runs(TRAIN
              " --iterations 9 --ranks 3 --split zb-h1 --micro-batches 4 --momentum 0.9 --checkpoint ck --resume --log l.jsonl "
              "--save-weights parts.safetensors");
  assert_equal_files("whole.safetensors", "parts.safetensors");
  assert_equal_logs("w.jsonl", "l.jsonl");
  assert_fails(2,
               "gradients added up by a tree over 4 micro-batches of 4 samples, in this run by a tree over 8 micro-batches of 2",
               TRAIN " --iterations 10 --ranks 2 --split 1f1b --micro-batches 8 --momentum 0.9 --checkpoint ck --resume");
  assert_fails(2, "in this run by one rank without --ranks", TRAIN " --iterations 10 --momentum 0.9 --checkpoint ck --resume");
}

static void test_starts_from_weights(void **state) {
  (void)state;
  assert_runs(TRAIN " --iterations 2 --ranks 1 --micro-batches 2 --save-weights two.safetensors");
  assert_runs(TRAIN " --iterations 2 --ranks 1 --micro-batches 2 --weights two.safetensors --save-weights a.safetensors");
  assert_runs(TRAIN " --iterations 2 --ranks 2 --split 1f1b --weights two.safetensors --save-weights b.safetensors");
  assert_equal_files("a.safetensors", "b.safetensors");
  assert_runs(TRAIN " --iterations 0 --ranks 2 --split 1f1b --weights two.safetensors --save-weights same.safetensors");
  assert_true(file_difference("same.safetensors", "two.safetensors") == 0);
}

static void test_written_by_hand(void **state) {
  (void)state;
  assert_runs(TRAIN " --epochs 2 --ranks 1 --micro-batches 4 --save-weights one.safetensors");
  assert_runs("schedule 1f1b --stages 4 --layers 8 --cut 2,3,6 --micro-batches 4 --csv mine.csv");
  size_t size;
  char *text = read_bytes("mine.csv", &size);
  assert_non_null(strstr(text, ",cut=2:3:6,"));
  free(text);
  run_result shown = run("schedule --load mine.csv");
  assert_int_equal(shown.code, 0);
  release(&shown);
  assert_runs(TRAIN " --epochs 2 --ranks 4 --split mine.csv --save-weights many.safetensors");
  assert_equal_files("one.safetensors", "many.safetensors");
  assert_runs(TRAIN " --epochs 2 --ranks 3 --split mine.csv --save-weights many.safetensors");
  assert_equal_files("one.safetensors", "many.safetensors");
  json_t *document = run_json(TRAIN " --iterations 1 --ranks 2 --split mine.csv --json");
  const json_t *ranks = json_object_get(document, "ranks"), *cut = json_object_get(ranks, "cut");
  assert_int_equal(json_array_size(cut), 3);
  assert_int_equal(json_integer_value(json_array_get(cut, 1)), 3);
  assert_string_equal(get_text(ranks, "split"), "mine.csv");
  json_decref(document);
  assert_fails(2, "--cut: given beside a schedule's file, expected in the first row of mine.csv",
               TRAIN " --ranks 2 --split mine.csv --cut 1,2,3");
  assert_fails(2, "--micro-batches: given beside a schedule's file, expected in the first row of mine.csv",
               TRAIN " --ranks 2 --split mine.csv --micro-batches 8");
  assert_fails(2, "--split: none.csv: ", TRAIN " --ranks 2 --split none.csv");
  put_text("broken.csv", "scheme=gpipe,stages=2,micro-batches=1,layers=8\n0,F0@0v0,B0@0v0,STEP@0v1\n1,F0@1v0,STEP@1v1\n");
  assert_fails(2, "--split: broken.csv: rule complete-gradient: ", TRAIN " --ranks 2 --split broken.csv");
  assert_runs("schedule 1f1b --stages 2 --layers 4 --micro-batches 4 --csv four.csv");
  assert_fails(2, "--split: four.csv: 4 layers, expected the network's 8", TRAIN " --ranks 2 --split four.csv");
  assert_runs("schedule wait-free --stages 2 --layers 8 --csv window.csv");
  assert_fails(2, "--split: window.csv: its window ends behind forward passes, expected one of bppsa schedule --window iteration",
               TRAIN " --ranks 2 --split window.csv");
  assert_runs("schedule wait-free --stages 2 --layers 8 --window iteration --csv window.csv");
  assert_runs(TRAIN " --ranks 2 --iterations 2 --split window.csv");
  assert_runs("schedule pipedream --stages 2 --layers 8 --micro-batches 4 --iterations 2 --csv async.csv");
  assert_fails(2, "--split: async.csv has 2 iterations, expected a divisor of 3", TRAIN " --ranks 2 --split async.csv");
  assert_runs(TRAIN " --iterations 2 --ranks 2 --split async.csv");
}

static void test_texts(void **state) {
  (void)state;
  run_result text = run(TRAIN " --iterations 2 --ranks 2 --split 1f1b --micro-batches 4 --cut 3");
  assert_int_equal(text.code, 0);
  const char *line =
      strstr(text.out, "\nranks      2, threads, split 1f1b, 2 stages from layers 0, 3, 4 micro-batches of 4 samples, "
                       "gradients added up by a tree over 4 micro-batches of 4 samples\n");
  assert_non_null(line);
  assert_null(strstr(line + 1, "\nranks ")); /* printed once */
  release(&text);
  text = run(TRAIN " --iterations 2 --ranks 2 --split pipedream");
  assert_non_null(strstr(text.out, ", a flush every 2 steps, gradients added up by the schedule pipedream (list "));
  assert_non_null(strstr(text.out,
                         ", --stages 2 --cut 1 --micro-batches 2 of 8 samples, a flush every 2 steps): the bits depend on "
                         "the schedule\n"));
  release(&text);
  /* the options of many stages have room, and where they have not, the text says so */
  text =
      run("train gru --layers 20 --seq-len 2 --hidden 1 --samples 24 --batch 24 --iterations 1 --threads 1 --ranks 2 --stages 16 "
          "--micro-batches 24 --split pipedream");
  assert_non_null(
      strstr(text.out, " --micro-batches 24 of 1 samples, a flush every 1 steps): the bits depend on the schedule\n"));
  release(&text);
  text =
      run("train gru --layers 150 --seq-len 2 --hidden 1 --samples 2 --batch 2 --iterations 1 --threads 1 --ranks 2 --stages 120 "
          "--micro-batches 2 --split pipedream");
  assert_non_null(strstr(text.out, "...: the bits depend on the schedule\n"));
  release(&text);
  json_t *document = run_json(TRAIN " --iterations 2 --ranks 4 --split chimera --json");
  const json_t *ranks = json_object_get(document, "ranks");
  assert_int_equal(get_integer(ranks, "workers"), 4);
  assert_int_equal(get_integer(ranks, "stages"), 4);
  assert_int_equal(get_integer(ranks, "micro_batches"), 4);
  assert_int_equal(get_integer(ranks, "samples"), 4);
  assert_int_equal(get_integer(json_object_get(document, "config"), "batch"), 16);
  /* the convolution, then the linear operators are what costs: 3888, 1458, 126 and 70 FLOPs of each pass */
  assert_int_equal(json_integer_value(json_array_get(json_object_get(ranks, "cut"), 0)), 1);
  json_decref(document);
}

/* ---- refusals ---- */

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *options, *words;
  } cases[] = {
      {"--ranks 2 --split gpip", "a schedule's F.csv; did you mean gpipe?"},
      {"--ranks 2 --split scan-linear", "--split: split \"scan-linear\": expected batch, time"},
      {"--ranks 9 --split gpipe --micro-batches 4",
       "--split gpipe: layers: 8 for gpipe over 9 stages, expected at least as many layers"},
      {"--ranks 2 --split gpipe --micro-batches 3",
       "--batch: 16 samples for the 3 micro-batches of --split gpipe, which are equal"},
      {"--ranks 3 --split wait-free", "--batch: 16 samples for the 3 micro-batches of --split wait-free"},
      {"--ranks 2 --split gpipe --batch 20", "--batch: 20, no divisor of the 48 training samples"},
      {"--ranks 4 --split gpipe --cut 3,2,5", "--split gpipe: cut: stage 2 begins with layer 2, expected 4 to 7"},
      {"--ranks 4 --split gpipe --cut 3", "--split gpipe: cut: 1 layers, expected 3, the first of every stage but the first"},
      {"--ranks 4 --split gpipe --cut 3,x", "--cut: '3,x', expected the first layers of all stages but the first"},
      {"--ranks 2 --split modulo --cut 3", "--cut: given for modulo, expected a scheme that takes it: all but modulo, wait-free"},
      {"--ranks 4 --split chimera --halving --micro-batches 16",
       "--batch: 16 samples for the 32 halves of micro-batches of --split chimera, which are equal, expected a multiple"},
      {"--ranks 2 --split gpipe --halving", "--halving: given for gpipe, expected a scheme that takes it: chimera"},
      {"--ranks 2 --split gpipe --replicas 4", "--replicas: given for gpipe, expected a scheme that takes it: chimera"},
      {"--ranks 2 --split reverse-first-k --reverse-k 99",
       "--split reverse-first-k: reverse-k: 99, expected at most the 8 layers, or -1: searched"},
      {"--ranks 1 --micro-batches 2 --halving",
       "--ranks 1 --micro-batches, which executes gpipe without --split: --halving: given "
       "for gpipe, expected a scheme that takes it: chimera"},
      {"--ranks 2 --split wait-free --reverse-k 1",
       "--reverse-k: given for wait-free, expected a scheme that takes it: reverse-"},
      {"--ranks 2 --split 1f1b --chunks 2", "--chunks: given for 1f1b, expected a scheme that takes it: interleaved"},
      {"--ranks 2 --split multi-stream --stages 2", "--stages: given for multi-stream, expected a scheme that takes it: all but"},
      {"--ranks 2 --split chimera --halving --doubling", "--halving: given beside --doubling, expected one of the two"},
      {"--ranks 2 --halving", "--halving: given without a schedule, expected --split SCHEME"},
      {"--ranks 4 --split 2bw --micro-batches 2", "micro-batches: 2 for 2bw, expected at least the 4 stages"},
      {"--ranks 2 --split interleaved --micro-batches 8 --batch 24 --chunks 5", "layers: 8 for interleaved over 10 stages"},
      {"--ranks 3 --split chimera --batch 12", "stages: 3 for chimera, expected an even number"},
      {"--ranks 2 --split interleaved --micro-batches 1", "for interleaved, expected a multiple of the 2 stages"},
      {"--ranks 3 --split gpipe --width 2", "--width: 2 copies over 3 ranks, expected a divisor, or --stages D too"},
      {"--ranks 2 --split wait-free --micro-batches 2",
       "--micro-batches: given for wait-free, expected a scheme that takes it: all but"},
      {"--ranks 2 --split gpipe --clip-norm 1", "--clip-norm: given beside --split gpipe, whose stages update before"},
      {"--ranks 2 --split gpipe --backward scan", "--backward scan: given beside --split gpipe"},
      {"--ranks 2 --split gpipe --ignore-label 3", "--ignore-label: given beside --split gpipe"},
      {"--ranks 2 --split gpipe --reduction library", "--reduction: given beside a schedule, expected --split batch, not gpipe"},
      {"--ranks 2 --split gpipe --reverse-first 1", "--reverse-first: given beside a schedule"},
      {"--ranks 2 --micro-batches 4",
       "--micro-batches: 4 beside --split batch, which has none, expected --split gpipe or another"},
      {"--ranks 2 --micro-batches 1", "--micro-batches: 1 beside --split batch, which has none"},
      {"--ranks 1 --split batch --micro-batches 2", "--micro-batches: 2 beside --split batch, which has none"},
      {"--ranks 1 --micro-batches 4 --clip-norm 1", "--clip-norm: given beside --ranks 1 --micro-batches, whose stages update"},
      {"--ranks 1 --micro-batches 3",
       "--batch: 16 samples for the 3 micro-batches of --ranks 1 --micro-batches, which are equal"},
      {"--ranks 1 --micro-batches 4 --reduction library", "expected --split batch, not --ranks 1 --micro-batches"},
      {"--ranks 2 --split gpipe --algorithm blelloch", "--algorithm: given for a scan beside a schedule, which has none"},
      {"--ranks 2 --split spectrain --momentum 0", "--momentum: 0 beside --split spectrain, which predicts from the smoothed"},
      {"--ranks 2 --doubling", "--doubling: given without a schedule, expected --split SCHEME"},
      {"--ranks 2 --split batch --cut 3", "--cut: given without a schedule, expected --split SCHEME"},
      {"--stages 2", "--stages: given without ranks, expected --ranks P too, or mpirun"},
      {"--ranks 2 --split gpipe --doubling", "--doubling: given for gpipe, expected a scheme that takes it: chimera"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const int files = count_files();
    assert_fails(2, cases[i].words, TRAIN " %s --log never.jsonl --checkpoint never", cases[i].options);
    assert_int_equal(count_files(), files);
  }
}

static void test_refused_beside_a_schedule(void **state) {
  (void)state;
  assert_fails(
      2, "--forward speculative: given beside --split gpipe, whose layers compute step by step, expected sequential or auto",
      "train gru " SEQUENCES " --ranks 2 --split gpipe --forward speculative");
  assert_fails(2, "--split gpipe: layers: 5 for gpipe over 6 stages",
               "train gru " SEQUENCES " --layers 4 --ranks 6 --split gpipe");
  assert_fails(
      2, "--chunks: given for a scan beside a schedule, which has none, expected --split batch, time or interleaved, not 1f1b",
      "train gru " SEQUENCES " --ranks 2 --split 1f1b --chunks 2");
  assert_fails(2, "--split interleaved: layers: 5 for interleaved over 6 stages",
               "train gru " SEQUENCES " --layers 4 --ranks 2 --split interleaved --chunks 3");
  assert_fails(2, "--dropout: given beside --split 1f1b, whose layers run without it, expected 0",
               "train gru " SEQUENCES " --layers 2 --ranks 2 --split 1f1b --dropout 0.1");
  int64_t lengths[64];
  for (int i = 0; i < 64; ++i) {
    lengths[i] = 1 + i % 7;
  }
  const bppsa_view view = bppsa_view_make(lengths, BPPSA_I64, 1, &(int64_t){64});
  assert_int_equal(bppsa_npy_save("N.npy", &view), BPPSA_OK);
  assert_fails(2, "--lengths: given beside --split 1f1b, whose samples have one length, expected none",
               "train gru " SEQUENCES " --layers 2 --ranks 2 --split 1f1b --lengths N.npy");
  put_weights("mask.safetensors", "net.json", BPPSA_F32, 1);
  assert_fails(2, "--mask: given beside --split gpipe, whose stages have whole weights",
               TRAIN " --ranks 2 --split gpipe --mask mask.safetensors");
}

static void test_explodes(void **state) {
  (void)state;
  assert_fails(1, "training step 2 (epoch 1): non-finite ", TRAIN " --lr 1e30 --iterations 4 --ranks 2 --split 1f1b --json");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_synchronous, enter_with_images, leave_directory),
      cmocka_unit_test_setup_teardown(test_every_scheme, enter_with_images, leave_directory),
      cmocka_unit_test_setup_teardown(test_recurrent, enter_with_images, leave_directory),
      cmocka_unit_test_setup_teardown(test_odd_shapes, enter_with_images, leave_directory),
      cmocka_unit_test_setup_teardown(test_asynchronous, enter_with_images, leave_directory),
      cmocka_unit_test_setup_teardown(test_speed_of_flushed_steps, enter_with_images, leave_directory),
      cmocka_unit_test_setup_teardown(test_resumes_with_another_schedule, enter_with_images, leave_directory),
      cmocka_unit_test_setup_teardown(test_starts_from_weights, enter_with_images, leave_directory),
      cmocka_unit_test_setup_teardown(test_written_by_hand, enter_with_images, leave_directory),
      cmocka_unit_test_setup_teardown(test_texts, enter_with_images, leave_directory),
      cmocka_unit_test_setup_teardown(test_explodes, enter_with_images, leave_directory),
      cmocka_unit_test_setup_teardown(test_refused, enter_with_images, leave_directory),
      cmocka_unit_test_setup_teardown(test_refused_beside_a_schedule, enter_with_images, leave_directory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

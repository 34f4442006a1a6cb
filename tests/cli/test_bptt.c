/* --bptt: at every step of every epoch the loss and the whole gradient are those of `grad` over one row of the latest K batches,
 * which begins with the states of K batches before and in which the latest batch alone counts, by speculative passes too, and on
 * ranks that share the batch or the steps; kill and resumption; refusals. BPPSA_TEST_DEVICE names the device. */
#include "tests/cli/batch_files.h"

#include <math.h>

#include "tests/support/support.h"

static const char *device; /* "--device cuda:0" */
static bool gpu;

enum { STREAMS = 4, PIECES = 3, STEPS = 5, SET = STREAMS * PIECES, HIDDEN = 3, SHORT = 10, RUN = 8, MOST = PIECES * STEPS };

/* The pieces of streams: piece k of stream i is sample 4 k + i. A given order has 10 of them, so its last batch is smaller. */
static struct {
  double x[SET][STEPS], w[SET][STEPS];
  int64_t y[SET][STEPS], last[SET], lengths[SET], order[SHORT];
  uint8_t r[SET][STEPS];
} data;

static int enter(void **state) {
  const int status = enter_directory(state);
  for (int i = 0; i < SET * STEPS; ++i) {
    const int s = i / STEPS, t = i % STEPS;
    data.x[s][t] = bppsa_random_double(1, BPPSA_STREAM_TEST, (uint64_t)i) * 4 - 2;
    data.w[s][t] = i % 6 == 1 ? 0 : 0.5 + i % 4;
    data.y[s][t] = i * 7 % 3;
    data.r[s][t] = i % 8 == 7;
    data.last[s] = s * 5 % 3;
    data.lengths[s] = 1 + s * 3 % STEPS;
  }
  for (int i = 0; i < SHORT; ++i) {
    data.order[i] = i * 7 % SET / (i == 9 ? 2 : 1); /* in another order, and one of them twice */
  }
  write_array("X.npy", BPPSA_F64, data.x, 3, (int64_t[]){SET, STEPS, 1});
  write_array("Y.npy", BPPSA_I64, data.y, 2, (int64_t[]){SET, STEPS});
  write_array("YL.npy", BPPSA_I64, data.last, 1, (int64_t[]){SET});
  write_array("W.npy", BPPSA_F64, data.w, 2, (int64_t[]){SET, STEPS});
  write_array("R.npy", BPPSA_U8, data.r, 2, (int64_t[]){SET, STEPS});
  write_array("L.npy", BPPSA_I64, data.lengths, 1, (int64_t[]){SET});
  write_array("O.npy", BPPSA_I64, data.order, 1, (int64_t[]){SHORT});
  return status;
}

typedef struct {
  const char *options; /* of train */
  bool ragged, resets, weights, last, ordered;
} way;

static const char *const names[] = {"lstm.weight_ih_l0", "lstm.weight_hh_l0", "lstm.bias_ih_l0",
                                    "lstm.bias_hh_l0",   "linear.weight",     "linear.bias"};
enum { NAMES = sizeof names / sizeof names[0] };

static const bppsa_view *tensor(const bppsa_safetensors *file, const char *name) {
  const bppsa_view *found = bppsa_safetensors_find(file, name);
  assert_non_null(found);
  return found;
}

static bppsa_safetensors *load(const char *path) {
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_load(path, &file), BPPSA_OK);
  return file;
}

/* Some batches of streams as one row for each stream, [T][count] with the steps of stream s from 0 to lengths[s] - 1. */
typedef struct {
  int64_t count, lengths[STREAMS], y[MOST][STREAMS], last[STREAMS];
  double x[MOST][STREAMS], w[MOST][STREAMS];
  uint8_t r[MOST][STREAMS];
} row;

/* Batches first .. end - 1 of an epoch; the loss counts the last one alone. */
static row take(const way *how, int64_t first, int64_t end) {
  const int64_t all = how->ordered ? SHORT : SET;
  row made = {.count = all - (end - 1) * STREAMS < STREAMS ? all - (end - 1) * STREAMS : STREAMS};
  for (int64_t s = 0; s < made.count; ++s) {
    for (int64_t k = first; k < end; ++k) {
      const int64_t at = k * STREAMS + s, sample = how->ordered ? data.order[at] : at;
      for (int64_t t = 0; t < (how->ragged ? data.lengths[sample] : STEPS); ++t) {
        const int64_t to = made.lengths[s]++;
        made.x[to][s] = data.x[sample][t];
        made.y[to][s] = data.y[sample][t];
        made.r[to][s] = how->resets && data.r[sample][t];
        made.w[to][s] = k < end - 1 ? 0 : how->weights ? data.w[sample][t] : 1;
      }
      made.last[s] = data.last[sample];
    }
  }
  return made;
}

/* Takes h and c of stream s through the row, by the equations of an LSTM. */
static void walk(const bppsa_safetensors *weights, const row *r, int64_t s, double h[HIDDEN], double c[HIDDEN]) {
  const bppsa_view *wi = tensor(weights, names[0]), *wh = tensor(weights, names[1]), *bi = tensor(weights, names[2]),
                   *bh = tensor(weights, names[3]);
  double gates[4 * HIDDEN];
  for (int64_t t = 0; t < r->lengths[s]; ++t) {
    for (int64_t j = 0; r->r[t][s] && j < HIDDEN; ++j) {
      h[j] = c[j] = 0;
    }
    for (int64_t g = 0; g < 4 * HIDDEN; ++g) {
      gates[g] = bppsa_view_get(bi, g) + bppsa_view_get(bh, g) + bppsa_view_get(wi, g) * r->x[t][s];
      for (int64_t j = 0; j < HIDDEN; ++j) {
        gates[g] += bppsa_view_get(wh, g * HIDDEN + j) * h[j];
      }
    }
    for (int64_t j = 0; j < HIDDEN; ++j) {
      const double in = 1 / (1 + exp(-gates[j])), forget = 1 / (1 + exp(-gates[HIDDEN + j]));
      c[j] = forget * c[j] + in * tanh(gates[2 * HIDDEN + j]);
      h[j] = tanh(c[j]) / (1 + exp(-gates[3 * HIDDEN + j]));
    }
  }
}

/* Copies the columns that a row has of an array [rows][STREAMS]. */
static void save_columns(const char *path, bppsa_dtype dtype, const void *from, int32_t ndim, int64_t rows, int64_t count) {
  char made[MOST * STREAMS * sizeof(double)];
  const size_t size = bppsa_dtype_size(dtype);
  for (int64_t t = 0; t < rows; ++t) {
    memcpy(made + (size_t)(t * count) * size, (const char *)from + (size_t)(t * STREAMS) * size, (size_t)count * size);
  }
  write_array(path, dtype, made, ndim, ndim == 1 ? (int64_t[]){count} : (int64_t[]){rows, count, 1});
}

/* The gradient of the row from states h and c, with the weights of a file, by `grad`, to G.safetensors. */
static void grad(const way *how, const char *weights, const row *r, double h[STREAMS][HIDDEN], double c[STREAMS][HIDDEN]) {
  int64_t steps = 0;
  for (int64_t s = 0; s < r->count; ++s) {
    steps = r->lengths[s] > steps ? r->lengths[s] : steps;
  }
  write_array("h.npy", BPPSA_F64, h, 3, (int64_t[]){1, r->count, HIDDEN});
  write_array("c.npy", BPPSA_F64, c, 3, (int64_t[]){1, r->count, HIDDEN});
  save_columns("x.npy", BPPSA_F64, r->x, 3, steps, r->count);
  save_columns("y.npy", BPPSA_I64, how->last ? r->last : &r->y[0][0], how->last ? 1 : 2, how->last ? 1 : steps, r->count);
  save_columns("r.npy", BPPSA_U8, r->r, 2, steps, r->count);
  save_columns("w.npy", BPPSA_F64, r->w, 2, steps, r->count);
  save_columns("l.npy", BPPSA_I64, r->lengths, 1, 1, r->count);
  assert_runs("grad lstm --weights %s --input x.npy --labels y.npy --h0 h.npy --c0 c.npy --lengths l.npy --resets r.npy %s %s "
              "--backward bp --out G.safetensors",
              weights, how->last ? "--loss last" : "--loss all", how->last ? "" : "--loss-weights w.npy");
}

#define TRAIN "train lstm --hidden 3 --batch 4 --dtype f64 --optimizer sgd --lr 0.25 --stateful"

/* GPUs and ranks add up in another order. */
static double bound(void) {
  return gpu ? 1e-13 : 1e-14;
}

/* The gradient of step n follows from the weights before it and behind it, to which it has added -0.25 times as much. */
static void check_step(const bppsa_safetensors *before, const bppsa_safetensors *after, const json_t *report) {
  bppsa_safetensors *gradient = load("G.safetensors");
  double difference = 0, size = 0;
  for (int i = 0; i < NAMES; ++i) {
    const bppsa_view *g = tensor(gradient, names[i]), *v = tensor(before, names[i]), *u = tensor(after, names[i]);
    for (int64_t j = 0; j < bppsa_view_count(g); ++j) {
      const double expected = bppsa_view_get(g, j), found = (bppsa_view_get(v, j) - bppsa_view_get(u, j)) / 0.25;
      difference = fmax(difference, fabs(found - expected));
      size = fmax(size, fabs(expected));
    }
  }
  assert_true(size > 1e-3 && difference < bound());
  assert_true(fabs(bppsa_view_get(tensor(gradient, "loss"), 0) - get_real(report, "loss")) < bound());
  bppsa_safetensors_destroy(gradient);
}

/* RUN steps of K windows, more than two epochs, each compared with `grad`. */
static void check_run(const way *how, int64_t windows) {
  double h[PIECES][STREAMS][HIDDEN], c[PIECES][STREAMS][HIDDEN]; /* states in which the pass of each batch has ended */
  bppsa_safetensors *weights[RUN + 1];
  char path[RUN + 1][32];
  for (int n = 0; n <= RUN; ++n) {
    snprintf(path[n], sizeof path[n], "V%d.safetensors", n);
    assert_runs(TRAIN " %s --bptt %d --iterations %d --save-weights %s %s", how->options, (int)windows, n, path[n], device);
    weights[n] = load(path[n]);
  }
  json_t *document = run_json(TRAIN " %s --bptt %d --iterations %d --json %s", how->options, (int)windows, RUN, device);
  assert_int_equal(json_integer_value(json_object_get(json_object_get(document, "config"), "bptt")), windows);
  assert_int_equal(json_integer_value(json_object_get(json_object_get(document, "config"), "seq_len")), STEPS);
  for (int n = 0; n < RUN; ++n) {
    const int64_t k = n % PIECES, first = k + 1 > windows ? k + 1 - windows : 0;
    const row r = take(how, first, k + 1);
    double hs[STREAMS][HIDDEN] = {{0}}, cs[STREAMS][HIDDEN] = {{0}};
    if (first > 0) {
      memcpy(hs, h[first - 1], sizeof hs);
      memcpy(cs, c[first - 1], sizeof cs);
    }
    grad(how, path[n], &r, hs, cs);
    check_step(weights[n], weights[n + 1], json_array_get(json_object_get(document, "rows"), (size_t)n));
    for (int64_t s = 0; s < r.count; ++s) {
      walk(weights[n], &r, s, hs[s], cs[s]);
    }
    memcpy(h[k], hs, sizeof hs);
    memcpy(c[k], cs, sizeof cs);
  }
  for (int n = 0; n <= RUN; ++n) {
    bppsa_safetensors_destroy(weights[n]);
  }
  json_decref(document);
}

static const way ways[] = {
    {"--data npy:X.npy,Y.npy --loss all", false, false, false, false, false},
    {"--data npy:X.npy,YL.npy --threads 2", false, false, false, true, false},
    {"--data npy:X.npy,Y.npy --loss all --lengths L.npy --loss-weights W.npy", true, false, true, false, false},
    {"--data npy:X.npy,Y.npy --loss all --resets R.npy --order O.npy", false, true, false, false, true},
    {"--data npy:X.npy,YL.npy --lengths L.npy --resets R.npy --order O.npy --backward bp", true, true, false, true, true},
    {"--data npy:X.npy,Y.npy --loss all --algorithm blelloch", false, false, false, false, false},
    /* a rank has two of a batch's four samples, or one of them; of a batch of two samples one, or none */
    {"--data npy:X.npy,Y.npy --loss all --ranks 2 --resets R.npy --order O.npy", false, true, false, false, true},
    {"--data npy:X.npy,YL.npy --ranks 3 --lengths L.npy --order O.npy", true, false, false, true, true},
    {"--data npy:X.npy,Y.npy --loss all --ranks 4 --reduction library --lengths L.npy --loss-weights W.npy", true, false, true,
     false, false},
    /* rows that all have K T steps: speculative passes, and ranks that share the steps */
    {"--data npy:X.npy,Y.npy --loss all --forward-chunks 4 --warm-up 2 --tolerance 0 --loss-weights W.npy", false, false, true,
     false, false},
    {"--data npy:X.npy,YL.npy --forward-chunks 3 --warm-up 1 --tolerance 0 --resets R.npy --order O.npy", false, true, false,
     true, true},
    {"--data npy:X.npy,Y.npy --loss all --ranks 2 --split time --loss-weights W.npy --order O.npy", false, false, true, false,
     true},
    {"--data npy:X.npy,YL.npy --ranks 3 --split time --resets R.npy --order O.npy", false, true, false, true, true},
    {"--data npy:X.npy,Y.npy --loss all --ranks 4 --split batch:2,time:2 --resets R.npy", false, true, false, false, false},
    {"--data npy:X.npy,YL.npy --ranks 2 --split time --forward-chunks 4 --warm-up 2 --tolerance 0", false, false, false, true,
     false},
};

static void test_steps(void **state) {
  (void)state;
  static const int64_t windows[] = {2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2};
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; ++i) {
    if (!gpu || i % 4 > 1) { /* an emulation takes long */
      check_run(&ways[i], windows[i]);
    }
  }
  if (!gpu) {
    check_run(&ways[0], 1);
    check_run(&ways[2], 3);
  }
}

/* Streams of a bitstream, which a GPU would make by itself, two blocks of samples in a batch and one in the last batch of an epoch:
 * every number of ranks has the same bits, and a run goes on with other ranks than those that have begun it. */
#define TRAIN_MANY "train gru --seq-len 6 --samples 100 --loss all --hidden 3 --layers 2 --batch 24 --stateful --bptt 3"

static void test_ranks(void **state) {
  (void)state;
  assert_runs(TRAIN_MANY " --iterations 11 --ranks 1 --save-weights whole.safetensors %s", device);
  assert_runs(TRAIN_MANY " --iterations 11 --ranks 2 --save-weights w.safetensors %s", device);
  assert_equal_files("w.safetensors", "whole.safetensors");
  for (int stop = 2; stop < 9; stop += gpu ? 4 : 1) {
    assert_runs(TRAIN_MANY " --iterations %d --ranks %d --checkpoint k%d %s", stop, 1 + stop % 2, stop, device);
    assert_runs(TRAIN_MANY " --iterations 11 --ranks %d --checkpoint k%d --resume --save-weights w.safetensors %s", 2 - stop % 2,
                stop, device);
    assert_equal_files("w.safetensors", "whole.safetensors");
  }
}

/* Trains with an evaluation after each epoch, so that training goes on behind one, and compares the losses of held-out streams with
 * `eval`. The last of their batches is smaller. */
static void check_held_out(const char *options) {
  json_t *train = run_json("train gru --data npy:X.npy,Y.npy --loss all --hidden 3 --stateful --epochs 2 --dtype f64 "
                           "--validation 0.6 --batch 2 --bptt 2 --order E.npy %s --save-weights c.safetensors --json %s",
                           options, device);
  json_t *eval = run_json("eval gru --data npy:X.npy,Y.npy --batch 2 --stateful --validation 0.6 --weights c.safetensors --json");
  const json_t *second = json_array_get(json_object_get(train, "rows"), 1);
  const double difference = fabs(get_real(second, "validation_loss") - get_real(eval, "loss"));
  if (!(difference < 1e-14)) {
    fail_msg("%s: the losses of held-out streams differ by %g", options, difference);
  }
  json_decref(train);
  json_decref(eval);
}

/* One window has the bits of a run without --bptt; the losses of held-out streams do not depend on the windows, which the gradient
 * alone goes back through, nor on whole rows, in which evaluation has the earlier batches too. */
static void test_evaluation(void **state) {
  (void)state;
  assert_runs("train gru --data npy:X.npy,Y.npy --loss all --hidden 3 --batch 4 --stateful --iterations 5 --save-weights "
              "a.safetensors %s",
              device);
  assert_runs(
      "train gru --data npy:X.npy,Y.npy --loss all --hidden 3 --batch 4 --stateful --iterations 5 --save-weights b.safetensors "
      "--bptt 1 %s",
      device);
  assert_equal_files("a.safetensors", "b.safetensors");
  json_t *train = run_json("train gru --data npy:X.npy,Y.npy --loss all --hidden 3 --batch 2 --stateful --epochs 2 --dtype f64 "
                           "--validation 0.34 --bptt 3 --save-weights c.safetensors --json %s",
                           device);
  json_t *eval =
      run_json("eval gru --data npy:X.npy,Y.npy --batch 2 --stateful --validation 0.34 --weights c.safetensors --json");
  const json_t *second = json_array_get(json_object_get(train, "rows"), 1);
  assert_true(fabs(get_real(second, "validation_loss") - get_real(eval, "loss")) < 1e-14);
  json_decref(train);
  json_decref(eval);
  write_array("E.npy", BPPSA_I64, (int64_t[]){3, 0, 2, 1}, 1, (int64_t[]){4});
  check_held_out("");
  check_held_out("--forward-chunks 3 --warm-up 1 --tolerance 0");
  check_held_out("--ranks 2 --split time");
  check_held_out("--ranks 2 --split batch");
}

#define RESUMED "train gru --loss all --hidden 3 --layers 2 --validation 0.2 --lr 0.05 --stateful --batch 2"

/* A resumed run ends with the bits of one that was not interrupted, wherever in an epoch it was. */
static void test_resume(void **state) {
  (void)state;
  static const char *const more[] = {"--data npy:X.npy,Y.npy --bptt 2", "--data npy:X.npy,Y.npy --bptt 3 --lengths L.npy",
                                     "--data npy:X.npy,Y.npy --bptt 4 --resets R.npy --reset-state learned --dropout 0.5",
                                     "--data npy:X.npy,Y.npy --bptt 3 --forward-chunks 3 --warm-up 1 --resets R.npy",
                                     "--data npy:X.npy,Y.npy --bptt 2 --ranks 2 --split time"};
  for (int k = 0; k < (int)(sizeof more / sizeof more[0]); ++k) {
    assert_runs(RESUMED " %s --iterations 12 --log a.jsonl --save-weights whole.safetensors %s", more[k], device);
    for (int64_t stop = gpu ? 2 : 1; stop < 7; stop += gpu ? 3 : 1) {
      assert_runs(RESUMED " %s --iterations %d --checkpoint r%d-%d --log b.jsonl %s", more[k], (int)stop, k, (int)stop, device);
      assert_runs(RESUMED
                  " %s --iterations 12 --checkpoint r%d-%d --resume --threads 2 --log b.jsonl --save-weights w.safetensors %s",
                  more[k], k, (int)stop, device);
      assert_equal_files("w.safetensors", "whole.safetensors");
      assert_int_equal(remove("b.jsonl"), 0);
    }
  }
  assert_fails(2, "checkpoint in r0-2", RESUMED " --data npy:X.npy,Y.npy --iterations 13 --checkpoint r0-2 --resume %s", device);
  assert_fails(2, "checkpoint in r0-2: bptt 2 (oldest state first) contradicts this run, which has 3",
               RESUMED " --data npy:X.npy,Y.npy --iterations 13 --checkpoint r0-2 --resume --bptt 3 %s", device);
}

static void test_refused(void **state) {
  (void)state;
  assert_fails(2, "--bptt: given without --stateful", "train rnn --bptt 2 --iterations 1");
  assert_fails(2, "--bptt: '0', expected a whole number from 1", "train rnn --bptt 0 --stateful --iterations 1");
  assert_fails(2, "--bptt: 4, more than the 3 batches of an epoch", TRAIN " %s --bptt 4", ways[0].options);
  assert_fails(2, "--bptt: 2 given beside --pack, whose rows begin anew", TRAIN " %s --bptt 2 --pack 9", ways[2].options);
  assert_fails(2, "--bptt: 2 given beside --lengths and a pass whose samples have one length",
               TRAIN " %s --bptt 2 --ranks 2 --split time", ways[2].options);
  assert_fails(2, "--bptt: 2 given beside --lengths and a pass whose samples have one length",
               TRAIN " %s --bptt 2 --forward speculative", ways[2].options);
  assert_fails(2, "--bptt: 2 given beside --reset-state learned and a pass whose samples have one length",
               TRAIN " %s --bptt 2 --ranks 2 --split batch:1,time:2 --resets R.npy --reset-state learned", ways[0].options);
  assert_fails(2, "--bptt: 2000000000 batches of 5 steps, expected at most 2147483647", TRAIN " %s --bptt 2000000000",
               ways[0].options);
  /* what is found in an earlier batch is named as its sample */
  assert_fails(1, "time step 2, sample 0 of the batch (data set index 0)",
               "train rnn --nonlinearity relu --data npy:X.npy,Y.npy --loss all --hidden 3 --batch 4 --optimizer sgd --lr 1e37 "
               "--stateful --iterations 6 --bptt 2 --json");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_ranks),
                                     cmocka_unit_test(test_evaluation), cmocka_unit_test(test_resume),
                                     cmocka_unit_test(test_refused)};
  const char *name = getenv("BPPSA_TEST_DEVICE");
  static char text[64];
  bppsa_device_destroy(test_device(1)); /* skips the test where the device is missing */
  snprintf(text, sizeof text, "--device %s", name == NULL ? "cpu" : strcmp(name, "cuda") == 0 ? "cuda:0" : name);
  device = text;
  gpu = name != NULL;
  return cmocka_run_group_tests(tests, enter, leave_directory);
}

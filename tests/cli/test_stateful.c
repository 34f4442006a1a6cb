/* --stateful: pieces of streams, evaluated one behind the other, have the losses of whole streams; a training step begins with the
 * states in which the one before has ended; kill and resumption of packed and unpacked runs; ranks that share the batch have the
 * bits of one, and ranks that share the steps the losses; what is refused. BPPSA_TEST_DEVICE names the device. */
#include "tests/cli/batch_files.h"

#include <math.h>

#include "tests/support/support.h"

static const char *device; /* "--device cuda" */
static bool gpu;

enum { STREAMS = 4, PIECES = 3, STEPS = 5, LONG = PIECES * STEPS, SET = STREAMS * PIECES };

static void save(const char *path, bppsa_dtype dtype, void *data, int32_t ndim, const int64_t *shape) {
  const bppsa_view view = bppsa_view_make(data, dtype, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
}

/* Whole streams [4][15], and their pieces [12][5]: piece k of stream i is sample 4 k + i. */
static int enter(void **state) {
  const int status = enter_directory(state);
  static double x[STREAMS][LONG], pieces[SET][STEPS], w[STREAMS][LONG], w_pieces[SET][STEPS];
  static int64_t y[STREAMS][LONG], y_pieces[SET][STEPS], lengths[SET];
  static uint8_t r[STREAMS][LONG], r_pieces[SET][STEPS];
  for (int i = 0; i < STREAMS * LONG; ++i) {
    const int stream = i / LONG, t = i % LONG, piece = t / STEPS * STREAMS + stream;
    x[stream][t] = pieces[piece][t % STEPS] = bppsa_random_double(1, BPPSA_STREAM_TEST, (uint64_t)i) * 4 - 2;
    w[stream][t] = w_pieces[piece][t % STEPS] = i % 6 == 1 ? 0 : 0.5 + i % 4;
    y[stream][t] = y_pieces[piece][t % STEPS] = i * 7 % 3;
    r[stream][t] = r_pieces[piece][t % STEPS] = i % 8 == 7;
    lengths[piece] = 1 + piece % STEPS;
  }
  save("X.npy", BPPSA_F64, x, 3, (int64_t[]){STREAMS, LONG, 1});
  save("Y.npy", BPPSA_I64, y, 2, (int64_t[]){STREAMS, LONG});
  save("W.npy", BPPSA_F64, w, 2, (int64_t[]){STREAMS, LONG});
  save("R.npy", BPPSA_U8, r, 2, (int64_t[]){STREAMS, LONG});
  save("PX.npy", BPPSA_F64, pieces, 3, (int64_t[]){SET, STEPS, 1});
  save("PY.npy", BPPSA_I64, y_pieces, 2, (int64_t[]){SET, STEPS});
  save("PW.npy", BPPSA_F64, w_pieces, 2, (int64_t[]){SET, STEPS});
  save("PR.npy", BPPSA_U8, r_pieces, 2, (int64_t[]){SET, STEPS});
  save("PL.npy", BPPSA_I64, lengths, 1, (int64_t[]){SET});
  return status;
}

static double loss_of(const char *command, const char *more) {
  json_t *document = run_json("%s %s %s --json", command, more, device);
  const double loss = get_real(document, "loss");
  json_decref(document);
  return loss;
}

static void test_eval(void **state) {
  (void)state;
  static const char *const cells[] = {"rnn", "gru", "lstm"};
  for (int k = 0; k < 6; ++k) {
    char whole[256], pieces[256];
    const char *cell = cells[k % 3], *of_whole = k < 3 ? "" : "--resets R.npy --loss-weights W.npy",
               *of_pieces = k < 3 ? "" : "--resets PR.npy --loss-weights PW.npy";
    assert_runs("train %s --data npy:X.npy,Y.npy --loss all --hidden 4 --layers 2 --batch 4 --dtype f64 --iterations 3 --lr 0.05 "
                "--save-weights V.safetensors %s",
                cell, device);
    snprintf(whole, sizeof whole, "eval %s --data npy:X.npy,Y.npy --batch 4 --weights V.safetensors %s", cell, of_whole);
    snprintf(pieces, sizeof pieces, "eval %s --data npy:PX.npy,PY.npy --batch 4 --weights V.safetensors %s", cell, of_pieces);
    const double loss = loss_of(whole, "");
    assert_true(fabs(loss_of(pieces, "--stateful") - loss) < 1e-14);
    assert_true(fabs(loss_of(pieces, "--stateful --forward speculative --forward-chunks 2 --tolerance 0") - loss) < 1e-14);
    assert_true(fabs(loss_of(pieces, "") - loss) > 1e-6);
    assert_true(fabs(loss_of(pieces, "--stateful --batch 3") - loss) > 1e-9); /* other pieces follow each other */
    assert_true(fabs(loss_of(pieces, "--stateful --lengths PL.npy") - loss_of(pieces, "--lengths PL.npy")) > 1e-9);
  }
}

#define TRAIN_LSTM "train lstm --data npy:PX.npy,PY.npy --loss all --hidden 3 --batch 4 --dtype f64 --lr 0.3 --stateful"

enum { HIDDEN = 3 };

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

/* h and c of an LSTM behind so many steps of x [steps], by the equations. */
static void walk(const bppsa_safetensors *weights, int64_t steps, const double *x, double h[HIDDEN], double c[HIDDEN]) {
  const bppsa_view *wi = tensor(weights, "lstm.weight_ih_l0"), *wh = tensor(weights, "lstm.weight_hh_l0"),
                   *bi = tensor(weights, "lstm.bias_ih_l0"), *bh = tensor(weights, "lstm.bias_hh_l0");
  double gates[4 * HIDDEN];
  for (int64_t t = 0; t < steps; ++t) {
    for (int64_t g = 0; g < 4 * HIDDEN; ++g) {
      gates[g] = bppsa_view_get(bi, g) + bppsa_view_get(bh, g) + bppsa_view_get(wi, g) * x[t];
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

/* Writes the second batch as files of `grad`, which begin with the states that the first batch of the weights V0 ends with. */
static void save_second(bool ragged) {
  double halves[2][STREAMS][HIDDEN] = {{{0}}}, second[STEPS][STREAMS];
  int64_t labels[STEPS][STREAMS], ends[STREAMS];
  bppsa_buffer x = {0}, y = {0}, lengths = {0};
  bppsa_safetensors *weights = load("V0.safetensors");
  assert_int_equal(bppsa_npy_load("PX.npy", &x), BPPSA_OK);
  assert_int_equal(bppsa_npy_load("PY.npy", &y), BPPSA_OK);
  assert_int_equal(bppsa_npy_load("PL.npy", &lengths), BPPSA_OK);
  const double *values = x.view.data;
  const int64_t *classes = y.view.data, *steps = lengths.view.data;
  for (int64_t s = 0; s < STREAMS; ++s) {
    walk(weights, ragged ? steps[s] : STEPS, values + s * STEPS, halves[0][s], halves[1][s]);
    ends[s] = ragged ? steps[STREAMS + s] : STEPS;
    for (int64_t t = 0; t < STEPS; ++t) {
      second[t][s] = values[(STREAMS + s) * STEPS + t];
      labels[t][s] = classes[(STREAMS + s) * STEPS + t];
    }
  }
  save("h.npy", BPPSA_F64, halves[0], 3, (int64_t[]){1, STREAMS, HIDDEN});
  save("c.npy", BPPSA_F64, halves[1], 3, (int64_t[]){1, STREAMS, HIDDEN});
  save("x2.npy", BPPSA_F64, second, 3, (int64_t[]){STEPS, STREAMS, 1});
  save("y2.npy", BPPSA_I64, labels, 2, (int64_t[]){STEPS, STREAMS});
  save("l2.npy", BPPSA_I64, ends, 1, (int64_t[]){STREAMS});
  bppsa_safetensors_destroy(weights);
  bppsa_buffer_free(&x);
  bppsa_buffer_free(&y);
  bppsa_buffer_free(&lengths);
}

/* The second step begins with the states in which the first pass, with the weights before its update, has ended: `grad` with these
 * states as h0 and c0, and the updated weights, has the second step's loss and gradient, to which the states are constants. Of
 * samples with lengths the states are those at their ends. */
static void test_second_step(void **state) {
  (void)state;
  static const char *const names[] = {"lstm.weight_ih_l0", "lstm.weight_hh_l0", "lstm.bias_ih_l0",
                                      "lstm.bias_hh_l0",   "linear.weight",     "linear.bias"};
  for (int k = 0; k < 2; ++k) {
    const char *lengths = k == 0 ? "" : "--lengths PL.npy";
    double squares = 0;
    assert_runs(TRAIN_LSTM " %s --iterations 0 --save-weights V0.safetensors %s", lengths, device);
    assert_runs(TRAIN_LSTM " %s --iterations 1 --save-weights V1.safetensors %s", lengths, device);
    json_t *train = run_json(TRAIN_LSTM " %s --iterations 2 --backward bp --json %s", lengths, device);
    const json_t *row = json_array_get(json_object_get(train, "rows"), 1);
    save_second(k == 1);
    assert_runs("grad lstm --weights V1.safetensors --input x2.npy --labels y2.npy --h0 h.npy --c0 c.npy %s --backward bp --out "
                "G.safetensors",
                k == 0 ? "" : "--lengths l2.npy");
    bppsa_safetensors *gradients = load("G.safetensors");
    for (int i = 0; i < 6; ++i) {
      const bppsa_view *g = tensor(gradients, names[i]);
      for (int64_t j = 0; j < bppsa_view_count(g); ++j) {
        squares += bppsa_view_get(g, j) * bppsa_view_get(g, j);
      }
    }
    assert_true(fabs(bppsa_view_get(tensor(gradients, "loss"), 0) - get_real(row, "loss")) < 1e-14);
    assert_true(fabs(sqrt(squares) - get_real(row, "grad_norm")) < 1e-14);
    bppsa_safetensors_destroy(gradients);
    json_decref(train);
  }
}

#define TRAIN "train gru --data npy:PX.npy,PY.npy --loss all --hidden 3 --layers 2 --validation 0.25 --lr 0.05 --stateful"

/* A resumed run ends with the bits of one that was not interrupted, wherever in an epoch it was, with resets, weights, samples of
 * their own lengths in rows, and with a last batch of fewer samples. */
static void test_resume(void **state) {
  (void)state;
  static const char *const ways[] = {"--batch 2", "--batch 4 --resets PR.npy --loss-weights PW.npy",
                                     "--batch 2 --resets PR.npy --lengths PL.npy --pack 9",
                                     "--batch 2 --lengths PL.npy --dtype f64 --algorithm blelloch"};
  for (int k = 0; k < 4; ++k) {
    assert_runs(TRAIN " %s --iterations 11 --log a.jsonl --save-weights whole.safetensors %s", ways[k], device);
    for (int64_t stop = 1; stop < 6; stop += gpu ? 3 : 1) {
      assert_runs(TRAIN " %s --iterations %d --checkpoint r%d-%d --log b.jsonl %s", ways[k], (int)stop, k, (int)stop, device);
      assert_runs(TRAIN
                  " %s --iterations 11 --checkpoint r%d-%d --resume --threads 2 --log b.jsonl --save-weights w.safetensors %s",
                  ways[k], k, (int)stop, device);
      assert_equal_files("w.safetensors", "whole.safetensors");
      assert_int_equal(remove("b.jsonl"), 0);
    }
  }
  assert_fails(
      2, "checkpoint in r0-4",
      "train gru --data npy:PX.npy,PY.npy --loss all --hidden 3 --layers 2 --validation 0.25 --lr 0.05 --no-shuffle --batch 2 "
      "--iterations 12 --checkpoint r0-4 --resume %s",
      device);
}

/* Streams of a bitstream: in an epoch two batches of 40 samples, which are three blocks, and one of 16, whose only block is another
 * rank's. */
#define TRAIN_MANY "train lstm --seq-len 6 --samples 120 --loss all --hidden 3 --layers 2 --batch 40 --validation 0.2 --stateful"

/* Any number of ranks has the bits of one, with resets and weights; a run goes on with other ranks than those that have begun it.
 * What ranks have learned and lost is that of a run without them, within rounding, as the losses of an evaluation are. */
static void test_ranks(void **state) {
  (void)state;
  const char *where = gpu ? "--device cuda:0" : "";
  assert_runs(TRAIN_MANY " --iterations 7 --ranks 1 --log a.jsonl --save-weights whole.safetensors %s", where);
  for (int ranks = 2; ranks <= 3; ++ranks) {
    assert_runs(TRAIN_MANY " --iterations 7 --ranks %d --log b.jsonl --save-weights w.safetensors %s", ranks, where);
    assert_equal_files("w.safetensors", "whole.safetensors");
    assert_int_equal(remove("b.jsonl"), 0);
    for (int stop = 1; stop < 4; stop += gpu ? 2 : 1) {
      assert_runs(TRAIN_MANY " --iterations %d --ranks %d --checkpoint k%d-%d %s", stop, ranks, ranks, stop, where);
      assert_runs(TRAIN_MANY " --iterations 7 --ranks %d --checkpoint k%d-%d --resume --save-weights w.safetensors %s", 4 - ranks,
                  ranks, stop, where);
      assert_equal_files("w.safetensors", "whole.safetensors");
    }
  }
  json_t *ranked = run_json(TRAIN_MANY " --epochs 2 --ranks 3 --dtype f64 --json %s", where),
         *alone = run_json(TRAIN_MANY " --epochs 2 --dtype f64 --json %s", where);
  static const char *const keys[] = {"loss", "grad_norm", "validation_loss"};
  for (int i = 0; i < 6; ++i) {
    const json_t *one = json_array_get(json_object_get(ranked, "rows"), (size_t)(i / 3)),
                 *other = json_array_get(json_object_get(alone, "rows"), (size_t)(i / 3));
    assert_true(fabs(get_real(one, keys[i % 3]) - get_real(other, keys[i % 3])) < 1e-12);
  }
  json_decref(ranked);
  json_decref(alone);
  char eval[256];
  snprintf(eval, sizeof eval, "eval lstm --seq-len 6 --samples 100 --stateful --dtype f64 --weights whole.safetensors %s", where);
  const double loss = loss_of(eval, "--batch 40");
  for (int ranks = 1; ranks <= 3; ++ranks) {
    char more[32];
    snprintf(more, sizeof more, "--ranks %d --batch 40", ranks);
    assert_true(fabs(loss_of(eval, more) - loss) < 1e-14);
    snprintf(more, sizeof more, "--ranks %d --batch 3", ranks); /* a sample for each rank */
    assert_true(fabs(loss_of(eval, more) - loss_of(eval, "--batch 3")) < 1e-14);
  }
  assert_true(fabs(loss_of(eval, "--batch 3") - loss) > 1e-9);
}

/* Two documents of training have the same numbers, but for roundings. */
static void assert_same_training(json_t *a, json_t *b) {
  static const char *const keys[] = {"loss", "grad_norm", "validation_loss"};
  const size_t count = json_array_size(json_object_get(a, "rows"));
  assert_true(count > 0 && count == json_array_size(json_object_get(b, "rows")));
  for (size_t i = 0; i < 3 * count; ++i) {
    const json_t *one = json_array_get(json_object_get(a, "rows"), i / 3),
                 *other = json_array_get(json_object_get(b, "rows"), i / 3);
    assert_true(fabs(get_real(one, keys[i % 3]) - get_real(other, keys[i % 3])) < 1e-12);
  }
  json_decref(a);
  json_decref(b);
}

/* Ranks that share the steps, and both steps and samples: the losses and gradients of a run without them, with resets, groups of
 * samples and speculative passes; a run that was interrupted ends with the bits of one that was not; evaluation. */
static void test_time(void **state) {
  (void)state;
  static const char *const ways[] = {"--ranks 2 --split time --resets MR.npy", "--ranks 3 --split time --micro-batches 3",
                                     "--ranks 4 --split time:2,batch:2 --resets MR.npy",
                                     "--ranks 2 --split time --forward-chunks 3 --warm-up 1 --tolerance 0",
                                     "--ranks 7 --split time --algorithm blelloch --resets MR.npy"};
  static uint8_t resets[120 * 6];
  for (int i = 0; i < 120 * 6; ++i) {
    resets[i] = i % 11 == 3;
  }
  save("MR.npy", BPPSA_U8, resets, 2, (int64_t[]){120, 6});
  const char *where = gpu ? "--device cuda:0" : "";
  for (size_t k = 0; k < sizeof ways / sizeof *ways; ++k) {
    const char *mask = strstr(ways[k], "--resets") != NULL ? "--resets MR.npy" : "";
    if (gpu && k % 2 == 1) { /* an emulation takes long */
      continue;
    }
    assert_same_training(run_json(TRAIN_MANY " --epochs 2 --dtype f64 --json %s %s", ways[k], where),
                         run_json(TRAIN_MANY " --epochs 2 --dtype f64 --json %s %s", mask, where));
    assert_runs(TRAIN_MANY " --iterations 7 %s --log t.jsonl --save-weights whole.safetensors %s", ways[k], where);
    for (int stop = 1; stop < 4; stop += gpu ? 2 : 1) {
      assert_runs(TRAIN_MANY " --iterations %d %s --checkpoint t%d-%d %s", stop, ways[k], (int)k, stop, where);
      assert_runs(TRAIN_MANY " --iterations 7 %s --checkpoint t%d-%d --resume --save-weights w.safetensors %s", ways[k], (int)k,
                  stop, where);
      assert_equal_files("w.safetensors", "whole.safetensors");
    }
  }
  char eval[256];
  snprintf(eval, sizeof eval, "eval lstm --seq-len 6 --samples 100 --stateful --dtype f64 --weights whole.safetensors %s", where);
  const double loss = loss_of(eval, "--batch 40");
  assert_true(fabs(loss_of(eval, "--batch 40 --ranks 3 --split time") - loss) < 1e-14);
  assert_true(fabs(loss_of(eval, "--batch 40 --ranks 4 --split time:2,batch:2") - loss) < 1e-14);
  assert_true(fabs(loss_of(eval, "--batch 3") - loss) > 1e-9);
}

static void test_refused(void **state) {
  (void)state;
  static const char *const splits[] = {"gpipe", "layers"};
  for (int k = 0; k < 2; ++k) {
    char sentence[160];
    snprintf(sentence, sizeof sentence, "--stateful: given beside --split %s, where passes begin with states of 0", splits[k]);
    assert_fails(2, sentence, TRAIN " --batch 2 --iterations 1 --ranks 2 --split %s", splits[k]);
  }
  assert_fails(2, "more than the 2 samples of a batch", TRAIN " --batch 2 --iterations 1 --ranks 3");
  assert_fails(2, "--stateful: given beside --bidirectional, whose reverse direction has no past",
               TRAIN " --batch 2 --iterations 1 --bidirectional");
  json_t *train = run_json(TRAIN " --batch 2 --iterations 2 --json %s", device);
  const json_t *config = json_object_get(train, "config");
  assert_true(json_is_true(json_object_get(config, "stateful")));
  assert_string_equal(get_text(config, "order"), "data");
  json_decref(train);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_eval),   cmocka_unit_test(test_second_step),
                                     cmocka_unit_test(test_resume), cmocka_unit_test(test_ranks),
                                     cmocka_unit_test(test_time),   cmocka_unit_test(test_refused)};
  const char *name = getenv("BPPSA_TEST_DEVICE");
  static char text[64];
  bppsa_device_destroy(test_device(1)); /* skips the test where the device is missing */
  snprintf(text, sizeof text, "--device %s", name != NULL ? name : "cpu");
  device = text;
  gpu = name != NULL;
  return cmocka_run_group_tests(tests, enter, leave_directory);
}

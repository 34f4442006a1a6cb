/* --no-bias, --bidirectional, --lengths, --dropout, and `grad` with a gradient of the states instead of a loss, against a
 * recurrence written out here. */
#include "tests/cli/batch_files.h"

#include <math.h>

enum { HIDDEN = 3, STEPS = 6, SAMPLES = 4 };

#define TRAIN "train rnn --seq-len 6 --samples 32 --hidden 3 --batch 4 --dtype f64 --no-bias"

static double x[STEPS][SAMPLES], g[STEPS][SAMPLES][HIDDEN];
static int64_t lengths[SAMPLES] = {3, 6, 1, 4};
static const int64_t *used; /* the lengths of the samples, or NULL */

static void save(const char *path, void *data, int32_t ndim, const int64_t *shape) {
  const bppsa_view view = bppsa_view_make(data, BPPSA_F64, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
}

static int enter(void **state) {
  const int status = enter_directory(state);
  for (int i = 0; i < STEPS * SAMPLES; ++i) {
    x[i / SAMPLES][i % SAMPLES] = bppsa_random_double(1, BPPSA_STREAM_TEST, (uint64_t)i) - 0.5;
    for (int j = 0; j < HIDDEN; ++j) {
      g[i / SAMPLES][i % SAMPLES][j] = bppsa_random_double(2 + (uint64_t)j, BPPSA_STREAM_TEST, (uint64_t)i) - 0.5;
    }
  }
  save("X.npy", x, 3, (int64_t[]){STEPS, SAMPLES, 1});
  save("G.npy", g, 3, (int64_t[]){STEPS, SAMPLES, HIDDEN});
  save("GL.npy", g[STEPS - 1], 2, (int64_t[]){SAMPLES, HIDDEN});
  const int64_t samples = SAMPLES;
  const bppsa_view view = bppsa_view_make(lengths, BPPSA_I64, 1, &samples);
  assert_int_equal(bppsa_npy_save("L.npy", &view), BPPSA_OK);
  write_labels("Y.npy", 1, (int64_t[]){SAMPLES}, -1, 0);
  return status;
}

static bppsa_safetensors *load(const char *path) {
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_load(path, &file), BPPSA_OK);
  return file;
}

/* Σ g · h over all steps of every sample, or over its last, of an RNN without biases. The gradient of the last states stands in
 * the last row of g. */
static double weighed(const bppsa_safetensors *file, bool all) {
  const double *ih = bppsa_safetensors_find(file, "rnn.weight_ih_l0")->data,
               *hh = bppsa_safetensors_find(file, "rnn.weight_hh_l0")->data;
  double sum = 0;
  for (int b = 0; b < SAMPLES; ++b) {
    const int64_t steps = used != NULL ? used[b] : STEPS;
    double h[HIDDEN] = {0};
    for (int64_t t = 0; t < steps; ++t) {
      double next[HIDDEN];
      for (int i = 0; i < HIDDEN; ++i) {
        next[i] = ih[i] * x[t][b];
        for (int j = 0; j < HIDDEN; ++j) {
          next[i] += hh[i * HIDDEN + j] * h[j];
        }
        next[i] = tanh(next[i]);
        sum += all ? g[t][b][i] * next[i] : t == steps - 1 ? g[STEPS - 1][b][i] * next[i] : 0;
      }
      memcpy(h, next, sizeof h);
    }
  }
  return sum;
}

static double slope(const bppsa_safetensors *file, double *value, bool all) {
  const double kept = *value, step = 1e-5;
  *value = kept + step;
  const double up = weighed(file, all);
  *value = kept - step;
  const double down = weighed(file, all);
  *value = kept;
  return (up - down) / (2 * step);
}

/* The gradients of weights and inputs are the recurrence's difference quotients; by ranks too. */
static void test_grad_output(void **state) {
  (void)state;
  static const char *const ways[] = {"--backward bp", "--algorithm blelloch", "--chunks 2", "--ranks 2"};
  assert_runs(TRAIN " --iterations 0 --save-weights W.safetensors");
  bppsa_safetensors *weights = load("W.safetensors");
  for (int k = 0; k < 16; ++k) {
    const bool all = k % 2 == 0;
    used = k < 8 ? NULL : lengths;
    json_t *document =
        run_json("grad rnn --weights W.safetensors --input X.npy --grad-output %s %s %s --out O.safetensors --json",
                 all ? "G.npy" : "GL.npy", ways[k / 2 % 4], k < 8 ? "" : "--lengths L.npy");
    assert_true(json_is_true(json_object_get(document, "lengths")) == (k >= 8));
    assert_true(json_is_null(json_object_get(document, "loss")) && json_is_null(json_object_get(document, "classes")));
    assert_string_equal(get_text(document, "objective"), "none");
    assert_string_equal(get_text(document, "loss_on"), all ? "all" : "last");
    assert_true(json_is_false(json_object_get(document, "bias")));
    json_decref(document);
    bppsa_safetensors *found = load("O.safetensors");
    assert_int_equal(bppsa_safetensors_count(found), 3); /* two weights, the input: no head, no loss */
    for (int64_t i = 0; i < 2; ++i) {
      static const char *const names[] = {"rnn.weight_ih_l0", "rnn.weight_hh_l0"};
      const bppsa_view *w = bppsa_safetensors_find(weights, names[i]), *gradient = bppsa_safetensors_find(found, names[i]);
      for (int64_t e = 0; e < bppsa_view_count(w); ++e) {
        assert_true(fabs(slope(weights, (double *)w->data + e, all) - bppsa_view_get(gradient, e)) < 1e-9);
      }
    }
    const bppsa_view *dx = bppsa_safetensors_find(found, "input");
    for (int64_t e = 0; e < STEPS * SAMPLES; ++e) {
      assert_true(fabs(slope(weights, &x[e / SAMPLES][e % SAMPLES], all) - bppsa_view_get(dx, e)) < 1e-9);
    }
    bppsa_safetensors_destroy(found);
  }
  bppsa_safetensors_destroy(weights);
  run_result text = run("grad rnn --weights W.safetensors --input X.npy --grad-output G.npy --out O.safetensors");
  assert_non_null(strstr(text.out, "no biases, loss all"));
  assert_non_null(strstr(text.out, "\n\nwritten to O.safetensors\n"));
  assert_null(strstr(text.out, "nan"));
  release(&text);
}

/* Training, evaluation and gradients without biases; a resumed run ends with the bits of one that was not interrupted. */
static void test_no_bias(void **state) {
  (void)state;
  assert_runs(TRAIN " --iterations 7 --save-weights whole.safetensors --threads 2");
  assert_runs(TRAIN " --iterations 4 --checkpoint d");
  assert_runs(TRAIN " --iterations 7 --checkpoint d --resume --save-weights w.safetensors");
  assert_equal_files("w.safetensors", "whole.safetensors");
  bppsa_safetensors *file = load("w.safetensors");
  assert_int_equal(bppsa_safetensors_count(file), 4);
  assert_null(bppsa_safetensors_find(file, "rnn.bias_ih_l0"));
  assert_non_null(bppsa_safetensors_find(file, "linear.bias"));
  bppsa_safetensors_destroy(file);
  json_t *train = run_json(TRAIN " --iterations 7 --validation 0.25 --save-weights V.safetensors --json");
  assert_int_equal(get_integer(train, "parameters"), 3 + 9 + 30 + 10);
  json_t *eval = run_json("eval rnn --weights V.safetensors --seq-len 6 --samples 32 --validation 0.25 --json");
  assert_true(get_real(eval, "loss") == get_real(json_object_get(train, "final"), "validation_loss"));
  json_decref(eval);
  json_decref(train);
  assert_runs("train rnn --seq-len 6 --samples 32 --hidden 3 --batch 4 --dtype f64 --iterations 2 --checkpoint e");
  assert_fails(2, "bias missing contradicts this run, which has false", TRAIN " --iterations 3 --checkpoint e --resume");
}

enum { RAGGED_SAMPLES = 32 };

/* Writes lengths from 1 to 6, of which one may be another. */
static void save_lengths(int64_t at, int64_t other) {
  int64_t steps[RAGGED_SAMPLES];
  const int64_t count = RAGGED_SAMPLES;
  for (int64_t i = 0; i < count; ++i) {
    steps[i] = i == at ? other : 1 + (i * 7 + 3) % 6;
  }
  const bppsa_view view = bppsa_view_make(steps, BPPSA_I64, 1, &count);
  assert_int_equal(bppsa_npy_save("N.npy", &view), BPPSA_OK);
}

/* Training, evaluation and gradients of samples of their own lengths. A resumed run ends with the bits of one that was not
 * interrupted, also with other threads; ranks share the samples; every method has the same curve. */
static void test_lengths(void **state) {
  (void)state;
#define RAGGED "train gru --seq-len 6 --samples 32 --hidden 3 --batch 5 --dtype f64 --layers 2 --loss all --lengths N.npy"
  save_lengths(-1, 0);
  static const char *const ways[] = {"--backward bp", "--algorithm blelloch", "--chunks 2", "--ranks 2", "--forward auto"};
  double first = 0;
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; ++i) {
    json_t *train = run_json(RAGGED " %s --iterations 9 --validation 0.25 --save-weights V%zu.safetensors --json", ways[i], i);
    const double loss = get_real(json_object_get(train, "final"), "validation_loss");
    first = i == 0 ? loss : first;
    assert_true(loss > 0 && fabs(loss - first) < 1e-12);
    assert_true(json_is_true(json_object_get(json_object_get(train, "config"), "lengths")));
    assert_int_equal(json_array_size(json_object_get(train, "inputs")), 1); /* the lengths; bits have no file */
    json_t *eval = run_json("eval gru --weights V%zu.safetensors --seq-len 6 --samples 32 --validation 0.25 --lengths N.npy "
                            "--out P.npz --states --json",
                            i);
    assert_true(fabs(get_real(eval, "loss") - loss) < 1e-14);
    json_decref(eval);
    json_decref(train);
  }
  assert_runs(RAGGED " --iterations 9 --threads 3 --save-weights whole.safetensors");
  assert_runs(RAGGED " --iterations 4 --checkpoint r");
  assert_runs(RAGGED " --iterations 9 --checkpoint r --resume --threads 1 --save-weights w.safetensors");
  assert_equal_files("w.safetensors", "whole.safetensors");
  save_lengths(3, 6);
  assert_fails(2, "contradicts this run", RAGGED " --iterations 9 --checkpoint r --resume");
  save_lengths(3, 7);
  assert_fails(2, "N.npy: length 7 at [3], expected 1 .. 6, the steps of the inputs", RAGGED " --iterations 1");
  save_lengths(3, 2);
  assert_fails(2, "lengths of samples in a speculative forward pass", RAGGED " --iterations 1 --forward speculative");
  assert_fails(2, "--lengths: given beside ranks that share time, expected --split batch",
               RAGGED " --iterations 1 --ranks 2 --split time");
  assert_fails(2, "--lengths: given beside --split gpipe, whose samples have one length, expected none",
               RAGGED " --iterations 1 --ranks 2 --split gpipe");
  assert_fails(2, "did you mean --lengths?", RAGGED " --length N.npy");
  run_result text = run(RAGGED " --iterations 1");
  assert_non_null(strstr(text.out, "samples of their own lengths"));
  release(&text);
}

/* Other threads and a resumption leave out the same; ranks that share the samples too, up to the order of sums. Validation and eval
 * leave out nothing. */
static void test_dropout(void **state) {
  (void)state;
#define DROPPING "train rnn --seq-len 6 --samples 32 --hidden 3 --batch 5 --dtype f64 --layers 2 --dropout 0.25"
  assert_runs(DROPPING " --iterations 9 --threads 3 --save-weights whole.safetensors");
  assert_runs(DROPPING " --iterations 4 --checkpoint q");
  assert_runs(DROPPING " --iterations 9 --checkpoint q --resume --threads 1 --save-weights w.safetensors");
  assert_equal_files("w.safetensors", "whole.safetensors");
  double losses[3];
  for (int i = 0; i < 3; ++i) {
    static const char *const ways[] = {"--dropout 0.25", "--dropout 0.25 --ranks 2", "--dropout 0"};
    json_t *train = run_json(DROPPING " %s --iterations 9 --validation 0.25 --save-weights V.safetensors --json", ways[i]);
    json_t *eval = run_json("eval rnn --weights V.safetensors --seq-len 6 --samples 32 --validation 0.25 --json");
    losses[i] = get_real(json_object_get(train, "final"), "loss");
    assert_true(fabs(get_real(eval, "loss") - get_real(json_object_get(train, "final"), "validation_loss")) < 1e-14);
    assert_true((json_object_get(json_object_get(train, "config"), "dropout") != NULL) == (i < 2));
    json_decref(train);
    json_decref(eval);
  }
  assert_true(fabs(losses[0] - losses[1]) < 1e-12 && losses[0] != losses[2]);
  assert_fails(2, "dropout 0.25 contradicts this run, which has 0.5",
               DROPPING " --dropout 0.5 --iterations 9 --checkpoint q --resume");
  assert_fails(2, "dropout 0.25 contradicts this run, which has none",
               DROPPING " --dropout 0 --iterations 9 --checkpoint q --resume");
  assert_fails(2, "--dropout: 0.25 between the layers of a network that has one, expected --layers 2 or more",
               DROPPING " --layers 1 --iterations 1");
  assert_fails(2, "--dropout: given beside ranks that share time, expected --split batch",
               DROPPING " --iterations 1 --ranks 2 --split time");
  assert_fails(2, "--dropout: given beside --split gpipe, whose layers run without it, expected 0",
               DROPPING " --iterations 1 --ranks 2 --split gpipe");
  assert_fails(2, "--dropout: '1', expected a number, 0 or more and below 1", DROPPING " --dropout 1");
  run_result text = run(DROPPING " --iterations 1");
  assert_non_null(strstr(text.out, ", dropout 0.25"));
  release(&text);
}

/* Training in both directions, with lengths and dropout: threads and a resumption change no bit, ranks share the samples, weights
 * say the directions themselves, states and gradients have both. */
static void test_bidirectional(void **state) {
  (void)state;
#define BOTH "train gru --seq-len 6 --samples 32 --hidden 3 --batch 4 --dtype f64 --layers 2 --bidirectional"
#define RAGGED_BOTH BOTH " --dropout 0.25 --lengths N.npy"
  save_lengths(-1, 0);
  assert_runs(RAGGED_BOTH " --iterations 9 --threads 3 --save-weights whole.safetensors");
  assert_runs(RAGGED_BOTH " --iterations 4 --checkpoint b");
  assert_runs(RAGGED_BOTH " --iterations 9 --checkpoint b --resume --threads 1 --save-weights w.safetensors");
  assert_equal_files("w.safetensors", "whole.safetensors");
  assert_runs("train gru --seq-len 6 --samples 32 --hidden 3 --batch 4 --dtype f64 --layers 2 --iterations 2 --checkpoint c");
  assert_fails(2, "bidirectional missing contradicts this run, which has true", BOTH " --iterations 3 --checkpoint c --resume");
  static const char *const ways[] = {"--backward bp", "--algorithm blelloch", "--chunks 2", "--ranks 2", "--forward speculative"};
  double first = 0;
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; ++i) {
    json_t *train =
        run_noted_json(BOTH " %s --iterations 9 --validation 0.25 --save-weights V%zu.safetensors --json", ways[i], i);
    const double loss = get_real(json_object_get(train, "final"), "validation_loss");
    first = i == 0 ? loss : first;
    assert_true(loss > 0 && fabs(loss - first) < 1e-12);
    assert_true(json_is_true(json_object_get(json_object_get(train, "config"), "bidirectional")));
    assert_int_equal(get_integer(train, "parameters"), 2 * (9 + 27 + 18) + 2 * (54 + 27 + 18) + 60 + 10);
    json_t *eval = run_json("eval gru --weights V%zu.safetensors --seq-len 6 --samples 32 --validation 0.25 --json", i);
    assert_true(fabs(get_real(eval, "loss") - loss) < 1e-14);
    json_decref(eval);
    json_decref(train);
  }
  run_result text = run(BOTH " --iterations 1");
  assert_non_null(strstr(text.out, "layers 2, bidirectional, loss"));
  release(&text);
}

/* `grad` in both directions: the loss's difference quotients by inputs, and states of 2 L rows. */
static void test_bidirectional_grad(void **state) {
  (void)state;
#define GRAD "grad lstm --weights P.safetensors --input X.npy --labels Y.npy --h0 H.npy --out O.safetensors --json"
  const double step = 1e-5;
  double h0[4 * SAMPLES * HIDDEN] = {0.5, -0.25}, losses[2];
  assert_runs("train lstm --seq-len 6 --samples 32 --hidden 3 --batch 4 --dtype f64 --layers 2 --bidirectional --iterations 0 "
              "--save-weights P.safetensors");
  save("H.npy", h0, 3, (int64_t[]){4, SAMPLES, HIDDEN});
  double *const moved[] = {&x[2][1], &x[5][3], &h0[1], &h0[3 * SAMPLES * HIDDEN + 4]};
  for (int k = 0; k < 4; ++k) {
    const double kept = *moved[k];
    for (int side = 0; side < 2; ++side) {
      *moved[k] = kept + (side == 0 ? step : -step);
      save("X.npy", x, 3, (int64_t[]){STEPS, SAMPLES, 1});
      save("H.npy", h0, 3, (int64_t[]){4, SAMPLES, HIDDEN});
      json_t *document = run_json(GRAD);
      losses[side] = get_real(document, "loss");
      json_decref(document);
    }
    *moved[k] = kept;
    save("X.npy", x, 3, (int64_t[]){STEPS, SAMPLES, 1});
    save("H.npy", h0, 3, (int64_t[]){4, SAMPLES, HIDDEN});
    json_decref(run_json(GRAD));
    bppsa_safetensors *found = load("O.safetensors");
    assert_non_null(bppsa_safetensors_find(found, "lstm.weight_ih_l1_reverse"));
    const bppsa_view *gradient = bppsa_safetensors_find(found, k < 2 ? "input" : "h0");
    const int64_t at = k < 2 ? moved[k] - &x[0][0] : moved[k] - h0;
    assert_true(fabs((losses[0] - losses[1]) / (2 * step) - bppsa_view_get(gradient, at)) < 1e-9);
    bppsa_safetensors_destroy(found);
  }
  save("H.npy", h0, 3, (int64_t[]){2, SAMPLES, HIDDEN});
  assert_fails(2, "H.npy: shape [2, 4, 3], expected [2 L, B, H] = [4, 4, 3]", GRAD);
  assert_fails(2, "G.npy: shape [6, 4, 3], expected [T, B, 2 H] = [6, 4, 6]",
               "grad lstm --weights P.safetensors --input X.npy --grad-output G.npy --out O.safetensors");
}

static void test_bidirectional_requests(void **state) {
  (void)state;
  assert_fails(2, "--bidirectional: given beside ranks that share time, expected --split batch",
               BOTH " --iterations 1 --ranks 2 --split time");
  assert_fails(2, "--bidirectional: given beside --split gpipe, whose layers have one direction, expected none",
               BOTH " --iterations 1 --ranks 2 --split gpipe");
  assert_fails(2, "--bidirectional: given beside ranks that share time, expected --split batch",
               "plan gru --bidirectional --ranks 2 --split time");
  assert_fails(2, "--bidirectional: unknown option", "bench gru --bidirectional");
  assert_runs("train gru --seq-len 6 --samples 32 --hidden 3 --iterations 0 --save-weights B.safetensors");
  assert_fails(2, "--bidirectional: contradicts the weights in B.safetensors, expected weights of both directions",
               "eval gru --weights B.safetensors --bidirectional --seq-len 6 --samples 8");
  json_t *one = run_json("plan gru --layers 2 --seq-len 50 --algorithm blelloch --json"),
         *two = run_json("plan gru --layers 2 --seq-len 50 --algorithm blelloch --bidirectional --json");
  assert_true(fabs(2 * get_real(one, "predicted_s") - get_real(two, "predicted_s")) < 1e-12);
  assert_true(json_is_true(json_object_get(two, "bidirectional")) && json_object_get(one, "bidirectional") == NULL);
  json_decref(one);
  json_decref(two);
  run_result text = run("plan gru --layers 2 --bidirectional");
  assert_non_null(strstr(text.out, "layers 2 (each twice: the reverse directions have the same plans), loss last"));
  release(&text);
}

static void test_requests(void **state) {
  (void)state;
  const char *grad = "grad rnn --weights W.safetensors --input X.npy --out O.safetensors";
  assert_runs(TRAIN " --iterations 0 --save-weights W.safetensors");
  assert_runs("train rnn --seq-len 6 --samples 32 --hidden 3 --iterations 0 --save-weights B.safetensors");
  assert_fails(2, "--labels: option missing in 'grad rnn', expected the path of an NPY file, or --grad-output G.npy", "%s", grad);
  assert_fails(2, "--labels: given beside --grad-output, which takes the place of a loss, expected one of them",
               "%s --labels Y.npy --grad-output G.npy", grad);
  assert_fails(2, "--loss: given beside --grad-output", "%s --loss all --grad-output G.npy", grad);
  assert_fails(2, "X.npy: shape [6, 4, 1], expected [T, B, H] = [6, 4, 3]", "%s --grad-output X.npy", grad);
  assert_fails(2, "--grad-output: given beside ranks that share time, expected --split batch",
               "%s --grad-output G.npy --ranks 2 --split time", grad);
  assert_fails(2, "--no-bias: contradicts the weights in B.safetensors, expected weights without biases",
               "eval rnn --weights B.safetensors --no-bias --seq-len 6 --samples 8");
  assert_fails(2, "did you mean --no-bias?", "train rnn --no-biases");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_grad_output),
                                     cmocka_unit_test(test_no_bias),
                                     cmocka_unit_test(test_lengths),
                                     cmocka_unit_test(test_dropout),
                                     cmocka_unit_test(test_bidirectional),
                                     cmocka_unit_test(test_bidirectional_grad),
                                     cmocka_unit_test(test_bidirectional_requests),
                                     cmocka_unit_test(test_requests)};
  return cmocka_run_group_tests_name("cli_sequences", tests, enter, leave_directory);
}

/* The mean squared error, the binary cross-entropy and labels that are left out, in train, eval and grad, against a recurrence
 * written out here. */
#include "tests/cli/batch_files.h"

#include <math.h>

enum { N = 12, STEPS = 5, HIDDEN = 3, OUTPUTS = 2 };

#define DATA "--data npy:X.npy,%s --dtype f64 --hidden 3 --batch 12"

/* Inputs [N,STEPS,1] and, time-major, [STEPS,N,1]; real targets [N], [N,2], [N,STEPS] and [N,STEPS,2]; labels with -100 among them,
 * and [N] without. */
static double inputs[N][STEPS], targets[N][STEPS][OUTPUTS];
static int64_t labels[N][STEPS];

static void save(const char *path, void *data, bppsa_dtype dtype, int32_t ndim, const int64_t *shape) {
  const bppsa_view view = bppsa_view_make(data, dtype, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
}

/* A target of the binary cross-entropy: every fourth is 0 or 1. */
static double chance(int n, int t, int64_t c) {
  return (n + t) % 4 == 0 ? (double)(n % 2) : (targets[n][t][c] + 1) / 2;
}

static int enter(void **state) {
  const int status = enter_directory(state);
  double turned[STEPS][N], last[N], pairs[N][OUTPUTS], every[N][STEPS], turned_targets[STEPS][N][OUTPUTS];
  double chances[N], all_chances[N][STEPS][OUTPUTS], turned_chances[STEPS][N][OUTPUTS];
  int64_t turned_labels[STEPS][N], plain[N];
  for (int n = 0; n < N; ++n) {
    for (int t = 0; t < STEPS; ++t) {
      const uint64_t at = (uint64_t)(n * STEPS + t);
      turned[t][n] = inputs[n][t] = bppsa_random_double(1, BPPSA_STREAM_TEST, at) - 0.5;
      labels[n][t] = (n + t) % 3 == 0 ? -100 : (n * 2 + t) % 3;
      turned_labels[t][n] = labels[n][t];
      for (int c = 0; c < OUTPUTS; ++c) {
        turned_targets[t][n][c] = targets[n][t][c] = 2 * bppsa_random_double(2 + (uint64_t)c, BPPSA_STREAM_TEST, at) - 1;
        turned_chances[t][n][c] = all_chances[n][t][c] = chance(n, t, c);
      }
      every[n][t] = targets[n][t][0];
    }
    plain[n] = n % 3;
    last[n] = targets[n][STEPS - 1][0];
    chances[n] = chance(n, STEPS - 1, 0);
    memcpy(pairs[n], targets[n][STEPS - 1], sizeof pairs[n]);
  }
  save("X.npy", inputs, BPPSA_F64, 3, (int64_t[]){N, STEPS, 1});
  save("XT.npy", turned, BPPSA_F64, 3, (int64_t[]){STEPS, N, 1});
  save("Y.npy", last, BPPSA_F64, 1, (int64_t[]){N});
  save("YC.npy", pairs, BPPSA_F64, 2, (int64_t[]){N, OUTPUTS});
  save("YT.npy", every, BPPSA_F64, 2, (int64_t[]){N, STEPS});
  save("YTC.npy", targets, BPPSA_F64, 3, (int64_t[]){N, STEPS, OUTPUTS});
  save("GTC.npy", turned_targets, BPPSA_F64, 3, (int64_t[]){STEPS, N, OUTPUTS});
  save("B.npy", chances, BPPSA_F64, 1, (int64_t[]){N});
  save("BTC.npy", all_chances, BPPSA_F64, 3, (int64_t[]){N, STEPS, OUTPUTS});
  save("GB.npy", turned_chances, BPPSA_F64, 3, (int64_t[]){STEPS, N, OUTPUTS});
  save("L.npy", labels, BPPSA_I64, 2, (int64_t[]){N, STEPS});
  save("LP.npy", plain, BPPSA_I64, 1, (int64_t[]){N});
  save("LT.npy", turned_labels, BPPSA_I64, 2, (int64_t[]){STEPS, N});
  return status;
}

/* ---- the recurrence ---- */

static const double *values(const bppsa_safetensors *file, const char *name) {
  const bppsa_view *view = bppsa_safetensors_find(file, name);
  assert_non_null(view);
  assert_int_equal(view->dtype, BPPSA_F64);
  return view->data;
}

/* h = tanh(W_ih x + b_ih + W_hh h + b_hh) of the next step. */
static void advance(const bppsa_safetensors *file, double x, double *h) {
  const double *ih = values(file, "rnn.weight_ih_l0"), *hh = values(file, "rnn.weight_hh_l0");
  const double *bi = values(file, "rnn.bias_ih_l0"), *bh = values(file, "rnn.bias_hh_l0");
  double next[HIDDEN];
  for (int i = 0; i < HIDDEN; ++i) {
    next[i] = ih[i] * x + bi[i] + bh[i];
    for (int j = 0; j < HIDDEN; ++j) {
      next[i] += hh[i * HIDDEN + j] * h[j];
    }
    next[i] = tanh(next[i]);
  }
  memcpy(h, next, sizeof next);
}

typedef double (*row_loss)(const double *outputs, int n, int t, int64_t count, int64_t *terms);

static double squares(const double *outputs, int n, int t, int64_t count, int64_t *terms) {
  double sum = 0;
  for (int64_t c = 0; c < count; ++c) {
    sum += (outputs[c] - targets[n][t][c]) * (outputs[c] - targets[n][t][c]);
  }
  *terms += count;
  return sum;
}

static double binary(const double *outputs, int n, int t, int64_t count, int64_t *terms) {
  double sum = 0;
  for (int64_t c = 0; c < count; ++c) {
    const double y = chance(n, t, c);
    sum += y * log(1 + exp(-outputs[c])) + (1 - y) * log(1 + exp(outputs[c]));
  }
  *terms += count;
  return sum;
}

static double entropy(const double *outputs, int n, int t, int64_t count, int64_t *terms) {
  double sum = 0;
  if (labels[n][t] == -100) {
    return 0;
  }
  for (int64_t c = 0; c < count; ++c) {
    sum += exp(outputs[c]);
  }
  *terms += 1;
  return log(sum) - outputs[labels[n][t]];
}

/* The mean loss of all samples under the file's weights. */
static double reference(const bppsa_safetensors *file, row_loss loss, bool all) {
  const double *head = values(file, "linear.weight"), *bias = values(file, "linear.bias");
  const int64_t count = bppsa_safetensors_find(file, "linear.bias")->shape[0];
  double sum = 0, outputs[8];
  int64_t terms = 0;
  assert_true(count <= 8);
  for (int n = 0; n < N; ++n) {
    double h[HIDDEN] = {0};
    for (int t = 0; t < STEPS; ++t) {
      advance(file, inputs[n][t], h);
      for (int64_t c = 0; c < count; ++c) {
        outputs[c] = bias[c];
        for (int j = 0; j < HIDDEN; ++j) {
          outputs[c] += head[c * HIDDEN + j] * h[j];
        }
      }
      sum += all || t == STEPS - 1 ? loss(outputs, n, t, count, &terms) : 0;
    }
  }
  return sum / (double)terms;
}

static bppsa_safetensors *load(const char *path) {
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_load(path, &file), BPPSA_OK);
  return file;
}

/* ---- tests ---- */

static const struct {
  const char *loss, *y, *extra, *grad_y;
  row_loss row;
  bool all;
} cases[] = {{"mse", "Y.npy", "", "Y.npy", squares, false},
             {"mse", "YC.npy", "", "YC.npy", squares, false},
             {"mse-all", "YT.npy", "", NULL, squares, true},
             {"mse-all", "YTC.npy", "", "GTC.npy", squares, true},
             {"all", "L.npy", "--ignore-label -100", "LT.npy", entropy, true},
             {"bce", "B.npy", "", "B.npy", binary, false},
             {"bce-all", "BTC.npy", "", "GB.npy", binary, true}};
enum { CASES = sizeof cases / sizeof cases[0] };

/* The first step's loss, eval's loss and grad's loss are the recurrence's. */
static void test_losses(void **state) {
  (void)state;
  for (int k = 0; k < CASES; ++k) {
    json_t *document =
        run_json("train rnn " DATA " --loss %s %s --iterations 3 --json", cases[k].y, cases[k].loss, cases[k].extra);
    assert_runs("train rnn " DATA " --loss %s %s --iterations 0 --save-weights W.safetensors", cases[k].y, cases[k].loss,
                cases[k].extra);
    bppsa_safetensors *file = load("W.safetensors");
    const double expected = reference(file, cases[k].row, cases[k].all);
    const json_t *row = json_array_get(json_object_get(document, "rows"), 0), *config = json_object_get(document, "config");
    const bool real = cases[k].row != entropy;
    const char *objective = cases[k].row == squares ? "mse" : real ? "bce" : "cross-entropy";
    assert_true(fabs(get_real(row, "loss") - expected) < 1e-14);
    assert_true(real == json_is_null(json_object_get(row, "accuracy")));
    assert_string_equal(get_text(config, "loss_on"), cases[k].all ? "all" : "last");
    assert_string_equal(get_text(config, "objective"), objective);
    json_t *eval = run_json("eval rnn --weights W.safetensors --data npy:X.npy,%s %s --json", cases[k].y, cases[k].extra);
    assert_true(fabs(get_real(eval, "loss") - expected) < 1e-14); /* the loss is in the weights' metadata */
    assert_true(real == json_is_null(json_object_get(eval, "accuracy")));
    json_decref(eval);
    if (cases[k].grad_y != NULL) {
      json_t *grad = run_json("grad rnn --weights W.safetensors --input XT.npy --labels %s %s --out G.safetensors --json",
                              cases[k].grad_y, cases[k].extra);
      assert_true(fabs(get_real(grad, "loss") - expected) < 1e-14);
      json_decref(grad);
    }
    bppsa_safetensors_destroy(file);
    json_decref(document);
  }
}

/* Every weight's gradient is the recurrence's difference quotient. */
static void test_gradients(void **state) {
  (void)state;
  for (int k = 0; k < CASES; ++k) {
    if (cases[k].grad_y == NULL) {
      continue;
    }
    assert_runs("train rnn " DATA " --loss %s %s --iterations 0 --save-weights W.safetensors", cases[k].y, cases[k].loss,
                cases[k].extra);
    assert_runs("grad rnn --weights W.safetensors --input XT.npy --labels %s --loss %s %s --chunks 2 --out G.safetensors",
                cases[k].grad_y, cases[k].loss, cases[k].extra);
    bppsa_safetensors *weights = load("W.safetensors"), *gradients = load("G.safetensors");
    for (int64_t i = 0; i < bppsa_safetensors_count(weights); ++i) {
      const bppsa_named_view *tensor = bppsa_safetensors_get(weights, i);
      const bppsa_view *gradient = bppsa_safetensors_find(gradients, tensor->name);
      double *w = tensor->view.data;
      for (int64_t e = 0; e < bppsa_view_count(&tensor->view); ++e) {
        const double kept = w[e], step = 1e-5;
        w[e] = kept + step;
        const double up = reference(weights, cases[k].row, cases[k].all);
        w[e] = kept - step;
        const double down = reference(weights, cases[k].row, cases[k].all);
        w[e] = kept;
        assert_true(fabs((up - down) / (2 * step) - bppsa_view_get(gradient, e)) < 1e-9);
      }
    }
    bppsa_safetensors_destroy(weights);
    bppsa_safetensors_destroy(gradients);
  }
}

/* Two pieces end with the bits of one; another loss or label is a contradiction. */
static void test_checkpoints(void **state) {
  (void)state;
  for (int k = 1; k < CASES; k += 3) {
    const char *line = "train rnn --data npy:X.npy,%s --hidden 3 --batch 5 --loss %s %s";
    char command[256];
    snprintf(command, sizeof command, line, cases[k].y, cases[k].loss, cases[k].extra);
    assert_int_equal(system("rm -rf d"), 0);
    assert_runs("%s --iterations 7 --save-weights whole.safetensors --threads 2", command);
    assert_runs("%s --iterations 4 --checkpoint d", command);
    assert_runs("%s --iterations 7 --checkpoint d --resume --save-weights w.safetensors", command);
    assert_equal_files("w.safetensors", "whole.safetensors");
  }
  /* what is held out has a loss and, of real targets, no accuracy: a resumed run tells it, too */
  const char *held =
      "train rnn --data npy:X.npy,Y.npy --hidden 3 --batch 5 --loss mse --validation 0.3 --epochs 2 --json --checkpoint v";
  json_t *first = run_json("%s", held), *again = run_json("%s --resume", held);
  const double loss = get_real(json_object_get(first, "final"), "validation_loss");
  assert_true(loss > 0 && loss == get_real(json_object_get(again, "final"), "validation_loss"));
  json_decref(first);
  json_decref(again);
  assert_fails(2, "loss all contradicts this run, which has mse-all",
               "train rnn --data npy:X.npy,YT.npy --loss mse-all --hidden 3 --batch 5 --checkpoint d --resume --iterations 8");
  assert_int_equal(system("rm -rf d"), 0);
  assert_runs("train rnn --data npy:X.npy,B.npy --loss bce --hidden 3 --batch 5 --checkpoint d --iterations 2");
  assert_fails(2, "loss bce contradicts this run, which has mse",
               "train rnn --data npy:X.npy,B.npy --loss mse --hidden 3 --batch 5 --checkpoint d --resume --iterations 3");
  const char *plain = "train rnn --data npy:X.npy,LP.npy --hidden 3 --batch 5 --checkpoint d";
  assert_int_equal(system("rm -rf d"), 0);
  assert_runs("%s --ignore-label 2 --iterations 3", plain);
  assert_fails(2, "ignore_label 2 contradicts this run, which has 1", "%s --resume --iterations 4 --ignore-label 1", plain);
  assert_fails(2, "ignore_label 2 contradicts this run, which has none", "%s --resume --iterations 4", plain);
}

/* A batch without a label that counts has loss 0 and changes nothing under SGD; the run goes on. */
static void test_nothing_counts(void **state) {
  (void)state;
  int64_t none[N];
  for (int n = 0; n < N; ++n) {
    none[n] = n < 9 ? n % 3 : -100;
  }
  save("LN.npy", none, BPPSA_I64, 1, (int64_t[]){N});
  assert_runs("train rnn " DATA " --ignore-label -100 --iterations 0 --save-weights W.safetensors", "LN.npy");
  json_t *held =
      run_json("eval rnn --weights W.safetensors --data npy:X.npy,LN.npy --ignore-label -100 --validation 0.25 --json");
  assert_true(get_real(held, "loss") == 0 && get_real(held, "accuracy") == 0); /* the last three are ignored */
  assert_int_equal(get_integer(held, "samples"), 3);
  json_decref(held);
  json_t *document = run_json("train rnn --data npy:X.npy,LN.npy --hidden 3 --batch 1 --ignore-label -100 --epochs 2 --json");
  assert_int_equal(get_integer(document, "steps_done"), 24);
  json_decref(document);
}

static void test_words(void **state) {
  (void)state;
  run_result text = run("train rnn " DATA " --loss mse --iterations 2", "YC.npy");
  assert_int_equal(text.code, 0);
  assert_non_null(strstr(text.out, "loss       mean squared error of the last step\n"));
  assert_null(strstr(text.out, "nan"));
  release(&text);
  text = run("train rnn " DATA " --loss all --ignore-label -100 --iterations 2", "L.npy");
  assert_non_null(strstr(text.out, "loss       cross-entropy of every step, label -100 left out\n"));
  release(&text);
}

static void test_requests(void **state) {
  (void)state;
  double bad[N] = {0};
  bad[4] = (double)NAN;
  save("bad.npy", bad, BPPSA_F64, 1, (int64_t[]){N});
  const struct {
    const char *options, *says;
  } wrong[] = {
      {"--data npy:X.npy,Y.npy", "Y.npy: dtype f64, expected integer labels, or the mean squared error as the loss"},
      {"--data npy:X.npy,L.npy --loss mse-all", "L.npy: dtype i64, expected f32 or f64 targets of the mean squared error"},
      {"--data npy:X.npy,L.npy --loss all", "L.npy: label -100 at [0, 0], expected 0 .. 2147483646"},
      {"--data npy:X.npy,YTC.npy --loss mse", "expected [samples] or [samples, targets] with the loss on the last step"},
      {"--data npy:X.npy,Y.npy --loss mse-all", "expected [samples, steps] or [samples, steps, targets]"},
      {"--data npy:X.npy,bad.npy --loss mse", "bad.npy: value nan at [4], expected finite values"},
      {"--data npy:X.npy,YC.npy --loss mse --ignore-label 3",
       "--ignore-label: given beside the loss mse, expected --loss last or all"},
      {"--loss mse", "data set 'bitstream': has labels, expected npy:X,Y with real targets"},
      {"--loss mae", "--loss: 'mae', expected last, all, mse, mse-all, bce or bce-all"},
      {"--data npy:X.npy,Y.npy --loss bce", "expected 0 .. 1 for the binary cross-entropy"},
      {"--data npy:X.npy,B.npy --loss bce --ignore-label 3",
       "--ignore-label: given beside the loss bce, expected --loss last or all"},
      {"--ignore-label x", "--ignore-label: 'x', expected a whole number"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    assert_fails(2, wrong[i].says, "train rnn --iterations 1 --batch 2 %s", wrong[i].options);
  }
  assert_runs("train rnn " DATA " --loss mse --iterations 0 --save-weights W.safetensors", "YC.npy");
  assert_fails(2, "W.safetensors: weights for 2 outputs, expected 1, the data's targets",
               "eval rnn --weights W.safetensors --data npy:X.npy,Y.npy");
  assert_fails(2, "YC.npy: value -",
               "grad rnn --weights W.safetensors --input XT.npy --labels YC.npy --loss bce --out G.safetensors");
  assert_fails(2, "expected [B, C]", "grad rnn --weights W.safetensors --input XT.npy --labels Y.npy --out G.safetensors");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_losses),      cmocka_unit_test(test_gradients),
                                     cmocka_unit_test(test_checkpoints), cmocka_unit_test(test_nothing_counts),
                                     cmocka_unit_test(test_words),       cmocka_unit_test(test_requests)};
  return cmocka_run_group_tests_name("cli_objective", tests, enter, leave_directory);
}

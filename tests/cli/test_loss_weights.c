/* --loss-weights: `grad` beside the weighted sum of single samples, on ranks too; training, evaluation and a resumption; what is
 * refused. */
#include "tests/cli/batch_files.h"

#include <math.h>

enum { STEPS = 5, SAMPLES = 6, SET = 12 };

static double x[STEPS][SAMPLES], w[STEPS][SAMPLES], set_weights[SET][STEPS];
static int64_t y[STEPS][SAMPLES];

static int enter(void **state) {
  const int status = enter_directory(state);
  for (int i = 0; i < STEPS * SAMPLES; ++i) {
    x[i / SAMPLES][i % SAMPLES] = bppsa_random_double(1, BPPSA_STREAM_TEST, (uint64_t)i) - 0.5;
    w[i / SAMPLES][i % SAMPLES] = i % 4 == 1 ? 0 : bppsa_random_double(2, BPPSA_STREAM_TEST, (uint64_t)i) * 3;
    y[i / SAMPLES][i % SAMPLES] = i * 7 % 10;
  }
  for (int i = 0; i < SET * STEPS; ++i) {
    set_weights[i / STEPS][i % STEPS] = i % 5 == 2 ? 0 : 0.1 + i % 7;
  }
  write_array("X.npy", BPPSA_F64, x, 3, (int64_t[]){STEPS, SAMPLES, 1});
  write_array("Y.npy", BPPSA_I64, y, 2, (int64_t[]){STEPS, SAMPLES});
  write_array("W.npy", BPPSA_F64, w, 2, (int64_t[]){STEPS, SAMPLES});
  write_array("N.npy", BPPSA_F64, set_weights, 2, (int64_t[]){SET, STEPS});
  assert_runs("train gru --seq-len 5 --samples 8 --hidden 3 --batch 4 --loss all --dtype f64 --iterations 1 "
              "--save-weights V.safetensors");
  assert_runs("train gru --seq-len 5 --samples 8 --hidden 3 --batch 4 --dtype f64 --iterations 1 --save-weights L.safetensors");
  return status;
}

static double tensor(const char *path, const char *name, int64_t i) {
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_load(path, &file), BPPSA_OK);
  const double value = bppsa_view_get(bppsa_safetensors_find(file, name), i);
  bppsa_safetensors_destroy(file);
  return value;
}

#define GRAD "grad gru --weights V.safetensors --input X.npy --labels Y.npy"

/* The loss is Σ w l / Σ w over the losses l of single rows: each is the loss of a file whose only weight is that row's. */
static void test_grad(void **state) {
  (void)state;
  double loss = 0, gradient = 0, sum = 0;
  assert_runs(GRAD " --loss-weights W.npy --out G.safetensors");
  for (int i = 0; i < STEPS * SAMPLES; ++i) {
    double one[STEPS][SAMPLES] = {{0}};
    one[i / SAMPLES][i % SAMPLES] = w[i / SAMPLES][i % SAMPLES];
    if (one[i / SAMPLES][i % SAMPLES] == 0) {
      continue;
    }
    write_array("one.npy", BPPSA_F64, one, 2, (int64_t[]){STEPS, SAMPLES});
    assert_runs(GRAD " --loss-weights one.npy --out one.safetensors");
    loss += one[i / SAMPLES][i % SAMPLES] * tensor("one.safetensors", "loss", 0);
    gradient += one[i / SAMPLES][i % SAMPLES] * tensor("one.safetensors", "gru.weight_hh_l0", 4);
    sum += one[i / SAMPLES][i % SAMPLES];
  }
  assert_true(fabs(tensor("G.safetensors", "loss", 0) - loss / sum) < 1e-14);
  assert_true(fabs(tensor("G.safetensors", "gru.weight_hh_l0", 4) - gradient / sum) < 1e-15);
  static const char *const splits[] = {"batch", "time"};
  for (int k = 0; k < 2; ++k) { /* ranks divide by the sum of the whole batch */
    assert_runs(GRAD " --loss-weights W.npy --ranks 2 --split %s --out R.safetensors", splits[k]);
    assert_true(fabs(tensor("R.safetensors", "loss", 0) - loss / sum) < 1e-14);
    assert_true(fabs(tensor("R.safetensors", "gru.weight_hh_l0", 4) - gradient / sum) < 1e-15);
    assert_true(fabs(tensor("R.safetensors", "input", 7) - tensor("G.safetensors", "input", 7)) < 1e-15);
  }
  double ones[STEPS][SAMPLES];
  for (int i = 0; i < STEPS * SAMPLES; ++i) {
    ones[i / SAMPLES][i % SAMPLES] = 4;
  }
  write_array("one.npy", BPPSA_F64, ones, 2, (int64_t[]){STEPS, SAMPLES});
  assert_runs(GRAD " --out A.safetensors");
  assert_runs(GRAD " --loss-weights one.npy --out B.safetensors");
  assert_equal_files("A.safetensors", "B.safetensors");
}

#define TRAIN                                                                                                                    \
  "train gru --seq-len 5 --samples 12 --hidden 3 --batch 5 --dtype f64 --validation 0.25 --seed 3 --loss-weights N.npy"
#define EVAL "eval gru --seq-len 5 --samples 12 --validation 0.25 --seed 3"

/* eval has the loss of training's validation, which is another one without the weights; ranks by the batch follow the same curve; a
 * resumed run ends with the bits of one that was not interrupted, and refuses other weights. */
static void test_train(void **state) {
  (void)state;
  static const char *const losses[] = {"all", "last"};
  for (int k = 0; k < 2; ++k) {
    json_t *train = run_json(TRAIN " --loss %s --iterations 7 --save-weights whole.safetensors --json", losses[k]);
    const double loss = get_real(json_object_get(train, "final"), "validation_loss");
    json_t *eval = run_json(EVAL " --weights whole.safetensors --loss-weights N.npy --json");
    assert_true(fabs(get_real(eval, "loss") - loss) < 1e-14);
    json_decref(eval);
    eval = run_json(EVAL " --weights whole.safetensors --json");
    assert_true(fabs(get_real(eval, "loss") - loss) > 1e-9);
    json_decref(eval);
    json_decref(train);
    train = run_json(TRAIN " --loss %s --iterations 7 --ranks 2 --split batch --json", losses[k]);
    assert_true(fabs(get_real(json_object_get(train, "final"), "validation_loss") - loss) < 1e-12);
    json_decref(train);
    assert_runs(TRAIN " --loss %s --epochs 3 --log a.jsonl --save-weights whole.safetensors", losses[k]);
    assert_runs(TRAIN " --loss %s --epochs 1 --checkpoint r%d --checkpoint-every 1 --log b.jsonl", losses[k], k);
    assert_runs(TRAIN " --loss %s --epochs 3 --checkpoint r%d --checkpoint-every 1 --log b.jsonl --resume --threads 3 "
                      "--save-weights w.safetensors",
                losses[k], k);
    assert_equal_files("w.safetensors", "whole.safetensors");
  }
  set_weights[0][0] += 1;
  set_weights[0][STEPS - 1] += 1;
  write_array("N.npy", BPPSA_F64, set_weights, 2, (int64_t[]){SET, STEPS});
  assert_fails(2, "contradicts this run", TRAIN " --loss all --epochs 4 --checkpoint r0 --checkpoint-every 1 --resume");
}

static void test_refused(void **state) {
  (void)state;
  write_array("bad.npy", BPPSA_F64, w, 2, (int64_t[]){SAMPLES, STEPS});
  assert_fails(2, "bad.npy: shape [6, 5], expected [T, B] = [5, 6]", GRAD " --loss-weights bad.npy --out o.safetensors");
  assert_fails(2, "bad.npy: shape [6, 5], expected [N, T] = [12, 5]",
               "train gru --seq-len 5 --samples 12 --hidden 3 --batch 4 --loss all --iterations 1 --loss-weights bad.npy");
  w[0][1] = -0.5;
  write_array("bad.npy", BPPSA_F64, w, 2, (int64_t[]){STEPS, SAMPLES});
  w[0][1] = 0;
  assert_fails(2, "bad.npy: weight -0.5 at [0, 1], expected 0 or more", GRAD " --loss-weights bad.npy --out o.safetensors");
  assert_fails(2, "--loss-weights: given beside --grad-output",
               "grad gru --weights V.safetensors --input X.npy --grad-output G.npy --loss-weights W.npy --out o.safetensors");
  assert_fails(2, "--loss-weights: given beside --split gpipe, whose micro-batches count all rows, expected none",
               "train gru --seq-len 5 --samples 12 --hidden 3 --batch 4 --loss all --iterations 1 --loss-weights N.npy --ranks 2 "
               "--split gpipe");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_grad), cmocka_unit_test(test_train), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, enter, leave_directory);
}

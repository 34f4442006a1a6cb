/* `train gru`, `eval gru`, `grad gru` and `plan gru` together; what differs from the RNN's commands. */
#include "tests/cli/batch_files.h"

#include <math.h>

#define SMALL "--seq-len 20 --samples 64 --hidden 6"

static void test_train_and_eval(void **state) {
  (void)state;
  json_t *document =
      run_json("train gru " SMALL " --epochs 2 --validation 0.25 --log g.jsonl --save-weights G.safetensors --json");
  const json_t *config = json_object_get(document, "config"), *final = json_object_get(document, "final");
  assert_string_equal(get_text(document, "model"), "gru");
  assert_int_equal(get_integer(document, "parameters"), 18 + 108 + 18 + 18 + 60 + 10);
  assert_true(get_real(config, "lr") == 3e-4);
  assert_null(json_object_get(config, "nonlinearity"));
  json_t *eval = run_json("eval gru --weights G.safetensors --seq-len 20 --samples 64 --validation 0.25 --json");
  assert_true(fabs(get_real(eval, "loss") - get_real(final, "validation_loss")) < 1e-6);
  json_decref(eval);
  json_decref(document);
  assert_fails(2, "G.safetensors: tensor 'rnn.weight_hh_l0' is missing",
               "eval rnn --weights G.safetensors --seq-len 20 --samples 64");
}

/* Every way to the gradient gives the same curve, here in f64. */
static void test_methods(void **state) {
  (void)state;
  const char *const methods[] = {"--backward bp", "--algorithm linear", "--algorithm blelloch",
                                 "--up-levels 2", "--chunks 4",         "--algorithm auto"};
  double first = 0;
  for (size_t i = 0; i < sizeof methods / sizeof methods[0]; ++i) {
    json_t *document = run_json("train gru " SMALL " --layers 2 --loss all --dtype f64 --iterations 10 %s --json", methods[i]);
    const double loss = get_real(json_object_get(document, "final"), "loss");
    assert_true(loss > 0);
    first = i == 0 ? loss : first;
    assert_true(fabs(loss - first) < 1e-12);
    json_decref(document);
  }
}

static void test_checkpoint(void **state) {
  (void)state;
  assert_runs("train gru " SMALL " --iterations 3 --checkpoint d");
  json_t *document = run_json("train gru " SMALL " --iterations 5 --checkpoint d --resume --json");
  assert_int_equal(get_integer(document, "resumed"), 3);
  json_decref(document);
  assert_fails(2, "model gru contradicts this run, which has rnn",
               "train rnn --lr 0.0003 " SMALL " --iterations 5 --checkpoint d --resume");
}

static void test_plan(void **state) {
  (void)state;
  json_t *rnn = run_json("plan rnn --seq-len 21 --hidden 5 --algorithm blelloch --json");
  json_t *gru = run_json("plan gru --seq-len 21 --hidden 5 --algorithm blelloch --json");
  const json_t *a = json_object_get(rnn, "totals"), *b = json_object_get(gru, "totals");
  assert_string_equal(get_text(gru, "model"), "gru");
  assert_int_equal(get_integer(a, "mm"), get_integer(b, "mm"));
  assert_int_equal(get_integer(a, "critical_steps"), get_integer(b, "critical_steps"));
  assert_true(get_integer(b, "mm_flops") > get_integer(a, "mm_flops")); /* leaves have three matrices */
  json_decref(rnn);
  json_decref(gru);
}

static void test_grad(void **state) {
  (void)state;
  const int64_t x[] = {7, 3, 1}, y[] = {3};
  write_reals("X.npy", BPPSA_F32, 3, x);
  write_labels("Y.npy", 1, y, -1, 0);
  assert_runs("train gru --seq-len 7 --samples 16 --hidden 4 --iterations 1 --save-weights W.safetensors");
  double norms[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    json_t *document = run_json("grad gru --weights W.safetensors --input X.npy --labels Y.npy --out G%d.safetensors %s --json",
                                i, i == 0 ? "--backward bp" : "--algorithm blelloch");
    const json_t *tensors = json_object_get(document, "tensors");
    assert_string_equal(get_text(json_array_get(tensors, 1), "name"), "gru.weight_hh_l0");
    norms[i] = get_real(json_array_get(tensors, 1), "norm");
    json_decref(document);
  }
  assert_true(norms[0] > 0 && fabs(norms[0] - norms[1]) < 1e-5 * norms[0]);
}

static void test_refusals(void **state) {
  (void)state;
  assert_fails(2, "--nonlinearity: unknown option", "train gru --nonlinearity tanh");
  assert_fails(2, "gru: blelloch needs at least ", "train gru " SMALL " --algorithm blelloch --memory-limit 30000");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_train_and_eval), cmocka_unit_test(test_methods),
                                     cmocka_unit_test(test_checkpoint),     cmocka_unit_test(test_plan),
                                     cmocka_unit_test(test_grad),           cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

/* `train`, `eval`, `grad`, `plan` and `bench` of every cell but the RNN together; what differs from the RNN's commands. */
#include "tests/cli/batch_files.h"

#include <math.h>
#include <stdio.h>

#include "core/files/npy.h"
#include "core/files/safetensors.h"
#include "tests/support/support.h"

#define SMALL "--seq-len 20 --samples 64 --hidden 6"

static const struct {
  const char *name;
  int64_t gates, state; /* state: numbers of a state, over H */
  double lr;            /* by default */
} cells[] = {{"gru", 3, 1, 3e-4}, {"lstm", 4, 2, 1e-3}};
enum { CELLS = sizeof cells / sizeof cells[0] };

static void test_train_and_eval(void **state) {
  (void)state;
  for (int k = 0; k < CELLS; ++k) {
    const char *name = cells[k].name;
    json_t *document =
        run_json("train %s " SMALL " --epochs 2 --validation 0.25 --log l.jsonl --save-weights L.safetensors --json", name);
    const json_t *config = json_object_get(document, "config"), *final = json_object_get(document, "final");
    assert_string_equal(get_text(document, "model"), name);
    assert_int_equal(get_integer(document, "parameters"), cells[k].gates * (6 + 36 + 6 + 6) + 60 + 10);
    assert_true(get_real(config, "lr") == cells[k].lr);
    assert_null(json_object_get(config, "nonlinearity"));
    json_t *eval = run_json("eval %s --weights L.safetensors --seq-len 20 --samples 64 --validation 0.25 --json", name);
    assert_true(fabs(get_real(eval, "loss") - get_real(final, "validation_loss")) < 1e-6);
    json_decref(eval);
    json_decref(document);
    assert_fails(2, "L.safetensors: tensor 'rnn.weight_hh_l0' is missing",
                 "eval rnn --weights L.safetensors --seq-len 20 --samples 64");
  }
}

/* Every way to the gradient gives the same curve, here in f64. */
static void test_methods(void **state) {
  (void)state;
  const char *const methods[] = {"--backward bp",
                                 "--algorithm linear",
                                 "--algorithm blelloch",
                                 "--up-levels 2",
                                 "--chunks 4",
                                 "--algorithm auto",
                                 "--ranks 3 --split time --algorithm blelloch",
                                 "--ranks 2 --split batch",
                                 "--ranks 2 --split gpipe --micro-batches 2"};
  for (int k = 0; k < CELLS; ++k) {
    double first = 0;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; ++i) {
      json_t *document =
          run_json("train %s " SMALL " --layers 2 --loss all --dtype f64 --iterations 10 %s --json", cells[k].name, methods[i]);
      const double loss = get_real(json_object_get(document, "final"), "loss");
      assert_true(loss > 0);
      first = i == 0 ? loss : first;
      assert_true(fabs(loss - first) < 1e-12);
      json_decref(document);
    }
  }
}

static void test_checkpoint(void **state) {
  (void)state;
  for (int k = 0; k < CELLS; ++k) {
    char expected[100];
    assert_int_equal(system("rm -rf d"), 0);
    assert_runs("train %s " SMALL " --iterations 3 --checkpoint d", cells[k].name);
    json_t *document = run_json("train %s " SMALL " --iterations 5 --checkpoint d --resume --json", cells[k].name);
    assert_int_equal(get_integer(document, "resumed"), 3);
    json_decref(document);
    snprintf(expected, sizeof expected, "model %s contradicts this run, which has rnn", cells[k].name);
    assert_fails(2, expected, "train rnn --lr %g " SMALL " --iterations 5 --checkpoint d --resume", cells[k].lr);
  }
}

static void test_plan(void **state) {
  (void)state;
  json_t *rnn = run_json("plan rnn --seq-len 21 --hidden 5 --algorithm blelloch --json");
  const json_t *a = json_object_get(rnn, "totals");
  for (int k = 0; k < CELLS; ++k) {
    json_t *other = run_json("plan %s --seq-len 21 --hidden 5 --algorithm blelloch --json", cells[k].name);
    const json_t *b = json_object_get(other, "totals");
    const int64_t size = cells[k].state;
    assert_string_equal(get_text(other, "model"), cells[k].name);
    assert_int_equal(get_integer(a, "mm"), get_integer(b, "mm"));
    assert_int_equal(get_integer(a, "critical_steps"), get_integer(b, "critical_steps"));
    assert_true(get_integer(b, "mm_flops") > get_integer(a, "mm_flops")); /* leaves have several matrices */
    assert_true(get_integer(b, "workspace_bytes") == size * size * get_integer(a, "workspace_bytes"));
    json_decref(other);
  }
  json_decref(rnn);
}

static void test_grad(void **state) {
  (void)state;
  const int64_t x[] = {7, 3, 1}, y[] = {3};
  write_reals("X.npy", BPPSA_F32, 3, x);
  write_labels("Y.npy", 1, y, -1, 0);
  for (int k = 0; k < CELLS; ++k) {
    char expected[40];
    double norms[2] = {0, 0};
    assert_runs("train %s --seq-len 7 --samples 16 --hidden 4 --iterations 1 --save-weights W.safetensors", cells[k].name);
    snprintf(expected, sizeof expected, "%s.weight_hh_l0", cells[k].name);
    for (int i = 0; i < 2; ++i) {
      json_t *document = run_json("grad %s --weights W.safetensors --input X.npy --labels Y.npy --out G%d.safetensors %s --json",
                                  cells[k].name, i, i == 0 ? "--backward bp" : "--algorithm blelloch");
      const json_t *tensors = json_object_get(document, "tensors");
      assert_string_equal(get_text(json_array_get(tensors, 1), "name"), expected);
      norms[i] = get_real(json_array_get(tensors, 1), "norm");
      json_decref(document);
    }
    assert_true(norms[0] > 0 && fabs(norms[0] - norms[1]) < 1e-5 * norms[0]);
  }
}

/* ---- initial states ---- */

static double gradient_in(const char *path, const char *name, int64_t index) {
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_load(path, &file), BPPSA_OK);
  const bppsa_view *view = bppsa_safetensors_find(file, name);
  assert_non_null(view);
  assert_true(view->ndim == 3 && view->shape[0] == 2 && view->shape[1] == 3 && view->shape[2] == 4);
  const double value = bppsa_view_get(view, index);
  bppsa_safetensors_destroy(file);
  return value;
}

static double loss_with(const char *path, const double *values, int64_t index, double step) {
  double moved[24];
  memcpy(moved, values, sizeof moved);
  moved[index] += step;
  const bppsa_view view = bppsa_view_make(moved, BPPSA_F64, 3, (int64_t[]){2, 3, 4});
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
  json_t *document = run_json("grad lstm --weights W.safetensors --input X.npy --labels Y.npy --h0 H.npy --c0 C.npy "
                              "--out G.safetensors --json");
  const double loss = get_real(document, "loss");
  json_decref(document);
  return loss;
}

/* Gradients of h0 and c0, each under its name, against finite differences of the loss that the program prints. */
static void test_initial_states(void **state) {
  (void)state;
  static const char *const methods[] = {"--backward bp", "--algorithm chunked", "--backward bp --ranks 2",
                                        "--algorithm chunked --ranks 3 --split time"};
  const int64_t x[] = {7, 3, 1}, y[] = {3}, h[] = {2, 3, 4};
  write_reals("X.npy", BPPSA_F64, 3, x);
  write_labels("Y.npy", 1, y, -1, 0);
  assert_runs(
      "train lstm --seq-len 7 --samples 16 --hidden 4 --layers 2 --dtype f64 --iterations 1 --save-weights W.safetensors");
  double *values[] = {uniform(1, 24, 0.5), uniform(2, 24, 0.5)};
  static const char *const files[] = {"H.npy", "C.npy"}, *const names[] = {"h0", "c0"};
  for (int i = 0; i < 2; ++i) {
    const bppsa_view view = bppsa_view_make(values[i], BPPSA_F64, 3, h);
    assert_int_equal(bppsa_npy_save(files[i], &view), BPPSA_OK);
  }
  for (int i = 0; i < 4; ++i) {
    assert_runs("grad lstm --weights W.safetensors --input X.npy --labels Y.npy --h0 H.npy --c0 C.npy --out M%d.safetensors %s",
                i, methods[i]);
  }
  for (int which = 0; which < 2; ++which) {
    for (int64_t index = 0; index < 24; index += 5) {
      const double above = loss_with(files[which], values[which], index, 1e-5);
      const double below = loss_with(files[which], values[which], index, -1e-5), expected = (above - below) / 2e-5;
      (void)loss_with(files[which], values[which], index, 0);
      for (int i = 0; i < 4; ++i) {
        const char path[] = {'M', (char)('0' + i), '.', 's', 'a', 'f', 'e', 't', 'e', 'n', 's', 'o', 'r', 's', 0};
        assert_true(fabs(gradient_in(path, names[which], index) - expected) < 1e-9);
      }
    }
  }
  /* c0 alone: h0 is zeros. */
  json_t *document =
      run_json("grad lstm --weights W.safetensors --input X.npy --labels Y.npy --c0 C.npy --out G.safetensors --json");
  assert_int_equal(json_array_size(json_object_get(document, "tensors")), 10 + 1 + 2 + 1);
  json_decref(document);
  const bppsa_view flat = bppsa_view_make(values[0], BPPSA_F64, 2, (int64_t[]){6, 4});
  assert_int_equal(bppsa_npy_save("flat.npy", &flat), BPPSA_OK);
  assert_fails(2, "flat.npy", "grad lstm --weights W.safetensors --input X.npy --labels Y.npy --c0 flat.npy --out N");
  assert_fails(2, "none.npy", "grad lstm --weights W.safetensors --input X.npy --labels Y.npy --c0 none.npy --out N");
  assert_runs("train rnn --seq-len 7 --samples 16 --hidden 4 --iterations 1 --save-weights R.safetensors");
  assert_fails(2, "C.npy: an initial cell state for rnn, which has none, expected a network such as lstm",
               "grad rnn --weights R.safetensors --input X.npy --labels Y.npy --c0 C.npy --out N");
  bppsa_free(values[0]);
  bppsa_free(values[1]);
}

/* Every row is verified before it is timed. */
static void test_bench(void **state) {
  (void)state;
  for (int k = 0; k < CELLS; ++k) {
    json_t *document =
        run_json("bench %s --seq-len 30 --batch 2 --hidden 4 --layers 2 --repeats 3 --init default --json", cells[k].name);
    const json_t *rows = json_object_get(document, "rows");
    assert_string_equal(get_text(document, "bench"), cells[k].name);
    assert_true(json_array_size(rows) >= 5);
    for (size_t i = 0; i < json_array_size(rows); ++i) {
      const json_t *row = json_array_get(rows, i), *skipped = json_object_get(row, "skipped");
      if (skipped != NULL) { /* speculative BP of so few steps */
        assert_non_null(strstr(json_string_value(skipped), "one chunk"));
        continue;
      }
      assert_true(json_is_true(json_object_get(row, "ok")) && get_real(row, "residual") < 30);
      assert_false(json_is_true(json_object_get(row, "underflow"))); /* c's last gradient, 0, does not count */
    }
    json_decref(document);
  }
}

static void test_refusals(void **state) {
  (void)state;
  for (int k = 0; k < CELLS; ++k) {
    char expected[60];
    assert_fails(2, "--nonlinearity: unknown option", "train %s --nonlinearity tanh", cells[k].name);
    snprintf(expected, sizeof expected, "%s: blelloch needs at least ", cells[k].name);
    assert_fails(2, expected, "train %s " SMALL " --algorithm blelloch --memory-limit 30000", cells[k].name);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_train_and_eval), cmocka_unit_test(test_methods),
                                     cmocka_unit_test(test_checkpoint),     cmocka_unit_test(test_plan),
                                     cmocka_unit_test(test_grad),           cmocka_unit_test(test_initial_states),
                                     cmocka_unit_test(test_bench),          cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

/* --resets: `grad` beside the segments one by one; training, evaluation and a resumption; ranks; a learned reset state; what is
 * refused. */
#include "tests/cli/batch_files.h"

#include <math.h>

enum { STEPS = 6, SAMPLES = 3, HIDDEN = 3, SET = 12 };

static double x[STEPS][SAMPLES], g[STEPS][SAMPLES][HIDDEN];
static uint8_t mask[STEPS][SAMPLES] = {{0, 1, 0}, {0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {1, 0, 0}, {0, 1, 0}};

static int enter(void **state) {
  const int status = enter_directory(state);
  for (int i = 0; i < STEPS * SAMPLES; ++i) {
    x[i / SAMPLES][i % SAMPLES] = bppsa_random_double(1, BPPSA_STREAM_TEST, (uint64_t)i) - 0.5;
    for (int j = 0; j < HIDDEN; ++j) {
      g[i / SAMPLES][i % SAMPLES][j] = bppsa_random_double(2 + (uint64_t)j, BPPSA_STREAM_TEST, (uint64_t)i) - 0.5;
    }
  }
  write_array("X.npy", BPPSA_F64, x, 3, (int64_t[]){STEPS, SAMPLES, 1});
  write_array("G.npy", BPPSA_F64, g, 3, (int64_t[]){STEPS, SAMPLES, HIDDEN});
  return status;
}

static bppsa_safetensors *load(const char *path) {
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_load(path, &file), BPPSA_OK);
  return file;
}

/* Adds the weight gradients of one segment of a sample, from a run without resets, to a sum. */
static void add_segment(const char *cell, int64_t b, int64_t first, int64_t end, const bppsa_safetensors *rows, double *sum) {
  double own[STEPS], of[STEPS][HIDDEN];
  const int64_t steps = end - first;
  for (int64_t t = 0; t < steps; ++t) {
    own[t] = x[first + t][b];
    memcpy(of[t], g[first + t][b], sizeof of[t]);
  }
  write_array("x.npy", BPPSA_F64, own, 3, (int64_t[]){steps, 1, 1});
  write_array("g.npy", BPPSA_F64, of, 3, (int64_t[]){steps, 1, HIDDEN});
  assert_runs("grad %s --weights W.safetensors --input x.npy --grad-output g.npy --backward bp --out one.safetensors", cell);
  bppsa_safetensors *one = load("one.safetensors");
  char name[64];
  snprintf(name, sizeof name, "%s.weight_hh_l0", cell);
  const bppsa_view *weight = bppsa_safetensors_find(one, name), *input = bppsa_safetensors_find(one, "input"),
                   *all = bppsa_safetensors_find(rows, "input");
  for (int64_t i = 0; i < bppsa_view_count(weight); ++i) {
    sum[i] += bppsa_view_get(weight, i);
  }
  for (int64_t t = 0; t < steps; ++t) {
    assert_true(fabs(bppsa_view_get(input, t) - bppsa_view_get(all, (first + t) * SAMPLES + b)) < 1e-14);
  }
  bppsa_safetensors_destroy(one);
}

static void test_grad(void **state) {
  (void)state;
  static const char *const cells[] = {"rnn", "gru", "lstm"},
                           *const ways[] = {"--backward bp", "--algorithm blelloch", "--chunks 2",
                                            "--backward speculative --backward-chunks 2 --backward-tolerance 1e-15"};
  for (int k = 0; k < 12; ++k) {
    const char *cell = cells[k % 3];
    double sum[4 * HIDDEN * HIDDEN] = {0};
    char name[64];
    snprintf(name, sizeof name, "%s.weight_hh_l0", cell);
    write_array("R.npy", k % 2 == 0 ? BPPSA_BOOL : BPPSA_U8, mask, 2, (int64_t[]){STEPS, SAMPLES});
    assert_runs("train %s --seq-len 6 --samples 8 --hidden 3 --batch 4 --dtype f64 --iterations 1 --save-weights W.safetensors",
                cell);
    json_t *document = run_json("grad %s --weights W.safetensors --input X.npy --grad-output G.npy --resets R.npy %s --certify "
                                "--out rows.safetensors --json",
                                cell, ways[k / 3]);
    assert_true(json_is_true(json_object_get(document, "resets")));
    assert_true(get_real(json_object_get(document, "certificate"), "error") < 1e-12);
    json_decref(document);
    bppsa_safetensors *rows = load("rows.safetensors");
    for (int64_t b = 0; b < SAMPLES; ++b) {
      for (int64_t first = 0, end = 1; first < STEPS; first = end++) {
        while (end < STEPS && !mask[end][b]) {
          ++end;
        }
        add_segment(cell, b, first, end, rows, sum);
      }
    }
    const bppsa_view *weight = bppsa_safetensors_find(rows, name);
    for (int64_t i = 0; i < bppsa_view_count(weight); ++i) {
      assert_true(fabs(sum[i] - bppsa_view_get(weight, i)) < 1e-13);
    }
    bppsa_safetensors_destroy(rows);
  }
}

#define GRAD "grad gru --weights W.safetensors --input X.npy --grad-output G.npy --out o.safetensors --resets R.npy"

static void test_refused(void **state) {
  (void)state;
  uint8_t wrong[STEPS][SAMPLES] = {{0}};
  int64_t whole[STEPS][SAMPLES] = {{0}};
  wrong[4][2] = 3;
  assert_runs("train gru --seq-len 6 --samples 8 --hidden 3 --batch 4 --dtype f64 --iterations 1 --save-weights W.safetensors");
  write_array("R.npy", BPPSA_U8, wrong, 2, (int64_t[]){STEPS, SAMPLES});
  assert_fails(2, "R.npy: 3 at [4, 2], expected 0 or 1", GRAD);
  write_array("R.npy", BPPSA_U8, mask, 2, (int64_t[]){SAMPLES, STEPS});
  assert_fails(2, "R.npy: shape [3, 6], expected [T, B] = [6, 3]", GRAD);
  write_array("R.npy", BPPSA_I64, whole, 2, (int64_t[]){STEPS, SAMPLES});
  assert_fails(2, "R.npy: i64, expected bool or u8 resets", GRAD);
  assert_fails(2, "NONE.npy",
               "grad gru --weights W.safetensors --input X.npy --grad-output G.npy --out o.safetensors --resets "
               "NONE.npy");
}

/* Compares all tensors of two files. */
static void assert_close_files(const char *a, const char *b, double most) {
  bppsa_safetensors *first = load(a), *second = load(b);
  assert_int_equal(bppsa_safetensors_count(first), bppsa_safetensors_count(second));
  for (int64_t i = 0; i < bppsa_safetensors_count(first); ++i) {
    const bppsa_named_view *one = bppsa_safetensors_get(first, i);
    const bppsa_view *other = bppsa_safetensors_find(second, one->name);
    assert_true(other != NULL && bppsa_view_same_shape(&one->view, other));
    for (int64_t j = 0; j < bppsa_view_count(other); ++j) {
      assert_true(fabs(bppsa_view_get(&one->view, j) - bppsa_view_get(other, j)) <= most);
    }
  }
  bppsa_safetensors_destroy(first);
  bppsa_safetensors_destroy(second);
}

/* Ranks that share the batch, or time, find the gradients of one device; with a learned reset state too. */
static void test_ranks(void **state) {
  (void)state;
  static const char *const ways[] = {"--backward bp", "--algorithm blelloch", "--algorithm chunked",
                                     "--forward speculative --forward-chunks 3 --tolerance 0 --backward speculative "
                                     "--backward-chunks 3 --backward-warm-up 1 --backward-tolerance 1e-15"},
                           *const splits[] = {"--ranks 2", "--ranks 3 --split time", "--ranks 4 --split time:2,batch:2"};
  int64_t labels[STEPS][SAMPLES];
  for (int i = 0; i < STEPS * SAMPLES; ++i) {
    labels[i / SAMPLES][i % SAMPLES] = i % 7 % 2;
  }
  write_array("L.npy", BPPSA_I64, labels, 2, (int64_t[]){STEPS, SAMPLES});
  write_array("R.npy", BPPSA_BOOL, mask, 2, (int64_t[]){STEPS, SAMPLES});
  for (int k = 0; k < 24; ++k) {
    const bool learned = k >= 12;
    if (k % 12 / 3 == 3 && k % 3 != 1) {
      continue; /* ranks take speculative passes along time alone */
    }
    assert_runs("train lstm --seq-len 6 --samples 8 --hidden 3 --batch 4 --dtype f64 --loss all --iterations 1 --reset-state %s "
                "--save-weights W.safetensors",
                learned ? "learned" : "zeros");
    const char *way = ways[k % 12 / 3];
    assert_runs("grad lstm --weights W.safetensors --input X.npy --labels L.npy --resets R.npy %s --out one.safetensors", way);
    assert_runs("grad lstm --weights W.safetensors --input X.npy --labels L.npy --resets R.npy %s %s --out all.safetensors", way,
                splits[k % 3]);
    assert_close_files("one.safetensors", "all.safetensors", 1e-14);
  }
}

#define TRAIN                                                                                                                    \
  "train gru --seq-len 6 --samples 12 --hidden 3 --batch 5 --dtype f64 --layers 2 --loss all --resets N.npy --validation 0.25"

/* Writes a mask [N][T], of which one step of one sample may be another. */
static void save_set(int64_t at) {
  uint8_t set[SET][STEPS];
  for (int64_t i = 0; i < SET * STEPS; ++i) {
    set[i / STEPS][i % STEPS] = ((i * 7 + i / 5) % 4 == 0) != (i == at);
  }
  write_array("N.npy", BPPSA_BOOL, set, 2, (int64_t[]){SET, STEPS});
}

/* Every method has the same curve; eval has its loss; a resumed run ends with the bits of one that was not interrupted, also with
 * other threads, and refuses other resets. */
static void test_train(void **state) {
  (void)state;
  save_set(-1);
  static const char *const ways[] = {"--backward bp", "--algorithm blelloch", "--chunks 2",
                                     "--forward speculative --forward-chunks 2 --tolerance 0", "--bidirectional"};
  double first = 0;
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; ++i) {
    json_t *train = run_json(TRAIN " %s --iterations 9 --save-weights V%zu.safetensors --json", ways[i], i);
    const double loss = get_real(json_object_get(train, "final"), "validation_loss");
    first = i == 0 ? loss : first;
    assert_true(i == 4 ? fabs(loss - first) > 1e-9 : fabs(loss - first) < 1e-12);
    assert_true(json_is_true(json_object_get(json_object_get(train, "config"), "resets")));
    json_t *eval =
        run_json("eval gru --weights V%zu.safetensors --seq-len 6 --samples 12 --validation 0.25 --resets N.npy --json", i);
    assert_true(fabs(get_real(eval, "loss") - loss) < 1e-14);
    json_decref(eval);
    eval = run_json("eval gru --weights V%zu.safetensors --seq-len 6 --samples 12 --validation 0.25 --json", i);
    assert_true(fabs(get_real(eval, "loss") - loss) > 1e-9);
    json_decref(eval);
    json_decref(train);
  }
  assert_runs(TRAIN " --iterations 9 --threads 3 --save-weights whole.safetensors");
  assert_runs(TRAIN " --iterations 4 --checkpoint r");
  assert_runs(TRAIN " --iterations 9 --checkpoint r --resume --threads 1 --save-weights w.safetensors");
  assert_equal_files("w.safetensors", "whole.safetensors");
  save_set(9);
  assert_fails(2, "contradicts this run", TRAIN " --iterations 9 --checkpoint r --resume");
  assert_fails(2, "--resets: given beside --split gpipe, whose samples do not begin anew, expected none",
               TRAIN " --iterations 1 --ranks 2 --split gpipe");
  write_array("N.npy", BPPSA_U8, mask, 2, (int64_t[]){STEPS, SAMPLES});
  assert_fails(2, "N.npy: shape [6, 3], expected [N, T] = [12, 6]", TRAIN " --iterations 1");
}

/* Training on ranks has the curve of one device; the samples' masks follow them. */
static void test_train_ranks(void **state) {
  (void)state;
  save_set(-1);
  assert_runs(TRAIN " --iterations 6 --backward bp --save-weights one.safetensors");
  static const char *const splits[] = {"--ranks 2", "--ranks 3 --split time", "--ranks 4 --split time:2,batch:2",
                                       "--ranks 2 --split time --micro-batches 2"};
  for (size_t i = 0; i < sizeof splits / sizeof splits[0]; ++i) {
    assert_runs(TRAIN " --iterations 6 --backward bp %s --save-weights all.safetensors", splits[i]);
    assert_close_files("one.safetensors", "all.safetensors", 1e-12);
  }
}

#define LEARN TRAIN " --reset-state learned --lr 0.05"

/* A learned reset state begins with zeros, moves, is saved and loaded, and resumed with the bits of a run that was not interrupted.
 * The weights say that they have one. */
static void test_reset_state(void **state) {
  (void)state;
  save_set(-1);
  write_array("R.npy", BPPSA_U8, mask, 2, (int64_t[]){STEPS, SAMPLES});
  json_t *train = run_json(LEARN " --iterations 9 --threads 3 --save-weights whole.safetensors --json");
  const double loss = get_real(json_object_get(train, "final"), "validation_loss");
  assert_string_equal(json_string_value(json_object_get(json_object_get(train, "config"), "reset_state")), "learned");
  json_decref(train);
  bppsa_safetensors *file = load("whole.safetensors");
  const bppsa_view *learned = bppsa_safetensors_find(file, "gru.reset_state");
  assert_true(learned != NULL && learned->ndim == 2 && learned->shape[0] == 2 && learned->shape[1] == HIDDEN);
  for (int64_t i = 0; i < bppsa_view_count(learned); ++i) {
    assert_true(fabs(bppsa_view_get(learned, i)) > 1e-4);
  }
  bppsa_safetensors_destroy(file);
  json_t *eval =
      run_json("eval gru --weights whole.safetensors --seq-len 6 --samples 12 --validation 0.25 --resets N.npy --json");
  assert_true(fabs(get_real(eval, "loss") - loss) < 1e-14);
  json_decref(eval);
  assert_runs(LEARN " --iterations 4 --checkpoint q");
  assert_runs(LEARN " --iterations 9 --checkpoint q --resume --threads 1 --save-weights w.safetensors");
  assert_equal_files("w.safetensors", "whole.safetensors");
  assert_fails(2, "contradicts this run", TRAIN " --lr 0.05 --iterations 9 --checkpoint q --resume");
  json_t *grad = run_json("grad gru --weights whole.safetensors --input X.npy --grad-output G.npy --resets R.npy --certify "
                          "--reset-state learned --out o.safetensors --json");
  assert_true(get_real(json_object_get(grad, "certificate"), "error") < 1e-12);
  json_decref(grad);
  file = load("o.safetensors");
  assert_non_null(bppsa_safetensors_find(file, "gru.reset_state"));
  bppsa_safetensors_destroy(file);
  assert_fails(2, "--reset-state: zeros contradicts the weights in whole.safetensors, which have one, expected learned",
               "grad gru --weights whole.safetensors --input X.npy --grad-output G.npy --reset-state zeros --out o.safetensors");
  assert_runs("train gru --seq-len 6 --samples 8 --hidden 3 --batch 4 --dtype f64 --iterations 1 --save-weights V.safetensors");
  assert_fails(2, "--reset-state: learned contradicts the weights in V.safetensors, which have none, expected zeros",
               "eval gru --weights V.safetensors --seq-len 6 --samples 12 --reset-state learned");
  assert_fails(2, "--reset-state: 'ones'", TRAIN " --reset-state ones");
  assert_fails(2, "--reset-state learned: given beside --split gpipe, whose samples do not begin anew, expected zeros",
               "train gru --seq-len 6 --samples 12 --batch 4 --reset-state learned --iterations 1 --ranks 2 --split gpipe");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_grad),        cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_ranks),       cmocka_unit_test(test_train),
                                     cmocka_unit_test(test_train_ranks), cmocka_unit_test(test_reset_state)};
  return cmocka_run_group_tests(tests, enter, leave_directory);
}

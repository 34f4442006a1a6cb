/* --pack: rows have the losses of samples of their own lengths; training, evaluation, resumption; auto; what is refused. */
#include "tests/cli/batch_files.h"

#include <math.h>

enum { STEPS = 9, SET = 24 };

static int64_t lengths[SET];

static void save(const char *path, bppsa_dtype dtype, void *data, int32_t ndim, const int64_t *shape) {
  const bppsa_view view = bppsa_view_make(data, dtype, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
}

static int enter(void **state) {
  const int status = enter_directory(state);
  static double x[SET][STEPS][2], w[SET][STEPS];
  static uint8_t r[SET][STEPS];
  static int64_t each[SET][STEPS], one[SET];
  for (int i = 0; i < SET * STEPS; ++i) {
    x[i / STEPS][i % STEPS][0] = bppsa_random_double(1, BPPSA_STREAM_TEST, (uint64_t)i) - 0.5;
    x[i / STEPS][i % STEPS][1] = bppsa_random_double(2, BPPSA_STREAM_TEST, (uint64_t)i) - 0.5;
    w[i / STEPS][i % STEPS] = 0.1 + i % 7;
    r[i / STEPS][i % STEPS] = i % 11 == 0;
    each[i / STEPS][i % STEPS] = i * 5 % 3;
    one[i / STEPS] = i / STEPS % 3;
    lengths[i / STEPS] = 1 + i / STEPS * 5 % STEPS;
  }
  save("X.npy", BPPSA_F64, x, 3, (int64_t[]){SET, STEPS, 2});
  save("E.npy", BPPSA_I64, each, 2, (int64_t[]){SET, STEPS});
  save("Y.npy", BPPSA_I64, one, 1, (int64_t[]){SET});
  save("M.npy", BPPSA_F64, x, 3, (int64_t[]){SET, STEPS, 2});
  save("W.npy", BPPSA_F64, w, 2, (int64_t[]){SET, STEPS});
  save("R.npy", BPPSA_U8, r, 2, (int64_t[]){SET, STEPS});
  save("L.npy", BPPSA_I64, lengths, 1, (int64_t[]){SET});
  return status;
}

/* One batch holds all samples, so that each step of training has the same gradient from rows as from lengths. */
static void test_losses(void **state) {
  (void)state;
  static const struct {
    const char *loss, *data;
  } losses[] = {{"last", "npy:X.npy,Y.npy"}, {"all", "npy:X.npy,E.npy"}, {"mse-all", "npy:X.npy,M.npy"}};
  static const char *const ways[] = {"", "--resets R.npy --loss-weights W.npy", "--layers 2 --algorithm blelloch"};
  for (int k = 0; k < 9; ++k) {
    const char *loss = losses[k % 3].loss, *data = losses[k % 3].data, *way = ways[k / 3];
    json_t *by_lengths =
        run_json("train gru --data %s --loss %s --hidden 4 --batch 18 --validation 0.25 --dtype f64 --lengths L.npy "
                 "--iterations 4 --lr 0.05 %s --save-weights A.safetensors --json",
                 data, loss, way);
    json_t *evaluated =
        run_json("eval gru --data %s --validation 0.25 --weights A.safetensors --lengths L.npy %s --pack 20 --json", data,
                 k / 3 == 1 ? way : "");
    const double held = get_real(json_object_get(by_lengths, "final"), "validation_loss");
    assert_true(fabs(get_real(evaluated, "loss") - held) < 1e-14);
    assert_int_equal(get_integer(json_object_get(evaluated, "packing"), "samples"), SET);
    json_decref(evaluated);
    json_t *rows = json_object_get(by_lengths, "rows");
    for (int64_t steps = 9; steps < 40; steps += 22) {
      const int64_t batch = steps == 9 ? 10 : 3;
      json_t *packed =
          run_json("train gru --data %s --loss %s --hidden 4 --batch %d --validation 0.25 --dtype f64 --lengths L.npy "
                   "--iterations 4 --lr 0.05 %s --pack %d --json",
                   data, loss, (int)batch, way, (int)steps);
      assert_string_equal(get_text(json_object_get(packed, "config"), "loss_on"), k % 3 == 0 ? "last" : "all");
      for (size_t i = 0; i < 4; ++i) {
        assert_true(fabs(get_real(json_array_get(json_object_get(packed, "rows"), i), "loss") -
                         get_real(json_array_get(rows, i), "loss")) < 1e-12);
      }
      assert_true(fabs(get_real(json_object_get(packed, "final"), "validation_loss") - held) < 1e-12);
      json_decref(packed);
    }
    if (k == 4) { /* ranks that share the rows of a batch */
      json_t *packed =
          run_json("train gru --data %s --loss %s --hidden 4 --batch 3 --validation 0.25 --dtype f64 --lengths L.npy "
                   "--iterations 4 --lr 0.05 %s --pack 31 --ranks 2 --split batch --json",
                   data, loss, way);
      assert_true(fabs(get_real(json_object_get(packed, "final"), "validation_loss") - held) < 1e-12);
      json_decref(packed);
    }
    json_decref(by_lengths);
  }
}

#define TRAIN                                                                                                                    \
  "train lstm --data npy:X.npy,Y.npy --hidden 3 --batch 2 --validation 0.25 --lengths L.npy --seed 5 --epochs 3 --pack"

/* A resumed run ends with the bits of one that was not interrupted, and refuses another packing. auto goes on as the
 * checkpoint does. */
static void test_resume(void **state) {
  (void)state;
  assert_runs(TRAIN " 14 --log a.jsonl --save-weights whole.safetensors");
  assert_runs(
      "train lstm --data npy:X.npy,Y.npy --hidden 3 --batch 2 --validation 0.25 --lengths L.npy --seed 5 --epochs 1 --pack 14 "
      "--checkpoint r --checkpoint-every 1 --log b.jsonl");
  assert_fails(2, "contradicts this run", TRAIN " 15 --checkpoint r --checkpoint-every 1 --log b.jsonl --resume");
  assert_runs(TRAIN " 14 --checkpoint r --checkpoint-every 1 --log b.jsonl --resume --threads 3 --save-weights w.safetensors");
  assert_equal_files("w.safetensors", "whole.safetensors");
  assert_runs(TRAIN " auto --checkpoint s");
  assert_runs("train lstm --data npy:X.npy,Y.npy --hidden 3 --batch 2 --validation 0.25 --lengths L.npy --seed 5 --epochs 4 "
              "--pack auto --checkpoint s --resume");
  json_t *document = run_json(TRAIN " auto --json");
  const json_t *config = json_object_get(document, "config");
  const bool faster = get_real(config, "pack_rows_s") < get_real(config, "pack_samples_s");
  assert_true(faster == (json_object_get(config, "packing") != NULL));
  json_decref(document);
}

static void test_refused(void **state) {
  (void)state;
  assert_fails(2, "packing: sample 7 has 9 steps, expected at most 8, the steps of a row", TRAIN " 8");
  assert_fails(2, "--pack: 'some', expected a whole number of steps, from 1 to 2147483647, or auto", TRAIN " some");
  assert_fails(2, "--pack: '0', expected a whole number of steps", TRAIN " 0");
  assert_fails(2, "--pack: given beside --bidirectional and a loss of the last step", TRAIN " 20 --bidirectional");
  int64_t order[2] = {0, 1};
  save("O.npy", BPPSA_I64, order, 1, (int64_t[]){2});
  assert_fails(2, "--order: given beside --pack, whose rows hold several samples, expected one of them",
               TRAIN " 20 --order O.npy");
  assert_fails(2, "--pack: auto beside ranks", TRAIN " auto --ranks 2");
  assert_fails(2, "--pack: given beside --split gpipe, whose samples do not begin anew, expected none",
               TRAIN " 9 --ranks 2 --split gpipe");
  assert_runs("train gru --data npy:X.npy,Y.npy --hidden 3 --batch 4 --iterations 1 --save-weights V.safetensors");
  assert_fails(2, "--out: given beside --pack",
               "eval gru --data npy:X.npy,Y.npy --lengths L.npy --weights V.safetensors --pack 20 --out o.npz");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_losses), cmocka_unit_test(test_resume),
                                     cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, enter, leave_directory);
}

/* train --order and --no-shuffle: the same samples in the same order give the same weights, bit for bit. */
#include "tests/cli/batch_files.h"

#include "train/data/dataset.h"

#define TRAIN "train rnn --seq-len 6 --samples 60 --hidden 4 --batch 8 --validation 0.2 --seed 5 " /* 48 to train on */

static void write_order(const char *path, int32_t ndim, const int64_t *shape, int64_t *indices) {
  const bppsa_view view = bppsa_view_make(indices, BPPSA_I64, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
}

static void assert_same_bytes(const char *a, const char *b, int same) {
  size_t a_size = 0, b_size = 0;
  char *a_bytes = read_bytes(a, &a_size), *b_bytes = read_bytes(b, &b_size);
  assert_int_equal(a_size, b_size);
  assert_int_equal(memcmp(a_bytes, b_bytes, a_size) == 0, same);
  free(a_bytes);
  free(b_bytes);
}

static void test_in_order(void **state) {
  (void)state;
  int64_t indices[48];
  for (int64_t i = 0; i < 48; ++i) {
    indices[i] = i;
  }
  write_order("O.npy", 1, (int64_t[]){48}, indices);
  assert_runs(TRAIN "--epochs 2 --no-shuffle --save-weights A");
  assert_runs(TRAIN "--epochs 2 --order O.npy --save-weights B");
  assert_runs(TRAIN "--epochs 2 --save-weights C");
  assert_same_bytes("A", "B", 1);
  assert_same_bytes("A", "C", 0);
}

/* The shuffled order of every epoch, given, is what shuffling does. */
static void test_rows(void **state) {
  (void)state;
  int64_t indices[3 * 48];
  for (int64_t e = 0; e < 3; ++e) {
    bppsa_shuffle(5, e + 1, 48, indices + 48 * e);
  }
  write_order("O.npy", 2, (int64_t[]){3, 48}, indices);
  assert_runs(TRAIN "--epochs 3 --order O.npy --save-weights A");
  assert_runs(TRAIN "--epochs 3 --save-weights B");
  assert_same_bytes("A", "B", 1);
  assert_runs(TRAIN "--iterations 18 --order O.npy");
  assert_fails(2, "O.npy: the order of 3 epochs, expected 4 as the run has", TRAIN "--iterations 19 --order O.npy");
  assert_fails(2, "O.npy: the order of 3 epochs, expected 4", TRAIN "--epochs 4 --order O.npy");
}

/* Some samples, some of them twice: an epoch is as long as the order. */
static void test_sequence(void **state) {
  (void)state;
  int64_t indices[10] = {3, 3, 47, 0, 1, 2, 3, 9, 9, 30};
  write_order("O.npy", 1, (int64_t[]){10}, indices);
  json_t *document = run_json(TRAIN "--epochs 3 --order O.npy --json");
  assert_int_equal(get_integer(document, "steps_done"), 6);
  assert_string_equal(get_text(json_object_get(document, "config"), "order"), "O.npy");
  json_decref(document);
  assert_fails(2, "--batch: 11, more than the 10 training samples", TRAIN "--batch 11 --order O.npy");
}

static void test_refused(void **state) {
  (void)state;
  int64_t indices[4] = {0, 47, 48, 1};
  write_order("O.npy", 2, (int64_t[]){2, 2}, indices);
  const int files = count_files();
  assert_fails(2, "O.npy: index 48 at [1, 0], expected 0 .. 47, the samples to train on",
               TRAIN "--batch 1 --epochs 2 --order O.npy --log L --save-weights W");
  write_order("O3.npy", 1, (int64_t[]){3}, (int64_t[]){0, 48, -1}); /* fewer samples than a batch: the index is named first */
  assert_fails(2, "O3.npy: index 48 at [1], expected 0 .. 47, the samples to train on", TRAIN "--order O3.npy");
  write_order("O3.npy", 2, (int64_t[]){1, 3}, (int64_t[]){0, 1, -1});
  assert_fails(2, "O3.npy: index -1 at [0, 2], expected 0 .. 47", TRAIN "--order O3.npy");
  write_order("O3.npy", 1, (int64_t[]){3}, (int64_t[]){0, 47, 1});
  assert_fails(2, "--batch: 8, more than the 3 training samples", TRAIN "--order O3.npy");
  assert_int_equal(remove("O3.npy"), 0);
  assert_fails(2, "--no-shuffle: given beside --order", TRAIN "--order O.npy --no-shuffle");
  assert_fails(2, "X.npy: f64 [7, 3, 1], expected int64 indices of samples, [M] or [E, M]", TRAIN "--order X.npy");
  assert_fails(2, "none.npy", TRAIN "--order none.npy");
  assert_fails(2, "--log: ./O.npy, the file of --order", TRAIN "--order O.npy --log ./O.npy");
  assert_int_equal(count_files(), files);
}

/* A resumed run goes on within the order, and refuses another one. */
static void test_resumed(void **state) {
  (void)state;
  int64_t indices[2 * 20];
  for (int64_t i = 0; i < 40; ++i) {
    indices[i] = 7 * i % 48;
  }
  write_order("O.npy", 2, (int64_t[]){2, 20}, indices);
  assert_runs(TRAIN "--iterations 6 --order O.npy --save-weights A");
  assert_runs(TRAIN "--iterations 2 --order O.npy --checkpoint d"); /* within the first epoch of three steps */
  assert_runs(TRAIN "--iterations 6 --order O.npy --checkpoint d --resume --save-weights B");
  assert_same_bytes("A", "B", 1);
  assert_fails(2, "checkpoint in d: order given 2 20 ", TRAIN "--iterations 7 --checkpoint d --resume");
  assert_fails(2, " contradicts this run, which has shuffled, expected the same", TRAIN "--iterations 7 --checkpoint d --resume");
  assert_fails(2, "which has data, expected the same", TRAIN "--iterations 7 --checkpoint d --resume --no-shuffle");
  indices[39] = 11;
  write_order("O.npy", 2, (int64_t[]){2, 20}, indices);
  assert_fails(2, "checkpoint in d: order given 2 20 ", TRAIN "--iterations 6 --order O.npy --checkpoint d --resume");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_order), cmocka_unit_test(test_rows),
                                     cmocka_unit_test(test_sequence), cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_resumed)};
  return cmocka_run_group_tests(tests, enter_with_batch, leave_directory);
}

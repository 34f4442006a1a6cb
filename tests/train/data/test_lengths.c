/* The lengths of a data set's samples: files, identity, refusals; the loss of rows in front of the samples' ends. */
#include <math.h>

#include "core/files/npy.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"
#include "train/data/lengths.h"
#include "train/loss.h"

enum { SAMPLES = 5, STEPS = 7 };

static void put(const char *path, bppsa_dtype dtype, int32_t ndim, const int64_t *shape, void *values) {
  const bppsa_view view = bppsa_view_make(values, dtype, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
}

static bppsa_dataset *bits(void) {
  const bppsa_dataset_options options = {.samples = SAMPLES, .seq_len = STEPS};
  bppsa_dataset *dataset;
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_OK);
  return dataset;
}

static void test_files(void **state) {
  (void)state;
  int64_t lengths[2][SAMPLES] = {{7, 1, 3, 3, 2}, {7, 1, 3, 2, 3}}, *found = NULL;
  uint64_t identity[3];
  bppsa_dataset *dataset = bits();
  identity[0] = dataset->identity;
  for (int i = 0; i < 2; ++i) {
    put("lengths.npy", BPPSA_I64, 1, (int64_t[]){SAMPLES}, lengths[i]);
    assert_int_equal(bppsa_lengths_load("lengths.npy", SAMPLES, STEPS, &found), BPPSA_OK);
    assert_memory_equal(found, lengths[i], sizeof lengths[i]);
    bppsa_free(found);
    bppsa_dataset_destroy(dataset);
    dataset = bits();
    assert_null(dataset->lengths);
    assert_int_equal(bppsa_dataset_load_lengths(dataset, "lengths.npy"), BPPSA_OK);
    assert_memory_equal(dataset->lengths, lengths[i], sizeof lengths[i]);
    identity[1 + i] = dataset->identity;
  }
  assert_true(identity[0] != identity[1] && identity[0] != identity[2] && identity[1] != identity[2]);
  assert_int_equal(bppsa_dataset_load_lengths(dataset, "lengths.npy"), BPPSA_OK); /* again */
  bppsa_dataset_destroy(dataset);
}

static void test_refusals(void **state) {
  (void)state;
  int64_t lengths[SAMPLES] = {7, 1, 8, 3, 2}, *found = NULL;
  double reals[SAMPLES] = {1, 1, 1, 1, 1};
  put("lengths.npy", BPPSA_I64, 1, (int64_t[]){SAMPLES}, lengths);
  assert_error(bppsa_lengths_load("lengths.npy", SAMPLES, STEPS, &found), BPPSA_ERR_ARGUMENT,
               "lengths.npy: length 8 at [2], expected 1 .. 7, the steps of the inputs");
  lengths[2] = 0;
  put("lengths.npy", BPPSA_I64, 1, (int64_t[]){SAMPLES}, lengths);
  assert_error(bppsa_lengths_load("lengths.npy", SAMPLES, STEPS, &found), BPPSA_ERR_ARGUMENT, "length 0 at [2], expected 1 .. 7");
  assert_error(bppsa_lengths_load("lengths.npy", SAMPLES + 1, STEPS, &found), BPPSA_ERR_SHAPE, "lengths.npy");
  put("lengths.npy", BPPSA_F64, 1, (int64_t[]){SAMPLES}, reals);
  assert_error(bppsa_lengths_load("lengths.npy", SAMPLES, STEPS, &found), BPPSA_ERR_FORMAT,
               "lengths.npy: dtype f64, expected i64 lengths");
  assert_int_not_equal(bppsa_lengths_load("nowhere.npy", SAMPLES, STEPS, &found), BPPSA_OK);
  assert_null(found);
  bppsa_dataset *dataset = bits();
  dataset->image[0] = 1;
  assert_error(bppsa_dataset_load_lengths(dataset, "lengths.npy"), BPPSA_ERR_ARGUMENT, "lengths of images, expected sequences");
  bppsa_dataset_destroy(dataset);
}

static bppsa_status load(void *argument) {
  int64_t *found = NULL;
  (void)argument;
  const bppsa_status status = bppsa_lengths_load("lengths.npy", SAMPLES, STEPS, &found);
  bppsa_free(found);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  int64_t lengths[SAMPLES] = {7, 1, 5, 3, 2};
  put("lengths.npy", BPPSA_I64, 1, (int64_t[]){SAMPLES}, lengths);
  assert_true(walk_allocations(load, NULL) >= 2);
}

/* The loss on every step is that of the rows in front of the ends alone, of labels with ignored ones, squares and probabilities; of
 * the others nothing is read, and their seed is 0. A part divides by the rows that it is told. */
static void test_loss(void **state) {
  (void)state;
  enum { T = 4, B = 3, C = 2, ROWS = T * B };
  static const int64_t lengths[B] = {2, 4, 1}, shape[3] = {T, B, C}, counted = 7;
  for (int kind = 0; kind < 4; ++kind) {
    double *x = uniform(1, ROWS * C, 2), *y = uniform(2, ROWS * C, 1), seed[ROWS * C], kept[ROWS * C], goals[ROWS * C],
           same[ROWS * C];
    int64_t labels[ROWS], kept_labels[ROWS], rows = 0;
    for (int64_t r = 0; r < ROWS; ++r) {
      const bool runs = r / B < lengths[r % B];
      labels[r] = !runs ? 99 : r % 5 == 0 ? -1 : r % C;
      for (int64_t c = 0; c < C; ++c) {
        y[r * C + c] = runs ? fabs(y[r * C + c]) : (double)NAN;
        x[r * C + c] = runs ? x[r * C + c] : (double)NAN;
        kept[rows * C + c] = x[r * C + c];
        goals[rows * C + c] = y[r * C + c];
      }
      kept_labels[rows] = labels[r];
      rows += runs ? 1 : 0;
    }
    const bool real = kind >= 2;
    const bppsa_view logits = bppsa_view_make(x, BPPSA_F64, 3, shape), targets = bppsa_view_make(y, BPPSA_F64, 3, shape);
    const bppsa_view out = bppsa_view_make(seed, BPPSA_F64, 3, shape),
                     few = bppsa_view_make(kept, BPPSA_F64, 2, (int64_t[]){counted, C});
    const bppsa_view few_goals = bppsa_view_make(goals, BPPSA_F64, 2, few.shape),
                     few_out = bppsa_view_make(same, BPPSA_F64, 2, few.shape);
    const bppsa_objective objective = {kind == 3 ? BPPSA_LOSS_BINARY
                                       : real    ? BPPSA_LOSS_SQUARED
                                                 : BPPSA_LOSS_CROSS_ENTROPY,
                                       kind == 1, -1};
    bppsa_loss_rows all = {
        .labels = real ? NULL : labels, .targets = real ? &targets : NULL, .objective = objective, .lengths = lengths};
    bppsa_loss_rows others = {.labels = real ? NULL : kept_labels, .targets = real ? &few_goals : NULL, .objective = objective};
    for (int64_t r = 0; kind == 0 && r < ROWS; ++r) { /* without ignored ones */
      labels[r] = labels[r] < 0 ? 1 : labels[r];
      kept_labels[r] = r < counted && kept_labels[r] < 0 ? 1 : kept_labels[r];
    }
    bppsa_loss_result found, expected, part;
    assert_int_equal(rows, counted);
    assert_int_equal(bppsa_loss_of(NULL, &logits, &all, &out, &found), BPPSA_OK);
    assert_int_equal(bppsa_loss_of(NULL, &few, &others, &few_out, &expected), BPPSA_OK);
    assert_true(found.loss > 0 && fabs(found.loss - expected.loss) < 1e-15);
    assert_int_equal(found.rows, expected.rows);
    assert_int_equal(found.correct, expected.correct);
    int64_t at = 0;
    for (int64_t r = 0; r < ROWS; ++r) {
      const bool runs = r / B < lengths[r % B];
      for (int64_t c = 0; c < C; ++c) {
        assert_true(seed[r * C + c] == (runs ? same[at * C + c] : 0));
      }
      at += runs ? 1 : 0;
    }
    all.mean_rows = 2 * found.rows;
    assert_int_equal(bppsa_loss_part(NULL, &logits, &all, NULL, &part), BPPSA_OK);
    assert_true(fabs(part.loss - found.loss / 2) < 1e-15 && part.rows == found.rows);
    bppsa_free(x);
    bppsa_free(y);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_files), cmocka_unit_test(test_refusals), cmocka_unit_test(test_memory),
                                     cmocka_unit_test(test_loss)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

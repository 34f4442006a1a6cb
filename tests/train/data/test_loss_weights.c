/* The weights of a data set's losses: files, shapes, identity, refusals. */
#include <math.h>

#include "core/files/npy.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"
#include "train/data/lengths.h"
#include "train/data/loss_weights.h"

enum { SAMPLES = 3, STEPS = 4 };

static void put(const char *path, bppsa_dtype dtype, int32_t ndim, const int64_t *shape, void *values) {
  const bppsa_view view = bppsa_view_make(values, dtype, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
}

static bppsa_dataset *bits(bool per_step) {
  const bppsa_dataset_options options = {.samples = SAMPLES, .seq_len = STEPS, .labels_per_step = per_step};
  bppsa_dataset *dataset;
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_OK);
  return dataset;
}

static double all[SAMPLES][STEPS] = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 12}};
static const int64_t both[2] = {SAMPLES, STEPS};

/* Weights are divided by 8, the power of two that brings 12 into 1 .. 2. */
static void test_shapes(void **state) {
  (void)state;
  double of_samples[SAMPLES] = {0.5, 0, 1}, *found = NULL, turned[STEPS][SAMPLES];
  float narrow[SAMPLES] = {1, 1, 1};
  bool mask[SAMPLES] = {true, false, true};
  int64_t lengths[SAMPLES] = {4, 1, 3};
  put("W.npy", BPPSA_F64, 2, both, all);
  bppsa_loss_weights_shape shape = {SAMPLES, STEPS, false, true, NULL};
  assert_int_equal(bppsa_loss_weights_load("W.npy", &shape, &found), BPPSA_OK);
  for (int i = 0; i < SAMPLES * STEPS; ++i) {
    assert_true(found[i] == all[i / STEPS][i % STEPS] / 8);
    turned[i % STEPS][i / STEPS] = all[i / STEPS][i % STEPS];
  }
  bppsa_free(found);
  shape.per_step = false;
  assert_int_equal(bppsa_loss_weights_load("W.npy", &shape, &found), BPPSA_OK);
  assert_true(found[0] == 3.0 / 8 && found[1] == 7.0 / 8 && found[2] == 12.0 / 8);
  bppsa_free(found);
  shape.lengths = lengths;
  assert_int_equal(bppsa_loss_weights_load("W.npy", &shape, &found), BPPSA_OK);
  assert_true(found[0] == 3.0 / 8 && found[1] == 4.0 / 8 && found[2] == 10.0 / 8);
  bppsa_free(found);
  shape.time_first = true;
  put("W.npy", BPPSA_F64, 2, (int64_t[]){STEPS, SAMPLES}, turned);
  assert_int_equal(bppsa_loss_weights_load("W.npy", &shape, &found), BPPSA_OK);
  assert_true(found[0] == 3.0 / 8 && found[1] == 4.0 / 8 && found[2] == 10.0 / 8);
  bppsa_free(found);
  put("W.npy", BPPSA_F64, 1, (int64_t[]){SAMPLES}, of_samples);
  assert_int_equal(bppsa_loss_weights_load("W.npy", &shape, &found), BPPSA_OK);
  assert_memory_equal(found, of_samples, sizeof of_samples);
  bppsa_free(found);
  put("W.npy", BPPSA_F32, 1, (int64_t[]){SAMPLES}, narrow);
  assert_int_equal(bppsa_loss_weights_load("W.npy", &shape, &found), BPPSA_OK);
  assert_true(found[0] == 1 && found[1] == 1 && found[2] == 1);
  bppsa_free(found);
  put("W.npy", BPPSA_BOOL, 1, (int64_t[]){SAMPLES}, mask);
  assert_int_equal(bppsa_loss_weights_load("W.npy", &shape, &found), BPPSA_OK);
  assert_true(found[0] == 1 && found[1] == 0 && found[2] == 1);
  bppsa_free(found);
}

static void test_set(void **state) {
  (void)state;
  uint64_t identity[3];
  int64_t lengths[SAMPLES] = {4, 1, 3};
  double others[SAMPLES][STEPS] = {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}};
  put("L.npy", BPPSA_I64, 1, (int64_t[]){SAMPLES}, lengths);
  bppsa_dataset *dataset = bits(true);
  identity[0] = dataset->identity;
  for (int i = 0; i < 2; ++i) {
    put("W.npy", BPPSA_F64, 2, both, i == 0 ? all : others);
    bppsa_dataset_destroy(dataset);
    dataset = bits(true);
    assert_int_equal(bppsa_dataset_load_loss_weights(dataset, "W.npy"), BPPSA_OK);
    identity[1 + i] = dataset->identity;
  }
  assert_true(identity[0] != identity[1] && identity[0] != identity[2] && identity[1] != identity[2]);
  assert_int_equal(bppsa_dataset_load_loss_weights(dataset, "W.npy"), BPPSA_OK); /* again */
  bppsa_dataset_destroy(dataset);
  put("W.npy", BPPSA_F64, 2, both, all);
  dataset = bits(false);
  assert_int_equal(bppsa_dataset_load_lengths(dataset, "L.npy"), BPPSA_OK);
  assert_int_equal(bppsa_dataset_load_loss_weights(dataset, "W.npy"), BPPSA_OK);
  assert_true(dataset->loss_weights[1] == 4.0 / 8);
  bppsa_dataset_destroy(dataset);
}

static void test_refusals(void **state) {
  (void)state;
  double wrong[SAMPLES][STEPS] = {{1, 1, 1, 1}, {1, 1, -2, 1}, {1, 1, 1, 1}}, *found = NULL;
  const bppsa_loss_weights_shape shape = {SAMPLES, STEPS, false, true, NULL}, last = {SAMPLES, STEPS, false, false, NULL};
  put("W.npy", BPPSA_F64, 2, both, wrong);
  assert_error(bppsa_loss_weights_load("W.npy", &shape, &found), BPPSA_ERR_ARGUMENT,
               "W.npy: weight -2 at [1, 2], expected 0 or more");
  wrong[1][2] = (double)INFINITY;
  put("W.npy", BPPSA_F64, 2, both, wrong);
  assert_error(bppsa_loss_weights_load("W.npy", &shape, &found), BPPSA_ERR_FORMAT, "W.npy: element 6 is not finite");
  memset(wrong, 0, sizeof wrong);
  put("W.npy", BPPSA_F64, 2, both, wrong);
  assert_error(bppsa_loss_weights_load("W.npy", &shape, &found), BPPSA_ERR_ARGUMENT,
               "W.npy: all weights are 0, expected at least one above 0");
  wrong[0][0] = 1;
  put("W.npy", BPPSA_F64, 2, both, wrong);
  assert_error(bppsa_loss_weights_load("W.npy", &last, &found), BPPSA_ERR_ARGUMENT, "W.npy: all weights of last steps are 0");
  put("W.npy", BPPSA_F64, 2, (int64_t[]){STEPS, SAMPLES}, wrong);
  assert_error(bppsa_loss_weights_load("W.npy", &shape, &found), BPPSA_ERR_SHAPE,
               "W.npy: shape [4, 3], expected [N, T] = [3, 4]");
  put("W.npy", BPPSA_F64, 1, (int64_t[]){SAMPLES}, wrong);
  assert_error(bppsa_loss_weights_load("W.npy", &shape, &found), BPPSA_ERR_SHAPE, "W.npy: shape [3], expected [N, T] = [3, 4]");
  put("W.npy", BPPSA_F64, 1, (int64_t[]){STEPS}, wrong);
  assert_error(bppsa_loss_weights_load("W.npy", &last, &found), BPPSA_ERR_SHAPE, "W.npy: shape [4], expected [N] = [3]");
  assert_int_not_equal(bppsa_loss_weights_load("nowhere.npy", &shape, &found), BPPSA_OK);
  assert_null(found);
  bppsa_dataset *dataset = bits(false);
  dataset->image[0] = 1;
  assert_error(bppsa_dataset_load_loss_weights(dataset, "W.npy"), BPPSA_ERR_ARGUMENT,
               "loss weights of images, expected sequences");
  bppsa_dataset_destroy(dataset);
}

static bppsa_status load(void *argument) {
  const bppsa_loss_weights_shape shape = {SAMPLES, STEPS, false, true, NULL};
  double *found = NULL;
  (void)argument;
  const bppsa_status status = bppsa_loss_weights_load("W.npy", &shape, &found);
  bppsa_free(found);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  put("W.npy", BPPSA_F64, 2, both, all);
  assert_true(walk_allocations(load, NULL) >= 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_set), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

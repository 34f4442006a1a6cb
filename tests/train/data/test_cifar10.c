/* CIFAR-10's binary format: read, written, damaged. */
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/core/helpers.h"
#include "tests/support/support.h"
#include "train/data/cifar10.h"
#include "train/data/dataset.h"

#define FOLDER "cifar10_test"

static void clear(void) {
  char path[64];
  for (int i = 0; i < BPPSA_CIFAR10_FILES; ++i) {
    snprintf(path, sizeof path, FOLDER "/%s", bppsa_cifar10_file(i));
    unlink(path);
  }
  rmdir(FOLDER);
}

/* A file of `count` records, labels first + 0, 1, .., pixel k of all of them (label + k) mod 256. */
static void put_records(int file, int first, int count, size_t cut) {
  char path[64];
  uint8_t *bytes = malloc((size_t)count * BPPSA_CIFAR10_RECORD);
  for (int i = 0; i < count; ++i) {
    bytes[i * BPPSA_CIFAR10_RECORD] = (uint8_t)(first + i);
    for (int k = 0; k < BPPSA_CIFAR10_PIXELS; ++k) {
      bytes[i * BPPSA_CIFAR10_RECORD + 1 + k] = (uint8_t)(first + i + k);
    }
  }
  mkdir(FOLDER, 0777);
  snprintf(path, sizeof path, FOLDER "/%s", bppsa_cifar10_file(file));
  put_file(path, bytes, (size_t)count * BPPSA_CIFAR10_RECORD - cut);
  free(bytes);
}

static bppsa_status open_set(int64_t samples, bppsa_dataset **set) {
  bppsa_dataset_options options = bppsa_dataset_options_default();
  options.samples = samples;
  return bppsa_dataset_create("cifar10:" FOLDER, &options, set);
}

static void test_read(void **state) {
  (void)state;
  clear();
  put_records(0, 0, 3, 0);
  put_records(3, 3, 2, 0); /* gaps are legal */
  put_records(5, 7, 2, 0);
  bppsa_dataset *set = NULL;
  assert_int_equal(open_set(0, &set), BPPSA_OK);
  assert_int_equal(set->samples, 7);
  assert_int_equal(set->held_out, 2);
  assert_int_equal(set->image[0] * 10000 + set->image[1] * 100 + set->image[2], 33232);
  bppsa_split split;
  assert_int_equal(bppsa_dataset_split(set, 0, &split), BPPSA_OK);
  assert_int_equal(split.train * 10 + split.validation, 52);
  assert_int_equal(bppsa_dataset_split(set, 0.4, &split), BPPSA_OK); /* of those trained on */
  assert_int_equal(split.train * 10 + split.validation, 32);
  int64_t shape[4], labels[2];
  const int64_t indices[2] = {6, 3};
  for (bppsa_dtype dtype = BPPSA_F32; dtype <= BPPSA_F64; ++dtype) {
    assert_int_equal(bppsa_dataset_shape(set, 2, shape), 4);
    bppsa_view x = bppsa_view_make(bppsa_calloc(2 * BPPSA_CIFAR10_PIXELS, sizeof(double)), dtype, 4, shape);
    assert_int_equal(bppsa_dataset_fill(set, NULL, 2, indices, &x, labels), BPPSA_OK);
    assert_int_equal(labels[0] * 10 + labels[1], 83);
    for (int k = 0; k < BPPSA_CIFAR10_PIXELS; ++k) { /* (x / 255 - 0.5) / 0.25 */
      const double expected = (((8 + k) % 256) / 255.0 - 0.5) / 0.25;
      assert_true(fabs(bppsa_view_get(&x, k) - expected) < 1e-6);
    }
    bppsa_free(x.data);
  }
  const uint64_t identity = set->identity;
  bppsa_dataset_destroy(set);
  assert_int_equal(open_set(4, &set), BPPSA_OK); /* the first ones, and the held-out part */
  assert_int_equal(set->samples * 10 + set->held_out, 62);
  assert_true(set->identity != identity);
  assert_int_equal(bppsa_dataset_fill(set, NULL, 1, &(int64_t){3}, NULL, labels), BPPSA_OK);
  assert_int_equal(labels[0], 3);
  bppsa_dataset_destroy(set);
  clear();
}

static void test_damage(void **state) {
  (void)state;
  bppsa_dataset *set = NULL;
  clear();
  assert_int_equal(open_set(0, &set), BPPSA_ERR_ARGUMENT);
  assert_message(FOLDER ": no data_batch_1.bin");
  put_records(5, 0, 2, 0);
  assert_int_equal(open_set(0, &set), BPPSA_ERR_ARGUMENT); /* nothing to train on */
  put_records(1, 0, 3, 1);
  assert_int_equal(open_set(0, &set), BPPSA_ERR_FORMAT);
  assert_message("data_batch_2.bin: 9218 bytes, expected records of 3073 bytes");
  put_records(1, 0, 1, BPPSA_CIFAR10_RECORD);
  assert_int_equal(open_set(0, &set), BPPSA_ERR_FORMAT);
  put_records(1, 9, 2, 0);
  assert_int_equal(open_set(0, &set), BPPSA_ERR_FORMAT);
  assert_message("data_batch_2.bin: label 10 at byte 3073, expected 0 .. 9");
  put_records(1, 0, 3, 0);
  assert_int_equal(open_set(4, &set), BPPSA_ERR_ARGUMENT);
  assert_message("has 3 samples to train on, but 4 were asked for");
  bppsa_dataset_options options = bppsa_dataset_options_default();
  options.labels_per_step = true;
  assert_int_equal(bppsa_dataset_create("cifar10:" FOLDER, &options, &set), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_dataset_create("cifar10:", &options, &set), BPPSA_ERR_ARGUMENT);
  assert_message("expected a directory, cifar10:DIR");
  clear();
}

static bppsa_status open_and_close(void *argument) {
  bppsa_dataset *set = NULL;
  (void)argument;
  BPPSA_TRY(open_set(0, &set));
  bppsa_dataset_destroy(set);
  return BPPSA_OK;
}

static bppsa_status write_and_remove(void *argument) {
  (void)argument;
  const bppsa_status status = bppsa_cifar10_write(FOLDER, 12, 3, 1, NULL, NULL);
  clear();
  return status;
}

static void test_memory(void **state) {
  (void)state;
  clear();
  assert_true(walk_allocations(write_and_remove, NULL) > 2);
  put_records(0, 0, 3, 0);
  put_records(5, 0, 1, 0);
  assert_true(walk_allocations(open_and_close, NULL) > 2);
  clear();
}

/* Labels in turn, the same bytes with any number of threads and samples, others with another seed. */
static void test_synthetic(void **state) {
  (void)state;
  bppsa_dataset *set = NULL;
  uint8_t a[BPPSA_CIFAR10_RECORD], b[BPPSA_CIFAR10_RECORD], file[7 * BPPSA_CIFAR10_RECORD];
  clear();
  assert_int_equal(bppsa_cifar10_write(FOLDER, 31, 5, 3, NULL, NULL), BPPSA_OK);
  assert_int_equal(open_set(0, &set), BPPSA_OK);
  assert_int_equal(set->samples * 10 + set->held_out, 376);
  bppsa_dataset_destroy(set);
  assert_int_equal(get_file(FOLDER "/data_batch_2.bin", file, sizeof file), 6 * BPPSA_CIFAR10_RECORD); /* records 6 .. 11 */
  for (int i = 0; i < 6; ++i) {
    bppsa_cifar10_draw(5, 6 + i, a);
    assert_memory_equal(file + i * BPPSA_CIFAR10_RECORD, a, sizeof a);
    assert_int_equal(a[0], (6 + i) % 10);
  }
  bppsa_cifar10_draw(6, 11, b);
  assert_memory_not_equal(a, b, sizeof a);
  assert_int_equal(bppsa_cifar10_write(FOLDER, 31, 5, 1, NULL, NULL), BPPSA_ERR_ARGUMENT);
  assert_message("data_batch_1.bin: is there already");
  clear();
  assert_int_equal(bppsa_cifar10_write(FOLDER, 9, 5, 1, NULL, NULL), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_cifar10_write("no/such/place", 10, 5, 1, NULL, NULL), BPPSA_ERR_IO);
}

/* Images as NPY files. */
static void test_npy_images(void **state) {
  (void)state;
  bppsa_dataset *set = NULL;
  clear();
  put_records(0, 0, 4, 0);
  assert_int_equal(open_set(0, &set), BPPSA_OK);
  assert_int_equal(bppsa_dataset_write(set, NULL, BPPSA_F32, "cifar_x.npy", "cifar_y.npy", NULL, NULL), BPPSA_OK);
  bppsa_dataset *copy = NULL;
  bppsa_dataset_options options = bppsa_dataset_options_default();
  assert_int_equal(bppsa_dataset_create("npy:cifar_x.npy,cifar_y.npy", &options, &copy), BPPSA_OK);
  assert_memory_equal(copy->image, set->image, sizeof set->image);
  assert_int_equal(copy->samples * 10 + copy->held_out, 40);
  const int64_t size = 4 * BPPSA_CIFAR10_PIXELS, indices[4] = {3, 1, 0, 2};
  int64_t shape[4], labels[2][4];
  float *values[2];
  for (int i = 0; i < 2; ++i) {
    values[i] = bppsa_calloc(size, sizeof(float));
    bppsa_view x = bppsa_view_make(values[i], BPPSA_F32, bppsa_dataset_shape(set, 4, shape), shape);
    assert_int_equal(bppsa_dataset_fill(i == 0 ? set : copy, NULL, 4, indices, &x, labels[i]), BPPSA_OK);
  }
  assert_memory_equal(values[0], values[1], (size_t)size * sizeof(float));
  assert_memory_equal(labels[0], labels[1], sizeof labels[0]);
  bppsa_free(values[0]);
  bppsa_free(values[1]);
  bppsa_dataset_destroy(copy);
  options.labels_per_step = true;
  assert_int_equal(bppsa_dataset_create("npy:cifar_x.npy,cifar_y.npy", &options, &copy), BPPSA_ERR_ARGUMENT);
  assert_message("a label for every step of images");
  bppsa_dataset_destroy(set);
  unlink("cifar_x.npy");
  unlink("cifar_y.npy");
  clear();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_damage), cmocka_unit_test(test_memory),
                                     cmocka_unit_test(test_synthetic), cmocka_unit_test(test_npy_images)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Writes small weights and batches as files of the working directory. */
#ifndef BPPSA_TESTS_CLI_BATCH_FILES_H
#define BPPSA_TESTS_CLI_BATCH_FILES_H

#include "tests/cli/run_cli.h"

#include "core/base/philox.h"
#include "core/compute/device_buffer.h"
#include "core/files/npy.h"
#include "core/files/safetensors.h"

enum { T = 7, B = 3, H = 4, CLASSES = 10 };

static inline void write_array(const char *path, bppsa_dtype dtype, void *data, int32_t ndim, const int64_t *shape) {
  const bppsa_view view = bppsa_view_make(data, dtype, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
}

static inline void write_reals(const char *path, bppsa_dtype dtype, int32_t ndim, const int64_t *shape) {
  bppsa_buffer buffer;
  assert_int_equal(bppsa_buffer_create(NULL, dtype, ndim, shape, &buffer), BPPSA_OK);
  const int64_t count = bppsa_view_count(&buffer.view);
  for (int64_t i = 0; i < count; ++i) {
    bppsa_view_set(&buffer.view, i, bppsa_random_double(7, BPPSA_STREAM_TEST, (uint64_t)i) - 0.5);
  }
  assert_int_equal(bppsa_npy_save(path, &buffer.view), BPPSA_OK);
  bppsa_buffer_free(&buffer);
}

/* Writes labels 0, 1, 2, ..; the label at `position` becomes `value` (position -1: none does). */
static inline void write_labels(const char *path, int32_t ndim, const int64_t *shape, int64_t position, int64_t value) {
  bppsa_buffer buffer;
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_I64, ndim, shape, &buffer), BPPSA_OK);
  int64_t *labels = buffer.view.data;
  const int64_t count = bppsa_view_count(&buffer.view);
  for (int64_t i = 0; i < count; ++i) {
    labels[i] = i == position ? value : i % CLASSES;
  }
  assert_int_equal(bppsa_npy_save(path, &buffer.view), BPPSA_OK);
  bppsa_buffer_free(&buffer);
}

/* Writes W.safetensors (f32, one layer), W64 (f64), W2 (two layers, relu), X.npy, Y.npy, YT.npy (labels of every step), H0.npy. */
static inline void write_batch(void) {
  const char *train = "train rnn --seq-len 5 --samples 32 --iterations 1 --hidden 4";
  assert_runs("%s --save-weights W.safetensors", train);
  assert_runs("%s --dtype f64 --save-weights W64.safetensors", train);
  assert_runs("%s --layers 2 --nonlinearity relu --save-weights W2.safetensors", train);
  write_reals("X.npy", BPPSA_F64, 3, (int64_t[]){T, B, 1});
  write_labels("Y.npy", 1, (int64_t[]){B}, -1, 0);
  write_labels("YT.npy", 2, (int64_t[]){T, B}, -1, 0);
  write_reals("H0.npy", BPPSA_F32, 3, (int64_t[]){1, B, H});
}

static inline int enter_with_batch(void **state) {
  const int status = enter_directory(state);
  write_batch();
  return status;
}

#endif

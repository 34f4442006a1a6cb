/* Data sets in NPY files, read and written. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/files/npy.h"
#include "train/data/dataset.h"

#define X_PATH "train_dataset_x.npy"
#define Y_PATH "train_dataset_y.npy"
#define SPEC "npy:" X_PATH "," Y_PATH

static void save(const char *path, void *data, bppsa_dtype dtype, int32_t ndim, const int64_t *shape) {
  const bppsa_view view = bppsa_view_make(data, dtype, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
}

static bppsa_status create(int64_t samples, int64_t seq_len, bool per_step, bppsa_dataset **dataset) {
  const bppsa_dataset_options options = {.samples = samples, .seq_len = seq_len, .labels_per_step = per_step};
  return bppsa_dataset_create(SPEC, &options, dataset);
}

/* Expects a refusal with `status` and with `says` in the message; nothing may be created or leaked. */
static void refused(int64_t samples, int64_t seq_len, bool per_step, bppsa_status status, const char *says) {
  const int64_t live = bppsa_alloc_live();
  bppsa_dataset *dataset = NULL;
  assert_int_equal(create(samples, seq_len, per_step, &dataset), status);
  assert_null(dataset);
  if (strstr(bppsa_last_error(), says) == NULL) {
    fail_msg("'%s' does not say '%s'", bppsa_last_error(), says);
  }
  assert_int_equal(bppsa_alloc_live(), live);
}

static const int64_t x_shape[3] = {3, 2, 2}, y_shape[1] = {3}, yt_shape[2] = {3, 2};

static void batches_are_time_major(void **state) {
  (void)state;
  double x[12];
  int64_t y[3] = {1, 0, 4};
  for (int i = 0; i < 12; ++i) {
    x[i] = i + 0.5;
  }
  save(X_PATH, x, BPPSA_F64, 3, x_shape);
  save(Y_PATH, y, BPPSA_I64, 1, y_shape);
  bppsa_dataset *dataset = NULL;
  assert_int_equal(create(3, 2, false, &dataset), BPPSA_OK);
  assert_int_equal(dataset->samples, 3);
  assert_int_equal(dataset->seq_len, 2);
  assert_int_equal(dataset->input, 2);
  assert_int_equal(dataset->classes, 5);
  const int64_t indices[2] = {2, 0}, shape[3] = {2, 2, 2};
  float narrow[8];
  double wide[8];
  int64_t labels[2];
  const bppsa_view narrow_view = bppsa_view_make(narrow, BPPSA_F32, 3, shape);
  const bppsa_view wide_view = bppsa_view_make(wide, BPPSA_F64, 3, shape);
  assert_int_equal(bppsa_dataset_fill(dataset, NULL, 2, indices, &narrow_view, labels), BPPSA_OK);
  assert_int_equal(bppsa_dataset_fill(dataset, NULL, 2, indices, &wide_view, NULL), BPPSA_OK);
  static const double expected[8] = {8.5, 9.5, 0.5, 1.5, 10.5, 11.5, 2.5, 3.5}; /* [t, sample, input] */
  for (int i = 0; i < 8; ++i) {
    assert_true(wide[i] == expected[i]);
    assert_true((double)narrow[i] == expected[i]);
  }
  assert_int_equal(labels[0], 4);
  assert_int_equal(labels[1], 1);
  bppsa_dataset_destroy(dataset);
}

static void labels_of_any_integer_type(void **state) {
  (void)state;
  float x[12] = {0};
  save(X_PATH, x, BPPSA_F32, 3, x_shape);
  int8_t i8[3] = {3, 1, 2};
  int16_t i16[3] = {3, 1, 2};
  int32_t i32[3] = {3, 1, 2};
  uint8_t u8[3] = {3, 1, 2};
  uint16_t u16[3] = {3, 1, 2};
  uint32_t u32[3] = {3, 1, 2};
  uint64_t u64[3] = {3, 1, 2};
  const struct {
    void *data;
    bppsa_dtype dtype;
  } cases[] = {{i8, BPPSA_I8},   {i16, BPPSA_I16}, {i32, BPPSA_I32}, {u8, BPPSA_U8},
               {u16, BPPSA_U16}, {u32, BPPSA_U32}, {u64, BPPSA_U64}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    save(Y_PATH, cases[i].data, cases[i].dtype, 1, y_shape);
    bppsa_dataset *dataset = NULL;
    assert_int_equal(create(0, 0, false, &dataset), BPPSA_OK);
    assert_int_equal(dataset->classes, 4);
    const int64_t index = 2;
    int64_t label = -1;
    assert_int_equal(bppsa_dataset_fill(dataset, NULL, 1, &index, NULL, &label), BPPSA_OK);
    assert_int_equal(label, 2);
    bppsa_dataset_destroy(dataset);
  }
  u64[1] = UINT64_MAX;
  save(Y_PATH, u64, BPPSA_U64, 1, y_shape);
  refused(0, 0, false, BPPSA_ERR_ARGUMENT, "label 18446744073709551615 at [1], expected 0 .. 2147483646");
}

static void disagreements_are_named(void **state) {
  (void)state;
  float x[12] = {0};
  int64_t y[6] = {0, 1, 2, 0, 1, 2};
  const int64_t four[1] = {4}, flat[2] = {3, 4}, empty[3] = {3, 0, 2}, longer[2] = {2, 3};
  save(X_PATH, x, BPPSA_F32, 3, x_shape);
  save(Y_PATH, y, BPPSA_I64, 1, four);
  refused(0, 0, false, BPPSA_ERR_SHAPE, "shape [4] disagrees with the inputs' 3 samples");
  save(Y_PATH, y, BPPSA_I64, 2, yt_shape);
  refused(0, 0, false, BPPSA_ERR_SHAPE, "expected [samples] with the loss on the last step");
  save(Y_PATH, y, BPPSA_I64, 2, longer);
  refused(0, 0, true, BPPSA_ERR_SHAPE, "shape [2, 3] disagrees");
  save(Y_PATH, y, BPPSA_I64, 1, y_shape);
  refused(0, 0, true, BPPSA_ERR_SHAPE, "expected [samples, steps] with the loss on all steps");
  refused(4, 0, false, BPPSA_ERR_ARGUMENT, "has 3 samples, but 4 were asked for");
  refused(0, 5, false, BPPSA_ERR_ARGUMENT, "has 2 time steps, but 5 were asked for");
  save(Y_PATH, x, BPPSA_F32, 1, y_shape);
  refused(0, 0, false, BPPSA_ERR_UNSUPPORTED, "dtype f32, expected integer labels");
  save(X_PATH, y, BPPSA_I64, 2, yt_shape);
  refused(0, 0, false, BPPSA_ERR_SHAPE, "shape [3, 2], expected [samples, steps, inputs]");
  y[4] = INT64_MAX;
  save(X_PATH, y, BPPSA_I64, 3, (const int64_t[]){3, 2, 1});
  refused(0, 0, false, BPPSA_ERR_FORMAT, X_PATH ": i64 9223372036854775807 at [2, 0, 0], expected a number that f64 holds");
  save(X_PATH, x, BPPSA_F32, 2, flat);
  refused(0, 0, false, BPPSA_ERR_SHAPE, "shape [3, 4], expected [samples, steps, inputs]");
  save(X_PATH, x, BPPSA_F32, 3, empty);
  refused(0, 0, false, BPPSA_ERR_SHAPE, "shape [3, 0, 2] is empty");
  (void)remove(X_PATH);
  refused(0, 0, false, BPPSA_ERR_IO, X_PATH);
}

/* Whole numbers are read as they are, or not at all: f32 has 24 digits. */
static void whole_numbers(void **state) {
  (void)state;
  int64_t x[12] = {0}, y[6] = {0, 1, 2, 0, 1, 2};
  bppsa_dataset *dataset;
  save(Y_PATH, y, BPPSA_I64, 1, y_shape);
  for (int i = 0; i < 2; ++i) {
    x[7] = i == 0 ? -16777216 : -16777217;
    save(X_PATH, x, BPPSA_I64, 3, x_shape);
    assert_int_equal(bppsa_dataset_create("npy:" X_PATH "," Y_PATH, &(bppsa_dataset_options){0}, &dataset), BPPSA_OK);
    assert_int_equal(bppsa_dataset_check(dataset, BPPSA_F64), BPPSA_OK);
    assert_int_equal(bppsa_dataset_check(dataset, BPPSA_F32), i == 0 ? BPPSA_OK : BPPSA_ERR_ARGUMENT);
    bppsa_dataset_destroy(dataset);
  }
  assert_non_null(strstr(bppsa_last_error(), X_PATH ": the integer -16777217 at [1, 1, 1], expected a number that f32 holds"));
}

static void bad_values_are_named(void **state) {
  (void)state;
  float x[12] = {0};
  int64_t y[6] = {0, 1, 2, 0, -3, 2};
  x[7] = INFINITY;
  save(X_PATH, x, BPPSA_F32, 3, x_shape);
  save(Y_PATH, y, BPPSA_I64, 1, y_shape);
  refused(0, 0, false, BPPSA_ERR_ARGUMENT, "value inf at [1, 1, 1]");
  x[7] = 0.0f;
  save(X_PATH, x, BPPSA_F32, 3, x_shape);
  save(Y_PATH, y, BPPSA_I64, 2, yt_shape);
  refused(0, 0, true, BPPSA_ERR_ARGUMENT, "label -3 at [2, 0], expected 0 .. 2147483646");
}

/* Real targets have the layout of logits and the batch's dtype; a set with labels has no targets, and one with targets no labels.
 */
static void targets_are_time_major(void **state) {
  (void)state;
  double x[12] = {0}, y[12];
  for (int i = 0; i < 12; ++i) {
    y[i] = i + 0.25;
  }
  save(X_PATH, x, BPPSA_F64, 3, x_shape);
  const int64_t indices[2] = {2, 0}, steps[3] = {2, 2, 2}, flat[2] = {2, 2}, one[2] = {2, 1}, ytc[3] = {3, 2, 2};
  const struct {
    bool per_step;
    int32_t ndim;
    const int64_t *shape, *batch;
    int64_t classes, count;
    double expected[8];
  } cases[] = {{false, 1, (int64_t[]){3}, one, 1, 2, {2.25, 0.25}},
               {false, 2, (int64_t[]){3, 2}, flat, 2, 4, {4.25, 5.25, 0.25, 1.25}},
               {true, 2, (int64_t[]){3, 2}, (int64_t[]){2, 2, 1}, 1, 4, {4.25, 0.25, 5.25, 1.25}},
               {true, 3, ytc, steps, 2, 8, {8.25, 9.25, 0.25, 1.25, 10.25, 11.25, 2.25, 3.25}}};
  for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; ++k) {
    const size_t c = k / 2;
    const bppsa_dtype dtype = k % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    const bppsa_dataset_options options = {.labels_per_step = cases[c].per_step, .objective = {.kind = BPPSA_LOSS_SQUARED}};
    const int32_t axes = cases[c].per_step ? 3 : 2;
    double room[8];
    int64_t label;
    bppsa_dataset *dataset = NULL;
    save(Y_PATH, y, BPPSA_F64, cases[c].ndim, cases[c].shape);
    assert_int_equal(bppsa_dataset_create(SPEC, &options, &dataset), BPPSA_OK);
    assert_true(bppsa_objective_real(&dataset->objective));
    assert_int_equal(dataset->classes, cases[c].classes);
    const bppsa_view targets = bppsa_view_make(room, dtype, axes, cases[c].batch);
    assert_int_equal(bppsa_dataset_targets(dataset, 2, indices, &targets), BPPSA_OK);
    for (int64_t i = 0; i < cases[c].count; ++i) {
      assert_true(bppsa_view_get(&targets, i) == cases[c].expected[i]);
    }
    const bppsa_view wrong = bppsa_view_make(room, dtype, axes - 1, cases[c].batch);
    assert_int_equal(bppsa_dataset_targets(dataset, 2, indices, &wrong), BPPSA_ERR_SHAPE);
    assert_int_equal(bppsa_dataset_fill(dataset, NULL, 1, indices, NULL, &label), BPPSA_ERR_UNSUPPORTED);
    assert_int_equal(bppsa_dataset_write(dataset, NULL, BPPSA_F32, "a.npy", "b.npy", NULL, NULL), BPPSA_ERR_UNSUPPORTED);
    bppsa_dataset_destroy(dataset);
  }
  int64_t labels[3] = {-100, 1, 0};
  const bppsa_dataset_options ignoring = {.objective = {.ignores = true, .ignored = -100}};
  bppsa_dataset *dataset = NULL;
  save(Y_PATH, labels, BPPSA_I64, 1, y_shape);
  assert_int_equal(bppsa_dataset_create(SPEC, &ignoring, &dataset), BPPSA_OK);
  assert_int_equal(dataset->classes, 2);
  double room[2];
  const bppsa_view targets = bppsa_view_make(room, BPPSA_F64, 2, one);
  assert_int_equal(bppsa_dataset_targets(dataset, 2, indices, &targets), BPPSA_ERR_UNSUPPORTED);
  bppsa_dataset_destroy(dataset);
}

static void targets_of_every_step_of_images_are_refused(void **state) {
  (void)state;
  float x[2 * 3] = {0}, y[2] = {0};
  const bppsa_dataset_options options = {.labels_per_step = true, .objective = {.kind = BPPSA_LOSS_SQUARED}};
  bppsa_dataset *dataset = NULL;
  save(X_PATH, x, BPPSA_F32, 4, (const int64_t[]){2, 3, 1, 1});
  save(Y_PATH, y, BPPSA_F32, 2, (const int64_t[]){2, 1});
  assert_int_equal(bppsa_dataset_create(SPEC, &options, &dataset), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), Y_PATH ": a target for every step of images, expected the loss on the last step"));
  assert_null(dataset);
}

static void count_progress(void *context, int64_t done, int64_t total) {
  assert_in_range((uintmax_t)done, 1, (uintmax_t)total);
  *(int64_t *)context = done;
}

/* Written files read back as the same samples; with several chunks (4 MiB each), threads and both layouts of labels. */
static void written_sets_read_back(void **state) {
  (void)state;
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", 3, &device), BPPSA_OK);
  for (int per_step = 0; per_step < 2; ++per_step) {
    const int64_t n = 1500, steps = 1013, index = 1499, shape[3] = {1013, 1, 1};
    const bppsa_dataset_options options = {.samples = n, .seq_len = steps, .seed = 5, .labels_per_step = per_step == 1};
    bppsa_dataset *made = NULL, *read = NULL;
    int64_t done = 0;
    assert_int_equal(bppsa_dataset_create("bitstream", &options, &made), BPPSA_OK);
    assert_int_equal(bppsa_dataset_write(made, device, BPPSA_F32, X_PATH, Y_PATH, count_progress, &done), BPPSA_OK);
    assert_int_equal(done, n);
    assert_int_equal(create(n, steps, per_step == 1, &read), BPPSA_OK);
    assert_int_equal(read->classes, 10);
    float a[1013], b[1013];
    int64_t labels_a[1013] = {0}, labels_b[1013] = {0};
    const bppsa_view view_a = bppsa_view_make(a, BPPSA_F32, 3, shape), view_b = bppsa_view_make(b, BPPSA_F32, 3, shape);
    for (int64_t i = index; i >= 0; i -= 37) {
      assert_int_equal(bppsa_dataset_fill(made, NULL, 1, &i, &view_a, labels_a), BPPSA_OK);
      assert_int_equal(bppsa_dataset_fill(read, device, 1, &i, &view_b, labels_b), BPPSA_OK);
      assert_memory_equal(a, b, sizeof a);
      assert_memory_equal(labels_a, labels_b, sizeof labels_a);
    }
    bppsa_dataset_destroy(made);
    bppsa_dataset_destroy(read);
  }
  bppsa_device_destroy(device);
}

static void failed_writes_leave_nothing(void **state) {
  (void)state;
  const bppsa_dataset_options options = {.samples = 3, .seq_len = 4};
  bppsa_dataset *dataset = NULL;
  (void)remove(X_PATH);
  (void)remove(Y_PATH);
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_OK);
  assert_int_equal(bppsa_dataset_write(dataset, NULL, BPPSA_F32, X_PATH, "no/such/folder.npy", NULL, NULL), BPPSA_ERR_IO);
  assert_int_equal(access(X_PATH, F_OK), -1);
  assert_int_equal(bppsa_dataset_write(dataset, NULL, BPPSA_F32, X_PATH, X_PATH, NULL, NULL), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_dataset_write(dataset, NULL, BPPSA_I64, X_PATH, Y_PATH, NULL, NULL), BPPSA_ERR_ARGUMENT);
  const int64_t live = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    bppsa_alloc_fail_at(call);
    status = bppsa_dataset_write(dataset, NULL, BPPSA_F32, X_PATH, Y_PATH, NULL, NULL);
    bppsa_alloc_fail_at(0);
    assert_int_equal(bppsa_alloc_live(), live);
    assert_true(call < 100);
    if (status != BPPSA_OK) {
      assert_int_equal(status, BPPSA_ERR_MEMORY);
      assert_int_equal(access(Y_PATH, F_OK), -1);
    }
  }
  bppsa_dataset_destroy(dataset);
  status = BPPSA_ERR_MEMORY;
  const int64_t before = bppsa_alloc_live();
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    dataset = NULL;
    bppsa_alloc_fail_at(call);
    status = create(3, 4, false, &dataset);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || (status == BPPSA_ERR_MEMORY && dataset == NULL && bppsa_alloc_live() == before));
    assert_true(call < 100);
  }
  bppsa_dataset_destroy(dataset);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batches_are_time_major),
      cmocka_unit_test(labels_of_any_integer_type),
      cmocka_unit_test(disagreements_are_named),
      cmocka_unit_test(whole_numbers),
      cmocka_unit_test(bad_values_are_named),
      cmocka_unit_test(targets_are_time_major),
      cmocka_unit_test(targets_of_every_step_of_images_are_refused),
      cmocka_unit_test(written_sets_read_back),
      cmocka_unit_test(failed_writes_leave_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

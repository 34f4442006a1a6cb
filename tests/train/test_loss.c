/* Softmax cross-entropy and the other losses, with weights and without, against PyTorch, finite differences, the CPU and themselves
 * with other threads; on test_device(). (The file is long because every property is asked of every loss, with the same helpers.) */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "core/compute/memory.h"
#include "tests/support/support.h"
#include "train/loss.h"

static bppsa_device *device;

static bppsa_view to_device(const bppsa_view *view) {
  bppsa_view copy = *view;
  copy.data = on_device(device, view->data, (int64_t)bppsa_view_bytes(view));
  copy.device = bppsa_device_get_kind(device);
  return copy;
}

static bppsa_status ignoring(const bppsa_device *where, const bppsa_view *logits, const int64_t *labels, int64_t ignored,
                             const bppsa_view *seed, bppsa_loss_result *result) {
  const bppsa_loss_rows rows = {.labels = labels, .objective = {.ignores = true, .ignored = ignored}};
  return bppsa_loss_of(where, logits, &rows, seed, result);
}

static bppsa_status squared_error(const bppsa_device *where, const bppsa_view *outputs, const bppsa_view *targets,
                                  const bppsa_view *seed, bppsa_loss_result *result) {
  const bppsa_loss_rows rows = {.targets = targets, .objective = {.kind = BPPSA_LOSS_SQUARED}};
  return bppsa_loss_of(where, outputs, &rows, seed, result);
}

static bppsa_status binary_entropy(const bppsa_device *where, const bppsa_view *logits, const bppsa_view *targets,
                                   const bppsa_view *seed, bppsa_loss_result *result) {
  const bppsa_loss_rows rows = {.targets = targets, .objective = {.kind = BPPSA_LOSS_BINARY}};
  return bppsa_loss_of(where, logits, &rows, seed, result);
}

/* The loss of host arrays, through the device's memory. */
static bppsa_status try_loss(const bppsa_view *logits, const int64_t *labels, const bppsa_view *seed, bppsa_loss_result *result) {
  const bppsa_view moved = to_device(logits), out = to_device(seed != NULL ? seed : logits);
  const bppsa_status status = bppsa_cross_entropy(device, &moved, labels, seed != NULL ? &out : NULL, result);
  if (seed != NULL) {
    assert_int_equal(bppsa_memory_get(device, seed->data, out.data, (int64_t)bppsa_view_bytes(seed)), BPPSA_OK);
  }
  bppsa_memory_free(device, moved.data);
  bppsa_memory_free(device, out.data);
  return status;
}

static bppsa_loss_result loss_of(const bppsa_view *logits, const int64_t *labels, const bppsa_view *seed) {
  bppsa_loss_result result = {0};
  assert_int_equal(try_loss(logits, labels, seed, &result), BPPSA_OK);
  return result;
}

/* A GPU's functions may be an ulp or two off. */
static double ulps(void) {
  return bppsa_device_get_kind(device) == BPPSA_CPU || is_emulated(device) ? 1 : 4;
}

/* torch.nn.functional.cross_entropy and its gradient, PyTorch 1.13, float64. */
static void agrees_with_pytorch(void **state) {
  (void)state;
  static const double gradient[12] = {-0.09906277596284355, 0.007514721892393506,  0.09154805407045005,   0.014170221406935156,
                                      0.014170221406935156, -0.028340442813870326, 0.0009993059966369267, 0.24452211524031206,
                                      -0.245521421236949,   0.08333333333333333,   -0.16666666666666669,  0.08333333333333333};
  double logits[12] = {1.0, -2.0, 0.5, 0.25, 0.25, 3.0, -1.5, 4.0, 0.0, 0.0, 0.0, 0.0}, seed[12];
  float logits32[12], seed32[12];
  const int64_t labels[4] = {0, 2, 2, 1}, shape[2] = {4, 3};
  for (int i = 0; i < 12; ++i) {
    logits32[i] = (float)logits[i];
  }
  const bppsa_view view = bppsa_view_make(logits, BPPSA_F64, 2, shape), out = bppsa_view_make(seed, BPPSA_F64, 2, shape);
  const bppsa_view view32 = bppsa_view_make(logits32, BPPSA_F32, 2, shape), out32 = bppsa_view_make(seed32, BPPSA_F32, 2, shape);
  const bppsa_loss_result wide = loss_of(&view, labels, &out), narrow = loss_of(&view32, labels, &out32);
  assert_true(fabs(wide.loss - 1.436420648100225) < 1e-15 * ulps());
  assert_true(narrow.loss == wide.loss); /* the logits are exact in f32 and the sums are in double */
  assert_int_equal(wide.correct, 2);     /* rows 0 and 1; the tie of row 3 goes to class 0 */
  assert_int_equal(wide.rows, 4);
  for (int i = 0; i < 12; ++i) {
    assert_true(fabs(seed[i] - gradient[i]) < 1e-16 * ulps());
    assert_true(seed32[i] == (float)seed[i]);
  }
}

/* [T, b, C]: the mean over T*b rows, the labels in the same order; dlogits by central differences. */
static void gradient_is_the_difference_quotient(void **state) {
  (void)state;
  enum { T = 3, B = 4, C = 5, N = T * B * C };
  double logits[N], seed[N];
  int64_t labels[T * B];
  const int64_t shape[3] = {T, B, C};
  for (int i = 0; i < N; ++i) {
    logits[i] = 6.0 * bppsa_random_double(1, BPPSA_STREAM_TEST, (uint64_t)i) - 3.0;
  }
  for (int r = 0; r < T * B; ++r) {
    labels[r] = (r * 7) % C;
  }
  const bppsa_view view = bppsa_view_make(logits, BPPSA_F64, 3, shape), out = bppsa_view_make(seed, BPPSA_F64, 3, shape);
  const bppsa_loss_result base = loss_of(&view, labels, &out);
  double naive = 0.0;
  for (int r = 0; r < T * B; ++r) {
    double sum = 0.0;
    for (int c = 0; c < C; ++c) {
      sum += exp(logits[r * C + c]);
    }
    naive += log(sum) - logits[r * C + labels[r]];
  }
  assert_true(fabs(base.loss - naive / (T * B)) < 1e-14);
  for (int i = 0; i < N; ++i) {
    const double kept = logits[i], h = 1e-5;
    logits[i] = kept + h;
    const double above = loss_of(&view, labels, NULL).loss;
    logits[i] = kept - h;
    const double below = loss_of(&view, labels, NULL).loss;
    logits[i] = kept;
    assert_true(fabs((above - below) / (2 * h) - seed[i]) < 1e-9);
  }
}

/* Logits of ±1000 overflow a naive exponential; a loss of e^-40 is not rounded to zero. */
static void large_logits_are_stable(void **state) {
  (void)state;
  float logits[4] = {1000.0f, -1000.0f, 40.0f, 0.0f}, seed[4];
  const int64_t wrong[2] = {1, 0}, shape[2] = {2, 2}, one[2] = {1, 2};
  const bppsa_view view = bppsa_view_make(logits, BPPSA_F32, 2, shape), out = bppsa_view_make(seed, BPPSA_F32, 2, shape);
  assert_true(fabs(loss_of(&view, wrong, &out).loss - 1000.0) < 1e-12);
  assert_true(seed[0] == 0.5f && seed[1] == -0.5f);
  const bppsa_view sure = bppsa_view_make(logits + 2, BPPSA_F32, 2, one), sure_out = bppsa_view_make(seed, BPPSA_F32, 2, one);
  const double tiny = exp(-40.0);
  const bppsa_loss_result result = loss_of(&sure, wrong + 1, &sure_out);
  assert_true(fabs(result.loss / tiny - 1.0) < 1e-12);
  assert_true(fabs((double)seed[0] / -tiny - 1.0) < 1e-6 && fabs((double)seed[1] / tiny - 1.0) < 1e-6);
}

static void nonfinite_logits_give_a_nonfinite_loss(void **state) {
  (void)state;
  static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
  const int64_t labels[2] = {0, 0}, shape[2] = {2, 3};
  for (int k = 0; k < 3; ++k) {
    for (int i = 0; i < 3; ++i) { /* at the label, before and after */
      double logits[6] = {2.0, 1.0, 0.0, 0.0, 1.0, 2.0}, seed[6];
      logits[3 + i] = bad[k];
      const bppsa_view view = bppsa_view_make(logits, BPPSA_F64, 2, shape), out = bppsa_view_make(seed, BPPSA_F64, 2, shape);
      const bppsa_loss_result result = loss_of(&view, labels, &out);
      assert_true(!isfinite(result.loss));
      assert_int_equal(result.correct, 1);
      assert_true(isfinite(seed[0]) && isnan(seed[3]));
    }
  }
}

static void labels_out_of_range_are_named(void **state) {
  (void)state;
  float logits[12] = {0}, seed[12] = {7.0f};
  int64_t labels[4] = {0, 1, 2, 3};
  const int64_t flat[2] = {4, 3}, deep[3] = {2, 2, 3}, other[2] = {3, 4};
  bppsa_loss_result result = {.rows = 77};
  const bppsa_view view = bppsa_view_make(logits, BPPSA_F32, 2, flat), out = bppsa_view_make(seed, BPPSA_F32, 2, flat);
  const bppsa_view steps = bppsa_view_make(logits, BPPSA_F32, 3, deep), wrong = bppsa_view_make(seed, BPPSA_F32, 2, other);
  assert_int_equal(try_loss(&view, labels, &out, &result), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "label 3 at sample 3 of the batch, expected 0 .. 2"));
  labels[2] = -1;
  assert_int_equal(try_loss(&steps, labels, NULL, &result), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "label -1 at sample 0 of the batch, time step 2, expected 0 .. 2"));
  assert_int_equal(try_loss(&view, labels, &wrong, &result), BPPSA_ERR_SHAPE);
  assert_true(seed[0] == 7.0f && result.rows == 77);
  const bppsa_view line = bppsa_view_make(logits, BPPSA_F32, 1, (const int64_t[]){12});
  assert_int_equal(try_loss(&line, labels, NULL, &result), BPPSA_ERR_SHAPE);
  assert_non_null(strstr(bppsa_last_error(), "logits: shape [12], expected [samples, classes] or [steps, samples, classes]"));
  bppsa_view elsewhere = view;
  elsewhere.device = bppsa_device_get_kind(device) == BPPSA_CPU ? BPPSA_CUDA : BPPSA_CPU;
  assert_int_equal(bppsa_cross_entropy(device, &elsewhere, labels, NULL, &result), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "logits: expected a contiguous array of f32 or f64 in "));
}

/* The CPU's loss, seed and count for every number of rows around a block's size, with and without a seed; and the same bits
 * again. */
static void devices_agree(void **state) {
  (void)state;
  static const int64_t sizes[][3] = {{1, 1, 1}, {1, 16, 10}, {127, 1, 3}, {32, 4, 2}, {43, 3, 7}, {5, 200, 11}, {9, 1853, 3}};
  for (size_t k = 0; k < 2 * sizeof sizes / sizeof sizes[0]; ++k) {
    const int64_t *shape = sizes[k / 2], rows = shape[0] * shape[1], count = rows * shape[2];
    const bppsa_dtype dtype = k % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    double *values = uniform(k, count, 6);
    void *logits = rounded(dtype, values, count), *seeds[3];
    int64_t *labels = malloc(sizeof *labels * (size_t)rows);
    bppsa_loss_result host = {0};
    const bppsa_view view = bppsa_view_make(logits, dtype, 3, shape);
    for (int64_t r = 0; r < rows; ++r) {
      labels[r] = (r * 5 + r / 7) % shape[2];
    }
    for (int i = 0; i < 3; ++i) { /* poisoned: all bits set */
      seeds[i] = malloc(bppsa_view_bytes(&view));
      memset(seeds[i], 0xff, bppsa_view_bytes(&view));
    }
    const bppsa_view out[3] = {bppsa_view_make(seeds[0], dtype, 3, shape), bppsa_view_make(seeds[1], dtype, 3, shape),
                               bppsa_view_make(seeds[2], dtype, 3, shape)};
    assert_int_equal(bppsa_cross_entropy(NULL, &view, labels, &out[0], &host), BPPSA_OK);
    const bppsa_loss_result first = loss_of(&view, labels, &out[1]), again = loss_of(&view, labels, &out[2]);
    assert_true(fabs(first.loss - host.loss) <= 1e-14 * fabs(host.loss));
    assert_int_equal(first.correct, host.correct);
    assert_int_equal(first.rows, rows);
    for (int64_t i = 0; i < count; ++i) {
      const double scale = 1 / (double)rows, error = bppsa_view_get(&out[1], i) - bppsa_view_get(&out[0], i);
      assert_true(fabs(error) <= (dtype == BPPSA_F32 ? 1.2e-7 : 1e-15) * scale);
    }
    assert_memory_equal(&first.loss, &again.loss, sizeof first.loss);
    assert_memory_equal(seeds[1], seeds[2], bppsa_view_bytes(&view));
    const bppsa_loss_result without = loss_of(&view, labels, NULL);
    assert_memory_equal(&first.loss, &without.loss, sizeof first.loss);
    for (int i = 0; i < 3; ++i) {
      free(seeds[i]);
    }
    free(labels);
    bppsa_free(logits);
    bppsa_free(values);
  }
}

/* 1, 2 and 7 threads give the same bits. */
static void bits_do_not_depend_on_threads(void **state) {
  (void)state;
  enum { ROWS = 3001, C = 10 };
  static const int64_t threads[] = {1, 2, 7};
  const int64_t shape[2] = {ROWS, C};
  float *logits = malloc(sizeof(float) * ROWS * C), *seeds[3];
  int64_t *labels = malloc(sizeof(int64_t) * ROWS);
  bppsa_loss_result results[3];
  for (int i = 0; i < ROWS * C; ++i) {
    logits[i] = (float)(4.0 * bppsa_random_double(2, BPPSA_STREAM_TEST, (uint64_t)i) - 2.0);
  }
  for (int r = 0; r < ROWS; ++r) {
    labels[r] = r % C;
  }
  const bppsa_view view = bppsa_view_make(logits, BPPSA_F32, 2, shape);
  for (int k = 0; k < 3; ++k) {
    bppsa_device *cpu = cpu_device(threads[k]);
    seeds[k] = malloc(sizeof(float) * ROWS * C);
    const bppsa_view out = bppsa_view_make(seeds[k], BPPSA_F32, 2, shape);
    assert_int_equal(bppsa_cross_entropy(cpu, &view, labels, &out, &results[k]), BPPSA_OK);
    bppsa_device_destroy(cpu);
    assert_memory_equal(&results[k].loss, &results[0].loss, sizeof(double));
    assert_int_equal(results[k].correct, results[0].correct);
    assert_memory_equal(seeds[k], seeds[0], sizeof(float) * ROWS * C);
  }
  for (int k = 0; k < 3; ++k) {
    free(seeds[k]);
  }
  free(logits);
  free(labels);
}

/* ---- ignored labels and real targets ---- */

/* Through the device's memory: NULL labels are real targets, in host memory. */
static bppsa_loss_result other_loss(const bppsa_view *logits, const int64_t *labels, int64_t ignored, const bppsa_view *targets,
                                    const bppsa_view *seed) {
  const bppsa_view moved = to_device(logits), out = to_device(seed);
  bppsa_loss_result result = {0};
  assert_int_equal(labels != NULL ? ignoring(device, &moved, labels, ignored, &out, &result)
                                  : squared_error(device, &moved, targets, &out, &result),
                   BPPSA_OK);
  assert_int_equal(bppsa_memory_get(device, seed->data, out.data, (int64_t)bppsa_view_bytes(seed)), BPPSA_OK);
  bppsa_memory_free(device, moved.data);
  bppsa_memory_free(device, out.data);
  return result;
}

static double four_rows[12] = {1.0, -2.0, 0.5, 0.25, 0.25, 3.0, -1.5, 4.0, 0.0, 0.0, 0.0, 0.0};

/* torch.nn.functional.cross_entropy(ignore_index=-100) and mse_loss, PyTorch 1.13, float64. */
static void others_agree_with_pytorch(void **state) {
  (void)state;
  static double targets[12] = {0.5, -1.0, 0.5, 1.25, 0.25, -3.0, 0.125, 4.0, 0.75, -2.0, 1.0, 0.25};
  static const double gradients[2][12] = {
      {-0.13208370128379138, 0.010019629189858006, 0.1220640720939334, 0.0, 0.0, 0.0, 0.0013324079955159222, 0.32602948698708273,
       -0.32736189498259866, 0.1111111111111111, -0.2222222222222222, 0.1111111111111111},
      {0.08333333333333333, -0.16666666666666666, 0.0, -0.16666666666666666, 0.0, 1.0, -0.2708333333333333, 0.0, -0.125,
       0.3333333333333333, -0.16666666666666666, -0.041666666666666664}};
  static const double losses[2] = {1.8751214510558418, 3.8763020833333335};
  const int64_t labels[4] = {0, -100, 2, 1}, flat[2] = {4, 3}, deep[3] = {2, 2, 3};
  for (int k = 0; k < 8; ++k) {
    const bool squares = k % 2 == 1, wide = k / 2 % 2 == 1;
    const bppsa_dtype dtype = wide ? BPPSA_F64 : BPPSA_F32;
    const int64_t *shape = k / 4 == 0 ? flat : deep;
    const int32_t ndim = k / 4 == 0 ? 2 : 3;
    void *logits = rounded(dtype, four_rows, 12), *compared = rounded(dtype, targets, 12), *seed = rounded(dtype, four_rows, 12);
    const bppsa_view view = bppsa_view_make(logits, dtype, ndim, shape), y = bppsa_view_make(compared, dtype, ndim, shape);
    const bppsa_view out = bppsa_view_make(seed, dtype, ndim, shape);
    const bppsa_loss_result result = other_loss(&view, squares ? NULL : labels, -100, &y, &out);
    assert_true(fabs(result.loss - losses[squares]) < 1e-15 * ulps()); /* the values are exact in f32 */
    assert_int_equal(result.rows, squares ? 4 : 3);
    if (squares) {
      assert_true(isnan(bppsa_accuracy(result.correct, result.rows)));
    } else {
      assert_int_equal(result.correct, 1); /* row 0 */
      assert_true(bppsa_accuracy(result.correct, result.rows) == 1.0 / 3.0);
    }
    for (int i = 0; i < 12; ++i) {
      assert_true(fabs(bppsa_view_get(&out, i) - gradients[squares][i]) < (wide ? 2e-16 : 3e-8) * ulps());
    }
    bppsa_free(logits);
    bppsa_free(compared);
    bppsa_free(seed);
  }
}

/* If every label is ignored PyTorch's loss is NaN; this one is 0, and so are its gradient and the accuracy. */
static void all_labels_ignored_is_zero(void **state) {
  (void)state;
  float logits[6] = {1.0f, 2.0f, 3.0f, (float)NAN, 5.0f, 6.0f}, seed[6];
  const int64_t labels[2] = {1, 1}, shape[2] = {2, 3};
  memset(seed, 0xff, sizeof seed);
  const bppsa_view view = bppsa_view_make(logits, BPPSA_F32, 2, shape), out = bppsa_view_make(seed, BPPSA_F32, 2, shape);
  const bppsa_loss_result result = other_loss(&view, labels, 1, NULL, &out); /* an ignored label may be a class */
  assert_true(result.loss == 0.0 && result.correct == 0 && result.rows == 0);
  assert_true(bppsa_accuracy(result.correct, result.rows) == 0.0);
  for (int i = 0; i < 6; ++i) {
    assert_true(seed[i] == 0.0f);
  }
}

/* Ignored rows have no effect: loss and seed are those of the other rows alone, and the CPU's, for numbers of rows around a
 * block's size. */
static void others_agree_between_devices(void **state) {
  (void)state;
  static const int64_t sizes[][3] = {{1, 1, 1}, {16, 8, 10}, {43, 3, 7}, {5, 200, 3}};
  for (size_t k = 0; k < 4 * sizeof sizes / sizeof sizes[0]; ++k) {
    const int64_t *shape = sizes[k / 4], rows = shape[0] * shape[1], count = rows * shape[2];
    const bppsa_dtype dtype = k % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    const bool squares = k / 2 % 2 == 1;
    double *values = uniform(k, count, 6), *goals = uniform(k + 99, count, 6);
    void *logits = rounded(dtype, values, count), *targets = rounded(dtype, goals, count);
    void *seeds[2] = {rounded(dtype, values, count), rounded(dtype, values, count)};
    int64_t *labels = malloc(sizeof *labels * (size_t)rows), kept = 0;
    bppsa_loss_result host = {0};
    for (int64_t r = 0; r < rows; ++r) {
      labels[r] = r % 5 == 2 ? -7 : (r * 5 + r / 7) % shape[2];
      kept += r % 5 == 2 ? 0 : 1;
    }
    const bppsa_view view = bppsa_view_make(logits, dtype, 3, shape), y = bppsa_view_make(targets, dtype, 3, shape);
    const bppsa_view out[2] = {bppsa_view_make(seeds[0], dtype, 3, shape), bppsa_view_make(seeds[1], dtype, 3, shape)};
    assert_int_equal(squares ? squared_error(NULL, &view, &y, &out[0], &host) : ignoring(NULL, &view, labels, -7, &out[0], &host),
                     BPPSA_OK);
    const bppsa_loss_result found = other_loss(&view, squares ? NULL : labels, -7, &y, &out[1]);
    assert_true(fabs(found.loss - host.loss) <= 1e-14 * fabs(host.loss));
    assert_int_equal(found.correct, host.correct);
    assert_int_equal(found.rows, host.rows);
    assert_int_equal(host.rows, squares ? rows : kept);
    for (int64_t i = 0; i < count; ++i) {
      const double scale = 1 / (double)rows, error = bppsa_view_get(&out[1], i) - bppsa_view_get(&out[0], i);
      assert_true(fabs(error) <= (dtype == BPPSA_F32 ? 1e-5 : 1e-14) * scale);
    }
    bppsa_free(seeds[0]);
    bppsa_free(seeds[1]);
    bppsa_free(targets);
    bppsa_free(logits);
    bppsa_free(goals);
    bppsa_free(values);
    free(labels);
  }
}

static void other_losses_name_what_is_wrong(void **state) {
  (void)state;
  float logits[6] = {0}, targets[6] = {0};
  const int64_t shape[2] = {2, 3}, turned[2] = {3, 2}, labels[2] = {-100, -99};
  bppsa_loss_result result = {.rows = 77};
  const bppsa_view view = bppsa_view_make(logits, BPPSA_F32, 2, shape), wrong = bppsa_view_make(targets, BPPSA_F32, 2, turned);
  const bppsa_view moved = to_device(&view);
  assert_int_equal(ignoring(device, &moved, labels, -100, NULL, &result), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "label -99 at sample 1 of the batch, expected 0 .. 2"));
  assert_int_equal(squared_error(device, &moved, &wrong, NULL, &result), BPPSA_ERR_SHAPE);
  assert_non_null(strstr(bppsa_last_error(), "targets: f32 [3, 2], expected f32 [2, 3] as the outputs"));
  targets[4] = 1.5f;
  const bppsa_view beyond = bppsa_view_make(targets, BPPSA_F32, 2, shape);
  assert_int_equal(binary_entropy(device, &moved, &beyond, NULL, &result), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "targets: value 1.5 at [1, 1], expected 0 .. 1 for the binary cross-entropy"));
  targets[4] = (float)NAN;
  assert_int_equal(binary_entropy(device, &moved, &beyond, NULL, &result), BPPSA_ERR_ARGUMENT);
  assert_int_equal(result.rows, 77);
  bppsa_memory_free(device, moved.data);
}

/* Through the device's memory. */
static bppsa_status try_binary(const bppsa_view *logits, const bppsa_view *targets, const bppsa_view *seed,
                               bppsa_loss_result *result) {
  const bppsa_view moved = to_device(logits), out = to_device(seed);
  const bppsa_status status = binary_entropy(device, &moved, targets, &out, result);
  assert_int_equal(bppsa_memory_get(device, seed->data, out.data, (int64_t)bppsa_view_bytes(seed)), BPPSA_OK);
  bppsa_memory_free(device, moved.data);
  bppsa_memory_free(device, out.data);
  return status;
}

/* The binary cross-entropy and its gradient from their definition, for numbers of rows around a block's size, in both types; a GPU
 * gives the CPU's. */
static void binary_agrees_with_its_definition(void **state) {
  (void)state;
  static const int64_t sizes[][3] = {{1, 1, 1}, {4, 5, 3}, {43, 3, 7}, {5, 200, 2}};
  for (size_t k = 0; k < 2 * sizeof sizes / sizeof sizes[0]; ++k) {
    const int64_t *shape = sizes[k / 2], rows = shape[0] * shape[1], count = rows * shape[2];
    const bppsa_dtype dtype = k % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    double *values = uniform(k, count, 6), *goals = uniform(k + 99, count, 1), expected = 0;
    for (int64_t i = 0; i < count; ++i) {
      goals[i] = i % 3 == 0 ? (double)(i % 2) : fabs(goals[i]);
    }
    void *logits = rounded(dtype, values, count), *targets = rounded(dtype, goals, count), *seed = rounded(dtype, values, count);
    const bppsa_view view = bppsa_view_make(logits, dtype, 3, shape), y = bppsa_view_make(targets, dtype, 3, shape);
    const bppsa_view out = bppsa_view_make(seed, dtype, 3, shape);
    bppsa_loss_result found = {0}, host = {0};
    assert_int_equal(binary_entropy(NULL, &view, &y, NULL, &host), BPPSA_OK);
    assert_int_equal(try_binary(&view, &y, &out, &found), BPPSA_OK);
    for (int64_t i = 0; i < count; ++i) {
      const double x = bppsa_view_get(&view, i), p = 1 / (1 + exp(-x)), t = bppsa_view_get(&y, i);
      expected -= t * log(p) + (1 - t) * log(1 / (1 + exp(x)));
      assert_true(fabs(bppsa_view_get(&out, i) - (p - t) / (double)count) <= (dtype == BPPSA_F32 ? 1e-7 : 1e-15) / (double)count);
    }
    assert_true(fabs(found.loss - expected / (double)count) < 1e-14 * expected / (double)count);
    assert_true(fabs(found.loss - host.loss) <= 1e-14 * host.loss);
    assert_int_equal(found.rows, rows);
    assert_true(isnan(bppsa_accuracy(found.correct, found.rows)));
    bppsa_free(seed);
    bppsa_free(targets);
    bppsa_free(logits);
    bppsa_free(goals);
    bppsa_free(values);
  }
}

/* Logits of ±1000 neither overflow nor cancel, a loss of e^-40 is not rounded to zero, and no infinite logit has a finite loss. */
static void binary_is_stable(void **state) {
  (void)state;
  double logits[4] = {1000, -1000, 40, -40}, targets[4] = {0, 1, 1, 0}, seed[4];
  const int64_t shape[2] = {4, 1}, one[2] = {1, 1};
  const bppsa_view view = bppsa_view_make(logits, BPPSA_F64, 2, shape), y = bppsa_view_make(targets, BPPSA_F64, 2, shape);
  const bppsa_view out = bppsa_view_make(seed, BPPSA_F64, 2, shape);
  bppsa_loss_result result;
  assert_int_equal(try_binary(&view, &y, &out, &result), BPPSA_OK);
  assert_true(fabs(result.loss - 500) < 1e-12);
  assert_true(seed[0] == 0.25 && seed[1] == -0.25);
  for (int i = 2; i < 4; ++i) {
    const bppsa_view x = bppsa_view_make(logits + i, BPPSA_F64, 2, one), t = bppsa_view_make(targets + i, BPPSA_F64, 2, one);
    const bppsa_view g = bppsa_view_make(seed + i, BPPSA_F64, 2, one);
    assert_int_equal(try_binary(&x, &t, &g, &result), BPPSA_OK);
    assert_true(fabs(result.loss / exp(-40.0) - 1) < 1e-12 && fabs(fabs(seed[i]) / exp(-40.0) - 1) < 1e-12);
  }
  for (int i = 0; i < 6; ++i) {
    static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    logits[0] = bad[i % 3];
    targets[0] = i < 3 ? 0 : 0.5;
    assert_int_equal(try_binary(&view, &y, &out, &result), BPPSA_OK);
    assert_true(!isfinite(result.loss));
  }
}

/* 1, 2 and 7 threads give the same bits. */
static void bits_of_others_do_not_depend_on_threads(void **state) {
  (void)state;
  enum { ROWS = 3001, C = 4, N = ROWS * C };
  const int64_t shape[2] = {ROWS, C};
  double *values = uniform(5, N, 4), *goals = uniform(6, N, 4),
         *seeds[2] = {malloc(sizeof(double) * N), malloc(sizeof(double) * N)};
  int64_t *labels = malloc(sizeof *labels * ROWS);
  for (int64_t r = 0; r < ROWS; ++r) {
    labels[r] = r % 3 == 0 ? -100 : r % C;
  }
  const bppsa_view view = bppsa_view_make(values, BPPSA_F64, 2, shape), y = bppsa_view_make(goals, BPPSA_F64, 2, shape);
  bppsa_loss_result first[2];
  for (int k = 0; k < 6; ++k) {
    static const int64_t threads[] = {1, 2, 7};
    bppsa_device *cpu = cpu_device(threads[k / 2]);
    const bppsa_view out = bppsa_view_make(seeds[k < 2 ? 0 : 1], BPPSA_F64, 2, shape);
    bppsa_loss_result result = {0};
    assert_int_equal(
        k % 2 == 0 ? ignoring(cpu, &view, labels, -100, &out, &result) : squared_error(cpu, &view, &y, &out, &result), BPPSA_OK);
    first[k % 2] = k < 2 ? result : first[k % 2];
    assert_memory_equal(&result.loss, &first[k % 2].loss, sizeof result.loss);
    bppsa_device_destroy(cpu);
  }
  assert_memory_equal(seeds[0], seeds[1], sizeof(double) * N); /* of the squares, with one thread and with seven */
  free(seeds[0]);
  free(seeds[1]);
  free(labels);
  bppsa_free(goals);
  bppsa_free(values);
}

/* The shares of the parts of a batch add up to its loss, and their seeds are the batch's: of labels, with ignored ones, of squares,
 * of the binary cross-entropy.
 * Parts of 300 and 80 rows: several blocks of a GPU, and one. */
static void parts_add_up(void **state) {
  (void)state;
  enum { ROWS = 380, C = 3, N = ROWS * C, KINDS = 4 };
  static double values[N], goals[N];
  static int64_t labels[ROWS];
  for (int i = 0; i < N; ++i) {
    values[i] = 4.0 * bppsa_random_double(5, BPPSA_STREAM_TEST, (uint64_t)i) - 2.0;
    goals[i] = bppsa_random_double(6, BPPSA_STREAM_TEST, (uint64_t)i);
  }
  for (int r = 0; r < ROWS; ++r) {
    labels[r] = r % C;
  }
  for (int kind = 0; kind < KINDS; ++kind) {
    static const bppsa_loss_kind kinds[KINDS] = {BPPSA_LOSS_CROSS_ENTROPY, BPPSA_LOSS_CROSS_ENTROPY, BPPSA_LOSS_SQUARED,
                                                 BPPSA_LOSS_BINARY};
    static const int64_t cuts[] = {0, 300, 380};
    bppsa_loss_result sum = {0}, shares[2][2];
    static double seeds[2][N]; /* of the whole, of the parts */
    for (int split = 0; split < 2; ++split) {
      for (int part = 0; part <= split; ++part) {
        const int64_t first = split ? cuts[part] : 0, end = split ? cuts[part + 1] : ROWS, shape[2] = {end - first, C};
        const bppsa_view host = bppsa_view_make(values + first * C, BPPSA_F64, 2, shape), in = to_device(&host);
        const bppsa_view out = to_device(&host);
        const bppsa_view goal = bppsa_view_make(goals + first * C, BPPSA_F64, 2, shape);
        const bppsa_loss_rows rows = {.labels = kind < 2 ? labels + first : NULL,
                                      .targets = kind < 2 ? NULL : &goal,
                                      .objective = {kinds[kind], kind == 1, 2},
                                      .mean_rows = ROWS};
        assert_int_equal(bppsa_loss_part(device, &in, &rows, &out, &shares[split][part]), BPPSA_OK);
        assert_int_equal(bppsa_memory_get(device, seeds[split] + first * C, out.data, (int64_t)bppsa_view_bytes(&out)), BPPSA_OK);
        bppsa_memory_free(device, in.data);
        bppsa_memory_free(device, out.data);
      }
    }
    sum = (bppsa_loss_result){shares[1][0].loss + shares[1][1].loss, shares[1][0].correct + shares[1][1].correct,
                              shares[1][0].rows + shares[1][1].rows, shares[1][0].weight + shares[1][1].weight};
    assert_true(sum.loss > 0 && fabs(sum.loss - shares[0][0].loss) < 1e-14);
    assert_int_equal(sum.rows, shares[0][0].rows);
    assert_true(sum.weight == shares[0][0].weight && sum.weight == (double)sum.rows);
    assert_int_equal(sum.rows, kind == 1 ? 254 : ROWS);
    assert_int_equal(sum.correct, shares[0][0].correct);
    assert_memory_equal(seeds[0], seeds[1], sizeof seeds[0]); /* each row's is divided by the same number */
  }
  const int64_t shape[2] = {1, C};
  const bppsa_view view = bppsa_view_make(values, BPPSA_F64, 2, shape);
  bppsa_loss_result result;
  assert_int_equal(bppsa_loss_part(NULL, &view, &(bppsa_loss_rows){.labels = labels}, NULL, &result), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "loss of a part of 0 rows, expected 1 or more"));
}

/* The loss of weighted rows is Σ w l / Σ w of the rows' own losses, and its gradient w / Σ w times theirs. Rows of weight 0 are
 * not read. A part divides by the rows that it is told. */
static void weights_give_the_weighted_mean(void **state) {
  (void)state;
  enum { ROWS = 300, C = 3, COUNT = ROWS * C };
  const int64_t deep[3] = {100, 3, C}, one[2] = {1, C};
  const bppsa_loss_kind kinds[4] = {BPPSA_LOSS_CROSS_ENTROPY, BPPSA_LOSS_CROSS_ENTROPY, BPPSA_LOSS_SQUARED, BPPSA_LOSS_BINARY};
  double *x = uniform(21, COUNT, 4), *y = uniform(22, COUNT, 1), *w = uniform(23, ROWS, 1);
  int64_t labels[ROWS], lengths[3] = {100, 57, 80};
  for (int64_t r = 0; r < ROWS; ++r) {
    const bool left_out = r % 7 == 3;
    labels[r] = left_out ? 99 : r % C;
    w[r] = left_out ? 0 : 0.1 + fabs(w[r]);
    for (int64_t c = 0; c < C; ++c) {
      x[r * C + c] = left_out ? (double)NAN : x[r * C + c];
      y[r * C + c] = left_out ? -7 : fabs(y[r * C + c]);
    }
  }
  for (int kind = 0; kind < 4; ++kind) {
    const bool real = kind >= 2;
    double got[COUNT], expected[COUNT] = {0}, row_seed[C], loss = 0, sum = 0;
    const bppsa_view host = bppsa_view_make(x, BPPSA_F64, 3, deep), goals = bppsa_view_make(y, BPPSA_F64, 3, deep);
    const bppsa_view in = to_device(&host), out = to_device(&host);
    bppsa_loss_rows rows = {.labels = real ? NULL : labels,
                            .targets = real ? &goals : NULL,
                            .objective = {kinds[kind], kind == 1, 2},
                            .lengths = lengths,
                            .weights = w};
    int64_t counted = 0;
    for (int64_t r = 0; r < ROWS; ++r) {
      if (w[r] == 0 || r / 3 >= lengths[r % 3] || (kind == 1 && labels[r] == 2)) {
        continue;
      }
      bppsa_loss_result alone;
      const bppsa_view row = bppsa_view_make(x + r * C, BPPSA_F64, 2, one), goal = bppsa_view_make(y + r * C, BPPSA_F64, 2, one);
      const bppsa_view own = bppsa_view_make(row_seed, BPPSA_F64, 2, one);
      const bppsa_loss_rows single = {
          .labels = real ? NULL : labels + r, .targets = real ? &goal : NULL, .objective = {.kind = kinds[kind]}};
      assert_int_equal(bppsa_loss_of(NULL, &row, &single, &own, &alone), BPPSA_OK);
      for (int64_t c = 0; c < C; ++c) {
        expected[r * C + c] = w[r] * row_seed[c];
      }
      loss += w[r] * alone.loss;
      sum += w[r];
      ++counted;
    }
    bppsa_loss_result found, part;
    assert_int_equal(bppsa_loss_of(device, &in, &rows, &out, &found), BPPSA_OK);
    assert_int_equal(bppsa_memory_get(device, got, out.data, sizeof got), BPPSA_OK);
    assert_int_equal(found.rows, counted);
    assert_true(found.loss > 0 && fabs(found.loss - loss / sum) < 1e-13 && fabs(found.weight - sum) < 1e-11);
    for (int64_t i = 0; i < COUNT; ++i) {
      assert_true(fabs(got[i] - expected[i] / sum) < 1e-16 && (expected[i] != 0 || got[i] == 0));
    }
    rows.mean_rows = 2 * ROWS;
    assert_int_equal(bppsa_loss_part(device, &in, &rows, NULL, &part), BPPSA_OK);
    assert_true(fabs(part.loss * 2 * ROWS - loss) < 1e-11 && part.weight == found.weight && part.rows == counted);
    bppsa_memory_free(device, in.data);
    bppsa_memory_free(device, out.data);
  }
  bppsa_free(x);
  bppsa_free(y);
  bppsa_free(w);
}

/* Weights of 1 have the bits of none; a batch of weights of 0 has the loss 0; a negative weight is named. */
static void weights_of_one_change_nothing(void **state) {
  (void)state;
  enum { ROWS = 300, C = 3, COUNT = ROWS * C };
  const int64_t deep[3] = {100, 3, C};
  double *x = uniform(21, COUNT, 4), ones[ROWS];
  int64_t labels[ROWS];
  for (int64_t r = 0; r < ROWS; ++r) {
    labels[r] = r % C;
    ones[r] = 1;
  }
  double seeds[2][COUNT];
  bppsa_loss_result results[2];
  const bppsa_view host = bppsa_view_make(x, BPPSA_F64, 3, deep);
  for (int k = 0; k < 2; ++k) {
    const bppsa_view in = to_device(&host), out = to_device(&host);
    const bppsa_loss_rows rows = {.labels = labels, .weights = k == 1 ? ones : NULL};
    assert_int_equal(bppsa_loss_of(device, &in, &rows, &out, &results[k]), BPPSA_OK);
    assert_int_equal(bppsa_memory_get(device, seeds[k], out.data, sizeof seeds[k]), BPPSA_OK);
    bppsa_memory_free(device, in.data);
    bppsa_memory_free(device, out.data);
  }
  assert_memory_equal(seeds[0], seeds[1], sizeof seeds[0]);
  assert_true(results[0].loss == results[1].loss && results[0].weight == ROWS && results[1].weight == ROWS);
  const bppsa_view in = to_device(&host);
  memset(ones, 0, sizeof ones);
  assert_int_equal(bppsa_loss_of(device, &in, &(bppsa_loss_rows){.labels = labels, .weights = ones}, NULL, &results[0]),
                   BPPSA_OK);
  assert_true(results[0].loss == 0 && results[0].rows == 0 && results[0].weight == 0);
  ones[7] = -1;
  assert_int_equal(bppsa_loss_of(device, &in, &(bppsa_loss_rows){.labels = labels, .weights = ones}, NULL, &results[0]),
                   BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "weight -1 of row 7 of the batch, expected a finite number of 0 or more"));
  bppsa_memory_free(device, in.data);
  bppsa_free(x);
}

/* A loss that is only queued has the bits of the one that waits; bad labels are named before. */
static void a_queued_part_has_the_same_bits(void **state) {
  (void)state;
  enum { ROWS = 700, CLASSES = 3, COUNT = ROWS * CLASSES };
  const int64_t shape[2] = {ROWS, CLASSES}, bytes = ROWS * (int64_t)sizeof(int64_t);
  double *values = uniform(8, COUNT, 4), seeds[2][COUNT];
  const bppsa_view host = bppsa_view_make(values, BPPSA_F64, 2, shape), logits = to_device(&host), seed = to_device(&host);
  int64_t *labels;
  void *memory, *found;
  bppsa_loss_result waited = {0}, queued;
  assert_int_equal(bppsa_memory_alloc_staging(device, bytes, (void **)&labels), BPPSA_OK);
  assert_int_equal(bppsa_memory_alloc_staging(device, bppsa_loss_found_bytes(), &found), BPPSA_OK);
  assert_int_equal(bppsa_memory_alloc(device, bppsa_loss_part_memory(ROWS), &memory), BPPSA_OK);
  for (int64_t i = 0; i < ROWS; ++i) {
    labels[i] = i % CLASSES;
  }
  assert_int_equal(bppsa_loss_check_labels(&host, labels), BPPSA_OK);
  labels[9] = CLASSES;
  assert_int_equal(bppsa_loss_check_labels(&host, labels), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "label 3 at sample 9 of the batch, expected 0 .. 2"));
  labels[9] = 0;
  assert_int_equal(bppsa_loss_part_queue(device, &logits, labels, 0, &seed, memory, found), BPPSA_ERR_ARGUMENT);
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    assert_int_equal(bppsa_loss_part_queue(device, &logits, labels, ROWS, &seed, memory, found), BPPSA_ERR_ARGUMENT);
  } else {
    const bppsa_loss_rows rows = {.labels = labels, .mean_rows = 2 * ROWS};
    assert_int_equal(bppsa_loss_part(device, &logits, &rows, &seed, &waited), BPPSA_OK);
    assert_int_equal(bppsa_memory_get(device, seeds[0], seed.data, sizeof seeds[0]), BPPSA_OK);
    assert_int_equal(bppsa_memory_clear(device, seed.data, sizeof seeds[0]), BPPSA_OK);
    assert_int_equal(bppsa_loss_part_queue(device, &logits, labels, 2 * ROWS, &seed, memory, found), BPPSA_OK);
    assert_int_equal(bppsa_memory_get(device, seeds[1], seed.data, sizeof seeds[1]), BPPSA_OK);
    queued = bppsa_loss_part_found(found);
    assert_memory_equal(seeds[0], seeds[1], sizeof seeds[0]);
    assert_true(queued.loss == waited.loss && queued.correct == waited.correct && queued.rows == waited.rows);
    assert_int_equal(queued.rows, ROWS);
  }
  bppsa_memory_free(device, memory);
  bppsa_memory_free_staging(device, found);
  bppsa_memory_free_staging(device, labels);
  bppsa_memory_free(device, logits.data);
  bppsa_memory_free(device, seed.data);
  bppsa_free(values);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(agrees_with_pytorch),
      cmocka_unit_test(gradient_is_the_difference_quotient),
      cmocka_unit_test(large_logits_are_stable),
      cmocka_unit_test(nonfinite_logits_give_a_nonfinite_loss),
      cmocka_unit_test(labels_out_of_range_are_named),
      cmocka_unit_test(devices_agree),
      cmocka_unit_test(bits_do_not_depend_on_threads),
      cmocka_unit_test(others_agree_with_pytorch),
      cmocka_unit_test(all_labels_ignored_is_zero),
      cmocka_unit_test(others_agree_between_devices),
      cmocka_unit_test(other_losses_name_what_is_wrong),
      cmocka_unit_test(binary_agrees_with_its_definition),
      cmocka_unit_test(binary_is_stable),
      cmocka_unit_test(bits_of_others_do_not_depend_on_threads),
      cmocka_unit_test(parts_add_up),
      cmocka_unit_test(weights_give_the_weighted_mean),
      cmocka_unit_test(weights_of_one_change_nothing),
      cmocka_unit_test(a_queued_part_has_the_same_bits),
  };
  device = test_device(1);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}

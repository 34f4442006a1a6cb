/* Softmax cross-entropy against PyTorch, finite differences and itself with other threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/philox.h"
#include "train/loss.h"

static bppsa_loss_result loss_of(const bppsa_view *logits, const int64_t *labels, const bppsa_view *seed) {
  bppsa_loss_result result = {0};
  assert_int_equal(bppsa_cross_entropy(NULL, logits, labels, seed, &result), BPPSA_OK);
  return result;
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
  assert_true(fabs(wide.loss - 1.436420648100225) < 1e-15);
  assert_true(narrow.loss == wide.loss); /* the logits are exact in f32 and the sums are in double */
  assert_int_equal(wide.correct, 2);     /* rows 0 and 1; the tie of row 3 goes to class 0 */
  assert_int_equal(wide.rows, 4);
  for (int i = 0; i < 12; ++i) {
    assert_true(fabs(seed[i] - gradient[i]) < 1e-16);
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
  assert_int_equal(bppsa_cross_entropy(NULL, &view, labels, &out, &result), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "label 3 at sample 3 of the batch, expected 0 .. 2"));
  labels[2] = -1;
  assert_int_equal(bppsa_cross_entropy(NULL, &steps, labels, NULL, &result), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "label -1 at sample 0 of the batch, time step 2, expected 0 .. 2"));
  assert_int_equal(bppsa_cross_entropy(NULL, &view, labels, &wrong, &result), BPPSA_ERR_SHAPE);
  assert_true(seed[0] == 7.0f && result.rows == 77);
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
    bppsa_device *device = NULL;
    assert_int_equal(bppsa_device_create("cpu", threads[k], &device), BPPSA_OK);
    seeds[k] = malloc(sizeof(float) * ROWS * C);
    const bppsa_view out = bppsa_view_make(seeds[k], BPPSA_F32, 2, shape);
    assert_int_equal(bppsa_cross_entropy(device, &view, labels, &out, &results[k]), BPPSA_OK);
    bppsa_device_destroy(device);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(agrees_with_pytorch),           cmocka_unit_test(gradient_is_the_difference_quotient),
      cmocka_unit_test(large_logits_are_stable),       cmocka_unit_test(nonfinite_logits_give_a_nonfinite_loss),
      cmocka_unit_test(labels_out_of_range_are_named), cmocka_unit_test(bits_do_not_depend_on_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

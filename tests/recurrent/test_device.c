/* Recurrent networks on a device against the processor's sequential BP in float64: logits, gradients of every parameter, of the
 * input, of h0, for every way a device computes them. BPPSA_TEST_DEVICE names the device. (The file is long because all tests
 * share the ways, the problem and its transfers.) */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/graph.h"
#include "core/compute/memory.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "tests/recurrent/device_problem.h"
#include "tests/support/support.h"

static const way ways[] = {{BPPSA_BACKWARD_BP, BPPSA_SCAN_AUTO, 0},      {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 0},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 3}, {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH, 0},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_LINEAR, 0},  {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 1000},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_AUTO, 0}};

/* Shape s. Of pairs, whose products have eight times the terms, one way a shape. */
static void check_problem(problem p, uint64_t s) {
  const size_t only = (s + (p.config.dtype == BPPSA_F64 ? 3 : 0)) % (sizeof ways / sizeof *ways);
  make_numbers(&p, 10 * s);
  for (size_t w = 0; w < sizeof ways / sizeof *ways; ++w) {
    if (!p.cell->pair || w == only) {
      check_way(&p, &ways[w]);
    }
  }
  free_numbers(&p);
}

static const device_shape shapes[] = {{1, 1, 1, 1, 1, 1, 0},
                                      {2, 3, 2, 1, 20, 1, H0},
                                      {41, 2, 2, 1, 20, 1, 0},
                                      {37, 3, 3, 5, 8, 1, LOSS_ALL | INPUTS | H0},
                                      {23, 2, 1, 1, 7, 3, H0 | RELU},
                                      {30, 2, 2, 2, 32, 2, LOSS_ALL},
                                      {19, 5, 4, 1, 16, 1, LOSS_ALL | INPUTS | H0 | RELU},
                                      {26, 1, 1, 3, 13, 2, INPUTS | H0},
                                      {12, 2, 2, 1, 25, 1, H0},
                                      {9, 2, 2, 3, 40, 2, LOSS_ALL | INPUTS | H0},
                                      {5, 1, 1, 1, 70, 1, 0},
                                      {37, 5, 4, 1, 8, 1, 0},
                                      {36, 5, 4, 1, 16, 1, 0},
                                      {30, 4, 4, 1, 32, 1, 0},
                                      {22, 2, 2, 1, 20, 2, LOSS_ALL | INPUTS | H0}};

static void check_shapes(const bppsa_cell *cell, bppsa_dtype dtype) {
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; ++s) {
    check_problem(shaped_problem(cell, &shapes[s], dtype), s);
  }
}

static void test_rnn_f32(void **state) {
  (void)state;
  check_shapes(&bppsa_rnn_cell, BPPSA_F32);
}

static void test_rnn_f64(void **state) {
  (void)state;
  check_shapes(&bppsa_rnn_cell, BPPSA_F64);
}

static void test_gru_f32(void **state) {
  (void)state;
  check_shapes(&bppsa_gru_cell, BPPSA_F32);
}

static void test_gru_f64(void **state) {
  (void)state;
  check_shapes(&bppsa_gru_cell, BPPSA_F64);
}

static void test_lstm_f32(void **state) {
  (void)state;
  check_shapes(&bppsa_lstm_cell, BPPSA_F32);
}

static void test_lstm_f64(void **state) {
  (void)state;
  check_shapes(&bppsa_lstm_cell, BPPSA_F64);
}

/* D⁻¹ Q diag(e) Qᵀ D of eigenvalues `growth` and 0.9 in turn. q: NULL: the identity. d: NULL: the identity */
static void make_jacobian(int64_t hidden, const double *q, const double *d, double growth, double *jacobian) {
  for (int64_t i = 0; i < hidden; ++i) {
    for (int64_t j = 0; j < hidden; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < hidden; ++k) {
        sum += (q != NULL ? q[k * hidden + i] * q[k * hidden + j] : (double)(i == k && j == k)) * (k % 2 == 0 ? growth : 0.9);
      }
      jacobian[i * hidden + j] = d != NULL ? sum * d[i] / d[j] : sum;
    }
  }
}

/* Against float64 at every step, number j of a gradient times d[j] (NULL: 1). */
static void check_steps(int64_t steps, int64_t hidden, const double *d, const double *got, const double *expected) {
  float narrow[2 * 32];
  double wide[2 * 32];
  for (int64_t t = 0; t < steps; ++t) {
    for (int64_t j = 0; j < hidden; ++j) {
      narrow[j] = (float)(got[t * hidden + j] * (d != NULL ? d[j] : 1));
      wide[j] = expected[t * hidden + j] * (d != NULL ? d[j] : 1);
    }
    assert_true(residual(BPPSA_F32, narrow, wide, hidden, sqrt((double)steps)) < 30);
  }
}

static const way by_bp = {BPPSA_BACKWARD_BP, BPPSA_SCAN_AUTO, 0};
static const way in_chunks[] = {{BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 3}, {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 5}};

/* All rows of products grow alike, or vanish alike, so that their exponents are far from 0 and near each other. */
static void test_alike(void **state) {
  (void)state;
  enum { STEPS = 81, HIDDEN = 20 };
  double jacobian[HIDDEN * HIDDEN], seed[HIDDEN], *q = orthogonal(9, HIDDEN, 1);
  for (int i = 0; i < 3 * 2 * 2 * 2; ++i) {
    const bool grows = i / 6 % 2 == 0;
    const double growth = grows ? 2.7 : 0.35; /* over all steps 2^±120 */
    const bppsa_dtype dtype = i < 12 ? BPPSA_F32 : BPPSA_F64;
    int64_t redone;
    for (int64_t k = 0; k < HIDDEN * HIDDEN; ++k) {
      jacobian[k] = growth * q[k];
    }
    for (int64_t k = 0; k < HIDDEN; ++k) {
      seed[k] = ldexp(1 + (double)k / HIDDEN, grows ? -60 : 60);
    }
    double *expected = hidden_gradients(i % 3, host, BPPSA_F64, &by_bp, STEPS, HIDDEN, jacobian, seed, &redone);
    double *got = hidden_gradients(i % 3, device, dtype, &in_chunks[i / 3 % 2], STEPS, HIDDEN, jacobian, seed, &redone);
    check_steps(STEPS, (i % 3 == LSTM ? 2 : 1) * HIDDEN, NULL, got, expected);
    assert_int_equal(redone, 0);
    bppsa_free(expected);
    bppsa_free(got);
  }
  bppsa_free(q);
}

/* A block has no room for the transition that the size would have. */
static void test_little_memory(void **state) {
  (void)state;
  problem p = {.config = bppsa_recurrent_config_default(), .cell = &bppsa_gru_cell, .init = BPPSA_INIT_ORTHOGONAL, .batch = 4};
  p.config.seq_len = 40;
  p.config.batch = 4;
  p.config.hidden = 20;
  p.config.classes = 3;
  make_numbers(&p, 8);
  set_most("SIMT_MOST_SHARED", NULL);
  check_way(&p, &ways[5]); /* as many chunks as steps */
  free_numbers(&p);
  p.cell = &bppsa_rnn_cell; /* with one matrix: W_hh serves all products of a block, which needs 43008 bytes */
  p.config.hidden = 32;
  p.config.dtype = BPPSA_F64;
  make_numbers(&p, 8);
  set_most("SIMT_MOST_SHARED", "49152");
  check_way(&p, &ways[5]);
  set_most("SIMT_MOST_SHARED", LARGE_SHARED);
  free_numbers(&p);
}

/* The same of pairs; of the largest no transition fits, which is said before anything is launched. */
static void test_little_memory_for_pairs(void **state) {
  (void)state;
  if (bppsa_device_get_kind(device) == BPPSA_CPU || !is_emulated(device)) {
    skip();
  }
  for (int large = 0; large < 2; ++large) {
    problem p = {.config = bppsa_recurrent_config_default(), .cell = &bppsa_lstm_cell, .batch = 1};
    bppsa_model *model = NULL;
    bppsa_view logits, held[3];
    p.config.seq_len = 6;
    p.config.batch = 1;
    p.config.hidden = large ? 32 : 20;
    p.config.method.backward = BPPSA_BACKWARD_SCAN;
    p.config.method.scan = (bppsa_scan_method){.algorithm = BPPSA_SCAN_CHUNKED, .chunks = 3};
    make_numbers(&p, 8);
    set_most("SIMT_MOST_SHARED", NULL);
    if (large) {
      assert_int_equal(create(&p, &p.config, device, &model), BPPSA_OK);
      held[0] = put(device, BPPSA_F32, p.x, 3, (int64_t[]){6, 1, 1});
      held[1] = put(device, BPPSA_F32, p.h0, 3, (int64_t[]){1, 1, 64});
      held[2] = put(device, BPPSA_F32, p.seed, 2, (int64_t[]){1, p.config.classes});
      assert_int_equal(model->ops->forward(model, &held[0], NULL, &logits), BPPSA_OK);
      assert_int_equal(model->ops->backward(model, &held[2]), BPPSA_ERR_UNSUPPORTED);
      assert_non_null(
          strstr(bppsa_last_error(), "products of chunks: 115776 bytes of shared memory a block, expected at most 101376"));
      drop(device, held);
      bppsa_model_destroy(model);
    } else {
      check_way(&p, &in_chunks[0]);
    }
    set_most("SIMT_MOST_SHARED", LARGE_SHARED);
    free_numbers(&p);
  }
}

/* The rows of products grow beyond the type's range. Gradients that do not grow are right all the same, and nothing is redone. */
static void test_growth(void **state) {
  (void)state;
  enum { STEPS = 300, HIDDEN = 10 };
  double jacobian[HIDDEN * HIDDEN], seed[HIDDEN];
  make_jacobian(HIDDEN, NULL, NULL, 3, jacobian);
  for (int64_t i = 0; i < HIDDEN; ++i) {
    seed[i] = (double)(i % 2);
  }
  for (int i = 0; i < 2 * 3; ++i) {
    const bppsa_dtype dtype = i < 3 ? BPPSA_F32 : BPPSA_F64;
    int64_t redone;
    double *expected = hidden_gradients(i % 3, host, BPPSA_F64, &by_bp, STEPS, HIDDEN, jacobian, seed, &redone);
    double *got = hidden_gradients(i % 3, device, dtype, &in_chunks[0], STEPS, HIDDEN, jacobian, seed, &redone);
    check_steps(STEPS, (i % 3 == LSTM ? 2 : 1) * HIDDEN, NULL, got, expected);
    assert_int_equal(redone, 0);
    bppsa_free(expected);
    bppsa_free(got);
  }
}

/* The gradient grows with its products, whose rows have exponents that differ by 2^40 and more. Its numbers are as far apart the
 * other way around, so that all of them count: the power of two that is left out must be the same for all. */
static void test_exponents(void **state) {
  (void)state;
  enum { STEPS = 60, HIDDEN = 12 };
  double jacobian[HIDDEN * HIDDEN], seed[HIDDEN], d[HIDDEN], *q = orthogonal(5, HIDDEN, 1), *random = uniform(6, HIDDEN, 1e-6);
  for (int64_t i = 0; i < HIDDEN; ++i) {
    d[i] = ldexp(1, (int)(i * 7 % HIDDEN * 4 - 22));
    seed[i] = random[i] / d[i];
  }
  make_jacobian(HIDDEN, q, d, 3, jacobian);
  for (int i = 0; i < 2 * 2 * 2; ++i) {
    const bppsa_dtype dtype = i < 4 ? BPPSA_F32 : BPPSA_F64;
    int64_t redone;
    double *expected = hidden_gradients(i % 2, host, BPPSA_F64, &by_bp, STEPS, HIDDEN, jacobian, seed, &redone);
    double *got = hidden_gradients(i % 2, device, dtype, &in_chunks[i / 2 % 2], STEPS, HIDDEN, jacobian, seed, &redone);
    check_steps(STEPS, HIDDEN, d, got, expected);
    assert_int_equal(redone, 0);
    bppsa_free(expected);
    bppsa_free(got);
  }
  bppsa_free(random);
  bppsa_free(q);
}

/* Some rows of a chunk's product are further below the others than the type's range, and the gradient has numbers in these rows
 * alone. The rows are those of which a warp's maximum knows nothing that lacks every other lane's number; row 0 is none of them.
 * (The GRU has no Jacobian whose other numbers are small enough.) */
static void test_apart(void **state) {
  (void)state;
  enum { STEPS = 16, HIDDEN = 12 };
  static const bool low[HIDDEN] = {[3] = true, [5] = true, [6] = true, [9] = true, [10] = true};
  const way in_two = {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 2};
  for (int i = 0; i < 2; ++i) {
    const bppsa_dtype dtype = i == 0 ? BPPSA_F32 : BPPSA_F64;
    const int fall = i == 0 ? 20 : 140; /* a chunk of eight steps: 2^-160, 2^-1120 */
    double jacobian[HIDDEN * HIDDEN] = {0}, seed[HIDDEN] = {0};
    int64_t redone;
    for (int64_t k = 0; k < HIDDEN; ++k) {
      int64_t next = (k + 1) % HIDDEN;
      while (low[next] != low[k]) {
        next = (next + 1) % HIDDEN;
      }
      jacobian[k * HIDDEN + next] = ldexp(1, low[k] ? -fall : 0);
      seed[k] = low[k] ? ldexp(1 + (double)k / HIDDEN, 5 * fall) : 0;
    }
    double *expected = hidden_gradients(false, host, BPPSA_F64, &by_bp, STEPS, HIDDEN, jacobian, seed, &redone);
    double *got = hidden_gradients(false, device, dtype, &in_two, STEPS, HIDDEN, jacobian, seed, &redone);
    for (int64_t t = 0; t < STEPS; ++t) {
      double most = 0;
      for (int64_t j = 0; j < HIDDEN; ++j) {
        most = fmax(most, fabs(expected[t * HIDDEN + j]));
      }
      for (int64_t j = 0; j < HIDDEN; ++j) { /* below 2^-120 numbers of f32 end */
        assert_true(fabs(got[t * HIDDEN + j] - expected[t * HIDDEN + j]) <= 1e-4 * most + (i == 0 ? 0x1p-120 : 0x1p-1020));
      }
    }
    assert_int_equal(redone, 0);
    bppsa_free(expected);
    bppsa_free(got);
  }
}

/* Every step moves the gradient's only number to the next unit. What a product does to single units would look useless: the unit
 * that had the number has nothing afterwards. Over all units, in both halves of a warp, it is not, and nothing is redone. */
static void test_moving(void **state) {
  (void)state;
  enum { STEPS = 75, HIDDEN = 24 };
  double jacobian[HIDDEN * HIDDEN] = {0}, seed[HIDDEN] = {1};
  for (int64_t i = 0; i < HIDDEN; ++i) {
    jacobian[i * HIDDEN + (i + 1) % HIDDEN] = 1;
  }
  for (int i = 0; i < 2 * 2 * 2; ++i) {
    const bppsa_dtype dtype = i < 4 ? BPPSA_F32 : BPPSA_F64;
    int64_t redone;
    double *expected = hidden_gradients(i % 2, host, BPPSA_F64, &by_bp, STEPS, HIDDEN, jacobian, seed, &redone);
    double *got = hidden_gradients(i % 2, device, dtype, &in_chunks[i / 2 % 2], STEPS, HIDDEN, jacobian, seed, &redone);
    check_steps(STEPS, HIDDEN, NULL, got, expected);
    assert_int_equal(redone, 0);
    bppsa_free(expected);
    bppsa_free(got);
  }
}

/* One number of the gradient leaves the range of its type within the first, second, .. chunk: from there on a GPU's fused kernels
 * have what BP has, NaN in every other number too. */
static void test_overflow(void **state) {
  (void)state;
  if (bppsa_device_get_kind(device) == BPPSA_CPU) { /* its products need not find it in the same chunk */
    skip();
  }
  enum { CHUNK = 15, STEPS = 5 * CHUNK, HIDDEN = 12 };
  double jacobian[HIDDEN * HIDDEN] = {0}, seed[HIDDEN];
  for (int64_t i = 0; i < HIDDEN; ++i) {
    jacobian[i * (HIDDEN + 1)] = i == 7 ? 3 : 0.9;
    seed[i] = 1;
  }
  for (int i = 0; i < 3 * 4; ++i) {
    seed[7] = 1e37 * pow(3, -CHUNK * (i / 3)); /* beyond f32 after 4 steps of chunk i / 3 */
    const int64_t width = (i % 3 == LSTM ? 2 : 1) * HIDDEN;
    int64_t redone;
    double *expected = hidden_gradients(i % 3, device, BPPSA_F32, &by_bp, STEPS, HIDDEN, jacobian, seed, &redone);
    double *got = hidden_gradients(i % 3, device, BPPSA_F32, &in_chunks[1], STEPS, HIDDEN, jacobian, seed, &redone);
    assert_true(redone > 0 && isnan(expected[0]) && !isnan(expected[(STEPS - 1 - CHUNK * (i / 3)) * width]));
    for (int64_t k = 0; k < STEPS * width; ++k) {
      assert_true((isnan(expected[k]) && isnan(got[k])) || got[k] == expected[k] ||
                  fabs(got[k] - expected[k]) < 1e-4 * fabs(expected[k]));
    }
    bppsa_free(expected);
    bppsa_free(got);
  }
}

/* The last step whose gradient is not finite, which is where the backward pass meets the first such number; -1: all are finite. */
static int64_t last_nonfinite(const double *gradients, int64_t steps, int64_t hidden) {
  int64_t k = steps * hidden - 1;
  while (k >= 0 && isfinite(gradients[k])) {
    --k;
  }
  return k < 0 ? -1 : k / hidden;
}

/* Whatever the method, the gradient leaves the range of its type in the step in which BP's does, at every place of a chunk and at
 * its ends. Behind that step the methods' numbers may differ, because a product can be finite where BP has Inf - Inf or 0 Inf, but
 * the step itself is computed from the same finite gradient; also where the number would be gone at the chunk's end. */
static void test_overflow_is_found(void **state) {
  (void)state;
  enum { STEPS = 45, HIDDEN = 12, PLACES = 16 };
  for (int gone = 0; gone < 2; ++gone) {
    double jacobian[HIDDEN * HIDDEN] = {0}, seed[HIDDEN];
    const int64_t unit = gone ? HIDDEN / 2 : 7;
    for (int64_t i = 0; i < HIDDEN;
         ++i) { /* one unit grows; or a number moves through the units, grows, and leaves the last one */
      jacobian[gone ? i * HIDDEN + (i + 1) % HIDDEN : i * (HIDDEN + 1)] = gone ? (i + 1 < HIDDEN ? 10 : 0) : i == unit ? 3 : 0.9;
    }
    for (int place = 0; place < PLACES; ++place) {
      int64_t redone;
      for (int64_t i = 0; i < HIDDEN; ++i) {
        seed[i] = gone ? 0 : 1;
      }
      seed[unit] = gone ? 3 * pow(10, 38 - place) : 1e37 * pow(3, -place);
      double *expected = hidden_gradients(place % 2, device, BPPSA_F32, &by_bp, STEPS, HIDDEN, jacobian, seed, &redone);
      const int64_t step = last_nonfinite(expected, STEPS, HIDDEN);
      assert_true(gone ? (step >= 0) == (place < HIDDEN / 2 - 1) : step >= 0);
      for (size_t w = 1; w < sizeof ways / sizeof *ways; ++w) {
        double *got = hidden_gradients(place % 2, device, BPPSA_F32, &ways[w], STEPS, HIDDEN, jacobian, seed, &redone);
        if (last_nonfinite(got, STEPS, HIDDEN) != step) {
          fail_msg("way %d, %s, place %d: not finite at step %d, by BP at step %d", (int)w, gone ? "gone" : "growing", place,
                   (int)last_nonfinite(got, STEPS, HIDDEN), (int)step);
        }
        bppsa_free(got);
      }
      bppsa_free(expected);
    }
  }
}

/* Two large numbers cancel in the last chunk, whose product is useless. It alone is redone, although the large number of W_hh,
 * which nothing reaches, times the gradient's is beyond the type's range. */
static void test_redone_alone(void **state) {
  (void)state;
  enum { STEPS = 12, HIDDEN = 4 };
  for (int i = 0; i < 2; ++i) {
    const bppsa_dtype dtype = i == 0 ? BPPSA_F32 : BPPSA_F64;
    const double large = i == 0 ? 1e20 : 1e160;
    const double seed[HIDDEN] = {large, 0, 1e10 * large, -1e10 * large};
    const double jacobian[HIDDEN * HIDDEN] = {1, 0, 0, 0, large, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1};
    int64_t redone;
    double *got = hidden_gradients(RNN, device, dtype, &in_chunks[0], STEPS, HIDDEN, jacobian, seed, &redone);
    assert_true(redone == 1 || bppsa_device_get_kind(device) == BPPSA_CPU); /* which counts products of its own */
    for (int64_t t = 0; t < STEPS - 1; ++t) {
      assert_true(fabs(got[t * HIDDEN] / large - 1) < 1e-6 && got[t * HIDDEN + 1] == 0);
      assert_true(got[t * HIDDEN + 2] == 0 && got[t * HIDDEN + 3] == 0);
    }
    bppsa_free(got);
  }
}

/* The larger directions cancel in the gradient: the product is useless, its steps are redone, and counted. */
static void test_cancellation(void **state) {
  (void)state;
  enum { STEPS = 240, HIDDEN = 12 };
  double jacobian[HIDDEN * HIDDEN], *q = orthogonal(5, HIDDEN, 1), *seed = q + HIDDEN; /* of eigenvalue 0.9 */
  make_jacobian(HIDDEN, q, NULL, 1, jacobian);
  for (int i = 0; i < 2 * 3; ++i) {
    const bppsa_dtype dtype = i < 3 ? BPPSA_F32 : BPPSA_F64;
    int64_t redone, none;
    double *expected = hidden_gradients(i % 3, device, dtype, &by_bp, STEPS, HIDDEN, jacobian, seed, &none);
    double *got = hidden_gradients(i % 3, device, dtype, &in_chunks[0], STEPS, HIDDEN, jacobian, seed, &redone);
    assert_true(redone > 0);
    assert_int_equal(none, 0);
    for (int64_t k = 0; k < (i % 3 == LSTM ? 2 : 1) * STEPS * HIDDEN; ++k) { /* rounding alone may grow by 0.9^-STEPS */
      assert_true(fabs(got[k] - expected[k]) < (i < 3 ? 1e-5 : 1e-14));
    }
    bppsa_free(expected);
    bppsa_free(got);
  }
  bppsa_free(q);
}

/* Gradients enter at every step, and chunks are so long that a chunk's product contributes less than the type's range: nothing is
 * redone for that. */
static void test_vanished(void **state) {
  (void)state;
  const way w = {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 3};
  for (int gru = 0; gru < 2; ++gru) {
    problem p = {.config = bppsa_recurrent_config_default(), .cell = gru ? &bppsa_gru_cell : &bppsa_rnn_cell, .batch = 1};
    bppsa_recurrent_config c, exact;
    bppsa_model *model = NULL;
    bppsa_view logits, held[3], expected[3];
    p.config.seq_len = 700;
    p.config.batch = 1;
    p.config.hidden = 12;
    p.config.loss_all = true;
    c = exact = p.config;
    c.method.backward = w.backward;
    c.method.scan.algorithm = w.algorithm;
    c.method.scan.chunks = w.chunks;
    exact.dtype = BPPSA_F64;
    exact.method.backward = BPPSA_BACKWARD_BP;
    make_numbers(&p, 7);
    assert_int_equal(create(&p, &c, device, &model), BPPSA_OK);
    assert_int_equal(create(&p, &exact, host, &p.reference), BPPSA_OK);
    assert_int_equal(bppsa_recurrent_init(model, BPPSA_INIT_DEFAULT, 3), BPPSA_OK);
    share_weights(&p, model);
    pass(&p, p.reference, host, &logits, expected);
    pass(&p, model, device, &logits, held);
    assert_int_equal(bppsa_model_pull(model, true), BPPSA_OK);
    for (int64_t i = 0; i < model->parameter_count; ++i) {
      check(&p, &w, model->parameters[i].name, &model->parameters[i].gradient, p.reference->parameters[i].gradient.data);
    }
    assert_int_equal(bppsa_model_update_redone(model), BPPSA_OK);
    assert_int_equal(model->redone, 0);
    drop(device, held);
    drop(host, expected);
    bppsa_model_destroy(model);
    bppsa_model_destroy(p.reference);
    free_numbers(&p);
  }
}

typedef struct {
  bppsa_model *model;
  const bppsa_view *seed;
} layers_pass;

static bppsa_status queue_layers(void *context) {
  const layers_pass *p = context;
  return bppsa_recurrent_backward_layers(p->model, p->seed);
}

/* A seed of the last states is read where it stands, and nothing is cleared that nobody reads: a recorded backward pass is its
 * kernels, BP's walk, the scan's transition and carry besides. A launch adds the sums of all blocks only where there are many (of
 * the GRU's scan); otherwise the walk's last block does. Its gradients are those of the processor. */
static void test_nodes(void **state) {
  (void)state;
  for (int k = 0; k < 4; ++k) {
    const bool scan = k % 2 == 1;
    const way w = {scan ? BPPSA_BACKWARD_SCAN : BPPSA_BACKWARD_BP, scan ? BPPSA_SCAN_CHUNKED : BPPSA_SCAN_AUTO, scan ? 5 : 0};
    problem p = {.config = bppsa_recurrent_config_default(), .cell = k >= 2 ? &bppsa_gru_cell : &bppsa_rnn_cell, .batch = 2};
    bppsa_model *model = NULL;
    bppsa_graph *graph = NULL;
    p.config.seq_len = 30;
    p.config.batch = 2;
    p.config.hidden = 20;
    bppsa_recurrent_config c = p.config, exact = p.config;
    c.method.backward = w.backward;
    c.method.scan.algorithm = w.algorithm;
    c.method.scan.chunks = w.chunks;
    exact.dtype = BPPSA_F64;
    exact.method.backward = BPPSA_BACKWARD_BP;
    make_numbers(&p, 3);
    double *seed = uniform(9, p.batch * c.hidden, 1);
    bppsa_free(rounded(c.dtype, seed, p.batch * c.hidden));
    assert_int_equal(create(&p, &c, device, &model), BPPSA_OK);
    assert_int_equal(create(&p, &exact, host, &p.reference), BPPSA_OK);
    assert_int_equal(bppsa_recurrent_init(model, BPPSA_INIT_ORTHOGONAL, 3), BPPSA_OK);
    share_weights(&p, model);
    const int64_t x[] = {c.seq_len, p.batch, c.input}, last[] = {p.batch, c.hidden};
    bppsa_view in = put(device, c.dtype, p.x, 3, x), from = put(device, c.dtype, seed, 2, last),
               exact_in = put(host, BPPSA_F64, p.x, 3, x), exact_from = put(host, BPPSA_F64, seed, 2, last);
    assert_int_equal(bppsa_recurrent_forward_layers(p.reference, &exact_in, NULL), BPPSA_OK);
    assert_int_equal(bppsa_recurrent_backward_layers(p.reference, &exact_from), BPPSA_OK);
    assert_int_equal(bppsa_recurrent_forward_layers(model, &in, NULL), BPPSA_OK);
    layers_pass pass = {model, &from};
    if (bppsa_device_get_kind(device) == BPPSA_CPU) {
      assert_int_equal(queue_layers(&pass), BPPSA_OK);
    } else {
      assert_int_equal(bppsa_graph_capture(device, queue_layers, &pass, &graph), BPPSA_OK);
      assert_int_equal(bppsa_graph_nodes(graph), k == 3 ? 4 : scan ? 3 : 1);
      assert_int_equal(bppsa_graph_launch(device, graph), BPPSA_OK);
    }
    assert_int_equal(bppsa_model_pull(model, true), BPPSA_OK);
    for (int64_t i = 0; i < 4; ++i) { /* the layer's; the head has no part in it */
      check(&p, &w, model->parameters[i].name, &model->parameters[i].gradient, p.reference->parameters[i].gradient.data);
    }
    bppsa_graph_destroy(device, graph);
    bppsa_memory_free(device, in.data);
    bppsa_memory_free(device, from.data);
    bppsa_memory_free(host, exact_in.data);
    bppsa_memory_free(host, exact_from.data);
    bppsa_model_destroy(model);
    bppsa_model_destroy(p.reference);
    void *const blocks[] = {seed, p.x, p.h0, p.seed};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
      bppsa_free(blocks[i]);
    }
  }
}

static bppsa_status count_scan(void *context, const bppsa_scan_plan *plan, const bppsa_device *on,
                               bppsa_scan_executor **executor) {
  ++*(int *)context;
  return bppsa_scan_executor_create(plan, on, executor);
}

/* A caller's scan factory is used wherever there is a scan, and never in sequential BP. */
static void test_factory(void **state) {
  (void)state;
  for (int k = 0; k < 8; ++k) {
    int made = 0;
    problem p = {.config = bppsa_recurrent_config_default(), .cell = k % 2 == 1 ? &bppsa_gru_cell : &bppsa_rnn_cell};
    p.config.seq_len = 6;
    p.config.hidden = k / 2 % 2 == 0 ? 5 : 40;
    p.config.layers = 2;
    p.config.method.backward = k < 4 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN;
    p.config.factory = (bppsa_scan_factory){count_scan, &made};
    bppsa_model *model = NULL;
    assert_int_equal(create(&p, &p.config, device, &model), BPPSA_OK);
    assert_int_equal(made, k < 4 ? 0 : 2);
    bppsa_model_destroy(model);
  }
}

enum { ENDS_LAYERS = 2, ENDS_BATCH = 3, ENDS_HIDDEN = 5, ENDS_STATE = 2 * ENDS_BATCH * ENDS_HIDDEN };

typedef struct {
  int before, after;                     /* calls */
  int64_t state;                         /* numbers of all samples' states */
  double first[ENDS_LAYERS][ENDS_STATE]; /* g_0 of each layer, as it left */
} seen_ends;

static bppsa_status see_last(void *context, int64_t layer, void *g) {
  seen_ends *seen = context;
  (void)g;
  assert_int_equal(layer, ENDS_LAYERS - 1 - seen->before++);
  return BPPSA_OK;
}

static bppsa_status see_first(void *context, int64_t layer, const void *g) {
  seen_ends *seen = context;
  ++seen->after;
  return bppsa_memory_get(device, seen->first[layer], g, seen->state * (int64_t)sizeof(double));
}

/* Each layer's g_0 leaves, from BP and through the products of chunks, as it is among the gradients of the inputs, and changes none
 * of the layer's other gradients. */
static void test_ends(void **state) {
  (void)state;
  static const way tried[] = {{BPPSA_BACKWARD_BP, BPPSA_SCAN_AUTO, 0}, {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 3}};
  for (int k = 0; k < 12; ++k) {
    problem p = {.config = bppsa_recurrent_config_default(), .cell = cells[k % 3], .state = true, .batch = ENDS_BATCH};
    bppsa_recurrent_config *c = &p.config;
    seen_ends seen = {0};
    bppsa_view logits, held[3], dh0, dx;
    bppsa_model *model = NULL, *plain = NULL;
    double kept[ENDS_LAYERS * ENDS_STATE];
    c->seq_len = 8;
    c->batch = ENDS_BATCH;
    c->hidden = ENDS_HIDDEN;
    c->layers = ENDS_LAYERS;
    c->dtype = BPPSA_F64;
    c->loss_all = k / 6 == 1;
    c->input_gradients = true;
    c->method.backward = tried[k / 3 % 2].backward;
    c->method.scan = (bppsa_scan_method){.algorithm = tried[k / 3 % 2].algorithm, .chunks = tried[k / 3 % 2].chunks};
    seen.state = ENDS_BATCH * state_size(&p);
    make_numbers(&p, 21);
    assert_int_equal(create(&p, c, device, &plain), BPPSA_OK);
    c->ends = (bppsa_recurrent_ends){.context = &seen, .before = see_last, .after = see_first};
    assert_int_equal(create(&p, c, device, &model), BPPSA_OK);
    assert_int_equal(bppsa_recurrent_init(model, BPPSA_INIT_ORTHOGONAL, 7), BPPSA_OK);
    assert_int_equal(bppsa_recurrent_init(plain, BPPSA_INIT_ORTHOGONAL, 7), BPPSA_OK);
    pass(&p, plain, device, &logits, held);
    drop(device, held);
    pass(&p, model, device, &logits, held);
    assert_int_equal(model->ops->input_gradients(model, &dx, &dh0), BPPSA_OK);
    assert_int_equal(bppsa_memory_get(device, kept, dh0.data, ENDS_LAYERS * seen.state * (int64_t)sizeof(double)), BPPSA_OK);
    drop(device, held);
    assert_true(seen.before == ENDS_LAYERS && seen.after == ENDS_LAYERS);
    for (int64_t i = 0; i < ENDS_LAYERS * seen.state; ++i) {
      assert_true(kept[i] != 0 && fabs(seen.first[i / seen.state][i % seen.state] - kept[i]) < 1e-14);
    }
    assert_int_equal(bppsa_model_pull(model, true), BPPSA_OK);
    assert_int_equal(bppsa_model_pull(plain, true), BPPSA_OK);
    for (int64_t i = 0; i < model->parameter_count; ++i) {
      const bppsa_view *mine = &model->parameters[i].gradient, *its = &plain->parameters[i].gradient;
      for (int64_t e = 0; e < bppsa_view_count(mine); ++e) {
        assert_true(bppsa_view_get(mine, e) == bppsa_view_get(its, e));
      }
    }
    bppsa_model_destroy(model);
    bppsa_model_destroy(plain);
    free_numbers(&p);
  }
}

int main(void) {
  set_most("SIMT_MOST_SHARED", LARGE_SHARED);
  device = test_device(2);
  host = cpu_device(2);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rnn_f32),       cmocka_unit_test(test_rnn_f64),
                                     cmocka_unit_test(test_gru_f32),       cmocka_unit_test(test_gru_f64),
                                     cmocka_unit_test(test_lstm_f32),      cmocka_unit_test(test_lstm_f64),
                                     cmocka_unit_test(test_growth),        cmocka_unit_test(test_exponents),
                                     cmocka_unit_test(test_apart),         cmocka_unit_test(test_moving),
                                     cmocka_unit_test(test_overflow),      cmocka_unit_test(test_overflow_is_found),
                                     cmocka_unit_test(test_cancellation),  cmocka_unit_test(test_vanished),
                                     cmocka_unit_test(test_nodes),         cmocka_unit_test(test_factory),
                                     cmocka_unit_test(test_ends),          cmocka_unit_test(test_alike),
                                     cmocka_unit_test(test_little_memory), cmocka_unit_test(test_little_memory_for_pairs),
                                     cmocka_unit_test(test_redone_alone)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
  return failed;
}

/* The fused kernels of recurrent layers, and the CPU's code for the same, cut time into the chunks that the plan prints; an unknown
 * algorithm runs neither in them nor beside them. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "gru/gru.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "tests/simt/watch.h"
#include "tests/support/cut_bits.h"
#include "tests/support/length.h"
#include "tests/support/support.h"

enum { MOST = 300 };

static const float weight = 0.9876543f;

/* With states of 0 Jᵀ = W: computes the gradients of the states g_T, .., g_1 with one unit. */
static void run(const bppsa_device *device, int64_t steps, int64_t chunks, float *y) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  bppsa_model *model = NULL;
  bppsa_view logits, gradients;
  float one = 1, g[MOST];
  c.seq_len = steps;
  c.batch = c.hidden = 1;
  c.dtype = BPPSA_F32;
  c.method.backward = BPPSA_BACKWARD_SCAN;
  c.method.scan = (bppsa_scan_method){.algorithm = BPPSA_SCAN_CHUNKED, .chunks = chunks};
  assert_int_equal(bppsa_recurrent_create(&c, &bppsa_rnn_cell, device, &model), BPPSA_OK);
  bppsa_view_set(&model->parameters[1].value, 0, (double)weight);
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
  float *zeros = bppsa_calloc(steps, sizeof *zeros);
  void *x = on_device(device, zeros, steps * (int64_t)sizeof(float)), *seed = on_device(device, &one, sizeof one);
  bppsa_view in = bppsa_view_make(x, BPPSA_F32, 3, (int64_t[]){steps, 1, 1}),
             from = bppsa_view_make(seed, BPPSA_F32, 2, (int64_t[]){1, 1});
  in.device = from.device = bppsa_device_get_kind(device);
  assert_int_equal(model->ops->forward(model, &in, NULL, &logits), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_hidden_gradients(model, &from, &gradients), BPPSA_OK);
  assert_int_equal(bppsa_view_bytes(&gradients), steps * (int64_t)sizeof(float));
  assert_int_equal(bppsa_memory_get(device, g, gradients.data, steps * (int64_t)sizeof(float)), BPPSA_OK);
  for (int64_t i = 0; i < steps; ++i) {
    y[i] = g[steps - 1 - i];
  }
  bppsa_free(zeros);
  bppsa_memory_free(device, x);
  bppsa_memory_free(device, seed);
  bppsa_model_destroy(model);
}

static void test_cut(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  const bool fused = bppsa_device_get_kind(device) != BPPSA_CPU; /* then chunk 0 has a product too */
  int64_t begin[MOST + 1], differs = 0, cuts = 0;
  float first[MOST], second[MOST], expected[MOST + 1], other[MOST + 1], got[MOST];
  for (int64_t i = 0; i < MOST; ++i) {
    first[i] = 1;
    second[i] = weight;
  }
  for (int64_t steps = 1; steps <= MOST; ++steps) {
    for (int64_t p = 1; p <= steps; ++p) {
      if (steps > 9 && ((fused && !is_example(MOST, steps, p)) || !is_drawn(10))) { /* a GPU gets fewer, in one minute */
        continue;
      }
      expected[0] = other[0] = 1;
      const int64_t old = ceiling_cut(steps, p, begin);
      chunked_bits(first, second, old, begin, fused, other);
      balanced_cut(steps, p, begin);
      chunked_bits(first, second, p, begin, fused, expected);
      run(device, steps, p, got);
      for (int64_t i = 0; i < steps; ++i) {
        if (got[i] != expected[i]) {
          fail_msg("T %d, P %d: the gradient of h_%d is %.9g, expected %.9g", (int)steps, (int)p, (int)(steps - i),
                   (double)got[i], (double)expected[i]);
        }
      }
      cuts += steps % p != 0 && old > 2;
      differs += memcmp(expected, other, (size_t)steps * sizeof(float)) != 0;
    }
  }
  assert_true(differs > cuts / 2); /* the bits tell one cut from another */
  bppsa_device_destroy(device);
}

/* ---- launched ---- */

enum { SAMPLES = 4 };

/* Warps of the latest walk, which has one for every chunk and sample. */
static void count_warps(void *context, const simt_call *call) {
  if (strstr(call->kernel, "bppsa_recurrent_walk") != NULL) {
    *(int64_t *)context = (int64_t)call->blocks * (call->threads / 32);
  }
}

/* The chunks that the fused kernels are launched with, for every cut, are as many as the plan prints. */
static void test_launched(void **state) {
  (void)state;
  bppsa_device *device = emulated_device(1);
  static float room[MOST * SAMPLES];
  for (int64_t steps = 1; steps <= MOST; ++steps) {
    bppsa_view in = bppsa_view_make(room, BPPSA_F32, 3, (int64_t[]){steps, SAMPLES, 1}),
               from = bppsa_view_make(room, BPPSA_F32, 2, (int64_t[]){SAMPLES, 1});
    in.device = from.device = BPPSA_CUDA;
    for (int64_t p = 0; p <= steps; ++p) {
      if (steps > 9 && !is_drawn(20)) {
        continue;
      }
      bppsa_recurrent_config c = bppsa_recurrent_config_default();
      bppsa_model *model = NULL;
      bppsa_view gradients;
      int64_t warps = 0;
      c.seq_len = steps;
      c.batch = SAMPLES;
      c.hidden = c.classes = 1;
      c.method.backward = BPPSA_BACKWARD_SCAN;
      c.method.scan = (bppsa_scan_method){.algorithm = BPPSA_SCAN_CHUNKED, .chunks = p};
      assert_int_equal(bppsa_recurrent_create(&c, &bppsa_rnn_cell, device, &model), BPPSA_OK);
      simt_watch(count_warps, &warps);
      assert_int_equal(bppsa_recurrent_forward_layers(model, &in, NULL), BPPSA_OK);
      assert_int_equal(bppsa_recurrent_hidden_gradients(model, &from, &gradients), BPPSA_OK);
      simt_watch(NULL, NULL);
      const int64_t planned = bppsa_scan_plan_config(bppsa_recurrent_plan(model, 0))->method.chunks;
      assert_int_equal(warps, planned * SAMPLES);
      assert_int_equal(planned, p > 0 ? p : lround(sqrt(2 * (double)steps)) < steps ? lround(sqrt(2 * (double)steps)) : steps);
      bppsa_model_destroy(model);
    }
  }
  bppsa_device_destroy(device);
}

static void test_invented_algorithm(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  static const int64_t hidden[] = {8, 40}; /* with and without fused kernels */
  for (int i = 0; i < 2; ++i) {
    for (int gru = 0; gru < 2; ++gru) {
      bppsa_recurrent_config c = bppsa_recurrent_config_default();
      bppsa_model *model = NULL;
      c.seq_len = 10;
      c.batch = 2;
      c.hidden = hidden[i];
      c.method.backward = BPPSA_BACKWARD_SCAN;
      c.method.scan.algorithm = (bppsa_scan_algorithm)77;
      assert_int_equal(bppsa_recurrent_create(&c, gru ? &bppsa_gru_cell : &bppsa_rnn_cell, device, &model),
                       BPPSA_ERR_UNSUPPORTED);
      assert_non_null(strstr(bppsa_last_error(), "unknown algorithm 77, expected auto, linear, blelloch or chunked"));
      assert_null(model);
    }
  }
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut), cmocka_unit_test(test_launched),
                                     cmocka_unit_test(test_invented_algorithm)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

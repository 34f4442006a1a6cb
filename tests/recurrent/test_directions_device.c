/* Networks with two directions on a device against the processor's sequential BP in float64, for every way a device computes them.
 * BPPSA_TEST_DEVICE names the device. */
#include "recurrent/certify.h"
#include "tests/recurrent/device_problem.h"

static const way ways[] = {{BPPSA_BACKWARD_BP, BPPSA_SCAN_AUTO, 0},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 3},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH, 0},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_LINEAR, 0}};

/* One step and one unit; inputs of size 1, whose products are computed within the sweeps; layers whose weight gradients are
 * summed there, whose are not, and that are wider than a warp. */
static const device_shape shapes[] = {{1, 1, 1, 1, 1, 1, INPUTS | H0 | BOTH_WAYS},
                                      {2, 3, 2, 1, 20, 1, H0 | BOTH_WAYS},
                                      {21, 2, 2, 1, 20, 2, LOSS_ALL | INPUTS | H0 | BOTH_WAYS},
                                      {17, 3, 3, 5, 8, 1, LOSS_ALL | INPUTS | NO_BIAS | BOTH_WAYS},
                                      {13, 2, 1, 1, 7, 3, H0 | BOTH_WAYS},
                                      {12, 2, 2, 2, 32, 2, LOSS_ALL | BOTH_WAYS},
                                      {9, 2, 2, 3, 40, 2, INPUTS | H0 | NO_BIAS | BOTH_WAYS},
                                      {11, 2, 2, 1, 2, 2, LOSS_ALL | INPUTS | H0 | BOTH_WAYS}};
enum { SHAPES = sizeof shapes / sizeof *shapes, WAYS = sizeof ways / sizeof *ways };

static problem problem_of(int cell, int s, bppsa_dtype dtype) {
  problem p = shaped_problem(cells[cell], &shapes[s], dtype);
  make_numbers(&p, 10 * (uint64_t)s);
  return p;
}

static void check_shapes(bppsa_dtype dtype) {
  for (int i = 0; i < 3 * SHAPES; ++i) {
    problem p = problem_of(i % 3, i / 3, dtype);
    for (int w = 0; w < WAYS; ++w) {
      if (i % 3 == RNN || w == (i + (dtype == BPPSA_F64)) % WAYS) { /* of the larger cells one way a shape */
        check_way(&p, &ways[w]);
      }
    }
    free_numbers(&p);
  }
}

static void test_f32(void **state) {
  (void)state;
  check_shapes(BPPSA_F32);
}

static void test_f64(void **state) {
  (void)state;
  check_shapes(BPPSA_F64);
}

/* Without a head: the outputs are the states of both directions, and the seed is their gradient. */
static void test_no_head(void **state) {
  (void)state;
  for (int i = 0; i < 6; ++i) {
    problem p = problem_of(i % 3, i < 3 ? 2 : 6, BPPSA_F64);
    p.config.no_head = true;
    p.config.classes = 2 * p.config.hidden; /* the seed's width */
    free_numbers(&p);
    make_numbers(&p, 7);
    check_way(&p, &ways[i % 2]);
    free_numbers(&p);
  }
}

/* Speculative forward passes. */
static void test_speculative(void **state) {
  (void)state;
  for (int i = 0; i < 3; ++i) {
    problem p = problem_of(i, 2, BPPSA_F64);
    free_numbers(&p);
    p.config.seq_len = 64;
    p.config.forward.kind = BPPSA_FORWARD_SPECULATIVE;
    p.config.forward.chunks = 4;
    p.config.forward.warm_up = 8;
    p.config.forward.tolerance = 1e-15;
    make_numbers(&p, 5);
    check_way(&p, &ways[0]);
    free_numbers(&p);
  }
}

/* The certificate of a pass (recurrent/certify.h) is as small as rounding makes it. On a GPU samples that have lengths get none. */
static void check_certificate(int cell, bppsa_recurrent_config c, const int64_t *lengths) {
  static const int64_t samples[] = {4, 2};
  problem p = {
      .config = c, .cell = cells[cell], .batch = 2, .init = BPPSA_INIT_ORTHOGONAL, .samples = samples, .lengths = lengths};
  bppsa_model *model = NULL;
  bppsa_view logits, held[3];
  bppsa_certificate found;
  make_numbers(&p, 3);
  assert_int_equal(create(&p, &p.config, device, &model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(model, p.init, 6), BPPSA_OK);
  pass(&p, model, device, &logits, held);
  if (lengths != NULL && bppsa_device_get_kind(device) != BPPSA_CPU) {
    assert_int_equal(bppsa_certify(model, &found), BPPSA_ERR_UNSUPPORTED);
    assert_non_null(strstr(bppsa_last_error(), "samples that have lengths on a GPU"));
  } else {
    assert_int_equal(bppsa_certify(model, &found), BPPSA_OK);
    assert_true(found.error < (c.dtype == BPPSA_F32 ? 1e-5 : 1e-13));
    assert_true(c.dtype == BPPSA_F64 || found.error > 1e-9);
  }
  drop(device, held);
  bppsa_model_destroy(model);
  free_numbers(&p);
}

static void test_certificates(void **state) {
  (void)state;
  static const int64_t lengths[] = {12, 20};
  for (int i = 0; i < 9; ++i) {
    bppsa_recurrent_config c = bppsa_recurrent_config_default();
    c.seq_len = 20;
    c.batch = 2;
    c.hidden = i < 6 ? 6 : 33;
    c.input = 2;
    c.layers = 1 + i / 3 % 2;
    c.bidirectional = i / 3 == 2;
    c.dropout = c.layers > 1 ? .25 : 0;
    c.loss_all = i % 2 == 0;
    c.dtype = i == 4 ? BPPSA_F64 : BPPSA_F32;
    c.lengths = i == 8;
    check_certificate(i % 3, c, c.lengths ? lengths : NULL);
  }
}

int main(void) {
  set_most("SIMT_MOST_SHARED", LARGE_SHARED);
  device = test_device(2);
  host = cpu_device(2);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_f64), cmocka_unit_test(test_no_head),
                                     cmocka_unit_test(test_speculative), cmocka_unit_test(test_certificates)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
  return failed;
}

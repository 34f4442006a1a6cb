/* FLOPs compared with BP's: linear is BP in every kind of chain, and both sides do the same work. */
#include "scan/work.h"
#include "tests/scan/csr_chain.h"

static bppsa_scan_totals totals_of(const bppsa_scan_config *config) {
  bppsa_scan_plan *plan = NULL;
  assert_int_equal(bppsa_scan_plan_create(config, &plan), BPPSA_OK);
  const bppsa_scan_totals totals = *bppsa_scan_plan_totals(plan);
  int64_t sum = 0;
  for (int64_t i = 0; i <= config->jacobians + 1; ++i) {
    sum += bppsa_scan_plan_bp_flops(plan, i);
  }
  assert_int_equal(sum, totals.bp_flops);
  bppsa_scan_plan_destroy(plan);
  return totals;
}

/* The linear plan has BP's FLOPs, and every other plan of the chain counts the same BP. */
static void check_chain(bppsa_scan_config config, int64_t bp, int64_t to_input) {
  static const bppsa_scan_algorithm algorithms[] = {BPPSA_SCAN_LINEAR, BPPSA_SCAN_BLELLOCH, BPPSA_SCAN_CHUNKED};
  for (int input = 0; input < 2; ++input) {
    for (int a = 0; a < (config.element == BPPSA_ELEMENT_CSR ? 2 : 3); ++a) {
      config.input = input;
      config.method.algorithm = algorithms[a];
      const bppsa_scan_totals t = totals_of(&config);
      assert_int_equal(t.bp_flops, bp + (input ? to_input : 0));
      assert_int_equal(t.bp_critical_flops, bp);
      const bppsa_work scan = bppsa_work_of_scan(&t, 7), beside = bppsa_work_of_bp(&t, 7);
      const bppsa_work_ratios r = bppsa_work_over(&scan, &beside);
      assert_true(r.gradients >= 1 && r.backward >= 1 && r.backward <= r.gradients);
      if (a == 0) {
        assert_int_equal(t.mv_flops, t.bp_flops);
        assert_int_equal(t.critical_flops, t.bp_critical_flops);
        assert_true(r.gradients == 1 && r.backward == 1 && r.critical == 1);
      }
    }
  }
}

static void test_uniform(void **state) {
  (void)state;
  for (int64_t n = 0; n <= 40; ++n) {
    const int64_t steps = n > 1 ? n - 1 : 0, last = n > 0;
    bppsa_scan_config c = bppsa_scan_config_default();
    c.jacobians = n;
    c.dim = 5;
    check_chain(c, 2 * 25 * steps, 2 * 25 * last);
    c.affine = true;
    check_chain(c, 2 * 25 * steps, 2 * 25 * last);
    c.element = BPPSA_ELEMENT_DIAGONAL;
    check_chain(c, 2 * 5 * steps, 2 * 5 * last);
    c.element = BPPSA_ELEMENT_RECURRENT; /* a GRU's step: three matrices */
    c.matrices = 3;
    c.diagonal = true;
    check_chain(c, 3 * 2 * 25 * steps, 3 * 2 * 25 * last);
    c.element = BPPSA_ELEMENT_PAIR; /* an LSTM's: four */
    c.matrices = 4;
    c.dim = 10;
    check_chain(c, 4 * 2 * 25 * steps, 4 * 2 * 25 * last);
  }
}

static void test_sizes(void **state) {
  (void)state;
  const int64_t dims[] = {4, 7, 1, 9, 3, 5}; /* of g_0 .. g_5 */
  bppsa_scan_config c = bppsa_scan_config_default();
  c.jacobians = 5;
  c.dims = dims;
  check_chain(c, 2 * (7 * 1 + 1 * 9 + 9 * 3 + 3 * 5), 2 * 4 * 7);
}

/* Sparse chains: twice the entries of every pattern, an identity's left out. */
static void test_sparse(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_op ops[6];
  bppsa_jacobian *jacobians[6];
  const bppsa_csr *patterns[6];
  const bppsa_operator kinds[] = {BPPSA_OPERATOR_CONV2D, BPPSA_OPERATOR_RELU,      BPPSA_OPERATOR_MAXPOOL2D,
                                  BPPSA_OPERATOR_TANH,   BPPSA_OPERATOR_AVGPOOL2D, BPPSA_OPERATOR_FLATTEN};
  int64_t shape[3] = {2, 8, 8}, bp = 0;
  for (int i = 0; i < 6; ++i) {
    ops[i] = bppsa_op_default(kinds[i]);
    memcpy(ops[i].in, shape, sizeof shape);
    ops[i].out_channels = 4;
    ops[i].kernel[0] = ops[i].kernel[1] = i == 2 || i == 4 ? 2 : 3;
    ops[i].stride[0] = ops[i].stride[1] = i == 2 ? 2 : 1;
    assert_int_equal(bppsa_op_shape(&ops[i], shape), BPPSA_OK);
    assert_int_equal(bppsa_jacobian_create(&ops[i], NULL, false, device, &jacobians[i]), BPPSA_OK);
    patterns[i] = bppsa_jacobian_pattern(jacobians[i]);
    bp += i == 0 || patterns[i]->identity ? 0 : 2 * patterns[i]->nnz;
    assert_int_equal(bppsa_op_weight_flops(&ops[i], patterns[i]->nnz), i == 0 ? 2 * patterns[0]->nnz : 0);
  }
  assert_true(patterns[5]->identity);
  bppsa_scan_config c = bppsa_scan_config_default();
  c.element = BPPSA_ELEMENT_CSR;
  c.jacobians = 6;
  c.patterns = patterns;
  c.planner = device;
  check_chain(c, bp, 2 * patterns[0]->nnz);
  c.symbolic = true;
  check_chain(c, bp, 2 * patterns[0]->nnz);
  for (int i = 0; i < 6; ++i) {
    bppsa_jacobian_destroy(jacobians[i]);
  }
  bppsa_device_destroy(device);
}

static void test_ratios(void **state) {
  (void)state;
  bppsa_work sum = {0}, none = {0};
  const bppsa_work layer = {10, 4, 6}, bp = {5, 5, 6};
  bppsa_work_add(&layer, &sum);
  bppsa_work_add(&layer, &sum);
  bppsa_work_ratios r = bppsa_work_over(&sum, &bp);
  assert_true(r.gradients == 4 && r.backward == 32.0 / 11 && r.critical == 1.6);
  r = bppsa_work_over(&none, &none); /* nothing to do is as much as BP does */
  assert_true(r.gradients == 1 && r.backward == 1 && r.critical == 1);
}

static void test_words(void **state) {
  (void)state;
  char text[BPPSA_WORK_TEXT];
  assert_string_equal(bppsa_work_ratio(0.03241, text), "0.0324");
  assert_string_equal(bppsa_work_ratio(0, text), "0.00");
  assert_string_equal(bppsa_work_ratio(0.1, text), "0.10");
  assert_string_equal(bppsa_work_ratio(1, text), "1.00");
  assert_string_equal(bppsa_work_ratio(20.72, text), "20.7");
  assert_string_equal(bppsa_work_ratio(1611.4, text), "1611");
  const bppsa_work_ratios ratios = {20.7, 10.6, 0.5};
  assert_string_equal(bppsa_work_text(&ratios, "steps", text, sizeof text),
                      "20.7 times the FLOPs of BP for the gradients between steps, 10.6 times with those of weights");
  json_t *object = json_object();
  assert_true(bppsa_work_json(object, "bp", &ratios));
  assert_true(json_real_value(json_object_get(object, "critical_flops_of_bp")) == 0.5);
  assert_true(json_real_value(json_object_get(object, "backward_flops_of_bp")) == 10.6);
  json_decref(object);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_uniform), cmocka_unit_test(test_sizes), cmocka_unit_test(test_sparse),
                                     cmocka_unit_test(test_ratios), cmocka_unit_test(test_words)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The cost of products: the fit against numbers by hand, a measurement, and memory that runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "calibrate/product_costs.h"
#include "core/base/alloc.h"

static void near(double found, double expected) {
  if (!(fabs(found - expected) <= 1e-6 * fabs(expected))) {
    fail_msg("%.17g, expected %.17g", found, expected);
  }
}

/* Two samples of H = 3 at 1 s a sample, 10 a number and 100 a term. Two matrices: 2 (1 + 9 * 10 + 27 * 100); a matrix and a vector:
 * 2 (1 + 3 * 10 + 9 * 100). */
static void test_formula(void **state) {
  (void)state;
  const bppsa_oracle_product_cost cost = {1, 10, 100};
  near(bppsa_oracle_product_s(BPPSA_PRODUCT_MATRICES, &cost, 3, 2), 5582);
  near(bppsa_oracle_product_s(BPPSA_PRODUCT_VECTOR, &cost, 3, 2), 1862);
  assert_string_equal(bppsa_oracle_product_name(BPPSA_PRODUCT_MATRICES), "product");
  assert_string_equal(bppsa_oracle_product_name(BPPSA_PRODUCT_VECTOR), "apply");
  assert_null(bppsa_oracle_product_name(BPPSA_PRODUCTS));
}

/* Points of a formula give back its parts, whichever of them are 0. */
static void test_exact(void **state) {
  (void)state;
  static const bppsa_oracle_product_cost costs[] = {{1e-7, 2e-9, 3e-11}, {1e-7, 0, 3e-11}, {0, 2e-9, 0}, {1e-7, 0, 0}};
  for (int i = 0; i < BPPSA_PRODUCTS; ++i) {
    for (size_t k = 0; k < sizeof costs / sizeof costs[0]; ++k) {
      bppsa_product_fit fit = {.product = (bppsa_oracle_product)i, .count = 5};
      for (int64_t n = 0; n < fit.count; ++n) {
        bppsa_product_point *point = &fit.points[n];
        *point = (bppsa_product_point){.hidden = 5 * pow(2, (double)n), .samples = n % 2 == 0 ? 1 : 16};
        point->median_s = bppsa_oracle_product_s(fit.product, &costs[k], point->hidden, point->samples);
      }
      bppsa_product_solve(&fit);
      assert_true(fabs(fit.cost.sample_s - costs[k].sample_s) < 1e-13 && fabs(fit.cost.entry_s - costs[k].entry_s) < 1e-15);
      assert_true(fabs(fit.cost.term_s - costs[k].term_s) < 1e-17);
      assert_true(fit.residual < 1e-6);
      near(fit.points[4].fitted_s, fit.points[4].median_s);
    }
  }
}

/* One sample of H = 1 takes 2 s and one of H = 2 takes 1 s. Parts that grow with H do not help, since none is below 0: c alone
 * minimises (c/2 - 1)^2 + (c - 1)^2, at (1/2 + 1) / (1/4 + 1) = 1.2. It is 40 % below and 20 % above: sqrt((0.16 + 0.04) / 2). */
static void test_bounds(void **state) {
  (void)state;
  bppsa_product_fit fit = {.product = BPPSA_PRODUCT_VECTOR,
                           .count = 2,
                           .points = {{.hidden = 1, .samples = 1, .median_s = 2}, {.hidden = 2, .samples = 1, .median_s = 1}}};
  fit.points[0].low_s = 1;
  fit.points[0].high_s = 3;
  fit.points[1].low_s = fit.points[1].high_s = 1;
  bppsa_product_solve(&fit);
  near(fit.spread.low, (0.5 + 1) / 2);
  near(fit.spread.high, (1.5 + 1) / 2);
  near(fit.cost.sample_s, 1.2);
  assert_true(fit.cost.entry_s == 0 && fit.cost.term_s == 0);
  near(fit.residual, sqrt(0.1));
  near(fit.points[0].fitted_s, 1.2);
}

static void check_fits(const bppsa_product_fit fits[BPPSA_PRODUCTS], int64_t count) {
  for (int i = 0; i < BPPSA_PRODUCTS; ++i) {
    const bppsa_product_fit *fit = &fits[i];
    assert_int_equal(fit->product, i);
    assert_int_equal(fit->count, count);
    assert_true(bppsa_oracle_product_measured(&fit->cost) && isfinite(fit->residual));
    assert_true(fit->spread.low > 0 && fit->spread.low <= 1 && fit->spread.high >= 1 && isfinite(fit->spread.high));
    for (int64_t k = 0; k < count; ++k) {
      assert_true(fit->points[k].median_s > 0 && fit->points[k].fitted_s > 0);
    }
  }
}

/* One sample and four, H of three sizes and of the network's own, which is measured once where it is one of the three. */
static void test_measured(void **state) {
  (void)state;
  bppsa_device *device = NULL;
  bppsa_product_fit fits[BPPSA_PRODUCTS];
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  assert_int_equal(bppsa_products_measure(device, 4, 20, true, 1, fits), BPPSA_OK);
  check_fits(fits, 8);
  assert_true(fits[0].points[3].hidden == 20 && fits[0].points[3].samples == 1 && fits[0].points[7].samples == 4);
  assert_int_equal(bppsa_products_measure(device, 4, 32, true, 1, fits), BPPSA_OK);
  check_fits(fits, 6);
  assert_int_equal(bppsa_products_measure(device, 1, BPPSA_PRODUCT_HIDDEN + 1, true, 1, fits), BPPSA_OK);
  check_fits(fits, 3);
  assert_int_equal(bppsa_products_measure(device, 1000, 0, true, 1, fits), BPPSA_OK);
  assert_true(fits[1].points[5].samples == BPPSA_PRODUCT_SAMPLES);
  bppsa_device_destroy(device);
}

static void test_memory(void **state) {
  (void)state;
  bppsa_device *device = NULL;
  bppsa_product_fit fits[BPPSA_PRODUCTS] = {{.count = -1}};
  bppsa_status status = BPPSA_ERR_MEMORY;
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  const int64_t before = bppsa_alloc_live();
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    bppsa_alloc_fail_at(call);
    status = bppsa_products_measure(device, 1, 0, true, 1, fits);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || (status == BPPSA_ERR_MEMORY && fits[0].count == -1));
    assert_int_equal(bppsa_alloc_live(), before);
  }
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_formula), cmocka_unit_test(test_exact), cmocka_unit_test(test_bounds),
                                     cmocka_unit_test(test_measured), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

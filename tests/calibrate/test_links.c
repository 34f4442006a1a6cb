/* Alpha and beta of operations: the fit against numbers by hand, and a measurement on ranks that are threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "calibrate/links.h"

static const bppsa_oracle_operation operations[] = {BPPSA_OPERATION_POINT_TO_POINT, BPPSA_OPERATION_ALLREDUCE,
                                                    BPPSA_OPERATION_ORDERED_SUM,    BPPSA_OPERATION_ALLGATHER,
                                                    BPPSA_OPERATION_REDUCE_SCATTER, BPPSA_OPERATION_STAGE_MESSAGE};
enum { COUNT = sizeof operations / sizeof operations[0] };

static void near(double found, double expected) {
  if (!(fabs(found - expected) <= 1e-9 * fabs(expected))) {
    fail_msg("%.17g, expected %.17g", found, expected);
  }
}

/* 100 bytes over alpha = 2, beta = 0.5 among 4 ranks: a message 2 + 50; a ring 2 * 3 (2 + 25 * 0.5); two rounds up and two down, 4
 * (2 + 50); an allgather 3 (2 + 50); half of the ring's allreduce. */
static void test_formulas(void **state) {
  (void)state;
  const bppsa_link link = {2, 0.5};
  static const double seconds[] = {52, 87, 208, 156, 43.5, 52};
  for (int i = 0; i < COUNT; ++i) {
    near(bppsa_link_seconds(operations[i], link, 4, 100), seconds[i]);
  }
}

/* Points of a formula give back its alpha and beta. */
static void test_exact(void **state) {
  (void)state;
  const bppsa_link link = {3e-6, 2e-10};
  for (int i = 0; i < COUNT; ++i) {
    for (int64_t ranks = 2; ranks <= 5; ++ranks) {
      bppsa_link_fit fit = {.operation = operations[i], .ranks = ranks, .count = 5};
      for (int64_t k = 0; k < fit.count; ++k) {
        const double bytes = pow(10, (double)k + 2);
        fit.points[k] = (bppsa_link_point){.bytes = bytes, .median_s = bppsa_link_seconds(operations[i], link, ranks, bytes)};
      }
      bppsa_link_solve(&fit);
      near(fit.link.alpha_s, 3e-6);
      near(fit.link.beta_s, 2e-10);
      assert_true(fit.residual < 1e-9);
    }
  }
}

/* A line through (1, 1) and (2, 4) begins below 0, so alpha = 0: beta minimises (beta - 1)^2 + (beta / 2 - 1)^2, at 1.5 / 1.25 =
 * 1.2. The fit gives 1.2 and 2.4, which are 20 % above and 40 % below: sqrt((0.04 + 0.16) / 2). */
static void test_bounds(void **state) {
  (void)state;
  bppsa_link_fit fit = {.operation = BPPSA_OPERATION_POINT_TO_POINT,
                        .ranks = 2,
                        .count = 2,
                        .points = {{.bytes = 1, .median_s = 1}, {.bytes = 2, .median_s = 4}}};
  bppsa_link_solve(&fit);
  assert_true(fit.link.alpha_s == 0);
  near(fit.link.beta_s, 1.2);
  near(fit.points[1].fitted_s, 2.4);
  near(fit.residual, sqrt(0.1));
  /* Long messages that are faster than short ones: beta is as good as 0, and alpha minimises (alpha / 4 - 1)^2 + (alpha / 2 -
   * 1)^2, at (1/4 + 1/2) / (1/16 + 1/4) = 2.4. */
  fit = (bppsa_link_fit){.operation = BPPSA_OPERATION_POINT_TO_POINT,
                         .ranks = 2,
                         .count = 2,
                         .points = {{.bytes = 1, .median_s = 4}, {.bytes = 2, .median_s = 2}}};
  bppsa_link_solve(&fit);
  near(fit.link.alpha_s, 2.4);
  assert_true(fit.link.beta_s > 0 && fit.link.beta_s < 1e-12);
}

static bppsa_status measure_all(bppsa_comm *world, void *context) {
  bppsa_link_fit *fits = context;
  for (int i = 0; i < COUNT; ++i) {
    bppsa_link_fit fit = {.ranks = 0};
    const bppsa_status status = bppsa_link_measure(world, operations[i], true, &fit);
    if (status != BPPSA_OK) {
      return status;
    }
    if (bppsa_comm_rank(world) == 0) {
      fits[i] = fit;
    }
  }
  return BPPSA_OK;
}

/* A probe measures again and again, with the sizes that it was given; bytes are whole numbers of 4. */
static bppsa_status measure_twice(bppsa_comm *world, void *context) {
  static const double bytes[] = {403, 4000};
  bppsa_link_fit *fits = context, fit;
  bppsa_link_probe *probe = NULL;
  bppsa_status status = bppsa_link_probe_create(world, BPPSA_OPERATION_ORDERED_SUM, 2, bytes, 3, true, &probe);
  for (int i = 0; i < 2 && status == BPPSA_OK; ++i) {
    status = bppsa_link_probe_measure(probe, &fit);
    fits[i] = status == BPPSA_OK && bppsa_comm_rank(world) == 0 ? fit : fits[i];
  }
  bppsa_link_probe_destroy(probe);
  return status;
}

static void test_probe(void **state) {
  (void)state;
  bppsa_comm_config config = bppsa_comm_config_default();
  bppsa_link_fit fits[2] = {{.ranks = 0}};
  config.ranks = 2;
  assert_int_equal(bppsa_comm_run(&config, measure_twice, fits, NULL), BPPSA_OK);
  for (int i = 0; i < 2; ++i) {
    assert_int_equal(fits[i].count, 2);
    near(fits[i].points[0].bytes, 400);
    near(fits[i].points[1].bytes, 4000);
    assert_true(fits[i].points[0].median_s > 0 && fits[i].link.beta_s > 0);
  }
  bppsa_link_probe_destroy(NULL);
}

static void test_measured(void **state) {
  (void)state;
  bppsa_comm_config config = bppsa_comm_config_default();
  bppsa_link_fit fits[COUNT];
  config.ranks = 3;
  assert_int_equal(bppsa_comm_run(&config, measure_all, fits, NULL), BPPSA_OK);
  for (int i = 0; i < COUNT; ++i) {
    assert_int_equal(fits[i].operation, operations[i]);
    assert_int_equal(fits[i].ranks, 3);
    assert_int_equal(fits[i].count, BPPSA_LINK_SIZES_QUICK);
    assert_true(fits[i].link.alpha_s >= 0 && fits[i].link.beta_s > 0 && isfinite(fits[i].residual));
    for (int64_t k = 0; k < fits[i].count; ++k) {
      assert_true(fits[i].points[k].median_s > 0);
      near(fits[i].points[k].fitted_s, bppsa_link_seconds(operations[i], fits[i].link, 3, fits[i].points[k].bytes));
    }
  }
  config.ranks = 1;
  assert_int_equal(bppsa_comm_run(&config, measure_all, fits, NULL), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "point_to_point: one rank, expected 2 or more"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_formulas), cmocka_unit_test(test_exact), cmocka_unit_test(test_bounds),
                                     cmocka_unit_test(test_probe), cmocka_unit_test(test_measured)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

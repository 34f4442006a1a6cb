/* Learning-rate schedules against PyTorch's, by themselves and in the program's log. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "train/rate.h"

/* torch.optim.lr_scheduler.StepLR(3, 0.5) and CosineAnnealingLR(8, 0.01) of PyTorch 1.13 at lr 0.1. */
static const double steps[] = {0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.0125};
static const double cosines[] = {0.1,   0.0965745789630079,   0.08681980515339463,  0.07222075445642905,
                                 0.055, 0.03777924554357096,  0.023180194846605363, 0.013425421036992097,
                                 0.01,  0.013425421036992097, 0.02318019484660537,  0.03777924554357097};

static void schedules_are_pytorchs(void **state) {
  (void)state;
  const bppsa_rate_config constant = bppsa_rate_config_default();
  const bppsa_rate_config step = {.kind = BPPSA_RATE_STEP, .step_size = 3, .gamma = 0.5};
  const bppsa_rate_config cosine = {.kind = BPPSA_RATE_COSINE, .period = 8, .min = 0.01};
  for (int64_t t = 0; t < 10; ++t) {
    assert_true(bppsa_rate_at(&constant, 0.1, t + 1, t) == 0.1);
    assert_true(fabs(bppsa_rate_at(&step, 0.1, t + 1, t) - steps[t]) < 1e-16);
  }
  for (int64_t t = 0; t < 12; ++t) { /* PyTorch's product of ratios rounds at every step */
    assert_true(fabs(bppsa_rate_at(&cosine, 0.1, t + 1, t) - cosines[t]) < 1e-15);
  }
}

/* The warm-up multiplies the schedule's rate and is over at its last step. */
static void warm_up_is_linear(void **state) {
  (void)state;
  bppsa_rate_config config = {.kind = BPPSA_RATE_STEP, .step_size = 3, .gamma = 0.5, .warmup = 4};
  static const double expected[] = {0.025, 0.05, 0.075, 0.05, 0.05, 0.05, 0.025};
  for (int64_t t = 0; t < 7; ++t) {
    assert_true(fabs(bppsa_rate_at(&config, 0.1, t + 1, t) - expected[t]) < 1e-16);
  }
  config.warmup = 1;
  assert_true(bppsa_rate_at(&config, 0.1, 1, 0) == 0.1);
}

static void bad_settings_are_named(void **state) {
  (void)state;
  const struct {
    bppsa_rate_config config;
    const char *says;
  } cases[] = {{{.kind = BPPSA_RATE_COUNT}, "unknown, expected constant, step or cosine"},
               {{.kind = BPPSA_RATE_STEP, .step_size = 0, .gamma = 0.5}, "step size 0, expected at least 1"},
               {{.kind = BPPSA_RATE_STEP, .step_size = 1, .gamma = 0.0}, "gamma 0, expected"},
               {{.kind = BPPSA_RATE_STEP, .step_size = 1, .gamma = (double)INFINITY}, "gamma inf"},
               {{.kind = BPPSA_RATE_COSINE, .period = -1}, "period -1"},
               {{.kind = BPPSA_RATE_COSINE, .min = 0.2}, "minimum 0.2, expected 0 .. the learning rate 0.1"},
               {{.kind = BPPSA_RATE_COSINE, .min = (double)NAN}, "minimum nan"},
               {{.kind = BPPSA_RATE_CONSTANT, .warmup = -3}, "warm-up of -3 steps"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    assert_int_equal(bppsa_rate_check(&cases[i].config, 0.1), BPPSA_ERR_ARGUMENT);
    assert_non_null(strstr(bppsa_last_error(), cases[i].says));
  }
  for (int kind = 0; kind < BPPSA_RATE_COUNT; ++kind) {
    bppsa_rate_kind parsed = BPPSA_RATE_COUNT;
    assert_int_equal(bppsa_rate_parse(bppsa_rate_name((bppsa_rate_kind)kind), &parsed), BPPSA_OK);
    assert_int_equal(parsed, kind);
  }
  bppsa_rate_kind parsed;
  assert_int_equal(bppsa_rate_parse("cosin", &parsed), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "'cosin': unknown, expected constant, step or cosine"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(schedules_are_pytorchs), cmocka_unit_test(warm_up_is_linear),
                                     cmocka_unit_test(bad_settings_are_named)};
  return cmocka_run_group_tests_name("train_rate", tests, NULL, NULL);
}

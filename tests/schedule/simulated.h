/* Schedules that are made and simulated, for tests of their times. Unit costs: F = 1, B = I + W = 2 unless stated. */
#ifndef BPPSA_TESTS_SCHEDULE_SIMULATED_H
#define BPPSA_TESTS_SCHEDULE_SIMULATED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "schedule/schedule.h"
#include "tests/support/length.h"

/* The largest numbers of stages and of micro-batches. */
static inline int64_t most_d(void) {
  return at_full_length() ? 32 : 16;
}

static inline int64_t most_n(void) {
  return 2 * most_d();
}

typedef struct {
  bppsa_schedule *list;
  bppsa_schedule_times times;
} simulated;

static inline simulated simulate(const char *scheme, const bppsa_schedule_config *config) {
  simulated s = {0};
  if (bppsa_schedule_create(scheme, config, &s.list) != BPPSA_OK) {
    fail_msg("%s D %d N %d: %s", scheme, (int)config->stages, (int)config->micro_batches, bppsa_last_error());
  }
  assert_int_equal(bppsa_schedule_simulate(s.list, &s.times), BPPSA_OK);
  return s;
}

static inline void release(simulated *s) {
  bppsa_schedule_times_free(&s->times);
  bppsa_schedule_destroy(s->list);
}

static inline bppsa_schedule_config sized(int64_t d, int64_t n) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  config.stages = d;
  config.micro_batches = n;
  return config;
}

/* F = B = 1. */
static inline bppsa_schedule_config equal_passes(int64_t d, int64_t n) {
  bppsa_schedule_config config = sized(d, n);
  config.uniform[BPPSA_COST_INPUT_GRAD] = config.uniform[BPPSA_COST_WEIGHT_GRAD] = 0.5;
  return config;
}

static inline double makespan(const char *scheme, const bppsa_schedule_config *config) {
  simulated s = simulate(scheme, config);
  const double found = s.times.makespan;
  release(&s);
  return found;
}

static inline void check(const char *what, int64_t d, int64_t n, double found, double expected) {
  if (fabs(found - expected) > 1e-9 * fmax(1, fabs(expected))) {
    fail_msg("%s D %d N %d: %.17g, expected %.17g", what, (int)d, (int)n, found, expected);
  }
}

static inline int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

#endif

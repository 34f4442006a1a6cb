#include "train/rate.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static const char *const names[BPPSA_RATE_COUNT] = {
    [BPPSA_RATE_CONSTANT] = "constant", [BPPSA_RATE_STEP] = "step", [BPPSA_RATE_COSINE] = "cosine"};

bppsa_status bppsa_rate_parse(const char *text, bppsa_rate_kind *kind) {
  for (int k = 0; k < BPPSA_RATE_COUNT; ++k) {
    if (text != NULL && strcmp(text, names[k]) == 0) {
      *kind = (bppsa_rate_kind)k;
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "learning-rate schedule '%.100s': unknown, expected constant, step or cosine",
                    text == NULL ? "" : text);
}

const char *bppsa_rate_name(bppsa_rate_kind kind) {
  return (unsigned)kind < BPPSA_RATE_COUNT ? names[kind] : "unknown";
}

bppsa_rate_config bppsa_rate_config_default(void) {
  return (bppsa_rate_config){.kind = BPPSA_RATE_CONSTANT, .step_size = 1, .gamma = 0.1};
}

bppsa_status bppsa_rate_check(const bppsa_rate_config *config, double lr) {
  BPPSA_REQUIRE(config != NULL);
  if ((unsigned)config->kind >= BPPSA_RATE_COUNT) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "learning-rate schedule %d: unknown, expected constant, step or cosine",
                      (int)config->kind);
  }
  if (config->kind == BPPSA_RATE_STEP && config->step_size < 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "learning-rate schedule step: step size %lld, expected at least 1",
                      (long long)config->step_size);
  }
  if (config->kind == BPPSA_RATE_STEP && !(config->gamma > 0.0 && isfinite(config->gamma))) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "learning-rate schedule step: gamma %g, expected a finite number above 0",
                      config->gamma);
  }
  if (config->kind == BPPSA_RATE_COSINE && config->period < 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "learning-rate schedule cosine: period %lld, expected at least 1, or 0 for the run's length",
                      (long long)config->period);
  }
  if (config->kind == BPPSA_RATE_COSINE && !(config->min >= 0.0 && config->min <= lr)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "learning-rate schedule cosine: minimum %g, expected 0 .. the learning rate %g",
                      config->min, lr);
  }
  if (config->warmup < 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "warm-up of %lld steps, expected at least 0", (long long)config->warmup);
  }
  return BPPSA_OK;
}

double bppsa_rate_at(const bppsa_rate_config *config, double lr, int64_t step, int64_t done) {
  double rate = lr;
  if (config->kind == BPPSA_RATE_STEP) {
    rate = lr * pow(config->gamma, (double)(done / config->step_size));
  } else if (config->kind == BPPSA_RATE_COSINE) {
    rate = config->min + (lr - config->min) * (1.0 + cos(pi * (double)done / (double)config->period)) / 2.0;
  }
  return step < config->warmup ? rate * ((double)step / (double)config->warmup) : rate;
}

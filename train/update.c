#include "train/update.h"

#include <inttypes.h>
#include <stdio.h>

#include "train/line.h"

const char *bppsa_train_update_text(const bppsa_train_config *train, char *text, size_t size) {
  const bppsa_optimizer_config *o = &train->optimizer;
  const bppsa_rate_config *rate = &train->rate;
  const char *unit = train->epochs > 0 ? "epochs" : "steps";
  bppsa_line line = {.length = 0};
  bppsa_line_add(&line, "%s, lr %g", bppsa_optimizer_name(o->kind), o->lr);
  if (o->momentum > 0) {
    bppsa_line_add(&line, ", momentum %g", o->momentum);
  }
  if (rate->kind == BPPSA_RATE_STEP) {
    bppsa_line_add(&line, ", times %g every %" PRId64 " %s", rate->gamma, rate->step_size, unit);
  }
  if (rate->kind == BPPSA_RATE_COSINE) {
    const int64_t period = rate->period > 0 ? rate->period : train->epochs > 0 ? train->epochs : train->iterations;
    bppsa_line_add(&line, ", cosine to %g over %" PRId64 " %s", rate->min, period, unit);
  }
  if (rate->warmup > 0) {
    bppsa_line_add(&line, ", %" PRId64 " steps of warm-up", rate->warmup);
  }
  if (o->weight_decay > 0) {
    bppsa_line_add(&line, ", weight decay %g", o->weight_decay);
  }
  snprintf(text, size, "%s", line.text);
  return text;
}

bool bppsa_train_update_json(json_t *object, const bppsa_train_config *train) {
  const bppsa_optimizer_config *o = &train->optimizer;
  const bppsa_rate_config *rate = &train->rate;
  bool ok = bppsa_json_put_text(object, "optimizer", bppsa_optimizer_name(o->kind)) && bppsa_json_put_real(object, "lr", o->lr) &&
            bppsa_json_put_real(object, "momentum", o->momentum) &&
            bppsa_json_put_real(object, "weight_decay", o->weight_decay) &&
            bppsa_json_put_text(object, "lr_schedule", bppsa_rate_name(rate->kind)) &&
            bppsa_json_put_integer(object, "warmup", rate->warmup);
  if (rate->kind == BPPSA_RATE_STEP) {
    ok = ok && bppsa_json_put_integer(object, "lr_step_size", rate->step_size) &&
         bppsa_json_put_real(object, "lr_gamma", rate->gamma);
  }
  if (rate->kind == BPPSA_RATE_COSINE) {
    const int64_t period = rate->period > 0 ? rate->period : train->epochs > 0 ? train->epochs : train->iterations;
    ok = ok && bppsa_json_put_integer(object, "lr_period", period) && bppsa_json_put_real(object, "lr_min", rate->min);
  }
  return ok;
}

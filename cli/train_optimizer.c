#include "cli/train_optimizer.h"

#include <inttypes.h>

#include "train/line.h"

#define ADAMW_DECAY 0.01 /* torch.optim.AdamW's */

/* An option that one choice of another alone takes. */
static bppsa_status check_belongs(const bppsa_cli *cli, bppsa_option option, bool taken, bppsa_option other,
                                  const char *expected) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option), *chosen = bppsa_cli_value(cli, other);
  if (!value->given || taken) {
    return BPPSA_OK;
  }
  const char *name = bppsa_option_get(other)->name;
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside %s %s, expected %s %s", bppsa_option_get(option)->name, name,
                    chosen->text, name, expected);
}

static bppsa_status setup_rate(const bppsa_cli *cli, bppsa_train_config *train) {
  bppsa_rate_config *rate = &train->rate;
  const bppsa_option_value *step_size = bppsa_cli_value(cli, BPPSA_OPTION_LR_STEP_SIZE);
  const bppsa_option_value *gamma = bppsa_cli_value(cli, BPPSA_OPTION_LR_GAMMA);
  const bppsa_option_value *lowest = bppsa_cli_value(cli, BPPSA_OPTION_LR_MIN);
  const bppsa_option schedule = BPPSA_OPTION_LR_SCHEDULE;
  BPPSA_TRY(bppsa_rate_parse(bppsa_cli_value(cli, schedule)->text, &rate->kind));
  const bool step = rate->kind == BPPSA_RATE_STEP, cosine = rate->kind == BPPSA_RATE_COSINE;
  BPPSA_TRY(check_belongs(cli, BPPSA_OPTION_LR_STEP_SIZE, step, schedule, "step"));
  BPPSA_TRY(check_belongs(cli, BPPSA_OPTION_LR_GAMMA, step, schedule, "step"));
  BPPSA_TRY(check_belongs(cli, BPPSA_OPTION_LR_PERIOD, cosine, schedule, "cosine"));
  BPPSA_TRY(check_belongs(cli, BPPSA_OPTION_LR_MIN, cosine, schedule, "cosine"));
  if (step && !step_size->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--lr-schedule: step without --lr-step-size, expected --lr-step-size N too");
  }
  if (lowest->given && lowest->real > train->optimizer.lr) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--lr-min: %g, more than the learning rate %g, expected at most that", lowest->real,
                      train->optimizer.lr);
  }
  rate->step_size = step ? step_size->integer : rate->step_size;
  rate->gamma = gamma->given ? gamma->real : rate->gamma;
  rate->period = bppsa_cli_value(cli, BPPSA_OPTION_LR_PERIOD)->integer;
  rate->min = lowest->real;
  rate->warmup = bppsa_cli_value(cli, BPPSA_OPTION_WARMUP)->integer;
  return BPPSA_OK;
}

bppsa_status bppsa_train_optimizer_options(const bppsa_cli *cli, bppsa_train_config *train) {
  bppsa_optimizer_config *o = &train->optimizer;
  const bppsa_option_value *decay = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHT_DECAY);
  BPPSA_TRY(bppsa_optimizer_parse(bppsa_cli_value(cli, BPPSA_OPTION_OPTIMIZER)->text, &o->kind));
  BPPSA_TRY(check_belongs(cli, BPPSA_OPTION_MOMENTUM, o->kind == BPPSA_SGD, BPPSA_OPTION_OPTIMIZER, "sgd"));
  o->lr = bppsa_cli_value(cli, BPPSA_OPTION_LR)->real;
  o->momentum = o->kind == BPPSA_SGD ? bppsa_cli_value(cli, BPPSA_OPTION_MOMENTUM)->real : 0;
  o->weight_decay = decay->given ? decay->real : o->kind == BPPSA_ADAMW ? ADAMW_DECAY : 0;
  return setup_rate(cli, train);
}

const char *bppsa_train_optimizer_text(const bppsa_train_config *train, char *text, size_t size) {
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

bool bppsa_train_optimizer_json(json_t *object, const bppsa_train_config *train) {
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

#include "cli/train_options.h"

/* Refuses an option that only one choice of another option takes. */
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

bppsa_status bppsa_train_update_options(const bppsa_cli *cli, bppsa_train_config *train) {
  bppsa_optimizer_config *o = &train->optimizer;
  const bppsa_option_value *decay = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHT_DECAY);
  BPPSA_TRY(bppsa_optimizer_parse(bppsa_cli_value(cli, BPPSA_OPTION_OPTIMIZER)->text, &o->kind));
  const bppsa_optimizer_row *row = bppsa_optimizer_get(o->kind);
  BPPSA_TRY(check_belongs(cli, BPPSA_OPTION_MOMENTUM, row->momentum, BPPSA_OPTION_OPTIMIZER, "sgd"));
  o->lr = bppsa_cli_value(cli, BPPSA_OPTION_LR)->real;
  o->momentum = row->momentum ? bppsa_cli_value(cli, BPPSA_OPTION_MOMENTUM)->real : 0;
  o->weight_decay = decay->given ? decay->real : row->weight_decay;
  return setup_rate(cli, train);
}

bppsa_status bppsa_train_checkpoint_options(const bppsa_cli *cli, bppsa_train_config *train) {
  const bppsa_option_value *directory = bppsa_cli_value(cli, BPPSA_OPTION_CHECKPOINT);
  const bppsa_option_value *every = bppsa_cli_value(cli, BPPSA_OPTION_CHECKPOINT_EVERY);
  const bppsa_option_value *resume = bppsa_cli_value(cli, BPPSA_OPTION_RESUME);
  const bppsa_option_value *allow = bppsa_cli_value(cli, BPPSA_OPTION_ALLOW_OTHER_RANKS);
  if (allow->given && !resume->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--allow-other-ranks: given without --resume, expected --resume too");
  }
  if (!directory->given && (every->given || resume->given)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given without --checkpoint, expected --checkpoint DIR too",
                      resume->given ? "--resume" : "--checkpoint-every");
  }
  train->checkpoint = directory->text;
  train->checkpoint_every = every->integer;
  train->resume = resume->given;
  train->other_reduction = allow->given;
  return BPPSA_OK;
}

bppsa_status bppsa_train_certify_options(const bppsa_cli *cli, bool ranks, bppsa_train_config *train) {
  enum { EVERY = 100 };
  const bppsa_option_value *every = bppsa_cli_value(cli, BPPSA_OPTION_CERTIFY_EVERY);
  if (!every->given && !bppsa_cli_given(cli, BPPSA_OPTION_CERTIFY)) {
    return BPPSA_OK;
  }
  if (ranks) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside ranks, which compute parts of the batch, expected no ranks",
                      bppsa_option_get(every->given ? BPPSA_OPTION_CERTIFY_EVERY : BPPSA_OPTION_CERTIFY)->name);
  }
  train->certify_every = every->given ? every->integer : EVERY;
  return BPPSA_OK;
}

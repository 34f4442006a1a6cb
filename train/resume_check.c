/* Can a run have stored these numbers? A run that continues from a checkpoint asks first. */
#include <float.h>
#include <math.h>

#include "train/trainer_internal.h"

const char *const bppsa_training_account_names[BPPSA_PASS_KINDS] = {"train.forward", "train.backward"};

/* A whole number kept as a double; -1 where it is none, or negative. */
static int64_t whole(double value) {
  return value >= 0 && value <= 0x1p53 && value == floor(value) ? (int64_t)value : -1;
}

/* Checks numbers that follow from the number of steps: the position in the data, and most of what was counted. */
static bppsa_status check_counts(const bppsa_training *run) {
  const bppsa_stored *s = &run->stored;
  const bppsa_dataset *data = run->dataset;
  const int64_t batch = run->most, per_epoch = (run->samples - 1) / batch + 1, step = s->cursor[0];
  const int64_t epoch = step == 0 ? 0 : (step - 1) / per_epoch + 1, steps = step == 0 ? 0 : step - (epoch - 1) * per_epoch;
  const int64_t complete = steps == per_epoch ? epoch : epoch > 0 ? epoch - 1 : 0;
  const int64_t samples = steps == per_epoch ? run->samples : steps * batch, position = steps == per_epoch ? 0 : samples;
  /* Pipedream updates weights after every micro-batch, which may be one sample; the run may have begun with it. */
  const int64_t most = run->ranks != NULL ? run->ranks->updates : 1, updates = batch > most ? batch : most;
  const int64_t most_rows = samples * (data->labels_per_step ? data->seq_len : 1), any = (int64_t)1 << 53;
  const bool real = bppsa_objective_real(&data->objective);
  const struct {
    const char *name;
    int64_t found, least, most;
  } numbers[] = {{"train.cursor: epoch", s->cursor[1], epoch, epoch},
                 {"train.cursor: position", s->cursor[2], position, position},
                 {"train.cursor: steps of the optimiser", s->cursor[3], 0, step * updates},
                 {"train.epoch_counts: rows", s->counts[1], 0, most_rows},
                 {"train.epoch_counts: correct rows", s->counts[0], real ? INT64_MIN : 0, s->counts[1]},
                 {"train.epoch_counts: steps", s->counts[2], steps, steps},
                 {"train.epoch_counts: samples", s->counts[3], samples, samples},
                 {"train.epoch_counts: redone products", s->counts[4], 0, any},
                 {"train.last_step: step", whole(s->last_step[0]), step, step},
                 {"train.last_step: epoch", whole(s->last_step[1]), epoch, epoch},
                 {"train.last_step: redone products", whole(s->last_step[11]), 0, any},
                 {"train.last_epoch: step", whole(s->last_epoch[0]), complete * per_epoch, complete * per_epoch},
                 {"train.last_epoch: epoch", whole(s->last_epoch[1]), complete, complete},
                 {"train.last_epoch: redone products", whole(s->last_epoch[11]), 0, any},
                 {"train.log: bytes", s->log[0], -1, any},
                 {"train.log: crc32", s->log[1], 0, UINT32_MAX}};
  if (s->log[0] == 0 && step > 0 && run->config->log_header != NULL) { /* the log begins before the first step */
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "checkpoint in %s: train.log: bytes 0, not where a run of %lld steps can be, expected more",
                      run->config->checkpoint, (long long)step);
  }
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
    if (numbers[i].found < numbers[i].least || numbers[i].found > numbers[i].most) {
      return bppsa_fail(BPPSA_ERR_FORMAT,
                        "checkpoint in %s: %s %lld, not where a run of %lld steps can be, expected %lld .. %lld",
                        run->config->checkpoint, numbers[i].name, (long long)numbers[i].found, (long long)step,
                        (long long)numbers[i].least, (long long)numbers[i].most);
    }
  }
  return BPPSA_OK;
}

/* Checks losses, times and rates in the record of a step or an epoch. The accuracy is NaN where targets are real; the numbers of a
 * validation are NaN where there was none. */
static bppsa_status check_record(const bppsa_training *run, const char *name, const double *record) {
  const double finite = DBL_MAX;
  const struct {
    const char *name;
    int at;
    double least, most;
  } numbers[] = {{"loss", 2, -finite, finite},
                 {"accuracy", 3, 0, 1},
                 {"grad_norm", 4, 0, finite},
                 {"forward_s", 5, 0, finite},
                 {"backward_s", 6, 0, finite},
                 {"update_s", 7, 0, finite},
                 {"samples_per_s", 8, 0, (double)INFINITY},
                 {"validation_loss", 9, -finite, (double)INFINITY},
                 {"validation_accuracy", 10, 0, 1},
                 {"lr", 12, 0, finite}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
    const double found = record[numbers[i].at];
    const bool held_out = numbers[i].at == 9 || numbers[i].at == 10, none = isnan(found) && (held_out || numbers[i].at == 3);
    if (held_out && !none && run->split.validation == 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "checkpoint in %s: %s: %s %g, expected none: nothing is held out",
                        run->config->checkpoint, name, numbers[i].name, found);
    }
    if (!none && !(found >= numbers[i].least && found <= numbers[i].most)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "checkpoint in %s: %s: %s %g, expected %g .. %g", run->config->checkpoint, name,
                        numbers[i].name, found, numbers[i].least, numbers[i].most);
    }
  }
  return BPPSA_OK;
}

/* Checks that means of squares are not negative. Other state may be large or infinite: a run that diverges writes such values. */
static bppsa_status check_squares(const bppsa_training *run) {
  const bppsa_optimizer_state *state = bppsa_optimizer_get_state(run->optimizer);
  const bool moments = bppsa_optimizer_get(run->config->optimizer.kind)->moments;
  for (int64_t i = 1; moments && i < state->count; i += 2) {
    const bppsa_named_view *t = &state->tensors[i];
    for (int64_t k = 0; k < bppsa_view_count(&t->view); ++k) {
      const double value = bppsa_view_get(&t->view, k);
      if (!(value >= 0)) {
        return bppsa_fail(BPPSA_ERR_FORMAT,
                          "checkpoint in %s: " BPPSA_TENSOR_OPTIMIZER "%s: element %lld is %g, expected 0 or more",
                          run->config->checkpoint, t->name, (long long)k, value);
      }
    }
  }
  return BPPSA_OK;
}

/* Checks the states with which the next batch of streams begins. */
static bppsa_status check_states(const bppsa_training *run) {
  const bppsa_view *states = &run->batch.states;
  for (int64_t i = 0; run->dataset->streams && i < bppsa_view_count(states); ++i) {
    if (!isfinite(bppsa_view_get(states, i))) {
      return bppsa_fail(BPPSA_ERR_FORMAT,
                        "checkpoint in %s: " BPPSA_TENSOR_STATES ": element %lld is %g, expected a finite number",
                        run->config->checkpoint, (long long)i, bppsa_view_get(states, i));
    }
  }
  return BPPSA_OK;
}

static bppsa_status check_account(const bppsa_training *run, int kind) {
  const bppsa_model_account *account = run->accounts[kind];
  for (int i = 0; account != NULL && i < account->count; ++i) {
    const double number = run->stored.account[kind][i];
    const bool real = (account->reals >> i & 1) != 0;
    if (real ? !(number >= 0 && isfinite(number)) : whole(number) < 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "checkpoint in %s: %s: number %d is %g, expected %s of 0 or more",
                        run->config->checkpoint, bppsa_training_account_names[kind], i, number,
                        real ? "a finite number" : "a whole number");
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_training_check_stored(const bppsa_training *run) {
  static const char *const names[] = {"loss", "grad_norm", "forward_s", "backward_s", "update_s", "seconds"};
  const int64_t step = run->stored.cursor[0];
  if (step < 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "checkpoint in %s: train.cursor: step %lld, expected 0 or more", run->config->checkpoint,
                      (long long)step);
  }
  if (step > run->total_steps) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "checkpoint in %s: %lld steps are done, more than the %lld asked for, expected at most those",
                      run->config->checkpoint, (long long)step, (long long)run->total_steps);
  }
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    const double sum = run->stored.sums[i];
    if (!isfinite(sum) || (i > 0 && sum < 0)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "checkpoint in %s: train.epoch_sums: %s %g, expected a finite sum%s",
                        run->config->checkpoint, names[i], sum, i > 0 ? ", 0 or more" : "");
    }
  }
  if (run->dataset->loss_weights != NULL && !(run->stored.weight >= 0 && isfinite(run->stored.weight))) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "checkpoint in %s: train.epoch_weight %g, expected a finite sum, 0 or more",
                      run->config->checkpoint, run->stored.weight);
  }
  BPPSA_TRY(check_record(run, "train.last_step", run->stored.last_step));
  BPPSA_TRY(check_record(run, "train.last_epoch", run->stored.last_epoch));
  for (int k = 0; k < BPPSA_PASS_KINDS; ++k) {
    BPPSA_TRY(check_account(run, k));
  }
  BPPSA_TRY(check_squares(run));
  BPPSA_TRY(check_states(run));
  return check_counts(run);
}

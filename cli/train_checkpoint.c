#include "cli/train_checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/interrupt.h"
#include "train/checkpoint.h"
#include "train/line.h"

/* ---- options ---- */

bppsa_status bppsa_train_checkpoint_options(const bppsa_cli *cli, bppsa_train_config *train) {
  const bppsa_option_value *directory = bppsa_cli_value(cli, BPPSA_OPTION_CHECKPOINT);
  const bppsa_option_value *every = bppsa_cli_value(cli, BPPSA_OPTION_CHECKPOINT_EVERY);
  const bppsa_option_value *resume = bppsa_cli_value(cli, BPPSA_OPTION_RESUME);
  if (!directory->given && (every->given || resume->given)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given without --checkpoint, expected --checkpoint DIR too",
                      resume->given ? "--resume" : "--checkpoint-every");
  }
  BPPSA_TRY(bppsa_cli_check_directory(cli, BPPSA_OPTION_CHECKPOINT));
  train->checkpoint = directory->text;
  train->checkpoint_every = every->integer;
  train->resume = resume->given;
  return BPPSA_OK;
}

/* ---- how gradients are computed ---- */

bppsa_status bppsa_train_checkpoint_method(const bppsa_train_config *train, bppsa_recurrent_config *config,
                                           bppsa_chosen *chosen) {
  if (!train->resume || *chosen != BPPSA_CHOSEN_BY_ESTIMATE) {
    return BPPSA_OK;
  }
  static const char *const key = "gradients";
  char value[64];
  BPPSA_TRY(bppsa_checkpoint_peek(train->checkpoint, 1, &key, &value));
  bppsa_gradient_method kept;
  const bool scan = config->method.backward ==
                    BPPSA_BACKWARD_SCAN; /* asked for: then BP's checkpoint is another run's, which resuming it says */
  if (bppsa_gradient_method_parse(value, &kept) == BPPSA_OK && !bppsa_gradient_method_open(&kept) &&
      (!scan || kept.backward == BPPSA_BACKWARD_SCAN)) {
    config->method = kept;
    *chosen = BPPSA_CHOSEN_BY_CHECKPOINT;
  }
  return BPPSA_OK;
}

/* Field `count` with a text that is made. */
static int64_t add_field(bppsa_run_fields *f, int64_t count, const char *key, const char *text) {
  snprintf(f->texts[count], sizeof f->texts[count], "%s", text);
  f->fields[count] = (bppsa_metadata){key, f->texts[count]};
  return count + 1;
}

static int64_t add_number(bppsa_run_fields *f, int64_t count, const char *key, int64_t number) {
  char text[24];
  snprintf(text, sizeof text, "%" PRId64, number);
  return add_field(f, count, key, text);
}

void bppsa_train_checkpoint_fields(bppsa_train_run *run, bppsa_run_fields *f) {
  const bppsa_recurrent_config *c = &run->config;
  char text[BPPSA_RUN_FIELD_TEXT];
  int64_t count = 0;
  if (run->network.kind->convolutional) {
    count = add_field(f, count, "network", bppsa_network_identity(&run->network, text, sizeof text));
  } else {
    count = add_field(f, count, "nonlinearity", bppsa_nonlinearity_name(c->nonlinearity));
    count = add_field(f, count, "loss", bppsa_objective_loss(&run->objective, c->loss_all));
    count = add_number(f, count, "hidden", c->hidden);
    count = add_number(f, count, "layers", c->layers);
  }
  run->train.gradients = f->texts[count];
  const bppsa_gradient_method method = bppsa_network_method(&run->network, c, run->model);
  count = add_field(f, count, "gradients", bppsa_gradient_method_text(&method, text, sizeof text));
  run->train.fields = f->fields;
  run->train.field_count = count;
}

/* ---- signals ---- */

static bool stop(void *context) {
  (void)context;
  return bppsa_interrupt_pending();
}

bppsa_status bppsa_train_interruptible(bppsa_train_run *run, bppsa_train_callbacks *callbacks) {
  callbacks->stop = stop;
  bppsa_interrupt_catch();
  const bppsa_status status = bppsa_train(&run->train, run->model, run->dataset, run->device, callbacks, &run->result);
  bppsa_interrupt_release();
  return status;
}

bppsa_status bppsa_train_check_stopped(const bppsa_train_run *run) {
  const struct {
    const char *words, *path, *after;
  } kept[] = {{"its checkpoint is in", run->train.checkpoint, ", expected --resume to go on"},
              {"its weights are in", bppsa_cli_value(run->cli, BPPSA_OPTION_SAVE_WEIGHTS)->text, ""},
              {"its log is in", run->train.log_path, ""}};
  bppsa_line line = {.length = 0};
  if (!run->result.stopped) {
    return BPPSA_OK;
  }
  for (size_t i = 0; i < sizeof kept / sizeof kept[0]; ++i) {
    if (kept[i].path != NULL) {
      bppsa_line_add(&line, ", %s %s%s", kept[i].words, kept[i].path, kept[i].after);
    }
  }
  return bppsa_fail(BPPSA_ERR_IO, "stopped by %s after step %" PRId64 "%s", bppsa_interrupt_name(), run->result.steps,
                    line.length > 0 ? line.text : ", nothing is kept, expected --save-weights, --log or --checkpoint");
}

/* What a training run keeps in its checkpoints, and how it continues from one. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"
#include "core/files/json.h"
#include "train/trainer_internal.h"

enum { STORED = 6, STEPS_BETWEEN = 100 /* two checkpoints of a run by iterations, unless the caller says how many */ };

#define REDUCTION "reduction"
#define ONE_RANK "one rank without --ranks"

/* ---- the description of a run ---- */

/* Writes the shorter of two texts that read back as the value. */
static void real_text(double value, char text[BPPSA_FIELD_TEXT]) {
  (void)bppsa_print(text, BPPSA_FIELD_TEXT, "%.15g", value);
  if (bppsa_read_real(text, NULL) != value) {
    (void)bppsa_print(text, BPPSA_FIELD_TEXT, "%.17g", value);
  }
}

/* Lists what bits depend on in some runs alone: how gradients are added up, a GPU, the plans of passes. */
static void describe_passes(bppsa_training *run, int64_t *count) {
  if (run->ranks != NULL) {
    run->reduction = &run->fields[(*count)++];
    *run->reduction = (bppsa_metadata){REDUCTION, run->config->reduction};
  }
  if (run->model->device != NULL) {
    run->fields[(*count)++] = (bppsa_metadata){"device", "cuda"};
  }
  if (run->dataset->streams) {
    run->fields[(*count)++] = (bppsa_metadata){"streams", "true"};
  }
  if (run->dataset->windows > 1) {
    (void)snprintf(run->windows_text, sizeof run->windows_text, "%" PRId64 " (oldest state first)", run->dataset->windows);
    run->fields[(*count)++] = (bppsa_metadata){"bptt", run->windows_text};
  }
  for (int k = 0; k < BPPSA_PASS_KINDS; ++k) {
    if (run->accounts[k] != NULL) {
      const char *text = run->accounts[k]->plan(run->model, run->plan_texts[k], sizeof run->plan_texts[k]);
      run->fields[(*count)++] = (bppsa_metadata){bppsa_pass_name((bppsa_pass)k), text};
    }
  }
}

/* Lists the caller's fields and the training's own. The number of threads and the place of files are not among them, because the
 * bits do not depend on them. Nor is the number of epochs or iterations, because a run may be trained further; but it is if a
 * cosine schedule ends with it. */
static bppsa_status describe(bppsa_training *run, int64_t *count) {
  const bppsa_train_config *config = run->config;
  const bppsa_optimizer_config *o = &config->optimizer;
  const bppsa_dataset *data = run->dataset;
  const struct {
    const char *key, *text; /* text NULL: one of the numbers */
    bool real;
    double number;
    uint64_t integer;
  } own[] = {
      {"model", run->model->ops->name, false, 0, 0},
      {"dtype", bppsa_dtype_name(run->model->dtype), false, 0, 0},
      {"seed", NULL, false, 0, config->seed},
      {"order", bppsa_order_text(&config->order, run->order_text, sizeof run->order_text), false, 0, 0},
      {"data", data->ops->name, false, 0, 0},
      {"data_identity", NULL, false, 0, data->identity},
      {"samples", NULL, false, 0, (uint64_t)data->samples},
      {"seq_len", NULL, false, 0, (uint64_t)data->seq_len},
      {"input", NULL, false, 0, (uint64_t)data->input},
      {"objective", bppsa_objective_name(&data->objective), false, 0, 0},
      {"ignore_label", data->objective.ignores ? NULL : "none", true, (double)data->objective.ignored, 0},
      {"labels_per_step", data->labels_per_step ? "true" : "false", false, 0, 0},
      {"validation", NULL, true, config->validation, 0},
      {"counted_in", config->epochs > 0 ? "epochs" : "iterations", false, 0, 0},
      {"batch", NULL, false, 0, (uint64_t)config->batch},
      {"clip_norm", NULL, true, config->clip_norm, 0},
      {"optimizer", bppsa_optimizer_name(o->kind), false, 0, 0},
      {"lr", NULL, true, o->lr, 0},
      {"momentum", NULL, true, o->momentum, 0},
      {"beta1", NULL, true, o->beta1, 0},
      {"beta2", NULL, true, o->beta2, 0},
      {"epsilon", NULL, true, o->epsilon, 0},
      {"weight_decay", NULL, true, o->weight_decay, 0},
      {"lr_schedule", bppsa_rate_name(run->rate.kind), false, 0, 0},
      {"lr_step_size", NULL, false, 0, (uint64_t)run->rate.step_size},
      {"lr_gamma", NULL, true, run->rate.gamma, 0},
      {"lr_period", NULL, false, 0, (uint64_t)run->rate.period},
      {"lr_min", NULL, true, run->rate.min, 0},
      {"warmup", NULL, false, 0, (uint64_t)run->rate.warmup},
  };
  const int64_t n = (int64_t)(sizeof own / sizeof own[0]);
  run->fields = bppsa_calloc(config->field_count + n + 4 + BPPSA_PASS_KINDS, sizeof *run->fields);
  run->texts = bppsa_calloc(n, sizeof *run->texts);
  if (run->fields == NULL || run->texts == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < config->field_count; ++i) {
    run->fields[i] = config->fields[i];
  }
  for (int64_t i = 0; i < n; ++i) {
    if (own[i].text == NULL && own[i].real) {
      real_text(own[i].number, run->texts[i]);
    } else if (own[i].text == NULL) {
      (void)snprintf(run->texts[i], sizeof run->texts[i], "%" PRIu64, own[i].integer);
    }
    run->fields[config->field_count + i] = (bppsa_metadata){own[i].key, own[i].text != NULL ? own[i].text : run->texts[i]};
  }
  *count = config->field_count + n;
  describe_passes(run, count);
  return BPPSA_OK;
}

/* Lists the tensors of a checkpoint: weights under their own names, so that the file also serves as a file of weights; the
 * optimiser's state; the arrays of `stored`. */
static bppsa_status list_tensors(bppsa_training *run, int64_t *count) {
  const bppsa_optimizer_state *state = bppsa_optimizer_get_state(run->optimizer);
  bppsa_stored *s = &run->stored;
  const struct {
    const char *name;
    void *data;
    bppsa_dtype dtype;
    int64_t size;
  } arrays[STORED] = {{"train.cursor", s->cursor, BPPSA_I64, 4},
                      {"train.epoch_counts", s->counts, BPPSA_I64, 5},
                      {"train.epoch_sums", s->sums, BPPSA_F64, 6},
                      {"train.last_step", s->last_step, BPPSA_F64, BPPSA_RECORD_NUMBERS},
                      {"train.last_epoch", s->last_epoch, BPPSA_F64, BPPSA_RECORD_NUMBERS},
                      {"train.log", s->log, BPPSA_I64, 2}};
  size_t bytes = 1;
  for (int64_t i = 0; i < state->count; ++i) {
    bytes += strlen(state->tensors[i].name) + sizeof BPPSA_TENSOR_OPTIMIZER;
  }
  run->tensors = bppsa_calloc(run->model->parameter_count + state->count + STORED + 2 + BPPSA_PASS_KINDS, sizeof *run->tensors);
  run->names = bppsa_alloc(bytes);
  if (run->tensors == NULL || run->names == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_named_view *at = run->tensors;
  char *name = run->names;
  for (int64_t i = 0; i < STORED; ++i) { /* eight bytes for each element, so that tensors in the file stay aligned */
    *at++ = (bppsa_named_view){arrays[i].name, bppsa_view_make(arrays[i].data, arrays[i].dtype, 1, &arrays[i].size)};
  }
  if (run->dataset->loss_weights != NULL) {
    const int64_t one = 1;
    *at++ = (bppsa_named_view){"train.epoch_weight", bppsa_view_make(&s->weight, BPPSA_F64, 1, &one)};
  }
  if (run->dataset->streams) {
    *at++ = (bppsa_named_view){BPPSA_TENSOR_STATES, run->batch.states};
  }
  for (int k = 0; k < BPPSA_PASS_KINDS; ++k) {
    const int64_t numbers = run->accounts[k] != NULL ? run->accounts[k]->count : 0;
    if (numbers > 0) {
      *at++ = (bppsa_named_view){bppsa_training_account_names[k], bppsa_view_make(s->account[k], BPPSA_F64, 1, &numbers)};
    }
  }
  for (int64_t i = 0; i < run->model->parameter_count; ++i) {
    *at++ = (bppsa_named_view){run->model->parameters[i].name, run->model->parameters[i].value};
  }
  for (int64_t i = 0; i < state->count; ++i) {
    *at++ = (bppsa_named_view){name, state->tensors[i].view};
    name += sprintf(name, BPPSA_TENSOR_OPTIMIZER "%s", state->tensors[i].name) + 1;
  }
  *count = at - run->tensors;
  return BPPSA_OK;
}

/* Opens the directory on the first rank; the others need only the list of tensors. */
static bppsa_status open_checkpoint(bppsa_training *run) {
  bppsa_checkpoint_contents contents = {0};
  BPPSA_TRY(list_tensors(run, &contents.tensor_count));
  run->tensor_count = contents.tensor_count;
  if (!run->first) {
    return BPPSA_OK;
  }
  BPPSA_TRY(describe(run, &contents.field_count));
  contents.fields = run->fields;
  contents.open_key = run->config->other_reduction ? REDUCTION : NULL;
  contents.tensors = run->tensors;
  return bppsa_checkpoint_open(run->config->checkpoint, &contents, &run->checkpoint);
}

/* ---- to and from the stored arrays ---- */

static void pack_record(const bppsa_train_record *r, double *numbers) {
  const double none = (double)NAN;
  const double all[BPPSA_RECORD_NUMBERS] = {(double)r->step,
                                            (double)r->epoch,
                                            r->loss,
                                            r->accuracy,
                                            r->grad_norm,
                                            r->forward_s,
                                            r->backward_s,
                                            r->update_s,
                                            r->samples_per_s,
                                            r->has_validation ? r->validation_loss : none,
                                            r->has_validation ? r->validation_accuracy : none,
                                            (double)r->redone,
                                            r->lr};
  memcpy(numbers, all, sizeof all);
}

static bppsa_train_record unpack_record(const double *numbers) {
  const bool validation = !isnan(numbers[9]); /* the accuracy does not tell, because it is NaN for real targets, too */
  return (bppsa_train_record){.step = (int64_t)numbers[0],
                              .epoch = (int64_t)numbers[1],
                              .loss = numbers[2],
                              .accuracy = numbers[3],
                              .grad_norm = numbers[4],
                              .lr = numbers[12],
                              .forward_s = numbers[5],
                              .backward_s = numbers[6],
                              .update_s = numbers[7],
                              .redone = (int64_t)numbers[11],
                              .samples_per_s = numbers[8],
                              .has_validation = validation,
                              .validation_loss = validation ? numbers[9] : 0.0,
                              .validation_accuracy = validation ? numbers[10] : 0.0};
}

static void pack(bppsa_training *run) {
  const bppsa_epoch_sums *e = &run->epoch;
  const bppsa_log_position none = {.bytes = -1}, empty = {.bytes = 0};
  const bppsa_log_position log = run->log != NULL                ? bppsa_log_get_position(run->log)
                                 : run->config->log_path != NULL ? empty /* not opened yet */
                                                                 : none;
  bppsa_stored *s = &run->stored;
  *s = (bppsa_stored){
      .cursor = {run->result.steps, run->cursor.epoch, run->cursor.position, bppsa_optimizer_get_state(run->optimizer)->step},
      .counts = {e->correct, e->rows, e->steps, e->samples, e->redone},
      .sums = {e->loss, e->grad_norm, e->forward_s, e->backward_s, e->update_s, e->seconds},
      .log = {log.bytes, log.crc32},
      .weight = e->weight};
  pack_record(&run->result.last, s->last_step);
  pack_record(&run->last_epoch, s->last_epoch);
  for (int k = 0; k < BPPSA_PASS_KINDS; ++k) {
    const bppsa_model_account *account = run->accounts[k];
    if (account != NULL) { /* the passes are over, so that this cannot fail; validation may have changed the state */
      double state[BPPSA_ACCOUNT_NUMBERS];
      (void)account->latest(run->model, state);
      memcpy(s->account[k], e->account[k], sizeof s->account[k]);
      memcpy(s->account[k], state, (size_t)account->state * sizeof *state);
    }
  }
}

static void unpack(bppsa_training *run) {
  const bppsa_stored *s = &run->stored;
  run->result.steps = run->result.resumed = run->checkpoint_step = s->cursor[0];
  run->result.epochs = run->cursor.epoch = s->cursor[1];
  run->cursor.position = s->cursor[2];
  bppsa_optimizer_get_state(run->optimizer)->step = s->cursor[3];
  run->epoch = (bppsa_epoch_sums){.loss = s->sums[0],
                                  .correct = s->counts[0],
                                  .rows = s->counts[1],
                                  .weight = run->dataset->loss_weights != NULL ? s->weight : (double)s->counts[1],
                                  .grad_norm = s->sums[1],
                                  .steps = s->counts[2],
                                  .samples = s->counts[3],
                                  .redone = s->counts[4],
                                  .forward_s = s->sums[2],
                                  .backward_s = s->sums[3],
                                  .update_s = s->sums[4],
                                  .seconds = s->sums[5]};
  memcpy(run->epoch.account, s->account, sizeof run->epoch.account);
  run->result.last = unpack_record(s->last_step);
  run->last_epoch = unpack_record(s->last_epoch);
}

/* ---- continuing ---- */

/* What a checkpoint says about the run that wrote it, beyond the fields that load compares. "": it does not say it. */
typedef struct {
  char device[BPPSA_CHECKPOINT_VALUE], reduction[BPPSA_CHECKPOINT_VALUE], plans[BPPSA_PASS_KINDS][BPPSA_CHECKPOINT_VALUE];
} origin;

/* Compares the plan of such passes; load compares the rest. */
static bppsa_status check_plan(const bppsa_training *run, int kind, const char *found) {
  const char *mine = run->plan_texts[kind], *name = bppsa_pass_name((bppsa_pass)kind);
  const size_t length = strlen(found);
  const bool planned = run->accounts[kind] != NULL, shorter = planned && strncmp(found, mine, length) == 0 && mine[length] == ',';
  const char *otherwise = kind == BPPSA_PASS_BACKWARD && run->config->gradients != NULL ? run->config->gradients : "sequential";
  return length == 0 || (planned && !shorter)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "checkpoint in %s: %s passes %s, in this run %s, expected the same (--%s auto goes on as the "
                          "checkpoint does)",
                          run->config->checkpoint, name, found, planned ? mine : otherwise, name);
}

/* Checkpoints of a GPU run say so, and only runs on a GPU accept them: another device gives other bits. So does another order in
 * which gradients are added up, unless the caller allows it, and passes that are not sequential. */
static bppsa_status check_origin(const bppsa_training *run, origin *found) {
  enum { PLANS = 2, KEYS = PLANS + BPPSA_PASS_KINDS };
  const char *keys[KEYS] = {"device", REDUCTION};
  char values[KEYS][BPPSA_CHECKPOINT_VALUE];
  const char *mine = run->reduction != NULL ? run->reduction->value : "";
  for (int k = 0; k < BPPSA_PASS_KINDS; ++k) {
    keys[PLANS + k] = bppsa_pass_name((bppsa_pass)k);
  }
  BPPSA_TRY(bppsa_checkpoint_peek(run->config->checkpoint, KEYS, keys, values));
  memcpy(found->device, values[0], sizeof found->device);
  memcpy(found->reduction, values[1], sizeof found->reduction);
  memcpy(found->plans, values[PLANS], sizeof found->plans);
  if (run->model->device == NULL && found->device[0] != '\0') {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "checkpoint in %s: device %s contradicts this run, which has cpu, expected the same",
                      run->config->checkpoint, found->device);
  }
  for (int k = 0; k < BPPSA_PASS_KINDS; ++k) {
    BPPSA_TRY(check_plan(run, k, found->plans[k]));
  }
  if (!run->config->other_reduction && strcmp(found->reduction, mine) != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "checkpoint in %s: gradients added up by %s, in this run by %s, expected the same "
                      "(other_reduction, --allow-other-ranks: go on with other bits)",
                      run->config->checkpoint, found->reduction[0] == '\0' ? ONE_RANK : found->reduction,
                      mine[0] == '\0' ? ONE_RANK : mine);
  }
  return BPPSA_OK;
}

/* Loads the checkpoint, and says so where check_origin has allowed another way to add gradients up than the checkpoint's. */
static bppsa_status load(bppsa_training *run, const origin *found, char *notice) {
  const char *mine = run->reduction != NULL ? run->reduction->value : "";
  const bool other = strcmp(found->reduction, mine) != 0;
  const bppsa_status status = bppsa_checkpoint_load(run->checkpoint, notice);
  if (status == BPPSA_OK && other) {
    const size_t length = strlen(notice);
    (void)snprintf(notice + length, BPPSA_CHECKPOINT_NOTICE - length,
                   "%sgradients were added up by %s, from here on by %s: the bits are not those of one run",
                   length > 0 ? "; " : "", found->reduction[0] == '\0' ? ONE_RANK : found->reduction,
                   mine[0] == '\0' ? ONE_RANK : mine);
  }
  bppsa_make_printable(notice); /* it quotes the file */
  return status;
}

static bppsa_status report_start(const bppsa_training *run, const char *notice) {
  const bppsa_train_start start = {
      .resumed = run->config->resume, .step = run->result.steps, .epoch = run->last_epoch, .notice = notice};
  return run->callbacks.started == NULL ? BPPSA_OK : run->callbacks.started(run->callbacks.context, &start);
}

/* Writes the first line of an empty log. */
static bppsa_status begin_log(bppsa_training *run) {
  return run->config->log_header == NULL ? BPPSA_OK : bppsa_log_write_text(run->log, run->config->log_header);
}

bppsa_status bppsa_training_log_note(bppsa_training *run, const char *note) {
  char *text = NULL;
  json_t *object = json_object();
  BPPSA_TRY(bppsa_json_render(bppsa_json_finish(object, object != NULL && bppsa_json_put_text(object, "note", note)), &text));
  const bppsa_status status = bppsa_log_write_text(run->log, text);
  bppsa_free(text);
  return status;
}

static bppsa_status continue_log(bppsa_training *run, const origin *found, const char *notice) {
  const bppsa_log_position position = {run->stored.log[0], run->stored.log[1]};
  BPPSA_TRY(bppsa_log_continue(run->config->log_path, &position, &run->log));
  BPPSA_TRY(position.bytes > 0 ? BPPSA_OK : begin_log(run));
  const bool other = strcmp(found->reduction, run->reduction != NULL ? run->reduction->value : "") != 0;
  return other ? bppsa_training_log_note(run, notice) : BPPSA_OK; /* the log says what the run does differently from here on */
}

static bppsa_status resume(bppsa_training *run) {
  char notice[BPPSA_CHECKPOINT_NOTICE] = "";
  origin found = {0};
  if (run->first) {
    BPPSA_TRY(check_origin(run, &found));
    BPPSA_TRY(load(run, &found, notice));
    BPPSA_TRY(bppsa_training_check_stored(run));
  }
  if (run->ranks != NULL) {
    BPPSA_TRY(run->ranks->share(run->ranks->context, run->tensor_count, run->tensors));
  }
  unpack(run);
  for (int k = 0; k < BPPSA_PASS_KINDS; ++k) {
    BPPSA_TRY(run->accounts[k] != NULL ? run->accounts[k]->restore(run->model, run->stored.account[k]) : BPPSA_OK);
  }
  BPPSA_TRY(bppsa_model_push(run->model));
  BPPSA_TRY(bppsa_optimizer_push(run->optimizer));
  if (run->cursor.position > 0) {
    bppsa_order_fill(&run->config->order, run->config->seed, run->cursor.epoch, run->split.train, run->order);
  }
  if (run->first && run->config->log_path != NULL) {
    BPPSA_TRY(continue_log(run, &found, notice));
  }
  return report_start(run, notice);
}

static bppsa_status begin(bppsa_training *run) {
  if (run->checkpoint != NULL) {
    if (bppsa_checkpoint_exists(run->checkpoint)) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT,
                        "checkpoint directory %s: holds a checkpoint, expected to resume it, or another directory",
                        run->config->checkpoint);
    }
    pack(run);
    BPPSA_TRY(bppsa_checkpoint_save(run->checkpoint));
  }
  if (run->first && run->config->log_path != NULL) {
    BPPSA_TRY(bppsa_log_create(run->config->log_path, &run->log));
    BPPSA_TRY(begin_log(run));
  }
  return report_start(run, "");
}

/* Makes the models of all ranks equal. */
static bppsa_status share_weights(bppsa_training *run) {
  const bppsa_train_ranks *ranks = run->ranks;
  for (int64_t i = 0; ranks != NULL && i < run->model->parameter_count; ++i) {
    const bppsa_named_view weight = {run->model->parameters[i].name, run->model->parameters[i].value};
    BPPSA_TRY(ranks->share(ranks->context, 1, &weight));
  }
  return ranks != NULL ? bppsa_model_push(run->model) : BPPSA_OK;
}

bppsa_status bppsa_training_open_files(bppsa_training *run) {
  if (run->config->checkpoint != NULL) {
    BPPSA_TRY(open_checkpoint(run));
  }
  if (run->config->resume) {
    return resume(run);
  }
  BPPSA_TRY(share_weights(run));
  return begin(run);
}

/* ---- while it runs ---- */

int64_t bppsa_train_checkpoint_steps(const bppsa_train_config *config) {
  return config->checkpoint == NULL     ? 0
         : config->checkpoint_every > 0 ? config->checkpoint_every
         : config->iterations > 0       ? STEPS_BETWEEN
                                        : 0;
}

bppsa_status bppsa_training_save(bppsa_training *run, bool epoch_complete, bool now) {
  const int64_t every = bppsa_train_checkpoint_steps(run->config);
  const bool due = every > 0 ? run->result.steps % every == 0 : epoch_complete;
  if (run->config->checkpoint == NULL || run->checkpoint_step == run->result.steps || !(due || now)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_training_gather(run));
  if (run->dataset->streams && run->ranks != NULL) {
    BPPSA_TRY(run->ranks->gather_states(run->ranks->context, &run->batch, run->count));
  }
  if (run->checkpoint == NULL) { /* the first rank alone writes it */
    run->checkpoint_step = run->result.steps;
    return BPPSA_OK;
  }
  if (run->log != NULL) { /* the lines that the checkpoint counts must reach the disk before it */
    BPPSA_TRY(bppsa_log_sync(run->log));
  }
  BPPSA_TRY(bppsa_model_pull(run->model, false));
  BPPSA_TRY(bppsa_optimizer_pull(run->optimizer));
  pack(run);
  const bppsa_status status = bppsa_checkpoint_save(run->checkpoint);
  if (status != BPPSA_OK) {
    return status == BPPSA_ERR_IO ? bppsa_checkpoint_rescue(run->checkpoint, status) : status;
  }
  run->checkpoint_step = run->result.steps;
  return BPPSA_OK;
}

void bppsa_training_close_checkpoint(bppsa_training *run) {
  bppsa_checkpoint_close(run->checkpoint);
  bppsa_free(run->tensors);
  bppsa_free(run->names);
  bppsa_free(run->fields);
  bppsa_free(run->texts);
}

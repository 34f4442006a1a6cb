#include "train/trainer.h"

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "train/blocks.h"
#include "train/evaluate_internal.h"
#include "train/trainer_internal.h"

bppsa_train_config bppsa_train_config_default(void) {
  return (bppsa_train_config){.batch = 16, .optimizer = bppsa_optimizer_config_default(), .rate = bppsa_rate_config_default()};
}

static bppsa_status check_config(const bppsa_train_config *config) {
  if (config->epochs < 0 || config->iterations < 0 || (config->epochs > 0) == (config->iterations > 0)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "training: %lld epochs and %lld iterations, expected exactly one of them to be at least 1",
                      (long long)config->epochs, (long long)config->iterations);
  }
  if (config->batch < 1 || config->batch > BPPSA_MAX_SAMPLES) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "training: batch %lld, expected 1 .. %lld", (long long)config->batch,
                      (long long)BPPSA_MAX_SAMPLES);
  }
  if (!(config->clip_norm >= 0.0 && isfinite(config->clip_norm))) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "training: clip norm %g, expected a finite number of at least 0 (0: no clipping)",
                      config->clip_norm);
  }
  if (config->checkpoint_every < 0 || (config->checkpoint == NULL && (config->checkpoint_every > 0 || config->resume))) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "training: %s without a checkpoint directory, expected one",
                      config->resume ? "to be resumed" : "checkpoints every so many steps");
  }
  if (config->certify_every < 0 || (config->certify_every > 0 && config->ranks != NULL)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "training: certificates every %lld steps%s, expected 0 or more, and no ranks",
                      (long long)config->certify_every, config->ranks != NULL ? " on ranks" : "");
  }
  if (config->ranks != NULL && (config->ranks->capacity < 1 || config->reduction == NULL)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "training on ranks: %lld samples at once, %s, expected 1 or more and the reduction's name",
                      (long long)config->ranks->capacity, config->reduction == NULL ? "no reduction" : config->reduction);
  }
  return bppsa_rate_check(&config->rate, config->optimizer.lr);
}

/* Where ranks update their own weights, the whole state is kept in host memory alone, for checkpoints. */
static bppsa_status make_optimizer(bppsa_training *run) {
  run->copies = *run->model;
  run->copies.device = NULL;
  return bppsa_optimizer_create(&run->config->optimizer, bppsa_training_updated(run) ? &run->copies : run->model,
                                &run->optimizer);
}

/* Prepares everything a run needs; files come last, so that nothing is created for a request that cannot run. */
static bppsa_status training_prepare(bppsa_training *run) {
  const bppsa_train_config *config = run->config;
  bppsa_nonfinite found;
  BPPSA_TRY(check_config(config));
  BPPSA_TRY(bppsa_dataset_split(run->dataset, config->validation, &run->split));
  run->samples = bppsa_order_samples(&config->order, run->split.train);
  if (run->samples < 1) {
    return bppsa_order_check(&config->order, run->split.train, 1);
  }
  if (run->dataset->streams && config->order.kind == BPPSA_ORDER_SHUFFLED) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "training of streams: samples are shuffled, expected the order of the data or a given one");
  }
  if (run->dataset->streams && run->ranks != NULL && run->ranks->gather_states == NULL) {
    return bppsa_fail(
        BPPSA_ERR_UNSUPPORTED,
        "training of streams: on ranks that hold parts of the network, expected ranks that share the batch or its steps");
  }
  if (run->dataset->windows > 1 && !run->dataset->whole_rows && run->ranks != NULL && run->ranks->cut) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "training on ranks that share steps: gradients through %lld batches of streams in rows of several lengths, "
                      "expected whole rows",
                      (long long)run->dataset->windows);
  }
  const int64_t steps_per_epoch = (run->samples - 1) / config->batch + 1;
  if (config->iterations > 0) {
    run->total_steps = config->iterations;
  } else if (!bppsa_mul(config->epochs, steps_per_epoch, &run->total_steps)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "training: %lld epochs of %lld steps are too many, expected fewer than 2^63 steps",
                      (long long)config->epochs, (long long)steps_per_epoch);
  }
  BPPSA_TRY(bppsa_order_check(&config->order, run->split.train, (run->total_steps - 1) / steps_per_epoch + 1));
  if (bppsa_model_parameter_nonfinite(run->model, false, &found)) {
    bppsa_line line = {.length = 0};
    bppsa_batch_describe(&run->batch, &found, &line);
    return bppsa_fail(BPPSA_ERR_NUMERIC, "before training: %s", line.text);
  }
  run->rate = config->rate;
  if (run->rate.kind == BPPSA_RATE_COSINE && run->rate.period == 0) {
    run->rate.period = config->iterations > 0 ? config->iterations : config->epochs;
  }
  run->most = bppsa_min(config->batch, run->samples);
  const int64_t capacity = run->ranks != NULL ? bppsa_min(run->ranks->capacity, run->most) : run->most;
  BPPSA_TRY(make_optimizer(run));
  BPPSA_TRY(bppsa_batch_create(run->model, run->dataset, run->device, capacity, run->most, true, &run->batch));
  run->batch.training = true;
  if (run->ranks != NULL && run->ranks->cut) {
    bppsa_batch_set_steps(&run->batch, run->ranks->first_step, run->ranks->steps);
  }
  run->order = bppsa_calloc(run->samples, sizeof *run->order);
  if (run->order == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  if (run->model->device != NULL && !bppsa_training_updated(run)) {
    BPPSA_TRY(bppsa_gpu_steps_create(run->model->device, &run->gpu));
  }
  BPPSA_TRY(config->certify_every > 0 ? bppsa_certify_check(run->model) : BPPSA_OK);
  BPPSA_TRY(bppsa_model_update_redone(run->model));
  run->redone = run->model->redone;
  return bppsa_training_open_files(run);
}

/* Takes the next batch of the epoch's order; the last batch holds the remaining samples. */
static bppsa_status next_batch(bppsa_training *run) {
  if (run->cursor.position == 0) {
    run->cursor.epoch += 1;
    run->epoch = (bppsa_epoch_sums){0};
    bppsa_batch_restart(&run->batch);
    bppsa_order_fill(&run->config->order, run->config->seed, run->cursor.epoch, run->split.train, run->order);
  }
  run->batch.step = run->result.steps;
  run->count = bppsa_min(run->most, run->samples - run->cursor.position);
  run->cursor.position += run->count;
  bppsa_batch_follow(&run->batch, (run->cursor.position - run->count) / run->most, bppsa_training_indices(run), run->most);
  if (run->ranks != NULL) { /* each rank stages its samples */
    return BPPSA_OK;
  }
  memcpy(run->batch.indices, bppsa_training_indices(run), (size_t)run->count * sizeof *run->batch.indices);
  return bppsa_batch_stage(&run->batch, run->count);
}

/* Adds up what the passes did. A step whose loss is not finite has had no backward pass. */
static bppsa_status add_passes(const bppsa_training *run, bppsa_train_record *record) {
  BPPSA_TRY(bppsa_model_add_pass(run->model, BPPSA_PASS_FORWARD, record->account[BPPSA_PASS_FORWARD]));
  return isfinite(record->loss) ? bppsa_model_add_pass(run->model, BPPSA_PASS_BACKWARD, record->account[BPPSA_PASS_BACKWARD])
                                : BPPSA_OK;
}

/* Counts the scan products redone since the last call, and adds up what the passes did. On a GPU this waits, so that it is done
 * only where the numbers are shown. */
static bppsa_status count_redone(bppsa_training *run, bppsa_train_record *record) {
  if (run->ranks != NULL) { /* the ranks have counted the products */
    return add_passes(run, record);
  }
  const bool looked_at =
      run->config->iterations > 0 || run->checkpoint != NULL || run->cursor.position == run->samples || run->gpu == NULL;
  if (looked_at) {
    BPPSA_TRY(bppsa_model_update_redone(run->model));
    record->redone = run->model->redone - run->redone;
    run->redone = run->model->redone;
    BPPSA_TRY(add_passes(run, record));
  }
  return BPPSA_OK;
}

static void add_to_epoch(bppsa_training *run, const bppsa_train_record *record, const bppsa_loss_result *loss, double seconds) {
  bppsa_epoch_sums *sums = &run->epoch;
  sums->loss += loss->loss * loss->weight;
  sums->weight += loss->weight;
  sums->correct += loss->correct;
  sums->rows += loss->rows;
  sums->grad_norm += record->grad_norm;
  sums->steps += 1;
  sums->samples += run->count;
  sums->redone += record->redone;
  sums->forward_s += record->forward_s;
  sums->backward_s += record->backward_s;
  sums->update_s += record->update_s;
  sums->seconds += seconds;
  run->result.forward_s += record->forward_s;
  run->result.backward_s += record->backward_s;
  run->result.update_s += record->update_s;
  run->result.redone += record->redone;
  bppsa_train_certificate_add(&sums->certificate, &record->certificate);
  bppsa_train_certificate_add(&run->result.certificate, &record->certificate);
  for (int k = 0; k < BPPSA_PASS_KINDS; ++k) {
    if (run->accounts[k] != NULL) {
      run->accounts[k]->add(sums->account[k], record->account[k]);
      run->accounts[k]->add(run->result.account[k], record->account[k]);
    }
  }
}

/* The learning rate of a step of the present epoch: of the one that comes next, or of the one `ahead` steps after that. */
static double rate_at(const void *context, int64_t ahead) {
  const bppsa_training *run = context;
  const bppsa_train_config *config = run->config;
  const int64_t done = config->iterations > 0 ? run->result.steps + ahead : run->cursor.epoch - 1;
  return bppsa_rate_at(&run->rate, config->optimizer.lr, run->result.steps + ahead + 1, done);
}

/* Sets the optimiser's rate for the next step and returns it. */
static double set_rate(bppsa_training *run) {
  const double rate = rate_at(run, 0);
  bppsa_optimizer_set_lr(run->optimizer, rate);
  return rate;
}

/* Whole batches from the present one to the end of the epoch or of the run. */
static int64_t steps_left(const void *context) {
  const bppsa_training *run = context;
  const int64_t of_epoch = (run->samples - run->cursor.position + run->count) / run->most,
                of_run = run->total_steps - run->result.steps;
  return bppsa_min(of_epoch, of_run);
}

/* Gives the weights that the run begins with to ranks that hold parts of them. */
static bppsa_status begin_ranks(bppsa_training *run) {
  run->lead = (bppsa_train_lead){.context = run, .optimizer = run->optimizer, .rate = rate_at, .left = steps_left};
  return bppsa_training_updated(run) ? run->ranks->begin(run->ranks->context, &run->lead) : BPPSA_OK;
}

/* Shows the weights that an update has made to the caller. */
static bppsa_status report_update(const bppsa_training *run, bppsa_train_record *record) {
  if (run->callbacks.on_update == NULL || run->nonfinite.length > 0 || run->ranks != NULL || run->gpu != NULL) {
    return BPPSA_OK;
  }
  bppsa_optimizer_config next = run->config->optimizer;
  next.lr = rate_at(run, 0);
  return run->callbacks.on_update(run->callbacks.context, run->optimizer, &next, record);
}

/* Takes one step; `record` is also complete if something is not finite. */
static bppsa_status step(bppsa_training *run, bppsa_train_record *record) {
  bppsa_loss_result loss;
  const double start = bppsa_now();
  BPPSA_TRY(next_batch(run));
  *record = (bppsa_train_record){.step = run->result.steps + 1,
                                 .epoch = run->cursor.epoch,
                                 .lr = set_rate(run),
                                 .grad_norm = (double)NAN,
                                 .gradients = run->config->gradients};
  BPPSA_TRY(bppsa_step(run, record, &loss));
  BPPSA_TRY(count_redone(run, record));
  const double seconds = bppsa_now() - start - record->certificate.seconds;
  if (record->samples_per_s == 0) {
    record->samples_per_s = (double)run->count / seconds;
  }
  add_to_epoch(run, record, &loss, seconds);
  run->result.steps += 1;
  run->result.epochs = record->epoch;
  BPPSA_TRY(report_update(run, record));
  run->result.first = record->step == run->result.resumed + 1 ? *record : run->result.first;
  run->result.last = *record;
  return BPPSA_OK;
}

/* Writes loss and accuracy of the held-out samples to the record, if there are any. */
static bppsa_status validate(bppsa_training *run, bppsa_train_record *record) {
  if (run->split.validation == 0) {
    return BPPSA_OK;
  }
  bppsa_evaluation evaluation;
  const bppsa_train_ranks *ranks = run->ranks;
  const int64_t first = run->split.train, count = run->split.validation;
  BPPSA_TRY(bppsa_training_gather(run));
  const bppsa_status status = ranks != NULL ? ranks->evaluate(ranks->context, &run->batch, first, count, &evaluation)
                                            : bppsa_batch_evaluate(&run->batch, first, count, NULL, &evaluation);
  if (status != BPPSA_OK) {
    return bppsa_fail_prefix(status, "validation after training step %lld", (long long)run->result.steps);
  }
  record->has_validation = true;
  record->validation_loss = evaluation.loss;
  record->validation_accuracy = evaluation.accuracy;
  return BPPSA_OK;
}

static bppsa_status log_record(const bppsa_training *run, const bppsa_train_record *record) {
  char texts[BPPSA_PASS_KINDS][BPPSA_ACCOUNT_TEXT];
  const char *passes[BPPSA_PASS_KINDS];
  for (int k = 0; k < BPPSA_PASS_KINDS; ++k) {
    passes[k] = run->accounts[k] != NULL ? run->accounts[k]->text(record->account[k], texts[k], sizeof texts[k]) : NULL;
  }
  return bppsa_log_write(run->log, record, passes);
}

static bppsa_status report_step(bppsa_training *run, const bppsa_train_record *record) {
  if (run->log != NULL && run->config->iterations > 0) {
    BPPSA_TRY(log_record(run, record));
  }
  return run->callbacks.on_step == NULL ? BPPSA_OK : run->callbacks.on_step(run->callbacks.context, record);
}

/* The record of the epoch so far. */
static bppsa_train_record epoch_record(const bppsa_training *run) {
  const bppsa_epoch_sums *sums = &run->epoch;
  bppsa_train_record record = {.step = run->result.steps,
                               .epoch = run->cursor.epoch,
                               .loss = sums->rows > 0 ? sums->loss / sums->weight : 0.0,
                               .accuracy = bppsa_accuracy(sums->correct, sums->rows),
                               .grad_norm = sums->grad_norm / (double)sums->steps,
                               .lr = run->result.last.lr,
                               .forward_s = sums->forward_s,
                               .backward_s = sums->backward_s,
                               .update_s = sums->update_s,
                               .redone = sums->redone,
                               .gradients = run->config->gradients,
                               .certificate = sums->certificate,
                               .samples_per_s = (double)sums->samples / sums->seconds};
  memcpy(record.account, sums->account, sizeof record.account);
  return record;
}

/* Writes the epoch's line and calls the callback; `complete` is false if the run fails within the epoch. */
static bppsa_status report_epoch(bppsa_training *run, bool complete) {
  bppsa_train_record record = epoch_record(run);
  const bool by_epochs = run->config->epochs > 0;
  if (complete && by_epochs) {
    BPPSA_TRY(validate(run, &record));
    run->result.last.has_validation = record.has_validation;
    run->result.last.validation_loss = record.validation_loss;
    run->result.last.validation_accuracy = record.validation_accuracy;
  }
  if (run->log != NULL && by_epochs) {
    BPPSA_TRY(log_record(run, &record));
  }
  if (complete) {
    run->last_epoch = record;
  }
  const bool call = complete && run->callbacks.on_epoch != NULL;
  return call ? run->callbacks.on_epoch(run->callbacks.context, &record) : BPPSA_OK;
}

static void report_progress(const bppsa_training *run) {
  if (run->callbacks.progress == NULL) {
    return;
  }
  const double elapsed = bppsa_now() - run->start;
  const double left = (double)(run->total_steps - run->result.steps);
  const int64_t done = run->result.steps - run->result.resumed;
  const bppsa_progress progress = {.step = run->result.steps,
                                   .done = done,
                                   .total_steps = run->total_steps,
                                   .epoch = run->cursor.epoch,
                                   .loss = run->result.last.loss,
                                   .elapsed_s = elapsed,
                                   .eta_s = elapsed / (double)done * left};
  run->callbacks.progress(run->callbacks.context, &progress);
}

/* Reports the step that is not finite, then fails with what was found. */
static bppsa_status stop_nonfinite(bppsa_training *run, const bppsa_train_record *record) {
  bppsa_status reported = report_step(run, record);
  if (reported == BPPSA_OK && run->config->epochs > 0) {
    reported = report_epoch(run, false);
  }
  (void)reported; /* this error is more important than a log that cannot be written */
  return bppsa_fail(BPPSA_ERR_NUMERIC, "training step %lld (epoch %lld): %s", (long long)record->step, (long long)record->epoch,
                    run->nonfinite.text);
}

/* Reports a stop. The checkpoint has been saved: a resumed run removes the line. */
static bppsa_status report_stop(bppsa_training *run) {
  bppsa_train_record *record = &run->result.partial;
  *record = epoch_record(run);
  record->interrupted = true;
  return run->log != NULL && run->config->epochs > 0 ? log_record(run, record) : BPPSA_OK;
}

/* Writes what the ranks have to say to the log; before the first step the user is told too. */
static bppsa_status report_note(bppsa_training *run, bool tell) {
  const bool notes = run->ranks != NULL && run->ranks->note != NULL;
  const char *note = notes ? run->ranks->note(run->ranks->context) : NULL;
  if (note == NULL || !run->first) {
    return BPPSA_OK;
  }
  if (tell && run->callbacks.note != NULL) {
    run->callbacks.note(run->callbacks.context, note);
  }
  return run->log != NULL ? bppsa_training_log_note(run, note) : BPPSA_OK;
}

static bppsa_status training_loop(bppsa_training *run) {
  run->start = bppsa_now();
  BPPSA_TRY(report_note(run, true));
  while (run->result.steps < run->total_steps && !run->result.stopped) {
    bppsa_train_record record;
    BPPSA_TRY(step(run, &record));
    if (run->nonfinite.length > 0) {
      return stop_nonfinite(run, &record);
    }
    BPPSA_TRY(report_step(run, &record));
    BPPSA_TRY(report_note(run, false));
    const bool epoch_complete = run->cursor.position == run->samples;
    if (epoch_complete) {
      run->cursor.position = 0;
      BPPSA_TRY(report_epoch(run, true));
    }
    report_progress(run);
    const bool last = run->result.steps == run->total_steps;
    run->result.stopped = !last && run->callbacks.stop != NULL && run->callbacks.stop(run->callbacks.context);
    BPPSA_TRY(last || run->ranks == NULL ? BPPSA_OK
                                         : run->ranks->agree(run->ranks->context, run->result.steps, &run->result.stopped));
    BPPSA_TRY(bppsa_training_save(run, epoch_complete, last || run->result.stopped));
  }
  if (run->result.stopped) {
    BPPSA_TRY(report_stop(run));
  } else if (run->config->iterations > 0) {
    BPPSA_TRY(validate(run, &run->result.last));
  }
  run->result.seconds = bppsa_now() - run->start;
  return BPPSA_OK;
}

bppsa_status bppsa_train(const bppsa_train_config *config, bppsa_model *model, const bppsa_dataset *dataset,
                         const bppsa_device *device, const bppsa_train_callbacks *callbacks, bppsa_train_result *result) {
  BPPSA_REQUIRE(config != NULL && model != NULL && dataset != NULL && result != NULL);
  bppsa_training run = {.config = config, .model = model, .dataset = dataset, .device = device, .ranks = config->ranks};
  for (int k = 0; k < BPPSA_PASS_KINDS; ++k) {
    run.accounts[k] = bppsa_model_get_account(model, (bppsa_pass)k);
  }
  run.first = run.ranks == NULL || run.ranks->first;
  if (callbacks != NULL) {
    run.callbacks = run.first ? *callbacks : (bppsa_train_callbacks){.context = callbacks->context, .stop = callbacks->stop};
  }
  bppsa_status status = training_prepare(&run);
  status = status == BPPSA_OK ? begin_ranks(&run) : status;
  if (status == BPPSA_OK) {
    status = training_loop(&run);
    status = status == BPPSA_OK ? bppsa_training_gather(&run) : status;
    const bppsa_status pulled = status == BPPSA_ERR_CUDA ? status : bppsa_model_pull(model, false); /* after a failure, too */
    status = status == BPPSA_OK ? pulled : status;
  }
  bppsa_gpu_steps_destroy(model->device, run.gpu);
  bppsa_batch_free(&run.batch);
  bppsa_optimizer_destroy(run.optimizer);
  bppsa_training_close_checkpoint(&run);
  bppsa_free(run.order);
  if (status != BPPSA_OK) {
    (void)bppsa_log_close(run.log); /* the first failure is reported */
    return status;
  }
  BPPSA_TRY(bppsa_log_close(run.log));
  *result = run.result;
  return BPPSA_OK;
}

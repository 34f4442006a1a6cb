#include "cli/train_report.h"

#include "cli/provenance.h"
#include "cli/train_optimizer.h"

#include <inttypes.h>
#include <math.h>

#define ROW_LIMIT 10000 /* longer runs by iterations have no rows in their JSON document; --log has them */
#define LINES 10        /* printed lines of a run by iterations */

static int64_t parameter_total(const bppsa_model *model) {
  int64_t total = 0;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    total += bppsa_view_count(&model->parameters[i].value);
  }
  return total;
}

static bppsa_gradient_method method_of(const bppsa_train_run *run) {
  return bppsa_network_method(&run->network, &run->config, run->model);
}

static const char *init_name(const bppsa_train_run *run) {
  const char *chosen = bppsa_cli_value(run->cli, BPPSA_OPTION_INIT)->text; /* NULL: there is no choice */
  return run->weights != NULL ? "from weights" : chosen != NULL ? chosen : "default";
}

/* "shuffled", "data", or the path of --order. */
static const char *order_name(const bppsa_train_run *run) {
  return run->train.order.kind == BPPSA_ORDER_GIVEN  ? run->train.order.where
         : run->train.order.kind == BPPSA_ORDER_DATA ? "data"
                                                     : "shuffled";
}

/* ---- JSON rows ---- */

static json_t *record_json(const bppsa_train_record *record) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_integer(object, "step", record->step);
  ok = ok && bppsa_json_put_integer(object, "epoch", record->epoch);
  ok = ok && bppsa_json_put_real(object, "loss", record->loss);
  ok = ok && bppsa_json_put_real(object, "accuracy", record->accuracy);
  ok = ok && bppsa_json_put_real(object, "grad_norm", record->grad_norm);
  ok = ok && bppsa_json_put_real(object, "lr", record->lr);
  ok = ok && bppsa_json_put_real(object, "forward_s", record->forward_s);
  ok = ok && bppsa_json_put_real(object, "backward_s", record->backward_s);
  ok = ok && bppsa_json_put_real(object, "update_s", record->update_s);
  ok = ok && bppsa_json_put_real(object, "samples_per_s", record->samples_per_s);
  ok = ok && bppsa_json_put_integer(object, "redone", record->redone);
  if (record->has_validation) {
    ok = ok && bppsa_json_put_real(object, "validation_loss", record->validation_loss);
    ok = ok && bppsa_json_put_real(object, "validation_accuracy", record->validation_accuracy);
  }
  return bppsa_json_finish(object, ok);
}

static bppsa_status add_row(bppsa_train_run *run, const bppsa_train_record *record) {
  if (run->rows != NULL && json_array_append_new(run->rows, record_json(record)) != 0) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "JSON document: out of memory, expected room for the results");
  }
  return BPPSA_OK;
}

/* ---- while it runs ---- */

enum { SHARE_TEXT = 16 };

/* Four digits of an accuracy; "-" where there is none. Returns text. */
static const char *share_text(double share, char text[SHARE_TEXT]) {
  snprintf(text, SHARE_TEXT, isnan(share) ? "-" : "%.4f", share);
  return text;
}

static bppsa_status print_record(bppsa_train_run *run, const bppsa_train_record *record, int64_t steps) {
  const double milliseconds = steps > 0 ? 1e3 * (record->forward_s + record->backward_s + record->update_s) / (double)steps : 0;
  const int64_t count = run->train.epochs > 0 ? record->epoch : record->step;
  char share[SHARE_TEXT];
  bppsa_progress_clear(&run->line);
  BPPSA_TRY(bppsa_cli_print(run->cli, "%9" PRId64 "  %9.6f  %8s", count, record->loss, share_text(record->accuracy, share)));
  if (run->split.validation > 0 && run->train.epochs > 0) {
    BPPSA_TRY(
        bppsa_cli_print(run->cli, "  %15.6f  %19s", record->validation_loss, share_text(record->validation_accuracy, share)));
  }
  BPPSA_TRY(bppsa_cli_print(run->cli, "  %9.4f  %7.3f  %9.0f\n", record->grad_norm, milliseconds, record->samples_per_s));
  return bppsa_cli_flush(run->cli->out);
}

static bppsa_status on_step(void *context, const bppsa_train_record *record) {
  bppsa_train_run *run = context;
  const int64_t batch = run->train.batch, steps = (run->epoch_samples + batch - 1) / batch, position = (record->step - 1) % steps;
  const int64_t count = position + 1 < steps ? batch : run->epoch_samples - position * batch;
  run->samples += count;
  run->seconds += (double)count / record->samples_per_s;
  if (run->train.iterations == 0) {
    return BPPSA_OK;
  }
  if (run->cli->json) {
    return add_row(run, record);
  }
  const bool due = record->step == 1 || record->step == run->train.iterations || record->step % run->every == 0;
  return due ? print_record(run, record, 1) : BPPSA_OK;
}

static bppsa_status on_epoch(void *context, const bppsa_train_record *record) {
  bppsa_train_run *run = context;
  const int64_t steps = record->step - run->epoch.step;
  run->epoch = *record;
  if (run->train.iterations > 0) {
    return BPPSA_OK;
  }
  return run->cli->json ? add_row(run, record) : print_record(run, record, steps);
}

static void progress(void *context, const bppsa_progress *p) {
  bppsa_train_run *run = context;
  if (p->step < p->total_steps && bppsa_progress_due(&run->line)) {
    char left[32];
    bppsa_progress_show(&run->line, "step %" PRId64 " of %" PRId64 ", epoch %" PRId64 ", loss %.4f, %.2f ms a step, %s left",
                        p->step, p->total_steps, p->epoch, p->loss, 1e3 * p->elapsed_s / (double)p->done,
                        bppsa_progress_time(p->eta_s, left, sizeof left));
  }
}

/* ---- for people ---- */

static bppsa_status print_header(bppsa_train_run *run, const bppsa_train_start *start) {
  const bppsa_recurrent_config *c = &run->config;
  char text[BPPSA_SETUP_METHOD_TEXT], network[BPPSA_NETWORK_TEXT], update[BPPSA_OPTIMIZER_TEXT], loss[BPPSA_OBJECTIVE_TEXT];
  const bppsa_gradient_method method = method_of(run);
  bppsa_cli *cli = run->cli;
  BPPSA_TRY(bppsa_cli_print(cli, "model      %s\n", bppsa_network_describe(&run->network, c, network, sizeof network)));
  BPPSA_TRY(bppsa_cli_print(cli, "weights    %" PRId64 " parameters, %s, init %s, seed %" PRIu64 "\n",
                            parameter_total(run->model), bppsa_dtype_name(c->dtype), init_name(run), run->train.seed));
  BPPSA_TRY(bppsa_cli_print(cli, "data       %s: %" PRId64 " samples to train on, %" PRId64 " held out, order %s\n",
                            run->dataset->ops->name, run->split.train, run->split.validation, order_name(run)));
  BPPSA_TRY(bppsa_cli_print(cli, "loss       %s\n", bppsa_objective_text(&run->objective, c->loss_all, loss, sizeof loss)));
  BPPSA_TRY(bppsa_cli_print(cli, "update     %s\n", bppsa_train_optimizer_text(&run->train, update, sizeof update)));
  BPPSA_TRY(bppsa_cli_print(cli, "gradients  %s\n", bppsa_setup_method(run->chosen, &method, text, sizeof text)));
  if (run->network.kind->convolutional && method.backward == BPPSA_BACKWARD_SCAN) {
    BPPSA_TRY(bppsa_cli_print(cli, "plan       made in %.3g s\n", run->plan_s));
  }
  BPPSA_TRY(bppsa_cli_print(cli, "machine    %s, %d threads, %s\n", bppsa_device_get_name(run->device),
                            (int)bppsa_device_get_threads(run->device), bppsa_device_get_hardware(run->device)));
  if (start->resumed) {
    BPPSA_TRY(bppsa_cli_print(cli, "resumed    after step %" PRId64 ", from %s\n", start->step, run->train.checkpoint));
  }
  BPPSA_TRY(bppsa_cli_print(cli, "\n"));
  if (run->train.epochs == 0 && run->train.iterations == 0) {
    return BPPSA_OK;
  }
  const bool validation = run->split.validation > 0 && run->train.epochs > 0;
  BPPSA_TRY(bppsa_cli_print(cli, "%9s  %9s  %8s%s  %9s  %7s  %9s\n", run->train.epochs > 0 ? "epoch" : "iteration", "loss",
                            "accuracy", validation ? "  validation loss  validation accuracy" : "", "grad norm", "ms/iter",
                            "samples/s"));
  return bppsa_cli_flush(cli->out);
}

/* The header (people only), and the report's fields. */
static bppsa_status started(void *context, const bppsa_train_start *start) {
  bppsa_train_run *run = context;
  run->epoch = start->epoch;
  if (start->notice[0] != '\0') {
    fprintf(run->cli->err, "bppsa: note: %s\n", start->notice);
  }
  run->line = bppsa_progress_start(run->cli->err);
  run->every = run->train.iterations / LINES > 0 ? run->train.iterations / LINES : 1;
  if (!run->cli->json) {
    return print_header(run, start);
  }
  bppsa_json_start();
  if (run->train.iterations > ROW_LIMIT) {
    return BPPSA_OK;
  }
  run->rows = json_array();
  return run->rows != NULL ? BPPSA_OK
                           : bppsa_fail(BPPSA_ERR_MEMORY, "JSON document: out of memory, expected room for the results");
}

bppsa_train_callbacks bppsa_train_report_callbacks(bppsa_train_run *run) {
  return (bppsa_train_callbacks){
      .context = run, .on_step = on_step, .on_epoch = on_epoch, .progress = progress, .started = started};
}

/* One step's part of a sum over this call's steps. */
static double per_step(const bppsa_train_result *r) {
  return r->steps > r->resumed ? 1 / (double)(r->steps - r->resumed) : 0.0;
}

/* Loss and accuracy of the run's end: the last epoch's means, as far as it came, or the last step's where the run goes by
 * iterations. */
static bppsa_train_record final_record(const bppsa_train_run *run) {
  const bppsa_train_record *epoch = run->result.stopped ? &run->result.partial : &run->epoch;
  bppsa_train_record record = run->train.epochs > 0 ? *epoch : run->result.last;
  record.has_validation = run->result.last.has_validation;
  record.validation_loss = run->result.last.validation_loss;
  record.validation_accuracy = run->result.last.validation_accuracy;
  return record;
}

static bppsa_status print_summary(bppsa_train_run *run) {
  const bppsa_train_result *r = &run->result;
  if (r->steps == 0) {
    return bppsa_cli_print(run->cli, "no step taken, the weights are as they were initialised or read\n");
  }
  const double ms = 1e3 * per_step(r);
  const double other = run->seconds - r->forward_s - r->backward_s - r->update_s;
  const bppsa_train_record last = final_record(run);
  char share[SHARE_TEXT];
  BPPSA_TRY(bppsa_cli_print(run->cli, "\n%-22s %10s\n%-22s %10.3f\n%-22s %10.3f\n%-22s %10.3f\n%-22s %10.3f\n%-22s %10.3f\n",
                            "milliseconds", "iteration", "forward", ms * r->forward_s, "backward", ms * r->backward_s, "update",
                            ms * r->update_s, "batch and loss", ms * (other > 0 ? other : 0), "all", ms * run->seconds));
  BPPSA_TRY(bppsa_cli_print(run->cli, "\n%" PRId64 " iterations in %.2f s, %.0f samples/s\n", r->steps - r->resumed, r->seconds,
                            run->seconds > 0 ? (double)run->samples / run->seconds : 0.0));
  BPPSA_TRY(bppsa_cli_print(run->cli, "%s loss %.6f, accuracy %s", r->stopped ? "interrupted:" : "final", last.loss,
                            share_text(last.accuracy, share)));
  if (last.has_validation) {
    BPPSA_TRY(bppsa_cli_print(run->cli, "; validation loss %.6f, accuracy %s", last.validation_loss,
                              share_text(last.validation_accuracy, share)));
  }
  BPPSA_TRY(bppsa_cli_print(run->cli, "\n"));
  if (r->redone > 0) {
    BPPSA_TRY(bppsa_cli_print(run->cli, "%" PRId64 " products of the scan were useless (cancellation) and redone step by step\n",
                              r->redone));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_train_report_print(bppsa_train_run *run) {
  BPPSA_TRY(print_summary(run));
  const bppsa_option_value *saved = bppsa_cli_value(run->cli, BPPSA_OPTION_SAVE_WEIGHTS);
  return saved->given ? bppsa_cli_print(run->cli, "weights written to %s\n", saved->text) : BPPSA_OK;
}

/* ---- the document ---- */

static json_t *config_json(const bppsa_train_run *run) {
  const bppsa_recurrent_config *c = &run->config;
  const bppsa_train_config *t = &run->train;
  const bppsa_gradient_method method = method_of(run);
  char identity[20];
  snprintf(identity, sizeof identity, "%016" PRIx64, run->dataset->identity);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_network_json(&run->network, c, object);
  ok = ok && bppsa_objective_json(object, &run->objective, c->loss_all);
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(c->dtype));
  ok = ok && bppsa_json_put_text(object, "init", init_name(run));
  ok = ok && bppsa_json_put_text(object, "data", run->dataset->ops->name);
  ok = ok && bppsa_json_put_text(object, "data_identity", identity);
  ok = ok && bppsa_json_put_integer(object, "samples", run->dataset->samples);
  ok = ok && bppsa_json_put_real(object, "validation", t->validation);
  ok = ok && bppsa_json_put_text(object, "order", order_name(run));
  ok = ok && bppsa_json_put(object, "epochs", t->epochs > 0 ? json_integer(t->epochs) : json_null());
  ok = ok && bppsa_json_put(object, "iterations", t->epochs > 0 ? json_null() : json_integer(t->iterations));
  ok = ok && bppsa_setup_method_json(object, &method, run->chosen);
  ok = ok && bppsa_train_optimizer_json(object, t);
  ok = ok && bppsa_json_put(object, "clip_norm", t->clip_norm > 0 ? bppsa_json_real(t->clip_norm) : json_null());
  ok = ok && bppsa_json_put_integer(object, "seed", (int64_t)t->seed);
  ok = ok && bppsa_json_put_text(object, "device_name", bppsa_device_get_name(run->device));
  ok = ok && bppsa_json_put_text(object, "hardware", bppsa_device_get_hardware(run->device));
  ok = ok && bppsa_json_put_integer(object, "threads", bppsa_device_get_threads(run->device));
  return bppsa_json_finish(object, ok);
}

/* What the run is: the document's first members, and the log's first line. */
static bool put_run(json_t *object, const bppsa_train_run *run) {
  return bppsa_json_put_text(object, "model", run->network.kind->name) && bppsa_provenance_json(object, run->cli) &&
         bppsa_json_put_integer(object, "parameters", parameter_total(run->model)) &&
         bppsa_json_put(object, "config", config_json(run));
}

bppsa_status bppsa_train_report_header(const bppsa_train_run *run, char **text) {
  bppsa_json_start();
  json_t *object = json_object();
  return bppsa_cli_render(bppsa_json_finish(object, object != NULL && put_run(object, run)), text);
}

static json_t *timing_json(const bppsa_train_run *run) {
  const bppsa_train_result *r = &run->result;
  const double share = per_step(r);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_real(object, "forward_s", share * r->forward_s);
  ok = ok && bppsa_json_put_real(object, "backward_s", share * r->backward_s);
  ok = ok && bppsa_json_put_real(object, "update_s", share * r->update_s);
  ok = ok && bppsa_json_put_real(object, "iteration_s", share * run->seconds);
  ok = ok && bppsa_json_put_real(object, "samples_per_s", run->seconds > 0 ? (double)run->samples / run->seconds : 0.0);
  ok = ok && bppsa_json_put_real(object, "total_s", r->seconds);
  if (run->network.kind->convolutional) {
    ok = ok && bppsa_json_put_real(object, "plan_s", run->plan_s);
  }
  return bppsa_json_finish(object, ok);
}

static json_t *final_json(const bppsa_train_run *run) {
  const bppsa_train_record last = final_record(run);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_real(object, "loss", last.loss);
  ok = ok && bppsa_json_put_real(object, "accuracy", last.accuracy);
  if (last.has_validation) {
    ok = ok && bppsa_json_put_real(object, "validation_loss", last.validation_loss);
    ok = ok && bppsa_json_put_real(object, "validation_accuracy", last.validation_accuracy);
  }
  return bppsa_json_finish(object, ok);
}

json_t *bppsa_train_report_json(bppsa_train_run *run) {
  json_t *object = json_object();
  bool ok = object != NULL && put_run(object, run);
  ok = ok && bppsa_json_put_integer(object, "steps_done", run->result.steps);
  ok = ok && bppsa_json_put_integer(object, "epochs", run->result.epochs);
  ok = ok && bppsa_json_put_integer(object, "resumed", run->result.resumed);
  ok = ok && bppsa_json_put_integer(object, "redone", run->result.redone);
  ok = ok && bppsa_json_put_bool(object, "interrupted", run->result.stopped);
  ok = ok && bppsa_json_put(object, "timing", timing_json(run));
  ok = ok && bppsa_json_put(object, "final", final_json(run));
  if (run->rows != NULL) {
    ok = ok && bppsa_json_put(object, "rows", json_incref(run->rows));
  }
  return bppsa_json_finish(object, ok);
}

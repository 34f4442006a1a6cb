#include "runs/train_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/decimal.h"
#include "train/data/pack.h"
#include "train/update.h"

static int64_t parameter_total(const bppsa_model *model) {
  int64_t total = 0;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    total += model->parameters[i].statistic ? 0 : bppsa_view_count(&model->parameters[i].value);
  }
  return total;
}

static bppsa_gradient_method method_of(const bppsa_train_run *run) {
  return bppsa_rank_network_method(&run->network, &run->config, &run->on, run->model);
}

/* Returns the network as reports show it: with the batch of all ranks together. */
static bppsa_network_config shown_config(const bppsa_train_run *run) {
  bppsa_network_config config = run->config;
  config.batch = run->train.batch;
  if (run->dataset->windows > 1) { /* a pass has the steps of several batches */
    config.steps.seq_len = run->dataset->seq_len;
    config.steps.lengths = run->dataset->lengths != NULL;
    config.steps.resets = run->dataset->resets != NULL;
  }
  return config;
}

/* Returns "shuffled", "data", or the path of a given order. */
static const char *order_name(const bppsa_train_run *run) {
  return run->train.order.kind == BPPSA_ORDER_GIVEN  ? run->train.order.where
         : run->train.order.kind == BPPSA_ORDER_DATA ? "data"
                                                     : "shuffled";
}

/* ---- rows ---- */

static json_t *errors_json(int64_t count, const double *errors) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int64_t i = 0; ok && i < count; ++i) {
    ok = json_array_append_new(array, bppsa_json_real(errors[i])) == 0;
  }
  return bppsa_json_finish(array, ok);
}

/* Puts what speculative passes did: the members "forward" and "backward", of passes that there were. */
static bool put_passes(json_t *object, const double account[BPPSA_PASS_KINDS][BPPSA_ACCOUNT_NUMBERS]) {
  const bppsa_forward_stats forward = bppsa_forward_stats_from(account[BPPSA_PASS_FORWARD]);
  const bppsa_backward_stats backward = bppsa_backward_stats_from(account[BPPSA_PASS_BACKWARD]);
  const bool ok =
      forward.passes == 0 || bppsa_json_put(object, bppsa_pass_name(BPPSA_PASS_FORWARD), bppsa_forward_stats_json(&forward));
  return ok && (backward.passes == 0 ||
                bppsa_json_put(object, bppsa_pass_name(BPPSA_PASS_BACKWARD), bppsa_backward_stats_json(&backward)));
}

/* The JSON object of certificates: of the largest, with its step and how many there were. */
static json_t *certificate_json(const bppsa_train_certificate *c) {
  json_t *object = bppsa_certificate_json(&c->largest);
  bool ok = object != NULL && bppsa_json_put_integer(object, "passes", c->passes);
  return bppsa_json_finish(object, ok && bppsa_json_put_integer(object, "step", c->step));
}

json_t *bppsa_train_row_json(const bppsa_train_record *record) {
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
  ok = ok && put_passes(object, record->account);
  if (record->has_validation) {
    ok = ok && bppsa_json_put_real(object, "validation_loss", record->validation_loss);
    ok = ok && bppsa_json_put_real(object, "validation_accuracy", record->validation_accuracy);
  }
  const bppsa_weight_errors *errors = &record->weight_errors;
  if (errors->ahead > 0) {
    ok = ok && bppsa_json_put(object, "stale_rmse", errors_json(errors->ahead, errors->stale));
    ok = ok && bppsa_json_put(object, "predicted_rmse", errors_json(errors->ahead, errors->predicted));
  }
  if (record->certificate.passes > 0) {
    ok = ok && bppsa_json_put(object, "certificate", certificate_json(&record->certificate));
  }
  return bppsa_json_finish(object, ok);
}

enum { SHARE_TEXT = 16 };

/* Writes four digits of an accuracy, or "-" if targets are real numbers. Returns text. */
static const char *share_text(double share, char text[SHARE_TEXT]) {
  bppsa_print(text, SHARE_TEXT, isnan(share) ? "-" : "%.4f", share);
  return text;
}

/* What the table calls the number of a certificate: in f64 the pass's own rounding is not in it. */
static const char *certificate_title(const bppsa_train_run *run) {
  return run->config.dtype == BPPSA_F32 ? "gradient error" : "gradient - BP's";
}

void bppsa_train_row_text(const bppsa_train_run *run, const bppsa_train_record *record, int64_t steps, bppsa_text *text) {
  const double milliseconds = steps > 0 ? 1e3 * (record->forward_s + record->backward_s + record->update_s) / (double)steps : 0;
  const int64_t count = run->train.epochs > 0 ? record->epoch : record->step;
  char share[SHARE_TEXT];
  bppsa_text_add(text, "%9" PRId64 "  %9.6f  %8s", count, record->loss, share_text(record->accuracy, share));
  if (run->split.validation > 0 && run->train.epochs > 0) {
    bppsa_text_add(text, "  %15.6f  %19s", record->validation_loss, share_text(record->validation_accuracy, share));
  }
  bppsa_text_add(text, "  %9.4f  %7.3f  %9.0f", record->grad_norm, milliseconds, record->samples_per_s);
  if (run->train.certify_every > 0) {
    char error[SHARE_TEXT];
    (void)bppsa_print(error, sizeof error, record->certificate.passes > 0 ? "%.2g" : "-", record->certificate.largest.error);
    bppsa_text_add(text, "  %*s", (int)strlen(certificate_title(run)), error);
  }
  bppsa_text_add(text, "\n");
}

/* ---- for people ---- */

static bool same_bits(const bppsa_train_run *run) {
  if (run->pipeline != NULL) {
    return bppsa_rank_schedule_synchronous(&run->schedule);
  }
  if (run->layer_train != NULL) {
    return false;
  }
  return bppsa_data_parallel_same_bits(&run->on.parallel, (int32_t)run->on.split.batch);
}

static void ranks_text(const bppsa_train_run *run, bppsa_text *text) {
  char split[BPPSA_RANK_SPLIT_TEXT];
  bppsa_text_add(text, "ranks      %d, %s, split ", bppsa_comm_size(run->on.comm),
                 bppsa_comm_transport_name(bppsa_comm_get_transport(bppsa_rank_network_among(&run->on))));
  if (run->pipeline != NULL) {
    bppsa_rank_schedule_text(&run->schedule, text);
  } else if (run->layer_train != NULL) {
    bppsa_rank_layers_text(&run->layers, bppsa_comm_size(run->on.comm), text);
  } else {
    bppsa_text_add(text, "%s", bppsa_rank_split_text(&run->on.split, split, sizeof split));
  }
  bppsa_text_add(text, ", gradients added up by %s%s\n", run->reduction,
                 same_bits(run)          ? ""
                 : run->pipeline != NULL ? ": the bits depend on the schedule"
                                         : ": the bits depend on the number of ranks");
  if (run->on.parallel.reverse_first != 0) {
    bppsa_text_add(text, "order      %s\n", bppsa_data_parallel_order(run->ranks));
  }
}

/* Writes the plans of speculative passes. */
static void add_plans(const bppsa_train_run *run, bppsa_text *text) {
  for (int k = 0; k < BPPSA_PASS_KINDS; ++k) {
    const bppsa_model_account *account = bppsa_model_get_account(run->model, (bppsa_pass)k);
    char words[BPPSA_ACCOUNT_PLAN];
    if (account != NULL) {
      bppsa_text_add(text, "%-10s %s\n", bppsa_pass_name((bppsa_pass)k), account->plan(run->model, words, sizeof words));
    }
  }
}

void bppsa_train_header_text(const bppsa_train_run *run, const bppsa_train_start *start, bppsa_text *text) {
  const bppsa_network_config c = shown_config(run);
  char words[BPPSA_CHOSEN_TEXT], network[BPPSA_NETWORK_TEXT], update[BPPSA_UPDATE_TEXT], loss[BPPSA_OBJECTIVE_TEXT];
  const bppsa_gradient_method method = method_of(run);
  bppsa_text_add(text, "model      %s\n", bppsa_network_describe(&run->network, &c, network, sizeof network));
  bppsa_text_add(text, "weights    %" PRId64 " parameters, %s, init %s, seed %" PRIu64 "\n", parameter_total(run->model),
                 bppsa_dtype_name(c.dtype), run->init, run->train.seed);
  bppsa_text_add(text, "data       %s: %" PRId64 " %s to train on, %" PRId64 " held out, order %s%s\n", run->dataset->ops->name,
                 run->split.train, run->dataset->packing != NULL ? "rows" : "samples", run->split.validation, order_name(run),
                 run->dataset->streams ? ", batches continue the ones before" : "");
  if (run->dataset->windows > 1) {
    bppsa_text_add(text, "streams    gradients go back through %" PRId64 " batches, the present one included\n",
                   run->dataset->windows);
  }
  bppsa_packing_lines(run->dataset, &run->pack_times, "packing    ", text);
  bppsa_text_add(text, "loss       %s\n",
                 bppsa_objective_text(&run->dataset->objective, bppsa_pack_loss_all(run->dataset, &c), loss, sizeof loss));
  bppsa_text_add(text, "update     %s\n", bppsa_train_update_text(&run->train, update, sizeof update));
  add_plans(run, text);
  bppsa_text_add(text, "gradients  %s\n", bppsa_chosen_method_text(run->chosen, &method, words, sizeof words));
  if (run->network.kind->family->plans && method.backward == BPPSA_BACKWARD_SCAN) {
    bppsa_text_add(text, "plan       made in %.3g s\n", run->plan_s);
  }
  bppsa_text_add(text, "machine    %s, %d threads, %s\n", bppsa_device_get_name(run->device),
                 (int)bppsa_device_get_threads(run->device), bppsa_device_get_hardware(run->device));
  if (run->on.comm != NULL) {
    ranks_text(run, text);
  }
  if (start->resumed) {
    bppsa_text_add(text, "resumed    after step %" PRId64 ", from %s\n", start->step, run->train.checkpoint);
  }
  bppsa_text_add(text, "\n");
  if (run->train.epochs > 0 || run->train.iterations > 0) {
    const bool validation = run->split.validation > 0 && run->train.epochs > 0;
    const bool certified = run->train.certify_every > 0;
    bppsa_text_add(text, "%9s  %9s  %8s%s  %9s  %7s  %9s%s%s\n", run->train.epochs > 0 ? "epoch" : "iteration", "loss",
                   "accuracy", validation ? "  validation loss  validation accuracy" : "", "grad norm", "ms/iter", "samples/s",
                   certified ? "  " : "", certified ? certificate_title(run) : "");
  }
}

/* Divides a sum over this call's steps by their number. */
static double per_step(const bppsa_train_result *r) {
  return r->steps > r->resumed ? 1 / (double)(r->steps - r->resumed) : 0.0;
}

/* Returns loss and accuracy at the end of the run: the means of the last epoch, even an incomplete one; the last step's if the
 * run counts iterations. */
static bppsa_train_record final_record(const bppsa_train_run *run) {
  const bppsa_train_record *epoch = run->result.stopped ? &run->result.partial : &run->epoch;
  bppsa_train_record record = run->train.epochs > 0 ? *epoch : run->result.last;
  record.has_validation = run->result.last.has_validation;
  record.validation_loss = run->result.last.validation_loss;
  record.validation_accuracy = run->result.last.validation_accuracy;
  return record;
}

/* Says what the certificates of this call's steps have found. */
static void certificate_text(const bppsa_train_run *run, bppsa_text *text) {
  const bppsa_train_certificate *c = &run->result.certificate;
  char words[BPPSA_CERTIFICATE_TEXT];
  if (c->passes == 0) {
    bppsa_text_add(text, "no certificate: none of these steps is a multiple of %" PRId64 "\n", run->train.certify_every);
    return;
  }
  bppsa_text_add(text, "certificates of %" PRId64 " passes, made in %.2f s; the largest, of step %" PRId64 ": %s\n", c->passes,
                 c->seconds, c->step, bppsa_certificate_text(&c->largest, words, sizeof words));
}

void bppsa_train_summary_text(const bppsa_train_run *run, bppsa_text *text) {
  const bppsa_train_result *r = &run->result;
  if (r->steps == 0) {
    bppsa_text_add(text, "no step taken, the weights are as they were initialised or read\n");
    return;
  }
  const double ms = 1e3 * per_step(r), other = run->seconds - r->forward_s - r->backward_s - r->update_s;
  const bppsa_train_record last = final_record(run);
  char share[SHARE_TEXT];
  bppsa_text_add(text, "\n%-22s %10s\n%-22s %10.3f\n%-22s %10.3f\n%-22s %10.3f\n%-22s %10.3f\n%-22s %10.3f\n", "milliseconds",
                 "iteration", "forward", ms * r->forward_s, "backward", ms * r->backward_s, "update", ms * r->update_s,
                 "batch and loss", ms * (other > 0 ? other : 0), "all", ms * run->seconds);
  bppsa_text_add(text, "\n%" PRId64 " iterations in %.2f s, %.0f samples/s\n", r->steps - r->resumed, r->seconds,
                 run->seconds > 0 ? (double)run->samples / run->seconds : 0.0);
  bppsa_text_add(text, "%s loss %.6f, accuracy %s", r->stopped ? "interrupted:" : "final", last.loss,
                 share_text(last.accuracy, share));
  if (last.has_validation) {
    bppsa_text_add(text, "; validation loss %.6f, accuracy %s", last.validation_loss,
                   share_text(last.validation_accuracy, share));
  }
  bppsa_text_add(text, "\n");
  const bppsa_weight_errors *errors = &r->last.weight_errors;
  for (int64_t i = 0; i < errors->ahead; ++i) {
    bppsa_text_add(text, "weights %" PRId64 " update%s ahead: RMSE predicted %.3g, stale %.3g\n", i + 1, i > 0 ? "s" : "",
                   errors->predicted[i], errors->stale[i]);
  }
  if (run->on.comm != NULL && run->on.parallel.reverse_first < 0) {
    bppsa_text_add(text, "%s\n", bppsa_data_parallel_order(run->ranks));
  }
  const bppsa_forward_stats forward = bppsa_forward_stats_from(r->account[BPPSA_PASS_FORWARD]);
  const bppsa_backward_stats backward = bppsa_backward_stats_from(r->account[BPPSA_PASS_BACKWARD]);
  char words[BPPSA_FORWARD_TEXT], more[BPPSA_BACKWARD_TEXT];
  if (forward.passes > 0) {
    bppsa_text_add(text, "forward passes in parallel: %s\n", bppsa_forward_stats_text(&forward, words, sizeof words));
  }
  if (backward.passes > 0) {
    bppsa_text_add(text, "backward passes in parallel: %s\n", bppsa_backward_stats_text(&backward, more, sizeof more));
  }
  if (run->train.certify_every > 0) {
    certificate_text(run, text);
  }
  if (r->redone > 0) {
    bppsa_text_add(text, "%" PRId64 " products of the scan were useless (cancellation) and redone step by step\n", r->redone);
  }
}

/* ---- the document ---- */

static json_t *config_json(const bppsa_train_run *run) {
  const bppsa_network_config c = shown_config(run);
  const bppsa_train_config *t = &run->train;
  const bppsa_gradient_method method = method_of(run);
  char identity[20];
  snprintf(identity, sizeof identity, "%016" PRIx64, run->dataset->identity);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_network_json(&run->network, &c, object);
  ok = ok && bppsa_objective_json(object, &run->dataset->objective, bppsa_pack_loss_all(run->dataset, &c));
  if (run->dataset->packing != NULL) {
    ok = ok && bppsa_json_put(object, "packing", bppsa_packing_json(run->dataset->packing));
  }
  if (run->pack_times.samples_s > 0) {
    ok = ok && bppsa_json_put_real(object, "pack_rows_s", run->pack_times.rows_s);
    ok = ok && bppsa_json_put_real(object, "pack_samples_s", run->pack_times.samples_s);
  }
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(c.dtype));
  ok = ok && bppsa_json_put_text(object, "init", run->init);
  ok = ok && bppsa_json_put_text(object, "data", run->dataset->ops->name);
  ok = ok && bppsa_json_put_text(object, "data_identity", identity);
  ok = ok && bppsa_json_put_integer(object, "samples", run->dataset->samples);
  ok = ok && bppsa_json_put_real(object, "validation", t->validation);
  ok = ok && bppsa_json_put_text(object, "order", order_name(run));
  if (run->dataset->streams) {
    ok = ok && bppsa_json_put(object, "stateful", json_true());
    ok = ok && bppsa_json_put_integer(object, "bptt", run->dataset->windows > 1 ? run->dataset->windows : 1);
  }
  ok = ok && bppsa_json_put(object, "epochs", t->epochs > 0 ? json_integer(t->epochs) : json_null());
  ok = ok && bppsa_json_put(object, "iterations", t->epochs > 0 ? json_null() : json_integer(t->iterations));
  ok = ok && bppsa_chosen_method_json(object, &method, run->chosen);
  const bppsa_forward_plan *forward = bppsa_forward_plan_of(run->model);
  if (forward != NULL && forward->speculative) {
    ok = ok && bppsa_json_put(object, "forward", bppsa_forward_plan_json(forward));
  }
  const bppsa_backward_plan *backward = bppsa_backward_plan_of(run->model);
  if (backward != NULL) { /* "backward" is the method */
    ok = ok && bppsa_json_put(object, "speculation", bppsa_backward_plan_json(backward));
  }
  ok = ok && bppsa_train_update_json(object, t);
  ok = ok && bppsa_json_put(object, "clip_norm", t->clip_norm > 0 ? bppsa_json_real(t->clip_norm) : json_null());
  if (t->certify_every > 0) {
    ok = ok && bppsa_json_put_integer(object, "certify_every", t->certify_every);
  }
  ok = ok && bppsa_json_put_integer(object, "seed", (int64_t)t->seed);
  ok = ok && bppsa_json_put_text(object, "device_name", bppsa_device_get_name(run->device));
  ok = ok && bppsa_json_put_text(object, "hardware", bppsa_device_get_hardware(run->device));
  ok = ok && bppsa_json_put_integer(object, "threads", bppsa_device_get_threads(run->device));
  return bppsa_json_finish(object, ok);
}

static json_t *ranks_json(const bppsa_train_run *run) {
  char split[BPPSA_RANK_SPLIT_TEXT];
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_integer(object, "ranks", bppsa_comm_size(run->on.comm));
  ok = ok && bppsa_json_put_text(object, "transport",
                                 bppsa_comm_transport_name(bppsa_comm_get_transport(bppsa_rank_network_among(&run->on))));
  ok = ok && bppsa_json_put_text(object, "reduction", run->reduction);
  ok = ok && bppsa_json_put_bool(object, "same_bits", same_bits(run));
  if (run->pipeline != NULL) {
    return bppsa_json_finish(object, ok && bppsa_rank_schedule_put(object, &run->schedule));
  }
  if (run->layer_train != NULL) {
    const int64_t steps = run->result.steps - run->result.resumed;
    return bppsa_json_finish(object, ok && bppsa_rank_layers_put(object, &run->layers, run->layer_train, steps));
  }
  ok = ok && bppsa_json_put_text(object, "split", bppsa_rank_split_text(&run->on.split, split, sizeof split));
  ok = ok && bppsa_json_put_integer(object, "buckets", bppsa_data_parallel_buckets(run->ranks));
  ok = ok && bppsa_json_put_integer(object, "reverse_first", bppsa_data_parallel_reverse_first(run->ranks));
  ok = ok && bppsa_json_put_integer(object, "reverse_first_most", bppsa_data_parallel_reverse_first_most(run->ranks));
  return bppsa_json_finish(object, ok);
}

bool bppsa_train_run_put(json_t *object, const bppsa_train_run *run) {
  return bppsa_json_put_integer(object, "parameters", parameter_total(run->model)) &&
         bppsa_json_put(object, "config", config_json(run)) &&
         (run->on.comm == NULL || bppsa_json_put(object, "ranks", ranks_json(run)));
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
  if (run->network.kind->family->plans) {
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

bool bppsa_train_result_put(json_t *object, const bppsa_train_run *run) {
  bool ok = bppsa_json_put_integer(object, "steps_done", run->result.steps);
  ok = ok && bppsa_json_put_integer(object, "epochs", run->result.epochs);
  ok = ok && bppsa_json_put_integer(object, "resumed", run->result.resumed);
  ok = ok && bppsa_json_put_integer(object, "redone", run->result.redone);
  ok = ok && put_passes(object, run->result.account);
  if (run->result.certificate.passes > 0) {
    ok = ok && bppsa_json_put(object, "certificate", certificate_json(&run->result.certificate));
  }
  ok = ok && bppsa_json_put_bool(object, "interrupted", run->result.stopped);
  ok = ok && bppsa_json_put(object, "timing", timing_json(run));
  return ok && bppsa_json_put(object, "final", final_json(run));
}

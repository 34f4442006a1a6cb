/* One training step on a CPU, or on ranks that update their own weights; for other models on a GPU it calls step_gpu.c. */
#include <math.h>

#include "train/trainer_internal.h"

/* Forward pass, loss, backward pass. Stops if the loss or the gradient is not finite; run->nonfinite then says what was found. */
static bppsa_status forward_backward(bppsa_training *run, bppsa_train_record *record, bppsa_loss_result *loss) {
  double start = bppsa_now();
  BPPSA_TRY(bppsa_batch_forward(&run->batch));
  record->forward_s = bppsa_now() - start;
  BPPSA_TRY(bppsa_batch_loss(&run->batch, loss));
  record->loss = loss->loss;
  record->accuracy = bppsa_accuracy(loss->correct, loss->rows);
  if (!isfinite(loss->loss)) {
    bppsa_batch_describe_nonfinite(&run->batch, "loss", &run->nonfinite);
    return BPPSA_OK;
  }
  start = bppsa_now();
  BPPSA_TRY(run->model->ops->backward(run->model, &run->batch.dlogits));
  record->backward_s = bppsa_now() - start;
  record->grad_norm = bppsa_gradient_norm(run->model, run->device);
  if (!isfinite(record->grad_norm)) {
    bppsa_batch_describe_nonfinite(&run->batch, "gradient norm", &run->nonfinite);
  }
  return BPPSA_OK;
}

/* The same for ranks, which share the batch. */
static bppsa_status forward_backward_on_ranks(bppsa_training *run, bppsa_train_record *record, bppsa_loss_result *loss) {
  const bppsa_train_ranks *r = run->ranks;
  const int64_t *indices = bppsa_training_indices(run);
  BPPSA_TRY(r->forward_backward(r->context, &run->batch, run->count, indices, record, loss));
  record->grad_norm = r->updates > 0 ? record->grad_norm : bppsa_gradient_norm(run->model, run->device);
  const bool lost = !isfinite(loss->loss);
  if (lost || !isfinite(record->grad_norm)) {
    return r->describe_nonfinite(r->context, &run->batch, run->count, indices, !lost, lost ? "loss" : "gradient norm",
                                 &run->nonfinite);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_step_certify(bppsa_training *run, bppsa_train_record *record) {
  const double start = bppsa_now();
  bppsa_train_certificate *c = &record->certificate;
  const bppsa_status status = bppsa_certify(run->model, &c->largest);
  if (status != BPPSA_OK) {
    return bppsa_fail_prefix(status, "training step %lld", (long long)record->step);
  }
  c->passes = 1;
  c->step = record->step;
  c->seconds = bppsa_now() - start;
  return BPPSA_OK;
}

static void update(bppsa_training *run, bppsa_train_record *record) {
  const double start = bppsa_now();
  if (run->config->clip_norm > 0.0) {
    bppsa_gradient_clip(run->model, run->device, record->grad_norm, run->config->clip_norm);
  }
  bppsa_optimizer_step(run->optimizer, run->device);
  record->update_s = bppsa_now() - start;
  bppsa_nonfinite found;
  if (bppsa_model_parameter_nonfinite(run->model, false, &found)) {
    bppsa_batch_describe(&run->batch, &found, &run->nonfinite);
    bppsa_line_add(&run->nonfinite, " after the update");
  }
}

bppsa_status bppsa_step(bppsa_training *run, bppsa_train_record *record, bppsa_loss_result *loss) {
  if (run->gpu != NULL) {
    return bppsa_step_gpu(run, record, loss);
  }
  BPPSA_TRY((run->ranks != NULL ? forward_backward_on_ranks : forward_backward)(run, record, loss));
  if (run->nonfinite.length == 0 && bppsa_step_is_certified(run, record->step)) {
    BPPSA_TRY(bppsa_step_certify(run, record));
  }
  if (run->nonfinite.length == 0 && !bppsa_training_updated(run)) {
    update(run, record);
  }
  return BPPSA_OK;
}

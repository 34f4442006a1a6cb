/* One training step on a GPU: copies the indices to the GPU; then fill, forward, loss, backward, norm, clip, update; then copies
 * the results back. Ranks compute everything up to the gradients themselves (train/ranks.h), and only the update is queued.
 *
 * The first batch of a size is queued kernel by kernel, so that libraries can do what they do on first use. The second is recorded;
 * from then on a step is one replay and one wait. A step that is certified is queued in two halves: between gradients and update it
 * waits for the certificate.
 */
#include <math.h>

#include "core/base/alloc.h"
#include "core/compute/graph.h"
#include "core/compute/memory.h"
#include "train/optimizer_internal.h"
#include "train/trainer_internal.h"

/* UPDATE_BEGIN is set in certified steps alone: in others the update follows the backward pass at once. */
enum { FORWARD_BEGIN, FORWARD_END, BACKWARD_BEGIN, BACKWARD_END, UPDATE_BEGIN, UPDATE_END, MARKS };
enum { SIZES = 2 }; /* that batches have: that of full ones, and that of the last one of an epoch */

struct bppsa_gpu_steps {
  bppsa_mark *marks[MARKS];
  struct {
    int64_t count; /* samples; 0: unused */
    bppsa_graph *graph;
  } sizes[SIZES];
};

bppsa_status bppsa_gpu_steps_create(const bppsa_device *device, bppsa_gpu_steps **steps) {
  bppsa_gpu_steps *made = bppsa_calloc(1, sizeof *made);
  bppsa_status status = made == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int i = 0; i < MARKS && status == BPPSA_OK; ++i) {
    status = bppsa_mark_create(device, &made->marks[i]);
  }
  if (status != BPPSA_OK) {
    bppsa_gpu_steps_destroy(device, made);
    return status;
  }
  *steps = made;
  return BPPSA_OK;
}

void bppsa_gpu_steps_destroy(const bppsa_device *device, bppsa_gpu_steps *steps) {
  if (steps == NULL) {
    return;
  }
  for (int i = 0; i < MARKS; ++i) {
    bppsa_mark_destroy(device, steps->marks[i]);
  }
  for (int i = 0; i < SIZES; ++i) {
    bppsa_graph_destroy(device, steps->sizes[i].graph);
  }
  bppsa_free(steps);
}

/* ---- queued ---- */

static bppsa_status forward_to_backward(bppsa_training *run) {
  const bppsa_device *device = run->model->device;
  bppsa_mark *const *marks = run->gpu->marks;
  BPPSA_TRY(bppsa_mark_set(device, marks[FORWARD_BEGIN]));
  BPPSA_TRY(bppsa_batch_forward(&run->batch));
  BPPSA_TRY(bppsa_mark_set(device, marks[FORWARD_END]));
  BPPSA_TRY(bppsa_batch_queue_loss(&run->batch));
  BPPSA_TRY(bppsa_mark_set(device, marks[BACKWARD_BEGIN]));
  BPPSA_TRY(run->model->ops->backward(run->model, &run->batch.dlogits));
  return bppsa_mark_set(device, marks[BACKWARD_END]);
}

static bppsa_status queue_gradients(bppsa_training *run) {
  BPPSA_TRY(bppsa_batch_queue_fill(&run->batch));
  return forward_to_backward(run);
}

static bppsa_status queue_update(bppsa_training *run) {
  const bppsa_batch_gpu *g = &run->batch.gpu;
  BPPSA_TRY(bppsa_optimizer_queue(run->optimizer, run->config->clip_norm, &g->device_input->factors, g->device_result));
  BPPSA_TRY(bppsa_mark_set(g->device, run->gpu->marks[UPDATE_END]));
  return bppsa_memory_queue_get(g->device, g->result, g->device_result, sizeof *g->result);
}

/* context: the bppsa_training. */
static bppsa_status queue_step(void *context) {
  BPPSA_TRY(queue_gradients(context));
  return queue_update(context);
}

/* Takes a step whose gradients are certified. */
static bppsa_status run_certified(bppsa_training *run, bppsa_train_record *record) {
  const bppsa_device *device = run->model->device;
  BPPSA_TRY(queue_gradients(run));
  BPPSA_TRY(bppsa_device_wait(device));
  BPPSA_TRY(bppsa_step_certify(run, record));
  BPPSA_TRY(bppsa_mark_set(device, run->gpu->marks[UPDATE_BEGIN]));
  BPPSA_TRY(queue_update(run));
  return bppsa_device_wait(device);
}

static bppsa_status run_step(bppsa_training *run) {
  const bppsa_device *device = run->model->device;
  for (int i = 0; i < SIZES; ++i) {
    if (run->gpu->sizes[i].count == run->batch.count) {
      bppsa_graph **graph = &run->gpu->sizes[i].graph;
      if (*graph == NULL) {
        BPPSA_TRY(bppsa_graph_capture(device, queue_step, run, graph));
      }
      bppsa_batch_tell(&run->batch); /* the recorded passes read it */
      BPPSA_TRY(bppsa_graph_launch(device, *graph));
      return bppsa_device_wait(device);
    }
    if (run->gpu->sizes[i].count == 0) {
      run->gpu->sizes[i].count = run->batch.count;
      break;
    }
  }
  BPPSA_TRY(queue_step(run));
  return bppsa_device_wait(device);
}

/* ---- results ---- */

static bppsa_status seconds(const bppsa_training *run, int first, int second, double *s) {
  return bppsa_mark_seconds(run->model->device, run->gpu->marks[first], run->gpu->marks[second], s);
}

/* Repeats the passes outside the recording: after them the model knows which batch its activations belong to, and can find the
 * value. The parameters have not changed. */
static bppsa_status describe_again(bppsa_training *run, bool backward, const char *otherwise) {
  run->batch.again = true;
  if (backward) {
    BPPSA_TRY(forward_to_backward(run));
    BPPSA_TRY(bppsa_model_pull(run->model, true));
  } else {
    BPPSA_TRY(bppsa_batch_forward(&run->batch));
  }
  BPPSA_TRY(bppsa_device_wait(run->model->device));
  bppsa_batch_describe_nonfinite(&run->batch, otherwise, &run->nonfinite);
  return BPPSA_OK;
}

static bppsa_status describe_parameters(bppsa_training *run) {
  bppsa_nonfinite found = {.what = "parameter", .layer = -1, .step = -1, .sample = -1};
  BPPSA_TRY(bppsa_model_pull(run->model, false));
  (void)bppsa_model_parameter_nonfinite(run->model, false, &found);
  bppsa_batch_describe(&run->batch, &found, &run->nonfinite);
  bppsa_line_add(&run->nonfinite, " after the update");
  return BPPSA_OK;
}

/* Norm, clipping and update, once the gradients of all ranks have been added up. */
static bppsa_status update_on_ranks(bppsa_training *run, double *norm, bool *nonfinite) {
  const bppsa_batch_gpu *g = &run->batch.gpu;
  g->input->factors = bppsa_optimizer_begin(run->optimizer);
  g->result->loss = 0; /* the loss is finite: otherwise nothing would be updated */
  BPPSA_TRY(bppsa_memory_queue_put(g->device, &g->device_input->factors, &g->input->factors, sizeof g->input->factors));
  BPPSA_TRY(bppsa_memory_queue_put(g->device, &g->device_result->loss, &g->result->loss, sizeof g->result->loss));
  BPPSA_TRY(bppsa_optimizer_queue(run->optimizer, run->config->clip_norm, &g->device_input->factors, g->device_result));
  BPPSA_TRY(bppsa_memory_queue_get(g->device, g->result, g->device_result, sizeof *g->result));
  BPPSA_TRY(bppsa_device_wait(g->device));
  *norm = g->result->norm;
  *nonfinite = g->result->nonfinite != 0;
  return BPPSA_OK;
}

static bppsa_status step_on_ranks(bppsa_training *run, bppsa_train_record *record, bppsa_loss_result *loss) {
  const bppsa_train_ranks *r = run->ranks;
  const int64_t *indices = bppsa_training_indices(run);
  bool nonfinite = false;
  BPPSA_TRY(r->forward_backward(r->context, &run->batch, run->count, indices, record, loss));
  const bool lost = !isfinite(loss->loss);
  if (!lost) {
    const double start = bppsa_now();
    BPPSA_TRY(update_on_ranks(run, &record->grad_norm, &nonfinite));
    record->update_s = bppsa_now() - start;
  }
  if (lost || !isfinite(record->grad_norm)) {
    if (!lost) {
      bppsa_optimizer_cancel(run->optimizer);
    }
    return r->describe_nonfinite(r->context, &run->batch, run->count, indices, !lost, lost ? "loss" : "gradient norm",
                                 &run->nonfinite);
  }
  return nonfinite ? describe_parameters(run) : BPPSA_OK;
}

bppsa_status bppsa_step_gpu(bppsa_training *run, bppsa_train_record *record, bppsa_loss_result *loss) {
  const bppsa_gpu_result *found = run->batch.gpu.result;
  if (run->ranks != NULL) {
    return step_on_ranks(run, record, loss);
  }
  run->batch.gpu.input->factors = bppsa_optimizer_begin(run->optimizer);
  const bool certified = bppsa_step_is_certified(run, record->step);
  BPPSA_TRY(certified ? run_certified(run, record) : run_step(run));
  if (!isfinite(found->loss) || !isfinite(found->norm)) {
    record->certificate = (bppsa_train_certificate){0};
  }
  *loss = bppsa_loss_part_found(found);
  record->loss = loss->loss;
  record->accuracy = bppsa_accuracy(loss->correct, loss->rows);
  BPPSA_TRY(seconds(run, FORWARD_BEGIN, FORWARD_END, &record->forward_s));
  if (!isfinite(loss->loss)) {
    bppsa_optimizer_cancel(run->optimizer);
    return describe_again(run, false, "loss");
  }
  record->grad_norm = found->norm;
  BPPSA_TRY(seconds(run, BACKWARD_BEGIN, BACKWARD_END, &record->backward_s));
  if (!isfinite(found->norm)) {
    bppsa_optimizer_cancel(run->optimizer);
    return describe_again(run, true, "gradient norm");
  }
  BPPSA_TRY(seconds(run, certified ? UPDATE_BEGIN : BACKWARD_END, UPDATE_END, &record->update_s));
  return found->nonfinite != 0 ? describe_parameters(run) : BPPSA_OK;
}

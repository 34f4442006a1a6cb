#include "train/batch.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/device_buffer.h"
#include "core/compute/memory.h"

/* The shape of x in a pass of `count` samples; returns the number of extents. */
static int32_t pass_shape(const bppsa_batch *b, int64_t count, int64_t shape[4]) {
  const int32_t ndim = bppsa_dataset_shape(b->dataset, count, shape);
  shape[0] = b->past.windows > 1 ? b->length : shape[0]; /* windows are of sequences */
  return ndim;
}

static bppsa_status create_buffers(bppsa_batch *b, bool gradients) {
  const bppsa_dataset *dataset = b->dataset;
  const int64_t rows = dataset->labels_per_step ? b->length : 1;
  const bool lengths = bppsa_batch_has_lengths(b), resets = bppsa_batch_has_resets(b), weights = bppsa_batch_has_weights(b);
  int64_t x_shape[4];
  const int32_t x_dims = pass_shape(b, b->capacity, x_shape);
  const int64_t seed_shape[3] = {rows, b->capacity, b->model->classes};
  int64_t labels;
  if (!bppsa_mul(rows, b->capacity, &labels)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "batch: %lld labels of %lld steps are too many", (long long)b->capacity, (long long)rows);
  }
  BPPSA_TRY(bppsa_buffer_create(b->model->device, b->model->dtype, x_dims, x_shape, &b->x));
  if (gradients) {
    BPPSA_TRY(bppsa_buffer_create(b->model->device, b->model->dtype, 3, seed_shape, &b->seed));
  }
  if (b->model->device != NULL) {
    return bppsa_batch_gpu_create(b, labels);
  }
  b->indices = bppsa_calloc(b->capacity, sizeof *b->indices);
  b->lengths = lengths ? bppsa_calloc(b->capacity, sizeof *b->lengths) : NULL;
  b->resets = resets ? bppsa_calloc(b->capacity, (size_t)b->length) : NULL;
  b->weights = weights ? bppsa_calloc(labels, sizeof *b->weights) : NULL;
  if ((lengths && b->lengths == NULL) || (resets && b->resets == NULL) || (weights && b->weights == NULL)) {
    return BPPSA_ERR_MEMORY;
  }
  if (bppsa_objective_real(&dataset->objective)) {
    BPPSA_TRY(bppsa_buffer_create(NULL, b->model->dtype, 3, seed_shape, &b->own_targets));
    b->targets = b->own_targets.view;
  } else {
    b->labels = bppsa_calloc(labels, sizeof *b->labels);
  }
  return b->indices != NULL && (b->labels != NULL || bppsa_objective_real(&dataset->objective)) ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

/* Checks that the data set's labels are classes of the model, or that it has as many targets as the model has outputs. */
static bppsa_status check_classes(const bppsa_model *model, const bppsa_dataset *dataset) {
  if (bppsa_objective_real(&dataset->objective) && dataset->classes != model->classes) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data set: %lld targets, expected %lld: the model has %lld outputs",
                      (long long)dataset->classes, (long long)model->classes, (long long)model->classes);
  }
  if (dataset->classes > model->classes) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data set: labels reach %lld, expected 0 .. %lld: the model has %lld classes",
                      (long long)dataset->classes - 1, (long long)model->classes - 1, (long long)model->classes);
  }
  return BPPSA_OK;
}

/* Makes the memory for the states that passes of streams begin and end with; that of a GPU is among the other parts. */
static bppsa_status create_states(bppsa_batch *b) {
  bppsa_view *const views[] = {&b->states, &b->begun};
  if (!b->dataset->streams) {
    return BPPSA_OK;
  }
  for (int i = 0; b->model->device == NULL && i < 2; ++i) {
    BPPSA_TRY(bppsa_buffer_create(NULL, views[i]->dtype, views[i]->ndim, views[i]->shape, &b->own_states[i]));
    *views[i] = b->own_states[i].view;
  }
  bppsa_batch_restart(b);
  return BPPSA_OK;
}

bppsa_status bppsa_batch_create(bppsa_model *model, const bppsa_dataset *dataset, const bppsa_device *device, int64_t capacity,
                                int64_t whole, bool gradients, bppsa_batch *batch) {
  if (model->dtype != BPPSA_F32 && model->dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "model: dtype %s, expected f32 or f64", bppsa_dtype_name(model->dtype));
  }
  BPPSA_TRY(check_classes(model, dataset));
  BPPSA_TRY(bppsa_dataset_check(dataset, model->dtype));
  const bool elsewhere = device != NULL && bppsa_device_get_kind(device) == BPPSA_CUDA;
  if (elsewhere != (model->device != NULL)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "model: in %s memory, expected it on the device %s", elsewhere ? "host" : "GPU",
                      device == NULL ? "cpu" : bppsa_device_get_name(device));
  }
  BPPSA_TRY(bppsa_windows_check(model, dataset));
  const int64_t windows = dataset->windows > 1 ? dataset->windows : 1, length = windows * dataset->seq_len;
  bppsa_batch made = {.model = model,
                      .dataset = dataset,
                      .device = device,
                      .capacity = capacity,
                      .whole = whole,
                      .past.windows = windows,
                      .length = length,
                      .steps = length};
  bppsa_status status = bppsa_batch_streams_shape(&made);
  status = status == BPPSA_OK ? create_buffers(&made, gradients) : status;
  status = status == BPPSA_OK ? create_states(&made) : status;
  if (status != BPPSA_OK) {
    bppsa_batch_free(&made);
    return status;
  }
  *batch = made;
  return BPPSA_OK;
}

void bppsa_batch_free(bppsa_batch *batch) {
  if (batch->lent) { /* a model with dropout has the indices, too */
    bppsa_model_forget(batch->model);
  }
  bppsa_buffer_free(&batch->x);
  bppsa_buffer_free(&batch->seed);
  bppsa_buffer_free(&batch->own_targets);
  bppsa_buffer_free(&batch->own_states[0]);
  bppsa_buffer_free(&batch->own_states[1]);
  if (batch->gpu.device != NULL) {
    bppsa_batch_gpu_free(batch);
  } else {
    bppsa_free(batch->labels);
    bppsa_free(batch->indices);
    bppsa_free(batch->lengths);
    bppsa_free(batch->resets);
    bppsa_free(batch->weights);
  }
  *batch = (bppsa_batch){0};
}

void bppsa_batch_set_steps(bppsa_batch *batch, int64_t first_step, int64_t steps) {
  batch->first_step = first_step;
  batch->steps = steps;
}

/* Writes the shape of the model's logits, which are of its own steps, or of the last step, which only one rank computes. Returns
 * the number of extents. */
static int32_t logits_shape(const bppsa_batch *batch, int64_t shape[3]) {
  const bool per_step = batch->dataset->labels_per_step, last = batch->first_step + batch->steps == batch->length;
  const int64_t all[3] = {batch->steps, per_step || (last && batch->steps > 0) ? batch->count : 0, batch->model->classes};
  memcpy(shape, per_step ? all : all + 1, (per_step ? 3 : 2) * sizeof *shape);
  return per_step ? 3 : 2;
}

static bppsa_view placed(bppsa_view view, bppsa_device_kind kind) {
  view.device = kind;
  return view;
}

/* Returns the part of x that holds the model's own steps. */
static bppsa_view own_x(const bppsa_batch *batch) {
  bppsa_view x = batch->x_view;
  if (batch->steps == batch->length) {
    return x;
  }
  const int64_t shape[3] = {batch->steps, batch->count, batch->dataset->input};
  char *first = (char *)x.data + batch->first_step * batch->count * shape[2] * (int64_t)bppsa_dtype_size(x.dtype);
  return placed(bppsa_view_make(first, x.dtype, 3, shape), x.device);
}

bppsa_view bppsa_batch_targets(const bppsa_batch *batch) {
  const bool per_step = batch->dataset->labels_per_step;
  const int64_t shape[3] = {batch->length, batch->count, batch->model->classes};
  return bppsa_view_make(batch->targets.data, batch->model->dtype, per_step ? 3 : 2, per_step ? shape : shape + 1);
}

/* Takes what the data set says of the present samples. */
static void take_spans(bppsa_batch *batch) {
  const bppsa_dataset *dataset = batch->dataset;
  const int64_t rows = dataset->labels_per_step ? dataset->seq_len : 1; /* of a sample */
  for (int64_t i = 0; i < batch->count; ++i) {
    if (batch->lengths != NULL) {
      batch->lengths[i] = dataset->lengths[batch->indices[i]];
    }
    for (int64_t t = 0; batch->resets != NULL && t < dataset->seq_len; ++t) {
      batch->resets[t * batch->count + i] = dataset->resets[batch->indices[i] * dataset->seq_len + t];
    }
    for (int64_t t = 0; batch->weights != NULL && t < rows; ++t) {
      batch->weights[t * batch->count + i] = dataset->loss_weights[batch->indices[i] * rows + t];
    }
  }
}

bppsa_status bppsa_batch_stage(bppsa_batch *batch, int64_t count) {
  int64_t shape[4];
  const int32_t ndim = pass_shape(batch, count, shape);
  batch->count = count;
  batch->first = 0;
  batch->fresh = true;
  batch->x_view = placed(bppsa_view_make(batch->x.view.data, batch->model->dtype, ndim, shape), batch->x.view.device);
  if (batch->past.windows > 1) {
    bppsa_windows_fill(batch);
    return BPPSA_OK;
  }
  take_spans(batch);
  if (bppsa_batch_is_made_on_gpu(batch)) {
    return BPPSA_OK;
  }
  const bool staged = batch->gpu.device != NULL;
  const bppsa_view host = bppsa_view_make(batch->gpu.x_staging.data, batch->model->dtype, ndim, shape);
  BPPSA_TRY(
      bppsa_dataset_fill(batch->dataset, batch->device, count, batch->indices, staged ? &host : &batch->x_view, batch->labels));
  const bppsa_view targets = bppsa_batch_targets(batch);
  return bppsa_objective_real(&batch->dataset->objective) ? bppsa_dataset_targets(batch->dataset, count, batch->indices, &targets)
                                                          : BPPSA_OK;
}

/* Writes the indices to memory that a GPU may still be reading: waits for it first. */
static bppsa_status take_indices(const bppsa_batch *batch, int64_t count, const int64_t *indices) {
  BPPSA_TRY(batch->gpu.device != NULL ? bppsa_device_wait(batch->gpu.device) : BPPSA_OK);
  memcpy(batch->indices, indices, (size_t)count * sizeof *indices);
  return BPPSA_OK;
}

bppsa_status bppsa_batch_put_inputs(bppsa_batch *batch, int64_t count, const int64_t *indices, const bppsa_view *x) {
  BPPSA_TRY(take_indices(batch, count, indices));
  return batch->gpu.device != NULL ? bppsa_batch_gpu_inputs(batch, count, x)
                                   : bppsa_dataset_fill(batch->dataset, batch->device, count, batch->indices, x, NULL);
}

bppsa_status bppsa_batch_put_targets(bppsa_batch *batch, int64_t count, const int64_t *indices) {
  BPPSA_TRY(take_indices(batch, count, indices));
  batch->count = count;
  batch->first = 0;
  if (bppsa_objective_real(&batch->dataset->objective)) {
    const bppsa_view targets = bppsa_batch_targets(batch);
    BPPSA_TRY(bppsa_dataset_targets(batch->dataset, count, batch->indices, &targets));
  } else if (batch->labels != NULL) {
    BPPSA_TRY(bppsa_dataset_fill(batch->dataset, batch->device, count, batch->indices, NULL, batch->labels));
  }
  return batch->gpu.device != NULL ? bppsa_batch_gpu_targets(batch) : BPPSA_OK;
}

void bppsa_batch_tell(bppsa_batch *batch) {
  bppsa_batch_streams_begin(batch);
  bppsa_model_drop(batch->model, batch->step, batch->training ? batch->indices : NULL);
}

void bppsa_batch_follow(bppsa_batch *batch, int64_t number, const int64_t *order, int64_t apart) {
  batch->past.number = number;
  batch->past.order = order;
  batch->past.apart = apart;
}

bppsa_status bppsa_batch_forward(bppsa_batch *batch) {
  int64_t shape[3];
  const int32_t ndim = logits_shape(batch, shape);
  const int64_t steps[2] = {batch->length, batch->count};
  const bppsa_view x = own_x(batch), resets = bppsa_view_make(batch->resets, BPPSA_U8, 2, steps);
  const bppsa_spans spans = {.lengths = batch->lengths, .resets = batch->resets != NULL ? &resets : NULL};
  bppsa_view begun;
  const bppsa_view *h0 = NULL;
  batch->lent = true;
  bppsa_batch_tell(batch);
  BPPSA_TRY(bppsa_batch_streams_put(batch, &begun, &h0));
  BPPSA_TRY(bppsa_model_forward(batch->model, &x, h0, &spans, &batch->logits));
  BPPSA_TRY(bppsa_batch_streams_take(batch));
  const bppsa_view expected = bppsa_view_make(batch->logits.data, batch->model->dtype, ndim, shape);
  if (!bppsa_view_same_shape(&batch->logits, &expected)) {
    char found_text[BPPSA_SHAPE_TEXT], expected_text[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_SHAPE, "logits: shape %s, expected %s: the labels are per %s",
                      bppsa_shape_text(batch->logits.ndim, batch->logits.shape, found_text, sizeof found_text),
                      bppsa_shape_text(expected.ndim, expected.shape, expected_text, sizeof expected_text),
                      ndim == 3 ? "step" : "sample");
  }
  batch->dlogits = placed(expected, batch->x.view.device);
  batch->dlogits.data = batch->seed.view.data;
  return BPPSA_OK;
}

/* Returns what the logits' rows are compared with: labels or targets from row `before` of the batch on. */
static bppsa_loss_rows compared_rows(const bppsa_batch *batch, int64_t before, const bppsa_view *targets) {
  const bppsa_dataset *dataset = batch->dataset;
  const bool real = bppsa_objective_real(&dataset->objective);
  return (bppsa_loss_rows){.labels = real ? NULL : batch->labels + before,
                           .targets = real ? targets : NULL,
                           .objective = dataset->objective,
                           .lengths = batch->lengths,
                           .weights = batch->weights != NULL ? batch->weights + before : NULL};
}

bppsa_status bppsa_batch_loss(bppsa_batch *batch, bppsa_loss_result *result) {
  const bppsa_view *seed = batch->dlogits.data == NULL ? NULL : &batch->dlogits;
  if (batch->gpu.device != NULL) {
    return bppsa_batch_gpu_loss(batch, 0, result);
  }
  const bppsa_view targets = bppsa_batch_targets(batch);
  const bppsa_loss_rows rows = compared_rows(batch, 0, &targets);
  return bppsa_loss_of(batch->device, &batch->logits, &rows, seed, result);
}

bppsa_status bppsa_batch_loss_part(bppsa_batch *batch, int64_t samples, bppsa_loss_result *result) {
  const bppsa_view *seed = batch->dlogits.data == NULL ? NULL : &batch->dlogits;
  const bppsa_dataset *dataset = batch->dataset;
  const int64_t before = bppsa_batch_rows_before(batch), mean_rows = samples * (bppsa_batch_rows(batch) / batch->count);
  bppsa_view targets = {0};
  if (bppsa_view_count(&batch->logits) == 0) { /* other ranks have the rows */
    *result = (bppsa_loss_result){0};
    return batch->gpu.device != NULL ? bppsa_device_wait(batch->gpu.device) : BPPSA_OK; /* staging memory is free again */
  }
  if (batch->gpu.device != NULL) {
    return bppsa_batch_gpu_loss(batch, mean_rows, result);
  }
  if (bppsa_objective_real(&dataset->objective)) {
    char *data = batch->targets.data;
    targets = bppsa_view_make(data + before * batch->model->classes * (int64_t)bppsa_dtype_size(batch->model->dtype),
                              batch->model->dtype, batch->logits.ndim, batch->logits.shape);
  }
  bppsa_loss_rows rows = compared_rows(batch, before, &targets);
  rows.mean_rows = mean_rows;
  return bppsa_loss_part(batch->device, &batch->logits, &rows, seed, result);
}

void bppsa_batch_describe(const bppsa_batch *batch, const bppsa_nonfinite *found, bppsa_line *line) {
  const char *comma = " in";
  const bool among = found->sample >= 0 && found->sample < batch->count;
  int64_t step = found->step, sample = among ? batch->indices[found->sample] : 0;
  if (among && batch->past.windows > 1) {
    sample = bppsa_windows_place(batch, found->sample, &step);
  }
  bppsa_line_add(line, "non-finite %s", found->what);
  if (found->name != NULL) {
    bppsa_line_add(line, " %s", found->name); /* "value of" or "gradient of" NAME */
  }
  if (found->layer >= 0) {
    bppsa_line_add(line, "%s layer %lld", comma, (long long)found->layer);
    comma = ",";
  }
  if (step >= 0) {
    bppsa_line_add(line, "%s time step %lld", comma, (long long)step);
    comma = ",";
  }
  if (among) {
    bppsa_line_add(line, "%s sample %lld of the batch (data set index %lld)", comma, (long long)(batch->first + found->sample),
                   (long long)sample);
  }
}

void bppsa_batch_describe_nonfinite(bppsa_batch *batch, const char *otherwise, bppsa_line *line) {
  bppsa_nonfinite found;
  if (batch->model->ops->find_nonfinite(batch->model, &found) || bppsa_model_parameter_nonfinite(batch->model, true, &found)) {
    bppsa_batch_describe(batch, &found, line);
  } else {
    bppsa_line_add(line, "non-finite %s", otherwise);
  }
}

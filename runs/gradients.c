#include "runs/gradients.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/device_buffer.h"
#include "core/files/npy.h"
#include "runs/backward_report.h"
#include "runs/gradients_internal.h"
#include "train/data/lengths.h"
#include "train/data/loss_weights.h"
#include "train/data/resets.h"
#include "train/loss.h"

enum { EXTRAS = 4 }; /* input, h0, c0, loss */

void bppsa_gradients_free(bppsa_gradients *g) {
  bppsa_free(g->tensors);
  bppsa_free(g->lengths);
  bppsa_free(g->resets);
  bppsa_free(g->loss_weights);
  bppsa_free(g->samples);
  bppsa_buffer_free(&g->dx);
  bppsa_buffer_free(&g->dh0);
  bppsa_buffer_free(&g->halves[0]);
  bppsa_buffer_free(&g->halves[1]);
  bppsa_buffer_free(&g->seed);
  bppsa_buffer_free(&g->h0);
  bppsa_buffer_free(&g->labels);
  bppsa_buffer_free(&g->x);
  bppsa_model_destroy(g->model);
  bppsa_rank_network_free(&g->on);
  bppsa_device_destroy(g->device);
  bppsa_safetensors_destroy(g->file);
  bppsa_network_close(&g->network);
  *g = (bppsa_gradients){0};
}

/* ---- the batch ---- */

static bppsa_status load_input(const char *path, bppsa_gradients *g) {
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load_reals(path, g->config.dtype, &g->x)));
  return g->network.kind->family->take_batch(path, &g->network, &g->x.view, &g->config);
}

/* Loads real targets of the shape of the logits; a last axis of 1 may be missing. */
static bppsa_status load_targets(const char *path, bppsa_gradients *g) {
  const bool all = g->config.loss_all, single = g->config.classes == 1;
  const int64_t shape[3] = {g->config.steps.seq_len, g->config.batch, g->config.classes};
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load_reals(path, g->config.dtype, &g->labels)));
  bppsa_view *view = &g->labels.view;
  if (single && view->ndim == (all ? 2 : 1)) {
    view->shape[view->ndim] = 1;
    *view = bppsa_view_make(view->data, view->dtype, view->ndim + 1, view->shape);
  }
  BPPSA_TRY(bppsa_view_check_shape(path, view, all ? "[T, B, C]" : "[B, C]", all ? 3 : 2, all ? shape : shape + 1));
  return g->objective.kind == BPPSA_LOSS_BINARY ? bppsa_binary_targets_check(path, view) : BPPSA_OK;
}

static bppsa_status load_labels(const char *path, bppsa_gradients *g) {
  const bool all = g->config.loss_all;
  const int64_t batch = g->config.batch, shape[2] = {g->config.steps.seq_len, batch};
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load_whole(path, &g->labels)));
  const bppsa_view *labels = &g->labels.view;
  if (!all && labels->ndim == 1 && labels->shape[0] != batch && labels->shape[0] == shape[0] && g->network.kind->family->steps) {
    return bppsa_fail(BPPSA_ERR_SHAPE,
                      "%s: %" PRId64 " labels, expected %" PRId64 ": --input is [T, B, I] = [%" PRId64 ", %" PRId64 ", %" PRId64
                      "], but looks like [B, T, I]",
                      path, shape[0], batch, shape[0], batch, g->config.input);
  }
  BPPSA_TRY(bppsa_view_check_shape(path, labels, all ? "[T, B]" : "[B]", all ? 2 : 1, all ? shape : shape + 1));
  const int64_t count = bppsa_view_count(labels), *values = labels->data;
  for (int64_t i = 0; i < count; ++i) {
    if (g->objective.ignores && values[i] == g->objective.ignored) {
      continue;
    }
    if (values[i] < 0 || values[i] >= g->config.classes) {
      char position[64];
      const int64_t index[2] = {i / batch, i % batch};
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: label %" PRId64 " at %s, expected 0 .. %" PRId64, path, values[i],
                        bppsa_shape_text(all ? 2 : 1, all ? index : index + 1, position, sizeof position), g->config.classes - 1);
    }
  }
  return BPPSA_OK;
}

static bool has_pairs(const bppsa_gradients *g) {
  return g->network.kind->cell != NULL && g->network.kind->cell->pair;
}

static int64_t directions_of(const bppsa_gradients *g) {
  return g->config.steps.bidirectional ? 2 : 1;
}

/* Counts the initial states of a sample: one for each direction of a layer. */
static int64_t layers_of(const bppsa_gradients *g) {
  return directions_of(g) * g->config.steps.layers;
}

static bppsa_status load_state(const char *path, const bppsa_gradients *g, bppsa_buffer *state) {
  const int64_t shape[3] = {layers_of(g), g->config.batch, g->config.steps.hidden};
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load_reals(path, g->config.dtype, state)));
  return bppsa_view_check_shape(path, &state->view, g->config.steps.bidirectional ? "[2 L, B, H]" : "[L, B, H]", 3, shape);
}

/* Copies one half of the state, [L,B,H], into its place in the pairs, [L,B,2H], or back. */
static void copy_half(const bppsa_view *pairs, int64_t which, const bppsa_view *half, bool back) {
  const size_t bytes = (size_t)half->shape[2] * bppsa_dtype_size(half->dtype);
  const int64_t rows = half->shape[0] * half->shape[1];
  for (int64_t r = 0; r < rows; ++r) {
    char *in_pairs = (char *)pairs->data + (size_t)(2 * r + which) * bytes, *in_half = (char *)half->data + (size_t)r * bytes;
    memcpy(back ? in_half : in_pairs, back ? in_pairs : in_half, bytes);
  }
}

/* Loads h0 and c0 as the halves of pairs; a file that is not given stands for zeros. */
static bppsa_status load_pairs(const char *const paths[2], bppsa_gradients *g) {
  const int64_t shape[3] = {layers_of(g), g->config.batch, 2 * g->config.steps.hidden};
  BPPSA_TRY(bppsa_buffer_create(NULL, g->config.dtype, 3, shape, &g->h0));
  for (int64_t i = 0; i < 2; ++i) {
    bppsa_buffer half = {0};
    const bppsa_status status = paths[i] != NULL ? load_state(paths[i], g, &half) : BPPSA_OK;
    if (status == BPPSA_OK && paths[i] != NULL) {
      copy_half(&g->h0.view, i, &half.view, false);
    }
    bppsa_buffer_free(&half);
    BPPSA_TRY(status);
  }
  return BPPSA_OK;
}

/* Loads the gradient of the states: of all steps, or of the last one. */
static bppsa_status load_grad_output(const char *path, bppsa_gradients *g) {
  const bool both = g->config.steps.bidirectional;
  const int64_t shape[3] = {g->config.steps.seq_len, g->config.batch, directions_of(g) * g->config.steps.hidden};
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load_reals(path, g->config.dtype, &g->labels)));
  const bool all = g->labels.view.ndim == 3;
  g->config.loss_all = all;
  const char *const symbols[] = {both ? "[B, 2 H]" : "[B, H]", both ? "[T, B, 2 H]" : "[T, B, H]"};
  return bppsa_view_check_shape(path, &g->labels.view, symbols[all], all ? 3 : 2, all ? shape : shape + 1);
}

bppsa_status bppsa_gradients_load(const bppsa_gradients_files *files, bppsa_gradients *g) {
  const char *h0 = files->h0, *c0 = files->c0;
  if (c0 != NULL && !has_pairs(g)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: an initial cell state for %s, which has none, expected a network such as lstm", c0,
                      g->network.kind->name);
  }
  BPPSA_TRY(load_input(files->input, g));
  if (files->lengths != NULL) {
    BPPSA_TRY(bppsa_input_status(bppsa_lengths_load(files->lengths, g->config.batch, g->config.steps.seq_len, &g->lengths)));
    g->config.steps.lengths = true;
  }
  if (files->resets != NULL) {
    BPPSA_TRY(
        bppsa_input_status(bppsa_resets_load(files->resets, "[T, B]", g->config.steps.seq_len, g->config.batch, &g->resets)));
    g->config.steps.resets = true;
  }
  if (files->loss_weights != NULL) {
    const bppsa_loss_weights_shape shape = {.samples = g->config.batch,
                                            .steps = g->config.steps.seq_len,
                                            .time_first = true,
                                            .per_step = g->config.loss_all,
                                            .lengths = g->lengths};
    BPPSA_TRY(bppsa_input_status(bppsa_loss_weights_load(files->loss_weights, &shape, &g->loss_weights)));
  }
  BPPSA_TRY(g->objective.kind == BPPSA_LOSS_NONE  ? load_grad_output(files->grad_output, g)
            : bppsa_objective_real(&g->objective) ? load_targets(files->labels, g)
                                                  : load_labels(files->labels, g));
  if (has_pairs(g)) {
    return h0 != NULL || c0 != NULL ? load_pairs((const char *const[]){h0, c0}, g) : BPPSA_OK;
  }
  return h0 != NULL ? load_state(h0, g, &g->h0) : BPPSA_OK;
}

/* ---- the gradients ---- */

static bppsa_status compute_loss(const bppsa_gradients *g, const bppsa_view *logits, bppsa_loss_result *result) {
  const bool real = bppsa_objective_real(&g->objective);
  const bppsa_loss_rows rows = {.labels = real ? NULL : g->labels.view.data,
                                .targets = real ? &g->labels.view : NULL,
                                .objective = g->objective,
                                .lengths = g->lengths,
                                .weights = g->loss_weights};
  return bppsa_loss_of(g->device, logits, &rows, &g->seed.view, result);
}

/* Computes the gradient of the outputs from the loss, or takes the one that the caller brought. */
static bppsa_status find_seed(bppsa_gradients *g, const bppsa_view *logits) {
  bppsa_loss_result result;
  if (g->objective.kind == BPPSA_LOSS_NONE) {
    g->loss = (double)NAN;
    return bppsa_buffer_move(g->device, &g->labels);
  }
  BPPSA_TRY(bppsa_buffer_create(g->device, logits->dtype, logits->ndim, logits->shape, &g->seed));
  BPPSA_TRY(compute_loss(g, logits, &result));
  g->loss = result.loss;
  return isfinite(g->loss) ? BPPSA_OK : bppsa_model_fail_nonfinite(g->model, "loss");
}

/* Makes the passes those of a step of training, if batch norms shall normalise by the batch; dropouts leave out nothing, since the
 * model is none that is trained. */
static bppsa_status train_norms(bppsa_gradients *g) {
  if (!g->config.batch_statistics) {
    return BPPSA_OK;
  }
  g->samples = bppsa_calloc(g->config.batch, sizeof *g->samples);
  for (int64_t i = 0; g->samples != NULL && i < g->config.batch; ++i) {
    g->samples[i] = i;
  }
  bppsa_model_drop(g->model, 0, g->samples);
  return g->samples != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

static bppsa_status forward_backward(bppsa_gradients *g) {
  const bool given = g->objective.kind == BPPSA_LOSS_NONE;
  bppsa_view logits;
  const bppsa_view *h0 = g->h0.view.data != NULL ? &g->h0.view : NULL;
  BPPSA_TRY(bppsa_buffer_move(g->device, &g->x));
  if (h0 != NULL) {
    BPPSA_TRY(bppsa_buffer_move(g->device, &g->h0));
  }
  const bppsa_view resets = bppsa_view_make(g->resets, BPPSA_U8, 2, (int64_t[]){g->config.steps.seq_len, g->config.batch});
  const bppsa_spans spans = {.lengths = g->lengths, .resets = g->resets != NULL ? &resets : NULL};
  BPPSA_TRY(train_norms(g));
  BPPSA_TRY(bppsa_model_forward(g->model, &g->x.view, h0, &spans, &logits));
  BPPSA_TRY(bppsa_model_add_pass(g->model, BPPSA_PASS_FORWARD, g->account[BPPSA_PASS_FORWARD]));
  BPPSA_TRY(find_seed(g, &logits));
  BPPSA_TRY(g->model->ops->backward(g->model, given ? &g->labels.view : &g->seed.view));
  BPPSA_TRY(bppsa_model_add_pass(g->model, BPPSA_PASS_BACKWARD, g->account[BPPSA_PASS_BACKWARD]));
  return bppsa_model_pull(g->model, true);
}

static bppsa_status fetch_inputs(bppsa_gradients *g) {
  bppsa_view input, h0;
  BPPSA_TRY(g->model->ops->input_gradients(g->model, &input, &h0));
  BPPSA_TRY(bppsa_buffer_fetch(g->device, &input, &g->dx));
  return g->h0.view.data != NULL ? bppsa_buffer_fetch(g->device, &h0, &g->dh0) : BPPSA_OK;
}

/* Lists the gradient of the initial state; of a pair, each half by itself. */
static bppsa_status list_start(bppsa_gradients *g) {
  static const char *const names[] = {"h0", "c0"};
  const bppsa_view *all = &g->dh0.view;
  if (g->h0.view.data == NULL) {
    return BPPSA_OK;
  }
  for (int64_t i = 0; has_pairs(g) && i < 2; ++i) {
    const int64_t shape[3] = {all->shape[0], all->shape[1], all->shape[2] / 2};
    BPPSA_TRY(bppsa_buffer_create(NULL, all->dtype, 3, shape, &g->halves[i]));
    copy_half(all, i, &g->halves[i].view, true);
  }
  for (int64_t i = 0; i < (has_pairs(g) ? 2 : 1); ++i) {
    g->tensors[g->count++] = (bppsa_named_view){names[i], has_pairs(g) ? g->halves[i].view : *all};
  }
  return BPPSA_OK;
}

bppsa_status bppsa_gradients_list(bppsa_gradients *g) {
  const bppsa_model *model = g->model;
  g->tensors = bppsa_calloc(model->parameter_count + EXTRAS, sizeof *g->tensors);
  if (g->tensors == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    if (!model->parameters[i].statistic) {
      g->tensors[g->count++] = (bppsa_named_view){model->parameters[i].name, model->parameters[i].gradient};
    }
  }
  g->tensors[g->count++] = (bppsa_named_view){"input", g->dx.view};
  BPPSA_TRY(list_start(g));
  if (g->objective.kind == BPPSA_LOSS_NONE) {
    return BPPSA_OK;
  }
  g->loss_f32 = (float)g->loss;
  void *loss = model->dtype == BPPSA_F32 ? (void *)&g->loss_f32 : (void *)&g->loss;
  g->tensors[g->count++] = (bppsa_named_view){"loss", bppsa_view_make(loss, model->dtype, 0, NULL)};
  return BPPSA_OK;
}

/* Returns the 2-norm. The largest element scales it, so that squares neither over- nor underflow; an element that is not finite is
 * returned instead. */
static double norm_of(const bppsa_view *view) {
  const int64_t count = bppsa_view_count(view);
  double largest = 0, sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double size = fabs(bppsa_view_get(view, i));
    if (!isfinite(size)) {
      return size;
    }
    largest = size > largest ? size : largest;
  }
  for (int64_t i = 0; largest > 0 && i < count; ++i) {
    const double part = bppsa_view_get(view, i) / largest;
    sum += part * part;
  }
  return largest * sqrt(sum);
}

bppsa_status bppsa_gradients_check(const bppsa_gradients *g) {
  for (int64_t i = 0; i < g->count; ++i) {
    const bppsa_view *view = &g->tensors[i].view;
    const int64_t count = bppsa_view_count(view);
    for (int64_t k = 0; k < count; ++k) {
      if (!isfinite(bppsa_view_get(view, k))) {
        char what[128];
        snprintf(what, sizeof what, "gradient of %s, element %" PRId64, g->tensors[i].name, k);
        return bppsa_model_fail_nonfinite(g->model, what);
      }
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_gradients_compute(bppsa_gradients *g) {
  BPPSA_TRY(forward_backward(g));
  BPPSA_TRY(fetch_inputs(g));
  BPPSA_TRY(bppsa_gradients_list(g));
  BPPSA_TRY(bppsa_gradients_check(g));
  return g->certifies ? bppsa_certify(g->model, &g->certificate) : BPPSA_OK;
}

/* ---- results ---- */

static json_t *tensor_json(const bppsa_named_view *tensor) {
  json_t *object = json_object();
  bool ok = bppsa_json_put_shape(object, "shape", tensor->view.ndim, tensor->view.shape);
  ok = ok && bppsa_json_put_text(object, "name", tensor->name);
  ok = ok && bppsa_json_put_real(object, "norm", norm_of(&tensor->view));
  return bppsa_json_finish(object, ok);
}

/* Returns the network as reports show it: with the batch of all ranks together, not one rank's part. */
static bppsa_network_config shown_config(const bppsa_gradients *g) {
  bppsa_network_config config = g->config;
  config.batch = g->on.comm != NULL ? g->on.parallel.batch : config.batch;
  return config;
}

/* Are the gradients of x and h0 right to the pass's tolerance alone, and not as BP's are at every step? */
static bool absolute_inputs(const bppsa_gradients *g, const bppsa_backward_stats *pass) {
  return pass->speculated && !g->config.steps.speculation.exact_inputs;
}

/* Compares the FLOPs of what a speculative pass did with BP's. */
static bppsa_status find_ratios(const bppsa_gradients *g, const bppsa_backward_stats *stats, bppsa_work_ratios *ratios) {
  const bppsa_network_config shown = shown_config(g);
  const bppsa_recurrent_config config = bppsa_network_recurrent_config(&shown);
  return bppsa_backward_ratios(g->network.kind, &config, bppsa_backward_plan_of(g->model), stats, ratios);
}

static json_t *backward_json(const bppsa_gradients *g, const bppsa_backward_stats *stats) {
  bppsa_work_ratios ratios = {0};
  json_t *object = bppsa_backward_stats_json(stats);
  const bool ok = object != NULL && find_ratios(g, stats, &ratios) == BPPSA_OK && bppsa_work_json(object, "bp", &ratios);
  return bppsa_json_finish(object, ok);
}

json_t *bppsa_gradients_json(const bppsa_gradients *g) {
  const bppsa_network_config c = shown_config(g);
  const bppsa_gradient_method method = bppsa_rank_network_method(&g->network, &c, &g->on, g->model);
  json_t *object = json_object(), *tensors = json_array();
  bool ok = tensors != NULL;
  for (int64_t i = 0; ok && i < g->count; ++i) {
    ok = json_array_append_new(tensors, tensor_json(&g->tensors[i])) == 0;
  }
  ok = bppsa_json_put(object, "tensors", bppsa_json_finish(tensors, ok));
  ok = ok && bppsa_json_put_real(object, "loss", g->loss);
  ok = ok && bppsa_chosen_method_json(object, &method, g->chosen);
  const bppsa_forward_stats forward = bppsa_forward_stats_from(g->account[BPPSA_PASS_FORWARD]);
  if (forward.passes > 0) {
    ok = ok && bppsa_json_put(object, "forward", bppsa_forward_stats_json(&forward));
  }
  const bppsa_backward_stats backward = bppsa_backward_stats_from(g->account[BPPSA_PASS_BACKWARD]);
  if (backward.passes > 0) {
    ok = ok && bppsa_json_put(object, "speculation", backward_json(g, &backward));
    ok = ok && bppsa_json_put_text(object, "input_gradients", absolute_inputs(g, &backward) ? "absolute" : "exact");
  }
  if (g->certifies) {
    ok = ok && bppsa_json_put(object, "certificate", bppsa_certificate_json(&g->certificate));
  }
  ok = ok && bppsa_network_json(&g->network, &c, object);
  ok = ok && bppsa_json_put_text(object, "model", g->network.kind->name);
  ok = ok && bppsa_objective_json(object, &g->objective, c.loss_all);
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(c.dtype));
  return bppsa_json_finish(object, ok);
}

/* Says how exact the gradients of x and h0 are. */
static void add_inputs(const bppsa_gradients *g, const bppsa_backward_stats *pass, bppsa_text *text) {
  if (absolute_inputs(g, pass)) {
    bppsa_text_add(text,
                   "input gradients: right to %.2g s absolutely, s being the mean size of the states' gradients; those of steps "
                   "that the loss hardly reaches may be 0\n\n",
                   bppsa_backward_plan_of(g->model)->accept);
  } else {
    bppsa_text_add(text, "input gradients: exact, as BP's%s\n\n",
                   pass->speculated ? ": the loss reaches every step" : ", which has computed them");
  }
}

void bppsa_gradients_text(const bppsa_gradients *g, const char *path, bppsa_text *text) {
  const bppsa_network_config c = shown_config(g);
  const bppsa_gradient_method method = bppsa_rank_network_method(&g->network, &c, &g->on, g->model);
  char words[BPPSA_CHOSEN_TEXT], shape[BPPSA_SHAPE_TEXT], network[BPPSA_NETWORK_TEXT];
  bppsa_text_add(text, "%s, %s, %s\n\n", bppsa_network_describe(&g->network, &c, network, sizeof network),
                 bppsa_dtype_name(c.dtype), bppsa_chosen_method_text(g->chosen, &method, words, sizeof words));
  const bppsa_forward_stats forward = bppsa_forward_stats_from(g->account[BPPSA_PASS_FORWARD]);
  if (forward.passes > 0) {
    char done[BPPSA_FORWARD_TEXT];
    bppsa_text_add(text, "forward pass in parallel: %s\n\n", bppsa_forward_stats_text(&forward, done, sizeof done));
  }
  const bppsa_backward_stats backward = bppsa_backward_stats_from(g->account[BPPSA_PASS_BACKWARD]);
  if (backward.passes > 0) {
    char done[BPPSA_BACKWARD_TEXT], flops[BPPSA_WORK_TEXT];
    bppsa_work_ratios ratios = {0};
    text->failed = find_ratios(g, &backward, &ratios) != BPPSA_OK || text->failed;
    bppsa_text_add(text, "backward pass in parallel: %s; %s\n\n", bppsa_backward_stats_text(&backward, done, sizeof done),
                   bppsa_work_text(&ratios, "steps", flops, sizeof flops));
    add_inputs(g, &backward, text);
  }
  if (g->certifies) {
    char done[BPPSA_CERTIFICATE_TEXT];
    bppsa_text_add(text, "%s\n\n", bppsa_certificate_text(&g->certificate, done, sizeof done));
  }
  bppsa_text_add(text, "%-22s %-20s %s\n", "gradient of", "shape", "norm");
  const int64_t gradients = g->count - (g->objective.kind != BPPSA_LOSS_NONE); /* the loss comes last */
  for (int64_t i = 0; i < gradients; ++i) {
    const bppsa_view *view = &g->tensors[i].view;
    bppsa_text_add(text, "%-22s %-20s %.6e\n", g->tensors[i].name, bppsa_shape_text(view->ndim, view->shape, shape, sizeof shape),
                   norm_of(view));
  }
  if (g->objective.kind != BPPSA_LOSS_NONE) {
    bppsa_text_add(text, "\nloss %.6f, ", g->loss);
  }
  bppsa_text_add(text, "%swritten to %s\n", g->objective.kind != BPPSA_LOSS_NONE ? "" : "\n", path);
}

bppsa_status bppsa_gradients_save(const bppsa_gradients *g, const char *path) {
  return bppsa_safetensors_save(path, g->count, g->tensors, 0, NULL);
}
